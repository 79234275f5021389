"""The merge functions that ship with crdt_mor."""

from payloads.partial_update import PartialUpdate

__all__ = ["PartialUpdate"]

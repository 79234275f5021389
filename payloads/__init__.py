"""The merge functions that ship with crdt_mor. Each is also a model for custom ones."""

from crdt_mor import PartialUpdate
from crdt_mor.payloads.booleans import All, Any
from crdt_mor.payloads.counters import Counter
from crdt_mor.payloads.extremes import Max, Min
from crdt_mor.payloads.lists import EventList, MapLast
from crdt_mor.payloads.registers import First, Last, LatestBy, MVRegister
from crdt_mor.payloads.sets import GrowOnlySet, ORSet
from crdt_mor.payloads.sketches import Distinct, Quantiles

__all__ = [
    "All", "Any", "Counter", "Distinct", "EventList", "First", "GrowOnlySet", "Last", "LatestBy", "MVRegister",
    "MapLast", "Max", "Min", "ORSet", "PartialUpdate", "Quantiles",
]  # fmt: skip

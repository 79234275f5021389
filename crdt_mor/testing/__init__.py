"""What authors of payloads and users of tables need for their own tests; needs `pip install "crdt-mor[testing]"`."""

from crdt_mor.laws.strategies import strategies, written

__all__ = ["strategies", "written"]

"""The merge functions that ship with crdt_mor. Each is also a model for one's own."""

from crdt_mor import PartialUpdate
from payloads.booleans import All, Any
from payloads.counters import Counter
from payloads.extremes import Max, Min
from payloads.lists import EventList, MapLast
from payloads.registers import First, Last, LatestBy, MVRegister
from payloads.sets import GrowOnlySet, ORSet
from payloads.sketches import Distinct, Quantiles

__all__ = [
    "All",
    "Any",
    "Counter",
    "Distinct",
    "EventList",
    "First",
    "GrowOnlySet",
    "Last",
    "LatestBy",
    "MVRegister",
    "MapLast",
    "Max",
    "Min",
    "ORSet",
    "PartialUpdate",
    "Quantiles",
]

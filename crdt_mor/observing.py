"""The events that `crdt_mor.observe` reports to a callback; docs/observing.md lists their fields."""

from crdt_mor.ground.observing import Observation
from crdt_mor.ground.observing_events import (
    AdoptionEvent,
    CommitEvent,
    Event,
    PartEvent,
    PlanEvent,
    RaceLostEvent,
    RollbackEvent,
    StreamEvent,
    SweepEvent,
    UpkeepEvent,
    WaitEvent,
)

__all__ = [
    "AdoptionEvent", "CommitEvent", "Event", "Observation", "PartEvent", "PlanEvent", "RaceLostEvent", "RollbackEvent",
    "StreamEvent", "SweepEvent", "UpkeepEvent", "WaitEvent",
]  # fmt: skip

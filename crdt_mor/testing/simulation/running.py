"""Run a plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from crdt_mor import CrdtMorError, Payload, payloads
from crdt_mor.errors import LawError
from crdt_mor.ground.threads import one_thread
from crdt_mor.testing.simulation import altering, foreign, keeping, moving, reading, writing
from crdt_mor.testing.simulation.invariants import BrokenPromiseError
from crdt_mor.testing.simulation.plan import Plan, plan_of
from crdt_mor.testing.simulation.world import World

SHIPPED: Final = (
    payloads.Max(), payloads.Min(), payloads.Any(), payloads.First(), payloads.Last(nulls="skip"),
    payloads.GrowOnlySet(), payloads.ORSet(), payloads.MVRegister(), payloads.EventList(),
)  # fmt: skip
"""Payloads for runs without a given one."""

ACTS: Final = {
    **writing.ACTS, **keeping.ACTS, **reading.ACTS, **foreign.ACTS, **moving.ACTS, **altering.ACTS,
}  # fmt: skip

SMALL: Final = (
    ("crdt_mor.log.tail", "KEPT_VERSIONS", 2), ("crdt_mor.log.publish", "EXPIRE_EVERY", 1),
    ("crdt_mor.log.segments", "COMPLETIONS_MAX", 2), ("crdt_mor.log.segments", "SEGMENTS_MAX", 2),
)  # fmt: skip
"""Constants that a run makes small, so that old versions go and completions are sealed within a few steps."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run. violation: the broken promise, or None.

    digest: of every call of every process; equal for runs of the same plan.
    """

    plan: Plan
    violation: BrokenPromiseError | None
    digest: str
    calls: int
    story: tuple[str, ...]


def run(plan: Plan) -> Outcome:
    try:
        world = World(plan, ACTS)
    except LawError as error:
        return Outcome(plan, BrokenPromiseError("laws", str(error)), "", 0, ())
    violation = None
    with small_numbers(), one_thread():
        try:
            world.run()
            reading.finish(world)
        except BrokenPromiseError as found:
            violation = found
        except CrdtMorError as error:
            violation = BrokenPromiseError("no-surprise", f"a reader: {type(error).__name__}: {error}")
    return Outcome(plan, violation, world.trace.text(), world.trace.calls, tuple(filter(None, world.lines)))


def run_seed(seed: int, payload: Payload | None = None) -> Outcome:
    return run(plan_of(seed, payload, SHIPPED))


@contextmanager
def small_numbers() -> Iterator[None]:
    """Lower limits of the engine inside the block, so that rare events become frequent."""
    before: list[tuple[Any, str, Any]] = []
    for module, name, value in SMALL:
        found = import_module(module)
        before.append((found, name, getattr(found, name)))
        setattr(found, name, value)
    try:
        yield
    finally:
        for found, name, value in before:
            setattr(found, name, value)

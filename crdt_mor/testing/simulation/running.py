"""Run a plan, or many seeds until a run breaks a promise, and shorten a failing plan while it breaks the same.

Shortening is delta debugging (Zeller and Hildebrandt, 2002) over the list of actions, then over troubles and rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final

from crdt_mor import CrdtMorError, Payload, payloads
from crdt_mor.errors import LawError
from crdt_mor.ground.threads import one_thread
from crdt_mor.testing.simulation import altering, foreign, keeping, moving, reading, writing
from crdt_mor.testing.simulation.invariants import BrokenPromiseError
from crdt_mor.testing.simulation.plan import Action, Plan, plan_of
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


RUNS_MAX: Final = 400
"""Tried plans at most."""


def shrink(outcome: Outcome, play: Callable[[Plan], Outcome] = run) -> Outcome:
    """Return the outcome of the shortest found plan that breaks the same promise."""
    if outcome.violation is None:
        return outcome
    return _Shrinking(outcome, play).all()


class _Shrinking:
    def __init__(self, outcome: Outcome, play: Callable[[Plan], Outcome]) -> None:
        assert outcome.violation is not None
        self._best = outcome
        self._invariant = outcome.violation.invariant
        self._play = play
        self._left = RUNS_MAX

    def all(self) -> Outcome:
        while self._left and (self._fewer_actions() or self._simpler_actions()):
            pass
        return self._best

    def _fails(self, actions: Sequence[Action]) -> bool:
        if not self._left:
            return False
        self._left -= 1
        outcome = self._play(replace(self._best.plan, actions=tuple(actions)))
        if outcome.violation is None or outcome.violation.invariant != self._invariant:
            return False
        self._best = outcome
        return True

    def _fewer_actions(self) -> bool:
        before = len(self._best.plan.actions)
        size = before
        while size:
            start = 0
            while start < len(self._best.plan.actions):
                actions = self._best.plan.actions
                if not self._fails(actions[:start] + actions[start + size :]):
                    start += size
            size //= 2
        return len(self._best.plan.actions) < before

    def _simpler_actions(self) -> bool:
        found = False
        for place in range(len(self._best.plan.actions)):
            for simpler in _simpler(self._best.plan.actions[place]):
                actions = list(self._best.plan.actions)
                actions[place] = simpler
                if self._fails(actions):
                    found = True
                    break
        return found


def _simpler(action: Action) -> Iterator[Action]:
    trouble = action.trouble
    if trouble is not None:
        yield replace(action, trouble=None)
        if trouble.steps > 1:
            yield replace(action, trouble=replace(trouble, steps=1))
        if trouble.seconds:
            yield replace(action, trouble=replace(trouble, seconds=0.0))
    for place in range(len(action.rows) if len(action.rows) > 1 else 0):
        yield replace(action, rows=action.rows[:place] + action.rows[place + 1 :])


@dataclass(frozen=True)
class Simulated:
    """The result of many runs.

    broken: the first run that broke a promise; `shortest`: the shortest run that breaks the same.
    """

    seeds: int
    calls: int
    digest: str
    broken: Outcome | None = None
    shortest: Outcome | None = None


def simulate(
    seeds: int | Iterable[int],
    payload: Payload | None = None,
    on_run: Callable[[Outcome], None] | None = None,
) -> Simulated:
    """Run seeds until one breaks a promise.

    Args:
        seeds: A number of seeds from 0, or the seeds.
        payload: Merges a column with the payload's examples; None: a shipped payload in some runs.
        on_run: Called after each run.
    """
    digest, calls, ran = hashlib.blake2b(digest_size=12), 0, 0
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        outcome = run_seed(seed, payload)
        ran, calls = ran + 1, calls + outcome.calls
        digest.update(outcome.digest.encode())
        if on_run is not None:
            on_run(outcome)
        if outcome.violation is not None:
            return Simulated(ran, calls, digest.hexdigest(), outcome, shrink(outcome))
    return Simulated(ran, calls, digest.hexdigest())

"""Shorten a failing plan while it breaks the same promise.

Delta debugging (Zeller and Hildebrandt, 2002) over the list of actions, then over troubles and rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from crdt_mor.testing.simulation.plan import Action, Plan
from crdt_mor.testing.simulation.running import Outcome, run

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

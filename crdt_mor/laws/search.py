"""The deep law check: hypothesis draws histories of up to six updates and shrinks counterexamples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from crdt_mor.laws.claims import LAWS
from crdt_mor.laws.examine import examine
from crdt_mor.laws.histories import Update, placed
from crdt_mor.laws.strategies import written
from crdt_mor.laws.trial import Counterexamples, Trial, trial_of_examples
from crdt_mor.merge.payload import Payload

UPDATES_MAX: Final = 6

Drawn = list[tuple[tuple[pa.DataType, Any], bool, int]]
"""Drawn updates: the value with its type, whether it belongs to the previous update's commit, and how many later
commits begin before its commit ends."""


def search(payload: Payload, counterexamples: Counterexamples, examples: int) -> None:
    dotted = bool(trial_of_examples(payload).dot_fields())
    same_commit = st.booleans() if dotted else st.just(False)
    update = st.tuples(written(payload), same_commit, st.integers(0, 5 if dotted else 0))
    histories = st.lists(update, min_size=1, max_size=UPDATES_MAX)
    tried: list[Drawn] = []
    _run(histories, tried.append, examples)
    all_at_once = _examined(payload, tried)
    for law in LAWS:
        if law in all_at_once and law not in counterexamples:
            counterexamples[law] = _smallest(payload, histories, law, examples) or all_at_once[law]


def _smallest(payload: Payload, histories: st.SearchStrategy[Drawn], law: str, examples: int) -> str | None:
    last: list[str] = []

    def check(drawn: Drawn) -> None:
        broken = _examined(payload, [drawn])
        if law in broken:
            last[:] = [broken[law]]
            raise _FoundError

    try:
        _run(histories, check, examples)
    except _FoundError:
        return last[0]
    return None


def _run(histories: st.SearchStrategy[Drawn], check: Callable[[Drawn], None], examples: int) -> None:
    """Call `check` with drawn histories, always the same: the seed is a digest of `test`."""

    @settings(
        max_examples=examples, derandomize=True, database=None, deadline=None, report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    @given(histories)
    def test(drawn: Drawn) -> None:
        check(drawn)

    test()


class _FoundError(Exception):
    """A counterexample."""


def _examined(payload: Payload, drawn: Sequence[Drawn]) -> Counterexamples:
    trial = Trial(payload, [value for history in drawn for value, _, _ in history])
    dotted = trial.dot_fields()
    first = 0
    histories = []
    for history in drawn:
        updates = _placed(history) if dotted else [Update(0) for _ in history]
        histories.append(tuple(update._replace(written=first + i) for i, update in enumerate(updates)))
        first += len(history)
    examine(trial, histories)
    return trial.counterexamples


def _placed(history: Drawn) -> list[Update]:
    commits: list[int] = []
    ends: list[int] = []
    for _, same_commit, overlap in history:
        if not (same_commit and commits):
            ends.append(len(ends) + 2 + overlap)
        commits.append(len(ends))
    return placed(commits, ends)

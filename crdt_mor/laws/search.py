"""Written values and histories for hypothesis, from Arrow types: for the deep law check, and for authors' own tests.

How far values go is said in `crdt_mor.laws.values`, which has a few of them for the check that every table makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from crdt_mor.errors import SchemaMismatchError
from crdt_mor.laws.check import LAWS, examine, placed, start
from crdt_mor.laws.trial import NONE, Faults, Trial, Write
from crdt_mor.laws.values import (
    FIRST_DAY,
    FLOAT_MAX,
    INT32_MAX,
    INT64_MAX,
    LAST_DAY,
    LETTERS,
    decimal_max,
    float_edges,
    inside,
    of_entries,
    of_field,
)
from crdt_mor.merge.payload import Payload, RecordPayload

WRITES_MAX = 6

Drawn = list[tuple[tuple[pa.DataType, Any], bool, int]]


def strategies(kind: pa.DataType, seen: Sequence[Any] = ()) -> st.SearchStrategy[Any]:
    """Values of a (stored) Arrow type; `seen` are examples of it."""
    if pt.is_list(kind):
        inner = inside(seen)
        item = strategies(kind.value_type, inner)
        return st.lists(st.none() | item if None in inner else item, max_size=3)
    if pt.is_struct(kind):
        return st.fixed_dictionaries({f.name: st.none() | strategies(f.type, of_field(seen, f.name)) for f in kind})
    if pt.is_map(kind):
        value = st.none() | strategies(kind.item_type, of_entries(seen))
        return st.dictionaries(st.text(LETTERS, max_size=3), value, max_size=3)
    if pt.is_floating(kind):
        return _floats(kind, seen)
    if pt.is_decimal(kind):
        most = decimal_max(kind)
        return st.integers(-most, most).map(lambda digits: Decimal(digits).scaleb(-kind.scale))
    return _scalars(kind)


def _scalars(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if kind == pa.int32():
        return st.integers(-INT32_MAX, INT32_MAX)
    if kind == pa.int64():
        return st.integers(-INT64_MAX, INT64_MAX)
    if kind == pa.bool_():
        return st.booleans()
    if kind == pa.string():
        return st.text(LETTERS, max_size=4)
    if kind == pa.binary():
        return st.binary(max_size=4)
    if kind == pa.date32():
        return st.dates(FIRST_DAY, LAST_DAY)
    if pt.is_timestamp(kind):
        return st.datetimes(datetime(1970, 1, 1), datetime(2099, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
    raise SchemaMismatchError(f"no strategy makes values of this type: give a stored type. type={kind}")


def _floats(kind: pa.DataType, seen: Sequence[Any]) -> st.SearchStrategy[Any]:
    nan, infinite, minus = float_edges(seen)
    least, most = (None, None) if infinite else (-FLOAT_MAX, FLOAT_MAX)
    drawn = st.floats(least, most, allow_nan=False, width=64 if pt.is_float64(kind) else 32)
    drawn = drawn if minus else drawn.map(lambda x: x + 0.0)
    return drawn | st.just(math.nan) if nan else drawn


def written(payload: Payload) -> st.SearchStrategy[tuple[pa.DataType, Any]]:
    """Written values of a payload, each with its type: its examples, and others of their types."""
    examples = start(payload).written
    drawn = []
    for kind in dict.fromkeys(kind for kind, _ in examples):
        values = strategies(kind, [value for of, value in examples if of == kind])
        if isinstance(payload, RecordPayload):
            values = values.filter(lambda value: any(field is not None for field in value.values()))
        drawn.append(st.tuples(st.just(kind), values))
    return st.one_of(*drawn, st.sampled_from(examples))


def search(payload: Payload, faults: Faults, examples: int) -> None:
    """Look for laws broken by histories of up to six written values; adds what is not in `faults` yet."""
    dotted = bool(start(payload).asks())
    # of each write: its value, whether it is of the commit before it, how many later commits begin before its own ends
    step = st.tuples(written(payload), st.booleans() if dotted else st.just(False), st.integers(0, 5 if dotted else 0))
    histories = st.lists(step, min_size=1, max_size=WRITES_MAX)
    tried: list[Drawn] = []
    _run(histories, tried.append, examples)
    all_at_once = _examined(payload, tried)
    for law in LAWS:
        if law in all_at_once and law not in faults:
            faults[law] = _smallest(payload, histories, law, examples) or all_at_once[law]


def _smallest(payload: Payload, histories: st.SearchStrategy[Drawn], law: str, examples: int) -> str | None:
    """The counterexample that hypothesis shrinks to."""
    last: list[str] = []

    def check(drawn: Drawn) -> None:
        found = _examined(payload, [drawn])
        if law in found:
            last[:] = [found[law]]
            raise _FoundError

    try:
        _run(histories, check, examples)
    except _FoundError:
        return last[0]
    return None


def _run(histories: st.SearchStrategy[Drawn], check: Callable[[Drawn], None], examples: int) -> None:
    """Always the same histories, as the seed is a digest of `test`."""

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


def _examined(payload: Payload, drawn: Sequence[Drawn]) -> Faults:
    """The laws that these histories break."""
    trial = Trial(payload, [value for history in drawn for value, _, _ in history])
    dotted = trial.asks()
    first = 0
    histories = []
    for history in drawn:
        writes = _placed(history) if dotted else [Write(NONE) for _ in history]
        histories.append(tuple(write._replace(written=first + i) for i, write in enumerate(writes)))
        first += len(history)
    examine(trial, histories)
    return trial.faults


def _placed(history: Drawn) -> list[Write]:
    commits: list[int] = []
    ends: list[int] = []
    for _, same, overlap in history:
        if not (same and commits):
            ends.append(len(ends) + 2 + overlap)
        commits.append(len(ends))
    return placed(commits, ends)

"""Columns with payloads for random histories, and what each of them means, said a second time.

The meaning here is plain Python over the list of what was written, in the table's order. It shares nothing with the
payloads' own `join` and `merge`; sets with removals are told with real intervals: one commit has seen another if that
had completed before it began.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Payload, payloads
from crdt_mor.merge.oracle import Contribution

Said = Sequence[tuple[Contribution, Any]]
"""What was written to a column, nulls left out, in the table's order."""


@dataclass(frozen=True)
class Trial:
    """A column under trial: its payload and type, what may be written, in which type, and what it then shows."""

    payload: Payload
    kind: pa.DataType
    write: Callable[[Random], Any]
    meaning: Callable[[Said], Any]
    written: pa.DataType | None = None


def saw(later: Contribution, earlier: Contribution) -> bool:
    """Whether the commit of `later` could see `earlier`: it had completed before that one began, or is the same one."""
    return earlier.completed < later.requested or (earlier.requested == later.requested and earlier.time < later.time)


def live(said: Said) -> list[tuple[Contribution, Any]]:
    """What no later commit has seen: the concurrent ones."""
    return [(w, v) for w, v in said if not any(saw(other, w) for other, _ in said)]


def _or_set(said: Said) -> list[str]:
    elements = {e for _, op in said for e in (*op["add"], *op["remove"])}
    kept = set()
    for element in elements:
        mine = [(w, element in op["add"]) for w, op in said if element in op["add"] or element in op["remove"]]
        if any(added for _, added in live(mine)):
            kept.add(element)
    return sorted(kept)


def _registers(said: Said) -> list[str]:
    return sorted({value for _, value in live(said)})


def _latest_by(said: Said) -> tuple[Any, Any]:
    best = None
    for _, (value, by) in said:
        if best is None or best[1] is None or (by is not None and by >= best[1]):
            best = (value, by)
    assert best is not None
    return best


def _map_last(said: Said) -> list[tuple[str, Any]]:
    found: dict[str, Any] = {}
    for _, pairs in said:
        found.update(pairs)
    return sorted(found.items())


def _quantiles(said: Said) -> list[Any]:
    numbers = sorted(v for _, v in said)
    return [pytest.approx(numbers[int(p * (len(numbers) - 1))], rel=0.01) for p in (0.5, 0.9, 0.99)]


def _some(r: Random, of: Sequence[Any], most: int = 3) -> list[Any]:
    return [r.choice(of) for _ in range(r.randint(0, most))]


TAGS = ["x", "y", "é"]
SET = pa.list_(pa.string())
OPS = pa.struct([("add", SET), ("remove", SET)])

COLUMNS: dict[str | tuple[str, ...], Trial] = {
    "counted": Trial(payloads.Counter(), pa.int64(), lambda r: r.randint(-3, 5), lambda said: sum(v for _, v in said)),
    "money": Trial(
        payloads.Counter(), pa.decimal128(12, 2), lambda r: Decimal(r.randint(-999, 999)) / 100,
        lambda said: sum((v for _, v in said), Decimal(0)),
    ),
    "highest": Trial(
        payloads.Max(), pa.float64(), lambda r: r.choice([-1.5, 0.0, 2.5]), lambda said: max(v for _, v in said)
    ),
    "lowest": Trial(
        payloads.Min(), pa.date32(), lambda r: date(2026, 1, r.randint(1, 9)), lambda said: min(v for _, v in said)
    ),
    "ever": Trial(payloads.Any(), pa.bool_(), lambda r: r.random() < 0.3, lambda said: any(v for _, v in said)),
    "always": Trial(payloads.All(), pa.bool_(), lambda r: r.random() < 0.7, lambda said: all(v for _, v in said)),
    "origin": Trial(payloads.First(), pa.string(), lambda r: r.choice(TAGS), lambda said: said[0][1]),
    "newest": Trial(payloads.Last(nulls="skip"), pa.int32(), lambda r: r.randint(0, 9), lambda said: said[-1][1]),
    "tags": Trial(
        payloads.GrowOnlySet(), SET, lambda r: _some(r, TAGS), lambda said: sorted({e for _, v in said for e in v})
    ),
    "labels": Trial(
        payloads.ORSet(), SET, lambda r: {"add": _some(r, TAGS, 2), "remove": _some(r, TAGS, 2)}, _or_set, OPS
    ),
    "title": Trial(payloads.MVRegister(), SET, lambda r: r.choice(TAGS), _registers, pa.string()),
    "prefs": Trial(
        payloads.MapLast(), pa.map_(pa.string(), pa.int64()),
        lambda r: [(k, r.choice([None, 1, 2])) for k in r.sample(TAGS, r.randint(0, 3))], _map_last,
    ),
    "events": Trial(
        payloads.EventList(), SET, lambda r: _some(r, TAGS, 2), lambda said: [e for _, v in said for e in v]
    ),
    "visitors": Trial(
        payloads.Distinct(), pa.int64(), lambda r: r.choice(TAGS), lambda said: len({v for _, v in said}), pa.string()
    ),
    "waits": Trial(
        payloads.Quantiles(), pa.list_(pa.float64()), lambda r: r.choice([-3.5, 0.0, 12.0, 250.0]), _quantiles,
        pa.float64(),
    ),
    ("price", "priced_at"): Trial(
        payloads.LatestBy("priced_at"), pa.struct([("price", pa.float64()), ("priced_at", pa.int64())]),
        lambda r: (r.choice([None, 1.5, 2.5]), r.choice([None, 1, 2])), _latest_by,
    ),
}  # fmt: skip


def names(column: str | tuple[str, ...]) -> tuple[str, ...]:
    """The names of a column under trial, or of a group of them."""
    return (column,) if isinstance(column, str) else column


def types(trials: Sequence[str | tuple[str, ...]], *, written: bool = False) -> dict[str, pa.DataType]:
    """The types of the table's columns, or those in which they are written here."""
    found: dict[str, pa.DataType] = {}
    for column in trials:
        trial = COLUMNS[column]
        if isinstance(column, tuple):
            found |= {field.name: field.type for field in trial.kind}
        else:
            found[column] = trial.written or trial.kind if written else trial.kind
    return found


def meaning(column: str | tuple[str, ...]) -> Callable[[Said], tuple[Any, ...]]:
    """What the columns of a trial show."""
    found = COLUMNS[column].meaning
    return lambda said: found(said) if isinstance(column, tuple) else (found([(w, v[0]) for w, v in said]),)

"""The visible values of payload columns: a counter's sum, any other payload's fold of `join`.

`join` defines the payload. Here it is called pair by pair in the table's order, without settle, restore, merge or
files. The engine uses all of these and must show the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from crdt_mor.merge.kernel import polars_type
from crdt_mor.merge.oracle import Contribution, Meaning
from crdt_mor.merge.payload import Dot, Payload, RecordPayload
from crdt_mor.testing.simulation.plan import Settings

Given = Sequence[tuple[Contribution, tuple[object, ...]]]


def total(given: Given) -> list[object]:
    return [sum(int(str(value)) for _, (value,) in given)]


class Meanings:
    """The meanings of a table's payloads, with states made once per value and place."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lifted: dict[tuple[int, str, str], Any] = {}

    def of(self, commits: Sequence[Any]) -> dict[tuple[str, ...], Meaning]:
        """Return meanings by columns. commits: all landed ones; each has seen those completed before its begin."""
        found: dict[tuple[str, ...], Meaning] = {}
        if self._settings.adds:
            found["amount",] = total
        payload = self._settings.payload
        if payload is not None and self._settings.adds:
            spans = [(one.begun, one.completed) for one in commits]
            found["value",] = self._fold(payload, spans)
        return found

    def _fold(self, payload: Payload, spans: Sequence[tuple[str, str]]) -> Meaning:
        def meaning(given: Given) -> list[object]:
            states = [self._state(payload, int(str(index)), one, spans) for one, (index,) in given]
            state = states[0]
            for other in states[1:]:
                state = payload.join(state, other)
            kind = polars_type(payload.state(payload.column()))
            shown = pl.DataFrame({"s": pl.Series([state], dtype=kind)}).select(payload.value(pl.col("s")))
            return [shown.to_series().cast(polars_type(payload.column())).to_list()[0]]

        return meaning

    def _state(self, payload: Payload, index: int, one: Contribution, spans: Sequence[tuple[str, str]]) -> Any:
        pending = ",".join(sorted({b for b, end in spans if b < one.requested < end}))
        key = (index, one.time, pending)
        if key not in self._lifted:
            kind, value = self._settings.examples[index]
            dot = Dot(pl.lit(int(one.requested), pl.Int64), pl.lit(int(one.time[18:]), pl.Int32), pl.lit(pending))
            written = pl.DataFrame({"w": pl.Series([value], dtype=polars_type(kind))})
            state = written.select(payload.lift(pl.col("w"), dot)).to_series()
            self._lifted[key] = state.cast(polars_type(payload.state(payload.column()))).to_list()[0]
        return self._lifted[key]


def columns_of(settings: Settings) -> dict[str, pa.DataType]:
    columns: dict[str, pa.DataType] = {"p": pa.string()} if settings.partitioned else {}
    columns |= {"k": pa.string(), "v": pa.int64(), "note": pa.string(), "amount": pa.int64()}
    if settings.expires:
        columns["until"] = pa.timestamp("us", "UTC")
    if settings.payload is not None:
        kind = settings.payload.column()
        is_record = isinstance(settings.payload, RecordPayload)
        columns |= {f.name: f.type for f in kind} if is_record else {"value": kind}
    return columns


Reading = Callable[[dict[str, Any]], dict[str, Any]]


def reading_of(settings: Settings) -> Reading:
    payload = settings.payload
    names = settings.value_columns if isinstance(payload, RecordPayload) else ()

    def read(row: dict[str, Any]) -> dict[str, Any]:
        if not names:
            return row
        value = {name: row[name] for name in names if name in row}
        rest = {name: row[name] for name in row if name not in names}
        absent = all(one is None for one in value.values())
        return {**rest, "value": None if absent else value}

    return read

"""Compares an engine's rows with those of `scan()`, cell by cell.

Values are compared as Python objects, since engines name the same type differently. A timestamp without a zone is
UTC, as in all files of a table.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

UTC = dt.UTC

Change = Callable[[Any, pa.DataType], Any]


def canonical(value: Any) -> Any:
    """A hashable value that is equal for equal cells of different engines."""
    if isinstance(value, Mapping):
        return ("struct", *((name, canonical(part)) for name, part in value.items()))
    if isinstance(value, list | tuple):
        return tuple(canonical(part) for part in value)
    if isinstance(value, dt.datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1, value))
    return value


def bare(value: Any, kind: pa.DataType) -> Any:
    """The value as ClickHouse can show it: no null list, map or struct, and texts as bytes."""
    if pa.types.is_struct(kind):
        return {part.name: bare((value or {}).get(part.name), part.type) for part in kind}
    if pa.types.is_map(kind):
        return [(bare(key, kind.key_type), bare(item, kind.item_type)) for key, item in value or ()]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [bare(part, kind.value_type) for part in value or ()]
    return value.encode() if isinstance(value, str) else value


def milliseconds(value: Any, kind: pa.DataType) -> Any:
    """The value as Trino shows it in Delta tables: timestamps without microseconds."""
    is_time = pa.types.is_timestamp(kind) and value is not None
    return value.replace(microsecond=value.microsecond // 1000 * 1000) if is_time else value


def as_is(value: Any, kind: pa.DataType) -> Any:
    return value


def cells(table: pa.Table, change: Change) -> dict[Any, dict[str, Any]]:
    """Canonical cells by `id` and column."""
    kinds = {column.name: column.type for column in table.schema}
    return {
        row["id"]: {name: canonical(change(value, kinds[name])) for name, value in row.items()}
        for row in table.to_pylist()
    }


def difference(got: pa.Table, want: pa.Table, change: Change = as_is) -> str:
    """Describe the first differences between two tables; empty: none."""
    if got.column_names != want.column_names:
        return f"columns {got.column_names} instead of {want.column_names}"
    twice = [value for value, count in Counter(got["id"].to_pylist()).items() if count > 1]
    if twice:
        return f"{len(twice)} ids more than once, such as {twice[0]}; {got.num_rows} rows instead of {want.num_rows}"
    ours, theirs = cells(want, change), cells(got, change)
    missing, extra = sorted(ours.keys() - theirs.keys()), sorted(theirs.keys() - ours.keys())
    if missing or extra:
        return f"{len(missing)} ids missing {missing[:3]}, {len(extra)} extra {extra[:3]}, of {len(ours)}"
    wrong: dict[str, list[str]] = {}
    for key, row in ours.items():
        for name, value in row.items():
            if theirs[key][name] != value:
                wrong.setdefault(name, []).append(f"{theirs[key][name]!r} instead of {value!r} at id {key}")
    return "; ".join(f"{name}: {len(cases)} cells, such as {cases[0]}" for name, cases in wrong.items())


def verdict_of(judged: Callable[[], str]) -> tuple[str, str]:
    """The verdict on a function that returns a difference, and the text."""
    try:
        wrong = judged()
    except BaseException as refusal:  # noqa: BLE001 - Rust's panics are no Exception
        return "refused", f"{type(refusal).__name__}: {' '.join(str(refusal).split())}"
    return ("wrong", wrong) if wrong else ("equal", "")

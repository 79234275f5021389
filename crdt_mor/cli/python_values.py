"""Convert Arrow values to Python. Values without a Python type, such as a day after year 9999, become text."""

from __future__ import annotations

from typing import Any

from crdt_mor.ground.late_imports import pa


def values(column: pa.Array | pa.ChunkedArray, *, maps_as_dicts: bool = False) -> list[Any]:
    """Return a column as Python values.

    A map becomes a list of pairs; with `maps_as_dicts`, a dict if its keys are text, as in JSON.
    """
    if maps_as_dicts and _has_other_maps(column.type):
        return [_value(scalar, maps_as_dicts) for scalar in column]
    try:
        return list(column.to_pylist(maps_as_pydicts="strict" if maps_as_dicts else None))
    except (OverflowError, ValueError):
        return [_value(scalar, maps_as_dicts) for scalar in column]


def _has_text_keys(kind: pa.MapType) -> bool:
    return kind.key_type in (pa.string(), pa.large_string())


def _has_other_maps(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) and not _has_text_keys(kind):
        return True
    return any(_has_other_maps(kind.field(index).type) for index in range(kind.num_fields))


def records(rows: pa.Table | pa.RecordBatch, *, maps_as_dicts: bool = False) -> list[dict[str, Any]]:
    columns = [values(column, maps_as_dicts=maps_as_dicts) for column in rows.columns]
    if not columns:
        return [{} for _ in range(rows.num_rows)]
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _value(scalar: Any, maps_as_dicts: bool) -> object:
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if pa.types.is_struct(kind):
        return {field.name: _value(scalar[i], maps_as_dicts) for i, field in enumerate(kind)}
    if pa.types.is_map(kind):
        entries = [[_value(part, maps_as_dicts) for part in entry.values()] for entry in scalar.values]
        pairs = [(name, value) for name, value in entries]
        return dict(pairs) if maps_as_dicts and _has_text_keys(kind) else pairs
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_value(item, maps_as_dicts) for item in scalar.values]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return _text(scalar)


def _text(scalar: Any) -> str:
    try:
        return str(scalar.cast(pa.string()).as_py())
    except pa.ArrowException:
        return f"<value out of range: {scalar.value}>"

"""Values at the limits of all types, in Iceberg mirrors."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt
import pytest

from crdt_mor import Table
from crdt_mor.columns.kinds import FAMILIES
from crdt_mor.columns.kinds_variants import VARIANT
from tests.mirror.iceberg_reading import by_duckdb, by_polars, by_pyiceberg, mirrored
from tests.mirror.shapes import scanned

KINDS: Final = [
    *(sample for family in FAMILIES for sample in family.samples),
    pa.struct([]),
]


def limits(kind: pa.DataType) -> list[Any]:
    """Two values of a type, at its limits where Python can state them."""
    if kind == VARIANT:
        return [{"metadata": b"\1\0\0", "value": value} for value in (b"\0", b"\x0c\x07")]
    if pt.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType):
        return limits(kind.value_type if pt.is_dictionary(kind) else kind.storage_type)
    if pt.is_integer(kind):
        bits = kind.bit_width
        return [0, 2**bits - 1] if pt.is_unsigned_integer(kind) else [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
    if pt.is_timestamp(kind):
        zone = None if kind.tz is None else dt.UTC
        return [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=zone), dt.datetime(2200, 12, 31, 23, 59, 59, tzinfo=zone)]
    if pt.is_decimal(kind):
        return [Decimal((1, (9,) * kind.precision, -kind.scale)), Decimal(0)]
    if pt.is_struct(kind):
        return [{field.name: limits(field.type)[0] for field in kind}, dict.fromkeys(field.name for field in kind)]
    if pt.is_map(kind):
        return [[(limits(kind.key_type)[-1], limits(kind.item_type)[0])], []]
    if pt.is_fixed_size_list(kind):
        return [[1, 2], [3, None]]
    return [[limits(kind.value_type)[0], None], []] if hasattr(kind, "value_type") else _plain_limits(kind)


def _plain_limits(kind: pa.DataType) -> list[Any]:
    if pt.is_boolean(kind):
        return [True, False]
    if pt.is_floating(kind):
        return [1.5, float("-inf")]
    if pt.is_time(kind):
        return [dt.time(0), dt.time(23, 59, 59)]
    if pt.is_duration(kind):
        return [dt.timedelta(-100_000), dt.timedelta(1, 1)]
    if pt.is_date(kind):
        return [dt.date(1, 1, 1), dt.date(9999, 12, 31)] if kind == pa.date32() else [dt.date(1970, 1, 2), dt.date.max]
    if pt.is_fixed_size_binary(kind):
        return [b"\0" * kind.byte_width, b"\xff" * kind.byte_width]
    return ["", "ü\U0001f600\0x"] if "str" in str(kind) else [b"", b"\xff\0"]


def table_of_all_types(path: Path) -> Table:
    columns = {f"c{place}": (kind, [*limits(kind), None]) for place, kind in enumerate(KINDS)}
    schema = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in columns.items())])
    arrays = [_array(kind, values) for kind, values in columns.values()]
    rows = pa.table([pa.array([1, 2, 3]), *arrays], names=["id", *columns])
    table = Table.create(str(path), schema, key="id", buckets=1)
    table.upsert(rows)
    table.maintenance.compact()
    table.upsert(rows.slice(1, 1))
    mirrored(table)
    return table


def _array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if pt.is_dictionary(kind):
        return pa.array(values, kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


def test_limits_of_all_types_in_a_mirror_equal_the_scan(tmp_path: Path) -> None:
    table = table_of_all_types(tmp_path)

    assert by_pyiceberg(table) == by_polars(table) == scanned(table)


@pytest.mark.slow
def test_limits_of_all_types_in_a_mirror_in_duckdb_equal_the_scan(tmp_path: Path) -> None:
    table = table_of_all_types(tmp_path)

    assert by_duckdb(table) == scanned(table)

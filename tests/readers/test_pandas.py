"""`to_pandas(dtype_backend=...)`: the types of `pandas.read_parquet`, for every kind of column, nulls included."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.store import MemoryStore

AT = datetime(2026, 1, 31, 12, 30, 0, 5, tzinfo=UTC)
VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "id": (pa.string(), "a"),
    **{str(kind): (kind, 7) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32())},
    "int64": (pa.int64(), 2**53 + 1),
    "uint64": (pa.uint64(), 2**53 + 1),
    "float32": (pa.float32(), 0.5),
    "float64": (pa.float64(), float("nan")),
    "bool": (pa.bool_(), True),
    "large": (pa.large_string(), "é"),
    "bytes": (pa.binary(), b"\x00"),
    "date": (pa.date32(), date(2026, 1, 31)),
    "time": (pa.time64("us"), time(12, 30)),
    "zoned": (pa.timestamp("us", "UTC"), AT),
    "naive": (pa.timestamp("ms"), datetime(2026, 1, 31)),  # noqa: DTZ001
    "cents": (pa.decimal128(9, 2), Decimal("1.25")),
    "list": (pa.list_(pa.int64()), [1, None]),
    "place": (pa.struct([("city", pa.string())]), {"city": "Rome"}),
    "labels": (pa.map_(pa.string(), pa.int64()), [("x", 1)]),
}
ROWS = pa.table(
    {name: pa.array([value, "b" if name == "id" else None], kind) for name, (kind, value) in VALUES.items()}
)


@pytest.fixture(scope="module")
def table() -> Table:
    made = Table.create("events", ROWS.schema, key="id", opening=Opening(store=MemoryStore()))
    made.upsert(ROWS)
    return made


def as_parquet(rows: pa.Table, **options: Any) -> pd.DataFrame:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return pd.read_parquet(pa.BufferReader(sink.getvalue()), **options)


@pytest.mark.parametrize("options", [{}, {"dtype_backend": "numpy_nullable"}, {"dtype_backend": "pyarrow"}], ids=str)
def test_columns_have_the_types_and_values_of_read_parquet(table: Table, options: Any) -> None:
    found = table.to_pandas(**options).sort_values("id", ignore_index=True)
    rows = table.to_arrow().sort_by("id")
    if options == {"dtype_backend": "numpy_nullable"}:  # with which pandas 2.2 reads large strings as objects
        place = rows.schema.get_field_index("large")
        rows = rows.set_column(place, "large", rows["large"].cast(pa.string()))
    pd.testing.assert_frame_equal(found, as_parquet(rows, **options))
    pd.testing.assert_frame_equal(table.changes().to_pandas(**options)[["id"]].sort_values("id", ignore_index=True),
                                  found[["id"]])  # fmt: skip


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_large_integers_beside_nulls_return_exactly(backend: Any) -> None:
    rows = pa.table({"id": ["a", "b"], "n": [2**53 + 1, None]})
    made = Table.create("events", rows.schema, key="id", opening=Opening(store=MemoryStore()))
    made.append(rows)
    found = made.to_pandas(dtype_backend=backend)
    assert found.set_index("id")["n"]["a"] == 2**53 + 1
    made.upsert(found)
    assert made.to_arrow().sort_by("id").to_pydict() == rows.to_pydict()


def test_another_backend_is_refused_before_rows_are_read(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="dtype_backend must be"):
        table.to_pandas(dtype_backend="arrow")  # type: ignore[arg-type]

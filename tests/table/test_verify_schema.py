"""`Table.verify` compares the schema and the metadata of each data file with those of a writer."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crdt_mor import Table
from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.format.base_file import AVRO_SCHEMA, write_parquet
from crdt_mor.services.verify_schema import schema_fault
from tests.model.types_page import SUPPORTED, arrow_type
from tests.tiers import seeds

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("list", pa.list_(pa.int32()))])


@pytest.fixture(scope="module")
def sound(fast_module_path: Path) -> Path:
    """A base file with a log above it."""
    table = Table.create(fast_module_path / "sound", SCHEMA, key="id", buckets=1)
    rows = pa.table({"id": ["a", "b"], "n": [1, 2], "list": [[1], None]}, SCHEMA)
    table.upsert(rows)
    table.maintenance.compact()
    table.upsert(rows)
    return fast_module_path / "sound"


def unseen_flips(folder: Path, path: Path, places: range) -> Iterator[int]:
    """The places of these in which a bit may flip without a finding."""
    data = path.read_bytes()
    for at in places:
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        if Table(folder).verify().is_sound:
            yield at
    path.write_bytes(data)


@pytest.mark.parametrize("first", seeds([0], range(1, 5), range(5, 37)))
def test_verify_a_bit_in_the_metadata_of_a_base_file_flips_is_a_finding(
    sound: Path, fast_path: Path, first: int
) -> None:
    folder = Path(shutil.copytree(sound, fast_path / "t"))
    (path,) = folder.glob("*.parquet")
    data = path.read_bytes()
    start, end = data.index(AVRO_SCHEMA.encode()), data.index(b"parquet-cpp-arrow")
    assert not list(unseen_flips(folder, path, range(start + first, end - 4, 37)))


@pytest.mark.parametrize("first", seeds([0], range(1, 5), range(5, 37)))
def test_verify_a_bit_in_the_header_of_a_log_block_flips_is_a_finding(sound: Path, fast_path: Path, first: int) -> None:
    folder = Path(shutil.copytree(sound, fast_path / "t"))
    path = max(folder.glob(".*.log.*"), key=lambda path: path.name.partition("_")[2])
    assert not list(unseen_flips(folder, path, range(first, path.read_bytes().index(b"PAR1"), 37)))


@pytest.mark.parametrize("declared", sorted({row[0] for row in SUPPORTED}))
def test_schema_fault_a_file_of_each_type_is_sound(declared: str) -> None:
    schema = TableSchema.of(pa.schema([("c", arrow_type(declared))]))
    rows = pa.schema([*((name, pa.string()) for name in META_COLUMNS), *schema.stored]).empty_table()
    written = pq.read_schema(io.BytesIO(write_parquet(rows)))
    assert schema_fault(schema.avro_with_meta("t"), written) is None


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"n": pa.int32(), "list": pa.list_(pa.int32())}, "types of a column differ.*column=n found=int32"),
        ({"n": pa.int64(), "list": pa.list_(pa.int64())}, "types of a column differ.*column=list"),
        ({"m": pa.int64(), "list": pa.list_(pa.int32())}, "have different columns.*'m', 'n'"),
        ({"n": pa.int64()}, "have different columns.*'list'"),
    ],
)
def test_schema_fault_the_parquet_schema_differs_from_the_avro_schema_is_told(
    columns: dict[str, pa.DataType], said: str
) -> None:
    schema = TableSchema.of(pa.schema([("n", pa.int64()), ("list", pa.list_(pa.int32()))]))
    parquet = pa.schema([*((name, pa.string()) for name in META_COLUMNS), *columns.items()])
    assert re.search(said, str(schema_fault(schema.avro_with_meta("t"), parquet)))


def test_schema_fault_a_column_that_is_not_nullable_is_told() -> None:
    schema = TableSchema.of(pa.schema([("n", pa.int64())]))
    names = [pa.field(name, pa.string()) for name in META_COLUMNS]
    fault = schema_fault(schema.avro_with_meta("t"), pa.schema([*names, pa.field("n", pa.int64(), nullable=False)]))
    assert "column=n" in str(fault)

"""Columns of files and of other sources get new names on their way into a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from crdt_mor import InvalidInputError, Table, read_files
from crdt_mor.errors import SchemaMismatchError

RENAME = {"Total Sales": "sales", "@id": "id"}
ROWS = pa.table({"@id": ["a", "b"], "Total Sales": [1, 2], "day": ["mon", "tue"]})
SCHEMA = pa.schema([("id", pa.string()), ("sales", pa.int64()), ("day", pa.string())])


def put(folder: Path, name: str) -> str:
    path = folder / name
    if name.endswith(".csv"):
        pc.write_csv(ROWS, path)
    elif name.endswith(".parquet"):
        pq.write_table(ROWS, path)
    else:
        path.write_text(pl.DataFrame(ROWS).write_ndjson())
    return str(path)


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.jsonl"])
def test_files_are_read_under_new_names(name: str, tmp_path: Path) -> None:
    rows = read_files(put(tmp_path, name), rename=RENAME, schema=SCHEMA)
    assert rows.schema.names == ["id", "sales", "day"]
    assert rows.to_arrow().to_pylist() == [{"id": "a", "sales": 1, "day": "mon"}, {"id": "b", "sales": 2, "day": "tue"}]
    table = Table.create(tmp_path / "t", SCHEMA, key="id")
    table.upsert(rows)
    assert table.scan().to_polars().sort("id").rows() == [("a", 1, "mon"), ("b", 2, "tue")]


def test_types_are_given_by_new_names(tmp_path: Path) -> None:
    wide = pa.schema([("sales", pa.decimal128(12, 2))])
    assert read_files(put(tmp_path, "x.csv"), rename=RENAME, schema=wide).schema.field("sales").type == wide[0].type


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "arrow", "reader", "lazy"])
def test_a_table_is_created_under_new_names(name: str, tmp_path: Path) -> None:
    others = {"arrow": ROWS, "reader": ROWS.to_reader(), "lazy": pl.DataFrame(ROWS).lazy()}
    source: Any = others.get(name) if name in others else put(tmp_path, name)
    table = Table.create_from(tmp_path / "t", source, key="id", partition_by="day", rename=RENAME)
    assert table.scan().to_polars().select("id", "sales").sort("id").rows() == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("rename", "said"),
    [
        ({"Total": "sales"}, "lacks columns of `rename`.*missing="),
        ({"@id": "day"}, "another column's name"),
        ({"@id": "x", "day": "x"}, "two columns cannot get the same name"),
        ({"@id": 3}, "pass a dict as `rename`"),
        ("@id=id", "pass a dict as `rename`"),
    ],
    ids=str,
)
def test_what_cannot_be_renamed_is_refused(rename: Any, said: str, tmp_path: Path) -> None:
    path = put(tmp_path, "x.parquet")
    with pytest.raises((InvalidInputError, SchemaMismatchError), match=said):
        read_files(path, rename=rename).to_arrow()
    with pytest.raises((InvalidInputError, SchemaMismatchError), match=said):
        Table.create_from(tmp_path / "t", path, key="id", rename=rename)
    assert not (tmp_path / "t").exists()


def test_names_may_be_swapped(tmp_path: Path) -> None:
    rows = read_files(put(tmp_path, "x.parquet"), rename={"@id": "day", "day": "@id"})
    assert rows.to_arrow()["@id"].to_pylist() == ["mon", "tue"]

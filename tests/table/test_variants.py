"""Variants through the engine: their two parts are kept as they were given, at every depth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor.cli import render
from crdt_mor.cli.main import app
from crdt_mor.columns.kinds_variants import VARIANT
from crdt_mor.errors import SchemaMismatchError
from crdt_mor.payloads import PartialUpdate
from crdt_mor.store import MemoryStore

PARTS = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
SPARKS = pa.struct(
    [pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False, {"variant": "true"})]
)
"""The struct in which Spark hands over a VARIANT."""

SEVEN = {"metadata": b"\x01\x00\x00", "value": b"\x0c\x07"}
OBJECT = {
    "metadata": b"\x01\x02\x00\x01\x02ab",
    "value": b"\x02\x02\x00\x01\x00\x06\x0e \x01\x0f\x00\x00\x00\x03\x02\x00\x01\x03\x00\x05x",
}
"""`{"a": 1.5, "b": [null, "x"]}`, as pyspark's VariantVal.parseJson makes it."""


def made(**columns: Any) -> mor.Table:
    return mor.Table.create(
        "t", {"id": "int64", **columns}, key="id", buckets=1, opening=mor.Opening(store=MemoryStore())
    )


def rows(*values: Any, kind: pa.DataType = PARTS) -> pa.Table:
    return pa.table({"id": range(len(values)), "v": pa.array(values, kind)})


def seen(table: mor.Table, **scan: Any) -> list[Any]:
    found = table.scan(**scan).to_arrow().sort_by("id")
    found.validate(full=True)
    return list(found["v"].to_pylist())


def test_every_door_returns_the_parts() -> None:
    inside = {"l": pa.list_(VARIANT), "m": pa.map_(pa.int32(), VARIANT), "s": pa.struct([("v", VARIANT)])}
    table = made(v="variant", **inside)
    given = rows(OBJECT, SEVEN, None)
    for name, kind, values in (
        ("l", pa.list_(PARTS), [[OBJECT, None], [], None]),
        ("m", pa.map_(pa.int32(), PARTS), [[(1, SEVEN)], [], None]),
        ("s", pa.struct([("v", PARTS)]), [{"v": OBJECT}, {"v": None}, None]),
    ):
        given = given.append_column(name, pa.array(values, kind))
    table.upsert(given)
    expected = table.to_arrow().sort_by("id")
    assert expected.schema.types == [pa.int64(), VARIANT, *inside.values()]
    assert expected.to_pylist() == given.to_pylist()
    for write in (table.to_polars, table.to_arrow, lambda: pl.DataFrame(table.scan())):
        table.upsert(write())
        table.upsert(write(), schema_mode="merge")
        assert table.to_arrow().sort_by("id").to_pylist() == expected.to_pylist()
        table.maintenance.compact()
    assert table.scan(filter="v IS NULL").count() == 1
    assert table.verify().findings == ()


@pytest.mark.skipif(duckdb.__version__.startswith("1."), reason="DuckDB 1 shows the parts")
def test_duckdb_sees_values_and_writes_them() -> None:
    table = made(v="variant")
    table.upsert(rows(OBJECT, SEVEN, None))
    found = duckdb.from_arrow(table.to_arrow())
    assert found.order("id").fetchall() == [(0, {"a": 1.5, "b": [None, "x"]}), (1, 7), (2, None)]
    more = duckdb.sql("SELECT 3 AS id, [1, 2]::VARIANT AS v")
    assert more is not None
    table.upsert(more)
    assert duckdb.from_arrow(table.to_arrow()).filter("id = 3").fetchall() == [(3, [1, 2])]


def test_changes_updates_and_earlier_moments() -> None:
    table = made(v="variant")
    table.upsert(rows(OBJECT, SEVEN))
    before = table.version
    table.update({"v": "NULL"}, where="id = 0")
    assert seen(table) == [None, SEVEN]
    images = table.changes(since=before, images=True).to_arrow()
    assert images.schema.field("v").type == VARIANT
    assert [row["v"] for row in images.sort_by("_change_type").to_pylist()] == [None, OBJECT]
    assert seen(table, as_of=before) == [OBJECT, SEVEN]


def test_merges_updates_and_lives_of_variants_inside() -> None:
    table = made(v="variant", l=pa.list_(VARIANT))
    given = rows(OBJECT, SEVEN).append_column("l", pa.array([[SEVEN], [None]], pa.list_(PARTS)))
    done = table.merge(given, on="id").when_not_matched_insert_all().execute()
    assert (done.inserted, table.to_arrow().num_rows) == (2, 2)
    before = table.version
    table.merge(given.slice(1), on="id").when_matched_update({"l": "NULL", "v": "target.v"}).execute()
    table.update({"v": pl.col("v")}, where="id = 0")
    assert table.to_arrow().sort_by("id").to_pylist() == [
        {"id": 0, "v": OBJECT, "l": [SEVEN]}, {"id": 1, "v": SEVEN, "l": None}
    ]  # fmt: skip
    assert table.diff(before, table.version).to_arrow().num_rows == 2
    assert table.why(1, column="l").num_rows == 2
    table.add_columns({"w": pa.list_(VARIANT)})
    table.delete(where="id = 0")
    assert table.scan(filter="id = 0").to_arrow().to_pylist() == []


def test_table_of_sparks_structs_has_variants_and_partial_updates_keep_them() -> None:
    table = mor.Table.create(
        "t", pa.schema([("id", pa.int64()), ("v", SPARKS), ("n", pa.int64())]), key="id",
        merge=PartialUpdate(), opening=mor.Opening(store=MemoryStore()),
    )  # fmt: skip
    assert table.schema.field("v").type == VARIANT
    table.upsert(pa.table({"id": [0], "v": pa.array([OBJECT], SPARKS), "n": [1]}))
    table.upsert(pa.table({"id": [0], "n": [2]}))
    assert (seen(table), table.to_polars()["n"].to_list()) == ([OBJECT], [2])


def test_new_column_of_variants_and_its_spelling(tmp_path: Path) -> None:
    table = mor.Table.create(tmp_path / "t", {"id": "int64"}, key="id")
    table.upsert(rows(SEVEN, kind=SPARKS), schema_mode="merge")
    assert seen(mor.Table(tmp_path / "t")) == [SEVEN]
    (tmp_path / "columns.json").write_text('{"id": "int64", "v": "variant", "l": "list<item: variant>"}')
    shell = CliRunner()
    assert not shell.invoke(
        app, ["create", f"{tmp_path}/u", "--schema", f"{tmp_path}/columns.json", "--key", "id"]
    ).exit_code
    (tmp_path / "columns.json").write_text(shell.invoke(app, ["schema", f"{tmp_path}/u", "--output", "json"]).stdout)
    assert not shell.invoke(
        app, ["create", f"{tmp_path}/w", "--schema", f"{tmp_path}/columns.json", "--key", "id"]
    ).exit_code
    assert mor.Table(tmp_path / "w").schema.types == [pa.int64(), VARIANT, pa.list_(VARIANT)]


def test_parts_in_json_are_base64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = made(v="variant", l=pa.list_(VARIANT))
    table.upsert(rows(OBJECT, None).append_column("l", pa.array([[SEVEN, None], None], pa.list_(PARTS))))
    render.lines(table.to_arrow().sort_by("id").to_pylist())
    printed = capsys.readouterr().out
    assert json.loads(printed.splitlines()[0])["l"] == [{"metadata": "AQAA", "value": "DAc="}, None]
    (tmp_path / "rows.jsonl").write_text(printed)
    again = made(v="variant", l=pa.list_(VARIANT))
    again.upsert(mor.read_files(tmp_path / "rows.jsonl", schema=again.schema))
    assert again.to_arrow().sort_by("id") == table.to_arrow().sort_by("id")
    (tmp_path / "rows.csv").write_text("id,v\n1,7\n")
    with pytest.raises(mor.InvalidInputError, match="an object of metadata and value, both base64"):
        again.upsert(mor.read_files(tmp_path / "rows.csv", schema=again.schema))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (pa.array(['{"a": 1}']), "make it a variant, as Spark's parse_json"),
        (pa.array([{"value": b"\0"}]), "make it a variant, as Spark's parse_json"),
        (pa.array([{"metadata": b"\1\0\0", "value": None}], PARTS), "unchanged.*column=v row=0"),
    ],
)
def test_other_data_is_refused(given: pa.Array, said: str) -> None:
    table = made(v="variant")
    with pytest.raises(SchemaMismatchError, match=said):
        table.upsert(pa.table({"id": [1], "v": given}))
    with pytest.raises(SchemaMismatchError, match="column=v"):
        table.upsert(pa.table({"id": [1], "v": given}), schema_mode="merge")


class Shredded(pa.ExtensionType):  # type: ignore[misc]
    """What a reader of Parquet may return for a variant with a part of its own for numbers."""

    def __init__(self) -> None:
        super().__init__(pa.struct([*PARTS, ("typed_value", pa.int64())]), "arrow.parquet.variant")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Shredded:
        return cls()


def test_shredded_variants_are_refused() -> None:
    given = pa.table({"id": [1], "v": pa.array([SEVEN | {"typed_value": 7}], Shredded())})
    with pytest.raises(SchemaMismatchError, match=r"write shredded variants with Spark.*column=v"):
        made().upsert(given, schema_mode="merge")
    with pytest.raises(SchemaMismatchError, match=r"another type than the column.*column=v"):
        made(v="variant").upsert(given)


@pytest.mark.parametrize("use", [{"key": "v"}, {"key": "id", "partition_by": "v"}, {"key": "id", "ordering": "v"}])
@pytest.mark.filterwarnings("ignore:the key does not determine")
def test_variant_is_no_key_partition_or_order(use: dict[str, str]) -> None:
    with pytest.raises(mor.InvalidInputError, match="column=v"):
        mor.Table.create("t", {"id": "int64", "v": "variant"}, opening=mor.Opening(store=MemoryStore()), **use)  # type: ignore[arg-type]

"""Entries of the Hudi table in Glue equal the entries of Hudi's own tool, and follow columns and partitions."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor import Table
from crdt_mor.cli.main import app
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from crdt_mor.hudi.catalog_entry import HudiEntry, entry_of, plain
from crdt_mor.model.keys import KeySpec
from crdt_mor.services import hudi_entries
from crdt_mor.services.metastores import Glue

NAME = "lake.events"
KEY = KeySpec(("id", "day", "region"), ("day", "region"), hive_style=True)
SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("day", pa.date32()), ("region", pa.string()), ("ts", pa.timestamp("us", "UTC")),
        ("dec", pa.decimal128(10, 2)), ("b", pa.bool_()), ("i8", pa.int8()), ("f", pa.float32()), ("bin", pa.binary()),
        ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int64())),
        ("st", pa.struct([("a", pa.int64()), ("xs", pa.list_(pa.struct([("c", pa.string())])))])),
    ]
)  # fmt: skip

BY_HIVE_SYNC_TOOL = {
    "columns": "_hoodie_commit_time string, _hoodie_commit_seqno string, _hoodie_record_key string, "
    "_hoodie_partition_path string, _hoodie_file_name string, id string, ts bigint, dec decimal(10,2), b boolean, "
    "i8 int, f float, bin binary, l array<int>, m map<string,bigint>, st struct<a:bigint,xs:array<struct<c:string>>>",
    "partition_columns": "day date, region string",
    "schema": '{"type":"struct","fields":[{"name":"_hoodie_commit_time","type":"string","nullable":true,"metadata":{}},'
    '{"name":"_hoodie_commit_seqno","type":"string","nullable":true,"metadata":{}},'
    '{"name":"_hoodie_record_key","type":"string","nullable":true,"metadata":{}},'
    '{"name":"_hoodie_partition_path","type":"string","nullable":true,"metadata":{}},'
    '{"name":"_hoodie_file_name","type":"string","nullable":true,"metadata":{}},'
    '{"name":"id","type":"string","nullable":true,"metadata":{}},'
    '{"name":"ts","type":"timestamp","nullable":true,"metadata":{}},'
    '{"name":"dec","type":"decimal(10,2)","nullable":true,"metadata":{}},'
    '{"name":"b","type":"boolean","nullable":true,"metadata":{}},'
    '{"name":"i8","type":"integer","nullable":true,"metadata":{}},'
    '{"name":"f","type":"float","nullable":true,"metadata":{}},'
    '{"name":"bin","type":"binary","nullable":true,"metadata":{}},'
    '{"name":"l","type":{"type":"array", "elementType":"integer","containsNull":true},"nullable":true,"metadata":{}},'
    '{"name":"m","type":{"type":"map", "keyType":"string","valueType":"long","valueContainsNull":true},'
    '"nullable":true,"metadata":{}},{"name":"st","type":{"type":"struct","fields":[{"name":"a","type":"long",'
    '"nullable":true,"metadata":{}},{"name":"xs","type":{"type":"array", "elementType":{"type":"struct","fields":['
    '{"name":"c","type":"string","nullable":true,"metadata":{}}]},"containsNull":true},"nullable":true,"metadata":{}}]'
    '},"nullable":true,"metadata":{}},{"name":"day","type":"date","nullable":true,"metadata":{}},'
    '{"name":"region","type":"string","nullable":true,"metadata":{}}]}',
}
"""The entry that HiveSyncTool of Hudi 1.2.0 wrote for a table of this schema, made here, to a Hive metastore 3.1.3."""


def pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((each.split(" ")[0], each.split(" ")[1]) for each in text.split(", "))


def entry_of_hudi() -> HudiEntry:
    schema = BY_HIVE_SYNC_TOOL["schema"]
    parameters = {
        "EXTERNAL": "TRUE", "hudi_writer_version": "1.2.0", "spark.sql.sources.provider": "hudi",
        "spark.sql.sources.schema.numPartCols": "2", "spark.sql.sources.schema.numParts": "2",
        "spark.sql.sources.schema.part.0": schema[:1000], "spark.sql.sources.schema.part.1": schema[1000:],
        "spark.sql.sources.schema.partCol.0": "day", "spark.sql.sources.schema.partCol.1": "region",
    }  # fmt: skip
    columns = pairs(BY_HIVE_SYNC_TOOL["columns"])
    return HudiEntry(
        "file:/lake/t2",
        columns,
        pairs(BY_HIVE_SYNC_TOOL["partition_columns"]),
        parameters,
        {"hoodie.query.as.ro.table": "false", "serialization.format": "1", "path": "/lake/t2"},
        {("2026-01-01", "ü p+1"): ("file:/lake/t2/day=2026-01-01/region=ü p+1", columns)},
    )


def test_an_entry_equals_that_of_hudis_own_tool() -> None:
    ours = entry_of("file:///lake/t2", TableSchema.of(SCHEMA).stored, KEY, ["day=2026-01-01/region=ü p+1"])
    its = plain(entry_of_hudi())
    assert its.has_table_of(plain(ours))
    assert its.partitions == plain(ours).partitions
    assert its.partition_columns == ours.partition_columns


@pytest.mark.parametrize(
    "changed",
    [
        {"columns": (("id", "string"),)},
        {"serde": {"path": "/lake/other"}},
        {"parameters": {**entry_of_hudi().parameters, "spark.sql.sources.schema.part.1": "{}"}},
    ],
)
def test_a_difference_to_an_entry_is_found(changed: dict[str, Any]) -> None:
    ours = entry_of("file:///lake/t2", TableSchema.of(SCHEMA).stored, KEY, [])
    assert not plain(replace(entry_of_hudi(), **changed)).has_table_of(plain(ours))


def test_a_schema_longer_than_a_parameter_is_in_parts() -> None:
    wide = pa.schema([(f"column_{number}", pa.string()) for number in range(200)])
    found = entry_of("file:///lake/wide", wide, KeySpec(("column_0",)), [""])
    count = int(found.parameters["spark.sql.sources.schema.numParts"])
    parts = [found.parameters[f"spark.sql.sources.schema.part.{number}"] for number in range(count)]
    assert count > 1
    assert max(map(len, parts)) <= 4000
    assert len(json.loads("".join(parts))["fields"]) == 205
    assert not found.partitions


def test_partitions_of_a_foreign_key_generator_are_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="HiveSyncTool"):
        entry_of("file:///lake/t", SCHEMA, replace(KEY, generator="TIMESTAMP"), [])


# --- in Glue ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    moto = pytest.importorskip("moto")
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog import load_catalog

    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    with moto.mock_aws():
        yield load_catalog("glue", type="glue")


def rows(key: str, day: int, **more: Any) -> pl.DataFrame:
    return pl.DataFrame({"id": [key], "day": [dt.date(2026, 1, day)], "n": [1], **more})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    schema = {"id": pl.String, "day": pl.Date, "n": pl.Int64}
    made = Table.create(str(tmp_path / "table"), schema, key=["id", "day"], partition_by="day", buckets=1)
    made.upsert(pl.concat([rows("a", 1), rows("b", 2)]))
    return made


def action(table: Table, catalog: Any) -> str:
    return table.maintenance.register(catalog, NAME, format="hudi").action


def stored(catalog: Any) -> Any:
    return catalog.glue.get_table(DatabaseName="lake", Name="events")["Table"]


def partitions(catalog: Any) -> dict[str, list[str]]:
    """The columns of each partition, by its value."""
    found = catalog.glue.get_partitions(DatabaseName="lake", TableName="events")["Partitions"]
    return {one["Values"][0]: [each["Name"] for each in one["StorageDescriptor"]["Columns"]] for one in found}


@pytest.mark.slow
def test_an_entry_follows_columns_and_partitions(catalog: Any, table: Table) -> None:
    assert [action(table, catalog), action(table, catalog)] == ["registered", "unchanged"]
    assert list(partitions(catalog)) == ["2026-01-01", "2026-01-02"]

    table.upsert(rows("c", 3, More=["x"]), schema_mode="merge")
    table.upsert(rows("c", 3, More=["y"]))
    assert [action(table, catalog), action(table, catalog)] == ["moved", "unchanged"]
    assert list(partitions(catalog)) == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert {columns[-1] for columns in partitions(catalog).values()} == {"more"}
    assert [one["Name"] for one in stored(catalog)["StorageDescriptor"]["Columns"]][-3:] == ["id", "n", "more"]
    assert '"name":"More"' in stored(catalog)["Parameters"]["spark.sql.sources.schema.part.0"]

    table.upsert(rows("c", 3, More=["z"]))  # no entry names rows
    assert action(table, catalog) == "unchanged"


@pytest.mark.slow
def test_a_dropped_partition_and_a_foreign_parameter(catalog: Any, table: Table) -> None:
    action(table, catalog)
    found = stored(catalog)
    kept = {name: found[name] for name in ("Name", "TableType", "PartitionKeys", "StorageDescriptor")}
    catalog.glue.update_table(
        DatabaseName="lake", TableInput={**kept, "Parameters": {**found["Parameters"], "owner": "ops"}}
    )
    glue = Glue(catalog, "lake", "events")
    gone = entry_of(table.uri, TableSchema.of(SCHEMA).stored, replace(KEY, partition_by=("day",)), ["day=2025-01-01"])
    glue.add(gone, gone.partitions)
    assert "2025-01-01" in partitions(catalog)

    assert action(table, catalog) == "moved"

    assert list(partitions(catalog)) == ["2026-01-01", "2026-01-02"]
    assert stored(catalog)["Parameters"]["owner"] == "ops"


@pytest.mark.slow
def test_more_partitions_than_a_request_takes(catalog: Any, table: Table) -> None:
    days = pl.date_range(dt.date(2026, 2, 1), dt.date(2026, 4, 10), eager=True)
    table.upsert(pl.DataFrame({"id": "a", "day": days, "n": 1}))
    assert action(table, catalog) == "registered"
    assert len(Glue(catalog, "lake", "events").partitions()) == 2 + len(days)


@pytest.mark.slow
def test_a_slow_process_does_not_leave_older_columns(
    catalog: Any, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked before a column and a partition were added, and writes after another process wrote them."""
    action(table, catalog)
    table.upsert(rows("c", 3, more=["x"]), schema_mode="merge")
    look, others = hudi_entries._needed, [table]

    def interrupted(*arguments: Any) -> Any:
        found = look(*arguments)
        if others:
            other = others.pop()
            other.upsert(rows("d", 4, more=["x"], last=["y"]), schema_mode="merge")
            assert action(Table(other.uri), catalog) == "moved"
        return found

    monkeypatch.setattr(hudi_entries, "_needed", interrupted)
    action(Table(table.uri), catalog)

    assert [one["Name"] for one in stored(catalog)["StorageDescriptor"]["Columns"]][-2:] == ["more", "last"]
    assert list(partitions(catalog)) == ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"]


@pytest.mark.slow
def test_the_name_of_another_table_is_refused_and_left(catalog: Any, table: Table, tmp_path: Path) -> None:
    other = Table.create(str(tmp_path / "other"), {"id": pl.String}, key="id", buckets=1)
    action(table, catalog)
    before = stored(catalog)
    for kind in ("hudi", "iceberg"):
        with pytest.raises(InvalidInputError, match="choose another `name`"):
            other.maintenance.register(catalog, NAME, format=kind)
    assert stored(catalog) == before
    other.maintenance.register(catalog, "lake.mirrored")
    with pytest.raises(InvalidInputError, match="no Hudi table"):
        other.maintenance.register(catalog, "lake.mirrored", format="hudi")


@pytest.mark.slow
def test_maintain_and_commands_register_and_names_open(
    catalog: Any, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.set_properties({"crdt_mor.hudi.catalogs": f"glue:{NAME}"})
    for state in ("due", "done"):
        done = table.maintenance.maintain(dry_run=state == "due").actions
        assert [(one.service, one.state) for one in done if one.service == "catalog"] == [("catalog", state)]
    assert not [one for one in table.maintenance.maintain().actions if one.service == "catalog"]

    run = CliRunner().invoke(app, ["register", table.uri, NAME, "--glue", "--as", "hudi", "--output", "json"])
    assert json.loads(run.stdout)["action"] == "unchanged"
    for opened in (Table("glue://lake/events"), Table.from_catalog(catalog, NAME)):
        assert opened.count() == 2
    assert list(partitions(catalog)) == ["2026-01-01", "2026-01-02"]


@pytest.mark.slow
def test_a_catalog_without_hudi_tables_is_refused(table: Table, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("tests", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db")
    with pytest.raises(UnsupportedFeatureError, match="AWS Glue and Hive"):
        table.maintenance.register(catalog, NAME, format="hudi")
    with pytest.raises(mor.InvalidInputError, match="register takes"):
        table.maintenance.register(catalog, NAME, format="delta")  # type: ignore[arg-type]

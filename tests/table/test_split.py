"""The parts of a split scan show the rows of the scan, whatever engine reads the files."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor import ArrowStream, InvalidInputError, Scan, SnapshotExpiredError, Table
from crdt_mor.api import split as of_split
from tests.interop.hudi_archive import make_hudis
from tests.mirror.shapes import RULES, SCHEMA, rows, written_late, written_over


def made(folder: Path, schema: pa.Schema = SCHEMA, **options: Any) -> Table:
    return Table.create(str(folder / "table"), **{"schema": schema, "key": "id", "buckets": 2} | options)


def in_parts(parts: Iterable[ArrowStream], schema: pa.Schema) -> pa.Table:
    """The rows, as other processes read them."""
    tables = [pa.table(pickle.loads(pickle.dumps(part))) for part in parts]
    return pa.concat_tables([*tables, schema.empty_table()])


def put_together(scan: Scan) -> list[dict[str, object]]:
    """The rows that another engine shows."""
    split, schema = scan.split(), scan.schema
    touched = {*in_parts(split.touched, pa.schema([split.key]))[split.key.name].to_pylist()}
    base = [row for file in split.files for row in pq.ParquetFile(file).read().to_pylist()]
    found = in_parts([*split.merged, *split.rest], schema).to_pylist()
    found += [{name: row.get(name) for name in schema.names} for row in base if row[split.key.name] not in touched]
    return sorted(found, key=repr)


def shown(scan: Scan) -> list[dict[str, object]]:
    return sorted(scan.to_arrow().to_pylist(), key=repr)


@pytest.mark.parametrize("rule", RULES)
def test_split_shows_the_rows_of_the_scan(rule: str, tmp_path: Path) -> None:
    table = written_over(made(tmp_path, **RULES[rule]))
    scan = table.scan()
    split = scan.split()
    assert len(split.files) == 2
    assert not split.rest
    assert put_together(scan) == shown(scan)
    early = table.scan(as_of=3)
    assert put_together(early) == shown(early)
    table.maintenance.compact()
    compacted = table.scan()
    assert not any((compacted.split().touched, compacted.split().merged))
    assert put_together(compacted) == shown(scan)


@pytest.mark.parametrize(("rule", "merged"), [("latest", 1), ("counter", 2)])
def test_a_part_weighs_the_bytes_that_it_reads(
    rule: str, merged: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Base files are read only to merge their rows. Here two of them and their logs weigh more than a part."""
    monkeypatch.setattr(of_split, "PART_SIZE", 500_000)
    split = written_over(made(tmp_path, **RULES[rule])).scan().split()
    assert (len(split.touched), len(split.merged)) == (1, merged)


@pytest.mark.parametrize("rule", RULES)
def test_rows_of_files_that_replace_late_logs_are_merged(rule: str, tmp_path: Path) -> None:
    """The base file has rows of writes that began after the late one."""
    table = written_late(made(tmp_path, **RULES[rule]))
    assert put_together(table.scan()) == shown(table.scan())


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 9), min_size=1, max_size=2, unique=True)),
        st.tuples(st.sampled_from(["begin", "finish", "compact"]), st.just([])),
    ),
    max_size=10,
)


@settings(max_examples=12)
@given(rule=st.sampled_from([*RULES]), operations=OPERATIONS)
def test_split_shows_the_rows_of_the_scan_after_any_history(
    rule: str, operations: list[tuple[str, list[int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = made(tmp_path_factory.mktemp("history"), **RULES[rule])
    late: Any = None
    for number, (kind, keys) in enumerate(operations):
        if kind == "upsert":
            table.upsert(rows(keys, number % 4, f"text {number}"))
        elif kind == "delete":
            table.delete(keys=keys, plain=True)
        elif kind == "compact":
            table.maintenance.compact()
        elif kind == "begin" and late is None:
            late = table.transaction()
            late.__enter__().upsert(rows(range(5), number, "late"))
        elif kind == "finish" and late is not None:
            late = late.__exit__(None, None, None)
    assert put_together(table.scan()) == shown(table.scan())
    if late is not None:
        late.__exit__(None, None, None)
        assert put_together(table.scan()) == shown(table.scan())


def test_split_of_partitions_composite_keys_and_added_columns(tmp_path: Path) -> None:
    table = made(tmp_path, key=["text", "id"], partition_by="text")
    table.upsert(rows(range(6), 1, "a b%{c}"))
    table.upsert(rows(range(6), 1, "x"))
    table.maintenance.compact()
    table.upsert(rows([1, 9], 2, "x"))
    table.add_columns({"more": pa.float64()})
    scan = table.scan()
    assert scan.split().key.name == "_hoodie_record_key"
    assert len(scan.split().files) > 1
    assert put_together(scan) == shown(scan)
    narrow = scan.narrowed(columns=["n"])
    assert put_together(narrow) == shown(narrow)


def renamed(folder: Path) -> Table:
    table = made(folder)
    table.upsert(rows(range(4), 1))
    table.alter(rename={"n": "m"})
    return table


def expiring(folder: Path) -> Table:
    table = made(folder, pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]), ttl=("at", timedelta(1)))
    table.upsert(pl.DataFrame({"id": [1], "at": [None]}, schema=table.scan().polars_schema))
    return table


def of_durations(folder: Path) -> Table:
    table = made(folder, pa.schema([("id", pa.int64()), ("d", pa.duration("us"))]))
    table.upsert(pa.table({"id": [1], "d": pa.array([5], pa.duration("us"))}))
    return table


def of_keys_below_partitions(folder: Path) -> Table:
    table = made(folder, partition_by="text")
    table.upsert(rows([1], 1, "x"))
    return table


@pytest.mark.parametrize("make", [renamed, expiring, of_durations, of_keys_below_partitions])
def test_split_leaves_rows_to_this_engine_that_files_show_otherwise(make: Any, tmp_path: Path) -> None:
    table = make(tmp_path)
    table.maintenance.compact()
    assert not table.scan().split().files
    assert put_together(table.scan()) == shown(table.scan())


def of_hudis_partial_updates(folder: Path) -> Table:
    made(folder, buckets=1).upsert(rows([1, 2], 1, "x"))
    table = Table(str(folder / "table"))
    table.maintenance.compact()
    table.upsert(rows([1], 2, None))
    make_hudis(folder / "table", {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"})
    return Table(str(folder / "table"))


def test_split_leaves_logs_of_hudis_tables_to_this_engine(tmp_path: Path) -> None:
    table = of_hudis_partial_updates(tmp_path)
    assert not table.scan().split().files
    assert put_together(table.scan()) == shown(table.scan())


def test_split_of_meta_columns_of_none_and_of_others_than_the_key(tmp_path: Path) -> None:
    table = made(tmp_path, pa.schema([("id", pa.int32()), ("n", pa.int64())]), buckets=1)
    table.upsert(pa.table({"id": pa.array([1, 2, 3], pa.int32()), "n": [1, 2, 3]}))
    table.maintenance.compact()
    table.upsert(pa.table({"id": pa.array([2], pa.int32()), "n": [5]}))
    meta = table.scan(meta=True)
    assert put_together(meta) == shown(meta)
    none = table.scan(columns=[]).split()
    assert sum(pa.RecordBatchReader.from_stream(part).read_all().num_rows for part in none.merged) == 1
    table.alter(widen={"id": pa.int64()})
    other = table.scan(columns=["n"])
    assert not other.split().files  # the files have another type of the key
    assert put_together(other) == shown(other)


def test_split_leaves_widened_columns_and_large_logs_to_this_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path, pa.schema([("id", pa.int64()), ("n", pa.int32())]), buckets=1)
    table.upsert(pa.table({"id": [1, 2], "n": pa.array([1, 2], pa.int32())}))
    table.maintenance.compact()
    table.upsert(pa.table({"id": [2], "n": pa.array([3], pa.int32())}))
    assert len(table.scan().split().files) == 1
    monkeypatch.setattr(of_split, "LOGS_BYTES_MAX", 10)
    assert not table.scan().split().files
    monkeypatch.undo()
    table.alter(widen={"n": pa.int64()})
    assert not table.scan().split().files
    assert put_together(table.scan()) == shown(table.scan())


def test_split_refuses_filters_limits_and_erased_moments(tmp_path: Path) -> None:
    table = made(tmp_path, buckets=1)
    first = table.upsert(rows(range(4), 1))
    table.maintenance.compact()
    for scan in (table.scan(filter="n > 0"), table.scan().narrowed(limit=1)):
        with pytest.raises(InvalidInputError, match="split a scan without a filter and a limit"):
            scan.split()
    table.maintenance.erase(keys=[1])
    with pytest.raises(SnapshotExpiredError, match="erased"):
        table.scan(as_of=first.version).split()

"""A new column type is one object: a family of durations goes through the whole engine from a test."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import crdt_mor as mor
from crdt_mor.cli import render
from crdt_mor.columns.kinds import KINDS, OF_CLASS, Kind, Values, type_id
from crdt_mor.columns.types import join_types
from crdt_mor.errors import SchemaMismatchError
from crdt_mor.store import MemoryStore

MICROSECONDS = pa.duration("us")
S, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


class Durations(Kind):
    """Durations, stored as microseconds; in JSON `1500us`."""

    samples = (pa.duration("s"), pa.duration("ms"), MICROSECONDS)
    stored_as = pa.int64()
    mixes = False
    python = timedelta

    def inner(self, kind: pa.DataType) -> pa.DataType:
        return MICROSECONDS

    def join(self, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
        return left if left == right else MICROSECONDS

    def steps(self, given: pa.DataType, declared: pa.DataType, target: pa.DataType) -> list[pa.DataType]:
        return [declared, MICROSECONDS, target]

    def shown(self, stored: pa.ChunkedArray, declared: pa.DataType) -> pa.ChunkedArray:
        return stored.cast(MICROSECONDS).cast(declared)

    def may_be_key(self, kind: pa.DataType) -> bool:
        return True

    def in_json(self, kind: pa.DataType) -> pa.DataType:
        return pa.string()

    def to_json(self, value: Any) -> str:
        return f"{value // timedelta(microseconds=1)}us"

    def from_texts(self, texts: Values, kind: pa.DataType) -> Values:
        return self.shown(pc.replace_substring_regex(texts, "us$", "").cast(pa.int64()), kind)


@pytest.fixture(autouse=True)
def durations(monkeypatch: pytest.MonkeyPatch) -> None:
    family = Durations()
    for sample in family.samples:
        monkeypatch.setitem(KINDS, type_id(sample), family)
    monkeypatch.setitem(OF_CLASS, timedelta, family)


def made(**settings: Any) -> mor.Table:
    schema = pa.schema([("id", pa.int64()), ("took", pa.duration("ms")), ("laps", pa.list_(MICROSECONDS))])
    table = mor.Table.create(
        "t", schema, buckets=1, opening=mor.Opening(store=MemoryStore()), **{"key": "id", **settings}
    )
    table.upsert(rows((1, S, [S, None]), (2, 2 * S, [])))
    return table


def rows(*given: tuple[int, timedelta | None, list[timedelta | None] | None]) -> pa.Table:
    ids, took, laps = zip(*given, strict=True)
    kinds = {"id": pa.int64(), "took": pa.duration("s"), "laps": pa.list_(MICROSECONDS)}
    return pa.table([pa.array(v, k) for v, k in zip((ids, took, laps), kinds.values(), strict=True)], names=list(kinds))


def seen(table: mor.Table, filter: Any = None) -> dict[int, timedelta | None]:
    found = table.scan(filter=filter).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["took"].to_pylist(), strict=True))


def test_new_type_in_logs_and_base_file_is_read_as_declared() -> None:
    table = made()
    table.upsert(rows((2, 3 * S, [MINUTE]), (3, None, None)))
    before = table.to_arrow().sort_by("id")
    table.maintenance.compact()
    assert table.to_arrow().sort_by("id") == before
    assert before.schema.types == [pa.int64(), pa.duration("ms"), pa.list_(MICROSECONDS)]
    assert before["took"].to_pylist() == [S, 3 * S, None]
    assert before["laps"].to_pylist() == [[S, None], [MINUTE], None]
    assert table.to_polars().schema["took"] == pl.Duration("ms")
    assert table.verify().findings == ()


def test_new_type_in_json_is_read_as_it_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = made()
    render.lines(table.to_arrow().sort_by("id").to_pylist())
    printed = capsys.readouterr().out
    assert [json.loads(line) for line in printed.splitlines()] == [
        {"id": 1, "took": "1000000us", "laps": ["1000000us", None]}, {"id": 2, "took": "2000000us", "laps": []}
    ]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text(printed.replace("2000000us", "60000000us"))
    table.upsert(mor.read_files(tmp_path / "rows.jsonl", schema=table.schema))
    assert seen(table) == {1: S, 2: MINUTE}
    assert table.to_arrow().sort_by("id")["laps"].to_pylist() == [[S, None], []]


def test_new_type_is_updated_and_filtered_by_sql() -> None:
    table = made()
    table.update({"took": "took + took"}, where="took > INTERVAL '1 second'")
    assert seen(table) == {1: S, 2: 4 * S}
    table.update({"took": timedelta(minutes=5)}, where="id = 1")
    for _ in range(2):  # in a log, then in a base file
        assert seen(table, "took >= INTERVAL '5 minutes'") == {1: 5 * MINUTE}
        assert seen(table, pl.col("took") == 4 * S) == {2: 4 * S}
        table.maintenance.compact()


def test_new_type_in_a_base_file_has_statistics_of_its_stored_value(tmp_path: Path) -> None:
    table = mor.Table.create(tmp_path / "t", made().schema, key="id", buckets=1)
    table.upsert(rows((1, S, None), (2, 2 * S, None)))
    table.maintenance.compact()
    (base,) = (tmp_path / "t").glob("*.parquet")
    columns = pq.ParquetFile(base).metadata.row_group(0)
    names = [columns.column(at).path_in_schema for at in range(columns.num_columns)]
    statistics = columns.column(names.index("took")).statistics
    assert (statistics.min, statistics.max) == (1_000_000, 2_000_000)
    assert seen(table, pl.col("took") > S) == {2: 2 * S}


def test_new_type_as_a_key_has_the_text_of_its_stored_value() -> None:
    table = made(key="took")
    table.upsert(rows((5, S, None)))
    before = table.version
    table.delete(keys=[2 * S])
    assert seen(table) == {5: S}
    assert table.scan(meta=True).to_arrow()["_hoodie_record_key"].to_pylist() == ["1000000"]
    gone = table.changes(since=before).to_arrow().filter(pc.field("_change_type") == "delete")
    assert gone["took"].to_pylist() == [2 * S]


def test_new_type_with_another_type_does_not_widen() -> None:
    table = made()
    for other in (pa.array([7], pa.int64()), pa.array(["7"]), pa.array([7], pa.time64("us"))):
        with pytest.raises(SchemaMismatchError, match=r"took"):
            table.upsert(pa.table({"id": [1], "took": other}), schema_mode="merge")
    assert join_types(pa.duration("s"), pa.duration("ms"), "c") == MICROSECONDS
    for other in (pa.int64(), pa.string(), pa.time64("us"), pa.list_(MICROSECONDS)):
        with pytest.raises(SchemaMismatchError, match="no common type"):
            join_types(MICROSECONDS, other, "c")
    with pytest.raises(SchemaMismatchError, match="unchanged"):
        table.upsert(pa.table({"id": [1], "took": pa.array([1500], pa.duration("us"))}))

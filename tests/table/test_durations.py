"""Durations through the whole engine: their family, `columns/kinds_durations.py`, is all that knows them."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import crdt_mor as mor
from crdt_mor.cli import render
from crdt_mor.columns.kinds import kind_of
from crdt_mor.columns.types import join_types
from crdt_mor.errors import SchemaMismatchError
from crdt_mor.store import MemoryStore

MICROSECONDS = pa.duration("us")
S, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


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


def test_duration_in_logs_and_base_file_is_read_as_declared() -> None:
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


def test_duration_in_json_is_read_as_it_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = made()
    render.lines(table.to_arrow().sort_by("id").to_pylist())
    printed = capsys.readouterr().out
    assert [json.loads(line) for line in printed.splitlines()] == [
        {"id": 1, "took": "PT1S", "laps": ["PT1S", None]}, {"id": 2, "took": "PT2S", "laps": []}
    ]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text(printed.replace("PT2S", "PT1M"))
    table.upsert(mor.read_files(tmp_path / "rows.jsonl", schema=table.schema))
    assert seen(table) == {1: S, 2: MINUTE}
    assert table.to_arrow().sort_by("id")["laps"].to_pylist() == [[S, None], []]


def test_duration_is_updated_and_filtered_by_sql() -> None:
    table = made()
    table.update({"took": "took + took"}, where="took > INTERVAL '1 second'")
    assert seen(table) == {1: S, 2: 4 * S}
    table.update({"took": timedelta(minutes=5)}, where="id = 1")
    for _ in range(2):  # in a log, then in a base file
        assert seen(table, "took >= INTERVAL '5 minutes'") == {1: 5 * MINUTE}
        assert seen(table, pl.col("took") == 4 * S) == {2: 4 * S}
        table.maintenance.compact()


def test_duration_in_a_base_file_has_statistics_of_its_stored_value(tmp_path: Path) -> None:
    table = mor.Table.create(tmp_path / "t", made().schema, key="id", buckets=1)
    table.upsert(rows((1, S, None), (2, 2 * S, None)))
    table.maintenance.compact()
    (base,) = (tmp_path / "t").glob("*.parquet")
    columns = pq.ParquetFile(base).metadata.row_group(0)
    names = [columns.column(at).path_in_schema for at in range(columns.num_columns)]
    statistics = columns.column(names.index("took")).statistics
    assert (statistics.min, statistics.max) == (1_000_000, 2_000_000)
    assert seen(table, pl.col("took") > S) == {2: 2 * S}


def test_duration_is_no_key_and_orders_rows() -> None:
    with pytest.raises(mor.InvalidInputError, match="column=took"):
        made(key="took")
    table = made(ordering="took")
    table.upsert(rows((1, 3 * S, None), (2, S, None)))
    assert seen(table) == {1: 3 * S, 2: 2 * S}
    table.delete(rows((1, 2 * S, None), (2, 2 * S, None)))
    assert seen(table) == {1: 3 * S}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(), "PT0S"),
        (timedelta(3), "P3DT0S"),
        (timedelta(1, 3, 50), "P1DT3.00005S"),
        (-timedelta(0, 0, 1), "-PT0.000001S"),
        (timedelta(microseconds=-(2**63)), "-P106751991DT14454.775808S"),
    ],
)
def test_duration_as_text_is_iso_8601(value: timedelta, text: str) -> None:
    family = kind_of(MICROSECONDS)
    assert family.to_json(value) == text
    assert family.from_texts(pa.chunked_array([[text, None]]), MICROSECONDS).to_pylist() == [value, None]


def test_duration_in_csv_is_read_as_iso_8601(tmp_path: Path) -> None:
    table = made()
    flat = mor.Table.create(
        "flat", table.schema.remove(2), key="id", buckets=1, opening=mor.Opening(store=MemoryStore())
    )
    (tmp_path / "rows.csv").write_text("id,took\n1,P1DT2H3M4.5S\n2,-PT1M\n3,\n")
    flat.upsert(mor.read_files(tmp_path / "rows.csv", schema=flat.schema))
    assert seen(flat) == {1: timedelta(1, 7384, 500_000), 2: -MINUTE, 3: None}
    (tmp_path / "rows.csv").write_text("id,took\n1,P1Y\n")
    with pytest.raises(mor.InvalidInputError, match=r"took.*not a duration"):
        flat.upsert(mor.read_files(tmp_path / "rows.csv", schema=flat.schema))


def test_duration_with_another_type_does_not_widen() -> None:
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

"""Partial updates under an ordering column: change feeds out of order, with columns left out.

`tests/merge/test_orders.py` searches all short histories; here the public methods are asked.
"""

from __future__ import annotations

from datetime import date
from itertools import permutations
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.errors import InvalidInputError, SchemaMismatchError, UnsupportedFeatureError
from crdt_mor.payloads import Counter, LatestBy

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("bio", pa.string()), ("lsn", pa.int64())])
Row = dict[str, object]
EVENTS: tuple[Row, ...] = (
    {"id": 1, "name": "n1", "bio": "b1", "lsn": 1},
    {"id": 1, "name": "n2", "lsn": 2},
    {"id": 1, "name": "n3", "lsn": 3},
)


def rows(*given: Row) -> pa.Table:
    return pa.Table.from_pylist(list(given), pa.schema([SCHEMA.field(name) for name in given[0]]))


def create(path: Path, **settings: object) -> mor.Table:
    merge = settings.pop("merge", mor.PartialUpdate())
    return mor.Table.create(str(path), SCHEMA, key="id", ordering="lsn", merge=merge, **settings)  # type: ignore[arg-type]


def shown(table: mor.Table) -> list[Row]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_an_omitted_column_keeps_its_value_in_any_order_of_arrival(fast_path: Path, order: tuple[int, ...]) -> None:
    for compacted in (None, *order):
        table = create(fast_path / f"t{compacted}")
        for place in order:
            table.upsert(rows(EVENTS[place]))
            if place == compacted:
                table.maintenance.compact()
        assert shown(table) == [{"id": 1, "name": "n3", "bio": "b1", "lsn": 3}]
        assert not table.verify(deep=True).findings


def test_a_delete_removes_lower_rows_also_those_that_come_later(fast_path: Path) -> None:
    table = create(fast_path / "t")
    table.upsert(rows(EVENTS[0]))
    table.delete(rows({"id": 1, "lsn": 2}))
    table.upsert(rows({"id": 1, "name": "n4", "lsn": 4}))
    table.maintenance.compact()
    assert shown(table) == [{"id": 1, "name": "n4", "bio": None, "lsn": 4}]
    table.upsert(rows({"id": 1, "bio": "late", "lsn": 1}))
    assert shown(table) == [{"id": 1, "name": "n4", "bio": None, "lsn": 4}]
    table.upsert(rows({"id": 1, "bio": "b3", "lsn": 3}))
    assert shown(table) == [{"id": 1, "name": "n4", "bio": "b3", "lsn": 4}]


def test_a_plain_delete_starts_afresh_whatever_the_ordering_values(fast_path: Path) -> None:
    table = create(fast_path / "t")
    table.upsert(rows({"id": 1, "name": "n9", "bio": "b9", "lsn": 9}))
    table.delete(keys=[1], plain=True)
    table.upsert(rows({"id": 1, "name": "n1", "lsn": 1}))
    assert shown(table) == [{"id": 1, "name": "n1", "bio": None, "lsn": 1}]


def test_a_transaction_keeps_each_ordering_value(fast_path: Path) -> None:
    table = create(fast_path / "t")
    with table.transaction() as block:
        block.upsert(rows({"id": 1, "name": "n3", "lsn": 3}))
        block.upsert(rows({"id": 1, "name": "n1", "bio": "b1", "lsn": 1}))
    table.upsert(rows({"id": 1, "bio": "b2", "lsn": 2}))
    assert shown(table) == [{"id": 1, "name": "n3", "bio": "b2", "lsn": 3}]


def test_an_update_and_a_merge_keep_or_raise_the_ordering_value(fast_path: Path) -> None:
    table = create(fast_path / "t")
    table.upsert(rows(EVENTS[0]))
    table.update({"name": "'updated'"}, where="id = 1")
    assert shown(table) == [{"id": 1, "name": "updated", "bio": "b1", "lsn": 1}]
    merge = table.merge(rows({"id": 1, "name": "merged", "lsn": 5}, {"id": 2, "name": "new", "lsn": 5}), on="id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    table.upsert(rows({"id": 1, "name": "late", "bio": "b4", "lsn": 4}))
    assert shown(table) == [
        {"id": 1, "name": "merged", "bio": "b4", "lsn": 5},
        {"id": 2, "name": "new", "bio": None, "lsn": 5},
    ]


@pytest.mark.parametrize("first", ["load", "overwrite"])
@pytest.mark.parametrize("nulls", ["value", "keep"])
def test_base_rows_of_a_load_or_an_overwrite_keep_what_was_given(fast_path: Path, first: str, nulls: str) -> None:
    merge, data = mor.PartialUpdate(nulls=nulls), rows({"id": 1, "name": None, "bio": "b5", "lsn": 5})  # type: ignore[arg-type]
    path = str(fast_path / "t")
    if first == "load":
        table = mor.Table.create_from(path, data, key="id", ordering="lsn", merge=merge)
    else:
        table = create(fast_path / "t", merge=merge)
        table.overwrite(data)
    late = pa.table({"id": [1], "name": ["n2"], "bio": ["b2"], "more": ["m2"], "lsn": [2]})
    table.upsert(late, schema_mode="merge")
    name = None if nulls == "value" else "n2"
    assert shown(table) == [{"id": 1, "name": name, "bio": "b5", "lsn": 5, "more": "m2"}]
    table.maintenance.compact()
    table.upsert(late.set_column(4, "lsn", pa.array([1])))
    assert shown(table) == [{"id": 1, "name": name, "bio": "b5", "lsn": 5, "more": "m2"}]


def test_a_null_that_was_set_is_not_filled_by_a_late_row(fast_path: Path) -> None:
    table = create(fast_path / "t", merge=mor.PartialUpdate(nulls="keep"))
    table.upsert(rows({"id": 1, "name": "n2", "bio": "b2", "lsn": 2}))
    table.update({"bio": mor.NULL}, where="id = 1")
    table.maintenance.compact()
    table.upsert(rows({"id": 1, "bio": "b1", "lsn": 1}))
    assert shown(table) == [{"id": 1, "name": "n2", "bio": None, "lsn": 2}]


def test_changes_and_why_show_a_late_column(fast_path: Path) -> None:
    table = create(fast_path / "t")
    table.upsert(rows({"id": 1, "name": "n3", "lsn": 3}))
    before = table.upsert(rows({"id": 1, "name": "n2", "lsn": 2}))
    table.upsert(rows(EVENTS[0]))
    changed = pl.DataFrame(pl.from_arrow(table.changes(since=before).to_arrow()))
    assert changed.select("id", "name", "bio", "lsn").rows() == [(1, "n3", "b1", 3)]
    said = [entry["because"] for entry in table.why(1).to_pylist()]
    assert said[-1] == "lsn 1 is less than the row's 3; id, name, bio, lsn: the value with the greatest lsn"


def test_why_shows_each_row_of_a_commit_with_several_of_a_key(fast_path: Path) -> None:
    table = create(fast_path / "t")
    table.upsert(rows({"id": 1, "name": "n2", "bio": "b2", "lsn": 2}))
    with table.transaction() as pending:
        pending.upsert(rows({"id": 2, "name": "other", "lsn": 1}))
        with table.transaction() as block:
            block.delete(rows({"id": 1, "lsn": 2}))
            block.upsert(rows({"id": 1, "name": "n5", "lsn": 5}))
            block.upsert(rows({"id": 1, "bio": "b3", "lsn": 3}))
            block.upsert(rows({"id": 1, "bio": "b4", "lsn": 4}))
        for compacted in (False, True):
            entries = table.why(1).to_pylist()
            assert [(entry["written"], entry["result"]["name"], entry["result"]["bio"]) for entry in entries] == [
                ({"id": 1, "name": "n2", "bio": "b2", "lsn": 2}, "n2", "b2"),
                ({"id": 1, "name": None, "bio": "b4", "lsn": 4}, None, "b4"),
                ({"id": 1, "name": "n5", "bio": None, "lsn": 5}, "n5", "b4"),
            ]
            assert [entry["columns"] for entry in entries[1:]] == [["id", "bio", "lsn"], ["id", "name", "lsn"]]
            assert [len(entry["carried_by"]) for entry in entries] == ([0, 1, 1] if compacted else [0, 0, 0])
            said = [entry["because"].split("; ")[:-1] for entry in entries[1:]]
            assert said[0] == ["the commit deletes the row first", "no row exists yet to compare lsn with"]
            assert said[1] == ["lsn 5 is not less than the row's 4"]
            assert [entry["written"]["bio"] for entry in table.why(1, column="bio").to_pylist()] == ["b2", "b4"]
            if not compacted:
                table.maintenance.compact()
    table.maintenance.compact()
    assert [entry["written"]["lsn"] for entry in table.why(1).to_pylist()] == [2, 4, 5]


def test_what_cannot_be_right_is_refused(fast_path: Path) -> None:
    table = create(fast_path / "t")
    with pytest.raises(SchemaMismatchError, match=r"the ordering column if the table has one\. missing=\['lsn'\]"):
        table.upsert(pa.table({"id": [1], "name": ["x"]}))
    with pytest.raises(InvalidInputError, match="ordering"):
        create(fast_path / "payloads", merge=mor.PartialUpdate(columns={"name": Counter()}))
    with pytest.raises(InvalidInputError, match="ordering columns cannot be unavailable"):
        create(fast_path / "marked", merge=mor.PartialUpdate(unavailable={"lsn": -1}))
    with pytest.raises(InvalidInputError, match="ordering='lsn'"):
        create(fast_path / "whole", merge={("name", "lsn"): LatestBy("lsn")})
    with pytest.raises(UnsupportedFeatureError, match="cannot be moved"):
        table.maintenance.migrate(str(fast_path / "moved"))


@pytest.mark.slow
def test_ten_thousand_rows_out_of_order_are_right_after_each_compaction(tmp_path: Path) -> None:
    table = create(tmp_path / "t", buckets=2)
    keys = pl.DataFrame({"id": pl.int_range(10_000, eager=True)})
    for lsn in (3, 1, 2):
        name = pl.format("n{}", pl.lit(lsn)).alias("name")
        given = [name] if lsn == 3 else [name, pl.format("b{}", pl.lit(lsn)).alias("bio")]
        table.upsert(keys.with_columns(*given, lsn=pl.lit(lsn, pl.Int64)))
        table.maintenance.compact()
    assert table.to_polars().select("name", "bio", "lsn").unique().rows() == [("n3", "b2", 3)]


def test_a_marker_of_an_unavailable_value_leaves_its_column(fast_path: Path) -> None:
    table = create(fast_path / "t", merge=mor.PartialUpdate(unavailable="__debezium_unavailable_value"))
    table.upsert(rows({"id": 1, "name": "n3", "bio": "__debezium_unavailable_value", "lsn": 3}))
    table.upsert(rows({"id": 1, "name": "n2", "bio": "__debezium_unavailable_value", "lsn": 2}, EVENTS[0]))
    table.maintenance.compact()
    assert shown(table) == [{"id": 1, "name": "n3", "bio": "b1", "lsn": 3}]


def test_a_filter_for_null_finds_a_row_whose_value_a_delete_removed(fast_path: Path) -> None:
    """Beside a large block, only the keys with a row that passes the filter are merged."""
    table = create(fast_path / "t", buckets=1)
    table.upsert(rows({"id": 1, "name": "n3", "lsn": 3}))
    table.upsert(rows({"id": 1, "bio": "b1", "lsn": 1}))
    table.maintenance.compact()
    others = pl.DataFrame({"id": pl.int_range(10, 50_010, eager=True)})
    table.upsert(others.with_columns(name=pl.lit("x"), bio=pl.lit("y"), lsn=pl.lit(1, pl.Int64)))
    table.delete(rows({"id": 1, "lsn": 2}))
    assert table.scan(filter="bio IS NULL").to_polars()["id"].to_list() == [1]
    assert table.scan(filter="bio = 'b1'").count() == 0
    assert table.update({"name": "'found'"}, where="bio IS NULL").rows == 1


def test_a_commit_with_several_rows_of_a_key_is_sound(fast_path: Path) -> None:
    table = create(fast_path / "t")
    with table.transaction(columns=["name", "bio"]) as block:
        block.upsert(rows({"id": 1, "name": "n3", "lsn": 3}))
        block.upsert(rows({"id": 1, "bio": "b1", "lsn": 1}))
    assert table.verify(deep=True).is_sound
    assert shown(table) == [{"id": 1, "name": "n3", "bio": "b1", "lsn": 3}]


@pytest.mark.parametrize("merge", [mor.PartialUpdate(), None])
def test_why_compares_dates_of_deletes(fast_path: Path, merge: mor.PartialUpdate | None) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32())])
    table = mor.Table.create(str(fast_path / "t"), schema, key="id", ordering="day", merge=merge)
    table.upsert(pa.table({"id": [1], "day": [date(2026, 1, 2)]}, schema))
    table.delete(pa.table({"id": [1], "day": [date(2026, 1, 1)]}, schema))
    assert table.why(1)["because"][-1].as_py() == "day 2026-01-01 is less than the row's 2026-01-02"

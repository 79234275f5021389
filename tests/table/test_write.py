"""Writing: every verb, every kind of frame, every kind of table; transactions, tokens, growth."""

from __future__ import annotations

import datetime as dt
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.errors import SchemaMismatchError, TokenOrderError
from crdt_mor.payloads import PartialUpdate
from crdt_mor.store import MemoryStore
from tests.table.helpers import SCHEMA, Make, Place, Places, data_files, frame, rows

A, B = ("a", "eu", 1, 1.5), ("b", "us", 2, 2.5)


# --- create and open --------------------------------------------------------------------------------------------------


def test_a_table_remembers_how_it_was_made(make: Make, place: Place) -> None:
    make(key=["id", "region"], ordering="n", buckets=3)
    table = place.open()
    assert table.config.buckets == 3
    assert table.config.key == ("id", "region")
    assert (table.config.merge, table.config.ordering) == ("ordering:n", "n")
    assert table.schema == SCHEMA
    assert table.scan().count() == 0
    assert table.scan().to_arrow() == SCHEMA.empty_table()
    assert table.scan().to_polars().is_empty()


def test_a_table_has_four_buckets_unless_told() -> None:
    assert Table.create("t", SCHEMA, key="id", opening=Opening(store=MemoryStore())).config.buckets == 4


def test_creating_the_same_table_again_opens_it(make: Make) -> None:
    make().upsert(frame(A))
    assert rows(make(exist_ok=True)) == [A]


def test_a_folder_may_have_any_name(fast_path: object) -> None:
    for name in ("2024-01", "mit Leerzeichen", "événements", "[x]"):
        table = Table.create(f"{fast_path}/{name}", SCHEMA, key="id")
        table.upsert(frame(A))
        table.maintenance.compact()
        table.upsert(frame(B))
        assert rows(table) == [A, B]


# --- frames -----------------------------------------------------------------------------------------------------------

DATA = frame(A, B)
FRAMES = {
    "pyarrow table": lambda: DATA,
    "record batch": lambda: DATA.to_batches()[0],
    "reader": DATA.to_reader,
    "polars": lambda: pl.DataFrame(DATA),
    "pandas": DATA.to_pandas,
    "pandas with its key as index": lambda: DATA.to_pandas().set_index("id"),
    "duckdb": lambda: duckdb.connect().from_arrow(DATA),
    "columns in another order": lambda: DATA.select(["price", "n", "id", "region"]),
    "dictionaries": lambda: DATA.set_column(1, "region", DATA["region"].dictionary_encode()),
    "narrower numbers": lambda: DATA.set_column(2, "n", DATA["n"].cast(pa.int8())),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_any_kind_of_frame_can_be_upserted(make: Make, kind: str) -> None:
    table = make()
    commit = table.upsert(FRAMES[kind]())
    assert (commit.rows, commit.deletes) == (2, 0)
    assert rows(table) == [A, B]


@pytest.mark.parametrize("kind", FRAMES)
def test_any_kind_of_frame_can_be_appended_and_deleted(make: Make, kind: str) -> None:
    table = make()
    assert table.append(FRAMES[kind]()).rows == 2
    commit = table.delete(FRAMES[kind]())
    assert (commit.rows, commit.deletes) == (0, 2)
    assert rows(table) == []


def test_a_scan_of_another_table_can_be_written(make: Make, places: Places) -> None:
    source = make()
    source.upsert(DATA)
    copy = places("copy").create(schema=source.schema, key="id", buckets=1)
    copy.append(source.scan())
    assert rows(copy) == [A, B]


def test_an_empty_frame_is_a_commit_without_files(make: Make, place: Place) -> None:
    table = make()
    commit = table.upsert(DATA.slice(0, 0))
    assert (commit.rows, commit.deletes) == (0, 0)
    assert not data_files(place)
    assert rows(table, as_of=commit) == []


# --- keys and partitions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hive_style", [True, False])
@pytest.mark.parametrize("key", ["id", ["id", "n"]])
def test_partitions_are_folders_and_a_key_is_unique_within_its_own(
    make: Make, place: Place, hive_style: bool, key: str | list[str]
) -> None:
    table = make(partition_by="region", key=key, hive_style=hive_style)
    table.upsert(frame(("a", "eu", 1, 1.0), ("a", "us", 1, 2.0), ("b", None, 1, 3.0)))
    table.upsert(frame(("a", "us", 1, 9.0)))
    assert rows(table) == [("a", "eu", 1, 1.0), ("a", "us", 1, 9.0), ("b", None, 1, 3.0)]
    folders = {name.rpartition("/")[0] for name in data_files(place)}
    names = ["eu", "us", "__HIVE_DEFAULT_PARTITION__"]
    assert folders == {f"region={n}" if hive_style else n for n in names}
    table.maintenance.compact()
    table.delete(frame(("a", "eu", 1)).select(["id", "region", "n"]))
    assert rows(table) == [("a", "us", 1, 9.0), ("b", None, 1, 3.0)]


def test_moving_a_row_to_another_partition_is_a_delete_and_an_upsert_in_one_commit(make: Make) -> None:
    table = make(partition_by="region")
    table.upsert(frame(A))
    with table.transaction() as tx:
        tx.delete(frame(A))
        tx.upsert(frame(("a", "us", 1, 1.5)))
    assert rows(table) == [("a", "us", 1, 1.5)]


def test_composite_keys_are_told_apart(make: Make) -> None:
    table = make(key=["id", "region"])
    table.upsert(frame(("a", "b", 1), ("a", "c", 2), ("b", "b", 3), ("a", None, 4)))
    table.delete(keys=[("a", "c"), ("b", "b")])
    assert rows(table, "id", "region", "n") == [("a", "b", 1), ("a", None, 4)]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint32(), pa.date32()])
def test_keys_may_be_numbers_and_dates(make: Make, kind: pa.DataType) -> None:
    table = make(schema=pa.schema([("k", kind), ("v", pa.int64())]), key="k")
    keys = pa.array([1, 2, 3], pa.int32()).cast(kind)
    table.upsert(pa.table({"k": keys, "v": [1, 2, 3]}))
    table.upsert(pa.table({"k": keys[:1], "v": [9]}))
    table.delete(keys=[keys[1].as_py()])
    assert sorted(table.scan().to_arrow()["v"].to_pylist()) == [3, 9]
    assert table.scan().schema.field("k").type == kind


# --- statements and merges --------------------------------------------------------------------------------------------


def test_inside_one_frame_the_last_row_of_a_key_wins(make: Make) -> None:
    table = make()
    assert table.upsert(frame(("a", "x", 1), ("b", "x", 2), ("a", "x", 3))).rows == 2
    assert rows(table, "id", "n") == [("a", 3), ("b", 2)]


def test_inside_one_frame_the_greatest_ordering_value_wins_and_of_equal_ones_the_later(make: Make) -> None:
    table = make(ordering="n")
    table.upsert(frame(("a", "first", 3), ("a", "second", 1), ("a", "third", 3)))
    assert rows(table, "region", "n") == [("third", 3)]


def test_an_append_with_a_key_twice_is_refused(make: Make) -> None:
    table = make()
    with pytest.raises(InvalidInputError, match=r"twice in an append: use upsert.*key='a'"):
        table.append(frame(A, B, A))
    assert rows(table) == []


@pytest.mark.parametrize("more", [0, 5000])
def test_an_append_may_have_a_key_in_two_partitions_but_not_twice_in_one(make: Make, more: int) -> None:
    table = make(partition_by="region")
    many = [(f"k{n}", "x", n) for n in range(more)]
    table.append(frame(*many, ("a", "x", 1), ("a", "y", 2)))
    assert table.scan().count() == more + 2
    with pytest.raises(InvalidInputError, match=r"twice in an append: use upsert.*key='b'"):
        table.append(frame(*many, ("b", "y", 1), ("b", "x", 2), ("b", "y", 3)))


def test_latest_commit_wins_in_a_default_table(make: Make) -> None:
    table = make()
    table.upsert(frame(("a", "x", 5), ("b", "x", 5)))
    table.upsert(frame(("a", "x", 1)))
    table.delete(keys=["b"])
    assert rows(table, "id", "n") == [("a", 1)]


def test_the_greater_ordering_value_wins_and_a_tombstone_counts_like_a_row(make: Make) -> None:
    table = make(ordering="n")
    table.upsert(frame(("a", "x", 5), ("b", "x", 5), ("c", "x", 5)))
    table.upsert(frame(("a", "y", 1)))
    table.delete(frame(("b", None, 9), ("c", None, 4)))
    assert rows(table, "id", "region", "n") == [("a", "x", 5), ("c", "x", 5)]
    table.upsert(frame(("b", "y", 8)))
    assert rows(table, "id", "n") == [("a", 5), ("c", 5)], "the tombstone is newer"
    table.upsert(frame(("b", "y", 10)))
    assert rows(table, "id", "n") == [("a", 5), ("b", 10), ("c", 5)]


def test_a_plain_delete_needs_no_ordering_value(make: Make) -> None:
    table = make(ordering="n")
    table.upsert(frame(("a", "x", 5)))
    with pytest.raises(InvalidInputError, match=r"plain=True.*missing=\['n'\]"):
        table.delete(keys=["a"])
    table.delete(keys=["a"], plain=True)
    assert rows(table) == []
    table.upsert(frame(("a", "x", 1)))
    assert rows(table, "id", "n") == [("a", 1)], "whatever came before is gone, tombstones as well"


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.float64()])
def test_zero_is_an_ordering_value_like_any_other(make: Make, kind: pa.DataType) -> None:
    """To Hudi the int 0 means: no value. Where the column itself is an int, it is one."""
    table = make(schema=pa.schema([("k", pa.string()), ("v", kind)]), key="k", ordering="v")
    table.upsert(pa.table({"k": ["a", "b"], "v": [5, -5]}))
    table.delete(pa.table({"k": ["a", "b"], "v": [0, 0]}))
    for _ in range(2):
        assert table.scan().to_arrow().to_pylist() == [{"k": "a", "v": 5}]
        table.maintenance.compact()
    table.upsert(pa.table({"k": ["b"], "v": [-1]}))
    assert table.scan().count() == 1, "older than the tombstone, also after it was carried through a compaction"


def test_a_partial_update_leaves_the_other_columns_alone(make: Make) -> None:
    table = make(merge=PartialUpdate())
    table.upsert(frame(A, B))
    table.upsert(pl.DataFrame({"id": ["a"], "n": [10]}))
    table.upsert(pl.DataFrame({"id": ["a", "c"], "price": [None, 7.0]}, schema_overrides={"price": pl.Float64}))
    assert rows(table) == [("a", "eu", 10, None), B, ("c", None, None, 7.0)]
    table.delete(keys=["a"])
    table.upsert(pl.DataFrame({"id": ["a"], "price": [1.0]}))
    assert rows(table)[0] == ("a", None, None, 1.0), "a delete starts the row afresh"


def test_a_partial_update_may_keep_what_a_null_would_overwrite(make: Make, place: Place) -> None:
    make(merge=PartialUpdate(nulls="keep"))
    table = place.open()
    table.upsert(frame(A))
    table.upsert(frame(("a", None, None, 9.0)))
    assert rows(table) == [("a", "eu", 1, 9.0)]


# --- deletes ----------------------------------------------------------------------------------------------------------


def test_rows_are_deleted_where_a_filter_holds(make: Make) -> None:
    table = make()
    table.upsert(frame(*((f"k{i}", "eu", i) for i in range(10))))
    assert table.delete(where=pl.col("n") >= 7).deletes == 3
    assert table.delete(where="n < 5").deletes == 5
    assert rows(table, "id") == [("k5",), ("k6",)]


def test_a_filter_decides_on_the_snapshot_that_the_transaction_began_with(make: Make) -> None:
    table = make()
    table.upsert(frame(("a", "x", 9), ("b", "x", 1)))
    with table.transaction() as tx:
        table.upsert(frame(("b", "y", 9), ("c", "y", 9)))
        tx.delete(where="n = 9")
    assert rows(table, "id") == [("b",), ("c",)]


def test_a_bare_key_is_one_key(make: Make) -> None:
    table = make()
    table.upsert(frame(*((key, "x", 1) for key in ("a", "b", "c", "abc"))))
    assert table.delete(keys="abc").deletes == 1
    assert rows(table, "id") == [("a",), ("b",), ("c",)]
    with table.transaction() as tx:
        tx.delete(keys="c")
        tx.delete(keys=iter(["a"]))
    assert rows(table, "id") == [("b",)]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [(pa.int64(), [5, 6]), (pa.date32(), [dt.date(2024, 1, day) for day in (1, 2)])],
)
def test_a_bare_key_may_be_of_any_type(make: Make, kind: pa.DataType, keys: list[Any]) -> None:
    schema = pa.schema([("k", kind)])
    table = make(schema=schema, key="k", partition_by="k" if kind == pa.date32() else ())
    table.upsert(pa.table({"k": keys}, schema))
    assert table.delete(keys=keys[0]).deletes == 1
    assert table.scan().to_arrow()["k"].to_pylist() == keys[1:]


@pytest.mark.parametrize("given", [{"id": "a"}, frame(("a", "x", 1)), frame(("a", "x", 1)).to_pandas()], ids=repr)
def test_what_names_columns_is_not_taken_for_keys(make: Make, given: object) -> None:
    table = make()
    table.upsert(frame(("a", "x", 1), ("id", "x", 2)))
    with pytest.raises(InvalidInputError, match=r"delete\(frame\)"):
        table.delete(keys=given)
    assert rows(table, "id") == [("a",), ("id",)]


def test_bare_keys_do_not_say_which_partition(make: Make) -> None:
    table = make(partition_by="region")
    with pytest.raises(InvalidInputError, match=r"delete by a frame with the key and partition columns"):
        table.delete(keys=["a"])


def test_deleting_what_is_not_there_is_fine(make: Make) -> None:
    table = make()
    table.upsert(frame(A))
    assert table.delete(keys=["nobody"]).deletes == 1
    assert rows(table) == [A]


# --- transactions -----------------------------------------------------------------------------------------------------


def test_statements_of_a_transaction_become_one_commit_of_which_nothing_shows_before(make: Make) -> None:
    table = make()
    table.upsert(frame(A, B))
    with table.transaction() as tx:
        tx.upsert(frame(("c", "x", 3)))
        tx.delete(keys=["a"])
        tx.upsert(frame(("b", "x", 7)))
        tx.delete(keys=["b"])
        tx.upsert(frame(("b", "x", 8)))
        tx.append(frame(("d", "x", 4)))
        assert rows(table, "id", "n") == [("a", 1), ("b", 2)]
    assert tx.commit is not None
    assert tx.commit.rows == 3
    assert rows(table, "id", "n") == [("b", 8), ("c", 3), ("d", 4)]
    assert table.inspect.timeline()["operation"].to_pylist() == ["UPSERT", "UPSERT"]


def test_a_transaction_reads_one_sealed_snapshot_to_its_end(make: Make, place: Place) -> None:
    table, other = make(), place.open()
    table.upsert(frame(A))
    with table.transaction() as tx:
        version = tx.scan().version
        other.upsert(frame(B))
        other.maintenance.compact()
        tx.upsert(frame(("c", "x", 3)))
        table.upsert(frame(("d", "x", 4)))
        assert tx.scan().to_arrow().to_pylist() == frame(A).to_pylist()
        assert tx.scan(filter="n = 1", columns=["id"]).count() == 1
        assert tx.scan().version == version
    assert [row[0] for row in rows(table)] == ["a", "b", "c", "d"]


def test_requested_first_loses_to_requested_later_whatever_completes_first(make: Make) -> None:
    table = make()
    early = table.transaction()
    early.__enter__()
    early.upsert(frame(("a", "early", 1)))
    late = table.upsert(frame(("a", "late", 2)))
    early.__exit__(None, None, None)
    assert early.commit is not None
    assert early.commit.completed_at > late.completed_at
    assert early.commit.requested_at < late.requested_at
    assert rows(table, "region") == [("late",)]


def test_an_exception_rolls_the_transaction_back_and_leaves_no_files(make: Make, place: Place) -> None:
    table = make()
    table.upsert(frame(A))
    before = data_files(place)
    with pytest.raises(ZeroDivisionError), table.transaction() as tx:  # noqa: PT012
        tx.upsert(frame(B))
        raise ZeroDivisionError
    assert tx.commit is None
    assert data_files(place) == before
    assert rows(table) == [A]
    assert table.inspect.timeline()["state"].to_pylist() == ["completed", "rolled back"]


def test_a_transaction_inside_another_is_a_write_of_its_own(make: Make) -> None:
    table = make()
    with pytest.raises(ZeroDivisionError), table.transaction() as outer:  # noqa: PT012
        outer.upsert(frame(A))
        with table.transaction() as inner:
            inner.upsert(frame(B))
        raise ZeroDivisionError
    assert rows(table) == [B]


def test_a_transaction_is_used_inside_its_block_only(make: Make) -> None:
    table = make()
    tx = table.transaction()
    with pytest.raises(InvalidInputError, match="inside its block"):
        tx.upsert(frame(A))
    with pytest.raises(ZeroDivisionError), tx:
        raise ZeroDivisionError
    for use in (lambda: tx.upsert(frame(A)), lambda: tx.delete(keys=["a"]), tx.scan):
        with pytest.raises(InvalidInputError, match="inside its block"):
            use()
    with table.transaction() as done:
        done.upsert(frame(A))
    with pytest.raises(InvalidInputError, match="inside its block"):
        done.upsert(frame(B))
    assert rows(table) == [A]


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_a_token_makes_a_repeated_write_a_no_op_that_returns_the_first_commit(make: Make, place: Place) -> None:
    table = make()
    first = table.upsert(frame(A), token=("loader", 7))
    table.upsert(frame(B))
    again = place.open().upsert(frame(("z", "x", 0)), token=("loader", 7))
    assert again.repeated
    assert not first.repeated
    assert (again.version, again.requested_at, again.completed_at, again.rows) == (
        first.version,
        first.requested_at,
        first.completed_at,
        first.rows,
    )
    assert rows(table) == [A, B]


@pytest.mark.costly
def test_a_token_is_remembered_for_as_long_as_the_table_lives(make: Make, place: Place) -> None:
    table = make()
    first = table.upsert(frame(A), token=("loader", 1))
    for i in range(40):
        table.upsert(frame((f"k{i % 3}", "x", i)), token=("other", i))
    table.maintenance.compact()
    again = place.open().delete(keys=["a"], token=("loader", 1))
    assert again.repeated
    assert again.requested_at == first.requested_at
    assert A in rows(table)


def test_a_lower_number_raises_since_it_may_be_a_repeat_or_out_of_order(make: Make) -> None:
    table = make()
    table.upsert(frame(A), token=("loader", 7))
    with pytest.raises(TokenOrderError, match=r"application='loader' number=6 last=7"):
        table.upsert(frame(B), token=("loader", 6))
    table.upsert(frame(B), token=("someone else", 6))
    table.upsert(frame(("c", "x", 1)), token=("loader", 8))
    assert len(rows(table)) == 3


def test_of_two_writers_with_one_token_one_commits_and_both_get_its_commit(make: Make, place: Place) -> None:
    table, other = make(), place.open()
    with table.transaction(token=("loader", 1)) as slow:
        slow.upsert(frame(("a", "slow", 1)))
        fast = other.upsert(frame(("a", "fast", 1)), token=("loader", 1))
    assert slow.commit is not None
    assert slow.commit.repeated
    assert slow.commit.requested_at == fast.requested_at
    assert rows(table, "region") == [("fast",)]
    assert len(data_files(place)) == 1, "the files of the other one are gone"


def test_a_transaction_with_a_used_token_does_nothing(make: Make) -> None:
    table = make()
    first = table.upsert(frame(A), token=("loader", 1))
    with table.transaction(token=("loader", 1)) as tx:
        assert tx.commit is not None
        tx.upsert(frame(B))
        tx.delete(where="n = 1")
        assert tx.scan().count() == 1
    assert tx.commit.repeated
    assert tx.commit.requested_at == first.requested_at
    assert rows(table) == [A]


@pytest.mark.parametrize("token", ["loader", ("loader",), ("loader", "1"), (1, "loader"), ("loader", 1.0), ("a", True)])
def test_a_token_is_a_text_and_an_int(make: Make, token: object) -> None:
    table = make()
    with pytest.raises(InvalidInputError, match=r"pass token as \(application, number\)"):
        table.upsert(frame(A), token=token)  # type: ignore[arg-type]


# --- growth -----------------------------------------------------------------------------------------------------------


def test_a_new_column_comes_with_schema_mode_merge_as_an_event_of_its_own(make: Make, place: Place) -> None:
    table = make()
    table.upsert(frame(A))
    before = table.version
    grown = DATA.append_column("new", pa.array([7, 8], pa.int16()))
    with pytest.raises(SchemaMismatchError, match=r"schema_mode=\"merge\".*unknown=\['new'\]"):
        table.upsert(grown)
    with table.transaction() as tx:
        tx.upsert(grown, schema_mode="merge")
        assert place.open().schema == SCHEMA, "a later statement may be refused yet"
    assert table.schema.field("new").type == pa.int16()
    assert rows(table, "id", "new") == [("a", 7), ("b", 8)]
    operations = table.inspect.timeline()["operation"].to_pylist()
    assert "ALTER_SCHEMA" in operations
    assert table.version > before
    table.upsert(grown, schema_mode="merge")
    assert table.inspect.timeline()["operation"].to_pylist().count("ALTER_SCHEMA") == 1


def test_a_transaction_that_is_rolled_back_leaves_no_growth(make: Make) -> None:
    table = make()
    with pytest.raises(ZeroDivisionError), table.transaction() as tx:  # noqa: PT012
        tx.upsert(DATA.append_column("new", pa.array([7, 8])), schema_mode="merge")
        raise ZeroDivisionError
    assert table.schema == SCHEMA
    assert rows(table) == []


def test_types_widen_exactly_also_for_rows_that_are_in_files_already(make: Make) -> None:
    schema = pa.schema([("k", pa.string()), ("i", pa.int32()), ("f", pa.float32()), ("d", pa.int16())])
    table = make(schema=schema, key="k")
    table.upsert(pa.table({"k": ["a", "b"], "i": [1, 2], "f": [0.5, 1.5], "d": [1, 2]}))
    table.maintenance.compact()
    wide = {"k": ["b"], "i": [2**40], "f": pa.array([0.1], pa.float64()), "d": pa.array([2.5], pa.float64())}
    with table.transaction() as tx:
        tx.upsert(pa.table({"k": ["c"], "i": [3], "f": [2.5], "d": [3]}))
        tx.upsert(pa.table(wide), schema_mode="merge")
    assert table.schema.types == [pa.string(), pa.int64(), pa.float64(), pa.float64()]
    expected = [("a", 1, 0.5, 1.0), ("b", 2**40, 0.1, 2.5), ("c", 3, 2.5, 3.0)]
    assert rows(table) == expected
    table.maintenance.compact()
    assert rows(table) == expected


def test_two_writers_may_add_different_columns_at_once(make: Make, place: Place) -> None:
    table, other = make(), place.open()
    with table.transaction() as one, other.transaction() as two:
        one.upsert(frame(A).append_column("x", pa.array([1])), schema_mode="merge")
        two.upsert(frame(B).append_column("y", pa.array(["why"])), schema_mode="merge")
        one.upsert(frame(("c", "x", 1)).append_column("x", pa.array([3])))
    assert set(table.schema.names) == {*SCHEMA.names, "x", "y"}
    assert other.schema == table.schema
    assert rows(table, "id", "x", "y") == [("a", 1, None), ("b", None, "why"), ("c", 3, None)]


def test_a_straggler_that_began_before_a_column_existed_means_null_in_it(make: Make, place: Place) -> None:
    table, other = make(), place.open()
    with table.transaction() as slow:
        slow.upsert(frame(A))
        other.upsert(frame(A, B).append_column("new", pa.array([1, 2])), schema_mode="merge")
    assert rows(table, "id", "new") == [("a", 1), ("b", 2)], "requested first, so it loses"
    with table.transaction() as slow:
        other.upsert(frame(A).append_column("newer", pa.array([1])).append_column("new", pa.array([1])),
                     schema_mode="merge")  # fmt: skip
        slow.upsert(frame(("c", "x", 1)).append_column("new", pa.array([3])))
    assert rows(table, "id", "new", "newer") == [("a", 1, 1), ("b", 2, None), ("c", 3, None)]


def test_types_that_do_not_join_are_refused_with_both_named(make: Make) -> None:
    table = make()
    bad = frame(A).set_column(2, "n", pa.array([1.5]))
    with pytest.raises(SchemaMismatchError, match=r"(?s)n.*int64.*double|n.*double.*int64"):
        table.upsert(bad, schema_mode="merge")
    assert table.schema == SCHEMA
    assert rows(table) == []


def test_pandas_rows_keep_their_missing_values(make: Make) -> None:
    table = make()
    table.upsert(pd.DataFrame({"id": ["a"], "region": [None], "n": [1], "price": [float("nan")]}))
    assert rows(table)[0][:3] == ("a", None, 1)


def test_a_process_that_has_not_looked_lately_takes_a_column_that_another_has_added(make: Make, place: Place) -> None:
    """A write is first tried on the version that its process knows, which lacks the column."""
    table = make()
    table.upsert(frame(A))
    place.open().upsert(pl.DataFrame(pl.from_arrow(frame(B))).with_columns(extra=pl.lit("e")), schema_mode="merge")
    third = pl.DataFrame(pl.from_arrow(frame(("c", "us", 3, 3.5)))).with_columns(extra=pl.lit("f"))
    table.upsert(third)
    assert rows(table, "id", "extra") == [("a", None), ("b", "e"), ("c", "f")]


@pytest.mark.parametrize("index", [["id"], ["id", "n"]], ids=str)
def test_an_index_of_pandas_that_is_a_column_is_written_once(index: list[str]) -> None:
    table = Table.create(
        "t", pa.schema([("id", pa.string()), ("n", pa.int64())]), key="id", opening=Opening(store=MemoryStore())
    )
    rows = pd.DataFrame({"id": ["a", "b"], "n": [1, 2]})
    table.upsert(rows.set_index(index, drop=False))
    assert sorted(table.to_polars().rows()) == [("a", 1), ("b", 2)]

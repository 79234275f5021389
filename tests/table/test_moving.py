"""`Table.move`: a row comes to another partition, in one commit, and lives nowhere else after it."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor import InvalidInputError, Opening, PartialUpdate, Rules, Table
from crdt_mor.payloads import Counter, Distinct, LatestBy, Max, MVRegister, ORSet
from tests.tiers import slow

SCHEMA = pl.Schema({"name": pl.String, "country": pl.String, "year": pl.Int32, "age": pl.Int64})


def make(**settings: Any) -> Table:
    made_with = {
        "key": "name",
        "partition_by": ["country", "year"],
        "opening": Opening(store=mor.store.MemoryStore()),
        **settings,
    }
    table = Table.create("people", SCHEMA, **made_with)
    table.upsert(frame(("ada", "UK", 1, 36), ("bob", "US", 1, 40), ("eve", "FR", 1, 20)))
    return table


def frame(*rows: tuple[Any, ...]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=SCHEMA, orient="row")


def shown(table: Table) -> list[tuple[Any, ...]]:
    return table.scan().to_polars().sort("name", "country").rows()


def test_a_table_in_which_a_key_may_live_twice_is_warned_of() -> None:
    with pytest.warns(
        mor.errors.PartitionNotInKeyWarning, match=r"columns=\['country', 'year'\] key=\['name'\]"
    ) as told:
        make()
    assert told[0].filename == __file__
    with pytest.warns(mor.errors.PartitionNotInKeyWarning, match=r"columns=\['country'\]"):
        Table.create_from(
            "u", frame(), key=["name"], partition_by="country", opening=Opening(store=mor.store.MemoryStore())
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(key=["name", "country", "year"])


@pytest.mark.costly
@pytest.mark.parametrize("ordering", [None, "age"])
def test_a_row_moves_and_keeps_its_other_columns(ordering: str | None) -> None:
    table = make(ordering=ordering)
    done = table.move(["ada", "ada", "nobody"], partition={"country": "FR"})
    assert (done.updated, done.deleted, done.inserted) == (1, 0, 0)
    assert shown(table) == [("ada", "FR", 1, 36), ("bob", "US", 1, 40), ("eve", "FR", 1, 20)]
    changed = table.changes(since=done.version - 1).to_polars()
    assert sorted(changed.select("name", "country", "_change_type").rows()) == [
        ("ada", "FR", "upsert"), ("ada", "UK", "delete"),
    ]  # fmt: skip
    assert table.move("bob", partition={"year": "2"}).updated == 1
    assert table.scan(filter="year = 2").to_polars().rows() == [("bob", "US", 2, 40)]


TEXTS = pa.list_(pa.string())
MERGED = pa.schema([
    ("id", pa.int64()), ("land", pa.string()), ("total", pa.int64()), ("most", pa.int64()), ("tags", TEXTS),
    ("mail", TEXTS), ("price", pa.int64()), ("at", pa.int64()), ("note", pa.string()),
])  # fmt: skip
PAYLOADS: dict[Any, Any] = {
    "total": Counter(), "most": Max(), "tags": ORSet(), "mail": MVRegister(), ("price", "at"): LatestBy("at")
}  # fmt: skip
SOME, NONE = (3, 7, ["x", "y"], ["m"], 5, 1, "n"), (None,) * 7


def merged_rows(land: str) -> pa.Table:
    rows = [(number, land, *rest) for number, rest in ((1, SOME), (2, NONE))]
    return pa.Table.from_pylist([dict(zip(MERGED.names, row, strict=True)) for row in rows], MERGED)


@pytest.mark.costly
@pytest.mark.parametrize(("in_parts", "compacted"), [(False, True), slow(True, False)])
@pytest.mark.parametrize(
    ("merge", "total"),
    [(PAYLOADS, 6), (PartialUpdate(columns=PAYLOADS), 6), (PartialUpdate(), 3), (PartialUpdate(nulls="keep"), 3)],
    ids=["payloads", "partial and payloads", "partial", "partial, nulls keep"],
)
def test_a_row_of_several_writes_moves_as_readers_see_it(
    merge: Any, total: int, in_parts: bool, compacted: bool
) -> None:
    table = Table.create(
        "t",
        MERGED,
        key="id",
        partition_by="land",
        merge=merge,
        opening=Opening(store=mor.store.MemoryStore()),
        buckets=1,
    )
    for _ in range(2):
        table.upsert(merged_rows("DE"))
    shows = [(total, *SOME[1:]), NONE]
    for land in ("FR", "DE"):
        if in_parts:
            keys, there = pl.DataFrame({"id": [1, 2]}), {"land": land}
            done = table.move(keys.schema, partition=there, parts=1, execute_parts=partial(executed, keys))
        else:
            done = table.move([1, 2], partition={"land": land})
        assert done.updated == 2
        if compacted:
            table.maintenance.compact()
        assert shown_rows(table) == [(1, land, *shows[0]), (2, land, *shows[1])]
    table.upsert(merged_rows("DE"))
    assert shown_rows(table) == [(1, "DE", total + 3 * (total > 3), *SOME[1:]), (2, "DE", *NONE)]


def executed(
    keys: pl.DataFrame, parts: Sequence[mor.parts.MergePart], spread: mor.parts.MergeSpread
) -> list[mor.parts.PartDone]:
    numbers = pl.Series(spread.numbers(keys))
    return [part.execute(keys.filter(numbers == part.number)) for part in parts]


def shown_rows(table: Table) -> list[tuple[Any, ...]]:
    return table.scan().to_polars().sort("id").rows()


def test_a_merge_moves_partial_rows_with_what_it_does_not_give() -> None:
    table = make(merge=PartialUpdate())
    moved = pl.DataFrame({"name": ["ada", "bob"], "country": ["FR", "US"], "year": [1, 1]})
    with table.transaction(columns=["age"]) as tx:
        tx.upsert(pl.DataFrame({"name": ["ada"], "country": ["UK"], "year": [1], "age": [99]}))
        with pytest.raises(mor.errors.EarlierWritePendingError):
            table.move(["ada"], partition={"country": "FR"}, wait=timedelta(0))
    done = table.merge(moved, on="name").when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.updated, done.inserted) == (2, 0)
    assert shown(table) == [("ada", "FR", 1, 99), ("bob", "US", 1, 40), ("eve", "FR", 1, 20)]


def test_a_row_that_is_there_is_left_alone() -> None:
    table = make()
    before = shown(table)
    assert table.move(["eve"], partition={"country": "FR"}).updated == 0
    assert shown(table) == before


def test_a_row_that_would_hide_another_does_not_move() -> None:
    table = make()
    table.upsert(frame(("ada", "FR", 1, 37)))
    said = r"another row has the same key.*: delete one of them .*'country', 'year', 'name'\].* then move the other\."
    for country in ("FR", "IT"):
        with pytest.raises(InvalidInputError, match=said):
            table.move(["ada", "bob"], partition={"country": country})
    assert len(shown(table)) == 4
    table.delete(frame(("ada", "FR", 1, 37)))
    assert table.move(["ada", "bob"], partition={"country": "FR"}).updated == 2


def test_an_update_of_a_partition_names_move() -> None:
    table = make()
    for update in (table.update, partial(table.update, execute_parts=lambda parts: [])):
        with pytest.raises(
            InvalidInputError, match=r"partition columns: move rows with move\(keys, partition=\{'country': …\}\)"
        ):
            update({"country": "'FR'"})


def test_what_an_earlier_write_gives_a_row_moves_with_it() -> None:
    store = mor.store.MemoryStore()
    table = make(opening=Opening(store=store))
    with table.transaction() as tx:
        tx.upsert(frame(("ada", "UK", 1, 99)))
        with pytest.raises(mor.errors.EarlierWritePendingError):
            Table("people", opening=Opening(store=store)).move(["ada"], partition={"country": "FR"}, wait=timedelta(0))
    assert table.move(["ada"], partition={"country": "FR"}).updated == 1
    assert shown(table)[0] == ("ada", "FR", 1, 99)


def test_rows_move_in_a_block_of_several_statements() -> None:
    table = make()
    with table.transaction(isolation="serializable") as tx:
        tx.upsert(frame(("kim", "UK", 1, 50), ("ada", "UK", 1, 99)))
        done = tx.move(["ada", "kim", "eve"], partition={"country": "FR"})
        assert (done.updated, done.version) == (2, 0)
        tx.update({"age": "age + 1"}, "country = 'FR'")
    assert shown(table) == [("ada", "FR", 1, 100), ("bob", "US", 1, 40), ("eve", "FR", 1, 21), ("kim", "FR", 1, 51)]
    with table.transaction() as tx, pytest.raises(InvalidInputError, match=r"table\.move\(\.\.\.\)"):
        tx.move(["ada"], partition={"country": "UK"})
    before = shown(table)
    with table.transaction(isolation="serializable") as tx:
        tx.upsert(frame(("ada", "UK", 1, 1)))
        with pytest.raises(InvalidInputError, match="another row has the same key"):
            tx.move(["ada"], partition={"country": "FR"})
        tx.delete(frame(("ada", "UK", 1, 1)))
    assert shown(table) == before
    for updated in (1, 0):
        with table.transaction(isolation="serializable", token=("job", 1)) as tx:
            assert tx.move(["ada"], partition={"country": "UK"}).updated == updated


@pytest.mark.parametrize(
    ("kind", "value"), [(pa.date32(), dt.date(2026, 1, 31)), (pa.int16(), 7), (pa.string(), None), (pa.string(), "n")]
)
def test_a_row_moves_to_a_partition_of_any_type(kind: pa.DataType, value: object) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", kind)])
    table = Table.create("t", schema, key="id", partition_by="at", opening=Opening(store=mor.store.MemoryStore()))
    table.upsert(pa.table({"id": [1], "at": pa.nulls(1)}, schema))
    assert table.move([1], partition={"at": value}).updated == (value is not None)
    assert table.scan().to_arrow()["at"].to_pylist() == [value]


def test_columns_that_were_renamed_move_by_their_names_of_now() -> None:
    table = make()
    table.alter(rename={"name": "Full Name", "country": "Where"})
    assert table.move(["ada"], partition={"Where": "FR"}).updated == 1
    assert table.scan(filter="\"Full Name\" = 'ada'").to_polars().rows() == [("ada", "FR", 1, 36)]


def test_a_move_is_held_to_the_rules() -> None:
    table = make(rules=Rules(check={"known": "country IN ('UK', 'US', 'FR')"}))
    with pytest.raises(mor.errors.ConstraintViolationError):
        table.move(["ada"], partition={"country": "XX"})


@pytest.mark.parametrize(
    ("settings", "partition", "match"),
    [
        ({}, {}, "pass the new partition"),
        ({}, {"age": 1}, "pass the new partition"),
        ({}, "FR", "pass the new partition"),
        ({}, {"year": "x"}, "must fit its column's type"),
        ({"key": ["name", "country", "year"]}, {"country": "FR"}, "upsert it with another key"),
        ({"partition_by": ()}, {"country": "FR"}, "upsert it with another key"),
        ({"merge": {"age": Distinct()}}, {"country": "FR"}, "cannot move"),
    ],
    ids=str,
)
def test_what_cannot_move_is_refused(settings: dict[str, Any], partition: Any, match: str) -> None:
    table = make(**settings)
    before = shown(table)
    keys = [("ada", "UK", 1)] if settings.get("key") else ["ada"]
    with pytest.raises(InvalidInputError, match=match):
        table.move(keys, partition=partition)
    assert shown(table) == before

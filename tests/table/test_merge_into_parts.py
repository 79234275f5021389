"""A merge that many processes compute is the merge that one process would have made, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor import CrdtMorError, InvalidInputError, Merged, MergeInto, Opening, Rules, StorageUnavailableError, Table
from crdt_mor.errors import EarlierWritePendingError
from crdt_mor.parts import MergePart, MergeSpread, PartDone
from crdt_mor.store import MemoryStore
from crdt_mor.testing.clock import SimulatedEnvironment
from tests.inside import store_of
from tests.table.helpers import SCHEMA, Places, frame, rows, sent
from tests.table.staging import STAGED, TABLES, leftovers
from tests.tiers import one_in, slow

Clauses = Callable[[MergeInto], MergeInto]
Parts = Sequence[MergePart]


class Elsewhere:
    """Other processes that compute the parts, each of which has some rows of the source."""

    def __init__(self, source: pa.Table) -> None:
        self.source = source
        self.rows: list[int] = []

    def __call__(self, parts: Parts, spread: MergeSpread) -> list[PartDone]:
        needed = self.source.select(list(dict.fromkeys([*spread.columns, self.source.column_names[0]])))
        numbers = pl.Series(sent(spread).numbers(needed).to_numpy())
        given = [self.source.filter(pa.array((numbers == part.number).to_list(), pa.bool_())) for part in parts]
        self.rows = [one.num_rows for one in given]
        done = [sent(sent(part).execute(one)) for part, one in zip(parts, given, strict=True)]
        sent(parts[0]).execute(given[0])  # a second attempt
        return done


def in_parts(
    table: Table, source: pa.Table, clauses: Clauses, parts: int = 3, **options: Any
) -> tuple[Merged, list[int]]:
    """A merge in parts, and how many rows of the source each of them has had."""
    elsewhere = Elsewhere(source)
    done = clauses(table.merge(source.schema, parts=parts, execute_parts=elsewhere, **options)).execute()
    return done, elsewhere.rows


def make(schema: pa.Schema = SCHEMA, **settings: Any) -> Table:
    clock = SimulatedEnvironment()
    opening = Opening(store=MemoryStore(clock.now_ms), environment=clock)
    return Table.create("m", schema, **{"key": "id", "opening": opening, **settings})


def filled(table: Table) -> Table:
    table.upsert(frame(*((f"k{i}", "eu" if i % 2 else "us", i, float(i)) for i in range(20))))
    table.maintenance.compact()
    table.upsert(frame(*((f"k{i}", "eu" if i % 2 else "us", i + 1, 0.5) for i in range(0, 20, 3))))
    return table


def upserting(merge: MergeInto) -> MergeInto:
    return merge.when_matched_update_all().when_not_matched_insert_all()


def all_clauses(merge: MergeInto) -> MergeInto:
    merge = merge.when_matched_delete("source.n % 5 = 0").when_matched_update({"n": "target.n + source.n"})
    merge = merge.when_not_matched_insert_all("source.n < 28").when_not_matched_by_source_delete("target.n < 3")
    return merge.when_not_matched_by_source_update({"price": "target.price + 1"})


SOURCE = frame(*((f"k{i}", "eu" if i % 2 else "us", i + 10, 99.0) for i in range(4, 30, 2)))


@pytest.mark.slow
def test_rows_move_in_parts_as_in_one_process(places: Places) -> None:
    one, many = (
        filled(places(name).create(schema=SCHEMA, key="id", partition_by="region", buckets=4)) for name in "om"
    )
    keys = SOURCE.select(["id"])
    expected = one.move([row["id"] for row in keys.to_pylist()], partition={"region": "asia"})
    elsewhere = Elsewhere(keys)
    done = many.move(keys.schema, partition={"region": "asia"}, parts=3, execute_parts=elsewhere, token=("move", 1))
    assert (done.updated, done.clauses) == (expected.updated, expected.clauses) == (8, (8,))
    assert (len(elsewhere.rows), rows(many)) == (3, rows(one))
    assert many.move(
        keys.schema, partition={"region": "eu"}, parts=3, execute_parts=elsewhere, token=("move", 1)
    ).repeated
    for schema, partition, said in (
        (keys.schema, {"n": 1}, "pass the new partition"),
        (pa.schema([("n", pa.int64())]), {"region": "eu"}, r"missing=\['id'\]"),
        (pa.schema([*keys.schema, *keys.schema]), {"region": "eu"}, "column names of a source must differ"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            many.move(schema, partition=partition, parts=3, execute_parts=elsewhere)
    assert rows(many) == rows(one)


# --- the same as in one process ---------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize(("settings", "clauses"), one_in(5, product(TABLES, [all_clauses, upserting])))
def test_it_is_what_one_process_makes(places: Places, settings: str, clauses: Clauses) -> None:
    asked = {"schema": SCHEMA, "key": "id", "buckets": 4, **TABLES[settings]}
    one, many = (filled(places(name).create(**asked)) for name in "om")
    expected = clauses(one.merge(SOURCE)).execute()
    done, given = in_parts(many, SOURCE, clauses)
    assert done == replace(
        expected, version=done.version, requested_at=done.requested_at, completed_at=done.completed_at
    )
    assert done.version == many.version
    assert sorted(given)[1] > 0, "several parts have rows of the source"
    assert rows(many) == rows(one)
    assert many.history().to_pylist()[0]["operation"] == one.history().to_pylist()[0]["operation"]
    assert leftovers(places("m")) == []
    many.maintenance.compact()
    assert rows(many) == rows(one)


@pytest.mark.costly
@pytest.mark.parametrize("ordering", [None, "n"])
def test_a_row_whose_partition_changes_moves(ordering: str | None) -> None:
    """The old row and the new one lie in different file groups, which are of one part."""
    table = filled(make(partition_by="region", ordering=ordering))
    source = frame(*((f"k{i}", "asia", 50, 9.0) for i in range(30)))
    done, given = in_parts(table, source, upserting, on="id")
    assert (done.updated, done.inserted, len(given)) == (20, 10, 3)
    assert rows(table) == rows_of(source)


@pytest.mark.slow
def test_no_row_moves_to_where_a_delete_would_hide_it() -> None:
    """Its ordering value is below that of the delete, which lies in a file group of the same part."""
    table = make(partition_by="region", ordering="n")
    table.upsert(frame(("a", "eu", 5, 1.0), ("a", "us", 9, 2.0), ("b", "eu", 5, 3.0)))
    table.delete(where="region = 'us'")
    before = rows(table)
    with pytest.raises(
        InvalidInputError, match=r"deleted with a greater ordering value.*key='a' partition='region=us'"
    ):
        in_parts(table, frame(("a", "us", 5, 1.0), ("b", "us", 5, 3.0)), upserting, on="id")
    assert (rows(table), table.inspect.pending().num_rows) == (before, 0)
    in_parts(table, frame(("a", "us", 10, 1.0), ("b", "us", 5, 3.0)), upserting, on="id")
    assert rows(table) == rows_of(frame(("a", "us", 10, 1.0), ("b", "us", 5, 3.0)))


def test_where_the_key_names_the_partition_there_can_be_more_parts_than_buckets() -> None:
    table = make(key=["id", "region"], partition_by="region", buckets=1)
    source = frame(*((f"k{i}", f"r{i % 5}", i, 1.0) for i in range(20)))
    _, given = in_parts(table, source, upserting, parts=4)
    done, again = in_parts(table, source, lambda merge: merge.when_matched_update({"n": "target.n + 1"}), parts=4)
    assert done.updated == 20
    assert given == again
    assert len(given) == 4
    assert sorted(given)[-2] > 0, "several parts have rows"
    assert rows(table) == rows_of(frame(*((f"k{i}", f"r{i % 5}", i + 1, 1.0) for i in range(20))))


@pytest.mark.parametrize(
    ("on", "clauses"),
    [
        (["n"], lambda merge: merge.when_matched_update({"price": "source.price"})),
        (
            None,
            lambda merge: merge.when_not_matched_insert({"id": "source.id || '!'", "region": "'x'", "n": "source.n"}),
        ),
    ],
    ids=["a join", "keys that an insert makes up"],
)
def test_rows_of_different_keys_that_concern_each_other_are_one_part(on: list[str] | None, clauses: Clauses) -> None:
    one, many = filled(make()), filled(make())
    source = frame(("k1", "eu", 5, 7.0), ("k77", "eu", 19, 8.0))
    expected = clauses(one.merge(source, on=on)).execute()
    done, given = in_parts(many, source, clauses, on=on)
    assert (done.clauses, given) == (expected.clauses, [2])
    assert rows(many) == rows(one)


@pytest.mark.slow
def test_columns_have_the_names_that_people_see_and_rows_the_rules_of_the_table() -> None:
    """Keys of several columns and partitions name stored columns in their texts, of which tasks know the new names."""
    settings = {
        "key": ["id", "region"],
        "partition_by": "region",
        "rules": Rules(check={"small": "n < 60"}),
        "buckets": 2,
    }
    one, many = filled(make(**settings)), filled(make(**settings))
    for table in (one, many):
        table.alter(rename={"id": "Key of all", "region": "@place", "n": "how many"})
    source = SOURCE.rename_columns(["Key of all", "@place", "how many", "price"])
    expected = upserting(one.merge(source)).execute()
    done, given = in_parts(many, source, upserting, parts=4)
    assert (done.clauses, len(given)) == (expected.clauses, 4)
    assert rows(many) == rows(one)
    with pytest.raises(CrdtMorError, match="check small"):
        in_parts(many, source, lambda merge: merge.when_matched_update({"how many": "source.price"}), parts=4)
    assert (rows(many), many.inspect.pending().num_rows) == (rows(one), 0)


def rows_of(data: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in data.to_pylist()), key=repr)


VALUES = st.dictionaries(st.sampled_from([f"k{i}" for i in range(8)]), st.integers(-3, 3), max_size=7)
NUMBERS = pa.schema([("id", pa.string()), ("n", pa.int64())])


@pytest.mark.slow
@pytest.mark.parametrize("examples", [3, slow(20)])
def test_it_is_what_one_process_makes_of_any_rows(examples: int) -> None:
    check = given(VALUES, VALUES, st.integers(1, 9), st.integers(-2, 2))(check_in_parts)
    settings(max_examples=examples)(check)()


def check_in_parts(target: dict[str, int], source: dict[str, int], parts: int, least: int) -> None:
    def clauses(merge: MergeInto) -> MergeInto:
        merge = merge.when_matched_delete(f"source.n > {least}").when_matched_update({"n": "source.n * 10"})
        merge = merge.when_not_matched_insert_all(f"source.n >= {least}")
        return merge.when_not_matched_by_source_update({"n": "target.n + 1"}, f"target.n < {least}")

    one, many = (make(NUMBERS, buckets=5) for _ in range(2))
    for table in (one, many):
        table.upsert(pa.table({"id": [*target], "n": [*target.values()]}, NUMBERS))
    given = pa.table({"id": [*source], "n": [*source.values()]}, NUMBERS)
    expected = clauses(one.merge(given)).execute()
    assert in_parts(many, given, clauses, parts)[0].clauses == expected.clauses
    assert rows(many) == rows(one)


# --- beside others, and what is refused -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_token_makes_it_once_and_an_earlier_write_is_waited_for() -> None:
    table = filled(make())
    done, _ = in_parts(table, SOURCE, upserting, token=("job", 1))
    again, given = in_parts(table, SOURCE, upserting, token=("job", 1))
    assert (again.repeated, again.version, again.updated, given) == (True, done.version, 0, [])
    other = Table("m", opening=Opening(store=table._store, environment=SimulatedEnvironment(stem="other")))
    with other.transaction() as tx:
        tx.upsert(frame(("k4", "us", 400, 0.0)))
        with pytest.raises(EarlierWritePendingError):
            in_parts(table, SOURCE, upserting, wait=timedelta(0))
    in_parts(table, SOURCE, lambda merge: merge.when_matched_update({"n": "target.n + 1"}))
    assert ("k4", "us", 401, 0.0) in rows(table)


REFUSED: dict[str, tuple[str, pa.Table, Clauses]] = {
    "no clause": ("add a clause", SOURCE, lambda merge: merge),
    "no such column": ("no such columns", SOURCE, lambda merge: merge.when_matched_update({"m": "1"})),
    "several rows": ("several rows of the source match", pa.concat_tables([SOURCE] * 2), upserting),
    "a row inserted twice": (
        "inserted twice",
        pa.concat_tables([SOURCE.slice(10)] * 2),
        lambda merge: merge.when_not_matched_insert_all(),
    ),
    "no key": (
        "cannot be null",
        pa.concat_tables([SOURCE, frame((None, "eu", 1, 1.0))]),
        lambda merge: merge.when_not_matched_insert_all(),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_and_nothing_changes(case: str) -> None:
    said, source, clauses = REFUSED[case]
    table = filled(make())
    before = rows(table)
    with pytest.raises(CrdtMorError, match=said):
        in_parts(table, source, clauses)
    assert (rows(table), table.inspect.pending().num_rows) == (before, 0)


def test_rows_without_a_key_meet_none() -> None:
    table = filled(make())
    source = pa.concat_tables([SOURCE, frame((None, "eu", 1, 1.0), ("", "eu", 1, 1.0))])
    done, _ = in_parts(table, source, lambda merge: merge.when_matched_update({"n": "0"}))
    assert done.updated == 8


def test_word_that_a_process_leaves_for_the_driver_is_sealed(places: Places) -> None:
    table = filled(places("t").create(schema=SCHEMA, key="id"))

    def elsewhere(parts: Parts, spread: MergeSpread) -> list[PartDone]:
        with pytest.raises(StorageUnavailableError, match="is gone"):
            spread.receive_outcomes()
        sent(spread).send_outcomes(b"done")
        assert spread.receive_outcomes() == b"done"
        store = store_of(table)
        (path,) = [stat.path for stat in store.list(STAGED) if stat.path.endswith("-told")]
        found = store.read(path)
        assert found is not None
        store.delete(path)
        store.put(path, found[:-4] + b"evil")
        with pytest.raises(StorageUnavailableError, match="forged"):
            spread.receive_outcomes()
        return [part.execute(SOURCE.slice(0, 0)) for part in parts]

    table.merge(SCHEMA, parts=2, execute_parts=elsewhere).when_matched_delete().execute()
    assert leftovers(places("t")) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"parts": 2}, "pass parts only with execute_parts"), ({"execute_parts": list}, "maximum number of parts")],
)
def test_merge_parts_without_execute_parts_or_the_reverse_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        make().merge(SCHEMA, **arguments)
    with pytest.raises(InvalidInputError, match=said):
        make().move(SCHEMA, partition={"land": "FR"}, **arguments)


def test_a_merge_has_a_part_at_least() -> None:
    with pytest.raises(InvalidInputError, match="parts must be at least 1"):
        in_parts(make(), SOURCE, upserting, parts=0)

"""`Table.merge`: what becomes of pairs of rows, what is refused, and that it is exact beside other writers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor import InvalidInputError, MergeInto, Opening, Table
from crdt_mor.api.merge_into import Merged
from crdt_mor.errors import PartitionNotInKeyWarning, SchemaMismatchError
from crdt_mor.ground.deadlines import current_operation
from crdt_mor.payloads import Counter, PartialUpdate
from crdt_mor.store import MemoryStore
from crdt_mor.testing.clock import SimulatedEnvironment
from crdt_mor.write.merge_into_plan import MergePlan
from tests.inside import store_of
from tests.table.helpers import SCHEMA, frame
from tests.tiers import slow

NUMBERS = pa.schema([("id", pa.string()), ("n", pa.int64())])


def make(schema: pa.Schema = NUMBERS, **settings: Any) -> Table:
    return Table.create(
        "memory", schema, **{"opening": Opening(store=MemoryStore()), "key": "id", "buckets": 2, **settings}
    )


def numbers(**values: int | None) -> pa.Table:
    return pa.table({"id": list(values), "n": list(values.values())}, schema=NUMBERS)


def shown(table: Table) -> dict[str, Any]:
    """The number of each key."""
    return dict(table.scan(columns=["id", "n"]).to_polars().sort("id").rows())


def filled(**settings: Any) -> Table:
    table = make(**settings)
    table.upsert(numbers(a=1, b=2, c=3))
    return table


# --- what becomes of rows ---------------------------------------------------------------------------------------------


def test_an_upsert_as_a_merge() -> None:
    table = filled()
    done = table.merge(numbers(b=20, d=40)).when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.updated, done.deleted, done.inserted, done.clauses) == (1, 0, 1, (1, 1))
    assert done.version == table.version
    assert shown(table) == {"a": 1, "b": 20, "c": 3, "d": 40}


def test_of_clauses_of_one_kind_the_first_counts_that_holds() -> None:
    table = filled()
    merge = table.merge(numbers(a=0, b=5, c=9, d=0, e=7), on="target.id = source.id")
    merge = merge.when_matched_delete("source.n = 0").when_matched_update({"n": "target.n + source.n"}, "source.n < 9")
    merge = merge.when_not_matched_insert({"id": "source.id || '!'", "n": 1}, "source.n > 0")
    done = merge.execute()
    assert done.clauses == (1, 1, 1)
    assert shown(table) == {"b": 7, "c": 3, "e!": 1}


def test_merge_clauses_by_other_names_of_their_arguments_do_the_same() -> None:
    table = filled()
    merging = table.merge(numbers(a=5, b=9, d=7), on="id").when_matched_delete(condition="source.n > 8")
    merging = merging.when_matched_update(set={"n": "source.n"}, condition="source.n > 4")
    merged = merging.when_not_matched_insert(values={"id": "source.id", "n": "0"}).execute()
    assert (merged.clauses, shown(table)) == ((1, 1, 1), {"a": 5, "c": 3, "d": 0})


def test_merge_clause_with_an_argument_given_twice_is_refused() -> None:
    merging = filled().merge(numbers(a=5), on="id")
    with pytest.raises(InvalidInputError, match="as predicate or as condition, not as both"):
        merging.when_matched_delete("source.n > 8", condition="source.n > 8")
    with pytest.raises(InvalidInputError, match="pass the values of a clause once"):
        merging.when_matched_update({"n": "0"}, set={"n": "0"})
    with pytest.raises(InvalidInputError, match="pass the values of a clause once"):
        merging.when_matched_update()


def test_names_of_methods_in_delta_spark_lead_to_the_method() -> None:
    merging = filled().merge(numbers(a=5))
    with pytest.raises(AttributeError, match=r"no attribute 'whenever'$"):
        getattr(merging, "whenever")  # noqa: B009
    for name in ("whenMatchedUpdate", "whenNotMatchedInsertAll", "whenNotMatchedBySourceDelete"):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'\. Use when_\w+\(\)$"):
            getattr(merging, name)


def test_rows_that_no_row_of_the_source_meets() -> None:
    table = filled()
    merge = table.merge(numbers(a=1)).when_not_matched_by_source_delete("target.n > 2")
    done = merge.when_not_matched_by_source_update({"n": "-target.n"}).execute()
    assert (done.deleted, done.updated) == (1, 1)
    assert shown(table) == {"a": 1, "b": -2}


def test_delete_by_several_rows_of_the_source_deletes_the_row_once() -> None:
    table = filled()
    source = pa.concat_tables([numbers(a=1, b=2), numbers(a=9)])
    later = "source.n > target.n"
    done = table.merge(source).when_matched_delete(later).when_matched_delete("source.id = 'a'").execute()
    assert (done.deleted, done.clauses) == (1, (1, 0))
    assert shown(table) == {"b": 2, "c": 3}
    assert table.merge(pa.concat_tables([source] * 3)).when_matched_delete().execute().clauses == (1,)
    assert shown(table) == {"c": 3}


def test_row_that_is_deleted_and_updated_by_several_rows_of_the_source_is_refused() -> None:
    table = filled()
    source = pa.concat_tables([numbers(a=1), numbers(a=9)])
    merge = table.merge(source).when_matched_delete("source.n > 5").when_matched_update_all()
    with pytest.raises(InvalidInputError, match="several rows of the source match"):
        merge.execute()
    assert shown(table) == {"a": 1, "b": 2, "c": 3}


def test_clauses_take_expressions_of_polars_and_other_aliases() -> None:
    table = filled()
    merge = table.merge(numbers(a=5, z=1), on=["id"], source_alias="s", target_alias="t")
    more = pl.col("s").struct.field("n") + pl.col("t").struct.field("n")
    done = merge.when_matched_update({"n": more}, pl.col("t").struct.field("n") > 0).execute()
    assert done.updated == 1
    assert shown(table) == {"a": 6, "b": 2, "c": 3}


def test_null_meets_nothing_and_null_conditions_do_not_hold() -> None:
    table = make(SCHEMA)
    table.upsert(frame(("a", None, 1), ("b", "eu", None)))
    source = pa.table({"region": [None, "eu"], "n": pa.array([None, 5], pa.int64())})
    done = table.merge(source, on="region").when_matched_update({"n": "source.n"}, "target.n > 0").execute()
    assert done.updated == 0
    assert table.merge(source, on="region").when_matched_update({"n": "source.n"}).execute().updated == 1
    assert shown(table) == {"a": 1, "b": 5}


def test_a_join_on_other_columns_changes_each_row_that_is_met() -> None:
    table = make(SCHEMA)
    table.upsert(frame(("a", "eu", 1), ("b", "eu", 2), ("c", "us", 3)))
    source = pa.table({"area": ["eu"], "price": [7.0]})
    done = (
        table.merge(source, on="source.area = target.region").when_matched_update({"price": "source.price"}).execute()
    )
    assert done.updated == 2
    assert table.scan(columns=["id"], filter="price = 7").to_polars()["id"].sort().to_list() == ["a", "b"]


def test_a_decimal_of_sql_is_a_number_of_a_float_column_and_one_of_a_column_is_not() -> None:
    schema = pa.schema(
        [("id", pa.string()), ("price", pa.float64()), ("share", pa.float32()), ("sum", pa.decimal128(9, 2))]
    )
    table = make(schema)
    table.upsert(pa.table({"id": ["a"], "price": [1.0], "share": [1.0], "sum": [Decimal(3)]}, schema=schema))
    source = pa.table({"id": ["a", "b"], "x": [1, 2], "y": [4, 5]})
    some = "CASE WHEN source.x > 1 THEN 9.5 ELSE source.y END"
    of_sum = "CASE WHEN target.sum > 2.5 THEN 0.5 ELSE source.x * 1.5 END"
    merge = table.merge(source).when_matched_update({"price": some, "share": of_sum})
    merge.when_not_matched_insert({"id": "source.id", "price": some, "share": "source.x + 0.25"}).execute()
    assert sorted(table.to_polars().rows()) == [("a", 4.0, 0.5, Decimal(3)), ("b", 9.5, 2.25, None)]
    for lossy in ("target.sum", "CASE WHEN source.x > 1 THEN 9.5 ELSE target.sum END", "target.sum + 9.5"):
        with pytest.raises(SchemaMismatchError, match="column=price"):
            table.merge(source).when_matched_update({"price": lossy}).execute()


def test_columns_that_an_insert_leaves_out_are_null() -> None:
    table = make(SCHEMA)
    table.merge(pa.table({"id": ["a"], "n": [1]})).when_not_matched_insert_all().execute()
    assert table.scan().to_arrow().to_pylist() == [{"id": "a", "region": None, "n": 1, "price": None}]


def test_a_column_of_the_source_may_be_called_as_the_source_is() -> None:
    schema = pa.schema([("source", pa.string()), ("target", pa.int64())])
    table = make(schema, key="source")
    table.upsert(pa.table({"source": ["a"], "target": [1]}))
    rows = pa.table({"source": ["a", "b"], "target": [2, 3]})
    table.merge(rows).when_matched_update(
        {"target": "source.target + target.target"}
    ).when_not_matched_insert_all().execute()
    assert table.scan().to_polars().sort("source").rows() == [("a", 3), ("b", 3)]


def test_a_token_makes_it_once() -> None:
    table = filled()

    def run() -> Any:
        merge = table.merge(numbers(a=1), token=("job", 1), commit_info={"message": "more"})
        return merge.when_matched_update({"n": "target.n + 1"}).execute()

    first, again = run(), run()
    assert (again.repeated, again.version, again.updated) == (True, first.version, 0)
    assert shown(table)["a"] == 2


def test_merged_covered_is_that_of_the_commit_which_the_token_names() -> None:
    table = filled()
    overwritten = table.overwrite(numbers(a=1), token=("job", 1))
    merge = table.merge(numbers(a=5)).when_matched_update({"n": "source.n"})
    assert merge.execute().covered is None
    again = table.merge(numbers(a=1), token=("job", 1)).when_matched_update({"n": "source.n"}).execute()
    assert (again.repeated, again.version, again.covered) == (True, overwritten.version, ("*",))
    assert shown(table) == {"a": 5}


# --- tables of each kind ----------------------------------------------------------------------------------------------


def test_counters_get_the_difference_and_partial_updates_what_is_set() -> None:
    table = make(SCHEMA, merge={"n": Counter()})
    table.upsert(frame(("a", "eu", 1, 1.0)))
    table.merge(
        frame(("a", "us", 5, 2.0), ("b", "us", 7, 2.0))
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    assert table.scan().to_polars().sort("id").rows() == [("a", "us", 5, 2.0), ("b", "us", 7, 2.0)]
    partial = make(SCHEMA, merge=PartialUpdate())
    partial.upsert(frame(("a", "eu", 1, 1.0)))
    partial.merge(
        pa.table({"id": ["a", "b"], "n": [2, 3]})
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    assert partial.scan().to_polars().sort("id").rows() == [("a", "eu", 2, 1.0), ("b", None, 3, None)]


def test_a_lower_ordering_value_is_refused_unless_a_condition_leaves_it_out() -> None:
    table = make(SCHEMA, ordering="n")
    table.upsert(frame(("a", "eu", 5, 1.0), ("b", "eu", 5, 1.0)))
    late = frame(("a", "us", 4, 2.0), ("b", "us", 6, 2.0))
    with pytest.raises(InvalidInputError, match=r"would be lost.*'id': 'a'"):
        table.merge(late).when_matched_update_all().execute()
    assert table.merge(late).when_matched_update_all("source.n > target.n").execute().updated == 1
    assert table.merge(pa.table({"id": ["a"]})).when_matched_delete().execute().deleted == 1
    assert table.scan().to_polars().rows() == [("b", "us", 6, 2.0)]


@pytest.mark.costly
@pytest.mark.parametrize("ordering", [None, "n"])
def test_a_row_whose_partition_changes_moves(ordering: str | None) -> None:
    table = make(SCHEMA, partition_by="region", ordering=ordering)
    table.upsert(frame(("a", "eu", 1, 1.0), ("b", "eu", 1, 1.0)))
    rows = frame(("a", "us", 2, 2.0), ("b", "eu", 2, 2.0), ("c", "us", 2, 2.0))
    done = table.merge(rows, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert (done.updated, done.inserted) == (2, 1)
    assert table.scan().to_polars().sort("id").rows() == [("a", "us", 2, 2.0), ("b", "eu", 2, 2.0), ("c", "us", 2, 2.0)]
    assert table.merge(rows, on="id").when_matched_update({"region": "'asia'"}).execute().updated == 3
    assert table.scan(columns=["region"]).to_polars()["region"].to_list() == ["asia"] * 3


def test_rows_of_partial_updates_move_with_all_of_their_columns() -> None:
    table = make(SCHEMA, partition_by="region", merge=PartialUpdate())
    table.upsert(frame(("a", "eu", 1, 1.0)))
    source = frame(("a", "us", 2)).drop_columns("price")
    assert table.merge(source, on="id").when_matched_update_all().execute().updated == 1
    assert table.scan().to_polars().rows() == [("a", "us", 2, 1.0)]


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[str, Callable[[Table], MergeInto]]] = {
    "no clause": ("add a clause", lambda t: t.merge(numbers(a=1))),
    "no such column": ("lacks columns", lambda t: t.merge(numbers(a=1), on="x").when_matched_delete()),
    "no such column of the table": (
        "lacks columns of `on`",
        lambda t: t.merge(pa.table({"x": ["a"]}), on="x").when_matched_delete(),
    ),
    "another condition": ("compare columns for equality", lambda t: t.merge(numbers(a=1), on="source.n > target.n")),
    "one name for both": ("two different names", lambda t: t.merge(numbers(a=1), source_alias="target")),
    "several rows": (
        "several rows of the source match",
        lambda t: t.merge(pa.concat_tables([numbers(a=1)] * 2)).when_matched_update_all(),
    ),
    "a row inserted twice": (
        "twice",
        lambda t: t.merge(pa.concat_tables([numbers(z=1)] * 2)).when_not_matched_insert_all(),
    ),
    "an existing row": (
        "has the key of an existing row",
        lambda t: t.merge(numbers(a=9), on="n").when_not_matched_insert_all(),
    ),
    "no key": ("give the key", lambda t: t.merge(numbers(z=1)).when_not_matched_insert({"n": 1})),
    "another key": ("cannot change a key", lambda t: t.merge(numbers(a=1)).when_matched_update({"id": "'z'"})),
    "the other row": ("known=", lambda t: t.merge(numbers(z=1)).when_not_matched_insert({"id": "target.id"})),
    "a column without its row": ("known=", lambda t: t.merge(numbers(a=1)).when_matched_update({"n": "n"})),
    "no such field": ("no such field", lambda t: t.merge(numbers(a=1)).when_matched_update({"n": "source.m"})),
    "nothing set": ("name the columns to set", lambda t: t.merge(numbers(a=1)).when_matched_update({})),
    "no condition": ("true or false", lambda t: t.merge(numbers(a=1)).when_matched_delete("source.n + 1")),
    "an unknown column": (
        "columns that the table lacks",
        lambda t: t.merge(numbers(a=1).append_column("m", pa.array([1]))).when_matched_update_all(),
    ),
    "a column of one of two rows": (
        r"'n' is a field of 'source' and of 'target': write source\.n or target\.n in SQL, or pl\.col\('source'\)\.st",
        lambda t: t.merge(numbers(a=1)).when_matched_update({"n": "n + 1"}),
    ),
    "a column of one of two rows, in a condition": (
        r"write source\.n or target\.n in SQL",
        lambda t: t.merge(numbers(a=1)).when_matched_delete("n > 1"),
    ),
    "a column of polars": (
        r"'target\.n' is a field of 'target': write .* or pl\.col\('target'\)\.struct\.field\('n'\) in polars",
        lambda t: t.merge(numbers(a=1)).when_matched_delete(pl.col("target.n") > 1),
    ),
    "rows by other names": (
        "names other rows than target and source: write these, or pass source_alias= and target_alias=",
        lambda t: t.merge(numbers(a=1), on="t.id = s.id"),
    ),
    "values as text": (
        "pass the values of a clause as a dict, and its condition second",
        lambda t: t.merge(numbers(a=1)).when_matched_update("source.n > 0", {"n": "1"}),  # type: ignore[arg-type]
    ),
    "an object as a value": (
        "pass SQL text, a polars expression or a value, and no object. column=n",
        lambda t: t.merge(numbers(a=1)).when_matched_update({"n": object()}),
    ),
    "an object as a condition": (
        "pass SQL text or a polars expression, and no object. condition=",
        lambda t: t.merge(numbers(a=1)).when_matched_delete(object()),  # type: ignore[arg-type]
    ),
    "an aggregate": ("element-wise", lambda t: t.merge(numbers(a=1)).when_matched_update({"n": "sum(source.n)"})),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_and_nothing_changes(case: str) -> None:
    said, merge = REFUSED[case]
    table = filled()
    with pytest.raises((InvalidInputError, SchemaMismatchError), match=said):
        merge(table).execute()
    assert shown(table) == {"a": 1, "b": 2, "c": 3}
    assert table.inspect.pending().num_rows == 0


LATE = "Zeit @"
CLAUSES: dict[str, tuple[Callable[[MergeInto], MergeInto], str]] = {
    "all": (lambda m: m.when_matched_update_all(), r"update would be lost.* limit the clause to later rows.* '%s'\."),
    "set": (lambda m: m.when_matched_update({LATE: f's."{LATE}"'}), r"a value that is not lower, or limit.* '%s'\."),
    "a row of no source": (
        lambda m: m.when_not_matched_by_source_update({LATE: "1"}), r"set a value that is not lower\. column"),
}  # fmt: skip


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_row_that_comes_late_is_refused_with_the_condition_that_leaves_it_out(clause: str) -> None:
    rows = pa.table({"id": ["a", "b"], LATE: [5, 5]})
    table = Table.create(
        "memory", rows.schema, key="id", ordering=LATE, buckets=1, opening=Opening(store=MemoryStore())
    )
    table.upsert(rows)
    late = table.merge(pa.table({"id": ["a"], LATE: [4]}), source_alias="s", target_alias="t")
    condition = f's."{LATE}" > t."{LATE}"'
    add, said = CLAUSES[clause]
    with pytest.raises(InvalidInputError, match=said.replace("%s", condition)):
        add(late).execute()
    assert late.when_matched_update_all(condition).execute().updated == 0


def test_a_block_of_its_own_is_serializable() -> None:
    table = filled()
    with table.transaction() as tx, pytest.raises(InvalidInputError, match="isolation="):
        tx.merge(numbers(a=1))
    with table.transaction(isolation="serializable") as tx:
        done = tx.merge(numbers(a=1)).when_matched_delete().execute()
        tx.upsert(numbers(z=1))
    assert (done.version, done.deleted) == (0, 1)
    assert shown(table) == {"b": 2, "c": 3, "z": 1}


# --- beside other writers ---------------------------------------------------------------------------------------------


def test_it_meets_the_rows_of_writes_that_began_before_it() -> None:
    table = filled()
    straggler = Table("memory", opening=Opening(store=store_of(table))).transaction()
    straggler.__enter__()
    straggler.upsert(numbers(a=100, d=4))

    class Waiting(SimulatedEnvironment):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            Table("memory", opening=Opening(store=store_of(table))).upsert(numbers(b=50))  # comes after it
            straggler.__exit__(None, None, None)

    own = Table("memory", opening=Opening(store=store_of(table), environment=Waiting()))
    merge = own.merge(numbers(a=1, b=1, d=1, e=1)).when_matched_update({"n": "target.n + source.n"})
    done = merge.when_not_matched_insert_all().execute()
    assert (done.updated, done.inserted) == (3, 1)
    assert shown(table) == {"a": 101, "b": 50, "c": 3, "d": 5, "e": 1}


# --- against plain Python ---------------------------------------------------------------------------------------------

ROWS = st.dictionaries(st.sampled_from("abcdef"), st.integers(-3, 3), max_size=5)


@pytest.mark.slow
@pytest.mark.parametrize("examples", [8, slow(50)])
def test_it_is_what_a_loop_over_dictionaries_is(examples: int) -> None:
    settings(max_examples=examples)(given(ROWS, ROWS, st.integers(-2, 2), st.booleans())(check_a_merge))()


def check_a_merge(target: dict[str, int], source: dict[str, int], least: int, compacted: bool) -> None:
    table = make()
    table.upsert(numbers(**target))
    if compacted and target:
        table.maintenance.compact()
    merge = table.merge(numbers(**source)).when_matched_delete(f"source.n > {least} AND target.n > {least}")
    merge = merge.when_matched_update({"n": "source.n * 10"}, "source.n <> target.n")
    merge = merge.when_not_matched_insert_all(f"source.n >= {least}")
    merge.when_not_matched_by_source_update({"n": "target.n + 1"}, f"target.n < {least}").execute()
    expected = {}
    for key, n in target.items():
        if key not in source:
            expected[key] = n + 1 if n < least else n
        elif not (source[key] > least and n > least):
            expected[key] = source[key] * 10 if source[key] != n else n
    expected |= {key: n for key, n in source.items() if key not in target and n >= least}
    assert shown(table) == expected


# --- what would be lost -----------------------------------------------------------------------------------------------

PLACES = pa.schema([("id", pa.string()), ("place", pa.string()), ("n", pa.int64())])


def in_two_places(**settings: Any) -> Table:
    """A table in which the key "a" has a row in two partitions, and "b" one."""
    table = make(PLACES, partition_by="place", **settings)
    table.upsert(pa.table({"id": ["a", "a", "b"], "place": ["x", "y", "x"], "n": [1, 2, 3]}, schema=PLACES))
    return table


@pytest.mark.parametrize(
    ("place", "on", "updates"),
    [
        ("y", ["id"], {"place": "source.place"}),  # onto a row that is changed as well
        ("z", ["id"], {"place": "source.place"}),  # both to one place
        ("x", ["id", "place"], {"place": "'y'"}),  # onto a row that no row of the source meets
    ],
)
def test_a_row_that_moves_onto_another_one_is_refused(place: str, on: list[str], updates: dict[str, str]) -> None:
    table = in_two_places()
    before = table.scan().to_polars().sort("id", "place").rows()
    source = pa.table({"id": ["a"], "place": [place]})
    with pytest.raises(InvalidInputError, match=r"another row has the same key.* key='a' partition='place=[yz]'"):
        table.merge(source, on).when_matched_update(updates).execute()
    assert table.scan().to_polars().sort("id", "place").rows() == before


def test_rows_may_change_places_and_move_to_where_one_is_deleted() -> None:
    table = in_two_places()
    source = pa.table({"id": ["a", "a"], "place": ["x", "y"]})
    swapped = {"place": "CASE WHEN target.place = 'x' THEN 'y' ELSE 'x' END"}
    table.merge(source, ["id", "place"]).when_matched_update(swapped).execute()
    assert table.scan().to_polars().sort("n").rows() == [("a", "y", 1), ("a", "x", 2), ("b", "x", 3)]
    moving = table.merge(source.slice(0, 1), "id").when_matched_delete("target.place = source.place")
    moving.when_matched_update({"place": "source.place"}).execute()
    assert table.scan().to_polars().sort("n").rows() == [("a", "x", 1), ("b", "x", 3)]


def test_a_row_does_not_move_with_a_lower_ordering_value() -> None:
    table = in_two_places(ordering="n")
    merge = table.merge(pa.table({"id": ["b"], "place": ["z"], "n": [2]}), "id").when_matched_update_all()
    with pytest.raises(InvalidInputError, match="lower ordering value"):
        merge.execute()


def test_a_key_that_an_insert_makes_up_may_be_there() -> None:
    table = filled()
    merge = table.merge(numbers(x=7)).when_not_matched_insert({"id": "'a'", "n": "source.n"})
    with pytest.raises(InvalidInputError, match="has the key of an existing row"):
        merge.execute()
    assert shown(table) == {"a": 1, "b": 2, "c": 3}


LANDS = pa.schema([("id", pa.string()), ("land", pa.string()), ("n", pa.int64())])


def lands(*rows: tuple[str, str | None, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(LANDS.names, row, strict=True)) for row in rows], LANDS)


def in_lands(*rows: tuple[str, str | None, int]) -> Table:
    with pytest.warns(PartitionNotInKeyWarning):
        table = make(LANDS, partition_by="land")
    table.upsert(lands(*rows))
    return table


def all_of(table: Table) -> list[tuple[object, ...]]:
    return sorted(table.scan(columns=LANDS.names).to_polars().rows(), key=str)


def upserted(table: Table, source: pa.Table, on: Any) -> MergeInto:
    return table.merge(source, on=on).when_matched_update_all().when_not_matched_insert_all()


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_key_in_another_partition_is_another_row_where_rows_meet_by_both(in_parts: bool) -> None:
    table, source = in_lands(("a", "DE", 1), ("b", "DE", 2)), lands(("a", "FR", 5), ("b", "DE", 6), ("c", "FR", 7))
    merge: Any = upserted(table, source, ["id", "land"])
    if in_parts:
        merge = table.merge(
            source.schema, on=["id", "land"], parts=1, execute_parts=lambda parts, _: [p.execute(source) for p in parts]
        )
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
    assert merge.execute().clauses == (1, 2)
    assert all_of(table) == [("a", "DE", 1), ("a", "FR", 5), ("b", "DE", 6), ("c", "FR", 7)]


def test_a_key_in_another_partition_is_the_same_row_where_rows_meet_by_the_key() -> None:
    table = in_lands(("a", "DE", 1))
    assert upserted(table, lands(("a", "FR", 5)), "id").execute().clauses == (1, 0)
    assert all_of(table) == [("a", "FR", 5)]


@pytest.mark.parametrize(
    ("source", "on", "said"),
    [
        (lands(("a", "FR", 5)), "n", r"on=\['id'\], to move the row.*on=\['land', 'id'\].*partitions=.*FR.*DE"),
        (lands(("a", "FR", 5)), ["land", "n"], r"on=\['id'\], to move the row.*on=\['land', 'id'\]"),
        (lands(("a", "DE", 5)), ["id", "land", "n"], r"on=\['id'\], or choose other rows"),
        (lands(("b", None, 5)), ["id", "land"], r"on=\['id'\], or choose other rows"),
    ],
)
def test_where_a_merge_does_not_say_what_a_key_in_another_partition_is_it_says_how(
    source: pa.Table, on: Any, said: str
) -> None:
    table = in_lands(("a", "DE", 1), ("b", None, 2))
    with pytest.raises(InvalidInputError, match=said):
        upserted(table, source, on).execute()
    assert all_of(table) == [("a", "DE", 1), ("b", None, 2)]


def test_a_row_does_not_move_to_where_another_one_is_inserted() -> None:
    table = in_lands(("a", "DE", 1))
    merge = table.merge(lands(("a", "DE", 5), ("a", "FR", 6)), on=["id", "land"])
    merge = merge.when_matched_update({"land": "'FR'"}).when_not_matched_insert_all()
    with pytest.raises(InvalidInputError, match="one would be lost"):
        merge.execute()
    assert all_of(table) == [("a", "DE", 1)]


def test_two_rows_that_would_be_inserted_under_one_key_are_named() -> None:
    rows = pa.table({"id": ["z", "z"], "n": [1, 2]})
    with pytest.raises(InvalidInputError, match=r"would be inserted twice.* by an aggregate.* key='z'"):
        filled().merge(rows).when_not_matched_insert_all().execute()


# --- types and names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string_view(), "t"),
        (pa.struct([("t", pa.binary_view())]), {"t": b"t"}),
        (pa.list_view(pa.int64()), [1, 2]),
        (pa.decimal256(38, 0), Decimal(12)),
        (pa.timestamp("us", "+05:30"), datetime(2026, 1, 31, tzinfo=UTC)),
        (pa.list_(pa.timestamp("us", "+05:30")), [datetime(2026, 1, 31, tzinfo=UTC)]),
        (pa.date64(), date(2026, 1, 31)),
    ],
    ids=str,
)
def test_sources_and_tables_have_types_that_polars_has_not(kind: pa.DataType, value: object) -> None:
    schema = pa.schema([("id", pa.string()), ("v", kind), ("n", pa.int64())])
    table = make(schema)
    old = pa.table({"id": ["a"], "v": pa.array([None], kind), "n": [1]}, schema=schema)
    new = pa.table({"id": ["a", "b"], "v": pa.array([value] * 2, kind), "n": [2, 3]}, schema=schema)
    table.upsert(old)
    table.merge(new).when_matched_update_all().when_not_matched_insert_all().execute()
    table.merge(table.scan()).when_matched_update({"n": "target.n + 1", "v": "target.v"}).execute()
    found = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: str(row["id"]))
    assert found == [{"id": "a", "v": value, "n": 3}, {"id": "b", "v": value, "n": 4}]


def test_null_meets_nothing_of_a_column_without_nulls() -> None:
    table = make(pa.schema([pa.field("id", pa.string(), nullable=False), ("n", pa.int64())]))
    table.upsert(numbers(a=1))
    source = pa.table({"id": ["a", None], "n": [5, 6]})
    assert table.merge(source).when_matched_update({"n": "source.n"}).execute().updated == 1
    assert shown(table) == {"a": 5}


@pytest.mark.parametrize(
    ("merge", "said"),
    [
        (lambda table: table.merge(numbers(a=1), on=[]), "on='id'"),
        (lambda table: table.merge(numbers(a=1), on=pl.col("id")), "on='id'"),
        (
            lambda table: table.merge(numbers(a=1), on="target.m = source.id").when_matched_delete(),
            r"on=.*known=\['id'",
        ),
        (lambda table: table.merge(numbers(a=1), source_alias="_crdt_row"), "begin with a letter"),
        (lambda table: table.merge(pa.table([["a"], [1], [2]], names=["id", "n", "n"])), r"repeated=\['n'\]"),
    ],
)
def test_what_a_merge_cannot_tell_apart_is_named(merge: Callable[[Table], MergeInto], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        merge(filled()).execute()


def test_a_merge_is_one_operation_in_which_a_dead_store_is_waited_for_once() -> None:
    merge = filled().merge(numbers(a=1)).when_matched_delete()
    run, operations = merge._run, list[object]()

    def noted(plan: MergePlan) -> Merged:
        operations.extend((current_operation(), current_operation()))
        return run(plan)

    assert replace(merge, _run=noted).execute().deleted == 1
    assert operations[0] is operations[1]


def test_integers_of_a_merge_do_not_wrap_around() -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int8())])
    table = make(schema)
    table.upsert(pa.table({"id": ["a"], "n": [100]}, schema=schema))
    merge = table.merge(pa.table({"id": ["a"], "n": pa.array([100], pa.int8())}))
    with pytest.raises(SchemaMismatchError, match=r"column=n row=0 value=200"):
        merge.when_matched_update({"n": "source.n + target.n"}).execute()
    merge.when_matched_update({"n": "0"}, "source.n + target.n = 200").execute()
    assert shown(table) == {"a": 0}

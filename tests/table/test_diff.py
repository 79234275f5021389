"""`table.diff(other)`: in which rows two tables differ, whatever their partitions, buckets, layouts and moments."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.api import diff
from crdt_mor.results import Differences
from crdt_mor.store import MemoryStore
from tests.inside import session_of, store_of
from tests.simulated import Simulated

pytestmark = pytest.mark.filterwarnings("ignore::crdt_mor.errors.PartitionNotInKeyWarning")

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("n", pa.float64()), ("l", pa.list_(pa.int64()))])
Row = tuple[int, str, float | None, list[int] | None]
SHAPES: list[dict[str, Any]] = [
    {"buckets": 2},
    {"buckets": 4},
    {"buckets": 3},
    {"buckets": 2, "partition_by": "p"},
    {"buckets": 1, "partition_by": "p", "hive_style": False},
]


def created(*, schema: pa.Schema = SCHEMA, **settings: Any) -> Table:
    return Table.create("t", schema, key="id", opening=Opening(store=MemoryStore()), **settings)


def written(table: Table, rows: list[Row], *, compacted: int = 0) -> Table:
    """The rows in two commits, of which a compaction may come after the first, or after both."""
    for number, half in enumerate((rows[::2], rows[1::2])):
        if half:
            ids, ps, ns, ls = zip(*half, strict=True)
            columns = [pl.Series("id", ids, pl.Int64), pl.Series("p", ps, pl.String), pl.Series("n", ns, pl.Float64)]
            table.upsert(pl.DataFrame([*columns, pl.Series("l", ls, pl.List(pl.Int64))]))
        if number < compacted:
            table.maintenance.compact()
    return table


def expected(one: Table, two: Table, *, by_partition: bool) -> tuple[Counter[Any], Counter[Any], Counter[Any]]:
    """The keys only here, only there, and changed, of a plain comparison of all rows, by key."""
    sides: list[dict[Any, Counter[str]]] = [{}, {}]
    for side, table in zip(sides, (one, two), strict=True):
        for row in table.to_polars().rows():
            key = row[:2] if by_partition else row[:1]
            side.setdefault(key, Counter())[repr(row)] += 1
    found: tuple[Counter[Any], Counter[Any], Counter[Any]] = (Counter(), Counter(), Counter())
    for key in sides[0] | sides[1]:
        mine, others = (side.get(key, Counter()) for side in sides)
        here, there = (mine - others).total(), (others - mine).total()
        for kind, number in zip(found, (max(0, here - there), max(0, there - here), min(here, there)), strict=True):
            kind[key] += number
    return found


def check(found: Differences, one: Table, two: Table) -> None:
    by_partition = "p" in found.key
    kinds = expected(one, two, by_partition=by_partition)
    assert (found.here, found.there, found.changed) == tuple(kind.total() for kind in kinds)
    for kind, keys in zip(kinds, (found.keys_here, found.keys_there, found.keys_changed), strict=True):
        assert set(keys) <= set(+kind)
        assert len(keys) == min(diff.KEYS_NAMED, kind.total())
    assert found.is_equal == (not any(kind.total() for kind in kinds))


def check_all_keys(one: Table, two: Table) -> None:
    found, keys = diff.diff_with_keys(
        diff.sealed(session_of(one), None), diff.sealed(session_of(two), None), None, None
    )
    kinds = expected(one, two, by_partition="p" in found.key)
    for name, kind in zip(("here", "there", "changed"), kinds, strict=True):
        assert Counter(row[1:] for row in keys.rows() if row[0] == name) == +kind


rows = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.sampled_from("ab"),
        st.sampled_from([None, 1.0, 2.0, float("nan")]),
        st.sampled_from([None, [1], [1, 2]]),
    ),
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_what_differs_is_what_a_plain_comparison_of_all_rows_says(data: st.DataObject) -> None:
    _compare_drawn(data)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_what_differs_is_what_a_plain_comparison_says_of_many_tables(data: st.DataObject) -> None:
    _compare_drawn(data)


def _compare_drawn(data: st.DataObject) -> None:
    """Two tables that share some rows, of any two shapes, compared in one part and in several."""
    shared, mine, others = data.draw(rows), data.draw(rows), data.draw(rows)
    shapes = data.draw(st.tuples(st.sampled_from(SHAPES), st.sampled_from(SHAPES)))
    compacted = data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    one = written(created(**shapes[0]), shared + mine, compacted=compacted[0])
    two = written(created(**shapes[1]), shared + others, compacted=compacted[1])
    check(one.diff(two), one, two)
    check_all_keys(one, two)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diff, "PART_BYTES", 3000)
        check(one.diff(two), one, two)
        check_all_keys(one, two)


# --- a table and its copy ---------------------------------------------------------------------------------------------


@pytest.fixture
def table(simulated: Simulated) -> Table:
    made = simulated.create(SCHEMA, key="id", buckets=4)
    return written(made, [(number, "a", float(number), [number]) for number in range(20)], compacted=1)


def copied(table: Table) -> tuple[Table, MemoryStore]:
    store = MemoryStore()
    table.copy("c", store=store)
    return Table("c", opening=Opening(store=store, environment=table.environment)), store


def test_of_a_copy_no_row_is_read_where_the_files_are_the_same(table: Table) -> None:
    copy, _ = copied(table)
    found = table.diff(copy)
    assert found.is_equal
    assert (found.rows, found.other_rows, found.same_file_groups) == (0, 0, 4)
    copy.upsert(pl.DataFrame({"id": [3], "p": ["b"], "n": [0.0], "l": [[1]]}))
    found = table.diff(copy)
    assert (found.here, found.there, found.changed, found.keys_changed) == (0, 0, 1, ((3,),))
    assert found.same_file_groups == 3


def test_a_file_with_other_bytes_is_read_row_by_row(table: Table) -> None:
    """Its name and its size are the same, which says nothing of what is in it."""
    copy, store = copied(table)
    other = created(buckets=4)
    written(other, [(number, "a", float(number) + 1, [number]) for number in range(20)])
    other.maintenance.compact()
    paths = {path.rpartition("_")[0]: path for path in (s.path for s in store_of(other).walk("")) if "parquet" in path}
    path = next(s.path for s in store.walk("") if s.path.endswith(".parquet"))
    data = store_of(other).read(paths[path.rpartition("_")[0]])
    assert data is not None
    store.delete(path)
    store.put(path, data)
    found = table.diff(copy)
    assert found.same_file_groups == 3
    assert found.changed


def test_a_copy_is_compared_with_the_moment_that_it_is_of(table: Table) -> None:
    copy, _ = copied(table)
    version = table.version
    table.delete(where="id = 3")
    assert table.diff(copy).there == 1
    assert table.diff(copy, version).is_equal
    assert table.diff(table, version).keys_here == ((3,),)
    assert copy.diff(table.scan(as_of=version)).is_equal


def test_columns_that_one_table_lacks_are_a_difference_and_may_be_left_out() -> None:
    one = created(schema=pa.schema([("id", pa.int64()), ("n", pa.int32()), ("x", pa.string())]))
    two = created(schema=pa.schema([("id", pa.int64()), ("n", pa.int64()), ("y", pa.string())]))
    one.upsert(pa.table({"id": [1], "n": [1], "x": ["a"]}, one.schema))
    two.upsert(pa.table({"id": [1], "n": [1], "y": ["a"]}, two.schema))
    found = one.diff(two)
    assert (found.columns_here, found.columns_there, found.is_equal) == (("x",), ("y",), False)
    assert "columns only here ['x']" in str(found)
    assert one.diff(two, columns="n").is_equal


def test_what_cannot_be_compared_is_refused() -> None:
    one = created()
    other_key = Table.create("o", SCHEMA, key=["id", "p"], opening=Opening(store=MemoryStore()))
    with pytest.raises(InvalidInputError, match="the key columns differ"):
        one.diff(other_key)
    other_type = created(schema=pa.schema([("id", pa.int64()), ("n", pa.string())]))
    with pytest.raises(InvalidInputError, match=r"types of a column in the two tables .* column=n"):
        one.diff(other_type)
    with pytest.raises(InvalidInputError, match="not in both tables"):
        one.diff(created(), columns=["nothing"])
    two = created()
    for some in (two.scan(filter="id > 3"), two.scan(columns=["id"]), two.scan(limit=1), two.scan(meta=True)):
        with pytest.raises(InvalidInputError, match="pass a scan without columns"):
            one.diff(some)
        with pytest.raises(InvalidInputError, match="pass the other table, or its scan, as `before`"):
            one.diff(1, some)  # type: ignore[call-overload]
    with pytest.raises(InvalidInputError, match="pass the other table, or its scan, as `before`"):
        one.diff(two, two)  # type: ignore[call-overload]

"""Updates in place: what they set, what they refuse, and that they compute from exactly what comes before them."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import product
from typing import Any, Literal

import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor import Environment, InvalidInputError, Opening, Table
from crdt_mor.api import commit
from crdt_mor.errors import EarlierWritePendingError, SchemaMismatchError, WriterExpiredError
from crdt_mor.payloads import Any as AnyTrue
from crdt_mor.payloads import (
    Counter,
    Distinct,
    EventList,
    First,
    GrowOnlySet,
    Last,
    LatestBy,
    Max,
    Min,
    MVRegister,
    ORSet,
    PartialUpdate,
)
from crdt_mor.planners.way import CLOSED, Way
from crdt_mor.store import MemoryStore
from crdt_mor.testing.clock import SimulatedEnvironment
from tests.inside import store_of
from tests.table.helpers import SCHEMA, frame
from tests.tiers import one_in

NUMBERS = pa.schema([("id", pa.string()), ("n", pa.int64())])
STRINGS = pa.list_(pa.string())
MOMENT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def numbers(**values: int | None) -> pa.Table:
    return pa.table({"id": list(values), "n": list(values.values())}, schema=NUMBERS)


def shown(table: Table) -> dict[str, Any]:
    """The number of each key."""
    return dict(table.scan(columns=["id", "n"]).to_polars().sort("id").rows())


class Waiting(SimulatedEnvironment):
    """A clock by which something happens in each pause that a process makes."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self.happens = happens

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.happens()


def make(schema: pa.Schema = NUMBERS, **settings: Any) -> Table:
    return Table.create(
        "memory", schema, **{"opening": Opening(store=MemoryStore()), "key": "id", "buckets": 2, **settings}
    )


# --- what is set ------------------------------------------------------------------------------------------------------


def test_columns_are_set_by_sql_expressions_and_values() -> None:
    table = make(SCHEMA)
    table.upsert(frame(("a", "eu", 1, 1.0), ("b", "eu", 2, 2.0), ("c", "us", 3, None)))
    commit = table.update({"price": "price * 2", "region": "'EU'"}, where="region = 'eu'")
    assert (commit.rows, commit.deletes) == (2, 0)
    table.update({"n": pl.col("n") + 10, "price": 7.5}, where=pl.col("id") == "c")
    table.update(set={"n": "CASE WHEN n > 10 AND price < 8 THEN n ELSE 0 END"})
    rows = table.scan().to_polars().sort("id").rows()
    assert rows == [("a", "EU", 0, 2.0), ("b", "EU", 0, 4.0), ("c", "us", 13, 7.5)]
    table.update({"price": None}, where="id = 'a'")
    assert table.scan(filter="price IS NULL", columns=["id"]).to_polars()["id"].to_list() == ["a"]


def test_each_new_value_is_made_of_the_row_as_it_was() -> None:
    table = make(pa.schema([("id", pa.string()), ("x", pa.int64()), ("y", pa.int64())]))
    table.upsert(pa.table({"id": ["a"], "x": [1], "y": [2]}))
    table.update({"x": "y", "y": "x"})
    assert table.scan().to_arrow().to_pylist() == [{"id": "a", "x": 2, "y": 1}]


def test_where_nothing_matches_a_commit_says_so() -> None:
    table = make()
    table.upsert(numbers(a=1))
    assert table.update({"n": "n + 1"}, where="n > 5").rows == 0
    assert shown(table) == {"a": 1}
    assert make().update({"n": "n + 1"}).rows == 0


def test_a_token_makes_it_once() -> None:
    table = make()
    table.upsert(numbers(a=1))
    first = table.update({"n": "n + 1"}, token=("job", 1), commit_info={"message": "more"})
    again = table.update({"n": "n + 1"}, token=("job", 1))
    assert (again.repeated, again.version) == (True, first.version)
    assert shown(table) == {"a": 2}
    assert table.history().to_pylist()[0]["message"] == "more"


def test_a_number_with_a_point_is_a_number_of_the_column() -> None:
    """In SQL 9.5 is a decimal, which no column of floats takes from a frame."""
    columns = pa.schema(
        [("id", pa.string()), ("price", pa.float64()), ("share", pa.float32()), ("sum", pa.decimal128(9, 2))]
    )
    table = make(columns)
    table.upsert(pa.table({"id": ["a"], "price": [1.0], "share": [1.0], "sum": [Decimal(1)]}, schema=columns))
    table.update({"price": "9.5", "share": "CASE WHEN id = 'a' THEN 0.25 ELSE 0.5 END", "sum": "9.5"})
    assert table.to_polars().rows() == [("a", 9.5, 0.25, Decimal("9.50"))]
    table.merge(pa.table({"id": ["a"]})).when_matched_update({"price": "2.5", "share": "-0.5"}).execute()
    assert table.to_polars().rows() == [("a", 2.5, -0.5, Decimal("9.50"))]
    table.update({"price": "CASE WHEN sum > 9.25 THEN 1.5 ELSE 2.5 END"})
    assert table.to_polars().rows() == [("a", 1.5, -0.5, Decimal("9.50"))]
    with pytest.raises(SchemaMismatchError, match="column=price"):
        table.update({"price": "sum"})


def test_dates_decimals_and_dictionaries_keep_their_types() -> None:
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("money", pa.decimal128(12, 2)),
            ("kind", pa.dictionary(pa.int32(), pa.string())),
            ("small", pa.int16()),
        ]
    )
    table = make(schema)
    row = {"id": "a", "day": date(1970, 1, 4), "at": MOMENT, "money": Decimal("1.00"), "kind": "k", "small": 2}
    table.upsert(pa.Table.from_pylist([row], schema))
    table.update(
        {
            "day": "DATE '2026-01-31'",
            "at": pl.col("at") + timedelta(days=1),
            "money": pl.col("money") * 3,
            "kind": "'other'",
            "small": "small + 1",
        }
    )
    scan = table.scan()
    assert scan.schema == schema
    found = scan.to_arrow().to_pylist()[0]
    assert (str(found["day"]), str(found["money"]), found["kind"], found["small"]) == ("2026-01-31", "3.00", "other", 3)
    assert found["at"] == MOMENT + timedelta(days=1)


def test_partial_updates_write_the_set_columns_alone() -> None:
    table = make(SCHEMA, merge=PartialUpdate())
    table.upsert(frame(("a", "eu", 1, 1.0)))
    updating = table.transaction(isolation="serializable")
    with updating:
        table_again(table).upsert(pa.table({"id": ["a"], "price": [5.0], "n": [7]}))  # requested after the update
        updating.update({"region": "region || '!'"})
    assert table.scan().to_arrow().to_pylist() == [{"id": "a", "region": "eu!", "n": 7, "price": 5.0}]


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.update({"n": mor.NULL}, where="id = 'a'"),
        lambda table: table.update({"n": None}, where="id = 'a'"),
        lambda table: table.update({"n": "NULL"}, where="id = 'a'"),
        lambda table: table.update({"n": "CASE WHEN id = 'b' THEN n END"}),
        lambda table: table.merge(numbers(a=9)).when_matched_update({"n": mor.NULL}).execute(),
        lambda table: table.merge(numbers(a=None)).when_matched_update_all().execute(),
        lambda table: table.upsert(numbers(a=None, b=2), nulls="n"),
    ],
)
@pytest.mark.parametrize("nulls", ["keep", "value"])
def test_a_computed_null_is_the_new_value_also_where_upserted_nulls_leave_it(
    change: Callable[[Table], object], nulls: Literal["keep", "value"]
) -> None:
    table = make(merge=PartialUpdate(nulls=nulls))
    table.upsert(numbers(a=1, b=2))
    change(table)
    assert shown(table) == {"a": None, "b": 2}


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "pass a dict as `set`"),
        ("n = 1", "pass a dict as `set`"),
        ({"id": "'z'"}, "cannot change key columns"),
        ({"n": "Total Sales + 1"}, r"special characters in double quotes: '\"order\" \+ 1'\. "),
        ({"m": "1"}, "is 'n' meant by 'm'|no such columns"),
        ({"n": "m + 1"}, "names unknown columns"),
        ({"n": "sum(n)"}, "element-wise"),
        ({"n": pl.col("n").shift()}, "element-wise"),
        ({"n": pl.all()}, "a single expression"),
        ({"n": object()}, "invalid new value"),
        ({"n": "n +"}, "invalid new value"),
        ({"n": "n + 'x'"}, "invalid new value|another type"),
    ],
    ids=[
        "nothing",
        "a text",
        "a key",
        "a name without quotes",
        "no such column",
        "of no such column",
        "an aggregate",
        "a window",
        "several",
        "an object",
        "no SQL",
        "types",
    ],
)
def test_what_cannot_be_set_is_refused_and_nothing_changes(given: Any, said: str) -> None:
    table = make()
    table.upsert(numbers(a=1, b=2))
    with pytest.raises((InvalidInputError, SchemaMismatchError), match=said):
        table.update(given)
    assert shown(table) == {"a": 1, "b": 2}
    assert table.inspect.pending().num_rows == 0


def test_a_value_that_the_column_cannot_hold_is_refused() -> None:
    table = make()
    table.upsert(numbers(a=1, b=2))
    with pytest.raises(SchemaMismatchError, match=r"unchanged.*column=n.*value=.*0.5"):
        table.update({"n": "n * 0.5"})
    assert shown(table) == {"a": 1, "b": 2}


def test_a_filter_that_is_none_is_refused() -> None:
    table = make()
    with pytest.raises(InvalidInputError, match="the filter names unknown columns"):
        table.update({"n": 1}, where="m = 1")
    with pytest.raises(InvalidInputError, match="wait must be a time"):
        table.update({"n": 1}, wait=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string_view(), "t"),
        (pa.decimal256(38, 0), Decimal(12)),
        (pa.timestamp("us", "+05:30"), MOMENT),
        (pa.list_(pa.timestamp("us", "+05:30")), [MOMENT]),
        (pa.date64(), date(2026, 1, 31)),
        (pa.struct([("day", pa.date64())]), {"day": date(2026, 1, 31)}),
    ],
    ids=str,
)
def test_columns_of_types_that_polars_has_not_are_kept_and_set(kind: pa.DataType, value: object) -> None:
    schema = pa.schema([("id", pa.string()), ("v", kind), ("w", kind), ("n", pa.int64())])
    table = make(schema)
    table.upsert(pa.table({"id": ["a"], "v": pa.array([value], kind), "w": pa.nulls(1, kind), "n": [1]}, schema=schema))
    table.update({"n": "n + 1"})
    table.update({"w": "v", "v": "NULL"})
    assert table.scan().to_arrow().to_pylist() == [{"id": "a", "v": None, "w": value, "n": 2}]


@pytest.mark.parametrize(
    ("value", "shown_or_said"),
    [
        ("small * 100", "column=small row=0 value=10000"),
        ("small + small", "column=small row=0 value=200"),
        ("st.x + st.x - 100", 100),
        ("big + 1", "does not fit in an integer of 64 bits"),
        ("CASE WHEN big > 0 THEN 7 ELSE big * 2 END", 7),
        (2**70, "does not fit in an integer of 64 bits"),
        ("free - 2", "column=small row=0 value=-1|does not fit in an integer of 64 bits"),
        ("free + 2", 3),
    ],
    ids=str,
)
def test_integers_do_not_wrap_around(value: object, shown_or_said: int | str) -> None:
    struct = pa.struct([("x", pa.int8())])
    columns = {"small": pa.int8(), "st": struct, "big": pa.int64(), "free": pa.uint64()}
    schema = pa.schema([("id", pa.string()), *columns.items()])
    table = make(schema)
    row = {"id": "a", "small": 100, "st": {"x": 100}, "big": 2**63 - 1, "free": 1}
    table.upsert(pa.Table.from_pylist([row], schema))
    if isinstance(shown_or_said, int):
        table.update({"small": value})
        assert table.scan(columns="small").to_arrow().to_pylist() == [{"small": shown_or_said}]
        return
    with pytest.raises((InvalidInputError, SchemaMismatchError), match=shown_or_said):
        table.update({"small": value})


def test_null_is_a_value_of_every_column() -> None:
    table = make()
    table.upsert(numbers(a=1))
    table.update({"n": " null "})
    assert shown(table) == {"a": None}


def test_a_name_that_is_a_word_of_sql_stands_in_quotes() -> None:
    table = make(pa.schema([("id", pa.string()), ("order", pa.int64())]))
    table.upsert(pa.table({"id": ["a"], "order": [1]}))
    with pytest.raises(InvalidInputError, match=r"in double quotes.* column=order set=order \+ 1"):
        table.update({"order": "order + 1"})
    table.update({"order": '"order" + 1'})
    assert table.scan().to_arrow().to_pylist() == [{"id": "a", "order": 2}]


def test_many_rows_are_no_single_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows and files would all be in memory, and other writers would wait for a claim all the time."""
    table = make()
    table.upsert(numbers(a=1, b=2))
    version = table.version
    table.update({"n": "n + 1"})
    assert table.version == version + 1
    monkeypatch.setattr("crdt_mor.planners.way.ALONE_BYTES_MAX", 8)
    table.update({"n": "n + 1"})
    table.merge(numbers(a=0)).when_not_matched_by_source_update({"n": "target.n + 1"}).execute()
    table.delete(where="n > 0")
    assert table.version == version + 7
    assert shown(table) == {}


# --- ordering columns -------------------------------------------------------------------------------------------------


def test_a_row_keeps_its_ordering_value_and_the_later_write_of_equal_ones_counts() -> None:
    table = make(SCHEMA, ordering="n")
    table.upsert(frame(("a", "eu", 5, 1.0)))
    table.update({"price": "price + 1"})
    assert table.scan().to_arrow().to_pylist() == [{"id": "a", "region": "eu", "n": 5, "price": 2.0}]
    table.update({"price": "price + 1", "n": "n + 1"})
    assert table.scan().to_arrow().to_pylist() == [{"id": "a", "region": "eu", "n": 6, "price": 3.0}]


@pytest.mark.parametrize("value", ["n - 1", None], ids=str)
def test_a_lower_ordering_value_would_be_lost_and_is_refused(value: str | None) -> None:
    table = make(SCHEMA, ordering="n")
    table.upsert(frame(("a", "eu", 5, 1.0)))
    with pytest.raises(InvalidInputError, match=r"would be lost.*'id': 'a'.*before=5"):
        table.update({"n": value})


# --- payloads ---------------------------------------------------------------------------------------------------------


PAYLOADS: list[tuple[Any, pa.DataType, Any, Any]] = [
    (Counter(), pa.int64(), 5, 12),
    (Max(), pa.int64(), 5, 12),
    (Min(), pa.int64(), 5, 1),
    (Max(), pa.timestamp("us"), MOMENT.replace(tzinfo=None), datetime.fromisoformat("2026-02-01")),
    (Max(), pa.time32("s"), time(1, 2, 3), time(4, 5, 6)),
    (Last(), pa.int64(), 5, None),
    (AnyTrue(), pa.bool_(), False, True),
    (GrowOnlySet(), STRINGS, ["b"], ["c", "a", "b"]),
    (ORSet(), STRINGS, ["b", "c"], ["a", "c"]),
    (ORSet(), STRINGS, ["b", "c"], []),
    (MVRegister(), STRINGS, ["b"], ["a"]),
    (First(), pa.int64(), None, 3),
    (ORSet(), STRINGS, None, None),
    (ORSet(), STRINGS, None, ["a"]),
    (MVRegister(), STRINGS, None, None),
]


@pytest.mark.costly
@pytest.mark.parametrize(("payload", "kind", "before", "after"), PAYLOADS, ids=lambda v: getattr(v, "name", ""))
@pytest.mark.parametrize(("partial", "compacted"), one_in(4, product([False, True], [True, False])))
def test_a_column_with_a_payload_shows_what_it_is_set_to(
    payload: Any, kind: pa.DataType, before: Any, after: Any, partial: bool, compacted: bool
) -> None:
    schema = pa.schema([("id", pa.string()), ("v", kind), ("w", pa.int64()), ("c", pa.int64())])
    if partial and payload.nulls == "value":
        pytest.skip("which no table of partial updates takes")
    merge: dict[Any, Any] = {"v": payload, "c": Counter()}
    table = make(schema, merge=PartialUpdate(columns=merge) if partial else merge)
    table.upsert(pa.table({"id": ["a", "b"], "v": [before] * 2, "w": [1, 2], "c": [4, 4]}, schema=schema))
    if compacted:
        table.maintenance.compact()
    table.update({"v": pl.lit(after, dtype=pl.Series(pl.from_arrow(pa.array([after], kind))).dtype), "w": "w + 1"})
    table.update({"w": "w + 1"})
    rows = table.scan().to_arrow().to_pylist()
    expected = sorted(after) if isinstance(after, list) else after
    assert [(sorted(row["v"]) if isinstance(row["v"], list) else row["v"]) for row in rows] == [expected] * 2
    assert {(row["id"], row["w"], row["c"]) for row in rows} == {("a", 3, 4), ("b", 4, 4)}


@pytest.mark.parametrize(
    ("payload", "kind", "before", "after"),
    [
        (Max(), pa.int64(), 5, 4),
        (Min(), pa.int64(), 5, 6),
        (First(), pa.int64(), 5, 6),
        (Counter(), pa.int64(), 5, None),
        (AnyTrue(), pa.bool_(), True, False),
        (GrowOnlySet(), STRINGS, ["b"], ["a"]),
        (EventList(), STRINGS, ["b"], ["b", "c"]),
        (Distinct(), pa.int64(), "x", 4),
        (ORSet(), STRINGS, ["b"], None),
        (MVRegister(), STRINGS, ["b"], None),
        (MVRegister(), STRINGS, ["b"], []),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_payload_that_would_show_another_value_refuses(
    payload: Any, kind: pa.DataType, before: Any, after: Any
) -> None:
    schema = pa.schema([("id", pa.string()), ("v", kind)])
    table = make(schema, merge={"v": payload})
    table.upsert(pa.table({"id": ["a"], "v": [before]}))
    seen = table.scan().to_arrow().to_pylist()
    with pytest.raises(InvalidInputError, match=payload.name):
        table.update({"v": pl.lit(after, dtype=pl.Series(pl.from_arrow(pa.array([after], kind))).dtype)})
    assert table.scan().to_arrow().to_pylist() == seen


def test_columns_that_decide_together_are_set_together() -> None:
    schema = pa.schema([("id", pa.string()), ("price", pa.int64()), ("at", pa.int64())])
    table = make(schema, merge={("price", "at"): LatestBy("at")})
    table.upsert(pa.table({"id": ["a"], "price": [1], "at": [5]}))
    table.update({"price": "price + 1"})
    assert table.scan().to_arrow().to_pylist() == [{"id": "a", "price": 2, "at": 5}]
    with pytest.raises(InvalidInputError, match="latest_by/1 would not show"):
        table.update({"price": 7, "at": 4})


# --- beside other writers ---------------------------------------------------------------------------------------------


def test_an_earlier_write_is_waited_for_and_a_later_one_is_not_read() -> None:
    table = make()
    table.upsert(numbers(a=1, b=2, c=3))
    other, third = table_again(table), table_again(table)
    straggler = other.transaction()
    straggler.__enter__()
    straggler.upsert(numbers(a=100, d=7))
    happened = []

    def happens() -> None:
        happened.append(1)
        if len(happened) == 1:
            third.upsert(numbers(b=50))  # requested after the update
            third.maintenance.compact()  # which folds it into the base files
            third.upsert(numbers(c=60))
            third.maintenance.clean(keep=timedelta(0))
        if len(happened) == 3:
            straggler.__exit__(None, None, None)

    updating = table_again(table, environment=Waiting(happens))
    updating.update({"n": "n + 1"})
    assert shown(table) == {"a": 101, "b": 50, "c": 60, "d": 8}
    table.maintenance.compact()
    assert shown(table) == {"a": 101, "b": 50, "c": 60, "d": 8}


def test_a_write_that_goes_on_for_too_long_is_named() -> None:
    table = make()
    table.upsert(numbers(a=1))
    other = table_again(table)
    with other.transaction(commit_info={"application": "backfill"}) as tx:
        tx.upsert(numbers(a=5))
        updating = table_again(table, environment=SimulatedEnvironment())
        with pytest.raises(EarlierWritePendingError, match=r"by=backfill .* writes=1 waited_s=2") as told:
            updating.update({"n": "n + 1"}, wait=timedelta(seconds=2), token=("job", 1))
        (pending,) = table.inspect.pending().to_pylist()
        assert pending["application"] == "backfill"
        message = str(told.value)
        assert f'maintenance.roll_back("{pending["requested_at"]}")' in message
        assert f"pid={os.getpid()} host={socket.gethostname()}" in message
        assert re.search(r"Application 'backfill' began the write \d+ s ago, and it may write any row\.", message)
        assert re.search(r" silent_s=\d+ ", message)
    assert shown(table) == {"a": 5}
    assert not table.update({"n": "n + 1"}, token=("job", 1)).repeated
    assert shown(table) == {"a": 6}


def test_a_dead_writer_is_given_up_and_not_waited_for() -> None:
    clock, expiry = SimulatedEnvironment(), timedelta(seconds=30)
    store = MemoryStore(clock.now_ms)
    table = make(opening=Opening(store=store, environment=clock))
    table.upsert(numbers(a=1))
    dead = Table(
        "memory", opening=Opening(store=store, environment=SimulatedEnvironment(stem="dead"), writer_expiry=expiry)
    )
    straggler = dead.transaction()
    straggler.__enter__()
    straggler.upsert(numbers(a=9))
    before_ms = clock.now_ms()
    Table("memory", opening=Opening(store=store, environment=clock, writer_expiry=expiry)).update({"n": "n + 1"})
    assert 30_000 < clock.now_ms() - before_ms < 60_000
    assert shown(table) == {"a": 2}


def test_columns_that_an_earlier_write_has_added_are_kept() -> None:
    table = make()
    table.upsert(numbers(a=1))
    straggler = table_again(table).transaction()
    straggler.__enter__()
    straggler.upsert(numbers(a=2).append_column("new", pa.array([5])), schema_mode="merge")
    updating = table_again(table, environment=Waiting(lambda: straggler.__exit__(None, None, None)))
    updating.update({"n": "n + 1"})
    assert table.scan().to_arrow().to_pylist() == [{"id": "a", "n": 3, "new": 5}]


def test_an_overwrite_meanwhile_replaces_what_is_updated() -> None:
    table = make()
    table.upsert(numbers(a=1))
    straggler = table_again(table).transaction()
    straggler.__enter__()
    straggler.upsert(numbers(a=2))

    def happens() -> None:
        if straggler.commit is None:
            table_again(table).overwrite(numbers(z=1))
            straggler.__exit__(None, None, None)

    table_again(table, environment=Waiting(happens)).update({"n": "n + 1"})
    assert shown(table) == {"z": 1}


def test_a_restore_meanwhile_ends_it() -> None:
    table = make()
    version = table.upsert(numbers(a=1)).version
    table.upsert(numbers(a=5))
    straggler = table_again(table).transaction()
    straggler.__enter__()
    straggler.upsert(numbers(a=2))

    def happens() -> None:
        table_again(table).maintenance.restore(version)

    updating = table_again(table, environment=Waiting(happens))
    with pytest.raises(WriterExpiredError, match="a restore rolled the write back"):
        updating.update({"n": "n + 1"})
    assert shown(table) == {"a": 1}


@pytest.mark.slow
def test_updates_of_many_threads_lose_nothing() -> None:
    table = make()
    table.upsert(numbers(a=0, b=0))

    def count(_: int) -> None:
        own = table_again(table)
        for _ in range(5):
            own.update({"n": "n + 1"}, where="id = 'a'")
            own.upsert(numbers(b=1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    assert shown(table) == {"a": 20, "b": 1}


# --- serializable blocks ----------------------------------------------------------------------------------------------


def test_a_serializable_block_reads_what_comes_before_it_and_then_writes() -> None:
    table = make()
    table.upsert(numbers(a=1, b=2))
    straggler = table_again(table).transaction()
    straggler.__enter__()
    straggler.upsert(numbers(b=10))
    own = table_again(table, environment=Waiting(lambda: straggler.__exit__(None, None, None)))
    with own.transaction(isolation="serializable") as tx:
        total = sum(row["n"] for row in tx.scan().to_arrow().to_pylist())
        tx.upsert(numbers(sum=total))
        tx.delete(keys=["a"])
    assert tx.commit is not None
    assert tx.commit.completed_at > tx.commit.requested_at
    assert shown(table) == {"b": 10, "sum": 11}


def test_a_delete_by_filter_in_a_serializable_block_is_exact() -> None:
    table = make()
    table.upsert(numbers(a=1, b=2))
    straggler = table_again(table).transaction()
    straggler.__enter__()
    straggler.upsert(numbers(b=10, c=11))
    own = table_again(table, environment=Waiting(lambda: straggler.__exit__(None, None, None)))
    with own.transaction(isolation="serializable") as tx:
        tx.delete(where="n >= 10")
    assert shown(table) == {"a": 1}


def test_a_delete_by_filter_waits_for_what_began_before_it() -> None:
    """Else a row that an earlier writer brings would stay (a phantom), and one that it changes would go."""
    table = make()
    table.upsert(numbers(a=10, b=10, c=1))
    straggler = table_again(table).transaction()
    straggler.__enter__()
    straggler.upsert(numbers(b=2, d=12))

    def happens() -> None:
        if straggler.commit is None:
            table_again(table).upsert(numbers(c=30))  # requested after the delete
            straggler.__exit__(None, None, None)

    own = table_again(table, environment=Waiting(happens))
    own.delete(where="n >= 10")
    assert shown(table) == {"b": 2, "c": 30}


def test_a_wait_counts_from_the_begin_of_a_block() -> None:
    table = make()
    table.upsert(numbers(a=1))
    environment = SimulatedEnvironment()
    with table_again(table).transaction():
        block = table_again(table, environment=environment).transaction(
            isolation="serializable", wait=timedelta(seconds=2)
        )
        tx = block.__enter__()
        environment.sleep(1.5)
        read_ms = environment.now_ms()
        with pytest.raises(EarlierWritePendingError, match="waited_s=2") as told:
            tx.scan()
        assert environment.now_ms() - read_ms < 1_000
        block.__exit__(type(told.value), told.value, None)


def test_a_wait_does_not_count_what_comes_before_the_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    table.upsert(numbers(a=1))
    environment = SimulatedEnvironment()

    def slow(*_: object) -> Way:
        environment.sleep(5)
        return CLOSED

    monkeypatch.setattr(commit, "_in_one_event", slow)
    with table_again(table).transaction():
        started_ms = environment.now_ms()
        with pytest.raises(EarlierWritePendingError, match="waited_s=2"):
            table_again(table, environment=environment).update({"n": "n + 1"}, wait=timedelta(seconds=2))
    assert environment.now_ms() - started_ms >= 7_000


def test_a_delete_by_filter_says_whom_it_waits_for() -> None:
    table = make()
    table.upsert(numbers(a=10))
    own = table_again(table, environment=SimulatedEnvironment())
    with table_again(table).transaction(commit_info={"application": "backfill"}) as tx:
        with pytest.raises(EarlierWritePendingError, match=r"by=backfill .* waited_s=2"):
            own.delete(where="n >= 10", wait=timedelta(seconds=2))
        own.delete(keys=["a"])
        assert shown(table) == {}
        tx.upsert(numbers(b=1))


def test_write_skew_is_impossible() -> None:
    """Two doctors are on call, and each goes off if the other one is still on: at least one stays."""
    table = make()
    table.upsert(numbers(ada=1, bob=1))

    def goes_off(name: str) -> None:
        with table_again(table).transaction(isolation="serializable") as tx:
            if sum(row["n"] for row in tx.scan().to_arrow().to_pylist()) > 1:
                tx.upsert(numbers(**{name: 0}))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(goes_off, ["ada", "bob"]))
    assert sum(shown(table).values()) == 1


def test_isolation_and_update_are_checked() -> None:
    table = make()
    with pytest.raises(InvalidInputError, match='"snapshot" or "serializable"'):
        table.transaction(isolation="chaos")  # type: ignore[arg-type]
    with table.transaction() as tx, pytest.raises(InvalidInputError, match="isolation="):
        tx.update({"n": 1})


def table_again(table: Table, environment: Environment | None = None) -> Table:
    """The table once more, as another process would open it."""
    return Table("memory", opening=Opening(store=store_of(table), environment=environment))

"""`apply` writes the changes of a feed once, and whole transactions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.cdc import Change, apply
from tests.cdc.feeds import TRUNCATE, begin, commit, delete, insert, transaction, update
from tests.cdc.tables import SCHEMA, rows, table_of


def test_all_changes_of_a_batch_are_one_commit() -> None:
    table = table_of()
    done = apply(
        table,
        [
            *transaction(10, insert(id=1, name="a", note="x"), insert(id=2, name="b", note="y")),
            *transaction(20, update({"id": 1}, id=1, name="A", note="x"), delete(id=2)),
        ],
        source="slot",
    )
    assert (done.rows, done.deletes, done.positions) == (1, 1, {"slot": 20})
    assert rows(table) == [{"id": 1, "name": "A", "note": "x"}]
    assert table.inspect.tokens()["number"].to_pylist() == [20]
    assert len(table.history()) == 1


def test_a_repeated_event_counts_once() -> None:
    table = table_of()
    first = transaction(10, insert(id=1, name="a", note="x"))
    second = transaction(20, update({"id": 1}, id=1, name="b", note="x"))
    apply(table, first + second, source="slot")
    version = table.version
    assert apply(table, first, source="slot").skipped == 1
    assert table.version == version
    again = apply(table, [*second, *transaction(30, insert(id=2, name="c", note="z"))], source="slot")
    assert (again.skipped, again.rows, again.positions) == (1, 1, {"slot": 30})


def test_a_transaction_without_its_end_is_left_for_the_next_call() -> None:
    table = table_of()
    cut = [begin(20), insert(id=2, name="b", note="y")]
    done = apply(table, [*transaction(10, insert(id=1, name="a", note="x")), *cut], source="slot")
    assert done.positions == {"slot": 10}
    assert list(done.left) == cut
    assert len(rows(table)) == 1
    done = apply(table, [*done.left, insert(id=3, name="c", note="z"), commit(20)], source="slot")
    assert (done.positions, done.left) == ({"slot": 20}, ())
    assert [row["id"] for row in rows(table)] == [1, 2, 3]


def test_the_end_of_a_transaction_without_its_begin_is_refused() -> None:
    with pytest.raises(mor.InvalidInputError, match="begin is missing"):
        apply(table_of(), [insert(id=1, name="a", note="x"), commit(10)], source="slot")


def test_a_transaction_of_other_tables_moves_the_position_without_a_commit() -> None:
    table = table_of()
    version = table.version
    assert apply(table, transaction(10), source="slot").positions == {"slot": 10}
    assert table.version == version


def test_a_truncation_removes_all_earlier_rows_in_the_commit_of_the_later_ones() -> None:
    table = table_of()
    apply(table, transaction(10, insert(id=1, name="a", note="x"), insert(id=2, name="b", note="x")), source="slot")
    done = apply(
        table,
        transaction(20, insert(id=3, name="c", note=""), TRUNCATE, insert(id=1, name="n", note="")),
        source="slot",
    )
    assert (done.truncations, done.rows) == (1, 1)
    assert rows(table) == [{"id": 1, "name": "n", "note": ""}]
    apply(table, transaction(30, TRUNCATE), source="slot")
    assert rows(table) == []
    assert apply(table, transaction(30, TRUNCATE), source="slot").truncations == 0


def test_a_new_value_of_the_key_is_a_delete_and_a_row() -> None:
    table = table_of()
    apply(table, transaction(10, insert(id=1, name="a", note="x")), source="slot")
    done = apply(table, transaction(20, update({"id": 1}, id=7, name="a", note="x")), source="slot")
    assert (done.rows, done.deletes) == (1, 1)
    assert rows(table) == [{"id": 7, "name": "a", "note": "x"}]


def test_an_omitted_column_is_unchanged_under_partial_updates() -> None:
    table = table_of(merge=mor.PartialUpdate())
    apply(table, transaction(10, insert(id=1, name="a", note="long")), source="slot")
    apply(table, transaction(20, update({"id": 1}, id=1, name="b")), source="slot")
    assert rows(table) == [{"id": 1, "name": "b", "note": "long"}]
    apply(table, transaction(30, update({"id": 1}, id=2, name="c")), source="slot")
    assert rows(table) == [{"id": 2, "name": "c", "note": "long"}]


def test_a_row_after_its_delete_keeps_nothing() -> None:
    table = table_of(merge=mor.PartialUpdate())
    apply(table, transaction(10, insert(id=1, name="a", note="long")), source="slot")
    apply(table, transaction(20, delete(id=1), insert(id=1, name="b")), source="slot")
    assert rows(table) == [{"id": 1, "name": "b", "note": None}]


def test_a_table_of_whole_rows_takes_omitted_columns_from_the_batch_or_the_old_row() -> None:
    table = table_of()
    event = transaction(10, insert(id=1, name="a", note="long"), update({"id": 1}, id=1, name="b"))
    apply(table, event, source="slot")
    apply(table, transaction(20, update({"id": 1, "name": "b", "note": "long"}, id=1, name="c")), source="slot")
    assert rows(table) == [{"id": 1, "name": "c", "note": "long"}]
    with pytest.raises(mor.errors.SchemaMismatchError, match=r"PartialUpdate\(\), or set REPLICA IDENTITY FULL"):
        apply(table, transaction(30, update({"id": 1}, id=1, name="d")), source="slot")


def test_a_new_column_is_added_with_the_sources_type() -> None:
    table = table_of()
    apply(table, transaction(10, insert(id=1, name="a", note="x")), source="slot")
    apply(table, transaction(20, insert(id=2, name="b", note="y", more=5)), source="slot")
    assert table.schema.field("more").type == pa.int32()
    assert [row["more"] for row in rows(table)] == [None, 5]


def test_values_follow_the_columns_types() -> None:
    columns = [("price", pa.decimal128(10, 2)), ("at", pa.timestamp("us", "UTC"))]
    table = table_of(pa.schema([("id", pa.int64()), *columns, ("tags", pa.list_(pa.string())), ("raw", pa.binary())]))
    event = insert(id=1, price=0.1, at="2018-03-27 11:58:28.988414+00", tags='{a,"b, c",NULL}', raw="00ff")
    text = json.dumps(event).replace("0.1", "12345678.10")
    apply(table, [json.dumps(begin(10)), text, json.dumps(commit(10))], source="slot")
    at = datetime(2018, 3, 27, 11, 58, 28, 988414, UTC)
    assert rows(table) == [
        {"id": 1, "price": Decimal("12345678.10"), "at": at, "tags": ["a", "b, c", None], "raw": b"\x00\xff"}
    ]


def test_the_ordering_column_is_filled_with_the_position() -> None:
    schema = SCHEMA.append(pa.field("lsn", pa.int64()))
    table = table_of(schema, ordering="lsn")
    apply(table, transaction(10, insert(id=1, name="a", note="x")), source="slot")
    apply(table, transaction(20, delete(id=1)), source="slot")
    late = Change("u", 3, "another", row={"id": 1, "name": "late", "note": ""}, whole=True, order=15)
    apply(table, [late])
    assert rows(table) == []
    apply(table, transaction(30, insert(id=1, name="b", note="x")), source="slot")
    assert rows(table) == [{"id": 1, "name": "b", "note": "x", "lsn": 30}]
    with pytest.raises(mor.InvalidInputError, match="the ordering column is a column of the source"):
        apply(table, [Change("c", 4, "another", row={"id": 1, "name": "", "note": "", "lsn": 4})])


def test_each_column_has_its_own_order_under_partial_updates() -> None:
    table = table_of(SCHEMA.append(pa.field("lsn", pa.int64())), ordering="lsn", merge=mor.PartialUpdate())
    apply(table, transaction(10, insert(id=1, name="a", note="long")), source="slot")
    apply(table, transaction(20, update({"id": 1}, id=1, name="b")), source="slot")
    late = {"id": 1, "name": "late", "note": "newer"}
    apply(table, [Change("u", 1, "another", row=late, order=15)])
    assert rows(table) == [{"id": 1, "name": "b", "note": "newer", "lsn": 20}]
    apply(table, transaction(30, update({"id": 1}, id=2, name="c")), source="slot")
    apply(table, [Change("u", 2, "another", row=late, order=25)])
    assert rows(table) == [{"id": 2, "name": "c", "note": "newer", "lsn": 30}]


def test_after_a_truncation_each_key_is_one_row() -> None:
    table = table_of(SCHEMA.append(pa.field("lsn", pa.int64())), ordering="lsn", merge=mor.PartialUpdate())
    events = transaction(10, TRUNCATE, insert(id=1, name="a", note="long"), update({"id": 1}, id=1, name="b"))
    apply(table, events, source="slot")
    assert rows(table) == [{"id": 1, "name": "b", "note": "long", "lsn": 10}]


def test_events_of_two_tables_are_refused() -> None:
    other = insert(id=1, name="a", note="x") | {"table": "users"}
    with pytest.raises(mor.InvalidInputError, match=r"several tables.*public\.orders.*public\.users"):
        apply(table_of(), transaction(10, insert(id=1, name="a", note="x"), other), source="slot")


def test_an_unfinished_apply_of_a_dead_process_is_rolled_back_after_a_while() -> None:
    table = table_of()
    table.transaction(token=("slot", 10)).__enter__().upsert(pa.table({"id": [1], "name": ["dead"], "note": [""]}))
    first = table.environment.now_ms()
    apply(table, transaction(10, insert(id=1, name="a", note="x")), source="slot", wait=timedelta(seconds=3))
    assert 3_000 <= table.environment.now_ms() - first < 10_000
    assert rows(table) == [{"id": 1, "name": "a", "note": "x"}]
    assert table.inspect.pending().num_rows == 0


def test_after_a_restore_events_count_again_from_the_restored_position() -> None:
    table = table_of()
    first, second = (transaction(lsn, insert(id=lsn, name="a", note="")) for lsn in (10, 20))
    apply(table, first, source="slot")
    table.maintenance.savepoint("first")
    apply(table, second, source="slot")
    table.maintenance.restore("first")
    assert apply(table, first + second, source="slot").skipped == 1
    assert [row["id"] for row in rows(table)] == [10, 20]


def test_an_unknown_position_after_a_restore_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of()
    token = {"application": "slot", "number": 90, "requested_at": "19700101000000000"}
    monkeypatch.setattr(mor.Inspect, "tokens", lambda _: pa.Table.from_pylist([token]))
    with pytest.raises(mor.TokenOrderError, match="under another topic or source"):
        apply(table, transaction(10, insert(id=1, name="a", note="")), source="slot")


@pytest.mark.filterwarnings("ignore::crdt_mor.errors.PartitionNotInKeyWarning")
@pytest.mark.parametrize("ordering", [None, "lsn"])
@pytest.mark.parametrize("old", [None, "2026-01-01 05:00:00+00:00"])
def test_a_partial_row_that_moves_keeps_its_other_columns(old: str | None, ordering: str | None) -> None:
    """The events give times as texts."""
    schema = pa.schema(
        [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("note", pa.string()), ("lsn", pa.int64())]
    )
    table = table_of(schema, partition_by=mor.day("at"), merge=mor.PartialUpdate(), ordering=ordering)
    apply(table, transaction(10, insert(id=1, at=old, note="kept")), source="slot")
    new = "2026-01-02 05:00:00+00:00"
    apply(table, transaction(20, update({"id": 1, "at": old}, id=1, at=new)), source="slot")
    (row,) = rows(table)
    assert (row["at"], row["note"]) == (datetime(2026, 1, 2, 5, tzinfo=UTC), "kept")


@pytest.mark.filterwarnings("ignore::crdt_mor.errors.PartitionNotInKeyWarning")
@pytest.mark.parametrize("by", ["name", mor.truncate("name", 1)])
def test_an_event_without_its_partition_is_refused(by: str | mor.PartitionFunction) -> None:
    table = table_of(partition_by=by)
    with pytest.raises(mor.InvalidInputError, match=r"lacks key or partition columns .*missing=\['name'\]"):
        apply(table, transaction(10, delete(id=1)), source="slot")
    apply(table, transaction(20, insert(id=1, name="A", note="x")), source="slot")
    with pytest.raises(mor.InvalidInputError, match=r"an update lacks the old values .*missing=\['name'\]"):
        apply(table, transaction(30, update({"id": 1}, id=1, name="B", note="x")), source="slot")
    apply(table, transaction(30, update({"id": 1, "name": "A"}, id=1, name="B", note="x")), source="slot")
    assert [row["name"] for row in rows(table)] == ["B"]


def test_a_partition_in_the_key_may_be_absent_from_the_old_values() -> None:
    table = table_of(key=["id", "name"], partition_by="name")
    apply(table, transaction(10, insert(id=1, name="A", note="x")), source="slot")
    apply(table, transaction(20, update({"id": 1}, id=1, name="A", note="y")), source="slot")
    assert [row["note"] for row in rows(table)] == ["y"]

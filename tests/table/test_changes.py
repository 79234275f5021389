"""Increments: what they hold, where they go on, and what they say when they cannot."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Changes, Commit, InvalidInputError, Table
from crdt_mor.errors import CheckpointExpiredError
from crdt_mor.model.instant import to_datetime
from crdt_mor.payloads import Counter, PartialUpdate
from tests.inside import session_of
from tests.interop.hudi_archive import make_hudis
from tests.table.helpers import SCHEMA, Make, Place, Places, data_files, files, frame
from tests.tiers import only


def listed(changes: Changes, *columns: str) -> list[tuple[object, ...]]:
    """The changes, `_change_type` first, sorted."""
    found = changes.to_arrow().select(["_change_type", *columns]).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


STATES = ["logs", "compacted", "compacted while a writer is pending"]


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def settle(table: Table, state: str) -> None:
    """A compaction, or one that has to carry what comes after a write that is still pending."""
    if state == "compacted":
        table.maintenance.compact()
    elif state != "logs":
        pending = table.transaction()
        pending.__enter__().upsert(frame(("never", "x", 0)))
        table.upsert(frame(("c", "x", 33)))
        table.maintenance.compact()
        pending.__exit__(RuntimeError, RuntimeError(), None)


# --- what they hold ---------------------------------------------------------------------------------------------------


def test_each_changed_key_is_there_once_as_it_is_now(make: Make, state: str) -> None:
    table = make(buckets=2)
    table.upsert(frame(("a", "x", 1), ("b", "x", 2), ("c", "x", 3)))
    since = table.changes().checkpoint
    table.upsert(frame(("a", "x", 10), ("d", "x", 4)))
    table.upsert(frame(("a", "x", 11)))
    table.delete(keys=["b"])
    settle(table, state)
    found = table.changes(since)
    late = [("upsert", "c", 33)] if "pending" in state else []
    assert listed(found, "id", "n") == [("delete", "b", None), ("upsert", "a", 11), *late, ("upsert", "d", 4)]
    assert found.schema.names == [*SCHEMA.names, "_change_type"]
    assert found.commits == 3 + len(late)
    after = table.changes(found.checkpoint)
    assert (after.commits, after.to_arrow().num_rows) == (0, 0)
    assert after.to_arrow().schema == found.schema


def test_a_list_of_fixed_size_that_became_null_is_null_in_its_image(make: Make) -> None:
    """Of such a column pyarrow's own cast crashes the process."""
    table = make(schema=pa.schema([("id", pa.int64()), ("pair", pa.list_(pa.int64(), 2))]), buckets=1)
    for key, pair in ((0, [1, 2]), (1, [3, 4]), (2, None)):
        table.upsert(pa.table({"id": [key], "pair": pa.array([pair], pa.list_(pa.int64(), 2))}))
    images = [("insert", 0, [1, 2]), ("insert", 1, [3, 4]), ("insert", 2, None)]
    assert listed(table.changes(images=True), "id", "pair") == images


def test_images_say_commit_by_commit_what_was_and_what_is(make: Make, state: str) -> None:
    table = make()
    first = table.upsert(frame(("a", "x", 1), ("b", "x", 2)))
    second = table.upsert(frame(("a", "x", 10), ("b", "x", 2), ("d", "x", 4)))
    third = table.delete(keys=["b"])
    found = table.changes(first, images=True)
    settle(table, state)
    again = table.changes(first, images=True)
    want = [
        ("delete", "b", 2, third.version),
        ("insert", "d", 4, second.version),
        ("update_postimage", "a", 10, second.version),
        ("update_preimage", "a", 1, second.version),
    ]
    assert listed(found, "id", "n", "_commit_version") == want
    late = [row for row in listed(again, "id", "n", "_commit_version") if row not in want]
    assert [row[:3] for row in late] == ([("insert", "c", 33)] if "pending" in state else [])
    times = set(again.to_arrow()["_commit_timestamp"].to_pylist())
    assert {to_datetime(second.completed_at), to_datetime(third.completed_at)} <= times


@pytest.mark.slow
@pytest.mark.parametrize("state", only([STATES[-1]], STATES), indirect=True)
def test_changes_without_a_column_of_the_table_say_how_many_rows_changed_and_how(make: Make, state: str) -> None:
    table = make(buckets=2)
    first = table.upsert(frame(("a", "x", 1), ("b", "x", 2), ("c", "x", 3)))
    table.upsert(frame(("a", "x", 10), ("d", "x", 4)))
    table.delete(keys=["b"])
    settle(table, state)

    def kinds(changes: Changes) -> dict[str, int]:
        assert changes.to_polars().height == changes.to_arrow().num_rows
        assert sum(part.to_arrow().num_rows for part in changes.parts(size=1)) == changes.to_arrow().num_rows
        found = [row["_change_type"] for row in changes.to_arrow().to_pylist()]
        return {kind: found.count(kind) for kind in found}

    for options in ({}, {"since": first}, {"raw": True}, {"since": first, "raw": True}):
        none, some = (table.changes(columns=columns, **options) for columns in ([], ["n"]))
        assert none.schema.names == some.schema.names[1:]
        assert kinds(none) == kinds(some), options
    for images in (table.changes(columns=[], images=True), table.diff(first, "now", columns=[])):
        assert images.to_arrow()["_change_type"].to_pylist().count("delete") == 1
    # What is left out is not compared, so that an update is none, as with the key alone.
    assert kinds(table.changes(columns=[], images=True)) == kinds(table.changes(columns=["id"], images=True))
    assert kinds(table.diff(first, "now", columns=[])) == {"insert": 1, "delete": 1}


FLOATS: dict[str, pa.DataType] = {
    "float64": pa.float64(),
    "float32": pa.float32(),
    "in a list": pa.list_(pa.float64()),
    "in a struct": pa.struct([("n", pa.int64()), ("x", pa.float32())]),
    "in a map": pa.map_(pa.string(), pa.float64()),
    "deep": pa.list_(pa.struct([("s", pa.string()), ("x", pa.map_(pa.string(), pa.list_(pa.float64())))])),
}


@pytest.mark.parametrize("kind", FLOATS.values(), ids=FLOATS)
def test_a_zero_that_changes_its_sign_has_images_and_a_value_that_stays_has_none(make: Make, kind: pa.DataType) -> None:
    def value(number: float) -> object:
        if kind == FLOATS["deep"]:
            return [{"s": "t", "x": [("k", [1.0, number])]}]
        shapes = {"list": [number, 1.0], "struct": {"n": 1, "x": number}, "map": [("k", number)]}
        return next((shape for name, shape in shapes.items() if str(kind).startswith(name)), number)

    table = make(schema=pa.schema([("id", pa.string()), ("x", kind)]), buckets=1)
    numbers = {"same": (0.0, 0.0), "sign": (0.0, -0.0), "back": (-0.0, 0.0), "nan": (math.nan, math.nan)}
    commits = [
        table.upsert(pa.table({"id": list(numbers), "x": pa.array([value(n[i]) for n in numbers.values()], kind)}))
        for i in (0, 1)
    ]
    for found in (table.changes(commits[0], images=True), table.diff(*commits)):
        images = found.to_arrow().to_pylist()
        assert sorted({row["id"] for row in images}) == ["back", "sign"]
        assert {row["id"]: "-0.0" in str(row["x"]) for row in images if row["_change_type"] == "update_postimage"} == {
            "sign": True, "back": False
        }  # fmt: skip


@pytest.mark.parametrize("raw", [False, True])
def test_a_delete_has_its_partition_where_the_path_does_not_tell_it(make: Make, path: str, raw: bool) -> None:
    """As Hudi's timestamp key generators make paths; and as rows without a value lie in one folder."""
    table = make(partition_by="region", buckets=1)
    first = table.upsert(frame(("a", "x", 1), ("b", "", 2), ("c", None, 3), ("d", "x", 4)))
    table.upsert(frame(("e", "x", 5)))
    table.delete(frame(("a", "x"), ("b", ""), ("c", None), ("e", "x")))
    expected = [("delete", "a", "x"), ("delete", "b", ""), ("delete", "c", None), ("delete", "e", "x")]
    for _ in range(2):
        found = listed(table.changes(first, raw=raw), "id", "region")
        assert [row for row in found if row[0] == "delete"] == expected
        if session_of(table).config.ours:
            make_hudis(Path(path), {"hoodie.table.keygenerator.type": "TIMESTAMP"})
            table = Table(path)


def test_a_straggler_that_loses_changes_no_image_and_is_an_upsert_all_the_same(make: Make) -> None:
    table = make()
    with table.transaction() as early:
        early.upsert(frame(("a", "x", 1)))
        table.upsert(frame(("a", "x", 2)))
        table.maintenance.compact()
        since = table.changes().checkpoint
    assert listed(table.changes(since), "id", "n") == [("upsert", "a", 2)]
    assert listed(table.changes(since, images=True), "id") == []


def test_raw_changes_are_the_rows_as_they_were_written(make: Make, state: str) -> None:
    table = make(merge={"n": Counter()})
    table.upsert(frame(("a", "x", 1)))
    since = table.scan().checkpoint
    table.upsert(frame(("a", "y", 5)))
    table.upsert(frame(("a", "z", 7)))
    table.delete(keys=["a"])
    settle(table, state)
    found = listed(table.changes(since, raw=True), "id", "region", "n")
    late = [("upsert", "c", "x", 33)] if "pending" in state else []
    assert found == [("delete", "a", None, None), ("upsert", "a", "y", 5), ("upsert", "a", "z", 7), *late]


def test_counters_and_partial_updates_come_merged(make: Make, state: str) -> None:
    table = make(merge=PartialUpdate(columns={"n": Counter()}))
    table.upsert(frame(("a", "x", 1, 0.5)))
    since = table.scan().checkpoint
    table.upsert(pl.DataFrame({"id": ["a"], "n": [41]}))
    settle(table, state)
    found = [row for row in listed(table.changes(since), "id", "region", "n", "price") if row[1] == "a"]
    assert found == [("upsert", "a", "x", 42, 0.5)]


@pytest.mark.parametrize("plain", [False, True])
def test_an_ordering_column_decides(make: Make, plain: bool, state: str) -> None:
    table = make(ordering="n")
    table.upsert(frame(("a", "x", 5), ("b", "x", 5)))
    since = table.scan().checkpoint
    table.upsert(frame(("a", "y", 4)))
    table.delete(frame(("b", "x", 4)), plain=plain)
    settle(table, state)
    b = ("delete", "b", None) if plain else ("upsert", "b", "x")
    found = [row for row in listed(table.changes(since), "id", "region") if row[1] != "c"]
    assert found == sorted([("upsert", "a", "x"), b])


def test_a_deleted_row_has_its_key_and_partition_columns(make: Make) -> None:
    schema = pa.schema([("k", pa.string()), ("day", pa.date32()), ("i", pa.int32()), ("v", pa.string())])
    table = make(schema=schema, key=["k", "i"], partition_by="day")
    one = {"k": "a,b:c", "day": date(2026, 1, 2), "i": -7, "v": "x"}
    two = {"k": None, "day": date(2026, 1, 3), "i": 8, "v": "y"}
    three = {"k": "", "day": date(2026, 1, 3), "i": 9, "v": "z"}
    rows = pa.Table.from_pylist([one, two, three], schema)
    table.upsert(rows)
    since = table.scan().checkpoint
    table.delete(rows.drop(["v"]))
    found = table.changes(since).to_arrow().to_pylist()
    want = [row | {"v": None, "_change_type": "delete"} for row in (one, two, three)]
    assert sorted(found, key=repr) == sorted(want, key=repr)


def test_columns_are_chosen_and_may_leave_the_key_out(make: Make) -> None:
    table = make()
    first = table.upsert(frame(("a", "x", 1, 0.5)))
    table.upsert(frame(("a", "x", 2, 0.5)))
    assert table.changes(columns=["n"]).to_arrow().to_pylist() == [{"n": 2, "_change_type": "upsert"}]
    assert listed(table.changes(first, columns=["price"], images=True), "price") == []
    with pytest.raises(InvalidInputError, match="no such columns"):
        table.changes(columns=["nope"])


def test_any_arrow_user_takes_them(make: Make) -> None:
    table = make()
    table.upsert(frame(("a", "x", 1), ("b", "x", 2)))
    connection = duckdb.connect()
    connection.register("changes", table.changes())
    assert connection.execute("select _change_type, sum(n) from changes group by 1").fetchall() == [("upsert", 3)]
    assert pl.DataFrame(table.changes()).height == 2
    assert table.changes().to_pandas()["n"].sum() == 3


# --- where they go on -------------------------------------------------------------------------------------------------


def test_since_takes_whatever_as_of_takes(make: Make) -> None:
    table = make()
    commits = [table.upsert(frame((f"k{i}", "x", i))) for i in range(3)]
    want = [("upsert", "k2", 2)]
    for since in (commits[1], commits[1].version, commits[1].completed_at, to_datetime(commits[1].completed_at)):
        assert listed(table.changes(since), "id", "n") == want
    assert listed(table.changes(table.scan(as_of=commits[1]).checkpoint), "id", "n") == want
    assert table.changes(datetime(2020, 1, 1, tzinfo=UTC)).commits == 3


def test_a_window_is_sealed_when_it_is_made(make: Make) -> None:
    table = make()
    table.upsert(frame(("a", "x", 1)))
    changes = table.changes()
    table.upsert(frame(("a", "x", 2)))
    table.maintenance.compact()
    assert listed(changes, "n") == [("upsert", 1)]
    assert listed(table.changes(changes.checkpoint), "n") == [("upsert", 2)]


def test_a_slow_writer_is_neither_skipped_nor_in_the_way(make: Make) -> None:
    table = make()
    with table.transaction() as slow:
        slow.upsert(frame(("slow", "x", 1)))
        table.upsert(frame(("fast", "x", 2)))
        first = table.changes()
        assert listed(first, "id") == [("upsert", "fast")]
    second = table.changes(first.checkpoint)
    assert listed(second, "id") == [("upsert", "slow")]


def test_stable_changes_wait_for_it(make: Make, state: str) -> None:
    table = make()
    table.upsert(frame(("a", "x", 0)))
    with table.transaction() as slow:
        slow.upsert(frame(("slow", "x", 1)))
        table.upsert(frame(("fast", "x", 2)))
        settle(table, state)
        first = table.changes(consistency="stable")
        assert listed(first, "id") == [("upsert", "a")]
        assert sorted(table.scan(consistency="stable").to_arrow()["id"].to_pylist()) == ["a"]
        assert table.changes(first.checkpoint, consistency="stable").commits == 0
    second = table.changes(first.checkpoint, consistency="stable")
    late = [("upsert", "c")] if "pending" in state else []
    assert listed(second, "id") == [*late, ("upsert", "fast"), ("upsert", "slow")]


def test_read_optimized_is_what_the_last_compaction_left(make: Make) -> None:
    table = make()
    first = table.upsert(frame(("a", "x", 1)))
    assert table.scan(consistency="read_optimized").count() == 0
    table.maintenance.compact()
    table.upsert(frame(("b", "x", 2)))
    assert table.scan(consistency="read_optimized").to_arrow() == frame(("a", "x", 1))
    assert table.scan(consistency="read_optimized", as_of=first).count() == 0
    with pytest.raises(InvalidInputError, match="omits commits"):
        table.scan(consistency="read_optimized").checkpoint  # noqa: B018


def test_a_difference_turns_one_snapshot_into_the_other(make: Make, state: str) -> None:
    table = make()
    first = table.upsert(frame(("a", "x", 1), ("b", "x", 2)))
    table.upsert(frame(("a", "x", 10)))
    table.upsert(frame(("a", "x", 1), ("d", "x", 4)))
    last = table.delete(keys=["b"])
    settle(table, state)
    assert listed(table.diff(first, last), "id", "n") == [("delete", "b", 2), ("insert", "d", 4)]
    assert listed(table.diff(last, first), "id", "n") == [("delete", "d", 4), ("insert", "b", 2)]
    assert listed(table.diff(last, last), "id") == []


# --- what they say when they cannot -----------------------------------------------------------------------------------


@pytest.mark.parametrize("since", ["a day ago", "completed:1", "started:20260101000000000", "completed:"])
def test_what_is_no_checkpoint_is_refused(make: Make, since: str) -> None:
    with pytest.raises(InvalidInputError, match=r"17 digits|checkpoint"):
        make().changes(since)


def test_a_checkpoint_ahead_of_the_table_is_refused(make: Make) -> None:
    table = make()
    table.upsert(frame(("a", "x", 1)))
    kinds: list[tuple[str, Literal["latest", "stable"]]] = [("completed", "latest"), ("requested", "stable")]
    for by, consistency in kinds:
        with pytest.raises(InvalidInputError, match="another table"):
            table.changes(f"{by}:29991231000000000", consistency=consistency)


def test_checkpoints_of_two_consistencies_do_not_mix(make: Make) -> None:
    table = make()
    table.upsert(frame(("a", "x", 1)))
    with pytest.raises(InvalidInputError, match="another `consistency`"):
        table.changes(table.changes().checkpoint, consistency="stable")
    with pytest.raises(InvalidInputError, match="another `consistency`"):
        table.changes(table.changes(consistency="stable").checkpoint)
    with pytest.raises(InvalidInputError, match="checkpoint of stable"):
        table.changes(1, consistency="stable")


def test_other_arguments_that_cannot_be_are_refused(make: Make, places: Places) -> None:
    table = make()
    with pytest.raises(InvalidInputError, match="only one of images and raw"):
        table.changes(images=True, raw=True)
    with pytest.raises(InvalidInputError, match="latest, stable"):
        table.changes(consistency="eventual")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="pass either as_of or consistency"):
        table.scan(consistency="stable", as_of=0)


def test_an_older_table_with_a_column_of_the_changes_own_name_leaves_it_out(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = pa.schema([("id", pa.string()), ("_change_type", pa.string())])
    with monkeypatch.context() as patch:
        patch.setattr("crdt_mor.columns.schema.CHANGE_COLUMNS", ())  # as before such names were refused
        other = places("other").create(schema=taken, key="id")
    other.upsert(pa.table({"id": ["a"], "_change_type": ["x"], "n": [1]}), schema_mode="merge")
    with pytest.raises(InvalidInputError, match="exclude the table's columns"):
        other.changes()
    assert other.changes(columns=["id"]).schema.names == ["id", "_change_type"]


def test_where_files_are_gone_it_says_what_to_do(make: Make, place: Place) -> None:
    table = make(buckets=1)
    first = table.upsert(frame(("a", "x", 1)))
    for name in data_files(place):
        place.store.delete(name)
    with pytest.raises(CheckpointExpiredError, match=r"scan the table and continue .* file=\."):
        table.changes(0, raw=True).to_arrow()
    with pytest.raises(CheckpointExpiredError):
        table.changes("20200101000000000").to_arrow()
    assert isinstance(first, Commit)


def test_looking_at_changes_writes_nothing(make: Make, place: Place) -> None:
    table = make()
    first = table.upsert(frame(("a", "x", 1)))
    table.delete(keys=["a"])
    before = files(place)
    asked: list[dict[str, Any]] = [{}, {"images": True}, {"raw": True}, {"consistency": "stable"}]
    for options in asked:
        table.changes(**options).to_arrow()
    table.diff(first, 0).to_arrow()
    assert files(place) == before

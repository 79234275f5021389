"""migrate: a table moves to another address, with other settings, beside running writers; cancel_migration."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, SnapshotExpiredError, Table, Transaction
from crdt_mor.errors import (
    CheckpointExpiredError,
    SchemaMismatchError,
    TableArrivingError,
    TableExistsError,
    TableMovedError,
    TableMovedWarning,
    TokenOrderError,
    UnsupportedFeatureError,
    WriterExpiredError,
)
from crdt_mor.events import migration
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.steps import Steps
from crdt_mor.model.timeline import Timeline
from crdt_mor.payloads import Counter, Max, ORSet, PartialUpdate
from crdt_mor.results import Migrated, MigrationProgress
from crdt_mor.store.memory import MemoryStore
from crdt_mor.store.open import absolute
from crdt_mor.testing.clock import SimulatedEnvironment
from crdt_mor.testing.faults import ProcessDied
from tests.inside import session_of, tail_of
from tests.stores import Dying, ScriptedStore
from tests.table.helpers import SCHEMA, Make, Place, Places, data_files, frame, rows
from tests.tiers import slow

Move = Callable[..., Migrated]

ROWS = [("a", "eu", 1), ("b", "eu", 2), ("c", "us", 3), ("d", "us", 4)]


def store_of(place: Place) -> dict[str, Any]:
    """What names a place beside its address."""
    return {} if place.by_uri else {"store": place.store}


@pytest.fixture
def there(places: Places) -> Place:
    """Where the table moves to."""
    return places("moved")


@pytest.fixture
def move(there: Place) -> Move:
    """Migrate a table there; keywords as in `migrate`."""

    def migrate(table: Table, **wanted: Any) -> Migrated:
        return table.maintenance.migrate(there.uri, **store_of(there) | wanted)

    return migrate


@pytest.fixture
def table(make: Make) -> Table:
    table = make(buckets=2)
    table.upsert(frame(*ROWS))
    return table


def ids(table: Table, **scan: Any) -> list[tuple[object, ...]]:
    return rows(table, "id", "region", "n", **scan)


def at(phase: str, do: Callable[[], object], *, parts: int | None = None) -> Callable[[MigrationProgress], None]:
    """Something that happens once, when a migration first says that it is in a phase."""
    done = False

    def tell(progress: MigrationProgress) -> None:
        nonlocal done
        if not done and progress.phase == phase and parts in (None, progress.parts):
            done = True
            do()

    return tell


closed = "settle"


def die() -> None:
    raise ProcessDied


# --- what arrives -----------------------------------------------------------------------------------------------------


def test_a_table_moves_to_more_buckets(table: Table, there: Place, move: Move) -> None:
    table.delete(keys=["b"])
    table.set_properties({"owner": "me"})
    done = move(table, buckets=8)
    moved = there.open()
    assert ids(moved) == ids(table) == [ROWS[0], *ROWS[2:]]
    assert (moved.config.buckets, moved.config.key, moved.properties) == (8, table.config.key, {"owner": "me"})
    assert (done.uri, done.rows, done.copied_rows) == (there.uri, 3, 3)
    assert "3 rows" in str(done)
    moved.upsert(frame(("b", "eu", 9)))
    assert ("b", "eu", 9) in ids(moved)
    assert len(ids(table)) == 3


def test_an_empty_table_moves(make: Make, there: Place, move: Move) -> None:
    done = move(make())
    assert (done.rows, done.copied_rows) == (0, 0)
    there.open().upsert(frame(*ROWS))


def test_what_is_written_meanwhile_arrives_as_well(table: Table, there: Place, move: Move) -> None:
    def write() -> None:
        table.upsert(frame(("a", "eu", 10), ("e", "us", 5)))
        table.delete(keys=["b"])

    move(table, on_progress=at("copy", write))
    assert ids(there.open()) == ids(table) == [("a", "eu", 10), ("c", "us", 3), ("d", "us", 4), ("e", "us", 5)]


def test_overwrites_and_columns_that_come_meanwhile_arrive_as_well(make: Make, there: Place, move: Move) -> None:
    table = make(partition_by="region", buckets=2)
    table.upsert(frame(*ROWS))

    def write() -> None:
        table.overwrite(frame(("z", "eu", 7)), partitions=["eu"])
        grown = frame(("c", "us", 8)).append_column("new", pa.array([1.5]))
        table.upsert(grown, schema_mode="merge")
        table.maintenance.compact()

    move(table, on_progress=at("copy", write), buckets=3)
    moved = there.open()
    assert rows(moved, "id", "n", "new") == rows(table, "id", "n", "new")
    assert rows(moved, "id", "n", "new") == [("c", 8, 1.5), ("d", 4, None), ("z", 7, None)]


def test_migrate_to_other_settings_lets_writers_omit_added_columns(table: Table, there: Place, move: Move) -> None:
    added = frame(("c", "us", 8)).append_column("new", pa.array([1])).append_column("other", pa.array([2]))
    table.upsert(added, schema_mode="merge")
    move(table, merge={"new": Max()}, partition_by="region")
    moved = there.open()
    moved.upsert(frame(("e", "eu", 5)).append_column("new", pa.array([3])))
    assert rows(moved, "id", "new", "other", filter="new is not null") == [("c", 1, 2), ("e", 3, None)]
    with pytest.raises(SchemaMismatchError, match=r"missing=\['new'\]"):
        moved.upsert(frame(("e", "eu", 5)))


def test_columns_that_come_without_rows_arrive_as_well(table: Table, there: Place, move: Move) -> None:
    tx = begun(table, ("a", "eu", 5))
    tx.upsert(frame(("b", "eu", 6)).append_column("new", pa.array([1])), schema_mode="merge")
    move(table, on_progress=at(closed, lambda: tx.__exit__(None, None, None), parts=0))
    assert there.open().schema == table.schema


@pytest.mark.slow
def test_states_of_payloads_arrive_as_they_are(make: Make, there: Place, move: Move) -> None:
    schema = pa.schema([("id", pa.string()), ("views", pa.int64()), ("tags", pa.list_(pa.string()))])

    def row(views: int, *tags: str) -> pa.Table:
        return pa.table({"id": ["a"], "views": [views], "tags": [list(tags)]}, schema=schema)

    table = make(schema=schema, key="id", merge={"views": Counter(), "tags": ORSet()})
    table.upsert(row(1, "x"))
    table.upsert(row(2, "y"))
    late = table.transaction()
    late.__enter__()
    late.upsert(row(10, "z"))

    def end() -> None:
        late.__exit__(None, None, None)

    move(table, on_progress=at(closed, end, parts=0), buckets=2)
    moved = there.open()
    (found,) = moved.scan().to_arrow().to_pylist()
    assert (found["views"], sorted(found["tags"])) == (13, ["x", "y", "z"])
    moved.upsert(row(100, "w"))
    (found,) = moved.scan().to_arrow().to_pylist()
    assert (found["views"], sorted(found["tags"])) == (113, ["w", "x", "y", "z"])


def test_ordered_deletes_go_on_blocking_older_rows(make: Make, there: Place, move: Move) -> None:
    table = make(ordering="n", buckets=2)
    table.upsert(frame(("a", "eu", 1), ("b", "eu", 2), ("c", "eu", 3)))
    table.delete(frame(("a", "eu", 5)))
    move(table, buckets=4, on_progress=at("copy", lambda: table.delete(frame(("b", "eu", 6)))))
    moved = there.open()
    moved.upsert(frame(("a", "us", 4), ("b", "us", 5), ("c", "us", 2)))
    assert ids(moved) == [("c", "eu", 3)]
    moved.upsert(frame(("a", "us", 6), ("b", "us", 7)))
    assert ids(moved) == [("a", "us", 6), ("b", "us", 7), ("c", "eu", 3)]


def test_a_key_that_goes_back_in_its_order_does_so_in_the_copy(make: Make, there: Place, move: Move) -> None:
    table = make(ordering="n")
    table.upsert(frame(("a", "eu", 9)))

    def write() -> None:
        table.delete(frame(("a", "eu", None)).select(["id"]), plain=True)
        table.upsert(frame(("a", "us", 1)))

    move(table, on_progress=at("copy", write))
    assert ids(there.open()) == [("a", "us", 1)]


@pytest.mark.parametrize(
    ("before", "after", "later"),
    [
        ({}, {"merge": {"n": Counter()}}, ("a", "eu", 11)),
        ({"merge": {"n": Counter()}}, {"merge": "latest"}, ("a", "eu", 10)),
        ({"merge": {"n": Counter()}}, {"merge": {"n": Max()}}, ("a", "eu", 10)),
        ({"ordering": "n"}, {"merge": "latest"}, ("a", "eu", 10)),
        ({}, {"ordering": "n"}, ("a", "eu", 10)),
        ({}, {"merge": PartialUpdate()}, ("a", "eu", 10)),
    ],
    ids=str,
)
def test_another_merge_begins_with_what_readers_see(
    make: Make, there: Place, move: Move, before: dict[str, Any], after: dict[str, Any], later: tuple[object, ...]
) -> None:
    table = make(**before)
    table.upsert(frame(("a", "eu", 1), ("b", "eu", 2), ("c", "eu", 3)))
    if before.get("ordering"):
        table.delete(frame(("b", "eu", 9)))
    else:
        table.delete(keys=["b"])
    move(table, on_progress=at("copy", lambda: table.upsert(frame(("c", "us", 5)))), **after)
    moved = there.open()
    assert ids(moved) == ids(table)
    moved.upsert(frame(("a", "eu", 10), ("b", "eu", 7)))
    assert ids(moved)[:2] == [later, ("b", "eu", 7)]


def test_the_layout_comes_along_or_is_another(make: Make, there: Place, move: Move, places: Places) -> None:
    table = make(cluster_by="region", compression="lz4")
    table.upsert(frame(*ROWS))
    table.set_properties({"owner": "me"})
    kept = {"crdt_mor.compression": "lz4", "owner": "me"}
    move(table)
    moved, third = there.open(), places("third")
    assert moved.properties == {"crdt_mor.cluster_by": "region", **kept}
    moved.maintenance.migrate(third.uri, cluster_by=["n", "region"], cluster_order="z-order", **store_of(third))
    assert third.open().properties == {
        "crdt_mor.cluster_by": "n,region", "crdt_mor.cluster_order": "z-order", **kept,
    }  # fmt: skip
    with pytest.raises(InvalidInputError, match="a cluster_by column does not exist"):
        third.open().maintenance.migrate("fourth", store=MemoryStore(), cluster_by="nothing")
    third.open().maintenance.migrate("fourth", store=(last := MemoryStore()), cluster_by=())
    assert Table("fourth", opening=Opening(store=last)).properties == kept
    assert ids(Table("fourth", opening=Opening(store=last))) == ROWS


# --- partitions -------------------------------------------------------------------------------------------------------


def test_a_table_gets_partitions_and_rows_move_between_them(table: Table, there: Place, move: Move) -> None:
    move(table, partition_by="region", on_progress=at("copy", lambda: table.upsert(frame(("a", "us", 7)))))
    moved = there.open()
    assert ids(moved) == ids(table) == [("a", "us", 7), *ROWS[1:]]
    assert {name.partition("/")[0] for name in data_files(there)} == {"region=eu", "region=us"}


def test_a_table_loses_its_partitions(make: Make, there: Place, move: Move) -> None:
    table = make(partition_by="region", buckets=2)
    table.upsert(frame(*ROWS))

    def write() -> None:
        with table.transaction() as tx:  # from one partition to another
            tx.delete(frame(("a", "eu", None)).select(["id", "region"]))
            tx.upsert(frame(("a", "us", 7)))

    move(table, partition_by=(), on_progress=at("copy", write))
    assert ids(there.open()) == ids(table) == [("a", "us", 7), *ROWS[1:]]
    assert not any("/" in name for name in data_files(there))


def test_a_key_in_two_partitions_that_become_one_is_refused(make: Make, there: Place, move: Move) -> None:
    table = make(partition_by="region")
    table.upsert(frame(("a", "eu", 1), ("a", "us", 1)))
    with pytest.raises(InvalidInputError, match=r"several partitions with the same key .* key='a'"):
        move(table, partition_by=())
    assert not data_files(there)
    table.delete(frame(("a", "eu", 1)).select(["id", "region"]))
    move(table, partition_by=())
    assert ids(there.open()) == [("a", "us", 1)]


def test_a_key_that_gets_into_two_partitions_meanwhile_ends_the_migration(make: Make, there: Place, move: Move) -> None:
    table = make(partition_by="region")
    table.upsert(frame(*ROWS))
    with pytest.raises(InvalidInputError, match=r"several partitions with the same key .* key='a'"):
        move(table, partition_by=(), on_progress=at("copy", lambda: table.upsert(frame(("a", "us", 1)))))
    table.upsert(frame(("b", "us", 1)))
    assert len(ids(table)) == 6
    with pytest.raises(TableArrivingError, match="cancelled"):
        there.open().upsert(frame(*ROWS))
    with pytest.raises(TableArrivingError, match="cancelled"):
        move(table, partition_by=())


def test_an_ordered_delete_whose_new_partition_nobody_knows_is_refused(make: Make, move: Move) -> None:
    table = make(ordering="n", buckets=1)
    table.upsert(frame(*ROWS))
    table.delete(frame(("a", "eu", 5)))
    with pytest.raises(InvalidInputError, match=r"partition for it is unknown.* plain=True.* key='a'"):
        move(table, partition_by="region")
    table.upsert(frame(("x", "eu", 1)))


# --- who writes while it moves ----------------------------------------------------------------------------------------


def begun(table: Table, *statement: tuple[object, ...], **options: Any) -> Transaction:
    """A write that has begun and said what it writes."""
    tx = table.transaction(**options)
    tx.__enter__()
    tx.upsert(frame(*statement))
    return tx


def test_what_is_pending_is_waited_for(table: Table, there: Place, move: Move) -> None:
    tx = begun(table, ("p", "eu", 1))
    move(table, on_progress=at(closed, lambda: tx.__exit__(None, None, None), parts=0))
    assert tx.commit is not None
    assert ids(there.open()) == ids(table) == [*ROWS, ("p", "eu", 1)]


def test_what_is_pending_is_rolled_back(table: Table, there: Place, move: Move) -> None:
    tx = begun(table, ("p", "eu", 1))
    move(table, pending="roll_back")
    assert ids(there.open()) == ROWS
    with pytest.raises(WriterExpiredError):
        tx.__exit__(None, None, None)
    assert ids(table) == ROWS


@pytest.mark.slow
def test_a_writer_that_died_is_given_up() -> None:
    environment = SimulatedEnvironment()
    store, target = MemoryStore(environment.now_ms), MemoryStore(environment.now_ms)
    table = Table.create("t", SCHEMA, key="id", opening=Opening(store=store, environment=environment))
    table.upsert(frame(*ROWS))
    other = SimulatedEnvironment(stem="dead")  # its time stands still, and so do its heartbeats
    begun(Table("t", opening=Opening(store=store, environment=other)), ("p", "eu", 1))
    done = table.maintenance.migrate("moved", store=target)
    assert done.rows == 4
    assert done.turned_away >= timedelta(minutes=1)


def test_whoever_writes_to_the_old_table_is_told_the_new_address(table: Table, there: Place, move: Move) -> None:
    job = table.jobs.plan("upsert", SCHEMA)
    pending = [begun(table, ("p", "eu", 1), token=("app", 3))]
    checkpoint = table.scan().checkpoint

    def end() -> None:
        pending.pop().__exit__(None, None, None)
        table.jobs.abandon(job)

    move(table, on_progress=at(closed, end, parts=0))
    tried: list[Callable[[], object]] = [
        lambda: table.upsert(frame(("x", "eu", 1))),
        lambda: table.append(frame(("x", "eu", 1))),
        lambda: table.delete(keys=["a"]),
        lambda: table.overwrite(frame(("x", "eu", 1))),
        table.truncate,
        lambda: table.transaction().__enter__(),
        lambda: table.jobs.plan("upsert", SCHEMA),
        table.maintenance.compact,
        table.maintenance.maintain,
        lambda: table.maintenance.erase(keys=["a"]),
        lambda: table.maintenance.restore(1),
        lambda: table.set_properties({"x": "y"}),
        lambda: table.maintenance.migrate(there.uri + "2", store=MemoryStore()),
    ]
    for write in tried:
        with pytest.raises(TableMovedError, match="open the table at its new address") as refused:
            write()
        assert refused.value.uri == there.uri
    assert table.upsert(frame(("x", "eu", 1)), token=("app", 3)).repeated
    assert len(ids(table)) == 5
    assert table.changes(checkpoint).to_arrow().num_rows == 1
    assert table.history().num_rows
    moved = there.open()
    assert moved.upsert(frame(("x", "eu", 1)), token=("app", 3)).repeated
    assert not moved.upsert(frame(("x", "eu", 1)), token=("app", 4)).repeated


def test_migrate_keeps_a_token_unknown_that_a_restore_made_unknown(
    table: Table, there: Place, move: Move, places: Places
) -> None:
    table.upsert(frame(("a", "eu", 2)), token=("first", 1))
    move(table)
    moved = there.open()  # its opening stands for the commits of before, whose tokens it cannot tell apart
    kept = moved.upsert(frame(("x", "eu", 1)))
    moved.upsert(frame(("y", "eu", 1)), token=("app", 1))
    moved.maintenance.restore(kept)
    last = places("last")
    moved.maintenance.migrate(last.uri, **store_of(last))
    for number in (0, 1):
        with pytest.raises(TokenOrderError, match="last token number is unknown"):
            last.open().upsert(frame(("y", "eu", 1)), token=("app", number))
    assert not last.open().upsert(frame(("y", "eu", 1)), token=("app", 2)).repeated


def test_the_new_table_takes_no_writes_before_it_is_whole(table: Table, there: Place, move: Move) -> None:
    def write() -> None:
        arriving = there.open()
        for token in (None, ("app", 1)):
            with pytest.raises(TableArrivingError, match="write again afterwards"):
                arriving.upsert(frame(("x", "eu", 1)), token=token)
        with pytest.raises(TableArrivingError):
            arriving.maintenance.restore("now")
        with pytest.raises(TableArrivingError):
            arriving.maintenance.migrate(there.uri + "2", store=MemoryStore())
        assert ids(arriving) == ROWS

    move(table, on_progress=at("copy", write))
    there.open().upsert(frame(("x", "eu", 1)))


def test_the_new_table_answers_for_no_moment_before_it_was_opened(table: Table, there: Place, move: Move) -> None:
    seen: list[Any] = []

    def look() -> None:
        seen.extend([there.open().version, there.open().scan().checkpoint])

    move(table, on_progress=at("follow", look))
    move_again = at("copy", look)
    move_again(MigrationProgress("copy", 1, 1, 0, 0))
    moved = there.open()
    opened = moved.version
    moved.upsert(frame(("x", "eu", 1)))
    assert ids(moved, as_of=opened) == ROWS
    assert rows(moved, "id", as_of=opened) == rows(table, "id")
    assert moved.changes(None).to_arrow().num_rows == 5
    with pytest.raises(SnapshotExpiredError):
        moved.scan(as_of=1).to_arrow()
    with pytest.raises(SnapshotExpiredError):
        moved.maintenance.restore(1)
    with pytest.raises(CheckpointExpiredError):
        moved.changes(None, images=True).to_arrow()


def test_times_go_on_after_those_of_the_old_table() -> None:
    ahead, behind = SimulatedEnvironment(1_700_000_050_000, stem="ahead"), SimulatedEnvironment()
    store, target = MemoryStore(behind.now_ms), MemoryStore(behind.now_ms)
    table = Table.create("t", SCHEMA, key="id", opening=Opening(store=store, environment=ahead))
    last = table.upsert(frame(*ROWS))
    late = Table("t", opening=Opening(store=store, environment=behind))
    late.maintenance.migrate("moved", store=target)
    commit = Table("moved", opening=Opening(store=target, environment=behind)).upsert(frame(("x", "eu", 1)))
    assert commit.requested_at > last.completed_at


def test_history_that_a_migration_follows_is_kept(table: Table, there: Place, move: Move) -> None:
    def clean() -> None:
        table.upsert(frame(("a", "eu", 10)))
        table.maintenance.compact()
        table.maintenance.clean(keep=timedelta(0))

    move(table, on_progress=at("copy", clean))
    assert ids(there.open()) == ids(table)


@pytest.mark.parametrize("keep", [timedelta(0), timedelta(minutes=30)], ids=["all history goes", "half an hour stays"])
def test_a_clean_leaves_the_files_that_a_migration_has_still_to_follow(keep: timedelta) -> None:
    environment = SimulatedEnvironment()
    here, there = MemoryStore(environment.now_ms), MemoryStore(environment.now_ms)
    table = Table.create("t", SCHEMA, key="id", buckets=1, opening=Opening(store=here, environment=environment))
    table.upsert(frame(*ROWS))
    kept: list[tuple[int, list[tuple[object, ...]]]] = []

    def others() -> None:
        other = Table("t", opening=Opening(store=here, environment=environment))
        for number in range(6):
            environment.sleep(1_200)
            kept.append((other.upsert(frame(("a", "eu", number), (f"k{number}", "us", number))).version, ids(other)))
            if number % 2:
                other.maintenance.compact()
                other.maintenance.clean(keep=keep, readers=timedelta(0))

    table.maintenance.migrate("moved", store=there, on_progress=at("copy", others))
    assert ids(Table("moved", opening=Opening(store=there, environment=environment))) == ids(table) == kept[-1][1]
    assert [ids(table, as_of=version) for version, _ in kept] == [rows for _, rows in kept]


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_wrong_uses_are_named(table: Table, place: Place, there: Place, move: Move, places: Places) -> None:
    with pytest.raises(InvalidInputError, match="cannot move to its own address"):
        table.maintenance.migrate(place.uri, **store_of(place))
    with pytest.raises(InvalidInputError, match="pending"):
        move(table, pending="kill")
    places("other").create(schema=SCHEMA, key="id", buckets=4).upsert(frame(*ROWS))
    other = places("other")
    with pytest.raises(TableExistsError, match="already contains another table"):
        table.maintenance.migrate(other.uri, buckets=4, **store_of(other))
    assert len(ids(table)) == 4
    table.upsert(frame(("x", "eu", 1)))


def test_what_goes_on_asks_for_the_same(table: Table, there: Place, move: Move) -> None:
    with pytest.raises(ProcessDied):
        move(table, buckets=3, on_progress=at("copy", die))
    with pytest.raises(TableExistsError, match="another buckets"):
        move(table, buckets=4)
    with pytest.raises(InvalidInputError, match="another migration of this table is in progress"):
        table.maintenance.migrate(there.uri + "2", store=MemoryStore())
    for call, name in (
        (lambda: table.maintenance.restore("now"), "restore"),
        (lambda: table.maintenance.erase(keys=["a"]), "erase from"),
    ):
        with pytest.raises(InvalidInputError, match=f"{name} the new table after the migration"):
            call()
    move(table, buckets=3)
    assert ids(there.open()) == ROWS


def test_calling_again_when_all_is_over_does_nothing(table: Table, there: Place, move: Move) -> None:
    first = move(table)
    there.open().upsert(frame(("x", "eu", 1)))
    again = move(table)
    assert (again.copied_rows, again.commits, again.rows) == (0, 0, 5)
    assert again.turned_away == first.turned_away


def test_a_moved_table_moves_on(table: Table, there: Place, move: Move, places: Places) -> None:
    move(table, buckets=3)
    moved, third = there.open(), places("third")
    moved.upsert(frame(("x", "eu", 1)), token=("app", 1))
    moved.maintenance.migrate(third.uri, buckets=5, **store_of(third))
    last = third.open()
    assert ids(last) == [*ROWS, ("x", "eu", 1)]
    assert last.upsert(frame(("x", "eu", 2)), token=("app", 1)).repeated
    with pytest.raises(TableMovedError) as refused:
        table.upsert(frame(("x", "eu", 1)))
    assert refused.value.uri == there.uri


def test_a_table_that_hudi_made_stays(place: Place, move: Move, monkeypatch: pytest.MonkeyPatch, make: Make) -> None:
    table = make()
    monkeypatch.setattr("crdt_mor.model.config.TableConfig.ours", property(lambda _: False))
    with pytest.raises(UnsupportedFeatureError, match="its writers would not notice the move"):
        move(table)


# --- giving up --------------------------------------------------------------------------------------------------------


def cancel(table: Table, there: Place, **options: Any) -> bool:
    return table.maintenance.cancel_migration(**store_of(there), **options)


@pytest.mark.parametrize("phase", ["copy", "settle"])
def test_a_migration_is_given_up(table: Table, there: Place, move: Move, phase: str) -> None:
    assert not cancel(table, there)
    with pytest.raises(ProcessDied):
        move(table, on_progress=at(phase, die))
    if phase == closed:
        with pytest.raises(TableMovedError):
            table.upsert(frame(("x", "eu", 1)))
    assert cancel(table, there)
    assert not cancel(table, there)
    table.upsert(frame(("x", "eu", 1)))
    assert len(ids(table)) == 5
    with pytest.raises(TableArrivingError, match="cancelled"):
        there.open().upsert(frame(*ROWS))
    with pytest.raises(TableArrivingError, match="cancelled"):
        move(table)
    table.upsert(frame(("y", "eu", 1)))
    table.maintenance.restore(1)  # nothing is known of the migration any more
    again = MemoryStore()
    table.maintenance.migrate("again", store=again)
    assert ids(Table("again", opening=Opening(store=again))) == ids(table)


def test_what_another_process_gives_up_ends_for_all(table: Table, there: Place, move: Move) -> None:
    with pytest.raises((TableArrivingError, InvalidInputError), match=r"given up|cancelled"):
        move(table, on_progress=at("copy", lambda: cancel(table, there)))
    table.upsert(frame(("x", "eu", 1)))


def test_nothing_is_given_up_once_the_new_table_takes_writes(table: Table, there: Place, move: Move) -> None:
    move(table)
    with pytest.raises(InvalidInputError, match="takes writes"):
        cancel(table, there)
    with pytest.raises(TableMovedError):
        table.upsert(frame(("x", "eu", 1)))


def test_a_table_that_was_removed_is_said_to_be(table: Table, there: Place, move: Move) -> None:
    with pytest.raises(ProcessDied):
        move(table, on_progress=at("copy", die))
    nowhere = MemoryStore()
    with pytest.raises(InvalidInputError, match="removed=True"):
        table.maintenance.cancel_migration(store=nowhere)
    assert table.maintenance.cancel_migration(store=nowhere, removed=True)
    table.upsert(frame(("x", "eu", 1)))


def beside(patch: pytest.MonkeyPatch, event: str, do: Callable[..., object]) -> None:
    """What another process does, once, just before one that migrates derives this event from the newest value."""
    derived, done = getattr(migration, event), False

    def derive(*args: Any, **options: Any) -> Steps[Timeline]:
        nonlocal done
        if not done:
            done = True
            do(*args)
        value: Timeline = yield from derived(*args, **options)
        return value

    patch.setattr(migration, event, derive)


def test_a_migration_that_is_given_up_while_another_process_announces_it_leaves_the_table_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, there, elsewhere = MemoryStore(), MemoryStore(), MemoryStore()
    table = Table.create("t", SCHEMA, key="id", buckets=1, opening=Opening(store=here))
    table.upsert(frame(*ROWS))
    with pytest.raises(ProcessDied):
        table.maintenance.migrate("moved", store=there, on_progress=at("copy", die))
    beside(
        monkeypatch,
        "announce",
        lambda *_: Table("t", opening=Opening(store=here)).maintenance.cancel_migration(store=there),
    )
    with pytest.raises(TableArrivingError, match="cancelled"):
        Table("t", opening=Opening(store=here)).maintenance.migrate("moved", store=there)
    assert tail_of(table).moving is None
    table.maintenance.migrate("elsewhere", store=elsewhere)
    assert ids(Table("elsewhere", opening=Opening(store=elsewhere))) == ROWS


def test_a_table_that_was_left_moving_to_a_given_up_one_is_reopened_by_the_next_call() -> None:
    here, there = MemoryStore(), MemoryStore()
    table = Table.create("t", SCHEMA, key="id", buckets=1, opening=Opening(store=here))
    table.upsert(frame(*ROWS))
    with pytest.raises(ProcessDied):
        table.maintenance.migrate("moved", store=there, on_progress=at("copy", die))
    announced = tail_of(table).moving
    assert announced is not None
    table.maintenance.cancel_migration(store=there)
    session = session_of(table)
    session.remember(session.run(migration.announce(session.publisher, session.tail(), announced)))  # and dies
    with pytest.raises(TableArrivingError, match="cancelled"):
        table.maintenance.migrate("moved", store=there)
    table.maintenance.migrate("elsewhere", store=MemoryStore())


def test_another_table_at_the_new_address_is_not_taken_for_the_one_that_was_made() -> None:
    here, there = MemoryStore(), MemoryStore()
    table = Table.create("t", SCHEMA, key="id", buckets=1, opening=Opening(store=here))
    table.upsert(frame(*ROWS))
    with pytest.raises(ProcessDied):
        table.maintenance.migrate("moved", store=there, on_progress=at("copy", die))
    with pytest.raises(InvalidInputError, match=r"removed=True.*the new migration"):
        table.maintenance.migrate("moved", store=(empty := MemoryStore()))
    assert not empty.list(".hoodie")
    with pytest.raises(InvalidInputError, match=r"calling migrate with its address.*asked=elsewhere"):
        table.maintenance.migrate("elsewhere", store=empty)
    other = MemoryStore()
    Table.create("moved", SCHEMA, key="id", buckets=1, opening=Opening(store=other))
    with pytest.raises(InvalidInputError, match=r"removed=True.*found=another table"):
        table.maintenance.cancel_migration(store=other)
    assert table.maintenance.cancel_migration(store=other, removed=True)
    table.upsert(frame(("x", "eu", 1)))
    Table("moved", opening=Opening(store=other)).upsert(frame(("x", "eu", 1)))


# --- crashes ----------------------------------------------------------------------------------------------------------


class Scene:
    """A table in memory with rows, deletes and a state, and a place in memory to move to."""

    def __init__(self) -> None:
        self.environment = SimulatedEnvironment()
        self.source, self.target = MemoryStore(self.environment.now_ms), MemoryStore(self.environment.now_ms)
        table = Table.create(
            "t",
            SCHEMA,
            key="id",
            merge={"n": Counter()},
            buckets=1,
            opening=Opening(store=self.source, environment=self.environment),
        )
        table.upsert(frame(*ROWS), token=("app", 1))
        table.delete(keys=["d"])

    def lives(self, at: int, *, after: bool, **wanted: Any) -> bool:
        """Migrate in a process that dies at that change; whether it came to the end."""
        dying = Dying(at=at, after=after)
        source, target = (ScriptedStore(store, dying) for store in (self.source, self.target))
        table = Table("t", opening=Opening(store=source, environment=self.environment))
        try:
            table.maintenance.migrate("moved", store=target, buckets=2, on_progress=self.beside, **wanted)
        except ProcessDied:
            return False
        return True

    def beside(self, progress: MigrationProgress) -> None:
        """Somebody writes once, when the copy is there; a process that dies before it says so does not let them."""
        if progress.phase == "copy":
            table = Table("t", opening=Opening(store=self.source, environment=self.environment))
            table.upsert(frame(("a", "us", 10), ("e", "us", 5)), token=("app", 2))

    def check(self) -> None:
        moved = Table("moved", opening=Opening(store=self.target, environment=self.environment))
        old = Table("t", opening=Opening(store=self.source, environment=self.environment))
        written = [("a", "us", 11), ("b", "eu", 2), ("c", "us", 3), ("e", "us", 5)]
        assert ids(moved) == ids(old)
        assert ids(old) in (written, ROWS[:3])
        number = 2 if ids(old) == written else 1
        assert moved.upsert(frame(("a", "us", 10)), token=("app", number)).repeated
        moved.upsert(frame(("a", "us", 100)), token=("app", number + 1))
        assert ids(moved)[0] == ("a", "us", 111 if number == 2 else 101)
        with pytest.raises(TableMovedError):
            old.upsert(frame(("a", "us", 100)))


@pytest.mark.costly
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("every", [13, slow(1)])
def test_a_process_may_die_at_every_change_and_another_one_goes_on(every: int, after: bool) -> None:
    for moment in range(1, 1_000, every):
        scene = Scene()
        if scene.lives(moment, after=after):
            assert moment > 40
            break
        assert scene.lives(10_000, after=after), moment
        scene.check()
    else:
        pytest.fail("it never came to its end")


@pytest.mark.parametrize("after", [False, True])
def test_processes_that_die_one_after_another_come_to_the_end(after: bool) -> None:
    scene = Scene()
    lives = 1
    while not scene.lives(15 + lives % 7, after=after):
        scene.environment.sleep(1)
        lives += 1
        assert lives < 100
    assert lives > 2
    scene.check()


@pytest.mark.parametrize("every", [11, slow(1)])
def test_a_process_may_die_giving_up_and_another_one_goes_on(every: int) -> None:
    for moment in range(1, 100, every):
        scene = Scene()
        assert not scene.lives(40, after=True)
        dying = Dying(at=moment, after=True)
        source, target = (ScriptedStore(store, dying) for store in (scene.source, scene.target))
        table = Table("t", opening=Opening(store=source, environment=scene.environment))
        try:
            table.maintenance.cancel_migration(store=target)
        except ProcessDied:
            table = Table("t", opening=Opening(store=scene.source, environment=scene.environment))
            table.maintenance.cancel_migration(store=scene.target)
            table.upsert(frame(("y", "eu", 1)))
            with pytest.raises(TableArrivingError):
                Table("moved", opening=Opening(store=scene.target, environment=scene.environment)).upsert(frame(*ROWS))
        else:
            return
    pytest.fail("it never came to its end")


def test_two_processes_migrate_at_once(table: Table, there: Place, move: Move) -> None:
    reports: list[Migrated] = []

    def begin_as_well() -> None:
        reports.append(move(Table(table.uri, storage_options=table.storage_options), buckets=3))

    first = at("copy", begin_as_well) if there.by_uri else None
    reports.append(move(table, buckets=3, on_progress=first))
    assert ids(there.open()) == ROWS
    assert {report.rows for report in reports} == {4}


def test_a_process_opens_the_new_table_while_another_one_aims_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one saw that the old table was closed, and notes the step that follows, in which nothing is."""
    here, there = MemoryStore(), MemoryStore()
    table = Table.create("t", SCHEMA, key="id", buckets=1, opening=Opening(store=here))
    table.upsert(frame(*ROWS))
    aimed: list[Timeline] = []

    def aim(publisher: TablePublisher, known: Timeline, source: Timeline, _: object) -> None:
        other = session_of(Table("moved", opening=Opening(store=there)))
        aimed.append(other.run(migration.aim(publisher, known, source.clock, 0)))

    beside(monkeypatch, "open_target", aim)
    moved = table.maintenance.migrate("moved", store=there)
    assert aimed
    assert moved.rows == len(ROWS)
    assert ids(Table("moved", opening=Opening(store=there))) == ROWS
    with pytest.raises(TableMovedError):
        table.upsert(frame(("x", "eu", 1)))


def test_opening_a_moved_table_warns_of_the_new_address() -> None:
    store, target = MemoryStore(), MemoryStore()
    table = Table.create("t", SCHEMA, key="id", partition_by="region", opening=Opening(store=store))
    table.upsert(frame(*ROWS))
    assert table.inspect.migration() is None
    table.maintenance.migrate("moved", store=target)
    for read in (lambda: Table("t", opening=Opening(store=store)), table.changes):
        with pytest.warns(TableMovedWarning, match=r"open the new address\. moved_to=moved") as told:
            read()
        assert told[0].filename == __file__
    status = table.inspect.migration()
    assert status is not None
    assert (status.role, status.phase, status.uri) == ("source", "closed", "moved")
    assert status.since is not None
    assert Table("moved", opening=Opening(store=target)).inspect.migration() is None


def test_inspect_migration_under_way_names_the_other_table(monkeypatch: pytest.MonkeyPatch) -> None:
    store, target = MemoryStore(), MemoryStore()
    table = Table.create("t", SCHEMA, key="id", partition_by="region", opening=Opening(store=store))
    table.upsert(frame(*ROWS))
    seen = []

    def look(_: object) -> None:
        for name, place in (("t", store), ("moved", target)):
            status = Table(name, opening=Opening(store=place)).inspect.migration()
            seen.append(None if status is None else (status.role, status.phase, status.uri))

    table.maintenance.migrate("moved", store=target, on_progress=look)
    assert seen[:2] == [("source", "copying", "moved"), ("target", "copying", absolute("t"))]

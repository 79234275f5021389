"""A table copied from any store to any other: what comes along, what is refused by name, and what its report says."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Commit, InvalidInputError, Opening, Table
from crdt_mor.errors import FormatError, TableExistsError, TableNotFoundError, UnsupportedFeatureError
from crdt_mor.log.paths import COPIED, PROPERTIES
from crdt_mor.model.config_properties import OUR_ID
from crdt_mor.results import Copied, CopyProgress
from crdt_mor.store import LocalStore, MemoryStore, Store, across, objects
from crdt_mor.store.paths import in_hoodie
from tests.inside import store_of
from tests.simulated import Simulated
from tests.stores import ScriptedStore, WatchedStore, first
from tests.table.helpers import Place
from tests.table.version_six import VersionSix
from tests.tiers import slow

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


def rows(*ids: int, n: int = 0) -> pl.DataFrame:
    return pl.DataFrame({"id": ids, "n": [n] * len(ids)})


def shown(table: Table) -> list[tuple[object, ...]]:
    return sorted(table.to_polars().rows())


def written(place: Place) -> Table:
    """Base files, logs above them, and a pending write that is no part of a copy."""
    table = place.create(schema=SCHEMA, key="id")
    table.upsert(rows(*range(2000)))
    table.maintenance.compact()
    table.upsert(rows(1, 2, n=1))
    return table


# --- any store to any other -------------------------------------------------------------------------------------------

KINDS = ("local", "memory", "s3", "azure")


@pytest.mark.parametrize(
    ("here", "there"),
    [pair if pair == ("memory", "local") else slow(*pair) for pair in product(KINDS, KINDS)],
)
def test_a_table_is_copied_from_any_store_to_any_other(
    here: str, there: str, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(across, "PART_BYTES", 1000)  # in parts, and within a bucket by the provider
    monkeypatch.setattr(objects, "COPIED_HERE_MAX", 2000)
    source, target = Place.of(here, fast_path / "source"), Place.of(there, fast_path / "target")
    table = written(source)
    leads: dict[str, Any] = target._store or ({} if there == "local" else {"store": target.store})
    with table.transaction() as pending:
        pending.upsert(rows(7, n=7))
        assert table.copy(target.uri, **leads).pending == 1
    copy = target.open()
    assert shown(copy) == sorted([(id_, int(id_ in (1, 2))) for id_ in range(2000)])
    done = table.copy(target.uri, update=True, **leads)
    assert (done.pending, done.version, done.objects < done.kept) == (0, table.version, True)
    assert shown(copy) == shown(table) == shown(target.open())


# --- what comes along -------------------------------------------------------------------------------------------------


@pytest.fixture
def table(simulated: Simulated) -> Table:
    made = simulated.create(SCHEMA, key="id", buckets=2)
    made.upsert(rows(1, 2, 3), token=("shop", 1))
    return made


@pytest.fixture
def target(simulated: Simulated) -> MemoryStore:
    return MemoryStore(simulated.environment.now_ms)


def opened(table: Table, target: Store) -> Table:
    return Table("c", opening=Opening(store=target, environment=table.environment))


def test_tokens_checkpoints_properties_and_history_go_on_at_the_copy(table: Table, target: MemoryStore) -> None:
    checkpoint = table.scan().checkpoint
    table.set_properties({"owner": "ops"})
    table.upsert(rows(4), token=("shop", 2))
    table.copy("c", store=target)
    copy = opened(table, target)
    assert copy.upsert(rows(4, n=9), token=("shop", 2)).repeated
    assert copy.changes(since=checkpoint).to_polars()["id"].to_list() == [4]
    assert copy.properties == table.properties
    assert copy.history().to_pylist() == table.history().to_pylist()
    assert copy.scan(as_of=table.version - 1).to_polars().height == 3


def test_a_pending_write_of_the_table_is_given_up_in_the_copy_and_completes_in_the_table(
    table: Table, target: MemoryStore
) -> None:
    with table.transaction() as pending:
        pending.upsert(rows(4))
        table.copy("c", store=target)
    copy = opened(table, target)
    table.environment.sleep(3600)
    copy.maintenance.maintain()
    assert not copy.inspect.timeline().filter(pa.compute.field("state") == "requested").num_rows
    assert len(shown(table)) == 4
    assert len(shown(copy)) == 3


def test_an_erased_row_goes_from_the_copy_with_the_next_update(
    table: Table, target: MemoryStore, uncompressed: None
) -> None:
    made = Table.create(
        "names",
        pa.schema([("id", pa.string())]),
        key="id",
        opening=Opening(store=MemoryStore(), environment=table.environment),
    )
    made.upsert(pl.DataFrame({"id": ["ada@example.org", "bob"]}))
    made.maintenance.compact()
    made.copy("c", store=target)
    assert [stat for stat in target.walk("") if b"ada@example.org" in (target.read(stat.path) or b"")]
    made.maintenance.erase(keys=["ada@example.org"])
    made.copy("c", update=True, store=target)
    everything = [stat.path for folder in ("", ".hoodie") for stat in target.walk(folder)]
    assert not [path for path in everything if b"ada@example.org" in (target.read(path) or b"")]


def test_properties_that_were_changed_since_are_those_of_the_copy_after_the_next_update(
    table: Table, target: MemoryStore
) -> None:
    """A handover and its end put the file of properties anew, the one object of a table that changes."""
    table.copy("c", store=target)
    before = target.read(PROPERTIES)
    table.maintenance.handover()
    table.maintenance.takeback()
    table.copy("c", update=True, store=target)
    assert before != target.read(PROPERTIES) == store_of(table).read(PROPERTIES)
    assert shown(opened(table, target)) == shown(table)


def test_progress_is_told_and_what_it_raises_stops_the_copy_which_can_be_made_again(
    table: Table, target: MemoryStore
) -> None:
    seen: list[CopyProgress] = []

    def stop(now: CopyProgress) -> None:
        seen.append(now)
        if now.objects == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.copy("c", store=target, on_progress=stop)
    with pytest.raises(TableNotFoundError):
        opened(table, target)
    done = table.copy("c", store=target, on_progress=seen.append)
    last = seen[-1]
    assert (last.objects, last.bytes) == (last.of_objects, last.of_bytes)
    assert done.kept + done.objects == last.objects
    assert done.kept > 0


@pytest.mark.parametrize("later", [1, 3_600_000])
def test_a_copy_that_has_had_as_many_commits_as_the_table_since_is_not_taken_for_the_moment_that_was_noted(
    table: Table, target: MemoryStore, later: int
) -> None:
    """An update dies when it has noted its moment; then one commit follows in the copy, as one did in the table."""
    table.copy("c", store=target)
    table.upsert(rows(1, n=1))

    def stop(_: CopyProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.copy("c", update=True, store=target, on_progress=stop)
    table.environment.sleep(later / 1000)
    copy = opened(table, target)
    copy.upsert(rows(9))
    table.upsert(rows(2, n=2))
    with pytest.raises(InvalidInputError, match="its own commits"):
        table.copy("c", update=True, store=target)
    assert shown(copy) == [(1, 0), (2, 0), (3, 0), (9, 0)]


@pytest.mark.parametrize("listing", range(1, 5))
def test_a_copy_that_another_process_moves_on_while_its_notes_are_listed_has_no_commits_of_its_own(
    table: Table, target: MemoryStore, listing: int
) -> None:
    """Which also removes the note of the moment that the copy showed just before."""
    table.copy("c", store=target)
    table.upsert(rows(1, n=1))
    listings = 0

    def script(operation: str, path: str, call: Callable[[], Any]) -> Any:
        nonlocal listings
        listings += (operation, path) == ("list", COPIED)
        if (operation, path, listings) == ("list", COPIED, listing):
            table.upsert(rows(2, n=2))
            another = Table("t", opening=Opening(store=store_of(table), environment=table.environment))
            another.copy("c", update=True, store=target)
        return call()

    table.copy("c", update=True, store=ScriptedStore(target, script))
    assert listings >= listing
    assert shown(opened(table, target)) == [(1, 1), (2, 2), (3, 0)]


def test_what_is_written_to_a_copy_while_objects_are_copied_keeps_hudi_from_being_told_of_the_later_moment(
    table: Table, target: MemoryStore
) -> None:
    """Hudi's readers go by their timeline, and would show the commits of both tables."""
    table.copy("c", store=target)
    table.upsert(rows(1, n=1))
    table.maintenance.compact()
    copy, wrote = opened(table, target), list[Commit]()

    write = first("make_durable", lambda path: not in_hoodie(path), lambda: wrote.append(copy.upsert(rows(9))))
    with pytest.raises(InvalidInputError, match="its own commits"):
        table.copy("c", update=True, store=ScriptedStore(target, write))
    of_the_copy = copy.inspect.timeline()["requested_at"].to_pylist()
    told = [stat.path.rpartition("/")[2] for stat in target.list(".hoodie/timeline") if stat.path.endswith("commit")]
    assert sorted(name.partition("_")[0] for name in told) == sorted(of_the_copy)


# --- what is refused --------------------------------------------------------------------------------------------------


def hand_over(table: Table, _: MemoryStore) -> None:
    table.maintenance.handover()


def something_else(_: Table, target: MemoryStore) -> None:
    target.put("notes.txt", b"mine")


def another_table(table: Table, target: MemoryStore) -> None:
    Table.create("c", SCHEMA, key="id", opening=Opening(store=target, environment=table.environment))


def copied_already(table: Table, target: MemoryStore) -> None:
    table.copy("c", store=target)


def copied_by_hand(table: Table, target: MemoryStore) -> None:
    for folder in ("", ".hoodie"):
        for stat in store_of(table).walk(folder):
            target.put(stat.path, store_of(table).read(stat.path) or b"")


def copy_of_another_begun(table: Table, target: MemoryStore) -> None:
    other = Table.create("o", SCHEMA, key="id", opening=Opening(store=MemoryStore(), environment=table.environment))
    other.copy("c", store=target)
    target.delete(PROPERTIES)


def begun_to_move(table: Table, _: MemoryStore) -> None:
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.maintenance.migrate("elsewhere", store=MemoryStore(), on_progress=stop)


def erasing(table: Table, _: MemoryStore) -> None:
    with table.transaction() as pending:
        pending.upsert(rows(9))
        with pytest.raises(Exception, match="erase"):
            table.maintenance.erase(keys=[1])


@pytest.mark.parametrize(
    ("prepare", "error", "said"),
    [
        (hand_over, InvalidInputError, "handed over to Hudi's writers"),
        (something_else, TableExistsError, "this address is not empty"),
        (another_table, TableExistsError, "this address contains another table"),
        (copied_already, TableExistsError, "this address already contains a copy of this table"),
        (copied_by_hand, TableExistsError, "not made by crdt-mor copy"),
        (copy_of_another_begun, TableExistsError, "an unfinished copy of another table"),
        (begun_to_move, InvalidInputError, "the table is migrating to another address"),
        (erasing, InvalidInputError, "an erasure is unfinished"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_cannot_be_copied_is_refused_and_changes_nothing(
    table: Table, target: MemoryStore, prepare: Callable[[Table, MemoryStore], None], error: type[Exception], said: str
) -> None:
    prepare(table, target)
    before = {stat for folder in ("", ".hoodie") for stat in target.walk(folder)}
    with pytest.raises(error, match=said):
        table.copy("c", store=target)
    assert {stat for folder in ("", ".hoodie") for stat in target.walk(folder)} == before


def test_a_copy_of_a_table_that_hudi_made_is_moved_on(table: Table, target: MemoryStore) -> None:
    """Its properties have no id; the notes in the copy say whose it is."""
    store = store_of(table)
    properties = (store.read(PROPERTIES) or b"").decode().splitlines(keepends=True)
    store.delete(PROPERTIES)
    store.put(PROPERTIES, "".join(line for line in properties if not line.startswith(OUR_ID)).encode())
    made = Table("t", opening=Opening(store=store, environment=table.environment))
    made.copy("c", store=target)
    made.upsert(rows(4))
    made.copy("c", update=True, store=target)
    assert shown(opened(made, target)) == shown(made)
    with pytest.raises(TableExistsError, match="this address already contains a copy of this table"):
        made.copy("c", store=target)


def test_a_table_that_hudi_alone_has_written_is_refused_and_left_as_it_is() -> None:
    """Adopting its commits would be an event in a table that this release may not be able to write."""
    hudis = VersionSix(hoodie__table__timeline__timezone="UTC")
    hudis.commit(10, hudis.base(10, {"a": 1}))
    before = hudis.open()
    with pytest.raises(UnsupportedFeatureError, match="the timeline contains no event of crdt_mor"):
        before.copy("c", store=MemoryStore())
    assert store_of(before).list(".hoodie/.crdt_mor/timeline") == []


def test_a_table_is_not_copied_to_its_own_address(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="id")
    with pytest.raises(InvalidInputError, match="to its own address"):
        table.copy(f"file://{fast_path}/t")
    with pytest.raises(InvalidInputError, match="to its own address"):
        table.copy("c", store=store_of(table))


@pytest.mark.parametrize("to", ["backup", "p=a", ".hoodie/backup", ".."])
def test_a_table_is_not_copied_or_moved_into_its_own_folder_nor_around_it(fast_path: Path, to: str) -> None:
    """Hudi's readers would list the partitions of both tables, and show each row twice."""
    table = Table.create(fast_path / "lake" / "t", SCHEMA, key="id")
    with pytest.raises(InvalidInputError, match="cannot be copied to an address inside or around its own folder"):
        table.copy(fast_path / "lake" / "t" / to)
    with pytest.raises(InvalidInputError, match="cannot be moved to an address inside or around its own folder"):
        table.maintenance.migrate(fast_path / "lake" / "t" / to)
    assert [path.name for path in (fast_path / "lake").iterdir()] == ["t"]
    assert [path.name for path in (fast_path / "lake" / "t").iterdir()] == [".hoodie"]


def test_a_damaged_table_is_not_copied_and_the_damage_is_named(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    table.upsert(rows(1, 2, 3))
    (log,) = (fast_path / "t").glob(".0*.log.*")
    whole = log.read_bytes()
    log.unlink()
    with pytest.raises(FormatError, match=f"an object of the table is missing.*missing={log.name}"):
        table.copy(fast_path / "c")
    log.write_bytes(whole[:-1])
    with pytest.raises(FormatError, match="size differs from its commit"):
        table.copy(fast_path / "c")
    log.write_bytes(whole[:-9] + b"\0" * 9)
    with pytest.raises(FormatError, match="complete but damaged"):
        table.copy(fast_path / "c")
    assert isinstance(table.copy(fast_path / "d", verify=False), Copied)


def test_a_copy_whose_object_has_another_size_is_damaged(table: Table, target: MemoryStore) -> None:
    table.copy("c", store=target)
    path = next(stat.path for stat in target.walk("") if ".log." in stat.path)
    target.delete(path)
    target.put(path, b"half")
    with pytest.raises(FormatError, match="the copy is damaged"):
        table.copy("c", update=True, store=target)


def test_a_copy_in_a_folder_of_a_disk_is_durable_before_it_is_a_table(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    table.upsert(rows(1))
    target = WatchedStore(LocalStore(fast_path / "c"))
    table.copy("c", store=target)
    made = [
        path if operation == "put" else f"durable {path.rpartition('/')[0]}"
        for operation, path in target.calls
        if operation in ("put", "make_durable")
    ]
    assert made[-1] == PROPERTIES
    folders = {path.rpartition("/")[0] for path in made if not path.startswith("durable")}
    assert {folder for folder in folders if not folder.startswith(".hoodie")} <= {
        text.removeprefix("durable ") for text in made
    }
    assert made.index("durable ") < next(i for i, path in enumerate(made) if "crdt_mor/timeline/" in path)

"""A table is itself for ever: a handle, a job or a plan of one that was removed is of no use for its successor."""

from __future__ import annotations

import pickle
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, SnapshotExpiredError, Table, Transaction
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import FormatError, TableNotFoundError, TableReplacedError
from crdt_mor.events.session import Session
from crdt_mor.events.views import HudiLook
from crdt_mor.format.properties import decode_table, encode_table
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.log.paths import PROPERTIES, VERSIONS, version_path
from crdt_mor.log.steps import Put, Steps
from crdt_mor.model.instant import EPOCH
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import FORMAT
from crdt_mor.readers.follow import follow
from crdt_mor.readers.polars import scan_table
from crdt_mor.store.local import LocalStore
from crdt_mor.store.protocol import Durable, Stat
from tests.inside import look_for_hudi, run_sweep, session_of, tail_of
from tests.table.helpers import SCHEMA, Make, Place, files, frame, rows
from tests.tiers import slow

OLD = frame(*((f"k{i}", "eu", i) for i in range(8)))
NEW = frame(*((f"k{i}", "us", 10 + i) for i in range(3)))
WIDER = NEW.append_column("more", pa.array([1, 2, 3]))


def table_id(table: Table) -> str:
    found = tail_of(table).table_id
    assert found is not None
    return found


def replaced(path: str, commits: int = 1) -> Table:
    """The table that comes in the place of the one at `path`."""
    shutil.rmtree(path)
    table = Table.create(path, SCHEMA, key="id", buckets=7)
    for _ in range(commits):
        table.upsert(NEW)
    return table


def of_the_first_release(path: str) -> None:
    """A table that was just made becomes one of the release that knew of no ids."""
    file = Path(path) / PROPERTIES
    props = decode_table(file.read_bytes(), "")
    del props["crdt_mor.table.id"]
    file.write_bytes(encode_table(props | {"crdt_mor.version": "1"}))
    first = Path(path) / version_path(0)
    value = Timeline.genesis(Timeline.decode(first.read_bytes(), "").schema)
    data = value.encode().replace(b'"format":%d' % FORMAT, b'"format":1').replace(b'"table_id":null,', b"")
    first.write_bytes(data)


# --- a handle of a table that is gone ---------------------------------------------------------------------------------

DOORS: dict[str, Callable[[Table], object]] = {
    "upsert": lambda table: table.upsert(OLD),
    "append": lambda table: table.append(OLD),
    "upsert, merge": lambda table: table.upsert(WIDER, schema_mode="merge"),
    "upsert, token": lambda table: table.upsert(OLD, token=("app", 1)),
    "delete": lambda table: table.delete(keys=["k0"]),
    "delete, filter": lambda table: table.delete(where=pl.col("n") > 1),
    "jobs.plan": lambda table: table.jobs.plan("upsert", SCHEMA),
    "scan": lambda table: table.scan(),
    "scan, stable": lambda table: table.scan(consistency="stable"),
    "scan, as_of": lambda table: table.scan(as_of=1),
    "polars": scan_table,
    "changes": lambda table: table.changes(),
    "diff": lambda table: table.diff(0, 1),
    "look": look_for_hudi,
    "schema": lambda table: table.schema,
    "version": lambda table: table.version,
    "timeline": lambda table: table.inspect.timeline(),
    "files": lambda table: table.inspect.files(),
    "plan": lambda table: table.maintenance.plans.schedule(),
    "compact": lambda table: table.maintenance.compact(),
    "open_plans": lambda table: table.maintenance.plans.open(),
    "cancel": lambda table: table.maintenance.plans.cancel("20260101000000001"),
}


@pytest.mark.parametrize("commits", [0, 1, 5])
def test_a_handle_of_a_table_that_was_made_anew_is_refused_with_both_ids(make: Make, path: str, commits: int) -> None:
    first = make(buckets=4)
    first.upsert(OLD)
    first_id = table_id(first)
    old = {door: Table(path) for door in DOORS}
    new = replaced(path, commits)
    before = files(path)
    told = f"Open the table again. opened={first_id} found={table_id(new)}"
    for door, use in DOORS.items():
        with pytest.raises(TableReplacedError, match=told):
            use(old[door])
        assert files(path) == before, door
    assert len(rows(Table(path))) == (3 if commits else 0)


def test_a_handle_that_has_seen_nothing_but_the_empty_table_is_refused_too(make: Make, path: str) -> None:
    old = make()
    new = replaced(path, 0)
    with pytest.raises(TableReplacedError):
        old.upsert(OLD)
    new.upsert(NEW)
    assert len(rows(new)) == 3


def test_a_table_that_is_gone_is_not_found_and_nothing_is_made_in_its_place(make: Make, path: str) -> None:
    old = make()
    old.upsert(OLD)
    shutil.rmtree(path)
    for use in (lambda: old.upsert(OLD), old.scan, old.maintenance.compact):
        with pytest.raises(TableNotFoundError):
            use()
    assert not Path(path).exists()


def test_a_transaction_that_spans_the_removal_is_not_acknowledged(make: Make, path: str) -> None:
    old = make(buckets=1)
    old.upsert(OLD)
    tx = old.transaction().__enter__()
    tx.upsert(OLD)
    new = replaced(path)
    with pytest.raises(TableReplacedError):
        tx.__exit__(None, None, None)
    assert tx.commit is None
    assert len(rows(new)) == len(rows(Table(path))) == 3


def test_what_a_block_raises_is_not_hidden_by_the_removal_of_its_table(make: Make, path: str) -> None:
    for again in (lambda: replaced(path), lambda: shutil.rmtree(path)):
        tx = make().transaction().__enter__()
        tx.upsert(OLD)
        again()
        tx.__exit__(ZeroDivisionError, ZeroDivisionError(), None)  # raises nothing, so the block's own error goes on
        shutil.rmtree(path, ignore_errors=True)


def test_a_scan_that_was_sealed_before_shows_its_own_rows_or_says_that_they_are_gone(make: Make, path: str) -> None:
    old = make()
    old.upsert(OLD)
    scan = old.scan()
    replaced(path)
    with pytest.raises(SnapshotExpiredError):
        scan.to_arrow()


# --- settings ---------------------------------------------------------------------------------------------------------


def edit(path: str, **changes: str | None) -> None:
    """Rewrite the properties, as Hudi's own writers do."""
    file = Path(path) / PROPERTIES
    props: dict[str, str | None] = {**decode_table(file.read_bytes(), ""), **changes}
    file.write_bytes(encode_table({key: value for key, value in props.items() if value is not None}, ["rewritten"]))


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("key", {"hoodie.table.recordkey.fields": "region"}),
        ("key", {"hoodie.table.partition.fields": "region", "hoodie.table.keygenerator.type": "SIMPLE"}),
        ("buckets", {"crdt_mor.buckets": "5", "hoodie.bucket.index.num.buckets": "5"}),
        ("merge", {"crdt_mor.merge": "ordering:n"}),
    ],
    ids=str,
)
def test_a_writer_whose_settings_are_no_longer_the_tables_is_refused(
    make: Make, path: str, what: str, changes: dict[str, str]
) -> None:
    table = make()
    table.upsert(OLD)
    edit(path, **changes)
    before = files(path)
    with pytest.raises(TableReplacedError, match=f"open it again. setting={what} "):
        table.upsert(NEW)
    with pytest.raises(TableReplacedError, match=f"open it again. setting={what} "):
        table.maintenance.compact()
    assert files(path) == before


def test_properties_that_are_written_anew_as_they_were_change_nothing(make: Make, path: str) -> None:
    table = make()
    table.upsert(OLD)
    edit(path, **{"hoodie.a.setting": "of Hudi's"})
    table.upsert(NEW)
    assert len(rows(table)) == 8


def test_where_the_properties_have_lost_the_id_the_timeline_has_it(make: Make, path: str) -> None:
    table = make()
    table.upsert(OLD)
    first = table_id(table)
    edit(path, **{"crdt_mor.table.id": None})
    table.upsert(NEW)
    again = Table(path)
    again.upsert(NEW)
    assert table_id(table) == table_id(again) == first
    replaced(path)
    for handle in (table, again):
        with pytest.raises(TableReplacedError):
            handle.upsert(OLD)


def test_commits_look_at_the_properties_and_read_them_once(make: Make, place: Place) -> None:
    make()
    table, store = place.watched()
    for _ in range(3):
        table.upsert(OLD)
    assert store.paths("read").count(PROPERTIES) == 1


# --- what travels: jobs and plans -------------------------------------------------------------------------------------


def test_tasks_and_driver_of_a_job_refuse_the_next_table(make: Make, path: str) -> None:
    old = make()
    first = table_id(old)
    job = old.jobs.plan("upsert", SCHEMA)
    receipt = job.stage(OLD, task=0)
    new = replaced(path)
    before = files(path)
    told = f"opened={first} found={table_id(new)}"
    with pytest.raises(TableReplacedError, match=told):
        pickle.loads(pickle.dumps(job)).stage(OLD, task=1)
    for handle in (new, Table(path)):
        with pytest.raises(TableReplacedError, match=told):
            handle.jobs.complete(job, [receipt])
        with pytest.raises(TableReplacedError, match=told):
            handle.jobs.complete(job, [])
        handle.jobs.abandon(job)
    assert files(path) == before
    assert len(rows(new)) == 3


def test_a_plan_is_executed_and_completed_in_its_own_table_alone(make: Make, path: str) -> None:
    old = make(buckets=1)
    old.upsert(OLD)
    plan = old.maintenance.plans.schedule()
    assert plan is not None
    done = old.maintenance.plans.execute(plan)
    new = replaced(path)
    before = files(path)
    for handle in (old, new, Table(path)):
        with pytest.raises(TableReplacedError):
            handle.maintenance.plans.execute(pickle.loads(pickle.dumps(plan)))
        with pytest.raises(TableReplacedError):
            handle.maintenance.plans.complete(plan, done)
    assert files(path) == before


# --- checkpoints ------------------------------------------------------------------------------------------------------


def checkpoints(table: Table) -> dict[str, str]:
    """Checkpoints of every kind, by the consistency of the changes that go on from them."""
    return {
        "a scan's": table.scan().checkpoint,
        "a part's": table.scan().parts()[0].checkpoint,
        "the end of changes": table.changes().checkpoint,
        "the end of some changes": table.changes().limited(commits=1).checkpoint,
        "the start of changes": table.changes().since,
        "the end of stable changes": table.changes(consistency="stable").checkpoint,
        "the start of stable changes": table.changes(consistency="stable").since,
        "a stable scan's": table.scan(consistency="stable").checkpoint,
    }


def test_a_checkpoint_belongs_to_its_table(make: Make, path: str) -> None:
    old = make(buckets=1)
    old.upsert(OLD)
    taken = checkpoints(old)
    new = replaced(path, 5)
    for kind, checkpoint in taken.items():
        consistency: Literal["latest", "stable"] = "stable" if "stable" in kind else "latest"
        told = f"If the table was recreated, scan it.*={checkpoint!r} found={table_id(new)}"
        for table in (new, Table(path)):
            with pytest.raises(TableReplacedError, match=told):
                table.changes(checkpoint, consistency=consistency)
            with pytest.raises(TableReplacedError, match=told):
                table.changes(until=checkpoint, consistency=consistency)
        with pytest.raises(TableReplacedError):
            old.changes(checkpoint, consistency=consistency)
    for kind, checkpoint in checkpoints(new).items():
        new.changes(checkpoint, consistency="stable" if "stable" in kind else "latest").to_arrow()


def test_a_checkpoint_of_a_copy_that_went_on_is_ahead_of_the_table(make: Make, path: str, tmp_path: Path) -> None:
    table = make()
    table.upsert(OLD)
    shutil.copytree(path, tmp_path / "copy")
    table.upsert(NEW)
    checkpoint = table.changes().checkpoint
    with pytest.raises(InvalidInputError, match="restored from a copy"):
        Table(tmp_path / "copy").changes(checkpoint)


def test_a_follower_ends_when_its_table_is_replaced(make: Make, path: str) -> None:
    table = make(buckets=1)
    table.upsert(OLD)
    following = follow(table)
    window = next(following)
    replaced(path, 5)
    with pytest.raises(TableReplacedError):
        next(following)
    with pytest.raises(TableReplacedError):
        next(follow(Table(path), window.checkpoint))


def test_checkpoints_without_an_id_go_on_where_they_were_taken(make: Make, path: str) -> None:
    make()
    of_the_first_release(path)
    table = Table(path)
    empty = table.scan().checkpoint
    assert empty == f"completed:{EPOCH}", "what has no id cannot say one"
    table.upsert(OLD)
    for checkpoint in checkpoints(table).values():
        by, time, found = checkpoint.split(":")
        assert found == table_id(table)
        of_the_release_before = f"{by}:{time}"
        consistency: Literal["latest", "stable"] = "latest" if by == "completed" else "stable"
        ours, theirs = (table.changes(c, consistency=consistency) for c in (checkpoint, of_the_release_before))
        assert ours.to_arrow() == theirs.to_arrow()
    assert table.changes(empty).to_arrow().num_rows == 8


# --- tables without an id ---------------------------------------------------------------------------------------------


def test_a_table_of_the_first_release_is_read_and_given_an_id_by_the_next_write(make: Make, path: str) -> None:
    make()
    of_the_first_release(path)
    reader, writer = Table(path), Table(path)
    before = files(path)
    assert rows(reader) == []
    assert files(path) == before, "looking gives no id"
    writer.upsert(OLD)
    other = Table(path)
    other.upsert(NEW)
    assert table_id(reader) == table_id(writer) == table_id(other)
    assert len(rows(reader)) == len(rows(writer)) == 8
    assert b"crdt_mor.table.id" not in (Path(path) / PROPERTIES).read_bytes()
    replaced(path)
    for handle in (reader, writer, other):
        with pytest.raises(TableReplacedError):
            handle.scan()
        with pytest.raises(TableReplacedError):
            handle.upsert(OLD)


@pytest.mark.parametrize("with_id", [True, False], ids=["with an id", "without"])
def test_a_handle_that_knows_of_no_id_yet_is_refused_by_the_next_table(make: Make, path: str, with_id: bool) -> None:
    make()
    of_the_first_release(path)
    writer, reader = Table(path), Table(path)
    shutil.rmtree(path)
    Table.create(path, SCHEMA, key="id", buckets=7)
    if not with_id:
        of_the_first_release(path)
        Table(path).upsert(NEW)
    before = files(path)
    with pytest.raises(TableReplacedError):
        writer.upsert(OLD)
    if with_id:
        with pytest.raises(TableReplacedError):
            reader.scan()
    assert files(path) == before


def test_a_version_that_is_gone_too_soon_tells_of_another_table(make: Make, path: str) -> None:
    """Of two tables without an id that have the same settings: versions are kept for a while, so this one should be."""
    make()
    of_the_first_release(path)
    value = tail_of(Table(path))
    old = Table(path)
    session = session_of(old)
    session.remember(session.run(_begun(value)))
    shutil.rmtree(path)
    make()
    of_the_first_release(path)
    Table(path).upsert(NEW)
    with pytest.raises(TableReplacedError):
        old.scan()


def _begun(value: Timeline) -> Steps[Timeline]:
    """An event of the release that knew of no ids."""
    fresh = value.begin("its-own", 0)
    yield Put(version_path(fresh.version), fresh.encode())
    return fresh


# --- while it happens -------------------------------------------------------------------------------------------------


def before_put(monkeypatch: pytest.MonkeyPatch, matches: Callable[[str], bool], happens: Callable[[], object]) -> None:
    """Something happens once, just before an object is put."""
    original = LocalStore.put

    def put(store: LocalStore, name: str, data: bytes, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:
        if matches(name):
            monkeypatch.setattr(LocalStore, "put", original)
            happens()
        return original(store, name, data, durable=durable, after=after)

    monkeypatch.setattr(LocalStore, "put", put)


def versions(path: str) -> list[int]:
    return sorted(int(file.stem) for file in (Path(path) / VERSIONS).glob("*.json"))


def test_a_version_that_was_put_into_the_next_table_is_taken_back(
    make: Make, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make()
    for _ in range(3):
        old.upsert(OLD)
    next_version = version_path(old.version + 1)
    before_put(monkeypatch, lambda name: name == next_version, lambda: replaced(path))
    with pytest.raises(TableReplacedError):
        old.upsert(OLD)
    new = Table(path)
    assert versions(path) == list(range(new.version + 1))
    new.upsert(NEW)
    assert len(rows(new)) == 3


def test_a_version_that_was_put_where_the_table_was_removed_is_taken_back(
    make: Make, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make()
    old.upsert(OLD)
    next_version = version_path(old.version + 1)
    before_put(monkeypatch, lambda name: name == next_version, lambda: shutil.rmtree(path))
    with pytest.raises(TableReplacedError):
        old.upsert(OLD)
    assert versions(path) == []
    make().upsert(NEW)


@pytest.mark.parametrize("again", [True, False], ids=["made anew", "removed"])
@pytest.mark.parametrize("state", [".deltacommit.requested", ".deltacommit"])
def test_what_was_projected_into_the_next_table_is_taken_back(
    make: Make, path: str, monkeypatch: pytest.MonkeyPatch, state: str, again: bool
) -> None:
    """A commit of ours that the new table's own timeline does not know would look like a damage of it."""
    old = make()
    old.upsert(OLD)
    projected: list[str] = []

    def happens() -> None:
        projected.extend(name for name in files(path) if "deltacommit" in name)
        shutil.rmtree(path)
        if again:
            make()

    before_put(monkeypatch, lambda name: name.endswith(state), happens)
    with suppress(TableReplacedError, TableNotFoundError):
        old.upsert(NEW)
    assert projected, "it happened"
    if not again:
        make()
    assert not [name for name in files(path) if "deltacommit" in name]
    assert rows(Table(path)) == []


def test_a_sweep_deletes_nothing_of_the_next_table(make: Make, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old table's clock is ahead, so that a write that is pending in the new one looks to it like a past one."""

    class Ahead(SystemEnvironment):
        def now_ms(self) -> int:
            return super().now_ms() + 50_000

    make()
    old = Table(path, opening=Opening(environment=Ahead()))
    old.upsert(OLD)
    value = tail_of(old)
    pending: list[Transaction] = []
    before: dict[str, bytes] = {}
    walk = LocalStore.walk

    def late(store: LocalStore, folder: str) -> list[Stat]:
        monkeypatch.setattr(LocalStore, "walk", walk)
        pending.append(replaced(path).transaction().__enter__())
        before.update(files(path))
        return store.walk(folder)

    monkeypatch.setattr(LocalStore, "walk", late)
    with pytest.raises(TableReplacedError):
        run_sweep(old, value)
    assert files(path) == before
    pending[0].upsert(OLD)
    pending[0].__exit__(None, None, None)
    assert len(rows(Table(path))) == 8


def test_a_first_version_is_not_planted_in_the_next_table(make: Make, path: str) -> None:
    """A process reads the properties and stalls, until another table has come whose own version 0 is not there yet."""
    make()
    (Path(path) / version_path(0)).unlink()
    stale = Session.open(path, SystemEnvironment(), 600_000)
    shutil.rmtree(path)
    make()
    (Path(path) / version_path(0)).unlink()
    with pytest.raises(TableReplacedError):
        stale.begin(stale.author())
    assert versions(path) == []
    Table(path).upsert(NEW)


def test_no_first_version_is_put_where_the_table_is_gone(make: Make, path: str) -> None:
    make()
    (Path(path) / version_path(0)).unlink()
    stale = Session.open(path, SystemEnvironment(), 600_000)
    shutil.rmtree(path)
    with pytest.raises(TableNotFoundError):
        stale.begin(stale.author())
    assert versions(path) == []


@pytest.mark.parametrize("planted", ["of another table", "of none"])
def test_a_timeline_that_is_not_that_of_the_properties_is_told(make: Make, path: str, planted: str) -> None:
    make()
    first = (Path(path) / version_path(0)).read_bytes()
    value = Timeline.decode(first, "")
    shutil.rmtree(path)
    mine = table_id(make())
    other = value if planted == "of another table" else Timeline.genesis(value.schema)
    (Path(path) / version_path(0)).write_bytes(other.encode())
    before = files(path)
    told = f"properties={mine} timeline={other.table_id}"
    uses: list[Callable[[], Table]] = [lambda: Table(path), lambda: make(exist_ok=True)]
    for use in uses:
        with pytest.raises(TableReplacedError, match=re.escape(told)):
            use()
    assert files(path) == before


def test_a_version_of_another_table_above_the_tail_is_told_and_never_followed(make: Make, path: str) -> None:
    make().upsert(OLD)
    stranger = tail_of(Table(path))
    shutil.rmtree(path)
    table = make()
    table.upsert(NEW)
    above = version_path(table.version + 1)
    ghost = stranger.begin("late", 0)
    (Path(path) / above).write_bytes(ghost.encode())
    for use in (lambda: table.upsert(NEW), table.scan, lambda: Table(path)):
        with pytest.raises(TableReplacedError, match=f"found={stranger.table_id}|timeline={stranger.table_id}"):
            use()


# --- the first moments of a table -------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_version", [True, slow(False)], ids=["with version 0", "without"])
@pytest.mark.parametrize("commits", [1, slow(20)])
@pytest.mark.parametrize(
    "use",
    [
        lambda path, table: table.upsert(OLD),
        lambda path, table: table.upsert(OLD, token=("app", 1)),
        lambda path, table: rows(Table(path)),
        lambda path, table: rows(table),
        lambda path, table: look_for_hudi(table),
        lambda path, table: table.changes().to_arrow(),
        lambda path, table: table.maintenance.compact(),
        lambda path, table: table.jobs.plan("upsert", SCHEMA).stage(OLD, task=0),
    ],
    ids=["upsert", "upsert with a token", "open", "scan", "look", "changes", "compact", "stage"],
)
def test_who_saw_the_empty_table_just_before_its_first_commit_finds_a_healthy_one(
    make: Make,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
    use: Callable[[str, Table], object],
    commits: int,
    first_version: bool,
) -> None:
    slow, quick = make(buckets=1), Table(path)
    if not first_version:
        (Path(path) / version_path(0)).unlink()
        slow, quick = Table(path), Table(path)
    original = LocalStore.list

    def overtaken(store: LocalStore, folder: str) -> list[Stat]:
        if folder == ".hoodie/timeline":
            monkeypatch.setattr(LocalStore, "list", original)
            for i in range(commits):
                quick.upsert(frame((f"quick{i}", "eu", i)))
            if commits > 1:
                quick.maintenance.compact()
        return original(store, folder)

    monkeypatch.setattr(LocalStore, "list", overtaken)
    session_of(slow).views._look = HudiLook()  # it is time to look for commits of Hudi's
    use(path, slow)
    assert LocalStore.list is original, "nobody looked"
    assert ("quick0", "eu", 0, None) in rows(Table(path))
    assert ("quick0", "eu", 0, None) in rows(slow)


def test_commits_of_ours_without_a_timeline_of_ours_are_a_damage_that_is_told(make: Make, path: str) -> None:
    table = make()
    table.upsert(OLD)
    for kept in ([], [version_path(0)]):
        for file in (Path(path) / VERSIONS).glob("*.json"):
            if f"{VERSIONS}/{file.name}" not in kept:
                file.unlink()
        with pytest.raises(FormatError, match="timeline is missing"):
            Table(path)
        value = Timeline.genesis(TableSchema.of(SCHEMA).to_json(), session_of(table).config.table_id)
        (Path(path) / version_path(0)).write_bytes(value.encode())

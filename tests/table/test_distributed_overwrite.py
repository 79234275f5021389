"""An overwrite that many processes stage is the overwrite that one process would have made, once, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Commit, CrdtMorError, InvalidInputError, Table
from crdt_mor.errors import WriterExpiredError
from crdt_mor.events import rollback
from crdt_mor.events.session import Session
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.log import publish
from crdt_mor.parts import Receipt, WriteJob
from crdt_mor.payloads import Counter, ORSet, PartialUpdate
from crdt_mor.store.local import LocalStore
from crdt_mor.testing.faults import InterruptedStore, ProcessDied
from crdt_mor.write import job as distributed
from tests.inside import completions_of, run_sweep, session_of, tail_of
from tests.table.helpers import SCHEMA, Make, Place, Places, data_files, frame, rows, sent
from tests.table.staging import PARTS, TABLES, leftovers, staged
from tests.tiers import one_in, slow

OLD = frame(("a", "eu", 9, 9.0), ("old", "eu", 9, 9.0), ("old", "us", 9, 9.0), ("old", "asia", 9, 9.0))


def overwritten(table: Table, parts: Sequence[pa.Table], partitions: Any = None) -> Commit:
    job = table.jobs.plan("overwrite", SCHEMA, partitions=partitions)
    return table.jobs.complete(job, staged(job, parts))


def ids(table: Table, **scan: Any) -> list[tuple[object, ...]]:
    return rows(table, "id", "region", "n", **scan)


@pytest.mark.costly
@pytest.mark.parametrize("settings", one_in(3, TABLES))
def test_staged_in_parts_it_is_what_one_writer_overwrites(places: Places, settings: str) -> None:
    one, many = (places(name).create(schema=SCHEMA, key="id", **TABLES[settings]) for name in ("one", "many"))
    for table in (one, many):
        table.upsert(OLD)
    for parts in (PARTS, PARTS[:2]):
        expected = one.overwrite(pa.concat_tables(parts))
        done = overwritten(many, parts)
        assert (done.rows, done.covered) == (expected.rows, expected.covered)
        assert rows(many) == rows(one)
        for table in (one, many):
            table.upsert(PARTS[1])
        assert rows(many) == rows(one)
    assert leftovers(places("many")) == []
    images = [table.changes(images=True).to_arrow().select([*SCHEMA.names, "_change_type"]) for table in (one, many)]
    assert len({repr(sorted(found.to_pylist(), key=repr)) for found in images}) == 1
    for table in (one, many):
        table.maintenance.compact()
    assert rows(many) == rows(one)


@pytest.mark.slow
def test_sets_and_partial_rows_that_several_tasks_have_are_merged_as_one_writer_does(places: Places) -> None:
    schema = pa.schema([("id", pa.string()), ("tags", pa.list_(pa.string())), ("n", pa.int64())])
    merge = PartialUpdate(columns={"tags": ORSet()})
    one, many = (places(n).create(schema=schema, key="id", merge=merge, buckets=1) for n in ("one", "many"))
    written = pa.schema([("id", pa.string()), ("tags", pa.struct({"add": pa.list_(pa.string())}))])
    parts = [
        pa.table({"id": ["a", "b"], "tags": [{"add": ["x"]}, {"add": ["y"]}]}, written),
        pa.table({"id": ["a", "a"], "tags": [{"add": ["z"]}, {"add": ["x"]}]}, written),
    ]
    for table in (one, many):
        table.upsert(pa.table({"id": ["a"], "tags": [{"add": ["old"]}], "n": [1]}))
    one.overwrite(pa.concat_tables(parts))
    job = many.jobs.plan("overwrite", written)
    many.jobs.complete(job, staged(job, parts))
    assert rows(many) == rows(one) == [("a", ["x", "z"], None), ("b", ["y"], None)]
    for table in (one, many):
        table.upsert(parts[1])
        table.upsert(pa.table({"id": ["b"], "n": [7]}))
    assert rows(many) == rows(one)


def test_columns_that_came_with_it_are_there(make: Make) -> None:
    table = make()
    table.upsert(OLD)
    wider = SCHEMA.append(pa.field("new", pa.int64()))
    job = table.jobs.plan("overwrite", wider, schema_mode="merge")
    table.jobs.complete(job, staged(job, [pa.Table.from_pylist([{"id": "z", "new": 5}], wider)]))
    assert rows(table, "id", "new") == [("z", 5)]


def test_the_partitions_that_any_task_has_rows_of_are_replaced(make: Make) -> None:
    table = make(partition_by="region")
    table.upsert(OLD)
    done = overwritten(table, [frame(("z", "eu", 1)), frame(("z", "us", 1)), frame()], "dynamic")
    assert done.covered == ("region=eu", "region=us")
    assert ids(table) == [("old", "asia", 9), ("z", "eu", 1), ("z", "us", 1)]
    assert table.history(limit=1).to_pylist()[-1]["operation"] == "INSERT_OVERWRITE"


def test_named_partitions_are_replaced_and_rows_of_others_refused(make: Make, place: Place) -> None:
    table = make(partition_by="region")
    table.upsert(OLD)
    done = overwritten(table, [frame(("z", "eu", 1)), frame()], ["eu", "asia"])
    assert done.covered == ("region=asia", "region=eu")
    assert ids(table) == [("old", "us", 9), ("z", "eu", 1)]
    job = table.jobs.plan("overwrite", SCHEMA, partitions=["eu"])
    with pytest.raises(InvalidInputError, match=r"not_named=\['region=us'\] named=\['region=eu'\]"):
        job.stage(frame(("z", "us", 1)), task=0)
    table.jobs.abandon(job)
    assert (len(ids(table)), leftovers(place), tail_of(table).pending) == (2, [], ())


@pytest.mark.parametrize("parts", [[], [frame()], [frame(), frame()]], ids=["no task", "one task", "two tasks"])
def test_without_rows_it_truncates_or_replaces_nothing(make: Make, parts: list[pa.Table]) -> None:
    table = make(partition_by="region")
    table.upsert(OLD)
    assert overwritten(table, parts, "dynamic").covered == ()
    assert len(ids(table)) == 4
    assert overwritten(table, parts, ["eu"]).covered == ("region=eu",)
    assert ids(table) == [("old", "asia", 9), ("old", "us", 9)]
    assert overwritten(table, parts).covered == ("*",)
    assert ids(table) == []
    table.append(frame(("new", "eu", 1)))
    assert ids(table) == [("new", "eu", 1)]


@pytest.mark.parametrize(
    ("operation", "partitions", "says"),
    [
        ("upsert", "eu", "pass partitions as a list"),
        ("append", "dynamic", "only for an overwrite"),
        ("overwrite", "eu", "pass partitions as a list"),
        ("overwrite", [("eu", 1)], "name a partition by"),
    ],
)
def test_what_is_wrong_about_partitions_is_said_before_anything_runs(
    make: Make, operation: Any, partitions: Any, says: str
) -> None:
    table = make(partition_by="region")
    with pytest.raises(InvalidInputError, match=says):
        table.jobs.plan(operation, SCHEMA, partitions=partitions)
    with pytest.raises(InvalidInputError, match="append, upsert, delete, overwrite"):
        table.jobs.plan("replace", SCHEMA)  # type: ignore[arg-type]


def test_writers_that_were_under_way_complete_with_the_rest(make: Make) -> None:
    table = make(partition_by="region")
    table.upsert(OLD)
    late = table.jobs.plan("upsert", SCHEMA)
    receipts = staged(late, [frame(("late", "eu", 1)), frame(("late", "us", 1), ("late", "eu", 2))])
    with table.transaction() as slow_one:
        slow_one.upsert(frame(("slow", "eu", 1), ("slow", "us", 1)))
        overwritten(table, [frame(("z", "eu", 1))], "dynamic")
    assert table.jobs.complete(late, receipts).rows == 1
    assert ids(table) == [
        ("late", "us", 1), ("old", "asia", 9), ("old", "us", 9), ("slow", "us", 1), ("z", "eu", 1)
    ]  # fmt: skip


def test_a_token_counts_once(make: Make, place: Place) -> None:
    table = make(merge={"n": Counter()})
    first, twin = (table.jobs.plan("overwrite", SCHEMA, token=("load", 3)) for _ in range(2))
    receipts, others = staged(first, [frame(("a", "eu", 1))]), staged(twin, [frame(("b", "eu", 1))])
    done = table.jobs.complete(first, receipts)
    table.upsert(frame(("a", "eu", 1)))
    for job, of_job in ((twin, others), (first, receipts), (first, [])):
        again = table.jobs.complete(job, of_job)
        assert (again, again.rows, again.covered) == (replace(done, repeated=True), 1, ("*",))
    known = table.jobs.plan("overwrite", SCHEMA, token=("load", 3))
    assert table.jobs.complete(known, staged(known, [frame(("c", "eu", 1))])).version == done.version
    assert (ids(table), leftovers(place)) == ([("a", "eu", 2)], [])


def test_a_job_is_known_when_its_commit_is_in_a_segment(make: Make) -> None:
    table = make(buckets=1)
    job = table.jobs.plan("overwrite", SCHEMA)
    done = table.jobs.complete(job, staged(job, [frame(("a", "eu", 1))]))
    for number in range(20):
        table.upsert(frame((f"z{number}", "eu", 1)))
    assert tail_of(table).find_completion(done.requested_at) is None
    late = job.stage(frame(("b", "eu", 1)), task=0)
    assert late.bases == ()
    assert table.jobs.complete(job, [late]) == replace(done, repeated=True)


def test_a_staged_file_that_a_power_cut_has_cut_short_is_refused(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    table.upsert(OLD.slice(0, 2))
    for tasks in (1, 2):
        job = table.jobs.plan("overwrite", SCHEMA)
        receipts = [job.stage(frame(("z", "eu", task)), task=task) for task in range(tasks)]
        (fast_path / "t" / receipts[0].bases[0].path).write_bytes(b"")
        with pytest.raises(InvalidInputError, match="differs from the file its task wrote"):
            table.jobs.complete(job, receipts)
        assert len(ids(table)) == 2
        assert (leftovers(table.uri), tail_of(table).pending) == ([], ())


# --- at every moment --------------------------------------------------------------------------------------------------

ONE = [frame(("a", "eu", 1), ("b", "us", 1)), frame(("a", "eu", 2), ("c", "asia", 2))]
"""What the tasks of the first driver stage: `a` by two of them, so that the driver folds. `us` and `old` go."""

TWO = [frame(("a", "eu", 5), ("d", "eu", 5)), frame(("c", "asia", 6))]
"""What other attempts at these tasks stage."""


def means(parts: Sequence[pa.Table]) -> list[tuple[object, ...]]:
    found = {(row["id"], row["region"]): row["n"] for part in parts for row in part.to_pylist()}
    return sorted((*key, n) for key, n in found.items())


class World:
    """A table with rows, one job that is to replace them all, and drivers of it whose stores can be stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.table = Table.create(path, SCHEMA, key="id", partition_by="region", buckets=1)
        self.table.upsert(OLD)
        self.job = self.table.jobs.plan("overwrite", SCHEMA)
        self.receipts = self.staged(ONE)

    def staged(self, parts: Sequence[pa.Table]) -> list[Receipt]:
        return [sent(sent(self.job).stage(part, task=task)) for task, part in enumerate(parts)]

    def complete(self, receipts: Sequence[Receipt]) -> Commit:
        return Table(self.path).jobs.complete(sent(self.job), receipts)

    def session(self) -> tuple[Session, InterruptedStore]:
        store = InterruptedStore(LocalStore(self.path))
        return Session(store, SystemEnvironment(), session_of(self.table).config, 600_000), store

    @property
    def landed(self) -> bool:
        return any(c.overwriting for c in completions_of(self.table))

    def check(self, shows: Sequence[pa.Table]) -> None:
        """These rows are there, and after a sweep no file but those that commits name."""
        assert ids(self.table) == means(shows)
        session = session_of(self.table)
        for _ in range(2):
            run_sweep(self.table)
        assert ids(self.table) == ids(Table(self.path)) == means(shows)
        assert data_files(self.path) == {f.path for c in session.views.completions(session.tail()) for f in c.files}
        assert leftovers(self.path) == []
        self.table.upsert(frame(("more", "eu", 1)))
        assert ids(self.table) == sorted([*means(shows), ("more", "eu", 1)])


@dataclass
class Scene:
    """A driver of `ONE` that something happened to. mine: its commit, its error, or None: it died; others: likewise."""

    world: World
    mine: Commit | Exception | None = None
    others: Any = None


def scenes(
    path: Path, meanwhile: Callable[[World], object] | None, *, after: bool = False, every: int = 1
) -> Iterator[Scene]:
    """`meanwhile` happens at the first change of the store that the driver makes, at the second, ...; None: it dies."""
    for at in range(1, 100, every):
        world = World(path / f"{after}-{at}")
        scene = Scene(world)
        session, store = world.session()

        def interrupt(scene: Scene = scene, store: InterruptedStore = store) -> None:
            if meanwhile is None:
                store.die()
            else:
                scene.others = meanwhile(scene.world)

        store.arm(at, interrupt, after=after)
        try:
            scene.mine = Table._of(session, str(world.path)).jobs.complete(world.job, world.receipts)
        except ProcessDied:
            pass
        except CrdtMorError as error:
            scene.mine = error
        if store.count < at:
            assert at > 10
            return
        yield scene
    raise AssertionError("an operation without an end")


@pytest.mark.slow
@pytest.mark.parametrize("parts", [slow(ONE), TWO], ids=["same receipts", "other attempts"])
@pytest.mark.parametrize("after", [False, slow(True)])
def test_where_a_driver_died_the_old_rows_or_the_new_are_there_and_the_next_one_finds_out(
    fast_path: Path, parts: list[pa.Table], after: bool
) -> None:
    outcomes = set()
    for scene in scenes(fast_path, None, after=after, every=2 if parts is ONE else 3):
        world = scene.world
        landed = world.landed
        assert ids(world.table) == means(ONE if landed else [OLD])
        commit = world.complete(world.receipts if parts is ONE else world.staged(parts))
        assert (commit.repeated, commit.covered) == (landed, ("*",))
        assert world.complete([]) == replace(commit, repeated=True)
        world.check(ONE if landed else parts)
        outcomes.add(landed)
    assert outcomes == {False, True}


@pytest.mark.slow
def test_where_a_driver_died_and_nobody_comes_again_nothing_is_left(fast_path: Path) -> None:
    for scene in scenes(fast_path, None, every=3):
        world = scene.world
        landed, session = world.landed, session_of(world.table)
        for pending in session.tail().pending:
            session.run(rollback.give_up(session.publisher, session.tail(), pending.requested, None))
        world.check(ONE if landed else [OLD])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "every"),
    [slow(ONE, 2), (TWO, 5), slow(TWO, 2)],
    ids=["same receipts", "other attempts, some", "other attempts"],
)
def test_of_two_drivers_at_once_one_commits(fast_path: Path, parts: list[pa.Table], every: int) -> None:
    outcomes = set()
    for scene in scenes(fast_path, lambda w: w.complete(w.receipts if parts is ONE else w.staged(parts)), every=every):
        mine, others = scene.mine, scene.others
        assert isinstance(mine, Commit), mine
        assert isinstance(others, Commit)
        assert replace(mine, repeated=False) == replace(others, repeated=False)
        assert mine.repeated != others.repeated, "one of them has made it"
        scene.world.check(parts if mine.repeated else ONE)
        outcomes.add(mine.repeated)
    assert outcomes == {False, True}


@pytest.mark.slow
@pytest.mark.parametrize("every", [6, slow(2)])
def test_a_write_that_is_given_up_under_its_driver_replaces_nothing(fast_path: Path, every: int) -> None:
    for scene in scenes(fast_path, lambda world: world.table.jobs.abandon(world.job), every=every):
        done = isinstance(scene.mine, Commit)
        assert done or isinstance(scene.mine, WriterExpiredError), scene.mine
        assert scene.world.landed == done
        scene.world.check(ONE if done else [OLD])


@pytest.mark.slow
@pytest.mark.parametrize(("after", "every"), [slow(False, 2), (True, 6), slow(True, 2)])
def test_attempts_that_come_late_harm_nothing(fast_path: Path, after: bool, every: int) -> None:
    """Also just after the event, when the base files do not have their names yet."""

    def late(world: World) -> None:
        for part in TWO:
            world.job.stage(part, task=0)

    for scene in scenes(fast_path, late, after=after, every=every):
        assert isinstance(scene.mine, Commit), scene.mine
        scene.world.check(ONE)


def test_an_attempt_that_finds_the_write_over_leaves_what_the_overwrite_still_needs(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was staging when the driver published, and cleans up before the driver has named the base files, and dies."""
    world = World(fast_path / "t")
    session, store = world.session()
    claim = publish.claim

    def dying(*arguments: Any) -> Any:
        value = yield from claim(*arguments)
        if value is not None and any(c.overwriting for c in value.completions):
            store.die()
        return value

    def read(_: Callable[[], pa.Schema]) -> pa.Table:
        driver = Table._of(session, str(world.path))
        monkeypatch.setattr(publish, "claim", dying)
        with pytest.raises(ProcessDied):
            driver.jobs.complete(world.job, world.receipts)
        monkeypatch.undo()
        assert world.landed
        return TWO[0]

    with pytest.raises(WriterExpiredError, match="do not write again"):
        distributed.stage(session_of(world.table), world.job.job, read, 0)
    world.check(ONE)


def test_a_job_that_was_given_up_stays_so(fast_path: Path) -> None:
    world = World(fast_path / "t")
    world.table.jobs.abandon(world.job)
    with pytest.raises(WriterExpiredError):
        world.complete(world.receipts)
    with pytest.raises(WriterExpiredError):
        world.staged(TWO)
    world.check([OLD])


def test_no_task_names_a_file(make: Make, place: Place) -> None:
    table = make(partition_by="region")
    table.upsert(OLD)
    before = data_files(place)
    job: WriteJob = table.jobs.plan("overwrite", SCHEMA)
    receipts = staged(job, ONE)
    assert data_files(place) == before
    assert len(ids(table)) == 4
    table.jobs.complete(job, receipts)
    assert ids(table) == means(ONE)

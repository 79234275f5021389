"""Counters and sets are exact, however often processes are killed in the middle of a commit that they then repeat."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import ClassVar

import pyarrow as pa
import pytest

from crdt_mor import Commit, Opening, Table
from crdt_mor.events.session import Session
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.log import stopping
from crdt_mor.log.paths import POSTS
from crdt_mor.log.posts import decode_post
from crdt_mor.store.local import LocalStore
from crdt_mor.testing.faults import InterruptedStore, ProcessDied
from tests import waiting
from tests.crash.counting import ASKING, BUCKETS, MERGE, SCHEMA, WRITTEN, Row, expected, rows
from tests.crash.scene import Scene
from tests.inside import run_sweep, session_of, store_of, tail_of
from tests.interop.readers import hudi_rs, ours
from tests.tiers import long, slow

EXPIRY_MS = 3_000
NAMES = ["w0", "w1", "w2"]
MOMENTS_MAX = 200
EVERY = [3, slow(1)]
"""The fast tier has a death at every third moment, the slow one at each."""
PATIENCE_LINES = 12
Done = set[tuple[str, int]]


@dataclass
class Counting(Scene):
    """A table of counters and sets, and the processes that count in it.

    is_posted: whether what they commit may be posted. kills: how many were killed; after_posting: of these those whose
    post was there.
    """

    module: ClassVar[str] = "tests.crash.counting"
    is_posted: bool = False
    kills: int = 0
    after_posting: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "table"
        expiry = timedelta(milliseconds=self.expiry_ms)
        left_out = [ASKING] if self.is_posted else []
        schema = pa.schema([column for column in SCHEMA if column.name not in left_out])
        merge = {column: payload for column, payload in MERGE.items() if column not in left_out}
        self.table = Table.create(
            self.path, schema, key="key", merge=merge, buckets=BUCKETS, opening=Opening(writer_expiry=expiry)
        )

    def kill_all_the_time(self, commits: int, random: Random) -> None:
        """Every process is killed soon after it has begun to work, again and again, until all have counted."""
        roles = {name: ("count", name, str(commits)) for name in NAMES} | {"compactor": ("compact", "compactor")}
        doom = {name: self.begin(*arguments, random=random) for name, arguments in roles.items()}

        def all_have_counted() -> bool:
            for name in roles:
                if self.workers[name].poll() is not None:
                    assert self.workers[name].poll() == 0, (self.folder / f"{name}.err").read_text()
                elif doom[name]():
                    self.kill(name)
                    self.kills += 1
                    doom[name] = self.begin(*roles[name], random=random)
            return all(self.workers[name].poll() is not None for name in NAMES)

        waiting.wait_for("end", all_have_counted, waiting.PATIENCE_S * 5, self.where_they_are, every_s=0.001)
        self.end()

    def begin(self, role: str, name: str, *arguments: str, random: Random) -> Callable[[], bool]:
        """Start a process, and say when it is to die: at a random moment, or when its commit has landed, but before it
        has heard of that, or when it has posted it."""
        lines = len(self.log(name)) + random.randint(1, 12)
        delay, moment = random.random() * 0.1, float("inf")
        as_it_lands = role == "count" and random.random() < 0.5
        as_it_is_posted = self.is_posted and not as_it_lands and role == "count"
        self.start(role, name, *arguments)

        def has_come() -> bool:
            nonlocal moment
            log = self.log(name)
            if len(log) < lines:
                return False
            if as_it_is_posted and len(log) < lines + PATIENCE_LINES:
                is_there = log[-1][0] == "try" and (name, int(log[-1][1])) in self.posted()
                self.after_posting += is_there
                return is_there
            if as_it_lands and len(log) < lines + PATIENCE_LINES:
                token = (name, int(log[-1][1]))
                return log[-1][0] == "try" and stopping.blocking_token(tail_of(self.table), token) is not None
            moment = min(moment, time.monotonic() + delay)
            return time.monotonic() >= moment

        return has_come

    def posted(self) -> set[tuple[str, int] | None]:
        """The tokens of the writes that are posted and whose objects are there."""
        store, table_id = store_of(self.table), tail_of(self.table).table_id
        objects = [(stat.path, store.read(stat.path)) for stat in store.list(POSTS)]
        posts = [decode_post(data, path, table_id) for path, data in objects if data is not None]
        return {post.token for post in posts if post is not None}

    # --- what must hold -------------------------------------------------------------------------------------------

    def repeated(self) -> tuple[int, int]:
        """Commits that had landed when they were tried again; of these, those that nobody had been told of."""
        again = unknown = 0
        for name in NAMES:
            told = set()
            for line in self.log(name):
                if line[0] == "ack":
                    again += line[5] == "True"
                    unknown += line[5] == "True" and line[1] not in told
                    told.add(line[1])
        return again, unknown

    def moments(self) -> list[str]:
        """The completion times of acknowledged commits."""
        return sorted({line[3] for name in NAMES for line in self.log(name) if line[0] == "ack"})

    def check_exact(self, as_of: str | None = None) -> Done:
        """Every row is exactly what the commits that it lists make of it; which commits these are."""
        found = shown(self.table, as_of)
        listed = [label for row in found.values() for label in row["commits"]]
        assert len(listed) == len(set(listed)), "a commit counts twice"
        done = {(name, int(number)) for name, number, _ in (label.split(".") for label in listed)}
        for row in found.values():
            for name in NAMES:
                mine = [int(label.split(".")[1]) for label in row["commits"] if label.startswith(name)]
                assert mine == sorted(mine), "events are in requested order"
            row["commits"].sort()
        columns = self.table.schema.names
        assert found == {key: {c: row[c] for c in columns} for key, row in expected(done).items()}
        return done

    def rest(self) -> None:
        """Those that died are given up, and what they left is swept."""
        self.give_up_the_dead()
        session = session_of(self.table)
        self.table.maintenance.compact()
        for _ in range(2):
            run_sweep(self.table)
        assert not session.tail().pending
        self.check_folders()


def shown(table: Table, as_of: str | None = None) -> dict[str, Row]:
    return {row["key"]: row for row in table.scan(as_of=as_of).to_arrow().to_pylist()}


@pytest.mark.parametrize(("is_posted", "commits"), [long(False, 50), slow(True, 20)], ids=["begun", "posted"])
def test_commits_of_three_processes_count_exactly_once_under_kill_9(
    tmp_path: Path, is_posted: bool, commits: int
) -> None:
    scene = Counting(tmp_path, EXPIRY_MS, is_posted=is_posted)
    try:
        scene.kill_all_the_time(commits, Random(1))
    finally:
        scene.end()
    everything = {(name, number) for name in NAMES for number in range(1, commits + 1)}
    assert scene.check_exact() == everything
    moments = scene.moments()[:: commits // 5]
    before = [scene.check_exact(moment) for moment in moments]
    assert len(before[0]) < len(before[-1])
    scene.rest()
    scene.table.maintenance.compact()
    assert set(scene.table.inspect.files()["kind"].to_pylist()) == {"base"}
    assert scene.check_exact() == everything
    assert [scene.check_exact(moment) for moment in moments] == before
    assert hudi_rs(scene.path) == ours(scene.table)
    assert scene.kills >= commits // 2
    assert any(line[0] == "compacted" for line in scene.log("compactor")), "compactions ran among them"
    repeated, never_told = scene.repeated()
    assert repeated >= never_told >= 1, "commits had landed, nobody had heard of it, and they were tried again"
    if not is_posted:  # posted ones meet by chance; `tests.simulation.test_groups_in_small_worlds` has every death
        assert not scene.groups()
        assert not scene.after_posting


# --- the same without chance: one process dies at each single moment --------------------------------------------------


def interrupted(path: Path) -> tuple[Table, Table, InterruptedStore]:
    """A table with one commit, and another process that can be stopped."""
    table = Table.create(path, SCHEMA, key="key", merge=MERGE, buckets=BUCKETS)
    count(table, 1)
    store = InterruptedStore(LocalStore(path))
    return (
        table,
        Table._of(Session(store, SystemEnvironment(), session_of(table).config, expiry_ms=600_000), str(path)),
        store,
    )


def count(table: Table, number: int) -> Commit:
    return table.upsert(pa.Table.from_pylist(rows("w", number), WRITTEN), token=("w", number))


@pytest.mark.slow
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("after", [False, True], ids=["just before", "just after"])
def test_a_commit_that_is_repeated_after_a_death_at_any_moment_counts_once(
    fast_path: Path, after: bool, every: int
) -> None:
    died, repeated = True, set()
    for at in range(1, MOMENTS_MAX, every):
        table, other, store = interrupted(fast_path / str(at))
        store.arm(at, store.die, after=after)
        try:
            count(other, 2)
            died = False
        except ProcessDied:
            repeated.add(count(table, 2).repeated)
        assert shown(table) == expected({("w", 1), ("w", 2)})
        table.maintenance.compact()  # beside the write of the dead one, which is still pending
        assert shown(table) == expected({("w", 1), ("w", 2)})
        if not died:
            break
    assert not died
    assert repeated == {False, True}, "some deaths come before the commit, some after"


@pytest.mark.slow
@pytest.mark.parametrize("every", EVERY)
def test_a_compaction_may_die_at_any_moment_and_nothing_counts_twice(fast_path: Path, every: int) -> None:
    died = True
    for at in range(1, MOMENTS_MAX, every):
        table, other, store = interrupted(fast_path / str(at))
        with table.transaction():  # so that what comes after it is carried
            count(table, 2)
            store.arm(at, store.die)
            try:
                assert other.maintenance.compact()[0].carried
                died = False
            except ProcessDied:
                assert shown(table) == expected({("w", 1), ("w", 2)})
                table.maintenance.compact()
            assert shown(table) == expected({("w", 1), ("w", 2)})
        count(table, 3)
        table.maintenance.compact()
        assert shown(table) == expected({("w", 1), ("w", 2), ("w", 3)})
        if not died:
            break
    assert not died

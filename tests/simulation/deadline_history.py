"""A random history of writes that end by their deadline: their outcome is known, or it is not, and they are resumed.

Writers count up a key of their own and one of all, each write with a token. Some are in a crowd, so that their writes
are posted whole, beside what a process has posted that is dead. The bucket dies at a request of some of
them, or makes no objects from there on, until they have ended. A put that it does not answer makes its object at once,
or long after its writer was told how the write ended, or never. What a writer was told has to stay true:

    a commit                    it is there from then on, and counts once
    StorageUnavailableError     it is not there, and never will be
    CommitUnknownError          it is there or not; the same write with the same token makes one commit of it
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Literal

import polars as pl

from crdt_mor import Commit, Opening, StorageUnavailableError, Table
from crdt_mor.errors import CommitUnknownError
from crdt_mor.payloads import Counter
from tests.failing import URI, FailingBucket, LostError, Request, answered
from tests.inside import tail_of
from tests.posting import in_a_crowd, post

COLUMNS = {"id": pl.String, "n": pl.Int64}
CROWDED_SHARE = 0.4
REQUESTS_MAX = 30
"""Up to which request of a write the bucket dies, about as many as the longest one makes."""

Told = Literal["done", "failed", "unknown"]


@dataclass
class DeadlineHistory:
    """One table, its handles, and what each write was told. resumed: how many of them were written again."""

    random: Random
    bucket: FailingBucket
    told: dict[int, Told] = field(default_factory=dict)
    handles: list[Table] = field(default_factory=list)
    crowds: Random = field(default_factory=Random)
    """Chance of its own: who is in a crowd."""
    resumed: int = 0
    repeated: int = 0
    posted: int = 0
    """How many writes are there that were posted by a process that is dead."""
    dead: int = 0
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.crowds = Random(repr(self.random.getstate()))
        Table.create(
            URI, COLUMNS, key="id", merge={"n": Counter()}, buckets=2,
            opening=Opening(store=self.bucket.store(), environment=self.bucket.environment),
        )  # fmt: skip
        self.handles = [self.opened() for _ in range(3)]

    def opened(self) -> Table:
        """The table, as another process opens it."""
        return Table(URI, opening=Opening(store=self.bucket.store(), environment=self.bucket.environment))

    # --- what can happen ----------------------------------------------------------------------------------------------

    def step(self) -> None:
        x, open_ends = self.random.random(), [n for n, told in self.told.items() if told != "done"]
        if x < 0.45:
            self.write(len(self.told), outage=self.random.random() < 0.7)
        elif x < 0.6 and open_ends:
            self.resume(self.random.choice(open_ends))
        elif x < 0.7:
            self.compact()
        elif x < 0.8 and self.bucket.late:
            self.land(self.bucket.late.pop(self.random.randrange(len(self.bucket.late))))
        else:
            self.check()

    def write(self, number: int, *, outage: bool) -> Commit | None:
        """A write, of one event or in a block; the commit, if it was told that it is one."""
        table, in_block = self.random.choice(self.handles), self.random.random() < 0.4
        rows = rows_of(f"w{number}")
        if self.crowds.random() < CROWDED_SHARE:
            self.crowd(in_a_crowd(table))
        if outage:
            self.begin_outage()
        try:
            if in_block:
                with table.transaction(token=(f"writer{number}", 1)) as tx:
                    tx.upsert(rows)
                commit = tx.commit
            else:
                commit = table.upsert(rows, token=(f"writer{number}", 1))
        except CommitUnknownError as error:
            self.note(number, "unknown", error)
            return None
        except StorageUnavailableError as error:
            self.note(number, "failed", error)
            return None
        finally:
            self.bucket.mend()
        assert commit is not None
        self.note(number, "done", commit.version)
        return commit

    def crowd(self, table: Table) -> None:
        """Another process may have posted a write, and died: the commit of whoever comes next has it, or none."""
        if self.crowds.random() < 0.5 and tail_of(table).version:
            self.dead += 1
            post(table, rows_of(f"dead{self.dead}").to_arrow(), token=(f"dead{self.dead}", 1))
            self.log.append(f"dead{self.dead} has posted")

    def begin_outage(self) -> None:
        """From some request of the next operation on the bucket answers nothing, or makes nothing."""
        r, dies_at = self.random, self.random.randrange(REQUESTS_MAX)
        is_dead = r.random() < 0.6

        def rule(request: Request, number: int) -> Exception | None:
            if number < dies_at or not (is_dead or request.conditional):
                return None
            lot = r.random()
            if request.what != "PUT" or lot < 0.6:
                return answered(503)
            return LostError.of("now" if lot < 0.8 else "late")

        self.bucket.fail(rule)
        self.log.append(f"outage from request {dies_at}, {'of all' if is_dead else 'of puts'}")

    def resume(self, number: int) -> None:
        """The same write once more, with its token, when the store is well again."""
        before = self.told[number]
        commit = self.write(number, outage=False)
        assert commit is not None, self.story()
        assert not (commit.repeated and before == "failed"), f"w{number} failed, and is there\n{self.story()}"
        self.resumed += 1
        self.repeated += commit.repeated

    def compact(self) -> None:
        """A compaction, which may end by its deadline as well; whatever it was told, no row changes."""
        if self.random.random() < 0.4:
            self.begin_outage()
        with suppress(StorageUnavailableError, CommitUnknownError):
            self.random.choice(self.handles).maintenance.compact()
        self.bucket.mend()
        self.log.append("compacted")

    def land(self, put: Callable[[], object]) -> None:
        """A put whose writer has ended long ago makes its object, if there is none."""
        with suppress(Exception):
            put()
        self.log.append("a late put landed")

    def finish(self) -> None:
        """All that is late lands, all that is not done is done again, and all is compacted."""
        while self.bucket.late:
            self.land(self.bucket.late.pop())
        self.check()
        for number, told in list(self.told.items()):
            if told != "done":
                self.resume(number)
        self.check()
        self.handles[0].maintenance.compact()
        self.check()

    # --- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """What is done is there, once, for a process that opens the table and for one that has it open."""
        for table in (self.opened(), self.random.choice(self.handles)):
            found = dict(table.to_polars().rows())
            total = found.pop("all", 0)
            self.posted = len([key for key in found if key.startswith("dead")])
            done, failed = ({f"w{n}" for n, told in self.told.items() if told == word} for word in ("done", "failed"))
            assert set(found.values()) <= {1}, f"a write counts more than once: {found}\n{self.story()}"
            assert done <= found.keys(), f"a commit is lost: {done - found.keys()}\n{self.story()}"
            assert not failed & found.keys(), f"a failed write is there: {failed & found.keys()}\n{self.story()}"
            assert total == len(found), f"the sum is {total} of {len(found)}\n{self.story()}"

    def note(self, number: int, told: Told, what: object) -> None:
        self.told[number] = told
        self.log.append(f"w{number} {told}: {str(what)[:120]}")

    def story(self) -> str:
        return "\n".join(self.log)


def rows_of(key: str) -> pl.DataFrame:
    return pl.DataFrame({"id": [key, "all"], "n": [1, 1]}, COLUMNS)


def run_deadlines(seed: int, steps: int) -> DeadlineHistory:
    """A history from its seed."""
    with FailingBucket().running() as bucket:
        history = DeadlineHistory(Random(f"deadlines {seed}"), bucket)
        for _ in range(steps):
            history.step()
        history.finish()
    return history

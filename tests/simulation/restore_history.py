"""A random history with every service, in which the table is saved under names, and goes back in time.

What must hold, on top of what holds beside services:

    - what a savepoint shows stays the same, byte for byte, by its name and by its time, until it is dropped
    - a table can always be restored to a savepoint but the erasures under way and newer savepoints; to another moment
      wherever its view is kept whole and nothing of it is archived; a refusal names one of these, and changes nothing
    - a restore does what its dry run said; the table shows what it showed then, byte for byte
    - writes that were pending have expired, plans that were open are cancelled
    - a token is again the last one of the commits that are kept; where that is not known, it is refused
    - every point between is refused, and every follower who has seen something of it; the others go on
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Commit, InvalidInputError, SnapshotExpiredError
from crdt_mor.errors import CheckpointExpiredError, TokenOrderError, UnsupportedFeatureError
from crdt_mor.log.paths import ERASURES
from crdt_mor.model.instant import EPOCH
from crdt_mor.results import Maintained, Restored
from tests.inside import tail_of
from tests.simulation.followers import Follower
from tests.simulation.random_history import Done, Open, show
from tests.simulation.upkeep_history import PAUSES_S, UpkeepHistory, run_upkeep

SAVED_MAX = 3
APPLICATIONS = ["a", "b"]
NONE = timedelta(0)
NONSENSE = pa.table({"nonsense": [1]})


@dataclass(frozen=True)
class Saved:
    """A savepoint: its name, the time of which it shows all, and what it shows."""

    name: str
    at: str
    seen: list[Done]


@dataclass(frozen=True)
class Gone:
    """A commit that a restore has dropped. at: the table's clock after the restore."""

    done: Done
    at: str


@dataclass
class RestoringHistory(UpkeepHistory):
    """A history with services, savepoints and restores."""

    saved: list[Saved] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)
    tokens: list[tuple[str, int, Commit]] = field(default_factory=list)
    """Those that commits carry which are there, in the order of the commits."""
    unsure: dict[str, int] = field(default_factory=dict)
    """Up to which number of an application a dropped commit had one, since it last had one that is kept."""
    restores: int = 0
    again: int = 0
    """How many tokens were used again."""
    rewinds: Random = field(default_factory=Random)

    def __post_init__(self) -> None:
        self.rewinds = Random(repr(self.random.getstate()) + " rewinds")
        super().__post_init__()

    # --- what can happen ------------------------------------------------------------------------------------------

    def step(self) -> None:
        x = self.rewinds.random()
        if x < 0.19:
            self.place.environment.sleep(self.rewinds.choice(PAUSES_S))
        if x < 0.06 and len(self.saved) < SAVED_MAX:
            self.service("savepoint", self.save)
        elif x < 0.08 and self.saved:
            self.service("drop savepoint", self.unsave)
        elif x < 0.17 and self.done:
            self.service("restore", self.restore, erases=True)
            self.end_some()
        elif x < 0.19 and self.gone:
            self.check_gone(self.rewinds.choice(self.gone))
        else:
            super().step()

    def save(self) -> None:
        name = f"s{len(self.log)}"
        made = self.table.maintenance.savepoint(name, comment=self.rewinds.choice([None, "of May"]))
        assert made.name == name
        self.saved.append(Saved(name, made.at, list(self.done)))
        self.note("savepoint", made)

    def unsave(self) -> None:
        found = self.saved.pop(self.rewinds.randrange(len(self.saved)))
        self.table.maintenance.drop_savepoint(found.name)
        with pytest.raises(InvalidInputError, match="no savepoint of this name"):
            self.table.scan(as_of=found.name)
        self.note("drop savepoint", found.name)

    def restore(self) -> None:
        """To a savepoint, or to a commit, seldom one of long ago."""
        r = self.rewinds
        if self.saved and r.random() < 0.5:
            saved = r.choice(self.saved)
            self.restore_to(r.choice([saved.name, saved.at]), saved.at)
        else:
            earlier = self.done[:-1] or self.done
            commit = r.choice(earlier[-3:] if r.random() < 0.7 else self.done).commit
            self.restore_to(r.choice([commit, commit.version, commit.completed_at]), commit.completed_at)

    def restore_to(self, to: Any, at: str) -> Restored | None:
        """Restore to a point, which is of this completion time; None where that is refused."""
        try:
            would = self.table.maintenance.restore(to, dry_run=True)
        except (SnapshotExpiredError, InvalidInputError, UnsupportedFeatureError) as error:
            self.note("restore refused", to, at, error)
            self.refused(error, at)
            with pytest.raises(type(error)):
                self.table.maintenance.restore(to)
            return None
        wanted = self.bytes_of(self.table.scan(as_of=to, meta=True))
        self.note("restore", to, at, would)
        done = self.table.maintenance.restore(to)
        assert told(done) == told(would), f"{done}\n{would}\n{self.story()}"
        assert self.bytes_of(self.table.scan(meta=True)) == wanted, f"another table than it was\n{self.story()}"
        self.went_back(done)
        return done

    def refused(self, error: Exception, at: str) -> None:
        """A refusal has a reason."""
        tail = tail_of(self.table)
        erasing = bool(self.place.store.list(ERASURES))
        later = any(saved.at > at for saved in self.saved)
        is_saved = any(saved.at == at for saved in self.saved)
        match error:
            case InvalidInputError():
                reason = erasing or later
            case SnapshotExpiredError():
                reason = not is_saved and (at < self.mark or not self.is_whole(at))
            case _:
                reason = not is_saved and tail.archive.watermark > EPOCH
        assert reason, f"{error}\n{self.story()}"

    def went_back(self, done: Restored) -> None:
        """What was committed since is gone, and nothing is open any more."""
        if not (done.instants or done.pending or done.plans):
            assert all(d.commit.completed_at <= done.to for d in self.done), self.story()
            return
        self.restores += 1
        dropped = [d for d in self.done if d.commit.completed_at > done.to]
        at = tail_of(self.table).restores[-1].at
        self.gone += [Gone(d, at) for d in dropped]
        self.done = [d for d in self.done if d.commit.completed_at <= done.to]
        assert {d.commit.requested_at for d in dropped} <= {*done.instants}
        assert {*done.instants}.isdisjoint(d.commit.requested_at for d in self.done)
        assert done.commits >= len(dropped)
        assert self.table.inspect.pending().num_rows == 0, self.story()
        assert self.table.maintenance.plans.open() == [], self.story()
        for plan in self.plans:
            assert self.table.maintenance.compact(plan) == [], self.story()
        self.plans.clear()
        for held in self.held:
            held.latest = False  # nobody spares readers of what is dropped
        self.stalled += self.open
        self.open.clear()
        self.take_tokens_back(done.to)
        for gone in self.gone[-2:]:
            self.check_gone(gone)

    def end_some(self) -> None:
        """Some who were given up end at once, and the others long after. Each may have brought new columns."""
        ended = [found for found in self.stalled if self.rewinds.random() < 0.5]
        self.stalled = [found for found in self.stalled if found not in ended]
        for found in ended:
            self.end_stalled(found)

    # --- tokens ---------------------------------------------------------------------------------------------------

    def opened(self, only: str | None = None, only_key: str | None = None) -> Open:
        """With a token now and then, of an application that has no other write under way."""
        assert (only, only_key) == (None, None), "these histories declare neither partitions nor keys"
        busy = {found.token[0] for found in self.open if found.token is not None}
        free = [name for name in APPLICATIONS if name not in busy]
        token = None
        if free and self.random.random() < 0.5:
            name = self.random.choice(free)
            token = (name, max((n for a, n, _ in self.tokens if a == name), default=0) + 1)
        try:
            return self.begun(token)
        except TokenOrderError:
            assert token is not None
            self.require_unsure(token[0])
            return self.begun((token[0], self.unsure[token[0]] + 1))

    def begun(self, token: tuple[str, int] | None) -> Open:
        found = Open(self.table.transaction(token=token), dict(self.columns), list(self.done), token)
        found.tx.__enter__()
        self.groups.note_carried(self)
        found.before = list(self.done)
        assert found.tx.commit is None, f"a token that no commit carries is taken for a repeat: {token}\n{self.story()}"
        self.open.append(found)
        return found

    def took(self, token: tuple[str, int], commit: Commit) -> None:
        super().took(token, commit)
        name, number = token
        self.again += number <= self.unsure.pop(name, 0)
        self.tokens.append((name, number, commit))

    def take_tokens_back(self, to: str) -> None:
        for name, number, commit in self.tokens:
            if commit.completed_at > to:
                self.unsure[name] = max(number, self.unsure.get(name, 0))
        self.tokens = [token for token in self.tokens if token[2].completed_at <= to]
        last = {name: (number, commit) for name, number, commit in self.tokens}
        for name, (number, commit) in last.items():
            try:
                repeated = self.table.upsert(NONSENSE, token=(name, number))
            except TokenOrderError:
                self.require_unsure(name)
            else:
                assert repeated.repeated
                assert repeated.requested_at == commit.requested_at, self.story()

    def require_unsure(self, name: str) -> None:
        """A token may be refused only where the kept ones may have been forgotten with their commits."""
        assert name in self.unsure, self.story()
        assert self.retention.dropped_count, self.story()

    # --- services -------------------------------------------------------------------------------------------------

    def service(self, name: str, run: Any, *, erases: bool = False) -> None:
        before = {saved.name: self.bytes_saved(saved) for saved in self.saved}
        super().service(name, run, erases=erases)
        for saved in self.saved:
            if saved.name in before:
                same = self.bytes_saved(saved) == before[saved.name]
                assert same, f"{name} changed what {saved.name} shows\n{self.story()}"

    def bytes_saved(self, saved: Saved) -> bytes:
        return self.bytes_of(self.table.scan(as_of=self.rewinds.choice([saved.name, saved.at]), meta=True))

    def require_ok(self, done: Maintained) -> None:
        """An erasure under way is not finished as long as there are savepoints with the rows."""
        failed = [action for action in done.actions if action.state == "failed"]
        refused = self.saved and self.place.store.list(ERASURES)
        assert not failed or refused, f"{done}\n{self.story()}"

    def refused_erasure(self, error: InvalidInputError) -> str:
        assert any(saved.name in str(error) for saved in self.saved), f"{error}\n{self.story()}"
        return "refused"

    def finish(self) -> None:
        """First all is cleaned and archived that a savepoint lets go, and the table goes back to it."""
        maintenance = self.table.maintenance
        self.write()
        self.service("savepoint", self.save)
        self.write()
        self.write()
        self.service("compact", lambda: self.note("compact", maintenance.compact()))
        self.write()
        self.spared = NONE
        self.service("clean", lambda: self.note("clean", maintenance.clean(commits=1, readers=NONE)))
        self.service("archive", lambda: self.note("archive", maintenance.archive(keep_commits=1)))
        self.schedule()
        newest = max(self.saved, key=lambda saved: saved.at)
        self.service("restore", lambda: self.note(self.restore_to(newest.name, newest.at)), erases=True)
        self.end_some()
        while self.saved:
            self.service("drop savepoint", self.unsave)
        super().finish()
        for gone in self.gone:
            self.check_gone(gone)

    def write(self) -> None:
        self.begin()
        self.commit(self.open.pop())

    # --- what must hold -------------------------------------------------------------------------------------------

    def check(self) -> None:
        super().check()
        for saved in self.saved:
            show(self.table.scan(as_of=saved.name, meta=True), self.expected(saved.seen), self)

    def check_as_of(self, done: Done) -> None:
        at = done.commit.completed_at
        if at < self.mark and any(saved.at == at for saved in self.saved):
            show(self.table.scan(as_of=at, meta=True), self.expected(self.seen_by(at)), self)
        else:
            super().check_as_of(done)

    def seen_by(self, at: str) -> list[Done]:
        return [d for d in self.done if d.commit.completed_at <= at]

    def check_gone(self, gone: Gone) -> None:
        """Nothing of what was dropped is answered."""
        table, commit = self.table, gone.done.commit
        point: Any = self.rewinds.choice([commit, commit.version, commit.completed_at])
        with pytest.raises(SnapshotExpiredError):
            table.scan(as_of=point)
        with pytest.raises((SnapshotExpiredError, InvalidInputError)):  # the latter beside an erasure under way
            table.maintenance.restore(point)
        with pytest.raises(SnapshotExpiredError):
            table.changes(point)
        with pytest.raises(CheckpointExpiredError):
            table.changes(f"completed:{commit.completed_at}")
        for done in self.done[-1:]:
            for ends in ((point, done.commit), (done.commit, point)):
                with pytest.raises(SnapshotExpiredError):
                    table.diff(*ends)

    def follow(self, follower: Follower) -> None:
        """Who has seen something that is dropped is refused; who stands where it may be is refused, or goes on."""
        if not self.stands_in_a_cut(follower):
            super().follow(follower)
            return
        has_seen = self.has_seen_what_is_gone(follower)
        try:
            follower.go_on(self)
        except CheckpointExpiredError:
            self.anew(follower)
        else:
            assert not has_seen, f"{follower} goes on across a restore\n{self.story()}"

    def anew(self, follower: Follower) -> None:
        scan = self.table.scan(consistency=follower.consistency)
        follower.copy = {self.key(row): row for row in scan.to_arrow().to_pylist()}
        follower.checkpoint = scan.checkpoint
        self.note("a follower begins anew", follower.consistency)
        follower.go_on(self)

    def stands_in_a_cut(self, follower: Follower) -> bool:
        if follower.checkpoint is None:
            return False
        by, time = follower.checkpoint.split(":")[:2]
        restores = tail_of(self.table).restores
        return any((r.first if by == "completed" else r.first_requested) <= time < r.at for r in restores)

    def has_seen_what_is_gone(self, follower: Follower) -> bool:
        assert follower.checkpoint is not None
        by, time = follower.checkpoint.split(":")[:2]
        if by == "completed":
            return any(gone.done.commit.completed_at <= time < gone.at for gone in self.gone)
        return any(gone.done.commit.requested_at < time < gone.at for gone in self.gone)


def told(done: Restored) -> tuple[object, ...]:
    """What a restore says, but for whether it is only said."""
    return done.to, done.savepoint, done.commits, done.instants, done.files, done.pending, done.plans


def run_restoring(
    seed: int, rule: str, path: Path, steps: int, kind: type[RestoringHistory] | None = None
) -> RestoringHistory:
    """A history from its seed, as `run_upkeep`."""
    history = run_upkeep(seed, rule, path, steps, kind or RestoringHistory)
    assert isinstance(history, RestoringHistory)
    return history

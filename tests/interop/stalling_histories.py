"""Random histories in which processes freeze just before a file that Hudi is told by, and users share a table.

A process freezes before any such file of what it does: of a write, a compaction, a clean, a savepoint, an overwrite.
Others go on, so that what it was at may be compacted, archived, cleaned and dropped; then it wakes, puts its file, and
is killed. The next sweep removes what it has put too late.

Another user restores the table, archives and cleans it, but may not delete the files that others have put. What is left
of a restore is told by an error, Hudi's readers see a moment of the table's history until then, and the next sweep of
the user who may goes on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from crdt_mor import InvalidInputError, Opening, SnapshotExpiredError, StorageUnavailableError, Table
from crdt_mor.errors import RestoreUnfinishedError, UnsupportedFeatureError
from crdt_mor.events.restore import files_of_dropped
from crdt_mor.events.session import Session
from crdt_mor.store.local import LocalStore
from crdt_mor.testing.faults import ProcessDied
from crdt_mor.write.open_write import OpenWrite
from tests.inside import look_for_hudi, session_of
from tests.interop.readers import Rows, hudi_rs, ours
from tests.interop.shapes import NO_TIME, Maker, swept
from tests.interop.upkeep_histories import CUSTOM, STEPS, UpkeepHistory
from tests.stores import Dying, ScriptedStore

Look = Callable[[UpkeepHistory], None]

HUDIS = ".hoodie/timeline/"
FROZEN = ("commit", "overwrite", "compact", "compact logs", "clean", "savepoint")
"""What a process does that freezes."""

MEANWHILE = (*(3 * ("commit", "compact")), "archive", "clean to the last commit")
"""What others do at least until it wakes, often: then the completion that it was to tell of is dropped."""


def of_another(store: LocalStore) -> ScriptedStore:
    """The store of another user, who may delete only own files, as in sticky folders."""
    own: set[str] = set()

    def script(operation: str, path: str, call: Callable[[], Any]) -> Any:
        if operation == "delete" and path not in own and store.stat(path) is not None:
            raise StorageUnavailableError(f"EPERM. path={path}")
        answer = call()
        if operation in ("put", "copy") and answer:
            own.add(path)
        return answer

    return ScriptedStore(store, script)


def is_told(operation: str, path: str) -> bool:
    """Whether a process puts a file that Hudi is told by."""
    return operation == "put" and path.startswith(HUDIS)


class StallingHistory(UpkeepHistory):
    """A history in which processes freeze, and another user is at work as well."""

    def __init__(self, make: Maker, seed: int, kind: str) -> None:
        super().__init__(make, seed, kind)
        self.choices = {**STEPS, "freeze": 6, "by another": 6}
        self.stalls = random.Random(f"{seed} {kind} stalls")
        self.frozen: list[str] = []
        """The files before which a process froze."""
        self.unfinished = 0
        """How many restores left something that its user might not remove."""
        self.is_frozen = False
        self.foreign = of_another(LocalStore(make.root))

    def run(self, steps: int, look: Look) -> None:
        for name in ("commit", "compact", "commit", "freeze", "savepoint", "by another", "commit", "by another"):
            self._step(name, look)
        super().run(steps, look)

    def _step(self, name: str, look: Look) -> None:
        match name:
            case "freeze" if self.is_frozen:
                pass
            case "freeze":
                self._freeze(look)
            case "by another":
                self._by_another(look)
            case _:
                super()._step(name, look)

    def _freeze(self, look: Look) -> None:
        """One process freezes, others go on, it puts its file and is dead; then somebody sweeps."""
        stalls, own = self.stalls, self.table

        def others(path: str) -> None:
            self.frozen.append(path)
            self.steps.append(f"frozen before {path.rpartition('/')[2]}")
            self.table, self.is_frozen = own, True
            self._look_at_savepoints()
            names = MEANWHILE if stalls.random() < 0.7 else stalls.choices([*self.choices], k=3)
            for name in names:
                self._step(name, look)

        dying = Dying(is_told, at=stalls.randrange(3) + 1, after=True, meanwhile=others)
        self.table = Table(self.make.root, opening=Opening(store=ScriptedStore(LocalStore(self.make.root), dying)))
        what = stalls.choice(FROZEN)
        before = {*own.inspect.pending()["requested_at"].to_pylist()}
        self.steps.append(f"one that may freeze: {what}")
        with suppress(ProcessDied):
            self._do(what)
        self.table, self.is_frozen = own, False
        look_for_hudi(own)
        for requested in {*own.inspect.pending()["requested_at"].to_pylist()} - before - self._begun():
            own.maintenance.roll_back(requested)  # of the process that is dead
        self._look_at_savepoints()
        self.steps.append("sweep")
        swept(own)
        look(self)

    def _look_at_savepoints(self) -> None:
        """Note the savepoint that the process which froze has made."""
        saved, table = self.saved, self.table
        self.saved = {
            s.name: saved.get(s.name) or (s.at, ours(table, as_of=s.name)) for s in table.maintenance.savepoints()
        }

    def _begun(self) -> set[str]:
        """The writes of this history that are pending, others' than that of the process that froze."""
        return {str(tx._write.begun.requested) for tx in self.pending if isinstance(tx._write, OpenWrite)}

    def _by_another(self, look: Look) -> None:
        """Another user does some upkeep, whose deletes may be refused, or writes."""
        own = self.table
        what = self.stalls.choice(["commit", "commit", "archive", "clean", "restore", "restore"])
        self.steps.append(f"by another: {what}")
        self.table = Table(self.make.root, opening=Opening(store=self.foreign))
        if what == "commit":
            super()._step(what, look)
            self.table = own
            look_for_hudi(own)
            return
        shown = [*self.views.values(), ours(own)]
        try:
            match what:
                case "restore":
                    unfinished = self.unfinished
                    self._restore_by_another(shown)
                    if self.unfinished > unfinished:  # and writes, so that no other user projects the restore itself
                        super()._step("commit", lambda _: None)
                case "archive":
                    self.archived += self.table.maintenance.archive(keep_commits=1).instants
                case _:
                    self.table.maintenance.clean(commits=self.stalls.randint(1, 3), readers=NO_TIME)
        finally:
            self.table = own
        look_for_hudi(own)
        if what != "restore":
            look(self)
        swept(own)
        look(self)
        assert not left_of_archived(session_of(own)), self.story

    def _restore_by_another(self, shown: list[Rows]) -> None:
        """To a commit, or to the newest savepoint; what may not be removed is told."""
        points = [*self.views][-3:-1] + [*self.saved][-1:]
        if not points:
            return
        to = self.stalls.choice(points)
        session = session_of(self.table)
        rows = self.saved[to][1] if to in self.saved else self.views[to]
        at = self.saved[to][0] if to in self.saved else to
        before = self.unfinished
        try:
            self.table.maintenance.restore(to)
        except RestoreUnfinishedError:
            self.unfinished += 1
        except (SnapshotExpiredError, UnsupportedFeatureError, InvalidInputError):
            return
        else:
            left = session.run(files_of_dropped(session.publisher, session.tail()))
            assert not left, f"a restore does not say that it is unfinished\n{self.story}"
        assert ours(self.table) == rows, self.story
        # What could not be removed are logs to Hudi's readers, which refuse them where the mode is CUSTOM.
        refused = self.is_refused or (self.unfinished > before and self.kind in CUSTOM)
        seen = refused or hudi_rs(self.make.root) in [*shown, rows]
        assert seen, f"Hudi's readers see what never was\n{self.story}"
        value = session.tail()
        if value.restores and value.restores[-1].to == at:
            self.restored += 1
            self.gone += [time for time in self.views if time > at]
            self.views = {time: one for time, one in self.views.items() if time <= at}
            self.given_up += self.pending
            self.pending = []


def left_of_archived(session: Session) -> list[str]:
    """What still stands in Hudi's active timeline of what has been archived."""
    watermark = session.tail().archive.watermark
    stats: list[Any] = session.store.list(HUDIS.rstrip("/"))
    names = (stat.path.rpartition("/")[2] for stat in stats)
    return [name for name in names if name[:17].isdigit() and name[:17] <= watermark]

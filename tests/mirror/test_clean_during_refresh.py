"""A clean and a refresh of a mirror at once, in every order of their steps, also if either dies.

    refresh   seal ── put of a head ── look for cleans ── put of another head, if files of the first may go
    clean     look at heads ── event ── look at heads ── deletes

A head may name a missing file only between the two puts of a refresh; if the process dies there, until the next one.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from types import ModuleType
from typing import Any, Literal

import pytest

from crdt_mor import Opening, Table
from crdt_mor.errors import CrdtMorError
from crdt_mor.ground.threads import one_thread
from crdt_mor.log.steps import run
from crdt_mor.mirror.delta_log import read_state
from crdt_mor.mirror.iceberg_read import read_head
from crdt_mor.services import clean as cleaning
from crdt_mor.services import mirror as mirroring
from crdt_mor.store import MemoryStore
from crdt_mor.store.open import address_of
from crdt_mor.testing.faults import DelegatingStore, ProcessDied
from tests.mirror.shapes import SCHEMA, rows

Format = Literal["delta", "iceberg"]
FORMATS: tuple[Format, ...] = ("delta", "iceberg")
MIRRORS = ("_delta_log", "metadata")
HEAD = re.compile(r"_delta_log/\d{20}\.json|metadata/v\d+\.metadata\.json")
VERSIONS = ".hoodie/.crdt_mor/timeline"


class Process(DelegatingStore):
    """A process that performs its operations when a test says so.

    Attributes:
        operation, path: of the next operation.
        heads: number of the mirror's heads that it has put.
        is_done: True at its end; has_died: at its early end.
    """

    def __init__(self, store: MemoryStore, sees: str | tuple[str, ...], act: Callable[[Table], object]) -> None:
        """sees: folders in which the other process makes changes."""
        super().__init__(store)
        self._sees = sees
        self.operation, self.path, self.heads = "", "", 0
        self.is_done, self.has_died = False, False
        self._goes, self._pauses = threading.Semaphore(0), threading.Semaphore(0)
        self._is_paused = False
        table = Table("t", opening=Opening(store=self))
        self._is_paused = True
        threading.Thread(target=self._run, args=(act, table), daemon=True).start()
        self._pauses.acquire()

    def around(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        is_change = operation == "delete" or (operation == "put" and path.startswith((*MIRRORS, VERSIONS)))
        if self._is_paused and (is_change or (operation in ("stat", "list", "read") and path.startswith(self._sees))):
            self.operation, self.path = operation, path
            self._pauses.release()
            self._goes.acquire()
        if self.has_died:
            raise ProcessDied
        answer = call()
        self.heads += operation == "put" and bool(answer) and HEAD.fullmatch(path) is not None
        return answer

    def _run(self, act: Callable[[Table], object], table: Table) -> None:
        try:
            with one_thread():
                act(table)
        except (CrdtMorError, ProcessDied):
            self.has_died = True
        self.is_done = True
        self._pauses.release()

    def step(self) -> bool:
        """Perform the next operation; return False at the end."""
        if not self.is_done:
            self._goes.release()
            self._pauses.acquire()
        return not self.is_done

    def die(self) -> None:
        self.has_died = True
        while self.step():
            pass


class Race:
    """A refresh that has sealed its version, a compaction that replaced its base file, and a clean."""

    def __init__(self, start: MemoryStore, format: Format) -> None:
        self.store, self.format = copied(start), format
        self.table = opened(self.store)
        self.refresh = Process(self.store, VERSIONS, lambda table: table.mirror(format))
        for _ in range(2):  # a stat and a read of the newest version
            self.refresh.step()
        self.table.upsert(rows([1], 2))
        self.table.maintenance.compact()
        self.clean = Process(self.store, MIRRORS, cleaned)

    def run(self, process: Process, steps: int | None = None) -> bool:
        """Run a process for some operations, or to its end; return True if it has an operation left."""
        for _ in count() if steps is None else range(steps):
            changes = HEAD.fullmatch(process.path) or process.operation == "delete"
            goes_on = process.step()
            if changes or not goes_on:
                self.require_whole()
            if not goes_on:
                break
        return not process.is_done

    def require_whole(self) -> None:
        """Require the files of the head, unless a refresh is between its two puts, or died there."""
        is_between = self.refresh.heads == 1 and (self.refresh.has_died or not self.refresh.is_done)
        if not is_between:
            assert not self.missing(), "a head names a missing file"

    def missing(self) -> set[str]:
        return {path for path in self.named() if self.store.stat(path) is None}

    def named(self) -> set[str]:
        if self.format == "delta":
            state = run(read_state(), self.store, self.table._session.environment)
            return set() if state is None else {file["path"] for file in state.files.values()}
        found = run(read_head(address_of(self.store, "t")), self.store, self.table._session.environment)
        return set() if found is None else {entry.path for one in found[0].manifests for entry in one.entries}

    def finish(self) -> None:
        """Run both processes to their ends, and then the next refresh and clean: all kept versions are whole."""
        for process in (self.refresh, self.clean):
            self.run(process)
        if self.refresh.has_died:
            self.table.mirror(self.format)
        cleaned(self.table)
        assert not self.missing()
        gone = {path for path in mirroring.files_needed(self.table._session) if self.store.stat(path) is None}
        assert not gone or self.refresh.has_died, "a kept version names a missing file"


def opened(store: MemoryStore) -> Table:
    return Table("t", opening=Opening(store=store))


def cleaned(table: Table) -> None:
    table.maintenance.clean(keep=timedelta(0), readers=timedelta(0))


def copied(store: MemoryStore) -> MemoryStore:
    made = MemoryStore()
    made._objects = dict(store._objects)
    return made


def started(format: Format, *, is_mirrored: bool) -> MemoryStore:
    store = MemoryStore()
    table = Table.create("t", SCHEMA, key="id", buckets=1, opening=Opening(store=store))
    if is_mirrored:
        table.upsert(rows([9], 9))
        table.mirror(format)
    table.upsert(rows(range(6), 1))
    table.maintenance.compact()
    return store


def race_all(start: MemoryStore, format: Format, dies: str = "") -> int:
    """Run every order with at most three changes between the processes; return their number.

    dies: the process, "first" or "second", that dies at its second turn.
    """
    number = 0
    for is_refresh_first in (True, False):
        first, has_more = 0, True
        while has_more:
            second, goes_on = 0, True
            while goes_on:
                race = Race(start, format)
                one, other = (race.refresh, race.clean) if is_refresh_first else (race.clean, race.refresh)
                has_more = race.run(one, first)
                goes_on = race.run(other, second)
                if dies:
                    (one if dies == "first" else other).die()
                race.run(one)
                race.finish()
                second += 1
                number += 1
            first += 1
    return number


@pytest.mark.parametrize("format", FORMATS)
def test_refresh_that_was_late_for_a_clean_puts_another_head(format: Format) -> None:
    race = Race(started(format, is_mirrored=True), format)
    until(race.refresh, lambda process: process.operation == "put" and HEAD.fullmatch(process.path) is not None)
    race.run(race.clean)
    race.run(race.refresh)
    assert race.refresh.heads == 2
    race.finish()


@pytest.mark.parametrize("format", FORMATS)
def test_clean_spares_files_of_a_head_put_after_its_first_look(format: Format) -> None:
    race = Race(started(format, is_mirrored=True), format)
    until(race.clean, lambda process: process.operation == "put" and process.path.startswith(VERSIONS))
    race.run(race.refresh)
    assert race.refresh.heads == 1
    named = race.named()
    race.finish()
    for stat in [found for folder in MIRRORS for found in race.store.walk(folder)]:
        race.store.delete(stat.path)
    cleaned(race.table)  # the commits of the spared files are known
    assert not any(race.store.stat(path) for path in named)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("dies", "is_mirrored"), [("", True), ("", False), ("first", True), ("second", True)])
def test_every_order_of_a_clean_and_a_refresh(format: Format, dies: str, is_mirrored: bool) -> None:
    assert race_all(started(format, is_mirrored=is_mirrored), format, dies) > 200


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("module", "look", "found"), [(mirroring, "_has_lost_files", False), (cleaning, "_named_meanwhile", frozenset())]
)
def test_search_finds_a_missing_look(
    format: Format, module: ModuleType, look: str, found: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, look, lambda *_: found)
    with pytest.raises(AssertionError, match="names a missing file"):
        race_all(started(format, is_mirrored=True), format)


def until(process: Process, is_next: Callable[[Process], bool]) -> None:
    """Run a process to the operation before which this holds."""
    while not is_next(process):
        assert process.step()

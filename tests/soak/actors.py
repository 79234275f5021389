"""A process of a soak, until it is killed: `python -m tests.soak.actors FOLDER URI NAME`

What it does is the first part of its name. Whatever the store answers, it tries again, under the same token.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

from crdt_mor import Commit, Opening, Scan, SnapshotExpiredError, StorageUnavailableError, Table
from crdt_mor.errors import CheckpointExpiredError, CommitUnknownError, EarlierWritePendingError, WriterExpiredError
from crdt_mor.model.instant import parse, to_ms
from crdt_mor.store import LocalStore
from crdt_mor.testing import FaultyStore
from tests.proxy import Hurried
from tests.soak import journal, meaning

T = TypeVar("T")

EXPIRY: Final = timedelta(seconds=8)
KEPT: Final = timedelta(seconds=60)
"""The history that is kept, and for how long readers are spared."""
REMEMBERED: Final = 4
FAILURES, LOST_REPLIES = 0.001, 0.001
PAUSES_S: Final = {
    "write": 1.2, "update": 2.0, "distribute": 4.0, "compact": 4.0, "maintain": 5.0, "read": 4.0, "follow": 3.0,
}  # fmt: skip
"""For how long a process rests after each of its works, about: two cores are enough for all of them."""

LATER: Final = (StorageUnavailableError, CommitUnknownError, WriterExpiredError, EarlierWritePendingError)


_stores = count()


class ShakyStore(FaultyStore):
    """A store on a local disk some of whose calls fail: others in each process, and each time it is made."""

    def __init__(self, root: str) -> None:
        seed = os.getpid() << 32 | next(_stores)
        super().__init__(LocalStore(root), seed, failures=FAILURES, lost_replies=LOST_REPLIES)
        self._root = root

    def __reduce__(self) -> tuple[object, ...]:
        return ShakyStore, (self._root,)


def opened(uri: str) -> Table:
    """The table as a process has it: on a disk whose calls fail now and then, or in a bucket behind a proxy."""
    if "://" in uri:
        return Table(uri, opening=Opening(writer_expiry=EXPIRY, environment=Hurried()))
    return Table(uri, opening=Opening(writer_expiry=EXPIRY, store=ShakyStore(uri)))


def rows_of(scan: Scan) -> meaning.Rows:
    return dict(map(_row, scan.to_arrow().to_pylist()))


def _row(row: dict[str, Any]) -> tuple[str, meaning.Row]:
    return row["id"], (row["kind"], row["val"], row["n"], row["s"], row["q"])


# --- commits ----------------------------------------------------------------------------------------------------------


def commit(table: Table, name: str, number: int) -> Commit:
    """Make the commit of this number of a process, or find that it was made."""
    token = (name, number)
    if name == meaning.DRIVER:
        return distribute(table, number, token)
    if name in meaning.UPDATERS:
        return move_money(table, name, number, token)
    gone = meaning.deleted_by(name, number)
    deleted = None if gone is None else meaning.table_of({gone: ("own", None, None, None, None)}).select(meaning.KEY)
    if meaning.is_delete(number):
        return table.delete(deleted, token=token)
    upserted = meaning.table_of(meaning.upserted_by(name, number))
    if deleted is None:
        return table.upsert(upserted, token=token)
    with table.transaction(token=token) as block:
        block.delete(deleted)
        block.upsert(upserted)
    assert block.commit is not None
    return block.commit


def move_money(table: Table, name: str, number: int, token: tuple[str, int]) -> Commit:
    source, target, amount = meaning.transfer(name, number)
    balance = f"CASE WHEN id = '{source}' THEN val - {amount} WHEN id = '{target}' THEN val + {amount} ELSE val END"
    where = f"kind = 'bank' AND id IN ('{source}', '{target}', '{name}')"
    return table.update({"val": balance, "n": "n + 1"}, where, token=token)


def distribute(table: Table, number: int, token: tuple[str, int]) -> Commit:
    """A write of several tasks, each by the job as another process has it. Of one that is done twice either counts."""
    chance = Random(f"{token} {os.getpid()}")
    job = table.jobs.plan("upsert", meaning.SCHEMA, token=token)
    sent = pickle.dumps(job)

    def staged(task: int) -> Any:
        return pickle.loads(sent).stage(meaning.table_of(meaning.staged_by(task, number)), task=task)

    tries = {task: [staged(task) for _ in range(chance.choice((1, 1, 2)))] for task in range(meaning.TASKS)}
    return table.jobs.complete(job, [chance.choice(receipts) for receipts in tries.values()])


# --- processes --------------------------------------------------------------------------------------------------------


@dataclass
class Actor:
    """One process. folder: where the journals are."""

    folder: Path
    name: str
    journal: journal.Journal
    table: Table

    @property
    def kind(self) -> str:
        return self.name.rstrip("0123456789")

    def insist(self, call: Callable[[], T]) -> T:
        """What a program does that has to get through: it tries again, whatever the store did or did not say."""
        while True:
            try:
                return call()
            except LATER as error:
                self.journal.say("again", type(error).__name__)
                self.rest(0.1)

    def rest(self, seconds: float) -> None:
        self.table.environment.sleep(seconds * (0.5 + self.table.environment.jitter()))

    def acknowledged(self) -> dict[str, int]:
        """Up to which commit each process has been told of its commits."""
        writing = [*meaning.WRITERS, *meaning.UPDATERS, meaning.DRIVER]
        return {name: journal.last_acknowledged(self.folder, name) for name in writing}

    def require_late(self, since_ms: int, error: Exception) -> None:
        """What is refused is of a moment before the history that is kept."""
        age_ms = self.table.environment.now_ms() - since_ms
        assert age_ms >= KEPT / timedelta(milliseconds=1), f"refused after {age_ms} ms: {error}"
        self.journal.say("late", type(error).__name__)


def write(actor: Actor) -> Iterator[None]:
    for number in count(journal.last_acknowledged(actor.folder, actor.name) + 1):
        actor.journal.say("try", number)
        done = actor.insist(partial(commit, actor.table, actor.name, number))
        actor.journal.acknowledge(number, done)
        yield


def compact(actor: Actor) -> Iterator[None]:
    while True:
        done = actor.insist(partial(actor.table.maintenance.compact, log_files_min=3))
        actor.journal.say("did", len(done))
        yield


def maintain(actor: Actor) -> Iterator[None]:
    while True:
        done = actor.insist(actor.table.maintenance.maintain)
        for action in done.actions:
            if action.state == "failed":
                assert "simulated" in action.error or "://" in actor.table.uri, action
                actor.journal.say("again", action.service)
        actor.journal.say("did", *(action.service for action in done.actions))
        yield


@dataclass(frozen=True)
class View:
    """What a reader has seen. as_of: of which moment."""

    as_of: str
    checkpoint: str
    rows: meaning.Rows


def read(actor: Actor) -> Iterator[None]:
    """The newest rows; one of the last views once more, as of its moment; and what leads from it to the newest rows."""
    before: deque[View] = deque(maxlen=REMEMBERED)
    chance = Random(actor.name)
    while True:
        now = actor.insist(partial(seen, actor))
        if before:
            then = chance.choice(before)
            try:
                actor.insist(partial(repeated, actor.table, then, now))
            except (SnapshotExpiredError, CheckpointExpiredError) as error:
                actor.require_late(to_ms(parse(then.as_of)), error)
        before.append(now)
        actor.journal.say("did", len(now.rows))
        yield


def seen(actor: Actor) -> View:
    """The newest rows, which show every commit that somebody was told of before."""
    while True:
        known, sealed_ms = actor.acknowledged(), actor.table.environment.now_ms()
        scan = actor.table.scan()
        try:
            rows = rows_of(scan)
        except SnapshotExpiredError as error:
            actor.require_late(sealed_ms, error)
            continue
        require_right(rows, f"the view as of {scan.as_of}", known)
        return View(scan.as_of, scan.checkpoint, rows)


def repeated(table: Table, then: View, now: View) -> None:
    """A view of before is what it was, and the changes since then make the newest one of it."""
    assert rows_of(table.scan(as_of=then.as_of)) == then.rows, f"{then.as_of} shows something else now"
    before, after = meaning.numbers_of(then.rows), meaning.numbers_of(now.rows)
    assert all(after[name] >= before[name] for name in before), f"from {before} back to {after}"
    rows = dict(then.rows)
    for row in table.changes(then.checkpoint, until=now.as_of).to_arrow().to_pylist():
        apply(rows, row, images=False)
    assert rows == now.rows, f"changes from {then.as_of} to {now.as_of} make other rows"


def require_right(rows: meaning.Rows, what: str, known: meaning.Numbers | None = None) -> None:
    wrong = meaning.wrong_in(rows, known)
    assert not wrong, f"{what} is wrong:\n" + "\n".join(wrong)


def apply(rows: meaning.Rows, row: dict[str, Any], *, images: bool) -> None:
    """Change a copy as a row of changes says."""
    key, values = _row(row)
    if row["_change_type"] in ("delete", "update_preimage"):
        gone = rows.pop(key, None)
        assert not images or gone == values, f"the image of {key} before is {values}, and it was {gone}"
    else:
        rows[key] = values


def follow(actor: Actor) -> Iterator[None]:
    """A copy in a file, by changes alone, those of `follow1` as images; it is always the table at its checkpoint."""
    file, images = actor.folder / f"{actor.name}.copy", actor.name.endswith("1")
    rows, checkpoint = _kept(file)
    while True:
        try:
            if checkpoint is None:
                view = actor.insist(partial(seen, actor))
                rows, checkpoint = view.rows, view.checkpoint
            rows, checkpoint = actor.insist(partial(followed, actor.table, rows, checkpoint, images))
        except (CheckpointExpiredError, SnapshotExpiredError) as error:
            assert checkpoint is not None
            actor.require_late(to_ms(parse(checkpoint.split(":")[1])), error)
            checkpoint = None
            continue
        require_right(rows, f"the copy at {checkpoint}")
        _keep(file, (rows, checkpoint))
        actor.journal.say("did", len(rows))
        yield


def followed(table: Table, before: meaning.Rows, checkpoint: str, images: bool) -> tuple[meaning.Rows, str]:
    """A copy that has followed the table from a checkpoint to the next."""
    rows, changes = dict(before), table.changes(checkpoint, images=images)
    for row in changes.to_arrow().to_pylist():
        apply(rows, row, images=images)
    return rows, changes.checkpoint


def _kept(file: Path) -> tuple[meaning.Rows, str | None]:
    if not file.exists():
        return {}, None
    rows, checkpoint = json.loads(file.read_text())
    return {key: tuple(row) for key, row in rows.items()}, checkpoint


def _keep(file: Path, kept: tuple[meaning.Rows, str]) -> None:
    """Rows and checkpoint together: a process that is killed has the ones before, or these."""
    fresh = file.with_suffix(".fresh")
    fresh.write_text(json.dumps(kept))
    fresh.replace(file)


WORK: Final[dict[str, Callable[[Actor], Iterator[None]]]] = {
    "write": write, "update": write, "distribute": write, "compact": compact, "maintain": maintain, "read": read,
    "follow": follow,
}  # fmt: skip


def main(folder: str, uri: str, name: str) -> None:
    faulthandler.register(signal.SIGUSR1)  # where are you? to the error stream
    notes = journal.Journal(Path(folder), name)
    while True:
        try:
            actor = Actor(Path(folder), name, notes, opened(uri))
            break
        except StorageUnavailableError as error:
            notes.say("again", type(error).__name__)
    for _ in WORK[actor.kind](actor):
        actor.rest(PAUSES_S[actor.kind])


if __name__ == "__main__":
    main(*sys.argv[1:])

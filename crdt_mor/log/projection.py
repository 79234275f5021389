"""Projection: publish each version's events to others as files (for Hudi's readers, `hudi.projection`).

    project      withdraw cancelled plans ─ put the missing files ─ check whether they were too late

Any number of processes may project a version, however late; each puts only missing files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from crdt_mor.errors import TableNotFoundError, TableReplacedError
from crdt_mor.log.outcome import is_given_up_in
from crdt_mor.log.posts import LOOKS_A_RANK
from crdt_mor.log.steps import GetStat, MakeDurable, Now, Put, Steps, Together, Wait, put_all_surely
from crdt_mor.log.tail import find_tail, still_stands
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline

_BESIDE = 15
"""Files of begins put in parallel with a durable file."""

_FEW = 16
"""Up to so many files are looked for in parallel; of more, the last first."""


@dataclass(frozen=True, slots=True)
class EventFile:
    """A file of an event. `make` encodes its bytes if it is missing."""

    path: str
    make: Callable[[], bytes]
    durable: bool = True

    @property
    def put(self) -> Put:
        return Put(self.path, self.make(), self.durable)


@dataclass(frozen=True, slots=True)
class Projected:
    """The files of a projection. It is not checked yet whether they were put too late."""

    value: Timeline
    paths: tuple[str, ...]


class EventProjector(Protocol):
    """Encodes the own events of a version, `value`, as files."""

    def place(self, value: Timeline) -> Steps[None]:
        """Give data files the names that the version's events require."""
        ...

    def files(self, value: Timeline) -> Steps[Sequence[EventFile]]:
        """Return the files of the version's events, in the order in which they are put.

        They depend only on the value and on immutable objects, so every helper puts the same bytes.
        """
        ...

    def withdraw_obsolete(self, value: Timeline, placed: Sequence[str]) -> Steps[None]:
        """Remove the files of `placed` that were put too late: no other process removes them."""
        ...

    def paths_of(self, instant: InstantTime, placed: Sequence[str]) -> list[str]: ...

    def withdraw_cancelled(self, value: Timeline) -> Steps[None]: ...

    def withdraw_archived(self, tail: Timeline, placed: Sequence[str]) -> Steps[None]:
        """Remove the files of `placed` that belong to instants archived before the put."""
        ...

    def move_archived(self, value: Timeline) -> Steps[None]: ...

    def withdraw_dropped(self, tail: Timeline, value: Timeline, placed: Sequence[str]) -> Steps[None]:
        """Remove the files of `placed` whose instants a restore dropped before the put."""
        ...

    def carry_out_restore(self, value: Timeline) -> Steps[None]: ...


def project(
    projector: EventProjector,
    value: Timeline,
    *,
    own: bool = False,
    after: Sequence[str] = (),
    late: list[Projected] | None = None,
) -> Steps[list[str]]:
    """Remove files of cancelled plans, then put the missing files of the version's events. Returns the missing paths.

    In this order, Hudi's readers never find two plans of a file group, nor an overwrite's base file before a cancelled
    plan. own: this process published the version. after: objects made durable first. late: collects put files for
    `look_again`; None: check them at once.
    """
    if value.rolled_back:
        yield from projector.withdraw_cancelled(value)
    yield from projector.place(value)
    placed = yield from _put_files(projector, value, own=own, after=after)
    if placed and late is not None:
        late.append(Projected(value, tuple(placed)))
    elif placed:
        yield from _withdraw_late(projector, value, placed)
    if value.archive.version == value.version:
        yield from projector.move_archived(value)
    if value.restores:
        yield from projector.carry_out_restore(value)
    return placed


def _put_files(projector: EventProjector, value: Timeline, *, own: bool, after: Sequence[str]) -> Steps[list[str]]:
    """Put the missing files of a version's events; returns their paths. For `own`, all are missing.

    Durable files are put one after another, as Hudi's readers rely on their order.
    """
    files = yield from projector.files(value)
    missing = files if own else (yield from _missing(files))
    hints = [file.put for file in missing if not file.durable]
    lasting = [replace(file.put, after=after) for file in missing if file.durable]
    for path in () if lasting else after:
        yield MakeDurable(path)
    beside = _BESIDE * max(0, len(lasting) - 1) if value.newly_pending else 0
    first = max(0, len(hints) - beside)
    yield from put_all_surely(hints[:first])
    for i, put in enumerate(lasting):
        at = first + _BESIDE * i
        yield from put_all_surely([put, *hints[at : at + _BESIDE]])
    return [file.path for file in missing]


def look_again(projector: EventProjector, late: Sequence[Projected]) -> Steps[None]:
    for projected in late:
        yield from _withdraw_late(projector, projected.value, projected.paths)


def _withdraw_late(projector: EventProjector, value: Timeline, placed: Sequence[str]) -> Steps[None]:
    """Remove just put files from where they no longer belong.

    An instant given up or archived meanwhile had its files removed by a process that will not return. If the table was
    recreated, they were put into the new table. Nothing is archived while its version still stands.
    """
    begun = value.newly_pending
    try:
        if not begun and (yield from still_stands(value)):
            return
        tail = yield from find_tail(value)
    except (TableReplacedError, TableNotFoundError):
        yield from projector.withdraw_obsolete(value, placed)
        return
    yield from projector.withdraw_archived(tail, placed)
    yield from projector.withdraw_dropped(tail, value, placed)
    for instant in begun:
        if (yield from is_given_up_in(instant, tail)):
            yield from projector.withdraw_obsolete(value, projector.paths_of(instant, placed))


def _missing(files: Sequence[EventFile]) -> Steps[list[EventFile]]:
    """Return the missing files, and make the others durable.

    A file's writer may have died before that, and later objects must not outlast it.
    """
    if not files:
        return []
    if len(files) > _FEW and files[-1].durable and (yield GetStat(files[-1].path)) is not None:
        yield MakeDurable(files[-1].path)  # its writer put all others before
        return []
    stats = yield Together(tuple(GetStat(file.path) for file in files))
    for file, stat in zip(files, stats, strict=True):
        if stat is not None and file.durable:
            yield MakeDurable(file.path)
    return [file for file, stat in zip(files, stats, strict=True) if stat is None]


def last_put(files: Sequence[EventFile]) -> EventFile | None:
    """Return the file that exists only after all files of the version's events; None: no file shows that.

    A file that is not durable may exist before: a write's begin has put it.
    """
    return next((file for file in reversed(files) if file.durable), None)


def wait_for_projection(projector: EventProjector, value: Timeline) -> Steps[bool]:
    """Wait a little for a version's publisher to project it, and return True if it did. If nobody waited, all waiting
    writers would project at once.
    """
    last = last_put((yield from projector.files(value)))
    for _ in range(2 * LOOKS_A_RANK if last is not None else 0):
        assert last is not None
        began: int = yield Now()
        if (yield GetStat(last.path)) is not None:
            return True
        yield Wait(max(1, (yield Now()) - began))
    return False

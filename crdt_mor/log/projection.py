"""Projection: others are told of each version's events, in files of their own (Hudi's readers: `hudi.projection`).

    project      withdraw what was cancelled ─ put the files that are missing ─ look whether they came too late

Two of the rules of `log.publish` are about it: version n is projected before n + 1 is put (rule 2), and a write is
acknowledged once its own version is projected (rule 4). Any number of processes may project one version, now or much
later, and each puts only the files that it does not find. The projector says what the files hold.
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
"""How many files of writes that begin are put beside one that lasts."""

_FEW = 16
"""Files of a version that are looked for side by side. Of more, the last one is looked for first."""


@dataclass(frozen=True, slots=True)
class EventFile:
    """A file that tells others of an event. `make` makes its bytes, which a process asks for that finds it missing."""

    path: str
    make: Callable[[], bytes]
    durable: bool = True

    @property
    def data(self) -> bytes:
        """The bytes, made anew each time."""
        return self.make()

    @property
    def put(self) -> Put:
        return Put(self.path, self.data, self.durable)


@dataclass(frozen=True, slots=True)
class Projected:
    """Files that tell others of a version, whose process has not looked yet whether they were put too late."""

    value: Timeline
    paths: tuple[str, ...]


class EventProjector(Protocol):
    """Tells others of the events of each version, in files of their own. What is in them is its affair alone."""

    def place(self, value: Timeline) -> Steps[None]:
        """Give the data files their names that this very version asks for."""
        ...

    def files(self, value: Timeline) -> Steps[Sequence[EventFile]]:
        """The files of the events that this very version published, in the order in which they are put.

        They are a function of the value and of immutable objects, so that everybody who helps puts the same bytes.
        """
        ...

    def withdraw_obsolete(self, value: Timeline, placed: Sequence[str]) -> Steps[None]:
        """Remove `placed`, files of this version's events that were put too late: nobody else comes to remove them."""
        ...

    def paths_of(self, instant: InstantTime, placed: Sequence[str]) -> list[str]:
        """Those of `placed` that are the files of an instant."""
        ...

    def withdraw_cancelled(self, value: Timeline) -> Steps[None]:
        """Remove what the plans have left that this very version cancelled."""
        ...

    def withdraw_archived(self, tail: Timeline, placed: Sequence[str]) -> Steps[None]:
        """Remove those of `placed` that were put after their instants had been archived, as `tail` says."""
        ...

    def move_archived(self, value: Timeline) -> Steps[None]:
        """Move to the archive what this very version archived."""
        ...

    def withdraw_dropped(self, tail: Timeline, value: Timeline, placed: Sequence[str]) -> Steps[None]:
        """Remove those of `placed`, files of `value`, that were put after a restore had dropped them."""
        ...

    def carry_out_restore(self, value: Timeline) -> Steps[None]:
        """Remove what this very version dropped, if it restored the table to an earlier moment."""
        ...


def project(
    projector: EventProjector,
    value: Timeline,
    *,
    own: bool = False,
    after: Sequence[str] = (),
    late: list[Projected] | None = None,
) -> Steps[list[str]]:
    """Remove what is left of plans that the value cancelled; put the files of its own events where there are none.

    Returns the paths of the files that were missing.

    In this order, so that Hudi's readers never find two plans of one file group, nor a base file of an overwrite in
    front of a plan that is not to come any more.

    own: it was published just now by this process. after: objects whose names last before a file does that lasts, and
    in any case in the end. late: where it is noted which files were put, for `look_again`; None: whether they came too
    late is seen at once.
    """
    yield from projector.withdraw_cancelled(value)
    yield from projector.place(value)
    placed = yield from _put_files(projector, value, own=own, after=after)
    if placed and late is not None:
        late.append(Projected(value, tuple(placed)))
    elif placed:
        yield from _withdraw_late(projector, value, placed)
    yield from projector.move_archived(value)
    yield from projector.carry_out_restore(value)
    return placed


def _put_files(projector: EventProjector, value: Timeline, *, own: bool, after: Sequence[str]) -> Steps[list[str]]:
    """Put the files of a version's own events where there are none; returns the paths of those that were missing.

    Those that last are put one after another, as Hudi's readers go by their order. Those of writes that begin come
    first, side by side; many of them are put beside those that last, and before the last one. own, after: as for
    `project`; none is looked for of those that are `own`.
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
    """Remove of the files in `late` those that were put too late."""
    for projected in late:
        yield from _withdraw_late(projector, projected.value, projected.paths)


def _withdraw_late(projector: EventProjector, value: Timeline, placed: Sequence[str]) -> Steps[None]:
    """Remove of the files that were just put those that do not belong there any more.

    Put-if-absent is not idempotent once somebody may delete the file: if the instant was given up or archived in
    the meantime, its files have been removed by somebody who will not come again. If the table was, they were put
    into another one. Nothing is archived while the version stands that published it, so that suffices for events
    that nobody can give up.
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
    """Those files that are not there. Those that are there last from here on.

    The maker of one may have died before it was durable, and what follows it must not outlast it.
    """
    if not files:
        return []
    if len(files) > _FEW and files[-1].durable and (yield GetStat(files[-1].path)) is not None:
        yield MakeDurable(files[-1].path)  # its maker has put all others before
        return []
    stats = yield Together(tuple(GetStat(file.path) for file in files))
    for file, stat in zip(files, stats, strict=True):
        if stat is not None and file.durable:
            yield MakeDurable(file.path)
    return [file for file, stat in zip(files, stats, strict=True) if stat is None]


def wait_for_projection(projector: EventProjector, value: Timeline) -> Steps[bool]:
    """Whether the publisher of a version, who comes to it after the put, is seen to have projected it after some looks.

    All whose events it holds would do so at once otherwise, each with a wait for the disk, or a request a file.
    """
    files = yield from projector.files(value)
    for _ in range(2 * LOOKS_A_RANK if files and files[-1].durable else 0):
        began: int = yield Now()
        if (yield GetStat(files[-1].path)) is not None:
            return True  # all others were put before
        yield Wait(max(1, (yield Now()) - began))
    return False

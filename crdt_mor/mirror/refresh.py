"""The refresh of a mirror: one version of the table, published as metadata of another format.

    read the head ── shows the version or a later one? ──► done
         │ no
         ├─ merge and write each slice that the head does not show            files with a nonce in their names
         └─ put the next metadata file if absent ── lost ──► read the head again

The mirror's own metadata is the only state. It names the table, the version and the slices that it shows, so the
version never decreases and no process waits for another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Final, Protocol

import pyarrow as pa

from crdt_mor.errors import CommitUnknownError
from crdt_mor.log.steps import PUTS_MAX, Delete, GetStat, Now, Pause, Put, Read, Steps, Together
from crdt_mor.mirror.columns import MirrorColumn
from crdt_mor.mirror.files import DeadFile, NamedFile, RowFile, put_rows
from crdt_mor.mirror.slices import ShownSlice, SliceKey
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline_parts import FileGroup

LONG_MS: Final = 12 * 3600 * 1000
"""A refresh of this age looks for its files before it commits: sweeps delete files after a day."""

VERSION: Final = "crdt_mor.version"
AS_OF: Final = "crdt_mor.as_of"
TYPES: Final = "crdt_mor.types"
"""Names of a mirror's own properties in the metadata of each format."""

Objects = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Moment:
    """A version of the table, as the mirror shall show it.

    Attributes:
        version: of the timeline.
        as_of: the time of the last shown commit; between two versions only Hudi's commits move it.
        now_ms: the wall clock, for the metadata.
        keys: all file slices.
    """

    table_id: str
    version: int
    as_of: InstantTime
    now_ms: int
    columns: tuple[MirrorColumn, ...]
    keys: Mapping[FileGroup, SliceKey]

    @property
    def uuid(self) -> str:
        digits = self.table_id.replace("-", "").lower()
        if not re.fullmatch("[0-9a-f]{32}", digits):
            digits = sha256(self.table_id.encode()).hexdigest()[:32]
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    @cached_property
    def types(self) -> Mapping[str, str]:
        """The stored types by stored name. A slice is examined anew if the type of a known column changes."""
        return {column.stored: str(column.type) for column in self.columns}


@dataclass(frozen=True)
class Head:
    """The newest metadata of a mirror.

    Attributes:
        number: of its metadata file.
        slices: the digests of the shown slices (`SliceKey.files`). Slices without rows may be absent.
        types: see `Moment.types`.
        mode: the form of deleted rows.
        is_ours: False if another engine committed last. Then `version` is the last version of ours.
        state: the kind's own.
    """

    number: int
    table_id: str
    version: int
    as_of: InstantTime
    slices: Mapping[FileGroup, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    mode: str = ""
    is_ours: bool = True
    state: object = None


@dataclass(frozen=True)
class Written:
    """The rows of a slice, in files.

    Attributes:
        shown: without the merged rows.
        rows: the merged rows, or None.
        dead: the positions of dead rows, if the kind has a file of them for each slice.
    """

    shown: ShownSlice
    rows: RowFile | None
    dead: DeadFile | None

    @property
    def puts(self) -> Objects:
        return tuple((file.path, file.size) for file in (self.rows, self.dead) if file is not None)


@dataclass(frozen=True)
class Change:
    """The step from a head to a moment.

    Attributes:
        slices: the slices that the head does not show.
        gone: file groups that the head shows and the moment does not.
        is_whole: nothing of the head stays, because it belongs to another table, engine or mode.
        forgets: the mirror loses all earlier versions, because rows of them are erased.
    """

    moment: Moment
    slices: tuple[Written, ...]
    gone: frozenset[FileGroup]
    is_whole: bool
    forgets: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit's number and all objects put for it."""

    number: int
    puts: Objects


class Kind(Protocol):
    """A format of mirrors, bound to one table's store."""

    @property
    def mode(self) -> str:
        """The form of deleted rows, or "". A head of another mode is replaced wholly."""
        ...

    def like(self, head: Head | None) -> Kind:
        """Return the kind with the head's mode if it has none; raise `InvalidInputError` for a forbidden change."""
        ...

    def merges_whole(self, partition: str) -> bool:
        """Return True if slices with logs are merged whole in this partition."""
        ...

    def stands(self, stored: pa.DataType, in_file: pa.DataType) -> bool:
        """See `slices.Stands`."""
        ...

    def require_types(self, columns: Sequence[MirrorColumn]) -> None:
        """Raise `UnsupportedFeatureError` for a column that the format cannot show."""
        ...

    def head(self) -> Steps[Head | None]:
        """Read the newest metadata; None without any."""
        ...

    def files(self, head: Head) -> Iterable[NamedFile]:
        """Return the files that a head of ours names."""
        ...

    def repair(self, head: Head) -> Steps[None]:
        """Put the objects that a process left out by its death after the commit."""
        ...

    def write_dead(self, moment: Moment, shown: ShownSlice) -> Steps[DeadFile | None]:
        """Put the positions of a slice's dead rows, under a name that no other process uses."""
        ...

    def commit(self, head: Head | None, change: Change) -> Steps[Committed | None]:
        """Put the metadata after `head` if absent; return None if another process was first.

        A kind removes its own files of a lost commit.
        """
        ...


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The result of a refresh.

    Attributes:
        number: of the metadata file that shows the version.
        puts: of this process; empty if nothing was to do.
        replaced: the number of a head of another engine that was replaced, or None.
        is_behind: True if another engine committed on top of a later version: refresh to the newest version.
    """

    number: int
    version: int
    as_of: InstantTime
    puts: Objects = ()
    replaced: int | None = None
    is_behind: bool = False


def refresh(
    asked: Kind,
    moment: Moment,
    show: Callable[[Kind, SliceKey], ShownSlice],
    *,
    anew: bool = False,
    forgets: bool = False,
) -> Steps[Refreshed]:
    """Make a mirror show a moment, or a later one if another process published it.

    Args:
        anew: replace the mirror wholly, whatever it shows: it is ahead of the table.
        forgets: publish a version in any case, which is the mirror's only one.
    """
    written: dict[FileGroup, Written] = {}
    kind = asked
    while True:
        head = yield from asked.head()
        before, kind = kind, asked.like(head)
        if kind.mode != before.mode:  # another process changed it
            yield from _remove(written.values())
            written.clear()
        stays = not anew and head is not None and head.table_id == moment.table_id
        is_shown = head is not None and not anew and shows(head, kind, moment)
        if forgets and head is not None and (head.version, head.as_of) == (moment.version, moment.as_of):
            is_shown = False
        if head is not None and stays and (is_shown or head.version > moment.version):
            yield from _remove(written.values())
            yield from kind.repair(head)
            return Refreshed(head.number, head.version, head.as_of, is_behind=not is_shown)
        is_whole = head is None or not (stays and head.is_ours and head.mode == kind.mode)
        differing = _differing(moment, None if is_whole else head)
        for key in differing:
            if key.group not in written:
                written[key.group] = yield from _written(kind, moment, show(kind, key))
        gone = frozenset() if head is None else frozenset(head.slices) - frozenset(moment.keys)
        if (yield Now()) - moment.now_ms > LONG_MS:  # a sweep may have taken the first files for a dead process's
            for group in (yield from _lost(written)):
                del written[group]
            if any(key.group not in written for key in differing):
                continue
        change = Change(moment, tuple(written[key.group] for key in differing), gone, is_whole, forgets)
        committed = yield from kind.commit(head, change)
        if committed is not None:
            used = frozenset(key.group for key in differing)
            yield from _remove(one for group, one in written.items() if group not in used)
            files = tuple(put for one in change.slices for put in one.puts)
            replaced = head.number if head is not None and stays and not head.is_ours else None
            puts = (*files, *committed.puts)
            return Refreshed(committed.number, moment.version, moment.as_of, puts, replaced)


def _written(kind: Kind, moment: Moment, shown: ShownSlice) -> Steps[Written]:
    rows = None if shown.rows is None else (yield from put_rows(shown.key, moment.version, shown.rows))
    return Written(replace(shown, rows=None), rows, (yield from kind.write_dead(moment, shown)))


def put_first(put: Put) -> Steps[bool]:
    """Put the metadata that decides, if absent; True if it is this process's. After a lost reply, its content tells."""
    for attempt in range(PUTS_MAX):
        if (yield put):
            return True
        found = yield Read(put.path)  # stores repeat successful puts
        if found is not None:
            return bool(found == put.data)
        yield Pause(attempt)
    raise CommitUnknownError(
        "the store did not confirm whether the mirror was refreshed: refresh the mirror again, which is safe. "
        f"path={put.path} tries={PUTS_MAX}"
    )


def shows(head: Head, kind: Kind, moment: Moment) -> bool:
    """Return True if a head shows a moment or a later one of its table, in the way of a kind."""
    as_new = (head.version, head.as_of) >= (moment.version, moment.as_of)
    return head.table_id == moment.table_id and as_new and head.is_ours and head.mode == kind.mode


def _differing(moment: Moment, head: Head | None) -> list[SliceKey]:
    """Return the slices that a head does not show: all, if the type of a column changed since."""
    if head is None or any(moment.types.get(name, kind) != kind for name, kind in head.types.items()):
        return list(moment.keys.values())
    return [key for group, key in moment.keys.items() if head.slices.get(group) != key.files]


def _lost(written: Mapping[FileGroup, Written]) -> Steps[list[FileGroup]]:
    gone = []
    for group, one in written.items():
        stats = yield Together(tuple(GetStat(path) for path, _ in one.puts))
        if None in stats:
            gone.append(group)
    return gone


def _remove(written: Iterable[Written]) -> Steps[None]:
    """Delete files that no metadata names. A sweep finds the rest."""
    for one in written:
        for path, _ in one.puts:
            yield Delete(path)

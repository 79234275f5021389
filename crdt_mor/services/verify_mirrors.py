"""Verify the mirrors of a table: their files, and that they show the table's file slices.

    kept versions    each file of their own is there, with its size
    the newest       its rows, dead rows and counts; the slices that it shows; with `deep` the rows of each slice

A mirror may be refreshed meanwhile, so a second look must have the same findings.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.errors import FormatError, InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.log.steps import Steps
from crdt_mor.mirror import delta_upkeep, delta_vectors, files, iceberg_metadata, iceberg_read
from crdt_mor.mirror.bitmaps import positions_in
from crdt_mor.mirror.files import NamedFile, Sizes
from crdt_mor.mirror.refresh import Head, Kind, Moment
from crdt_mor.mirror.slices import ShownSlice, show
from crdt_mor.model.cut import Cut
from crdt_mor.model.policies import MIRRORS
from crdt_mor.model.restore import restored_since
from crdt_mor.model.timeline_parts import FileGroup
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.mirror import FOLDERS, kind_of, moment_of
from crdt_mor.services.verify_findings import Finding, finding
from crdt_mor.services.verify_given import ahead
from crdt_mor.store.open import address_of
from crdt_mor.store.protocol import forget

_TRIES: Final = 10
_OWN: Final = (f"{files.FOLDER}/", f"{delta_vectors.FOLDER}/", f"{iceberg_metadata.FOLDER}/")
_DAMAGED: Final = (
    FormatError, pa.ArrowException, OSError, ValueError, LookupError, EOFError, TypeError, AttributeError, struct.error,
    zlib.error,
)  # fmt: skip
"""Errors of unreadable metadata and files of a mirror."""


def mirror_findings(session: Session, *, deep: bool) -> list[Finding]:
    return [*chain.from_iterable(ahead(session, partial(_settled, session, deep=deep), MIRRORS))]


def _settled(session: Session, format: str, *, deep: bool) -> list[Finding]:
    before: int | None = None
    for _ in range(_TRIES):
        number, found = _ask(session, format, deep=deep)
        if not found or number == before:
            break
        before = number
    return found


def _ask(session: Session, format: str, *, deep: bool) -> tuple[int, list[Finding]]:
    """Return the newest number, or -1, and the findings."""
    snapshot = Snapshot.seal(session, session.views.sealed(decided=True)).with_expired()
    kind, moment, folder = kind_of(session, snapshot.value, format), moment_of(snapshot), FOLDERS[format]
    try:
        head = session.run(kind.head())
        kept = session.run(_files_needed(session, format))
    except InvalidInputError:
        return -1, []  # another Delta table
    except _DAMAGED as error:
        return -1, [finding("mirror", folder, f"the {format} mirror is unreadable: {error}")]
    if head is None or not (head.table_id or _is_unreadable(head)):
        return -1, []
    if head.table_id != moment.table_id or not head.is_ours or head.version < 0:
        said = (
            f"the {format} mirror is not of this table at this place, or its metadata is damaged. number={head.number}"
        )
        return head.number, [finding("mirror head", folder, said)]
    asked = _Asked(session, snapshot, moment, kind, head)
    found = [*_ask_kept(session, kept), *asked.bases()]
    found += [*asked.contents({one.path for one in found}), *asked.slices()]
    return head.number, found + ([*asked.rows()] if deep and not found else [])


def _is_unreadable(head: Head) -> bool:
    return isinstance(head.state, iceberg_read.State) and head.state.metadata is None


def _files_needed(session: Session, format: str) -> Steps[Sizes]:
    if format == "delta":
        return delta_upkeep.files_needed()
    return iceberg_read.files_needed(address_of(session.store, session.uri))


def _ask_kept(session: Session, kept: Sizes) -> Iterator[Finding]:
    paths = [path for path in sorted(kept) if path.startswith(_OWN) and path != iceberg_metadata.HINT]
    for path, stat in zip(paths, ahead(session, session.store.stat, paths), strict=True):
        if stat is None:
            yield finding("mirror", path, f"a file of the mirror is missing. file={path}")
        elif (size := kept[path]) is not None and size != stat.size:
            said = f"a file's size differs from the mirror's metadata. bytes={size} found={stat.size} file={path}"
            yield finding("mirror", path, said)


@dataclass(frozen=True)
class _Asked:
    """The newest version of a mirror."""

    session: Session
    snapshot: Snapshot
    moment: Moment
    kind: Kind
    head: Head

    @cached_property
    def files(self) -> list[NamedFile]:
        return [*self.kind.files(self.head)]

    def bases(self) -> Iterator[Finding]:
        """Check base files that the newest snapshot does not show; `verify` checks the others."""
        shown = {file.path for slice_ in self.snapshot.slices for file in slice_.files}
        unshown = [file for file in self.files if file.kind == "base" and file.path not in shown]
        stats = ahead(self.session, lambda file: self.session.store.stat(file.path), unshown)
        for file, stat in zip(unshown, stats, strict=True):
            if stat is None:
                said = f"the mirror names a file that a clean removed. version={self.head.version} file={file.path}"
                yield finding("mirror head", file.path, said, file.group)

    def contents(self, known: Collection[str]) -> Iterator[Finding]:
        asked = [file for file in self.files if file.path not in known]
        for file, said in zip(asked, ahead(self.session, self._content, asked), strict=True):
            if said is not None:
                yield finding("mirror", file.path, said, file.group)

    def _content(self, file: NamedFile) -> str | None:
        try:
            return self._counted(file)
        except _DAMAGED as error:
            return f"the file is damaged: {error}. file={file.path}"

    def _counted(self, file: NamedFile) -> str | None:
        if file.kind == "base":
            forget(self.session.store, file.path)
            source = self.session.store.parquet(file.path)
            rows = file.rows if source is None else source.metadata().num_rows
        else:
            rows = len(self._dead(file)) if file.kind == "deletes" else self._table(file).num_rows
        if rows == file.rows:
            return None
        return f"the mirror's metadata states another number of rows. rows={file.rows} found={rows} file={file.path}"

    def _table(self, file: NamedFile) -> pa.Table:
        data = self.session.store.read(file.path)
        if data is None:
            raise FormatError("the file is missing")
        return pq.read_table(pa.BufferReader(data), page_checksum_verification=True)

    def _dead(self, file: NamedFile) -> list[int]:
        if file.blob is None:
            return [*self._table(file)["pos"].to_pylist()]
        data = self.session.store.read(file.path) or b""
        return positions_in(data[file.blob.offset : file.blob.offset + file.blob.length])

    # --- the table's slices -------------------------------------------------------------------------------------------

    @cached_property
    def _then(self) -> Snapshot | None:
        """The shown snapshot, if the table still answers for it."""
        value, at = self.snapshot.value, self.head.as_of
        if self.head.version == value.version:
            return self.snapshot
        marks = [value.retention.since, *(mark for _, mark in value.retention.groups)]
        if at < max(marks) or restored_since(value.restores, self.head.version) is not None:
            return None
        return Snapshot.seal(self.session, value, Cut("completed", at)).with_expired()

    def slices(self) -> Iterator[Finding]:
        if self._then is None:
            return
        expected, shown = moment_of(self._then).keys, self.head.slices
        wrong = {group for group, files in shown.items() if group not in expected or expected[group].files != files}
        for group in sorted(wrong):
            said = f"the mirror shows other files of a file group. version={self.head.version} as_of={self.head.as_of}"
            yield finding("mirror", self._path_of(group), said, group)

    def rows(self) -> Iterator[Finding]:
        """Compare the rows of each slice, unless columns may have changed since."""
        if self.head.version != self.moment.version:
            return
        kind = self.kind.like(self.head)
        for slice_ in self.snapshot.slices:
            whole = kind.merges_whole(slice_.partition)
            shown = show(self.snapshot, slice_, self.moment.columns, kind.stands, whole=whole)
            if not self._equals(shown):
                said = f"the mirror shows other rows of a file group than the table. version={self.head.version}"
                yield finding("mirror", self._path_of(slice_.group), said, slice_.group)

    def _equals(self, shown: ShownSlice) -> bool:
        named = self._by_group.get(shown.key.group, {})
        base, deletes, rows = named.get("base"), named.get("deletes"), named.get("rows")
        if (base and base.path) != (shown.base and shown.base.path):
            return False
        dead = [] if deletes is None else sorted(self._dead(deletes))
        if base is not None and dead != shown.dead.tolist():
            return False
        return self._in_order(None if rows is None else self._table(rows)) == self._in_order(shown.rows)

    def _in_order(self, rows: pa.Table | None) -> list[str]:
        """Return rows in an order of their own. An older file may lack new columns, and have dropped ones."""
        names = [column.stored for column in self.moment.columns]
        return [] if rows is None else sorted(repr([row.get(name) for name in names]) for row in rows.to_pylist())

    @cached_property
    def _by_group(self) -> dict[FileGroup, dict[str, NamedFile]]:
        found: dict[FileGroup, dict[str, NamedFile]] = {}
        for file in self.files:
            found.setdefault(file.group, {})[file.kind] = file
        return found

    def _path_of(self, group: FileGroup) -> str:
        return next((file.path for file in self._by_group.get(group, {}).values()), files.FOLDER)

"""Check the file groups of a table: their retained files, then their newest rows, merged as in any reader.

In a bucket several are checked at once, as many as memory allows.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Final

import polars as pl

from crdt_mor.errors import CrdtMorError, FormatError, PayloadError, SnapshotExpiredError, UnsupportedFeatureError
from crdt_mor.events.session import Session
from crdt_mor.laws.merging import Merging, merging_of
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.merge.resolution_hint import from_bytes
from crdt_mor.model.field_ids import field_ids
from crdt_mor.model.names import CLEAN, bucket_of_file_id
from crdt_mor.model.slices import FileSlice, files_within
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup
from crdt_mor.planners.clean import needless_files
from crdt_mor.read.damage import gone_file
from crdt_mor.read.open_slice import base_source, fetch_end
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.resolving import NOTHING
from crdt_mor.services.verify_base import ask_base, ask_base_of_hudi
from crdt_mor.services.verify_deep import ask_fold
from crdt_mor.services.verify_findings import Finding, finding
from crdt_mor.services.verify_given import ahead, as_unreadable
from crdt_mor.services.verify_logs import ask_log, ask_log_of_hudi
from crdt_mor.services.verify_rows import Faults, ask_keys, ask_rules
from crdt_mor.services.verify_told import Schemas
from crdt_mor.store.absences import surely
from crdt_mor.store.protocol import forget, is_bucket
from crdt_mor.write.adopted_keys import key_columns

GROUPS_AT_ONCE: Final = 8
"""File groups merged at once in a bucket."""

Committed = tuple[DataFile, Completion]


class _MovedOnError(Exception):
    """The newest version no longer needs a missing file."""


@dataclass(frozen=True)
class View:
    snapshot: Snapshot
    merging: Merging
    schemas: Schemas
    slices: dict[FileGroup, FileSlice]
    files: dict[FileGroup, list[Committed]]
    has_hudis: bool

    @classmethod
    def newest(cls, session: Session, partitions: Collection[str] | None = None) -> View:
        value = session.views.sealed(look=True)
        snapshot = Snapshot.seal(session, value).with_expired()
        if partitions is not None:
            snapshot = replace(snapshot, slices=snapshot.slices.within(partitions))
        slices = {slice_.group: slice_ for slice_ in snapshot.slices}
        is_layout_one = session.config.layout_one
        commits = session.views.snapshot_completions(value) if is_layout_one else session.views.completions(value)
        if partitions is not None:
            commits = [_within(commit, partitions) for commit in commits]
        shown = {file.path for slice_ in snapshot.slices for file in slice_.files}
        files: dict[FileGroup, list[Committed]] = {}
        past = _past(session, value, commits)
        for commit in commits:
            for file in commit.files:
                if file.path in shown or file.path in past:
                    files.setdefault(file.group, []).append((file, commit))
        merging = merging_of(session.config, value.schema)
        schemas = Schemas(session.config.name, merging.schema.stored, field_ids(value.schema))
        return cls(snapshot, merging, schemas, slices, files, any(commit.adopted for commit in commits))

    @cached_property
    def paths(self) -> frozenset[str]:
        return frozenset(file.path for some in self.files.values() for file, _ in some)

    @property
    def groups(self) -> list[FileGroup]:
        return sorted(self.files, key=lambda group: (bucket_of(group), group))


def _within(commit: Completion, partitions: Collection[str]) -> Completion:
    replaced = tuple(group for group in commit.replaced if group[0] in partitions)
    return replace(commit, files=tuple(files_within(commit, partitions)), replaced=replaced)


def _past(session: Session, value: Timeline, commits: list[Completion]) -> set[str]:
    """Return our files needed by past views; none if a cleaner of Hudi uses its own marks."""
    if not session.config.ours or any(c.adopted and c.action == CLEAN for c in commits):
        return set()
    retention = value.retention
    gone = {file.path for file in needless_files(value, commits, retention.since, dict(retention.groups))}
    return {file.path for c in commits if not c.adopted for file in c.files if file.path not in gone}


def bucket_of(group: FileGroup) -> int:
    number = bucket_of_file_id(group[1])
    return -1 if number is None else number


@dataclass(slots=True)
class CheckedGroup:
    """places: keys and partitions of its rows; None if unreadable."""

    group: FileGroup
    files: int
    bytes: int
    rows: int = 0
    findings: list[Finding] = field(default_factory=list)
    hints: list[Finding] = field(default_factory=list)
    places: pl.DataFrame | None = None


@dataclass(slots=True)
class _Rows:
    faults: Faults
    places: list[pl.DataFrame]
    rows: int = 0
    hints: list[Finding] = field(default_factory=list)


class GroupChecks:
    def __init__(self, session: Session, *, deep: bool, partitions: Collection[str] | None = None) -> None:
        self._session = session
        self._deep = deep
        self._partitions = partitions
        self._lock = threading.Lock()
        self.view = View.newest(session, partitions)

    def results(self) -> Iterator[CheckedGroup]:
        """Yield results in the order of `View.groups`."""
        session, view = self._session, self.view
        groups = view.groups
        files = chain.from_iterable(view.files[group] for group in groups)

        def checked(item: Committed) -> Faults | None:
            try:
                return self._file(view, *item)
            except _MovedOnError:
                return None

        def read(item: tuple[FileGroup, list[Faults | None]]) -> CheckedGroup:
            group, found = item
            asked = [faults for faults in found if faults is not None]
            try:
                return self._with_rows(view, group, asked) if len(asked) == len(found) else self._again(group)
            except _MovedOnError:
                return self._again(group)

        found = ahead(session, checked, files, size=lambda item: item[0].size)
        with_files = ((group, list(islice(found, len(view.files[group])))) for group in groups)
        return ahead(session, read, with_files, GROUPS_AT_ONCE, lambda item: _size(view, item[0]))

    def _again(self, group: FileGroup) -> CheckedGroup:
        while True:
            try:
                view = self.view
                return self._with_rows(view, group, [self._file(view, *item) for item in view.files.get(group, ())])
            except _MovedOnError:
                continue

    def _with_rows(self, view: View, group: FileGroup, asked: list[Faults]) -> CheckedGroup:
        result = CheckedGroup(group, len(view.files.get(group, ())), _size(view, group))
        slice_ = view.slices.get(group)
        shown = {file.path for file in slice_.files} if slice_ is not None else set()
        if slice_ is not None and not any(faults.is_fatal and faults.path in shown for faults in asked):
            read = self._rows(view, slice_)
            asked = [*asked, read.faults]
            result.hints += read.hints
            if not read.faults.is_fatal:
                result.rows, result.places = read.rows, pl.concat(read.places)
        result.findings += [finding for faults in asked for finding in faults.findings()]
        return result

    # --- files --------------------------------------------------------------------------------------------------------

    def _file(self, view: View, file: DataFile, commit: Completion) -> Faults:
        faults = self._ask_file(view, file, commit)
        if faults.is_fatal:
            return self._ask_file(view, file, commit)
        if is_bucket(store := self._session.store):
            with suppress(CrdtMorError):  # the merge asks again
                fetch_end(store, file)  # the merge then needs no request for a small file
        return faults

    def _ask_file(self, view: View, file: DataFile, commit: Completion) -> Faults:
        session, faults = self._session, Faults(file.path, file.group)
        forget(session.store, file.path)
        try:
            with as_unreadable(session):
                stat = surely(session.store, file.path, session.store.stat)
                if stat is None and not file.staged:
                    self._note_gone(faults)
                elif stat is not None and not commit.adopted and stat.size != file.size:
                    said = f"the file's size differs from its commit. bytes={file.size} found={stat.size}"
                    faults.fail("size", f"{said} file={file.path}")
                else:
                    self._ask_bytes(view, file, commit, faults)
        except (FileNotFoundError, SnapshotExpiredError):
            self._note_gone(faults)
        except (FormatError, UnsupportedFeatureError) as error:
            if commit.adopted:
                faults.fail_with(error)
            else:  # a file of crdt_mor never needs a feature that this release lacks
                faults.fail("read", error)
        return faults

    def _ask_bytes(self, view: View, file: DataFile, commit: Completion, faults: Faults) -> None:
        """A log is not mapped into memory: a bad sector would kill the process."""
        session = self._session
        if file.is_base:
            source = base_source(session.store, file)
            if commit.adopted:
                ask_base_of_hudi(source, faults)
            else:
                ask_base(source, file, commit, view.merging, view.schemas, faults)
            return
        data = session.store.read(file.path)
        if data is None:
            self._note_gone(faults)
        elif commit.adopted:
            ask_log_of_hudi(data, file, faults)
        else:
            ask_log(data, file, commit, session.config, view.merging, view.schemas, faults)

    def _note_gone(self, faults: Faults) -> None:
        """Note a missing file; raise `_MovedOnError` if it is not needed."""
        with self._lock:
            if faults.path in self.view.paths:
                self.view = View.newest(self._session, self._partitions)
            if faults.path not in self.view.paths:
                raise _MovedOnError
        faults.fail("missing", f"the file is missing. file={faults.path}")

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _rows(self, view: View, slice_: FileSlice) -> _Rows:
        read = self._ask_rows(view, slice_)
        if not read.faults.is_fatal:
            return read
        for file in slice_.files:
            forget(self._session.store, file.path)
        return self._ask_rows(view, slice_)

    def _ask_rows(self, view: View, slice_: FileSlice) -> _Rows:
        snapshot, config = view.snapshot.collecting_resolutions(), self._session.config
        schema = view.merging.columns.schema
        kept = [name for name in key_columns(config) if name in schema]
        faults = Faults(slice_.files[0].path, slice_.group)
        read = _Rows(faults, [pl.DataFrame(schema={name: schema[name] for name in (RECORD_KEY, PARTITION_PATH)})])
        try:
            with as_unreadable(self._session):
                for frame in snapshot.with_slices([slice_]).frames([*schema], None):
                    read.rows += frame.height
                    ask_keys(config, slice_, frame.select(kept), faults)
                    ask_rules(snapshot.value.rules, snapshot.schema, snapshot.alive(frame), faults)
                    read.places.append(frame.select(RECORD_KEY, PARTITION_PATH))
                read.hints += _ask_hint(snapshot, slice_, faults)
                if self._deep:
                    ask_fold(self._session, snapshot, slice_, faults)
        except SnapshotExpiredError as error:
            gone = gone_file(self._session.store, slice_)
            if gone is None:
                raise
            self._note_gone(Faults(gone.path, slice_.group))
            faults.fail_with(error)
        except (FormatError, PayloadError, UnsupportedFeatureError) as error:
            faults.fail_with(error)
        return read


def _size(view: View, group: FileGroup) -> int:
    return sum(file.size for file, _ in view.files.get(group, ()))


def _ask_hint(snapshot: Snapshot, slice_: FileSlice, faults: Faults) -> Iterator[Finding]:
    """Check a hint of visible rows: readers trust a wrong one, but ignore a damaged one.

    snapshot: just merged the slice without hints.
    """
    resolved = snapshot.resolved
    path = resolved.hint_path(slice_)
    hint = None if path is None else snapshot.session.store.read(path)
    if path is None or hint is None or hint == NOTHING:
        return
    told, known = from_bytes(hint, resolved.name(slice_)), resolved.of(slice_)
    if told is None:
        said = "the hint is damaged or belongs to other files: readers ignore it and merge the file group"
        yield finding("hint", path, said, slice_.group)
    elif known is not None and told != known:
        faults.fail("shown rows", f"a hint disagrees with the visible rows of the file group. hint={path}")

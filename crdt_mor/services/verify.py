"""Verify a table: read everything that its newest version references, and check each object against the others.

    verify_value   versions, segments, plans       verify_base   base files     verify_rows   keys, states, rules
    verify_hudi    Hudi's timeline and history     verify_logs   log files      verify_deep   the plain fold
    verify_told    the bytes of its files

Each file group's retained files are checked, then its newest rows, merged as in any reader. If the newest version no
longer needs a missing file, a clean removed it, and this is no damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import polars as pl

from crdt_mor.errors import (
    CrdtMorError,
    FormatError,
    PayloadError,
    SnapshotExpiredError,
    UnsupportedFeatureError,
    UnsupportedVersionError,
)
from crdt_mor.events.session import Session
from crdt_mor.format.properties import decode, decode_table
from crdt_mor.hudi.handover import read_properties
from crdt_mor.hudi.partitions import metadata_put
from crdt_mor.laws.merging import Merging, merging_of
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.log.steps import Put
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.merge.resolution_hint import from_bytes
from crdt_mor.model.config import TableConfig
from crdt_mor.model.field_ids import field_ids
from crdt_mor.model.instant import EPOCH
from crdt_mor.model.names import CLEAN, bucket_of_file_id
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup
from crdt_mor.planners.clean import needless_files
from crdt_mor.read.damage import gone_file
from crdt_mor.read.open_slice import base_source
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.resolving import NOTHING
from crdt_mor.services.verify_base import ask_base, ask_base_of_hudi
from crdt_mor.services.verify_deep import ask_fold
from crdt_mor.services.verify_findings import Finding, Verification, VerifyProgress, finding
from crdt_mor.services.verify_given import as_unreadable, read_object
from crdt_mor.services.verify_hudi import reread_hudi
from crdt_mor.services.verify_logs import ask_log, ask_log_of_hudi
from crdt_mor.services.verify_rows import Faults, ask_keys, ask_rules
from crdt_mor.services.verify_told import Schemas
from crdt_mor.services.verify_value import Reread, reread, unreadable
from crdt_mor.store.absences import surely
from crdt_mor.write.adopted_keys import key_columns

KEYS_NAMED: Final = 10
"""Most keys in several partitions that the result names."""

_DEPTH: Final = "partitionDepth"

Tell = Callable[[VerifyProgress], None]

_DELETED_KEYS = "keys in delete blocks, which have no checksum: only their bucket was checked"
_STRANGE_FILES = "data files that no commit names: no reader sees them"
_PAST_OF_HUDI = "files of Hudi's commits that only views of the past show: Hudi's cleaner removes them"
_FOLD = "the rows that readers see, compared with a plain fold of the commits: use deep=True"
_FOLD_OF_HUDI = "the rows that readers see, compared with a plain fold: unavailable for merge modes of Hudi"
_OLDER = "the order of versions that an older release published"
_OF_A_COPY = (
    "commits of the original table told to Hudi although this copy was not moved to them: Hudi's readers show them"
)
_LOST = "Hudi's readers do not find the partition"
_ROWS = "rows and data files, because the table's files are unknown"


def verify(session: Session, *, deep: bool = False, on_progress: Tell | None = None) -> Verification:
    try:
        read = _reread_twice(session)
    except UnsupportedVersionError:
        raise
    except FormatError as error:
        return _unread(tuple(unreadable(session, error)))
    told = reread_hudi(session) if not read.findings else None
    run = _Run(session, on_progress or (lambda _: None), deep and session.config.ours)
    not_looked_at = [_DELETED_KEYS, _STRANGE_FILES]
    run.findings += [*_ask_settings(session), *read.findings, *(told.findings.values() if told else ())]
    if any(finding.check == "segment" for finding in read.findings):
        not_looked_at.append(_ROWS)
    else:
        run.read_file_groups()
        not_looked_at += [_PAST_OF_HUDI] if run.has_hudis else []
    not_looked_at += [_FOLD if session.config.ours else _FOLD_OF_HUDI] if not run.deep else []
    not_looked_at += [_OF_A_COPY] if told is not None and told.is_ahead else []
    not_looked_at += [_OLDER] if read.has_older else []
    objects = read.objects + (told.objects if told else 0)
    hints = (*read.hints, *(told.hints if told else ()), *run.hints)
    return Verification(
        read.value.version, run.rows, run.file_groups, run.files, run.bytes, objects, tuple(run.findings),
        hints, run.several, tuple(run.some_keys), tuple(not_looked_at),
    )  # fmt: skip


def _reread_twice(session: Session) -> Reread:
    try:
        return reread(session)
    except UnsupportedVersionError:
        raise
    except FormatError:  # the store may have returned damaged bytes once
        return reread(session)


def _unread(findings: tuple[Finding, ...]) -> Verification:
    return Verification(0, 0, 0, 0, 0, 0, findings, (), 0, (), (_ROWS,))


def _ask_settings(session: Session) -> Iterator[Finding]:
    try:
        data = session.run(read_properties())
        if data is None:
            yield finding("settings", PROPERTIES, "the file is missing")
        elif not data.endswith((b"\n", b"\r")):
            yield finding("settings", PROPERTIES, "the file was truncated: its last line has no end")
        else:
            yield from _ask_told(decode_table(data, PROPERTIES))
    except CrdtMorError as error:
        yield finding("settings", PROPERTIES, str(error))


def _ask_told(said: Mapping[str, str]) -> Iterator[Finding]:
    config = TableConfig.from_properties(said, PROPERTIES)
    for key, expected in config.told_of_merge().items() if config.ours else ():
        if said.get(key) != expected:
            other = f"Hudi's readers are told a different merge. {key}={said.get(key)} expected={expected}"
            yield finding("properties", PROPERTIES, f"{other} merge={config.merge}")


class _MovedOnError(Exception):
    """A missing file that the newest version no longer needs."""


@dataclass(frozen=True)
class _View:
    snapshot: Snapshot
    merging: Merging
    schemas: Schemas
    slices: dict[FileGroup, FileSlice]
    files: dict[FileGroup, list[tuple[DataFile, Completion]]]
    has_hudis: bool

    @classmethod
    def newest(cls, session: Session) -> _View:
        value = session.views.sealed(look=True)
        snapshot = Snapshot.seal(session, value)
        slices = {slice_.group: slice_ for slice_ in snapshot.slices}
        is_layout_one = session.config.layout_one
        commits = session.views.snapshot_completions(value) if is_layout_one else session.views.completions(value)
        shown = {file.path for slice_ in snapshot.slices for file in slice_.files}
        files: dict[FileGroup, list[tuple[DataFile, Completion]]] = {}
        past = _past(session, value, commits)
        for commit in commits:
            for file in commit.files:
                if file.path in shown or file.path in past:
                    files.setdefault(file.group, []).append((file, commit))
        merging = merging_of(session.config, value.schema)
        schemas = Schemas(session.config.name, merging.schema.stored, field_ids(value.schema))
        return cls(snapshot, merging, schemas, slices, files, any(commit.adopted for commit in commits))

    def needs(self, path: str) -> bool:
        return any(file.path == path for some in self.files.values() for file, _ in some)

    @property
    def groups(self) -> list[FileGroup]:
        return sorted(self.files, key=lambda group: (_bucket(group), group))


def needed_files(session: Session) -> set[str]:
    return {file.path for some in _View.newest(session).files.values() for file, _ in some}


def _past(session: Session, value: Timeline, commits: list[Completion]) -> set[str]:
    """Return our files needed by past views; none if a cleaner of Hudi uses its own marks."""
    if not session.config.ours or any(c.adopted and c.action == CLEAN for c in commits):
        return set()
    retention = value.retention
    gone = {file.path for file in needless_files(value, commits, retention.since, dict(retention.groups))}
    return {file.path for c in commits if not c.adopted for file in c.files if file.path not in gone}


@dataclass(slots=True)
class _Rows:
    faults: Faults
    places: list[pl.DataFrame]
    rows: int = 0
    hints: list[Finding] = field(default_factory=list)


@dataclass
class _Run:
    session: Session
    tell: Tell
    deep: bool
    findings: list[Finding] = field(default_factory=list)
    hints: list[Finding] = field(default_factory=list)
    rows: int = 0
    file_groups: int = 0
    files: int = 0
    bytes: int = 0
    several: int = 0
    some_keys: list[str] = field(default_factory=list)
    has_hudis: bool = False

    def read_file_groups(self) -> None:
        self.view = _View.newest(self.session)
        self.has_hudis = self.view.has_hudis
        self.file_groups = len(self.view.slices)
        groups, done = self.view.groups, 0
        for _, some in groupby(groups, _bucket):
            places: list[pl.DataFrame] = []
            for group in some:
                frame = self._file_group(group)
                if frame is not None:
                    places.append(frame)
                done += 1
                self.tell(VerifyProgress(done, len(groups), self.bytes))
            twice = _in_several(places)
            self.several += len(twice)
            self.some_keys += twice[: KEYS_NAMED - len(self.some_keys)]
        self._ask_partitions()

    def _file_group(self, group: FileGroup) -> pl.DataFrame | None:
        while True:
            try:
                return self._read_group(group)
            except _MovedOnError:
                continue

    def _read_group(self, group: FileGroup) -> pl.DataFrame | None:
        view, asked = self.view, list[Faults]()
        for file, commit in view.files.get(group, ()):
            asked.append(self._file(file, commit))
        slice_ = view.slices.get(group)
        shown = {file.path for file in slice_.files} if slice_ is not None else set()
        frame: pl.DataFrame | None = None
        if slice_ is not None and not any(faults.is_fatal and faults.path in shown for faults in asked):
            frame = self._rows(slice_, asked)
        self.files += len(view.files.get(group, ()))
        self.bytes += sum(file.size for file, _ in view.files.get(group, ()))
        self.findings += [finding for faults in asked for finding in faults.findings()]
        return frame

    # --- files --------------------------------------------------------------------------------------------------------

    def _file(self, file: DataFile, commit: Completion) -> Faults:
        faults = self._ask_file(file, commit)
        return self._ask_file(file, commit) if faults.is_fatal else faults

    def _ask_file(self, file: DataFile, commit: Completion) -> Faults:
        session, faults = self.session, Faults(file.path, file.group)
        try:
            with as_unreadable(session):
                stat = surely(session.store, file.path, session.store.stat)
                if stat is None and not file.staged:
                    self._note_gone(faults)
                elif stat is not None and not commit.adopted and stat.size != file.size:
                    said = f"the file's size differs from its commit. bytes={file.size} found={stat.size}"
                    faults.fail("size", f"{said} file={file.path}")
                else:
                    self._ask_bytes(file, commit, faults)
        except (FileNotFoundError, SnapshotExpiredError):
            self._note_gone(faults)
        except (FormatError, UnsupportedFeatureError) as error:
            if commit.adopted:
                faults.fail_with(error)
            else:  # a file of crdt_mor never needs a feature that this release lacks
                faults.fail("read", error)
        return faults

    def _ask_bytes(self, file: DataFile, commit: Completion, faults: Faults) -> None:
        """Read a whole file. A log is not mapped into memory: a bad sector would kill the process."""
        session, view = self.session, self.view
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
        """Note a missing file, or read the file group again if the newest version does not need it."""
        self.view = _View.newest(self.session)
        if not self.view.needs(faults.path):
            raise _MovedOnError
        faults.fail("missing", f"the file is missing. file={faults.path}")

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _rows(self, slice_: FileSlice, asked: list[Faults]) -> pl.DataFrame | None:
        read = self._ask_rows(slice_)
        if read.faults.is_fatal:
            read = self._ask_rows(slice_)
        asked.append(read.faults)
        self.hints += read.hints
        if read.faults.is_fatal:
            return None
        self.rows += read.rows
        return pl.concat(read.places)

    def _ask_rows(self, slice_: FileSlice) -> _Rows:
        snapshot, config = self.view.snapshot.collecting_resolutions(), self.session.config
        schema = self.view.merging.columns.schema
        kept = [name for name in key_columns(config) if name in schema]
        faults = Faults(slice_.files[0].path, slice_.group)
        read = _Rows(faults, [pl.DataFrame(schema={name: schema[name] for name in (RECORD_KEY, PARTITION_PATH)})])
        try:
            with as_unreadable(self.session):
                for frame in snapshot.with_slices([slice_]).frames([*schema], None):
                    read.rows += frame.height
                    ask_keys(config, slice_, frame.select(kept), faults)
                    ask_rules(snapshot.value.rules, snapshot.schema, frame, faults)
                    read.places.append(frame.select(RECORD_KEY, PARTITION_PATH))
                read.hints += _ask_hint(snapshot, slice_, faults)
                if self.deep:
                    ask_fold(self.session, snapshot, slice_, faults)
        except SnapshotExpiredError as error:
            gone = gone_file(self.session.store, slice_)
            if gone is None:
                raise
            self._note_gone(Faults(gone.path, slice_.group))
            faults.fail_with(error)
        except (FormatError, PayloadError, UnsupportedFeatureError) as error:
            faults.fail_with(error)
        return read

    def _ask_partitions(self) -> None:
        """Check the metadata file of each partition with our files; Hudi's readers find partitions by it."""
        files = (pair for group in self.view.slices for pair in self.view.files.get(group, ()))
        for partition in sorted({file.partition for file, commit in files if not commit.adopted}):
            put = metadata_put(partition, EPOCH)
            try:
                data = read_object(self.session, put.path)
                wrong: str | FormatError | None = _LOST if data is None else _misled(data, put)
            except FormatError as error:
                wrong = error
            if wrong is not None:
                self.findings.append(finding("partition metadata", put.path, wrong))


def _misled(data: bytes, put: Put) -> str | None:
    depth = decode(put.data, put.path)[_DEPTH]
    said = decode(data, put.path).get(_DEPTH)
    if said == depth:
        return None
    return f"the stored depth differs from the partition's. depth={depth} found={said} file={put.path}"


def _bucket(group: FileGroup) -> int:
    number = bucket_of_file_id(group[1])
    return -1 if number is None else number


def _in_several(places: list[pl.DataFrame]) -> list[str]:
    if len(places) < 2:
        return []
    counts = pl.concat(places).group_by(RECORD_KEY).agg(pl.col(PARTITION_PATH).n_unique().alias("partitions"))
    return sorted(counts.filter(pl.col("partitions") > 1)[RECORD_KEY].to_list())


def _ask_hint(snapshot: Snapshot, slice_: FileSlice, faults: Faults) -> Iterator[Finding]:
    """Compare a hint of visible rows with the files: readers would trust a wrong one, but ignore a damaged one.

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

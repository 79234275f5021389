"""Verify a table: read everything that its newest version references, and check each object against the others.

    verify_value   versions, segments, plans       verify_base   base files     verify_rows   keys, states, rules
    verify_hudi    Hudi's timeline and history     verify_logs   log files      verify_deep   the plain fold
    verify_told    the bytes of its files          verify_groups   file groups    verify_mirrors

If the newest version no longer needs a missing file, a clean removed it, and this is no damage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Final

import polars as pl

from crdt_mor.errors import CrdtMorError, FormatError, StorageUnavailableError, UnsupportedVersionError
from crdt_mor.events.session import Session
from crdt_mor.format.properties import decode, decode_table
from crdt_mor.hudi.handover import read_properties
from crdt_mor.hudi.partitions import metadata_put
from crdt_mor.log.paths import PROPERTIES
from crdt_mor.log.steps import Put
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import EPOCH
from crdt_mor.services.verify_findings import Finding, Verification, VerifyProgress, finding
from crdt_mor.services.verify_given import ahead, read_object, twice
from crdt_mor.services.verify_groups import CheckedGroup, GroupChecks, View, bucket_of
from crdt_mor.services.verify_hudi import HudiReport, reread_hudi, unreadable_commits
from crdt_mor.services.verify_value import Older, Reread, reread, reread_older, unreadable
from crdt_mor.write.overwrite import rehearsal, require_known, scope_of

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
_REST = "all other partitions, the timeline, Hudi's files and mirrors: verify the whole table"
_ELSEWHERE = "keys that other partitions have, too"
_ROWS = "rows and data files, because the table's files are unknown"


def verify(session: Session, *, deep: bool = False, on_progress: Tell | None = None) -> Verification:
    session.views.forget_hudi()
    try:
        read = _reread_twice(session)
    except UnsupportedVersionError:
        raise
    except FormatError as error:
        return _unread(tuple(unreadable(session, error)))
    groups, is_deep = _Groups(), deep and session.config.ours
    checks = None
    if all(finding.check != "segment" for finding in read.findings):
        checks = _checks_of_groups(session, read, deep=is_deep)
    with (
        session.beside(partial(_timeline, session, read)) as timeline,
        session.beside(partial(_settings_and_mirrors, session, read, deep=is_deep)) as settings_and_mirrors,
    ):
        if checks is not None:
            groups.read(session, checks, on_progress)
        (older, told), others = timeline(), settings_and_mirrors()
    not_looked_at = [_ROWS] if checks is None else []
    not_looked_at += groups.not_looked_at(session, deep=is_deep)
    not_looked_at += [_OF_A_COPY] if told.is_ahead else []
    not_looked_at += [_OLDER] if older.has_older else []
    return Verification(
        read.value.version, groups.rows, groups.file_groups, groups.files, groups.bytes,
        read.objects + older.objects + told.objects,
        (*others, *read.findings, *older.findings, *told.findings.values(), *groups.findings),
        (*older.hints, *told.hints, *groups.hints), groups.several, tuple(groups.some_keys), tuple(not_looked_at),
    )  # fmt: skip


def verify_partitions(
    session: Session, partitions: Collection[object], *, deep: bool = False, on_progress: Tell | None = None
) -> Verification:
    """Verify only the file groups of partitions, named as for an overwrite."""
    paths = scope_of(rehearsal(session, session.tail()), partitions).partitions or ()
    groups, is_deep = _Groups(), deep and session.config.ours
    checks = GroupChecks(session, deep=is_deep, partitions=paths)
    require_known(paths, partitions, {partition for partition, _ in checks.view.files})
    groups.read(session, checks, on_progress)
    return Verification(
        checks.view.snapshot.value.version, groups.rows, groups.file_groups, groups.files, groups.bytes, 0,
        tuple(groups.findings), tuple(groups.hints), groups.several, tuple(groups.some_keys),
        (_REST, _ELSEWHERE, *groups.not_looked_at(session, deep=is_deep)),
    )  # fmt: skip


def _reread_twice(session: Session) -> Reread:
    try:
        return reread(session)
    except UnsupportedVersionError:
        raise
    except FormatError:  # the store may have returned damaged bytes once
        return reread(session)


def _checks_of_groups(session: Session, read: Reread, *, deep: bool) -> GroupChecks | None:
    """Return the checks of the newest snapshot; None, with findings, if a commit of Hudi is unreadable."""
    try:
        return twice(session, partial(GroupChecks, session, deep=deep))
    except FormatError as error:
        read.findings += unreadable_commits(session, read.value, error)
        return None


def _timeline(session: Session, read: Reread) -> tuple[Older, HudiReport]:
    """Hudi's timeline is compared only with an intact one."""
    older = reread_older(session, read.value)
    return older, HudiReport() if read.findings or older.findings else reread_hudi(session)


def _settings_and_mirrors(session: Session, read: Reread, *, deep: bool) -> list[Finding]:
    from crdt_mor.services.verify_mirrors import mirror_findings

    settings = list(_ask_settings(session))
    return settings if read.findings else [*settings, *mirror_findings(session, deep=deep)]


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
    except StorageUnavailableError:  # other files cannot be read either
        raise
    except CrdtMorError as error:
        yield finding("settings", PROPERTIES, str(error))


def _ask_told(said: Mapping[str, str]) -> Iterator[Finding]:
    config = TableConfig.from_properties(said, PROPERTIES)
    for key, expected in config.told_of_merge().items() if config.ours else ():
        if said.get(key) != expected:
            other = f"Hudi's readers are told a different merge. {key}={said.get(key)} expected={expected}"
            yield finding("properties", PROPERTIES, f"{other} merge={config.merge}")


def needed_files(session: Session) -> set[str]:
    return set(View.newest(session).paths)


@dataclass
class _Groups:
    findings: list[Finding] = field(default_factory=list)
    hints: list[Finding] = field(default_factory=list)
    rows: int = 0
    file_groups: int = 0
    files: int = 0
    bytes: int = 0
    several: int = 0
    some_keys: list[str] = field(default_factory=list)
    has_hudis: bool = False

    def read(self, session: Session, checks: GroupChecks, tell: Tell | None) -> None:
        of_groups = len(checks.view.groups)
        self.has_hudis, self.file_groups = checks.view.has_hudis, len(checks.view.slices)
        results = enumerate(checks.results(), 1)
        for _, some in groupby(results, lambda numbered: bucket_of(numbered[1].group)):
            places: list[pl.DataFrame] = []
            for done, result in some:
                self._add(result)
                places += [] if result.places is None else [result.places]
                if tell is not None:
                    tell(VerifyProgress(done, of_groups, self.bytes))
            twice = _in_several(places)
            self.several += len(twice)
            self.some_keys += twice[: KEYS_NAMED - len(self.some_keys)]
        self.findings += _ask_partitions(session, checks.view)

    def not_looked_at(self, session: Session, *, deep: bool) -> list[str]:
        hudis = [_PAST_OF_HUDI] if self.has_hudis else []
        fold = [_FOLD if session.config.ours else _FOLD_OF_HUDI] if not deep else []
        return [_DELETED_KEYS, _STRANGE_FILES, *hudis, *fold]

    def _add(self, result: CheckedGroup) -> None:
        self.findings += result.findings
        self.hints += result.hints
        self.rows += result.rows
        self.files += result.files
        self.bytes += result.bytes


def _in_several(places: list[pl.DataFrame]) -> list[str]:
    if len(places) < 2:
        return []
    hashes = pl.concat([frame[RECORD_KEY].hash() for frame in places])  # a tenth of the memory of grouped texts
    if hashes.n_unique() == len(hashes):
        return []
    counts = pl.concat(places).group_by(RECORD_KEY).agg(pl.col(PARTITION_PATH).n_unique().alias("partitions"))
    return sorted(counts.filter(pl.col("partitions") > 1)[RECORD_KEY].to_list())


def _ask_partitions(session: Session, view: View) -> Iterator[Finding]:
    """Check the metadata file of each partition with our files; Hudi's readers find partitions by it."""
    files = (pair for group in view.slices for pair in view.files.get(group, ()))
    partitions = sorted({file.partition for file, commit in files if not commit.adopted})
    puts = [metadata_put(partition, EPOCH) for partition in partitions]
    for put, wrong in zip(puts, ahead(session, partial(_ask_partition, session), puts), strict=True):
        if wrong is not None:
            yield finding("partition metadata", put.path, wrong)


def _ask_partition(session: Session, put: Put) -> str | FormatError | None:
    try:
        data = read_object(session, put.path)
        return _LOST if data is None else _misled(data, put)
    except FormatError as error:
        return error


def _misled(data: bytes, put: Put) -> str | None:
    depth = decode(put.data, put.path)[_DEPTH]
    said = decode(data, put.path).get(_DEPTH)
    if said == depth:
        return None
    return f"the stored depth differs from the partition's. depth={depth} found={said} file={put.path}"

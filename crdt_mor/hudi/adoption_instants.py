"""Read the completed instants of Hudi's active and archived timeline. `hudi.adoption` decides which to adopt."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crdt_mor.errors import FormatError, StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.format.archive import VERSION_FILE, ArchivedInstant, decode_instants, decode_manifest, newest_manifest
from crdt_mor.format.commit import CommitMetadata, WriteStat, decode_commit
from crdt_mor.hudi.actions import ACTIONS
from crdt_mor.log.steps import List, Read, Steps
from crdt_mor.model.names import COMMIT, DATA_ACTIONS, OWN_KEY, REPLACE_COMMIT, LogFileName, TimelineFileName, join_path
from crdt_mor.model.timeline_parts import Completion, DataFile
from crdt_mor.store.protocol import Stat

_OWN_SERVICES = {action.completed: action for action in ACTIONS.values() if action.completed not in DATA_ACTIONS}
"""Our services that are no commits, by Hudi's word."""

_NUMBERED_SCHEMA = "latest_schema"
_OTHER_BASES = (".orc", ".hfile", ".lance")

READS_MAX = 10
"""Reads of the archive while Hudi replaces its files."""


@dataclass(frozen=True, slots=True)
class HudiInstant:
    """A completed instant of Hudi's timeline.

    own: we projected it. numbered: it contains a schema with column numbers, by which Hudi's readers find columns in
    older files. plan: of an archived compaction.
    """

    completion: Completion
    own: bool = False
    schema: str = ""
    numbered: bool = False
    plan: bytes | None = None


InstantCache = dict[str, tuple[HudiInstant, ...]]
"""Instants by file path. Files of Hudi's timeline never change, so each is read once."""


def read_active(path: str, name: TimelineFileName, cache: InstantCache) -> Steps[HudiInstant | None]:
    """Read an active instant; None if its file is gone."""
    if path not in cache:
        data = b""
        if name.action in DATA_ACTIONS or name.action in _OWN_SERVICES:
            content = yield Read(path)
            if content is None:
                return None
            data = content
        cache[path] = (_hudi_instant(name, data, path),)
    return cache[path][0]


def read_archive(folder: str, cache: InstantCache) -> Steps[list[HudiInstant]]:
    for _ in range(READS_MAX):
        listed: list[Stat] = yield List(folder)
        version = yield Read(f"{folder}/{VERSION_FILE}")
        manifest = newest_manifest(version, [stat.path.rpartition("/")[2] for stat in listed], folder)
        if manifest is None:
            return []
        data = yield Read(f"{folder}/{manifest}")
        if data is None:
            continue
        paths = [f"{folder}/{name}" for name in decode_manifest(data, f"{folder}/{manifest}")]
        for path in paths:
            if path not in cache and (data := (yield Read(path))) is not None:
                cache[path] = tuple(_archived(row, path) for row in decode_instants(data, path))
        if all(path in cache for path in paths):
            return [instant for path in paths for instant in cache[path]]
    raise StorageUnavailableError(
        "files of Hudi's archived timeline are missing. If Hudi is replacing them, try again. If they were deleted, "
        f"restore them from a backup. folder={folder}"
    )


def _archived(row: ArchivedInstant, path: str) -> HudiInstant:
    instant = _hudi_instant(row.name, row.metadata, path)
    return replace(instant, plan=row.plan) if row.name.action == COMMIT else instant


def _hudi_instant(name: TimelineFileName, data: bytes, path: str) -> HudiInstant:
    if name.action not in DATA_ACTIONS:
        return HudiInstant(_completion(name, CommitMetadata()), own=_is_own_service(name, data, path))
    metadata = decode_commit(data, path, replace=name.action == REPLACE_COMMIT)
    extra = metadata.extra
    own, schema, numbered = OWN_KEY in extra, extra.get("schema", ""), bool(extra.get(_NUMBERED_SCHEMA))
    return HudiInstant(_completion(name, metadata), own, schema, numbered)


def _is_own_service(name: TimelineFileName, data: bytes, path: str) -> bool:
    """Return True if a service instant is ours. We put files whole, so an unreadable file is not ours."""
    action = _OWN_SERVICES.get(name.action)
    if action is None or not data:
        return False
    try:
        return OWN_KEY in action.completed_extra(data, path)
    except (FormatError, UnsupportedFeatureError):
        return False


def _completion(name: TimelineFileName, metadata: CommitMetadata) -> Completion:
    files: dict[str, DataFile] = {}
    for partition, stats in metadata.stats.items():
        for stat in stats:
            for path in _paths(partition, stat, name):
                size, rows, deletes = stat.file_size_in_bytes or 0, stat.num_writes or 0, stat.num_deletes or 0
                files.setdefault(path, DataFile(path, size, rows, deletes))
    return Completion(
        name.requested,
        name.completed or name.requested,
        version=0,
        nonce="",
        action=name.action,
        operation=metadata.operation or name.action.upper(),
        files=tuple(files.values()),
        replaced=tuple((partition, group) for partition, groups in metadata.replaced.items() for group in groups),
        adopted=True,
    )


def _paths(partition: str, stat: WriteStat, name: TimelineFileName) -> list[str]:
    """Return the files that a commit wrote. A stat may also list earlier logs and change feeds."""
    if not stat.path:
        raise FormatError(f"a write stat contains no path. file={name}")
    if stat.path.endswith(_OTHER_BASES):
        raise UnsupportedFeatureError(
            f"this release reads only Parquet base files. Use Hudi's own reader. file={stat.path} "
            f"instant={name.requested}"
        )
    named = [(log, LogFileName.parse(log)) for log in stat.log_files or ()]
    logs = [join_path(partition, log) for log, parsed in named if parsed and parsed.instant == name.requested]
    return [stat.path, *logs]

"""The completed instants of Hudi's timeline as values, of the active timeline and of the archived one.

Which of them the table adopts is decided in `hudi.adoption`.
"""

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
"""The services of ours whose completed instants are neither commits of ours nor of Hudi's, by Hudi's word for them."""

_NUMBERED_SCHEMA = "latest_schema"
_OTHER_BASES = (".orc", ".hfile", ".lance")

READS_MAX = 10
"""How often the archive is read while Hudi replaces its files."""


@dataclass(frozen=True, slots=True)
class HudiInstant:
    """One completed instant of Hudi's timeline.

    own: we projected it. schema: the Avro schema that it carries, as text; "" for none. numbered: it carries another
    schema as well, whose columns have numbers, by which Hudi's readers find them in older files. plan: that of an
    archived compaction; None of one in the active timeline, where it is a file of its own.
    """

    completion: Completion
    own: bool = False
    schema: str = ""
    numbered: bool = False
    plan: bytes | None = None


InstantCache = dict[str, tuple[HudiInstant, ...]]
"""What files of Hudi's timeline hold, by path. They never change, so a process with a cache reads each once."""


def read_active(path: str, name: TimelineFileName, cache: InstantCache) -> Steps[HudiInstant | None]:
    """An instant of the active timeline; None if its file is gone by now."""
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
    """All archived instants; read again if Hudi replaces the files meanwhile."""
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
        "files of Hudi's archived timeline are missing: Hudi is replacing them, then try again, or they were deleted, "
        f"then restore them from a backup. folder={folder}"
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
    """Whether a completed instant that wrote no data is one of ours. What cannot be read is not: we put files whole."""
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
    """The files that a commit wrote. Beside its own log a stat may list earlier logs, and those of a change feed."""
    if not stat.path:
        raise FormatError(f"a write stat without a path. file={name}")
    if stat.path.endswith(_OTHER_BASES):
        raise UnsupportedFeatureError(
            "this release cannot read base files that are not Parquet: use Hudi's own reader. "
            f"file={stat.path} instant={name.requested}"
        )
    named = [(log, LogFileName.parse(log)) for log in stat.log_files or ()]
    logs = [join_path(partition, log) for log, parsed in named if parsed and parsed.instant == name.requested]
    return [stat.path, *logs]

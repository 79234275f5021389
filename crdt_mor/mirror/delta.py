"""A mirror as a Delta table at the table's own address.

    _delta_log/<20 digits>.json             a version: `remove` and `add` of the slices that changed
    crdtmor/deletion_vector_<uuid>.bin      the dead positions of that version's base files
    .mirror/<partition>/m-….parquet         merged rows

Each `add` has tags: the file group, and the digest of the slice that the file was written for. So the log alone tells
which slices it shows. `remove` and `add` for the same file never meet in a version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.errors import InvalidInputError
from crdt_mor.log.steps import Delete, GetStat, List, Put, Steps
from crdt_mor.mirror.bitmaps import FRAME_BYTES
from crdt_mor.mirror.bounds import bounds_of
from crdt_mor.mirror.columns import MirrorColumn
from crdt_mor.mirror.delta_log import (
    LOG,
    Action,
    FileName,
    LogState,
    checkpoints,
    commit_path,
    encode,
    name_of,
    read_state,
    replay,
)
from crdt_mor.mirror.delta_types import MODE, REWRITE, TABLE_ID, configuration, protocol, schema_json, stands
from crdt_mor.mirror.delta_upkeep import checkpointed, forgotten
from crdt_mor.mirror.delta_vectors import VectorFile, digest, path_of, put_vectors
from crdt_mor.mirror.files import FOLDER, Blob, DeadFile, NamedFile
from crdt_mor.mirror.refresh import AS_OF, TYPES, VERSION, Change, Committed, Head, Moment, Written, put_first
from crdt_mor.mirror.slices import ShownSlice
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.timeline_parts import FileGroup

_PARTITION, _FILE_ID, _FILES, _DEAD = "crdt_mor.partition", "crdt_mor.file_id", "crdt_mor.files", "crdt_mor.dead"

Deletes = Literal["vectors", "rewrite"]


@dataclass(frozen=True, slots=True)
class Delta:
    """The kind of Delta mirrors."""

    deletes: Deletes | None = None

    @property
    def mode(self) -> str:
        return self.deletes or ""

    def like(self, head: Head | None) -> Delta:
        kept: Deletes = "rewrite" if head is not None and head.mode == REWRITE else "vectors"
        return replace(self, deletes=self.deletes or kept)

    def merges_whole(self, partition: str) -> bool:
        # polars compares a vector's percent-encoded path with the plain one, and ignores the vector if they differ.
        return self.deletes == REWRITE or _encoded(partition) != partition

    def stands(self, stored: pa.DataType, in_file: pa.DataType) -> bool:
        return stands(stored, in_file)

    def require_types(self, columns: Sequence[MirrorColumn]) -> None:
        schema_json(columns)

    def head(self) -> Steps[Head | None]:
        state = yield from read_state()
        return None if state is None else _head(state)

    def files(self, head: Head) -> Iterable[NamedFile]:
        assert isinstance(head.state, LogState)
        for file in head.state.files.values():
            group, rows = _group(file) or ("", ""), json.loads(file["stats"])["numRecords"]
            yield NamedFile(group, "rows" if _is_ours(file) else "base", unquote(file["path"]), file["size"], rows)
            if vector := file.get("deletionVector"):
                place = Blob(vector["offset"], vector["sizeInBytes"] + FRAME_BYTES)
                yield NamedFile(group, "deletes", path_of(vector), None, vector["cardinality"], place)

    def repair(self, head: Head) -> Steps[None]:  # noqa: ARG002 - of the protocol
        yield from ()

    def write_dead(self, moment: Moment, shown: ShownSlice) -> Steps[DeadFile | None]:  # noqa: ARG002 - of the protocol
        """Put nothing: a commit's vectors are in one file."""
        yield from ()
        return None

    def commit(self, head: Head | None, change: Change) -> Steps[Committed | None]:
        state = LogState(-1) if head is None else head.state
        assert isinstance(state, LogState)
        vectors, file = yield from _vectors(state, change)
        actions = _actions(state, change, self.mode, vectors)
        number, own = state.number + 1, () if file is None else ((file.path, file.size),)
        data = encode(actions)
        files = [path for one in change.slices for path, _ in one.puts] + [path for path, _ in own]
        if not (yield from _put_next(state.number, data, files)):
            for path, _ in own:
                yield Delete(path)
            return None
        state = replay(state, number, actions)
        more = yield from (forgotten(state) if change.forgets else checkpointed(state))
        return Committed(number, (*own, (commit_path(number), len(data)), *more))


def _head(state: LogState) -> Head:
    settings = state.metadata.get("configuration", {})
    if TABLE_ID not in settings:
        raise InvalidInputError(
            "another Delta table is at this address, which crdt_mor did not write. Remove its log, if nobody needs "
            f"that table, and mirror again. log={LOG} version={state.number}"
        )
    info, table_id = state.info(), settings[TABLE_ID]
    is_ours = VERSION in info
    last = state.transactions.get(table_id, {}).get("version", -1)
    return Head(
        number=state.number,
        table_id=table_id,
        version=info[VERSION] if is_ours else last,
        as_of=InstantTime(info[AS_OF]) if is_ours else EPOCH,
        slices=_slices(state.files.values()),
        types=json.loads(settings.get(TYPES, "{}")),
        mode=settings.get(MODE, ""),
        is_ours=is_ours,
        state=state,
    )


# --- which slices a log shows -------------------------------------------------------------------------------------


def _group(file: Mapping[str, Any]) -> FileGroup | None:
    tags = file.get("tags") or {}
    return (tags[_PARTITION], tags[_FILE_ID]) if _FILE_ID in tags else None


def _slices(files: Iterable[Mapping[str, Any]]) -> dict[FileGroup, str]:
    """Return the digests of the shown slices. A file of merged rows tells, or else the base file."""
    found: dict[FileGroup, str] = {}
    for file in sorted(files, key=lambda file: file["path"].startswith(f"{FOLDER}/")):
        if (group := _group(file)) is not None:
            found[group] = file["tags"].get(_FILES, "")
    return found


# --- actions of a version -----------------------------------------------------------------------------------------


def _vectors(state: LogState, change: Change) -> Steps[tuple[dict[FileGroup, Mapping[str, Any]], VectorFile | None]]:
    """Return the vectors of the changed slices: those of the log where the dead rows are the same, else new ones."""
    known = {
        (file["path"], file["tags"].get(_DEAD)): file["deletionVector"]
        for file in ([] if change.is_whole else state.files.values())
        if file.get("deletionVector") and file.get("tags")
    }
    shown = {one.shown.key.group: one.shown for one in change.slices}
    dead = {group: one.dead for group, one in shown.items() if one.base is not None and len(one.dead)}
    found = {
        group: known[at]
        for group, positions in dead.items()
        if (base := shown[group].base) is not None and (at := (_encoded(base.path), digest(positions))) in known
    }
    new = [group for group in dead if group not in found]
    if not new:
        return found, None
    file = yield from put_vectors([dead[group] for group in new])
    return found | dict(zip(new, file.descriptors, strict=True)), file


def _actions(
    state: LogState, change: Change, mode: str, vectors: Mapping[FileGroup, Mapping[str, Any]]
) -> list[Action]:
    moment = change.moment
    wanted = {
        name_of(file): file for one in change.slices for file in _files(one, moment, vectors.get(one.shown.key.group))
    }
    changed = change.gone | frozenset(one.shown.key.group for one in change.slices)
    gone = {
        name: file
        for name, file in state.files.items()
        if name not in wanted and (change.is_whole or _group(file) in changed)
    }
    return [
        {"commitInfo": _info(moment)},
        {"txn": {"appId": moment.table_id, "version": moment.version, "lastUpdated": moment.now_ms}},
        *_settings(state, moment, mode),
        *({"remove": _removed(file, moment)} for file in gone.values()),
        *({"add": file} for name, file in _added(state, wanted, is_whole=change.is_whole)),
    ]


def _added(
    state: LogState, wanted: Mapping[FileName, Mapping[str, Any]], *, is_whole: bool
) -> Iterable[tuple[FileName, Mapping[str, Any]]]:
    """Yield files that the log lacks. A file that it has is repeated only for its digest, as no change of rows."""
    told = frozenset(group for file in wanted.values() if (group := _group(file)) and _is_ours(file))
    for name, file in wanted.items():
        there = state.files.get(name)
        if there is None:
            yield name, file
        elif is_whole or (_group(file) not in told and there.get("tags") != file["tags"]):
            yield name, {**file, "dataChange": False}


def _is_ours(file: Mapping[str, Any]) -> bool:
    return bool(file["path"].startswith(f"{FOLDER}/"))


def _info(moment: Moment) -> Mapping[str, Any]:
    return {
        "timestamp": moment.now_ms,
        "operation": "MIRROR",
        "operationParameters": {},
        "engineInfo": "crdt_mor",
        VERSION: moment.version,
        AS_OF: moment.as_of,
    }


def _settings(state: LogState, moment: Moment, mode: str) -> Iterable[Action]:
    """Yield the protocol and the metadata where they differ from the log's."""
    needed = protocol(moment.columns, mode)
    if state.protocol != needed:
        yield {"protocol": needed}
    metadata = {
        "id": moment.uuid,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_json(moment.columns),
        "partitionColumns": [],
        "configuration": configuration(moment.columns, mode, moment.table_id, moment.types),
    }
    known = {name: value for name, value in state.metadata.items() if name != "createdTime"}
    if known != metadata:
        yield {"metaData": {**metadata, "createdTime": state.metadata.get("createdTime", moment.now_ms)}}


def _files(one: Written, moment: Moment, vector: Mapping[str, Any] | None) -> Iterable[Mapping[str, Any]]:
    """Yield the `add` of a slice's base file and of its merged rows."""
    shown = one.shown
    tags = {_PARTITION: shown.key.partition, _FILE_ID: shown.key.file_id, _FILES: shown.key.files}
    if shown.base is not None and shown.footer is not None:
        base = _add(shown.base.path, shown.base.size, shown.footer, moment, is_tight=vector is None)
        yield {**base, "tags": tags} if vector is None else {
            **base, "tags": {**tags, _DEAD: digest(shown.dead)}, "deletionVector": vector
        }  # fmt: skip
    if one.rows is not None:
        yield {**_add(one.rows.path, one.rows.size, one.rows.footer, moment), "tags": tags}


def _add(path: str, size: int, footer: pq.FileMetaData, moment: Moment, *, is_tight: bool = True) -> dict[str, Any]:
    return {
        "path": _encoded(path),
        "partitionValues": {},
        "size": size,
        "modificationTime": moment.now_ms,
        "dataChange": True,
        "stats": _stats(footer, moment.columns, is_tight=is_tight),
    }


def _removed(file: Mapping[str, Any], moment: Moment) -> Mapping[str, Any]:
    vector = {"deletionVector": file["deletionVector"]} if file.get("deletionVector") else {}
    return {
        "path": file["path"],
        "deletionTimestamp": moment.now_ms,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": file.get("partitionValues") or {},
        "size": file["size"],
        **vector,
    }


def _encoded(path: str) -> str:
    return quote(path, safe="/=+,-_.~")


# --- statistics ---------------------------------------------------------------------------------------------------


def _stats(footer: pq.FileMetaData, columns: Sequence[MirrorColumn], *, is_tight: bool) -> str:
    bounds = bounds_of(footer, columns)
    exact = {name: found for name, found in bounds.items() if found.least is not None}
    stats = {
        "numRecords": footer.num_rows,
        "minValues": {name: _json(found.least) for name, found in exact.items()},
        "maxValues": {name: high for name, found in exact.items() if (high := _json_up(found.greatest)) is not None},
        "nullCount": {name: found.nulls for name, found in bounds.items() if found.nulls is not None},
        # Moments are rounded to milliseconds, so bounds are wide even without a vector.
        "tightBounds": is_tight and not any(isinstance(found.least, datetime) for found in exact.values()),
    }
    return json.dumps(stats, separators=(",", ":"), ensure_ascii=False)


def _json(value: Any) -> Any:
    """Return a bound in Delta's form. A moment is rounded down to milliseconds."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    return value.isoformat() if isinstance(value, date) else value


def _json_up(value: Any) -> Any:
    """Return `_json` of a greatest value. A moment is rounded up; None in the last millisecond of the year 9999."""
    if not isinstance(value, datetime):
        return _json(value)
    try:
        return _json(value + timedelta(microseconds=-value.microsecond % 1000))
    except OverflowError:
        return None


# --- putting a version --------------------------------------------------------------------------------------------


def _put_next(before: int, data: bytes, files: Sequence[str]) -> Steps[bool]:
    """Put the version after another; True if it is this process's, and the version before still stands.

    A process that slept may find an expired name free, where no reader looks.
    """
    path = commit_path(before + 1)
    if not (yield from put_first(Put(path, data, after=files, decides=True))):
        return False
    if (yield from _follows(before)):
        return True
    yield Delete(path)
    return False


def _follows(before: int) -> Steps[bool]:
    if before >= 0:
        return (yield GetStat(commit_path(before))) is not None
    return not checkpoints((yield List(LOG)))

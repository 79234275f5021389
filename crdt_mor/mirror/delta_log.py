"""Delta's log: reading its newest state, and the names of its files.

    _delta_log/<20 digits>.json                  the actions of a version, a JSON text a line
    _delta_log/<20 digits>.checkpoint.parquet    all actions that still count at a version, a row each
    _delta_log/_last_checkpoint                  a hint: the number of the newest checkpoint

A file is named by its path and its deletion vector. The last action for a name counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.errors import FormatError
from crdt_mor.log.steps import List, Read, Steps, Together
from crdt_mor.store.protocol import Stat

Action = Mapping[str, Any]
"""`{kind: fields}`"""

FileName = tuple[str, str]
"""The path in a log, percent-encoded, and the id of the deletion vector, or ""."""

LOG: Final = "_delta_log"
LAST_CHECKPOINT: Final = f"{LOG}/_last_checkpoint"

_COMMIT: Final = re.compile(rf"{LOG}/([0-9]{{20}})\.json")
_CHECKPOINT: Final = re.compile(rf"{LOG}/([0-9]{{20}})\.checkpoint\.parquet")

_LOOKS: Final = 3
"""How often the log is read again after another process removed a file in between."""


@dataclass(frozen=True)
class LogState:
    """The state at a version of the log.

    Attributes:
        files: the live `add` actions.
        newest: the actions of the version itself.
        checkpoint: the newest checkpoint up to here, or -1.
    """

    number: int
    files: Mapping[FileName, Mapping[str, Any]] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    transactions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    newest: tuple[Action, ...] = ()
    checkpoint: int = -1

    @property
    def actions(self) -> Iterator[Action]:
        """Yield the actions of a checkpoint."""
        yield {"protocol": self.protocol}
        yield {"metaData": self.metadata}
        yield from ({"txn": one} for one in self.transactions.values())
        yield from ({"add": one} for one in self.files.values())

    def info(self) -> Mapping[str, Any]:
        return next((action["commitInfo"] for action in self.newest if "commitInfo" in action), {})


_NEEDED: Final = {"add": "path", "remove": "path", "txn": "appId"}
"""The text that an action must have."""


def commit_path(number: int) -> str:
    return f"{LOG}/{number:020d}.json"


def checkpoint_path(number: int) -> str:
    return f"{LOG}/{number:020d}.checkpoint.parquet"


def numbers(listed: Iterable[Stat], pattern: re.Pattern[str] = _COMMIT) -> list[int]:
    """Return the numbers of the commits among files, ascending."""
    return sorted(int(found[1]) for stat in listed if (found := pattern.fullmatch(stat.path)))


def checkpoints(listed: Iterable[Stat]) -> list[int]:
    return numbers(listed, _CHECKPOINT)


def name_of(file: Mapping[str, Any]) -> FileName:
    vector = file.get("deletionVector")
    if not vector:
        return file["path"], ""
    offset = vector.get("offset")
    return file["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}{'' if offset is None else f'@{offset}'}"


def replay(state: LogState, number: int, actions: Sequence[Action]) -> LogState:
    """Return the state after the actions of a version."""
    files, transactions = dict(state.files), dict(state.transactions)
    metadata, protocol = state.metadata, state.protocol
    for action in actions:
        ((kind, fields),) = action.items()
        if kind == "add":
            files[name_of(fields)] = fields
        elif kind == "remove":
            files.pop(name_of(fields), None)
        elif kind == "txn":
            transactions[fields["appId"]] = fields
        elif kind == "metaData":
            metadata = fields
        elif kind == "protocol":
            protocol = fields
    return LogState(number, files, metadata, protocol, transactions, tuple(actions), state.checkpoint)


def read_state() -> Steps[LogState | None]:
    """Read the newest state; None without a log."""
    for _ in range(_LOOKS):
        listed: list[Stat] = yield List(LOG)
        commits = numbers(listed)
        if not commits:
            return None
        newest = commits[-1]
        start = max((number for number in checkpoints(listed) if number <= newest), default=-1)
        found = yield from read_from(start, newest)
        if found is not None:
            return found
    raise FormatError(
        "the Delta log of the mirror misses a version: delete its folder and mirror the table again. "
        f"folder={LOG} newest={newest} checkpoint={start}"
    )


def read_from(start: int, newest: int) -> Steps[LogState | None]:
    """Read the state at a version, from a checkpoint, or -1, on; None if a file is gone."""
    wanted = range(min(start + 1, newest), newest + 1)
    paths = [*([checkpoint_path(start)] if start >= 0 else []), *map(commit_path, wanted)]
    contents: list[bytes | None] = yield Together(tuple(map(Read, paths)))
    read = dict(zip(paths, contents, strict=True))
    if any(content is None for content in contents):
        return None
    state = LogState(-1)
    if start >= 0:
        state = replay(state, start, _rows(read[checkpoint_path(start)] or b"", checkpoint_path(start)))
    for number in wanted:
        actions = _lines(read[commit_path(number)] or b"", commit_path(number))
        state = replay(state, number, actions)
    return LogState(state.number, state.files, state.metadata, state.protocol, state.transactions, state.newest, start)


def read_versions() -> Steps[list[Mapping[str, Any]]]:
    """Return the `add` actions of all readable versions: of the oldest checkpoint, and of each version after it."""
    for _ in range(_LOOKS):
        listed: list[Stat] = yield List(LOG)
        commits, start = numbers(listed), -1
        if not commits:
            return []
        if commits[0] > 0:
            start = min(checkpoints(listed), default=commits[0])
        paths = [checkpoint_path(start)] if start >= 0 else []
        paths += [commit_path(number) for number in commits if number > start]
        contents: list[bytes | None] = yield Together(tuple(map(Read, paths)))
        if None not in contents:
            pairs = zip(paths, contents, strict=True)
            read = (
                _rows(content or b"", path) if path.endswith(".parquet") else _lines(content or b"", path)
                for path, content in pairs
            )
            return [action["add"] for actions in read for action in actions if "add" in action]
    raise FormatError(f"the Delta log of the mirror misses a version: mirror the table again. folder={LOG}")


def encode(actions: Iterable[Action]) -> bytes:
    return "".join(f"{json.dumps(action, separators=(',', ':'), ensure_ascii=False)}\n" for action in actions).encode()


def _lines(content: bytes, path: str) -> list[Action]:
    try:
        found = [json.loads(line) for line in content.splitlines() if line.strip()]
        if all(map(_is_action, found)):
            return found
        reason = "a line is no action"
    except ValueError as error:
        reason = str(error)
    raise FormatError(f"not a version of a Delta log: delete the mirror and mirror again. {reason}. path={path}")


def _is_action(line: object) -> bool:
    if not isinstance(line, dict) or len(line) != 1:
        return False
    ((kind, fields),) = line.items()
    needed = _NEEDED.get(kind)
    return isinstance(fields, dict) and (needed is None or isinstance(fields.get(needed), str))


# --- checkpoints --------------------------------------------------------------------------------------------------

_TEXTS: Final = pa.map_(pa.string(), pa.string())
_VECTOR: Final = pa.struct([
    ("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int32()), ("sizeInBytes", pa.int32()),
    ("cardinality", pa.int64()),
])  # fmt: skip
_FILE: Final = [("path", pa.string()), ("partitionValues", _TEXTS), ("size", pa.int64())]
_ADD: Final = [
    *_FILE, ("modificationTime", pa.int64()), ("dataChange", pa.bool_()), ("stats", pa.string()), ("tags", _TEXTS),
    ("deletionVector", _VECTOR),
]  # fmt: skip
_REMOVE: Final = [
    *_FILE, ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_()), ("extendedFileMetadata", pa.bool_()),
    ("deletionVector", _VECTOR),
]  # fmt: skip
_METADATA: Final = [
    ("id", pa.string()), ("name", pa.string()), ("description", pa.string()),
    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])), ("schemaString", pa.string()),
    ("partitionColumns", pa.list_(pa.string())), ("configuration", _TEXTS), ("createdTime", pa.int64()),
]  # fmt: skip
_PROTOCOL: Final = [
    ("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()), ("readerFeatures", pa.list_(pa.string())),
    ("writerFeatures", pa.list_(pa.string())),
]  # fmt: skip
_TRANSACTION: Final = [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
_CHECKPOINTED: Final = pa.schema([
    ("txn", pa.struct(_TRANSACTION)), ("add", pa.struct(_ADD)), ("remove", pa.struct(_REMOVE)),
    ("metaData", pa.struct(_METADATA)), ("protocol", pa.struct(_PROTOCOL)),
])  # fmt: skip


def checkpoint(state: LogState) -> tuple[bytes, int]:
    """Return a checkpoint in Delta's Parquet format, and its number of actions.

    Removed files are absent: they matter only to a vacuum, which a mirror refuses.
    """
    rows = [{kind: _paired(fields) for kind, fields in action.items()} for action in state.actions]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, _CHECKPOINTED), sink, compression="snappy", store_schema=False)
    data: bytes = sink.getvalue().to_pybytes()
    return data, len(rows)


def _paired(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Replace dicts that are maps by pairs, as Arrow takes them."""
    found = dict(fields)
    for name in ("partitionValues", "tags", "configuration"):
        if isinstance(found.get(name), Mapping):
            found[name] = list(found[name].items())
    if isinstance(found.get("format"), Mapping):
        found["format"] = {**found["format"], "options": list(dict(found["format"].get("options") or {}).items())}
    return found


def _rows(content: bytes, path: str) -> list[Action]:
    """Return the actions of a checkpoint, of this engine or another."""
    try:
        table = pq.read_table(pa.BufferReader(content))
        rows = table.select([name for name in _CHECKPOINTED.names if name in table.column_names]).to_pylist(
            maps_as_pydicts="strict"
        )
        return [{kind: _without_nulls(fields)} for row in rows for kind, fields in row.items() if fields is not None]
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise FormatError(
            f"not a checkpoint of a Delta log: delete the mirror and mirror again. {error}. path={path}"
        ) from error


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(one) for key, one in value.items() if one is not None}

"""Hudi's archived timeline, also called its history: completed instants that left the active timeline.

    _version_                        the number of the newest manifest, as text
    manifest_<number>                JSON {"files": [{"fileName": ..., "fileLen": ...}]}: the data files that count
    <first>_<last>_<level>.parquet   an instant a row: instantTime, completionTime, action, metadata, plan, version

Data files never change: ten small files are merged under a new manifest. A manifest names the whole history; other
files are old or unfinished. `metadata` and `plan` are the contents of the instant's completed file and of its plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.errors import FormatError, UnsupportedVersionError
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import TimelineFileName
from crdt_mor.model.numbers import whole_number

VERSION_FILE: Final = "_version_"
_MANIFEST: Final = "manifest_"
_ROW_VERSION: Final = 1
_COLUMNS: Final = ("instantTime", "completionTime", "action", "metadata", "plan", "version")
_SCHEMA: Final = pa.schema([
    ("instantTime", pa.string()), ("completionTime", pa.string()), ("action", pa.string()), ("metadata", pa.binary()),
    ("plan", pa.binary()), pa.field("version", pa.int32(), nullable=False),
])  # fmt: skip
_COMPLETED_AS: Final = {"compaction": "commit", "logcompaction": "deltacommit", "clustering": "replacecommit"}


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    name: TimelineFileName
    metadata: bytes
    plan: bytes | None = None


def manifest_name(number: int) -> str:
    return f"{_MANIFEST}{number}"


def manifest_number(name: str) -> int | None:
    digits = name.removeprefix(_MANIFEST)
    return whole_number(digits) if name != digits else None


def encode_manifest(files: Iterable[tuple[str, int]]) -> bytes:
    return json.dumps({"files": [{"fileName": name, "fileLen": length} for name, length in files]}).encode()


def encode_instants(instants: Iterable[ArchivedInstant]) -> bytes:
    rows = [
        {
            "instantTime": instant.name.requested,
            "completionTime": instant.name.completed,
            "action": instant.name.action,
            "metadata": instant.metadata,
            "plan": instant.plan,
            "version": _ROW_VERSION,
        }
        for instant in instants
    ]
    return _encode(pa.Table.from_pylist(rows, _SCHEMA))


def merge_data_files(files: Iterable[tuple[bytes, str]]) -> bytes:
    tables = []
    for data, path in files:
        try:
            tables.append(pq.read_table(pa.BufferReader(data), columns=_SCHEMA.names).cast(_SCHEMA))
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise FormatError(f"damaged file of the archived timeline: {error}. file={path}") from error
    return _encode(pa.concat_tables(tables).sort_by("instantTime"))


def _encode(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", store_schema=False, use_dictionary=["action"])
    data: bytes = sink.getvalue().to_pybytes()
    return data


def newest_manifest(version: bytes | None, names: Iterable[str], folder: str) -> str | None:
    """Return the name of the newest manifest, or None.

    A dead writer may leave no version file. Then the manifest with the greatest number is the newest.
    """
    if version is not None:
        text = version.decode(errors="replace").strip()
        if not (text.isascii() and text.isdigit()):
            raise FormatError(f"the archived timeline's version is no number: {text!r}. file={folder}/{VERSION_FILE}")
        return f"{_MANIFEST}{text}"
    newest = max((number for name in names if (number := manifest_number(name)) is not None), default=None)
    return None if newest is None else manifest_name(newest)


def decode_manifest(data: bytes, path: str) -> tuple[str, ...]:
    try:
        names = [entry["fileName"] for entry in json.loads(data)["files"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"damaged manifest of the archived timeline: {error!r}. file={path}") from error
    if not all(isinstance(name, str) and name.endswith(".parquet") and "/" not in name for name in names):
        raise FormatError(f"a manifest of the archived timeline names no files of it. file={path} names={names[:5]}")
    return tuple(names)


def decode_instants(data: bytes, path: str) -> list[ArchivedInstant]:
    try:
        rows: list[dict[str, Any]] = pq.read_table(pa.BufferReader(data), columns=list(_COLUMNS)).to_pylist()
        return [_instant(row, path) for row in rows]
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"damaged file of the archived timeline: {error}. file={path}") from error


def _instant(row: dict[str, Any], path: str) -> ArchivedInstant:
    if row["version"] != _ROW_VERSION:
        raise UnsupportedVersionError(
            "an archived instant of another version of the format: upgrade crdt_mor. "
            f"file={path} found={row['version']} supported={_ROW_VERSION}"
        )
    requested, completed, action = row["instantTime"], row["completionTime"] or row["instantTime"], row["action"]
    if not requested or not action:
        raise ValueError(f"an instant without its time or action, {requested=} {action=}")
    written_as = _COMPLETED_AS.get(action, action)
    name = TimelineFileName(InstantTime(requested), written_as, "completed", InstantTime(completed))
    return ArchivedInstant(name, row["metadata"] or b"", row["plan"])

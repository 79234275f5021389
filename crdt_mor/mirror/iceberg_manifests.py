"""Iceberg's manifests and manifest lists, versions 2 and 3: which files a snapshot has.

    entry      a base file, a file of winning rows, a file of position deletes, or a deletion vector
    manifest   up to `ENTRIES_MAX` entries of one stream and one partition spec; never changed
    list       the manifests of a snapshot

A manifest's header also contains, for each entry, the slice that it belongs to. The next refresh compares these with
the table. Readers ignore it.
"""

from __future__ import annotations

import base64
import io
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, Final, Literal

from crdt_mor.ground.late_imports import Late
from crdt_mor.mirror.files import Blob
from crdt_mor.mirror.iceberg_bounds import Bounds

if TYPE_CHECKING:
    import fastavro
else:
    fastavro = Late("fastavro")

Stream = Literal["base", "rows", "deletes"]
STREAMS: Final[tuple[Stream, ...]] = ("base", "rows", "deletes")

SliceText = tuple[str, str, str | None]
"""Partition, file id and `SliceKey.files` of a slice; None where another entry of the slice says the last."""

ENTRIES_MAX: Final = 100
"""A changed slice rewrites its manifests, and a refresh reads all."""

_EXISTING, _ADDED = 0, 1
_DATA, _POSITION_DELETES = 0, 1
_AVRO_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SLICES: Final = "crdt_mor.slices"
_STREAM: Final = "crdt_mor.stream"

PartitionValue = str | int | date | None

Name = tuple[str, Blob | None]


@dataclass(frozen=True, slots=True)
class Spec:
    """An Iceberg partition spec.

    fields: source id, field id, name, Iceberg type and transform of each level.
    """

    spec_id: int
    fields: tuple[tuple[int, int, str, str, str], ...] = ()

    @property
    def avro_names(self) -> list[str]:
        """Avro allows few characters in names, so readers go by field id."""
        return [name if _AVRO_NAME.fullmatch(name) else f"partition_{id_}" for _, id_, name, *_ in self.fields]

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {"source-id": source, "field-id": id_, "name": name, "transform": transform}
            for source, id_, name, _, transform in self.fields
        ]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a snapshot, or a deletion vector in a file.

    Attributes:
        path: relative to the table.
        of: the slice.
        spec_id, values: the partition.
        referenced: the base file of position deletes.
        sequence, snapshot_id: of the snapshot that added it; None if that is the one being made.
        first_row: the id of a data file's first row, in version 3; None if the manifest list decides it.
    """

    stream: Stream
    path: str
    of: SliceText
    rows: int
    size: int
    spec_id: int = 0
    values: tuple[PartitionValue, ...] = ()
    bounds: Bounds = ()
    referenced: str | None = None
    sequence: int | None = None
    snapshot_id: int | None = None
    blob: Blob | None = None
    first_row: int | None = None

    @property
    def name(self) -> Name:
        return self.path, self.blob

    @property
    def own_size(self) -> int:
        return self.size if self.blob is None else self.blob.length

    def settled(self, sequence: int, snapshot_id: int) -> Entry:
        """Return the entry as later snapshots see it."""
        return self if self.sequence is not None else replace(self, sequence=sequence, snapshot_id=snapshot_id)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest file with its entries, which are settled. first_row: of its new data files."""

    path: str
    length: int
    stream: Stream
    spec_id: int
    sequence: int
    snapshot_id: int
    entries: tuple[Entry, ...]
    first_row: int | None = None

    @property
    def unnumbered(self) -> int:
        """Number of rows without an id."""
        return sum(entry.rows for entry in self.entries if entry.stream != "deletes" and entry.first_row is None)

    def numbered(self, first: int) -> Manifest:
        """Give ids to the rows of new data files, as readers do."""
        entries, next_row = [], first
        for entry in self.entries:
            entries.append(entry if entry.first_row is not None else replace(entry, first_row=next_row))
            next_row += 0 if entry.first_row is not None else entry.rows
        return replace(self, first_row=first, entries=tuple(entries))

    def to_list(self, root: str) -> dict[str, Any]:
        added = [entry for entry in self.entries if entry.snapshot_id == self.snapshot_id]
        sequences = [entry.sequence for entry in self.entries if entry.sequence is not None]
        return {
            "manifest_path": f"{root}/{self.path}", "manifest_length": self.length, "partition_spec_id": self.spec_id,
            "content": int(self.stream == "deletes"), "sequence_number": self.sequence,
            "min_sequence_number": min(sequences, default=self.sequence), "added_snapshot_id": self.snapshot_id,
            "added_files_count": len(added), "existing_files_count": len(self.entries) - len(added),
            "deleted_files_count": 0, "added_rows_count": sum(entry.rows for entry in added),
            "existing_rows_count": sum(entry.rows for entry in self.entries) - sum(entry.rows for entry in added),
            "deleted_rows_count": 0, "first_row_id": self.first_row,
        }  # fmt: skip


# --- manifests --------------------------------------------------------------------------------------------------------


def manifest_bytes(
    root: str, entries: Sequence[Entry], spec: Spec, schema: dict[str, Any], snapshot_id: int, version: int
) -> bytes:
    stream = entries[0].stream
    header = {
        "schema": json.dumps(schema), "schema-id": str(schema["schema-id"]),
        "partition-spec": json.dumps(spec.to_json()), "partition-spec-id": str(spec.spec_id),
        "format-version": str(version), "content": "deletes" if stream == "deletes" else "data", _STREAM: stream,
        _SLICES: _packed([entry.of for entry in entries]),
    }  # fmt: skip
    records = [_record(root, entry, spec, snapshot_id) for entry in entries]
    return _container(_manifest_schema(spec, version), records, header)


def read_manifest(root: str, listed: dict[str, Any], data: bytes) -> Manifest:
    """Return a manifest that a mirror of this table made; raise ValueError or KeyError for any other."""
    found: Any = fastavro.reader(io.BytesIO(data))
    stream, slices = found.metadata[_STREAM], _unpacked(found.metadata[_SLICES])
    sequence, snapshot_id, spec_id = (listed[f] for f in ("sequence_number", "added_snapshot_id", "partition_spec_id"))
    (data_file,) = (field for field in found.writer_schema["fields"] if field["name"] == "data_file")
    (values,) = (field for field in data_file["type"]["fields"] if field["name"] == "partition")
    names = [field["name"] for field in values["type"]["fields"]]
    entries = tuple(
        _entry(root, record, stream, of, names, spec_id).settled(sequence, snapshot_id)
        for record, of in zip(found, slices, strict=True)
    )
    path, first_row = relative(root, listed["manifest_path"]), listed.get("first_row_id")
    read = Manifest(path, listed["manifest_length"], stream, spec_id, sequence, snapshot_id, entries)
    return read if first_row is None else read.numbered(first_row)


def relative(root: str, uri: str) -> str:
    """Return the path in the table of a file's address; raise ValueError for a file elsewhere."""
    if not uri.startswith(f"{root}/"):
        raise ValueError(f"the file is outside the table. file={uri} table={root}")
    return uri[len(root) + 1 :]


def _record(root: str, entry: Entry, spec: Spec, snapshot_id: int) -> dict[str, Any]:
    is_new = entry.sequence is None
    bounds: dict[str, Any] = {"lower_bounds": None, "upper_bounds": None}
    if entry.bounds:
        bounds["lower_bounds"] = [{"key": id_, "value": low} for id_, low, _ in entry.bounds]
        bounds["upper_bounds"] = [{"key": id_, "value": high} for id_, _, high in entry.bounds]
    return {
        "status": _ADDED if is_new else _EXISTING,
        "snapshot_id": snapshot_id if is_new else entry.snapshot_id,
        "sequence_number": entry.sequence, "file_sequence_number": entry.sequence,
        "data_file": {
            "content": _POSITION_DELETES if entry.stream == "deletes" else _DATA,
            "file_path": f"{root}/{entry.path}", "file_format": "PARQUET" if entry.blob is None else "PUFFIN",
            "partition": dict(zip(spec.avro_names, entry.values, strict=True)),
            "record_count": entry.rows, "file_size_in_bytes": entry.size, **bounds,
            "referenced_data_file": None if entry.referenced is None else f"{root}/{entry.referenced}",
            "first_row_id": entry.first_row,
            "content_offset": None if entry.blob is None else entry.blob.offset,
            "content_size_in_bytes": None if entry.blob is None else entry.blob.length,
        },
    }  # fmt: skip


def _entry(
    root: str, record: dict[str, Any], stream: Stream, of: SliceText, names: Sequence[str], spec_id: int
) -> Entry:
    file = record["data_file"]
    lows = {bound["key"]: bound["value"] for bound in file["lower_bounds"] or ()}
    highs = {bound["key"]: bound["value"] for bound in file["upper_bounds"] or ()}
    return Entry(
        stream, relative(root, file["file_path"]), of, file["record_count"], file["file_size_in_bytes"], spec_id,
        tuple(file["partition"][name] for name in names),
        tuple((id_, low, highs[id_]) for id_, low in lows.items() if id_ in highs),
        None if file["referenced_data_file"] is None else relative(root, file["referenced_data_file"]),
        record["sequence_number"], record["snapshot_id"] if record["status"] == _EXISTING else None,
        None if file.get("content_offset") is None else Blob(file["content_offset"], file["content_size_in_bytes"]),
        file.get("first_row_id"),
    )  # fmt: skip


# --- manifest lists ---------------------------------------------------------------------------------------------------


def numbered(manifests: Iterable[Manifest], first: int) -> list[Manifest]:
    """Give ids to the rows of new manifests."""
    found = []
    for manifest in manifests:
        found.append(manifest if manifest.stream == "deletes" else manifest.numbered(first))
        first += manifest.unnumbered
    return found


def list_bytes(
    root: str, manifests: Iterable[Manifest], snapshot_id: int, parent_id: int | None, sequence: int, version: int
) -> bytes:
    header = {
        "snapshot-id": str(snapshot_id), "parent-snapshot-id": str(parent_id) if parent_id else "null",
        "sequence-number": str(sequence), "format-version": str(version),
    }  # fmt: skip
    return _container(_list_schema(version), [manifest.to_list(root) for manifest in manifests], header)


def read_list(data: bytes) -> list[dict[str, Any]]:
    found: Any = fastavro.reader(io.BytesIO(data))
    return list(found)


# --- Avro -------------------------------------------------------------------------------------------------------------


def _container(schema: dict[str, Any], records: list[dict[str, Any]], header: dict[str, str]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), records, codec="deflate", metadata=header)
    return out.getvalue()


def _packed(slices: Sequence[SliceText]) -> str:
    return base64.b64encode(zlib.compress(json.dumps(slices).encode())).decode()


def _unpacked(text: str) -> list[SliceText]:
    return [
        (partition, file_id, last) for partition, file_id, last in json.loads(zlib.decompress(base64.b64decode(text)))
    ]


def _required(name: str, kind: Any, id_: int) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": id_}


def _optional(name: str, kind: Any, id_: int) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": id_}


def _map(name: str, id_: int, key_id: int, value_id: int) -> dict[str, Any]:
    pair = {
        "type": "record", "name": f"k{key_id}_v{value_id}",
        "fields": [_required("key", "int", key_id), _required("value", "bytes", value_id)],
    }  # fmt: skip
    return _optional(name, {"type": "array", "logicalType": "map", "items": pair}, id_)


AVRO_OF: Final[dict[str, Any]] = {
    "string": "string", "int": "int", "long": "long", "date": {"type": "int", "logicalType": "date"}
}  # fmt: skip
"""Types of partition values."""


def _manifest_schema(spec: Spec, version: int) -> dict[str, Any]:
    named = zip(spec.avro_names, spec.fields, strict=True)
    values = [_optional(name, AVRO_OF[kind], id_) for name, (_, id_, _, kind, _) in named]
    return {"type": "record", "name": "manifest_entry", "fields": [
        _required("status", "int", 0),
        _optional("snapshot_id", "long", 1),
        _optional("sequence_number", "long", 3),
        _optional("file_sequence_number", "long", 4),
        _required("data_file", {"type": "record", "name": "r2", "fields": [
            _required("content", "int", 134),
            _required("file_path", "string", 100),
            _required("file_format", "string", 101),
            _required("partition", {"type": "record", "name": "r102", "fields": values}, 102),
            _required("record_count", "long", 103),
            _required("file_size_in_bytes", "long", 104),
            _map("lower_bounds", 125, 126, 127),
            _map("upper_bounds", 128, 129, 130),
            _optional("referenced_data_file", "string", 143),
            *(_VECTORS if version > 2 else ()),
        ]}, 2),
    ]}  # fmt: skip


_VECTORS: Final = (
    _optional("first_row_id", "long", 142),
    _optional("content_offset", "long", 144),
    _optional("content_size_in_bytes", "long", 145),
)
_LISTED: Final = (
    _required("manifest_path", "string", 500), _required("manifest_length", "long", 501),
    _required("partition_spec_id", "int", 502), _required("content", "int", 517),
    _required("sequence_number", "long", 515), _required("min_sequence_number", "long", 516),
    _required("added_snapshot_id", "long", 503), _required("added_files_count", "int", 504),
    _required("existing_files_count", "int", 505), _required("deleted_files_count", "int", 506),
    _required("added_rows_count", "long", 512), _required("existing_rows_count", "long", 513),
    _required("deleted_rows_count", "long", 514),
)  # fmt: skip


def _list_schema(version: int) -> dict[str, Any]:
    more = [_optional("first_row_id", "long", 520)] if version > 2 else []
    return {"type": "record", "name": "manifest_file", "fields": [*_LISTED, *more]}

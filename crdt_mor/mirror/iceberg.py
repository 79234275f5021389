"""The Iceberg mirror: position deletes or deletion vectors over base files, and files of merged rows.

    metadata/v<N>.metadata.json     put if absent: the commit
    metadata/version-hint.text      N, for readers that do not list; rewritten after the commit
    metadata/snap-….avro            manifest lists; metadata/<version>-….avro: manifests
    .mirror/<partition>/m-….parquet         merged rows
    .mirror/<partition>/m-…-del.parquet     position deletes: Iceberg version 2
    .mirror/m-vectors_….puffin              deletion vectors of a refresh: Iceberg version 3

Order: rows and deletes, manifests, manifest list, metadata, hint. A catalog's own metadata files stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from hashlib import sha256
from typing import Any, Final, Literal, cast

import pyarrow as pa

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.log.steps import Delete, GetStat, Nonce, Put, Read, Steps, put_all_surely, put_surely
from crdt_mor.mirror import iceberg_metadata as metadata
from crdt_mor.mirror.columns import MirrorColumn
from crdt_mor.mirror.files import DeadFile, NamedFile, encoded, file_path
from crdt_mor.mirror.iceberg_bounds import bounded, bounds_of
from crdt_mor.mirror.iceberg_manifests import (
    AVRO_OF,
    Entry,
    Manifest,
    PartitionValue,
    Spec,
    Stream,
    list_bytes,
    manifest_bytes,
    numbered,
)
from crdt_mor.mirror.iceberg_metadata import NewSnapshot, Shape, next_row_ids
from crdt_mor.mirror.iceberg_plan import Plan, keys_shown, plan
from crdt_mor.mirror.iceberg_read import State, newest_number, read_head
from crdt_mor.mirror.iceberg_types import Json, iceberg_type, name_mapping, schema_fields, stands
from crdt_mor.mirror.iceberg_vectors import with_vectors
from crdt_mor.mirror.refresh import AS_OF, TYPES, VERSION, Change, Committed, Head, Moment, Objects, Written, put_first
from crdt_mor.mirror.slices import ShownSlice
from crdt_mor.model.config import TableConfig
from crdt_mor.model.field_ids import with_field_ids
from crdt_mor.model.instant import EPOCH, InstantTime, to_ms
from crdt_mor.model.partition_functions import PartitionFunction, sources
from crdt_mor.model.timeline import Timeline
from crdt_mor.store.open import address_of

Deletes = Literal["positions", "vectors"]
VERSIONS: Final[Mapping[Deletes, int]] = {"positions": 2, "vectors": 3}

_HINT_TRIES: Final = 10

_FILE_PATH_ID, _POS_ID = 2147483546, 2147483545
"""Iceberg's ids of the columns of position deletes."""

_DELETES: Final = with_field_ids(
    pa.schema([pa.field("file_path", pa.string(), nullable=False), pa.field("pos", pa.int64(), nullable=False)]),
    {("file_path",): _FILE_PATH_ID, ("pos",): _POS_ID},
)


@dataclass(frozen=True)
class Iceberg:
    """The Iceberg mirror of a table.

    Attributes:
        root: the table's address, as engines open it.
        stored: the table's stored schema, with dropped columns.
    """

    root: str
    config: TableConfig
    stored: pa.Schema
    deletes: Deletes | None = None

    @classmethod
    def of(cls, session: Session, value: Timeline, deletes: Deletes | None = None) -> Iceberg:
        """Return the mirror of a table with the columns of a timeline value."""
        stored = TableSchema.from_json(value.schema).stored
        return cls(address_of(session.store, session.uri), session.config, stored, deletes)

    @property
    def mode(self) -> str:
        return self.deletes or ""

    def like(self, head: Head | None) -> Iceberg:
        kept: Deletes = "vectors" if head is not None and head.mode == "vectors" else "positions"
        if (self.deletes, kept) == ("positions", "vectors"):
            raise InvalidInputError(
                "an Iceberg mirror with deletion vectors has format version 3, and Iceberg has no way back to version "
                "2: drop the table in all catalogs, delete the folder metadata/, then mirror again. "
                f"deletes='positions' table={self.root}"
            )
        return replace(self, deletes=self.deletes or kept)

    def head(self) -> Steps[Head | None]:
        found = yield from read_head(self.root)
        if found is None:
            return None
        state, is_ours = found
        own = {} if state.metadata is None else state.metadata.get("properties", {})
        here = state.metadata is not None and state.metadata.get("location") == self.root
        version, as_of = (own.get(VERSION, "-1"), own.get(AS_OF, EPOCH)) if here else ("-1", EPOCH)
        format_version = (_usable(state.metadata) or {}).get("format-version", VERSIONS["positions"])
        return Head(
            state.number, own.get(metadata.TABLE, ""), int(version), InstantTime(as_of),
            {key.group: key.files for key in keys_shown(state.manifests)}, json.loads(own.get(TYPES, "{}")),
            "vectors" if format_version >= VERSIONS["vectors"] else "positions", is_ours, state,
        )  # fmt: skip

    def files(self, head: Head) -> Iterable[NamedFile]:
        assert isinstance(head.state, State)
        for entry in (entry for manifest in head.state.manifests for entry in manifest.entries):
            yield NamedFile(entry.of[:2], entry.stream, entry.path, entry.size, entry.rows, entry.blob)

    def repair(self, head: Head) -> Steps[None]:
        yield from _point_at(head.number)

    def write_dead(self, moment: Moment, shown: ShownSlice) -> Steps[DeadFile | None]:
        if self.deletes == "vectors" or shown.base is None or not len(shown.dead):
            return None
        path = file_path(shown.key, moment.version, (yield Nonce()), "-del.parquet")
        paths = pa.repeat(pa.scalar(f"{self.root}/{shown.base.path}"), len(shown.dead))
        data = encoded(pa.table([paths, pa.array(shown.dead)], schema=_DELETES))
        yield from put_surely(Put(path, data, durable="content"))
        return DeadFile(path, len(data))

    def commit(self, head: Head | None, change: Change) -> Steps[Committed | None]:
        state = State(0, None, ()) if head is None else head.state
        assert isinstance(state, State), "the head of another kind"
        moment, number = change.moment, state.number + 1
        before = _usable(state.metadata)
        shape = self._shape(change, before)
        schema, specs = metadata.schema_of(before, shape), metadata.specs_of(before, shape)
        nonce = yield Nonce()
        vectors, slices = self._vectors(change, nonce)
        planned = self._planned(head, replace(change, slices=slices), state.manifests, specs)
        snapshot_id = int.from_bytes(sha256(nonce.encode()).digest()[:8], "big") >> 1 or 1
        sequence = 1 if before is None else int(before.get("last-sequence-number", 0)) + 1
        made, puts = self._manifests(planned, specs, schema, snapshot_id, sequence, f"{moment.version}-{nonce}")
        row_ids = next_row_ids(before, made) if self.deletes == "vectors" else None
        manifests = [*planned.kept, *(made if row_ids is None else numbered(made, row_ids.first))]
        old = [] if before is None or change.forgets else metadata.own_snapshots(before, moment.table_id, self.root)
        parent = old[-1]["snapshot-id"] if old else None
        listed = Put(
            f"{metadata.FOLDER}/snap-{snapshot_id}-{nonce}.avro",
            list_bytes(self.root, manifests, snapshot_id, parent, sequence, self._version), durable="content",
        )  # fmt: skip
        new = NewSnapshot(
            snapshot_id, f"{self.root}/{listed.path}", moment.version, moment.as_of, to_ms(moment.as_of),
            moment.table_id, _totals(manifests), row_ids,
        )  # fmt: skip
        document = metadata.following(number, self.root, moment.uuid, before, shape, new, old, moment.now_ms)
        of_slices = [path for one in change.slices for path, _ in one.puts]
        return (yield from _published(number, document, [*vectors, *puts, listed], of_slices))

    @property
    def _version(self) -> int:
        return VERSIONS[self.deletes or "positions"]

    def _vectors(self, change: Change, nonce: str) -> tuple[list[Put], tuple[Written, ...]]:
        if self.deletes != "vectors":
            return [], change.slices
        return with_vectors(self.root, change.slices, f"{change.moment.version}_n{nonce}")

    def _planned(
        self, head: Head | None, change: Change, manifests: Sequence[Manifest], specs: tuple[Spec, Spec]
    ) -> Plan:
        moment, known = change.moment, {} if head is None else head.types
        return plan(
            () if change.is_whole else manifests,
            {one.shown.key.group: self._entries(one, moment.columns, specs) for one in change.slices},
            moment.keys,
            lambda entry: self._restated(entry, specs),
            bounds_stay=all(moment.types.get(name, kind) == kind for name, kind in known.items()),
        )

    # --- the table in Iceberg's words ---------------------------------------------------------------------------------

    def stands(self, stored: pa.DataType, in_file: pa.DataType) -> bool:
        return stands(stored, in_file)

    def merges_whole(self, partition: str) -> bool:  # noqa: ARG002 - of the protocol
        return False

    def require_types(self, columns: Sequence[MirrorColumn]) -> None:
        schema_fields(columns)

    def _shape(self, change: Change, before: Json | None) -> Shape:
        columns = change.moment.columns
        footers = [one.shown.footer for one in change.slices if one.shown.footer is not None]
        in_files = {field.name: field for footer in footers for field in footer.schema.to_arrow_schema()}
        old = [] if before is None else json.loads(before.get("properties", {}).get(metadata.MAPPING, "[]"))
        mapping = name_mapping(columns, [*in_files.values(), *self.stored], old)
        return Shape(schema_fields(columns), mapping, self._partition(columns), change.moment.types)

    def _partition(self, columns: Sequence[MirrorColumn]) -> tuple[tuple[int, str, str, str], ...]:
        """Return the levels of a partition; none if a path does not give a value that Iceberg can keep."""
        visible = {column.stored: column for column in columns}
        key = self.config.key
        if not set(key.partition_fields) <= visible.keys() or key.times:
            return ()
        levels = [_level(one, visible[sources([one])[0]]) for one in key.partition_by]
        return tuple(levels) if all(kind in AVRO_OF for _, _, kind, _ in levels) else ()

    def _placed(self, partition: str, specs: tuple[Spec, Spec]) -> tuple[int, tuple[PartitionValue, ...]]:
        """Return the spec and the values of a partition; a path with an unclear value has no partition."""
        by_value, other = specs
        if not by_value.fields:
            return other.spec_id, ()
        values: Mapping[str, Any] = self.config.key.partition_values(partition, self.stored)
        key = self.config.key
        if not set(key.partition_columns) <= values.keys():
            return other.spec_id, ()
        levels = zip(key.partition_by, key.partition_columns, strict=True)
        return by_value.spec_id, tuple(_value(level, values[column]) for level, column in levels)

    def _restated(self, entry: Entry, specs: tuple[Spec, Spec]) -> Entry:
        spec_id, values = self._placed(entry.of[0], specs)
        return replace(entry, spec_id=spec_id, values=values)

    def _entries(self, one: Written, columns: Sequence[MirrorColumn], specs: tuple[Spec, Spec]) -> list[Entry]:
        key, base = one.shown.key, one.shown.base
        spec_id, values = self._placed(key.partition, specs)
        files: list[tuple[Stream, str, int, int]] = []
        if one.rows is not None:
            files.append(("rows", one.rows.path, one.rows.rows, one.rows.size))
        if one.dead is not None:
            files.append(("deletes", one.dead.path, len(one.shown.dead), one.dead.size))
        if base is not None:
            files.append(("base", base.path, base.rows, base.size))
        entries = [
            Entry(
                stream,
                path,
                (key.partition, key.file_id, key.files if place == 0 else None),
                rows,
                size,
                spec_id,
                values,
            )
            for place, (stream, path, rows, size) in enumerate(files)
        ]
        return [self._detailed(entry, one, columns) for entry in entries]

    def _detailed(self, entry: Entry, one: Written, columns: Sequence[MirrorColumn]) -> Entry:
        if entry.stream == "base" and one.shown.footer is not None:
            key = self.config.key
            first = [*key.partition_fields, *key.fields]
            return replace(entry, bounds=bounds_of(one.shown.footer, bounded(columns, first)))
        if entry.stream == "deletes" and one.dead is not None and one.shown.base is not None:
            if one.dead.blob is not None:
                return replace(entry, referenced=one.shown.base.path, blob=one.dead.blob)
            path = f"{self.root}/{one.shown.base.path}".encode()
            return replace(entry, referenced=one.shown.base.path, bounds=((_FILE_PATH_ID, path, path),))
        return entry

    def _manifests(
        self, planned: Plan, specs: Iterable[Spec], schema: Json, snapshot_id: int, sequence: int, name: str
    ) -> tuple[list[Manifest], list[Put]]:
        by_id = {spec.spec_id: spec for spec in specs}
        made: list[Manifest] = []
        puts: list[Put] = []
        for place, batch in enumerate(planned.made):
            path = f"{metadata.FOLDER}/{name}-m{place}.avro"
            spec = by_id[batch.spec_id]
            data = manifest_bytes(self.root, batch.entries, spec, schema, snapshot_id, self._version)
            puts.append(Put(path, data, durable="content"))
            entries = tuple(entry.settled(sequence, snapshot_id) for entry in batch.entries)
            made.append(Manifest(path, len(data), batch.stream, batch.spec_id, sequence, snapshot_id, entries))
        return made, puts


def _level(level: str | PartitionFunction, column: MirrorColumn) -> tuple[int, str, str, str]:
    kind = str(iceberg_type(column))
    if isinstance(level, str):
        return column.id, column.shown, kind, "identity"
    transform = level.name if level.width is None else f"{level.name}[{level.width}]"
    result = {"day": "date", "truncate": kind}.get(level.name, "int")
    return column.id, f"{column.shown}_{level.name}", result, transform


def _value(level: str | PartitionFunction, value: Any) -> PartitionValue:
    """Return Iceberg's value of a level: hours, months and years count from 1970."""
    if isinstance(level, str) or value is None or level.name in ("day", "bucket", "truncate"):
        return cast("PartitionValue", value)
    if level.name == "year":
        return int(value) - 1970
    year, month, *rest = map(int, value.split("-"))
    if level.name == "month":
        return (year - 1970) * 12 + month - 1
    return (date(year, month, rest[0]) - date(1970, 1, 1)).days * 24 + rest[1]


def _usable(found: Json | None) -> Json | None:
    """Return the head's metadata if the next can continue it; None for none, or a file without Iceberg's fields."""
    needed = {"schemas", "partition-specs", "last-column-id", "last-updated-ms"}
    return found if found is not None and needed <= found.keys() else None


def _totals(manifests: Iterable[Manifest]) -> dict[str, str]:
    entries = [entry for manifest in manifests for entry in manifest.entries]
    data = [entry for entry in entries if entry.stream != "deletes"]
    deletes = [entry for entry in entries if entry.stream == "deletes"]
    return {
        "total-data-files": str(len(data)), "total-records": str(sum(entry.rows for entry in data)),
        "total-files-size": str(sum(entry.own_size for entry in entries)), "total-delete-files": str(len(deletes)),
        "total-position-deletes": str(sum(entry.rows for entry in deletes)), "total-equality-deletes": "0",
    }  # fmt: skip


# --- the commit -------------------------------------------------------------------------------------------------------


def _published(number: int, document: Json, files: Sequence[Put], of_slices: Sequence[str]) -> Steps[Committed | None]:
    """Put the manifests, then the metadata if absent. Return the new objects, or None if another process was first.

    of_slices: paths of files that become durable before the metadata.
    """
    yield from put_all_surely(files)
    data = json.dumps(document, separators=(",", ":")).encode()
    path = metadata.metadata_path(number)
    is_first = yield from put_first(Put(path, data, after=[*of_slices, *(put.path for put in files)], decides=True))
    if not is_first or not (yield from _stands(number - 1)):
        for gone in [*(put.path for put in files), *([path] if is_first else [])]:
            yield Delete(gone)
        return None
    hint = yield from _point_at(number)
    return Committed(number, (*((put.path, len(put.data)) for put in files), (path, len(data)), *hint))


def _stands(number: int) -> Steps[bool]:
    """Return False if the metadata file before has expired: a process that slept put its file where no reader looks."""
    return number == 0 or (yield GetStat(metadata.metadata_path(number))) is not None


def _point_at(number: int) -> Steps[Objects]:
    """Make the hint name the newest metadata file, also after a process that died or was late."""
    puts: Objects = ()
    for _ in range(_HINT_TRIES):
        hint = yield Read(metadata.HINT)
        if hint is not None and hint.strip() == str(number).encode():
            return puts
        number = (yield from newest_number()) or number
        newest = str(number).encode()
        if hint is not None and hint.strip() == newest:
            return puts
        if hint is not None:
            yield Delete(metadata.HINT)
        if (yield Put(metadata.HINT, newest, durable=False)):
            puts = ((metadata.HINT, len(newest)),)
    return puts

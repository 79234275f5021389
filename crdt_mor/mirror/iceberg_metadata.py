"""Iceberg's table metadata, version 2 or 3, as a pure function of the mirror's head and a new snapshot.

A metadata file is ours if its property `crdt_mor.number` is the number in its name: another engine copies the property
into the file with the next number. Engines that drop a table delete its files unless `gc.enabled` is false.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from crdt_mor.mirror.iceberg_manifests import Manifest, Spec
from crdt_mor.mirror.iceberg_types import HIGHEST_ID, Json
from crdt_mor.mirror.refresh import AS_OF, TYPES, VERSION

FOLDER: Final = "metadata"
HINT: Final = f"{FOLDER}/version-hint.text"
MAIN: Final = "main"

NUMBER: Final = "crdt_mor.number"
TABLE: Final = "crdt_mor.table"
MAPPING: Final = "schema.name-mapping.default"

KEPT_COUNT: Final = 10
KEPT_MS: Final = 24 * 3600 * 1000
KEPT_MAX: Final = 20
"""A mirror keeps its newest 10 snapshots, or all of a day, up to 20. Each takes 0.7 KB."""

_NAME: Final = re.compile(r"metadata/v(\d{1,18})\.metadata\.json")
_PARTITION_IDS: Final = 999
_ALWAYS: Final[Mapping[str, str]] = {
    "gc.enabled": "false",
    "write.metadata.delete-after-commit.enabled": "false",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}


def metadata_path(number: int) -> str:
    return f"{FOLDER}/v{number}.metadata.json"


def number_of(path: str) -> int | None:
    """Return the number of one of our metadata files, or None."""
    found = _NAME.fullmatch(path)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns and partitions of a mirror, in Iceberg's words.

    Attributes:
        fields: of the schema.
        mapping: of names in files to field ids.
        partition: source id, name, Iceberg type and transform of each level; empty if the mirror has no partitions.
        types: see `Moment.types`.
    """

    fields: Sequence[Json]
    mapping: Sequence[Json]
    partition: tuple[tuple[int, str, str, str], ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowIds:
    """The ids of a snapshot's new rows, in version 3."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    snapshot_id: int
    manifest_list: str
    version: int
    as_of: str
    at_ms: int
    table_id: str
    totals: Mapping[str, str]
    row_ids: RowIds | None = None


def is_ours(metadata: Json, number: int) -> bool:
    current = snapshot_of(metadata)
    own = metadata.get("properties", {})
    return own.get(NUMBER) == str(number) and current is not None and VERSION in current.get("summary", {})


def snapshot_of(metadata: Json) -> Json | None:
    current = metadata.get("current-snapshot-id")
    return next((one for one in metadata.get("snapshots", ()) if one["snapshot-id"] == current), None)


def all_own(metadata: Json) -> list[Json]:
    return [one for one in metadata.get("snapshots", ()) if VERSION in one.get("summary", {})]


def own_snapshots(metadata: Json, table_id: str, root: str) -> list[Json]:
    """Return the snapshots of a mirror of this table at this place."""
    of_table = [one for one in all_own(metadata) if one["summary"].get(TABLE) == table_id]
    return [one for one in of_table if one["manifest-list"].startswith(f"{root}/")]


def next_row_ids(metadata: Json | None, manifests: Iterable[Manifest]) -> RowIds:
    first = 0 if metadata is None else int(metadata.get("next-row-id", 0))
    return RowIds(first, sum(manifest.unnumbered for manifest in manifests))


# --- schemas and specs ------------------------------------------------------------------------------------------------


def schema_of(metadata: Json | None, shape: Shape) -> Json:
    """Return the schema of these fields, by an id of its own if the metadata lacks it."""
    known = [] if metadata is None else metadata["schemas"]
    for schema in known:
        if schema["fields"] == shape.fields:
            return {"type": "struct", "schema-id": schema["schema-id"], "fields": list(shape.fields)}
    fresh = max((schema["schema-id"] for schema in known), default=-1) + 1
    return {"type": "struct", "schema-id": fresh, "fields": list(shape.fields)}


def specs_of(metadata: Json | None, shape: Shape) -> tuple[Spec, Spec]:
    """Return the spec of files with known partition values, and the spec of the others.

    A partition field keeps its name through renames of its column, unless another column has the name now.
    """
    none, columns = Spec(0), {field["name"]: field["id"] for field in shape.fields}
    if not shape.partition:
        return none, none
    known = {} if metadata is None else {spec["spec-id"]: spec["fields"] for spec in metadata["partition-specs"]}
    wanted = [(source, transform) for source, _, _, transform in shape.partition]
    same = (id_ for id_, fields in known.items() if [(one["source-id"], one["transform"]) for one in fields] == wanted)
    spec_id = next(same, max(known, default=0) + 1)
    first = _last_partition_id(metadata) + 1
    old = known.get(spec_id) or [
        {"field-id": first + place, "name": name} for place, (_, name, *_) in enumerate(shape.partition)
    ]
    fields = tuple(
        (source, one["field-id"], _free(one["name"], source, transform, columns), kind, transform)
        for one, (source, _, kind, transform) in zip(old, shape.partition, strict=True)
    )
    return Spec(spec_id, fields), none


def _free(name: str, source: int, transform: str, columns: Mapping[str, int]) -> str:
    """Return a name that no column has, except the source of an identity."""
    owner = source if transform == "identity" else None
    return name if columns.get(name, owner) == owner else _free(f"{name}_{source}", source, transform, columns)


def _last_partition_id(metadata: Json | None) -> int:
    return _PARTITION_IDS if metadata is None else int(metadata.get("last-partition-id", _PARTITION_IDS))


def _specs_json(metadata: Json | None, specs: Iterable[Spec]) -> list[Json]:
    made = {spec.spec_id: {"spec-id": spec.spec_id, "fields": spec.to_json()} for spec in specs}
    old = {} if metadata is None else {spec["spec-id"]: spec for spec in metadata["partition-specs"]}
    return [spec for _, spec in sorted({**old, **made}.items())]


# --- the next metadata ------------------------------------------------------------------------------------------------


def following(
    number: int,
    root: str,
    uuid: str,
    before: Json | None,
    shape: Shape,
    new: NewSnapshot,
    old: Sequence[Json],
    now_ms: int,
) -> Json:
    """Return the metadata with this number.

    Args:
        before: the head's metadata at this place.
        old: its snapshots that may stay.
        now_ms: decides which snapshots are old.
    """
    schema, (spec, none) = schema_of(before, shape), specs_of(before, shape)
    sequence = 1 if before is None else int(before.get("last-sequence-number", 0)) + 1
    at_ms = new.at_ms if before is None else max(new.at_ms, int(before["last-updated-ms"]) + 1)
    snapshots = [*kept(old, now_ms), _snapshot(new, sequence, at_ms, schema)]
    if len(snapshots) > 1:
        snapshots[-1]["parent-snapshot-id"] = snapshots[-2]["snapshot-id"]
    named = {one["schema-id"] for one in snapshots}
    schemas = [] if before is None else [one for one in before["schemas"] if one["schema-id"] in named]
    partitions = [0 if before is None else _last_partition_id(before), *(id_ for _, id_, *_ in spec.fields)]
    return {
        **_version_json(new.row_ids), "table-uuid": uuid, "location": root,
        "last-sequence-number": sequence, "last-updated-ms": at_ms,
        "last-column-id": HIGHEST_ID,
        "schemas": [*(one for one in schemas if one["schema-id"] != schema["schema-id"]), schema],
        "current-schema-id": schema["schema-id"],
        "partition-specs": _specs_json(before, {none, spec}), "default-spec-id": spec.spec_id,
        "last-partition-id": max(_PARTITION_IDS, *partitions),
        "sort-orders": [{"order-id": 0, "fields": []}], "default-sort-order-id": 0,
        "properties": _properties(number, shape, new),
        "current-snapshot-id": new.snapshot_id, "snapshots": snapshots,
        "snapshot-log": [{"timestamp-ms": one["timestamp-ms"], "snapshot-id": one["snapshot-id"]} for one in snapshots],
        "metadata-log": _metadata_log(root, number, before, snapshots),
        "refs": {MAIN: {"snapshot-id": new.snapshot_id, "type": "branch"}},
    }  # fmt: skip


def _version_json(row_ids: RowIds | None) -> Json:
    if row_ids is None:
        return {"format-version": 2}
    return {"format-version": 3, "next-row-id": row_ids.first + row_ids.count}


def kept(snapshots: Sequence[Json], now_ms: int) -> list[Json]:
    """Return the older snapshots that stay beside a new one."""
    young = [one for one in snapshots if one["timestamp-ms"] > now_ms - KEPT_MS][-(KEPT_MAX - 1) :]
    newest = list(snapshots[-(KEPT_COUNT - 1) :])
    return young if len(young) > len(newest) else newest


def _snapshot(new: NewSnapshot, sequence: int, at_ms: int, schema: Json) -> Json:
    rows = {} if new.row_ids is None else {"first-row-id": new.row_ids.first, "added-rows": new.row_ids.count}
    return {
        "snapshot-id": new.snapshot_id, "sequence-number": sequence, "timestamp-ms": at_ms,
        "manifest-list": new.manifest_list, "schema-id": schema["schema-id"],
        "summary": {
            "operation": "overwrite", VERSION: str(new.version), AS_OF: new.as_of, TABLE: new.table_id, **new.totals
        },
        **rows,
    }  # fmt: skip


def _properties(number: int, shape: Shape, new: NewSnapshot) -> dict[str, str]:
    return {
        **_ALWAYS, NUMBER: str(number), VERSION: str(new.version), AS_OF: new.as_of, TABLE: new.table_id,
        TYPES: json.dumps(shape.types), MAPPING: json.dumps(shape.mapping),
    }  # fmt: skip


def _metadata_log(root: str, number: int, before: Json | None, snapshots: Sequence[Json]) -> list[Json]:
    """Return the earlier metadata files whose current snapshot is kept."""
    if before is None:
        return []
    last = {"timestamp-ms": before["last-updated-ms"], "metadata-file": f"{root}/{metadata_path(number - 1)}"}
    since = snapshots[0]["timestamp-ms"]
    return [one for one in [*before.get("metadata-log", ()), last] if one["timestamp-ms"] >= since]

"""The commit that makes a catalog's entry show a mirror's newest metadata.

Entry and mirror may number schemas differently. Manifests name partition specs by number, so these must agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from crdt_mor.errors import InvalidInputError
from crdt_mor.mirror.iceberg_metadata import MAIN, NUMBER

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table.snapshots import Snapshot

TableMetadata = Any
"""Of version 2 or 3: pyiceberg's own name stands for all versions."""

ROW_IDS: Final = 3

Updates = tuple[Any, ...]


def _steps() -> Any:
    """Return pyiceberg's updates and requirements; type checkers know their parameters by other names."""
    from pyiceberg.table import update

    return update


def number_of(metadata: TableMetadata) -> int:
    """Return the number of the mirror's metadata file that an entry shows; 0 for another table."""
    return int(metadata.properties.get(NUMBER, "0"))


def updates(entry: TableMetadata, ours: TableMetadata, *, keeps_history: bool = True) -> Updates:
    """Return the updates that the entry lacks; none if it shows this metadata or a later one."""
    if number_of(entry) > number_of(ours):
        return ()
    added = _added(entry, ours)
    ids, schemas = _schemas(entry, ours, added)
    return (
        *_format(entry, ours),
        *schemas,
        *_specs(entry, ours),
        *_snapshots(entry, ours, added, ids),
        *(_removed(entry, ours) if keeps_history else ()),
        *_properties(entry, ours),
        *_location(entry, ours),
    )


def requirements(entry: TableMetadata, changes: Iterable[Any]) -> tuple[Any, ...]:
    """Return the conditions under which the updates of an entry are right."""
    steps = _steps()
    made = {change.action for change in changes}
    schema = [steps.AssertLastAssignedFieldId(last_assigned_field_id=entry.last_column_id)]
    spec = [steps.AssertLastAssignedPartitionId(last_assigned_partition_id=entry.last_partition_id)]
    return (
        steps.AssertTableUUID(uuid=entry.table_uuid),
        steps.AssertRefSnapshotId(ref=MAIN, snapshot_id=entry.current_snapshot_id),
        *(schema if "add-schema" in made else []),
        *(spec if "add-spec" in made else []),
    )


def _added(entry: TableMetadata, ours: TableMetadata) -> list[Snapshot]:
    """Return the snapshots to add: later ones, and the current one, in order."""
    known = {one.snapshot_id for one in entry.snapshots}
    new = [one for one in ours.snapshots if one.snapshot_id not in known and _fits(one, ours)]
    return [
        one
        for one in sorted(new, key=_sequence)
        if _sequence(one) > entry.last_sequence_number or one.snapshot_id == ours.current_snapshot_id
    ]


def _format(entry: TableMetadata, ours: TableMetadata) -> Updates:
    is_older = entry.format_version < ours.format_version
    return (_steps().UpgradeFormatVersionUpdate(format_version=ours.format_version),) if is_older else ()


def _fits(snapshot: Snapshot, ours: TableMetadata) -> bool:
    """Return False for a snapshot without row ids, which catalogs of version 3 refuse."""
    return ours.format_version < ROW_IDS or snapshot.first_row_id is not None


def _sequence(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0


def _schemas(entry: TableMetadata, ours: TableMetadata, added: Sequence[Snapshot]) -> tuple[dict[int, int], Updates]:
    """Return the entry's numbers of the needed schemas by the mirror's, and the updates."""
    steps = _steps()
    needed = {one.schema_id for one in added} | {ours.current_schema_id}
    known, made = list(entry.schemas), []
    ids: dict[int, int] = {}
    for schema in (one for one in ours.schemas if one.schema_id in needed):
        same = next((one for one in known if one == schema), None)
        if same is None:
            number = max((one.schema_id for one in known), default=-1) + 1
            same = schema.model_copy(update={"schema_id": number})
            known.append(same)
            made.append(steps.AddSchemaUpdate(schema=same))
        ids[schema.schema_id] = same.schema_id
    current = ids[ours.current_schema_id]
    moved = [steps.SetCurrentSchemaUpdate(schema_id=current)] if current != entry.current_schema_id else []
    return ids, (*made, *moved)


def _specs(entry: TableMetadata, ours: TableMetadata) -> Updates:
    steps = _steps()
    known = {spec.spec_id: spec for spec in entry.partition_specs}
    new = sorted((one for one in ours.partition_specs if one.spec_id not in known), key=lambda one: one.spec_id)
    follow = [max(known, default=-1) + place for place in range(1, len(new) + 1)]
    both = [spec for spec in ours.partition_specs if spec.spec_id in known]
    if follow != [spec.spec_id for spec in new] or any(_parts(spec) != _parts(known[spec.spec_id]) for spec in both):
        raise InvalidInputError(
            "another engine changed the partitions of the catalog's table: drop the entry without its files, then "
            f"register again. uuid={entry.table_uuid} entry={sorted(known)} "
            f"mirror={[one.spec_id for one in ours.partition_specs]}"
        )
    made = [steps.AddPartitionSpecUpdate(spec=spec) for spec in new]
    if ours.default_spec_id != entry.default_spec_id:
        made.append(steps.SetDefaultSpecUpdate(spec_id=ours.default_spec_id))
    return tuple(made)


def _parts(spec: PartitionSpec) -> list[tuple[int, int, str]]:
    return [(one.source_id, one.field_id, str(one.transform)) for one in spec.fields]


def _snapshots(
    entry: TableMetadata, ours: TableMetadata, added: Sequence[Snapshot], schema_ids: Mapping[int, int]
) -> Updates:
    steps = _steps()
    known, last_ms, last = (
        {one.snapshot_id for one in entry.snapshots},
        entry.last_updated_ms,
        entry.last_sequence_number,
    )
    next_row: int = getattr(entry, "next_row_id", None) or 0
    made: list[Any] = []
    for snapshot in added:
        follows = snapshot.parent_snapshot_id in known and _sequence(snapshot) > last
        # A catalog refuses a snapshot that is older than the entry's last change, unless it has no parent.
        last_ms, last = max(snapshot.timestamp_ms, last_ms + 1), max(last, _sequence(snapshot))
        changes = {
            "parent_snapshot_id": snapshot.parent_snapshot_id if follows else None,
            "timestamp_ms": last_ms,
            "schema_id": None if snapshot.schema_id is None else schema_ids[snapshot.schema_id],
        }
        if snapshot.first_row_id is not None:  # another engine's rows may have ids in the entry
            changes["first_row_id"] = max(snapshot.first_row_id, next_row)
            next_row = changes["first_row_id"] + (snapshot.added_rows or 0)
        made.append(steps.AddSnapshotUpdate(snapshot=snapshot.model_copy(update=changes)))
        known.add(snapshot.snapshot_id)
    current = ours.current_snapshot_id
    if current is not None and current != entry.current_snapshot_id:
        made.append(steps.SetSnapshotRefUpdate(ref_name=MAIN, type="branch", snapshot_id=current))
    return tuple(made)


def _removed(entry: TableMetadata, ours: TableMetadata) -> Updates:
    kept = {one.snapshot_id for one in ours.snapshots}
    gone = [one.snapshot_id for one in entry.snapshots if one.snapshot_id not in kept]
    return (_steps().RemoveSnapshotsUpdate(snapshot_ids=gone),) if gone else ()


def _location(entry: TableMetadata, ours: TableMetadata) -> Updates:
    return (_steps().SetLocationUpdate(location=ours.location),) if entry.location != ours.location else ()


def _properties(entry: TableMetadata, ours: TableMetadata) -> Updates:
    steps = _steps()
    changed = {name: text for name, text in ours.properties.items() if entry.properties.get(name) != text}
    return (steps.SetPropertiesUpdate(updates=changed),) if changed else ()

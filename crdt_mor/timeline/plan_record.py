"""A frozen plan as Hudi's compaction plan record, for `b.compaction.requested`."""

from __future__ import annotations

from crdt_mor.format.commit import CompactionOperation, CompactionPlanRecord, encode_compaction_plan
from crdt_mor.model.names import OWN_KEY
from crdt_mor.model.plans import CompactionPlan, GroupInput


def encode_plan_record(plan: CompactionPlan) -> bytes:
    """Avro bytes. Hudi opens every pending plan, and hides nothing that the plan does not name."""
    operations = tuple(_operation(group) for group in plan.groups)
    return encode_compaction_plan(CompactionPlanRecord(operations, extra={OWN_KEY: "1"}))


def _operation(group: GroupInput) -> CompactionOperation:
    logs = tuple(str(file.name) for file in group.logs)
    base_instant = (group.base or group.logs[0]).name.instant
    return CompactionOperation(
        base_instant=base_instant,
        delta_files=logs,
        data_file=str(group.base.name) if group.base else None,
        file_id=group.file_id,
        partition_path=group.partition,
    )

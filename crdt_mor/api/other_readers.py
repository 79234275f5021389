"""What other engines see of a table: one answer for each way in which a table declares itself to Hudi."""

from __future__ import annotations

from crdt_mor.events.session import Session
from crdt_mor.model.instant import EPOCH
from crdt_mor.read.snapshot import Snapshot


def other_readers(session: Session) -> str:
    """What Hudi's Spark reader and hudi-rs make of this table, with the log files that are unmerged now."""
    merge = session.config.merge
    if merge.hudi_commit_time:
        return "Hudi's own table: every engine sees these rows; it is compacted here only while no write is pending"
    if merge.custom:
        if log_files := sum(len(slice_.logs) for slice_ in Snapshot.seal(session, session.views.sealed()).slices):
            return (
                f"no other engine while {log_files} log files are unmerged: Hudi's readers do not know this merge and "
                "refuse them; `crdt-mor compact` first, or read the base files alone (read-optimized)"
            )
        return "fully compacted: Hudi's Spark reader and hudi-rs see these rows"
    if merge.kind == "ordering":
        return (
            "Hudi's Spark reader and hudi-rs see these rows; until a file group is compacted with nothing pending, not "
            f"for exact ties of {merge.ordering} and for keys with a plain delete"
        )
    is_handed_over = session.views.sealed().handed_over != EPOCH
    writers = "may write it until it is taken back" if is_handed_over else "may, too, once it is handed over"
    return (
        f"Hudi's Spark reader and hudi-rs see these rows at every moment; Hudi's MERGE INTO and data source {writers}"
    )

"""Describe how other engines read a table, for each way in which a table declares itself to Hudi."""

from __future__ import annotations

from crdt_mor.events.session import Session
from crdt_mor.model.instant import EPOCH
from crdt_mor.read.snapshot import Snapshot


def other_readers(session: Session) -> str:
    expires = "" if session.config.merge.expiry is None else "; they also see expired rows until a compaction"
    return f"{_readers(session)}{expires}"


def _readers(session: Session) -> str:
    merge = session.config.merge
    if merge.hudi_commit_time:
        return "Hudi made this table: every engine reads its rows; crdt-mor compacts it only while no write is pending"
    if merge.custom:
        if log_files := sum(len(slice_.logs) for slice_ in Snapshot.seal(session, session.views.sealed()).slices):
            return (
                f"no other engine while {log_files} log files are unmerged: Hudi's readers refuse this table's merge; "
                "run `crdt-mor compact` first, or read only the base files (read-optimized)"
            )
        return "fully compacted: Hudi's Spark reader and hudi-rs see these rows"
    if merge.kind == "ordering":
        return (
            "Hudi's Spark reader and hudi-rs see these rows, except exact ties of "
            f"{merge.ordering} and keys with a plain delete until a compaction with nothing pending"
        )
    is_handed_over = session.views.sealed().handed_over != EPOCH
    writers = "may write until takeback" if is_handed_over else "may write after a handover"
    return (
        f"Hudi's Spark reader and hudi-rs see these rows at every moment; Hudi's MERGE INTO and data source {writers}"
    )

"""What other engines see of a table: one answer for each way in which a table declares itself to Hudi."""

from __future__ import annotations

import crdt_mor as mor


def other_readers(table: mor.Table, log_files: int) -> str:
    """What Hudi's Spark reader and hudi-rs make of this table while it has this many unmerged log files."""
    merge = table.config.merge
    if merge.hudi_commit_time:
        return "Hudi's own table: every engine sees these rows; it is compacted here only while no write is pending"
    if merge.custom:
        if log_files:
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
    writers = "may write it until it is taken back" if table.handed_over else "may, too, once it is handed over"
    return (
        f"Hudi's Spark reader and hudi-rs see these rows at every moment; Hudi's MERGE INTO and data source {writers}"
    )

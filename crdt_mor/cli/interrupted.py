"""The state after Ctrl-C in each command, and what a rerun does."""

from __future__ import annotations

from typing import Final

_READS: Final = "The command only reads, and changed nothing. Run it again to start over"
_WRITES: Final = (
    "The write is rolled back, unless it was committed a moment before: see crdt-mor history. A rerun with "
    "the same --token is counted once"
)
_SETS: Final = "The change is either made or not: look at crdt-mor show, then run the command again if it is missing"
_CONTINUES: Final = "Readers and writers are not affected. Run the same command again to finish the work"

LEFT: Final = {
    **dict.fromkeys(
        (
            "cat", "sql", "count", "diff", "why", "ui", "list", "show", "schema", "history", "timeline", "files",
            "savepoints", "readers", "laws", "simulate", "verify", "metrics", "check-store", "doctor",
        ),
        _READS,
    ),
    "changes": (
        "The command only reads. With --checkpoint or --reader, a rerun continues after the last window that was "
        "printed"
    ),
    **dict.fromkeys(
        (
            "append", "upsert", "update", "delete", "move", "overwrite", "delete-partitions", "truncate",
        ),
        _WRITES,
    ),
    **dict.fromkeys(
        ("create", "alter", "properties", "rules", "savepoint", "drop-savepoint", "forget-reader"), _SETS
    ),
    **dict.fromkeys(
        ("compact", "clean", "archive", "maintain", "drop-metadata-table", "repair", "rollback", "cancel-migration"),
        _CONTINUES,
    ),
    "add-columns": (
        "The columns are there, or not: see crdt-mor schema. Existing rows may lack a default; crdt-mor update sets it"
    ),
    "demo": "Delete its folder or address, which is named above. A rerun starts over elsewhere",
    "create-from": "There is no table, unless the load had just ended. Run the same command again to start over",
    "cdc": "All printed commits stay. Run the same command again to continue after the last commit",
    "copy": (
        "The copy cannot be read yet, or still shows its earlier moment. Run the same command again to copy the "
        "missing objects"
    ),
    "migrate": (
        "The migration is still under way, and writers may be turned away until it ends. Run the same command again to "
        "continue, or crdt-mor cancel-migration"
    ),
    "mirror": "The mirror shows its earlier version, or already the newest. Run the same command again",
    "register": "The catalog's entry shows its earlier version, or already the newest. Run the same command again",
    "restore": "The table may be restored already: crdt-mor history shows it. Run the same command again to finish",
    "drop": "The table is whole, or nobody can read it any more. Run the same command again to finish the removal",
    "erase": "The erasure is unfinished: files may still hold the values. Run the same command again to finish it",
    **dict.fromkeys(
        ("handover", "takeback"), "It may be half done. Run the same command again before Hudi or others write"
    ),
}  # fmt: skip
"""By command."""


def left(command: str) -> str:
    """Return the message for an interrupted command."""
    return f"{command} was interrupted. {LEFT[command]}"

"""Commands and options of other systems, and their counterparts here."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

from crdt_mor.errors import page

COMMANDS: Final = {
    "merge": f"MERGE is only in Python: Table.merge, or merge of crdt_mor.readers.spark. See {page('updating')}",
    **dict.fromkeys(("insert", "write"), "Use append or upsert"),
    **dict.fromkeys(("select", "query"), "Use sql"),
    **dict.fromkeys(("read", "scan", "rows", "print"), "Use cat, with --where and --columns"),
    "head": "Use cat --limit",
    "tail": "Use changes --follow for new rows",
    **dict.fromkeys(("remove", "rm"), "Use delete for rows, or drop for a table"),
    **dict.fromkeys(("vacuum", "expire"), "Use clean"),
    **dict.fromkeys(("optimize", "compaction"), "Use compact, or maintain for all due services"),
    **dict.fromkeys(("describe", "detail", "info", "stats", "status"), "Use show, or schema for the columns"),
    "ls": "Use list for tables, or files for the files of a table",
    "log": "Use history, or timeline",
    **dict.fromkeys(("convert", "import", "load"), "Use create-from"),
    **dict.fromkeys(("backup", "clone"), "Use copy"),
    "export": "Use cat --format parquet > FILE, or copy for a whole table",
    **dict.fromkeys(("fsck", "check"), "Use verify"),
    **dict.fromkeys(("serve", "web", "dashboard"), "Use ui"),
}
"""The advice for an unknown command."""

DESTROYING: Final = frozenset(
    (
        "cancel-migration", "clean", "delete", "delete-partitions", "drop", "drop-metadata-table", "drop-savepoint",
        "erase", "forget-reader", "overwrite", "restore", "rollback", "truncate",
    )
)  # fmt: skip
"""Commands that remove data or history are never suggested."""

OPTIONS: Final = {"--filter": "--where", "--key": "--keys"}
"""Replacements for unknown options, if the command has them."""


def unknown(word: str, commands: Collection[str]) -> str:
    """Return the error for an unknown command, with safe commands of similar names."""
    if instead := COMMANDS.get(word.lower()):
        return f"No such command {word!r}. {instead}."
    near = get_close_matches(word.lower(), [name for name in commands if name not in DESTROYING])
    asked = f"Did you mean {', '.join(map(repr, near))}?" if near else "crdt-mor --help lists all commands."
    return f"No such command {word!r}. {asked}"

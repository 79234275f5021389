"""Commands and options of other systems, and the ones to use here instead."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

COMMANDS: Final = {
    "merge": (
        "A merge has clauses in an order, and is Python's: Table.merge, or merge of crdt_mor.readers.spark "
        "(docs/updating.md)"
    ),
    **dict.fromkeys(("insert", "write"), "Say append or upsert"),
    **dict.fromkeys(("sql", "select", "read", "query"), "Say cat, with --where and --columns"),
    "head": "Say cat --limit",
    **dict.fromkeys(("vacuum", "expire"), "Say clean"),
    **dict.fromkeys(("optimize", "compaction"), "Say compact, or maintain for all upkeep that is due"),
    **dict.fromkeys(("describe", "detail", "info", "stats"), "Say show, or schema for the columns"),
    **dict.fromkeys(("ls", "list"), "Say files, or show; no command lists tables"),
    "log": "Say history, or timeline",
    **dict.fromkeys(("convert", "import"), "Say create-from"),
    **dict.fromkeys(("backup", "clone"), "Say copy"),
    "export": "Say cat --format parquet > FILE, or copy for a whole table",
    **dict.fromkeys(("fsck", "check"), "Say verify"),
    "drop": "No command removes a table: remove its folder once no process uses it",
    **dict.fromkeys(("serve", "web", "dashboard"), "Say ui"),
}
"""What to say instead of a word that is no command."""

DESTROYING: Final = frozenset(
    (
        "cancel-migration", "clean", "delete", "delete-partitions", "drop-metadata-table", "drop-savepoint", "erase",
        "overwrite", "restore", "rollback", "truncate",
    )
)  # fmt: skip
"""Commands that remove rows, files or history: never suggested for a misspelt word."""

OPTIONS: Final = {"--filter": "--where", "--key": "--keys"}
"""What to say instead of an option, to a command that has the other one."""


def unknown(word: str, commands: Collection[str]) -> str:
    """Return the message for a word that is no command, with the safe commands that it may be a misspelling of."""
    if instead := COMMANDS.get(word.lower()):
        return f"No such command {word!r}. {instead}."
    near = get_close_matches(word.lower(), [name for name in commands if name not in DESTROYING])
    asked = f"Did you mean {', '.join(map(repr, near))}?" if near else "crdt-mor --help lists all commands."
    return f"No such command {word!r}. {asked}"

"""Commands and options that people type by the names of other systems, and what to say here instead."""

from __future__ import annotations

from typing import Final

COMMANDS: Final = {
    "merge": (
        "A merge has clauses in an order, and is Python's: Table.merge, or merge of crdt_mor.readers.spark "
        "(docs/updating.md)"
    ),
    **dict.fromkeys(("insert", "write"), "Say append, upsert, delete or overwrite"),
    **dict.fromkeys(("sql", "select", "read", "query"), "Say cat, with --where and --columns"),
    "head": "Say cat --limit",
    **dict.fromkeys(("vacuum", "expire"), "Say clean"),
    **dict.fromkeys(("optimize", "compaction"), "Say compact, or maintain for all upkeep that is due"),
    **dict.fromkeys(("describe", "detail", "info"), "Say show, or schema for the columns"),
    **dict.fromkeys(("ls", "list"), "Say files, or show; no command lists tables"),
    "log": "Say history, or timeline",
    **dict.fromkeys(("convert", "import"), "Say create-from"),
}
"""What to say instead of a word that is no command."""

OPTIONS: Final = {"--filter": "--where", "--key": "--keys"}
"""What to say instead of an option, to a command that has the other one."""

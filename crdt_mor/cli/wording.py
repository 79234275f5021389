"""Translate messages of the library from Python calls to commands and options.

    table.maintenance.roll_back("2026...")   ->  crdt-mor rollback URI 2026...
    exist_ok=True, columns=["a", "b"]        ->  --exist-ok, --columns a,b

The values at the end of a message, `name=value`, stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

FIRST_FACT: Final = re.compile(r"(?<=[.:]) (?=[a-z_]\w*=)")
"""The start of a message's values."""

_COMMANDS: Final = {
    "roll_back": "rollback", "create_from": "create-from", "cancel_migration": "cancel-migration",
    "drop_metadata_table": "drop-metadata-table", "delete_partitions": "delete-partitions",
    "set_properties": "properties", "forget_reader": "forget-reader",
    "drop_savepoint": "drop-savepoint", "drop_rules": "rules", "add_rules": "rules",
    **{
        name: name
        for name in (
            "alter", "archive", "clean", "compact", "copy", "count", "diff", "erase", "handover", "history", "maintain",
            "migrate", "move", "properties", "restore", "savepoint", "savepoints", "takeback", "truncate",
            "verify", "why",
        )
    },
}  # fmt: skip
"""Methods with a command."""

_PHRASES: Final = (
    (r"import [\w.]+ first, or allow it: .*?(--payloads [\w.]+) on the command line, \.option\([^)]*\) in Spark,",
     r"allow it with \1"),
    (r",? ?Table\.create\(\.\.\.\)\.append\(Table\(\.\.\.\)\.scan\(\)\)",
     " with crdt-mor cat URI --format parquet > rows.parquet and crdt-mor create-from NEW rows.parquet"),
    (r"Table\.create_from(\([^)]*\))?", "crdt-mor create-from"),
    (r"Table\.create\b(\([^)]*\))?(?: (?:and|or) crdt-mor create\b)?", "crdt-mor create"),
    (r"\blist_tables\b", "crdt-mor list"),
    (r"(a date like [\d-]+ \(UTC without a zone\))", r"\1, an age like 12h or 7d"),
    (r"merge=PartialUpdate\(\), or with payloads, PartialUpdate\(columns=\{\.\.\.\}\)",
     "--merge partial_update, and a --merge for each payload"),
    (r"merge=PartialUpdate\(\)", "--merge partial_update"),
    (r"\badd_rules and drop_rules\b", "crdt-mor rules URI"),
    (r"""\bdrop_rules\((['"])(\w+) (.+)\1\)""", r'crdt-mor rules URI --drop "\2:\3"'),
    (r"PartialUpdate\(nulls='keep'\)", "partial_update?nulls=keep"),
    (r"\bTable\([^)]*\)\.upsert\(\.\.\.\)", "crdt-mor upsert"),
    (r"pass Table\([^)]*\) instead", "use crdt-mor copy or crdt-mor migrate"),
    (r"\bTable\([^)]*\)", "crdt-mor show URI"),
    (r"(?:table\.)?inspect\.pending\(\)", "crdt-mor timeline URI --pending"),
    (r"(?:table\.)?inspect\.timeline\(\)", "crdt-mor timeline URI"),
    (r"(?:table\.)?inspect\.files\(\)", "crdt-mor files URI"),
    (r"(?:table\.)?inspect\.files\(as_of\)", "crdt-mor files URI --as-of T"),
    (r"(?:table\.)?inspect\.readers\(\)", "crdt-mor readers URI"),
    (r"cancel_migration\(removed=True\)", "crdt-mor cancel-migration URI --removed"),
    (r", or crdt-mor (takeback|compact|restore)\b|, (?:Table|table)\.maintenance\.restore", ""),
    (r"; and open the table again after each Hudi commit[^.:]*", ""),
    (r", both in one transaction\(\)|, or with a merge that sets the column|, or pass opening=[^.]*\.{3}\)[^.]*", ""),
    (r"schema=\{[^}]*\}(?: or pa\.\w+\([^)]*\))?", "--schema FILE"),
    (r"\berase\(\.\.\., wait=timedelta\(minutes=(\d+)\)\)", r"crdt-mor erase with --wait \1m"),
    (r"wait=timedelta\(minutes=(\d+)\)", r"--wait \1m"),
    (r"\b(delete|update|upsert|append)\(\.\.\., (\w+=\w+)\)", r"crdt-mor \1 with \2"),
    (r"\b(delete|update|upsert|append|merge)\(\.\.\.\)", r"crdt-mor \1"),
)  # fmt: skip
"""Python phrases and their replacements, applied in order."""

_CALL: Final = re.compile(r"(?:\btable\.)?\bmaintenance\.(\w+)(?:\(([^()]*)\))?|(?:\btable\.)?\b(\w+)\(([^()]*)\)")
_PARAMETER: Final = re.compile(r'\b([a-z]\w*)=(True|False|"(\w+)"|\[[^\]]*\]|\.\.\.|…)')


def in_options(text: str, parameters: Collection[str]) -> str:
    """Translate a message. `exist_ok=True` becomes `--exist-ok` if the command has this parameter."""
    advice, *facts = FIRST_FACT.split(text, maxsplit=1)
    for pattern, said in _PHRASES:
        advice = re.sub(pattern, said, advice)
    advice = _CALL.sub(_command, advice)
    return " ".join([_PARAMETER.sub(lambda found: _option(found, parameters), advice), *facts])


def _command(found: re.Match[str]) -> str:
    name, arguments = found[1] or found[3], found[2] or found[4] or ""
    if name not in _COMMANDS:
        return found[0]
    value = arguments.strip("\"'. ")
    return f"crdt-mor {_COMMANDS[name]} URI" + (f" {value}" if value.isalnum() else "")


def _option(found: re.Match[str], parameters: Collection[str]) -> str:
    name, value, word = found.groups()
    if name not in parameters:
        return found[0]
    option = f"--{'no-' if value == 'False' else ''}{name.replace('_', '-')}"
    return option if word is None else f"{option} {word}"

"""Messages that name calls of Python, in the words of the command line: `Table.create` is `crdt-mor create` there."""

from __future__ import annotations

import re
from typing import Final

_COPY: Final = (
    "crdt-mor create NEW, then crdt-mor cat OLD --format parquet > rows.parquet and crdt-mor append NEW rows.parquet"
)

_CALLS: Final = tuple(
    (re.compile(call), command)
    for call, command in (
        (r"Table\.create\(\.\.\.\)\.append\(Table\.open\(\.\.\.\)\.scan\(\)\)", _COPY),
        (r"\bTable\.create and crdt-mor create take it", "crdt-mor create takes it"),
        (r"(?:\bcrdt_mor\.)?\bTable\.create_from\b(?:\([^()]*\))?", "crdt-mor create-from"),
        (r"(?:\bcrdt_mor\.)?\bTable\.create\b(?:\([^()]*\))?", "crdt-mor create"),
        (r"\berase\(\.\.\., wait=timedelta\([^()]*\)\)", "--wait 10m"),
        (r"\bwait=timedelta\([^()]*\)", "--wait 10m"),
        (r"\b(?:table\.)?maintenance\.roll_back\('(\d+)'\)", r"crdt-mor rollback TABLE \1"),
        (r"\b(?:table\.)?maintenance\.roll_back\(instant\)", "crdt-mor rollback TABLE INSTANT"),
        (r"\b(?:table\.)?maintenance\.(compact|clean|archive|maintain|restore|erase|migrate|takeback)\([^()]*\)",
         r"crdt-mor \1"),
        (r"\b(?:table\.)?inspect\.(timeline|files)\(\)", r"crdt-mor \1"),
        (r"\b(?:table\.)?inspect\.(?:pending|migration)\(\)", "crdt-mor show TABLE"),
        (r"transaction\(partitions=\[\.\.\.\]\) or plan_write\(\.\.\., partitions=\[\.\.\.\]\), or columns=\[\.\.\.\],",
         "by its partitions or its columns,"),
        (r"\b(crdt-mor [a-z-]+), (?:or|and) \1\b", r"\1"),
    )
)  # fmt: skip
"""The calls that messages name, and what a user of the command line types. A message may name both."""


def in_commands(text: str) -> str:
    """A message that names calls of Python, with commands instead."""
    for call, command in _CALLS:
        text = call.sub(command, text)
    return text

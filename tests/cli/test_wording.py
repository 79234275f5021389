"""The command line prints the library's messages in its own words: no call and no argument of Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import crdt_mor
from crdt_mor.cli.wording import FIRST_FACT, in_options
from crdt_mor.errors import page
from tests.parsed import nodes, parsed

ROOT = Path(crdt_mor.__file__).parent
OPTIONS = (
    "uri", "keys", "where", "columns", "partitions", "partition_by", "cluster_by", "ordering", "exist_ok", "update",
    "plain", "wait", "deep", "removed", "schema_mode", "validate", "to", "default",
)  # fmt: skip
PYTHON_ALONE = {
    "api/create.py", "api/data.py", "api/job.py", "api/maintenance.py", "api/maintenance_arguments.py",
    "api/maintenance_plans.py", "api/merge_into.py", "api/near_names.py", "api/rows.py", "api/table.py",
    "api/transaction.py",
    "api/update_parts.py", "api/doctor.py", "api/files.py", "api/reading.py", "api/statements.py", "model/policies.py",
    "events/own_blocks.py", "log/paths.py", "read/sql_literals.py", "columns/arrow_input.py",
    "columns/casts.py", "ground/forks.py",
    "merge/payload.py", "model/authors.py", "model/merge_spec.py", "model/partition_functions.py",
    "read/assignments.py", "read/conditions.py",
    "read/filter_errors.py", "store/handed_stores.py", "write/declaring.py", "write/held.py", "write/merge_into.py",
    "write/statements.py", "write/update.py", "write/new_values.py", "api/alteration.py", "events/write.py",
}  # fmt: skip
"""Modules whose calls in messages are of Python's own features, or of values that the command line does not take."""


def _messages(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of several words that a module holds, but its docstrings; a value is `0`."""
    passed: set[ast.AST] = set()
    for node in nodes(tree):
        if isinstance(node, ast.Expr):
            passed.add(node.value)
        if node in passed:
            continue
        if isinstance(node, ast.JoinedStr):
            passed.update(ast.walk(node))
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


ELSEWHERE = ("cli/", "laws/", "payloads/", "readers/", "store/", "testing/", "telemetry.py", "__")
"""Rooms whose messages name Python alone, or are in the words of the command line already."""

_PYTHON = re.compile(
    r"(?<!\.)\b(?:table|Table|maintenance|inspect)\.(?!md\b)\w+|\b[a-z_]+\([^ )]*\)"
    r"|PartialUpdate\(|=True|=False|timedelta"
)


def test_messages_of_the_library_are_in_words_of_the_command_line() -> None:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name in PYTHON_ALONE or name.startswith(ELSEWHERE):
            continue
        for message in _messages(parsed(path)):
            if message.lstrip().startswith("select "):
                continue  # a statement for PostgreSQL
            advice = FIRST_FACT.split(in_options(message, OPTIONS), maxsplit=1)[0]
            if len(message) > 40 and (left := _PYTHON.search(advice)):
                found.append(f"{name}: {left[0]} in {advice}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("create it with Table.create. path=t", "create it with crdt-mor create. path=t"),
        ("give them up with table.maintenance.roll_back, then", "give them up with crdt-mor rollback URI, then"),
        (f"see {page('maintenance')}", f"see {page('maintenance')}"),
        ("table.maintenance.savepoints() lists them", "crdt-mor savepoints URI lists them"),
        ('end with maintenance.roll_back("20261128211814868")', "end with crdt-mor rollback URI 20261128211814868"),
        ("pass wait=timedelta(minutes=10). wait=timedelta(1)", "pass --wait 10m. wait=timedelta(1)"),
        (
            "copy it, Table.create(...).append(Table(...).scan())",
            "copy it with crdt-mor cat URI --format parquet > rows.parquet and crdt-mor create-from NEW rows.parquet",
        ),
        ("write to it with Table(uri).upsert(...). path=t", "write to it with crdt-mor upsert. path=t"),
        ("pass it to Table.create or crdt-mor create, or so", "pass it to crdt-mor create, or so"),
        ("or with erase(..., wait=timedelta(minutes=10))", "or with crdt-mor erase with --wait 10m"),
        ("make it with merge=PartialUpdate(). columns=['a']", "make it with --merge partial_update. columns=['a']"),
        (
            "with merge=PartialUpdate(), or with payloads, PartialUpdate(columns={...}). missing=['v']",
            "with --merge partial_update, and a --merge for each payload. missing=['v']",
        ),
        ("it is one: pass Table('t') instead. path=t", "it is one: use crdt-mor copy or crdt-mor migrate. path=t"),
        ("call cancel_migration(removed=True)", "call crdt-mor cancel-migration URI --removed"),
        ("delete such keys first, delete(..., plain=True)", "delete such keys first, crdt-mor delete with --plain"),
        ("move it on with update=True", "move it on with --update"),
        ("one of a frame, keys=[...] and where=...", "one of a frame, --keys and --where"),
        ("a function such as ABS(x) stays, and f(x) too", "a function such as ABS(x) stays, and f(x) too"),
        ("leave it out, or use truncate() for all rows.", "leave it out, or use crdt-mor truncate URI for all rows."),
        ("upsert it with its new key, both in one transaction(). a=1", "upsert it with its new key. a=1"),
        ("run it again, or pass opening=Opening(writer_expiry=...) with a shorter time. a=1", "run it again. a=1"),
        ("move rows, or with a merge that sets the column. a=1", "move rows. a=1"),
        ("change its rules with add_rules and drop_rules. a=1", "change its rules with crdt-mor rules URI. a=1"),
        (
            "drop the rule first, drop_rules('check positive'). key={'id': 1}",
            "drop the rule first, crdt-mor rules URI --drop \"check:positive\". key={'id': 1}",
        ),
    ],
)  # fmt: skip
def test_in_options_names_commands_and_options(message: str, said: str) -> None:
    assert in_options(message, OPTIONS) == said

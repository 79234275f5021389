"""`crdt-mor verify URI`: whether every row of a table can be read, and is where a write would look for it."""

from __future__ import annotations

from dataclasses import asdict

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.failures import BROKEN
from crdt_mor.cli.options import Form, Uri
from crdt_mor.cli.render import Output


def verify(uri: Uri, output: Form = Output.text) -> None:
    """Read every row that a table shows, and say which cannot be read or would be written elsewhere; exit code 3 then.

    Keys that are in several partitions are counted, and are no damage. Nothing is written.

    Example: crdt-mor verify events
    """
    found = inputs.opened(uri).verify()
    if output is Output.json:
        render.document({**asdict(found), "sound": found.is_sound})
    else:
        _say(found)
    if not found.is_sound:
        raise typer.Exit(BROKEN)


def _say(found: mor.Verified) -> None:
    render.facts({"rows": found.rows, "file groups": found.file_groups, "version": found.version})
    for finding in found.findings:
        where = f"{finding.partition}/{finding.file_group}".lstrip("/")
        many = "" if finding.rows is None else f", {finding.rows:,} row{'s' * (finding.rows != 1)}"
        render.note(f"{finding.check}: {where}{many}: {finding.said}")
    if found.keys_in_several_partitions:
        some = ", ".join(map(repr, found.some_keys))
        render.note(
            f"keys in several partitions: {found.keys_in_several_partitions:,}, of which readers show each row: bring "
            f"them together with crdt-mor move, or delete one. keys={some}"
        )
    if found.is_sound:
        render.note("every row that the table shows was read, and is where a write of its key would look for it")

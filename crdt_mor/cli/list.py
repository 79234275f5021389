"""`crdt-mor list`."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import render
from crdt_mor.cli.watching import listed, say_left_off
from crdt_mor.cli.wording import in_options
from crdt_mor.model.policies import words_of_bytes


def list(  # noqa: A001  the command's name
    address: Annotated[str, typer.Argument(metavar="PLACE", show_default=False)],
) -> None:
    """List the tables below a place, with state, size and last commit.

    No row is read, and no table's folder is listed. Hidden folders and partitions are skipped.

    Example: crdt-mor list lake

    Args:
        address: A folder, s3://bucket/path, …
    """
    found = listed(address)
    tables = [replace(one, reason=in_options(one.reason, [])) for one in found.tables]
    if render.is_json():
        render.lines(map(asdict, tables))
    else:
        columns = ["table", "state", "version", "last commit", "files", "logs", "size"]
        render.table(columns, map(_for_people, tables), ["version", "files", "logs", "size"], ["table", "state"])
        if not tables:
            render.note(f"no tables at or below this place. path={address}")
        for one in tables:
            if one.reason:
                render.note(f"{one.uri}: {one.reason}")
    say_left_off(address, found)


def _for_people(one: mor.results.ListedTable) -> tuple[object, ...]:
    committed = "" if one.committed is None else f"{one.committed:%Y-%m-%d %H:%M:%S} UTC"
    version = "" if one.version is None else one.version
    return one.uri, one.state, version, committed, one.files, one.log_files, words_of_bytes(one.bytes)

"""`crdt-mor cat`, `count` and `sql`."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated, Final

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import AsOf, Columns, How, Limit, Names, NamesOf, Uri
from crdt_mor.cli.rows import Format, checked_format, most_rows, send
from crdt_mor.ground.late_imports import pl
from crdt_mor.model.policies import plural

Where = Annotated[str | None, typer.Option(metavar="SQL", help='Only these rows: "views > 10".')]


def cat(
    uri: Uri,
    columns: Columns = None,
    where: Where = None,
    as_of: AsOf = None,
    names: Names = NamesOf.now,
    limit: Limit = None,
    format: How = Format.table,
    meta: bool = False,
    explain: bool = False,
) -> None:
    """Print rows of a snapshot in any order. --output json means --format jsonl.

    Example: crdt-mor cat events --where "views > 10" --format csv

    Args:
        meta: Add Hudi's five meta columns in front.
        explain: Print the read and skipped files and why, instead of rows.
    """
    form = checked_format(format)
    table = inputs.opened(uri)
    scan = table.scan(
        columns=inputs.split_names(columns),
        filter=where,
        as_of=inputs.point(as_of, "--as-of"),
        names=names.value,
        meta=meta,
    )
    if explain:
        explanation = scan.explain()
        render.document(asdict(explanation)) if render.is_json() else typer.echo(str(explanation))
        return
    send(scan, most_rows(limit, form), form, table.config.key)


def count(uri: Uri, where: Where = None, as_of: AsOf = None, names: Names = NamesOf.now) -> None:
    """Count the rows of a snapshot.

    Example: crdt-mor count events --where "views > 10"
    """
    scan = inputs.opened(uri).scan(filter=where, as_of=inputs.point(as_of, "--as-of"), names=names.value)
    unopened, rows = scan.unopened, scan.count()
    if render.is_json():
        render.document({"rows": rows, **({"unopened": unopened} if unopened else {})})
        return
    typer.echo(rows)
    if unopened:
        render.note(unopened_text(unopened))


def unopened_text(file_groups: int) -> str:
    groups = plural(file_groups, "file group", ",")
    return f"{groups} counted from commits or hints, without opening files: crdt-mor verify reads them"


_COMMENTS: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_READS: Final = ("select", "with", "from", "explain", "(")
"""Beginnings of statements. polars runs others on its own copy, without an effect on the table."""


def sql(
    uri: Uri,
    query: Annotated[str, typer.Argument(metavar="SQL")],
    as_of: AsOf = None,
    limit: Limit = None,
    format: How = Format.table,
) -> None:
    """Run a SQL query on a snapshot, in polars' SQL. --output json means --format jsonl.

    Only the needed columns, partitions and file groups are read. The result is held in memory.

    Example: crdt-mor sql events "select note, sum(views) from events group by note"

    Args:
        query: A SELECT; see `show` for the table's name.
    """
    from crdt_mor.merge.kernel import to_arrow

    form = checked_format(format)
    if not _COMMENTS.sub("", query).strip().lower().startswith(_READS):
        raise mor.InvalidInputError(
            "sql only reads: begin with SELECT or WITH. Use the commands update, delete, upsert or truncate to write"
        )
    most = most_rows(limit, form)
    send(to_arrow(_answer(inputs.opened(uri), query, inputs.point(as_of, "--as-of"), most)), most, form, ())


def _answer(table: mor.Table, query: str, as_of: mor.Point | None, most: int | None) -> pl.DataFrame:
    from crdt_mor.readers.polars import scan_table

    name = table.config.name
    try:
        rows = pl.SQLContext(frames={name: scan_table(table, as_of=as_of)}).execute(query, eager=False)
        return (rows if most is None else rows.head(most + 1)).collect()
    except pl.exceptions.PolarsError as error:
        said = " ".join(str(error).partition("\n\n")[0].split())
        raise mor.InvalidInputError(f"polars cannot run this query: {said}. The name of the table is {name}") from error

"""`crdt-mor sql`: polars runs a query on a snapshot, and reads only the columns and rows that it needs."""

from __future__ import annotations

import re
from typing import Annotated, Final

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs
from crdt_mor.cli.options import AsOf, How, Limit, Uri
from crdt_mor.cli.rows import Format, checked_format, most_rows, send
from crdt_mor.ground.late_imports import pl

_COMMENTS: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_READS: Final = ("select", "with", "from", "explain", "(")
"""Beginnings of statements. polars runs others on its own copy, without an effect on the table."""


def sql(
    uri: Uri,
    query: Annotated[str, typer.Argument(metavar="SQL", help="A SELECT; see `show` for the table's name.")],
    as_of: AsOf = None,
    limit: Limit = None,
    format: How = Format.table,
) -> None:
    """Run a SQL query on a snapshot, in polars' SQL. --output json means --format jsonl.

    Only the needed columns, partitions and file groups are read. The result is held in memory.

    Example: crdt-mor sql events "select note, sum(views) from events group by note"
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

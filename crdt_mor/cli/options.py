"""Arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from crdt_mor.cli.render import Output
from crdt_mor.cli.rows import Format

Uri = Annotated[str, typer.Argument(metavar="URI", help="The table: a folder, s3://bucket/path, …", show_default=False)]

_FORM = "Text for people, JSON for programs."
Form = Annotated[Output, typer.Option("--output", help=_FORM)]
FormOfUpkeep = Annotated[Output, typer.Option("--output", "--format", help=_FORM)]
"""For `clean` and `archive`, which print no rows, so `--format` is unambiguous."""

Key = Annotated[str, typer.Option(metavar="A,B", help="Columns of the record key.", show_default=False)]
Ordering = Annotated[str | None, typer.Option(help="The greatest value of this column wins.")]
PartitionBy = Annotated[str | None, typer.Option(metavar="A,B", help="Partition columns.")]
Buckets = Annotated[int, typer.Option(min=1, help="File groups per partition; fixed for ever.")]

Wait = Annotated[str, typer.Option(metavar="TIME", help="Wait this long for earlier writes: 90s, 10m, 0s.")]

NotNull = Annotated[str | None, typer.Option(metavar="A,B", help="Columns that must not be null.")]
Checks = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=SQL", help='A condition for all rows: "positive=price > 0". May be repeated.'),
]
Defaults = Annotated[
    list[str] | None,
    typer.Option(metavar="A=VALUE", help="The value of a column that a write omits. May be repeated."),
]


class Codec(StrEnum):
    """The compression of base files."""

    zstd = "zstd"
    lz4 = "lz4"


Compression = Annotated[
    Codec, typer.Option(help="Of base files: lz4 reads in about half the time and needs half as much space again.")
]
Merges = Annotated[
    list[str] | None,
    typer.Option(
        "--merge",
        metavar="A=PAYLOAD",
        help="views=counter, price,at=latest_by?by=at, tags=acme.sets:Tags, …; or partial_update. May be repeated.",
    ),
]

AsOf = Annotated[
    str | None,
    typer.Option(
        metavar="T",
        help=("A version from history, a time like 2025-11-20T09:30 (UTC without a zone), a day, 17 digits, or now."),
    ),
]
Columns = Annotated[str | None, typer.Option(metavar="A,B", help="Only these columns.")]
How = Annotated[Format, typer.Option(help="The format of the rows.")]
Rename = Annotated[
    list[str] | None,
    typer.Option(metavar="OLD=NEW", help="A column of the files and its name in the table. May be repeated."),
]


Delimiter = Annotated[str, typer.Option(metavar="C", help="The separator in CSV: ';', or '\\t' for tabs.")]
Encoding = Annotated[str, typer.Option(metavar="NAME", help="The encoding of CSV, such as latin-1 or cp1252.")]


class NamesOf(StrEnum):
    """The column names of past rows."""

    now = "now"
    then = "then"


Names = Annotated[NamesOf, typer.Option("--names", help="then: --as-of shows the column names of that moment.")]

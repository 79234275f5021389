"""Arguments and options that several commands have, so that they are called and explained alike everywhere."""

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
"""The same for `clean` and `archive`, which print no rows, so that `--format` can mean nothing else."""

Key = Annotated[str, typer.Option(metavar="A,B", help="Columns that name a row.", show_default=False)]
Ordering = Annotated[str | None, typer.Option(help="The greatest value of this column wins.")]
PartitionBy = Annotated[str | None, typer.Option(metavar="A,B", help="Columns that make the folders.")]
Buckets = Annotated[int, typer.Option(min=1, help="File groups a partition; fixed for good.")]

Wait = Annotated[str, typer.Option(metavar="TIME", help="How long to wait for writes that began before: 90s, 10m, 0s.")]

NotNull = Annotated[str | None, typer.Option(metavar="A,B", help="Columns that no row leaves without a value.")]
Checks = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=SQL", help='What no row fails: "positive=price > 0". May be repeated.'),
]
Defaults = Annotated[
    list[str] | None,
    typer.Option(metavar="A=VALUE", help="The value of a column that a write does not give. May be repeated."),
]


class Codec(StrEnum):
    """How base files are compressed."""

    zstd = "zstd"
    lz4 = "lz4"


Compression = Annotated[
    Codec, typer.Option(help="Of base files: lz4 is read in about half the time, and takes half as much space again.")
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
        help=(
            "A version, as history has it, a time like 2025-11-20T09:30 (UTC unless it names a zone), a day, "
            "17 digits, or now."
        ),
    ),
]
Columns = Annotated[str | None, typer.Option(metavar="A,B", help="Only these columns.")]
How = Annotated[Format, typer.Option(help="How to print them.")]
Rename = Annotated[
    list[str] | None,
    typer.Option(metavar="OLD=NEW", help="A column of the files and its name in the table. May be repeated."),
]


Delimiter = Annotated[str, typer.Option(metavar="C", help="What separates the fields of CSV: ';', or '\\t' for tabs.")]
Encoding = Annotated[str, typer.Option(metavar="NAME", help="Of the text of CSV, such as latin-1 or cp1252.")]


class NamesOf(StrEnum):
    """By which names columns of the past are called."""

    now = "now"
    then = "then"


Names = Annotated[NamesOf, typer.Option("--names", help="then: --as-of shows columns by the names of that moment.")]

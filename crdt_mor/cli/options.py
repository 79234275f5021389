"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs
from crdt_mor.cli.rows import TABLE_ROWS, Format

Uri = Annotated[str, typer.Argument(metavar="URI", help="The table: a folder, s3://bucket/path, …", show_default=False)]


A_PARTITION: Final = "a value of the partition column, or a path (day=2026-01-31)"

Wait = Annotated[str, typer.Option(metavar="TIME", help="Wait this long for earlier writes: 90s, 10m, 0s.")]

NotNull = Annotated[str | None, typer.Option(metavar="A,B", help="Columns that must not be null.")]
Checks = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=SQL", help='A condition for all rows: "positive=price > 0". May be repeated.'),
]
Defaults = Annotated[
    list[str] | None, typer.Option(metavar="A=VALUE", help="The value of a column that a write omits. May be repeated.")
]


class ClusterOrder(StrEnum):
    linear = "linear"
    z_order = "z-order"


AsOf = Annotated[
    str | None,
    typer.Option(
        metavar="T",
        help="A version from history, a time like 2025-11-20T09:30 (UTC without a zone), a day, an age (12h), or now.",
    ),
]
Columns = Annotated[str | None, typer.Option(metavar="A,B", help="Only these columns.")]
How = Annotated[Format, typer.Option(help="The format of the rows.")]
Limit = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, help=f"At most N rows; default {TABLE_ROWS} for --format table, else all."),
]
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
Message = Annotated[str | None, typer.Option(metavar="TEXT", help="The commit's message, shown by `history`.")]
Info = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Further commit info: ticket=OPS-17. May be repeated.")
]
Token = Annotated[str | None, typer.Option(metavar="APP:N", help="Write only once, even if repeated; N must grow.")]


def commit_info(message: str | None, info: Sequence[str] | None) -> dict[str, str] | None:
    """Parse `--message TEXT --info ticket=OPS-17`."""
    found: dict[str, str] = {}
    for text in info or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"--info must be like ticket=OPS-17. got={text!r}")
        found[key] = value
    return ({"message": message} if message is not None else {}) | found or None


def asked_rules(not_null: str | None, check: list[str] | None, default: list[str] | None) -> mor.Rules | None:
    checks, defaults = inputs.by_name(check, "--check"), inputs.by_name(default, "--default")
    return mor.Rules(not_null=inputs.split_names(not_null) or (), check=checks, default=defaults) or None


# --- groups: a command with a parameter of such a class has an option for each field ---------------------------------


@dataclass(frozen=True, slots=True)
class Named:
    """The token, message and info of a commit."""

    token: Token = None
    message: Message = None
    info: Info = None

    @property
    def arguments(self) -> dict[str, Any]:
        return {"token": inputs.token(self.token), "commit_info": commit_info(self.message, self.info)}


UNNAMED: Final = Named()


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a new table.

    Attributes:
        ordering: The greatest value of this column wins.
        partition_by: Partition columns, or functions: day(ts), bucket(id, 16), truncate(name, 3).
        buckets: File groups per partition; fixed for ever.
        merge: views=counter, price,at=latest_by?by=at, tags=acme.sets:Tags, …; or partial_update. May be repeated.
        ttl: Rows expire at the time in this column, or later: created=30d.
    """

    ordering: str | None = None
    partition_by: Annotated[str | None, typer.Option(metavar="A,B")] = None
    buckets: Annotated[int, typer.Option(min=1)] = 4
    merge: Annotated[list[str] | None, typer.Option(metavar="A=PAYLOAD")] = None
    ttl: Annotated[str | None, typer.Option(metavar="A[=TIME]")] = None
    not_null: NotNull = None
    check: Checks = None
    default: Defaults = None

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "ordering": self.ordering, "partition_by": inputs.partition_by(self.partition_by) or (),
            "buckets": self.buckets, "merge": inputs.merge(self.merge or []), "ttl": inputs.ttl(self.ttl),
            "rules": asked_rules(self.not_null, self.check, self.default),
        }  # fmt: skip


SETTINGS: Final = Settings()

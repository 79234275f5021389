"""A table as what people try first: read whole, counted, looked at, handed to another library as it is.

Each of these methods scans, sealed at that moment. A program that reads one snapshot more than once keeps a scan of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

import polars as pl
import pyarrow as pa

from crdt_mor.api.html import html_line, html_table
from crdt_mor.api.rows import NotASequence
from crdt_mor.api.scan import Scan
from crdt_mor.api.transaction import Commit
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.model.config import TableConfig
from crdt_mor.model.cut import Cut
from crdt_mor.model.points import Point
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.cut import cut_at, sealed_at

if TYPE_CHECKING:
    import pandas as pd

Consistency = Literal["latest", "stable", "read_optimized"]

AsOf = Commit | Point
"""A point in a table's history: a commit, a version, a moment, or a savepoint.

A moment is a datetime (in UTC where it is naive), a date (midnight UTC at its start), ISO text of either, 17 digits of
UTC time, or "now": all that is decided; or it has a name, which `Table.savepoint` gave it.
"""

HANDED_OVER: Final = "Hudi's writers have this table: it takes no writes here until maintenance.takeback()."
"""What is shown of a table that is handed over."""


def point_of(as_of: AsOf) -> Point:
    """A point as model/points.py has it: a commit is the moment when readers began to see it."""
    return as_of.completed_at if isinstance(as_of, Commit) else as_of


def value_at(
    session: Session, as_of: AsOf | None, name: str = "as_of", *, look: bool = False
) -> tuple[Timeline, Cut | None]:
    """The newest value, and its cut at a point; no cut where everything is meant that the value shows.

    name: what the user calls the point. look: whether Hudi's directory is looked at in any case.
    """
    if as_of is None:
        return session.views.sealed(look=look), None
    point = point_of(as_of)
    value = sealed_at(session, **{name: point})
    return value, cut_at(session, value, point, name)


@operations
class Readable(NotASequence, ABC):
    """What can be read without a word about scans. It is an Arrow stream, of the rows as they are when it is taken."""

    uri: str

    @abstractmethod
    def scan(
        self,
        *,
        columns: str | Sequence[str] | None = None,
        filter: pl.Expr | str | None = None,
        as_of: AsOf | None = None,
        consistency: Consistency = "latest",
        meta: bool = False,
        limit: int | None = None,
    ) -> Scan:
        """A snapshot, sealed now."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The newest version of the timeline."""

    @property
    @abstractmethod
    def config(self) -> TableConfig:
        """Key, partitioning, buckets and merge."""

    @property
    @abstractmethod
    def handed_over(self) -> datetime | None:
        """Since when Hudi's writers have the table; None: they have not."""

    def to_polars(
        self,
        *,
        columns: str | Sequence[str] | None = None,
        filter: pl.Expr | str | None = None,
        as_of: AsOf | None = None,
        limit: int | None = None,
    ) -> pl.DataFrame:
        """The rows as a polars DataFrame. The arguments are those of `scan`; so are the errors."""
        return self.scan(columns=columns, filter=filter, as_of=as_of, limit=limit).to_polars()

    def to_arrow(
        self,
        *,
        columns: str | Sequence[str] | None = None,
        filter: pl.Expr | str | None = None,
        as_of: AsOf | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """The rows as a pyarrow Table, in the declared types. The arguments are those of `scan`; so are the errors."""
        return self.scan(columns=columns, filter=filter, as_of=as_of, limit=limit).to_arrow()

    def to_pandas(
        self,
        *,
        columns: str | Sequence[str] | None = None,
        filter: pl.Expr | str | None = None,
        as_of: AsOf | None = None,
        limit: int | None = None,
    ) -> pd.DataFrame:
        """The rows as a pandas DataFrame. The arguments are those of `scan`; so are the errors."""
        return self.scan(columns=columns, filter=filter, as_of=as_of, limit=limit).to_pandas()

    def count(self, filter: pl.Expr | str | None = None, *, as_of: AsOf | None = None) -> int:
        """Number of rows, or of those for which `filter` holds; reads the columns that this takes and no others.

        Where no filter asks for it and a file's statistics say it, no row is read.
        """
        return self.scan(filter=filter, as_of=as_of).count()

    def head(self, n: int = 5, *, columns: str | Sequence[str] | None = None) -> pl.DataFrame:
        """Some `n` rows to look at, as a polars DataFrame, whichever come first: rows have no order."""
        return self.scan(columns=columns, limit=n).to_polars()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """All rows as they are now, for `pl.DataFrame(table)`, `pa.table(table)` or `duckdb.sql("from events")`."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """What a notebook shows: the columns and what each is for; no rows are read for it."""
        config = self.config
        roles = _roles(config)
        columns = [(field.name, field.type, ", ".join(roles.get(field.name, ()))) for field in self.schema]
        return (
            html_line(f"{self!r}, version {self.version}")
            + html_table(["column", "type", "role"], columns)
            + html_line("head() shows some rows, count() says how many there are.")
            + ("" if self.handed_over is None else html_line(HANDED_OVER))
        )


def _roles(config: TableConfig) -> dict[str, list[str]]:
    """What columns are for, by name: key, partition, ordering, and the payload that decides them."""
    roles: dict[str, list[str]] = {}
    named = {"key": config.key.fields, "partition": config.key.partition_fields}
    named["ordering"] = (config.merge.ordering,) if config.merge.ordering else ()
    for role, names in named.items():
        for name in names:
            roles.setdefault(name, []).append(role)
    for member in config.merge.columns:
        for name in member.columns:
            roles.setdefault(name, []).append(str(member.payload))
    return roles

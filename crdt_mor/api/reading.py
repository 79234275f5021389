"""Read methods of a table: rows as frames, counts, and Arrow and notebook output.

Each method makes its own scan, sealed at that moment. To read one snapshot more than once, keep a scan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

import polars as pl
import pyarrow as pa

from crdt_mor.api.config import TableConfig
from crdt_mor.api.html import html_line, html_table
from crdt_mor.api.rows import NotASequence
from crdt_mor.api.scan import Scan
from crdt_mor.api.transaction import Commit
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import EPOCH, to_datetime
from crdt_mor.model.points import Point
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.cut import cut_at, sealed_at

if TYPE_CHECKING:
    import pandas as pd

Consistency = Literal["latest", "stable", "read_optimized"]

AsOf = Commit | Point
"""A point in a table's history: a commit, a version, a moment or a savepoint's name.

A moment is a datetime (naive is UTC), a date (midnight UTC at its start), ISO text of either, 17 digits of UTC time, or
"now".
"""

HANDED_OVER: Final = "Hudi's writers have this table: it takes no writes here until maintenance.takeback()."


def handed_over_since(value: Timeline) -> datetime | None:
    return None if value.handed_over == EPOCH else to_datetime(value.handed_over)


def point_of(as_of: AsOf) -> Point:
    return as_of.completed_at if isinstance(as_of, Commit) else as_of


def value_at(
    session: Session, as_of: AsOf | None, name: str = "as_of", *, look: bool = False
) -> tuple[Timeline, Cut | None]:
    """Return the newest timeline value and its cut at a point; no cut without a point.

    Args:
        name: the argument's name, for errors.
        look: look for new commits of Hudi in any case.
    """
    if as_of is None:
        return session.views.sealed(look=look), None
    point = point_of(as_of)
    value = sealed_at(session, **{name: point})
    return value, cut_at(session, value, point, name)


@operations
class Readable(NotASequence, ABC):
    """Reads rows without an explicit scan. It is an Arrow stream of the current rows."""

    uri: str
    _session: Session

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
        """Return a scan of the current snapshot."""

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

    def to_polars(self) -> pl.DataFrame:
        """Return the current rows as a polars DataFrame; for some rows or columns see `scan`."""
        return self.scan().to_polars()

    def to_arrow(self) -> pa.Table:
        """Return the current rows as a pyarrow Table in the declared types; for some rows or columns see `scan`."""
        return self.scan().to_arrow()

    def to_pandas(self, *, dtype_backend: Literal["numpy_nullable", "pyarrow"] | None = None) -> pd.DataFrame:
        """Return the current rows as a pandas DataFrame, in types as in `pandas.read_parquet`; see `scan`."""
        return self.scan().to_pandas(dtype_backend=dtype_backend)

    def count(self) -> int:
        """Count the current rows. No row is read if file statistics contain the count."""
        return self.scan().count()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the current rows for `pl.DataFrame(table)`, `pa.table(table)` or `duckdb.sql("from events")`."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        config = self.config
        roles = _roles(config)
        columns = [(field.name, field.type, ", ".join(roles.get(field.name, ()))) for field in self.schema]
        return (
            html_line(f"{self!r}, version {self.version}")
            + html_table(["column", "type", "role"], columns)
            + html_line("scan() shows some rows, count() counts all rows.")
            + ("" if handed_over_since(self._session.views.sealed()) is None else html_line(HANDED_OVER))
        )


def _roles(config: TableConfig) -> dict[str, list[str]]:
    roles: dict[str, list[str]] = {}
    named = {"key": config.key, "partition": config.partition_sources}
    named["ordering"] = (config.ordering,) if config.ordering else ()
    for role, names in named.items():
        for name in names:
            roles.setdefault(name, []).append(role)
    for name, payload in config.payloads.items():
        roles.setdefault(name, []).append(payload)
    return roles

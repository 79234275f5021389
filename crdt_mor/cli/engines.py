"""`crdt-mor mirror` and `register`: for other engines."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import typer

from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Uri


class Format(StrEnum):
    delta = "delta"
    iceberg = "iceberg"


class Deletes(StrEnum):
    vectors = "vectors"
    positions = "positions"
    rewrite = "rewrite"


def mirror(uri: Uri, format: Annotated[Format, typer.Option("--as")], deletes: Deletes | None = None) -> None:
    """Make a table's newest rows readable for Delta Lake or Iceberg engines.

    Run it again after commits: only changed file slices are written.

    Example: crdt-mor mirror events --as delta

    Args:
        format: The format of the mirror.
        deletes: How deleted rows are shown. Delta: vectors (default) or rewrite, which writes changed file slices
            whole. Iceberg: positions (default) or vectors, which needs readers of format version 3.
    """
    done = inputs.opened(uri).mirror(format.value, deletes=None if deletes is None else deletes.value)
    render.result(done)


_DEFAULT: Final = "default"
"""pyiceberg's own default."""


@dataclass(frozen=True, slots=True)
class Into:
    """The catalog: a command takes one of these.

    Attributes:
        catalog: A catalog of pyiceberg's configuration, ~/.pyiceberg.yaml.
        glue: AWS Glue, with the account and region of the environment.
        iceberg_rest: A REST catalog.
        hive: A Hive metastore: thrift://host:9083.
        sql: A SQL catalog: postgresql+psycopg2://host/db.
    """

    catalog: Annotated[str | None, typer.Option(metavar="NAME")] = None
    glue: bool = False
    iceberg_rest: Annotated[str | None, typer.Option(metavar="URL")] = None
    hive: Annotated[str | None, typer.Option(metavar="URL")] = None
    sql: Annotated[str | None, typer.Option(metavar="URL")] = None

    def chosen(self) -> tuple[str, dict[str, str]]:
        """Return the catalog's name for pyiceberg, and options."""
        by_url = {"rest": self.iceberg_rest, "hive": self.hive, "sql": self.sql}
        urls = {kind: url for kind, url in by_url.items() if url is not None}
        if len(urls) + self.glue + (self.catalog is not None) != 1:
            raise typer.BadParameter("pass one of --catalog, --glue, --iceberg-rest, --hive and --sql")
        for kind, url in urls.items():
            return _DEFAULT, {"type": kind, "uri": url}
        return self.catalog or "glue", {}


NOWHERE: Final = Into()


class Entry(StrEnum):
    iceberg = "iceberg"
    hudi = "hudi"


def register(
    uri: Uri,
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    format: Annotated[Entry, typer.Option("--as")] = Entry.iceberg,
    into: Into = NOWHERE,
) -> None:
    """Show a table by name in a catalog.

    As iceberg, it refreshes the mirror: run it again after commits. As hudi, run it again after new partitions.

    Example: crdt-mor register events lake.events --glue

    Args:
        name: Namespace and table: lake.events.
        format: The Iceberg mirror, or the Hudi table for engines with Hudi's readers.
    """
    from crdt_mor.services.catalog_calls import catalog_of

    catalog, options = into.chosen()
    maintenance = inputs.opened(uri).maintenance
    render.result(maintenance.register(catalog_of(catalog, **options), name, format=format.value))

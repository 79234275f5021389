"""`crdt-mor register`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import typer

from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Form, Uri
from crdt_mor.cli.render import Output

_DEFAULT: Final = "default"
"""pyiceberg's own name for a catalog without one."""


@dataclass(frozen=True, slots=True)
class Into:
    """The options that name a catalog, of which a command takes one."""

    catalog: Annotated[
        str | None, typer.Option(metavar="NAME", help="A catalog of pyiceberg's configuration, ~/.pyiceberg.yaml.")
    ] = None
    glue: Annotated[bool, typer.Option("--glue", help="AWS Glue, with the account and region of the environment.")] = (
        False
    )
    iceberg_rest: Annotated[str | None, typer.Option(metavar="URL", help="A REST catalog.")] = None
    hive: Annotated[str | None, typer.Option(metavar="URL", help="A Hive metastore: thrift://host:9083.")] = None
    sql: Annotated[str | None, typer.Option(metavar="URL", help="A SQL catalog: postgresql+psycopg2://host/db.")] = None

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


def register(
    uri: Uri,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Namespace and table: lake.events.", show_default=False)],
    into: Into = NOWHERE,
    output: Form = Output.text,
) -> None:
    """Show a table's newest rows by name in an Iceberg catalog.

    It refreshes the Iceberg mirror. Run it again after commits.

    Example: crdt-mor register events lake.events --glue
    """
    from crdt_mor.services.catalog_calls import catalog_of

    catalog, options = into.chosen()
    render.result(output, inputs.opened(uri).maintenance.register(catalog_of(catalog, **options), name))

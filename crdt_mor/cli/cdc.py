"""`crdt-mor cdc postgres` and `crdt-mor cdc kafka`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import typer

from crdt_mor.cli import failures, inputs, render
from crdt_mor.cli.options import Uri
from crdt_mor.cli.stopping import until_stopped

T = TypeVar("T")

Once = Annotated[bool, typer.Option("--once", help="End with the newest changes instead of waiting for more.")]


def postgres(
    dsn: Annotated[str, typer.Argument(metavar="DSN")],
    uri: Uri,
    table: Annotated[str, typer.Option(metavar="NAME")],
    slot: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    once: Once = False,
) -> None:
    """Replicate a table of PostgreSQL: a snapshot first, then each change once.

    Example: crdt-mor cdc postgres "host=db dbname=shop" orders --table public.orders

    Args:
        dsn: The database: "host=db dbname=shop", postgresql://db/shop.
        table: The table there, with a primary key: public.orders.
        slot: The replication slot; by default crdt_mor_ and the table.
    """
    from crdt_mor.cdc.postgres import replicate

    commits = replicate(dsn, table, uri, slot=slot, once=once, storage_options=inputs.storage())
    _print_each(commits, asdict, str)


def kafka(
    servers: Annotated[str, typer.Argument(metavar="SERVERS")],
    uri: Uri,
    topic: str,
    group: str | None = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE")] = None,
    once: Once = False,
) -> None:
    """Apply the change events of a Kafka topic to a table, each once.

    Example: crdt-mor cdc kafka kafka:9092 orders --topic shop.public.orders

    Args:
        servers: The brokers: kafka:9092,other:9092.
        topic: Its events are of Debezium, Maxwell, wal2json or AWS DMS.
        group: The consumer group; by default crdt_mor_ and the topic.
        settings: A setting of librdkafka. May be repeated.
    """
    from crdt_mor.cdc.kafka import consume

    given = inputs.by_name(settings, "--set")
    commits = consume(servers, topic, uri, group=group, once=once, settings=given, storage_options=inputs.storage())
    _print_each(commits, _document, _line)


def _document(done: Any) -> dict[str, Any]:
    return {name: getattr(done, name) for name in ("rows", "deletes", "truncations", "skipped", "positions")}


def _line(done: Any) -> str:
    places = ", ".join(f"{source}: {position}" for source, position in done.positions.items())
    return f"changes: {done.rows:,} rows, {done.deletes:,} deletes, up to {places}"


def _print_each(commits: Iterable[T], document: Callable[[T], dict[str, Any]], line: Callable[[T], str]) -> None:
    with until_stopped("stopped; the next run continues after the last commit"):
        for done in commits:
            if render.is_json():
                render.lines([document(done)])
            else:
                typer.echo(line(done))
            failures.finish_output()

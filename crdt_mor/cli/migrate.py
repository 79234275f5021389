"""`migrate`, `cancel-migration`: a table moves to another address, with other settings, beside running writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

import typer
from rich.console import Console

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Form, Uri
from crdt_mor.cli.render import Output

Tell: TypeAlias = "Callable[[mor.MigrationProgress], None]"


class Pending(StrEnum):
    """What becomes of writes that are pending when the table is closed."""

    wait = "wait"
    roll_back = "roll-back"


class Order(StrEnum):
    """The orders of rows in base files."""

    linear = "linear"
    z_order = "z-order"


def migrate(
    uri: Uri,
    to: Annotated[str, typer.Argument(metavar="TO", help="Where it moves: no table is there yet.", show_default=False)],
    buckets: Annotated[int | None, typer.Option(min=1, help="File groups a partition.")] = None,
    partition_by: Annotated[
        str | None, typer.Option(metavar="A,B", help='Columns that make the folders; "" for none.')
    ] = None,
    merge: Annotated[
        list[str] | None,
        typer.Option(metavar="A=PAYLOAD", help="As `create` takes it; or latest, for neither payloads nor ordering."),
    ] = None,
    ordering: Annotated[str | None, typer.Option(help="The greatest value of this column wins.")] = None,
    cluster_by: Annotated[
        str | None, typer.Option(metavar="A,B", help='Columns by which base files are sorted; "" for by key.')
    ] = None,
    cluster_order: Annotated[Order | None, typer.Option(help="z-order gives up to four columns one weight.")] = None,
    pending: Annotated[
        Pending, typer.Option(help="Writes that have begun when the table is closed: wait for them, or roll them back.")
    ] = Pending.wait,
    output: Form = Output.text,
) -> None:
    """Move a table to another address with other settings, beside writers; run it again if it was stopped: it goes on.

    What is not given is as it is in the table. Writers are told the new address once the rest is copied.

    Example: crdt-mor migrate events events-32 --buckets 32
    """
    table = inputs.opened(uri)
    words = merge or []
    with _telling(output) as tell:
        done = table.maintenance.migrate(
            to,
            buckets=buckets,
            partition_by=None if partition_by is None else inputs.names(partition_by) or (),
            merge="latest" if words == ["latest"] else inputs.merge(words),
            ordering=ordering,
            cluster_by=None if cluster_by is None else inputs.names(cluster_by) or (),
            cluster_order=None if cluster_order is None else cluster_order.value,
            pending="wait" if pending is Pending.wait else "roll_back",
            on_progress=tell,
            storage_options=inputs.storage(),
        )
    if output is Output.json:
        render.document({**asdict(done), "turned_away": done.turned_away / timedelta(seconds=1)})
    else:
        render.note(str(done))


def cancel_migration(
    uri: Uri,
    removed: Annotated[bool, typer.Option("--removed", help="The table at the new address was removed.")] = False,
    output: Form = Output.text,
) -> None:
    """Give the migration of a table up, which takes writes again; what has arrived at the new address may be removed.

    Example: crdt-mor cancel-migration events
    """
    found = inputs.opened(uri).maintenance.cancel_migration(storage_options=inputs.storage(), removed=removed)
    if output is Output.json:
        render.document({"cancelled": found})
    else:
        render.note("the migration is given up, and the table takes writes" if found else "no migration is under way")


# --- progress ---------------------------------------------------------------------------------------------------------

_WORDS: Final = {
    "copy": "copying",
    "follow": "following what is written meanwhile",
    "settle": "the table is closed, copying the rest",
    "opened": "opened",
}


def _telling(output: Output) -> AbstractContextManager[Tell]:
    """A bar on a terminal; elsewhere a line for each phase; for programs one JSON document a commit."""
    if output is Output.json:
        return nullcontext(lambda progress: render.note_document({"progress": asdict(progress)}))
    console = render.stderr()
    return _bar(console) if console.is_terminal else nullcontext(_Lines())


class _Lines:
    """A line whenever the phase is another one."""

    def __init__(self) -> None:
        self._phase = ""

    def __call__(self, progress: mor.MigrationProgress) -> None:
        if progress.phase not in (self._phase, "opened"):
            self._phase = progress.phase
            render.note(_WORDS[progress.phase])


@contextmanager
def _bar(console: Console) -> Iterator[Tell]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("parts, {task.fields[rows]} rows"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(_WORDS["copy"], total=None, rows=0)

        def tell(progress: mor.MigrationProgress) -> None:
            bars.update(
                task,
                description=_WORDS[progress.phase],
                total=progress.parts or None,
                completed=progress.done,
                rows=f"{progress.rows:,}",
            )

        yield tell

"""`crdt-mor migrate` and `cancel-migration`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import ClusterOrder, Uri

Tell: TypeAlias = "Callable[[mor.results.MigrationProgress], None]"


class Pending(StrEnum):
    wait = "wait"
    roll_back = "roll-back"


def migrate(
    uri: Uri,
    to: Annotated[str, typer.Argument(metavar="TO", show_default=False)],
    buckets: Annotated[int | None, typer.Option(min=1)] = None,
    partition_by: Annotated[str | None, typer.Option(metavar="A,B")] = None,
    merge: Annotated[list[str] | None, typer.Option(metavar="A=PAYLOAD")] = None,
    ordering: str | None = None,
    cluster_by: Annotated[str | None, typer.Option(metavar="A,B")] = None,
    cluster_order: ClusterOrder | None = None,
    pending: Pending = Pending.wait,
) -> None:
    """Move a table to another address with other settings, beside writers.

    Omitted settings stay the same. Run it again if it was stopped. After the copy, writers get an error with the new
    address.

    Example: crdt-mor migrate events events-32 --buckets 32

    Args:
        to: The new address, without a table.
        buckets: File groups per partition.
        partition_by: Partition columns; "" for none.
        merge: As in create; latest: neither payloads nor ordering.
        ordering: The greatest value of this column wins.
        cluster_by: Sort base files by these columns; "" for the key.
        cluster_order: z-order weighs up to four columns equally.
        pending: Wait for writes that are pending at the close, or roll them back.
    """
    table = inputs.opened(uri)
    words = merge or []
    with _telling() as tell:
        done = table.maintenance.migrate(
            to,
            buckets=buckets,
            partition_by=None if partition_by is None else inputs.partition_by(partition_by) or (),
            merge="latest" if words == ["latest"] else inputs.merge(words),
            ordering=ordering,
            cluster_by=None if cluster_by is None else inputs.split_names(cluster_by) or (),
            cluster_order=None if cluster_order is None else cluster_order.value,
            pending="wait" if pending is Pending.wait else "roll_back",
            on_progress=tell,
            storage_options=inputs.storage(),
        )
    render.result(asdict(done) | {"turned_away": done.turned_away / timedelta(seconds=1)}, str(done))


def cancel_migration(uri: Uri, removed: bool = False) -> None:
    """Cancel a migration, so the table takes writes again.

    The incomplete table at the new address may be deleted.

    Example: crdt-mor cancel-migration events

    Args:
        removed: The table at the new address was deleted.
    """
    found = inputs.opened(uri).maintenance.cancel_migration(storage_options=inputs.storage(), removed=removed)
    text = "the migration is cancelled, and the table takes writes" if found else "no migration is running"
    render.result({"cancelled": found}, text)


# --- progress ---------------------------------------------------------------------------------------------------------

_WORDS: Final = {
    "copy": "copying",
    "follow": "copying new commits",
    "settle": "the table is closed, copying the rest",
    "opened": "opened",
}


@contextmanager
def _telling() -> Iterator[Tell]:
    if render.is_json():
        yield lambda progress: render.note_document({"progress": asdict(progress)})
        return
    with render.bar(_WORDS["copy"], "MofNComplete") as move:

        def tell(now: mor.results.MigrationProgress) -> None:
            said = f"parts, {now.rows:,} rows"
            move(description=_WORDS[now.phase], total=now.parts or None, completed=now.done, said=said)

        yield tell if render.stderr().is_terminal else _Lines()


class _Lines:
    def __init__(self) -> None:
        self._phase = ""

    def __call__(self, progress: mor.results.MigrationProgress) -> None:
        if progress.phase not in (self._phase, "opened"):
            self._phase = progress.phase
            render.note(_WORDS[progress.phase])

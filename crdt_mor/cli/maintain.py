"""`crdt-mor maintain`: run the due services of tables, once or repeatedly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.console import Console

import crdt_mor as mor
from crdt_mor.cli import failures, inputs, render
from crdt_mor.cli.watching import Places, Watch
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.model.policies import words_of_bytes

EVERY = timedelta(minutes=5)

Uris = Annotated[list[str], typer.Argument(metavar="URI", help="The tables.", show_default=False)]


def maintain(
    uri: Uris,
    every: Annotated[str | None, typer.Option(metavar="TIME")] = None,
    watch: bool = False,
    keep: Annotated[str | None, typer.Option(metavar="TIME")] = None,
    keep_commits: Annotated[int | None, typer.Option(metavar="N", min=1)] = None,
    dry_run: bool = False,
) -> None:
    """Run the services that are due by the tables' policies, and say why.

    It is safe beside writers, readers and other maintenance, and suits cron. With --watch or --every it runs until
    SIGTERM or Ctrl-C, and a table that fails is tried again after longer pauses.

    With --output json, a line per table is printed.

    Example: crdt-mor maintain events clicks --every 5m

    Args:
        every: Repeat each table after this time: 5m, 1h.
        watch: Repeat, every 5m by default, all tables at and below each URI.
        keep: Keep this much history, such as 7d, instead of the policy.
        keep_commits: Keep at least N commits, instead of the policy.
        dry_run: Only print the due services and why.
    """
    pause = inputs.duration(every, "--every") if every is not None else EVERY if watch else None
    if pause is not None and pause < timedelta(seconds=1):
        raise typer.BadParameter("pass at least 1s, so the machine has time for other work", param_hint="--every")
    kept = None if keep is None else inputs.duration(keep, "--keep")
    run = _Upkeep(kept, keep_commits, dry_run)
    if pause is not None:
        find = Places(uri) if watch else lambda _: uri
        Watch(run.table, find, pause, SystemEnvironment()).run()
        return
    done = [run.table(one) for one in uri]
    if not all(done):
        raise typer.Exit(failures.REFUSED)


class _Upkeep:
    """Opens a table again after an error."""

    def __init__(self, keep: timedelta | None, keep_commits: int | None, dry_run: bool) -> None:
        self._keep = keep
        self._keep_commits = keep_commits
        self._dry_run = dry_run
        self._open: dict[str, mor.Table] = {}

    def table(self, uri: str) -> bool:
        """Return False if the table failed or refused all services."""
        try:
            table = self._open.get(uri) or inputs.opened(uri)
            with nullcontext() if render.is_json() else progress(render.stderr()):
                done = table.maintenance.maintain(
                    keep=self._keep, keep_commits=self._keep_commits, dry_run=self._dry_run
                )
        except (mor.CrdtMorError, OSError) as error:
            self._open.pop(uri, None)
            failures.report(error, "maintain")
            return False
        self._open[uri] = table
        self._print(uri, done)
        return done.ok and not any(action.service == "maintain" for action in done.actions)

    def _print(self, uri: str, done: mor.results.Maintained) -> None:
        if render.is_json():
            sums = {name: getattr(done, name) for name in ("files_removed", "bytes_removed", "bytes_written")}
            render.lines([{"table": uri, "ok": done.ok, **asdict(done), **sums}])
        else:
            for line in str(done).splitlines():
                typer.echo(f"{uri}: {line}")
        failures.finish_output()


# --- progress ---------------------------------------------------------------------------------------------------------


def progress(console: Console) -> AbstractContextManager[object]:
    return _bars(console) if console.is_terminal else nullcontext()


@contextmanager
def _bars(console: Console) -> Iterator[None]:
    tasks: dict[str, Any] = {}  # by barrier
    written: dict[str, int] = {}
    with render.bars(console, "MofNComplete") as bars:

        def show(event: mor.observing.Event) -> None:
            if isinstance(event, mor.observing.PartEvent):
                if event.barrier not in tasks:
                    tasks[event.barrier] = bars.add_task(event.action, total=event.parts, said="")
                written[event.barrier] = written.get(event.barrier, 0) + event.bytes
                said = f"parts, {words_of_bytes(written[event.barrier])}"
                bars.update(tasks[event.barrier], advance=1, said=said)

        with mor.observe(show):
            yield

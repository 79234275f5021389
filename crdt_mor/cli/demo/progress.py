"""The display while the demo runs: a line per process on a terminal, else occasional lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from crdt_mor.cli.demo.lanes import COLOURS
from crdt_mor.cli.demo.workers import Message

LINES = 8
"""Printed lines without a terminal."""


@dataclass
class _Process:
    doing: str = "starting"
    commits: int = 0
    rows: int = 0


@dataclass
class Progress:
    console: Console
    days: int
    _processes: dict[str, _Process] = field(
        default_factory=lambda: {name: _Process() for name in ("ingest", "encrypt", "backfill", "compact")}
    )
    days_done: int = 0
    _live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(self._picture(), console=self.console, refresh_per_second=12, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, message: Message) -> None:
        process = self._processes[message.process]
        if message.kind in ("commit", "compaction"):
            process.commits += 1
            process.rows += message.rows
        if message.text and message.kind in ("doing", "done"):
            process.doing = message.text
        if message.process == "ingest" and message.kind == "commit" and not message.text.startswith("late-"):
            self.days_done += 1
            if self._live is None and self.days_done % max(1, self.days // LINES) == 0:
                self._line()
        if self._live is not None:
            self._live.update(self._picture())

    def _line(self) -> None:
        counts = ", ".join(f"{name} {process.commits}" for name, process in self._processes.items())
        self.console.print(f"{self.days_done} of {self.days} days; commits: {counts}")

    def _picture(self) -> Group:
        grid = Grid.grid(padding=(0, 2))
        grid.add_column(width=9)
        grid.add_column(justify="right", width=4)
        grid.add_column(width=11)
        grid.add_column(justify="right", width=9)
        grid.add_column(no_wrap=True, overflow="ellipsis")
        for name, process in self._processes.items():
            unit = "compactions" if name == "compact" else "commits"
            row = [f"[bold {COLOURS[name]}]{name}[/]", str(process.commits), unit, f"{process.rows:,}"]
            grid.add_row(*row, Text(f"rows   {process.doing}"))
        return Group(grid, ProgressBar(total=self.days, completed=self.days_done, width=60))

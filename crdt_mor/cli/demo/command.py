"""`crdt-mor demo`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.model.policies import words_of_bytes

if TYPE_CHECKING:
    from crdt_mor.cli.demo.run import Result

PICTURE_COLUMNS = 100
"""Width of the lanes without a terminal, at most 160."""

INTRODUCTION = """\
Three processes write to one table and a fourth compacts it, all at once, without a lock:
  ingest    loads the flights of 2013, day by day; now and then a day comes again, late
  encrypt   replaces the tail numbers of the last days by pseudonyms
  backfill  corrects delays of old days: LaGuardia's clock was three minutes fast"""


def demo(
    dir: Path | None = None,
    address: Annotated[str | None, typer.Option("--uri", metavar="URI")] = None,
    small: bool = False,
    keep: Annotated[bool, typer.Option("--keep/--no-keep")] = True,
    svg: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
) -> None:
    """Run three writers and a compaction on real flights, and check the result.

    Example: crdt-mor demo --small

    Args:
        dir: An absent or empty folder; default: a new temporary folder.
        address: The table's place, such as s3://bucket/path; must be empty.
        small: Four weeks of flights, not a year: seconds.
        keep: Keep the table and the folder.
        svg: Also draw the overlapping transactions in FILE.
    """
    from crdt_mor.cli.demo.place import Place, require_free
    from crdt_mor.cli.demo.progress import Progress
    from crdt_mor.cli.demo.run import run
    from crdt_mor.cli.demo.story import FULL, PACKAGES, SMALL, require

    require(*PACKAGES)  # before any work
    if dir is not None and dir.exists() and (not dir.is_dir() or any(dir.iterdir())):
        raise mor.InvalidInputError(f"the demo needs an absent or empty folder, to keep your data safe. dir={dir}")
    if address is not None:
        require_free(address, inputs.storage())
    folder = dir.resolve() if dir is not None else Path(tempfile.mkdtemp(prefix="crdt-mor-demo-"))
    place = Place.at(address, folder, inputs.storage())
    story = SMALL if small else FULL
    console = render.stderr()
    console.print(Text(INTRODUCTION))
    console.print(Text(f"in {place.text()}\n"))
    try:
        result = run(place, story, Progress(console, story.days), lambda text: console.print(Text(text, style="dim")))
    except BaseException:
        console.print(Text(f"the incomplete demo is in {place.text()}"))
        raise
    if svg is not None:
        shutil.copyfile(place.picture, svg)
    if render.is_json():
        render.document(result.document())
    else:
        _report(result, keep)
    if not keep:
        place.clear()
    if not result.holds:
        raise typer.Exit(1)


def _report(result: Result, keep: bool) -> None:
    from crdt_mor.cli.demo import lanes

    console = render.stdout()
    numbers = result.numbers
    width = min(console.width, 160) if console.is_terminal else PICTURE_COLUMNS
    _heading(console, "What overlapped")
    facts = Grid.grid(padding=(0, 2))
    facts.add_column(justify="right", style="bold")
    facts.add_column()
    for value, meaning in (
        (numbers.commits, f"commits in {result.seconds:.1f} s, at most {numbers.most_at_once} at once"),
        (numbers.overlapping, "of them overlapped with others"),
        (result.aborts, "aborts"),
        (numbers.compactions, f"compactions; {numbers.across_compactions} transactions were open across a compaction"),
        (result.rows, f"rows, {numbers.shared_rows:,} of them written by more than one process"),
    ):
        facts.add_row(f"{value:,}", meaning)
    if numbers.overtaken_cells:
        meaning = "plain tail numbers completed late, and lost to an encryption requested after them"
        facts.add_row(f"{numbers.overtaken_cells:,}", meaning)
    console.print(Padding(facts, (0, 0, 0, 2), expand=False))
    _heading(console, "What holds")
    for claim in result.claims:
        mark = ("✓", "green") if claim.holds else ("✗ NOT SO:", "bold red")
        console.print(Text.assemble("  ", mark, f" {claim.name}: ", (claim.evidence, "dim")))
    _heading(console, "What maintain freed, once the history had been checked")
    tidied = result.tidied
    for line in tidied.done:
        console.print(Text(f"  {line}"))
    before, after, live = (words_of_bytes(n) for n in (tidied.bytes_before, tidied.bytes_after, tidied.live_bytes))
    console.print(
        Text(
            f"  {before} in {tidied.files_before:,} files became {after} in {tidied.files_after:,}, for {live} of live "
            "rows.\n  The demo keeps no history and spares no readers (crdt_mor.readers=0s), since its own are done.\n"
            "  By default a table keeps a week of history, and spares readers for an hour.",
            style="dim",
        )
    )
    _heading(console, "The whole run")
    console.print(lanes.draw(result.whole, width))
    overtaken = ": a late delivery loses to an encryption requested after it"
    _heading(console, "From near" + (overtaken if numbers.overtaken_cells else ""))
    console.print(lanes.draw(result.near, width))
    if keep:
        console.print(Text(f"\npicture: {result.place.picture}"))
        _heading(console, "What to try next")
        for line in _next_steps(result):
            console.print(Text(f"  {line}"))


def _heading(console: Console, text: str) -> None:
    console.print(Text(f"\n{text}", style="bold underline"))


def _next_steps(result: Result) -> list[str]:
    table, command = result.place.reached(), command_here()
    return [
        f"{command} show {table}",
        f"{command} timeline {table}",
        f"{command} cat {table} --where \"origin = 'LGA'\" --columns time_hour,carrier,flight,tailnum,arr_delay",
        f"{command} history {table} --limit 5",
        f"{command} maintain {table} --dry-run     # what is due, and why",
        f"{command} demo --small {result.place.again()}",
    ]


def command_here() -> str:
    """Return this program's name: `crdt-mor` if a shell finds it, else its path."""
    called = sys.argv[0]
    if os.path.basename(called) == "crdt-mor" and shutil.which("crdt-mor") is None:
        return shlex.quote(called)
    return "crdt-mor"

"""Hudi's readers look at tables of the matrix of crashes: where a process has just died, and when others have gone on.

`tests/crash/test_matrix.py` lets hudi-rs look at every table in the end; here are some of them, with Hudi's own Spark
reader. Until somebody goes on, Hudi's timeline may lack the last commit of the dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from crdt_mor import Table
from tests.crash.cells import Cell, cells, small_numbers
from tests.crash.places import Place
from tests.interop.readers import HudiSpark, Rows, hudi_rs, ours

DEATHS = [
    ("upsert", "kill after", 3),
    ("update", "power cut before", 5),
    ("overwrite", "kill after", 5),
    ("compact", "kill before", 8),
    ("clean", "power cut after", 3),
    ("restore", "kill after", 4),
    ("upsert to a table of Hudi's", "kill after", 4),
    ("first copy", "kill before", 25),
    ("copy moved on", "kill after", 40),
]
"""A row of the matrix, what goes wrong, and at which operation."""


@pytest.fixture(autouse=True)
def _small_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    small_numbers(monkeypatch)


@dataclass(frozen=True)
class Laid:
    """A table in a folder, and what a reader of it may show, by key."""

    name: str
    folder: Path
    allowed: list[Rows]


def laid_out(folder: Path) -> Iterator[Laid]:
    """Each table twice."""
    for row, fault, at in DEATHS:
        (cell,) = cells(row, fault, at)
        before = rows_of(cell)
        cell.happen()
        name = f"{row}, {fault} at operation {at}"
        yield from _laid(f"{name}, at once", folder, cell, before)
        assert cell.look(), name
        yield from _laid(f"{name}, in the end", folder, cell, [])


def _laid(name: str, folder: Path, cell: Cell | Place, before: list[Rows]) -> Iterator[Laid]:
    table = opened(cell)
    if table is not None:
        place = folder / name.replace(" ", "-")
        cell.world.lay_out(table, place)
        yield Laid(name, place, [*before, ours(table)])


def opened(cell: Cell | Place) -> Table | None:
    """The table that a cell is about; None where there is none yet."""
    return cell.opened() if isinstance(cell, Place) else cell.world.newest()


def rows_of(cell: Cell | Place) -> list[Rows]:
    table = opened(cell)
    return [] if table is None else [ours(table)]


def require_read(folder: Path, read: Callable[[Path], Rows]) -> None:
    """A reader shows of each table what it may."""
    count = 0
    for laid in laid_out(folder):
        assert read(laid.folder) in laid.allowed, laid.name
        count += 1
    assert count > len(DEATHS)


@pytest.mark.slow
def test_hudi_rs_reads_what_the_dead_have_left(fast_path: Path) -> None:
    require_read(fast_path, hudi_rs)


@pytest.mark.spark
def test_hudis_spark_reader_reads_what_the_dead_have_left(fast_path: Path, spark: HudiSpark) -> None:
    require_read(fast_path, spark.read)

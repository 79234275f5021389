"""Sizes and tables of the suite."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from benches.suite.rounds import Bars
from benches.suite.sources import Sources, lay_open
from benches.suite.worlds import World, Worlds


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--small", action="store_true", help="few rows, few logs, two rounds: that it runs, not how fast")


@dataclass
class Scale:
    """How large a run is, and the tables it has made."""

    small: bool
    worlds: Worlds

    def bars(self, bars: Bars) -> Bars:
        """What is judged: a small run says nothing of speed."""
        return {} if self.small else bars

    def sized(self, world: World) -> World:
        """The shape at the size of this run."""
        if not self.small:
            return world
        rows = 20_000 if world.rows <= 1_000_000 else 40_000
        return replace(world, rows=rows, logs={1: 1, 10: 4, 50: 8}[world.logs])

    def sources(self, world: World) -> Sources:
        """A table of this shape, made if there is none yet, and its files."""
        world = self.sized(world)
        return lay_open(world, self.worlds.path(world))


@pytest.fixture(scope="session")
def scale(request: pytest.FixtureRequest) -> Iterator[Scale]:
    with tempfile.TemporaryDirectory(prefix="suite-") as folder:
        yield Scale(request.config.getoption("--small"), Worlds(Path(folder)))

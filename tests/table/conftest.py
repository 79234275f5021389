"""Where a test's table lies, and how it is created.

A test runs over every store of `tests.stores`; one that takes the fixture `path`, as it looks at files or runs other
processes, over a local disk alone.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.stores import STORES
from tests.table.helpers import SCHEMA, Make, Place, Places


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store_kind" in metafunc.fixturenames:
        metafunc.parametrize("store_kind", ["local"] if "path" in metafunc.fixturenames else STORES)


@pytest.fixture
def path(fast_path: Path) -> str:
    """The table's folder on a local disk."""
    return str(fast_path / "events")


@pytest.fixture
def places(store_kind: str, fast_path: Path) -> Places:
    """Where tables are, by name; on a local disk they are created and opened by their paths, as users do."""

    @cache
    def named(name: str) -> Place:
        return Place.of(store_kind, fast_path / name)

    return named


@pytest.fixture
def place(places: Places) -> Place:
    """Where the table is."""
    return places("events")


@pytest.fixture
def make(place: Place) -> Make:
    """Create the table; keywords as in `Table.create`."""
    return lambda **settings: place.create(**{"schema": SCHEMA, "key": "id"} | settings)

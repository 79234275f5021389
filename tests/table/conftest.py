"""Where a test's table lies, and how it is created.

A test runs over every store of `tests.stores`: the modules of `OVER_EVERY_STORE` before every commit, the others over
a local disk before every commit and over the other stores in the slow tier. A test that takes the fixture `path`, as it
looks at files or runs other processes, runs over a local disk alone.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from crdt_mor.format import base_file
from tests.stores import LOCAL_FIRST, SERVED, STORES
from tests.table.helpers import SCHEMA, Make, Place, Places
from tests.tiers import long, slow

OVER_EVERY_STORE = ("test_session", "test_stores", "test_write")
"""What is written and opened: with the suite of stores, these tell that a table does not mind its store."""


OVER_ONE_STORE = ("test_pruning", "test_together")
"""What is merged and ruled out here is the same over any store: over the others than a disk, it is long."""

OVER_SERVERS = {
    "s3": ("test_changes", "test_compaction", "test_overwrite", "test_stores", "test_write"),
    "azure": ("test_stores", "test_write"),
}
"""These run over object stores as well in the slow tier; `--store s3` or `--store azure` runs all of them there."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store_kind" not in metafunc.fixturenames:
        return
    module, asked = metafunc.module.__name__.rpartition(".")[2], metafunc.config.getoption("--store")
    kinds: list[Any] = list(STORES) if module in OVER_EVERY_STORE else list(LOCAL_FIRST)
    if module in OVER_ONE_STORE:
        kinds = ["local", *(long(kind) for kind in STORES if kind != "local")]
    if asked is not None:
        kinds = [asked]
    else:
        kinds += [slow(kind) for kind in SERVED if module in OVER_SERVERS[kind]]
    if "path" in metafunc.fixturenames:
        kinds = ["local"] if asked is None else [pytest.param("local", marks=pytest.mark.skip("of a local disk"))]
    metafunc.parametrize("store_kind", kinds)


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


@pytest.fixture
def uncompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a base file says can be found in its bytes."""
    options = base_file._options
    monkeypatch.setattr(
        base_file, "_options", lambda *a: {**options(*a), "compression": "NONE", "compression_level": None}
    )

"""Where a test's table lies, and how it is created."""

from __future__ import annotations

from pathlib import Path

import pytest

from crdt_mor import Table
from tests.table.helpers import SCHEMA, Make


@pytest.fixture
def path(fast_path: Path) -> str:
    return str(fast_path / "events")


@pytest.fixture
def make(path: str) -> Make:
    """Create the table; keywords as in `Table.create`."""

    def create(**settings: object) -> Table:
        arguments: dict[str, object] = {"schema": SCHEMA, "key": "id"} | settings
        return Table.create(path, **arguments)  # type: ignore[arg-type]

    return create

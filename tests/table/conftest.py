"""A table with a schema of every day, and how to ask it for its rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor import Table

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("n", pa.int64()), ("price", pa.float64())])
Make = Callable[..., Table]


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

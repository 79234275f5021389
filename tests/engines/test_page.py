"""docs/engines.md names the versions that run, and each known failure in the engine's words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.engines.__main__ import lines
from tests.engines.known import KNOWN, Known
from tests.engines.servers import HIVE, NESSIE, REST, TRINO
from tests.engines.shapes import shapes
from tests.engines.spark import JARS

PAGE = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
PACKAGES = ("chdb-core", "daft", "datafusion", "deltalake", "duckdb", "polars", "pyiceberg", "pyspark", "trino")


def test_page_names_versions_and_shapes() -> None:
    pinned = [line for name in ("own", "light", "heavy") for line in lines(name)]
    versions = {re.sub(r"\[.*\]", "", name): version for name, _, version in (line.partition("==") for line in pinned)}
    assert not [package for package in PACKAGES if versions[package] not in PAGE]
    assert not [server for server in (REST[0], HIVE[0], NESSIE, TRINO) if server.split(":")[2] not in PAGE]
    assert not [name for name in (*JARS, *(shape.name for shape in shapes())) if name not in PAGE]


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.engine} {known.mirror} {known.words}"[:60])
def test_page_has_each_refusal_in_the_engines_words(known: Known) -> None:
    assert known.words in PAGE

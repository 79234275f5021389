"""docs/reference/spark.md, held to the code: every block runs, and what it shows is what comes out."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import crdt_mor as mor
from tests.guides import blocks, words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "spark.md"


@pytest.mark.filterwarnings(f"ignore::{mor.errors.PartitionNotInKeyWarning.__module__}.PartitionNotInKeyWarning")
def test_every_block_of_the_page_runs_and_shows_what_it_prints(spark: SparkSession, fast_path: Path) -> None:
    names: dict[str, object] = {"spark": spark}
    for block in blocks(PAGE.read_text()):
        # Spark's processes are in the folder in which the session of these tests was started.
        code = block.code.replace('"lake/', f'"{fast_path}/lake/')
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(code, f"{PAGE.name}:{block.line}", "exec"), names)
        assert words(printed.getvalue()) == words(block.shown), f"{PAGE.name}:{block.line}\n{printed.getvalue()}"

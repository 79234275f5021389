"""docs/spark.md, held to the code: every block runs, and what it shows is what comes out."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crdt_mor.readers.spark.options import KNOWN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GUIDE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)


def test_every_block_runs_and_shows_what_it_prints(
    spark: SparkSession, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fast_path)
    names: dict[str, object] = {}
    for block in BLOCK.finditer(GUIDE):
        # Spark's processes are in the folder in which the session of these tests was started.
        code = block[1].replace('load("pages")', f'load("{fast_path}/pages")')
        code = code.replace('"checkpoints/', f'"{fast_path}/checkpoints/')
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(code, f"docs/spark.md:{GUIDE[: block.start()].count(chr(10))}", "exec"), names)
        assert printed.getvalue().split() == (block[2] or "").split(), code
    spark.sql("DROP TABLE pages")


def test_every_option_is_in_the_guide() -> None:
    assert [name for name in KNOWN if f"`{name}`" not in GUIDE and name != "path"] == []

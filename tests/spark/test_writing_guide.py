"""docs/spark-writing.md, held to the code: every block runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from readers.spark import CrdtMorSource
from tests.spark.sessions import ROOT, fixture

pytestmark = pytest.mark.spark
spark = fixture()

GUIDE = (ROOT / "docs" / "spark-writing.md").read_text()


def test_every_block_of_the_guide_runs(spark: Any, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    names: dict[str, Any] = {"spark": spark}
    for block in blocks:
        if "readStream.format" in block and "streamReader" not in vars(CrdtMorSource):
            continue
        whole = re.sub(r'"/(lake|landing|checkpoints)/', rf'"{tmp_path}/\1/', block)
        exec(compile(whole, "spark-writing.md", "exec"), names)

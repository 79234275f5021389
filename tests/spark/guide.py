"""The blocks of docs/spark-writing.md."""

from __future__ import annotations

import re
from pathlib import Path

from tests.spark.sessions import ROOT

BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
GUIDE = BLOCK.findall((ROOT / "docs" / "spark-writing.md").read_text())
SCRIPT = "# pipeline.py\n"


def below(folder: Path, block: str) -> str:
    """A block of a page, its absolute paths below `folder`."""
    return re.sub(r'"/(lake|landing|checkpoints)/', rf'"{folder}/\1/', block)

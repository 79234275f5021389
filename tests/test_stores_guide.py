"""The programs of docs/stores.md run against an S3 on loopback, one after another, and print what the guide shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("obstore", reason="no client of object stores: pip install obstore")

from tests import servers
from tests.guides import blocks

GUIDE = Path(__file__).parents[1] / "docs" / "stores.md"


@pytest.mark.slow
def test_the_programs_of_the_guide_run_and_show_what_they_print(tmp_path: Path) -> None:
    programs = [block for block in blocks(GUIDE.read_text()) if block.language == "python"]
    assert len(programs) > 1
    options = {name.upper(): value for name, value in servers.s3().options.items()}
    ran = subprocess.run(
        [sys.executable, "-Werror", "-c", "\n".join(block.code for block in programs)],
        cwd=tmp_path, env=os.environ | options, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.stdout == "".join(block.shown for block in programs), ran.stderr

"""The programs of docs/processes.md: each is saved under the name it begins with, and prints what it shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.guides import Block, blocks, words

GUIDE = Path(__file__).parents[1] / "docs" / "processes.md"


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks(GUIDE.read_text()), ids=lambda block: f"line {block.line}")
def test_each_program_of_the_guide_runs_and_shows_what_it_prints(block: Block, fast_path: Path) -> None:
    assert block.language == "python", "a block that nothing runs"
    program = fast_path / block.code.removeprefix("# ").partition(":")[0]
    program.write_text(block.code)
    command = [sys.executable, "-Werror", str(program)]
    ran = subprocess.run(command, cwd=fast_path, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    assert words(ran.stdout) == words(block.shown)

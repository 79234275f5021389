"""A test that hangs ends and is named, and the tests beside it are run: the settings of pytest in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
TESTS = """\
import threading

def test_ends(): pass
def test_waits(): threading.Event().wait()
def test_ends_too(): pass
"""


@pytest.mark.slow
def test_a_test_that_hangs_ends_and_is_named(tmp_path: Path) -> None:
    """With a timeout of a second instead of the minutes of the settings; nothing else is changed."""
    file = tmp_path / "test_some.py"
    file.write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(PYPROJECT),
        "--rootdir",
        str(tmp_path),
        "-p",
        "no:cacheprovider",
    ]
    command += ["-n", "1", "-o", "faulthandler_timeout=1", str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "crashed while running 'test_some.py::test_waits'" in done.stdout
    assert "1 failed, 2 passed" in done.stdout
    assert f'"{file}", line 4 in test_waits' in done.stderr, "the stack says where it waits"

"""A user's own folders may be called `payloads` and `readers`: what is hidden by them is said, and by what."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import crdt_mor as mor

PROGRAM = """
import crdt_mor as mor, pyarrow as pa
schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
attempts = [
    lambda: mor.Table.open("t").scan().to_arrow(),
    lambda: mor.Table.open("t").upsert(pa.table({"id": ["a"], "n": [1]})),
    lambda: mor.Table.create("u", schema, key="id", merge={"n": "counter"}),
]
for attempt in attempts:
    try:
        attempt()
    except mor.UnknownPayloadError as error:
        print(error)
from crdt_mor.cli.main import app
app(["cat", "t"], standalone_mode=False)
"""


@pytest.fixture
def project(fast_path: Path) -> Path:
    """A project with packages of these names, and a table that needs a payload of ours."""
    for name in ("payloads", "readers"):
        (fast_path / name).mkdir()
        (fast_path / name / "__init__.py").write_text("from pathlib import Path\nPath('has_run').touch()")
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    mor.Table.create(fast_path / "t", schema, key="id", merge={"n": "counter"})
    return fast_path


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program in the folder of the project, which Python has on its path, before ours."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=project, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_package_that_hides_our_payloads_is_named(project: Path) -> None:
    done = run(project, "-c", PROGRAM)
    said = done.stdout.splitlines()
    assert len(said) == 3, done.stderr
    for line in (*said, done.stderr):
        assert "another module named 'payloads' comes before the one of crdt-mor" in line
        assert "rename yours" in line
        assert f"found={project}/payloads/__init__.py" in line
    assert not (project / "has_run").exists(), "the other package is not run"


def test_a_package_that_hides_our_readers_is_named(project: Path) -> None:
    done = run(project, "-m", "crdt_mor.cli.main", "changes", "t", "--follow", "--format", "jsonl")
    assert done.returncode == 1
    assert done.stderr.startswith("error: another module named 'readers' comes before the one of crdt-mor")
    assert f"found={project}/readers/__init__.py" in done.stderr

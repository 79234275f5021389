"""A user's own folders may be called `payloads` and `readers`: nothing of ours is looked for under these names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import crdt_mor as mor
from tests.tiers import slow

PROGRAM = """
import crdt_mor as mor, pyarrow as pa
from crdt_mor.readers.polars import scan_table
schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
table = mor.Table.open("t")
table.upsert(pa.table({"id": ["a"], "n": [2]}))
mor.Table.create("u", schema, key="id", merge={"n": "counter"}).upsert(table.scan().to_arrow())
print(scan_table(mor.Table.open("u")).collect().rows())
"""


@pytest.fixture
def project(fast_path: Path) -> Path:
    """A project with packages of these names, and a table that needs a payload of ours."""
    for name in ("payloads", "readers"):
        (fast_path / name).mkdir()
        (fast_path / name / "__init__.py").write_text("from pathlib import Path\nPath('has_run').touch()")
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = mor.Table.create(fast_path / "t", schema, key="id", merge={"n": "counter"})
    table.upsert(pa.table({"id": ["a"], "n": [1]}))
    return fast_path


def run(project: Path, *arguments: str) -> str:
    """What a program prints in the folder of the project, which Python has on its path before ours."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=project, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not (project / "has_run").exists(), "a package of the user's was run in place of ours"
    return done.stdout


def test_a_program_beside_packages_of_these_names_finds_ours(project: Path) -> None:
    assert run(project, "-c", PROGRAM) == "[('a', 3)]\n"


@pytest.mark.parametrize("command", [["cat", "t", "--format", "jsonl"], slow(["laws", "crdt_mor.payloads:Counter"])])
def test_the_command_line_beside_packages_of_these_names_finds_ours(project: Path, command: list[str]) -> None:
    assert run(project, "-m", "crdt_mor.cli.main", *command)

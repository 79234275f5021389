"""A user's own folders may be called `payloads` and `readers`: nothing of ours is looked for under these names.

The folders of the checkout that bear these names are found without the symbolic links of the package, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import crdt_mor as mor
from tests.tiers import slow

ROOT = Path(__file__).parent.parent

PROGRAM = """
import crdt_mor as mor, pyarrow as pa
from crdt_mor.readers.polars import scan_table
schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
table = mor.Table("t")
table.upsert(pa.table({"id": ["a"], "n": [2]}))
mor.Table.create("u", schema, key="id", merge={"n": "counter"}).upsert(table.scan().to_arrow())
print(scan_table(mor.Table("u")).collect().rows())
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


@pytest.mark.slow
def test_a_program_beside_packages_of_these_names_finds_ours(project: Path) -> None:
    assert run(project, "-c", PROGRAM) == "[('a', 3)]\n"


@pytest.mark.slow
@pytest.mark.parametrize("command", [["cat", "t", "--format", "jsonl"], slow(["laws", "crdt_mor.payloads:Counter"])])
def test_the_command_line_beside_packages_of_these_names_finds_ours(project: Path, command: list[str]) -> None:
    assert run(project, "-m", "crdt_mor.cli.main", *command)


@pytest.mark.parametrize("link", [slow("a file with the address"), slow("nothing")])
def test_a_checkout_without_symbolic_links_finds_its_folders(fast_path: Path, link: str) -> None:
    """Git for Windows makes a text file of each link, and programs that unpack a zip file make that or nothing."""
    for folder in ("crdt_mor", "payloads", "readers"):
        shutil.copytree(ROOT / folder, fast_path / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("payloads", "readers"):
        (fast_path / "crdt_mor" / name).unlink()
        if link != "nothing":
            (fast_path / "crdt_mor" / name).write_text(f"../{name}")
    said = run(fast_path, "-c", "import crdt_mor.readers.polars as found, crdt_mor.payloads; print(found.__file__)")
    assert said == f"{fast_path}/readers/polars.py\n"

"""`Table.verify` reports unreadable commit files of Hudi's writers, although no snapshot can be read then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crdt_mor import Table
from crdt_mor.model.instant import from_ms, to_ms
from crdt_mor.testing.simulation.hudi_writer import hudi_commits
from tests.format.hudi_files import unpack
from tests.simulation import foreign_commits

UNKNOWN = "rows and data files, because the table's files are unknown"


def made_by_hudi(folder: Path) -> Path:
    return unpack("v9_nonpart", folder)


def written_by_hudi(folder: Path) -> Path:
    """A table of ours with two commits of Hudi."""
    table = Table.create(folder / "t", foreign_commits.SCHEMA, key="k", buckets=1)
    now_ms = to_ms(table.upsert(foreign_commits.rows("a")).completed_at)
    for later in (2, 6):
        hudi_commits(table, foreign_commits.rows(f"b{later}"), from_ms(now_ms + later), from_ms(now_ms + later + 2))
    return folder / "t"


@pytest.mark.parametrize("make", [made_by_hudi, written_by_hudi])
@pytest.mark.parametrize("damaged", [b"", b"garbage", b"Obj\1"], ids=["empty", "garbage", "cut"])
def test_verify_commit_files_of_hudi_are_damaged_names_each(
    fast_path: Path, make: Callable[[Path], Path], damaged: bytes
) -> None:
    root = make(fast_path)
    table = Table(root)
    files = sorted((root / ".hoodie/timeline").glob("*.deltacommit"))[-2:]
    contents = [file.read_bytes() for file in files]
    for file in files:
        file.write_bytes(damaged)
    found = table.verify()
    places = [("Hudi's commit", str(file.relative_to(root))) for file in files]
    assert [(finding.check, finding.path) for finding in found.findings] == places
    assert UNKNOWN in found.not_looked_at
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    assert table.verify().is_sound


def test_verify_the_manifest_of_hudis_history_is_damaged_names_the_history(fast_path: Path) -> None:
    root = made_by_hudi(fast_path)
    table = Table(root)
    history = root / ".hoodie/timeline/history"
    history.mkdir(exist_ok=True)
    (history / "_version_").write_bytes(b"1")
    (history / "manifest_1").write_bytes(b"garbage")
    (finding,) = table.verify().findings
    assert (finding.check, finding.path) == ("Hudi's commit", ".hoodie/timeline/history")
    assert "manifest_1" in finding.description

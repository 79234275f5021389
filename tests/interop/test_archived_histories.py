"""Archiving at any moment changes no row, neither for us nor for Hudi's readers; without its conditions it would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crdt_mor import Table
from crdt_mor.log import publish
from tests.interop.histories import write_history
from tests.interop.readers import HudiSpark, Rows, hudi_rs, ours
from tests.interop.shapes import Maker
from tests.tiers import seeds, slow


@pytest.fixture(autouse=True)
def everything_is_soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version goes as soon as there is a newer one, and completions move to segments one by one."""
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 1)
    monkeypatch.setattr(publish, "EXPIRE_EVERY", 1)
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 1)


class Archiver:
    """Archives, and has every reader look before and after."""

    def __init__(self, root: Path, read: Callable[[Path], Rows] | None = hudi_rs) -> None:
        self.root, self.read = root, read
        self.instants = 0

    def __call__(self, table: Table) -> None:
        before = ours(table)
        history = {version: ours(table, as_of=version) for version in range(table.version, table.version - 2, -1)}
        self.instants += table.maintenance.archive(keep_commits=1).instants
        assert ours(table) == ours(Table(str(self.root))) == before
        assert {version: ours(table, as_of=version) for version in history} == history
        if self.read is not None:
            assert self.read(self.root) == before


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(1), range(1, 20), range(20, 40)))
@pytest.mark.parametrize("ordering", ["n", slow(None)])
def test_random_histories_in_hudi_rs(make: Maker, seed: int, ordering: str | None) -> None:
    archiver = Archiver(make.root)
    table = write_history(make, seed, ordering, archiver)
    table.maintenance.compact()
    archiver(table)
    assert hudi_rs(make.root) == ours(table)


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(200, 208))
@pytest.mark.parametrize("ordering", [None, "n"])
def test_random_histories_in_spark(make: Maker, spark: HudiSpark, seed: int, ordering: str | None) -> None:
    table = write_history(make, seed, ordering, Archiver(make.root))
    assert spark.read(make.root) == ours(table)

"""Small file slices, or their logs, are merged together, and no answer tells: neither rows, nor counts, nor errors."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from crdt_mor import Commit, SnapshotExpiredError, Table
from crdt_mor.errors import FormatError
from crdt_mor.ground.bounded import Bounded
from crdt_mor.merge import base_rows, kernel, key_words
from crdt_mor.read import together
from tests.inside import session_of
from tests.table.compacting import written
from tests.table.helpers import MERGES, Make, Place, frame
from tests.tiers import seeds, slow

Answers = list[object]
FILTERS = (
    None, "n > 8", "region = 'a'", "id = 'k11' or price is null", pl.col("price").is_null() & (pl.col("n") < 12),
    "id between 'k05' and 'k21' and n > 3",
)  # fmt: skip


Question = tuple[int, int]
"""A moment and a filter, by their places."""

EVERY: list[Question] = list(product(range(3), range(len(FILTERS))))
CASES = list(product(MERGES, ("flat", "partitions")))


FAST = [CASES[2], CASES[5]]
"""The cases of the fast tier: each layout once."""


def questions(merge: str, layout: str, seed: int) -> list[Question]:
    """What is asked of a case: all, or a part with seed 0, of which the cases together ask it all."""
    return EVERY if seed else EVERY[CASES.index((merge, layout)) :: len(CASES)]


def answers(table: Table, commits: list[Commit], asked: Sequence[Question]) -> Answers:
    """What scans of the newest snapshot and as of two commits say, with and without conditions and a limit."""
    found: Answers = []
    moments = (None, commits[-2], commits[len(commits) // 2])
    for as_of, condition in ((moments[moment], FILTERS[which]) for moment, which in asked):
        scan = table.scan(filter=condition, as_of=as_of)
        narrow = table.scan(columns="price", filter=condition, as_of=as_of)
        rows = sorted(scan.to_polars().rows(), key=repr)
        found += [rows, scan.count(), narrow.to_polars().height == len(rows)]
        found.append(table.scan(filter=condition, as_of=as_of, limit=3).to_polars().height == min(3, len(rows)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("merge", "layout"), [case if case in FAST else slow(*case) for case in CASES])
@pytest.mark.parametrize("seed", seeds([0], [], range(1, 20)))
def test_every_answer_is_as_of_slices_that_are_merged_alone(
    make: Make, merge: str, layout: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(buckets=5, partition_by="region" if layout == "partitions" else (), **MERGES[merge])
    commits, asked = written(table, random.Random(seed)), questions(merge, layout, seed)
    session_of(table).views.resolutions = Bounded(0)  # so that each scan merges
    at_once: dict[str, int] = {}

    def count(name: str, work: Any) -> None:
        def counted(slices: Any, *args: Any, **settings: Any) -> Any:
            at_once[name] = max(at_once.get(name, 0), len(slices))
            return work(slices, *args, **settings)

        monkeypatch.setattr(kernel, name, counted)

    for name in ("joined", "resolve_at_once", "read_at_once"):
        count(name, getattr(kernel, name))
    small = answers(table, commits, asked)
    assert at_once.pop("joined") > 1
    at_once.clear()
    monkeypatch.setattr(together, "BYTES_MAX", 0)
    large = answers(table, commits, asked)
    assert at_once.keys() == ({"resolve_at_once", "read_at_once"} if merge == "latest" else set())
    assert all(slices > 1 for slices in at_once.values())
    at_once.clear()
    if merge == "latest":
        monkeypatch.setattr(together, "BASE_BYTES_MAX", 0)
        assert large == answers(table, commits, asked)
        assert at_once.pop("read_at_once") == 1, "each base by itself"
        at_once.clear()
    monkeypatch.setattr(together, "SLICES_MAX", 1)
    assert small == large == answers(table, commits, asked)
    assert not at_once
    monkeypatch.setattr(key_words, "_MANY", 0)  # keys as words, which are else taken for many keys alone
    monkeypatch.setattr(base_rows, "IN_SCAN_WORDS_MAX", 0)
    assert small == answers(table, commits, asked)
    monkeypatch.setattr(together, "SLICES_MAX", 64)
    assert small == answers(table, commits, asked)


def test_slices_are_joined_as_far_as_they_are_small(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(buckets=9)
    table.upsert(frame(*((f"k{i:02d}", "x", i) for i in range(60))))
    table.maintenance.compact()
    assert len(list(table.scan().frames())) == 1
    monkeypatch.setattr(together, "SLICES_MAX", 4)
    assert len(list(table.scan().frames())) == 3
    monkeypatch.setattr(together, "BYTES_MAX", 2 * max(table.inspect.files()["bytes"].to_pylist()))
    assert 5 <= len(list(table.scan().frames())) <= 9
    monkeypatch.setattr(together, "BYTES_MAX", 0)
    assert len(list(table.scan().frames())) == 9


@pytest.mark.parametrize("bytes_max", [0, together.BYTES_MAX], ids=["logs", "slices"])
@pytest.mark.parametrize("kind", ["base", "log"])
def test_the_file_that_is_to_blame_is_named(
    fast_path: Path, kind: str, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "BYTES_MAX", bytes_max)
    place = Place.of("local", fast_path / "t")
    table = place.create(schema=frame().schema, key="id", buckets=6)
    table.upsert(frame(*((f"k{i:02d}", "x", i) for i in range(60))))
    table.maintenance.compact()
    table.upsert(frame(*((f"k{i:02d}", "y", i) for i in range(60))))
    every = table.inspect.files().to_pylist()
    victim = fast_path / "t" / [file["path"] for file in every if file["kind"] == kind][3]
    good = victim.read_bytes()
    middle = good.index(b"PAR1") + 8
    victim.write_bytes(good[:middle] + bytes(len(good) - middle - 200) + good[-200:])
    with pytest.raises(FormatError, match=victim.name.replace(".", r"\.")):
        place.open().scan().to_polars()
    victim.unlink()
    with pytest.raises(SnapshotExpiredError, match=victim.name.replace(".", r"\.")):
        table.scan().to_polars()
    victim.write_bytes(good)
    assert table.scan().count() == 60

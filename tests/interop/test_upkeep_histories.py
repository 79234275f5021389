"""Whatever upkeep runs between writes and beside them, Hudi's readers give our rows after each step, or refuse."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.interop.readers import HudiSpark, Refused, Rows, hudi_rs, ours
from tests.interop.shapes import Maker
from tests.interop.upkeep_histories import CUSTOM, KINDS, MovingHistory, UpkeepHistory, soon_over
from tests.tiers import seeds, slow

FAST = ("default", "payloads")
"""The kinds of the fast tier: one whose logs Hudi's readers merge, and one whose logs they refuse."""


def in_hudi_rs(history: UpkeepHistory) -> None:
    path = history.make.root
    if history.is_refused:
        with pytest.raises(Refused, match="CUSTOM"):
            hudi_rs(path)
    else:
        assert hudi_rs(path) == ours(history.table), history.story


@pytest.mark.parametrize("seed", seeds(range(1), range(1, 3), range(3, 6)))
@pytest.mark.parametrize("kind", [kind if kind in FAST else slow(kind) for kind in KINDS])
def test_hudi_rs_after_each_step(make: Maker, seed: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    soon_over(monkeypatch, seed)
    history = UpkeepHistory(make, seed, kind)
    history.run(5 if seed < 1 else 40, in_hudi_rs)
    assert history.archived
    assert history.dropped


def in_hudi_rs_wherever_it_was(history: UpkeepHistory) -> None:
    in_hudi_rs(history)
    assert isinstance(history, MovingHistory)
    if history.steps[-1] == "move" and history.left[-1].is_read_by_hudi:
        assert hudi_rs(history.left[-1].path) == history.left[-1].rows


@pytest.mark.parametrize("seed", seeds(range(1), range(1, 2)))
@pytest.mark.parametrize("kind", [kind if kind == "default" else slow(kind) for kind in KINDS])
def test_hudi_rs_after_each_step_of_tables_that_move(
    make: Maker, seed: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon_over(monkeypatch, seed)
    history = MovingHistory(make, seed, kind)
    history.run(2 if seed < 1 else 20, in_hudi_rs_wherever_it_was)
    assert history.left


@pytest.mark.spark
@pytest.mark.parametrize(
    ("seed", "kind", "made"),
    [
        *((seed, kind, UpkeepHistory) for kind in KINDS for seed in range(100, 103)),
        *((100, kind, MovingHistory) for kind in ("default", "partitions")),
    ],
)
def test_spark_after_each_step(
    make: Maker,
    spark: HudiSpark,
    seed: int,
    kind: str,
    made: type[UpkeepHistory],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table is copied after each step, and Spark reads all copies in the end."""
    soon_over(monkeypatch, seed)
    seen: list[tuple[str, Path, Rows | None]] = []

    def copied(history: UpkeepHistory) -> None:
        path = tmp_path / f"step{len(seen)}"
        # Hudi looks at nothing of ours, and heartbeats may come and go while the files are copied.
        shutil.copytree(history.make.root, path, ignore=shutil.ignore_patterns(".crdt_mor", ".heartbeat"))
        seen.append((history.story, path, None if history.is_refused else ours(history.table)))

    history = made(make, seed, kind)
    history.run(12, copied)
    assert history.archived
    for story, path, rows in seen:
        if rows is None:
            with pytest.raises(Refused, match="No valid spark merger implementation"):
                spark.read(path)
        else:
            assert spark.read(path) == rows, story
    assert any(rows is not None for _, _, rows in seen)
    assert made is not UpkeepHistory or any(rows is None for _, _, rows in seen) == (kind in CUSTOM)

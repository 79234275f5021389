"""Whatever upkeep runs between writes and beside them, Hudi's readers give our rows after each step, or refuse."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from crdt_mor.events import sweep
from crdt_mor.hudi import actions
from crdt_mor.hudi import restore as cutting
from crdt_mor.hudi.actions import ACTIONS, bears_our_key
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.steps import Read, Steps
from crdt_mor.model.names import TimelineFileName
from crdt_mor.services import restore
from tests.interop.readers import HudiSpark, Refused, Rows, hudi_rs, ours
from tests.interop.shapes import Maker
from tests.interop.stalling_histories import StallingHistory
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(1), range(1, 2), range(2, 6)))
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(1), range(1, 2)))
@pytest.mark.parametrize("kind", [kind if kind == "default" else slow(kind) for kind in KINDS])
def test_hudi_rs_after_each_step_of_tables_that_move(
    make: Maker, seed: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon_over(monkeypatch, seed)
    history = MovingHistory(make, seed, kind)
    history.run(2 if seed < 1 else 20, in_hudi_rs_wherever_it_was)
    assert history.left


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(1), range(1, 2), range(2, 6)))
@pytest.mark.parametrize("kind", [kind if kind == "default" else slow(kind) for kind in KINDS])
def test_hudi_rs_beside_processes_that_freeze_and_users_who_may_not_delete(
    make: Maker, seed: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon_over(monkeypatch, seed)
    history = StallingHistory(make, seed, kind)
    history.run(1 if seed < 1 else 25, in_hudi_rs)
    assert history.archived
    assert history.dropped


def a_completed_file_is_not_known_as_ours(patch: pytest.MonkeyPatch) -> None:
    known = actions.bears_our_key

    def by_the_word_in_its_name(name: TimelineFileName, data: bytes, path: str) -> bool:
        return name.action in ACTIONS and known(name, data, path)

    patch.setattr(sweep, "bears_our_key", by_the_word_in_its_name)


def an_empty_file_is_not_known_as_ours(patch: pytest.MonkeyPatch) -> None:
    def by_its_key_alone(publisher: TablePublisher, names: Sequence[TimelineFileName]) -> Steps[bool]:
        for name in names:
            path = publisher.projector.path(name)
            if bears_our_key(name, (yield Read(path)) or b"", path):
                return True
        return False

    patch.setattr(sweep, "_are_ours", by_its_key_alone)


def a_restore_goes_past_what_stays(patch: pytest.MonkeyPatch) -> None:
    drop = cutting.drop

    def heedless(*args: Any) -> Steps[bool]:
        yield from drop(*args)
        return True

    patch.setattr(cutting, "drop", heedless)


def a_restore_says_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(restore, "_require_carried_out", lambda session: None)


def no_sweep_goes_on_with_a_restore(patch: pytest.MonkeyPatch) -> None:
    def nothing(*_: Any) -> Steps[None]:
        return None
        yield

    patch.setattr(sweep, "_sweep_dropped", nothing)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "first"),
    [
        (a_completed_file_is_not_known_as_ours, 4),
        (an_empty_file_is_not_known_as_ours, 6),
        (a_restore_goes_past_what_stays, 1),
        (a_restore_says_nothing, 1),
        (no_sweep_goes_on_with_a_restore, 1),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_such_histories_find(
    bug: Callable[[pytest.MonkeyPatch], None], first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first seed is one of those that find it."""
    soon_over(monkeypatch, 0)
    bug(monkeypatch)
    with ExitStack() as stack, pytest.raises(AssertionError):  # noqa: PT012
        for number, seed in enumerate((first, *range(8))):
            StallingHistory(Maker(tmp_path / f"t{number}", stack), seed, "default").run(8, in_hudi_rs)


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

"""Random histories of real tables: whatever happened in whatever order, every answer is the plain fold of the commits.

A failure prints the whole history; the test's name holds its rule and seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from crdt_mor import SnapshotExpiredError
from crdt_mor.events import group
from crdt_mor.events import restore as events
from crdt_mor.events.session import Session
from crdt_mor.format import bloom
from crdt_mor.log.posts import Post, chosen
from crdt_mor.log.steps import Steps
from crdt_mor.merge import compaction
from crdt_mor.model import timeline
from crdt_mor.model.config import TableConfig
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.invariants import BrokenInvariantError
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile, Token
from crdt_mor.planners import clean, restore
from crdt_mor.planners.compaction import CompactionPlan
from crdt_mor.read import cut, snapshot
from crdt_mor.read.window import Mode, Window
from crdt_mor.services import compaction as compact
from crdt_mor.services import erasure
from crdt_mor.write import one_event
from crdt_mor.write.posts import group_of
from crdt_mor.write.statements import Statements
from tests.inside import tail_of
from tests.simulation.random_history import RULES, run
from tests.simulation.restore_history import run_restoring
from tests.simulation.upkeep_history import UpkeepHistory, run_upkeep
from tests.tiers import only, seeds, slow

EARLIER_VIEWS = clean._earlier_views


@pytest.mark.parametrize("steps", [12, slow(25)])
@pytest.mark.parametrize("rule", only(["latest"], RULES))
def test_snapshot_and_every_as_of_equal_the_plain_fold(rule: str, steps: int, fast_path: Path) -> None:
    run(0, rule, fast_path / "t", steps=steps)


@pytest.mark.parametrize("seed", seeds((), range(1, 3), range(3, 6)))
@pytest.mark.parametrize("rule", RULES)
def test_so_they_do_of_more_seeds(rule: str, seed: int, fast_path: Path) -> None:
    run(seed, rule, fast_path / "t", steps=25)


@pytest.mark.slow
@pytest.mark.skipif(not bloom.are_written(), reason="this release of pyarrow writes no Bloom filters")
def test_a_filter_that_rules_out_a_key_that_is_there_is_found(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The histories look keys up in base files that are in another order, else they showed nothing of them."""
    monkeypatch.setattr(bloom, "_any_in", lambda *_: False)

    def some_histories() -> None:
        for seed in (13, 7, 11, 21, 23):
            run(seed, "latest", fast_path / str(seed), steps=25)

    with pytest.raises(AssertionError, match="wanted"):
        some_histories()


def without_rows(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    return frame.select(columns)


def asked_for_none(self: Window, mode: Mode, select: Sequence[str]) -> Iterator[pl.DataFrame]:
    frames: Iterator[pl.DataFrame] = getattr(self, mode)(select)
    return frames


@pytest.mark.costly
@pytest.mark.parametrize(
    ("place", "name", "planted", "what"),
    [(snapshot, "selected", without_rows, "rows without columns"), (Window, "frames", asked_for_none, "Follower")],
    ids=["scans", "changes"],
)
def test_rows_that_go_with_their_columns_are_found(
    place: Any, name: str, planted: Any, what: str, fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, planted)
    with pytest.raises(AssertionError, match=what):
        run(1, "latest", fast_path / "t", steps=25)


@pytest.mark.parametrize("seed", seeds((), [1000], range(1001, 1004)))
@pytest.mark.parametrize("rule", RULES)
def test_long_histories_too(rule: str, seed: int, fast_path: Path) -> None:
    run(seed, rule, fast_path / "t", steps=80)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rules", [["latest"], slow(["payloads", "ordering", "partial", "partial, keep", "partial, payloads"])]
)
def test_services_savepoints_and_restores_change_no_answer_that_is_kept(rules: list[str], tmp_path: Path) -> None:
    everything_happens([run_restoring(seed, rule, tmp_path, steps=8) for seed, rule in enumerate(rules)])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 20))
def test_nor_do_they_in_long_histories(seed: int, tmp_path: Path) -> None:
    histories = [run_upkeep(seed, rule, tmp_path, steps=40) for rule in RULES]
    everything_happens(histories)
    assert any(size > 1 for history in histories for size in history.groups.sizes)


@pytest.mark.parametrize("seed", seeds((), [20], range(21, 30)))
def test_nor_does_any_restore_in_long_histories(seed: int, tmp_path: Path) -> None:
    histories = [run_restoring(seed, rule, tmp_path, steps=30) for rule in RULES]
    everything_happens(histories)
    assert sum(len(history.gone) for history in histories) > 10
    assert sum(history.again for history in histories)


def keeps_tokens(value: Timeline, *_: object) -> Iterable[Token]:
    return value.tokens


def keeps_plans(value: Timeline, *arguments: Any) -> Timeline:
    return replace(restore.restored(value, *arguments), plans=value.plans)


def forgets_savepoints(value: Timeline) -> list[Cut]:
    return EARLIER_VIEWS(replace(value, savepoints=()))


def hides_nothing(*_: object) -> None:
    return None


def run_some(path: Path) -> None:
    """A few short histories, those first that show most mistakes."""
    for seed in (2, 1, 0, 3, 4, 5):
        run_restoring(seed, "latest", path, steps=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "name", "planted", "bug"),
    [
        (restore, "_tokens", keeps_tokens, AssertionError),
        (events, "restored", keeps_plans, BrokenInvariantError),
        (clean, "_earlier_views", forgets_savepoints, SnapshotExpiredError),
        (cut, "restore_hiding", hides_nothing, pytest.fail.Exception),
        (cut, "refuse_cut_off", hides_nothing, pytest.fail.Exception),
    ],
    ids=["tokens stay", "plans stay", "a clean forgets savepoints", "checkpoints go on", "cut moments are answered"],
)
def test_histories_find_what_is_planted(
    place: Any, name: str, planted: Any, bug: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, planted)
    with pytest.raises(bug):
        run_some(tmp_path)


def an_executor_looks_at_what_is_pending_now(patch: pytest.MonkeyPatch) -> None:
    execute = compact._execute

    def careless(session: Session, plan: CompactionPlan, threads: int) -> list[DataFile]:
        pending = tuple(sorted(p.requested for p in session.tail().pending))
        return execute(session, replace(plan, pending=pending), threads)

    patch.setattr(compact, "_execute", careless)


def no_deletes_are_carried(patch: pytest.MonkeyPatch) -> None:
    fold = compaction.compact_all
    patch.setattr(compact, "compact_all", lambda *files: replace(fold(*files), carry=list))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "rule", "seeds_that_find"),
    [
        (an_executor_looks_at_what_is_pending_now, "partial", (12, 18)),
        (no_deletes_are_carried, "latest", (114, 57, 163)),
    ],
)
def test_histories_find_a_compaction_that_does_not_go_by_its_plan(
    plant: Callable[[pytest.MonkeyPatch], None],
    rule: str,
    seeds_that_find: Sequence[int],
    fast_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)

    def some_histories() -> None:
        for seed in seeds_that_find:
            run(seed, rule, fast_path / str(seed), steps=25)

    with pytest.raises(AssertionError, match="wanted"):
        some_histories()


def the_last_posted_comes_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group, "chosen", lambda *arguments: chosen(*arguments)[::-1])


def deletes_of_a_group_come_last(patch: pytest.MonkeyPatch) -> None:
    fold = group_of

    def careless(
        config: TableConfig, tail: Timeline, requested: InstantTime, posts: Sequence[Post], *own: Any
    ) -> tuple[Statements, list[Post]]:
        statements, taken = fold(config, tail, requested, sorted(posts, key=lambda post: post.deletes), *own)
        return statements, [post for post in posts if post in taken]

    patch.setattr(one_event, "group_of", careless)


def names_of_posts_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(timeline, "noting", lambda noted, _: noted)


def an_erasure_leaves_posts(patch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> Steps[list[str]]:
        return []
        yield

    patch.setattr(erasure, "sweep_posts", nothing)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        (the_last_posted_comes_first, 2),
        (deletes_of_a_group_come_last, 2),
        (names_of_posts_are_forgotten, 2),
        (an_erasure_leaves_posts, 6),
    ],
)
def test_histories_find_a_mistake_of_groups(
    plant: Callable[[pytest.MonkeyPatch], None], seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.simulation.groups.SHARE", 0.5)
    monkeypatch.setattr("tests.simulation.groups.DEAD_SHARE", 0.6)
    plant(monkeypatch)
    with pytest.raises((AssertionError, BrokenInvariantError)):
        run_upkeep(seed, "latest", tmp_path, steps=10)


@pytest.mark.slow
def test_images_of_stable_changes_beside_a_write_that_is_older_than_what_is_kept(tmp_path: Path) -> None:
    run_upkeep(42, "partial, keep", tmp_path, steps=40)


def everything_happens(histories: Sequence[UpkeepHistory]) -> None:
    """The histories together have archived instants and dropped commits, else they showed nothing of either."""
    tails = [tail_of(history.table) for history in histories]
    assert any(tail.archive.watermark > EPOCH for tail in tails)
    assert any(tail.retention.dropped_count for tail in tails)

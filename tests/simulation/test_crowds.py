"""Crowds of writers, simulated: each acknowledged commit is there once, whichever dies, and many share a version."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

import pytest

from crdt_mor.log.combining import Posting
from crdt_mor.log.outcome import all_completions
from crdt_mor.log.paths import POSTS
from crdt_mor.log.steps import run
from crdt_mor.log.tail import find_tail
from crdt_mor.model.posts import WINDOW, is_open
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.planners.way import PASSED_MAX
from crdt_mor.store.memory import MemoryStore
from tests.simulation.crowd import COMMITS_MAX, PUBLISHER, Simulation, crowd_of
from tests.tiers import seeds, slow

SEEDS = seeds([0], range(1, 10), range(10, 60))


def newest(sim: Simulation) -> tuple[Timeline, list[Completion]]:
    """The newest version, and all commits that it has."""
    tail = run(find_tail(None), sim.store, sim)
    return tail, run(all_completions(tail), sim.store, sim)


def require_each_once(sim: Simulation) -> list[Completion]:
    """The commits of the table, among which each write that was acknowledged is there, and none twice.

    The number of its rows tells a write from all others: of a member of a group, or of the commit of one writer.
    """
    _, completions = newest(sim)
    writes = Counter(name for c in completions if c.files for name in [m.rows for m in c.members] or [c.files[0].rows])
    assert max(writes.values()) == 1
    assert {commit.name for commit in sim.commits} <= writes.keys()
    return completions


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("writers", [4, slow(40)])
def test_each_acknowledged_commit_is_there_once_whoever_dies(writers: int, seed: int) -> None:
    sim = crowd_of(writers, seconds=15, latency_ms=30, seed=seed, deadly=0.0005)
    assert sim.commits
    completions = require_each_once(sim)
    names = {stat.path for stat in sim.store.list(PUBLISHER.projector.folder)}
    told = [any(f"/{c.requested}_" in name for name in names) for c in sorted(completions, key=lambda c: c.completed)]
    assert told == sorted(told, reverse=True), "Hudi is told of commits in the order in which they completed"


@pytest.mark.slow
def test_in_a_crowd_one_commit_is_that_of_many_writers() -> None:
    sim = crowd_of(40, seconds=10, latency_ms=30)
    completions = require_each_once(sim)
    assert max(len(completion.members) for completion in completions) > 30
    assert len(sim.commits) > 20 * len(crowd_of(40, seconds=10, latency_ms=30, combining=False).commits)


def test_who_is_alone_posts_nothing_and_looks_for_others_with_each_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Counter[str]()
    for name in ("put", "list"):
        done = getattr(MemoryStore, name)

        def counted(self: MemoryStore, path: str, *args: Any, _name: str = name, _done: Any = done, **more: Any) -> Any:
            asked[_name] += path.startswith(POSTS)
            return _done(self, path, *args, **more)

        monkeypatch.setattr(MemoryStore, name, counted)
    sim = crowd_of(1, seconds=5, latency_ms=30)
    assert len(sim.commits) > 20
    assert asked["put"] == 0
    assert len(sim.commits) <= asked["list"] <= len(sim.commits) + 1


@pytest.mark.costly
@pytest.mark.parametrize(
    ("writers", "think_s", "rate", "p50_s", "p99_s", "requests"),
    [
        (1, 0, 5.5, 0.2, 0.25, 9.5),
        (10, 0, 28, 0.4, 0.6, 15),
        slow(100, 0, 250, 0.4, 0.6, 16),
        slow(300, 60, 4, 0.45, 0.8, 27),
        slow(1000, 60, 14, 0.55, 1.0, 26),
    ],
)
def test_the_commits_of_a_crowd(
    writers: int, think_s: float, rate: float, p50_s: float, p99_s: float, requests: float
) -> None:
    """Commits a second, waits and requests of a bucket 30 ms away are as in docs/design/requests.md."""
    seconds = 60 if think_s else 15
    sim = crowd_of(writers, seconds=seconds, latency_ms=30, think_s=think_s)
    took = sorted(commit.took for commit in sim.commits if commit.at > seconds * 1000 / 3)
    assert len(took) > rate * seconds * 2 / 3
    assert took[len(took) // 2] < p50_s * 1000
    assert took[int(len(took) * 0.99)] < p99_s * 1000
    assert sim.requests < requests * len(sim.commits)


@pytest.mark.slow
def test_on_a_disk_one_owner_commits_while_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look takes far less there than a commit, by which an owner has to wait before it takes another one for dead."""
    claims, put = Counter[str](), MemoryStore.put

    def counted(self: MemoryStore, path: str, *args: Any, **more: Any) -> bool:
        claims.update([path] if path.endswith(".inflight") else [])
        return put(self, path, *args, **more)

    monkeypatch.setattr(MemoryStore, "put", counted)
    sim = crowd_of(8, seconds=2, latency_ms=0.05, fsync_ms=3)
    commits = len(require_each_once(sim))
    assert claims.total() < 1.25 * commits
    assert len(sim.commits) > 5 * commits


def test_transaction_blocks_of_a_crowd_are_published_by_turns_and_none_starves() -> None:
    """Begins and ends of many processes, 30 ms away: few races are lost, and no process publishes for itself alone."""
    took: list[list[float]] = [[] for _ in range(10)]
    sim = crowd_of(0, seconds=20, latency_ms=30, blocks_took=took)
    blocks = sum(map(len, took))
    assert blocks > 90
    assert sim.requests < 60 * blocks
    assert sim.lost < blocks / 2
    assert min(map(len, took)) > max(map(len, took)) / 2


def passes(sim: Simulation) -> list[int]:
    """By how many versions each whole write was passed, since it landed and while it was open."""
    _, completions = newest(sim)
    taken = {member.post: c.version for c in completions for member in c.members if member.post}
    open_ = {post: version for post, version in sim.landed.items() if is_open(post, version)}
    ends = {post: min(sim.newest, post.version + WINDOW) + 1 for post in open_}
    return [taken.get(post, ends[post]) - version - 1 for post, version in open_.items()]


def busy(writers: int, blocks: int, seed: int, *, disk: bool, seconds: float) -> tuple[Simulation, list[list[float]]]:
    """Small writers beside blocks that never pause and a service, on a disk or in a bucket."""
    took: list[list[float]] = [[] for _ in range(blocks)]
    sim = crowd_of(
        writers, seconds=seconds, latency_ms=0.05 if disk else 30, fsync_ms=3 if disk else None, blocks_took=took,
        block_pause_ms=0, service_took=[], seed=seed,
    )  # fmt: skip
    return sim, took


@pytest.mark.parametrize("seed", seeds(range(2), range(2, 20), range(20, 1000)))
def test_no_post_is_passed_by_more_than_two_versions(seed: int) -> None:
    is_on_disk = bool(seed % 2)
    sim, took = busy(1 + seed % 7, 1 + seed % 3, seed, disk=is_on_disk, seconds=1.5 if is_on_disk else 8)
    assert max(passes(sim)) <= PASSED_MAX
    assert all(took)


def test_the_simulation_finds_publishers_that_look_for_posts_at_each_fourth_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events, passed = count(), Posting.passed
    monkeypatch.setattr(Posting, "passed", lambda self, tail: [] if next(events) % 4 else passed(self, tail))
    assert any(max(passes(busy(3, 2, seed, disk=False, seconds=8)[0])) > PASSED_MAX for seed in range(3))


def test_small_writers_beside_blocks_get_their_fair_share() -> None:
    """Each makes at least half of what it makes without the blocks, shared with them."""
    alone = len(crowd_of(8, seconds=10, latency_ms=30).commits)
    sim, took = busy(8, 1, 7, disk=False, seconds=10)
    by_writer = Counter(commit.name // COMMITS_MAX for commit in sim.commits)
    assert min(by_writer[owner] for owner in range(8)) > alone / 9 / 2
    assert len(took[0]) > 5


@pytest.mark.slow
def test_a_crowd_leaves_no_posts_but_those_that_are_under_way() -> None:
    """Each writer has one post under way, and one that is being deleted, at most."""
    sim = crowd_of(20, seconds=10, latency_ms=30)
    assert len(sim.store.list(POSTS)) <= 2 * 20


def test_a_simulation_is_the_same_each_time() -> None:
    runs = [crowd_of(10, seconds=5, latency_ms=30) for _ in range(2)]
    assert runs[0].commits == runs[1].commits
    assert isinstance(runs[0].store, MemoryStore)

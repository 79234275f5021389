"""Crowds of writers, simulated: each acknowledged commit is there once, whichever dies, and many share a version."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from crdt_mor.events.one_event import LOOK_EVERY
from crdt_mor.log.outcome import all_completions
from crdt_mor.log.paths import INTENTS
from crdt_mor.log.steps import run
from crdt_mor.log.tail import find_tail
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.store.memory import MemoryStore
from tests.simulation.crowd import PUBLISHER, Simulation, crowd_of
from tests.tiers import seeds

SEEDS = seeds([0], range(1, 10), range(10, 60))


def newest(sim: Simulation) -> tuple[Timeline, list[Completion]]:
    """The newest version, and all commits that it has."""
    tail = run(find_tail(None), sim.store, sim)
    return tail, run(all_completions(tail), sim.store, sim)


def require_each_once(sim: Simulation) -> list[Completion]:
    """The commits of the table, among which each that was acknowledged is there, and none twice."""
    _, completions = newest(sim)
    files = Counter(file.path for completion in completions for file in completion.files)
    assert max(files.values()) == 1
    assert {commit.path for commit in sim.commits} <= files.keys()
    return completions


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("writers", [4, 40])
def test_each_acknowledged_commit_is_there_once_whoever_dies(writers: int, seed: int) -> None:
    sim = crowd_of(writers, seconds=15, latency_ms=30, seed=seed, deadly=0.0005)
    assert sim.commits
    completions = require_each_once(sim)
    names = {stat.path for stat in sim.store.list(PUBLISHER.projector.folder)}
    told = [any(f"/{c.requested}_" in name for name in names) for c in sorted(completions, key=lambda c: c.completed)]
    assert told == sorted(told, reverse=True), "Hudi is told of commits in the order in which they completed"


def test_in_a_crowd_one_version_publishes_the_commits_of_many() -> None:
    sim = crowd_of(40, seconds=10, latency_ms=30)
    completions = require_each_once(sim)
    together = Counter(completion.version for completion in completions)
    assert max(together.values()) > 10
    assert len(sim.commits) > 3 * len(crowd_of(40, seconds=10, latency_ms=30, combining=False).commits)


def test_who_is_alone_posts_nothing_and_looks_for_others_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Counter[str]()
    for name in ("put", "list"):
        done = getattr(MemoryStore, name)

        def count(self: MemoryStore, path: str, *args: Any, _name: str = name, _done: Any = done, **more: Any) -> Any:
            asked[_name] += path.startswith(INTENTS)
            return _done(self, path, *args, **more)

        monkeypatch.setattr(MemoryStore, name, count)
    sim = crowd_of(1, seconds=5, latency_ms=30)
    assert len(sim.commits) > 20
    assert asked == {"put": 0, "list": len(sim.commits) // LOOK_EVERY}


def test_a_crowd_leaves_no_intents_but_those_that_are_under_way() -> None:
    sim = crowd_of(20, seconds=10, latency_ms=30)
    assert len(sim.store.list(INTENTS)) <= 20


def test_a_simulation_is_the_same_each_time() -> None:
    runs = [crowd_of(10, seconds=5, latency_ms=30) for _ in range(2)]
    assert runs[0].commits == runs[1].commits
    assert isinstance(runs[0].store, MemoryStore)

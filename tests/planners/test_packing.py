"""Which completions share a segment, which are dropped, and that no view that is still answered misses any of them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from crdt_mor.log import segments as sealing
from crdt_mor.log.outcome import all_completions
from crdt_mor.log.paths import SEGMENTS
from crdt_mor.log.steps import Steps
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Retention
from crdt_mor.planners import packing
from crdt_mor.planners.packing import droppable_until, in_chunks, weigh
from tests.model.scene import PUBLISHER, Scene
from tests.tiers import slow


def clean(scene: Scene, until: InstantTime) -> Timeline:
    """A clean completes, as far as the segments are concerned: what no view needs from `until` on may go."""

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        event = tail.decide("clean", wall_ms)
        kept = Retention(until, until, dropped=max(until, tail.retention.dropped))
        kept = replace(kept, dropped_count=tail.retention.dropped_count)
        return replace(event, retention=kept)
        yield  # a generator of steps, as the derivation of a clean is

    return scene.run(PUBLISHER.publish(derive, scene.tail()))


def needed_by(completions: list[Completion], cut: Cut) -> list[object]:
    return [(s.group, s.base, s.logs) for s in fold_slices(c for c in completions if cut.shows(c))]


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(8))
def test_what_a_clean_drops_and_packs_anew_is_missed_by_no_view_that_is_answered(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(sealing, "COMPLETIONS_MAX", 2)
    monkeypatch.setattr(sealing, "SEGMENTS_MAX", chance.choice((2, 3)))
    monkeypatch.setattr(packing, "SMALL_LIVE_MAX", chance.randrange(3))
    monkeypatch.setattr(packing, "SEGMENT_BYTES_MAX", size := chance.choice((2_000, 1 << 20)))
    monkeypatch.setattr(packing, "SEGMENT_BYTES_FULL", size // 3)
    monkeypatch.setattr(sealing, "SEGMENT_BYTES_FULL", size // 3)
    scene = Scene()
    done: list[Completion] = []
    until = EPOCH
    for _ in range(60):
        match chance.randrange(6):
            case 0:
                value = scene.compact(chance.randrange(2))
                done.append(scene.completions(value)[-1])
            case 1:
                until = max(until, chance.choice(done).completed if done else EPOCH)
                before = scene.tail()
                tail = clean(scene, until)
                assert tail.retention.dropped <= until
                assert held(tail) + tail.retention.dropped_count == len(done)
                assert tail.retention.dropped_count >= before.retention.dropped_count
            case _:
                committed = scene.commit(chance.randrange(2))
                assert isinstance(committed.completion, Completion)
                done.append(committed.completion)
        tail = scene.tail()
        known = scene.run(all_completions(tail))
        assert {c.requested for c in done} - {c.requested for c in known} <= {
            c.requested for c in done if c.completed <= tail.retention.dropped
        }
        for cut in (Cut("completed", until), Cut("requested", until), Cut("completed", tail.clock)):
            seen = [c for s in tail.segments if cut.needs(s) for c in scene.run(sealing.read_segment(s))]
            assert needed_by([*seen, *tail.completions], cut) == needed_by(done, cut)
    tail = clean(scene, scene.tail().clock)
    live = [s for s in tail.segments if s.superseded is None]
    assert not [s for s in tail.segments if s.superseded is not None and s.superseded <= tail.retention.since]
    assert len(live) <= packing.SMALL_LIVE_MAX + held(tail)


def held(value: Timeline) -> int:
    return len(value.completions) + sum(segment.count for segment in value.segments)


@pytest.mark.slow
@pytest.mark.parametrize(("days", "commits"), [(8, 75), slow(12, 150)])
def test_opening_reads_few_segments_for_ever_and_the_value_names_few(days: int, commits: int) -> None:
    """Each day some commits, a compaction now and then, and a clean that keeps a day."""
    scene = Scene()
    sizes, names, live = [], [], []
    for _ in range(days):
        start = scene.tail().clock
        for number in range(commits):
            scene.commit(number % 2)
            if number % 25 == 24:
                scene.compact(number % 2)
        tail = clean(scene, start)
        sizes.append(len(tail.encode()))
        names.append(len(tail.segments))
        live.append(sum(s.count for s in tail.segments if s.superseded is None))
    assert max(sizes[4:]) <= 1.3 * max(sizes[:4])
    assert max(names) <= 20
    assert max(live[2:]) <= 1.3 * max(live[:2])


def test_a_lost_attempt_deletes_the_segments_that_only_it_had_put(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "COMPLETIONS_MAX", 2)
    scene = Scene()
    for _ in range(12):
        scene.commit()
    scene.compact(0)
    scene.commit()
    raced: list[str] = []

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        if len(raced) == 1:
            raced.append("another process is quicker")
            scene.commit()
        elif not raced:
            raced.append("the first derivation")
            scene.commit()
        event = tail.decide("clean", wall_ms)
        return replace(event, retention=Retention(tail.clock, tail.clock, dropped=tail.clock))
        yield

    value = scene.run(PUBLISHER.publish(derive, scene.tail()))
    assert value.retention.dropped_count
    published = {scene.version(number).nonce for number in range(value.version + 1)}
    named = {stat.path.rpartition("/")[2].split("-")[1] for stat in scene.store.list(SEGMENTS)}
    assert value.nonce in named
    assert named <= published, "what the lost attempts put of their own is gone"


def test_chunks_are_bounded_and_know_when_the_last_of_them_is_superseded(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    done = [scene.commit().completion for _ in range(9)]
    completions = [c for c in done if isinstance(c, Completion)]
    monkeypatch.setattr(packing, "SEGMENT_BYTES_MAX", 3 * weigh(completions[:1]))
    ends = {c.requested: c.completed for c in completions}
    chunks = in_chunks(completions[::-1], ends)
    assert [len(chunk.completions) for chunk in chunks] == [3, 3, 3]
    assert [chunk.superseded for chunk in chunks] == [completions[n].completed for n in (2, 5, 8)]
    assert {chunk.superseded for chunk in in_chunks(completions, dict.fromkeys(ends))} == {None}


def test_what_may_go_is_bounded_by_what_is_kept_by_request_and_by_the_archive() -> None:
    times = [InstantTime(f"2026010100000{n}000") for n in range(5)]
    value = replace(Timeline.genesis("[]"), retention=Retention(times[4], times[2]))
    assert droppable_until(value, times[3], times[4]) == times[2]
    assert droppable_until(value, times[1], times[4]) == times[1]
    assert droppable_until(value, times[3], times[0]) == times[0]

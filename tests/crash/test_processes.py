"""Real processes and real signals: many writers at once, kill -9, SIGSTOP and SIGCONT."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tests import waiting
from tests.crash.scene import Scene, check_moments, visible
from tests.inside import run_sweep, tail_of
from tests.tiers import long, slow

EXPIRY_MS = 3_000


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path, EXPIRY_MS)
    yield scene
    scene.end()


def many_writers(scene: Scene, processes: int, commits: int) -> None:
    names = [f"w{i}" for i in range(processes)]
    for name in names:
        scene.start("write", name, str(commits))
    scene.wait_for("end", lambda: all(worker.poll() == 0 for worker in scene.workers.values()), patience_s=900)
    scene.end()
    assert len(scene.check(names)) == processes * commits
    acks = [line for name in names for line in scene.log(name) if line[0] == "ack"]
    check_moments(acks)
    commits_in_order = sorted({(int(line[4]), line[3]) for line in acks})
    times = [completed for _, completed in commits_in_order]
    assert times == sorted(set(times)), "completion times grow with the versions"
    shared = [writers for writers in Counter(line[3] for line in acks).values() if writers > 1]
    assert sorted(scene.groups()) == sorted(shared), "each member of a group was told of it"
    scene.check_at_rest(names)


@pytest.mark.parametrize(("processes", "commits"), [(2, 3), slow(4, 40), long(8, 200)])
def test_every_commit_of_several_processes_is_visible(scene: Scene, processes: int, commits: int) -> None:
    many_writers(scene, processes, commits)
    scene.check_hudi_rs()


def kill_at_random(scene: Scene, kills: int, seed: int) -> None:
    """Three writers and a compactor, two of which are killed again and again, and started anew at once."""
    random = Random(seed)
    names = ["w0", "w1", "w2"]
    for name in names:
        scene.start("write", name)
    scene.start("compact", "compactor")
    started = dict.fromkeys([*names, "compactor"], 0)
    for done in range(0, kills, 2):
        last_in_turn = done % 10 == 8
        victims = ["compactor", random.choice(names)] if last_in_turn else random.sample(names, 2)

        def begun(victims: list[str] = victims) -> bool:
            return all(len(scene.log(victim)) > started[victim] for victim in victims)

        scene.wait_for(f"work of {victims}", begun)
        for victim in victims:
            waiting.let_run(random.random() * 0.05)
            scene.kill(victim)
            started[victim] = len(scene.log(victim))
        for victim in victims:
            scene.start("compact" if victim == "compactor" else "write", victim)
        if last_in_turn:
            scene.check(names)
    before = scene.check(names)
    # The table goes on: everybody makes another commit, those that were killed in the middle of one included.
    acks = {name: len(scene.acknowledged([name])) for name in names}
    scene.wait_for("another commit", lambda: all(len(scene.acknowledged([n])) > acks[n] for n in names))
    scene.end()
    assert before < scene.check(names)
    scene.check_at_rest(names)
    scene.table.maintenance.compact()
    scene.check_at_rest(names)
    assert before < visible(scene.table.scan())
    scene.check_hudi_rs()


@pytest.mark.parametrize("kills", [slow(40), long(200)])
def test_many_kills_lose_no_acknowledged_commit_and_show_none_in_part(scene: Scene, kills: int) -> None:
    kill_at_random(scene, kills, seed=2)


def has_more(scene: Scene, name: str, seen: int) -> bool:
    """Whether a process has noted more than it had."""
    return len(scene.log(name)) > seen


@pytest.mark.parametrize("kills", [slow(8), long(100)])
def test_maintain_runs_anywhere_at_once_and_whoever_is_killed_leaves_what_the_others_finish(
    scene: Scene, kills: int
) -> None:
    random, writers, keepers = Random(5), ["w0", "w1"], ["m0", "m1", "m2"]
    scene.table.set_properties({"crdt_mor.compaction.log_files": "3", "crdt_mor.archive.commits": "20"})
    for name in writers:
        scene.start("write", name)
    for name in keepers:
        scene.start("maintain", name)
    for _ in range(kills):
        victim = random.choice(keepers)
        scene.wait_for(f"work of {victim}", partial(has_more, scene, victim, len(scene.log(victim))))
        waiting.let_run(random.random() * 0.1)
        scene.kill(victim)
        scene.start("maintain", victim)
        scene.check(writers)
    did = {line[0] for name in keepers for line in scene.log(name)}
    assert {"compaction", "clean"} <= did, "each had its turn"
    scene.end()
    scene.close_posts()
    before = scene.check(writers)
    scene.give_up_the_dead()
    scene.table.set_properties({"crdt_mor.compaction.log_files": "1", "crdt_mor.readers": "0s"})
    for _ in range(2):  # what a sweep has removed, the next one knows to be gone
        assert scene.table.maintenance.maintain(keep=timedelta(0)).ok
        run_sweep(scene.table)  # that of `maintain` is due once a minute, and what a dead group has staged waits for it
    assert visible(scene.table.scan()) == before
    assert scene.table.maintenance.plans.open() == []
    named = set(scene.table.inspect.files()["path"].to_pylist())
    there = {path.name for path in scene.path.iterdir() if path.is_file() and path.name != ".hoodie_partition_metadata"}
    assert there == named, "no file is left that the table does not show"
    scene.check_hudi_rs()


@pytest.mark.slow
def test_a_writer_that_slept_past_the_expiry_neither_commits_nor_harms(tmp_path: Path) -> None:
    scene = Scene(tmp_path, expiry_ms=1_000)
    zombie = scene.start("hold", "zombie")
    scene.wait_for("begin", lambda: bool(scene.log("zombie")))
    zombie.send_signal(signal.SIGSTOP)
    scene.wait_until_silent()
    scene.start("write", "alive", "3")
    scene.wait_for("commits", lambda: len(scene.acknowledged(["alive"])) == 3)
    before = scene.table.scan().to_arrow()
    assert not tail_of(scene.table).pending, "the writer that began next gave it up"
    zombie.send_signal(signal.SIGCONT)
    assert zombie.stdin is not None
    zombie.stdin.write(b"\n")
    zombie.stdin.flush()
    scene.wait_for("its end", lambda: zombie.poll() == 0)
    assert [line[0] for line in scene.log("zombie")] == ["held", "expired"]
    scene.end()
    assert scene.table.scan().to_arrow() == before
    assert scene.check(["alive"]) == {"alive.1", "alive.2", "alive.3"}
    scene.check_at_rest(["alive"])
    scene.check_hudi_rs()


@pytest.mark.slow
def test_writers_stopped_at_random_moments_neither_commit_late_nor_harm(tmp_path: Path) -> None:
    scene, random = Scene(tmp_path, expiry_ms=1_000), Random(3)
    names = ["w0", "w1", "w2"]
    for name in names:
        scene.start("write", name)
    scene.wait_for("commits", lambda: all(scene.acknowledged([name]) for name in names))
    for _ in range(8):
        victims = random.sample(names, 2)
        for victim in victims:
            waiting.let_run(random.random() * 0.03)
            scene.workers[victim].send_signal(signal.SIGSTOP)
        waiting.let_run(1.4)  # longer than the expiry; who is not in the middle of a write has no heartbeat to look at
        for victim in victims:
            scene.workers[victim].send_signal(signal.SIGCONT)
        scene.check(names)
    scene.end()
    scene.check(names)
    scene.check_at_rest(names)
    scene.check_hudi_rs()

"""Writers, readers, followers and every service as processes that are killed: `python -m tests.crash.services`

    --minutes 2 --seed 1

Each process is killed with SIGKILL now and then, at random moments, and started again at once. All the time, and in the
end: every acknowledged commit is there, none is there in part, no answer changes, and who asks for what is no longer
kept is refused. In the end somebody sweeps and cleans, and then no file lies about that nothing names; what is on disk,
and why, is printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import ClassVar

from crdt_mor import Table
from crdt_mor.model.names import TimelineFileName, data_file_name
from crdt_mor.model.slices import fold_slices
from crdt_mor.timeline import sweep
from tests import waiting
from tests.crash.scene import Scene

PROCESSES = {"write": 4, "compact": 3, "read": 2, "follow": 2, "clean": 1, "maintain": 1}
FEWER = {"write": 2, "compact": 1, "read": 1, "follow": 1, "clean": 1, "maintain": 1}
"""So many processes of each kind; fewer for a short run, since each takes a while to start."""

EXPIRY_MS = 3_000
POLICIES = {
    "crdt_mor.retention": "5s",
    "crdt_mor.readers": "5s",
    "crdt_mor.archive.commits": "10",
    "crdt_mor.compaction.log_files": "5",
}
CHECK_EVERY_S = 10.0
KILL_EVERY_S = 0.8
START_PATIENCE_S = 400.0
"""How long it may take until each process has done something: on a busy machine they start slowly."""
FOLDED_WITHIN = 2.0
"""Bytes on disk that nothing but the latest rows needs, over those of the latest rows, at most."""


class ServicesScene(Scene):
    """A table and the processes that work on it."""

    module: ClassVar[str] = "tests.crash.upkeep_worker"

    def writers(self) -> list[str]:
        return [path.stem for path in sorted(self.folder.glob("write*.log"))]


def names_of(processes: Mapping[str, int]) -> list[str]:
    return [f"{role}{n}" for role, count in processes.items() for n in range(count)]


def role_of(name: str) -> str:
    return name.rstrip("0123456789")


@dataclass
class Ended:
    """What became of it: commits, kills, what each process did, and what is on disk."""

    commits: int
    kills: int
    did: dict[str, int]
    files: int
    bytes: int
    live_bytes: int
    hoodie_bytes: int

    def __str__(self) -> str:
        did = ", ".join(f"{what} {count}" for what, count in sorted(self.did.items()))
        return (
            f"{self.commits} commits, {self.kills} kills: 0 wrong, 0 lost, no orphan. {did}. On disk: {self.files} "
            f"data files, {self.bytes} bytes, {self.bytes / max(1, self.live_bytes):.2f} x those of the latest rows; "
            f"timelines {self.hoodie_bytes} bytes"
        )


def run(folder: Path, seconds: float, seed: int, processes: Mapping[str, int] = PROCESSES) -> Ended:
    """Let them run for so long, and check. Raises `AssertionError` with what is wrong."""
    random, names = Random(seed), names_of(processes)
    scene = ServicesScene(folder, EXPIRY_MS)
    scene.table.set_properties(POLICIES)
    kills = 0
    try:
        for name in names:
            scene.start(role_of(name), name)
        scene.wait_for("work of each", lambda: all(scene.log(name) for name in names), START_PATIENCE_S)
        until = time.monotonic() + seconds
        checked = time.monotonic()
        while time.monotonic() < until:
            waiting.let_run(random.random() * 2 * KILL_EVERY_S)
            require_alive(scene)
            victim = random.choice(names)
            scene.kill(victim)
            kills += 1
            scene.start(role_of(victim), victim)
            if time.monotonic() > checked + CHECK_EVERY_S:
                scene.check(scene.writers())
                checked = time.monotonic()
        commits = {name: len(scene.acknowledged([name])) for name in scene.writers()}
        scene.wait_for(
            "another commit of each", lambda: all(len(scene.acknowledged([n])) > c for n, c in commits.items())
        )
        require_alive(scene)
    finally:
        scene.end()
    found = scene.check(scene.writers())
    did = Counter(line[0] for name in names for line in scene.log(name))
    at_rest(scene)
    assert found == scene.check(scene.writers())
    scene.check_hudi_rs()
    return measured(scene, len(found), kills, dict(did))


def require_alive(scene: Scene) -> None:
    """Nobody has ended by itself."""
    for name, worker in scene.workers.items():
        said = (scene.folder / f"{name}.err").read_text()
        assert worker.poll() is None, f"{name} has ended:\n{said}"
        assert not said, f"{name} said:\n{said}"


def at_rest(scene: Scene) -> None:
    """Everybody is dead. Who comes next gives them up, finishes what they began, cleans and sweeps; nothing is left."""
    table = scene.table
    session = table._session
    scene.give_up_the_dead()
    table.maintenance.compact()
    table.maintenance.clean(timedelta(0), readers=timedelta(0))
    for _ in range(2):  # the first sweep deletes, the second sees that nothing is left
        session.run(sweep.sweep(session.publisher, session.tail()))
    value = session.tail()
    assert not value.pending
    assert not value.plans
    assert not value.rolled_back
    check_orphans(table, scene.path)


def check_orphans(table: Table, path: Path) -> None:
    """Each data file is of the latest slices or of a commit that the table still knows; Hudi's files are of commits."""
    session = table._session
    completions = session.completions(session.tail())
    known = {file.path for c in completions for file in c.files}
    there = {str(file.relative_to(path)) for file in data_files(path)}
    assert there <= known, f"files of no commit: {sorted(there - known)}"
    live = {file.path for s in fold_slices(completions) for file in (*s.logs, *([s.base] if s.base else []))}
    assert live <= there, f"files that the latest rows need are gone: {sorted(live - there)}"
    instants = {c.requested for c in completions}
    timeline = [n for p in (path / ".hoodie/timeline").iterdir() if (n := TimelineFileName.parse(p.name))]
    stray = [str(name) for name in timeline if name.requested not in instants]
    assert not stray, f"files of Hudi's timeline of no instant: {stray}"
    assert not list((path / ".hoodie/.heartbeat").glob("*"))


def data_files(path: Path) -> list[Path]:
    """The data files of a table. Those of Hudi's history have names that look alike."""
    return [p for p in path.rglob("*") if ".hoodie" not in p.parts and data_file_name(str(p)) is not None]


def measured(scene: Scene, commits: int, kills: int, did: dict[str, int]) -> Ended:
    session = scene.table._session
    slices = fold_slices(session.completions(session.tail()))
    live = sum(file.size for s in slices for file in (*s.logs, *([s.base] if s.base else [])))
    files = [p for p in scene.path.rglob("*") if p.is_file()]
    data = data_files(scene.path)
    size = sum(p.stat().st_size for p in data)
    assert size <= FOLDED_WITHIN * live, f"{size} bytes on disk for {live} bytes of rows"
    hoodie = sum(p.stat().st_size for p in files if ".hoodie" in p.parts)
    return Ended(commits, kills, did, len(data), size, live, hoodie)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(f"{run(Path(folder) / 'scene', given.minutes * 60, given.seed)}\n")


if __name__ == "__main__":
    main()

"""Writers, readers, followers and every service as processes that are killed: `python -m tests.crash.services`

    --minutes 2 --seed 1

Each process is killed with SIGKILL now and then, at random moments, and started again at once. All the time, and in the
end: every acknowledged commit is there, none is there in part, no answer changes, and who asks for what is no longer
kept is refused. In the end somebody compacts, cleans, sweeps and archives. Then no file lies about that nothing names,
and the folder holds at most twice the bytes of the latest rows beside what retention needs, which is printed by kind.
"""

from __future__ import annotations

import argparse
import os
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

from crdt_mor import SnapshotExpiredError, Table
from crdt_mor.log.tail import expire_versions
from crdt_mor.model.names import TimelineFileName, data_file_name
from crdt_mor.model.slices import fold_slices
from crdt_mor.store.local import TEMP_PREFIX, LocalStore
from crdt_mor.store.paths import TEMP_FOLDER
from tests import waiting
from tests.crash.account import REST, ROWS, Account, account
from tests.crash.scene import Scene
from tests.crash.upkeep_worker import require_slow
from tests.inside import run_sweep, session_of

PROCESSES = {
    "write": 4, "compact": 3, "relayout": 1, "read": 2, "follow": 2, "clean": 1, "archive": 1, "maintain": 1,
}  # fmt: skip
FEWER = {"write": 2, "compact": 1, "relayout": 1, "read": 1, "follow": 1, "clean": 1, "archive": 1, "maintain": 1}
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
"""Bytes in the folder beside what retention needs, over those of the latest rows, at most: those count, too."""


class ServicesScene(Scene):
    """A table and the processes that work on it."""

    module: ClassVar[str] = "tests.crash.upkeep_worker"

    def writers(self) -> list[str]:
        return [path.stem for path in sorted(self.folder.glob("write*.log"))]

    def check(self, names: list[str]) -> set[str]:
        """As for every scene, and again where a cleaner was faster than this process, which a busy machine holds up."""
        while True:
            began_ms = self.table.environment.now_ms()
            try:
                return super().check(names)
            except SnapshotExpiredError:
                require_slow(self.table, began_ms)


def names_of(processes: Mapping[str, int]) -> list[str]:
    return [f"{role}{n}" for role, count in processes.items() for n in range(count)]


def role_of(name: str) -> str:
    return name.rstrip("0123456789")


@dataclass
class Ended:
    """What became of it: commits, kills, what each process did, and what was in the folder before the end and after."""

    commits: int
    kills: int
    did: dict[str, int]
    bytes_before: int
    account: Account

    def __str__(self) -> str:
        did = ", ".join(f"{what} {count}" for what, count in sorted(self.did.items()))
        beside = self.account.bytes[REST] / max(1, self.account.bytes[ROWS])
        return (
            f"{self.commits} commits, {self.kills} kills: 0 wrong, 0 lost, no orphan. {did}.\n"
            f"In the folder when the last one was killed: {self.bytes_before:,} bytes.\n"
            f"After compaction, cleaning, sweep and archiving: {self.account}.\n"
            f"Beside what retention needs: {1 + beside:.2f} x the bytes of the rows."
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
    scene.close_posts()
    found = scene.check(scene.writers())
    did = Counter(line[0] for name in names for line in scene.log(name))
    before = sum(file.stat().st_size for file in scene.path.rglob("*") if file.is_file())
    at_rest(scene)
    assert found == scene.check(scene.writers())
    scene.check_hudi_rs()
    return Ended(len(found), kills, dict(did), before, measured(scene))


def require_alive(scene: Scene) -> None:
    """Nobody has ended by itself."""
    for name, worker in scene.workers.items():
        said = (scene.folder / f"{name}.err").read_text()
        assert worker.poll() is None, f"{name} has ended:\n{said}"
        assert not said, f"{name} said:\n{said}"


def at_rest(scene: Scene) -> None:
    """Every process is dead. The next one gives them up, finishes what they began and tidies up; nothing is left.

    The versions that are too old go as with the publisher whose turn it is; what puts of the dead were writing goes
    when it is a day old, which is now.
    """
    table = scene.table
    session = session_of(table)
    scene.give_up_the_dead()
    for file in (scene.path / TEMP_FOLDER).glob(f"{TEMP_PREFIX}*"):
        os.utime(file, (0, 0))
    LocalStore(str(scene.path)).sweep_temp()
    table.maintenance.compact()
    table.maintenance.clean(timedelta(0), readers=timedelta(0))
    for _ in range(2):  # the first sweep deletes, the second sees that nothing is left
        session.run(expire_versions(session.tail()))
        run_sweep(table)
    table.maintenance.archive()
    value = session.tail()
    assert not value.pending
    assert not value.plans
    assert not value.rolled_back
    check_orphans(table, scene.path)


def check_orphans(table: Table, path: Path) -> None:
    """Each data file is of the latest slices or of a commit that the table still knows; Hudi's files are of commits."""
    session = session_of(table)
    completions = session.views.completions(session.tail())
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


def measured(scene: Scene) -> Account:
    """What is in the folder, and what for; little that retention does not need."""
    found = account(scene.table, scene.path)
    allowed = (FOLDED_WITHIN - 1) * found.bytes[ROWS]
    assert found.bytes[REST] <= allowed, f"{found}, and nothing needs {found.strangers}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(f"{run(Path(folder) / 'scene', given.minutes * 60, given.seed)}\n")


if __name__ == "__main__":
    main()

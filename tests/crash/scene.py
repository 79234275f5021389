"""A table, the processes that work on it, and what must hold whatever became of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from crdt_mor import Opening, Scan, Table
from crdt_mor.events import sweep
from crdt_mor.format.archive import decode_instants, decode_manifest, manifest_name
from crdt_mor.log.paths import HEARTBEATS, POSTS, post_in
from crdt_mor.model.names import TimelineFileName
from crdt_mor.model.posts import WINDOW
from crdt_mor.model.timeline import Timeline
from tests import waiting
from tests.crash.worker import BUCKETS, SCHEMA, read_log
from tests.inside import completions_of, run_sweep, session_of, store_of, tail_of

REPO = Path(__file__).parents[2]


@dataclass
class Scene:
    """One table in `folder`, and workers by name; `module` is what they run."""

    module: ClassVar[str] = "tests.crash.worker"
    folder: Path
    expiry_ms: int
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "table"
        expiry = timedelta(milliseconds=self.expiry_ms)
        self.table = Table.create(
            str(self.path), SCHEMA, key="key", buckets=BUCKETS, opening=Opening(writer_expiry=expiry)
        )

    # --- processes ------------------------------------------------------------------------------------------------

    def log(self, name: str) -> list[list[str]]:
        return read_log(self.folder / f"{name}.log")

    def start(self, role: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """A new process, started from scratch: never forked, for polars has threads."""
        log = str(self.folder / f"{name}.log")
        command = [sys.executable, "-m", self.module, role, str(self.path), log, name, str(self.expiry_ms)]
        environment = os.environ | {"POLARS_MAX_THREADS": "1", "PYTHONPATH": str(REPO)}
        with open(self.folder / f"{name}.err", "ab") as errors:
            self.workers[name] = subprocess.Popen(
                [*command, *arguments], cwd=REPO, env=environment, stdin=subprocess.PIPE, stderr=errors
            )
        return self.workers[name]

    def kill(self, name: str) -> None:
        """kill -9; whatever it said on its error stream must have been nothing."""
        self._stop(name)
        errors = (self.folder / f"{name}.err").read_text()
        assert not errors, errors

    def end(self) -> None:
        """Kill all of them; only then is said what any of them said on its error stream."""
        names = list(self.workers)
        for name in names:
            self._stop(name)
        said = {name: (self.folder / f"{name}.err").read_text() for name in names}
        assert not any(said.values()), said

    def _stop(self, name: str) -> None:
        worker = self.workers.pop(name)
        worker.kill()
        worker.wait()
        assert worker.stdin is not None
        worker.stdin.close()

    def wait_for(self, what: str, condition: Callable[[], bool], patience_s: float = waiting.PATIENCE_S) -> None:
        """Look until it holds, and that no worker has failed."""

        def holds() -> bool:
            for name, worker in self.workers.items():
                assert worker.poll() in (None, 0), f"{name}: {(self.folder / f'{name}.err').read_text()}"
            return condition()

        waiting.wait_for(what, holds, patience_s, self.where_they_are)

    def wait_until_silent(self) -> None:
        """A worker that was stopped has been silent for longer than the expiry, by the store's own clock."""
        store = store_of(self.table)

        def silent() -> bool:
            beats = store.list(HEARTBEATS)
            return bool(beats) and all(store.now_ms() - beat.modified_ms > self.expiry_ms for beat in beats)

        self.wait_for("silence", silent)

    def where_they_are(self) -> str:
        """The stacks and the last lines of all workers."""
        for worker in self.workers.values():
            worker.send_signal(signal.SIGUSR1)
        waiting.let_run(1)
        found = []
        for name in self.workers:
            errors = self.folder / f"{name}.err"
            found.append(f"{name}: {self.log(name)[-3:]}\n{errors.read_text()}")
            errors.write_text("")
        return "\n".join(found)

    # --- what must hold -------------------------------------------------------------------------------------------

    def acknowledged(self, names: list[str]) -> set[str]:
        return {f"{name}.{line[1]}" for name in names for line in self.log(name) if line[0] == "ack"}

    def attempted(self, names: list[str]) -> set[str]:
        return {f"{name}.{line[1]}" for name in names for line in self.log(name) if line[0] == "try"}

    def check(self, names: list[str]) -> set[str]:
        """Every acknowledged commit is there and none in part; the batches that are visible."""
        acknowledged = self.acknowledged(names)  # before the scan: it must show all of these
        found = visible(self.table.scan(columns=["key", "batch"]))
        assert not acknowledged - found, "acknowledged, but not there"
        assert not found - self.attempted(names), "there, but never written"
        return found

    def check_at_rest(self, names: list[str]) -> None:
        """When nobody writes any more: no rubbish is left, and Hudi's timeline says what ours says."""
        session = session_of(self.table)
        self.give_up_the_dead()
        self.table.upsert(pa.table({"key": ["last"], "batch": ["last"], "n": [0]}, schema=SCHEMA))
        for _ in range(2):  # the first sweep deletes, the second sees that nothing is left
            run_sweep(self.table)
        value = session.tail()
        assert not value.pending
        assert not value.rolled_back
        done = session.views.completions(value)
        self.check_folders()
        requested = [c.requested for c in done]
        completed = [c.completed for c in done]
        assert len(set(requested) | set(completed)) == len(requested) + len(completed), "times are unique"
        assert completed == sorted(completed), "completed in the order of publication"
        versions = [c.version for c in done]
        assert versions == sorted(versions)
        assert all(c.requested < c.completed for c in done)

    def groups(self) -> list[int]:
        """How many writers each commit of several has."""
        return [len(c.members) for c in completions_of(self.table) if len(c.members) > 1]

    def give_up_the_dead(self) -> None:
        """No worker lives any more: a write that has not ended never will, and need not be waited for."""
        assert not self.workers
        session = session_of(self.table)
        session.run(sweep.upkeep(session.publisher, session.tail(), expiry_ms=0))

    def close_posts(self) -> None:
        """Publish until no post of the dead is open: an event takes along the posts that versions have passed."""
        assert not self.workers
        session = session_of(self.table)

        def event(tail: Timeline, wall_ms: int) -> Timeline:
            return tail.decide(f"{tail.version:032}", wall_ms)

        for _ in range(WINDOW + 1):
            session.run(session.publisher.publish(event, session.tail()))
        value = session.tail()
        names = [post_in(stat.path) for stat in session.store.list(POSTS)]
        assert not [name for name in names if name is not None and value.may_take(name)]

    def check_folders(self) -> None:
        value = tail_of(self.table)
        done = completions_of(self.table, value)
        hudi = [n for p in (self.path / ".hoodie/timeline").iterdir() if (n := TimelineFileName.parse(p.name))]
        archived = self._archived(value)
        active = {(c.requested, c.completed) for c in done} - archived
        assert {(n.requested, n.completed) for n in hudi if n.state == "completed"} == active
        alive = {requested for requested, _ in active} | {p.barrier for p in value.plans}
        assert {n.requested for n in hudi} == alive, "a pending file of a write that is no more"
        assert not list((self.path / ".hoodie/.heartbeat").glob("*"))
        on_disk = {p.name for p in self.path.iterdir() if p.is_file() and p.name != ".hoodie_partition_metadata"}
        planned = [p.barrier for p in value.plans]
        known = {f.path for c in done for f in c.files}
        stray = {name for name in on_disk - known if not any(barrier in name for barrier in planned)}
        assert not stray, f"files of no commit: {stray}"

    def _archived(self, value: Timeline) -> set[tuple[str, str | None]]:
        """Return the requested and completed times of the instants in Hudi's history."""
        if not value.archive.manifest:
            return set()
        folder = self.path / session_of(self.table).publisher.projector.archive
        manifest = manifest_name(value.archive.manifest)
        files = decode_manifest((folder / manifest).read_bytes(), manifest)
        instants = [i for file in files for i in decode_instants((folder / file).read_bytes(), file)]
        return {(i.name.requested, i.name.completed) for i in instants}

    def check_hudi_rs(self) -> None:
        """Hudi's own reader sees the same rows."""
        import hudi

        table = hudi.HudiTableBuilder.from_base_uri(str(self.path)).build()
        batches = table.read(hudi.HudiReadOptions())
        theirs = pa.Table.from_batches([pa.record_batch(batch) for batch in batches]).select(SCHEMA.names)
        ours = self.table.scan().to_arrow()
        assert sorted(theirs.to_pylist(), key=lambda r: r["key"]) == sorted(ours.to_pylist(), key=lambda r: r["key"])


def check_moments(acks: Iterable[Sequence[str]]) -> None:
    """Writes of one commit were told one requested and one completed time, and those of another commit other ones.

    acks: lines of logs, each with the two times as its third and fourth word.
    """
    moments = sorted({(completed, requested) for _, _, requested, completed, *_ in acks})
    times = {time for moment in moments for time in moment}
    assert len(times) == 2 * len(moments), "each commit has times of its own"


def visible(scan: Scan) -> set[str]:
    """The batches in a snapshot, each of which must be whole."""
    own: Counter[str] = Counter()
    shared: list[str] = []
    for row in scan.to_arrow().to_pylist():
        if row["key"].startswith("shared."):
            shared.append(row["batch"])
        elif row["key"] != "last":
            own[row["batch"]] += 1
    assert set(own.values()) <= {BUCKETS}, f"a commit in part: {[b for b, n in own.items() if n != BUCKETS]}"
    assert len(set(shared)) <= 1, f"the keys that everybody writes come from several commits: {shared}"
    assert len(shared) in (0, BUCKETS)
    assert bool(own) == bool(shared)
    return set(own)

"""One workload of overlapping writers, with a compaction at five moments: the answers of Hudi's own writers, and ours.

    PYTHONPATH=. python -m tests.interop.convergence --workloads 6 --moments 5

Some commits write rows of a few keys, and each has begun before others have ended. What the table holds afterwards
should be a function of the commits alone. So each workload is run again and again, from an empty table, and only the
moment of one compaction differs. Hudi's writers run in its non-blocking mode, with a simple bucket index and
commit-time ordering.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor import Table, Transaction
from tests.interop.readers import HudiSpark
from tests.waiting import wait_for

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.string())])
KEYS = tuple(f"k{number}" for number in range(6))
WRITERS = 4
"""Writes that are under way at once, at most."""

Answer = tuple[tuple[str, str], ...]
"""The key and the value of each row."""

Step = tuple[Literal["begin", "end"], int]


@dataclass(frozen=True)
class Workload:
    """The keys that each commit writes, and the order in which the commits begin and end."""

    keys: tuple[tuple[str, ...], ...]
    steps: tuple[Step, ...]

    @classmethod
    def drawn(cls, seed: int, commits: int = 6) -> Workload:
        """A random workload: the first commit writes all keys and is alone, the others overlap."""
        chance = random.Random(seed)
        keys = [KEYS, *(tuple(sorted(chance.sample(KEYS, chance.randint(1, 3)))) for _ in range(1, commits))]
        steps: list[Step] = [("begin", 0), ("end", 0)]
        pending: list[int] = []
        begun = 1
        while begun < commits or pending:
            if begun < commits and (not pending or (len(pending) < WRITERS and chance.random() < 0.8)):
                pending.append(begun)
                steps.append(("begin", begun))
                begun += 1
            else:
                steps.append(("end", pending.pop(chance.randrange(len(pending)))))
        return cls(tuple(keys), tuple(steps))

    def rows(self, commit: int) -> pa.Table:
        """What a commit writes."""
        keys = self.keys[commit]
        return pa.table({"id": list(keys), "v": [f"c{commit}"] * len(keys)}, SCHEMA)

    def moments(self, count: int) -> list[int]:
        """After how many steps a compaction may run, evenly: the first after the first commit, the last at the end."""
        first, last = 2, len(self.steps)
        return sorted({first + round(i * (last - first) / max(1, count - 1)) for i in range(count)})

    def __str__(self) -> str:
        """The steps in words: `+1` begins the commit 1, `-1` ends it."""
        return " ".join(f"{'+' if what == 'begin' else '-'}{commit}" for what, commit in self.steps)


class Writers(Protocol):
    """Whoever writes the commits of a workload to a table."""

    def begin(self, commit: int, rows: pa.Table) -> None:
        """Begin a write, and return when its instant has been requested."""
        ...

    def end(self, commit: int) -> None:
        """End a write that was begun."""
        ...

    def compact(self) -> None:
        """Compact the table."""
        ...

    def answer(self) -> Answer:
        """What the table holds."""
        ...


class Ours:
    """Transactions of ours on one table."""

    def __init__(self, root: Path) -> None:
        self.table = Table.create(root, SCHEMA, key="id", buckets=1)
        self.pending: dict[int, ExitStack] = {}

    def begin(self, commit: int, rows: pa.Table) -> None:
        """Begin a transaction that writes the rows."""
        self.pending[commit] = ExitStack()
        block: Transaction = self.pending[commit].enter_context(self.table.transaction())
        block.upsert(rows)

    def end(self, commit: int) -> None:
        """Commit it."""
        self.pending.pop(commit).close()

    def compact(self) -> None:
        """Compact every file group."""
        self.table.maintenance.compact()

    def answer(self) -> Answer:
        """What a scan shows."""
        return answer_of(self.table.scan().to_arrow().to_pylist())


class Hudis:
    """Writers of Hudi's in its non-blocking mode on one table, each in a thread of one Spark."""

    def __init__(self, spark: HudiSpark, root: Path) -> None:
        self.spark, self.root = spark, root
        self.options = {
            "hoodie.table.name": root.name,
            "hoodie.table.type": "MERGE_ON_READ",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
            "hoodie.datasource.write.operation": "upsert",
            "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
            "hoodie.index.type": "BUCKET",
            "hoodie.index.bucket.engine": "SIMPLE",
            "hoodie.bucket.index.num.buckets": "1",
            "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
            "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
            "hoodie.clean.failed.writes.policy": "LAZY",
            "hoodie.compact.inline": "false",
            "hoodie.clean.automatic": "false",
            "hoodie.archive.automatic": "false",
            "hoodie.metadata.enable": "false",
            "hoodie.embed.timeline.server": "false",
            "hoodie.write.markers.type": "DIRECT",
            "hoodie.upsert.shuffle.parallelism": "1",
        }

    def begin(self, commit: int, rows: pa.Table) -> None:
        """Begin a write, and wait until Hudi has requested its instant."""
        file = self.root.with_name(f"{self.root.name}-{commit}.parquet")
        pq.write_table(rows, file)
        before = self._requested()
        self.spark.ask(begin=self._gate(commit), upsert=str(self.root), rows=str(file), options=self.options)
        wait_for("requested instant", lambda: self._requested() != before)

    def end(self, commit: int) -> None:
        """Let a write have its rows, and wait until it has ended."""
        self.spark.ask(end=self._gate(commit))

    def compact(self) -> None:
        """Hudi's procedure schedules a compaction and runs it."""
        options = "hoodie.datasource.write.recordkey.field=id,hoodie.compact.inline.max.delta.commits=1"
        self.spark.sql(f"call run_compaction(op => 'run', path => '{self.root}', options => '{options}')")

    def answer(self) -> Answer:
        """What Hudi's snapshot reader shows."""
        return answer_of(list(self.spark.read(self.root).values()))

    def _gate(self, commit: int) -> str:
        return str(self.root.with_name(f"{self.root.name}-{commit}.gate"))

    def _requested(self) -> set[str]:
        return {path.name for path in (self.root / ".hoodie/timeline").glob("*.deltacommit.requested")}


def answer_of(rows: list[dict[str, object]]) -> Answer:
    """The keys and values of rows."""
    return tuple(sorted((str(row["id"]), str(row["v"])) for row in rows))


def run(workload: Workload, writers: Writers, compacted_after: int) -> Answer:
    """Run a workload, with a compaction after so many of its steps."""
    for number, (what, commit) in enumerate(workload.steps, 1):
        if what == "begin":
            writers.begin(commit, workload.rows(commit))
        else:
            writers.end(commit)
        if number == compacted_after:
            writers.compact()
    return writers.answer()


def answers(workload: Workload, moments: int, made: Callable[[int], Writers]) -> Iterator[tuple[int, Answer]]:
    """The answer for each moment of the compaction. made: writers of a new table, by the moment."""
    for moment in workload.moments(moments):
        yield moment, run(workload, made(moment), moment)


def _hudis(spark: HudiSpark, root: Path, moment: int) -> Writers:
    return Hudis(spark, root.with_name(f"{root.name}_{moment}"))


def _ours(root: Path, moment: int) -> Writers:
    return Ours(root.with_name(f"{root.name}_{moment}"))


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Print the answers of both, and fail where ours are several."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.convergence", description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", type=int, default=6)
    parser.add_argument("--moments", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="of the first workload")
    asked = parser.parse_args(arguments)
    several = {"Hudi": 0, "ours": 0}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        work = Path(folder)
        spark = HudiSpark(work, cores=2 * WRITERS + 2)
        stack.callback(spark.close)
        for seed in range(asked.seed, asked.seed + asked.workloads):
            workload = Workload.drawn(seed)
            say(f"workload {seed}: {workload}")
            for commit, keys in enumerate(workload.keys):
                say(f"    commit {commit} writes {' '.join(keys)}")
            makers: dict[str, Callable[[int], Writers]] = {
                "Hudi": partial(_hudis, spark, work / f"hudi_{seed}"),
                "ours": partial(_ours, work / f"ours_{seed}"),
            }
            for name, made in makers.items():
                found: dict[Answer, list[int]] = {}
                for moment, answer in answers(workload, asked.moments, made):
                    found.setdefault(answer, []).append(moment)
                for answer, moments in found.items():
                    shown = " ".join(f"{key}={value}" for key, value in answer)
                    say(f"    {name}: {shown}   compacted after step {', '.join(map(str, moments))}")
                several[name] += len(found) > 1
    say(f"workloads with several answers: Hudi {several['Hudi']}, ours {several['ours']}, of {asked.workloads}")
    return 1 if several["ours"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

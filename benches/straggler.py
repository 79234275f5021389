"""A straggler of six hours beside writers that commit every minute: what reading costs meanwhile, each half hour.

Time is simulated, so that six hours pass in a minute or two; what is measured is the processor time of reading the
whole table, the least of some reads. One write begins at the start and completes at the end. Until then nothing that is
requested after it is stable, which is what makes a table slow whose upkeep waits for its writers. Each world is run
twice, with `table.maintenance.maintain` every five minutes and without any upkeep. Reads with upkeep are to stay flat:
the last line of a world is the ratio of the last half hour to the first.

    python benches/straggler.py            # about three minutes
    python benches/straggler.py --small
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import crdt_mor as mor
from crdt_mor.payloads import Counter
from crdt_mor.testing.clock import SimulatedEnvironment

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("views", pa.int64()), ("price", pa.float64())])
MERGES: dict[str, dict[str, Any]] = {
    "the latest commit wins": {},
    "an ordering column": {"ordering": "at"},
    "a counter": {"merge": {"views": Counter()}},
}
HOURS = 6
UPKEEP_MINUTES = 5
SAMPLE_MINUTES = 30


@dataclass(frozen=True)
class Size:
    """Rows of the table, of which the first `hot` are written again and again, a commit of `batch` rows a `pause`."""

    rows: int
    hot: int
    batch: int
    pause_minutes: int
    reads: int


@dataclass(frozen=True)
class Sample:
    """What a read costs, and of what the latest snapshot and the whole table consist."""

    minutes: int
    read_ms: float
    files: int
    live_mib: float
    stored_mib: float


class World:
    """One table in memory, on a simulated clock, and the numbers that are written to it."""

    def __init__(self, size: Size, settings: dict[str, Any]) -> None:
        self.size = size
        self.environment = SimulatedEnvironment()
        self.store = mor.store.MemoryStore(self.environment.now_ms)
        self.chance = random.Random(1)
        self.commits = 0
        self.table = mor.Table.create(
            "straggler",
            SCHEMA,
            key="id",
            buckets=2,
            opening=mor.Opening(store=self.store, environment=self.environment),
            **settings,
        )
        self.table.append(self.batch(range(size.rows)))
        self.table.maintenance.compact()

    def batch(self, keys: Any) -> pa.Table:
        self.commits += 1
        count = len(keys)
        at, price = [self.commits] * count, [self.chance.random() for _ in range(count)]
        return pa.table({"id": list(keys), "at": at, "views": [1] * count, "price": price}, SCHEMA)

    def hot_batch(self) -> pa.Table:
        return self.batch(self.chance.sample(range(self.size.hot), self.size.batch))

    def sample(self, minutes: int) -> Sample:
        live = self.table.inspect.files()
        stored = sum(stat.size for folder in ("", ".hoodie") for stat in self.store.walk(folder))
        return Sample(minutes, self.read_ms(), live.num_rows, sum(live["bytes"].to_pylist()) / 2**20, stored / 2**20)

    def read_ms(self) -> float:
        """Processor time of reading all rows, of all threads together."""
        spent = []
        for _ in range(self.size.reads):
            start = time.process_time()
            assert self.table.scan().to_arrow().num_rows == self.size.rows
            spent.append((time.process_time() - start) * 1000)
        return min(spent)


def run(world: World, *, upkeep: bool) -> Iterator[Sample]:
    """The six hours, a sample every half hour; the straggler is under way until the last one is taken."""
    table, size = world.table, world.size
    with table.transaction() as straggler:
        straggler.upsert(world.hot_batch())
        for minute in range(1, HOURS * 60 + 1):
            world.environment.sleep(60)
            if minute % size.pause_minutes == 0:
                table.upsert(world.hot_batch())
            if upkeep and minute % UPKEEP_MINUTES == 0:
                done = table.maintenance.maintain(keep=timedelta(hours=1))
                assert done.ok, str(done)
            if minute % SAMPLE_MINUTES == 0:
                yield world.sample(minute)
    straggler_won = table.scan().count()
    assert straggler_won == size.rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="seconds, to see that it runs")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    args = parser.parse_args()
    size = Size(2_000, 500, 100, 10, 1) if args.small else Size(400_000, 20_000, 1_000, 1, 5)
    print(
        f"{size.rows:,} rows, a commit of {size.batch:,} of {size.hot:,} hot rows every {size.pause_minutes} min, one "
        f"write under way for {HOURS} hours; upkeep every {UPKEEP_MINUTES} min, 1 hour of history kept"
    )
    figures: list[dict[str, Any]] = []
    for title, settings in list(MERGES.items())[: 1 if args.small else None]:
        print(f"\n{title}")
        print("             with maintain                                without")
        print("   hours     read ms   files   live MiB   stored MiB      read ms   files   live MiB   stored MiB")
        samples: tuple[list[Sample], list[Sample]] = ([], [])
        worlds = [run(World(size, settings), upkeep=upkeep) for upkeep in (True, False)]
        for with_upkeep, without in zip(*worlds, strict=True):
            samples[0].append(with_upkeep)
            samples[1].append(without)
            print(f"{with_upkeep.minutes / 60:8.1f}  {line(with_upkeep)}   {line(without)}")
        ratios = [kind[-1].read_ms / kind[0].read_ms for kind in samples]
        print(f"   last / first: {ratios[0]:.2f} x with maintain, {ratios[1]:.2f} x without")
        for name, kind in zip(("with maintain", "without"), samples, strict=True):
            figures += [{"merge": title, "upkeep": name, **asdict(sample)} for sample in kind]
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


def line(sample: Sample) -> str:
    return f"{sample.read_ms:10.1f} {sample.files:7,} {sample.live_mib:10.2f} {sample.stored_mib:12.2f}"


if __name__ == "__main__":
    main()

"""Random histories in a bucket of uneven delays: blocks, merges, moves, updates, upserts, deletes and copies.

    python -m tests.simulation.bucket_history --histories 200 --seed 1

Some requests of a process take long, and other processes act meanwhile, in the middle of a begin, a look or a commit.
Processes in a crowd post, so that others publish their begins and commit their rows. Requests take uneven times by a
simulated clock. No request fails.

Every operation is a function of the rows that come before it in the order of requested times. So the table, each of its
copies, and whatever a block has read, are those of the operations done one after another in that order.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, Final

import polars as pl

from crdt_mor import Opening, Table
from crdt_mor.errors import EarlierWritePendingError
from crdt_mor.results import Copied
from crdt_mor.store.memory import MemoryStore
from crdt_mor.testing.clock import SimulatedEnvironment
from tests.failing import URI, FailingBucket, Request
from tests.posting import in_a_crowd

COLUMNS: Final = {"p": pl.String, "id": pl.String, "n": pl.Int64}
ACCOUNTS: Final = ("m1", "m2", "m3")
"""Rows that are there from the first commit on. Upserts leave them alone, so each stays one row, wherever it moves."""

OTHERS: Final = ("u1", "u2")
PROCESSES: Final = 4
DEPTH_MAX: Final = 3
WAIT: Final = timedelta(seconds=1)
SLOW_SHARE: Final = 0.02
"""How often a request is so slow that another process acts meanwhile."""

State = dict[str, tuple[str, int]]
"""The partition and the number of each row, by its id."""

Change = Callable[[State], None]
"""What an operation makes of the rows that come before it."""


@dataclass
class BucketHistory:
    """One table. left: how many operations are still to come. said: those that were asked for, by their message.

    read: the sum that a block has read, by its message. copies: each copy, and its store. wrong: errors of operations.
    """

    random: Random
    bucket: FailingBucket
    left: int
    said: dict[str, Change] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    copies: list[tuple[Copied, MemoryStore]] = field(default_factory=list)
    did: Tally[str] = field(default_factory=Tally)
    log: list[str] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        first = Table.create(
            URI, COLUMNS, key="id", partition_by="p", buckets=1,
            opening=Opening(store=self.bucket.store(), environment=self.bucket.environment),
        )  # fmt: skip
        first.upsert(rows(*((name, 10) for name in ACCOUNTS)), commit_info={"message": "first"})
        self.said["first"] = lambda state: state.update(dict.fromkeys(ACCOUNTS, ("x", 10)))
        self.tables = [self.opened() for _ in range(PROCESSES)]
        self.bucket.fail(self._slowed)

    def opened(self) -> Table:
        """The table, as another process opens it."""
        return Table(URI, opening=Opening(store=self.bucket.store(), environment=self.bucket.environment))

    def _slowed(self, request: Request, number: int) -> None:
        """A request takes its time, in which other processes may act."""
        self.bucket.environment.sleep(self.random.choice((0.001, 0.005, 0.02, 0.1)))
        if 0 < len(self.busy) < DEPTH_MAX and self.random.random() < SLOW_SHARE:
            for _ in range(self.random.randint(1, 3)):
                self.step()

    # --- what can happen ----------------------------------------------------------------------------------------------

    def step(self) -> None:
        """A process that is not in the middle of something does something."""
        if not self.left:
            return
        self.left -= 1
        who = self.random.choice([n for n in range(PROCESSES) if n not in self.busy])
        kind = self.random.choice([*KINDS, *(["upsert"] * 4 * len(self.busy))])  # which nobody's pause holds up
        table = in_a_crowd(self.tables[who]) if self.random.random() < 0.5 else self.tables[who]
        name = f"{kind} {len(self.said) + len(self.copies)}"
        self.busy.append(who)
        indent = "  " * len(self.busy)
        self.log.append(f"{indent}process {who} begins {name}")
        try:
            KINDS[kind](self, table, name)
            self.did[kind] += 1
        except EarlierWritePendingError:
            self.did["waited in vain"] += 1
            self.log.append(f"{indent}{name} has waited in vain")
        except Exception as error:  # noqa: BLE001  else the process in whose request this happened would meet it
            self.wrong.append(f"{name} ended with {type(error).__name__}: {error}")
        finally:
            self.busy.remove(who)
        self.log.append(f"{indent}process {who} has ended {name}")

    def upsert(self, table: Table, name: str) -> None:
        row, n = self.random.choice(OTHERS), self.random.randrange(100)
        self.said[name] = lambda state: state.update({row: ("x", n)})
        table.upsert(rows((row, n)), commit_info={"message": name})

    def delete(self, table: Table, name: str) -> None:
        def change(state: State) -> None:
            for row in [row for row, (_, n) in state.items() if row in OTHERS and n % 2 == 0]:
                del state[row]

        self.said[name] = change
        table.delete(where="n % 2 = 0 AND id LIKE 'u%'", commit_info={"message": name}, wait=WAIT)

    def update(self, table: Table, name: str) -> None:
        row = self.random.choice(ACCOUNTS)

        def change(state: State) -> None:
            partition, n = state[row]
            state[row] = partition, n * 2 + 1

        self.said[name] = change
        table.update({"n": "n * 2 + 1"}, where=f"id = '{row}'", commit_info={"message": name}, wait=WAIT)

    def merge(self, table: Table, name: str) -> None:
        names, more = (self.random.choice(ACCOUNTS), self.random.choice(OTHERS)), self.random.randrange(10)

        def change(state: State) -> None:
            for row in names:
                partition, n = state.get(row, ("x", None))
                state[row] = partition, more if n is None else n * 3 + more

        self.said[name] = change
        merging = table.merge(rows(*((row, more) for row in names)), on="id", commit_info={"message": name}, wait=WAIT)
        merging = merging.when_matched_update({"n": "target.n * 3 + source.n"})
        merging.when_not_matched_insert_all().execute()

    def move(self, table: Table, name: str) -> None:
        row, partition = self.random.choice(ACCOUNTS), self.random.choice("xy")
        self.said[name] = lambda state: state.update({row: (partition, state[row][1])})
        table.move([row], partition={"p": partition}, commit_info={"message": name}, wait=WAIT)

    def block(self, table: Table, name: str) -> None:
        """All of one account goes to another one, and the sum of all rows is noted."""
        source, target = self.random.sample(ACCOUNTS, 2)

        def change(state: State) -> None:
            total = sum(n for _, n in state.values())
            if name in self.read:
                assert self.read[name] == total, f"{name} read {self.read[name]}, before it was {total}\n{self.story()}"
            (here, lost), (there, won) = state[source], state[target]
            state |= {source: (here, 0), target: (there, won + lost), "u1": ("x", total)}

        self.said[name] = change
        with table.transaction(isolation="serializable", commit_info={"message": name}, wait=WAIT) as tx:
            found = {row: n for _, row, n in tx.scan(columns=["p", "id", "n"]).to_polars().rows()}
            self.read[name] = sum(found.values())
            tx.update({"n": 0}, where=f"id = '{source}'")
            tx.update({"n": f"n + {found[source]}"}, where=f"id = '{target}'")
            tx.upsert(rows(("u1", self.read[name])))

    def copy(self, table: Table, name: str) -> None:
        target = MemoryStore(self.bucket.environment.now_ms)
        self.copies.append((table.copy(name, store=target, verify=False), target))

    # --- what must hold -----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """The table and its copies are what the operations make, one after another; compacted or not."""
        self.bucket.mend()
        assert not self.wrong, f"{self.wrong}\n{self.story()}"
        table = self.opened()
        self.check(table)
        for copied, target in self.copies:
            shown = Table("copy", opening=Opening(store=target, environment=SimulatedEnvironment()))
            self.check(shown, copied.version)
        table.maintenance.compact()
        self.check(self.opened())

    def check(self, table: Table, until: int | None = None) -> None:
        """until: the version up to which commits are in the table."""
        state: State = {}
        for message in self._order(until):
            self.said[message](state)
        found = {row: (partition, n) for partition, row, n in table.to_polars().select("p", "id", "n").rows()}
        assert found == state, f"the table has {found}, and not {state}, up to version {until}\n{self.story()}"

    def _order(self, until: int | None) -> list[str]:
        """The messages of the commits, in the order of their requested times, and in a group of its writers."""
        history: list[dict[str, Any]] = self.opened().history().to_pylist()
        commits = [commit for commit in history if until is None or commit["version"] <= until]
        ordered = sorted(commits, key=lambda commit: str(commit["requested_at"]))
        writers = [writer for commit in ordered for writer in (commit["writers"] or [commit])]
        self.did["in groups"] = sum(len(commit["writers"] or ()) for commit in history)
        return [writer["message"] for writer in writers if writer["message"] in self.said]

    def story(self) -> str:
        return "\n".join(self.log)


KINDS: Final[dict[str, Callable[[BucketHistory, Table, str], None]]] = {
    "block": BucketHistory.block,
    "copy": BucketHistory.copy,
    "delete": BucketHistory.delete,
    "merge": BucketHistory.merge,
    "move": BucketHistory.move,
    "update": BucketHistory.update,
    "upsert": BucketHistory.upsert,
}


def rows(*given: tuple[str, int]) -> pl.DataFrame:
    """Rows of the partition `x`."""
    return pl.DataFrame([("x", row, n) for row, n in given], COLUMNS, orient="row")


def run_in_bucket(seed: int, steps: int = 16) -> BucketHistory:
    """A history from its seed. Raises `AssertionError` with what is wrong, and the story."""
    with FailingBucket().running() as bucket:
        history = BucketHistory(Random(f"bucket {seed}"), bucket, steps)
        while history.left:
            history.step()
        history.finish()
    return history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    total = Tally[str]()
    for seed in range(given.seed, given.seed + given.histories):
        try:
            total += run_in_bucket(seed).did
        except AssertionError as wrong:
            sys.exit(f"seed {seed}: {wrong}")
        total["histories"] += 1
    did = ", ".join(f"{count} {what}" for what, count in sorted(total.items()))
    sys.stdout.write(f"{did}: 0 wrong\n")


if __name__ == "__main__":
    main()

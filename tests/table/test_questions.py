"""What people ask of concurrent writers first, each question a short test: docs/correctness.md has the answers.

The tests of `tests/simulation` search the same questions through every interleaving of the protocol; these here are the
stories that a reader can follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import product
from typing import Final

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Commit, Opening, SnapshotExpiredError, Table, Transaction
from crdt_mor.errors import WriterExpiredError
from crdt_mor.merge.oracle import Meaning
from crdt_mor.payloads import Counter
from crdt_mor.testing import Contribution, MergeRule, SimulatedEnvironment, fold
from tests.inside import look_for_hudi, store_of
from tests.simulated import Simulated
from tests.tiers import one_in

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("at", pa.int64())])
HOUR_MS: Final = 3_600_000


@pytest.fixture
def table(simulated: Simulated) -> Table:
    return simulated.create(SCHEMA, key="id", buckets=1)


def rows(n: int, *keys: str) -> pl.DataFrame:
    return pl.DataFrame({"id": keys, "n": [n] * len(keys), "at": [n] * len(keys)}, schema_overrides={"id": pl.String})


def shown(table: Table, **options: object) -> dict[str, int]:
    """What a new process sees in the table."""
    look_for_hudi(table)
    found = table.scan(**options).to_polars()  # type: ignore[arg-type]
    return dict(zip(found["id"], found["n"], strict=True))


def of_another_process(table: Table, environment: SimulatedEnvironment) -> Table:
    return Table("simulated", opening=Opening(store=store_of(table), environment=environment))


@contextmanager
def begun(table: Table, n: int, *keys: str) -> Iterator[Transaction]:
    """A write of these rows that has begun, and ends with the block."""
    with table.transaction() as transaction:
        transaction.upsert(rows(n, *keys))
        yield transaction


# --- the questions ----------------------------------------------------------------------------------------------------


def test_timestamp_collision(table: Table) -> None:
    """Twenty processes whose clocks show the very same millisecond each have a time of their own, and lose nothing."""
    others = [of_another_process(table, SimulatedEnvironment(table.environment.now_ms(), f"p{n}n")) for n in range(20)]
    blocks = [begun(other, n, "shared", f"own{n}") for n, other in enumerate(others)]
    for block in blocks:
        block.__enter__()
    for block in reversed(blocks):
        block.__exit__(None, None, None)
    times = table.inspect.timeline()["requested_at"].to_pylist()
    assert len(set(times)) == len(times) == 20
    assert shown(table) == {"shared": 19} | {f"own{n}": n for n in range(20)}


def test_clocks_that_run_backwards(table: Table) -> None:
    """Each next commit comes from a process whose clock is another hour behind: each is later than the one before."""
    commits = []
    for n in range(4):
        behind = SimulatedEnvironment(table.environment.now_ms() - n * HOUR_MS, f"p{n}n")
        commits.append(of_another_process(table, behind).upsert(rows(n, "a")))
        assert shown(table) == {"a": n}
    times = [time for commit in commits for time in (commit.requested_at, commit.completed_at)]
    assert times == sorted(set(times))


def test_key_conflict_of_two_inserts(simulated: Simulated) -> None:
    """Both inserts of one new key commit. The one requested later is the row; a counter counts both."""
    table = simulated.create(SCHEMA, key="id", buckets=1, merge={"n": Counter()})
    first, second = begun(table, 1, "new"), begun(table, 2, "new")
    first.__enter__()
    second.__enter__()
    second.__exit__(None, None, None)
    assert shown(table) == {"new": 2}
    first.__exit__(None, None, None)
    assert shown(table) == {"new": 3}
    assert table.scan(columns=["at"]).to_polars()["at"].to_list() == [2]
    assert table.inspect.timeline().num_rows == 2


def test_a_stalled_writer_that_wakes(table: Table) -> None:
    """A writer that was silent past its expiry commits nothing when it wakes, is told so, and may write it again."""
    stalled = of_another_process(table, SimulatedEnvironment(table.environment.now_ms(), "stalled"))
    block = begun(stalled, 1, "a", "b")
    block.__enter__()
    for n in range(3):
        table.environment.sleep(24 * 3600)
        table.upsert(rows(10 + n, "a"))
    table.maintenance.compact()
    table.maintenance.clean(keep=timedelta(0))
    with pytest.raises(WriterExpiredError):
        block.__exit__(None, None, None)
    assert shown(table) == {"a": 12}
    stalled.upsert(rows(1, "b"))
    assert shown(table) == {"a": 12, "b": 1}


@pytest.mark.parametrize("compacts", [(), (0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_slow_completion_behind_a_compaction(table: Table, compacts: tuple[int, ...]) -> None:
    """A write that completes after a compaction has folded later ones takes its place before these, whenever it ran."""

    def step(number: int) -> None:
        if number in compacts:
            table.maintenance.compact()

    table.upsert(rows(0, "a", "b", "c"))
    slow = begun(table, 1, "a", "b", "d")
    slow.__enter__()
    table.upsert(rows(2, "a"))
    step(0)
    table.delete(pl.DataFrame({"id": ["b"]}))
    step(1)
    slow.__exit__(None, None, None)
    step(2)
    assert shown(table) == {"a": 2, "c": 0, "d": 1}


def test_a_reader_across_a_clean(table: Table) -> None:
    """A reader that a clean spares reads on exactly; one that it does not spare is told, and shows nothing wrong."""
    table.upsert(rows(1, "a", "b"))
    spared, left = table.scan(), table.scan()
    for n in range(2, 5):
        table.upsert(rows(n, "a"))
        table.maintenance.compact()
    table.maintenance.clean(keep=timedelta(0))
    assert dict(spared.to_polars().select("id", "n").iter_rows()) == {"a": 1, "b": 1}
    table.environment.sleep(2 * 3600)
    table.maintenance.clean(keep=timedelta(0))
    with pytest.raises(SnapshotExpiredError):
        left.to_polars()
    assert shown(table) == {"a": 4, "b": 1}


# --- kinds of tables x modes of concurrency x cleaning x services -----------------------------------------------------


def total(written: Sequence[tuple[Contribution, tuple[object, ...]]]) -> list[object]:
    return [sum(n for _, (n,) in written if isinstance(n, int))]


def served(table: Table | None) -> None:
    """All services run on this table, if there is one; archiving leaves one commit."""
    if table is not None:
        table.maintenance.compact()
        table.maintenance.archive(keep_commits=1)


def one_after_another(table: Table, batches: list[pl.DataFrame], between: Callable[[], None]) -> Iterator[Commit]:
    for batch in batches:
        yield table.upsert(batch)
        between()


def overlapping(table: Table, batches: list[pl.DataFrame], between: Callable[[], None]) -> list[Commit]:
    """All begin, and the last one to begin ends first."""
    blocks = [table.transaction() for _ in batches]
    for block, batch in zip(blocks, batches, strict=True):
        block.__enter__().upsert(batch)
    for block in reversed(blocks):
        block.__exit__(None, None, None)
        between()
    return [block.commit for block in blocks if block.commit is not None]


def in_parts(table: Table, batches: list[pl.DataFrame], between: Callable[[], None]) -> list[Commit]:
    """Each is staged by tasks, a row each, one of them twice, beside the others."""
    jobs = [table.jobs.plan("upsert", SCHEMA) for _ in batches]
    commits = []
    for job, batch in zip(jobs, batches, strict=True):
        tasks = [*range(batch.height), 0]
        receipts = {task: job.stage(batch[task : task + 1], task=task, environment=table.environment) for task in tasks}
        between()
        commits.append(table.jobs.complete(job, list(receipts.values())))
    return commits


WRITERS: Final[dict[str, Callable[[Table, list[pl.DataFrame], Callable[[], None]], Iterable[Commit]]]] = {
    "one writer": one_after_another,
    "writers that overlap": overlapping,
    "writers in parts": in_parts,
}
MERGES: Final[dict[str, tuple[dict[str, object], MergeRule]]] = {
    "latest": ({}, MergeRule()),
    "ordering": ({"ordering": "at"}, MergeRule("ordering", "at")),
    "counter": ({"merge": {"n": Counter()}}, MergeRule("columns", whole=True)),
}
CLEANING: Final = ("no cleaning", "after each write", "at the end")
SERVICES: Final = ("no services", "after each write", "a process of their own")
COMBINATIONS: Final = list(product(MERGES, WRITERS, CLEANING, SERVICES))


@pytest.mark.costly
@pytest.mark.parametrize(("merge", "writers", "cleaning", "services"), one_in(10, COMBINATIONS))
def test_kinds_of_tables_by_concurrency_cleaning_and_services(
    simulated: Simulated, merge: str, writers: str, cleaning: str, services: str
) -> None:
    """The plan of RFC-22 for its tests: whatever runs beside the writers, the table is the fold of what was written."""
    settings, rule = MERGES[merge]
    table = simulated.create(SCHEMA, key="id", buckets=1, **settings)
    beside = of_another_process(table, SimulatedEnvironment(table.environment.now_ms(), "services"))
    serve = {"no services": None, "after each write": table, "a process of their own": beside}[services]
    history: list[Contribution] = []
    for n in range(4):
        batches = [rows(n, "a", f"b{n}"), rows(7 - n, "a", "c")]
        for commit, batch in zip(WRITERS[writers](table, batches, partial(served, serve)), batches, strict=True):
            history += [
                Contribution(commit.requested_at, row["id"], "row", tuple(row.items())) for row in batch.to_dicts()
            ]
        deleted = table.delete(pl.DataFrame({"id": [f"b{n - 1}"]}), plain=True)
        history.append(Contribution(deleted.requested_at, f"b{n - 1}", "delete"))
        served(serve)
        if cleaning == "after each write":
            table.maintenance.clean(keep=timedelta(0), readers=timedelta(0))
    if cleaning == "at the end":
        beside.maintenance.clean(keep=timedelta(0), readers=timedelta(0))
    sums: dict[tuple[str, ...], Meaning] = {("n",): total} if merge == "counter" else {}
    assert shown(table) == {key: row["n"] for key, row in fold(history, rule, SCHEMA.names, sums).items()}

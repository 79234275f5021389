"""The shapes of tables that we write, and what Hudi's readers are to say of each.

`docs/design/engines.md` shows the same list to users; a test holds the two together.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal
from unittest.mock import Mock

import pyarrow as pa
import pytest

from crdt_mor import Payload, Table, bucket, month, truncate
from crdt_mor.api.transaction import Transaction
from crdt_mor.payloads import (
    All,
    Any,
    Counter,
    Distinct,
    EventList,
    First,
    GrowOnlySet,
    Last,
    LatestBy,
    MapLast,
    Max,
    Min,
    MVRegister,
    ORSet,
    PartialUpdate,
    Quantiles,
)
from tests.inside import run_sweep, session_of
from tests.model.types_page import SUPPORTED, arrow_type, limits

Verdict = Literal["equal", "refused", "differs"]
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("v", pa.string())])


class Maker:
    """Makes one table; transactions that it opens stay open until the test is over, unless it completes them."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.root = root
        self.stack = stack

    def create(self, schema: pa.Schema = SCHEMA, **settings: object) -> Table:
        settings = {"key": "id", "name": self.root.name, "buckets": 2, **settings}
        return Table.create(self.root, schema, **settings)  # type: ignore[arg-type]

    def begin(self, table: Table) -> Transaction:
        """A write that has begun; `end` completes it, else it is still pending when others read."""
        tx = table.transaction()
        tx.__enter__()
        self.stack.callback(tx.__exit__, ValueError, ValueError("the test is over"), None)
        return tx

    @staticmethod
    def end(tx: Transaction) -> None:
        tx.__exit__(None, None, None)


@dataclass(frozen=True)
class Shape:
    """A table, and what others say of it. `why`: the reason, where it is not our rows."""

    build: Callable[[Maker], Table]
    hudi_rs: Verdict
    spark: Verdict
    why: str

    @property
    def name(self) -> str:
        return self.build.__name__

    @property
    def title(self) -> str:
        """The shape in words, as the page has it."""
        assert self.build.__doc__ is not None
        return self.build.__doc__.strip().rstrip(".")


SHAPES: list[Shape] = []


def shape(
    hudi_rs: Verdict = "equal", spark: Verdict = "equal", why: str = ""
) -> Callable[[Callable[[Maker], Table]], Callable[[Maker], Table]]:
    """Add a shape to the list."""

    def add(build: Callable[[Maker], Table]) -> Callable[[Maker], Table]:
        SHAPES.append(Shape(build, hudi_rs, spark, why))
        return build

    return add


NO_TIME = dt.timedelta(0)


def clean(table: Table, commits: int = 1) -> None:
    """All history but that of the last commits is given up, also where a reader still needs it."""
    table.maintenance.clean(commits=commits, readers=NO_TIME)


def swept(table: Table) -> None:
    """The sweeps are over that it takes until what was given up is forgotten."""
    session = session_of(table)
    for _ in range(2):
        session.remember(run_sweep(table))


def rows(names: Iterable[int], n: int, v: str = "") -> pa.Table:
    """A batch: keys k0, k1, ..., all with `n` and `v`."""
    names = list(names)
    return pa.table({"id": [f"k{i}" for i in names], "n": [n] * len(names), "v": [v or f"v{n}"] * len(names)}, SCHEMA)


def keys(*numbers: int) -> list[str]:
    return [f"k{i}" for i in numbers]


# --- overwrite-latest, the default ------------------------------------------------------------------------------------


@shape()
def empty(make: Maker) -> Table:
    """default, nothing written."""
    return make.create()


@shape()
def log_only(make: Maker) -> Table:
    """default, log files only: appends, upserts, deletes, a key that came back."""
    table = make.create()
    table.append(rows(range(20), 1))
    table.upsert(rows(range(5, 10), 2))
    table.delete(keys=keys(0, 1, 5))
    table.upsert(rows([1, 30], 3))
    return table


@shape()
def everything_deleted(make: Maker) -> Table:
    """default, log files only, every row deleted."""
    table = make.create()
    table.append(rows(range(6), 1))
    table.delete(where="n = 1")
    return table


@shape()
def many_statements(make: Maker) -> Table:
    """default, upserts and deletes of the same keys in one commit."""
    table = make.create()
    table.append(rows(range(10), 1))
    with table.transaction() as tx:
        tx.delete(keys=keys(0, 1, 2))
        tx.upsert(rows([1, 20], 2))
        tx.delete(keys=keys(20, 3))
        tx.upsert(rows([3], 3))
    return table


@shape()
def staged_by_tasks(make: Maker) -> Table:
    """default, staged by several tasks, one attempt repeated; the driver of one job died and another completed it."""
    table = make.create()
    for n, parts in enumerate([[range(10), range(5, 15)], [range(3)]]):
        job = table.jobs.plan("upsert", SCHEMA)
        receipts = [job.stage(rows(part, 10 * n + task), task=task) for task, part in enumerate(parts)]
        with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr("crdt_mor.events.write.complete", Mock(side_effect=KeyboardInterrupt))
            patch.setattr("crdt_mor.events.rollback.give_up", Mock(side_effect=KeyboardInterrupt))
            table.jobs.complete(job, receipts)
        again = [job.stage(rows(part, 10 * n + task + 5), task=task) for task, part in enumerate(parts[:1])]
        table.jobs.complete(job, [*again, *receipts[1:]])
    return table


@shape()
def joined_blocks_of_tasks(make: Maker) -> Table:
    """default, in each log file the blocks of several tasks, between other commits, on base files."""
    table = make.create()
    table.append(rows(range(12), 1))
    table.maintenance.compact()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crdt_mor.write.job_files.JOINED_ROWS_MIN", 0)
        job = table.jobs.plan("upsert", SCHEMA)
        parts = (range(0, 30, 3), range(1, 30, 3), range(2, 30, 3))
        table.jobs.complete(job, [job.stage(rows(part, 2), task=task) for task, part in enumerate(parts)])
    table.upsert(rows([0, 40], 3))
    return table


@shape()
def rolled_back(make: Maker) -> Table:
    """default, a write rolled back between others."""
    table = make.create()
    table.append(rows(range(6), 1))
    tx = make.begin(table)
    tx.upsert(rows([0], 99))
    tx.__exit__(ValueError, ValueError("no"), None)
    table.upsert(rows([1], 2))
    return table


@shape()
def told_of_a_rollback(make: Maker) -> Table:
    """default, a write given up by hand and forgotten, so that Hudi is told of its rollback."""
    table = make.create()
    table.append(rows(range(6), 1))
    make.begin(table).upsert(rows([0], 99))
    make.begin(table).upsert(rows([1], 99))
    table.upsert(rows([1], 2))
    for instant in table.inspect.pending()["requested_at"].to_pylist():
        table.maintenance.roll_back(instant)
    swept(table)
    table.upsert(rows([2], 3))
    return table


@shape()
def pending_write(make: Maker) -> Table:
    """default, a write pending that has begun before others."""
    table = make.create()
    table.append(rows(range(6), 1))
    make.begin(table).upsert(rows([0], 99))
    table.upsert(rows([1], 2))
    return table


@shape()
def overlapping(make: Maker) -> Table:
    """default, log files only, writes that end in another order than they began in."""
    table = make.create()
    table.append(rows(range(6), 1))
    a, b = make.begin(table), make.begin(table)
    a.upsert(rows([0, 1, 2, 3], 2))
    b.upsert(rows([0, 1], 3))
    b.delete(keys=keys(2))
    make.end(b)
    make.end(a)
    return table


@shape()
def compacted(make: Maker) -> Table:
    """default, compacted, nothing pending."""
    table = log_only(make)
    table.maintenance.compact()
    return table


@shape()
def compacted_and_written(make: Maker) -> Table:
    """default, compacted, then upserts and deletes."""
    table = compacted(make)
    table.upsert(rows([1, 2, 40], 4))
    table.delete(keys=keys(3, 30))
    return table


@shape()
def compacted_twice(make: Maker) -> Table:
    """default, compacted twice, then upserts."""
    table = compacted_and_written(make)
    table.maintenance.compact()
    table.upsert(rows([3, 41], 5))
    return table


@shape()
def compacted_empty(make: Maker) -> Table:
    """default, compacted to base files without rows."""
    table = everything_deleted(make)
    table.maintenance.compact()
    return table


@shape()
def compacted_empty_and_written(make: Maker) -> Table:
    """default, compacted to base files without rows, then upserts."""
    table = compacted_empty(make)
    table.upsert(rows([1, 9], 2))
    return table


@shape()
def compacted_beside_a_writer(make: Maker) -> Table:
    """default, compacted beside a pending write; tombstones carried."""
    table = make.create()
    table.append(rows(range(10), 1))
    table.delete(keys=keys(9))
    make.begin(table).upsert(rows([0, 1, 9], 99))
    table.upsert(rows([0], 2))
    table.delete(keys=keys(1))
    table.maintenance.compact()
    return table


@shape()
def convergence(make: Maker) -> Table:
    """default, A begins, B upserts and deletes A's keys, compaction runs, A completes."""
    table = make.create()
    table.append(rows(range(10), 1))
    a, b = make.begin(table), make.begin(table)
    a.upsert(rows([0, 1, 2, 3, 20], 2))
    a.delete(keys=keys(4, 5))
    b.upsert(rows([0, 1, 4], 3))
    b.delete(keys=keys(2, 6, 20))
    make.end(b)
    table.maintenance.compact()
    make.end(a)
    return table


@shape()
def convergence_compacted_again(make: Maker) -> Table:
    """default, the same, and compacted again."""
    table = convergence(make)
    table.maintenance.compact()
    return table


@shape()
def logs_compacted(make: Maker) -> Table:
    """default, compacted, written, then a log compaction."""
    table = compacted_and_written(make)
    table.upsert(rows([2, 40, 3], 5))
    table.delete(keys=keys(1, 30))
    table.maintenance.compact(logs_only=True)
    return table


@shape()
def logs_compacted_and_written(make: Maker) -> Table:
    """default, compacted, written, two log compactions with writes between them and after."""
    table = logs_compacted(make)
    table.upsert(rows(range(8, 14), 6))
    table.delete(keys=keys(8, 9))
    table.maintenance.compact(logs_only=True)
    table.upsert(rows([8, 50], 7))
    return table


@shape()
def logs_compacted_beside_stragglers(make: Maker) -> Table:
    """default, log compactions beside three stragglers that complete before, between and after them."""
    table = make.create(buckets=1)
    table.append(rows(range(12), 1))
    first, second, third = (make.begin(table) for _ in range(3))
    first.upsert(rows([0, 1, 2, 3], 2))
    first.delete(keys=keys(4, 5, 6))
    table.upsert(rows([0, 4], 3))
    table.delete(keys=keys(1, 7))
    table.maintenance.compact()
    make.end(first)
    table.upsert(rows([7, 20], 4))
    table.delete(keys=keys(2))
    table.maintenance.compact(logs_only=True)
    second.upsert(rows([0, 1, 2, 5, 8], 5))
    second.delete(keys=keys(20, 9))
    make.end(second)
    table.upsert(rows([9, 21], 6))
    table.maintenance.compact(logs_only=True)
    third.upsert(rows([1, 2, 10], 7))
    third.delete(keys=keys(21, 11))
    make.end(third)
    return table


@shape()
def logs_compacted_beside_stragglers_and_compacted(make: Maker) -> Table:
    """default, the same, and compacted fully."""
    table = logs_compacted_beside_stragglers(make)
    table.maintenance.compact()
    return table


@shape()
def log_compaction_planned(make: Maker) -> Table:
    """default, compacted, written, a log compaction executed and not completed, written after."""
    table = compacted_and_written(make)
    table.upsert(rows(range(20), 5))
    plan = table.maintenance.plans.schedule(logs_only=True)
    assert plan is not None
    table.maintenance.plans.execute(plan)
    table.upsert(rows([2, 51], 6))
    return table


@shape()
def logs_compacted_after_a_column(make: Maker) -> Table:
    """default, hive style partitions, a column added, written, then a log compaction over the narrower base file."""
    table = make.create(pa.schema([*SCHEMA, ("day", pa.string())]), partition_by="day")
    for n in (1, 2):
        table.upsert(rows(range(6), n).append_column("day", pa.array(["mon", "tue"] * 3)))
        table.maintenance.compact()
    more = rows(range(4), 3).append_column("day", pa.array(["mon", "tue"] * 2))
    table.upsert(more.append_column("extra", pa.array([3] * 4)), schema_mode="merge")
    table.upsert(rows([0, 9], 4).append_column("day", pa.array(["mon", "tue"])))
    table.maintenance.compact(logs_only=True)
    return table


@shape()
def two_stragglers(make: Maker) -> Table:
    """default, two stragglers across two compactions, a write between them."""
    table = make.create(buckets=1)
    table.append(rows(range(10), 1))
    first = make.begin(table)
    table.upsert(rows([0, 1, 2], 2))
    second = make.begin(table)
    table.upsert(rows([1], 3))
    table.delete(keys=keys(2, 3))
    table.maintenance.compact()
    second.upsert(rows([0, 1, 2, 3, 4], 5))
    second.delete(keys=keys(5))
    make.end(second)
    table.delete(keys=keys(4))
    table.maintenance.compact()
    first.upsert(rows([0, 1, 2, 3, 4, 5, 6], 4))
    first.delete(keys=keys(7))
    make.end(first)
    return table


@shape()
def planned(make: Maker) -> Table:
    """default, a compaction scheduled and not executed."""
    table = log_only(make)
    table.maintenance.plans.schedule()
    return table


@shape()
def planned_and_written(make: Maker) -> Table:
    """default, a compaction scheduled and not executed, a straggler and another write after it."""
    table = make.create()
    table.append(rows(range(10), 1))
    a = make.begin(table)
    a.upsert(rows([0, 1, 2, 20], 2))
    table.upsert(rows([0], 3))
    table.delete(keys=keys(1, 20))
    table.maintenance.plans.schedule()
    make.end(a)
    table.upsert(rows([5, 21], 4))
    table.delete(keys=keys(6))
    return table


@shape()
def planned_over_a_base(make: Maker) -> Table:
    """default, compacted, written, a second compaction scheduled beside a pending write."""
    table = compacted(make)
    a = make.begin(table)
    a.upsert(rows([2, 3], 4))
    table.delete(keys=keys(2))
    table.maintenance.plans.schedule()
    table.upsert(rows([7], 5))
    make.begin(table).upsert(rows([7], 99))
    make.end(a)
    return table


@shape()
def plan_cancelled(make: Maker) -> Table:
    """default, a compaction scheduled and cancelled, written after."""
    table = log_only(make)
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    table.maintenance.plans.cancel(plan.barrier)
    table.upsert(rows([2], 7))
    return table


@shape()
def executed_and_not_completed(make: Maker) -> Table:
    """default, a compaction executed and not completed, written after."""
    table = log_only(make)
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    assert table.maintenance.plans.execute(plan)
    table.upsert(rows([2], 7))
    return table


@shape()
def cancelled_and_planned_again(make: Maker) -> Table:
    """default, a compaction executed in part and cancelled, written after, scheduled again and written after."""
    table = log_only(make)
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    table.maintenance.plans.execute(plan.parts()[0])
    table.maintenance.plans.cancel(plan.barrier)
    table.upsert(rows(range(4), 7))
    assert table.maintenance.plans.schedule() is not None
    table.upsert(rows([2], 8))
    return table


@shape()
def some_groups_compacted(make: Maker) -> Table:
    """default, only the file groups with enough log files compacted."""
    table = make.create(buckets=4)
    table.append(rows(range(3), 1))
    table.upsert(rows(range(2), 2))
    table.upsert(rows(range(1), 3))
    table.maintenance.compact(log_files_min=3)
    table.delete(keys=keys(1))
    return table


@shape()
def cleaned(make: Maker) -> Table:
    """default, compacted and written twice, cleaned to the last commit."""
    table = compacted_and_written(make)
    table.maintenance.compact()
    table.upsert(rows([0, 40], 7))
    clean(table)
    return table


@shape()
def cleaned_and_written(make: Maker) -> Table:
    """default, cleaned, then upserts and deletes, compacted and cleaned again."""
    table = cleaned(make)
    table.upsert(rows([1, 41], 8))
    table.delete(keys=keys(0))
    table.maintenance.compact()
    clean(table)
    table.upsert(rows([2], 9))
    return table


@shape()
def cleaned_beside_a_writer(make: Maker) -> Table:
    """default, compacted and cleaned beside two stragglers, one of which completes then."""
    table = make.create(buckets=1)
    table.append(rows(range(10), 1))
    make.begin(table).upsert(rows([0], 99))
    straggler = make.begin(table)
    for n in range(2, 5):
        table.upsert(rows([0, 1, n], n))
        table.delete(keys=keys(n + 3))
        table.maintenance.compact()
    clean(table)
    straggler.upsert(rows([0, 5, 8], 98))
    straggler.delete(keys=keys(9))
    make.end(straggler)
    return table


@shape()
def cleaned_beside_a_plan(make: Maker) -> Table:
    """default, cleaned while a compaction was scheduled, which is executed then."""
    table = compacted_and_written(make)
    assert table.maintenance.plans.schedule() is not None
    table.upsert(rows([0, 40], 7))
    clean(table)
    table.maintenance.compact()
    clean(table)
    return table


@shape()
def cleaned_partitions(make: Maker) -> Table:
    """default, hive style partitions, one of which is emptied, compacted and cleaned."""
    table = _write_places(make, partition_by="region")
    table.delete(where="region = 'us'")
    table.maintenance.compact()
    clean(table)
    table.upsert(places([1, 20], 7))
    return table


@shape()
def many_commits(make: Maker) -> Table:
    """default, a hundred commits."""
    table = make.create(buckets=1)
    table.append(rows(range(50), 0))
    for n in range(100):
        table.upsert(rows([n % 50], n + 1)) if n % 7 else table.delete(keys=keys(n % 50))
    return table


# --- partitions and keys ----------------------------------------------------------------------------------------------

PLACES = pa.schema([("id", pa.string()), ("region", pa.string()), ("day", pa.date32()), ("n", pa.int64())])


def places(names: Iterable[int], n: int) -> pa.Table:
    names = list(names)
    first = dt.date(2026, 1, 1)
    return pa.table(
        {
            "id": [f"k{i}" for i in names],
            "region": ["eu west" if i % 2 else "us" for i in names],
            "day": [first + dt.timedelta(days=i % 3) for i in names],
            "n": [n] * len(names),
        },
        PLACES,
    )


def _write_places(make: Maker, **settings: object) -> Table:
    table = make.create(PLACES, **settings)
    table.append(places(range(12), 1))
    table.maintenance.compact()
    table.upsert(places(range(4), 2))
    table.delete(places([0, 5], 0).select(["id", "region", "day"]))
    return table


@shape()
def hive_partitions(make: Maker) -> Table:
    """default, hive style partitions, compacted and written."""
    return _write_places(make, partition_by="region")


@shape()
def plain_partitions(make: Maker) -> Table:
    """default, plain partitions, compacted and written."""
    return _write_places(make, partition_by="region", hive_style=False)


@shape()
def hive_partitions_by_two(make: Maker) -> Table:
    """default, hive style partitions by two columns, one a date, composite key text."""
    return _write_places(make, partition_by=["region", "day"])


@shape()
def plain_partitions_by_two(make: Maker) -> Table:
    """default, plain partitions by two columns, one a date."""
    return _write_places(make, partition_by=["region", "day"], hive_style=False)


@shape()
def hive_partitions_by_date(make: Maker) -> Table:
    """default, hive style partitions by a date."""
    return _write_places(make, partition_by="day")


@shape()
def partitions_by_functions(make: Maker) -> Table:
    """default, hive style partitions by functions of a time, a key and a text."""
    schema = pa.schema(
        [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("name", pa.string()), ("n", pa.int64())]
    )

    def some(names: Iterable[int], n: int) -> pa.Table:
        first = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        rows = [(i, first + dt.timedelta(hours=7 * i), (None, "Ann", "Änne")[i % 3], n) for i in names]
        return pa.table([*zip(*rows, strict=True)], schema=schema)

    table = make.create(schema, partition_by=[month("at"), bucket("id", 3), truncate("name", 2)])
    table.append(some(range(12), 1))
    table.maintenance.compact()
    table.upsert(some(range(4), 2))
    table.delete(some([0, 5], 0).select(["id", "at", "name"]))
    return table


@shape()
def plain_partitions_by_date(make: Maker) -> Table:
    """default, plain partitions by a date."""
    return _write_places(make, partition_by="day", hive_style=False)


def _write_numbered(make: Maker, partition_by: str, **settings: object) -> Table:
    schema = pa.schema([("id", pa.int64()), ("year", pa.int32()), ("flag", pa.bool_()), ("region", pa.string())])
    table = make.create(schema, partition_by=partition_by, **settings)
    found = [{"id": i, "year": 2020 + i % 2, "flag": i % 2 == 0, "region": None if i == 3 else "x"} for i in range(8)]
    table.append(pa.Table.from_pylist(found, schema))
    table.maintenance.compact()
    table.upsert(pa.Table.from_pylist([row | {"flag": row["flag"]} for row in found[:2]], schema))
    return table


@shape()
def hive_partitions_by_int(make: Maker) -> Table:
    """default, hive style partitions by an int, an int key."""
    return _write_numbered(make, "year")


@shape()
def plain_partitions_by_int(make: Maker) -> Table:
    """default, plain partitions by an int, an int key."""
    return _write_numbered(make, "year", hive_style=False)


@shape()
def hive_partitions_by_bool(make: Maker) -> Table:
    """default, hive style partitions by a bool."""
    return _write_numbered(make, "flag")


@shape()
def hive_partitions_with_null(make: Maker) -> Table:
    """default, hive style partitions, a null among the values."""
    return _write_numbered(make, "region")


@shape()
def plain_partitions_with_null(make: Maker) -> Table:
    """default, plain partitions, a null among the values."""
    return _write_numbered(make, "region", hive_style=False)


@shape()
def hive_partitions_of_numbers(make: Maker) -> Table:
    """default, hive style partitions by a string that looks like a number."""
    schema = pa.schema([("id", pa.string()), ("code", pa.string()), ("n", pa.int64())])
    table = make.create(schema, partition_by="code")
    table.append(pa.table({"id": ["a", "b"], "code": ["007", "1e3"], "n": [1, 1]}, schema))
    table.maintenance.compact()
    table.upsert(pa.table({"id": ["a"], "code": ["007"], "n": [2]}, schema))
    return table


@shape()
def odd_partitions(make: Maker) -> Table:
    """default, hive style partitions with %, =, spaces and letters beyond ASCII in their values."""
    schema = pa.schema([("id", pa.string()), ("place", pa.string()), ("n", pa.int64())])
    table = make.create(schema, partition_by="place")
    values = ["50%", "%zz", "Zürich", "a=b", "c d"]
    table.append(pa.table({"id": keys(*range(5)), "place": values, "n": [1] * 5}, schema))
    table.maintenance.compact()
    table.upsert(pa.table({"id": keys(*range(5)), "place": values, "n": [2] * 5}, schema).slice(0, 3))
    return table


def _write_composite(make: Maker, **settings: object) -> Table:
    schema = pa.schema([("a", pa.string()), ("b", pa.int32()), ("region", pa.string()), ("n", pa.int64())])
    table = make.create(schema, key=["a", "b"], **settings)
    regions = ["us", "eu"]
    found: list[dict[str, object]] = [{"a": f"x{i % 3}", "b": i, "region": regions[i % 2], "n": 1} for i in range(8)]
    found += [{"a": None, "b": 100, "region": "eu", "n": 1}, {"a": "", "b": 101, "region": "eu", "n": 1}]
    table.append(pa.Table.from_pylist(found, schema))
    table.maintenance.compact()
    table.upsert(pa.Table.from_pylist([row | {"n": 2} for row in found[5:10]], schema))
    table.delete(pa.Table.from_pylist(found[:2], schema).select(["a", "b", "region"]))
    return table


@shape()
def composite_key(make: Maker) -> Table:
    """default, composite key with nulls and empty texts."""
    return _write_composite(make)


@shape()
def composite_key_in_partitions(make: Maker) -> Table:
    """default, composite key, hive style partitions."""
    return _write_composite(make, partition_by="region")


@shape()
def date_key(make: Maker) -> Table:
    """default, a date as key."""
    schema = pa.schema([("day", pa.date32()), ("n", pa.int64())])
    table = make.create(schema, key="day")
    days = [dt.date(2026, 1, 1 + i) for i in range(5)]
    table.append(pa.table({"day": days, "n": [1] * 5}, schema))
    table.maintenance.compact()
    table.upsert(pa.table({"day": days[:2], "n": [2] * 2}, schema))
    table.delete(keys=[days[4]])
    return table


@shape()
def odd_keys(make: Maker) -> Table:
    """default, keys with every kind of letter."""
    table = make.create(buckets=3)
    odd = ["a:b,c:d", "\U0001f600", "é", "a b", "a,b", '"', "\\", "\n", "__null__", "null", "0"]
    table.append(pa.table({"id": odd, "n": [1] * len(odd), "v": odd}, SCHEMA))
    table.maintenance.compact()
    table.upsert(pa.table({"id": odd[:6], "n": [2] * 6, "v": odd[:6]}, SCHEMA))
    table.delete(keys=odd[3:8])
    return table


# --- schema -----------------------------------------------------------------------------------------------------------


@shape()
def grown(make: Maker) -> Table:
    """default, a column added, then a straggler without it; log files only."""
    table = make.create()
    table.append(rows(range(6), 1))
    a = make.begin(table)
    a.upsert(rows([0, 8], 2))
    table.upsert(rows([1, 7], 3).append_column("extra", pa.array(["x", "y"])), schema_mode="merge")
    make.end(a)
    return table


@shape()
def grown_and_compacted(make: Maker) -> Table:
    """default, a column added, compacted, then written."""
    table = grown(make)
    table.maintenance.compact()
    table.upsert(rows([2], 4).append_column("extra", pa.array(["z"])))
    return table


@shape()
def grown_over_a_base(make: Maker) -> Table:
    """default, a column added after a compaction."""
    table = compacted(make)
    table.upsert(rows([2, 50], 4).append_column("extra", pa.array([1, None], pa.int64())), schema_mode="merge")
    return table


@shape()
def straggler_without_a_column(make: Maker) -> Table:
    """default, a straggler without a column that the base file has."""
    table = make.create()
    table.append(rows(range(6), 1))
    table.upsert(rows([0, 7], 2).append_column("extra", pa.array(["x", "y"])), schema_mode="merge")
    a = make.begin(table)
    table.maintenance.compact()
    a.upsert(rows([0, 1], 3).append_column("extra", pa.array([None, "z"])))
    make.end(a)
    return table


@shape("differs", "equal", "hudi-rs keeps the base file's value of a column that a block lacks")
def straggler_from_before_a_column(make: Maker) -> Table:
    """default, a straggler that does not know a column, over a base file that has it."""
    table = make.create()
    table.append(rows(range(6), 1))
    adds, straggler = make.begin(table), make.begin(table)
    adds.upsert(rows([0, 1], 2).append_column("extra", pa.array(["x", "y"])), schema_mode="merge")
    make.end(adds)
    table.maintenance.compact()
    straggler.upsert(rows([0, 2], 3))
    make.end(straggler)
    return table


NARROW = pa.schema([("id", pa.string()), ("i", pa.int32()), ("f", pa.float32()), ("d", pa.int32())])
WIDE = pa.schema([("id", pa.string()), ("i", pa.int64()), ("f", pa.float64()), ("d", pa.float64())])


def _widen(make: Maker, compact_first: bool) -> Table:
    table = make.create(NARROW)
    table.append(pa.table({"id": keys(*range(4)), "i": [1] * 4, "f": [0.5] * 4, "d": [7] * 4}, NARROW))
    if compact_first:
        table.maintenance.compact()
    wide = pa.table({"id": keys(1, 5), "i": [2**40] * 2, "f": [0.1] * 2, "d": [2.5] * 2}, WIDE)
    table.upsert(wide, schema_mode="merge")
    return table


@shape()
def widened(make: Maker) -> Table:
    """default, types widened; log files only."""
    return _widen(make, compact_first=False)


@shape()
def widened_over_a_base(make: Maker) -> Table:
    """default, types widened after a compaction."""
    return _widen(make, compact_first=True)


@shape()
def widened_and_compacted(make: Maker) -> Table:
    """default, types widened, then compacted."""
    table = _widen(make, compact_first=True)
    table.maintenance.compact()
    return table


BY_TEXT = "both show the double of a float's decimal text, until its file is rewritten"


@shape("differs", "differs", BY_TEXT)
def floats_over_a_base(make: Maker) -> Table:
    """default, floats beyond binary fractions that became doubles after a compaction."""
    table = make.create(pa.schema([("id", pa.string()), ("f", pa.float32())]))
    table.append(pa.table({"id": keys(0, 1), "f": pa.array([0.1, 0.5], pa.float32())}))
    table.maintenance.compact()
    table.upsert(pa.table({"id": keys(1), "f": [0.2]}), schema_mode="merge")
    return table


MORE_DIGITS = (
    {"a": pa.decimal128(6, 2), "b": pa.decimal128(6, 2)},
    {"a": pa.decimal128(12, 2), "b": pa.decimal128(30, 2)},
)
GREATER_SCALES = (
    {"a": pa.decimal128(6, 2), "b": pa.decimal128(6, 2), "c": pa.decimal128(10, 0)},
    {"a": pa.decimal128(7, 3), "b": pa.decimal128(30, 4), "c": pa.decimal128(12, 2)},
)
INTEGERS = (
    {"a": pa.int32(), "b": pa.int64(), "c": pa.int64()},
    {"a": pa.decimal128(12, 2), "b": pa.decimal128(21, 2), "c": pa.uint64()},
)


OTHER_DECIMALS = "hudi-rs takes no log block whose numbers are integers, or decimals of another scale"


def _priced(kinds: dict[str, pa.DataType], ids: Iterable[int], numbers: list[int | None]) -> pa.Table:
    """Decimals have digits after the point."""
    columns = {}
    for name, kind in kinds.items():
        part = Decimal(1).scaleb(-kind.scale) if pa.types.is_decimal(kind) else 0
        columns[name] = pa.array([None if number is None else number + part for number in numbers], kind)
    return pa.table({"id": keys(*ids), **columns})


def _widen_numbers(make: Maker, kinds: tuple[dict[str, pa.DataType], dict[str, pa.DataType]], moment: str) -> Table:
    narrow, wide = kinds
    table = make.create(_priced(narrow, [0], [None]).schema)
    table.append(_priced(narrow, range(6), [12, -99, None, 0, 9998, 7]))
    if moment != "logs":
        table.maintenance.compact()
    table.upsert(_priced(wide, [1, 9], [5, 9999]), schema_mode="merge")
    if moment == "compacted":
        table.maintenance.compact()
    return table


@shape()
def digits_in_logs(make: Maker) -> Table:
    """default, decimals with more digits; log files only."""
    return _widen_numbers(make, MORE_DIGITS, "logs")


@shape()
def digits_over_a_base(make: Maker) -> Table:
    """default, decimals with more digits after a compaction."""
    return _widen_numbers(make, MORE_DIGITS, "base")


@shape()
def digits_compacted(make: Maker) -> Table:
    """default, decimals with more digits, then compacted."""
    return _widen_numbers(make, MORE_DIGITS, "compacted")


@shape("refused", "equal", OTHER_DECIMALS)
def scales_in_logs(make: Maker) -> Table:
    """default, decimals with a greater scale; log files only."""
    return _widen_numbers(make, GREATER_SCALES, "logs")


@shape()
def scales_over_a_base(make: Maker) -> Table:
    """default, decimals with a greater scale after a compaction."""
    return _widen_numbers(make, GREATER_SCALES, "base")


@shape()
def scales_compacted(make: Maker) -> Table:
    """default, decimals with a greater scale, then compacted."""
    return _widen_numbers(make, GREATER_SCALES, "compacted")


@shape("refused", "equal", OTHER_DECIMALS)
def integers_in_logs(make: Maker) -> Table:
    """default, integers that became decimals; log files only."""
    return _widen_numbers(make, INTEGERS, "logs")


@shape()
def integers_over_a_base(make: Maker) -> Table:
    """default, integers that became decimals after a compaction."""
    return _widen_numbers(make, INTEGERS, "base")


@shape()
def integers_compacted(make: Maker) -> Table:
    """default, integers that became decimals, then compacted."""
    return _widen_numbers(make, INTEGERS, "compacted")


FLAT = pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())]))
MORE = pa.list_(pa.struct([("z", pa.string()), ("y", pa.string()), ("x", pa.int32())]))
WIDER = pa.list_(pa.struct([("y", pa.string()), ("x", pa.int64())]))
INSIDE = "hudi-rs takes no log block whose structs have fewer or narrower fields than the table's"


def _grow_inside(make: Maker, more: pa.DataType, compact_first: bool) -> Table:
    table = make.create(pa.schema([("id", pa.string()), ("c", FLAT)]), buckets=3)
    table.append(pa.table({"id": keys(*range(6)), "c": pa.array([[{"x": 1, "y": "a"}, None], None] * 3, FLAT)}))
    if compact_first:
        table.maintenance.compact()
    values = pa.array([[{"x": 2, "y": "b", "z": "new"}, {"y": None}]], more)
    table.upsert(pa.table({"id": keys(1), "c": values}), schema_mode="merge")
    return table


@shape("refused", "equal", INSIDE)
def fields_inside(make: Maker) -> Table:
    """default, a field added inside of a list; log files only."""
    return _grow_inside(make, MORE, compact_first=False)


@shape()
def fields_inside_over_bases(make: Maker) -> Table:
    """default, a field added inside of a list after a compaction."""
    return _grow_inside(make, MORE, compact_first=True)


@shape()
def fields_inside_compacted(make: Maker) -> Table:
    """default, a field added inside of a list, then compacted."""
    table = _grow_inside(make, MORE, compact_first=False)
    table.maintenance.compact()
    return table


@shape("refused", "equal", INSIDE)
def widened_inside(make: Maker) -> Table:
    """default, a field widened inside of a list; log files only."""
    return _grow_inside(make, WIDER, compact_first=False)


@shape("equal", "refused", "Spark's vectorized reader takes no nested column whose type has changed, see below")
def widened_inside_over_bases(make: Maker) -> Table:
    """default, a field widened inside of a list after a compaction."""
    return _grow_inside(make, WIDER, compact_first=True)


def _limits_of_all(kind: pa.DataType) -> list[object]:
    """Null and a least and a greatest value; of times, those that every reader's language can spell."""
    ty = pa.types
    if ty.is_date(kind):
        return [None, dt.date(1900, 1, 1), dt.date(2200, 12, 31)]
    if ty.is_timestamp(kind):
        zone = dt.UTC if kind.tz else None
        fine = {"s": 0, "ms": 999_000, "us": 999_999, "ns": 999_999}[kind.unit]
        return [None, dt.datetime(1900, 1, 1, tzinfo=zone), dt.datetime(2200, 12, 31, 23, 59, 59, fine, zone)]
    if ty.is_struct(kind):
        values = [_limits_of_all(field.type) for field in kind]
        return [None, {field.name: None for field in kind}, {f.name: v[-1] for f, v in zip(kind, values, strict=True)}]
    if ty.is_list(kind) and ty.is_dictionary(kind.value_type):
        return [None, [], ["a", None]]
    return [None, *limits(kind)][:3]


def _column(declared: str) -> pa.Array:
    kind = arrow_type(declared)
    values = _limits_of_all(kind)
    values += values[-1:] * (3 - len(values))
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def every_type() -> pa.Table:
    """A column of each type of `docs/types.md`."""
    columns = {f"c{index}": _column(row[0]) for index, row in enumerate(SUPPORTED)}
    return pa.table({"id": keys(0, 1, 2), **columns})


@shape()
def types_in_logs(make: Maker) -> Table:
    """default, every type; log files only."""
    data = every_type()
    table = make.create(data.schema, buckets=1)
    table.append(data)
    table.upsert(data.slice(0, 2))
    return table


@shape()
def types_compacted(make: Maker) -> Table:
    """default, every type, compacted."""
    table = types_in_logs(make)
    table.maintenance.compact()
    return table


@shape()
def types_over_a_base(make: Maker) -> Table:
    """default, every type, compacted and written."""
    table = types_compacted(make)
    table.upsert(every_type().slice(1, 2))
    return table


def ancient_times() -> pa.Table:
    """Days and moments on both sides of where Spark 2 and Hive counted otherwise: 1582-10-15 and 1900-01-01, in UTC."""
    days = [
        dt.date(*day)
        for day in ((1, 1, 2), (1000, 2, 28), (1582, 10, 4), (1582, 10, 15), (1899, 12, 31), (1900, 1, 1), (2026, 3, 8))
    ]
    moments = [dt.datetime.combine(day, dt.time(12, 34, 56, 789_012), dt.UTC) for day in days]
    stamps = pa.array(moments, pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "id": keys(*range(len(moments))),
            "day": days,
            "at": stamps,
            "local": stamps.cast(pa.timestamp("us")),
            "coarse": stamps.cast(pa.timestamp("ms", "UTC"), safe=False),
            "days": pa.array([[day, None] for day in days], pa.list_(pa.date32())),
            "row": [{"at": moment} for moment in moments],
        }
    )


@shape()
def ancient_in_logs(make: Maker) -> Table:
    """default, days before 1582 and moments before 1900; log files only."""
    data = ancient_times()
    table = make.create(data.schema, buckets=1)
    table.append(data)
    return table


@shape()
def ancient_compacted(make: Maker) -> Table:
    """default, days before 1582 and moments before 1900, compacted."""
    table = ancient_in_logs(make)
    table.maintenance.compact()
    return table


@shape()
def ancient_over_a_base(make: Maker) -> Table:
    """default, days before 1582 and moments before 1900, compacted and written."""
    table = ancient_compacted(make)
    table.upsert(ancient_times().slice(1, 2))
    return table


# --- an ordering column -----------------------------------------------------------------------------------------------


@shape()
def ordering_log_only(make: Maker) -> Table:
    """ordering column, log files only: late updates, deletes with an ordering value, early and late."""
    table = make.create(ordering="n")
    table.append(rows(range(12), 10))
    table.upsert(rows([0, 1], 5))
    table.upsert(rows([2, 3], 20))
    table.delete(rows([2, 4], 15))
    table.delete(rows([3, 5], 30))
    table.upsert(rows([5, 6], 25))
    table.upsert(rows([4], 16))
    return table


@shape()
def ordering_compacted(make: Maker) -> Table:
    """ordering column, compacted, nothing pending; winning tombstones carried."""
    table = ordering_log_only(make)
    table.maintenance.compact()
    return table


@shape()
def ordering_compacted_and_written(make: Maker) -> Table:
    """ordering column, compacted, then late and new rows and deletes."""
    table = ordering_compacted(make)
    table.upsert(rows([3, 5, 0], 22))
    table.upsert(rows([5, 6], 40))
    table.delete(rows([7, 8], 1))
    table.delete(rows([9], 50))
    return table


@shape()
def ordering_compacted_beside_a_writer(make: Maker) -> Table:
    """ordering column, compacted beside a pending write that completes then; unstable rows carried."""
    table = make.create(ordering="n")
    table.append(rows(range(12), 10))
    a = make.begin(table)
    a.upsert(rows([0, 1, 2, 3], 15))
    a.delete(rows([4, 5], 15))
    table.upsert(rows([0, 4], 20))
    table.upsert(rows([1, 5], 12))
    table.delete(rows([2], 20))
    table.delete(rows([3], 12))
    table.maintenance.compact()
    make.end(a)
    return table


@shape()
def ordering_logs_compacted(make: Maker) -> Table:
    """ordering column, compacted, late and new rows and deletes, a log compaction, more of them after."""
    table = ordering_compacted_and_written(make)
    table.upsert(rows([0, 3, 6], 23))
    table.maintenance.compact(logs_only=True)
    table.upsert(rows([3, 5, 9], 24))
    table.upsert(rows([7, 9], 60))
    table.delete(rows([0], 30))
    return table


@shape()
def ordering_logs_compacted_beside_a_writer(make: Maker) -> Table:
    """ordering column, a log compaction beside a pending write that completes then."""
    table = make.create(ordering="n", buckets=1)
    table.append(rows(range(12), 10))
    table.maintenance.compact()
    table.upsert(rows([6, 7], 11))
    a = make.begin(table)
    a.upsert(rows([0, 1, 2, 3, 6], 15))
    a.delete(rows([4, 5, 7], 15))
    table.upsert(rows([0, 4], 20))
    table.upsert(rows([1, 5], 12))
    table.delete(rows([2], 20))
    table.delete(rows([3], 12))
    table.maintenance.compact(logs_only=True)
    make.end(a)
    return table


@shape()
def ordering_cleaned(make: Maker) -> Table:
    """ordering column, compacted and cleaned, then late and new rows and deletes."""
    table = ordering_compacted_and_written(make)
    table.maintenance.compact()
    clean(table)
    table.upsert(rows([0], 0))
    table.upsert(rows([1, 30], 5000))
    return table


@shape()
def ordering_planned(make: Maker) -> Table:
    """ordering column, a compaction scheduled and not executed, written after."""
    table = ordering_log_only(make)
    a = make.begin(table)
    a.upsert(rows([0], 50))
    table.maintenance.plans.schedule()
    table.upsert(rows([1], 60))
    make.end(a)
    return table


@shape()
def ordering_ties(make: Maker) -> Table:
    """ordering column, log files only, equal values."""
    table = make.create(ordering="n")
    table.append(rows(range(6), 10, "first"))
    a, b = make.begin(table), make.begin(table)
    a.upsert(rows([0, 1], 10, "a"))
    b.upsert(rows([0, 2], 10, "b"))
    b.delete(rows([3], 10))
    make.end(b)
    make.end(a)
    return table


@shape()
def ordering_ties_compacted(make: Maker) -> Table:
    """ordering column, equal values, compacted, nothing pending."""
    table = ordering_ties(make)
    table.maintenance.compact()
    return table


@shape("differs", "differs", "Hudi orders files by name, and the carried delete is in a later one, until a compaction")
def ordering_tie_with_a_carried_delete(make: Maker) -> Table:
    """ordering column, a straggler with the value of a delete that a compaction carried."""
    table = make.create(ordering="n")
    table.append(rows(range(4), 10))
    table.delete(rows([0], 20))
    a = make.begin(table)
    a.upsert(rows([0], 20))
    table.upsert(rows([1], 30))
    table.maintenance.compact()
    make.end(a)
    return table


@shape()
def ordering_tie_with_a_carried_delete_compacted(make: Maker) -> Table:
    """ordering column, the same, compacted again with nothing pending."""
    table = ordering_tie_with_a_carried_delete(make)
    table.maintenance.compact()
    return table


@shape()
def ordering_plain_deletes(make: Maker) -> Table:
    """ordering column, plain deletes; log files only."""
    table = make.create(ordering="n")
    table.append(rows(range(6), 10))
    table.delete(keys=keys(0, 1), plain=True)
    table.upsert(rows([1], 5))
    return table


@shape("differs", "differs", "Hudi forgets a plain delete's place once a lower value follows it, until a compaction")
def ordering_plain_deletes_over_a_base(make: Maker) -> Table:
    """ordering column, plain deletes after a compaction, a lower value written again."""
    table = make.create(ordering="n")
    table.append(rows(range(6), 10))
    table.maintenance.compact()
    table.delete(keys=keys(0, 1), plain=True)
    table.upsert(rows([1], 5))
    return table


@shape()
def ordering_plain_deletes_compacted(make: Maker) -> Table:
    """ordering column, plain deletes, compacted, nothing pending."""
    table = ordering_plain_deletes_over_a_base(make)
    table.maintenance.compact()
    return table


@shape()
def ordering_mixed_deletes(make: Maker) -> Table:
    """ordering column, plain and ordered deletes in one commit."""
    table = make.create(ordering="n")
    table.append(rows(range(6), 10))
    with table.transaction() as tx:
        tx.delete(keys=keys(0), plain=True)
        tx.delete(rows([1, 2], 20))
    table.upsert(rows([1], 15))
    return table


@shape("differs", "differs", "Hudi takes the int 0 of a delete for `no ordering value`")
def ordering_zero(make: Maker) -> Table:
    """ordering column of type `int32`, a late delete with the value 0."""
    schema = pa.schema([("id", pa.string()), ("n", pa.int32())])
    table = make.create(schema, ordering="n")
    table.append(pa.table({"id": keys(0, 1), "n": [5, -5]}, schema))
    table.delete(pa.table({"id": keys(0, 1), "n": [0, 0]}, schema))
    return table


_MOMENTS = [dt.datetime(year, 1, 1, 1, 2, 3, 4000, dt.UTC) for year in (1960, 1970, 2000, 2026)]
ORDERINGS: dict[str, tuple[pa.DataType, list[object]]] = {
    "bool": (pa.bool_(), [False, False, True, True]),
    "int32": (pa.int32(), [-5, 0, 7, 9]),
    "int64": (pa.int64(), [-5, 0, 7, 2**40]),
    "float32": (pa.float32(), [-5.0, 0.0, 7.5, 9.0]),
    "float64": (pa.float64(), [-5.0, 0.0, 7.5, 9.0]),
    "string": (pa.string(), ["a", "b", "c", "d"]),
    "date": (pa.date32(), [dt.date(1960, 1, 1), dt.date(1970, 1, 1), dt.date(2000, 1, 1), dt.date(2026, 1, 1)]),
    "timestamp": (pa.timestamp("us"), [moment.replace(tzinfo=None) for moment in _MOMENTS]),
    "timestamp_ms": (pa.timestamp("ms", "UTC"), list(_MOMENTS)),
    "decimal": (pa.decimal128(10, 2), [Decimal(t) for t in ("-5.00", "0.00", "7.25", "90000000.00")]),
    "decimal38": (pa.decimal128(38, 15), [Decimal(t) for t in ("-5.5", "0", "9" * 22, "9" * 23 + "." + "9" * 15)]),
    "uint64": (pa.uint64(), [0, 1, 2**64 - 2, 2**64 - 1]),
}


def _write_ordered(make: Maker, kind: pa.DataType, values: list[object], compact: bool) -> Table:
    schema = pa.schema([("id", pa.string()), ("o", kind), ("v", pa.string())])

    def batch(numbers: list[int], place: int, v: str) -> pa.Table:
        count = len(numbers)
        column = pa.array([values[place]] * count, kind)
        return pa.table({"id": keys(*numbers), "o": column, "v": [v] * count}, schema)

    table = make.create(schema, ordering="o", buckets=1)
    table.append(batch(list(range(8)), 1, "one"))
    if compact:
        table.maintenance.compact()
    table.upsert(batch([0, 1], 0, "zero"))
    table.upsert(batch([2, 3], 2, "two"))
    table.delete(batch([1, 2], 0, "").drop_columns("v"))
    table.delete(batch([4, 5, 3], 2, "").drop_columns("v"))
    table.upsert(batch([4], 0, "late"))
    table.upsert(batch([5], 3, "three"))
    return table


def _ordered_shape(name: str, kind: pa.DataType, values: list[object], compact: bool) -> Callable[[Maker], Table]:
    def build(make: Maker) -> Table:
        return _write_ordered(make, kind, values, compact)

    build.__name__ = f"ordering_{name}_{'over_a_base' if compact else 'log_only'}"
    build.__doc__ = f"ordering column of type `{kind}`, {'over a base file' if compact else 'log files only'}."
    return build


for _name, (_kind, _values) in ORDERINGS.items():
    for _compact in (False, True):
        shape()(_ordered_shape(_name, _kind, _values, _compact))


# --- a payload --------------------------------------------------------------------------------------------------------

UNMERGED = "mode CUSTOM: the logs could only be merged wrongly"


@shape("refused", "refused", UNMERGED)
def partial_log_only(make: Maker) -> Table:
    """PartialUpdate, log files only."""
    table = make.create(merge=PartialUpdate())
    table.append(rows(range(6), 1))
    table.upsert(rows([0, 1], 2).select(["id", "n"]))
    table.upsert(rows([1, 2], 3).select(["id", "v"]))
    table.delete(keys=keys(3))
    return table


@shape()
def partial_compacted(make: Maker) -> Table:
    """PartialUpdate, compacted, nothing pending."""
    table = partial_log_only(make)
    table.maintenance.compact()
    return table


@shape()
def partial_with_an_ordering_column(make: Maker) -> Table:
    """PartialUpdate with an ordering column, out of order, compacted."""
    table = make.create(merge=PartialUpdate(), ordering="n")
    table.upsert(rows([0, 1], 3).select(["id", "n"]))
    table.upsert(rows(range(6), 1))
    table.maintenance.compact()
    table.upsert(rows([1, 2], 2).select(["id", "n", "v"]))
    table.maintenance.compact()
    return table


@shape("refused", "refused", UNMERGED)
def partial_with_an_ordering_column_and_deletes(make: Maker) -> Table:
    """PartialUpdate with an ordering column and a delete, compacted: the delete stays in the logs."""
    table = partial_with_an_ordering_column(make)
    table.delete(rows([3], 5).select(["id", "n"]))
    table.maintenance.compact()
    return table


@shape("refused", "refused", UNMERGED)
def partial_compacted_and_written(make: Maker) -> Table:
    """PartialUpdate, compacted, then written."""
    table = partial_compacted(make)
    table.upsert(rows([2], 4).select(["id", "n"]))
    return table


@shape("refused", "refused", UNMERGED)
def partial_compacted_beside_a_writer(make: Maker) -> Table:
    """PartialUpdate, compacted beside a pending write."""
    table = make.create(merge=PartialUpdate())
    table.append(rows(range(6), 1))
    make.begin(table).upsert(rows([0], 99))
    table.upsert(rows([0, 1], 2).select(["id", "n"]))
    table.maintenance.compact()
    return table


# --- payloads by column -----------------------------------------------------------------------------------------------

TAGS = pa.list_(pa.string())
TAG_OPERATIONS = pa.struct([("add", TAGS), ("remove", TAGS)])
COUNTED = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("tags", TAGS),
        ("price", pa.float64()),
        ("at", pa.int64()),
        ("v", pa.string()),
    ]
)
COUNTED_MERGE: dict[str | tuple[str, ...], Payload | str] = {
    "n": Counter(), "tags": ORSet(), ("price", "at"): LatestBy("at"),
}  # fmt: skip


def counted(names: Iterable[int], n: int, add: str = "", remove: str = "") -> pa.Table:
    """A batch for a table with payloads: increments, a tag added and one removed, prices; a greater `n` is earlier."""
    schema = COUNTED.set(COUNTED.get_field_index("tags"), pa.field("tags", TAG_OPERATIONS))
    tags = {"add": [add] if add else [], "remove": [remove] if remove else []}
    row = {"n": n, "tags": tags, "price": n / 2, "at": -n, "v": f"v{n}"}
    return pa.Table.from_pylist([{"id": f"k{i}"} | row for i in names], schema)


@shape("refused", "refused", UNMERGED)
def payloads_log_only(make: Maker) -> Table:
    """payloads, log files only."""
    table = make.create(COUNTED, merge=COUNTED_MERGE)
    table.append(counted(range(8), 1, "first"))
    table.upsert(counted(range(4), 2, "second", "first"))
    table.upsert(counted(range(2, 6), -5, "third"))
    table.delete(keys=keys(3, 7))
    table.upsert(counted([3], 9))
    return table


@shape()
def payloads_compacted(make: Maker) -> Table:
    """payloads, compacted, nothing pending; states in hidden columns."""
    table = payloads_log_only(make)
    table.maintenance.compact()
    return table


@shape("refused", "refused", UNMERGED)
def payloads_compacted_and_written(make: Maker) -> Table:
    """payloads, compacted, then written."""
    table = payloads_compacted(make)
    table.upsert(counted(range(10), 4, "fourth", "third"))
    return table


@shape("refused", "refused", UNMERGED)
def payloads_logs_compacted(make: Maker) -> Table:
    """payloads, compacted, written twice, then a log compaction."""
    table = payloads_compacted_and_written(make)
    table.upsert(counted(range(10), 5, "fifth", "third"))
    table.maintenance.compact(logs_only=True)
    return table


@shape()
def payloads_logs_compacted_and_compacted(make: Maker) -> Table:
    """payloads, the same, and compacted fully."""
    table = payloads_logs_compacted(make)
    table.maintenance.compact()
    return table


@shape()
def payloads_compacted_twice(make: Maker) -> Table:
    """payloads, compacted, written and compacted again."""
    table = payloads_compacted_and_written(make)
    table.maintenance.compact()
    return table


@shape("refused", "refused", UNMERGED)
def payloads_compacted_beside_a_writer(make: Maker) -> Table:
    """payloads, compacted beside a pending write; unstable states carried."""
    table = make.create(COUNTED, merge=COUNTED_MERGE)
    table.append(counted(range(6), 1, "first"))
    make.begin(table).upsert(counted([0], 99))
    table.upsert(counted([0, 1], 2, "second", "first"))
    table.maintenance.compact()
    return table


@shape()
def payloads_cleaned(make: Maker) -> Table:
    """payloads, compacted, written, compacted again and cleaned."""
    table = payloads_compacted_twice(make)
    clean(table)
    return table


@shape()
def payloads_grown_and_compacted(make: Maker) -> Table:
    """payloads, a column added and one with a payload widened after a compaction, compacted again."""
    schema = pa.schema([("id", pa.string()), ("top", pa.int32()), ("tags", TAGS)])
    table = make.create(schema, merge={"top": Max(), "tags": ORSet()})
    table.append(pa.table({"id": keys(0, 1, 2), "top": [1, 2, 3], "tags": [["x"], [], None]}, schema))
    table.maintenance.compact()
    wide = pa.table({"id": keys(1, 3), "top": [2**40] * 2, "tags": [["y"]] * 2, "extra": [1.5, None]})
    table.upsert(wide, schema_mode="merge")
    table.maintenance.compact()
    return table


@shape()
def payloads_in_partitions(make: Maker) -> Table:
    """payloads, hive style partitions, composite key, compacted, nothing pending."""
    table = make.create(COUNTED, key=["id", "v"], partition_by="v", merge=COUNTED_MERGE)
    for n in (1, 2):
        table.append(counted(range(6), n, f"t{n}"))
        table.upsert(counted(range(3), n, "more", f"t{n}"))
    table.maintenance.compact()
    return table


# --- base files in another order than that of their keys --------------------------------------------------------------


@shape()
def clustered(make: Maker) -> Table:
    """clustered by two columns, compacted, then upserts and deletes beside a write that is pending."""
    table = make.create(buckets=1, cluster_by=["n", "v"])
    for n in range(4):
        table.upsert(rows(range(n, 30, 4), 10 - n))
    table.maintenance.compact()
    straggler = make.begin(table)
    straggler.upsert(rows([2, 50], 77))
    table.upsert(rows([3, 40], 5))
    table.delete(keys=keys(5, 6))
    table.maintenance.compact()
    make.end(straggler)
    table.upsert(rows([7], 6))
    return table


@shape()
def clustered_later(make: Maker) -> Table:
    """compacted by key, clustered later in z-order, rewritten without any log, then upserts and deletes."""
    table = make.create()
    for n in range(4):
        table.upsert(rows(range(n, 30, 4), 10 - n))
    table.maintenance.compact()
    table.set_properties({"crdt_mor.cluster_by": "v,n", "crdt_mor.cluster_order": "z-order"})
    table.maintenance.compact(rewrite="order")
    table.upsert(rows([3, 40], 5))
    table.delete(keys=keys(5, 6))
    return table


@shape()
def compressed_in_two_ways(make: Maker) -> Table:
    """base files of lz4 and of zstd, a column of noise that is not compressed, logs on both."""
    schema = pa.schema([("id", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("tags", pa.list_(pa.string()))])

    def noise(first: int, count: int) -> pa.Table:
        numbers = range(first, first + count)
        x = [math.sin(number) for number in numbers]
        columns = {"id": keys(*numbers), "n": list(numbers), "x": x, "tags": [[f"t{number}"] for number in numbers]}
        return pa.table(columns, schema)

    table = make.create(schema, compression="lz4")
    table.upsert(noise(0, 3000))
    table.maintenance.compact()
    table.set_properties({"crdt_mor.compression": "zstd"})
    table.upsert(noise(1, 1))
    table.maintenance.compact()
    table.upsert(noise(2999, 4))
    table.delete(keys=keys(5, 6))
    return table


@shape()
def clustered_by_key_again(make: Maker) -> Table:
    """an ordering column, clustered, log compactions, then in the order of keys again, a rewrite planned."""
    table = make.create(ordering="n", cluster_by="v")
    for n in range(4):
        table.upsert(rows(range(n, 30, 4), 10 - n))
    table.maintenance.compact()
    table.upsert(rows([3, 40], 50))
    table.upsert(rows([4, 41], 51))
    table.maintenance.compact(logs_only=True)
    table.set_properties({"crdt_mor.cluster_by": None})
    table.maintenance.compact(rewrite="order")
    table.upsert(rows([4, 42], 52))
    table.set_properties({"crdt_mor.cluster_by": "n"})
    table.maintenance.plans.schedule(rewrite="order")
    table.upsert(rows([5, 42], 53))
    return table


@shape()
def payloads_clustered(make: Maker) -> Table:
    """payloads, clustered by one of their columns, compacted, nothing pending."""
    table = make.create(COUNTED, merge=COUNTED_MERGE, cluster_by=["n", "v"])
    for n in (3, 1, 2):
        table.append(counted(range(n, 12, 2), n, f"t{n}"))
    table.maintenance.compact()
    return table


@shape()
def payloads_of_partial_updates(make: Maker) -> Table:
    """payloads beside PartialUpdate, compacted, nothing pending."""
    table = make.create(COUNTED, merge=PartialUpdate(columns=COUNTED_MERGE))
    table.append(counted(range(4), 1, "first"))
    table.upsert(counted([0, 1], 2, "second", "first").select(["id", "n"]))
    table.upsert(counted([1, 2], 3, "third", "first").select(["id", "tags"]))
    table.upsert(counted([2, 5], -7).select(["id", "price", "at"]))
    table.maintenance.compact()
    return table


@shape("refused", "refused", UNMERGED)
def groups_with_a_common_ordering_column(make: Maker) -> Table:
    """groups of columns with a common ordering column, log files only."""
    groups: dict[str | tuple[str, ...], Payload | str] = {("n", "at"): LatestBy("at"), ("price", "at"): LatestBy("at")}
    table = make.create(COUNTED, merge=PartialUpdate(columns=groups))
    table.upsert(counted(range(4), -5).select(["id", "price", "at"]))
    table.upsert(counted(range(2, 6), -3).select(["id", "n", "at", "v"]))
    table.upsert(counted(range(6), -4).select(["id", "n", "price", "at"]))
    return table


@shape()
def groups_with_a_common_ordering_column_compacted(make: Maker) -> Table:
    """groups of columns with a common ordering column, compacted; states in hidden columns."""
    table = groups_with_a_common_ordering_column(make)
    table.maintenance.compact()
    return table


def _each_payload() -> dict[str, tuple[Payload, pa.DataType, pa.Array]]:
    """A payload, the type of its column, and three values to write."""
    money = pa.array([Decimal("1.50"), Decimal("-0.25"), Decimal("7.00")], pa.decimal128(12, 2))
    texts, flags, numbers = pa.array(["b", "c", "a"]), pa.array([False, True, False]), pa.array([2, 3, 1], pa.int64())
    lists = pa.array([["b"], [], ["a", "b"]], TAGS)
    maps = pa.array([[("x", 1)], [("y", None)], [("x", 2), ("z", 3)]], pa.map_(pa.string(), pa.int64()))
    return {
        "all": (All(), pa.bool_(), flags),
        "any": (Any(), pa.bool_(), flags),
        "counter": (Counter(), pa.int64(), numbers),
        "money": (Counter(), money.type, money),
        "distinct": (Distinct(), pa.int64(), texts),
        "event_list": (EventList(), TAGS, lists),
        "first": (First(), pa.string(), texts),
        "grow_set": (GrowOnlySet(), TAGS, lists),
        "last": (Last(nulls="skip"), pa.string(), texts),
        "map_last": (MapLast(), maps.type, maps),
        "max": (Max(), pa.int64(), numbers),
        "min": (Min(), pa.string(), texts),
        "mv_register": (MVRegister(), TAGS, texts),
        "or_set": (ORSet(), TAGS, lists),
        "quantiles": (Quantiles(), pa.list_(pa.float64()), pa.array([1.5, 2.5, -3.0])),
    }


@shape()
def payloads_of_every_kind(make: Maker) -> Table:
    """payloads, every one that ships, compacted, nothing pending."""
    each = _each_payload()
    schema = pa.schema([("id", pa.string()), *((name, kind) for name, (_, kind, _) in each.items())])
    table = make.create(schema, merge={name: payload for name, (payload, _, _) in each.items()})
    written = pa.table({name: values for name, (_, _, values) in each.items()})
    first, second = make.begin(table), make.begin(table)
    first.upsert(written.add_column(0, "id", pa.array(keys(0, 1, 2))))
    second.upsert(written.add_column(0, "id", pa.array(keys(2, 0, 3))))
    make.end(second)
    make.end(first)
    table.upsert(written.add_column(0, "id", pa.array(keys(1, 2, 3))))
    table.maintenance.compact()
    return table

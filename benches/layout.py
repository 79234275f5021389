"""What an order of rows is worth, and what it costs.

    one file group of ten columns, once in the order of its keys, once clustered by two columns, linear and in z-order
    a key, ten keys     looked up; in a clustered base file Bloom filters say which row groups may have them, and once
                        nobody asks them
    filters             on the first column, on the second, on both
    everything          all rows, and a compaction of all of them

Each figure is a ratio to the table by key, in interleaved rounds, beside the row groups that are read.

    python benches/layout.py          # about a minute
    python benches/layout.py --small
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl

import crdt_mor as mor
from benches.suite import timing
from crdt_mor.format.base_file import CLUSTERED_ROW_GROUP_ROWS
from crdt_mor.write import base_files

ROUNDS = 9
CHANCE = np.random.default_rng(7)
CITY, DAY = pl.col("city") == "city007", pl.col("day") == 100


def rows(count: int) -> pl.DataFrame:
    """Cities as skewed as cities are, days evenly spread, keys in no order."""
    cities = CHANCE.zipf(1.3, count) % 300
    return pl.DataFrame(
        {
            "id": [f"user-{i:08d}" for i in CHANCE.permutation(count)],
            "city": [f"city{i:03d}" for i in cities],
            "day": CHANCE.integers(0, 365, count),
            **{f"n{i}": CHANCE.integers(0, 1 << 40, count) for i in range(4)},
            **{f"t{i}": pl.Series(CHANCE.integers(0, 10**6, count)).cast(pl.String) for i in range(3)},
        }
    )


def tables(folder: Path, data: pl.DataFrame) -> dict[str, mor.Table]:
    """The same rows in each order, compacted."""
    orders: dict[str, dict[str, object]] = {
        "by key": {},
        "linear": {"cluster_by": ["city", "day"]},
        "z-order": {"cluster_by": ["city", "day"], "cluster_order": "z-order"},
    }
    made = {}
    for name, order in orders.items():
        made[name] = mor.Table.create(folder / name, data, key="id", buckets=1, **order)  # type: ignore[arg-type]
        made[name].upsert(data)
        made[name].maintenance.compact()
    return made


def compared(what: str, works: Mapping[str, Callable[[], object]], notes: dict[str, str], rounds: int = ROUNDS) -> None:
    """Print the time of the first work, and those of the others as multiples of it."""
    first, *others = timing.seconds(*works.values(), rounds=rounds, chance=CHANCE)
    told = [f"{1e3 * first:8.1f} ms {notes.get('by key', ''):>9}"]
    told += [f"{t / first:6.2f} × {notes.get(name, ''):>9}" for name, t in zip(list(works)[1:], others, strict=True)]
    print(f"  {what:28}" + "   ".join(told))


def rows_where(table: mor.Table, condition: pl.Expr | None) -> pl.DataFrame:
    return table.scan(filter=condition).to_polars()


def lookups_and_filters(made: dict[str, mor.Table], count: int) -> None:
    keys = [f"user-{i:08d}" for i in CHANCE.choice(count, 10, replace=False)]
    conditions = {
        "a key": pl.col("id") == keys[0],
        "ten keys": pl.col("id").is_in(keys),
        "the first column": CITY,
        "the second column": DAY,
        "both": CITY & DAY,
    }
    print(f"{'':30}by key{'':20}linear{'':15}z-order")
    for what, condition in conditions.items():
        works = {name: partial(rows_where, table, condition) for name, table in made.items()}
        found = [work().height for work in works.values()]
        assert len(set(found)) == 1
        read = {name: table.scan(filter=condition).explain() for name, table in made.items()}
        groups = {name: f"{e.row_groups}/{e.row_groups_total}" for name, e in read.items()}
        compared(what, works, groups)
        if "key" in what:
            with patch("crdt_mor.read.snapshot.ranges_of", lambda *_: None):
                compared(f"{what}, filters not asked", works, {})
    everything = {name: partial(rows_where, table, None) for name, table in made.items()}
    compared("all rows", everything, {})


def compactions(folder: Path, data: pl.DataFrame) -> None:
    """A compaction executed again and again: its outputs are removed after each."""
    plans = {}
    for name, table in tables(folder, data.head(1)).items():
        table.upsert(data)
        plan = table.maintenance.plans.schedule()
        assert plan is not None
        plans[name] = (table, plan)

    def execute(table: mor.Table, plan: mor.parts.CompactionPlan) -> None:
        for file in table.maintenance.plans.execute(plan):
            (Path(table.uri) / file.path).unlink()

    works = {name: partial(execute, table, plan) for name, (table, plan) in plans.items()}
    compared("a compaction", works, {}, rounds=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a size of seconds")
    count = 20_000 if (small := parser.parse_args().small) else 1_000_000
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(base_files, "CLUSTERED_ROW_GROUP_ROWS", 1_000 if small else CLUSTERED_ROW_GROUP_ROWS),
    ):
        data = rows(count)
        made = tables(Path(folder), data)
        sizes = {name: sum(table.inspect.files()["bytes"].to_pylist()) for name, table in made.items()}
        print(
            f"{count:,} rows in one file group; base files of " + ", ".join(f"{s:,}" for s in sizes.values()) + " bytes"
        )
        lookups_and_filters(made, count)
        compactions(Path(folder) / "again", data)


if __name__ == "__main__":
    main()

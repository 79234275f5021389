"""Snapshot reads: one dimension varied at a time around 1M rows, ten logs of 1 %, one file group; and what has a bar.

That every peer gives the same rows is asserted before anything is timed. No time is asserted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from benches.suite.conftest import Scale
from benches.suite.peers import Query, Read, duckdb_sql, fingerprint, floors, hudi_rs, ours, polars_obvious, rows_of
from benches.suite.rounds import ROUNDS, SLOW, Bar, Peer, drain, measure, write_down
from benches.suite.sources import Sources
from benches.suite.worlds import World


@dataclass(frozen=True)
class Case:
    """A table, a question, and what the answer may cost."""

    name: str
    world: World = field(default_factory=World)
    columns: tuple[str, ...] | None = None
    where: str | None = None
    output: Any = "polars"
    bars: Mapping[str, Bar] = field(default_factory=dict)
    hudi: bool = True

    @property
    def query(self) -> Query:
        """What is asked."""
        return Query(self.columns or tuple(self.world.schema.names), self.where, self.output)


def snapshots(groups: int, hudi_at_least: float) -> list[Case]:
    """The case that has most bars, in both result types."""
    bars = {"floor": Bar(1.30), "hudi-rs": Bar(at_least=hudi_at_least), "DuckDB": Bar(at_least=2.5)}
    world, plural = World(groups=groups), "s" if groups > 1 else ""
    return [
        Case(f"1M-10x1%-{groups}group{plural}-{output}", world, output=output, bars=bars)
        for output in ("polars", "arrow")
    ]


FIVE = World(rows=5_000_000)
CASES = [
    *snapshots(1, 6),
    *snapshots(4, 4.5),
    *snapshots(8, 4.5),
    *(Case(f"1M-{n}x{p}%", World(logs=n, percent=p)) for n, p in ((1, 1), (50, 1), (1, 5), (10, 5), (50, 5))),
    Case("1M-10x1%-uuid", World(keys="uuid")),
    Case("1M-10x1%-skewed", World(spread="skewed")),
    Case("1M-10x1%-ordering", World(merge="ordering")),
    Case("1M-10x1%-partial", World(merge="partial"), hudi=False),
    Case("1M-10x1%-2of10", columns=("n0", "city")),
    Case("1M-10x1%-2of15", World(columns=15), columns=("n0", "city"), bars={"floor": Bar(2.5)}),
    Case("1M-10x1%-where", where=f"n0 < {(1 << 40) // 100}", hudi=False),
    Case("1M-10x1%-straggler", World(straggler="late"), bars={"timely": Bar(1.2)}),
    Case("1M-10x1%-never-compacted", World(compacted=False)),
    Case("5M-10x1%", FIVE),
    Case("5M-10x5%-1group-streamed", replace(FIVE, percent=5), output="batches", bars={"floor": Bar(1.8)}),
    Case("5M-10x5%-8groups-streamed", replace(FIVE, percent=5, groups=8), output="batches", bars={"floor": Bar(1.8)}),
]


def readers(case: Case, sources: Sources) -> dict[str, Mapping[str, Read]]:
    """The peers that must give our rows, each in its ways."""
    query = case.query
    found: dict[str, Mapping[str, Read]] = {
        "DuckDB": duckdb_sql(sources, query),
        "polars, obvious": {"": partial(polars_obvious, sources, query)},
    }
    if case.hudi:
        found["hudi-rs"] = {"": partial(hudi_rs, sources, query)}
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_snapshot(case: Case, scale: Scale, benchmark: Any) -> None:
    sources = scale.sources(case.world)
    query, mine = case.query, partial(ours, sources, case.query)
    rows = rows_of(mine, query)
    count, schema, expected = rows.height, rows.schema, fingerprint(rows)
    del rows
    others = readers(case, sources)
    for name, ways in others.items():
        for way, read in ways.items():
            assert fingerprint(rows_of(read, query).cast(schema)) == expected, f"{name} {way} reads other rows"

    every = SLOW if case.world.rows <= 1_000_000 else ROUNDS
    peers = {"floor": Peer({way: drain(read) for way, read in floors(sources, query).items()})}
    for name, ways in others.items():
        peers[name] = Peer({way: drain(read) for way, read in ways.items()}, every, best=1)
    if case.world.straggler:
        timely = scale.sources(replace(case.world, straggler="timely"))
        peers["timely"] = Peer({"": drain(partial(ours, timely, query))})
    times = measure(benchmark, drain(mine), peers, scale.small)
    bars = scale.bars(case.bars)
    write_down(benchmark, times, peers, bars, kind="snapshot", case=case.name, rows=count, output=query.output)

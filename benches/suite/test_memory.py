"""Peak memory of a snapshot read in a fresh process, above the import baseline. No size is asserted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from benches.suite.conftest import Scale
from benches.suite.memory_probe import ask, slice_mib
from benches.suite.peers import Query
from benches.suite.rounds import Bar, judged
from benches.suite.worlds import World


@dataclass(frozen=True)
class Case:
    """A table, and how it is handed out."""

    name: str
    world: World
    output: Any
    in_small: bool = False


FIVE = World(rows=5_000_000, percent=5)
CASES = [
    Case("memory-1M-10x1%-1group-arrow", World(), "arrow"),
    Case("memory-1M-10x1%-8groups-arrow", World(groups=8), "arrow", in_small=True),
    Case("memory-1M-10x1%-1group-streamed", World(), "batches"),
    Case("memory-1M-10x1%-8groups-streamed", World(groups=8), "batches"),
    Case("memory-5M-10x5%-8groups-streamed", replace(FIVE, groups=8), "batches"),
]
BARS = {
    "streamed / slice": Bar(1.5),
    "(to_arrow - slice) / result": Bar(1.3),
    "ours / hudi-rs": Bar(1.0),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_memory(case: Case, scale: Scale, benchmark: Any) -> None:
    if scale.small and not case.in_small:
        pytest.skip("the same again in another shape")
    sources = scale.sources(case.world)
    query = Query(tuple(case.world.schema.names), output=case.output)
    found = benchmark.pedantic(ask, args=("ours", sources, query), rounds=1)
    others = {name: ask(name, sources, query)["peak"] for name in ("floor", "hudi-rs", "DuckDB")}
    largest = slice_mib(sources, query.columns)
    figures = {"ours / hudi-rs": found["peak"] / others["hudi-rs"]}
    if case.output == "batches":
        figures["streamed / slice"] = found["peak"] / largest
    else:
        figures["(to_arrow - slice) / result"] = (found["peak"] - largest) / found["result"]
    benchmark.extra_info.update(
        kind="memory",
        case=case.name,
        output=case.output,
        mib={"ours": found["peak"], **others, "largest slice": largest, "result": found["result"]},
        bars=judged(scale.bars(BARS), figures),
    )

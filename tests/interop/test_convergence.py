"""The workloads of `tests.interop.convergence`: ours have one answer, whenever a compaction runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.convergence import Hudis, Ours, Workload, answers, run
from tests.interop.readers import HudiSpark
from tests.tiers import seeds

LATE = Workload((("k0", "k1"), ("k0",), ("k0",)), (
    ("begin", 0), ("end", 0), ("begin", 1), ("begin", 2), ("end", 2), ("end", 1),
))  # fmt: skip
"""The second write begins before the third and ends after it, with the same key."""


def last_begun(workload: Workload) -> dict[str, str]:
    """Of each key the value of the commit that began last."""
    begun = [commit for what, commit in workload.steps if what == "begin"]
    return {key: f"c{commit}" for commit in begun for key in workload.keys[commit]}


@pytest.mark.parametrize("seed", seeds([2], range(3, 40)))
def test_a_workload_of_ours_has_one_answer_and_the_write_that_began_last_wins(fast_path: Path, seed: int) -> None:
    workload = Workload.drawn(seed)
    assert {commit for _, commit in workload.steps} == set(range(6))
    found = dict(answers(workload, 5, lambda moment: Ours(fast_path / f"t{moment}")))
    assert len(found) == 5
    assert set(found.values()) == {tuple(sorted(last_begun(workload).items()))}


@pytest.mark.spark
@pytest.mark.long
def test_hudis_answer_depends_on_the_moment_of_the_compaction(spark: HudiSpark, tmp_path: Path) -> None:
    """If Hudi mends this, `docs/design/convergence.md` is to say so."""
    between, after = (
        run(LATE, Hudis(spark, tmp_path / f"late_{moment}"), moment) for moment in (5, 6)
    )  # the third write has ended by then, and the second one, too
    assert dict(between)["k0"] == "c1"
    assert dict(after)["k0"] == "c2" == last_begun(LATE)["k0"]

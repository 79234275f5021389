"""A table is whole after each step of a random history: whatever is under way, `Table.verify` finds nothing wrong.

Readers see at each step what the plain fold of the table's files gives, too. What verify does find is in
`tests.table.test_verify_damage` and `tests.table.test_verify_timeline`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crdt_mor import UnsupportedFeatureError
from tests.simulation import foreign_commits
from tests.simulation.failing_history import run_failing
from tests.simulation.migrating_history import run_moving
from tests.simulation.random_history import RULES, History, run
from tests.simulation.renaming_history import RenamingHistory
from tests.simulation.restore_history import run_restoring
from tests.simulation.update_history import UpdateHistory
from tests.simulation.upkeep_history import run_upkeep
from tests.tiers import long, seeds, slow


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each step of each history is followed by a look; here are the rows that these have read."""
    seen: list[int] = []
    go_on = History.go_on

    def whole(history: History) -> None:
        go_on(history)
        found = history.handles[0].verify(deep=True)
        assert found.findings == (), history.story()
        seen.append(found.rows)

    monkeypatch.setattr(History, "go_on", whole)
    return seen


def plain(seed: int, rule: str, path: Path, steps: int) -> History:
    return run(seed, rule, path / "t", steps)


def updating(seed: int, rule: str, path: Path, steps: int) -> History:
    return run(seed, rule, path / "t", steps, UpdateHistory)


def renaming(seed: int, rule: str, path: Path, steps: int) -> History:
    return run(seed, rule, path / "t", steps, RenamingHistory)


KINDS: dict[str, Callable[..., History]] = {
    "plain": plain, "updates": updating, "renames": renaming, "services": run_upkeep, "restores": run_restoring,
    "migrations": run_moving, "failures": run_failing,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        case if case in (("services", "latest"), ("plain", "partial, payloads")) else slow(*case)
        for case in zip([*KINDS] * 2, [*RULES] * 3, strict=False)
    ],
)
def test_a_table_is_whole_at_every_step(kind: str, rule: str, fast_path: Path, verified: list[int]) -> None:
    KINDS[kind](1, rule, fast_path, 5 if kind in ("services", "restores", "migrations") else 16)
    assert any(verified)


@pytest.mark.parametrize("seed", seeds((), (), range(2, 9)))
@pytest.mark.parametrize("kind", [long(kind) for kind in KINDS])
@pytest.mark.parametrize("rule", RULES)
def test_so_it_is_in_long_histories(kind: str, rule: str, seed: int, fast_path: Path) -> None:
    KINDS[kind](seed, rule, fast_path, 25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_so_it_is_where_hudi_writes_as_well(seed: int, fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step, rows = foreign_commits.SharedTable.step, list[int]()

    def whole(shared: foreign_commits.SharedTable) -> None:
        step(shared)
        try:
            found = shared.handles[0].verify()
        except UnsupportedFeatureError:  # a commit of Hudi's below a base file, of which the history itself makes sure
            return
        assert found.findings == (), shared.story()
        rows.append(found.rows)

    monkeypatch.setattr(foreign_commits.SharedTable, "step", whole)
    foreign_commits.run(seed, fast_path / "t", 0)
    assert any(rows)

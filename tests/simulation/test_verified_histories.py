"""A table is whole after each step of a random history: whatever is under way, `Table.verify` finds nothing wrong.

Readers see at each step what the plain fold of the table's files gives, too. What verify does find is in
`tests.table.test_verify_damage` and `tests.table.test_verify_timeline`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from crdt_mor.errors import UnsupportedFeatureError
from tests.simulation import foreign_commits
from tests.simulation.kinds import KINDS, after_each_step
from tests.simulation.random_history import RULES, History
from tests.tiers import long, seeds, slow


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each step of each history is followed by a look; here are the rows that these have read."""
    seen: list[int] = []

    def whole(history: History) -> None:
        found = history.handles[0].verify(deep=True)
        assert found.findings == (), history.story()
        seen.append(found.rows)

    after_each_step(monkeypatch, whole)
    return seen


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

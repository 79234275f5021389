"""The endless simulation: each kind of life runs, and a failure names the command that repeats it."""

from __future__ import annotations

from io import StringIO
from itertools import islice

import pytest

from tests.simulation import lives
from tests.simulation.kinds import KINDS
from tests.simulation.lives import LIVES, failure_of, fresh, run_lives
from tests.simulation.random_history import MOVABLE, RULES
from tests.tiers import only


@pytest.mark.parametrize("kind", only(["deadlines"], LIVES))
def test_failure_of_a_whole_life_is_none(kind: str) -> None:
    assert failure_of(kind, 5) is None


def test_fresh_draws_every_kind_and_no_seed_twice() -> None:
    drawn = list(islice(fresh(), 2 * len(LIVES)))
    assert {kind for kind, _ in drawn} == LIVES.keys()
    assert len({seed for _, seed in drawn}) == len(drawn)


def test_run_lives_prints_how_to_repeat_a_failure_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(seed: int) -> None:
        assert seed % 2 == 0, f"the story of {seed}"

    monkeypatch.setattr(lives, "LIVES", {"odd": odd})
    output = StringIO()
    tally = run_lives(iter([("odd", 1), ("odd", 2), ("odd", 3)]), output, lambda: True)
    assert tally == {"odd": 3, "failed": 2}
    assert "the story of 1" in output.getvalue()
    assert output.getvalue().endswith("Repeat it: python -m tests.simulation --life odd:3\n")


def test_run_lives_stops_when_told() -> None:
    assert run_lives(fresh(), StringIO(), lambda: False) == {}


def test_only_movable_tables_live_through_migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = list[str]()
    monkeypatch.setitem(KINDS, "migrations", lambda seed, rule, path, steps: drawn.append(rule))
    assert {failure_of("migrations", seed) for seed in range(len(RULES))} == {None}
    assert {*drawn} == {*MOVABLE}

"""Why a row is as it is, asked at each step of random histories: its contributions lead to the row that readers see.

Of histories in which nothing is cleaned, each contribution that the plain fold of the history has is among them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from crdt_mor import Table
from crdt_mor.api.reading import AsOf
from tests.simulation.kinds import KINDS, after_each_step
from tests.simulation.random_history import KEYS, RULES, History
from tests.tiers import seeds, slow


def lives_are_whole(table: Table, as_of: AsOf | None, story: Callable[[], str]) -> dict[str, list[dict[str, Any]]]:
    """The lives of all keys, each of which ends with the row that a scan shows of it, or with none.

    A history of renamed columns shows them in scans under their first names.
    """
    rows = table.scan(as_of=as_of).to_arrow().to_pylist()
    lives: dict[str, list[dict[str, Any]]] = {}
    places = [table.schema.names.index(name) for name in table.config.key]
    for key in asked(table):
        life = table.why(key, as_of=as_of).to_pylist(maps_as_pydicts="strict")
        lives[repr(key)] = life
        ends = {line["partition"]: line["result"] for line in life}
        left = [row for row in ends.values() if row is not None]
        wanted = [*key] if isinstance(key, tuple) else [key]
        shown = [row for row in rows if [[*row.values()][place] for place in places] == wanted]
        found, seen = (sorted(repr([*row.values()]) for row in some) for some in (left, shown))
        assert found == seen, f"key={key!r} {life}\n{story()}"
        hold_together(life, story)
    return lives


def asked(table: Table) -> list[Any]:
    """Each key that a history may have written."""
    return [("a", key) for key in KEYS] if len(table.config.key) == 2 else [*KEYS]


def hold_together(life: list[dict[str, Any]], story: Callable[[], str]) -> None:
    """What a line says of itself is what the rows before and after it say."""
    before: dict[str, Any] = {}
    for line in life:
        was, row = before.get(line["partition"]), line["result"]
        effects = {(False, True): "inserted", (True, False): "deleted", (False, False): "none"}
        default = "updated" if line["changed"] else "none"
        assert line["effect"] == effects.get((was is not None, row is not None), default), f"{life}\n{story()}"
        if was is not None and row is not None:
            assert line["changed"] == [name for name in row if row[name] != was[name]], f"{line}\n{story()}"
        before[line["partition"]] = row


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each fourth step of each history is followed by a look; here is how many lines these have seen."""
    seen, steps = list[int](), count(1)

    def whole(history: History) -> None:
        if next(steps) % 4 == 0:
            lives = lives_are_whole(history.handles[0], None, history.story)
            seen.append(sum(map(len, lives.values())))
            if type(history) is History:
                nothing_is_missing(history, lives)
                if history.done:
                    at = history.layouts.choice(history.done).commit
                    lives_are_whole(history.handles[0], at, history.story)

    after_each_step(monkeypatch, whole)
    return seen


def nothing_is_missing(history: History, lives: dict[str, list[dict[str, Any]]]) -> None:
    """Each write that the history has made to a key, and that no overwrite covers, is a line of its life."""
    overwrites = [done for done in history.done if done.commit.covered is not None]
    for key, life in lives.items():
        told = {line["requested_at"] for line in life}
        for done in history.done:
            own = [w for w in done.writes if repr(w.key.rpartition("/")[2]) == key]
            if own and not any(o.voids(done, w.key) for o in overwrites for w in own):
                assert done.commit.requested_at in told, f"key={key} {done}\n{life}\n{history.story()}"


ASKED: Final = ("plain", "updates", "renames", "services", "restores")
"""The kinds of histories in which lives are asked for."""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rule"), [("plain", "ordering"), *(slow("plain", rule) for rule in RULES)])
def test_a_life_leads_to_the_row_that_readers_see(kind: str, rule: str, fast_path: Path, watched: list[int]) -> None:
    KINDS[kind](1, rule, fast_path, 40)
    assert any(watched)


@pytest.mark.parametrize("seed", seeds((), (1,), range(2, 20)))
@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.parametrize("rule", RULES)
def test_so_it_does_whatever_happens(kind: str, rule: str, seed: int, fast_path: Path) -> None:
    KINDS[kind](seed, rule, fast_path, 10 if kind in ("services", "restores") else 40)

"""`crdt-mor simulate`, as the author of a payload meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from crdt_mor.cli.main import app
from tests.cli.own_module import own_module
from tests.simulation.planted import PLANTED, Planted, planted_in

MINE = """
from crdt_mor import Payload

class Longest(Payload):
    name = "acme.longest/1"
    def join(self, a, b):
        return max(a, b, key=lambda text: (len(text), text))
    def merge(self, states):
        return states.sort_by(states.str.len_chars(), states).last()
    def examples(self):
        return ["", "a", "bb"]

class Joined(Longest):
    name = "acme.joined/1"
    def join(self, a, b):
        return a + b
    def merge(self, states):
        return states.str.join("")

class Exampleless(Payload):
    name = "acme.exampleless/1"
    def join(self, a, b):
        return max(a, b)

class Mixed(Exampleless):
    name = "acme.mixed/1"
    def examples(self):
        return ["", 1]

class Raising(Exampleless):
    name = "acme.raising/1"
    def examples(self):
        raise ValueError("none today")
"""


def simulate(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["simulate", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return own_module(MINE, tmp_path, monkeypatch)


@pytest.mark.slow
def test_a_payload_of_ones_own_is_simulated(mine: str) -> None:
    result = simulate("--seeds", 2, "--payload", f"{mine}:Longest")
    assert result.stdout == ""
    assert result.stderr.startswith("2 seeds, ")
    assert "every promise was kept. digest=" in result.stderr


def test_a_payload_that_breaks_a_law_ends_with_exit_code_three(mine: str) -> None:
    result = simulate("--payload", f"{mine}:Joined", code=3)
    assert "laws is broken" in result.stdout
    assert "commutative: join('a', 'bb') is 'abb'" in result.stdout or "idempotent" in result.stdout
    assert f"replay it: crdt-mor simulate --seed 0 --payload {mine}:Joined" in result.stderr


def test_a_seed_alone_is_one_run_and_the_same_in_json() -> None:
    text = simulate("--seed", 4).stderr
    told = json.loads(simulate("--seed", 4, "--seeds", 1, "--output", "json").stdout)
    assert told == {"seeds": 1, "calls": told["calls"], "digest": told["digest"], "broken": None}
    assert text == f"1 seed, {told['calls']} calls of the store: every promise was kept. digest={told['digest']}\n"


def test_a_payload_whose_examples_cannot_be_taken_is_refused_by_what_is_wrong_with_them(mine: str) -> None:
    """It was told as a mistake of crdt-mor, which its user was asked to report."""
    assert "write examples()" in simulate("--payload", f"{mine}:Exampleless", code=1).stderr
    assert "values of one type" in simulate("--payload", f"{mine}:Mixed", code=1).stderr
    assert "examples() raises ValueError: none today" in simulate("--payload", f"{mine}:Raising", code=1).stderr


def test_a_payload_that_is_named_wrongly_is_refused() -> None:
    assert "--payload" in simulate("--payload", "Longest", code=2).stderr


@pytest.fixture
def planted() -> Planted:
    """The bug that is found soonest."""
    return min((one for one in PLANTED if one.payload is None), key=lambda one: one.seed)


@pytest.mark.slow
def test_a_broken_promise_is_told_as_a_story(planted: Planted) -> None:
    with planted_in(planted):
        told = json.loads(simulate("--seed", planted.seed, "--output", "json", code=3).stdout)
    broken = told["broken"]
    assert (broken["seed"], broken["invariant"]) == (planted.seed, planted.invariant)
    assert broken["replay"] == f"crdt-mor simulate --seed {planted.seed}"
    assert 1 <= len(broken["story"]) <= 12

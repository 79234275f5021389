"""A few hostile inputs for every parser of foreign bytes, the same each time; `python -m tests.fuzz` tries millions.

Each is held to errors of ours, and to doing nothing to the machine (`tests.fuzz.watch`); some to calls and memory.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.fuzz import guided, tables, watch
from tests.fuzz.parsers import PARSERS, Parser
from tests.fuzz.run import Run, blind, mutant
from tests.fuzz.watch import BYTES_MIN, ForbiddenError, bounded, nothing, parsed
from tests.tiers import slow

SLOW = frozenset(["table"])
"""Parsers of which an input takes a hundred times as long as of the others."""


@pytest.fixture(scope="module", autouse=True)
def _folder() -> Iterator[None]:
    yield
    tables.remove_folder()


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        *((name, 1 if name in SLOW else 12) for name in PARSERS),
        *(slow(name, 20 if name in SLOW else 400) for name in PARSERS),
    ],
)
def test_hostile_inputs_are_refused_by_a_word_of_ours_or_read(name: str, inputs: int) -> None:
    run = Run(PARSERS[name])
    run.warm(1 if name in SLOW else None)
    blind(run, inputs, seed=inputs)
    assert not run.found


@pytest.mark.parametrize("name", ["footer", "value", "log", "filter"])
def test_an_input_takes_calls_and_memory_in_proportion_to_its_bytes(name: str) -> None:
    parser, chance = PARSERS[name], Random(7)
    seeds = parser.seeds()
    for _ in range(2):
        data = mutant(parser, chance, seeds)
        with bounded(len(data)):
            parsed(parser.parse, data, parser.allowed)


def test_a_run_is_guided_by_the_modules_that_its_parser_runs_through_and_by_no_others() -> None:
    modules = guided.modules_of("sketch")
    assert {"crdt_mor.merge.states", "crdt_mor.payloads.theta"} <= modules
    assert not {"crdt_mor.format.log", "crdt_mor.store.memory", "crdt_mor.api.table"} & modules


# --- what the watch sees ----------------------------------------------------------------------------------------------


def _writes(data: bytes) -> None:
    Path("/dev/null").write_bytes(data)


def _imports(data: bytes) -> None:
    importlib.import_module(data.decode())


def _for_ever() -> None:
    while True:
        _calls()


def _calls() -> None:
    """Nothing: each call counts."""


def _hides(data: bytes) -> None:
    try:
        _writes(data)
    except BaseException:  # noqa: BLE001  as a careless parser might
        return


@pytest.mark.parametrize("parse", [_writes, _imports, _hides])
def test_a_parser_that_does_something_is_seen(
    parse: Callable[[bytes], object], fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fast_path / "stranger_of_fuzzing.py").write_text("")
    monkeypatch.syspath_prepend(fast_path)
    with pytest.raises(ForbiddenError, match="made the process do this"):
        parsed(parse, b"stranger_of_fuzzing", nothing)


def test_a_parser_that_goes_on_for_ever_or_takes_memory_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "CALLS_MIN", 100)
    with pytest.raises(ForbiddenError, match="calls"), bounded(0):
        _for_ever()
    with pytest.raises(ForbiddenError, match="bytes of memory"), bounded(0):
        bytes(2 * BYTES_MIN)


def _fails(data: bytes) -> None:
    raise KeyError(data)


def test_an_error_of_somebody_else_is_a_finding_of_its_kind() -> None:
    run = Run(Parser(_fails, list))
    run.try_one(b"longer")
    run.try_one(b"x")
    assert list(run.found.values()) == [b"x"]

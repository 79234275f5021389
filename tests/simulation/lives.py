"""Random lives of tables without an end: each has a fresh seed, and a failure prints the command that repeats it."""

from __future__ import annotations

import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Final, TextIO

from crdt_mor.testing.simulation import run_seed, story
from tests.simulation.bucket_history import run_in_bucket
from tests.simulation.deadline_history import run_deadlines
from tests.simulation.kinds import KINDS
from tests.simulation.random_history import MOVABLE, RULES

STEPS: Final = 20
SEEDS: Final = 2**31

Life = Callable[[int], object]
"""Runs the life of a seed. It raises an exception, with the story, if something is wrong."""


def simulated(seed: int) -> None:
    """A life of the simulator that ships."""
    outcome = run_seed(seed)
    if outcome.violation is not None:
        raise AssertionError(story(outcome))


def history(kind: str, seed: int) -> None:
    """A random history on disk; the seed chooses the rule by which rows are merged."""
    rules = MOVABLE if kind == "migrations" else list(RULES)
    rule = rules[seed % len(rules)]
    with tempfile.TemporaryDirectory(prefix="crdt-mor-life-") as folder:
        KINDS[kind](seed, rule, Path(folder), STEPS)


LIVES: Final[Mapping[str, Life]] = {
    "simulator": simulated,
    "bucket": run_in_bucket,
    "deadlines": lambda seed: run_deadlines(seed, STEPS),
    **{kind: partial(history, kind) for kind in KINDS},
}
"""Each kind of life. The simulator covers all faults, the others compare with an oracle of their own."""


def fresh() -> Iterator[tuple[str, int]]:
    """Yield a kind and a seed without end. Every second life is the simulator's, which is the fastest."""
    chance = SystemRandom()
    while True:
        for kind in LIVES:
            if kind != "simulator":
                yield "simulator", chance.randrange(SEEDS)
                yield kind, chance.randrange(SEEDS)


def failure_of(kind: str, seed: int) -> str | None:
    """Run a life and return its failure as text, or None."""
    try:
        LIVES[kind](seed)
    except Exception:  # noqa: BLE001  any error is a finding
        return traceback.format_exc()
    return None


def run_lives(lives: Iterator[tuple[str, int]], output: TextIO, going_on: Callable[[], bool]) -> Counter[str]:
    """Run lives while `going_on()`, print each failure, and count lives by kind and failures as `failed`."""
    tally = Counter[str]()
    while going_on() and (life := next(lives, None)) is not None:
        kind, seed = life
        found = failure_of(kind, seed)
        tally[kind] += 1
        if found is not None:
            tally["failed"] += 1
            output.write(f"{found}\nfailed. Repeat it: python -m tests.simulation --life {kind}:{seed}\n")
            output.flush()
    return tally

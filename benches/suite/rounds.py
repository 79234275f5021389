"""Measuring: rounds in which everybody runs once, in random order, and what is written down of them.

The first round does not count. In each, what one call took is paired with what the others took beside it; a ratio is
the median of the pairs. Memory is collected before every call, and what a call made is dropped within its time.
A peer that is far slower may sit out some rounds.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Call = Callable[[], object]

ROUNDS = 9
"""That count."""

SLOW = 4
"""A peer that is far slower than we are runs in every fourth round, and not in the first."""


@dataclass(frozen=True)
class Bar:
    """What a figure must not exceed, or at least reach."""

    at_most: float | None = None
    at_least: float | None = None

    def met(self, value: float) -> bool:
        """Whether the figure keeps it."""
        return value <= self.at_most if self.at_most is not None else value >= (self.at_least or 0)

    def __str__(self) -> str:
        return f"≤ {self.at_most:g}" if self.at_most is not None else f"≥ {self.at_least:g}"


Bars = Mapping[str, Bar]


@dataclass
class Peer:
    """Something measured beside us, in the rounds whose number `every` divides.

    Of several `ways`, the best two of a trial run in the rounds, and the smaller count of a round is the peer's.
    """

    ways: Mapping[str, Call]
    every: int = 1
    best: int = 2
    taken: list[float | None] = field(default_factory=list)
    chosen: list[str] = field(default_factory=list)

    def try_out(self, small: bool) -> None:
        """Run every way twice, and keep the best; in a small run, any. They have run before, to compare rows."""
        if small or len(self.ways) <= self.best:
            self.chosen = list(self.ways)[: self.best]
            return
        times = {name: min(seconds(way), seconds(way)) for name, way in self.ways.items()}
        self.chosen = sorted(times, key=times.__getitem__)[: self.best]


def seconds(call: Call) -> float:
    """What one call takes."""
    gc.collect()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def drain(pieces: Callable[[], Iterable[object]]) -> Call:
    """A call that reads everything, and drops each piece before the next."""

    def run() -> None:
        for piece in pieces():
            del piece

    return run


def measure(
    benchmark: Any,
    ours: Call,
    peers: Mapping[str, Peer],
    small: bool,
    *,
    before: Call | None = None,
    after: Call | None = None,
) -> list[float]:
    """Our seconds, and in `peers` theirs, of the rounds that count. `before` and `after`: around ours, not timed."""
    chance = np.random.default_rng(7)
    number, later = -1 + small, list[tuple[Peer, str]]()

    def some(calls: list[tuple[Peer, str]]) -> None:
        for peer, way in calls:
            took = seconds(peer.ways[way])
            if number >= 0:
                so_far = peer.taken[number]
                peer.taken[number] = took if so_far is None else min(took, so_far)

    def setup() -> None:
        nonlocal later
        playing = [peer for peer in peers.values() if small or number % peer.every == 0]
        if number >= 0:
            for peer in peers.values():
                peer.taken.append(None)
        calls = [(peer, way) for peer in playing for way in peer.chosen]
        calls = [calls[i] for i in chance.permutation(len(calls))]
        first = int(chance.integers(0, len(calls) + 1))
        some(calls[:first])
        later = calls[first:]
        if before is not None:
            before()
        gc.collect()

    def teardown() -> None:
        nonlocal number
        if after is not None:
            after()
        some(later)
        number += 1

    for peer in peers.values():
        peer.try_out(small)
    gc.freeze()  # what is there already is not looked at again before every call
    benchmark.pedantic(ours, setup=setup, teardown=teardown, rounds=2 if small else ROUNDS, warmup_rounds=1 - small)
    gc.unfreeze()
    return list(benchmark.stats.stats.data)


def pairs(ours: list[float], peer: Peer) -> list[float]:
    """Ours by theirs, of the rounds in which both ran."""
    return [mine / theirs for mine, theirs in zip(ours, peer.taken, strict=True) if theirs is not None]


def write_down(benchmark: Any, ours: list[float], peers: Mapping[str, Peer], bars: Bars, **more: object) -> None:
    """Everything, into the JSON of the benchmark. `ours / floor`, but `peer / ours` for the others: times as fast."""
    ratios = {}
    for name, peer in peers.items():
        ratio = statistics.median(pairs(ours, peer))
        ratios[name] = ratio if name in ("floor", "timely") else 1 / ratio
    medians = {name: statistics.median(t for t in peer.taken if t is not None) for name, peer in peers.items()}
    benchmark.extra_info.update(
        more,
        seconds={"ours": statistics.median(ours), **medians},
        ratios=ratios,
        times={"ours": ours, **{name: peer.taken for name, peer in peers.items()}},
        ways={name: peer.chosen for name, peer in peers.items()},
        bars=judged(bars, ratios),
    )


def judged(bars: Bars, figures: Mapping[str, float]) -> list[dict[str, object]]:
    """Each bar with what was found, and whether it is kept."""
    return [
        {"of": name, "bar": str(bar), "found": figures[name], "met": bar.met(figures[name])}
        for name, bar in bars.items()
        if name in figures
    ]

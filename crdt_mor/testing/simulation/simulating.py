"""Run many seeds until a run breaks a promise."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from crdt_mor import Payload
from crdt_mor.testing.simulation.running import Outcome, run_seed
from crdt_mor.testing.simulation.shrinking import shrink


@dataclass(frozen=True)
class Simulated:
    """The result of many runs.

    broken: the first run that broke a promise; `shortest`: the shortest run that breaks the same.
    """

    seeds: int
    calls: int
    digest: str
    broken: Outcome | None = None
    shortest: Outcome | None = None


def simulate(
    seeds: int | Iterable[int],
    payload: Payload | None = None,
    on_run: Callable[[Outcome], None] | None = None,
) -> Simulated:
    """Run seeds until one breaks a promise.

    Args:
        seeds: A number of seeds from 0, or the seeds.
        payload: Merges a column with the payload's examples; None: a shipped payload in some runs.
        on_run: Called after each run.
    """
    digest, calls, ran = hashlib.blake2b(digest_size=12), 0, 0
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        outcome = run_seed(seed, payload)
        ran, calls = ran + 1, calls + outcome.calls
        digest.update(outcome.digest.encode())
        if on_run is not None:
            on_run(outcome)
        if outcome.violation is not None:
            return Simulated(ran, calls, digest.hexdigest(), outcome, shrink(outcome))
    return Simulated(ran, calls, digest.hexdigest())

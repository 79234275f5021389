"""Many runs, one seed after the other, until one of them breaks a promise."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from crdt_mor import Payload
from crdt_mor.testing.simulation.running import Outcome, run_seed
from crdt_mor.testing.simulation.shrinking import shrink


@dataclass(frozen=True)
class Simulated:
    """What many runs have shown.

    seeds: how many ran. calls: of the store, by all processes of all runs. digest: of the digests of all runs.
    broken: the first run that broke a promise, as it was, and `shortest` the shortest one that breaks the same.
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
    """Run seeds, 0 up to a number or those that are given, until one breaks a promise.

    payload: of a column that writers write the payload's examples to; None: one of those that are shipped, in some of
        the runs. on_run: is told of each run.
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

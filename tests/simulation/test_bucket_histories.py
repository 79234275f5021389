"""Histories in a bucket of uneven delays: each is its operations, one after another by their requested times."""

from __future__ import annotations

import pytest

from crdt_mor.events import job, write
from crdt_mor.log.steps import Steps
from crdt_mor.log.tail import Tail
from crdt_mor.model.timeline_parts import Pending
from tests.simulation.bucket_history import run_in_bucket
from tests.tiers import seeds


@pytest.mark.parametrize("seed", seeds(range(1, 4), range(4, 24), range(24, 201)))
def test_a_history_in_a_bucket_is_its_operations_one_after_another(seed: int) -> None:
    history = run_in_bucket(seed, steps=4 if seed < 4 else 16)
    assert history.did


@pytest.mark.long
def test_histories_in_a_bucket_find_a_block_that_reads_its_future(monkeypatch: pytest.MonkeyPatch) -> None:
    """About one seed in fifty finds it; which ones they are changes with the requests that an operation makes."""

    def careless(begun: Pending, tail: Tail) -> Steps[Tail]:
        return tail
        yield

    for module in (write, job):
        monkeypatch.setattr(module, "value_of", careless)

    def some_histories() -> None:
        for seed in range(1, 201):
            run_in_bucket(seed)

    with pytest.raises(AssertionError, match=r"block \d+ read|the table has"):
        some_histories()

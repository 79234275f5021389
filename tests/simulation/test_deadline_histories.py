"""Writes that end by their deadline in random histories: what they were told stays true, and they can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from crdt_mor import StorageUnavailableError
from crdt_mor.errors import CommitUnknownError
from crdt_mor.events import group, one_event
from crdt_mor.log import publish
from crdt_mor.store import puts
from crdt_mor.store.asking import Tries
from crdt_mor.store.failures import Failure, unavailable
from tests.simulation.deadline_history import run_deadlines
from tests.tiers import seeds


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds((1,), range(2, 40), range(40, 400)))
def test_what_a_write_was_told_at_its_deadline_stays_true(seed: int) -> None:
    history = run_deadlines(seed, steps=40)
    assert history.resumed, "else it showed nothing"


@pytest.mark.slow
def test_histories_meet_writes_whose_outcome_is_not_known_and_that_are_there() -> None:
    assert sum(run_deadlines(seed, steps=25).repeated for seed in (1, 4, 5))


def every_put_that_fails_has_made_nothing(patch: pytest.MonkeyPatch) -> None:
    def careless(failure: Failure, unsure: bool, tries: Tries) -> Exception:
        return unavailable(tries.text, failure, tries.count, tries.seconds, changes=True)

    patch.setattr(puts, "_put_failed", careless)


def a_look_that_fails_has_found_nothing(patch: pytest.MonkeyPatch) -> None:
    def careless(cause: StorageUnavailableError) -> StorageUnavailableError | CommitUnknownError:
        return StorageUnavailableError(f"the store failed; nothing was published. Try again. cause={cause}")

    patch.setattr(publish, "unknown_outcome", careless)
    patch.setattr(one_event, "unknown_outcome", careless)
    patch.setattr(group, "unknown_outcome", careless)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "seeds_that_find"),
    [(every_put_that_fails_has_made_nothing, (22, 23)), (a_look_that_fails_has_found_nothing, (3, 4, 5))],
)
def test_histories_find_what_is_planted(
    plant: Callable[[pytest.MonkeyPatch], None], seeds_that_find: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    def some_histories() -> None:
        for seed in seeds_that_find:
            run_deadlines(seed, steps=25)

    with pytest.raises(AssertionError, match=r"failed, and is there|a failed write is there"):
        some_histories()

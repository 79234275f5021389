"""Stores that fail on purpose: what they do between their faults, and that a seed says which call fails."""

from __future__ import annotations

import pytest

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError
from crdt_mor.store.memory import MemoryStore
from crdt_mor.store.protocol import Store
from crdt_mor.testing.faults import DelegatingStore, FaultyStore, InterruptedStore, ProcessDied
from crdt_mor.testing.store_suite import StoreSuite


class TestAnUnarmedStore(StoreSuite):
    """Without a fault, a store that may fail is a store like any other."""

    @pytest.fixture(params=[DelegatingStore, InterruptedStore, lambda store: FaultyStore(store, 1)])
    def store(self, request: pytest.FixtureRequest) -> Store:
        made: Store = request.param(MemoryStore())
        return made


def outcomes(store: FaultyStore, paths: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in paths:
        try:
            found[path] = str(store.put(path, b"x"))
        except (StorageUnavailableError, CommitUnknownError) as error:
            found[path] = type(error).__name__
    return found


def test_a_seed_says_which_calls_fail_whatever_their_order() -> None:
    paths = [f"p/{i}" for i in range(100)]
    one, two, other = (FaultyStore(MemoryStore(), seed, failures=0.2, lost_replies=0.2) for seed in (5, 5, 6))
    found = outcomes(one, paths)
    assert set(found.values()) == {"True", "StorageUnavailableError", "CommitUnknownError"}
    assert outcomes(two, paths[::-1]) == found
    assert outcomes(other, paths) != found


def test_a_failure_has_changed_nothing_and_a_lost_reply_has() -> None:
    memory = MemoryStore()
    with pytest.raises(StorageUnavailableError, match="nothing happened"):
        FaultyStore(memory, 1, failures=1.0).put("x", b"1")
    assert memory.read("x") is None
    with pytest.raises(CommitUnknownError, match="loss"):
        FaultyStore(memory, 1, lost_replies=1.0).put("x", b"1")
    assert memory.read("x") == b"1"
    with pytest.raises(StorageUnavailableError, match="reply"):
        FaultyStore(memory, 1, lost_replies=1.0).delete("x")
    assert memory.read("x") is None


def test_the_same_call_may_succeed_when_it_is_tried_again() -> None:
    store = FaultyStore(MemoryStore(), 3, failures=0.5)
    answers = []
    for _ in range(50):
        try:
            answers.append(store.read("x"))
        except StorageUnavailableError:
            answers.append(b"failed")
    assert {*answers} == {None, b"failed"}


def test_an_interrupted_store_dies_before_or_after_the_chosen_call() -> None:
    memory = MemoryStore()
    for after in (False, True):
        store = InterruptedStore(memory)
        store.arm(2, store.die, after=after)
        store.put(f"{after}/1", b"")
        with pytest.raises(ProcessDied):
            store.put(f"{after}/2", b"")
        with pytest.raises(ProcessDied):
            store.read(f"{after}/1")
        assert (memory.read(f"{after}/2") is not None) is after

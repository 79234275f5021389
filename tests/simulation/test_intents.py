"""Events that are posted: their objects, who takes them, and what becomes of them where something goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError, TableMovedError
from crdt_mor.events import sweep, write
from crdt_mor.log.combining import ABANDONED_MS, Crowd, Posting
from crdt_mor.log.intents import (
    BYTES_MAX,
    BeginIntent,
    CompleteIntent,
    Intent,
    combine,
    decode_intent,
    encode_intent,
)
from crdt_mor.log.paths import INTENTS, intent_path, version_path
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import Put, Steps, run
from crdt_mor.log.tail import find_tail
from crdt_mor.model.authors import Author
from crdt_mor.model.instant import from_ms
from crdt_mor.model.migration import Moving
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import FORMAT
from crdt_mor.model.timeline_parts import DataFile, Pending
from crdt_mor.planners.migration import closed, moving_to
from crdt_mor.store.memory import MemoryStore
from crdt_mor.testing import SimulatedEnvironment
from tests.simulation.actors import PUBLISHER

TABLE = "the-table"
FIRST = Timeline(1, "first", from_ms(1_000), "[]", swept=from_ms(1_700_000_000_000), table_id=TABLE)
AUTHOR = Author("ingest", "host", 7, (("message", "hello"),))

files = st.builds(DataFile, st.just("p/x"), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
begins = st.builds(BeginIntent, st.text(), st.none() | st.integers(0, 1 << 50), st.none() | st.just(AUTHOR))
ends = st.builds(
    CompleteIntent, st.text(), st.just(from_ms(5)), st.text(), st.just("UPSERT"),
    st.lists(files, max_size=3).map(tuple), st.none() | st.tuples(st.text(), st.integers(0, 9)),
)  # fmt: skip


def scene() -> tuple[MemoryStore, SimulatedEnvironment]:
    """A table with one version."""
    environment = SimulatedEnvironment()
    store = MemoryStore(environment.now_ms)
    store.put(version_path(1), FIRST.encode())
    return store, environment


def end_of(pending: Pending, token: tuple[str, int] | None = None, nonce: str = "end") -> CompleteIntent:
    return CompleteIntent(nonce, pending.requested, pending.driver, "UPSERT", (), token)


# --- objects ----------------------------------------------------------------------------------------------------------


@given(begins | ends)
def test_an_intent_is_what_it_was_written_as(intent: Intent) -> None:
    assert decode_intent(encode_intent(intent, TABLE), TABLE) == intent


@given(begins | ends, st.data())
def test_what_is_no_intent_of_this_table_is_left_out(intent: Intent, data: st.DataObject) -> None:
    text = encode_intent(intent, TABLE)
    assert decode_intent(text, "another-table") is None
    assert decode_intent(text[: data.draw(st.integers(0, len(text) - 1))], TABLE) is None
    document = json.loads(text)
    assert decode_intent(json.dumps(document | {"format": FORMAT + 1}).encode(), TABLE) is None
    assert decode_intent(json.dumps({**document, "begin": 1, "complete": 1}).encode(), TABLE) is None


# --- one value of many events -----------------------------------------------------------------------------------------


def test_ends_come_before_begins_and_what_is_impossible_is_left_out() -> None:
    tail = FIRST.begin("a", 0).begin("b", 0).begin("c", 0)
    a, b, c = tail.pending
    tail = tail.roll_back("d", 0, c.requested)
    both = [end_of(a, ("app", 3)), end_of(b, ("app", 3), "again")]
    begins = [BeginIntent("new", None, AUTHOR), BeginIntent("c", None, None)]
    value, possible = combine(tail, 0, [*begins, *both, end_of(c)])
    assert (value.version, possible) == (tail.version + 1, 2)
    assert [completion.requested for completion in value.completions] == [a.requested]
    assert [pending.nonce for pending in value.pending] == ["b", "new"]
    assert tail.clock < value.completions[-1].completed < value.pending[-1].requested == value.clock


def test_nothing_begins_in_a_table_that_has_moved() -> None:
    moved = closed(moving_to(FIRST, "m", 0, Moving("elsewhere", "s3://elsewhere")), "c", 0)
    (pending,) = moved.begin("late", 0).pending
    assert combine(moved, 0, [BeginIntent("new", None, None)]) == (moved, 0)
    with pytest.raises(TableMovedError):
        BeginIntent("new", None, None).derive(moved, 0)
    assert pending.nonce == "late"


# --- posting ----------------------------------------------------------------------------------------------------------


Meet = Callable[[Any], None]


def crowded() -> Crowd:
    return Crowd(is_crowded=True)


def driven(steps: Steps[Any], store: MemoryStore, environment: SimulatedEnvironment, meet: Meet) -> Any:
    """Drive a protocol; `meet` sees each step before it is done, and may raise what the store would."""

    def watched() -> Steps[Any]:
        reply: Any = None
        failure: StorageUnavailableError | None = None
        while True:
            try:
                step = steps.send(reply) if failure is None else steps.throw(failure)
            except StopIteration as end:
                return end.value
            reply, failure = None, None
            try:
                meet(step)
            except StorageUnavailableError as error:
                failure = error
                continue
            reply = yield step

    return run(watched(), store, environment)


def test_an_event_that_others_have_published_counts_and_its_intent_goes() -> None:
    store, environment = scene()

    def help_with(step: Any) -> None:
        """Another process publishes what is posted, just before the writer does."""
        if isinstance(step, Put) and step.path == version_path(2) and store.read(step.path) is None:
            (stat,) = store.list(INTENTS)
            intent = decode_intent(store.read(stat.path) or b"", TABLE)
            assert intent is not None
            store.put(version_path(2), combine(FIRST, 0, [intent])[0].encode())

    in_crowd = Shortcuts(crowd=crowded())
    begun = driven(write.begin(PUBLISHER, FIRST, 1 << 60, shortcuts=in_crowd), store, environment, help_with)
    value, pending = begun
    assert value.version == pending.version == 2
    assert not store.list(INTENTS)
    assert run(find_tail(None), store, environment).version == 2


def test_the_end_of_a_very_wide_commit_is_not_posted() -> None:
    store, environment = scene()
    value, pending = run(write.begin(PUBLISHER, FIRST, 1 << 60), store, environment)
    wide = [DataFile(f"p{i}/{'x' * 40}", 1, 1) for i in range(BYTES_MAX // 40)]
    posted: list[str] = []
    steps = write.complete(PUBLISHER, value, pending, "UPSERT", wide, None, shortcuts=Shortcuts(crowd=crowded()))
    driven(steps, store, environment, lambda step: posted.append(getattr(step, "path", "")))
    assert not any(path.startswith(INTENTS) for path in posted)


def test_who_cannot_remove_the_intent_of_a_begin_does_not_go_on() -> None:
    store, environment = scene()
    store_delete = store.delete

    def delete(path: str) -> None:
        if path.startswith(INTENTS):
            raise StorageUnavailableError(f"not now. path={path}")
        store_delete(path)

    store.delete = delete  # type: ignore[method-assign]
    with pytest.raises(CommitUnknownError, match="does not remove the intent"):
        run(write.begin(PUBLISHER, FIRST, 1 << 60, shortcuts=Shortcuts(crowd=crowded())), store, environment)


def test_a_clock_that_breaks_once_the_end_is_posted_leaves_the_outcome_open() -> None:
    store, environment = scene()
    value, pending = run(write.begin(PUBLISHER, FIRST, 1 << 60), store, environment)

    def jump(step: Any) -> None:
        """Another process wins the race, and then this machine's clock is a day ahead."""
        if isinstance(step, Put) and step.path == version_path(3) and store.read(step.path) is None:
            store.put(version_path(3), value.decide("other", 0).encode())
            ahead = environment.now_ms() + 86_400_000
            environment.now_ms = lambda: ahead  # type: ignore[method-assign]

    steps = write.complete(PUBLISHER, value, pending, "UPSERT", [], None, shortcuts=Shortcuts(crowd=crowded()))
    with pytest.raises(CommitUnknownError, match="another process may have published it"):
        driven(steps, store, environment, jump)
    assert not store.list(INTENTS)


def test_a_store_that_fails_once_the_end_is_posted_leaves_the_outcome_open() -> None:
    store, environment = scene()
    value, pending = run(write.begin(PUBLISHER, FIRST, 1 << 60), store, environment)

    def fail(step: Any) -> None:
        if isinstance(step, Put) and step.path == version_path(3):
            raise StorageUnavailableError("not now")

    steps = write.complete(PUBLISHER, value, pending, "UPSERT", [], None, shortcuts=Shortcuts(crowd=crowded()))
    with pytest.raises(CommitUnknownError):
        driven(steps, store, environment, fail)


def test_in_a_crowd_a_few_are_drawn_and_at_last_everybody() -> None:
    crowd = Crowd(is_crowded=True, others=200)
    all_of_them = [Posting(BeginIntent(f"n{i}", None, None), crowd, is_posted=True) for i in range(200)]
    drawn = [sum(posting.draw(FIRST) for posting in all_of_them) for _ in range(120)]
    assert 0 < drawn[0] < 30
    assert drawn == sorted(drawn)
    assert drawn[-1] == 200
    later = Timeline(2, "second", from_ms(2_000), "[]", table_id=TABLE)
    assert sum(posting.draw(later) for posting in all_of_them) < 30


# --- sweeping ---------------------------------------------------------------------------------------------------------


class Refusing(MemoryStore):
    """A store that does not delete for a while."""

    refuses = True

    def delete(self, path: str) -> None:
        if self.refuses:
            raise StorageUnavailableError(f"not now. path={path}")
        super().delete(path)


def test_a_write_that_was_given_up_is_forgotten_once_its_intent_is_gone() -> None:
    environment = SimulatedEnvironment()
    store = Refusing(environment.now_ms)
    value = FIRST.begin("dead", 0)
    value = value.roll_back("cleaner", 0, value.pending[0].requested)
    store.put(version_path(value.version), value.encode())
    store.put(intent_path("dead"), encode_intent(BeginIntent("dead", None, None), TABLE))
    for refuses in (True, False):
        store.refuses = refuses
        environment.sleep(120)
        value = run(sweep.sweep(PUBLISHER, value), store, environment)
        assert bool(value.rolled_back) == bool(store.list(INTENTS)) == refuses


def test_an_intent_that_nobody_has_removed_for_long_goes() -> None:
    store, environment = scene()
    path = intent_path("dead")
    store.put(path, encode_intent(BeginIntent("dead", None, None), TABLE))
    environment.sleep(ABANDONED_MS / 1000 - 1)
    value = run(sweep.sweep(PUBLISHER, FIRST), store, environment)
    assert store.stat(path) is not None
    environment.sleep(2)
    run(sweep.sweep(PUBLISHER, value), store, environment)
    assert store.stat(path) is None

"""Events that are posted: their objects, who takes them, and what becomes of them where something goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError, TableMovedError
from crdt_mor.events import group, sweep, write
from crdt_mor.events.one_event import LoneCommit, LoneWrite
from crdt_mor.log.combining import Crowd, Posting
from crdt_mor.log.intents import (
    BYTES_MAX,
    BeginIntent,
    CompleteIntent,
    Intent,
    PostedEvent,
    combine,
    decode_intent,
    encode_intent,
)
from crdt_mor.log.outcome import value_of
from crdt_mor.log.paths import POSTS, event_path, version_path
from crdt_mor.log.posts import EVENTS_BYTES_MAX, FRESH_MS, LOOKS_A_RANK, NAME_CHARS, chosen
from crdt_mor.log.publish import NO_SHORTCUTS, Shortcuts
from crdt_mor.log.steps import Put, Steps, Together, run
from crdt_mor.log.tail import KEPT_VERSIONS, Tail, find_tail
from crdt_mor.model.authors import Author
from crdt_mor.model.instant import EPOCH, claim_after, from_ms
from crdt_mor.model.migration import Moving
from crdt_mor.model.names import LogFileName, bucket_file_id
from crdt_mor.model.posts import WINDOW, PostName
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import FORMAT
from crdt_mor.model.timeline_parts import DataFile, Pending
from crdt_mor.planners.migration import closed, moving_to
from crdt_mor.store.memory import MemoryStore
from crdt_mor.testing import SimulatedEnvironment
from tests.driving import nonce_in_hex
from tests.simulation.actors import PUBLISHER
from tests.stores import ScriptedStore, refusing

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


def posted(*intents: Intent, version: int = 1) -> list[PostedEvent]:
    """Events under names of their own, as they are posted at a version."""
    return [PostedEvent(PostName(version, intent.nonce[:NAME_CHARS]), intent) for intent in intents]


def put(store: MemoryStore, *events: PostedEvent) -> None:
    for event in events:
        store.put(event_path(event.post), encode_intent(event.intent, TABLE))


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
    value, possible = combine(tail, 0, posted(*begins, *both, end_of(c, nonce="gone"), version=tail.version))
    assert (value.version, possible) == (tail.version + 1, 2)
    assert value.posts == ((tail.version, ("end", "new")),)
    assert [completion.requested for completion in value.completions] == [a.requested]
    assert [pending.nonce for pending in value.pending] == ["b", "new"]
    assert tail.clock < value.completions[-1].completed < value.pending[-1].requested == value.clock


def test_nothing_begins_in_a_table_that_has_moved() -> None:
    moved = closed(moving_to(FIRST, "m", 0, Moving("elsewhere", "s3://elsewhere")), "c", 0)
    (pending,) = moved.begin("late", 0).pending
    assert combine(moved, 0, posted(BeginIntent("new", None, None), version=moved.version)) == (moved, 0)
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
            (stat,) = store.list(POSTS)
            intent = decode_intent(store.read(stat.path) or b"", TABLE)
            assert intent is not None
            store.put(version_path(2), combine(FIRST, 0, posted(intent))[0].encode())

    in_crowd = Shortcuts(crowd=crowded())
    begun = driven(write.begin(PUBLISHER, FIRST, 1 << 60, shortcuts=in_crowd), store, environment, help_with)
    value, pending = begun
    assert value.version == pending.version == 2
    assert not store.list(POSTS)
    assert run(find_tail(None), store, environment).version == 2


@pytest.mark.parametrize(
    ("later", "is_found"), [(0, True), (1, True), (KEPT_VERSIONS, True), (KEPT_VERSIONS + 1, False)]
)
def test_value_of_a_begin_is_none_once_its_version_may_have_been_deleted(later: int, is_found: bool) -> None:
    """An object may stand there all the same: a late put has taken the name of the deleted version."""
    store, environment = scene()
    value = FIRST.begin("ours", 0)
    store.put(version_path(value.version), value.encode())
    tail = value
    for number in range(later):
        tail = tail.decide(f"other {number}", 0)
        store.put(version_path(tail.version), tail.encode())
    found = run(value_of(value.pending[0], Tail(tail)), store, environment)
    assert found == (value if is_found else None)


def test_the_end_of_a_very_wide_commit_is_not_posted() -> None:
    store, environment = scene()
    value, pending = run(write.begin(PUBLISHER, FIRST, 1 << 60), store, environment)
    log = LogFileName(bucket_file_id(0), pending.requested)
    wide = [DataFile(f"p{i}/{log}", 1, 1) for i in range(BYTES_MAX // 40)]
    posted: list[str] = []
    steps = write.complete(PUBLISHER, value, pending, "UPSERT", wide, None, shortcuts=Shortcuts(crowd=crowded()))
    driven(steps, store, environment, lambda step: posted.append(getattr(step, "path", "")))
    assert not any(path.startswith(POSTS) for path in posted)


def test_a_writer_whose_post_cannot_be_removed_goes_on() -> None:
    environment = SimulatedEnvironment()
    store = ScriptedStore(MemoryStore(environment.now_ms), refusing("delete"))
    store.put(version_path(1), FIRST.encode())
    value, pending = run(
        write.begin(PUBLISHER, FIRST, 1 << 60, shortcuts=Shortcuts(crowd=crowded())), store, environment
    )
    assert value.pending == (pending,)
    assert [stat.path for stat in store.list(POSTS)] == [event_path(PostName(1, pending.nonce[:NAME_CHARS]))]
    assert combine(value, 0, posted(BeginIntent(pending.nonce, None, None))) == (value, 0)


def test_an_event_is_posted_anew_once_its_window_has_passed() -> None:
    """Others publish one version after another: at last it is published with what a later version shows."""
    store, environment = scene()
    names: list[str] = []
    value = FIRST

    def hinder(step: Any) -> None:
        nonlocal value
        if isinstance(step, Together):
            names.extend(part.path for part in step.steps if isinstance(part, Put) and part.path.startswith(POSTS))
        if isinstance(step, Put) and step.path == version_path(value.version + 1) and value.version <= WINDOW + 1:
            value = value.decide(f"other {value.version}", 0)
            store.put(step.path, value.encode())

    begun = driven(
        write.begin(PUBLISHER, FIRST, 1 << 60, shortcuts=Shortcuts(crowd=crowded())), store, environment, hinder
    )
    assert [name.partition("posts/")[2].partition("-")[0] for name in names] == ["1", str(1 + WINDOW)]
    assert begun[0].pending == (begun[1],)
    assert not store.list(POSTS)


def test_a_version_carries_as_many_events_as_it_has_bytes_for() -> None:
    store, environment = scene()
    wide = [DataFile(f"{'x' * 4000}{i}/{LogFileName(bucket_file_id(0), EPOCH)}", 1, 1) for i in range(2)]
    value = FIRST
    for n in range(6):
        value = value.begin(f"w{n}", 0)
    store.put(version_path(value.version), value.encode())
    ends = [CompleteIntent(f"end {n}", p.requested, "", "UPSERT", tuple(wide)) for n, p in enumerate(value.pending)]
    put(store, *posted(*ends, version=value.version))
    shortcuts = Shortcuts(crowd=crowded())
    following, _ = run(write.begin(PUBLISHER, value, 1 << 60, shortcuts=shortcuts), store, environment)
    fit = EVENTS_BYTES_MAX // len(encode_intent(ends[0], TABLE))
    assert 0 < len(following.completions) == fit < len(ends)


def test_an_event_whose_writer_has_been_silent_for_long_is_not_published() -> None:
    store, environment = scene()
    put(store, *posted(BeginIntent("dead", None, None)))
    environment.sleep(FRESH_MS / 1000 + 1)
    shortcuts = Shortcuts(crowd=crowded())
    value, begun = run(write.begin(PUBLISHER, FIRST, 1 << 60, shortcuts=shortcuts), store, environment)
    assert value.pending == (begun,)


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
    assert not store.list(POSTS)


def test_a_store_that_fails_once_the_end_is_posted_leaves_the_outcome_open() -> None:
    store, environment = scene()
    value, pending = run(write.begin(PUBLISHER, FIRST, 1 << 60), store, environment)

    def fail(step: Any) -> None:
        if isinstance(step, Put) and step.path == version_path(3):
            raise StorageUnavailableError("not now")

    steps = write.complete(PUBLISHER, value, pending, "UPSERT", [], None, shortcuts=Shortcuts(crowd=crowded()))
    with pytest.raises(CommitUnknownError):
        driven(steps, store, environment, fail)


def test_a_commit_that_is_alone_publishes_the_events_that_are_posted() -> None:
    store, environment = scene()
    put(store, *posted(BeginIntent("other", None, None)))
    crowd, requested = Crowd(), claim_after(FIRST.clock, environment.now_ms())
    file = DataFile(str(LogFileName(bucket_file_id(0), requested)), 1, 1)
    write = LoneWrite(requested, "UPSERT", ((file, b"x"),))
    steps = group.commit_alone(PUBLISHER, FIRST, write, lambda: None, crowd, None, NO_SHORTCUTS, is_stale=True)
    committed = run(steps, store, environment)
    assert isinstance(committed, LoneCommit)
    assert committed.completion.requested == requested
    assert [pending.nonce for pending in committed.value.pending] == ["other"]
    assert committed.value.version == 2
    assert crowd == Crowd(has_met=True)


def test_a_process_that_is_alone_publishes_the_events_of_others_with_each_of_its_own() -> None:
    store, environment = scene()
    crowd, value = Crowd(), FIRST
    for number in range(1, 4):
        put(store, *posted(BeginIntent(f"other {number}", None, None), version=value.version))
        value, _ = run(write.begin(PUBLISHER, value, 1 << 60, shortcuts=Shortcuts(crowd=crowd)), store, environment)
        assert value.find_by_nonce(f"other {number}") is not None
        assert crowd.is_crowded


def test_nothing_is_posted_where_an_older_release_may_follow() -> None:
    """It would forget which posts were taken."""
    store, environment = scene()
    put(store, *posted(BeginIntent("other", None, None)))
    posting = Posting(BeginIntent("own", None, None), crowded())
    assert run(posting.is_turn(replace(FIRST, format=6)), store, environment)
    assert not posting.is_posted
    assert chosen(store.list(POSTS), FIRST, environment.now_ms())
    assert chosen(store.list(POSTS), replace(FIRST, format=6), environment.now_ms()) == []


def test_owners_of_posts_take_turns_and_at_last_it_is_everybodys() -> None:
    store, environment = scene()
    begins = [BeginIntent(f"{n:012}", None, None) for n in range(8)]
    put(store, *posted(*begins))
    owners = [Posting(begin, Crowd(is_crowded=True)) for begin in begins]
    due = [sum(run(owner.is_turn(FIRST), store, environment) for owner in owners) for _ in range(8 * LOOKS_A_RANK)]
    assert due == [1 + look // LOOKS_A_RANK for look in range(len(due))]


# --- sweeping ---------------------------------------------------------------------------------------------------------


def test_a_post_that_no_version_may_take_any_more_goes() -> None:
    store, environment = scene()
    (event,) = posted(BeginIntent(nonce_in_hex("dead"), None, None))
    put(store, event)
    value = FIRST
    for left in range(WINDOW, -1, -1):
        environment.sleep(120)
        value = run(sweep.sweep(PUBLISHER, value), store, environment)
        assert (store.stat(event_path(event.post)) is not None) == (left > 0)

"""A copy is the table at one moment, whatever happens to the table at any call of a copy, and wherever a copy dies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import pytest

from crdt_mor import CrdtMorError, InvalidInputError, Opening, StorageUnavailableError, Table
from crdt_mor.errors import CommitUnknownError
from crdt_mor.events import copy as events
from crdt_mor.log.paths import PROPERTIES, version_path
from crdt_mor.log.steps import Put, Steps
from crdt_mor.model.instant import from_ms, to_datetime
from crdt_mor.model.timeline import Timeline
from crdt_mor.services import copy as service
from crdt_mor.services import copy_objects
from crdt_mor.store.across import put_across
from crdt_mor.testing.faults import FaultyStore, InterruptedStore, ProcessDied
from tests.simulation.copy_history import Copied, added, rows
from tests.tiers import long, seeds, slow

ACTS = ("write", "clean", "archive", "archive_alone", "restore", "overwrite", "erase", "save", "begin")


@pytest.fixture(autouse=True)
def soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions go as soon as there are newer ones, and completions are moved to segments by twos."""
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 2)
    monkeypatch.setattr("crdt_mor.log.segments.SEGMENTS_MAX", 2)
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 2)
    monkeypatch.setattr("crdt_mor.log.publish.EXPIRE_EVERY", 1)


def written(*acts: str) -> Copied:
    """A table with some history, and with more by some acts."""
    made = Copied()
    made.write()
    made.clean()
    made.save()
    made.write()
    for act in acts:
        getattr(made, act)()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("act", [act if act == "erase" else slow(act) for act in ACTS])
def test_a_copy_is_the_table_and_follows_it(act: str) -> None:
    made = written()
    made.copy()
    made.check_moved()
    getattr(made, act)()
    made.copy(update=True)
    made.check_moved()
    made.write()
    getattr(made, act)()
    made.copy(update=True)
    made.check_moved()
    made.check_used()


def disturbed(update: bool, act: str, calls: Sequence[int]) -> tuple[Copied, int]:
    """A copy of which some calls of the table's store come after something has happened to the table."""
    made = written()
    if update:
        made.copy()
        made.write()
    made.at = dict.fromkeys(calls, getattr(made, act))
    return made, made.copy(update=update)


@pytest.mark.slow
@pytest.mark.parametrize("act", ["clean", *map(long, (act for act in ACTS if act != "clean"))])
@pytest.mark.parametrize("update", [False, long(True)], ids=["first", "update"])
def test_a_copy_is_whole_whatever_happens_at_any_of_its_calls(act: str, update: bool) -> None:
    """Every call of the table's store, in the long tier of every act; before every commit every thirteenth of one."""
    undisturbed, count = disturbed(update, act, ())
    undisturbed.check_moved()
    for call in range(1, count + 1, 13 if act == "clean" and not update else 1):
        made, _ = disturbed(update, act, [call])
        assert made.check() >= 0, call
        made.copy(update=True)
        made.check_moved()


@pytest.mark.long
@pytest.mark.parametrize("act", ["clean", "archive", "restore"])
def test_a_copy_is_whole_whatever_happens_at_two_of_its_calls(act: str) -> None:
    _, count = disturbed(False, act, ())
    for calls in combinations(range(1, 2 * count, 7), 2):
        made, _ = disturbed(False, act, calls)
        assert made.check() >= 0, calls


def dying(made: Copied, update: bool, at: int, after: bool) -> bool:
    """Whether a copy has died at the put, or removal, of that number."""
    target = InterruptedStore(made.target)
    target.arm(at, target.die, after=after)
    try:
        made.copy(update=update, target=target)
    except ProcessDied:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("update", "after", "step"),
    [
        pytest.param(False, False, 11, id="first"),
        pytest.param(True, False, 59, id="update"),
        *(long(update, after, 1) for update in (False, True) for after in (False, True)),
    ],
)
def test_a_copy_that_dies_anywhere_is_no_table_or_an_earlier_moment_and_is_finished_by_another(
    update: bool, after: bool, step: int
) -> None:
    """At every put and removal of the copy, before it and after it; before every commit at some of them."""
    at, died = 1, True
    while died:
        made = written()
        before = -1
        if update:
            made.copy()
            before = made.check()
            for act in ("archive", "overwrite", "begin"):
                getattr(made, act)()
        died = dying(made, update, at, after)
        made.check(before, made.table.version)
        made.write()
        made.copy(update=True)
        made.check_moved()
        at += step
    assert at > 40 if update else at > 20


# --- a copy that is written to ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("step", [29, long(1)])
def test_what_is_written_to_a_copy_while_it_is_moved_is_never_lost(step: int) -> None:
    """At every put and removal of an update somebody writes to the copy: one of the two comes first."""
    at, outcomes, wrote = 1, set(), True
    while wrote:
        made = written()
        made.copy()
        made.archive()
        wrote = False

        def write(made: Copied = made) -> None:
            nonlocal wrote
            copy = made.opened()
            assert copy is not None
            copy.upsert(added(5))
            wrote = True

        target = InterruptedStore(made.target)
        target.arm(at, write)
        refused = ""
        try:
            made.copy(update=True, target=target)
        except InvalidInputError as error:
            refused = str(error)
        assert not refused or "its own commits" in refused
        outcomes.add("refused" if refused else "moved")
        copy = made.opened()
        assert copy is not None
        assert ((5, "a", 5) in rows(copy)) == wrote
        assert copy.verify().is_sound
        at += step
    assert outcomes == {"moved", "refused"}


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, long(1)])
def test_a_writer_of_a_copy_that_is_moved_beside_it_writes_to_what_the_copy_shows_then(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every put of a write to the copy all of an update happens, which is refused once the write has begun.

    The versions that the writer remembers stay meanwhile: nothing but the next number tells it of the update.
    """
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 128)
    at, outcomes, moved = 1, set(), True
    while moved:
        made = written()
        made.copy()
        made.write()
        made.write()
        target = InterruptedStore(made.target)
        copy = Table("c", opening=Opening(store=target, environment=made.environment))
        moved = False

        def move(made: Copied = made) -> None:
            nonlocal moved
            moved = True
            try:
                made.copy(update=True)
                outcomes.add("moved")
            except InvalidInputError:
                outcomes.add("refused")

        target.arm(at, move)
        copy.upsert(added(5))
        again = made.opened()
        assert again is not None
        for reader in (copy, again):
            assert (5, "a", 5) in rows(reader)
            assert reader.verify().is_sound
        at += step
    assert outcomes == {"moved", "refused"}


def test_who_has_a_copy_open_sees_the_later_moment() -> None:
    made = written()
    made.copy()
    copy = made.opened()
    assert copy is not None
    scan = copy.scan()
    sealed = frozenset(scan.to_polars().rows())
    made.write()
    made.copy(update=True)
    assert rows(copy) == made.shown[made.table.version]
    assert frozenset(scan.to_polars().rows()) == sealed
    assert copy.changes(scan.checkpoint).commits == 1


def test_a_copy_that_was_asked_for_a_later_moment_moves_on_when_the_table_has() -> None:
    """Such a question is an event of the copy's timeline, which writes nothing."""
    made = written()
    made.copy()
    copy = made.opened()
    assert copy is not None
    made.environment.sleep(1)
    copy.scan(as_of=to_datetime(from_ms(made.environment.now_ms()))).to_polars()
    assert copy.version == made.table.version + 1
    made.copy(update=True)  # there is nothing new
    made.save()
    with pytest.raises(InvalidInputError, match="readers of the copy asked for later moments"):
        made.copy(update=True)
    made.write()
    made.copy(update=True)
    made.check_moved()


@pytest.mark.slow
@pytest.mark.parametrize(("update", "step"), [(True, 53), long(False, 1), long(True, 1)])
def test_of_two_copies_at_once_the_later_moment_stays(update: bool, step: int) -> None:
    """At every put and removal of a copy, all of another one happens, of a later moment."""
    at, happened = 1, True
    while happened:
        made = written()
        if update:
            made.copy()
            made.write()
        happened = False

        def copy_later(made: Copied = made) -> None:
            nonlocal happened
            happened = True
            made.archive()
            made.overwrite()
            made.copy(update=True)

        target = InterruptedStore(made.target)
        target.arm(at, copy_later)
        made.copy(update=True, target=target)
        made.check_moved()
        at += step


@pytest.mark.parametrize("seed", seeds([], [1], range(2, 12)))
def test_a_copy_over_stores_that_fail_is_made_again_until_it_is_whole(seed: int) -> None:
    """Calls of both stores fail, and replies of the copy's store get lost, by chance."""
    made = written()
    for update in (False, True):
        tries, done, before = 0, False, made.check()
        while not done:
            tries += 1
            source = FaultyStore(made.source, 100 * seed + tries, failures=0.02)
            target = FaultyStore(made.target, 100 * seed + tries, failures=0.02, lost_replies=0.05)
            try:
                table = Table("t", opening=Opening(store=source, environment=made.environment))
                table.copy("c", update=update or tries > 1, verify=False, store=target)
                done = True
            except (StorageUnavailableError, CommitUnknownError):
                made.check(before, made.table.version)
        made.copy(update=True)
        made.check_moved()
        made.archive()


# --- planted bugs -----------------------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def what_is_gone_is_left_out(patch: Patch) -> None:
    put = put_across
    patch.setattr(service, "put_across", lambda *a: put(*a) is not None)


def hudis_timeline_is_taken_as_it_is_listed(patch: Patch) -> None:
    patch.setattr(copy_objects, "_endings", lambda m, there: [there[p] for p, n in copy_objects._timeline(
        m.projector.folder, there) if n and n.state == "completed"])  # fmt: skip


def the_properties_come_first(patch: Patch) -> None:
    put = service._Copying._put_missing

    def planted(copying: Any, *needed: Any) -> None:
        copying._target.put(PROPERTIES, copying._session.store.read(PROPERTIES))
        put(copying, *needed)

    patch.setattr(service._Copying, "_put_missing", planted)


def bridges_are_left_out(patch: Patch) -> None:
    def planted(tail: Timeline, value: Timeline) -> Steps[None]:
        yield Put(version_path(value.version), value.encode())

    patch.setattr(events, "_bridge", planted)


def what_is_dropped_stays(patch: Patch) -> None:
    patch.setattr(service, "superfluous", lambda *_: [])


def at_any_call(act: str) -> None:
    _, count = disturbed(False, act, ())
    for call in range(1, count + 1):
        made, _ = disturbed(False, act, [call])
        assert made.check() >= 0
        made.copy(update=True)
        made.check_moved()


def dies_anywhere() -> None:
    for at in range(1, 20):
        made = written()
        dying(made, False, at, after=False)
        made.check(-1, made.table.version)


def moved_beside_a_writer(patch: Patch) -> None:
    test_a_writer_of_a_copy_that_is_moved_beside_it_writes_to_what_the_copy_shows_then(1, patch)


@pytest.mark.long
@pytest.mark.parametrize(
    ("bug", "search"),
    [
        (what_is_gone_is_left_out, lambda _: at_any_call("archive")),
        (hudis_timeline_is_taken_as_it_is_listed, lambda _: at_any_call("archive_alone")),
        (the_properties_come_first, lambda _: dies_anywhere()),
        (bridges_are_left_out, moved_beside_a_writer),
        (what_is_dropped_stays, lambda _: at_any_call("erase")),
    ],
    ids=["gone", "told", "properties", "bridges", "dropped"],
)
def test_the_search_finds(bug: Callable[[Patch], None], search: Callable[[Patch], None], monkeypatch: Patch) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, CrdtMorError)):
        search(monkeypatch)

"""Updates compute from exactly what comes before them, in every interleaving with other writes and with crashes.

Each update writes down which commits it has read. In every store that can be reached, a completed update has read the
commits that were requested before it, all of them and no others, and nothing is pending that could still come before.

An update also begins here: in a crowd that posts, with a put that loses its reply, and as the parts of a job. So
another process may publish its begin, and others may commit before its own process looks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pytest

from crdt_mor.errors import WriterExpiredError
from crdt_mor.events import job as jobs
from crdt_mor.events import update as updates
from crdt_mor.events import write as events
from crdt_mor.events.ticket import job_name
from crdt_mor.log.combining import Crowd
from crdt_mor.log.outcome import ValueOf
from crdt_mor.log.publish import NO_SHORTCUTS, Shortcuts
from crdt_mor.log.steps import Put
from crdt_mor.log.tail import find_tail
from crdt_mor.model import invariants
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.names import LogFileName, bucket_file_id
from crdt_mor.model.slices import FileSlice, fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, Pending
from crdt_mor.read import ended
from tests.simulation.actors import PUBLISHER, Run, data_path, finish
from tests.simulation.grouping import FIRST, loner
from tests.simulation.promises import check_store
from tests.simulation.small_store import LOG, Violation, completions_of, decoded, is_version
from tests.simulation.small_world import World
from tests.simulation.worlds import ROLES, Place, Plant, Role, WriteRole, small_numbers
from tests.tiers import slow

small = small_numbers()

FOREVER = 1 << 60


HERE, THERE = Declared(("",)), Declared(("there",))
"""What writes of the one partition that updates read declare, and those of another one."""

SAME_KEY, OTHER_KEY = Declared(keys=("read",)), Declared(keys=("other",))
"""Declarations of writes: of the keys that updates read, and of a key in another file group."""


def is_here(declared: Declared) -> bool:
    """Whether a write that has declared this may touch the rows that updates read."""
    return (declared.partitions is None or "" in declared.partitions) and declared.may_share_keys(frozenset({"read"}))


def updater(begun_in: Timeline, begun: Pending, is_early: bool = False) -> Run:
    """An update that has begun. Its file names the commits that it was computed from.

    is_early: the update reads at its begin; after its wait, only the keys of unread logs.
    """
    requested = begun.requested
    try:
        settled, read = yield from _read(ValueOf(begun_in), begun, is_early)
        if not (yield Put(data_path(requested), json.dumps(read).encode())):
            return ("expired", requested)
        files = [DataFile(data_path(requested), 1, 1)]
        yield from events.complete(PUBLISHER, settled, begun, "UPSERT", files, None)
    except WriterExpiredError:
        return ("expired", requested)
    return ("acknowledged", requested)


def _read(value: ValueOf, begun: Pending, is_early: bool = False) -> Run:
    """Wait, and read: the settled value, and the requested times of the commits that an update computes from."""
    settled = yield from updates.wait_for_earlier(PUBLISHER, value, begun.requested, FOREVER, FOREVER, is_here)
    read = updates.commits_before(value, value.completions, settled.completions, begun.requested)
    if is_early:
        return settled, read_again(fold_slices(value.completions), fold_slices(read))
    return settled, tuple(sorted(completion.requested for completion in read if touches_here(completion)))


def read_again(early: Sequence[FileSlice], final: Sequence[FileSlice]) -> tuple[InstantTime, ...]:
    """The commits in the rows of an update that has read `early`, and reads `final` where it has new logs."""
    fresh = ended.new_logs(early, final)
    assert fresh is not None, "there are only logs"
    rows = {slice_.group: slice_.logs for slice_ in early}
    rows |= {slice_.group: slice_.logs for slice_ in final if slice_.group in {new.group for new in fresh}}
    return tuple(sorted(log.name.instant for logs in rows.values() for log in logs if is_read(log)))


OTHER: Final = bucket_file_id(9)
"""The file id of the other key."""


def is_read(file: DataFile) -> bool:
    return file.partition == "" and file.name.file_id != OTHER


def touches_here(completion: Completion) -> bool:
    """Whether a commit has files of the rows that updates read."""
    return any(is_read(file) for file in completion.files)


def of_other_key(value: Timeline, begun: Pending) -> Run:
    """A write of another key, from its begin on."""
    return (yield from elsewhere(value, begun, str(LogFileName(OTHER, begun.requested))))


def elsewhere(value: Timeline, begun: Pending, path: str = "") -> Run:
    """A write of another partition, or of one file, from its begin on."""
    path = path or "there/" + data_path(begun.requested)
    if not (yield Put(path, b"rows")):
        return ("expired", begun.requested)
    try:
        yield from events.complete(PUBLISHER, value, begun, "UPSERT", [DataFile(path, 1, 1)], None)
    except WriterExpiredError:
        return ("expired", begun.requested)
    return ("acknowledged", begun.requested)


def beginning(value: Timeline, shortcuts: Callable[[], Shortcuts] = lambda: NO_SHORTCUTS) -> Run:
    """An update that begins and reads. Where its begin is posted, another process may publish it."""
    try:
        value, begun = yield from events.begin(PUBLISHER, value, FOREVER, shortcuts=shortcuts())
        _, read = yield from _read(value, begun)
    except WriterExpiredError:
        return ("expired", None)
    return ("read", begun.requested, read)


def in_a_crowd() -> Shortcuts:
    """Those of a process that has met others: it posts its begin at once."""
    return Shortcuts(crowd=Crowd(is_crowded=True))


def part(value: Timeline) -> Run:
    """A process of a job that updates: whichever process begins the job, each of them reads."""
    try:
        joined = yield from jobs.join(PUBLISHER, value, FOREVER, job_name("job", EPOCH), EPOCH)
        assert not isinstance(joined, events.WriteOutcome), "nobody completes it"
        _, read = yield from _read(*joined)
    except WriterExpiredError:
        return ("expired", None)
    return ("read", joined[1].requested, read)


def follower(value: Timeline) -> Run:
    """One commit in one event, after the newest version."""
    value = yield from find_tail(value)
    yield from loner(FIRST, value)


def helper(value: Timeline) -> Run:
    """One commit in one event, which takes along the events that are posted."""
    yield from loner(FIRST + 1, value, along=True)


class UpdateWorld(World):
    """A world in which every state is asked what its updates were computed from."""

    def check_result(self, result: Any, objects: dict[str, Any]) -> None:
        match result:
            case ("read", requested, read):
                before = tuple(commit for commit in commits_in(objects) if commit < requested)
                if read != before:
                    raise Violation(f"an update was computed from {read}, and not from {before}: {requested=}")
            case _:
                super().check_result(result, objects)

    def check(self, objects: dict[str, Any]) -> None:
        check_store(objects)
        tail, commits = decoded(objects[LOG][-1]), commits_in(objects)
        for requested in commits:
            data = objects.get(data_path(requested), b"rows")
            if data == b"rows":
                continue
            if updates.earlier(tail, requested, is_here):
                raise Violation(f"a write can still come before a completed update: {requested=}")
            before = [commit for commit in commits if commit < requested]
            if json.loads(data) != before:
                raise Violation(f"an update was computed from {data.decode()}, and not from {before}: {requested=}")


WRITES: Mapping[str, WriteRole] = {
    "write": finish, "update": updater, "elsewhere": elsewhere, "here": finish, "careful": updater, "beyond": finish,
    "same key": finish, "other key": of_other_key, "keyed": updater, "early": partial(updater, is_early=True),
    "early and keyed": partial(updater, is_early=True),
}  # fmt: skip
DECLARED: Mapping[str, Declared] = {
    "elsewhere": THERE, "here": HERE, "careful": HERE, "beyond": THERE,
    "same key": SAME_KEY, "other key": OTHER_KEY, "keyed": SAME_KEY, "early and keyed": SAME_KEY,
}  # fmt: skip
"""What writes of some roles have declared: `careful` is an update, and `beyond` does not keep to it."""


def commits_in(objects: dict[str, Any]) -> list[InstantTime]:
    """The requested times of the commits that an update may read."""
    found = completions_of(decoded(objects[LOG][-1]), objects)
    return sorted(c.requested for c in found if c.action == "deltacommit" and touches_here(c))


LIVES: Mapping[str, Role] = {
    **ROLES, "lone": beginning, "posting": partial(beginning, shortcuts=in_a_crowd), "job": part, "another": part,
    "follower": follower, "helper": helper,
}  # fmt: skip


def world(who: Sequence[str], **options: Any) -> World:
    """Writes and updates that have begun in this order, and other actors."""
    writes = [role for role in who if role in WRITES]
    place = Place.with_begun(len(writes), [DECLARED.get(role, ANYTHING) for role in writes])
    place.live(who, LIVES, writes=WRITES)
    return UpdateWorld(place.objects, place.actors, **{"faulty": is_version, **options})


@pytest.mark.costly
@pytest.mark.parametrize(
    ("who", "options"),
    [
        slow(["write", "update"], {"faults": 1}),
        slow(["update", "write"], {"faults": 1}),
        (["update", "update"], {"faults": 1}),
        (["write", "update", "cleaner"], {"deletions": False}),
        slow(["update", "update", "cleaner"], {"deletions": False}),
        slow(["write", "update", "writer"], {"deletions": False}),
        (["write", "update", "update"], {"deletions": False}),
        slow(["write", "write", "update"], {"deletions": False}),
        slow(["elsewhere", "update", "cleaner"], {"deletions": False}),
        slow(["elsewhere", "update"], {"faults": 1}),
        (["here", "elsewhere", "careful"], {"deletions": False}),
        slow(["elsewhere", "careful", "update", "cleaner"], {"deletions": False}),
        slow(["write", "elsewhere", "careful", "careful"], {"deletions": False}),
        (["same key", "other key", "keyed"], {"deletions": False}),
        (["other key", "keyed", "cleaner"], {"deletions": False}),
        slow(["other key", "keyed", "keyed", "cleaner"], {"deletions": False}),
        slow(["other key", "same key", "early and keyed"], {"deletions": False}),
        (["write", "early"], {"faults": 1}),
        (["write", "other key", "early"], {"deletions": False}),
        (["early", "early"], {"faults": 1}),
        slow(["write", "early", "early", "cleaner"], {"deletions": False}),
        slow(["write", "update", "update"], {"faults": 1}),
        slow(["write", "update", "write", "update"], {"deletions": False}),
        slow(["write", "update", "update", "cleaner"], {"deletions": False}),
    ],
    ids=str,
)
def test_an_update_is_computed_from_what_comes_before_it(who: Sequence[str], options: dict[str, Any]) -> None:
    assert world(who, **options).search() > 50


@pytest.mark.costly
@pytest.mark.parametrize(
    ("who", "options"),
    [
        (["posting", "helper"], {"deletions": False}),
        slow(["posting", "helper", "follower"], {"deletions": False}),
        slow(["posting", "helper"], {"faults": 1}),
        slow(["lone", "follower"], {"faults": 1}),
        slow(["job", "follower"], {"faults": 1}),
        slow(["job", "another", "follower"], {"deletions": False}),
    ],
    ids=str,
)
def test_an_update_whose_begin_another_process_has_published_reads_nothing_of_its_future(
    who: Sequence[str], options: dict[str, Any]
) -> None:
    assert world(who, **options).search() > 50


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def nobody_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(updates, "wait_for_earlier", lambda publisher, known, *rest: iter_of(known))


def iter_of(value: Timeline) -> Run:
    return value
    yield


def what_ended_meanwhile_is_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(updates, "commits_before", lambda begun, shown, settled, requested: list(shown))


def what_is_requested_later_is_read(patch: pytest.MonkeyPatch) -> None:
    def careless(
        begun: Timeline, shown: Sequence[Completion], settled: Sequence[Completion], requested: InstantTime
    ) -> list[Completion]:
        return [c for c in settled if c.action == "deltacommit"]

    patch.setattr(updates, "commits_before", careless)


def what_is_declared_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    earlier = updates.earlier
    patch.setattr(updates, "earlier", lambda value, requested, *meets: earlier(value, requested, is_elsewhere))


def is_elsewhere(declared: Declared) -> bool:
    """A careless answer: a write that declares anything is not waited for."""
    return declared == ANYTHING


def an_overlapping_key_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Declared, "may_share_keys", lambda declared, keys: declared.keys is None)


def keys_of_ended_writes_are_not_read_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ended, "new_logs", lambda early, final: [])


def a_write_goes_beyond_what_it_has_declared(patch: pytest.MonkeyPatch) -> None:
    held = invariants.a_write_keeps_to_what_it_has_declared
    patch.setattr(invariants, "INVARIANTS", tuple(rule for rule in invariants.INVARIANTS if rule is not held))


@pytest.mark.parametrize(
    ("plant", "who", "found"),
    [
        (what_is_declared_is_not_looked_at, ["here", "update"], "computed from"),
        (an_overlapping_key_is_not_waited_for, ["same key", "update"], "computed from"),
        (an_overlapping_key_is_not_waited_for, ["keyed", "keyed"], "computed from"),
        (keys_of_ended_writes_are_not_read_again, ["write", "early"], "computed from"),
        (a_write_goes_beyond_what_it_has_declared, ["beyond", "update"], "computed from"),
        (nobody_is_waited_for, ["write", "update"], "can still come before"),
        (what_ended_meanwhile_is_not_read, ["write", "update"], "computed from"),
        (what_is_requested_later_is_read, ["write", "update", "write"], "computed from"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(plant: Plant, who: Sequence[str], found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        world(who).search(depth_first=True)


@pytest.mark.parametrize(
    ("who", "options"),
    [
        (["posting", "helper", "follower"], {}),
        (["lone", "follower"], {"faults": 1}),
        (["job", "follower"], {"faults": 1}),
        (["job", "another", "follower"], {}),
    ],
    ids=str,
)
def test_the_search_finds_an_update_that_takes_the_newest_value_for_that_of_its_begin(
    who: Sequence[str], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (events, jobs):
        monkeypatch.setattr(module, "value_of", lambda begun, tail: iter_of(tail))
    with pytest.raises(Violation, match="computed from"):
        world(who, deletions=False, **options).search()


def test_no_version_is_published_that_goes_beyond_what_was_declared() -> None:
    with pytest.raises(invariants.BrokenInvariantError, match="a_write_keeps_to_what_it_has_declared"):
        world(["beyond", "update"]).search(depth_first=True)

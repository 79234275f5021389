"""Updates compute from exactly what comes before them, in every interleaving with other writes and with crashes.

Each update writes down which commits it has read. In every store that can be reached, a completed update has read the
commits that were requested before it, all of them and no others, and nothing is pending that could still come before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from crdt_mor.errors import WriterExpiredError
from crdt_mor.events import update as updates
from crdt_mor.events import write as events
from crdt_mor.log.steps import Put
from crdt_mor.model import invariants, invariants_declared
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, Pending
from tests.simulation.actors import PUBLISHER, Run, data_path, finish
from tests.simulation.promises import check_store
from tests.simulation.small_store import LOG, Violation, completions_of, decoded, is_version
from tests.simulation.small_world import World
from tests.simulation.worlds import Place, Plant, WriteRole, small_numbers
from tests.tiers import slow

small = small_numbers()

FOREVER = 1 << 60


HERE, THERE = Declared(("",)), Declared(("there",))
"""What writes of the one partition that updates read declare, and those of another one."""


def is_here(declared: Declared) -> bool:
    """Whether a write that has declared this may touch the partition that updates read."""
    return declared.partitions is None or "" in declared.partitions


def updater(value: Timeline, begun: Pending) -> Run:
    """An update that has begun: its one file says of which commits it was computed."""
    requested = begun.requested
    try:
        settled = yield from updates.wait_for_earlier(PUBLISHER, value, requested, FOREVER, FOREVER, is_here)
        read = updates.commits_before(value, value.completions, settled.completions, requested)
        read = [completion for completion in read if touches_here(completion)]
        if not (yield Put(data_path(requested), json.dumps(sorted(c.requested for c in read)).encode())):
            return ("expired", requested)
        files = [DataFile(data_path(requested), 1, 1)]
        yield from events.complete(PUBLISHER, settled, begun, "UPSERT", files, None)
    except WriterExpiredError:
        return ("expired", requested)
    return ("acknowledged", requested)


def touches_here(completion: Completion) -> bool:
    """Whether a commit has files of the partition that updates read."""
    return any(file.partition == "" for file in completion.files)


def elsewhere(value: Timeline, begun: Pending) -> Run:
    """A write of another partition, from its begin on."""
    path = "there/" + data_path(begun.requested)
    if not (yield Put(path, b"rows")):
        return ("expired", begun.requested)
    try:
        yield from events.complete(PUBLISHER, value, begun, "UPSERT", [DataFile(path, 1, 1)], None)
    except WriterExpiredError:
        return ("expired", begun.requested)
    return ("acknowledged", begun.requested)


class UpdateWorld(World):
    """A world in which every state is asked what its updates were computed from."""

    def check(self, objects: dict[str, Any]) -> None:
        check_store(objects)
        tail = decoded(objects[LOG][-1])
        found = [c for c in completions_of(tail, objects) if c.action == "deltacommit" and touches_here(c)]
        commits = sorted(completion.requested for completion in found)
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
}  # fmt: skip
DECLARED: Mapping[str, Declared] = {"elsewhere": THERE, "here": HERE, "careful": HERE, "beyond": THERE}
"""What writes of some roles have declared: `careful` is an update, and `beyond` does not keep to it."""


def world(who: Sequence[str], **options: Any) -> World:
    """Writes and updates that have begun in this order, and other actors."""
    writes = [role for role in who if role in WRITES]
    place = Place.with_begun(len(writes), [DECLARED.get(role, ANYTHING) for role in writes])
    place.live(who, writes=WRITES)
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
        slow(["write", "update", "update"], {"faults": 1}),
        slow(["write", "update", "write", "update"], {"deletions": False}),
        slow(["write", "update", "update", "cleaner"], {"deletions": False}),
    ],
    ids=str,
)
def test_an_update_is_computed_from_what_comes_before_it(who: Sequence[str], options: dict[str, Any]) -> None:
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


def a_write_goes_beyond_what_it_has_declared(patch: pytest.MonkeyPatch) -> None:
    held = invariants_declared.a_write_keeps_to_what_it_has_declared
    patch.setattr(invariants, "INVARIANTS", tuple(rule for rule in invariants.INVARIANTS if rule is not held))


@pytest.mark.parametrize(
    ("plant", "who", "found"),
    [
        (what_is_declared_is_not_looked_at, ["here", "update"], "computed from"),
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


def test_no_version_is_published_that_goes_beyond_what_was_declared() -> None:
    with pytest.raises(invariants.BrokenInvariantError, match="a_write_keeps_to_what_it_has_declared"):
        world(["beyond", "update"]).search(depth_first=True)

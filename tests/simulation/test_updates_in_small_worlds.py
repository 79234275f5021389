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


def updater(value: Timeline, begun: Pending) -> Run:
    """An update that has begun: its one file says of which commits it was computed."""
    requested = begun.requested
    try:
        settled = yield from updates.wait_for_earlier(PUBLISHER, value, requested, FOREVER, FOREVER)
        read = updates.commits_before(value, value.completions, settled.completions, requested)
        if not (yield Put(data_path(requested), json.dumps(sorted(c.requested for c in read)).encode())):
            return ("expired", requested)
        files = [DataFile(data_path(requested), 1, 1)]
        yield from events.complete(PUBLISHER, settled, begun, "UPSERT", files, None)
    except WriterExpiredError:
        return ("expired", requested)
    return ("acknowledged", requested)


class UpdateWorld(World):
    """A world in which every state is asked what its updates were computed from."""

    def check(self, objects: dict[str, Any]) -> None:
        check_store(objects)
        tail = decoded(objects[LOG][-1])
        commits = sorted(c.requested for c in completions_of(tail, objects) if c.action == "deltacommit")
        for requested in commits:
            data = objects.get(data_path(requested), b"rows")
            if data == b"rows":
                continue
            if updates.earlier(tail, requested):
                raise Violation(f"a write can still come before a completed update: {requested=}")
            before = [commit for commit in commits if commit < requested]
            if json.loads(data) != before:
                raise Violation(f"an update was computed from {data.decode()}, and not from {before}: {requested=}")


WRITES: Mapping[str, WriteRole] = {"write": finish, "update": updater}


def world(who: Sequence[str], **options: Any) -> World:
    """Writes and updates that have begun in this order, and other actors."""
    place = Place.with_begun(sum(role in WRITES for role in who))
    place.live(who, writes=WRITES)
    return UpdateWorld(place.objects, place.actors, **{"faulty": is_version, **options})


@pytest.mark.parametrize(
    ("who", "options"),
    [
        (["write", "update"], {"faults": 1}),
        slow(["update", "write"], {"faults": 1}),
        (["update", "update"], {"faults": 1}),
        (["write", "update", "cleaner"], {"deletions": False}),
        (["update", "update", "cleaner"], {"deletions": False}),
        slow(["write", "update", "writer"], {"deletions": False}),
        (["write", "update", "update"], {"deletions": False}),
        (["write", "write", "update"], {"deletions": False}),
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


@pytest.mark.parametrize(
    ("plant", "who", "found"),
    [
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

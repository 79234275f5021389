"""A restore keeps its promises in every interleaving: beside writers, plans, stalled helpers, another restore, a crash.

The table has one file group; its base files say what they hold. In each store that can be reached, so wherever anybody
dies, the promises are:

    - what was completed by the moment to which a restore goes back is there, and so are its files
    - Hudi's readers see the table as it was at one moment, on the way back as well, and nothing that was dropped once
      anything has been published after the restore; but for what a stalled helper has put and not yet removed
    - when all have come to their end, nothing is left of what was dropped, nor of what was given up
    - a process that remembers a version from before a restore finds the tail, and never takes a ghost for it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from crdt_mor.errors import SnapshotExpiredError, TableReplacedError
from crdt_mor.events import restore as events
from crdt_mor.hudi import adoption
from crdt_mor.hudi import restore as cutting
from crdt_mor.hudi.projection import Projector
from crdt_mor.log import tail
from crdt_mor.log.paths import version_path
from crdt_mor.log.steps import Delete, Steps, Walk
from crdt_mor.model import invariants
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import data_file_name
from crdt_mor.model.restore import Restore
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.planners import restore as restoring
from crdt_mor.planners.restore import plan_restore
from crdt_mor.store.protocol import Stat
from tests.simulation.actors import PUBLISHER, Run, complete
from tests.simulation.holding_bases import compactor
from tests.simulation.landing import looked
from tests.simulation.playing import logs_hudi_shows, named_in
from tests.simulation.small_store import (
    LATE,
    LOG,
    PROJECTOR,
    Violation,
    completed_path,
    completions_of,
    decoded,
    is_version,
)
from tests.simulation.small_world import World
from tests.simulation.worlds import ROLES, Place, Role, nothing
from tests.tiers import long, slow

# --- who is there -----------------------------------------------------------------------------------------------------


def restorer(value: Timeline, to: InstantTime) -> Run:
    """Restores the table to a moment, unless an earlier restore has cut it off."""
    listed: list[Stat] = yield Walk()
    there = {stat.path for stat in listed}
    try:
        done = yield from events.restore(PUBLISHER, value, lambda _: to, there, (), None)
    except SnapshotExpiredError:
        return None
    return ("restored", done.restore and done.restore.at)


def by_another(value: Timeline, to: InstantTime, kept: InstantTime) -> Run:
    """Restores the table as a user who may not delete the files of one commit."""
    steps = restorer(value, to)
    reply: object = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            return end.value
        if isinstance(step, Delete) and kept in step.path:
            reply = False
        else:
            reply = yield step


def helper(value: Timeline) -> Run:
    """Who has published this version, stalls, and projects it then."""
    yield from PUBLISHER.project(value)


def late_writer(value: Timeline) -> Run:
    """Who remembers this version, and writes."""
    yield from PUBLISHER.publish(lambda found, _: found.decide("late", 0), value)
    return ("wrote", value.version)


def reader(value: Timeline) -> Run:
    """Who remembers this version looks for the newest one, and then once more."""
    found = yield from tail.find_tail(value)
    return ("found", value.version, (found, (yield from tail.find_tail(found))))


def newcomer() -> Run:
    """Who remembers nothing looks for the newest version."""
    return ("found", 0, ((yield from tail.find_tail(None)),))


# --- the world --------------------------------------------------------------------------------------------------------


class Restored(World):
    """A table with a history, as `happened` has its events, restored to what it showed after one of them.

    to: the positions in the history of the events after which restorers go back. helped: of those that a helper
    projects late. pending: whether the writes that have begun go on. kept: the position of the commit whose files
    restorers may not delete.
    """

    def __init__(
        self,
        history: str,
        to: Sequence[int],
        who: Sequence[str] = (),
        *,
        helped: Sequence[int] = (),
        kept: int | None = None,
        **options: Any,
    ) -> None:
        place = Place()
        values = place.play(history)
        roles: dict[str, Role] = {
            **ROLES,
            "late": late_writer,
            "reader": lambda newest: reader(values[-2]),
            "newcomer": lambda newest: newcomer(),
            "compactor": compactor,
        }
        if kept is None:
            place.add("r", [partial(restorer, place.tail, values[at].clock) for at in to])
        else:
            commit = completions_of(place.tail, place.objects)[kept].requested
            place.add("o", [partial(by_another, place.tail, values[at].clock, commit) for at in to])
        place.complete_all(complete)
        place.add("h", [partial(helper, values[at]) for at in helped])
        place.live(who, roles, letters=2, store_now=10)
        super().__init__(place.objects, place.actors, faulty=is_version, **options)

    def land(self, objects: dict[str, Any], path: str, data: bytes) -> dict[str, Any] | None:
        """The store after a put; what is put of an instant that was dropped, or given up by a restore, is late."""
        if path in objects:
            return None
        after = {**objects, path: data}
        newest = decoded(objects[LOG][-1])
        if path == version_path(newest.version + 1):
            after[LOG] = (*objects[LOG], data)
            check_event(newest, decoded(data), objects)
        name = named_in(path) or (None if path.startswith(".hoodie") else data_file_name(path))
        instant = None if name is None else getattr(name, "requested", None) or getattr(name, "instant", None)
        if newest.restores and instant is not None and instant not in known_to(newest, objects):
            after[LATE] = tuple(sorted({*after[LATE], path}))
        return after

    def check(self, objects: dict[str, Any]) -> None:
        newest = decoded(objects[LOG][-1])
        if objects.get(version_path(newest.version)) != objects[LOG][-1]:
            raise Violation("the tail is gone")
        completions = completions_of(newest, objects)
        for completion in completions:
            for file in completion.files:
                if file.path not in objects:
                    raise Violation(f"a file of a committed instant was removed: {file.path}")
            if completed_path(completion) not in objects and completion.version < newest.version:
                raise Violation(f"a hole in Hudi's directory: {completed_path(completion)}")
        if not objects[LATE]:
            check_hudi(objects)
            found = looked(adoption.foreign_completions(PROJECTOR, newest), objects)
            if found.completions:
                raise Violation(f"commits of ours would be taken for Hudi's: {found.completions}")

    def check_result(self, result: Any, objects: dict[str, Any]) -> None:
        newest = decoded(objects[LOG][-1])
        match result:
            case ("found", since, found):
                genuine = {value.version: value for value in map(decoded, objects[LOG])}
                versions = [since, *(value.version for value in found)]
                if versions != sorted(versions) or any(value != genuine[value.version] for value in found):
                    raise Violation(f"a process took something else for the tail, or went back in time: {versions}")
            case ("restored", at):
                if at is not None and all(restore.at != at for restore in newest.restores):
                    raise Violation(f"an acknowledged restore was lost: {at}")
            case ("acknowledged", requested):
                done = {c.requested: c for data in objects[LOG] for c in decoded(data).completions}.get(requested)
                if done is None:
                    raise Violation(f"an acknowledged commit never was: {requested}")
                if requested not in known_to(newest, objects) and dropped_by(newest, done) is None:
                    raise Violation(f"an acknowledged commit was lost: {requested}")
            case ("expired", requested):
                if any(c.requested == requested for c in completions_of(newest, objects)):
                    raise Violation(f"a writer was told that its commit was given up, but it was not: {requested}")

    def check_end(self, objects: dict[str, Any]) -> None:
        newest = decoded(objects[LOG][-1])
        alive = known_to(newest, objects) | {r.requested for r in newest.rolled_back}
        for path in objects:
            name = named_in(path)
            if name is not None and name.requested not in alive:
                raise Violation(f"a file of an instant that was dropped stays in Hudi's directory: {path}")
            if objects[LATE] and path in objects[LATE] and name is not None:
                raise Violation(f"what was put too late stays: {path}")


def known_to(value: Timeline, objects: dict[str, Any]) -> set[InstantTime]:
    """The instants that are pending, planned or completed."""
    open_instants = {p.requested for p in value.pending} | {p.barrier for p in value.plans}
    return open_instants | {c.requested for c in completions_of(value, objects)}


def dropped_by(value: Timeline, completion: Completion) -> Restore | None:
    """The restore that has dropped a completion."""
    found = (r for r in value.restores if r.version > completion.version and r.to < completion.completed < r.at)
    return next(found, None)


def check_event(before: Timeline, after: Timeline, objects: dict[str, Any]) -> None:
    """A value keeps what was decided before it, but for what a restore drops, and leaves nothing open at that."""
    invariants.require_invariants(before, after)
    old, new = completions_of(before, objects), completions_of(after, objects)
    cut = after.restores[-1] if len(after.restores) > len(before.restores) else None
    kept = [c for c in old if cut is None or c.completed <= cut.to or c.action == "restore"]
    if new[: len(kept)] != kept:
        raise Violation("a commit was lost from the timeline")


def check_hudi(objects: dict[str, Any]) -> None:
    """Hudi's readers see the rows of all that was completed by some moment; after a restore, of nothing it dropped."""
    newest = decoded(objects[LOG][-1])
    values = [newest]
    if newest.restores and newest.restores[-1].version == newest.version:
        values.append(decoded(objects[LOG][-2]))  # it may not be carried out yet
    allowed = [logs for value in values for logs in moments(value, objects, newest)]
    if (seen := logs_hudi_shows(objects)) not in allowed:
        raise Violation(f"Hudi's readers see {seen}, which is no moment of {allowed}")


def moments(value: Timeline, objects: dict[str, Any], newest: Timeline) -> list[list[str]]:
    """The logs that are shown at each moment of a value, but for those from before what is sure to be told by now."""
    completions = sorted(completions_of(value, objects), key=lambda c: c.completed)
    sure = [n for n, c in enumerate(completions) if c.version < newest.version and c in completions_of(newest, objects)]
    first = max(sure, default=-1) + 1
    prefixes = [completions[:n] for n in range(first, len(completions) + 1)]
    return [sorted(file.path for c in prefix for file in c.files if not file.is_base) for prefix in prefixes]


STANDING: dict[str, Any] = {"deletions": False}
"""Versions stand until a restore deletes them."""


@pytest.mark.parametrize(
    ("history", "to", "who", "options"),
    [
        ("cc", [0], [], {"helped": [1]}),
        ("ckck", [0], [], {"helped": [3]}),
        ("bcfc", [1], [], {"helped": [2]}),
        ("cc", [0], ["reader"], {}),
        ("cc", [0], ["newcomer"], {"faults": 1}),
        slow("ccc", [0, 1], [], {}),
        slow("cbc", [0], [], {}),
        slow("cc", [0], ["late"], {}),
    ],
    ids=str,
)
def test_a_restore_and_who_is_there(
    history: str, to: Sequence[int], who: Sequence[str], options: dict[str, Any]
) -> None:
    world = Restored(history, to, who, check_leftovers=True, **STANDING, **options)
    assert world.search() > 10
    values = [decoded(log[-1]) for log in world.logs]
    assert any(value.restores for value in values)


@pytest.mark.parametrize(
    ("history", "to", "who", "options"),
    [
        slow("cc", [0], ["compactor"], {}),
        slow("cc", [0], ["writer"], {}),
        slow("ckc", [0], ["late"], {"helped": [2]}),
        slow("cc", [0], ["sweeper"], {"helped": [1]}),
        long("cbc", [0], [], {"helped": [1], "faults": 1}),
        long("ccc", [0, 1], ["reader"], {}),
        long("ccc", [0, 1], ["newcomer"], {}),
    ],
    ids=str,
)
def test_more_of_those_who_are_there(
    history: str, to: Sequence[int], who: Sequence[str], options: dict[str, Any]
) -> None:
    world = Restored(history, to, who, check_leftovers=True, **STANDING, **options)
    assert world.search() > 10


@pytest.mark.parametrize("kept", [1, slow(2), slow(3)])
def test_a_restore_that_may_not_delete_a_commit_leaves_hudi_one_moment(kept: int) -> None:
    """Wherever it dies, Hudi's readers see the table as it was after that commit or later, or as it is to be."""
    world = Restored("cccc", [0], kept=kept, **STANDING)
    assert world.search() > 5


def test_one_that_went_on_would_leave_hudi_what_never_was(monkeypatch: pytest.MonkeyPatch) -> None:
    drop = cutting.drop

    def heedless(*args: Any) -> Steps[bool]:
        yield from drop(*args)
        return True

    monkeypatch.setattr(cutting, "drop", heedless)
    with pytest.raises(Violation, match="no moment"):
        Restored("cccc", [0], kept=2, **STANDING).search()


# --- planted bugs -----------------------------------------------------------------------------------------------------


def oldest_first(*args: Any) -> restoring.RestorePlan:
    """Whatever was completed first goes first."""
    plan = plan_restore(*args)
    return replace(plan, dropped=plan.dropped[::-1])


@pytest.mark.parametrize(
    ("target", "bug", "world"),
    [
        ((cutting, "delete_older_versions", nothing), "stays", ("cc", [0], [], {"helped": [1]})),
        ((Projector, "withdraw_dropped", nothing), "stays", ("cc", [0], [], {"helped": [1]})),
        ((Projector, "carry_out_restore", nothing), "no moment|dropped stays", ("cc", [0], ["late"], {})),
        ((events, "plan_restore", oldest_first), "no moment", ("ccc", [0], [], {})),
        ((tail, "restored_since", lambda *_: None), "TableReplaced", ("cc", [0], ["reader"], {})),
    ],
    ids=["older versions stay", "helpers do not look", "nobody helps", "oldest first", "taken for another table"],
)
def test_the_search_finds_what_is_planted(
    target: tuple[Any, str, Any], bug: str, world: tuple[str, list[int], list[str], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    place, name, planted = target
    monkeypatch.setattr(place, name, planted)
    history, to, who, options = world
    found = Restored(history, to, who, check_leftovers=True, **STANDING, **options)
    if bug == "TableReplaced":
        with pytest.raises(TableReplacedError):
            found.search()
        return
    with pytest.raises(Violation, match=bug):
        found.search()

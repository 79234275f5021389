"""A table is removed and another is made in its place, in every interleaving with those who use one of them.

The folder goes in one step; the properties and the first version of the next table are put one after the other, as
`Table.create` does. `small_world` says how the search works; a crash at every operation is part of it. Old versions
stay here: in life, those whose absence tells of another table are not deleted. The promises:

    - what was acknowledged to a table is in it as long as it is there, and nothing of the first is in the second
    - a process is not refused in vain: the table that it had open is gone, or something stands above its tail
    - a process that looks at the timeline anew finds all of the table there, or learns that the folder holds two
    - when all have come to their end, nothing of the first is left
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import CommitUnknownError, InvalidInputError, TableNotFoundError, TableReplacedError
from crdt_mor.events import handle, plan, rollback, sweep
from crdt_mor.events import write as events
from crdt_mor.events.handle import first_tail, put_first
from crdt_mor.events.session import Session
from crdt_mor.format.properties import decode_table, encode_table
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.hudi.actions import COMPACT
from crdt_mor.log import projection
from crdt_mor.log.paths import PLANS, PROPERTIES, VERSIONS, version_path
from crdt_mor.log.projection import EventProjector
from crdt_mor.log.publish import Publisher
from crdt_mor.log.steps import Delete, GetStat, MakeDurable, Nonce, Now, Put, Read, Steps, StoreNow
from crdt_mor.log.tail import _is_foreign, find_tail, is_kept
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import InstantTime, from_ms
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.names import TimelineFileName, data_file_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Pending
from crdt_mor.store.memory import MemoryStore
from tests.driving import one_by_one
from tests.simulation.actors import PUBLISHER, Run, data_path, finish, plan_of
from tests.simulation.landing import looked
from tests.simulation.local_states import Actor
from tests.simulation.promises import check_event
from tests.simulation.small_store import (
    FAULTS,
    HUDI,
    LOG,
    Remove,
    Violation,
    begun_paths,
    completed_path,
    decoded,
    is_version,
)
from tests.simulation.small_world import World
from tests.simulation.worlds import Plant
from tests.tiers import long, slow

OLD, NEW = "the-old", "the-new"
CLOCKS = {OLD: from_ms(0), NEW: from_ms(1_000_000)}
"""In life wall clocks see to it that no instant of one table is one of the other."""


def properties_of(table_id: str) -> bytes:
    columns = TableSchema.of(pa.schema([("id", pa.string())]))
    return encode_table(TableConfig("t", KeySpec(("id",)), buckets=1).to_properties(columns, table_id), ["made"])


PROPERTIES_OF = {table_id: properties_of(table_id) for table_id in CLOCKS}
CONFIGS = {t: TableConfig.from_properties(decode_table(data, ""), "") for t, data in PROPERTIES_OF.items()}


def genesis(table_id: str) -> Timeline:
    return replace(Timeline.genesis("[]", table_id), clock=CLOCKS[table_id])


# --- who is there -----------------------------------------------------------------------------------------------------


def remaker() -> Run:
    """Removes the table and makes another one."""
    yield Remove()
    yield Put(PROPERTIES, PROPERTIES_OF[NEW])
    yield from put_first(HUDI, CONFIGS[NEW], genesis(NEW))
    return ("made", NEW)


def told(who: str, table_id: str, use: Callable[..., Run], *given: Any) -> Run:
    """What who uses a table is told in the end. `who`: how the nonces of his begins start."""
    try:
        result = yield from use(*given)
    except (TableReplacedError, TableNotFoundError) as error:
        return ("refused", table_id, who, str(error))
    except (CommitUnknownError, InvalidInputError) as error:  # of invalid input only that a plan is gone
        return ("unknown", str(error))
    return (*result, table_id)


def writer(name: str, known: Timeline) -> Run:
    """One commit of who has a table open."""
    assert known.table_id is not None
    return (yield from told(name, known.table_id, _write, known))


def _write(known: Timeline) -> Run:
    value, begun = yield from events.begin(PUBLISHER, known, 1 << 60)
    return (yield from _finish(value, begun))


def _finish(value: Timeline, begun: Pending) -> Run:
    """The rest of a write; where it cannot go on, it gives up, as `Write` does."""
    try:
        return (yield from finish(value, begun))
    except (TableReplacedError, TableNotFoundError):
        with suppress(TableReplacedError, TableNotFoundError):
            yield from rollback.give_up(PUBLISHER, value, begun.requested, [data_path(begun.requested)])
        raise


def finisher(value: Timeline, begun: Pending) -> Run:
    """The rest of a write that has begun."""
    assert value.table_id is not None
    return (yield from told(begun.nonce, value.table_id, _finish, value, begun))


def opener(name: str) -> Run:
    """Opens the table that is there, and commits once."""
    data = yield Read(PROPERTIES)
    if data is None:
        return None
    table_id = next(known for known, found in PROPERTIES_OF.items() if found == data)
    return (yield from told(name, table_id, _open_and_write, table_id))


def _open_and_write(table_id: str) -> Run:
    yield from put_first(HUDI, CONFIGS[table_id], genesis(table_id))
    tail = yield from first_tail(CONFIGS[table_id])
    require_own(table_id, tail)
    return (yield from _write(tail))


def require_own(table_id: str, value: Timeline) -> None:
    """What a session does with the first value that it sees."""
    Session(MemoryStore(), SystemEnvironment(), CONFIGS[table_id], 0).remember(value)


def planner(name: str, known: Timeline) -> Run:
    """Plans a compaction of who has a table open."""
    assert known.table_id is not None
    return (yield from told(name, known.table_id, _plan, known))


def _plan(known: Timeline) -> Run:
    yield from plan.schedule(PUBLISHER, known, COMPACT, lambda tail, taken: None if taken else plan_of(tail))
    return ("planned", None)


def sweeper(name: str, known: Timeline) -> Run:
    """Sweeps the table that he has open."""
    assert known.table_id is not None
    return (yield from told(name, known.table_id, _sweep, known))


def _sweep(known: Timeline) -> Run:
    tail = yield from find_tail(known)
    yield from sweep.sweep(PUBLISHER, tail)
    return ("swept", None)


# --- the search -------------------------------------------------------------------------------------------------------


class Recreated(World):
    """A place with one table and somebody who makes another there. `begun`: a write to the first has begun.

    first: whether it has a first version; where not, only its properties are there.
    """

    def __init__(self, who: Sequence[str], *, begun: bool = False, first: bool = True, faults: int = 0) -> None:
        value = genesis(OLD)
        objects = {PROPERTIES: PROPERTIES_OF[OLD]}
        if begun:
            value = value.begin("begun", 0)
            objects |= dict.fromkeys(begun_paths(value.pending[0].requested), b"")
            objects[version_path(0)] = genesis(OLD).encode()
        if first:
            objects[version_path(value.version)] = value.encode()
        (write,) = value.pending or [Pending(from_ms(0), "", 0)]
        roles: dict[str, Callable[[str], Run]] = {
            "remaker": lambda name: remaker(),
            "opener": opener,
            "writer": lambda name: writer(name, value),
            "finisher": lambda name: finisher(value, write),
            "planner": lambda name: planner(name, value),
            "sweeper": lambda name: sweeper(name, value),
        }
        names = [f"{role[0]}{i}" for i, role in enumerate(who)]
        actors = [Actor(name, partial(roles[role], name)) for name, role in zip(names, who, strict=True)]
        self.faults = faults
        super().__init__(objects, actors, deletions=False, check_leftovers=True, faulty=is_version, faults=faults)

    def land(self, objects: dict[str, Any], path: str, data: bytes) -> dict[str, Any] | None:
        """Genuine is the version after the tail, of the table whose properties are there."""
        if path in objects:
            return None
        after = {**objects, path: data}
        if path.startswith(VERSIONS) and decoded(data).table_id == table_there(objects):
            log = objects[LOG]
            if path == version_path(len(log) and decoded(log[-1]).version + 1):
                if log:
                    check_event(decoded(log[-1]), decoded(data), objects)
                after[LOG] = (*log, data)
        return after

    def swept(self, objects: dict[str, Any]) -> dict[str, Any]:
        """A store in which all have come to their end, after a sweep of the table that is there."""
        steps = one_by_one(sweep.sweep(PUBLISHER, decoded(objects[LOG][-1])))
        reply: object = None
        with suppress(StopIteration):
            while True:
                step = steps.send(reply)
                if isinstance(step, (Now, StoreNow, Nonce, MakeDurable)):
                    reply = 1 if isinstance(step, (Now, StoreNow)) else "swept"
                    continue
                reply, after = self._perform(step, objects)[0]
                objects = after or objects
        return objects

    def check(self, objects: dict[str, Any]) -> None:
        if not objects[LOG]:
            return
        here, tail = table_there(objects), decoded(objects[LOG][-1])
        for data in objects[LOG]:
            if objects.get(version_path(decoded(data).version)) != data:
                raise Violation(f"a version of the table was deleted: {decoded(data).version}")
        for instant in (*instants(tail), *(tail.clock,)):
            if here == NEW and instant < CLOCKS[NEW]:
                raise Violation(f"something of the table before is in this one: {instant}")
        for completion in tail.completions:
            for file in completion.files:
                if file.path not in objects:
                    raise Violation(f"a file of a committed instant was removed: {file.path}")
        try:
            found = looked(find_tail(None), objects)
            require_own(here, found)
        except TableReplacedError:
            return
        if found != tail:
            raise Violation(f"who looks anew finds another value: {found}")

    def check_end(self, objects: dict[str, Any]) -> None:
        """Versions and plans of the table before are gone, and the rest goes with a sweep."""
        if table_there(objects) != NEW:
            return
        strays = [path for path in objects if path.startswith(VERSIONS) and objects[path] not in objects[LOG]]
        if strays and objects[FAULTS] < self.faults:
            return  # a put that was on its way has landed when everything was over; that is told
        if strays:
            raise Violation(f"a version of the table before stays: {strays}")
        if not objects[LOG]:
            return  # a process that opens the table puts a first version
        swept = self.swept(objects)
        alive = instants(decoded(swept[LOG][-1]))  # the sweep itself tells Hudi of what was given up
        for path in swept:
            instant = instant_of(path)
            if instant is not None and instant not in alive:
                raise Violation(f"something of the table before stays: {path}")

    def check_result(self, result: Any, objects: dict[str, Any]) -> None:
        here = table_there(objects)
        tail = decoded(objects[LOG][-1]) if objects[LOG] else None
        done = {c.requested: c for c in tail.completions} if tail else {}
        match result:
            case ("acknowledged", requested, table_id):
                if here == table_id and requested not in done:
                    raise Violation(f"an acknowledged commit was lost: {requested}")
                if here != table_id and requested in done:
                    raise Violation(f"an acknowledged commit is in another table: {requested}")
                if here == table_id and completed_path(done[requested]) not in objects:
                    raise Violation(f"an acknowledged commit is not in Hudi's directory: {requested}")
            case ("expired", _, table_id):
                raise Violation(f"a write was given up by nobody: {table_id}")
            case ("refused", table_id, who, error) if here == table_id:
                if error.count(table_id) > 1:
                    raise Violation(f"a table was refused for itself: {error}")
                if any(c.nonce.startswith(who.encode().hex()) for c in done.values()):
                    raise Violation(f"a writer was told that nothing was written, and it is there: {error}")


def table_there(objects: dict[str, Any]) -> str:
    return next((t for t, data in PROPERTIES_OF.items() if objects.get(PROPERTIES) == data), "")


def instant_of(path: str) -> InstantTime | None:
    """The instant that a file is of."""
    name = path.rpartition("/")[2]
    if path.startswith(f"{PLANS}/"):
        return InstantTime(name.partition("-")[0])
    found = TimelineFileName.parse(name)
    if found is not None:
        return found.requested
    data = data_file_name(path)
    return data.instant if data is not None else None


def instants(value: Timeline) -> list[InstantTime]:
    outcomes: Sequence[Completion | Any] = (*value.completions, *value.rolled_back, *value.pending)
    return [c.requested for c in outcomes] + [p.barrier for p in value.plans]


@pytest.mark.parametrize(
    ("who", "options", "states"),
    [
        pytest.param(["remaker", "writer"], {}, 100, id="write"),
        pytest.param(["remaker", "planner"], {}, 90, id="plan"),
        pytest.param(["remaker", "opener"], {"first": False}, 100, id="open-without-a-first-version"),
        pytest.param(
            *(["remaker", "opener"], {"first": False, "faults": 1}, 2_000),
            id="open-without-a-first-version-and-a-lost-reply",
            marks=pytest.mark.slow,
        ),
        pytest.param(["remaker", "finisher"], {"begun": True, "faults": 1}, 500, id="finish-and-a-lost-reply"),
        pytest.param(
            *(["remaker", "finisher", "opener"], {"begun": True}, 40_000), id="finish-and-open", marks=pytest.mark.slow
        ),
    ],
)
def test_nothing_of_a_removed_table_is_in_the_next(who: list[str], options: dict[str, Any], states: int) -> None:
    assert Recreated(who, **options).search() > states


@pytest.mark.parametrize(
    ("who", "options"),
    [
        slow(["remaker", "sweeper", "opener"], {"begun": True}),
        long(["remaker", "writer", "opener"], {}),
        long(["remaker", "finisher", "opener"], {"begun": True, "faults": 1}),
        long(["remaker", "opener", "opener"], {"first": False}),
    ],
)
def test_everything(who: list[str], options: dict[str, Any]) -> None:
    assert Recreated(who, **options).search() > 30_000


# --- planted bugs -----------------------------------------------------------------------------------------------------


def values_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("crdt_mor.log.tail._is_foreign", lambda found, known: False)
    patch.setattr("crdt_mor.log.tail.is_kept", lambda known, tail: False)
    patch.setattr(f"{__name__}.require_own", lambda table_id, value: None)


def what_is_lost_stays(patch: pytest.MonkeyPatch) -> None:
    def careless(self: Publisher, tail: Timeline, lost: Timeline) -> Steps[Timeline]:
        return (yield from find_tail(tail))

    patch.setattr(Publisher, "next_tail", careless)


def what_was_projected_stays(patch: pytest.MonkeyPatch) -> None:
    def careless(projector: EventProjector, value: Timeline, placed: Sequence[str]) -> Steps[None]:
        return
        yield

    patch.setattr(projection, "_withdraw_late", careless)


def what_a_refused_event_is_for_stays(patch: pytest.MonkeyPatch) -> None:
    def careless(known: Timeline, paths: object) -> Steps[None]:
        return
        yield

    patch.setattr(plan, "delete_if_table_is_gone", careless)


def who_is_refused_deletes_though_the_table_is_there(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: Publisher, tail: Timeline, lost: Timeline) -> Steps[Timeline]:
        try:
            return (yield from find_tail(tail))
        except (TableReplacedError, TableNotFoundError):
            path = version_path(lost.version)
            data = yield Read(path)
            if data is not None and lost.is_in(data):
                yield Delete(path)
            raise

    patch.setattr(Publisher, "next_tail", hasty)


def a_table_that_is_there_is_taken_for_gone(patch: pytest.MonkeyPatch) -> None:
    def hasty(known: Timeline, found: Timeline) -> Steps[bool]:
        return _is_foreign(found, known) or is_kept(known, found)
        yield

    patch.setattr("crdt_mor.log.tail._is_elsewhere", hasty)


def all_first_versions_have_one_nonce(patch: pytest.MonkeyPatch) -> None:
    def alike(value: Timeline, nonce: str) -> Timeline:
        return value

    patch.setattr(handle, "replace", alike)


def a_first_version_is_taken_back_unseen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timeline, "is_in", lambda self, data: self.version == 0 or is_in(self, data))


def a_first_version_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(handle, "Delete", GetStat)


def the_first_value_seen_is_not_looked_after(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(f"{__name__}.first_tail", lambda config: find_tail(None))


is_in = Timeline.is_in
BEGUN = {"begun": True}
BARE = {"first": False}
OPEN = ["remaker", "opener"]
FINISH = ["remaker", "finisher", "opener"]


@pytest.mark.parametrize(
    ("plant", "who", "options", "found"),
    [
        (values_are_not_compared, FINISH, BEGUN, "given up by nobody"),
        (what_is_lost_stays, ["remaker", "writer"], {}, "a version of the table before stays"),
        slow(what_was_projected_stays, FINISH, BEGUN, "something of the table before stays"),
        (what_a_refused_event_is_for_stays, ["remaker", "planner"], {}, "something of the table before stays"),
        slow(who_is_refused_deletes_though_the_table_is_there, FINISH, {**BEGUN, "faults": 1}, "was deleted"),
        slow(a_table_that_is_there_is_taken_for_gone, ["remaker", "writer", "opener"], {}, "refused for itself"),
        slow(all_first_versions_have_one_nonce, [*OPEN, "opener"], BARE, "."),
        (a_first_version_is_taken_back_unseen, OPEN, BARE, "."),
        (a_first_version_stays, OPEN, BARE, "stays"),
        slow(the_first_value_seen_is_not_looked_after, FINISH, BEGUN, "something of the table before stays"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(
    plant: Plant, who: list[str], options: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        Recreated(who, **options).search()

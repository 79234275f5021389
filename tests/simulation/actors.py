"""Who lives in the small world: writers, a cleaner and a reader, all made of the real protocols."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any

from crdt_mor.errors import WriterExpiredError
from crdt_mor.events import decide, rollback, sweep, write
from crdt_mor.events import plan as plans
from crdt_mor.hudi.actions import COMPACT, PlannedAction
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.paths import plan_path, version_path
from crdt_mor.log.steps import Put
from crdt_mor.log.tail import find_tail
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.instant import EPOCH, InstantTime, to_ms
from crdt_mor.model.names import WRITE_TOKEN, BaseFileName, LogFileName, bucket_file_id
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile, FileGroup, Pending
from crdt_mor.planners.compaction import CompactionPlan, FrozenPlan, GroupInput
from tests.driving import nonce_in_hex
from tests.simulation.landing import alone
from tests.simulation.small_store import LOG, PROJECTOR, Pick, Saw, begun_paths, decoded, stood

PUBLISHER = TablePublisher(PROJECTOR)
GENESIS = Timeline.genesis("", "the-table")

Run = Generator[Any, Any, Any]


def data_path(requested: InstantTime) -> str:
    return str(LogFileName(bucket_file_id(0), requested))


def writer() -> Run:
    """One commit of one file."""
    try:
        value, begun = yield from write.begin(PUBLISHER, GENESIS, 1 << 60)
    except WriterExpiredError:
        return ("expired", None)
    return (yield from finish(value, begun))


def finish(value: Timeline, begun: Pending) -> Run:
    """A write from its begin on: stage, after a look whether it is still pending, and complete."""
    requested = begun.requested
    tail = yield from find_tail(value)
    if tail.find_pending(requested) is None:
        return ("expired", requested)
    path = data_path(requested)
    if not (yield Put(path, b"rows")):
        yield from rollback.give_up(PUBLISHER, value, requested, [path])
        return ("expired", requested)
    return (yield from complete(value, begun))


def complete(value: Timeline, begun: Pending) -> Run:
    """A write that has staged its file."""
    file = DataFile(data_path(begun.requested), 1, 1)
    try:
        yield from write.complete(PUBLISHER, value, begun, "UPSERT", [file], None)
    except WriterExpiredError:
        return ("expired", begun.requested)
    return ("acknowledged", begun.requested)


def latecomer(value: Timeline, begun: Pending) -> Run:
    """A write that has derived its completion and stalls before the put, then dies after it."""
    file = DataFile(data_path(begun.requested), 1, 1)
    late = value.complete("late", 0, begun.requested, "UPSERT", [file])
    yield Put(version_path(late.version), late.encode())


def cleaner() -> Run:
    """Gives up whatever is pending, at any time, one after the other."""
    while True:
        yield from _clean_one()


def _clean_one() -> Run:
    tail, requested = yield Pick()
    yield from rollback.give_up(PUBLISHER, tail, requested, None)


def reader() -> Run:
    """Reads incrementally, for ever."""
    known = None
    while True:
        known = yield from _poll(known)


def _poll(known: Timeline | None) -> Run:
    tail = yield from find_tail(known)
    yield Saw(known, tail)
    return tail


def decider(known: Timeline, moment: InstantTime) -> Run:
    """Asks what the table showed at a moment, which is decided then."""
    value = yield from decide.decide(PUBLISHER, known, moment)
    if value.clock < moment:
        return ("future", moment)
    return ("decided", moment, tuple(sorted(c.requested for c in value.completions if c.completed <= moment)))


def begun_world(count: int, declared: Sequence[Declared] = ()) -> tuple[dict[str, bytes], Timeline]:
    """Objects of a table in which `count` writes have begun, and all but the newest version are gone.

    declared: what each of them has declared; where there are fewer, the others have declared nothing.
    """
    value = GENESIS
    for i in range(count):
        value = value.begin(f"begun{i}", 0, declared=declared[i] if i < len(declared) else ANYTHING)
    objects = {path: b"" for p in value.pending for path in begun_paths(p.requested)}
    return {**objects, version_path(value.version): value.encode()}, value


def with_begun(objects: dict[str, Any], number: int) -> dict[str, Any]:
    """The store once one more write has begun, with a nonce and in a name of its own by `number`."""

    def begin(tail: Timeline, wall_ms: int) -> Timeline:
        return tail.begin(f"begun{number}", wall_ms)

    return alone(PUBLISHER.publish(begin), objects, f"b{number}.")[1]


def all_given_up(objects: dict[str, bytes]) -> dict[str, Any]:
    """The store once the next process has given up all writers, as they are silent for good."""
    after = stood(objects)
    for n, pending in enumerate(decoded(after[LOG][-1]).pending):
        tail = decoded(after[LOG][-1])
        _, after = alone(rollback.give_up(PUBLISHER, tail, pending.requested, None), after, f"over{n}.")
    return after


# --- plans ------------------------------------------------------------------------------------------------------------

GROUP = GroupInput("", bucket_file_id(0), None, (DataFile(data_path(EPOCH), 1, 1),))
"""The one file group, which is in every plan."""


def output_path(barrier: InstantTime) -> str:
    return str(BaseFileName(bucket_file_id(0), WRITE_TOKEN, barrier))


def plan_of(tail: Timeline) -> CompactionPlan:
    return CompactionPlan(tail.next_barrier, (), "", "latest", (GROUP,))


def planner(
    value: Timeline,
    action: PlannedAction[Any] = COMPACT,
    freeze: Callable[[Timeline], FrozenPlan] = plan_of,
) -> Run:
    """Plans the file group, unless it is in an open plan."""

    def plan_from(tail: Timeline, taken: Collection[FileGroup]) -> FrozenPlan | None:
        return None if taken else freeze(tail)

    yield from plans.schedule(PUBLISHER, value, action, plan_from)


def execute(value: Timeline, barrier: InstantTime) -> Run:
    """What the executor of a compaction does to the store."""
    if not (yield from plans.keep_outputs(value, barrier, [])):
        return []
    path = output_path(barrier)
    yield Put(path, b"base")
    return [DataFile(path, 1, 1)] if (yield from plans.keep_outputs(value, barrier, [path])) else []


def worker(
    value: Timeline,
    action: PlannedAction[Any] = COMPACT,
    execute: Callable[[Timeline, InstantTime], Run] = execute,
) -> Run:
    """Executes and completes the oldest open plan of an action, if there is one."""
    tail, open_plans = yield from plans.open_plans(PUBLISHER, value, action)
    for plan in open_plans[:1]:
        files = yield from execute(tail, plan.barrier)
        _, done = yield from plans.complete(PUBLISHER, tail, plan.barrier, files)
        return ("compacted" if done else "cancelled", plan.barrier)
    return None


def canceller() -> Run:
    """Cancels a plan, once there is one."""
    tail, barrier = yield Pick(plan=True)
    value = yield from plans.cancel(PUBLISHER, tail, barrier)
    return ("cancelled", barrier) if value.find_rolled_back(barrier) else None


def sweeper(value: Timeline) -> Run:
    """Sweeps once."""
    tail = yield from find_tail(value)
    yield from sweep.sweep(PUBLISHER, tail)


def planned_world(
    *,
    projected: bool,
    action: PlannedAction[Any] = COMPACT,
    freeze: Callable[[Timeline], FrozenPlan] = plan_of,
) -> tuple[dict[str, bytes], Timeline]:
    """Objects of a table with one open plan, of which Hudi has been told, unless who scheduled it died before."""
    plan = freeze(GENESIS)
    value = GENESIS.schedule("planned", 0, action.name, plan_path(plan.barrier, nonce_in_hex("first")))
    objects = {version_path(value.version): value.encode(), value.plans[0].path: plan.encode()}
    paths = PROJECTOR.pending_paths(plan.barrier, action.name)[: len(action.begin_states)]
    return objects | ({path: action.encode_record(plan) for path in paths} if projected else {}), value


MOMENT_MS = 1_000


def clock_mover(value: Timeline) -> Run:
    """Publishes an event in which nothing is completed: the clock reaches a moment."""

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        return None if to_ms(tail.clock) >= MOMENT_MS else tail.decide("decided", MOMENT_MS)

    yield from PUBLISHER.publish(derive, value)

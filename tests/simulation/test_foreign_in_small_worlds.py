"""Hudi commits to a table of ours, in every interleaving with those who write, plan and compact it.

Hudi's writer puts its files one after the other, on a clock of its own: behind ours, at the very moment of a barrier of
ours, or ahead. What a plan folds is computed by the real code, and a base file here says what it holds, so that in
every store that can be reached one sees what a reader sees. `small_world` says how the search works; a crash at every
operation is part of it. The promises, on top of those there:

    - each commit, ours or Hudi's, is shown to who looks now, or he is refused, by the name of a commit of Hudi's
    - no plan stays open that does not know a commit which it would bury, once that commit is in the value
    - nothing that Hudi's writer has put is ever removed, also while its commit is pending, where a sweep comes by
    - a commit of Hudi's becomes part of the value once
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.events import plan as plans
from crdt_mor.events import sweep, write
from crdt_mor.format.commit import CommitMetadata, WriteStat, encode_commit
from crdt_mor.hudi import adoption
from crdt_mor.hudi.actions import COMPACT
from crdt_mor.hudi.adoption import HudiCompletions
from crdt_mor.hudi.projection import Projector, TablePublisher
from crdt_mor.log import publish
from crdt_mor.log.foreseen import Replies, foreseen
from crdt_mor.log.paths import plan_path, version_path
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import List, Put, Read, Steps
from crdt_mor.log.tail import Tail, find_tail
from crdt_mor.model.instant import InstantTime, from_ms
from crdt_mor.model.merge_spec import MergeSpec
from crdt_mor.model.names import COMPACTION, LogFileName, TimelineFileName, bucket_file_id
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup, OpenPlan
from crdt_mor.planners.compaction import CompactionPlan, plan_compaction
from tests.driving import nonce_in_hex
from tests.simulation.actors import PUBLISHER, Run, data_path, finish, output_path
from tests.simulation.landing import looked
from tests.simulation.promises import planned
from tests.simulation.small_store import (
    HUDI,
    LOG,
    PROJECTOR,
    Violation,
    begun_paths,
    completed_path,
    completions_of,
    decoded,
)
from tests.simulation.small_world import World
from tests.simulation.worlds import ROLES, Place, Plant, Role
from tests.tiers import long, slow

COLUMNS = TableSchema(pa.schema([("id", pa.string())])).to_json()
GENESIS = replace(Timeline.genesis(COLUMNS, "the-table"), clock=from_ms(100))
MERGE = MergeSpec.parse("latest")


# --- who is there -----------------------------------------------------------------------------------------------------


def hudi_log(requested: InstantTime) -> str:
    return str(LogFileName(bucket_file_id(0), requested, token="7-1-2"))


def hudi_files(requested: InstantTime) -> list[tuple[str, bytes]]:
    """What Hudi's writer puts before its commit is completed."""
    begun = [f"{HUDI}/{requested}.deltacommit.{state}" for state in ("requested", "inflight")]
    return [*((path, b"") for path in begun), (hudi_log(requested), b"rows")]


def hudi_completed(requested: InstantTime, completed: InstantTime) -> tuple[str, bytes]:
    log = hudi_log(requested)
    stat = WriteStat(
        file_id=bucket_file_id(0), path=log, num_writes=1, file_size_in_bytes=4, partition_path="", base_file="",
        log_files=(log,), log_version=1, log_offset=0,
    )  # fmt: skip
    return f"{HUDI}/{requested}_{completed}.deltacommit", encode_commit(CommitMetadata({"": [stat]}, "UPSERT", {}))


def hudi(requested: InstantTime, completed: InstantTime) -> Run:
    """One commit of Hudi's."""
    for path, data in [*hudi_files(requested), hudi_completed(requested, completed)]:
        yield Put(path, data)


def writer(value: Timeline) -> Run:
    """One commit of ours."""
    after, begun = yield from write.begin(PUBLISHER, value, 1 << 60)
    return (yield from finish(after, begun))


def looker(value: Timeline) -> Run:
    """Adopts what Hudi has written, as each writer does now and then."""
    try:
        yield from adoption.adopt(PUBLISHER, value)
    except UnsupportedFeatureError:
        return ("refused", None)
    return None


def compactor(value: Timeline) -> Run:
    """Plans, executes and completes a compaction, as `services.compaction` does."""
    return (yield from _unless_refused(_compact, value))


def worker(value: Timeline) -> Run:
    """Executes and completes the oldest open plan, as `services.compaction` does."""
    return (yield from _unless_refused(_work, value))


def far_compactor(value: Timeline) -> Run:
    """As `compactor`, in a bucket: Hudi's timeline is listed beside each look, here before it."""
    return (yield from _unless_refused(partial(_compact, is_far=True), value))


def far_worker(value: Timeline) -> Run:
    """As `worker`, in a bucket."""
    return (yield from _unless_refused(partial(_work, is_far=True), value))


def _unless_refused(use: Callable[[Timeline], Run], value: Timeline) -> Run:
    try:
        return (yield from use(value))
    except UnsupportedFeatureError:
        return ("refused", None)


def _compact(value: Timeline, *, is_far: bool = False) -> Run:
    tail = yield from _looked_and_adopted(value, find_tail(value), is_far=is_far)
    tail, plan = yield from plans.schedule(PUBLISHER, tail, COMPACT, plan_from, LOOKED)
    return (yield from _execute(tail, plan, is_far=is_far)) if plan is not None else None


def _work(value: Timeline, *, is_far: bool = False) -> Run:
    tail, found = yield from plans.open_plans(PUBLISHER, value, COMPACT)
    return (yield from _execute(tail, found[0], is_far=is_far)) if found else None


def _execute(tail: Timeline, plan: CompactionPlan, *, is_far: bool) -> Run:
    path, is_open = output_path(plan.barrier), False
    held = yield from _held(plan)
    if (yield from plans.keep_outputs(tail, plan.barrier, [])):
        is_open = True
        yield Put(path, "\n".join(held).encode())
    keep = plans.keep_outputs(tail, plan.barrier, [path] if is_open else [])
    tail = yield from _looked_and_adopted(tail, keep, is_far=is_far)
    _, done = yield from plans.complete(PUBLISHER, tail, plan.barrier, [DataFile(path, 1, 1)], shortcuts=LOOKED)
    return ("compacted" if done else "cancelled", plan.barrier)


LOOKED = Shortcuts(looked=True)


def _looked_and_adopted(known: Timeline, look: Steps[Tail | None], *, is_far: bool) -> Steps[Timeline]:
    hudi = List(PROJECTOR.folder, numbered=True)
    listed = (yield hudi) if is_far else None
    tail = yield from look
    replies: Replies = {hudi: listed} if tail is not None and tail.version == known.version and is_far else {}
    if tail is None:
        return (yield from adoption.adopt(PUBLISHER, known))
    return (yield from foreseen(adoption.adopt(PUBLISHER, tail, LOOKED), replies))


def _held(plan: CompactionPlan) -> Steps[list[str]]:
    """The logs that the base file of a plan holds, those of the base before it included."""
    (group,) = plan.groups
    held = [log.path for log in group.logs]
    if group.base is not None:
        data = yield Read(group.base.path)
        held += data.decode().split("\n") if data else []
    return sorted(held)


def plan_from(tail: Timeline, taken: Collection[FileGroup]) -> CompactionPlan | None:
    return plan_compaction(tail, fold_slices(tail.completions), MERGE, taken)


# --- the search -------------------------------------------------------------------------------------------------------

CLOCKS = {
    "behind": (from_ms(50), from_ms(51)),
    "at-our-barrier": (from_ms(50), from_ms(105)),
    "after-our-barrier": (from_ms(50), from_ms(107)),
    "ahead": (from_ms(900), from_ms(901)),
}
"""When Hudi's commit is requested and completed. Ours begin after 100; the one that is there is completed at 104."""


class Shared(World):
    """A table with one commit of ours, and `open_plan`: one of that, which is executed by nobody so far."""

    def __init__(self, who: Sequence[str], clock: str, *, open_plan: bool = False, **options: Any) -> None:
        value = GENESIS.begin("begun", 0)
        (begun,) = value.pending
        objects = dict.fromkeys(begun_paths(begun.requested), b"") | {data_path(begun.requested): b"rows"}
        value = value.complete("done", 0, begun.requested, "UPSERT", [DataFile(data_path(begun.requested), 4, 1)])
        objects[completed_path(value.completions[0])] = PROJECTOR._completed(value.completions[0], "")
        if open_plan:
            plan = plan_from(value, [])
            assert plan is not None
            path = plan_path(plan.barrier, nonce_in_hex("first"))
            objects[path] = plan.encode()
            value = value.schedule("planned", 0, COMPACTION, path)
        objects[version_path(value.version)] = value.encode()
        self.requested, self.completed = CLOCKS[clock]
        roles: dict[str, Role] = {
            **ROLES,
            "hudi": lambda value: hudi(self.requested, self.completed),
            "writer": writer,
            "looker": looker,
            "compactor": compactor,
            "worker": worker,
            "far compactor": far_compactor,
            "far worker": far_worker,
        }
        place = Place(objects)
        place.live(who, roles)
        super().__init__(place.objects, place.actors, deletions=False, **options)

    def check(self, objects: dict[str, Any]) -> None:
        tail = decoded(objects[LOG][-1])
        foreign, _ = hudi_completed(self.requested, self.completed)
        adopted = any(c.adopted for c in completions_of(tail, objects))
        super().check({path: data for path, data in objects.items() if path != foreign or adopted})
        check_burying(tail, objects)
        check_kept([path for path, _ in hudi_files(self.requested)] + [foreign], objects)
        completions = completions_of(tail, objects)
        expected = {file.path for c in completions for file in c.files if not file.is_base}
        expected |= {hudi_log(self.requested)} if foreign in objects else set()
        try:
            found = looked(adoption.foreign_completions(PROJECTOR, tail), objects)
        except UnsupportedFeatureError as refusal:
            if f"instant={self.requested} " not in str(refusal):
                raise Violation(f"the table is refused, and not for what Hudi did: {refusal}") from refusal
            return
        shown = set(shown_by([*completions, *found.completions], objects))
        if expected != shown:
            raise Violation(f"rows are lost, or twice there: expected={sorted(expected)} shown={sorted(shown)}")


def check_kept(put: Sequence[str], objects: dict[str, Any]) -> None:
    """Of what Hudi's writer puts, one file after the other, nothing is gone that was there before."""
    there = [path in objects for path in put]
    if there != sorted(there, reverse=True):
        raise Violation(f"something that Hudi had put was removed: {dict(zip(put, there, strict=True))}")


def shown_by(completions: Sequence[Completion], objects: dict[str, Any]) -> Sequence[str]:
    """The logs whose rows a reader of the latest snapshot sees."""
    shown: list[str] = []
    for found in fold_slices(completions):
        shown += objects[found.base.path].decode().split("\n") if found.base is not None else []
        shown += [log.path for log in found.logs]
    return shown


def check_burying(tail: Timeline, objects: dict[str, Any]) -> None:
    """No open plan buries what Hudi wrote, and the value knows."""
    for plan in tail.plans:
        frozen = planned(objects[plan.path])
        folded = {log.path for group in frozen.groups for log in group.logs}
        for done in tail.completions:
            if done.adopted and done.completed <= plan.barrier and not folded.issuperset(f.path for f in done.files):
                raise Violation(f"an open plan would bury a commit of Hudi's: {plan.barrier} {done.requested}")


@pytest.mark.costly
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize(
    ("who", "options"),
    [
        (["hudi", "compactor"], {}),
        (["hudi", "worker", "looker"], {"open_plan": True}),
        (["hudi", "far compactor"], {}),
        (["hudi", "far worker", "looker"], {"open_plan": True}),
        (["hudi", "looker", "looker"], {}),
        (["hudi", "looker", "sweeper"], {}),
    ],
    ids=["plan", "execute-and-look", "plan-far", "execute-far-and-look", "look-twice", "look-and-sweep"],
)
def test_each_commit_is_shown_or_refused_by_name(who: Sequence[str], options: dict[str, Any], clock: str) -> None:
    assert Shared(who, clock, **options).search() > 20


@pytest.mark.parametrize("who", [["hudi", "looker", "looker"], ["hudi", "looker", "sweeper"]], ids="-".join)
def test_each_commit_is_shown_where_each_event_seals(who: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was adopted is looked for in segments, too, before it is taken for new."""
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 1)
    monkeypatch.setattr("crdt_mor.log.segments.SEGMENTS_MAX", 2)
    assert Shared(who, "ahead").search() > 20


@pytest.mark.parametrize("clock", [slow("behind"), *map(long, list(CLOCKS)[1:])])
@pytest.mark.parametrize(
    ("who", "options"),
    [
        (["hudi", "compactor", "writer"], {}),
        (["hudi", "compactor", "compactor"], {}),
        (["hudi", "far compactor", "writer"], {}),
        (["hudi", "far compactor", "compactor"], {}),
        (["hudi", "worker", "looker", "writer"], {"open_plan": True}),
        (["hudi", "far worker", "looker", "writer"], {"open_plan": True}),
        (["hudi", "looker", "writer"], {}),
        (["hudi", "looker", "looker", "sweeper"], {}),
    ],
    ids=[
        "plan-and-write",
        "plan-twice",
        "plan-far-and-write",
        "plan-far-and-near",
        "execute-and-look-and-write",
        "execute-far-and-look-and-write",
        "look-and-write",
        "look-and-look-and-sweep",
    ],
)
def test_everything(who: Sequence[str], options: dict[str, Any], clock: str) -> None:
    assert Shared(who, clock, **options).search() > 200


# --- planted bugs -----------------------------------------------------------------------------------------------------


def a_commit_below_a_base_is_taken_as_it_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(adoption, "refuse_below", lambda bases, found: None)


def a_plan_goes_on_that_buries_a_commit(patch: pytest.MonkeyPatch) -> None:
    def careless(tail: Timeline, found: Sequence[Completion]) -> Steps[list[OpenPlan]]:
        return []
        yield

    patch.setattr("crdt_mor.hudi.adoption.plans_missing", careless)


def a_commit_is_judged_by_when_it_was_looked_for(patch: pytest.MonkeyPatch) -> None:
    """Whether a plan buries what was found is asked of an older value than the one that adopts it."""
    burying = adoption.plans_missing

    def stale(tail: Timeline, found: Sequence[Completion]) -> Steps[list[OpenPlan]]:
        kept = [plan for plan in tail.plans if plan.version < tail.version]
        return (yield from burying(replace(tail, plans=tuple(kept)), found))

    patch.setattr("crdt_mor.hudi.adoption.plans_missing", stale)


def a_commit_that_was_adopted_is_adopted_again(patch: pytest.MonkeyPatch) -> None:
    """What was found is not looked for again where the race for the next version is lost."""
    foreign = adoption.foreign_completions

    def stale(projector: Projector, value: Timeline) -> Steps[HudiCompletions]:
        return (yield from foreign(projector, replace(value, completions=(), segments=())))

    patch.setattr(adoption, "foreign_completions", stale)
    patch.setattr(adoption, "refuse_below", lambda bases, found: None)
    patch.setattr(publish, "require_invariants", lambda previous, following: None)


def what_nobody_knows_is_swept(patch: pytest.MonkeyPatch) -> None:
    def careless(publisher: TablePublisher, names: Sequence[TimelineFileName]) -> Steps[bool]:
        return True
        yield

    patch.setattr(sweep, "_is_stale", careless)


@pytest.mark.parametrize(
    ("plant", "who", "options", "found"),
    [
        (a_commit_below_a_base_is_taken_as_it_is, ["hudi", "compactor"], {}, "rows are lost"),
        (a_plan_goes_on_that_buries_a_commit, ["hudi", "worker", "looker"], {"open_plan": True}, "would bury"),
        (a_commit_is_judged_by_when_it_was_looked_for, ["hudi", "compactor", "looker"], {}, "would bury"),
        (a_commit_that_was_adopted_is_adopted_again, ["hudi", "looker", "looker"], {}, "two outcomes"),
        (what_nobody_knows_is_swept, ["hudi", "looker", "sweeper"], {}, "had put was removed"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(
    plant: Plant, who: Sequence[str], options: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        Shared(who, "behind", **options).search()

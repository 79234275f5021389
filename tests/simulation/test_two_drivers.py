"""Two drivers of one job, in every interleaving: the real protocol, with files of their own beside those of the other.

Each driver takes the write over, places a file whose bytes only it has, clears away what earlier drivers placed, and
completes. `small_world` says how the search works; a crash at every operation is part of it. Old versions stay here.
The promises on top of those there: what a commit says of a file is true of the bytes under its name in every store that
can be reached, a driver is told the truth, and when all drivers have come to their end no file lies beside those of the
commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from crdt_mor.errors import CommitUnknownError, WriterExpiredError
from crdt_mor.events import job, rollback, write
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.outcome import find_completion
from crdt_mor.log.paths import version_path
from crdt_mor.log.steps import Delete, GetStat, Put, Steps, Walk
from crdt_mor.log.tail import find_tail
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import LogFileName, bucket_file_id, data_file_name, driver_of_token, driver_token
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, Pending, RolledBack
from tests.simulation.actors import PUBLISHER, Run
from tests.simulation.small_store import LOG, Violation, decoded, is_version
from tests.simulation.small_world import World
from tests.simulation.worlds import Place, Plant, nothing
from tests.tiers import slow


def data_path(requested: InstantTime, driver: int) -> str:
    return str(LogFileName(bucket_file_id(0), requested, token=driver_token(driver)))


def driver(value: Timeline, begun: Pending, name: str, rows: int) -> Run:
    """What `distributed.complete` does, step by step, with one file group."""
    requested, placed = begun.requested, list[str]()
    mine = replace(begun, driver=name)
    try:
        mine = yield from job.take_over(PUBLISHER, value, mine)
        tail: Timeline = yield from find_tail(value)
        pending = tail.find_pending(requested)
        if pending is None:
            raise (yield from write.ended_error(requested, tail))
        if pending.driver != name:
            raise write.taken_over_error(requested)
        path = data_path(requested, mine.drivers)
        placed.append(path)
        yield Put(path, b"x" * rows)
        if mine.drivers > 1:
            yield from job.remove_files_of_earlier_drivers(requested, mine.drivers)
        done = yield from write.complete(PUBLISHER, value, mine, "UPSERT", [DataFile(path, rows, rows)], None)
    except WriterExpiredError:
        tail = yield from rollback.give_up(PUBLISHER, value, requested, placed, name)
        found = yield from find_completion(requested, tail)
        return ("repeated" if found else "expired", requested)
    except CommitUnknownError:
        tail = yield from rollback.give_up(PUBLISHER, value, requested, placed, name)
        return ("unknown", requested)
    assert isinstance(done.completion, Completion)
    if done.repeated == (done.completion.driver == name):
        raise Violation(f"a driver takes another one's commit for its own, or its own for another one's: {done}")
    return ("acknowledged", requested)


class Drivers(World):
    """A world with a job that has begun; `rows`: how many each of its drivers writes.

    dead: another driver has placed its file and died.
    """

    def __init__(self, rows: Sequence[int], *, cleans: bool = False, dead: bool = False, **options: Any) -> None:
        place = Place.with_begun(1)
        value = place.tail
        (begun,) = value.pending
        if dead:
            after = value.hand_over("dead", 0, begun.requested, "dead")
            place.objects |= {data_path(begun.requested, 1): b"dead", version_path(after.version): after.encode()}
        place.add("d", [partial(driver, value, begun, f"driver{i}", n) for i, n in enumerate(rows)])
        place.live(["cleaner"] * cleans, letters=None)
        super().__init__(place.objects, place.actors, deletions=False, check_leftovers=True, **options)

    def _store(self, objects: dict[str, Any]) -> int:
        found = super()._store(objects)
        for done in decoded(objects[LOG][-1]).completions:
            for file in done.files:
                if len(objects[file.path]) != file.size:
                    raise Violation(f"a commit says of a file what is not true of it: {file.path}")
        return found

    def check_end(self, objects: dict[str, Any]) -> None:
        """No driver has left a file that no commit names."""
        tail = decoded(objects[LOG][-1])
        named = {file.path for done in tail.completions for file in done.files}
        ended: tuple[Completion | RolledBack, ...] = (*tail.completions, *tail.rolled_back)
        over = {done.requested for done in ended}
        for path in objects:
            name = data_file_name(path)
            if name is not None and name.instant in over and path not in named:
                raise Violation(f"Hudi's readers would show a file of no commit: {path}")


@pytest.mark.parametrize(
    ("rows", "options", "states"),
    [
        pytest.param([3, 5], {}, 150, id="two-drivers"),
        pytest.param([3, 5], {"cleans": True}, 10_000, id="two-drivers-and-a-cleaner", marks=pytest.mark.slow),
        pytest.param([3, 5, 7], {}, 10_000, id="three-drivers", marks=pytest.mark.slow),
        pytest.param([3, 5], {"dead": True}, 100, id="two-drivers-after-one-that-died"),
        pytest.param(
            *([3, 5], {"faults": 1, "faulty": is_version}, 500),
            id="two-drivers-and-a-lost-reply",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_drivers_of_one_job(rows: list[int], options: dict[str, Any], states: int) -> None:
    assert Drivers(rows, **options).search() > states


# --- planted bugs -----------------------------------------------------------------------------------------------------


def all_drivers_give_a_file_the_same_name(patch: pytest.MonkeyPatch) -> None:
    same = driver_token(1)
    patch.setattr(f"{__name__}.driver_token", lambda number: same)


def a_driver_that_was_overtaken_may_complete(patch: pytest.MonkeyPatch) -> None:
    complete = write.complete

    def careless(publisher: TablePublisher, known: Timeline, begun: Pending, *rest: Any) -> Steps[write.WriteOutcome]:
        tail = yield from find_tail(known)
        now = tail.find_pending(begun.requested)
        return (yield from complete(publisher, known, now or begun, *rest))

    patch.setattr(write, "complete", careless)


def a_driver_clears_away_all_files_but_its_own(patch: pytest.MonkeyPatch) -> None:
    def careless(requested: InstantTime, drivers: int) -> Steps[None]:
        for file in (yield Walk()):
            name = data_file_name(file.path)
            if name is not None and driver_of_token(name.token) != drivers:
                yield Delete(file.path)

    patch.setattr("crdt_mor.events.job.remove_files_of_earlier_drivers", careless)


def what_earlier_drivers_placed_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("crdt_mor.events.job.remove_files_of_earlier_drivers", lambda requested, drivers: nothing())


def nobody_removes_what_a_driver_placed(patch: pytest.MonkeyPatch) -> None:
    for module in ("events.write", "events.rollback", "log.steps", "events.sweep"):
        name = f"crdt_mor.{module}.Delete"
        patch.setattr(name, lambda path: GetStat(path) if data_file_name(path) else Delete(path))


def a_driver_is_told_that_a_commit_is_not_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(f"{__name__}.find_completion", lambda requested, tail: nothing())


@pytest.mark.parametrize(
    ("plant", "rows", "options", "found"),
    [
        (all_drivers_give_a_file_the_same_name, [3, 5], {}, "is not true of it|was removed"),
        slow(a_driver_that_was_overtaken_may_complete, [3, 5], {}, "was removed|for its own"),
        (a_driver_clears_away_all_files_but_its_own, [3, 5, 7], {}, "was removed"),
        (what_earlier_drivers_placed_stays, [3], {"dead": True}, "a file of no commit"),
        (nobody_removes_what_a_driver_placed, [3, 5], {}, "a file of no commit"),
        (a_driver_is_told_that_a_commit_is_not_there, [3, 5], {}, "was told that its commit was rolled back"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(
    plant: Plant, rows: list[int], options: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        Drivers(rows, **options).search(depth_first=True)

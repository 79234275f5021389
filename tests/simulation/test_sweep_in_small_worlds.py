"""A sweep keeps its promises in every interleaving, beside all that may stall: writers, helpers, cleaners, sweepers.

A writer may wake up when its write has been rolled back, swept and forgotten; a helper may project long after. In each
store that can be reached, so whichever process dies and wherever, the promises are:

    - nothing that is committed, pending or planned has lost a file
    - of a write that may still be completed, and of one that died, no log lies about of which Hudi was not told
    - the next process gives up what is pending, sweeps, and then nothing is left but what is committed and planned
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from crdt_mor.events import rollback, sweep
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.steps import Delete, Put, Steps
from crdt_mor.model.instant import InstantTime, from_ms
from crdt_mor.model.names import TimelineFileName, data_file_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Pending
from crdt_mor.planners import sweep as planner
from tests.simulation.actors import (
    PUBLISHER,
    Run,
    all_given_up,
    complete,
    data_path,
    finish,
    writer,
)
from tests.simulation.playing import swept
from tests.simulation.small_store import HUDI, LOG, Violation, barriers_kept, begun_paths, completions_of, decoded
from tests.simulation.worlds import Place, Plant, RecoveringWorld, small_numbers
from tests.tiers import slow

nothing_is_kept = small_numbers(COMPLETIONS_MAX=1)


def wake(value: Timeline, begun: Pending) -> Run:
    """A writer that has seen its write pending, stalls, and stages when everybody has forgotten it."""
    path = data_path(begun.requested)
    yield Put(path, b"rows")
    result = yield from complete(value, begun)
    if result[0] == "expired":
        yield from rollback.give_up(PUBLISHER, value, begun.requested, [path])
    return result


def helper(value: Timeline, begun: Pending) -> Run:
    """Who has published the begin of a write, stalls, and projects it when everybody has forgotten it."""
    yield from PUBLISHER.project(replace(value, version=begun.version))


class Swept(RecoveringWorld):
    """A table with commits, and with writes that have begun, have staged and died, or were given up after that.

    woken, helpers: writes that were given up, swept and forgotten, whose writer or helper goes on all the same.
    """

    def __init__(
        self,
        *,
        commits: int = 0,
        begun: int = 0,
        dead: int = 0,
        given_up: int = 0,
        woken: int = 0,
        helpers: int = 0,
        writers: int = 0,
        others: Sequence[str] = (),
        **options: Any,
    ) -> None:
        place = Place()
        place.commit(commits)
        forgotten = woken + helpers
        place.begin(begun + dead + given_up + forgotten)
        value = place.tail
        going, dying, gone = (list(value.pending[i:j]) for i, j in pairwise([0, begun, begun + dead, None]))
        for n, own in enumerate(gone):
            place.run(PUBLISHER.publish(partial(_roll_back, f"given-up{n}", own.requested)), f"r{n}.")
        if forgotten:
            assert not dying
            assert not given_up
            place.objects = swept(place.objects)
        place.stage([*dying, *gone[:given_up]])
        place.settle()
        roles = [*zip([finish] * begun, going, strict=True), *zip([wake] * woken, gone[helpers:], strict=False)]
        roles += zip([helper] * helpers, gone, strict=False)
        place.add("w", [partial(role, value, own) for role, own in roles])
        place.add("n", [writer] * writers)
        place.live(others, store_now=10)
        self.late_writers = bool(begun or writers or forgotten)
        super().__init__(place.objects, place.actors, **options)

    def check(self, objects: dict[str, Any]) -> None:
        super().check(objects)
        check_begun(objects)
        if not self.late_writers:
            check_told(objects)
        self.check_recovery(objects)

    def recover(self, objects: dict[str, bytes]) -> None:
        check_recovered(recovered(objects))


def _roll_back(nonce: str, requested: InstantTime, tail: Timeline, wall_ms: int) -> Timeline:
    return tail.roll_back(nonce, wall_ms, requested)


def check_begun(objects: dict[str, Any]) -> None:
    """What is pending in a version that was followed stands in Hudi's timeline: a sweep leaves it there."""
    tail = decoded(objects[LOG][-1])
    for pending in tail.pending:
        if pending.version < tail.version:
            for path in begun_paths(pending.requested):
                if path not in objects:
                    raise Violation(f"a pending write is gone from Hudi's timeline: {path}")


def check_told(objects: dict[str, Any]) -> None:
    """Hudi's readers show a log whose instant they do not know, once all that they know is newer.

    Hudi is told that a write was rolled back once nothing is left of it, neither there nor here.
    """
    tail = decoded(objects[LOG][-1])
    known = {c.requested for c in completions_of(tail, objects)}
    undone = {c.undone for c in completions_of(tail, objects)}
    told = {name.requested for path in objects if (name := TimelineFileName.parse(path.rpartition("/")[2]))}
    for path in objects:
        file = data_file_name(path)
        if file is not None and file.instant not in known | told:
            raise Violation(f"Hudi's readers would show a log of a write that was given up: {path}")
        name = TimelineFileName.parse(path.rpartition("/")[2])
        if (file is not None and file.instant in undone) or (name is not None and name.requested in undone):
            raise Violation(f"Hudi was told that a write is rolled back, and something is left of it: {path}")


def recovered(objects: dict[str, bytes]) -> dict[str, Any]:
    """The store once the next process has given up all writers, as they are silent for good, and has swept."""
    return swept(all_given_up(objects))


def check_recovered(objects: dict[str, Any]) -> None:
    """Nothing is left but what is committed and planned."""
    tail = decoded(objects[LOG][-1])
    alive = barriers_kept(tail, objects)
    if tail.pending or tail.rolled_back:
        raise Violation(f"instants are never forgotten: {tail.pending} {tail.rolled_back}")
    for path in objects:
        file = data_file_name(path)
        name = TimelineFileName.parse(path.rpartition("/")[2]) if path.startswith(HUDI) else None
        instant = file.instant if file is not None else name.requested if name is not None else None
        if instant is not None and instant not in alive:
            raise Violation(f"no sweep removes it: {path}")


@pytest.mark.costly
@pytest.mark.parametrize(
    ("options", "states"),
    [
        slow({"begun": 1, "given_up": 1, "others": ["sweeper"]}, 100),
        slow({"dead": 1, "others": ["cleaner", "sweeper"]}, 100),
        ({"commits": 2, "given_up": 1, "others": ["sweeper", "sweeper"]}, 100),
        ({"commits": 1, "woken": 1, "others": ["sweeper"]}, 100),
        ({"helpers": 1, "others": ["sweeper"]}, 10),
    ],
    ids=str,
)
def test_sweeps_beside_whoever_stalls(options: dict[str, Any], states: int) -> None:
    assert Swept(**options).search() > states


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"begun": 1, "others": ["cleaner", "sweeper"]},
        {"commits": 1, "writers": 1, "others": ["sweeper"]},
        {"woken": 1, "helpers": 1, "others": ["sweeper"]},
        {"others": ["planner", "canceller", "sweeper"]},
        {"dead": 1, "others": ["cleaner", "sweeper"], "faults": 1},
    ],
    ids=str,
)
def test_everything(options: dict[str, Any]) -> None:
    assert Swept(**options).search() > 1_000


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def the_clock_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """A sweeper takes the files of a write for rubbish that began after the value it goes by."""
    files = sweep._sweep_files

    def careless(publisher: TablePublisher, known: Timeline, given_up: set[InstantTime]) -> Steps[set[InstantTime]]:
        return (yield from files(publisher, replace(known, clock=from_ms(1 << 40)), given_up))

    patch.setattr(sweep, "_sweep_files", careless)


def timeline_files_go_first(patch: pytest.MonkeyPatch) -> None:
    files = sweep._sweep_files

    def hasty(publisher: TablePublisher, known: Timeline, given_up: set[InstantTime]) -> Steps[set[InstantTime]]:
        for instant in sorted(given_up):
            for path in publisher.projector.pending_paths(instant, "deltacommit"):
                yield Delete(path)
        return (yield from files(publisher, known, given_up))

    patch.setattr(sweep, "_sweep_files", hasty)


def what_a_helper_put_late_is_left(patch: pytest.MonkeyPatch) -> None:
    def careless(publisher: TablePublisher, names: Sequence[TimelineFileName]) -> Steps[bool]:
        return False
        yield

    patch.setattr(sweep, "_is_stale", careless)


def what_a_writer_put_late_is_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(planner, "is_own_token", lambda token: False)


def nothing_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    garbage = sweep._remove_garbage

    def careless(publisher: TablePublisher, known: Timeline) -> Steps[set[InstantTime]]:
        yield from garbage(publisher, known)
        return set()

    patch.setattr(sweep, "_remove_garbage", careless)


def what_was_given_up_is_forgotten_unseen(patch: pytest.MonkeyPatch) -> None:
    def hasty(publisher: TablePublisher, known: Timeline) -> Steps[set[InstantTime]]:
        return {r.requested for r in known.rolled_back}
        yield

    patch.setattr(sweep, "_remove_garbage", hasty)


def a_pending_write_is_not_alive(patch: pytest.MonkeyPatch) -> None:
    files = sweep._sweep_files

    def careless(publisher: TablePublisher, known: Timeline, given_up: set[InstantTime]) -> Steps[set[InstantTime]]:
        return (yield from files(publisher, replace(known, pending=()), given_up))

    patch.setattr(sweep, "_sweep_files", careless)


@pytest.mark.parametrize(
    ("plant", "options", "found"),
    [
        slow(the_clock_is_not_looked_at, {"writers": 1, "others": ["sweeper"]}, "."),
        (timeline_files_go_first, {"given_up": 1, "others": ["sweeper"]}, "would show a log"),
        (what_a_helper_put_late_is_left, {"helpers": 1, "others": ["sweeper"]}, "no sweep removes it"),
        (what_a_writer_put_late_is_left, {"woken": 1, "others": ["sweeper"]}, "no sweep removes it"),
        (nothing_is_forgotten, {"given_up": 1, "others": ["sweeper"]}, "never forgotten"),
        (what_was_given_up_is_forgotten_unseen, {"given_up": 1, "others": ["sweeper"]}, "something is left"),
        (a_pending_write_is_not_alive, {"begun": 1, "given_up": 1, "others": ["sweeper"]}, "."),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(plant: Plant, options: dict[str, Any], found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Swept(**options)
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        world.search(depth_first=True)

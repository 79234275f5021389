"""Archiving keeps its promises in every interleaving, beside all that may stall: archivers, helpers, sweepers, writers.

The table has one file group, whose base files say what they hold. An archiver takes all but the newest commit; a helper
has published an event, stalls, and projects it when its instant may have been archived; a version may go as soon as
there is a newer one. In each store that can be reached, so whichever process dies and wherever, the promises are:

    - Hudi's readers see the rows of what they are told of, whatever has left their active timeline, by the rules that
      they have: an instant older than all names there is committed, and was completed when it was requested
    - each archived instant stands in the history exactly once, or else in the active timeline still
    - nothing of ours is taken for a commit of Hudi's
    - the next process projects and sweeps, and then nothing stands in the active timeline up to the watermark
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import pytest

from crdt_mor.events import archive, sweep
from crdt_mor.format.archive import ArchivedInstant, decode_instants, decode_manifest, encode_instants, manifest_number
from crdt_mor.hudi import adoption
from crdt_mor.hudi import archive as hudi_history
from crdt_mor.hudi.archive import HudiHistory
from crdt_mor.hudi.projection import Projector
from crdt_mor.log import publish
from crdt_mor.log.paths import version_path
from crdt_mor.log.steps import Delete, Steps
from crdt_mor.log.tail import find_tail
from crdt_mor.model.instant import LAST, InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, completed_name
from crdt_mor.planners import archive as archiving
from tests.simulation.actors import PUBLISHER, Run, all_given_up, complete
from tests.simulation.landing import land, looked
from tests.simulation.playing import archiver, logs_hudi_shows, named_in, swept
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
from tests.simulation.worlds import ROLES, Place, Plant, RecoveringWorld, small_numbers
from tests.tiers import slow

HISTORY = PROJECTOR.archive


@lru_cache(maxsize=1_000)
def _encoded(instants: tuple[ArchivedInstant, ...]) -> bytes:
    return encode_instants(instants)


@lru_cache(maxsize=1_000)
def _instants(data: bytes) -> list[ArchivedInstant]:
    return decode_instants(data, "")


nothing_is_kept = small_numbers(COMPLETIONS_MAX=1)


@pytest.fixture(autouse=True)
def instants_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same instants are archived in many states."""
    monkeypatch.setattr(hudi_history, "encode_instants", lambda instants: _encoded(tuple(instants)))


# --- who is there -----------------------------------------------------------------------------------------------------


def helper(value: Timeline, paths: tuple[str, ...]) -> Run:
    """Who has published this version, stalls, and projects it then: puts files at these paths."""
    yield from PUBLISHER.project(value)
    return ("helped", paths)


def looker(value: Timeline) -> Run:
    """Looks for what Hudi's own writers have done."""
    tail = yield from find_tail(value)
    found = yield from adoption.foreign_completions(PROJECTOR, tail)
    return ("foreign", tuple(c.requested for c in found.completions))


def expirer(value: Timeline) -> Run:
    """Deletes the versions before this one, the oldest first."""
    for version in range(value.version):
        yield Delete(version_path(version))


# --- the world --------------------------------------------------------------------------------------------------------


class Archived(RecoveringWorld):
    """A table with a history: commits `c`, compactions `k`, writes that begin `b` and the oldest of which ends `f` or
    is given up `g` with its file left, something that only moves completions to segments `d`, and archiving `a`.

    standing: so many of the versions stand; helped: the positions in the history of events that a helper projects late.
    """

    def __init__(
        self,
        history: str,
        who: Sequence[str] = ("archiver",),
        *,
        standing: int = 1,
        helped: Sequence[int] = (),
        **options: Any,
    ) -> None:
        place = Place()
        values = place.play(history)
        place.settle(standing)
        place.complete_all(complete)
        late = [(values[at], looked(PROJECTOR.files(values[at]), place.objects)) for at in helped]
        place.add("h", [partial(helper, value, tuple(put.path for put in puts)) for value, puts in late])
        place.live(who, {**ROLES, "archiver": archiver, "expirer": expirer, "looker": looker}, letters=2, store_now=10)
        super().__init__(place.objects, place.actors, faulty=is_version, **options)

    def land(self, objects: dict[str, Any], path: str, data: bytes) -> dict[str, Any] | None:
        """The store after a put; what is put of an archived instant is late."""
        after = land(objects, path, data)
        if after is not None and is_archived(path, decoded(objects[LOG][-1]).archive.watermark):
            after[LATE] = tuple(sorted({*after[LATE], path}))
        return after

    def check(self, objects: dict[str, Any]) -> None:
        super().check(unarchived(objects))
        check_history(objects)
        check_adoption(objects)
        if not any(is_archived(path, decoded(objects[LOG][-1]).archive.watermark) for path in objects[LATE]):
            check_hudi(objects)
        self.check_recovery(objects)

    def recover(self, objects: dict[str, bytes]) -> None:
        check_recovered(recovered(objects))

    def check_result(self, result: Any, objects: dict[str, Any]) -> None:
        tail = decoded(objects[LOG][-1])
        match result:
            case ("archived", watermark):
                if watermark > tail.archive.watermark:
                    raise Violation(f"an acknowledged archiving was lost: {watermark}")
            case ("helped", paths):
                stale = [path for path in objects[LATE] if path in paths and is_archived(path, tail.archive.watermark)]
                if stale:
                    raise Violation(f"a helper has left files of an archived instant: {stale}")
            case ("foreign", (_, *_)):
                raise Violation(f"commits of ours were taken for Hudi's: {result}")
            case _:
                super().check_result(result, unarchived(objects))


def is_archived(path: str, watermark: InstantTime) -> bool:
    """Whether a path is in Hudi's active timeline, of an instant up to the watermark."""
    name = named_in(path)
    return name is not None and name.requested <= watermark


def paths_of(completion: Completion) -> list[str]:
    """All files of a completion in Hudi's active timeline."""
    action = "compaction" if completion.action == "commit" else completion.action
    return [*PROJECTOR.pending_paths(completion.requested, action), completed_path(completion)]


def unarchived(objects: dict[str, Any]) -> dict[str, Any]:
    """The store as it were if nothing had left Hudi's active timeline: what is asked of other worlds holds of it."""
    tail = decoded(objects[LOG][-1])
    found = {path: data for path, data in objects.items() if not path.startswith(HISTORY)}
    for completion in completions_of(tail, objects):
        if completion.requested <= tail.archive.watermark:
            found = dict.fromkeys(paths_of(completion), b"") | found
    return found


def check_history(objects: dict[str, Any]) -> None:
    """Each archived instant stands in the history once, in the files of the newest manifest; or it has not left yet."""
    tail = decoded(objects[LOG][-1])
    archived = {completed_name(c) for c in completions_of(tail, objects) if c.requested <= tail.archive.watermark}
    numbers = [number for path in objects if (number := manifest_number(path.rpartition("/")[2])) is not None]
    newest = max(numbers, default=0)
    listed = decode_manifest(objects[f"{HISTORY}/manifest_{newest}"], "") if numbers else ()
    if missing := [name for name in listed if f"{HISTORY}/{name}" not in objects]:
        raise Violation(f"the newest manifest names files that are not there: {missing}")
    told = [instant.name for name in listed for instant in _instants(objects[f"{HISTORY}/{name}"])]
    if len(told) != len(set(told)) or not set(told) <= archived:
        raise Violation(f"the history has what is not archived, or has it twice: {told}")
    if newest > tail.archive.manifest or (newest == tail.archive.manifest and set(told) != archived):
        raise Violation(f"the history is not that of the value: {told} {archived}")
    for name in archived:
        if name not in told and PROJECTOR.path(name) not in objects:
            raise Violation(f"an instant is in neither of Hudi's timelines: {name}")


def check_hudi(objects: dict[str, Any]) -> None:
    """Hudi's readers see the rows of all commits that they are told of, and no others."""
    names = [name for path in objects if (name := named_in(path)) is not None]
    completed = {name.requested: name.completed for name in names if name.state == "completed"}
    for name in names:
        if name.state == "requested" and name.requested not in completed:
            watermark = decoded(objects[LOG][-1]).archive.watermark
            if name.requested <= watermark:
                raise Violation(f"to Hudi's readers an archived instant is pending: {name}")
    tail = decoded(objects[LOG][-1])
    told = {c.requested for c in completions_of(tail, objects) if c.requested <= tail.archive.watermark}
    due = [c for c in completions_of(tail, objects) if c.requested in told or c.requested in completed]
    expected = sorted(file.path for c in due for file in c.files if not file.is_base)
    if (seen := logs_hudi_shows(objects)) != expected:
        raise Violation(f"Hudi's readers see {seen}, but {expected} is committed")


def check_adoption(objects: dict[str, Any]) -> None:
    """Nobody who looks now takes something of ours for Hudi's."""
    found = looked(adoption.foreign_completions(PROJECTOR, decoded(objects[LOG][-1])), objects)
    if found.completions:
        raise Violation(f"commits of ours would be taken for Hudi's: {found.completions}")


def recovered(objects: dict[str, bytes]) -> dict[str, Any]:
    """The store once the next process has given up all writers, and has swept twice."""
    return swept(all_given_up(objects))


def check_recovered(objects: dict[str, Any]) -> None:
    """Nothing is left in Hudi's active timeline of what was archived, and its history is whole."""
    tail = decoded(objects[LOG][-1])
    if stale := [path for path in objects if is_archived(path, tail.archive.watermark)]:
        raise Violation(f"no sweep removes it: {stale}")
    if tail.archive.manifest and f"{HISTORY}/manifest_{tail.archive.manifest}" not in objects:
        raise Violation("nobody has written the history")
    check_history(objects)
    check_hudi(objects)


LATE_HELP = {"standing": 9, "deletions": False}
"""Nearly all versions stand at first, and an expirer deletes them."""


@pytest.mark.costly
@pytest.mark.parametrize(
    ("history", "who", "options", "archived"),
    [
        ("ckcd", ["archiver", "looker"], {}, 2),
        slow("ckcd", ["archiver"], {"faults": 1}, 2),
        ("bckfkcd", ["archiver"], {}, 4),
        ("bckcd", ["archiver"], {}, 0),
        ("bcgkcd", ["archiver", "sweeper"], {"deletions": False}, 0),
        ("ckcd", ["archiver", "expirer"], {"helped": [0], **LATE_HELP}, 2),
        ("bfkcd", ["archiver", "expirer"], {"helped": [0], **LATE_HELP}, 2),
        ("ckcdakcd", ["archiver"], {}, 4),
        ("ckcdad", ["sweeper"], {"helped": [0]}, 2),
        slow("ckcd", ["archiver", "sweeper"], {"deletions": False}, 2),
    ],
    ids=str,
)
def test_an_archiver_beside_whoever_stalls(
    history: str, who: Sequence[str], options: dict[str, Any], archived: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "FILES_OF_A_LEVEL", 2)
    world = Archived(history, who, **options)
    world.search()
    assert max(decoded(log[-1]).archive.count for log in world.logs) == archived


@pytest.mark.slow
@pytest.mark.parametrize(
    ("history", "who", "options"),
    [
        ("ckcd", ["archiver", "archiver"], {"deletions": False}),
        ("ckcd", ["archiver", "writer"], {"deletions": False}),
        ("ckcdakcd", ["archiver", "archiver"], {"deletions": False}),
        ("ckcd", ["archiver", "archiver", "looker"], {"deletions": False}),
        ("ckcd", ["archiver", "sweeper", "expirer"], {"helped": [0], **LATE_HELP}),
        ("ckcd", ["archiver", "sweeper"], {"deletions": False, "faults": 1}),
    ],
    ids=str,
)
def test_everything(history: str, who: Sequence[str], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "FILES_OF_A_LEVEL", 2)
    assert Archived(history, who, **options).search() > 500


# --- planted bugs: every rule is needed -------------------------------------------------------------------------------


def limits_are(patch: pytest.MonkeyPatch, **limits: Any) -> None:
    """Some of the conditions hold nothing, and no invariant of the timeline is asked."""
    of = archiving._Limits.of
    patch.setattr(archiving._Limits, "of", lambda *about: replace(of(*about), **limits))
    patch.setattr(publish, "require_invariants", lambda previous, following: None)


def what_has_not_ended_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    limits_are(patch, unfinished=LAST, unknown=LAST)


def a_log_is_archived_that_no_base_file_has(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(archiving, "_groups_of_logs", lambda completion: set())


def what_was_given_up_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    limits_are(patch, given_up=LAST, unknown=LAST)


def versions_that_stand_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    limits_are(patch, oldest_version=1 << 60)


def a_helper_that_comes_late_does_not_look_again(patch: pytest.MonkeyPatch) -> None:
    def careless(self: Projector, tail: Timeline, placed: Sequence[str]) -> Steps[None]:
        return
        yield

    patch.setattr(Projector, "withdraw_archived", careless)


def the_files_go_before_the_event(patch: pytest.MonkeyPatch) -> None:
    prefix_of = archive.prefix_of

    def hasty(projector: Projector, tail: Timeline, keep: int) -> Steps[archiving.Prefix]:
        found = yield from prefix_of(projector, tail, keep)
        yield from projector.history.remove({c.requested for c in found.completions})
        return found

    patch.setattr(archive, "prefix_of", hasty)


def the_files_go_before_the_history_is_written(patch: pytest.MonkeyPatch) -> None:
    write = HudiHistory._write

    def hasty(self: HudiHistory, value: Timeline, moved: Sequence[Completion]) -> Steps[None]:
        yield from self.remove({moved[0].requested})
        yield from write(self, value, moved)

    patch.setattr(HudiHistory, "_write", hasty)


def a_sweep_does_not_help_who_archived(patch: pytest.MonkeyPatch) -> None:
    archived = sweep._sweep_archived

    def hasty(publisher: Any, known: Timeline, named: Any, completions: Sequence[Completion]) -> Steps[None]:
        alone = replace(known, archive=replace(known.archive, version=0))
        yield from archived(publisher, alone, named, completions)

    patch.setattr(sweep, "_sweep_archived", hasty)


def a_sweep_leaves_what_was_archived(patch: pytest.MonkeyPatch) -> None:
    def careless(*about: Any) -> Steps[None]:
        return
        yield

    patch.setattr(sweep, "_sweep_archived", careless)


def completed_files_go_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hudi_history, "when_removed", lambda name: (name.state != "completed", name.requested))


def what_is_merged_goes_before_a_manifest_says_so(patch: pytest.MonkeyPatch) -> None:
    merge = HudiHistory._merge

    def hasty(self: HudiHistory, merged: str, inputs: Iterable[str]) -> Steps[None]:
        names = list(inputs)
        yield from merge(self, merged, names)
        for name in names:
            yield Delete(f"{self.folder}/{name}")

    patch.setattr(HudiHistory, "_merge", hasty)


@pytest.mark.parametrize(
    ("plant", "history", "who", "options", "found"),
    [
        (what_has_not_ended_is_passed_over, "bckcd", ["archiver"], {}, "is pending"),
        (a_log_is_archived_that_no_base_file_has, "bckfcd", ["archiver"], {}, "Hudi's readers see"),
        (what_was_given_up_is_passed_over, "bcgkcd", ["archiver"], {}, "is pending"),
        (
            versions_that_stand_do_not_matter,
            "ckcd",
            ["archiver", "expirer"],
            {"helped": [0], **LATE_HELP},
            "a helper has left",
        ),
        (
            a_helper_that_comes_late_does_not_look_again,
            "ckcd",
            ["archiver", "expirer"],
            {"helped": [0], **LATE_HELP},
            "a helper has left",
        ),
        (the_files_go_before_the_event, "ckcd", ["archiver"], {}, "Hudi never saw|a hole"),
        (the_files_go_before_the_history_is_written, "ckcd", ["archiver"], {}, "neither of Hudi's|not that of"),
        (a_sweep_does_not_help_who_archived, "ckcd", ["archiver"], {}, "neither of Hudi's timelines|not that of"),
        (a_sweep_leaves_what_was_archived, "ckcdad", [], {"helped": [0]}, "no sweep removes it"),
        (completed_files_go_first, "ckcd", ["archiver"], {}, "is pending"),
        (what_is_merged_goes_before_a_manifest_says_so, "ckcdakcd", ["archiver"], {}, "names files that are not there"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_search_finds(
    plant: Plant,
    history: str,
    who: Sequence[str],
    options: dict[str, Any],
    found: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archiving, "FILES_OF_A_LEVEL", 2)
    world = Archived(history, who, **options)
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        world.search(depth_first=True)

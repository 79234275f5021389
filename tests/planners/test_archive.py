"""Which instants may leave Hudi's active timeline: each condition holds an instant, and everything that follows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from crdt_mor.model.instant import InstantTime, from_ms
from crdt_mor.model.names import COMMIT, DELTA_COMMIT, BaseFileName, LogFileName, TimelineFileName, bucket_file_id
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Archive, Completion, DataFile, OpenPlan, Pending, RolledBack, completed_name
from crdt_mor.planners import archive
from crdt_mor.planners.archive import archivable, data_file_name, files_with, level_of, span_of

GROUP = bucket_file_id(0)


def at(ms: int) -> InstantTime:
    return from_ms(1_700_000_000_000 + ms)


def log(instant: int, bucket: int = 0) -> DataFile:
    return DataFile(f"eu/{LogFileName(bucket_file_id(bucket), at(instant))}", 1, 1)


def base(instant: int, bucket: int = 0) -> DataFile:
    return DataFile(f"eu/{BaseFileName(bucket_file_id(bucket), '0-0-0', at(instant))}", 1, 1)


def write(requested: int, completed: int, *files: DataFile) -> Completion:
    return Completion(at(requested), at(completed), 1, "", DELTA_COMMIT, "UPSERT", files or (log(requested),))


def compaction(barrier: int, completed: int, *files: DataFile) -> Completion:
    return Completion(at(barrier), at(completed), 1, "", COMMIT, "COMPACT", files or (base(barrier), log(barrier)))


VALUE = Timeline(500, "n", at(1000), "[]")
HISTORY = (write(0, 2), write(4, 6), compaction(7, 10), write(12, 14))


def allowed(
    value: Timeline = VALUE,
    completions: Iterable[Completion] = HISTORY,
    others: Iterable[TimelineFileName] = (),
    oldest: int = 400,
    keep: int | None = None,
) -> tuple[list[InstantTime], str]:
    """The requested times of what may go, in ms, and what holds the next one."""
    completions = list(completions)
    newest, keep = ([write(900, 902)], 1) if keep is None else ([], keep)
    found = archivable(value, [*completions, *newest], [*map(completed_name, completions), *others], oldest, keep)
    return [c.requested for c in found.completions], found.held_by


def times(*requested: int) -> list[InstantTime]:
    return [at(ms) for ms in requested]


def test_a_prefix_goes_whose_logs_are_compacted() -> None:
    going, held_by = allowed()
    assert going == times(0, 4, 7)
    assert held_by == f"a file group was not compacted since {at(14)}: eu {GROUP}"


def test_the_newest_instants_stay_and_what_is_archived_is_not_looked_at() -> None:
    assert allowed(keep=3) == (times(0), "the newest 3 commits stay in the active timeline")
    assert allowed(keep=9)[0] == []
    assert allowed(replace(VALUE, archive=Archive(at(4), at(0), 3, 2, 1)))[0] == times(7)


def test_that_no_commit_stays_cannot_be_asked_for() -> None:
    """It meant that every commit stays, as the last none of a list are all of it."""
    with pytest.raises(AssertionError, match="a directory without commits"):
        allowed(keep=0)


def test_what_is_no_commit_does_not_count_as_the_newest() -> None:
    """Hudi's readers look for the schema of the newest commit, and see no rows where there is none."""
    rollback = Completion(at(30), at(32), 1, "", "rollback", "ROLLBACK")
    assert allowed(completions=(compaction(7, 10), rollback), keep=1)[0] == []
    assert allowed(completions=(compaction(7, 10), rollback, compaction(41, 44)), keep=1)[0] == times(7, 30)


@pytest.mark.parametrize(
    ("value", "going", "why"),
    [
        (replace(VALUE, pending=(Pending(at(8), "w", 5),)), [0, 4], "requested at "),
        (replace(VALUE, plans=(OpenPlan(at(9), "p", 5, "plan"),)), [0, 4], "is unfinished"),
        (replace(VALUE, pending=(Pending(at(5), "w", 5),)), [0], "is unfinished"),
        (replace(VALUE, rolled_back=(RolledBack(at(5), "w", 5),)), [0, 4], "not swept yet"),
        (replace(VALUE, rolled_back=(RolledBack(at(3), "w", 5),)), [0], "not swept yet"),
        (replace(VALUE, completions=(HISTORY[1],)), [0], "newest completions"),
    ],
)
def test_what_has_not_ended_in_the_value_holds(value: Timeline, going: list[int], why: str) -> None:
    found, held_by = allowed(value)
    assert found == times(*going)
    assert why in held_by


def test_a_write_that_ended_after_a_pending_one_began_stays() -> None:
    """It was requested before, and was completed after: condition (a) asks for its completion."""
    value = replace(VALUE, pending=(Pending(at(8), "w", 5),))
    assert allowed(value, (write(0, 9), compaction(11, 12)))[0] == []


def test_a_log_that_was_fast_forwarded_waits_for_the_next_compaction() -> None:
    overtaken = (write(0, 20), compaction(7, 10))
    assert allowed(completions=overtaken)[0] == []
    assert allowed(completions=(*overtaken, compaction(21, 24)))[0] == times(0, 7, 21)


def test_bases_and_carries_need_no_later_compaction_and_growth_has_no_files() -> None:
    grown = Completion(at(30), at(32), 1, "", DELTA_COMMIT, "ALTER_SCHEMA")
    assert allowed(completions=(compaction(7, 10), grown))[0] == times(7, 30)


def test_every_file_group_of_a_write_has_to_be_compacted() -> None:
    wide = write(0, 2, log(0, 0), log(0, 1))
    assert allowed(completions=(wide, compaction(7, 10)))[0] == []
    assert allowed(completions=(wide, compaction(7, 10), compaction(13, 14, base(13, 1))))[0] == times(0, 7, 13)


def test_nothing_goes_whose_version_still_stands() -> None:
    newer = replace(HISTORY[1], version=400)
    assert allowed(completions=(HISTORY[0], newer, *HISTORY[2:]))[0] == times(0)
    assert allowed(oldest=1)[0] == []


@pytest.mark.parametrize(
    "name",
    [
        TimelineFileName(at(4), "savepoint", "completed", at(90)),
        TimelineFileName(at(3), DELTA_COMMIT, "inflight"),
        TimelineFileName(at(3), DELTA_COMMIT, "completed", at(5)),
    ],
)
def test_what_only_the_directory_knows_holds(name: TimelineFileName) -> None:
    assert allowed(others=[name])[0] == times(0)


def test_a_savepoint_holds_no_instant_before_it() -> None:
    assert allowed(others=[TimelineFileName(at(7), "savepoint", "inflight")])[0] == times(0, 4)


def test_replaced_file_groups_hold_and_so_does_a_missing_completed_file() -> None:
    replaced = replace(HISTORY[1], replaced=(("eu", GROUP),))
    assert allowed(completions=(HISTORY[0], replaced, *HISTORY[2:]))[0] == times(0)
    assert archivable(VALUE, HISTORY, [], 400, 1).completions == ()


def test_one_event_takes_so_many_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "INSTANTS_MAX", 2)
    assert allowed() == (times(0, 4), "one event archives at most 2")


def test_ten_files_of_a_level_become_one_of_the_next() -> None:
    files: tuple[str, ...] = ()
    seen = []
    for number in range(1200):
        files = files_with(files, data_file_name(at(2 * number), at(2 * number), 0))
        seen.append(len(files))
        spans = [span_of(name) for name in files]
        assert spans == sorted(spans)
        assert (spans[0][0], spans[-1][1]) == (at(0), at(2 * number))
    assert seen[:21] == [*range(1, 10), 1, *range(2, 11), 2, 3]
    assert [level_of(name) for name in files] == [2] * 12

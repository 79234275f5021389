"""What a clean removes is in no view that is still to be had, in any history; and a bug in any clause is found."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from crdt_mor.errors import FormatError, InvalidInputError
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import EPOCH, InstantTime, from_ms, to_ms
from crdt_mor.model.migration import Moving
from crdt_mor.model.names import BaseFileName, LogFileName, bucket_file_id
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup, Pending, Retention
from crdt_mor.planners import clean
from crdt_mor.planners.clean import CleanPlan, RetentionPolicy, moved_marks, needless_files, plan_cleaning
from crdt_mor.planners.migration import moving_to
from tests.tiers import slow

GROUPS = [("", bucket_file_id(number)) for number in range(2)]
WALL = 1_700_000_000_000


@dataclass
class History:
    """A table's value, all that was ever completed, and what the open plans read."""

    chance: random.Random
    value: Timeline = field(default_factory=lambda: Timeline.genesis("[]", "table"))
    inputs: dict[InstantTime, tuple[FileGroup, set[str], bool]] = field(default_factory=dict)
    events: int = 0

    def step(self) -> None:
        """One event that may come next."""
        moves: list[Callable[[], None]] = [self._begin, self._compact]
        moves += [self._end] * 3 if self.value.pending else []
        moves += [self._execute] * 2 if self.inputs else []
        moves += [self._compact_by_hudi] if self.inputs and self.chance.random() < 0.5 else []
        self.events += 1
        self.chance.choice(moves)()

    def _wall(self) -> int:
        return WALL + self.events * 10

    def _begin(self) -> None:
        self.value = self.value.begin(f"n{self.events}", self._wall())

    def _end(self) -> None:
        pending = self.chance.choice(self.value.pending)
        groups = self.chance.sample(GROUPS, self.chance.choice([0, 1, 1, 2]))
        files = [DataFile(str(LogFileName(group[1], pending.requested)), 1, 1) for group in groups]
        if self.chance.random() < 0.1:
            self.value = self.value.roll_back(f"n{self.events}", self._wall(), pending.requested)
        elif self.chance.random() < 0.05:
            self._replace(pending)
        else:
            self.value = self.value.complete(f"n{self.events}", self._wall(), pending.requested, "UPSERT", files)

    def _replace(self, pending: Pending) -> None:
        """A commit of Hudi's takes a file group away for good."""
        group = self.chance.choice(GROUPS)
        if any(group == taken for taken, _, _ in self.inputs.values()):
            return
        self.value = self.value.complete(f"n{self.events}", self._wall(), pending.requested, "CLUSTER", [])
        *others, last = self.value.completions
        self.value = replace(self.value, completions=(*others, replace(last, replaced=(group,))))

    def _compact(self) -> None:
        taken = {group for group, _, _ in self.inputs.values()}
        slices = [found for found in fold_slices(self.value.completions) if found.logs and found.group not in taken]
        if slices:
            chosen = self.chance.choice(slices)
            carries = bool(self.value.pending) and self.chance.random() < 0.7
            self.inputs[self.value.next_barrier] = chosen.group, {file.path for file in chosen.files}, carries
            self.value = self.value.schedule(f"n{self.events}", self._wall(), "compaction", "path")

    def _compact_by_hudi(self) -> None:
        """Hudi compacts a file group that is in an open plan of ours: it does not know of it."""
        _, file_id = self.chance.choice([group for group, _, _ in self.inputs.values()])
        barrier = self.value.next_barrier
        self.value = self.value.schedule(f"n{self.events}", self._wall(), "compaction", "path")
        files = [DataFile(str(BaseFileName(file_id, "0-0-0", barrier)), 1, 1)]
        self.value = self.value.complete_plan(f"h{self.events}", self._wall(), barrier, "commit", "COMPACT", files)

    def _execute(self) -> None:
        barrier = self.chance.choice(list(self.inputs))
        (_, file_id), _, carries = self.inputs.pop(barrier)
        files = [DataFile(str(BaseFileName(file_id, "0-0-0", barrier)), 1, 1)]
        files += [DataFile(str(LogFileName(file_id, barrier)), 1, 1)] if carries else []
        self.value = self.value.complete_plan(f"n{self.events}", self._wall(), barrier, "commit", "COMPACT", files)


def shown(completions: tuple[Completion, ...], cut: Cut) -> set[str]:
    return {file.path for found in fold_slices(c for c in completions if cut.shows(c)) for file in found.files}


def times(value: Timeline) -> list[InstantTime]:
    return sorted({c.completed for c in value.completions} | {c.requested for c in value.completions} | {value.clock})


def needed(before: Timeline, inputs: set[str], mark: InstantTime, after: Timeline) -> Iterator[tuple[str, set[str]]]:
    """What is needed of a table: `before` is its value at the clean, `after` any later one."""
    completions = after.completions
    for time in times(after):
        if time >= mark:
            yield f"as of {time}", shown(completions, Cut("completed", time))
            yield f"stable at {time}", shown(completions, Cut("requested", time))
    yield "now", {file.path for found in fold_slices(completions) for file in found.files}
    yield "inputs of open plans", inputs
    for pending in before.pending:
        yield f"the transaction {pending.requested}", shown(completions, Cut("completed", pending.requested))
        yield f"stable before {pending.requested}", shown(completions, Cut("requested", pending.requested))
    if before.pending:
        oldest = min(pending.requested for pending in before.pending)
        commits = [c for c in completions if c.action == "deltacommit" and c.requested >= oldest]
        yield f"stable changes since {oldest}", {file.path for c in commits for file in c.files}


def check(seed: int) -> int:
    """One random history, a clean in the middle of it, and what comes after. Returns how many files went."""
    history = History(random.Random(seed))
    for _ in range(history.chance.randrange(5, 40)):
        history.step()
    before = history.value
    mark = history.chance.choice([before.clock, history.chance.choice(times(before))])
    inputs = {path for _, paths, _ in history.inputs.values() for path in paths}
    going = {file.path for file in needless_files(before, before.completions, mark)}
    assert going <= {file.path for c in before.completions for file in c.files}
    for later in range(12):
        for what, paths in needed(before, inputs, mark, history.value):
            lost = paths & going
            assert not lost, f"seed={seed} later={later} mark={mark} {what}: {sorted(lost)}"
        history.step()
    return len(going)


SEEDS = range(250)


@pytest.mark.slow
def test_what_goes_is_in_no_view_that_is_still_to_be_had() -> None:
    assert sum(check(seed) for seed in SEEDS) > 400


def no_view_of_pending_writes(patch: pytest.MonkeyPatch) -> None:
    views = clean._earlier_views
    patch.setattr(clean, "_earlier_views", lambda value: views(replace(value, pending=())))


def no_view_of_open_plans(patch: pytest.MonkeyPatch) -> None:
    views = clean._earlier_views
    patch.setattr(clean, "_earlier_views", lambda value: views(replace(value, plans=())))


def only_completed_views(patch: pytest.MonkeyPatch) -> None:
    views = clean._earlier_views
    patch.setattr(clean, "_earlier_views", lambda value: [cut for cut in views(value) if cut.by == "completed"])


def only_stable_views(patch: pytest.MonkeyPatch) -> None:
    views = clean._earlier_views

    def without(value: Timeline) -> list[Cut]:
        writes = {p.requested for p in value.pending}
        return [cut for cut in views(value) if cut.by == "requested" or cut.time not in writes]

    patch.setattr(clean, "_earlier_views", without)


def no_stable_changes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clean, "_written_since", lambda files, requested: [])


def the_latest_base_instead_of_the_marks(patch: pytest.MonkeyPatch) -> None:
    beyond = clean._obsolete
    patch.setattr(clean, "_obsolete", lambda files, ends, mark: beyond(files, ends, InstantTime("9" * 17)))


def logs_by_the_time_they_began(patch: pytest.MonkeyPatch) -> None:
    def beyond(files: Any, ends: Any, mark: InstantTime) -> list[DataFile]:
        barrier = max((f.name.instant for f, c in files if f.is_base and c.completed <= mark), default=EPOCH)
        return [f for f, _ in files if f.name.instant < barrier]

    patch.setattr(clean, "_obsolete", beyond)


def bases_by_the_time_they_were_planned(patch: pytest.MonkeyPatch) -> None:
    def beyond(files: Any, ends: Any, mark: InstantTime) -> list[DataFile]:
        barrier = max((f.name.instant for f, c in files if f.is_base and c.requested <= mark), default=EPOCH)
        return [f for f, c in files if (f.name.instant if f.is_base else c.completed) < barrier]

    patch.setattr(clean, "_obsolete", beyond)


def replaced_as_of_any_time(patch: pytest.MonkeyPatch) -> None:
    beyond = clean._obsolete

    def too_early(files: Any, ends: Any, mark: InstantTime) -> list[DataFile]:
        return [f for f, _ in files] if ends else beyond(files, ends, mark)

    patch.setattr(clean, "_obsolete", too_early)


@pytest.mark.parametrize(
    "bug",
    [
        no_view_of_pending_writes,
        slow(no_view_of_open_plans),
        slow(only_completed_views),
        slow(only_stable_views),
        slow(no_stable_changes),
        the_latest_base_instead_of_the_marks,
        slow(logs_by_the_time_they_began),
        slow(bases_by_the_time_they_were_planned),
        replaced_as_of_any_time,
    ],
    ids=lambda bug: bug.__name__,
)
def test_a_bug_in_a_clause_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError, match="seed="):
        any(check(seed) < 0 for seed in SEEDS)


def test_nothing_else_stays() -> None:
    """Where nothing is open and no history is kept, the latest slices are all that stays."""
    for seed in range(100):
        history = History(random.Random(seed))
        for _ in range(30):
            history.step()
        value = replace(history.value, pending=(), plans=())
        going = {file.path for file in needless_files(value, value.completions, value.clock)}
        every = {file.path for c in value.completions for file in c.files}
        assert every - going == {file.path for found in fold_slices(value.completions) for file in found.files}


# --- marks ------------------------------------------------------------------------------------------------------------


def table(commits: int = 4) -> Timeline:
    """A value with so many commits, a minute apart, of which the last lies at `WALL`."""
    value = Timeline.genesis("[]", "table")
    for number in range(commits):
        wall = WALL - (commits - 1 - number) * 60_000
        value = value.begin(f"b{number}", wall)
        file = DataFile(str(LogFileName(GROUPS[0][1], value.clock)), 1, 1)
        value = value.complete(f"c{number}", wall, value.clock, "UPSERT", [file])
    return value


def test_marks_follow_from_time_and_from_commits() -> None:
    value = table()
    completed = [c.completed for c in value.completions]

    def mark(keep_ms: int | None = None, commits: int | None = None, ago_ms: int = 0) -> InstantTime:
        return RetentionPolicy(keep_ms, commits).mark(value, value.completions, WALL, ago_ms)

    assert mark(0) == value.clock, "the table's clock, which is a little ahead of the store's"
    assert mark(60_000) == from_ms(to_ms(value.clock) - 60_000)
    assert [mark(commits=count) for count in (1, 2, 4, 5)] == [completed[3], completed[2], completed[0], EPOCH]
    assert mark(60_000, 1) == mark(60_000)
    assert mark(0, 3) == completed[1]
    assert mark(commits=1, ago_ms=90_000) == completed[1], "what it would have been then"
    ahead = replace(value, clock=from_ms(WALL + 3_600_000))
    assert RetentionPolicy(0).mark(ahead, value.completions, WALL) == from_ms(WALL + clean.CLOCKS_APART_MAX_MS)


def test_marks_never_go_back_nor_past_a_pending_write() -> None:
    value = table().begin("p", WALL)
    pending = value.pending[0].requested
    value = value.begin("q", WALL + 10).roll_back("r", WALL + 20, value.pending[0].requested).begin("s", WALL + 30)
    oldest = min(p.requested for p in value.pending)
    assert oldest > pending
    kept = moved_marks(value, value.clock)
    assert (kept.since, kept.stable_since) == (value.clock, oldest)
    later = replace(value, retention=kept)
    assert moved_marks(later, EPOCH) == kept
    assert moved_marks(later, InstantTime("9" * 17)).since == value.clock


def test_what_a_migration_follows_is_kept_with_its_files_and_its_commits() -> None:
    followed = 0
    for seed in range(60):
        history = History(random.Random(seed))
        for _ in range(history.chance.randrange(5, 20)):
            history.step()
        history.value = moving_to(history.value, "m", history._wall(), Moving("there", "t2"))
        announced = history.value.clock
        for _ in range(history.chance.randrange(20)):
            history.step()
        value = history.value
        there = {file.path for c in value.completions for file in c.files}
        marks = {GROUPS[0]: value.clock}  # as an erasure asks for that has begun before
        found = plan_cleaning(value, value.completions, RetentionPolicy(0), WALL * 2, there, groups=marks)
        assert max(found.retention.since, found.deletion, *map(found.retention.since_of, GROUPS)) <= announced
        going = {file.path for file in found.files}
        for time in (time for time in times(value) if time >= announced):
            lost = shown(value.completions, Cut("completed", time)) & going
            assert not lost, f"{seed=} {time=} {sorted(lost)}"
        unmoved = plan_cleaning(replace(value, moving=None), value.completions, RetentionPolicy(0), WALL * 2, there)
        followed += len(unmoved.files) - len(going)
    assert followed > 50, "what would go if there were no migration"


def test_marks_of_file_groups_are_kept_as_long_as_they_are_later() -> None:
    value = table()
    first, last = value.completions[0].completed, value.clock
    kept = moved_marks(value, first, {GROUPS[0]: last, GROUPS[1]: EPOCH})
    assert kept.groups == ((GROUPS[0], last),)
    assert kept.since_of(GROUPS[0]) == last
    assert kept.since_of(GROUPS[1]) == first
    assert moved_marks(replace(value, retention=kept), first, {GROUPS[0]: first}) == kept
    assert moved_marks(replace(value, retention=kept), last).groups == ()


def test_what_a_savepoint_names_is_spared() -> None:
    history = History(random.Random(3))
    for _ in range(60):
        history.step()
    value = replace(history.value, pending=(), plans=())
    there = {file.path for c in value.completions for file in c.files}
    policy = RetentionPolicy(0)
    every = plan_cleaning(value, value.completions, policy, WALL * 2, there)
    assert len(every.files) > 2
    saved = every.files[0].path
    spared = plan_cleaning(value, value.completions, policy, WALL * 2, there, {saved})
    assert (spared.files, spared.spared) == (every.files[1:], 1)
    assert plan_cleaning(value, value.completions, policy, WALL * 2, there - {saved}).files == every.files[1:]


# --- plans ------------------------------------------------------------------------------------------------------------

FILES = tuple(DataFile(f"day=mon/{LogFileName(GROUPS[0][1], from_ms(WALL + n))}", 1, 2, 3) for n in range(5))
MARKS = Retention(from_ms(WALL), EPOCH, ((GROUPS[0], from_ms(WALL)),))
PLAN = CleanPlan(from_ms(WALL + 1), MARKS, FILES, from_ms(WALL + 2), from_ms(WALL))
OTHER = [b"", b"[]", b"{}", PLAN.encode().replace(b'"format":1', b'"format":2'), b'{"format":1}']


def test_a_plan_is_what_its_bytes_say() -> None:
    assert CleanPlan.decode(PLAN.encode(), "path") == PLAN
    assert PLAN.parts() == [PLAN]
    PLAN.require_outputs([])
    with pytest.raises(InvalidInputError, match="adds no files"):
        PLAN.require_outputs(FILES)


@pytest.mark.parametrize("data", OTHER)
def test_other_bytes_are_named(data: bytes) -> None:
    with pytest.raises(FormatError, match="file=path"):
        CleanPlan.decode(data, "path")

"""Which history is kept, and which files no view of it needs: what a clean decides, as pure functions.

    ───────R──────────────────now     R   the mark: views as of R, and of any later time, are exact for ever
      base B ══log══log══base══log    B   of each file group, the newest base file completed by R: what R shows

A view as of R or later shows, of each file group, a base file that is B or newer, and logs that completed after the
barrier of that base. So a base file older than B, and a log that completed before the barrier of B, is in no such view.
Some views of earlier times are still needed, and the files that they show stay as well:

    a pending write p    its transaction reads what was completed by p; a stable view ends before p for as long as p is
                         pending, and goes on from there afterwards, with the logs of all commits requested since
    an open plan         its executors read what was completed by its barrier
    a savepoint          shows what was completed by its moment; one that Hudi made names its files itself
    a reader             that began a moment ago may look at what the mark let it look at then

The marks move in the event that schedules a clean, and never back. So a file that may go by the value in which they
have moved may go by every later value, and it does not matter when it is deleted, nor by how many processes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from crdt_mor.errors import FormatError, InvalidInputError
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import EPOCH, LAST, InstantTime, from_ms, to_ms
from crdt_mor.model.names import CLEAN, LOG_COMPACT, join_path
from crdt_mor.model.policies import Policies
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import WRONG_SHAPE, require_types, retention_json, retention_of
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup, Retention

PLAN_FORMAT: Final = 1
"""Version of the JSON of a clean's plan."""

CLOCKS_APART_MAX_MS: Final = 60_000
"""How far the table's clock may be ahead of the store's and is still taken for the time that it is."""

PART_FILES: Final = 1000
"""How many files a part of a clean's plan names."""

_REORGANISE: Final = frozenset({"COMPACT", LOG_COMPACT, "CLUSTER", "INDEX"})
"""Operations that move rows about and change none."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How much history a table keeps. Where both are given, whatever either of the two needs is kept.

    keep_ms: views of the last so many milliseconds. commits: views as of each of the last so many commits.
    readers_ms: for how long a reader is spared that began when it could still look at what the mark excludes now.
    """

    keep_ms: int | None = None
    commits: int | None = None
    readers_ms: int = 0

    @classmethod
    def of(cls, policies: Policies) -> RetentionPolicy:
        """What a table's policies say of it."""
        return cls(policies.keep_ms, policies.keep_commits, policies.readers_ms)

    @property
    def keeps_everything(self) -> bool:
        """Whether nothing is ever given up."""
        return self.keep_ms is None and self.commits is None

    def mark(self, value: Timeline, completions: Iterable[Completion], now_ms: int, ago_ms: int = 0) -> InstantTime:
        """The completion time from which on history is kept, or was `ago_ms` ago; never after the table's clock.

        now_ms: what the store's clock says. The table's clock may be a little ahead of it, and commits bear its times.
        """
        now_ms = max(now_ms, min(to_ms(value.clock), now_ms + CLOCKS_APART_MAX_MS)) - ago_ms
        now = from_ms(max(0, now_ms))
        marks = [value.clock, now]
        if self.keep_ms is not None:
            marks.append(from_ms(max(0, now_ms - self.keep_ms)))
        if self.commits is not None:
            times = sorted(c.completed for c in completions if is_commit(c) and (not ago_ms or c.completed <= now))
            marks.append(times[-self.commits] if len(times) >= self.commits else EPOCH)
        return min(marks)


def is_commit(completion: Completion) -> bool:
    """Whether a completion changed rows, as far as it says."""
    return completion.operation not in _REORGANISE and bool(completion.files or completion.replaced)


def moved(value: Timeline, since: InstantTime, groups: Mapping[FileGroup, InstantTime] | None = None) -> Retention:
    """The marks of `value`, moved forward as far as they are asked to and may.

    since: the mark of all file groups. groups: later marks of single ones. What a migration follows is kept.
    """
    old, last = value.retention, _last_mark(value)
    kept = max(old.since, min(since, last))
    stable = min([kept, *(p.requested for p in value.pending)])
    marks = dict(old.groups)
    for group, mark in (groups or {}).items():
        marks[group] = max(marks.get(group, EPOCH), min(mark, last))
    later = tuple(sorted((group, mark) for group, mark in marks.items() if mark > kept))
    return replace(old, since=kept, stable_since=max(old.stable_since, stable), groups=later)


def _last_mark(value: Timeline) -> InstantTime:
    """The latest mark that a value may have: its clock, or, while a migration follows it, when that was announced."""
    return value.clock if value.moving is None else min(value.clock, value.moving.since)


# --- which files may go -----------------------------------------------------------------------------------------------


def needless_files(
    value: Timeline,
    completions: Iterable[Completion],
    mark: InstantTime,
    groups: Mapping[FileGroup, InstantTime] | None = None,
    kept: Collection[str] = (),
) -> list[DataFile]:
    """The files that no view as of `mark` or later needs, no pending write, no open plan, and not `kept`, by path.

    completions: all that are known of `value`. groups: later marks of single file groups.
    """
    by_group: dict[FileGroup, list[tuple[DataFile, Completion]]] = {}
    replacing: dict[FileGroup, list[Completion]] = {}
    for completion in completions:
        for file in completion.files:
            by_group.setdefault(file.group, []).append((file, completion))
        for group in completion.replaced:
            replacing.setdefault(group, []).append(completion)
    views = _earlier_views(value)
    stable_from = min((p.requested for p in value.pending), default=LAST)
    marks = groups or {}
    found: list[DataFile] = []
    for group, files in by_group.items():
        ends = replacing.get(group, ())
        needless = _beyond(files, ends, max(mark, marks.get(group, EPOCH)))
        if not needless:
            continue
        needed = {file.path for cut in views for file in _shown(files, ends, cut)}
        needed |= {file.path for file in _written_since(files, stable_from)}
        found += [file for file in needless if file.path not in needed and file.path not in kept]
    return sorted(found, key=lambda file: file.path)


def _earlier_views(value: Timeline) -> list[Cut]:
    """The views that pending writes and open plans look at, or hold back, however early they began; and savepoints."""
    pending = [Cut(by, p.requested) for p in value.pending for by in ("completed", "requested")]
    saved = [Cut("completed", s.at) for s in value.savepoints]
    return [*pending, *saved, *(Cut("completed", plan.barrier) for plan in value.plans if plan.action != CLEAN)]


def _beyond(
    files: Sequence[tuple[DataFile, Completion]], ends: Sequence[Completion], mark: InstantTime
) -> list[DataFile]:
    """The files of one file group that no view as of `mark` or later shows. `ends`: what has replaced the group."""
    if any(end.completed <= mark for end in ends):
        return [file for file, _ in files]
    barrier = max((f.name.instant for f, c in files if f.is_base and c.completed <= mark), default=EPOCH)
    return [f for f, c in files if (f.name.instant if f.is_base else c.completed) < barrier]


def _shown(files: Sequence[tuple[DataFile, Completion]], ends: Sequence[Completion], cut: Cut) -> list[DataFile]:
    """The files of one file group that a view shows: the rule of `model.slices.fold_slices`."""
    if any(cut.shows(end) for end in ends):
        return []
    seen = [(file, c) for file, c in files if cut.shows(c)]
    barrier = max((file.name.instant for file, _ in seen if file.is_base), default=EPOCH)
    return [f for f, c in seen if (f.name.instant == barrier if f.is_base else c.completed >= barrier)]


def _written_since(files: Sequence[tuple[DataFile, Completion]], requested: InstantTime) -> list[DataFile]:
    """The logs of commits requested at a time or later, without what compactions have carried over."""
    barriers = {file.name.instant for file, _ in files if file.is_base}
    return [f for f, c in files if not f.is_base and c.requested >= requested and f.name.instant not in barriers]


# --- the plan ---------------------------------------------------------------------------------------------------------

PolicyName = Literal["time", "commits"]


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """Everything that the executors of a clean need, and what Hudi is told of it.

    retention: the table's marks from this plan on. files: those that go.
    deletion: files stay that a view as of this time or later needs, so that of older commits the value may drop those
        that only earlier views need; EPOCH where a savepoint needs files of such commits.
    last_completed: the requested time of the last completed commit when the plan was made; EPOCH: there was none.
    policy: how it was told what to keep.
    """

    barrier: InstantTime
    retention: Retention
    files: tuple[DataFile, ...]
    deletion: InstantTime = EPOCH
    last_completed: InstantTime = EPOCH
    policy: PolicyName = "time"
    table_id: str | None = None

    @property
    def file_groups(self) -> Collection[FileGroup]:
        """None: its files are needed by nobody, so that it is in no other plan's way."""
        return ()

    @property
    def earliest(self) -> InstantTime:
        """From which completion time on the history of every file group is kept."""
        return max([self.retention.since, *(mark for _, mark in self.retention.groups)])

    def parts(self) -> list[CleanPlan]:
        """The plan, some files each, for executors that share the work; only the whole can be completed."""
        cuts = range(0, len(self.files), PART_FILES)
        return [replace(self, files=self.files[start : start + PART_FILES]) for start in cuts]

    def require_outputs(self, files: Collection[DataFile]) -> None:
        """A clean adds no files."""
        if files:
            raise InvalidInputError(f"a clean is completed without files. barrier={self.barrier} files={len(files)}")

    def __str__(self) -> str:
        size = sum(file.size for file in self.files) / 2**20
        return f"clean {self.barrier}: {len(self.files)} files, {size:.1f} MiB, history from {self.retention.since} on"

    def encode(self) -> bytes:
        """JSON; files by partition, whose path they share."""
        partitions: dict[str, list[list[object]]] = {}
        for file in self.files:
            partitions.setdefault(file.partition, []).append([str(file.name), file.size, file.rows, file.deletes])
        return json.dumps(
            {
                "format": PLAN_FORMAT,
                "barrier": self.barrier,
                "table_id": self.table_id,
                "retention": retention_json(self.retention),
                "deletion": self.deletion,
                "last_completed": self.last_completed,
                "policy": self.policy,
                "files": partitions,
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> CleanPlan:
        """The plan in an object; raises `FormatError` naming `path`."""
        try:
            stored = json.loads(data)
            if stored["format"] != PLAN_FORMAT:
                raise FormatError(f"a plan of a newer release; upgrade crdt-mor. file={path} format={stored['format']}")
            files = tuple(
                DataFile(join_path(partition, name), *counts)
                for partition, entries in stored["files"].items()
                for name, *counts in entries
            )
            require_types(files)
            retention = retention_of(stored["retention"])
            plan = cls(
                stored["barrier"], retention, files, stored["deletion"], stored["last_completed"], stored["policy"],
                stored["table_id"],
            )  # fmt: skip
            require_types((retention, plan))
            if plan.policy not in get_args(PolicyName):
                raise ValueError(f"policy={plan.policy!r}")
            return plan
        except WRONG_SHAPE as error:
            raise FormatError(f"not a plan of a clean: {error!r}. file={path}") from error


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What a clean would do: the marks that it moves, the files that go, and those that are spared for now.

    deletion: as in the plan.
    spared: files that no kept view needs, and that stay as a reader that began lately, a pending write, an open plan or
    a savepoint may.
    """

    retention: Retention
    files: tuple[DataFile, ...]
    spared: int
    deletion: InstantTime


def plan_cleaning(
    value: Timeline,
    completions: Sequence[Completion],
    policy: RetentionPolicy,
    now_ms: int,
    there: Collection[str] | None,
    saved: Collection[str] = (),
    groups: Mapping[FileGroup, InstantTime] | None = None,
) -> Cleaning:
    """What follows from a value, a policy and the time.

    completions: all that are known of `value`. now_ms: what the store's clock says. there: the paths of the data files
    that a listing has found; None: all that the value names are taken to be there. saved: the paths that savepoints
    name. groups: later marks of single file groups, whose readers are not spared.

    No file goes that a view from the marks on needs, which a migration may hold back.
    """
    retention = moved(value, policy.mark(value, completions, now_ms), groups)
    before = min(retention.since, policy.mark(value, completions, now_ms, policy.readers_ms))
    marks = dict(retention.groups)  # of erasures, which spare no reader
    for group, mark in (groups or {}).items():  # also where the mark of the whole table has moved beyond them
        marks[group] = max(min(mark, _last_mark(value)), marks.get(group, EPOCH))
    going = _among(needless_files(value, completions, before, marks, saved), there)
    unneeded = needless_files(
        replace(value, pending=(), plans=(), savepoints=()), completions, retention.since, dict(retention.groups)
    )
    spared = max(0, len(_among(unneeded, there)) - len(going))
    return Cleaning(retention, tuple(going), spared, EPOCH if saved else before)


def _among(files: Sequence[DataFile], there: Collection[str] | None) -> list[DataFile]:
    return [file for file in files if there is None or file.path in there]


def plan_clean(value: Timeline, completions: Sequence[Completion], cleaning: Cleaning, policy: PolicyName) -> CleanPlan:
    """The frozen plan of a cleaning of `value`."""
    requested = max((c.requested for c in completions if is_commit(c)), default=EPOCH)
    barrier = value.next_barrier
    retention, deletion = cleaning.retention, cleaning.deletion
    return CleanPlan(barrier, retention, cleaning.files, deletion, requested, policy, value.table_id)


def shows_the_same(value: Timeline, completions: Iterable[Completion], cut: Cut, until: InstantTime) -> bool:
    """Whether the cut at `until` of the same kind shows the same rows as an earlier one, as far as `value` can tell.

    Compactions change no rows. But where commits have been dropped since the earlier cut, what is left of them may be a
    compaction alone.
    """
    later = replace(cut, time=until)
    between = (c for c in completions if later.shows(c) and not cut.shows(c) and (c.files or c.replaced))
    return not any(is_commit(c) or cut.time < value.retention.dropped for c in between)

"""Plan cleans: which history is kept, and which files no kept view needs. Pure functions.

    ───────R──────────────────now     R   the mark: views as of R and later are exact forever
      base B ══log══log══base══log    B   of each file group, the newest base file completed by R

A view as of R or later shows B or a newer base file, and logs completed after that base's barrier. Older base files and
logs go, unless an earlier view still needs them:

    a pending write p    its transaction reads commits completed by p; a stable view ends before p, and later continues
        with the logs of commits requested since
    an open plan         its executors read commits completed by its barrier
    a savepoint          shows commits completed by its moment; Hudi's savepoints list their files
    a mirror             keeps snapshots, which name base files
    a named reader       moves the mark back to its checkpoint (`planners/checkpoints.py`)
    a reader             that began a moment ago may read files that the mark allowed then

The event that schedules a clean moves the marks, and they never move back. A file that may go by this value may
therefore go by every later value, deleted at any time by any number of processes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from crdt_mor.errors import InvalidInputError
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import EPOCH, LAST, InstantTime, from_ms, to_ms
from crdt_mor.model.names import CLEAN, LOG_COMPACT, join_path
from crdt_mor.model.policies import Policies
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import decoding_plan, require_types, retention_json, retention_of
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup, Retention

PLAN_FORMAT: Final = 1

CLOCKS_APART_MAX_MS: Final = 60_000
"""Maximum trusted lead of the table's clock over the store's."""

_REORGANISE: Final = frozenset({"COMPACT", LOG_COMPACT, "CLUSTER", "INDEX"})


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The history to keep. With both limits, everything needed by either is kept.

    keep_ms: views of this time. commits: views as of each of the newest commits. readers_ms: protection of readers that
    began before the marks moved. named_ms: the greatest age of history that is kept for named readers.
    """

    keep_ms: int | None = None
    commits: int | None = None
    readers_ms: int = 0
    named_ms: int = 0

    @classmethod
    def of(cls, policies: Policies) -> RetentionPolicy:
        return cls(policies.keep_ms, policies.keep_commits, policies.readers_ms, policies.named_ms)

    @property
    def keeps_everything(self) -> bool:
        return self.keep_ms is None and self.commits is None

    def mark(self, value: Timeline, completions: Iterable[Completion], now_ms: int, ago_ms: int = 0) -> InstantTime:
        """Return the completion time from which history is kept, now or `ago_ms` ago.

        `now_ms` is the store's clock. The table's clock, the upper limit, may be a little ahead.
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
    return completion.operation not in _REORGANISE and bool(completion.files or completion.replaced)


def moved_marks(
    value: Timeline, since: InstantTime, groups: Mapping[FileGroup, InstantTime] | None = None
) -> Retention:
    """Return the value's marks, moved forward as far as allowed; history that a migration follows stays.

    `groups` are later marks of single groups.
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
    return value.clock if value.moving is None else min(value.clock, value.moving.since)


# --- needless files ---------------------------------------------------------------------------------------------------


def needless_files(
    value: Timeline,
    completions: Iterable[Completion],
    mark: InstantTime,
    groups: Mapping[FileGroup, InstantTime] | None = None,
    kept: Collection[str] = (),
) -> list[DataFile]:
    """Return the files that no view from `mark` on, pending write or open plan needs.

    `completions` are all known ones; `groups` are later marks of single groups.
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
        replacements = replacing.get(group, ())
        needless = _obsolete(files, replacements, max(mark, marks.get(group, EPOCH)))
        if not needless:
            continue
        needed = {file.path for cut in views for file in _visible(files, replacements, cut)}
        needed |= {file.path for file in _written_since(files, stable_from)}
        found += [file for file in needless if file.path not in needed and file.path not in kept]
    return sorted(found, key=lambda file: file.path)


def _earlier_views(value: Timeline) -> list[Cut]:
    pending = [Cut(by, p.requested) for p in value.pending for by in ("completed", "requested")]
    saved = [Cut("completed", s.at) for s in value.savepoints]
    return [*pending, *saved, *(Cut("completed", plan.barrier) for plan in value.plans if plan.action != CLEAN)]


def _obsolete(
    files: Sequence[tuple[DataFile, Completion]], replacements: Sequence[Completion], mark: InstantTime
) -> list[DataFile]:
    """Return a group's files that no view from `mark` on shows; `replacements` are the commits that replaced it."""
    if any(end.completed <= mark for end in replacements):
        return [file for file, _ in files]
    barrier = max((f.name.instant for f, c in files if f.is_base and c.completed <= mark), default=EPOCH)
    return [f for f, c in files if (f.name.instant if f.is_base else c.completed) < barrier]


def _visible(
    files: Sequence[tuple[DataFile, Completion]], replacements: Sequence[Completion], cut: Cut
) -> list[DataFile]:
    """Return a file group's files in a view: the rule of `model.slices.fold_slices`."""
    if any(cut.shows(end) for end in replacements):
        return []
    seen = [(file, c) for file, c in files if cut.shows(c)]
    barrier = max((file.name.instant for file, _ in seen if file.is_base), default=EPOCH)
    return [f for f, c in seen if (f.name.instant == barrier if f.is_base else c.completed >= barrier)]


def _written_since(files: Sequence[tuple[DataFile, Completion]], requested: InstantTime) -> list[DataFile]:
    barriers = {file.name.instant for file, _ in files if file.is_base}
    return [f for f, c in files if not f.is_base and c.requested >= requested and f.name.instant not in barriers]


# --- the plan ---------------------------------------------------------------------------------------------------------

PolicyName = Literal["time", "commits"]


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """Everything that a clean's executors and Hudi's files need.

    Attributes:
        retention: the table's marks from this plan on.
        deletion: only files of views from this time on stay, so the value may drop older commits. EPOCH if savepoints
            need older files.
        last_completed: requested time of the last commit completed at planning, or EPOCH.
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
        """Empty: no other plan needs the files of a clean, so a clean blocks no plan."""
        return ()

    @property
    def earliest(self) -> InstantTime:
        """The completion time from which all file groups keep their history."""
        return max([self.retention.since, *(mark for _, mark in self.retention.groups)])

    def parts(self) -> list[CleanPlan]:
        return [self]

    def require_outputs(self, files: Collection[DataFile]) -> None:
        if files:
            raise InvalidInputError(f"a clean adds no files. barrier={self.barrier} files={len(files)}")

    def __str__(self) -> str:
        size = sum(file.size for file in self.files) / 2**20
        return f"clean {self.barrier}: {len(self.files)} files, {size:.1f} MiB, history from {self.retention.since} on"

    def encode(self) -> bytes:
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
        with decoding_plan(data, path, "a plan of a clean", [PLAN_FORMAT]) as stored:
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


@dataclass(frozen=True, slots=True)
class Cleaning:
    retention: Retention
    files: tuple[DataFile, ...]
    spared: int
    deletion: InstantTime


def plan_cleaning(
    value: Timeline,
    completions: Sequence[Completion],
    policy: RetentionPolicy,
    now_ms: int,
    listed_paths: Collection[str] | None,
    saved: Collection[str] = (),
    groups: Mapping[FileGroup, InstantTime] | None = None,
    mirrored: Collection[str] = (),
    held: InstantTime = LAST,
) -> Cleaning:
    """Compute the effect of a clean. No file goes that a view from the marks on needs.

    Args:
        listed_paths: paths of listed data files; None if all named files exist.
        mirrored: paths that kept snapshots of mirrors name. The value keeps the commits of these files.
        groups: later marks of single file groups, without protection for readers.
        held: where named readers' history begins.
    """
    retention = moved_marks(value, min(held, policy.mark(value, completions, now_ms)), groups)
    before = min(retention.since, policy.mark(value, completions, now_ms, policy.readers_ms))
    marks = dict(retention.groups)  # marks of erasures spare no reader
    for group, mark in (groups or {}).items():  # also marks before the table's own
        marks[group] = max(min(mark, _last_mark(value)), marks.get(group, EPOCH))
    needless = needless_files(value, completions, before, marks, saved)
    going = _among([file for file in needless if file.path not in mirrored], listed_paths)
    shown = {file.path for file in needless if file.path in mirrored}
    since = min([before, *(c.completed for c in completions if any(file.path in shown for file in c.files))])
    unneeded = needless_files(
        replace(value, pending=(), plans=(), savepoints=()), completions, retention.since, dict(retention.groups)
    )
    spared = max(0, len(_among(unneeded, listed_paths)) - len(going))
    return Cleaning(retention, tuple(going), spared, EPOCH if saved else since)


def _among(files: Sequence[DataFile], listed_paths: Collection[str] | None) -> list[DataFile]:
    return [file for file in files if listed_paths is None or file.path in listed_paths]


def plan_clean(value: Timeline, completions: Sequence[Completion], cleaning: Cleaning, policy: PolicyName) -> CleanPlan:
    requested = max((c.requested for c in completions if is_commit(c)), default=EPOCH)
    barrier = value.next_barrier
    retention, deletion = cleaning.retention, cleaning.deletion
    return CleanPlan(barrier, retention, cleaning.files, deletion, requested, policy, value.table_id)


def shows_the_same(value: Timeline, completions: Iterable[Completion], cut: Cut, until: InstantTime) -> bool:
    """Return True if a later cut at `until` shows the same rows, as far as `value` knows.

    Compactions change no rows, but may be all that is left of dropped commits.
    """
    later = replace(cut, time=until)
    between = (c for c in completions if later.shows(c) and not cut.shows(c) and (c.files or c.replaced))
    return not any(is_commit(c) or cut.time < value.retention.dropped for c in between)

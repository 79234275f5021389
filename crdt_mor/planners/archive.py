"""Choose the instants that may leave Hudi's active timeline for its history. See docs/design/clean-archive-sweep.md.

Hudi's readers take every older instant for committed, and for completed when it was requested. An archiving takes a
prefix of the instants in request order, up to an instant T for which that is right:

 (a) every pending write and open plan was requested after T's completion;
 (b) each log file of T lies in a file group with a completed base file whose barrier is after T's completion;
 (c) given-up instants before T are forgotten, after a listing without their files;
 (d) the version that published T is deleted, so a stalled helper removes its files at or below the watermark.

Instants completed after a savepoint stay, and (b) must hold for its base files. The prefix also ends before instants
that Hudi saved, that replaced file groups, or that only the directory contains, and before the newest commits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from crdt_mor.errors import FormatError
from crdt_mor.model.instant import LAST, InstantTime
from crdt_mor.model.names import DATA_ACTIONS, DELTA_COMMIT, SAVEPOINT, TimelineFileName
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, FileGroup, completed_name

KEPT_COMMITS = 20
"""Default number of newest commits in the active timeline."""

INSTANTS_MAX = 500
"""Maximum instants per event: a helper may have to read and delete as many files."""

FILES_OF_A_LEVEL = 10
LEVEL_MAX = 2
"""Files of this level are not merged, so that a helper's merge fits in memory."""

_DATA_FILE: Final = re.compile(r"([0-9]+)_([0-9]+)_([0-9]{1,9})\.parquet")


@dataclass(frozen=True, slots=True)
class Prefix:
    completions: tuple[Completion, ...]
    held_by: str


def archivable(
    value: Timeline,
    completions: Iterable[Completion],
    named: Iterable[TimelineFileName],
    oldest_version: int,
    keep: int = KEPT_COMMITS,
) -> Prefix:
    """Return the longest archivable prefix, up to `INSTANTS_MAX`.

    Args:
        completions: archived ones may be missing.
        named: files in Hudi's active timeline.
        oldest_version: the oldest existing version of the timeline.
        keep: number of newest commits to keep, at least one.
    """
    assert keep >= 1, "to Hudi's readers, a directory without commits contains no rows"
    watermark = value.archive.watermark
    active = sorted((c for c in completions if c.requested > watermark), key=lambda c: c.requested)
    limits = _Limits.of(value, active, named, oldest_version)
    prefix: list[Completion] = []
    commits = [c.requested for c in active if c.action in DATA_ACTIONS]
    for completion in active:
        if len(commits) <= keep or completion.requested >= commits[-keep]:
            break
        held_by = limits.limit_of(completion)
        if held_by or len(prefix) == INSTANTS_MAX:
            return Prefix(tuple(prefix), held_by or f"one event archives at most {INSTANTS_MAX}")
        prefix.append(completion)
    return Prefix(tuple(prefix), f"the newest {keep} commits stay in the active timeline")


@dataclass(frozen=True, slots=True)
class _Limits:
    unfinished: InstantTime
    given_up: InstantTime
    in_value: frozenset[InstantTime]
    bases: dict[FileGroup, InstantTime]
    oldest_version: int
    timeline_names: frozenset[str]
    unknown: InstantTime
    saved: InstantTime
    restorable: InstantTime

    @classmethod
    def of(
        cls, value: Timeline, active: Sequence[Completion], named: Iterable[TimelineFileName], oldest_version: int
    ) -> _Limits:
        names = [name for name in named if name.requested > value.archive.watermark]
        restorable = min((s.at for s in value.savepoints), default=LAST)
        known = {c.requested for c in active}
        return cls(
            unfinished=min([*(p.requested for p in value.pending), *(p.barrier for p in value.plans)], default=LAST),
            given_up=min((r.requested for r in value.rolled_back), default=LAST),
            in_value=frozenset(c.requested for c in value.completions),
            bases=newest_bases(c for c in active if c.completed <= restorable),
            oldest_version=oldest_version,
            timeline_names=frozenset(str(name) for name in names if name.state == "completed"),
            unknown=min((name.requested for name in names if name.requested not in known), default=LAST),
            saved=min((name.requested for name in names if name.action == SAVEPOINT), default=LAST),
            restorable=restorable,
        )

    def limit_of(self, completion: Completion) -> str:
        requested = completion.requested
        if completion.completed >= self.unfinished:
            return f"a write or a plan is unfinished, requested at {self.unfinished}"
        if requested > self.given_up:
            return f"files of a given-up instant are not swept yet, requested at {self.given_up}"
        if requested >= self.unknown:
            return f"Hudi's directory contains an incomplete instant, requested at {self.unknown}"
        if completion.completed > self.restorable:
            return f"a savepoint of {self.restorable} keeps all later commits"
        if requested >= self.saved:
            return f"Hudi's savepoint of the instant {self.saved} keeps it"
        if completion.replaced:
            return f"the instant {requested} replaced file groups"
        if completion.version >= self.oldest_version:
            return "the newest versions of the timeline still exist, so a helper may still write Hudi's files for them"
        if requested in self.in_value:
            return "the newest completions are not in a segment yet"
        if str(completed_name(completion)) not in self.timeline_names:
            return f"the completed file of the instant {requested} is not in Hudi's directory"
        for partition, file_id in _groups_of_logs(completion):
            if self.bases.get((partition, file_id), "") <= completion.completed:
                return f"a file group was not compacted since {completion.completed}: {partition or '.'} {file_id}"
        return ""


def newest_bases(completions: Iterable[Completion]) -> dict[FileGroup, InstantTime]:
    bases: dict[FileGroup, InstantTime] = {}
    for completion in completions:
        for file in completion.files:
            if file.is_base and file.name.instant > bases.get(file.group, ""):
                bases[file.group] = file.name.instant
    return bases


def _groups_of_logs(completion: Completion) -> set[FileGroup]:
    if completion.action != DELTA_COMMIT:
        return set()
    return {file.group for file in completion.files if not file.is_base}


# --- the data files of the history ------------------------------------------------------------------------------------


def data_file_name(first: InstantTime, last: InstantTime, level: int) -> str:
    return f"{first}_{last}_{level}.parquet"


def is_history_file(name: str) -> bool:
    return _DATA_FILE.fullmatch(name) is not None


def level_of(name: str) -> int:
    return int(_parts(name)[2])


def span_of(name: str) -> tuple[InstantTime, InstantTime]:
    first, last, _ = _parts(name)
    return InstantTime(first), InstantTime(last)


def _parts(name: str) -> Sequence[str]:
    match = _DATA_FILE.fullmatch(name)
    if match is None:
        raise FormatError(f"the timeline contains an invalid history file name: restore it. file={name!r:.99}")
    return match.groups()


def files_with(files: Sequence[str], new: str) -> tuple[str, ...]:
    """Return the history's data files after adding `new`, with full levels merged."""
    result, level = [*files, new], 0
    while len(full := [name for name in result if level_of(name) == level]) >= FILES_OF_A_LEVEL and level < LEVEL_MAX:
        merged = data_file_name(span_of(full[0])[0], span_of(full[-1])[1], level + 1)
        result = sorted([*(name for name in result if name not in full), merged])
        level += 1
    return tuple(result)

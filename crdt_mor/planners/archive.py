"""Which instants may leave Hudi's active timeline for its history. Pure: a function of a value and of two listings.

Hudi's readers find out from the *names* in the active timeline what is committed, and when it was completed. They
assume two things of an instant that is older than all names there: that it is committed, and that it was completed when
it was requested. An instant leaves only where both assumptions give the right rows. An archiving takes a prefix of the
instants in the order of their requested times, and an instant T only if

 (a) every write that is pending, and every plan that is open, was requested after the completion of T. Else T leaves a
     hole, and the files of what is pending are older than some name that is gone.
 (b) each log file that T wrote lies in a file group with a completed base file whose barrier is after the completion of
     T. Then the log is in a slice that no reader opens, wherever the readers think that it was completed. A base file
     needs nothing, since its name says which slice it opens, nor does a carry, whose instant is that of its base file.
 (c) what was given up is forgotten, whose files a listing has shown to be gone. They would be shown as committed.
 (d) the version that published T is deleted. A helper that stalled while that version stood looks whether it still
     stands before it leaves what it put; one that finds it gone looks at the newest value, and removes what it put at
     or below the watermark.

A savepoint keeps what came after it, so that the table can be restored to it: no instant goes that completed later, and
(b) has to hold with the base files that its moment shows.

The prefix also ends before an instant that Hudi has saved, that replaced file groups, or that only the directory knows,
such as a write of Hudi's that has not ended. The newest commits stay, for Hudi's readers of increments. So these
readers always find a commit with the schema: a table whose directory has no commit looks empty to them.
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
"""The newest commits, compactions among them, that stay in the active timeline, where nobody asks for more."""

INSTANTS_MAX = 500
"""How many instants one event archives, which is how many files a helper may have to read and to delete."""

FILES_OF_A_LEVEL = 10
"""From so many data files of one level on they become one of the next."""

LEVEL_MAX = 2
"""Data files of this level stay as they are, so that no helper has to merge more than it can hold in memory."""

_DATA_FILE: Final = re.compile(r"([0-9]+)_([0-9]+)_([0-9]{1,9})\.parquet")


@dataclass(frozen=True, slots=True)
class Prefix:
    """The instants that may go, in the order of their requested times, and what keeps the next one from going."""

    completions: tuple[Completion, ...]
    held_by: str


def archivable(
    value: Timeline,
    completions: Iterable[Completion],
    named: Iterable[TimelineFileName],
    oldest_version: int,
    keep: int = KEPT_COMMITS,
) -> Prefix:
    """The longest prefix that may go, but at most `INSTANTS_MAX`.

    completions: those of the value and of its segments, but for some or all of those that are archived already.
    named: the files in Hudi's active timeline.
    oldest_version: the least version of the timeline that still stands.
    keep: how many of the newest commits stay, at least one.
    """
    assert keep >= 1, "a directory without a commit has no rows to Hudi's readers"
    watermark = value.archive.watermark
    active = sorted((c for c in completions if c.requested > watermark), key=lambda c: c.requested)
    limits = _Limits.of(value, active, named, oldest_version)
    prefix: list[Completion] = []
    commits = [c.requested for c in active if c.action in DATA_ACTIONS]
    for completion in active:
        if len(commits) <= keep or completion.requested >= commits[-keep]:
            break
        held_by = limits.holds(completion)
        if held_by or len(prefix) == INSTANTS_MAX:
            return Prefix(tuple(prefix), held_by or f"one event archives at most {INSTANTS_MAX}")
        prefix.append(completion)
    return Prefix(tuple(prefix), f"the newest {keep} commits stay in the active timeline")


@dataclass(frozen=True, slots=True)
class _Limits:
    """What holds an instant in the active timeline."""

    unfinished: InstantTime
    given_up: InstantTime
    carried: frozenset[InstantTime]
    bases: dict[FileGroup, InstantTime]
    oldest_version: int
    standing: frozenset[str]
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
            carried=frozenset(c.requested for c in value.completions),
            bases=newest_bases(c for c in active if c.completed <= restorable),
            oldest_version=oldest_version,
            standing=frozenset(str(name) for name in names if name.state == "completed"),
            unknown=min((name.requested for name in names if name.requested not in known), default=LAST),
            saved=min((name.requested for name in names if name.action == SAVEPOINT), default=LAST),
            restorable=restorable,
        )

    def holds(self, completion: Completion) -> str:
        """What holds this one; empty: nothing does."""
        requested = completion.requested
        if completion.completed >= self.unfinished:
            return f"a write or a plan has not ended that was requested at {self.unfinished}"
        if requested > self.given_up:
            return f"files of an instant that was given up have not been swept yet, requested at {self.given_up}"
        if requested >= self.unknown:
            return f"Hudi's directory has files of an instant that is not complete, requested at {self.unknown}"
        if completion.completed > self.restorable:
            return f"the table can be restored to a savepoint of {self.restorable}, which keeps what came after it"
        if requested >= self.saved:
            return f"Hudi's savepoint of the instant {self.saved} keeps it"
        if completion.replaced:
            return f"the instant {requested} replaced file groups"
        if completion.version >= self.oldest_version:
            return "the newest versions of the timeline still stand, so that a helper may still tell Hudi of them"
        if requested in self.carried:
            return "the newest completions stand in the timeline's value itself, not in a segment yet"
        if str(completed_name(completion)) not in self.standing:
            return f"the completed file of the instant {requested} is not in Hudi's directory"
        for partition, file_id in _groups_of_logs(completion):
            if self.bases.get((partition, file_id), "") <= completion.completed:
                return f"a file group is not compacted since {completion.completed}: {partition or '.'} {file_id}"
        return ""


def newest_bases(completions: Iterable[Completion]) -> dict[FileGroup, InstantTime]:
    """The instant of the newest base file of each file group."""
    bases: dict[FileGroup, InstantTime] = {}
    for completion in completions:
        for file in completion.files:
            if file.is_base and file.name.instant > bases.get(file.group, ""):
                bases[file.group] = file.name.instant
    return bases


def _groups_of_logs(completion: Completion) -> set[FileGroup]:
    """The file groups to which a write added log files."""
    if completion.action != DELTA_COMMIT:
        return set()
    return {file.group for file in completion.files if not file.is_base}


# --- the data files of the history ------------------------------------------------------------------------------------


def data_file_name(first: InstantTime, last: InstantTime, level: int) -> str:
    """The name of a data file of the history, by the requested times of the first and the last instant in it."""
    return f"{first}_{last}_{level}.parquet"


def is_history_file(name: str) -> bool:
    """Whether a name is that of a data file of the history."""
    return _DATA_FILE.fullmatch(name) is not None


def level_of(name: str) -> int:
    """How often the instants of a data file were merged with others."""
    return int(_parts(name)[2])


def span_of(name: str) -> tuple[InstantTime, InstantTime]:
    """The requested times of the first and the last instant in a data file."""
    first, last, _ = _parts(name)
    return InstantTime(first), InstantTime(last)


def _parts(name: str) -> Sequence[str]:
    """First, last and level; raises `FormatError` for a name that is of no data file, as in a damaged version."""
    match = _DATA_FILE.fullmatch(name)
    if match is None:
        raise FormatError(f"the timeline names a file of the history that can be none: restore it. file={name!r:.99}")
    return match.groups()


def files_with(files: Sequence[str], new: str) -> tuple[str, ...]:
    """The data files of the history once `new`, of level 0, is there: ten of one level are one of the next."""
    result, level = [*files, new], 0
    while len(full := [name for name in result if level_of(name) == level]) >= FILES_OF_A_LEVEL and level < LEVEL_MAX:
        merged = data_file_name(span_of(full[0])[0], span_of(full[-1])[1], level + 1)
        result = sorted([*(name for name in result if name not in full), merged])
        level += 1
    return tuple(result)

"""Invariants of a single version with all commits, for `services.verify`.

Each predicate yields a description of every violation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise

from crdt_mor.model import invariants, invariants_history
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Segment

Commits = Sequence[Completion]
WholeInvariant = Callable[[Timeline, Commits], Iterable[str]]

_OF_ONE_VERSION = (
    invariants.an_instant_has_one_state,
    invariants_history.nothing_unfinished_is_archived,
    invariants_history.only_what_is_in_segments_is_archived,
)
"""These predicates use only the later version."""


def what_one_version_says_agrees(value: Timeline, commits: Commits) -> Iterator[str]:  # noqa: ARG001
    """The single-version predicates of `model.invariants` hold."""
    yield from (f"invariant={holds.__name__}" for holds in _OF_ONE_VERSION if not holds(value, value))


def an_instant_ends_once(value: Timeline, commits: Commits) -> Iterator[str]:
    """No two commits share a requested time, or the time of an unfinished instant."""
    times = Counter(c.requested for c in commits)
    yield from (f"instant={time} commits={count}" for time, count in times.items() if count > 1)
    unfinished = [*(p.requested for p in value.pending), *(p.barrier for p in value.plans)]
    unfinished += [r.requested for r in value.rolled_back]
    yield from (f"instant={time} is not finished, and completed" for time in unfinished if time in times)


def a_commit_completes_after_its_request(value: Timeline, commits: Commits) -> Iterator[str]:
    """Commits complete after their request, up to the table's clock."""
    for c in commits:
        if c.completed > value.clock or not (c.adopted or c.requested < c.completed):
            yield f"requested={c.requested} completed={c.completed} clock={value.clock}"


def what_is_unfinished_began_before_the_clock(value: Timeline, commits: Commits) -> Iterator[str]:  # noqa: ARG001
    """Unfinished instants were requested up to the table's clock and this version."""
    unfinished = [(p.requested, p.version) for p in value.pending]
    unfinished += [(p.barrier, p.version) for p in value.plans]
    unfinished += [(r.requested, r.version) for r in value.rolled_back]
    for requested, version in unfinished:
        if requested > value.clock or version > value.version:
            yield f"requested={requested} version={version} clock={value.clock} newest={value.version}"


def commits_complete_in_the_order_of_their_versions(value: Timeline, commits: Commits) -> Iterator[str]:
    """Completion times of our commits are unique and increase with their versions."""
    own = sorted((c for c in commits if not c.adopted), key=lambda c: c.completed)
    for before, after in pairwise(own):
        if before.version > after.version or before.completed == after.completed:
            yield f"completed={after.completed} version={after.version} before={before.completed} {before.version}"
    yield from (f"instant={c.requested} version={c.version}" for c in own if c.version > value.version)


def files_bear_the_instants_that_wrote_them(value: Timeline, commits: Commits) -> Iterator[str]:  # noqa: ARG001
    """The name of each data file of ours contains its commit's requested time."""
    for c in commits:
        yield from (
            f"file={f.path} instant={c.requested}" for f in c.files if not c.adopted and f.name.instant != c.requested
        )


def a_file_is_of_one_commit(value: Timeline, commits: Commits) -> Iterator[str]:  # noqa: ARG001
    """No two commits of ours contain the same file, or a log's rows would count twice."""
    paths = Counter(file.path for c in commits if not c.adopted for file in c.files)
    yield from (f"file={path} commits={count}" for path, count in paths.items() if count > 1)


def a_file_group_has_one_base_file_an_instant(value: Timeline, commits: Commits) -> Iterator[str]:  # noqa: ARG001
    """A file group has at most one base file per instant; otherwise readers differ."""
    bases = Counter((f.group, f.name.instant) for c in commits if not c.adopted for f in c.files if f.is_base)
    for ((partition, file_id), instant), count in bases.items():
        if count > 1:
            yield f"partition={partition!r} file_group={file_id} instant={instant} base_files={count}"


def marks_are_not_after_the_clock(value: Timeline, commits: Commits) -> Iterator[str]:  # noqa: ARG001
    """The retention marks are not after the clock, and `stable_since` is not after `since`."""
    kept = value.retention
    marks = [kept.since, kept.stable_since, kept.dropped, value.archive.watermark, *(since for _, since in kept.groups)]
    marks += [saved.at for saved in value.savepoints]
    yield from (f"mark={mark} clock={value.clock}" for mark in marks if mark > value.clock)
    if kept.stable_since > kept.since:
        yield f"stable_since={kept.stable_since} since={kept.since}"


def names_are_given_once(value: Timeline, commits: Commits) -> Iterator[str]:  # noqa: ARG001
    """Names of savepoints and applications of tokens are unique."""
    for names in ((s.name for s in value.savepoints), (t.application for t in value.tokens)):
        yield from (f"name={name!r} times={count}" for name, count in Counter(names).items() if count > 1)


def what_left_hudis_timeline_is_counted(value: Timeline, commits: Commits) -> Iterator[str]:
    """The archive's count equals the commits up to the watermark, plus at most the dropped ones."""
    archived = sum(c.requested <= value.archive.watermark for c in commits)
    most = archived + value.retention.dropped_count
    if not archived <= value.archive.count <= most:
        yield f"archived={value.archive.count} found={archived} dropped={value.retention.dropped_count}"


WHOLE_INVARIANTS: tuple[WholeInvariant, ...] = (
    what_one_version_says_agrees,
    an_instant_ends_once,
    a_commit_completes_after_its_request,
    what_is_unfinished_began_before_the_clock,
    commits_complete_in_the_order_of_their_versions,
    files_bear_the_instants_that_wrote_them,
    a_file_is_of_one_commit,
    a_file_group_has_one_base_file_an_instant,
    marks_are_not_after_the_clock,
    names_are_given_once,
    what_left_hudis_timeline_is_counted,
)


# --- segments ---------------------------------------------------------------------------------------------------------


def broken_promise(segment: Segment, held: Commits, needed: Collection[InstantTime]) -> str | None:
    """Return how a segment differs from its entry in the value, or None.

    needed: requested times of the commits with files in the newest snapshot.
    """
    if len(held) != segment.count:
        return f"the segment and the version disagree on its number of commits. count={segment.count} found={len(held)}"
    times = [c.completed for c in held]
    if times and (times[0], times[-1]) != (segment.first, segment.last):
        return (
            "the segment and the version disagree on its completion times. "
            f"first={segment.first} last={segment.last} found={times[0]} {times[-1]}"
        )
    left_out = [c.requested for c in held if c.requested in needed] if segment.superseded is not None else []
    if left_out:
        return (
            "readers skip this segment as superseded, but the newest snapshot needs some of its commits. "
            f"superseded={segment.superseded} instant={left_out[0]}"
        )
    return None

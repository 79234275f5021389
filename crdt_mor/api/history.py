"""The history of a table: its commits, their authors and overlaps.

    ordinal  1, 2, 3, … in the order of visibility; the newest row comes first
    version  of the timeline, for `as_of`, `since` and restores, which also accept `completed_at`

A version may show several commits, or none. So `overlaps` names commits by ordinal, which no call accepts. Ordinals
never change. Commits of Hudi get theirs when the next write adopts them; until then they are the newest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import timedelta

import pyarrow as pa

from crdt_mor.api.reading import AsOf, point_of
from crdt_mor.errors import FutureSnapshotError, InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.model.authors import columns_of
from crdt_mor.model.instant import InstantTime, to_datetime, to_ms
from crdt_mor.model.names import COMMIT, DATA_ACTIONS
from crdt_mor.model.points import NOW, check_point
from crdt_mor.model.savepoint import is_savepoint_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.planners.overwrite import covered_by, is_end_of_write
from crdt_mor.planners.restore import RESTORE
from crdt_mor.read.cut import saved_under

MOMENT = pa.timestamp("ms", tz="UTC")
AUTHOR = (
    ("application", pa.string()), ("host", pa.string()), ("pid", pa.int64()), ("message", pa.string()),
    ("commit_info", pa.map_(pa.string(), pa.string())),
)  # fmt: skip
"""The columns of `columns_of`."""
_WRITER = pa.struct([*AUTHOR, ("rows", pa.int64()), ("deletes", pa.int64())])
_HISTORY = pa.schema([
    ("ordinal", pa.int64()), ("version", pa.int64()), ("kind", pa.string()), ("operation", pa.string()),
    ("requested", MOMENT), ("completed", MOMENT), ("duration", pa.duration("ms")), ("rows", pa.int64()),
    ("deletes", pa.int64()), ("files", pa.int64()), ("bytes", pa.int64()), *AUTHOR, ("writers", pa.list_(_WRITER)),
    ("covered", pa.list_(pa.string())), ("overlaps", pa.list_(pa.int64())), ("adopted", pa.bool_()),
    ("requested_at", pa.string()), ("completed_at", pa.string()),
])  # fmt: skip

_COMPACTIONS = ("COMPACT", "LOG_COMPACT")


def history(
    session: Session,
    limit: int | None = None,
    since: AsOf | None = None,
    until: AsOf | None = None,
    by: str | None = None,
) -> pa.Table:
    """Return at most `limit` of the asked commits, newest first. See `Table.history`."""
    _require_number(limit)
    # In version order, so that a late adopted commit of Hudi does not move later ones.
    value = session.views.sealed()
    commits = sorted(session.views.completions(value), key=lambda c: (c.version, c.completed))
    ordinals = [_gone_before(value, commit) + i + 1 for i, commit in enumerate(commits)]
    is_wanted = _filter(session, value, since, until, by)
    shown = [i for i, commit in enumerate(commits) if not is_end_of_write(commit) and is_wanted(commit)]
    shown = shown if limit is None else shown[max(0, len(shown) - limit) :]
    overlaps, local = _overlaps(commits, shown), session.config.local_times
    rows = [
        _row(commits[i], ordinals[i], [ordinals[place - 1] for place in overlaps[i]], local=local)
        for i in reversed(shown)
    ]
    return pa.Table.from_pylist(rows, _HISTORY)


def _filter(
    session: Session, value: Timeline, since: AsOf | None, until: AsOf | None, by: str | None
) -> Callable[[Completion], bool]:
    if by is not None and not isinstance(by, str):
        raise InvalidInputError(f"by must be the name of an application, as in the column application. by={by!r}")
    after = None if since is None else is_later_than(session, value, since, "since")
    beyond = None if until is None else is_later_than(session, value, until, "until")

    def is_wanted(commit: Completion) -> bool:
        return (
            (after is None or after(commit))
            and not (beyond is not None and beyond(commit))
            and (by is None or by in _applications(commit))
        )

    return is_wanted


def is_later_than(session: Session, value: Timeline, as_of: AsOf, name: str) -> Callable[[Completion], bool]:
    """Return whether a commit became visible after a point. A moment need not be kept or decided yet.

    name: the argument's name, for errors.
    """
    point = point_of(as_of)
    if is_savepoint_name(point):
        point = saved_under(value, str(point), name, moments=True).at
    checked = check_point(point, name, local=session.config.local_times)
    if not isinstance(checked, int):
        moment = value.clock if checked == NOW else checked
        return lambda commit: commit.completed > moment
    if checked > value.version:
        raise FutureSnapshotError(
            "this version does not exist yet. Use the `version` column of history(), not `ordinal`. "
            f"{name}={checked} newest={value.version}"
        )
    return lambda commit: commit.version > checked


def _applications(commit: Completion) -> set[object]:
    return {columns_of(author)["application"] for author in (commit.author, *(w.author for w in commit.writers))}


def _gone_before(value: Timeline, commit: Completion) -> int:
    """Count the dropped commits before this one, so that ordinals never change."""
    restored = sum(r.count for r in value.restores if r.version <= commit.version)
    return value.retention.dropped_count + restored


def _begun(commit: Completion) -> InstantTime:
    """Return a commit's begin; an overwrite is requested only when it becomes visible."""
    return commit.requested if commit.overwriting is None else commit.overwriting.write


def _require_number(limit: object) -> None:
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidInputError(f"limit must be a number of commits, 0 or more, or None for all. limit={limit!r}")


def _overlaps(commits: Sequence[Completion], shown: Sequence[int]) -> dict[int, list[int]]:
    """Return, for the commits at positions `shown`, the ordinals in progress at the same time.

    In completion order, a commit overlaps earlier ones that completed after its request.
    """
    order = [i for i, commit in enumerate(commits) if not is_end_of_write(commit)]
    order.sort(key=lambda i: commits[i].completed)
    completed = [commits[i].completed for i in order]
    found: dict[int, list[int]] = {i: [] for i in shown}
    begin = next((place for place, i in enumerate(order) if i in found), len(order))
    for place in range(begin, len(order)):
        later = order[place]
        for earlier in order[bisect_right(completed, _begun(commits[later]), hi=place) : place]:
            for one, other in ((later, earlier), (earlier, later)):
                if one in found:
                    found[one].append(other + 1)
    return {i: sorted(places) for i, places in found.items()}


def _row(commit: Completion, ordinal: int, overlaps: list[int], *, local: bool) -> dict[str, object]:
    return {
        "ordinal": ordinal,
        "version": commit.version,
        "kind": kind_of(commit),
        "operation": commit.operation,
        "requested": to_datetime(commit.requested, local=local),
        "completed": to_datetime(commit.completed, local=local),
        "duration": timedelta(milliseconds=to_ms(commit.completed) - to_ms(_begun(commit))),
        "rows": commit.rows,
        "deletes": commit.deletes,
        "files": len(commit.files),
        "bytes": sum(file.size for file in commit.files),
        **columns_of(commit.author),
        "writers": [{**columns_of(w.author), "rows": w.rows, "deletes": w.deletes} for w in commit.writers] or None,
        "covered": covered_by(commit),
        "overlaps": overlaps,
        "adopted": commit.adopted,
        "requested_at": commit.requested,
        "completed_at": commit.completed,
    }


def kind_of(commit: Completion) -> str:
    """Return the kind of a commit for users."""
    if commit.overwriting is not None:
        return "write"
    if commit.action == RESTORE and not commit.adopted:
        return "restore"
    if commit.operation in _COMPACTIONS or (commit.action == COMMIT and not commit.adopted):
        return "compaction"
    if commit.operation == "ALTER_SCHEMA" and not commit.files:
        return "schema"
    return "write" if commit.action in DATA_ACTIONS else "upkeep"

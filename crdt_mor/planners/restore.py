"""Restores a table to an earlier moment: the pure planner, its frozen plan and the event.

    kept        commits completed by then; cleans and rollbacks of any time, which contain no data
    dropped     all other completions, with their files
    given up    all pending writes and open plans
    tokens      each application's last token in a kept commit, so that dropped rows may be written again

The schema stays, because it only grows. The event adds a commit without files if Hudi's active timeline would otherwise
lack the schema. Times are never reused.

Impossible restores are refused before anything is published: to a moment whose files a clean or an erasure removed; to
one that an earlier restore cut off; past a savepoint; and before the end of Hudi's archived timeline, because Hudi's
readers would still take dropped instants there for committed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from crdt_mor.errors import InvalidInputError, SnapshotExpiredError, UnsupportedFeatureError
from crdt_mor.model.authors import Author
from crdt_mor.model.cut import Cut, restore_hiding
from crdt_mor.model.file_ids import live_groups
from crdt_mor.model.instant import EPOCH, InstantTime, begin_after, tick_after
from crdt_mor.model.names import DATA_ACTIONS, DELTA_COMMIT, data_file_name
from crdt_mor.model.restore import Restore
from crdt_mor.model.rules import after_restore
from crdt_mor.model.savepoint import SAVEPOINTS_MAX, Savepoint
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import decoding_plan, require_types
from crdt_mor.model.timeline_parts import Completion, RolledBack, Segment, Token
from crdt_mor.model.tokens import Tokens
from crdt_mor.planners.archive import newest_bases

RESTORE: Final = "restore"
PLAN_FORMAT: Final = 1

# --- savepoints -------------------------------------------------------------------------------------------------------


def save(
    value: Timeline,
    nonce: str,
    wall_ms: int,
    name: str,
    comment: str,
    author: Author | None,
    newest: InstantTime,
) -> Timeline:
    """Name the current snapshot. `newest`: the greatest requested time of a commit, or EPOCH."""
    if (there := value.find_savepoint(name)) is not None:
        raise InvalidInputError(
            "a savepoint of this name exists already: use another name, or drop_savepoint the old one. "
            f"name={name} as_of={there.at}"
        )
    if len(value.savepoints) >= SAVEPOINTS_MAX:
        raise InvalidInputError(
            f"the table reached the maximum of {SAVEPOINTS_MAX} savepoints: drop_savepoint some. "
            f"oldest={[s.name for s in value.savepoints[:3]]}"
        )
    saved = tick_after(value.clock, wall_ms)
    marks = EPOCH if any(s.marks == newest for s in value.savepoints) else newest
    point = Savepoint(name, value.clock, saved, marks, value.version + 1, nonce, comment, author)
    return value.following(nonce, saved, savepoints=(*value.savepoints, point))


def unsave(value: Timeline, nonce: str, wall_ms: int, name: str) -> Timeline:
    left = tuple(s for s in value.savepoints if s.name != name)
    clock = tick_after(value.clock, wall_ms)
    return value.following(nonce, clock, savepoints=left)


def newest_commit(completions: Iterable[Completion]) -> InstantTime:
    return max((c.requested for c in completions if c.action in DATA_ACTIONS), default=EPOCH)


# --- the plan of a restore --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DroppedCommit:
    requested: InstantTime
    completed: InstantTime
    action: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Everything needed to carry out a restore.

    Attributes:
        to: commits completed by this time are kept.
        marks: requested time of the newest kept commit, or EPOCH.
        dropped: instants, the last completed first.
    """

    requested: InstantTime
    to: InstantTime
    marks: InstantTime
    dropped: tuple[DroppedCommit, ...]
    table_id: str | None = None

    def encode(self) -> bytes:
        return json.dumps(
            {
                "format": PLAN_FORMAT,
                "requested": self.requested,
                "to": self.to,
                "marks": self.marks,
                "table_id": self.table_id,
                "dropped": [[d.requested, d.completed, d.action, d.files] for d in self.dropped],
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> RestorePlan:
        with decoding_plan(data, path, "a plan of a restore", [PLAN_FORMAT]) as stored:
            dropped = tuple(DroppedCommit(t, c, action, _paths(files)) for t, c, action, files in stored["dropped"])
            plan = cls(stored["requested"], stored["to"], stored["marks"], dropped, stored["table_id"])
            require_types((plan, *dropped))
            return plan


def _paths(entries: Sequence[object]) -> tuple[str, ...]:
    """Check paths of data files: they are deleted, so a plan must name no other file or place."""
    for path in entries:
        if not isinstance(path, str) or data_file_name(path) is None or ".." in path.split("/") or path[0] == "/":
            raise TypeError(f"not a data file of the table: {path!r}")
    return tuple(str(path) for path in entries)


def is_dropped(completion: Completion, to: InstantTime) -> bool:
    return completion.completed > to and completion.action in DATA_ACTIONS


def plan_restore(
    value: Timeline,
    completions: Sequence[Completion],
    to: InstantTime,
    wall_ms: int,
    listed_paths: Collection[str],
    saved_paths: Collection[str] = (),
) -> RestorePlan:
    """Plan a restore to `to`, or raise if it is impossible.

    Args:
        completions: all known completions of `value`.
        listed_paths: paths of listed data files.
        saved_paths: paths in Hudi's own savepoints.
    """
    dropped = [c for c in completions if is_dropped(c, to)]
    kept = [c for c in completions if not is_dropped(c, to)]
    _require_kept(value, kept, to)
    _require_active(value, kept, dropped)
    _require_unsaved(value, dropped, saved_paths)
    _require_whole(kept, to, listed_paths)
    by_instant: dict[InstantTime, set[str]] = {c.requested: {file.path for file in c.files} for c in dropped}
    for path in listed_paths:
        name = data_file_name(path)
        if name is not None and name.instant in by_instant:
            by_instant[name.instant].add(path)
    ordered = sorted(dropped, key=lambda c: c.completed, reverse=True)
    return RestorePlan(
        begin_after(value.clock, wall_ms),
        to,
        newest_commit(kept),
        tuple(
            DroppedCommit(c.requested, c.completed, c.action, tuple(sorted(by_instant[c.requested]))) for c in ordered
        ),
        value.table_id,
    )


def _require_kept(value: Timeline, kept: Sequence[Completion], to: InstantTime) -> None:
    """Raise if files of the view may be gone, or the view was cut off.

    A savepoint's rows are never erased: a file group erased since then did not exist yet.
    """
    cut = Cut("completed", to)
    refuse_cut_off(value, cut, "to")
    is_saved = any(s.at == to for s in value.savepoints)
    if to < value.retention.since and not is_saved:
        raise SnapshotExpiredError(
            "a clean dropped the history of this moment: restore to a later moment, "
            f"or to a savepoint. to={to} oldest={value.retention.since} savepoints={[s.name for s in value.savepoints]}"
        )
    erased = [(group, since) for group, since in value.retention.groups if since > to]
    groups = {s.group for s in fold_slices([c for c in kept if cut.shows(c)])} if erased and is_saved else None
    for (partition, file_id), since in erased:
        if groups is None or (partition, file_id) in groups:
            raise SnapshotExpiredError(
                "rows were erased since that moment, with the history of their file group: restore to a later moment. "
                f"to={to} oldest={since} partition={partition!r} file_group={file_id}"
            )


def refuse_cut_off(value: Timeline, cut: Cut, name: str) -> None:
    restore = restore_hiding(value.restores, cut)
    if restore is not None:
        raise SnapshotExpiredError(
            "history was cut here: the table was restored to an earlier moment, and the commits in between are gone. "
            "Pass a moment up to `restored_to`, or after the restore. "
            f"{name}={cut.time} restored_to={restore.to} restored_at={restore.at}"
        )


def _require_unsaved(value: Timeline, dropped: Sequence[Completion], saved_paths: Collection[str]) -> None:
    first = min((c.completed for c in dropped), default=None)
    later = [s.name for s in value.savepoints if first is not None and s.at >= first]
    if later:
        raise InvalidInputError(
            "this restore would drop commits of savepoints: drop_savepoint them first, or "
            f"restore to the newest of them. savepoints={later}"
        )
    held = [file.path for c in dropped for file in c.files if file.path in saved_paths]
    if held:
        raise InvalidInputError(
            "this restore would drop files of a Hudi savepoint: delete the savepoint with Hudi first (call "
            f"delete_savepoint). files={len(held)} file={min(held)}"
        )


def _require_active(value: Timeline, kept: Sequence[Completion], dropped: Sequence[Completion]) -> None:
    """Raise if Hudi's readers would still see dropped commits from the history.

    They take archived instants for committed, and completed when requested. This holds only while a base file written
    after the completion exists.
    """
    watermark = value.archive.watermark
    archived = [c for c in dropped if c.requested <= watermark]
    bases = newest_bases(kept)
    bare = [
        c
        for c in kept
        if c.requested <= watermark and c.action == DELTA_COMMIT
        if any(not f.is_base and bases.get(f.group, "") <= c.completed for f in c.files)
    ]
    if archived or bare:
        raise UnsupportedFeatureError(
            "commits to drop, or commits that depend on them, are archived, and Hudi's readers would still show them: "
            "restore to a later moment. A savepoint stops archiving and keeps its moment restorable. "
            f"archived_until={watermark} instants={[c.requested for c in (*archived, *bare)][:3]}"
        )
    shared = [c for c in dropped if c.adopted for f in c.files if not f.is_base and f.name.instant != c.requested]
    if shared:
        raise UnsupportedFeatureError(
            "a commit to drop shares log files with other commits, as in Hudi before version 8: "
            f"restore to a later moment. instant={shared[0].requested}"
        )


def _require_whole(kept: Sequence[Completion], to: InstantTime, listed_paths: Collection[str]) -> None:
    cut = Cut("completed", to)
    for slice_ in fold_slices([c for c in kept if cut.shows(c)]):
        for file in slice_.files:
            if file.path not in listed_paths:
                raise SnapshotExpiredError(
                    "a data file of this moment is missing: Hudi's cleaner or a user removed it. "
                    "Restore to a later moment, or put the file back from a backup. "
                    f"to={to} file={file.path}"
                )


# --- the event --------------------------------------------------------------------------------------------------------


def restored(
    value: Timeline,
    nonce: str,
    attempt: str,
    plan: RestorePlan,
    path: str,
    completions: Sequence[Completion],
    segments: Sequence[Segment],
    author: Author | None,
    buckets: int | None,
    active: Collection[InstantTime],
) -> Timeline:
    """Return the value that shows the table as of `plan.to`.

    Args:
        attempt: of the attempt to publish, in the plan's `path`.
        completions: all known completions of `value`.
        segments: without dropped completions.
        active: requested times in Hudi's active timeline.
    """
    version = value.version + 1
    dropped = [c for c in completions if is_dropped(c, plan.to)]
    kept = [c for c in completions if not is_dropped(c, plan.to)]
    fresh: list[Completion] = []
    clock = plan.requested
    done = tick_after(clock, 0)
    fresh.append(Completion(plan.requested, done, version, attempt, RESTORE, "RESTORE", author=author))
    if _schema_is_lost(kept, dropped, active):
        clock = begin_after(done, 0)
        done = tick_after(clock, 0)
        fresh.append(Completion(clock, done, version, attempt, DELTA_COMMIT, "ALTER_SCHEMA", author=author))
    restore = Restore(
        to=plan.to,
        at=done,
        version=version,
        nonce=nonce,
        path=path,
        first=min((c.completed for c in dropped), default=done),
        first_version=min((c.version for c in dropped), default=version),
        first_requested=min((c.requested for c in dropped), default=done),
        count=len(dropped),
    )
    given_up = [RolledBack(p.requested, p.nonce, version) for p in value.pending]
    given_up += [RolledBack(p.barrier, p.nonce, version, p.action) for p in value.plans]
    groups = live_groups(kept, buckets)
    return value.following(
        nonce,
        done,
        file_ids=groups.file_ids,
        foreign_group=groups.foreign,
        pending=(),
        plans=(),
        overwrites=(),
        rolled_back=(*value.rolled_back, *given_up),
        completions=(*(c for c in value.completions if not is_dropped(c, plan.to)), *fresh),
        segments=tuple(segments),
        tokens=Tokens(tuple(_tokens(value, kept, restore))),
        restores=(*value.restores, restore),
        rules=after_restore(value.rules, nonce),
    )


def _schema_is_lost(kept: Sequence[Completion], dropped: Sequence[Completion], active: Collection[InstantTime]) -> bool:
    """Return True if Hudi's readers would find no commit with the table's schema.

    Hudi's Spark reader would take the table for empty.
    """
    is_altered = any(c.adopted or c.operation == "ALTER_SCHEMA" for c in dropped)
    left = any(c.action in DATA_ACTIONS and c.requested in active for c in kept)
    return bool(dropped) and (is_altered or not left)


UNKNOWN: Final = EPOCH
"""Requested time of a token if its last kept number is unknown."""


def _tokens(value: Timeline, kept: Sequence[Completion], restore: Restore) -> Iterable[Token]:
    """Yield each application's last token in a kept commit.

    If that commit may be forgotten, or an earlier release noted no tokens, no number up to the dropped token is
    accepted.
    """
    last: dict[str, tuple[Completion, int]] = {}
    for completion in sorted(kept, key=lambda c: c.completed):
        last |= {application: (completion, number) for application, number in completion.tokens}
    forgotten = value.retention.dropped if value.retention.dropped_count else EPOCH
    for token in value.tokens:
        if token.completed <= restore.to:
            yield token
            continue
        found, number = last.get(token.application, (None, 0))
        if found is not None and found.completed > forgotten:
            yield Token(token.application, number, found.requested, found.completed, found.version)
        elif found is not None or forgotten != EPOCH or value.tokens_noted != EPOCH or token.requested == UNKNOWN:
            yield Token(token.application, token.number, UNKNOWN, restore.at, restore.version)

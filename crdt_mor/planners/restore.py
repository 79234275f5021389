"""Restoring a table to what it showed at a moment: the pure planner, its frozen plan, and the event.

    kept        what was completed by then; and cleans and rollbacks of any time, which hold no data
    dropped     every other completion, with its files
    given up    every pending write and every open plan
    tokens      of each application the last one that a kept commit carries, so that what was dropped may be written
                again

The schema stays, as it only grows: where a dropped commit brought it, or none is left in Hudi's active timeline that
its readers would take it from, the event has a commit without files that does. Times are never used again.

What cannot be restored is refused before anything is published: a moment whose files a clean or an erasure has removed;
one that an earlier restore has cut off; one that would drop what a savepoint shows; and one from before what Hudi's
archived timeline holds, as Hudi's readers would go on to take the dropped instants there for committed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from crdt_mor.errors import FormatError, InvalidInputError, SnapshotExpiredError, UnsupportedFeatureError
from crdt_mor.model.authors import Author
from crdt_mor.model.cut import Cut
from crdt_mor.model.file_ids import live_groups
from crdt_mor.model.instant import EPOCH, InstantTime, begin_after, tick_after
from crdt_mor.model.names import DATA_ACTIONS, DELTA_COMMIT, data_file_name
from crdt_mor.model.restore import Restore, restore_hiding
from crdt_mor.model.rules import after_restore
from crdt_mor.model.savepoint import SAVEPOINTS_MAX, Savepoint
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import WRONG_SHAPE, require_types
from crdt_mor.model.timeline_parts import Completion, RolledBack, Segment, Token
from crdt_mor.planners.archive import newest_bases

RESTORE: Final = "restore"
"""The action of a restore: Hudi's word, in the value and in the names of its timeline's files."""

PLAN_FORMAT: Final = 1
"""Version of the JSON of a restore's plan."""

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
    """What the table shows now has this name. newest: the greatest requested time of a commit; EPOCH: there is none."""
    if (there := value.find_savepoint(name)) is not None:
        raise InvalidInputError(
            "the table has a savepoint of this name already: take another name, or drop_savepoint the old one. "
            f"name={name} as_of={there.at}"
        )
    if len(value.savepoints) >= SAVEPOINTS_MAX:
        raise InvalidInputError(
            f"a table has at most {SAVEPOINTS_MAX} savepoints: drop_savepoint some. "
            f"oldest={[s.name for s in value.savepoints[:3]]}"
        )
    saved = tick_after(value.clock, wall_ms)
    marks = EPOCH if any(s.marks == newest for s in value.savepoints) else newest
    point = Savepoint(name, value.clock, saved, marks, value.version + 1, nonce, comment, author)
    return value.following(nonce, saved, savepoints=(*value.savepoints, point))


def unsave(value: Timeline, nonce: str, wall_ms: int, name: str) -> Timeline:
    """The savepoint of this name is gone; what it showed stays as long as anything else needs it."""
    left = tuple(s for s in value.savepoints if s.name != name)
    clock = tick_after(value.clock, wall_ms)
    return value.following(nonce, clock, savepoints=left)


def newest_commit(completions: Iterable[Completion]) -> InstantTime:
    """The greatest requested time of what holds data, which Hudi's savepoint marks; EPOCH: there is none."""
    return max((c.requested for c in completions if c.action in DATA_ACTIONS), default=EPOCH)


# --- the plan of a restore --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dropped:
    """An instant that a restore drops.

    action: Hudi's word in the name of its completed file. files: the paths of its data files.
    """

    requested: InstantTime
    completed: InstantTime
    action: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Everything that a process needs to carry out a restore.

    requested: of the restore. to: what was completed by this time is kept. marks: the requested time of the newest
    commit that is kept; EPOCH: none is. dropped: the one that was completed last comes first.
    """

    requested: InstantTime
    to: InstantTime
    marks: InstantTime
    dropped: tuple[Dropped, ...]
    table_id: str | None = None

    def encode(self) -> bytes:
        """JSON, a short list for each instant."""
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
        """The plan in an object; raises `FormatError` naming `path`."""
        try:
            stored = json.loads(data)
            if stored["format"] != PLAN_FORMAT:
                raise FormatError(f"a plan of a newer release; upgrade crdt-mor. file={path} format={stored['format']}")
            dropped = tuple(Dropped(t, c, action, _paths(files)) for t, c, action, files in stored["dropped"])
            plan = cls(stored["requested"], stored["to"], stored["marks"], dropped, stored["table_id"])
            require_types((plan, *dropped))
            return plan
        except WRONG_SHAPE as error:
            raise FormatError(f"not a plan of a restore: {error!r}. file={path}") from error


def _paths(entries: Sequence[object]) -> tuple[str, ...]:
    """Paths of data files. What a plan names is deleted, so it must not name anything else, nor lie elsewhere."""
    for path in entries:
        if not isinstance(path, str) or data_file_name(path) is None or ".." in path.split("/") or path[0] == "/":
            raise TypeError(f"not a data file of the table: {path!r}")
    return tuple(str(path) for path in entries)


def is_dropped(completion: Completion, to: InstantTime) -> bool:
    """Whether a restore to this time drops a completion: it holds data, and came later."""
    return completion.completed > to and completion.action in DATA_ACTIONS


def plan_restore(
    value: Timeline,
    completions: Sequence[Completion],
    to: InstantTime,
    wall_ms: int,
    there: Collection[str],
    saved: Collection[str] = (),
) -> RestorePlan:
    """The plan that follows from a value and a listing; raises where the table cannot be restored to `to`.

    completions: all that are known of `value`. there: the paths of the data files that a listing found.
    saved: the paths that savepoints of Hudi's own name.
    """
    dropped = [c for c in completions if is_dropped(c, to)]
    kept = [c for c in completions if not is_dropped(c, to)]
    _require_kept(value, kept, to)
    _require_active(value, kept, dropped)
    _require_unsaved(value, dropped, saved)
    _require_whole(kept, to, there)
    by_instant: dict[InstantTime, set[str]] = {c.requested: {file.path for file in c.files} for c in dropped}
    for path in there:
        name = data_file_name(path)
        if name is not None and name.instant in by_instant:
            by_instant[name.instant].add(path)
    ordered = sorted(dropped, key=lambda c: c.completed, reverse=True)
    return RestorePlan(
        begin_after(value.clock, wall_ms),
        to,
        newest_commit(kept),
        tuple(Dropped(c.requested, c.completed, c.action, tuple(sorted(by_instant[c.requested]))) for c in ordered),
        value.table_id,
    )


def _require_kept(value: Timeline, kept: Sequence[Completion], to: InstantTime) -> None:
    """Raise where the files of the view as of `to` may be gone, or the view itself was cut off.

    What a savepoint shows is never erased: a file group that was, since then, did not exist yet.
    """
    cut = Cut("completed", to)
    refuse_cut_off(value, cut, "to")
    is_saved = any(s.at == to for s in value.savepoints)
    if to < value.retention.since and not is_saved:
        raise SnapshotExpiredError(
            "the table no longer keeps history from so long ago, a clean has given it up: restore to a later moment, "
            f"or to a savepoint. to={to} oldest={value.retention.since} savepoints={[s.name for s in value.savepoints]}"
        )
    erased = [(group, since) for group, since in value.retention.groups if since > to]
    there = {s.group for s in fold_slices([c for c in kept if cut.shows(c)])} if erased and is_saved else None
    for (partition, file_id), since in erased:
        if there is None or (partition, file_id) in there:
            raise SnapshotExpiredError(
                "rows were erased since that moment, with the history of their file group, so that the table cannot be "
                "restored to it, and they do not come back: restore to a later moment. "
                f"to={to} oldest={since} partition={partition!r} file_group={file_id}"
            )


def refuse_cut_off(value: Timeline, cut: Cut, name: str) -> None:
    """Raise `SnapshotExpiredError` for a cut that shows what a restore has dropped. name: what users call the point."""
    restore = restore_hiding(value.restores, cut)
    if restore is not None:
        raise SnapshotExpiredError(
            "history was cut here: the table was restored to an earlier moment, and what was committed between the two "
            "is gone. Ask for a moment up to the one that it was restored to, or after the restore. "
            f"{name}={cut.time} restored_to={restore.to} restored_at={restore.at}"
        )


def _require_unsaved(value: Timeline, dropped: Sequence[Completion], saved: Collection[str]) -> None:
    """Raise where savepoints show what would be dropped."""
    first = min((c.completed for c in dropped), default=None)
    later = [s.name for s in value.savepoints if first is not None and s.at >= first]
    if later:
        raise InvalidInputError(
            "savepoints show commits that this restore would drop: drop_savepoint them first if they may go, or "
            f"restore to the newest of them. savepoints={later}"
        )
    held = [file.path for c in dropped for file in c.files if file.path in saved]
    if held:
        raise InvalidInputError(
            "a savepoint that Hudi has made keeps files that this restore would drop: delete it with Hudi first (call "
            f"delete_savepoint). files={len(held)} file={min(held)}"
        )


def _require_active(value: Timeline, kept: Sequence[Completion], dropped: Sequence[Completion]) -> None:
    """Raise where Hudi's readers would answer wrongly afterwards, as the history holds what they are to forget.

    They take every instant in it for committed, and each for completed when it was requested: that is as good as true
    only as long as a base file is there that was written after its completion.
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
            "what would be dropped, or what depends on it, has left Hudi's active timeline already, and Hudi's readers "
            "would go on to show it: restore to a later moment. A savepoint that is made in time keeps the table "
            "restorable to it, since archiving stops there. "
            f"archived_until={watermark} instants={[c.requested for c in (*archived, *bare)][:3]}"
        )
    shared = [c for c in dropped if c.adopted for f in c.files if not f.is_base and f.name.instant != c.requested]
    if shared:
        raise UnsupportedFeatureError(
            "a commit that would be dropped has appended to log files of other commits, as Hudi did before version 8: "
            f"restore to a later moment. instant={shared[0].requested}"
        )


def _require_whole(kept: Sequence[Completion], to: InstantTime, there: Collection[str]) -> None:
    """Raise where a file of the restored table is missing."""
    cut = Cut("completed", to)
    for slice_ in fold_slices([c for c in kept if cut.shows(c)]):
        for file in slice_.files:
            if file.path not in there:
                raise SnapshotExpiredError(
                    "the table cannot go back to this moment, as a data file that it showed then is gone: Hudi's "
                    "cleaner removed it, or a user did. Restore to a later moment, or put the file back from a backup. "
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
    """The table shows what it showed at `plan.to`. The plan stands at `path`.

    nonce: of the event. attempt: of the attempt to publish it, which the path of the plan bears.
    completions: all that are known of `value`. segments: those of it without what is dropped. buckets: of the table.
    active: the requested times that stand in Hudi's active timeline, from which Hudi may have archived some.
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
        tokens=tuple(_tokens(value, kept, restore)),
        restores=(*value.restores, restore),
        rules=after_restore(value.rules, nonce),
    )


def _schema_is_lost(kept: Sequence[Completion], dropped: Sequence[Completion], active: Collection[InstantTime]) -> bool:
    """Whether Hudi's readers would find no commit with the table's schema any more.

    Its Spark reader takes a table without any commit in its active timeline for an empty one.
    """
    brought = any(c.adopted or c.operation == "ALTER_SCHEMA" for c in dropped)
    left = any(c.action in DATA_ACTIONS and c.requested in active for c in kept)
    return bool(dropped) and (brought or not left)


UNKNOWN: Final = EPOCH
"""In the place of a token's requested time: which number the kept commits end with is not known."""


def _tokens(value: Timeline, kept: Sequence[Completion], restore: Restore) -> Iterable[Token]:
    """The tokens after a restore: of each application the last one that a kept commit carries.

    Where the last one may have been carried by a commit that the value does not know any more, or was written by a
    release that noted none, no number up to the dropped one is taken.
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

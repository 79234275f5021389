"""The timeline: an immutable value that lists a table's commits, and the transitions between versions.

    begin ──► pending ──► complete ──► completion          one terminal event per instant:
                 │                                          only a value with the pending instant
                 └──────► roll_back ─► rolled back ─► sweep       can derive `complete` or `roll_back`
    commit ─────────────────────────────► completion          of small writes in one event, never pending
    schedule ──► plan ──► complete_plan | cancel_plan         for every service
    overwrite                      see `planners.overwrite`
    rules                          see `events.rules`
    save, unsave, restored         see `planners.restore`
    altered                        see `model.alteration_event`
    moving_to, closed, arriving, opened    see `planners.migration`
    handed_over, taken_back        see `events.handover`

Every transition returns version + 1, with a clock at least two milliseconds later and the event's nonce. Transitions do
no I/O and read no clock. `log.publish` puts each version if absent, which gives all events a total order. Requested and
completion times are unique and strictly increasing in this order, whatever the wall clocks say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from crdt_mor.errors import FormatError, TableNotFoundError, UnsupportedVersionError
from crdt_mor.model.alteration import Shown, with_added
from crdt_mor.model.authors import Author
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.field_ids import numbered
from crdt_mor.model.file_ids import LiveGroups
from crdt_mor.model.instant import EPOCH, InstantTime, barrier_after, begin_after, from_ms, tick_after
from crdt_mor.model.names import ALTER_SCHEMA, DELTA_COMMIT, ROLLBACK
from crdt_mor.model.overwrite import still_noted
from crdt_mor.model.posts import Member, PostName, noting, still_kept
from crdt_mor.model.table_properties import Properties
from crdt_mor.model.timeline_fields import document_of, fields_in, require_shape
from crdt_mor.model.timeline_json import DROPPED, FORMAT, FORMATS_READ, WRONG_SHAPE, beginnings
from crdt_mor.model.timeline_parts import (
    Archive,
    Completion,
    DataFile,
    OpenPlan,
    Pending,
    Retention,
    RolledBack,
    Segment,
    with_replaced,
)
from crdt_mor.model.timeline_value import Value
from crdt_mor.model.tokens import Tokens

COMPLETIONS_MAX = 16
"""Completions in a value. Above it, older ones are sealed into a segment."""

COMPLETIONS_BYTES_MAX = 1 << 16
"""Approximate bytes of completions in a value. The next event seals a commit of many file groups."""

SEGMENTS_MAX = 16
"""Segments of one level. Above it, they are rolled up into the next level."""


@dataclass(frozen=True)
class Timeline(Value):
    @classmethod
    def genesis(cls, schema: str, table_id: str | None = None) -> Self:
        """Return version 0. It depends only on the table's properties, so any process may put it."""
        return cls(0, table_id or "genesis", EPOCH, schema, table_id=table_id)

    # --- transitions --------------------------------------------------------------------------------------------

    def following(self, nonce: str, clock: InstantTime, **changes: Any) -> Timeline:
        """Return the next version. Every transition calls this method.

        Drop overwrites that void no pending write any more, and posts too old for later versions. Another schema is in
        no object yet.
        """
        following = replace(self, version=self.version + 1, nonce=nonce, clock=clock, format=FORMAT, **changes)
        if following.schema != self.schema:
            following = replace(following, schema_object=None)
        if following.posts:
            following = replace(following, posts=still_kept(following.posts, following.version))
        if not following.overwrites:
            return following
        oldest = min((p.requested for p in following.pending), default=None)
        return replace(following, overwrites=still_noted(following.overwrites, oldest))

    def begin(
        self, nonce: str, wall_ms: int, store_ms: int | None = None, author: Author | None = None,
        declared: Declared = ANYTHING,
    ) -> Timeline:  # fmt: skip
        """Begin a write; its requested time is the new clock. `store_ms`: the store's clock just before."""
        requested = begin_after(self.clock, wall_ms)
        begun = Pending(requested, nonce, self.version + 1, store_ms, author=author, declared=declared)
        return self.following(nonce, requested, pending=(*self.pending, begun))

    def hand_over(
        self, nonce: str, wall_ms: int, requested: InstantTime, driver: str, author: Author | None = None
    ) -> Timeline:
        """Give a pending write to `driver`. From now on no other driver can complete it."""
        old = self.find_pending(requested)
        assert old is not None, "rule 1: only a pending instant can be completed by anybody"
        new = replace(old, driver=driver, drivers=old.drivers + 1, author=author or old.author)
        pending = tuple(new if p is old else p for p in self.pending)
        return self.following(nonce, tick_after(self.clock, wall_ms), pending=pending)

    def complete(
        self,
        nonce: str,
        wall_ms: int,
        requested: InstantTime,
        operation: str,
        files: Sequence[DataFile],
        token: tuple[str, int] | None = None,
    ) -> Timeline:
        old = self.find_pending(requested)
        assert old is not None, "rule 1: only a pending instant can complete"
        completion = Completion(
            requested, tick_after(self.clock, wall_ms), self.version + 1, old.nonce, DELTA_COMMIT, operation,
            tuple(files), driver=old.driver, author=old.author, token=token,
        )  # fmt: skip
        return self._committed(nonce, completion, tuple(p for p in self.pending if p is not old))

    def commit(
        self,
        nonce: str,
        wall_ms: int,
        requested: InstantTime,
        claim: str,
        operation: str,
        files: Sequence[DataFile],
        token: tuple[str, int] | None = None,
        author: Author | None = None,
        members: Sequence[Member] = (),
    ) -> Timeline:
        """Begin and commit a write in one event, at its claimed time after the clock.

        claim: the nonce of the claim. members: of a commit of several writers; their posts count as taken.
        """
        completion = Completion(
            requested, tick_after(requested, wall_ms), self.version + 1, claim, DELTA_COMMIT, operation, tuple(files),
            author=author, token=token, members=tuple(members),
        )  # fmt: skip
        taken = [member.post for member in members if member.post is not None]
        posts = noting(self.posts, taken) if taken else self.posts
        return self._committed(nonce, completion, self.pending, posts=posts)

    def void(self, nonce: str, wall_ms: int, posts: Iterable[PostName]) -> Timeline:
        """Prevent later versions from taking these posts. Posts already taken stay taken."""
        voided = [post for post in posts if self.may_take(post)]
        return self.following(nonce, tick_after(self.clock, wall_ms), posts=noting(self.posts, voided))

    def _committed(self, nonce: str, completion: Completion, pending: tuple[Pending, ...], **changes: Any) -> Timeline:
        return self.following(
            nonce,
            completion.completed,
            pending=pending,
            completions=(*self.completions, completion),
            tokens=self.tokens.after(completion),
            **changes,
        )

    def roll_back(self, nonce: str, wall_ms: int, requested: InstantTime) -> Timeline:
        """Roll back a write for good. Remove its files only once this version is known to stand."""
        old = self.find_pending(requested)
        assert old is not None, "rule 1: only a pending instant can be rolled back"
        rolled_back = RolledBack(requested, old.nonce, self.version + 1)
        return self.following(
            nonce,
            tick_after(self.clock, wall_ms),
            pending=tuple(p for p in self.pending if p is not old),
            rolled_back=(*self.rolled_back, rolled_back),
        )

    def grow(
        self, nonce: str, wall_ms: int, schema: str, author: Author | None = None, shown: Shown = None
    ) -> Timeline:
        """Replace the schema by an empty delta commit. For `shown` see `with_added`."""
        schema = numbered(self.schema, schema)
        requested = begin_after(self.clock, wall_ms)
        done = tick_after(requested, wall_ms)
        grown = Completion(requested, done, self.version + 1, nonce, DELTA_COMMIT, ALTER_SCHEMA, author=author)
        added = self._with_added(schema)
        return self.following(
            nonce, done, schema=schema, added=added, completions=(*self.completions, grown),
            alterations=with_added(self.alterations, done, added[len(self.added) :], shown),
        )  # fmt: skip

    def _with_added(self, schema: str) -> tuple[str, ...]:
        """Append the new columns to `added`. A table's first schema adds none."""
        before, after = ([name for name, *_ in json.loads(text)] for text in (self.schema, schema))
        known = {*before}
        return (*self.added, *(name for name in after if known and name not in known))

    @property
    def next_barrier(self) -> InstantTime:
        return barrier_after(self.clock)

    def schedule(
        self, nonce: str, wall_ms: int, action: str, path: str, retention: Retention | None = None
    ) -> Timeline:
        """Open the plan at `path` under `next_barrier`. None of its file groups may be in another open plan.

        retention: the new marks, if the plan is a clean.
        """
        barrier = self.next_barrier
        plan = OpenPlan(barrier, nonce, self.version + 1, path, action)
        kept = retention or self.retention
        return self.following(nonce, tick_after(barrier, wall_ms), plans=(*self.plans, plan), retention=kept)

    def complete_plan(
        self,
        nonce: str,
        wall_ms: int,
        barrier: InstantTime,
        action: str,
        operation: str,
        files: Sequence[DataFile],
        author: Author | None = None,
        droppable: InstantTime | None = None,
    ) -> Timeline:
        """Complete an open plan. Readers now use its files instead of the replaced ones.

        droppable: commits for views before this time may be dropped from the value, see `planners.packing`.
        """
        plan = self.find_plan(barrier)
        assert plan is not None, "rule 1: only an open plan can complete"
        completed = tick_after(self.clock, wall_ms)
        completion = Completion(
            barrier, completed, self.version + 1, plan.nonce, action, operation, tuple(files), author=author
        )
        return self.following(
            nonce,
            completed,
            plans=tuple(p for p in self.plans if p is not plan),
            completions=(*self.completions, completion),
            retention=replace(self.retention, dropped=max(self.retention.dropped, droppable or EPOCH)),
        )

    def cancel_plan(self, nonce: str, wall_ms: int, barrier: InstantTime) -> Timeline:
        plan = self.find_plan(barrier)
        assert plan is not None, "rule 1: only an open plan can be cancelled"
        rolled_back = RolledBack(barrier, plan.nonce, self.version + 1, plan.action)
        return self.following(
            nonce,
            tick_after(self.clock, wall_ms),
            plans=tuple(p for p in self.plans if p is not plan),
            rolled_back=(*self.rolled_back, rolled_back),
        )

    def sweep(self, nonce: str, wall_ms: int, store_ms: int, forgotten: Iterable[InstantTime]) -> Timeline:
        """Forget rolled-back instants, after a listing showed that their files are gone.

        The event adds a rollback for each forgotten write, to inform Hudi.
        """
        times = set(forgotten)
        clock, told = self.clock, []
        for gone in (r for r in self.rolled_back if r.requested in times and not r.is_plan):
            requested = begin_after(clock, wall_ms)
            clock = tick_after(requested, wall_ms)
            told.append(
                Completion(requested, clock, self.version + 1, nonce, ROLLBACK, "ROLLBACK", undone=gone.requested)
            )
        return self.following(
            nonce,
            clock if told else tick_after(clock, wall_ms),
            rolled_back=tuple(r for r in self.rolled_back if r.requested not in times),
            completions=(*self.completions, *told),
            swept=from_ms(store_ms),
        )

    def decide(self, nonce: str, moment_ms: int) -> Timeline:
        """Move the clock to a moment that the store's clock has passed. Later completions get later times."""
        return self.following(nonce, tick_after(self.clock, moment_ms))

    def set_properties(self, nonce: str, wall_ms: int, properties: Properties) -> Timeline:
        return self.following(nonce, tick_after(self.clock, wall_ms), properties=properties)

    def retain(self, nonce: str, wall_ms: int, retention: Retention) -> Timeline:
        return self.following(nonce, tick_after(self.clock, wall_ms), retention=retention)

    def archive_until(
        self, nonce: str, wall_ms: int, watermark: InstantTime, count: int, files: Sequence[str]
    ) -> Timeline:
        """Move the instants up to the watermark from Hudi's active timeline to its history.

        files: all data files of the history afterwards, oldest first.
        """
        archive = Archive(
            watermark, self.archive.watermark, self.version + 1, self.archive.count + count, self.archive.manifest + 1,
            tuple(files),
        )  # fmt: skip
        return self.following(nonce, tick_after(self.clock, wall_ms), archive=archive)

    def forget_tokens(self, nonce: str, wall_ms: int, since: InstantTime) -> Timeline:
        """Forget applications without a commit since this time."""
        tokens = Tokens(tuple(t for t in self.tokens if t.completed >= since))
        return self.following(nonce, tick_after(self.clock, wall_ms), tokens=tokens, tokens_since=since)

    def adopt(
        self,
        nonce: str,
        wall_ms: int,
        completions: Sequence[Completion],
        schema: str,
        groups: LiveGroups,
        cancelled: Sequence[OpenPlan] = (),
    ) -> Timeline:
        """Add instants that Hudi wrote, and move the clock past them. A plan that Hudi executed ends.

        Their replaced file groups become void for earlier pending writes. cancelled: open plans that would hide adopted
        rows.
        """
        adopted = tuple(replace(c, version=self.version + 1, adopted=True) for c in completions)
        done = {c.requested for c in adopted}
        lost = (RolledBack(p.barrier, p.nonce, self.version + 1, p.action) for p in cancelled)
        return self.following(
            nonce,
            tick_after(max([self.clock, *(c.completed for c in adopted)]), wall_ms),
            schema=schema if schema == self.schema else numbered(self.schema, schema),
            added=self._with_added(schema),
            plans=tuple(p for p in self.plans if p not in cancelled and p.barrier not in done),
            rolled_back=tuple(r for r in (*self.rolled_back, *lost) if r.requested not in done),
            completions=(*self.completions, *adopted),
            overwrites=with_replaced(self.overwrites, adopted),
            file_ids=groups.file_ids,
            foreign_group=groups.foreign,
        )

    def sealed(
        self, segments: Sequence[Segment], moved: Iterable[Completion], retention: Retention | None = None
    ) -> Timeline:
        """Return this version with the completions `moved` in `segments`."""
        times = {c.requested for c in moved}
        return replace(
            self,
            segments=tuple(segments),
            completions=tuple(c for c in self.completions if c.requested not in times),
            retention=retention or self.retention,
        )

    # --- bytes --------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        value = self if self.schema_object is None else replace(self, schema="")
        return json.dumps({"format": FORMAT, **document_of(value)}, separators=(",", ":")).encode()

    def is_in(self, data: bytes) -> bool:
        """Return True if `data` is this version, from the number and nonce at its start."""
        return data.startswith(beginnings(self.version, self.nonce))

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        """Decode an object's bytes; raise `FormatError` with `path` if they are invalid.

        Raises `TableNotFoundError` for the last version of a dropped table.
        """
        if data == DROPPED:
            raise TableNotFoundError(
                "this table was dropped. If the drop was interrupted, run crdt-mor drop again; if others need the "
                f"rows, restore a copy. file={path}"
            )
        try:
            document = json.loads(data)
            if document["format"] not in FORMATS_READ:
                raise UnsupportedVersionError(
                    f"this table's timeline was written by a newer release; upgrade crdt-mor. "
                    f"file={path} format={document['format']} supported={list(FORMATS_READ)}"
                )
            value = cls(**fields_in(document), format=document["format"])
            require_shape(value)
        except WRONG_SHAPE as error:
            raise FormatError(f"not a timeline value, restore it from a backup: {error!r}. file={path}") from error
        if not value.is_in(data):  # else a check of whether it still stands would never end
            raise FormatError(f"not a timeline value of any release: restore it from a backup. file={path}")
        return value

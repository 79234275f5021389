"""The timeline: one immutable value that says what is committed.

    begin ──► pending ──► complete ──► completion          one terminal event per instant:
                 │                                          `complete` and `roll_back` are derived only from
                 └──────► roll_back ─► rolled back ─► sweep       a value in which the instant is pending
    commit ─────────────────────────────► completion          of small writes in one event: they never were pending
    void                  posts, small writes put down for others to commit, are never taken
    schedule ──► plan ──► complete_plan | cancel_plan                of any service; compaction is one
    overwrite             a pending write replaces the rows of a scope, see `planners.overwrite`
    decide                nothing but the clock                      for readers that ask what a moment showed
    set_properties        what users have noted of the table
    ruled                 what every row fulfils that is written, in `planners.rules`
    retain                only which history is kept; a clean that removes files says it with its plan
    archive_until         instants leave Hudi's active timeline for its history
    forget_tokens         applications that have not written for long are forgotten
    save, unsave          what the table shows now gets a name, or loses it      } in
    restored              what was committed after a moment is dropped          } `planners.restore`
    altered               columns get other names, or are not shown any more, see `model.alteration_event`
    moving_to, closed     a migration to another table  } in
    arriving, opened      one from another table        } `planners.migration`
    handed_over, taken_back   Hudi's writers have the table, see `planners.handover`

Every transition returns the next value: version + 1, a clock moved on by at least two milliseconds, the nonce of the
event that made it. Nothing here does I/O or asks for the time; `log.publish` publishes one value after another by
put-if-absent, which puts all events of a table in one total order. So requested and completion times are unique and
strictly increasing in that order, whatever the wall clocks of the writers say.

The value stays small. Completions older than the last few are moved to *segments*, immutable objects that the value
only names; a commit of many files is in one at once. Segments are rolled up sixteen to one, and a clean drops those
that no view needs any more (`planners.packing`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from crdt_mor.errors import FormatError, UnsupportedVersionError
from crdt_mor.model.alteration import Shown, with_added
from crdt_mor.model.authors import Author
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.file_ids import LiveGroups
from crdt_mor.model.instant import EPOCH, InstantTime, barrier_after, begin_after, from_ms, tick_after
from crdt_mor.model.names import ALTER_SCHEMA, DELTA_COMMIT, ROLLBACK
from crdt_mor.model.overwrite import still_noted, with_replaced
from crdt_mor.model.posts import Member, PostName, noting, still_kept
from crdt_mor.model.table_properties import Properties
from crdt_mor.model.timeline_fields import document_of, fields_in, require_shape
from crdt_mor.model.timeline_json import FORMAT, FORMATS_READ, WRONG_SHAPE, beginnings
from crdt_mor.model.timeline_parts import (
    Archive,
    Completion,
    DataFile,
    OpenPlan,
    Pending,
    Retention,
    RolledBack,
    Segment,
    Token,
)
from crdt_mor.model.timeline_value import Value

COMPLETIONS_MAX = 16
"""Completions that a value carries itself; from there on the older ones are sealed into a segment."""

COMPLETIONS_BYTES_MAX = 1 << 16
"""Bytes of completions that a value carries itself, about: a commit of many file groups is sealed by the next event."""

SEGMENTS_MAX = 16
"""Segments of one level that a value names; from there on they are rolled up into the next level."""


@dataclass(frozen=True)
class Timeline(Value):
    """One version of the timeline, and the versions that may follow it."""

    @classmethod
    def genesis(cls, schema: str, table_id: str | None = None) -> Self:
        """The value before the first event: of the table's properties alone, so anyone may put it, with a nonce."""
        return cls(0, table_id or "genesis", EPOCH, schema, table_id=table_id)

    # --- transitions --------------------------------------------------------------------------------------------

    def following(self, nonce: str, clock: InstantTime, **changes: Any) -> Timeline:
        """The next value: every transition makes it here. changes: the fields that differ, beside version and clock.

        The overwrites that void nothing pending any more are forgotten, and so are posts that no version could take.
        """
        following = replace(self, version=self.version + 1, nonce=nonce, clock=clock, format=FORMAT, **changes)
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
        """A new write is pending; its requested time is the new clock. `store_ms`: the store's clock, as just asked."""
        requested = begin_after(self.clock, wall_ms)
        begun = Pending(requested, nonce, self.version + 1, store_ms, author=author, declared=declared)
        return self.following(nonce, requested, pending=(*self.pending, begun))

    def hand_over(
        self, nonce: str, wall_ms: int, requested: InstantTime, driver: str, author: Author | None = None
    ) -> Timeline:
        """From here on `driver` alone may complete a pending write: what it read of other drivers' work is final."""
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
        """A pending write is committed, all its files at once."""
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
        """A write that has claimed its requested time, which is later than the clock, begins and is committed.

        claim: the nonce of its claim. members: of a commit of several writers, the part of each; their posts are taken.
        """
        completion = Completion(
            requested, tick_after(requested, wall_ms), self.version + 1, claim, DELTA_COMMIT, operation, tuple(files),
            author=author, token=token, members=tuple(members),
        )  # fmt: skip
        taken = [member.post for member in members if member.post is not None]
        return self._committed(nonce, completion, self.pending, posts=noting(self.posts, taken))

    def void(self, nonce: str, wall_ms: int, posts: Iterable[PostName]) -> Timeline:
        """Of these posts those that nobody has taken are never taken from here on."""
        voided = [post for post in posts if self.may_take(post)]
        return self.following(nonce, tick_after(self.clock, wall_ms), posts=noting(self.posts, voided))

    def _committed(self, nonce: str, completion: Completion, pending: tuple[Pending, ...], **changes: Any) -> Timeline:
        """The value with one more completion, which the clock reaches and whose tokens count from now on."""
        return self.following(
            nonce,
            completion.completed,
            pending=pending,
            completions=(*self.completions, completion),
            tokens=self.tokens_after(completion),
            **changes,
        )

    def tokens_after(self, completion: Completion) -> tuple[Token, ...]:
        """The tokens of the value that follows with this completion: those that it carries replace the last ones."""
        tokens = self.tokens
        for application, number in completion.tokens:
            last = next((t for t in tokens if t.application == application), None)
            assert last is None or last.number < number, "a token's numbers grow"
            others = tuple(t for t in tokens if t is not last)
            newest = Token(application, number, completion.requested, completion.completed, completion.version)
            tokens = (*others, newest)
        return tokens

    def roll_back(self, nonce: str, wall_ms: int, requested: InstantTime) -> Timeline:
        """A pending write is given up for good; its files may be removed once this value is known to be genuine."""
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
        """The schema becomes `schema`, in an empty delta commit of one event. shown: as of `with_added`."""
        requested = begin_after(self.clock, wall_ms)
        done = tick_after(requested, wall_ms)
        grown = Completion(requested, done, self.version + 1, nonce, DELTA_COMMIT, ALTER_SCHEMA, author=author)
        added = self._with_added(schema)
        return self.following(
            nonce, done, schema=schema, added=added, completions=(*self.completions, grown),
            alterations=with_added(self.alterations, done, added[len(self.added) :], shown),
        )  # fmt: skip

    def _with_added(self, schema: str) -> tuple[str, ...]:
        """`added` with the columns that are new in `schema`. The first schema of a table adds none."""
        before, after = ([name for name, *_ in json.loads(text)] for text in (self.schema, schema))
        return (*self.added, *(name for name in after if before and name not in before))

    @property
    def next_barrier(self) -> InstantTime:
        """The barrier of a plan that is derived from this value."""
        return barrier_after(self.clock)

    def schedule(
        self, nonce: str, wall_ms: int, action: str, path: str, retention: Retention | None = None
    ) -> Timeline:
        """The plan at `path` is open under `next_barrier`; scheduling moves the clock past the barrier.

        None of its file groups is in another open plan. `retention`: the marks that a clean moves with its plan.
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
        """An open plan is executed; its files replace the ones it consumed, for readers from now on.

        `action` and `operation` are those of the completed instant.

        droppable: commits that no view as of this time or later needs may go from the value, see `model.dropping`.
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
        """An open plan is given up, by name: it cannot be executed."""
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
        """Rolled-back instants whose files a listing has shown to be gone are forgotten; by the store's clock, now.

        For each write among them a rollback begins and ends in this event, which tells Hudi of it. Hudi knows nothing
        of a cancelled plan, so there is nothing to tell.
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
        """The clock reaches a moment that has passed: what completes from here on completes after it.

        moment_ms: below the store's clock, which the table's clock must not be moved beyond.
        """
        return self.following(nonce, tick_after(self.clock, moment_ms))

    def set_properties(self, nonce: str, wall_ms: int, properties: Properties) -> Timeline:
        """The table has these properties from here on."""
        return self.following(nonce, tick_after(self.clock, wall_ms), properties=properties)

    def retain(self, nonce: str, wall_ms: int, retention: Retention) -> Timeline:
        """The marks of the history that is kept are these from here on; no file has to go."""
        return self.following(nonce, tick_after(self.clock, wall_ms), retention=retention)

    def archive_until(
        self, nonce: str, wall_ms: int, watermark: InstantTime, count: int, files: Sequence[str]
    ) -> Timeline:
        """The instants up to the watermark, `count` more than before, move from Hudi's active timeline to its history.

        files: the data files of the history from here on, oldest first.
        """
        archive = Archive(
            watermark, self.archive.watermark, self.version + 1, self.archive.count + count, self.archive.manifest + 1,
            tuple(files),
        )  # fmt: skip
        return self.following(nonce, tick_after(self.clock, wall_ms), archive=archive)

    def forget_tokens(self, nonce: str, wall_ms: int, since: InstantTime) -> Timeline:
        """Applications whose last commit completed before `since` are forgotten, with the numbers of their tokens."""
        tokens = tuple(t for t in self.tokens if t.completed >= since)
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
        """Instants that Hudi wrote become part of the value, and the clock moves past them.

        groups: the file groups of buckets from here on. What these instants replaced is void in earlier pending writes.
        cancelled: open plans that are given up, as they lack what they would hide. A plan that Hudi executed has ended.
        """
        adopted = tuple(replace(c, version=self.version + 1, adopted=True) for c in completions)
        done = {c.requested for c in adopted}
        lost = (RolledBack(p.barrier, p.nonce, self.version + 1, p.action) for p in cancelled)
        return self.following(
            nonce,
            tick_after(max([self.clock, *(c.completed for c in adopted)]), wall_ms),
            schema=schema,
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
        """This value with the completions `moved` in one of `segments`. `retention`: what was dropped from them."""
        times = {c.requested for c in moved}
        return replace(
            self,
            segments=tuple(segments),
            completions=tuple(c for c in self.completions if c.requested not in times),
            retention=retention or self.retention,
        )

    # --- bytes --------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """JSON, short lists for the many small records."""
        return json.dumps({"format": FORMAT, **document_of(self)}, separators=(",", ":")).encode()

    def is_in(self, data: bytes) -> bool:
        """Whether `data` is this very version: its number and nonce come first, so nothing needs to be decoded."""
        return data.startswith(beginnings(self.version, self.nonce))

    @classmethod
    def decode(cls, data: bytes, path: str) -> Self:
        """The value in an object; raises `FormatError` naming `path`."""
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
        if not value.is_in(data):  # a process that checks whether this version still stands would check for ever
            raise FormatError(f"not a timeline value as any release writes it: restore it from a backup. file={path}")
        return value

"""What one version of a timeline says, and how an answer is found in it. `model.timeline` says what may follow it.

A value is immutable, and small: it carries what is pending, planned and given up, and the last few completions; the
older completions are in segments, which it names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from crdt_mor.columns.names import Names
from crdt_mor.model.alteration import Alterations, names_of
from crdt_mor.model.file_ids import FIXED, FileIds
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.migration import Moving, Origin
from crdt_mor.model.overwrite import Overwrite
from crdt_mor.model.posts import Decided, Noted, PostName, is_open
from crdt_mor.model.restore import Restore
from crdt_mor.model.rules import Rules
from crdt_mor.model.savepoint import Savepoint
from crdt_mor.model.table_properties import Properties
from crdt_mor.model.timeline_json import FORMAT
from crdt_mor.model.timeline_parts import (
    EVERYTHING_KEPT,
    NOTHING_ARCHIVED,
    Archive,
    Completion,
    OpenPlan,
    Pending,
    Retention,
    RolledBack,
    Segment,
    Token,
)


@dataclass(frozen=True)
class Value:
    """What is committed, pending, planned and given up, at one version."""

    version: int
    nonce: str
    clock: InstantTime
    schema: str
    swept: InstantTime = EPOCH
    """When the last sweep was made, by the store's clock, not the table's."""
    pending: tuple[Pending, ...] = ()
    plans: tuple[OpenPlan, ...] = ()
    rolled_back: tuple[RolledBack, ...] = ()
    completions: tuple[Completion, ...] = ()
    segments: tuple[Segment, ...] = ()
    tokens: tuple[Token, ...] = ()
    foreign_group: str | None = None
    """A file id of Hudi's to which no bucket leads, as the bucket has another: such a table must not be written."""
    table_id: str | None = None
    """No other table's; None before the first event of a table that was made without one."""
    added: tuple[str, ...] = ()
    """Columns that the schema has gained since there is one."""
    properties: Properties = ()
    """What users have noted of the table, by name."""
    retention: Retention = EVERYTHING_KEPT
    """Which history the table still answers for."""
    archive: Archive = NOTHING_ARCHIVED
    """What has left Hudi's active timeline. Our own readers do not ask: what is committed stands in this value."""
    tokens_since: InstantTime = EPOCH
    """Applications whose last commit completed before it are forgotten; EPOCH: none is."""
    overwrites: tuple[Overwrite, ...] = ()
    """Those whose barriers are later than the request of some pending write, in the order of their barriers."""
    savepoints: tuple[Savepoint, ...] = ()
    """Names for what the table showed, oldest first; what they show is kept."""
    restores: tuple[Restore, ...] = ()
    """The restores that the table has had, oldest first."""
    tokens_noted: InstantTime = EPOCH
    """Completions up to this time may lack the token that their write carried; EPOCH: each has it."""
    moving: Moving | None = None
    """The migration of this table to another one."""
    origin: Origin | None = None
    """The table whose rows arrive in this one, or have arrived."""
    posts: Noted = ()
    """The posts that were taken or voided, as long as a later version could take them."""
    rules: Rules = ()
    """What every row fulfils that is written from here on, and what columns hold that are not given."""
    alterations: Alterations = ()
    """What has become of the columns' names, oldest first; none where all have those of the files."""
    handed_over: InstantTime = EPOCH
    """Since when nothing begins in this table, as Hudi's writers have it; EPOCH: they have not."""
    file_ids: FileIds = FIXED
    """The file ids of buckets that are not the fixed ones, as Hudi's commits have left them."""
    format: int = field(default=FORMAT, compare=False)
    """The format of the object that this value was decoded from: the release that put it reads no later one."""

    # --- what it says -------------------------------------------------------------------------------------------

    def carries(self, previous: Self) -> bool:
        """Whether this value has all completions that the previous one carries, before its own. Most values do."""
        return self.completions[: len(previous.completions)] == previous.completions

    def completions_since(self, previous: Self) -> tuple[Completion, ...]:
        """The completions that this version alone adds to the previous one, of which older ones may have moved."""
        if self.carries(previous):
            return self.completions[len(previous.completions) :]
        before = {c.requested for c in previous.completions}
        return tuple(c for c in self.completions if c.requested not in before)

    @property
    def header(self) -> Self:
        """Version, clock, schema with its names, the table's id, and which history is kept: what a part of it needs."""
        return type(self)(
            self.version, self.nonce, self.clock, self.schema, table_id=self.table_id, retention=self.retention,
            savepoints=self.savepoints, restores=self.restores, alterations=self.alterations,
        )  # fmt: skip

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The stored names of all columns, those that nobody sees among them."""
        return tuple(name for name, *_ in json.loads(self.schema))

    @property
    def names(self) -> Names:
        """The names of the columns as people see them."""
        return names_of(self.alterations)

    @property
    def newly_pending(self) -> tuple[InstantTime, ...]:
        """The instants of the writes, or of the plan, that this very version made pending."""
        begun = [pending.requested for pending in self.pending if pending.version == self.version]
        return (*begun, *(plan.barrier for plan in self.plans if plan.version == self.version))

    @property
    def instants(self) -> tuple[InstantTime, ...]:
        """The times of all instants that this value carries itself."""
        open_instants = (*(p.requested for p in self.pending), *(p.barrier for p in self.plans))
        return (*open_instants, *(r.requested for r in self.rolled_back), *(c.requested for c in self.completions))

    def is_restore_of(self, previous: Value) -> bool:
        """Whether this version, which follows `previous`, restored the table to an earlier moment."""
        return len(self.restores) > len(previous.restores)

    @property
    def objects(self) -> set[str]:
        """The names of the objects that hold what this value does not carry itself."""
        stored = self.file_ids.stored
        return {segment.name for segment in self.segments} | ({stored} if stored is not None else set())

    def find_pending(self, requested: InstantTime) -> Pending | None:
        return next((p for p in self.pending if p.requested == requested), None)

    def find_by_nonce(self, nonce: str) -> Pending | RolledBack | None:
        """The instant that a begin with this nonce made, unless it is completed or forgotten."""
        instants: tuple[Pending | RolledBack, ...] = (*self.pending, *self.rolled_back)
        return next((p for p in instants if p.nonce == nonce), None)

    def find_plan(self, barrier: InstantTime) -> OpenPlan | None:
        return next((p for p in self.plans if p.barrier == barrier), None)

    def find_rolled_back(self, requested: InstantTime) -> RolledBack | None:
        return next((r for r in self.rolled_back if r.requested == requested), None)

    def find_completion(self, requested: InstantTime) -> Completion | None:
        """The completion of an instant, if this value carries it itself (not in a segment)."""
        return next((c for c in self.completions if c.requested == requested), None)

    def find_savepoint(self, name: str) -> Savepoint | None:
        return next((s for s in self.savepoints if s.name == name), None)

    def find_token(self, application: str) -> Token | None:
        return next((t for t in self.tokens if t.application == application), None)

    def may_take(self, post: PostName) -> bool:
        """Whether the version that follows this one may take a post, or void it: it is open, and neither was done."""
        return is_open(post, self.version) and post not in self._decided

    @cached_property
    def _decided(self) -> Decided:
        return Decided.of(self.posts)

    def find_taken(self, post: PostName) -> Completion | None:
        """The commit that took a post, if this value carries it itself (not in a segment)."""
        return next((c for c in reversed(self.completions) if c.find_member(post) is not None), None)

    @property
    def standing(self) -> int:
        """How many of the commits that were moved to segments have their files in Hudi's active timeline."""
        return sum(segment.count for segment in self.segments) + self.retention.dropped_count - self.archive.count

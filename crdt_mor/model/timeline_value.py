"""The fields of a timeline version, and lookups. Older completions are in the segments that it names."""

from __future__ import annotations

import json
from collections.abc import Iterable
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
    DataFile,
    OpenPlan,
    Pending,
    Retention,
    RolledBack,
    Segment,
    Token,
)
from crdt_mor.model.tokens import NO_TOKENS, Tokens


@dataclass(frozen=True)
class Value:
    version: int
    nonce: str
    clock: InstantTime
    schema: str
    swept: InstantTime = EPOCH
    """Time of the last sweep, by the store's clock."""
    pending: tuple[Pending, ...] = ()
    plans: tuple[OpenPlan, ...] = ()
    rolled_back: tuple[RolledBack, ...] = ()
    completions: tuple[Completion, ...] = ()
    segments: tuple[Segment, ...] = ()
    tokens: Tokens = NO_TOKENS
    foreign_group: str | None = None
    """A file id of Hudi's outside the bucket index, or a second group of a bucket. The table must not be written."""
    table_id: str | None = None
    """None before the first event of a table created without an id."""
    added: tuple[str, ...] = ()
    """Columns added since the first schema."""
    properties: Properties = ()
    retention: Retention = EVERYTHING_KEPT
    archive: Archive = NOTHING_ARCHIVED
    """Ignored by our readers, since this value lists all commits."""
    tokens_since: InstantTime = EPOCH
    """Applications without a later commit are forgotten. EPOCH: none."""
    overwrites: tuple[Overwrite, ...] = ()
    """Those with a barrier after the request of a pending write, sorted by barrier."""
    savepoints: tuple[Savepoint, ...] = ()
    restores: tuple[Restore, ...] = ()
    """Oldest first."""
    tokens_noted: InstantTime = EPOCH
    """Completions up to this time may lack their write's token. EPOCH: none."""
    moving: Moving | None = None
    """The migration of this table."""
    origin: Origin | None = None
    """The source of a migration into this table."""
    posts: Noted = ()
    """Posts taken or voided, while a later version could take them."""
    rules: Rules = ()
    alterations: Alterations = ()
    """Oldest first. Empty if users see the stored names."""
    handed_over: InstantTime = EPOCH
    """Nothing of ours begins after this time, because Hudi's writers have the table. EPOCH: not handed over."""
    file_ids: FileIds = FIXED
    """Those that differ from the fixed ones, because of Hudi's commits."""
    schema_object: str | None = field(default=None, compare=False)
    """The object with the schema. None: the versions contain it. Decoded values lack the schema until it is read."""
    format: int = field(default=FORMAT, compare=False)
    """The format of the decoded object. The release that put it cannot read later formats."""

    # --- lookups ------------------------------------------------------------------------------------------------

    def carries(self, previous: Self) -> bool:
        """Return True if the completions begin with all completions of `previous`, as usual."""
        return self.completions[: len(previous.completions)] == previous.completions

    def completions_since(self, previous: Self) -> tuple[Completion, ...]:
        """Return the completions added since `previous`, even if older ones were sealed."""
        if self.carries(previous):
            return self.completions[len(previous.completions) :]
        before = {c.requested for c in previous.completions}
        return tuple(c for c in self.completions if c.requested not in before)

    @property
    def header(self) -> Self:
        """A copy without instants, for views of the past."""
        return type(self)(
            self.version, self.nonce, self.clock, self.schema, table_id=self.table_id, retention=self.retention,
            savepoints=self.savepoints, restores=self.restores, alterations=self.alterations,
        )  # fmt: skip

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name, *_ in json.loads(self.schema))

    @property
    def names(self) -> Names:
        return names_of(self.alterations)

    @property
    def newly_pending(self) -> tuple[InstantTime, ...]:
        begun = [pending.requested for pending in self.pending if pending.version == self.version]
        return (*begun, *(plan.barrier for plan in self.plans if plan.version == self.version))

    @property
    def instants(self) -> tuple[InstantTime, ...]:
        open_instants = (*(p.requested for p in self.pending), *(p.barrier for p in self.plans))
        return (*open_instants, *(r.requested for r in self.rolled_back), *(c.requested for c in self.completions))

    def is_restore_of(self, previous: Value) -> bool:
        return len(self.restores) > len(previous.restores)

    @property
    def objects(self) -> set[str]:
        stored = {self.file_ids.stored, self.schema_object, self.tokens.object}
        return {segment.name for segment in self.segments} | {name for name in stored if name is not None}

    def find_pending(self, requested: InstantTime) -> Pending | None:
        return next((p for p in self.pending if p.requested == requested), None)

    def find_by_nonce(self, nonce: str) -> Pending | RolledBack | None:
        """Return the instant begun with this nonce, unless it is completed or forgotten."""
        instants: tuple[Pending | RolledBack, ...] = (*self.pending, *self.rolled_back)
        return next((p for p in instants if p.nonce == nonce), None)

    def find_plan(self, barrier: InstantTime) -> OpenPlan | None:
        return next((p for p in self.plans if p.barrier == barrier), None)

    def find_rolled_back(self, requested: InstantTime) -> RolledBack | None:
        return next((r for r in self.rolled_back if r.requested == requested), None)

    def find_completion(self, requested: InstantTime) -> Completion | None:
        return next((c for c in self.completions if c.requested == requested), None)

    def void_files(self, requested: InstantTime, files: Iterable[DataFile]) -> list[DataFile]:
        """Return the files of a pending write that a later overwrite covers. Nobody may see them."""
        later = [o.scope for o in self.overwrites if o.barrier > requested]
        return [file for file in files if any(scope.covers(file.partition) for scope in later)]

    def find_savepoint(self, name: str) -> Savepoint | None:
        return next((s for s in self.savepoints if s.name == name), None)

    def find_token(self, application: str) -> Token | None:
        return self.tokens.find(application)

    def may_take(self, post: PostName) -> bool:
        """Return True if the next version may take or void the post."""
        return is_open(post, self.version) and post not in self._decided

    @cached_property
    def _decided(self) -> Decided:
        return Decided.of(self.posts)

    def find_taken(self, post: PostName) -> Completion | None:
        """Return the commit that took a post, unless a segment contains it."""
        return next((c for c in reversed(self.completions) if c.find_member(post) is not None), None)

    @property
    def standing(self) -> int:
        """The number of sealed commits in Hudi's active timeline."""
        return sum(segment.count for segment in self.segments) + self.retention.dropped_count - self.archive.count

"""A migration: copy a table and follow its changes while writers continue, then close the old table in a single event.

    copy     copy all rows at some moment, a few file groups per commit
    follow   copy later changes, window after window, until little is left
    close    one event: nothing begins in the old table, and its writers learn the new address
    settle   wait for pending writes, or roll them back
    last     copy the last window
    open     one event: the new table takes writes, ordered after all writes of the old table

Each step is noted in the new table before it runs, so any process can continue it (`model.migration`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal

import pyarrow as pa

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError, TokenOrderError, UnsupportedFeatureError
from crdt_mor.events import migration, sweep
from crdt_mor.events import write as events
from crdt_mor.events.session import Session
from crdt_mor.laws.merging import check_columns
from crdt_mor.model.authors import Author, Info
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.migration import Moving, Origin, Step, require_arrived
from crdt_mor.model.slices import FileSlice, batches_of
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.cut import window_end
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.read.window import Window
from crdt_mor.read.window_states import States, TouchedGroups
from crdt_mor.services.migration_cargo import Cargo, Loader, is_moved, keeps_partitions_apart, refuse_twins
from crdt_mor.services.rollback import roll_back
from crdt_mor.write.open_write import OpenWrite

BATCH_BYTES: Final = 64 << 20
"""Approximate bytes of the files behind each commit of a migration, so that memory is bounded."""

LITTLE_BYTES: Final = 8 << 20
LITTLE_COMMITS: Final = 50
"""With at most this much left to follow, the old table is closed to writers."""

_LOOK_EVERY_S: Final = 0.05

PendingPolicy = Literal["wait", "roll_back"]
Phase = Literal["copy", "follow", "settle", "opened"]


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """Progress of a migration.

    Attributes:
        phase: `copy` of all rows; `follow` later changes; `settle` the last changes while writers are refused; `opened`
            at the end.
        rows, commits: Written by this call.
    """

    phase: Literal["copy", "follow", "settle", "opened"]
    done: int
    parts: int
    rows: int
    commits: int


Tell = Callable[[MigrationProgress], None]


@dataclass(frozen=True)
class _Part:
    """The contents of a commit: shares of copied file slices, or changes in file groups.

    A window of several parts commits all `deletes` before any `rows`, because a row may have moved between file groups
    of different parts.
    """

    slices: Sequence[FileSlice] = ()
    share: tuple[int, int] = (0, 1)
    touched: Sequence[TouchedGroups] = ()
    states: States | None = None
    deletes: bool = True
    rows: bool = True

    def load(self, loader: Loader, cut: Cut) -> Cargo:
        if self.states is None:
            return loader.copied(self.slices, cut, self.share)
        cargo = loader.changed(self.states, self.touched)
        if not self.deletes:
            cargo = replace(cargo, deletes=cargo.deletes.clear())
        if not self.rows:
            cargo = replace(cargo, rows=cargo.rows.clear(), tombstones=cargo.tombstones.clear())
        return cargo


@dataclass
class Migration:
    source: Session
    target: Session
    tell: Tell
    rows: int = 0
    commits: int = 0

    def run(self, pending: PendingPolicy) -> Timeline:
        """Finish the migration and return a value of the opened new table.

        Raises:
            TableArrivingError: Another process gave the migration up.
        """
        left_before: int | None = None
        while True:
            arrived = self.target.remember(self.target.tail())
            origin = _origin(arrived)
            if origin.is_opened:
                return arrived
            require_not_given_up(self.source, self.target, arrived)
            if not self._do(origin.step):
                continue  # another process was faster
            value = self._seen(origin.step)
            self._require_no_twins(value, origin.step)
            closed = self._require_moving(value).is_closed
            rest = self._window(value, Step(origin.step.until, value.clock))
            if closed and not value.pending and not rest.commits:
                self._grow(value)  # columns may be added without rows
                steps = migration.open_target(self.target.publisher, arrived, value, self._author)
                opened = self.target.remember(self.target.run(steps))
                if _origin(opened).is_opened:
                    self._tell("opened", 0, 0)
                    return opened
                continue
            if origin.step.until != EPOCH and (closed or self._is_little(rest, left_before)):
                self._close(value)
                value = self._settled(pending)
            left_before = _bytes(rest)
            step = Step(origin.step.until, value.clock)
            self.target.remember(
                self.target.run(
                    migration.aim(self.target.publisher, arrived, step.until, len(self._parts(value, step)))
                )
            )

    def _seen(self, step: Step) -> Timeline:
        """Return a source value that shows the whole step, even if planned by a faster clock."""
        self.source.adopt()
        return self.source.views.sealed(decided=True, handed_out=[Cut("completed", step.until)])

    # --- the steps --------------------------------------------------------------------------------------------------

    def _do(self, step: Step) -> bool:
        """Write the rest of a step. Return False if other processes are already further."""
        last = self._last_number()
        if last >= step.next_number - 1:
            return True
        value = self._seen(step)
        self._grow(value)
        loader = Loader(self.source, value, self.target.config)
        parts = self._parts(value, step)
        if len(parts) != step.count:
            raise UnsupportedFeatureError(
                "another release planned this step of the migration with different parts: continue with that release, "
                f"or cancel the migration and start again. planned={step.count} here={len(parts)}"
            )
        phase: Phase = "copy" if step.since == EPOCH else "follow"
        if self._require_moving(value).is_closed:
            phase = "settle"
        for i, part in enumerate(parts):
            number = step.first + i
            if number > last:
                cargo = part.load(loader, Cut("completed", step.until))
                try:
                    self._write(loader, cargo, number)
                except TokenOrderError:
                    return False
            self._tell(phase, i + 1, len(parts))
        return True

    def _write(self, loader: Loader, cargo: Cargo, number: int) -> None:
        """Commit cargo under its token number; repeating it commits nothing."""
        if cargo.is_empty:
            return
        write = OpenWrite.begin(self.target, (self._author.application, number), self._author.info)
        try:
            loader.fill(write.statements, cargo)
        except BaseException:
            write.abandon()
            raise
        outcome = write.commit()
        if not outcome.repeated:
            self.rows += cargo.rows.height
            self.commits += 1

    def _parts(self, value: Timeline, step: Step) -> list[_Part]:
        """Compute the commits of a step, only from the step and the source's history."""
        if step.since == EPOCH:
            cut = self._cut(value, step.until)
            slices = self.source.views.slices(value, cut)
            parts: list[_Part] = []
            for few in batches_of(((slice_, slice_.weight) for slice_ in slices), BATCH_BYTES):
                shares = max(1, -(-sum(slice_.weight for slice_ in few) // (2 * BATCH_BYTES)))
                parts += [_Part(few, (number, shares)) for number in range(shares)]
            return parts
        states, touched = self._window(value, step).touched()
        batches = [
            _Part(touched=few, states=states)
            for few in batches_of(((groups, groups.weight(raw=False)) for groups in touched), BATCH_BYTES)
        ]
        if len(batches) < 2:
            return batches
        return [*(replace(part, rows=False) for part in batches), *(replace(part, deletes=False) for part in batches)]

    def _window(self, value: Timeline, step: Step) -> Window:
        since, until = (self._cut(value, time) for time in (step.since, step.until))
        return Window.seal(self.source, value, since, until)

    def _cut(self, value: Timeline, time: InstantTime) -> Cut:
        if time == EPOCH:
            return Cut.start("completed")
        return window_end(self.source, value, Cut("completed", time).checkpoint(value.table_id), "completed", "since")

    def _grow(self, value: Timeline) -> None:
        declared = TableSchema.from_json(value.schema).declared
        columns = pa.schema([column for column in declared if is_moved(column.name, value.names, self.target.config)])
        grown = events.grow(
            self.target.publisher,
            self.target.known_tail(),
            columns,
            self._check,
            self._author,
        )
        self.target.remember(self.target.run(grown))

    def _check(self, schema: TableSchema) -> None:
        self.target.config.key.check_types(schema)
        check_columns(self.target.config, schema)

    def _require_no_twins(self, value: Timeline, step: Step) -> None:
        if step.until == EPOCH or keeps_partitions_apart(self.source.config.key, self.target.config.key):
            return
        cut = self._cut(value, step.until)
        there = Snapshot.seal(self.target, self.target.tail(), moment=cut.time)
        if there.count() == Snapshot.seal(self.source, value, cut).count():
            return
        if _origin(self.target.tail()).step == step:  # else another process was faster
            refuse_twins(Loader(self.source, value, self.target.config), cut)
            raise InvalidInputError(
                "the new table lacks rows: the source has a key in several partitions, and the new layout puts them "
                "into one partition. Migrate again to an unused address."
            )

    # --- the end ----------------------------------------------------------------------------------------------------

    def _is_little(self, rest: Window, left_before: int | None) -> bool:
        left = _bytes(rest)
        if left <= LITTLE_BYTES and len(rest.commits) <= LITTLE_COMMITS:
            return True
        return left_before is not None and left >= left_before

    def _close(self, value: Timeline) -> None:
        assert self.target.config.table_id is not None
        closed = self.source.run(migration.close(self.source.publisher, value, self.target.config.table_id))
        self.source.remember(closed)
        self._tell("settle", 0, 0)

    def _settled(self, policy: PendingPolicy) -> Timeline:
        source = self.source
        while True:
            tail = source.run(sweep.upkeep_and_adoption(source.publisher, source.known_tail(), source.expiry_ms))
            source.remember(tail)
            self._require_moving(tail)
            if not tail.pending:
                return tail
            if policy == "roll_back":
                for write in tail.pending:
                    with suppress(InvalidInputError):  # it completed meanwhile
                        roll_back(source, write.requested)
            else:
                source.environment.sleep(_LOOK_EVERY_S)

    def _require_moving(self, value: Timeline) -> Moving:
        if value.moving is None or value.moving.table_id != self.target.config.table_id:
            require_not_given_up(self.source, self.target, self.target.remember(self.target.tail()))
            raise InvalidInputError(
                f"the migration was cancelled; the table stays at this address. target={self.target.config.table_id}"
            )
        return value.moving

    # --- helpers ----------------------------------------------------------------------------------------------------

    @property
    def _author(self) -> Author:
        origin = _origin(self.target.known_tail())
        info: Info = (("message", f"migrated from {origin.uri}"[:1000]),)
        return self.target.author(origin.application, info)

    def _last_number(self) -> int:
        tail = self.target.remember(self.target.tail())
        token = tail.find_token(_origin(tail).application)
        return token.number if token is not None else 0

    def _tell(self, phase: Phase, done: int, parts: int) -> None:
        self.tell(MigrationProgress(phase, done, parts, self.rows, self.commits))


def begin(source: Session, target: Session, uri: str, origin: Origin) -> None:
    """Note the migration in the new table, then in the old one.

    If it is given up in between, the old table must not keep moving to a table that is never opened.
    """
    arrived = target.remember(target.run(migration.receive(target.publisher, target.tail(), origin)))
    require_not_given_up(source, target, arrived)
    if _origin(arrived).is_opened:
        return
    assert target.config.table_id is not None
    announced = migration.announce(source.publisher, source.known_tail(), Moving(uri, target.config.table_id))
    source.remember(source.run(announced))
    require_not_given_up(source, target, target.remember(target.tail()))


def require_not_given_up(source: Session, target: Session, arrived: Timeline) -> None:
    """Raise and reopen the old table if the new table was given up.

    The process that gave it up may have died before reopening.
    """
    origin = _origin(arrived)
    if not origin.given_up:
        return
    assert target.config.table_id is not None
    source.remember(source.run(migration.reopen(source.publisher, source.known_tail(), target.config.table_id)))
    require_arrived(origin)


def cancel(source: Session, target: Session | None) -> bool:
    """Give up a table's migration, so that the table takes writes again. Return False if none is under way.

    Args:
        target: The new table; None if it was removed. It is given up first, so that nobody opens it later.

    Raises:
        InvalidInputError: The new table already takes writes.
    """
    table = source.remember(source.tail())
    if table.moving is None:
        return False
    moves_to: str | None = table.moving.table_id
    assert source.config.table_id is not None
    if target is not None:
        given_up = migration.give_up_arrival(target.publisher, target.tail(), source.config.table_id)
        target.remember(target.run(given_up))
        moves_to = target.config.table_id  # not of another migration announced since
    assert moves_to is not None
    source.remember(source.run(migration.reopen(source.publisher, table, moves_to)))
    return True


def _origin(value: Timeline) -> Origin:
    assert value.origin is not None, "no migration writes to this table"
    return value.origin


def _bytes(window: Window) -> int:
    return sum(file.size for commit in window.commits for file in commit.files)

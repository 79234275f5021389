"""A table as what shows its rows: as they are now or were at a moment, what changed between two, and its history.

Each read is sealed when it is called: what is committed later does not change it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, overload

import polars as pl
import pyarrow as pa

from crdt_mor.api.migration_status import warn_of_move
from crdt_mor.api.near_names import NearNames
from crdt_mor.api.reading import AsOf, Consistency, Readable, point_of
from crdt_mor.api.scan import Scan, prefetch
from crdt_mor.errors import CrdtMorError, InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.model.alteration import names_at
from crdt_mor.model.cut import By, Cut
from crdt_mor.model.instant import EPOCH, to_datetime
from crdt_mor.model.points import is_checkpoint
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.cut import cut_at, kept_cut_at, sealed_at, window_end
from crdt_mor.read.snapshot import Snapshot

if TYPE_CHECKING:
    from crdt_mor.api.changes import Changes
    from crdt_mor.api.diff import Differences
    from crdt_mor.api.table import Table
    from crdt_mor.services.copy import Copied, CopyProgress
    from crdt_mor.services.restore import Savepoint
    from crdt_mor.services.verify_findings import Verification, VerifyProgress
    from crdt_mor.store.handed_stores import Handed
    from crdt_mor.store.protocol import Store


@operations
class TableReads(Readable, NearNames):
    """The part of a table that reads: scans, changes, the history, and names for moments of it."""

    _session: Session

    def scan(
        self,
        *,
        columns: str | Sequence[str] | None = None,
        filter: pl.Expr | str | None = None,
        as_of: AsOf | None = None,
        consistency: Consistency = "latest",
        meta: bool = False,
        limit: int | None = None,
        names: Literal["now", "then"] = "now",
    ) -> Scan:
        """A snapshot, sealed now: merged rows, each key at most once in its partition.

        columns: user columns, all by default. filter: a polars expression or SQL text.
        as_of: a `Commit`; a version; a moment: a datetime (naive is UTC), a date (midnight UTC at its start), ISO text
            of either, 17 digits of UTC time; the name of a savepoint; or "now". The answer for a moment never changes
            later, unless a restore cuts it off, which it says. One that has passed while nobody wrote is decided for
            good by an event that this call publishes. One in the future raises `FutureSnapshotError`, and so does one
            that this process cannot decide, since it may only read.
        consistency: "stable" stops before the oldest pending write, so that no later commit comes between the rows;
            "read_optimized" reads base files alone: fast, and as old as the last compaction.
        meta: Hudi's five columns in front.
        limit: the most rows that come out, whichever come first; no more file slices are read than that takes.
        names: what columns are called that were renamed or dropped since the moment: "now", as they are by now, or
            "then", as they were, so that a program of that time finds what it knows.
        """
        point = None if as_of is None else point_of(as_of)
        _check_names(names)
        stable = _consistency(consistency) == "stable"
        if stable and point is not None:
            raise InvalidInputError("a stable scan says itself how far it goes: leave as_of out")
        session = self._session

        def view(value: Timeline) -> Snapshot:
            if stable:
                cut: Cut | None = Cut.latest(value, "requested")
            else:
                cut = None if point is None else cut_at(session, value, point)
            snapshot = Snapshot.seal(session, value, cut)
            if names == "then":
                snapshot = replace(snapshot, called=names_at(value.alterations, snapshot.cut.time))
            return snapshot.read_optimized() if consistency == "read_optimized" else snapshot

        def meanwhile(known: Timeline) -> None:
            with suppress(CrdtMorError):  # what is wrong is said of the newest value
                prefetch(view(known), filter, limit)

        value = session.views.sealed_beside(meanwhile) if point is None else sealed_at(session, as_of=point)
        return Scan(view(value), columns, filter, meta, limit)

    def changes(
        self,
        since: str | AsOf | None = None,
        *,
        columns: str | Sequence[str] | None = None,
        images: bool = False,
        raw: bool = False,
        consistency: Literal["latest", "stable"] = "latest",
        until: str | AsOf | None = None,
        names: Literal["now", "then"] = "now",
    ) -> Changes:
        """What commits after `since` changed, sealed now: each changed key once, merged, as it is at the window's end.

        since: the `checkpoint` of earlier changes or of a scan, or whatever `as_of` takes; None: the empty table.
            A chain of checkpoints never skips a commit and never repeats one.
        columns: user columns, all by default.
        images: commit by commit, rows before and after, with the column names of Delta's change data feed.
        raw: commit by commit, the rows as they were written, unmerged; deletes have their keys alone.
        consistency: "stable" stops before the oldest pending write.
        until: the window's end, as `since`; None: now. What is between two such points never changes.
        names: what columns are called that were renamed or dropped since the window's end: "now", as they are by now,
            or "then", as they were.

        Raises `CheckpointExpiredError` where what these commits wrote is gone, as a clean has given that history up,
        and `SnapshotExpiredError` for another point from before then; `TableReplacedError` where a checkpoint is of
        another table than the one that is here now.
        """
        from crdt_mor.api.changes import Changes
        from crdt_mor.read.window import Window

        _check_names(names)
        if images and raw:
            raise InvalidInputError("raw changes have no images: ask for one of the two")
        by: By = "requested" if _consistency(consistency, "latest", "stable") == "stable" else "completed"
        session = self._session
        first, last = (None if point is None else point_of(point) for point in (since, until))
        ends = {"since": first, "until": last}
        points = {name: point for name, point in ends.items() if by == "completed" or is_checkpoint(point)}
        value = sealed_at(session, **points)  # what Hudi wrote must not come to light behind the checkpoint
        start = Cut.start(by) if first is None else window_end(session, value, first, by, "since")
        end = Cut.latest(value, by) if last is None else window_end(session, value, last, by, "until")
        if end.time < start.time:
            raise InvalidInputError(f"the window ends before it begins: exchange the two. since={start} until={end}")
        warn_of_move(value.moving)
        window = Window.seal(self._session, value, start, end)
        called = value.names if names == "now" else names_at(value.alterations, end.time)
        return Changes(window, columns, "images" if images else "raw" if raw else "merged", called)

    @overload
    def diff(self, before: AsOf, after: AsOf, *, columns: str | Sequence[str] | None = None) -> Changes: ...

    @overload
    def diff(
        self,
        before: Table,
        after: None = None,
        *,
        columns: str | Sequence[str] | None = None,
        as_of: AsOf | None = None,
        other_as_of: AsOf | None = None,
    ) -> Differences: ...

    def diff(
        self,
        before: AsOf | Table,
        after: AsOf | None = None,
        *,
        columns: str | Sequence[str] | None = None,
        as_of: AsOf | None = None,
        other_as_of: AsOf | None = None,
    ) -> Changes | Differences:
        """The rows in which two snapshots differ, as images: what turns the one into the other. Or, of two tables,
        how many rows differ, and which are the first: `table.diff(copy)`.

        before, after: two moments of this table, as `as_of` of `scan`; or `before` another table, such as a copy of
            this one or one that follows it, with any partitions, buckets and layout of its own, and the same key.
        columns: user columns, all by default. Between tables a column that one of them lacks is a difference.
        as_of, other_as_of: between tables, the moment of this one, and of the other one; None: now.

        Of a table and its copy, file groups with the same files, byte for byte, are not read as rows. Values are
        compared as polars does it: 0.0 equals -0.0, and NaN equals NaN; numbers of two types are equal as numbers.

        Raises `InvalidInputError` for tables with other key columns, or with types that cannot be compared.
        """
        if isinstance(before, TableReads):
            return self._diff_of_tables(before, after, columns, as_of, other_as_of)
        from crdt_mor.api.changes import Changes
        from crdt_mor.read.window import Window

        if after is None or as_of is not None or other_as_of is not None:
            raise InvalidInputError(
                "the difference of one table is that between two moments, table.diff(before, after); that of two "
                f"tables is table.diff(other, as_of=…, other_as_of=…). before={before!r} after={after!r}"
            )
        session, first, last = self._session, point_of(before), point_of(after)
        value = sealed_at(session, before=first, after=last)
        start, end = kept_cut_at(session, value, first, "before"), kept_cut_at(session, value, last, "after")
        return Changes(Window.seal(self._session, value, start, end), columns, "difference", value.names)

    def _diff_of_tables(
        self,
        other: Table,
        after: AsOf | None,
        columns: str | Sequence[str] | None,
        as_of: AsOf | None,
        other_as_of: AsOf | None,
    ) -> Differences:
        from crdt_mor.api.diff import diff

        if after is not None:
            raise InvalidInputError(
                f"two tables are compared at a moment of each: say as_of=… and other_as_of=…. after={after!r}"
            )
        chosen = [columns] if isinstance(columns, str) else columns
        return diff(self._session, other._session, as_of, other_as_of, chosen)  # noqa: SLF001  of the same kind

    def why(self, key: object, *, column: str | None = None, as_of: AsOf | None = None) -> pa.Table:
        """Why the row of a key is as it is: a row for each contribution to it, in the order in which they are merged.

        key: its value; of a key of several columns a tuple. column: what was given to this one alone. as_of: as of
            `scan`; None: now.

        partition: where the row is. A key lives once in each partition, and these lives follow each other.
        change: `upsert` or `delete`, as a writer said. `kept`: the fold of older contributions that are kept no more by
            themselves, in a base file or in what a compaction passed on. `rewritten`: the row as an overwrite, or a
            commit of Hudi's that rewrote its file, has left it. `removed`: such a commit has left it out.
        columns, written: the columns that the contribution gives, and their values; null of a delete.
        effect: `inserted`, `updated`, `deleted`, or `none`, where the row is as before. changed: columns it changes.
        because: by which rule.
        result: the row after it, null where there is none. states: what payloads keep of it beside its values, where
            the table has such payloads.
        overtaken_by: the requested times of contributions that stand behind it and were visible before it, so that no
            reader has seen the row that it makes.
        folded_by, carried_by: the compactions, by their requested times, that have folded the contribution into a base
            file, and that have passed it on, by itself or together with others.
        requested, completed, version, operation, application, host, pid, message, commit_info: of its commit, as
            `history` has them; null where it is kept no more, and of a group of several processes' writes, whose files
            do not say which of them gave the value: `writers` has the applications of all of them.
        requested_at, completed_at: the two moments as 17 digits.

        There are no rows where no commit that is kept has written the key.

        Contributions are told one by one as far back as the table answers for its history, see `maintenance.clean`.
        Each costs a merge of a row, and all the log files of its file group are opened. What an overwrite made void,
        as it had begun before and completed later, was removed by its writer and is not told.

        Raises `InvalidInputError` for what is no key or column of this table, and `UnsupportedFeatureError` of a table
        whose rows do not say when they were written.
        """
        from crdt_mor.api.why import why

        return why(self._session, key, column, as_of)

    def history(self, limit: int | None = None) -> pa.Table:
        """Which commits there are, the newest first: a row each, compactions and Hudi's own commits among them.

        version: of the timeline, which shows the commit first; the number that `as_of`, `since` and
            `maintenance.restore` take. They take `completed_at` (17 digits) and `completed` (a moment in UTC), too.
        ordinal: 1, 2, 3, … in the order in which readers began to see them; `overlaps` names commits by it, and no call
            takes it. A version can show several commits first, or none, so that the two differ.
        kind: write, schema (columns were added), compaction, or upkeep of Hudi's. adopted: Hudi made it.
        duration: from its begin to the moment when it was seen.
        application, host, pid, message, commit_info: who made it, and what the user said of it (`upsert`). Null where
            Hudi or an earlier release made it. Of a group, a commit of several processes' small writes, the process
            that published it.
        writers: the same of each writer whose write became the commit, with its own rows and deletes: several of a
            group, else one. Null where nobody is known. `rows` and `deletes` of a group are what its files hold, where
            each key is written once, so that those of its writers may be more together.
        overlaps: the ordinals of the commits that were in flight at the same time.
        limit: the most rows that are returned; None: all.

        A handover to Hudi's writers is no commit: `handed_over` says since when they have the table.

        Raises `InvalidInputError` for a limit that is no number from 0 up.
        """
        from crdt_mor.api.history import history

        return history(self._session, limit)

    def verify(
        self, *, deep: bool = False, on_progress: Callable[[VerifyProgress], None] | None = None
    ) -> Verification:
        """Reread all that the table reaches, and say what is wrong, what it means and what to do. Safe beside writers.

        It reads the newest version of the timeline with its segments and plans, Hudi's timeline and history, and each
        data file that some kept view needs: pages and blocks with their checksums, sizes, key order, Bloom filters,
        statistics, states of payloads. It merges each file group as readers do, and asks of each row whether a write
        of its key would find it, and whether it fulfils the rules. It counts the keys that are in several partitions,
        which are no damage: `move` brings such rows together.

        deep: the rows are also made by the plain fold of `crdt_mor.testing`, a key at a time, and compared with those
            that readers see. That takes a hundred times as long.
        on_progress: is called with a `VerifyProgress` after each file group.

        Memory holds a file group at a time. What was not looked at is named in the result.
        """
        from crdt_mor.services.verify import verify

        return verify(self._session, deep=deep, on_progress=on_progress)

    def copy(
        self,
        to_uri: str | os.PathLike[str],
        *,
        update: bool = False,
        verify: bool = True,
        on_progress: Callable[[CopyProgress], None] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        store: Store | Handed | None = None,
    ) -> Copied:
        """Copy the table as it is now to another address, beside its writers; the copy is a table at once.

        It is the same table at one moment: its rows, the history that it keeps, its savepoints, properties and tokens,
        also for Hudi's readers, and checkpoints of its changes. Writes that are pending, and small ones that are only
        posted, are no part of it; in the copy the pending ones are given up when their writers have been silent for
        `writer_expiry`. A copy that was stopped anywhere is made whole by making it again.

        to_uri: an empty folder or address, not in the table's own. storage_options, store: how it is reached, as in
            `Table.open`; where neither is given, an address at the same provider is reached as this table is.
        update: move a copy that is there to what the table shows now: only new objects are copied, and what was
            cleaned, dropped or erased since goes from the copy as well. What was written to the copy stays: then this
            is refused.
        verify: verify the copy afterwards, as `Table.verify` does, and raise `FormatError` where that finds damage.
        on_progress: called with a `CopyProgress` after each object; what it raises stops the copy.

        Raises `TableExistsError` where something else is there; `InvalidInputError` where this table moves, is handed
        over, or has an erasure under way, and for a copy that has commits of its own.
        """
        from crdt_mor.api.copy import copy

        return copy(self._session, to_uri, update, verify, on_progress, storage_options, store)

    @property
    def handed_over(self) -> datetime | None:
        """Since when Hudi's writers have the table, in UTC, by `maintenance.handover`; None: they have not.

        Until `maintenance.takeback` whatever would write or do upkeep here raises `InvalidInputError`.
        """
        return _handed_over(self._session.views.sealed())

    def __repr__(self) -> str:
        """What the table is, as last seen: nothing is read for it."""
        config, since = self.config, _handed_over(self._session.known())
        said = "" if since is None else f", handed_over='{since:%Y-%m-%d %H:%M:%S} UTC'"
        return f"Table({self.uri!r}, key={list(config.key.fields)}, merge={config.merge.summary!r}{said})"

    def savepoint(self, name: str, *, comment: str | None = None) -> Savepoint:
        """Give what the table shows now a name, which `as_of` and `maintenance.restore` take.

        What it shows stays exact for as long as it has the name: cleans keep its files, and whatever is needed to
        restore the table to it. Safe beside writers; those that are pending are not part of it.

        name: a letter or `_`, then letters, digits, `_`, `-` and `.`, at most 128 in all. comment: at most 1 KiB.

        Raises `InvalidInputError` where the table has a savepoint of this name, or a hundred of them.
        """
        from crdt_mor.services.restore import save

        return save(self._session, name, comment)

    def savepoints(self) -> list[Savepoint]:
        """The savepoints of the table, oldest first."""
        from crdt_mor.services.restore import savepoints

        return savepoints(self._session)

    def drop_savepoint(self, name: str) -> None:
        """Take a savepoint's name away: later cleans remove what only it has kept.

        Raises `InvalidInputError` where the table has no savepoint of this name.
        """
        from crdt_mor.services.restore import unsave

        unsave(self._session, name)

    def refresh(self) -> None:
        """Look for commits that Hudi itself wrote since the table was opened."""
        self._session.views.sealed(look=True)


def _handed_over(value: Timeline) -> datetime | None:
    return None if value.handed_over == EPOCH else to_datetime(value.handed_over)


def _check_names(names: object) -> None:
    if names not in ("now", "then"):
        raise InvalidInputError(f'names is "now" or "then". got={names!r}')


def _consistency(consistency: str, *known: str) -> str:
    known = known or ("latest", "stable", "read_optimized")
    if consistency not in known:
        raise InvalidInputError(f"consistency is one of {', '.join(known)}. got={consistency!r}")
    return consistency

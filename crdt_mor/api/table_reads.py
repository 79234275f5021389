"""Read methods of a table: scans, changes, history, verification and copies.

Each read is sealed when it is called: later commits do not change it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import polars as pl
import pyarrow as pa

from crdt_mor.api.migration_status import warn_of_move
from crdt_mor.api.near_names import NearNames
from crdt_mor.api.reading import AsOf, Consistency, Readable, handed_over_since, point_of
from crdt_mor.api.scan import Scan, prefetch, whole
from crdt_mor.api.statements import require_partitions
from crdt_mor.errors import CrdtMorError, InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.model.alteration import names_at
from crdt_mor.model.cut import By, Cut
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.cut import cut_at, kept_cut_at, sealed_at
from crdt_mor.read.snapshot import Snapshot, moment_now

if TYPE_CHECKING:
    from crdt_mor.api.changes import Changes
    from crdt_mor.api.diff import Differences
    from crdt_mor.services.copy import Copied, CopyProgress
    from crdt_mor.services.mirror import Mirrored
    from crdt_mor.services.verify_findings import Verification, VerifyProgress
    from crdt_mor.store.handed_stores import Handed
    from crdt_mor.store.protocol import Store


@operations
class TableReads(Readable, NearNames):
    """Methods that read a table and its history."""

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
        """Return a scan of the current snapshot: visible rows, each key at most once per partition.

        Args:
            columns: user columns; all by default.
            filter: a polars expression or SQL text.
            as_of: a `Commit`; a version; a datetime (naive is UTC); a date (midnight UTC); ISO text of either; 17
                digits of UTC time; a savepoint's name; or "now". The rows of a moment never change, unless a restore
                cuts it off, which raises. A moment after the last event is decided by an event that this call
                publishes.
            consistency: "stable" stops before the oldest pending write, so that no later commit adds rows in between;
                "read_optimized" reads only base files: fast, but as old as the last compaction.
            meta: put Hudi's five meta columns first.
            limit: maximum number of rows, in no order; only the file slices needed are read.
            names: "now" uses current names of columns renamed or dropped since, "then" the names at that moment.

        Raises:
            FutureSnapshotError: `as_of` is in the future, or this process may not publish the event that decides it.
        """
        point = None if as_of is None else point_of(as_of)
        _check_names(names)
        stable = _consistency(consistency) == "stable"
        if stable and point is not None:
            raise InvalidInputError(
                "pass either as_of or consistency='stable': a stable scan always ends before the oldest pending write"
            )
        session = self._session

        def view(value: Timeline) -> Snapshot:
            if stable:
                snapshot = Snapshot.seal(session, value, Cut.latest(value, "requested"), moment_now(session, value))
            else:
                snapshot = Snapshot.seal(session, value, None if point is None else cut_at(session, value, point))
            if names == "then":
                snapshot = replace(snapshot, called=names_at(value.alterations, snapshot.cut.time))
            return snapshot.read_optimized() if consistency == "read_optimized" else snapshot

        def meanwhile(known: Timeline) -> None:
            with suppress(CrdtMorError):  # the scan of the newest value reports errors
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
        expired: bool = False,
        names: Literal["now", "then"] = "now",
        reader: str | None = None,
    ) -> Changes:
        """Return the changes after `since`: each changed key once, merged, in its state at the end.

        Args:
            since: the `checkpoint` of earlier changes or of a scan, or any `as_of`; None for the empty table. A chain
                of checkpoints neither skips nor repeats a commit.
            columns: user columns; all by default.
            images: return rows before and after each commit, with the column names of Delta's change data feed.
            raw: return the rows of each commit as written, unmerged; deletes contain only keys.
            consistency: "stable" stops before the oldest pending write.
            until: the end, as `since`; None for now. Changes between two points never change.
            expired: also return rows that expire (`ttl`), as deletes. The `_commit_timestamp` of images is the expiry.
            names: "now" uses current names of columns renamed or dropped since, "then" the names at the end.
            reader: a name under which the table keeps the checkpoint and `clean` the later history. Without `since`,
                begin there. `Changes.done` records the end of these changes; `since` counts as finished, too.

        Raises:
            CheckpointExpiredError: a clean dropped the history after the checkpoint.
            SnapshotExpiredError: the same for another point.
            TableReplacedError: the checkpoint belongs to another table.
        """
        from crdt_mor.api.changes import Changes, ends_of
        from crdt_mor.read.window import Window

        _check_names(names)
        if images and raw:
            raise InvalidInputError(f"pass only one of images and raw. images={images} raw={raw}")
        if expired and raw:
            raise InvalidInputError(f"raw changes contain only writes: omit raw to see expiries. expired={expired}")
        by: By = "requested" if _consistency(consistency, "latest", "stable") == "stable" else "completed"
        session = self._session
        first, last = (None if point is None else point_of(point) for point in (since, until))
        value, start, end = ends_of(session, first, last, by, expired, reader)
        warn_of_move(value.moving)
        window = Window.seal(self._session, value, start, end, expired=expired)
        called = value.names if names == "now" else names_at(value.alterations, end.time)
        return Changes(window, columns, "images" if images else "raw" if raw else "merged", called, reader)

    @overload
    def diff(
        self, before: AsOf, after: AsOf | None = None, *, columns: str | Sequence[str] | None = None
    ) -> Changes: ...

    @overload
    def diff(
        self, before: Self | Scan, after: AsOf | None = None, *, columns: str | Sequence[str] | None = None
    ) -> Differences: ...

    def diff(
        self,
        before: AsOf | Self | Scan,
        after: AsOf | None = None,
        *,
        columns: str | Sequence[str] | None = None,
    ) -> Changes | Differences:
        """Return the rows that differ between two moments as images, or count the rows that differ between two tables.

        `table.diff(copy)` compares tables of any partitions, buckets and layout; a column of only one is a difference.
        File groups with identical files are not read. As in polars, 0.0 equals -0.0, NaN equals NaN, and numbers of two
        types are compared as numbers.

        Args:
            before: a moment, as `as_of` of `scan`; or another table with the same key, or its moment as a scan:
                `copy.scan(as_of=7)`.
            after: the moment of this table; None for now.
            columns: user columns; all by default.

        Raises:
            InvalidInputError: the tables have other key columns or types that cannot be compared.
        """
        if isinstance(after, TableReads | Scan):
            raise InvalidInputError(
                "pass the other table, or its scan, as `before`, and a moment of this table as `after`. "
                f"after={after!r}"
            )
        if isinstance(before, TableReads | Scan):
            from crdt_mor.api.diff import diff, sealed

            other = whole(before) if isinstance(before, Scan) else sealed(before._session, None)  # noqa: SLF001  its class
            return diff(sealed(self._session, after, "after"), other, columns)
        from crdt_mor.api.changes import Changes
        from crdt_mor.read.window import Window

        session, first, last = self._session, point_of(before), "now" if after is None else point_of(after)
        value = sealed_at(session, before=first, after=last)
        start, end = kept_cut_at(session, value, first, "before"), kept_cut_at(session, value, last, "after")
        return Changes(Window.seal(self._session, value, start, end, expired=True), columns, "difference", value.names)

    def why(self, key: object, *, column: str | None = None, as_of: AsOf | None = None) -> pa.Table:
        """Explain why a row is as it is: a result row per contribution, in merge order.

        Contributions are listed as far back as the table keeps history (`maintenance.clean`); without any the result is
        empty. Each costs a merge of a row, and all log files of the file group are opened. Rows that an overwrite
        voided, and its writer removed, are missing.

        Args:
            key: its value; a tuple for several key columns.
            column: only contributions to this column.
            as_of: as in `scan`; None for now.

        Returns:
            partition: the row's partition. A key may exist in several.
            change: `upsert` or `delete` of a writer; `kept`, older contributions folded together; `rewritten` by an
                overwrite or a Hudi commit that rewrote the file; `removed` by such a commit.
            columns, written: the columns that the contribution sets, and their values; null for a delete.
            effect, changed: `inserted`, `updated`, `deleted` or `none`, and the columns that it changes.
            because: the rule.
            result, states: the row afterwards, or null, and payload states beside the values, if any.
            overtaken_by: requested times of later contributions that were visible first, so that no reader saw this
                result.
            folded_by, carried_by: requested times of the compactions that folded the contribution into a base file, or
                passed it on.
            requested, completed, version, operation, application, host, pid, message, commit_info: of its commit, as in
                `history`; null if no longer kept, or for a group: its files do not record the writer.
            writers: the applications of a group.
            requested_at, completed_at: the two times as 17 digits.

        Raises:
            InvalidInputError: the key or column is invalid.
            UnsupportedFeatureError: the table's rows have no commit times.
        """
        from crdt_mor.api.why import why

        return why(self._session, key, column, as_of)

    def history(
        self,
        limit: int | None = None,
        *,
        since: AsOf | None = None,
        until: AsOf | None = None,
        by: str | None = None,
    ) -> pa.Table:
        """Return the commits, newest first, including compactions and Hudi's own commits.

        A handover to Hudi's writers is not a commit: see `inspect.handed_over`.

        Args:
            limit: most rows.
            since, until: only commits visible after, and by, a point as in `scan`.
            by: only commits with a write of this application.

        Returns:
            version: the timeline version that first shows the commit, for `as_of`, `since` and `maintenance.restore`.
                They also accept `completed_at` (17 digits) and `completed` (UTC datetime).
            ordinal: 1, 2, 3, … in the order of visibility; used only in `overlaps`. A version may show several commits,
                or none.
            kind: write, schema (added columns), compaction, or upkeep by Hudi.
            adopted: made by Hudi.
            duration: from begin to visibility.
            application, host, pid, message, commit_info: the author and its `commit_info` (`upsert`); null for Hudi or
                an earlier release; in a group of small writes, the publisher.
            writers: author, rows and deletes of each write in the commit; null if unknown. `rows` and `deletes` of a
                group count each key once, so its writers' may add up to more.
            overlaps: ordinals of the commits in progress at the same time.
        """
        from crdt_mor.api.history import history

        return history(self._session, limit, since, until, by)

    def verify(
        self,
        *,
        partitions: Collection[object] | None = None,
        deep: bool = False,
        on_progress: Callable[[VerifyProgress], None] | None = None,
    ) -> Verification:
        """Read every file of the table and report damage, its effect on readers and the repair. Safe beside writers.

        It checks the timeline with its segments and plans, Hudi's timeline and history, and each data file of a kept
        snapshot: checksums, sizes, key order, Bloom filters, statistics, payload states. It merges each file group,
        looks up each row as a write does, and checks the rules. Keys in several partitions are counted, but
        are no damage: see `move`. Memory holds a file group at a time. The result names the parts not checked. If
        permitted, its count is noted for `inspect.metrics`.

        Args:
            partitions: check only the data files and rows of these partitions, named as in `overwrite`. The time does
                not depend on other partitions, and the timeline is not checked.
            deep: also merge the rows key by key with the simple fold of `crdt_mor.testing` and compare; takes a hundred
                times as long.
            on_progress: called with a `VerifyProgress` after each file group.

        Raises:
            InvalidInputError: the table has no such partition.
            FormatError: with `partitions`, if the timeline is damaged: verify the whole table.
        """
        from crdt_mor.services.verify import verify, verify_partitions
        from crdt_mor.services.verify_notes import note_verify

        if partitions is not None:
            named = require_partitions(partitions)
            return verify_partitions(self._session, named, deep=deep, on_progress=on_progress)
        found = verify(self._session, deep=deep, on_progress=on_progress)
        note_verify(self._session, len(found.findings))
        return found

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
        """Copy the table to another address, beside its writers.

        The copy is the same table at a moment, also for Hudi's readers: rows, kept history, savepoints, properties,
        tokens and checkpoints. Pending and posted writes are not included; the copy gives up the pending ones after
        `writer_expiry`. If a copy is interrupted, repeat the call.

        Args:
            to_uri: an empty folder or address outside the table's own.
            update: bring an existing copy up to date: only new objects are copied; cleaned, dropped and erased data is
                removed there, too. Refused if the copy has its own commits.
            verify: run `Table.verify` on the copy.
            on_progress: called with a `CopyProgress` after each object; its exception stops the copy.
            storage_options, store: access to the copy; by default as for this table, if both are at one provider.

        Raises:
            FormatError: the verification found damage.
            TableExistsError: the address contains something else.
            InvalidInputError: the table moves, is handed over or has an unfinished erasure; or the copy has its own
                commits.
        """
        from crdt_mor.api.copy import copy

        return copy(self._session, to_uri, update, verify, on_progress, storage_options, store)

    def mirror(
        self, format: Literal["delta", "iceberg"], *, deletes: Literal["vectors", "positions", "rewrite"] | None = None
    ) -> Mirrored:
        """Make the newest version readable for engines of Delta Lake or Apache Iceberg, unmerged logs included.

        The mirror lies at the table's own address and names its base files; changed rows go to small files. A repeated
        call writes only changed file slices. Writers and other mirrors may run beside it; if it is interrupted, repeat
        the call. `maintain` refreshes the mirrors in the property `crdt_mor.mirror`.

        Args:
            format: of the mirror; a table may have both.
            deletes: the form of deleted rows; None keeps the mirror's. Delta: deletion "vectors", the default, or
                "rewrite" changed file slices, for readers without vectors. Iceberg: "positions", the default, or
                deletion "vectors" of format version 3.

        Raises:
            UnsupportedFeatureError: the format lacks the type of a column.
            InvalidInputError: another table of that format is at this address, or `deletes` forbids the change.
        """
        from crdt_mor.services.mirror import mirror

        return mirror(self._session, format, deletes)

    def __repr__(self) -> str:
        config, since = self.config, handed_over_since(self._session.known_tail())
        said = "" if since is None else f", handed_over='{since:%Y-%m-%d %H:%M:%S} UTC'"
        return f"Table({self.uri!r}, key={list(config.key)}, merge={config.merge!r}{said})"


def _check_names(names: object) -> None:
    if names not in ("now", "then"):
        raise InvalidInputError(f'names must be "now" or "then". got={names!r}')


def _consistency(consistency: str, *known: str) -> str:
    known = known or ("latest", "stable", "read_optimized")
    if consistency not in known:
        raise InvalidInputError(f"consistency must be one of {', '.join(known)}. got={consistency!r}")
    return consistency

"""Upkeep of a table: safe beside writers and readers, in any number of processes at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from crdt_mor.api.create import Merge
from crdt_mor.api.data import Data
from crdt_mor.api.erasure import Erased, erase
from crdt_mor.api.maintenance_arguments import (
    commits_to_keep,
    compaction_options,
    instant_of,
    plan_of,
    session_of,
    with_retention,
)
from crdt_mor.api.maintenance_plans import Plans
from crdt_mor.api.maintenance_results import Archived, Compacted, CompactionPlan, compacted, with_plans_shown
from crdt_mor.api.migration import Migrated, NewSettings, cancel_migration, migrate
from crdt_mor.api.reading import AsOf, point_of
from crdt_mor.errors import CrdtMorError, InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.model.instant import EPOCH
from crdt_mor.model.partition_functions import PartitionFunction
from crdt_mor.model.policies import Policies, milliseconds
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.planners.archive import KEPT_COMMITS
from crdt_mor.planners.clean import RetentionPolicy
from crdt_mor.services.archive import archive
from crdt_mor.services.clean import Cleaned, Cleaner
from crdt_mor.services.compaction import compaction
from crdt_mor.services.compaction_finish import finish, finish_all, raise_failed
from crdt_mor.services.expiry import move_clock
from crdt_mor.services.handover import hand_over, take_back
from crdt_mor.services.maintain import maintain
from crdt_mor.services.maintain_hudi import drop_metadata_table
from crdt_mor.services.maintain_report import Maintained
from crdt_mor.services.migration import MigrationProgress
from crdt_mor.services.repair import Repaired, repair
from crdt_mor.services.restore import Restored, Savepoint, restore, save, savepoints, unsave, would_restore
from crdt_mor.services.rollback import GivenUp, roll_back
from crdt_mor.services.verify_findings import VerifyProgress
from crdt_mor.store.protocol import Store

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from crdt_mor.api.table_reads import TableReads
    from crdt_mor.services.catalogs import Registered


@operations
class Maintenance:
    """Upkeep of a table: everything that is due, or each service alone. Use `table.maintenance`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"Maintenance({self._session.uri!r})"

    @property
    def plans(self) -> Plans:
        """Plans of compactions, step by step, for schedulers of your own."""
        return Plans(self._session)

    def compact(
        self,
        plan: CompactionPlan | None = None,
        *,
        log_files_min: int = 1,
        logs_only: bool = False,
        rewrite: Literal["order"] | None = None,
        execute_parts: Callable[[Sequence[CompactionPlan]], Iterable[list[DataFile] | CrdtMorError]] | None = None,
    ) -> list[Compacted]:
        """Execute `plan`, or else all open plans, oldest first, and then a new one.

        Any number of processes may do this at once. A file group that fails, because a payload raises or a file is
        damaged, stops no other: its plan is made again without it, and the error is raised at the end.

        Args:
            log_files_min, logs_only, rewrite: for the new plan, as in `Plans.schedule`.
            execute_parts: executes plans elsewhere: gets picklable parts and returns for each, in order, the result of
                `Plans.execute` or its error.

        Raises:
            PayloadError, FormatError, SnapshotExpiredError, UnsupportedFeatureError: a file group cannot be compacted.
        """
        options = compaction_options(log_files_min, logs_only, rewrite)
        execute = with_plans_shown(execute_parts)
        if plan is None:
            move_clock(self._session)
            done = finish_all(self._session, partial(compaction, **options), execute)
        else:
            done = [finish(self._session, plan_of(plan), execute)]
        raise_failed({group: error for one in done for group, error in one.failed.items()})
        return [compacted(one.plan, one.completion) for one in done if one.completion is not None]

    def clean(
        self,
        keep: timedelta | None = None,
        *,
        commits: int | None = None,
        readers: timedelta | None = None,
        dry_run: bool = False,
    ) -> Cleaned:
        """Drop history older than `keep`, and remove the files that only it needs.

        Earlier snapshots then raise `SnapshotExpiredError`, earlier checkpoints `CheckpointExpiredError`; later
        snapshots stay exact. Files of pending writes, open plans, savepoints and stable views are kept. Safe beside
        writers and readers, in any number of processes.

        Args:
            keep: length of the history to keep.
            commits: number of last commits to keep. With `keep`, the longer history counts; by default the policies',
                seven days.
            readers: readers that began less than this ago keep their files; by default the policies', one hour. With 0,
                open views may fail.
            dry_run: only return what would be removed.

        Raises:
            InvalidInputError: a negative time or fewer than one commit; or Hudi keeps a metadata table that lists the
                files.
        """
        policies = with_retention(Policies.of(self._session.tail().properties), keep, commits)
        if readers is not None:
            policies = replace(policies, readers_ms=milliseconds("readers", readers))
        policy = RetentionPolicy.of(policies)
        if policy.keeps_everything:
            raise InvalidInputError(
                "this table's policies keep all history: pass `keep` or `commits`. crdt_mor.retention=forever"
            )
        cleaner = Cleaner(self._session, policy, dry_run=dry_run)
        return cleaner.would_clean() if dry_run else cleaner.clean()

    def archive(self, *, keep_commits: int = KEPT_COMMITS) -> Archived:
        """Move finished instants from Hudi's timeline directory to its history, so that the directory stays small.

        Readers see no change. An instant stays if its logs are not compacted, if it is later than the begin of a
        pending write, or if it belongs to the newest 128 versions.

        Args:
            keep_commits: minimum number of newest commits and compactions that stay, for Hudi's incremental readers.

        Raises:
            UnsupportedFeatureError: Hudi's own writers have archived commits of this table.
        """
        done = archive(self._session, commits_to_keep(keep_commits))
        watermark = done.value.archive.watermark
        return Archived(done.instants, None if watermark == EPOCH else watermark, done.held_by, done.left)

    def drop_metadata_table(self) -> int:
        """Remove Hudi's metadata table and its indexes, and return the number of files.

        Hudi's readers then see our writes. Set `hoodie.metadata.enable=false` for Hudi's writers, or they create a new
        one.
        """
        return drop_metadata_table(self._session)

    def roll_back(self, instant: str | datetime) -> GivenUp:
        """Give up a pending write or an open plan, and remove its files.

        Writes of dead processes expire by themselves. Until then, stable reads stop before them, and updates and
        erasures wait for them. If the writer is alive, its commit raises `WriterExpiredError`. A repeated call does
        nothing.

        Args:
            instant: 17 digits (`requested_at` of `inspect.pending()` or `inspect.timeline()`), or a UTC datetime
                (`since`).

        Raises:
            InvalidInputError: the instant is committed or unknown.
        """
        return roll_back(self._session, instant_of(instant))

    def maintain(
        self,
        *,
        keep: timedelta | None = None,
        keep_commits: int | None = None,
        dry_run: bool = False,
        execute_parts: Callable[[Sequence[CompactionPlan]], Iterable[list[DataFile] | CrdtMorError]] | None = None,
    ) -> Maintained:
        """Do all upkeep that is due by the table's policies, which are properties (`Table.set_properties`).

        It finishes open plans, compacts file groups, drops expired history with its files, and sweeps the remains of
        dead writers. Run it from cron on any number of machines; it may be killed at any time. A service that fails or
        is forbidden is named in the result, and the others continue.

        Args:
            keep, keep_commits: history to keep, as in `clean`; by default the policies `crdt_mor.retention` and
                `crdt_mor.retention.commits`, else seven days.
            dry_run: only return the work that is due.
            execute_parts: as in `compact`.
        """
        policies = Policies.of(self._session.tail().properties)
        retained = with_retention(policies, keep, keep_commits)
        return maintain(self._session, retained, dry_run, with_plans_shown(execute_parts))

    def savepoint(self, name: str, *, comment: str | None = None) -> Savepoint:
        """Name the current snapshot, for `as_of` and `restore`.

        Cleans keep its files until the savepoint is dropped. Pending writes are not included. Safe beside writers.

        Args:
            name: a letter or `_`, then letters, digits, `_`, `-` and `.`, at most 128 characters.
            comment: at most 1 KiB.

        Raises:
            InvalidInputError: the name exists, or the table has a hundred savepoints.
        """
        return save(self._session, name, comment)

    def savepoints(self) -> list[Savepoint]:
        """Return the table's savepoints, oldest first."""
        return savepoints(self._session)

    def drop_savepoint(self, name: str) -> None:
        """Drop a savepoint: later cleans remove the files that only it kept.

        Raises:
            InvalidInputError: the savepoint does not exist.
        """
        unsave(self._session, name)

    def restore(self, to: AsOf, *, dry_run: bool = False) -> Restored:
        """Restore the table to a savepoint or an earlier moment, in one event. This cannot be undone.

        Later commits and their files are dropped, pending writes rolled back, open plans cancelled. Added columns stay.
        Tokens of dropped commits may be used again. Writers get `WriterExpiredError` and may write again.

        Points between that moment and the restore are then refused; checkpoints from there raise
        `CheckpointExpiredError`: scan the table and continue from the scan's checkpoint.

        Args:
            to: a savepoint's name, or any `as_of`.
            dry_run: only return what would be dropped.

        Raises:
            SnapshotExpiredError: a clean, an erasure or an earlier restore dropped this moment.
            InvalidInputError: newer savepoints or an unfinished erasure would be undone.
            UnsupportedFeatureError: a commit to drop is archived; a savepoint prevents that.
            RestoreUnfinishedError: the table is restored, but this process may not remove some dropped files, which
                Hudi's readers still see. Repeat the call, or write, with permission to delete.
        """
        point = point_of(to)
        return would_restore(self._session, point) if dry_run else restore(self._session, point)

    def repair(self, copy: TableReads, *, on_progress: Callable[[VerifyProgress], None] | None = None) -> Repaired:
        """Replace damaged and missing files of the table with files of a copy.

        The table is verified. A file of the copy is used only if it passes the checks of `Table.verify`. Safe beside
        writers and readers. The whole table is read three times.

        Args:
            copy: a table that `Table.copy` made of this one, at any moment that contains the file.
            on_progress: called with a `VerifyProgress` after each file group, once for each reading.

        Returns:
            The replaced files, and the remaining damage.

        Raises:
            InvalidInputError: `copy` is another table, or this one.
        """
        return repair(self._session, session_of(copy), on_progress)

    def erase(
        self,
        data: Data | None = None,
        *,
        keys: object = None,
        where: pl.Expr | str | None = None,
        columns: str | Sequence[str] | None = None,
        wait: timedelta = timedelta(0),
        dry_run: bool = False,
    ) -> Erased:
        """Remove rows from the table and its history; afterwards no file contains a byte of them.

        It deletes the rows, compacts their file groups, and drops these groups' history and older files. Rows written
        later are new and stay. Safe beside writers. Readers of older views of these groups get `SnapshotExpiredError`.
        Pass exactly one of `data`, `keys` and `where`.

        Args:
            data: a frame with the key and partition columns.
            keys: key values, as in `Table.delete`; a key that does not name the partition is erased in all partitions.
            where: a condition on the current rows; their keys are erased with all history.
            columns: only set these columns to null: `erase(keys=["ada"], columns=["email"])`. Not allowed: key,
                partition, ordering and not-null columns, and columns of payloads with a state.
            wait: how long to wait for earlier writes, which may still add the rows or read them.
            dry_run: only return what would be erased now.

        Raises:
            ErasureUnfinishedError: the wait was too short, or the store failed. The rows are deleted; repeat the call.
            InvalidInputError: a savepoint, ours or Hudi's, contains the rows; nothing was deleted.
        """
        return erase(self._session, data, keys, where, columns, wait, dry_run)

    def forget_reader(self, name: str) -> None:
        """Forget a reader of `changes`, so that clean keeps no history for it. End its processes first.

        Raises:
            InvalidInputError: no reader has this name.
        """
        from crdt_mor.services.checkpoints import forget

        forget(self._session, name)

    def register(self, catalog: Catalog, name: str, *, format: Literal["iceberg", "hudi"] = "iceberg") -> Registered:
        """Make a catalog's entry show the table, for engines that open tables by name.

        Call it again after commits, or let `maintain` do it (docs/mirrors.md).

        Args:
            catalog: a catalog of pyiceberg, such as `load_catalog("prod")`.
            name: namespace and table, such as "lake.events". A missing namespace is created.
            format: "iceberg" refreshes the mirror and shows it; "hudi" shows the Hudi table in Glue or Hive.

        Raises:
            InvalidInputError: the name belongs to another table, or to an entry that other engines changed too much.
            StorageUnavailableError: the catalog does not answer, or refuses access.
        """
        from crdt_mor.services.catalogs import register

        return register(self._session, catalog, name, format)

    def handover(self) -> None:
        """Hand the table over to Hudi's writers until `takeback`.

        The table is compacted and gets Hudi's plain rule, `COMMIT_TIME_ORDERING`, because Hudi's data source and `MERGE
        INTO` refuse our default. Writes and upkeep here then raise `InvalidInputError`; reads continue. Set
        `hoodie.metadata.enable=false` for Hudi's writers. A repeated call continues after a crash.

        Raises:
            InvalidInputError: a write or a plan other than a compaction is pending, or the table uses an ordering
                column (Hudi can write it unchanged) or a custom merge.
        """
        hand_over(self._session)

    def takeback(self) -> int:
        """Take the table back from Hudi's writers, and return the number of their commits.

        Stop Hudi's writers first. A repeated call continues after a crash.

        Raises:
            InvalidInputError: Hudi has an unfinished write or service.
        """
        return take_back(self._session)

    def migrate(
        self,
        to_uri: str | os.PathLike[str],
        *,
        buckets: int | None = None,
        partition_by: str | PartitionFunction | Sequence[str | PartitionFunction] | None = None,
        hive_style: bool | None = None,
        merge: Merge | None = None,
        ordering: str | None = None,
        cluster_by: str | Sequence[str] | None = None,
        cluster_order: Literal["linear", "z-order"] | None = None,
        name: str | None = None,
        pending: Literal["wait", "roll_back"] = "wait",
        on_progress: Callable[[MigrationProgress], None] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        store: Store | None = None,
    ) -> Migrated:
        """Copy the table to another address, with other settings, while writers continue; then switch to it.

        At the end one event closes this table: its writers get `TableMovedError` with the new `uri`; readers continue.
        The new table then accepts writes and knows this table's tokens. If a call is killed or fails, repeat it.

        Args:
            to_uri: an address without a table, outside this table's folder.
            buckets, partition_by, hive_style, merge, ordering, cluster_by, cluster_order, name: as in `Table.create`;
                by default those of this table. `partition_by=()` means none, `merge="latest"` neither payloads nor
                ordering. With the same merge, payload states are copied; with another, the visible values.
            pending: "wait" for writes that are pending when the table is closed, or "roll_back" them.
            on_progress: called with a `MigrationProgress` after each commit.
            storage_options, store: access to the new table; by default as for this table, if both are at one provider.

        Raises:
            InvalidInputError: the new table cannot hold a row, for example a key in two partitions. The migration is
                given up; remove the new address's objects.
            TableExistsError: the address contains another table.
            TableMovedError: this table moved elsewhere.
        """
        wanted = NewSettings(buckets, partition_by, hive_style, merge, ordering, cluster_by, cluster_order, name)
        return migrate(self._session, to_uri, wanted, pending, on_progress, storage_options, store)

    def cancel_migration(
        self,
        *,
        storage_options: Mapping[str, Any] | None = None,
        store: Store | None = None,
        removed: bool = False,
    ) -> bool:
        """Give up this table's migration, so that it accepts writes again; False if there is none.

        The new table never opens: remove its files.

        Args:
            storage_options, store: access to the new table, as in `migrate`.
            removed: True if the new table was removed and cannot be checked.

        Raises:
            InvalidInputError: the new table already accepts writes.
        """
        return cancel_migration(self._session, storage_options, store, removed)

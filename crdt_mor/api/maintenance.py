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
from crdt_mor.api.maintenance_arguments import compaction_options, instant_of, keeping, kept, plan_of
from crdt_mor.api.maintenance_results import Archived, Compacted, compacted
from crdt_mor.api.migration import Migrated, Wanted, cancel_migration, migrate
from crdt_mor.api.reading import AsOf, point_of
from crdt_mor.errors import CrdtMorError, InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.hudi.actions import COMPACT
from crdt_mor.model.instant import EPOCH, parse
from crdt_mor.model.policies import Policies, milliseconds
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.planners.archive import KEPT_COMMITS
from crdt_mor.planners.clean import RetentionPolicy
from crdt_mor.planners.compaction import CompactionPlan
from crdt_mor.services import service
from crdt_mor.services.archive import archive
from crdt_mor.services.clean import Cleaned, Cleaner
from crdt_mor.services.compaction import compaction
from crdt_mor.services.compaction_finish import finish, finish_all, raise_failed
from crdt_mor.services.handover import hand_over, take_back
from crdt_mor.services.maintain import maintain
from crdt_mor.services.maintain_report import Maintained
from crdt_mor.services.metadata_table import drop_metadata_table
from crdt_mor.services.migration import MigrationProgress
from crdt_mor.services.repair import Repaired, repair
from crdt_mor.services.restore import Restored, restore, would_restore
from crdt_mor.services.rollback import GivenUp, roll_back
from crdt_mor.services.verify_findings import VerifyProgress
from crdt_mor.store.protocol import Store

if TYPE_CHECKING:
    from crdt_mor.api.table import Table


@operations
class Maintenance:
    """Keeps a table small and fast: what is due, and each service by itself; `table.maintenance`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def plan_compaction(
        self, *, log_files_min: int = 1, logs_only: bool = False, rewrite: Literal["order"] | None = None
    ) -> CompactionPlan | None:
        """Schedule a plan for the file groups with at least this many log files; None if there are none.

        A plan stays open until somebody executes it, in any process; `compact` does both steps.

        logs_only: a log compaction. The logs of a file group become one, and the base file stays as it is, so that it
            costs as much as the logs do, however large the base is. It is for file groups with many small logs beside a
            large base. One without a base file is compacted fully, which gives it one.
        rewrite: "order": also the file groups whose base file has its rows in another order than the table's properties
            `crdt_mor.cluster_by` and `crdt_mor.cluster_order` ask for, whatever logs they have.
        """
        plan = service.schedule(self._session, compaction(**compaction_options(log_files_min, logs_only, rewrite)))
        return None if plan is None else self._with_payloads(plan)

    def open_plans(self) -> list[CompactionPlan]:
        """Scheduled plans that nobody has completed yet, oldest first."""
        return [self._with_payloads(plan) for plan in service.open_plans(self._session, COMPACT)]

    def _with_payloads(self, plan: CompactionPlan) -> CompactionPlan:
        """The plan, which brings the table's payloads along when it is pickled."""
        return replace(plan, payloads=self._session.payloads())

    def compact(
        self,
        plan: CompactionPlan | None = None,
        *,
        log_files_min: int = 1,
        logs_only: bool = False,
        rewrite: Literal["order"] | None = None,
        execute_parts: Callable[[Sequence[CompactionPlan]], Iterable[list[DataFile] | CrdtMorError]] | None = None,
    ) -> list[Compacted]:
        """Execute `plan`; without one, every open plan, oldest first, and then a new one.

        Any number of processes may do this at once: they share the work's names, and the first to complete counts.

        A file group that cannot be compacted, since a payload raises on what it holds or a file is damaged, stops no
        other: its plan is cancelled, and made again without it. When the others are done, what it said is raised.

        log_files_min, logs_only, rewrite: of the new plan, as in `plan_compaction`.
        execute_parts: executes plans elsewhere. It is called with the parts of a plan, which can be pickled, and gives
            for each, in their order, what `execute` gives, or the error that it raises.

        Raises `PayloadError`, `FormatError`, `SnapshotExpiredError` or `UnsupportedFeatureError` for a file group that
        cannot be compacted.
        """
        options = compaction_options(log_files_min, logs_only, rewrite)
        if plan is None:
            done = finish_all(self._session, partial(compaction, **options), execute_parts)
        else:
            done = [finish(self._session, plan_of(plan), execute_parts)]
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
        """Give up history that is older than `keep`, and remove the files that nothing needs any more.

        Views as of a later time stay exact for ever; earlier ones raise `SnapshotExpiredError` from now on, and
        checkpoints that lie before it `CheckpointExpiredError`. What is given up does not come back: a later clean
        that keeps more keeps what is left. Files stay that a pending write, an open plan, a savepoint of Hudi's, or a
        stable view may need. Safe beside writers and readers, in any number of processes at once.

        keep: the history of so much time. commits: views as of each of the last so many commits. Where both are given,
            what either needs is kept; where neither is, what the table's policies say, by default seven days.
        readers: readers that began less than this long ago keep their files. By default what the table's policies say,
            one hour; 0 is for tables that nobody reads at the moment, since an open view that lost its files fails.
        dry_run: only say what would go; nothing is published.

        Raises `InvalidInputError` for times below 0 and fewer than one commit, and for tables that Hudi keeps a
        metadata table of, whose readers would look for the files that are gone.
        """
        policies = keeping(Policies.of(self._session.tail().properties), keep, commits)
        if readers is not None:
            policies = replace(policies, readers_ms=milliseconds("readers", readers))
        policy = RetentionPolicy.of(policies)
        if policy.keeps_everything:
            raise InvalidInputError(
                "this table's policies keep all history: say how much of it to keep. crdt_mor.retention=forever"
            )
        cleaner = Cleaner(self._session, policy, dry_run=dry_run)
        return cleaner.would_clean() if dry_run else cleaner.clean()

    def archive(self, *, keep_commits: int = KEPT_COMMITS) -> Archived:
        """Move what has ended for good from Hudi's timeline directory to its history: the directory stays small.

        Nothing that anybody reads changes. keep_commits: at least so many of the newest commits and compactions stay,
        for Hudi's own readers of increments. What is not compacted yet stays, and so does what came after a write that
        is still pending, and the newest 128 versions.

        Raises `UnsupportedFeatureError` where Hudi's own writers have archived commits of this table.
        """
        done = archive(self._session, kept(keep_commits))
        watermark = done.value.archive.watermark
        return Archived(done.instants, None if watermark == EPOCH else watermark, done.held_by, done.left)

    def drop_metadata_table(self) -> int:
        """Remove Hudi's metadata table with its indexes, so that Hudi's readers see what we write; how many files.
        Tell Hudi's writers `hoodie.metadata.enable=false`: by default they make another one."""
        return drop_metadata_table(self._session)

    def cancel(self, barrier: str) -> bool:
        """Give an open plan up, by its barrier, e.g. because it cannot be executed; False if it was not open.

        Raises `InvalidInputError` for what is no barrier, 17 digits as `plan.barrier` has them.
        """
        if not isinstance(barrier, str):
            raise InvalidInputError(
                f"a plan is cancelled by its barrier, maintenance.cancel(plan.barrier). got={type(barrier).__name__}"
            )
        return service.cancel(self._session, parse(barrier))

    def roll_back(self, instant: str | datetime) -> GivenUp:
        """Give up a write that is pending, or a plan that is open, by its instant, and remove its files.

        Nobody needs to: a pending write is invisible, and one whose writer is dead expires. But stable reads stop
        before it until then. Its writer, if it is alive after all, gets `WriterExpiredError` when it commits, and
        nothing of it is ever visible. Given up before by somebody: nothing happens, and the result says so.

        instant: 17 digits, `requested_at` of `inspect.pending()` and `inspect.timeline()`, as `crdt-mor show` prints
            it; or the moment, `since` of `inspect.pending()`, which is in UTC.

        Raises `InvalidInputError` for an instant that is committed, and for one that the table does not know.
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
        """Do what is due of the table's upkeep by its policies, which are properties: `Table.set_properties`.

        Open plans are finished, file groups that are due are compacted, history that is not kept any more is given up
        and its files are removed, what dead writers left is swept. Each service is safe beside any number of others, in
        this process or elsewhere, and beside writers and readers: so this may be run from cron on any number of
        machines, be killed at any moment and be run again.

        keep, keep_commits: how much history is kept, as `clean` takes them; where neither is given, as the policies
            `crdt_mor.retention` and `crdt_mor.retention.commits` say, by default seven days.
        dry_run: only say what is due.
        execute_parts: executes compactions elsewhere, as of `compact`.

        A service that this table forbids, or that fails, is named in the result, and the others go on.
        """
        policies = Policies.of(self._session.tail().properties)
        return maintain(self._session, keeping(policies, keep, keep_commits), dry_run, execute_parts)

    def restore(self, to: AsOf, *, dry_run: bool = False) -> Restored:
        """Make the table show again what it showed at a savepoint or at another moment, in one event.

        What was committed since then is dropped with its files, writes that are pending are rolled back, and open plans
        are cancelled. Columns that were added stay. A token that a dropped commit carried may be used again. Safe
        beside writers, who get `WriterExpiredError` and write again. This cannot be undone.

        From then on points between that moment and the restore are refused as `as_of`, and checkpoints from there with
        `CheckpointExpiredError`: a reader that follows the table scans it, and goes on from the scan's checkpoint. The
        history says that it was restored, and numbers are not used again.

        to: the name of a savepoint, or whatever `as_of` takes.
        dry_run: only say what would go; nothing is dropped.

        Raises `SnapshotExpiredError` for a moment that a clean, an erasure or an earlier restore has given up,
        `InvalidInputError` where savepoints that are newer, or an erasure that is under way, would be undone, and
        `UnsupportedFeatureError` where what would be dropped has been archived; a savepoint keeps that from happening.
        Raises `RestoreUnfinishedError` where the table is restored, and files of what was dropped are left that this
        process may not remove, so that Hudi's readers still see them: let one that may call this again, or write.
        """
        point = point_of(to)
        return would_restore(self._session, point) if dry_run else restore(self._session, point)

    def repair(self, copy: Table, *, on_progress: Callable[[VerifyProgress], None] | None = None) -> Repaired:
        """Replace damaged and missing files of the table with those of a copy of it.

        The table is verified; each damaged file that the copy has is checked as `Table.verify` checks it, and then
        put. Nothing is replaced by a file that fails a check. Safe beside writers and readers. The whole table is read
        three times.

        Args:
            copy: a table that `Table.copy` made of this one, at any moment that has the file.
            on_progress: called with a `VerifyProgress` after each file group, once for each reading.

        Returns:
            The files that were put, and what is still wrong.

        Raises:
            InvalidInputError: `copy` is another table, or this one.
        """
        other = copy._session  # noqa: SLF001  a table as well
        return repair(self._session, other, on_progress or (lambda _: None))

    def execute(self, plan: CompactionPlan) -> list[DataFile]:
        """Write what the plan, or a part of it, asks for, or find that somebody has; nothing of it is visible yet.

        For executors that share a plan: `plan.parts()` can be pickled, and each part may be executed anywhere, as often
        as it takes. The process that has the files of all parts calls `complete`.

        Raises what is said of a file group that cannot be compacted, as `compact` does. The plan stays open then, until
        `compact` or `maintain` makes it again without that file group, or somebody cancels it.
        """
        executed = service.execute(self._session, compaction(), plan)
        for _, error in executed.failed:
            raise error
        return executed.files

    def complete(self, plan: CompactionPlan, files: Sequence[DataFile]) -> Compacted | None:
        """Publish a compaction whose parts are all executed; None if the plan was cancelled."""
        done = service.complete(self._session, plan, files)
        return None if done is None else compacted(plan, done)

    def erase(
        self,
        data: Data | None = None,
        *,
        keys: object = None,
        where: pl.Expr | str | None = None,
        columns: str | Sequence[str] | None = None,
        wait: timedelta = timedelta(0),
    ) -> Erased:
        """Remove rows from the table and from its history; when this returns, no file has a byte of them.

        With `columns`, the rows stay, and are null in these columns: `erase(keys=["ada"], columns=["email"])`.

        Deletes the rows, compacts the file groups that hold or have held them, gives up the history of these file
        groups, and removes their older files. Other file groups keep their history. A row that is written later, with
        the same key, is a new row and stays. Safe beside writers, which go on. Readers that look at an older view of
        these file groups get `SnapshotExpiredError`.

        data: a frame with the columns of the key and the partition. keys: key values, as `Table.delete` takes them;
            where the key does not say which partition it is in, the key is erased in every partition. where: the rows
            for which it holds now, with all that history has of their keys. Exactly one of these.
        columns: which values go, and no others; None: the rows. Not columns of the key, the partition or the ordering,
            those declared without nulls, nor merged ones where a payload of the table keeps a state.
        wait: how long to wait for writes that began before the erasure, as they may still bring the rows, and for those
            that may be reading them.

        Raises `ErasureUnfinishedError` where they take longer: the rows are deleted then, and the same call goes on
        from there, as it does after a crash. Raises `InvalidInputError`, before anything is deleted, where savepoints
        of Hudi's hold the rows.
        """
        return erase(self._session, data, keys, where, columns, wait)

    def handover(self) -> None:
        """Hand the table over to Hudi's writers, all of which may write it then, until `takeback`.

        By default a table of ours has an order that Hudi's data source and its `MERGE INTO` refuse. Handed over, it has
        Hudi's plain rule, `COMMIT_TIME_ORDERING`: for that it is compacted, and nothing may be pending.
        From then on whatever would write or do upkeep here raises `InvalidInputError`; reading goes on, and shows what
        Hudi writes. Hudi's writers are told `hoodie.metadata.enable=false`. Called again, it goes on where a process
        has died, or does nothing.

        Raises `InvalidInputError` where a write is under way, or a plan that is not of a compaction, and for a table
        with an ordering column, which Hudi's writers write as it is, or of another merge than the default.
        """
        hand_over(self._session)

    def takeback(self) -> int:
        """Take the table back from Hudi's writers; returns how many commits of theirs have become part of it.

        They are to be stopped before. Called again, it goes on where a process has died, or does nothing.

        Raises `InvalidInputError` where Hudi has begun a write, or a service, and not ended it.
        """
        return take_back(self._session)

    def migrate(
        self,
        to_uri: str | os.PathLike[str],
        *,
        buckets: int | None = None,
        partition_by: str | Sequence[str] | None = None,
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
        """Move the table to another address, with other settings, while all write on; the copy follows them.

        Once little is left to copy, one event closes this table: writers get `TableMovedError`, whose `uri` is the new
        address, and readers go on. When the rest is copied, the new table takes writes, in which tokens of writes to
        this one count as used. Killed at any moment, or failed as the store did, the same call goes on where it was.

        to_uri: where no table is yet, not in this one's folder.
        buckets, partition_by, hive_style, merge, ordering, cluster_by, cluster_order, name: of the new table, as
            `Table.create` takes them; what is not given is as it is here, and so are the key and all properties.
            `partition_by=()` is none, `merge="latest"` neither payloads nor an ordering. Where the merge stays, states
            of payloads are copied as they are; where it changes, the values that readers see.
        pending: of writes that have begun when the table is closed: "wait" for them, or "roll_back" them.
        on_progress: is called with a `MigrationProgress` after each commit.
        storage_options, store: where the new table's objects are, as in `Table.create`. Where neither is given and both
            tables are at one provider of object stores, the new one is reached as the old one.

        Raises `InvalidInputError` where a row cannot be one of the new table, as a key that is in two partitions would
        live twice there. The migration is given up then, and this table takes writes; remove what is at the address.
        Raises `TableExistsError` where there is another table, `TableMovedError` where this one has moved elsewhere.
        """
        wanted = Wanted(buckets, partition_by, hive_style, merge, ordering, cluster_by, cluster_order, name)
        return migrate(self._session, to_uri, wanted, pending, on_progress, storage_options, store)

    def cancel_migration(
        self,
        *,
        storage_options: Mapping[str, Any] | None = None,
        store: Store | None = None,
        removed: bool = False,
    ) -> bool:
        """Give a migration of this table up, which takes writes again; False where none is under way.

        What has arrived at the new address is never opened: remove it. Raises `InvalidInputError` where the new table
        takes writes already.

        storage_options, store: of the new table, as in `migrate`. removed: the new table was removed, so that nobody
            is asked.
        """
        return cancel_migration(self._session, storage_options, store, removed)

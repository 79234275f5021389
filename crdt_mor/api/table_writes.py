"""A table as what one process writes to: each call is one commit, and a transaction makes one of several calls."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final, Literal

import polars as pl

from crdt_mor.api.data import Data
from crdt_mor.api.lone_transaction import commit_once, commit_rows
from crdt_mor.api.merge_into import Merged, MergeInto, merge_of, nothing_of
from crdt_mor.api.moving import keys_to_move, move_plan
from crdt_mor.api.statements import require_delete, require_isolation, require_partitions, require_statement
from crdt_mor.api.transaction import Commit, Transaction, merge_in
from crdt_mor.columns.arrow_input import bytes_of
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.model.policies import milliseconds
from crdt_mor.write.declaring import declared_by_delete, declared_by_merge, declared_by_update, declared_by_user
from crdt_mor.write.merge_into_plan import MergePlan
from crdt_mor.write.named import shown_table
from crdt_mor.write.statements import SchemaMode

WAIT: Final = timedelta(seconds=60)
"""For how long an update waits for writes that began before it, unless it is told otherwise."""


@operations
class TableWrites:
    """The part of a table that writes: what others write later refuses no call.

    Calls that read what they change have a `wait`, for writes that began before them. The others wait for nobody.
    """

    _session: Session

    def append(
        self,
        data: Data,
        *,
        schema_mode: SchemaMode = "strict",
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Commit:
        """Insert rows; a key that stands twice in `data` is an error. See `upsert`."""
        require_statement(data, schema_mode)
        return commit_rows(
            self._session, data, token, commit_info, lambda tx, rows: tx.append(rows, schema_mode=schema_mode)
        )

    def upsert(
        self,
        data: Data,
        *,
        schema_mode: SchemaMode = "strict",
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Commit:
        """Insert or update rows by key.

        data: anything with the Arrow C stream: pyarrow, polars, pandas, a DuckDB relation, another table or a scan of
            it, files (`crdt_mor.read_files`); a lazy frame of polars and a pyarrow dataset, too. All rows of one write
            are in memory until it ends; `plan_write` is for more than that.
            Columns that were added after the table was made may be left out: null, or as it was under `PartialUpdate`.
        schema_mode: "merge" adds columns that the table lacks and widens types where that is exact. A write that is
            refused adds none.
        token: (application, number), numbers growing: writing it again is a no-op that returns the first commit.
        commit_info: what the commit says of itself in `history`, texts by text, at most 4 KiB as JSON. Two keys are
            known: `message`, and `application`, which is else the token's or the program's name.
        """
        require_statement(data, schema_mode)
        return commit_rows(
            self._session, data, token, commit_info, lambda tx, rows: tx.upsert(rows, schema_mode=schema_mode)
        )

    def delete(
        self,
        data: Data | None = None,
        *,
        keys: object = None,
        where: pl.Expr | str | None = None,
        plain: bool = False,
        wait: timedelta = WAIT,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Commit:
        """Delete rows: by a frame with key (and partition) columns, by `keys`, or where `where` holds.

        keys: key values, or one alone, or tuples of them for several key columns; only where the key names the
            partition as well.
        where: an element-wise condition. It is evaluated on exactly the rows of all earlier writes, as in `update`.
        plain: in a table with an ordering column, delete whatever was requested before, without an ordering value.
        wait: as of `update`, for a delete by `where`; any other waits for nobody.
        token, commit_info: as of `upsert`.
        """
        wait_ms = milliseconds("wait", wait)
        require_delete(data, keys, where)
        if data is not None:
            return commit_rows(self._session, data, token, commit_info, lambda tx, rows: tx.delete(rows, plain=plain))
        named = list(keys) if isinstance(keys, Iterator) else keys
        return commit_once(
            self._session, token, commit_info, lambda tx: tx.delete(keys=named, where=where, plain=plain),
            size=lambda: 0, wait_ms=None if where is None else wait_ms,
            declare=None if where is None else partial(declared_by_delete, where, self._session.config),
        )  # fmt: skip

    def update(
        self,
        set: Mapping[str, object],
        where: pl.Expr | str | None = None,
        *,
        wait: timedelta = WAIT,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Commit:
        """Change columns of the rows for which `where` holds, in place: `update(set={"price": "price * 1.1"})`.

        It takes its place in the order of writes where it begins, and computes from exactly what was written before it,
        whatever completes meanwhile. So it is exact beside other writers, and nobody's data aborts it. Writes that
        began before it and are still under way are waited for; other updates alone ever wait for this one.

        set: by the name of a column its new value: an SQL text, an expression of polars, or a value that is no text. A
            text that is to be written as it is stands in quotes inside of the SQL: `{"note": "'checked'"}`. Of a column
            with a payload it is what readers are to see: a `Counter` writes the difference, and a payload whose merge
            would show another value is refused. Keys and partitions are not set.
        where: which rows; None: all of them. All rows that change are in memory until it ends.
        wait: for how long earlier writes are waited for; then `EarlierWritePendingError` says which one. Nothing is
            written then.
        token, commit_info: as of `upsert`.

        The commit's `rows` says how many rows were changed. With an ordering column a row keeps its ordering value,
        and of equal values the later write counts; a lower one would be lost, and is refused.
        """
        wait_ms = milliseconds("wait", wait)
        return commit_once(
            self._session, token, commit_info, lambda tx: tx.update(set, where), size=lambda: 0, wait_ms=wait_ms,
            declare=partial(declared_by_update, set, where, self._session.config),
        )  # fmt: skip

    def merge(
        self,
        source: Data,
        on: str | Sequence[str] | None = None,
        *,
        source_alias: str = "source",
        target_alias: str = "target",
        wait: timedelta = WAIT,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> MergeInto:
        """Merge rows of a source into the table by clauses: `merge(rows, on="id").when_matched_update_all().execute()`.

        It is exact beside other writers, as `update` is, and reads only the file groups in which rows of the source can
        meet others, unless a clause is about rows that none of the source meets.

        source: as of `upsert`.
        on: columns that are equal where rows meet, or a text, "target.id = source.id"; None: the table's key. Null
            meets nothing. Where these are not the key, it is a join. A row of the table that a clause changes is met by
            one row of the source; a partition may be set, which moves the row.
        source_alias, target_alias: what clauses call the two rows.
        wait, token, commit_info: as of `update`.
        """
        run = partial(self._merge, milliseconds("wait", wait), token, commit_info)
        session = self._session
        return merge_of(source, on, (source_alias, target_alias), session.config, session.known(), run)

    def move(
        self,
        keys: object,
        *,
        partition: Mapping[str, object],
        wait: timedelta = WAIT,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Merged:
        """Move rows to another partition: `move(["ada"], partition={"country": "FR"})`.

        Each row is deleted where it is and written where it comes to, in one commit, which is exact beside other
        writers as `update` is. An upsert with another partition would leave the old row where it is.

        keys: as of `delete`; a key without a row is passed over. partition: new values of partition columns that the
            key does not name; other columns stay as they are.
        wait, token, commit_info: as of `update`.

        The result's `updated` says how many rows have moved. Of payloads it is what they show that moves. Those that an
        update cannot set, such as sketches, keep rows where they are, and no row moves to where another one has its
        key: `InvalidInputError`, and nothing moves.
        """
        config, schema = shown_table(self._session.config, self._session.known())
        plan = move_plan(keys_to_move(keys, config, schema), partition, config, schema)
        return self._merge(milliseconds("wait", wait), token, commit_info, plan)

    def _merge(
        self, wait_ms: int, token: tuple[str, int] | None, commit_info: Mapping[str, str] | None, plan: MergePlan
    ) -> Merged:
        """Do a merge, in one commit."""
        counted = nothing_of(plan)

        def statement(tx: Transaction) -> None:
            nonlocal counted
            counted = merge_in(tx, plan)

        def size() -> int:
            return bytes_of(plan.source)

        session = self._session
        declare = partial(declared_by_merge, plan, session.config)
        commit = commit_once(session, token, commit_info, statement, size, wait_ms, declare)
        return merged_in(commit, counted)

    def overwrite(
        self,
        data: Data,
        *,
        partitions: Literal["dynamic"] | Collection[object] | None = None,
        schema_mode: SchemaMode = "strict",
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Commit:
        """Replace rows: all rows of the table by those of `data`, or all rows of some partitions.

        Nobody waits for it and nobody is aborted by it. In the order of commits its place is the moment at which it is
        seen: writes that were requested before are void in what it replaces, also those that are still under way, which
        complete with the rest of their rows. Earlier snapshots show the old rows, changes and images what it replaced.

        data: as of `upsert`; of several rows of one key the merge decides.
        partitions: None: all of the table; "dynamic": the partitions that `data` has rows of; or a list of partitions:
            values of the one partition column, tuples or mappings of several, or their paths. Rows of other partitions
            are refused then.
        schema_mode, token, commit_info: as of `upsert`.
        """
        require_statement(data, schema_mode)
        return commit_once(
            self._session, token, commit_info,
            lambda tx: tx.overwrite(data, partitions=partitions, schema_mode=schema_mode),
        )  # fmt: skip

    def delete_partitions(
        self,
        partitions: Collection[object],
        *,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Commit:
        """Delete all rows of some partitions, named as for `overwrite`. One that has no rows is no error."""
        require_partitions(partitions)
        return commit_once(self._session, token, commit_info, lambda tx: tx.delete_partitions(partitions))

    def truncate(self, *, token: tuple[str, int] | None = None, commit_info: Mapping[str, str] | None = None) -> Commit:
        """Delete all rows of the table, as an `overwrite` by none does."""
        return commit_once(self._session, token, commit_info, Transaction.truncate)

    def transaction(
        self,
        *,
        isolation: Literal["snapshot", "serializable"] = "snapshot",
        wait: timedelta = WAIT,
        partitions: Collection[object] | None = None,
        columns: Collection[str] | None = None,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Transaction:
        """Several writes in one commit, on one sealed snapshot: `with table.transaction() as tx: ...`

        isolation: "snapshot": the block reads what had been completed when it began; "serializable": it reads exactly
            what comes before it in the order of writes, as `update` does, and what it has written itself.
        wait: for how long a serializable block waits, when it reads, for writes that began before it.
        partitions: all partitions that its rows and deletes are in, named as for `overwrite`; None: any. Updates of
            others, and blocks that read others, do not wait for it. A statement about another one is refused.
        columns: in a table of `PartialUpdate`, the columns that it sets, besides key and partition; None: any. Updates
            that read others do not wait for it, unless rows that it brings may be among those that they change: a
            condition on another column rules these out. A delete is refused, as it touches all columns.
        """
        wait_ms = milliseconds("wait", wait) if require_isolation(isolation) == "serializable" else None
        session = self._session
        if partitions is None and columns is None:
            return Transaction(session, token, commit_info, wait_ms)
        return Transaction(
            session, token, commit_info, wait_ms, lambda _: declared_by_user(session, partitions, columns)
        )


def merged_in(commit: Commit, merged: Merged) -> Merged:
    """What a merge has done, in a commit."""
    return replace(
        merged,
        version=commit.version,
        requested_at=commit.requested_at,
        completed_at=commit.completed_at,
        repeated=commit.repeated,
        covered=commit.covered,
    )

"""Write methods of a table: each call is one commit; a transaction combines several calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import polars as pl

from crdt_mor.api.commit import commit_computed, commit_overwrite, commit_rows, commit_without_rows
from crdt_mor.api.data import Data, SchemaLike, read_data, read_schema
from crdt_mor.api.merge_into import Merged, MergeInto, merge_of, merge_rows, nothing_of, plain_source, require_columns
from crdt_mor.api.moving import keys_to_move, move_plan
from crdt_mor.api.statements import (
    WAIT,
    KeysStatement,
    names_of,
    require_delete,
    require_elsewhere,
    require_isolation,
    require_partitions,
    require_parts,
    require_statement,
)
from crdt_mor.api.transaction import Commit, Transaction, merged_in
from crdt_mor.api.write_input import reading_rows
from crdt_mor.columns.arrow_input import bytes_of
from crdt_mor.columns.texts import no_rows
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.model.policies import milliseconds
from crdt_mor.write.declaring import (
    Declare,
    declared_by_delete,
    declared_by_merge,
    declared_by_update,
    declared_by_user,
)
from crdt_mor.write.merge_into_plan import MergePlan
from crdt_mor.write.named import shown_table, text_types
from crdt_mor.write.statements import Operation, RowsStatement, SchemaMode
from crdt_mor.write.update import ChangeStatement, DeleteStatement, UpdateStatement, changing

if TYPE_CHECKING:
    from crdt_mor.api.merge_into_parts import MergePart, MergeSpread
    from crdt_mor.api.update_parts import ExecuteParts, PartDone, UpdatePart
    from crdt_mor.errors import CrdtMorError

    ExecuteChanges: TypeAlias = ExecuteParts[UpdatePart]
    ExecuteMerges: TypeAlias = Callable[[Sequence[MergePart], MergeSpread], Iterable[PartDone | CrdtMorError]]


@operations
class TableWrites:
    """Methods that write. Later writes of other processes never abort a call.

    Calls that read rows take `wait`, the time to wait for earlier writes. Other calls wait for nobody.
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
        """Insert rows; a key repeated in `data` is an error.

        A key that the table already contains is updated, as by `upsert`: append does not look for it. See `upsert` for
        the arguments.

        Example:
            >>> table.append(pl.DataFrame({"id": ["c"], "views": [3]})).rows
            1
        """
        require_statement(data, schema_mode)
        return self._commit_rows("INSERT", data, schema_mode, token, commit_info)

    def upsert(
        self,
        data: Data,
        *,
        schema_mode: SchemaMode = "strict",
        nulls: str | Collection[str] = (),
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Commit:
        """Insert or update rows by key.

        Args:
            data: any Arrow stream: pyarrow, polars, pandas, a DuckDB relation, a table, a scan, files
                (`crdt_mor.read_files`); also a polars lazy frame or a pyarrow dataset. Rows beyond 64 MiB go through
                a temporary file, see `Opening`. Columns added after the table's creation may be
                omitted: they become null, or stay unchanged under `PartialUpdate`.
            schema_mode: "merge" adds new columns and widens types without loss, unless the write is refused.
            nulls: columns in which nulls are written, also under `PartialUpdate(nulls="keep")`.
            token: (application, number) with growing numbers; a repeated token writes nothing and returns the first
                commit.
            commit_info: texts for `history`, at most 4 KiB as JSON. Known keys: `message`, and `application` (by
                default the token's or the program's name).

        Example:
            >>> table.upsert(pl.DataFrame({"id": ["a", "c"], "views": [10, 3]}), token=("load", 17)).rows
            2
            >>> sorted(table.to_polars().rows())
            [('a', 10), ('b', 2), ('c', 3)]
        """
        require_statement(data, schema_mode)
        return self._commit_rows("UPSERT", data, schema_mode, token, commit_info, names_of(nulls))

    def delete(
        self,
        data: Data | None = None,
        *,
        keys: object = None,
        where: pl.Expr | str | None = None,
        plain: bool = False,
        execute_parts: Callable[[Sequence[UpdatePart]], Iterable[PartDone | CrdtMorError]] | None = None,
        wait: timedelta = WAIT,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Commit:
        """Delete rows by a frame of keys, by key values or by a condition.

        Args:
            data: a frame with the key and partition columns.
            keys: key values, a single value, or tuples for several key columns; only if the key includes the partition
                columns.
            where: an element-wise condition, evaluated on exactly the rows of all earlier writes, as in `update`.
            plain: in a table with an ordering column, delete all earlier rows, without an ordering value.
            execute_parts, wait: as in `update`; only for `where`.
            token, commit_info: as in `upsert`.

        Example:
            >>> table.delete(keys=["a"]).deletes
            1
            >>> table.delete(where="views > 100").deletes
            0
        """
        wait_ms = milliseconds("wait", wait)
        require_delete(data, keys, where)
        require_elsewhere(execute_parts, where=where is not None)
        session = self._session
        if data is not None:
            return commit_rows(session, partial(self._keys_in, data, plain), token, commit_info)
        if where is None:
            keyed = KeysStatement(list(keys) if isinstance(keys, Iterator) else keys, plain)
            return commit_rows(session, lambda: keyed, token, commit_info)
        declare = partial(declared_by_delete, where, session.config)
        return self._change(DeleteStatement(where, plain), execute_parts, token, commit_info, wait_ms, declare)

    def _keys_in(self, data: Data, plain: bool) -> RowsStatement:
        session = self._session
        rows = read_data(data, lambda: text_types(session.config, session.known_tail()))
        return RowsStatement("DELETE", rows, plain=plain)

    def _change(
        self,
        statement: ChangeStatement,
        execute_parts: ExecuteChanges | None,
        token: tuple[str, int] | None,
        commit_info: Mapping[str, str] | None,
        wait_ms: int,
        declare: Declare,
    ) -> Commit:
        if execute_parts is None:
            computed = partial(changing, statement)
            return commit_computed(self._session, computed, token, commit_info, wait_ms, declare)[0]
        from crdt_mor.api.update_parts import change_in_parts

        return change_in_parts(self._session, statement, execute_parts, token, commit_info, wait_ms, declare)

    def _commit_rows(
        self,
        kind: Operation,
        data: Data,
        mode: SchemaMode,
        token: tuple[str, int] | None,
        commit_info: Mapping[str, str] | None,
        nulls: tuple[str, ...] = (),
    ) -> Commit:
        statement = partial(RowsStatement, kind, mode=mode, nulls=nulls)
        with reading_rows(self._session, data, statement) as read:
            return commit_rows(self._session, read, token, commit_info)

    def update(
        self,
        set: Mapping[str, object],
        where: pl.Expr | str | None = None,
        *,
        execute_parts: Callable[[Sequence[UpdatePart]], Iterable[PartDone | CrdtMorError]] | None = None,
        wait: timedelta = WAIT,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Commit:
        """Change columns of the rows that match `where`: `update(set={"price": "price * 1.1"})`.

        An update takes its place in the order of writes when it begins. It waits for pending earlier writes, and reads
        exactly the earlier ones. Later writes never abort it; later updates, merges and erasures wait for it.

        The commit's `rows` is the number of changed rows. With an ordering column, rows keep their ordering value;
        among equal values the later write wins, and a lower value is refused.

        Args:
            set: new values by column: an SQL text, a polars expression or another value. Quote literal text inside the
                SQL: `{"note": "'checked'"}`. For a payload column, this is the value that readers will see: a `Counter`
                writes the difference; a payload that would merge to another value is refused. Key and partition columns
                cannot be set.
            where: the rows; None for all. All changed rows are in memory until the update ends.
            execute_parts: computes the update in other processes, each for some file groups that may match `where`.
                Called with the picklable parts once all earlier writes have ended, while the write is kept alive.
                Returns for each part, in order, the result of `UpdatePart.execute` or its error. Not called if no file
                group matches. If it raises, nothing of the update is left.
            wait: how long to wait for earlier writes, counted from the begin of the update.
            token, commit_info: as in `upsert`.

        Raises:
            EarlierWritePendingError: the wait was too short; the error names the write, and nothing was written.
        """
        wait_ms = milliseconds("wait", wait)
        declare = partial(declared_by_update, set, where, self._session.config)
        return self._change(UpdateStatement(set, where), execute_parts, token, commit_info, wait_ms, declare)

    def merge(
        self,
        source: Data | SchemaLike,
        on: str | Sequence[str] | None = None,
        *,
        parts: int | None = None,
        execute_parts: Callable[[Sequence[MergePart], MergeSpread], Iterable[PartDone | CrdtMorError]] | None = None,
        source_alias: str = "source",
        target_alias: str = "target",
        wait: timedelta = WAIT,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> MergeInto:
        """Merge source rows into the table: `merge(rows, on="id").when_matched_update_all().execute()`.

        Like `update`, a merge reads exactly the earlier writes. It reads only file groups that may match source rows,
        unless a clause concerns unmatched table rows.

        Args:
            source: as `data` in `upsert`; with `execute_parts` only its columns, as `schema` in `create`.
            on: columns to match for equality, or text like "target.id = source.id"; None for the table's key. Null
                matches nothing. Other columns than the key form a join. A table row that a clause changes must match a
                single source row; setting a partition column moves the row.
            parts: maximum number of parts. Merges on other columns than the key, or with inserts under other keys than
                the source's, have only one.
            execute_parts: computes the merge in other processes, each for some keys in all partitions, as in `update`.
                Also gets the assignment of source rows to parts. Called even without source rows, because clauses may
                concern unmatched table rows.
            source_alias, target_alias: names of the two rows in clauses.
            wait, token, commit_info: as in `update`.

        Example:
            >>> merge = table.merge(pl.DataFrame({"id": ["a", "c"], "views": [5, 3]})).when_matched_update_all()
            >>> done = merge.when_not_matched_insert_all().execute()
            >>> done.updated, done.inserted
            (1, 1)
        """
        config, value = self._session.config, self._session.known_tail()
        parts_max = require_parts(parts, execute_parts)
        rows = cast(Data, source) if execute_parts is None else no_rows(read_schema(source))
        run = partial(self._merge, token, commit_info, milliseconds("wait", wait), parts_max, execute_parts)
        return merge_of(rows, on, (source_alias, target_alias), config, value, run)

    def move(
        self,
        keys: object,
        *,
        partition: Mapping[str, object],
        parts: int | None = None,
        execute_parts: Callable[[Sequence[MergePart], MergeSpread], Iterable[PartDone | CrdtMorError]] | None = None,
        wait: timedelta = WAIT,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Merged:
        """Move rows to another partition: `move(["ada"], partition={"country": "FR"})`.

        Each row is deleted from its old partition and written to the new in the same commit, exact like an `update`. An
        upsert would keep the old row. The result's `updated` is the number of moved rows. Of payloads the visible value
        moves.

        Args:
            keys: as in `delete`; missing keys are ignored. With `execute_parts` only their columns, as `schema` in
                `create`; the parts then get each key once.
            partition: new values of partition columns outside the key; other columns stay.
            parts, execute_parts: as in `merge`.
            wait, token, commit_info: as in `update`.

        Raises:
            InvalidInputError: a payload such as a sketch cannot be set by updates, or the new partition contains the
                key; nothing moves.
        """
        config, schema = shown_table(self._session.config, self._session.known_tail())
        parts_max = require_parts(parts, execute_parts)
        if execute_parts is None:
            plan = move_plan(keys_to_move(keys, config, schema), partition, config, schema)
        else:
            rows = plain_source(no_rows(read_schema(cast(SchemaLike, keys))))
            plan = move_plan(rows, partition, config, schema)
            require_columns(plan)
        return self._merge(token, commit_info, milliseconds("wait", wait), parts_max, execute_parts, plan)

    def _merge(
        self,
        token: tuple[str, int] | None,
        commit_info: Mapping[str, str] | None,
        wait_ms: int,
        parts_max: int,
        execute_parts: ExecuteMerges | None,
        plan: MergePlan,
    ) -> Merged:
        if execute_parts is not None:
            from crdt_mor.api.merge_into_parts import merge_in_parts

            return merge_in_parts(self._session, plan, parts_max, execute_parts, token, commit_info, wait_ms)
        session, statement = self._session, partial(merge_rows, plan)
        declare = partial(declared_by_merge, plan, session.config)
        commit, counted = commit_computed(
            session, statement, token, commit_info, wait_ms, declare, lambda: bytes_of(plan.source)
        )
        return merged_in(commit, nothing_of(plan) if counted is None else counted)

    def overwrite(
        self,
        data: Data,
        *,
        partitions: Literal["dynamic"] | Collection[object] | None = None,
        schema_mode: SchemaMode = "strict",
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Commit:
        """Replace all rows of the table, or of some partitions, by the rows of `data`.

        It waits for nobody and aborts nobody. Its place in the order of commits is the moment when it becomes visible:
        earlier writes, also pending ones, are void in the replaced partitions. Earlier snapshots still show the old
        rows; changes and images show the replacement.

        Args:
            data: as in `upsert`; rows of one key are merged.
            partitions: None for the whole table; "dynamic" for the partitions in `data`; or a list: values of the
                partition column, tuples or mappings of several, or paths. Rows of other partitions are then refused.
            schema_mode, token, commit_info: as in `upsert`.

        Example:
            >>> table.overwrite(pl.DataFrame({"id": ["z"], "views": [0]})).rows
            1
            >>> table.count()
            1
        """
        require_statement(data, schema_mode)

        statement = partial(RowsStatement, "UPSERT", mode=schema_mode, are_new=True)
        with reading_rows(self._session, data, statement, by_key=False) as read:
            return commit_overwrite(self._session, read, partitions, token, commit_info)

    def delete_partitions(
        self,
        partitions: Collection[object],
        *,
        token: tuple[str, int] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> Commit:
        """Delete all rows of some partitions, named as in `overwrite`. Empty partitions are no error."""
        require_partitions(partitions)
        return commit_without_rows(self._session, partitions, token, commit_info)

    def truncate(self, *, token: tuple[str, int] | None = None, commit_info: Mapping[str, str] | None = None) -> Commit:
        """Delete all rows of the table, like an `overwrite` without rows."""
        return commit_without_rows(self._session, None, token, commit_info)

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
        """Combine several writes in one commit, on one snapshot: `with table.transaction() as tx: ...`

        Args:
            isolation: "snapshot" reads the commits completed before the block; "serializable" reads exactly the writes
                that began before it, as `update` does, and its own.
            wait: how long reads of a serializable block wait for earlier writes, counted from its begin.
            partitions: all partitions that the block writes to, as in `overwrite`; None for any. Updates and blocks
                that read other partitions do not wait for it. Statements on other partitions are refused.
            columns: with `PartialUpdate`, all columns that the block sets besides key and partition; None for any.
                Updates that read other columns do not wait for it, unless its new rows may match their condition.
                Deletes, which touch all columns, are refused.
            token, commit_info: as in `upsert`.

        Example:
            >>> with table.transaction() as tx:
            ...     tx.delete(keys=["a"])
            ...     tx.upsert(pl.DataFrame({"id": ["b", "c"], "views": [20, 30]}))
            >>> tx.commit.rows, tx.commit.deletes
            (2, 1)
        """
        wait_ms = milliseconds("wait", wait) if require_isolation(isolation) == "serializable" else None
        session = self._session
        if partitions is None and columns is None:
            return Transaction(session, token, commit_info, wait_ms)
        return Transaction(
            session, token, commit_info, wait_ms, lambda _: declared_by_user(session, partitions, columns)
        )

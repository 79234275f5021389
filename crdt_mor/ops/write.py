"""A write, from statements to one commit.

    1. begin     the instant is pending; the transaction holds this very timeline to its end
    2. collect   statements are checked, cast to stored types, keyed and hashed to buckets; nothing is stored yet
    3. stage     precombine; per touched file group encode one log file, appearing whole
    4. complete  one put makes all of it visible

Whatever fails before 4 rolls the write back and leaves nothing; what dies before 4 is garbage that nobody sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Literal

import polars as pl
import pyarrow as pa

from crdt_mor.errors import (
    CommitUnknownError,
    InvalidInputError,
    SchemaMismatchError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from crdt_mor.merge.payload import Dot
from crdt_mor.merge.precombine import DeleteWrite, RowsWrite, precombine
from crdt_mor.model.config import WRITTEN_VERSION, TableConfig
from crdt_mor.model.keys import buckets
from crdt_mor.model.names import LogFileName, bucket_file_id
from crdt_mor.model.schema import TableSchema
from crdt_mor.model.timeline import DataFile, Pending, Timeline
from crdt_mor.ops import lifecycle
from crdt_mor.ops.heartbeat import beating
from crdt_mor.ops.merging import Merging, check_columns, lift, merging, require_payloads
from crdt_mor.ops.protocol import find_completion
from crdt_mor.ops.read import in_threads
from crdt_mor.ops.session import Session
from crdt_mor.ops.stage import (
    BUCKET,
    KEY,
    PARTITION,
    Deletes,
    Group,
    Rows,
    StoredRows,
    by_group,
    ensure_partition,
    group_rows,
    log_file,
    sorted_keys,
    stored_array,
    worth_a_dictionary,
)

Operation = Literal["INSERT", "UPSERT", "DELETE"]
SchemaMode = Literal["strict", "merge"]

@dataclass
class Write:
    """One write under way. Not thread-safe; the session below it is."""

    session: Session
    value: Timeline
    begun: Pending
    token: tuple[str, int] | None = None
    _schema: TableSchema = field(init=False)
    _how: Merging = field(init=False)
    _operations: set[Operation] = field(default_factory=set)
    _statements: list[RowsWrite | DeleteWrite] = field(default_factory=list)
    _staged: list[str] = field(default_factory=list)
    _alive: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self._schema = TableSchema.from_json(self.value.schema)
        self._how = merging(self.config, self.value.schema)
        self._alive.enter_context(beating(self.session.store, self.begun.requested, self.session.expiry_ms))

    @classmethod
    def begin(cls, session: Session, token: tuple[str, int] | None) -> Write:
        """Begin; refuses tables whose keys might live in file groups that the bucket index did not make."""
        require_bucketed(session.settings())
        require_payloads(session.config)
        require_no_archive(session)
        try:
            value, begun = session.begin()
        except CommitUnknownError as error:
            raise StorageUnavailableError(
                f"the store failed while the write began; nothing was published. Try again. cause={error.__cause__}"
            ) from error
        write = cls(session, value, begun, token)
        if value.foreign_group is not None:
            write.roll_back()
            raise foreign_group(value.foreign_group)
        return write

    @property
    def config(self) -> TableConfig:
        return self.session.config

    # --- statements ---------------------------------------------------------------------------------------------

    def upsert(self, data: pa.Table, operation: Operation, mode: SchemaMode) -> None:
        """Add rows. `mode="merge"` grows the table's schema first, in an event of its own."""
        if mode == "merge":
            self._grow(data.schema)
        rows = self._schema.normalise(data, self._how.accepts)
        self._check_columns(rows)
        keys = self._keyed(rows)
        if operation == "INSERT":
            _refuse_repeats(keys)
        frame = pl.DataFrame(pl.from_arrow(rows)).with_columns(keys)
        given = None
        if self.config.merge.custom:
            lifted = lift(frame.select(rows.column_names), self._how, self._dot(rows.num_rows))
            given, frame = tuple(lifted.columns), lifted.with_columns(keys)
        self._operations.add(operation)
        self._statements.append(RowsWrite(frame, given))

    def delete(self, data: pa.Table, plain: bool) -> None:
        """Delete by key. Where a column orders, tombstones carry its value, unless they are `plain`."""
        config = self.config
        ordering = config.merge.ordering if config.merge.kind == "ordering" and not plain else None
        needed = [*dict.fromkeys([*config.key.fields, *config.key.partition_fields, *([ordering] if ordering else [])])]
        absent = [name for name in needed if name not in data.column_names]
        if absent:
            hint = "; pass plain=True to delete whatever came before this commit" if absent == [ordering] else ""
            raise InvalidInputError(f"a delete needs the columns {needed}{hint}. missing={absent}")
        rows = self._schema.normalise(data.select(needed))
        if ordering and rows[ordering].null_count:
            raise InvalidInputError(f"the ordering value of a delete must not be null. column={ordering!r}")
        frame = self._keyed(rows)
        if ordering:
            frame = frame.with_columns(ordering=pl.Series(pl.from_arrow(rows[ordering])))
        self._operations.add("DELETE")
        self._statements.append(DeleteWrite(frame))

    def _dot(self, rows: int) -> Dot:
        """The places of `rows` rows in this transaction, after those of earlier statements."""
        first = sum(s.rows.height for s in self._statements if isinstance(s, RowsWrite))
        place = pl.int_range(first, first + rows, dtype=pl.Int32)
        unseen = ",".join(p.requested for p in self.value.pending if p.requested < self.begun.requested)
        return Dot(pl.lit(int(self.begun.requested), pl.Int64), place, pl.lit(unseen))

    def _grow(self, written: pa.Schema) -> None:
        # What a payload takes in another type than its column's says nothing about the column.
        schema = pa.schema([column for column in written if not self._how.takes(column)])
        grown_schema = self._schema.grow(schema)
        if grown_schema == self._schema:
            return
        check_columns(self.config, grown_schema)
        ordering = self.config.merge.ordering
        if ordering and self._schema.grow(schema).select([ordering]).stored != self._schema.select([ordering]).stored:
            raise SchemaMismatchError(
                "an ordering column keeps its type: Hudi's readers compare values of older deletes with newer rows, "
                f"and only values of one type: cast the data. column={ordering!r}"
            )
        grown = self.session.remember(self.session.run(lifecycle.grow(self.session.publisher, self.value, schema)))
        # Columns that others have added since this write began are not asked for: nobody aborts because of others.
        known = dict.fromkeys([*self._schema.declared.names, *schema.names])
        self._schema = TableSchema.from_json(grown.schema).select(known)
        self._how = merging(self.config, self._schema.to_json())
        types = self._how.columns.stored
        self._statements = [_widened(statement, types, self.config.merge.ordering) for statement in self._statements]

    def _check_columns(self, rows: pa.Table) -> None:
        key = self.config.key
        ordering = self.config.merge.ordering if self.config.merge.kind == "ordering" else None
        required = [*key.fields, *key.partition_fields]
        if not self.config.merge.partial:
            required = self._schema.declared.names
        absent = [name for name in required if name not in rows.column_names]
        if absent:
            raise SchemaMismatchError(
                "every column must be given: two jobs that read, change and rewrite whole rows silently undo one "
                "another. To write some columns only, create the table with merge=PartialUpdate(), or "
                "PartialUpdate(columns={...}) where columns have payloads. "
                f"missing={absent}"
                if not self.config.merge.partial
                else f"a partial update still needs the key and partition columns. missing={absent}"
            )
        for member in self._how.rule.members:
            missing = [name for name in member.columns if name not in rows.column_names]
            if missing and len(missing) < len(member.columns):
                raise SchemaMismatchError(
                    f"{member.payload.name} decides these columns together: give all of them or none. "
                    f"columns={list(member.columns)} missing={missing}"
                )
        if ordering and rows[ordering].null_count:
            raise InvalidInputError(f"an ordering value must not be null: it would lose silently. column={ordering!r}")

    def _keyed(self, rows: pa.Table) -> pl.DataFrame:
        """Record key, partition and bucket of each row."""
        config = self.config
        assert config.buckets is not None
        keys = config.key.record_keys(rows)
        return pl.DataFrame(
            {
                KEY: pl.from_arrow(keys),
                PARTITION: pl.from_arrow(config.key.partition_paths(rows)),
                BUCKET: buckets(keys, config.key, config.buckets),
            }
        )

    # --- the end ------------------------------------------------------------------------------------------------

    def commit(self) -> lifecycle.Committed:
        """Stage everything and make it visible; on any failure nothing is left."""
        try:
            files = self._stage_all()
            committed = self.session.run(
                lifecycle.complete(self.session.publisher, self.value, self.begun, self._operation(), files, self.token)
            )
        except CommitUnknownError as error:
            committed = self._find_out(error)
        except BaseException:
            self.abandon()
            raise
        self._alive.close()
        self.session.remember(committed.value)
        return committed

    def roll_back(self) -> Timeline:
        """Give the write up and remove what it staged."""
        self._alive.close()
        return self.session.run(
            lifecycle.give_up(self.session.publisher, self.value, self.begun.requested, self._staged)
        )

    def abandon(self) -> None:
        """Roll back as far as the store lets us: nobody can see this write, and others clean up after its expiry."""
        with suppress(StorageUnavailableError, CommitUnknownError):
            self.roll_back()

    def _find_out(self, unknown: CommitUnknownError) -> lifecycle.Committed:
        """Whether a commit landed: rolling it back either works, and then it never will, or finds it there."""
        try:
            value = self.roll_back()
            done = self.session.run(find_completion(self.begun.requested, value))
        except (StorageUnavailableError, CommitUnknownError):
            raise unknown from None
        if done is None:
            raise StorageUnavailableError(
                "the store failed in the middle of the commit, which was rolled back: nothing was published. Try "
                f"again. requested={self.begun.requested}"
            ) from unknown
        return lifecycle.Committed(done, value)

    def _operation(self) -> Operation:
        return next(iter(self._operations)) if len(self._operations) == 1 else "UPSERT"

    def _stage_all(self) -> list[DataFile]:
        """One log file for each touched file group; what the transaction says of a key is folded first."""
        if not self._statements:
            return []
        rule, schema = self._how.rule, self._how.schema
        combined = precombine(self._statements, rule)
        parts: dict[Group, list[Callable[[], Deletes | Rows]]] = {}
        for keys, ordering in ((combined.deletes, None), (combined.tombstones, self.config.merge.ordering)):
            for group, found in by_group(keys):
                parts.setdefault(group, []).append(partial(self._deletes, keys, found, ordering))
        first = 0
        for given, states in combined.rows:
            rows = rule.show(states)
            some = given is not None and not set(schema.declared.names) <= set(rows.columns)
            repeating = worth_a_dictionary(rows, schema)
            for group, found in by_group(rows):
                parts.setdefault(group, []).append(partial(self._rows, rows, found, group, first, some, repeating))
                first += len(found)
        return list(in_threads(self._stage, sorted(parts.items(), key=itemgetter(0))))

    def _deletes(self, keys: pl.DataFrame, found: pl.Series, ordering: str | None) -> Deletes:
        instant = self.begun.requested
        mine = keys[sorted_keys(keys, found)]
        texts = stored_array(mine[KEY], pa.string())
        if ordering is not None:
            return Deletes(instant, texts, stored_array(mine["ordering"], self._schema.stored.field(ordering).type))
        # In the default table Hudi compares by requested time, so a tombstone says its own.
        latest = self.config.merge.kind == "latest"
        return Deletes(instant, texts, pa.repeat(pa.scalar(instant), len(texts)) if latest else None)

    def _rows(
        self, rows: pl.DataFrame, found: pl.Series, group: Group, first: int, some: bool, repeating: tuple[str, ...]
    ) -> Rows:
        instant, schema = self.begun.requested, self._how.schema
        order = sorted_keys(rows, found)

        def cut(start: int, count: int) -> pa.Table:
            return group_rows(rows, order.slice(start, count), group, instant, first + start, schema)

        return Rows(instant, StoredRows(len(order), cut(0, 0).column_names, repeating, cut), some)

    def _stage(self, item: tuple[Group, Sequence[Callable[[], Deletes | Rows]]]) -> DataFile:
        (partition, bucket), parts = item
        name = LogFileName(bucket_file_id(bucket), self.begun.requested)
        data, file = log_file(self.config, self._how.schema, partition, name, [part() for part in parts])
        self._require_pending()
        ensure_partition(self.session.store, partition, self.begun.requested)
        self._staged.append(file.path)
        self.session.store.put(file.path, data)
        return file

    def _require_pending(self) -> None:
        """A writer that was given up must not leave files behind whoever swept."""
        tail = self.session.tail()
        if tail.find_pending(self.begun.requested) is None:
            raise lifecycle.expired(self.begun.requested)


def _widened(
    statement: RowsWrite | DeleteWrite, types: Mapping[str, pl.DataType], ordering: str | None
) -> RowsWrite | DeleteWrite:
    """A statement that was made before this write grew the schema, in the types that the columns have now."""
    if isinstance(statement, RowsWrite):
        wider = [pl.col(name).cast(types[name]) for name in statement.rows.columns if name in types]
        return RowsWrite(statement.rows.with_columns(wider), statement.given)
    if ordering is None or "ordering" not in statement.keys.columns:
        return statement
    return DeleteWrite(statement.keys.with_columns(pl.col("ordering").cast(types[ordering])))


def _refuse_repeats(keys: pl.DataFrame) -> None:
    repeated = keys.filter(pl.struct(PARTITION, KEY).is_duplicated())
    if repeated.height:
        raise InvalidInputError(
            f"a key stands twice in an append; use upsert, where the last one wins. key={repeated[KEY][0]!r}"
        )


def require_bucketed(config: TableConfig) -> None:
    """Raise for tables that cannot be written, or whose keys cannot be mapped to file groups."""
    if config.version != WRITTEN_VERSION:
        raise InvalidInputError(
            f"tables of version {config.version} can be read, but not written: upgrade the table with Hudi to version "
            f"{WRITTEN_VERSION}. version={config.version}"
        )
    require_no_metadata_table(config)
    if config.table_type != "MERGE_ON_READ":
        raise InvalidInputError(f"only merge-on-read tables can be written. table_type={config.table_type}")
    if config.buckets is None:
        raise InvalidInputError(
            "this table does not say how many buckets its index has, so a new key could be put where no other writer "
            "looks. If Hudi writes it with a simple bucket index, add hoodie.bucket.index.num.buckets=<n> to its "
            "hoodie.properties; otherwise copy it: Table.create(...).append(Table.open(...).scan())"
        )


def require_no_archive(session: Session) -> None:
    """Raise for a table that Hudi made and whose timeline it has archived in part: what ended there, Hudi knows."""
    if not session.config.ours and session.store.list(session.publisher.projector.archive):
        raise UnsupportedFeatureError(
            "Hudi has archived part of this table's timeline, and this release only reads such tables: let Hudi write "
            "it, or copy it, Table.create(...).append(Table.open(...).scan()). "
            f"folder={session.publisher.projector.archive}"
        )


def require_no_metadata_table(config: TableConfig) -> None:
    """Raise where Hudi's readers would not find what we write, be it a commit or a compaction."""
    if config.metadata_partitions:
        raise InvalidInputError(
            "Hudi keeps a metadata table here, and its readers would not see files that are not listed there. Tell its "
            "writers hoodie.metadata.enable=false, and remove it with Hudi: call delete_metadata_table(table => ...). "
            f"metadata={list(config.metadata_partitions)}"
        )


def foreign_group(file_id: str) -> InvalidInputError:
    """The refusal to write a table in which keys may live outside the bucket index."""
    return InvalidInputError(
        "another engine wrote to file groups that this table's bucket index did not make, so a key could live twice. "
        "Tell that writer hoodie.index.type=BUCKET with this table's bucket count, and copy the rows to a new table: "
        f"Table.create(...).append(Table.open(...).scan()). file_id={file_id}"
    )

"""A write, from statements to one commit.

    1. begin     the instant is pending; the transaction holds this very timeline to its end
    2. collect   statements are checked, cast to stored types, keyed and hashed to buckets; nothing is stored yet
    3. stage     precombine; per touched file group encode one log file, appearing whole
    4. complete  one put makes all of it visible

Whatever fails before 4 rolls the write back and leaves nothing; what dies before 4 is garbage that nobody sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Literal, TypeVar

import polars as pl
import pyarrow as pa

from crdt_mor.errors import (
    CommitUnknownError,
    InvalidInputError,
    SchemaMismatchError,
    StorageUnavailableError,
    TableNotFoundError,
    TableReplacedError,
)
from crdt_mor.format.base import repeating_columns
from crdt_mor.laws.merging import Merging, check_columns, lift, merging
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.merge.payload import Dot
from crdt_mor.merge.polars_types import stored_array
from crdt_mor.merge.precombine import DeleteWrite, RowsWrite, precombine
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.keys import buckets
from crdt_mor.model.names import WRITE_TOKEN, LogFileName, bucket_file_id, driver_token
from crdt_mor.model.schema import TableSchema
from crdt_mor.model.timeline import DataFile, Pending, Timeline
from crdt_mor.store.base import Chunks
from crdt_mor.threads import in_threads
from crdt_mor.timeline import events, jobs, rollback
from crdt_mor.timeline.heartbeat import beating
from crdt_mor.timeline.history import find_completion
from crdt_mor.timeline.session import Session
from crdt_mor.write.log_files import (
    BUCKET,
    Deletes,
    Group,
    Rows,
    StoredRows,
    by_group,
    ensure_partition,
    group_rows,
    log_file,
    put_log,
    sorted_keys,
)
from crdt_mor.write.refusals import require_own_groups, require_writable

Operation = Literal["INSERT", "UPSERT", "DELETE"]
SchemaMode = Literal["strict", "merge"]
F = TypeVar("F")

PLACES_PER_TASK = 1 << 20
_PLACES = 1 << 30
"""Payloads may count two places a row, in 32 bits."""


@dataclass
class OpenWrite:
    """One write under way. Not thread-safe; the session below it is.

    task: which part of a distributed write this is; None: all of it.
    token_of_files: the write token in the names of its log files.
    """

    session: Session
    value: Timeline
    begun: Pending
    token: tuple[str, int] | None = None
    task: int | None = None
    token_of_files: str = WRITE_TOKEN
    _began: TableSchema = field(init=False)
    _schema: TableSchema = field(init=False)
    _how: Merging = field(init=False)
    _operations: set[Operation] = field(default_factory=set)
    _statements: list[RowsWrite | DeleteWrite] = field(default_factory=list)
    _staged: list[str] = field(default_factory=list)
    _alive: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self._began = self._schema = TableSchema.from_json(self.value.schema)
        self._how = merging(self.config, self._schema.to_json())

    @classmethod
    def begin(cls, session: Session, token: tuple[str, int] | None) -> OpenWrite:
        """Begin; refuses tables whose keys might live in file groups that the bucket index did not make."""
        require_writable(session)
        value, begun = begin(session)
        write = cls(session, value, begun, token)
        write.keep_alive()
        return write

    @property
    def config(self) -> TableConfig:
        return self.session.config

    def keep_alive(self) -> None:
        """Touch the write's heartbeat now and then, until the write is over."""
        self._alive.enter_context(beating(self.session.store, self.begun.requested, self.session.expiry_ms))

    @property
    def statements(self) -> list[RowsWrite | DeleteWrite]:
        """What was said so far, checked, cast and keyed."""
        return self._statements

    @property
    def dotted(self) -> bool:
        """Whether some payload keeps a state, in which it may tell writes of one commit apart by their places."""
        return any(member.hidden is not None for member in self._how.rule.members)

    def states(self, columns: Sequence[str]) -> list[str]:
        """The columns of a log file to read in order to say again what it says: states instead of what they show."""
        return self._how.rule.stored(columns)

    # --- statements ---------------------------------------------------------------------------------------------

    def upsert(self, data: pa.Table, operation: Operation, mode: SchemaMode) -> None:
        """Add rows. What `mode="merge"` adds to the schema is published by `publish_growth`, if nothing is refused."""
        schema, how = self._schema, self._how
        if mode == "merge":
            schema = self._grown(data.schema)
            how = merging(self.config, schema.to_json())
        rows = self._filled(schema.normalise(data, how.accepts), schema)
        self._check_columns(rows, how)
        keys = keyed(self.config, rows)
        if operation == "INSERT":
            refuse_repeats(keys)
        frame = pl.DataFrame(pl.from_arrow(rows)).with_columns(keys)
        given = None
        if self.config.merge.custom:
            lifted = lift(frame.select(rows.column_names), how, self._dot(rows.num_rows))
            given, frame = tuple(lifted.columns), lifted.with_columns(keys)
        if schema != self._schema:
            self._know(schema)
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
        frame = keyed(self.config, rows)
        if ordering:
            frame = frame.with_columns(ordering=pl.Series(pl.from_arrow(rows[ordering])))
        self._operations.add("DELETE")
        self._statements.append(DeleteWrite(frame))

    def _dot(self, rows: int) -> Dot:
        """The places of `rows` rows in this transaction, after those of earlier statements."""
        first = sum(s.rows.height for s in self._statements if isinstance(s, RowsWrite)) + first_place(self.task, rows)
        place = pl.int_range(first, first + rows, dtype=pl.Int32)
        unseen = ",".join(p.requested for p in self.value.pending if p.requested < self.begun.requested)
        return Dot(pl.lit(int(self.begun.requested), pl.Int64), place, pl.lit(unseen))

    # --- columns ------------------------------------------------------------------------------------------------

    def publish_growth(self) -> None:
        """Give the table the columns and types that the statements brought, in an event of its own.

        Called when nothing about the statements can be refused any more, and before anything is staged.
        """
        if self._schema is self._began:
            return
        grown = [column for column in self._schema.declared if _lacks(self._began.declared, column)]
        for _, states in precombine(self._statements, self._how.rule).rows if self._statements else ():
            self._how.rule.show(states)  # a payload that fails on these rows must fail before the table grows
        value = self.session.remember(
            self.session.run(events.grow(self.session.publisher, self.value, pa.schema(grown), self._check_growth))
        )
        # Columns that others have added since this write began are none of its own.
        self._know(TableSchema.from_json(value.schema).select(self._schema.declared.names))

    def _grown(self, written: pa.Schema) -> TableSchema:
        """The schema with what `written` brings."""
        # What a payload takes in another type than its column's says nothing about the column.
        grown = self._schema.grow(pa.schema([column for column in written if not self._how.takes(column)]))
        if grown != self._schema:
            self._check_growth(grown)
        return grown

    def _check_growth(self, grown: TableSchema) -> None:
        """Raise where payloads or the ordering do not allow that the table's schema becomes `grown`."""
        check_columns(self.config, grown)
        ordering = self.config.merge.ordering
        if ordering and grown.select([ordering]).stored != self._schema.select([ordering]).stored:
            raise SchemaMismatchError(
                "an ordering column keeps its type: Hudi's readers compare values of older deletes with newer rows, "
                f"and only values of one type: cast the data. column={ordering!r}"
            )

    def _know(self, schema: TableSchema) -> None:
        """The columns and types are those of `schema` from now on, also those of earlier statements."""
        self._schema = schema
        self._how = merging(self.config, schema.to_json())
        types = self._how.columns.stored
        self._statements = [_widened(statement, types, self.config.merge.ordering) for statement in self._statements]

    def _filled(self, rows: pa.Table, schema: TableSchema) -> pa.Table:
        """The rows with all columns of the table: null in those that came after its creation and were left out.

        Raises for a column of creation that was left out. A partial update is left as it is.
        """
        absent = [name for name in schema.declared.names if name not in rows.column_names]
        if not absent or self.config.merge.partial:
            return rows
        created = columns_of_creation(self.config, self.value)
        required = [name for name in absent if name in created or not schema.declared.field(name).nullable]
        if required:
            raise SchemaMismatchError(
                "every column must be given, but for those that came after the table was made: two jobs that read, "
                "change and rewrite whole rows silently undo one another. To write some columns only, create the table "
                "with merge=PartialUpdate(), or PartialUpdate(columns={...}) where columns have payloads. "
                f"missing={required}"
            )
        for name in absent:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, schema.stored.field(name).type))
        return rows.select(schema.declared.names)

    def _check_columns(self, rows: pa.Table, how: Merging) -> None:
        key = self.config.key
        ordering = self.config.merge.ordering if self.config.merge.kind == "ordering" else None
        absent = [name for name in (*key.fields, *key.partition_fields) if name not in rows.column_names]
        if absent:
            raise SchemaMismatchError(f"a partial update still needs the key and partition columns. missing={absent}")
        for member in how.rule.members:
            missing = [name for name in member.columns if name not in rows.column_names]
            if missing and len(missing) < len(member.columns):
                raise SchemaMismatchError(
                    f"{member.payload.name} decides these columns together: give all of them or none. "
                    f"columns={list(member.columns)} missing={missing}"
                )
        if ordering and rows[ordering].null_count:
            raise InvalidInputError(f"an ordering value must not be null: it would lose silently. column={ordering!r}")

    # --- the end ------------------------------------------------------------------------------------------------

    def commit(
        self, stage: Callable[[], list[DataFile]] | None = None, operation: Operation | None = None
    ) -> events.Committed:
        """Stage everything, or do what `stage` says, and make it visible; on any failure nothing is left."""
        try:
            self.publish_growth()
            files = stage() if stage is not None else self.stage(self._statements, self.put)
            done = operation or self._operation()
            committed = self.session.run(
                events.complete(self.session.publisher, self.value, self.begun, done, files, self.token)
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
        begun = self.begun
        return self.session.run(
            rollback.give_up(self.session.publisher, self.value, begun.requested, self._staged, begun.driver)
        )

    def abandon(self) -> None:
        """Roll back as far as the store lets us: nobody can see this write, and others clean up after its expiry."""
        with suppress(StorageUnavailableError, CommitUnknownError, TableReplacedError, TableNotFoundError):
            self.roll_back()

    def _find_out(self, unknown: CommitUnknownError) -> events.Committed:
        """Whether a commit landed: rolling it back either works, and then it never will, or finds it there."""
        try:
            value = self.roll_back()
            done = self.session.run(find_completion(self.begun.requested, value))
        except (StorageUnavailableError, CommitUnknownError, TableReplacedError, TableNotFoundError):
            raise unknown from None
        if done is None and value.find_pending(self.begun.requested) is not None:
            raise unknown  # another driver has taken the write over
        if done is None:
            raise StorageUnavailableError(
                "the store failed in the middle of the commit, which was rolled back: nothing was published. Try "
                f"again. requested={self.begun.requested}"
            ) from unknown
        return events.Committed(done, value, repeated=done.driver != self.begun.driver)

    def _operation(self) -> Operation:
        return next(iter(self._operations)) if len(self._operations) == 1 else "UPSERT"

    def stage(self, statements: Sequence[RowsWrite | DeleteWrite], put: Callable[[DataFile, Chunks], F]) -> list[F]:
        """`put` one log file for each touched file group; what the statements say of a key is folded first."""
        if not statements:
            return []
        rule, schema = self._how.rule, self._how.schema
        combined = precombine(statements, rule)
        parts: dict[Group, list[Callable[[], Deletes | Rows]]] = {}
        for keys, ordering in ((combined.deletes, None), (combined.tombstones, self.config.merge.ordering)):
            for group, found in by_group(keys):
                parts.setdefault(group, []).append(partial(self._deletes, keys, found, ordering))
        first = 0
        for given, states in combined.rows:
            rows = rule.show(states)
            some = given is not None and not set(schema.declared.names) <= set(rows.columns)
            repeating = repeating_columns(rows)
            for group, found in by_group(rows):
                parts.setdefault(group, []).append(partial(self._rows, rows, found, group, first, some, repeating))
                first += len(found)
        return list(in_threads(partial(self._stage, put), sorted(parts.items(), key=itemgetter(0))))

    def _deletes(self, keys: pl.DataFrame, found: pl.Series, ordering: str | None) -> Deletes:
        instant = self.begun.requested
        mine = keys[sorted_keys(keys, found)]
        texts = stored_array(mine[RECORD_KEY], pa.string())
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
        writer = 0 if self.task is None else self.task + 1

        def cut(start: int, count: int) -> pa.Table:
            return group_rows(rows, order.slice(start, count), group, instant, first + start, schema, writer)

        return Rows(instant, StoredRows(len(order), cut(0, 0).column_names, repeating, cut), some)

    def _stage(
        self, put: Callable[[DataFile, Chunks], F], item: tuple[Group, Sequence[Callable[[], Deletes | Rows]]]
    ) -> F:
        (partition, bucket), parts = item
        name = LogFileName(bucket_file_id(bucket), self.begun.requested, token=self.token_of_files)
        data, file = log_file(self.config, self._how.schema, partition, name, [part() for part in parts])
        return put(file, data)

    def put(self, file: DataFile, data: Chunks) -> DataFile:
        """Put a log file under its final name."""
        self.make_room(file)
        return put_log(self.session.store, file.path, data, file)

    def make_room(self, file: DataFile) -> None:
        """Be ready to give a file its final name, and note that it has to go if the write is given up."""
        self.require_pending()
        ensure_partition(self.session.store, file.partition, self.begun.requested)
        self._staged.append(file.path)

    def take_over(self) -> int:
        """From here on this driver alone may complete a distributed write; how many have taken it over by now.

        Its files get names that no other driver gives: what the commit says of a file is true of whatever has its name.
        """
        self.begun = self.session.run(jobs.take_over(self.session.publisher, self.value, self.begun))
        self.token_of_files = driver_token(self.begun.drivers)
        return self.begun.drivers

    def require_pending(self) -> Timeline:
        """The tail. A writer that was given up or overtaken must not leave files behind whoever swept."""
        requested, driver = self.begun.requested, self.begun.driver
        tail = self.session.tail()
        pending = tail.find_pending(requested)
        if pending is None:
            raise self.session.run(events.over(requested, tail))
        if driver and pending.driver != driver:
            raise events.taken_over(requested)
        return tail


def begin(session: Session) -> tuple[Timeline, Pending]:
    """Begin a write; refuses a table with file groups that the bucket index did not make."""
    with _nothing_published():
        value, begun = session.begin()
    _refuse_foreign_groups(session, value, begun)
    return value, begun


def join(session: Session, job: str, planned: InstantTime) -> tuple[Timeline, Pending] | events.Committed:
    """Begin the write of a job, or join it, or find the commit that it has become; refuses what `begin` refuses."""
    with _nothing_published():
        found = session.join(job, planned)
    if not isinstance(found, events.Committed):
        _refuse_foreign_groups(session, *found)
    return found


@contextmanager
def _nothing_published() -> Iterator[None]:
    try:
        yield
    except CommitUnknownError as error:
        raise StorageUnavailableError(
            f"the store failed while the write began; nothing was published. Try again. cause={error.__cause__}"
        ) from error


def _refuse_foreign_groups(session: Session, value: Timeline, begun: Pending) -> None:
    try:
        require_own_groups(value)
    except InvalidInputError:
        OpenWrite(session, value, begun).roll_back()
        raise


def first_place(task: int | None, rows: int) -> int:
    """Where the places of a task's rows begin: after those of the tasks before it, as far as 32 bits go."""
    return task * PLACES_PER_TASK if task is not None and has_places(task, rows) else 0


def has_places(task: int, rows: int) -> bool:
    """Whether the rows of a task have places that no other task's have."""
    return rows <= PLACES_PER_TASK and (task + 1) * PLACES_PER_TASK <= _PLACES


def columns_of_creation(config: TableConfig, value: Timeline) -> list[str]:
    """The columns that every row must be given; those that came later may be left out, so growth stops nobody.

    Where the properties do not say, as in some tables of Hudi's, they are the columns at the time of adoption.
    """
    created = config.created_schema()
    if created is not None:
        return list(created.declared.names)
    return [name for name in TableSchema.from_json(value.schema).declared.names if name not in value.added]


def _lacks(schema: pa.Schema, column: pa.Field) -> bool:
    return schema.get_field_index(column.name) < 0 or str(schema.field(column.name)) != str(column)


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


def keyed(config: TableConfig, rows: pa.Table) -> pl.DataFrame:
    """Record key, partition and bucket of each row."""
    assert config.buckets is not None
    keys = config.key.record_keys(rows)
    return pl.DataFrame(
        {
            RECORD_KEY: pl.from_arrow(keys),
            PARTITION_PATH: pl.from_arrow(config.key.partition_paths(rows)),
            BUCKET: buckets(keys, config.key, config.buckets),
        }
    )


def refuse_repeats(keys: pl.DataFrame) -> None:
    repeated = keys.filter(pl.struct(PARTITION_PATH, RECORD_KEY).is_duplicated())
    if repeated.height:
        raise InvalidInputError(
            f"a key stands twice in an append; use upsert, where the last one wins. key={repeated[RECORD_KEY][0]!r}"
        )

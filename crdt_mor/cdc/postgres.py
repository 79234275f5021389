"""Replicate a table of PostgreSQL: a snapshot, then its transactions, each once.

A commit's token is its position in the server's log. The slot is confirmed afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from crdt_mor import InvalidInputError, PartialUpdate, Table
from crdt_mor.cdc import postgres_slot as slots
from crdt_mor.cdc.apply import apply
from crdt_mor.cdc.postgres_columns import Column, Columns, SnapshotNeededError, SourceColumns
from crdt_mor.cdc.postgres_slot import rows_of
from crdt_mor.cdc.postgres_types import type_of, value_of
from crdt_mor.cdc.values import column as array_of
from crdt_mor.errors import TableNotFoundError

T = TypeVar("T")

ROWS: Final = 10_000
IDLE_BYTES: Final = 64 << 20

_RETRY_S: Final = 0.5

_COLUMNS: Final = """
select a.attnum, a.attname, case when t.typtype = 'd' then format_type(t.typbasetype, t.typtypmod)
    else format_type(a.atttypid, a.atttypmod) end,
    case when a.atthasmissing then (a.attmissingval::text::text[])[1] end,
    not a.atthasmissing and (a.atthasdef or a.attidentity <> '' or a.attgenerated <> '')
from pg_attribute a join pg_type t on t.oid = a.atttypid
where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum"""

_KEY: Final = """
select a.attname from pg_index i cross join unnest(i.indkey) with ordinality k (number, place)
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number
where i.indrelid = %s and i.indisprimary order by k.place"""


@dataclass(frozen=True, slots=True)
class Replicated:
    """A commit.

    Attributes:
        rows, deletes: numbers of keys.
        position: the table holds all transactions up to there.
    """

    kind: Literal["snapshot", "changes"]
    rows: int
    deletes: int
    position: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.rows:,} rows, {self.deletes:,} deletes, up to {self.position}"


@dataclass(frozen=True, slots=True)
class _Source:
    oid: int
    schema: str
    name: str
    key: tuple[str, ...]

    @classmethod
    def named(cls, connection: Any, name: str) -> _Source:
        statement = (
            "select c.oid, n.nspname, c.relname, c.relkind from pg_class c join pg_namespace n "
            "on n.oid = c.relnamespace where c.oid = to_regclass(%s)"
        )
        found = rows_of(connection, statement, name)
        if not found or found[0][3] != "r":
            raise InvalidInputError(f"pass an ordinary table of the database: public.orders. source={name!r}")
        [(oid, schema, table, _)] = found
        key = tuple(column for (column,) in rows_of(connection, _KEY, oid))
        if not key:
            raise InvalidInputError(
                f"give the source a primary key, whose columns become the table's key. source={schema}.{table}"
            )
        return cls(oid, schema, table, key)

    def columns(self, connection: Any) -> dict[int, Column]:
        return {number: Column(*told) for number, *told in rows_of(connection, _COLUMNS, self.oid)}


def replicate(
    dsn: str,
    source: str,
    uri: str,
    *,
    slot: str | None = None,
    once: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[Replicated]:
    """Replicate a table of PostgreSQL; yield after each commit. See docs/cdc-postgres.md.

    Args:
        dsn: "host=db dbname=shop", for libpq.
        source: "public.orders".
        uri: our table; created if absent.
        slot: name of the replication slot.
        once: end at the server's present position.
    """
    with slots.failures_told(), slots.connected(dsn) as connection:
        found = _Source.named(connection, source)
        name = slot or "crdt_mor_" + re.sub(r"\W", "_", f"{found.schema}_{found.name}".lower())
        until = slots.flushed(connection) if once else None
        slots.wait_for_turn(connection, name)
        table = _opened(connection, found, uri, storage_options)
        yield from _Replication(dsn, connection, found, name, table).run(until)


class _Replication:
    def __init__(self, dsn: str, connection: Any, source: _Source, slot: str, table: Table) -> None:
        self._dsn, self._connection, self._source, self._slot, self._table = dsn, connection, source, slot, table
        self._columns = SourceColumns(table, slot, source.oid, lambda: source.columns(connection))
        self._look: tuple[Columns, int] | None = None  # at a position
        self._followed: Columns = {}

    def run(self, until: int | None) -> Iterator[Replicated]:
        self._roll_back_unfinished()
        is_needed = self._needs_snapshot()
        while True:
            if is_needed:
                yield self._snapshot()
            try:
                yield from self._changes(until)
                return
            except SnapshotNeededError:
                is_needed = True

    def _roll_back_unfinished(self) -> None:
        """Roll back writes of killed processes: updates would wait for them."""
        pending = self._table.inspect.pending()
        for instant in pending.filter(pc.field("application") == self._slot)["requested_at"].to_pylist():
            with suppress(InvalidInputError):  # it has ended
                self._table.maintenance.roll_back(instant)

    # --- the snapshot ---------------------------------------------------------------------------------------------

    def _position(self) -> int | None:
        tokens = self._table.inspect.tokens()
        numbers = tokens.filter(pc.field("application") == self._slot)["number"]
        return numbers[0].as_py() if len(numbers) else None

    def _needs_snapshot(self) -> bool:
        position, kept_from = self._position(), slots.confirmed(self._connection, self._slot)
        if position is not None and position > slots.flushed(self._connection):
            raise InvalidInputError(
                "the table is ahead of this server, so it was replicated from another one: pass another slot. "
                f"slot={self._slot!r}"
            )
        return position is None or kept_from is None or position < kept_from or not self._columns.are_known

    def _snapshot(self) -> Replicated:
        source = self._source
        self._retried(lambda: slots.drop(self._connection, self._slot))
        with slots.created(self._dsn, self._slot) as (connection, position):
            connection.execute(f"lock table {slots.quoted(source.schema, source.name)} in access share mode")
            columns = source.columns(connection)
            self._columns.take_over(columns)
            rows = self._table.overwrite(self._rows(connection, columns), token=(self._slot, position)).rows
        return Replicated("snapshot", rows, 0, slots.place_of(position))

    def _rows(self, connection: Any, columns: Columns) -> pa.RecordBatchReader:
        fields = [(column, self._table.schema.field(column.name)) for column in columns.values()]
        schema = pa.schema([field for _, field in fields])
        chosen = ", ".join(_output(column) for column in columns.values())

        def batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
            texts = zip(*rows, strict=True)
            return pa.record_batch([_array(*pair, of_one) for pair, of_one in zip(fields, texts, strict=True)], schema)

        def batches() -> Iterator[pa.RecordBatch]:
            with connection.cursor(name="crdt_mor") as cursor:
                cursor.execute(f"select {chosen} from {slots.quoted(self._source.schema, self._source.name)}")
                while rows := cursor.fetchmany(ROWS):
                    yield batch(rows)

        return pa.RecordBatchReader.from_batches(schema, batches())

    # --- the changes ----------------------------------------------------------------------------------------------

    def _changes(self, until: int | None) -> Iterator[Replicated]:
        position = self._position() or 0
        with ExitStack() as stack:
            stream = self._retried(lambda: stack.enter_context(self._streamed(position)))
            while True:
                batch = stream.take()
                if batch.events:
                    self._look = None
                    done = apply(self._table, self._columns.named(batch.events), format="wal2json", source=self._slot)
                    position = done.positions[self._slot]  # a later one is not in the table
                    yield Replicated("changes", done.rows, done.deletes, slots.place_of(position))
                elif self._has_followed(batch.position) and until is not None and batch.position >= until:
                    return
                elif batch.position - position > IDLE_BYTES:
                    position = batch.position
                    self._table.upsert(pa.Table.from_batches([], self._table.schema), token=(self._slot, position))
                else:
                    continue
                stream.confirm(position)

    def _streamed(self, position: int) -> AbstractContextManager[slots.Stream]:
        return slots.streamed(self._dsn, self._slot, self._source.schema, self._source.name, position)

    def _has_followed(self, position: int) -> bool:
        """Follow columns without events; False while events of older rows may come."""
        look, self._look = self._look, None
        is_time = look is not None and position >= look[1]
        if look is not None and is_time and look[0] != self._followed:
            self._columns.follow(look[0], look[0].keys())
            self._followed = look[0]
        if look is None or is_time:
            look = (self._source.columns(self._connection), slots.flushed(self._connection))
        self._look = look
        return is_time

    def _retried(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except slots.driver().errors.ObjectInUse:
                self._table.environment.sleep(_RETRY_S)


def _array(column: Column, field: pa.Field, texts: Sequence[str | None]) -> pa.Array:
    return array_of(column.name, [value_of(column.type, text) for text in texts], field.type, None)


def _output(column: Column) -> str:
    """Return SQL for a value's text as in events."""
    return f"case when {slots.quoted(column.name)} is not null then format('%s', {slots.quoted(column.name)}) end"


def _opened(connection: Any, source: _Source, uri: str, options: Mapping[str, Any] | None) -> Table:
    try:
        return Table(uri, storage_options=options)
    except TableNotFoundError:
        kinds = {column.name: type_of(column.type) for column in source.columns(connection).values()}
        return Table.create(
            uri, pa.schema(kinds), key=source.key, merge=PartialUpdate(), exist_ok=True, storage_options=options
        )

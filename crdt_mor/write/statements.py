"""Collect the statements of a write: check, cast to stored types, key and hash them to buckets.

Nothing is stored here. A statement with new columns or wider types moves all statements to the grown schema;
open_write.py publishes the growth, and stage.py makes log files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import polars as pl
import pyarrow as pa

from crdt_mor.columns.arrow_input import bytes_of
from crdt_mor.columns.names import Names
from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.tables import with_columns
from crdt_mor.columns.texts import integers
from crdt_mor.errors import InvalidInputError, SchemaMismatchError
from crdt_mor.ground.late_imports import Late
from crdt_mor.laws.merging import Merging, lift, merging_of
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.merge.kernel import to_arrow
from crdt_mor.merge.payload import Dot
from crdt_mor.merge.precombine import LEFT, DeleteWrite, RowsWrite, all_differ, precombine
from crdt_mor.model.alteration_event import require_meant
from crdt_mor.model.config import TableConfig
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.keys import buckets
from crdt_mor.model.timeline import Timeline
from crdt_mor.write.growing import require_growth
from crdt_mor.write.held import hold_deletes, hold_ordering, hold_rows
from crdt_mor.write.log_files import BUCKET
from crdt_mor.write.spilled import PLACE, Part, SpilledWrite
from crdt_mor.write.unavailable import Masks, given_parts, not_given, without_markers

if TYPE_CHECKING:
    from crdt_mor.write import rules as writing_rules
    from crdt_mor.write.rules import RowRules
else:
    writing_rules = Late("crdt_mor.write.rules")

Operation = Literal["INSERT", "UPSERT", "DELETE"]
SchemaMode = Literal["strict", "merge"]
Statement = RowsWrite | DeleteWrite

FEW_ROWS_MAX: Final = 64
"""Most rows that stay Arrow on their way to log files; for more, polars may be faster.

Dictionaries would make files of so few rows smaller by a few percent at most.
"""

PLACES_PER_TASK: Final = 1 << 20
PLACES_MAX: Final = 1 << 30
"""Payloads may count two places per row, in 32 bits."""


@dataclass(frozen=True, slots=True)
class RowsStatement:
    """An append, an upsert or a delete by key. A post contains one such statement.

    rows: the user's rows, under shown names or, in `Prepared.stored`, under stored names.
    mode: as `schema_mode` in `Table.upsert`. plain: a delete without an ordering value.
    are_new: the table has no other rows with these keys, as in an append.
    are_kept: these are the table's rows and keep their ordering values.
    nulls: the columns in which a null sets null, under a rule that leaves values for nulls.
    """

    kind: Operation
    rows: pa.Table
    mode: SchemaMode = "strict"
    plain: bool = False
    are_new: bool = False
    are_kept: bool = False
    nulls: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return bytes_of(self.rows)


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """A statement of rows after its check: keyed, in stored types.

    No part depends on the write's time, so `Statements.collect` adds it at any time.

    schema: the version's, with new columns of the statement. columns: of the rows, without the keys'. nulls: as in
    `RowsWrite`.
    """

    kind: Operation
    statement: Statement | SpilledWrite
    schema: TableSchema
    merging: Merging
    columns: tuple[str, ...] = ()
    nulls: tuple[str, ...] = ()

    @property
    def in_memory(self) -> Statement:
        assert not isinstance(self.statement, SpilledWrite), "many rows begin"
        return self.statement


class Statements:
    """The statements of a write, in order.

    value: the timeline at the write's begin, or later. requested: the write's time, visible to payloads.
    task: the part of a distributed write; None: the whole write. declared: everything that the statements may touch.
    collected: the statements. spilled: rows in a temporary file, as the only statement.
    schema, merging: the table's, with new columns of the statements.
    shown: the shown names of new columns, if they differ from the stored ones.
    """

    def __init__(
        self,
        config: TableConfig,
        value: Timeline,
        requested: InstantTime,
        task: int | None = None,
        declared: Declared = ANYTHING,
    ) -> None:
        self.config = config
        self.value = value
        self.requested = requested
        self._task = task
        self.declared = declared
        self._schema_at_begin = TableSchema.from_json(value.schema)
        self._operations: set[Operation] = set()
        self.collected: list[Statement] = []
        self.spilled: SpilledWrite | None = None
        self.shown: dict[str, str] = {}
        self.schema = self._schema_at_begin
        self.merging = merging_of(config, value.schema)

    @property
    def operation(self) -> Operation:
        """Hudi's operation of these statements; a mix is an UPSERT."""
        return next(iter(self._operations)) if len(self._operations) == 1 else "UPSERT"

    def add(self, statement: RowsStatement) -> None:
        """Add rows under stored names. Growth by `mode="merge"` is published later, if nothing is refused."""
        self.collect(self.check(statement))

    def check(self, statement: RowsStatement) -> CheckedRows:
        """Check rows under stored names by this version's schema and rules."""
        if statement.kind == "DELETE":
            return self._checked_keys(statement)
        schema, merging, data = self.schema, self.merging, statement.rows
        if statement.mode == "merge":
            grown = self._grown(data.schema)
            if grown != schema:
                schema, merging = grown, merging_of(self.config, grown.to_json())
        rules: RowRules | None = None
        if self.value.rules:
            rules = self._rules(schema, statement.are_new or statement.kind == "INSERT")
            data = rules.completed(data)
        rows = self._with_all_columns(schema.normalise(data, merging.accepts), schema)
        self._check_columns(rows, merging)
        if self.config.key.functions:
            rows = with_columns(rows, self.config.key.function_values(rows))
        if self.config.merge.ordering is not None:
            hold_ordering(rows, self.config.merge.ordering, statement.are_kept)
        masks = self._not_given(rows, merging) if self.config.merge.unavailable else {}
        if rules is not None:
            for part in given_parts(rows, masks):
                rules.ask(part)
        keys = _keys(self.config, rows)
        if self.declared != ANYTHING:
            hold_rows(self.declared, rows, keys, self.config)
        columns_of_rows = dict(zip(rows.column_names, rows.columns, strict=True))
        keyed_rows = RowsWrite(pa.table({**columns_of_rows, **keys}))
        if statement.kind == "INSERT" and rows.num_rows > 1:
            refuse_repeats(keyed_rows.rows)
        nulls = _set_nulls(statement.nulls, rows, merging) if statement.nulls else ()
        return CheckedRows(statement.kind, keyed_rows, schema, merging, tuple(columns_of_rows), nulls)

    def collect(self, checked: CheckedRows) -> None:
        """Add checked rows. Payloads lift the rows to this write's time."""
        statement = checked.statement
        if isinstance(statement, RowsWrite):
            if self.config.merge.custom:
                dot = self._dot(self._next_place(statement.height))
                statement = self._lifted(statement.rows, checked, dot)
            elif statement.height > FEW_ROWS_MAX:
                statement = RowsWrite(statement.rows)
        if checked.kind != "DELETE" and checked.schema is not self.schema and checked.schema != self.schema:
            self.move_to(checked.schema)
        self._operations.add(checked.kind)
        if isinstance(statement, SpilledWrite):
            self.spilled = statement
        else:
            self.collected.append(statement)

    def in_parts(self) -> Iterator[tuple[list[Statement], bool]]:
        """Yield parts with different keys, and True if other parts have the same file groups."""
        spilled = self.spilled
        if spilled is None:
            yield self.collected, False
            return
        for part in spilled.parts:
            yield [self._of_part(spilled, part)], part.is_split

    def _of_part(self, spilled: SpilledWrite, part: Part) -> Statement:
        rows = pl.DataFrame(pl.from_arrow(spilled.rows(part)))
        statement: Statement = RowsWrite(rows)
        if PLACE in rows.columns:
            statement = self._lifted(rows, spilled, self._dot(pl.lit(rows[PLACE])))
        types = self.merging.columns.stored
        statement = _widened(statement, types, self.config.merge.ordering)
        return statement if self.config.merge.partial else _whole(statement, types)

    def _not_given(self, rows: pa.Table, merging: Merging) -> Masks:
        return not_given(pl.DataFrame(pl.from_arrow(rows)), self.config, merging)

    def _lifted(self, rows: pl.DataFrame, checked: CheckedRows | SpilledWrite, dot: Dot) -> RowsWrite:
        given = rows.select(checked.columns)
        masks: Masks = {}
        if self.config.merge.unavailable:
            masks = not_given(given, self.config, checked.merging)
            given = without_markers(given, masks, checked.merging, checked.nulls)
        lifted = lift(given, checked.merging, dot, masks)
        set_ = tuple(name for name in lifted.columns if name != LEFT)
        keys = rows.select(RECORD_KEY, PARTITION_PATH, BUCKET).get_columns()
        return RowsWrite(lifted.hstack(keys), set_, checked.nulls)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Undo all statements and new columns of the block if it raises."""
        count, operations = len(self.collected), {*self._operations}
        value, schema, merging, shown = self.value, self.schema, self.merging, {**self.shown}
        collected = [*self.collected]
        try:
            yield
        except BaseException:
            self._operations = operations
            if self.value is value:
                self.collected[:] = collected
                self.schema, self.merging, self.shown = schema, merging, shown
            else:  # all statements have moved to columns of earlier writes
                del self.collected[count:]
            raise

    def _rules(self, schema: TableSchema, are_new: bool) -> RowRules:
        return writing_rules.RowRules(self.value.rules, self.config, schema, are_new, self.names)

    @property
    def names(self) -> Names:
        """The names of the columns, including new ones."""
        return self.value.names.with_added(self.shown)

    def with_defaults(self, rows: pa.Table) -> pa.Table:
        """Fill omitted columns of new rows with their defaults."""
        return self._rules(self.schema, are_new=True).completed(rows) if self.value.rules else rows

    def _checked_keys(self, statement: RowsStatement) -> CheckedRows:
        """Check a delete by key. In a table with an ordering column tombstones carry its value, unless `plain`."""
        data, plain = statement.rows, statement.plain
        ordering = None if plain else self.config.merge.ordering
        needed = columns_of_delete(self.config, plain=plain)
        absent = [name for name in needed if name not in data.column_names]
        if absent:
            hint = "; pass plain=True to delete whatever came before this commit" if absent == [ordering] else ""
            raise InvalidInputError(f"a delete needs the columns {needed}{hint}. missing={absent}")
        rows = self.schema.normalise(data.select(needed))
        if ordering and rows[ordering].null_count:
            raise InvalidInputError(f"the ordering value of a delete must not be null. column={ordering!r}")
        frame = keyed(self.config, rows)
        if self.declared != ANYTHING:
            hold_deletes(self.declared, frame[PARTITION_PATH].unique(), frame[RECORD_KEY])
        if ordering:
            frame = frame.with_columns(ordering=pl.Series(pl.from_arrow(rows[ordering])))
        return CheckedRows("DELETE", DeleteWrite(frame), self.schema, self.merging)

    def delete_keyed(self, keys: pl.DataFrame) -> None:
        """Add tombstones: keys in the form of `keyed`, perhaps with `ordering`."""
        self._operations.add("DELETE")
        self.collected.append(DeleteWrite(keys))

    def put_states(self, rows: pl.DataFrame) -> None:
        """Add rows that already contain states, without lifting, as from another table of the same merge.

        rows: all stored columns except visible ones of payloads with a state, and keys in the form of `keyed`.
        """
        types = self.merging.columns.stored
        if self.config.key.functions:
            made = self.config.key.function_values(to_arrow(rows.select(self.config.key.partition_fields)))
            rows = rows.with_columns(pl.Series(name, pl.from_arrow(values)) for name, values in made.items())
        there = {*rows.columns}
        columns = [name for name in types if name in there]
        keys = [pl.col(name) for name in (RECORD_KEY, PARTITION_PATH, BUCKET)]
        self._operations.add("UPSERT")
        frame = rows.select(*(pl.col(name).cast(types[name]) for name in columns), *keys)
        self.collected.append(RowsWrite(frame, tuple(columns) if self.config.merge.custom else None))

    def _next_place(self, rows: int) -> pl.Expr:
        first = sum(s.rows.height for s in self.collected if isinstance(s, RowsWrite)) + first_place(self._task, rows)
        return pl.int_range(first, first + rows, dtype=pl.Int32)

    def _dot(self, place: pl.Expr) -> Dot:
        """Return the payloads' context of rows at these places."""
        pending = ",".join(p.requested for p in self.value.pending if p.requested < self.requested)
        return Dot(pl.lit(int(self.requested), pl.Int64), place, pl.lit(pending))

    # --- columns ------------------------------------------------------------------------------------------------

    @property
    def growth(self) -> pa.Schema | None:
        if self.schema is self._schema_at_begin:
            return None
        known = self._schema_at_begin.declared
        return pa.schema([column for column in self.schema.declared if _lacks(known, column)])

    @property
    def new(self) -> dict[str, str]:
        """New columns: shown names by stored names."""
        known = self._schema_at_begin
        return {name: self.shown.get(name, name) for name in self.schema.declared.names if name not in known}

    def rehearse(self) -> None:
        """Let payloads show all rows, so that failures come before the schema grows."""
        for statements, _ in self.in_parts():
            for stored in precombine(statements, self.merging.rule).rows if statements else ():
                self.merging.rule.show(stored.rows)

    def _grown(self, written: pa.Schema) -> TableSchema:
        # A payload may accept values of another type; the column keeps its own.
        grown = self.schema.grow(pa.schema([column for column in written if not self.merging.takes(column)]))
        if grown != self.schema:
            self.check_growth(grown)
        return grown

    def learn(self, value: Timeline) -> None:
        """Continue from a later value. Every write that these statements have not seen must be pending in it.

        Columns added since belong to the table; earlier rows have no values in them. Raise `SchemaMismatchError` if a
        column of the statements differs from one added since.
        """
        known = self.value.schema
        require_meant(value, self.new)
        self.value = value
        if value.schema == known:
            return
        growth = self.growth
        self._schema_at_begin = TableSchema.from_json(value.schema)
        self.move_to(self._schema_at_begin if growth is None else self._schema_at_begin.grow(growth))
        if not self.config.merge.partial:
            types = self.merging.columns.stored
            self.collected = [_whole(statement, types) for statement in self.collected]

    def check_growth(self, grown: TableSchema) -> None:
        """Raise if this table may not have the schema `grown`."""
        require_growth(self.config, self.value.rules, self.schema, grown)

    def move_to(self, schema: TableSchema) -> None:
        """Continue with `schema`, and cast earlier statements to it."""
        self.schema = schema
        self.merging = merging_of(self.config, schema.to_json())
        types = self.merging.columns.stored
        self.collected = [_widened(statement, types, self.config.merge.ordering) for statement in self.collected]

    def _with_all_columns(self, rows: pa.Table, schema: TableSchema) -> pa.Table:
        """Complete rows to the table's columns; columns added after creation may be null.

        Raise if a column of the creation is missing. Partial updates stay as they are.
        """
        given = frozenset(rows.column_names)
        absent = [name for name in schema.declared.names if name not in given]
        if not absent or self.config.merge.partial:
            return rows
        created = columns_of_creation(self.config, self.value)
        hidden = self.value.names.hidden
        required = [
            name
            for name in absent
            if name not in hidden and (name in created or not schema.declared.field(name).nullable)
        ]
        if required:
            raise SchemaMismatchError(
                "the rows lack columns: give every column of the table's creation, because a write replaces whole "
                "rows. To write only some columns, use update(...), or create the table with merge=PartialUpdate(), or "
                "with payloads, PartialUpdate(columns={...}). "
                f"missing={required}"
            )
        nulls = {name: pa.nulls(rows.num_rows, schema.stored.field(name).type) for name in absent}
        return with_columns(rows, nulls).select(schema.declared.names)

    def _check_columns(self, rows: pa.Table, merging: Merging) -> None:
        key = self.config.key
        given = {*rows.column_names}
        ordering = self.config.merge.ordering
        needed = (*key.identity, *(() if ordering is None else (ordering,)))
        absent = [name for name in needed if name not in given]
        if absent:
            raise SchemaMismatchError(
                "a partial update needs the key and partition columns, and the ordering column if the table has one. "
                f"missing={absent}"
            )
        for member in merging.rule.members:
            missing = member.missing(given)
            if missing:
                raise SchemaMismatchError(
                    f"{member.payload.name} merges these columns together: give all of them or none. "
                    f"columns={list(member.columns)} missing={missing}"
                )


def _set_nulls(nulls: Sequence[str], rows: pa.Table, merging: Merging) -> tuple[str, ...]:
    """Return the columns of `nulls` to mark in files: only columns with a null."""
    if merging.rule.nulls != "keep":
        return ()
    of_payloads = merging.rule.merged
    return tuple(n for n in rows.column_names if n in nulls and n not in of_payloads and rows[n].null_count)


def means_alike(one: Timeline, other: Timeline) -> bool:
    """Return True if both versions accept the same rows, in the same columns."""
    return (one.schema, one.rules, one.alterations, one.added) == (
        other.schema, other.rules, other.alterations, other.added,
    )  # fmt: skip


def columns_of_delete(config: TableConfig, *, plain: bool = False) -> list[str]:
    ordering = [] if plain or config.merge.ordering is None else [config.merge.ordering]
    return list(dict.fromkeys([*config.key.identity, *ordering]))


def few_rows(statements: Sequence[Statement]) -> pa.Table | None:
    """Return the rows if the statements are only a few rows of different keys; else None."""
    only = statements[0] if len(statements) == 1 else None
    if not isinstance(only, RowsWrite) or not isinstance(only.data, pa.Table):
        return None
    keys = zip(only.data[PARTITION_PATH].to_pylist(), only.data[RECORD_KEY].to_pylist(), strict=True)
    return only.data if len(set(keys)) == only.data.num_rows else None


def first_place(task: int | None, rows: int) -> int:
    """Return the place of a task's first row, after the places of all earlier tasks, within 32 bits."""
    return task * PLACES_PER_TASK if task is not None and has_places(task, rows) else 0


def has_places(task: int, rows: int) -> bool:
    """Return True if each row of a task gets its own place."""
    return rows <= PLACES_PER_TASK and (task + 1) * PLACES_PER_TASK <= PLACES_MAX


def columns_of_creation(config: TableConfig, value: Timeline) -> list[str]:
    """Return the columns at the table's creation, which every row must contain.

    Later columns may be omitted, so growth stops no writer. If the properties of a table made
    by Hudi do not contain them, the columns at adoption count.
    """
    created = config.created_schema()
    if created is not None:
        return list(created.declared.names)
    return [name for name in TableSchema.from_json(value.schema).declared.names if name not in value.added]


def _lacks(schema: pa.Schema, column: pa.Field) -> bool:
    return schema.get_field_index(column.name) < 0 or str(schema.field(column.name)) != str(column)


def _widened(statement: Statement, types: Mapping[str, pl.DataType], ordering: str | None) -> Statement:
    if isinstance(statement, RowsWrite):
        wider = [pl.col(name).cast(types[name]) for name in statement.rows.columns if name in types]
        return replace(statement, data=statement.rows.with_columns(wider))
    if ordering is None or "ordering" not in statement.keys.columns:
        return statement
    return DeleteWrite(statement.keys.with_columns(pl.col("ordering").cast(types[ordering])))


def _whole(statement: Statement, types: Mapping[str, pl.DataType]) -> Statement:
    if not isinstance(statement, RowsWrite):
        return statement
    there = {*statement.rows.columns}
    absent = [name for name in types if name not in there]
    rows = statement.rows.with_columns(pl.lit(None, types[name]).alias(name) for name in absent)
    return replace(statement, data=rows, given=None if statement.given is None else (*statement.given, *absent))


def keyed(config: TableConfig, rows: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(pa.table(_keys(config, rows))))


def _keys(config: TableConfig, rows: pa.Table) -> dict[str, pa.Array]:
    assert config.buckets is not None
    keys = config.key.record_keys(rows)
    bucket = buckets(keys, config.key, config.buckets)
    return {RECORD_KEY: keys, PARTITION_PATH: config.key.partition_paths(rows), BUCKET: integers(bucket)}


def refuse_repeats(keys: pl.DataFrame) -> None:
    if all_differ(keys):  # ten times faster
        return
    repeated = keys.filter(pl.struct(PARTITION_PATH, RECORD_KEY).is_duplicated())
    if repeated.height:
        raise InvalidInputError(
            f"a key occurs twice in an append: use upsert, where the last row wins. key={repeated[RECORD_KEY][0]!r}"
        )

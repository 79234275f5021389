"""Rows of an update: changed rows with new values in the set columns.

a table of whole rows     the whole row after all earlier writes, which lose nothing
partial updates           the key, and the set columns
a column with a payload   a write that makes readers see the new value (`Payload.assign`); unset, nothing
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from crdt_mor.columns.casts import to_declared
from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.tables import with_columns
from crdt_mor.columns.types import stored_type
from crdt_mor.errors import CrdtMorError, InvalidInputError
from crdt_mor.laws.merging import Merging, lifted
from crdt_mor.merge.payload import Dot
from crdt_mor.merge.polars_types import polars_columns, polars_frame
from crdt_mor.merge.rule import Member, naming_payload
from crdt_mor.merge.states import fold_states
from crdt_mor.model.config import TableConfig
from crdt_mor.model.rules import Rules, asked_together
from crdt_mor.read.assignments import Assignments, assignments
from crdt_mor.read.expressions import columns_in
from crdt_mor.write.named import NamedStatements
from crdt_mor.write.new_values import KeyOf, new_values
from crdt_mor.write.reading import Read, Reading, Wait
from crdt_mor.write.statements import RowsStatement, columns_of_delete, means_alike

SET_NO_LOWER: Final = "set a value that is not lower"


class Change(Protocol):
    """A statement's effect on rows it has read; pickled for processes that apply it to some file groups.

    Changes are element-wise, so rows may be changed in parts.
    """

    def columns(self, schema: TableSchema, config: TableConfig, rules: Rules) -> list[str]:
        """Return the columns to read. rules: the table's."""

    def add(self, rows: pa.Table, statements: NamedStatements) -> None:
        """Add the changes of visible rows to the statements of a write."""


@dataclass(frozen=True, slots=True)
class Update:
    assigned: Assignments

    def columns(self, schema: TableSchema, config: TableConfig, rules: Rules) -> list[str]:
        return columns_of_update(self.assigned, schema, config, rules)

    def add(self, rows: pa.Table, statements: NamedStatements) -> None:
        config, kinds = statements.config, polars_columns(statements.schema)
        after = with_values(rows, self.assigned, kinds, lambda row: key_of(rows, row, config))
        if config.key.functions:
            _refuse_moves(rows, after, [*self.assigned], statements)
        changed = changed_rows(rows, after, [*self.assigned], statements)
        statements.add(set_exactly(changed, statements))


@dataclass(frozen=True, slots=True)
class Deletion:
    """Rows are deleted. plain: as in `Table.delete`."""

    plain: bool

    def columns(self, schema: TableSchema, config: TableConfig, rules: Rules) -> list[str]:  # noqa: ARG002  keys suffice
        return columns_of_delete(config, plain=self.plain)

    def add(self, rows: pa.Table, statements: NamedStatements) -> None:
        statements.add(RowsStatement("DELETE", rows, plain=self.plain))


@dataclass(frozen=True, slots=True)
class UpdateStatement:
    """An update by the user's arguments, before any schema is known."""

    set: object
    where: pl.Expr | str | None = None

    def change(self, schema: TableSchema, config: TableConfig) -> Change:
        return Update(assignments(self.set, schema, config))


@dataclass(frozen=True, slots=True)
class DeleteStatement:
    """A delete by a condition. plain: as in `Table.delete`."""

    where: pl.Expr | str | None
    plain: bool = False

    def change(self, schema: TableSchema, config: TableConfig) -> Change:  # noqa: ARG002  keys suffice
        return Deletion(self.plain)


ChangeStatement = UpdateStatement | DeleteStatement


def changing(statement: ChangeStatement, statements: NamedStatements) -> Reading[None]:
    """Read the rows of the condition, and add their changes.

    Earlier writes may add, rename or drop columns, so the change is made again after a wait that altered them.
    """
    known = statements.statements.value
    try:
        change = statement.change(statements.schema, statements.config)
    except CrdtMorError:
        yield Wait()
        if means_alike(known, statements.statements.value):
            raise
        known = statements.statements.value
        change = statement.change(statements.schema, statements.config)
    yield Wait(change.columns(statements.schema, statements.config, statements.rules), statement.where)
    if not means_alike(known, statements.statements.value):
        change = statement.change(statements.schema, statements.config)
    columns = change.columns(statements.schema, statements.config, statements.rules)
    change.add((yield Read(columns, statement.where)), statements)


def columns_of_update(assigned: Assignments, schema: TableSchema, config: TableConfig, rules: Rules) -> list[str]:
    if not config.merge.partial:
        return list(schema.declared.names)
    written = asked_together(rules, assigned)
    named = {root for expression in assigned.values() for root in columns_in(expression)}
    identity = config.key.identity
    needed = {*identity, *written, *named, *config.merge.decided_with(written)}
    return [name for name in schema.declared.names if name in needed]


def set_exactly(rows: pa.Table, statements: NamedStatements) -> RowsStatement:
    """Return the upsert of computed rows. A null is the new value, also where upserted nulls leave values."""
    rule, nulls = statements.merging.rule, tuple[str, ...]()
    if rule.nulls == "keep":
        nulls = tuple(name for name in rows.column_names if name not in rule.merged)
    return RowsStatement("UPSERT", rows, are_kept=True, nulls=nulls)


def changed_rows(
    rows: pa.Table,
    after: pa.Table,
    assigned: Collection[str],
    statements: NamedStatements,
    if_lost: str = SET_NO_LOWER,
) -> pa.Table:
    """Return the upserted rows that change `rows`, as read, to `after`.

    assigned: the set columns, in which the two may differ. if_lost: see `refuse_lost`.
    """
    config, schema, merging = statements.config, statements.schema, statements.merging
    if config.merge.partial:
        assigned = sorted(asked_together(statements.rules, assigned))
    given = {*assigned}
    ordering = config.merge.ordering
    if ordering is not None and ordering in given:
        refuse_lost(rows, after, ordering, statements, if_lost)
    written = after
    if config.merge.partial:
        kept = {*config.key.identity, *assigned, *config.merge.decided_with(given)}
        written = written.select([name for name in written.column_names if name in kept])
    columns = dict[str, pa.Array]()
    for member in merging.rule.members:
        is_set = not given.isdisjoint(member.columns)
        if is_set or (member.payload.nulls == "value" and not config.merge.partial):
            values = _written(rows, written, member, schema, merging, config)
            columns.update(_shown(member, values, schema))
        elif not config.merge.partial:
            columns.update(_nulls(member, rows))
    return with_columns(written, columns)


def rows_anew(rows: pa.Table, statements: NamedStatements) -> pa.Table:
    """Return the rows to write under unused keys so that readers see `rows`."""
    config, schema, merging = statements.config, statements.schema, statements.merging
    columns = dict[str, pa.Array]()
    nothing = with_columns(rows, {name: null for member in merging.rule.members for name, null in _nulls(member, rows)})
    for member in merging.rule.members:
        if member.hidden is not None and not member.payload.assigns:
            raise InvalidInputError(
                f"{member.payload.name} keeps a state, which cannot move to another partition: delete the rows, and "
                "upsert their new values there. "
                f"columns={list(member.columns)}"
            )
        values = _written(nothing, rows, member, schema, merging, config)
        columns.update(_shown(member, values, schema))
    return with_columns(rows, columns)


def with_values(
    rows: pa.Table,
    assigned: Assignments,
    kinds: Mapping[str, pl.DataType],
    key: KeyOf,
    frame: pl.DataFrame | None = None,
) -> pa.Table:
    """Return the rows with new values, in the types of the expressions.

    frame: the inputs of the expressions; by default the rows.
    """
    frame = polars_frame(rows) if frame is None else frame
    try:
        new = new_values(frame, assigned, kinds, key).to_arrow()
    except pl.exceptions.PolarsError as error:
        raise InvalidInputError(
            "a new value cannot be computed for a row: exclude the row by `where`, or set null there. "
            f"set={ {name: str(expression) for name, expression in assigned.items()} } cause={error}"
        ) from error
    return with_columns(rows, {name: new.column(name) for name in assigned})


def same_functions(before: pa.Table, after: pa.Table, names: Sequence[str], statements: NamedStatements) -> pl.Series:
    """Return where two versions of rows agree in the partition functions. names: columns that may differ."""
    key, schema = statements.config.key, statements.schema
    if not any(one.source in names for one in key.functions):
        return pl.repeat(True, before.num_rows, dtype=pl.Boolean, eager=True)
    sides = (schema.normalise(side.select(key.partition_fields)) for side in (before, after))
    old, new = (pl.DataFrame(pl.from_arrow(pa.table(key.function_values(side)))) for side in sides)
    return old.select(pl.all_horizontal(pl.col(name).eq_missing(new[name]) for name in old.columns)).to_series()


def _refuse_moves(before: pa.Table, after: pa.Table, names: Sequence[str], statements: NamedStatements) -> None:
    moves = ~same_functions(before, after, names, statements)
    if moves.any():
        functions = [str(one) for one in statements.config.key.functions if one.source in names]
        raise InvalidInputError(
            "an update cannot move a row to another partition: use a merge that sets the column, or exclude the row by "
            f"`where`. partition_by={functions} key={key_of(before, int(moves.arg_max() or 0), statements.config)}"
        )


def refuse_lost(before: pa.Table, after: pa.Table, ordering: str, statements: NamedStatements, if_lost: str) -> None:
    """Raise if an ordering value would decrease, so that the old row would win.

    if_lost: the remedy, for the message.
    """
    config, schema = statements.config, statements.schema
    old, new = (pl.from_arrow(schema.normalise(side.select([ordering]))[ordering]) for side in (before, after))
    values = pl.DataFrame({"before": old, "after": new})
    lower = values.select(pl.col("after") < pl.col("before")).to_series().fill_null(True)
    if values["after"].dtype.is_float() and (nan := values["after"].is_nan() & values["before"].is_not_nan()).any():
        raise InvalidInputError(
            "an ordering value must not be set to NaN: NaN is the greatest, so no later row would win. "
            f"column={ordering!r} key={key_of(before, int(nan.arg_max() or 0), config)}"
        )
    if lower.any():
        row = int(lower.arg_max() or 0)
        raise InvalidInputError(
            "the update would be lost, because a lower ordering value loses against the existing row: "
            f"{if_lost}. column={ordering!r} key={key_of(before, row, config)} "
            f"before={before[ordering][row]} after={after[ordering][row]}"
        )


def key_of(rows: pa.Table, row: int, config: TableConfig) -> dict[str, object]:
    return {name: rows[name][row].as_py() for name in dict.fromkeys([*config.key.partition_fields, *config.key.fields])}


# --- payloads ---------------------------------------------------------------------------------------------------------


def _written(
    before: pa.Table, after: pa.Table, member: Member, schema: TableSchema, merging: Merging, config: TableConfig
) -> pl.Series:
    """Return the values to write for a payload; raise if readers would not see `after`."""
    payload = member.payload
    if member.hidden is not None and not payload.assigns:
        raise InvalidInputError(
            f"{payload.name} keeps a state, which an update cannot set: upsert the addition, or delete and upsert the "
            f"row in one transaction(). columns={list(member.columns)}"
        )
    types = schema.select([name for name in member.columns if name in after.column_names])
    names = types.declared.names
    old, new = (pl.DataFrame(pl.from_arrow(types.normalise(side.select(names)))) for side in (before, after))
    values = pl.DataFrame({"before": member.written(old), "after": member.written(new)})
    with naming_payload(payload, member.columns):
        written = values.select(payload.assign(pl.col("before"), pl.col("after")).alias("written")).to_series()
    if member.hidden is None or member.shared:
        _refuse_unshown(values.with_columns(written), member, merging, before, config)
    else:
        _refuse_unsaid(values.with_columns(written), member, before, config)
    return written


def _refuse_unsaid(values: pl.DataFrame, member: Member, rows: pa.Table, config: TableConfig) -> None:
    unsaid = pl.col("written").is_null() & pl.col("before").ne_missing(pl.col("after"))
    lost = values.select(unsaid.alias("lost"))["lost"]
    if member.payload.nulls == "skip" and lost.any():
        row = int(lost.arg_max() or 0)
        raise InvalidInputError(
            f"{member.payload.name} would not show the new value, because no write expresses it: set another value, "
            f"such as [] for an empty set. columns={list(member.columns)} key={key_of(rows, row, config)} "
            f"before={_plain(values['before'], row)} after={_plain(values['after'], row)}"
        )


def _refuse_unshown(
    values: pl.DataFrame, member: Member, merging: Merging, rows: pa.Table, config: TableConfig
) -> None:
    """values: `before`, `after` and `written` of each row."""
    alone = _folded([values["after"]], member, merging)
    shown = _folded([values["before"], values["written"]], member, merging)
    same = shown.eq_missing(alone)
    if not same.all():
        row = int((~same).arg_max() or 0)
        raise InvalidInputError(
            f"{member.payload.name} would not show the new value, because it merges it with the old one: upsert the "
            f"contribution instead. columns={list(member.columns)} key={key_of(rows, row, config)} "
            f"before={_plain(values['before'], row)} after={_plain(values['after'], row)} shown={_plain(shown, row)}"
        )


def _folded(written: Sequence[pl.Series], member: Member, merging: Merging) -> pl.Series:
    dot = Dot(pl.lit(0, pl.Int64), pl.int_range(pl.len(), dtype=pl.Int32), pl.lit(""))
    if member.shared:  # its written values are states
        states = [values.alias("state") for values in written]
    else:
        frames = [pl.DataFrame(lifted(_unpacked(values, member), member, merging, dot)) for values in written]
        states = [member.pack(frame).alias("state") for frame in frames]
    height = len(states[0])
    code = np.tile(np.arange(height), len(states))
    keys = pl.int_range(height, eager=True).cast(pl.String)
    return fold_states(member, pl.concat(states), code, keys)


def _plain(values: pl.Series, row: int) -> object:
    return values.slice(row, 1).to_list()[0]


def _unpacked(values: pl.Series, member: Member) -> pl.DataFrame:
    if len(member.columns) == 1:
        return values.alias(member.columns[0]).to_frame()
    return pl.DataFrame({name: values.struct.field(field) for name, field in member.fields.items()})


def _shown(member: Member, values: pl.Series, schema: TableSchema) -> list[tuple[str, pa.Array]]:
    if member.shared:
        return []
    columns = _unpacked(values, member).to_arrow()
    return [(name, _as_declared(columns.column(name), schema, name)) for name in member.columns]


def _nulls(member: Member, rows: pa.Table) -> list[tuple[str, pa.Array]]:
    return [(name, pa.nulls(rows.num_rows, rows.schema.field(name).type)) for name in member.columns]


def _as_declared(values: pa.Array | pa.ChunkedArray, schema: TableSchema, name: str) -> pa.Array | pa.ChunkedArray:
    """Return values in a column's declared type if they have exactly its stored type."""
    kind = values.type
    if pa.types.is_null(kind) or stored_type(kind, name) != schema.stored.field(name).type:
        return values
    chunks = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    return to_declared(chunks, schema.declared.field(name).type)

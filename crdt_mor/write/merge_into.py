"""`MERGE INTO`: match rows of a source with rows of a table, and apply clauses to the pairs.

    matched          a row of the table and a matching row of the source     update or delete it
    only in source   a row of the source without a match                     insert it
    only in target   a row of the table without a match                      update or delete it

The first clause of a kind with a true condition applies. Clauses name columns as `source.price` and `target.price`, of
the row after all earlier writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl
import pyarrow as pa

from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.tables import in_schema, with_columns
from crdt_mor.columns.texts import no_rows
from crdt_mor.columns.types import without_views
from crdt_mor.errors import InvalidInputError
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.merge.polars_types import polars_columns
from crdt_mor.model.config import TableConfig
from crdt_mor.read.assignments import Assignments, new_value
from crdt_mor.read.inputs import Inputs
from crdt_mor.read.sql_names import in_sql
from crdt_mor.write.merge_into_plan import HIT, MATCHED, ROW, Clause, MergePlan
from crdt_mor.write.named import NamedStatements
from crdt_mor.write.new_values import KeyOf
from crdt_mor.write.statements import keyed
from crdt_mor.write.update import (
    SET_NO_LOWER,
    changed_rows,
    key_of,
    refuse_lost,
    rows_anew,
    same_functions,
    with_values,
)

_CONDITION: Final = "condition"
_PLACE: Final = [PARTITION_PATH, RECORD_KEY]
_THERE: Final = " of the row that is there"


@dataclass
class Outcome:
    """The rows that a merge writes, and the number of rows of each clause.

    deletes: deleted rows, first; rows: changed rows; moved: rows for another partition; inserted: new rows, a table for
    each set of columns.
    are_unmet: inserted rows have the keys by which the source's rows matched nothing.
    """

    rows: list[pa.Table] = field(default_factory=list)
    moved: list[pa.Table] = field(default_factory=list)
    deletes: list[pa.Table] = field(default_factory=list)
    are_unmet: bool = True
    counts: list[int] = field(default_factory=list)
    inserted: list[pa.Table] = field(default_factory=list)


def merged(plan: MergePlan, target: pa.Table, statements: NamedStatements) -> Outcome:
    schema, config = statements.schema, statements.config
    target = in_schema(target, pa.schema([column.with_type(without_views(column.type)) for column in target.schema]))
    pairs = plan.joined(target, schema)
    outcome = Outcome()
    inserted: list[pa.Table] = []
    changed: list[pl.Series] = []
    deleted = pl.Series(dtype=pl.UInt32)
    open_pairs = {
        "matched": pairs.filter(MATCHED),
        "only in source": pairs.filter(pl.col(ROW).is_null()),
        "only in target": pairs.filter(~pl.col(HIT)),
    }
    for clause in plan.clauses:
        left = open_pairs[clause.kind]
        holds = _holds(clause, left, plan, _key_of(plan, left, target, config), schema)
        chosen, open_pairs[clause.kind] = left.filter(holds), left.filter(~holds)
        if clause.action == "delete":  # several rows of the source may delete a row
            gone = chosen[ROW].unique(maintain_order=True)
            gone = gone.filter(~gone.is_in(deleted.implode()))
            deleted = pl.concat([deleted, gone])
            outcome.counts.append(len(gone))
            outcome.deletes.append(target.take(gone.to_arrow()))
            continue
        outcome.counts.append(chosen.height)
        if clause.action == "insert":
            values = _values(clause, chosen, plan, schema)
            inserted.append(_inserted(values, chosen, _key_of(plan, chosen, target, config), statements))
            outcome.are_unmet &= _has_keys_of_source(values, plan, config)
            continue
        if clause.kind == "matched":
            changed.append(chosen[ROW])
        before = target.take(chosen[ROW].to_arrow())
        after, names = _updated(clause, chosen, before, plan, statements)
        if chosen.height:
            _add_update(outcome, before, after, names, statements, _if_lost(clause, plan, config))
    _refuse_several([*changed, deleted], target, config)
    if inserted:
        outcome.inserted = _by_columns(inserted)
        _refuse_repeats(outcome.inserted, statements)
    return outcome


def _by_columns(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Join the tables with equal columns: a column that a clause does not give must not become null."""
    alike: dict[frozenset[str], list[pa.Table]] = {}
    for table in tables:
        alike.setdefault(frozenset(table.column_names), []).append(table)
    return [pa.concat_tables(some, promote_options="permissive") for some in alike.values()]


def _inputs(clause: Clause, pairs: pl.DataFrame, plan: MergePlan) -> Inputs:
    source, table = plan.aliases
    there = {"matched": (source, table), "only in source": (source,), "only in target": (table,)}[clause.kind]
    return Inputs(pairs.select(there).clear())


def _key_of(plan: MergePlan, pairs: pl.DataFrame, target: pa.Table, config: TableConfig) -> KeyOf:
    def key(row: int) -> Mapping[str, object]:
        number = pairs[ROW][row]
        if number is not None:
            return key_of(target, number, config)
        source = pairs[plan.aliases[0]][row]
        return {name: source[name] for name, _ in plan.on}

    return key


def _holds(clause: Clause, pairs: pl.DataFrame, plan: MergePlan, key: KeyOf, schema: TableSchema) -> pl.Series:
    condition = clause.condition
    if condition is None:
        return pl.repeat(True, pairs.height, dtype=pl.Boolean, eager=True)
    expression = new_value(_CONDITION, condition, _inputs(clause, pairs, plan), schema)
    values = with_values(pa.table({_CONDITION: pa.nulls(pairs.height)}), {_CONDITION: expression}, {}, key, pairs)
    if values[_CONDITION].type not in (pa.bool_(), pa.null()):
        raise InvalidInputError(
            "a clause needs a condition that is true or false for each pair: 'source.at > target.at'. "
            f"condition={condition} type={values[_CONDITION].type}"
        )
    return pl.Series(pl.from_arrow(values[_CONDITION].cast(pa.bool_()))).fill_null(False)


def _values(clause: Clause, pairs: pl.DataFrame, plan: MergePlan, schema: TableSchema) -> dict[str, pl.Expr]:
    source, _ = plan.aliases
    if clause.given is None:
        unknown = [name for name in plan.source.column_names if name not in schema]
        if unknown:
            schema.require_not_renamed(unknown)
            raise InvalidInputError(
                "the source has columns that the table lacks: name the columns to set, or drop them"
                f"{schema.meant(unknown)}. unknown={unknown} known={schema.declared.names}"
            )
        return {name: pl.col(source).struct.field(name) for name in plan.source.column_names}
    if not clause.given:
        raise InvalidInputError(f"name the columns to set: {{'price': '{source}.price'}}. set={clause.given!r}")
    schema.require(clause.given)
    inputs = _inputs(clause, pairs, plan)
    kinds = polars_columns(schema)
    return {name: new_value(name, value, inputs, schema, kinds[name]) for name, value in clause.given.items()}


def _updated(
    clause: Clause, pairs: pl.DataFrame, before: pa.Table, plan: MergePlan, statements: NamedStatements
) -> tuple[pa.Table, list[str]]:
    schema, config = statements.schema, statements.config
    values = _values(clause, pairs, plan, schema)
    if clause.given is None:  # the matching columns are equal
        values = {name: value for name, value in values.items() if (name, name) not in plan.on}
    kinds = polars_columns(schema)
    return with_values(before, values, kinds, lambda row: key_of(before, row, config), pairs), [*values]


def _if_lost(clause: Clause, plan: MergePlan, config: TableConfig) -> str:
    """Return the remedy, for an error, if a clause would lower a row's ordering value."""
    ordering = config.merge.ordering
    if ordering is None or ordering not in plan.source.column_names or clause.kind != "matched":
        return SET_NO_LOWER
    ours, theirs = (f"{in_sql(alias)}.{in_sql(ordering)}" for alias in plan.aliases)
    later = f"limit the clause to later rows, by the condition '{ours} > {theirs}'"
    return later if clause.given is None else f"{SET_NO_LOWER}, or {later}"


def _add_update(
    outcome: Outcome,
    before: pa.Table,
    after: pa.Table,
    names: Sequence[str],
    statements: NamedStatements,
    if_lost: str,
) -> None:
    """Add changed rows, some of which move to another partition. if_lost: see `refuse_lost`."""
    config = statements.config
    key = config.key
    where = [one for one in key.partition_by if isinstance(one, str) and one in names and one not in key.fields]
    keys = [name for name in config.key.fields if name in names]
    if keys and not _same(before, after, keys, statements.schema).all():
        raise InvalidInputError(
            f"a merge cannot change a key: delete the row in a clause, and insert it under another. columns={keys}"
        )
    stays = _same(before, after, where, statements.schema) & same_functions(before, after, names, statements)
    if stays.all():
        set_names = [name for name in names if name not in (*where, *keys)]
        kept = _with(after, before, [*where, *keys])
        outcome.rows.append(changed_rows(before, kept, set_names, statements, if_lost))
        return
    mask = stays.to_arrow()
    moving = pa.array((~stays).to_list(), pa.bool_())
    _add_update(outcome, before.filter(mask), after.filter(mask), names, statements, if_lost)
    leaving, coming = before.filter(moving), after.filter(moving)
    ordering = config.merge.ordering
    if ordering is not None and ordering in names:
        refuse_lost(leaving, coming, ordering, statements, if_lost)
    outcome.deletes.append(leaving)
    outcome.moved.append(rows_anew(coming, statements))


def _same(before: pa.Table, after: pa.Table, names: Sequence[str], schema: TableSchema) -> pl.Series:
    same = pl.repeat(True, before.num_rows, dtype=pl.Boolean, eager=True)
    for name in names:
        old, new = (pl.Series(pl.from_arrow(schema.normalise(side.select([name]))[name])) for side in (before, after))
        same &= old.eq_missing(new)
    return same


def _with(rows: pa.Table, other: pa.Table, names: Sequence[str]) -> pa.Table:
    return with_columns(rows, {name: other[name] for name in names})


def is_by_key(plan: MergePlan, schema: TableSchema, config: TableConfig) -> bool:
    """Return True if related rows share a key: they match by it, and new rows keep their source's."""
    if not {*config.key.fields} <= {column for _, column in plan.on}:
        return False
    pairs = plan.joined(no_rows(schema.declared), schema)
    inserts = [clause for clause in plan.clauses if clause.action == "insert"]
    return all(_keeps_key(_values(clause, pairs, plan, schema), plan, config) for clause in inserts)


def _has_keys_of_source(values: Assignments, plan: MergePlan, config: TableConfig) -> bool:
    return {column for _, column in plan.on} == {*config.key.fields} and _keeps_key(values, plan, config)


def _names_places(plan: MergePlan, config: TableConfig) -> bool:
    """Return True if rows match by key and partition, so the same key elsewhere is another row."""
    return {*_names_of_places(config)} <= {column for _, column in plan.on}


def _keeps_key(values: Assignments, plan: MergePlan, config: TableConfig) -> bool:
    met = {column: pl.col(plan.aliases[0]).struct.field(name) for name, column in plan.on}
    return all(name in met and met[name].meta.eq(values[name]) for name in config.key.fields)


def _inserted(values: Assignments, pairs: pl.DataFrame, key: KeyOf, statements: NamedStatements) -> pa.Table:
    """Return the rows that a clause inserts.

    Columns without a value get their default, or null, or stay absent in partial updates.
    """
    schema, config = statements.schema, statements.config
    absent = [name for name in config.key.identity if name not in values]
    if absent:
        raise InvalidInputError(f"give the key and partition columns of inserted rows. missing={absent}")
    start = pa.table({name: pa.nulls(pairs.height) for name in values})
    kinds = polars_columns(schema)
    rows = statements.with_defaults(with_values(start, values, kinds, key, pairs))
    if config.merge.partial:
        return rows
    given = {*rows.column_names}
    return with_columns(rows, {c.name: pa.nulls(rows.num_rows, c.type) for c in schema.declared if c.name not in given})


def _refuse_repeats(inserted: Sequence[pa.Table], statements: NamedStatements) -> None:
    places = _places(inserted, statements)
    repeated = places.filter(pl.struct(_PLACE).is_duplicated())
    if repeated.height:
        raise InvalidInputError(
            "a key would be inserted twice: keep one of its rows, by an aggregate of the source, or by a clause's "
            f"condition. key={repeated[RECORD_KEY][0]!r}"
        )


def _refuse_several(changed: Sequence[pl.Series], target: pa.Table, config: TableConfig) -> None:
    rows = pl.concat(changed)
    repeated = rows.filter(rows.is_duplicated())
    if len(repeated):
        row = int(repeated[0])
        key = {name: target[name][row].as_py() for name in _names_of_places(config)}
        raise InvalidInputError(
            "several rows of the source match the same row of the table: keep one of them, by an aggregate of the "
            f"source, or by a clause's condition. key={key} rows={repeated.n_unique()}"
        )


def refuse_occupied(outcome: Outcome, existing: pa.Table, plan: MergePlan, statements: NamedStatements) -> None:
    """existing: rows that may occupy one of the places; leaving rows are not in the way."""
    moved = _places(outcome.moved, statements)
    left = _places([existing], statements).join(_places(outcome.deletes, statements), on=_PLACE, how="anti")
    if outcome.inserted:
        left = pl.concat([left, _places(outcome.inserted, statements)])
    taken = pl.concat([moved.filter(pl.struct(_PLACE).is_duplicated()), moved.join(left, on=_PLACE, how="semi")])
    if taken.height:
        columns = _names_of_places(statements.config)
        clauses = "delete one of them in a clause, or exclude the move by the clause's condition"
        before = f"delete one of them by key and partition, delete(rows of the columns {columns}), then move the other"
        raise InvalidInputError(
            "another row has the same key in the target partition of a move, and one would be lost: "
            f"{before if plan.is_move else clauses}. "
            f"key={taken[RECORD_KEY][0]!r} partition={taken[PARTITION_PATH][0]!r}"
        )


def refuse_hidden(outcome: Outcome, shown: pa.Table, plan: MergePlan, statements: NamedStatements) -> None:
    """shown: visible rows after these statements, including all rows at the places."""
    hidden = _places(outcome.moved, statements).join(_places([shown], statements), on=_PLACE, how="anti")
    if hidden.height:
        in_clause = "" if plan.is_move else "set a greater value in the clause, or "
        raise InvalidInputError(
            "a moved row would be lost, because its key was deleted with a greater ordering value there: "
            f"{in_clause}delete the row and upsert it with a greater value. "
            f"key={hidden[RECORD_KEY][0]!r} partition={hidden[PARTITION_PATH][0]!r}"
        )


def _places(tables: Sequence[pa.Table], statements: NamedStatements) -> pl.DataFrame:
    names = _names_of_places(statements.config)
    rows = [statements.schema.normalise(table.select(names)) for table in tables]
    return pl.concat([keyed(statements.config, table).select(_PLACE) for table in rows])


def _names_of_places(config: TableConfig) -> list[str]:
    return [*dict.fromkeys([*config.key.partition_fields, *config.key.fields])]


def refuse_existing_keys(
    plan: MergePlan, inserted: Sequence[pa.Table], existing: pa.Table, statements: NamedStatements
) -> None:
    """existing: rows that may have one of the keys. If rows match by partition too, the same key elsewhere is another
    row.
    """
    same = _PLACE if _names_places(plan, statements.config) else [RECORD_KEY]
    others = _places([existing], statements)
    new = _places(inserted, statements)
    found = new.join(others, on=same, how="inner", coalesce=True, maintain_order="left", suffix=_THERE)
    if found.height:
        partitions = [found[name][0] for name in (PARTITION_PATH, f"{PARTITION_PATH}{_THERE}") if name in found.columns]
        raise InvalidInputError(
            "an inserted row has the key of an existing row, and `on` does not match the two: "
            f"merge {_ways_out(plan, statements.config)}. key={found[RECORD_KEY][0]!r} partitions={partitions}"
        )


def _ways_out(plan: MergePlan, config: TableConfig) -> str:
    key, places = [*config.key.fields], _names_of_places(config)
    if {*key} == {*places} or _names_places(plan, config):
        return f"on the key, on={key}, or choose other rows"
    return f"on the key, on={key}, to move the row, or on={places}, to keep the key in both partitions"

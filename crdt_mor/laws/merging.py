"""How the rows of a table are merged: its settings, resolved to the rule and the columns that the kernel works with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType

import polars as pl
import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.casts import meets
from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.columns.shown_fields import odd_fields
from crdt_mor.columns.types import is_list
from crdt_mor.errors import CrdtMorError, InvalidInputError, UnknownPayloadError
from crdt_mor.laws.resolve import resolve
from crdt_mor.merge.blocks import Columns
from crdt_mor.merge.kernel import polars_type
from crdt_mor.merge.payload import Dot, Payload, RecordPayload
from crdt_mor.merge.rule import Member, MergeRule, naming_payload
from crdt_mor.model.config import TableConfig
from crdt_mor.model.merge_spec import ColumnMerge, MergeSpec

_PLACE, _WRITTEN, _PENDING = "_crdt_place", "_crdt_written", "_crdt_pending"

HIDDEN = "_crdt_"
"""A column that keeps a payload's state begins so, followed by the name of the column that shows its value."""


@dataclass(frozen=True)
class Merging:
    """A merge rule for one schema.

    columns: the columns that files hold, states of payloads included, in the types of polars.
    schema: these columns in the types of Arrow.
    accepts: for columns that may be written in other types than their own, all types that they accept; what is of the
        column's own type in them is as it was declared.
    """

    rule: MergeRule
    columns: Columns
    schema: TableSchema
    accepts: Mapping[str, Sequence[pa.DataType]]

    def takes(self, column: pa.Field) -> bool:
        """Whether a payload takes this column as it is."""
        return any(meets(column.type, kind) for kind in self.accepts.get(column.name, ()))

    @cached_property
    def asks_what_was_seen(self) -> bool:
        """Whether a payload asks which earlier commits a write has seen: its state depends on `Dot.pending`.

        Such a write cannot be committed later by another process, which has seen more.
        """
        dot = Dot(pl.lit(0, pl.Int64), pl.lit(0, pl.Int32), pl.col(_PENDING))
        states = (member.payload.lift(pl.col(_WRITTEN), dot) for member in self.rule.members)
        return any(_PENDING in state.meta.root_names() for state in states)


def lift(rows: pl.DataFrame, merging: Merging, dot: Dot) -> pl.DataFrame:
    """Written rows with states instead of the columns that have payloads; see `MergeRule.show` for the way back."""
    rows = rows.with_columns(dot.place.alias(_PLACE))
    placed = Dot(dot.time, pl.col(_PLACE), dot.pending)
    for member in merging.rule.members:
        if not set(member.columns) <= set(rows.columns):
            continue
        written = rows.select(member.written(rows).alias(_WRITTEN), _PLACE)
        if member.payload.nulls_inside == "refuse":
            _refuse_nulls_inside(written[_WRITTEN], member)
        with naming_payload(member.payload, member.columns):
            state = member.payload.lift(pl.col(_WRITTEN), placed)
            if member.payload.nulls == "skip":
                state = pl.when(pl.col(_WRITTEN).is_not_null()).then(state)
            states = written.select(state).to_series()
            types = merging.columns.stored
            columns = [series.cast(types[series.name]) for series in member.unpack(states, member.stored)]
        rows = rows.drop(member.columns).with_columns(columns)
    return rows.drop(_PLACE)


def _refuse_nulls_inside(written: pl.Series, member: Member) -> None:
    """Raise `InvalidInputError` for a written value with a null inside, which is none of its payload's values."""
    if not _has_nulls_inside(written):
        return
    row = next(i for i in range(len(written)) if _has_nulls_inside(written.slice(i, 1)))
    raise InvalidInputError(
        f"a null inside a value is none of the values of {member.payload.name}: leave the value out, or write null in "
        f"its place. columns={list(member.columns)} row={row} value={written[row]}"
    )


def _has_nulls_inside(values: pl.Series) -> bool:
    """Whether some value that is there has a null inside, at any depth."""
    present = values.drop_nulls()
    if not values.dtype.is_nested() or not len(present):
        return False
    return any(field.null_count() or _has_nulls_inside(field) for field in _inner(present))


def _inner(values: pl.Series) -> list[pl.Series]:
    """What nested values that are there consist of: the fields of structs, the items of lists."""
    if isinstance(values.dtype, pl.Struct):
        return [values.struct.field(name) for name in values.struct.fields]
    items = values.filter(values.list.len() > 0)
    return [items.explode()] if len(items) else []


def require_payloads(config: TableConfig) -> None:
    """Raise `UnknownPayloadError` before anything begins where a payload of the table cannot be found."""
    for column_merge in config.merge.columns:
        resolve(column_merge.payload)


def merging_of(config: TableConfig, schema: str) -> Merging:
    """The merging of a table whose schema is `schema`, as the timeline keeps it."""
    return _merging(config.merge, _key_column(config), config.key.times, schema)


def _key_column(config: TableConfig) -> str | None:
    """The user's column whose text is the record key, and that is stored alike in all files, if there is one."""
    fields = config.key.fields
    if len(fields) > 1 or config.key.composite or fields[0] in (*META_COLUMNS, *config.key.times):
        return None
    return fields[0]


@lru_cache(maxsize=64)
def _merging(spec: MergeSpec, key_column: str | None, times: tuple[str, ...], text: str) -> Merging:
    schema = TableSchema.from_json(text)
    hidden: list[pa.Field] = []
    members: list[Member] = []
    accepts: dict[str, Sequence[pa.DataType]] = {}
    for column_merge in spec.columns:
        payload = resolve(column_merge.payload)
        kind = _column_type(schema.stored, column_merge, payload)
        name = f"{HIDDEN}{column_merge.columns[0]}" if payload.stateful else None
        if name is not None:
            hidden.append(pa.field(name, payload.state(kind)))
            _refuse_odd_fields(payload, column_merge.columns, hidden[-1].type)
        if tuple(taken := payload.accepts(kind)) != (kind,):
            declared = _column_type(schema.declared, column_merge, payload)
            accepts[column_merge.columns[0]] = [_as_declared(accepted, kind, declared) for accepted in taken]
        members.append(Member(column_merge.columns, payload, polars_type(kind), name))
    physical = TableSchema(pa.schema([*schema.declared, *hidden]))
    rule = _rule(spec, tuple(members))
    numbered = frozenset(n for n in times if n in physical.stored.names and pt.is_string(physical.stored.field(n).type))
    columns = Columns.of(physical.stored, key_column, numbered)
    return Merging(rule, columns, physical, MappingProxyType(accepts))


def _as_declared(accepted: pa.DataType, stored: pa.DataType, declared: pa.DataType) -> pa.DataType:
    """A type that a payload accepts, of which the parts that are the column, or its items, are as they were declared.

    Payloads see stored types alone. There a time has a zone, and a small number is a large one.
    """
    if accepted == stored:
        return declared
    if is_list(stored) and accepted == stored.value_type:
        return declared.value_type
    if pa.types.is_struct(accepted):
        return pa.struct([part.with_type(_as_declared(part.type, stored, declared)) for part in accepted])
    if is_list(accepted):
        return pa.list_(_as_declared(accepted.value_type, stored, declared))
    return accepted


def _rule(spec: MergeSpec, members: tuple[Member, ...]) -> MergeRule:
    if not spec.custom:
        return MergeRule("ordering", spec.ordering) if spec.kind == "ordering" else MergeRule()
    return MergeRule("columns", nulls=spec.nulls, whole=not spec.partial, members=members)


def check_columns(config: TableConfig, schema: TableSchema) -> None:
    """Raise `InvalidInputError` where a payload does not serve its columns, before `schema` becomes the table's."""
    for column_merge in config.merge.columns:
        payload = resolve(column_merge.payload)
        if config.merge.partial and payload.nulls == "value":
            raise InvalidInputError(
                f"{payload.name} takes null for a value, and in a table of partial updates null also stands for what "
                f"nobody has given yet: use a payload that skips nulls. columns={list(column_merge.columns)}"
            )
        _check_column(payload, column_merge.columns, _column_type(schema.stored, column_merge, payload))
        _require_room(payload, column_merge.columns, schema)
        times = [name for name in column_merge.columns if pa.types.is_time(schema.declared.field(name).type)]
        if times and payload.kind == "delta":
            raise InvalidInputError(
                f"{payload.name} adds values up, and times of day have no sum: declare it int64. columns={times}"
            )


def _column_type(stored: pa.Schema, merge: ColumnMerge, payload: Payload) -> pa.DataType:
    """The type that a payload sees: of its column, or a struct of its columns under the names that it knows."""
    columns = merge.columns
    if isinstance(payload, RecordPayload):
        return pa.struct([stored.field(name).with_name(own) for name, own in zip(columns, merge.fields, strict=True)])
    if len(columns) > 1:
        raise InvalidInputError(
            f"{payload.name} merges one column; several that decide together need a RecordPayload, such as LatestBy. "
            f"columns={list(columns)}"
        )
    return stored.field(columns[0]).type


def _check_column(payload: Payload, columns: Sequence[str], kind: pa.DataType) -> None:
    """Raise `InvalidInputError` if the payload does not serve this type: it says so, or fails on no rows of it.

    A payload whose library is missing raises `UnknownPayloadError`, which says what to install.
    """
    _refuse_odd_fields(payload, columns, payload.column())
    try:
        payload.check(kind)
        if payload.stateful:
            _refuse_odd_fields(payload, columns, payload.state(kind))
        _try_on_no_rows(payload, columns, kind)
    except UnknownPayloadError:
        raise
    except CrdtMorError as error:
        raise InvalidInputError(
            f"{payload.name} does not serve this column: {error} columns={list(columns)}"
        ) from error


def _refuse_odd_fields(payload: Payload, columns: Sequence[str], kind: pa.DataType) -> None:
    """Raise where a payload itself names fields of its values or states that are called otherwise in files."""
    odd = odd_fields(kind)
    if odd:
        raise InvalidInputError(
            f"{payload.name} names fields that are called otherwise in files: have it use ASCII letters, digits and _ "
            f"alone. columns={list(columns)} fields={odd}"
        )


def _require_room(payload: Payload, columns: Sequence[str], schema: TableSchema) -> None:
    """Sums leave the range of what was summed: refuse integers that are stored wider than they are declared."""
    for name in columns:
        declared, stored = schema.declared.field(name).type, schema.stored.field(name).type
        if payload.kind == "delta" and pa.types.is_integer(declared) and declared != stored:
            raise InvalidInputError(
                f"{payload.name} can show more than the column holds: declare it {stored}. "
                f"column={name!r} type={declared}"
            )


def _try_on_no_rows(payload: Payload, columns: Sequence[str], kind: pa.DataType) -> None:
    state, written = polars_type(payload.state(kind)), polars_type(payload.accepts(kind)[0])
    dot = Dot(pl.lit(0, pl.Int64), pl.lit(0, pl.Int32), pl.lit(""))
    none = pl.DataFrame(schema={"code": pl.UInt32(), "state": state, "written": written})
    with naming_payload(payload, columns):
        none.select(payload.lift(pl.col("written"), dot).cast(state))
        shown = payload.value(payload.settle(pl.col("state"))).cast(polars_type(kind))
        none.select(payload.restore(shown).cast(state) if payload.restores else shown)
        if payload.vectorised:
            none.group_by("code").agg(payload.merge(pl.col("state"))).to_series(1).cast(state)

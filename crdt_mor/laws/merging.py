"""Resolve a table's settings to its merge rule and the columns that the kernel merges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import polars as pl
import pyarrow as pa

from crdt_mor.columns.casts import meets
from crdt_mor.columns.kinds import kind_of
from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.columns.shown_fields import odd_fields
from crdt_mor.columns.types import is_list
from crdt_mor.errors import CrdtMorError, InvalidInputError, UnknownPayloadError
from crdt_mor.laws.resolve import resolve
from crdt_mor.merge.blocks import Columns
from crdt_mor.merge.groups import Group, SharedMember, SharedOrder
from crdt_mor.merge.kernel import polars_type
from crdt_mor.merge.payload import Dot, Payload, RecordPayload
from crdt_mor.merge.rule import LATEST, ORDERS, Member, MergeRule, naming_payload
from crdt_mor.model.config import TableConfig
from crdt_mor.model.config_properties import OUR_SCHEMA
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.merge_spec import ColumnMerge, MergeSpec

_PLACE, _WRITTEN, _PENDING = "_crdt_place", "_crdt_written", "_crdt_pending"

HIDDEN = "_crdt_"
"""Prefix of columns with a payload's state, followed by the visible column's name."""


@dataclass(frozen=True)
class Merging:
    """A merge rule for one schema.

    columns: the columns of files, with states of payloads, in polars types.
    schema: the same columns in Arrow types.
    accepts: all types of columns that accept several; parts of the column's own type stay as declared.
    """

    rule: MergeRule
    columns: Columns
    schema: TableSchema
    accepts: Mapping[str, Sequence[pa.DataType]]

    def takes(self, column: pa.Field) -> bool:
        return any(meets(column.type, kind) for kind in self.accepts.get(column.name, ()))

    @cached_property
    def asks_what_was_seen(self) -> bool:
        """True if a payload's state depends on `Dot.pending`, the earlier commits that a write has not seen.

        Another process, which has seen more, cannot commit such a write later.
        """
        dot = Dot(pl.lit(0, pl.Int64), pl.lit(0, pl.Int32), pl.col(_PENDING))
        states = (member.payload.lift(pl.col(_WRITTEN), dot) for member in self.rule.members)
        return any(_PENDING in state.meta.root_names() for state in states)


def lift(
    rows: pl.DataFrame, merging: Merging, dot: Dot, absent: Mapping[str, pl.Series] = MappingProxyType({})
) -> pl.DataFrame:
    """Replace the columns with payloads by states; `MergeRule.show` reverses it. absent: as in `Member.written`."""
    members = [member for member in merging.rule.members if member.is_given(rows.columns)]
    states = [state for member in members for state in lifted(rows, member, merging, dot, absent)]
    shown = {name for member in members for name in member.columns}
    return pl.DataFrame([*(values for values in rows if values.name not in shown), *states])


def lifted(
    rows: pl.DataFrame,
    member: Member,
    merging: Merging,
    dot: Dot,
    absent: Mapping[str, pl.Series] = MappingProxyType({}),
) -> list[pl.Series]:
    """Return a payload's states of these rows, in its stored columns."""
    written = member.written(rows, absent).alias(_WRITTEN).to_frame().with_columns(dot.place.alias(_PLACE))
    if member.payload.nulls_inside == "refuse":
        _refuse_nulls_inside(written[_WRITTEN], member)
    with naming_payload(member.payload, member.columns):
        state = member.payload.lift(pl.col(_WRITTEN), Dot(dot.time, pl.col(_PLACE), dot.pending))
        if member.payload.nulls == "skip":
            state = pl.when(pl.col(_WRITTEN).is_not_null()).then(state)
        states = written.select(state).to_series()
        types = merging.columns.stored
        return [series.cast(types[series.name]) for series in member.unpack(states, member.stored)]


def _refuse_nulls_inside(written: pl.Series, member: Member) -> None:
    if not _has_nulls_inside(written):
        return
    row = next(i for i in range(len(written)) if _has_nulls_inside(written.slice(i, 1)))
    raise InvalidInputError(
        f"{member.payload.name} refuses nulls inside values: leave the value out, or write null instead. "
        f"columns={list(member.columns)} row={row} value={written[row]}"
    )


def _has_nulls_inside(values: pl.Series) -> bool:
    present = values.drop_nulls()
    if not values.dtype.is_nested() or not len(present):
        return False
    return any(field.null_count() or _has_nulls_inside(field) for field in _inner(present))


def _inner(values: pl.Series) -> list[pl.Series]:
    if isinstance(values.dtype, pl.Struct):
        return [values.struct.field(name) for name in values.struct.fields]
    items = values.filter(values.list.len() > 0)
    return [items.explode()] if len(items) else []


def require_payloads(config: TableConfig) -> None:
    """Raise `UnknownPayloadError` early if a payload of the table cannot be found."""
    for column_merge in config.merge.columns:
        resolve(column_merge.payload)


def merging_of(config: TableConfig, schema: str) -> Merging:
    return _merging(config.merge, config.key, schema, config.properties.get(OUR_SCHEMA))


def _key_column(key: KeySpec) -> str | None:
    if key.composite or key.fields[0] in (*META_COLUMNS, *key.times):
        return None
    return key.fields[0]


@lru_cache(maxsize=64)
def _merging(spec: MergeSpec, key: KeySpec, text: str, created: str | None) -> Merging:
    schema = TableSchema.from_json(text)
    hidden: list[pa.Field] = []
    members: list[Member] = []
    accepts: dict[str, Sequence[pa.DataType]] = {}
    for column_merge, *others in spec.groups:
        if others:
            member, state = _shared_member(schema.stored, [column_merge, *others])
            members.append(member)
            hidden.append(state)
            continue
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
    if spec.partial and spec.ordering is not None:
        hidden.append(_orders_field(schema, spec.ordering))
    physical = TableSchema(pa.schema([*schema.declared, *hidden]))
    rule = _rule(spec, tuple(members))
    numbered = frozenset(n for n in key.times if n in physical and physical.stored.field(n).type == pa.string())
    columns = Columns.of(physical.stored, _key_column(key), numbered)
    columns = replace(columns, widened=_widened(schema, TableSchema.from_json(created or "[]"), members, columns))
    return Merging(rule, columns, physical, MappingProxyType(accepts))


def _shared_member(stored: pa.Schema, merges: Sequence[ColumnMerge]) -> tuple[Member, pa.Field]:
    """Return the member of the groups with a common ordering column, and its hidden column."""
    field_of = {name: field for merge in merges for name, field in zip(merge.columns, merge.fields, strict=True)}
    kind = pa.struct([stored.field(name).with_name(field) for name, field in field_of.items()])
    by = str(merges[0].ordering)
    groups = []
    for merge in merges:
        payload = resolve(merge.payload)
        assert isinstance(payload, RecordPayload)
        groups.append(Group(merge.fields, payload))
    payload = SharedOrder(field_of[by], tuple(groups))
    name = f"{HIDDEN}{by}"
    return SharedMember(tuple(field_of), payload, polars_type(kind), name), pa.field(name, payload.state(kind))


def _orders_field(schema: TableSchema, ordering: str) -> pa.Field:
    order = schema.stored.field(ordering).type
    entry = pa.struct([("order", order), ("time", pa.string()), ("columns", pa.list_(pa.string()))])
    return pa.field(ORDERS, pa.list_(entry))


def _widened(schema: TableSchema, created: TableSchema, members: Sequence[Member], columns: Columns) -> frozenset[str]:
    """Return the columns with decimals that had another type at the table's creation."""
    then = {column.name: column.type for column in created.stored}
    same = {column.name for column in schema.stored if then.get(column.name) == column.type}
    same |= {name for member in members if same.issuperset(member.columns) for name in member.stored}
    return frozenset(name for name, kind in columns.stored.items() if name not in same and _has_decimal(kind))


def _has_decimal(kind: Any) -> bool:
    match kind:
        case pl.Struct():
            return any(_has_decimal(field.dtype) for field in kind.fields)
        case pl.List():
            return _has_decimal(kind.inner)
        case pl.Map():
            return _has_decimal(kind.value)
    return bool(kind.is_decimal())


def _as_declared(accepted: pa.DataType, stored: pa.DataType, declared: pa.DataType) -> pa.DataType:
    """Return an accepted type with the column's own parts as declared: payloads see stored types only."""
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
        return MergeRule("ordering", spec.ordering) if spec.kind == "ordering" else LATEST
    return MergeRule("columns", spec.ordering, nulls=spec.nulls, whole=not spec.partial, members=members)


def check_columns(config: TableConfig, schema: TableSchema) -> None:
    """Raise `InvalidInputError` if a payload does not fit its columns, before `schema` becomes the table's."""
    for column_merge in config.merge.columns:
        payload = resolve(column_merge.payload)
        if config.merge.partial and payload.nulls == "value":
            raise InvalidInputError(
                f"{payload.name} treats null as a value, but PartialUpdate uses null for missing values: use a "
                f"payload that skips nulls. columns={list(column_merge.columns)}"
            )
        _check_column(payload, column_merge.columns, _column_type(schema.stored, column_merge, payload))
        _require_room(payload, column_merge.columns, schema)


def _column_type(stored: pa.Schema, merge: ColumnMerge, payload: Payload) -> pa.DataType:
    """Return the type that a payload sees: its column's, or a struct of its columns under its own names."""
    columns = merge.columns
    if isinstance(payload, RecordPayload):
        return pa.struct([stored.field(name).with_name(own) for name, own in zip(columns, merge.fields, strict=True)])
    if len(columns) > 1:
        raise InvalidInputError(
            f"{payload.name} merges a single column: use a RecordPayload, such as LatestBy, for several. "
            f"columns={list(columns)}"
        )
    return stored.field(columns[0]).type


def _check_column(payload: Payload, columns: Sequence[str], kind: pa.DataType) -> None:
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
    odd = odd_fields(kind)
    if odd:
        raise InvalidInputError(
            f"{payload.name} uses field names that files cannot store: use only ASCII letters, digits and _. "
            f"columns={list(columns)} fields={odd}"
        )


def _require_room(payload: Payload, columns: Sequence[str], schema: TableSchema) -> None:
    """Refuse sums of types without sums, and of integers stored wider: sums would exceed the declared range."""
    for name in columns if payload.kind == "delta" else ():
        declared, stored = schema.declared.field(name).type, schema.stored.field(name).type
        family = kind_of(declared)
        if family.no_sum:
            raise InvalidInputError(f"{payload.name} adds values, and {family.no_sum}. columns={[name]}")
        if family.is_bounded and declared != stored:
            raise InvalidInputError(
                f"{payload.name} can exceed the column's range: declare the column {stored}. column={name!r} "
                f"type={declared}"
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

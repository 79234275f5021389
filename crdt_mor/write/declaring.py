"""Declare everything that a write will touch: the user's declaration, or one derived from its condition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import polars as pl
import pyarrow as pa

from crdt_mor.columns.names import lowered, stored_name
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import CrdtMorError, InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.model.authors import Info
from crdt_mor.model.config import TableConfig
from crdt_mor.model.declared import ANYTHING, NAMES_MAX, Declared, declared_of
from crdt_mor.model.rules import asked_together
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.conditions import checked
from crdt_mor.read.prune import allowed_keys, few, pinned_partitions
from crdt_mor.read.trees import with_columns_named
from crdt_mor.write.merge_into_plan import MergePlan
from crdt_mor.write.named import shown_table
from crdt_mor.write.open_write import OpenWrite

Declare = Callable[[Timeline], Declared]
"""Compute a write's declaration from the value at its begin."""


def begin(session: Session, token: tuple[str, int] | None, info: Info, declare: Declare | None) -> OpenWrite:
    """Begin a write with its declaration; None: it may touch anything.

    If a concurrent change of columns or rules alters the declaration, give the write up and begin again.
    """
    if declare is None:
        return OpenWrite.begin(session, token, info)
    value = session.known_tail()
    while True:
        declared = declare(value)
        write = OpenWrite.begin(session, token, info, declared)
        try:
            if _still_declares(declare, declared, value, write.value):
                return write
        except BaseException:
            write.abandon()
            raise
        write.abandon()
        value = write.value


def _still_declares(declare: Declare, declared: Declared, before: Timeline, begun: Timeline) -> bool:
    same = (before.schema, before.alterations, before.rules) == (begun.schema, begun.alterations, begun.rules)
    return same or declare(begun) == declared


def declared_by_user(
    session: Session,
    partitions: Collection[object] | None,
    columns: Collection[str] | None,
    row_columns: Iterable[str] = (),
) -> Declared:
    """Return the user's declaration; raise for unknown partitions or columns.

    partitions: named as for an overwrite. row_columns: column names of the rows, including new ones.
    """
    from crdt_mor.write.overwrite import rehearsal, scope_of  # rarely needed

    tail = session.tail()
    paths = None if partitions is None else scope_of(rehearsal(session, tail), partitions).partitions
    names = None if columns is None else _columns(columns, session.config, tail)
    for kind, given in (("partitions", paths), ("columns", names)):
        if given is not None and len(given) > NAMES_MAX:
            raise InvalidInputError(
                f"a write declares at most {NAMES_MAX} {kind}, because each timeline version stores them: declare "
                f"fewer, or omit them, and later updates wait for this write. {kind}={len(given)}"
            )
    _refuse_unknown(columns or (), session.config, tail, row_columns)
    return declared_of(paths, names, existing=False)


def _refuse_unknown(columns: Collection[str], config: TableConfig, tail: Timeline, row_columns: Iterable[str]) -> None:
    schema = shown_table(config, tail)[1]
    known = [*schema.declared.names, *row_columns]
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise InvalidInputError(
            "the declared columns are in neither the table nor the rows"
            f"{schema.meant(unknown)}. unknown={unknown} known={[*dict.fromkeys(known)]}"
        )


def _columns(columns: Collection[str], config: TableConfig, tail: Timeline) -> list[str]:
    if isinstance(columns, str | bytes | Mapping) or not all(isinstance(name, str) for name in columns):
        raise InvalidInputError(f'pass columns as a list of names, ["price"]. columns={columns!r}')
    if not config.merge.partial:
        raise InvalidInputError(
            "writes to this table contain whole rows, which touch all columns: declare partitions, or create "
            f"the table with merge=PartialUpdate(). columns={list(columns)}"
        )
    known = tail.names.by_shown(tail.columns)
    taken = lowered(tail.columns)
    stored = [known.get(name) or stored_name(name, taken) for name in columns]
    ordering = [] if config.merge.ordering is None else [config.merge.ordering]
    identity = {*config.key.fields, *config.key.partition_columns}
    # Every row contains the sources of partition functions, whose values may change within a partition.
    sources = [one.source for one in config.key.functions if one.source not in identity]
    return list(dict.fromkeys([*(name for name in stored if name not in identity), *sources, *ordering]))


def declared_by_update(set_: object, where: pl.Expr | str | None, config: TableConfig, value: Timeline) -> Declared:
    """Declare an update: existing rows of the condition's partitions and keys, and the set columns.

    Columns that checks or payloads evaluate together with the set columns are included.
    """
    columns = None
    if config.merge.partial and isinstance(set_, Mapping):
        known = value.names.by_shown(value.columns)
        written = asked_together(value.rules, (known.get(str(name), str(name)) for name in set_))
        columns = {*written, *config.merge.decided_with(written)}
    partitions, keys = _pinned(where, config, value)
    return declared_of(partitions, columns, existing=True, record_keys=keys)


def declared_by_delete(where: pl.Expr | str | None, config: TableConfig, value: Timeline) -> Declared:
    partitions, keys = _pinned(where, config, value)
    return declared_of(partitions, None, existing=False, record_keys=keys)


def declared_by_merge(plan: MergePlan, config: TableConfig, value: Timeline) -> Declared:
    """Declare a merge: partitions and keys of its source rows, as far as matching rows share them."""
    if plan.reads_all:
        return ANYTHING
    partitions = _of_source(plan, config.key.partition_fields, config.key.partition_paths, value)
    keys = _of_source(plan, config.key.fields, config.key.record_keys, value) if config.ours else None
    return declared_of(partitions, None, existing=False, record_keys=keys)


def _of_source(
    plan: MergePlan, fields: Sequence[str], made_of: Callable[[pa.Table], pa.Array], value: Timeline
) -> list[str] | None:
    """Return the texts made of these columns of the source; None for any, where rows may change in these columns."""
    shown = [value.names.shown(name) for name in fields]
    if not shown or not all(_stays(plan, name) for name in shown):
        return None
    schema = value.names.outward(TableSchema.from_json(value.schema))
    try:
        rows = schema.select(shown).normalise(plan.source_keys(schema).select(shown))
        texts: list[str] = made_of(rows.rename_columns([*fields])).unique().to_pylist()
    except CrdtMorError:  # the statement will refuse these rows
        return None
    return texts


def _stays(plan: MergePlan, name: str) -> bool:
    """Return True if rows match by this column and every clause keeps it or takes the source's value."""
    given = [clause.given[name] for clause in plan.clauses if clause.given is not None and name in clause.given]
    as_source = f"{plan.aliases[0]}.{name}"
    return (name, name) in plan.on and all(isinstance(value, str) and value == as_source for value in given)


Texts = tuple[str, ...] | None


def _pinned(where: pl.Expr | str | None, config: TableConfig, value: Timeline) -> tuple[Texts, Texts]:
    """Return the only partition paths and the only record keys that a condition allows; None for any."""
    if where is None:
        return None, None
    schema, names = TableSchema.from_json(value.schema), value.names
    try:
        condition: pl.Expr | None = checked(where, names.outward(schema))
        if condition is not None and not names.are_stored:
            condition = with_columns_named(condition, names.by_shown(value.columns))
        return pinned_partitions(condition, config, schema), few(allowed_keys(condition, config, schema))
    except CrdtMorError:
        return None, None

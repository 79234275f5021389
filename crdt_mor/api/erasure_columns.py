"""Erase some columns of rows: the rows stay, and no file contains their old values.

    look      find the file groups with such values, live or in history
    null      an update in place sets the columns to null, after all earlier requests. If a payload merges them, nulls
              change nothing: then one commit deletes the rows and writes them anew without the values
    finish    `services.erasure`, as for whole rows: fold, clean, prove

The update reads the rows of all earlier writes, so no other column loses a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import polars as pl
import pyarrow as pa

from crdt_mor.api.scan import Scan
from crdt_mor.columns.names import STORED
from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.tables import with_columns
from crdt_mor.errors import ConstraintViolationError, InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.laws.merging import merging_of
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.model.authors import Info
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import from_ms, to_ms
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import FileGroup
from crdt_mor.planners.erasure import Erasure
from crdt_mor.read.reads import EVERYTHING
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services import erasure as steps
from crdt_mor.services.erasure_values import values
from crdt_mor.write.named import NamedStatements, shown_rules
from crdt_mor.write.open_write import OpenWrite
from crdt_mor.write.rules import violation
from crdt_mor.write.statements import RowsStatement
from crdt_mor.write.update import Update

COLUMNS_INFO: Final[Info] = (
    ("message", "an erasure: values of some columns go from history, too"),
    steps.ERASURE_MARK,
)
"""The commit info of such an erasure; it never contains keys or values."""

_MAY_BRING: Final = "may still bring values that are erased"

KeysToErase = Callable[[Timeline], pl.DataFrame]
"""Return the rows to erase for a value of the timeline: record key, partition path (null: any), bucket."""


def require_erasable(config: TableConfig, schema: TableSchema, columns: object) -> list[str]:
    """Return the columns to erase. Raise if a column cannot be null, or identifies or orders rows."""
    names = [columns] if isinstance(columns, str) else list(columns) if isinstance(columns, Sequence) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f'pass a list of columns to erase: columns=["email"]. columns={columns!r}')
    known = schema.declared
    unknown = [name for name in names if name not in schema]
    if unknown:
        rows = "" if schema.dropped.isdisjoint(unknown) else "; erase the rows, without columns=, to remove its bytes"
        raise InvalidInputError(
            f"the table has no such columns{schema.meant(unknown)}{rows}. unknown={unknown} known={known.names}"
        )
    members = merging_of(config, schema.to_json()).rule.members
    merged = {name for member in members for name in member.columns}
    kept = {name for member in members if member.hidden is not None for name in member.columns}
    unwritable = merged if kept else frozenset[str]()
    reasons: dict[str, set[str | None]] = {
        "it identifies rows": {*config.key.identity},
        "it orders the versions of a row": {config.merge.ordering},
        "the row expires by it": {*config.merge.expiry_columns},
        "its payload keeps a state of all writes": {*kept},
        "another payload keeps a state, so the row cannot be written anew": {*unwritable},
        "it is declared without nulls": {field.name for field in known if not field.nullable},
    }
    for reason, refused in reasons.items():
        for name in names:
            if name in refused:
                raise InvalidInputError(f"a column cannot be erased alone: erase the row, as {reason}. column={name}")
    return list(dict.fromkeys(names))


def erase_values(
    session: Session, keys_of: KeysToErase, columns: Sequence[str], patience: steps.Patience
) -> tuple[int, int] | None:
    """Set the columns to null and note the erasure. Return the number of rows, and the version.

    Returns None if other erasures handle all such values. columns: stored names.
    """
    tail = session.tail()
    rows = keys_of(tail)
    seen = _missing(session, tail, rows, columns)
    if not seen and tail.pending:
        steps.await_writes(session, tail.clock, patience, _MAY_BRING)
        tail = session.tail()
        rows = pl.concat([rows, keys_of(tail)]).unique()
        seen = _missing(session, tail, rows, columns)
    if not seen:
        return None
    steps.refuse_saved(session, seen)
    write = OpenWrite.begin(session, None, COLUMNS_INFO)
    try:
        before = from_ms(to_ms(write.begun.requested) - 1)
        steps.await_writes(session, before, patience, _MAY_BRING)
        view, tail = replace(write.settle(EVERYTHING, 0), called=STORED), session.tail()
        rows = pl.concat([rows, keys_of(tail)]).unique()
        given = _with_values(view, rows, columns)
        if given.num_rows:
            with _held_by_rules(write.value, columns):
                _set_null(given, columns, NamedStatements(write.statements, STORED))
        groups = _missing(session, tail, rows, columns)
        steps.note(session, Erasure(write.begun.requested, groups, write.value.table_id))
    except BaseException:
        write.abandon()
        raise
    committed = write.commit(operation="UPSERT")
    return given.num_rows, committed.completion.version


def values_to_erase(
    session: Session, value: Timeline, rows: pl.DataFrame, columns: Sequence[str]
) -> tuple[int, tuple[FileGroup, ...]]:
    """Return the number of visible rows with such values, and the file groups, as `erase_values` finds them."""
    view = replace(Snapshot.seal(session, value).with_expired(), called=STORED)
    return _with_values(view, rows, columns).num_rows, _missing(session, value, rows, columns)


def _set_null(given: pa.Table, columns: Sequence[str], statements: NamedStatements) -> None:
    config, schema = statements.config, statements.schema
    merged = statements.merging.rule.merged
    if merged.isdisjoint(columns):
        update = Update(dict.fromkeys(columns, pl.lit(None)))
        update.add(given.select(update.columns(schema, config, statements.rules)), statements)
        return
    whole = given.select(schema.declared.names)
    anew = with_columns(whole, {name: pa.nulls(whole.num_rows, whole.schema.field(name).type) for name in columns})
    statements.add(RowsStatement("DELETE", given.select(config.key.identity), plain=True))
    statements.add(RowsStatement("UPSERT", anew, are_new=True, are_kept=True))


@contextmanager
def _held_by_rules(value: Timeline, columns: Sequence[str]) -> Iterator[None]:
    """Name the columns of a broken rule as users see them."""
    try:
        yield
    except ConstraintViolationError as error:
        rule = next(rule for rule in shown_rules(value) if f"{rule.kind} {rule.name}" == error.constraint)
        erased = {value.names.shown(name) for name in columns}
        raise violation(
            "without the erased values, rows break a rule of the table, and nothing was erased: erase "
            f"the whole rows, without columns=, or drop the rule first, drop_rules({error.constraint!r})",
            rule,
            error.key,
            {name: None for name in rule.columns if name in erased},
            error.rows,
        ) from error


def _missing(session: Session, value: Timeline, rows: pl.DataFrame, columns: Sequence[str]) -> tuple[FileGroup, ...]:
    """Return the file groups with values that no open erasure handles."""
    found = values(session, value, rows, columns) if rows.height else []
    under_way = steps.open_erasures(session)
    return tuple(
        one.group
        for one in found
        if one.shown or not any(one.group in e.groups and one.latest <= e.requested for e in under_way)
    )


def _with_values(view: Snapshot, rows: pl.DataFrame, columns: Sequence[str]) -> pa.Table:
    given = pl.any_horizontal(pl.col(name).is_not_null() for name in columns)
    among = pl.col(RECORD_KEY).is_in(rows[RECORD_KEY].unique().to_list())
    shown = Scan(view, None, among & given, meta=True).to_arrow()
    places = pl.DataFrame({name: pl.Series(pl.from_arrow(shown[name])) for name in (RECORD_KEY, PARTITION_PATH)})
    anywhere = rows.filter(pl.col(PARTITION_PATH).is_null())[RECORD_KEY]
    here = rows.drop_nulls(PARTITION_PATH).select(RECORD_KEY, PARTITION_PATH)
    meant = pl.col(RECORD_KEY).is_in(anywhere.implode()) | pl.struct(RECORD_KEY, PARTITION_PATH).is_in(
        here.to_struct().implode()
    )
    return shown.filter(places.select(meant.alias("meant"))["meant"].to_arrow())

"""Erase rows by key or condition from all files of a table.

    look      find the file groups with bytes of the rows, live or in history
    delete    one commit; readers no longer see the rows
    finish    `services.erasure`: fold, clean, prove

A second commit deletes rows that older writes added meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final, TypeVar

import polars as pl
import pyarrow as pa

from crdt_mor.api.data import Data, read_data
from crdt_mor.api.erasure_columns import KeysToErase, erase_values, require_erasable, values_to_erase
from crdt_mor.api.scan import Scan
from crdt_mor.api.statements import key_rows
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError, SnapshotExpiredError, WriterExpiredError
from crdt_mor.events.own_blocks import require_not_own
from crdt_mor.events.session import Session
from crdt_mor.log.deciding import Decision
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.model.config import TableConfig
from crdt_mor.model.handover import require_not_handed_over
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.keys import buckets
from crdt_mor.model.migration import require_not_moving
from crdt_mor.model.policies import milliseconds, plural
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import FileGroup
from crdt_mor.planners.erasure import Erasure
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services import erasure as steps
from crdt_mor.services.erasure_proof import files_of
from crdt_mor.services.erasure_traces import Traces, all_rows, traces
from crdt_mor.write.adopted_keys import require_placed_keys
from crdt_mor.write.log_files import BUCKET
from crdt_mor.write.named import known_columns, shown_config, shown_table
from crdt_mor.write.open_write import OpenWrite
from crdt_mor.write.refusals import require_own_groups, require_writable
from crdt_mor.write.statements import keyed

OPEN_READERS: Final = (
    "Processes keep rows that they have already read, and files that they hold open. A view opened earlier that reads "
    "a removed file gets SnapshotExpiredError. Copies outside of the table (exports, backups, following tables) are "
    "not touched."
)

_T = TypeVar("_T")
_TRIES: Final = 8


@dataclass(frozen=True, slots=True)
class Erased:
    """The result of a finished erasure: no file of the table contains a byte of the rows.

    Attributes:
        rows: number of deleted live rows.
        versions: versions of the delete commits; none if only history held the rows.
        groups: file groups without earlier history, as (partition path, file id).
        files, bytes: of the removed files; with `dry_run`, the file groups' files of now.
        retained_from: earlier views of these file groups raise `SnapshotExpiredError`.
        columns: erased columns, now null; none if whole rows were erased.
        open_readers: note about processes that ran meanwhile.
    """

    rows: int
    versions: tuple[int, ...]
    groups: tuple[FileGroup, ...] = field(repr=False)
    files: int
    bytes: int
    retained_from: InstantTime
    columns: tuple[str, ...] = ()
    open_readers: str = field(default=OPEN_READERS, repr=False)
    dry_run: bool = False

    def __str__(self) -> str:
        if not self.groups:
            what = "a value of these columns in such a row" if self.columns else "such a row"
            nothing = "there is nothing to erase" if self.dry_run else "erased nothing"
            return f"{nothing}: no file of the table contains {what}"
        what = f"{', '.join(self.columns)} of " if self.columns else ""
        if self.dry_run:
            return (
                f"would erase {what}{plural(self.rows, 'row')}: rewrite {plural(len(self.groups), 'file group')} of "
                f"{plural(self.files, 'file')}, {self.bytes} bytes, and drop their history"
            )
        return (
            f"erased {what}{self.rows} rows: removed {self.files} files, {self.bytes} bytes, and the history of "
            f"{len(self.groups)} file groups before {self.retained_from}. {self.open_readers}"
        )


def erase(
    session: Session,
    data: Data | None,
    keys: object,
    where: pl.Expr | str | None,
    columns: str | Sequence[str] | None,
    wait: timedelta,
    dry_run: bool,
) -> Erased:
    if sum(rows is not None for rows in (data, keys, where)) != 1:
        raise InvalidInputError("pass exactly one of data (a frame), keys=[...] and where=... to erase")
    wait_ms = milliseconds("wait", wait)
    require_writable(session)
    if not dry_run:
        session.adopt()
    tail = session.tail()
    require_placed_keys(session, tail)
    require_own_groups(tail)
    require_not_moving(tail.moving, "erase from")
    require_not_handed_over(tail.handed_over)
    require_not_own(session, tail, tail.pending)
    seen, schema = tail.names, TableSchema.from_json(tail.schema)
    shown = None
    if columns is not None:
        shown = require_erasable(shown_config(session.config, seen), seen.outward(schema), columns)
    keys_of = _keys_to_erase(session, data, keys, where)
    if dry_run:
        return _rehearsed(session, keys_of, shown, seen.stored(shown or [], schema))
    patience = steps.Patience(session, wait_ms)
    steps.remove_posts(session, patience)
    with steps.unfinished_by_the_store(session) as deleted:
        if shown is None:
            rows, versions = _erase_rows(session, keys_of, patience, deleted)
        else:
            names = seen.stored(shown, schema)
            nulled = _in_spite_of_others(partial(erase_values, session, keys_of, names, patience))
            rows, versions = (0, []) if nulled is None else (nulled[0], [nulled[1]])
            deleted.is_made = nulled is not None
        erasures = steps.open_erasures(session)
        deleted.is_made |= bool(erasures)
        removed = steps.finish(session, erasures, patience)
    named = tuple(shown or ())
    return Erased(rows, tuple(versions), removed.groups, removed.files, removed.bytes, removed.retained_from, named)


def _rehearsed(session: Session, keys_of: KeysToErase, shown: list[str] | None, columns: Sequence[str]) -> Erased:
    value = session.views.sealed()  # with Hudi's commits, which erase adopts first
    if shown is None:
        found = _remaining(session, keys_of, value, None)
        rows, groups = found.live, found.groups
    else:
        rows, groups = values_to_erase(session, value, keys_of(value), columns)
    steps.refuse_saved(session, groups)
    files = files_of(session, groups)
    size = sum(file.size for file in files)
    return Erased(rows, (), groups, len(files), size, value.clock, tuple(shown or ()), dry_run=True)


def _erase_rows(
    session: Session, keys_of: KeysToErase, patience: steps.Patience, deleted: Decision
) -> tuple[int, list[int]]:
    """Delete the rows, including rows of older writes. Return the live rows' number and the versions."""
    rows = 0
    versions: list[int] = []
    began: InstantTime | None = None
    for _ in range(2):  # the second delete erases rows that older writes have brought by their end
        requested, commit, older = _in_spite_of_others(partial(_delete, session, keys_of, began))
        if commit is not None:
            rows += commit.live
            versions.append(commit.version)
            deleted.is_made = True
        if began is None:
            began = requested
            if not older:
                break
            steps.await_writes(session, began, patience, "may still bring rows that are erased")
    return rows, versions


@dataclass(frozen=True, slots=True)
class _Deleted:
    version: int
    live: int


def _in_spite_of_others(delete: Callable[[], _T]) -> _T:
    """Call `delete` again if a clean or another erasure removed its files or its write."""
    for _ in range(_TRIES):
        with suppress(SnapshotExpiredError, WriterExpiredError):
            return delete()
    return delete()


def _delete(
    session: Session, keys_of: KeysToErase, began: InstantTime | None
) -> tuple[InstantTime, _Deleted | None, bool]:
    """Delete the live rows and note the erasure; None if other erasures handle everything.

    Also return the time from which rows are new, and True if older writes were pending.
    """
    tail = session.tail()
    before = _remaining(session, keys_of, tail, began)
    if not before.groups:
        return tail.clock, None, bool(tail.pending)
    steps.refuse_saved(session, before.groups)
    write = OpenWrite.begin(session, None, steps.ERASURE_INFO)
    requested = write.begun.requested
    try:
        missing = _remaining(session, keys_of, write.value, began)
        if missing.deletes.height:
            write.statements.delete_keyed(missing.deletes)
        steps.note(session, Erasure(requested, missing.groups, write.value.table_id))
    except BaseException:
        write.abandon()
        raise
    committed = write.commit(operation="DELETE")
    older = any(pending.requested < requested for pending in write.value.pending)
    return requested, _Deleted(committed.completion.version, missing.live), older


@dataclass(frozen=True, slots=True)
class _Remaining:
    deletes: pl.DataFrame
    live: int
    groups: tuple[FileGroup, ...]


def _remaining(session: Session, keys_of: KeysToErase, value: Timeline, began: InstantTime | None) -> _Remaining:
    rows = keys_of(value)
    found = traces(session, value, rows, began) if rows.height else []
    under_way = steps.open_erasures(session)

    def is_handled(one: Traces) -> bool:
        deleted = not one.live.height and not one.buried.height
        return deleted and any(one.group in e.groups and one.latest <= e.requested for e in under_way)

    found = [one for one in found if not is_handled(one)]
    deletes = all_rows([*(one.live for one in found), *(one.buried for one in found)], rows)
    return _Remaining(deletes, sum(one.live.height for one in found), tuple(sorted(one.group for one in found)))


# --- the rows to erase ------------------------------------------------------------------------------------------------


def _keys_to_erase(session: Session, data: Data | None, keys: object, where: pl.Expr | str | None) -> KeysToErase:
    config = session.config
    needed = list(config.key.identity)
    if where is not None:

        def matching(value: Timeline) -> pl.DataFrame:
            snapshot = Snapshot.seal(session, value).with_expired()
            shown = [snapshot.names.shown(name) for name in needed]
            rows = Scan(snapshot, shown, where, meta=False).to_arrow()
            return keyed(config, snapshot.schema.normalise(rows.rename_columns(needed)))

        return matching
    tail = session.tail()
    schema = TableSchema.from_json(tail.schema)
    if data is not None:
        shown = tail.names.outward(schema)
        given = read_data(data, lambda: shown.declared)
        columns = [tail.names.shown(name) for name in needed]
        absent = [name for name in columns if name not in given.column_names]
        if absent:
            shown.require_not_renamed(given.column_names)
            raise InvalidInputError(f"an erasure by a frame needs the columns {columns}. missing={absent}")
        rows = keyed(config, schema.normalise(known_columns(given, tail.names, schema).select(needed)))
    else:
        called, shown = shown_table(config, tail)
        named = known_columns(key_rows(keys, called.key.fields, shown.declared), tail.names, schema)
        rows = _in_any_partition(config, schema.normalise(named))
    rows = rows.unique()
    return lambda _: rows


def _in_any_partition(config: TableConfig, rows: pa.Table) -> pl.DataFrame:
    if set(config.key.partition_fields) <= set(config.key.fields):
        return keyed(config, rows)
    assert config.buckets is not None
    texts = config.key.record_keys(rows)
    return pl.DataFrame(
        {
            RECORD_KEY: pl.from_arrow(texts),
            PARTITION_PATH: pl.Series([None] * len(texts), dtype=pl.String),
            BUCKET: buckets(texts, config.key, config.buckets),
        }
    )

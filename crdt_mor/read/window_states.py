"""Read the states of file groups at both ends of a window of changes.

    logs of the commits ─► keys ─┬► the file slices at the start, merged: the rows before
                                 └► the file slices at the end, merged: the rows after

Only the keys of the window's commits are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import CheckpointExpiredError, SnapshotExpiredError
from crdt_mor.events.session import Session
from crdt_mor.laws.merging import Merging, merging_of
from crdt_mor.merge import kernel
from crdt_mor.merge.blocks import COMMIT_TIME, RECORD_KEY, DataBlock, DeleteBlock, Slice, distinct, is_partial
from crdt_mor.merge.contributions import LINE_KEY
from crdt_mor.merge.expiry import alive
from crdt_mor.merge.polars_types import stored_array
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.slices import FileSlice
from crdt_mor.read.damage import naming_damage
from crdt_mor.read.expressions import conjunction
from crdt_mor.read.fetching import plan
from crdt_mor.read.images import Versions
from crdt_mor.read.open_slice import open_slice

Scope = tuple[str, str | None]
"""A file group, or all of a partition (file id None)."""


@dataclass(frozen=True)
class TouchedGroups:
    """File groups that a window's commits touched, with their slices at both ends.

    Either a single file group, or all of a partition in which some were replaced (no `file_id`): no other group
    contains their keys. `written` is None if the commits rewrote rows.
    """

    partition: str
    file_id: str | None
    before: Sequence[FileSlice]
    after: Sequence[FileSlice]
    written: FileSlice | None = None

    @property
    def scope(self) -> Scope:
        return self.partition, self.file_id

    @property
    def bytes(self) -> int:
        files = (file for slice_ in (*self.before, *self.after) for file in slice_.files)
        return sum({file.path: file.size for file in files}.values())

    def weight(self, raw: bool) -> int:
        written = (self.written,) if self.written is not None else self.after
        return sum(slice_.weight for slice_ in (written if raw else (*written, *self.before, *self.after)))


@dataclass(frozen=True)
class States:
    """Reader of the states of touched file groups.

    Attributes:
        forward: True if the window's end shows its commits, False if its start does.
        before_at, after_at: the states' times for expiries; None reads all stored rows.
    """

    session: Session
    schema: str
    forward: bool
    before_at: InstantTime | None = None
    after_at: InstantTime | None = None

    @property
    def merging(self) -> Merging:
        return merging_of(self.session.config, self.schema)

    @property
    def key(self) -> str:
        return self.merging.columns.merge_key

    def keys(self, groups: TouchedGroups) -> pl.Series | None:
        if groups.written is None:
            return None
        blocks = self._blocks(groups.written)
        with naming_damage(self.session.store, groups.written):
            return kernel.touched(blocks, self.merging.columns)

    def written(self, logs: FileSlice, select: Sequence[str]) -> tuple[pl.DataFrame, pl.Series]:
        blocks = self._blocks(logs)
        with naming_damage(self.session.store, logs):
            return kernel.written(blocks, self.merging.columns, select)

    def versions(self, groups: TouchedGroups, number: int, select: Sequence[str]) -> Versions | None:
        """Return all row versions that the commits wrote to file group `number`, or None if any is partial."""
        assert groups.written is not None
        blocks = self._blocks(groups.written)
        if any(is_partial(block) for block in blocks):
            return None
        with naming_damage(self.session.store, groups.written):
            rows, lines = kernel.versions(blocks, self.merging.columns, distinct([self.key], select))
        before = self.before(groups, lines[LINE_KEY].unique().alias(self.key), select)
        return Versions.of(before.select(rows.columns), rows, lines, number, self.key)

    def before(self, groups: TouchedGroups, keys: pl.Series | None, select: Sequence[str]) -> pl.DataFrame:
        """Return the state at the start of some keys, or of all (None)."""
        with expired_start():
            return self.merged(groups.before, keys, select, at=self.before_at)

    def after(self, groups: TouchedGroups, keys: pl.Series | None, select: Sequence[str]) -> pl.DataFrame:
        """Return the state at the end, with the columns of `before`.

        If the latest commit wins, rows requested before the window's commits have lost and are not read.
        """
        since = None
        if groups.written is not None and self.merging.rule.kind == "latest" and self.forward:
            since = min(log.name.instant for log in groups.written.logs)
        return self.merged(groups.after, keys, select, since, at=self.after_at)

    def merged(
        self,
        slices: Sequence[FileSlice],
        keys: pl.Series | None,
        select: Sequence[str],
        since: InstantTime | None = None,
        *,
        at: InstantTime | None = None,
    ) -> pl.DataFrame:
        merging, expiry = self.merging, self.session.config.merge.expiry
        columns = distinct([self.key, COMMIT_TIME], select)
        predicate = None if keys is None else pl.col(self.key).is_in(keys.implode())
        only_keys = None if keys is None or predicate is None else kernel.KeyCondition(self.key, predicate, len(keys))
        if expiry is not None and at is not None:
            predicate = conjunction([*([] if predicate is None else [predicate]), alive(expiry, at)])
        frames = [pl.DataFrame(schema={name: merging.columns.schema[name] for name in columns})]
        for slice_ in slices:
            blocks = self._open(slice_, since)
            with naming_damage(self.session.store, slice_):
                blocks = plan(blocks, merging, columns, predicate).fetched()
                frames += kernel.merge(
                    blocks, merging.rule, merging.columns, select=columns, predicate=predicate, only_keys=only_keys
                )
        return pl.concat(frames)

    def deleted_rows(self, keys: pl.Series, groups: TouchedGroups, select: Sequence[str]) -> pl.DataFrame:
        merging, spec = self.merging, self.session.config.key
        stored = TableSchema.from_json(self.schema).stored
        known: dict[str, pl.Series | object] = dict(spec.partition_values(groups.partition, stored))
        if self.key == RECORD_KEY:
            key_values = spec.key_values(stored_array(keys, pa.string()), stored)
            known |= {name: pl.Series(pl.from_arrow(values)) for name, values in key_values.items()}
        known[self.key] = keys
        unknown = [name for name in spec.partition_fields if name in select and name not in known]
        if unknown and len(keys):
            known |= self._last_values(keys, groups, unknown)
        types = merging.columns.schema
        columns = [
            value.cast(types[name]).alias(name)
            if isinstance(value := known.get(name), pl.Series)
            else pl.Series(name, [value], types[name]).new_from_index(0, len(keys))
            for name in select
        ]
        return pl.DataFrame(columns)

    def identities(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows with nulls outside key and partitions."""
        spec = self.session.config.key
        named = {self.key, *spec.fields, *spec.partition_fields}
        return rows.with_columns(
            pl.lit(None, kind).alias(name) for name, kind in rows.schema.items() if name not in named
        )

    def _last_values(self, keys: pl.Series, groups: TouchedGroups, names: Sequence[str]) -> dict[str, pl.Series]:
        """Return the partition columns of deleted rows, from their last state, if the path lacks the values."""
        states = [replace(self, before_at=None).before(groups, keys, names).select(self.key, *names)]
        if groups.written is not None:
            states.append(self.written(groups.written, [self.key, *names])[0])
        rows = pl.concat(states).unique(self.key, keep="first")
        values = keys.to_frame(self.key).join(rows, on=self.key, how="left", maintain_order="left")
        return {name: values[name] for name in names}

    def _blocks(self, logs: FileSlice) -> Sequence[DataBlock | DeleteBlock]:
        with expired_start():
            return open_slice(self.session.store, logs, self.session.config).blocks

    def _open(self, slice_: FileSlice, since: InstantTime | None) -> Slice:
        """Open a slice without rows requested before `since`, unless later partial updates need them."""
        store, config = self.session.store, self.session.config
        if since is None:
            return open_slice(store, slice_, config)
        late = replace(slice_, logs=tuple(log for log in slice_.logs if log.name.instant >= since))
        blocks = open_slice(store, late, config)
        if any(is_partial(block) for block in blocks.blocks):
            return open_slice(store, slice_, config)
        if blocks.base_latest is not None and blocks.base_latest < since:
            return replace(blocks, base=None, base_latest=None)
        return blocks


@contextmanager
def expired_start() -> Iterator[None]:
    """Raise `CheckpointExpiredError` for files of the window's start missing in the block."""
    try:
        yield
    except SnapshotExpiredError as error:
        raise CheckpointExpiredError(
            f"files after this checkpoint are gone: scan the table and continue from the scan's checkpoint. {error}"
        ) from error

"""The rows and deletes that a migration writes to the new table, with its keys, partitions and merge.

    copy      file slices of the old table at a moment ─► its rows, and its winning ordered tombstones
    window    file groups touched by commits ─► for each written key: a delete of its versions in the new table, unless
              the new version replaces them anyway; then its row or tombstone at the window's end

A delete removes every earlier contribution to a key, so the key gets its old state under any new merge. If both tables
merge alike, payload states are copied unchanged; otherwise visible values are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl
import pyarrow as pa

from crdt_mor.columns.names import Names
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.laws.merging import Merging, merging_of
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY, distinct
from crdt_mor.merge.contributions import ORDER
from crdt_mor.merge.kernel import to_arrow
from crdt_mor.merge.polars_types import stored_array
from crdt_mor.merge.tombstones import tombstones
from crdt_mor.model.config import TableConfig
from crdt_mor.model.cut import Cut
from crdt_mor.model.keys import KeySpec, buckets
from crdt_mor.model.partition_functions import sources
from crdt_mor.model.slices import FileSlice, Slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.damage import naming_damage
from crdt_mor.read.open_slice import open_slice
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.read.window_states import States, TouchedGroups, expired_start
from crdt_mor.write.log_files import BUCKET
from crdt_mor.write.statements import RowsStatement, Statements, keyed

_KEYS = [PARTITION_PATH, RECORD_KEY]
_KEYED = {RECORD_KEY: pl.String(), PARTITION_PATH: pl.String(), BUCKET: pl.Int32()}


@dataclass(frozen=True, slots=True)
class Cargo:
    """The contents of a migration's commit, with the keys of the new table, as `keyed` makes them."""

    deletes: pl.DataFrame
    rows: pl.DataFrame
    tombstones: pl.DataFrame

    @property
    def is_empty(self) -> bool:
        return not (self.deletes.height or self.rows.height or self.tombstones.height)


def keeps_partitions_apart(source: KeySpec, target: KeySpec) -> bool:
    """Return True if two rows of the old table can never become one row of the new table.

    Rows of two partitions may share a key, unless the key names the partition.
    """
    named = {*target.fields, *target.partition_by}
    return all(level in named or sources([level])[0] in named for level in source.partition_by)


@dataclass(frozen=True)
class Loader:
    source: Session
    value: Timeline
    target: TableConfig

    @cached_property
    def merging(self) -> Merging:
        return merging_of(self.source.config, self.value.schema)

    @cached_property
    def schema(self) -> TableSchema:
        return TableSchema.from_json(self.value.schema)

    @property
    def copies_states(self) -> bool:
        return self.source.config.merge == self.target.merge

    @property
    def copies_tombstones(self) -> bool:
        return self.copies_states and self.merging.rule.kind == "ordering"

    @cached_property
    def _columns(self) -> list[str]:
        return list(self.merging.columns.stored)

    @cached_property
    def _identity(self) -> list[str]:
        key, ordering = self.target.key, self.target.merge.ordering
        return distinct(key.identity, [ordering] if ordering else [])

    # --- a copy -----------------------------------------------------------------------------------------------------

    def copied(self, slices: Sequence[FileSlice], cut: Cut, share: tuple[int, int]) -> Cargo:
        """Return the visible rows of file slices. share: (number, count) of the keys."""
        number, count = share

        def ours(frame: pl.DataFrame) -> pl.DataFrame:
            if count == 1:
                return frame
            of = buckets(stored_array(frame[RECORD_KEY], pa.string()), self.target.key, count)
            return frame.filter(pl.Series(of == number))

        snapshot = Snapshot(self.source, self.value, cut, Slices(slices), part=True, hides_expired=False)
        rows = list(snapshot.frames(self._columns, None, finish=lambda frame: ours(self._keyed_rows(frame))))
        dead = [ours(self._located(self._tombstones(slice_), slice_.partition)) for slice_ in slices]
        return Cargo(self._none_keyed, self._all_rows(rows), self._all_tombstones(dead))

    # --- a window ---------------------------------------------------------------------------------------------------

    def changed(self, states: States, touched: Sequence[TouchedGroups]) -> Cargo:
        deletes, rows, dead = [], [], []
        for groups in touched:
            keys = states.keys(groups)
            before = self._versions(states.before(groups, keys, self._identity))
            after = self._keyed_rows(states.after(groups, keys, self._columns))
            gone = self._tombstones_of(groups.before, keys, groups.partition, states.key, before=True)
            dies = self._tombstones_of(groups.after, keys, groups.partition, states.key)
            old = pl.concat([before, *gone]) if gone else before
            new = pl.concat([self._versions_of(after), *dies]) if dies else self._versions_of(after)
            deletes.append(self._not_replaced(old, new))
            rows.append(after)
            dead += dies
        return Cargo(pl.concat([self._none_keyed, *deletes]), self._all_rows(rows), self._all_tombstones(dead))

    def _not_replaced(self, old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
        """Return the keys of old versions that the new versions do not replace by themselves."""
        match self.target.merge.kind:
            case "latest" if not self.target.merge.columns:
                left = old.join(new, on=_KEYS, how="anti")
            case "ordering":
                both = old.join(new.select(*_KEYS, pl.col(ORDER).alias("then")), on=_KEYS, how="left")
                left = both.filter(~(pl.col("then") >= pl.col(ORDER)).fill_null(False))
            case _:
                left = old
        return left.select(list(_KEYED))

    def _tombstones_of(
        self, slices: Sequence[FileSlice], keys: pl.Series | None, partition: str, key: str, *, before: bool = False
    ) -> list[pl.DataFrame]:
        """Return the winning tombstones of the keys (None: all), as one frame or none."""
        if not self.copies_tombstones:
            return []
        found = []
        for slice_ in slices:
            if before:
                with expired_start():
                    dead = self._tombstones(slice_)
            else:
                dead = self._tombstones(slice_)
            if keys is not None:
                texts = keys if key == RECORD_KEY else keys.cast(pl.String)
                dead = dead.filter(pl.col(RECORD_KEY).is_in(texts.implode()))
            found.append(self._located(dead, partition))
        return [pl.concat(found)] if found else []

    # --- in the new table's terms -----------------------------------------------------------------------------------

    def _keyed_rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.select(self._columns).with_columns(self._keys_of(frame))

    def _keys_of(self, frame: pl.DataFrame) -> pl.DataFrame:
        needed = self.target.key.identity
        return keyed(self.target, to_arrow(frame.select(needed)))

    def _versions(self, frame: pl.DataFrame) -> pl.DataFrame:
        return self._versions_of(frame.with_columns(self._keys_of(frame)))

    def _versions_of(self, rows: pl.DataFrame) -> pl.DataFrame:
        ordering = self.target.merge.ordering
        order = pl.lit(None, pl.Null) if ordering is None else pl.col(ordering)
        return rows.select(*_KEYED, order.alias(ORDER))

    def _tombstones(self, slice_: FileSlice) -> pl.DataFrame:
        if not (self.copies_tombstones and slice_.logs):
            return pl.DataFrame(schema={RECORD_KEY: pl.String(), ORDER: self._ordering_type})
        opened = open_slice(self.source.store, slice_, self.source.config)
        with naming_damage(self.source.store, slice_):
            if opened.base is not None:
                opened = replace(opened, base=opened.base.at_hand())
            return tombstones(opened, self.merging.rule, self.merging.columns)

    def _located(self, dead: pl.DataFrame, partition: str) -> pl.DataFrame:
        if not dead.height:
            return self._none_dead
        source, target = self.source.config.key, self.target.key
        stored = self.schema.stored
        columns = source.key_values(stored_array(dead[RECORD_KEY], pa.string()), stored)
        known = source.partition_values(partition, stored)
        for name in target.partition_fields:
            if name not in columns and name in known:
                columns[name] = pa.array([known[name]] * dead.height, stored.field(name).type)
        unchanged = _folders(source) == _folders(target)
        missing = [name for name in target.partition_fields if name not in columns]
        if not keeps_partitions_apart(source, target) or (missing and not unchanged):
            raise InvalidInputError(
                "a delete with an ordering value blocks older rows of its key in its partition, and the new table's "
                "partition for it is unknown: delete such keys with delete(..., plain=True), keep the partitioning, or "
                "give the new table another merge. "
                f"key={dead[RECORD_KEY][0]!r} partition={partition!r}"
            )
        if unchanged:
            table = pa.table({name: columns[name] for name in target.fields})
            texts = target.record_keys(table)
            assert self.target.buckets is not None
            keys = pl.DataFrame({
                RECORD_KEY: pl.from_arrow(texts),
                PARTITION_PATH: pl.repeat(partition, dead.height, dtype=pl.String, eager=True),
                BUCKET: buckets(texts, target, self.target.buckets),
            })  # fmt: skip
        else:
            keys = keyed(self.target, pa.table(columns))
        return keys.with_columns(dead[ORDER])

    @property
    def _ordering_type(self) -> pl.DataType:
        ordering = self.target.merge.ordering
        return self.merging.columns.stored[ordering] if ordering else pl.Null()

    @property
    def _none_keyed(self) -> pl.DataFrame:
        return pl.DataFrame(schema=_KEYED)

    @property
    def _none_dead(self) -> pl.DataFrame:
        return pl.DataFrame(schema={**_KEYED, ORDER: self._ordering_type})

    def _all_rows(self, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
        types = self.merging.columns.stored
        none = pl.DataFrame(schema={**{name: types[name] for name in self._columns}, **_KEYED})
        return pl.concat([none, *(frame.select(none.columns) for frame in frames)])

    def _all_tombstones(self, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat([self._none_dead, *frames])

    # --- into a write -----------------------------------------------------------------------------------------------

    def fill(self, statements: Statements, cargo: Cargo) -> None:
        if cargo.deletes.height:
            statements.delete_keyed(cargo.deletes)
        if cargo.rows.height:
            if self.copies_states:
                statements.put_states(self._with_states(cargo.rows))
            else:
                there = [name for name in self.schema.declared.names if name in statements.schema]
                visible = to_arrow(cargo.rows.select(there))
                statements.add(RowsStatement("UPSERT", self.schema.restore(visible), are_kept=True))
        if cargo.tombstones.height:
            statements.delete_keyed(cargo.tombstones)

    def _with_states(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Replace visible values by payload states, because later writes in the new table see the states."""
        for member in self.merging.rule.members:
            if member.hidden is not None:
                rows = rows.with_columns(member.restored(rows).alias(member.hidden)).drop(member.columns)
        return rows


def _folders(key: KeySpec) -> tuple[object, ...]:
    return key.partition_by, key.partition_columns, key.hive_style


def is_moved(stored: str, names: Names, target: TableConfig) -> bool:
    return stored not in names.hidden or any(stored in member.columns for member in target.merge.columns)


def refuse_twins(loader: Loader, cut: Cut) -> None:
    source, value, target = loader.source, loader.value, loader.target
    needed = target.key.identity
    snapshot = Snapshot.seal(source, value, cut).with_expired()
    frames = snapshot.frames(needed, None, finish=lambda f: keyed(target, to_arrow(f)))
    keys = pl.concat([pl.DataFrame(schema=_KEYED), *(frame.select(list(_KEYED)) for frame in frames)])
    twins = keys.filter(pl.struct(_KEYS).is_duplicated())
    if twins.height:
        key, partition = twins[RECORD_KEY][0], twins[PARTITION_PATH][0]
        raise InvalidInputError(
            "several partitions with the same key would become one partition with two rows of the key: "
            "delete one of the rows, or keep these partitions apart with partition_by=[...]. "
            f"key={key!r} partition_of_the_new_table={partition!r} keys_like_it={twins.height}"
        )

"""What a migration writes to the new table: rows of the old one, in terms of the new one's key, partitions and merge.

    copy      file slices of the old table at a moment ─► its rows, and the ordered tombstones that win
    window    file groups that commits touched ─► for each key that they wrote: a delete of what the new table has of
              it, unless what comes replaces that by itself; then its row, or its tombstone, as at the window's end

A delete removes every earlier contribution to a key. So the delete and the row of one commit put the key into the state
that the old table's merge gave it, whatever the merge of the new table is. Where both tables merge alike, the states of
payloads are copied as they are. Elsewhere readers' values are written, as a user would write them.
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
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.damage import naming_damage
from crdt_mor.read.open_slice import open_slice
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.read.window_states import States, TouchedGroups, expired_start
from crdt_mor.write.log_files import BUCKET
from crdt_mor.write.statements import Statements, keyed

_KEYS = [PARTITION_PATH, RECORD_KEY]
_KEYED = {RECORD_KEY: pl.String(), PARTITION_PATH: pl.String(), BUCKET: pl.Int32()}


@dataclass(frozen=True, slots=True)
class Cargo:
    """What one commit of a migration writes. All frames have the keys of the new table, as `keyed` makes them.

    deletes: keys alone. rows: beside the keys all columns that the old table stores. tombstones: with `ordering`.
    """

    deletes: pl.DataFrame
    rows: pl.DataFrame
    tombstones: pl.DataFrame

    @property
    def is_empty(self) -> bool:
        return not (self.deletes.height or self.rows.height or self.tombstones.height)


def keeps_partitions_apart(source: KeySpec, target: KeySpec) -> bool:
    """Whether two rows of the old table can never become one row of the new one.

    A key is unique within its partition: rows of two partitions may have one key, unless the key names the partition.
    """
    return set(source.partition_fields) <= {*target.fields, *target.partition_fields}


@dataclass(frozen=True)
class Loader:
    """Makes the cargo of a migration.

    source: the session of the old table. value: a value of its timeline. target: the settings of the new table.
    """

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
        """Whether both tables merge alike, so that states and tombstones mean the same in both."""
        return self.source.config.merge == self.target.merge

    @property
    def copies_tombstones(self) -> bool:
        return self.copies_states and self.merging.rule.kind == "ordering"

    @cached_property
    def _columns(self) -> list[str]:
        """All columns that the old table stores, states of payloads among them."""
        return list(self.merging.columns.stored)

    @cached_property
    def _identity(self) -> list[str]:
        """The columns that say which row of the new table it is, and what orders its versions there."""
        key, ordering = self.target.key, self.target.merge.ordering
        return distinct(key.fields, key.partition_fields, [ordering] if ordering else [])

    # --- a copy -----------------------------------------------------------------------------------------------------

    def copied(self, slices: Sequence[FileSlice], cut: Cut, share: tuple[int, int]) -> Cargo:
        """What file slices show. share: (number, count), of as many shares of the keys only that one."""
        number, count = share

        def ours(frame: pl.DataFrame) -> pl.DataFrame:
            if count == 1:
                return frame
            of = buckets(stored_array(frame[RECORD_KEY], pa.string()), self.target.key, count)
            return frame.filter(pl.Series(of == number))

        snapshot = Snapshot(self.source, self.value, cut, tuple(slices), part=True)
        rows = list(snapshot.frames(self._columns, None, finish=lambda frame: ours(self._keyed_rows(frame))))
        dead = [ours(self._located(self._tombstones(slice_), slice_.partition)) for slice_ in slices]
        return Cargo(self._none_keyed, self._all_rows(rows), self._all_tombstones(dead))

    # --- a window ---------------------------------------------------------------------------------------------------

    def changed(self, states: States, touched: Sequence[TouchedGroups]) -> Cargo:
        """What commits changed in file groups that they touched."""
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
        """The keys of those versions in the new table that do not give way by themselves to what comes."""
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
        """The winning tombstones of some keys, or of all, as the new table's versions: a list of one frame, or none."""
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
        """Rows of the old table with the keys of the new one."""
        return frame.select(self._columns).with_columns(self._keys_of(frame))

    def _keys_of(self, frame: pl.DataFrame) -> pl.DataFrame:
        needed = distinct(self.target.key.fields, self.target.key.partition_fields)
        return keyed(self.target, to_arrow(frame.select(needed)))

    def _versions(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Rows as versions of the new table: their keys, and what orders them there."""
        return self._versions_of(frame.with_columns(self._keys_of(frame)))

    def _versions_of(self, rows: pl.DataFrame) -> pl.DataFrame:
        ordering = self.target.merge.ordering
        order = pl.lit(None, pl.Null) if ordering is None else pl.col(ordering)
        return rows.select(*_KEYED, order.alias(ORDER))

    def _tombstones(self, slice_: FileSlice) -> pl.DataFrame:
        """The winning tombstones of a file slice, by the record keys of the old table."""
        if not (self.copies_tombstones and slice_.logs):
            return pl.DataFrame(schema={RECORD_KEY: pl.String(), ORDER: self._ordering_type})
        opened = open_slice(self.source.store, slice_, self.source.config)
        with naming_damage(self.source.store, slice_):
            if opened.base is not None:
                opened = replace(opened, base=opened.base.at_hand())
            return tombstones(opened, self.merging.rule, self.merging.columns)

    def _located(self, dead: pl.DataFrame, partition: str) -> pl.DataFrame:
        """Tombstones of a partition of the old table, with the keys of the new one."""
        if not dead.height:
            return self._none_dead
        source, target = self.source.config.key, self.target.key
        stored = self.schema.stored
        columns = source.key_values(stored_array(dead[RECORD_KEY], pa.string()), stored)
        known = source.partition_values(partition, stored)
        for name in target.partition_fields:
            if name not in columns and name in known:
                columns[name] = pa.array([known[name]] * dead.height, stored.field(name).type)
        unchanged = (source.partition_fields, source.hive_style) == (target.partition_fields, target.hive_style)
        missing = [name for name in target.partition_fields if name not in columns]
        if not keeps_partitions_apart(source, target) or (missing and not unchanged):
            raise InvalidInputError(
                "a key was deleted with an ordering value, which keeps blocking older versions of it in its partition, "
                "and it cannot be told which partition of the new table that is: delete such keys plainly first, "
                "delete(..., plain=True), or keep the partitioning, or give the new table another merge. "
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
        """Make cargo the statements of a write to the new table; the deletes come before the rows."""
        if cargo.deletes.height:
            statements.delete_keyed(cargo.deletes)
        if cargo.rows.height:
            if self.copies_states:
                statements.put_states(self._with_states(cargo.rows))
            else:
                there = statements.schema.declared.names
                visible = to_arrow(cargo.rows.select([n for n in self.schema.declared.names if n in there]))
                statements.upsert(self.schema.restore(visible), "UPSERT", "strict", are_kept=True)
        if cargo.tombstones.height:
            statements.delete_ordered(cargo.tombstones)

    def _with_states(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows with the states of payloads in place of their visible values.

        A compaction keeps no state where one can be made of the visible value, as every later write has seen it. So it
        is in the new table, which later writes go to.
        """
        for member in self.merging.rule.members:
            if member.hidden is not None:
                rows = rows.with_columns(member.restored(rows).alias(member.hidden)).drop(member.columns)
        return rows


def is_moved(stored: str, names: Names, target: TableConfig) -> bool:
    """Whether a column comes along to a new table: people see it, or a payload there merges it."""
    return stored not in names.hidden or any(stored in member.columns for member in target.merge.columns)


def refuse_twins(loader: Loader, cut: Cut) -> None:
    """Raise `InvalidInputError`, naming a key, where two rows of the old table would become one row of the new one."""
    source, value, target = loader.source, loader.value, loader.target
    needed = distinct(target.key.fields, target.key.partition_fields)
    frames = Snapshot.seal(source, value, cut).frames(needed, None, finish=lambda f: keyed(target, to_arrow(f)))
    keys = pl.concat([pl.DataFrame(schema=_KEYED), *(frame.select(list(_KEYED)) for frame in frames)])
    twins = keys.filter(pl.struct(_KEYS).is_duplicated())
    if twins.height:
        key, partition = twins[RECORD_KEY][0], twins[PARTITION_PATH][0]
        raise InvalidInputError(
            "a key is unique within its partition, and this one is in several partitions of this table that would "
            "be one in the new table, so that it would live twice: delete one of the rows, or keep these partitions "
            "apart, partition_by=[...]. "
            f"key={key!r} partition_of_the_new_table={partition!r} keys_like_it={twins.height}"
        )

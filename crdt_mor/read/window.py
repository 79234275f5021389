"""From two cuts of a table's commits to what changed between them.

    commits that one cut shows and the other does not ─► the keys that they wrote ─► their merged state at either cut

Which keys changed is what the commits' own log files say, so that a small commit costs little in a large table. Where a
commit rewrote base files or replaced file groups, as Hudi's copy-on-write and insert_overwrite do, its files say too
little, and the two states are compared instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl
import pyarrow as pa
from polars.datatypes import DataTypeClass

from crdt_mor.errors import CheckpointExpiredError, SnapshotExpiredError, UnsupportedFeatureError
from crdt_mor.laws.merging import Merging, merging_of
from crdt_mor.merge import kernel
from crdt_mor.merge.blocks import COMMIT_TIME, RECORD_KEY, DataBlock, DeleteBlock, Slice, distinct, is_partial
from crdt_mor.merge.polars_types import stored_array
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import EPOCH, InstantTime, to_datetime
from crdt_mor.model.schema import TableSchema
from crdt_mor.model.slices import FileSlice, fold_slices, shared_out
from crdt_mor.model.timeline import Completion, DataFile, FileGroup, Timeline
from crdt_mor.read.blocks import open_slice
from crdt_mor.read.damage import naming_damage
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.threads import in_threads
from crdt_mor.timeline.session import Session

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
"""Delta's names."""

UPSERT, DELETE, INSERT, PREIMAGE, POSTIMAGE = "upsert", "delete", "insert", "update_preimage", "update_postimage"

_REORGANISE = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER", "INDEX"})
"""Operations that move rows about and change none."""

_AFTER = "_crdt_after"

Reach = tuple[str, str | None]
"""A file group, or (partition, None): all of a partition."""


@dataclass(frozen=True)
class Unit:
    """File groups whose keys live in no others: one, or all of a partition in which some were replaced (no file id).

    `written`: the logs that the window's commits wrote to one; None where they rewrote rows instead.
    """

    partition: str
    file_id: str | None
    before: tuple[FileSlice, ...]
    after: tuple[FileSlice, ...]
    written: FileSlice | None = None

    @property
    def reach(self) -> Reach:
        return self.partition, self.file_id

    def weight(self, raw: bool) -> int:
        """What reading it costs, in bytes: of raw rows what was written, else the states beside it."""
        written = (self.written,) if self.written is not None else self.after
        return sum(found.weight for found in (written if raw else (*written, *self.before, *self.after)))


@dataclass(frozen=True)
class Window:
    """What happened between two cuts: `between` are the completions that one of them shows and the other does not.

    history: those that the file slices at both cuts, and between them, consist of; None: to be looked up in the value.
    """

    session: Session
    value: Timeline
    start: Cut
    end: Cut
    between: Sequence[Completion]
    history: Sequence[Completion] | None = None

    @classmethod
    def seal(cls, session: Session, value: Timeline, start: Cut, end: Cut) -> Window:
        """The window between two cuts of `value`."""
        first, last = sorted((start.time, end.time))
        # By completion, a segment says whether it has anything between; by request, only that it may.
        closed = end.by == "completed"
        found = session.completions(value, lambda s: s.last > first and not (closed and s.first > last))
        return cls(session, value, start, end, tuple(c for c in found if start.shows(c) != end.shows(c)))

    @cached_property
    def commits(self) -> list[Completion]:
        """Those that wrote something, in the order of the cuts."""
        found = [c for c in self.between if c.operation not in _REORGANISE and (c.files or c.replaced)]
        return sorted(found, key=lambda c: c.completed if self.end.by == "completed" else c.requested)

    # --- less of it -------------------------------------------------------------------------------------------------

    def until(self, end: Cut) -> Window:
        """This window, ended earlier."""
        between = tuple(c for c in self.between if self.start.shows(c) != end.shows(c))
        return replace(self, end=end, between=between)

    def parts(self, mode: str, size: int) -> list[Window]:
        """The window cut by file groups, for processes that know nothing else of the table.

        mode: the way in which they will be seen, which decides what has to be read.
        """
        if mode == "merged" and self._whole:
            history = self._completions(self.end)
            weighed: list[tuple[Reach, int]] = [(found.group, found.weight) for found in fold_slices(history)]
        else:
            history = self._completions(self.start, self.end)
            weighed = [(unit.reach, unit.weight(raw=mode == "raw")) for unit in self._units()]
        bare = replace(self, value=self.value.bare)
        cut = [frozenset(found) for found in shared_out(weighed, size)]
        return [replace(bare, between=_within(self.between, to), history=_within(history, to)) for to in cut]

    @property
    def _whole(self) -> bool:
        """Whether it begins with the empty table, so that what is merged is a snapshot."""
        return self.start.time == EPOCH

    # --- the ways to see it -----------------------------------------------------------------------------------------

    def merged(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Each changed key once, as it is at the end; stored types."""
        if self._whole:
            slices = tuple(fold_slices(self._completions(self.end)))
            for frame in Snapshot(self.session, self.value, self.end, slices).frames(select, None):
                yield _typed(frame, UPSERT)
            return

        def changed(unit: Unit) -> list[pl.DataFrame]:
            keys = self._keys(unit)
            after = self._after(unit, keys, select)
            if keys is None:
                before = self._before(unit, None, select)
                kept = after.join(before, on=[self._key, COMMIT_TIME], how="anti")
                gone = before.join(after, on=self._key, how="anti")[self._key]
            else:
                kept, gone = after, keys.filter(~keys.is_in(after[self._key].implode()))
            return [_typed(kept.select(select), UPSERT), _typed(self._buried(gone, unit, select), DELETE)]

        for frames in in_threads(changed, self._units()):
            yield from frames

    def difference(
        self, select: Sequence[str], known: dict[FileGroup, pl.DataFrame] | None = None
    ) -> Iterator[pl.DataFrame]:
        """The rows in which the two ends differ, as images.

        known: by file group, the rows at the start of all keys that will be asked for; moved on to the end.
        """

        def compared(unit: Unit) -> list[pl.DataFrame]:
            keys = self._keys(unit)
            after = self._after(unit, keys, select)
            group = unit.written and unit.written.group
            if keys is None or group is None or known is None or group not in known:
                return _images(self._before(unit, keys, select), after, self._key, select)
            touched = known[group][self._key].is_in(keys.implode())
            before, others = known[group].filter(touched), known[group].filter(~touched)
            known[group] = pl.concat([others, after])
            return _images(before, after, self._key, select)

        for frames in in_threads(compared, self._units()):
            yield from frames

    def images(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Changes commit by commit: what each of them changed when it became visible."""
        known = {
            unit.written.group: self._before(unit, self._keys(unit), select)
            for unit in self._units()
            if unit.written is not None
        }
        for commit, window in self._steps():
            frames = [frame for frame in window.difference(select, known) if frame.height]
            if frames:
                yield _committed(pl.concat(frames), commit)

    def raw(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The rows and deletes of each commit as it wrote them."""
        for commit, window in self._steps():
            for frame in window.contributions(select):
                yield _committed(frame, commit)

    def contributions(self, select: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The rows and deletes that the commits wrote, as they wrote them."""
        for unit in self._units():
            if unit.written is None:
                rows = self._state(unit.after, None, select)
                yield _typed(rows.filter(pl.col(COMMIT_TIME).is_in(self._rewriting())).select(select), UPSERT)
                continue
            blocks = self._blocks(unit.written)
            with naming_damage(self.session.store, unit.written):
                rows, deleted = kernel.written(blocks, self._how.columns, select)
            yield _typed(rows, UPSERT)
            yield _typed(self._buried(deleted, unit, select), DELETE)

    def _rewriting(self) -> list[InstantTime]:
        """The requested times of the commits; refuses those of which no file says what they deleted."""
        for commit in self.commits:
            if commit.replaced or commit.deletes:
                raise UnsupportedFeatureError(
                    "this commit of Hudi rewrote files, which do not say what it deleted: ask for changes without raw. "
                    f"requested_at={commit.requested} operation={commit.operation}"
                )
        return [commit.requested for commit in self.commits]

    def _steps(self) -> Iterator[tuple[Completion, Window]]:
        """Each commit, and the window that it alone makes."""
        before = self.start
        for commit in self.commits:
            after = Cut.after(commit, self.end.by)
            between = tuple(c for c in self.between if before.shows(c) != after.shows(c))
            yield commit, replace(self, start=before, end=after, between=between)
            before = after

    # --- where it happened ------------------------------------------------------------------------------------------

    def _units(self) -> list[Unit]:
        """The file groups that the commits touched, and their slices at both cuts."""
        before, after = self._slices(self.start), self._slices(self.end)
        files: dict[FileGroup, list[DataFile]] = {}
        for commit in self.commits:
            for file in commit.files:
                files.setdefault(file.group, []).append(file)
        # A clustering changes no row, but the keys of its partition are in other groups afterwards.
        wrote = {partition for partition, _ in files} | {p for c in self.commits for p, _ in c.replaced}
        replaced = wrote & {partition for c in self.between for partition, _ in c.replaced}
        units = [Unit(partition, None, _of(before, partition), _of(after, partition)) for partition in sorted(replaced)]
        for group, found in sorted(files.items()):
            if group[0] not in replaced:
                written = None if any(file.is_base for file in found) else FileSlice(*group, None, tuple(found))
                units.append(Unit(*group, _of(before, *group), _of(after, *group), written))
        return units

    def _slices(self, cut: Cut) -> dict[FileGroup, FileSlice]:
        return {found.group: found for found in fold_slices(self._completions(cut))}

    def _completions(self, first: Cut, last: Cut | None = None) -> Sequence[Completion]:
        """What the file slices at a cut consist of; those at two cuts, and at all between them."""
        if self.history is not None:
            return self.history if last is not None else [c for c in self.history if first.shows(c)]
        if last is None:
            return self.session.snapshot_completions(self.value, first)
        first = min(first, last, key=lambda cut: cut.time)
        # Later cuts need no segment that this one can do without, but those that complete after it.
        return self.session.completions(self.value, lambda s: s.last > first.time or first.needs(s))

    # --- what they hold ---------------------------------------------------------------------------------------------

    @property
    def _how(self) -> Merging:
        return merging_of(self.session.config, self.value.schema)

    @property
    def _key(self) -> str:
        return self._how.columns.merge_key

    def _keys(self, unit: Unit) -> pl.Series | None:
        """The keys that the commits wrote, as the kernel compares them; None where their files do not say."""
        if unit.written is None:
            return None
        blocks = self._blocks(unit.written)
        with naming_damage(self.session.store, unit.written):
            return kernel.touched(blocks, self._how.columns)

    def _blocks(self, written: FileSlice) -> Sequence[DataBlock | DeleteBlock]:
        with _expiring():
            return open_slice(self.session.store, written, self.session.config).blocks

    def _before(self, unit: Unit, keys: pl.Series | None, select: Sequence[str]) -> pl.DataFrame:
        with _expiring():
            return self._state(unit.before, keys, select)

    def _after(self, unit: Unit, keys: pl.Series | None, select: Sequence[str]) -> pl.DataFrame:
        """The state at the end of all keys that the commits wrote, or of all keys.

        Where the latest commit wins, whatever was requested before the window's commits has lost.
        """
        since = None
        if unit.written is not None and self._how.rule.kind == "latest" and self.start.time <= self.end.time:
            since = min(log.name.instant for log in unit.written.logs)
        return self._state(unit.after, keys, select, since)

    def _state(
        self,
        slices: Sequence[FileSlice],
        keys: pl.Series | None,
        select: Sequence[str],
        since: InstantTime | None = None,
    ) -> pl.DataFrame:
        """Merged rows of some keys, or of all: `select`, and before it the key and the commit time."""
        how = self._how
        need = distinct([self._key, COMMIT_TIME], select)
        predicate = None if keys is None else pl.col(self._key).is_in(keys.implode())
        frames = [pl.DataFrame(schema={name: how.columns.schema[name] for name in need})]
        for found in slices:
            opened = self._open(found, since)
            with naming_damage(self.session.store, found):
                frames += kernel.merge(opened, how.rule, how.columns, select=need, predicate=predicate)
        return pl.concat(frames)

    def _open(self, found: FileSlice, since: InstantTime | None) -> Slice:
        """A slice, without what was requested before `since`, unless later rows are partial and stand on it."""
        store, config = self.session.store, self.session.config
        if since is None:
            return open_slice(store, found, config)
        late = replace(found, logs=tuple(log for log in found.logs if log.name.instant >= since))
        opened = open_slice(store, late, config)
        if any(is_partial(block) for block in opened.blocks):
            return open_slice(store, found, config)
        if opened.base_latest is not None and opened.base_latest < since:
            return replace(opened, base=None, base_latest=None)
        return opened

    def _buried(self, keys: pl.Series, unit: Unit, select: Sequence[str]) -> pl.DataFrame:
        """What is left of deleted rows: their key and partition columns, all others null."""
        how, spec = self._how, self.session.config.key
        stored = TableSchema.from_json(self.value.schema).stored
        known: dict[str, pl.Series | object] = dict(spec.partition_values(unit.partition, stored))
        if self._key == RECORD_KEY:
            found = spec.key_values(stored_array(keys, pa.string()), stored)
            known |= {name: pl.Series(pl.from_arrow(values)) for name, values in found.items()}
        known[self._key] = keys
        unsaid = [name for name in spec.partition_fields if name in select and name not in known]
        if unsaid and len(keys):
            known |= self._seen_last(keys, unit, unsaid)
        types = how.columns.schema
        columns = [
            value.cast(types[name]).alias(name)
            if isinstance(value := known.get(name), pl.Series)
            else pl.Series(name, [value], types[name]).new_from_index(0, len(keys))
            for name in select
        ]
        return pl.DataFrame(columns)

    def _seen_last(self, keys: pl.Series, unit: Unit, names: Sequence[str]) -> dict[str, pl.Series]:
        """Partition columns of deleted rows that the partition's path does not tell, as another key generator's does
        not, or that of rows without a value: as the rows had them, before the window or in it."""
        seen = [self._before(unit, keys, names).select(self._key, *names)]
        if unit.written is not None:
            blocks = self._blocks(unit.written)
            with naming_damage(self.session.store, unit.written):
                seen.append(kernel.written(blocks, self._how.columns, [self._key, *names])[0])
        rows = pl.concat(seen).unique(self._key, keep="first")
        found = keys.to_frame(self._key).join(rows, on=self._key, how="left", maintain_order="left")
        return {name: found[name] for name in names}


def _within(completions: Iterable[Completion], reach: frozenset[Reach]) -> list[Completion]:
    """What the completions did to some file groups."""

    def inside(group: FileGroup) -> bool:
        return group in reach or (group[0], None) in reach

    found = [
        replace(c, files=tuple(f for f in c.files if inside(f.group)), replaced=tuple(filter(inside, c.replaced)))
        for c in completions
    ]
    return [c for c in found if c.files or c.replaced]


def _of(slices: Mapping[FileGroup, FileSlice], partition: str, file_id: str | None = None) -> tuple[FileSlice, ...]:
    """The slices of a partition, or of one file group."""
    return tuple(s for s in slices.values() if s.partition == partition and file_id in (None, s.file_id))


@contextmanager
def _expiring() -> Iterator[None]:
    """A missing file is one that the window's start needs."""
    try:
        yield
    except SnapshotExpiredError as error:
        raise CheckpointExpiredError(
            f"what is after this checkpoint is gone: scan the table and go on from the scan's checkpoint. {error}"
        ) from error


def _images(before: pl.DataFrame, after: pl.DataFrame, key: str, select: Sequence[str]) -> list[pl.DataFrame]:
    """What turns `before` into `after`; keys whose rows look the same in `select` are left out."""
    both = before.join(after, on=key, how="inner", suffix=_AFTER, nulls_equal=False)
    others = [name for name in select if name != key]
    differs = [_differs(name, after.schema[name]) for name in others]
    changed = both.filter(pl.any_horizontal(differs)) if others else both.clear()
    later = [pl.col(name if name == key else name + _AFTER).alias(name) for name in select]
    return [
        _typed(before.join(after, on=key, how="anti").select(select), DELETE),
        _typed(changed.select(select), PREIMAGE),
        _typed(changed.select(later), POSTIMAGE),
        _typed(after.join(before, on=key, how="anti").select(select), INSERT),
    ]


def _differs(name: str, kind: pl.DataType) -> pl.Expr:
    """Whether the two values of a column differ; 0.0 and -0.0, which polars holds to be equal, do."""
    values = pl.col(name), pl.col(name + _AFTER)
    found = values[0].ne_missing(values[1])
    before, after = (_zeros_told_apart(value, kind) for value in values)
    return found if before is None or after is None else found | before.ne_missing(after)


def _zeros_told_apart(value: pl.Expr, kind: pl.DataType | DataTypeClass) -> pl.Expr | None:
    """The floats of a value upside down, so that its zeros are infinities with their signs; None: it has no floats."""
    if kind.is_float():
        return 1 / value
    if isinstance(kind, pl.Struct):
        fields = ((_zeros_told_apart(value.struct.field(f.name), f.dtype), f.name) for f in kind.fields)
        found = [field.alias(name) for field, name in fields if field is not None]
        return pl.struct(found) if found else None
    if isinstance(kind, pl.Map):
        value, kind = value.map.values(), pl.List(kind.value)
    if isinstance(kind, pl.List):
        inner = _zeros_told_apart(pl.element(), kind.inner)
        return None if inner is None else value.list.eval(inner)
    return None


def _typed(frame: pl.DataFrame, change: str) -> pl.DataFrame:
    return frame.with_columns(pl.lit(change).alias(CHANGE_TYPE))


def _committed(frame: pl.DataFrame, commit: Completion) -> pl.DataFrame:
    when = pl.lit(to_datetime(commit.completed), pl.Datetime("us", "UTC"))
    version = pl.lit(commit.version, pl.Int64)
    return frame.with_columns(version.alias(COMMIT_VERSION), when.alias(COMMIT_TIMESTAMP))

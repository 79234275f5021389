"""Read visible rows from a timeline value: the one read path of snapshots, time travel and compaction.

    value ─ completions as of ─► file slices ─ log blocks by START_COMMIT_TIME ─► merge kernel ─► frames

read/open_slice.py opens files; read/together.py merges small slices together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Final

import polars as pl

from crdt_mor.columns.names import Names
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import FutureSnapshotError, InvalidInputError, SnapshotExpiredError
from crdt_mor.events.session import Session
from crdt_mor.events.update import commits_before
from crdt_mor.events.views import RESOLUTIONS_BYTES
from crdt_mor.ground.bounded import Bounded
from crdt_mor.ground.threads import REQUESTS, bytes_ahead, groups_in_threads, in_threads
from crdt_mor.laws.merging import merging_of
from crdt_mor.log.outcome import ValueOf
from crdt_mor.merge import kernel
from crdt_mor.merge.blocks import RECORD_KEY, Columns, Slice
from crdt_mor.merge.expiry import alive
from crdt_mor.merge.polars_types import selected
from crdt_mor.merge.resolution import Resolution
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import InstantTime, from_ms
from crdt_mor.model.slices import FileSlice, Slices, fold_slices, with_logs
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile, FileGroup
from crdt_mor.read.damage import naming_damage
from crdt_mor.read.expressions import columns_in, conjunction, conjuncts, literals
from crdt_mor.read.fetching import Fetch, plan
from crdt_mor.read.log_keys import Lookup
from crdt_mor.read.open_slice import REQUESTS_OF_SLICE, base_of, fetch_end, open_slice
from crdt_mor.read.pushdown import one_of
from crdt_mor.read.resolved import Resolved
from crdt_mor.read.row_groups import ranges_of
from crdt_mor.read.together import Item, Merge, Merges
from crdt_mor.store.protocol import is_bucket

_PREFETCHED: Final = 2 * REQUESTS
"""Files prefetched during the lookup of the newest version."""


@dataclass(frozen=True)
class Snapshot:
    """The file slices of a table at a cut of its commits.

    Attributes:
        whole: False for a read-optimized view, without logs.
        part: True if slices are missing, in a process without the rest of the timeline.
        at_hand: uncommitted log files of a block, in memory, by path.
        called: names of the columns; None for the value's names.
        resolutions: receives the merges' resolutions, instead of the session's cache and the hints.
        moment: the time for expiries; None for the cut's time.
        hides_expired: False to read all stored rows.
    """

    session: Session
    value: Timeline
    cut: Cut
    slices: Slices
    whole: bool = True
    part: bool = False
    at_hand: Mapping[str, bytes] = field(default_factory=dict, compare=False)
    called: Names | None = None
    resolutions: Bounded[Resolution] | None = field(default=None, compare=False)
    moment: InstantTime | None = None
    hides_expired: bool = True

    @classmethod
    def seal(
        cls, session: Session, value: Timeline, cut: Cut | None = None, moment: InstantTime | None = None
    ) -> Snapshot:
        slices = session.views.slices(value, cut, old_logs=session.config.was_upgraded)
        if cut is None:
            cut, moment = Cut.latest(value, "completed"), moment or moment_now(session, value)
        return cls(session, value, cut, slices, moment=moment)

    @classmethod
    def before(cls, session: Session, begun: ValueOf, settled: Timeline, requested: InstantTime) -> Snapshot:
        """Return the snapshot of all commits requested before a pending write, and no others.

        It has the slices of the write's begin, plus later commits requested earlier, but no later compactions: they may
        contain rows requested after the write. No clean removes the files of a pending write's view.

        Args:
            begun: the value in which the write began.
            settled: a later value, in which no earlier write that touches the rows is pending.
        """
        shown = session.views.snapshot_completions(begun)
        if settled is not begun:
            # Hudi's commits may be adopted later than they completed, so segments are compared by name, not by time.
            known = {segment.name for segment in begun.segments}
            ended = session.views.completions(settled, lambda s: s.name not in known)
            shown = commits_before(begun, shown, ended, requested)
        value = replace(begun, schema=settled.schema, added=settled.added, alterations=settled.alterations)
        return cls(session, value, Cut("requested", requested), fold_slices(shown))

    def alive(self, frame: pl.DataFrame) -> pl.DataFrame:
        expiry = self.session.config.merge.expiry
        return frame if expiry is None else frame.filter(alive(expiry, self.moment or self.cut.time))

    def with_expired(self) -> Snapshot:
        return replace(self, hides_expired=False)

    @property
    def expiry_time(self) -> InstantTime | None:
        """The time for expiries; None if no row is hidden."""
        hides = self.session.config.merge.expiry is not None and self.hides_expired
        return (self.moment or self.cut.time) if hides else None

    @property
    def _alive(self) -> pl.Expr | None:
        expiry = self.session.config.merge.expiry
        if expiry is None:
            return None
        at = self.expiry_time
        return None if at is None else alive(expiry, at)

    def read_optimized(self) -> Snapshot:
        slices = Slices(replace(slice_, logs=()) for slice_ in self.slices if slice_.base is not None)
        return replace(self, slices=slices, whole=False)

    def with_own(self, logs: Sequence[tuple[DataFile, bytes]], schema: TableSchema) -> Snapshot:
        """Add the log files of an uncommitted write, ordered after all other rows.

        `schema` includes the columns that the write adds.
        """
        value = replace(self.value, schema=schema.to_json())
        slices = with_logs(self.slices, (file for file, _ in logs))
        return replace(self, value=value, slices=slices, at_hand={file.path: data for file, data in logs})

    def with_slices(self, slices: Iterable[FileSlice]) -> Snapshot:
        kept = Slices(slices)
        paths = {log.path for slice_ in kept for log in slice_.logs}
        at_hand = {path: data for path, data in self.at_hand.items() if path in paths}
        file_ids = self.value.file_ids.among((slice_.partition, slice_.file_id) for slice_ in kept)
        value = replace(self.value.header, file_ids=file_ids)
        return replace(self, value=value, slices=kept, part=True, at_hand=at_hand)

    def sealed_cut(self) -> Cut:
        """Return the cut of this view, for later reads.

        Raises if no cut shows the same rows: Hudi committed before the cut unnoticed, or rows are uncommitted.
        """
        if self.at_hand:
            raise InvalidInputError(
                "this scan contains uncommitted rows of its block, so no checkpoint can name it: "
                f"scan again after the block. statements_of={self.cut.time}"
            )
        missing = [] if self.part else self.session.views.unadopted(self.value, self.cut)
        if missing:
            raise SnapshotExpiredError(
                "Hudi committed to this table before the scan's moment, and the commit was found only now: "
                "scan again. "
                f"instant={missing[0].requested} completed={missing[0].completed} scan={self.cut}"
            )
        if not self.part and not self.session.views.is_decided(self.value.clock):
            raise FutureSnapshotError(
                "a Hudi commit in this scan completed at a time ahead of this machine's clock, so earlier commits may "
                "still follow: scan again after that time. "
                f"scan={self.cut} clock={self.session.known_tail().clock}"
            )
        return self.cut

    @cached_property
    def _erased(self) -> Mapping[FileGroup, InstantTime]:
        return dict(self.value.retention.groups)

    def require_kept(self, slice_: FileSlice) -> None:
        since = self._erased.get(slice_.group)
        if since is not None and self.cut.time < since:
            raise SnapshotExpiredError(
                "rows of this snapshot were erased, with the history of their file group: pass a later moment, or a "
                "filter that excludes the file group. "
                f"as_of={self.cut.time} oldest={since} partition={slice_.partition!r} file_group={slice_.file_id}"
            )

    @property
    def names(self) -> Names:
        return self.value.names if self.called is None else self.called

    @property
    def shown(self) -> TableSchema:
        return self.names.outward(self.schema)

    @property
    def schema(self) -> TableSchema:
        """The columns of files, including hidden ones."""
        return TableSchema.from_json(self.value.schema)

    def frames(
        self,
        select: Sequence[str],
        predicate: pl.Expr | None,
        limit: int | None = None,
        finish: Callable[[pl.DataFrame], pl.DataFrame] = lambda frame: frame,
        keys: Sequence[str] | None = None,
        *,
        kept: bool = False,
    ) -> Iterator[pl.DataFrame]:
        """Yield visible rows of stored types, in no order. Slices are merged in parallel, small slices together.

        Args:
            select: the columns; if empty, frames still have the right number of rows.
            limit: the caller takes at most this many rows, so the first slice is read alone and, if large, in parts.
            finish: applied to each merged frame in its thread.
            keys: the predicate matches only these keys, so other base rows may be skipped.
            kept: the caller keeps all frames; otherwise only a few slices are in memory.
        """
        store = self.session.store
        merging = merging_of(self.session.config, self.value.schema)
        predicate = conjunction([part for part in (predicate, self._alive) if part is not None])
        if keys is not None and not self.session.is_far:
            predicate = _of_keys(predicate, keys, merging.columns)
        columns = self.read_columns(select, predicate)

        resolved = self.resolved
        # In a bucket a filter fetches only some row groups, which changes the positions of rows.
        by_place = limit is None and keys is None and (predicate is None or not self.session.is_far)
        wanted = None if keys is None else _as_merge_keys(keys, merging.columns)
        only_keys = _only_keys(predicate, wanted, merging.columns)
        lookup = None if wanted is None else self._lookup(wanted, merging.columns)

        def open_parts(slice_: FileSlice) -> list[tuple[FileSlice, Fetch]]:
            self.require_kept(slice_)
            stored = slice_.without(self.at_hand)
            with naming_damage(store, stored):
                slice_ = slice_ if lookup is None else lookup.narrowed(slice_)
                is_small_list = only_keys is not None and only_keys.is_small_list(_weight_of_logs(slice_))
                known = resolved.of(slice_) if by_place and not is_small_list else None
                parts = self._parts(slice_, columns, predicate, keys, limit, known)
                return [(stored, plan(part, merging, columns, predicate, keys, limit)) for part in parts]

        def fetch(item: tuple[FileSlice, Fetch]) -> Item:
            slice_, fetch = item
            with naming_damage(store, slice_):
                return slice_, fetch.fetched()

        merges = Merges(store, self.session.config, merging, columns, predicate, limit, kept, only_keys, resolved)

        def finished(merge: Merge) -> list[pl.DataFrame]:
            return [finish(frame if select else selected(frame, ())) for frame in merge.run()]

        is_far = self.session.is_far
        at_once = REQUESTS if is_far else None
        if limit is not None:  # part by part: the first often contains enough rows
            for part in map(fetch, chain.from_iterable(map(open_parts, self.slices[:1]))):
                yield from finished(merges.alone(part))
        slices = self.slices if limit is None else self.slices[1:]
        memory_limit = self.session.memory_limit
        ahead = bytes_ahead(memory_limit)
        opened = chain.from_iterable(in_threads(open_parts, slices, at_once, _weight_of_logs, ahead))
        parts = in_threads(fetch, opened, at_once, lambda item: item[1].size, ahead) if is_far else map(fetch, opened)
        merging_parts = map(merges.alone, parts) if len(slices) == 1 else merges.of(parts)
        yield from chain.from_iterable(groups_in_threads(finished, merging_parts, attrgetter("size"), memory_limit))

    def read_columns(self, select: Sequence[str], predicate: pl.Expr | None) -> list[str]:
        """Return at least one column, or a frame would lose its row count."""
        named = [] if predicate is None else columns_in(predicate)
        key = merging_of(self.session.config, self.value.schema).columns.merge_key
        return list(select) or named[:1] or [key]

    def collecting_resolutions(self) -> Snapshot:
        return replace(self, resolutions=Bounded(RESOLUTIONS_BYTES))

    @property
    def resolved(self) -> Resolved:
        """The known resolutions of its slices; none if some logs are only in memory."""
        session, resolutions = self.session, Bounded(0) if self.at_hand else self.resolutions
        merging = merging_of(session.config, self.value.schema)
        if resolutions is None:
            return Resolved(session.views.resolutions, session.config, merging, session.store)
        return Resolved(resolutions, session.config, merging, None)

    def prefetch(self) -> None:
        store = self.session.store
        if is_bucket(store):
            files = [file for slice_ in self.slices for file in slice_.without(self.at_hand).files]
            for _ in in_threads(lambda file: fetch_end(store, file), files[:_PREFETCHED], REQUESTS):
                pass

    def _lookup(self, keys: pl.Series, columns: Columns) -> Lookup | None:
        session, kept = self.session, self.session.views.log_keys()
        if kept is None or self.at_hand:
            return None
        return Lookup.of(
            keys, kept, session.config, columns, lambda one: open_slice(session.store, one, session.config)
        )

    def _parts(
        self,
        slice_: FileSlice,
        select: Sequence[str],
        predicate: pl.Expr | None,
        keys: Sequence[str] | None,
        limit: int | None,
        known: Resolution | None,
    ) -> list[Slice]:
        store, config = self.session.store, self.session.config
        if slice_.base is not None and not slice_.logs:
            blocks = Slice(base_of(store, slice_, config))
        else:
            at_once = max(REQUESTS_OF_SLICE, REQUESTS // len(self.slices))
            blocks = open_slice(store, slice_, config, at_once, self.at_hand)
        if known is not None:
            return [replace(blocks, resolution=known)]
        if keys is not None and blocks.base is not None:
            blocks = replace(blocks, base_ranges=ranges_of(blocks.base, keys))
        if slice_.base is not None and not slice_.logs:
            return [blocks]
        if predicate is not None or blocks.base_ranges is not None:
            return [blocks]  # statistics of the whole base file skip more row groups
        rows = 0 if slice_.base is None else slice_.base.rows
        merging = merging_of(config, self.value.schema)
        return kernel.parts(blocks, rows, merging.rule, merging.columns, select, limit)

    @property
    def unopened(self) -> int:
        return sum(height is not None for _, height in self._heights())

    def count(self) -> int:
        rows, others = 0, list[FileSlice]()
        for slice_, height in self._heights():
            if height is None:
                others.append(slice_)
            else:
                self.require_kept(slice_)
                rows += height
        return rows + sum(frame.height for frame in replace(self, slices=Slices(others)).frames([], None))

    def _heights(self) -> Iterator[tuple[FileSlice, int | None]]:
        """Yield each slice with its row count, or None if only its files tell."""
        resolved, hides = self.resolved, self._alive is not None

        def with_height(slice_: FileSlice) -> tuple[FileSlice, int | None]:
            if hides:
                return slice_, None
            resolution = resolved.of(slice_)
            return slice_, _stored_rows(slice_) if resolution is None else resolution.height

        is_far = self.session.is_far
        yield from in_threads(with_height, self.slices, REQUESTS) if is_far else map(with_height, self.slices)


def moment_now(session: Session, value: Timeline) -> InstantTime | None:
    """Return the time for expiries now; None in tables without."""
    if session.config.merge.expiry is None:
        return None
    return max(value.clock, from_ms(session.environment.now_ms()))


def _stored_rows(slice_: FileSlice) -> int | None:
    """Hudi's archived commits store no row count."""
    return slice_.base.rows if slice_.base is not None and not slice_.logs and slice_.base.rows else None


def _of_keys(predicate: pl.Expr | None, keys: Sequence[str], columns: Columns) -> pl.Expr | None:
    """Add a condition on the record key to a predicate.

    Rows are sorted by record key as text, so its statistics skip more row groups than a number column's. In buckets
    `fetching.plan` compares the keys instead, without fetching the column.
    """
    if columns.schema[columns.merge_key] == pl.String and columns.merge_key != RECORD_KEY:
        return predicate
    asked = one_of(pl.col(RECORD_KEY), pl.Series(keys, dtype=pl.String))
    return asked if predicate is None else predicate & asked


def _as_merge_keys(keys: Sequence[str], columns: Columns) -> pl.Series:
    """Convert key texts to merge keys; null for impossible values."""
    return pl.Series(keys, dtype=pl.String).cast(columns.schema[columns.merge_key], strict=False)


def _only_keys(predicate: pl.Expr | None, keys: pl.Series | None, columns: Columns) -> kernel.KeyCondition | None:
    key = columns.merge_key
    if keys is not None:
        return kernel.KeyCondition(key, pl.col(key).is_in(pl.Series([keys])), len(keys))
    parts = [] if predicate is None else conjuncts(predicate)
    of_key = conjunction([part for part in parts if set(columns_in(part)) == {key}])
    return None if of_key is None else kernel.KeyCondition(key, of_key, literals(of_key))


def _weight_of_logs(slice_: FileSlice) -> int:
    return sum(log.size for log in slice_.logs)

"""From a sealed value to merged rows: the one read path of snapshots, time travel and compaction.

    value ─ completions as of ─► file slices ─ log blocks by START_COMMIT_TIME ─► merge kernel ─► frames

Files are opened in read/open_slice.py, rows are merged by `merge`; neither of the two knows the other. Each slice is
merged alone, or some of them together (read/together.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import polars as pl

from crdt_mor.columns.names import Names
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import FutureSnapshotError, InvalidInputError, SnapshotExpiredError
from crdt_mor.events.session import Session
from crdt_mor.events.update import commits_before
from crdt_mor.events.views import FOUND_OUT_BYTES
from crdt_mor.ground.bounded import Bounded
from crdt_mor.ground.threads import REQUESTS, in_threads
from crdt_mor.laws.merging import merging_of
from crdt_mor.log.outcome import ValueOf
from crdt_mor.merge import kernel
from crdt_mor.merge.blocks import RECORD_KEY, Columns, Slice
from crdt_mor.merge.polars_types import selected
from crdt_mor.merge.resolution import Resolution
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.slices import FileSlice, fold_slices, with_logs
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile
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
"""Files that are asked for beside a look for the newest version, which takes two round trips."""


@dataclass(frozen=True)
class Snapshot:
    """A sealed view of a table at a cut of its commits: the file slices that the cut shows, and how to merge them.

    whole: whether the view has everything that the cut shows; a read-optimized view leaves the logs out.
    part: whether the view has some of the cut's file slices only, for a process that knows no more of the table.
    at_hand: log files that are in memory alone, by their paths: what a block has written that is not committed yet.
    called: the names of its columns; None: those that the value has.
    found_out: where it is noted which rows of its slices are shown, and nothing else is believed of that; None: what
        the session remembers, and the hints beside the table.
    """

    session: Session
    value: Timeline
    cut: Cut
    slices: tuple[FileSlice, ...]
    whole: bool = True
    part: bool = False
    at_hand: Mapping[str, bytes] = field(default_factory=dict, compare=False)
    called: Names | None = None
    found_out: Bounded[Resolution] | None = field(default=None, compare=False)

    @classmethod
    def seal(cls, session: Session, value: Timeline, cut: Cut | None = None) -> Snapshot:
        """The slices that `value` shows at a cut; None: all that it shows."""
        completions = session.views.snapshot_completions(value, cut)
        slices = fold_slices(completions, old_logs=session.config.was_upgraded)
        return cls(session, value, cut or Cut.latest(value, "completed"), tuple(slices))

    @classmethod
    def before(cls, session: Session, begun: ValueOf, settled: Timeline, requested: InstantTime) -> Snapshot:
        """What all commits show that were requested before a pending write, and none that was requested after it.

        begun: the value in which it began. settled: a later one, in which nothing is pending that was requested before
        and touches what is read.

        The slices are those of the begin, and of later commits those are added that were requested before it. A later
        compaction may have folded rows that come after the write; no clean removes the files of a pending write's view.
        """
        shown = session.views.snapshot_completions(begun)
        if settled is not begun:
            # What was adopted meanwhile, Hudi may have completed before: not the times of a segment say what is new.
            known = {segment.name for segment in begun.segments}
            ended = session.views.completions(settled, lambda s: s.name not in known)
            shown = commits_before(begun, shown, ended, requested)
        value = replace(begun, schema=settled.schema, added=settled.added, alterations=settled.alterations)
        return cls(session, value, Cut("requested", requested), tuple(fold_slices(shown)))

    def read_optimized(self) -> Snapshot:
        """This snapshot without its logs: what the last compactions left."""
        slices = tuple(replace(slice_, logs=()) for slice_ in self.slices if slice_.base is not None)
        return replace(self, slices=slices, whole=False)

    def with_own(self, logs: Sequence[tuple[DataFile, bytes]], schema: TableSchema) -> Snapshot:
        """This snapshot with the log files of a write that is not committed yet, which come after all that it shows.

        schema: the table's, with the columns that the write brings.
        """
        value = replace(self.value, schema=schema.to_json())
        slices = with_logs(self.slices, (file for file, _ in logs))
        return replace(self, value=value, slices=slices, at_hand={file.path: data for file, data in logs})

    def with_slices(self, slices: Iterable[FileSlice]) -> Snapshot:
        """A part of this snapshot, for a process that knows no more of the table."""
        kept = tuple(slices)
        paths = {log.path for slice_ in kept for log in slice_.logs}
        at_hand = {path: data for path, data in self.at_hand.items() if path in paths}
        file_ids = self.value.file_ids.among((slice_.partition, slice_.file_id) for slice_ in kept)
        value = replace(self.value.header, file_ids=file_ids)
        return replace(self, value=value, slices=kept, part=True, at_hand=at_hand)

    def sealed_cut(self) -> Cut:
        """The cut that this view shows, for use by later reads; raises where Hudi has committed before it unnoticed.

        Such a commit has its place before the cut for ever, so that no cut shows what this view shows. Nor does any
        show what a block has written that is not committed yet.
        """
        if self.at_hand:
            raise InvalidInputError(
                "this scan shows what its block has written, which no moment of the table's history shows before the "
                f"block is committed: take the moment of a scan after the block. statements_of={self.cut.time}"
            )
        missing = [] if self.part else self.session.views.unseen(self.value, self.cut)
        if missing:
            raise SnapshotExpiredError(
                "Hudi committed to this table before the moment that this scan shows, which was found only now: scan "
                "again, and before that call table.refresh() where Hudi writes as well. "
                f"instant={missing[0].requested} completed={missing[0].completed} scan={self.cut}"
            )
        if not self.part and not self.session.views.is_decided(self.value.clock):
            raise FutureSnapshotError(
                "a commit of Hudi's that this scan shows was completed at a time that has not come yet by the clock of "
                "this machine, so that commits of ours may still come before it: scan again when it has come. "
                f"scan={self.cut} clock={self.session.known().clock}"
            )
        return self.cut

    def _require_kept(self, slice_: FileSlice) -> None:
        """Raise where an erasure has ended the history of this very file group after what the view shows."""
        since = dict(self.value.retention.groups).get(slice_.group)
        if since is not None and self.cut.time < since:
            raise SnapshotExpiredError(
                "rows that this snapshot would show were erased, with the history of their file group: ask for a later "
                "one, or for other rows, with a filter that rules the file group out. "
                f"as_of={self.cut.time} oldest={since} partition={slice_.partition!r} file_group={slice_.file_id}"
            )

    @property
    def names(self) -> Names:
        """The names of the columns as people see them in this view."""
        return self.value.names if self.called is None else self.called

    @property
    def shown(self) -> TableSchema:
        """The columns as people see them in this view."""
        return self.names.outward(self.schema)

    @property
    def schema(self) -> TableSchema:
        """The columns of files, also those that nobody sees."""
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
        """Merged rows, stored types, in no particular order; slices are merged side by side, small ones together.

        select: the columns; where there are none, each frame still has as many rows as are shown.
        limit: the caller takes no more rows than that, so the first slice, which often has them, is read alone, and in
            parts if it is larger.
        finish: a function of each merged frame that runs in the thread that merged it.
        keys: the predicate holds for rows of these keys alone, so that other rows of base files need not be read.
        kept: the caller keeps all frames; else no more than a few slices are to be in memory.
        """
        store = self.session.store
        merging = merging_of(self.session.config, self.value.schema)
        if keys is not None and not self.session.is_far:
            predicate = _of_keys(predicate, keys, merging.columns)
        columns = self.read_columns(select, predicate)

        resolved = self.resolved
        # Of a file in a bucket a filter fetches some row groups alone, in which rows have other places.
        by_place = limit is None and keys is None and (predicate is None or not self.session.is_far)
        wanted = None if keys is None else _as_merge_keys(keys, merging.columns)
        asked = _asked_keys(predicate, wanted, merging.columns)
        lookup = None if wanted is None else self._lookup(wanted, merging.columns)

        def open_parts(slice_: FileSlice) -> list[tuple[FileSlice, Fetch]]:
            self._require_kept(slice_)
            stored = slice_.without(self.at_hand)
            with naming_damage(store, stored):
                slice_ = slice_ if lookup is None else lookup.narrowed(slice_)
                is_small_list = asked is not None and asked.is_small_list(_weight_of_logs(slice_))
                known = resolved.of(slice_) if by_place and not is_small_list else None
                parts = self._parts(slice_, columns, predicate, keys, limit, known)
                return [(stored, plan(part, merging, columns, predicate, keys, limit)) for part in parts]

        def fetch(item: tuple[FileSlice, Fetch]) -> Item:
            slice_, fetch = item
            with naming_damage(store, slice_):
                return slice_, fetch.fetched()

        merges = Merges(store, self.session.config, merging, columns, predicate, limit, kept, asked, resolved)

        def finished(merge: Merge) -> list[pl.DataFrame]:
            return [finish(frame if select else selected(frame, ())) for frame in merge()]

        is_far = self.session.is_far
        at_once = REQUESTS if is_far else None
        if limit is not None:  # one part after another, as the first one often has enough rows
            for part in map(fetch, chain.from_iterable(map(open_parts, self.slices[:1]))):
                for merge in merges.of([part]):  # which looks ahead where it is given more than one
                    yield from finished(merge)
        slices = self.slices if limit is None else self.slices[1:]
        opened = chain.from_iterable(in_threads(open_parts, slices, at_once, _weight_of_logs))
        parts = in_threads(fetch, opened, at_once, lambda item: item[1].size) if is_far else map(fetch, opened)
        for frames in in_threads(finished, merges.of(parts)):
            yield from frames

    def read_columns(self, select: Sequence[str], predicate: pl.Expr | None) -> list[str]:
        """The columns that are read for `select`: one at least, as only columns have a number of rows.

        Where `select` names none, it is one that the predicate reads anyway, or the key, which every merge reads.
        """
        named = [] if predicate is None else columns_in(predicate)
        key = merging_of(self.session.config, self.value.schema).columns.merge_key
        return list(select) or named[:1] or [key]

    def finding_out(self) -> Snapshot:
        """This snapshot, which believes nothing that was found out before, and notes what its merges find out."""
        return replace(self, found_out=Bounded(FOUND_OUT_BYTES))

    @property
    def resolved(self) -> Resolved:
        """What is known of its slices: nothing, and it is not noted, where some of their logs are in memory alone."""
        session, found_out = self.session, Bounded(0) if self.at_hand else self.found_out
        merging = merging_of(session.config, self.value.schema)
        if found_out is None:
            return Resolved(session.views.found_out, session.config, merging, session.store)
        return Resolved(found_out, session.config, merging, None)

    def prefetch(self) -> None:
        """Ask a bucket for the ends of the first files, which are kept in memory: what it gives while a look takes."""
        store = self.session.store
        if is_bucket(store):
            files = [file for slice_ in self.slices for file in slice_.without(self.at_hand).files]
            for _ in in_threads(lambda file: fetch_end(store, file), files[:_PREFETCHED], REQUESTS):
                pass

    def _lookup(self, keys: pl.Series, columns: Columns) -> Lookup | None:
        """What is known of the keys of log files, for a session that has looked keys up before."""
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
        """What is merged of a slice, each part on its own; it alone, where it is resolved."""
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
            return [blocks]  # the statistics of a whole base file rule out more than those of its parts
        rows = 0 if slice_.base is None else slice_.base.rows
        merging = merging_of(config, self.value.schema)
        return kernel.parts(blocks, rows, merging.rule, merging.columns, select, limit)

    @property
    def unopened(self) -> int:
        """Of how many file groups `count` opens no data file, as the commits or hints say how many rows they have."""
        return len(self._heights())

    def count(self) -> int:
        """Rows, as the commits say it where a slice needs no merging, or as an earlier merge of it has found out.

        Of other slices the key columns are read.
        """
        known = self._heights()
        for slice_ in known:
            self._require_kept(slice_)
        others = tuple(slice_ for slice_ in self.slices if slice_ not in known)
        return sum(known.values()) + sum(frame.height for frame in replace(self, slices=others).frames([], None))

    def _heights(self) -> dict[FileSlice, int]:
        """The slices of which it is known how many rows they have."""
        resolved = self.resolved
        found = dict[FileSlice, int]()
        known = in_threads(resolved.of, self.slices, REQUESTS) if self.session.is_far else map(resolved.of, self.slices)
        for slice_, resolution in zip(self.slices, known, strict=True):
            height = _rows_said(slice_) if resolution is None else resolution.height
            if height is not None:
                found[slice_] = height
        return found


def _rows_said(slice_: FileSlice) -> int | None:
    """How many rows a slice has, where commits say it: it needs no merging, and Hudi has not archived its commit."""
    return slice_.base.rows if slice_.base is not None and not slice_.logs and slice_.base.rows else None


def _of_keys(predicate: pl.Expr | None, keys: Sequence[str], columns: Columns) -> pl.Expr | None:
    """A predicate, and that the record key is one of these.

    Rows are in the order of its text, so that its statistics rule row groups out which those of a number do not. Those
    of a key of text say the same. Of a file in a bucket the column would have to be fetched, so that `fetching.plan`
    holds the keys against its statistics.
    """
    if columns.schema[columns.merge_key] == pl.String and columns.merge_key != RECORD_KEY:
        return predicate
    asked = one_of(pl.col(RECORD_KEY), pl.Series(keys, dtype=pl.String))
    return asked if predicate is None else predicate & asked


def _as_merge_keys(keys: Sequence[str], columns: Columns) -> pl.Series:
    """The merge keys of which these are the texts; null where no value of the key column has a text."""
    return pl.Series(keys, dtype=pl.String).cast(columns.schema[columns.merge_key], strict=False)


def _asked_keys(predicate: pl.Expr | None, keys: pl.Series | None, columns: Columns) -> kernel.Asked | None:
    """What follows for the merge key from a predicate, or from the merge keys of which alone it can hold."""
    key = columns.merge_key
    if keys is not None:
        return kernel.Asked(key, pl.col(key).is_in(keys.implode()), len(keys))
    parts = [] if predicate is None else conjuncts(predicate)
    asked = conjunction([part for part in parts if set(columns_in(part)) == {key}])
    return None if asked is None else kernel.Asked(key, asked, literals(asked))


def _weight_of_logs(slice_: FileSlice) -> int:
    return sum(log.size for log in slice_.logs)

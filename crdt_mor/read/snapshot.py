"""From a sealed value to merged rows: the one read path of snapshots, time travel and compaction.

    value ─ completions as of ─► file slices ─ log blocks by START_COMMIT_TIME ─► merge kernel ─► frames, slice by slice

Files are opened in read/blocks.py, rows are merged by `merge`; neither of the two knows the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import polars as pl

from crdt_mor.errors import FutureSnapshotError, SnapshotExpiredError
from crdt_mor.laws.merging import merging_of
from crdt_mor.merge import kernel
from crdt_mor.merge.blocks import Slice
from crdt_mor.model.cut import Cut
from crdt_mor.model.schema import TableSchema
from crdt_mor.model.slices import FileSlice, fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.blocks import base_source, open_slice
from crdt_mor.read.damage import naming_damage
from crdt_mor.threads import in_threads
from crdt_mor.timeline.session import Session


@dataclass(frozen=True)
class Snapshot:
    """A sealed view of a table at a cut of its commits: file slices, and how to merge them.

    whole: it shows all that the cut does; without its logs it does not.
    part: it is of some file slices, for a process that looks at nothing else of the table.
    """

    session: Session
    value: Timeline
    cut: Cut
    slices: tuple[FileSlice, ...]
    whole: bool = True
    part: bool = False

    @classmethod
    def seal(cls, session: Session, value: Timeline, cut: Cut | None = None) -> Snapshot:
        """The slices that `value` shows at a cut; None: all that it shows."""
        completions = session.snapshot_completions(value, cut)
        return cls(session, value, cut or Cut.latest(value, "completed"), tuple(fold_slices(completions)))

    def read_optimized(self) -> Snapshot:
        """This snapshot without its logs: what the last compactions left."""
        slices = tuple(replace(found, logs=()) for found in self.slices if found.base is not None)
        return replace(self, slices=slices, whole=False)

    def sealed_cut(self) -> Cut:
        """The cut that it shows, for later use; raises where Hudi has committed before it, as nobody had looked for.

        Such a commit has its place before the cut for ever, so that no cut shows what this view does.
        """
        missing = [] if self.part else self.session.unseen(self.value, self.cut)
        if missing:
            raise SnapshotExpiredError(
                "Hudi committed to this table before the moment that this scan shows, which was found only now: scan "
                "again, and before that call table.refresh() where Hudi writes as well. "
                f"instant={missing[0].requested} completed={missing[0].completed} scan={self.cut}"
            )
        if not self.part and not self.session.is_decided(self.value.clock):
            raise FutureSnapshotError(
                "a commit of Hudi's that this scan shows was completed at a time that has not come yet by the clock of "
                "this machine, so that commits of ours may still come before it: scan again when it has come. "
                f"scan={self.cut} clock={self.session.known().clock}"
            )
        return self.cut

    @property
    def schema(self) -> TableSchema:
        return TableSchema.from_json(self.value.schema)

    def frames(
        self,
        select: Sequence[str],
        predicate: pl.Expr | None,
        limit: int | None = None,
        finish: Callable[[pl.DataFrame], pl.DataFrame] = lambda frame: frame,
    ) -> Iterator[pl.DataFrame]:
        """Merged rows, stored types, slice by slice in no particular order; slices are merged side by side.

        limit: the caller takes no more rows than that, so the first slice, which often has them, is read alone.
        finish: what is made of each frame, where it is merged.
        """
        store, config = self.session.store, self.session.config
        how = merging_of(config, self.value.schema)

        def opened(found: FileSlice) -> list[tuple[FileSlice, Slice]]:
            if found.base is not None and not found.logs:
                return [(found, Slice(base_source(store, found.base.path)))]
            files = open_slice(store, found, config)
            if predicate is not None:
                return [(found, files)]  # statistics of the whole base file spare more than parts do
            rows = 0 if found.base is None else found.base.rows
            with naming_damage(store, found):
                return [(found, part) for part in kernel.parts(files, rows, how.rule, how.columns, select)]

        def merged(item: tuple[FileSlice, Slice]) -> list[pl.DataFrame]:
            return [finish(frame) for frame in _merged(*item)]

        def _merged(found: FileSlice, files: Slice) -> list[pl.DataFrame]:
            with naming_damage(store, found):
                if files.base is not None and not found.logs:
                    rows = kernel.passed_through(
                        files.base, how.columns, select=select, predicate=predicate, limit=limit
                    )
                    return [rows]
                return kernel.merge(files, how.rule, how.columns, select=select, predicate=predicate)

        first = 0 if limit is None else 1
        for slices in (self.slices[:first], self.slices[first:]):
            parts = chain.from_iterable(in_threads(opened, slices))
            for frames in in_threads(merged, parts):
                yield from frames

    def count(self) -> int:
        """Rows, read from the footers where a slice needs no merging, else from its key columns alone."""
        config = self.session.config
        how = merging_of(config, self.value.schema)

        def counted(found: FileSlice) -> int:
            if not found.logs:
                assert found.base is not None
                return found.base.rows
            opened = open_slice(self.session.store, found, config)
            with naming_damage(self.session.store, found):
                return kernel.count(opened, how.rule, how.columns)

        return sum(in_threads(counted, self.slices))

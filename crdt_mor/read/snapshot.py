"""From a sealed value to merged rows: the one read path of snapshots, time travel and compaction.

    value ─ completions as of ─► file slices ─ log blocks by START_COMMIT_TIME ─► merge kernel ─► frames, slice by slice

Files are opened here, blocks are decoded by `format`, rows are merged by `merge`; none of the three knows the others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

import polars as pl
import pyarrow as pa

from crdt_mor.errors import FutureSnapshotError, SnapshotExpiredError
from crdt_mor.format.base import read_footer
from crdt_mor.format.log import BlockKind, LogBlock, decode_avro, decode_deletes, read_log
from crdt_mor.merge import kernel
from crdt_mor.merge.blocks import DataBlock, DeleteBlock, Slice
from crdt_mor.model.config import TableConfig
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import Instant
from crdt_mor.model.names import LogFileName
from crdt_mor.model.schema import META_COLUMNS, TableSchema
from crdt_mor.model.slices import FileSlice, fold_slices
from crdt_mor.model.timeline import DataFile, Timeline
from crdt_mor.read.damage import check_length, is_ours, naming_damage
from crdt_mor.read.hudi_rows import split_deletes, with_key
from crdt_mor.read.merging import merging
from crdt_mor.store.base import Store
from crdt_mor.threads import in_threads
from crdt_mor.timeline.session import Session

NATURAL_ORDER = 0
"""The int 0 as ordering value of a delete that removes whatever came before: Hudi's, and our plain ones."""


def open_slice(store: Store, found: FileSlice, config: TableConfig) -> Slice:
    """The blocks of a file slice, decoded as far as the kernel needs, in START_COMMIT_TIME order."""
    logs: list[tuple[int, DataFile, LogBlock]] = []
    for order, log in enumerate(found.logs):
        data = store.view(log.path)
        if data is None:
            raise missing(log.path)
        check_length(data, log, config)
        logs += [(order, log, block) for block in read_log(data, log.path)]
    carried = [isinstance(log.name, LogFileName) and block.instant != log.name.instant for _, log, block in logs]
    of_rows = Counter(block.path for _, _, block in logs if block.kind is not BlockKind.DELETE)
    blocks: list[tuple[Instant, int, DataBlock | DeleteBlock]] = []
    for i, opened in enumerate(open_blocks([block for _, _, block in logs], carried, config)):
        order, log, block = logs[i]
        parts = opened
        if is_ours(log, config):  # the commit says how many rows there are, and no key of it is in two blocks
            continues = i > 0 and not carried[i] and _continues(block, logs[i - 1][2], config)
            height = log.rows if of_rows[block.path] == 1 else None
            parts = [replace(p, continues=continues, height=height) if isinstance(p, DataBlock) else p for p in opened]
        blocks += [(block.instant, order, part) for part in parts]
    blocks.sort(key=lambda b: (b[0], b[1]))  # stable: blocks of one file keep their order
    base = latest = None
    if found.base is not None:
        base = _base_url(store, found.base)
        latest = read_footer(base).latest_requested
    return Slice(base, latest, tuple(block for _, _, block in blocks))


def _base_url(store: Store, base: DataFile) -> str:
    if store.stat(base.path) is None:
        raise missing(base.path)
    return store.url(base.path)


def missing(path: str) -> SnapshotExpiredError:
    """A file that the timeline names is not there."""
    return SnapshotExpiredError(
        "a data file of this snapshot is gone: either a cleaner removed it, then read the latest snapshot, or it was "
        f"deleted by hand, then restore it from a backup. file={path}"
    )


def _continues(block: LogBlock, before: LogBlock, config: TableConfig) -> bool:
    """Whether a block has more whole rows of the file and commit of the one before: we write each key into one."""
    rows = block.kind is before.kind is BlockKind.PARQUET and not block.partial and not config.delete_markers
    return rows and (block.path, block.instant, block.schema) == (before.path, before.instant, before.schema)


def open_blocks(
    blocks: Sequence[LogBlock], carried: Sequence[bool], config: TableConfig
) -> list[list[DataBlock | DeleteBlock]]:
    """Log blocks as the kernel takes them. `carried`: whether the rows of each bear their own requested times."""
    deletes = iter(decode_deletes([block for block in blocks if block.kind is BlockKind.DELETE]))
    return [
        _open_deletes(block, next(deletes), config)
        if block.kind is BlockKind.DELETE
        else _open_rows(block, carry, config)
        for block, carry in zip(blocks, carried, strict=True)
    ]


def _open_rows(block: LogBlock, carry: bool, config: TableConfig) -> list[DataBlock | DeleteBlock]:
    given = _given_columns(block.schema) if block.partial else None
    rows: memoryview | pl.DataFrame = block.content
    if block.kind is BlockKind.AVRO:
        frame = pl.from_arrow(decode_avro(block, None))
        assert isinstance(frame, pl.DataFrame)
        rows = frame
    opened = DataBlock(block.instant, rows, given, own_times=carry)
    return split_deletes(with_key(opened, config), block.schema, config)


@lru_cache(maxsize=256)
def _given_columns(schema: str) -> tuple[str, ...]:
    fields = [field["name"] for field in json.loads(schema)["fields"]]
    return tuple(name for name in fields if name not in META_COLUMNS)


def _open_deletes(block: LogBlock, table: pa.Table, config: TableConfig) -> list[DataBlock | DeleteBlock]:
    merge = config.merge
    keys = pl.DataFrame({"_hoodie_record_key": pl.from_arrow(table["record_key"])})
    ordering = table["ordering"]
    if merge.kind == "latest" and not merge.hudi_commit_time and pa.types.is_string(ordering.type):
        times = pl.Series(pl.from_arrow(ordering))
        carried = bool((times != block.instant).any())  # by a compaction, each with its own requested time
        return [DeleteBlock(block.instant, keys.with_columns(time=times) if carried else keys)]
    if merge.kind != "ordering" or pa.types.is_null(ordering.type):
        return [DeleteBlock(block.instant, keys)]
    keys = keys.with_columns(ordering=pl.Series(pl.from_arrow(ordering)))
    plain = pl.col("ordering").is_null()
    if pa.types.is_int32(ordering.type) and not block.ordered:
        plain = plain | (pl.col("ordering") == NATURAL_ORDER)
    parts = [keys.filter(plain).drop("ordering"), keys.filter(~plain)]
    return [DeleteBlock(block.instant, part) for part in parts if part.height]


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
        how = merging(config, self.value.schema)

        def opened(found: FileSlice) -> list[tuple[FileSlice, Slice]]:
            if found.base is not None and not found.logs:
                return [(found, Slice(_base_url(store, found.base)))]
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
                if isinstance(files.base, str) and not found.logs:
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
        how = merging(config, self.value.schema)

        def counted(found: FileSlice) -> int:
            if not found.logs:
                assert found.base is not None
                return found.base.rows
            opened = open_slice(self.session.store, found, config)
            with naming_damage(self.session.store, found):
                return kernel.count(opened, how.rule, how.columns)

        return sum(in_threads(counted, self.slices))

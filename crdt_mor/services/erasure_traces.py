"""Find the file groups that hold some keys: current rows, overwritten rows and deletes.

A key is live if a reader sees a row of it, and dead if only files still name it, after a delete or a move.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import polars as pl

from crdt_mor.events.session import Session
from crdt_mor.format.log import read_log
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.ground.threads import groups_in_threads
from crdt_mor.merge.blocks import COMMIT_TIME, PARTITION_PATH, RECORD_KEY, DataBlock, DeleteBlock
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.names import bucket_of_file_id
from crdt_mor.model.slices import FileSlice, Slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile, FileGroup
from crdt_mor.read.fetching import columns_of
from crdt_mor.read.open_slice import open_blocks
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.store.absences import surely
from crdt_mor.write.log_files import BUCKET


@dataclass(frozen=True, slots=True)
class Traces:
    """The traces of some keys in a file group.

    Attributes:
        live: Named keys with a visible row.
        buried: Dead keys that a plain delete must name: a tombstone with an ordering value never expires.
        latest: Latest requested time of dead keys in the latest slice; EPOCH if none.
        held: True if any file holds a dead key.
    """

    group: FileGroup
    live: pl.DataFrame
    buried: pl.DataFrame
    latest: InstantTime
    held: bool

    @property
    def touched(self) -> bool:
        return self.held or bool(self.live.height)


def traces(session: Session, value: Timeline, sought: pl.DataFrame, before: InstantTime | None) -> list[Traces]:
    """Return the traces of keys in each file group that has any.

    Args:
        sought: `_hoodie_record_key`, `_hoodie_partition_path` (null: any partition) and the bucket. Other partitions
            are searched too for moved rows; live rows there are kept.
        before: Keep rows requested at or after this time; None keeps none.
    """
    snapshot = Snapshot.seal(session, value).with_expired()

    def look(history: GroupHistory) -> Traces:
        return _traces(snapshot, history, before)

    found = groups_in_threads(look, histories(snapshot, sought), attrgetter("size"), session.memory_limit)
    return [one for one in found if one.touched]


@dataclass(frozen=True, slots=True)
class GroupHistory:
    group: FileGroup
    files: Sequence[DataFile]
    slice_: FileSlice | None
    sought: pl.DataFrame

    @property
    def size(self) -> int:
        return 0 if self.slice_ is None else self.slice_.bytes


def histories(snapshot: Snapshot, sought: pl.DataFrame) -> list[GroupHistory]:
    by_bucket = {int(str(key[0])): rows for key, rows in sought.partition_by(BUCKET, as_dict=True).items()}
    found: dict[FileGroup, tuple[int, list[DataFile]]] = {}
    for completion in snapshot.session.views.completions(snapshot.value):
        for file in completion.files:
            bucket = bucket_of_file_id(file.name.file_id)
            if bucket is not None and bucket in by_bucket:
                found.setdefault(file.group, (bucket, []))[1].append(file)
    slices = {slice_.group: slice_ for slice_ in snapshot.slices}
    return [
        GroupHistory(group, files, slices.get(group), by_bucket[bucket])
        for group, (bucket, files) in sorted(found.items())
    ]


def _traces(snapshot: Snapshot, history: GroupHistory, before: InstantTime | None) -> Traces:
    session, sought, slice_ = snapshot.session, history.sought, history.slice_
    keys, path = sought[RECORD_KEY].unique(), history.group[0]
    live = _live(snapshot, slice_, keys)
    here = sought.with_columns(pl.lit(path).alias(PARTITION_PATH))
    named = here.filter(sought[PARTITION_PATH].is_null() | (sought[PARTITION_PATH] == path)).unique()
    meant = live if before is None else live.filter(pl.col(COMMIT_TIME) < before)
    dead = keys.filter(~keys.is_in(live[RECORD_KEY].implode()))
    lines = pl.concat([_NO_LINES, *(_lines(session, log, dead) for log in (slice_.logs if slice_ else ()))])
    held = bool(lines.height) or any(_holds(session, file, dead) for file in reversed(history.files))
    last = lines.group_by(RECORD_KEY).agg(
        pl.col("time").filter("ordered").max().alias("tombstone"), pl.col("time").filter("plain").max().alias("plain")
    )
    buried = last.filter(pl.col("tombstone").is_not_null() & ~(pl.col("plain") > pl.col("tombstone")).fill_null(False))
    latest = lines["time"].max()
    return Traces(
        history.group,
        named.join(meant, on=RECORD_KEY, how="semi"),
        here.unique().join(buried, on=RECORD_KEY, how="semi"),
        EPOCH if latest is None else InstantTime(str(latest)),
        held,
    )


def _live(snapshot: Snapshot, slice_: FileSlice | None, keys: pl.Series) -> pl.DataFrame:
    none = pl.DataFrame(schema={RECORD_KEY: pl.String, COMMIT_TIME: pl.String})
    one = replace(snapshot, slices=Slices(filter(None, [slice_])))
    among = pl.col(RECORD_KEY).is_in(keys.implode())
    return pl.concat([none, *one.frames(none.columns, None, finish=lambda frame: frame.filter(among))])


_NO_LINES = pl.DataFrame(schema={RECORD_KEY: pl.String, "time": pl.String, "plain": pl.Boolean, "ordered": pl.Boolean})


def _lines(session: Session, log: DataFile, keys: pl.Series) -> pl.DataFrame:
    lines = [_NO_LINES]
    for block in blocks_of(session, log) if keys.len() else ():
        if isinstance(block, DeleteBlock):
            rows, ordered = block.keys.lazy(), "ordering" in block.keys.columns
            plain, time = not ordered, "time" if "time" in block.keys.columns else None
        else:
            rows, ordered, plain = rows_of_block(block), False, False
            time = COMMIT_TIME if block.own_times else None
        found = rows.filter(pl.col(RECORD_KEY).is_in(keys.implode())).select(
            RECORD_KEY,
            (pl.lit(block.instant) if time is None else pl.col(time)).alias("time"),
            pl.lit(plain).alias("plain"),
            pl.lit(ordered).alias("ordered"),
        )
        lines.append(found.collect())
    return pl.concat(lines)


def _holds(session: Session, file: DataFile, keys: pl.Series) -> bool:
    if not keys.len():
        return False
    if not file.is_base:
        return bool(_lines(session, file, keys).height)
    among = pl.col(RECORD_KEY).is_in(keys.implode())
    return base_holds(session, file, lambda source: columns_of(source, [RECORD_KEY]).filter(among))


def base_holds(session: Session, file: DataFile, sought: Callable[[ParquetSource], pl.LazyFrame]) -> bool:
    """Return whether a base file has a row of `sought`; a file cleaned meanwhile has none."""
    source = surely(session.store, file.path, session.store.parquet)
    if source is None:
        return False
    try:
        return bool(sought(source).head(1).collect().height)
    except FileNotFoundError:
        return False


def blocks_of(session: Session, log: DataFile) -> Iterator[DataBlock | DeleteBlock]:
    data = surely(session.store, log.path, session.store.view)
    if data is None:
        return
    blocks = read_log(data, log.path)
    carried = [block.instant != log.name.instant for block in blocks]
    for parts in open_blocks(blocks, carried, session.config, log.partition):
        yield from parts


def rows_of_block(block: DataBlock) -> pl.LazyFrame:
    if isinstance(block.rows, pl.DataFrame):
        return block.rows.lazy()
    return ParquetSource.in_memory(bytes(block.rows)).scan()


def all_rows(frames: Collection[pl.DataFrame], like: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([like.clear(), *(frame.select(like.columns) for frame in frames)]).unique()

"""Find the files that hold non-null values of some columns for some keys, in live rows and in history.

A live row of the key in another partition is kept. Remains of a moved row are found too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Final

import polars as pl

from crdt_mor.events.session import Session
from crdt_mor.format.base_file import read_footer
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.ground.threads import groups_in_threads
from crdt_mor.merge.blocks import COMMIT_TIME, PARTITION_PATH, RECORD_KEY, DataBlock
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.slices import Slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile, FileGroup
from crdt_mor.read.fetching import columns_of
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.services.erasure_traces import GroupHistory, base_holds, blocks_of, histories, rows_of_block

_TIME: Final = "time"


@dataclass(frozen=True, slots=True)
class Values:
    """The values of some columns for some keys in a file group.

    Attributes:
        shown: Number of live rows with such a value.
        latest: Latest requested time of such a value in the latest slice's logs; EPOCH if none.
        held: True if any file contains such a value.
    """

    group: FileGroup
    shown: int
    latest: InstantTime
    held: bool


def values(session: Session, value: Timeline, sought: pl.DataFrame, columns: Sequence[str]) -> list[Values]:
    """Return the values in each file group that has any. sought: as in `erasure_traces.traces`."""
    snapshot = Snapshot.seal(session, value).with_expired()
    look = partial(_values, snapshot, columns=columns)
    found = groups_in_threads(look, histories(snapshot, sought), attrgetter("size"), session.memory_limit)
    return [one for one in found if one.held]


def _values(snapshot: Snapshot, history: GroupHistory, columns: Sequence[str]) -> Values:
    session, sought, path = snapshot.session, history.sought, history.group[0]
    among = pl.col(RECORD_KEY).is_in(sought[RECORD_KEY].unique().implode())
    one = replace(snapshot, slices=Slices(filter(None, [history.slice_])))
    frames = one.frames([RECORD_KEY, *columns], None, finish=lambda frame: frame.filter(among))
    live = pl.concat([pl.DataFrame(schema={RECORD_KEY: pl.String, "given": pl.Boolean}), *map(_given, frames)])
    named = sought.filter(sought[PARTITION_PATH].is_null() | (sought[PARTITION_PATH] == path))[RECORD_KEY]
    dead = sought[RECORD_KEY].filter(~sought[RECORD_KEY].is_in(live[RECORD_KEY].implode()))
    keys = pl.concat([named, dead]).unique()
    shown = live.filter(pl.col("given") & pl.col(RECORD_KEY).is_in(keys.implode())).height
    logs = history.slice_.logs if history.slice_ else ()
    times = [time for log in logs for time in _times(session, log, keys, columns)]
    held = bool(shown or times) or any(_holds(session, file, keys, columns) for file in reversed(history.files))
    return Values(history.group, shown, InstantTime(max(times, default=EPOCH)), held)


def _given(live: pl.DataFrame) -> pl.DataFrame:
    return live.select(RECORD_KEY, pl.any_horizontal(pl.exclude(RECORD_KEY).is_not_null()).alias("given"))


def _times(session: Session, log: DataFile, keys: pl.Series, columns: Sequence[str]) -> list[str]:
    times: list[str] = []
    for block in blocks_of(session, log) if keys.len() else ():
        if isinstance(block, DataBlock):
            rows = rows_of_block(block)
            held = rows.collect_schema()
            there = [name for name in columns if name in held]
            time = pl.col(COMMIT_TIME) if block.own_times else pl.lit(block.instant)
            found = _with_value(rows, keys, there).select(RECORD_KEY, time.alias(_TIME))  # a literal alone is one row
            times += found.collect()[_TIME].to_list()
    return times


def _holds(session: Session, file: DataFile, keys: pl.Series, columns: Sequence[str]) -> bool:
    if not file.is_base:
        return bool(_times(session, file, keys, columns))

    def sought(source: ParquetSource) -> pl.LazyFrame:
        held = {*read_footer(source).schema.names}
        there = [name for name in columns if name in held]
        return _with_value(columns_of(source, [RECORD_KEY, *there]), keys, there)

    return base_holds(session, file, sought)


def _with_value(rows: pl.LazyFrame, keys: pl.Series, columns: Sequence[str]) -> pl.LazyFrame:
    given = pl.any_horizontal(pl.col(name).is_not_null() for name in columns) if columns else pl.lit(False)
    return rows.filter(pl.col(RECORD_KEY).is_in(keys.implode()) & given)

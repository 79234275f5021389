"""Write base files: rows in the table's layout, encoded in row groups while the file is put."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.format.base_file import (
    CLUSTERED_ROW_GROUP_ROWS,
    ROW_GROUP_ROWS,
    base_metadata,
    incompressible_columns,
    repeating_columns,
    write_parquet,
)
from crdt_mor.format.row_groups import join_row_groups
from crdt_mor.ground.threads import in_threads
from crdt_mor.laws.merging import Merging
from crdt_mor.merge.blocks import COMMIT_TIME, PARTITION_PATH, RECORD_KEY
from crdt_mor.merge.clustering import PLACE, clustered_places
from crdt_mor.model.config import TableConfig
from crdt_mor.model.field_ids import FieldIds
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.layout import Layout
from crdt_mor.store.protocol import Chunks
from crdt_mor.write.log_files import BUCKET, avro_with_meta, stored_table, with_constants


@dataclass(slots=True)
class RowStatistics:
    rows: int = 0
    least_key: str | None = None
    greatest_key: str | None = None
    latest_requested: str = ""

    def add(self, frame: pl.DataFrame) -> None:
        if not frame.height:
            return
        self.rows += frame.height
        least, greatest = str(frame[RECORD_KEY].min()), str(frame[RECORD_KEY].max())
        self.least_key = least if self.least_key is None else min(self.least_key, least)
        self.greatest_key = greatest if self.greatest_key is None else max(self.greatest_key, greatest)
        self.latest_requested = max(self.latest_requested, str(frame[COMMIT_TIME].max()))


def shown_rows(states: pl.DataFrame, merging: Merging) -> pl.DataFrame:
    """Return rows with states and visible values in all stored columns, and their places."""
    shown = merging.rule.show(states)
    there = {*shown.columns}
    columns = [
        pl.col(name).cast(kind) if name in there else pl.lit(None, kind).alias(name)
        for name, kind in merging.columns.stored.items()
    ]
    return shown.select(RECORD_KEY, PARTITION_PATH, BUCKET, *columns)


def base_file(
    config: TableConfig,
    partition: str,
    file_name: str,
    rows: Iterable[pl.DataFrame],
    schema: TableSchema,
    ids: FieldIds,
    threads: int,
    layout: Layout,
) -> tuple[Chunks, RowStatistics]:
    """Return the chunks of a base file, encoded on demand, and its statistics, complete after the last chunk.

    file_name: the value of `_hoodie_file_name`.
    rows: the stored columns of `schema` and Hudi's varying columns, sorted by key; at least one frame.
    ids: of a version's columns; see `with_field_ids` for columns that no version has yet.
    """
    statistics = RowStatistics()
    constants = {"_hoodie_partition_path": partition, "_hoodie_file_name": file_name}
    columns = [*(column for column in META_COLUMNS if column not in constants), *schema.stored.names]

    def row_groups() -> Iterator[pl.DataFrame]:
        for frame in _arranged(rows, layout):
            statistics.add(frame)
            yield frame

    lookup = None if layout.by_key else RECORD_KEY  # in key order, statistics are more selective

    def encode(frame: pl.DataFrame) -> memoryview:
        table = with_constants(stored_table(frame.select(columns), schema), constants)
        repeating = repeating_columns(frame)
        return write_parquet(
            table, row_group_rows=max(1, frame.height), codec=layout.compression, repeating=repeating,
            uncompressed=incompressible_columns(frame, repeating, layout.compression), lookup=lookup,
            ids=ids,
        )  # fmt: skip

    def metadata() -> dict[str, str]:
        return base_metadata(
            min_record_key=statistics.least_key,
            max_record_key=statistics.greatest_key,
            avro_schema=avro_with_meta(schema, config.name),
            latest_requested=InstantTime(statistics.latest_requested) if statistics.rows else EPOCH,
            order=str(layout),
        )

    return join_row_groups(in_threads(encode, row_groups(), threads), metadata), statistics


def _arranged(rows: Iterable[pl.DataFrame], layout: Layout) -> Iterator[pl.DataFrame]:
    """Yield key-sorted rows as row groups in the order of `layout`.

    Any other order than the keys' holds all rows in memory.
    """
    if layout.by_key:
        yield from _row_groups(rows, ROW_GROUP_ROWS)
        return
    whole = pl.concat(rows, rechunk=False)
    places = clustered_places(whole, layout)
    yield from (whole[part[PLACE]] for part in _row_groups([places.to_frame()], CLUSTERED_ROW_GROUP_ROWS))


def _row_groups(frames: Iterable[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """Yield even slices of about `rows` rows; without rows, one empty frame."""
    empty, has_rows = pl.DataFrame(), False
    for frame in frames:
        if not frame.height:
            empty = frame
            continue
        count = max(1, round(frame.height / rows))
        yield from frame.iter_slices(-(-frame.height // count))
        has_rows = True
    if not has_rows:
        yield empty

"""Check a base file page by page: bytes, footer, row order, statistics and Bloom filters.

Memory holds a row group, and all keys of a file not sorted by key.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.errors import FormatError
from crdt_mor.format import bloom
from crdt_mor.format.base_file import AVRO_SCHEMA, MAX_RECORD_KEY, MIN_RECORD_KEY, Footer, read_footer
from crdt_mor.ground.late_imports import pc
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.laws.merging import Merging
from crdt_mor.merge.blocks import COMMIT_TIME, PARTITION_PATH, RECORD_KEY
from crdt_mor.model.instant import EPOCH
from crdt_mor.model.layout import BY_KEY
from crdt_mor.model.names import LOG_COMPACT, BaseFileName
from crdt_mor.model.timeline_parts import Completion, DataFile
from crdt_mor.services.verify_rows import Faults, ask_states
from crdt_mor.services.verify_schema import ids_fault, metadata_fault, schema_fault
from crdt_mor.services.verify_told import Schemas

_FILE_NAME: Final = "_hoodie_file_name"


@dataclass(slots=True)
class _Totals:
    rows: int = 0
    last: str | None = None
    least: str | None = None
    greatest: str | None = None
    latest: str = ""
    keys: list[pl.Series] = field(default_factory=list)


def ask_base(
    source: ParquetSource, file: DataFile, commit: Completion, merging: Merging, schemas: Schemas, faults: Faults
) -> None:
    """Check all of our base file. commit: its writer. Raises `FileNotFoundError` if it is gone."""
    with faults.reading("Parquet"):
        footer = read_footer(source)
        if (wrong := metadata_fault(footer, schemas)) is not None:
            faults.note("footer", wrong)
        elif (wrong := schema_fault(footer.metadata[AVRO_SCHEMA], footer.schema)) is not None:
            raise FormatError(wrong)
        elif (wrong := ids_fault(footer.schema, schemas.ids)) is not None:
            faults.note("footer", wrong)
        chunks = source.metadata()
        totals = _Totals()
        with source.open_checked() as parquet:
            for number in range(chunks.num_row_groups):
                rows = parquet.read_row_group(number)
                _ask_statistics(chunks.row_group(number), rows, faults)
                _ask_rows(rows, file, commit, footer, totals, faults)
                if faults.is_fatal:
                    return
                ask_states(merging, pl.DataFrame(pl.from_arrow(rows)), faults)
                _ask_filter(source, chunks, number, rows, faults)
    if not faults.is_fatal:
        _ask_end(file, footer, totals, faults)


def ask_base_of_hudi(source: ParquetSource, faults: Faults) -> None:
    # Hudi uses types that pyarrow lacks; the merge reports them.
    with faults.reading("Parquet"), suppress(pa.ArrowNotImplementedError), source.open_checked() as parquet:
        for number in range(parquet.metadata.num_row_groups):
            parquet.read_row_group(number)


def _ask_rows(
    rows: pa.Table, file: DataFile, commit: Completion, footer: Footer, totals: _Totals, faults: Faults
) -> None:
    if not rows.num_rows:
        return
    meta = pl.DataFrame(pl.from_arrow(rows.select([COMMIT_TIME, RECORD_KEY, PARTITION_PATH, _FILE_NAME])))
    keys = meta[RECORD_KEY]
    for path in meta[PARTITION_PATH].unique():
        if path != file.partition:
            faults.fail("another file", f"rows of another partition. found={path!r}")
    for name in meta[_FILE_NAME].unique():
        if not _is_name_of(str(name), file, commit):
            faults.fail("another file", f"rows of another file. found={name!r}")
    latest = str(meta[COMMIT_TIME].max())
    totals.latest = max(totals.latest, latest)
    if commit.overwriting is not None and (latest, str(meta[COMMIT_TIME].min())) != (commit.overwriting.write,) * 2:
        faults.fail("another file", f"rows of another write. write={commit.overwriting.write} found={latest}")
    elif latest > file.name.instant:
        faults.note("time", f"a row's commit was requested after the file was planned. found={latest}")
    least, greatest = str(keys.min()), str(keys.max())
    totals.least = least if totals.least is None else min(totals.least, least)
    totals.greatest = greatest if totals.greatest is None else max(totals.greatest, greatest)
    if footer.order == str(BY_KEY):
        _ask_order(keys, totals, faults)
    else:
        totals.keys.append(keys)
    totals.rows += rows.num_rows


def _ask_order(keys: pl.Series, totals: _Totals, faults: Faults) -> None:
    before = pl.Series([totals.last], dtype=pl.String).append(keys)[:-1]
    for check, wrong in (("key order", before > keys), ("key twice", before == keys)):
        places = wrong.fill_null(False).arg_true()
        if len(places):
            at = places[0]
            faults.note(check, f"the rows must ascend by key. key={keys[at]!r} after={before[at]!r}", len(places))
    totals.last = keys[-1]


def _is_name_of(name: str, file: DataFile, commit: Completion) -> bool:
    """Return True if the rows of a file may contain this file name.

    A copied base file keeps the old name; rows written before the name was known have only the file id.
    """
    if name == (str(file.name) if commit.overwriting is None else file.name.file_id):
        return True
    if commit.operation != LOG_COMPACT:
        return False
    parsed = BaseFileName.parse(name)
    is_older = parsed is not None and parsed.file_id == file.name.file_id and parsed.instant < file.name.instant
    return is_older or name == file.name.file_id


def _ask_end(file: DataFile, footer: Footer, totals: _Totals, faults: Faults) -> None:
    if totals.rows != file.rows:
        faults.note("rows", f"the number of rows differs from the commit. rows={file.rows} found={totals.rows}")
    said = footer.metadata.get(MIN_RECORD_KEY), footer.metadata.get(MAX_RECORD_KEY)
    if said != (totals.least, totals.greatest):
        faults.note(
            "footer", f"the footer's keys differ from the rows. keys={said} found={(totals.least, totals.greatest)}"
        )
    latest = footer.latest_requested
    if latest is not None and latest != (totals.latest or EPOCH):
        faults.note("footer", f"the footer's latest requested time is wrong. latest={latest} found={totals.latest}")
    if totals.keys:
        keys = pl.concat(totals.keys)
        twice = keys.filter(keys.is_duplicated())
        if len(twice):
            faults.note("key twice", f"several rows contain a key. key={twice[0]!r}", len(twice))


def _ask_statistics(group: pq.RowGroupMetaData, rows: pa.Table, faults: Faults) -> None:
    for number in range(group.num_columns):
        chunk = group.column(number)
        statistics = chunk.statistics
        if "." in chunk.path_in_schema or statistics is None:
            continue
        column = rows[chunk.path_in_schema]
        if statistics.has_null_count and statistics.null_count != column.null_count:
            faults.note("statistics", f"the number of nulls is wrong. column={chunk.path_in_schema}")
        elif statistics.has_min_max and (said := _out_of_range(statistics, column)):
            faults.note("statistics", f"a value is out of range. column={chunk.path_in_schema} {said}")


def _out_of_range(statistics: pq.Statistics, column: pa.ChunkedArray) -> str:
    """Return the statistics' ends if they exclude a value of the column, else ""."""
    try:
        ends = pc.min_max(column).as_py()
    except (pa.ArrowException, ValueError, OverflowError):  # without an order, or beyond Python's values
        return ""
    if ends["min"] is None:
        return ""
    try:
        least, greatest = statistics.min, statistics.max
    except (pa.ArrowException, TypeError):
        return ""
    except (ValueError, OverflowError):  # no value of the type, such as bytes that are no text
        return f"min={statistics.min_raw!r} max={statistics.max_raw!r}"
    try:
        return f"min={least!r} max={greatest!r}" if ends["min"] < least or ends["max"] > greatest else ""
    except TypeError:
        return ""


def _ask_filter(source: ParquetSource, footer: pq.FileMetaData, number: int, rows: pa.Table, faults: Faults) -> None:
    keys = rows[RECORD_KEY].combine_chunks()
    wrong = bloom.denied(source, footer, number, RECORD_KEY, keys)
    if wrong:
        faults.note("Bloom filter", f"the filter excludes keys of the file. row_group={number}", wrong)

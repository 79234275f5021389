"""Parquet for Hudi's readers: base files, and the blocks of log files.

- No Arrow schema in the footer: hudi-rs refuses log blocks with large, view or dictionary types in it.
- Lists and maps in three levels, timestamps in microseconds of UTC, decimals in as few fixed bytes as possible: Spark
  and hudi-rs expect these.
- Row groups of about 131,072 rows, so readers decode them in parallel.
- Number columns that do not shrink are not compressed, which decodes faster.
- Each page has a CRC: nothing else detects a changed byte of a number.
- A dictionary only where values repeat: dictionaries are most of the cost of writing.
- Everything else is plain: Flink refuses encodings besides plain and dictionary (figures in benches/README.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.columns.kinds import kind_of
from crdt_mor.errors import FormatError, UnsupportedFeatureError
from crdt_mor.format import bloom
from crdt_mor.ground.parquet import ParquetSource, is_of_system, not_read
from crdt_mor.model.field_ids import FieldIds, with_field_ids
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.layout import BY_KEY, ZSTD

ROW_GROUP_ROWS: Final = 131_072
CLUSTERED_ROW_GROUP_ROWS: Final = 32_768
"""Rows per row group in a clustered base file: fewer, so filters skip more."""
MIN_RECORD_KEY: Final = "hoodie_min_record_key"
MAX_RECORD_KEY: Final = "hoodie_max_record_key"
AVRO_SCHEMA: Final = "parquet.avro.schema"
LATEST_REQUESTED: Final = "crdt_mor.latest_requested"
ORDER: Final = "crdt_mor.order"
"""The order of the rows, as text of `Layout`, unless by key."""

CALENDAR: Final = {"org.apache.spark.version": "3.5.6"}
"""Metadata that marks dates and times as proleptic Gregorian, the calendar of Spark 3.

Spark 2 and Hive used other calendars before 1582-10-15 (dates) and 1900 (moments). Spark 3 refuses such values in a
file that names no Spark version (READ_ANCIENT_DATETIME). It reads a file unchanged if the file names Spark 3.0.0 or
later (INT96: 3.1.0) and lacks the key `org.apache.spark.legacyDateTime`.

Source: `datetimeRebaseSpec` and `int96RebaseSpec` in `DataSourceUtils.scala` of Spark 3.5.
"""

_ALWAYS_REPEAT: Final = frozenset({"_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_file_name"})
_NEVER_REPEAT: Final = frozenset({"_hoodie_commit_seqno", "_hoodie_record_key"})
_NEVER_FILTERED: Final = frozenset({"_hoodie_commit_seqno", "_hoodie_partition_path", "_hoodie_file_name"})
"""Readers never skip rows by these columns, so they have no statistics."""
VIEWS: Final = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}
"""Stored types and the view types that polars uses; both have equal bytes in a file."""
_SAMPLE_ROWS: Final = 1_024
REPEATS_MIN: Final = 8
"""The smallest average number of repetitions per value among rows that share a dictionary. In a row group of
131,072 rows, 10,000 prices decode twice as fast from a dictionary. 20,000 numbers do too, but take more bytes and
more time to encode.
"""
_JUDGED_FOR_WRITES: Final = 32
_JUDGEMENTS_MAX: Final = 64

_ZSTD_LEVEL: Final = 1
_RUN_ROWS: Final = 8_192
"""The number of neighbouring values that are compressed as a sample."""
_RATIO_MAX: Final = 0.9
"""A column that keeps more than this share of its bytes is not compressed, because decompression costs most of
decoding.
"""


@dataclass(frozen=True, slots=True)
class Footer:
    rows: int
    schema: pa.Schema
    metadata: Mapping[str, str]

    @property
    def latest_requested(self) -> InstantTime | None:
        """The latest requested time among the commits in this base file; None for Hudi's."""
        text = self.metadata.get(LATEST_REQUESTED)
        return InstantTime(text) if text else None

    @property
    def order(self) -> str:
        """The order of the rows, as text of `Layout`."""
        return self.metadata.get(ORDER, str(BY_KEY))


def base_metadata(
    *,
    min_record_key: str | None,
    max_record_key: str | None,
    avro_schema: str,
    latest_requested: InstantTime | None,
    order: str = str(BY_KEY),
) -> dict[str, str]:
    """Build the key-value metadata of a base file. A file without rows has no least and greatest key."""
    metadata = {AVRO_SCHEMA: avro_schema, **CALENDAR}
    if min_record_key is not None and max_record_key is not None:
        metadata |= {MIN_RECORD_KEY: min_record_key, MAX_RECORD_KEY: max_record_key}
    if latest_requested is not None:
        metadata[LATEST_REQUESTED] = latest_requested
    if order != str(BY_KEY):
        metadata[ORDER] = order
    return metadata


def write_parquet(
    rows: pa.Table,
    *,
    row_group_rows: int = ROW_GROUP_ROWS,
    codec: str = ZSTD,
    repeating: Sequence[str] = (),
    uncompressed: Sequence[str] = (),
    log_block: bool = False,
    lookup: str | None = None,
    ids: FieldIds | None = None,
) -> memoryview:
    """Encode `rows`, in stored types, as a Parquet file without metadata, in this thread.

    codec: the codec of a base file, as `Layout` names it.
    repeating: columns worth a dictionary, besides the meta columns.
    uncompressed: columns of a base file that do not shrink.
    log_block: lz4 and no statistics, because readers need every row and compaction soon rewrites it.
    lookup: a column of distinct values that gets a Bloom filter.
    ids: the ids of a base file's columns.
    """
    for item in rows.schema:
        ready = item.type in VIEWS.values() or (item.name in _ALWAYS_REPEAT and pa.types.is_dictionary(item.type))
        assert ready or _storable(item.type), f"not a stored type: {item.name} is {item.type}"
    sink = pa.BufferOutputStream()
    rows = rows.replace_schema_metadata(None)
    bloom_filter = {} if lookup is None else bloom.options(lookup, min(rows.num_rows, row_group_rows))
    options = _options(rows, repeating, uncompressed, None if log_block else codec)
    columns = rows.schema if ids is None else with_field_ids(rows.schema, ids)
    with pq.ParquetWriter(sink, columns, **options, **bloom_filter) as writer:
        writer.write_table(rows, row_group_size=row_group_rows)
    return memoryview(sink.getvalue())


def _options(
    rows: pa.Table, repeating: Sequence[str], uncompressed: Sequence[str], codec: str | None
) -> dict[str, Any]:
    log_block, schema = codec is None, rows.schema
    repeats = _ALWAYS_REPEAT.union(repeating) if rows.num_rows >= REPEATS_MIN else ()
    others = {*uncompressed}
    columns = () if log_block else [item for item in schema if item.name not in others]
    compressed = [leaf for item in columns for leaf in _leaves(item.type, item.name)]
    return {
        "compression": "lz4" if log_block else dict.fromkeys(compressed, codec),
        "compression_level": dict.fromkeys(compressed, _ZSTD_LEVEL) if codec == ZSTD else None,
        "use_dictionary": [name for name in schema.names if name in repeats],
        "write_statistics": [] if log_block else [name for name in schema.names if _is_filtered(rows, name)],
        "write_page_index": not log_block,
        "write_page_checksum": True,
        "store_schema": False,
        "use_compliant_nested_type": True,
        "version": "2.6",
    }


def _is_filtered(rows: pa.Table, name: str) -> bool:
    """Return True for a column with statistics. They omit NaN, so Spark and DuckDB would miss it in `x > 5`."""
    if name in _NEVER_FILTERED or not pa.types.is_floating(rows.schema.field(name).type):
        return name not in _NEVER_FILTERED
    from pyarrow.compute import is_nan

    return not any(is_nan(chunk).true_count for chunk in rows[name].chunks)


def _leaves(type_: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_list(type_):
        yield from _leaves(type_.value_type, f"{path}.list.element")
    elif pa.types.is_map(type_):
        yield from _leaves(type_.key_type, f"{path}.key_value.key")
        yield from _leaves(type_.item_type, f"{path}.key_value.value")
    elif pa.types.is_struct(type_):
        for i in range(type_.num_fields):
            yield from _leaves(type_.field(i).type, f"{path}.{type_.field(i).name}")
    else:
        yield path


def read_footer(source: ParquetSource) -> Footer:
    """Read the footer of a Parquet file.

    Raises FileNotFoundError, `FormatError` for damage, or `StorageUnavailableError` if the system fails.
    """
    try:
        with source.open() as file:
            parsed = file.metadata
            stored = file.schema_arrow.remove_metadata()
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        if is_of_system(error):
            raise not_read(error, source.name) from error
        refuse_encrypted(error, source.name)
        raise FormatError(
            "damaged Parquet file. Restore it from a copy, or restore the table to a commit before it. "
            f"path={source.name} error={error}"
        ) from error
    metadata = {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in (parsed.metadata or {}).items()
        if key != b"ARROW:schema"
    }
    return Footer(parsed.num_rows, stored, metadata)


def refuse_encrypted(error: Exception, path: str, source: ParquetSource | None = None) -> None:
    """Raise `UnsupportedFeatureError` if `error` came from an encrypted Parquet file.

    Some releases of polars only report unknown bytes; then Arrow is asked about `source`.
    """
    said = f"{error} {'' if source is None else _what_arrow_says(source)}"
    if re.search("encrypted (metadata|footer)|Encryption error|Cannot decrypt", said):
        raise UnsupportedFeatureError(
            f"this Parquet file is encrypted, which this release does not read: use Hudi's own reader. path={path}"
        ) from error


def _what_arrow_says(source: ParquetSource) -> str:
    try:
        with source.open() as file:
            file.read()
    except (pa.ArrowException, OSError, ValueError) as error:
        return str(error)
    return ""


@lru_cache(maxsize=1024)
def _storable(type_: pa.DataType) -> bool:
    """Return True if Hudi's readers accept pyarrow's encoding of this type."""
    if pa.types.is_list(type_):
        return _storable(type_.value_type)
    if pa.types.is_struct(type_):
        return type_.num_fields > 0 and all(_storable(type_.field(index).type) for index in range(type_.num_fields))
    if pa.types.is_map(type_):
        return type_.key_type == pa.string() and _storable(type_.item_type)
    return kind_of(type_).is_stored(type_)


def repeating_columns(rows: pl.DataFrame, together: int = ROW_GROUP_ROWS) -> tuple[str, ...]:
    """Return the columns worth a dictionary, judged by a sample, without meta columns.

    together: the largest number of rows that share a dictionary.
    """
    most = min(rows.height, together) // REPEATS_MIN
    if not most:
        return ()
    meta = _ALWAYS_REPEAT | _NEVER_REPEAT
    candidates = [n for n, kind in rows.schema.items() if n not in meta and not kind.is_nested() and kind != pl.Boolean]
    sample = rows.select(candidates)
    if rows.height > 2 * _SAMPLE_ROWS:
        sample = sample[np.minimum(_chances() * rows.height, rows.height - 1).astype(np.int64)]
    return tuple(name for name in candidates if _distinct_values(sample[name], rows.height) <= most)


class Judgements:
    """The results of `repeating_columns`, computed for every few small writes.

    A writer's rows are alike, and judging them costs a tenth of a write. Thread-safe.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[tuple[str, ...], int]] = {}

    def repeating(self, rows: pl.DataFrame, together: int) -> tuple[str, ...]:
        """Return `repeating_columns` of these rows, or of as many earlier rows with the same columns."""
        kind = (*rows.schema.items(), min(rows.height, together).bit_length())
        columns, left = self._known.get(kind, ((), 0))
        if not left:
            columns, left = repeating_columns(rows, together), _JUDGED_FOR_WRITES
        if len(self._known) > _JUDGEMENTS_MAX:
            self._known.clear()
        self._known[kind] = columns, left - 1
        return columns


def incompressible_columns(rows: pl.DataFrame, repeating: Sequence[str], codec: str = ZSTD) -> tuple[str, ...]:
    """Return the number, date and time columns besides `repeating` that do not shrink, by a sample."""
    run = rows.slice(max(0, rows.height - _RUN_ROWS) // 2, _RUN_ROWS)
    kept = {*repeating}
    names = [name for name, kind in rows.schema.items() if name not in kept and _has_numbers(kind)]
    numbers = run.select(pl.col(names).to_physical().drop_nulls().implode())  # a call per column takes longer
    compressor = pa.Codec("zstd", compression_level=_ZSTD_LEVEL) if codec == ZSTD else pa.Codec("lz4_raw")
    return tuple(values.name for values in numbers if not _gets_smaller(values[0], compressor))


def _has_numbers(kind: pl.DataType) -> bool:
    return kind.is_temporal() or kind.is_float() or kind.is_integer()


def _gets_smaller(values: pl.Series, compressor: pa.Codec) -> bool:
    data = values.to_numpy().tobytes()
    return len(compressor.compress(data)) <= _RATIO_MAX * len(data)


@cache
def _chances() -> npt.NDArray[np.float64]:
    """Return the sample's positions, as fractions of the rows: spread, because values may come in runs or periods.

    They are always the same, so equal rows give equal files (SplitMix64, Steele et al. 2014).
    """
    state = np.arange(1, _SAMPLE_ROWS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (state ^ (state >> np.uint64(31))).astype(np.float64) / 2.0**64


def _distinct_values(sample: pl.Series, rows: int) -> int:
    """Estimate the number of distinct values in a column from a sample: Chao's lower bound (Chao 1984)."""
    classes = np.bincount(sample.unique_counts().to_numpy(), minlength=3)  # how many values occur so often
    seen, once, twice = int(classes.sum()), int(classes[1]), int(classes[2])
    if len(sample) == rows:
        return seen
    return seen + (once * once // (2 * twice) if twice else once * (once - 1) // 2)

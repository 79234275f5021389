"""Sources of a first load: files and folders, tables of other formats, and Arrow data.

    "data/*.parquet", "data/"       Parquet; below a folder or a pattern, levels like `day=2026-01-31` are columns
    "s3://lake/data/"               the same in a bucket, also for Delta Lake and Iceberg tables
    "new.csv", ["a.csv", "b.csv"]   formats of `read_files`
    a folder with `_delta_log`      Delta Lake, with deltalake; also a `DeltaTable`
    a folder with Iceberg metadata  Apache Iceberg, with pyiceberg; also its tables and scans
    anything else                   data of `Table.upsert`

All sources yield batches, so no source must fit in memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import polars as pl
import pyarrow as pa

from crdt_mor.api.data import Data, ordinary, read_schema, require_data
from crdt_mor.api.files import files_at, fitted, reading, require_columns, require_differ, require_sound, unreadable
from crdt_mor.api.files_int96 import UNIT, ExactFiles, ParquetFile
from crdt_mor.api.files_places import Places, iceberg_properties, is_same, require_known
from crdt_mor.api.rows import ArrowRows, in_types
from crdt_mor.columns.arrow_input import read_arrow
from crdt_mor.columns.renames import NONE, Renames
from crdt_mor.errors import CrdtMorError, InvalidInputError, UnsupportedFeatureError

LoadSource: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Data | Any
"""`Any` stands for tables of Delta Lake and Iceberg, which are optional packages."""

BATCH_ROWS: Final = 65_536
"""Rows per batch, for sources with a batch size."""

_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

_PANIC: Final = "PanicException"
"""Fatal errors of Rust libraries; not an `Exception`."""

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
"""Colour codes in some libraries' messages."""


@dataclass(frozen=True, slots=True)
class Source:
    """Rows in batches.

    Attributes:
        name: for messages.
        rows: number of rows, if known.
        batches: yields the rows; called once.
    """

    name: str
    schema: pa.Schema
    rows: int | None
    batches: Callable[[], Iterable[pa.RecordBatch]]

    def read(self) -> Iterator[pa.RecordBatch]:
        batches = self._started()
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except CrdtMorError:
                raise
            except (pa.ArrowException, pl.exceptions.PolarsError, OSError, ValueError) as error:
                raise self._unreadable(error) from error
            yield batch

    def _started(self) -> Iterator[pa.RecordBatch]:
        yield from self.batches()

    def _unreadable(self, error: Exception) -> InvalidInputError:
        cause = next(iter(str(error).splitlines()), type(error).__name__)
        return InvalidInputError(f"reading the source failed. source={self.name} cause={cause}")


def open_source(source: object, types: pa.Schema | None, uri: str, places: Places, renames: Renames = NONE) -> Source:
    """Open a source, or raise `InvalidInputError`.

    Args:
        types: the table's column types, to parse text formats.
        uri: the new table's address, which must differ from the source's.
    """
    own = _opened_source(source, renames.back(types), uri, places)
    if not renames.names:
        return own
    return replace(own, schema=renames.schema(own.schema), batches=lambda: map(renames.batch, own.batches()))


def _opened_source(source: object, types: pa.Schema | None, uri: str, places: Places) -> Source:
    if isinstance(source, ArrowRows) and types is not None:
        source = in_types(source, lambda: types)
    if isinstance(source, str | os.PathLike):
        return _at(_named(source), types, uri, places)
    if isinstance(source, list | tuple) and source and all(isinstance(p, str | os.PathLike) for p in source):
        return _files([_named(path) for path in source], None, types, places)
    library = type(source).__module__.partition(".")[0]
    if library == "deltalake":
        return _delta(lambda: source, getattr(source, "table_uri", ""))
    if library == "pyiceberg":
        return _iceberg(lambda: source, "")
    return _arrow(source)


def _named(path: str | os.PathLike[str]) -> str:
    return os.path.expanduser(os.fsdecode(path)).rstrip("/") or "/"


# --- files ------------------------------------------------------------------------------------------------------------


def _at(path: str, types: pa.Schema | None, uri: str, places: Places) -> Source:
    require_known(path)
    if places.is_folder(f"{path}/_delta_log"):
        library = _library("deltalake", "delta", "Delta Lake", path)
        return _delta(lambda: library.DeltaTable(path, storage_options=places.options_of(path) or None), path)
    found = places.below(f"{path}/metadata", ".metadata.json")
    metadata = [file for file in found if os.path.dirname(file) == f"{path}/metadata"]
    if metadata:
        tables = _library("pyiceberg.table", "iceberg", "Apache Iceberg", path)
        newest = max(metadata, key=lambda file: _written(file, places))
        properties = iceberg_properties(places.options_of(path))
        return _iceberg(lambda: tables.StaticTable.from_metadata(newest, properties), path)
    if places.is_file(f"{path}/.hoodie/hoodie.properties"):
        raise InvalidInputError(f"this folder is a Hudi table: pass Table({path!r}) instead. path={path}")
    if os.path.exists(path) and not os.path.isdir(path):
        return _files([path], None, types, places)
    if places.is_folder(path):
        if is_same(path, uri):
            raise InvalidInputError(f"the new table needs a folder of its own: choose another address. path={path}")
        found = _visible(places.below(path, ".parquet"), path)
        if not found:
            raise InvalidInputError(f"the folder contains no Parquet files: pass the files' names. path={path}")
        return _files(found, path, types, places)
    if places.is_file(path):
        return _files([path], None, types, places)
    fixed = re.split(r"[*?\[]", path)[0].rpartition("/")[0]
    return _files(places.matching(path) or [path], fixed, types, places)


def _written(metadata: str, places: Places) -> tuple[int, float, str]:
    """Return the sort key of an Iceberg metadata file: its number, then its age."""
    number = re.match(r"v?(\d+)", os.path.basename(metadata))
    return int(number[1]) if number else -1, places.modified(metadata), metadata


def _visible(files: Iterable[str], folder: str) -> list[str]:
    """Drop files below names that begin with `_` or `.`: writers keep private files there."""
    return sorted(file for file in files if not re.search(r"(^|/)[_.][^/=]*(/|$)", os.path.relpath(file, folder)))


def _files(paths: list[str], folder: str | None, types: pa.Schema | None, places: Places) -> Source:
    rows = files_at(paths, types, places, NONE)
    name = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more files"
    if not all(path.lower().endswith(".parquet") for path in rows.paths):
        return Source(name, ordinary(rows.schema), None, rows.to_reader)
    parquet = _ParquetFiles.of(rows.paths, folder, places)
    return Source(name, parquet.schema, parquet.rows, parquet.batches)


@dataclass(frozen=True, slots=True)
class _ParquetFiles:
    paths: tuple[str, ...]
    schema: pa.Schema
    rows: int
    folder_texts: tuple[dict[str, str | None], ...]
    places: Places

    @classmethod
    def of(cls, paths: tuple[str, ...], folder: str | None, places: Places) -> _ParquetFiles:
        """Read all footers, to refuse files with other columns before the load begins."""
        own: pa.Schema | None = None
        rows = 0
        for path in paths:
            try:
                with ParquetFile(places.source(path)) as file:
                    require_sound(file.schema)
                    found, count = ordinary(file.schema), file.num_rows
                require_differ(found, path)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise unreadable(path, error) from error
            own = found if own is None else own
            require_columns(found, own, path, paths[0])
            rows += count
        assert own is not None
        texts = [_levels(path, folder) for path in paths]
        columns = [name for name in texts[0] if name not in own.names]
        odd = next((i for i, levels in enumerate(texts) if list(levels) != list(texts[0])), None)
        if odd is not None:
            raise InvalidInputError(
                "the folders of the files name different columns: load these files separately. "
                f"file={paths[odd]} levels={list(texts[odd])} first={list(texts[0])}"
            )
        kinds = {name: _kind(levels[name] for levels in texts) for name in columns}
        schema = pa.schema([*own, *(pa.field(name, kind) for name, kind in kinds.items())])
        folder_texts = tuple({name: levels[name] for name in kinds} for levels in texts)
        return cls(paths, schema, rows, folder_texts, places)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for path, texts in zip(self.paths, self.folder_texts, strict=True):
            own = pa.schema([field for field in self.schema if field.name not in texts])
            with self._opened(path) as file:
                for batch in reading(path, file.batches(BATCH_ROWS)):
                    yield from self._whole(fitted(batch, own, path), texts)

    def _opened(self, path: str) -> ParquetFile:
        try:
            return ParquetFile(self.places.source(path))
        except (pa.ArrowException, OSError) as error:
            raise unreadable(path, error) from error

    def _whole(self, rows: pa.Table, texts: dict[str, str | None]) -> list[pa.RecordBatch]:
        for name, text in texts.items():
            value = pa.scalar(text, pa.string()).cast(self.schema.field(name).type)
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        return rows.to_batches()  # type: ignore[no-any-return]


def _levels(path: str, folder: str | None) -> dict[str, str | None]:
    if folder is None:
        return {}
    levels = os.path.relpath(os.path.dirname(path) or ".", folder or ".").split(os.sep)
    pairs = [level.partition("=") for level in levels if "=" in level]
    return {unquote(name): None if value == _HIVE_NULL else unquote(value) for name, _, value in pairs}


def _kind(texts: Iterable[str | None]) -> pa.DataType:
    """Infer integers, dates or text, as polars and DuckDB do for folder names."""
    known = [text for text in texts if text is not None]
    if known and all(re.fullmatch(r"0|-?[1-9]\d{0,17}", text) for text in known):
        return pa.int64()
    with suppress(ValueError):
        if known and all(len(text) == 10 and date.fromisoformat(text) for text in known):
            return pa.date32()
    return pa.string()


# --- tables of other formats ------------------------------------------------------------------------------------------


def _library(module: str, extra: str, format: str, path: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise UnsupportedFeatureError(
            f"reading a {format} table needs {module.partition('.')[0]}: pip install 'crdt-mor[{extra}]'. path={path}"
        ) from error


def _delta(opened: Callable[[], Any], path: str) -> Source:
    from pyarrow.dataset import ParquetReadOptions

    name = f"Delta Lake {path}".strip()
    with _translated_errors(name):
        exact = ParquetReadOptions(coerce_int96_timestamp_unit=UNIT)
        dataset = opened().to_pyarrow_dataset(parquet_read_options=exact)
        return Source(
            name, ordinary(dataset.schema), dataset.count_rows(), lambda: _translating(name, _scanned(dataset))
        )


def _iceberg(opened: Callable[[], Any], path: str) -> Source:
    name = f"Apache Iceberg {path}".strip()
    with _translated_errors(name):
        table = opened()
        scan = table.scan() if hasattr(table, "scan") else table
        scan = scan.update(io=ExactFiles(scan.io))
        reader = scan.to_arrow_batch_reader()
        return Source(name, ordinary(reader.schema), scan.count(), lambda: _translating(name, reader))


def _translating(name: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with _translated_errors(name):
        yield from batches


@contextmanager
def _translated_errors(name: str) -> Iterator[None]:
    """Convert all errors of a format's library, including panics, to errors with the table's name."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, CrdtMorError) or not (isinstance(error, Exception) or type(error).__name__ == _PANIC):
            raise
        lines = (line.strip() for line in _COLOURS.sub("", str(error)).splitlines())
        cause = next((line for line in lines if line), type(error).__name__)
        raise InvalidInputError(
            "the library of this table format failed: files may be missing or damaged, or the table may use deletion "
            "vectors or column mapping. Read the table with another engine and pass its rows. "
            f"source={name} cause={cause[:300]}"
        ) from error


# --- Arrow ------------------------------------------------------------------------------------------------------------


def _arrow(source: Any) -> Source:
    name = type(source).__name__
    if hasattr(source, "scan") and hasattr(source, "maintenance"):
        source = source.scan()  # a table of ours
    require_data(source)
    if isinstance(source, ArrowRows):
        return Source(name, source.schema, None, source.to_reader)
    if isinstance(source, pl.LazyFrame):
        return Source(name, read_schema(source), None, lambda: _collected(source))
    if hasattr(source, "scanner") or (hasattr(source, "to_reader") and hasattr(source, "count_rows")):
        schema = source.schema if hasattr(source, "scanner") else source.projected_schema
        return Source(name, schema.remove_metadata(), source.count_rows(), lambda: _scanned(source))
    if isinstance(source, pa.RecordBatchReader):
        return Source(name, source.schema.remove_metadata(), None, lambda: source)
    if isinstance(source, pa.Table | pa.RecordBatch | pl.DataFrame) or type(source).__module__.startswith("pandas"):
        rows = read_arrow(source)
        columns = read_schema(source) if isinstance(source, pl.DataFrame) else rows.schema.remove_metadata()
        return Source(name, columns, rows.num_rows, lambda: rows.to_batches(BATCH_ROWS))
    if hasattr(source, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(source)
        return Source(name, ordinary(reader.schema), None, lambda: reader)
    rows = read_arrow(source)
    return Source(name, ordinary(rows.schema), rows.num_rows, rows.to_batches)


def _scanned(source: Any) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a dataset with little read-ahead, because batches may be large."""
    if hasattr(source, "scanner"):
        source = source.scanner(batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1)
    yield from source.to_reader()


def _collected(frame: pl.LazyFrame) -> Iterator[pa.RecordBatch]:
    for part in frame.collect_batches(chunk_size=BATCH_ROWS, maintain_order=False, engine="streaming"):
        yield from part.to_arrow().to_batches()

"""Read the user's Parquet files with exact INT96 times, as written by Spark, Hive and Impala.

    INT96                    a day and nanoseconds within it: any year
    Arrow's nanoseconds      64 bits: 1677 to 2262; other years wrap around, so that 9999-12-31 becomes 1816-03-29
    Arrow's microseconds     any year; used in tables

INT96 times are read in microseconds. Reading nanoseconds as well shows whether digits were lost: both wrap around
alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

UNIT: Final = "us"
"""Unit for reading INT96 times."""

_MAGIC: Final = b"PAR1"


class ParquetFile:
    """An open Parquet file with its columns, number of rows and rows; a context manager.

    `source` is a path, or an open file, which stays open. Raises pyarrow's errors for damage, and
    `pyarrow.ArrowInvalid` for INT96 times with nanoseconds.
    """

    def __init__(self, source: Any) -> None:
        self._stack = ExitStack()
        self._file = self._stack.enter_context(pq.ParquetFile(source, coerce_int96_timestamp_unit=UNIT))
        self._times = _int96_columns(self._file.schema)
        if self._times:
            self._nanoseconds = self._stack.enter_context(pq.ParquetFile(source))
        self.schema: pa.Schema = self._file.schema_arrow
        self.num_rows: int = self._file.metadata.num_rows

    @property
    def has_int96(self) -> bool:
        """True if the file contains INT96 times."""
        return bool(self._times)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def batches(self, size: int = 65_536) -> Iterator[pa.RecordBatch]:
        """Yield the rows on demand."""
        if not self._times:
            yield from self._file.iter_batches(size)
            return
        for group in range(self._file.num_row_groups):
            self._require_microseconds(group)
            yield from self._file.iter_batches(size, row_groups=[group])

    def _require_microseconds(self, group: int) -> None:
        exact = self._nanoseconds.read_row_group(group, columns=self._times)
        times = self._file.read_row_group(group, columns=self._times)
        for name in exact.column_names:
            if not times[name].cast(exact[name].type, safe=False).equals(exact[name]):
                raise pa.ArrowInvalid(f"tables store microseconds: round the nanoseconds of column {name!r} first")


@dataclass(frozen=True, slots=True)
class ExactFiles:
    """The files of an Iceberg table, as a `FileIO` of pyiceberg, with INT96 times in microseconds.

    pyiceberg reads such times, from former Hive tables, as nanoseconds and truncates them silently.
    """

    files: Any

    @property
    def properties(self) -> Any:
        """Access to the files."""
        return self.files.properties

    def new_input(self, location: str) -> _ExactFile:
        """Return the file at an address."""
        return _ExactFile(self.files.new_input(location))


@dataclass(frozen=True, slots=True)
class _ExactFile:
    """An `InputFile` of pyiceberg's."""

    file: Any

    @property
    def location(self) -> str:
        return self.file.location  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self.file)

    def exists(self) -> bool:
        return self.file.exists()  # type: ignore[no-any-return]

    def open(self, seekable: bool = True) -> Any:
        """Open the file, or a copy in memory with times in microseconds."""
        stream = self.file.open(seekable)
        if not seekable:
            return stream
        is_parquet = stream.read(len(_MAGIC)) == _MAGIC
        stream.seek(0)
        if not is_parquet:
            return stream
        with ParquetFile(stream) as file:
            if file.has_int96:
                return _in_microseconds(file)
        stream.seek(0)
        return stream


def _in_microseconds(file: ParquetFile) -> pa.BufferReader:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, file.schema) as writer:
        for batch in file.batches():
            writer.write_batch(batch)
    return pa.BufferReader(sink.getvalue())


def _int96_columns(schema: pq.ParquetSchema) -> list[str]:
    columns = (schema.column(number) for number in range(len(schema)))
    return [column.path for column in columns if column.physical_type == "INT96"]

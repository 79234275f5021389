"""Parquet files of the user, with exact times where they are INT96, as Spark, Hive and Impala wrote them.

    INT96  =  a day, and the nanoseconds within it: of every year
    Arrow's nanoseconds, in 64 bits: 1677 to 2262, and beyond they begin anew, so that 9999-12-31 comes as 1816-03-29
    Arrow's microseconds: of every year, which is what tables keep

So such times are read in microseconds. Reading them in nanoseconds as well tells whether they had more digits; the
nanoseconds are those of the microseconds, in 64 bits that begin anew alike, or they are not.
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
"""The unit in which INT96 times are read."""

_MAGIC: Final = b"PAR1"


class ParquetFile:
    """A Parquet file, opened: its columns, how many rows it has, and the rows. It is a context manager.

    source: a path, or an open file of Arrow's or Python's, which is left open.

    Raises what pyarrow raises where the file is damaged, and `pyarrow.ArrowInvalid` for a time with nanoseconds that
    is kept as INT96.
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
        """Whether there are times that are kept as INT96."""
        return bool(self._times)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def batches(self, size: int = 65_536) -> Iterator[pa.RecordBatch]:
        """The rows, read as they are asked for."""
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
                raise pa.ArrowInvalid(
                    f"a time has nanoseconds, and tables keep microseconds: round the times of column {name!r} first"
                )


@dataclass(frozen=True, slots=True)
class ExactFiles:
    """The files of an Iceberg table, a `FileIO` of pyiceberg's: those with INT96 times have microseconds for them.

    pyiceberg reads such times, of tables that were once Hive's, in nanoseconds and cuts those off without a look.
    """

    files: Any

    @property
    def properties(self) -> Any:
        """How the files are reached."""
        return self.files.properties

    def new_input(self, location: str) -> _ExactFile:
        """The file at an address."""
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
        """The bytes of the file, or of one in memory that has its rows with times in microseconds."""
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
    """The paths of the columns, at every depth, whose values are INT96."""
    columns = (schema.column(number) for number in range(len(schema)))
    return [column.path for column in columns if column.physical_type == "INT96"]

"""The location of a Parquet file.

    a local disk      a path, which polars and Arrow map or read
    memory            the bytes of the file, or of some columns and row groups
    an object store   a reader of byte ranges: Arrow reads footers through it, polars gets bytes in memory

Only stores create it, and only this module opens files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, Protocol

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.ground.footers import TAIL_BYTES, fits


def is_of_system(error: BaseException) -> bool:
    """Return True if the system failed to read a file, so that its bytes may be fine.

    System errors have a number or a class; polars puts the number in the text.
    """
    if not isinstance(error, OSError):
        return False
    return type(error) is not OSError or error.errno is not None or "(os error " in str(error)


def not_read(error: BaseException, name: str) -> StorageUnavailableError:
    return StorageUnavailableError(
        "the system failed to read a file, which may be whole: see the cause, such as permissions or open files, "
        f"and try again. file={name} cause={error}"
    )


class RangeReader(Protocol):
    """A file read by requests. Raises `FileNotFoundError` if it is gone."""

    def size(self) -> int: ...

    def read(self, start: int, length: int) -> bytes: ...

    def read_all(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ranges (first byte, length) in parallel."""
        ...

    def open(self) -> BinaryIO: ...


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A Parquet file of a store, or several in memory that are read one after another.

    Attributes:
        name: for messages.
        address: path on a local disk.
        ranges: reader of a file in an object store.
        contents: bytes of the files in memory.
        columns: of the full file, as far as in memory; None for all.
    """

    name: str
    address: str | None = None
    ranges: RangeReader | None = None
    contents: tuple[bytes, ...] = ()
    columns: frozenset[str] | None = None

    @classmethod
    def in_memory(cls, *contents: bytes, name: str = "") -> ParquetSource:
        return cls(name, contents=contents)

    @classmethod
    def file(cls, path: str) -> ParquetSource:
        return cls(path, path)

    def at_hand(self) -> ParquetSource:
        """Return this file, read into memory if each read would be a request."""
        if self.ranges is None:
            return self
        return ParquetSource.in_memory(*self.ranges.read_all([(0, self.ranges.size())]), name=self.name)

    def in_full(self) -> ParquetSource:
        if self.address is None:
            return self.at_hand()
        with open(self.address, "rb") as file:
            return ParquetSource.in_memory(file.read(), name=self.name)

    def one_by_one(self) -> Sequence[ParquetSource]:
        return [replace(self, contents=(content,)) for content in self.contents] or [self]

    def scan(
        self,
        schema: Mapping[str, pl.DataType] | None = None,
        cast_options: pl.ScanCastOptions | None = None,
        place: str | None = None,
    ) -> pl.LazyFrame:
        """Scan the rows lazily; a file in an object store is read now.

        Args:
            schema: output columns; missing columns become null, others are dropped. None for the file's.
            cast_options: casts to the schema's types.
            place: name of an additional column with the row number.
        """
        source = self.at_hand()
        if schema is not None and source.columns is not None:
            schema = {name: kind for name, kind in schema.items() if name in source.columns}
        return pl.scan_parquet(
            list(source.contents) if source.address is None else source.address,
            schema=schema,
            missing_columns="raise" if schema is None else "insert",
            extra_columns="raise" if schema is None else "ignore",
            cast_options=cast_options,
            row_index_name=place,
            glob=False,  # partition names may contain brackets
            hive_partitioning=False,
        )

    def types(self) -> Mapping[str, pl.DataType]:
        (content,) = self.contents if self.address is None else (b"",)
        return pl.read_parquet_schema(self.address or content)

    def open(self) -> pq.ParquetFile:
        """Open the file for Arrow and read its footer; close it, or use `with`.

        Raises `FileNotFoundError`, or pyarrow's errors for damage.
        """
        return self._opened(checked=False)

    def open_checked(self) -> pq.ParquetFile:
        """Do `open`, and check page CRCs on reads."""
        return self._opened(checked=True)

    def _opened(self, *, checked: bool) -> pq.ParquetFile:
        (content,) = self.contents if self.address is None and self.ranges is None else (b"",)
        source = self.address or (pa.BufferReader(content) if self.ranges is None else self.ranges.open())
        try:
            return pq.ParquetFile(source, page_checksum_verification=checked)
        except UnicodeDecodeError as error:
            raise pa.ArrowInvalid(f"a column name is not valid text: {error}") from error

    def metadata(self) -> pq.FileMetaData:
        """Return a checked footer; raises as `open`."""
        with self.open() as file:
            found = file.metadata
        end = self.size() - TAIL_BYTES
        length = int.from_bytes(self.read(end, 4), "little")
        if not fits(self.read(end - length, length)):
            raise pa.ArrowInvalid("the footer's column chunks do not match the schema")
        return found

    def column_names(self) -> frozenset[str]:
        """Return the names of the columns in the file; several files in memory have the same."""
        with self.one_by_one()[0].open() as file:
            return frozenset(file.schema_arrow.names)

    def size(self) -> int:
        if self.ranges is not None:
            return self.ranges.size()
        if self.address is not None:
            return os.stat(self.address).st_size
        (content,) = self.contents
        return len(content)

    def read(self, start: int, length: int) -> bytes:
        if self.ranges is not None:
            return self.ranges.read(start, length)
        if self.address is None:
            (content,) = self.contents
            return content[start : start + length]
        with open(self.address, "rb", buffering=0) as file:
            file.seek(start)
            return file.read(length)

    @property
    def is_one_file(self) -> bool:
        return self.address is not None or self.ranges is not None or len(self.contents) == 1


def together(files: Sequence[ParquetSource]) -> ParquetSource:
    """Join files of `one_by_one`."""
    return replace(files[0], contents=tuple(content for file in files for content in file.contents))

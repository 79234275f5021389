"""Where a Parquet file is. A store hands out the value; nobody else opens a file.

    a local disk      the address of a file, which polars and Arrow map or read as they need it
    memory            the bytes of the file, or of those of its columns and row groups that somebody needs
    an object store   a reader of byte ranges. Arrow reads footers through it; polars has what is needed in memory

The merge and the formats take this value instead of a path, so that neither knows what kind of store a table is in.
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
    """Whether a file could not be read because the system refused, so that nothing is known of its bytes.

    Errors of the system have a number, or a class of their own; polars writes the number into its text.
    """
    if not isinstance(error, OSError):
        return False
    return type(error) is not OSError or error.errno is not None or "(os error " in str(error)


def not_read(error: BaseException, name: str) -> StorageUnavailableError:
    """The error of a file that the system does not let this process read. name: what messages call it."""
    return StorageUnavailableError(
        "the system refused to read this file, which may be whole: see the cause, such as rights or open files, and "
        f"try again. file={name} cause={error}"
    )


class RangeReader(Protocol):
    """A file of which each read is a request. Raises `FileNotFoundError` where it is gone."""

    def size(self) -> int:
        """How many bytes the file has."""
        ...

    def read(self, start: int, length: int) -> bytes:
        """Some bytes of the file."""
        ...

    def read_all(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes at some places, each given by its first byte and its length; side by side."""
        ...

    def open(self) -> BinaryIO:
        """The file for Arrow."""
        ...


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """One Parquet file of a store; or several in memory, which are read one after the other as if they were one.

    name: what messages call it.
    address: where polars and Arrow find the file on a local disk.
    ranges: what reads the file where each read is a request.
    contents: the bytes of the files that are in memory.
    columns: of what is in memory those columns that the file has in full; None: all of them.
    """

    name: str
    address: str | None = None
    ranges: RangeReader | None = None
    contents: tuple[bytes, ...] = ()
    columns: frozenset[str] | None = None

    @classmethod
    def in_memory(cls, *contents: bytes, name: str = "") -> ParquetSource:
        """Files of which all bytes are at hand."""
        return cls(name, contents=contents)

    @classmethod
    def file(cls, path: str) -> ParquetSource:
        """A file on a local disk, by its absolute path."""
        return cls(path, path)

    def at_hand(self) -> ParquetSource:
        """This file, taken into memory whole where each read of it would be a request."""
        if self.ranges is None:
            return self
        return ParquetSource.in_memory(*self.ranges.read_all([(0, self.ranges.size())]), name=self.name)

    def in_full(self) -> ParquetSource:
        """This file, taken into memory wherever it is. Raises `FileNotFoundError` where it is gone."""
        if self.address is None:
            return self.at_hand()
        with open(self.address, "rb") as file:
            return ParquetSource.in_memory(file.read(), name=self.name)

    def one_by_one(self) -> Sequence[ParquetSource]:
        """Each of the files, which may differ in the types of their columns."""
        return [replace(self, contents=(content,)) for content in self.contents] or [self]

    def scan(
        self,
        schema: Mapping[str, pl.DataType] | None = None,
        cast_options: pl.ScanCastOptions | None = None,
        place: str | None = None,
    ) -> pl.LazyFrame:
        """The rows, read when they are collected. Where each read is a request, the whole file is read now.

        schema: the columns that come out. Those that the file lacks are null, and those that it has beside them are
        left out; without a schema the file's own columns come out. cast_options: which types become the schema's.
        place: the name of a column more, which says which row of the file each one is.
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
            glob=False,  # names of partitions may hold brackets
            hive_partitioning=False,
        )

    def open(self) -> pq.ParquetFile:
        """The file for Arrow, of which the footer is read at once; close it, or use it in a `with` statement.

        Raises `FileNotFoundError` where the file is gone, and what pyarrow raises where it is damaged.
        """
        return self._opened(checked=False)

    def open_checked(self) -> pq.ParquetFile:
        """As `open`; each page that has a CRC is held to it where it is read."""
        return self._opened(checked=True)

    def _opened(self, *, checked: bool) -> pq.ParquetFile:
        (content,) = self.contents if self.address is None and self.ranges is None else (b"",)
        source = self.address or (pa.BufferReader(content) if self.ranges is None else self.ranges.open())
        try:
            return pq.ParquetFile(source, page_checksum_verification=checked)
        except UnicodeDecodeError as error:
            raise pa.ArrowInvalid(f"the name of a column is no text: {error}") from error

    def metadata(self) -> pq.FileMetaData:
        """What the footer says, of which each part can be asked for; raises as `open` does."""
        with self.open() as file:
            found = file.metadata
        end = self.size() - TAIL_BYTES
        length = int.from_bytes(self.read(end, 4), "little")
        if not fits(self.read(end - length, length)):
            raise pa.ArrowInvalid("the column chunks in the footer are not those of the schema")
        return found

    def size(self) -> int:
        """How many bytes the one file has; raises `FileNotFoundError` where it is gone."""
        if self.ranges is not None:
            return self.ranges.size()
        if self.address is not None:
            return os.stat(self.address).st_size
        (content,) = self.contents
        return len(content)

    def read(self, start: int, length: int) -> bytes:
        """Some bytes of the file; raises `FileNotFoundError` where it is gone."""
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
        """Whether there is one footer to ask."""
        return self.address is not None or self.ranges is not None or len(self.contents) == 1

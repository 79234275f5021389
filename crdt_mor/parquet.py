"""Where a Parquet file is. A store hands out the value; nobody else opens a file.

    a local disk      the address of a file, which polars and Arrow map or read as they need it
    memory            the bytes of the file
    an object store   an address, the options with which polars opens it, and a reader of byte ranges for Arrow

The merge and the formats take this value instead of a path, so that neither knows what kind of store a table is in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """One Parquet file of a store; or several in memory, which are read one after the other as if they were one.

    name: what messages call it.
    address: where polars finds the file, and Arrow too unless there is a `reader`; None: the file is in memory.
    storage_options: what `polars.scan_parquet` needs to open the address.
    reader: opens the file for Arrow, which does not understand every address that polars does.
    contents: the bytes of the files that are in memory.
    """

    name: str
    address: str | None = None
    storage_options: Mapping[str, Any] | None = None
    reader: Callable[[], BinaryIO] | None = None
    contents: tuple[bytes, ...] = ()

    @classmethod
    def in_memory(cls, *contents: bytes, name: str = "") -> ParquetSource:
        """Files of which all bytes are at hand."""
        return cls(name, contents=contents)

    @classmethod
    def file(cls, path: str) -> ParquetSource:
        """A file on a local disk, by its absolute path."""
        return cls(path, path)

    def scan(
        self, schema: Mapping[str, pl.DataType] | None = None, cast_options: pl.ScanCastOptions | None = None
    ) -> pl.LazyFrame:
        """The rows, read when they are collected.

        schema: the columns that come out. Those that the file lacks are null, and those that it has beside them are
        left out; without a schema the file's own columns come out. cast_options: which types become the schema's.
        """
        return pl.scan_parquet(
            list(self.contents) if self.address is None else self.address,
            schema=schema,
            missing_columns="raise" if schema is None else "insert",
            extra_columns="raise" if schema is None else "ignore",
            cast_options=cast_options,
            glob=False,  # names of partitions may hold brackets
            hive_partitioning=False,
            storage_options=None if self.storage_options is None else dict(self.storage_options),
        )

    def open(self) -> pq.ParquetFile:
        """The file for Arrow, of which the footer is read at once; close it, or use it in a `with` statement.

        Raises `FileNotFoundError` where the file is gone, and what pyarrow raises where it is damaged.
        """
        if self.reader is not None:
            return pq.ParquetFile(self.reader())
        if self.address is not None:
            return pq.ParquetFile(self.address)
        (content,) = self.contents
        return pq.ParquetFile(pa.BufferReader(content))

    def read(self, start: int, length: int) -> bytes:
        """Some bytes of the file; raises `FileNotFoundError` where it is gone."""
        if self.reader is not None:
            opened = self.reader()
        elif self.address is not None:
            opened = open(self.address, "rb", buffering=0)  # noqa: SIM115  closed below
        else:
            (content,) = self.contents
            return content[start : start + length]
        with opened as file:
            file.seek(start)
            return file.read(length)

    @property
    def is_one_file(self) -> bool:
        """Whether there is one footer to ask."""
        return self.address is not None or len(self.contents) == 1

"""A temporary file for rows that do not fit in memory. The file has no name, so it ends with the process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Self

import pyarrow as pa

from crdt_mor.errors import StorageUnavailableError

Extent = tuple[int, int]


class SpillFile:
    """Bytes by extent. Thread-safe."""

    def __init__(self) -> None:
        self._file = TemporaryFile(prefix="crdt-mor-", buffering=0)  # noqa: SIM115
        self._end = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def put(self, data: bytes | memoryview | pa.Buffer) -> Extent:
        left = memoryview(data)
        with self._lock:
            start = self._end
            self._file.seek(start)
            try:
                while left:
                    left = left[self._file.write(left) :]
            except OSError as error:
                with suppress(OSError):
                    self._file.truncate(start)
                raise _unusable(error) from error
            self._end = self._file.tell()
            return start, self._end - start

    def get(self, extent: Extent) -> memoryview:
        start, length = extent
        with self._lock:
            self._file.seek(start)
            view, read = memoryview(bytearray(length)), 0
            while read < length:
                more = self._file.readinto(view[read:])
                if not more:
                    raise OSError(f"the temporary file is too short. extent={extent}")
                read += more
        return view

    def put_rows(self, rows: pa.Table) -> Extent:
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
        with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
            stream.write_table(rows)
        return self.put(sink.getvalue())

    def get_rows(self, extents: Sequence[Extent], columns: Sequence[str] | None = None) -> pa.Table:
        tables = [self._rows(extent, columns) for extent in extents]
        return pa.concat_tables(tables)

    def _rows(self, extent: Extent, columns: Sequence[str] | None) -> pa.Table:
        data = pa.py_buffer(self.get(extent))
        options = pa.ipc.IpcReadOptions(use_threads=False)
        if columns is not None:
            with pa.ipc.open_stream(data) as stream:
                options.included_fields = [stream.schema.get_field_index(name) for name in columns]
        with pa.ipc.open_stream(data, options=options) as stream:
            return stream.read_all()


def _unusable(error: OSError) -> StorageUnavailableError:
    return StorageUnavailableError(
        "the rows of a large write do not fit in the folder for temporary files, and nothing was published: free space "
        f"there, or set TMPDIR to another folder. cause={error}"
    )

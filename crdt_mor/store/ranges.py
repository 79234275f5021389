"""An object as a file that Arrow can read: each read is a request for a range of bytes."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import BinaryIO, cast


class _Ranges(io.RawIOBase):
    """A file whose bytes are asked for as they are needed. size: of the object, in bytes."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        rest = max(0, self._size - self._at)
        length = rest if size is None or size < 0 else min(size, rest)
        data = self._fetch(self._at, length) if length else b""
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def range_file(fetch: Callable[[int, int], bytes], size: int) -> BinaryIO:
    """A file in which `fetch(start, length)` gives the bytes."""
    return cast(BinaryIO, _Ranges(fetch, size))

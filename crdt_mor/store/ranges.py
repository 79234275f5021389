"""Read an object of a bucket in ranges: few requests, side by side, and a cached end.

the end of the object     a request for the footer of most Parquet files, or a whole small object
places in the rest        near places in a joint request, all side by side
"""

from __future__ import annotations

import io
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import BinaryIO, Final, cast

TAIL_BYTES: Final = 64 << 10
"""Bytes of the end read first: more than most footers."""

WHOLE_BYTES_MAX: Final = 512 << 10
"""Bytes up to which a file is read whole, no slower than another round trip."""

_GAPS: Final = (64 << 10, 256 << 10, 1 << 20)
"""Places closer than this share a request. The first gap with few requests is used."""

AT_ONCE: Final = 10
"""Places of a file that the client requests at the same time."""

_KEPT_BYTES: Final = 64 << 20
_KEPT_FILES: Final = 1024

Range = tuple[int, int]
"""First byte and length."""

Request = Callable[[Sequence[Range]], list[bytes]]
"""Returns byte ranges of an object. Raises `FileNotFoundError` if the object is gone."""


class RangedFile:
    """An object that is read in ranges. Thread-safe. size: in bytes."""

    def __init__(self, request: Request, size: int) -> None:
        self._request = request
        self._size = size
        self._lock = threading.Lock()
        self._end: tuple[int, bytes] = (size, b"")
        """The cached end: its position and bytes."""

    def size(self) -> int:
        return self._size

    @property
    def kept(self) -> int:
        return len(self._end[1])

    def open(self) -> BinaryIO:
        return cast(BinaryIO, _File(self))

    def read(self, start: int, length: int) -> bytes:
        start, end = min(start, self._size), min(start + length, self._size)
        with self._lock:
            first, known = self._end
            tail = 0 if self._size <= WHOLE_BYTES_MAX else self._size - TAIL_BYTES
            if start < first and (start >= tail or (start > 0 and first <= end)):
                wanted = min(start, tail)  # a single request for the rest of the end
                (more,) = self._request([(wanted, first - wanted)])
                first, known = self._end = wanted, more + known
        if start >= first:
            return known[start - first : end - first]
        return self.read_all([(start, end - start)])[0]

    def read_all(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return the bytes of several places, side by side; cached ones need no request."""
        first, known = self._end
        missing = sorted({place for place in ranges if place[0] < first and place[1]})
        asked = _together(missing)
        found = self._request(asked) if asked else []
        return [
            known[start - first : start - first + length] if start >= first or not length
            else _cut(asked, found, start, length)
            for start, length in ranges
        ]  # fmt: skip


def _together(ranges: Sequence[Range]) -> list[Range]:
    joined: list[Range] = []
    for gap in _GAPS:
        joined = []
        for start, length in ranges:
            if joined and start <= sum(joined[-1]) + gap:
                joined[-1] = (joined[-1][0], max(sum(joined[-1]), start + length) - joined[-1][0])
            else:
                joined.append((start, length))
        if len(joined) <= AT_ONCE:
            break
    return joined


def _cut(ranges: Sequence[Range], replies: Sequence[bytes], start: int, length: int) -> bytes:
    first, data = next((f, d) for (f, size), d in zip(ranges, replies, strict=True) if f <= start < f + size)
    return data if len(data) == length else data[start - first : start - first + length]


class Files:
    """A store's recently read files with their cached ends, by path. Thread-safe. A whole file never changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[str, RangedFile] = OrderedDict()

    def file(self, path: str, size: int, request: Request) -> RangedFile:
        with self._lock:
            file = self._files.get(path)
            if file is None or file.size() != size:
                file = self._files[path] = RangedFile(request, size)
            self._files.move_to_end(path)
            kept = sum(file.kept for file in self._files.values())
            while kept > _KEPT_BYTES or len(self._files) > _KEPT_FILES:
                kept -= self._files.popitem(last=False)[1].kept
            return file

    def forget(self, path: str) -> None:
        """Drop the cache of a deleted or damaged file: others may have put it anew."""
        with self._lock:
            self._files.pop(path, None)


class _File(io.RawIOBase):
    def __init__(self, file: RangedFile) -> None:
        super().__init__()
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size()}[whence]
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        rest = max(0, self._file.size() - self._position)
        length = rest if size is None or size < 0 else min(size, rest)
        data = self._file.read(self._position, length) if length else b""
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

"""An object in a bucket, read in ranges: few requests, side by side, and what was read of its end is kept.

the end of the object     one request, which gives the footer of most Parquet files, and the whole of a small object
places in the rest        near ones in one request, all of them side by side
"""

from __future__ import annotations

import io
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import BinaryIO, Final, cast

TAIL_BYTES: Final = 64 << 10
"""How much of the end of a file is read at first: more than most footers have."""

WHOLE_BYTES_MAX: Final = 512 << 10
"""A file up to this size is read whole at once: its bytes take no longer than another round trip."""

_GAPS: Final = (64 << 10, 256 << 10, 1 << 20)
"""Places that are no further apart than this are read in one request; of these, the first that makes few requests."""

AT_ONCE: Final = 10
"""How many places of a file the client asks for at a time."""

_KEPT_BYTES: Final = 64 << 20
_KEPT_FILES: Final = 1024

Range = tuple[int, int]
"""The first byte and the number of bytes."""

Request = Callable[[Sequence[Range]], list[bytes]]
"""Gets the bytes at places of one object; raises `FileNotFoundError` where it is gone, or ends before them."""


class RangedFile:
    """An object that is read in ranges. Safe to share between threads. size: of the object, in bytes."""

    def __init__(self, request: Request, size: int) -> None:
        self._request = request
        self._size = size
        self._lock = threading.Lock()
        self._end: tuple[int, bytes] = (size, b"")
        """What is known of the end: from which byte on, and the bytes."""

    def size(self) -> int:
        """How many bytes the object has."""
        return self._size

    @property
    def kept(self) -> int:
        """How many bytes are kept in memory."""
        return len(self._end[1])

    def open(self) -> BinaryIO:
        """The object as a file that Arrow can read."""
        return cast(BinaryIO, _File(self))

    def read(self, start: int, length: int) -> bytes:
        """Some bytes; what is read up to the end of the object is kept."""
        start, end = min(start, self._size), min(start + length, self._size)
        with self._lock:
            first, known = self._end
            tail = 0 if self._size <= WHOLE_BYTES_MAX else self._size - TAIL_BYTES
            if start < first and (start >= tail or (start > 0 and first <= end)):
                wanted = min(start, tail)  # all that the end still lacks comes in one request
                (more,) = self._request([(wanted, first - wanted)])
                first, known = self._end = wanted, more + known
        if start >= first:
            return known[start - first : end - first]
        return self.read_all([(start, end - start)])[0]

    def read_all(self, ranges: Sequence[Range]) -> list[bytes]:
        """The bytes at some places, side by side; those that are known are not asked for."""
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
    """Few ranges that hold all of these, which are in order."""
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


def _cut(asked: Sequence[Range], found: Sequence[bytes], start: int, length: int) -> bytes:
    """The bytes of one place, out of what was asked for."""
    first, data = next((f, d) for (f, size), d in zip(asked, found, strict=True) if f <= start < f + size)
    return data if len(data) == length else data[start - first : start - first + length]


class Files:
    """The files of a store that were read last, with what is known of their ends. Safe to share between threads.

    A file of a path and a size never changes, so that its footer need not be asked for again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[str, int], RangedFile] = OrderedDict()

    def file(self, path: str, size: int, request: Request) -> RangedFile:
        """The file at a path; `request` gets its bytes where it is not known yet."""
        with self._lock:
            file = self._files.setdefault((path, size), RangedFile(request, size))
            self._files.move_to_end((path, size))
            kept = sum(file.kept for file in self._files.values())
            while kept > _KEPT_BYTES or len(self._files) > _KEPT_FILES:
                kept -= self._files.popitem(last=False)[1].kept
            return file

    def forget(self, path: str) -> None:
        """Drop the kept bytes of a deleted file: `repair` puts another one of the same size at its path."""
        with self._lock:
            for known in [key for key in self._files if key[0] == path]:
                del self._files[known]


class _File(io.RawIOBase):
    """A file whose bytes are asked for as they are needed."""

    def __init__(self, file: RangedFile) -> None:
        super().__init__()
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.size()}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        rest = max(0, self._file.size() - self._at)
        length = rest if size is None or size < 0 else min(size, rest)
        data = self._file.read(self._at, length) if length else b""
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

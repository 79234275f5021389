"""Put an object of a store into another, or compare two, part by part.

within a bucket         copied by the provider, if possible
anything to a disk      each part is written before the next is read
anything to a bucket    read in parts, and put whole
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from crdt_mor.errors import FormatError
from crdt_mor.store.protocol import Durable, Stat, Store, is_bucket

PART_BYTES: Final = 8 << 20
"""Bytes of an object per read."""


@dataclass(frozen=True, slots=True)
class Parts:
    """An object in parts, to be iterated repeatedly. Raises `FileNotFoundError` if the object is gone."""

    stat: Stat
    read: Callable[[int, int], bytes]

    @classmethod
    def of(cls, store: Store, stat: Stat) -> Parts:
        source = store.ranges_of(stat.path, stat.size) if is_bucket(store) else store.parquet(stat.path)
        if source is None:
            raise FileNotFoundError(stat.path)
        return cls(stat, source.read)

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, self.stat.size, PART_BYTES):
            length = min(PART_BYTES, self.stat.size - start)
            part = self.read(start, length)
            if len(part) != length:
                raise FormatError(
                    "an object differs in size from its listing: another program writes here, because a table's "
                    f"objects never change. Stop that program. path={self.stat.path} listed={self.stat.size} "
                    f"found={start + len(part)}"
                )
            yield part


def put_across(source: Store, target: Store, stat: Stat, durable: Durable) -> bool | None:
    """Create the object at `stat.path` in `target` from `source`. Return True, or False if it exists.

    None if `source` lost the object. Raises `FormatError` if its size changed.
    """
    if is_bucket(source) and is_bucket(target):
        copied = target.copy_from(source, stat.path, stat.size)
        if copied is not None:
            return copied
    try:
        return target.put(stat.path, Parts.of(source, stat), durable=durable)
    except FileNotFoundError:
        return None


def bytes_held(target: Store, stat: Stat) -> int:
    """Return the memory that `put_across` needs: a bucket receives an object whole."""
    return stat.size if is_bucket(target) else min(stat.size, PART_BYTES)


def is_same(one: Store, other: Store, path: str, size: int) -> bool:
    stat = Stat(path, size, 0)
    try:
        pairs = zip(Parts.of(one, stat), Parts.of(other, stat), strict=True)
        return all(left == right for left, right in pairs)
    except (FileNotFoundError, FormatError):
        return False

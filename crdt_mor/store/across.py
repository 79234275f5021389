"""An object of one store put into another one, or compared with it: part by part, whatever the stores are.

within one bucket       copied by the provider, where it does that
anything to a disk      a part is written before the next one is read
anything to a bucket    read in parts, and put whole, as it is there or not
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from crdt_mor.errors import FormatError
from crdt_mor.store.protocol import Durable, Stat, Store, is_bucket

PART_BYTES: Final = 8 << 20
"""How much of an object is read at once."""


@dataclass(frozen=True, slots=True)
class Parts:
    """An object in parts, as often as they are asked for; raises `FileNotFoundError` where it is gone.

    read: gives some bytes of it, from a first one on.
    """

    stat: Stat
    read: Callable[[int, int], bytes]

    @classmethod
    def of(cls, store: Store, stat: Stat) -> Parts:
        """The object at `stat.path` of a store, which has had that size."""
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
                    "an object has another size than a listing has just said: objects of tables never change, so "
                    f"something else writes here. path={self.stat.path} listed={self.stat.size} "
                    f"found={start + len(part)}"
                )
            yield part


def put_across(source: Store, target: Store, stat: Stat, durable: Durable) -> bool | None:
    """Create the object at `stat.path` in `target` with what `source` has there, if there is none: True; else False.

    None where `source` has no such object any more. Raises `FormatError` where it has another size than it had.
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
    """How much memory `put_across` takes: a bucket is given an object whole."""
    return stat.size if is_bucket(target) else min(stat.size, PART_BYTES)


def is_same(one: Store, other: Store, path: str, size: int) -> bool:
    """Whether two stores have the same bytes at a path, at which each has an object of that size, or had one."""
    stat = Stat(path, size, 0)
    try:
        pairs = zip(Parts.of(one, stat), Parts.of(other, stat), strict=True)
        return all(left == right for left, right in pairs)
    except (FileNotFoundError, FormatError):
        return False

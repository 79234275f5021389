"""An object of one store put into another one: whole, if there is none, and in parts where that saves memory.

a disk or memory to anything    the bytes as they lie there, mapped into memory
a bucket to anything            read in parts, each of which a disk writes before the next one is read
within one bucket               copied by the provider, where it does that
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from crdt_mor.errors import FormatError
from crdt_mor.store.protocol import Bucket, Durable, Stat, Store, is_bucket

PART_BYTES: Final = 8 << 20
"""How much of an object in a bucket is read at once."""


def put_across(source: Store, target: Store, stat: Stat, path: str, durable: Durable) -> bool | None:
    """Create the object `path` in `target` with what `source` has at `stat.path`, if there is none: True; else False.

    None where `source` has no such object any more. Raises `FormatError` where it has another size than it had.
    """
    if is_bucket(source):
        if is_bucket(target) and path == stat.path:
            copied = target.copy_from(source, path, stat.size)
            if copied is not None:
                return copied
        try:
            return target.put(path, _parts(source, stat), durable=durable)
        except FileNotFoundError:
            return None
    data = source.view(stat.path)
    if data is None:
        return None
    if len(data) != stat.size:
        raise FormatError(
            "an object has another size than a listing has just said: objects of tables never change, so something "
            f"else writes here. path={stat.path} listed={stat.size} found={len(data)}"
        )
    return target.put(path, data, durable=durable)


def bytes_held(target: Store, stat: Stat) -> int:
    """How much memory `put_across` takes: a bucket is given an object whole."""
    return stat.size if is_bucket(target) else min(stat.size, PART_BYTES)


def _parts(source: Bucket, stat: Stat) -> Iterator[bytes]:
    """The object, part by part; raises `FileNotFoundError` where it is gone."""
    ranges = source.ranges_of(stat.path, stat.size)
    for start in range(0, stat.size, PART_BYTES):
        yield ranges.read(start, PART_BYTES)


def is_same(one: Store, other: Store, path: str, size: int) -> bool:
    """Whether two stores have the same bytes at a path, at which each has an object of that size, or had one."""
    try:
        pairs = zip(_parts_of(one, Stat(path, size, 0)), _parts_of(other, Stat(path, size, 0)), strict=True)
        return all(left == right for left, right in pairs)
    except (FileNotFoundError, ValueError):
        return False


def _parts_of(store: Store, stat: Stat) -> Iterator[bytes]:
    """An object of any store, part by part; raises `FileNotFoundError` where it is gone."""
    if is_bucket(store):
        yield from _parts(store, stat)
        return
    data = store.view(stat.path)
    if data is None:
        raise FileNotFoundError(stat.path)
    for start in range(0, len(data), PART_BYTES):
        yield bytes(data[start : start + PART_BYTES])

"""Racing: whether a store lets one of many puts of an object win, on which every commit rests.

    race     PUTS threads put one name at once, each with a content of its own: which is told that it made the object?
    look     what is there is what the winner has put
    again    with other names: a race may be won by chance

A store that looks whether an object is there, and then makes it, refuses a second put that comes after the first. Of
several puts at once it lets all make the object whose looks came before the first of them was done. Each of these
writers would be told that its commit is there, and one of them would be right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Final

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.store.at_once import AtOnce, T
from crdt_mor.store.paths import TEMP_FOLDER
from crdt_mor.store.protocol import Store

PUTS: Final = 16
"""How many threads put one name at once."""

SIZES: Final = (2 << 10, 64 << 10)
"""Bytes of the objects, in turn, as versions of a timeline have them. A store that looks before it takes the bytes lets
the more puts win, the longer they take."""

KEYS_OF_A_PROBE: Final = 8
"""How many names are raced before a table is made. Each costs `PUTS` requests, and one each to look and to delete."""

FOLDER: Final = TEMP_FOLDER


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """What came of races of puts at a store.

    store: its address. keys: how many names were raced. puts: how many of each at once.
    winners: for how many names so many puts were told that they had made the object, by that number. Of a store that a
        table can be in, each name has one.
    wrong: at how many names there was something else than what the one winner had put.
    """

    store: str
    keys: int
    puts: int
    winners: Mapping[int, int]
    wrong: int = 0

    @property
    def is_safe(self) -> bool:
        """Whether each name was made once, by the put that was told so. A longer check may still find another."""
        return not self.reason

    @property
    def reason(self) -> str:
        """What is wrong with the store, in words; "" where nothing was found."""
        several = {number: keys for number, keys in self.winners.items() if number > 1}
        if several:
            return (
                f"of {self.puts} puts of one object at once, each of which was to make it only if there is none, "
                f"several were told that they had made it: for {sum(several.values())} of {self.keys} objects, up to "
                f"{max(several)} puts of one. Commits would be acknowledged and lost"
            )
        if none := self.winners.get(0, 0):
            return (
                f"of {self.puts} puts of one object at once, none was told that it had made it: for {none} of "
                f"{self.keys} objects that were not there before. No commit could be made"
            )
        if self.wrong:
            return (
                "an object does not hold what the put had that was told to have made it: for "
                f"{self.wrong} of {self.keys} objects. Commits would be acknowledged and lost"
            )
        return ""


def race(store: Store, address: str, nonce: str, keys: int) -> StoreCheck:
    """Race puts of so many names. Whatever was put is deleted. nonce: what nobody else has in names."""
    at_once = AtOnce()
    paths = [f"{FOLDER}/probe-{nonce}-{number}" for number in range(keys)]

    def each(work: Callable[[str], T]) -> list[T]:
        return at_once.side_by_side([partial(work, path) for path in paths])

    def put(path: str, size: int, number: int) -> bool:
        return store.put(path, _content(number, size))

    def remove(path: str) -> None:
        with suppress(StorageUnavailableError):  # what stays is small, and of no table
            store.delete(path)

    try:
        told = [
            at_once.side_by_side([partial(put, path, size, number) for number in range(PUTS)])
            for path, size in zip(paths, cycle(SIZES), strict=False)
        ]
        found = each(store.read)
    except CommitUnknownError as error:
        raise StorageUnavailableError(
            "the store failed while it was tried with objects that are part of no table; nothing was published. Try "
            f"again. store={address} cause={str(error).rpartition('cause=')[2]}"
        ) from error
    finally:
        each(remove)
    winners = Counter(map(sum, told))
    wrong = sum(
        sum(made) == 1 and data != _content(made.index(True), size)
        for made, data, size in zip(told, found, cycle(SIZES), strict=False)
    )
    return StoreCheck(address, keys, PUTS, dict(sorted(winners.items())), wrong)


def _content(number: int, size: int) -> bytes:
    """What one of the puts of a name has, which no other has."""
    return f"{number:02}".encode() * (size // 2)


def require_safe(check: StoreCheck) -> None:
    """Raise `UnsupportedFeatureError` for a store in which no table can be."""
    if not check.is_safe:
        raise UnsupportedFeatureError(
            f"{check.reason}. Use a store, or a release of it, whose If-None-Match on puts lets one of many win; "
            "docs/stores.md says which were tried, and crdt-mor check-store tries yours for longer. "
            f"store={check.store}"
        )

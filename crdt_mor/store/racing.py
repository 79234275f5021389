"""Race puts of a name, to test whether a store lets exactly one win. Every commit rests on this.

    race     PUTS threads put a name at once with different contents: how many succeed?
    look     the object contains the winner's content
    again    with other names: a race may be won by chance

A store that checks and then writes accepts several simultaneous puts, and each writer would believe that its commit
exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Final

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError, UnsupportedFeatureError, page
from crdt_mor.store.at_once import AtOnce, T
from crdt_mor.store.paths import TEMP_FOLDER
from crdt_mor.store.protocol import Store

PUTS: Final = 16
"""Threads per name."""

SIZES: Final = (2 << 10, 64 << 10)
"""Bytes of the objects, in turn. Large objects reveal more double wins."""

KEYS_OF_A_PROBE: Final = 8
"""Names raced before a table is created; each costs `PUTS` requests."""

FOLDER: Final = TEMP_FOLDER


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """The result of racing puts at a store.

    store: its address. keys: raced names. puts: simultaneous puts per name.
    winners: number of names by number of successful puts; a single success per name is safe.
    wrong: names with other content than the winner's.
    """

    store: str
    keys: int
    puts: int
    winners: Mapping[int, int]
    wrong: int = 0

    @property
    def is_safe(self) -> bool:
        """True if each name was made once, by its winner. A longer check may still find a fault."""
        return not self.reason

    @property
    def reason(self) -> str:
        """The fault of the store; "" if none was found."""
        several = {number: keys for number, keys in self.winners.items() if number > 1}
        if several:
            return (
                f"the store let several of {self.puts} simultaneous conditional puts of one object succeed: for "
                f"{sum(several.values())} of {self.keys} objects, up to {max(several)} puts. Commits would be "
                f"acknowledged and lost"
            )
        if none := self.winners.get(0, 0):
            return (
                f"the store let none of {self.puts} simultaneous conditional puts of a new object succeed: for "
                f"{none} of {self.keys} objects. No commit could be made"
            )
        if self.wrong:
            return (
                "objects differ from the content of the successful put: for "
                f"{self.wrong} of {self.keys} objects. Commits would be acknowledged and lost"
            )
        return ""


def race(store: Store, address: str, nonce: str, keys: int) -> StoreCheck:
    """Race puts of `keys` names and delete them. nonce: a unique part of the names."""
    at_once = AtOnce()
    paths = [f"{FOLDER}/probe-{nonce}-{number}" for number in range(keys)]

    def each(work: Callable[[str], T]) -> list[T]:
        return at_once.side_by_side([partial(work, path) for path in paths])

    def put(path: str, size: int, number: int) -> bool:
        return store.put(path, _content(number, size))

    def remove(path: str) -> None:
        with suppress(StorageUnavailableError):  # a remaining object is small and part of no table
            store.delete(path)

    try:
        won = [
            at_once.side_by_side([partial(put, path, size, number) for number in range(PUTS)])
            for path, size in zip(paths, cycle(SIZES), strict=False)
        ]
        found = each(store.read)
    except CommitUnknownError as error:
        raise StorageUnavailableError(
            "the store failed during the check with test objects; nothing was published. Try "
            f"again. store={address} cause={str(error).rpartition('cause=')[2]}"
        ) from error
    finally:
        each(remove)
    winners = Counter(map(sum, won))
    wrong = sum(
        sum(made) == 1 and data != _content(made.index(True), size)
        for made, data, size in zip(won, found, cycle(SIZES), strict=False)
    )
    return StoreCheck(address, keys, PUTS, dict(sorted(winners.items())), wrong)


def _content(number: int, size: int) -> bytes:
    return f"{number:02}".encode() * (size // 2)


def require_safe(check: StoreCheck) -> None:
    if not check.is_safe:
        raise UnsupportedFeatureError(
            f"{check.reason}. Use a store or release with atomic If-None-Match puts; {page('stores')} lists tested "
            "stores, and crdt-mor check-store tests yours longer. "
            f"store={check.store}"
        )

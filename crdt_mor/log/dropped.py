"""The last version of a dropped table, after which nobody reads or writes.

It contains no value, so processes that look for the tail raise `TableNotFoundError` (`Timeline.decode`). An older
release asks for an upgrade.
"""

from __future__ import annotations

from typing import Final

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.log.paths import version_path
from crdt_mor.log.steps import Delete, MakeDurable, Pause, Put, Read, Steps
from crdt_mor.log.tail import listed_versions
from crdt_mor.model.numbers import whole_number
from crdt_mor.model.timeline_json import DROPPED
from crdt_mor.store.protocol import Stat

_RACES_MAX: Final = 1000


def put_last_version() -> Steps[str]:
    """Publish the last version unless it exists. Returns its path."""
    for attempt in range(_RACES_MAX):
        listed = yield from listed_versions()
        newest = listed[-1].path if listed else None
        if newest is not None and (yield Read(newest)) == DROPPED:
            yield MakeDurable(newest)
            return newest
        path = version_path(0 if newest is None else _number(listed[-1]) + 1)
        if (yield Put(path, DROPPED, decides=True)):
            listed = yield from listed_versions()
            if listed[-1].path == path:
                return path
            yield Delete(path)  # the listing was old: many versions were published and deleted since
        yield Pause(attempt)
    raise StorageUnavailableError("other processes kept publishing first: stop the writers, then drop the table again")


def _number(version: Stat) -> int:
    number = whole_number(version.path.rpartition("/")[2].partition(".")[0])
    assert number is not None, version
    return number

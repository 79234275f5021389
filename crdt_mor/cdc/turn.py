"""Commit the changes of a source once, by any number of processes.

After its begin a write looks for earlier unfinished writes of the source. It gives way to them, or rolls them back
after a while, and begins anew. So the last token cannot grow before its end. Whoever was rolled back waits twice as
long the next time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from crdt_mor import Commit, InvalidInputError, Table, TokenOrderError, Transaction
from crdt_mor.errors import WriterExpiredError

LOOK_EVERY_S = 0.02
UNKNOWN = "19700101000000000"  # after a restore


class _GivesWay(Exception):  # noqa: N818
    def __init__(self, earlier: str | None = None) -> None:
        self.earlier = earlier


@dataclass(slots=True)
class Turn:
    table: Table
    source: str
    wait: timedelta

    def last(self) -> int | None:
        found = self._own(self.table.inspect.tokens())
        if found and found[0]["requested_at"] == UNKNOWN:
            raise TokenOrderError(
                "the table was restored, and the last position of the source is unknown: pass the events from the "
                f"restored moment on under another topic or source name. source={self.source!r}"
            )
        return found[0]["number"] if found else None

    def commit(self, position: int, last: int | None, write: Callable[[Transaction], None]) -> Commit | None:
        """Commit the statements of `write` as the changes after `last`; None if `last` has moved meanwhile."""
        waited = timedelta()
        while True:
            try:
                with self.table.transaction(token=(self.source, position)) as tx:
                    if tx.commit is not None:
                        return None
                    self._require_first(tx)
                    if self.last() != last:
                        raise _GivesWay
                    write(tx)
            except TokenOrderError:
                return None
            except WriterExpiredError:
                self.wait *= 2
                return None
            except _GivesWay as way:
                if way.earlier is None:
                    return None
                waited = self._wait_for(way.earlier, waited)
                continue
            return _new_commit(tx)

    def _require_first(self, tx: Transaction) -> None:
        own = tx.requested_at
        assert own is not None
        earlier = [instant for instant in self._pending() if instant < own]
        if earlier:
            raise _GivesWay(earlier[0])

    def _pending(self) -> list[str]:
        return [write["requested_at"] for write in self._own(self.table.inspect.pending())]

    def _own(self, rows: pa.Table) -> list[dict[str, Any]]:
        return [row for row in rows.to_pylist() if row["application"] == self.source]

    def _wait_for(self, instant: str, waited: timedelta) -> timedelta:
        pause = timedelta(seconds=LOOK_EVERY_S)
        while instant in self._pending():
            if waited >= self.wait:
                try:
                    self.table.maintenance.roll_back(instant)
                except InvalidInputError:
                    continue
                return timedelta()
            self.table.environment.sleep(LOOK_EVERY_S * (1 + self.table.environment.jitter()))
            waited += pause
        return waited


def _new_commit(tx: Transaction) -> Commit | None:
    return None if tx.commit is None or tx.commit.repeated else tx.commit

"""Commit a single statement: try one event first, else run a transaction block.

An update is tried only while no write is pending. It waits briefly for that, and tries again if another process was
faster. Otherwise it begins, which fixes its place, and later updates wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

import pyarrow as pa

from crdt_mor.api.data import Data, read_data
from crdt_mor.api.transaction import Commit, Transaction, commit_of, commit_of_member
from crdt_mor.columns.arrow_input import bytes_of
from crdt_mor.events.group import GroupCommit
from crdt_mor.events.session import Session
from crdt_mor.services.maintain_inline import upkeep_after
from crdt_mor.write.declaring import Declare
from crdt_mor.write.named import text_types
from crdt_mor.write.one_event import HeldUpError, TriedWrite

RACES_MAX: Final = 2
"""Attempts of an update as an event before it begins. Each repeats its read, and a begin fixes the update's place."""

PAUSE_MS: Final = 2
PAUSED_MS_MAX: Final = 100
"""Longest wait for pending writes before an update begins; once begun, it holds up other updates."""


class LoneTransaction(Transaction):
    """A statement tried as an event, without a block.

    Attributes:
        has_lost: another process was faster.
        is_held_up: pending writes may touch the rows that it reads.
    """

    has_lost = False
    is_held_up = False

    def run(self, statement: Callable[[Transaction], None], size: Callable[[], int | None]) -> Commit | None:
        """Commit a statement in one event; None if it must run in a block, with nothing committed.

        Errors are not raised here: the block repeats the statement on the newest version. `size` returns the rows'
        bytes, None to skip the attempt.
        """
        session = self._session
        write = TriedWrite.begin(session, self._token, self._info, size)
        if write is None:
            return None
        self._write, self._value, self._state = write, write.followed.value, "open"
        try:
            statement(self)
        except HeldUpError:
            self.is_held_up = True
            return None
        except Exception:  # noqa: BLE001  the block raises the error
            return None
        finally:
            self._write, self._state = None, "over"
        committed = write.commit()
        if committed is None:
            self.has_lost = True
            return None
        upkeep_after(session, committed.value, committed.completion)
        if isinstance(committed, GroupCommit):
            return commit_of_member(committed.completion, committed.member)
        return commit_of(session, committed.completion, committed.value, repeated=False)


def commit_rows(
    session: Session,
    data: Data,
    token: tuple[str, int] | None,
    commit_info: Mapping[str, str] | None,
    statement: Callable[[Transaction, pa.Table], None],
) -> Commit:
    """Do `commit_once` for rows: they are read once, and not for a repeated token."""
    rows = cache(lambda: read_data(data, lambda: text_types(session.config, session.known())))
    return commit_once(session, token, commit_info, lambda tx: statement(tx, rows()), size=lambda: bytes_of(rows()))


def commit_once(
    session: Session,
    token: tuple[str, int] | None,
    commit_info: Mapping[str, str] | None,
    statement: Callable[[Transaction], None],
    size: Callable[[], int | None] = lambda: None,
    wait_ms: int | None = None,
    declare: Declare | None = None,
) -> Commit:
    """Commit a statement; a repeated token does nothing.

    Args:
        size: bytes to write: few are tried as an event; None skips that attempt.
        wait_ms, declare: as in `Transaction`.
    """
    commit = _tried(session, token, commit_info, statement, size, wait_ms)
    if commit is not None:
        return commit
    with Transaction(session, token, commit_info, wait_ms, declare) as tx:
        if tx.commit is None:
            statement(tx)
    assert tx.commit is not None
    return tx.commit


def _tried(
    session: Session,
    token: tuple[str, int] | None,
    commit_info: Mapping[str, str] | None,
    statement: Callable[[Transaction], None],
    size: Callable[[], int | None],
    wait_ms: int | None,
) -> Commit | None:
    if wait_ms is not None and session.config.ours:
        if session.has_known:
            session.views.sealed(look=True)  # Hudi's completed commits come before an update
        if session.views.hudi_is_writing():
            return None  # only a block can wait
    races = paused_ms = 0
    while True:
        lone = LoneTransaction(session, token, commit_info, wait_ms)
        commit = lone.run(statement, size)
        if commit is not None or wait_ms is None or session.is_far:
            return commit
        races += lone.has_lost
        if races == RACES_MAX or not (lone.has_lost or (lone.is_held_up and paused_ms < PAUSED_MS_MAX)):
            return None
        if lone.is_held_up:
            session.environment.sleep(PAUSE_MS / 1000)
            paused_ms += PAUSE_MS

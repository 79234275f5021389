"""One statement as a commit of its own: tried as one event, and in a block where that is not to be.

An update reads what comes before it. So it is tried as one event only where nothing is under way, waits a moment for
that, and is tried again where another process was faster. Else it begins, which gives it its place, and others that
come later wait for it (`events.update`).
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

RACES_MAX: Final = 8
"""How often an update is tried as one event before it begins."""

PAUSE_MS: Final = 2
PAUSED_MS_MAX: Final = 100
"""For how long an update waits for writes under way before it begins, which would hold up others."""


class LoneTransaction(Transaction):
    """One statement that is tried as one event, in no block.

    has_lost: it was tried, and another process was faster. is_held_up: writes are under way that may touch
    what it reads.
    """

    has_lost = False
    is_held_up = False

    def run(self, statement: Callable[[Transaction], None], size: Callable[[], int | None]) -> Commit | None:
        """Commit one statement in one event; None where it is to be made in a block, since nothing of it is committed.

        size: the bytes of its rows; None where it is not to be tried. What the statement raises, it raises in the
        block, of the newest version: the one that this process knows may lack a column by now, or a token.
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
        except Exception:  # noqa: BLE001  the block raises it
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
    """As `commit_once`, of rows: they are read once, however often they are written, and not for a repeated token."""
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
    """One statement as a transaction of its own; nothing is done where the token was used before.

    size: the bytes of what the statement writes: if they are few, it is tried as one event, and made again if that
        fails; None: it is not tried. wait_ms, declare: as of `Transaction`.
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
    """The commit of one statement in one event; None where it is to be made in a block."""
    if wait_ms is not None and session.config.ours:
        if session.has_known:
            session.views.sealed(look=True)  # what Hudi has completed by now comes before an update
        if session.views.hudi_is_writing():
            return None  # it waits, which is done in a block
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

"""A small write that is tried as one event: nothing of it is known to anybody before it is committed.

    1. follow    the newest version that this process knows, and a time that is later
    2. collect   statements are checked and keyed, as in a write that has begun (statements.py)
    3. commit    their log files are made in memory, then `events.one_event` puts all of it

Another process that has published meanwhile wins. Then nothing of this write is left, and the statements are made again
in a write that begins (`open_write`), on the version that is the newest by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from crdt_mor.events.one_event import Followed, LoneCommit, LoneWrite
from crdt_mor.events.session import Session
from crdt_mor.hudi.partitions import metadata_put
from crdt_mor.merge.blocks import PARTITION_PATH
from crdt_mor.merge.precombine import RowsWrite
from crdt_mor.model.authors import Author, Info, application_of
from crdt_mor.model.names import WRITE_TOKEN
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.store.protocol import Chunks
from crdt_mor.write.log_files import BUCKET
from crdt_mor.write.refusals import require_writable
from crdt_mor.write.stage import Staging
from crdt_mor.write.statements import Statements

GROUPS_MAX: Final = 64
"""File groups of a write that is tried as one event: its files are made again if it is not alone."""

SLOW_MS: Final = 10
"""Rows that took longer to come are of a write that looks again which version is the newest."""

BYTES_MAX: Final = 8 << 20
"""Bytes of rows, in memory, of a write that is tried as one event."""


@dataclass
class TriedWrite:
    """One write that is tried as one event. Not thread-safe."""

    session: Session
    followed: Followed
    author: Author
    token: tuple[str, int] | None
    started_ms: int
    statements: Statements = field(init=False)

    def __post_init__(self) -> None:
        followed = self.followed
        self.statements = Statements(self.session.config, followed.value, followed.requested)

    @classmethod
    def begin(
        cls, session: Session, token: tuple[str, int] | None, info: Info, small: Callable[[], bool]
    ) -> TriedWrite | None:
        """Begin, which publishes nothing; None where the write is to go the long way.

        small: whether it writes little, which is only asked of a write that may be alone.
        """
        if not session.config.ours:
            return None  # Hudi's own writers may be at work, and what they wrote is adopted first
        started_ms = session.environment.now_ms()
        author = session.author(application_of(info, token), info)
        followed = session.pace.follow_alone(author, token)
        if followed is None:
            return None
        is_first = followed.expected.stat is None
        if is_first:
            require_writable(session)  # which looks at the table's properties
        if not small():
            return None
        if is_first or session.environment.now_ms() - started_ms > SLOW_MS:
            followed = session.pace.follow_alone(author, token)
        return None if followed is None else cls(session, followed, author, token, started_ms)

    def commit(self) -> LoneCommit | None:
        """Make the files and commit them; None where that failed, or is no work for one event: nothing is left."""
        session, statements = self.session, self.statements
        session.require_own_process()
        if statements.growth is not None or not self._is_narrow():
            return None
        requested = self.followed.requested
        staging = Staging(session.config, statements.merging, requested, WRITE_TOKEN, session.judgements)
        logs = tuple(staging.stage(statements.collected, _in_memory))
        if not logs:
            return None
        partitions = tuple(metadata_put(name, requested) for name in sorted({file.partition for file, _ in logs}))
        write = LoneWrite(
            requested, statements.operation, logs, partitions, session.pace.seen(partitions), self.token, self.author
        )
        committed = session.pace.commit_alone(self.followed, write)
        if committed is not None:
            session.pace.note_seen(partitions)
            session.tell_of(committed.completion, self.started_ms)
        return committed

    def _is_narrow(self) -> bool:
        """Whether the statements touch few file groups."""
        config = self.session.config
        if not config.key.partition_fields and config.buckets is not None and config.buckets <= GROUPS_MAX:
            return True
        if sum(statement.height for statement in self.statements.collected) <= GROUPS_MAX:
            return True
        frames = (s.rows if isinstance(s, RowsWrite) else s.keys for s in self.statements.collected)
        return sum(frame.select(PARTITION_PATH, BUCKET).n_unique() for frame in frames) <= GROUPS_MAX


def _in_memory(file: DataFile, content: Chunks) -> tuple[DataFile, bytes]:
    """A log file, encoded, and what its commit says of it."""
    data = b"".join(content)
    return replace(file, size=len(data)), data

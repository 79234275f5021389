"""Try a small write as one event, alone or in a group, without ever being pending.

    1. follow    the newest version known to this process, and a later time
    2. collect   check and key the statements, as in a write that has begun (statements.py)
    3. commit    make the log files in memory; `events.one_event` puts them and the version
    4. post      if other processes interfere, post the write, to be committed with theirs (`events.group`)

If another process publishes first, nothing of this write is left, and it is posted or begins anew (`open_write`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl
import pyarrow as pa

from crdt_mor.columns.arrow_input import bytes_of
from crdt_mor.errors import CrdtMorError
from crdt_mor.events.group import Draft, GroupCommit
from crdt_mor.events.one_event import Followed, LoneCommit, LoneWrite, may_be_alone
from crdt_mor.events.session import Session
from crdt_mor.hudi.partitions import metadata_put
from crdt_mor.log.posts import BYTES_MAX as POST_BYTES_MAX
from crdt_mor.log.posts import Post
from crdt_mor.log.steps import Put
from crdt_mor.merge.blocks import PARTITION_PATH
from crdt_mor.merge.precombine import RowsWrite
from crdt_mor.model.authors import Author, Info, application_of
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import WRITE_TOKEN
from crdt_mor.model.posts import Member
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import knows_posts
from crdt_mor.read.reads import EVERYTHING, Reads
from crdt_mor.write.log_files import BUCKET, in_memory
from crdt_mor.write.posts import NotedStatements, group_of, post_of
from crdt_mor.write.refusals import require_writable
from crdt_mor.write.stage import Staging
from crdt_mor.write.statements import Statements

GROUPS_MAX: Final = 64
"""Most file groups of such a write, because its files may be made twice."""

SLOW_MS: Final = 10
"""If the rows took longer to arrive, look for the newest version again."""

BYTES_MAX: Final = 8 << 20
"""Most bytes of rows in memory."""


class ManyRowsError(Exception):
    """The write has read too much for one event, and must begin."""


class HeldUpError(Exception):
    """A pending write may touch rows that this write reads."""


@dataclass
class TriedWrite:
    """A write tried as one event. Not thread-safe. has_read: its rows depend on the table's."""

    session: Session
    followed: Followed
    author: Author
    token: tuple[str, int] | None
    started_ms: int
    has_read: bool = False
    _partitions: tuple[Put, ...] = ()
    statements: NotedStatements = field(init=False)

    def __post_init__(self) -> None:
        followed = self.followed
        self.statements = NotedStatements(self.session.config, followed.value, followed.requested)

    @classmethod
    def begin(
        cls, session: Session, token: tuple[str, int] | None, info: Info, size: Callable[[], int | None]
    ) -> TriedWrite | None:
        """Begin without publishing; None if the write must go the long way.

        size: the bytes of its rows, requested only for candidates; None: large.
        """
        if not session.config.ours:
            return None  # Hudi's own writers may be active, and their commits are adopted first
        started_ms = session.environment.now_ms()
        author = session.author(application_of(info, token), info)
        followed = session.pace.follow(author, token)
        if followed is None:
            return None
        is_first = not session.pace.has_published
        if is_first:
            require_writable(session, as_read=True)
        bytes_ = size()
        if bytes_ is None or bytes_ > (POST_BYTES_MAX if followed.is_crowded else BYTES_MAX):
            return None
        if is_first or session.environment.now_ms() - started_ms > SLOW_MS:
            followed = session.pace.follow(author, token)
        return None if followed is None else cls(session, followed, author, token, started_ms)

    def require_first(self, reads: Reads) -> None:
        """Raise `HeldUpError` if a pending write may touch the rows of a read."""
        config, statements = self.session.config, self.statements
        reads = EVERYTHING if statements.merging.asks_what_was_seen else reads
        if any(reads.may_meet(p.declared, config, statements.schema) for p in self.followed.value.pending):
            raise HeldUpError

    def note_read(self, rows: pa.Table) -> None:
        """Count rows made from the table's own; raise `ManyRowsError` if there are too many."""
        self.has_read = True
        if bytes_of(rows) > BYTES_MAX:
            raise ManyRowsError

    def commit(self) -> LoneCommit | GroupCommit | None:
        """Make the files and commit them; None, with nothing left, if that fails or does not suit one event."""
        session, statements = self.session, self.statements
        session.require_own_process()
        if statements.growth is not None or not self._is_narrow():
            return None
        committed = self._alone_or_posted()
        if committed is not None:
            session.pace.note_seen(self._partitions)
        if isinstance(committed, GroupCommit):
            member, operation = committed.member, statements.operation
            session.tell_of(committed.completion, self.started_ms, operation, member, committed.is_own)
        elif committed is not None:
            session.tell_of(committed.completion, self.started_ms)
        return committed

    def _alone_or_posted(self) -> LoneCommit | GroupCommit | None:
        """Commit alone unless others interfered lately; otherwise post if possible."""
        pace, followed = self.session.pace, self.followed
        draft = self._draft() if followed.is_crowded or pace.is_look_due else None
        if not followed.is_crowded or self.has_read:
            write = draft or self._write(self.statements, followed.requested, ())
            if write is None:
                return None
            committed = pace.commit_alone(followed, write)
            if committed is not None or pace.is_changed(followed):
                return committed
            draft = draft or self._draft()
        return pace.commit_posted(followed.expected, draft) if draft is not None else None

    def _draft(self) -> Draft | None:
        statements = self.statements
        if self.has_read or statements.merging.asks_what_was_seen or not knows_posts(self.followed.value.format):
            return None
        post = post_of(statements, self.author, self.token)
        if post is None:
            return None
        if self.session.config.merge.custom:
            statements.rehearse()  # a failing payload must fail before others see these rows
        return Draft(post, self._may_follow, self._make)

    def _may_follow(self, tail: Timeline) -> bool:
        if not may_be_alone(tail, self.token, self.author):
            return False
        seen = self.followed.value
        if (tail.schema, tail.rules) == (seen.schema, seen.rules):
            return True
        try:
            self.statements.said[0].repeat(Statements(self.session.config, tail, self.followed.requested))
        except CrdtMorError:
            return False
        return True

    def _make(self, tail: Timeline, requested: InstantTime, posts: Sequence[Post], own: Post) -> LoneWrite:
        """Return the commit of these ordered posts, `own` included, without unfit ones."""
        statements: Statements = self.statements
        taken = [own]
        if len(posts) > 1 or tail is not statements.value or requested != statements.requested:
            statements, taken = group_of(self.session.config, tail, requested, posts, own, self.statements.said[0])
        is_group = len(taken) > 1 or own.name is not None
        try:
            write = self._write(statements, requested, [post.member for post in taken] if is_group else ())
        except (CrdtMorError, pl.exceptions.PolarsError):
            if len(taken) == 1:
                raise
            return self._make(tail, requested, [own], own)  # others report a payload's failure on their rows
        assert write is not None, "a post has rows"
        return write

    def _write(self, statements: Statements, requested: InstantTime, members: Sequence[Member]) -> LoneWrite | None:
        """Return the log files and other puts of a commit; None without rows.

        members: the parts of a commit of several writers.
        """
        session = self.session
        ids = statements.value.file_ids
        staging = Staging(session.config, statements.merging, requested, WRITE_TOKEN, session.judgements, ids)
        logs = tuple(staging.stage(statements.collected, in_memory))
        if not logs:
            return None
        partitions = tuple(metadata_put(name, requested) for name in sorted({file.partition for file, _ in logs}))
        self._partitions, seen = partitions, session.pace.seen(partitions)
        token = None if members else self.token
        return LoneWrite(requested, statements.operation, logs, partitions, seen, token, self.author, tuple(members))

    def _is_narrow(self) -> bool:
        config = self.session.config
        if not config.key.partition_fields and config.buckets is not None and config.buckets <= GROUPS_MAX:
            return True
        if sum(statement.height for statement in self.statements.collected) <= GROUPS_MAX:
            return True
        frames = (s.rows if isinstance(s, RowsWrite) else s.keys for s in self.statements.collected)
        return sum(frame.select(PARTITION_PATH, BUCKET).n_unique() for frame in frames) <= GROUPS_MAX

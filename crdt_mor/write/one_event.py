"""A small write that is tried as one event, alone or with those of other writers: it never is pending.

    1. follow    the newest version that this process knows, and a time that is later
    2. collect   statements are checked and keyed, as in a write that has begun (statements.py)
    3. commit    their log files are made in memory, then `events.one_event` puts all of it
    4. post      where other processes are in the way, the write is posted, and committed with theirs (`events.group`)

Another process that has published meanwhile wins. Then nothing of this write is left, and it is posted. A write that
cannot be posted is made again as one that begins (`open_write`), on the version that is the newest by then.
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
"""File groups of a write that is tried as one event: its files are made again if it is not alone."""

SLOW_MS: Final = 10
"""Rows that took longer to come are of a write that looks again which version is the newest."""

BYTES_MAX: Final = 8 << 20
"""Bytes of rows, in memory, of a write that is tried as one event."""


class ManyRowsError(Exception):
    """What a write has read is too much for one event: it is made as one that begins."""


class HeldUpError(Exception):
    """A write that is under way may touch what this one reads, which comes after it."""


@dataclass
class TriedWrite:
    """One write that is tried as one event. Not thread-safe. has_read: what it says depends on what the table holds."""

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
        """Begin, which publishes nothing; None where the write is to go the long way.

        size: the bytes of its rows, which are only asked for of a write that may be one event; None: it is large.
        """
        if not session.config.ours:
            return None  # Hudi's own writers may be at work, and what they wrote is adopted first
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
        """Raise `HeldUpError` where a write is under way that may touch what a statement reads."""
        config, statements = self.session.config, self.statements
        reads = EVERYTHING if statements.merging.asks_what_was_seen else reads
        if any(reads.may_meet(p.declared, config, statements.schema) for p in self.followed.value.pending):
            raise HeldUpError

    def note_read(self, rows: pa.Table) -> None:
        """Note what a statement writes of the table's own rows; raises `ManyRowsError` where that is much."""
        self.has_read = True
        if bytes_of(rows) > BYTES_MAX:
            raise ManyRowsError

    def commit(self) -> LoneCommit | GroupCommit | None:
        """Make the files and commit them; None where that failed, or is no work for one event: nothing is left."""
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
        """Alone, unless others were in the way lately; posted, if it can be, where they are."""
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
        """The write as one that others may commit; None where it is no such write."""
        statements = self.statements
        if self.has_read or statements.merging.asks_what_was_seen or not knows_posts(self.followed.value.format):
            return None
        post = post_of(statements, self.author, self.token)
        if post is None:
            return None
        if self.session.config.merge.custom:
            statements.rehearse()  # a payload that fails on these rows does so before anybody else meets them
        return Draft(post, self._may_follow, self._make)

    def _may_follow(self, tail: Timeline) -> bool:
        """Whether the write would still be committed after a version: not where the long way would refuse it."""
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
        """The commit of posts, which are in their order, `own` among them. Those that do not fit are left out."""
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
            return self._make(tail, requested, [own], own)  # a payload that fails on others' rows is their affair
        assert write is not None, "a post has rows"
        return write

    def _write(self, statements: Statements, requested: InstantTime, members: Sequence[Member]) -> LoneWrite | None:
        """The log files of statements, and all else that their commit puts; None where they write nothing.

        members: of a commit of several writers, the part of each.
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
        """Whether the statements touch few file groups."""
        config = self.session.config
        if not config.key.partition_fields and config.buckets is not None and config.buckets <= GROUPS_MAX:
            return True
        if sum(statement.height for statement in self.statements.collected) <= GROUPS_MAX:
            return True
        frames = (s.rows if isinstance(s, RowsWrite) else s.keys for s in self.statements.collected)
        return sum(frame.select(PARTITION_PATH, BUCKET).n_unique() for frame in frames) <= GROUPS_MAX

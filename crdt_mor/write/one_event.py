"""Try a small write as one event, alone or in a group, without ever being pending.

1. follow    the newest version known to this process, and a later time
2. collect   check and key the statements, as in a write that has begun (statements.py)
3. commit    make the log files in memory; `events.one_event` puts them and the version
4. post      if other processes interfere, post the write, to be committed with theirs (`events.group`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

import polars as pl
import pyarrow as pa

from crdt_mor.columns.arrow_input import bytes_of
from crdt_mor.errors import CrdtMorError
from crdt_mor.events.carrying import set_maker
from crdt_mor.events.group import Draft, GroupCommit
from crdt_mor.events.handle import Handle
from crdt_mor.events.one_event import FollowedVersion, LoneCommit, LoneWrite, may_be_alone
from crdt_mor.events.session import Session
from crdt_mor.ground.threads import one_thread
from crdt_mor.log.posts import Post
from crdt_mor.merge.blocks import PARTITION_PATH
from crdt_mor.merge.precombine import RowsWrite
from crdt_mor.model.authors import Author, Info, application_of
from crdt_mor.model.instant import InstantTime, from_ms
from crdt_mor.model.names import WRITE_TOKEN
from crdt_mor.model.posts import Member
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import knows_posts
from crdt_mor.planners.way import CHANGED, CLOSED, FILE_GROUPS_MAX, HUDI, SLOW_MS, UNPOSTED, UNTAKEN, Way, Write, way
from crdt_mor.read.reads import EVERYTHING, Reads
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.write.log_files import BUCKET, in_memory
from crdt_mor.write.named import NamedStatements, Prepared
from crdt_mor.write.posts import group_of, of_post, post_of
from crdt_mor.write.reading import Read, Reading, Wait, drive
from crdt_mor.write.refusals import require_writable
from crdt_mor.write.stage import Staging
from crdt_mor.write.statements import Statement, Statements, means_alike

T = TypeVar("T")

_ONE_THREAD_ROWS_MAX: Final = 10_000
"""Up to so many rows, the writer's thread makes all log files: to start others takes longer."""


@dataclass
class TriedWrite:
    """A write tried as one event. Not thread-safe. It has one statement.

    write: the known facts, which choose its way. prepared: a statement of rows; None for computed rows, which are never
    posted.
    """

    session: Session
    followed: FollowedVersion
    author: Author
    token: tuple[str, int] | None
    started_ms: int
    write: Write
    statements: Statements
    prepared: Prepared | None = None

    @classmethod
    def begin(
        cls,
        session: Session,
        token: tuple[str, int] | None,
        info: Info,
        size: Callable[[], int | None],
        write: Write,
    ) -> TriedWrite | Way:
        """Begin without publishing, or return the way of a write that must publish its begin.

        size: the bytes of its rows, requested only for candidates; None: large.
        """
        if not session.config.ours:
            return CLOSED  # Hudi's own writers may be active, and their commits are adopted first
        started_ms = session.environment.now_ms()
        author = session.author(application_of(info, token), info)
        followed = session.pace.follow(author, token, reads=write.is_computed and not (write.lost or write.refused))
        if write.is_computed and session.views.hudi_is_writing():
            return HUDI  # only a block can wait
        if followed is None:
            return CLOSED
        is_first = not session.pace.has_published
        if is_first:
            require_writable(session, as_read=True)
        write = replace(write, bytes=size())
        chosen = way(followed.seen, write)
        if chosen.step == "begin":
            return chosen
        if is_first or session.environment.now_ms() - started_ms > SLOW_MS:
            followed = session.pace.follow(author, token)
        if followed is None:
            return CLOSED
        statements = Statements(session.config, followed.value, followed.requested)
        return cls(session, followed, author, token, started_ms, write, statements)

    def compute(
        self, statement: Callable[[NamedStatements], Reading[T]], scan: Callable[[Snapshot, Read], pa.Table]
    ) -> T | Way:
        """Add a statement that reads; or return another way beside a pending write of its rows, or of many rows."""
        config, statements = self.session.config, self.statements
        named, pending = NamedStatements(statements), self.followed.value.pending

        def answer(asked: Wait | Read) -> pa.Table | Way | None:
            if pending:
                reads = Reads.of(asked.columns, asked.filter, statements.schema, named.names)
                reads = EVERYTHING if statements.merging.asks_what_was_seen else reads
                if any(reads.may_meet(p.declared, config, statements.schema) for p in pending):
                    return way(replace(self.followed.seen, is_pending_earlier=True), self.write)
            if isinstance(asked, Wait):
                return None
            rows = scan(self._view(), asked)
            chosen = way(self.followed.seen, replace(self.write, bytes=bytes_of(rows)))
            return chosen if chosen.step == "begin" else rows

        return drive(statement(named), answer)

    def _view(self) -> Snapshot:
        """Return the followed version's snapshot, with the rows added so far."""
        value, collected = self.followed.value, self.statements.collected
        view = Snapshot.seal(self.session, value, moment=max(value.clock, from_ms(self.started_ms)))
        if not collected:
            return view
        return view.with_own(_staging(self.session, self.statements).stage(collected, in_memory), view.schema)

    def commit_rows(self, prepared: Prepared) -> LoneCommit | GroupCommit | Way:
        """Commit a statement after its check by the followed version, or return its longer way, with nothing left."""
        self.write = replace(
            self.write,
            adds_columns=prepared.checked.schema is not self.statements.schema,
            file_groups=self._file_groups([prepared.checked.in_memory]),
            is_postable=not self.statements.merging.asks_what_was_seen and knows_posts(self.followed.value.format),
        )
        chosen = way(self.followed.seen, self.write)
        if chosen.step == "begin":
            return chosen
        self.prepared = prepared
        NamedStatements(self.statements).collect(prepared)
        return self._committed(chosen)

    def commit_computed(self) -> LoneCommit | GroupCommit | Way:
        """Commit computed statements, or return their way after a lost race: alone again, or with a begin."""
        self.write = replace(self.write, file_groups=self._file_groups(self.statements.collected))
        chosen = way(self.followed.seen, self.write)
        return chosen if chosen.step == "begin" else self._committed(chosen)

    def _committed(self, chosen: Way) -> LoneCommit | GroupCommit | Way:
        """Commit this way, or after a lost race another; or return the way to go on, with nothing left."""
        session = self.session
        session.require_own_process()
        committed, chosen = self._alone(chosen) if chosen.step == "alone" else (None, chosen)
        if committed is None and chosen.step == "post":
            committed, chosen = self._posted(chosen)
        if committed is None:
            return chosen
        session.pace.note_seen(file.partition for file in committed.completion.files)
        if isinstance(committed, GroupCommit):
            member, operation = committed.member, self.statements.operation
            session.tell_of(committed.completion, self.started_ms, chosen, operation, member, committed.is_own)
        else:
            session.tell_of(committed.completion, self.started_ms, chosen)
        return committed

    def _alone(self, chosen: Way) -> tuple[LoneCommit | GroupCommit | None, Way]:
        """Commit in one event; after a lost race, return None with the next way."""
        write = self._own_write(self.statements, ())
        assert write is not None, "a write without rows begins"
        committed = self.session.pace.commit_alone(self.followed, write, self._draft)
        if committed is not None:
            return committed, chosen
        if self.session.pace.is_changed(self.followed):
            return None, CHANGED
        self.write = replace(self.write, lost=self.write.lost + 1)
        return None, way(self.followed.seen, self.write)

    def _posted(self, chosen: Way) -> tuple[GroupCommit | None, Way]:
        """Post the write and wait for its commit; without one, return None with the next way."""
        draft = self._draft()
        if draft is None or not draft.may_follow(self.session.known_tail()):
            return None, UNPOSTED
        committed = self.session.pace.commit_posted(self.followed.expected, draft)
        return committed, UNTAKEN if committed is None else chosen

    def _draft(self) -> Draft | None:
        statements, prepared = self.statements, self.prepared
        if prepared is None or not self.write.is_postable:
            return None
        post = post_of(prepared.stored, prepared.checked, self.author, self.token)
        if post is None:
            return None
        if self.session.config.merge.custom:
            statements.rehearse()  # a failing payload must fail before others see these rows
        return Draft(post, partial(self._may_follow, prepared), partial(self._make, prepared))

    def _may_follow(self, prepared: Prepared, tail: Timeline) -> bool:
        if not may_be_alone(tail, self.token, self.author):
            return False
        if means_alike(tail, prepared.value):
            return True
        try:
            Statements(self.session.config, tail, self.followed.requested).add(of_post(prepared.stored))
        except CrdtMorError:
            return False
        return True

    def _make(
        self, prepared: Prepared, tail: Timeline, requested: InstantTime, posts: Sequence[Post], own: Post
    ) -> LoneWrite:
        """Return the commit of these ordered posts, `own` included, without unfit ones."""
        config, statements, taken = self.session.config, self.statements, [own]
        if len(posts) > 1:
            statements, taken = group_of(config, tail, requested, posts, own, prepared.stored)
        elif tail is not statements.value or requested != statements.requested:
            statements = Statements(config, tail, requested)
            if means_alike(tail, prepared.value):
                statements.collect(prepared.checked)
            else:
                statements.add(of_post(prepared.stored))
        is_group = len(taken) > 1 or own.name is not None
        try:
            write = self._own_write(statements, [post.member for post in taken] if is_group else ())
        except (CrdtMorError, pl.exceptions.PolarsError):
            if len(taken) == 1:
                raise
            return self._make(prepared, tail, requested, [own], own)  # others report a payload's failure on their rows
        assert write is not None, "a post has rows"
        return write

    def _own_write(self, statements: Statements, members: Sequence[Member]) -> LoneWrite | None:
        """Return the log files and other puts of a commit; None without rows.

        members: the parts of a commit of several writers.
        """
        made = _lone_write(self.session, statements, self.author, members)
        if made is None:
            return None
        return replace(made, seen=self.session.pace.seen(made.partitions), token=None if members else self.token)

    def _file_groups(self, statements: Sequence[Statement]) -> int:
        """Return at most how many file groups have rows; exact if they may be too many for one event."""
        config, height = self.session.config, sum(statement.height for statement in statements)
        if not config.key.partition_fields and config.buckets is not None and config.buckets <= FILE_GROUPS_MAX:
            return min(config.buckets, height)
        if height <= FILE_GROUPS_MAX:
            return height
        frames = (s.rows if isinstance(s, RowsWrite) else s.keys for s in statements)
        return sum(frame.select(PARTITION_PATH, BUCKET).n_unique() for frame in frames)


def _staging(handle: Handle, statements: Statements) -> Staging:
    ids, judged = statements.value.file_ids, handle.judgements
    return Staging(handle.config, statements.merging, statements.requested, WRITE_TOKEN, judged, ids)


def _lone_write(handle: Handle, statements: Statements, author: Author, members: Sequence[Member]) -> LoneWrite | None:
    requested, height = statements.requested, sum(some.height for some in statements.collected)
    with one_thread() if height <= _ONE_THREAD_ROWS_MAX else nullcontext():
        logs = tuple(_staging(handle, statements).stage(statements.collected, in_memory))
    if not logs:
        return None
    partitions = tuple(sorted({file.partition for file, _ in logs}))
    return LoneWrite(requested, statements.operation, logs, partitions, author=author, members=tuple(members))


@set_maker
def _write_of_others(handle: Handle, tail: Timeline, requested: InstantTime, posts: Sequence[Post]) -> LoneWrite | None:
    """Return the commit of the posts that fit; None if none does, or a payload fails on their rows."""
    fit = [post for post in posts if may_be_alone(tail, post.token, post.author)]
    statements, taken = group_of(handle.config, tail, requested, fit)
    if not taken:
        return None
    try:
        return _lone_write(handle, statements, handle.author(), [post.member for post in taken])
    except (CrdtMorError, pl.exceptions.PolarsError):
        return None  # their owners find out which of them fails

"""Group commits: small concurrent writes are posted whole, and any writer may commit all posts.

    post      put one object with the whole write: rows, author, token, and the version it is made at
    look      list the posts, read the versions since ─ is this post taken? who publishes next?
    commit    the next writer commits all open posts in one event (`events.one_event`)
    void      before an owner raises an error, an event makes sure that its post is never taken

Each owner may publish at any time, and does so after some looks, as the others may be dead. See docs/design/groups.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from crdt_mor.errors import (
    CommitUnknownError,
    CrdtMorError,
    StorageUnavailableError,
    TableNotFoundError,
    TableReplacedError,
    WriterExpiredError,
)
from crdt_mor.events import one_event
from crdt_mor.events.one_event import ClaimedWrite, ExpectedObject, LoneCommit, LoneWrite
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log import combining, giving_way
from crdt_mor.log.combining import ABANDONED_MS, Crowd, Load
from crdt_mor.log.deciding import stopped_outcome, unknown_outcome
from crdt_mor.log.intents import PostedEvent
from crdt_mor.log.outcome import find_taken, may_be_dropped
from crdt_mor.log.paths import POSTS, is_event, only_own, post_in, post_path, version_path
from crdt_mor.log.posts import (
    LOOKS_MAX,
    NAME_CHARS,
    Post,
    Turn,
    chosen,
    decode_all,
    encode_post,
    events_in,
    read_all,
    writes_in,
)
from crdt_mor.log.projection import last_put, wait_for_projection
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import (
    Delete,
    GetStat,
    List,
    MakeDurable,
    Nonce,
    Now,
    Put,
    Read,
    Single,
    Steps,
    StoreNow,
    Together,
)
from crdt_mor.log.tail import find_tail, look_ahead, next_if_newest, still_stands
from crdt_mor.model.instant import InstantTime, claim_after
from crdt_mor.model.posts import Member, PostName, is_open
from crdt_mor.model.restore import restored_since
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion
from crdt_mor.store.protocol import Stat

Make = Callable[[Timeline, InstantTime, Sequence[Post], Post], LoneWrite]
"""Make the commit of the fitting posts after a value, at a claimed time. The last argument is this process's post."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A small write before it is posted. may_follow: returns False for a value in which the write is void."""

    post: Post
    may_follow: Callable[[Timeline], bool]
    make: Make


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """The commit that took a post, and the post's part of it. is_own: this process published it."""

    completion: Completion
    member: Member
    value: Timeline
    is_own: bool


def commit(
    publisher: TablePublisher,
    known_tail: Timeline,
    draft: Draft,
    crowd: Crowd,
    expected: ExpectedObject | None,
    shortcuts: Shortcuts,
    left: list[str],
) -> Steps[GroupCommit | Timeline]:
    """Post a write and wait until a process commits it, or return the value in which it is void.

    left: collects posts to delete later. Raises `CommitUnknownError` if the write may have been committed, and
    `WriterExpiredError` if a restore may have undone it.
    """
    try:
        tail = known_tail
        while True:
            name = PostName(tail.version, (yield Nonce())[:NAME_CHARS])
            posted = _Posted(publisher, name, replace(draft.post, name=name), draft, crowd, expected, shortcuts)
            left.append(posted.path)
            outcome = yield from posted.find_or_commit(tail)
            if isinstance(outcome, GroupCommit) or not posted.is_over:
                return outcome
            tail = outcome
    except StorageUnavailableError as error:
        raise unknown_outcome(error) from error
    except (CommitUnknownError, WriterExpiredError, TableReplacedError, TableNotFoundError):
        raise
    except CrdtMorError as error:
        raise stopped_outcome(error) from error


def commit_alone(
    publisher: TablePublisher,
    tail: Timeline,
    write: LoneWrite,
    draft: Callable[[], Draft | None],
    crowd: Crowd,
    expected: ExpectedObject | None,
    shortcuts: Shortcuts,
    *,
    is_stale: bool,
) -> Steps[LoneCommit | Timeline | None]:
    """Commit as `one_event.commit`, without posting, and publish others' posts as well.

    is_stale: others have probably published since `tail`. draft: None for a write that cannot be committed with
    others: if too many versions have passed their posts, it commits only these. If a service asks for a turn, or
    `is_stale` and others have published, nothing is staged. But after a single new version without posts, the commit
    follows that version at the claimed time.
    """
    requested = write.requested
    passed = list[Stat]()

    def make(replies: Sequence[Any]) -> Steps[tuple[Timeline, LoneWrite] | None]:
        listed, *following = replies
        if any(following):
            own = None if listed else draft()
            newest = None if own is None else (yield from next_if_newest(tail, following[0]))
            if own is None or newest is None or _has_passed(newest, requested) or not own.may_follow(newest):
                return None
            return newest, own.make(newest, requested, [own.post], own.post)
        now_ms: int = (yield StoreNow()) if listed else 0
        crowd.is_asked |= bool(listed) and giving_way.is_asked_in(listed, now_ms)
        if crowd.is_asked:
            return None  # posted writes and the long way wait for the service
        if not listed:
            crowd.has_met = False
            return tail, write
        stats = chosen(listed, tail, now_ms)
        writes = writes_in(stats, "")
        own = draft() if writes else None
        if own is None and combining.passed(stats, tail):
            passed.extend(stats)
            return None
        paths = [*(writes if own is not None else ()), *events_in(stats, "")]
        read = yield from read_all(paths, tail.table_id)
        events = tuple(posted for posted in read if isinstance(posted, PostedEvent))
        posts = [post for post in read if isinstance(post, Post)]
        crowd.has_met = bool(events)
        crowd.is_crowded |= bool(posts)
        made = write if own is None else own.make(tail, requested, [*posts, own.post], own.post)
        return tail, replace(made, events=events)

    news = (Read(version_path(tail.version + 1)),) if is_stale else ()
    claimed = ClaimedWrite(requested, (List(POSTS), *news), make)
    outcome = yield from one_event.commit(publisher, tail, claimed, expected, shortcuts)
    if outcome is None and passed:
        return (yield from publisher.carry_first(tail, passed, shortcuts))
    return outcome


def carry(
    publisher: TablePublisher,
    tail: Timeline,
    load: Load,
    make: Callable[[Timeline, InstantTime, Sequence[Post]], LoneWrite | None],
    expected: ExpectedObject | None,
    shortcuts: Shortcuts,
) -> Steps[Timeline | None]:
    """Commit posts of others and publish events with them; see `log.publish.Carry`.

    make: the commit of the fitting posts, or None.
    """
    paths = writes_in(load.writes, "")
    requested = claim_after(tail.clock, (yield Now()))
    fits = True

    def made(replies: Sequence[Any]) -> Steps[tuple[Timeline, LoneWrite] | None]:
        nonlocal fits
        read = decode_all(paths, replies, tail.table_id)
        write = make(tail, requested, [post for post in read if isinstance(post, Post)])
        fits = write is not None
        return None if write is None else (tail, replace(write, events=load.events, unposted=load.unposted))
        yield  # pragma: no cover  makes it a generator

    claimed = ClaimedWrite(requested, tuple(map(Read, paths)), made)
    outcome = yield from one_event.commit(publisher, tail, claimed, expected, shortcuts)
    if isinstance(outcome, LoneCommit):
        return outcome.value
    return outcome if fits else tail


def _has_passed(tail: Timeline, requested: InstantTime) -> bool:
    """Return True if the clock is past a claimed time: a sweep may remove its files."""
    return tail.clock >= requested


def of_alone(committed: LoneCommit) -> LoneCommit | GroupCommit:
    members = committed.completion.members
    own = next((member for member in members if member.post is None), None)
    return committed if own is None else GroupCommit(committed.completion, own, committed.value, is_own=True)


@dataclass(frozen=True, slots=True)
class Look:
    """The values that a post's owner knows. listed: the posts, if listed beside the look; took_ms: its duration.

    made_at: the post's own. genuine: the newest that is known to stand. newest: the newest, perhaps a ghost.
    """

    made_at: Timeline
    genuine: Timeline
    newest: Timeline
    listed: Sequence[Stat] | None = None
    took_ms: int = 0

    @classmethod
    def first(cls, made_at: Timeline) -> Look:
        return cls(made_at, made_at, made_at)

    def proved(self, value: Timeline) -> Look:
        return replace(self, genuine=value, newest=value)


@dataclass(slots=True)
class _Posted:
    """A post and its owner's steps. is_over: nobody took the post in its window."""

    publisher: TablePublisher
    name: PostName
    post: Post
    draft: Draft
    crowd: Crowd
    expected: ExpectedObject | None
    shortcuts: Shortcuts
    is_over: bool = False
    _known: dict[str, Post | PostedEvent | None] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return post_path(self.name)

    def find_or_commit(self, made_at: Timeline) -> Steps[GroupCommit | Timeline]:
        """Put the post, and wait until it is committed, void or closed. The put may land late, or never."""
        turn = Turn(self.path, self.crowd.others + 1)
        look = Look.first(made_at)
        unput: tuple[Single, ...] = (self._put(made_at),)
        while True:
            look = yield from self._look(look, unput)
            unput = ()
            outcome: GroupCommit | Timeline | Look | None
            if not look.newest.may_take(self.name):
                outcome = yield from self._outcome(look)
                if outcome is None:
                    outcome = look.proved((yield from find_tail(look.genuine)))
            elif not self.draft.may_follow(look.newest):
                outcome = yield from self._void(look)
            else:
                outcome = yield from self._take_turn(look, turn)
            if not isinstance(outcome, Look):
                return outcome
            look = outcome

    def _put(self, made_at: Timeline) -> Put:
        return Put(self.path, encode_post(self.post, made_at.table_id), durable=False, decides=True)

    def _look(self, look: Look, unput: tuple[Single, ...]) -> Steps[Look]:
        """Read the versions since the last look. `unput` puts the post in the first one."""
        began: int = yield Now()
        beside = (*unput, List(POSTS)) if self.shortcuts.is_far else unput
        newest, replies = yield from look_ahead(look.newest, beside, again=not unput)
        took_ms: int = (yield Now()) - began
        if unput and replies[0] is False:
            yield from self._require_own(look.made_at)
        return replace(look, newest=newest, listed=replies[-1] if self.shortcuts.is_far else None, took_ms=took_ms)

    def _take_turn(self, look: Look, turn: Turn) -> Steps[GroupCommit | Timeline | Look]:
        """Commit all open posts if it is this owner's turn, else pause. Returns a look if the post is still open."""
        listed: Sequence[Stat] = (yield List(POSTS)) if look.listed is None else look.listed
        is_alone = all(stat.path == self.path for stat in listed)
        now_ms: int = 0 if is_alone else (yield StoreNow())  # for the age of requests and posts
        posts = chosen(listed, look.newest, now_ms)
        writes = [stat for stat in posts if not is_event(stat.path)]  # their owners also publish events
        if not turn.is_due(look.newest, writes, is_asked=giving_way.is_asked_in(listed, now_ms)):
            yield from turn.pause(look.newest, look.took_ms, self.crowd.commit_ms)
            return look
        began = yield Now()
        committed = yield from self._commit(look, posts)
        if committed is not None and not self.shortcuts.is_far:
            self.crowd.note_commit((yield Now()) - began)
        if isinstance(committed, LoneCommit):
            return self._found(committed.completion, committed.value, stats=posts, is_own=True)
        proved = look.proved(committed or (yield from find_tail(look.genuine)))
        if proved.newest.version == look.newest.version:
            if turn.looks >= LOOKS_MAX or (yield from self._is_changed()):
                return (yield from self._void(proved))
            # Another process claimed this time, and is publishing or dead.
            yield from turn.pause(look.newest, look.took_ms, self.crowd.commit_ms)
        return proved

    def _is_changed(self) -> Steps[bool]:
        expected = self.expected
        return expected is not None and (yield GetStat(expected.path)) != expected.stat

    def _require_own(self, made_at: Timeline) -> Steps[None]:
        data = yield Read(self.path)
        if data not in (None, encode_post(self.post, made_at.table_id)):
            raise CommitUnknownError(
                f"two writes drew the same post name, which should never happen. Write again. path={self.path}"
            )

    def _commit(self, look: Look, stats: Sequence[Stat]) -> Steps[LoneCommit | Timeline | None]:
        """Commit all open posts and events after the newest value.

        It may be a ghost. So the genuine value is checked first, or in a bucket beside the claim.
        """
        genuine, tail = look.genuine, look.newest
        proof = () if genuine is tail else (Read(version_path(genuine.version)),)
        if proof and not self.shortcuts.is_far and not (yield from still_stands(genuine)):
            return None
        unread = self._unread(stats)
        requested = claim_after(tail.clock, (yield Now()))

        def make(replies: Sequence[Any]) -> Steps[tuple[Timeline, LoneWrite] | None]:
            if proof and (replies[0] is None or not genuine.is_in(replies[0])):
                return None
            self._known.update(zip(unread, decode_all(unread, replies[len(proof) :], tail.table_id), strict=True))
            there = stats
            if not self.shortcuts.is_far:  # others post while this process waits for the disk
                yield MakeDurable(self.publisher.projector.claim_path(requested))
                there = chosen((yield List(POSTS)), tail, (yield StoreNow()))
                new = self._unread(there)
                self._known.update(zip(new, (yield from read_all(new, tail.table_id)), strict=True))
            order = [stat.path for stat in there]
            found = {path: self._known[path] for path in self._paths(there)}
            posts = {path: post for path, post in found.items() if isinstance(post, Post)}
            posts[self.path] = self.post
            in_order = sorted(posts, key=lambda path: order.index(path) if path in order else len(order))
            made = self.draft.make(tail, requested, [posts[path] for path in in_order], self.post)
            return tail, replace(made, events=tuple(e for e in found.values() if isinstance(e, PostedEvent)))

        write = ClaimedWrite(requested, (*proof, *map(Read, unread)), make)
        return (yield from one_event.commit(self.publisher, tail, write, self.expected, self.shortcuts))

    def _unread(self, stats: Sequence[Stat]) -> list[str]:
        return [path for path in self._paths(stats) if path not in self._known]

    def _paths(self, stats: Sequence[Stat]) -> list[str]:
        return [*writes_in(stats, self.path), *events_in(stats, self.path)]

    # --- the outcome --------------------------------------------------------------------------------------------------

    def _outcome(self, look: Look) -> Steps[GroupCommit | Timeline | None]:
        """Return the outcome of a post that no later version may take, or None if the newest value may be a ghost."""
        made_at, genuine, newest = look.made_at, look.genuine, look.newest
        taken = newest.find_taken(self.name)
        files = (yield from self.publisher.projector.files(newest)) if taken is not None else ()
        last = last_put(files)
        looks = [] if last is None else [GetStat(last.path)]
        there, *told = yield Together((Read(version_path(genuine.version)), *looks))
        if there is None or not genuine.is_in(there):
            return None
        completion = taken or (yield from find_taken(self.name, made_at.clock, newest))
        if completion is not None:
            is_told = completion.version < newest.version or (told and None not in told)  # by the next writer: rule 2
            if not is_told and not (yield from wait_for_projection(self.publisher.projector, newest)):
                yield from self.publisher.help_project(newest)
            return self._found(completion, newest)
        if may_be_dropped(made_at.clock, newest):
            raise CommitUnknownError(
                "whether this write was committed is unknown: the table dropped the history of that time. Check "
                "whether the rows are in the table before you write again; a write with a token may be repeated. "
                f"version={newest.version}"
            )
        if restored_since(newest.restores, made_at.version) is not None:
            raise WriterExpiredError(
                "the table was restored to an earlier moment during this write. Nothing of the write is visible. "
                f"Write again. version={newest.version}"
            )
        self.is_over = not is_open(self.name, newest.version)
        return newest

    def _found(
        self, completion: Completion, value: Timeline, stats: Sequence[Stat] = (), is_own: bool = False
    ) -> GroupCommit:
        member = completion.find_member(self.name)
        assert member is not None, "a commit that took a post says so"
        writes = sum(not is_event(stat.path) for stat in stats)
        self.crowd.others = max(writes, len(completion.members)) - 1
        self.crowd.is_crowded = self.crowd.others > 0
        self.crowd.has_met = len(stats) > writes
        return GroupCommit(completion, member, value, is_own)

    def _void(self, look: Look) -> Steps[GroupCommit | Timeline]:
        value = yield from void(self.publisher, look.genuine, [self.name])
        while (outcome := (yield from self._outcome(look.proved(value)))) is None:  # deleted since, as by a restore
            value = yield from find_tail(look.genuine)
        self.is_over = False
        return outcome


def void(publisher: TablePublisher, known_tail: Timeline, posts: Sequence[PostName]) -> Steps[Timeline]:
    """Make sure that nobody takes these posts any more."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        return tail.void(nonce, wall_ms, posts) if any(map(tail.may_take, posts)) else None

    return (yield from publisher.publish(derive, known_tail))


def _is_left(stat: Stat, now_ms: int) -> bool:
    return giving_way.is_request(stat.path) and abs(now_ms - stat.modified_ms) > ABANDONED_MS


def sweep_posts(publisher: TablePublisher, known_tail: Timeline, before_ms: int | None = None) -> Steps[list[str]]:
    """Delete closed posts and turn requests of dead processes. Returns undeleted posts. before_ms: void older posts
    first.
    """
    listed = only_own((yield List(POSTS)))
    now_ms: int = (yield StoreNow()) if listed else 0
    old = [stat for stat in listed if before_ms is not None and stat.modified_ms <= before_ms]
    named = [post for stat in old if (post := post_in(stat.path)) is not None]
    if any(map(known_tail.may_take, named)):
        known_tail = yield from void(publisher, known_tail, named)
    left = []
    for stat in listed:
        post = post_in(stat.path)
        is_over = post is not None and post.version <= known_tail.version and not known_tail.may_take(post)
        if (is_over or _is_left(stat, now_ms)) and not (yield Delete(stat.path)):
            left.append(stat.path)
    return left

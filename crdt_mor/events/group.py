"""A group commit: a small write that is not alone is posted whole, and one of its kind commits all that are posted.

    post      put one object with all of the write: its rows, author and token, and the version that it is made at
    look      list the posts, and read the versions that have followed ─ is this one taken? whose turn is it?
    commit    one whose turn it is commits all open posts in one event (`events.one_event`), its own among them
    void      an owner that has to raise an error makes sure that its post is never taken, in an event of its own

A group is one instant with one log file a file group, and one file for Hudi, of many authors. Nobody leads: each owner
may publish whenever it likes, and does so after some looks, as the others may be dead.

*Why no write is committed twice, or after its owner was told that it failed.* A post is open for a few versions after
the one that it names, and the value keeps for just as long which were taken or voided. A publisher judges both by the
very value that it derives from. So neither an old list, nor a late second copy of a post, nor a clock decides anything.

*Why an owner believes what it finds.* Its post is taken in a value that stands, or in the history of one; else, once
its window has passed, by nobody any more, and it is posted anew under another name.
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
from crdt_mor.events.one_event import ClaimedWrite, Expected, LoneCommit, LoneWrite
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log import giving_way
from crdt_mor.log.combining import ABANDONED_MS, Crowd
from crdt_mor.log.deciding import stopped_outcome, unknown_outcome
from crdt_mor.log.intents import PostedEvent
from crdt_mor.log.outcome import find_taken, may_be_dropped
from crdt_mor.log.paths import POSTS, is_event, only_own, post_in, post_path, version_path
from crdt_mor.log.posts import LOOKS_MAX, NAME_CHARS, Post, Turn, chosen, decode, encode_post, events_in, writes_in
from crdt_mor.log.projection import wait_for_projection
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
"""The commit that follows a value, at a claimed time, of the posts that fit; they come in their order, and the last
argument is this process's own among them."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A whole small write before it is posted, without a name.

    may_follow: whether it may still be committed after a value; where not, it is voided. make: see `Make`.
    """

    post: Post
    may_follow: Callable[[Timeline], bool]
    make: Make


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """The commit that took a post, the post's part of it, and a value that holds it, or a later one.

    is_own: whether this process has published it.
    """

    completion: Completion
    member: Member
    value: Timeline
    is_own: bool


def commit(
    publisher: TablePublisher,
    known: Timeline,
    draft: Draft,
    crowd: Crowd,
    expected: Expected | None,
    shortcuts: Shortcuts,
    left: list[str],
) -> Steps[GroupCommit | Timeline]:
    """Post a write, and see it committed, by whichever process; where it cannot be, the value that has it voided.

    left: the objects of posts are added, which are to be deleted, and which nobody waits for.
    Raises `CommitUnknownError` where it may have been committed, and `WriterExpiredError` where the table was restored
    meanwhile: if the write was committed, it is not any more.
    """
    try:
        tail = known
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
    requested: InstantTime,
    draft: Draft | LoneWrite,
    crowd: Crowd,
    expected: Expected | None,
    shortcuts: Shortcuts,
) -> Steps[LoneCommit | Timeline | None]:
    """As `one_event.commit`, of a write that was not posted, which takes along what others have posted.

    It looks beside its claim, so that nothing is staged where others have published meanwhile, or a service asks for a
    turn. Where one version has followed, as since a while ago, and nobody has posted, it follows that one instead, at
    the time that it has claimed.

    draft: where it is a commit that is made already, which no other write may join, it takes along events alone.
    """

    def make(replies: Sequence[Any]) -> Steps[tuple[Timeline, LoneWrite] | None]:
        listed, following = replies
        if following is not None:
            if listed or isinstance(draft, LoneWrite):
                return None
            newest = yield from next_if_newest(tail, following)
            if newest is None or _has_passed(newest, requested) or not draft.may_follow(newest):
                return None
            return newest, draft.make(newest, requested, [draft.post], draft.post)
        now_ms: int = (yield StoreNow()) if listed else 0
        crowd.is_asked |= giving_way.is_asked_in(listed, now_ms)
        if crowd.is_asked:
            return None  # among those that have posted, and in the long way, it waits for the service
        stats = chosen(listed, tail, now_ms)
        paths = [*(writes_in(stats, "") if isinstance(draft, Draft) else ()), *events_in(stats, "")]
        found = (yield Together(tuple(map(Read, paths)))) if paths else ()
        read = [decode(data, path, tail.table_id) for path, data in zip(paths, found, strict=True)]
        events = tuple(posted for posted in read if isinstance(posted, PostedEvent))
        crowd.has_met = bool(events)
        if isinstance(draft, LoneWrite):
            return tail, replace(draft, events=events)
        posts = [post for post in read if isinstance(post, Post)]
        crowd.is_crowded |= bool(posts)
        return tail, replace(draft.make(tail, requested, [*posts, draft.post], draft.post), events=events)

    write = ClaimedWrite(requested, (List(POSTS), Read(version_path(tail.version + 1))), make)
    return (yield from one_event.commit(publisher, tail, write, expected, shortcuts))


def _has_passed(tail: Timeline, requested: InstantTime) -> bool:
    """Whether a version's clock has passed a time that was claimed before, so that a sweep may remove what it has."""
    return tail.clock >= requested


def of_alone(committed: LoneCommit) -> LoneCommit | GroupCommit:
    """A commit that was not posted: that of a group, where it took along what others have posted."""
    members = committed.completion.members
    own = next((member for member in members if member.post is None), None)
    return committed if own is None else GroupCommit(committed.completion, own, committed.value, is_own=True)


@dataclass(slots=True)
class _Posted:
    """One post, and what its owner does about it. is_over: its window has passed, and nobody has taken it."""

    publisher: TablePublisher
    name: PostName
    post: Post
    draft: Draft
    crowd: Crowd
    expected: Expected | None
    shortcuts: Shortcuts
    is_over: bool = False
    _known: dict[str, Post | PostedEvent | None] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return post_path(self.name)

    def find_or_commit(self, made_at: Timeline) -> Steps[GroupCommit | Timeline]:
        """Put the post, which may land at any time, or never; and see what becomes of it.

        It is committed, or voided, or its window passes, as of the value returned.
        """
        turn = Turn(self.path, self.crowd.others + 1)
        tail = genuine = made_at
        post = Put(self.path, encode_post(self.post, made_at.table_id), durable=False, decides=True)
        unput: tuple[Single, ...] = (post,)
        while True:
            began: int = yield Now()
            beside = (*unput, List(POSTS)) if self.shortcuts.is_far else unput
            newest, replies = yield from look_ahead(tail, beside, again=not unput)
            look_ms: int = (yield Now()) - began
            if unput and replies[0] is False:
                yield from self._require_own(made_at)
            unput = ()
            if not newest.may_take(self.name):
                outcome = yield from self._outcome(made_at, genuine, newest)
                if outcome is not None:
                    return outcome
                tail = genuine = yield from find_tail(genuine)
                continue
            tail = newest
            if not self.draft.may_follow(tail):
                return (yield from self._void(made_at, genuine))
            listed: list[Stat] = replies[-1] if self.shortcuts.is_far else (yield List(POSTS))
            is_alone = all(stat.path == self.path for stat in listed)
            now_ms: int = 0 if is_alone else (yield StoreNow())  # which takes requests, and tells how old others' are
            posts = chosen(listed, tail, now_ms)
            writes = [stat for stat in posts if not is_event(stat.path)]  # whose owners publish events as well
            if not turn.is_due(tail, writes, is_asked=giving_way.is_asked_in(listed, now_ms)):
                yield from turn.pause(tail, look_ms, self.crowd.commit_ms)
                continue
            began = yield Now()
            committed = yield from self._commit(genuine, tail, posts)
            if committed is not None and not self.shortcuts.is_far:
                self.crowd.note_commit((yield Now()) - began)
            if isinstance(committed, LoneCommit):
                return self._found(committed.completion, committed.value, stats=posts, is_own=True)
            genuine = committed or (yield from find_tail(genuine))
            if genuine.version == tail.version:
                if turn.looks >= LOOKS_MAX or (yield from self._is_changed()):
                    return (yield from self._void(made_at, genuine))
                # Another process has claimed this time: it publishes now, or is dead.
                yield from turn.pause(tail, look_ms, self.crowd.commit_ms)
            tail = genuine

    def _is_changed(self) -> Steps[bool]:
        """Whether the object is another one by now that the write was made by: it is made again by the new one."""
        expected = self.expected
        return expected is not None and (yield GetStat(expected.path)) != expected.stat

    def _require_own(self, made_at: Timeline) -> Steps[None]:
        """Raise where another process has a post of this name, which is committed, or not, for that process."""
        data = yield Read(self.path)
        if data not in (None, encode_post(self.post, made_at.table_id)):
            raise CommitUnknownError(f"two writes drew one name, which should never be: write again. path={self.path}")

    def _commit(self, genuine: Timeline, tail: Timeline, stats: Sequence[Stat]) -> Steps[LoneCommit | Timeline | None]:
        """Commit all open posts after `tail`, and with them the events that are posted; see `one_event.commit`.

        genuine: a value that was found by `find_tail`, and from which `tail` was found. It is seen to stand before
        anything is done by `tail`, which may be a ghost: beside the claim, where every round trip counts.
        """
        proof = () if genuine is tail else (Read(version_path(genuine.version)),)
        if proof and not self.shortcuts.is_far and not (yield from still_stands(genuine)):
            return None
        unread = self._unread(stats)
        requested = claim_after(tail.clock, (yield Now()))

        def make(replies: Sequence[Any]) -> Steps[tuple[Timeline, LoneWrite] | None]:
            if proof and (replies[0] is None or not genuine.is_in(replies[0])):
                return None
            self._note(tail, unread, replies[len(proof) :])
            there = stats
            if not self.shortcuts.is_far:  # others post while the disk is waited for
                yield MakeDurable(self.publisher.projector.claim_path(requested))
                there = chosen((yield List(POSTS)), tail, (yield StoreNow()))
                new = self._unread(there)
                self._note(tail, new, (yield Together(tuple(map(Read, new)))) if new else ())
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
        """Of the posts that a commit may take those that this process has not read yet."""
        return [path for path in self._paths(stats) if path not in self._known]

    def _paths(self, stats: Sequence[Stat]) -> list[str]:
        """The objects of others' posts that a commit may take, and of the events that its version publishes."""
        return [*writes_in(stats, self.path), *events_in(stats, self.path)]

    def _note(self, tail: Timeline, paths: Sequence[str], found: Sequence[bytes | None]) -> None:
        for path, data in zip(paths, found, strict=True):
            self._known[path] = decode(data, path, tail.table_id)

    # --- the outcome --------------------------------------------------------------------------------------------------

    def _outcome(self, made_at: Timeline, genuine: Timeline, newest: Timeline) -> Steps[GroupCommit | Timeline | None]:
        """What has become of a post that no version after `newest` may take; None where `newest` may be a ghost.

        genuine: a value that was found by `find_tail`, and from which `newest` was found.
        """
        taken = newest.find_taken(self.name)
        files = (yield from self.publisher.projector.files(newest)) if taken is not None else ()
        looks = [GetStat(file.path) for file in files[-1:]]
        there, *told = yield Together((Read(version_path(genuine.version)), *looks))
        if there is None or not genuine.is_in(there):
            return None
        completion = taken or (yield from find_taken(self.name, made_at.clock, newest))
        if completion is not None:
            is_told = completion.version < newest.version or (told and None not in told)  # by the next one, see rule 2
            if not is_told and not (yield from wait_for_projection(self.publisher.projector, newest)):
                yield from self.publisher.help_project(newest)
            return self._found(completion, newest)
        if may_be_dropped(made_at.clock, newest):
            raise CommitUnknownError(
                "whether this write was committed is not known any more: it was posted before the history that the "
                "table has dropped. Look at the table before writing again, or write with a token, which may be "
                f"repeated. version={newest.version}"
            )
        if restored_since(newest.restores, made_at.version) is not None:
            raise WriterExpiredError(
                "the table was restored to an earlier moment while this write was under way. Nothing of it is visible. "
                f"Write again. version={newest.version}"
            )
        self.is_over = not is_open(self.name, newest.version)
        return newest

    def _found(
        self, completion: Completion, value: Timeline, stats: Sequence[Stat] = (), is_own: bool = False
    ) -> GroupCommit:
        """stats: the posts that this process has seen, its own among them."""
        member = completion.find_member(self.name)
        assert member is not None, "a commit that took a post says so"
        writes = sum(not is_event(stat.path) for stat in stats)
        self.crowd.others = max(writes, len(completion.members)) - 1
        self.crowd.is_crowded = self.crowd.others > 0
        self.crowd.has_met = len(stats) > writes
        return GroupCommit(completion, member, value, is_own)

    def _void(self, made_at: Timeline, known: Timeline) -> Steps[GroupCommit | Timeline]:
        """Make sure that nobody takes the post from here on; somebody may have done so meanwhile."""
        value = yield from void(self.publisher, known, [self.name])
        outcome = yield from self._outcome(made_at, value, value)
        self.is_over = False
        return value if outcome is None else outcome


def void(publisher: TablePublisher, known: Timeline, posts: Sequence[PostName]) -> Steps[Timeline]:
    """Make sure that nobody takes posts from here on. An owner that is alive writes again, in a write that begins."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        return tail.void(nonce, wall_ms, posts) if any(map(tail.may_take, posts)) else None

    return (yield from publisher.publish(derive, known))


def _is_left(stat: Stat, now_ms: int) -> bool:
    """Whether an object asks for a turn, and has done so for so long that its process is dead."""
    return giving_way.is_request(stat.path) and abs(now_ms - stat.modified_ms) > ABANDONED_MS


def sweep_posts(publisher: TablePublisher, known: Timeline, before_ms: int | None = None) -> Steps[list[str]]:
    """Delete the posts that nobody may take any more, and what a process has left there that asked for a turn and died.

    Returns the paths of posts that could not be deleted.

    before_ms: those that were put by then are voided first, so that nobody may take them either.
    """
    listed = only_own((yield List(POSTS)))
    now_ms: int = (yield StoreNow()) if listed else 0
    old = [stat for stat in listed if before_ms is not None and stat.modified_ms <= before_ms]
    named = [post for stat in old if (post := post_in(stat.path)) is not None]
    if any(map(known.may_take, named)):
        known = yield from void(publisher, known, named)
    left = []
    for stat in listed:
        post = post_in(stat.path)
        is_over = post is not None and post.version <= known.version and not known.may_take(post)
        if (is_over or _is_left(stat, now_ms)) and not (yield Delete(stat.path)):
            left.append(stat.path)
    return left

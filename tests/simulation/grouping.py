"""Who lives in the small worlds of group commits, and what holds there: owners of posts, and all that are beside them.

Each write has a number, which is how many rows it says it has. A commit has one file for each of its writes, in a file
group of the write's own, which says who has published it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError, WriterExpiredError
from crdt_mor.events import group, one_event, restore, write
from crdt_mor.events import overwrite as overwriting
from crdt_mor.events.group import Draft, GroupCommit
from crdt_mor.events.one_event import LoneCommit, LoneWrite
from crdt_mor.log.combining import Crowd, Load
from crdt_mor.log.paths import POSTS, post_path, version_path
from crdt_mor.log.posts import Post
from crdt_mor.log.projection import Projected
from crdt_mor.log.publish import NO_SHORTCUTS, Shortcuts
from crdt_mor.log.steps import Delete, List, Put, Steps, Walk
from crdt_mor.log.stopping import blocking_token
from crdt_mor.log.tail import find_tail
from crdt_mor.model.authors import Author
from crdt_mor.model.instant import InstantTime, claim_after
from crdt_mor.model.names import LogFileName, bucket_file_id, data_file_name
from crdt_mor.model.overwrite import OVERWRITE, Scope
from crdt_mor.model.posts import PostName
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, Pending
from crdt_mor.planners.overwrite import StagedOverwrite
from crdt_mor.store.protocol import Stat
from crdt_mor.write.posts import _encoded, _statement_if_new
from crdt_mor.write.statements import RowsStatement
from tests.driving import staged_path
from tests.simulation.actors import PUBLISHER, Run, finish
from tests.simulation.small_store import LOG, Violation, check_begins, completed_path, completions_of, decoded
from tests.simulation.small_world import World

START = Timeline.genesis("[]", "the-table")

FIRST = 11
"""The number of the first write here; the writes of other actors have one row."""

AHEAD_MS = 40
"""A time that the clock of no table here reaches before a writer whose own clock says so."""

CONTENT = _encoded(RowsStatement("UPSERT", pa.table({"id": pa.array([], pa.string())})))

Token = tuple[str, int]
Follow = Callable[[Timeline], bool]


def always(tail: Timeline) -> bool:
    return True


def until(version: int, tail: Timeline) -> bool:
    """A write that may be committed by the next few versions and by none after them, whatever the reason is."""
    return tail.version < version


def as_it_was(tail: Timeline) -> bool:
    """A write that does not fit once the schema has grown."""
    return tail.schema == START.schema


def post_of(number: int, token: Token | None = None, name: PostName | None = None, fits: Follow = always) -> Post:
    rigid = fits is as_it_was
    return Post(name, Author("world", "host", number), token, "UPSERT", rigid, number, 0, CONTENT)


def draft_of(number: int, token: Token | None = None, fits: Follow = always) -> Draft:
    """A write that is committed with all others that fit."""

    def make(tail: Timeline, requested: InstantTime, posts: Sequence[Post], own: Post) -> LoneWrite:
        taken: list[Post] = []
        for post in posts:
            is_new = _statement_if_new(tail, post, [*taken, own]) is not None
            if post is own or (is_new and (as_it_was(tail) or not post.plain)):
                taken.append(post)
        return written(requested, taken, number)

    def may_follow(tail: Timeline) -> bool:
        return fits(tail) and blocking_token(tail, token) is None

    return Draft(post_of(number, token, fits=fits), may_follow, make)


def written(requested: InstantTime, posts: Sequence[Post], publisher: int) -> LoneWrite:
    """The commit of posts by the process with this number."""
    files = tuple((file_of(post.rows, requested), rows_of(post.rows, publisher)) for post in posts)
    author = Author("world", "host", publisher)
    members = tuple(post.member for post in posts) if len(posts) > 1 or posts[0].name is not None else ()
    token = posts[0].token if not members else None
    return LoneWrite(requested, "UPSERT", files, token=token, author=author, members=members)


def file_of(number: int, requested: InstantTime) -> DataFile:
    return DataFile(str(LogFileName(bucket_file_id(number), requested)), 1, number)


def rows_of(number: int, publisher: int) -> bytes:
    return f"{number} by {publisher}".encode()


# --- who is there -----------------------------------------------------------------------------------------------------


def owner(
    number: int, value: Timeline, *, bucket: bool = False, token: Token | None = None, fits: Follow = always
) -> Run:
    """A writer that posts, and removes its posts once it knows what has become of them."""
    left: list[str] = []
    late: list[Projected] | None = [] if bucket else None
    shortcuts = Shortcuts(late=late)
    draft = draft_of(number, token, fits)
    try:
        outcome = yield from group.commit(PUBLISHER, value, draft, Crowd(), None, shortcuts, left)
    except (CommitUnknownError, WriterExpiredError):
        return ("unknown", number)  # of one that a restore has dropped it is known that it is not there
    for path in left:
        yield Delete(path)
    if isinstance(outcome, GroupCommit):
        assert outcome.member.rows == number
        return ("committed", number, outcome.completion.requested)
    return ("refused", number)


def loner(number: int, value: Timeline, *, along: bool = False, bucket: bool = False, ahead: bool = False) -> Run:
    """A writer that commits alone. along: it takes others' posts along. ahead: its clock is ahead of the table's."""
    requested = claim_after(value.clock, AHEAD_MS if ahead else 0)
    shortcuts = Shortcuts(late=[] if bucket else None)
    draft = draft_of(number)
    write = written(requested, [draft.post], number)
    if along:
        outcome = yield from group.commit_alone(
            PUBLISHER, value, write, lambda: draft, Crowd(), None, shortcuts, is_stale=True
        )
    else:
        outcome = yield from one_event.commit(PUBLISHER, value, write, None, shortcuts)
    if isinstance(outcome, LoneCommit):
        return ("committed", number, outcome.completion.requested)
    return ("lost", number)


def crowded() -> Shortcuts:
    """Those of a process that has met others: it posts its events at once."""
    return Shortcuts(crowd=Crowd(is_crowded=True))


def beginner(value: Timeline, *, completes: bool = False) -> Run:
    """A larger write, which posts its begin. completes: it goes on, and is completed by its own process."""
    with suppress(WriterExpiredError):
        value, begun = yield from write.begin(PUBLISHER, value, 1 << 60, shortcuts=crowded())
        if completes:
            return (yield from finish(value, begun))
    return ("begun", None)


def ender(value: Timeline, begun: Pending) -> Run:
    """A larger write that has begun, and posts its end, of no file."""
    try:
        yield from write.complete(PUBLISHER, value, begun, "UPSERT", [], None, shortcuts=crowded())
    except WriterExpiredError:
        return ("expired", begun.requested)
    return ("acknowledged", begun.requested)


def copier(path: str, data: bytes) -> Run:
    """A second copy of a post, which lands at any time."""
    yield Put(path, data, durable=False)


def grower(value: Timeline) -> Run:
    """Lets the schema grow by a column."""

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        return tail.grow("grown", wall_ms, '[["n","int64"]]') if as_it_was(tail) else None

    yield from PUBLISHER.publish(derive, value)


def eraser(value: Timeline) -> Run:
    """Sees that nothing is left of the posts that are there."""
    stats = yield List(POSTS)
    value = yield from find_tail(value)
    left = yield from group.sweep_posts(PUBLISHER, value, 0)
    assert not left
    value = yield from find_tail(value)
    return ("erased", tuple(stat.path for stat in stats), value.version)


def restorer(value: Timeline) -> Run:
    """Restores the table to what it showed after this version, by which nothing was committed."""
    listed: list[Stat] = yield Walk()
    there = {stat.path for stat in listed}
    yield from restore.restore(PUBLISHER, value, lambda _: value.clock, there, (), None)


def overwriter(value: Timeline, begun: Pending) -> Run:
    """A write that has begun; it overwrites the table with no rows."""
    empty = staged_path(begun.requested, "empty")
    yield Put(empty, b"no rows")
    staged = StagedOverwrite(OVERWRITE, Scope(("",)), (), (empty, 1))
    try:
        yield from overwriting.overwrite(PUBLISHER, value, begun, staged, None)
    except WriterExpiredError:
        return ("expired", begun.requested)
    return ("acknowledged", begun.requested)


# --- who carries posts of others --------------------------------------------------------------------------------------

PUBLISHER_OF_OTHERS = 7
"""By this number, files say that a publisher without a write of its own has made them."""


def fitting(tail: Timeline, requested: InstantTime, posts: Sequence[Post]) -> LoneWrite | None:
    """The commit of the posts that fit: neither a used token nor rows of an earlier schema."""
    taken: list[Post] = []
    for post in posts:
        if _statement_if_new(tail, post, taken) is not None and (as_it_was(tail) or not post.plain):
            taken.append(post)
    return written(requested, taken, PUBLISHER_OF_OTHERS) if taken else None


def carry(tail: Timeline, load: Load, shortcuts: Shortcuts) -> Steps[Timeline | None]:
    return (yield from group.carry(CARRIER, tail, load, fitting, None, shortcuts))


CARRIER = replace(PUBLISHER, carry=carry)


def carrying_beginner(
    value: Timeline, *, completes: bool = False, is_crowded: bool = False, bucket: bool = False
) -> Run:
    """A larger write. completes: it goes on to its end. is_crowded: it posts its events."""
    shortcuts = Shortcuts(crowd=Crowd(is_crowded=is_crowded), late=[] if bucket else None)
    with suppress(WriterExpiredError, StorageUnavailableError):  # of a claim without an answer: nothing was published
        value, begun = yield from write.begin(CARRIER, value, 1 << 60, shortcuts=shortcuts)
        if completes:
            return (yield from finish(value, begun))
    return ("begun", None)


def carrying_ender(value: Timeline, begun: Pending) -> Run:
    """A larger write that has begun, and ends without files."""
    try:
        yield from write.complete(CARRIER, value, begun, "UPSERT", [], None, shortcuts=Shortcuts(crowd=Crowd()))
    except WriterExpiredError:
        return ("expired", begun.requested)
    return ("acknowledged", begun.requested)


def carrying_planner(value: Timeline) -> Run:
    """An event that nobody else can publish, as a plan is: posts are committed before it."""
    yield from CARRIER.publish(lambda tail, _: tail.decide("plan", 0), value)


def carrying_reader(value: Timeline) -> Run:
    """A commit of one writer that has read the table: posts are committed before it, and it has lost."""
    requested = claim_after(value.clock, 0)
    own = written(requested, [post_of(PUBLISHER_OF_OTHERS)], PUBLISHER_OF_OTHERS)
    yield from group.commit_alone(CARRIER, value, own, lambda: None, Crowd(), None, NO_SHORTCUTS, is_stale=False)


# --- what holds -------------------------------------------------------------------------------------------------------


class GroupWorld(World):
    """A world in which writes are posted."""

    def check(self, objects: dict[str, Any]) -> None:
        super().check(objects)
        self.check_writes(objects)

    def check_writes(self, objects: dict[str, Any]) -> None:
        """Raise `Violation` where writes, or files under the time of one, are not as they must be."""
        committed = committed_in(objects)
        numbers = [number for completion in committed for number in numbers_of(completion)]
        posts = [member.post for completion in committed for member in completion.members if member.post is not None]
        if len(numbers) != len(set(numbers)) or len(posts) != len(set(posts)):
            raise Violation(f"a write was committed twice: {numbers} {posts}")
        tokens = [token for completion in committed for token in completion.tokens]
        if len(tokens) != len(set(tokens)):
            raise Violation(f"two writes with one token were committed: {tokens}")
        check_claims(objects)
        check_begins(objects)

    def check_result(self, result: Any, objects: dict[str, Any]) -> None:
        super().check_result(result, objects)
        match result:
            case ("committed", number, requested):
                found = [c for c in completions_of(decoded(objects[LOG][-1]), objects) if c.requested == requested]
                if not found or number not in numbers_of(found[0]):
                    raise Violation(f"a write was acknowledged, and is not committed: {number}")
                if completed_path(found[0]) not in objects:
                    raise Violation(f"a write was acknowledged of which Hudi was not told: {number}")
            case ("refused" | "lost", number):
                if any(number in numbers_of(completion) for completion in committed_in(objects)):
                    raise Violation(f"a write was refused, and is committed: {number}")
            case ("erased", paths, version):
                for completion in committed_in(objects):
                    taken = {post_path(m.post) for m in completion.members if m.post is not None}
                    if completion.version > version and not taken.isdisjoint(paths):
                        raise Violation(f"a post was committed after it was erased: {paths}")


class RestoredWorld(GroupWorld):
    """One in which the table is restored to an earlier moment; `Restored` asks for all that restores promise."""

    def land(self, objects: dict[str, Any], path: str, data: bytes) -> dict[str, Any] | None:
        if path in objects:
            return None
        newest = decoded(objects[LOG][-1])
        genuine = (data,) if path == version_path(newest.version + 1) else ()
        return {**objects, path: data, LOG: (*objects[LOG], *genuine)}

    def check(self, objects: dict[str, Any]) -> None:
        self.check_writes(objects)

    def check_result(self, result: Any, objects: dict[str, Any]) -> None:
        match result:
            case ("committed", number, _):
                if not any(number in numbers_of(completion) for completion in committed_in(objects)):
                    raise Violation(f"a write was acknowledged, and never was committed: {number}")
            case ("refused", _):
                super().check_result(result, objects)
            case ("lost", number):  # it writes again, as if it had begun after a restore that has dropped its commit
                if any(number in numbers_of(c) for c in completions_of(decoded(objects[LOG][-1]), objects)):
                    raise Violation(f"a write was said to be lost, and is committed: {number}")


def committed_in(objects: dict[str, Any]) -> list[Completion]:
    """Every commit that any genuine version had, also those that a restore has dropped."""
    found = {c.requested: c for data in objects[LOG] for c in decoded(data).completions}
    return list((found | {c.requested: c for c in completions_of(decoded(objects[LOG][-1]), objects)}).values())


def numbers_of(completion: Completion) -> list[int]:
    """The numbers of the writes that a commit is of."""
    numbers = [member.rows for member in completion.members] or [file.rows for file in completion.files]
    return [number for number in numbers if number >= FIRST]


def check_claims(objects: dict[str, Any]) -> None:
    """Under the time of a commit no file but its own stands: Hudi's readers would show it."""
    named = {path: name.instant for path in objects if (name := data_file_name(path)) is not None}
    for completion in completions_of(decoded(objects[LOG][-1]), objects):
        numbers = numbers_of(completion)
        if not numbers:
            continue
        there = {path: objects[path] for path, instant in named.items() if instant == completion.requested}
        assert completion.author is not None
        own = {file_of(n, completion.requested).path: rows_of(n, completion.author.pid) for n in numbers}
        if there != own:
            raise Violation(f"files under the time of another's commit: {completion.requested} {there} {own}")

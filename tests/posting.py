"""Posts of other processes, for the writes of a test to commit.

    post(table, rows)         put the post of an upsert; its process is silent afterwards
    in_a_crowd(table)         let the next small write of this handle be posted; it commits the posts there, too
    meanwhile(store, run)     run another process's work after the first post of a handle over this store

A post is an object, and any process can commit it, so there are no threads. The table needs a simulated clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

import pyarrow as pa

from crdt_mor import Table
from crdt_mor.log.paths import POSTS, is_event, post_path
from crdt_mor.log.posts import Post, encode_post
from crdt_mor.model.authors import Author, application_of
from crdt_mor.model.instant import EPOCH
from crdt_mor.model.posts import PostName
from crdt_mor.store import Store
from crdt_mor.write.posts import post_of
from crdt_mor.write.statements import Operation, RowsStatement, Statements
from tests.inside import session_of, store_of, tail_of
from tests.stores import ScriptedStore, WatchedStore, first

_NUMBERS = count(1)


def in_a_crowd(table: Table) -> Table:
    """The table, whose handle has met other writers lately: its next small write is posted."""
    session_of(table).pace.crowd.is_crowded = True
    return table


def made(
    table: Table,
    rows: pa.Table,
    statement: Operation = "UPSERT",
    *,
    host: str = "elsewhere",
    info: Mapping[str, str] | None = None,
    token: tuple[str, int] | None = None,
    plain: bool = False,
    nulls: tuple[str, ...] = (),
) -> Post:
    """A whole write that another process would post: one statement on a table, of columns under stored names."""
    session, tail = session_of(table), tail_of(table)
    stored = RowsStatement(statement, rows, plain=plain, nulls=nulls)
    checked = Statements(session.config, tail, EPOCH).check(stored)
    said = tuple((info or {}).items())
    author = Author(application_of(said, token) or "other", host, next(_NUMBERS), said)
    found = post_of(stored, checked, author, token)
    assert found is not None, "the write is small"
    return found


def put(
    table: Table, post: Post, *, version: int | None = None, table_id: str | None = None, number: int | None = None
) -> PostName:
    """Post a write in a table. version, table_id: what it names, in place of the table's newest version and its id.

    number: in its name, in place of one that no other post has.
    """
    tail = tail_of(table)
    place = next(_NUMBERS) if number is None else number
    name = PostName(tail.version if version is None else version, f"{place:012x}")
    data = encode_post(replace(post, name=name), tail.table_id if table_id is None else table_id)
    assert store_of(table).put(post_path(name), data)
    session_of(table).environment.sleep(0.001)
    return name


def post(
    table: Table,
    rows: pa.Table,
    statement: Operation = "UPSERT",
    *,
    host: str = "elsewhere",
    info: Mapping[str, str] | None = None,
    token: tuple[str, int] | None = None,
    plain: bool = False,
    nulls: tuple[str, ...] = (),
    number: int | None = None,
) -> PostName:
    """Post a write of another process, which fits the table as it is; each is posted at a time of its own."""
    post = made(table, rows, statement, host=host, info=info, token=token, plain=plain, nulls=nulls)
    return put(table, post, number=number)


def _is_post(path: str) -> bool:
    return path.startswith(f"{POSTS}/") and not is_event(path)


def meanwhile(store: Store, run: Callable[[], object]) -> ScriptedStore:
    """A store over which a process writes, while another one does something as soon as the first post is there."""
    return ScriptedStore(store, first("put", _is_post, run, after=True))


def posted(store: WatchedStore) -> int:
    """How many whole writes were posted over a store."""
    return sum(map(_is_post, store.paths("put")))

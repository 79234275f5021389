"""Convert a small write to a post, and posts to the statements of a commit.

    post      the user's rows as an Arrow IPC stream, with the kind of statement
    group     the statements of all posts in order, folded by the table's merge into one log file per file group

A post contains no time and nothing of the table, so the publisher checks its rows again by its own schema. Unfit posts
are left out; their owners find out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import polars as pl
import pyarrow as pa

from crdt_mor.columns.arrow_input import bytes_of
from crdt_mor.errors import CrdtMorError
from crdt_mor.log.posts import BYTES_MAX, Post
from crdt_mor.log.stopping import blocking_token
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.merge.precombine import RowsWrite
from crdt_mor.model.authors import Author
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.write.statements import Operation, SchemaMode, Statement, Statements

_DELETE: Final = "DELETE"

_OPERATIONS: Final[dict[str, Operation]] = {"INSERT": "INSERT", "UPSERT": "UPSERT", _DELETE: "DELETE"}
"""The kinds of statements in posts."""


@dataclass(frozen=True, slots=True)
class Said:
    """A statement as the user made it. plain: a delete without an ordering value."""

    statement: Operation
    rows: pa.Table
    plain: bool = False

    @property
    def shape(self) -> tuple[object, ...]:
        return self.statement, self.plain, self.rows.schema

    def repeat(self, statements: Statements) -> None:
        if self.statement == _DELETE:
            statements.delete(self.rows, self.plain)
        else:
            statements.upsert(self.rows, self.statement, "strict", are_kept=True)  # its owner checked it


class NotedStatements(Statements):
    def __init__(self, config: TableConfig, value: Timeline, requested: InstantTime) -> None:
        super().__init__(config, value, requested)
        self.said: list[Said] = []

    def upsert(
        self, data: pa.Table, operation: Operation, mode: SchemaMode, *, are_new: bool = False, are_kept: bool = False
    ) -> None:
        super().upsert(data, operation, mode, are_new=are_new, are_kept=are_kept)
        self.said.append(Said(operation, data))

    def delete(self, data: pa.Table, plain: bool) -> None:
        super().delete(data, plain)
        self.said.append(Said(_DELETE, data, plain))


def post_of(statements: NotedStatements, author: Author, token: tuple[str, int] | None) -> Post | None:
    """Return the post of a write; None if it is large, empty or of several statements."""
    if len(statements.said) != 1 or bytes_of(statements.said[0].rows) > BYTES_MAX:
        return None
    said, keys = statements.said[0], keys_in(statements.collected[0])
    content = _encoded(said.rows)
    if len(content) > BYTES_MAX:
        return None
    if keys == 0:
        return None
    rows, deletes = (0, keys) if said.statement == _DELETE else (keys, 0)
    return Post(None, author, token, said.statement, said.plain, rows, deletes, content)


def keys_in(statement: Statement) -> int:
    rows = statement.data if isinstance(statement, RowsWrite) else statement.keys
    if len(rows) < 2:
        return len(rows)
    if isinstance(rows, pa.Table):  # a polars query costs more than a few rows
        return len(set(zip(rows[PARTITION_PATH].to_pylist(), rows[RECORD_KEY].to_pylist(), strict=True)))
    distinct: int = rows.select(pl.struct(PARTITION_PATH, RECORD_KEY).n_unique()).item()
    return distinct


def _encoded(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def said_in(post: Post) -> Said:
    rows = pa.RecordBatchStreamReader(post.content).read_all()
    return Said(_OPERATIONS[post.statement], rows, post.plain)


def group_of(
    config: TableConfig, tail: Timeline, requested: InstantTime, posts: Sequence[Post], own: Post, said: Said
) -> tuple[Statements, list[Post]]:
    """Return the statements of the posts that fit after `tail`, in order, and these posts.

    own: this process's post, which fits; said: its statement.
    """
    statements = Statements(config, tail, requested)
    new = list[tuple[Post, Said]]()
    for post in posts:
        found = said if post is own else _said_if_new(tail, post, [*(other for other, _ in new), own])
        if found is not None:
            new.append((post, found))
    taken = list[Post]()
    for _, alike in groupby(new, lambda pair: pair[1].shape):
        run = list(alike)
        for some in [run] if _repeat(run, statements) else [[pair] for pair in run if _repeat([pair], statements)]:
            taken += [post for post, _ in some]
    return statements, taken


def _said_if_new(tail: Timeline, post: Post, others: Sequence[Post]) -> Said | None:
    """Return a post's statement; None if its token is used in the table or group, or if it has no rows."""
    applications = [other.token[0] for other in others if other.token is not None]
    if blocking_token(tail, post.token) is not None or (post.token is not None and post.token[0] in applications):
        return None
    try:
        return said_in(post)
    except _MISFITS:
        return None


_MISFITS: Final = (
    CrdtMorError, pa.ArrowException, pl.exceptions.PolarsError, LookupError, OSError, ValueError, TypeError,
)  # fmt: skip
"""Errors of other writers' unfit rows."""


def _repeat(run: Sequence[tuple[Post, Said]], statements: Statements) -> bool:
    (_, first), rows = run[0], [said.rows for _, said in run]
    try:
        replace(first, rows=pa.concat_tables(rows)).repeat(statements)
    except _MISFITS:
        return False
    return True

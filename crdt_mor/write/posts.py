"""Convert a small write to a post, and posts to the statements of a commit.

    post      the user's rows as an Arrow IPC stream, with the kind of statement
    group     the statements of all posts in order, folded by the table's merge into one log file per file group

A post contains no time and nothing of the table, so the publisher checks its rows again by its own schema. Unfit posts
are left out; their owners find out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

import polars as pl
import pyarrow as pa

from crdt_mor.columns.arrow_input import bytes_of
from crdt_mor.errors import CrdtMorError
from crdt_mor.log.posts import Post
from crdt_mor.log.stopping import blocking_token
from crdt_mor.merge.blocks import PARTITION_PATH, RECORD_KEY
from crdt_mor.merge.precombine import RowsWrite
from crdt_mor.model.authors import Author
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.timeline import Timeline
from crdt_mor.planners.way import POST_BYTES_MAX
from crdt_mor.write.statements import CheckedRows, Operation, RowsStatement, Statement, Statements

_KINDS: Final[dict[str, Operation]] = {"INSERT": "INSERT", "UPSERT": "UPSERT", "DELETE": "DELETE"}
"""The kinds of statements in posts."""
_NULLS: Final = b"crdt_mor.nulls"
"""The stream's metadata with `RowsStatement.nulls`."""


def post_of(
    statement: RowsStatement, checked: CheckedRows, author: Author, token: tuple[str, int] | None
) -> Post | None:
    """Return the post of a statement under stored names; None if it is large or empty."""
    if bytes_of(statement.rows) > POST_BYTES_MAX:
        return None
    keys = keys_in(checked.in_memory)
    content = _encoded(statement)
    if keys == 0 or len(content) > POST_BYTES_MAX:
        return None
    rows, deletes = (0, keys) if statement.kind == "DELETE" else (keys, 0)
    return Post(None, author, token, statement.kind, statement.plain, rows, deletes, content)


def keys_in(statement: Statement) -> int:
    rows = statement.data if isinstance(statement, RowsWrite) else statement.keys
    if len(rows) < 2:
        return len(rows)
    if isinstance(rows, pa.Table):  # a polars query costs more than a few rows
        return len(set(zip(rows[PARTITION_PATH].to_pylist(), rows[RECORD_KEY].to_pylist(), strict=True)))
    distinct: int = rows.select(pl.struct(PARTITION_PATH, RECORD_KEY).n_unique()).item()
    return distinct


def _encoded(statement: RowsStatement) -> bytes:
    sink, rows = pa.BufferOutputStream(), statement.rows
    if statement.nulls:
        rows = rows.replace_schema_metadata({_NULLS: json.dumps(statement.nulls)})
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def statement_in(post: Post) -> RowsStatement:
    rows = pa.RecordBatchStreamReader(post.content).read_all()
    nulls = tuple(json.loads((rows.schema.metadata or {}).get(_NULLS, b"[]")))
    return of_post(RowsStatement(_KINDS[post.statement], rows, plain=post.plain, nulls=nulls))


def of_post(statement: RowsStatement) -> RowsStatement:
    """Return a posted statement; its owner has checked it."""
    return replace(statement, mode="strict", are_kept=True)


def group_of(
    config: TableConfig,
    tail: Timeline,
    requested: InstantTime,
    posts: Sequence[Post],
    own: Post | None = None,
    own_statement: RowsStatement | None = None,
) -> tuple[Statements, list[Post]]:
    """Return the statements of the posts that fit after `tail`, in order, and these posts.

    own: this process's post, which fits, if any; own_statement: its statement.
    """
    statements = Statements(config, tail, requested)
    new = list[tuple[Post, RowsStatement]]()
    for post in posts:
        others = [*(other for other, _ in new), *([] if own is None else [own])]
        found = _statement_if_new(tail, post, others) if post is not own else own_statement and of_post(own_statement)
        if found is not None:
            new.append((post, found))
    taken = list[Post]()
    for _, alike in groupby(new, lambda pair: _shape(pair[1])):
        run = list(alike)
        for some in [run] if _add(run, statements) else [[pair] for pair in run if _add([pair], statements)]:
            taken += [post for post, _ in some]
    return statements, taken


def _shape(statement: RowsStatement) -> tuple[object, ...]:
    return statement.kind, statement.plain, statement.rows.schema, statement.nulls


def _statement_if_new(tail: Timeline, post: Post, others: Sequence[Post]) -> RowsStatement | None:
    """Return a post's statement; None if its token is used in the table or group, or if it has no rows."""
    applications = [other.token[0] for other in others if other.token is not None]
    if blocking_token(tail, post.token) is not None or (post.token is not None and post.token[0] in applications):
        return None
    try:
        return statement_in(post)
    except _MISFITS:
        return None


_MISFITS: Final = (
    CrdtMorError, pa.ArrowException, pl.exceptions.PolarsError, LookupError, OSError, ValueError, TypeError,
)  # fmt: skip
"""Errors of other writers' unfit rows."""


def _add(run: Sequence[tuple[Post, RowsStatement]], statements: Statements) -> bool:
    (_, first), rows = run[0], [statement.rows for _, statement in run]
    try:
        statements.add(replace(first, rows=pa.concat_tables(rows)))
    except _MISFITS:
        return False
    return True

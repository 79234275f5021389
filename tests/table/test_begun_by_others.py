"""Statements that compute from what they read, in a bucket where another process publishes their begin.

A third process commits before the statement's own process looks. The statement is requested before that commit, so the
table must show what it shows where the two come one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl
import pytest

from crdt_mor import Opening, PartialUpdate, Table
from crdt_mor.log.paths import POSTS, is_event
from crdt_mor.store.protocol import Content, Durable
from tests.failing import URI, FailingBucket
from tests.inside import tail_of
from tests.posting import in_a_crowd

SCHEMA = {"p": pl.String, "id": pl.String, "euros": pl.Int64, "seen": pl.Int64}


def rows(**euros: int) -> pl.DataFrame:
    """Rows of the partition `x`."""
    return pl.DataFrame({"p": ["x"] * len(euros), "id": list(euros), "euros": list(euros.values())})


def in_block(table: Table) -> None:
    """All of ada's euros go to bob."""
    with table.transaction(isolation="serializable") as tx:
        euros = dict(tx.scan(columns=["id", "euros"]).to_polars().rows())
        tx.upsert(rows(ada=0, bob=euros["ada"] + euros["bob"]))


def merged(table: Table) -> None:
    source = pl.DataFrame({"id": ["ada", "bob"], "more": [1, 1]})
    clauses = {"seen": "target.euros + source.more"}
    table.merge(source, on="id").when_matched_update(clauses).execute()


VERBS: dict[str, Callable[[Table], object]] = {
    "block": in_block,
    "delete": lambda table: table.delete(where="euros > 500"),
    "merge": merged,
    "move": lambda table: table.move(["ada"], partition={"p": "y"}),
    "update": lambda table: table.update({"seen": "euros"}),
}


def opened(bucket: FailingBucket) -> Table:
    """The table, as another process opens it."""
    return Table(URI, opening=Opening(store=bucket.store(), environment=bucket.environment))


def slow_after_its_post(bucket: FailingBucket, meanwhile: Callable[[], None]) -> Table:
    """The table of a process in a crowd. As soon as it has posted an event, others go on."""
    store, has_posted = bucket.store(), False
    put = store.put

    def hooked(path: str, data: Content, *, durable: Durable = True, after: Sequence[str] = ()) -> bool:
        nonlocal has_posted
        created = put(path, data, durable=durable, after=after)
        if path.startswith(POSTS) and is_event(path) and not has_posted:
            has_posted = True
            meanwhile()
        return created

    store.put = hooked  # type: ignore[method-assign]
    return in_a_crowd(Table(URI, opening=Opening(store=store, environment=bucket.environment)))


def created(bucket: FailingBucket) -> Table:
    """A table in which a write of `euros` alone leaves `seen` as an earlier write has set it."""
    table = Table.create(
        URI, SCHEMA, key="id", partition_by="p", buckets=1, merge=PartialUpdate(),
        opening=Opening(store=bucket.store(), environment=bucket.environment),
    )  # fmt: skip
    table.upsert(rows(ada=50, bob=50).with_columns(seen=0))
    return table


def shown(table: Table) -> list[tuple[object, ...]]:
    found = table.to_polars().select("p", "id", "euros", "seen").sort("p", "id").rows()
    return [row for row in found if row[1] != "eve"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_statement_begun_by_another_process_reads_nothing_that_was_requested_later(verb: str) -> None:
    with FailingBucket().running() as alone:
        table = created(alone)
        VERBS[verb](table)
        table.upsert(rows(ada=1000))
        wanted = shown(table)
    with FailingBucket().running() as bucket:
        table = created(bucket)
        helper, third = opened(bucket), opened(bucket)
        held = opened(bucket).transaction()  # without it the statement would be one event
        held.__enter__()
        begun: list[str] = []

        def meanwhile() -> None:
            known = {pending.requested for pending in tail_of(table).pending}
            with in_a_crowd(helper).transaction() as tx:
                tx.upsert(rows(eve=1))
            begun.extend(pending.requested for pending in tail_of(table).pending if pending.requested not in known)
            third.upsert(rows(ada=1000))
            held.__exit__(None, None, None)

        VERBS[verb](slow_after_its_post(bucket, meanwhile))
        assert len(begun) == 1, "the helper has published the begin"
        assert shown(table) == wanted

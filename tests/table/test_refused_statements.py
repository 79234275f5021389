"""A statement of a block that is refused leaves nothing of it there, whatever the block does next."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from crdt_mor import CrdtMorError, Opening, Rules, Table, Transaction
from crdt_mor.store import MemoryStore

ROWS = pl.DataFrame({"id": [1, 2], "land": ["DE", "FR"], "price": [10, 1]})


def moves_to_a_wrong_price(tx: Transaction) -> None:
    tx.merge(
        ROWS.with_columns(land=pl.Series(["FR", "US"]), price=pl.Series([-1, 3]))
    ).when_matched_update_all().execute()


def deletes_and_inserts_a_wrong_price(tx: Transaction) -> None:
    merge = tx.merge(pl.DataFrame({"id": [1, 3], "land": ["DE", "DE"], "price": [5, -5]}))
    merge.when_matched_delete().when_not_matched_insert_all().execute()


def moves_out_of_what_is_declared(tx: Transaction) -> None:
    tx.move([2], partition={"land": "DE"})


def overwrites_other_partitions(tx: Transaction) -> None:
    rows = pl.DataFrame({"id": [2], "land": ["DE"], "price": [5], "new": [1]})
    tx.overwrite(rows, partitions=["FR"], schema_mode="merge")


@pytest.mark.parametrize(
    ("statement", "settings"),
    [
        (moves_to_a_wrong_price, {"isolation": "serializable"}),
        (deletes_and_inserts_a_wrong_price, {"isolation": "serializable"}),
        (moves_out_of_what_is_declared, {"isolation": "serializable", "partitions": ["FR"]}),
        (overwrites_other_partitions, {}),
    ],
)
@pytest.mark.parametrize("goes_on", [False, True])
def test_what_is_refused_leaves_nothing_in_its_block(
    statement: Callable[[Transaction], None], settings: dict[str, object], goes_on: bool
) -> None:
    table = Table.create(
        "t",
        ROWS,
        key="id",
        partition_by="land",
        rules=Rules(check={"positive": "price > 0"}),
        opening=Opening(store=MemoryStore()),
    )
    table.upsert(ROWS)
    with table.transaction(**settings) as tx:  # type: ignore[arg-type]
        with pytest.raises(CrdtMorError):
            statement(tx)
        if goes_on:
            tx.upsert(pl.DataFrame({"id": [4], "land": ["FR"], "price": [4]}))
    expected = [(1, "DE", 10), (2, "FR", 1), *([(4, "FR", 4)] if goes_on else [])]
    assert sorted(table.to_polars().rows()) == expected
    assert table.schema.names == ROWS.columns


@pytest.mark.costly
@pytest.mark.parametrize("by", ["move", "merge", "block"])
def test_no_row_moves_to_where_a_delete_would_hide_it(by: str) -> None:
    rows = pl.DataFrame({"id": [1, 1, 2], "land": ["DE", "FR", "DE"], "ts": [5, 9, 5]})
    table = Table.create("t", rows, key="id", partition_by="land", ordering="ts", opening=Opening(store=MemoryStore()))
    table.upsert(rows)
    table.delete(where="land = 'FR'")

    def move(ts: int) -> None:
        source = pl.DataFrame({"id": [1], "land": ["FR"], "ts": [ts]})
        if by == "merge":
            table.merge(source, on="id").when_matched_update_all().execute()
        elif by == "move":
            table.move([1, 2], partition={"land": "FR"})
        else:
            with table.transaction(isolation="serializable") as tx:
                tx.move([1, 2], partition={"land": "FR"})

    with pytest.raises(CrdtMorError, match=r"deleted with a greater ordering value.*key='1' partition='land=FR'"):
        move(5)
    assert sorted(table.to_polars().rows()) == [(1, "DE", 5), (2, "DE", 5)]
    if by == "merge":
        move(10)
    else:
        table.move([2], partition={"land": "FR"})
    moved = {"merge": [(1, "FR", 10), (2, "DE", 5)]}.get(by, [(1, "DE", 5), (2, "FR", 5)])
    assert sorted(table.to_polars().rows()) == moved

"""All histories of a few partial updates and deletes under an ordering column, in every order of arrival.

Each history is a key of one table, so that one merge answers for all of them. After each arrival the table or its logs
may be compacted, while the writes that have not arrived are pending. `rule` is the meaning in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import polars as pl
import pytest

from crdt_mor.merge import compaction, orders
from crdt_mor.merge.blocks import COMMIT_TIME, META_COLUMNS, RECORD_KEY, Columns, DataBlock, DeleteBlock
from crdt_mor.merge.patches import Patches
from crdt_mor.merge.rule import ORDERS, MergeRule
from tests.merge.lives import LENGTHS, Block, Case, Event, History, Row, stamp

ENTRIES = pl.List(pl.Struct({"order": pl.Int64(), "time": pl.String(), "columns": pl.List(pl.String())}))
COLUMNS = Columns({"lsn": pl.Int64(), "a": pl.String(), "b": pl.String(), ORDERS: ENTRIES})
RULE = MergeRule("columns", "lsn")


EVENTS = (
    Event("delete"),
    *(Event("tombstone", lsn) for lsn in range(3)),
    *(Event("row", lsn, columns) for lsn in range(3) for columns in (("a",), ("b",), ("a", "b"))),
)


def rule(history: History) -> Row | None:
    """Return lsn, a and b of the visible row of a history in the order of requested times."""
    last = max((time for time, event in enumerate(history) if event.kind == "delete"), default=-1)
    left = [(event.lsn, time, event) for time, event in enumerate(history) if time > last]
    floor = max((order[:2] for order in left if order[2].kind == "tombstone"), default=(-1, -1))
    rows = sorted(order for order in left if order[2].kind == "row" and order[:2] > floor)
    values = dict[str, str]()
    for _, time, event in rows:
        values |= {column: f"{column}{time}" for column in event.columns}
    return (rows[-1][0], values.get("a"), values.get("b")) if rows else None


def blocks_of(histories: Sequence[History], time: int) -> Iterator[Block]:
    """Yield the log blocks of the commit at a time: the event with this number of every history."""
    events: dict[tuple[str, tuple[str, ...]], list[tuple[int, Event]]] = {}
    for key, history in enumerate(histories):
        events.setdefault((history[time].kind, history[time].columns), []).append((key, history[time]))
    for (kind, columns), some in events.items():
        keys = pl.DataFrame({RECORD_KEY: [str(key) for key, _ in some]})
        lsn = pl.Series("lsn", [event.lsn for _, event in some], pl.Int64)
        if kind == "delete":
            yield DeleteBlock(stamp(time), keys)
        elif kind == "tombstone":
            yield DeleteBlock(stamp(time), keys.with_columns(lsn.alias("ordering")))
        else:
            meta = {name: pl.lit("") for name in META_COLUMNS if name not in (COMMIT_TIME, RECORD_KEY)}
            values = {name: pl.lit(f"{name}{time}") for name in columns}
            rows = keys.with_columns(lsn, pl.lit(stamp(time)).alias(COMMIT_TIME), **meta, **values)
            yield DataBlock(stamp(time), rows)


check = Case(EVENTS, rule, blocks_of, RULE, COLUMNS, "lsn").check


@pytest.mark.parametrize(("length", "moments"), LENGTHS)
def test_all_arrivals_and_all_compactions_give_the_row_of_the_rule(length: int, moments: Sequence[str]) -> None:
    check(length, moments)


def floors_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(orders, "orders_of", with_only(pl.element().struct.field("columns").is_not_null()))


def columns_share_one_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(orders, "orders_of", with_only(pl.element().struct.field("columns").is_null()))


def with_only(kept: pl.Expr) -> Callable[[Patches, pl.DataFrame, pl.DataFrame], pl.Series]:
    made = orders.orders_of

    def forgetting(folded: Patches, lines: pl.DataFrame, floors: pl.DataFrame) -> pl.Series:
        return made(folded, lines, floors).list.eval(pl.element().filter(kept))

    return forgetting


def tombstones_are_carried_at_the_last_time(patch: pytest.MonkeyPatch) -> None:
    def at_the_last(tombstones: pl.DataFrame) -> list[Block]:
        return [DeleteBlock(stamp(2), tombstones.select(RECORD_KEY, "ordering"))]

    patch.setattr(compaction, "_each_at_its_time", at_the_last)


@pytest.mark.parametrize(
    "planted", [floors_are_forgotten, columns_share_one_order, tombstones_are_carried_at_the_last_time]
)
def test_each_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, planted: Callable[[pytest.MonkeyPatch], None]
) -> None:
    planted(monkeypatch)
    with pytest.raises(AssertionError, match="arrival="):
        check(2 if planted is tombstones_are_carried_at_the_last_time else 3, ("base", "logs"))

"""Groups of columns with a common ordering column, in every order of arrival, as in `test_orders`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import polars as pl
import pytest

from crdt_mor.merge.blocks import COMMIT_TIME, META_COLUMNS, RECORD_KEY, Columns, DataBlock, DeleteBlock
from crdt_mor.merge.groups import Group, SharedMember, SharedOrder
from crdt_mor.merge.rule import MergeRule
from crdt_mor.payloads import LatestBy
from tests.merge.lives import LENGTHS, Block, Case, Event, History, Row, stamp

KINDS = {"a": pl.String(), "t": pl.Int64(), "b": pl.String()}
ORDER = SharedOrder("t", (Group(("a", "t"), LatestBy("t")), Group(("b", "t"), LatestBy("t"))))
MEMBER = SharedMember(("a", "t", "b"), ORDER, pl.Struct(KINDS), "_crdt_t")
STATE = pl.Struct({name: pl.Struct({name: pl.String(), "t": pl.Int64()}) for name in "ab"})
RULE = MergeRule("columns", members=(MEMBER,))
COLUMNS = Columns({**KINDS, "_crdt_t": STATE})
EVENTS = (
    Event("delete"),
    *(Event("row", t, columns) for t in range(3) for columns in (("a",), ("b",), ("a", "b"))),
)


def rule(history: History) -> Row | None:
    """Return t, a and b of the visible row of a history in the order of requested times."""
    last = max((time for time, event in enumerate(history) if event.kind == "delete"), default=-1)
    rows = sorted((event.lsn, time, event.columns) for time, event in enumerate(history) if time > last)
    values = {column: f"{column}{time}" for _, time, columns in rows for column in columns}
    return (rows[-1][0], values.get("a"), values.get("b")) if rows else None


def blocks_of(histories: Sequence[History], time: int) -> Iterator[Block]:
    events: dict[tuple[str, ...], list[tuple[int, Event]]] = {}
    for key, history in enumerate(histories):
        events.setdefault(history[time].columns, []).append((key, history[time]))
    for columns, some in events.items():
        keys = pl.DataFrame({RECORD_KEY: [str(key) for key, _ in some]})
        if not columns:
            yield DeleteBlock(stamp(time), keys)
            continue
        given = pl.DataFrame({"t": [event.lsn for _, event in some]})
        state = MEMBER.written(given.with_columns(pl.lit(f"{name}{time}").alias(name) for name in columns))
        meta = {name: pl.lit("") for name in META_COLUMNS if name not in (COMMIT_TIME, RECORD_KEY)}
        rows = keys.with_columns(state.alias("_crdt_t"), pl.lit(stamp(time)).alias(COMMIT_TIME), **meta)
        yield DataBlock(stamp(time), rows)


check = Case(EVENTS, rule, blocks_of, RULE, COLUMNS, "t").check


@pytest.mark.parametrize(("length", "moments"), LENGTHS)
def test_all_arrivals_and_all_compactions_give_the_row_of_the_rule(length: int, moments: Sequence[str]) -> None:
    check(length, moments)


def test_join_and_merge_give_the_same() -> None:
    states = [{"a": a, "b": b} for a in PARTS["a"] for b in PARTS["b"] if a or b]
    pairs = [*product(states, repeat=2)]
    frame = pl.DataFrame({"code": [i for i in range(len(pairs)) for _ in range(2)]})
    frame = frame.with_columns(state=pl.Series([state for pair in pairs for state in pair], dtype=STATE))
    merged = frame.group_by("code", maintain_order=True).agg(ORDER.merge(pl.col("state")).alias("state"))
    assert merged["state"].to_list() == [ORDER.join(*pair) for pair in pairs]


PARTS: dict[str, list[dict[str, Any] | None]] = {
    name: [None, *({name: f"{name}{t}", "t": t} for t in (None, 0, 1))] for name in "ab"
}


def groups_share_one_order(patch: pytest.MonkeyPatch) -> None:
    merge = SharedOrder.merge

    def with_the_greatest(self: SharedOrder, states: pl.Expr) -> pl.Expr:
        merged = merge(self, states)
        order = self.value(merged).struct.field("t")
        parts = {name: merged.struct.field(name) for name in "ab"}
        raised = {name: pl.struct(part.struct.field(name), order.alias("t")) for name, part in parts.items()}
        return pl.struct(pl.when(parts[n].is_not_null()).then(new).alias(n) for n, new in raised.items())

    patch.setattr(SharedOrder, "merge", with_the_greatest)


def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    groups_share_one_order(monkeypatch)
    with pytest.raises(AssertionError, match="arrival="):
        check(3, ("base", "logs"))


def test_a_value_in_two_groups_would_depend_on_the_compactions() -> None:
    """Of two writes the one with the greater common ordering value wins, else the later: three may win in a circle."""

    def join(a: tuple[str, int | None, int | None], b: tuple[str, int | None, int | None]) -> Any:
        greater = any(x is not None and y is not None and x > y for x, y in zip(a[1:], b[1:], strict=True))
        return a if greater else b

    first, second, third = ("x", 5, None), ("y", None, 1), ("z", 3, None)
    assert join(join(first, second), third) == third
    assert join(first, join(second, third)) == first

"""Images of commits in order are made of what the commits wrote, and equal those of states that are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor import Opening, Table
from crdt_mor.payloads import Counter
from crdt_mor.read import window
from crdt_mor.read.window import Window
from crdt_mor.read.window_states import States
from crdt_mor.store import MemoryStore

SCHEMA = pa.schema([("at", pa.string()), ("time", pa.float64()), ("group", pa.int64()), ("tags", pa.list_(pa.int64()))])
"""Columns that have the names of columns inside."""

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "at": st.sampled_from("abcdef"),
            "time": st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")]),
            "group": st.sampled_from([None, 1, 2]),
            "tags": st.sampled_from([None, [], [1], [1, None]]),
        }
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda row: str(row["at"]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), ROWS),
        st.tuples(st.just("delete"), ROWS),
        st.tuples(st.just("delete and upsert"), ROWS),
        st.tuples(st.just("compact"), st.just([])),
    ),
    min_size=2,
    max_size=7,
)


def arrow(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def do(table: Table, what: str, rows: list[dict[str, Any]]) -> None:
    if what == "compact":
        table.maintenance.compact()
        return
    with table.transaction() as tx:
        if what != "upsert":
            tx.delete(arrow(rows).select(["at"]))
        if what == "delete and upsert":
            tx.upsert(arrow(rows[::2]))
        if what == "upsert":
            tx.upsert(arrow(rows))


def images(table: Table, since: int | None, columns: list[str] | None) -> list[str]:
    """The images commit by commit, in any order of a commit's."""
    rows = table.changes(since, images=True, columns=columns).to_polars().rows()
    commits = [row[-2] for row in rows]
    assert commits == sorted(commits)
    return sorted(map(repr, rows))


@pytest.mark.slow
@settings(max_examples=25)
@given(
    steps=STEPS,
    since=st.integers(0, 4),
    columns=st.sampled_from([None, ["time"], ["at", "tags"]]),
    bytes_max=st.sampled_from([1, 1 << 30]),
    collide=st.booleans(),
)
def test_images_in_turn_are_those_of_the_states_before_and_after(
    steps: list[tuple[str, list[dict[str, Any]]]],
    since: int,
    columns: list[str] | None,
    bytes_max: int,
    collide: bool,
) -> None:
    """collide: all keys have the same hash, so that hashes do not tell which lines are of a key."""
    table = Table.create("t", SCHEMA, key="at", buckets=2, opening=Opening(store=MemoryStore()))
    versions: list[int | None] = [None]
    for what, rows in steps:
        do(table, what, rows)
        versions.append(table.version)
    begin = versions[min(since, len(versions) - 1)]
    with patch.object(Window, "_is_in_order", lambda _: False):
        expected = images(table, begin, columns)
    hashed = (lambda keys: keys.is_null().cast(pl.UInt64)) if collide else pl.Expr.hash
    with patch.object(window, "IN_TURN_BYTES_MAX", bytes_max), patch.object(pl.Expr, "hash", hashed):
        assert images(table, begin, columns) == expected


def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The states that are read from now on."""
    calls: list[str] = []

    def noting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, **how: Any) -> Any:
            calls.append(name)
            return real(*given, **how)

        return noted

    for name in ("before", "after"):
        monkeypatch.setattr(States, name, noting(name, getattr(States, name)))
    return calls


def test_of_commits_in_order_one_state_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table.create("t", SCHEMA, key="at", buckets=1, opening=Opening(store=MemoryStore()))
    for number in range(5):
        do(table, "upsert", [{"at": "a", "group": number}])
    calls = seen(monkeypatch)
    assert len(images(table, None, ["group"])) == 1 + 2 * 4
    assert calls == ["before"]


def test_of_a_straggler_and_of_other_rules_states_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table.create("t", SCHEMA, key="at", buckets=1, opening=Opening(store=MemoryStore()))
    with table.transaction() as slow:
        slow.upsert(arrow([{"at": "a", "group": 1}, {"at": "b", "group": 1}]))
        do(table, "upsert", [{"at": "a", "group": 2}])
    calls = seen(monkeypatch)
    assert [row[1:2] for row in table.changes(images=True, columns=["at", "group"]).to_polars().rows()] == [(2,), (1,)]
    assert calls.count("after") == 2
    adding = Table.create(
        "u", SCHEMA, key="at", buckets=1, merge={"group": Counter()}, opening=Opening(store=MemoryStore())
    )
    for _ in range(2):
        do(adding, "upsert", [{"at": "a", "group": 1}])
    found = adding.changes(images=True, columns=["group"]).to_polars()
    assert found["group"].to_list() == [1, 1, 2]

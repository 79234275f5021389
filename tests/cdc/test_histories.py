"""Random histories of a database, cut anywhere, repeated from anywhere, and applied by two consumers at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import crdt_mor as mor
from crdt_mor.cdc import apply
from crdt_mor.cdc.turn import Turn
from crdt_mor.store import MemoryStore
from crdt_mor.testing import SimulatedEnvironment
from tests.cdc.histories import FEEDS, HISTORIES, History, Step
from tests.stores import ScriptedStore, as_it_is

SCHEMA = pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("note", pa.string())])
WAIT = timedelta(seconds=3)
PARTIAL = {"wal2json", "debezium"}
CUTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=12)
"""Batches: how many events to go back, and how many to take then."""


@dataclass
class Consumer:
    """Reads a feed. blocks: events that a restart may only repeat together."""

    table: mor.Table
    blocks: list[list[Any]]
    slot: str | None
    events: list[Any] = field(init=False)
    starts: list[int] = field(init=False)
    done: int = 0

    def __post_init__(self) -> None:
        whole = self.slot is not None
        self.events = [event for block in self.blocks for event in block]
        places = [0]
        for block in self.blocks:
            places += [places[-1] + len(block)] if whole else [places[-1] + n + 1 for n in range(len(block))]
        self.starts = places

    def take(self, back: int, count: int) -> None:
        """Restart some events before the confirmed one, and apply a batch."""
        start = max(place for place in self.starts if place <= max(0, self.done - back))
        batch = self.events[start : start + count]
        if batch:
            left = apply(self.table, batch, source=self.slot, wait=WAIT).left
            first = next((place for place, event in enumerate(batch) if any(event is one for one in left)), len(batch))
            self.done = max(self.done, start + first)

    def finish(self) -> None:
        self.take(0, len(self.events))


@dataclass
class World:
    """A table, and its two consumers. before: called at operations of the first one's store."""

    feed: str
    history: History
    ordered: bool = False
    environment: SimulatedEnvironment = field(default_factory=SimulatedEnvironment)

    def __post_init__(self) -> None:
        self.memory = MemoryStore(self.environment.now_ms)
        self.scripted = ScriptedStore(self.memory, as_it_is)
        merge = mor.PartialUpdate() if self.feed in PARTIAL else None
        opening = mor.Opening(store=self.scripted, environment=self.environment)
        schema = SCHEMA.append(pa.field("lsn", pa.int64())) if self.ordered else SCHEMA
        ordering = "lsn" if self.ordered else None
        first = mor.Table.create("t", schema, key="id", buckets=1, merge=merge, ordering=ordering, opening=opening)
        second = mor.Table("t", opening=mor.Opening(store=self.memory, environment=self.environment))
        slot = "slot" if self.feed == "wal2json" else None
        blocks = FEEDS[self.feed](self.history)
        self.first, self.second = Consumer(first, blocks, slot), Consumer(second, blocks, slot)

    def check(self) -> None:
        """The table equals the database, went through its states only, and shows no row twice."""
        table = mor.Table("t", opening=mor.Opening(store=self.memory, environment=self.environment))
        states = [_rows(state) for state in self.history.states]
        assert _shown(table.to_arrow()) == states[-1]
        raw = [(row["id"], row["seq"]) for row in table.changes(raw=True).to_arrow().to_pylist() if row["seq"]]
        assert len(raw) == len({*raw}), f"a row twice: {raw}"
        if self.feed == "dms":
            return  # its changes have no transactions
        place = 0
        for version in sorted(table.history()["version"].to_pylist()):
            shown = _shown(table.scan(as_of=version).to_arrow())
            place += next((n for n, state in enumerate(states[place:]) if state == shown), len(states))
            assert place < len(states), f"no state of the database, or an earlier one: {shown}"


def _shown(rows: pa.Table) -> list[dict[str, Any]]:
    kept = rows.drop_columns("lsn") if "lsn" in rows.column_names else rows
    return _rows({row["id"]: row for row in kept.to_pylist()})


def _rows(state: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"more": None} | row for _, row in sorted(state.items())]


def play(feed: str, steps: Any, cuts: Any, others: Any, moment: int, ordered: bool) -> None:
    world = World(feed, History.of(steps), ordered)
    turns, count = iter(others), 0

    def script(operation: str, path: str, call: Callable[[], Any]) -> Any:
        nonlocal count
        count += 1
        if count % moment == 0 and (cut := next(turns, None)) is not None:
            world.second.take(*cut)
        return call()

    world.scripted.script = script
    for cut in cuts:
        world.first.take(*cut)
    world.first.finish()
    world.scripted.script = as_it_is
    world.second.finish()
    world.check()


ARGUMENTS = (st.sampled_from(sorted(FEEDS)), HISTORIES, CUTS, CUTS, st.integers(1, 40), st.booleans())
WRITE = Step("write", 1, 1, noted=True)


@settings(max_examples=6)
@given(*ARGUMENTS)
@example("wal2json", [[WRITE], [WRITE]], [(0, 3), (0, 6)], [(0, 6), (0, 6)], 5, True)
def test_the_table_goes_through_the_databases_states_and_no_row_comes_twice(
    feed: str, steps: Any, cuts: Any, others: Any, moment: int, ordered: bool
) -> None:
    play(feed, steps, cuts, others, moment, ordered)


@pytest.mark.slow
@settings(max_examples=200)
@given(*ARGUMENTS)
def test_many_histories(feed: str, steps: Any, cuts: Any, others: Any, moment: int, ordered: bool) -> None:
    play(feed, steps, cuts, others, moment, ordered)


@pytest.mark.slow
def test_a_consumer_that_does_not_look_for_earlier_writes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake: to trust the token alone, which refuses only lower numbers."""
    steps = [
        [Step("delete", 1, 3, True), Step("truncate", 2, 4, False), WRITE, Step("delete", 4, 4, True)],
        [Step("write", 3, 1, False), WRITE],
        [Step("write", 4, 2, False), WRITE, Step("delete", 1, 2, False), WRITE],
    ]

    def is_found(moment: int) -> bool:
        try:
            play("wal2json", steps, [], [(0, 2), (0, 12)], moment, True)
        except AssertionError:
            return True
        return False

    moments = range(1, 61, 3)
    assert not any(map(is_found, moments))
    monkeypatch.setattr(Turn, "_require_first", lambda self, tx: None)
    assert any(map(is_found, moments))

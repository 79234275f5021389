"""An update of some columns is held to the checks that ask these together with others, whenever a check was added."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import polars as pl
import pytest

import crdt_mor as mor
from crdt_mor import Opening, Rules, Table
from crdt_mor.api import commit
from crdt_mor.errors import ConstraintViolationError, EarlierWritePendingError
from crdt_mor.parts import PartDone, UpdatePart
from crdt_mor.planners.way import CLOSED
from crdt_mor.write import beginning, open_write, update_parts
from tests.simulated import Simulated

SCHEMA: Final = pl.Schema({"id": pl.Int64, "price": pl.Int64, "qty": pl.Int64, "note": pl.String})
WORTH: Final = {"worth": "price * qty < 100"}
NOW: Final = timedelta(0)


@pytest.fixture
def world() -> Simulated:
    return Simulated()


def make(world: Simulated, **settings: Any) -> Table:
    table = world.create(SCHEMA, key="id", buckets=1, merge=mor.PartialUpdate(), **settings)
    table.upsert(pl.DataFrame([(1, 2, 3, "a"), (2, 4, 5, "b")], SCHEMA, orient="row"))
    return table


def again(world: Simulated) -> Table:
    return Table("simulated", opening=Opening(store=world.store, environment=world.environment))


def here(parts: Sequence[UpdatePart]) -> list[PartDone]:
    return [part.execute() for part in parts]


def begun(table: Table, price: str, wait: timedelta = NOW) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit, "_in_one_event", lambda *_: CLOSED)
        table.update({"price": price}, "price < 4", wait=wait)


def in_parts(table: Table, price: str, wait: timedelta = NOW) -> None:
    table.update({"price": price}, "price < 4", execute_parts=here, wait=wait)


Update = Callable[..., None]
UPDATES: Final[list[Update]] = [begun, in_parts]


def shown(table: Table) -> list[tuple[Any, ...]]:
    return table.scan(columns=["id", "price", "qty"]).to_polars().sort("id").rows()


@contextmanager
def added_before_it_begins(world: Simulated, **rules: Any) -> Iterator[list[int]]:
    """Another process adds rules when an update has looked at those that there are, and is about to begin."""
    happened = list[int]()

    def first(do: Callable[..., Any]) -> Callable[..., Any]:
        def done(*given: Any) -> Any:
            happened.append(1)
            if len(happened) == 1:
                again(world).add_rules(Rules(**rules), validate=False)
            return do(*given)

        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_write.OpenWrite, "begin", first(open_write.OpenWrite.begin))
        patch.setattr(update_parts, "join", first(beginning.join))
        yield happened


@pytest.mark.parametrize("update", UPDATES)
def test_what_a_check_asks_together_is_written_and_asked(world: Simulated, update: Update) -> None:
    table = make(world, rules=Rules(check=WORTH))
    update(table, "price + 1")
    assert shown(table) == [(1, 3, 3), (2, 4, 5)]
    with pytest.raises(ConstraintViolationError):
        update(table, "40")
    assert (shown(table), table.inspect.pending().num_rows) == ([(1, 3, 3), (2, 4, 5)], 0)


@pytest.mark.parametrize("update", UPDATES)
def test_a_check_that_comes_just_before_the_begin_is_asked(world: Simulated, update: Update) -> None:
    table = make(world)
    with added_before_it_begins(world, check=WORTH) as happened:
        update(table, "price + 1")
    assert len(happened) == 2, "it began, declared less than it writes, and began again"
    assert shown(table) == [(1, 3, 3), (2, 4, 5)]
    with added_before_it_begins(world, check={"less": "price * qty < 50"}), pytest.raises(ConstraintViolationError):
        update(table, "20")
    assert (shown(table), table.inspect.pending().num_rows) == ([(1, 3, 3), (2, 4, 5)], 0)


@pytest.mark.parametrize("update", UPDATES)
def test_what_a_check_asks_together_is_waited_for(world: Simulated, update: Update) -> None:
    """The update writes the quantity as it has read it, so that it waits for an earlier write of it."""
    table = make(world)
    with again(world).transaction(columns=["qty"]) as tx:
        tx.upsert(pl.DataFrame({"id": [1], "qty": [30]}))
        update(table, "price + 1")  # of the price alone
        with added_before_it_begins(world, check=WORTH), pytest.raises(EarlierWritePendingError):
            update(table, "1")
    update(table, "1")
    assert shown(table) == [(1, 1, 30), (2, 4, 5)]


@pytest.mark.parametrize("update", UPDATES)
def test_a_check_that_comes_while_an_update_waits_is_none_of_it(world: Simulated, update: Update) -> None:
    """It is proven when the update has ended, and of its rows as well."""
    table = make(world)
    straggler = again(world).transaction()
    straggler.__enter__()
    straggler.upsert(pl.DataFrame({"id": [1], "note": ["c"]}))
    sleep = world.environment.sleep

    def adding(seconds: float) -> None:
        world.environment.sleep = sleep  # type: ignore[method-assign]
        again(world).add_rules(Rules(check=WORTH), validate=False)
        straggler.__exit__(None, None, None)

    world.environment.sleep = adding  # type: ignore[method-assign]
    update(table, "50", timedelta(seconds=60))
    assert shown(table) == [(1, 50, 3), (2, 4, 5)]
    with pytest.raises(ConstraintViolationError, match="not added"):
        table.add_rules(Rules(check=WORTH))

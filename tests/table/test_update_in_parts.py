"""An update that many processes compute is the update that one process would have made, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Commit, CrdtMorError, InvalidInputError, Opening, Table
from crdt_mor.api import scan
from crdt_mor.errors import EarlierWritePendingError, WriterExpiredError
from crdt_mor.parts import PartDone, UpdatePart
from crdt_mor.payloads import ORSet
from crdt_mor.store import MemoryStore
from crdt_mor.testing.clock import SimulatedEnvironment
from crdt_mor.testing.faults import ProcessDied
from tests.table.helpers import SCHEMA, Places, frame, rows, sent
from tests.table.staging import TABLES, leftovers
from tests.tiers import only

Parts = Sequence[UpdatePart]


@pytest.fixture(autouse=True)
def a_part_for_each_file_group(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = scan.Scan.parts
    monkeypatch.setattr(scan.Scan, "parts", lambda self: whole(self, 1))


class Elsewhere:
    """Other processes that compute the parts, each of which is tried twice, and the earlier attempt counts."""

    def __init__(self) -> None:
        self.parts = 0

    def __call__(self, parts: Parts) -> list[PartDone]:
        self.parts = len(parts)
        done = [sent(sent(part).execute()) for part in reversed(parts)]
        for part in parts:
            sent(part).execute()
        return done[::-1]


def in_process(parts: Parts) -> list[PartDone]:
    return [part.execute() for part in parts]


def never(parts: Parts) -> list[PartDone]:
    raise AssertionError(f"there is nothing to compute: {parts}")


def make(clock: SimulatedEnvironment | None = None, schema: pa.Schema = SCHEMA, **settings: Any) -> Table:
    clock = clock or SimulatedEnvironment()
    opening = Opening(store=MemoryStore(clock.now_ms), environment=clock)
    return Table.create("memory", schema, **{"key": "id", "opening": opening, **settings})


def filled(table: Table) -> Table:
    table.upsert(frame(*((f"k{i}", "eu" if i % 2 else "us", i, float(i)) for i in range(20))))
    table.maintenance.compact()
    table.upsert(frame(*((f"k{i}", "eu" if i % 2 else "us", i + 1, 0.5) for i in range(0, 20, 3))))
    return table


# --- the same as in one process ---------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("settings", only(["partitioned", "payloads"], TABLES))
def test_it_is_what_one_process_makes(places: Places, settings: str) -> None:
    one, many = (filled(places(name).create(schema=SCHEMA, key="id", **TABLES[settings])) for name in ("one", "many"))
    elsewhere = Elsewhere()
    assigned, where = {"n": "n + 3", "price": pl.col("price") + 100}, "n % 3 = 1"
    expected = one.update(assigned, where)
    commit = many.update(assigned, where, execute_parts=elsewhere)
    assert (commit.rows, commit.deletes, commit.repeated) == (expected.rows, 0, False)
    assert elsewhere.parts > 1
    assert rows(many) == rows(one)

    with one.transaction(isolation="serializable") as tx:
        tx.delete(where="n > 15")
    assert tx.commit is not None
    gone = many.delete(where="n > 15", execute_parts=elsewhere)
    assert (gone.rows, gone.deletes) == (0, tx.commit.deletes)
    assert rows(many) == rows(one)
    assert [r["operation"] for r in many.history().to_pylist()] == [r["operation"] for r in one.history().to_pylist()]
    assert leftovers(places("many")) == []
    many.maintenance.compact()
    assert rows(many) == rows(one)


def test_a_payload_that_keeps_a_state_knows_what_comes_before() -> None:
    """Which of the earlier tags a removal has seen is the same in each part as in one process."""
    schema = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
    table = make(schema=schema, merge={"tags": ORSet()})
    written = pa.schema([("id", pa.int64()), ("tags", pa.struct({"add": pa.list_(pa.string())}))])
    table.upsert(pa.table({"id": [*range(8)], "tags": [{"add": ["a", "b"]}] * 8}, written))
    table.update({"tags": pl.lit(["b", "c"])}, "id < 6", execute_parts=in_process)
    shown = dict(table.scan().to_polars().rows())
    expected = {i: ["b", "c"] if i < 6 else ["a", "b"] for i in range(8)}
    assert {key: sorted(tags) for key, tags in shown.items()} == expected


@pytest.mark.costly
@pytest.mark.parametrize("where", ["n > 1000", "region = 'xx'"])
def test_where_nothing_matches_a_commit_says_so(where: str) -> None:
    table = filled(make(partition_by="region"))
    updated = table.update({"n": 0}, where, execute_parts=in_process)
    deleted = table.delete(where=where, execute_parts=in_process)
    assert [(one.rows, one.deletes) for one in (updated, deleted)] == [(0, 0)] * 2
    assert updated.version < deleted.version == table.version


def test_a_table_without_rows_has_no_parts() -> None:
    table = make()
    assert table.update({"n": 0}, execute_parts=never).rows == 0
    assert table.delete(where="n = 0", execute_parts=never).deletes == 0


def test_only_file_groups_in_which_the_condition_can_hold_are_parts() -> None:
    table = filled(make(partition_by="region", buckets=1))
    counted: list[int] = []

    def counting(parts: Parts) -> list[PartDone]:
        counted.append(len(parts))
        return in_process(parts)

    table.update({"n": 0}, "region = 'eu'", execute_parts=counting)
    table.update({"n": 0}, execute_parts=counting)
    assert counted == [1, 2]


def test_a_token_makes_it_once() -> None:
    table = filled(make())
    first = table.update({"n": "n + 1"}, execute_parts=in_process, token=("job", 1))
    before = rows(table)
    again = table.update({"n": "n + 1"}, execute_parts=never, token=("job", 1))
    assert (again.repeated, again.version, again.rows) == (True, first.version, first.rows)
    assert rows(table) == before
    info = table.delete(where="n = 3", execute_parts=in_process, commit_info={"message": "threes"})
    last = table.history().to_pylist()[0]
    assert (last["version"], dict(last["commit_info"])["message"]) == (info.version, "threes")


# --- beside others ----------------------------------------------------------------------------------------------------


def test_what_ends_while_the_parts_are_computed_changes_nothing_of_them() -> None:
    """Nothing that was requested before can end any more, and what is requested later comes after it."""
    table = filled(make())
    other = Table("memory", opening=Opening(store=table._store, environment=SimulatedEnvironment(stem="other")))

    def beside(parts: Parts) -> list[PartDone]:
        done = [parts[0].execute()]
        other.upsert(frame(("k1", "eu", 500, 1.0), ("new", "eu", 7, 1.0)))
        other.maintenance.compact()
        other.maintenance.clean(keep=timedelta(0))
        return [*done, *(part.execute() for part in parts[1:])]

    before = dict(table.scan(columns=["id", "n"]).to_polars().rows())
    table.update({"n": "n + 1"}, execute_parts=beside)
    expected = {key: n + 1 for key, n in before.items()} | {"k1": 500, "new": 7}
    assert {key: n for key, _, n, _ in rows(table)} == expected
    table.maintenance.compact()
    assert {key: n for key, _, n, _ in rows(table)} == expected


def test_an_earlier_write_is_waited_for_before_there_are_parts() -> None:
    clock = SimulatedEnvironment()
    table = filled(make(clock))
    straggler = Table(
        "memory", opening=Opening(store=table._store, environment=SimulatedEnvironment(stem="late"))
    ).transaction()
    straggler.__enter__()
    straggler.upsert(frame(("k1", "eu", 500, 1.0)))
    with pytest.raises(EarlierWritePendingError, match="waited_s=2"):
        table.update({"n": "n + 1"}, execute_parts=never, wait=timedelta(seconds=2))
    assert table.inspect.pending().num_rows == 1, "the update was given up"

    class Ending(SimulatedEnvironment):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if straggler.commit is None:
                straggler.__exit__(None, None, None)

    waiting = Table("memory", opening=Opening(store=table._store, environment=Ending(stem="waiting")))
    waiting.update({"n": "n + 1"}, "id = 'k1'", execute_parts=in_process)
    assert {key: n for key, _, n, _ in rows(table)}["k1"] == 501


def test_a_later_update_waits_for_one_in_parts() -> None:
    table = filled(make())
    other = Table("memory", opening=Opening(store=table._store, environment=SimulatedEnvironment(stem="other")))

    def beside(parts: Parts) -> list[PartDone]:
        with pytest.raises(EarlierWritePendingError):
            other.update({"n": 0}, wait=timedelta(seconds=1))
        return in_process(parts)

    table.update({"n": "n + 1"}, execute_parts=beside)


def test_a_driver_that_dies_leaves_a_write_that_is_given_up() -> None:
    table = filled(make())
    before = rows(table)
    driver = Table("memory", opening=Opening(store=table._store, environment=SimulatedEnvironment(stem="driver")))
    held: list[UpdatePart] = []

    def dying(parts: Parts) -> list[PartDone]:
        parts[0].execute()
        held.extend(parts)
        raise ProcessDied

    with pytest.raises(ProcessDied):
        driver.update({"n": 0}, execute_parts=dying)
    assert (rows(table), table.inspect.pending().num_rows) == (before, 0)
    with pytest.raises(WriterExpiredError):
        held[1].execute()  # a task that comes when all is over
    assert rows(table) == before


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "said"),
    [
        (lambda t: t.update({"m": 1}, execute_parts=never), "no such columns"),
        (lambda t: t.update({"id": "'x'"}, execute_parts=never), "cannot change key columns"),
        (lambda t: t.update({"n": 1}, "m = 1", execute_parts=never), "m"),
        (lambda t: t.update({"price": "'dear'"}, execute_parts=never), "price"),
        (lambda t: t.delete(where="n + 1", execute_parts=never), "a filter must be true or false"),
        (lambda t: t.update({"n": 1}, execute_parts=never, wait=timedelta(-1)), "wait"),
        (lambda t: t.delete(keys=["a"], execute_parts=never), "execute_parts only with where"),
    ],
)
def test_what_cannot_be_is_refused_before_it_begins(update: Callable[[Table], Commit], said: str) -> None:
    table = filled(make())
    version = table.version
    with pytest.raises(CrdtMorError, match=said):
        update(table)
    assert table.version == version


def test_what_the_rows_tell_is_the_error_of_the_part_and_leaves_nothing() -> None:
    table = filled(make(ordering="n"))
    before = rows(table)

    def failing(parts: Parts) -> list[PartDone | CrdtMorError]:
        outcomes: list[PartDone | CrdtMorError] = []
        for part in parts:
            try:
                outcomes.append(part.execute())
            except InvalidInputError as error:
                outcomes.append(error)
        return outcomes

    with pytest.raises(InvalidInputError, match=r"lower ordering value .* before=14 after=13"):
        table.update({"n": "CASE WHEN n = 14 THEN 13 ELSE n END"}, execute_parts=failing)
    assert (rows(table), table.inspect.pending().num_rows) == (before, 0)
    with pytest.raises(InvalidInputError, match=r"must return, for each part .* given=\['PartDone'\]"):
        table.update({"price": 1.0}, execute_parts=lambda parts: in_process(parts)[:1])
    assert (rows(table), table.inspect.pending().num_rows) == (before, 0)

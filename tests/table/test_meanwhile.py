"""What others do in the middle of a call, between two looks of it at the table: found by the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.errors import CommitUnknownError, WriterExpiredError
from crdt_mor.log import publish, tail
from crdt_mor.log.paths import ERASURES, VERSIONS
from crdt_mor.store import MemoryStore, Store
from crdt_mor.testing.faults import DelegatingStore
from tests.inside import look_for_hudi
from tests.simulated import Simulated

T = TypeVar("T")
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def rows(*keys: str) -> pa.Table:
    return pa.table({"id": keys, "n": range(len(keys))}, SCHEMA)


class Before(DelegatingStore):
    """Lets others act once, before a call of this kind once it is armed. after: how many such calls come first."""

    def __init__(self, store: Store, operation: str, folder: str, after: int = 0) -> None:
        super().__init__(store)
        self.run: Callable[[], object] | None = None
        self._operation = operation
        self._folder = folder
        self._left = after

    def around(self, operation: str, path: str, call: Callable[[], T]) -> T:
        run = self.run
        if run is not None and operation == self._operation and path.startswith(self._folder):
            self._left -= 1
            if self._left < 0:
                self.run = None
                run()
        return call()


def opened(place: Simulated, store: Store) -> Table:
    return Table.open("simulated", store=store, environment=place.environment)


def test_an_older_write_that_ends_while_a_delete_is_made_brings_no_erased_row() -> None:
    """The delete was computed while the write was pending; the look for pending writes came when it had ended."""
    place = Simulated()
    table = place.create(SCHEMA, key="id")
    table.upsert(rows("a", "b"))
    older = table.transaction()
    older.__enter__()
    older.upsert(rows("late"))
    store = Before(place.store, "put", ERASURES)
    store.run = lambda: older.__exit__(None, None, None)
    opened(place, store).maintenance.erase(keys=["a", "late"])
    assert older.commit is not None
    assert table.scan().to_arrow()["id"].to_pylist() == ["b"]


@pytest.fixture
def place() -> Simulated:
    """A table with a commit, and another that has a token."""
    made = Simulated()
    table = made.create(SCHEMA, key="id")
    table.upsert(rows("a"))
    table.maintenance.savepoint("before")
    table.upsert(rows("b"), token=("job", 1))
    return made


def test_a_block_whose_commit_a_restore_drops_while_it_begins_is_made_anew(place: Simulated) -> None:
    store = Before(place.store, "read", VERSIONS, after=1)
    table = opened(place, store)
    store.run = lambda: opened(place, place.store).maintenance.restore("before")
    with table.transaction(token=("job", 1)) as block:
        block.upsert(rows("b"))
    assert block.commit is not None
    assert not block.commit.repeated
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == ["a", "b"]


def test_a_job_whose_commit_a_restore_drops_before_it_is_completed_says_to_plan_anew(place: Simulated) -> None:
    table = opened(place, place.store)
    job = table.jobs.plan("upsert", SCHEMA, token=("job", 1))
    receipt = job.stage(rows("b"), task=0, environment=place.environment)
    table.maintenance.restore("before")
    with pytest.raises(WriterExpiredError, match="plan the write anew"):
        table.jobs.complete(job, [receipt])


class After(DelegatingStore):
    """Lets others act once, after the first version is put once it is armed."""

    run: Callable[[], object] | None = None

    def around(self, operation: str, path: str, call: Callable[[], T]) -> T:
        answer = call()
        if (run := self.run) is not None and operation == "put" and path.startswith(VERSIONS):
            self.run = None
            run()
        return answer


OPERATIONS: dict[str, Callable[[Table], object]] = {
    "rename": lambda table: table.alter(rename={"n": "m"}),
    "drop a column": lambda table: table.alter(drop="n"),
    "savepoint": lambda table: table.maintenance.savepoint("second"),
    "drop a savepoint": lambda table: table.maintenance.drop_savepoint("before"),
    "add a rule": lambda table: table.add_rules(check={"positive": "n >= 0"}),
    "set a property": lambda table: table.set_properties({"crdt_mor.retention": "2d"}),
}

EFFECTS: dict[str, Callable[[Table], bool]] = {
    "rename": lambda table: table.schema.names == ["id", "m"],
    "drop a column": lambda table: table.schema.names == ["id"],
    "savepoint": lambda table: [saved.name for saved in table.maintenance.savepoints()] == ["before", "second"],
    "drop a savepoint": lambda table: not table.maintenance.savepoints(),
    "add a rule": lambda table: [*table.rules.check] == ["positive"],
    "set a property": lambda table: table.properties["crdt_mor.retention"] == "2d",
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_landed_is_never_told_as_refused_however_much_others_publish_before_its_maker_looks(
    name: str, place: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own event is what would be in its way: the column has its new name already."""
    monkeypatch.setattr(tail, "KEPT_VERSIONS", 1)
    monkeypatch.setattr(publish, "EXPIRE_EVERY", 1)
    other, store = opened(place, place.store), After(place.store)
    table = opened(place, store)
    store.run = lambda: [other.delete(pa.table({"id": ["x"]})) for _ in range(4)]
    OPERATIONS[name](table)
    look_for_hudi(other)
    assert EFFECTS[name](other)


class NoReply(DelegatingStore):
    """Says of the first put of a version that it does not know what became of it. lands: whether it was carried out."""

    def __init__(self, store: Store, *, lands: bool) -> None:
        super().__init__(store)
        self._lands = lands
        self.is_told = False

    def around(self, operation: str, path: str, call: Callable[[], T]) -> T:
        if self.is_told or operation != "put" or not path.startswith(VERSIONS):
            return call()
        self.is_told = True
        if self._lands:
            call()
        raise CommitUnknownError(f"no reply. path={path}")


@pytest.mark.parametrize("lands", [False, True])
def test_the_first_version_is_put_again_where_its_put_got_no_reply(lands: bool) -> None:
    """A table that was to move said that the folder of its timeline was removed, seed 288."""
    place, target = Simulated(), NoReply(MemoryStore(), lands=lands)
    table = place.create(SCHEMA, key="id")
    table.upsert(rows("a", "b"))
    table.maintenance.migrate("there", store=target)
    assert target.is_told
    moved = Table.open("there", store=target, environment=place.environment)
    assert sorted(moved.scan().to_polars()["id"]) == ["a", "b"]

"""What others do in the middle of a call, between two looks of it at the table: found by the simulator."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import pyarrow as pa
import pytest

from crdt_mor import Opening, Rules, Table
from crdt_mor.errors import CommitUnknownError, WriterExpiredError
from crdt_mor.log import publish, tail
from crdt_mor.log.paths import ERASURES, VERSIONS
from crdt_mor.store import MemoryStore, Store
from tests.inside import look_for_hudi
from tests.simulated import Simulated
from tests.stores import ScriptedStore, as_it_is, first

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def rows(*keys: str) -> pa.Table:
    return pa.table({"id": keys, "n": range(len(keys))}, SCHEMA)


def is_version(path: str) -> bool:
    return path.startswith(VERSIONS)


def opened(place: Simulated, store: Store) -> Table:
    return Table("simulated", opening=Opening(store=store, environment=place.environment))


def test_an_older_write_that_ends_while_a_delete_is_made_brings_no_erased_row() -> None:
    """The delete was computed while the write was pending; the look for pending writes came when it had ended."""
    place = Simulated()
    table = place.create(SCHEMA, key="id")
    table.upsert(rows("a", "b"))
    older = table.transaction()
    older.__enter__()
    older.upsert(rows("late"))
    ends = first("put", lambda path: path.startswith(ERASURES), lambda: older.__exit__(None, None, None))
    store = ScriptedStore(place.store, ends)
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
    store = ScriptedStore(place.store, as_it_is)
    table = opened(place, store)
    store.script = first(
        "read", is_version, lambda: opened(place, place.store).maintenance.restore("before"), skipped=1
    )
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


OPERATIONS: dict[str, Callable[[Table], object]] = {
    "rename": lambda table: table.alter(rename={"n": "m"}),
    "drop a column": lambda table: table.alter(drop="n"),
    "savepoint": lambda table: table.maintenance.savepoint("second"),
    "drop a savepoint": lambda table: table.maintenance.drop_savepoint("before"),
    "add a rule": lambda table: table.add_rules(Rules(check={"positive": "n >= 0"})),
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
    other, store = opened(place, place.store), ScriptedStore(place.store, as_it_is)
    table = opened(place, store)

    def publish_more() -> None:
        for _ in range(4):
            other.delete(pa.table({"id": ["x"]}))

    store.script = first("put", is_version, publish_more, after=True)
    OPERATIONS[name](table)
    look_for_hudi(other)
    assert EFFECTS[name](other)


@pytest.mark.parametrize("lands", [False, True])
def test_the_first_version_is_put_again_where_its_put_got_no_reply(lands: bool) -> None:
    """A table that was to move said that the folder of its timeline was removed, seed 288."""
    place, no_reply = Simulated(), Mock(side_effect=CommitUnknownError("no reply"))
    target = ScriptedStore(MemoryStore(), first("put", is_version, no_reply, after=lands))
    table = place.create(SCHEMA, key="id")
    table.upsert(rows("a", "b"))
    table.maintenance.migrate("there", store=target)
    assert no_reply.called
    moved = Table("there", opening=Opening(store=target, environment=place.environment))
    assert sorted(moved.scan().to_polars()["id"]) == ["a", "b"]

"""A put decides, and then the store fails: the write is a commit, or its outcome is told to be unknown.

Whatever class the store raises. A store that a user hands in may raise any.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from crdt_mor import CrdtMorError, InvalidInputError, Opening, Rules, StorageUnavailableError, Table
from crdt_mor.errors import (
    CommitUnknownError,
    ErasureUnfinishedError,
    FormatError,
    RestoreUnfinishedError,
    StorageRefusedError,
    TableArrivingError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from crdt_mor.log.paths import POSTS, PROPERTIES, VERSIONS
from crdt_mor.store import MemoryStore, Store
from crdt_mor.testing.clock import SimulatedEnvironment
from tests.failing import URI, FailingBucket, answered
from tests.inside import hudi_folder_of, session_of
from tests.posting import in_a_crowd, post
from tests.simulated import Simulated
from tests.stores import Script, ScriptedStore, first, refusing
from tests.tiers import slow

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])

SAID = "it failed; nothing was published. Try again"
ERRORS = [
    StorageUnavailableError(SAID), StorageRefusedError(SAID), UnsupportedFeatureError(SAID), InvalidInputError(SAID),
    FormatError(SAID), PermissionError(SAID), ValueError(SAID),
]  # fmt: skip


def failing(
    error: Exception, starts: Callable[[str], bool], fails: Callable[[str, str], bool], begun: list[str]
) -> Script:
    """A script that raises `error` where `fails` is true, after the first put for which `starts` is true."""

    def script(operation: str, path: str, call: Callable[[], Any]) -> Any:
        if begun and fails(operation, path):
            raise error
        result = call()
        if operation == "put" and starts(path):
            begun.append(path)
        return result

    return script


def rows(*ids: str, n: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "n": [n] * len(ids)}, SCHEMA)


def in_block(table: Table) -> None:
    with table.transaction() as tx:
        tx.upsert(rows("b"))


def merged(table: Table) -> None:
    table.merge(rows("a", "b"), on="id").when_matched_update(
        {"n": "source.n + 1"}
    ).when_not_matched_insert_all().execute()


VERBS: dict[str, Callable[[Table], Any]] = {
    "block": in_block,
    "compact": lambda table: table.maintenance.compact(),
    "delete": lambda table: table.delete(where="n = 1"),
    "merge": merged,
    "overwrite": lambda table: table.overwrite(rows("b")),
    "save": lambda table: table.maintenance.savepoint("here"),
    "update": lambda table: table.update({"n": "n + 1"}),
    "upsert": lambda table: table.upsert(rows("b")),
}


def everything(operation: str, path: str) -> bool:
    return True


def hudis_file(operation: str, path: str) -> bool:
    """The put of Hudi's completed file."""
    return operation == "put" and "_" in path.rpartition("/")[2] and "/timeline/" in path and ".crdt_mor" not in path


def is_decided_by(verb: str) -> Callable[[str], bool]:
    """The put that decides: of what begins first, the second version."""
    begins = verb in {"block", "overwrite"}
    seen: list[str] = []

    def starts(path: str) -> bool:
        if path.startswith(VERSIONS):
            seen.append(path)
        return len(seen) > begins

    return starts


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("fails", [everything, hudis_file], ids=lambda fails: fails.__name__)
@pytest.mark.parametrize("verb", VERBS)
def test_a_store_that_fails_after_the_version_leaves_a_commit_or_an_unknown_outcome(
    verb: str, fails: Callable[[str, str], bool], error: Exception
) -> None:
    world = Simulated()
    table = world.create(SCHEMA, key="id", buckets=1)
    table.upsert(rows("a"))
    assert "timeline" in hudi_folder_of(table)
    begun: list[str] = []
    store = ScriptedStore(world.store, failing(error, is_decided_by(verb), fails, begun))
    opened = Table("simulated", opening=Opening(store=store, environment=world.environment))
    told = ""
    try:
        VERBS[verb](opened)
    except CommitUnknownError as found:
        told = str(found)
    assert begun
    assert "nothing was published" not in told


STEPS: dict[str, tuple[Callable[[Table], Any], Callable[[Table], Any]]] = {
    "add_rules": (lambda table: None, lambda table: table.add_rules(Rules(not_null="n"))),
    "drop_savepoint": (
        lambda table: table.maintenance.savepoint("here"),
        lambda table: table.maintenance.drop_savepoint("here"),
    ),
    "erase": (lambda table: None, lambda table: table.maintenance.erase(where="n = 1")),
    "erase columns": (lambda table: None, lambda table: table.maintenance.erase(where="n = 1", columns=["n"])),
    "restore": (lambda table: table.maintenance.savepoint("here"), lambda table: table.maintenance.restore("here")),
}
"""Calls that go on after their event: what precedes the table's last upsert, and the call."""


def failing_from(at: int | None) -> Script:
    """A script that refuses every call from one on."""
    numbers = count()

    def script(operation: str, path: str, call: Callable[[], Any]) -> Any:
        if at is not None and next(numbers) >= at:
            raise StorageRefusedError(SAID)
        return call()

    return script


def _done_until(verb: str, at: int | None) -> tuple[object, object, CrdtMorError | None, int]:
    """The effects of a call if its store refuses operations from number `at` on; its error, and their number."""
    prepare, call = STEPS[verb]
    world = Simulated()
    table = world.create(SCHEMA, key="id", buckets=1)
    table.upsert(rows("a"))
    prepare(table)
    table.upsert(rows("b"))
    before = _shown(table)
    store = ScriptedStore(world.store, failing_from(at))
    told = None
    try:
        call(Table("simulated", opening=Opening(store=store, environment=world.environment)))
    except CrdtMorError as error:
        told = error
    after = _shown(Table("simulated", opening=Opening(store=world.store, environment=world.environment)))
    return before, after, told, len(store.calls)


def _shown(table: Table) -> object:
    return table.to_arrow().to_pylist(), table.rules, table.maintenance.savepoints()


@pytest.mark.parametrize(
    "verb", ["add_rules", "drop_savepoint", "restore", *(slow(verb) for verb in ("erase", "erase columns"))]
)
def test_a_step_after_the_event_that_fails_does_not_say_that_nothing_was_published(verb: str) -> None:
    before, after, told, operations = _done_until(verb, None)
    assert (before != after, told) == (True, None)
    seen = set()
    for at in (1, operations * 4 // 5, operations - 3, operations - 1):
        before, after, told, _ = _done_until(verb, at)
        is_known = isinstance(told, CommitUnknownError | ErasureUnfinishedError | RestoreUnfinishedError)
        assert before == after or told is None or is_known, f"operation {at}: {told!r}"
        assert not is_known or "othing was published" not in str(told), f"operation {at}: {told!r}"
        seen.add(is_known)
    assert seen == {False, True}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_create_whose_store_fails_after_the_properties_is_of_unknown_outcome(error: Exception) -> None:
    world = Simulated()
    store = ScriptedStore(world.store, failing(error, lambda path: path == PROPERTIES, everything, []))
    with pytest.raises(CommitUnknownError) as told:
        Table.create("simulated", SCHEMA, key="id", opening=Opening(store=store, environment=world.environment))
    assert "nothing was published" not in str(told.value)
    assert Table("simulated", opening=Opening(store=world.store, environment=world.environment)).version == 0


@pytest.mark.parametrize("verb", ["copy", "create", "create_from", "migrate"])
def test_a_table_that_was_made_is_not_told_as_unpublished(verb: str) -> None:
    """The store refuses all calls from a number on, for each number, also reads after the table is made."""

    def made(at: int | None) -> tuple[CrdtMorError | None, int, bool]:
        world = Simulated()
        table = world.create(SCHEMA, key="id", buckets=1)
        table.upsert(rows("a"))
        there = ScriptedStore(MemoryStore(world.environment.now_ms), failing_from(at))
        opening = Opening(store=there, environment=world.environment)
        settings: dict[str, Any] = {"key": "id", "buckets": 1, "opening": opening}
        calls: dict[str, Callable[[], object]] = {
            "copy": lambda: table.copy("there", store=there),
            "create": lambda: Table.create("there", SCHEMA, **settings),
            "create_from": lambda: Table.create_from("there", rows("a"), **settings),
            "migrate": lambda: table.maintenance.migrate("there", store=there),
        }
        told = None
        try:
            calls[verb]()
        except CrdtMorError as error:
            told = error
        return told, len(there.calls), _takes_writes(there.store, world.environment)

    told, operations, _ = made(None)
    assert told is None
    last = range(operations - 1, 0, -1)
    found = [made(at)[::2] for at in last[::3][:3]]
    assert any(is_there for _, is_there in found), "the table is made before the last calls"
    for told, is_there in found:
        assert not is_there or told is None or isinstance(told, CommitUnknownError), f"{told!r}"


def _takes_writes(store: Store, environment: SimulatedEnvironment) -> bool:
    try:
        table = Table("there", opening=Opening(store=store, environment=environment))
        table.upsert(rows("z"))
    except (TableNotFoundError, TableArrivingError):
        return False
    return True


@pytest.mark.parametrize(
    "error", [OSError("it failed"), ValueError("it failed")], ids=lambda error: type(error).__name__
)
def test_a_version_that_is_put_by_a_call_that_raises_is_a_commit(error: Exception) -> None:
    """A class that no store should raise says nothing of the object, so it is read back."""

    world = Simulated()
    table = world.create(SCHEMA, key="id", buckets=1)
    table.upsert(rows("a"))
    raising = first("put", lambda path: path.startswith(VERSIONS), Mock(side_effect=error), after=True)
    opened = Table(
        "simulated", opening=Opening(store=ScriptedStore(world.store, raising), environment=world.environment)
    )
    assert opened.upsert(rows("b")).rows == 1
    assert table.count() == 2


def test_a_version_that_the_store_refuses_is_told_in_its_own_words() -> None:
    world = Simulated()
    table = world.create(SCHEMA, key="id", buckets=1)
    table.upsert(rows("a"))
    refused = refusing("put", of=lambda path: path.startswith(VERSIONS), error=UnsupportedFeatureError)
    store = ScriptedStore(world.store, refused)
    opened = Table("simulated", opening=Opening(store=store, environment=world.environment))
    with pytest.raises(CrdtMorError, match="a simulated failure"):
        opened.upsert(rows("b"))
    assert table.count() == 1


def test_a_posted_write_whose_post_cannot_be_deleted_is_a_commit() -> None:
    world = Simulated()
    table = world.create(SCHEMA, key="id", buckets=1)
    table.upsert(rows("a"))
    asked: list[str] = []

    def script(operation: str, path: str, call: Callable[[], Any]) -> Any:
        if operation == "delete" and path.startswith(POSTS):
            asked.append(path)
            raise ValueError("it failed")
        return call()

    store = ScriptedStore(world.store, script)
    opened = in_a_crowd(Table("simulated", opening=Opening(store=store, environment=world.environment)))
    assert opened.upsert(rows("b")).rows == 1
    assert asked
    assert table.count() == 2


def test_an_event_whose_carried_posts_cannot_claim_a_time_says_that_nothing_was_published() -> None:
    world = Simulated()
    table = world.create(SCHEMA, key="id", buckets=1)
    post(table, rows("posted"))
    for text in ("first", "second"):
        table.alter(comment={"n": text})
    before = session_of(table).tail().version
    refused = refusing("put", of=lambda path: path.endswith(".deltacommit.requested"), error=CommitUnknownError)
    store = ScriptedStore(world.store, refused)
    opened = Table("simulated", opening=Opening(store=store, environment=world.environment))
    with pytest.raises(StorageUnavailableError, match="put of a claim; nothing was published") as raised:
        opened.alter(comment={"n": "third"})
    assert not isinstance(raised.value, CommitUnknownError)
    assert session_of(table).tail().version == before


@pytest.mark.parametrize("status", [403, 507])
def test_a_refused_post_says_that_it_may_be_visible_and_nothing_else(status: int) -> None:
    with FailingBucket().running() as bucket:
        table = Table.create(
            URI, SCHEMA, key="id", buckets=1, opening=Opening(store=bucket.store(), environment=bucket.environment)
        )
        table.upsert(rows("a"))
        in_a_crowd(table)
        bucket.fail(lambda request, number: answered(status) if request.what == "PUT" else None)
        with pytest.raises(CommitUnknownError, match="may be visible already") as told:
            table.upsert(rows("b"))
        assert "othing was published" not in str(told.value)


def test_create_in_a_store_that_is_full_says_so() -> None:
    with FailingBucket().running() as bucket:
        bucket.fail(lambda request, number: answered(507) if request.what in ("PUT", "DELETE") else None)
        with pytest.raises(StorageRefusedError, match=r"no space left.* Nothing was published"):
            Table.create(URI, SCHEMA, key="id", opening=Opening(store=bucket.store(), environment=bucket.environment))
        assert bucket.environment.now_ms() == SimulatedEnvironment().now_ms(), "it was not tried again"


def test_create_in_a_store_that_does_not_answer_the_probe_is_a_failure_of_the_store() -> None:
    """Objects of a probe are part of no table: that the outcome of their puts is unknown means nothing."""
    with FailingBucket().running() as bucket:
        bucket.fail(lambda request, number: answered(500) if request.what in ("PUT", "DELETE") else None)
        with pytest.raises(StorageUnavailableError, match="nothing was published") as told:
            Table.create(URI, SCHEMA, key="id", opening=Opening(store=bucket.store(), environment=bucket.environment))
        assert "probe" not in str(told.value)

"""One operation of a user waits once for a store that fails, as long as `retry_timeout` says, whatever it asks."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor import CrdtMorError, Opening, StorageUnavailableError, Table
from crdt_mor.cli.main import app
from crdt_mor.errors import CommitUnknownError
from crdt_mor.ground import deadlines
from crdt_mor.ground.observing import emit
from crdt_mor.log.posts import LOOKS_MAX
from crdt_mor.readers.polars import scan_table
from tests.failing import URI, FailingBucket, LostError, Request, answered
from tests.tiers import slow

COLUMNS = {"id": pl.String, "v": pl.Int64}
DEADLINE_S = 60.0
SLACK_S = 12.0
"""Pauses that are begun before the deadline, and those of protocols, which are short."""


def rows(*keys: str) -> pl.DataFrame:
    return pl.DataFrame({"id": keys, "v": [1] * len(keys)}, COLUMNS)


@pytest.fixture
def bucket() -> Iterator[FailingBucket]:
    with FailingBucket().running() as made:
        yield made


def opened(bucket: FailingBucket, **options: str) -> Table:
    return Table(URI, opening=Opening(store=bucket.store(**options), environment=bucket.environment))


def filled(bucket: FailingBucket) -> Table:
    """A table with base files, logs over them and a savepoint, opened by a process that has written before."""
    table = Table.create(
        URI, COLUMNS, key="id", buckets=2, opening=Opening(store=bucket.store(), environment=bucket.environment)
    )
    table.upsert(rows(*"abcdefgh"))
    table.maintenance.compact()
    table.upsert(rows(*"abcd"))
    table.maintenance.savepoint("before")
    table.upsert(rows(*"ab"))
    return table


def in_block(table: Table) -> None:
    with table.transaction() as tx:
        tx.upsert(rows("x"))
        tx.delete(keys=["a"])


def with_growth(table: Table) -> None:
    table.upsert(rows("x").with_columns(more=pl.lit(1)), schema_mode="merge")


def by_tasks(table: Table) -> None:
    job = table.jobs.plan("upsert", COLUMNS)
    table.jobs.complete(job, [job.stage(rows("x"), task=0)])


OPERATIONS: dict[str, Callable[[Table], object]] = {
    "open": lambda table: opened(BUCKETS[table]),
    "upsert": lambda table: table.upsert(rows("x", "y", "z")),
    "delete": lambda table: table.delete(where="id = 'a'"),
    "block": in_block,
    "growth": with_growth,
    "overwrite": lambda table: table.overwrite(rows("x")),
    "tasks": by_tasks,
    "scan": lambda table: table.to_polars(),
    "polars": lambda table: scan_table(table).filter(pl.col("v") > 0).select("id").collect(),
    "changes": lambda table: table.changes().to_polars(),
    "history": lambda table: table.history(),
    "properties": lambda table: table.set_properties({"note": "x"}),
    "compact": lambda table: table.maintenance.compact(),
    "clean": lambda table: table.maintenance.clean(keep=timedelta(0)),
    "maintain": lambda table: table.maintenance.maintain(),
    "restore": lambda table: table.maintenance.restore("before"),
}
BUCKETS: dict[Table, FailingBucket] = {}
FAST = ("upsert", "scan")


BEGAN_MS = FailingBucket().environment.now_ms()


@contextmanager
def operation_under_way() -> Iterator[None]:
    """One operation of a user, of which the requests inside of the block are parts."""
    token = deadlines._current.set(deadlines.Operation())
    try:
        yield
    finally:
        deadlines._current.reset(token)


def took_s(bucket: FailingBucket, call: Callable[[], object]) -> tuple[float, Exception | None]:
    """How long a call took by the simulated clock, and what it raised."""
    began_ms = bucket.environment.now_ms()
    try:
        call()
    except CrdtMorError as error:
        return (bucket.environment.now_ms() - began_ms) / 1000, error
    return (bucket.environment.now_ms() - began_ms) / 1000, None


@pytest.mark.slow
@pytest.mark.parametrize("name", [name if name in FAST else slow(name) for name in OPERATIONS])
def test_a_store_that_dies_fails_an_operation_after_one_deadline(name: str) -> None:
    """At whatever request of it the store dies; once it lives again, the table is as whole as before."""
    requests = 0
    while True:
        with FailingBucket().running() as bucket:
            table = filled(bucket)
            BUCKETS[table] = bucket
            bucket.die_after(requests)
            seconds, error = took_s(bucket, partial(OPERATIONS[name], table))
            died = len(bucket.asked) > requests
            BUCKETS.clear()
            if not died:
                assert error is None
                break
            assert seconds <= DEADLINE_S + SLACK_S, f"requests={requests} seconds={seconds} error={error}"
            assert error is None or seconds >= DEADLINE_S - SLACK_S
            assert "None" not in str(error or "")
            bucket.mend()
            again = opened(bucket)
            again.upsert(rows("after"))
            assert "after" in set(again.to_polars()["id"])
        requests += 1
    assert requests > 1


@pytest.mark.parametrize("name", ["upsert", "block", slow("overwrite"), slow("compact"), slow("tasks")])
def test_a_store_that_makes_no_objects_any_more_ends_a_write_after_one_deadline(
    bucket: FailingBucket, name: str
) -> None:
    table = filled(bucket)
    bucket.fail(lambda request, number: answered(503) if request.conditional else None)
    seconds, error = took_s(bucket, lambda: OPERATIONS[name](table))
    assert isinstance(error, StorageUnavailableError | CommitUnknownError)
    assert DEADLINE_S - SLACK_S <= seconds <= DEADLINE_S + SLACK_S
    assert "None" not in str(error)


def test_an_object_that_cannot_be_put_ends_a_write_after_one_deadline(bucket: FailingBucket) -> None:
    """Though all else that the store is asked meanwhile, it does."""
    table = filled(bucket)
    bucket.fail(lambda request, number: answered(503) if request.conditional and ".log." in request.key else None)
    seconds, error = took_s(bucket, lambda: table.upsert(rows("x")))
    assert isinstance(error, StorageUnavailableError)
    assert seconds <= DEADLINE_S + SLACK_S
    bucket.mend()
    assert "x" not in set(opened(bucket).to_polars()["id"])


@pytest.mark.parametrize("name", ["block", "overwrite", "growth", "tasks"])
def test_a_store_that_dies_while_files_are_staged_has_published_nothing(bucket: FailingBucket, name: str) -> None:
    """Also where its death keeps the write from being rolled back: no commit was asked for yet."""
    table = filled(bucket)
    dead: list[Request] = []

    def dies(request: Request, number: int) -> Exception | None:
        if request.conditional and (".log." in request.key or "/staged/" in request.key):
            dead.append(request)
        return answered(503) if dead else None

    bucket.fail(dies)
    # A task that joins its write asks for the write's ticket at last, and a read says nothing of what was published.
    says = r"deadline\. Try again.*read=.*\.ticket" if name == "tasks" else "nothing was published"
    with pytest.raises(StorageUnavailableError, match=says):
        OPERATIONS[name](table)
    assert dead
    bucket.mend()
    assert set(opened(bucket).to_polars()["id"]) == set("abcdefgh")


def test_one_object_that_is_not_answered_says_nothing_of_another(bucket: FailingBucket) -> None:
    """Though nothing else was asked while it was waited for: the store lives, as the next object shows."""
    bucket.objects.put("table/there", b"1")
    bucket.fail(lambda request, number: answered(503) if request.key.endswith("broken") else None)
    store = bucket.store()
    with operation_under_way():
        with pytest.raises(StorageUnavailableError, match="read=broken "):
            store.read("broken")
        assert store.read("there") == b"1"


def test_an_operation_names_what_it_was_not_answered_and_asks_a_dead_store_no_more(bucket: FailingBucket) -> None:
    bucket.die_after(0)
    store = bucket.store()
    with operation_under_way():
        for path, said in (("a", "read=a "), ("b", "read=b .* tries=1 "), ("c", "read=a ")):
            with pytest.raises(StorageUnavailableError, match=said) as raised:
                store.read(path)
            assert "tries=0" not in str(raised.value)
    assert {request.key for request in bucket.asked} == {"table/a", "table/b"}
    assert bucket.environment.now_ms() - BEGAN_MS <= (DEADLINE_S + SLACK_S) * 1000


def test_the_death_of_one_store_is_not_charged_to_another(bucket: FailingBucket) -> None:
    """A migration between two buckets is one operation on both."""
    bucket.fail(lambda request, number: answered(503) if "dead" in request.key else None)
    dead, living = bucket.store(), bucket.store(aws_endpoint_url="https://elsewhere.example")
    with operation_under_way():
        for path in ("dead/a", "dead/b"):
            with pytest.raises(StorageUnavailableError):
                dead.read(path)
        down_until_ms = bucket.environment.now_ms() + 40_000
        bucket.fail(lambda request, number: answered(503) if bucket.environment.now_ms() < down_until_ms else None)
        assert living.read("there") is None
        assert bucket.environment.now_ms() >= down_until_ms


def test_an_operation_waits_for_each_outage_that_ends(bucket: FailingBucket) -> None:
    """Its deadline is for a store that does nothing, not for all of its work."""
    table = filled(bucket)
    environment = bucket.environment
    down_until: dict[str, int] = {}

    def outages(request: Request, number: int) -> Exception | None:
        if not request.conditional:
            return None
        until = down_until.setdefault(request.key, environment.now_ms() + 40_000)
        return answered(503) if environment.now_ms() < until else None

    bucket.fail(outages)
    seconds, error = took_s(bucket, lambda: in_block(table))
    assert error is None
    assert seconds > 2 * DEADLINE_S
    assert "x" in set(opened(bucket).to_polars()["id"])


def test_the_next_operation_waits_anew(bucket: FailingBucket) -> None:
    table = filled(bucket)
    bucket.die_after(0)
    for _ in range(2):
        seconds, error = took_s(bucket, lambda: table.upsert(rows("x")))
        assert isinstance(error, StorageUnavailableError)
        assert DEADLINE_S - SLACK_S <= seconds <= DEADLINE_S + SLACK_S


def test_a_job_whose_publication_is_not_answered_is_not_said_to_have_published_nothing(bucket: FailingBucket) -> None:
    table, died = filled(bucket), list[str]()

    def dies_with_the_version(request: Request, number: int) -> Exception | None:
        has_files = any(".log." in asked.key and "staged" not in asked.key for asked in bucket.asked)
        if died or not (has_files and request.conditional and "/.crdt_mor/timeline/" in request.key):
            return answered(503) if died else None
        died.append(request.key)
        return LostError.of("now")

    bucket.fail(dies_with_the_version)
    _, error = took_s(bucket, lambda: by_tasks(table))
    assert isinstance(error, CommitUnknownError), error
    bucket.mend()
    assert "x" in set(opened(bucket).to_polars()["id"])


# --- a store that contradicts itself ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [412, 304])
@pytest.mark.parametrize("name", ["upsert", "block", "compact", slow("overwrite"), slow("tasks"), slow("properties")])
def test_a_store_that_has_what_is_not_there_ends_a_write_with_words(
    bucket: FailingBucket, name: str, status: int
) -> None:
    table = filled(bucket)
    bucket.fail(lambda request, number: answered(status) if request.conditional else None)
    seconds, error = took_s(bucket, lambda: OPERATIONS[name](table))
    assert isinstance(error, StorageUnavailableError | CommitUnknownError)
    assert "no next version exists" in str(error)
    assert "check-store" in str(error)
    assert "None" not in str(error)
    assert seconds <= DEADLINE_S
    assert len(bucket.asked) < 12 * LOOKS_MAX, "an upsert is posted, and looks so often for its commit"


# --- what is said meanwhile -------------------------------------------------------------------------------------------


def test_waiting_is_told_after_five_seconds_and_then_each_minute(
    bucket: FailingBucket, caplog: pytest.LogCaptureFixture
) -> None:
    filled(bucket)
    table = opened(bucket, retry_timeout="200s")
    caplog.set_level(logging.WARNING, "crdt_mor")
    caplog.clear()
    events: list[mor.observing.WaitEvent] = []
    began_ms, at_s = bucket.environment.now_ms(), list[float]()

    def note(event: mor.observing.Event) -> None:
        if isinstance(event, mor.observing.WaitEvent):
            events.append(event)
            at_s.append((bucket.environment.now_ms() - began_ms) / 1000)

    bucket.die_after(0)
    with mor.observe(note), pytest.raises(StorageUnavailableError):
        table.upsert(rows("x"))
    assert [round(second / 60) for second in at_s] == [0, 1, 2, 3]
    assert at_s[0] >= 5
    assert all(later - earlier > 59.9 for earlier, later in pairwise(at_s))
    first = events[0]
    assert (first.name, first.uri, first.deadline_s, first.level) == ("store_wait", URI, 200, logging.WARNING)
    assert first.cause == "503 SlowDown Please wait."
    assert len(caplog.messages) == 4
    said = caplog.messages[0]
    assert said.startswith("waiting for a store that fails, ")
    assert f" {first.request} store={URI} tries={first.tries} cause=503 SlowDown Please wait." in said


def test_a_short_outage_is_not_told(bucket: FailingBucket, caplog: pytest.LogCaptureFixture) -> None:
    table = filled(bucket)
    caplog.set_level(logging.WARNING, "crdt_mor")
    until_ms = bucket.environment.now_ms() + 4_000
    bucket.fail(lambda request, number: answered(503) if bucket.environment.now_ms() < until_ms else None)
    table.upsert(rows("x"))
    assert caplog.messages == []


@pytest.mark.parametrize("more", [(), ("--output", "json")])
def test_the_command_line_says_what_it_waits_for(more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    event = mor.observing.WaitEvent(
        uri="s3://lake/t", request="put=.hoodie/x", tries=7, waited_s=5.2, deadline_s=60, cause="503 SlowDown"
    )

    def opens(table: Table, uri: str, **options: object) -> None:
        emit(event)
        raise mor.errors.TableNotFoundError("there is no table here. path=t")

    monkeypatch.setattr(Table, "__init__", opens)
    said = CliRunner().invoke(app, ["count", "t", *more]).stderr
    first = said.splitlines()[0]
    assert first.startswith('{"warning": {"type": "WaitEvent", ' if more else "warning: waiting for a store that fails")
    assert "put=.hoodie/x" in first
    assert "503 SlowDown" in first


# --- through other doors ----------------------------------------------------------------------------------------------


def commanded(bucket: FailingBucket, *words: str) -> tuple[float, Result]:
    """How long a command took by the simulated clock, and how it ended."""
    began_ms = bucket.environment.now_ms()
    with bucket.at_its_address():
        done = CliRunner().invoke(app, [words[0], URI, *words[1:]], input=b'{"id": "x", "v": 1}\n')
    return (bucket.environment.now_ms() - began_ms) / 1000, done


@pytest.mark.costly
@pytest.mark.parametrize("words", [("upsert", "-"), ("count",), slow(("compact",))], ids=lambda words: words[0])
def test_a_command_ends_after_one_deadline_at_whatever_request_the_store_dies(
    bucket: FailingBucket, words: tuple[str, ...]
) -> None:
    filled(bucket)
    requests = 0
    while True:
        bucket.die_after(requests)
        seconds, done = commanded(bucket, *words)
        if len(bucket.asked) <= requests:
            assert done.exit_code == 0, done.output
            break
        bucket.mend()
        assert seconds <= DEADLINE_S + SLACK_S, f"requests={requests} seconds={seconds} {done.output}"
        if done.exit_code:
            assert (done.exit_code, done.stdout, type(done.exception)) == (1, "", SystemExit)
            *waits, error = done.stderr.splitlines()
            assert waits
            assert all(said.startswith("warning: waiting for a store that fails") for said in waits)
            assert all(said.endswith("cause=503 SlowDown Please wait.") for said in waits)
            assert error.startswith("error: the store ")
            assert "None" not in error
        requests += 1
    assert requests > 5


@pytest.mark.parametrize("status", [412, 503])
def test_a_command_that_makes_no_object_ends_with_words(bucket: FailingBucket, status: int) -> None:
    filled(bucket)
    bucket.fail(lambda request, number: answered(status) if request.conditional else None)
    seconds, done = commanded(bucket, "upsert", "-", "--output", "json")
    assert (done.exit_code, done.stdout) == (1, "")
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert error["type"] in ("StorageUnavailableError", "CommitUnknownError")
    assert status == 503 or "check-store" in error["message"]
    assert seconds <= DEADLINE_S + SLACK_S
    bucket.mend()
    assert "x" not in set(opened(bucket).to_polars()["id"])


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_polars_raises_our_error_where_the_store_dies_under_a_frame(bucket: FailingBucket, engine: Any) -> None:
    """The log file is larger than what is read as soon as the frame is made."""
    table = Table.create(
        URI, COLUMNS, key="id", buckets=1, opening=Opening(store=bucket.store(), environment=bucket.environment)
    )
    numbers = pl.int_range(40_000, eager=True)
    table.upsert(pl.DataFrame({"id": numbers.cast(pl.String), "v": numbers.hash().reinterpret(signed=True)}, COLUMNS))
    frame = scan_table(opened(bucket)).select("id", "v")
    bucket.die_after(0)
    seconds, error = took_s(bucket, lambda: frame.collect(engine=engine))
    assert isinstance(error, StorageUnavailableError)
    assert "503 SlowDown" in str(error)
    assert DEADLINE_S - SLACK_S <= seconds <= DEADLINE_S + SLACK_S
    bucket.mend()
    assert frame.collect(engine=engine).height == 40_000

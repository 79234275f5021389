"""What a table's events tell: to logging, to callbacks, and to OpenTelemetry."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

import crdt_mor as mor
from crdt_mor import Opening, Table
from crdt_mor.planners.way import BLOCK
from crdt_mor.telemetry import instrument
from tests.inside import completions_of
from tests.posting import in_a_crowd, meanwhile
from tests.simulated import Simulated
from tests.stores import ScriptedStore, first
from tests.table.helpers import SCHEMA, frame, rows

T = TypeVar("T")


@pytest.fixture
def events() -> Iterator[list[mor.observing.Event]]:
    """What is told while a test runs; without sweeps, which come with a table's first write and then each minute."""
    told: list[mor.observing.Event] = []
    with mor.observe(lambda event: None if isinstance(event, mor.observing.SweepEvent) else told.append(event)):
        yield told


@pytest.fixture
def table(simulated: Simulated) -> mor.Table:
    return simulated.create(schema=SCHEMA, key="id", name="events")


def names(events: list[mor.observing.Event]) -> list[str]:
    return [event.name for event in events]


# --- events -----------------------------------------------------------------------------------------------------------


def test_a_commit_tells_of_itself_once_and_says_how_much_it_wrote(
    table: mor.Table, simulated: Simulated, events: list[mor.observing.Event]
) -> None:
    with table.transaction() as tx:
        tx.upsert(frame(("a", "eu"), ("b", "eu")))
        simulated.environment.sleep(5)
        tx.delete(frame(("c", "eu")))
    commit = tx.commit
    assert commit is not None
    (event,) = events
    assert isinstance(event, mor.observing.CommitEvent)
    facts = event.facts()
    size = facts.pop("bytes")
    assert isinstance(size, int)
    assert size > 0
    assert facts == {
        "event": "commit", "table": "events", "uri": table.uri, "requested": commit.requested_at,
        "completed": commit.completed_at, "version": commit.version, "operation": "UPSERT", "rows": 2, "deletes": 1,
        "files": event.files, "duration_ms": event.duration_ms, "writers": 1,
        "way": "begin", "reason": BLOCK.reason,
    }  # fmt: skip
    assert 5000 <= event.duration_ms < 6000


def test_each_process_tells_of_its_own_part_of_a_group_and_its_publisher_of_the_files(simulated: Simulated) -> None:
    table = simulated.create(schema=SCHEMA, key="id", name="events")
    table.upsert(frame(("a", "eu")))
    other = in_a_crowd(Table("simulated", opening=Opening(store=simulated.store, environment=simulated.environment)))
    store = meanwhile(simulated.store, lambda: other.upsert(frame(("b", "eu"), ("c", "eu"))))
    mine = in_a_crowd(Table("simulated", opening=Opening(store=store, environment=simulated.environment)))
    told = list[mor.observing.CommitEvent]()
    with mor.observe(lambda event: told.append(event) if isinstance(event, mor.observing.CommitEvent) else None):
        mine.delete(keys=["a"])
    files = completions_of(table)[-1].files
    assert [(e.operation, e.rows, e.deletes, e.writers) for e in told] == [("UPSERT", 2, 0, 2), ("DELETE", 0, 1, 2)]
    assert [(e.files, e.bytes) for e in told] == [(len(files), sum(file.size for file in files)), (0, 0)]


def test_a_repeat_by_token_tells_nothing(table: mor.Table, events: list[mor.observing.Event]) -> None:
    for _ in range(2):
        table.upsert(frame(("a", "eu")), token=("load", 1))
    assert names(events) == ["commit"]


def test_a_distributed_write_is_one_commit_of_the_driver(
    table: mor.Table, simulated: Simulated, events: list[mor.observing.Event]
) -> None:
    job = table.jobs.plan("upsert", SCHEMA)
    clock = simulated.environment
    receipts = [job.stage(frame((key, "eu")), task=task, environment=clock) for task, key in enumerate("ab")]
    table.jobs.complete(job, receipts)
    table.jobs.complete(job, receipts)
    assert names(events) == ["commit"]


def test_a_write_that_fails_tells_that_it_was_rolled_back(table: mor.Table, events: list[mor.observing.Event]) -> None:
    with pytest.raises(ZeroDivisionError), table.transaction():
        raise ZeroDivisionError
    (event,) = events
    assert isinstance(event, mor.observing.RollbackEvent)
    assert (event.others, event.level) == (False, logging.INFO)


def test_a_silent_writer_that_is_given_up_is_a_warning(
    table: mor.Table, simulated: Simulated, events: list[mor.observing.Event]
) -> None:
    job = table.jobs.plan("upsert", SCHEMA)
    job.stage(frame(("a", "eu")), task=0, environment=simulated.environment)
    simulated.environment.sleep(timedelta(hours=1).total_seconds())
    table.upsert(frame(("b", "eu")))
    rolled_back = next(event for event in events if isinstance(event, mor.observing.RollbackEvent))
    assert (rolled_back.others, rolled_back.level) == (True, logging.WARNING)
    assert names(events) == ["rollback", "commit"]


def test_a_lost_race_is_told_and_the_write_goes_on(simulated: Simulated, events: list[mor.observing.Event]) -> None:
    simulated.create(schema=SCHEMA, key="id")
    other = mor.Table("simulated", opening=mor.Opening(store=simulated.store, environment=simulated.environment))
    other.upsert(frame(("b", "eu")))
    events.clear()
    racing = first(
        "put", lambda path: "/timeline/" in path and "crdt_mor" in path, lambda: other.upsert(frame(("b", "eu")))
    )
    store = ScriptedStore(simulated.store, racing)
    table = mor.Table("simulated", opening=mor.Opening(store=store, environment=simulated.environment))
    table.upsert(frame(("a", "eu")))
    lost = [event for event in events if isinstance(event, mor.observing.RaceLostEvent)]
    assert [event.attempt for event in lost] == [1]
    assert names(events).count("commit") == 2
    assert len(rows(table, "id")) == 2


def test_a_compaction_tells_each_of_its_steps(table: mor.Table, events: list[mor.observing.Event]) -> None:
    table.upsert(frame(("a", "eu"), ("b", "us")))
    (done,) = table.maintenance.compact()
    plans = [event for event in events if isinstance(event, mor.observing.PlanEvent)]
    assert names(list(plans)) == ["plan_scheduled", "plan_executed", "plan_completed"]
    assert {(plan.barrier, plan.action, plan.table) for plan in plans} == {(done.barrier, "compaction", "events")}
    assert {plan.file_groups for plan in plans} == {done.file_groups}
    assert [plan.rows for plan in plans] == [0, 2, 2]


def test_a_plan_that_is_cancelled_says_so_once(table: mor.Table, events: list[mor.observing.Event]) -> None:
    table.upsert(frame(("a", "eu")))
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    assert table.maintenance.plans.cancel(plan.barrier)
    table.maintenance.plans.cancel(plan.barrier)
    assert names(events) == ["commit", "plan_scheduled", "plan_cancelled"]


# --- logging ----------------------------------------------------------------------------------------------------------


def test_records_have_a_stable_message_and_their_facts_ready_for_json(
    table: mor.Table, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "crdt_mor")
    table.upsert(frame(("secret-key", "eu", 7)))
    table.maintenance.compact()
    told = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [
        ("crdt_mor.write", "INFO", "commit"),
        ("crdt_mor.services", "INFO", "plan scheduled"),
        ("crdt_mor.services", "INFO", "plan executed"),
        ("crdt_mor.services", "INFO", "plan completed"),
    ]
    facts = [record.crdt_mor for record in caplog.records]  # type: ignore[attr-defined]
    assert json.loads(json.dumps(facts)) == facts
    assert facts[0]["rows"] == 1
    assert "secret-key" not in json.dumps(facts)


def test_nothing_is_printed_where_nobody_asked(table: mor.Table, capfd: pytest.CaptureFixture[str]) -> None:
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("crdt_mor").handlers)
    table.upsert(frame(("a", "eu")))
    assert capfd.readouterr() == ("", "")


def test_a_log_handler_that_raises_does_not_break_a_commit(table: mor.Table, capfd: pytest.CaptureFixture[str]) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("the log's disk is full")

    logger, broken = logging.getLogger("crdt_mor.write"), Broken(logging.INFO)
    logger.addHandler(broken)
    logger.setLevel(logging.INFO)
    try:
        commits = [table.upsert(frame(("a", "eu"))) for _ in range(2)]
    finally:
        logger.removeHandler(broken)
        logger.setLevel(logging.NOTSET)
    assert commits[0].version < commits[1].version
    assert capfd.readouterr().err.count("the log's disk is full") <= 1


# --- callbacks --------------------------------------------------------------------------------------------------------


def test_a_callback_is_told_until_its_handle_is_removed(table: mor.Table) -> None:
    table.upsert(frame(("a", "eu")))  # sweeps
    told: list[mor.observing.Event] = []
    handle = mor.observe(told.append)
    table.upsert(frame(("a", "eu")))
    handle.remove()
    handle.remove()
    table.upsert(frame(("b", "eu")))
    assert names(told) == ["commit"]


def test_a_callback_that_raises_breaks_no_commit_and_is_logged_once(
    table: mor.Table, caplog: pytest.LogCaptureFixture, events: list[mor.observing.Event]
) -> None:
    calls = []

    def broken(event: mor.observing.Event) -> None:
        calls.append(event)
        raise RuntimeError("the metrics server is down")

    table.upsert(frame(("a", "eu")))  # sweeps
    events.clear()
    with mor.observe(broken):
        for key in "abc":
            table.upsert(frame((key, "eu")))
    assert len(rows(table, "id")) == len(calls) == 3
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == "a callback of crdt_mor.observe failed"
    assert record.exc_info is not None
    assert names(events) == ["commit"] * 3, "the other callbacks are told all the same"


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(mor.InvalidInputError, match="got=7"):
        mor.observe(7)  # type: ignore[arg-type]


# --- OpenTelemetry ----------------------------------------------------------------------------------------------------


def metrics(reader: Any) -> dict[str, list[Any]]:
    """The points of each instrument that the reader has."""
    data = reader.get_metrics_data()
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
    return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}


def test_opentelemetry_counts_what_tables_do_until_it_is_removed(table: mor.Table) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    handle = instrument(provider)
    table.upsert(frame(("a", "eu"), ("b", "eu")))
    table.delete(keys=["a"])
    table.maintenance.compact()
    handle.remove()
    table.upsert(frame(("c", "eu")))
    found = metrics(reader)
    by_operation = {point.attributes["operation"]: point.value for point in found["crdt_mor.commits"]}
    assert by_operation == {"UPSERT": 1, "DELETE": 1}
    assert {point.attributes["table"] for point in found["crdt_mor.commits"]} == {"events"}
    assert sum(point.value for point in found["crdt_mor.commit.rows"]) == 2
    assert sum(point.value for point in found["crdt_mor.commit.deletes"]) == 1
    assert sum(point.value for point in found["crdt_mor.commit.bytes"]) > 0
    assert sum(point.count for point in found["crdt_mor.commit.duration"]) == 2
    states = {point.attributes["state"]: point.value for point in found["crdt_mor.plans"]}
    assert states == {"scheduled": 1, "executed": 1, "completed": 1}
    provider.shutdown()


def test_opentelemetry_shows_the_state_of_tables_until_it_is_removed(table: mor.Table, fast_path: Path) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    gone = mor.Table.create(fast_path / "gone", SCHEMA, key="id")
    shutil.rmtree(fast_path / "gone")
    table.upsert(frame(("a", "eu")))
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    handle = instrument(provider, tables=[table, gone])
    found = {
        (name, point.attributes["table"], point.attributes.get("service")): point.value
        for name, points in metrics(reader).items()
        for point in points
    }
    state = table.inspect.metrics()
    assert found["crdt_mor.up", "events", None] == 1
    assert found["crdt_mor.up", "gone", None] == 0
    assert found["crdt_mor.log", "events", None] == state.log_bytes > 0
    assert found["crdt_mor.log_files", "events", None] == state.log_files
    assert found["crdt_mor.versions", "events", None] == state.versions_total
    assert found["crdt_mor.service_due", "events", "compaction"] == 0
    assert {key for key in found if key[1] == "gone"} == {("crdt_mor.up", "gone", None)}
    handle.remove()
    assert not handle.is_active
    assert metrics(reader).get("crdt_mor.up", []) == []
    provider.shutdown()


def test_without_opentelemetry_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    with pytest.raises(mor.errors.UnsupportedFeatureError, match=r"crdt-mor\[otel\]"):
        instrument()


def test_commit_tells_the_way_of_its_write_and_the_reason(simulated: Simulated) -> None:
    table = simulated.create(schema=SCHEMA, key="id")
    told = list[tuple[str, str]]()
    with mor.observe(lambda e: told.append((e.way, e.reason)) if isinstance(e, mor.observing.CommitEvent) else None):
        table.upsert(frame(("a", "eu")))
        table.upsert(frame(("a", "eu")))
        in_a_crowd(table).upsert(frame(("b", "eu")))
        table.upsert(frame(("a", "eu")).append_column("new", [[1]]), schema_mode="merge")
        table.update({"new": 2}, "id = 'a'")
        table.overwrite(frame(("a", "eu")))
    assert told == [
        ("begin", "one event may not follow this version"),  # the first version of a table
        ("alone", "no other writer is in the way"),
        ("post", "others are in the way"),
        ("begin", "the rows add columns"),
        ("alone", "no earlier write is pending"),
        ("begin", "an overwrite stages base files, which needs a begin"),
    ]


ROWS_OF_EVENTS: dict[str, type[mor.observing.Event]] = {
    "commit": mor.observing.CommitEvent,
    "stream_read": mor.observing.StreamEvent,
    "race_lost": mor.observing.RaceLostEvent,
    "rollback": mor.observing.RollbackEvent,
    "plan_scheduled": mor.observing.PlanEvent,
    "plan_part": mor.observing.PartEvent,
    "upkeep": mor.observing.UpkeepEvent,
    "adoption": mor.observing.AdoptionEvent,
    "sweep": mor.observing.SweepEvent,
    "store_wait": mor.observing.WaitEvent,
}


@pytest.mark.parametrize("name", ROWS_OF_EVENTS)
def test_page_of_events_lists_the_facts_of_each(name: str) -> None:
    page = Path("docs/observing.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}`")]
    listed = re.findall(r"`(\w+)`", row.split("|")[4])
    common = {field.name for field in fields(mor.observing.Event)}
    assert listed == [field.name for field in fields(ROWS_OF_EVENTS[name]) if field.name not in common]

"""Metrics of OpenTelemetry: this process's own work, and the state of tables. `pip install 'crdt-mor[otel]'`.

from crdt_mor.telemetry import instrument
instrument()                               # counts into the process's MeterProvider until its handle is removed
instrument(tables=[table])                 # and reads their state at each collection

| instrument                        | kind      | unit | attributes              |
|-----------------------------------|-----------|------|-------------------------|
| crdt_mor.commits                  | counter   | 1    | table, operation        |
| crdt_mor.commit.duration          | histogram | s    | table, operation        |
| crdt_mor.commit.rows              | counter   | 1    | table, operation        |
| crdt_mor.commit.deletes           | counter   | 1    | table, operation        |
| crdt_mor.commit.bytes             | counter   | By   | table, operation        |
| crdt_mor.races_lost               | counter   | 1    | table                   |
| crdt_mor.rollbacks                | counter   | 1    | table, others           |
| crdt_mor.plans                    | counter   | 1    | table, action, state    |
| crdt_mor.adopted_commits          | counter   | 1    | table                   |

Each process exports what it did itself: sums over processes are sums over all writers. `table` is the table's name.

The state is `crdt_mor.up` and a gauge for each number of `crdt_mor.results.Metrics`, such as `crdt_mor.log` in By.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Final

import crdt_mor as mor

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

UNITS: Final = {"seconds": "s", "bytes": "By", "total": "1"}
"""By the last word of a field."""


def instrument(
    meter_provider: MeterProvider | None = None, *, tables: Sequence[mor.Table] = ()
) -> mor.observing.Observation:
    """Count commits, lost races, rollbacks, plans and adoptions of this process, until the handle is removed.

    Args:
        meter_provider: by default the process's, from `set_meter_provider`.
        tables: each collection reads their state by `table.inspect.metrics()`.

    Raises:
        UnsupportedFeatureError: opentelemetry-api is not installed.
    """
    try:
        from opentelemetry import metrics
    except ImportError as error:
        raise mor.errors.UnsupportedFeatureError(
            f"metrics need OpenTelemetry's API: pip install 'crdt-mor[otel]'. missing={error.name}"
        ) from error
    meter = metrics.get_meter("crdt_mor", meter_provider=meter_provider)
    commits = meter.create_counter("crdt_mor.commits", "1", "Writes of this process that became visible.")
    duration = meter.create_histogram("crdt_mor.commit.duration", "s", "From a write's begin to its commit.")
    rows = meter.create_counter("crdt_mor.commit.rows", "1", "Rows that commits wrote.")
    deletes = meter.create_counter("crdt_mor.commit.deletes", "1", "Delete records that commits wrote.")
    size = meter.create_counter("crdt_mor.commit.bytes", "By", "Bytes of the files that commits added.")
    races = meter.create_counter("crdt_mor.races_lost", "1", "Versions that another process published first.")
    rollbacks = meter.create_counter("crdt_mor.rollbacks", "1", "Writes that this process rolled back.")
    plans = meter.create_counter("crdt_mor.plans", "1", "Steps of plans: scheduled, executed, completed, cancelled.")
    adopted = meter.create_counter("crdt_mor.adopted_commits", "1", "Commits of Hudi's that this process adopted.")

    def record(event: mor.observing.Event) -> None:
        of_table = {"table": event.table}
        match event:
            case mor.observing.CommitEvent():
                attributes = of_table | {"operation": event.operation}
                commits.add(1, attributes)
                duration.record(max(0, event.duration_ms) / 1000, attributes)
                rows.add(event.rows, attributes)
                deletes.add(event.deletes, attributes)
                size.add(event.bytes, attributes)
            case mor.observing.RaceLostEvent():
                races.add(1, of_table)
            case mor.observing.RollbackEvent():
                rollbacks.add(1, of_table | {"others": event.others})
            case mor.observing.PlanEvent():
                plans.add(1, of_table | {"action": event.action, "state": event.state})
            case mor.observing.AdoptionEvent():
                adopted.add(event.commits, of_table)

    handle = mor.observe(record)
    if tables:
        _show_state(meter, _States(tables, handle))
    return handle


class _States:
    """Read by the first gauge of a collection."""

    def __init__(self, tables: Sequence[mor.Table], handle: mor.observing.Observation) -> None:
        self._tables = tables
        self._handle = handle
        self.found: list[tuple[str, mor.results.Metrics | None]] = []

    def read(self) -> None:
        tables = self._tables if self._handle.is_active else ()
        self.found = [(table.config.name, _state(table)) for table in tables]


def _state(table: mor.Table) -> mor.results.Metrics | None:
    try:
        return table.inspect.metrics()
    except (mor.CrdtMorError, OSError):
        return None


def _show_state(meter: Meter, states: _States) -> None:
    from opentelemetry.metrics import Observation

    def up(_: CallbackOptions) -> Iterator[Observation]:
        states.read()
        for table, found in states.found:
            yield Observation(int(found is not None), {"table": table})

    def shown(name: str, label: str, _: CallbackOptions) -> Iterator[Observation]:
        for table, found in states.found:
            value = None if found is None else getattr(found, name)
            if label and value is not None:
                yield from (Observation(one, {"table": table, label: key}) for key, one in value.items())
            elif value is not None:
                yield Observation(value, {"table": table})

    meter.create_observable_gauge("crdt_mor.up", [up], "1", "1 if the table could be read.")
    for field in fields(mor.results.Metrics):
        if field.metadata:
            callback: Callable[[CallbackOptions], Iterator[Observation]]
            callback = partial(shown, field.name, field.metadata["label"])
            short, _, last = field.name.rpartition("_")
            name = f"crdt_mor.{short if last in UNITS else field.name}"
            made = meter.create_observable_counter if last == "total" else meter.create_observable_gauge
            made(name, [callback], UNITS.get(last, "1"), field.metadata["help"])

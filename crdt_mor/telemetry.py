"""Metrics of OpenTelemetry: counts and times of the tables of this process. `pip install 'crdt-mor[otel]'`.

from crdt_mor.telemetry import instrument
instrument()                               # counts into the process's MeterProvider until its handle is removed

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
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import crdt_mor as mor

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider


def instrument(meter_provider: MeterProvider | None = None) -> mor.observing.Observation:
    """Count commits, lost races, rollbacks, plans and adoptions of this process, until the handle is removed.

    Args:
        meter_provider: by default the process's, from `set_meter_provider`.

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

    return mor.observe(record)

"""An Airflow DAG: upkeep of all tables below a place, every ten minutes, a task for each table.

A table that fails is tried again after growing pauses, and stops no other.
"""

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task

import crdt_mor as mor

PLACE = os.environ.get("CRDT_MOR_PLACE", "s3://lake")


@dag(schedule="*/10 * * * *", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1)
def upkeep():
    @task
    def tables() -> list[str]:
        return [one.uri for one in mor.list_tables(PLACE).tables if one.state == "ready"]

    @task(retries=3, retry_delay=timedelta(minutes=1), retry_exponential_backoff=True)
    def maintain(uri: str) -> str:
        done = mor.Table(uri).maintenance.maintain()
        if not done.ok:
            raise RuntimeError(str(done))
        return str(done)

    maintain.expand(uri=tables())


upkeep_dag = upkeep()

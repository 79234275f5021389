"""A Dagster job: upkeep of all tables below a place, every ten minutes, a step for each table.

A table that fails is tried again after growing pauses, and stops no other.
"""

import os
import re

import dagster as dg

import crdt_mor as mor

PLACE = os.environ.get("CRDT_MOR_PLACE", "s3://lake")


@dg.op(out=dg.DynamicOut(str))
def tables():
    for one in mor.list_tables(PLACE).tables:
        if one.state == "ready":
            yield dg.DynamicOutput(one.uri, mapping_key=re.sub(r"\W", "_", one.uri))


@dg.op(retry_policy=dg.RetryPolicy(max_retries=3, delay=60, backoff=dg.Backoff.EXPONENTIAL))
def maintain(context: dg.OpExecutionContext, uri: str) -> str:
    done = mor.Table(uri).maintenance.maintain()
    context.log.info("%s: %s", uri, done)
    if not done.ok:
        raise RuntimeError(str(done))
    return str(done)


@dg.job
def upkeep():
    tables().map(maintain)


defs = dg.Definitions(
    jobs=[upkeep], schedules=[dg.ScheduleDefinition(name="upkeep_schedule", job=upkeep, cron_schedule="*/10 * * * *")]
)

"""Updates in place as Spark jobs: tasks compute some file groups each, the driver publishes one commit.

    update(spark, "/lake/orders", {"price": "price * 1.1"}, "country = 'DE'")
    delete_where(spark, "/lake/orders", "closed < '2020-01-01'")

    driver    begin     the write takes its place in the order of writes, and waits for earlier ones
    tasks     execute   read the snapshot before the write, and stage changed rows invisibly
    driver    complete  the receipts of the attempts that Spark counted, one commit; or, if the job fails, nothing

The driver keeps the write alive. Earlier writes are final when the tasks begin, so a single round of tasks suffices,
whatever others commit meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

import crdt_mor as mor
from crdt_mor.readers.spark.options import Payloads
from crdt_mor.readers.spark.tasks import in_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT = timedelta(seconds=60)
"""The default wait for writes that began earlier."""


def update(
    spark: SparkSession,
    path: str,
    set: Mapping[str, object],
    where: pl.Expr | str | None = None,
    *,
    wait: timedelta = WAIT,
    token: tuple[str, int] | None = None,
    commit_info: Mapping[str, str] | None = None,
    payloads: Payloads = (),
    storage_options: Mapping[str, Any] | None = None,
) -> mor.Commit:
    """Change columns of the rows that fulfil `where`, in place. See `Table.update`.

    Args:
        set: new values by column: SQL texts, polars expressions or values, but no Spark columns.
        where: SQL text or polars expression; None for all rows.
        wait: the wait for writes that began earlier.
    """
    table = mor.Table(path, payloads=payloads, storage_options=storage_options)
    run = partial(_execute, spark)
    return table.update(set, where, execute_parts=run, wait=wait, token=token, commit_info=commit_info)


def delete_where(
    spark: SparkSession,
    path: str,
    where: pl.Expr | str,
    *,
    plain: bool = False,
    wait: timedelta = WAIT,
    token: tuple[str, int] | None = None,
    commit_info: Mapping[str, str] | None = None,
    payloads: Payloads = (),
    storage_options: Mapping[str, Any] | None = None,
) -> mor.Commit:
    """Delete the rows that fulfil `where` among all earlier written rows. See `Table.delete`."""
    table = mor.Table(path, payloads=payloads, storage_options=storage_options)
    run = partial(_execute, spark)
    return table.delete(where=where, execute_parts=run, plain=plain, wait=wait, token=token, commit_info=commit_info)


def _execute(spark: SparkSession, parts: Sequence[mor.parts.UpdatePart]) -> list[mor.parts.PartDone | mor.CrdtMorError]:
    return in_tasks(spark, parts, mor.parts.UpdatePart.execute, is_final)


def is_final(error: mor.CrdtMorError) -> bool:
    """Return True for any error but a store's: no retry of the part avoids it."""
    return not isinstance(error, mor.StorageUnavailableError | mor.errors.CommitUnknownError)

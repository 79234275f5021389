"""Read and write tables with Ray Data: tasks read file slices and stage files, the driver makes one commit.

dataset = read_table("s3://bucket/events", columns=["id", "views"], filter="day = DATE '2026-01-31'")
commit = write_table(dataset.map_batches(scored), "s3://bucket/events", token=("scores", 17))
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import pyarrow as pa
import ray.data
from ray.data.block import Block, BlockAccessor, BlockMetadata
from ray.data.datasource import Datasink, Datasource, ReadTask, WriteResult

import crdt_mor as mor

if TYPE_CHECKING:
    from ray.data._internal.execution.interfaces import TaskContext


def read_table(
    table: mor.Table | str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    filter: pl.Expr | str | None = None,
    as_of: mor.AsOf | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ray.data.Dataset:
    """Return one snapshot of a table as a dataset. Columns that Ray selects later reach the files, too.

    Args:
        table: a `Table` or its address.
        columns, filter, as_of: as for `Table.scan`.
        storage_options: options of the object store, as for `Table`.
    """
    scan = _opened(table, storage_options).scan(columns=columns, filter=filter, as_of=as_of)
    return ray.data.read_datasource(_ScanSource(scan))


def write_table(
    dataset: ray.data.Dataset,
    table: mor.Table | str | os.PathLike[str],
    *,
    operation: Literal["append", "upsert", "delete", "overwrite"] = "upsert",
    schema_mode: Literal["strict", "merge"] = "strict",
    token: tuple[str, int] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> mor.Commit:
    """Write a dataset as one commit, and return it. Tasks that Ray repeats count once.

    Args:
        table: a `Table` or its address.
        operation, schema_mode: as for `Table.jobs.plan`.
        token: (application, number), as for `Table.upsert`. A repeated run writes nothing and returns the first commit.
        storage_options: options of the object store, as for `Table`.

    Raises:
        InvalidInputError: the dataset is empty, and its columns are unknown.
    """
    opened = _opened(table, storage_options)
    schema = dataset.schema()
    if schema is None or not schema.names:
        raise mor.InvalidInputError("the dataset is empty and lacks columns: skip the write")
    columns = pa.schema(list(zip(schema.names, schema.types, strict=True)))
    job = opened.jobs.plan(operation, columns, schema_mode=schema_mode, token=token)
    sink = _TableSink(job, columns)
    try:
        if not job.job.repeated:
            dataset.write_datasink(sink)
        return replace(opened.jobs.complete(job, sink.receipts), repeated=job.job.repeated)
    except mor.errors.WriterExpiredError:
        if token is None:
            raise
        # Another run with this token was done meanwhile, and its commit is the one.
        return opened.jobs.complete(opened.jobs.plan(operation, columns, token=token), [])
    except BaseException:
        opened.jobs.abandon(job)
        raise


def _opened(table: mor.Table | str | os.PathLike[str], storage_options: Mapping[str, Any] | None) -> mor.Table:
    return table if isinstance(table, mor.Table) else mor.Table(table, storage_options=storage_options)


class _ScanSource(Datasource):
    def __init__(self, scan: mor.Scan) -> None:
        super().__init__()
        self._scan = scan
        self._projection_map = None

    def get_name(self) -> str:
        return "crdt_mor"

    def supports_projection_pushdown(self) -> bool:
        return True

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(
        self,
        parallelism: int,  # noqa: ARG002  the files decide
        per_task_row_limit: int | None = None,
        data_context: Any = None,  # noqa: ARG002
    ) -> list[ReadTask]:
        columns = self._get_data_columns()
        if columns == []:  # a count: Ray loses the number of rows of a block without columns
            columns = self._scan.schema.names[:1]
        scan = self._scan.narrowed(columns=columns)
        unknown = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)
        return [ReadTask(partial(_blocks, part), unknown, scan.schema, per_task_row_limit) for part in scan.parts()]


def _blocks(part: mor.Scan) -> Iterator[Block]:
    return (pa.Table.from_batches([batch]) for batch in part.to_reader())


class _TableSink(Datasink[mor.parts.Receipt]):
    def __init__(self, job: mor.parts.WriteJob, columns: pa.Schema) -> None:
        self._job = job
        self._columns = columns
        self.receipts: list[mor.parts.Receipt] = []

    def get_name(self) -> str:
        return "crdt_mor"

    def write(self, blocks: Iterable[Block], ctx: TaskContext) -> mor.parts.Receipt:
        """Stage a task's rows. Called in a task."""
        rows = pa.RecordBatchReader.from_batches(self._columns, self._batches(blocks))
        return self._job.stage(rows, task=ctx.task_idx)

    def _batches(self, blocks: Iterable[Block]) -> Iterator[pa.RecordBatch]:
        for block in blocks:
            rows = BlockAccessor.for_block(block).to_arrow()
            if rows.num_rows:  # empty blocks may lack columns
                yield from rows.select(self._columns.names).cast(self._columns).to_batches()

    def on_write_complete(self, write_result: WriteResult[mor.parts.Receipt]) -> None:
        """Keep the receipt of each task. Called on the driver."""
        self.receipts = list(write_result.write_returns)

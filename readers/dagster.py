"""An IO manager of Dagster: each asset is a table below a folder, and each materialization a commit.

    defs = Definitions(assets=[orders], resources={"io_manager": TablesIOManager(folder="s3://bucket/lake")})

    @asset(metadata={"key": "id"})
    def orders() -> pl.DataFrame: ...

    @asset
    def totals(orders: pl.LazyFrame) -> None: ...

Runs of one asset may overlap. A step that Dagster retries is not committed twice.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
from dagster import ConfigurableIOManager, DagsterRun, InputContext, OutputContext
from pydantic import Field

import crdt_mor as mor
from crdt_mor.readers.opening import opened_or_created
from crdt_mor.readers.polars import scan_table

IS_RETRY = ("dagster/is_resume_retry", "dagster/is_asset_resume_retry", "dagster/retry_number")
"""Tags of runs that repeat failed steps of their parent. Other re-executions write anew."""


class TablesIOManager(ConfigurableIOManager):
    """Upsert the rows of an asset into its table, and read tables as inputs.

    An asset's metadata may name `key`, for a table that does not exist yet, `operation` ("upsert", "append" or
    "overwrite") and `partition_column`, with the asset's partition keys. An asset without rows (None) writes nothing.
    """

    folder: str = Field(description="Address of the folder. An asset's table is `folder/key/of/asset`.")
    storage_options: dict[str, Any] = Field(default={}, description="Options of the object store, as for `Table`.")

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        if obj is None:
            return
        metadata = context.definition_metadata
        hint = 'set @asset(metadata={"key": "id"})'
        table = opened_or_created(self._address(context), obj, metadata.get("key"), self.storage_options or None, hint)
        operation = metadata.get("operation", "upsert")
        if operation not in ("upsert", "append", "overwrite"):
            raise mor.InvalidInputError(
                f'set the metadata "operation" to "upsert", "append" or "overwrite". operation={operation!r}'
            )
        if operation == "overwrite" and context.has_partition_key:
            raise mor.InvalidInputError(
                f'an overwrite would replace all partitions: use "upsert". partition={context.partition_key}'
            )
        commit = getattr(table, operation)(obj, token=_token(context))
        context.add_output_metadata({"version": commit.version, "rows": commit.rows, "repeated": commit.repeated})

    def load_input(self, context: InputContext) -> Any:
        table = mor.Table(self._address(context), storage_options=self.storage_options or None)
        condition = _partitions(context) if context.has_asset_partitions else None
        scan = table.scan(filter=condition)
        match context.dagster_type.typing_type:
            case pl.LazyFrame:
                lazy = scan_table(table)
                return lazy if condition is None else lazy.filter(condition)
            case pl.DataFrame:
                return scan.to_polars()
            case pa.Table:
                return scan.to_arrow()
            case kind if kind.__module__.partition(".")[0] == "pandas":
                return scan.to_pandas()
        return scan

    def _address(self, context: InputContext | OutputContext) -> str:
        return "/".join((self.folder.rstrip("/"), *context.asset_key.path))


def _token(context: OutputContext) -> tuple[str, int]:
    """Return the token of a step's output. A retry has the token of the first run."""
    step = context.step_context
    run: DagsterRun = step.dagster_run
    while any(tag in run.tags for tag in IS_RETRY):
        parent = step.instance.get_run_by_id(run.tags.get("dagster/parent_run_id", ""))
        if parent is None:
            break
        run = parent
    partition = f" {context.partition_key}" if context.has_partition_key else ""
    return f"dagster {run.run_id} {context.asset_key.to_user_string()}{partition}", 1


def _partitions(context: InputContext) -> pl.Expr:
    """Return the condition for the partitions of an input."""
    upstream = context.upstream_output
    column = upstream.definition_metadata.get("partition_column") if upstream is not None else None
    if not isinstance(column, str):
        raise mor.InvalidInputError(
            f'set the metadata "partition_column" of the partitioned asset. asset={context.asset_key.to_user_string()}'
        )
    return pl.col(column).cast(pl.String).is_in([*context.asset_partition_keys])

"""A destination of dlt: each resource becomes a table below a folder, and each load file a commit.

    pipeline = dlt.pipeline("shop", destination=tables_in("s3://bucket/lake"))
    pipeline.run(orders())                  # @dlt.resource(primary_key="id", write_disposition="merge")

Any number of pipelines may load into one table at once. A load file that dlt repeats is not committed twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dlt
import pyarrow as pa
from dlt.common.destination.exceptions import DestinationTerminalException

import crdt_mor as mor
from crdt_mor.readers.opening import opened_or_created

if TYPE_CHECKING:
    from dlt.common.destination import AnyDestination
    from dlt.common.schema import TTableSchema


def tables_in(folder: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> AnyDestination:
    """Return a destination that upserts each resource into a table of its name, by key.

    A missing table is created with the resource's `primary_key`. New columns are added. dlt's own columns are left out.

    Args:
        folder: the address of the folder.
        storage_options: options of the object store, as for `Table`.
    """
    address = os.fspath(folder).rstrip("/")

    def load(path: str, table: TTableSchema) -> None:
        try:
            _load(path, table, f"{address}/{table['name']}", storage_options)
        except ValueError as error:
            raise DestinationTerminalException(str(error)) from error  # dlt does not try again

    return dlt.destination(load, batch_size=0, loader_file_format="parquet", name="crdt_mor")()


def _load(path: str, hints: TTableSchema, address: str, storage_options: Mapping[str, Any] | None) -> None:
    _require_supported(hints)
    file = mor.read_files(path)
    schema = pa.schema([column for column in file.schema if column.name in hints["columns"]])
    rows = pa.RecordBatchReader.from_batches(schema, (batch.select(schema.names) for batch in file.to_reader()))
    key = _hinted(hints, "primary_key")
    table = opened_or_created(address, schema, key, storage_options, "set primary_key in @dlt.resource")
    table.upsert(rows, schema_mode="merge", token=_token(path))


def _token(path: str) -> tuple[str, int]:
    """Return the token of a load file, `<load id>/started_jobs/<table>.<file id>.<attempt>.parquet`."""
    *_, package, _, name = re.split(r"[/\\]", path)
    return f"dlt {package} {name.split('.')[-3]}", 1


def _hinted(hints: TTableSchema, hint: str) -> list[str]:
    return [name for name, column in hints["columns"].items() if column.get(hint)]


def _require_supported(hints: TTableSchema) -> None:
    name = hints["name"]
    if hints.get("write_disposition") == "replace":
        raise mor.InvalidInputError(
            'write_disposition="replace" is not supported: empty the table with Table.truncate(), then use "merge". '
            f"table={name}"
        )
    if _hinted(hints, "hard_delete"):
        raise mor.InvalidInputError(
            "the hint hard_delete is not supported: load the column without the hint, then delete the rows with "
            f"Table.delete(where=...). table={name}"
        )

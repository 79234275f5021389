"""`crdt-mor create` and `create-from`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.data import Reading, check_inputs, read_schema
from crdt_mor.cli.options import (
    SETTINGS,
    ClusterOrder,
    Delimiter,
    Encoding,
    Info,
    Message,
    Rename,
    Settings,
    Uri,
    commit_info,
)
from crdt_mor.ground.late_imports import pa
from crdt_mor.model.policies import words_of_bytes

Key = Annotated[str, typer.Option(metavar="A,B", help="Columns of the record key.", show_default=False)]


class Codec(StrEnum):
    """The compression of base files."""

    zstd = "zstd"
    lz4 = "lz4"


Compression = Annotated[
    Codec, typer.Option(help="Of base files: lz4 reads in about half the time and needs half as much space again.")
]


def create(
    uri: Uri,
    key: Key,
    schema: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    like: Annotated[str | None, typer.Option(metavar="FILE|TABLE")] = None,
    delimiter: Delimiter = ",",
    encoding: Encoding = "utf-8",
    settings: Settings = SETTINGS,
    cluster_by: Annotated[str | None, typer.Option(metavar="A,B")] = None,
    cluster_order: ClusterOrder = ClusterOrder.linear,
    compression: Compression = Codec.zstd,
    exist_ok: bool = False,
) -> None:
    """Create an empty table with the columns of a file.

    Without --ordering or --merge, the latest commit's row wins.

    Example: crdt-mor create events --like events.csv --key id

    Args:
        schema: A .json with {"column": "type"}, the JSON output of schema, or a data file with the columns.
        like: A Parquet, Arrow, CSV or JSON lines file, or a table, with the columns; - is stdin.
        cluster_by: Compaction sorts base files by these columns, not by key.
        cluster_order: z-order weighs up to four columns equally.
        exist_ok: Succeed if the same table exists already.
    """
    columns = _columns(schema, like, Reading(delimiter=delimiter, encoding=encoding))
    table = mor.Table.create(
        uri, columns, key=inputs.split_names(key) or [], **settings.arguments,
        cluster_by=inputs.split_names(cluster_by) or (), cluster_order=cluster_order.value,
        compression=compression.value, exist_ok=exist_ok, storage_options=inputs.storage(),
    )  # fmt: skip
    made = {"uri": table.uri, "version": table.version, "merge": table.config.merge}
    what = f"{len(table.schema)} columns, key {key}, merge {table.config.merge}, {settings.buckets} buckets"
    render.result(made, f"created {uri}: {what}")


def create_from(
    uri: Uri,
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE", show_default=False)],
    key: Key,
    schema: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    delimiter: Delimiter = ",",
    encoding: Encoding = "utf-8",
    settings: Settings = SETTINGS,
    compression: Compression = Codec.zstd,
    rename: Rename = None,
    message: Message = None,
    info: Info = None,
) -> None:
    """Create a table with all rows of files or of another table, atomically.

    Example: crdt-mor create-from events "landing/*.parquet" --key id

    Args:
        sources: Files or a pattern; a folder of Parquet, with columns from paths like day=2026-01-31; the folder of a
            Delta Lake or Iceberg table.
        schema: Types of the columns: a .json with {"column": "type"}, or a data file.
    """
    how = Reading(delimiter=delimiter, encoding=encoding).csv
    source: object = sources if len(sources) > 1 else sources[0]
    if how != Reading().csv:
        source = mor.read_files(
            sources, delimiter=how.delimiter, encoding=how.encoding, storage_options=inputs.storage()
        )
    with render.bar("reading") as move:

        def show(now: mor.results.LoadProgress) -> None:
            of_all = "" if now.total is None else f" of {now.total:,}"
            doing = "reading" if now.phase == "read" else "writing"
            move(description=doing, total=now.total, completed=now.rows, said=f"{now.rows:,}{of_all} rows")

        table = mor.Table.create_from(
            uri, source, key=inputs.split_names(key) or [],
            schema=None if schema is None else read_schema(schema), rename=inputs.renames(rename), **settings.arguments,
            compression=compression.value, commit_info=commit_info(message, info), on_progress=show,
            storage_options=inputs.storage(),
        )  # fmt: skip
    files = table.inspect.files()
    rows, size = sum(files["rows"].to_pylist()), sum(files["bytes"].to_pylist())
    made = {"uri": table.uri, "version": table.version, "merge": table.config.merge}
    what = f"{rows:,} rows in {len(files):,} files, {words_of_bytes(size)}"
    text = f"created {uri}: {what}, {len(table.schema)} columns, key {key}, merge {table.config.merge}"
    render.result(made | {"rows": rows, "files": len(files), "bytes": size}, text)


def _columns(schema: Path | None, like: str | None, how: Reading) -> pa.Schema:
    from crdt_mor.api.files import is_address

    if bool(schema) == bool(like):
        raise typer.BadParameter("pass exactly one of --schema FILE and --like FILE")
    if like is not None and (is_address(like) or Path(like).is_dir()):
        return inputs.opened(like).schema
    source = Path(like) if like is not None else schema
    assert source is not None
    check_inputs([source])
    return read_schema(source, how, of_rows=like is not None)

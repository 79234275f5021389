"""Which file is to blame when rows cannot be read: one that is gone, or one that is damaged.

The kernel knows bytes, not files: what it trips over is an error of polars without a name. Only then are the files of
the slice tried one by one, so that looking for damage costs nothing where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl

from crdt_mor.errors import FormatError, SnapshotExpiredError, UnsupportedFeatureError
from crdt_mor.format.base_file import refuse_encrypted
from crdt_mor.format.log import BlockKind, read_log
from crdt_mor.ground.parquet import ParquetSource, is_of_system, not_read
from crdt_mor.model.config import TableConfig
from crdt_mor.model.names import is_own_token
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.store.absences import surely
from crdt_mor.store.protocol import Store

POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What polars raises of bytes that it cannot read."""


@contextmanager
def naming_damage(store: Store, slice_: FileSlice) -> Iterator[None]:
    """Errors of polars and Arrow inside the block become a `FormatError` that names the file, if one is damaged.

    Where a file is gone by now, what polars, Arrow or the system said of it becomes a `SnapshotExpiredError`; where the
    system refused to read it, a `StorageUnavailableError`.
    """
    try:
        yield
    except (OSError, *POLARS_ERRORS) as error:
        gone = gone_file(store, slice_)
        if gone is not None:
            raise SnapshotExpiredError.of_file(gone.path) from error
        if is_of_system(error):
            raise not_read(error, ", ".join(file.path for file in slice_.files)) from error
        source, damaged = _damaged_file(store, slice_)
        if damaged is None and isinstance(error, pl.exceptions.SchemaError):
            base = slice_.base.path if slice_.base is not None else ""
            raise UnsupportedFeatureError(
                "a file has a column in a type that this release does not turn into the table's: let Hudi rewrite it, "
                f"by a compaction or clustering. {error} group={slice_.group} base={base}"
            ) from error
        if damaged is None and isinstance(error, OSError):  # polars reads what Arrow cannot
            raise FormatError(
                f"damaged Parquet, crdt-mor verify says which file to restore from a backup: {error}. "
                f"group={slice_.group} files={[file.path for file in slice_.files]}"
            ) from error
        if damaged is None:
            raise
        refuse_encrypted(error, damaged, source)
        raise FormatError(f"damaged Parquet, restore the file from a backup: {error}. {damaged}") from error


def gone_file(store: Store, slice_: FileSlice) -> DataFile | None:
    """The first file of a slice that is not there."""
    return next((file for file in slice_.files if surely(store, file.path, store.stat) is None), None)


def _damaged_file(store: Store, slice_: FileSlice) -> tuple[ParquetSource | None, str | None]:
    """The first Parquet file of the slice that polars cannot read, if it is there at all, and what messages call it."""
    if slice_.base is not None and not _can_read(base := store.parquet(slice_.base.path)):
        return base, f"file={slice_.base.path}"
    for log in slice_.logs:
        for block in read_log(store.read(log.path) or b"", log.path):
            if block.kind is BlockKind.PARQUET and not _can_read(
                source := ParquetSource.in_memory(bytes(block.content))
            ):
                return source, f"file={log.path} offset={block.offset}"
    return None, None


def _can_read(source: ParquetSource | None) -> bool:
    if source is None:
        return False
    try:
        source.scan().collect()
    except (OSError, *POLARS_ERRORS) as error:
        if is_of_system(error):
            raise not_read(error, source.name) from error
        return False
    return True


def is_ours(file: DataFile, config: TableConfig) -> bool:
    """Whether we wrote this file."""
    return config.ours and is_own_token(file.name.token)


def check_length(data: memoryview, log: DataFile, config: TableConfig) -> None:
    """A log of ours is as long as its commit says: one that is cut between two blocks looks whole, with fewer rows."""
    if is_ours(log, config) and len(data) != log.size:
        raise FormatError(
            "a log file is not as long as its commit says: restore it from a backup. "
            f"file={log.path} size={log.size} offset={len(data)}"
        )

"""Name the missing or damaged file when a read fails.

Errors of polars name no file, so after an error each file of the slice is tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

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
from crdt_mor.store.protocol import Store, forget

POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


@contextmanager
def naming_damage(store: Store, slice_: FileSlice) -> Iterator[None]:
    """Convert errors of polars, Arrow and the system inside the block to errors that name the file.

    The next read asks the store for a damaged file again, because another process may repair the file.

    Raises:
        SnapshotExpiredError: a file is gone.
        StorageUnavailableError: the system failed.
        FormatError: a file is damaged.
    """
    try:
        try:
            yield
        except (OSError, *POLARS_ERRORS) as error:
            _raise_named(error, store, slice_)
    except FormatError:
        for file in slice_.files:
            forget(store, file.path)
        raise


def _raise_named(error: Exception, store: Store, slice_: FileSlice) -> NoReturn:
    gone = gone_file(store, slice_)
    if gone is not None:
        raise SnapshotExpiredError.of_file(gone.path) from error
    if is_of_system(error):
        raise not_read(error, ", ".join(file.path for file in slice_.files)) from error
    source, damaged = _damaged_file(store, slice_)
    if damaged is None and isinstance(error, pl.exceptions.SchemaError):
        base = slice_.base.path if slice_.base is not None else ""
        raise UnsupportedFeatureError(
            "this release cannot convert a file's column type to the table's: rewrite the file with Hudi, "
            f"by a compaction or clustering. {error} group={slice_.group} base={base}"
        ) from error
    if damaged is None and isinstance(error, OSError):  # polars reads the files, Arrow does not
        raise FormatError(
            f"damaged Parquet: run crdt-mor verify to find the file, then restore it from a backup. {error}. "
            f"group={slice_.group} files={[file.path for file in slice_.files]}"
        ) from error
    if damaged is None:
        raise error
    refuse_encrypted(error, damaged, source)
    raise FormatError(f"damaged Parquet, restore the file from a backup: {error}. {damaged}") from error


def gone_file(store: Store, slice_: FileSlice) -> DataFile | None:
    return next((file for file in slice_.files if surely(store, file.path, store.stat) is None), None)


def _damaged_file(store: Store, slice_: FileSlice) -> tuple[ParquetSource | None, str | None]:
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
    return config.ours and is_own_token(file.name.token)


def check_length(data: memoryview, log: DataFile, config: TableConfig) -> None:
    """Raise for a log file cut between two blocks, which would lose rows silently."""
    if is_ours(log, config) and len(data) != log.size:
        raise FormatError(
            "a log file is shorter or longer than its commit says: restore it from a backup. "
            f"file={log.path} size={log.size} offset={len(data)}"
        )

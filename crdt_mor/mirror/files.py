"""The files of a mirror: merged rows as Parquet below `.mirror/`.

    .mirror/<partition>/m-<file id>_<version>_n<nonce>.parquet

Hudi's Spark skips the folder. hudi-rs lists it, and parses each name as `<file id>_<token>_<instant>`: it fails on
another form, and ignores the file of an instant after all commits, such as `n…`. The nonce keeps the files of two
processes apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor.format.base_file import CALENDAR
from crdt_mor.log.steps import Nonce, Put, Steps, put_surely
from crdt_mor.mirror.slices import SliceKey
from crdt_mor.model.timeline_parts import FileGroup

FOLDER: Final = ".mirror"

_ROW_GROUP_ROWS: Final = 131_072


@dataclass(frozen=True)
class RowFile:
    """A Parquet file of merged rows."""

    path: str
    size: int
    rows: int
    footer: pq.FileMetaData


Sizes = Mapping[str, int | None]
"""Paths of files, and their sizes if the metadata states them."""


class Blob(NamedTuple):
    """The place of a deletion vector in a file."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file of a mirror's head. rows: of a file of dead rows, their number."""

    group: FileGroup
    kind: Literal["base", "rows", "deletes"]
    path: str
    size: int | None
    rows: int
    blob: Blob | None = None


@dataclass(frozen=True, slots=True)
class DeadFile:
    """A file with the positions of a slice's dead rows, or of several slices' if it has blobs."""

    path: str
    size: int
    blob: Blob | None = None


def file_path(key: SliceKey, version: int, nonce: str, suffix: str = ".parquet") -> str:
    folder = f"{FOLDER}/{key.partition}" if key.partition else FOLDER
    return f"{folder}/m-{key.file_id}_{version}_n{nonce}{suffix}"


def put_rows(key: SliceKey, version: int, rows: pa.Table) -> Steps[RowFile]:
    """Put a slice's merged rows as a file of their own."""
    path = file_path(key, version, (yield Nonce()))
    data = encoded(rows)
    # The metadata that names the file makes its name durable.
    yield from put_surely(Put(path, data, durable="content"))
    return RowFile(path, len(data), rows.num_rows, pq.read_metadata(pa.BufferReader(data)))


def encoded(rows: pa.Table) -> bytes:
    """Encode rows of stored types as Parquet, with field ids from the schema."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows.replace_schema_metadata(CALENDAR), sink, compression="zstd", store_schema=False, write_page_checksum=True,
        version="2.6", row_group_size=_ROW_GROUP_ROWS,
    )  # fmt: skip
    data: bytes = sink.getvalue().to_pybytes()
    return data

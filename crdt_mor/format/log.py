"""Log files: a sequence of blocks, each whole or an error.

    "#HUDI#" | size 8 | version 4 | kind 4 | headers | content length 8 | content | footers | bytes before this field 8

All numbers are big-endian. `size` counts the bytes after it, so a block has `size` + 14 bytes, and its last field is
`size` + 6. Headers are int32 ordinals with texts, among them INSTANT_TIME and the rows' Avro schema.

Hudi's readers drop blocks that they do not understand, and a good block before garbage. Here damage is a `FormatError`
with path and offset. A block's content is a view into the file, not a copy.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import polars as pl
import pyarrow as pa

from crdt_mor.errors import FormatError, InvalidInputError, UnsupportedFeatureError, UnsupportedVersionError
from crdt_mor.format import avro_rows, deletes
from crdt_mor.model.instant import InstantTime

MAGIC: Final = b"#HUDI#"
FORMAT_VERSION: Final = 1
BLOCK_BYTES_MAX: Final = 2**31 - 1
"""Java casts a block's size to 32 bits."""

_HEAD: Final = struct.Struct(">6sqii")
_AFTER_SIZE: Final = len(MAGIC) + 8
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">ii")
_LONG: Final = struct.Struct(">q")
_ROLLBACK_COMMAND: Final = "0"
_ENCRYPTED: Final = b"PARE"
"""The end of a Parquet file with an encrypted footer."""
_NULLS: Final = ',"crdt_mor.nulls":'
"""Before the end of a row block's Avro schema: the columns in which a null is set, where others leave the value."""
_ORDERED: Final = ',"crdt_mor.ordered":true}'
"""The end of a delete block's Avro schema if all its ordering values count."""


class BlockKind(IntEnum):
    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO = 3
    HFILE = 4
    PARQUET = 5
    CDC = 6


class HeaderKey(IntEnum):
    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


@dataclass(frozen=True, slots=True)
class LogBlock:
    """A block of rows or deletes. `content` is a view into the file's bytes."""

    kind: BlockKind
    instant: InstantTime
    schema: str
    partial: bool
    headers: Mapping[int, str]
    content: memoryview
    offset: int
    path: str
    stands_for: tuple[InstantTime, ...] = ()
    """The instants with blocks that this block of Hudi's log compaction replaces."""

    @property
    def ordered(self) -> bool:
        """True if every ordering value counts, also the int 0. In Hudi's blocks, 0 means none."""
        return self.schema.endswith(_ORDERED)

    @property
    def nulls(self) -> tuple[str, ...]:
        """The columns in which a null is set, where others leave the value."""
        _, mark, names = self.schema.rpartition(_NULLS)
        try:
            found = json.loads(names.removesuffix("}")) if mark else []
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise _damaged(self.path, self.offset, f"columns with set nulls are not a list of names, found={names:.80}")
        return tuple(found)

    @property
    def record(self) -> str:
        """The Avro schema without the marks of `ordered` and `nulls`."""
        head, mark, _ = self.schema.rpartition(_ORDERED if self.ordered else _NULLS)
        return head + "}" if mark else self.schema


# ---- write ---------------------------------------------------------------------------------------------------------


Buffers = list[bytes | memoryview]
"""A block in several buffers, so that the large content is not copied after its head."""


def parquet_block(
    instant: InstantTime,
    schema_json: str,
    parquet: bytes | memoryview,
    partial: bool = False,
    nulls: Sequence[str] = (),
) -> Buffers:
    """Encode a block of rows.

    `parquet` is a whole file with the meta columns; `partial` if columns are missing. `schema_json` is the Avro schema
    of its columns, the meta columns first. `nulls`: the columns in which a null is set, where others leave the value.
    """
    if nulls:
        schema_json = f"{schema_json.rstrip().removesuffix('}')}{_NULLS}{json.dumps(nulls)}}}"
    headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema_json}
    if partial:
        headers[HeaderKey.IS_PARTIAL] = "true"
    return _block(BlockKind.PARQUET, headers, parquet)


def delete_block(
    instant: InstantTime,
    schema_json: str,
    record_keys: Sequence[str] | pa.Array,
    partition: str,
    ordering: pa.Array | None,
) -> Buffers:
    """Encode a block of deletes in one partition: plain, or with an ordering value each."""
    if ordering is not None and not pa.types.is_null(ordering.type) and not ordering.null_count:
        schema_json = schema_json.rstrip().removesuffix("}") + _ORDERED
    headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema_json}
    return _block(BlockKind.DELETE, headers, deletes.encode(record_keys, partition, ordering))


def _block(kind: BlockKind, headers: Mapping[HeaderKey, str], content: bytes | memoryview) -> Buffers:
    assert headers[HeaderKey.INSTANT_TIME], "Hudi's readers drop a block without its instant"
    assert headers[HeaderKey.SCHEMA], "Hudi cannot read a block without its schema"
    entries = [_COUNT.pack(len(headers))]
    for key, value in headers.items():
        text = value.encode()
        entries.append(_ENTRY.pack(key, len(text)) + text)
    head = b"".join(entries)
    # version, kind | headers | content length | content | no footers | last field
    size = 8 + len(head) + 8 + len(content) + 4 + 8
    if size > BLOCK_BYTES_MAX:
        raise InvalidInputError(
            "a log block cannot hold this much: write fewer rows at a time, or have more buckets. "
            f"bytes={size} bytes_max={BLOCK_BYTES_MAX}"
        )
    before = _HEAD.pack(MAGIC, size, FORMAT_VERSION, kind) + head + _LONG.pack(len(content))
    return [before, content, _COUNT.pack(0) + _LONG.pack(size + len(MAGIC))]


# ---- read ----------------------------------------------------------------------------------------------------------


def read_log(data: bytes | memoryview, path: str) -> list[LogBlock]:
    """Return the blocks of a log file that count, in file order."""
    blocks = read_blocks(data, path)
    return [block for block, stands in zip(blocks, standing(blocks), strict=True) if stands]


def read_blocks(data: bytes | memoryview, path: str) -> list[LogBlock]:
    """Return all blocks of a log file, in file order; damage raises `FormatError`."""
    view = memoryview(data)
    blocks: list[LogBlock] = []
    offset = 0
    while offset < len(view):
        block, offset = _read_block(view, offset, path)
        blocks.append(block)
    return blocks


def standing(blocks: Sequence[LogBlock]) -> list[bool]:
    """Return for each block whether it counts. Blocks are in file order.

    A rollback command of Hudi before version 8 cancels the earlier blocks of its target, also in an earlier file.
    """
    stands: list[bool] = []
    undone: set[str] = set()
    for block in reversed(blocks):
        if block.kind is BlockKind.COMMAND:
            undone.add(_rollback_target(block))
        stands.append(block.kind is not BlockKind.COMMAND and block.instant not in undone)
    return stands[::-1]


def _read_block(view: memoryview, offset: int, path: str) -> tuple[LogBlock, int]:
    end = _block_end(view, offset, path)
    _, _, version, number = _HEAD.unpack_from(view, offset)
    if version != FORMAT_VERSION:
        raise UnsupportedVersionError(
            "a log block of another version of the format: upgrade crdt_mor, or rewrite the file with Hudi. "
            f"path={path} offset={offset} found={version} supported={FORMAT_VERSION}"
        )
    body = view[offset : end - _LONG.size]
    try:
        headers, position = _read_headers(body, _HEAD.size)
        (length,) = _LONG.unpack_from(body, position)
        position += _LONG.size
        if not 0 <= length <= len(body) - position:
            raise ValueError(f"content of {length} bytes, {len(body) - position} left")
        content = body[position : position + length]
        _, position = _read_headers(body, position + length)
    except (struct.error, ValueError) as error:
        raise _damaged(path, offset, f"headers or content exceed the block: {error}") from error
    if position != len(body):
        raise _damaged(path, offset, f"{len(body) - position} bytes between the footers and the block's end")
    return _typed(number, headers, content, offset, path), end


def _block_end(view: memoryview, offset: int, path: str) -> int:
    left = len(view) - offset
    magic = bytes(view[offset : offset + len(MAGIC)])
    if magic != MAGIC:
        what = "cut short" if MAGIC.startswith(magic) else f"no block begins here, found={magic!r}"
        raise _damaged(path, offset, what)
    if left < _HEAD.size:
        raise _damaged(path, offset, f"cut short in the block's head, bytes_left={left}")
    (size,) = _LONG.unpack_from(view, offset + len(MAGIC))
    least = _HEAD.size - _AFTER_SIZE + 4 + 8 + 4 + 8
    if size < least:
        raise _damaged(path, offset, f"impossible size, size={size}")
    if size > left - _AFTER_SIZE:
        raise _damaged(path, offset, f"cut short, size={size} bytes_left={left - _AFTER_SIZE}")
    end = offset + _AFTER_SIZE + int(size)
    (before,) = _LONG.unpack_from(view, end - _LONG.size)
    if before != size + len(MAGIC):
        raise _damaged(path, offset, f"the two sizes disagree, size={size} size_at_end={before}")
    return end


def _read_headers(body: memoryview, position: int) -> tuple[dict[int, str], int]:
    (count,) = _COUNT.unpack_from(body, position)
    position += _COUNT.size
    if count < 0:
        raise ValueError(f"{count} headers")
    headers: dict[int, str] = {}
    for _ in range(count):
        key, length = _ENTRY.unpack_from(body, position)
        position += _ENTRY.size
        if not 0 <= length <= len(body) - position:
            raise ValueError(f"header {key} of {length} bytes, {len(body) - position} left")
        headers[key] = str(body[position : position + length], "utf-8")
        position += length
    return headers, position


def _typed(number: int, headers: dict[int, str], content: memoryview, offset: int, path: str) -> LogBlock:
    """Return the block as a value; refuse undefined kinds and headers."""
    try:
        kind = BlockKind(number)
    except ValueError:
        raise UnsupportedVersionError(
            "a log block of a kind that this release does not know: a newer Hudi wrote it, or the file is damaged. "
            f"Upgrade crdt_mor, or let Hudi compact the table. path={path} offset={offset} kind={number}"
        ) from None
    if kind in (BlockKind.HFILE, BlockKind.CDC):
        raise UnsupportedFeatureError(f"{kind.name} log blocks are not read. path={path} offset={offset}")
    if kind is BlockKind.PARQUET and bytes(content[-len(_ENCRYPTED) :]) == _ENCRYPTED:
        raise UnsupportedFeatureError(f"encrypted Parquet log blocks are not read. path={path} offset={offset}")
    if kind is BlockKind.CORRUPT:
        raise _damaged(path, offset, "a block that its writer marked as corrupt")
    instant = headers.get(HeaderKey.INSTANT_TIME, "")
    if not (instant.isascii() and instant.isdigit()):
        raise _damaged(path, offset, f"no instant time in the block, instant={instant!r}")
    stands_for = tuple(map(InstantTime, filter(None, headers.get(HeaderKey.COMPACTED_BLOCK_TIMES, "").split(","))))
    partial = headers.get(HeaderKey.IS_PARTIAL, "").lower() == "true"
    schema = headers.get(HeaderKey.SCHEMA, "")
    return LogBlock(kind, InstantTime(instant), schema, partial, headers, content, offset, path, stands_for)


def _rollback_target(command: LogBlock) -> str:
    kind = command.headers.get(HeaderKey.COMMAND_BLOCK_TYPE)
    target = command.headers.get(HeaderKey.TARGET_INSTANT_TIME)
    if kind != _ROLLBACK_COMMAND or not target:
        what = f"a command that is not a rollback, command={kind} target={target}"
        raise _damaged(command.path, command.offset, what)
    return target


def decode_deletes(blocks: Sequence[LogBlock]) -> list[pl.DataFrame]:
    """Return `record_key` and `ordering` (null type for plain deletes) of each block's deletes.

    An integer ordering value 0 stays 0; the caller knows that it is Hudi's natural order.
    """
    assert all(block.kind is BlockKind.DELETE for block in blocks)
    return deletes.decode([b.content for b in blocks], [f"path={b.path} offset={b.offset}" for b in blocks])


def decode_avro(block: LogBlock) -> pa.Table:
    """Return the rows of an Avro block, in types chosen by the decoder.

    Missing columns stay absent; the merge decides whether they are null.
    """
    assert block.kind is BlockKind.AVRO, block.kind
    return avro_rows.decode(block.content, block.schema, block.path, block.offset)


def _damaged(path: str, offset: int, what: str) -> FormatError:
    return FormatError(
        f"damaged log file: {what}. Restore the file from a copy, or restore the table to a commit before it. "
        f"path={path} offset={offset}"
    )

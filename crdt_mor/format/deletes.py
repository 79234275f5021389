"""The content of a delete block, a whole column at a time.

    3 (int32) | length (int32) | Avro: count, then per delete: key, partition, ordering value, at last 0

The ordering value is a union of wrapper records, one for each type. A plain delete, which removes whatever came before
it, has the int 0, as Hudi's own have: Hudi's Spark reader fails on a null where the deleted row is in a log. A block
uses one wrapper type, as hudi-rs refuses two. Dates and timestamps are written as days and microseconds, because Spark
compares them with the numbers that its rows hold.

Writing joins four columns of bytes. Reading uses that a union is encoded as the number of its branch, then the value.
If all deletes of a block are of one branch, the block can be decoded by a schema that has no union: an int field for
the number of the branch, then a plain field for the value. Polars decodes that in one go. Whether the assumption held
is checked afterwards: a delete of another branch shows its number in the int field, and a sentinel that was appended
behind the last delete (the closing 0 of the array is the sentinel's null key) must come out as it went in. If not,
fastavro decodes the block delete by delete.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from crdt_mor.columns.decimals import near_scale
from crdt_mor.errors import FormatError, InvalidInputError, UnsupportedFeatureError, UnsupportedVersionError
from crdt_mor.format import avro
from crdt_mor.ground.late_imports import Late

if TYPE_CHECKING:
    import fastavro
    import pyarrow.compute as pc
else:
    fastavro = Late("fastavro")
    pc = Late("pyarrow.compute")

CONTENT_VERSION: Final = 3
_HEAD: Final = struct.Struct(">ii")
_DECIMAL: Final = pa.decimal128(38, 15)
"""Hudi's schema says (30, 15), but its readers, and hudi-rs, take as many digits as the bytes hold."""
_SENTINEL_TEXT: Final = "\0the end\0"
_SENTINEL: Final = b"\x02" + avro.encode_long(len(_SENTINEL_TEXT)) + _SENTINEL_TEXT.encode()
_Json: TypeAlias = "str | bool | int | list[_Json] | dict[str, _Json] | None"


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """One branch of the union: its value's Avro type, the Arrow type it is read as, and a value as bytes."""

    name: str
    avro: _Json
    arrow: pa.DataType
    zero: bytes


_WRAPPERS: Final = (
    _Wrapper("Null", "null", pa.null(), b""),
    _Wrapper("Boolean", "boolean", pa.bool_(), b"\x00"),
    _Wrapper("Int", "int", pa.int32(), b"\x00"),
    _Wrapper("Long", "long", pa.int64(), b"\x00"),
    _Wrapper("Float", "float", pa.float32(), bytes(4)),
    _Wrapper("Double", "double", pa.float64(), bytes(8)),
    _Wrapper("Bytes", "bytes", pa.binary(), b"\x00"),
    _Wrapper("String", "string", pa.string(), b"\x00"),
    _Wrapper("Date", "int", pa.date32(), b"\x00"),
    _Wrapper("Decimal", "bytes", _DECIMAL, b"\x00"),
    _Wrapper("TimeMicros", "long", pa.time64("us"), b"\x00"),
    _Wrapper("TimestampMicros", "long", pa.timestamp("us", tz="UTC"), b"\x00"),
)
_ARRAY_BRANCH: Final = len(_WRAPPERS)
_BRANCH: Final = {wrapper.arrow: branch for branch, wrapper in enumerate(_WRAPPERS) if wrapper.name != "Null"}
_AS_NUMBER: Final = {pa.date32(): pa.int32(), pa.timestamp("us", "UTC"): pa.int64(), pa.timestamp("us"): pa.int64()}
_NATURAL: Final = avro.encode_long(2) + b"\x00"
"""IntWrapper(0), Hudi's "natural order": a delete without an ordering value."""


# ---- write ---------------------------------------------------------------------------------------------------------


def encode(record_keys: Sequence[str] | pa.Array, partition: str, ordering: pa.Array | None) -> bytes:
    """The content of a block that deletes `record_keys`; plain deletes where `ordering` is None."""
    arrow = isinstance(record_keys, (pa.Array, pa.ChunkedArray))
    keys = _one_array(record_keys if arrow else pa.array(record_keys, pa.string()))
    assert keys.null_count == 0, "a record key is never null"
    assert ordering is None or len(ordering) == len(keys), "an ordering value for each key"
    keys = _as_binary(keys)
    path = partition.encode()
    body = b""
    if len(keys):
        columns = (
            _length_prefix(keys, b"\x02"),
            keys,
            pa.scalar(b"\x02" + avro.encode_long(len(path)) + path, pa.large_binary()),
            pa.scalar(_NATURAL, pa.large_binary()) if ordering is None else _tails(_one_array(ordering)),
            pa.scalar(b"", pa.large_binary()),
        )
        body = avro.encode_long(len(keys)) + _bytes_of(pc.binary_join_element_wise(*columns))
    body += b"\x00"
    return _HEAD.pack(CONTENT_VERSION, len(body)) + body


def _one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    return values


def _as_binary(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.large_string()).cast(pa.large_binary())


def _length_prefix(values: pa.Array, before: bytes) -> pa.Array:
    """Per value: `before`, then its length as Avro writes it. There are few lengths, so each is encoded once."""
    lengths, places = np.unique(pc.binary_length(values).to_numpy(zero_copy_only=False), return_inverse=True)
    prefixes = pa.array([before + avro.encode_long(int(length)) for length in lengths], pa.large_binary())
    return prefixes.take(pa.array(places))


def _bytes_of(values: pa.Array) -> bytes:
    """The values of a binary array, one behind the other."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int64)[values.offset :][: len(values) + 1]
    return cast("bytes", data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes())


def _tails(ordering: pa.Array) -> pa.Array:
    """Per delete: the branch and the value of its ordering."""
    type_ = ordering.type
    if pa.types.is_null(type_):
        return pa.scalar(_NATURAL, pa.large_binary())
    if pa.types.is_decimal(type_):
        ordering = _wide_decimal(ordering)
    branch = _BRANCH.get(_AS_NUMBER.get(ordering.type, ordering.type))
    if branch is None:
        raise UnsupportedFeatureError(
            "a delete cannot carry an ordering value of this type; use an int, float, string, date, timestamp or "
            f"decimal column as the ordering column. type={type_}"
        )
    head = avro.encode_long(branch)
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        values = pc.fill_null(ordering, "" if pa.types.is_string(type_) else b"")
        values = _as_binary(values) if pa.types.is_string(type_) else values.cast(pa.large_binary())
        empty = pa.scalar(b"", pa.large_binary())
        tails = pc.binary_join_element_wise(_length_prefix(values, head), values, empty)
    else:
        tails = _fixed_tails(ordering, head)
    null = pa.scalar(b"\x00", pa.large_binary())
    return pc.if_else(ordering.is_null(), null, tails) if ordering.null_count else tails


def _wide_decimal(ordering: pa.Array) -> pa.Array:
    try:
        return near_scale(ordering, _DECIMAL.scale).cast(_DECIMAL)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            "an ordering value of a delete has at most 23 digits before the point and 15 after it in Hudi's format. "
            f"type={ordering.type} error={error}"
        ) from error


def _fixed_tails(ordering: pa.Array, head: bytes) -> pa.Array:
    """Numbers as a matrix of bytes, one row each, and which bytes of it count."""
    type_ = ordering.type
    if pa.types.is_boolean(type_):
        numbers = pc.fill_null(ordering, False).to_numpy(zero_copy_only=False)
        matrix = numbers.astype(np.uint8)[:, None]
        mask = np.ones_like(matrix, dtype=bool)
    elif pa.types.is_floating(type_):
        numbers = pc.fill_null(ordering, 0.0).to_numpy()
        width = type_.bit_width // 8
        matrix = np.ascontiguousarray(numbers.astype(f"<f{width}")).view(np.uint8).reshape(-1, width)
        mask = np.ones_like(matrix, dtype=bool)
    elif pa.types.is_decimal(type_):
        matrix, mask = _decimal_bytes(ordering)
    else:
        # Dates and times become numbers of their own width first: Arrow casts no date to int64.
        plain = pa.int32() if type_.bit_width == 32 else pa.int64()
        matrix, mask = _varints(pc.fill_null(ordering.cast(plain).cast(pa.int64()), 0).to_numpy())
    heads = np.broadcast_to(np.frombuffer(head, np.uint8), (len(ordering), len(head)))
    matrix = np.hstack((heads, matrix))
    mask = np.hstack((np.ones_like(heads, dtype=bool), mask))
    offsets = np.zeros(len(ordering) + 1, np.int64)
    np.cumsum(mask.sum(axis=1), out=offsets[1:])
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(ordering), [None, pa.py_buffer(offsets), pa.py_buffer(matrix[mask])]
    )


def _varints(numbers: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    zigzag = (numbers.astype(np.uint64) << np.uint64(1)) ^ (numbers >> np.int64(63)).astype(np.uint64)
    shifts = np.arange(10, dtype=np.uint64) * np.uint64(7)
    rest = zigzag[:, None] >> shifts
    mask = rest != 0
    mask[:, 0] = True
    more = np.zeros_like(mask)
    more[:, :-1] = mask[:, 1:]
    return ((rest & np.uint64(0x7F)) | (more.astype(np.uint64) << np.uint64(7))).astype(np.uint8), mask


def _decimal_bytes(ordering: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Length, then the unscaled value in as few bytes as hold its sign, highest first: Java's BigInteger."""
    raw = np.frombuffer(ordering.buffers()[1], np.uint8).reshape(-1, 16)[ordering.offset :][: len(ordering)]
    big = raw[:, ::-1].copy()
    big[ordering.is_null().to_numpy(zero_copy_only=False)] = 0
    sign = np.where(big[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    # A leading byte can go if it only repeats the sign, and the byte after it begins with that sign.
    idle = (big[:, :-1] == sign) & ((big[:, 1:] >= 0x80) == (sign != 0))
    leading = np.cumprod(idle, axis=1).sum(axis=1)
    mask = np.arange(16) >= leading[:, None]
    lengths = ((16 - leading) << 1).astype(np.uint8)[:, None]
    return np.hstack((lengths, big)), np.hstack((np.ones_like(lengths, dtype=bool), mask))


# ---- read ----------------------------------------------------------------------------------------------------------


def decode(contents: Sequence[memoryview], places: Sequence[str]) -> list[pl.DataFrame]:
    """`record_key` and `ordering` of every delete of each block. `places`: of each block, for error messages."""
    bodies = [_body(content, where) for content, where in zip(contents, places, strict=True)]
    frames: list[pl.DataFrame] = []
    for body, frame, where in zip(bodies, _decode_columns(bodies), places, strict=True):
        try:
            frames.append(_decode_any(body) if frame is None else frame)
        except UnsupportedFeatureError as error:
            raise UnsupportedFeatureError(f"{error} {where}") from error
        except Exception as error:  # fastavro raises whatever the bytes lead it to
            raise FormatError(f"damaged delete block: {error!r}. {where}") from error
        if frames[-1]["record_key"].null_count():
            raise FormatError(f"damaged delete block: a delete without a key. {where}")
    return frames


def _body(content: memoryview, where: str) -> memoryview:
    if len(content) < _HEAD.size:
        raise FormatError(f"damaged delete block: cut short. {where}")
    version, length = _HEAD.unpack_from(content)
    if version != CONTENT_VERSION:
        raise UnsupportedVersionError(
            "a delete block of an older or newer Hudi: let Hudi compact the table first. "
            f"{where} found={version} supported={CONTENT_VERSION}"
        )
    body = content[_HEAD.size :]
    if length != len(body):
        raise FormatError(f"damaged delete block: {len(body)} bytes, {length} announced. {where}")
    return body


class _OneBranch(NamedTuple):
    """The deletes of a block, all of one branch as far as its first delete shows.

    height: their number. deletes: their bytes, and the closing 0 of the array.
    """

    branch: int
    height: int
    deletes: memoryview


def _decode_columns(bodies: Sequence[memoryview]) -> list[pl.DataFrame | None]:
    """The deletes of each block whose deletes are all of one branch, None for other blocks.

    Blocks of one branch are decoded together, since each call of the decoder has a fixed cost.
    """
    guesses = [_one_branch(body) for body in bodies]
    frames: list[pl.DataFrame | None] = [None] * len(bodies)
    for branch in {guess.branch for guess in guesses if guess is not None}:
        group = [(number, g) for number, g in enumerate(guesses) if g is not None and g.branch == branch]
        decoded = _decode_branch(branch, [guess for _, guess in group])
        for (number, _), frame in zip(group, decoded, strict=True):
            frames[number] = frame
    return frames


def _one_branch(body: memoryview) -> _OneBranch | None:
    """The deletes of a block by the branch of the first; None for a block of an unusual shape, or a damaged one."""
    try:
        count, start = avro.decode_long(body, 0)
        if count <= 0:
            return None
        partition_at = _after_text(body, start)
        branch_at = _after_text(body, partition_at)
        branch, value_at = avro.decode_long(body, branch_at)
    except (IndexError, ValueError):
        return None
    if not 0 <= branch < _ARRAY_BRANCH:
        return None
    # All deletes of a block are in one partition, so these bytes must stand behind each key. Counting them first keeps
    # most blocks that polars cannot decode away from it: it panics on them and prints to stderr.
    if bytes(body).count(body[partition_at:value_at]) < count:
        return None
    return _OneBranch(branch, count, body[start:])


def _decode_branch(branch: int, blocks: Sequence[_OneBranch]) -> list[pl.DataFrame | None]:
    """The deletes of blocks of one branch, decoded together; None for a block that has other branches as well."""
    wrapper = _WRAPPERS[branch]
    # The closing 0 of each array is its sentinel's null key.
    tail = _SENTINEL + avro.encode_long(branch) + wrapper.zero
    ends = np.cumsum([block.height + 1 for block in blocks])
    datums = b"".join(piece for block in blocks for piece in (block.deletes, tail))
    try:
        frame = pl.read_avro(io.BytesIO(avro.encode_container(_HEADERS[branch], int(ends[-1]), datums)))
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        frame = None
    if frame is None or not _all_of_branch(frame, branch, ends):
        return [None] if len(blocks) == 1 else [alone for block in blocks for alone in _decode_branch(branch, [block])]
    deletes = _frame(frame["record_key"], _ordering(frame, wrapper))
    firsts = [end - 1 - block.height for end, block in zip(ends.tolist(), blocks, strict=True)]
    return [deletes.slice(first, block.height) for first, block in zip(firsts, blocks, strict=True)]


def _all_of_branch(frame: pl.DataFrame, branch: int, ends: NDArray[np.int64]) -> bool:
    """Whether all rows are of the branch, and the last row before each end is a sentinel."""
    if frame.height != ends[-1] or not (frame["branch"] == branch).all():
        return False
    last = pl.Series(ends - 1)
    keys, partitions = frame["record_key"].gather(last), frame["partition"].gather(last)
    return keys.null_count() == len(ends) and bool((partitions == _SENTINEL_TEXT).all())


def _frame(record_keys: pl.Series | pa.Array, ordering: pa.Array) -> pl.DataFrame:
    return pl.DataFrame({"record_key": record_keys, "ordering": ordering})


def _after_text(body: memoryview, position: int) -> int:
    """The offset behind a union of null and string."""
    branch, position = avro.decode_long(body, position)
    if branch == 0:
        return position
    size, position = avro.decode_long(body, position)
    return position + size


def _container_header(wrapper: _Wrapper) -> bytes:
    fields: list[_Json] = [
        {"name": "record_key", "type": ["null", "string"]},
        {"name": "partition", "type": ["null", "string"]},
        {"name": "branch", "type": "int"},
    ]
    if wrapper.avro != "null":
        fields.append({"name": "ordering", "type": wrapper.avro})
    return avro.container_header(json.dumps({"type": "record", "name": "delete", "fields": fields}))


_HEADERS: Final = tuple(_container_header(wrapper) for wrapper in _WRAPPERS)


def _ordering(rows: pl.DataFrame, wrapper: _Wrapper) -> pa.Array:
    if pa.types.is_null(wrapper.arrow):
        return pa.nulls(rows.height)
    values = rows["ordering"].to_arrow()
    if pa.types.is_decimal(wrapper.arrow):
        return _decimals(values.to_pylist())
    return values.cast(wrapper.arrow)


def _decimals(values: Sequence[bytes | None]) -> pa.Array:
    """Unscaled two's complement numbers, highest byte first."""
    signed = (None if value is None else int.from_bytes(value, "big", signed=True) for value in values)
    raw = [None if number is None else number.to_bytes(16, "little", signed=True) for number in signed]
    fixed = pa.array([bytes(16) if value is None else value for value in raw], pa.binary(16))
    validity = pa.array([value is not None for value in raw]).buffers()[1]
    return pa.Array.from_buffers(_DECIMAL, len(raw), [validity, fixed.buffers()[1]])


@cache
def _union_schema() -> object:
    branches: list[_Json] = [
        "null" if wrapper.avro == "null" else {
            "type": "record", "name": f"{wrapper.name}Wrapper", "fields": [{"name": "value", "type": wrapper.avro}],
        }
        for wrapper in _WRAPPERS
    ]  # fmt: skip
    named: list[_Json] = ["null", *(f"{wrapper.name}Wrapper" for wrapper in _WRAPPERS[1:])]
    local: _Json = {"type": "record", "name": "LocalDateWrapper", "fields": [{"name": "value", "type": "int"}]}
    several: _Json = {"name": "wrappedValues", "type": {"type": "array", "items": [*named, local]}}
    branches.append({"type": "record", "name": "ArrayWrapper", "fields": [several]})
    record: dict[str, _Json] = {
        "type": "record",
        "name": "HoodieDeleteRecord",
        "fields": [
            {"name": "recordKey", "type": ["null", "string"]},
            {"name": "partitionPath", "type": ["null", "string"]},
            {"name": "orderingVal", "type": branches},
        ],
    }
    return fastavro.parse_schema({"type": "array", "items": record})


def _decode_any(body: memoryview) -> pl.DataFrame:
    """The deletes of a block, one by one, whatever their branches. No writer that we know mixes branches."""
    buffer = io.BytesIO(body)
    rows = fastavro.schemaless_reader(buffer, _union_schema(), None, return_record_name=True)  # type: ignore[arg-type]
    records = cast("list[dict[str, object]]", rows)
    values: list[object] = []
    names: set[str] = set()
    for record in records:
        wrapped = cast("tuple[str, dict[str, object]] | None", record["orderingVal"])
        if wrapped is None:
            values.append(None)
            continue
        names.add(wrapped[0])
        if wrapped[0] == "ArrayWrapper":
            raise UnsupportedFeatureError("deletes with several ordering fields are not read.")
        values.append(wrapped[1]["value"])
    if buffer.read(1):
        raise ValueError("bytes after the last delete")
    if len(names) > 1:
        raise UnsupportedFeatureError(f"deletes with ordering values of different types are not read: {sorted(names)}.")
    wrapper = next((item for item in _WRAPPERS if f"{item.name}Wrapper" in names), _WRAPPERS[0])
    keys = pa.array([record["recordKey"] for record in records], pa.string())
    return _frame(keys, _typed(values, wrapper))


def _typed(values: list[object], wrapper: _Wrapper) -> pa.Array:
    if pa.types.is_decimal(wrapper.arrow):
        return _decimals(cast("list[bytes | None]", values))
    plain = {"int": pa.int32(), "long": pa.int64()}.get(str(wrapper.avro), wrapper.arrow)
    return pa.array(values, plain).cast(wrapper.arrow)

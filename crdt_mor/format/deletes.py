"""The content of a delete block, a whole column at a time.

    3 (int32) | length (int32) | Avro: count, then per delete: key, partition, ordering value, at last 0

The ordering value is a union of wrapper records, one per type. A plain delete, which removes everything before it, has
the int 0, like Hudi's own: Hudi's Spark reader fails on null if the deleted row is in a log. A block uses one wrapper
type, because hudi-rs refuses two. Dates and timestamps are days and microseconds, because Spark compares them with the
numbers in its rows.

If all deletes of a block have the same branch of the union, a schema without a union decodes it in polars: an int field
for the branch, then the value. Two checks confirm this afterwards. A delete of another branch shows its number in the
int field. A sentinel after the last delete must be decoded unchanged; the closing 0 of the array is its null key. If a
check fails, fastavro decodes the block delete by delete.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from crdt_mor.columns.texts import binary_scalar
from crdt_mor.errors import FormatError, UnsupportedFeatureError
from crdt_mor.format import avro
from crdt_mor.format.deletes_ordering import (
    ARRAY_BRANCH,
    NATURAL,
    WRAPPERS,
    Json,
    Wrapper,
    as_binary,
    decoded_ordering,
    encoded_ordering,
    length_prefix,
    typed_ordering,
)
from crdt_mor.ground.late_imports import Late, pc

if TYPE_CHECKING:
    import fastavro
else:
    fastavro = Late("fastavro")

_SENTINEL_TEXT: Final = "\0the end\0"
_SENTINEL: Final = b"\x02" + avro.encode_long(len(_SENTINEL_TEXT)) + _SENTINEL_TEXT.encode()


# ---- write ---------------------------------------------------------------------------------------------------------


def encode(record_keys: Sequence[str] | pa.Array, partition: str, ordering: pa.Array | None) -> bytes:
    """Encode a block that deletes `record_keys`; plain deletes if `ordering` is None."""
    arrow = isinstance(record_keys, (pa.Array, pa.ChunkedArray))
    keys = _one_array(record_keys if arrow else pa.array(record_keys, pa.string()))
    assert keys.null_count == 0, "a record key is never null"
    assert ordering is None or len(ordering) == len(keys), "an ordering value for each key"
    keys = as_binary(keys)
    path = partition.encode()
    body = b""
    if len(keys):
        columns = (
            length_prefix(keys, b"\x02"),
            keys,
            binary_scalar(b"\x02" + avro.encode_long(len(path)) + path),
            binary_scalar(NATURAL) if ordering is None else encoded_ordering(_one_array(ordering)),
            binary_scalar(b""),
        )
        body = avro.encode_long(len(keys)) + _bytes_of(pc.binary_join_element_wise(*columns))
    body += b"\x00"
    return avro.CONTENT_HEAD.pack(avro.CONTENT_VERSION, len(body)) + body


def _one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    return values


def _bytes_of(values: pa.Array) -> bytes:
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int64)[values.offset :][: len(values) + 1]
    return cast("bytes", data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes())


# ---- read ----------------------------------------------------------------------------------------------------------


def decode(contents: Sequence[memoryview], places: Sequence[str]) -> list[pl.DataFrame]:
    """Return `record_key` and `ordering` of every delete of each block. `places`: for errors."""
    bodies = [_body(content, where) for content, where in zip(contents, places, strict=True)]
    frames: list[pl.DataFrame] = []
    for body, frame, where in zip(bodies, _decode_columns(bodies), places, strict=True):
        try:
            frames.append(_decode_any(body) if frame is None else frame)
        except UnsupportedFeatureError as error:
            raise UnsupportedFeatureError(f"{error} {where}") from error
        except (Exception, pl.exceptions.PanicException) as error:  # they raise any error for such bytes
            raise FormatError(f"damaged delete block: {error!r}. {where}") from error
        if frames[-1]["record_key"].null_count():
            raise FormatError(f"damaged delete block: a delete without a key. {where}")
    return frames


def are_of_partition(content: memoryview, partition: str, count: int) -> bool:
    """Return True if the block's bytes contain this partition after `count` keys."""
    path = partition.encode()
    return bytes(content).count(b"\x02" + avro.encode_long(len(path)) + path) >= count


def _body(content: memoryview, where: str) -> memoryview:
    length, body = avro.content_of(content, "delete block", where)
    if length != len(body):
        raise FormatError(f"damaged delete block: {len(body)} bytes, {length} announced. {where}")
    return body


class _OneBranch(NamedTuple):
    """The deletes of a block, all of the branch of the first delete, as far as checked.

    deletes: their bytes, and the closing 0 of the array.
    """

    branch: int
    height: int
    deletes: memoryview


def _decode_columns(bodies: Sequence[memoryview]) -> list[pl.DataFrame | None]:
    """Decode blocks of a single branch together, because each call has a fixed cost; None for other blocks."""
    guesses = [_one_branch(body) for body in bodies]
    frames: list[pl.DataFrame | None] = [None] * len(bodies)
    for branch in {guess.branch for guess in guesses if guess is not None}:
        group = [(number, g) for number, g in enumerate(guesses) if g is not None and g.branch == branch]
        decoded = _decode_branch(branch, [guess for _, guess in group])
        for (number, _), frame in zip(group, decoded, strict=True):
            frames[number] = frame
    return frames


def _one_branch(body: memoryview) -> _OneBranch | None:
    """Return a block's deletes of the first delete's branch; None for an unusual or damaged block."""
    try:
        count, start = avro.decode_long(body, 0)
        if count <= 0:
            return None
        partition_at = _after_text(body, start)
        branch_at = _after_text(body, partition_at)
        branch, value_at = avro.decode_long(body, branch_at)
    except (IndexError, ValueError):
        return None
    if not 0 <= branch < ARRAY_BRANCH:
        return None
    # All deletes of a block have the same partition, so these bytes follow each key. Counting them first keeps
    # most undecodable blocks away from polars, which panics on them and prints to stderr.
    if bytes(body).count(body[partition_at:value_at]) < count:
        return None
    return _OneBranch(branch, count, body[start:])


def _decode_branch(branch: int, blocks: Sequence[_OneBranch]) -> list[pl.DataFrame | None]:
    """Decode blocks of one branch together; None for a block with other branches."""
    wrapper = WRAPPERS[branch]
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
    deletes = _frame(frame["record_key"], decoded_ordering(frame, wrapper))
    firsts = [end - 1 - block.height for end, block in zip(ends.tolist(), blocks, strict=True)]
    return [deletes.slice(first, block.height) for first, block in zip(firsts, blocks, strict=True)]


def _all_of_branch(frame: pl.DataFrame, branch: int, ends: NDArray[np.int64]) -> bool:
    """Return True if all rows have the branch, and the last row before each end is a sentinel."""
    if frame.height != ends[-1] or not (frame["branch"].to_numpy() == branch).all():
        return False
    lasts = (ends - 1).tolist()
    keys, partitions = frame["record_key"], frame["partition"]
    return all(keys[last] is None and partitions[last] == _SENTINEL_TEXT for last in lasts)


def _frame(record_keys: pl.Series | pa.Array, ordering: pa.Array) -> pl.DataFrame:
    return pl.DataFrame({"record_key": record_keys, "ordering": ordering})


def _after_text(body: memoryview, position: int) -> int:
    branch, position = avro.decode_long(body, position)
    if branch == 0:
        return position
    size, position = avro.decode_long(body, position)
    return position + size


def _container_header(wrapper: Wrapper) -> bytes:
    fields: list[Json] = [
        {"name": "record_key", "type": ["null", "string"]},
        {"name": "partition", "type": ["null", "string"]},
        {"name": "branch", "type": "int"},
    ]
    if wrapper.avro != "null":
        fields.append({"name": "ordering", "type": wrapper.avro})
    return avro.container_header(json.dumps({"type": "record", "name": "delete", "fields": fields}))


_HEADERS: Final = tuple(_container_header(wrapper) for wrapper in WRAPPERS)


@cache
def _union_schema() -> object:
    branches: list[Json] = [
        "null" if wrapper.avro == "null" else {
            "type": "record", "name": f"{wrapper.name}Wrapper", "fields": [{"name": "value", "type": wrapper.avro}],
        }
        for wrapper in WRAPPERS
    ]  # fmt: skip
    named: list[Json] = ["null", *(f"{wrapper.name}Wrapper" for wrapper in WRAPPERS[1:])]
    local: Json = {"type": "record", "name": "LocalDateWrapper", "fields": [{"name": "value", "type": "int"}]}
    several: Json = {"name": "wrappedValues", "type": {"type": "array", "items": [*named, local]}}
    branches.append({"type": "record", "name": "ArrayWrapper", "fields": [several]})
    record: dict[str, Json] = {
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
    """Decode a block delete by delete. No known writer mixes branches."""
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
            raise UnsupportedFeatureError(
                "this release does not read deletes with several ordering fields: compact the table with Hudi."
            )
        values.append(wrapped[1]["value"])
    if buffer.read(1):
        raise ValueError("bytes after the last delete")
    if len(names) > 1:
        raise UnsupportedFeatureError(
            "this release does not read deletes with ordering values of different types: compact the table with Hudi. "
            f"types={sorted(names)}"
        )
    wrapper = next((item for item in WRAPPERS if f"{item.name}Wrapper" in names), WRAPPERS[0])
    keys = pa.array([record["recordKey"] for record in records], pa.string())
    return _frame(keys, typed_ordering(values, wrapper))

"""Files that a load or a write takes rows from, changed as their formats allow it and Arrow does not."""

from __future__ import annotations

import io
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import crdt_mor as mor

SIZE = 0x01234567


def with_a_size_below_nothing(schema: bytes) -> bytes:
    assert schema.count(SIZE.to_bytes(4, "little")) == 1
    return schema.replace(SIZE.to_bytes(4, "little"), (-3).to_bytes(4, "little", signed=True))


def arrow(schema: pa.Schema) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema):
        pass
    return with_a_size_below_nothing(sink.getvalue())


def parquet(schema: pa.Schema) -> bytes:
    """Arrow's schema is in the footer as well, as a text."""
    sink = io.BytesIO()
    pq.write_table(schema.empty_table(), sink)
    data = sink.getvalue()
    (kept,) = re.findall(rb"/////[\w+/=]+", data)
    return data.replace(kept, b64encode(with_a_size_below_nothing(b64decode(kept))))


@pytest.mark.parametrize("wrapped", [False, True], ids=["a column", "inside of a column"])
@pytest.mark.parametrize("make", [arrow, parquet])
def test_lists_of_fewer_items_than_none_are_an_unreadable_file(
    fast_path: Path, make: Callable[[pa.Schema], bytes], wrapped: bool
) -> None:
    lists: pa.DataType = pa.list_(pa.int64(), SIZE)
    kind = pa.struct([("items", lists)]) if wrapped else lists
    path = fast_path / ("odd.arrow" if make is arrow else "odd.parquet")
    path.write_bytes(make(pa.schema([("id", pa.string()), ("v", kind)])))
    with pytest.raises(mor.InvalidInputError, match=r"cannot be read.*list_size"):
        mor.read_files(path).to_arrow()
    with pytest.raises(mor.InvalidInputError, match=r"cannot be read.*list_size"):
        mor.Table.create_from(fast_path / "t", path, key="id")
    assert not (fast_path / "t").exists()

"""Build Arrow arrays, scalars and empty tables without pandas, and find lines of JSON text.

`pyarrow.array`, `pyarrow.scalar`, `Schema.empty_table` and `Array.to_numpy` import pandas if it is installed, which
takes as long as a small write.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

_EPOCH: Final = date(1970, 1, 1)
_LINE_END, _RETURN, _OBJECT, _OBJECT_END, _LIST = b"\n\r{}["


def texts(values: Sequence[str]) -> pa.Array:
    return _of_bytes([value.encode() for value in values], pa.string(), np.int32)


def binaries(values: Sequence[bytes]) -> pa.Array:
    return _of_bytes(values, pa.large_binary(), np.int64)


def _of_bytes(values: Sequence[bytes], kind: pa.DataType, offset: type[np.integer[Any]]) -> pa.Array:
    ends = np.array([0, *accumulate(map(len, values))], offset)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])


@lru_cache(maxsize=256)
def text_scalar(value: str) -> pa.Scalar:
    return _one_text(value)[0]


@lru_cache(maxsize=256)
def _one_text(value: str) -> pa.Array:
    return texts([value])


def binary_scalar(value: bytes) -> pa.Scalar:
    return binaries([value])[0]


def no_rows(schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([], schema)


def empty_texts(count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bytes(4 * (count + 1))), pa.py_buffer(b"")])


def given(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Build a column of values in Python. Only other types than texts, integers and dates load pandas."""
    if pt.is_string(kind):
        found = texts([value or "" for value in values])
    elif pt.is_integer(kind):
        found = integers(np.array([value or 0 for value in values], kind.to_pandas_dtype()))
    elif pt.is_date32(kind):
        days = np.array([value or _EPOCH for value in values], "datetime64[D]").astype(np.int32)
        found = integers(days).cast(kind)
    else:
        return pa.array(values, kind)
    there = [value is not None for value in values]
    if all(there):
        return found
    valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, *found.buffers()[1:]])


def integers(values: npt.NDArray[np.integer[Any]]) -> pa.Array:
    """No copy."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def numbers(values: pa.Array) -> npt.NDArray[Any]:
    """No copy; any number for a null."""
    found = np.frombuffer(values.buffers()[1], values.type.to_pandas_dtype())
    return found[values.offset : values.offset + len(values)]


def repeated(value: str, count: int) -> pa.StringArray | pa.DictionaryArray:
    """Repeat a text, as a dictionary."""
    if count == 1:
        return _one_text(value)
    zeros = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(bytes(4 * count))])
    return pa.DictionaryArray.from_arrays(zeros, _one_text(value))


def object_lines(content: bytes, depth_max: int) -> tuple[int, int] | None:
    """Return the number of lines and the bytes of the longest, if each line is a JSON object.

    None if a line is not, or contains more brackets than an object of the greatest depth.
    """
    text = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(text == _LINE_END)
    if not content.endswith(b"\n"):
        ends = np.append(ends, len(text))
    starts = np.append(0, ends + 1)[:-1]
    if not len(ends) or (ends - starts < len(b"{}")).any():
        return None
    last = ends - 1 - (text[ends - 1] == _RETURN)
    if (text[starts] != _OBJECT).any() or (text[last] != _OBJECT_END).any():
        return None
    bounds = np.append(starts, len(text))
    opened = np.flatnonzero((text == _OBJECT) | (text == _LIST))
    if np.diff(np.searchsorted(opened, bounds)).max() > depth_max:
        return None
    return len(starts), int(np.diff(bounds).max())

"""Texts and numbers as Arrow arrays and scalars, made of their bytes.

`pyarrow.array`, `pyarrow.scalar` and whatever takes a value of Python or an array of numpy look whether it is one of
pandas, and import pandas for that, where it is installed, which takes as long as all else that a small write does.

The lines of a text of JSON are found in its bytes, too, all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_LINE_END, _RETURN, _OBJECT, _OBJECT_END, _LIST = b"\n\r{}["


def texts(values: Sequence[str]) -> pa.Array:
    """An array of a few texts."""
    encoded = [value.encode() for value in values]
    ends = np.array([0, *accumulate(map(len, encoded))], np.int32)
    return pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))])


@lru_cache(maxsize=256)
def text_scalar(value: str) -> pa.Scalar:
    """One text, for Arrow's functions."""
    return _one_text(value)[0]


@lru_cache(maxsize=256)
def _one_text(value: str) -> pa.Array:
    return texts([value])


def empty_texts(count: int) -> pa.Array:
    """An array of that many empty texts."""
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bytes(4 * (count + 1))), pa.py_buffer(b"")])


def integers(values: npt.NDArray[np.integer[Any]]) -> pa.Array:
    """Integers, which stay where they are."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def repeated(value: str, count: int) -> pa.StringArray | pa.DictionaryArray:
    """One text so many times, as a dictionary of it alone, or once."""
    if count == 1:
        return _one_text(value)
    zeros = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(bytes(4 * count))])
    return pa.DictionaryArray.from_arrays(zeros, _one_text(value))


def object_lines(content: bytes, depth_max: int) -> tuple[int, int] | None:
    """How many lines a text has, and the bytes of the longest one, where each begins and ends as an object of JSON.

    None where one does not, or has more brackets than an object of the greatest depth.
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

"""Reduce the scale of decimals in steps, because Arrow refuses some exact casts.

Arrow divides by a power of ten. If that has more than 32 bits, the division may leave a wrong remainder: 2^64 - 1 as
decimal(38, 15) is refused as decimal(20, 0). Powers up to 10^9 are divided correctly.
"""

from __future__ import annotations

from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.types as pt

_DIGITS_AT_ONCE: Final = 9

_Values = TypeVar("_Values", pa.Array, pa.ChunkedArray)


def near_scale(data: _Values, scale: int) -> _Values:
    """Reduce the scale until Arrow casts correctly to `scale`; raise `pa.ArrowInvalid` if a dropped digit is not 0."""
    while (pt.is_decimal128(data.type) or pt.is_decimal256(data.type)) and data.type.scale - scale > _DIGITS_AT_ONCE:
        build = pa.decimal256 if pt.is_decimal256(data.type) else pa.decimal128
        data = data.cast(build(data.type.precision, data.type.scale - _DIGITS_AT_ONCE))
    return data


def cast(data: _Values, target: pa.DataType) -> _Values:
    """Cast numbers as Arrow does, and decimals also where Arrow's division is wrong."""
    return near_scale(data, target.scale if pt.is_decimal(target) else 0).cast(target)

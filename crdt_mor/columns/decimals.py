"""Decimals with fewer digits after the point, of which Arrow refuses some that it could give.

Arrow's cast divides the digits of all 128 or 256 bits by a power of ten. Where that power has more than 32 bits, the
division is by parts, and for some numbers it leaves a remainder though there is none: 2^64 - 1 as decimal(38, 15) is
refused as decimal(20, 0), since it "would cause data loss". Powers up to the ninth have less than 32 bits, and these
divisions are right.
"""

from __future__ import annotations

from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.types as pt

_DIGITS_AT_ONCE: Final = 9

_Values = TypeVar("_Values", pa.Array, pa.ChunkedArray)


def near_scale(data: _Values, scale: int) -> _Values:
    """Decimals with so few digits after the point that Arrow casts them rightly to others with `scale` such digits.

    Raises `pa.ArrowInvalid` where a digit that goes is not 0. What is no wide decimal stays as it is.
    """
    while _is_wide(data.type) and data.type.scale - scale > _DIGITS_AT_ONCE:
        build = pa.decimal256 if pt.is_decimal256(data.type) else pa.decimal128
        data = data.cast(build(data.type.precision, data.type.scale - _DIGITS_AT_ONCE))
    return data


def _is_wide(kind: pa.DataType) -> bool:
    return bool(pt.is_decimal128(kind) or pt.is_decimal256(kind))

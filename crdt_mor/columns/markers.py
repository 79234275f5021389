"""Values that stand for "not given" in upserted rows."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

Marker = str | bytes | int | float


def is_marker(value: object) -> bool:
    return isinstance(value, Marker) and not isinstance(value, bool) and value == value


def marker_in(kind: pa.DataType, marker: Marker) -> Marker | Decimal | None:
    """Return the marker as a value of a column's type; None if no value of the type equals it.

    A text stands for its UTF-8 bytes in a binary column, as Debezium writes it.
    """
    try:
        value = pa.scalar(marker, kind).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return value if value == marker or (isinstance(marker, str) and value == marker.encode()) else None

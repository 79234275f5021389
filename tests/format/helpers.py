"""Blocks of a log file written field by field, and rows of many types."""

from __future__ import annotations

import decimal
import struct
from datetime import UTC, date, datetime

import pyarrow as pa

from crdt_mor.model.instant import InstantTime

T1, T2 = InstantTime("20260101000000000"), InstantTime("20260101000000002")


def raw_block(kind: int, headers: dict[int, str], content: bytes = b"", *, version: int = 1) -> bytes:
    """A block written field by field, by the format's own words."""
    body = struct.pack(">iii", version, kind, len(headers))
    for key, value in headers.items():
        body += struct.pack(">ii", key, len(value.encode())) + value.encode()
    body += struct.pack(">q", len(content)) + content + struct.pack(">i", 0)
    size = len(body) + 8
    return b"#HUDI#" + struct.pack(">q", size) + body + struct.pack(">q", size + 6)


STORED = pa.schema(
    {
        "flag": pa.bool_(),
        "i": pa.int32(),
        "l": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "s": pa.string(),
        "b": pa.binary(),
        "day": pa.date32(),
        "t": pa.timestamp("us", tz="UTC"),
        "dec": pa.decimal128(15, 2),
        "big": pa.decimal128(38, 10),
        "a": pa.list_(pa.int32()),
        "n": pa.struct({"x": pa.int32(), "y": pa.string()}),
        "m": pa.map_(pa.string(), pa.int64()),
        "deep": pa.list_(pa.struct({"z": pa.list_(pa.string())})),
    }
)
ROWS = [
    {
        "flag": True,
        "i": -(2**31),
        "l": 2**63 - 1,
        "f": 0.5,
        "d": -1e300,
        "s": "ä€😀",
        "b": b"\0\xff",
        "day": date(1, 1, 1),
        "t": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
        "dec": decimal.Decimal("-12.34"),
        "big": decimal.Decimal("1234567890123456789012345678.0123456789"),
        "a": [1, None],
        "n": {"x": None, "y": ""},
        "m": [("k", 1), ("", None)],
        "deep": [{"z": ["a"]}, None, {"z": []}],
    },
    dict.fromkeys(STORED.names),
]

"""The tables of docs/types.md, and the extreme values of each of its types."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path

import pyarrow as pa

from crdt_mor.columns.kinds import type_named
from crdt_mor.columns.kinds_variants import VARIANT

PAGE = (Path(__file__).parents[2] / "docs" / "types.md").read_text()


def tables_of(page: str) -> list[list[list[str]]]:
    """The rows of every table of a page, as texts, without its head."""
    blocks, rows = [], []
    for line in [*page.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
        elif rows:
            blocks.append(rows[2:])
            rows = []
    return blocks


SUPPORTED, SEEN, REFUSED, *_ = tables_of(PAGE)


def arrow_type(text: str) -> pa.DataType:
    """The type that a cell of the page spells in Python."""
    kind = eval(text, {"pa": pa})
    return type_named(kind) if isinstance(kind, str) else kind


def limits(kind: pa.DataType) -> list[object]:
    """Null and the extreme values of a type that a table can hold."""
    ty = pa.types
    if ty.is_boolean(kind):
        return [False, True]
    if ty.is_unsigned_integer(kind):
        return [0, 2**kind.bit_width - 1]
    if ty.is_integer(kind):
        return [-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1]
    if ty.is_floating(kind):
        top = {16: 65504.0, 32: 3.4028234663852886e38, 64: 1.7976931348623157e308}[kind.bit_width]
        return [-top, top, float("inf"), -0.0]
    if ty.is_time(kind):
        return [dt.time(), dt.time(23, 59, 59, {"s": 0, "ms": 999_000}.get(kind.unit, 999_999))]
    if ty.is_duration(kind):
        day = dt.timedelta(1)
        return [-day * 100_000, day * 100_000 + dt.timedelta(0, 1, 0 if kind.unit == "s" else 1000)]
    if ty.is_decimal(kind):
        most = decimal.Decimal(10**kind.precision - 1).scaleb(-kind.scale, decimal.Context(prec=60))
        return [most.copy_negate(), most]
    if ty.is_fixed_size_binary(kind):
        return [b"\0\0\0\0", b"\xff\xff\xff\xff"]
    if ty.is_dictionary(kind):
        return limits(kind.value_type)
    if kind == VARIANT:
        return [{"metadata": b"\1\0\0", "value": value} for value in (b"\0", b"\x0c\x07")]  # null, and 7
    if ty.is_map(kind):
        keys = ["", *map(str, range(9))] if ty.is_string(kind.key_type) else limits(kind.key_type)
        return [[], [*zip(keys, [None, *limits(kind.item_type)], strict=False)]]
    if kind == pa.struct([]):
        return [{}]
    if ty.is_struct(kind):
        return [{f.name: None for f in kind}, {f.name: limits(f.type)[-1] for f in kind}]
    if ty.is_fixed_size_list(kind):
        return [[None, None], limits(kind.value_type)]
    if "list" in str(kind):
        return [[], [None, *limits(kind.value_type)]]
    if isinstance(kind, pa.JsonType):
        return ["{}", '{"a": [null, 1e400]}']
    return ["", "\U0001f600\0é"] if "string" in str(kind) else [b"", b"\0\xff"]

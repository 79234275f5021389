"""Hypothesis strategies for values of Arrow types and for a payload's written values.

The deep law check and the tests of authors (`crdt_mor.testing`) use them. `crdt_mor.laws.values` states the limits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from hypothesis import strategies as st

from crdt_mor.errors import SchemaMismatchError
from crdt_mor.laws.edges import has_nulls
from crdt_mor.laws.trial import trial_of_examples
from crdt_mor.laws.values import (
    FIRST_DAY,
    FLOAT_MAX,
    INT32_MAX,
    INT64_MAX,
    LAST_DAY,
    LETTERS,
    decimal_max,
    float_edges,
    inside,
    of_entries,
    of_field,
)
from crdt_mor.merge.payload import Payload, RecordPayload


def strategies(kind: pa.DataType, seen: Sequence[Any] = ()) -> st.SearchStrategy[Any]:
    """Draw values of an Arrow type that tables store.

    Args:
        kind: The type.
        seen: Examples; their NaN, infinities and nulls are drawn, too.
    """
    if pt.is_list(kind):
        inner = inside(seen)
        item = strategies(kind.value_type, inner)
        return st.lists(st.none() | item if None in inner else item, max_size=3)
    if pt.is_struct(kind):
        return st.fixed_dictionaries({f.name: st.none() | strategies(f.type, of_field(seen, f.name)) for f in kind})
    if pt.is_map(kind):
        value = st.none() | strategies(kind.item_type, of_entries(seen))
        return st.dictionaries(st.text(LETTERS, max_size=3), value, max_size=3)
    if pt.is_floating(kind):
        return _floats(kind, seen)
    if pt.is_decimal(kind):
        most = decimal_max(kind)
        return st.integers(-most, most).map(lambda digits: Decimal(digits).scaleb(-kind.scale))
    return _scalars(kind)


def _scalars(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if kind == pa.int32():
        return st.integers(-INT32_MAX, INT32_MAX)
    if kind == pa.int64():
        return st.integers(-INT64_MAX, INT64_MAX)
    if kind == pa.bool_():
        return st.booleans()
    if kind == pa.string():
        return st.text(LETTERS, max_size=4)
    if kind == pa.binary():
        return st.binary(max_size=4)
    if kind == pa.date32():
        return st.dates(FIRST_DAY, LAST_DAY)
    if pt.is_timestamp(kind):
        return st.datetimes(datetime(1970, 1, 1), datetime(2099, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
    raise SchemaMismatchError(f"no strategy draws values of this type: pass a stored type. type={kind}")


def _floats(kind: pa.DataType, seen: Sequence[Any]) -> st.SearchStrategy[Any]:
    nan, infinite, minus = float_edges(seen)
    least, most = (None, None) if infinite else (-FLOAT_MAX, FLOAT_MAX)
    drawn = st.floats(least, most, allow_nan=False, width=64 if pt.is_float64(kind) else 32)
    drawn = drawn if minus else drawn.map(lambda x: x + 0.0)
    return drawn | st.just(math.nan) if nan else drawn


def written(payload: Payload) -> st.SearchStrategy[tuple[pa.DataType, Any]]:
    """Draw a payload's written values with their Arrow types: its examples, and other values of their types."""
    examples = trial_of_examples(payload).written
    drawn = []
    for kind in dict.fromkeys(kind for kind, _ in examples):
        values = strategies(kind, [value for of, value in examples if of == kind])
        if isinstance(payload, RecordPayload):
            values = values.filter(lambda value: any(field is not None for field in value.values()))
        if payload.nulls_inside == "refuse":
            values = values.filter(lambda value: not has_nulls(value))
        drawn.append(st.tuples(st.just(kind), values))
    return st.one_of(*drawn, st.sampled_from(examples))

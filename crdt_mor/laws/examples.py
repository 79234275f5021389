"""The examples of a payload, with the types in which they are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pyarrow as pa

from crdt_mor.columns.shown_fields import stored_leaves
from crdt_mor.errors import InvalidInputError
from crdt_mor.laws.describe import AUTHOR_ERRORS, error_line
from crdt_mor.merge.payload import Payload, RecordPayload


def examples_of(payload: Payload) -> list[tuple[pa.DataType, Any]]:
    """Return the typed examples, with null if it is a value. Raises `InvalidInputError` for missing or untyped ones."""
    with naming_mistakes(payload):
        return _examples_of(payload)


@contextmanager
def naming_mistakes(payload: Payload) -> Iterator[None]:
    try:
        yield
    except pa.ArrowException as error:
        raise InvalidInputError(
            "return values of one type from examples(), and name the type in column() if Arrow cannot infer "
            f"it. payload={payload_name(payload)} examples={payload.examples()!r}"
        ) from error
    except (NotImplementedError, TypeError) as error:
        raise InvalidInputError(f"{error}. payload={payload_name(payload)}") from error


def _examples_of(payload: Payload) -> list[tuple[pa.DataType, Any]]:
    examples = _given(payload)
    if all(value is None for value in (examples.to_pylist() if isinstance(examples, pa.Array) else examples)):
        raise InvalidInputError(f"return a few written values from examples(). payload={payload_name(payload)}")
    column = stored_leaves(payload.column(), "column()")
    kinds = [stored_leaves(kind, "accepts()") for kind in payload.accepts(column)]
    if isinstance(examples, pa.Array):
        kinds = [stored_leaves(examples.type, "examples()")]
        values = pl.Series(pl.from_arrow(examples.cast(kinds[0]))).to_list()
    else:
        values = list(examples)
    nulls = payload.nulls == "value" and not isinstance(payload, RecordPayload)
    typed = [_with_type(value, kinds) for value in values if value is not None]
    return [*typed, (typed[0][0], None)] if nulls else typed


def _given(payload: Payload) -> Sequence[Any] | pa.Array:
    try:
        return payload.examples()
    except (NotImplementedError, InvalidInputError):
        raise
    except AUTHOR_ERRORS as error:
        said = f"examples() raises {error_line(error)}. payload={payload_name(payload)}"
        raise InvalidInputError(said) from error


def _with_type(value: Any, kinds: Sequence[pa.DataType]) -> tuple[pa.DataType, Any]:
    for kind in kinds:
        try:
            back = pl.Series(pl.from_arrow(pa.array([value], kind))).to_list()[0]
            if same_value(value, back):
                return kind, back
        except AUTHOR_ERRORS:
            continue
    raise InvalidInputError(f"this example fits none of the types {[str(k) for k in kinds]}. example={value!r}")


def payload_name(payload: Payload) -> str:
    return str(getattr(payload, "name", type(payload).__name__))


def same_value(value: Any, back: Any) -> bool:
    """Return True if a column returned the value unchanged: a tuple as list, an int as float, a map as pairs, naive
    times as UTC.
    """
    if value == back:
        return True
    if isinstance(value, dict) and isinstance(back, dict):
        return value.keys() == back.keys() and all(same_value(value[key], back[key]) for key in value)
    if isinstance(value, list | tuple) and isinstance(back, list):
        return len(value) == len(back) and all(map(same_value, value, back))
    if isinstance(value, list | tuple) and isinstance(back, dict):
        return same_value(dict(value), back)
    if isinstance(value, datetime) and isinstance(back, datetime):
        return value.replace(tzinfo=UTC) == back
    return bool(value != value and back != back)  # NaN

"""The examples that a payload gives of written values, each with the type in which it is written."""

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
    """The examples, and null where it is a value; each with the type in which it is written.

    Raises `InvalidInputError` where the payload gives none, or none of one type.
    """
    with naming_mistakes(payload):
        return _examples_of(payload)


@contextmanager
def naming_mistakes(payload: Payload) -> Iterator[None]:
    """What goes wrong where a payload says its examples and their types, as `InvalidInputError`."""
    try:
        yield
    except pa.ArrowException as error:
        raise InvalidInputError(
            "examples() gives values of one type; where Arrow cannot tell which, column() says it. "
            f"payload={payload_name(payload)} examples={payload.examples()!r}"
        ) from error
    except (NotImplementedError, TypeError) as error:
        raise InvalidInputError(f"{error}. payload={payload_name(payload)}") from error


def _examples_of(payload: Payload) -> list[tuple[pa.DataType, Any]]:
    examples = _given(payload)
    if all(value is None for value in (examples.to_pylist() if isinstance(examples, pa.Array) else examples)):
        raise InvalidInputError(f"examples() must give a few written values. payload={payload_name(payload)}")
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
    """What `examples()` gives; the author's own error is named, but for one that says that there are none."""
    try:
        return payload.examples()
    except (NotImplementedError, InvalidInputError):
        raise
    except AUTHOR_ERRORS as error:
        said = f"examples() raises {error_line(error)}. payload={payload_name(payload)}"
        raise InvalidInputError(said) from error


def _with_type(value: Any, kinds: Sequence[pa.DataType]) -> tuple[pa.DataType, Any]:
    """A value as polars gives it back, with the first type that holds it."""
    for kind in kinds:
        try:
            back = pl.Series(pl.from_arrow(pa.array([value], kind))).to_list()[0]
            if same_value(value, back):
                return kind, back
        except AUTHOR_ERRORS:
            continue
    raise InvalidInputError(f"an example is of none of the types {[str(k) for k in kinds]}. example={value!r}")


def payload_name(payload: Payload) -> str:
    """The name of a payload; of one without a name, that of its class."""
    return str(getattr(payload, "name", type(payload).__name__))


def same_value(value: Any, back: Any) -> bool:
    """Whether a column gives back what was put into it; a tuple comes back as a list, an int as a float.

    A time without a zone is in UTC, and a map may be given as its pairs.
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

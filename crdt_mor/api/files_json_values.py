"""JSON values in Python, for texts beyond Arrow's reader. Numbers keep their digits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.text_types import json_type
from crdt_mor.columns.types import field_of, is_list


class Number(str):
    """The digits of a number."""

    __slots__ = ()


def loaded(text: str) -> Any:
    """Load one JSON text with numbers as `Number`; raise `pyarrow.ArrowInvalid`."""
    try:
        return json.loads(text, parse_int=Number, parse_float=Number, object_pairs_hook=_object, strict=False)
    except (ValueError, RecursionError) as error:
        raise pa.ArrowInvalid(f"{error}: {text[:40]}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a key stands twice in an object. keys={[key for key, _ in pairs]}")
    return found


def written(value: Any) -> str:
    """Return the JSON text of a loaded value."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{written(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value)


def has_leaf(kind: pa.DataType, is_sought: Callable[[pa.DataType], bool]) -> bool:
    """Return True if the type, or a type in it, is sought."""
    return bool(is_sought(kind)) or any(has_leaf(kind.field(n).type, is_sought) for n in range(kind.num_fields))


def with_entries(value: Any, kind: pa.DataType) -> Any:
    """Replace each map in a value by a list of entries, `{"key": …, "value": …}`.

    Libraries write a map as an object, as a list of pairs or as a list of entries.
    """
    if value is None or not has_leaf(kind, pt.is_map):
        return value
    if pt.is_map(kind):
        if isinstance(value, dict) and value and json_type(kind.key_type) != pa.string():
            raise pa.ArrowInvalid(f"a map with other keys than text is a list of pairs; not {written(value)[:40]}")
        pairs = value.items() if isinstance(value, dict) else map(_pair, value if isinstance(value, list) else [value])
        return [{"key": key, "value": with_entries(item, kind.item_type)} for key, item in pairs]
    if pt.is_struct(kind) and isinstance(value, dict):
        return value | {f.name: with_entries(value[f.name], f.type) for f in kind if f.name in value}
    if is_list(kind) and isinstance(value, list):
        return [with_entries(item, kind.value_type) for item in value]
    return value


def _pair(entry: Any) -> tuple[Any, Any]:
    if isinstance(entry, list) and len(entry) == 2:
        return entry[0], entry[1]
    if isinstance(entry, dict) and entry.keys() == {"key", "value"}:
        return entry["key"], entry["value"]
    raise pa.ArrowInvalid(f"a map is an object, or a list of pairs; not {written(entry)[:40]}")


def guessed_doubles(value: Any, kind: pa.DataType, given: pa.DataType | None) -> Iterator[str]:
    """Yield the numbers in guessed doubles. given: the value's type as the user or the table gives it."""
    if value is None:
        return
    if pt.is_float64(kind) and given is None and isinstance(value, Number):
        yield str(value)
    elif pt.is_struct(kind):
        inner = given if given is not None and pt.is_struct(given) else None
        for field in kind:
            known = None if inner is None else field_of(inner, field.name)
            yield from guessed_doubles(value.get(field.name), field.type, None if known is None else known.type)
    elif pt.is_map(kind):
        for entry in value:
            yield from guessed_doubles(entry["value"], kind.item_type, None if given is None else given.item_type)
    elif is_list(kind):
        for item in value:
            yield from guessed_doubles(item, kind.value_type, None if given is None else given.value_type)

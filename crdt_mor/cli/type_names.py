"""Parse column types as Arrow spells them and `crdt-mor schema` prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from crdt_mor.ground.late_imports import Late, pa

if TYPE_CHECKING:
    from crdt_mor.columns import kinds
else:
    kinds = Late("crdt_mor.columns.kinds")

_NESTED: Final = re.compile(r"(?P<name>\w+)<(?P<inner>.*)>(?:\[(?P<size>\d+)\])?", re.DOTALL)
_OPEN, _CLOSED = "<[(", ">])"


def type_of(text: str) -> pa.DataType | None:
    """Parse a type such as `timestamp[us, UTC]` or `struct<a: int64, b: list<string>>`; None if invalid."""
    text = text.strip().removesuffix(" not null")
    nested = _NESTED.fullmatch(text)
    try:
        return (
            kinds.type_named(text)
            if nested is None or nested["name"] == "extension"
            else _nested(nested["name"], [*_parts(nested["inner"])], nested["size"])
        )
    except (ValueError, TypeError, KeyError):  # pyarrow raises the first two
        return None


def _nested(name: str, parts: list[str], size: str | None) -> pa.DataType:
    if name == "dictionary":
        given = dict(part.split("=", 1) for part in parts)
        return pa.dictionary(pa.int32(), _known(given["values"]), ordered=given.get("ordered") == "1")
    if name == "map":
        key, item, *more = parts
        return pa.map_(_known(key), _known(item), keys_sorted=more == ["keys_sorted"])
    if name == "struct":
        return pa.struct([_field(part) for part in parts])
    (item,) = parts
    inner = _item(item)
    if name == "fixed_size_list":
        return pa.list_(inner, int(size or ""))
    return {"list": pa.list_, "large_list": pa.large_list}[name](inner)


def _known(text: str) -> pa.DataType:
    if (kind := type_of(text)) is None:
        raise ValueError(text)
    return kind


def _field(text: str) -> pa.Field:
    name, _, kind = text.partition(": ")
    return pa.field(name, _known(kind))


def _item(text: str) -> pa.Field:
    kind = type_of(text)
    return _field(text) if kind is None else pa.field("item", kind)


def _parts(text: str) -> Iterator[str]:
    """Split at commas outside brackets."""
    depth = start = 0
    for at, letter in enumerate(text):
        depth += (letter in _OPEN) - (letter in _CLOSED)
        if letter == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()

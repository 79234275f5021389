"""The families of column types, an object each: `kind_of` finds the family of a type.

A `Kind` defines how its types are stored, spelled, cast, widened, parsed and used in keys. Other modules of this room
apply this inside lists, structs, maps and dictionaries. The defaults suit a type that Arrow casts to its stored type
and back. To add a type, add a family here (ARCHITECTURE.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from crdt_mor.columns.kind import KINDS, UNKNOWN, Json, Kind, Values, apart, fits, join, kind_of, type_id, unsupported
from crdt_mor.columns.kinds_durations import Durations
from crdt_mor.columns.kinds_numbers import Booleans, Decimals, Floats, Integers, decimal_bytes, whole
from crdt_mor.columns.kinds_texts import Bytes, Texts
from crdt_mor.columns.kinds_times import Dates, TimesOfDay, Timestamps
from crdt_mor.columns.kinds_variants import Variants

FAMILIES: Final[Sequence[Kind]] = (
    Booleans(), Integers(), Floats(), Texts(), Bytes(), Dates(), TimesOfDay(), Timestamps(), Durations(),
    Decimals(), Variants(),
)  # fmt: skip
"""All families, in the order of docs/types.md."""

KINDS.update({type_id(sample): kind for kind in FAMILIES for sample in kind.samples})

OF_CLASS: Final[dict[type, Kind]] = {kind.python: kind for kind in FAMILIES if kind.python is not None}


def json_text(value: object) -> str:
    """Return the JSON text of a value in Python that JSON lacks."""
    family = next((OF_CLASS[one] for one in type(value).__mro__ if one in OF_CLASS), None)
    return str(value) if family is None else family.to_json(value)


def first_answer(ask: Callable[[Kind], pa.DataType | None]) -> pa.DataType | None:
    """Return the answer of the first family that has one."""
    return next((answer for kind in dict.fromkeys(KINDS.values()) if (answer := ask(kind)) is not None), None)


# --- names ------------------------------------------------------------------------------------------------------------

_NAMED: Final = {
    name: kind for family in FAMILIES for kind in family.samples for name in (str(kind), family.spelled(kind))
}
_PARAMETERS: Final = re.compile(r"(\w+)[\[(]([^\])]*)[\])]")


def type_named(text: str) -> pa.DataType:
    """Parse a name as Arrow or `Kind.spelled` writes it; raise ValueError or TypeError for others."""
    if (known := _NAMED.get(text)) is not None:
        return known
    match = _PARAMETERS.fullmatch(text)
    name, inner = (match[1], match[2]) if match else (text, "")
    parameters = [part.strip() for part in inner.split(",") if part.strip()]
    return first_answer(lambda family: family.named(name, parameters)) or pa.type_for_alias(text)


__all__ = [
    "FAMILIES", "KINDS", "OF_CLASS", "UNKNOWN", "Json", "Kind", "Values", "apart", "decimal_bytes", "first_answer",
    "fits", "join", "json_text", "kind_of", "type_id", "type_named", "unsupported", "whole",
]  # fmt: skip

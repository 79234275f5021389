"""Check that other processes can make an equal payload from its class and `parameters()`.

A table stores nothing else. It would lose a value that `__init__` or a later assignment keeps beside the parameters.
"""

from __future__ import annotations

import json
import pickle
from contextlib import suppress
from functools import cached_property
from inspect import getattr_static
from typing import Any

from crdt_mor.errors import InvalidInputError
from crdt_mor.merge.payload import Payload

_ADVICE = (
    "make the class a frozen dataclass with a field for each parameter, or return all arguments of __init__ from "
    "parameters()"
)


def require_remade(payload: Payload, parameters: str) -> None:
    """Raise `InvalidInputError` with the differing attributes if the payload is not equal to `cls(**parameters)`."""
    cls: Any = type(payload)
    try:
        remade = cls(**json.loads(parameters))
    except TypeError as error:
        raise InvalidInputError(
            f"the class cannot be made from its stored parameters: {error}. Do this: {_ADVICE}. "
            f"payload={cls.__qualname__} stored={parameters}"
        ) from error
    before, after = _attributes(payload), _attributes(remade)
    lost = sorted(name for name in before.keys() | after.keys() if not _same(before.get(name), after.get(name)))
    if lost:
        names = [name.strip("_") for name in lost]
        raise InvalidInputError(
            f"a table would lose parameters of this payload and show other values: {_ADVICE}. "
            f"payload={cls.__qualname__} parameters={names} stored={parameters}"
        )


def _attributes(payload: Payload) -> dict[str, Any]:
    state: Any = object.__getstate__(payload)
    parts = state if isinstance(state, tuple) else (state,)  # a class with slots gives two
    found = {name: value for part in parts for name, value in (part or {}).items()}
    cls = type(payload)
    return {n: v for n, v in found.items() if not isinstance(getattr_static(cls, n, None), cached_property)}


def _same(a: Any, b: Any) -> bool:
    """Return True if two values are equal; a list equals a tuple, because of JSON."""
    match a, b:
        case (list() | tuple(), list() | tuple()):
            return len(a) == len(b) and all(map(_same, a, b))
        case (dict(), dict()):
            return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    with suppress(Exception):  # arrays and expressions have no truth value
        if a == b:
            return True
    with suppress(Exception):  # the contents of objects without `__eq__`
        return type(a) is type(b) and pickle.dumps(a) == pickle.dumps(b)
    return False

"""Check that a schema in a file bounds the memory and depth of reading the file.

An array of nulls, or of records without fields, has any number of items in no bytes. A type that contains itself has a
level per byte, and fastavro's recursion overflows the stack. Hudi's schemas contain neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crdt_mor.format.avro import Json


def require_bounded(schema: Json) -> None:
    """Raise ValueError for a schema with unbounded values or levels in few bytes.

    An invalid schema raises AttributeError, LookupError or TypeError.
    """
    _Walk().weight(schema, "")


class _Walk:
    """A walk through a schema: the smallest size of each named type, None while the type is being read."""

    def __init__(self) -> None:
        self._named: dict[str, int | None] = {}

    def weight(self, kind: Json, namespace: str) -> int:
        if isinstance(kind, list):
            return 1 + min([self.weight(branch, namespace) for branch in kind], default=0)
        if isinstance(kind, str):
            return self._known(kind, namespace)
        if not isinstance(kind, dict):
            raise TypeError(f"no type: {kind!r:.99}")
        match kind["type"]:
            case "record" | "error":
                return self._record(kind, namespace)
            case "array":
                if not self.weight(kind["items"], namespace):
                    raise ValueError("an array of nothing, of which a few bytes hold any number")
                return 1
            case "map":
                self.weight(kind["values"], namespace)
                return 1
            case "fixed":
                return self._note(kind, namespace, kind["size"])
            case "enum":
                return self._note(kind, namespace, 1)
            case inner:
                return self.weight(inner, namespace)

    def _known(self, name: str, namespace: str) -> int:
        found = next((full for full in (f"{namespace}.{name}", name) if full in self._named), None)
        if found is None:
            return 0 if name == "null" else 1
        weight = self._named[found]
        if weight is None:
            raise ValueError(f"a type that contains itself, {name}")
        return weight

    def _record(self, kind: Mapping[str, Any], namespace: str) -> int:
        inner = _namespace(kind, namespace)
        self._note(kind, namespace, None)
        return self._note(kind, namespace, sum(self.weight(field["type"], inner) for field in kind["fields"]))

    def _note(self, kind: Mapping[str, Any], namespace: str, weight: Any) -> int:
        name = str(kind["name"]).rpartition(".")[2]
        self._named[f"{_namespace(kind, namespace)}.{name}"] = weight
        return weight or 0


def _namespace(kind: Mapping[str, Any], namespace: str) -> str:
    own, dot, _ = str(kind["name"]).rpartition(".")
    return own if dot else str(kind.get("namespace", namespace) or "")

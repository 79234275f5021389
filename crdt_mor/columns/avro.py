"""Convert schemas to and from Avro JSON, as in Hudi's properties, commits, log blocks and footers.

As in Hudi, a table is record `<table>_record` in namespace `hoodie.<table>`. Avro requires unique type names, so
decimals are fixed types with a namespace per column, and nested records are named after their field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import cast

import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.kinds import FAMILIES, UNKNOWN, Json, first_answer, kind_of, whole
from crdt_mor.errors import FormatError, UnsupportedFeatureError

_FROM_PRIMITIVE = {
    avro: stored for family in FAMILIES for stored, avro in family.avro_types.items() if isinstance(avro, str)
}

_SHOWN = 60

# --- writing --------------------------------------------------------------------------------------------------------


def record_json(stored: pa.Schema, table: str, meta: tuple[str, ...] = (), *, null_first: bool = True) -> str:
    """Return the record schema of a table; `null_first=False` is Hudi's form in `create.schema`."""
    record = re.sub(r"[^A-Za-z0-9_]", "_", table)
    namespace = f"hoodie.{record}"
    fields: list[Json] = [{"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in meta]
    fields += [_field(field, f"{namespace}.{record}_record", null_first) for field in stored]
    return json.dumps(
        {"type": "record", "name": f"{record}_record", "namespace": namespace, "fields": fields}, separators=(",", ":")
    )


def _field(field: pa.Field, namespace: str, null_first: bool) -> Json:
    union = _nullable(_type(field.type, field.name, namespace, null_first), null_first)
    default: dict[str, Json] = {"default": None} if null_first else {}
    return {"name": field.name, "type": union, **default}


def _nullable(kind: Json, null_first: bool) -> Json:
    return ["null", kind] if null_first else [kind, "null"]


def _type(kind: pa.DataType, name: str, namespace: str, null_first: bool) -> Json:
    if (leaf := kind_of(kind)) is not UNKNOWN:
        return leaf.avro(kind, f"{namespace}.{name}")
    if pt.is_list(kind):
        return {"type": "array", "items": _nullable(_type(kind.value_type, name, namespace, null_first), null_first)}
    if pt.is_map(kind):
        return {"type": "map", "values": _nullable(_type(kind.item_type, name, namespace, null_first), null_first)}
    assert pt.is_struct(kind), f"not a stored type: {kind}"
    fields: list[Json] = [_field(field, f"{namespace}.{name}", null_first) for field in kind]
    return {"type": "record", "name": name, "namespace": namespace, "fields": fields}


# --- reading --------------------------------------------------------------------------------------------------------


def parse_record(text: str) -> list[pa.Field]:
    """Return a record schema's fields as Arrow fields; raise `UnsupportedFeatureError` for unknown types."""
    try:
        record = json.loads(text)
        if not (isinstance(record, dict) and record.get("type") == "record"):
            raise TypeError("not a record")
        return _Parser().fields(record, "", "")
    except (
        ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, pa.ArrowException,
    ) as error:  # fmt: skip
        raise FormatError(f"not an Avro record schema: {error!r}. schema={text[:200]!r}") from error


class _Parser:
    """Parses a schema; Avro refers to repeated named types by name."""

    def __init__(self) -> None:
        self._named: dict[str, Mapping[str, Json]] = {}
        self._open: list[str] = []

    def fields(self, record: Mapping[str, Json], column: str, namespace: str) -> list[pa.Field]:
        inner, _ = self._remember(record, namespace)
        fields = []
        raw = record["fields"]
        if not (isinstance(raw, list) and all(isinstance(field, dict) for field in raw)):
            raise TypeError("fields are not a list of objects")
        for field in cast("list[dict[str, Json]]", raw):
            path = f"{column}.{field['name']}" if column else str(field["name"])
            kind, nullable = self.union(field["type"], path, inner)
            fields.append(pa.field(str(field["name"]), kind, nullable))
        return fields

    def _remember(self, named: Mapping[str, Json], namespace: str) -> tuple[str, str]:
        name, own = str(named["name"]), str(named.get("namespace", namespace) or "")
        if "." in name:
            own, name = name.rsplit(".", 1)
        full = f"{own}.{name}" if own else name
        self._named[full] = named
        return own, full

    def union(self, kind: Json, column: str, namespace: str) -> tuple[pa.DataType, bool]:
        if not isinstance(kind, list):
            return self.kind(kind, column, namespace), False
        branches = [branch for branch in kind if branch != "null"]
        if len(branches) != 1:
            raise _unsupported(kind, column, "a union of several types")
        return self.kind(branches[0], column, namespace), len(branches) < len(kind)

    def kind(self, kind: Json, column: str, namespace: str) -> pa.DataType:
        if isinstance(kind, str):
            if kind in _FROM_PRIMITIVE:
                return _FROM_PRIMITIVE[kind]
            full = kind if "." in kind or not namespace else f"{namespace}.{kind}"
            named = self._named.get(full, self._named.get(kind))
            if named is None:
                raise _unsupported(kind, column, "an unknown type")
            if full in self._open:
                raise _unsupported(kind, column, "a type that contains itself")
            return self.complex(named, column, namespace)
        if isinstance(kind, list):
            return self.union(kind, column, namespace)[0]
        if not isinstance(kind, dict):
            raise TypeError(f"no type: {kind!r}")
        return self.complex(kind, column, namespace)

    def complex(self, kind: Mapping[str, Json], column: str, namespace: str) -> pa.DataType:
        logical, base = kind.get("logicalType"), kind["type"]
        if logical is not None:
            known = first_answer(lambda family: family.from_avro(str(base), str(logical), kind))
            if known is None:
                raise _unsupported(kind, column, "an unknown logical type")
            if base == "fixed":
                self._remember(kind, namespace)
            return known
        match base:
            case "array":
                return pa.list_(pa.field("element", self.union(kind["items"], column, namespace)[0]))
            case "map":
                return pa.map_(pa.string(), pa.field("value", self.union(kind["values"], column, namespace)[0]))
            case "fixed":
                self._remember(kind, namespace)
                return pa.binary(whole(kind["size"]))
            case "enum":
                self._remember(kind, namespace)
                return pa.string()
            case "record" | "error":
                _, full = self._remember(kind, namespace)
                self._open.append(full)
                fields = self.fields(kind, column, namespace)
                self._open.pop()
                return pa.struct([field.with_nullable(True) for field in fields])
        return self.kind(base, column, namespace)


def _unsupported(kind: object, column: str, what: str) -> UnsupportedFeatureError:
    text = kind.get("logicalType", kind.get("type")) if isinstance(kind, Mapping) else kind
    shown = text if isinstance(text, str) else json.dumps(text)
    return UnsupportedFeatureError(
        f"{what} cannot be read by this release: use Hudi's own reader. column={column} type={shown[:_SHOWN]}"
    )

"""The rule that merges the rows of a key, as stored in the table's properties.

    latest                      the row of the commit requested last
    ordering:<column>           the row with the greatest value of one column
    partial_update/1?nulls=…    per column, the value of the last commit that wrote it; with &ordering=<column>, of the
                                row with the greatest value of that column

With `latest` and `partial_update`, columns may have payloads: `latest [{"columns":["views"], …}]`. With
`partial_update`, the same list contains the markers of unavailable values, `[{"unavailable":"?"}]`. With `latest` and
`ordering`, rows may expire, milliseconds after a column: `latest?ttl=created+2592000000`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal
from urllib.parse import quote, unquote

from crdt_mor.columns.markers import Marker, is_marker
from crdt_mor.errors import InvalidInputError
from crdt_mor.model.expiry import Expiry, Ttl

PARTIAL_UPDATE: Final = "partial_update/1"
LATEST_BY: Final = "latest_by/1"

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*/[0-9]+")
_PATH: Final = re.compile(r"[\w.]+:[\w.]+")
_KNOWN: Final = "latest, ordering:<column> and partial_update/1?nulls=value or keep"


@dataclass(frozen=True, slots=True)
class PayloadRef:
    """The name of a payload, from which processes load its code.

    Attributes:
        name: name and version, like `counter/1`.
        parameters: a JSON object.
        fingerprint: of the payload's behaviour at table creation. Empty: unknown.
        path: `module:Class` of a payload without an installed package.
    """

    name: str
    parameters: str = "{}"
    fingerprint: str = ""
    path: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidInputError(f"a payload name must be like `counter/1`: name/version. payload={self.name}")
        if self.path and not _PATH.fullmatch(self.path):
            raise InvalidInputError(f"a payload path must be like `acme.payloads:Longest`. path={self.path}")
        try:
            parameters = json.loads(self.parameters)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"parameters must be a JSON object. parameters={self.parameters}") from error
        if not isinstance(parameters, dict):
            raise InvalidInputError(f"parameters must be a JSON object. parameters={self.parameters}")
        object.__setattr__(self, "parameters", json.dumps(parameters, sort_keys=True))  # canonical

    @property
    def arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = json.loads(self.parameters)
        return arguments

    def __str__(self) -> str:
        inside = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.name}({inside})" if inside else self.name


@dataclass(frozen=True, slots=True)
class ColumnMerge:
    """Columns with a common payload.

    Attributes:
        columns: the column names. In storage, the stored ones.
        called: the payload's own fixed names for its columns, if they differ. Its parameters use them.
    """

    columns: tuple[str, ...]
    payload: PayloadRef
    called: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The column names in the structs for a payload of several columns."""
        return self.called or self.columns

    @property
    def ordering(self) -> str | None:
        """The column by which `LatestBy` orders the others."""
        if self.payload.name != LATEST_BY:
            return None
        by: object = self.payload.arguments.get("by")
        return next((own for name, own in zip(self.fields, self.columns, strict=True) if name == by), None)

    def renamed(self, columns: tuple[str, ...]) -> ColumnMerge:
        is_same = len(columns) == 1 or columns == self.fields
        return ColumnMerge(columns, self.payload, () if is_same else self.fields)

    def __str__(self) -> str:
        names = self.columns[0] if len(self.columns) == 1 else f"({', '.join(self.columns)})"
        return f"{names}: {self.payload}"

    def to_json(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"columns": list(self.columns), "payload": self.payload.name}
        if self.payload.arguments:
            entry["parameters"] = self.payload.arguments
        if self.payload.path:
            entry["path"] = self.payload.path
        return entry | {"fingerprint": self.payload.fingerprint}

    @classmethod
    def of_json(cls, entry: Mapping[str, Any]) -> ColumnMerge:
        parameters = json.dumps(entry.get("parameters", {}))
        payload = PayloadRef(entry["payload"], parameters, entry["fingerprint"], entry.get("path", ""))
        return cls(tuple(str(name) for name in entry["columns"]), payload)


Unavailable = tuple[tuple[str | None, Marker], ...]
"""Columns, None for all, with the marker of values that are not given."""


def _marker_json(column: str | None, marker: Marker) -> dict[str, Any]:
    value = {"hex": marker.hex()} if isinstance(marker, bytes) else marker
    return ({} if column is None else {"columns": [column]}) | {"unavailable": value}


def _marker_of(entry: Mapping[str, Any]) -> tuple[str | None, Marker]:
    value, columns = entry["unavailable"], entry.get("columns", [None])
    marker = bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
    if not is_marker(marker):
        raise ValueError(f"no marker: {value!r}")
    (column,) = columns
    return column, marker


@dataclass(frozen=True)
class MergeSpec:
    """The merge rule of a table. `nulls` and `unavailable` apply only to `partial`, `columns` to all but `ordering`."""

    kind: Literal["latest", "ordering", "partial"] = "latest"
    ordering: str | None = None
    nulls: Literal["value", "keep"] = "value"
    columns: tuple[ColumnMerge, ...] = ()
    unavailable: Unavailable = ()
    hudi_commit_time: bool = False
    """A table made by Hudi with COMMIT_TIME_ORDERING: `latest`, with Hudi's limits."""
    expiry: Expiry | None = None

    def __post_init__(self) -> None:
        if self.kind != "partial" and (self.kind == "ordering") != (self.ordering is not None):
            raise InvalidInputError(
                f"pass an ordering column with kind='ordering', and none with kind='latest'. merge={self!r}"
            )
        if self.columns and (self.ordering is not None or self.hudi_commit_time):
            raise InvalidInputError(
                "a table has an ordering column or payloads, not both. To order single columns by another column, use "
                "the payload merge={(…): LatestBy(…)}"
            )
        if self.expiry is not None and (self.custom or self.hudi_commit_time):
            raise InvalidInputError(
                "rows can expire only where whole rows win: omit ttl, or omit merge. With payloads or partial updates, "
                "a write after the expiry would have to start the row afresh, and such merges fold writes without "
                f"their times. ttl={self.ttl!r}"
            )
        names, orders = self.names, [member.ordering for member in self.columns]
        repeated = {name for name in names if names.count(name) > 1}
        if any(names.count(name) > orders.count(name) for name in repeated):
            raise InvalidInputError(
                "a column may have only one payload. Only the ordering column of LatestBy may be in several groups. "
                f"repeated={sorted(repeated)}"
            )
        if repeated and not self.partial:
            raise InvalidInputError(
                "every row gives all columns, so groups with a common ordering column are one group: join them, or use "
                f"merge=PartialUpdate(columns=...). repeated={sorted(repeated)}"
            )

    @cached_property
    def custom(self) -> bool:
        """True if only our readers can merge the rows."""
        return self.kind == "partial" or bool(self.columns)

    @cached_property
    def partial(self) -> bool:
        return self.kind == "partial"

    @property
    def names(self) -> tuple[str, ...]:
        """The ordering column, and the columns with payloads."""
        ordering = () if self.ordering is None else (self.ordering,)
        return (*ordering, *(name for member in self.columns for name in member.columns))

    @property
    def groups(self) -> list[list[ColumnMerge]]:
        """The payloads; those with a common ordering column together."""
        found = dict[object, list[ColumnMerge]]()
        for number, member in enumerate(self.columns):
            found.setdefault(number if member.ordering is None else member.ordering, []).append(member)
        return [sorted(group, key=lambda member: member.fields) for group in found.values()]

    @property
    def ttl(self) -> Ttl | None:
        return None if self.expiry is None else self.expiry.ttl

    @property
    def expiry_columns(self) -> tuple[str, ...]:
        return () if self.expiry is None else (self.expiry.column,)

    def decided_with(self, names: Collection[str]) -> set[str]:
        """Return the columns that a write of these must give: all of their payloads, and the ordering column."""
        orders = [member.ordering for member in self.columns]
        shared = {name for name in names if orders.count(name) > 1}
        own = {*names} - shared
        together = {name for member in self.columns if own & {*member.columns} for name in member.columns}
        alone = shared - together  # only the ordering column: it is set in all groups
        together |= {name for member in self.columns if alone & {*member.columns} for name in member.columns}
        return together if self.ordering is None else {self.ordering, *together}

    @property
    def summary(self) -> str:
        markers = (f"{name or 'all columns'}: unavailable is {marker!r}" for name, marker in self.unavailable)
        members = "; ".join([*map(str, self.columns), *markers])
        return f"{self._rule} ({members})" if members else self._rule

    @property
    def _head(self) -> str:
        return self._rule if self.expiry is None else f"{self._rule}?ttl={self.expiry}"

    @property
    def _rule(self) -> str:
        if self.kind == "partial":
            ordering = "" if self.ordering is None else f"&ordering={quote(self.ordering)}"
            return f"{PARTIAL_UPDATE}?nulls={self.nulls}{ordering}"
        return self.kind if self.ordering is None else f"ordering:{quote(self.ordering)}"

    def __str__(self) -> str:
        members = [member.to_json() for member in self.columns]
        members += [_marker_json(name, marker) for name, marker in self.unavailable]
        if not members:
            return self._head
        return f"{self._head} {json.dumps(members, separators=(',', ':'), sort_keys=True, ensure_ascii=False)}"

    @classmethod
    def parse(cls, text: str) -> MergeSpec:
        """Parse the property `crdt_mor.merge`; raise `InvalidInputError` if it is invalid."""
        head, _, members = text.partition(" ")
        try:
            entries = json.loads(members) if members else []
            columns = tuple(ColumnMerge.of_json(entry) for entry in entries if "unavailable" not in entry)
            unavailable = tuple(_marker_of(entry) for entry in entries if "unavailable" in entry)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidInputError(f"the payloads in merge are invalid: {error!r}. merge={text!r}") from error
        name, _, query = head.partition("?")
        expiry = _expiry_of(query, text)
        if name == "latest" and (expiry is None) == (head == name) and not unavailable:
            return cls(columns=columns, expiry=expiry)
        if name.startswith("ordering:") and (expiry is None) == (not query) and name != "ordering:" and not unavailable:
            return cls("ordering", unquote(name.removeprefix("ordering:")), columns=columns, expiry=expiry)
        nulls, _, ordered = query.partition("&ordering=")
        if name == PARTIAL_UPDATE and nulls in ("", "nulls=value", "nulls=keep") and ("&" in query) == bool(ordered):
            kept: Literal["value", "keep"] = "keep" if nulls == "nulls=keep" else "value"
            return cls("partial", unquote(ordered) or None, kept, columns, unavailable=unavailable)
        raise InvalidInputError(f"no such merge; use {_KNOWN}. merge={text!r}")


def _expiry_of(query: str, text: str) -> Expiry | None:
    if not query.startswith("ttl="):
        return None
    try:
        return Expiry.parse(query.removeprefix("ttl="))
    except ValueError as error:
        raise InvalidInputError(f"the ttl in merge is invalid. merge={text!r}") from error

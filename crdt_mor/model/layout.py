"""The layout of base files: their row order and compression, set by table properties.

    crdt_mor.cluster_by    = country,day     the columns, most important first
    crdt_mor.cluster_order = z-order         default: linear, by the first column, then the next, …
    crdt_mor.compression   = lz4             default: zstd

Answers never change, so the properties may change at any time. A compaction plan freezes its row order, and each base
file stores its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError

CLUSTER_BY: Final = "crdt_mor.cluster_by"
CLUSTER_ORDER: Final = "crdt_mor.cluster_order"
COMPRESSION: Final = "crdt_mor.compression"
NAMES: Final = (CLUSTER_BY, CLUSTER_ORDER, COMPRESSION)

ZSTD: Final = "zstd"
LZ4: Final = "lz4"
CODECS: Final = (ZSTD, LZ4)
"""Parquet's ZSTD and LZ4_RAW."""

LINEAR: Final = "linear"
Z_ORDER: Final = "z-order"
ORDERS: Final = (LINEAR, Z_ORDER)
"""Named as in Hudi's `hoodie.layout.optimize.strategy`."""

Z_ORDER_COLUMNS_MAX: Final = 4
"""With more columns, a z-order clusters none of them well."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The row order of base files: by these columns, then by key.

    compression: of the columns, except incompressible ones.
    """

    columns: tuple[str, ...] = ()
    order: str = LINEAR
    compression: str = ZSTD

    @classmethod
    def of(cls, properties: Iterable[tuple[str, str]]) -> Layout:
        texts = dict(properties)
        order = parsed_order(texts.get(CLUSTER_ORDER, LINEAR))
        columns = parsed_columns(texts[CLUSTER_BY]) if CLUSTER_BY in texts else ()
        _refuse_z_order(columns, order, texts.get(CLUSTER_BY))
        return cls(columns, order if columns else LINEAR, parsed_compression(texts.get(COMPRESSION, ZSTD)))

    @classmethod
    def checked(cls, columns: tuple[str, ...], order: str, compression: str = ZSTD) -> Layout:
        if compression not in CODECS:
            raise InvalidInputError(f"compression must be {ZSTD} or {LZ4}. compression={compression!r:.200}")
        if order not in ORDERS:
            raise InvalidInputError(f"cluster_order must be {LINEAR} or {Z_ORDER}. cluster_order={order!r:.200}")
        if not columns and order != LINEAR:
            raise InvalidInputError(f"{order} needs columns: pass cluster_by=[...]. cluster_order={order!r}")
        _refuse_columns(columns, columns)
        _refuse_z_order(columns, order, columns)
        return cls(columns, order, compression)

    def renamed(self, name: Callable[[str], str]) -> Layout:
        return replace(self, columns=tuple(map(name, self.columns)))

    @property
    def by_key(self) -> bool:
        return not self.columns

    @property
    def properties(self) -> dict[str, str]:
        order = {} if self.order == LINEAR else {CLUSTER_ORDER: self.order}
        clustered = {CLUSTER_BY: ",".join(self.columns), **order} if self.columns else {}
        return clustered if self.compression == ZSTD else {**clustered, COMPRESSION: self.compression}

    def __str__(self) -> str:
        """Format the order for base files and plans: `linear(country,day)`, or `key`."""
        return f"{self.order}({','.join(self.columns)})" if self.columns else "key"

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Parse the text of `__str__`; raise ValueError if it is invalid."""
        if text == "key":
            return BY_KEY
        order, found, rest = text.partition("(")
        if not found or not rest.endswith(")") or order not in ORDERS:
            raise ValueError(f"not a row order: {text!r:.200}")
        return cls(tuple(rest[:-1].split(",")), order)

    def require_columns(self, schema: TableSchema) -> None:
        for name in self.columns:
            index = schema.stored.get_field_index(name)
            if index < 0:
                raise InvalidInputError(
                    f"a cluster_by column does not exist. column={name!r} columns={schema.declared.names}"
                )
            if pa.types.is_nested(schema.stored.field(index).type):
                raise InvalidInputError(
                    "cluster_by columns must have ordered values, such as numbers, strings and times, and not lists, "
                    f"structs or maps. column={name!r} type={schema.declared.field(index).type}"
                )


BY_KEY: Final = Layout()


def with_layout(properties: Iterable[tuple[str, str]], other: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    rest = [(name, value) for name, value in properties if name not in NAMES]
    return tuple(sorted([*rest, *((name, value) for name, value in other if name in NAMES)]))


def parsed_columns(text: str) -> tuple[str, ...]:
    """Parse `crdt_mor.cluster_by`; raise `InvalidInputError` for an empty or repeated name."""
    columns = tuple(name.strip() for name in text.split(","))
    _refuse_columns(columns, text)
    return columns


def _refuse_columns(columns: tuple[str, ...], text: object) -> None:
    if not all(columns):
        raise InvalidInputError(
            f"{CLUSTER_BY} must be comma-separated columns, like country,day; remove the property for the order of "
            f"keys. name={CLUSTER_BY!r} value={text!r:.200}"
        )
    if len(set(columns)) < len(columns):
        raise InvalidInputError(f"{CLUSTER_BY} repeats a column: name it once. name={CLUSTER_BY!r} value={text!r:.200}")


def _refuse_z_order(columns: tuple[str, ...], order: str, text: object) -> None:
    if order == Z_ORDER and len(columns) > Z_ORDER_COLUMNS_MAX:
        raise InvalidInputError(
            f"a z-order has at most {Z_ORDER_COLUMNS_MAX} columns, as more would cluster none well: name fewer, or "
            f"use {LINEAR}. {CLUSTER_BY}={text!r}"
        )


def parsed_order(text: str) -> str:
    return _one_of(ORDERS, CLUSTER_ORDER, text)


def parsed_compression(text: str) -> str:
    return _one_of(CODECS, COMPRESSION, text)


def _one_of(words: tuple[str, ...], name: str, text: str) -> str:
    word = text.strip()
    if word not in words:
        raise InvalidInputError(
            f"{name} must be {' or '.join(words)} (default {words[0]}). name={name!r} value={text!r:.200}"
        )
    return word


PARSED: Final[Mapping[str, Callable[[str], object]]] = {
    CLUSTER_BY: parsed_columns, CLUSTER_ORDER: parsed_order, COMPRESSION: parsed_compression
}  # fmt: skip


def with_columns(text: str, name: Callable[[str], str]) -> str:
    return ",".join(map(name, parsed_columns(text)))


def layout_properties(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, properties[name]) for name in sorted(NAMES) if name in properties)

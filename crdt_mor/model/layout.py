"""How a table's base files are laid out, which its properties ask for: the order of rows, and how they are compressed.

    crdt_mor.cluster_by    = country,day     the columns, most important first
    crdt_mor.cluster_order = z-order         linear, unless it is said: by the first column, then by the next, …
    crdt_mor.compression   = lz4             zstd, unless it is said

Rows that are near each other in these columns lie in few row groups then, so that a filter on them skips the others by
their statistics. No row changes, nor does any answer: both are properties like any other, which may be changed at any
time. A plan of a compaction freezes the order that it was made with, and a base file says which one it has. Base files
that are compressed in different ways lie side by side.
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
"""The properties that say it."""

ZSTD: Final = "zstd"
LZ4: Final = "lz4"
CODECS: Final = (ZSTD, LZ4)
"""Parquet's ZSTD and LZ4_RAW."""

LINEAR: Final = "linear"
Z_ORDER: Final = "z-order"
ORDERS: Final = (LINEAR, Z_ORDER)
"""Hudi's words for them, as in its `hoodie.layout.optimize.strategy`."""

Z_ORDER_COLUMNS_MAX: Final = 4
"""Columns of a z-order: with more, rows that are near each other in one of them lie everywhere."""


@dataclass(frozen=True, slots=True)
class Layout:
    """An order of rows: by these columns, and where they are equal by key; without any column by key alone.

    compression: of the columns in base files, of all that get smaller by it.
    """

    columns: tuple[str, ...] = ()
    order: str = LINEAR
    compression: str = ZSTD

    @classmethod
    def of(cls, properties: Iterable[tuple[str, str]]) -> Layout:
        """What properties ask for. Raises `InvalidInputError` for what is no order."""
        texts = dict(properties)
        order = parsed_order(texts.get(CLUSTER_ORDER, LINEAR))
        columns = parsed_columns(texts[CLUSTER_BY]) if CLUSTER_BY in texts else ()
        _refuse_z_order(columns, order, texts.get(CLUSTER_BY))
        return cls(columns, order if columns else LINEAR, parsed_compression(texts.get(COMPRESSION, ZSTD)))

    @classmethod
    def asked(cls, columns: tuple[str, ...], order: str, compression: str = ZSTD) -> Layout:
        """What a user asks for when a table is created."""
        if compression not in CODECS:
            raise InvalidInputError(f"compression is {ZSTD} or {LZ4}. compression={compression!r:.200}")
        if order not in ORDERS:
            raise InvalidInputError(f"cluster_order is {LINEAR} or {Z_ORDER}. cluster_order={order!r:.200}")
        if not columns and order != LINEAR:
            raise InvalidInputError(f"say which columns are in {order}, cluster_by=[...]. cluster_order={order!r}")
        _refuse_columns(columns, columns)
        _refuse_z_order(columns, order, columns)
        return cls(columns, order, compression)

    def renamed(self, name: Callable[[str], str]) -> Layout:
        """The same layout under other names of the columns."""
        return replace(self, columns=tuple(map(name, self.columns)))

    @property
    def by_key(self) -> bool:
        """Whether it is the order of keys, which a base file has unless it says otherwise."""
        return not self.columns

    @property
    def properties(self) -> dict[str, str]:
        """The properties that ask for it."""
        order = {} if self.order == LINEAR else {CLUSTER_ORDER: self.order}
        clustered = {CLUSTER_BY: ",".join(self.columns), **order} if self.columns else {}
        return clustered if self.compression == ZSTD else {**clustered, COMPRESSION: self.compression}

    def __str__(self) -> str:
        """The order, as base files and plans say it: `linear(country,day)`, or `key`."""
        return f"{self.order}({','.join(self.columns)})" if self.columns else "key"

    @classmethod
    def parse(cls, text: str) -> Layout:
        """The order that `str` made of it; raises ValueError for anything else."""
        if text == "key":
            return BY_KEY
        order, found, rest = text.partition("(")
        if not found or not rest.endswith(")") or order not in ORDERS:
            raise ValueError(f"no order of rows: {text!r:.200}")
        return cls(tuple(rest[:-1].split(",")), order)

    def require_columns(self, schema: TableSchema) -> None:
        """Raise `InvalidInputError` unless the table has these columns, and each has values that can be ordered."""
        for name in self.columns:
            index = schema.stored.get_field_index(name)
            if index < 0:
                raise InvalidInputError(
                    "rows are clustered by columns of the table, and this is none. "
                    f"column={name!r} columns={schema.declared.names}"
                )
            if pa.types.is_nested(schema.stored.field(index).type):
                raise InvalidInputError(
                    "rows are clustered by columns whose values have an order, such as numbers, texts and times: "
                    f"lists, structs and maps have none. column={name!r} type={schema.declared.field(index).type}"
                )


BY_KEY: Final = Layout()


def with_layout(properties: Iterable[tuple[str, str]], other: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Properties, by name, with the layout that others ask for."""
    rest = [(name, value) for name, value in properties if name not in NAMES]
    return tuple(sorted([*rest, *((name, value) for name, value in other if name in NAMES)]))


def parsed_columns(text: str) -> tuple[str, ...]:
    """The columns that a property names; raises `InvalidInputError` for what names none, or one twice."""
    columns = tuple(name.strip() for name in text.split(","))
    _refuse_columns(columns, text)
    return columns


def _refuse_columns(columns: tuple[str, ...], said: object) -> None:
    if not all(columns):
        raise InvalidInputError(
            f"{CLUSTER_BY} is columns with commas between them, like country,day; take the property away for the order "
            f"of keys. name={CLUSTER_BY!r} value={said!r:.200}"
        )
    if len(set(columns)) < len(columns):
        raise InvalidInputError(f"{CLUSTER_BY} names each column once. name={CLUSTER_BY!r} value={said!r:.200}")


def _refuse_z_order(columns: tuple[str, ...], order: str, said: object) -> None:
    if order == Z_ORDER and len(columns) > Z_ORDER_COLUMNS_MAX:
        raise InvalidInputError(
            f"a z-order is of {Z_ORDER_COLUMNS_MAX} columns at most, as each makes the others count for less: name "
            f"fewer, or use {LINEAR}. {CLUSTER_BY}={said!r}"
        )


def parsed_order(text: str) -> str:
    """The order that a property names; raises `InvalidInputError` for what is none."""
    return _one_of(ORDERS, CLUSTER_ORDER, text)


def parsed_compression(text: str) -> str:
    """The compression that a property names; raises `InvalidInputError` for what is none."""
    return _one_of(CODECS, COMPRESSION, text)


def _one_of(words: tuple[str, ...], name: str, text: str) -> str:
    """The word that a property names; its default is the first one. Raises `InvalidInputError` for any other text."""
    word = text.strip()
    if word not in words:
        raise InvalidInputError(
            f"{name} is {' or '.join(words)}, and by default {words[0]}. name={name!r} value={text!r:.200}"
        )
    return word


PARSED: Final[Mapping[str, Callable[[str], object]]] = {
    CLUSTER_BY: parsed_columns, CLUSTER_ORDER: parsed_order, COMPRESSION: parsed_compression
}  # fmt: skip
"""What each of the properties may be by itself, by its name."""


def with_columns(text: str, name: Callable[[str], str]) -> str:
    """The text of `crdt_mor.cluster_by` under other names of the columns. name: the other one of a column."""
    return ",".join(map(name, parsed_columns(text)))


def said(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Those of the properties in Hudi's file of settings that a new table begins with."""
    return tuple((name, properties[name]) for name in sorted(NAMES) if name in properties)

"""The columns of a table.

    declared   the user's Arrow types, order and nullability    returned by every read
    stored     Parquet types: canonical, all nullable           used by the merge
    avro       the schema for Hudi's readers

`normalise` converts incoming data to stored types without changing a value; `restore` converts back. `join` combines
the schemas of two writers that grow them at once; it is a semilattice, so their order does not matter.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from crdt_mor.columns import avro, casts
from crdt_mor.columns.arrow_input import read_arrow
from crdt_mor.columns.growth import grown, without_nulls
from crdt_mor.columns.shown_fields import as_declared
from crdt_mor.columns.types import (
    check_name,
    declared_type,
    field_of,
    join_types,
    stored_type,
    type_from_json,
    type_to_json,
    without_views,
)
from crdt_mor.errors import FormatError, InvalidInputError, SchemaMismatchError, UnsupportedFeatureError

META_COLUMNS: Final[tuple[str, ...]] = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
"""Hudi's five string columns, first in every file."""

IS_DELETED: Final = "_hoodie_is_deleted"
"""Optional column of Hudi tables: true in a log block marks a delete."""

RESERVED_PREFIXES: Final = ("_hoodie_", "_crdt_")

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
CHANGE_COLUMNS: Final = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
"""Extra columns of change rows, as in Delta's change data feed."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's user columns; `of` checks and builds them.

    `became` contains pairs of former and current column name (None if dropped), for messages.
    """

    declared: pa.Schema
    became: tuple[tuple[str, str | None], ...] = field(default=(), repr=False, compare=False, kw_only=True)
    stored: pa.Schema = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        stored = pa.schema([pa.field(column.name, stored_type(column.type, column.name)) for column in self.declared])
        object.__setattr__(self, "stored", stored)
        object.__setattr__(self, "_hash", hash(tuple(self.declared.names)))

    def __hash__(self) -> int:
        return self._hash

    @classmethod
    def of(cls, schema: pa.Schema) -> TableSchema:
        """Check a schema; raise for invalid types and names, with the column."""
        refuse_reserved(schema.names)
        checked = cls._of(schema)
        _refuse_names_that_differ_in_case(checked.declared)
        return checked

    @classmethod
    def _of(cls, schema: pa.Schema) -> TableSchema:
        _refuse_repeated(schema.names)
        if len(schema) == 0:
            raise InvalidInputError("a table needs at least one column. columns=[]")
        for name in schema.names:
            check_name(name, name)
        return cls._of_known_names(schema)

    @classmethod
    def _of_known_names(cls, schema: pa.Schema) -> TableSchema:
        return cls(pa.schema([pa.field(c.name, declared_type(c.type, c.name), c.nullable) for c in schema]))

    def __contains__(self, name: str) -> bool:
        return bool(self.declared.get_field_index(name) >= 0)

    def select(self, names: Iterable[str]) -> TableSchema:
        """Return these columns, in this order; unknown names are skipped."""
        return TableSchema(pa.schema([column for name in names if (column := field_of(self.declared, name))]))

    def meant(self, unknown: Iterable[str]) -> str:
        """Explain unknown names, as part of an error: a rename, a drop or a similar name."""
        became, known = dict(self.became), self.declared.names
        return "".join(f"; {_fate_of(name, became[name])}" if name in became else near(name, known) for name in unknown)

    def require(self, names: Iterable[str]) -> None:
        unknown = [name for name in names if name not in self]
        if unknown:
            raise InvalidInputError(
                f"no such columns{self.meant(unknown)}. unknown={unknown} known={self.declared.names}"
            )

    @property
    def dropped(self) -> frozenset[str]:
        return frozenset(name for name, new in dict(self.became).items() if new is None)

    def require_not_renamed(self, names: Iterable[str], *, grows: bool = False) -> None:
        """Raise `SchemaMismatchError` for former names of renamed columns, unless another column uses the name now.

        With `grows`, other unknown names would be added.
        """
        became = dict(self.became)
        renamed = {name: new for name in names if (new := became.get(name)) is not None and name not in self}
        if renamed:
            said = ", and ".join(f"{_fate_of(name, new)}: write it as {new!r}" for name, new in renamed.items())
            other = "" if not grows else "; to add another column, use a third name first, then rename"
            raise SchemaMismatchError(f"{said}{other}. unknown={[*renamed]} known={self.declared.names}")

    # --- as text --------------------------------------------------------------------------------------------------

    def avro(self, table: str) -> str:
        """Return the user's columns as Avro JSON, for commit metadata."""
        return avro.record_json(self.stored, table)

    def avro_with_meta(self, table: str) -> str:
        """Return Avro JSON with Hudi's five columns first, for log blocks and footers."""
        return avro.record_json(self.stored, table, META_COLUMNS)

    def create_avro(self, table: str) -> str:
        """Return Avro JSON for Hudi's table properties: null last, no defaults."""
        return avro.record_json(self.stored, table, null_first=False)

    @classmethod
    def from_avro(cls, text: str) -> TableSchema:
        """Return the schema of a Hudi table, without Hudi's five columns."""
        columns = [column for column in avro.parse_record(text) if column.name not in META_COLUMNS]
        for column in columns:
            if column.name.startswith(RESERVED_PREFIXES) and column.name != IS_DELETED:
                raise UnsupportedFeatureError(
                    "this release does not know a Hudi meta column of the table: use "
                    f"Hudi's own reader. column={column.name}"
                )
        return cls._of(pa.schema(columns))

    def to_json(self) -> str:
        """Return one line: `[[name, type], [name, type, 0 if not nullable], ...]`. Ids follow in `model.field_ids`."""
        columns = [[c.name, type_to_json(c.type), *([] if c.nullable else [0])] for c in self.declared]
        return json.dumps(columns, separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    @lru_cache(maxsize=64)
    def from_json(text: str) -> TableSchema:
        """Parse `to_json` text; cached, because each frame and write asks for it."""
        try:
            columns = [pa.field(name, type_from_json(kind), rest[:1] != [0]) for name, kind, *rest in json.loads(text)]
        except (
            ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, pa.ArrowException,
        ) as error:  # fmt: skip
            raise FormatError(f"not a table schema: {error}. schema={text[:200]!r}") from error
        return TableSchema(pa.schema(columns))

    # --- growing --------------------------------------------------------------------------------------------------

    def join(self, other: TableSchema) -> TableSchema:
        """Return the least schema for the rows of both: own columns first, then the other's.

        Columns of only one side become nullable.
        """
        joined = []
        for left in self.declared:
            right = field_of(other.declared, left.name)
            if right is None:
                joined.append(left.with_nullable(True))
            else:
                kind = join_types(left.type, right.type, left.name)
                joined.append(pa.field(left.name, kind, left.nullable or right.nullable))
        joined += [column.with_nullable(True) for column in other.declared if column.name not in self]
        return TableSchema(pa.schema(joined))

    def join_hudi(self, text: str) -> TableSchema:
        """Return the least schema for these rows and rows of Hudi with an Avro schema."""
        columns = []
        for column in TableSchema.from_avro(text).declared:
            own = field_of(self.declared, column.name)
            columns.append(column if own is None else column.with_type(as_declared(column.type, own.type)))
        return self.join(TableSchema(pa.schema(columns)))

    def grow(self, batch: pa.Schema) -> TableSchema:
        """Widen this schema as little as a batch needs, for `schema_mode="merge"`.

        Columns keep type and nullability if the batch fits. New columns are nullable; text views, as in polars, become
        `string`. Nested columns grow in the same way. Missing columns stay, and columns or fields of type null add
        nothing.
        """
        typed = [column for column in map(self._without_nulls, batch) if column is not None]
        refuse_reserved(column.name for column in typed if column.name not in self)
        _refuse_repeated(column.name for column in typed)
        new = TableSchema._of_known_names(pa.schema(typed))
        columns: list[pa.Field] = []
        for column in self.declared:
            written = field_of(new.declared, column.name)
            kind = column.type if written is None else grown(column.type, written.type, column.name)
            if kind != column.type:
                _refuse_names_that_differ_in_case([column.with_type(kind)])
            columns.append(column.with_type(kind))
        added = [
            column.with_nullable(True).with_type(without_views(column.type))
            for column in new.declared
            if column.name not in self
        ]
        _refuse_names_that_differ_in_case(added, self.declared.names)
        return TableSchema(pa.schema([*columns, *added]))

    def _without_nulls(self, column: pa.Field) -> pa.Field | None:
        """Return a batch's column without fields of type null; None if nothing is left."""
        kind = without_nulls(column.type)
        new = column.name not in self and not pa.types.is_null(column.type)
        if kind is None:
            return column if new else None
        return column.with_type(kind)

    # --- data in, data out ----------------------------------------------------------------------------------------

    def normalise(
        self, data: pa.Table, accepts: Mapping[str, Sequence[pa.DataType]] = MappingProxyType({})
    ) -> pa.Table:
        """Convert `data` to stored types in the table's column order; refuse changes of values.

        `accepts` lists other allowed types by column, in order of preference.
        """
        names = {*data.column_names}
        if len(names) < data.num_columns:
            _refuse_repeated(data.column_names)
        if not names.issubset(self.declared.names):
            self.refuse_unknown(data.schema)
        arrays = {}
        for column, stored in zip(self.declared, self.stored, strict=True):
            name = column.name
            if name not in names:
                continue
            written, field, target = data.column(name), column, stored.type
            casts.require_sound(written, name)
            if name in accepts:
                field = _as_accepted(written.type, column, accepts[name])
                target = stored_type(field.type, name)
            arrays[name] = casts.to_stored(written, field, target)
        return pa.table(arrays)

    def refuse_unknown(self, given: pa.Schema) -> None:
        unknown = [name for name in given.names if name not in self]
        reserved = [name for name in unknown if _is_own(name)]
        if reserved:
            raise SchemaMismatchError(f"drop the table's own columns before writing. columns={reserved}")
        if not unknown:
            return
        self.require_not_renamed(unknown)
        known = {name.lower(): name for name in self.declared.names}
        misspelt = {name: known[name.lower()] for name in unknown if name.lower() in known}
        if misspelt:
            raise SchemaMismatchError(
                f"column names differ only in case from the table's: rename them. columns={misspelt}"
            )
        _refuse_void(given, unknown)
        raise SchemaMismatchError(
            f'no such columns: drop them, or add them with schema_mode="merge"{self.meant(unknown)}. '
            f"unknown={unknown} known={self.declared.names}"
        )

    def restore(self, data: pa.Table) -> pa.Table:
        """Convert `data` to declared types: any columns in any order, Hudi's five as strings."""
        if not data.num_columns:
            return data  # keeps the number of rows
        columns, arrays = [], []
        for name, array in zip(data.schema.names, data.columns, strict=True):
            declared = field_of(self.declared, name)
            # Nulls in a column without nulls, as in a delete's before-image, make the field nullable.
            column = pa.field(name, pa.string()) if declared is None else declared
            assert declared is not None or name.startswith(RESERVED_PREFIXES), f"no column of this table: {name}"
            if not column.nullable and array.null_count:
                column = column.with_nullable(True)
            if declared is None and not name.startswith("_hoodie_"):
                column = pa.field(name, array.type)
            columns.append(column)
            arrays.append(_restored(array, column))
        return pa.table(arrays, schema=pa.schema(columns))


def _restored(stored: pa.ChunkedArray, column: pa.Field) -> pa.ChunkedArray:
    try:
        return casts.require_bounds(casts.to_declared(stored, column.type))
    except pa.ArrowInvalid as error:
        raise FormatError(
            "the files contain a value that the column cannot have, written by another program: correct or delete the "
            f"row there, or delete the row by its key. column={column.name} type={column.type} cause={error}"
        ) from error


def _as_accepted(written: pa.DataType, column: pa.Field, accepts: Sequence[pa.DataType]) -> pa.Field:
    kind = next((kind for kind in accepts if casts.meets(written, kind)), None)
    if kind is None:
        known = ", ".join(map(str, accepts))
        raise SchemaMismatchError(
            f"the column does not accept this type: cast it. column={column.name} type={written} accepted={known}"
        )
    return column.with_type(kind)


def _refuse_void(given: pa.Schema, unknown: Iterable[str]) -> None:
    void = [name for name in unknown if pa.types.is_null(given.field(name).type)]
    if void:
        raise SchemaMismatchError(
            "the rows have a column of type null that the table lacks: drop the column, or give it a type. "
            f"columns={void}"
        )


def near(unknown: str, known: Iterable[str]) -> str:
    """Suggest a similar name as part of an error, or ""."""
    from difflib import get_close_matches

    names = list(known)
    lower = {name.lower(): name for name in names}
    match = lower.get(unknown.lower()) or next(iter(get_close_matches(unknown, names, 1)), None)
    return f"; is {match!r} meant by {unknown!r}?" if match else ""


def _fate_of(name: str, new: str | None) -> str:
    return f"{name!r} was dropped" if new is None else f"{name!r} was renamed to {new!r}"


def _refuse_repeated(names: Iterable[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InvalidInputError(f"column names must differ: rename columns. repeated={repeated}")


def _is_own(name: str) -> bool:
    return name.lower() in CHANGE_COLUMNS or name.startswith(RESERVED_PREFIXES)


def refuse_reserved(names: Iterable[str]) -> None:
    for name in names:
        if name.lower() in CHANGE_COLUMNS:
            raise InvalidInputError(
                "this column name is reserved for rows of changes: rename or drop it, for example with rename=. "
                f"column={name}"
            )
        if name.lower().startswith(RESERVED_PREFIXES):
            raise InvalidInputError(
                f"names that begin with _hoodie_ or _crdt_ are reserved: rename or drop it. column={name}"
            )


def _refuse_names_that_differ_in_case(columns: Iterable[pa.Field], known: Iterable[str] = (), above: str = "") -> None:
    seen = {name.lower(): name for name in known}
    for column in columns:
        other = seen.setdefault(column.name.lower(), column.name)
        if other != column.name:
            raise InvalidInputError(
                "names differ only in case, which Spark ignores: rename a column. "
                f"column={above}{column.name} other={above}{other}"
            )
        inner = [column.type.field(index) for index in range(column.type.num_fields)]
        _refuse_names_that_differ_in_case(inner, above=f"{above}{column.name}.")


__all__ = ["META_COLUMNS", "RESERVED_PREFIXES", "TableSchema", "read_arrow"]

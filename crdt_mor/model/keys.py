"""Record keys, partition paths and buckets: which file contains a row.

    key columns        -> record key      `7`, or `id:7,day:2026-01-01` for a composite key
    partition columns  -> partition path  `eu/2026-01-01`, or `region=eu/day=2026-01-01` in hive style; a function
                                          of a column takes the place of a column, see `partition_functions`
    record key         -> bucket          Java's hash of the key's values, as in Hudi

The texts are Hudi's and must identify a row, so ambiguous values raise an error. Since table version 9, the text of one
key column with several partition columns contains the column's name (`id:7`), and `composite` is True.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from crdt_mor.columns.kinds import kind_of
from crdt_mor.columns.schema import TableSchema
from crdt_mor.columns.texts import empty_texts, text_scalar
from crdt_mor.columns.types import stored_type, values_of
from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from crdt_mor.ground.late_imports import pc
from crdt_mor.model import java_hash
from crdt_mor.model.partition_functions import TIMES, PartitionBy, PartitionFunction, sources
from crdt_mor.model.partition_values import function_values, require_type, result_type

DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
"""The path of null or empty partition values."""

NULL_KEY: Final = "__null__"
EMPTY_KEY: Final = "__empty__"

_GENERATORS: Final = ("SIMPLE", "COMPLEX", "NON_PARTITION")
_OF_TIMES: Final = ("TIMESTAMP", "CUSTOM")
"""Hudi's key generators that format times in partition paths, such as `2026/01/31` from seconds."""
_NAME_BYTES_MAX: Final = 255
_FUNCTIONS: Final = ": the functions are year, month, day, hour, bucket and truncate, not as text in Python"
_FUNCTION_ALONE: Final = ": the function of that name takes a column, such as {name}(ts)"
_UNSAFE_IN_PATH: Final = r"[/:\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}"
"""Hadoop takes text before a colon for a scheme, and Spark decodes `%41` to A."""


@dataclass(frozen=True)
class KeySpec:
    fields: tuple[str, ...]
    partition_by: PartitionBy = ()
    hive_style: bool = False
    generator: str = ""
    """The key generator of a table made by Hudi. Empty: derived from the columns."""
    value_only: bool = False
    """A single COMPLEX key without its column name, from Hudi 0.14.1 to 1.0.2."""
    url_encode: bool = False
    hash_fields: tuple[str, ...] = ()
    """The hashed key columns, if a table made by Hudi does not hash the whole key."""

    def __post_init__(self) -> None:
        if not self.fields:
            raise InvalidInputError("a table needs a record key: name at least one column.")
        for names, what in ((self.fields, "record key"), (self.partition_by, "partition")):
            if len(set(names)) < len(names):
                twice = [*map(str, names)]
                raise InvalidInputError(f"the {what} has a column twice: name each column once. columns={twice}")

    @cached_property
    def partition_fields(self) -> tuple[str, ...]:
        """The columns that determine a row's partition, each once."""
        return sources(self.partition_by)

    @cached_property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a row, each once: the key's, then the others that determine its partition."""
        return tuple(dict.fromkeys((*self.fields, *self.partition_fields)))

    @cached_property
    def partition_columns(self) -> tuple[str, ...]:
        """The stored column of each level: Hudi's partition fields."""
        return tuple(one if isinstance(one, str) else one.column for one in self.partition_by)

    @cached_property
    def functions(self) -> tuple[PartitionFunction, ...]:
        return tuple(one for one in self.partition_by if not isinstance(one, str))

    @cached_property
    def keygen_type(self) -> str:
        if self.generator:
            return self.generator
        if not self.partition_by:
            return "NON_PARTITION"
        return "SIMPLE" if len(self.fields) == len(self.partition_by) == 1 else "COMPLEX"

    @cached_property
    def composite(self) -> bool:
        """True if the record key is `f1:v1,f2:v2`, not the text of the only key column."""
        return len(self.fields) > 1 or (self.keygen_type == "COMPLEX" and not self.value_only)

    @cached_property
    def times(self) -> tuple[str, ...]:
        """Partition columns that may be times: text for Hudi, perhaps stored as numbers."""
        return self.partition_fields if self.keygen_type in _OF_TIMES else ()

    def check_types(self, schema: TableSchema | pa.Schema) -> None:
        """Raise `InvalidInputError` for missing columns, and for types that engines format differently."""
        declared = schema.declared if isinstance(schema, TableSchema) else schema
        for levels, what in ((self.fields, "record key"), (self.partition_by, "partition")):
            for level in levels:
                name = level if isinstance(level, str) else level.source
                if name not in declared.names:
                    raise InvalidInputError(
                        f"a {what} column does not exist{_hint(level, what)}. column={name} columns={declared.names}"
                    )
                kind = declared.field(name).type
                plain = values_of(kind)
                if isinstance(level, PartitionFunction):
                    require_type(level, stored_type(kind, name))
                    continue
                family = kind_of(plain)
                if not (family.may_be_partition(plain) if what == "partition" else family.may_be_key(plain)):
                    raise InvalidInputError(
                        f"a {what} column must be a string, an integer or a date: cast it to string. "
                        f"column={name} type={kind}"
                    )

    # --- rows to text ---------------------------------------------------------------------------------------------

    def record_keys(self, data: pa.Table) -> pa.Array:
        """Return the record key of every row; raise `InvalidInputError` for a missing key."""
        self.refuse_foreign_generator()
        if not self.composite:
            name = self.fields[0]
            text = _key_text(data.column(name), name)
            if text.null_count:
                _refuse(text.is_null(), name, "a record key cannot be null")
            _refuse(pc.equal(text, text_scalar("")), name, "a record key cannot be empty")
            return text
        parts: list[pa.Array | pa.Scalar] = []
        missing: pa.Array | None = None
        for index, name in enumerate(self.fields):
            text = _key_text(data.column(name), name)
            self._refuse_ambiguous(text, name)
            empty = pc.or_kleene(text.is_null(), pc.equal(text, text_scalar("")))
            missing = empty if missing is None else pc.and_(missing, empty)
            text = pc.if_else(pc.equal(text, text_scalar("")), text_scalar(EMPTY_KEY), text)
            text = pc.fill_null(text, text_scalar(NULL_KEY))
            parts += [text_scalar(f"{',' if index else ''}{name}:"), text]
        _refuse(missing, ",".join(self.fields), "a record key cannot be null or empty in all its columns")
        return pc.binary_join_element_wise(*parts, text_scalar(""))

    def _refuse_ambiguous(self, text: pa.Array, name: str) -> None:
        for placeholder in (NULL_KEY, EMPTY_KEY):
            reason = f"{placeholder} means a missing value in a composite record key"
            _refuse(pc.equal(text, text_scalar(placeholder)), name, reason)
        if text.type != pa.string() or not pc.any(pc.match_substring(text, ",")).as_py():
            return
        for other in self.fields:
            reason = f"with `,{other}:` inside a value, two rows could share one record key"
            _refuse(pc.match_substring(text, f",{other}:"), name, reason)

    def partition_paths(self, data: pa.Table) -> pa.Array:
        """Return the partition path of every row. Empty in an unpartitioned table."""
        self.refuse_foreign_generator()
        if not self.partition_by:
            return empty_texts(data.num_rows)
        columns = {name: data.column(name) for name in self.partition_by if isinstance(name, str)}
        return self.paths_of({**columns, **self.function_values(data)})

    def paths_of(self, values: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Array:
        """Return the path of each row of `partition_columns`."""
        named = zip(self.partition_columns, self.partition_by, strict=True)
        levels = [self._level(values[name], name, str(level)) for name, level in named]
        return levels[0] if len(levels) == 1 else pc.binary_join_element_wise(*levels, text_scalar("/"))

    def function_values(self, data: pa.Table) -> dict[str, pa.Array]:
        """Return the functions' values by stored column. data: rows with their sources."""
        return {one.column: function_values(one, data.column(one.source)) for one in self.functions}

    def _level(self, column: pa.Array | pa.ChunkedArray, name: str, called: str) -> pa.Array:
        """Return a directory name per row. Each distinct value is checked once. called: the level, for messages."""
        encoded = _key_text(column, name).dictionary_encode()
        encoded = encoded if isinstance(encoded, pa.DictionaryArray) else encoded.combine_chunks()
        values = encoded.dictionary
        prefix = f"{name}=" if self.hive_style else ""
        for bad, reason in self._path_rules(values, prefix):
            if pc.any(bad).as_py():
                index = pc.index(bad, True).as_py()
                row = pc.index(encoded.indices, pa.scalar(index, encoded.indices.type)).as_py()
                value = values[index].as_py()
                raise InvalidInputError(f"{reason}: map it to another value. column={called} row={row} value={value!r}")
        values = pc.if_else(pc.equal(values, text_scalar("")), text_scalar(DEFAULT_PARTITION), values)
        paths = pc.binary_join_element_wise(text_scalar(prefix), values, text_scalar("")) if prefix else values
        return pc.fill_null(paths.take(encoded.indices), text_scalar(prefix + DEFAULT_PARTITION))

    def _path_rules(self, values: pa.Array, prefix: str) -> list[tuple[pa.Array, str]]:
        room = _NAME_BYTES_MAX - len(prefix)
        rules = [
            (
                pc.match_substring_regex(values, _UNSAFE_IN_PATH),
                "Hudi cannot read a directory with /, :, a control character, or % before two hex digits",
            ),
            (
                pc.equal(values, text_scalar(DEFAULT_PARTITION)),
                f"{DEFAULT_PARTITION} means a missing partition value",
            ),
        ]
        lengths = pc.binary_length(values)
        if (pc.max(lengths).as_py() or 0) > room:
            rules.append((pc.greater(lengths, room), "a partition value is too long for a directory name"))
        if not self.hive_style:
            hidden = pc.match_substring_regex(values, r"^[._]")
            rules.append((hidden, "Hudi's readers skip directories that begin with . or _"))
        return rules

    @cached_property
    def is_foreign(self) -> bool:
        """True if this release can only read such keys or partition paths."""
        return self.keygen_type not in _GENERATORS or self.url_encode

    def refuse_foreign_generator(self) -> None:
        if self.is_foreign:
            raise UnsupportedFeatureError(
                "this release can read, but not write, this kind of keys or partition paths. "
                f"key_generator={self.keygen_type} url_encode={self.url_encode}"
            )
        if strange := [name for name in self.hash_fields if name not in self.fields]:
            raise InvalidInputError(
                "hoodie.bucket.index.hash.field contains columns outside the record key: correct the property. "
                f"columns={strange} key={list(self.fields)}"
            )

    # --- text to values -------------------------------------------------------------------------------------------

    def key_values(self, record_keys: pa.Array, stored: pa.Schema) -> dict[str, pa.Array]:
        if not self.composite:
            texts = {self.fields[0]: record_keys}
        else:
            # `record_keys` guarantees that no value contains `,name:` of a key column.
            pattern = ",".join(f"{re.escape(name)}:(?P<c{i}>.*?)" for i, name in enumerate(self.fields))
            parts = pc.extract_regex(record_keys, f"(?s)^{pattern}$")
            texts = {name: pc.struct_field(parts, f"c{i}") for i, name in enumerate(self.fields)}
        return {name: self._typed(name, text, stored.field(name).type) for name, text in texts.items()}

    def _typed(self, name: str, text: pa.Array, kind: pa.DataType) -> pa.Array:
        if self.composite:
            text = pc.if_else(pc.equal(text, NULL_KEY), pa.scalar(None, text.type), text)
            text = pc.if_else(pc.equal(text, EMPTY_KEY), "", text)
        values = kind_of(kind).from_key_texts(text, kind)
        if values is None:
            raise UnsupportedFeatureError(
                "deleted rows keep their key only as text, and engines format this type differently. "
                f"column={name} type={kind}"
            )
        return values

    def partition_values(self, path: str, stored: pa.Schema) -> dict[str, object]:
        """Return the values of `partition_columns` that a partition path determines, for pruning.

        A null or empty string is unclear, and so are paths of another key generator. Such columns are omitted.
        """
        levels = path.split("/") if len(self.partition_by) > 1 else [path]
        if self.keygen_type not in _GENERATORS or len(levels) != len(self.partition_by):
            return {}
        values: dict[str, object] = {}
        for name, level in zip(self.partition_columns, levels, strict=True):
            text = level.removeprefix(f"{name}=") if self.hive_style else level
            text = unquote(text) if self.url_encode else text
            index = stored.get_field_index(name)
            known, value = _parse(text, stored.field(index).type) if index >= 0 else (False, None)
            if known:
                values[name] = value
        return values

    def function_fields(self, stored: pa.Schema) -> list[pa.Field]:
        """Return the stored columns of the functions. stored: the columns with their sources."""
        return [pa.field(one.column, result_type(one, stored.field(one.source).type)) for one in self.functions]


def buckets(record_keys: pa.Array | pa.ChunkedArray, spec: KeySpec, count: int) -> npt.NDArray[np.int32]:
    """Return the bucket of every record key, as Hudi's simple bucket index does."""
    if count < 1:
        raise InvalidInputError(f"a table needs at least 1 bucket. buckets={count}")
    if count == 1:
        return np.zeros(len(record_keys), dtype=np.int32)
    hashes = java_hash.key_hashes(_text(record_keys), spec.fields, composite=spec.composite, hashed=spec.hash_fields)
    numbers: npt.NDArray[np.int32] = ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)
    return numbers


# --- helpers ------------------------------------------------------------------------------------------------------


def _key_text(data: pa.Array | pa.ChunkedArray, name: str) -> pa.Array:
    """Convert a key or partition column to text as Hudi's upserts do."""
    kind = values_of(data.type)
    text = data if kind == pa.string() or pt.is_null(kind) else kind_of(kind).key_texts(data, kind)
    if text is not None:
        return _text(text)
    raise UnsupportedFeatureError(
        "engines format this type differently, so a row could live twice: copy the table to one with this key or "
        f"partition column cast to a string. column={name} type={kind}"
    )


def _text(data: pa.Array | pa.ChunkedArray) -> pa.Array:
    text = data if data.type == pa.string() else data.cast(pa.string())
    if isinstance(text, pa.ChunkedArray):
        text = text.combine_chunks() if text.num_chunks else empty_texts(0)
        text = text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text
    return text


def _refuse(bad: pa.Array, column: str, reason: str) -> None:
    if pc.any(bad).as_py():
        row = pc.index(bad, True).as_py()
        raise InvalidInputError(f"{reason}: fill it in or leave the row out. column={column} row={row}")


def _parse(text: str, kind: pa.DataType) -> tuple[bool, object]:
    """Return whether `text` has a definite value of type `kind`, and the value."""
    family = kind_of(kind)
    if text == DEFAULT_PARTITION:  # of text, this may be null or empty
        return family.may_be_partition(kind) and kind != pa.string(), None
    try:
        return True, family.path_value(text)
    except ValueError:
        return False, None


def _hint(level: str | PartitionFunction, what: str) -> str:
    """Explain a missing column."""
    if not isinstance(level, str):
        return ""
    if "(" in level:
        return _FUNCTIONS
    return _FUNCTION_ALONE.format(name=level) if what == "partition" and level in TIMES else ""

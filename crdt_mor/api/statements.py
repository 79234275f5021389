"""Check the arguments of a write's statements before the write begins: keys, tokens, partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

import polars as pl
import pyarrow as pa

from crdt_mor.api.data import require_data
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError
from crdt_mor.model.config import TableConfig
from crdt_mor.model.numbers import BITS, is_whole
from crdt_mor.write.statements import RowsStatement, SchemaMode

WAIT: Final = timedelta(seconds=60)
"""Default wait of an update for earlier writes."""


def require_statement(data: object, schema_mode: SchemaMode) -> None:
    require_data(data)
    check_mode(schema_mode)


def require_delete(data: object, keys: object, where: pl.Expr | str | None) -> None:
    if sum(rows is not None for rows in (data, keys, where)) != 1:
        raise InvalidInputError("pass exactly one of a frame, keys=[...] and where=... to delete")
    if isinstance(data, str):
        raise InvalidInputError(
            f"pass a condition as where=, delete(where=...), rows of files as read_files(...). data={data!r:.200}"
        )
    if data is not None:
        require_data(data)


def require_elsewhere(execute_parts: object, *, where: bool) -> None:
    if execute_parts is not None and not where:
        raise InvalidInputError("pass execute_parts only with where=...; deletes by a frame or by keys read no rows")


def require_parts(parts: int | None, execute_parts: object) -> int:
    """Return the number of parts of a merge, 0 for a merge in this process."""
    if execute_parts is None:
        if parts is not None:
            raise InvalidInputError(f"pass parts only with execute_parts. parts={parts!r}")
        return 0
    if parts is None or not is_whole(parts) or parts < 1:
        raise InvalidInputError(
            f"pass the maximum number of parts beside execute_parts: parts must be at least 1. parts={parts!r}"
        )
    return parts


def require_partitions(partitions: object) -> Collection[object]:
    if isinstance(partitions, str | bytes | Mapping) or not isinstance(partitions, Collection):
        raise InvalidInputError(f'pass partitions as a list: ["2026-01-31"]. partitions={partitions!r}')
    return partitions


def check_token_form(token: object) -> None:
    """Raise `InvalidInputError` for an invalid token; the timeline decides whether it was used."""
    match token:
        case None:
            return
        case (str(), number) if is_whole(number):
            return
    raise InvalidInputError(
        f"pass token as (application, number): a text and an int of at most {BITS} bits. got={token!r:.200}"
    )


def require_isolation(isolation: str) -> str:
    if isolation not in ("snapshot", "serializable"):
        raise InvalidInputError(f'isolation must be "snapshot" or "serializable". got={isolation!r}')
    return isolation


def check_mode(mode: SchemaMode) -> SchemaMode:
    if mode not in ("strict", "merge"):
        raise InvalidInputError(f'schema_mode must be "strict" or "merge". got={mode!r}')
    return mode


def names_of(names: str | Collection[str], argument: str = "column names") -> tuple[str, ...]:
    found = (names,) if isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)
    if not all(isinstance(name, str) for name in found):
        raise InvalidInputError(f"{argument} must be a string or a list of strings. got={names!r:.200}")
    return found


@dataclass(frozen=True, slots=True)
class KeysStatement:
    """A delete by key values. plain: as in `Table.delete`."""

    keys: object
    plain: bool = False

    @property
    def size(self) -> int:
        return 0

    def rows(self, config: TableConfig, schema: TableSchema) -> RowsStatement:
        """Return the delete of a frame of these keys. config, schema: under shown names."""
        key = config.key
        if not set(key.partition_fields) <= set(key.fields):
            raise InvalidInputError(
                "the key does not include the partition columns: delete by a frame with the key and partition "
                f"columns. partition_by={[*map(str, key.partition_by)]}"
            )
        return RowsStatement("DELETE", key_rows(self.keys, key.fields, schema.declared), plain=self.plain)


def key_rows(keys: object, fields: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Convert the user's keys to rows of the key columns, in the types of `schema`."""
    rows = [k if isinstance(k, tuple) else (k,) for k in _key_values(keys)]
    wrong = [row for row in rows if len(row) != len(fields)]
    if wrong:
        tuples = " in a tuple" if len(fields) > 1 else ""
        raise InvalidInputError(f"a key needs a value for each of {list(fields)}{tuples}. got={wrong[0]!r}")
    columns = {}
    for i, name in enumerate(fields):
        values, kind = [row[i] for row in rows], schema.field(name).type
        try:
            columns[name] = pa.array(values, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
            raise InvalidInputError(
                f"a key must fit its column's type: convert the key. column={name} type={kind} keys={values[:5]!r}"
            ) from error
    return pa.table(columns)


def _key_values(keys: object) -> Iterable[object]:
    """Return the keys of a collection; any other single value, also text or bytes, is a key."""
    if isinstance(keys, Mapping) or hasattr(keys, "columns"):
        raise InvalidInputError(
            f"pass keys as values, keys=[1, 2], or a frame as data, delete(frame). keys={type(keys).__name__}"
        )
    is_one_key = isinstance(keys, str | bytes | bytearray | memoryview) or not isinstance(keys, Iterable)
    return [keys] if is_one_key else cast(Iterable[object], keys)

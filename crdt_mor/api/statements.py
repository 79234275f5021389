"""What the statements of a write take: keys, tokens, partitions; what is wrong with them is said before one begins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

import polars as pl
import pyarrow as pa

from crdt_mor.api.data import require_data
from crdt_mor.errors import InvalidInputError
from crdt_mor.model.numbers import BITS, is_whole
from crdt_mor.write.statements import SchemaMode


def require_statement(data: object, schema_mode: SchemaMode) -> None:
    """Raise `InvalidInputError` for what an insert or update refuses whatever the table is, before anything begins."""
    require_data(data)
    check_mode(schema_mode)


def require_delete(data: object, keys: object, where: pl.Expr | str | None) -> None:
    """Raise `InvalidInputError` for what a delete refuses whatever the table is, before anything begins."""
    if sum(rows is not None for rows in (data, keys, where)) != 1:
        raise InvalidInputError("delete takes exactly one of a frame, keys=[...] and where=...")
    if data is not None:
        require_data(data)


def require_partitions(partitions: object) -> Collection[object]:
    """The partitions to delete; raises `InvalidInputError` for what is no collection, before anything begins."""
    if isinstance(partitions, str | bytes | Mapping) or not isinstance(partitions, Collection):
        raise InvalidInputError(f'name the partitions in a list: ["2026-01-31"]. partitions={partitions!r}')
    return partitions


def check_token_form(token: object) -> None:
    """Raise `InvalidInputError` for what is not of the form of a token; whether it was used, the timeline says."""
    match token:
        case None:
            return
        case (str(), number) if is_whole(number):
            return
    raise InvalidInputError(
        f"a token is (application, number): a text and an int of at most {BITS} bits. got={token!r:.200}"
    )


def require_isolation(isolation: str) -> str:
    """Return the isolation of a block; raise `InvalidInputError` for any other word."""
    if isolation not in ("snapshot", "serializable"):
        raise InvalidInputError(f'isolation is "snapshot" or "serializable". got={isolation!r}')
    return isolation


def check_mode(mode: SchemaMode) -> SchemaMode:
    """Return the mode; raise `InvalidInputError` for any other word."""
    if mode not in ("strict", "merge"):
        raise InvalidInputError(f'schema_mode is "strict" or "merge". got={mode!r}')
    return mode


def key_rows(keys: object, fields: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Keys as users name them, as rows of the key's columns.

    fields: these columns. schema: the table's, for their types.
    """
    rows = [k if isinstance(k, tuple) else (k,) for k in _key_values(keys)]
    wrong = [row for row in rows if len(row) != len(fields)]
    if wrong:
        tuples = " in a tuple" if len(fields) > 1 else ""
        raise InvalidInputError(f"a key is a value of each of {list(fields)}{tuples}. got={wrong[0]!r}")
    columns = {}
    for i, name in enumerate(fields):
        values, kind = [row[i] for row in rows], schema.field(name).type
        try:
            columns[name] = pa.array(values, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
            raise InvalidInputError(
                f"a key is of its column's type: convert it. column={name} type={kind} keys={values[:5]!r}"
            ) from error
    return pa.table(columns)


def _key_values(keys: object) -> Iterable[object]:
    """The keys of a collection. A value that is no collection is one key, and so is a text or bytes."""
    if isinstance(keys, Mapping) or hasattr(keys, "columns"):
        raise InvalidInputError(
            "keys are values, keys=[1, 2], and this has names of columns; a delete takes a frame, delete(frame). "
            f"keys={type(keys).__name__}"
        )
    is_one_key = isinstance(keys, str | bytes | bytearray | memoryview) or not isinstance(keys, Iterable)
    return [keys] if is_one_key else cast(Iterable[object], keys)

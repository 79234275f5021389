"""A change of a database row, in the terms of no feed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

Operation = Literal["c", "u", "d", "r", "t", "m"]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a row, a truncation, or a mark without a row.

    Attributes:
        operation: c: create, u: update, d: delete, r: read by a snapshot, t: truncate, m: a mark.
        position: LSN or Kafka offset; changes of a transaction may share it.
        source: `topic-partition` or the slot's name: the token's application.
        key, before: known columns before the change.
        row: given columns after it; an absent one is unchanged.
        types: the source's column types.
        transaction: None: the change stands alone.
        ends: the last change of its transaction.
        whole: `row` has all columns of the source.
        order: value for the table's ordering column, by default `position`.
        table: the source's table.
        event: the event as it came.
    """

    operation: Operation
    position: int
    source: str
    key: Mapping[str, Any] | None = None
    row: Mapping[str, Any] | None = None
    before: Mapping[str, Any] | None = None
    types: Mapping[str, pa.DataType] | None = None
    transaction: str | None = None
    ends: bool = False
    whole: bool = False
    order: int | None = None
    table: str | None = None
    event: Any = field(default=None, repr=False, compare=False)

"""A change of a database row."""

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
        position: LSN or Kafka offset; a transaction's changes may share it.
        key, before: known columns before the change.
        row: given columns after it.
        ends: the last change of its transaction.
        whole: `row` has all columns of the source.
        order: value for the ordering column, by default `position`.
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

"""What it means that two commits wrote one key: the three merge rules of this release.

    latest     the record of the commit that was requested last
    ordering   the record with the greatest value of one column; equal values: the one requested last
    partial    column by column, the value of the last commit that gave one

Whatever the rule, contributions are folded in the order of their requested times, so the answer is a function of the
set of commits. `requested last` is the tie-break everywhere, and requested times are unique.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from crdt_mor.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class MergeRule:
    """`ordering` names the column, for that kind alone; `nulls="keep"`: in a partial update a null sets nothing."""

    kind: Literal["latest", "ordering", "partial"] = "latest"
    ordering: str | None = None
    nulls: Literal["value", "keep"] = "value"

    def __post_init__(self) -> None:
        if (self.kind == "ordering") != (self.ordering is not None):
            raise InvalidInputError(
                "name an ordering column for the rule 'ordering', and for no other. "
                f"kind={self.kind} ordering={self.ordering}"
            )

"""Partial update: an upsert gives some columns of a row, and leaves the others to whoever writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from crdt_mor import Payload


@dataclass(frozen=True)
class PartialUpdate(Payload):
    """Per column, the latest commit that *gave* it wins, by requested time; a delete starts the row afresh.

    `nulls="value"`: a given null is a value like any other. `nulls="keep"`: a null keeps what was there.
    An ordered fold (a last-writer-wins map with one register a column): the order by requested time makes it a CRDT.
    """

    name: ClassVar[str] = "partial_update/1"
    nulls: Literal["value", "keep"] = "value"

    def parameters(self) -> Mapping[str, str]:
        return {"nulls": self.nulls}

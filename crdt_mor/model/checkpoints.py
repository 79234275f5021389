"""Checkpoints of named readers: names of empty objects. A reader's checkpoint is the greatest of them.

billing.20260131120000000.completed.done.0b3d1c6f2a4e4f0f9d8c7b6a59483726
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from crdt_mor.errors import InvalidInputError
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import InstantTime

_READER: Final = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}"
CHECKPOINT_NAME: Final = rf"({_READER})\.([0-9]{{17}})\.(completed|requested)\.(begun|done)\.([0-9A-Za-z-]{{1,64}})"
_NO_ID: Final = "none"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The end of a reader's finished changes. is_begun: of its unfinished first window."""

    reader: str
    cut: Cut
    table_id: str | None
    is_begun: bool = False

    @property
    def order(self) -> tuple[bool, InstantTime]:
        return (not self.is_begun, self.cut.time)

    @property
    def since(self) -> str | None:
        return None if self.is_begun else self.cut.checkpoint(self.table_id)

    @property
    def start(self) -> Cut:
        """Where the reader's next window begins."""
        return Cut.start(self.cut.by) if self.is_begun else self.cut

    def __str__(self) -> str:
        state = "begun" if self.is_begun else "done"
        return f"{self.reader}.{self.cut.time}.{self.cut.by}.{state}.{self.table_id or _NO_ID}"

    @classmethod
    def parse(cls, name: str) -> Checkpoint | None:
        found = re.fullmatch(CHECKPOINT_NAME, name)
        if found is None:
            return None
        reader, time, by, state, table_id = found.groups()
        cut = Cut(by, InstantTime(time))  # type: ignore[arg-type]
        return cls(reader, cut, None if table_id == _NO_ID else table_id, state == "begun")


def newest(checkpoints: Iterable[Checkpoint], table_id: str | None) -> dict[str, Checkpoint]:
    found: dict[str, Checkpoint] = {}
    for one in checkpoints:
        if one.table_id == table_id and (one.reader not in found or one.order > found[one.reader].order):
            found[one.reader] = one
    return found


def checked_reader(name: object) -> str:
    if isinstance(name, str) and re.fullmatch(_READER, name):
        return name
    raise InvalidInputError(f"a reader's name has up to 100 letters, digits, - and _. reader={name!r:.120}")

"""The expiry of rows, a part of the merge rule."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from urllib.parse import quote, unquote

from crdt_mor.errors import InvalidInputError

AFTER_MAX: Final = timedelta(days=36_500)

Ttl = str | tuple[str, timedelta]


@dataclass(frozen=True, slots=True)
class Expiry:
    """A row expires `after_ms` after the value of a column; null never does."""

    column: str
    after_ms: int = 0

    @classmethod
    def of(cls, ttl: object) -> Expiry:
        if isinstance(ttl, str) and ttl:
            return cls(ttl)
        if isinstance(ttl, tuple) and len(ttl) == 2 and isinstance(ttl[0], str) and isinstance(ttl[1], timedelta):
            after = ttl[1]
            if timedelta(0) < after <= AFTER_MAX and not after % timedelta(milliseconds=1):
                return cls(ttl[0], after // timedelta(milliseconds=1))
            raise InvalidInputError(
                f"the duration of ttl must be whole milliseconds, above 0 and up to {AFTER_MAX.days} days. ttl={ttl!r}"
            )
        raise InvalidInputError(
            f"ttl must be a timestamp column, or such a column and a duration after it. ttl={ttl!r}"
        )

    @property
    def ttl(self) -> Ttl:
        return (self.column, timedelta(milliseconds=self.after_ms)) if self.after_ms else self.column

    def __str__(self) -> str:
        return f"{quote(self.column)}+{self.after_ms}"

    @classmethod
    def parse(cls, text: str) -> Expiry:
        column, _, after = text.partition("+")
        ms = int(after)
        if not column or not 0 <= ms <= AFTER_MAX // timedelta(milliseconds=1):
            raise ValueError(text)
        return cls(unquote(column), ms)

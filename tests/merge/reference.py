"""The oracle: what a table means, with plain dicts and one contribution at a time. Never used in production.

A contribution to a key is (T, kind, payload): T the requested time; kind "delete" (plain), "tombstone" (payload: the
ordering value) or "row" (payload: the columns it gives). Folded by (T, delete before row).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from crdt_mor.merge.rule import MergeRule

Row = dict[str, object]
KINDS = ("delete", "tombstone", "row")


@dataclass(frozen=True)
class Write:
    """One contribution of the commit requested at `time`; `row` of a tombstone holds its ordering value alone."""

    time: str
    key: str
    kind: Literal["delete", "tombstone", "row"]
    row: tuple[tuple[str, object], ...] = ()
    completed: str = ""

    @property
    def requested(self) -> str:
        """The requested time of its commit."""
        return self.time[:17]


Meaning = Callable[[Sequence[tuple[Write, tuple[object, ...]]]], Sequence[object]]
"""What some columns show together, of all that was written to them and is not null throughout."""


def fold(
    writes: Iterable[Write],
    rule: MergeRule,
    columns: Iterable[str],
    payloads: Mapping[tuple[str, ...], Meaning] = MappingProxyType({}),
) -> dict[str, Row]:
    """The rows of a table that holds these writes, by key, each with all `columns` and `_hoodie_commit_time`."""
    table: dict[str, list[Write]] = {}
    for write in sorted(writes, key=lambda w: (w.time, KINDS.index(w.kind))):
        table.setdefault(write.key, []).append(write)
    folded = {key: _fold_key(ws, rule, list(columns), payloads) for key, ws in table.items()}
    return {key: row for key, row in folded.items() if row is not None}


def _fold_key(
    writes: list[Write], rule: MergeRule, columns: list[str], payloads: Mapping[tuple[str, ...], Meaning]
) -> Row | None:
    if rule.kind == "latest":
        return _row(writes[-1], columns)
    cuts = [i for i, w in enumerate(writes) if w.kind == "delete"]
    alive = writes[cuts[-1] + 1 :] if cuts else writes
    if rule.kind == "ordering":
        best = None
        for write in alive:
            if best is None or _order(write, rule) >= _order(best, rule):
                best = write
        return _row(best, columns) if best else None
    if not alive:
        return None
    row: Row = dict.fromkeys(columns)
    for write in alive:
        given = dict.fromkeys(columns) if rule.whole else {}
        row.update({c: v for c, v in (given | dict(write.row)).items() if rule.nulls == "value" or v is not None})
    for names, meaning in payloads.items():
        said = [(w, tuple(dict(w.row).get(n) for n in names)) for w in alive]
        said = [(w, values) for w, values in said if any(v is not None for v in values)]
        row.update(zip(names, meaning(said) if said else [None] * len(names), strict=True))
    return row | {"_hoodie_commit_time": alive[-1].time}


def _row(write: Write, columns: list[str]) -> Row | None:
    given = dict(write.row)
    if write.kind != "row":
        return None
    return {c: given.get(c) for c in columns} | {"_hoodie_commit_time": write.time}


def _order(write: Write, rule: MergeRule) -> tuple[bool, int]:
    value = dict(write.row).get(str(rule.ordering))
    assert value is None or isinstance(value, int)
    return (value is not None, value or 0)

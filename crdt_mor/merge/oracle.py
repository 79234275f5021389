"""The oracle: a table's meaning in plain dicts, to compare with the engine's answers.

A test keeps a list of its writes, and asks `fold` for the rows that a scan must show:

    commit = table.upsert(rows)
    history += [Contribution(commit.requested_at, row["id"], "row", tuple(row.items())) for row in rows.to_dicts()]
    expected = fold(history, MergeRule(), columns=["id", "views"])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from crdt_mor.merge.rule import MergeRule

Row = dict[str, object]
KINDS = ("delete", "tombstone", "row")

__all__ = ["Contribution", "Meaning", "MergeRule", "Row", "fold"]


@dataclass(frozen=True, slots=True)
class Contribution:
    """A commit's write to a key.

    time: the requested time. Text behind its 17 digits orders the contributions of a commit to the key.
    kind: "row" sets columns; "delete" removes everything requested before; "tombstone" is a delete with an ordering
        value, a version like any other.
    row: the given columns with values; of a tombstone only its ordering value.
    nulls: the columns in which a null sets null under `nulls="keep"`.
    completed: the completion time, for tests of time travel; `fold` ignores it.
    """

    time: str
    key: str
    kind: Literal["delete", "tombstone", "row"]
    row: tuple[tuple[str, object], ...] = ()
    completed: str = ""
    nulls: frozenset[str] = frozenset()

    @property
    def requested(self) -> str:
        return self.time[:17]


Meaning = Callable[[Sequence[tuple[Contribution, tuple[object, ...]]]], Sequence[object]]
"""Returns the visible values of a payload's columns for a key, from its contributions in order with their values.
Contributions with only nulls are left out."""


def fold(
    history: Iterable[Contribution],
    rule: MergeRule,
    columns: Iterable[str],
    payloads: Mapping[tuple[str, ...], Meaning] = MappingProxyType({}),
) -> dict[str, Row]:
    """Return a table's rows by key after these contributions, with `_hoodie_commit_time`.

    Args:
        history: The contributions.
        rule: `MergeRule()` is overwrite-latest, `MergeRule("ordering", "updated_at")` has an ordering column,
            `MergeRule("columns")` partial updates, `MergeRule("columns", "updated_at")` both, and
            `MergeRule("columns", whole=True)` payloads.
        columns: The columns of the rows.
        payloads: Meanings of payload columns, for the rule "columns".
    """
    of_key: dict[str, list[Contribution]] = {}
    for contribution in sorted(history, key=lambda c: (c.time, KINDS.index(c.kind))):
        of_key.setdefault(contribution.key, []).append(contribution)
    rows = {key: _fold_key(history, rule, list(columns), payloads) for key, history in of_key.items()}
    return {key: row for key, row in rows.items() if row is not None}


def _fold_key(
    history: list[Contribution], rule: MergeRule, columns: list[str], payloads: Mapping[tuple[str, ...], Meaning]
) -> Row | None:
    if rule.kind == "latest":
        return _row(history[-1], columns)
    cuts = [i for i, contribution in enumerate(history) if contribution.kind == "delete"]
    alive = history[cuts[-1] + 1 :] if cuts else history
    if rule.kind == "ordering":
        best = None
        for contribution in alive:
            if best is None or _order(contribution, rule) >= _order(best, rule):
                best = contribution
        return _row(best, columns) if best else None
    if rule.has_orders:
        alive = _above_floor(alive, rule)
    if not alive:
        return None
    row: Row = dict.fromkeys(columns)
    for contribution in alive:
        given = (dict.fromkeys(columns) if rule.whole else {}) | dict(contribution.row)
        sets_null = given if rule.nulls == "value" else contribution.nulls
        row.update({c: v for c, v in given.items() if v is not None or c in sets_null})
    for names, meaning in payloads.items():
        values = [(c, tuple(dict(c.row).get(name) for name in names)) for c in alive]
        given_values = [(c, of_names) for c, of_names in values if any(v is not None for v in of_names)]
        row.update(zip(names, meaning(given_values) if given_values else [None] * len(names), strict=True))
    return row | {"_hoodie_commit_time": alive[-1].time}


def _above_floor(history: list[Contribution], rule: MergeRule) -> list[Contribution]:
    """Return the rows above the greatest tombstone, in the order of (ordering value, requested time)."""
    ordered = sorted(history, key=lambda contribution: _order(contribution, rule))
    floor = max((i for i, contribution in enumerate(ordered) if contribution.kind == "tombstone"), default=-1)
    return ordered[floor + 1 :]


def _row(contribution: Contribution, columns: list[str]) -> Row | None:
    if contribution.kind != "row":
        return None
    given = dict(contribution.row)
    return {c: given.get(c) for c in columns} | {"_hoodie_commit_time": contribution.time}


def _order(contribution: Contribution, rule: MergeRule) -> tuple[bool, bool, Any]:
    """Sort by the ordering value: null is the least, NaN the greatest."""
    value = dict(contribution.row).get(str(rule.ordering))
    is_nan = value != value
    return (value is not None, is_nan, 0 if value is None or is_nan else value)

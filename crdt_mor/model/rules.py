"""The rules of a table for the rows written to it.

    not_null   a column that must not be null
    check      an SQL condition that must not be false; null passes, as in SQL
    default    the value of a column that a write omits

A write obeys the rules of the version in which it began, or of a later version. Older rows are checked when a rule is
added (`events.rules`). Then the rule is *proven*: every row obeys it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast, get_args

from crdt_mor.errors import FormatError, InvalidInputError
from crdt_mor.model.config_properties import OUR_RULES

Kind = Literal["not_null", "check", "default"]

Place = tuple[Kind, str]

RULES_MAX: Final = 200
"""Per table. Each version contains them."""

BYTES_MAX: Final = 16 << 10
"""Bytes of all rules as JSON."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. Its name is unique in its kind; not_null and default are named after their column.

    text: a check's condition, or a default's value. nonce: of the event that added it; empty: created with the table.
    is_proven: all rows obey it. A default is always proven.
    """

    kind: Kind
    name: str
    text: str
    columns: tuple[str, ...]
    nonce: str = ""
    is_proven: bool = True

    @property
    def place(self) -> Place:
        return self.kind, self.name

    @property
    def says(self) -> tuple[Kind, str, str]:
        return self.kind, self.name, self.text

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f": {self.text}" if self.kind == "check" else "")


Rules = tuple[Rule, ...]
"""Sorted: not_null, check, default, then by name."""


def ordered(rules: Iterable[Rule]) -> Rules:
    found = tuple(sorted(rules, key=lambda rule: (get_args(Kind).index(rule.kind), rule.name)))
    size = len(rules_text(found).encode())
    if len(found) > RULES_MAX or size > BYTES_MAX:
        raise InvalidInputError(
            f"a table may have {RULES_MAX} rules with {BYTES_MAX} bytes together, as each version contains them: drop "
            f"some, or combine checks. rules={len(found)} bytes={size}"
        )
    return found


def adding(rules: Rules, new: Sequence[Rule], nonce: str, *, are_proven_next: bool) -> Rules:
    """Add unproven rules by the event with this nonce. Raise `InvalidInputError` if another rule has the name.

    A proven rule stays, and so does an unproven rule that this process proves next: only its own event may withdraw it.
    """
    known = {rule.place: rule for rule in rules}
    for rule in new:
        old = known.get(rule.place)
        if old is not None and old.says != rule.says:
            raise InvalidInputError(
                "the table has another rule with this name: call drop_rules(...) first, or use another name. "
                f"rule={rule.kind} {rule.name} there={old.text!r} asked={rule.text!r}"
            )
        if old is None or not (old.is_proven or are_proven_next):
            known[rule.place] = replace(rule, nonce=nonce, is_proven=rule.kind == "default")
    return ordered(known.values())


def without(rules: Rules, dropped: Collection[Place]) -> Rules:
    return tuple(rule for rule in rules if rule.place not in dropped)


def withdrawing(rules: Rules, nonce: str) -> Rules:
    """Remove the rules that the event with this nonce added last."""
    return tuple(rule for rule in rules if rule.nonce != nonce)


def proving(rules: Rules, looked_for: Collection[Rule]) -> Rules:
    """Mark the checked rules as proven, unless another event has added them since."""
    return tuple(replace(rule, is_proven=True) if rule in looked_for else rule for rule in rules)


def after_restore(rules: Rules, nonce: str) -> Rules:
    """Return the rules after a restore: only rules created with the table stay proven.

    nonce: of the restore. It stops a process from proving a rule by rows that are gone.
    """
    return tuple(
        replace(rule, nonce=nonce, is_proven=False) if rule.nonce and rule.kind != "default" else rule for rule in rules
    )


def asked_together(rules: Rules, names: Iterable[str]) -> frozenset[str]:
    """Return these columns, and all columns that share checks with them."""
    found = frozenset(names)
    while True:
        checks = [rule.columns for rule in rules if rule.kind == "check" and not found.isdisjoint(rule.columns)]
        more = found.union(*checks)
        if more == found:
            return found
        found = more


# --- as text ----------------------------------------------------------------------------------------------------------


def rule_json(rule: Rule) -> list[object]:
    return [rule.kind, rule.name, rule.text, list(rule.columns), rule.nonce, int(rule.is_proven)]


def rule_of(entry: Any) -> Rule:
    kind, name, text, columns, nonce, is_proven = entry
    if kind not in get_args(Kind) or is_proven not in (0, 1):
        raise ValueError(f"no rule: {entry!r:.200}")
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise TypeError(f"no columns of a rule: {entry!r:.200}")
    return Rule(cast(Kind, kind), name, text, tuple(columns), nonce, bool(is_proven))


def rules_text(rules: Rules) -> str:
    return json.dumps([rule_json(rule) for rule in rules], separators=(",", ":"), ensure_ascii=False)


def rules_in(properties: Mapping[str, str]) -> Rules:
    """Return the rules created with the table; raise `FormatError` if they are invalid."""
    text = properties.get(OUR_RULES)
    if text is None:
        return ()
    try:
        rules = tuple(rule_of(entry) for entry in json.loads(text))
        if not all(isinstance(part, str) for rule in rules for part in (rule.name, rule.text, rule.nonce)):
            raise TypeError("names and texts")
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError(
            f"the rules in hoodie.properties are invalid: restore the file. {OUR_RULES}={text!r:.200}"
        ) from error
    return rules

"""The rules of a table: what its value says of the rows that are written to it.

    not_null   a column that no row may leave without a value
    check      a condition of SQL, which no row that is written may fail; null passes, as in SQL
    default    the value of a column that a write does not give

A rule is part of the timeline's value, so that its place among the writes is one number. A write is held to the rules
of the value in which it began, or of a later one. What was requested before the rule is asked once, when it is added
(`events.rules`): from then on the rule is *proven*, which says that every row fulfils it.
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
"""The kind and the name of a rule."""

RULES_MAX: Final = 200
"""Rules of a table: each version of the timeline carries them."""

BYTES_MAX: Final = 16 << 10
"""Bytes of all rules together, as JSON."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Of a kind each has a name of its own, that of its column where it is no check.

    text: of a check its condition, of a default its value. columns: those that it names.
    nonce: of the event that added it; none: the table was made with it.
    is_proven: whether all rows fulfil it, not only those that were written since; a default is nothing to fulfil.
    """

    kind: Kind
    name: str
    text: str
    columns: tuple[str, ...]
    nonce: str = ""
    is_proven: bool = True

    @property
    def place(self) -> Place:
        """What no two rules of a table have in common."""
        return self.kind, self.name

    @property
    def says(self) -> tuple[Kind, str, str]:
        """What it says, whenever it was added."""
        return self.kind, self.name, self.text

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f": {self.text}" if self.kind == "check" else "")


Rules = tuple[Rule, ...]
"""The rules of a table: not_null before check before default, and by name."""


def ordered(rules: Iterable[Rule]) -> Rules:
    """Rules in the one order in which a value has them; raises `InvalidInputError` where they are too many."""
    found = tuple(sorted(rules, key=lambda rule: (get_args(Kind).index(rule.kind), rule.name)))
    size = len(rules_text(found).encode())
    if len(found) > RULES_MAX or size > BYTES_MAX:
        raise InvalidInputError(
            f"a table has {RULES_MAX} rules of {BYTES_MAX} bytes at most, as each version of the timeline carries "
            f"them: drop some, or make them one check. rules={len(found)} bytes={size}"
        )
    return found


def adding(rules: Rules, new: Sequence[Rule], nonce: str, *, are_proven_next: bool) -> Rules:
    """The rules with these, which the event with this nonce adds, and which are not proven yet.

    One that is there and proven stays as it is. So does one that is there and that this process proves next: it is
    another's to withdraw. Else it is from here on what this event has added.
    Raises `InvalidInputError` where another has its name.
    """
    known = {rule.place: rule for rule in rules}
    for rule in new:
        old = known.get(rule.place)
        if old is not None and old.says != rule.says:
            raise InvalidInputError(
                "the table has another rule of this name: drop that first, drop_rules(...), or take another name. "
                f"rule={rule.kind} {rule.name} there={old.text!r} asked={rule.text!r}"
            )
        if old is None or not (old.is_proven or are_proven_next):
            known[rule.place] = replace(rule, nonce=nonce, is_proven=rule.kind == "default")
    return ordered(known.values())


def without(rules: Rules, dropped: Collection[Place]) -> Rules:
    """The rules without some."""
    return tuple(rule for rule in rules if rule.place not in dropped)


def withdrawing(rules: Rules, nonce: str) -> Rules:
    """The rules without those that the event with this nonce has added, and no other since."""
    return tuple(rule for rule in rules if rule.nonce != nonce)


def proving(rules: Rules, looked_for: Collection[Rule]) -> Rules:
    """The rules, of which those are proven that were looked for, unless another event has added them since."""
    return tuple(replace(rule, is_proven=True) if rule in looked_for else rule for rule in rules)


def after_restore(rules: Rules, nonce: str) -> Rules:
    """The rules of a table that shows rows of an earlier moment: only what it was made with holds for all of these.

    nonce: of the restore. A process that is about to prove a rule has looked at rows that are gone.
    """
    return tuple(
        replace(rule, nonce=nonce, is_proven=False) if rule.nonce and rule.kind != "default" else rule for rule in rules
    )


def asked_together(rules: Rules, names: Iterable[str]) -> frozenset[str]:
    """These columns, and all that checks ask together with them."""
    found = frozenset(names)
    while True:
        checks = [rule.columns for rule in rules if rule.kind == "check" and not found.isdisjoint(rule.columns)]
        more = found.union(*checks)
        if more == found:
            return found
        found = more


# --- as text ----------------------------------------------------------------------------------------------------------


def rule_json(rule: Rule) -> list[object]:
    """A rule as a value has it."""
    return [rule.kind, rule.name, rule.text, list(rule.columns), rule.nonce, int(rule.is_proven)]


def rule_of(entry: Any) -> Rule:
    """The rule that `rule_json` wrote; raises ValueError or TypeError for anything else."""
    kind, name, text, columns, nonce, is_proven = entry
    if kind not in get_args(Kind) or is_proven not in (0, 1):
        raise ValueError(f"no rule: {entry!r:.200}")
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise TypeError(f"no columns of a rule: {entry!r:.200}")
    return Rule(cast(Kind, kind), name, text, tuple(columns), nonce, bool(is_proven))


def rules_text(rules: Rules) -> str:
    """Rules as the properties of a table have those that it was made with."""
    return json.dumps([rule_json(rule) for rule in rules], separators=(",", ":"), ensure_ascii=False)


def rules_in(properties: Mapping[str, str]) -> Rules:
    """The rules that a table was made with, as its properties say; raises `FormatError` for what are none."""
    text = properties.get(OUR_RULES)
    if text is None:
        return ()
    try:
        rules = tuple(rule_of(entry) for entry in json.loads(text))
        if not all(isinstance(part, str) for rule in rules for part in (rule.name, rule.text, rule.nonce)):
            raise TypeError("names and texts")
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError(
            f"the table's properties hold no rules here: restore them. {OUR_RULES}={text!r:.200}"
        ) from error
    return rules

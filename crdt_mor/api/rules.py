"""Show, add and drop a table's rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from crdt_mor.api.scan import Scan
from crdt_mor.api.statements import names_of
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError
from crdt_mor.events import rules as events
from crdt_mor.events.own_blocks import require_not_own
from crdt_mor.events.session import Session
from crdt_mor.log.deciding import deciding
from crdt_mor.model.rules import Rule
from crdt_mor.model.rules import adding as adding_to
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.write.named import rules_under, shown_config, shown_rules
from crdt_mor.write.refusals import require_writable
from crdt_mor.write.rules import (
    broken_by,
    default_values,
    require_rules,
    require_shown,
    rules_in_stored_names,
    violation,
)

ROUNDS_MAX: Final = 3
"""Attempts to prove rules while others change rules or restore the table."""


@dataclass(frozen=True, slots=True, init=False)
class Rules:
    """Rules for the rows of a table: `Rules(not_null="price", check={"positive": "price > 0"})`.

    Attributes:
        not_null: columns that must have a value.
        check: SQL conditions on one row, by names of your choice. As in SQL, null passes.
        default: values by column for rows that omit the column; an explicit null stays.
        unproven: in `Table.rules`, rules such as "check positive" that hold for new writes, but may not hold for older
            rows.
    """

    not_null: tuple[str, ...]
    check: Mapping[str, str]
    default: Mapping[str, object]
    unproven: tuple[str, ...]

    def __init__(
        self,
        *,
        not_null: str | Sequence[str] = (),
        check: Mapping[str, str] | None = None,
        default: Mapping[str, Any] | None = None,
        unproven: Sequence[str] = (),
    ) -> None:
        given: dict[str, Any] = {"check": check, "default": default}
        for name, value in given.items():  # the table refuses other types
            object.__setattr__(self, name, dict(value or {}) if isinstance(value, Mapping | None) else value)
        object.__setattr__(self, "not_null", tuple(dict.fromkeys(names_of(not_null, "not_null"))))
        object.__setattr__(self, "unproven", names_of(unproven, "unproven"))

    def __bool__(self) -> bool:
        return bool(self.not_null or self.check or self.default)


def shown(value: Timeline) -> Rules:
    rules = shown_rules(value)
    columns = value.names.outward(TableSchema.from_json(value.schema))
    return Rules(
        not_null=[rule.name for rule in rules if rule.kind == "not_null"],
        check={rule.name: rule.text for rule in rules if rule.kind == "check"},
        default=dict(default_values(rules, columns)),
        unproven=[f"{rule.kind} {rule.name}" for rule in rules if not rule.is_proven],
    )


def parts_of(rules: object) -> tuple[tuple[str, ...], Mapping[str, str], Mapping[str, object]]:
    if not isinstance(rules, Rules):
        raise InvalidInputError(
            'pass crdt_mor.Rules: rules=Rules(not_null="price", check={"positive": "price > 0"}). '
            f"rules={rules!r:.200}"
        )
    return rules.not_null, rules.check, rules.default


def add_rules(session: Session, given: Rules, validate: bool, wait_ms: int) -> None:
    parts = parts_of(given)
    require_writable(session)
    session.adopt()
    seen, config = session.tail(), session.config
    schema = TableSchema.from_json(seen.schema)
    shown = shown_config(config, seen.names)
    rules = rules_in_stored_names(*parts, shown, schema, seen.names)
    if not rules:
        raise InvalidInputError('pass rules to add: Rules(not_null="price", check={"positive": "price > 0"})')
    there, asked = (rules_under(some, seen.names) for some in (seen.rules, tuple(rules)))
    adding_to(there, asked, "", are_proven_next=validate)  # raises for another rule of the same name
    new = {rule.place for rule in rules}
    proven = {rule.says for rule in seen.rules if rule.is_proven}
    if validate:
        _require_unbroken(session, seen, [rule for rule in rules if rule.says not in proven])
    for _ in range(ROUNDS_MAX):
        nonce = session.environment.nonce()

        def applies(tail: Timeline) -> None:
            require_shown(rules, tail)
            require_rules(rules, config, TableSchema.from_json(tail.schema))

        adding = events.add(session.publisher, session.known_tail(), nonce, rules, applies, are_proven_next=validate)
        added = session.remember(session.run(adding))
        unproven = [rule for rule in added.rules if rule.place in new and not rule.is_proven]
        if not validate or not unproven:
            return
        value = _proven(session, added, nonce, unproven, wait_ms, is_seen=added.version == seen.version + 1)
        if new <= {rule.place for rule in value.rules if rule.is_proven}:
            return
    raise InvalidInputError(
        "the rules are added but not proven, because other processes kept changing them or restored the table: "
        f"add them again. rules={[str(rule) for rule in rules]}"
    )


def _proven(
    session: Session, added: Timeline, nonce: str, unproven: Sequence[Rule], wait_ms: int, *, is_seen: bool
) -> Timeline:
    """Prove rules; if a row breaks a rule, withdraw the rules added by the event with this nonce.

    Args:
        added: the value with the rules.
        is_seen: the rows before the event were checked, except rows of pending writes.
    """
    try:
        require_not_own(session, added, added.pending if wait_ms else ())
        settled = session.remember(
            session.run(events.wait_for_begun(session.publisher, added, session.expiry_ms, wait_ms))
        )
        if not is_seen or added.pending:
            _require_unbroken(session, settled, unproven)
        return session.remember(session.run(events.prove(session.publisher, settled, unproven)))
    except BaseException:
        with deciding(is_made=True):  # the rules stand until they are withdrawn
            session.remember(session.run(events.withdraw(session.publisher, session.known_tail(), nonce)))
        raise


def _require_unbroken(session: Session, value: Timeline, rules: Collection[Rule]) -> None:
    snapshot = Snapshot.seal(session, value)
    key = shown_config(session.config, value.names).key
    names = list(dict.fromkeys([*key.partition_fields, *key.fields]))
    for rule in rules_under(tuple(rules), value.names):
        if rule.kind == "default":
            continue
        broken = broken_by(rule, snapshot.shown)
        rows = Scan(snapshot, list(dict.fromkeys([*names, *rule.columns])), broken, meta=False).to_polars()
        if rows.height:
            first = rows.sort(names).row(0, named=True)
            raise violation(
                "rows of the table break the rule, so it was not added: fix them with update(...) or delete(...), or "
                "add the rule with validate=False for new rows only",
                rule, {name: first[name] for name in names}, {name: first[name] for name in rule.columns},
                rows.height,
            )  # fmt: skip


def drop_rules(session: Session, rules: str | Sequence[str]) -> None:
    asked = names_of(rules, "rules")
    if not asked:
        raise InvalidInputError('pass rules to drop: ["not_null price", "check positive"]')
    session.adopt()
    tail = session.tail()
    known = {" ".join(shown.place): rule.place for shown, rule in zip(shown_rules(tail), tail.rules, strict=True)}
    unknown = [text for text in asked if text not in known]
    if unknown:
        raise InvalidInputError(f"the table has no such rules. unknown={unknown} known={[*known]}")
    session.remember(session.run(events.drop(session.publisher, tail, [known[text] for text in asked])))

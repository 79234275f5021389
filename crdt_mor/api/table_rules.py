"""Rules of a table: not_null, check and default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from crdt_mor.api.statements import WAIT
from crdt_mor.columns.names import Names
from crdt_mor.columns.schema import TableSchema
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.model.config import TableConfig
from crdt_mor.model.policies import milliseconds
from crdt_mor.model.rules import Rules as KeptRules
from crdt_mor.model.rules import ordered

if TYPE_CHECKING:
    from crdt_mor.api.rules import Rules


def rules_to_make(
    given: Rules | None,
    config: TableConfig,
    columns: TableSchema,
    odd: Mapping[str, str],
) -> KeptRules:
    """Return a new table's rules, with stored names; `odd` maps user-visible names to different stored names."""
    if given is None:
        return ()
    from crdt_mor.api.rules import parts_of
    from crdt_mor.write.named import shown_config
    from crdt_mor.write.rules import rules_in_stored_names

    names = Names(tuple((stored, shown) for shown, stored in odd.items()))
    return ordered(rules_in_stored_names(*parts_of(given), shown_config(config, names), columns, names))


@operations
class TableRules:
    """Methods for the rules of a table's rows."""

    _session: Session

    @property
    def rules(self) -> Rules:
        """The current rules, which each write must obey."""
        from crdt_mor.api.rules import shown

        return shown(self._session.views.sealed())

    def add_rules(self, rules: Rules, *, validate: bool = True, wait: timedelta = WAIT) -> None:
        """Add rules for all rows, `Rules(not_null="price")`; existing rows must already obey them.

        Later writes that break a rule fail with `ConstraintViolationError`, which names the rule, the first row's key
        and the number of rows. Writes that began earlier are not checked; the call waits for them and then checks the
        existing rows. If rows break a rule, or anything else fails, no rule is added.

        Args:
            rules: the rules to add; others stay.
            validate: False skips the existing rows; the rule is then in `rules.unproven`. A second call with
                validation proves it.
            wait: how long to wait for earlier writes; then `EarlierWritePendingError` names the pending write.
        """
        from crdt_mor.api.rules import add_rules

        add_rules(self._session, rules, validate, milliseconds("wait", wait))

    def drop_rules(self, rules: str | Sequence[str]) -> None:
        """Drop rules by kind and name: `drop_rules(["not_null price", "check positive"])`.

        `Rules.unproven` and `ConstraintViolationError.constraint` name them in the same way.

        Raises:
            InvalidInputError: the table has no such rule.
        """
        from crdt_mor.api.rules import drop_rules

        drop_rules(self._session, rules)

"""A table as what holds its rows to rules: not_null, check and default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from crdt_mor.api.table_writes import WAIT
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
    not_null: str | Sequence[str],
    check: Mapping[str, str] | None,
    default: Mapping[str, Any] | None,
    config: TableConfig,
    columns: TableSchema,
    odd: Mapping[str, str],
) -> KeptRules:
    """The rules that a new table is made with; `config` and `columns` have stored names.

    odd: the stored names of columns that people call otherwise, by what they call them.
    """
    if not (not_null or check or default):
        return ()
    from crdt_mor.api.create import names_of
    from crdt_mor.write.rules import rules_in_stored_names

    names = Names(tuple((stored, shown) for shown, stored in odd.items()))
    given = names_of(not_null), check or {}, default or {}
    return ordered(rules_in_stored_names(*given, config, columns, names))


@operations
class TableRules:
    """The part of a table that says what its rows fulfil."""

    _session: Session

    @property
    def rules(self) -> Rules:
        """The rules of the table as they are now: to these each write is held."""
        from crdt_mor.api.rules import shown

        return shown(self._session.views.sealed())

    def add_rules(
        self,
        *,
        not_null: str | Sequence[str] = (),
        check: Mapping[str, str] | None = None,
        default: Mapping[str, Any] | None = None,
        validate: bool = True,
        wait: timedelta = WAIT,
    ) -> None:
        """Hold all rows that are written from now on to rules; those that are there must fulfil them already.

        Each write that begins when the rule is there is held to it, through whatever door, and fails with
        `ConstraintViolationError` otherwise, which names the rule, the key of the first such row and their number.
        Writes that began before it end as they are, and are waited for: then the rows are looked at. So a rule that
        this call has added holds for every row. Nobody waits for it.

        not_null: columns that no row may leave without a value. check: conditions of SQL by names of your own, each on
            the columns of one row, {"positive": "price > 0"}; null passes, as in SQL.
        default: by column the value that rows get which do not give the column; a null that is given stays.
        validate: whether the rows that are there are looked at. If not, the rule is among `rules.unproven`; to add it
            again, validated, proves it.
        wait: for how long writes that began before are waited for; then `EarlierWritePendingError` says which one.

        Where rows break a rule, or anything else fails, none of the rules is added.
        """
        from crdt_mor.api.rules import add_rules

        wait_ms = milliseconds("wait", wait)
        add_rules(self._session, not_null, check or {}, default or {}, validate, wait_ms)

    def drop_rules(
        self,
        *,
        not_null: str | Sequence[str] = (),
        check: str | Sequence[str] = (),
        default: str | Sequence[str] = (),
    ) -> None:
        """Hold rows that are written from now on no more to these rules: columns, and names of checks.

        Raises `InvalidInputError` where the table has no such rule.
        """
        from crdt_mor.api.rules import drop_rules

        drop_rules(self._session, not_null, check, default)

"""Handing a table over to Hudi's writers, and taking it back: what `events.handover` asks for is done before."""

from __future__ import annotations

from typing import Final

from crdt_mor.errors import InvalidInputError
from crdt_mor.events import handover as events
from crdt_mor.events.session import Session
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import EPOCH
from crdt_mor.planners.clean import is_commit
from crdt_mor.services.compaction import compaction
from crdt_mor.services.compaction_finish import finish_all, raise_failed
from crdt_mor.write.refusals import require_no_metadata_table

COMPACTIONS_MAX: Final = 5
"""How often the table is compacted anew, as writers have been faster."""


def hand_over(session: Session) -> None:
    """See `Maintenance.handover`."""
    _require_own_order(session.config)
    require_no_metadata_table(session.settings())
    if session.tail().handed_over == EPOCH:
        session.adopt()
    for _ in range(COMPACTIONS_MAX):
        value = session.run(events.hand_over(session.publisher, session.known()))
        if value is not None:
            session.remember(value)
            return
        done = finish_all(session, compaction, None)
        raise_failed({group: error for one in done for group, error in one.failed.items()})
    raise InvalidInputError(
        "writers were faster than each compaction, and a table is handed over when it is compacted and quiet: stop "
        f"them, and hand it over then. compactions={COMPACTIONS_MAX}"
    )


def take_back(session: Session) -> int:
    """See `Maintenance.takeback`."""
    _require_own_order(session.config)
    since = session.tail().handed_over
    session.views.sealed(look=True)
    session.adopt()
    value = session.remember(session.run(events.take_back(session.publisher, session.known())))
    if since == EPOCH:
        return 0
    completions = session.views.completions(value, lambda segment: segment.last > since)
    return sum(c.adopted and is_commit(c) and c.completed > since for c in completions)


def _require_own_order(config: TableConfig) -> None:
    """Raise for a table that Hudi's writers may write as it is, or whose merge they do not know."""
    if not config.ours or config.merge.ordering is not None:
        raise InvalidInputError(
            "Hudi's writers know how this table orders its rows, and write it as it is, in turns with ours: there is "
            f"nothing to hand over. merge={config.merge} table={config.name}"
        )
    if config.merge.custom:
        raise InvalidInputError(
            "Hudi's writers do not know the merge of this table, so that it cannot be handed over to them: copy it "
            "into one of the default merge, Table.create(...).append(Table.open(...).scan()), and hand that one over. "
            f"merge={config.merge} table={config.name}"
        )

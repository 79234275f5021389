"""Hand a table over to Hudi's writers and take it back, after the preparation that `events.handover` requires."""

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
"""Compactions tried while writers keep adding log files."""


def hand_over(session: Session) -> None:
    _require_own_order(session.config)
    require_no_metadata_table(session.settings())
    if session.tail().handed_over == EPOCH:
        session.adopt()
    for _ in range(COMPACTIONS_MAX):
        value = session.run(events.hand_over(session.publisher, session.known_tail()))
        if value is not None:
            session.remember(value)
            return
        done = finish_all(session, compaction, None)
        raise_failed({group: error for one in done for group, error in one.failed.items()})
    raise InvalidInputError(
        "writers added rows faster than the table was compacted; a handover needs a compacted, quiet table: stop "
        f"the writers, then hand over. compactions={COMPACTIONS_MAX}"
    )


def take_back(session: Session) -> int:
    _require_own_order(session.config)
    since = session.tail().handed_over
    session.views.sealed(look=True)
    session.adopt()
    value = session.remember(session.run(events.take_back(session.publisher, session.known_tail())))
    if since == EPOCH:
        return 0
    completions = session.views.completions(value, lambda segment: segment.last > since)
    return sum(c.adopted and is_commit(c) and c.completed > since for c in completions)


def _require_own_order(config: TableConfig) -> None:
    if config.merge.custom:
        raise InvalidInputError(
            "Hudi's writers cannot run the merge of this table: copy it into a table with the default merge, "
            "Table.create(...).append(Table(...).scan()), and hand that table over. "
            f"merge={config.merge} table={config.name}"
        )
    if not config.ours or config.merge.ordering is not None:
        raise InvalidInputError(
            "Hudi's writers already know the merge of this table and write it in turns with crdt_mor: no handover is "
            f"needed. merge={config.merge} table={config.name}"
        )
    if config.key.functions:
        raise InvalidInputError(
            "Hudi's writers cannot compute the partition functions of this table: copy it into a table whose partition "
            "columns are in the rows, Table.create(...).append(...), and hand that table over. "
            f"partition_by={[*map(str, config.key.partition_by)]} table={config.name}"
        )
    if config.merge.expiry is not None:
        raise InvalidInputError(
            "Hudi's writers see expired rows until a compaction, so the result of their MERGE INTO would depend on it: "
            "copy the table into a table without ttl, Table.create(...).append(Table(...).scan()), and hand that table "
            f"over. merge={config.merge} table={config.name}"
        )

"""Change the names and types of columns, as protocol steps."""

from __future__ import annotations

from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.log.steps import Nonce, Steps
from crdt_mor.model.alteration import Alteration
from crdt_mor.model.alteration_event import AlterationRequest, CheckGrowth, altered
from crdt_mor.model.authors import Author
from crdt_mor.model.config import TableConfig
from crdt_mor.model.handover import require_not_handed_over
from crdt_mor.model.migration import require_arrived, require_not_moving
from crdt_mor.model.timeline import Timeline


def alter(
    publisher: TablePublisher,
    known_tail: Timeline,
    request: AlterationRequest,
    config: TableConfig,
    check: CheckGrowth,
    author: Author | None = None,
) -> Steps[Timeline]:
    """Rename, widen, comment or hide columns, decided on the value before the event."""
    nonce = yield Nonce()
    tried: list[Alteration] = []

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        if any(alteration in tail.alterations for alteration in tried):
            return None  # an earlier attempt landed, followed by many others
        require_not_moving(tail.moving, "alter")
        require_arrived(tail.origin)
        require_not_handed_over(tail.handed_over)
        value = altered(tail, nonce, wall_ms, request, config, author, check)
        if value is not None and value.alterations != tail.alterations:
            tried.append(value.alterations[-1])
        return value

    return (yield from publisher.publish(derive, known_tail))

"""Upkeep by writers: after its commit a writer compacts what is due in the file groups that it has written.

The commit is complete and visible by then, whatever becomes of the upkeep: what fails is told as an `UpkeepEvent`, with
its error, and raises nothing. Other services are left to `maintain`, as their cost has nothing to do with what one
writer wrote. Most writers do no upkeep, and import nothing of it.
"""

from __future__ import annotations

from crdt_mor.errors import CrdtMorError
from crdt_mor.events.session import Session
from crdt_mor.ground.observing_events import UpkeepEvent
from crdt_mor.model.policies import Policies
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion


def upkeep_after(session: Session, value: Timeline, completion: Completion) -> None:
    """Compact what is due in the file groups of a commit that `value` shows, if this session's writers are to do so.

    Raises no `Exception`.
    """
    try:
        policies = Policies.of(value.properties)
        if policies.inline if session.inline is None else session.inline:
            from crdt_mor.services.maintain_written import compact_written

            compact_written(session, value, {file.group for file in completion.files}, policies)
    except Exception as error:  # noqa: BLE001  the commit stands, and its writer must learn that it does
        from crdt_mor.services.maintain import state_of

        failed = state_of(error) if isinstance(error, CrdtMorError) else "failed"
        session.publisher.tell(
            UpkeepEvent(
                service="compaction", state=failed, why="a commit was made", inline=True,
                error=str(error) or type(error).__name__,
            )
        )  # fmt: skip

"""Plans of compactions, step by step: schedule, execute anywhere, complete. `Maintenance.compact` does all steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from crdt_mor.api.maintenance_arguments import compaction_options, plan_of
from crdt_mor.api.maintenance_results import Compacted, CompactionPlan, compacted, plan_shown
from crdt_mor.errors import InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.hudi.actions import COMPACT
from crdt_mor.model.instant import parse
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.planners import compaction as engine
from crdt_mor.services import service
from crdt_mor.services.compaction import compaction
from crdt_mor.services.expiry import move_clock


@operations
class Plans:
    """Plans of compactions, for schedulers of your own. Use `table.maintenance.plans`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"Plans({self._session.uri!r})"

    def schedule(
        self, *, log_files_min: int = 1, logs_only: bool = False, rewrite: Literal["order"] | None = None
    ) -> CompactionPlan | None:
        """Schedule a compaction of the file groups with enough log files; None if there are none.

        A plan stays open until a process executes it; `Maintenance.compact` does both steps.

        Args:
            log_files_min: minimum number of log files of a file group.
            logs_only: fold the logs of a file group into one and copy the base file, at the cost of the logs alone. Use
                it for many small logs beside a large base. File groups without a base file are compacted fully.
            rewrite: "order" also rewrites base files not sorted by the properties `crdt_mor.cluster_by` and
                `crdt_mor.cluster_order`.
        """
        chosen = compaction(**compaction_options(log_files_min, logs_only, rewrite))
        move_clock(self._session)
        plan = service.schedule(self._session, chosen)
        return None if plan is None else self._shown(plan)

    def open(self) -> list[CompactionPlan]:
        """Return scheduled plans that are not completed, oldest first."""
        return [self._shown(plan) for plan in service.open_plans(self._session, COMPACT)]

    def _shown(self, plan: engine.CompactionPlan) -> CompactionPlan:
        """Add the table's payloads, which are pickled with the plan."""
        return plan_shown(replace(plan, payloads=self._session.payloads()))

    def execute(self, plan: CompactionPlan) -> list[DataFile]:
        """Write the invisible files of a plan or a part of it, unless another process did.

        Pickle `plan.parts()`, execute each part anywhere, as often as needed, and pass all files to `complete`. If a
        file group fails, the error of `Maintenance.compact` is raised. The plan stays open until `compact` or
        `maintain` makes it again without that group.
        """
        executed = service.execute(self._session, compaction(), plan_of(plan))
        for _, error in executed.failed:
            raise error
        return executed.files

    def complete(self, plan: CompactionPlan, files: Sequence[DataFile]) -> Compacted | None:
        """Publish a compaction after all its parts are executed; None if the plan was cancelled."""
        frozen = plan_of(plan)
        done = service.complete(self._session, frozen, files)
        return None if done is None else compacted(frozen, done)

    def cancel(self, barrier: str) -> bool:
        """Cancel an open plan by its barrier; False if it was not open.

        Raises:
            InvalidInputError: `barrier` is not 17 digits, as in `plan.barrier`.
        """
        if not isinstance(barrier, str):
            raise InvalidInputError(
                f"pass the plan's barrier: plans.cancel(plan.barrier). got={type(barrier).__name__}"
            )
        return service.cancel(self._session, parse(barrier))

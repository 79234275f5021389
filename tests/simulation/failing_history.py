"""A random history with every service, in which some file groups cannot be compacted for a while.

A log file may hold what a payload raises on when it is folded: until something is written behind it, every plan fails
that has it. What must hold, on top of what holds beside services:

    - an upkeep that meets such a file group names it, and no answer changes
    - it leaves no plan open that it has met, and compacts every other file group that it was asked to
    - the file group is compacted once something is written to it
    - an executor of such a plan, late or again, is told the same
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from crdt_mor.errors import PayloadError
from crdt_mor.events.session import Session
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline_parts import FileGroup
from crdt_mor.parts import CompactionPlan, DataFile
from crdt_mor.planners.compaction import CompactionPlan as FrozenPlan
from crdt_mor.planners.compaction import GroupInput
from crdt_mor.results import Maintained
from crdt_mor.services import compaction
from crdt_mor.services.maintain import LEFT_OUT
from tests.inside import frozen, session_of
from tests.simulation.upkeep_history import UpkeepHistory, run_upkeep

SAID = "this value is none of mine"


@dataclass
class FailingHistory(UpkeepHistory):
    """A history with services and plans that fail."""

    poisoned: set[str] = field(default_factory=set)
    """The log files that cannot be folded, as long as they are the last of their file group."""
    mishaps: Random = field(default_factory=Random)
    """Chance of its own, so that a seed's history is the same but for what fails."""
    failed: int = 0
    """How many upkeeps have met a file group that cannot be compacted."""

    def __post_init__(self) -> None:
        self.mishaps = Random(repr(self.random.getstate()) + " mishaps")
        super().__post_init__()
        self.handles[0].set_properties({"crdt_mor.compaction.log_files": "1"})

    def fails(self, group: GroupInput | FileSlice) -> bool:
        return bool(group.logs) and group.logs[-1].path in self.poisoned

    def step(self) -> None:
        if self.mishaps.random() < 0.5:
            self.mishap()
        else:
            super().step()

    def mishap(self) -> None:
        """Something is written that cannot be folded, or was and is no longer the last; then there is upkeep."""
        for _ in range(2):
            self.begin()
            self.commit(self.open.pop())
        logs = [slice_.logs[-1].path for slice_ in self.slices() if slice_.fresh_logs[-1:] == slice_.logs[-1:] != ()]
        if logs and self.mishaps.random() < 0.7:
            self.poisoned.add(self.mishaps.choice(logs))
            self.note("cannot be folded any more", self.poisoned)
        if self.mishaps.random() < 0.4:
            self.schedule()
        self.service("upkeep", self.mishaps.choice([self.compact_all, self.maintain]))

    def slices(self) -> Sequence[FileSlice]:
        session = session_of(self.handles[0])
        return session.views.slices(session.tail())

    def stuck(self) -> set[FileGroup]:
        """The file groups that cannot be compacted now."""
        return {slice_.group for slice_ in self.slices() if self.fails(slice_)}

    # --- upkeep -----------------------------------------------------------------------------------------------

    def compact(self, plan: CompactionPlan) -> None:
        if not any(map(self.fails, frozen(plan).groups)):
            super().compact(plan)
            return
        self.note("execute in vain", plan.barrier)
        if self.mishaps.random() < 0.3:
            with pytest.raises(PayloadError, match=SAID):
                self.table.maintenance.plans.execute(plan)
            return
        others = [group for group in frozen(plan).groups if not self.fails(group)]
        failing = set(plan.file_groups) - {(group.partition, group.file_id) for group in others}
        self.told(lambda: self.table.maintenance.compact(plan), failing)
        self.plans.remove(plan)
        assert plan.barrier not in {one.barrier for one in self.table.maintenance.plans.open()}, self.story()
        self.require_folded([group for group in others if group.logs])
        self.check_all()

    def cancel(self, plan: CompactionPlan) -> None:
        if any(map(self.fails, frozen(plan).groups)):
            assert self.table.maintenance.plans.cancel(plan.barrier)
            self.note("cancel", plan.barrier)
        else:
            super().cancel(plan)

    def compact_all(self) -> None:
        wanted = self.wanted()
        self.told(self.table.maintenance.compact, self.stuck())
        self.look_at_plans()
        self.require_folded(wanted)

    def maintain(self) -> None:
        wanted = self.wanted()
        super().maintain()
        self.require_folded(wanted)

    def wanted(self) -> list[FileSlice]:
        """What an upkeep is to compact."""
        return [slice_ for slice_ in self.slices() if slice_.fresh_logs and not self.fails(slice_)]

    def require_ok(self, done: Maintained) -> None:
        """What fails is a compaction of what cannot be compacted, or an erasure that needs it."""
        failures = [action for action in done.actions if action.state == "failed"]
        assert all(SAID in action.error or action.error == LEFT_OUT for action in failures), f"{done}\n{self.story()}"
        assert not failures or self.stuck(), f"{done}\n{self.story()}"
        self.failed += bool(failures)

    def told(self, run: Any, held: set[FileGroup]) -> None:
        """Run a compaction. It raises what is said of a file group of `held` that still cannot be compacted."""
        raised: PayloadError | None = None
        try:
            self.note("compact", run())
        except PayloadError as error:
            raised = error
            self.failed += 1
            self.note("compact", error)
        assert raised is None or SAID in str(raised), self.story()
        assert bool(held & self.stuck()) == (raised is not None), f"{held} {raised}\n{self.story()}"

    def require_folded(self, slices: Sequence[GroupInput | FileSlice]) -> None:
        """The logs of these are in base files or carries, but for those of file groups that other plans hold."""
        taken = {group for plan in self.plans for group in plan.file_groups}
        logs = {log for slice_ in slices if (slice_.partition, slice_.file_id) not in taken for log in slice_.logs}
        left = {log for slice_ in self.slices() for log in slice_.logs} & logs
        assert not left, f"{left} are not compacted\n{self.story()}"

    def erase(self) -> None:
        self.poisoned.clear()
        super().erase()

    def finish(self) -> None:
        """At last all is mended."""
        self.poisoned.clear()
        super().finish()


def run_failing(seed: int, rule: str, path: Path, steps: int) -> FailingHistory:
    """A history with plans that fail, from its seed."""
    folded = compaction._compacted
    made: list[FailingHistory] = []

    class Watched(FailingHistory):
        def __post_init__(self) -> None:
            made.append(self)
            super().__post_init__()

    def failing(session: Session, plan: FrozenPlan, threads: int) -> list[DataFile]:
        (group,) = plan.groups
        if made[-1].fails(group):
            raise PayloadError(f"{SAID}. file={group.logs[-1].path}")
        return folded(session, plan, threads)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "_compacted", failing)
        history = run_upkeep(seed, rule, path, steps, Watched)
    assert isinstance(history, FailingHistory)
    return history

"""A table in memory whose life one writer at a time plays, with the real protocols and a simulated clock."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import TypeVar

import pyarrow as pa
import pytest

from crdt_mor.columns.schema import TableSchema
from crdt_mor.events import plan as plans
from crdt_mor.events import write
from crdt_mor.ground.clock import Process
from crdt_mor.hudi.actions import COMPACT
from crdt_mor.hudi.projection import Projector, TablePublisher
from crdt_mor.log.paths import version_path
from crdt_mor.log.segments import read_segment
from crdt_mor.log.steps import Nonce, Put, Steps, perform, run
from crdt_mor.log.tail import find_tail
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.names import COMMIT, COMPACTION, WRITE_TOKEN, BaseFileName, LogFileName, bucket_file_id
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup, Pending
from crdt_mor.planners.compaction import CompactionPlan, GroupInput
from crdt_mor.store.memory import MemoryStore
from crdt_mor.store.protocol import Store
from tests.driving import nonce_in_hex, one_by_one

SCHEMA = TableSchema.of(pa.schema([("id", pa.string())])).to_json()
PUBLISHER = TablePublisher(Projector(TableConfig("t", KeySpec(("id",)), buckets=4)))
NEVER = 1 << 60
T = TypeVar("T")


class Scene:
    """A table in memory, and time that stands where a test puts it."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000
        self.store: Store = MemoryStore(self.now_ms)
        self.count = 0
        self.store.put(version_path(0), Timeline.genesis(SCHEMA).encode())

    def now_ms(self) -> int:
        return self.ms

    def nonce(self) -> str:
        self.count += 1
        return nonce_in_hex(f"n{self.count}")

    def sleep(self, seconds: float) -> None:
        self.ms += 1

    def every(self, seconds: float, work: Callable[[], None], name: str) -> AbstractContextManager[None]:
        raise AssertionError("no protocol has anything done in the background")

    def jitter(self) -> float:
        return 0.5

    def process(self) -> Process:
        raise AssertionError("no protocol asks which process it is")

    def run(self, steps: Steps[T]) -> T:
        return run(steps, self.store, self)

    def tail(self) -> Timeline:
        return self.run(find_tail(None))

    def version(self, number: int) -> Timeline:
        data = self.store.read(version_path(number))
        assert data is not None
        return Timeline.decode(data, "")

    def begin(self, expiry_ms: int = NEVER) -> tuple[Timeline, Pending]:
        return self.run(write.begin(PUBLISHER, self.tail(), expiry_ms))

    def stage(self, begun: Pending, bucket: int = 0) -> DataFile:
        file = log(begun.requested, bucket)
        self.store.put(file.path, b"rows")
        return file

    def complete(
        self, value: Timeline, begun: Pending, files: list[DataFile], token: tuple[str, int] | None = None
    ) -> write.WriteOutcome:
        return self.run(write.complete(PUBLISHER, value, begun, "UPSERT", files, token))

    def commit(self, bucket: int = 0, token: tuple[str, int] | None = None) -> write.WriteOutcome:
        value, begun = self.begin()
        return self.complete(value, begun, [self.stage(begun, bucket)], token)

    def compact(self, bucket: int) -> Timeline:
        """A compaction of one bucket, as far as the timeline is concerned."""

        def steps() -> Steps[Timeline]:
            nonce = yield Nonce()

            def schedule(tail: Timeline, wall_ms: int) -> Timeline | None:
                if any(plan.nonce == nonce for plan in tail.plans):
                    return None
                return tail.schedule(nonce, wall_ms, COMPACTION, "no such plan")

            value = yield from PUBLISHER.publish(schedule)
            (plan,) = [plan for plan in value.plans if plan.nonce == nonce]
            file = DataFile(str(BaseFileName(bucket_file_id(bucket), WRITE_TOKEN, plan.barrier)), 1, 1)

            def complete(tail: Timeline, wall_ms: int) -> Timeline | None:
                if tail.find_plan(plan.barrier) is None:
                    return None
                return tail.complete_plan("c", wall_ms, plan.barrier, COMMIT, "COMPACT", [file])

            return (yield from PUBLISHER.publish(complete, value))

        return self.run(steps())

    def scheduling(self, bucket: int = 0) -> Steps[tuple[Timeline, CompactionPlan | None]]:
        """Schedule a plan of one bucket."""
        group = GroupInput("", bucket_file_id(bucket), None, (log(EPOCH, bucket),))

        def plan_from(tail: Timeline, taken: Collection[FileGroup]) -> CompactionPlan:
            return CompactionPlan(tail.next_barrier, (), SCHEMA, "latest", (group,))

        return plans.schedule(PUBLISHER, self.tail(), COMPACT, plan_from)

    def schedule(self, bucket: int = 0, watch: Callable[[], bool] = lambda: True) -> Timeline:
        """A plan of one bucket is open; `watch` holds all the time."""
        steps = one_by_one(self.scheduling(bucket))
        reply: object = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                value: Timeline = end.value[0]
                return value
            reply = perform(step, self.store, self)
            assert watch(), step

    def run_until_put(self, steps: Steps[object], path: str) -> None:
        """Run a protocol whose process dies right after it has put an object."""
        single = one_by_one(steps)
        step = next(single)
        while not (isinstance(step, Put) and step.path == path):
            step = single.send(perform(step, self.store, self))
        assert perform(step, self.store, self)
        single.close()

    def deletions(self, steps: Steps[object]) -> list[str]:
        """Run a protocol: the objects that it removed, in order."""
        deleted: list[str] = []
        delete = self.store.delete

        def noted(path: str) -> None:
            if self.store.stat(path) is not None:
                deleted.append(path)
            delete(path)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.store, "delete", noted)
            self.run(steps)
        return deleted

    def completions(self, value: Timeline) -> list[Completion]:
        found = [c for segment in value.segments for c in self.run(read_segment(segment))]
        return sorted([*found, *value.completions], key=lambda c: c.completed)

    def hudi(self) -> list[str]:
        return [stat.path.rpartition("/")[2] for stat in self.store.list(PUBLISHER.projector.folder)]


def log(requested: InstantTime, bucket: int = 0) -> DataFile:
    return DataFile(str(LogFileName(bucket_file_id(bucket), requested)), 4, 1)

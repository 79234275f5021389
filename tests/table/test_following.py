"""Following a table, on a simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import islice

from crdt_mor import Opening, Table
from crdt_mor.readers.follow import follow
from crdt_mor.testing.clock import SimulatedEnvironment
from tests.table.helpers import Make, frame


class Interrupted(SimulatedEnvironment):
    """Calls `meanwhile` whenever somebody sleeps, with the number of the sleep, and notes for how long it is."""

    def __init__(self, meanwhile: Callable[[int], object]) -> None:
        super().__init__()
        self.meanwhile = meanwhile
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.slept.append(seconds)
        self.meanwhile(len(self.slept))


def test_a_follower_sleeps_only_where_there_is_nothing_new_and_wakes_up_for_what_is(make: Make, path: str) -> None:
    writer = make(buckets=1)

    def meanwhile(sleeps: int) -> None:
        if sleeps == 3:
            writer.upsert(frame(("a", "x", 2)))

    writer.upsert(frame(("a", "x", 1)))
    environment = Interrupted(meanwhile)
    reader = Table(path, opening=Opening(environment=environment))
    windows = [window.to_arrow() for window in islice(follow(reader, every=timedelta(seconds=7)), 2)]
    assert [window.column("n").to_pylist() for window in windows] == [[1], [2]]
    assert environment.slept == [7, 7, 7]

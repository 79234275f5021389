"""Short plans of the simulator, in each of which something is right that looks like a fault."""

from __future__ import annotations

from typing import Final

from crdt_mor.testing.simulation import Action, Plan, Settings, run, story
from crdt_mor.testing.simulation.machine import Trouble

TABLE: Final = Settings("latest", partitioned=False, buckets=1)
MIGRATE: Final = Action(9, "migrate", 1, how=", roll back")


def told_of(*actions: Action) -> str:
    """The story of a plan in which every promise is kept."""
    outcome = run(Plan(1, TABLE, actions))
    assert outcome.violation is None, story(outcome)
    return story(outcome)


def test_a_process_that_is_told_of_a_move_may_fail_where_the_table_is_now() -> None:
    told = told_of(MIGRATE, Action(10, "plan", 1, trouble=Trouble("fails", "call", 17)))
    assert "plan, which ends with StorageUnavailableError; the store fails at its call number 17, read .hoodie" in told

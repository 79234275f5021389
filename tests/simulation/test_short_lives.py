"""Short plans of the simulator, in each of which something is right that looks like a fault."""

from __future__ import annotations

from typing import Final

from crdt_mor.testing.simulation import Action, Plan, Settings, run, story
from crdt_mor.testing.simulation.machine import Trouble

TABLE: Final = Settings("latest", partitioned=False, buckets=1)
OPEN: Final = Action(0, "open the accounts", 0)
MIGRATE: Final = Action(9, "migrate", 1, how=", roll back")


def told_of(*actions: Action, table: Settings = TABLE) -> str:
    """The story of a plan in which every promise is kept."""
    outcome = run(Plan(1, table, actions))
    assert outcome.violation is None, story(outcome)
    return story(outcome)


def test_a_process_that_is_told_of_a_move_may_fail_where_the_table_is_now() -> None:
    told = told_of(MIGRATE, Action(10, "plan", 1, trouble=Trouble("fails", "call", 13)))
    assert "plan, which ends with StorageUnavailableError; the store fails at its call number 13, read .hoodie" in told


def test_a_write_that_has_landed_when_the_table_moves_is_no_repeat() -> None:
    pause = Trouble("pauses", "change", 6, steps=1)
    told = told_of(OPEN, Action(1, "delete", 0, keys=("a",), how="plain", trouble=pause), MIGRATE)
    assert "process 1 deletes a: write 1, version 4\n  (it pauses at its change number 6, delete" in told


def test_a_write_that_a_restore_drops_while_it_is_repeated_is_committed_anew() -> None:
    pause = Trouble("pauses", "call", 3, steps=1)
    told = told_of(
        OPEN,
        Action(1, "transfer", 0, keys=("bank1", "bank2"), pick=5),
        Action(2, "repeat", 2, pick=0.9, trouble=pause),
        Action(3, "restore", 3),
        Action(4, "repeat", 0, pick=0.9),
    )
    assert "process 3 repeats write 1, version 8" in told
    assert "process 4 restores the table" in told
    assert "process 1 repeats write 1, which was version 8" in told


def test_a_write_that_may_add_columns_is_given_no_time_to_add_a_dropped_one_again() -> None:
    pause = Trouble("pauses", "change", 1, steps=1)
    rows = ({"name": "a", "v": 1, "note": "n", "amount": 1},)
    told = told_of(Action(1, "add a column", 1, rows=rows, trouble=pause), Action(2, "drop a column", 3))
    assert "process 4 finds no column to drop" in told


def test_an_erasure_by_keys_under_the_name_that_their_column_had_a_moment_ago_is_refused() -> None:
    pause = Trouble("pauses", "call", 5, steps=1)
    erase = Action(1, "erase", 1, keys=("y/a",), trouble=pause)
    told = told_of(erase, Action(2, "rename", 3), table=Settings("latest", partitioned=True, buckets=1))
    assert "process 2 erases a, and is refused: 'k' was renamed to 'k nr 2'" in told
    assert "process 4 calls 'k' 'k nr 2'" in told


def test_a_write_that_a_restore_drops_before_its_writer_is_told_is_told_as_given_up() -> None:
    rows = ({"name": "b", "v": 1, "note": "n", "amount": 3}, {"name": "é", "v": 2, "note": "n", "amount": -3})
    pause = Trouble("pauses", "call", 7, steps=1)
    told = told_of(
        OPEN,
        Action(3, "begin", 2, rows=rows, pick=0.6),
        Action(5, "end", 0, pick=0.15, how="commit", trouble=pause),
        Action(6, "restore", 2, pick=0.53),
        table=Settings("partial", partitioned=False, buckets=2),
    )
    assert "commits write 3, and is told that nothing is written: WriterExpiredError" in told
    assert "restores the table" in told

"""The simulator that ships: a seed is one run, promises are kept, a planted bug is found, and its story is short."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError
from crdt_mor.ground.threads import in_threads, one_thread
from crdt_mor.testing import ProcessDied, SimulatedEnvironment
from crdt_mor.testing.simulation import (
    INVARIANTS,
    Action,
    BrokenPromiseError,
    Outcome,
    Plan,
    Settings,
    run_seed,
    shrink,
)
from crdt_mor.testing.simulation import story as story_of
from crdt_mor.testing.simulation.chance import Chance
from crdt_mor.testing.simulation.machine import Calls, Disk, Happening, Trace, Trouble
from crdt_mor.testing.simulation.plan import WEIGHTS, plan_of
from crdt_mor.testing.simulation.running import ACTS, SHIPPED
from tests.simulation.planted import PLANTED, PLANTED_BESIDE, Planted, first_seed, planted_in
from tests.tiers import slow

ROOT: Final = Path(__file__).parent.parent.parent
PAGE: Final = ROOT / "docs" / "correctness.md"

# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [range(3), slow(range(3, 153))], ids=["few", "many"])
def test_runs_keep_every_promise(seeds: range) -> None:
    for seed in seeds:
        outcome = run_seed(seed)
        assert outcome.violation is None, story_of(outcome)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [406, 588], ids=["a rename that has landed and pauses", "a savepoint in a table that moves meanwhile"]
)
def test_what_has_a_reason_is_no_surprise(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.violation is None, story_of(outcome)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3072, 3099], ids=["a follower", "a snapshot"])
def test_who_reads_a_table_that_moves_meanwhile_is_held_to_what_was_there(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.violation is None, story_of(outcome)


@pytest.mark.slow
def test_a_seed_is_the_same_run_each_time() -> None:
    first, again = run_seed(5), run_seed(5)
    assert (first.digest, first.calls, first.story) == (again.digest, again.calls, again.story)
    assert first.calls > 100
    assert first.digest != run_seed(6).digest


@pytest.mark.slow
def test_so_it_is_in_another_process_in_another_folder_whose_hashes_differ(tmp_path: Path) -> None:
    def digest(hashes: str, folder: Path) -> str:
        words = [sys.executable, "-m", "crdt_mor", "simulate", "--seeds", "24", "--output", "json"]
        environment = {"PYTHONHASHSEED": hashes, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=True)
        return str(json.loads(done.stdout)["digest"])

    assert digest("1", ROOT) == digest("3", tmp_path)


def test_every_kind_of_action_is_drawn() -> None:
    assert {kind for kind, _ in WEIGHTS} == set(ACTS)
    drawn = {action.kind for seed in range(60) for action in plan_of(seed, None, SHIPPED).actions}
    assert drawn == set(ACTS)


# --- planted bugs -----------------------------------------------------------------------------------------------------


def test_every_promise_has_a_planted_bug() -> None:
    assert [planted.invariant for planted in PLANTED] == list(INVARIANTS)
    assert all(planted.seed < 1000 for planted in PLANTED)


def name_of(planted: Planted) -> str:
    return planted.plant.__name__ if planted in PLANTED_BESIDE else planted.invariant


@pytest.mark.parametrize(
    "planted", [one if one.invariant == "laws" else slow(one) for one in (*PLANTED, *PLANTED_BESIDE)], ids=name_of
)
def test_a_planted_bug_is_found(planted: Planted) -> None:
    with planted_in(planted):
        outcome = run_seed(planted.seed, planted.payload)
    assert outcome.violation is not None, story_of(outcome)
    assert outcome.violation.invariant == planted.invariant, story_of(outcome)


@pytest.mark.long
@pytest.mark.parametrize("planted", [*PLANTED, *PLANTED_BESIDE], ids=name_of)
def test_no_smaller_seed_finds_it(planted: Planted) -> None:
    assert first_seed(planted, range(1000)) == planted.seed


@pytest.mark.slow
def test_the_story_in_the_docs_is_what_the_program_tells() -> None:
    (planted,) = (one for one in PLANTED if one.invariant == "one-moment")
    with planted_in(planted):
        shortest = shrink(run_seed(planted.seed, planted.payload))
    assert story_of(shortest) in PAGE.read_text()


def test_the_page_names_every_promise_and_every_planted_bug_with_its_seed() -> None:
    page = PAGE.read_text()
    for planted in PLANTED:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{planted.invariant}` |"))
        assert INVARIANTS[planted.invariant].rstrip(".") in row
        assert row.endswith(f"| {planted.seed} |"), row
    for planted in PLANTED_BESIDE:
        assert f"| {(planted.plant.__doc__ or '').rstrip('.')} | `{planted.invariant}` | {planted.seed} |" in page


# --- shrinking --------------------------------------------------------------------------------------------------------

TABLE: Final = Settings("latest", partitioned=False, buckets=1)


def needing(*numbers: int) -> Outcome:
    """The outcome of a plan of 20 actions that breaks a promise where it has these, the last one with its trouble."""
    trouble = Trouble("pauses", "change", 2, steps=3, seconds=70.0)
    rows = ({"name": "a"}, {"name": "b"})
    actions = tuple(Action(n, "upsert", 0, rows=rows, trouble=trouble) for n in range(20))
    return played(Plan(1, TABLE, actions), numbers)


def played(plan: Plan, numbers: tuple[int, ...]) -> Outcome:
    there = {action.number: action for action in plan.actions}
    is_broken = all(n in there for n in numbers) and there[numbers[-1]].trouble is not None
    broken = BrokenPromiseError("bank", "the accounts do not add up") if is_broken else None
    return Outcome(plan, broken, "", 0, ())


def test_a_failing_plan_is_shrunk_to_the_actions_that_it_takes() -> None:
    shortest = shrink(needing(3, 11, 17), lambda plan: played(plan, (3, 11, 17)))
    assert [action.number for action in shortest.plan.actions] == [3, 11, 17]
    assert [len(action.rows) for action in shortest.plan.actions] == [1, 1, 1]
    assert [action.trouble for action in shortest.plan.actions] == [
        None, None, Trouble("pauses", "change", 2, steps=1, seconds=0.0),
    ]  # fmt: skip


def test_a_shorter_plan_that_breaks_another_promise_is_none() -> None:
    def other(plan: Plan) -> Outcome:
        return replace(played(plan, (3, 4)), violation=BrokenPromiseError("laws", "…"))

    first = needing(3, 4)
    assert shrink(first, other) is first


def test_a_plan_that_breaks_nothing_stays_as_it_is() -> None:
    first = replace(needing(1), violation=None)
    assert shrink(first) is first


# --- what a run stands on ---------------------------------------------------------------------------------------------


def test_chance_is_the_same_everywhere() -> None:
    chance = Chance(7, "x")
    assert [chance.below(100) for _ in range(8)] == [37, 13, 82, 38, 1, 92, 41, 64]
    assert {Chance(n).weighted((("a", 1), ("b", 3))) for n in range(40)} == {"a", "b"}
    assert sorted(Chance(1).some("abc", 5)) == ["a", "b", "c"]


def test_a_power_cut_takes_what_is_not_durable() -> None:
    disk = Disk(lambda: 0)
    disk.put("a/lasts", b"1")
    for number in range(20):
        disk.put(f"b/hint{number}", b"1", durable=False)
        disk.put(f"c/name{number}", b"1", durable=False)
    disk.put("d/next", b"1", after=("c/name0",))
    lost = disk.lose_power(Chance(1))
    assert disk.read("a/lasts") == disk.read("d/next") == b"1"
    assert {path[0] for path in lost} == {"b", "c"}
    assert all(disk.read(path) == (None if path[0] == "b" else b"") for path in lost)
    assert disk.lose_power(Chance(2)) == []


def test_what_is_made_durable_outlasts_a_power_cut() -> None:
    disk = Disk(lambda: 0)
    disk.put("b/log", b"1", durable="content")
    disk.make_durable("b/another")
    assert disk.lose_power(Chance(1)) == []


def calls(trouble: Trouble, disk: Disk, late: list[Callable[[], object]]) -> Calls:
    made = Calls(disk, "p1", Trace(), lambda *_: None, lambda steps, call: late.append(call))
    made.arm(trouble)
    return made


def test_a_process_dies_before_a_change_or_after_it() -> None:
    fates: list[tuple[Happening, bytes | None]] = [("dies before", None), ("dies after", b"2")]
    for happening, content in fates:
        disk = Disk(SimulatedEnvironment().now_ms)
        process = calls(Trouble(happening, "change", 2), disk, [])
        process.put("one", b"1")
        with pytest.raises(ProcessDied):
            process.put("two", b"2")
        assert disk.read("two") == content
        with pytest.raises(ProcessDied):
            process.read("one")


def test_a_process_that_is_cut_off_is_answered_nothing_more() -> None:
    disk = Disk(SimulatedEnvironment().now_ms)
    process = calls(Trouble("is cut off", "change", 1), disk, [])
    with pytest.raises(CommitUnknownError):
        process.put("one", b"1")
    with pytest.raises(StorageUnavailableError):
        process.read("one")
    process.arm(None)
    assert process.read("one") == b"1"


def test_a_late_put_is_carried_out_later() -> None:
    disk, late = Disk(SimulatedEnvironment().now_ms), list[Callable[[], object]]()
    process = calls(Trouble("comes late", "change", 1, steps=2), disk, late)
    with pytest.raises(CommitUnknownError):
        process.put("one", b"1")
    assert disk.read("one") is None
    (call,) = late
    assert call()
    assert disk.read("one") == b"1"


def test_in_one_thread_work_is_done_by_the_caller_in_order() -> None:
    def where(_: int) -> str:
        return threading.current_thread().name

    with one_thread():
        assert set(in_threads(where, range(4))) == {threading.current_thread().name}
    assert set(in_threads(where, range(4))) != {threading.current_thread().name}

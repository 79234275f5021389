"""Processes that fork after a table was opened: an error that says what to do, and never a hang or a shared write."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import crdt_mor as mor
from crdt_mor.ground import forks
from crdt_mor.write.open_write import OpenWrite
from tests.inside import look_for_hudi
from tests.simulated import Simulated
from tests.table.helpers import SCHEMA, frame

linux = pytest.mark.skipif(sys.platform != "linux", reason="whether polars has its threads is asked of Linux")

TESTS = Path(__file__).parents[2]


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes this process take itself for one that was forked just now."""

    def fork(threads: bool) -> None:
        monkeypatch.setattr(forks._forks, "count", forks._forks.count + 1)
        monkeypatch.setattr(forks._forks, "threads_lost", threads)

    return fork


def test_what_was_opened_before_a_fork_is_refused_and_what_is_opened_after_it_is_not(
    simulated: Simulated, forked: Callable[..., None]
) -> None:
    table = simulated.create(schema=SCHEMA, key="id")
    scan = table.scan()
    forked(threads=False)
    for use in (partial(look_for_hudi, table), table.scan, scan.to_arrow, lambda: table.upsert(frame(("a", "eu")))):
        with pytest.raises(mor.errors.ForkedProcessError, match=r"Table"):
            use()
    own = mor.Table("simulated", opening=mor.Opening(store=simulated.store, environment=simulated.environment))
    own.upsert(frame(("a", "eu")))
    assert own.count() == 1


def test_a_transaction_that_was_begun_before_a_fork_is_left_alone(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = simulated.create(schema=SCHEMA, key="id")
    with table.transaction() as tx:
        tx.upsert(frame(("a", "eu")))
        with monkeypatch.context() as patch:
            patch.setattr(forks._forks, "count", forks._forks.count + 1)
            write = tx._write
            assert isinstance(write, OpenWrite)
            write.abandon()
            with pytest.raises(mor.errors.ForkedProcessError):
                write.commit()
            with pytest.raises(mor.errors.ForkedProcessError):
                tx.upsert(frame(("b", "eu")))
    assert table.count() == 1


def test_without_polars_threads_not_even_a_table_of_ones_own_is_opened(
    simulated: Simulated, forked: Callable[..., None]
) -> None:
    simulated.create(schema=SCHEMA, key="id")
    forked(threads=True)
    with pytest.raises(mor.errors.ForkedProcessError, match="spawn"):
        mor.Table("simulated", opening=mor.Opening(store=simulated.store))


def test_a_table_that_is_pickled_is_opened_where_it_arrives(path: str) -> None:
    table = mor.Table.create(path, SCHEMA, key="id")
    there = pickle.loads(pickle.dumps(table))
    there.upsert(frame(("a", "eu")))
    assert table.count() == there.count() == 1


@pytest.fixture(scope="module")
def answers(fast_module_path: Path) -> dict[str, str]:
    """What became of each child, by its name. One program for all tests, as a start of Python costs a second."""
    program = [sys.executable, "-m", "tests.table.forking", str(fast_module_path / "t")]
    ran = subprocess.run(program, cwd=TESTS, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(line) for line in ran.stdout.splitlines())


@pytest.mark.slow
@linux
def test_no_process_hangs(answers: dict[str, str]) -> None:
    assert "hangs" not in answers.values(), answers


@pytest.mark.slow
@linux
def test_a_process_that_is_forked_before_anything_ran_opens_tables_of_its_own(answers: dict[str, str]) -> None:
    assert answers["early: a table of its own"] == "ok 1"


@pytest.mark.slow
@linux
def test_a_table_that_was_opened_before_the_fork_is_the_parents(answers: dict[str, str]) -> None:
    answer = answers["early: the parent's table"]
    assert answer.startswith("ForkedProcessError")
    assert "Table" in answer


@pytest.mark.slow
@linux
def test_two_processes_never_draw_the_same_nonce(answers: dict[str, str]) -> None:
    assert answers["early: nonce"].startswith("ok ")
    assert answers["early: nonce"] != answers["parent: nonce"]


@pytest.mark.slow
@linux
@pytest.mark.parametrize(
    "what",
    [
        "late: a table of its own",
        "late: the parent's table, write",
        "late: the parent's table, read",
        "late: the parent's scan",
        "late: the parent's scan, narrowed",
        "late: the parent's scan, explained",
        "late: the parent's scan, in parts",
        "late: the parent's scan, counted",
        "late: the parent's changes",
        "late: the parent's changes, as images",
        "late: the parent's table, changes",
        "late: the parent's table, file groups",
        "late: the parent's table, planned write",
        "late: the parent's plan",
        "late: a job's task",
        "pool of processes",
        "transaction: written to",
        "transaction: read",
        "transaction: block left",
    ],
)
def test_once_polars_has_worked_a_forked_process_is_told_to_be_spawned(what: str, answers: dict[str, str]) -> None:
    assert answers[what].startswith("ForkedProcessError")
    assert "spawn" in answers[what]


@pytest.mark.slow
@linux
def test_a_stream_of_rows_ends_with_an_error_in_the_child_and_goes_on_in_the_parent(answers: dict[str, str]) -> None:
    assert not answers["late: the parent's stream of rows"].startswith("ok")
    assert answers["parent: stream of rows"] == "ok True"


@pytest.mark.slow
@linux
def test_a_childs_own_error_is_not_hidden_by_a_transaction_of_the_parent(answers: dict[str, str]) -> None:
    assert answers["transaction: block left by an error"].startswith("ZeroDivisionError")


@pytest.mark.slow
@linux
def test_the_parents_transaction_commits_whatever_its_children_did(answers: dict[str, str]) -> None:
    assert answers["parent: transaction"] == "ok 1"
    assert answers["parent: rows"] == "ok 10002", "two large writes, the early child's row and the transaction's"


@pytest.mark.parametrize(
    "make",
    [
        lambda uri: mor.Table.create(uri, SCHEMA, key="id"),
        lambda uri: mor.Table.create(uri, SCHEMA, key="id", exist_ok=True),
        lambda uri: mor.Table.create_from(uri, frame(("a", "x", 1)), key="id"),
    ],
    ids=["create", "exist_ok", "create_from"],
)
def test_table_create_in_a_forked_child_without_threads_makes_nothing(
    fast_path: Path, forked: Callable[..., None], make: Callable[[Path], mor.Table]
) -> None:
    forked(threads=True)
    with pytest.raises(mor.errors.ForkedProcessError, match="spawn"):
        make(fast_path / "t")
    assert not (fast_path / "t").exists()

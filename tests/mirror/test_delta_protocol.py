"""Processes that die, race and lose replies while they refresh a Delta mirror."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor import Table
from tests.mirror.delta_reading import (
    REWRITE,
    VECTORS,
    by_delta_rs,
    mirrored,
    state_of,
    steps_of,
)
from tests.mirror.driven import Driven
from tests.mirror.shapes import RULES, SCHEMA, rows, scanned, written_over


def small(path: Path) -> Table:
    table = Table.create(str(path), SCHEMA, key="id", buckets=2)
    table.upsert(rows(range(6), 1))
    table.maintenance.compact()
    table.upsert(rows([1], 2))
    return table


def versions_of(table: Table) -> list[int]:
    """The versions of the table that the mirror showed, in order; the log has no hole."""
    found = sorted(Path(table.uri, "_delta_log").glob("*.json"))
    assert [int(path.stem) for path in found] == list(range(len(found)))
    return [json.loads(path.read_text().partition("\n")[0])["commitInfo"]["crdt_mor.version"] for path in found]


def expected(table: Table) -> dict[int, list[str]]:
    return {version: scanned(table, as_of=version) for version in set(versions_of(table))}


@pytest.mark.slow
def test_mirror_whose_process_dies_at_any_step_is_continued_by_the_next(tmp_path: Path) -> None:
    whole = small(tmp_path / "whole")
    mirrored(whole)
    before = scanned(whole)
    whole.upsert(rows([2, 3], 4))
    dies_at, is_over = 0, False
    while not is_over:
        shutil.copytree(whole.uri, tmp_path / str(dies_at))
        table = Table(str(tmp_path / str(dies_at)))
        dying = Driven(table, steps_of(table))
        for _ in range(dies_at):
            is_over = not dying.step() or is_over
        assert by_delta_rs(table) in (before, scanned(table))
        mirrored(table)
        assert by_delta_rs(table) == scanned(table)
        assert versions_of(table) == sorted(versions_of(table))
        dies_at += 1
    assert dies_at > 5


@pytest.mark.parametrize("lands", [False, True])
def test_mirror_that_loses_the_reply_of_any_put_commits_once(tmp_path: Path, lands: bool) -> None:
    whole = small(tmp_path / "whole")
    puts = [path for path, _ in mirrored(whole).puts]
    for lost in range(len(puts)):
        table = small(tmp_path / f"{lost}")
        driven = losing(table, lost, lands)
        while driven.step():
            pass
        assert driven.result is not None
        assert driven.result.number == state_of(table).number == 0
        assert by_delta_rs(table) == scanned(table)


def losing(table: Table, lost: int, lands: bool) -> Driven:
    """Loses the reply of one put, the `lost`-th; it lands or not."""
    puts = count()
    return Driven(table, steps_of(table), lambda _: next(puts) == lost, lands=lands)


def raced(table: Table, rng: random.Random, count: int) -> list[Driven]:
    """Refreshes of several versions at once, a step each in turn, by chance."""
    running, over = [], []
    for number in range(count):
        table.upsert(rows([number], 100 + number))
        running.append(Driven(table, steps_of(table, VECTORS if rng.random() < 0.9 else REWRITE)))
    while running:
        one = rng.choice(running)
        if not one.step():
            running.remove(one)
            over.append(one)
    return over


@pytest.mark.parametrize("seed", range(6))
def test_three_mirrors_at_once_make_one_line_of_versions(tmp_path: Path, seed: int) -> None:
    table = small(tmp_path)
    mirrored(table)
    over = raced(table, random.Random(seed), 3)
    shown = versions_of(table)
    assert shown == sorted(shown)
    assert max(shown) <= table.version
    assert all(one.result is not None for one in over)
    for number, version in enumerate(shown):
        assert by_delta_rs(table, version=number) == scanned(table, as_of=version)
    mirrored(table)
    assert by_delta_rs(table) == scanned(table)


def test_loser_of_a_race_deletes_its_own_files(tmp_path: Path) -> None:
    table = small(tmp_path)
    mirrored(table)
    table.upsert(rows([2], 9))
    slow, quick = Driven(table, steps_of(table)), Driven(table, steps_of(table))
    while not slow.path.endswith("1.json"):
        slow.step()
    while quick.step():
        pass
    while slow.step():
        pass
    assert slow.result is not None
    assert slow.result.puts == ()
    files = {path.relative_to(table.uri).as_posix() for path in Path(table.uri, ".mirror").rglob("*.*")}
    named = {path for number in (0, 1) for path in paths_in(table, number)}
    assert {path for path in files if path.endswith(".parquet")} <= named
    assert by_delta_rs(table) == scanned(table)


def paths_in(table: Table, number: int) -> Iterator[str]:
    for line in Path(table.uri, "_delta_log", f"{number:020d}.json").read_text().splitlines():
        action = json.loads(line)
        if "add" in action:
            yield action["add"]["path"]


@pytest.mark.slow
def test_fifty_versions_of_three_concurrent_writers_equal_the_scan(tmp_path: Path) -> None:
    """Writers overlap as blocks of one thread: each begins, others commit, and it ends."""
    table = Table.create(str(tmp_path), SCHEMA, key="id", buckets=3)
    rng, shown = random.Random(7), dict[int, int]()
    blocks: list[Any] = []
    while len(shown) < 50:
        if len(blocks) < 3:
            block = table.transaction()
            blocks.append((block, block.__enter__()))
        block, writer = blocks.pop(rng.randrange(len(blocks)))
        writer.upsert(rows(rng.sample(range(40), 5), rng.randrange(100), f"{len(shown)}"))
        if rng.random() < 0.3:
            writer.delete(keys=rng.sample(range(40), 2))
        block.__exit__(None, None, None)
        if rng.random() < 0.1:
            table.maintenance.compact()
        done = mirrored(table)
        shown[done.number] = done.version
        assert by_delta_rs(table) == scanned(table, as_of=done.version)
    for block, _ in blocks:
        block.__exit__(None, None, None)
    assert list(shown.values()) == sorted(shown.values())


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True)),
        st.tuples(st.just("compact"), st.just([])),
        st.tuples(st.just("mirror"), st.just([])),
    ),
    max_size=8,
)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=8)
@given(actions=ACTIONS)
def test_mirror_of_a_random_history_equals_the_scan(
    rule: str, tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, list[int]]]
) -> None:
    table = Table.create(str(tmp_path_factory.mktemp("t")), SCHEMA, key="id", buckets=2, **RULES[rule])
    for number, (action, keys) in enumerate(actions):
        if action == "upsert":
            table.upsert(rows(keys, number * 7 % 5, f"{number}"))
        elif action == "delete":
            table.delete(keys=keys, plain=True)
        elif action == "compact":
            table.maintenance.compact()
        else:
            mirrored(table)
            assert by_delta_rs(table) == scanned(table)
    mirrored(table)
    assert by_delta_rs(table) == scanned(table)
    again = written_over(table)
    mirrored(again)
    assert by_delta_rs(again) == scanned(again)

"""What a soak looks for is found: a view that no commits can have made, memory that grows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.soak import figures, meaning
from tests.soak.meaning import Rows

NUMBERS = {name: 14 + index for index, name in enumerate(meaning.WRITERS)} | {
    "update0": 9,
    "update1": 4,
    meaning.DRIVER: 3,
}


def test_a_view_that_commits_have_made_says_how_many_and_is_right() -> None:
    for number in range(1, 3 * meaning.CYCLE):
        numbers = NUMBERS | {"write3": number, "update1": number, meaning.DRIVER: number}
        rows = meaning.rows_after(numbers)
        assert meaning.wrong_in(rows, numbers) == []
        assert meaning.numbers_of(rows)["write3"] == number - meaning.is_delete(number)


def test_the_rows_of_many_commits_are_those_of_one_after_another() -> None:
    rows = meaning.opening()
    for number in range(1, 3 * meaning.CYCLE):
        rows.pop(meaning.deleted_by("write0", number) or "", None)
        if not meaning.is_delete(number):
            for key, (kind, val, *counters) in meaning.upserted_by("write0", number).items():
                before = rows.get(key, (kind, None, None, None, None))[2:]
                n, s, q = (None if new is None else new + (old or 0) for new, old in zip(counters, before, strict=True))
                rows[key] = (kind, val, n, s, q)
        nobody = dict.fromkeys([*meaning.WRITERS, *meaning.UPDATERS, meaning.DRIVER], 0)
        assert rows == meaning.rows_after(nobody | {"write0": number})


def _twice(rows: Rows) -> None:
    kind, val, n, s, q = rows["write2"]
    assert n is not None
    rows["write2"] = (kind, val, n + 1, s, q)


def _in_part(rows: Rows) -> None:
    rows["all.1"] = ("count", None, (rows["all.1"][2] or 0) - 1, None, None)


def _stale(rows: Rows) -> None:
    last = NUMBERS["write3"]
    rows[f"write3.{last % meaning.KEYS}"] = ("own", last - meaning.KEYS, None, None, None)


def _back(rows: Rows) -> None:
    deleted = meaning.deleted_by("write1", NUMBERS["write1"])
    assert deleted is not None
    rows[deleted] = ("own", 1, None, None, None)


def _half_a_transfer(rows: Rows) -> None:
    source, _, amount = meaning.transfer("update0", NUMBERS["update0"])
    kind, val, *counters = rows[source]
    rows[source] = (kind, (val or 0) + amount, *counters)  # type: ignore[assignment]


def _a_task_twice(rows: Rows) -> None:
    key = f"{meaning.DRIVER}.1"
    kind, val, n, s, q = rows[key]
    rows[key] = (kind, val, (n or 0) + 1, (s or 0) + 3, (q or 0) + 9)


@pytest.mark.parametrize("wrong", [_twice, _in_part, _stale, _back, _half_a_transfer, _a_task_twice])
def test_a_view_that_no_commits_can_have_made_is_found(wrong: Callable[[Rows], None]) -> None:
    rows = meaning.rows_after(NUMBERS)
    wrong(rows)
    assert meaning.wrong_in(rows)


def test_a_view_without_a_commit_that_was_acknowledged_is_found() -> None:
    before = meaning.rows_after(NUMBERS | {"write1": 13, "update1": 3})
    assert meaning.wrong_in(before) == []
    assert len(meaning.wrong_in(before, NUMBERS | {"write1": 14})) == 2


@pytest.mark.parametrize(("grown", "is_found"), [(1.0, False), (1.1, False), (1.5, True)])
def test_memory_that_grows_is_found(grown: float, is_found: bool) -> None:
    series = figures.memory()
    size = 200 * figures.MIB
    series.samples = [(at, round(size * (1 + (grown - 1) * max(0, at - 300) / 600))) for at in range(1200)]
    assert series.grew(1200) is is_found
    assert not series.grew(figures.JUDGED_AFTER_S - 1)

"""Under a selective filter the keys are merged of which some row meets it: what is decoded, and when all are merged."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import polars as pl
import pytest

from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge import matching, overlay, visible
from crdt_mor.merge.base_rows import BaseScan
from crdt_mor.merge.blocks import DataBlock, DeleteBlock, Slice
from crdt_mor.merge.contributions import Contributions, gather
from crdt_mor.merge.kernel import merge, read_at_once, resolve_at_once
from crdt_mor.merge.key_condition import KeyCondition
from crdt_mor.merge.key_words import Keys
from crdt_mor.merge.matching import keys_by_filter
from crdt_mor.merge.rule import Member, MergeRule
from crdt_mor.payloads import Counter
from tests.merge.helpers import COLUMNS, frame, parquet, stamp

RULES = {"latest": MergeRule(), "ordering": MergeRule("ordering", "v"), "partial": MergeRule("columns")}
KEYS = [f"k{number:02}" for number in range(90)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows count as large ones."""
    monkeypatch.setattr(matching, "ROWS_OF_BLOCK_MIN", 0)
    monkeypatch.setattr("crdt_mor.merge.key_condition.BYTES_OF_ROW", 20)


def rows_of(tick: int, values: dict[str, int], keys: list[str]) -> bytes:
    """A block in which all keys have the value 1, but for some."""
    return parquet(frame([(stamp(tick), key, values.get(key, 1)) for key in keys]))


def slice_of(*values: dict[str, int], keys: list[str] = KEYS) -> Slice:
    """A base and logs with these values, each of all keys."""
    base, *logs = (rows_of(tick, some, keys) for tick, some in enumerate(values, 1))
    blocks = tuple(DataBlock(stamp(tick), log) for tick, log in enumerate(logs, 2))
    return Slice(ParquetSource.in_memory(base), stamp(1), blocks)


def asked_of(files: Slice, predicate: pl.Expr, rule: MergeRule = RULES["latest"]) -> KeyCondition | None:
    """Which keys a filter leaves."""
    assert files.base is not None
    with ThreadPoolExecutor(1) as pool:
        base = BaseScan(files.base, COLUMNS, "k", predicate).prefetched(["k", "v"], pool)
        return keys_by_filter(files.blocks, [base], rule, COLUMNS)


@pytest.mark.parametrize("rule", RULES)
def test_keys_are_merged_of_which_some_row_meets_the_filter(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[list[str]] = []

    def counted(*args: object, **settings: object) -> Contributions:
        found = gather(*args, **settings)  # type: ignore[arg-type]
        merged.append(sorted(set(found.rows["k"])))
        return found

    for module in (visible, overlay):
        monkeypatch.setattr(module, "gather", counted)
    # k01 is replaced by a row that does not meet the filter, k02 by one that does, k03 was one for a while.
    files = slice_of({"k01": 9, "k04": 9}, {"k03": 8}, {"k02": 7})
    tombstone = DeleteBlock(stamp(5), pl.DataFrame({"_hoodie_record_key": ["k04"]}))
    files = replace(files, blocks=(*files.blocks, tombstone))
    frames = merge(files, RULES[rule], COLUMNS, select=["k", "v"], predicate=pl.col("v") > 5)
    shown = {"k02": 7} if rule != "ordering" else {"k01": 9, "k02": 7, "k03": 8}
    assert dict(pl.concat(frames).rows()) == shown
    assert merged == [["k01", "k02", "k03", "k04"]]


def test_all_keys_are_merged_where_many_rows_meet_the_filter() -> None:
    few, many = {"k01": 9}, dict.fromkeys(KEYS, 9)
    selective = pl.col("v") == 9
    found = asked_of(slice_of(few, few, few), selective)
    assert found is not None
    assert found.values == 3
    assert asked_of(slice_of(few, many, few), selective) is None
    assert asked_of(slice_of(few, few, many), selective) is None
    assert asked_of(slice_of(many, few, few), selective) is None
    assert asked_of(slice_of(few), selective) is None, "without logs nothing is merged"


def test_of_several_slices_the_keys_of_all_are_merged() -> None:
    others = [f"m{key}" for key in KEYS]
    first, second = slice_of({"k01": 9}, {"k02": 9}), slice_of({"mk01": 9}, {"mk03": 9}, {}, keys=others)
    files, predicate = [first, second], pl.col("v") == 9
    for ahead in (False, True):
        found = resolve_at_once(files, COLUMNS, select=["k"], predicate=predicate, ahead=ahead)
        keys = [sorted(one.base_choice.texts) for one in found if isinstance(one.base_choice, Keys)]
        assert keys == ([["k01", "k02"], ["mk01", "mk03"]] if ahead else [KEYS, others])
        rows = read_at_once(found, select=["k"], predicate=predicate)
        assert [sorted(pl.concat(merged.frames)["k"]) for merged in rows] == [["k02"], []]
        assert all(merged.resolution is None for merged in rows)


def test_small_blocks_are_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "ROWS_OF_BLOCK_MIN", 10_000)
    assert asked_of(slice_of({}, {}, {}), pl.col("v") == 9) is None


def test_a_damaged_row_without_a_key_is_found_by_the_merge_of_all() -> None:
    base, log = frame([(stamp(1), "a", 1)]), frame([(stamp(2), key, 1) for key in KEYS])
    damaged = parquet(log.with_columns(pl.when(pl.col("k") != "k05").then(pl.col("k"))))
    files = Slice(ParquetSource.in_memory(parquet(base)), stamp(1), (DataBlock(stamp(2), damaged),))
    assert asked_of(files, pl.col("k").is_null()) is None


def test_values_that_are_put_together_of_several_rows_are_merged_of_all_keys() -> None:
    files = slice_of({}, {"k01": 9}, {})
    of_two = (pl.col("v") == 9) & (pl.col("k") != "k05")
    assert asked_of(files, of_two) is not None
    assert asked_of(files, of_two, RULES["partial"]) is None
    counted = MergeRule("columns", members=(Member(("v",), Counter(), pl.Int64()),))
    assert asked_of(files, pl.col("v") == 9, RULES["partial"]) is not None
    assert asked_of(files, pl.col("v") == 9, counted) is None

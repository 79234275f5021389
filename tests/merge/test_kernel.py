"""Claims about the kernel that random histories reach too seldom, or not at all."""

from __future__ import annotations

from random import Random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor.errors import FormatError, InvalidInputError
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge.blocks import RECORD_KEY, DataBlock, DeleteBlock, Slice
from crdt_mor.merge.compaction import compact_all
from crdt_mor.merge.kernel import merge, to_arrow
from crdt_mor.merge.oracle import Contribution, fold
from crdt_mor.merge.precombine import DeleteWrite, RowsWrite, precombine
from crdt_mor.merge.rule import MergeRule
from tests.merge.helpers import COLUMNS, frame, parquet, stamp
from tests.tiers import long, slow

ORDERING = MergeRule("ordering", ordering="v")


def deletes(tick: int, *keys: str) -> DeleteBlock:
    return DeleteBlock(stamp(tick), pl.DataFrame({RECORD_KEY: list(keys)}, schema={RECORD_KEY: pl.String}))


def rows_of(files: Slice, rule: MergeRule) -> dict[str, int | None]:
    found = [row for f in merge(files, rule, COLUMNS, select=["k", "v"]) for row in f.rows()]
    keys = merge(files, rule, COLUMNS, select=[COLUMNS.merge_key])
    assert len(found) == len(dict(found)) == sum(frame.height for frame in keys)
    return dict(found)


@pytest.mark.slow
@pytest.mark.parametrize("examples", [30, slow(100), long(400)])
@pytest.mark.parametrize("rule", [MergeRule(), ORDERING], ids=["latest", "ordering"])
def test_a_log_older_than_the_base_wins_only_where_its_time_or_value_does(rule: MergeRule, examples: int) -> None:
    @settings(max_examples=examples)
    @given(seed=st.integers(0, 10**9))
    def check(seed: int) -> None:
        check_old_logs(rule, Random(seed))

    check()


def check_old_logs(rule: MergeRule, r: Random) -> None:
    """A base and logs of times below, between and above it are read as the fold of their writes."""
    keys, writes = "abcd", []
    blocks: list[DataBlock | DeleteBlock] = []
    ticks = list(range(12))
    base = [(stamp(r.choice(ticks) * 2), k, r.choice([None, 0, 1, 2])) for k in keys if r.random() < 0.8]
    writes += [Contribution(t, k, "row", (("k", k), ("v", v))) for t, k, v in base]
    for tick in sorted(r.sample(ticks, 4)):
        time, k, x = stamp(tick * 2 + 1), r.choice(keys), r.random()
        if x < 0.4:
            blocks.append(deletes(tick * 2 + 1, k))
            writes.append(Contribution(time, k, "delete"))
        elif x < 0.6 and rule.kind == "ordering":
            value = r.randint(0, 2)
            blocks.append(DeleteBlock(time, pl.DataFrame({RECORD_KEY: [k], "ordering": [value]})))
            writes.append(Contribution(time, k, "tombstone", (("v", value),)))
        else:
            given_value = r.choice([None, 0, 1, 2])
            blocks.append(DataBlock(time, parquet(frame([(time, k, given_value)]))))
            writes.append(Contribution(time, k, "row", (("k", k), ("v", given_value))))
    latest = r.choice([None, max((t for t, _, _ in base), default=stamp(0))])
    files = Slice(ParquetSource.in_memory(parquet(frame(base))), latest, tuple(blocks))
    want = {k: row["v"] for k, row in fold(writes, rule, ["k", "v"]).items()}
    assert rows_of(files, rule) == want
    chosen = merge(files, rule, COLUMNS, select=["k"], predicate=pl.col("v") > 0)
    assert sorted(k for f in chosen for k in f["k"]) == sorted(k for k, v in want.items() if isinstance(v, int) and v)


def test_a_row_without_a_key_is_damage() -> None:
    """A flipped bit in a log takes the key of a row away; no write makes such a row."""
    rows = frame([(stamp(2), "a", 1), (stamp(2), "b", 2)])
    damaged = rows.with_columns(pl.col("k", RECORD_KEY).replace("a", None))
    files = Slice(None, None, (DataBlock(stamp(2), parquet(damaged)), DataBlock(stamp(4), parquet(rows))))
    with pytest.raises(FormatError, match="a row has no record key"):
        list(merge(files, MergeRule("columns"), COLUMNS, select=["k", "v"]))


@pytest.mark.parametrize("latest", [None, stamp(6)], ids=["not known", "known"])
def test_of_a_delete_and_a_row_of_one_time_the_row_stands(latest: str | None) -> None:
    base = ParquetSource.in_memory(parquet(frame([(stamp(4), "a", 1), (stamp(6), "b", 2)])))
    files = Slice(base, latest, (deletes(4, "a", "b"),))
    assert rows_of(files, MergeRule()) == {"a": 1, "b": 2}
    again = DataBlock(stamp(4), frame([(stamp(4), "a", 9), (stamp(4), "b", 9)]))
    assert rows_of(Slice(base, latest, (deletes(4, "a"), again)), MergeRule()) == {"a": 9, "b": 2}


def test_an_unstable_delete_still_beats_a_straggler_that_completes_after_compaction() -> None:
    before = Slice(None, None, (DataBlock(stamp(2), frame([(stamp(2), "a", 1)])), deletes(6, "a")))
    compacted = compact_all(before, MergeRule(), COLUMNS, stable_before=stamp(4))
    rows, (carried,) = pl.concat(part() for part in compacted.parts), compacted.carry()
    assert rows.height == 0
    assert isinstance(carried, DeleteBlock)
    assert carried.keys.rows() == [("a", stamp(6))]
    straggler = DataBlock(stamp(4), frame([(stamp(4), "a", 2)]))
    blocks = (straggler, DeleteBlock(stamp(9), carried.keys))
    assert rows_of(Slice(ParquetSource.in_memory(parquet(rows)), None, blocks), MergeRule()) == {}
    newer = DataBlock(stamp(8), frame([(stamp(8), "a", 3)]))
    base = ParquetSource.in_memory(parquet(rows))
    assert rows_of(Slice(base, None, (straggler, newer, blocks[1])), MergeRule()) == {"a": 3}


def test_a_delete_that_is_stable_or_lost_is_not_carried() -> None:
    blocks = (deletes(2, "a"), deletes(6, "b"), DataBlock(stamp(8), frame([(stamp(8), "b", 1)])))
    for stable_before in (stamp(4), None):
        compacted = compact_all(Slice(None, None, blocks), MergeRule(), COLUMNS, stable_before)
        assert pl.concat(part() for part in compacted.parts)["k"].to_list() == ["b"]
        assert compacted.carry() == []


def test_keys_of_different_partitions_do_not_meet_in_a_transaction() -> None:
    def part(path: str, value: int) -> pl.DataFrame:
        return frame([(stamp(2), "a", value)]).with_columns(pl.lit(path).alias("_hoodie_partition_path"))

    gone = DeleteWrite(pl.DataFrame({RECORD_KEY: ["a"], "_hoodie_partition_path": ["p"]}))
    folded = precombine([RowsWrite(part("p", 1)), RowsWrite(part("q", 2)), gone], MergeRule())
    assert [r.rows["v"].to_list() for r in folded.rows] == [[2]]
    assert folded.deletes["_hoodie_partition_path"].to_list() == ["p"]


def test_rows_of_a_statement_are_in_one_piece() -> None:
    whole = frame([(stamp(2), key, 1) for key in "abcd"])
    pieces = pl.concat(whole.iter_slices(1), rechunk=False)
    for data in (pieces, pieces.to_arrow()):
        rows = RowsWrite(data).rows
        assert rows.n_chunks("all") == [1] * rows.width
        assert rows.equals(whole)


def test_an_ordering_column_is_named_by_its_rule_and_no_other() -> None:
    with pytest.raises(InvalidInputError):
        MergeRule("ordering")
    with pytest.raises(InvalidInputError):
        MergeRule("latest", ordering="v")


def test_results_leave_in_types_that_pyarrow_can_work_with() -> None:
    nested = pl.DataFrame({"s": ["x"], "l": [["y"]], "t": [{"u": "z", "b": b"1"}]})
    kinds = [str(t) for t in to_arrow(nested).schema.types]
    assert not any("large" in t or "view" in t for t in kinds)

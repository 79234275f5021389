"""Some keys are asked for: what is decoded and merged of logs, and that it means the same as among all keys."""

from __future__ import annotations

from random import Random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge import at_once, contributions, key_condition, overlay, visible
from crdt_mor.merge.blocks import COMMIT_TIME, RECORD_KEY, Columns, DataBlock, DeleteBlock, Slice
from crdt_mor.merge.contributions import AT, KIND, LINE_KEY, ROW, Contributions, gather
from crdt_mor.merge.kernel import merge, merged, resolve_at_once
from crdt_mor.merge.key_condition import KeyCondition
from crdt_mor.merge.key_words import Keys
from crdt_mor.merge.rule import MergeRule
from tests.merge.helpers import COLUMNS, frame, parquet, stamp

RULES = {"latest": MergeRule(), "ordering": MergeRule("ordering", "v"), "partial": MergeRule("columns")}
KEYS = [f"k{number:02}" for number in range(30)]
NUMBERED = Columns({"k": pl.String(), "v": pl.Int64()}, "k", frozenset({"k"}))


def blocks_of(r: Random) -> list[DataBlock | DeleteBlock]:
    """Rows in Parquet and in memory, some of them carried, and deletes of both kinds, also none of a block."""
    made: list[DataBlock | DeleteBlock] = []
    for tick in range(1, r.randint(2, 9)):
        keys = sorted(r.sample(KEYS, r.randint(0, 12)))
        times = [stamp(r.randint(1, tick)) for _ in keys]
        kind = r.choice(["parquet", "parquet", "memory", "carried", "deletes", "carried deletes", "tombstones"])
        if kind.endswith("deletes"):
            carried = {"time": times} if kind == "carried deletes" else {}
            made.append(
                DeleteBlock(
                    stamp(tick),
                    pl.DataFrame(
                        {RECORD_KEY: keys, **carried},
                        schema_overrides={"time": pl.String} if carried else {RECORD_KEY: pl.String},
                    ),
                )
            )
        elif kind == "tombstones":
            orders = pl.Series("ordering", [r.choice([None, 1, 2]) for _ in keys], pl.Int64)
            made.append(
                DeleteBlock(
                    stamp(tick), pl.DataFrame({RECORD_KEY: pl.Series(keys, dtype=pl.String)}).with_columns(orders)
                )
            )
        else:
            own = kind == "carried"
            rows = frame([(t if own else stamp(tick), k, r.randint(0, 3)) for t, k in zip(times, keys, strict=True)])
            made.append(DataBlock(stamp(tick), rows if kind == "memory" else parquet(rows), own_times=own))
    return made


def lines_of(found: Contributions) -> pl.DataFrame:
    """The lines, each with the value and the time of its row instead of its place, and whether its block gives `v`."""
    given = found.given.get("v")
    rows = found.rows.select(pl.int_range(pl.len(), dtype=pl.Int64).alias(AT), "v", COMMIT_TIME)
    rows = rows if given is None else rows.with_columns(pl.Series("given", given))
    of_rows = found.lines.with_columns(pl.when(pl.col(KIND) == ROW).then(pl.col(AT)).alias(AT))
    return of_rows.join(rows, on=AT, how="left", maintain_order="left").drop(AT)


@pytest.mark.costly
@pytest.mark.parametrize("columns", [COLUMNS, NUMBERED], ids=["plain", "numbered"])
@pytest.mark.parametrize("rule", RULES)
def test_contributions_of_some_keys_are_those_among_all(rule: str, columns: Columns) -> None:
    @settings(max_examples=25)
    @given(seed=st.integers(0, 10**9), timed=st.booleans(), few=st.sampled_from([0, key_condition.FEW_VALUES]))
    def check(seed: int, timed: bool, few: int) -> None:
        r = Random(seed)
        blocks, some = blocks_of(r), r.sample(KEYS, r.randint(0, 9))
        only_keys = KeyCondition("k", pl.col("k").is_in(some), len(some))
        need = ["k", "v", COMMIT_TIME]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(key_condition, "FEW_VALUES", few)
            patch.setattr(key_condition, "BYTES_OF_ROW", r.choice([1, 10**6]))
            every = gather(blocks, RULES[rule], columns, "k", need, timed=timed)
            found = gather(blocks, RULES[rule], columns, "k", need, timed=timed, sized=True, only_keys=only_keys)
            narrow = only_keys.pays_among(blocks)
        lines, want = lines_of(found), lines_of(every)
        assert lines.equals(want.filter(pl.col(LINE_KEY).is_in(some)) if narrow or rule == "partial" else want)
        assert found.rows["k"].is_in(some).all() or not narrow
        keys = [b.keys[RECORD_KEY] if isinstance(b, DeleteBlock) else block_keys(b) for b in blocks]
        assert list(found.sizes) == [int(k.is_in(some).sum()) if narrow else len(k) for k in keys]

    check()


def block_keys(block: DataBlock) -> pl.Series:
    rows = block.rows if isinstance(block.rows, pl.DataFrame) else pl.read_parquet(bytes(block.rows))
    return rows["k"]


@pytest.mark.parametrize("rule", RULES)
def test_rows_that_are_not_asked_for_are_not_decoded(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    def counted(*args: object, **settings: object) -> Contributions:
        found = gather(*args, **settings)  # type: ignore[arg-type]
        decoded.append(found.rows.height + found.lines.height)
        return found

    for module in (visible, at_once, overlay):
        monkeypatch.setattr(module, "gather", counted)
    logs: list[DataBlock | DeleteBlock] = [
        DataBlock(stamp(tick), parquet(frame([(stamp(tick), key, tick) for key in KEYS]))) for tick in (2, 4, 6)
    ]
    logs.insert(2, DeleteBlock(stamp(5), pl.DataFrame({RECORD_KEY: KEYS})))
    files = Slice(ParquetSource.in_memory(parquet(frame([(stamp(1), k, 1) for k in KEYS]))), stamp(1), tuple(logs))
    only_keys = KeyCondition("k", pl.col("k").is_in(KEYS[3:5]), 2)
    found = merged(files, RULES[rule], COLUMNS, select=["k", "v"], only_keys=only_keys)
    assert found.resolution is None, "of other rows nothing was found out"
    decoded.clear()
    frames = merge(files, RULES[rule], COLUMNS, select=["k", "v"], predicate=only_keys.condition, only_keys=only_keys)
    assert sorted(pl.concat(frames).rows()) == [(key, 6) for key in KEYS[3:5]]
    assert decoded == [2 * 3 + 2 * 4], "three rows and a delete of each of two keys"
    if rule == "latest":
        decoded.clear()
        shared = resolve_at_once(
            [files], COLUMNS, select=["k", "v"], predicate=only_keys.condition, only_keys=only_keys
        )
        assert sorted(shared[0].live.rows()) == [(key, 6) for key in KEYS[3:5]]
        assert isinstance(shared[0].base_choice, Keys)
        assert sorted(shared[0].base_choice.texts) == KEYS[3:5]
        assert shared[0].log_mask is None, "of other rows nothing was found out"
        assert decoded == [2 * 3 + 2 * 4]


def test_a_set_that_is_larger_than_the_logs_is_not_held_against_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_condition, "FEW_VALUES", 3)
    rows = frame([(stamp(2), key, 1) for key in KEYS])
    block = DataBlock(stamp(2), rows)
    only_keys = KeyCondition("k", pl.col("k").is_in(KEYS[:5]), 5)
    assert gather([block], MergeRule(), COLUMNS, "k", ["k"], only_keys=only_keys).rows.height == len(KEYS)
    folded = gather([block], RULES["partial"], COLUMNS, "k", ["k"], only_keys=only_keys)
    assert folded.lines[LINE_KEY].to_list() == KEYS[:5], "a payload sees no values of other keys"
    many = DataBlock(stamp(2), pl.concat([rows] * 9))
    assert gather([many], MergeRule(), COLUMNS, "k", ["k"], only_keys=only_keys).rows.height == 9 * 5


def test_without_deletes_and_times_no_footer_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contributions, "height", None)
    blocks = [DataBlock(stamp(t), parquet(frame([(stamp(t), key, t) for key in KEYS]))) for t in (2, 4)]
    found = gather(blocks, MergeRule(), COLUMNS, "k", ["v"], only_keys=KeyCondition("k", pl.col("k") == KEYS[0]))
    assert found.rows["v"].to_list() == [2, 4]

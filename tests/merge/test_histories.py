"""The kernel against the oracle, over random histories: overlapping writers, stragglers, plans executed late.

Each history is a list of events with a clock of its own; after every few events the table is read through the kernel
(base, carried blocks, logs) and compared with the plain fold of all commits. That covers at once: every rule, late
logs, deletes, tombstones, partial sets, older and narrower files, precombine, both forms of compaction, and log
compactions between them.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge import compaction
from crdt_mor.merge.blocks import COMMIT_TIME, RECORD_KEY, Columns, DataBlock, DeleteBlock, Slice
from crdt_mor.merge.clustering import clustered_places
from crdt_mor.merge.compaction import compact_all, compact_logs, compact_stable
from crdt_mor.merge.contributions import RowGroup, row_groups
from crdt_mor.merge.kernel import merge, parts, touched
from crdt_mor.merge.key_condition import KeyCondition
from crdt_mor.merge.oracle import Contribution, Row, fold
from crdt_mor.merge.precombine import DeleteWrite, RowsWrite, precombine
from crdt_mor.merge.rule import ORDERS, MergeRule
from crdt_mor.model.layout import BY_KEY, Z_ORDER, Layout
from tests.tiers import long, slow

STORED: dict[str, pl.DataType] = {
    "k": pl.Int64(), "v": pl.Int64(), "a": pl.Float64(), "b": pl.String(), "late": pl.Int64(),
}  # fmt: skip
USER = list(STORED)
KEYS = ["1", "2", "3", "10", "4"]
RULES = {
    "latest": MergeRule(),
    "ordering": MergeRule("ordering", ordering="v"),
    "partial": MergeRule("columns"),
    "partial, keep": MergeRule("columns", nulls="keep"),
    "partial, ordering": MergeRule("columns", "v"),
    "partial, ordering, keep": MergeRule("columns", "v", nulls="keep"),
}
LAYOUTS = (BY_KEY, Layout(("v", "b")), Layout(("a",)), Layout(("b", "v", "late"), Z_ORDER))
"""Orders of rows in base files, also of columns that most base files have nulls in."""
FILTERS = (
    pl.col("a") > 4,
    pl.col("v") == 2,
    (pl.col("a") > 4) & (pl.col("v") >= 1),
    pl.col("v").is_null(),
    (pl.col("late") < 5) | pl.col("b").is_null(),
    pl.lit(value=False),
)
"""Conditions on one column, for which nulls meet or fail, and on two, of which a partial update gives one."""
ENTRIES = pl.List(pl.Struct({"order": pl.Int64(), "time": pl.String(), "columns": pl.List(pl.String())}))
Block = DataBlock | DeleteBlock


def parquet(frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.write_parquet(out, row_group_size=2)
    return out.getvalue()


def stamp(clock: int) -> str:
    return f"{clock:017d}"


@dataclass
class History:
    """A table of one file slice, and everything that ever happened to it."""

    random: Random
    rule: MergeRule
    stable_form: bool
    columns: Columns
    clock: int = 0
    pending: dict[int, tuple[list[Block], list[Contribution]]] = field(default_factory=dict)
    done: list[tuple[int, list[Block]]] = field(default_factory=list)
    writes: list[Contribution] = field(default_factory=list)
    plan: tuple[int, list[int], Slice] | None = None
    base: ParquetSource | None = None
    base_latest: str | None = None
    barrier: int = -1
    carried: list[Block] = field(default_factory=list)
    layouts: tuple[Layout, ...] = (BY_KEY,)
    """The orders of rows that its compactions choose from."""

    def step(self) -> None:
        self.clock += 2
        r, x = self.random, self.random.random()
        if x < 0.45:
            self.pending[self.clock] = self.transaction()
        elif x < 0.8 and self.pending:
            blocks, writes = self.pending.pop(r.choice(list(self.pending)))
            self.done.append((self.clock, blocks))
            self.writes += writes
        elif x < 0.9 and self.plan is None:
            self.plan = (self.clock - 1, sorted(self.pending), self.slice())
        elif self.plan is not None:
            self.compact(*self.plan)
            self.plan = None

    def transaction(self) -> tuple[list[Block], list[Contribution]]:
        """One to three statements, as log blocks and for the oracle."""
        time, r = stamp(self.clock), self.random
        writes: list[Contribution] = []
        statements: list[RowsWrite | DeleteWrite] = []
        for _ in range(r.choice([1, 1, 2, 3])):
            keys = [r.choice(KEYS) for _ in range(r.randint(1, 3))]
            if r.random() < 0.3:
                statements.append(self.delete(keys, time, writes))
            else:
                statements.append(self.upsert(keys, time, writes))
        folded = precombine(statements, self.rule)
        assert all(f[RECORD_KEY].is_unique().all() for f in (folded.deletes, folded.tombstones))
        blocks: list[Block] = [DeleteBlock(time, f) for f in (folded.deletes, folded.tombstones) if f.height]
        for part in folded.rows:
            rows = part.rows
            narrow = rows.with_columns(pl.col(c).cast(pl.Int32) for c in ("v", "a") if c in rows.columns)
            held = r.choice([rows, narrow, rows.select(reversed(rows.columns))])
            forms: list[bytes | memoryview | pl.DataFrame] = [parquet(held), memoryview(parquet(held)), held]
            blocks.append(DataBlock(time, r.choice(forms), part.given, nulls=part.nulls))
        return blocks, writes

    def delete(self, keys: list[str], time: str, writes: list[Contribution]) -> DeleteWrite:
        frame = pl.DataFrame({RECORD_KEY: keys})
        if self.rule.ordering is None or self.random.random() < 0.5:
            writes += [Contribution(f"{time}.{len(writes):03d}", k, "delete") for k in dict.fromkeys(keys)]
            return DeleteWrite(frame)
        orders = [self.random.randint(0, 3) for _ in keys]
        for k, o in zip(keys, orders, strict=True):
            writes.append(Contribution(f"{time}.{len(writes):03d}", k, "tombstone", (("v", o),)))
        return DeleteWrite(frame.with_columns(pl.Series("ordering", orders, pl.Int64)))

    def upsert(self, keys: list[str], time: str, writes: list[Contribution]) -> RowsWrite:
        r = self.random
        given = (
            [c for c in USER if c in ("k", self.rule.ordering) or r.random() < 0.5]
            if self.rule.kind == "columns"
            else list(USER)
        )
        if self.clock < 20 and "late" in given:
            given.remove("late")
        nulls = tuple(c for c in ("v", "b") if self.rule.nulls == "keep" and r.random() < 0.5)
        rows = []
        for k in keys:
            row: dict[str, object] = {
                "k": int(k),
                "v": r.choice([0, 1, 2, 3] if self.rule.has_orders else [None, 0, 1, 2, 3]),
                "a": float(r.randint(0, 9)),
                "late": len(writes),
            }
            row["b"] = r.choice([None, f"{k}@{self.clock}"])
            rows.append({c: row[c] for c in given})
            place = f"{time}.{len(writes):03d}"
            writes.append(Contribution(place, k, "row", tuple(rows[-1].items()), nulls=frozenset(nulls)))
        frame = pl.DataFrame(rows, schema={c: STORED[c] for c in given})
        meta = [pl.lit(time).alias(COMMIT_TIME), pl.lit("s").alias("_hoodie_commit_seqno")]
        meta += [pl.col("k").cast(pl.String).alias(RECORD_KEY), pl.lit("").alias("_hoodie_partition_path")]
        return RowsWrite(frame.select(*meta, pl.lit("f").alias("_hoodie_file_name"), *given), nulls=nulls)

    def slice(self) -> Slice:
        logs = [b for completed, blocks in self.done if completed > self.barrier for b in blocks]
        blocks = sorted([*self.carried, *logs], key=lambda b: b.instant)
        return Slice(self.base, self.base_latest, tuple(blocks))

    def compact(self, barrier: int, pending: list[int], files: Slice) -> None:
        if self.base is not None and self.random.random() < 0.4:
            self.compact_logs(barrier, pending, files)
            return
        stable = stamp(pending[0]) if pending else None
        if self.rule.kind == "latest" and not self.stable_form:
            compacted = compact_all(files, self.rule, self.columns, stable)
        else:
            compacted = compact_stable(files, self.rule, self.columns, [stamp(p) for p in pending])
        rows, self.carried = pl.concat(part() for part in compacted.parts), compacted.carry()
        if self.rule.kind != "latest" or self.stable_form:
            self.check_carry(len(pending))
        else:
            assert stable is not None or not self.carried
        assert rows.columns == self.columns.select_own()
        assert rows[RECORD_KEY].to_list() == sorted(set(rows[RECORD_KEY]))
        latest = rows[COMMIT_TIME].max()
        layout = self.random.choice(self.layouts) if len(self.layouts) > 1 else self.layouts[0]
        rows = rows if layout.by_key else rows[clustered_places(rows, layout)]
        self.base = ParquetSource.in_memory(parquet(rows))
        self.base_latest = self.random.choice([None, str(latest or stamp(0))])
        self.barrier = barrier

    def compact_logs(self, barrier: int, pending: list[int], files: Slice) -> None:
        carry = compact_logs(files, self.rule, self.columns, [stamp(p) for p in pending])
        assert carry is not None, "only what Hudi wrote cannot be folded without the base"
        self.carried, self.barrier = carry, barrier
        self.check_carry(1 + len(pending))

    def check_carry(self, gaps: int) -> None:
        """A carry does not grow with the number of commits, only with that of pending writers."""
        rows = [b for b in self.carried if isinstance(b, DataBlock)]
        of_key = len(USER) if self.rule.has_orders else 1  # a row that sets no column is dropped
        assert sum(b.rows.height for b in rows if isinstance(b.rows, pl.DataFrame)) <= gaps * of_key * len(KEYS)
        instants = [b.instant for b in self.carried]
        assert instants == sorted(instants)

    def check(self) -> None:
        files, r = self.slice(), self.random
        want = fold(self.writes, self.rule, USER)
        select = r.choice([[RECORD_KEY, COMMIT_TIME, *USER], [RECORD_KEY, "b"], ["b", RECORD_KEY, "late"]])
        expect = sorted(([{RECORD_KEY: k, **row}[c] for c in select] for k, row in want.items()), key=repr)
        expect = [[str(v)[:17] if c == COMMIT_TIME else v for c, v in zip(select, row, strict=True)] for row in expect]
        cut = parts(files, len(KEYS), self.rule, self.columns, select)
        frames = [frame for part in cut for frame in merge(part, self.rule, self.columns, select=select)]
        types = self.columns.schema
        assert all(f.schema == {c: types[c] for c in select} for f in frames)
        assert sorted((list(row) for f in frames for row in f.rows()), key=repr) == sorted(expect, key=repr)
        keys = merge(files, self.rule, self.columns, select=[self.columns.merge_key])
        assert sum(frame.height for frame in keys) == len(want)
        self.check_filtered(files, want)
        self.check_asked(files, want)
        seen = {w.key for w in self.writes}
        assert {str(key) for key in touched(files.blocks, self.columns)} <= seen

    def check_filtered(self, files: Slice, want: Mapping[str, Row]) -> None:
        """A filter is asked of merged rows, whichever rows of base and logs meet it."""
        rows = pl.DataFrame([dict(row) for row in want.values()], STORED)
        for predicate in [FILTERS[0], self.random.choice(FILTERS)]:
            some = merge(files, self.rule, self.columns, select=["k"], predicate=predicate)
            assert sorted(k for f in some for k in f["k"]) == sorted(rows.filter(predicate)["k"])

    def check_asked(self, files: Slice, want: Mapping[str, Row]) -> None:
        """Of some keys alone a merge gives what it gives of them among all, also where a filter says more."""
        r, key = self.random, self.columns.merge_key
        edge, some = r.choice(KEYS), r.sample([*KEYS, "7"], r.randint(0, 4))
        of_text = key == RECORD_KEY
        among = pl.col(key).is_in(some if of_text else [int(k) for k in some])
        below = pl.col(key) < (edge if of_text else int(edge))
        condition, keys = r.choice([(among, set(some)), (below, {k for k in KEYS if _is_below(k, edge, of_text)})])
        asked = KeyCondition(key, condition, r.choice([1, 5, 100]))
        for filtered in (False, True):
            predicate = condition & (pl.col("a") > 4) if filtered else condition
            names = [RECORD_KEY, COMMIT_TIME, *USER]
            every = _rows(merge(files, self.rule, self.columns, select=names, predicate=predicate))
            assert (
                _rows(merge(files, self.rule, self.columns, select=names, predicate=predicate, only_keys=asked))
                == every
            )
            said = (k for k, row in want.items() if k in keys and (not filtered or _is_above(row["a"], 4)))
            assert [row[0] for row in every] == sorted(said)


def _rows(frames: Sequence[pl.DataFrame]) -> list[tuple[object, ...]]:
    """All rows, in the order of their keys, which come first."""
    return sorted((row for frame in frames for row in frame.rows()), key=lambda row: str(row[0]))


def _is_below(key: str, edge: str, of_text: bool) -> bool:
    return key < edge if of_text else int(key) < int(edge)


def _is_above(value: object, edge: float) -> bool:
    return isinstance(value, float) and value > edge


CASES = list(product(RULES, [None, "k"]))
"""Rules, and whether the key is a column of the user's."""

FAST = [CASES[0], CASES[7]]
"""The cases of the fast tier: each kind of key once, with the plainest rule and with the one that keeps most."""


@pytest.mark.costly
@pytest.mark.parametrize(
    ("rule", "key_column", "examples"),
    [
        *((*case, 4) for case in FAST),
        *(slow(*case, 20) for case in CASES),
        *(long(*case, 50) for case in CASES),
    ],
)
def test_any_history_reads_as_the_fold_of_its_commits(rule: str, key_column: str | None, examples: int) -> None:
    yes_or_no = st.booleans()

    @settings(max_examples=examples)
    @given(
        seed=st.integers(0, 10**9), stable_form=yes_or_no, promote=yes_or_no, by_hash=yes_or_no, in_parts=yes_or_no,
        by_words=yes_or_no, matching=yes_or_no, layouts=st.sampled_from([(BY_KEY,), LAYOUTS]),
    )  # fmt: skip
    def check(
        seed: int, stable_form: bool, promote: bool, by_hash: bool, in_parts: bool, by_words: bool,
        matching: bool, layouts: tuple[Layout, ...],
    ) -> None:  # fmt: skip
        check_history(rule, key_column, seed, stable_form, promote, by_hash, in_parts, layouts, by_words, matching)

    check()


def check_history(
    rule: str,
    key_column: str | None,
    seed: int,
    stable_form: bool,
    promote: bool,
    by_hash: bool,
    in_parts: bool,
    layouts: tuple[Layout, ...] = (BY_KEY,),
    by_words: bool = False,
    matching: bool = False,
) -> None:
    """A random history is read again and again, and compared with the fold of its commits."""
    with pytest.MonkeyPatch.context() as patch:
        if by_hash:
            patch.setattr("crdt_mor.merge.base_rows.IN_SCAN_KEYS_MAX", 0)
        if by_words:
            patch.setattr("crdt_mor.merge.base_rows.IN_SCAN_WORDS_MAX", 0)
            patch.setattr("crdt_mor.merge.key_words._MANY", 0)
            patch.setattr("crdt_mor.merge.key_condition.FEW_VALUES", 0)
        if matching:
            patch.setattr("crdt_mor.merge.matching.ROWS_OF_KEY", 0)
            patch.setattr("crdt_mor.merge.matching.ROWS_OF_BLOCK_MIN", 0)
        if promote:
            patch.setattr("crdt_mor.merge.visible.PLAYS_BASE_BYTES_MIN", 1)
        if in_parts:
            patch.setattr("crdt_mor.merge.parts.SCAN_CUT_ROWS_MIN", 1)
            patch.setattr("crdt_mor.merge.parts.SCAN_PART_ROWS_MIN", 1)
            patch.setattr("crdt_mor.merge.compaction.PART_BASE_ROWS_MIN", 2)
        columns = Columns(STORED | ({ORDERS: ENTRIES} if RULES[rule].has_orders else {}), key_column)
        history = History(Random(seed), RULES[rule], stable_form, columns, layouts=layouts)
        for i in range(history.random.randint(10, 45)):
            history.step()
            if i % 5 == 4:
                history.check()
        history.check()


def test_rows_are_found_missing_where_a_clustered_base_is_cut_as_if_it_were_in_the_order_of_keys() -> None:
    """The histories find the bug that they are there for."""

    def never_overlapping(source: ParquetSource, column: str) -> list[RowGroup] | None:
        groups = row_groups(source, column) or []
        return [RowGroup(group.rows, f"{i}.", f"{i}.") for i, group in enumerate(groups)]

    def some_histories() -> None:
        for seed in range(30):
            check_history("latest", "k", seed, False, False, False, True, LAYOUTS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crdt_mor.merge.parts.row_groups", never_overlapping)
        with pytest.raises(AssertionError):
            some_histories()


def test_a_set_null_that_a_compaction_loses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    split = compaction._split

    def forgetting(*given: Any) -> Any:
        return tuple(tuple(replace(b, nulls=()) if isinstance(b, DataBlock) else b for b in s) for s in split(*given))

    def some_histories() -> None:
        for seed in (4, 12):
            check_history("partial, keep", None, seed, False, False, False, False)

    some_histories()
    monkeypatch.setattr(compaction, "_split", forgetting)
    with pytest.raises(AssertionError):
        some_histories()


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of a few rows plays the base, and each of its row groups is a part of its own."""
    monkeypatch.setattr("crdt_mor.merge.visible.PLAYS_BASE_BYTES_MIN", 1)
    monkeypatch.setattr("crdt_mor.merge.compaction.PART_BASE_ROWS_MIN", 1)


def whole_rows(clock: int, late: int | None, *keys: int) -> pl.DataFrame:
    """Rows with v = 1; without the column `late` where it is None."""
    rows = pl.DataFrame({"k": keys, "v": [1] * len(keys)}, schema={"k": pl.Int64, "v": pl.Int64})
    meta = {COMMIT_TIME: pl.lit(stamp(clock)), RECORD_KEY: pl.col("k").cast(pl.String)}
    return rows.with_columns(**meta, **({} if late is None else {"late": pl.lit(late, pl.Int64)}))


FEW = Columns({"k": pl.Int64(), "v": pl.Int64(), "late": pl.Int64()}, "k")


@pytest.mark.usefixtures("in_parts")
def test_a_tombstone_before_the_block_that_plays_the_base_is_carried() -> None:
    rule = RULES["ordering"]
    tombstone = DeleteBlock(stamp(2), pl.DataFrame({RECORD_KEY: ["3"], "ordering": [3]}))
    large = DataBlock(stamp(4), parquet(whole_rows(4, None, 1, 2, 3)))
    compacted = compact_stable(Slice(None, None, (tombstone, large)), rule, FEW, [])
    rows, carried = pl.concat(part() for part in compacted.parts), compacted.carry()
    assert rows["k"].to_list() == [1, 2]
    later = DataBlock(stamp(6), parquet(whole_rows(6, None, 3)))
    after = Slice(ParquetSource.in_memory(parquet(rows)), None, (*carried, later))
    assert sorted(k for frame in merge(after, rule, FEW, select=["k"]) for k in frame["k"]) == [1, 2]


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("rule", ["latest", "ordering"])
def test_rows_of_the_block_that_plays_the_base_are_no_partial_updates(rule: str) -> None:
    """A row after a delete stands, and a column that its block lacks is null."""
    delete = DeleteBlock(stamp(2), pl.DataFrame({RECORD_KEY: ["3"]}))
    older = DataBlock(stamp(3), whole_rows(3, 5, 1))
    large = DataBlock(stamp(4), parquet(whole_rows(4, None, 1, 2, 3)))
    files = Slice(None, None, (delete, older, large))
    compacted = compact_stable(files, RULES[rule], FEW, [])
    rows = pl.concat(part() for part in compacted.parts)
    assert rows.select("k", "late", COMMIT_TIME).rows() == [(k, None, stamp(4)) for k in (1, 2, 3)]

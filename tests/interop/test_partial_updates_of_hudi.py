"""Blocks of Hudi's MERGE INTO, which give some columns of a row and not its key, among whole rows and deletes.

The rows that are expected here are the ones that Hudi's own reader gives.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor.columns.schema import META_COLUMNS
from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.format.base_file import write_parquet
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge import kernel
from crdt_mor.merge.blocks import Columns, DataBlock, DeleteBlock, Slice
from crdt_mor.merge.compaction import compact_all, compact_logs, compact_stable
from crdt_mor.merge.kernel import to_arrow
from crdt_mor.merge.rule import MergeRule
from crdt_mor.model.config import TableConfig
from crdt_mor.model.keys import KeySpec
from crdt_mor.read.hudi_rows import with_key
from tests.interop.hudi_archive import completed, make_hudis
from tests.interop.readers import ours
from tests.interop.shapes import Maker, keys, rows

STORED = pa.schema([("id", pa.string()), ("n", pa.int64()), ("a", pa.string()), ("b", pa.string())])
COLUMNS = Columns.of(STORED, "id")
BY_TIME, BY_N = MergeRule(), MergeRule("ordering", "n")

Values = dict[str, object]


def frame(instant: str, values: Sequence[Values], names: Sequence[str]) -> pl.DataFrame:
    meta = {"_hoodie_commit_time": instant, "_hoodie_partition_path": ""}
    found = [{**meta, **row, "_hoodie_record_key": row["id"]} for row in values]
    kinds = {name: COLUMNS.schema[name] for name in (*META_COLUMNS, *names)}
    return pl.DataFrame(found, schema=kinds)


def full(instant: str, *values: Values) -> DataBlock:
    return DataBlock(instant, frame(instant, values, STORED.names))


def part(instant: str, *values: Values) -> DataBlock:
    """A block without the key's own column, as Hudi writes it."""
    names = [name for name in STORED.names if name in values[0] and name != "id"]
    return DataBlock(instant, frame(instant, values, names), tuple(names))


def delete(instant: str, key: str, n: int | None = None) -> DeleteBlock:
    ordering = {} if n is None else {"ordering": [n]}
    return DeleteBlock(instant, pl.DataFrame({"_hoodie_record_key": [key], **ordering}))


def base(*values: Values) -> ParquetSource:
    return ParquetSource.in_memory(bytes(write_parquet(to_arrow(frame("1", values, STORED.names)))))


def row(key: str, n: int, a: str | None, b: str | None) -> Values:
    return {"id": key, "n": n, "a": a, "b": b}


def merged(files: Slice, rule: MergeRule, predicate: pl.Expr | None = None) -> list[tuple[object, ...]]:
    names = [*STORED.names, "_hoodie_commit_time"]
    found = pl.concat(kernel.merge(files, rule, COLUMNS, select=names, predicate=predicate)).sort("id")
    if predicate is None:
        keys = kernel.merge(files, rule, COLUMNS, select=[COLUMNS.merge_key])
        assert sum(rows.height for rows in keys) == found.height
        for key, rows in found.group_by("id", maintain_order=True):
            asked = kernel.KeyCondition("id", pl.col("id") == key[0])
            alone = kernel.merge(files, rule, COLUMNS, select=names, predicate=asked.condition, only_keys=asked)
            assert pl.concat(alone).rows() == rows.rows()
    return found.rows()


BASE = base(row("x", 10, "a", "b"), row("y", 10, "c", "d"))
UNTOUCHED = ("y", 10, "c", "d", "1")


@pytest.mark.costly
@pytest.mark.parametrize(
    ("rule", "blocks", "expected"),
    [
        (BY_TIME, [part("2", {"id": "x", "a": "A"})], ("x", 10, "A", "b", "2")),
        (BY_TIME, [part("2", {"id": "x", "a": None})], ("x", 10, None, "b", "2")),
        (BY_TIME, [part("2", {"id": "x", "a": "A"}), part("3", {"id": "x", "b": "B"})], ("x", 10, "A", "B", "3")),
        (BY_TIME, [part("2", {"id": "x", "a": "A"}), full("3", row("x", 1, "q", None))], ("x", 1, "q", None, "3")),
        (BY_TIME, [full("2", row("x", 1, "q", None)), part("3", {"id": "x", "b": "B"})], ("x", 1, "q", "B", "3")),
        (BY_TIME, [part("2", {"id": "x", "a": "A"}), delete("3", "x")], None),
        (BY_TIME, [delete("2", "x"), full("3", row("x", 1, "q", "r")), part("4", {"id": "x", "b": "B"})],
         ("x", 1, "q", "B", "4")),
        (BY_N, [part("2", {"id": "x", "n": 20, "a": "A"})], ("x", 20, "A", "b", "2")),
        (BY_N, [part("2", {"id": "x", "n": 5, "a": "A"})], ("x", 10, "a", "b", "1")),
        (BY_N, [part("2", {"id": "x", "n": 10, "a": "A"})], ("x", 10, "A", "b", "2")),
        (BY_N, [part("2", {"id": "x", "n": 20, "a": "A"}), part("3", {"id": "x", "n": 15, "b": "B"})],
         ("x", 20, "A", "B", "2")),
        (BY_N, [part("2", {"id": "x", "n": 20, "a": "A"}), part("3", {"id": "x", "n": 15, "a": "B"})],
         ("x", 20, "A", "b", "2")),
        (BY_N, [part("2", {"id": "x", "n": 20, "a": "A"}), full("3", row("x", 15, "q", "r"))],
         ("x", 20, "A", "r", "2")),
        (BY_N, [part("2", {"id": "x", "n": 20, "a": "A"}), delete("3", "x", 15)], ("x", 20, "A", "b", "2")),
        (BY_N, [part("2", {"id": "x", "n": 20, "a": "A"}), delete("3", "x", 20)], None),
        (BY_N, [part("2", {"id": "x", "n": 20, "a": "A"}), delete("3", "x")], None),
        (BY_N, [delete("2", "x", 30), part("3", {"id": "x", "n": 20, "a": "A"})], None),
        (BY_N, [delete("2", "x", 5), part("3", {"id": "x", "n": 20, "a": "A"})], ("x", 20, "A", "b", "3")),
    ],
)  # fmt: skip
def test_some_columns_of_a_row(
    rule: MergeRule, blocks: list[DataBlock | DeleteBlock], expected: tuple[object, ...] | None
) -> None:
    files = Slice(BASE, None, tuple(blocks))
    wanted = [found for found in (expected, UNTOUCHED) if found is not None]
    assert merged(files, rule) == wanted
    for name in ("A", "a"):
        assert merged(files, rule, pl.col("a") == name) == [found for found in wanted if found[2] == name]


def gaps(instant: str, *values: Values) -> DataBlock:
    """A block of a table with a partial update mode, in which nulls leave columns as they are."""
    return replace(full(instant, *values), unset=(None,))


@pytest.mark.parametrize(
    ("rule", "blocks", "expected"),
    [
        (BY_TIME, [gaps("2", row("x", 1, None, "B"))], ("x", 1, "a", "B", "2")),
        (BY_TIME, [gaps("2", row("x", 1, None, "B")), gaps("3", row("x", 2, "A", None))], ("x", 2, "A", "B", "3")),
        (BY_TIME, [gaps("2", row("z", 1, None, "B"))], ("z", 1, None, "B", "2")),
        (BY_TIME, [gaps("2", row("z", 1, "A", "B")), delete("3", "z"), gaps("4", row("z", 2, None, "C"))],
         ("z", 2, None, "C", "4")),
        (BY_N, [gaps("2", row("x", 5, "low", "low"))], ("x", 10, "a", "b", "1")),
        (BY_N, [gaps("2", row("w", 5, "low", "low"))], ("w", 10, "e", "low", "1")),
        (BY_N, [gaps("2", row("x", 20, None, None)), gaps("3", row("x", 15, "late", None))],
         ("x", 20, "late", "b", "2")),
        (BY_N, [gaps("2", row("z", 20, None, None)), gaps("3", row("z", 15, "late", None))],
         ("z", 20, "late", None, "2")),
        (BY_N, [gaps("2", row("z", 20, None, "B")), delete("3", "z", 15)], ("z", 20, None, "B", "2")),
        (BY_N, [delete("2", "x", 5), gaps("3", row("x", 20, None, "B"))], ("x", 20, "a", "B", "3")),
    ],
)  # fmt: skip
def test_nulls_that_leave_columns_as_they_are(
    rule: MergeRule, blocks: list[DataBlock | DeleteBlock], expected: tuple[object, ...]
) -> None:
    below = base(row("x", 10, "a", "b"), row("w", 10, "e", None))
    found = merged(Slice(below, None, tuple(blocks)), rule)
    assert [some for some in found if some[0] == expected[0]] == [expected]
    filtered = merged(Slice(below, None, tuple(blocks)), rule, pl.col("a").eq_missing(expected[2]))
    assert filtered == [some for some in found if some[2] == expected[2]]


def test_what_a_null_leaves_of_a_deleted_row_is_refused() -> None:
    blocks = (delete("2", "x"), gaps("3", row("x", 1, None, "B")))
    with pytest.raises(UnsupportedFeatureError, match="key=x"):
        merged(Slice(BASE, None, blocks), BY_TIME)
    with pytest.raises(UnsupportedFeatureError, match="MERGE INTO"):
        merged(Slice(BASE, None, (replace(part("2", {"id": "x", "a": "A"}), unset=(None,)),)), BY_TIME)


@pytest.mark.parametrize("rule", [BY_TIME, BY_N])
def test_other_keys_of_the_same_blocks_are_as_ever(rule: MergeRule) -> None:
    blocks = (
        full("2", row("y", 11, "C", "D"), row("x", 11, "q", "r"), row("z", 1, "new", None)),
        part("3", {"id": "x", "n": 12, "a": "A"}),
        delete("4", "y"),
    )
    assert merged(Slice(BASE, None, blocks), rule) == [("x", 12, "A", "r", "3"), ("z", 1, "new", None, "2")]
    assert merged(Slice(None, None, blocks), rule) == [("x", 12, "A", "r", "3"), ("z", 1, "new", None, "2")]


def test_some_columns_of_a_row_in_a_slice_that_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.merge.parts.SCAN_CUT_ROWS_MIN", 1)
    monkeypatch.setattr("crdt_mor.merge.parts.SCAN_PART_ROWS_MIN", 1)
    table = to_arrow(frame("1", [row("x", 10, "a", "b"), row("y", 10, "c", "d")], STORED.names))
    below = ParquetSource.in_memory(bytes(write_parquet(table, row_group_rows=1)))
    files = Slice(below, "1", (full("2", row("y", 11, "e", "f")), part("3", {"id": "x", "a": "A"})))
    select = ["id", "a", "b"]
    cut = kernel.parts(files, 2, BY_TIME, COLUMNS, select)
    found = pl.concat(rows for some in cut for rows in kernel.merge(some, BY_TIME, COLUMNS, select=select)).sort("id")
    assert found.rows() == [("x", "A", "b"), ("y", "e", "f")]


@pytest.mark.parametrize("below", [None, BASE])
def test_columns_of_a_row_that_is_not_there_are_refused(below: ParquetSource | None) -> None:
    blocks: list[DataBlock | DeleteBlock] = [delete("2", "x"), part("3", {"id": "x", "a": "A"})]
    with pytest.raises(UnsupportedFeatureError, match="key=x"):
        merged(Slice(below, None, tuple(blocks)), BY_TIME)


def test_an_ordered_table_needs_the_ordering_value() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"column=n instant=2"):
        merged(Slice(BASE, None, (part("2", {"id": "x", "a": "A"}),)), BY_N)


def test_a_compaction_of_ours_makes_whole_rows_of_them() -> None:
    files = Slice(BASE, None, (part("2", {"id": "x", "n": 20, "a": "A"}), delete("3", "y")))
    by_time = compact_all(files, BY_TIME, COLUMNS, None)
    by_n = compact_stable(files, BY_N, COLUMNS, [])
    for compacted in (by_time, by_n):
        rows = pl.concat(part() for part in compacted.parts)
        assert rows.select("id", "n", "a", "b").rows() == [("x", 20, "A", "b")]
        assert compacted.carry() == []


@pytest.mark.parametrize(
    ("blocks", "carried"),
    [
        ([part("2", {"id": "x", "n": 20, "a": "A"}), delete("3", "x", 20)], [("x", 20)]),
        ([delete("2", "x", 30), part("3", {"id": "x", "n": 20, "a": "A"})], [("x", 30)]),
        ([delete("2", "x", 30), part("3", {"id": "x", "n": 20, "a": "A"}), delete("4", "x")], []),
        ([part("2", {"id": "x", "n": 5, "a": "A"}), delete("3", "x", 7)], []),
    ],
)
def test_a_tombstone_that_won_over_a_partial_update_is_carried_through_a_compaction(
    blocks: list[DataBlock | DeleteBlock], carried: list[tuple[str, int]]
) -> None:
    older = full("5", row("x", 1, "old", "old"))
    expected = merged(Slice(BASE, None, (*blocks, older)), BY_N)
    compacted = compact_stable(Slice(BASE, None, tuple(blocks)), BY_N, COLUMNS, [])
    rows, carry = pl.concat(part() for part in compacted.parts), compacted.carry()
    deletes = [block.keys for block in carry if isinstance(block, DeleteBlock)]
    assert len(deletes) == len(carry)
    assert [line for keys in deletes for line in keys.select("_hoodie_record_key", "ordering").rows()] == carried
    base_file = ParquetSource.in_memory(bytes(write_parquet(to_arrow(rows))))
    assert merged(Slice(base_file, None, (*carry, older)), BY_N) == expected


def test_partial_updates_that_a_pending_write_may_come_between_are_not_compacted() -> None:
    files = Slice(BASE, None, (part("4", {"id": "x", "n": 20, "a": "A"}),))
    with pytest.raises(UnsupportedFeatureError, match="while no write is pending"):
        compact_stable(files, BY_N, COLUMNS, ["3"])


def test_a_block_in_a_file_of_hudis(make: Maker) -> None:
    """From the file on: the block says of itself that it is partial."""
    table = make.create(merge="partial_update/1")
    table.append(rows(range(3), 1))
    table.upsert(pa.table({"id": keys(1), "v": ["other"]}))
    expected = ours(table)
    make_hudis(make.root, {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING", "hoodie.record.merge.strategy.id": ""})
    assert ours(type(table)(make.root)) == expected
    assert json.dumps(expected["", "k1"]["v"]) == '"other"'
    assert len(completed(make.root)) == 2


@pytest.mark.parametrize("compacted", [False, True])
def test_changes_show_the_whole_row_below_a_partial_update(make: Maker, compacted: bool) -> None:
    table = make.create(merge="partial_update/1")
    first = table.append(rows(range(3), 1))
    if compacted:
        table.maintenance.compact()
    table.upsert(pa.table({"id": keys(1), "v": ["other"]}))
    want = table.scan(filter=pl.col("id") == "k1").to_arrow().to_pylist()
    make_hudis(make.root, {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING", "hoodie.record.merge.strategy.id": ""})
    found = type(table)(make.root)
    changed = found.changes(first.completed_at).to_arrow().drop(["_change_type"]).to_pylist()
    assert changed == want
    images = found.changes(first.completed_at, images=True).to_arrow()
    assert images["_change_type"].to_pylist() == ["update_preimage", "update_postimage"]


def test_the_key_column_that_a_block_of_hudis_leaves_out_is_the_record_key() -> None:
    config = TableConfig("t", KeySpec(("id",)), buckets=1)
    block = part("2", {"id": "7", "a": "A"})
    keyed = with_key(block, config)
    assert keyed.given == ("id", "a")
    assert isinstance(keyed.rows, pl.DataFrame)
    assert keyed.rows["id"].to_list() == ["7"]
    as_file = DataBlock("2", write_parquet(to_arrow(frame("2", [{"id": "7", "a": "A"}], ["a"]))), ("a",))
    keyed_rows = with_key(as_file, config).rows
    assert isinstance(keyed_rows, pl.DataFrame)
    assert keyed_rows["id"].to_list() == ["7"]
    composite = TableConfig("t", KeySpec(("id", "n")), buckets=1)
    for untouched, settings in ((block, composite), (keyed, config), (full("2", row("x", 1, "a", "b")), config)):
        assert with_key(untouched, settings) is untouched


def test_a_log_compaction_folds_no_partial_updates_of_hudis(make: Maker) -> None:
    """They stand on rows of the base: such a file group is compacted fully, by every executor."""
    files = Slice(BASE, "1", (full("2", row("z", 1, "a", "b")), part("4", {"id": "x", "n": 20, "a": "A"})))
    for rule in (BY_TIME, BY_N):
        assert compact_logs(files, rule, COLUMNS, []) is None
        assert compact_logs(replace(files, blocks=files.blocks[:1]), rule, COLUMNS, []) is not None
    table = make.create(merge="partial_update/1", buckets=1)
    table.append(rows(range(3), 1))
    table.maintenance.compact()
    for n in (2, 3):
        table.upsert(pa.table({"id": keys(1), "v": [f"other{n}"]}))
    make_hudis(make.root, {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING", "hoodie.record.merge.strategy.id": ""})
    table = type(table)(make.root)
    expected = ours(table)
    table.maintenance.compact(logs_only=True)
    assert table.inspect.files()["kind"].to_pylist() == ["base"]
    assert ours(table) == expected


def test_under_an_ordering_column_logs_that_are_older_than_the_base_are_not_folded_alone() -> None:
    """A compaction of Hudi's folds what is not stable, and a delete of such a log stands between rows of the base."""
    late = (full("2", row("z", 1, "a", "b")), delete("4", "x"))
    assert compact_logs(Slice(BASE, "3", late), BY_N, COLUMNS, []) is None
    assert compact_logs(Slice(BASE, "1", late), BY_N, COLUMNS, []) is not None
    assert compact_logs(Slice(BASE, "3", late), BY_TIME, COLUMNS, []) is not None

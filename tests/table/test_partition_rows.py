"""An evaluation of a filter over all partitions keeps the same partitions as an evaluation for each."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.columns.schema import TableSchema
from crdt_mor.model.keys import KeySpec
from crdt_mor.read import partition_rows
from crdt_mor.read.partition_rows import PartitionRows

SCHEMA = TableSchema.of(pa.schema([("id", pa.int64()), ("n", pa.int32()), ("s", pa.string())]))
KEY = KeySpec(("id",), ("n", "s"), hive_style=True)
FAILS = pl.col("s").str.to_integer(strict=True) > 3
PARTS = {
    "number": pl.col("n") == 2,
    "text": pl.col("s") > "3",
    "fails on texts": FAILS,
    "fails on texts or true": FAILS | (pl.col("n") == 1),
    "path": pl.col("_hoodie_partition_path").str.contains("s=4"),
    "never": pl.lit(value=False) & (pl.col("n") == 1),
}
PATHS = st.lists(st.builds(lambda n, s: f"n={n}/s={s}", st.integers(0, 3), st.sampled_from("345ab")), unique=True)


def one_by_one(paths: Sequence[str], parts: Sequence[pl.Expr]) -> list[str]:
    def may_match(path: str, part: pl.Expr) -> bool:
        n, s = (level.partition("=")[2] for level in path.split("/"))
        row = pl.DataFrame(
            {"_hoodie_partition_path": [path], "n": [int(n)], "s": [s]}, schema_overrides={"n": pl.Int32}
        )
        try:
            return not row.filter(part).is_empty()
        except pl.exceptions.PolarsError:
            return True

    return sorted(path for path in paths if all(may_match(path, part) for part in parts))


@given(st.lists(PATHS, min_size=1, max_size=3), st.lists(st.sampled_from(sorted(PARTS)), max_size=2))
def test_the_same_partitions_match_at_once_as_one_by_one(calls: list[list[str]], names: list[str]) -> None:
    rows, parts = PartitionRows(), [PARTS[name] for name in names]
    for paths in calls:
        found = rows.matching(tuple(paths), parts, KEY, SCHEMA)
        assert [path for path in found if path in paths] == one_by_one(paths, parts)


def test_only_new_paths_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    known = KeySpec.partition_values

    def counted(key: KeySpec, path: str, stored: pa.Schema) -> dict[str, object]:
        parsed.append(path)
        return known(key, path, stored)

    monkeypatch.setattr(KeySpec, "partition_values", counted)
    rows, first = PartitionRows(), tuple(f"n={n}/s=a" for n in range(50))
    for paths in (first, first, (*first, "n=50/s=a")):
        assert rows.matching(paths, [pl.col("n") == 7], KEY, SCHEMA) == ["n=7/s=a"]
    assert parsed == [*first, "n=50/s=a"]


def test_a_failing_condition_is_halved_and_not_tried_on_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    filtered = partition_rows._filtered

    def counted(frame: pl.DataFrame, part: pl.Expr) -> pl.DataFrame:
        tried.append(frame.height)
        return filtered(frame, part)

    monkeypatch.setattr(partition_rows, "_filtered", counted)
    paths = tuple(f"n={n}/s={'x' if n == 500 else n}" for n in range(1000))
    assert len(PartitionRows().matching(paths, [FAILS], KEY, SCHEMA)) == 996
    assert len(tried) < 50

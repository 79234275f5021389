"""A few keys are asked for: what is read of base files and logs, and that no row is missing."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor import Opening, Table
from crdt_mor.merge import at_once, overlay, visible
from crdt_mor.merge.contributions import Contributions, gather
from crdt_mor.store import MemoryStore
from crdt_mor.store.protocol import Store
from crdt_mor.write import base_files
from tests.counting import Bucket
from tests.table.compacting import written
from tests.table.helpers import MERGES, Make, Place

URI = "s3://counted/table"
SCHEMA = pa.schema([("id", pa.int64()), ("small", pa.int16()), ("n", pa.int64()), ("x", pa.float64())])
KEYS: dict[str, str | list[str]] = {"a number": "id", "a narrow number": "small", "two columns": ["id", "small"]}
LARGEST = 300


def rows(numbers: range | list[int], by: int = 0) -> pl.DataFrame:
    """Rows of some keys, in the table's types."""
    found = pl.DataFrame({"id": list(numbers)}, schema={"id": pl.Int64})
    return found.select("id", small=pl.col("id").cast(pl.Int16), n=pl.col("id") * 7 % 50 + by, x=pl.col("id") / 4)


def made(store: Store, key: str | list[str]) -> Table:
    """A base file of ten row groups, and logs over it."""
    table = Table.create(URI, SCHEMA, key=key, buckets=1, opening=Opening(store=store))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base_files, "ROW_GROUP_ROWS", 30)
        table.upsert(rows(range(LARGEST)))
        table.maintenance.compact()
    table.upsert(rows(list(range(0, LARGEST, 9)), 100))
    table.delete(rows(list(range(0, LARGEST, 13))))
    table.upsert(rows([13, 4 * LARGEST], 200))
    return table


@pytest.fixture(scope="module", params=KEYS)
def key(request: pytest.FixtureRequest) -> str | list[str]:
    """The column that is the key, or the two that are."""
    return KEYS[str(request.param)]


@pytest.fixture(scope="module", params=["memory", "bucket"])
def table(request: pytest.FixtureRequest, key: str | list[str]) -> Iterator[Table]:
    """A table whose files are at hand, or in a bucket."""
    if request.param == "memory":
        yield made(MemoryStore(), key)
        return
    bucket = Bucket()
    with bucket.counting():
        yield made(bucket.store(), key)


@pytest.mark.costly
@settings(max_examples=8)
@given(asked=st.lists(st.integers(-3, 5 * LARGEST), max_size=60, unique=True), more=st.booleans())
def test_keys_are_found_as_a_filter_of_all_rows_finds_them(
    table: Table, key: str | list[str], asked: list[int], more: bool
) -> None:
    condition = pl.lit(value=True)
    for name in [key] if isinstance(key, str) else key:
        condition = pl.col(name).is_in(asked) & condition
    condition = condition & (pl.col("n") % 2 == 0) if more else condition
    every = table.scan().to_polars()
    scan = table.scan(filter=condition)
    assert scan.to_polars().sort("id").equals(every.filter(condition).sort("id"))
    assert scan.count() == every.filter(condition).height


def test_of_a_number_the_row_group_of_its_text_is_read(table: Table) -> None:
    for number in (5, 49, 128, 299):
        for condition in (f"id = {number} AND small = {number}", f"id IN ({number}) AND small IN ({number})"):
            assert table.scan(filter=condition).explain().row_groups == 1
    assert table.scan(filter="id IN (5, 299) AND small IN (5, 299)").explain().row_groups <= 3


def test_of_a_bucket_no_other_row_group_is_fetched() -> None:
    bucket, texts = Bucket(), np.random.default_rng(0).bytes(20_000 * 32).hex()
    wide = pl.DataFrame({"id": range(20_000), "text": [texts[i : i + 64] for i in range(0, len(texts), 64)]})
    with bucket.counting(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(base_files, "ROW_GROUP_ROWS", 2_000)
        table = Table.create(URI, wide.to_arrow().schema, key="id", buckets=1, opening=Opening(store=bucket.store()))
        table.upsert(wide)
        table.maintenance.compact()
        path, footer = bucket.base_file()
        assert table.scan(filter="id = 12345").count() == 1
        count = bucket.count(lambda: table.scan(filter="id = 12345").to_polars())
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    columns = [{c.path_in_schema: c for c in map(group.column, range(group.num_columns))} for group in groups]
    (its,) = (
        c
        for c in columns
        if c["_hoodie_record_key"].statistics.min <= "12345" <= c["_hoodie_record_key"].statistics.max
    )
    assert count.fetched(path) == its["id"].total_compressed_size + its["text"].total_compressed_size


CONDITIONS = [
    ("id = 'k07'", pl.col("id") == "k07"),
    ("id IN ('k03', 'k17', 'k31', 'none')", pl.col("id").is_in(["k03", "k17", "k31", "none"])),
    ("id BETWEEN 'k05' AND 'k11'", pl.col("id").is_between(pl.lit("k05"), pl.lit("k11"))),
    ("id LIKE 'k1%' AND n > 8", pl.col("id").str.starts_with("k1") & (pl.col("n") > 8)),
    ("id >= 'k35' OR id = 'k01'", (pl.col("id") >= "k35") | (pl.col("id") == "k01")),
    ("id IN ('k01', 'k02') AND price IS NULL", pl.col("id").is_in(["k01", "k02"]) & pl.col("price").is_null()),
]


@pytest.mark.slow
@pytest.mark.parametrize("merge", MERGES)
def test_of_other_keys_nothing_is_decoded_of_logs_and_the_rows_are_those_of_the_whole_read(
    make: Make, place: Place, merge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: set[str] = set()

    def watched(*args: object, **settings: object) -> Contributions:
        found = gather(*args, **settings)  # type: ignore[arg-type]
        if found.rows.columns != ["id"]:  # else the keys of a log file are found, to be remembered
            decoded.update(found.rows["id"], found.lines["_crdt_key"])
        return found

    for module in (visible, at_once, overlay):
        monkeypatch.setattr(module, "gather", watched)
    table = make(buckets=2, **MERGES[merge])
    commits = written(table, random.Random(3))
    keys, other = pl.col("id"), place.open()  # which has not resolved any slice
    for as_of in (None, commits[-2], commits[len(commits) // 2]):
        every = table.scan(as_of=as_of).to_polars()
        for text, condition in CONDITIONS:
            decoded.clear()
            want = every.filter(condition).sort(keys)
            assert other.scan(filter=text, as_of=as_of).to_polars().sort(keys).equals(want)
            assert other.scan(filter=condition, as_of=as_of).to_polars().sort(keys).equals(want)
            assert other.scan(columns="price", filter=condition, as_of=as_of).count() == want.height
            if set(condition.meta.root_names()) == {"id"}:
                assert not pl.DataFrame({"id": sorted(decoded)}, schema={"id": pl.String}).filter(~condition).height

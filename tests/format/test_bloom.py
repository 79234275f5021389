"""Bloom filters: what pyarrow has written is found, in any file; what is no filter rules nothing out."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.format import bloom
from crdt_mor.format.base_file import write_parquet
from crdt_mor.format.bloom import may_have, xxh64
from crdt_mor.format.row_groups import join_row_groups
from crdt_mor.ground.parquet import ParquetSource

written = pytest.mark.skipif(not bloom.are_written(), reason="this release of pyarrow writes no Bloom filters")


def joined(*keys: list[str]) -> bytes:
    """A file with a row group for each list of keys."""
    files = [
        write_parquet(
            pa.table({"key": part, "n": range(len(part))}, pa.schema([("key", pa.string()), ("n", pa.int64())])),
            lookup="key",
        )
        for part in keys
    ]
    return b"".join(join_row_groups(files, dict))


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0xEF46DB3751D8E999),
        ("a", 0xD24EC4F1A98C6E5B),
        ("abc", 0x44BC2CF5AD770999),
        ("Call me Ishmael. Some years ago--never mind how long precisely-", 0x02A2E85470D6FD96),
    ],
)
def test_the_hash_is_the_one_of_its_specification(text: str, hashed: int) -> None:
    assert xxh64(text.encode()) == hashed


@written
@given(st.lists(st.text(max_size=70), min_size=1, max_size=30), st.integers(0, 30))
def test_no_key_that_is_there_is_ruled_out(keys: list[str], cut: int) -> None:
    cut = min(cut, len(keys) - 1) or 1
    parts = [part for part in (keys[:cut], keys[cut:]) if part]
    source = ParquetSource.in_memory(joined(*parts))
    starts = [0, len(parts[0])]
    for key in keys:
        found = may_have(source, "key", [key])
        assert found is not None
        for start, part in zip(starts, parts, strict=False):
            assert key not in part or (start, len(part)) in found


@written
def test_few_row_groups_are_left_and_the_file_is_as_it_was() -> None:
    random = np.random.default_rng(1)
    keys = [str(key) for key in random.permutation(20_000)]
    parts = [keys[i : i + 2_000] for i in range(0, 20_000, 2_000)]
    source = ParquetSource.in_memory(joined(*parts))
    left = [len(may_have(source, "key", [key]) or []) for key in keys[::100]]
    assert min(left) == 1
    assert sum(left) < 1.2 * len(left)
    assert may_have(source, "key", ["no such key"]) in ([], [(0, 2_000)])
    with source.open() as file:
        assert file.read()["key"].to_pylist() == keys
        assert file.metadata.row_group(3).column(0).bloom_filter_offset


@written
def test_what_is_no_filter_rules_nothing_out() -> None:
    data = joined(["a"], ["b"])
    source = ParquetSource.in_memory(data)
    assert may_have(source, "key", ["a"]) == [(0, 1)]
    assert may_have(source, "n", ["a"]) is None
    assert may_have(source, "nope", ["a"]) is None
    assert may_have(ParquetSource.in_memory(data[:-9]), "key", ["a"]) is None
    with source.open() as file:
        place = file.metadata.row_group(1).column(0).bloom_filter_offset
    for damaged in (b"\xff", b"\x00", b"\x15\x02"):
        wrong = data[:place] + damaged + data[place + len(damaged) :]
        assert may_have(ParquetSource.in_memory(wrong), "key", ["a"]) is None
    plain = write_parquet(pa.table({"key": ["a"]}))
    assert may_have(ParquetSource.in_memory(bytes(plain)), "key", ["a"]) is None


@written
def test_filters_that_are_not_side_by_side_are_left_alone() -> None:
    """As pyarrow alone leaves them where another column has one, too."""
    sink = pa.BufferOutputStream()
    wanted = {"ndv": 10, "fpp": 0.01}
    table = pa.table({"key": ["a", "b"], "m": ["c", "d"]})
    pq.write_table(table, sink, row_group_size=1, bloom_filter_options={"key": wanted, "m": wanted})
    assert may_have(ParquetSource.in_memory(sink.getvalue().to_pybytes()), "key", ["a"]) is None


@written
def test_filters_that_pyarrow_alone_has_written_are_read() -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"key": [f"k{i}" for i in range(40)]})
    pq.write_table(table, sink, row_group_size=10, bloom_filter_options={"key": {"ndv": 10, "fpp": 0.0001}})
    source = ParquetSource.in_memory(sink.getvalue().to_pybytes())
    assert [may_have(source, "key", [f"k{i}"]) for i in range(0, 40, 10)] == [[(i, 10)] for i in range(0, 40, 10)]


@written
def test_duckdb_finds_in_our_filters_what_is_there_and_skips_what_is_not(tmp_path: Path) -> None:
    keys = [f"clé {i}" * (i % 5) + str(i) for i in range(300)]
    path = tmp_path / "f.parquet"
    path.write_bytes(joined(keys[:100], keys[100:200], keys[200:]))
    excluded = 0
    with duckdb.connect() as connection:
        for i in range(0, 300, 30):
            probe = "SELECT row_group_id, bloom_filter_excludes FROM parquet_bloom_probe(?, 'key', ?)"
            found = dict(connection.execute(probe, [str(path), keys[i]]).fetchall())
            assert not found[i // 100], keys[i]
            excluded += sum(found.values())
            rows = connection.execute("SELECT n FROM read_parquet(?) WHERE key = ?", [str(path), keys[i]]).fetchall()
            assert rows == [(i % 100,)]
    assert excluded >= 18, "of the 20 row groups that lack the key that is asked for"

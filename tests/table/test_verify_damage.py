"""`Table.verify` finds each kind of damage of a data file: and the finding names the file."""

from __future__ import annotations

import io
import shutil
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crdt_mor import Table
from crdt_mor.format import bloom
from crdt_mor.payloads import Counter
from crdt_mor.write import base_files
from tests.simulated import Simulated
from tests.table.damaged import START_MS, bases, flipped, logs, made, only, opened, rows, verified


@pytest.fixture(scope="module")
def sound(fast_module_path: Path) -> Path:
    return made(fast_module_path / "sound")


@pytest.fixture
def folder(sound: Path, fast_path: Path) -> Path:
    """A copy of the sound table, to be damaged."""
    return Path(shutil.copytree(sound, fast_path / "t"))


def test_the_sound_table_is_whole(sound: Path) -> None:
    found = verified(sound, deep=True)
    assert (found.findings, found.hints) == ((), ())
    assert found.is_sound
    files = [*sound.glob("0*.parquet"), *sound.glob(".0*.log.*")]
    assert (found.rows, found.file_groups, found.files) == (62, 2, len(files))
    assert found.bytes == sum(file.stat().st_size for file in files)


# --- base files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, -1], ids=["of the past", "of now"])
def test_a_base_file_is_gone(folder: Path, which: int) -> None:
    base = bases(folder)[which]
    base.unlink()
    finding = only(folder)
    assert (finding.check, finding.path, finding.file_group[:8]) == ("missing", base.name, "00000000")


def test_a_base_file_is_cut(folder: Path) -> None:
    base = bases(folder)[-1]
    base.write_bytes(base.read_bytes()[:-7])
    assert only(folder).check == "size"


@pytest.mark.slow
def test_a_base_file_is_another_one(folder: Path, fast_path: Path) -> None:
    """One of the same file group, of another one, and of another table with the same columns, keys and settings."""
    base = bases(folder)[-1]
    data = base.read_bytes()
    other = made(fast_path / "other", START_MS + 3_600_000)
    for wrong in (bases(folder)[0], bases(folder, 1)[-1], bases(other)[-1]):
        shutil.copy(wrong, base)
        finding = only(folder)
        assert (finding.check in ("size", "another file"), finding.path) == (True, base.name)
        base.write_bytes(data)


def test_a_byte_of_a_column_has_changed(folder: Path) -> None:
    """Also of floats that are not compressed, where each byte is a value of its own."""
    base = bases(folder)[-1]
    row_group = pq.read_metadata(base).row_group(0)
    price = next(
        row_group.column(i) for i in range(row_group.num_columns) if row_group.column(i).path_in_schema == "price"
    )
    flipped(base, price.data_page_offset + price.total_compressed_size - 3)
    finding = only(folder)
    assert (finding.check, finding.path) == ("read", base.name)


@pytest.mark.slow
def test_each_byte_of_a_base_file_that_matters_is_seen_to_change(folder: Path) -> None:
    """Those of pages. In the rest are numbers that nobody asks for, such as the sizes before compression."""
    base = bases(folder)[-1]
    data = base.read_bytes()
    pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    row_group = pq.read_metadata(base).row_group(0)
    columns = [row_group.column(i) for i in range(row_group.num_columns)]
    starts = [c.dictionary_page_offset or c.data_page_offset for c in columns]
    end = max(start + c.total_compressed_size for start, c in zip(starts, columns, strict=True))
    unseen = []
    for at in range(4, min(end, pages), 31):
        flipped(base, at)
        if verified(folder).is_sound:
            unseen.append(at)
        base.write_bytes(data)
    assert len(unseen) <= 3, unseen


def test_a_plain_and_an_ordered_delete_of_a_key_in_one_commit_are_sound(simulated: Simulated) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = simulated.create(schema, key="id", ordering="n", buckets=1)
    table.upsert(pa.table({"id": ["a"], "n": [1]}, schema=schema))
    with table.transaction() as both:
        both.delete(keys=["a"], plain=True)
        both.delete(pa.table({"id": ["a"], "n": [3]}, schema=schema))
    found = table.verify(deep=True)
    assert (found.findings, found.rows) == ((), 0)


def swapped(frame: pl.DataFrame) -> pl.DataFrame:
    return frame[[1, 0, *range(2, frame.height)]]


def doubled(frame: pl.DataFrame) -> pl.DataFrame:
    return frame[[0, *range(frame.height)]]


def later(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.lit("29991231235959999").alias("_hoodie_commit_time"))


def shown_otherwise(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.lit(["z"], pl.List(pl.String)).alias("tags"))


@pytest.mark.parametrize(
    ("mistake", "check"),
    [(swapped, "key order"), (doubled, "key twice"), (later, "time"), (shown_otherwise, "state")],
    ids=["rows out of order", "a key twice", "a later time", "a state that is not shown"],
)
def test_a_writer_leaves_wrong_rows(folder: Path, mistake: Any, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction with a mistake leaves a base file that is whole in itself."""
    arranged = base_files._arranged

    def wrongly(frames: Iterable[pl.DataFrame], layout: Any) -> Iterator[pl.DataFrame]:
        yield from map(mistake, arranged(frames, layout))

    with monkeypatch.context() as patch:
        patch.setattr(base_files, "_arranged", wrongly)
        with opened(folder).transaction() as held:  # beside which a compaction keeps states
            held.upsert(rows(200, 1))
            opened(folder).maintenance.compact()
    findings = verified(folder).findings
    assert {finding.check for finding in findings} >= {check}
    assert {finding.path for finding in findings} == {bases(folder)[-1].name, bases(folder, 1)[-1].name}


def test_a_writer_miscounts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add = base_files.RowStatistics.add

    def miscounts(self: Any, frame: pl.DataFrame) -> None:
        add(self, frame)
        self.rows -= 1
        self.greatest_key = "zzz"

    with monkeypatch.context() as patch:
        patch.setattr(base_files.RowStatistics, "add", miscounts)
        opened(folder).maintenance.compact()
    found = verified(folder)
    assert {(finding.check, finding.file_group[:8]) for finding in found.findings} == {
        (check, group) for check in ("rows", "footer") for group in ("00000000", "00000001")
    }


def test_a_writer_puts_the_rows_under_another_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it should be, and of the same table: whose rows they are, the rows say."""

    def misnamed(config: Any, partition: str, file_name: str, *rest: Any) -> Any:
        return base_files.base_file(config, partition, file_name.replace("_20", "_19"), *rest)

    with monkeypatch.context() as patch:
        patch.setattr("crdt_mor.services.compaction.base_file", misnamed)
        opened(folder).maintenance.compact()
    assert {finding.check for finding in verified(folder).findings} == {"another file"}


def test_statistics_do_not_span_the_rows(folder: Path) -> None:
    """A filter would skip the row group."""
    base = bases(folder)[-1]
    data = base.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    price = max(pq.read_table(base, columns=["price"])["price"].to_pylist())
    base.write_bytes(data[:footer] + data[footer:].replace(struct.pack("<d", price), struct.pack("<d", 1.0)))
    finding = only(folder)
    assert finding.check == "statistics"
    assert "column=price" in finding.description


def test_verify_of_statistics_that_are_no_text_reports_them(folder: Path) -> None:
    """A flipped bit makes the least value greater than every row, and no text that Python could compare."""
    base = bases(folder)[-1]
    data = base.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    least = min(pq.read_table(base, columns=["_hoodie_commit_time"])["_hoodie_commit_time"].to_pylist()).encode()
    flipped = bytes([least[0] | 0x80]) + least[1:]
    base.write_bytes(data[:footer] + data[footer:].replace(least, flipped, 1))
    finding = only(folder)
    assert finding.check == "statistics"
    assert "column=_hoodie_commit_time" in finding.description


@pytest.mark.skipif(not bloom.are_written(), reason="this release of pyarrow writes no Bloom filters")
def test_a_bloom_filter_rules_out_keys_that_are_there(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", {"id": pl.String, "n": pl.Int64}, key="id", buckets=1, cluster_by=["n"])
    table.upsert(pl.DataFrame({"id": [f"k{i}" for i in range(200)], "n": [-i for i in range(200)]}))
    table.maintenance.compact()
    assert table.verify().is_sound
    (base,) = bases(fast_path / "t")
    key = pq.read_metadata(base).row_group(0).column(2)
    data = bytearray(base.read_bytes())
    end = key.bloom_filter_offset + key.bloom_filter_length
    data[end - 32 : end] = bytes(32)
    base.write_bytes(data)
    (finding,) = table.verify().findings
    assert finding.check == "Bloom filter"
    assert finding.rows is not None
    assert 0 < finding.rows < 200


# --- logs -------------------------------------------------------------------------------------------------------------


def test_a_log_is_gone(folder: Path) -> None:
    log = logs(folder)[-1]
    log.unlink()
    finding = only(folder)
    assert (finding.check, finding.path) == ("missing", log.name)


def test_a_log_is_cut(folder: Path) -> None:
    log = logs(folder)[-2]
    log.write_bytes(log.read_bytes()[:-1])
    assert only(folder).check == "size"


def test_a_byte_of_a_log_has_changed(folder: Path) -> None:
    """In its last page, and in the head of its block."""
    log = logs(folder)[-2]
    data = log.read_bytes()
    for at in (data.index(b"PAR1") + 60, 20):
        flipped(log, at)
        finding = only(folder)
        assert (finding.check, finding.path) == ("read", log.name)
        log.write_bytes(data)


@pytest.mark.slow
def test_each_byte_of_a_log_of_rows_that_matters_is_seen_to_change(folder: Path) -> None:
    """Those of the head and of pages. In the rest are types in schemas, and numbers that nobody asks for."""
    log = logs(folder)[-2]
    data = log.read_bytes()
    pages = data.index(b"PAR1") + 4
    row_group = pq.read_metadata(io.BytesIO(data[pages - 4 : data.rindex(b"PAR1") + 4])).row_group(0)
    size = sum(row_group.column(i).total_compressed_size for i in range(row_group.num_columns))
    unseen = []
    for at in [*range(0, 40, 7), *range(pages, pages + size, 23)]:
        flipped(log, at)
        if verified(folder).is_sound:
            unseen.append(at)
        log.write_bytes(data)
    assert len(unseen) <= 4, unseen


def test_a_log_has_the_bytes_of_another(folder: Path) -> None:
    """Of another commit in the file group, and of the same commit in another file group."""
    log = logs(folder)[-2]
    data = log.read_bytes()
    for wrong in (logs(folder)[0], logs(folder, 1)[-2]):
        log.write_bytes(wrong.read_bytes())
        finding = only(folder)
        assert (finding.check in ("size", "another file"), finding.path) == (True, log.name)
        log.write_bytes(data)


def test_a_log_of_the_right_length_is_of_another_commit(folder: Path) -> None:
    log = logs(folder)[-2]
    instant = log.name.partition("_")[2].partition(".")[0].encode()
    log.write_bytes(log.read_bytes().replace(instant, b"20200101000000000", 1))
    finding = only(folder)
    assert (finding.check, finding.path) == ("another file", log.name)


def test_a_log_deletes_a_key_of_another_file_group(folder: Path) -> None:
    log = logs(folder)[-1]
    here = [key for key in (f"k{i:03d}" for i in range(30, 40)) if key.encode() in log.read_bytes()]
    there = next(key for key in (f"k{i:03d}" for i in range(30, 40)) if key not in here)
    log.write_bytes(log.read_bytes().replace(here[0].encode(), there.encode()))
    finding = only(folder)
    assert (finding.check, finding.path, finding.rows) == ("bucket", log.name, 1)


# --- what is said of it -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_not_looked_at_is_said(folder: Path) -> None:
    assert any("delete blocks" in what for what in verified(folder).not_looked_at)
    assert any("plain fold" in what for what in verified(folder).not_looked_at)
    assert not any("plain fold" in what for what in verified(folder, deep=True).not_looked_at)


def test_it_tells_how_far_it_is(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = verified(folder, on_progress=lambda now: seen.append((now.file_groups, now.of)))
    assert seen == [(1, 2), (2, 2)]
    assert found.is_sound


def test_readers_that_see_something_else_than_the_commits_give(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The merge kernel has a mistake: it takes the sum of a counter for one more."""
    merge = Counter.merge
    monkeypatch.setattr(Counter, "merge", lambda self, states: merge(self, states) + 1)
    assert verified(folder).is_sound
    findings = verified(folder, deep=True).findings
    assert {finding.check for finding in findings} == {"fold"}
    assert "column=n" in findings[0].description

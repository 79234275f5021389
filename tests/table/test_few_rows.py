"""Writes of a few rows, which stay Arrow: their log files are those that rows in a frame give, to the byte."""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor import PartialUpdate, Table
from crdt_mor.format.base_file import Judgements
from crdt_mor.format.log import read_log
from crdt_mor.merge.precombine import RowsWrite
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import WRITE_TOKEN
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.store.protocol import Chunks
from crdt_mor.write.stage import Staging
from crdt_mor.write.statements import RowsStatement, Statements, few_rows
from tests.inside import session_of, tail_of
from tests.table.helpers import Make, Place, data_files, frame, rows
from tests.tiers import slow

T = InstantTime("20260101000000000")
NUMBER = "_hoodie_commit_seqno"

MOMENTS = st.integers(-(2**55), 2**55).map(lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us))

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "flag": (pa.bool_(), st.booleans()),
    "small": (pa.int8(), st.integers(-128, 127)),
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "real": (pa.float64(), st.floats(allow_nan=False)),
    "price": (pa.decimal128(12, 2), st.decimals(-10**9, 10**9, places=2).map(lambda d: d.quantize(Decimal("0.01")))),
    "text": (pa.string(), st.text(max_size=20)),
    "large": (pa.large_string(), st.text(max_size=20)),
    "bytes": (pa.binary(), st.binary(max_size=20)),
    "day": (pa.date32(), st.dates(date(1, 1, 1), date(9999, 12, 31))),
    "moment": (pa.timestamp("us", "UTC"), MOMENTS),
    "list": (pa.list_(pa.int32()), st.lists(st.integers(0, 9), max_size=3)),
    "record": (pa.struct([("a", pa.string()), ("b", pa.list_(pa.string()))]),
               st.fixed_dictionaries({"a": st.text(max_size=3), "b": st.lists(st.text(max_size=3), max_size=2)})),
    "map": (pa.map_(pa.string(), pa.int64()),
            st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2).map(lambda d: list(d.items()))),
}  # fmt: skip
ALL = pa.schema([("id", pa.string()), *((name, kind) for name, (kind, _) in VALUES.items())])


@dataclass
class Staged:
    """What is staged of some rows: as they come, and with all rows in a frame."""

    table: Table

    def log_files(self, data: pa.Table, *, in_frame: bool) -> list[tuple[DataFile, bytes]]:
        session = session_of(self.table)
        statements = Statements(session.config, session.tail(), T)
        statements.add(RowsStatement("UPSERT", data))
        (statement,) = collected = statements.collected
        assert isinstance(statement, RowsWrite)
        if in_frame:
            collected = [RowsWrite(statement.rows, statement.given)]
        assert (few_rows(collected) is None) == in_frame
        staging = Staging(session.config, statements.merging, T, WRITE_TOKEN, Judgements())
        return list(staging.stage(collected, in_memory))


def rows_of(log: bytes, path: str) -> pa.Table:
    (block,) = read_log(log, path)
    return pq.read_table(io.BytesIO(block.content))


def in_memory(file: DataFile, content: Chunks) -> tuple[DataFile, bytes]:
    return file, b"".join(content)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("few")


@pytest.fixture(scope="module", params=[slow(1), 3])
def staged(folder: Path, request: pytest.FixtureRequest) -> Staged:
    return Staged(Table.create(folder / f"{request.param}", ALL, key="id", buckets=request.param))


@pytest.mark.slow
@pytest.mark.parametrize("examples", [30, slow(100)])
def test_a_few_rows_of_any_types_give_the_files_that_a_frame_gives(staged: Staged, examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.data())
    def compared(data: st.DataObject) -> None:
        keys = data.draw(st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=12, unique=True))
        columns: dict[str, pa.Array] = {"id": pa.array(keys)}
        for name, (kind, values) in VALUES.items():
            column = st.lists(st.none() | values, min_size=len(keys), max_size=len(keys))
            columns[name] = pa.array(data.draw(column), kind)
        written = pa.table(columns, schema=ALL)
        few, framed = (staged.log_files(written, in_frame=in_frame) for in_frame in (False, True))
        assert [file.path for file, _ in few] == [file.path for file, _ in framed]
        numbers = set[str]()
        for (file, content), (_, expected) in zip(few, framed, strict=True):
            if len(few) == 1:
                assert content == expected
            read, meant = (rows_of(log, file.path) for log in (content, expected))
            assert read.drop_columns([NUMBER]).equals(
                meant.drop_columns([NUMBER])
            )  # groups are numbered in another order
            numbers |= set(read[NUMBER].to_pylist())
        assert numbers == {f"{T}_0_{number}" for number in range(len(keys))}

    compared()


def test_as_many_as_a_group_has_stay_arrow_and_give_the_file_that_a_frame_gives(staged: Staged) -> None:
    """Though their columns repeat one value, for which a frame of more rows has a dictionary."""
    columns = {name: pa.array([None] * 64, kind) for name, (kind, _) in VALUES.items()}
    columns |= {"id": pa.array([f"k{i:03}" for i in range(64)]), "text": pa.array(["same"] * 64)}
    written = pa.table([columns[name] for name in ALL.names], schema=ALL)
    few, framed = (staged.log_files(written, in_frame=in_frame) for in_frame in (False, True))
    assert len(few) == len(framed)
    if len(few) == 1:
        assert few == framed


def test_rows_of_a_frame_of_a_slice_and_of_several_chunks_are_the_same_rows(make: Make) -> None:
    table = make(buckets=2)
    whole = frame(*((f"k{i}", "x", i) for i in range(20)))
    table.upsert(whole.slice(3, 5))
    table.upsert(pa.concat_tables([whole.slice(9, 1), whole.slice(11, 2)]))
    table.append(whole.slice(0, 1))
    assert rows(table, "id", "region", "n") == [(f"k{i}", "x", i) for i in (0, 11, 12, 3, 4, 5, 6, 7, 9)]


def test_without_rows_no_file_is_written(make: Make, place: Place) -> None:
    table = make()
    table.upsert(frame(("a", "x", 1)))
    files = data_files(place)
    table.upsert(frame(("a", "x", 1)).slice(0, 0))
    assert data_files(place) == files
    assert rows(table, "id", "region", "n") == [("a", "x", 1)]


def test_of_a_key_that_stands_twice_the_last_row_wins(make: Make) -> None:
    table = make()
    table.upsert(frame(("a", "x", 1), ("b", "x", 2), ("a", "y", 3)))
    assert rows(table, "id", "region", "n") == [("a", "y", 3), ("b", "x", 2)]


def test_a_key_may_stand_in_several_partitions(make: Make) -> None:
    table = make(partition_by="region")
    table.upsert(frame(("a", "x", 1), ("a", "y", 2), ("b", "x", 3)))
    assert rows(table, "id", "region", "n") == [("a", "x", 1), ("a", "y", 2), ("b", "x", 3)]
    assert {slice_.partition for slice_ in tail_of(table).completions[-1].files} == {"region=x", "region=y"}


def test_a_partial_update_sets_the_columns_that_it_gives(make: Make) -> None:
    table = make(merge=PartialUpdate())
    table.upsert(frame(("a", "x", 1)))
    table.upsert(pa.table({"id": ["a"], "region": ["y"]}))
    table.upsert(pa.table({"id": ["b"], "region": ["z"]}))
    assert rows(table, "id", "region", "n") == [("a", "y", 1), ("b", "z", None)]


def test_rows_of_a_transaction_are_folded_with_its_other_statements(make: Make) -> None:
    table = make()
    with table.transaction() as tx:
        tx.upsert(frame(("a", "x", 1), ("b", "x", 1)))
        tx.delete(keys=["a"])
        tx.upsert(frame(("c", "x", 1)))
    assert rows(table, "id", "region", "n") == [("b", "x", 1), ("c", "x", 1)]


def test_upsert_few_rows_in_many_buckets_starts_no_thread(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(buckets=8)
    table.upsert(frame(*((f"k{number}", "eu", number) for number in range(20))))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a thread takes longer to start than a small file takes to make")

    with monkeypatch.context() as patch:
        patch.setattr("crdt_mor.ground.threads.ThreadPoolExecutor", refuse)
        table.upsert(frame(*((f"k{number}", "eu", -number) for number in range(20))))
    assert rows(table, "n") == sorted(((-number,) for number in range(20)), key=repr)

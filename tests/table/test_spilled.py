"""Writes of more rows than fit in memory: parts in a temporary file, the same rows, one commit, nothing left."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crdt_mor as mor
from crdt_mor import Opening, PartialUpdate, Rules, Table
from crdt_mor.errors import CrdtMorError, InvalidInputError, SchemaMismatchError, StorageUnavailableError
from crdt_mor.ground.spill import SpillFile
from crdt_mor.payloads import Counter, EventList, First, MVRegister, ORSet
from crdt_mor.store import MemoryStore
from tests.tiers import slow

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64()), ("text", pa.string())])
LISTS = pa.schema([*SCHEMA, ("more", pa.list_(pa.string()))])

MERGES: dict[str, dict[str, Any]] = {
    "latest": {},
    "ordering": {"ordering": "n"},
    "partial": {"merge": PartialUpdate()},
    "counter": {"merge": PartialUpdate(columns={"n": Counter(), "text": First()})},
}

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 6),
            "day": st.sampled_from(["a", "b", "c"]),
            "n": st.integers(0, 5),
            "text": st.none() | st.text(max_size=3),
        }
    ),
    min_size=1,
    max_size=12,
)


def table_of(limit: int | None, **settings: Any) -> Table:
    opening = Opening(store=MemoryStore(), memory_limit=limit)
    given: dict[str, Any] = {"key": ["id", "day"], "partition_by": "day", "buckets": 2} | settings
    return Table.create("memory://events", SCHEMA, opening=opening, **given)


def stream(rows: list[dict[str, Any]] | pa.Table, step: int = 3) -> pa.RecordBatchReader:
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows, SCHEMA)
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(step))


def shown(table: Table) -> list[dict[str, Any]]:
    return table.to_polars().sort("day", "id").to_dicts()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def spills(monkeypatch: pytest.MonkeyPatch) -> list[SpillFile]:
    """The temporary files that were made."""
    made: list[SpillFile] = []

    class Counted(SpillFile):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr("crdt_mor.api.write_input.SpillFile", Counted)
    return made


# --- the same rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("examples", [3, slow(100)])
@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("limit", [1, 2_000])
def test_spilled_writes_give_the_rows_of_writes_in_memory(merge: str, limit: int, examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.lists(ROWS, min_size=1, max_size=3), st.sampled_from(["upsert", "overwrite"]))
    def compared(inputs: list[list[dict[str, Any]]], last: str) -> None:
        spilled, usual = table_of(limit, **MERGES[merge]), table_of(None, **MERGES[merge])
        for table in (spilled, usual):
            for rows in inputs[:-1]:
                table.upsert(stream(rows))
            getattr(table, last)(stream(inputs[-1]))
            assert table.history().num_rows == len(inputs)
        assert shown(spilled) == shown(usual)
        assert not spilled.verify(deep=True).findings
        spilled.maintenance.compact()
        assert shown(spilled) == shown(usual)

    compared()


@pytest.mark.parametrize("payload", [EventList(), MVRegister(), ORSet()], ids=["events", "register", "set"])
def test_places_of_rows_are_those_of_the_input(payload: Any) -> None:
    def table(limit: int | None) -> Table:
        opening = Opening(store=MemoryStore(), memory_limit=limit)
        merge = PartialUpdate(columns={"more": payload})
        return Table.create("memory://lists", LISTS, key="id", buckets=3, merge=merge, opening=opening)

    rows = [{"id": i % 5, "day": "a", "n": i, "text": "", "more": [f"{i % 3}", f"{9 - i}"]} for i in range(40)]
    data, (spilled, usual) = pa.Table.from_pylist(rows, LISTS), (table(500), table(None))
    for one in (spilled, usual):
        one.upsert(stream(data))
        one.upsert(stream(data.slice(3, 20)))
    assert spilled.to_polars().sort("id").equals(usual.to_polars().sort("id"))


def test_a_file_group_beyond_a_part_has_one_log_file(spills: list[SpillFile]) -> None:
    table = table_of(64_000, key="id", partition_by=(), buckets=1)
    commit = table.upsert(stream(pa.table({"id": range(5_000), "day": ["a"] * 5_000, "n": range(5_000),
                                           "text": ["x" * 20] * 5_000}, schema=SCHEMA), 500))  # fmt: skip
    assert len(spills) == 1
    assert commit.rows == 5_000 == table.count()
    assert table.inspect.files().num_rows == 1
    assert not table.verify(deep=True).findings


def test_all_sources_are_read_in_parts(spills: list[SpillFile], tmp_path: Path) -> None:
    rows = pa.table({"id": range(300), "day": ["a"] * 300, "n": range(300), "text": ["x"] * 300}, schema=SCHEMA)
    frame = pl.DataFrame(rows)
    frame.write_parquet(tmp_path / "rows.parquet")
    other = table_of(None)
    other.upsert(rows)
    import pyarrow.dataset as ds

    for data in (rows, frame, frame.lazy(), frame.to_pandas(), stream(rows), ds.dataset(rows), other, other.scan()):
        table = table_of(20_000)
        assert table.upsert(data).rows == 300
        assert table.to_polars().sort("id").equals(frame)
    assert len(spills) == 8


# --- progress ---------------------------------------------------------------------------------------------------------


def told_by(write: Callable[[], object]) -> list[mor.observing.Event]:
    told: list[mor.observing.Event] = []
    kinds = mor.observing.StreamEvent | mor.observing.CommitEvent
    with mor.observe(lambda event: told.append(event) if isinstance(event, kinds) else None):
        write()
    return told


@pytest.mark.parametrize("verb", ["append", "upsert", "overwrite"])
def test_a_spilled_write_reports_its_rows_twice_and_then_its_commit(verb: str) -> None:
    rows = pa.table({"id": range(300), "day": ["a"] * 300, "n": range(300), "text": ["x"] * 300}, schema=SCHEMA)
    table = table_of(20_000)
    *told, commit = told_by(lambda: getattr(table, verb)(stream(rows)))
    assert isinstance(commit, mor.observing.CommitEvent)
    read, staged = ([event for event in told if event.name == name] for name in ("stream_read", "stream_staged"))
    assert told == [*read, *staged]
    assert {len(read) > 1, len(staged) > 1} == {True}
    assert {event.facts()["parts"] for event in staged} == {len(staged)}
    assert [sum(int(str(event.facts()["rows"])) for event in some) for some in (read, staged)] == [300, 300]


def test_refused_rows_are_not_reported_as_read() -> None:
    def refused() -> None:
        with pytest.raises(SchemaMismatchError):
            table_of(200).upsert(stream(inexact(), 10))

    assert sum(int(str(event.facts()["rows"])) for event in told_by(refused)) == 40


def test_a_write_in_memory_reports_only_its_commit() -> None:
    assert [event.name for event in told_by(lambda: table_of(None).upsert(stream(repeated())))] == ["commit"]


# --- refused ----------------------------------------------------------------------------------------------------------


def inexact() -> pa.Table:
    return repeated().set_column(2, "n", pa.array([*range(40), 0.5]))


def repeated() -> pa.Table:
    return pa.table({"id": [*range(40), 7], "day": ["a"] * 41, "n": range(41), "text": ["x"] * 41}, schema=SCHEMA)


REFUSED: list[tuple[str, Callable[[Table], object], type[CrdtMorError]]] = [
    ("value", lambda table: table.upsert(stream(inexact())), SchemaMismatchError),
    ("repeated key", lambda table: table.append(stream(repeated())), InvalidInputError),
    ("columns", lambda table: table.upsert(stream(repeated().drop_columns(["n"]))), SchemaMismatchError),
    ("partition", lambda table: table.overwrite(stream(repeated()), partitions=["b"]), InvalidInputError),
]


@pytest.mark.parametrize(("refused", "kind"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_refused_rows_publish_nothing(
    refused: Callable[[Table], object], kind: type[CrdtMorError], folder: Path
) -> None:
    table = table_of(200)
    before = table.history().num_rows
    with pytest.raises(kind) as spilled:
        refused(table)
    with pytest.raises(kind) as usual:
        refused(table_of(None))
    assert str(spilled.value) == str(usual.value)
    assert table.history().num_rows == before
    assert not os.listdir(folder)


def test_a_failing_reader_publishes_nothing(folder: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from repeated().to_batches(5)
        raise ValueError("the source broke")

    table = table_of(200)
    before = table.history().num_rows
    with pytest.raises(ValueError, match="the source broke"):
        table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, broken()))
    assert table.history().num_rows == before
    assert not os.listdir(folder)


def test_a_full_folder_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(SpillFile):
        def __init__(self) -> None:
            super().__init__()
            self._file.close()
            self._file = open("/dev/full", "r+b", buffering=0)  # noqa: SIM115  closed by the block

    monkeypatch.setattr("crdt_mor.api.write_input.SpillFile", Full)
    with pytest.raises(StorageUnavailableError, match="TMPDIR"):
        table_of(200).upsert(stream(repeated()))


# --- other writers meanwhile ------------------------------------------------------------------------------------------


def while_reading(act: Callable[[], object]) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        first, *rest = repeated().to_batches(5)
        yield first
        yield rest[0]
        act()
        yield from rest[1:]

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


def test_columns_added_meanwhile_are_empty() -> None:
    table = table_of(200)
    grown = repeated().slice(0, 1).append_column("more", pa.array([5]))
    table.upsert(while_reading(lambda: table.upsert(grown, schema_mode="merge")))
    assert table.count() == 40
    assert set(table.schema.names) == {*SCHEMA.names, "more"}


def test_rules_added_meanwhile_hold() -> None:
    table = table_of(200)
    table.upsert(repeated().slice(0, 1))  # before the first write of a table the begin comes first
    with pytest.raises(CrdtMorError, match="small"):
        table.upsert(while_reading(lambda: table.add_rules(Rules(check={"small": "n < 30"}))))
    assert table.count() == 1


def test_new_columns_are_published_once() -> None:
    table = table_of(200)
    grown = repeated().append_column("more", pa.array(range(41)))
    table.upsert(stream(grown), schema_mode="merge")
    assert table.count() == 40
    assert table.to_polars().filter(pl.col("id") == 7)["more"].to_list() == [40]


# --- the setting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "1 GB", "9" * 5000, 2**63])
def test_a_limit_is_a_number_of_bytes(limit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = f"must be a number of bytes from 1 to {2**63 - 1}"
    with pytest.raises(InvalidInputError, match=f"^memory_limit {expected}"):
        Opening(memory_limit=limit)
    monkeypatch.setenv("CRDT_MOR_MEMORY_LIMIT", str(limit))
    with pytest.raises(InvalidInputError, match=f"^CRDT_MOR_MEMORY_LIMIT {expected}"):
        Table.create("t", {"id": pl.Int64}, key="id", opening=Opening(store=MemoryStore()))


def test_the_variable_sets_the_limit(monkeypatch: pytest.MonkeyPatch, spills: list[SpillFile]) -> None:
    monkeypatch.setenv("CRDT_MOR_MEMORY_LIMIT", "300")
    table_of(None).upsert(stream(repeated()))
    assert len(spills) == 1
    monkeypatch.setenv("CRDT_MOR_MEMORY_LIMIT", "1 GB")
    with pytest.raises(InvalidInputError, match="CRDT_MOR_MEMORY_LIMIT"):
        table_of(None)

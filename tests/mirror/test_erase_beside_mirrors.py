"""An erasure leaves no value of its rows in any file of a mirror, and readers of the mirror go on."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
import pyarrow.parquet as pq
import pytest

from crdt_mor import Opening, Table
from crdt_mor.testing.faults import ProcessDied
from tests.mirror.delta_reading import by_delta_rs
from tests.mirror.iceberg_reading import by_pyiceberg
from tests.mirror.shapes import scanned
from tests.stores import Dying, ScriptedStore, first

SECRET, TEXT = 700_700_700_700, "a secret text"


def written(table: Table) -> None:
    """Mirrors that name the row in base files, merged rows and bounds, in several versions."""
    table.upsert(people([1, 2, SECRET], TEXT))
    mirrors(table)
    table.maintenance.compact()
    mirrors(table)
    table.upsert(people([2, SECRET], f"{TEXT}, changed"))
    mirrors(table)
    table.upsert(people([3], "open"))
    mirrors(table)


def people(ids: list[int], name: str) -> pl.DataFrame:
    return pl.DataFrame({"id": ids, "name": [name if key == SECRET else "open" for key in ids]})


def mirrors(table: Table) -> None:
    table.mirror("delta")
    table.mirror("iceberg")


def holding(folder: Path) -> list[str]:
    """The files that tell the row's key or text."""
    told = [path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] != ".hoodie"]
    return sorted(str(path.relative_to(folder)) for path in told if any(map(tells, texts_in(path))))


def tells(text: str) -> bool:
    return str(SECRET) in text or TEXT in text


def texts_in(path: Path) -> Iterator[str]:
    data = path.read_bytes()
    if path.suffix == ".parquet":
        file = pq.ParquetFile(BytesIO(data))
        yield from (str(file.read().to_pylist()), str(file.metadata.to_dict()))
    elif path.suffix == ".avro":
        records: Iterator[Any] = iter(fastavro.reader(BytesIO(data)))
        for record in records:
            yield str(record)
            bounds = record.get("data_file", {}).get("upper_bounds") or ()
            yield from (str(int.from_bytes(one["value"], "little")) for one in bounds)
    yield data.decode(errors="replace")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(str(tmp_path / "t"), {"id": pl.Int64, "name": pl.String}, key="id", buckets=1)
    written(made)
    return made


def test_erase_beside_mirrors_leaves_no_value_in_their_files(table: Table, tmp_path: Path) -> None:
    before = holding(tmp_path / "t")
    assert {name.partition("/")[0] for name in before} >= {"_delta_log", "metadata", ".mirror"}
    table.maintenance.erase(keys=[SECRET])
    assert holding(tmp_path / "t") == []
    assert by_delta_rs(table) == by_pyiceberg(table) == scanned(table)
    table.upsert(people([4], "open"))
    mirrors(table)
    assert by_delta_rs(table) == by_pyiceberg(table) == scanned(table)


@pytest.mark.parametrize(("format", "head"), [("delta", "_delta_log/"), ("iceberg", "metadata/v1.")])
def test_first_refresh_that_an_erasure_overtakes_leaves_no_value(tmp_path: Path, format: Any, head: str) -> None:
    """The erasure finds no mirror yet, and the refresh has merged the rows already."""
    made = Table.create(str(tmp_path / "t"), {"id": pl.Int64, "name": pl.String}, key="id", buckets=1)
    made.upsert(people([1, SECRET], TEXT))
    made.maintenance.compact()
    made.upsert(people([2, SECRET], TEXT))
    overtaken = first("put", lambda path: path.startswith(head), lambda: made.maintenance.erase(keys=[SECRET]))
    done = Table(made.uri, opening=Opening(store=ScriptedStore(made._session.store, overtaken))).mirror(format)
    assert done.version == made.version
    assert holding(tmp_path / "t") == []
    assert (by_delta_rs if format == "delta" else by_pyiceberg)(made) == scanned(made)


@pytest.mark.slow
def test_erase_that_dies_at_any_operation_is_finished_by_the_next(tmp_path: Path) -> None:
    for at in range(1, 400, 7):
        folder = tmp_path / f"t{at}"
        made = Table.create(str(folder), {"id": pl.Int64, "name": pl.String}, key="id", buckets=1)
        written(made)
        store = ScriptedStore(made._session.store, Dying(at=at, after=False))
        try:
            Table(str(folder), opening=Opening(store=store)).maintenance.erase(keys=[SECRET])
        except ProcessDied:
            Table(str(folder)).maintenance.erase(keys=[SECRET])
            assert holding(folder) == []
            assert by_delta_rs(made) == by_pyiceberg(made) == scanned(made)
        else:
            assert at > 20
            return
    raise AssertionError("the erasure took more operations than were tried")

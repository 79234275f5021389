"""A schema of many columns is in an object beside the segments, and every service knows it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.errors import FormatError
from crdt_mor.log import publish, segments, tail
from crdt_mor.log.paths import SEGMENTS, STAGED, VERSIONS
from crdt_mor.model.field_ids import field_ids
from tests.inside import run_sweep

COLUMNS = pa.schema([("id", pa.string()), *((f"c{n}", pa.int64()) for n in range(100))])


def row(id_: str, columns: pa.Schema = COLUMNS) -> pa.Table:
    return pa.Table.from_pylist([{"id": id_, **dict.fromkeys(columns.names[1:], 1)}], columns)


def wide(path: Path) -> Table:
    table = Table.create(path, COLUMNS, key="id", buckets=1)
    table.upsert(row("a"))
    return table


def objects(path: Path) -> list[str]:
    return sorted(file.name for file in (path / SEGMENTS).glob("*schema*"))


def newest(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(max((path / VERSIONS).iterdir()).read_bytes())
    return found


def test_upsert_versions_of_a_wide_table_name_one_object(fast_path: Path) -> None:
    table = wide(fast_path / "t")
    table.upsert(row("b"))
    (name,) = objects(fast_path / "t")
    assert newest(fast_path / "t")["schema"] == ""
    assert f"{newest(fast_path / 't')['schema_object']}.json" == name
    assert Table(fast_path / "t").schema.names == COLUMNS.names
    assert table.verify().is_sound


def test_upsert_of_few_columns_versions_contain_the_schema(fast_path: Path) -> None:
    Table.create(fast_path / "t", pa.schema([("id", pa.string())]), key="id", buckets=1).upsert(pa.table({"id": ["a"]}))
    assert objects(fast_path / "t") == []
    assert newest(fast_path / "t")["schema"] == '[["id","string"]]'


def test_upsert_that_adds_a_column_puts_another_object_and_ids_go_on(fast_path: Path) -> None:
    table, other = wide(fast_path / "t"), Table(fast_path / "t")
    more = COLUMNS.append(pa.field("more", pa.int64()))
    other.upsert(row("b", more), schema_mode="merge")
    table.upsert(row("c"))
    assert len(objects(fast_path / "t")) == 2
    ids = field_ids(table._session.known_tail().schema)
    assert ids == field_ids(Table(fast_path / "t")._session.tail().schema)
    assert ids["more",] == 102
    assert table.scan().to_arrow().num_rows == 3


def test_upsert_version_of_an_earlier_release_the_next_one_names_an_object(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(segments, "SCHEMA_MAX", 1 << 30)
        before = wide(fast_path / "t").version
    assert objects(fast_path / "t") == []
    table = Table(fast_path / "t")
    table.upsert(row("b"))
    assert len(objects(fast_path / "t")) == 1
    assert [table.scan(as_of=version).to_arrow().num_rows for version in (before, table.version)] == [1, 2]
    assert table.verify().is_sound


def test_sweep_removes_objects_that_no_version_names(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "KEPT_VERSIONS", 2)
    monkeypatch.setattr(publish, "EXPIRE_EVERY", 1)
    table = wide(fast_path / "t")
    first = objects(fast_path / "t")
    table.upsert(row("b", COLUMNS.append(pa.field("more", pa.int64()))), schema_mode="merge")
    for number in range(6):
        table.set_properties({"own": str(number)})
    run_sweep(table)
    (left,) = objects(fast_path / "t")
    assert left not in first
    assert f"{newest(fast_path / 't')['schema_object']}.json" == left
    assert Table(fast_path / "t").schema.names == [*COLUMNS.names, "more"]


def test_copy_and_restore_take_the_object_along(fast_path: Path) -> None:
    table = wide(fast_path / "t")
    table.maintenance.savepoint("early")
    table.copy(fast_path / "c")
    table.upsert(row("b", COLUMNS.append(pa.field("more", pa.int64()))), schema_mode="merge")
    table.copy(fast_path / "c", update=True)
    copied = Table(fast_path / "c")
    assert copied.scan().to_arrow().num_rows == 2
    assert objects(fast_path / "c") == objects(fast_path / "t")[-1:]
    table.maintenance.restore("early")
    assert Table(fast_path / "t").scan().to_arrow().num_rows == 1
    assert copied.verify().is_sound
    assert table.verify().is_sound


def test_job_whose_object_was_deleted_commits(fast_path: Path) -> None:
    table = wide(fast_path / "t")
    job = table.jobs.plan("upsert", COLUMNS)
    receipt = job.stage(row("b"), task=0)
    path = fast_path / "t" / SEGMENTS / objects(fast_path / "t")[0]
    ticket = next((fast_path / "t" / STAGED).glob("*.ticket"))
    assert json.loads(ticket.read_bytes())["schema"] == table._session.known_tail().schema
    table.upsert(row("c", COLUMNS.append(pa.field("more", pa.int64()))), schema_mode="merge")
    path.unlink()  # as by a sweep, once the version of the begin is deleted
    table.jobs.complete(job, [receipt, job.stage(row("d"), task=1)])
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"format":7,"schema":1}', b'{"format":7,"schema":"[]"}', None])
def test_open_damaged_object_is_an_error_with_its_name(fast_path: Path, damage: bytes | None) -> None:
    wide(fast_path / "t")
    (name,) = objects(fast_path / "t")
    path = fast_path / "t" / SEGMENTS / name
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    with pytest.raises(FormatError, match=f"estore.*{name}"):
        Table(fast_path / "t")

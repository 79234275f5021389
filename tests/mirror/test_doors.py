"""The doors of mirrors: `Table.mirror`, `crdt-mor mirror`, and the property that makes `maintain` refresh."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crdt_mor import Opening, Table
from crdt_mor.cli.main import app
from crdt_mor.errors import InvalidInputError
from crdt_mor.store import MemoryStore
from tests.mirror.delta_reading import by_delta_rs, foreign_commit, state_of
from tests.mirror.iceberg_reading import by_pyiceberg, metadata_of
from tests.mirror.shapes import SCHEMA, rows, scanned, written_over


def made(folder: Path, **settings: Any) -> Table:
    return written_over(Table.create(str(folder / "table"), SCHEMA, key="id", buckets=2, **settings))


def test_mirror_returns_its_address_version_and_cost(tmp_path: Path) -> None:
    table = made(tmp_path)
    done = table.mirror("delta")
    assert (done.uri, done.format, done.version, done.as_of) == (table.uri, "delta", table.version, table.scan().as_of)
    assert (done.number, done.objects, done.replaced) == (0, 4, None)
    assert done.bytes == sum(path.stat().st_size for path in Path(table.uri).rglob("*") if is_of_mirror(path))
    again = table.mirror("delta")
    assert (again.number, again.objects, again.bytes) == (0, 0, 0)
    assert by_delta_rs(table) == scanned(table)


def is_of_mirror(path: Path) -> bool:
    return path.is_file() and not {".mirror", "crdtmor", "_delta_log"}.isdisjoint(path.parts)


def test_mirror_as_iceberg_returns_its_metadata_file(tmp_path: Path) -> None:
    table = made(tmp_path)
    done = table.mirror("iceberg")
    assert done.uri.endswith("/metadata/v1.metadata.json")
    assert (done.format, done.version) == ("iceberg", table.version)
    assert by_pyiceberg(table) == scanned(table)


def test_both_mirrors_of_a_table_share_no_file(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.mirror("delta")
    table.mirror("iceberg")
    table.upsert(rows([7], 8))
    table.mirror("iceberg")
    table.mirror("delta")
    assert by_pyiceberg(table) == by_delta_rs(table) == scanned(table)


@pytest.mark.parametrize(
    ("format", "deletes", "said"),
    [
        ("hudi", None, "'delta' or 'iceberg'"),
        ("delta", "merge", "'vectors' or 'rewrite'"),
        ("iceberg", "rewrite", "'positions' or 'vectors'"),
    ],
)
def test_mirror_with_an_unknown_option_is_refused(tmp_path: Path, format: Any, deletes: Any, said: str) -> None:
    table = made(tmp_path)
    with pytest.raises(InvalidInputError, match=said):
        table.mirror(format, deletes=deletes)


def test_mirror_without_a_choice_keeps_rewriting(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.mirror("delta", deletes="rewrite")
    table.delete(keys=[7])
    table.mirror("delta")
    assert state_of(table).metadata["configuration"]["crdt_mor.deletes"] == "rewrite"
    assert by_delta_rs(table) == scanned(table)


def test_mirror_as_iceberg_without_a_choice_keeps_vectors(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.mirror("iceberg", deletes="vectors")
    table.delete(keys=[7])
    table.mirror("iceberg")
    assert metadata_of(table)["format-version"] == 3
    assert by_pyiceberg(table) == scanned(table)


def test_write_through_the_mirror_is_told_by_the_next(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.mirror("delta")
    foreign_commit(table, {"remove": {**next(iter(state_of(table).files.values())), "deletionTimestamp": 0}})
    done = table.mirror("delta")
    assert done.replaced == 1
    assert "replaced version 1, which another engine wrote" in str(done)
    assert by_delta_rs(table) == scanned(table)


def test_mirror_ahead_of_a_table_from_a_backup_is_replaced(tmp_path: Path) -> None:
    table = made(tmp_path)
    shutil.copytree(table.uri, tmp_path / "backup")
    table.upsert(rows([1], 99))
    table.mirror("delta")
    shutil.move(Path(table.uri, "_delta_log"), tmp_path / "backup")
    shutil.move(Path(table.uri, ".mirror"), tmp_path / "backup")
    shutil.move(Path(table.uri, "crdtmor"), tmp_path / "backup")
    old = Table(str(tmp_path / "backup"))
    done = old.mirror("delta")
    assert (done.number, done.version) == (1, old.version)
    assert by_delta_rs(old) == scanned(old)


def test_mirror_follows_overwrite_restore_and_truncate(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.mirror("delta")
    table.maintenance.savepoint("before")
    for change in (
        lambda: table.overwrite(rows(range(3), 1)),
        lambda: table.maintenance.restore("before"),
        table.truncate,
        lambda: table.upsert(rows([4], 2)),
    ):
        change()
        table.mirror("delta")
        assert by_delta_rs(table) == scanned(table)


def test_mirror_in_memory_is_that_of_a_disk(tmp_path: Path) -> None:
    store = MemoryStore()
    table = Table.create("t", SCHEMA, key="id", buckets=2, opening=Opening(store=store))
    written_over(table)
    done = table.mirror("delta")
    for stat in store.walk(""):
        path = tmp_path / stat.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.read(stat.path) or b"")
    assert done.objects == 4
    table.uri = str(tmp_path)
    assert by_delta_rs(table) == scanned(table)


def test_maintain_refreshes_the_mirrors_of_the_property(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.set_properties({"crdt_mor.mirror": "delta,iceberg"})
    due = table.maintenance.maintain(dry_run=True)
    assert [one.why for one in due.actions if one.service == "mirror"] == [
        "the delta mirror shows an older version",
        "the iceberg mirror shows an older version",
    ]
    done = table.maintenance.maintain()
    assert [(one.state, one.files_written > 0) for one in done.actions if one.service == "mirror"] == [
        ("done", True)
    ] * 2
    assert by_pyiceberg(table) == by_delta_rs(table) == scanned(table)
    assert not [one for one in table.maintenance.maintain().actions if one.service == "mirror"]
    with pytest.raises(InvalidInputError, match="delta, iceberg"):
        table.set_properties({"crdt_mor.mirror": "lance"})


def test_commands_mirror_and_print_the_result(tmp_path: Path) -> None:
    table = made(tmp_path)
    run = CliRunner().invoke(app, ["mirror", table.uri, "--as", "delta", "--output", "json"])
    assert run.exit_code == 0, run.output
    said = json.loads(run.stdout)
    assert (said["format"], said["version"], said["objects"]) == ("delta", table.version, 4)
    again = CliRunner().invoke(app, ["mirror", table.uri, "--as", "delta"])
    assert "nothing was to do" in again.stderr
    assert CliRunner().invoke(app, ["mirror", table.uri, "--as", "hudi"]).exit_code == 2
    options = ["--as", "iceberg", "--deletes", "vectors"]
    assert CliRunner().invoke(app, ["mirror", table.uri, *options]).exit_code == 0
    assert metadata_of(table)["format-version"] == 3

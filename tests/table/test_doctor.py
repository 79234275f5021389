"""What `doctor` finds on a machine and at the place of a table."""

from __future__ import annotations

import errno
import json
import os
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor.cli.main import app
from tests.simulation.random_history import SkewedEnvironment
from tests.stores import ScriptedStore, answering, refusing

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])


def found(uri: str | Path | None = None, **options: Any) -> dict[str, tuple[str, str]]:
    return {one.check: (one.state, one.result) for one in mor.doctor(uri, **options)}


def test_all_is_well_at_a_sound_table(tmp_path: Path) -> None:
    mor.Table.create(tmp_path / "t", SCHEMA, key="id")
    report = mor.doctor(tmp_path / "t")
    states = {one.check: one.state for one in report if not one.check.startswith("extra") and one.check != "java"}
    assert set(states.values()) <= {"fine"} | ({"note"} if states["disk"] == "note" else set())
    assert {"python", "crdt-mor", "pyarrow", "polars", "store", "table", "put-if-absent", "clock", "disk"} <= set(
        states
    )
    assert found(tmp_path / "t")["table"] == (
        "fine",
        "Hudi table version 9, timeline at version 0; run crdt-mor verify to read its data files",
    )


def test_a_place_without_fsync_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "fsync", refused)
    states = [(one.state, one.advice) for one in mor.doctor(tmp_path) if "(fsync)" in one.result]
    assert states == [("wrong", "put no table there")]


def test_what_is_at_a_place_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert found(tmp_path)["table"][0] == "note"
    assert [path.name for path in tmp_path.rglob("*")] == ["mine.txt"]


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert found(tmp_path / "new")["folder"] == ("note", "the folder does not exist")
    assert not (tmp_path / "new").exists()


def test_a_place_in_the_folder_of_a_table_is_wrong(tmp_path: Path) -> None:
    mor.Table.create(tmp_path / "t", SCHEMA, key="id")
    before = sorted(tmp_path.rglob("*"))
    state, said = found(tmp_path / "t/day=mon")["table"]
    assert (state, "in the folder of the table" in said) == ("wrong", True)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_tables_below_a_folder_are_named(tmp_path: Path) -> None:
    assert "make one with crdt-mor create" in {one.check: one for one in mor.doctor(tmp_path)}["table"].advice
    for i in range(7):
        mor.Table.create(tmp_path / f"t{i}", {"id": pa.string()}, key="id")
    told = {one.check: one for one in mor.doctor(tmp_path)}["table"]
    assert told.state == "note"
    assert "there is no table, but 7 tables below:" in told.result
    assert told.result.endswith(f"{tmp_path}/t4 and 2 more")
    assert f"crdt-mor list {tmp_path} " in told.advice


def test_a_table_without_its_properties_is_not_called_none(tmp_path: Path) -> None:
    table = mor.Table.create(tmp_path / "t", SCHEMA, key="id")
    table.upsert(pa.table({"id": ["a"], "v": [1]}))
    (tmp_path / "t/.hoodie/hoodie.properties").unlink()
    state, said = found(tmp_path / "t")["table"]
    assert (state, "Restore the file" in said) == ("wrong", True)


def test_packages_that_are_missing_or_old_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = metadata.version

    def version(name: str) -> str:
        if name == "fastavro":
            raise metadata.PackageNotFoundError(name)
        return "0.1" if name == "polars" else "2.0+cpu.1" if name == "numpy" else there(name)

    monkeypatch.setattr(metadata, "version", version)
    report = {one.check: one for one in mor.doctor()}
    assert (report["fastavro"].state, report["fastavro"].result) == ("wrong", "not installed")
    assert report["fastavro"].advice.startswith("pip install 'fastavro>=")
    assert report["polars"].state == "wrong"
    assert "0.1, older than" in report["polars"].result


def test_an_extra_that_is_not_there_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    there = metadata.version

    def version(name: str) -> str:
        if name in ("deltalake", "pyspark"):
            raise metadata.PackageNotFoundError(name)
        return there(name)

    monkeypatch.setattr(metadata, "version", version)
    report = {one.check: one for one in mor.doctor()}
    assert (report["extra delta"].state, report["extra delta"].result) == ("note", "not installed: deltalake")
    assert report["extra delta"].advice == "pip install 'crdt-mor[delta]', to use it"
    assert "java" not in report


@pytest.mark.parametrize("home", ["", "/nowhere"])
def test_spark_without_java_is_worth_a_word(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    there = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "4.3.0" if name == "pyspark" else there(name))
    monkeypatch.setenv("JAVA_HOME", home)
    monkeypatch.setenv("PATH", "/nowhere")
    assert found()["java"] == ("note", "not found: Spark needs it")


@pytest.mark.parametrize(
    ("ahead_s", "state", "said"),
    [
        (0, "fine", "within 5 s of the store's"),
        (20, "note", "20 s ahead of the store's: moments, as in as_of, are off by as much; nothing is lost"),
        (-300, "note", "300 s behind the store's: moments, as in as_of, are off by as much; nothing is lost"),
        (300, "wrong", "300 s ahead of the store's: writes are refused"),
    ],
)
def test_a_clock_that_is_off_is_told(tmp_path: Path, ahead_s: int, state: str, said: str) -> None:
    assert found(tmp_path, environment=SkewedEnvironment(ahead_s * 1000))["clock"] == (state, said)


def test_a_store_that_lets_many_puts_win_is_wrong() -> None:
    state, said = found("memory://t", store=ScriptedStore(mor.store.MemoryStore(), answering("put", lambda won: True)))[
        "put-if-absent"
    ]
    assert state == "wrong"
    assert "simultaneous conditional puts" in said


READ_ONLY = refusing(
    "put", error=lambda said: mor.errors.StorageRefusedError(f"this user may not put objects here. {said}")
)


def test_who_may_only_read_is_told_so() -> None:
    store = mor.store.MemoryStore()
    mor.Table.create("memory://t", SCHEMA, key="id", opening=mor.Opening(store=store))
    report = found("memory://t", store=ScriptedStore(store, READ_ONLY))
    assert report["table"][0] == "fine"
    assert report["permission to write"][0] == "note"
    assert "may not put objects here" in report["permission to write"][1]
    assert "clock" not in report
    nowhere = found("memory://t", store=ScriptedStore(mor.store.MemoryStore(), READ_ONLY))
    assert nowhere["permission to write"][0] == "wrong", "there is nothing to read either"


def test_a_damaged_table_is_wrong(tmp_path: Path) -> None:
    mor.Table.create(tmp_path / "t", SCHEMA, key="id")
    (tmp_path / "t/.hoodie/hoodie.properties").write_bytes(b"hoodie.table.version=77\n")
    assert found(tmp_path / "t")["table"][0] == "wrong"


def test_a_place_that_does_not_answer_is_wrong() -> None:
    assert found("nix://bucket/t")["store"][0] == "wrong"


def test_the_command_says_it_and_ends_by_what_it_found(tmp_path: Path) -> None:
    sound = CliRunner().invoke(app, ["doctor", str(tmp_path)])
    assert sound.exit_code == 0
    assert "✓ put-if-absent: of 16 concurrent puts of an object a single put won, for each of 8" in sound.stdout
    broken = CliRunner().invoke(app, ["doctor", "nix://bucket/t", "--output", "json"])
    assert broken.exit_code == 3
    assert [one["state"] for one in map(json.loads, broken.stdout.splitlines()) if one["check"] == "store"] == ["wrong"]

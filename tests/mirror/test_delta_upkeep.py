"""Checkpoints of a Delta mirror, its old versions, and the files that cleans and sweeps keep for it."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from crdt_mor import Table
from crdt_mor.errors import FormatError
from crdt_mor.mirror import delta_upkeep
from crdt_mor.mirror import sweep as sweeping
from crdt_mor.mirror.delta_log import LogState, replay
from crdt_mor.mirror.delta_upkeep import files_needed
from crdt_mor.mirror.sweep import sweep
from tests.mirror.delta_reading import by_delta_rs, by_duckdb, by_polars, log_files, state_of
from tests.mirror.iceberg_reading import by_pyiceberg
from tests.mirror.shapes import SCHEMA, rows, scanned

YEAR_S = 366 * 24 * 3600


def made(folder: Path) -> Table:
    table = Table.create(str(folder / "table"), SCHEMA, key="id", buckets=2)
    table.upsert(rows(range(10), 1))
    table.maintenance.compact()
    return table


def mirrored_until(table: Table, number: int) -> None:
    done = table.mirror("delta")
    while done.number < number:
        table.upsert(rows([done.number % 10], 100 + done.number))
        done = table.mirror("delta")


def age(*paths: Path) -> None:
    for path in paths:
        os.utime(path, (path.stat().st_mtime - YEAR_S,) * 2)


@pytest.mark.slow
def test_every_tenth_version_is_a_checkpoint_that_replaces_the_log(tmp_path: Path) -> None:
    table = made(tmp_path)
    mirrored_until(table, 11)
    log = Path(table.uri, "_delta_log")
    assert "00000000000000000010.checkpoint.parquet" in log_files(table)
    for number in range(10):  # the versions before the checkpoint's own
        (log / f"{number:020d}.json").unlink()
    assert by_delta_rs(table) == by_polars(table) == scanned(table)
    (log / "_last_checkpoint").unlink()  # a hint
    assert by_delta_rs(table) == scanned(table)
    table.delete(keys=[1])
    assert table.mirror("delta").number == 12
    assert by_delta_rs(table) == by_polars(table) == scanned(table)


@pytest.mark.slow
def test_duckdb_reads_from_a_checkpoint(tmp_path: Path) -> None:
    table = made(tmp_path)
    mirrored_until(table, 11)
    for number in range(10):
        Path(table.uri, "_delta_log", f"{number:020d}.json").unlink()
    assert by_duckdb(table) == scanned(table)


def test_checkpoint_holds_the_state_of_its_version(tmp_path: Path) -> None:
    table = made(tmp_path)
    mirrored_until(table, 10)
    state = state_of(table)
    assert state.checkpoint == 10
    again = replay(LogState(-1), 10, list(state.actions))
    assert (again.files, again.metadata, again.protocol) == (state.files, state.metadata, state.protocol)
    assert len(state.files) > 0


@pytest.mark.slow
def test_old_versions_are_deleted_below_a_kept_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path)
    mirrored_until(table, 20)
    assert len([name for name in log_files(table) if name.endswith(".json")]) == 21  # younger than a day
    monkeypatch.setattr(delta_upkeep, "KEPT_MS", -1_000_000)
    mirrored_until(table, 30)
    left = log_files(table)
    assert left[0].startswith("00000000000000000020.checkpoint")
    assert len([name for name in left if name.endswith(".json")]) == 11
    assert by_delta_rs(table) == by_polars(table) == scanned(table)
    assert by_delta_rs(table, version=21)


@pytest.mark.slow
def test_process_that_slept_through_the_deletion_of_versions_does_not_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of the next version is free again, but below a checkpoint, where no reader looks."""
    from tests.mirror.delta_reading import steps_of
    from tests.mirror.driven import Driven

    table = made(tmp_path)
    monkeypatch.setattr(delta_upkeep, "KEPT_MS", -1_000_000)
    mirrored_until(table, 3)
    table.upsert(rows([1], 7))
    slow = Driven(table, steps_of(table))
    for _ in range(2):  # it reads the head
        slow.step()
    mirrored_until(table, 31)
    while slow.step():
        pass
    assert slow.result is not None
    assert slow.result.number == 31
    assert slow.result.puts == ()
    assert log_files(table)[0].startswith("00000000000000000020")
    assert by_delta_rs(table) == scanned(table)


def test_clean_spares_the_base_files_of_kept_mirrors(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.mirror("delta")
    table.mirror("iceberg")
    before = scanned(table)
    table.upsert(rows(range(10), 2))
    table.maintenance.compact()
    done = table.maintenance.clean(keep=timedelta(0), readers=timedelta(0))
    assert done.spared > 0
    assert by_delta_rs(table) == by_pyiceberg(table) == before
    table.mirror("delta")
    assert by_delta_rs(table) == scanned(table)


def files_in(*folders: Path) -> set[Path]:
    return {path for folder in folders for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_sweep_deletes_old_files_that_no_kept_version_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path)
    monkeypatch.setattr(delta_upkeep, "KEPT_MS", -1_000_000)
    mirrored_until(table, 3)
    table.mirror("iceberg")
    folder, vectors = Path(table.uri, ".mirror"), Path(table.uri, "crdtmor")
    stale = vectors / f"deletion_vector_{'0' * 8}-0000-0000-0000-{'0' * 12}.bin"
    lost = folder / f"m-00000000-0000-0000-0000-000000000000-0_3_n{'0' * 32}.parquet"
    young = folder / f"m-00000000-0000-0000-0000-000000000000-0_4_n{'1' * 32}.parquet"
    foreign = folder / "notes.parquet"
    for path in (lost, stale, foreign):
        path.write_bytes(b"")
    needed = files_in(folder, vectors) - {lost, stale, foreign}
    age(lost, stale, foreign, *needed)
    young.write_bytes(b"")
    session = table._session
    root = table.mirror("iceberg").uri.partition("/metadata/")[0]
    assert session.run(sweep(root)) == 2
    assert files_in(folder, vectors) == {*needed, young, foreign}
    assert by_delta_rs(table) == by_pyiceberg(table) == scanned(table)
    mirrored_until(table, 40)  # every tenth version sweeps
    assert not all(path.exists() for path in needed)
    assert by_delta_rs(table) == scanned(table)
    assert sweeping.KEPT_MS >= 24 * 3600 * 1000


def test_files_needed_are_those_of_all_kept_versions(tmp_path: Path) -> None:
    table = made(tmp_path)
    mirrored_until(table, 2)
    needed = {*table._session.run(files_needed())}
    folders = Path(table.uri, ".mirror"), Path(table.uri, "crdtmor")
    own = {path.relative_to(table.uri).as_posix() for path in files_in(*folders)}
    assert own < needed
    assert {path for path in needed - own if Path(table.uri, path).is_file()} == needed - own


@pytest.mark.parametrize(
    "line",
    ["[]", "{}", "{", '{"add": 1}', '{"add": {}}', '{"remove": {"path": 3}}', '{"txn": {}}', '{"a": {}, "b": {}}'],
)
def test_a_log_with_a_wrong_action_is_refused_by_name(tmp_path: Path, line: str) -> None:
    table = made(tmp_path)
    table.mirror("delta")
    with Path(table.uri, "_delta_log", f"{0:020d}.json").open("a") as log:
        log.write(f"{line}\n")
    with pytest.raises(FormatError, match=r"not a version of a Delta log.*00000\.json"):
        table.mirror("delta")

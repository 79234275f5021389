"""Processes that die or race while they refresh an Iceberg mirror, and engines that write through it."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor import Table
from crdt_mor.log.steps import run
from crdt_mor.mirror import iceberg_metadata
from crdt_mor.mirror.iceberg import Deletes
from crdt_mor.mirror.iceberg_read import files_needed
from crdt_mor.mirror.sweep import sweep
from tests.mirror.driven import Driven
from tests.mirror.iceberg_reading import WAYS, by_duckdb, by_pyiceberg, metadata_of, mirrored, root_of, steps_of
from tests.mirror.shapes import SCHEMA, rows, scanned, written_over


def small(path: Path) -> Table:
    table = Table.create(str(path), SCHEMA, key="id", buckets=2)
    table.upsert(rows(range(6), 1))
    table.maintenance.compact()
    table.upsert(rows([1], 2))
    return table


def versions_of(table: Table) -> list[int]:
    """The versions of all metadata files, in order."""
    found = Path(table.uri, "metadata").glob("v*.metadata.json")
    by_number = {int(path.name[1:].partition(".")[0]): path for path in found}
    assert sorted(by_number) == list(range(1, len(by_number) + 1))
    return [int(json.loads(by_number[n].read_text())["properties"]["crdt_mor.version"]) for n in sorted(by_number)]


@pytest.mark.slow
@pytest.mark.parametrize("deletes", WAYS)
def test_mirror_whose_process_dies_at_any_step_is_continued_by_the_next(tmp_path: Path, deletes: Deletes) -> None:
    dies_at, is_over = 0, False
    while not is_over:
        table = small(tmp_path / str(dies_at))
        mirrored(table, deletes)
        before = scanned(table)
        table.upsert(rows([2, 3, 9], 3))
        after = scanned(table)
        driven = Driven(table, steps_of(table))

        is_over = not all(driven.step() for _ in range(dies_at))
        assert by_pyiceberg(table) in (before, after)

        mirrored(table)
        assert by_pyiceberg(table) == after
        assert Path(table.uri, "metadata/version-hint.text").read_text() == "2"
        dies_at += 1

    assert dies_at > 10


def test_hint_of_a_process_that_died_before_it_is_repaired_by_the_next(tmp_path: Path) -> None:
    table = small(tmp_path)
    mirrored(table)
    table.upsert(rows([2], 3))
    driven = Driven(table, steps_of(table))
    while not Path(tmp_path, "metadata/v2.metadata.json").exists():
        driven.step()
    hint = Path(tmp_path, "metadata/version-hint.text")
    assert hint.read_text() == "1"

    done = mirrored(table)

    assert (hint.read_text(), done.number, done.puts) == ("2", 2, ())


@pytest.mark.parametrize("lands", [True, False])
def test_mirror_whose_reply_of_the_commit_is_lost_is_committed_once(tmp_path: Path, lands: bool) -> None:
    table = small(tmp_path)
    driven = Driven(table, steps_of(table), lambda put: put.path == "metadata/v1.metadata.json", lands=lands)

    while driven.step():
        pass

    assert driven.has_lost
    assert driven.result is not None
    assert driven.result.number == 1
    assert by_pyiceberg(table) == scanned(table)


def three_at_once(table: Table, seed: int) -> None:
    """Some of the processes change position deletes to deletion vectors meanwhile, and the others keep them."""
    chance = random.Random(seed)
    first = Driven(table, steps_of(table))
    for _ in range(chance.randrange(8)):
        first.step()
    table.upsert(rows([chance.randrange(9)], 7))
    ways: list[Deletes | None] = [None, chance.choice([None, "vectors"])]
    running = [first, *(Driven(table, steps_of(table, deletes)) for deletes in ways)]
    while running:
        one = chance.choice(running)
        if not one.step():
            running.remove(one)

    versions = versions_of(table)
    assert versions == sorted(versions)
    assert metadata_of(table)["format-version"] == (2 if ways[1] is None else 3)
    assert by_pyiceberg(table) == scanned(table)
    assert Path(table.uri, "metadata/version-hint.text").read_text() == str(len(versions))


@pytest.mark.parametrize("seed", range(3))
def test_mirrors_of_three_processes_make_one_line_of_versions(tmp_path: Path, seed: int) -> None:
    three_at_once(small(tmp_path), seed)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_mirrors_of_three_processes_in_any_order_make_one_line_of_versions(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    three_at_once(small(tmp_path_factory.mktemp("t")), seed)


def test_mirror_after_another_engine_wrote_through_it_shows_the_table_again(tmp_path: Path) -> None:
    table = small(tmp_path)
    done = mirrored(table)
    own = metadata_of(table)
    foreign = own | {
        "current-snapshot-id": 5,
        "snapshots": [
            *own["snapshots"],
            {**own["snapshots"][-1], "snapshot-id": 5, "summary": {"operation": "delete"}},
        ],
        "last-updated-ms": own["last-updated-ms"] + 1,
    }
    Path(tmp_path, f"metadata/v{done.number + 1}.metadata.json").write_text(json.dumps(foreign))

    again = mirrored(table)

    assert (again.replaced, again.number) == (done.number + 1, done.number + 2)
    assert by_pyiceberg(table) == scanned(table)
    assert 5 not in [one["snapshot-id"] for one in metadata_of(table)["snapshots"]]


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"not json", b'{"format-version": 3}'])
def test_mirror_over_an_unreadable_metadata_file_shows_the_table_again(tmp_path: Path, content: bytes) -> None:
    table = small(tmp_path)
    done = mirrored(table)
    Path(tmp_path, f"metadata/v{done.number + 1}.metadata.json").write_bytes(content)

    mirrored(table)

    assert by_pyiceberg(table) == scanned(table)


def test_mirror_leaves_a_catalogs_metadata_files_alone(tmp_path: Path) -> None:
    table = small(tmp_path)
    mirrored(table)
    other = Path(tmp_path, "metadata/00007-0d1a5cbe-38e5-44a5-9b8b-2d2b7c2b1e11.metadata.json")
    other.write_text("{}")

    table.upsert(rows([1], 5))
    done = mirrored(table)

    assert (done.number, done.replaced, other.read_text()) == (2, None, "{}")


def test_mirror_whose_manifest_is_gone_is_made_anew(tmp_path: Path) -> None:
    table = small(tmp_path)
    done = mirrored(table)
    Path(tmp_path, next(path for path, _ in done.puts if path.endswith("m0.avro"))).unlink()

    mirrored(table)

    assert by_pyiceberg(table) == scanned(table)


def test_mirror_of_a_moved_table_names_files_at_the_new_place(tmp_path: Path) -> None:
    table = small(tmp_path / "old")
    mirrored(table)
    shutil.move(tmp_path / "old", tmp_path / "new")
    moved = Table(str(tmp_path / "new"))

    mirrored(moved)

    found = metadata_of(moved)
    assert found["location"] == root_of(moved)
    assert len(found["snapshots"]) == 1
    assert by_pyiceberg(moved) == scanned(moved)


def test_snapshots_of_a_mirror_show_their_versions(tmp_path: Path) -> None:
    table = small(tmp_path)
    steps: list[Callable[[], Any]] = [
        lambda: table.upsert(rows([1, 7], 3)),
        table.maintenance.compact,
        lambda: table.delete(keys=[2]),
        lambda: table.upsert(rows([2], 4)),
    ]
    seen = []
    for number, step in enumerate(steps):
        step()
        mirrored(table, "vectors" if number > 1 else None)
        seen.append((metadata_of(table)["current-snapshot-id"], scanned(table)))

    for snapshot_id, expected in seen:
        assert by_pyiceberg(table, snapshot_id) == expected


def test_needed_files_of_a_mirror_are_those_of_its_kept_snapshots(tmp_path: Path) -> None:
    table = small(tmp_path)
    first = mirrored(table)
    table.maintenance.compact()
    second = mirrored(table)

    needed = {*run(files_needed(root_of(table)), table._session.store, table._session.environment)}

    assert {path for done in (first, second) for path, _ in done.puts} <= needed
    assert all(Path(tmp_path, path).exists() for path in needed)
    bases = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("*.parquet")}
    assert bases <= needed


def test_needed_files_include_those_of_our_newest_metadata_under_another_engines(tmp_path: Path) -> None:
    table = small(tmp_path)
    done = mirrored(table)
    Path(tmp_path, f"metadata/v{done.number + 1}.metadata.json").write_text("{}")

    needed = {*run(files_needed(root_of(table)), table._session.store, table._session.environment)}

    assert {path for path, _ in done.puts} <= needed


def aged(table: Table) -> None:
    """Make all files of the mirror two days old."""
    for path in Path(table.uri, "metadata").iterdir():
        old = path.stat().st_mtime - 48 * 3600
        os.utime(path, (old, old))


def test_sweep_keeps_needed_files_and_those_of_catalogs_and_deletes_the_rest(tmp_path: Path) -> None:
    table = small(tmp_path)
    kept = {path for path, _ in mirrored(table).puts if path.startswith("metadata/")}
    nonce = "0" * 32
    left = {f"metadata/3-{nonce}-m0.avro", f"metadata/snap-5-{nonce}.avro", "metadata/v0.metadata.json"}
    others = {"metadata/00001-0d1a5cbe.metadata.json", "metadata/0d1a5cbe-m0.avro", "metadata/snap-5-1-0d1a5cbe.avro"}
    for path in left | others:
        Path(tmp_path, path).write_bytes(b"")

    def swept() -> int:
        return run(sweep(root_of(table)), table._session.store, table._session.environment)

    assert swept() == 0  # young
    aged(table)
    assert swept() == 3
    assert {f"metadata/{path.name}" for path in Path(tmp_path, "metadata").iterdir()} == kept | others
    assert by_pyiceberg(table) == scanned(table)


def test_refreshes_delete_old_files_of_expired_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_metadata, "KEPT_MAX", 2)
    monkeypatch.setattr(iceberg_metadata, "KEPT_COUNT", 2)
    table = small(tmp_path)
    for step in range(10):
        table.upsert(rows([1], step))
        aged(table) if step else None
        table.mirror("iceberg")

    numbers = sorted(int(path.name[1:].partition(".")[0]) for path in tmp_path.glob("metadata/v*.metadata.json"))
    assert numbers == [9, 10]
    assert len(list(tmp_path.glob("metadata/*.avro"))) < 12
    assert by_pyiceberg(table) == scanned(table)


def test_process_that_slept_until_its_number_expired_finds_the_later_mirror(tmp_path: Path) -> None:
    table = small(tmp_path)
    mirrored(table)
    table.upsert(rows([1], 5))
    late = Driven(table, steps_of(table))
    while len(list(tmp_path.glob("metadata/snap-*"))) < 2:
        late.step()
    for step in range(3):
        table.upsert(rows([1], step))
        mirrored(table)
    for number in (1, 2):
        Path(tmp_path, f"metadata/v{number}.metadata.json").unlink()

    while late.step():
        pass

    assert late.result is not None
    assert (late.result.number, late.result.puts) == (4, ())
    assert not Path(tmp_path, "metadata/v2.metadata.json").exists()
    assert by_pyiceberg(table) == scanned(table)


def test_rows_of_two_refreshes_of_one_slice_have_different_files(tmp_path: Path) -> None:
    table = small(tmp_path)
    one, other = Driven(table, steps_of(table)), Driven(table, steps_of(table))
    while one.step() or other.step():
        pass

    names = [path.name for path in Path(tmp_path, ".mirror").iterdir()]
    needed = {*run(files_needed(root_of(table)), table._session.store, table._session.environment)}
    assert {f".mirror/{name}" for name in names} <= needed  # the loser removed its own


@pytest.mark.slow
def test_mirror_by_its_address_in_duckdb_follows_the_hint(tmp_path: Path) -> None:
    table = written_over(Table.create(str(tmp_path), SCHEMA, key="id", buckets=2))
    mirrored(table)
    table.upsert(rows([5], 50))
    mirrored(table)

    assert by_duckdb(table) == scanned(table)

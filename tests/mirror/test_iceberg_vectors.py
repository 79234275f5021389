"""Iceberg mirrors of version 3: the bytes of deletion vectors, the ids of rows, and the way from position deletes."""

from __future__ import annotations

import json
import os
import struct
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor import Table
from crdt_mor.errors import InvalidInputError
from crdt_mor.log.steps import run
from crdt_mor.mirror.iceberg_manifests import (
    Entry,
    Manifest,
    Spec,
    Stream,
    list_bytes,
    manifest_bytes,
    numbered,
    read_list,
    read_manifest,
)
from crdt_mor.mirror.iceberg_metadata import next_row_ids
from crdt_mor.mirror.iceberg_plan import plan
from crdt_mor.mirror.iceberg_read import read_head
from crdt_mor.mirror.iceberg_types import Json
from crdt_mor.mirror.iceberg_vectors import puffin
from tests.mirror.driven import Driven
from tests.mirror.iceberg_reading import (
    WAYS,
    by_polars,
    by_pyiceberg,
    metadata_of,
    mirrored,
    require_pyiceberg,
    root_of,
    steps_of,
)
from tests.mirror.shapes import SCHEMA, rows, scanned, written_over

POSITIONS = [[0], [1, 5, 70_000], [2**32 - 1, 2**32, 2**40 + 3], list(range(3, 5000, 2))]


def made(path: Path, buckets: int = 2) -> Table:
    return written_over(Table.create(str(path), SCHEMA, key="id", buckets=buckets))


# --- the bytes of vectors ---------------------------------------------------------------------------------------------


def footer_of(data: bytes) -> Json:
    """The payload of a Puffin file's footer. The frame is checked."""
    assert data[:4] == data[-4:] == b"PFA1"
    size, flags = struct.unpack("<ii", data[-12:-4])
    assert flags == 0
    assert data[-16 - size : -12 - size] == b"PFA1"
    found: Json = json.loads(data[-12 - size : -12])
    return found


def test_blobs_of_a_puffin_file_have_length_magic_bitmap_and_checksum() -> None:
    pyroaring = pytest.importorskip("pyroaring")
    data, blobs = puffin([(f"s3://b/{place}", np.array(dead)) for place, dead in enumerate(POSITIONS)])

    described = footer_of(data)["blobs"]

    assert [(one["offset"], one["length"]) for one in described] == blobs
    assert blobs[0].offset == 4
    for place, (one, dead) in enumerate(zip(described, POSITIONS, strict=True)):
        blob = data[one["offset"] : one["offset"] + one["length"]]
        assert struct.unpack(">i", blob[:4]) == (len(blob) - 8,)
        assert struct.unpack(">I", blob[-4:]) == (zlib.crc32(blob[4:-4]),)
        assert blob[4:8] == b"\xd1\xd3\x39\x64"
        assert list(pyroaring.BitMap64.deserialize(blob[8:-4])) == dead
        assert one["properties"] == {"referenced-data-file": f"s3://b/{place}", "cardinality": str(len(dead))}
        assert (one["type"], one["snapshot-id"], one["sequence-number"]) == ("deletion-vector-v1", -1, -1)


def test_puffin_file_is_read_by_pyiceberg() -> None:
    require_pyiceberg()
    from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
    from pyiceberg.table.puffin import PuffinFile

    data, _ = puffin([(f"s3://b/{place}", np.array(dead)) for place, dead in enumerate(POSITIONS[:2])])

    found = deletion_vectors_from_puffin_file(PuffinFile(data))

    assert {one.referenced_data_file: one.to_vector().to_pylist() for one in found} == {
        "s3://b/0": POSITIONS[0], "s3://b/1": POSITIONS[1]
    }  # fmt: skip


# --- puts of a refresh -----------------------------------------------------------------------------------------------


def test_vectors_of_a_refresh_are_in_one_file(tmp_path: Path) -> None:
    table = made(tmp_path, buckets=4)

    done = mirrored(table, "vectors")

    paths = [path for path, _ in done.puts]
    assert len([path for path in paths if path.endswith(".puffin")]) == 1
    assert not [path for path in paths if path.endswith("-del.parquet")]
    deletes = [entry for entry in entries_of(table) if entry.stream == "deletes"]
    assert len({entry.referenced for entry in deletes}) == len(deletes) == 4


@pytest.mark.parametrize("deletes", WAYS)
def test_one_changed_slice_of_many_costs_seven_objects(tmp_path: Path, deletes: Any) -> None:
    table = Table.create(str(tmp_path), SCHEMA, key="id", buckets=8)
    table.upsert(rows(range(100), 1))
    table.maintenance.compact()
    mirrored(table, deletes)
    table.upsert(rows([5], 2))

    assert len(mirrored(table).puts) == 7


def test_vectors_of_earlier_snapshots_are_needed_and_then_swept(tmp_path: Path) -> None:
    table = made(tmp_path)
    mirrored(table, "vectors")
    table.upsert(rows([3], 4))
    table.mirror("iceberg")
    assert len([*tmp_path.glob(".mirror/*.puffin")]) == 2

    table.maintenance.erase(keys=[3])

    needed = {entry.path for entry in entries_of(table)}
    assert {f".mirror/{path.name}" for path in tmp_path.glob(".mirror/*.puffin")} <= needed
    assert by_pyiceberg(table) == scanned(table)


def entries_of(table: Table) -> list[Entry]:
    found = run(read_head(root_of(table)), table._session.store, table._session.environment)
    assert found is not None
    return [entry for manifest in found[0].manifests for entry in manifest.entries]


# --- from position deletes to vectors ---------------------------------------------------------------------------------


def test_change_to_vectors_keeps_snapshots_with_position_deletes(tmp_path: Path) -> None:
    table = made(tmp_path)
    mirrored(table)
    before, first = scanned(table), metadata_of(table)["current-snapshot-id"]

    mirrored(table, "vectors")
    table.upsert(rows([2, 4], 50))
    done = mirrored(table)

    found = metadata_of(table)
    assert (found["format-version"], done.number) == (3, 3)
    assert by_pyiceberg(table, first) == before
    assert by_pyiceberg(table) == by_polars(table) == scanned(table)
    assert [one.get("first-row-id") is None for one in found["snapshots"]] == [True, False, False]
    assert all(entry.blob for entry in entries_of(table) if entry.stream == "deletes")


def test_change_from_vectors_back_to_position_deletes_is_refused_until_the_metadata_are_gone(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.mirror("iceberg", deletes="vectors")

    with pytest.raises(InvalidInputError, match="delete the folder metadata"):
        table.mirror("iceberg", deletes="positions")

    assert by_pyiceberg(table) == scanned(table)
    for path in tmp_path.glob("metadata/*"):
        os.unlink(path)
    assert table.mirror("iceberg", deletes="positions").number == 1
    assert metadata_of(table)["format-version"] == 2
    assert by_pyiceberg(table) == scanned(table)


def test_mirror_that_another_engine_raised_to_version_3_stays_there(tmp_path: Path) -> None:
    table = made(tmp_path)
    done = mirrored(table)
    raised = metadata_of(table) | {"format-version": 3, "next-row-id": 0}
    Path(tmp_path, f"metadata/v{done.number + 1}.metadata.json").write_text(json.dumps(raised))

    again = mirrored(table)

    assert again.replaced == done.number + 1
    assert metadata_of(table)["format-version"] == 3
    assert by_pyiceberg(table) == scanned(table)


def test_refresh_that_loses_to_a_change_to_vectors_follows_it_and_removes_its_position_deletes(tmp_path: Path) -> None:
    table = made(tmp_path)
    mirrored(table)
    change = Driven(table, steps_of(table, "vectors"))
    table.upsert(rows([5, 6], 50))
    late = Driven(table, steps_of(table))
    while len([*tmp_path.glob("metadata/snap-*")]) < 2:
        late.step()

    while change.step():
        pass
    while late.step():
        pass

    assert late.result is not None
    assert (late.result.number, metadata_of(table)["format-version"]) == (3, 3)
    snapshots = metadata_of(table)["snapshots"]
    assert len(snapshots) == 3
    assert len([*tmp_path.glob(".mirror/*-del.parquet")]) == 2  # of the first snapshot
    assert by_pyiceberg(table) == scanned(table)


# --- the ids of rows --------------------------------------------------------------------------------------------------

GROUPS = [("p", f"g{place}") for place in range(4)]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_rows_of_data_files_have_ids_that_no_other_file_had_and_keep_them(data: st.DataObject) -> None:
    """Reads back as readers do: a manifest's ids begin in its list, and its new files count on."""
    manifests: list[Manifest] = []
    metadata: Json = {}
    ever: dict[str, range] = {}
    for step in range(data.draw(st.integers(1, 5))):
        changed = {
            group: drawn_entries(data, group, step) for group in data.draw(st.sets(st.sampled_from(GROUPS), min_size=1))
        }
        planned = plan(manifests, changed, GROUPS, lambda entry: entry)
        new = []
        for place, batch in enumerate(planned.made):
            settled = tuple(entry.settled(step, step) for entry in batch.entries)
            new.append(Manifest(f"{step}-{place}", 1, batch.stream, 0, step, step, settled))
        ids = next_row_ids(metadata, new)
        listed = [*planned.kept, *numbered(new, ids.first)]
        written = {f"{step}-{place}": batch.entries for place, batch in enumerate(planned.made)}
        manifests = read_back(listed, written, step)
        assert manifests == listed

        metadata = {"next-row-id": ids.first + ids.count}
        for entry in (entry for one in manifests for entry in one.entries if entry.stream != "deletes"):
            assert entry.first_row is not None
            given_ids = range(entry.first_row, entry.first_row + entry.rows)
            assert ever.setdefault(entry.path, given_ids) == given_ids
            assert given_ids.stop <= metadata["next-row-id"]
        spans = sorted((span.start, span.stop) for span in ever.values())
        assert all(one[1] <= following[0] for one, following in pairwise(spans))


def drawn_entries(data: st.DataObject, group: tuple[str, str], step: int) -> list[Entry]:
    streams: list[Stream] = data.draw(st.sampled_from([["rows"], ["rows", "deletes"], ["deletes"]]))
    files = [(stream, f"{group[1]}-{stream}-{step}", data.draw(st.integers(1, 9))) for stream in streams]
    files.append(("base", f"{group[1]}-base", 5))
    return [
        Entry(stream, path, (*group, f"k{step}" if place == 0 else None), count, 1)
        for place, (stream, path, count) in enumerate(files)
    ]


def read_back(listed: list[Manifest], written: dict[str, tuple[Entry, ...]], step: int) -> list[Manifest]:
    """The manifests as a reader sees them; earlier steps' manifests are unchanged."""
    schema = {"type": "struct", "schema-id": 0, "fields": []}
    records = read_list(list_bytes("r", listed, step, None, step, 3))
    found = []
    for record, manifest in zip(records, listed, strict=True):
        entries = written.get(manifest.path)
        if entries is None:
            assert record["first_row_id"] == manifest.first_row
            found.append(manifest)
        else:
            found.append(read_manifest("r", record, manifest_bytes("r", entries, Spec(0), schema, step, 3)))
    return found


def test_metadata_of_version_3_are_read_by_pyiceberg(tmp_path: Path) -> None:
    require_pyiceberg()
    from pyiceberg.table.metadata import TableMetadataUtil, TableMetadataV3

    table = made(tmp_path)
    mirrored(table, "vectors")
    table.upsert(rows([3], 4))
    mirrored(table)

    found = TableMetadataUtil.parse_raw(json.dumps(metadata_of(table)))

    assert isinstance(found, TableMetadataV3)
    first, second = found.snapshots
    assert (first.first_row_id, first.added_rows) == (0, second.first_row_id)
    assert second.first_row_id is not None
    assert second.added_rows is not None
    assert found.next_row_id == second.first_row_id + second.added_rows

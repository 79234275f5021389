"""Hudi's archived timeline as bytes: what a folder of it says, and that damage is named."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crdt_mor.errors import FormatError, UnsupportedVersionError
from crdt_mor.format.archive import (
    ArchivedInstant,
    decode_instants,
    decode_manifest,
    encode_instants,
    encode_manifest,
    manifest_name,
    manifest_number,
    merge_data_files,
    newest_manifest,
)
from crdt_mor.format.commit import CommitMetadata, WriteStat, decode_commit
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import TimelineFileName
from tests.interop.hudi_archive import SCHEMA, data_file

ROW = {
    "instantTime": "20260101000000000",
    "completionTime": "20260101000000004",
    "action": "commit",
    "metadata": b"m",
    "plan": b"p",
    "version": 1,
}


def test_instants_come_with_the_name_and_content_of_their_completed_file() -> None:
    rows = [ROW, ROW | {"instantTime": "20260101000000002", "action": "clean", "metadata": None, "plan": None}]
    first, second = decode_instants(data_file(rows), "x")
    assert (str(first.name), first.metadata) == ("20260101000000000_20260101000000004.commit", b"m")
    assert (str(second.name), second.metadata) == ("20260101000000002_20260101000000004.clean", b"")


@pytest.mark.parametrize(
    ("action", "completed"),
    [("compaction", "commit"), ("logcompaction", "deltacommit"), ("clustering", "replacecommit"), ("clean", "clean")],
)
def test_an_action_is_the_one_in_the_completed_files_name(action: str, completed: str) -> None:
    [found] = decode_instants(data_file([ROW | {"action": action}]), "x")
    assert found.name.action == completed


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "damaged file of the archived timeline"),
        (data_file([ROW])[:-9], "damaged file of the archived timeline"),
        (data_file([ROW | {"instantTime": None}]), "without its time or action"),
        (data_file([ROW | {"action": ""}]), "without its time or action"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(data: bytes, what: str) -> None:
    with pytest.raises(FormatError, match=what) as caught:
        decode_instants(data, "history/a_b_0.parquet")
    assert "file=history/a_b_0.parquet" in str(caught.value)


def test_a_file_without_the_columns_is_an_error() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"version": [1]}), sink)
    with pytest.raises(FormatError, match="damaged file of the archived timeline"):
        decode_instants(sink.getvalue().to_pybytes(), "x")


def test_rows_of_another_version_are_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="found=2 supported=1"):
        decode_instants(data_file([ROW | {"version": 2}]), "x")
    assert SCHEMA.field("version").type == pa.int32()


def test_the_version_file_names_the_manifest_that_counts() -> None:
    names = ["_version_", "manifest_9", "manifest_10", "manifest_x", "a_b_0.parquet"]
    assert newest_manifest(b"9\n", names, "h") == "manifest_9"
    assert newest_manifest(None, names, "h") == "manifest_10"
    assert newest_manifest(None, ["a_b_0.parquet"], "h") is None
    with pytest.raises(FormatError, match=r"no number.*file=h/_version_"):
        newest_manifest(b"nine", names, "h")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"files":[{}]}', b'{"files":[{"fileName":"../a.parquet"}]}', b'{"files":[{"fileName":1}]}']
)
def test_a_damaged_manifest_is_an_error_that_names_it(data: bytes) -> None:
    with pytest.raises(FormatError, match="file=h/manifest_1"):
        decode_manifest(data, "h/manifest_1")


def test_a_manifest_lists_data_files() -> None:
    files = [{"fileName": f"{name}.parquet", "fileLen": 1} for name in ("b", "a")]
    assert decode_manifest(json.dumps({"files": files}).encode(), "x") == ("b.parquet", "a.parquet")


def test_commits_of_old_hudis_are_json() -> None:
    stat = {"fileId": "f", "path": "p/f_0-0-0_1.parquet", "numWrites": 3, "fileSizeInBytes": 9, "unknownToUs": 1}
    text = {"partitionToWriteStats": {"p": [stat]}, "operationType": "UPSERT", "extraMetadata": {"schema": "s"}}
    found = decode_commit(json.dumps(text | {"partitionToReplaceFileIds": {"p": ["g"]}}).encode(), "x", replace=True)
    assert isinstance(found, CommitMetadata)
    assert (found.operation, found.extra, found.replaced) == ("UPSERT", {"schema": "s"}, {"p": ("g",)})
    [read] = found.stats["p"]
    assert isinstance(read, WriteStat)
    assert (read.path, read.num_writes, read.file_size_in_bytes, read.log_files) == (stat["path"], 3, 9, None)


def test_what_is_written_is_read_again_and_has_the_columns_of_hudis_files() -> None:
    commit = TimelineFileName(InstantTime("20260101000000000"), "commit", "completed", InstantTime("20260101000000004"))
    clean = TimelineFileName(InstantTime("20260101000000002"), "clean", "completed", InstantTime("20260101000000008"))
    first = encode_instants([ArchivedInstant(commit, b"m", b"p")])
    second = encode_instants([ArchivedInstant(clean, b"n")])
    assert pq.read_schema(pa.BufferReader(first)).equals(SCHEMA)
    merged = merge_data_files([(second, "b"), (first, "a")])
    assert decode_instants(merged, "x") == [ArchivedInstant(commit, b"m", b"p"), ArchivedInstant(clean, b"n")]
    assert pq.read_table(pa.BufferReader(merged))["plan"].to_pylist() == [b"p", None]
    with pytest.raises(FormatError, match="file=a"):
        merge_data_files([(first[:-9], "a")])


def test_a_manifest_lists_files_with_their_lengths() -> None:
    data = encode_manifest([("a.parquet", 7), ("b.parquet", 8)])
    assert decode_manifest(data, "m") == ("a.parquet", "b.parquet")
    assert [entry["fileLen"] for entry in json.loads(data)["files"]] == [7, 8]
    assert manifest_number(manifest_name(12)) == 12
    assert manifest_number("manifest_x") is manifest_number("12") is manifest_number("_version_") is None

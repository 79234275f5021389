"""Timeline files: what Hudi wrote comes back byte for byte, damage is named, equal values are equal bytes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crdt_mor
from crdt_mor.errors import FormatError, UnsupportedFeatureError
from crdt_mor.format import avro
from crdt_mor.format.commit import (
    CommitMetadata,
    CompactionOperation,
    CompactionPlanRecord,
    RuntimeStats,
    WriteStat,
    decode_commit,
    decode_compaction_plan,
    encode_commit,
    encode_compaction_plan,
)
from tests.format.hudi_files import hudi_files
from tests.format.replace_commit import encode_replace_commit

STAT = WriteStat(
    file_id="00000001-0000-0000-0000-000000000000-0",
    path="region=eu/.00000001-0000-0000-0000-000000000000-0_20260101000000000.log.1_0-0-0",
    prev_commit="20260101000000000",
    num_writes=3,
    total_write_bytes=1234,
    partition_path="region=eu",
    log_version=1,
    log_offset=0,
    base_file="",
    log_files=(".00000001-0000-0000-0000-000000000000-0_20260101000000000.log.1_0-0-0",),
    runtime_stats=RuntimeStats(total_upsert_time=7),
)
COMMIT = CommitMetadata({"region=eu": (STAT,)}, "UPSERT", {"schema": "{}"})
PLAN = CompactionPlanRecord(
    (
        CompactionOperation("20260101000000000", (".a_1.log.1_0-0-0",), "a_0-0-0_1.parquet", "a", "", {"TOTAL": 1.5}),
        CompactionOperation("20260101000000002", (), None, "b", "region=eu"),
    ),
    {"crdt_mor": "1"},
    missing_partitions=("x",),
)


def schema_of(data: bytes) -> str:
    """The writer's schema that a container carries, as text."""
    return str(fastavro.block_reader(io.BytesIO(data)).metadata["avro.schema"])


def datum_of(data: bytes) -> bytes:
    """The bytes of the datums in a container's first block."""
    block: Any = next(iter(fastavro.block_reader(io.BytesIO(data))))
    return bytes(block.bytes_.getvalue())


def recode(name: str, data: bytes) -> tuple[bytes, bytes | None]:
    """The datum of a file as it is, and as we write what we read; None for records that we do not read."""
    record = json.loads(schema_of(data))["name"]
    again: bytes | None = None
    if record == "HoodieCommitMetadata":
        again = encode_commit(decode_commit(data, name))
    elif record == "HoodieReplaceCommitMetadata":
        again = encode_replace_commit(decode_commit(data, name, replace=True))
    elif record == "HoodieCompactionPlan":
        again = encode_compaction_plan(decode_compaction_plan(data, name))
    return datum_of(data), again and datum_of(again)


def test_every_commit_and_plan_that_hudi_wrote_comes_back_byte_for_byte() -> None:
    seen = 0
    for name, data in hudi_files(r"/timeline/\d+[^/]*$"):
        datum, again = recode(name, data)
        if again is not None:
            seen += 1
            assert again == datum, name
    assert seen > 80


def test_our_commit_schemas_are_hudis_to_the_letter() -> None:
    theirs = {schema_of(data) for _, data in hudi_files(r"/timeline/\d+_\d+\.deltacommit$")}
    theirs |= {schema_of(data) for _, data in hudi_files(r"/\d+_\d+\.replacecommit$")}
    assert theirs == {schema_of(encode(COMMIT)) for encode in (encode_commit, encode_replace_commit)}


def test_our_schema_of_a_plan_is_hudis_but_for_two_notes_on_its_fields() -> None:
    theirs = {schema_of(data) for _, data in hudi_files(r"/timeline/\d+\.compaction\.requested$")}
    without_notes = {re.sub(r',"doc":"[^"]*"', "", schema) for schema in theirs}
    assert without_notes == {schema_of(encode_compaction_plan(CompactionPlanRecord()))}


def test_the_bytes_of_a_commit_and_of_a_plan_are_those_of_the_first_release() -> None:
    digests = [hashlib.sha256(data).hexdigest()[:16] for data in (encode_commit(COMMIT), encode_compaction_plan(PLAN))]
    assert digests == ["859301d63b4c9ed8", "5663e4909084d0b0"]


def test_the_schemas_are_found_in_a_package_imported_from_a_zip(tmp_path: Path) -> None:
    package = Path(crdt_mor.__file__).parent
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        for file in (path for path in package.rglob("*") if path.suffix in (".py", ".avsc")):
            archive.write(file, f"crdt_mor/{file.relative_to(package)}")
    program = "from crdt_mor.format import commit as c; print(c.__file__, c.encode_commit(c.CommitMetadata())[:3])"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "package.zip")}
    printed = subprocess.check_output([sys.executable, "-c", program], env=environment, cwd=tmp_path, text=True)
    assert printed.split() == [str(tmp_path / "package.zip/crdt_mor/format/commit.py"), "b'Obj'"]


def test_a_commit_comes_back_as_it_was_written() -> None:
    assert decode_commit(encode_commit(COMMIT), "x") == COMMIT
    replacing = CommitMetadata(replaced={"region=eu": ("a", "b"), "": ()}, operation="CLUSTER", compacted=None)
    assert decode_commit(encode_replace_commit(replacing), "x", replace=True) == replacing


def test_a_compaction_plan_comes_back_as_it_was_written() -> None:
    assert decode_compaction_plan(encode_compaction_plan(PLAN), "x") == PLAN
    assert decode_compaction_plan(encode_compaction_plan(CompactionPlanRecord()), "x") == CompactionPlanRecord()


def test_equal_commits_are_equal_bytes() -> None:
    assert encode_commit(COMMIT) == encode_commit(replace(COMMIT, extra=dict(COMMIT.extra)))
    assert encode_commit(COMMIT) != encode_commit(replace(COMMIT, operation="DELETE"))


def test_any_avro_reader_reads_our_commits() -> None:
    [record] = fastavro.reader(io.BytesIO(encode_commit(COMMIT)))
    assert isinstance(record, dict)
    assert record["partitionToWriteStats"]["region=eu"][0]["numWrites"] == 3
    assert record["extraMetadata"] == {"schema": "{}"}


def test_maps_are_there_even_when_empty_because_java_removes_a_key_without_looking() -> None:
    [record] = fastavro.reader(io.BytesIO(encode_commit(CommitMetadata())))
    assert isinstance(record, dict)
    assert record["partitionToWriteStats"] == {}
    assert record["extraMetadata"] == {}


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_commit_of_a_release_with_fewer_fields_is_read(codec: str) -> None:
    schema = {
        "type": "record",
        "name": "HoodieCommitMetadata",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            {"name": "extraMetadata", "type": ["null", {"type": "map", "values": "string"}], "default": None},
            {"name": "newField", "type": "int", "default": 0},
        ],
    }
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, [{"extraMetadata": {"schema": "s"}, "newField": 5}], codec=codec)
    assert decode_commit(buffer.getvalue(), "x") == CommitMetadata(extra={"schema": "s"}, compacted=None)


def test_an_unknown_codec_is_refused_by_name() -> None:
    schema = b'{"type":"record","name":"HoodieCommitMetadata","fields":[]}'
    pairs = ((b"avro.schema", schema), (b"avro.codec", b"snappy"))
    entries = b"".join(avro.encode_long(len(part)) + part for pair in pairs for part in pair)
    data = avro.MAGIC + avro.encode_long(2) + entries + b"\0" + bytes(16)
    with pytest.raises(UnsupportedFeatureError, match="snappy"):
        decode_commit(data, "x")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "empty file"),
        (b'{"partitionToWriteStats":{}', "damaged HoodieCommitMetadata"),
        (b'{"partitionToWriteStats":[1]}', "its fields differ from Hudi"),
        (b"PAR1", "not an Avro container"),
        (encode_commit(COMMIT)[:-1], "sync marker"),
        (encode_commit(COMMIT) + b"x", "damaged"),
        (encode_commit(COMMIT) + b"\x80", "damaged"),
        (encode_compaction_plan(CompactionPlanRecord()), "HoodieCommitMetadata expected, HoodieCompactionPlan found"),
        (avro.container_header("{}") + bytes(16), "damaged HoodieCommitMetadata"),
        (avro.container_header(schema_of(encode_commit(COMMIT))) + bytes(16), "one record expected, 0 found"),
        (avro.encode_container(avro.container_header(schema_of(encode_commit(COMMIT))), 2, b"\0" * 10), "2 found"),
        (avro.encode_container(avro.container_header(schema_of(encode_commit(COMMIT))), 1, b"\0" * 9), "bytes after"),
        (avro.encode_container(avro.container_header("nonsense"), 1, b"\0"), "damaged HoodieCommitMetadata"),
    ],
)
def test_a_damaged_commit_is_an_error_that_names_the_file(data: bytes, what: str) -> None:
    with pytest.raises(FormatError, match=what) as caught:
        decode_commit(data, "timeline/1_2.deltacommit")
    assert "path=timeline/1_2.deltacommit" in str(caught.value)


@pytest.mark.parametrize("decode", [decode_commit, decode_compaction_plan])
def test_a_file_cut_anywhere_is_a_format_error(decode: Callable[[bytes, str], object]) -> None:
    data = encode_commit(COMMIT) if decode is decode_commit else encode_compaction_plan(CompactionPlanRecord())
    decode(data, "x")
    for length in range(len(data)):
        with pytest.raises(FormatError):
            decode(data[:length], "x")


@given(st.integers(0, len(encode_commit(COMMIT)) - 1), st.integers(0, 255))
def test_a_changed_byte_is_read_or_is_a_format_error_never_anything_else(place: int, byte: int) -> None:
    data = bytearray(encode_commit(COMMIT))
    data[place] = byte
    with suppress(FormatError, UnsupportedFeatureError):
        decode_commit(bytes(data), "x")


@given(st.integers(-(2**63), 2**63 - 1))
@example(0)
@example(-1)
@example(64)
@example(2**63 - 1)
@example(-(2**63))
def test_a_number_comes_back_as_it_was_written(value: int) -> None:
    data = avro.encode_long(value)
    assert avro.decode_long(data, 0) == (value, len(data))
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, "long", value)
    assert data == buffer.getvalue()

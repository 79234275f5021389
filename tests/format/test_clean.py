"""The timeline files of a clean come back as they were written, those of savepoints are read, damage is named."""

from __future__ import annotations

import io
from collections.abc import Callable

import fastavro
import pytest

from crdt_mor.errors import FormatError
from crdt_mor.format.clean import (
    KEEP_BY_COMMITS,
    ActionInstant,
    CleanedPartition,
    CleanMetadata,
    CleanPlanRecord,
    decode_clean,
    decode_clean_plan,
    decode_savepoint,
    encode_clean,
    encode_clean_plan,
)
from crdt_mor.model.names import OWN_KEY
from tests.format.savepoints import avro_container, savepoint

PLAN = CleanPlanRecord(
    {"region=eu": ("a_0-0-0_1.parquet", ".a_2.log.1_0-0-0"), "": ("b_0-0-0_1.parquet",)},
    ActionInstant("20260101000000000", "deltacommit"),
    "20260101000000004",
    KEEP_BY_COMMITS,
    ("region=us",),
    {OWN_KEY: "7"},
)
CLEAN = CleanMetadata(
    "20260101000000001",
    {
        "region=eu": CleanedPartition(("a_0-0-0_1.parquet",), ("b_0-0-0_1.parquet",)),
        "region=us": CleanedPartition((), deleted=True),
    },
    "20260101000000000",
    "20260101000000004",
    KEEP_BY_COMMITS,
    milliseconds=12,
    extra={OWN_KEY: "7"},
)


def test_a_plan_of_a_clean_comes_back_as_it_was_written() -> None:
    assert decode_clean_plan(encode_clean_plan(PLAN), "x") == PLAN
    assert decode_clean_plan(encode_clean_plan(CleanPlanRecord({})), "x") == CleanPlanRecord({})


def test_a_clean_comes_back_as_it_was_written() -> None:
    assert decode_clean(encode_clean(CLEAN), "x") == CLEAN
    assert decode_clean(encode_clean(CleanMetadata("1", {})), "x") == CleanMetadata("1", {})


def test_any_avro_reader_reads_the_files_that_a_plan_names() -> None:
    [record] = fastavro.reader(io.BytesIO(encode_clean_plan(PLAN)))
    assert isinstance(record, dict)
    assert record["version"] == 2
    assert record["filePathsToBeDeletedPerPartition"][""] == [
        {"filePath": "b_0-0-0_1.parquet", "isBootstrapBaseFile": False}
    ]
    assert record["filePathsToBeDeletedPerPartition"]["region=eu"][1]["filePath"] == "region=eu/.a_2.log.1_0-0-0"


def test_any_avro_reader_reads_what_a_clean_removed() -> None:
    [record] = fastavro.reader(io.BytesIO(encode_clean(CLEAN)))
    assert isinstance(record, dict)
    assert record["totalFilesDeleted"] == 1
    assert record["partitionMetadata"]["region=eu"]["deletePathPatterns"] == ["a_0-0-0_1.parquet", "b_0-0-0_1.parquet"]


def test_a_plan_of_an_older_hudi_is_read_with_the_names_of_its_files_alone() -> None:
    strings = {"type": "array", "items": "string"}
    schema: dict[str, object] = {
        "type": "record",
        "name": "HoodieCleanerPlan",
        "fields": [
            {"name": "policy", "type": "string"},
            {"name": "filesToBeDeletedPerPartition", "type": ["null", {"type": "map", "values": strings}]},
            {"name": "filePathsToBeDeletedPerPartition", "type": ["null", {"type": "map", "values": strings}]},
        ],
    }
    named = {"p": ["s3://lake/t/p/a.parquet"]}
    data = avro_container(schema, {"policy": "P", "filesToBeDeletedPerPartition": named})
    assert decode_clean_plan(data, "x") == CleanPlanRecord({"p": ("a.parquet",)}, policy="P")


def test_a_savepoint_names_the_files_that_no_clean_may_remove() -> None:
    kept = {"region=eu": ["a_0-0-0_1.parquet", ".a_2.log.1_0-0-0"], "": ["s3://lake/t/b_0-0-0_1.parquet"]}
    data = savepoint({name: {"partitionPath": name, "savepointDataFile": files} for name, files in kept.items()})
    assert decode_savepoint(data, "x") == [
        "b_0-0-0_1.parquet",
        "region=eu/.a_2.log.1_0-0-0",
        "region=eu/a_0-0-0_1.parquet",
    ]


@pytest.mark.parametrize(
    ("decode", "data"),
    [(decode_clean_plan, encode_clean_plan(PLAN)), (decode_clean, encode_clean(CLEAN))],
    ids=["plan", "clean"],
)
def test_a_file_of_a_clean_that_is_cut_anywhere_is_an_error_that_names_it(
    decode: Callable[[bytes, str], object], data: bytes
) -> None:
    for length in range(len(data)):
        with pytest.raises(FormatError, match=r"path=timeline/1\.clean"):
            decode(data[:length], "timeline/1.clean")


@pytest.mark.parametrize(
    ("decode", "record"),
    [
        (decode_clean_plan, "HoodieCleanerPlan"),
        (decode_clean, "HoodieCleanMetadata"),
        (decode_savepoint, "HoodieSavepointMetadata"),
    ],
)
def test_a_record_without_what_every_hudi_writes_is_an_error_that_names_the_file(
    decode: Callable[[bytes, str], object], record: str
) -> None:
    fields = [{"name": "other", "type": "int", "default": 0}]
    with pytest.raises(FormatError, match=r"its fields differ from Hudi.*path=timeline/1_2"):
        decode(avro_container({"type": "record", "name": record, "fields": fields}, {}), "timeline/1_2")

"""`Table.verify` compares each of our files in Hudi's timeline with the bytes that a writer puts."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor.columns.schema import TableSchema
from crdt_mor.format.commit import decode_compaction_plan, encode_compaction_plan
from crdt_mor.format.savepoint import decode_savepoint_record, encode_savepoint
from crdt_mor.services.verify_hudi import reread_hudi
from crdt_mor.services.verify_told import Schemas
from tests.inside import session_of
from tests.model.types_page import SUPPORTED, arrow_type
from tests.table.damaged import opened
from tests.tables.make import HERE
from tests.tiers import slow

HUDI = Path(".hoodie/timeline")
KINDS = [
    ("rewritten", "_*.savepoint"), ("rewritten", "_*.deltacommit"), slow("upkeep", "_*.clean"),
    slow("rewritten", "_*.rollback"), slow("rewritten", "_*.commit"), slow("rewritten", "_*.restore"),
    slow("rewritten", ".savepoint.inflight"), slow("upkeep", ".clean.requested"),
    slow("rewritten", ".restore.requested"), slow("rewritten", ".rollback.requested"),
    slow("rewritten", "[19]001.compaction.requested"),
]  # fmt: skip
"""A table of an earlier release, and a kind of file in its timeline; the last kind is the plan of an overwrite."""


@pytest.fixture(scope="module")
def lake(fast_module_path: Path) -> Path:
    with tarfile.open(HERE / "release-6.tar.xz") as packed:
        packed.extractall(fast_module_path, filter="data")
    return fast_module_path


@pytest.fixture
def folder(lake: Path, fast_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of a table that release 6 has written, to be damaged."""
    return Path(shutil.copytree(lake / request.param, fast_path / "t"))


def told(folder: Path) -> dict[str, str]:
    """What is said of each file that is wrong, by its name."""
    found = reread_hudi(session_of(opened(folder))).findings
    return {Path(path.partition("#")[0]).name: finding.description for path, finding in found.items()}


def unseen_flips(folder: Path, path: Path) -> Iterator[int]:
    """The bytes of a file of which a bit may change without a finding, of a dozen that are tried."""
    data = path.read_bytes()
    step = 1 + len(data) // 10
    for at in range(step // 2, len(data), step):
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        if path.name not in told(folder):
            yield at
    path.write_bytes(data)


@pytest.mark.parametrize(("folder", "kind"), KINDS, indirect=["folder"])
def test_verify_a_bit_in_hudis_timeline_flips_names_the_file(folder: Path, kind: str) -> None:
    assert told(folder) == {}
    path = max((folder / HUDI).glob(f"*{kind}"))
    assert not any(unseen_flips(folder, path))


@pytest.mark.parametrize("folder", ["upkeep"], indirect=True)
def test_verify_the_frozen_plan_of_a_clean_is_swept_compares_it_with_the_record(folder: Path) -> None:
    clean = min((folder / HUDI).glob("*_*.clean"))
    requested = clean.name.partition("_")[0]
    assert not list((folder / ".hoodie/.crdt_mor/plans").glob(f"{requested}-*"))
    data = clean.read_bytes()
    at = data.rindex(b".parquet") - 5
    clean.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert set(told(folder)) == {clean.name}


@pytest.mark.parametrize("folder", ["rewritten"], indirect=True)
def test_verify_a_savepoint_names_another_file_says_which(folder: Path) -> None:
    """Hudi's cleaner removes what no savepoint names."""
    (path,) = (folder / HUDI).glob("*_*.savepoint")
    saved = decode_savepoint_record(path.read_bytes(), path.name)
    partition, names = max(saved.files.items())
    wrong = {**saved.files, partition: [*names[1:], names[0].replace("-0", "-9", 1)]}
    path.write_bytes(encode_savepoint(replace(saved, files=wrong)))
    assert "the files differ from the savepoint's" in told(folder)[path.name]


@pytest.mark.parametrize("folder", ["upkeep"], indirect=True)
def test_verify_the_frozen_plan_of_a_compaction_is_swept_sees_a_flip_in_its_record(folder: Path) -> None:
    record = min((folder / HUDI).glob("*.compaction.requested"))
    instant = record.name.partition(".")[0]
    assert not list((folder / ".hoodie/.crdt_mor/plans").glob(f"{instant}-*"))
    assert not any(unseen_flips(folder, record))


@pytest.mark.parametrize("folder", ["latest"], indirect=True)
def test_verify_a_plan_with_sizes_or_without_is_sound(folder: Path) -> None:
    """Releases until 6 told Hudi no sizes of the file groups in a plan."""
    path = max((folder / HUDI).glob("*.compaction.requested"))
    plan = decode_compaction_plan(path.read_bytes(), path.name)
    assert plan.operations
    assert plan.operations[0].metrics is None
    assert told(folder) == {}
    operation = replace(plan.operations[0], metrics={"TOTAL_LOG_FILES": 77.0})
    path.write_bytes(encode_compaction_plan(replace(plan, operations=(operation, *plan.operations[1:]))))
    assert set(told(folder)) == {path.name}


# --- schemas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", sorted({row[0] for row in SUPPORTED}))
def test_schemas_fault_each_type_as_a_writer_spells_it_is_sound(declared: str) -> None:
    schema = TableSchema.of(pa.schema([("c", arrow_type(declared))]))
    schemas = Schemas("t", schema.stored)
    assert schemas.fault(schema.avro("t")) is None
    assert schemas.fault(schema.avro_with_meta("t")) is None


def test_schemas_fault_an_older_schema_is_sound() -> None:
    newest = TableSchema.of(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    older = TableSchema.of(pa.schema([("a", pa.int32())]))
    assert Schemas("t", newest.stored).fault(older.avro("t")) is None
    assert "a type that the table lacks" in str(Schemas("t", older.stored).fault(newest.select(["a"]).avro("t")))
    assert "columns=['b']" in str(Schemas("t", older.stored).fault(newest.avro("t")))


def test_schemas_fault_a_changed_character_is_seen() -> None:
    schema = TableSchema.of(pa.schema([("amount", pa.int64()), ("when", pa.timestamp("us", "UTC"))]))
    schemas, text = Schemas("t", schema.stored), schema.avro("t")
    unseen = [
        at for at in range(len(text))
        if schemas.fault(text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :]) is None
    ]  # fmt: skip
    assert json.loads(text)
    assert unseen == []

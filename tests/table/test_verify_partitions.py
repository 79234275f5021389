"""`Table.verify(partitions=...)`: the files and rows of some partitions are checked, and nothing else is read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import polars as pl
import pytest

from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.model.packed_files import PackedFiles
from crdt_mor.services.verify_groups import GroupChecks
from tests.counting import Bucket
from tests.inside import completions_of, session_of

SCHEMA = {"day": pl.Date, "id": pl.Int64, "n": pl.Int64}


def rows(*days: int, n: int = 1) -> pl.DataFrame:
    return pl.DataFrame([{"day": date(2026, 1, day), "id": 1, "n": n} for day in days], SCHEMA)


@pytest.fixture
def table(fast_path: Path) -> Table:
    """Three partitions with a base file each, and another base file with a log in the first of them."""
    table = Table.create(fast_path / "t", SCHEMA, key=["day", "id"], partition_by="day", buckets=1)
    table.upsert(rows(1, 2, 3))
    table.maintenance.compact()
    table.upsert(rows(1, n=2))
    table.maintenance.compact()
    table.upsert(rows(1, n=3))
    return table


def files(table: Table, day: int, pattern: str = "*.parquet") -> list[Path]:
    return sorted((Path(table.uri) / f"day=2026-01-{day:02}").glob(pattern))


def damage(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    "named", [["2026-01-01"], ["day=2026-01-01"], [{"day": "2026-01-01"}]], ids=["value", "path", "mapping"]
)
def test_one_partition_is_checked_with_its_history(table: Table, named: Sequence[object]) -> None:
    damage(files(table, 2)[0])
    found = table.verify(partitions=named, deep=True)
    assert found.is_sound
    assert (found.rows, found.file_groups) == (1, 1)
    assert found.files == len(files(table, 1)) + len(files(table, 1, ".*.log.*")) == 5
    assert any(said.startswith("all other partitions, the timeline") for said in found.not_looked_at)


def test_the_files_of_one_partition(table: Table) -> None:
    all_files = table.inspect.files().to_pylist()
    for named in (["2026-01-01"], ["day=2026-01-01"], [{"day": "2026-01-01"}]):
        found = table.inspect.files(partitions=named).to_pylist()
        assert found == [row for row in all_files if row["partition"] == "day=2026-01-01"]
        assert {row["kind"] for row in found} == {"base", "log"}
    with pytest.raises(InvalidInputError, match=r"unknown=\['day=2026-01-09'\]"):
        table.inspect.files(partitions=["2026-01-09"])
    version = table.version
    table.upsert(rows(9))
    assert table.inspect.files(partitions=["2026-01-09"]).num_rows == 1
    with pytest.raises(InvalidInputError, match=rf"the table had at this moment: .*\(as_of\) lists .* as_of={version}"):
        table.inspect.files(version, partitions=["2026-01-09"])
    with pytest.raises(InvalidInputError, match="partitions as a list"):
        table.inspect.files(partitions="2026-01-01")


def test_damage_in_a_named_partition_is_found_and_other_partitions_are_not_read(table: Table) -> None:
    older, newer = files(table, 1)
    for file in (older, newer, *files(table, 2), *files(table, 3)):
        damage(file)
    found = table.verify(partitions=["2026-01-01", "2026-01-03"])
    assert {finding.path.rpartition("/")[2] for finding in found.findings} == {
        older.name, newer.name, files(table, 3)[0].name
    }  # fmt: skip
    assert {finding.check for finding in found.findings} == {"read"}


def test_the_partitions_add_up_to_the_table(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the commits are packed in segments."""
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 2)
    monkeypatch.setattr("crdt_mor.model.timeline_json.PACKED_MIN", 1)
    table.upsert(rows(1, 2, n=4))
    table.maintenance.compact()
    anew = Table(table.uri)
    assert any(isinstance(commit.files, PackedFiles) for commit in completions_of(anew))
    parts, whole = [anew.verify(partitions=[f"2026-01-{day:02}"]) for day in (1, 2, 3)], anew.verify()
    for name in ("rows", "file_groups", "files", "bytes"):
        assert sum(getattr(part, name) for part in parts) == getattr(whole, name)


def test_a_partition_without_its_metadata_file_is_found(table: Table) -> None:
    (metadata,) = files(table, 1, ".hoodie_partition_metadata*")
    metadata.unlink()
    assert [finding.check for finding in table.verify(partitions=["2026-01-01"]).findings] == ["partition metadata"]
    assert table.verify(partitions=["2026-01-02"]).is_sound


def test_keys_in_several_partitions_are_counted_among_the_named(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key=["id"], partition_by="day", buckets=1)
    table.upsert(rows(1, 2, 3))
    assert table.verify(partitions=["2026-01-01"]).keys_in_several_partitions == 0
    assert table.verify(partitions=["2026-01-01", "2026-01-03"]).keys_in_several_partitions == 1


@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        (["2026-01-01", "2026-01-09"], r"that the table has: .* unknown=\['day=2026-01-09'\]"),
        ([], r"that the table has: .* partitions=\[\]"),
        ("2026-01-01", "pass partitions as a list"),
        (["yesterday"], "name a partition by values of its columns' types"),
    ],
)
def test_a_wrong_name_is_refused(table: Table, partitions: list[str], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        table.verify(partitions=partitions)


def test_a_table_without_partitions_has_none_to_name(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key=["day", "id"], buckets=1)
    with pytest.raises(InvalidInputError, match="this table has no partitions: leave `partitions` out"):
        table.verify(partitions=["2026-01-01"])


def test_what_a_clean_removes_meanwhile_is_no_damage(table: Table) -> None:
    checks = GroupChecks(session_of(table), deep=False, partitions=["day=2026-01-01"])
    other = Table(table.uri)
    other.maintenance.compact()
    assert other.maintenance.clean(timedelta(0), readers=timedelta(0)).files
    (result,) = checks.results()
    assert (result.rows, result.findings) == (1, [])


def test_no_request_asks_for_another_partition() -> None:
    bucket = Bucket()
    with bucket.counting():
        opening = Opening(store=bucket.store())
        Table.create_from(
            "s3://counted/table", rows(1, 2, 3), key=["day", "id"], partition_by="day", buckets=1, opening=opening
        ).upsert(rows(1, 2, n=2))
        table = Table("s3://counted/table", opening=Opening(store=bucket.store()))
        count = bucket.count(lambda: table.verify(partitions=["2026-01-01"]))
    assert any("day=2026-01-01" in line for line in count.asked)
    assert not any("day=2026-01-02" in line or "day=2026-01-03" in line for line in count.asked)

"""Tokens of many applications are in an object beside the segments, and a repeated write is found there."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.errors import FormatError, TokenOrderError
from crdt_mor.log import publish, segments, tail
from crdt_mor.log.paths import SEGMENTS, VERSIONS
from tests.inside import run_sweep, session_of
from tests.simulated import Simulated

APPLICATIONS = 7


@pytest.fixture(autouse=True)
def few_tokens_in_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "TOKENS_MAX", 2)


def row(number: int) -> pa.Table:
    return pa.table({"id": [str(number)], "n": [number]})


def written(path: Path) -> Table:
    """A table with a commit of each application."""
    table = Table.create(path, row(0).schema, key="id", buckets=1)
    for number in range(APPLICATIONS):
        table.upsert(row(number), token=(f"app{number}", 1))
    return table


def newest(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(max((path / VERSIONS).iterdir()).read_bytes())
    return found


def objects(path: Path) -> list[str]:
    return sorted(file.name for file in (path / SEGMENTS).glob("*tokens*"))


def numbers(table: Table) -> dict[str, int]:
    found = table.inspect.tokens()
    return dict(zip(found["application"].to_pylist(), found["number"].to_pylist(), strict=True))


ALL = {f"app{number}": 1 for number in range(APPLICATIONS)}


def test_upsert_with_a_token_in_the_object_is_repeated_and_the_next_number_commits(fast_path: Path) -> None:
    table = written(fast_path / "t")
    tokens = newest(fast_path / "t")["tokens"]
    assert isinstance(tokens, dict)
    assert f"{tokens['object']}.json" == objects(fast_path / "t")[-1]
    for opened in (table, Table(fast_path / "t")):
        again = opened.upsert(row(99), token=("app0", 1))
        assert again.repeated
    assert Table(fast_path / "t").upsert(row(99), token=("app0", 2)).repeated is False
    with pytest.raises(TokenOrderError):
        table.upsert(row(98), token=("app0", 1))
    assert numbers(table) == ALL | {"app0": 2}
    assert table.scan().to_arrow().num_rows == APPLICATIONS + 1
    assert table.verify().is_sound


def test_upsert_of_few_applications_versions_contain_the_tokens(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", row(0).schema, key="id", buckets=1)
    for number in range(4):
        table.upsert(row(number), token=("app", number))
    assert objects(fast_path / "t") == []
    assert isinstance(newest(fast_path / "t")["tokens"], list)


def test_upsert_after_a_version_with_many_tokens_moves_them(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(segments, "TOKENS_MAX", 1 << 30)  # as an earlier release
        written(fast_path / "t")
    assert objects(fast_path / "t") == []
    table = Table(fast_path / "t")
    table.set_properties({"own": "1"})
    assert len(objects(fast_path / "t")) == 1
    assert table.upsert(row(0), token=("app0", 1)).repeated
    assert numbers(Table(fast_path / "t")) == ALL


def test_restore_sets_tokens_in_the_object_back(fast_path: Path) -> None:
    table = written(fast_path / "t")
    table.maintenance.savepoint("early")
    for number in range(APPLICATIONS):
        table.upsert(row(number + 10), token=(f"app{number}", 2))
    table.maintenance.restore("early")
    assert numbers(Table(fast_path / "t")) == ALL
    assert table.upsert(row(50), token=("app0", 2)).repeated is False
    assert table.upsert(row(50), token=("app1", 1)).repeated
    assert table.verify().is_sound


def test_copy_takes_the_object_along(fast_path: Path) -> None:
    table = written(fast_path / "t")
    table.copy(fast_path / "c")
    table.upsert(row(20), token=("app0", 2))
    table.copy(fast_path / "c", update=True)
    copied = Table(fast_path / "c")
    assert numbers(copied) == ALL | {"app0": 2}
    assert copied.verify().is_sound


def test_migrate_takes_tokens_of_the_object_along(fast_path: Path) -> None:
    table = written(fast_path / "t")
    table.maintenance.migrate(fast_path / "m", buckets=2)
    arrived = Table(fast_path / "m")
    assert {name: number for name, number in numbers(arrived).items() if name in ALL} == ALL
    assert arrived.upsert(row(30), token=("app0", 1)).repeated


def test_maintain_forgets_tokens_in_the_object() -> None:
    world = Simulated()
    table = world.create(row(0).schema, key="id", buckets=1)
    for number in range(APPLICATIONS):
        table.upsert(row(number), token=(f"app{number}", 1))
    assert session_of(table).tail().tokens.stored is not None
    table.set_properties({"crdt_mor.tokens": "1m"})
    world.environment.sleep(120)
    table.maintenance.maintain()
    assert numbers(table) == {}
    assert session_of(table).tail().tokens.stored is None


def test_sweep_removes_objects_that_no_version_names(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "KEPT_VERSIONS", 2)
    monkeypatch.setattr(publish, "EXPIRE_EVERY", 1)
    table = written(fast_path / "t")
    for number in range(6):
        table.set_properties({"own": str(number)})
    run_sweep(table)
    tokens = newest(fast_path / "t")["tokens"]
    assert isinstance(tokens, dict)
    assert objects(fast_path / "t") == [f"{tokens['object']}.json"]
    assert numbers(Table(fast_path / "t")) == ALL


def test_job_whose_object_was_deleted_commits(fast_path: Path) -> None:
    table = written(fast_path / "t")
    job = table.jobs.plan("upsert", row(0).schema, token=("app0", 2))
    receipt = job.stage(row(40), task=0)
    old = objects(fast_path / "t")[-1]
    for number in range(2):
        table.upsert(row(number), token=(f"more{number}", 1))
    (fast_path / "t" / SEGMENTS / old).unlink()  # as by a sweep, once the version of the begin is deleted
    table.jobs.complete(job, [receipt, job.stage(row(41), task=1)])
    assert numbers(table)["app0"] == 2
    assert table.scan().to_arrow().num_rows == APPLICATIONS + 2


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"format":7,"tokens":1}', b'{"format":7,"tokens":[[1]]}', None])
def test_open_damaged_object_is_an_error_with_its_name(fast_path: Path, damage: bytes | None) -> None:
    written(fast_path / "t")
    name = objects(fast_path / "t")[-1]
    path = fast_path / "t" / SEGMENTS / name
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    with pytest.raises(FormatError, match=f"estore.*{name}"):
        Table(fast_path / "t")

"""Tables that earlier releases wrote are read for ever, written to and compacted, with the answers of their release.

`make.py` made them, and noted what that release read: at every commit, and from one commit to another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import crdt_mor as mor
from tests.tables.make import HERE, history, plain
from tests.tiers import only

RELEASES = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))
ALL = [(release, name) for release in RELEASES for name in json.loads((HERE / f"{release}.json").read_text())]
FAST = [
    (release, name) for release, name in ALL if release == RELEASES[-1] or (release == RELEASES[0] and name == "pages")
]
KEPT = only(FAST, ALL)
"""The tables of each release, by name: earlier ones have fewer kinds. The fast tier takes all of the newest release; of
the oldest it takes `pages`, the table that has most."""
CHANGED = only(FAST[-2:], ALL)
"""The tables whose copies are written to and compacted; the fast tier takes two of the newest release."""

RENAMED = {"number": "ordinal"}
"""Columns of the history that earlier releases called otherwise."""

NEVER = timedelta(days=36_500)
"""An expiry under which the writes that were pending when a table was put away are pending still."""


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lake(release: str, fast_path: Path) -> Path:
    """The tables of one release, in a folder that they have never been in."""
    with tarfile.open(HERE / f"{release}.tar.xz") as packed:
        packed.extractall(fast_path, filter="data")
    return fast_path


@pytest.fixture
def noted(release: str) -> dict[str, dict[str, Any]]:
    """What the release itself read in them."""
    found: dict[str, dict[str, Any]] = json.loads((HERE / f"{release}.json").read_text(encoding="utf-8"))
    return found


def test_there_is_a_table_of_each_format() -> None:
    assert RELEASES == [
        "release-0",
        "release-1",
        "release-2",
        "release-3",
        "release-4",
        "release-5",
        "release-6",
        "release-7",
        "release-8",
        "release-9",
    ]


@pytest.mark.costly
@pytest.mark.parametrize(("release", "name"), KEPT, indirect=["release"])
def test_every_answer_is_that_of_the_release(name: str, lake: Path, noted: dict[str, dict[str, Any]]) -> None:
    table, then = mor.Table(lake / name), noted[name]
    assert str(table.schema) == then["schema"]
    assert table.version == then["version"]
    assert plain(table.scan()) == then["scan"]
    assert plain(table.scan(consistency="stable")) == then["stable"]
    assert plain(table.scan(consistency="read_optimized")) == then["read_optimized"]
    _require_history(table, then)
    assert table.scan().checkpoint == then["end"]
    _require_commits(table, then)
    assert dict(table.properties) == then.get("properties", {})
    assert table.inspect.timeline().column("state").to_pylist().count("pending") == then["pending"]
    assert [plan.barrier for plan in table.maintenance.plans.open()] == then["open_plans"]


@pytest.mark.costly
@pytest.mark.parametrize(("release", "name"), CHANGED, indirect=["release"])
def test_it_is_whole(name: str, lake: Path) -> None:
    """Files without what later releases put there, and versions that know fewer rules, are no damage."""
    assert mor.Table(lake / name).verify(deep=True).findings == ()


@pytest.mark.costly
@pytest.mark.parametrize(("release", "name"), CHANGED, indirect=["release"])
def test_the_life_of_each_key_ends_with_its_row(name: str, lake: Path) -> None:
    table = mor.Table(lake / name)
    fields, rows = table.config.key, table.scan().to_arrow().to_pylist()
    assert rows
    for row in rows:
        key = tuple(row[field] for field in fields)
        life = table.why(key if len(fields) > 1 else key[0]).to_pylist()
        ends = {line["partition"]: line["result"] for line in life}
        assert repr(row) in map(repr, ends.values())


@pytest.mark.costly
@pytest.mark.parametrize(("release", "name"), CHANGED, indirect=["release"])
def test_it_is_compacted_beside_the_writes_that_are_still_pending(
    name: str, lake: Path, noted: dict[str, dict[str, Any]]
) -> None:
    table, then = mor.Table(lake / name, opening=mor.Opening(writer_expiry=NEVER)), noted[name]
    done = table.maintenance.compact()
    assert [compacted.barrier for compacted in done][: len(then["open_plans"])] == then["open_plans"]
    assert plain(table.scan()) == then["scan"]
    assert plain(table.scan(consistency="stable")) == then["stable"]
    assert table.inspect.timeline().column("state").to_pylist().count("pending") == then["pending"]
    _require_history(table, then)


@pytest.mark.costly
@pytest.mark.parametrize(("release", "name"), CHANGED, indirect=["release"])
def test_it_is_written_to_and_compacted_to_the_end(name: str, lake: Path, noted: dict[str, dict[str, Any]]) -> None:
    """A writer of today gives the pending writes up, as their processes are long gone.

    Where nothing says since when a writer is silent, its silence counts from the first look, so the expiry is short.
    """
    table, then = mor.Table(lake / name, opening=mor.Opening(writer_expiry=timedelta(milliseconds=20))), noted[name]
    key, partitions = table.config.key, table.config.partition_sources
    row = table.scan().to_polars().sort(key).head(1)
    table.delete(row.select(*key, *partitions), plain=True)
    assert len(plain(table.scan())) == len(then["scan"]) - 1
    table.upsert(row)
    assert plain(table.scan()) == then["scan"]
    while table.maintenance.compact():
        assert plain(table.scan()) == then["scan"]
    assert plain(table.scan(consistency="read_optimized")) == then["scan"]
    assert not table.inspect.timeline().column("state").to_pylist().count("pending")
    _require_history(table, then)


@pytest.mark.costly
def test_a_token_of_the_release_is_known(lake: Path) -> None:
    table = mor.Table(lake / "pages")
    before = plain(table.scan())
    again = table.upsert(table.scan().to_arrow(), token=("nightly", 18))
    assert again.repeated
    assert plain(table.scan()) == before
    with pytest.raises(mor.TokenOrderError):
        table.upsert(table.scan().to_arrow(), token=("nightly", 17))


@pytest.mark.slow
def test_this_release_writes_what_the_newest_kept_tables_hold(tmp_path: Path) -> None:
    """Byte for byte, but for Parquet, whose bytes are pyarrow's, and the order of properties, which says nothing.

    A change of the format keeps tables of the new one.
    """
    script = [sys.executable, str(HERE / "make.py"), "now", str(tmp_path)]
    subprocess.run(script, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(HERE.parents[1])})
    noted, found = (json.loads(file.read_text()) for file in (HERE / f"{RELEASES[-1]}.json", tmp_path / "now.json"))
    assert {name: then | {"history": _commits(then)} for name, then in noted.items()} == {
        name: now | {"history": _commits(now)} for name, now in found.items()
    }
    kept, now = (_objects(archive) for archive in (HERE / f"{RELEASES[-1]}.tar.xz", tmp_path / "now.tar.xz"))
    assert now.keys() == kept.keys()
    assert not [
        name for name, data in now.items() if "/.hoodie/" in name and _said(name, data) != _said(name, kept[name])
    ]


def _said(name: str, data: bytes) -> object:
    return sorted(data.splitlines()) if name.endswith("/hoodie.properties") else data


def _objects(archive: Path) -> dict[str, bytes]:
    objects = {}
    with tarfile.open(archive) as packed:
        for member in packed.getmembers():
            file = packed.extractfile(member)
            assert file is not None
            objects[member.name] = file.read()
    return objects


def _require_commits(table: mor.Table, then: dict[str, Any]) -> None:
    """Each commit is what the release said of it, in the columns that the release had."""
    commits, noted = [json.loads(commit) for commit in history(table)], _commits(then)
    for now, before in zip(commits, noted, strict=True) if noted else ():
        assert {column: now[column] for column in before} == before


def _commits(then: dict[str, Any]) -> list[dict[str, Any]]:
    """The history that a release noted, by the names that its columns have now."""
    return [
        {RENAMED.get(name, name): value for name, value in json.loads(commit).items()}
        for commit in then.get("history", [])
    ]


def _require_history(table: mor.Table, then: dict[str, Any]) -> None:
    """What was true of a moment stays true."""
    for moment, rows in then["as_of"].items():
        assert plain(table.scan(as_of=moment)) == rows, moment
    for moment, rows in then["changes"].items():
        assert plain(table.changes(since=moment, until=then["end"])) == rows, moment
    first = next(iter(then["as_of"]))
    assert plain(table.changes(since=first, until=then["end"], images=True)) == then["images"]

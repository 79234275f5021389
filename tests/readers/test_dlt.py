"""dlt's destination: pipelines at once lose no rows, and a repeated load file counts once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import crdt_mor as mor
from crdt_mor.payloads import Counter

pytest.importorskip("dlt", reason="not installed: dlt; `python -m tests.readers.installed` installs it elsewhere")
pytestmark = pytest.mark.slow

os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
RUN = """
import sys, dlt
from crdt_mor.readers.dlt import tables_in
place, name, first = sys.argv[1], sys.argv[2], int(sys.argv[3])

@dlt.resource(name="stock", primary_key="id", write_disposition="merge")
def stock():
    for start in range(first, first + 60, 20):
        yield [{"id": i, "n": 1} for i in range(start, start + 20)]

dlt.pipeline(name, destination=tables_in(f"{place}/lake"), pipelines_dir=f"{place}/{name}").run(stock())
"""


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Any:
    import dlt

    from crdt_mor.readers.dlt import tables_in

    pipeline = dlt.pipeline("shop", destination=tables_in(tmp_path / "lake"), pipelines_dir=str(tmp_path / "dlt"))

    def run(rows: list[dict[str, Any]], **hints: Any) -> Any:
        given = {"name": "stock", "primary_key": "id", "write_disposition": "merge"} | hints
        return pipeline.run(dlt.resource(rows, **given))

    return run


def counting(place: Path) -> mor.Table:
    schema = {"id": pl.Int64, "n": pl.Int64}
    return mor.Table.create(place / "lake" / "stock", schema, key="id", merge={"n": Counter()})


def test_a_resource_becomes_a_table_and_later_columns_are_added(run: Any, tmp_path: Path) -> None:
    run([{"id": 1, "city": "Rome"}, {"id": 2, "city": "Oslo"}])
    run([{"id": 2, "city": "Bergen", "tags": ["a"]}])
    table = mor.Table(tmp_path / "lake" / "stock")
    assert table.config.key == ("id",)
    assert sorted(table.to_polars().rows()) == [(1, "Rome", None), (2, "Bergen", '["a"]')]
    assert [path.name for path in (tmp_path / "lake").iterdir()] == ["stock"]


def test_two_pipelines_at_once_lose_no_row(tmp_path: Path) -> None:
    table = counting(tmp_path)
    runs = [
        subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path), name, first], cwd=tmp_path)
        for name, first in (("east", "0"), ("west", "30"))
    ]
    assert [run.wait() for run in runs] == [0, 0]
    assert dict(table.to_polars().rows()) == {i: 2 if 30 <= i < 60 else 1 for i in range(90)}


def test_two_first_runs_at_once_make_one_table(tmp_path: Path) -> None:
    runs = [
        subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path), name, first], cwd=tmp_path)
        for name, first in (("east", "0"), ("west", "30"))
    ]
    assert [run.wait() for run in runs] == [0, 0]
    assert sorted(mor.Table(tmp_path / "lake" / "stock").to_polars()["id"]) == list(range(90))


def test_a_load_that_failed_behind_its_commit_counts_once(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, upsert, done = counting(tmp_path), mor.Table.upsert, list[bool]()

    def failing(self: mor.Table, rows: Any, **given: Any) -> mor.Commit:
        commit = upsert(self, rows, **given)
        done.append(commit.repeated)
        if len(done) == 1:
            raise OSError("the worker died here")
        return commit

    monkeypatch.setattr(mor.Table, "upsert", failing)
    run([{"id": 1, "n": 5}])
    assert done == [False, True]
    assert table.to_polars().rows() == [(1, 5)]
    run([{"id": 1, "n": 2}])
    assert table.to_polars().rows() == [(1, 7)]


@pytest.mark.parametrize(
    ("hints", "words"),
    [
        ({"primary_key": None}, "set primary_key"),
        ({"write_disposition": "replace"}, "Table.truncate"),
        ({"columns": {"gone": {"hard_delete": True}}}, "Table.delete"),
    ],
)
def test_unsupported_hints_are_refused_without_rows(run: Any, tmp_path: Path, hints: Any, words: str) -> None:
    with pytest.raises(Exception, match=words):
        run([{"id": 1, "gone": False}], **hints)
    assert not (tmp_path / "lake").exists()

"""`crdt-mor properties`, and the order of rows on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor.cli.main import app


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [*args])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def uri(fast_path: Path) -> str:
    """A table clustered by `day`, made on the command line, with three rows in a base file."""
    pl.DataFrame({"id": ["a", "b", "c"], "day": [3, 1, 2]}).write_parquet(fast_path / "rows.parquet")
    table = str(fast_path / "t")
    rows = str(fast_path / "rows.parquet")
    made = run("create", table, "--like", rows, "--key", "id", "--buckets", "1", "--cluster-by", "day")
    assert made[0] == 0, made
    assert run("upsert", table, rows)[0] == 0
    assert run("compact", table)[0] == 0
    return table


def test_properties_are_printed_set_and_taken_away(uri: str) -> None:
    assert json.loads(run("properties", uri, "--output", "json")[1]) == {"properties": {"crdt_mor.cluster_by": "day"}}
    assert "crdt_mor.cluster_by=day" in " ".join(run("show", uri)[1].split())
    code, told, _ = run("properties", uri, "owner=ops=1", "note=", "--unset", "crdt_mor.cluster_by")
    assert code == 0
    assert told.split() == ["note", "owner", "ops=1"]
    assert dict(mor.Table(uri).properties) == {"note": "", "owner": "ops=1"}
    before = mor.Table(uri).version
    for args, message, exit_code in (
        (["owner"], "NAME=VALUE", 2),
        (["a=1", "--unset", "a"], "set or remove each property once", 2),
        (["crdt_mor.cluster_by=nope"], "does not exist", 1),
        (["retention=30d"], "did you mean crdt_mor.retention?", 1),
        (["merge=views=counter"], "merge is no property", 1),
    ):
        code, _, said = run("properties", uri, *args)
        assert (code, message in " ".join(said.replace("│", " ").split())) == (exit_code, True), said
    assert mor.Table(uri).version == before
    run("properties", uri, "--unset", "note", "--unset", "owner")
    assert run("properties", uri)[2].strip() == "no properties"


def test_base_files_in_another_order_are_rewritten(uri: str) -> None:
    def order() -> list[str]:
        newest = max(Path(uri).glob("*.parquet"), key=lambda path: path.name.rpartition("_")[2])
        return pl.read_parquet(newest)["id"].to_list()

    assert order() == ["b", "c", "a"]
    assert run("properties", uri, "--unset", "crdt_mor.cluster_by")[0] == 0
    assert run("compact", uri)[2].strip() == "nothing to compact"
    assert json.loads(run("compact", uri, "--rewrite", "order", "--plan-only", "--output", "json")[1])["plan"]
    assert run("compact", uri)[0] == 0
    assert order() == ["a", "b", "c"]
    assert run("compact", uri, "--rewrite", "order")[2].strip() == "nothing to compact"
    assert run("compact", uri, "--rewrite", "all")[0] == 2
    assert run("compact", uri, "--rewrite", "order", "--logs-only")[0] == 1
    code, _, said = run(
        "create", uri + "2", "--like", uri, "--key", "id", "--cluster-by", "id,x", "--cluster-order", "z-order"
    )
    assert code == 1
    assert "column='x'" in " ".join(said.split())

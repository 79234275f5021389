"""Completion of savepoints, columns and partitions, as bash, zsh and fish ask for it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor.cli.main import app

ROWS = pl.DataFrame({"id": [1, 2], "day": ["mon", "tue"], "views": [5, 10]})


@pytest.fixture
def uri(fast_path: Path) -> str:
    table = mor.Table.create(fast_path / "t", ROWS, key=["id", "day"], partition_by="day", buckets=1)
    table.upsert(ROWS)
    table.maintenance.savepoint("before-x")
    table.maintenance.savepoint("after-x")
    table.changes(reader="billing").done()
    return table.uri


def completions(*words: str) -> list[str]:
    """Return the words that bash offers in place of the last word."""
    asked = {
        "_CRDT_MOR_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("crdt-mor", *words)),
        "COMP_CWORD": str(len(words)),
    }
    return sorted(CliRunner().invoke(app, [], prog_name="crdt-mor", env=asked).stdout.split())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("drop-savepoint URI ", "after-x before-x"),
        ("drop-savepoint URI b", "before-x"),
        ("forget-reader URI ", "billing"),
        ("changes URI --reader b", "billing"),
        ("restore URI --to ", "after-x before-x"),
        ("cat URI --as-of a", "after-x"),
        ("history URI --since ", "after-x before-x"),
        ("diff URI b", "before-x"),
        ("cat URI --columns ", "day id views"),
        ("cat URI --columns id,v", "id,views"),
        ("upsert URI --nulls d", "day"),
        ("why URI key --column v", "views"),
        ("alter URI --drop i", "id"),
        ("files URI --partition ", "day=mon day=tue mon tue"),
        ("move URI --partition day", "day=mon day=tue"),
        ("delete-partitions URI t", "tue"),
        ("cat /no/table --columns ", ""),
        ("savepoint URI b", ""),
        ("cat URI --log-level d", "debug"),
    ],
)
def test_values_of_the_table_are_offered(uri: str, words: str, offered: str) -> None:
    assert completions(*words.replace("URI", uri).split(" ")) == offered.split()

"""A table is not made in the folder of another one, by whichever way: each of the two would be in the other's way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from crdt_mor import InvalidInputError, Table
from crdt_mor.cli.main import app

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
ROWS = pl.DataFrame({"id": [1], "n": [1]})


def create(to: Path, _: Table) -> object:
    return Table.create(to, SCHEMA, key="id")


def create_if_absent(to: Path, _: Table) -> object:
    return Table.create(to, SCHEMA, key="id", exist_ok=True)


def load(to: Path, _: Table) -> object:
    return Table.create_from(to, ROWS, key="id")


def copy(to: Path, beside: Table) -> object:
    return beside.copy(to)


def migrate(to: Path, beside: Table) -> object:
    return beside.maintenance.migrate(to, buckets=3)


@pytest.mark.parametrize("make", [create, create_if_absent, load, copy, migrate])
@pytest.mark.parametrize("inside", ["new", "p=1/new", ".hoodie/metadata"])
def test_no_table_is_made_in_the_folder_of_another_one(
    make: Callable[[Path, Table], object], inside: str, fast_path: Path
) -> None:
    outer = Table.create(fast_path / "outer", SCHEMA, key="id")
    beside = Table.create(fast_path / "beside", SCHEMA, key="id")
    with pytest.raises(InvalidInputError, match="cannot create a table in another table's folder") as refused:
        make(fast_path / "outer" / inside, beside)
    assert f"path={fast_path / 'outer' / inside} table={fast_path / 'outer'}" in str(refused.value)
    assert outer.verify().is_sound
    beside.upsert(ROWS)
    assert beside.count() == 1


def test_the_command_line_names_both(fast_path: Path) -> None:
    Table.create(fast_path / "outer", SCHEMA, key="id")
    inside = str(fast_path / "outer" / "new")
    (fast_path / "columns.json").write_text('{"id": "int64"}')
    said = CliRunner().invoke(app, ["create", inside, "--schema", str(fast_path / "columns.json"), "--key", "id"])
    assert said.exit_code == 1
    assert f"path={inside} table={fast_path / 'outer'}" in said.output.replace("\n", " ")


@pytest.mark.parametrize("make", [create, create_if_absent, load, copy])
def test_no_table_is_made_around_tables(make: Callable[[Path, Table], object], fast_path: Path) -> None:
    Table.create(fast_path / "lake/inner", SCHEMA, key="id")
    beside = Table.create(fast_path / "beside", SCHEMA, key="id")
    with pytest.raises(InvalidInputError, match="cannot create a table in a folder that contains tables") as refused:
        make(fast_path / "lake", beside)
    assert f"path={fast_path / 'lake'} table={fast_path / 'lake/inner'}" in str(refused.value)
    assert not (fast_path / "lake/.hoodie").exists()


def test_a_link_into_a_table_leads_into_it(fast_path: Path) -> None:
    Table.create(fast_path / "outer", SCHEMA, key="id")
    (fast_path / "outer" / "within").mkdir()
    (fast_path / "link").symlink_to(fast_path / "outer" / "within")
    with pytest.raises(InvalidInputError, match="cannot create a table in another table's folder"):
        create(fast_path / "link" / "new", Table(fast_path / "outer"))

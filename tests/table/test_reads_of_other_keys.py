"""One key that a payload cannot merge: a read that meets it names it, and a read of other keys never meets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from crdt_mor import Kind, Payload, Table
from crdt_mor.cli.main import app
from crdt_mor.errors import PayloadError
from crdt_mor.payloads import Counter, PartialUpdate
from crdt_mor.readers.polars import scan_table
from tests.simulated import Simulated

MOST = 2**63 - 1
SHAPES: dict[str, tuple[dict[str, pa.DataType], dict[str, Any]]] = {
    "a key of texts": ({"id": pa.string()}, {"key": "id"}),
    "a key of numbers": ({"id": pa.int32()}, {"key": "id"}),
    "a key of dates": ({"id": pa.date32()}, {"key": "id"}),
    "a key of two columns": ({"id": pa.string(), "part": pa.string()}, {"key": ["id", "part"]}),
    "partial updates": ({"id": pa.string()}, {"key": "id", "merge": PartialUpdate(columns={"n": Counter()})}),
}


@pytest.fixture(params=SHAPES)
def table(request: pytest.FixtureRequest, simulated: Simulated) -> Table:
    """A table whose key 1 has a total of 3, in a base file and a log, and whose key 2 cannot be merged."""
    columns, settings = SHAPES[request.param]
    schema = pa.schema([*columns.items(), ("n", pa.int64())])
    table = simulated.create(schema, **{"buckets": 1, "merge": {"n": Counter()}} | settings)
    put(table, 1, 1)
    put(table, 2, MOST)
    put(table, 3, 5)
    table.maintenance.compact()
    put(table, 1, 2)
    put(table, 2, 1)
    return table


def put(table: Table, number: int, by: int) -> None:
    row = {name: value(number, kind) for name, kind in zip(table.schema.names, table.schema.types, strict=True)}
    table.upsert(pa.Table.from_pylist([row | {"n": by}], schema=table.schema))


def value(number: int, kind: pa.DataType) -> Any:
    return str(number) if pa.types.is_string(kind) else pa.scalar(number, pa.int32()).cast(kind).as_py()


def conditions(table: Table, number: int) -> list[pl.Expr]:
    names = [name for name in table.schema.names if name != "n"]
    parts = [pl.col(name) == value(number, table.schema.field(name).type) for name in names]
    whole = parts[0] if len(parts) == 1 else parts[0] & parts[1]
    return [whole, whole & (pl.col("n") > 0)]


@pytest.mark.costly
def test_a_read_of_other_keys_goes_on(table: Table) -> None:
    for number, total in ((1, 3), (3, 5), (4, None)):
        for where in conditions(table, number):
            assert table.scan(filter=where).to_polars()["n"].to_list() == ([] if total is None else [total])
            assert table.scan(filter=where).count() == (total is not None)
            assert scan_table(table).filter(where).collect()["n"].to_list() == ([] if total is None else [total])


def test_a_read_that_meets_the_key_names_it(table: Table) -> None:
    for scan in ({}, {"filter": "n > 4"}, {"filter": conditions(table, 2)[0]}):
        with pytest.raises(PayloadError, match=r"too large.*columns=\['n'\] key="):
            table.scan(**scan).to_polars()
    assert table.scan(columns=["id"]).to_polars().height == 3


def test_ranges_of_keys_and_writes_by_filter_go_on(simulated: Simulated) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    table = simulated.create(schema, key="id", buckets=1, merge={"n": Counter()})
    for number, by in ((1, 1), (2, 2), (7, MOST), (7, 1)):
        put(table, number, by)
    assert sorted(table.scan(filter="id < 7").to_polars().rows()) == [(1, 1), (2, 2)]
    assert table.delete(where="id < 7 AND n > 1").deletes == 1
    assert table.scan(filter=pl.col("id").is_between(0, 5)).to_polars().rows() == [(1, 1)]


class Shy(Payload):
    """Adds numbers up, and cannot show one of the sums."""

    name: ClassVar[str] = "acme.shy/1"
    kind: ClassVar[Kind] = "delta"

    def join(self, a: int, b: int) -> int:
        return a + b

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.sum()

    def value(self, states: pl.Expr) -> pl.Expr:
        return states.map_batches(_not_13, pl.Int64(), is_elementwise=True)

    def examples(self) -> list[int]:
        return [1, 2]


def _not_13(values: pl.Series) -> pl.Series:
    if (values == 13).any():
        raise ValueError("no such number")
    return values


def test_a_state_that_cannot_be_shown_is_named_by_its_key(simulated: Simulated) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = simulated.create(schema, key="id", buckets=1, merge={"n": Shy()})
    for number in (6, 7):
        table.upsert(pa.table({"id": ["a", "b", "c"], "n": [1, number, 3]}))
    with pytest.raises(PayloadError, match=r"acme\.shy/1 failed: .*no such number.*columns=\['n'\] key='b'"):
        table.to_polars()
    assert table.scan(filter="id > 'b'").to_polars()["n"].to_list() == [6]


def test_the_command_line_shows_other_keys(fast_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = Table.create(fast_path / "t", schema, key="id", buckets=1, merge={"n": Counter()})
    for name, by in (("good", 1), ("poor", MOST), ("poor", 1)):
        table.upsert(pa.table({"id": [name], "n": [by]}))
    shown = CliRunner().invoke(app, ["cat", table.uri, "--where", "id = 'good'", "--format", "csv"])
    assert (shown.exit_code, shown.stdout.splitlines()) == (0, ['"id","n"', '"good",1'])
    refused = CliRunner().invoke(app, ["cat", table.uri])
    assert refused.exit_code == 1
    assert "key='poor'" in refused.stderr

"""A program as users write it, for type checkers: methods of a table return types other than `Any`.

`python -m tests.packages` checks it beside the installed wheel, with `pyarrow-stubs`, as pyarrow has no types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_type

import polars as pl
import pyarrow as pa

import crdt_mor as mor
from crdt_mor.payloads import Counter
from crdt_mor.results import Differences, Maintained, Verification


def written(table: mor.Table) -> None:
    rows = pl.DataFrame({"id": ["a"], "views": [1]})
    assert_type(table.upsert(rows), mor.Commit)
    assert_type(table.delete(keys=["a"]).rows, int)
    with table.transaction() as block:
        assert_type(block, mor.Transaction)
        block.upsert(rows)
    table.add_columns({"note": pa.string()}, default={"note": ""})


def read(table: mor.Table) -> None:
    scan = table.scan(filter="views > 1", columns=["id"])
    assert_type(scan, mor.Scan)
    for rows in (table.to_arrow(), scan.to_arrow(), table.why("a"), table.inspect.files()):
        assert_type(rows, pa.Table)
    assert_type(table.to_polars(), pl.DataFrame)
    assert_type(scan.to_reader(), pa.RecordBatchReader)
    assert_type(table.count(), int)
    assert_type(table.schema, pa.Schema)
    assert_type(table.rules.default, Mapping[str, object])
    assert_type(table.inspect.comments(), dict[str, str])


def looked_at(table: mor.Table) -> None:
    assert_type(table.history(10), pa.Table)
    assert_type(table.version, int)
    assert_type(table.changes(since=1), mor.Changes)
    assert_type(table.changes().to_arrow(), pa.Table)
    assert_type(table.diff(1, 2), mor.Changes)
    assert_type(table.diff(table), Differences)
    assert_type(table.diff(table.scan()), Differences)
    assert_type(table.verify(), Verification)
    assert_type(table.maintenance.maintain(), Maintained)


def main() -> None:
    table = mor.Table.create("events", {"id": pl.String, "views": pl.Int64}, key="id", merge={"views": Counter()})
    assert_type(table, mor.Table)
    for step in (written, read, looked_at):
        step(table)

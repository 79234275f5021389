"""What mypy says of programs that use a table: it takes all that holds rows, and refuses what holds none."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import datetime as dt
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds

import crdt_mor as mor
from crdt_mor.payloads import Counter

columns = pa.schema([("id", pa.string())])
table = mor.Table.create("t", columns, key="id")
other = mor.Table("t", opening=mor.Opening(writer_expiry=dt.timedelta(minutes=1)))
third = mor.Table(Path("t"))
data = pa.table({"id": ["a"]})
frame = pl.DataFrame({"id": ["a"]})
relation = duckdb.sql("select 'a' as id")
assert relation is not None

commits: list[mor.Commit] = [
    table.upsert(data),
    table.upsert(data.to_batches()[0]),
    table.upsert(data.to_reader()),
    table.upsert(ds.dataset("files")),
    table.upsert(frame),
    table.upsert(frame.lazy()),
    table.upsert(pd.DataFrame({"id": ["a"]})),
    table.upsert(relation),
    table.upsert(other),
    table.append(other.scan()),
    table.delete(other.changes()),
    table.delete(keys=["a"]),
]
with table.transaction() as tx:
    tx.upsert(frame)
    tx.delete(frame.lazy())
for schema in (columns, data, frame, frame.schema, frame.lazy(), {"id": pl.String}, {"id": pa.string()}, other):
    mor.Table.create("u", schema, key="id")
counted = {"n": Counter()}
by_name = {"n": "counter"}
mor.Table.create("v", columns, key="id", merge=counted)
mor.Table.create("v", columns, key="id", merge=by_name)
mor.Table.create("v", columns, key="id", merge=mor.PartialUpdate(columns=counted))
together = {("a", "b"): Counter()}
mor.Table.create("v", columns, key="id", merge=together)
mor.Table.create("v", columns, key="id", merge={"n": Counter(), ("a", "b"): "my_module:Rule"})
rows: pl.DataFrame = table.scan(columns=["id"], filter=pl.col("id") == "a").to_polars()
number: int = table.count()
anything: mor.Data = frame

table.upsert(5)  # refused
table.upsert(None)  # refused
table.upsert("rows.csv")  # refused
table.upsert([{"id": "a"}])  # refused
table.append({"id": ["a"]})  # refused
table.delete(5)  # refused
table.jobs.file_groups(5)  # refused
tx.upsert(5)  # refused
nothing: mor.Data = object()  # refused
mor.Table.create("t", 5, key="id")  # refused
mor.Table.create("t", [("id", pl.String)], key="id")  # refused
mor.Table(5)  # refused
mor.Table.create("v", columns, key="id", merge={"n": 5})  # refused
"""


@pytest.mark.slow
def test_mypy_takes_what_holds_rows_and_refuses_what_holds_none(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    options = ["--strict", "--ignore-missing-imports", "--no-error-summary"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, f"--cache-dir={tmp_path / 'cache'}", "--config-file=", str(program)],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    found = {int(line) for line in re.findall(r"program\.py:(\d+): error", done.stdout)}
    refused = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# refused")}
    assert found == refused, done.stdout + done.stderr

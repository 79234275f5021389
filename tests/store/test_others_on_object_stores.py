"""Tables in buckets with more than one process at them, and in the hands of other readers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.readers.polars import scan_table
from tests import servers
from tests.store.helpers import COLUMNS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

RACER = """
import json, sys
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.store.addresses import place_of
from crdt_mor.store.objects import open_at
uri, name, options = sys.argv[1], sys.argv[2], json.load(sys.stdin)
store = open_at(place_of(uri), options, SystemEnvironment())
store.touch("ready/" + name)
while store.read("go") is None:
    pass
print(json.dumps([n for n in range(40) if store.put(f"slots/{n}", name.encode())]))
"""

WRITER = """
import json, sys
import polars as pl
from crdt_mor import Table
from crdt_mor.readers.polars import scan_table
uri, name, options = sys.argv[1], sys.argv[2], json.load(sys.stdin)
table = Table(uri, storage_options=options)
for n in range(5):
    table.upsert(pl.DataFrame({"id": [f"{name}-{n}", "all"], "n": [1, 1]}))
"""


def started(program: str, uri: str, name: str, server: servers.Server) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", program, uri, name], cwd=ROOT, env=os.environ, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps(dict(server.options)))
    process.stdin.close()
    process.stdin = None
    return process


def test_of_many_processes_that_put_one_name_one_wins(server: servers.Server) -> None:
    uri = server.address()
    store = server.store(uri)
    processes = {f"p{n}": started(RACER, uri, f"p{n}", server) for n in range(4)}
    while len(store.list("ready")) < len(processes):
        assert not [p for p in processes.values() if p.poll() not in (None, 0)]
    store.put("go", b"")
    won = {name: json.loads(process.communicate()[0]) for name, process in processes.items()}
    assert sorted(n for slots in won.values() for n in slots) == list(range(40))
    for name, slots in won.items():
        assert all(store.read(f"slots/{n}") == name.encode() for n in slots)


def test_processes_that_write_at_once_lose_nothing(server: servers.Server) -> None:
    from crdt_mor.payloads import Counter

    uri = server.address()
    Table.create(uri, COLUMNS, key="id", merge={"n": Counter()}, storage_options=server.options)
    processes = [started(WRITER, uri, f"w{n}", server) for n in range(3)]
    assert [process.communicate()[0] for process in processes] == ["", "", ""]
    assert [process.returncode for process in processes] == [0, 0, 0]
    table = Table(uri, storage_options=server.options)
    table.maintenance.compact()
    found = dict(table.to_polars().rows())
    assert found.pop("all") == 15
    assert len(found) == 15
    assert set(found.values()) == {1}


# --- other readers ----------------------------------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "in partitions": {"partition_by": "day"},
    "with an ordering column": {"ordering": "n"},
    "in one file group": {"buckets": 1},
}
DAYS = {"id": pl.String, "day": pl.String, "n": pl.Int64}


def of_days(*rows: tuple[str, str, int]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), DAYS, orient="row")


def seen_by_hudi(table: Table, server: servers.Server) -> list[tuple[object, ...]]:
    """The rows as hudi-rs finds them at the table's address, with the same options."""
    hudi = pytest.importorskip("hudi")
    built = hudi.HudiTableBuilder.from_base_uri(table.uri).with_options(dict(server.options)).build()
    batches = [pa.record_batch(batch) for batch in built.read(hudi.HudiReadOptions())]
    return sorted(tuple(row[name] for name in DAYS) for batch in batches for row in batch.to_pylist())


def seen_by_polars(table: Table, server: servers.Server) -> list[tuple[object, ...]]:
    """The rows as polars finds them in the base files; after a compaction only deletes are elsewhere."""
    bases = [f"{table.uri}/{path}" for path in table.inspect.files()["path"].to_pylist() if path.endswith(".parquet")]
    frame = pl.scan_parquet(bases, storage_options=dict(server.options)).select(*DAYS)
    return sorted(frame.collect().rows())


@pytest.mark.parametrize("kind", KINDS)
def test_other_readers_read_our_tables(server: servers.Server, kind: str) -> None:
    """As logs alone, compacted, with logs and deletes on top of base files, and compacted again with deletes."""
    table = Table.create(server.address("a table"), DAYS, key="id", storage_options=server.options, **KINDS[kind])
    table.upsert(of_days(("a", "mon", 1), ("b", "mon", 2), ("c", "tue", 3)))
    table.upsert(of_days(("b", "mon", 5), ("d", "wed", 4)))
    first = [("a", "mon", 1), ("b", "mon", 5), ("c", "tue", 3), ("d", "wed", 4)]
    assert seen_by_hudi(table, server) == first
    table.maintenance.compact()
    assert seen_by_hudi(table, server) == first == seen_by_polars(table, server)

    gone = pl.DataFrame({"id": ["a", "d"], "day": ["mon", "wed"], "n": [9, 9]})
    table.delete(gone)
    table.upsert(of_days(("c", "tue", 7), ("e", "thu", 6)))
    then = [("b", "mon", 5), ("c", "tue", 7), ("e", "thu", 6)]
    assert seen_by_hudi(table, server) == then == sorted(table.to_polars().select(*DAYS).rows())
    table.maintenance.compact()
    table.maintenance.clean(timedelta(0), readers=timedelta(0))
    assert seen_by_hudi(table, server) == then == seen_by_polars(table, server)


def test_our_reader_for_polars_reads_tables_at_an_address(server: servers.Server) -> None:
    table = Table.create(server.address(), DAYS, key="id", partition_by="day", storage_options=server.options)
    table.upsert(of_days(("a", "mon", 1), ("b", "mon", 2), ("c", "tue", 3)))
    table.maintenance.compact()
    table.upsert(of_days(("b", "mon", 5)))
    lazy = scan_table(table.uri, storage_options=server.options)
    found = lazy.filter(pl.col("day") == "mon").select("id", "n").sort("id").collect()
    assert found.rows() == [("a", 1), ("b", 5)]

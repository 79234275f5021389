"""Tables in buckets with more than one process at them, and in the hands of other readers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Table
from tests import servers
from tests.store.helpers import COLUMNS

pytestmark = pytest.mark.slow

ROWS = [{"id": "a", "n": 1}, {"id": "b", "n": 3}]
ROOT = Path(__file__).parents[2]

RACER = """
import json, sys
from crdt_mor.clock import SystemEnvironment
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
uri, name, options = sys.argv[1], sys.argv[2], json.load(sys.stdin)
table = Table.open(uri, storage_options=options)
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
    table = Table.open(uri, storage_options=server.options)
    table.maintenance.compact()
    found = dict(table.to_polars().rows())
    assert found.pop("all") == 15
    assert len(found) == 15
    assert set(found.values()) == {1}


def test_other_readers_read_our_tables_in_s3() -> None:
    hudi = pytest.importorskip("hudi")
    server = servers.s3()
    uri = server.address()
    table = Table.create(uri, COLUMNS, key="id", storage_options=server.options)
    table.upsert(pl.DataFrame({"id": ["a", "b"], "n": [1, 2]}))
    table.upsert(pl.DataFrame({"id": ["b"], "n": [3]}))

    def seen_by_hudi() -> list[dict[str, object]]:
        built = hudi.HudiTableBuilder.from_base_uri(uri).with_options(dict(server.options)).build()
        rows = pa.Table.from_batches(built.read(hudi.HudiReadOptions())).select(["id", "n"])
        return sorted(rows.to_pylist(), key=lambda row: str(row["id"]))

    assert seen_by_hudi() == ROWS
    table.maintenance.compact()
    assert seen_by_hudi() == ROWS
    bases = [f"{uri}/{path}" for path in table.inspect.files()["path"].to_pylist() if path.endswith(".parquet")]
    frame = pl.scan_parquet(bases, storage_options=dict(server.options))
    assert frame.select("id", "n").sort("id").collect().to_dicts() == ROWS

"""A process that follows a table under a name is killed (kill -9) again and again: it sees every change at least once.

Beside it the table is written, compacted and cleaned of all history that nothing keeps.
"""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

import polars as pl
import pytest

import crdt_mor as mor
from tests.waiting import wait_for

FOLLOWER = """
import os, sys
from datetime import timedelta
import crdt_mor as mor
from crdt_mor.readers.follow import follow

out = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for window in follow(mor.Table(sys.argv[1]), every=timedelta(milliseconds=1), reader="billing"):
    for key in window.to_polars()["id"]:
        os.write(out, f"{key}\\n".encode())
"""


def received(out: Path) -> list[str]:
    return out.read_text().splitlines() if out.exists() else []


def has_more(out: Path, count: int) -> bool:
    return len(received(out)) > count


@pytest.mark.slow
def test_a_killed_follower_sees_every_change_and_the_table_is_cleaned_beside_it(fast_path: Path) -> None:
    table = mor.Table.create(fast_path / "events", {"id": pl.String}, key="id", buckets=1)
    out, chance = fast_path / "out", random.Random(7)
    written = 0

    def write() -> None:
        nonlocal written
        table.append(pl.DataFrame({"id": [f"k{written}"]}))
        written += 1

    write()
    for _ in range(8):
        follower = subprocess.Popen([sys.executable, "-c", FOLLOWER, table.uri, str(out)])
        try:
            wait_for("change", partial(has_more, out, len(received(out))))
            for _ in range(chance.randrange(1, 8)):
                write()
                if chance.random() < 0.5:
                    table.maintenance.compact()
                    table.maintenance.clean(timedelta(0))  # readers of a moment ago keep their files
            assert follower.poll() is None, "it lost its place"
        finally:
            follower.kill()
            follower.wait()
        write()
        table.maintenance.compact()
        table.maintenance.clean(timedelta(0))
    last = table.changes(reader="billing")
    keys = {*received(out), *last.to_polars()["id"]}
    last.done()
    assert keys == {f"k{n}" for n in range(written)}
    assert table.inspect.readers()["commits"].to_pylist() == [0]

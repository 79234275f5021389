"""Count the functions that a small write enters: how much of the engine a reader follows through one call.

A function counts once however often it is called, by its file, name and first line. Code outside crdt_mor/,
comprehensions, generator expressions, lambdas and constructors do not count. `sys.setprofile` counts, in all threads.
The table is on the local disk, with 8 buckets and an integer key, and has had 20 upserts and one write of each kind.

    python benches/functions.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import polars as pl
import pyarrow as pa

import crdt_mor as mor
from crdt_mor.events.session import Session

ROOT = str(Path(mor.__file__).parent)
UNNAMED = {"<genexpr>", "<lambda>", "<listcomp>", "<dictcomp>", "<setcomp>", "<module>", "__init__"}


def functions_entered(call: Callable[[], object]) -> int:
    entered: set[tuple[str, str, int]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and code.co_name not in UNNAMED:
            entered.add((code.co_filename, code.co_name, code.co_firstlineno))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return len(entered)


def counts(folder: str) -> dict[str, int]:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("day", pa.string())])
    table = mor.Table.create(folder, schema, key="id", buckets=8)
    table.set_properties({"crdt_mor.maintain": "off"})
    session: Session = table._session  # noqa: SLF001  the crowd is made, not waited for
    rows = pl.DataFrame({"id": range(5), "n": range(5), "day": ["mon"] * 5})

    def upsert() -> None:
        table.upsert(rows)

    def post() -> None:
        session.pace.crowd.is_crowded = True  # as after a lost race
        table.upsert(rows)
        session.pace.crowd.is_crowded = False

    def update() -> None:
        table.update({"n": "n + 1"}, where="id = 2")

    writes = {"upsert of 5 rows, alone": upsert, "the same, posted": post, "update of one row": update}
    for _ in range(20):
        upsert()
    for warm in writes.values():
        warm()
    return {name: functions_entered(write) for name, write in writes.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="the same: it takes a second")
    parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, count in counts(f"{folder}/table").items():
            print(f"{name:26} {count:4}")


if __name__ == "__main__":
    main()

"""A catalog's entry follows a table: it moves after commits, refuses stale ones, and survives processes that race.

    python -m tests.engines.registering CATALOG FOLDER     # all checks, a line of JSON for each

Every check is a function of a catalog's server and of an address that no other table has.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from crdt_mor import Table
from crdt_mor.mirror.catalog_steps import requirements, updates
from tests.engines.catalogs import catalog, options, place
from tests.engines.judging import difference, verdict_of
from tests.engines.reading import tell
from tests.engines.shapes import frame

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])
PROCESSES, TURNS = 3, 4

Check = Callable[[str, str], str]


def rows(ids: range, n: int) -> pa.Table:
    return frame(SCHEMA, ids, lambda i: (f"p{i % 2}", n))


def small(uri: str, server: str = "") -> Table:
    """A table with base files and unmerged logs."""
    given = options(server)
    table = Table.create(uri, SCHEMA, key=["id", "part"], partition_by="part", buckets=1, storage_options=given)
    table.upsert(rows(range(40), 0))
    table.maintenance.compact()
    table.upsert(rows(range(30, 50), 1))
    table.delete(rows(range(4), 0).select(["id", "part"]))
    return table


def by_name(server: str, name: str, table: Table) -> str:
    """The difference between the rows of an entry and of the scan."""
    return difference(catalog(server).load_table(name).scan().to_arrow(), table.scan().to_arrow())


def moves(server: str, uri: str) -> str:
    """The entry shows each commit after the next registration, by metadata files of the catalog's own."""
    table = small(uri, server)
    table.maintenance.register(catalog(server), "checks.moves")
    for turn in range(3):
        table.upsert(rows(range(10 * turn, 10 * turn + 5), 7))
        table.mirror("iceberg")  # the entry lags by several snapshots
        table.delete(rows(range(20 + turn, 22 + turn), 0).select(["id", "part"]))
        done = table.maintenance.register(catalog(server), "checks.moves")
        wrong = by_name(server, "checks.moves", table)
        if wrong or (done.action, done.version) != ("moved", table.version):
            return f"{done}: {wrong}"
    return ""


def follows_to_vectors(server: str, uri: str) -> str:
    """An entry of version 2 follows its mirror to version 3, also after another engine's snapshot took row ids."""
    from pyiceberg.table import update

    table, name = small(uri, server), "checks.vectors"
    table.maintenance.register(catalog(server), name)
    table.upsert(rows(range(5), 3))
    table.mirror("iceberg")
    table.upsert(rows(range(5), 4))
    table.mirror("iceberg", deletes="vectors")
    for turn in range(3):
        done = table.maintenance.register(catalog(server), name)
        entry = catalog(server).load_table(name)
        if entry.metadata.format_version != 3 or (wrong := by_name(server, name, table)):
            return f"{done}: version {entry.metadata.format_version} {wrong}"
        last, next_row = entry.current_snapshot(), entry.metadata.next_row_id
        foreign = last.model_copy(
            update={
                "snapshot_id": turn + 1, "parent_snapshot_id": last.snapshot_id, "first_row_id": next_row,
                "sequence_number": last.sequence_number + 1, "timestamp_ms": last.timestamp_ms + 1, "added_rows": 900,
            }
        )  # fmt: skip
        catalog(server).commit_table(entry, (), (update.AddSnapshotUpdate(snapshot=foreign),))
        table.upsert(rows(range(7), 7 + turn))
    return ""


def refuses_stale(server: str, uri: str) -> str:
    """A commit from an entry that another process has moved is refused."""
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table import StaticTable

    table = small(uri, server)
    table.maintenance.register(catalog(server), "checks.stale")
    stale = catalog(server).load_table("checks.stale")
    for n in (7, 8):
        table.upsert(rows(range(5, 15), n))
        table.maintenance.register(catalog(server), "checks.stale")
    newest = StaticTable.from_metadata(table.mirror("iceberg").uri, stale.io.properties).metadata
    changes = updates(stale.metadata, newest)
    try:
        catalog(server).commit_table(stale, requirements(stale.metadata, changes), changes)
    except CommitFailedException:
        return by_name(server, "checks.stale", table)
    return "a stale commit was taken"


def races(server: str, uri: str) -> str:
    """Three processes that write and register leave one line of snapshots."""
    table = small(uri, server)
    table.maintenance.register(catalog(server), "checks.races")
    command = [sys.executable, "-m", "tests.engines.registering", "--race", server, uri]
    running = [
        subprocess.Popen([*command, str(number)], stderr=subprocess.PIPE, text=True) for number in range(PROCESSES)
    ]
    said = [one.communicate()[1] for one in running]
    if any(one.returncode for one in running):
        return " ".join(said)[-1000:]
    table.maintenance.register(catalog(server), "checks.races")
    forks = "" if server == "nessie" else one_line(catalog(server).load_table("checks.races"))
    return forks or by_name(server, "checks.races", table)


def one_line(entry: Any) -> str:
    """How the snapshots of an entry fork, or show an older version after a later one."""
    snapshots = sorted(entry.metadata.snapshots, key=lambda one: one.sequence_number)
    shown = [int(one.summary.additional_properties["crdt_mor.version"]) for one in snapshots]
    parents = [one.parent_snapshot_id for one in snapshots[1:]]
    if parents != [one.snapshot_id for one in snapshots[:-1]] or shown != sorted(shown) or len(snapshots) < PROCESSES:
        return f"versions {shown}, parents {parents} of {[one.snapshot_id for one in snapshots]}"
    return ""


def spares_partitions(server: str, uri: str) -> str:
    """Trino's `remove_orphan_files` lists `data` in the folder of an entry, so no partition may have this path."""
    given = options(server)
    table = Table.create(uri, SCHEMA, key=["id", "part"], partition_by="part", hive_style=False, storage_options=given)
    table.maintenance.register(catalog(server), "checks.folder")
    location: str = catalog(server).load_table("checks.folder").location()
    return "" if location.endswith("/table/metadata/entry") else f"location {location}"


def race(server: str, uri: str, number: str) -> None:
    table, start = Table(uri, storage_options=options(server)), 100 * (int(number) + 1)
    for turn in range(TURNS):
        table.upsert(rows(range(start, start + 10), turn))
        table.maintenance.register(catalog(server), "checks.races")


CHECKS: tuple[Check, ...] = (moves, follows_to_vectors, refuses_stale, races, spares_partitions)


def main(server: str, folder: str) -> None:
    tell(version=version("pyiceberg"))
    for check in CHECKS:
        uri = place(server, Path(folder).absolute() / "registering" / server, check.__name__)
        verdict, text = verdict_of(partial(check, server, uri))
        tell(mirror="checks", shape=check.__name__, filtered=False, verdict=verdict, text=text)


if __name__ == "__main__":
    if sys.argv[1] == "--race":
        race(*sys.argv[2:])
    else:
        main(*sys.argv[1:])

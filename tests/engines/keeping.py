"""Engines drop, purge, vacuum and write mirrored tables. Each table keeps its files and rows, and its mirror returns.

    python -m tests.engines.keeping ENGINE FOLDER     # all statements of an engine, a line of JSON for each

A statement that an engine refuses is `refused`, and `known.py` has the engine's words.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from crdt_mor import Table
from tests.engines.catalogs import attached, catalog
from tests.engines.engine import Mirrored
from tests.engines.judging import difference
from tests.engines.light import delta_rs, pyiceberg
from tests.engines.reading import tell
from tests.engines.registering import rows, small


@dataclass(frozen=True)
class Target:
    """A mirrored table: its folder, and its name in the catalog."""

    root: Path
    name: str


@dataclass(frozen=True)
class Keeper:
    """An engine with its statements by name, all on mirrors of one format.

    Attributes:
        server: The catalog that knows the tables; "" for an engine that opens folders.
        replaced: Statements that write or spoil a version of the mirror itself, which the next refresh replaces.
    """

    name: str
    mirror: Literal["delta", "iceberg"]
    package: str
    statements: Mapping[str, Callable[[Target], object]]
    server: str = ""
    replaced: frozenset[str] = frozenset()


PURGED = frozenset({"purge"})
"""A catalog that purges an entry deletes the manifests of the mirror."""


def files(root: Path) -> set[Path]:
    """The table's files but those that engines follow: base files, logs, the timeline, and a mirror's rows."""
    mirrors = (root / "metadata", root / "_delta_log")
    return {path for path in root.rglob("*") if path.is_file() and not set(path.parents) & set(mirrors)}


def shown(keeper: Keeper, target: Target) -> Any:
    """The mirror's rows as its readers see them."""
    if keeper.server:
        return catalog(keeper.server).load_table(target.name).scan().to_arrow()
    read = pyiceberg if keeper.mirror == "iceberg" else delta_rs
    return read(Mirrored("", target.root, ""), None)


def refreshed(keeper: Keeper, table: Table, target: Target) -> int | None:
    """Refresh the mirror and its entry; the version of another engine that this replaced."""
    replaced = table.mirror(keeper.mirror).replaced
    if keeper.server:
        table.maintenance.register(catalog(keeper.server), target.name)
    return replaced


def mirrored_often(keeper: Keeper, target: Target) -> Table:
    """A table with several versions of its mirror, which has base files that the newest one does not show."""
    table = small(str(target.root))
    refreshed(keeper, table, target)
    table.maintenance.compact()
    refreshed(keeper, table, target)
    table.upsert(rows(range(20, 25), 2))
    refreshed(keeper, table, target)
    return table


def fault(keeper: Keeper, statement: str, target: Target, before: set[Path], want: Any) -> str:
    """What the statement did to the table that it must not, or ""."""
    gone = sorted(before - files(target.root))
    if gone:
        return f"{len(gone)} of {len(before)} files deleted, such as {gone[0].relative_to(target.root)}"
    table = Table(str(target.root))
    wrong = difference(table.scan().to_arrow(), want)
    if wrong:
        return f"the scan differs: {wrong}"
    replaced = refreshed(keeper, table, target)
    if (replaced is not None) != (statement in keeper.replaced):
        return f"replaced={replaced}"
    return difference(shown(keeper, target), want)


def judged(keeper: Keeper, statement: str, target: Target) -> tuple[str, str]:
    """The verdict on one statement: equal, refused or wrong; and its text."""
    table = mirrored_often(keeper, target)
    before, want = files(target.root), table.scan().to_arrow()
    verdict, text = "equal", ""
    try:
        keeper.statements[statement](target)
    except Exception as refusal:  # noqa: BLE001 - every engine has its own
        verdict, text = "refused", f"{type(refusal).__name__}: {' '.join(str(refusal).split())}"
    wrong = fault(keeper, statement, target, before, want)
    return ("wrong", f"{wrong} ({verdict} {text})") if wrong else (verdict, text)


def by_pyiceberg(server: str, name: str) -> Keeper:
    statements = {
        "drop": lambda target: catalog(server).drop_table(target.name),
        "purge": lambda target: catalog(server).purge_table(target.name),
        "delete": lambda target: catalog(server).load_table(target.name).delete("id < 20"),
        "expire": lambda target: catalog(server).load_table(target.name).maintenance.expire_snapshots().commit(),
    }
    return Keeper(name, "iceberg", "pyiceberg", statements, server, PURGED)


def duckdb(statement: str) -> Callable[[Target], object]:
    return lambda target: attached().sql(statement.format(f"rest.{target.name}"))


def delta_table(target: Target) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(str(target.root))


def delta(method: str, *arguments: Any, **options: Any) -> Callable[[Target], object]:
    return lambda target: getattr(delta_table(target), method)(*arguments, **options)


KEEPERS = (
    by_pyiceberg("rest", "pyiceberg-rest-keeps"),
    Keeper(
        "duckdb-keeps",
        "iceberg",
        "duckdb",
        {
            "drop": duckdb("drop table {}"),
            "delete": duckdb("delete from {} where id < 20"),
            "insert": duckdb("insert into {} values (1000, 'p0', 1)"),
            "update": duckdb("update {} set n = 5 where id < 20"),
        },
        "rest",
    ),
    Keeper(
        "delta-rs-keeps",
        "delta",
        "deltalake",
        {
            "vacuum": delta("vacuum", 0, dry_run=False, enforce_retention_duration=False),
            "full vacuum": delta("vacuum", 0, dry_run=False, enforce_retention_duration=False, full=True),
            "delete": delta("delete", "id < 20"),
            "optimize": lambda target: delta_table(target).optimize.compact(),
            "restore": delta("restore", 0),
        },
    ),
)


def main(name: str, folder: str) -> None:
    (keeper,) = (each for each in KEEPERS if each.name == name)
    tell(version=version(keeper.package))
    for number, statement in enumerate(keeper.statements):
        root = Path(folder).absolute() / "keeping" / name / statement.replace(" ", "-") / "table"
        verdict, text = judged(keeper, statement, Target(root, f"kept.{name.replace('-', '_')}{number}"))
        tell(mirror=keeper.mirror, shape=statement, filtered=False, verdict=verdict, text=text)


if __name__ == "__main__":
    main(*sys.argv[1:])

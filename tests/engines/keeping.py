"""Engines drop, purge, vacuum and write mirrored tables. Each table keeps its files and rows, and its mirror returns.

    python -m tests.engines.keeping ENGINE FOLDER     # all statements of an engine, a line of JSON for each

A statement that an engine refuses is `refused`, and `known.py` has the engine's words. `keepers.py` has the statements.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from crdt_mor import Table
from tests.engines.catalogs import catalog, options, place
from tests.engines.engine import Mirrored
from tests.engines.judging import difference
from tests.engines.keepers import KEEPERS, Keeper, Target
from tests.engines.light import delta_rs, pyiceberg
from tests.engines.reading import tell
from tests.engines.registering import rows, small


def files(table: Table) -> set[str]:
    """Files of the table that no engine may delete: base files, logs, the timeline, and a mirror's rows."""
    mirrors = ("metadata/", "_delta_log/")
    return {stat.path for stat in table._session.store.walk("") if not stat.path.startswith(mirrors)}


def shown(keeper: Keeper, target: Target) -> Any:
    """The mirror's rows as its readers see them."""
    if keeper.server:
        return catalog(keeper.server).load_table(target.name).scan().to_arrow()
    read = pyiceberg if keeper.mirror == "iceberg" else delta_rs
    return read(Mirrored("", Path(target.uri), ""), None)


def refreshed(keeper: Keeper, table: Table, target: Target) -> int | None:
    """Refresh the mirror and its entry; the version or snapshot of another engine that this replaced."""
    replaced = table.mirror(keeper.mirror).replaced
    if not keeper.server:
        return replaced
    done = table.maintenance.register(catalog(keeper.server), target.name)
    return done.replaced if replaced is None else replaced


def mirrored_often(keeper: Keeper, target: Target) -> Table:
    """A table with several versions of its mirror, which has base files that the newest does not show."""
    table = small(target.uri, keeper.server)
    refreshed(keeper, table, target)
    table.maintenance.compact()
    refreshed(keeper, table, target)
    table.upsert(rows(range(20, 25), 2))
    refreshed(keeper, table, target)
    return table


def fault(keeper: Keeper, statement: str, target: Target, before: set[str], want: Any) -> str:
    """The forbidden change of the table by a statement, or ""."""
    table = Table(target.uri, storage_options=options(keeper.server))
    gone = sorted(before - files(table))
    if gone:
        return f"{len(gone)} of {len(before)} files deleted, such as {gone[0]}"
    wrong = difference(table.scan().to_arrow(), want)
    if wrong:
        return f"the scan differs: {wrong}"
    if statement in keeper.anew:
        catalog(keeper.server).drop_table(target.name)
    replaced = refreshed(keeper, table, target)
    if (replaced is not None) != (statement in keeper.replaced):
        return f"replaced={replaced}"
    return difference(shown(keeper, target), want)


def judged(keeper: Keeper, statement: str, target: Target) -> tuple[str, str]:
    """The verdict on a statement: equal, refused or wrong; and its text."""
    table = mirrored_often(keeper, target)
    before, want = files(table), table.scan().to_arrow()
    verdict, text = "equal", ""
    try:
        keeper.statements[statement](target)
    except Exception as refusal:  # noqa: BLE001 - engines raise their own
        verdict, text = "refused", f"{type(refusal).__name__}: {' '.join(str(refusal).split())}"
    wrong = fault(keeper, statement, target, before, want)
    return ("wrong", f"{wrong} ({verdict} {text})") if wrong else (verdict, text)


def main(name: str, folder: str) -> None:
    (keeper,) = (each for each in KEEPERS if each.name == name)
    tell(version=version(keeper.package))
    for number, statement in enumerate(keeper.statements):
        uri = place(keeper.server, Path(folder).absolute() / "keeping", f"{name}/{number}")
        verdict, text = judged(keeper, statement, Target(uri, f"kept.{name.replace('-', '_')}{number}"))
        tell(mirror=keeper.mirror, shape=statement, filtered=False, verdict=verdict, text=text)
    os._exit(0)  # the threads of some engines do not end


if __name__ == "__main__":
    main(*sys.argv[1:])

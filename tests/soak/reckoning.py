"""What a soak is held to when all its processes are dead, and what it says in the end."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from crdt_mor import Table
from crdt_mor.events import sweep
from crdt_mor.store.local import TEMP_PREFIX, LocalStore
from crdt_mor.store.paths import TEMP_FOLDER
from tests.crash.account import REST, ROWS, account
from tests.crash.overwrites import at_rest
from tests.crash.scene import check_moments
from tests.inside import session_of
from tests.interop.readers import hudi_rs, ours
from tests.soak import figures, journal, meaning
from tests.soak.actors import commit, rows_of
from tests.soak.crowd import EVERYBODY, SPARED, WRITING, Crowd

BESIDE_ROWS: Final = 2.0
"""Bytes that nothing needs and bytes of rows, over those of rows, at most, when the table is at rest."""


def reckon(crowd: Crowd) -> str:
    """Check everything once more, and give the table of figures; what is wrong is in `crowd.wrong` then."""
    crowd.wrong += list(_grown(crowd))
    told = []
    try:
        told = [_commits(crowd), *_at_rest(crowd)]
    except AssertionError as error:
        crowd.wrong.append(str(error))
    return "\n".join([_processes(crowd), _folder(crowd), *told])


def _grown(crowd: Crowd) -> Iterator[str]:
    for name, series in (*crowd.memory.items(), ("the folder", crowd.size)):
        if series.grew(crowd.seconds):
            second, last = (series.quarter(number, crowd.seconds) for number in (2, 4))
            yield f"{name} grew from {second:,.0f} to {last:,.0f} bytes"


def _commits(crowd: Crowd) -> str:
    """Every commit that somebody was told of is there once; what was under way is made now, or found."""
    session = session_of(crowd.table)
    session.run(sweep.upkeep(session.publisher, session.tail(), expiry_ms=0))
    numbers, acknowledged = dict[str, int](), list[list[str]]()
    before = rows_of(crowd.table.scan())
    for name in WRITING:
        lines = [words for words in journal.read(crowd.folder, name) if words[0] == "ack"]
        assert [int(words[1]) for words in lines] == list(range(1, len(lines) + 1)), f"{name} left a number out"
        acknowledged += lines
        numbers[name] = len(lines)
    wrong = meaning.wrong_in(before, numbers)
    assert not wrong, "\n".join(wrong)
    check_moments(acknowledged)
    for name in WRITING:
        numbers[name] += 1
        commit(crowd.table, name, numbers[name])
    require_exactly(crowd.table, numbers)
    repeated = sum(words[4] == "True" for words in acknowledged)
    return (
        f"{len(acknowledged):,} commits were acknowledged, {repeated} of them when they were tried again: "
        "each is there once."
    )


def require_exactly(table: Table, numbers: meaning.Numbers) -> None:
    """The table has these commits, and nothing else."""
    found, expected = rows_of(table.scan()), meaning.rows_after(numbers)
    assert found == expected, f"{sorted(set(found.items()) ^ set(expected.items()), key=repr)}"


def _at_rest(crowd: Crowd) -> Iterator[str]:
    """When somebody has tidied up, nothing lies about that nothing names, and all rows can be read, by Hudi as well."""
    table, rows = crowd.table, rows_of(crowd.table.scan())
    if "://" in crowd.uri:
        table.maintenance.compact()
        table.maintenance.clean(timedelta(0), readers=timedelta(0))
    else:
        _sweep_temporary_files(Path(crowd.uri))
        at_rest(Path(crowd.uri), table)
        found = account(table, Path(crowd.uri))
        assert found.bytes[REST] <= (BESIDE_ROWS - 1) * found.bytes[ROWS], f"{found}; {found.strangers}"
        assert hudi_rs(crowd.uri) == ours(table), "hudi-rs reads other rows"
        yield f"When all was tidied up: {found}."
    assert rows_of(table.scan()) == rows, "upkeep has changed the rows"
    verified = table.verify()
    assert verified.is_sound, f"{verified.findings}"
    yield f"verify: {verified.rows} rows in {verified.file_groups} file groups, nothing is wrong."


def _sweep_temporary_files(path: Path) -> None:
    """What puts of the dead were writing goes when it is a day old, which is now."""
    for file in (path / TEMP_FOLDER).glob(f"{TEMP_PREFIX}*"):
        os.utime(file, (0, 0))
    LocalStore(path).sweep_temp()


def _processes(crowd: Crowd) -> str:
    head = ("processes", "number", "works", "again", "kills", "stops", "memory: 2nd quarter, MiB", "last quarter, MiB")
    rows: list[tuple[object, ...]] = [head]
    for spared in SPARED:
        kind = spared.rstrip("0123456789")
        names = [name for name in EVERYBODY if name.rstrip("0123456789") == kind]
        said = Counter(words[0] for name in names for words in journal.read(crowd.folder, name))
        series = crowd.memory.get(spared, figures.memory())
        quarters = [f"{series.quarter(number, crowd.seconds) / figures.MIB:.1f}" for number in (2, 4)]
        kills, stops = (sum(counts[name] for name in names) for counts in (crowd.kills, crowd.stops))
        rows.append((kind, len(names), said["ack"] + said["did"], said["again"], kills, stops, *quarters))
    return figures.shown(rows)


def _folder(crowd: Crowd) -> str:
    second, last = (crowd.size.quarter(number, crowd.seconds) / figures.MIB for number in (2, 4))
    most = max((size for _, size in crowd.size.samples), default=0) / figures.MIB
    return (
        f"{crowd.seconds:.0f} s. The folder: {second:.1f} MiB in the 2nd quarter, {last:.1f} MiB in the last, "
        f"{most:.1f} MiB at most."
    )

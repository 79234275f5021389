"""Writers refresh mirrors after their commits if the table asks. A failure leaves the commit and becomes a warning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import crdt_mor as mor
from crdt_mor import Opening, Table
from crdt_mor.errors import UpkeepWarning
from crdt_mor.testing.faults import ProcessDied
from tests.inside import session_of
from tests.mirror.delta_reading import by_delta_rs, state_of
from tests.mirror.iceberg_reading import by_pyiceberg, metadata_of
from tests.mirror.shapes import SCHEMA, rows, scanned, written_over
from tests.stores import Dying, ScriptedStore, refusing

AT_COMMITS = {"crdt_mor.mirror.when": "commit"}


def made(folder: Path, formats: str = "delta") -> Table:
    table = written_over(Table.create(str(folder / "table"), SCHEMA, key="id", buckets=2))
    table.set_properties({"crdt_mor.mirror": formats, **AT_COMMITS})
    return table


def shown_version(table: Table) -> int:
    return int(state_of(table).info()["crdt_mor.version"])


def by_job(table: Table) -> None:
    job = table.jobs.plan("upsert", SCHEMA)
    table.jobs.complete(job, [job.stage(rows([50], 1), task=0)])


def in_block(table: Table) -> None:
    with table.transaction() as block:
        block.upsert(rows([51], 1))
        block.delete(keys=[5])


VERBS: Mapping[str, Callable[[Table], Any]] = {
    "truncate": lambda table: table.truncate(),
    "overwrite": lambda table: table.overwrite(rows(range(10), 9)),
    "append": lambda table: table.append(rows([52], 1)),
    "upsert": lambda table: table.upsert(rows([1], 7)),
    "delete": lambda table: table.delete(keys=[2]),
    "update": lambda table: table.update({"n": "n + 1"}, where="id < 9"),
    "merge": lambda table: table.merge(rows([6, 60], 3)).when_matched_update_all().execute(),
    "transaction": in_block,
    "job": by_job,
}


def test_commit_of_every_verb_refreshes_the_mirror(tmp_path: Path) -> None:
    table = made(tmp_path)
    for name, write in VERBS.items():
        write(table)
        assert shown_version(table) == table.version, name
    assert by_delta_rs(table) == scanned(table)


def test_commits_without_the_property_leave_mirrors_to_maintain(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.upsert(rows([1], 7))
    seen = shown_version(table)

    Table(table.uri, opening=Opening(maintain="off")).upsert(rows([1], 8))
    table.set_properties({"crdt_mor.mirror.when": None})
    table.upsert(rows([1], 9))

    assert shown_version(table) == seen
    table.maintenance.maintain()
    assert by_delta_rs(table) == scanned(table)


def test_mirrors_of_three_writers_show_the_newest_version_when_they_end(tmp_path: Path) -> None:
    table = made(tmp_path, "delta,iceberg")

    def write(number: int) -> None:
        own = Table(table.uri)
        for turn in range(2):
            own.upsert(rows([number, 10 * number + turn], turn))

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(write, range(1, 4))) == [None] * 3

    assert shown_version(table) == int(metadata_of(table)["properties"]["crdt_mor.version"]) == table.version
    assert by_delta_rs(table) == by_pyiceberg(table) == scanned(table)


def test_refresh_that_fails_leaves_the_commit_and_warns_until_the_next_repairs(tmp_path: Path) -> None:
    table = made(tmp_path, "delta,iceberg")
    store = ScriptedStore(session_of(table).store, refusing("put", of=lambda path: path.startswith("_delta_log/")))
    events: list[mor.observing.UpkeepEvent] = []
    keep = lambda event: events.append(event) if isinstance(event, mor.observing.UpkeepEvent) else None  # noqa: E731

    with (
        mor.observe(keep),
        pytest.warns(UpkeepWarning, match=r"delta mirror shows .* next commit or maintain") as told,
    ):
        commit = Table(table.uri, opening=Opening(store=store)).upsert(rows([1], 70))

    assert [warning.filename for warning in told] == [__file__]
    assert [(event.service, event.state, event.inline) for event in events] == [
        ("mirror", "failed", True), ("mirror", "done", True)
    ]  # fmt: skip
    assert table.version == commit.version
    assert by_pyiceberg(table) == scanned(table)  # the other mirror goes on
    table.upsert(rows([2], 71))
    assert by_delta_rs(table) == scanned(table)


def test_refresh_that_fails_where_warnings_are_errors_leaves_the_commit(tmp_path: Path) -> None:
    table = made(tmp_path)
    store = ScriptedStore(session_of(table).store, refusing("put", of=lambda path: path.startswith("_delta_log/")))
    commit = Table(table.uri, opening=Opening(store=store)).upsert(rows([1], 70))
    assert table.version == commit.version


def test_writer_that_dies_in_its_refresh_has_committed_and_the_next_repairs(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.upsert(rows([1], 69))
    is_of_mirror = lambda operation, path: operation == "put" and path.startswith((".mirror/", "_delta_log/"))  # noqa: E731
    store = ScriptedStore(session_of(table).store, Dying(is_of_mirror, after=True))

    with pytest.raises(ProcessDied):
        Table(table.uri, opening=Opening(store=store)).upsert(rows([1], 70))

    assert shown_version(table) < table.version
    table.upsert(rows([2], 71))
    assert by_delta_rs(table) == scanned(table)

"""Round trips of verbs on whole tables equal docs/design/requests.md, and do not grow with the file groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import polars as pl
import pytest

from crdt_mor import Opening, Table
from crdt_mor.log.steps import Steps
from crdt_mor.services.verify_groups import GroupChecks
from tests.counting import Bucket, Count
from tests.inside import session_of

PAGE = Path(__file__).parent.parent.parent / "docs" / "design" / "requests.md"
ROW = re.compile(r"^\| (?P<verb>`[^|]+`) \| (?P<few>\d+) \| (?P<many>\d+) \|$")

PER_WAVE: Final = 2
"""Trips of up to 64 objects: a read and a put."""

FEW, MANY = 8, 32
"""File groups."""

MOST: Final = {
    "`Table.create_from`": 91,
    "`inspect.metrics()`": 10,
    "`verify()`": 16,
    "`verify(deep=True)`": 16,
    "`maintenance.compact()`": 12,
    "`maintenance.clean()`": 18,
    "`copy(verify=False)`": 14,
}
"""Trips that a verb may take, whatever the page says."""


NEVER_MS = 1 << 40
"""Longer than any machine stands still during a verb."""


@pytest.fixture(autouse=True)
def looks_are_recent(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("api.load", "services.service", "write.open_write"):
        monkeypatch.setattr(f"crdt_mor.{module}.LOOK_KEPT_MS", NEVER_MS)


def rows(groups: int) -> pl.DataFrame:
    """Rows for every file group."""
    return pl.DataFrame({"id": [f"key{i * 7919}" for i in range(groups * 16)], "n": 1})


def opened(bucket: Bucket) -> Table:
    return Table("s3://counted/table", opening=Opening(store=bucket.store()))


def create(bucket: Bucket, groups: int) -> Table:
    opening = Opening(store=bucket.store())
    return Table.create_from("s3://counted/table", rows(groups), key="id", buckets=groups, opening=opening)


def counted(groups: int, verb: Callable[[Bucket, Table], object]) -> Count:
    """The requests of a verb on a table that was just opened, with a base and a log file in each file group."""
    bucket = Bucket()
    with bucket.counting():
        create(bucket, groups).upsert(rows(groups))
        table = opened(bucket)
        return bucket.count(lambda: verb(bucket, table))


def copy(bucket: Bucket, table: Table) -> None:
    table.copy("s3://counted/copied", store=bucket.store(folder="copied"), verify=False)


def loading(groups: int) -> Count:
    """A first load of a base file for each file group."""
    bucket = Bucket()
    with bucket.counting():
        return bucket.count(lambda: create(bucket, groups))


def cleaning(groups: int) -> Count:
    """A clean that removes a base file and a log file of each file group."""
    bucket = Bucket()
    with bucket.counting():
        create(bucket, groups).upsert(rows(groups))
        opened(bucket).maintenance.compact()
        table = opened(bucket)

        def clean() -> None:
            assert table.maintenance.clean(timedelta(0), readers=timedelta(0)).files == 2 * groups

        return bucket.count(clean)


def verify(_: Bucket, table: Table, *, deep: bool = False) -> None:
    found = table.verify(deep=deep)
    assert found.is_sound
    assert found.files == 2 * found.file_groups


VERBS: dict[str, Callable[[int], Count]] = {
    "`Table.create_from`": loading,
    "`count()`": lambda groups: counted(groups, lambda _, table: table.count()),
    "`to_polars()`": lambda groups: counted(groups, lambda _, table: table.to_polars()),
    "`inspect.metrics()`": lambda groups: counted(groups, lambda _, table: table.inspect.metrics()),
    "`verify()`": lambda groups: counted(groups, verify),
    "`verify(deep=True)`": lambda groups: counted(groups, lambda _, table: verify(_, table, deep=True)),
    "`maintenance.compact()`": lambda groups: counted(groups, lambda _, table: table.maintenance.compact()),
    "`maintenance.clean()`": cleaning,
    "`copy(verify=False)`": lambda groups: counted(groups, copy),
}


def said() -> dict[str, tuple[int, int]]:
    found = filter(None, map(ROW.match, PAGE.read_text().splitlines()))
    return {row["verb"]: (int(row["few"]), int(row["many"])) for row in found}


@pytest.mark.costly
@pytest.mark.parametrize("verb", VERBS)
def test_the_page_names_the_trips_of_a_verb(verb: str) -> None:
    few, many = VERBS[verb](FEW), VERBS[verb](MANY)
    assert (few.trips, many.trips) == said()[verb], f"{few}\n{many}"
    assert many.trips - few.trips <= PER_WAVE, "file groups must not add trips, only each 64 objects"
    assert many.trips <= MOST.get(verb, many.trips)


def test_what_a_clean_removes_from_a_bucket_while_verify_reads_is_no_damage() -> None:
    bucket = Bucket()
    with bucket.counting():
        create(bucket, FEW).upsert(rows(FEW))
        checks, other = GroupChecks(session_of(opened(bucket)), deep=True), opened(bucket)
        other.maintenance.compact()
        assert other.maintenance.clean(timedelta(0), readers=timedelta(0)).files
        results = list(checks.results())
    assert [finding for result in results for finding in result.findings] == []
    assert sum(result.rows for result in results) == rows(FEW).height


def test_a_damaged_file_of_a_bucket_is_named_and_the_other_file_groups_are_read() -> None:
    bucket = Bucket()
    with bucket.counting():
        create(bucket, FEW).upsert(rows(FEW))
        store = bucket.store()
        logs = [stat.path for stat in store.walk("") if ".log." in stat.path]
        for path in logs[2:4]:
            data = store.read(path)
            assert data is not None
            store.delete(path)
            store.put(path, data[:-9] + bytes(9))
        found = opened(bucket).verify()
    assert [finding.path for finding in found.findings] == logs[2:4]
    assert found.file_groups == FEW
    assert 0 < found.rows < rows(FEW).height


def test_every_verb_of_the_page_is_counted() -> None:
    assert said().keys() == VERBS.keys()


def test_a_plan_after_a_rollback_lists_hudis_timeline_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_expired(*_: object) -> Steps[bool]:
        yield from ()
        return True

    bucket = Bucket()
    with bucket.counting():
        create(bucket, FEW).upsert(rows(FEW))
        opened(bucket).transaction().__enter__()
        table = opened(bucket)
        monkeypatch.setattr("crdt_mor.events.sweep.is_expired", is_expired)
        asked = bucket.count(table.maintenance.plans.schedule).asked
    rolled_back = next(i for i, line in enumerate(asked) if " PUT " in line and "/.crdt_mor/timeline/" in line)
    planned = next(i for i, line in enumerate(asked) if " PUT " in line and "/.crdt_mor/plans/" in line)
    assert any("LIST table/.hoodie/timeline " in line for line in asked[rolled_back:planned])

"""Scans and changes in parts, for many processes: together they are the whole, and each is enough to be read."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Changes, InvalidInputError, Scan, Table
from crdt_mor.api.rows import ArrowRows
from crdt_mor.errors import FutureSnapshotError
from crdt_mor.payloads import Counter
from tests.stores import LOCAL_FIRST
from tests.table.helpers import SCHEMA, Make, Place, frame, sent
from tests.tiers import slow

ONE_EACH = 1
"""A size that puts every file group in a part of its own."""

Rows = list[tuple[object, ...]]


def listed(*parts: ArrowRows) -> Rows:
    return sorted((tuple(row.values()) for part in parts for row in part.to_arrow().to_pylist()), key=repr)


def elsewhere(parts: Sequence[ArrowRows]) -> Rows:
    """The rows of parts that were sent to another process."""
    return listed(*sent(parts))


@pytest.fixture(scope="module", params=LOCAL_FIRST)
def table(request: pytest.FixtureRequest, fast_module_path: Path) -> Table:
    """A table that no test changes."""
    return eventful(Place.of(request.param, fast_module_path / "t"))


def eventful(place: Place) -> Table:
    """Updates, deletes, a compaction, a late commit: in two partitions of four buckets."""
    made = place.create(schema=SCHEMA, key="id", partition_by="region", buckets=4)
    made.upsert(frame(*((f"k{i:02}", "eu" if i % 2 else "us", i) for i in range(40))))
    made.upsert(frame(*((f"k{i:02}", "eu" if i % 2 else "us", 100 + i) for i in range(10))))
    late = made.transaction()
    late.__enter__().upsert(frame(("k00", "us", 999), ("new", "us", 1)))
    made.delete(frame(("k01", "eu"), ("k39", "eu")).select(["id", "region"]))
    made.maintenance.compact()
    late.__exit__(None, None, None)
    made.upsert(frame(("k02", "us", 7)))
    return made


@pytest.mark.parametrize("size", [ONE_EACH, 3 << 20, 1 << 40])
def test_the_parts_of_a_scan_are_the_scan(table: Table, size: int) -> None:
    scan = table.scan(meta=True)
    parts = scan.parts(size)
    assert elsewhere(parts) == listed(scan)
    assert len(parts) == {ONE_EACH: 8, 1 << 40: 1}.get(size, len(parts))


def test_parts_have_the_columns_and_the_condition_and_no_slices_that_it_rules_out(table: Table) -> None:
    scan = table.scan(columns=["n"], filter=(pl.col("id") == "k02") & (pl.col("region") == "us"))
    [part] = scan.parts(ONE_EACH)
    assert elsewhere([part]) == [(7,)]
    assert part.schema == scan.schema
    assert table.scan(filter="region = 'nowhere'").parts() == []


@pytest.mark.costly
@pytest.mark.parametrize("how", [{}, {"raw": True}, {"images": True}], ids=["merged", "raw", "images"])
@pytest.mark.parametrize(
    ("begun", "left_out"),
    [
        *((0, 0), (1, 1)),
        *(slow(*case) for case in ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (2, 2), (4, 0), (4, 1), (4, 2))),
    ],
)
def test_the_parts_of_changes_are_the_changes(table: Table, how: dict[str, bool], begun: int, left_out: int) -> None:
    versions = sorted(row["version"] for row in table.inspect.timeline().to_pylist())
    since, until = [None, *versions][begun], versions[-1 - left_out]
    changes = table.changes(since, until=until, **how)  # type: ignore[arg-type]
    assert elsewhere(changes.parts(ONE_EACH)) == listed(changes)
    assert elsewhere(changes.parts()) == listed(changes)


@pytest.mark.slow
def test_a_part_is_read_without_a_look_at_the_timeline(fast_path: Path) -> None:
    table = eventful(Place.of("local", fast_path / "t"))
    rows: list[ArrowRows] = [table.scan(), table.changes(), table.changes(1, images=True), table.changes(2, raw=True)]
    want = [listed(one) for one in rows]
    parts = [one.parts(ONE_EACH) for one in rows if isinstance(one, Scan | Changes)]
    shutil.rmtree(fast_path / "t" / ".hoodie")
    assert [elsewhere(some) for some in parts] == want


@pytest.mark.slow
def test_a_part_is_read_in_a_process_that_knows_nothing_else(make: Make, path: str, fast_path: Path) -> None:
    table = make(merge={"n": Counter()})
    for _ in range(3):
        table.upsert(frame(("a", "x", 1), ("b", "x", 2)))
    [part] = table.scan(filter="n > 3").parts()
    Path(fast_path, "part").write_bytes(pickle.dumps(part))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).to_arrow().to_pylist())"
    command = [sys.executable, "-c", code, str(fast_path / "part")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "[{'id': 'b', 'region': 'x', 'n': 6, 'price': None}]\n", done.stderr


def test_small_slices_are_shared_out_evenly(make: Make) -> None:
    table = make(buckets=16)
    table.upsert(frame(*((f"k{i:03}", "x", i) for i in range(400))))
    heights = [part.count() for part in table.scan().parts(5 << 16)]
    assert len(heights) == 4
    assert sum(heights) == 400
    assert max(heights) < 150


def test_parts_are_of_some_size_and_of_a_scan_without_a_limit(table: Table) -> None:
    for size in (0, -1, True, "1", 1.5):
        with pytest.raises(InvalidInputError, match="size must be a number"):
            table.scan().parts(size)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="a scan with a limit has no parts"):
        table.scan(limit=3).parts()


# --- changes with an end ----------------------------------------------------------------------------------------------


def test_what_is_between_two_points_never_changes(make: Make) -> None:
    table = make()
    table.upsert(frame(("a", "x", 1)))
    late = table.transaction()
    late.__enter__().upsert(frame(("a", "x", 2), ("b", "x", 2)))
    second = table.upsert(frame(("a", "x", 3)))
    until = table.changes().checkpoint
    ways: list[dict[str, Any]] = [{"raw": True}, {"images": True}]
    before = [listed(table.changes(1, until=until, **way)) for way in ways]
    merged = listed(table.changes(1, until=until))
    late.__exit__(None, None, None)
    table.maintenance.compact()
    for way, rows in zip(ways, before, strict=True):
        assert listed(table.changes(1, until=until, **way)) == rows
    assert listed(table.changes(1, until=until)) == listed(table.changes(1, until=second)) == merged
    assert merged == [("a", "x", 3, None, "upsert")]
    assert table.changes(1, until=until).checkpoint == until
    assert listed(table.changes(until)) == [("a", "x", 3, None, "upsert"), ("b", "x", 2, None, "upsert")]


def test_a_window_cannot_end_before_it_begins_nor_in_the_future(make: Make) -> None:
    table = make()
    first, second = table.upsert(frame(("a", "x", 1))), table.upsert(frame(("a", "x", 2)))
    with pytest.raises(InvalidInputError, match="until lies before since"):
        table.changes(second, until=first)
    with pytest.raises(FutureSnapshotError, match="this version does not exist yet"):
        table.changes(until=99)
    with pytest.raises(InvalidInputError, match=r"checkpoint is ahead of the table.*until="):
        table.changes(until="completed:99991231235959000")
    with pytest.raises(InvalidInputError, match=r"another `consistency`.*until="):
        table.changes(until=table.changes(consistency="stable").checkpoint)


@pytest.mark.costly
@pytest.mark.parametrize("consistency", ["latest", "stable"])
def test_limited_changes_end_earlier_and_a_chain_of_them_misses_nothing(make: Make, consistency: str) -> None:
    table = make(buckets=2)
    for i in range(5):
        table.upsert(frame(*((f"k{j}", "x", i) for j in range(8))))
    wanted = listed(table.changes(raw=True, consistency=consistency))  # type: ignore[arg-type]
    for limits in ({"commits": 2}, {"files": 5}, {"rows": 16}, {"bytes": 1}, {"commits": 9, "files": 2}):
        since, found, counts = None, list[Any](), []
        while True:
            some = table.changes(since, raw=True, consistency=consistency).limited(**limits)  # type: ignore[arg-type]
            if not some.commits:
                break
            since, found = some.checkpoint, [*found, *listed(some)]
            counts.append(some.commits)
        assert sorted(found, key=repr) == wanted
        assert counts == ([2, 2, 1] if limits in ({"commits": 2}, {"files": 5}, {"rows": 16}) else [1, 1, 1, 1, 1])


def test_a_limit_that_is_not_reached_changes_nothing(make: Make) -> None:
    table = make()
    table.upsert(frame(("a", "x", 1)))
    changes = table.changes()
    assert changes.limited(commits=1, files=1, rows=1, bytes=1 << 30).checkpoint == changes.checkpoint
    assert changes.limited() is changes
    for wrong in (0, -1, True, "1"):
        with pytest.raises(InvalidInputError, match=r"a limit must be.*files="):
            changes.limited(files=wrong)  # type: ignore[arg-type]


def test_the_schema_of_parts_is_that_of_the_whole(table: Table) -> None:
    changes = table.changes(1, columns=["n", "id"], images=True)
    assert {pa.schema(part.schema) for part in changes.parts()} == {changes.schema}

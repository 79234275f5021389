"""What operations ask of a bucket, counted: the table in docs/design/requests.md says it, and cannot say anything else.

Counts are exact. A new row is a line in the page and a function here, under one name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

import polars as pl
import pytest

from crdt_mor import Opening, Table
from crdt_mor.api.opening import WRITER_EXPIRY
from crdt_mor.events import pace
from crdt_mor.events.heartbeat import beat_every
from crdt_mor.log import segments
from crdt_mor.log.paths import POSTS, heartbeat_path
from crdt_mor.model.file_ids import live_groups
from crdt_mor.model.instant import EPOCH, InstantTime, claim_after, from_ms, to_ms
from crdt_mor.model.names import LogFileName
from crdt_mor.model.policies import milliseconds
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, completed_name
from crdt_mor.read import snapshot
from tests.counting import Bucket, Count
from tests.inside import session_of

PAGE = Path(__file__).parent.parent.parent / "docs" / "design" / "requests.md"
_NUMBERS = r"(?P<requests>\d+) \| (?P<trips>\d+) \| (?P<size>[\d,.]+) (?P<unit>KiB|MiB)"
ROW = re.compile(rf"^\| (?P<name>[^|]+) \| {_NUMBERS} \|$")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}

URI = "s3://counted/table"
NUMBERS = [f"c{i}" for i in range(9)]
NEVER_MS = 1 << 40
"""Longer than any machine stands still between two commits of a test."""


@dataclass(frozen=True)
class Row:
    """What the page says of an operation. bytes: about so many, and no more."""

    requests: int
    trips: int
    bytes: int


@cache
def said() -> dict[str, Row]:
    """The rows of the page, by name."""
    found = filter(None, map(ROW.match, PAGE.read_text().splitlines()))
    return {
        row["name"]: Row(
            int(row["requests"]), int(row["trips"]), round(float(row["size"].replace(",", "")) * UNITS[row["unit"]])
        )
        for row in found
    }


def frame(rows: int) -> pl.DataFrame:
    """Rows of a text and nine numbers."""
    return pl.DataFrame({"id": [f"k{i:06}" for i in range(rows)], **{name: range(rows) for name in NUMBERS}})


@cache
def bucket(groups: int, rows: int) -> Bucket:
    """A bucket that operations share which change nothing."""
    return filled(groups, rows)


def filled(groups: int, rows: int, commits: int = 1, each: int = 1) -> Bucket:
    """A bucket with a table of some file groups: compacted, and then some commits, of one row each or more."""
    made = Bucket()
    with made.counting():
        table = Table.create(
            URI,
            {"id": pl.String, **dict.fromkeys(NUMBERS, pl.Int64)},
            key="id",
            buckets=groups,
            opening=Opening(store=made.store()),
        )
        table.upsert(frame(rows))
        table.maintenance.compact()
        for _ in range(commits):
            table.upsert(frame(each))
    return made


ONE_FILE = partial(bucket, 1, 60_000)
"""Which is larger than what is read whole."""
MANY_FILES = partial(bucket, 50, 20_000)
MANY_LOGS = partial(filled, 8, 4_000, commits=11, each=100)


def asked(operation: Callable[[Table], object], made: Callable[[], Bucket] = ONE_FILE, again: bool = False) -> Count:
    """What an operation asks of a table that another process has just opened; `again`: when it is done once more."""
    bucket = made()
    with bucket.counting():
        table = opened(bucket)
        count = bucket.count(lambda: operation(table))
        return bucket.count(lambda: operation(table)) if again else count


def opened(made: Bucket) -> Table:
    """The table, as another process opens it."""
    return Table(URI, opening=Opening(store=made.store()))


def creating() -> Count:
    """Creating a table."""
    made = Bucket()
    with made.counting():
        return made.count(lambda: Table.create(URI, {"id": pl.String}, key="id", opening=Opening(store=made.store())))


def opening() -> Count:
    """Opening a table."""
    made = ONE_FILE()
    with made.counting():
        return made.count(lambda: opened(made))


def two_columns(table: Table) -> None:
    """A scan of two columns of the ten."""
    table.scan(columns=["id", "c3"]).to_polars()


def lookup(table: Table) -> None:
    """A scan for one key."""
    assert table.scan(filter=pl.col("id") == "k000007").to_polars().height == 1


def maintaining(table: Table) -> None:
    """Upkeep where nothing is due."""
    assert not table.maintenance.maintain().actions


def last_commit(table: Table) -> None:
    """The changes of the last commit."""
    assert table.changes(since=session_of(table).known_tail().version - 1).to_polars().height == 1


def committing(groups: int, rows: int, write: Callable[[Table, pl.DataFrame], object] = Table.upsert) -> Count:
    """A commit of a process that has made some before."""
    made = filled(groups, 1000)
    with made.counting(), patch.object(pace, "STALE_MS", NEVER_MS):
        table = opened(made)
        in_block(table, frame(rows))
        table.upsert(frame(rows))
        return made.count(lambda: write(table, frame(rows)))


def mirroring(format: str) -> Count:
    """A commit that refreshes a mirror, of a process that has made some before."""
    made = filled(8, 1000)
    with made.counting(), patch.object(pace, "STALE_MS", NEVER_MS):
        table = opened(made)
        table.set_properties({"crdt_mor.mirror": format, "crdt_mor.mirror.when": "commit"})
        in_block(table, frame(1))
        table.upsert(frame(1))
        return made.count(lambda: table.upsert(frame(2).tail(1)))


def beginning(groups: int, rows: int, busy_ms: int = -1) -> Count:
    """The first commit of a process. busy_ms: how young the newest version is of a table that it takes for busy."""
    made = filled(groups, 1000)
    with made.counting(), patch.object(pace, "BUSY_MS", busy_ms):
        table = opened(made)
        return made.count(lambda: table.upsert(frame(rows)))


def waking(groups: int, rows: int) -> Count:
    """A commit of a process that has not looked for a while, in which another one has committed."""
    made = filled(groups, 1000)
    with made.counting():
        table = opened(made)
        in_block(table, frame(rows))
        table.upsert(frame(rows))
        opened(made).upsert(frame(1))
        with patch.object(pace, "STALE_MS", -1), patch.object(pace, "claim_after", later):
            return made.count(lambda: table.upsert(frame(rows)))


def later(last: InstantTime, wall_ms: int) -> InstantTime:
    """As `claim_after`, a moment later.

    Writers that are only milliseconds apart may choose one time, and then the second goes the long way at once.
    """
    return claim_after(from_ms(max(to_ms(last), wall_ms) + 8), wall_ms)


def losing(groups: int, rows: int) -> Count:
    """A commit that is tried alone while another process has committed meanwhile, at another time than it claims."""
    made = filled(groups, 1000)
    with made.counting():
        table = opened(made)
        in_block(table, frame(rows))
        table.upsert(frame(rows))
        opened(made).upsert(frame(1))
        with patch.object(pace, "STALE_MS", NEVER_MS), patch.object(pace, "claim_after", later):
            return made.count(lambda: table.upsert(frame(rows)))


def in_block(table: Table, rows: pl.DataFrame) -> None:
    with table.transaction() as tx:
        tx.upsert(rows)


OPERATIONS: dict[str, Callable[[], Count]] = {
    "`Table.create`": creating,
    "`Table(uri)`": opening,
    "scan of 2 columns, 1 file": lambda: asked(two_columns),
    "the same again, 1 file": lambda: asked(two_columns, again=True),
    "scan of 2 columns, 50 small files": lambda: asked(two_columns, MANY_FILES),
    "the same again, 50 files": lambda: asked(two_columns, MANY_FILES, again=True),
    "scan for one key, 50 files": lambda: asked(lookup, MANY_FILES),
    "scan of 2 columns, 8 small files with 11 logs each": lambda: asked(two_columns, MANY_LOGS),
    "`count()`": lambda: asked(Table.count),
    "changes of one commit": lambda: asked(last_commit),
    "a commit that is alone: one row": lambda: committing(1, 1),
    "a commit that is alone: 8 file groups": lambda: committing(8, 1000),
    "the first commit of a process: one row": lambda: beginning(1, 1),
    "the same in a busy table: one row": lambda: beginning(1, 1, NEVER_MS),
    "a commit after others, a while ago: one row": lambda: waking(1, 1),
    "a commit after others, a while ago: 8 file groups": lambda: waking(8, 1000),
    "a commit that loses a race: one row": lambda: losing(1, 1),
    "a commit that loses a race: 8 file groups": lambda: losing(8, 1000),
    "a commit that refreshes a Delta mirror: one row": lambda: mirroring("delta"),
    "a commit that refreshes an Iceberg mirror: one row": lambda: mirroring("iceberg"),
    "a transaction block: one row": lambda: committing(1, 1, in_block),
    "a transaction block: 8 file groups": lambda: committing(8, 1000, in_block),
    "`maintain`, nothing is due": lambda: asked(maintaining, partial(filled, 8, 1000)),
    "the same again, nothing is due": lambda: asked(maintaining, partial(filled, 8, 1000), again=True),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_page_says_what_an_operation_asks(name: str) -> None:
    row, count = said()[name], OPERATIONS[name]()
    assert (count.requests, count.trips) == (row.requests, row.trips), count
    assert row.bytes / 2 < count.bytes <= row.bytes, count


def test_every_row_of_the_page_is_counted() -> None:
    assert said().keys() == OPERATIONS.keys()


def test_what_is_asked_for_beside_a_look_may_be_gone_by_then_or_lack_what_the_scan_names() -> None:
    made = filled(1, 1000)
    with made.counting():
        table, other = opened(made), opened(made)
        old = {file.path for file in made.store().walk("") if file.path.endswith(".parquet")}
        other.upsert(frame(2).with_columns(new=pl.lit("x")), schema_mode="merge")
        other.maintenance.compact()
        for path in old:
            made.store().delete(path)
        assert table.scan(columns="new", filter="new = 'x'").to_polars().height == 2


def test_the_logs_of_one_file_come_at_once_also_after_the_look() -> None:
    with patch.object(snapshot, "_PREFETCHED", 0):
        count = asked(two_columns, partial(filled, 1, 1000, commits=14))
    assert (count.requests, count.trips) == (2 + 1 + 14, 2 + 1), count


def test_what_a_table_has_in_segments_is_asked_for_once_and_side_by_side() -> None:
    with patch.object(segments, "COMPLETIONS_MAX", 4):
        made = filled(1, 100, commits=22)
        with made.counting():
            opened(made).set_properties({"crdt_mor.archive.commits": "1"})
            opened(made).maintenance.maintain()
            reader, table = opened(made), opened(made)
            read = made.count(lambda: two_columns(reader))
            idle, again = made.count(lambda: maintaining(table)), made.count(lambda: maintaining(table))
    asked_for = [request.split()[2] for request in idle.asked if "/segments/" in request]
    assert len(asked_for) == len(set(asked_for)) >= 5, idle
    assert (idle.requests, idle.trips) == (8 + len(asked_for), 9), idle
    assert (again.requests, again.trips) == (6, 6), again
    assert (read.requests, read.trips) == (2 + len(asked_for) + 1, 2), read


def test_file_ids_in_an_object_of_their_own_take_an_opening_one_request_and_no_round_trip() -> None:
    made, file_id = filled(1, 100), "00000000-7c1e-4bbb-8ccc-1234567890ab-0"
    with patch.object(segments, "FILE_IDS_MAX", 0), made.counting():
        before = made.count(lambda: opened(made).version)
        session = session_of(opened(made))
        requested = from_ms(to_ms(session.tail().clock) + 1)
        log = DataFile(str(LogFileName(file_id, requested)), 1, 1)
        hudis = Completion(requested, from_ms(to_ms(requested) + 2), 0, "", "deltacommit", "INSERT", (log,))
        groups = live_groups([hudis], 1)
        session.store.put(f"{session.publisher.projector.folder}/{completed_name(hudis)}", b"{}")

        def adopt(tail: Timeline, wall_ms: int) -> Timeline:
            return tail.adopt("adopts", wall_ms, [hudis], tail.schema, groups)

        session.run(session.publisher.publish(adopt, session.known_tail()))
        after = made.count(lambda: opened(made).version)
        table = opened(made)
        assert table.version > 0
    assert session_of(table).known_tail().file_ids.of("", 0) == file_id
    assert (after.requests, after.trips) == (before.requests + 1, before.trips), f"{before}\n{after}"


def test_tokens_in_an_object_of_their_own_take_an_opening_one_request_and_no_round_trip() -> None:
    made = filled(1, 100)
    with made.counting():
        before = made.count(lambda: opened(made).version)
        with patch.object(segments, "TOKENS_MAX", 0):
            opened(made).upsert(frame(1), token=("app", 1))
        after = made.count(lambda: opened(made).version)
        table = opened(made)
        assert table.version > 0
    assert session_of(table).known_tail().tokens.object is not None
    assert (after.requests, after.trips) == (before.requests + 1, before.trips), f"{before}\n{after}"


def test_a_schema_in_an_object_of_its_own_takes_an_opening_one_request_and_no_round_trip() -> None:
    made = filled(1, 100)
    with made.counting():
        before = made.count(lambda: opened(made).version)
        with patch.object(segments, "SCHEMA_MAX", 0):
            opened(made).set_properties({"own": "1"})
        after = made.count(lambda: opened(made).version)
        table = opened(made)
        columns = table.schema.names
    assert session_of(table).known_tail().schema_object is not None
    assert columns
    assert (after.requests, after.trips) == (before.requests + 1, before.trips), f"{before}\n{after}"


UNLISTED = "scan", "the same again, 1", "the same again, 50", "`count", "a commit that is alone", "a transaction"
NO_LISTING = [name for name in OPERATIONS if name.startswith(UNLISTED)]


@pytest.mark.costly
@pytest.mark.parametrize("name", NO_LISTING)
def test_no_listing_is_in_the_way_of_a_read_or_a_commit(name: str) -> None:
    """But for the posts of others, a folder of few objects."""
    assert not [request for request in OPERATIONS[name]().asked if "LIST" in request and POSTS not in request]


def test_a_writer_that_is_alive_says_so_in_one_put_and_less_than_once_a_minute() -> None:
    made = Bucket()
    with made.counting():
        store = made.store()
        store.touch(heartbeat_path(EPOCH))
        assert made.count(lambda: store.touch(heartbeat_path(EPOCH))).requests == 1
    assert beat_every(milliseconds("writer_expiry", WRITER_EXPIRY)) >= timedelta(minutes=1)

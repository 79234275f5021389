"""A login page that answers every request with status 200 is told from the store, after few requests."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from crdt_mor import Opening, StorageUnavailableError, Table
from crdt_mor.errors import CommitUnknownError
from crdt_mor.log.steps import GetStat, Read, Together
from crdt_mor.log.tail import find_tail
from crdt_mor.model.timeline import Timeline
from crdt_mor.store.addresses import place_of
from crdt_mor.store.asking import PageError, require_no_page
from crdt_mor.store.objects import ObjectStore, open_at
from crdt_mor.store.protocol import Stat
from crdt_mor.testing.clock import SimulatedEnvironment
from tests.hot_names import PAGE, HotBucket, VirtualEnvironment, VirtualTime
from tests.inside import session_of
from tests.store.listening import Listening

SCHEMA = pa.schema([("id", pa.int64())])
CHECK = "(?s)store=s3://hot/table.*HTML page.*login page or a proxy.*endpoint and proxy_url"
"""The error names the store and what to check."""


def opened(table: Table) -> Table:
    session = session_of(table)
    return Table("s3://hot/table", opening=Opening(store=session.store, environment=session.environment))


ASKED: list[Callable[[Table], object]] = [
    Table.count,
    lambda table: table.to_arrow(),
    lambda table: table.upsert(rows(2)),
    opened,
    lambda table: table.maintenance.maintain(),
    lambda table: table.verify(),
]


def rows(number: int) -> pa.Table:
    return pa.table({"id": [number]}, SCHEMA)


@pytest.mark.parametrize("ask", ASKED, ids=["count", "scan", "upsert", "open", "maintain", "verify"])
def test_captive_portal_names_store_and_what_to_check(
    ask: Callable[[Table], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = HotBucket(VirtualTime())
    with bucket.serving():
        environment = VirtualEnvironment(bucket.time, "a")
        store = bucket.store(environment)
        monkeypatch.setattr(store, "probe", lambda: None)
        table = Table.create(
            "s3://hot/table", SCHEMA, key="id", buckets=1, opening=Opening(store=store, environment=environment)
        )
        table.upsert(rows(1))
        bucket.is_captive, before = True, bucket.requests
        with pytest.raises((StorageUnavailableError, CommitUnknownError), match=CHECK):
            ask(table)
        assert bucket.requests - before < 250
        bucket.is_captive = False
        assert table.count() == 1
        table.upsert(rows(3))
        assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 3]


@pytest.mark.parametrize("read", [lambda s: s.read("x"), lambda s: s.ranges_of("x", 9).read(0, 4)], ids=["all", "part"])
def test_page_from_real_client_is_told_from_object(read: Callable[[ObjectStore], object]) -> None:
    place = place_of("s3://lake/t")
    assert place is not None
    with Listening().running() as portal:
        portal.answer = lambda method, key: (200, PAGE)
        keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region": "us-east-1"}
        store = open_at(place, {**portal.options, **keys}, SimulatedEnvironment())
        with pytest.raises(StorageUnavailableError, match=r"store=s3://lake/t.*login page or a proxy"):
            read(store)


def test_climb_in_a_store_that_has_every_name_ends() -> None:
    steps, looks = find_tail(Timeline.genesis("[]")), 0
    step = next(steps)
    while not isinstance(step, Read):
        looks += 1
        asked = step.steps if isinstance(step, Together) else (step,)
        assert looks < 40
        found = [Stat(one.path, 1, 0) if isinstance(one, GetStat) else b"{}" for one in asked]
        step = steps.send(found if isinstance(step, Together) else found[0])
    assert len(step.path.rpartition("/")[2]) == len(f"{0:020d}.json"), "a name that a version may have"


@pytest.mark.parametrize("page", [b"<!DOCTYPE html><p>", b"\xef\xbb\xbf\n <HTML>"])
def test_page_of_html_is_no_object(page: bytes) -> None:
    with pytest.raises(PageError):
        require_no_page(page, {})


@pytest.mark.parametrize("data", [b"", b"PAR1", b"<xml>", b'{"version":1}', b"#HUDI#"])
def test_objects_are_no_pages(data: bytes) -> None:
    require_no_page(data, {"Content-Type": "binary/octet-stream"})
    with pytest.raises(PageError):
        require_no_page(data, {"Content-Type": "text/html; charset=utf-8"})

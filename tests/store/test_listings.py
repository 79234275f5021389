"""Listings of folders in which other programs keep objects, too: names that begin with a digit are found alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import obstore
import pytest

from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.store.addresses import place_of
from crdt_mor.store.memory import MemoryStore
from crdt_mor.store.objects import ObjectStore, open_at
from crdt_mor.store.protocol import Stat, numbered
from tests import servers

OTHERS = ("-beside", ".hidden", "backup-0", "_old.bak", "sub/0", "0123/0", "z")
OURS = ("00000000000000000001.json", "20260101000000000.deltacommit", "9")


def names(stats: list[Stat]) -> list[str]:
    return [stat.path.removeprefix("f/") for stat in stats]


def test_numbered_returns_names_that_begin_with_a_digit() -> None:
    store = MemoryStore()
    for name in (*OTHERS, *OURS):
        store.put(f"f/{name}", b"")
    assert names(numbered(store, "f")) == [*OURS]
    assert numbered(store, "none") == []


def test_numbered_does_so_in_a_bucket(server: servers.Server) -> None:
    store = server.store()
    for name in (*OTHERS, *OURS):
        store.put(f"f/{name}", b"x")
    store.put("fa/1", b"x")
    assert names(numbered(store, "f")) == [*OURS]
    assert numbered(store, "none") == []


# --- pages ------------------------------------------------------------------------------------------------------------


class Pages:
    """Answers of a provider in place of `obstore.list`, and the number of requested answers."""

    def __init__(self, *pages: list[str]) -> None:
        self.pages = pages
        self.asked = 0

    def __call__(self, client: object, prefix: str, *, offset: str, chunk_size: int) -> Iterator[list[dict[str, Any]]]:
        assert (prefix, offset, chunk_size) == ("t/f", "t/f/0", 1_000)
        for page in self.pages:
            self.asked += 1
            yield [{"path": f"t/f/{name}", "size": 1, "last_modified": datetime.now(UTC)} for name in page]


def bucket_at(uri: str = "s3://lake/t", **options: str) -> ObjectStore:
    place = place_of(uri)
    assert place is not None
    return open_at(place, {"aws_region": "us-east-1", **servers.AWS_KEYS, **options}, SystemEnvironment())


@pytest.mark.parametrize(
    ("pages", "asked", "found"),
    [
        ([["1", "2"], ["3", "backup-0"], ["backup-1"]], 2, ["1", "2", "3"]),
        ([["backup-0"], ["backup-1"]], 1, []),
        ([["1", "2"], ["3"]], 2, ["1", "2", "3"]),
        ([["1/a", "1/b"], ["2", "z"], ["zz"]], 2, ["2"]),
        ([["backup-0", "2"], ["1"]], 2, ["1", "2"]),
        ([], 0, []),
    ],
    ids=["others follow", "others alone", "no others", "a folder", "a provider without order", "nothing"],
)
def test_numbered_asks_a_bucket_for_no_page_after_the_last_digit(
    monkeypatch: pytest.MonkeyPatch, pages: list[list[str]], asked: int, found: list[str]
) -> None:
    answers = Pages(*pages)
    monkeypatch.setattr(obstore, "list", answers)
    assert names(bucket_at().numbered("f")) == found
    assert answers.asked == asked


def test_numbered_reads_all_pages_of_s3_express(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Pages(["backup-0"], ["1"])
    monkeypatch.setattr(obstore, "list", answers)
    assert names(bucket_at("s3://lake--use1-az4--x-s3/t", aws_s3_express="true").numbered("f")) == ["1"]
    assert answers.asked == 2

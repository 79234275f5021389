"""A table in a bucket is opened at its newest version, whatever is published between the requests that this takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations
from typing import Any

import polars as pl
import pytest

from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.errors import TableReplacedError
from crdt_mor.format.properties import decode_table, encode_table
from crdt_mor.log import opening
from crdt_mor.log.paths import PROPERTIES, version_path
from tests.counting import Bucket
from tests.inside import session_of

URI = "s3://counted/table"
REQUESTS = 10


def made(bucket: Bucket) -> Table:
    table = Table.create(URI, {"id": pl.String}, key="id", buckets=1, opening=Opening(store=bucket.store()))
    for number in range(3):
        table.set_properties({"number": str(number)})
    return table


@contextmanager
def one_after_another(order: int, at: int, meanwhile: Callable[[], object]) -> Iterator[None]:
    """Requests that would be side by side come in one of their orders; before one of them something happens."""
    asked = 0

    def in_order(work: Callable[[Any], Any], items: Sequence[Any], threads: int) -> list[Any]:
        nonlocal asked
        assert threads == len(items)
        ways = list(permutations(range(len(items))))
        replies = [None] * len(items)
        for number in ways[order % len(ways)]:
            if asked == at:
                meanwhile()
            asked += 1
            replies[number] = work(items[number])
        return replies

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "in_threads", in_order)
        yield


@pytest.mark.costly
@pytest.mark.parametrize("versions", [1, 7])
@pytest.mark.parametrize("is_ghost_left", [False, True], ids=["", "and a ghost"])
def test_the_newest_version_is_found_whatever_comes_between(
    versions: int, is_ghost_left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 2)
    bucket = Bucket()
    with bucket.counting():
        writer, store = made(bucket), bucket.store()
        for order in range(0, 24, 5):
            for at in range(REQUESTS):
                before = writer.version
                old = store.read(version_path(before)) or b""

                def meanwhile(before: int = before, old: bytes = old) -> None:
                    for number in range(versions):
                        writer.set_properties({"number": f"{before}-{number}"})
                    if is_ghost_left and versions > 3:
                        store.put(version_path(before), old.replace(b'"nonce":"', b'"nonce":"late-'))

                with one_after_another(order, at, meanwhile):
                    opened = Table(URI, opening=Opening(store=bucket.store()))
                assert before <= session_of(opened).known_tail().version <= writer.version
                assert opened.properties == writer.properties
                if is_ghost_left and versions > 3:
                    store.delete(version_path(before))


def test_a_table_that_is_made_anew_meanwhile_is_not_taken_for_the_one_that_was_opened() -> None:
    bucket = Bucket()
    with bucket.counting():
        made(bucket)
        store = bucket.store()

        def meanwhile() -> None:
            for stat in store.walk(".hoodie"):
                store.delete(stat.path)
            made(bucket)

        for at in range(2, REQUESTS - 1):  # the last one is of Hudi's timeline
            with one_after_another(0, at, meanwhile), pytest.raises(TableReplacedError):
                Table(URI, opening=Opening(store=bucket.store()))


def test_a_setting_that_changes_while_a_table_is_opened_or_after_that_stops_the_first_write() -> None:
    """Whichever request it comes before: a first write goes by the properties that were read as it was opened."""
    for at in range(REQUESTS + 1):
        bucket = Bucket()
        with bucket.counting():
            made(bucket)
            store = bucket.store()

            def meanwhile(store: Any = store) -> None:
                properties = decode_table(store.read(PROPERTIES) or b"", PROPERTIES)
                store.delete(PROPERTIES)
                store.put(PROPERTIES, encode_table(properties | {"hoodie.table.metadata.partitions": "files"}))

            with one_after_another(0, at, meanwhile):
                table = Table(URI, opening=Opening(store=bucket.store()))
            if at == REQUESTS:
                meanwhile()
            with pytest.raises(InvalidInputError, match="metadata table"):
                table.upsert(pl.DataFrame({"id": ["a"]}))

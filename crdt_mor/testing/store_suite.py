"""Tests for every store: the author of a store runs this class with pytest.

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def store(self) -> Store:
            return MyStore(...)        # an empty one for each test

A passing store keeps the protocol's needs: objects appear whole or not at all, one of several puts of a path wins, and
nothing leads out of the store.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import polars as pl

from crdt_mor.errors import InvalidInputError, StorageUnavailableError
from crdt_mor.store.protocol import Stat, Store

__all__ = ["StoreSuite"]


@contextmanager
def raising(kind: type[BaseException], text: str = "") -> Iterator[None]:
    """Fail unless the block raises this error with this text."""
    try:
        yield
    except kind as error:
        assert text in str(error), f"the message lacks {text!r}: {error}"  # noqa: PT017  without pytest
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def viewed(store: Store, path: str) -> bytes:
    view = store.view(path)
    assert view is not None
    return bytes(view)


def paths(stats: Sequence[Stat]) -> list[str]:
    return [stat.path for stat in stats]


class StoreSuite:
    """Tests of a store; a subclass provides the fixture `store`."""

    def test_a_put_object_reads_back_whole(self, store: Store) -> None:
        content = bytes(range(256)) * 5000
        assert store.put("a/b/c.bin", content) is True
        assert store.read("a/b/c.bin") == content
        assert viewed(store, "a/b/c.bin") == content

    def test_an_empty_object_is_an_object(self, store: Store) -> None:
        assert store.put("empty", b"") is True
        assert store.read("empty") == b""
        assert viewed(store, "empty") == b""
        assert store.put("empty", b"x") is False

    def test_a_view_outlives_the_object(self, store: Store) -> None:
        store.put("x", b"abc" * 10_000)
        view = store.view("x")
        store.delete("x")
        assert view is not None
        assert bytes(view) == b"abc" * 10_000

    def test_the_second_put_of_a_path_loses_and_changes_nothing(self, store: Store) -> None:
        assert store.put("slot", b"first")
        before = store.stat("slot")
        assert store.put("slot", b"second") is False
        assert store.read("slot") == b"first"
        assert store.stat("slot") == before

    def test_a_put_takes_any_bytes_and_keeps_its_own(self, store: Store) -> None:
        content = bytearray(b"abc")
        assert store.put("x", memoryview(content))
        content[0] = 0
        assert store.read("x") == b"abc"

    def test_a_put_takes_pieces_while_they_are_made(self, store: Store) -> None:
        assert store.put("x", (bytes([i]) * i for i in range(200)))
        assert store.read("x") == b"".join(bytes([i]) * i for i in range(200))
        assert store.put("x", iter([b"other"])) is False
        assert store.put("none", iter([])) is True
        assert store.read("none") == b""

    def test_what_fails_in_making_a_piece_is_raised_as_it_is_and_nothing_is_created(self, store: Store) -> None:
        def pieces(error: type[BaseException]) -> Iterator[bytes]:
            yield b"half"
            raise error("the maker's")

        for error in (ValueError, FileNotFoundError, OSError, KeyboardInterrupt):
            with raising(error, "the maker's"):
                store.put("folder/x", pieces(error))
            assert store.read("folder/x") is None
        assert store.put("folder/x", b"whole")

    def test_a_copy_is_whole_put_once_and_outlives_its_source(self, store: Store) -> None:
        store.put("folder/staged", b"abc" * 10_000, durable=False)
        assert store.copy("folder/staged", "other/final") is True
        assert store.copy("folder/staged", "other/final") is False
        store.delete("folder/staged")
        assert store.read("other/final") == b"abc" * 10_000
        store.put("folder/second", b"x")
        assert store.copy("folder/second", "other/final") is False
        assert store.read("other/final") == b"abc" * 10_000

    def test_what_is_not_there_cannot_be_copied(self, store: Store) -> None:
        with raising(StorageUnavailableError):
            store.copy("nothing", "final")
        assert store.stat("final") is None

    def test_what_is_not_there_is_none(self, store: Store) -> None:
        store.put("folder/file", b"x")
        for path in ("nothing", "folder", "folder/nothing", "folder/file/below"):
            assert store.read(path) is None
            assert store.view(path) is None
            assert store.stat(path) is None

    def test_a_deleted_path_is_free_again(self, store: Store) -> None:
        store.put("a/x", b"1")
        store.delete("a/x")
        store.delete("a/x")
        store.delete("never/was")
        assert store.read("a/x") is None
        assert store.put("a/x", b"2") is True

    def test_stat_tells_size_and_age_by_the_store_s_own_clock(self, store: Store) -> None:
        before = store.now_ms()
        store.put("x", b"12345")
        found = store.stat("x")
        assert found is not None
        assert (found.path, found.size) == ("x", 5)
        assert before <= found.modified_ms <= store.now_ms()

    def test_list_shows_one_folder_sorted_and_not_what_is_below(self, store: Store) -> None:
        for path in ("f/b", "f/a", "f/.hidden", "f/deep/c", "fa", "other/x"):
            store.put(path, b"")
        assert paths(store.list("f")) == ["f/.hidden", "f/a", "f/b"]
        assert paths(store.list("f/")) == ["f/.hidden", "f/a", "f/b"]
        assert paths(store.list("")) == ["fa"]
        assert store.list("no/such") == []

    def test_walk_shows_all_below_but_hoodie_only_when_asked(self, store: Store) -> None:
        for path in ("a/1", "a/b/2", ".hoodie/p", ".hoodie/timeline/t", "a/.hoodie/kept", ".hoodies/kept"):
            store.put(path, b"")
        assert paths(store.walk("")) == [".hoodies/kept", "a/.hoodie/kept", "a/1", "a/b/2"]
        assert paths(store.walk("a")) == ["a/.hoodie/kept", "a/1", "a/b/2"]
        assert {".hoodie/p", ".hoodie/timeline/t"} <= set(paths(store.walk(".hoodie")))
        assert paths(store.walk(".hoodie/timeline")) == [".hoodie/timeline/t"]
        assert store.walk("no/such") == []

    def test_touch_makes_an_empty_object_and_then_moves_its_time_only(self, store: Store) -> None:
        store.touch("beat/1")
        first = store.stat("beat/1")
        store.touch("beat/1")
        second = store.stat("beat/1")
        assert first is not None
        assert second is not None
        assert first.size == second.size == 0
        assert first.modified_ms <= second.modified_ms <= store.now_ms()
        store.put("full", b"kept")
        store.touch("full")
        assert store.read("full") == b"kept"

    def test_making_an_object_durable_changes_nothing_and_needs_no_object(self, store: Store) -> None:
        store.make_durable("no/such/object")
        store.put("a/x", b"1")
        store.make_durable("a/x")
        assert store.read("a/x") == b"1"
        assert store.stat("no/such/object") is None

    def test_a_parquet_file_is_read_through_its_source(self, store: Store) -> None:
        written = io.BytesIO()
        rows = pl.DataFrame({"id": ["a", "b"], "n": [1, 2]})
        rows.write_parquet(written)
        path = "day=[2025] 100%/*.parquet"  # only looks like a pattern
        store.put(path, written.getvalue())
        source = store.parquet(path)
        assert source is not None
        assert source.scan().collect().equals(rows)
        narrow = source.scan({"n": pl.Int64(), "new": pl.String()})
        assert narrow.filter(pl.col("n") > 1).collect().rows() == [(2, None)]
        with source.open() as file:
            assert file.metadata.num_rows == 2
        assert path in source.name, "messages can name it"

    def test_there_is_no_source_of_a_parquet_file_that_is_not_there(self, store: Store) -> None:
        assert store.parquet("folder/none.parquet") is None

    def test_what_need_not_be_durable_is_whole_and_put_once_all_the_same(self, store: Store) -> None:
        assert store.put("a/hint", b"1", durable=False)
        assert not store.put("a/hint", b"2", durable=False)
        assert store.read("a/hint") == b"1"

    def test_what_is_to_last_later_is_whole_and_put_once_all_the_same(self, store: Store) -> None:
        assert store.put("a/first", b"1", durable="content")
        assert store.put("a/second", b"2", durable="content")
        assert not store.put("a/first", b"3", durable="content")
        store.make_durable("a/second")
        assert store.put("b/third", b"4", after=("a/first", "a/none", "none/first"))
        assert not store.put("b/third", b"5", after=("a/first",))
        assert store.read("b/third") == b"4"
        assert [store.read(path) for path in ("a/first", "a/second")] == [b"1", b"2"]

    def test_no_path_leads_out_of_the_store(self, store: Store) -> None:
        for path in ("", "/etc/x", "../x", "a/../../x", "a//b", "a/./b", "a/", "a\0b"):
            with raising(InvalidInputError, "relative"):
                store.put(path, b"")
            with raising(InvalidInputError, "relative"):
                store.read(path)

    def test_of_many_threads_one_wins_and_all_read_the_winner(self, store: Store) -> None:
        for slot in range(20):
            wins: list[int] = []
            seen: set[bytes | None] = set()
            gate = threading.Lock()

            def run(number: int, path: str = f"slots/{slot}", wins: list[int] = wins, seen: set[bytes | None] = seen,
                    gate: threading.Lock = gate) -> None:  # fmt: skip
                with gate:
                    pass
                if store.put(path, b"%d" % number):
                    wins.append(number)
                seen.add(store.read(path))

            threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
            with gate:  # no thread puts before all have begun
                for thread in threads:
                    thread.start()
            for thread in threads:
                thread.join()
            assert len(wins) == 1
            assert seen == {b"%d" % wins[0]}

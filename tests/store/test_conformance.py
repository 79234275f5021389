"""What every store must do. Each test runs over both; the last compares them step by step."""

from __future__ import annotations

import io
import tempfile
import threading
from collections.abc import Iterator

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor.errors import InvalidInputError, StorageUnavailableError
from crdt_mor.store.base import Store
from crdt_mor.store.local import LocalStore
from crdt_mor.store.memory import MemoryStore


def paths(stats: list[object]) -> list[str]:
    return [stat.path for stat in stats]  # type: ignore[attr-defined]


def test_a_put_object_reads_back_whole(store: Store) -> None:
    content = bytes(range(256)) * 5000
    assert store.put("a/b/c.bin", content) is True
    assert store.read("a/b/c.bin") == content
    assert store.view("a/b/c.bin") == content


def test_an_empty_object_is_an_object(store: Store) -> None:
    assert store.put("empty", b"") is True
    assert store.read("empty") == b""
    assert store.view("empty") == b""
    assert store.put("empty", b"x") is False


def test_a_view_outlives_the_object(store: Store) -> None:
    store.put("x", b"abc" * 10_000)
    view = store.view("x")
    store.delete("x")
    assert view == b"abc" * 10_000


def test_the_second_put_of_a_path_loses_and_changes_nothing(store: Store) -> None:
    assert store.put("slot", b"first")
    before = store.stat("slot")
    assert store.put("slot", b"second") is False
    assert store.read("slot") == b"first"
    assert store.stat("slot") == before


def test_a_put_takes_any_bytes_and_keeps_its_own(store: Store) -> None:
    content = bytearray(b"abc")
    assert store.put("x", memoryview(content))  # type: ignore[arg-type]
    content[0] = 0
    assert store.read("x") == b"abc"


def test_a_put_takes_pieces_while_they_are_made(store: Store) -> None:
    assert store.put("x", (bytes([i]) * i for i in range(200)))
    assert store.read("x") == b"".join(bytes([i]) * i for i in range(200))
    assert store.put("x", iter([b"other"])) is False
    assert store.put("none", iter([])) is True
    assert store.read("none") == b""


@pytest.mark.parametrize("error", [ValueError, FileNotFoundError, OSError, KeyboardInterrupt])
def test_what_fails_in_making_a_piece_is_raised_as_it_is_and_nothing_is_created(
    store: Store, error: type[BaseException]
) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise error("the maker's")

    with pytest.raises(error, match="the maker's"):
        store.put("folder/x", pieces())
    assert store.read("folder/x") is None
    assert store.put("folder/x", b"whole")


def test_a_copy_is_whole_put_once_and_outlives_its_source(store: Store) -> None:
    store.put("folder/staged", b"abc" * 10_000, durable=False)
    assert store.copy("folder/staged", "other/final") is True
    assert store.copy("folder/staged", "other/final") is False
    store.delete("folder/staged")
    assert store.read("other/final") == b"abc" * 10_000
    store.put("folder/second", b"x")
    assert store.copy("folder/second", "other/final") is False
    assert store.read("other/final") == b"abc" * 10_000


def test_what_is_not_there_cannot_be_copied(store: Store) -> None:
    with pytest.raises(StorageUnavailableError):
        store.copy("nothing", "final")
    assert store.stat("final") is None


def test_what_is_not_there_is_none(store: Store) -> None:
    store.put("folder/file", b"x")
    for path in ("nothing", "folder", "folder/nothing", "folder/file/below"):
        assert store.read(path) is None
        assert store.view(path) is None
        assert store.stat(path) is None


def test_a_deleted_path_is_free_again(store: Store) -> None:
    store.put("a/x", b"1")
    store.delete("a/x")
    store.delete("a/x")
    store.delete("never/was")
    assert store.read("a/x") is None
    assert store.put("a/x", b"2") is True


def test_stat_tells_size_and_age_by_the_store_s_own_clock(store: Store) -> None:
    before = store.now_ms()
    store.put("x", b"12345")
    found = store.stat("x")
    assert found is not None
    assert (found.path, found.size) == ("x", 5)
    assert before <= found.modified_ms <= store.now_ms()


def test_list_shows_one_folder_sorted_and_not_what_is_below(store: Store) -> None:
    for path in ("f/b", "f/a", "f/.hidden", "f/deep/c", "fa", "other/x"):
        store.put(path, b"")
    assert paths(store.list("f")) == ["f/.hidden", "f/a", "f/b"]
    assert paths(store.list("f/")) == ["f/.hidden", "f/a", "f/b"]
    assert paths(store.list("")) == ["fa"]
    assert store.list("no/such") == []


def test_walk_shows_all_below_but_hoodie_only_when_asked(store: Store) -> None:
    for path in ("a/1", "a/b/2", ".hoodie/p", ".hoodie/timeline/t", "a/.hoodie/kept", ".hoodies/kept"):
        store.put(path, b"")
    assert paths(store.walk("")) == [".hoodies/kept", "a/.hoodie/kept", "a/1", "a/b/2"]
    assert paths(store.walk("a")) == ["a/.hoodie/kept", "a/1", "a/b/2"]
    assert {".hoodie/p", ".hoodie/timeline/t"} <= set(paths(store.walk(".hoodie")))
    assert paths(store.walk(".hoodie/timeline")) == [".hoodie/timeline/t"]
    assert store.walk("no/such") == []


def test_touch_makes_an_empty_object_and_then_moves_its_time_only(store: Store) -> None:
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


def test_making_an_object_durable_changes_nothing_and_needs_no_object(store: Store) -> None:
    store.make_durable("no/such/object")
    store.put("a/x", b"1")
    store.make_durable("a/x")
    assert store.read("a/x") == b"1"
    assert store.stat("no/such/object") is None


def test_a_parquet_file_is_read_through_its_source(store: Store) -> None:
    written = io.BytesIO()
    rows = pl.DataFrame({"id": ["a", "b"], "n": [1, 2]})
    rows.write_parquet(written)
    path = "day=[2025] 100%/*.parquet"  # no pattern, though it looks like one
    store.put(path, written.getvalue())
    source = store.parquet(path)
    assert source is not None
    assert source.scan().collect().equals(rows)
    narrow = source.scan({"n": pl.Int64(), "new": pl.String()})
    assert narrow.filter(pl.col("n") > 1).collect().rows() == [(2, None)]
    with source.open() as file:
        assert file.metadata.num_rows == 2
    assert path in source.name, "messages can name it"


def test_there_is_no_source_of_a_parquet_file_that_is_not_there(store: Store) -> None:
    assert store.parquet("folder/none.parquet") is None


def test_what_need_not_be_durable_is_whole_and_put_once_all_the_same(store: Store) -> None:
    assert store.put("a/hint", b"1", durable=False)
    assert not store.put("a/hint", b"2", durable=False)
    assert store.read("a/hint") == b"1"


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../../x", "a//b", "a/./b", "a/", "a\0b"])
def test_no_path_leads_out_of_the_store(store: Store, path: str) -> None:
    with pytest.raises(InvalidInputError, match="relative"):
        store.put(path, b"")
    with pytest.raises(InvalidInputError, match="relative"):
        store.read(path)


def test_of_many_threads_one_wins_and_all_read_the_winner(store: Store) -> None:
    for slot in range(20):
        wins: list[int] = []
        seen: set[bytes | None] = set()
        start = threading.Barrier(6)

        def run(number: int, slot: int = slot, wins: list[int] = wins, seen: set[bytes | None] = seen,
                start: threading.Barrier = start) -> None:  # fmt: skip
            start.wait()
            if store.put(f"slots/{slot}", b"%d" % number):
                wins.append(number)
            seen.add(store.read(f"slots/{slot}"))

        threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(wins) == 1
        assert seen == {b"%d" % wins[0]}


PATHS = st.sampled_from(["a/1", "a/2", "a/b/3", ".hoodie/x/4", "5"])
FOLDERS = st.sampled_from(["", "a", "a/b", ".hoodie/x", "c"])
STEPS = st.one_of(
    st.tuples(st.just("put"), PATHS, st.binary(max_size=4)),
    st.tuples(st.sampled_from(["read", "delete", "touch"]), PATHS),
    st.tuples(st.sampled_from(["list", "walk"]), FOLDERS),
)


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=25))
def test_disk_and_memory_give_the_same_answers(steps: list[tuple[str, ...]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        disk, memory = LocalStore(root), MemoryStore()
        for name, *arguments in steps:
            answers = [getattr(store, name)(*arguments) for store in (disk, memory)]
            if name in {"list", "walk"}:
                answers = [[(stat.path, stat.size) for stat in answer] for answer in answers]
            assert answers[0] == answers[1], (name, *arguments)

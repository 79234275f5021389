"""Objects in buckets that are read in ranges: the right bytes, in few requests."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.store.ranges import AT_ONCE, TAIL_BYTES, WHOLE_BYTES_MAX, Files, Range, RangedFile

SMALL = bytes(i % 251 for i in range(1000))
LARGE = Random(1).randbytes(WHOLE_BYTES_MAX + 5 * TAIL_BYTES)


class Asked:
    """A file of which it is noted what is asked."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.requests: list[Range] = []
        self.file = RangedFile(self._request, len(content))

    def _request(self, ranges: Sequence[Range]) -> list[bytes]:
        self.requests += ranges
        return [self.content[start : start + length] for start, length in ranges]


def test_a_small_file_is_one_request() -> None:
    asked = Asked(SMALL)
    with asked.file.open() as file:
        file.seek(-8, 2)
        assert file.read(4) == SMALL[-8:-4]
        file.seek(0)
        assert file.read() == SMALL
    assert asked.file.read_all([(0, 10), (990, 10)]) == [SMALL[:10], SMALL[990:]]
    assert asked.requests == [(0, len(SMALL))]


def test_the_end_of_a_large_file_is_kept_and_the_rest_is_not() -> None:
    asked = Asked(LARGE)
    assert asked.file.read(len(LARGE) - 8, 8) == LARGE[-8:]
    assert asked.file.read(len(LARGE) - TAIL_BYTES, 100) == LARGE[-TAIL_BYTES:][:100]
    assert asked.requests == [(len(LARGE) - TAIL_BYTES, TAIL_BYTES)]
    longer = len(LARGE) - 2 * TAIL_BYTES
    assert asked.file.read(longer, 2 * TAIL_BYTES - 8) == LARGE[longer:-8], "a footer that is longer than was guessed"
    assert asked.requests[1:] == [(longer, TAIL_BYTES)]
    assert asked.file.read(0, len(LARGE)) == LARGE
    assert asked.file.kept == 2 * TAIL_BYTES


def test_places_that_are_near_each_other_are_one_request() -> None:
    asked = Asked(LARGE)
    far = 300 << 10
    found = asked.file.read_all([(0, 10), (20, 10), (far, 5), (10, 3), (5, 0)])
    assert found == [LARGE[:10], LARGE[20:30], LARGE[far : far + 5], LARGE[10:13], b""]
    assert asked.requests == [(0, 30), (far, 5)]


def test_many_places_are_no_more_requests_than_the_client_makes_at_once() -> None:
    content = bytes(4 << 20)
    asked = Asked(content)
    asked.file.read_all([(start, 10) for start in range(0, len(content), 100 << 10)])
    assert len(asked.requests) <= AT_ONCE


@given(st.lists(st.tuples(st.integers(0, len(LARGE)), st.integers(0, 3000)), max_size=30), st.booleans())
def test_any_places_have_their_bytes(places: list[Range], known: bool) -> None:
    asked = Asked(LARGE)
    places = [(start, min(length, len(LARGE) - start)) for start, length in places]
    if known:
        asked.file.read(len(LARGE) - 1, 1)
    assert asked.file.read_all(places) == [LARGE[start : start + length] for start, length in places]


def test_what_is_kept_of_files_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.store.ranges._KEPT_BYTES", 2 * len(SMALL))
    files, asked = Files(), Asked(SMALL)
    for number in (1, 2, 3, 3):
        files.file(f"file {number}", len(SMALL), asked._request).read(0, len(SMALL))
    assert len(asked.requests) == 3
    files.file("file 4", len(SMALL), asked._request)
    files.file("file 1", len(SMALL), asked._request).read(0, len(SMALL))
    assert len(asked.requests) == 4, "the file that was used least lately is let go"

"""Sorting keys by words is sorting them as text."""

from __future__ import annotations

from itertools import product
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crdt_mor.merge import key_words
from crdt_mor.merge.key_words import Keys, distinct_keys, last_of_each, places_of, text_order, words_of

FEW = st.text(alphabet=st.sampled_from("ab\0é€😀"), max_size=30)
"""Many of them begin alike, or differ in zero bytes alone."""


@pytest.mark.slow
@given(st.lists(FEW | st.text(max_size=30)))
@example(["a\0", "a", "a\0\0", ""])
@example(["common-beginning-of-all/" + tail for tail in ("b", "a" * 9, "a" * 8, "a" * 17, "a" * 8 + "b", "")])
def test_keys_are_sorted_by_their_utf8_bytes(keys: list[str]) -> None:
    for few in (1, 1024):  # up to so many keys polars sorts
        with patch.object(key_words, "_FEW", few):
            places = text_order(pl.Series(keys, dtype=pl.String)).to_list()
        assert sorted(places) == list(range(len(keys)))
        assert [keys[at] for at in places] == sorted(keys, key=str.encode)


@pytest.mark.parametrize("shape", ["{:06}", "{:x}", "2026-01-01T00:00:00Z/device-{:06}", "{0}-{0:040}"])
def test_many_keys_of_one_shape_in_many_chunks(shape: str) -> None:
    keys = pl.concat([pl.Series([shape.format(i * 7919 % 30_011) for i in part]) for part in (range(20_000), range(9))])
    assert keys.n_chunks() == 2
    assert keys.gather(text_order(keys)).equals(keys.sort())


TAILS = st.text(alphabet=st.sampled_from("ab\0é9"), max_size=9)
WORDS = st.sampled_from(["", "k", "user-", "a-long-beginning/"]).flatmap(
    lambda head: st.lists(TAILS.map(lambda tail: head + tail), min_size=1)
)
"""Keys that are words or nearly so."""


@pytest.mark.slow
@given(WORDS, WORDS)
@example(["k1", "k10", "k2"], ["k10", "k3"])
@example(["a\0", "a"], ["a"])
@example(["0123456789ab", "0123456789aa"], ["0123456789ab"])
def test_words_are_equal_and_less_just_where_keys_are(some: list[str], more: list[str]) -> None:
    keys = [*some, *more]
    words = words_of(pl.Series(keys))
    if words is None:
        return
    pairs = [(key.encode(), int(word)) for key, word in zip(keys, words, strict=True)]
    for (key, word), (other_key, other_word) in product(pairs, pairs):
        assert (key < other_key) == (word < other_word)
        assert (key == other_key) == (word == other_word)


@pytest.mark.parametrize("shape", ["{}", "{:07}", "user-{:08}", "a-long-beginning/{:x}", "é{:06}"])
def test_common_keys_are_words(shape: str) -> None:
    assert words_of(pl.Series([shape.format(i) for i in range(0, 1_000_000, 997)])) is not None


@pytest.mark.parametrize("keys", [["123456789", "0"], ["a", "a\0"], [1, 2], []])
def test_other_keys_are_not(keys: list[object]) -> None:
    assert words_of(pl.Series(keys)) is None


@given(WORDS)
def test_the_last_of_each_key_is_found(keys: list[str]) -> None:
    series = pl.Series(keys)
    with patch.object(key_words, "_MANY", 0):
        is_last, ascending = last_of_each(series)
        distinct = distinct_keys(series)
    assert is_last.to_list() == series.is_last_distinct().to_list()
    assert distinct.texts.to_list() == series.filter(is_last).to_list()
    if ascending is not None:
        assert [distinct.texts[int(i)] for i in ascending] == sorted(set(keys), key=str.encode)


@pytest.mark.slow
@given(WORDS, WORDS, st.booleans())
@example(["k0", "k9"], ["k3", "k2"], True)
@example(["k3"], ["k0", "k9", "j"], True)
def test_places_are_those_of_the_wanted_keys_or_not_known(keys: list[str], wanted: list[str], known: bool) -> None:
    with patch.object(key_words, "_MANY", 0):
        distinct = distinct_keys(pl.Series(wanted)) if known else Keys(pl.Series(wanted).unique(maintain_order=True))
    assert keys == sorted(set(keys), key=str.encode) or places_of(distinct, pl.Series(keys)) is None
    keys = sorted(set(keys), key=str.encode)
    found = places_of(distinct, pl.Series(keys))
    if found is not None:
        assert [(at, distinct.texts[int(i)]) for at, i in zip(*found, strict=True)] == [
            (at, key) for at, key in enumerate(keys) if key in wanted
        ]

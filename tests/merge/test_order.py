"""Sorting keys by words is sorting them as text."""

from __future__ import annotations

from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crdt_mor.merge import order
from crdt_mor.merge.order import text_order

FEW = st.text(alphabet=st.sampled_from("ab\0é€😀"), max_size=30)
"""Many of them begin alike, or differ in zero bytes alone."""


@given(st.lists(FEW | st.text(max_size=30)))
@example(["a\0", "a", "a\0\0", ""])
@example(["common-beginning-of-all/" + tail for tail in ("b", "a" * 9, "a" * 8, "a" * 17, "a" * 8 + "b", "")])
def test_keys_are_sorted_by_their_utf8_bytes(keys: list[str]) -> None:
    for few in (1, 1024):  # up to so many keys polars sorts
        with patch.object(order, "_FEW", few):
            places = text_order(pl.Series(keys, dtype=pl.String)).to_list()
        assert sorted(places) == list(range(len(keys)))
        assert [keys[at] for at in places] == sorted(keys, key=str.encode)


@pytest.mark.parametrize("shape", ["{:06}", "{:x}", "2026-01-01T00:00:00Z/device-{:06}", "{0}-{0:040}"])
def test_many_keys_of_one_shape_in_many_chunks(shape: str) -> None:
    keys = pl.concat([pl.Series([shape.format(i * 7919 % 30_011) for i in part]) for part in (range(20_000), range(9))])
    assert keys.n_chunks() == 2
    assert keys.gather(text_order(keys)).equals(keys.sort())

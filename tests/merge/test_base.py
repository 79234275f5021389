"""Finding the rows of some keys in a base: by hash, and by nothing but the keys themselves."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.merge.base_rows import Decoded
from crdt_mor.merge.key_words import Keys

KEYS = st.lists(st.text("ab", max_size=3), unique=True, max_size=12)


@given(KEYS, KEYS, st.booleans())
def test_every_key_is_found_where_it_is(here: list[str], wanted: list[str], collide: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if collide:  # all keys share one hash: the text alone decides
            patch.setattr(pl.Series, "hash", lambda keys: pl.zeros(len(keys), pl.UInt64, eager=True))
        frame = pl.DataFrame({"id": here, "n": range(len(here))}, schema={"id": pl.String, "n": pl.Int64})
        found = Decoded.of(frame, "id", Keys(pl.Series(wanted, dtype=pl.String)))
    expected = [(place, wanted.index(key)) for place, key in enumerate(here) if key in wanted]
    assert list(zip(found.places.tolist(), found.numbers.tolist(), strict=True)) == expected
    kept = pl.Series([key for key in wanted if key in here][:2], dtype=pl.String)
    assert set(found.rows(kept, [pl.col("n")]).rows()) == {(key, here.index(key)) for key in kept}
    assert found.others(["id"])["id"].to_list() == [key for key in here if key not in wanted]

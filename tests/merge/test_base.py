"""Finding the rows of some keys in a base: by hash, and by nothing but the keys themselves."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge import base_rows
from crdt_mor.merge.base_rows import BaseScan, DecodedBase, rows_and_masks
from crdt_mor.merge.key_words import Keys
from tests.merge.helpers import COLUMNS, frame, stamp


def _counted(call: Callable[..., Any], calls: list[object]) -> Callable[..., Any]:
    """The same, with each call noted."""

    def counted(*args: Any, **settings: Any) -> Any:
        calls.append(args)
        return call(*args, **settings)

    return counted


KEYS = st.lists(st.text("ab", max_size=3), unique=True, max_size=12)


@pytest.mark.slow
@given(KEYS, KEYS, st.booleans())
def test_every_key_is_found_where_it_is(here: list[str], wanted: list[str], collide: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if collide:  # all keys share one hash: the text alone decides
            patch.setattr(pl.Series, "hash", lambda keys: pl.zeros(len(keys), pl.UInt64, eager=True))
        frame = pl.DataFrame({"id": here, "n": range(len(here))}, schema={"id": pl.String, "n": pl.Int64})
        found = DecodedBase.of(frame, "id", Keys(pl.Series(wanted, dtype=pl.String)))
    expected = [(place, wanted.index(key)) for place, key in enumerate(here) if key in wanted]
    assert list(zip(found.places.tolist(), found.numbers.tolist(), strict=True)) == expected
    kept = pl.Series([key for key in wanted if key in here][:2], dtype=pl.String)
    assert set(found.rows(kept, [pl.col("n")]).rows()) == {(key, here.index(key)) for key in kept}
    assert found.untouched_rows(["id"])["id"].to_list() == [key for key in here if key not in wanted]


@pytest.mark.costly
@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("select", [["k", "v"], ["v", "k"], ["v"], ["k"]])
@pytest.mark.parametrize("groups", [1, 4])
def test_columns_beside_the_keys_stay_in_the_chunks_in_which_they_were_decoded(
    groups: int, select: list[str], small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_rows, "SMALL_BYTES", 1 << 30 if small else 0)
    decoded: list[object] = []
    monkeypatch.setattr(pl, "collect_all", _counted(pl.collect_all, decoded))
    rows = frame([(stamp(1), f"k{i:05}", i) for i in range(40_000)])
    file = io.BytesIO()
    rows.write_parquet(file, row_group_size=len(rows) // groups)
    base = BaseScan(ParquetSource.in_memory(file.getvalue()), COLUMNS, "k")
    drop = [f"k{i:05}" for i in range(0, 40_000, 7)]
    [(found, stand)] = rows_and_masks([base], [Keys(pl.Series(drop))], select)
    expected = rows.filter(pl.Series([i % 7 > 0 for i in range(40_000)]))
    assert found.equals(expected.select(select))
    assert stand.tolist() == [i % 7 > 0 for i in range(40_000)]
    sizes = [column.chunk_lengths() for column in found]
    assert len(decoded) == (1 if small or select == ["k"] else 2), "a small base is opened once"
    assert sizes == sizes[:1] * len(select)
    assert len(sizes[0]) >= groups, "each decoded group of rows by itself, and nothing was copied into one chunk"

"""The order of rows in a base file: by columns, ties by key, the same for the same rows; z-order keeps near what is."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.merge.clustering import clustered_places
from crdt_mor.model.layout import Z_ORDER, Layout

ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-3, 3),
        st.none() | st.sampled_from([0.0, -0.0, float("nan"), 1.5]),
        st.text("aé", max_size=2),
    ),
    max_size=20,
)


def frame(rows: list[tuple[int | None, float | None, str]]) -> pl.DataFrame:
    """Rows in the order of their keys."""
    keys = [f"{i:02d}" for i in range(len(rows))]
    columns = {"key": keys, **{name: [row[i] for row in rows] for i, name in enumerate("abc")}}
    return pl.DataFrame(columns, {"key": pl.String, "a": pl.Int64, "b": pl.Float64, "c": pl.String})


@pytest.mark.slow
@given(ROWS)
def test_linear_is_by_the_columns_one_after_the_other_and_then_by_key(
    rows: list[tuple[int | None, float | None, str]],
) -> None:
    there = frame(rows)
    found = there[clustered_places(there, Layout(("a", "c")))]
    expected = sorted(there.rows(), key=lambda row: (row[1] is not None, row[1] or 0, row[3], row[0]))
    assert found["key"].to_list() == [row[0] for row in expected]


@pytest.mark.slow
@given(ROWS, st.sampled_from(["linear", Z_ORDER]), st.permutations(["a", "b", "c"]), st.integers(1, 3))
def test_every_row_has_one_place_whatever_the_chunks(
    rows: list[tuple[int | None, float | None, str]], order: str, columns: list[str], count: int
) -> None:
    there, layout = frame(rows), Layout(tuple(columns[:count]), order)
    places = clustered_places(there, layout)
    assert sorted(places) == list(range(len(rows)))
    in_chunks = pl.concat([there[:3], there[3:7], there[7:]], rechunk=False)
    assert clustered_places(in_chunks, layout).to_list() == places.to_list()


@pytest.mark.slow
@given(ROWS, st.sampled_from(["a", "b", "c"]))
def test_a_z_order_of_one_column_is_linear(rows: list[tuple[int | None, float | None, str]], column: str) -> None:
    there = frame(rows)
    linear, z = (clustered_places(there, Layout((column,), order)).to_list() for order in ("linear", Z_ORDER))
    assert linear == z


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_a_z_order_lets_a_filter_on_any_of_its_columns_skip_blocks(columns: int) -> None:
    """Of 256 blocks of rows, those that may hold one value of a column: linear is good at the first column alone."""
    random = np.random.default_rng(7)
    names = [f"c{i}" for i in range(columns)]
    there = pl.DataFrame({name: random.zipf(1.5, 1 << 14) % 1000 + random.random(1 << 14) for name in names})

    def blocks_read(layout: Layout) -> list[float]:
        places = clustered_places(there, layout)
        read = []
        for name in names:
            blocks = there[name].gather(places).reshape((256, -1))
            least, greatest = blocks.arr.min(), blocks.arr.max()
            read.append(float(np.mean([((least <= v) & (v <= greatest)).mean() or 0 for v in there[name].head(200)])))
        return read

    z, linear = blocks_read(Layout(tuple(names), Z_ORDER)), blocks_read(Layout(tuple(names)))
    assert max(z) < 3 * 256 ** (-1 / columns)
    assert columns == 1 or max(z) < max(linear) / 2

"""Parts of a read: neighbours stay together, no item is lost, and no part is much heavier than the others."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.model.slices import balanced_parts, batches_of

WEIGHTS = st.lists(st.integers(1, 1000), max_size=60)
SIZES = st.integers(1, 3000)


def parts_of(weights: Sequence[int], size: int) -> list[Sequence[int]]:
    """The places of the weights, in parts."""
    return balanced_parts(enumerate(weights), size)


@given(WEIGHTS, SIZES)
def test_every_item_is_in_one_part_in_its_order(weights: list[int], size: int) -> None:
    parts = parts_of(weights, size)
    assert [place for part in parts for place in part] == list(range(len(weights)))
    assert all(parts)


@given(WEIGHTS, SIZES)
def test_parts_are_as_few_and_as_heavy_as_their_size_says_but_for_one_item(weights: list[int], size: int) -> None:
    parts, count = parts_of(weights, size), -(-sum(weights) // size)
    assert len(parts) <= count
    for part in parts:
        assert sum(weights[place] for place in part) <= sum(weights) / count + max(weights[place] for place in part)


@given(WEIGHTS, SIZES)
def test_an_item_of_twice_a_part_is_a_part_of_its_own(weights: list[int], size: int) -> None:
    share = sum(weights) / max(1, -(-sum(weights) // size))
    for part in parts_of(weights, size):
        assert len(part) == 1 or all(weights[place] <= 2 * share for place in part)


def test_nothing_is_no_part() -> None:
    assert parts_of([], 1) == []


@given(WEIGHTS, SIZES)
def test_batches_keep_the_order_and_are_as_full_as_their_size_allows(weights: list[int], size: int) -> None:
    batches = batches_of(enumerate(weights), size)
    assert [place for batch in batches for place in batch] == list(range(len(weights)))
    sums = [sum(weights[place] for place in batch) for batch in batches]
    assert all(whole <= size or len(batch) == 1 for batch, whole in zip(batches, sums, strict=True))
    assert all(whole + weights[after[0]] > size for whole, after in zip(sums, batches[1:], strict=False))

"""The changes of one commit, folded: under partial updates with an ordering column in any order of arrival."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.cdc import Change
from crdt_mor.cdc.folding import fold

COLUMNS = ("a", "b", "c")
GIVEN = st.one_of(st.none(), st.sets(st.sampled_from(COLUMNS)))
"""The columns of an update; None: a delete."""


@given(st.lists(GIVEN, min_size=1, max_size=6), st.randoms())
def test_the_newest_event_decides_each_column_in_any_order_of_arrival(events: Any, random: Any) -> None:
    arrived = [*enumerate(events)]
    random.shuffle(arrived)
    changes = [_change(place, order, given) for place, (order, given) in enumerate(arrived)]
    folded = fold(changes, ["id"], ordered=True, layered=True)
    floor = max((order for order, given in arrived if given is None), default=None)
    last = {name: order for order, given in enumerate(events) if given is not None for name in sorted(given)}
    parts = folded.parts((1,))
    found = {name: order for order, row in parts for name in row if name != "id"}
    assert found == {name: order for name, order in last.items() if floor is None or order > floor}
    assert all(value == order for order, row in parts for name, value in row.items() if name != "id")
    assert folded.keys[(1,)].deleted_at == floor
    assert bool(parts) == (floor is None or floor < len(events) - 1)


def _change(place: int, order: int, given: set[str] | None) -> Change:
    if given is None:
        return Change("d", place, "s", key={"id": 1}, order=order)
    return Change("u", place, "s", row={"id": 1} | dict.fromkeys(given, order), order=order)

"""Which change of columns has landed, as the simulator tells by what a table shows and what processes were told."""

from __future__ import annotations

import pyarrow as pa
import pytest

from crdt_mor.testing.simulation import BrokenPromiseError
from crdt_mor.testing.simulation.columns import Columns


def columns() -> Columns:
    return Columns({"k": pa.string(), "note": pa.string()})


def test_a_rename_that_shows_has_landed_though_a_drop_was_asked_for_before_it() -> None:
    made = columns()
    drop, rename = made.requested("note", None), made.requested("note", "other")
    rename.reported = "committed"
    made.look(["k", "other"])
    drop.reported = "not written"
    made.look(["k", "other"])
    assert made.names == {"k": "k", "note": "other"}
    assert (drop.has_landed, rename.has_landed) == (False, True)


def test_of_two_drops_that_one_has_landed_which_is_told_so_later() -> None:
    made = columns()
    first, second = made.requested("note", None), made.requested("note", None)
    made.look(["k"])
    second.reported = "committed"
    made.look(["k"])
    first.reported = "not written"
    made.look(["k"])
    assert (first.has_landed, second.has_landed) == (False, True)


def test_a_drop_that_failed_is_not_the_one_that_landed_after_it() -> None:
    made = columns()
    made.requested("note", None).reported = "not written"
    second = made.requested("note", None)
    made.look(["k"])
    assert second.has_landed


def test_one_drop_of_a_column_lands() -> None:
    made = columns()
    for drop in (made.requested("note", None), made.requested("note", None)):
        drop.reported = "committed"
    with pytest.raises(BrokenPromiseError, match="nothing-lost"):
        made.look(["k"])


def test_a_drop_that_was_told_to_have_failed_does_not_show() -> None:
    made = columns()
    made.requested("note", None).reported = "not written"
    with pytest.raises(BrokenPromiseError, match="given-up-stays-away"):
        made.look(["k"])


def test_a_column_that_is_gone_was_altered() -> None:
    made = columns()
    made.requested("note", "other").reported = "unknown"
    with pytest.raises(BrokenPromiseError, match="the table's columns are"):
        made.look(["k"])


def test_no_column_is_dropped_which_a_write_gives_that_may_add_columns() -> None:
    made = columns()
    made.giving = {"note"}
    assert made.droppable == []
    assert "note" in made.alterable


def test_a_drop_of_which_nobody_knows_what_became_of_it_may_yet_land() -> None:
    made = columns()
    drop = made.requested("note", None)
    drop.reported = "unknown"
    assert made.is_dropping
    made.look(["k"])
    assert not made.is_dropping

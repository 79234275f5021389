"""Null and NaN where values decide which row is later: null is the least, NaN the greatest, and who takes them."""

from __future__ import annotations

from math import isnan, nan
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.payloads import LatestBy
from crdt_mor.store import MemoryStore

SCHEMA = pa.schema([("id", pa.string()), ("at", pa.float64()), ("v", pa.int64())])


def rows(*given: tuple[str, float | None, int | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in given], SCHEMA)


def made(**settings: Any) -> Table:
    return Table.create("t", SCHEMA, key="id", buckets=1, opening=Opening(store=MemoryStore()), **settings)


def with_nan(monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table with a row of an earlier release, which took NaN."""
    table = made(ordering="at")
    with monkeypatch.context() as earlier:
        earlier.setattr("crdt_mor.write.statements.hold_ordering", lambda *_: None)
        table.upsert(rows(("a", nan, 1), ("b", 1.0, 1)))
    return table


@pytest.mark.parametrize("value", [None, nan])
def test_write_of_an_ordering_value_that_always_loses_or_wins_is_refused(value: float | None) -> None:
    table = made(ordering="at")
    bad = rows(("a", 1.0, 1), ("b", value, 1))
    new = table.merge(bad, on="id").when_not_matched_insert_all()
    for write in (table.upsert, table.append, table.overwrite, lambda _: new.execute()):
        with pytest.raises(InvalidInputError, match=r"ordering value must not be (null|NaN)"):
            write(bad)
    assert table.count() == 0


@pytest.mark.parametrize("value", ["CAST('nan' AS DOUBLE)", "NULL"])
def test_update_to_an_ordering_value_that_always_loses_or_wins_is_refused(value: str) -> None:
    table = made(ordering="at")
    table.upsert(rows(("a", 1.0, 1)))
    with pytest.raises(InvalidInputError, match=r"must not be set to NaN|lower ordering value"):
        table.update({"at": value})
    with pytest.raises(InvalidInputError, match=r"must not be set to NaN|lower ordering value"):
        table.merge(rows(("a", 2.0, 2)), on="id").when_matched_update({"at": value}).execute()
    assert table.to_arrow()["at"].to_pylist() == [1.0]


def test_row_with_nan_of_an_earlier_release_is_still_updated_and_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    table = with_nan(monkeypatch)
    assert table.update({"v": "v + 1"}).rows == 2
    table.upsert(rows(("a", 1e308, 9)))
    shown = {row["id"]: row for row in table.to_arrow().to_pylist()}
    assert isnan(shown["a"]["at"])
    assert (shown["a"]["v"], shown["b"]["v"]) == (2, 2)
    assert table.delete(where="id = 'a'").deletes == 1
    assert table.count() == 1


def test_row_with_nan_of_an_earlier_release_becomes_one_with_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    table = with_nan(monkeypatch)
    with table.transaction() as tx:
        tx.delete(keys=["a"], plain=True)
        tx.upsert(rows(("a", 2.0, 5)))
    assert table.to_polars().filter(pl.col("id") == "a").rows() == [("a", 2.0, 5)]


def test_latest_by_takes_null_for_the_least_and_nan_for_the_greatest() -> None:
    table = made(merge={("at", "v"): LatestBy("at")})
    for at, shown in ((None, 1), (-1.0, 2), (None, 2), (5.0, 4), (nan, 5), (9.0, 5)):
        number = table.history().num_rows + 1
        table.upsert(rows(("a", at, number)))
        assert table.to_arrow()["v"].to_pylist() == [shown]

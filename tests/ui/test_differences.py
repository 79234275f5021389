"""The rows that differ between two moments, as the page shows them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.cli import render
from crdt_mor.cli.ui import differences
from crdt_mor.cli.ui.differences import differences_of
from tests.simulated import Simulated

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("tags", pa.list_(pa.string()))])


def rows(ids: range, n: int | None) -> pa.Table:
    return pa.table({"id": ids, "n": [n] * len(ids), "tags": [["a"]] * len(ids)}, schema=SCHEMA)


@pytest.fixture
def table() -> mor.Table:
    table = Simulated().create(SCHEMA, key="id", buckets=8)
    table.upsert(rows(range(300), 1))
    return table


def since(table: mor.Table, version: int) -> dict[str, Any]:
    found = differences_of(table, str(version), "now")
    render.as_json(found)  # a document
    return found


def test_each_update_has_the_values_of_its_own_key(table: mor.Table) -> None:
    """Earlier and later images are paired over all file groups."""
    table.maintenance.compact()
    first = table.version
    table.update({"n": "id + 7"}, "id >= 200")
    found = since(table, first)
    assert (found["counts"], found["is_all"]) == ({"inserted": 0, "updated": 100, "deleted": 0}, True)
    for row in found["rows"]:
        assert row["values"] == [{"name": "n", "before": "1", "after": f"{int(row['key']) + 7}"}]


def test_inserts_deletes_and_nulls_are_shown(table: mor.Table) -> None:
    first = table.version
    with table.transaction() as block:
        block.upsert(rows(range(500, 501), None))
        block.delete(keys=[3])
    new, gone = since(table, first)["rows"]
    tags = {"name": "tags", "after": "['a']"}
    assert (new["change"], new["key"], new["values"][0]) == ("inserted", "500", {"name": "n", "after": None})
    assert new["values"][1].keys() == tags.keys()
    assert (gone["change"], gone["key"], gone["values"][0]) == ("deleted", "3", {"name": "n", "before": "1"})


def test_moments_without_a_difference_have_no_rows(table: mor.Table) -> None:
    assert since(table, table.version) == {
        "counts": {"inserted": 0, "updated": 0, "deleted": 0}, "rows": [], "is_all": True
    }  # fmt: skip


def test_only_the_first_rows_and_values_are_listed(table: mor.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "ROWS_MAX", 5)
    monkeypatch.setattr(differences, "VALUES_MAX", 1)
    first = table.version
    table.delete(where="id < 9")
    found = since(table, first)
    assert (found["counts"]["deleted"], len(found["rows"]), found["rows"][0]["more"]) == (9, 5, 1)
    monkeypatch.setattr(differences, "READ_MAX", 1)
    assert since(table, first)["is_all"] is False

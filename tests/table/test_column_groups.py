"""Several groups of columns with a common ordering column, through each door (`tests/merge/test_column_groups.py`)."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor.cli.main import app
from crdt_mor.errors import InvalidInputError, SchemaMismatchError
from crdt_mor.payloads import Counter, LatestBy
from crdt_mor.store import MemoryStore

SCHEMA = pa.schema([
    ("id", pa.int64()), ("name", pa.string()), ("mail", pa.string()), ("bio", pa.string()), ("t", pa.int32()),
    ("price", pa.int64()), ("u", pa.int64()),
])  # fmt: skip
GROUPS: dict[Any, LatestBy] = {
    ("name", "mail", "t"): LatestBy("t"),
    ("bio", "t"): LatestBy("t"),
    ("price", "u"): LatestBy("u"),
}
Row = dict[str, object]


def made(path: Path | None = None, **partial: Any) -> mor.Table:
    merge = mor.PartialUpdate(columns=GROUPS, **partial)
    opening = mor.Opening(store=MemoryStore()) if path is None else None
    uri = "memory://t" if path is None else str(path)
    return mor.Table.create(uri, SCHEMA, key="id", buckets=1, merge=merge, opening=opening)


def row(**values: object) -> pa.Table:
    values = {"id": 1} | values
    return pa.Table.from_pylist([values], pa.schema([SCHEMA.field(name) for name in values]))


def shown(table: mor.Table) -> list[object]:
    (found,) = table.to_arrow().to_pylist()
    return [*found.values()][1:]


EVENTS: tuple[Row, ...] = (
    {"name": "n5", "mail": None, "t": 5},
    {"name": "n4", "mail": "m4", "t": 4},
    {"bio": "b3", "t": 3},
    {"bio": "b2", "t": 2, "price": 1, "u": 9},
)


@pytest.mark.costly
@pytest.mark.parametrize("order", [*permutations(range(4))][5::5])
def test_each_group_has_an_order_of_its_own_and_the_greatest_is_shown(order: tuple[int, ...]) -> None:
    for compacted in (None, *order):
        table = made()
        for place in order:
            table.upsert(row(**EVENTS[place]))
            if place == compacted:
                table.maintenance.compact()
        assert shown(table) == ["n5", None, "b3", 5, 1, 9]
    assert table.verify(deep=True).findings == ()


def test_a_block_a_job_and_a_merge_write_single_groups() -> None:
    table = made()
    with table.transaction() as block:
        block.upsert(row(name="n5", mail="m5", t=5))
        block.upsert(row(bio="b3", t=3))
        block.upsert(row(name="n4", mail="m4", t=4))
    assert shown(table) == ["n5", "m5", "b3", 5, None, None]
    rows = row(bio="b4", t=4)
    job = table.jobs.plan("upsert", rows.schema)
    table.jobs.complete(job, [job.stage(rows, task=0)])
    assert shown(table) == ["n5", "m5", "b4", 5, None, None]
    merge = table.merge(row(name="n6", mail="m6", t=6), on="id").when_matched_update_all()
    merge.when_not_matched_insert_all().execute()
    table.upsert(row(bio="b5", t=5))
    assert shown(table) == ["n6", "m6", "b5", 6, None, None]


def test_an_update_sets_one_group_and_a_delete_starts_afresh() -> None:
    table = made()
    table.upsert(row(name="n5", mail="m5", t=5, bio="b5"))
    table.update({"bio": "'updated'"}, where="id = 1")
    assert shown(table) == ["n5", "m5", "updated", 5, None, None]
    table.update({"t": 7}, where="id = 1")
    table.upsert(row(bio="late", t=6))
    assert shown(table) == ["n5", "m5", "updated", 7, None, None]
    with pytest.raises(InvalidInputError, match="latest_by/1 would not show the new value"):
        table.update({"t": 3}, where="id = 1")
    table.delete(keys=[1])
    table.upsert(row(bio="new", t=1))
    assert shown(table) == [None, None, "new", 1, None, None]


def test_a_marker_leaves_its_group_alone() -> None:
    table = made(unavailable="?")
    table.upsert(row(name="n1", mail="m1", bio="b1", t=1))
    table.upsert(row(name="n3", mail="m3", bio="?", t=3))
    table.upsert(row(name="?", mail="?", bio="b2", t=2))
    assert shown(table) == ["n3", "m3", "b2", 3, None, None]
    with pytest.raises(InvalidInputError, match=r"merges these columns together, and a row gives some of them"):
        table.upsert(row(name="?", mail="m9", bio="b9", t=9))


def test_names_types_and_places_change(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    first = table.upsert(row(name="n5", mail="m5", t=5))
    table.upsert(row(bio="b3", t=3))
    table.maintenance.compact()
    table.alter(rename={"t": "at", "bio": "life"}, widen={"t": pa.int64()})
    late = pa.table({"id": [1], "life": ["b4"], "at": [4]})
    table.upsert(late)
    assert shown(table) == ["n5", "m5", "b4", 5, None, None]
    assert table.scan(filter="life = 'b4'").to_arrow()["at"].to_pylist() == [5]
    assert table.scan(as_of=first).to_arrow()["life"].to_pylist() == [None]
    (change,) = table.changes(first).to_arrow().to_pylist()
    assert (change["life"], change["at"]) == ("b4", 5)
    with pytest.raises(InvalidInputError, match="cannot drop columns used by a payload of several columns"):
        table.alter(drop=["life"])
    table.copy(str(tmp_path / "copy"))
    table.maintenance.migrate(str(tmp_path / "moved"), buckets=2)
    for place in ("copy", "moved"):
        other = mor.Table(str(tmp_path / place))
        other.upsert(late.set_column(2, "at", pa.array([3])))
        assert shown(other) == ["n5", "m5", "b4", 5, None, None]
        other.upsert(pa.table({"id": [1], "life": ["b6"], "at": [6]}))
        assert shown(other) == ["n5", "m5", "b6", 6, None, None]


def test_why_names_the_columns_of_the_group() -> None:
    table = made()
    table.upsert(row(bio="b3", t=3))
    table.upsert(row(name="n2", mail="m2", t=2))
    lines = table.why(1).to_pylist()
    assert [line["columns"] for line in lines] == [["id", "bio", "t"], ["id", "name", "mail", "t"]]
    assert lines[1]["result"]["t"] == 3


def test_nulls_with_a_greater_ordering_value_hide_a_group() -> None:
    table = made()
    table.upsert(row(name="n1", mail="m1", bio="b1", t=1))
    table.upsert(row(bio=None, t=3))
    table.upsert(row(bio="late", t=2))
    assert shown(table) == ["n1", "m1", None, 3, None, None]


def test_a_row_gives_whole_groups() -> None:
    table = made()
    for given in ({"name": "n", "t": 1}, {"t": 1}, {"bio": "b"}, {"bio": "b", "t": 1, "u": 2}):
        with pytest.raises(SchemaMismatchError, match="latest_by/1 merges these columns together"):
            table.upsert(row(**given))


@pytest.mark.parametrize(
    ("merge", "said"),
    [
        (GROUPS, r"every row gives all columns, .* join them, or use merge=PartialUpdate"),
        ({("name", "t"): LatestBy("t"), ("name", "u"): LatestBy("u")}, "a column may have only one payload"),
        ({("bio", "t"): LatestBy("t"), ("u", "t"): LatestBy("u")}, "a column may have only one payload"),
        ({("bio", "t"): LatestBy("t"), "t": Counter()}, "a column may have only one payload"),
    ],
)
def test_other_columns_are_in_one_group(merge: Any, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        mor.Table.create(
            "memory://t", SCHEMA, key="id", opening=mor.Opening(store=MemoryStore()),
            merge=merge if merge is GROUPS else mor.PartialUpdate(columns=merge),
        )  # fmt: skip


def test_the_command_line_makes_such_a_table(tmp_path: Path) -> None:
    columns, uri = tmp_path / "columns.json", str(tmp_path / "t")
    columns.write_text('{"id": "int64", "name": "string", "bio": "string", "t": "int64"}')
    merges = ["--merge", "partial_update", "--merge", "name,t=latest_by?by=t", "--merge", "bio,t=latest_by?by=t"]
    done = CliRunner().invoke(app, ["create", uri, "--schema", str(columns), "--key", "id", *merges])
    assert "((bio, t): latest_by/1(by=t); (name, t): latest_by/1(by=t))" in done.output
    assert mor.Table(uri).config.payloads["t"] == "latest_by/1(by=t)"

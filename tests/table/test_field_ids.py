"""The ids in the Parquet footers of real tables: see `model.field_ids`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crdt_mor import PartialUpdate, Table
from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.model import timeline
from crdt_mor.model.field_ids import OWN_IDS, FieldIds, field_ids, ids_in_file, with_field_ids
from crdt_mor.payloads import Counter
from crdt_mor.services import compaction
from crdt_mor.services.verify_schema import ids_fault

PLACE = pa.struct([("city", pa.string()), ("zip", pa.int64())])
SCHEMA = pa.schema([("id", pa.string()), ("place", PLACE), ("n", pa.int64())])
WIDER = pa.struct([*PLACE, ("land", pa.string())])
DEFAULT: dict[tuple[str, ...], int] = {("id",): 1, ("place",): 2, ("n",): 3, ("place", "city"): 4, ("place", "zip"): 5}


def rows(*ids: str, n: int = 1) -> pa.Table:
    return pa.table({"id": [*ids], "place": [{"city": "x", "zip": 1}] * len(ids), "n": [n] * len(ids)}, SCHEMA)


def grown_rows(*ids: str) -> pa.Table:
    places = pa.array([{"city": "x", "zip": 1, "land": "y"}] * len(ids), WIDER)
    return rows(*ids).set_column(1, "place", places).append_column("more", pa.array([[1]] * len(ids)))


def footers(root: Path) -> list[dict[tuple[str, ...], int]]:
    """The ids in each base file, oldest first."""
    files = sorted(root.rglob("*.parquet"), key=lambda path: path.name.rpartition("_")[2])
    return [dict(ids_in_file(pq.read_schema(file))) for file in files]


def of_user(ids: Mapping[tuple[str, ...], int]) -> dict[tuple[str, ...], int]:
    return {path: id_ for path, id_ in ids.items() if id_ < OWN_IDS}


def known(table: Table) -> FieldIds:
    return field_ids(table._session.tail().schema)


def test_compact_writes_the_ids_of_columns_fields_and_hudis_columns(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    table.upsert(rows("a"))
    table.maintenance.compact()
    (ids,) = footers(fast_path / "t")
    assert of_user(ids) == DEFAULT
    own = {(name,): OWN_IDS + place for place, name in enumerate(META_COLUMNS)}
    assert ids == DEFAULT | own


def test_compact_after_rename_drop_add_and_growth_every_field_keeps_its_id(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    table.upsert(rows("a"))
    table.alter(rename={"n": "m"})
    table.upsert(rows("b").rename_columns(["id", "place", "m"]))
    table.maintenance.compact()
    table.alter(drop=["m"])
    table.upsert(grown_rows("c"), schema_mode="merge")  # with another column n
    table.maintenance.compact()
    before, after = map(of_user, footers(fast_path / "t"))
    assert before == DEFAULT
    (stored,) = {path[0] for path in after} - {"id", "place", "n", "more"}
    assert stored == table._session.tail().names.one("n", table.scan()._snapshot.schema)
    assert after == {**DEFAULT, (stored,): 6, ("more",): 7, ("place", "land"): 8, ("more", "element"): 9}
    assert after == known(table)
    assert table.verify().is_sound
    assert table.scan().to_arrow().sort_by("id")["n"].to_pylist() == [None, None, 1]


def test_upsert_two_processes_add_columns_at_once_their_files_agree(fast_path: Path) -> None:
    one = Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    one.upsert(rows("a"))
    other = Table(fast_path / "t")
    other.scan().to_arrow()
    one.upsert(grown_rows("b"), schema_mode="merge")
    more = rows("c").append_column("else", pa.array([1])).append_column("more", pa.array([[2]]))
    other.upsert(more, schema_mode="merge")
    one.maintenance.compact()
    (ids,) = map(of_user, footers(fast_path / "t"))
    assert ids == {
        **DEFAULT, ("more",): 6, ("place", "land"): 7, ("more", "element"): 8, ("else",): 9
    } == known(one) == known(other)  # fmt: skip


def test_overwrite_that_adds_columns_writes_the_ids_of_its_growth(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    table.upsert(rows("a"))
    table.overwrite(grown_rows("b"), schema_mode="merge")
    (ids,) = map(of_user, footers(fast_path / "t"))
    assert ids == known(table) == {**DEFAULT, ("more",): 6, ("place", "land"): 7, ("more", "element"): 8}


def test_create_from_writes_ids(fast_path: Path) -> None:
    table = Table.create_from(fast_path / "t", rows("a", "b"), key="id", buckets=2)
    assert {*map(len, footers(fast_path / "t"))} == {len(DEFAULT) + len(META_COLUMNS)}
    assert of_user(footers(fast_path / "t")[0]) == DEFAULT == known(table)


def test_clustered_files_and_copies_have_the_ids(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    table.upsert(grown_rows("a"), schema_mode="merge")
    table.set_properties({"crdt_mor.cluster_by": "n"})
    table.maintenance.compact()
    copied = table.copy(fast_path / "c")
    there = Table(copied.uri)
    there.upsert(grown_rows("b"))
    there.maintenance.compact()
    assert [*map(of_user, footers(fast_path / "c"))] == [known(table), known(table)]
    assert there.verify().is_sound


def test_compact_state_of_a_payload_has_an_id_of_no_column(fast_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = Table.create(fast_path / "t", schema, key="id", buckets=1, merge=PartialUpdate(columns={"n": Counter()}))
    table.upsert(pa.table({"id": ["a"], "n": [1]}, schema))
    table.maintenance.compact()
    (ids,) = footers(fast_path / "t")
    assert of_user(ids) == {("id",): 1, ("n",): 2}
    assert all(id_ >= OWN_IDS for path, id_ in ids.items() if path[0] == "_crdt_n")
    assert len({*ids.values()}) == len(ids)


def test_compact_plan_from_before_growth_by_an_earlier_release_takes_the_newest_ids(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    table.upsert(rows("a"))
    table.maintenance.plans.schedule()
    with monkeypatch.context() as patch:  # an earlier release knew no ids
        patch.setattr(timeline, "numbered", lambda before, after: after)
        table.upsert(rows("b").append_column("more", pa.array([1])), schema_mode="merge")
    table.maintenance.compact()
    first, *_ = map(of_user, footers(fast_path / "t"))
    assert first == {("id",): 1, ("place",): 2, ("n",): 3, ("place", "city"): 5, ("place", "zip"): 6}
    assert first.items() <= known(table).items()
    assert table.verify().is_sound


@pytest.mark.parametrize("shift", [0, 1])
def test_verify_ids_in_a_file_are_compared_with_the_tables(
    fast_path: Path, monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    table = Table.create(fast_path / "t", SCHEMA, key="id", buckets=1)
    table.upsert(rows("a"))
    monkeypatch.setattr(
        compaction, "field_ids", lambda text: {path: id_ + shift for path, id_ in field_ids(text).items()}
    )
    table.maintenance.compact()
    findings = table.verify().findings
    assert [finding.check for finding in findings] == ["footer"] * shift
    assert all("the id of a column differs" in finding.description for finding in findings)


def test_ids_fault_file_without_ids_is_sound() -> None:
    ids = field_ids(TableSchema.of(SCHEMA).to_json())
    assert ids_fault(SCHEMA, ids) is None
    assert ids_fault(with_field_ids(SCHEMA, ids), ids) is None
    half = pa.schema([with_field_ids(SCHEMA, ids).field(0), *list(SCHEMA)[1:]])
    assert "column=n id=3 found=None" in str(ids_fault(half, ids))

"""What the readers of a mirror get of file slices, under every merge rule and shape of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.mirror.columns import mirror_columns, stored_schema
from crdt_mor.mirror.slices import key_of
from crdt_mor.model.field_ids import PARQUET_ID
from crdt_mor.model.slices import Slices
from crdt_mor.payloads import PartialUpdate
from tests.mirror.shapes import (
    RULES,
    SCHEMA,
    all_shown,
    rows,
    scanned,
    seen_by_readers,
    snapshot_of,
    written_late,
    written_over,
)


def made(folder: Path, schema: pa.Schema = SCHEMA, **settings: Any) -> Table:
    return Table.create(str(folder / "table"), **{"schema": schema, "key": "id", "buckets": 2} | settings)


@pytest.mark.parametrize("rule", RULES)
def test_slices_of_every_merge_rule_show_the_rows_of_a_scan(rule: str, tmp_path: Path) -> None:
    table = written_over(made(tmp_path, **RULES[rule]))
    snapshot = snapshot_of(table)
    shown = all_shown(snapshot)
    assert seen_by_readers(snapshot, shown) == scanned(table)
    assert all(one.base is not None and len(one.dead) and one.rows is not None for one in shown)


@pytest.mark.parametrize("rule", RULES)
def test_slices_merged_whole_show_the_rows_of_a_scan(rule: str, tmp_path: Path) -> None:
    table = written_over(made(tmp_path, **RULES[rule]))
    snapshot = snapshot_of(table)
    shown = all_shown(snapshot, whole=True)
    assert all(one.base is None for one in shown)
    assert seen_by_readers(snapshot, shown) == scanned(table)


@pytest.mark.parametrize("rule", RULES)
def test_slices_after_a_log_that_began_before_their_base_show_the_rows_of_a_scan(rule: str, tmp_path: Path) -> None:
    """A late log may lose to its base. Its keys are merged, so the base row comes back as a merged row."""
    table = written_late(made(tmp_path, **RULES[rule]))
    snapshot = snapshot_of(table)
    assert seen_by_readers(snapshot, all_shown(snapshot)) == scanned(table)


def test_slice_without_a_base_has_only_merged_rows(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.upsert(rows(range(9), 1))
    table.delete(keys=[2])
    snapshot = snapshot_of(table)
    shown = all_shown(snapshot)
    assert all(one.base is None and not len(one.dead) for one in shown)
    assert seen_by_readers(snapshot, shown) == scanned(table)


def test_slice_without_logs_is_its_base(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.upsert(rows(range(9), 1))
    table.maintenance.compact()
    shown = all_shown(snapshot_of(table))
    assert all(one.base is not None and one.rows is None and not len(one.dead) for one in shown)


def test_slice_whose_base_rows_are_all_dead_has_no_base(tmp_path: Path) -> None:
    table = made(tmp_path, buckets=1)
    table.upsert(rows(range(3), 1))
    table.maintenance.compact()
    table.delete(keys=[0, 1, 2])
    (one,) = all_shown(snapshot_of(table))
    assert one.base is None
    assert one.rows is None
    assert one.dead.tolist() == [0, 1, 2]


def test_columns_added_renamed_and_dropped_show_the_rows_of_a_scan(tmp_path: Path) -> None:
    table = written_over(made(tmp_path))
    table.alter(rename={"text": "Größe"}, drop=["n"])
    table.upsert(pa.table({"id": [1, 200], "Größe": ["x", None], "n": [1.5, 2.5]}), schema_mode="merge")
    snapshot = snapshot_of(table)
    assert [column.shown for column in mirror_columns(snapshot.value)] == ["id", "Größe", "n"]
    assert seen_by_readers(snapshot, all_shown(snapshot)) == scanned(table)


def test_base_of_narrower_type_is_merged_unless_readers_convert_it(tmp_path: Path) -> None:
    table = made(tmp_path, pa.schema([("id", pa.int64()), ("n", pa.int32())]), buckets=1)
    table.upsert(pa.table({"id": [1, 2], "n": pa.array([1, 2], pa.int32())}))
    table.maintenance.compact()
    table.upsert(pa.table({"id": [2], "n": [1 << 40]}), schema_mode="merge")
    snapshot = snapshot_of(table)
    (strict,), (lenient,) = all_shown(snapshot), all_shown(snapshot, lambda _stored, _in_file: True)
    assert strict.base is None
    assert lenient.base is not None
    assert seen_by_readers(snapshot, [strict]) == seen_by_readers(snapshot, [lenient]) == scanned(table)


@pytest.mark.parametrize(
    "settings",
    [
        {"partition_by": "region"},
        {"partition_by": ["region", "day"]},
        {"partition_by": "region", "hive_style": True},
    ],
)
def test_partitions_with_odd_names_and_null_show_the_rows_of_a_scan(
    settings: Mapping[str, Any], tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("region", pa.string()), ("day", pa.date32())])
    key = [
        "id",
        *([settings["partition_by"]] if isinstance(settings["partition_by"], str) else settings["partition_by"]),
    ]
    table = made(tmp_path, schema, **settings, key=key)
    given = pa.table({"id": [1, 2, 3], "region": ["ü p+1", None, "%"], "day": pa.array([0, None, 7], pa.date32())})
    table.upsert(given)
    table.maintenance.compact()
    table.upsert(given.slice(1))
    snapshot = snapshot_of(table)
    assert seen_by_readers(snapshot, all_shown(snapshot)) == scanned(table)


def test_empty_table_has_no_slices(tmp_path: Path) -> None:
    assert all_shown(snapshot_of(made(tmp_path))) == []


def test_merged_rows_carry_field_ids_at_every_depth(tmp_path: Path) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("s", pa.struct([("a", pa.list_(pa.int32()))])), ("m", pa.map_(pa.string(), pa.int64()))]
    )
    table = made(tmp_path, schema, buckets=1)
    table.upsert(pa.table({"id": [1], "s": [{"a": [1]}], "m": [[("k", 1)]]}, schema=schema))
    snapshot = snapshot_of(table)
    (one,) = all_shown(snapshot)
    columns = mirror_columns(snapshot.value)
    ids = [column.id for top in columns for _, column in top.all()]
    assert len(ids) == len(set(ids)) == 7
    assert one.rows is not None
    assert one.rows.schema == stored_schema(columns)
    assert one.rows.schema.field("s").metadata[PARQUET_ID] == str(columns[1].id).encode()
    inner = one.rows.schema.field("s").type.field("a").type.value_field
    assert inner.metadata[PARQUET_ID] == str(columns[1].children[0].children[0].id).encode()


def test_key_of_a_slice_changes_with_every_file_and_only_then(tmp_path: Path) -> None:
    """A late log has an earlier name than the last one, so the last file alone does not name the rows."""
    table = made(tmp_path, buckets=1)
    with table.transaction() as late:
        table.upsert(rows([1], 1))
        before = snapshot_of(table)
        late.upsert(rows([2], 1))
    after = snapshot_of(table)
    config = table._session.config
    keys = [key_of(slice_, config) for snapshot in (before, after) for slice_ in snapshot.slices]
    assert before.slices[0].logs[-1] == after.slices[0].logs[-1]
    assert keys[0] != keys[1]
    assert key_of(after.slices[0], config) == keys[1]
    other = replace(config, merge=made(tmp_path / "other", merge=PartialUpdate())._session.config.merge)
    assert key_of(after.slices[0], other) != keys[1]


def test_positions_are_those_of_the_base_file(tmp_path: Path) -> None:
    table = made(tmp_path, buckets=1)
    table.upsert(rows(range(10), 1))
    table.maintenance.compact()
    table.delete(keys=[0, 4, 9])
    (one,) = all_shown(snapshot_of(table))
    assert one.base is not None
    assert one.base.rows == 10
    source = table._session.store.parquet(one.base.path)
    assert source is not None
    with source.open() as file:
        keys = file.read(columns=["id"])["id"].to_numpy()
    assert sorted(keys[one.dead].tolist()) == [0, 4, 9]
    assert one.dead.dtype == np.int64


def test_base_file_at_its_staging_path_is_merged(tmp_path: Path) -> None:
    """Its process died between the commit and the file's rename, so readers of a mirror would not find the file."""
    table = made(tmp_path, buckets=1)
    table.upsert(rows(range(3), 1))
    table.maintenance.compact()
    snapshot = snapshot_of(table)
    (slice_,) = snapshot.slices
    assert slice_.base is not None
    Path(table.uri, slice_.base.path).rename(Path(table.uri, "staged.parquet"))
    moved = replace(slice_, base=replace(slice_.base, staged="staged.parquet"))
    (one,) = all_shown(replace(snapshot, slices=Slices([moved])))
    assert one.base is None
    assert one.rows is not None
    assert one.rows.num_rows == 3

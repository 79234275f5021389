"""A mirror follows every verb of its table: readers of both formats see the rows of `scan()`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor import Rules, Table
from tests.mirror.delta_reading import by_delta_rs
from tests.mirror.iceberg_reading import by_pyiceberg
from tests.mirror.shapes import scanned

PLACE = pa.struct([("city", pa.string())])
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int32()), ("text", pa.string()), ("at", PLACE)])


def rows(*ids: int, n: int = 0) -> pa.Table:
    return pa.table(
        [ids, [f"p{i % 2}" for i in ids], [n] * len(ids), ["a"] * len(ids), [{"city": "x"}] * len(ids)], schema=SCHEMA
    )


def restored(table: Table) -> None:
    table.maintenance.savepoint("before")
    table.overwrite(rows(1, 2, n=8))
    mirrors(table)
    table.maintenance.restore("before")


def rolled_back(table: Table) -> None:
    transaction = table.transaction()
    transaction.__enter__()
    transaction.upsert(rows(1, n=9))
    table.maintenance.roll_back(max(table.inspect.pending()["requested_at"].to_pylist()))


def overwritten_in_a_partition(table: Table) -> None:
    table.overwrite(rows(1, n=5), partitions=["p1"])


def renamed(table: Table) -> None:
    table.alter(rename={"text": "note", "part": "region"})


def dropped_and_added_again(table: Table) -> None:
    table.alter(drop="n")
    mirrors(table)
    data = rows(2, 20).drop_columns(["n"]).append_column("n", pa.array(["two", "twenty"]))
    table.upsert(data, schema_mode="merge")


def widened(table: Table) -> None:
    wide = SCHEMA.set(2, pa.field("n", pa.int64()))
    table.upsert(rows(2, 20, n=4).cast(wide), schema_mode="merge")


def nested_grown(table: Table) -> None:
    places = pa.array([{"city": "y", "zip": 7}], pa.struct([("city", pa.string()), ("zip", pa.int64())]))
    table.upsert(rows(2).drop_columns(["at"]).append_column("at", places), schema_mode="merge")


def ruled(table: Table) -> None:
    table.add_rules(Rules(check={"small": "n < 100"}, default={"text": "none"}))
    table.upsert(rows(2, n=6).drop_columns(["text"]))


def archived(table: Table) -> None:
    for n in range(4):
        table.upsert(rows(2, n=n))
        table.maintenance.compact()
    table.maintenance.archive(keep_commits=1)
    table.maintenance.clean(keep=timedelta(0), readers=timedelta(0))


def taken_back(table: Table) -> None:
    table.maintenance.handover()
    mirrors(table)
    table.maintenance.takeback()


VERBS: Mapping[str, Callable[[Table], None]] = {
    made.__name__: made
    for made in (
        restored, rolled_back, overwritten_in_a_partition, renamed, dropped_and_added_again, widened, nested_grown,
        ruled, archived, taken_back,
    )
}  # fmt: skip


def table_of(folder: Path) -> Table:
    table = Table.create(str(folder / "t"), SCHEMA, key="id", partition_by="part", buckets=1)
    table.upsert(rows(*range(6)))
    table.maintenance.compact()
    table.upsert(rows(3, 4, 7, n=1))
    table.delete(rows(5).select(["id", "part"]))
    mirrors(table)
    return table


def mirrors(table: Table) -> None:
    table.mirror("delta")
    table.mirror("iceberg")


def require_equal(table: Table) -> None:
    mirrors(table)
    assert by_delta_rs(table) == by_pyiceberg(table) == scanned(table) != []
    assert [one.description for one in table.verify(deep=True).findings] == []


@pytest.mark.costly
@pytest.mark.parametrize("verb", VERBS)
def test_mirrors_follow_a_verb(tmp_path: Path, verb: str) -> None:
    table = table_of(tmp_path)
    VERBS[verb](table)
    require_equal(table)
    table.maintenance.compact()
    require_equal(table)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"partition_by": ()}, {"merge": "latest", "buckets": 3}])
def test_migrated_table_is_mirrored_anew_and_the_old_mirror_stays(
    tmp_path: Path, settings: Mapping[str, object]
) -> None:
    table = table_of(tmp_path)
    table.maintenance.migrate(tmp_path / "new", **settings)  # type: ignore[arg-type]
    moved = Table(str(tmp_path / "new"))
    assert not {"_delta_log", "metadata"} & {path.name for path in (tmp_path / "new").iterdir()}
    moved.upsert(rows(8, n=2))
    require_equal(moved)
    require_equal(table)


@pytest.mark.slow
def test_mirrors_of_a_moved_folder_are_right_after_the_next_refresh(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    moved = Table(str(shutil.move(table.uri, tmp_path / "elsewhere")))
    assert by_delta_rs(moved) == scanned(moved)  # Delta's paths are relative
    require_equal(moved)

"""The order of rows in base files: a property that compaction follows, and that changes no answer."""

from __future__ import annotations

import json
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import crdt_mor as mor
from crdt_mor import InvalidInputError
from crdt_mor.api.maintenance_results import plan_shown
from crdt_mor.errors import TableExistsError
from crdt_mor.format import bloom
from crdt_mor.format.base_file import MAX_RECORD_KEY, MIN_RECORD_KEY, ORDER, read_footer
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.merge.blocks import RECORD_KEY
from crdt_mor.model.instant import InstantTime
from crdt_mor.payloads import Counter
from crdt_mor.planners.compaction import CompactionPlan
from crdt_mor.store.memory import MemoryStore
from crdt_mor.write import base_files
from tests.inside import frozen
from tests.table.compacting import close, every_answer, open_write, remove
from tests.table.helpers import MERGES, SCHEMA, Make, Place, files, frame
from tests.tiers import slow

SOME_MERGES = [merge if merge == "latest" else slow(merge) for merge in MERGES]
"""The layout of a base file does not depend on how its rows are merged, so that the fast tier asks one."""

MANY = [(f"k{i:02d}", "abc"[i % 3], i * 7 % 20) for i in range(20)]


def codecs(place: Place) -> list[set[str]]:
    """How the columns of each base file are compressed that are, oldest file first."""
    found = sorted((path.rpartition("_")[2], data) for path, data in files(place).items() if path.endswith(".parquet"))
    groups = [pq.read_metadata(pa.BufferReader(data)).row_group(0) for _, data in found]
    return [{group.column(i).compression for i in range(group.num_columns)} - {"UNCOMPRESSED"} for group in groups]


def bases(place: Place) -> list[tuple[str, pl.DataFrame]]:
    """The base files, oldest first: the order that each says it has, and its rows."""
    found = sorted((path.rpartition("_")[2], data) for path, data in files(place).items() if path.endswith(".parquet"))
    return [(read_footer(ParquetSource.in_memory(data)).order, pl.read_parquet(data)) for _, data in found]


def test_the_compression_changes_at_any_time_and_no_answer_does(make: Make, place: Place) -> None:
    table = make(buckets=1, compression="lz4")
    commits = [table.upsert(frame(*MANY))]
    for codec in ("lz4", None, "lz4", "zstd"):
        table.set_properties({"crdt_mor.compression": codec})
        commits.append(table.upsert(frame(("k05", "d", len(commits)))))
        before = every_answer(table, commits)
        table.maintenance.compact()
        assert every_answer(table, commits) == before
    assert codecs(place) == [{"LZ4"}, {"ZSTD"}, {"LZ4"}, {"ZSTD"}]


def test_a_plan_keeps_the_compression_that_it_was_made_with(make: Make, place: Place) -> None:
    table = make(buckets=1, compression="lz4", cluster_by="region")
    table.upsert(frame(*MANY))
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    assert CompactionPlan.decode(frozen(plan).encode(), "plan") == frozen(plan)
    table.set_properties({"crdt_mor.compression": "zstd"})
    table.maintenance.plans.execute(plan)
    assert codecs(place) == [{"LZ4"}]


def test_overwrites_and_first_loads_are_compressed_as_the_table_asks_for(make: Make, place: Place) -> None:
    table = make(buckets=1)
    table.set_properties({"crdt_mor.compression": "lz4"})
    table.overwrite(frame(*MANY))
    assert codecs(place) == [{"LZ4"}]
    loaded = MemoryStore()
    copy = mor.Table.create_from(
        "copy", frame(*MANY), key="id", buckets=1, compression="lz4", opening=mor.Opening(store=loaded)
    )
    assert codecs(Place("copy", loaded, by_uri=False)) == [{"LZ4"}]
    assert copy.properties == {"crdt_mor.compression": "lz4"}


@pytest.mark.slow
@pytest.mark.parametrize("merge", SOME_MERGES)
def test_the_order_changes_at_any_time_and_no_answer_does(make: Make, place: Place, merge: str) -> None:
    table = make(buckets=1, cluster_by=["region", "n"], **MERGES[merge])
    commits = [table.upsert(frame(*MANY))]
    straggler = open_write(table, ("k03", "z", 50), ("new", "z", 50))
    asked: list[tuple[dict[str, str | None], list[str]]] = [
        ({}, ["region", "n"]),
        ({"crdt_mor.cluster_by": "n"}, ["n"]),
        ({"crdt_mor.cluster_by": "price, region", "crdt_mor.cluster_order": "z-order"}, []),
        ({"crdt_mor.cluster_by": None}, [RECORD_KEY]),
        ({"crdt_mor.cluster_by": "id", "crdt_mor.cluster_order": None}, ["id"]),
    ]
    for turn, (changes, by) in enumerate(asked):
        table.set_properties(changes)
        commits.append(table.upsert(frame((f"k0{turn}", "d", 100 + turn), (f"x{turn}", "b", turn))))
        commits.append(remove(table, f"k1{turn}"))
        before = every_answer(table, commits)
        (done,) = table.maintenance.compact()
        assert every_answer(table, commits) == before
        order, rows = bases(place)[-1]
        assert rows.height == done.rows
        assert not by or rows.equals(rows.sort(by, maintain_order=True)), "ties stay in the order of keys"
        assert order == ["linear(region,n)", "linear(n)", "z-order(price,region)", "key", "linear(id)"][turn]
        assert table.scan(filter="id = 'k02'").count() == 1
        assert table.scan(filter="region = 'c'").to_polars().height == sum(row[1] == "c" for row in before[0])
    commits.append(close(straggler))
    before = every_answer(table, commits)
    table.maintenance.compact()
    assert every_answer(table, commits) == before


def test_what_a_footer_says_of_keys_is_so_in_any_order(make: Make, place: Place) -> None:
    table = make(buckets=1, cluster_by="n")
    table.upsert(frame(("b", "x", 1), ("a", "x", 3), ("c", "x", 2)))
    table.maintenance.compact()
    (data,) = (data for path, data in files(place).items() if path.endswith(".parquet"))
    said = read_footer(ParquetSource.in_memory(data)).metadata
    assert (said[MIN_RECORD_KEY], said[MAX_RECORD_KEY], said[ORDER]) == ("a", "c", "linear(n)")
    assert pl.read_parquet(data)["id"].to_list() == ["b", "c", "a"]


def test_a_plan_keeps_the_order_that_it_was_made_with(make: Make, place: Place) -> None:
    table = make(buckets=1, cluster_by=["n"])
    table.upsert(frame(*MANY))
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    table.set_properties({"crdt_mor.cluster_by": "region"})
    (again,) = place.open().maintenance.plans.open()
    assert again == plan
    place.open().maintenance.compact(again)
    assert [order for order, _ in bases(place)] == ["linear(n)"]
    assert frozen(plan).order == "linear(n)"
    assert json.loads(frozen(plan).encode())["order"] == "linear(n)"
    without = CompactionPlan(InstantTime("1" * 17), (), "[]", "latest", ())
    assert "order" not in json.loads(without.encode()), "as before it"


def test_executors_of_one_plan_write_the_same_bytes(make: Make, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_files, "CLUSTERED_ROW_GROUP_ROWS", 6)
    table = make(buckets=1, cluster_by=["region", "price"], cluster_order="z-order")
    table.upsert(frame(*MANY))
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    written: list[dict[str, bytes]] = []
    for threads in ("1", "4"):
        monkeypatch.setattr("crdt_mor.services.service.THREADS", int(threads))
        outputs = place.open().maintenance.plans.execute(plan)
        assert [file.rows for file in outputs] == [20]
        written.append({file.path: files(place)[file.path] for file in outputs})
        for file in outputs:
            place.store.delete(file.path)
    assert written[0] == written[1]


def test_whoever_finds_a_base_in_another_order_under_its_name_uses_it(make: Make, place: Place) -> None:
    """An executor of an older release, which ignores the order, may have been first."""
    table = make(buckets=1, cluster_by=["n"])
    commits = [table.upsert(frame(*MANY)), remove(table, "k07")]
    before = every_answer(table, commits)
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    stored = json.loads(frozen(plan).encode())
    del stored["order"]
    older = CompactionPlan.decode(json.dumps(stored).encode(), "")
    assert older.order == "key"
    first = place.open().maintenance.plans.execute(plan_shown(older))
    assert place.open().maintenance.plans.execute(plan) == first
    assert table.maintenance.compact(plan)[0].rows == 19
    assert [order for order, _ in bases(place)] == ["key"]
    assert every_answer(table, commits) == before
    assert len(table.maintenance.compact(rewrite="order")) == 1, "its footer says which order it has"
    assert [order for order, _ in bases(place)] == ["key", "linear(n)"]
    assert every_answer(table, commits) == before


@pytest.mark.costly
@pytest.mark.parametrize("merge", MERGES)
def test_a_change_makes_nothing_due_and_a_rewrite_is_asked_for(make: Make, place: Place, merge: str) -> None:
    table = make(buckets=2, **MERGES[merge])
    commits = [table.upsert(frame(*MANY)), remove(table, "k07")]
    table.maintenance.compact()
    table.set_properties({"crdt_mor.cluster_by": "region,n"})
    assert table.maintenance.compact() == []
    assert not [action for action in table.maintenance.maintain(dry_run=True).actions if action.service == "compaction"]
    straggler = open_write(table, ("k01", "z", 1))
    before = every_answer(table, commits)
    (done,) = table.maintenance.compact(rewrite="order")
    assert (done.file_groups, done.rows, done.carried) == (2, 19, 0)
    assert every_answer(table, commits) == before
    assert {order for order, _ in bases(place)[-2:]} == {"linear(region,n)"}
    assert table.maintenance.compact(rewrite="order") == []
    commits.append(close(straggler))
    before = every_answer(table, commits)
    assert table.maintenance.compact(log_files_min=9, rewrite="order") == [], "few logs, in the right order"
    table.set_properties({"crdt_mor.cluster_by": None})
    (done,) = table.maintenance.compact(log_files_min=9, rewrite="order")
    assert done.file_groups == 2
    assert every_answer(table, commits) == before
    assert {order for order, _ in bases(place)[-2:]} == {"key"}


def test_an_overwrite_leaves_its_rows_in_the_order_that_the_table_asks_for(make: Make, place: Place) -> None:
    table = make(buckets=1, cluster_by="n")
    commits = [table.upsert(frame(*MANY)), table.overwrite(frame(("b", "x", 1), ("a", "x", 3), ("c", "x", 2)))]
    order, rows = bases(place)[-1]
    assert (order, rows["id"].to_list()) == ("linear(n)", ["b", "c", "a"])
    assert table.maintenance.compact(rewrite="order") == []
    commits.append(table.upsert(frame(("a", "y", 0))))
    before = every_answer(table, commits)
    table.set_properties({"crdt_mor.cluster_by": None})
    table.maintenance.compact(rewrite="order")
    order, rows = bases(place)[-1]
    assert (order, rows["id"].to_list()) == ("key", ["a", "b", "c"])
    assert every_answer(table, commits) == before


LOOKED_UP = pytest.mark.skipif(not bloom.are_written(), reason="this release of pyarrow writes no Bloom filters")


@pytest.mark.slow
@LOOKED_UP
@pytest.mark.parametrize("merge", SOME_MERGES)
def test_a_key_is_looked_up_in_few_row_groups_and_found_as_it_is(
    make: Make, merge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beside logs of other keys, whose rows in the base file are not read then."""
    monkeypatch.setattr(base_files, "CLUSTERED_ROW_GROUP_ROWS", 4)
    table = make(buckets=1, cluster_by=["region", "n"], **MERGES[merge])
    table.upsert(frame(*MANY))
    table.maintenance.compact()
    for _ in range(2):
        everything = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
        for key in [*everything, "k07", "nobody"]:
            expected = [everything[key]] if key in everything else []
            for condition in (f"id = '{key}'", f"id = '{key}' AND n + 0 < 1000"):  # a sum is decided late
                scan = table.scan(filter=condition)
                assert scan.to_arrow().to_pylist() == expected
                assert scan.count() == len(expected)
        some = ["k01", "k03", "k19", "x"]
        found = table.scan(filter=pl.col("id").is_in(some)).to_arrow().to_pylist()
        assert sorted(found, key=lambda row: row["id"]) == [everything[key] for key in some if key in everything]
        table.upsert(frame(("k03", "q", 500), ("k04", "q", 500), ("x", "q", 1)))
        remove(table, "k07")
        remove(table, "k08")
    read = [table.scan(filter=f"id = '{row[0]}'").explain() for row in MANY]
    assert {e.row_groups_total for e in read} == {5}
    assert sum(e.row_groups for e in read) <= 22
    assert table.scan(filter="id = 'nobody'").explain().row_groups == 0


@LOOKED_UP
def test_keys_of_several_columns_and_those_in_an_or_are_looked_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_files, "CLUSTERED_ROW_GROUP_ROWS", 10)
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("n", pa.int64())])
    rows = pl.DataFrame({"a": [i // 10 for i in range(100)], "b": [f"b{i % 10}" for i in range(100)]})
    rows = rows.with_columns(n=pl.int_range(100) * 37 % 100)
    table = mor.Table.create(
        "t", schema, key=["a", "b"], buckets=1, cluster_by="n", opening=mor.Opening(store=mor.store.MemoryStore())
    )
    table.upsert(rows)
    table.maintenance.compact()
    for condition in (
        "a = 3 AND b = 'b7'",
        "(a = 3 OR a = 4) AND b IN ('b1', 'b2')",
        "a = 3 AND b = 'b7' AND n > 1000",
    ):
        scan = table.scan(filter=condition)
        expected = pl.SQLContext(rows=rows).execute(f"SELECT * FROM rows WHERE {condition}", eager=True)
        assert scan.to_polars().sort("a", "b").equals(expected.sort("a", "b"))
        assert scan.explain().row_groups <= 5
    assert table.scan(filter="a = 3").explain().row_groups == 10, "half a key names no row"


@pytest.mark.slow
@LOOKED_UP
def test_a_key_whose_condition_is_decided_late_is_looked_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of 16 bits is stored as one of 32, so that nothing of the condition goes down to Parquet."""
    monkeypatch.setattr(base_files, "CLUSTERED_ROW_GROUP_ROWS", 4)
    monkeypatch.setattr("crdt_mor.merge.parts.SCAN_CUT_ROWS_MIN", 1)
    monkeypatch.setattr("crdt_mor.merge.parts.SCAN_PART_ROWS_MIN", 1)
    schema = pa.schema([("id", pa.int16()), ("n", pa.int64())])
    table = mor.Table.create(
        "t",
        schema,
        key="id",
        buckets=1,
        cluster_by="n",
        merge={"n": Counter()},
        opening=mor.Opening(store=mor.store.MemoryStore()),
    )
    table.upsert(pa.table({"id": range(40), "n": range(40)}, schema))
    table.maintenance.compact()
    table.upsert(pa.table({"id": range(0, 40, 2), "n": [100] * 20}, schema))
    for key in range(40):
        scan = table.scan(filter=f"id = {key}")
        assert scan.explain().pushed is None
        assert scan.explain().row_groups <= 2
        assert scan.to_arrow().to_pylist() == [{"id": key, "n": key + (0 if key % 2 else 100)}]


def test_a_base_without_filters_is_read_whole(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As releases of pyarrow leave it that write none."""
    monkeypatch.setattr(bloom, "are_written", lambda: False)
    monkeypatch.setattr(base_files, "CLUSTERED_ROW_GROUP_ROWS", 4)
    table = make(buckets=1, cluster_by=["region", "n"])
    table.upsert(frame(*MANY))
    table.maintenance.compact()
    assert table.scan(filter="id = 'k05'").count() == 1
    assert table.scan(filter="id = 'k05'").explain().row_groups > 1


def test_a_log_compaction_leaves_the_order_as_it_is(make: Make, place: Place) -> None:
    table = make(buckets=1, cluster_by=["n"])
    commits = [table.upsert(frame(*MANY))]
    table.maintenance.compact()
    table.set_properties({"crdt_mor.cluster_by": "region"})
    commits += [table.upsert(frame((f"k0{i}", "q", i))) for i in range(3)]
    before = every_answer(table, commits)
    table.maintenance.compact(logs_only=True)
    assert [order for order, _ in bases(place)] == ["linear(n)", "linear(n)"]
    assert every_answer(table, commits) == before
    with pytest.raises(InvalidInputError, match="omit logs_only or rewrite"):
        table.maintenance.compact(logs_only=True, rewrite="order")
    with pytest.raises(InvalidInputError, match='rewrite must be "order"'):
        table.maintenance.compact(rewrite="all")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"crdt_mor.cluster_by": "nope"}, "does not exist. column='nope' columns=.'id', 'region'"),
        ({"crdt_mor.cluster_by": "n,tags"}, "not lists, structs or maps. column='tags' type=list"),
        ({"crdt_mor.cluster_by": "n,n"}, "repeats a column"),
        ({"crdt_mor.cluster_by": "n,,region"}, "comma-separated columns"),
        ({"crdt_mor.cluster_by": ""}, "remove the property for the order of keys"),
        ({"crdt_mor.cluster_order": "hilbert"}, r"linear or z-order \(default linear\)"),
        ({"crdt_mor.cluster_by": "id,region,n,price,day", "crdt_mor.cluster_order": "z-order"}, "at most 4 columns"),
        ({"crdt_mor.compression": "gzip"}, r"zstd or lz4 \(default zstd\)"),
        ({"crdt_mor.cluster": "n"}, "did you mean crdt_mor.cluster_by"),
    ],
)
def test_what_is_no_order_of_this_table_is_refused(
    make: Make, place: Place, properties: dict[str, str | None], message: str
) -> None:
    wide = SCHEMA.append(pa.field("tags", pa.list_(pa.string()))).append(pa.field("day", pa.date32()))
    table = make(schema=wide, cluster_by=["n"])
    before = files(place)
    with pytest.raises(InvalidInputError, match=message):
        table.set_properties(properties)
    assert files(place) == before
    assert dict(table.properties) == {"crdt_mor.cluster_by": "n"}
    table.set_properties({"crdt_mor.cluster_order": "z-order"})
    with pytest.raises(InvalidInputError, match="at most 4 columns"):
        table.set_properties({"crdt_mor.cluster_by": "id,region,n,price,day"})


def test_create_refuses_what_it_cannot_follow_and_makes_no_table(place: Place) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"cluster_by": ["nope"]}, "does not exist"),
        ({"cluster_by": ["n", "n"]}, "repeats a column"),
        ({"cluster_by": ["n"], "cluster_order": "hilbert"}, "cluster_order must be linear or z-order"),
        ({"cluster_order": "z-order"}, "needs columns"),
        ({"compression": "gzip"}, "compression must be zstd or lz4"),
        ({"cluster_by": [1]}, "must be a string or a list"),
    ]
    for settings, message in wrong:
        with pytest.raises(InvalidInputError, match=message):
            place.create(schema=SCHEMA, key="id", **settings)
    assert files(place) == {}


def test_a_table_that_is_there_keeps_its_order(place: Place) -> None:
    def create(**settings: Any) -> mor.Table:
        return place.create(schema=SCHEMA, key="id", exist_ok=True, **settings)

    table = create(cluster_by=["n"])
    table.set_properties({"crdt_mor.cluster_by": "region"})
    for settings in ({}, {"cluster_by": "n"}, {"cluster_by": ["region"]}):
        assert dict(create(**settings).properties) == {"crdt_mor.cluster_by": "region"}
    with pytest.raises(
        TableExistsError, match=r"the layout of its base files with set_properties.*asked=.*price.*found=.*region"
    ):
        create(cluster_by="price")


@pytest.mark.costly
@pytest.mark.parametrize("order", ["linear", "z-order"])
def test_filters_on_the_columns_skip_row_groups(
    order: Literal["linear", "z-order"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_files, "CLUSTERED_ROW_GROUP_ROWS", 100)
    random = np.random.default_rng(3)
    rows = pl.DataFrame(
        {
            "id": [f"{i:05d}" for i in random.permutation(10_000)],
            "city": [f"c{int(i)}" for i in random.integers(0, 50, 10_000)],
            "day": random.integers(0, 100, 10_000),
        }
    )
    table = mor.Table.create(
        "t",
        rows,
        key="id",
        buckets=1,
        cluster_by=["city", "day"],
        cluster_order=order,
        opening=mor.Opening(store=mor.store.MemoryStore()),
    )
    table.upsert(rows)
    table.maintenance.compact()
    table.upsert(rows.head(5).with_columns(day=pl.lit(1000, pl.Int64)))
    for condition, linear, z in (
        (pl.col("city") == "c7", 4, 16),
        (pl.col("day") == 50, 100, 25),
        ((pl.col("city") == "c7") & (pl.col("day") == 50), 4, 4),
    ):
        scan = table.scan(filter=condition)
        read = scan.explain()
        assert read.row_groups_total == 100
        assert read.row_groups <= (linear if order == "linear" else z)
        expected = rows[5:].filter(condition)
        assert scan.to_polars().sort("id").equals(expected.sort("id"))

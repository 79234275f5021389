"""hudi-rs 0.5 and Hudi's Spark reader return our rows or refuse, as `docs/design/engines.md` lists.

A reader that says something else than that page is a failure in either direction.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.errors import InvalidInputError, SchemaMismatchError
from tests.interop import load_shapes, migrated_shapes, overwrite_shapes, renamed_shapes  # noqa: F401  they join the list
from tests.interop.histories import write_history
from tests.interop.hudi_archive import make_hudis
from tests.interop.readers import HudiSpark, Refused, Rows, hudi_rs, ours
from tests.interop.shapes import SHAPES, Maker, Shape, Verdict, convergence, keys, rows
from tests.interop.verb_histories import VerbHistory
from tests.tiers import one_in, seeds

PAGE = (Path(__file__).parents[2] / "docs" / "design" / "engines.md").read_text()
ORDERINGS = [None, "n"]


def verdict(table: Table, read: Callable[[Path], Rows], path: Path) -> Verdict:
    try:
        found = read(path)
    except Refused:
        return "refused"
    return "equal" if found == ours(table) else "differs"


SOME = one_in(6, SHAPES)


@pytest.mark.costly
@pytest.mark.parametrize("shape", SOME, ids=lambda shape: shape.name)
def test_hudi_rs(shape: Shape, make: Maker) -> None:
    assert verdict(shape.build(make), hudi_rs, make.root) == shape.hudi_rs


@pytest.mark.spark
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_hudis_spark_reader(shape: Shape, make: Maker, spark: HudiSpark) -> None:
    assert verdict(shape.build(make), spark.read, make.root) == shape.spark


@pytest.mark.spark
def test_conditions_of_hudis_spark_reader_find_nan(make: Maker, spark: HudiSpark) -> None:
    """Spark takes NaN for greater than all numbers, and skips row groups by their statistics."""
    table = make.create(pa.schema([("id", pa.int64()), ("x", pa.float64())]), buckets=1)
    table.upsert(pa.table({"id": [1, 2, 3], "x": [1.0, float("nan"), 3.0]}))
    table.maintenance.compact()
    spark.sql(f"create table of_nan using hudi location '{make.root}'")
    for where in ("x > 5", "x = 'NaN'", "not x <= 5"):
        assert spark.sql(f"select id from of_nan where {where}") == [{"id": 2}]


def test_the_page_lists_these_shapes_and_verdicts() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    for shape in SHAPES:
        assert f"| {shape.title} | {shape.hudi_rs} | {shape.spark} | {shape.why} |" in lines


def blocks_of(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every other history the rows of a log file are in several blocks, as those of a large write are."""
    if seed % 2:
        monkeypatch.setattr("crdt_mor.write.log_files.BLOCK_ROWS_MAX", 2)


@pytest.mark.parametrize("seed", seeds(range(2), range(2, 12)))
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_random_histories_in_hudi_rs(
    make: Maker, seed: int, ordering: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks_of(seed, monkeypatch)
    table = write_history(make, seed, ordering)
    assert hudi_rs(make.root) == ours(table)


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(100, 110))
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_random_histories_in_spark(
    make: Maker, spark: HudiSpark, seed: int, ordering: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks_of(seed, monkeypatch)
    table = write_history(make, seed, ordering)
    assert spark.read(make.root) == ours(table)


@pytest.mark.parametrize("seed", seeds((), range(6), range(6, 100)))
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_updates_renames_drops_and_rules_in_hudi_rs(make: Maker, seed: int, ordering: str | None) -> None:
    history = VerbHistory(make, seed, ordering)

    def look(table: Table) -> None:
        assert hudi_rs(make.root) == ours(table), history.done

    history.run(look)


@pytest.mark.spark
@pytest.mark.parametrize("seed", [100])
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_updates_renames_drops_and_rules_in_spark(
    make: Maker, spark: HudiSpark, seed: int, ordering: str | None
) -> None:
    history = VerbHistory(make, seed, ordering)

    def look(table: Table) -> None:
        if len(history.done) % 5 == 0:
            assert spark.read(make.root) == ours(table), history.done

    history.run(look)
    assert spark.read(make.root) == ours(history.table), history.done


# --- the convergence case, row by row ---------------------------------------------------------------------------------

CONVERGED = {"k0": 3, "k1": 3, "k3": 2, "k4": 3, "k7": 1, "k8": 1, "k9": 1}
"""B began last, so its rows stand and its deletes hold; A's other rows and deletes count as well."""


def numbers(found: Rows) -> dict[str, object]:
    return {key: row["n"] for (_, key), row in found.items()}


def test_the_later_writer_stands_although_it_was_compacted_before_the_earlier_one_ended(make: Maker) -> None:
    table = convergence(make)
    assert numbers(ours(table)) == numbers(hudi_rs(make.root)) == CONVERGED


@pytest.mark.spark
def test_the_later_writer_stands_in_spark(make: Maker, spark: HudiSpark) -> None:
    convergence(make)
    assert numbers(spark.read(make.root)) == CONVERGED


# --- a table of Hudi's, whose logs we compact alone -------------------------------------------------------------------


@pytest.mark.parametrize("ordering", [None, "n"])
def test_the_logs_of_a_table_of_hudis_are_compacted_alone(make: Maker, ordering: str | None) -> None:
    table = make.create(buckets=1, ordering=ordering)
    table.append(rows(range(8), 1))
    table.maintenance.compact()
    table.upsert(rows([1, 2], 2))
    by_time = {
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING", "hoodie.record.merge.strategy.id": "",
        "hoodie.table.ordering.fields": "",
    }  # fmt: skip
    make_hudis(make.root, {} if ordering else by_time)
    table = type(table)(make.root)
    table.upsert(rows([2, 3, 20], 3))
    table.delete(keys=keys(4, 5), plain=True)
    table.upsert(rows([5], 4))
    before = ours(table)
    table.maintenance.compact(logs_only=True)
    assert table.inspect.files()["kind"].to_pylist() == ["base", "carry"]
    assert ours(table) == before == hudi_rs(make.root)
    table.upsert(rows([6, 30], 5))
    table.delete(keys=keys(7), plain=True)
    assert hudi_rs(make.root) == ours(table)


# --- what is refused at the door, because others could not read it ----------------------------------------------------


@pytest.mark.parametrize("place", ["a:b", "50%41"])
def test_partition_values_that_hudi_reads_otherwise_are_refused(make: Maker, place: str) -> None:
    schema = pa.schema([("id", pa.string()), ("place", pa.string())])
    table = make.create(schema, partition_by="place")
    with pytest.raises(InvalidInputError, match="column=place"):
        table.append(pa.table({"id": ["a"], "place": [place]}, schema))


def test_an_ordering_column_keeps_its_type(make: Maker) -> None:
    """Hudi compares tombstones of the old type with rows of the new one, and fails or lets the tombstone win."""
    narrow, wide = (pa.schema([("id", pa.string()), ("n", kind)]) for kind in (pa.int32(), pa.int64()))
    table = make.create(narrow, ordering="n")
    with pytest.raises(SchemaMismatchError, match="keeps its type"):
        table.upsert(pa.table({"id": ["a"], "n": [2**40]}, wide), schema_mode="merge")


def test_an_ordered_delete_of_zero_is_no_plain_delete(make: Maker) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int32())])
    table = make.create(schema, ordering="n")
    table.append(pa.table({"id": keys(0, 1), "n": [5, -5]}, schema))
    table.delete(pa.table({"id": keys(0, 1), "n": [0, 0]}, schema))
    table.upsert(pa.table({"id": keys(1), "n": [-1]}, schema))
    assert table.scan().to_arrow().to_pylist() == [{"id": "k0", "n": 5}]
    table.maintenance.compact()
    table.upsert(pa.table({"id": keys(1), "n": [-1]}, schema))
    assert table.scan().to_arrow().to_pylist() == [{"id": "k0", "n": 5}]
    table.delete(keys=keys(0), plain=True)
    table.upsert(rows([0], -9).select(["id", "n"]))
    assert table.scan().to_arrow().to_pylist() == [{"id": "k0", "n": -9}]

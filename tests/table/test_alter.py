"""Columns of any name, which are renamed and dropped beside writers of whatever names they know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import product
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from crdt_mor import InvalidInputError, Opening, Rules, Table
from crdt_mor.errors import ConstraintViolationError, EarlierWritePendingError, SchemaMismatchError, TableExistsError
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.parts import MergePart, MergeSpread, PartDone, UpdatePart
from crdt_mor.payloads import Counter, LatestBy, Max, PartialUpdate
from crdt_mor.store import MemoryStore
from tests.table.helpers import Make, Place, frame, sent
from tests.tiers import one_in

ODD = pa.schema(
    [("Nr.", pa.int64()), ("Total Sales", pa.float64()), ("Größe", pa.string()), ("@timestamp", pa.int64())]
)


def odd(*found: tuple[object, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(ODD.names, row, strict=True)) for row in found], ODD)


def values(table: Any, *columns: str) -> list[tuple[object, ...]]:
    """Rows as tuples, sorted."""
    frame: pl.DataFrame = table.to_polars()
    return sorted(frame.select(columns or frame.columns).rows(), key=str)


MERGES: dict[str, dict[str, Any]] = {
    "latest": {},
    "ordering": {"ordering": "@timestamp"},
    "partial": {"merge": PartialUpdate()},
    "payload": {"merge": {"Total Sales": Max()}},
    "partitioned": {"partition_by": "Größe"},
    "clustered": {"cluster_by": ["Total Sales", "Größe"]},
}


@pytest.mark.parametrize("merge", MERGES)
def test_columns_of_any_name_are_written_read_and_compacted(place: Place, merge: str) -> None:
    table = place.create(schema=ODD, key="Nr.", **MERGES[merge])
    table.upsert(odd((1, 1.5, "a", 1), (2, 2.5, "b", 1)))
    table.append(odd((3, 3.5, "a", 1)))
    table.upsert(odd((1, 4.5, "a", 2)))
    expected = [(1, 4.5, "a", 2), (2, 2.5, "b", 1), (3, 3.5, "a", 1)]
    assert values(table) == expected
    assert table.schema == ODD
    assert table.config.key == ("Nr.",)
    table.maintenance.compact()
    again = place.open()
    assert values(again) == expected
    assert again.schema == ODD
    assert values(again.scan(filter='"Total Sales" > 3 AND "Größe" = \'a\'', columns=["Nr."])) == [(1,), (3,)]
    assert again.scan(filter=pl.col("Total Sales").sqrt() > 2).count() == 1
    assert {*again.changes(columns=["Größe"]).to_polars()["Größe"]} == {"a", "b"}
    again.delete(keys=[2]) if merge == "latest" else again.delete(where='"Nr." = 2')
    assert values(again, "Nr.") == [(1,), (3,)]
    assert place.create(schema=ODD, key="Nr.", exist_ok=True, **MERGES[merge]).schema == ODD


def test_a_first_load_takes_columns_of_any_name(path: str) -> None:
    table = Table.create_from(path, odd((1, 1.5, "a", 1), (2, 2.5, "b", 1)), key="Nr.", partition_by="Größe")
    assert values(table) == [(1, 1.5, "a", 1), (2, 2.5, "b", 1)]
    assert table.schema == ODD


# --- renames and drops through every door -----------------------------------------------------------------------------


def renamed(make: Make, **settings: Any) -> Table:
    """A table of two rows whose columns id, n and price are called key, count and "unit price" by now."""
    table = make(**settings)
    table.upsert(frame(("a", "eu", 1, 1.5), ("b", "us", 2, 2.5)))
    table.alter(rename={"id": "key", "n": "count", "price": "unit price"})
    return table


def shown(*found: tuple[object, ...]) -> pa.Table:
    return frame(*found).rename_columns(["key", "region", "count", "unit price"])


def test_a_rename_is_seen_by_every_read(make: Make) -> None:
    table = renamed(make)
    before = table.version - 1
    assert table.schema.names == ["key", "region", "count", "unit price"]
    assert values(table.scan(filter='"unit price" > 2', columns=["count"])) == [(2,)]
    assert values(table.scan(as_of=before)) == values(table)
    assert table.scan(as_of=before).schema.names == table.schema.names
    assert table.scan(as_of=before, names="then").schema.names == ["id", "region", "n", "price"]
    assert values(table.scan(as_of=before, names="then", filter="n = 2", columns=["id"])) == [("b",)]
    assert table.changes().schema.names[:4] == table.schema.names
    then = ["id", "region", "n", "price"]
    modes: list[dict[str, Any]] = [{}, {"images": True}, {"raw": True}]
    for mode in modes:
        old = table.changes(until=before, names="then", **mode)
        assert old.schema.names[:4] == then
        assert [part.to_polars().columns[:4] for part in sent(old.limited(commits=1).parts())] == [then]
        assert values(old, "id", "n") == values(table.changes(until=before, **mode), "key", "count")
    assert values(table.changes(until=before, names="then", columns="n"), "n") == [(1,), (2,)]
    assert table.changes(names="then", consistency="stable").schema.names[:4] == table.schema.names
    with pytest.raises(InvalidInputError, match=r'names must be "now" or "then"'):
        table.changes(names="never")  # type: ignore[arg-type]
    assert pl.DataFrame(table).columns == table.schema.names
    assert [part.to_polars().columns for part in sent(table.scan(columns="count").parts())] == [["count"]]
    assert "unit price" in str(table.scan(filter='"unit price" > 2').explain())
    with pytest.raises(InvalidInputError, match="'n' was renamed to 'count'"):
        table.scan(filter="n > 1")
    with pytest.raises(InvalidInputError, match=r'names must be "now" or "then"'):
        table.scan(names="never")  # type: ignore[arg-type]


def all_of(parts: Sequence[UpdatePart]) -> list[PartDone]:
    """What becomes of the parts of an update, made in other processes."""
    return [part.execute() for part in sent(parts)]


STATEMENTS: dict[str, Callable[[Table], object]] = {
    "upsert": lambda t: t.upsert(shown(("a", "eu", 10, 1.5))),
    "append": lambda t: t.append(shown(("c", "eu", 10, 1.5))),
    "update": lambda t: t.update({"count": '"unit price" * 2 + "count"'}, where="\"key\" = 'b'"),
    "update by expression": lambda t: t.update({"unit price": pl.col("unit price") + pl.col("count")}),
    "delete by filter": lambda t: t.delete(where='"count" = 1'),
    "delete by frame": lambda t: t.delete(shown(("a", "eu", 1, 1.5))),
    "overwrite": lambda t: t.overwrite(shown(("z", "eu", 10, 1.5))),
    "merge": lambda t: (
        t.merge(shown(("a", "eu", 10, 1.5), ("c", "us", 3, 3.5)))
        .when_matched_update({"count": "target.count + source.count"})
        .when_not_matched_insert_all()
        .execute()
    ),
    "merge on another column": lambda t: (
        t.merge(pa.table({"n": [2], "u": [9.5]}), on='target."count" = source.n')
        .when_matched_update({"unit price": "source.u"}).execute()
    ),
    "update in parts": lambda t: t.update({"count": "count + 1"}, execute_parts=all_of),
    "delete in parts": lambda t: t.delete(where='"unit price" > 2', execute_parts=all_of),
    "by many": lambda t: by_many(t, shown(("a", "eu", 10, 1.5))),
}  # fmt: skip


SETTINGS: list[dict[str, Any]] = [{}, {"merge": PartialUpdate()}, {"ordering": "n"}, {"partition_by": "region"}]


def by_many(table: Table, data: pa.Table) -> None:
    job = table.jobs.plan("upsert", data.schema)
    assert table.jobs.file_groups(data).num_rows == data.num_rows
    table.jobs.complete(job, [job.stage(data, task=1)])


@pytest.mark.costly
@pytest.mark.parametrize(("statement", "number"), one_in(5, product(STATEMENTS, range(len(SETTINGS)))))
def test_a_statement_says_the_same_whatever_columns_are_called(
    places: Callable[[str], Place], statement: str, number: int
) -> None:
    """As in a table whose columns have had these names from the start."""
    schema, settings = shown().schema, SETTINGS[number]
    plain = {
        name: {"n": "count"}.get(value, value) if isinstance(value, str) else value for name, value in settings.items()
    }
    born = places("born").create(schema=schema, key="key", **plain)
    born.upsert(shown(("a", "eu", 1, 1.5), ("b", "us", 2, 2.5)))
    table = renamed(lambda **more: places("renamed").create(schema=frame().schema, key="id", **more), **settings)
    for one in (born, table):
        STATEMENTS[statement](one)
    assert values(table) == values(born) != []
    assert values(table.changes(images=True), *schema.names, "_change_type") == values(
        born.changes(images=True), *schema.names, "_change_type"
    )
    table.maintenance.compact()
    assert values(table) == values(born)


def test_a_delete_by_keys_needs_no_names(make: Make) -> None:
    table = renamed(make)
    table.delete(keys=["a"])
    assert values(table, "key") == [("b",)]


def test_rows_move_by_the_names(make: Make) -> None:
    table = renamed(make, partition_by="region")
    table.alter(rename={"region": "land of sale"})
    assert table.move(["a"], partition={"land of sale": "us"}).updated == 1
    table.delete_partitions([{"land of sale": "eu"}])
    assert values(table, "key", "land of sale") == [("a", "us"), ("b", "us")]


def test_columns_exchange_their_names(make: Make) -> None:
    table = make()
    table.upsert(frame(("a", "eu", 1, 1.5)))
    table.alter(rename={"id": "region", "region": "id"})
    assert values(table) == [("a", "eu", 1, 1.5)]
    assert table.schema.names == ["region", "id", "n", "price"]
    assert table.config.key == ("region",)


def test_a_dropped_column_is_gone_and_its_name_is_free(make: Make) -> None:
    table = make()
    table.upsert(frame(("a", "eu", 1, 1.5)))
    before = table.version
    table.alter(drop="price")
    assert table.schema.names == ["id", "region", "n"]
    table.upsert(frame(("b", "us", 2)).drop_columns("price"))
    assert values(table) == [("a", "eu", 1), ("b", "us", 2)]
    with pytest.raises(SchemaMismatchError, match="'price' was dropped"):
        table.upsert(frame(("c", "us", 2, 1.0)))
    wide = frame(("c", "us", 3)).drop_columns("price").append_column("price", pa.array(["dear"]))
    table.upsert(wide, schema_mode="merge")
    assert values(table) == [("a", "eu", 1, None), ("b", "us", 2, None), ("c", "us", 3, "dear")]
    assert values(table.scan(as_of=before)) == [("a", "eu", 1, None)]
    assert values(table.scan(as_of=before, names="then")) == [("a", "eu", 1, 1.5)]
    table.maintenance.compact()
    assert values(table) == [("a", "eu", 1, None), ("b", "us", 2, None), ("c", "us", 3, "dear")]


@pytest.mark.costly
@pytest.mark.parametrize("merge", [{"n": Counter()}, PartialUpdate(columns={"n": Counter()})], ids=str)
def test_a_column_with_a_payload_is_renamed_and_dropped(make: Make, merge: Any) -> None:
    table = make(merge=merge)
    table.upsert(frame(("a", "eu", 1, 1.5)))
    table.alter(rename={"n": "hits"})
    table.upsert(frame(("a", "eu", 2, 2.5)).rename_columns(["id", "region", "hits", "price"]))
    table.update({"hits": "hits * 10"})
    assert values(table) == [("a", "eu", 30, 2.5)]
    table.alter(drop=["hits"])
    table.upsert(frame(("a", "eu", 0, 3.5)).drop_columns("n"))
    table.maintenance.compact()
    table.upsert(frame(("b", "us", 0, 3.5)).drop_columns("n"))
    assert values(table) == [("a", "eu", 3.5), ("b", "us", 3.5)]
    assert table.config.payloads == {}
    table.update({"price": "price + 1"}, where="id = 'a'")
    table.update({"price": "price + 1"}, where="id = 'a'", execute_parts=all_of)
    rows = frame(("b", "as", 0, 4.5), ("c", "us", 0, 5.5)).drop_columns("n")
    table.merge(rows).when_matched_update_all().when_not_matched_insert_all().execute()
    table.delete(where="price < 1")
    table.add_rules(Rules(check={"positive": "price > 0"}))
    assert values(table) == [("a", "eu", 5.5), ("b", "as", 4.5), ("c", "us", 5.5)]
    assert table.maintenance.erase(keys=["c"], columns=["price"]).rows == 1
    assert values(table) == [("a", "eu", 5.5), ("b", "as", 4.5), ("c", "us", None)]


PRICED: dict[str, Any] = {"merge": {("n", "price"): LatestBy("n")}}


@pytest.mark.costly
@pytest.mark.parametrize(
    ("merge", "rule"),
    [(PRICED["merge"], "latest"), (PartialUpdate(columns=PRICED["merge"]), "partial_update/1?nulls=value")],
    ids=["whole rows", "partial updates"],
)
def test_columns_that_one_payload_decides_together_are_renamed(
    places: Callable[[str], Place], merge: Any, rule: str
) -> None:
    """Its parameters go on naming the columns that they named, whatever these are called."""
    place, to = places("old"), places("new")
    table = place.create(schema=frame().schema, key="id", merge=merge)
    table.upsert(frame(("a", "eu", 2, 1.5), ("b", "us", 5, 2.5)))
    with place.open().transaction() as before:
        before.upsert(frame(("b", "us", 6, 3.5)))
        table.alter(rename={"n": "price at", "price": "n"})
        columns = ["id", "region", "price at", "n"]
        table.upsert(frame(("a", "eu", 1, 9.5)).rename_columns(columns))
    assert values(table) == [("a", "eu", 2, 1.5), ("b", "us", 6, 3.5)]
    assert table.config.merge == f"{rule} ((price at, n): latest_by/1(by=n))"
    table.update({"n": "n * 10", "price at": '"price at" + 1'}, where="id = 'a'")
    with pytest.raises(InvalidInputError, match=r"would not show the new value.*\['price at', 'n'\]"):
        table.update({"price at": '"price at" - 1'})
    table.merge(frame(("b", "us", 7, 4.5)).rename_columns(columns)).when_matched_update_all().execute()
    with pytest.raises(SchemaMismatchError, match=r"missing=\['n'\]"):
        table.upsert(frame(("a", "eu", 9, 9.5)).rename_columns(columns).drop_columns("n"))
    expected = [("a", "eu", 3, 15.0), ("b", "us", 7, 4.5)]
    assert values(table) == expected
    table.maintenance.compact()
    table = place.open()
    table.upsert(frame(("a", "eu", 1, 9.5), ("b", "us", 1, 9.5)).rename_columns(columns))
    assert values(table) == expected
    with pytest.raises(InvalidInputError, match="a payload of several"):
        table.alter(drop=["n"])
    with pytest.raises(InvalidInputError, match=r"such names.*columns=\['price at', 'n'\] in_files=\['n', 'price'\]"):
        table.maintenance.migrate(to.uri, merge={("price at", "n"): LatestBy("price at")}, **to._store)
    table.maintenance.migrate(to.uri, **to._store)
    to.open().upsert(frame(("a", "eu", 1, 9.5), ("b", "us", 8, 5.5)).rename_columns(columns))
    assert values(to.open()) == [("a", "eu", 3, 15.0), ("b", "us", 8, 5.5)]


def test_a_new_table_calls_columns_of_one_payload_as_files_do(place: Place) -> None:
    with pytest.raises(InvalidInputError, match=r"then rename the columns. columns=\['Total Sales', 'n'\]"):
        place.create(
            schema={"id": pl.Int64, "n": pl.Int64, "Total Sales": pl.Float64},
            key="id",
            merge={("Total Sales", "n"): LatestBy("n")},
        )


# --- beside writers ---------------------------------------------------------------------------------------------------


def test_rows_of_writers_that_began_before_arrive_under_the_new_names(make: Make, place: Place) -> None:
    table = make()
    other = place.open()
    job = other.jobs.plan("upsert", frame().schema)
    early = job.stage(frame(("a", "eu", 1, 1.5)), task=0)
    with other.transaction() as tx:
        tx.upsert(frame(("b", "us", 2, 2.5)))
        table.alter(rename={"n": "count"}, drop=["price"])
        tx.upsert(frame(("c", "us", 3, 3.5)))
        assert tx.scan().schema.names == ["id", "region", "n", "price"]
    late = job.stage(frame(("d", "eu", 4, 4.5)), task=1)
    other.jobs.complete(job, [early, late])
    assert values(table) == [("a", "eu", 1), ("b", "us", 2), ("c", "us", 3), ("d", "eu", 4)]
    assert table.schema.names == ["id", "region", "count"]


def test_a_write_that_begins_after_a_rename_goes_by_the_new_names_whatever_its_handle_has_seen(
    make: Make, place: Place
) -> None:
    table, stale = make(), place.open()
    table.alter(rename={"n": "count"})
    with pytest.raises(SchemaMismatchError, match="'n' was renamed to 'count'"):
        stale.upsert(frame(("a", "eu", 1, 1.5)))
    stale.upsert(frame(("a", "eu", 1, 1.5)).rename_columns(["id", "region", "count", "price"]))
    assert values(table, "count") == [(1,)]


@pytest.mark.parametrize("verb", ["delete", "erase", "delete of a job"])
def test_keys_under_a_name_that_their_column_has_no_more_are_refused_and_the_error_says_its_name(
    make: Make, verb: str
) -> None:
    table = make()
    table.upsert(frame(("a", "eu", 1, 1.5), ("b", "eu", 1, 1.5)))
    table.alter(rename={"id": "order"})
    verbs: dict[str, Callable[[pa.Table], object]] = {
        "delete": table.delete, "erase": table.maintenance.erase,
        "delete of a job": lambda keys: table.jobs.plan("delete", keys.schema),
    }  # fmt: skip
    keys = frame(("a", "eu", 1, 1.5))
    with pytest.raises(SchemaMismatchError, match="'id' was renamed to 'order': write it as 'order'"):
        verbs[verb](keys)
    with pytest.raises(InvalidInputError, match=r"needs the columns .*'order'.*missing=\['order'\]"):
        verbs[verb](keys.drop_columns("id"))
    table.delete(keys.rename_columns(["order", "nothing", "of", "interest"]).select(["order", "of"]))
    assert values(table, "order") == [("b",)]


@pytest.mark.parametrize("verb", ["delete", "erase"])
def test_a_former_name_that_another_column_has_by_now_is_not_told_as_renamed(make: Make, verb: str) -> None:
    table = make()
    table.upsert(frame(("a", "eu", 1, 1.5)))
    table.alter(rename={"id": "order"})
    table.alter(rename={"price": "id"})
    delete = table.delete if verb == "delete" else table.maintenance.erase
    with pytest.raises(InvalidInputError, match=r"needs the columns .*missing=\['order'\]"):
        delete(pa.table({"id": [1.5], "region": ["eu"]}))


def grown(**more: object) -> pa.Table:
    found = frame(("a", "eu", 1, 1.5))
    for name, value in more.items():
        found = found.append_column(name.replace("_", " "), pa.array([value]))
    return found


def add(table: Table, **more: object) -> None:
    table.upsert(grown(**more), schema_mode="merge")


def test_two_writers_that_add_one_odd_name_add_one_column(make: Make, place: Place) -> None:
    table, other = make(), place.open()
    with table.transaction() as one, other.transaction() as two:
        one.upsert(grown(net_weight=1), schema_mode="merge")
        two.upsert(grown(net_weight=2).set_column(0, "id", pa.array(["b"])), schema_mode="merge")
    assert table.schema.names == ["id", "region", "n", "price", "net weight"]
    assert values(table, "net weight") == [(1,), (2,)]


def test_two_statements_of_a_block_add_one_column(make: Make) -> None:
    table = make()
    with table.transaction(isolation="serializable") as tx:
        tx.upsert(grown(net_weight=1), schema_mode="merge")
        tx.upsert(grown(net_weight=2), schema_mode="merge")
        assert values(tx.scan(), "net weight") == [(2,)]
        tx.update({"net weight": '"net weight" + 1'})
    assert table.schema.names == ["id", "region", "n", "price", "net weight"]
    assert values(table, "net weight") == [(3,)]


def renames_another(table: Table) -> None:
    table.alter(rename={"n": "extra"})


def adds_and_renames(table: Table) -> None:
    add(table, extra=1)
    table.alter(rename={"extra": "m"})


def adds_and_drops(table: Table) -> None:
    add(table, extra=1)
    table.alter(drop=["extra"])


def adds_and_drops_an_odd_one(table: Table) -> None:
    add(table, ex_tra=1)
    table.alter(drop=["ex tra"])


MEANWHILE = [renames_another, adds_and_renames, adds_and_drops, adds_and_drops_an_odd_one]


@pytest.mark.parametrize("meanwhile", MEANWHILE, ids=lambda change: change.__name__)
def test_growth_whose_column_means_another_by_now_is_refused_and_writes_nothing(
    make: Make, place: Place, meanwhile: Callable[[Table], None]
) -> None:
    table, other = make(), place.open()
    name = "ex_tra" if meanwhile is adds_and_drops_an_odd_one else "extra"
    tx = other.transaction().__enter__()
    tx.upsert(grown(**{name: 7}), schema_mode="merge")
    meanwhile(table)
    with pytest.raises(SchemaMismatchError, match="write again"):
        tx.__exit__(None, None, None)
    before = values(table)
    assert 7 not in [value for row in before for value in row]
    data = grown(**{name: 7})
    if meanwhile is renames_another:
        data = data.drop_columns("n")
    if meanwhile is adds_and_renames:
        with pytest.raises(SchemaMismatchError, match="'extra' was renamed to 'm': write it as 'm'"):
            other.upsert(data, schema_mode="merge")
        return
    other.upsert(data, schema_mode="merge")
    assert values(table, name.replace("_", " ")) == [(7,)]


def test_a_rename_to_a_name_that_was_added_meanwhile_is_refused(make: Make, place: Place) -> None:
    table, other = make(), place.open()
    other.upsert(grown(extra=1), schema_mode="merge")
    with pytest.raises(InvalidInputError, match="columns with these names exist already"):
        table.alter(rename={"n": "extra"})
    assert table.schema.names == ["id", "region", "n", "price", "extra"]


# --- what may be altered ----------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "nothing": ({}, {}, "pass rename, drop, comment or widen"),
    "a column that is not there": ({}, {"rename": {"m": "x"}}, "no such column"),
    "to a name that is there": ({}, {"rename": {"n": "price"}}, "already"),
    "to one that differs in case": ({}, {"rename": {"n": "PRICE"}}, "differ only in case"),
    "two to one": ({}, {"rename": {"n": "x", "price": "x"}}, "must differ"),
    "to a name of the table's own": ({}, {"rename": {"n": "_hoodie_n"}}, "are reserved"),
    "to a name of the changes' own": ({}, {"rename": {"n": "_change_type"}}, "reserved for rows of changes"),
    "to nothing": ({}, {"rename": {"n": ""}}, "printable"),
    "no text": ({}, {"rename": {"n": 1}}, "must be strings"),
    "renamed and dropped": ({}, {"rename": {"n": "x"}, "drop": "n"}, "not both"),
    "the key": ({}, {"drop": ["id"]}, "used by the key"),
    "the partition": ({"partition_by": "region"}, {"drop": ["region"]}, "used by the partitions"),
    "the ordering": ({"ordering": "n"}, {"drop": ["n"]}, "used by the ordering"),
    "the order of rows": ({"cluster_by": "price"}, {"drop": ["price"]}, "used by the order of rows in base files"),
    "one of several of a payload": (PRICED, {"drop": ["price"]}, "a payload of several"),
    "a long comment": ({}, {"comment": {"n": "x" * 1025}}, "at most 1024"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_altered_is_refused_and_changes_nothing(make: Make, case: str) -> None:
    settings, asked, said = REFUSED[case]
    table = make(**settings)
    before = table.version
    with pytest.raises(InvalidInputError, match=said):
        table.alter(**asked)
    assert table.version == before


def test_altering_what_is_so_already_is_no_event(make: Make) -> None:
    table = make()
    table.alter(rename={"n": "n"}, comment={"price": None})
    before = table.version
    table.alter(rename={"n": "m"}, comment={"price": "in euro"}, commit_info={"message": "why"})
    table.alter(comment={"price": "in euro"})
    assert table.version == before + 1
    assert table.inspect.comments() == {"price": "in euro"}
    assert table.history(1).select(["kind", "message"]).to_pylist() == [{"kind": "schema", "message": "why"}]


def test_comments_follow_their_columns(make: Make) -> None:
    table = make()
    table.alter(comment={"n": "how many", "price": "in euro"})
    table.alter(rename={"n": "count"}, drop=["price"], comment={"region": "of sales"})
    assert table.inspect.comments() == {"count": "how many", "region": "of sales"}
    table.alter(comment={"count": None})
    assert table.inspect.comments() == {"region": "of sales"}


def test_a_message_about_a_statement_has_the_names_that_people_see(make: Make) -> None:
    table = renamed(make)
    with pytest.raises(SchemaMismatchError, match=r"column=unit price|'unit price'"):
        table.upsert(shown(("a", "eu", 1, 1.5)).set_column(3, "unit price", pa.array(["dear"])))
    with pytest.raises(SchemaMismatchError, match=r"missing=\['unit price'\]"):
        table.upsert(shown(("a", "eu", 1, 1.5)).drop_columns("unit price"))
    with pytest.raises(InvalidInputError, match=r"missing=\['key'\]"):
        table.delete(shown(("a", "eu", 1, 1.5)).drop_columns("key"))


def test_the_order_of_rows_is_asked_for_under_the_names_that_people_see(make: Make) -> None:
    table = renamed(make)
    table.set_properties({"crdt_mor.cluster_by": "unit price,count"})
    assert table.properties["crdt_mor.cluster_by"] == "unit price,count"
    table.alter(rename={"count": "n"})
    assert table.properties["crdt_mor.cluster_by"] == "unit price,n"
    table.maintenance.compact()
    assert values(table, "key", "n") == [("a", 1), ("b", 2)]


def test_names_stay_after_a_restore(make: Make) -> None:
    table = make()
    commit = table.upsert(frame(("a", "eu", 1, 1.5)))
    table.upsert(frame(("b", "eu", 1, 1.5)))
    table.alter(rename={"n": "count"})
    table.maintenance.restore(commit)
    assert values(table, "id", "count") == [("a", 1)]


@pytest.mark.parametrize(
    "wanted", [{"buckets": 4}, {"merge": {"count": Counter()}}, {"partition_by": "count"}], ids=str
)
def test_a_migrated_table_has_the_names(places: Callable[[str], Place], wanted: dict[str, Any]) -> None:
    table = renamed(lambda **more: places("old").create(schema=frame().schema, key="id", **more))
    table.alter(drop=["region"], comment={"count": "how many"})
    to = places("new")
    moved = table.maintenance.migrate(to.uri, **wanted, **to._store)
    new = to.open()
    assert moved.rows == 2
    assert new.schema.names == ["key", "count", "unit price"]
    assert values(new) == [("a", 1, 1.5), ("b", 2, 2.5)]
    assert new.inspect.comments() == {"count": "how many"}


def test_an_erasure_goes_by_the_names(make: Make) -> None:
    table = renamed(make)
    assert table.maintenance.erase(keys=["b"], columns=["unit price"]).columns == ("unit price",)
    assert values(table, "key", "count", "unit price") == [("a", 1, 1.5), ("b", 2, None)]
    assert table.maintenance.erase(where='"count" = 1').rows == 1
    assert table.maintenance.erase(shown(("b", "us", 2, 2.5)).select(["key"])).rows == 1
    assert values(table) == []


def test_a_view_holds_its_names(make: Make) -> None:
    table = make()
    table.upsert(frame(("a", "eu", 1, 1.5)))
    scan = table.scan(filter="n = 1")
    table.alter(rename={"n": "count"})
    assert values(scan) == [("a", "eu", 1, 1.5)]
    assert scan.narrowed(columns=["n"]).to_arrow().column_names == ["n"]


# --- what a write says at its begin -----------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"partition_by": "region"}, {"merge": PartialUpdate()}], ids=str)
def test_an_update_waits_for_no_write_of_other_rows_or_columns_whatever_they_are_called(
    make: Make, place: Place, settings: dict[str, Any]
) -> None:
    table = renamed(make, **settings)
    table.alter(rename={"region": "land of sale"})
    by_partition = "partition_by" in settings
    said: dict[str, Any] = {"partitions": [{"land of sale": "us"}]} if by_partition else {"columns": ["unit price"]}
    other = place.open().transaction(**said).__enter__()
    table.update({"count": "count + 1"}, where="\"land of sale\" = 'eu'", wait=timedelta(0))
    schema = ["key", "land of sale", "count", "unit price"]
    row = shown(("b", "us", 9, 9.5)).rename_columns(schema)
    if not by_partition:
        row = row.select(["key", "unit price"])
    other.upsert(row)
    with pytest.raises(InvalidInputError, match="declared"):
        other.upsert(shown(("z", "eu", 9, 9.5)).rename_columns(schema))
    with pytest.raises(EarlierWritePendingError):
        table.update({"unit price": 1.0}, where="\"land of sale\" = 'us'", wait=timedelta(0))
    other.__exit__(None, None, None)
    assert values(table, "key", "count", "unit price") == [("a", 2, 1.5), ("b", 9 if by_partition else 2, 9.5)]


def test_a_block_that_waits_goes_by_the_names_of_the_moment_when_it_has_waited(make: Make, place: Place) -> None:
    table = make(merge=PartialUpdate())
    table.upsert(frame(("a", "eu", 1, 1.5)))
    other = place.open().transaction().__enter__()
    other.upsert(frame(("b", "us", 2, 2.5)))

    class Renaming(SystemEnvironment):
        """A pause of an update, in which the earlier write ends and a column is renamed."""

        def sleep(self, seconds: float) -> None:
            if other.commit is None:
                other.__exit__(None, None, None)
                place.open().alter(rename={"n": "count"})

    waiting = place.open(opening=Opening(environment=Renaming()))
    with pytest.raises(InvalidInputError, match="no such columns"):
        waiting.update({"n": "n + 1"})
    waiting.update({"count": "count + 1"})
    assert values(table, "id", "count") == [("a", 2), ("b", 3)]


# --- rules ------------------------------------------------------------------------------------------------------------


def test_rules_follow_the_columns_that_they_name(make: Make) -> None:
    table = renamed(make)
    table.add_rules(
        Rules(not_null="unit price", check={"cheap": '"unit price" < 100 AND count >= 0'}, default={"region": "eu"})
    )
    table.alter(rename={"unit price": "net", "count": "how many", "region": "land of sale"})
    assert table.rules.not_null == ("net",)
    assert table.rules.check == {"cheap": '"net" < 100 AND "how many" >= 0'}
    assert table.rules.default == {"land of sale": "eu"}
    data = shown(("c", "eu", 3, 3.5)).rename_columns(["key", "land of sale", "how many", "net"])
    table.append(data.drop_columns("land of sale"))
    assert values(table, "key", "land of sale") == [("a", "eu"), ("b", "us"), ("c", "eu")]
    with pytest.raises(ConstraintViolationError, match=r"values={'how many': 3, 'net': 500.0}"):
        table.upsert(data.set_column(3, "net", pa.array([500.0])))
    with pytest.raises(ConstraintViolationError, match="not_null net"):
        table.update({"net": None})
    with pytest.raises(InvalidInputError, match="used by a rule"):
        table.alter(drop=["net"])
    with pytest.raises(ConstraintViolationError, match="'how many'"):
        table.add_rules(Rules(check={"few": '"how many" < 2'}))
    table.drop_rules(["not_null net", "check cheap", "default land of sale"])
    table.alter(drop=["net"])
    with pytest.raises(InvalidInputError, match="net"):
        table.add_rules(Rules(not_null="net"))


def test_a_new_table_of_any_names_has_rules(place: Place) -> None:
    rules = Rules(check={"sold": '"Total Sales" > 0'}, default={"Größe": "m"}, not_null="Nr.")
    table = place.create(schema=ODD, key="Nr.", rules=rules)
    assert table.rules.check == {"sold": '"Total Sales" > 0'}
    table.append(odd((1, 1.5, "a", 1)).drop_columns("Größe"))
    assert values(table) == [(1, 1.5, "m", 1)]
    with pytest.raises(ConstraintViolationError, match="Total Sales"):
        table.append(odd((2, -1.5, "a", 1)))
    merge = table.merge(pa.table({"Nr.": [2], "Total Sales": [2.5], "@timestamp": [1]}))
    merge.when_not_matched_insert_all().execute()
    assert values(table) == [(1, 1.5, "m", 1), (2, 2.5, "m", 1)]
    assert place.create(schema=ODD, key="Nr.", exist_ok=True, rules=rules).rules == table.rules


def test_a_check_whose_words_cannot_be_told_is_refused(make: Make) -> None:
    table = make()
    table.alter(rename={"n": "and"})
    with pytest.raises(InvalidInputError, match="double quotes"):
        table.add_rules(Rules(check={"both": '"and" > 0 and price > 0'}))
    table.add_rules(Rules(check={"both": '"and" > 0 AND price > 0'}))
    assert table.rules.check == {"both": '"and" > 0 AND price > 0'}


def test_a_merge_in_parts_goes_by_the_names(make: Make) -> None:
    table = renamed(make, partition_by="region")
    table.alter(rename={"key": "the key", "region": "land of sale"})
    source = shown(("a", "eu", 10, 1.5), ("c", "us", 3, 3.5)).rename_columns(
        ["the key", "land of sale", "count", "unit price"]
    )

    def elsewhere(parts: Sequence[MergePart], spread: MergeSpread) -> list[PartDone]:
        numbers = spread.numbers(source)
        return [part.execute(source.filter(pc.equal(numbers, part.number))) for part in parts]

    merge = table.merge(source.schema, parts=2, execute_parts=elsewhere)
    done = (
        merge.when_matched_update({"count": 'target."count" + source."count"'}).when_not_matched_insert_all().execute()
    )
    assert (done.updated, done.inserted) == (1, 1)
    assert values(table, "the key", "count") == [("a", 11), ("b", 2), ("c", 3)]


# --- made again -------------------------------------------------------------------------------------------------------

SALES = {"id": pa.int64(), "net": pa.float64(), "land": pa.string(), "note": pa.string()}
CALLED = {"id": "Nr.", "net": "Net Sales", "land": "Größe"}
OF_SALES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "latest": ({"partition_by": "land", "cluster_by": "net",
                "rules": Rules(check={"sold": "net > 0"}, not_null="net")},
               {"partition_by": "Größe", "cluster_by": "Net Sales",
                "rules": Rules(check={"sold": '"Net Sales" > 0'}, not_null="Net Sales")}),
    "ordering": ({"ordering": "net", "rules": Rules(default={"land": "-"})},
                 {"ordering": "Net Sales", "rules": Rules(default={"Größe": "-"})}),
    "payloads": ({"merge": {("land", "net"): LatestBy("net")}},
                 {"merge": {("Größe", "Net Sales"): LatestBy("Net Sales")}}),
    "partial": ({"merge": PartialUpdate(columns={"net": Max()})},
                {"merge": PartialUpdate(columns={"Net Sales": Max()})}),
}  # fmt: skip
"""What a table of `SALES` is made with, and the same under the names of `CALLED`."""


@pytest.mark.parametrize("kind", OF_SALES)
def test_a_table_is_there_by_the_names_of_now_alone(place: Place, kind: str) -> None:
    then, now = OF_SALES[kind]
    place.create(schema=SALES, key="id", **then).alter(rename=CALLED, drop=["note"])
    columns = {name: SALES[old] for old, name in CALLED.items()}
    again = place.create(schema=columns, key="Nr.", exist_ok=True, **now)
    again.upsert(pa.table({"Nr.": [1], "Net Sales": [1.5], "Größe": ["s"]}))
    assert again.schema.names == [*CALLED.values()]
    with pytest.raises(TableExistsError) as raised:
        place.create(schema=SALES, key="id", exist_ok=True, **then)
    assert "another key or partition and another" in str(raised.value)
    for said in ("'net' was renamed to 'Net Sales'", "'note' was dropped", "['id']", "['Nr.']"):
        assert said in str(raised.value)
    assert "KeySpec" not in str(raised.value)


def test_a_table_that_has_grown_is_there_for_its_first_columns_and_for_all(place: Place) -> None:
    first = {"id": pa.int64(), "n": pa.int32()}
    table = place.create(schema=first, key="id")
    table.upsert(pa.table({"id": [1], "n": [2**40], "Größe": ["s"]}), schema_mode="merge")
    grown = {"id": pa.int64(), "n": pa.int64()}
    for columns in (first, grown, {**first, "Größe": pa.string()}, {**grown, "Größe": pa.string()}):
        assert place.create(schema=columns, key="id", exist_ok=True).count() == 1
    wrong: dict[str, tuple[dict[str, pa.DataType], str]] = {
        "type": ({"id": pa.int64(), "n": pa.int16()}, r"asked=\{'n': 'int16'\} found=\{'n': 'int64'\}"),
        "missing": ({"id": pa.int64()}, r"asked=\{'n': None\} found=\{'n': 'int64'\}"),
        "unknown": ({**first, "more": pa.int64()}, r'schema_mode="merge".*asked=\{\'more\': \'int64\'\}'),
        "order": ({"n": pa.int32(), "id": pa.int64()}, r"another order.*asked=\['n', 'id'\] found=\['id', 'n'\]"),
    }
    for columns, said in wrong.values():
        with pytest.raises(SchemaMismatchError, match=f"another schema: open it.*{said}"):
            place.create(schema=columns, key="id", exist_ok=True)


def test_each_difference_of_a_table_that_is_there_is_named(place: Place) -> None:
    place.create(schema=SALES, key="id", rules=Rules(check={"sold": "net > 0"})).alter(rename=CALLED)
    with pytest.raises(TableExistsError) as raised:
        place.create(
            schema=SALES, key="note", buckets=3, ordering="net", cluster_by="net",
            rules=Rules(check={"sold": "net > 1"}), exist_ok=True,
        )  # fmt: skip
    named = ("key or partition", "merge", "buckets", "schema", "layout", "set of rules")
    assert f"with another {' and another '.join(named)}: open it" in str(raised.value)
    assert "'key': ['Nr.']" in str(raised.value)
    assert '"Net Sales" > 0' in str(raised.value)


# --- what a name may be -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["*", "^net$", "^.*$", "x" * 256, "", " ", "a\nb", "\u200bz"])
def test_a_name_that_some_door_would_not_take_is_refused_by_each(place: Place, name: str) -> None:
    table = place.create(schema={"id": pl.Int64, "net": pl.Int64}, key="id")
    doors: list[Callable[[], object]] = [
        lambda: place.create(schema={name: pl.Int64, "net": pl.Int64}, key="net"),
        lambda: table.alter(rename={"net": name}),
        lambda: table.upsert(pl.DataFrame({"id": [1], "net": [1], name: [1]}), schema_mode="merge"),
        lambda: table.upsert(pa.table({"id": [1], "net": [1], "at": [{name: 1}]}), schema_mode="merge"),
        lambda: Table.create_from(
            "u", pa.table({"id": [1], name: [1]}), key="id", opening=Opening(store=MemoryStore())
        ),
    ]
    for door in doors:
        with pytest.raises(InvalidInputError, match=r"name must .*: choose another"):
            door()
    assert table.schema.names == ["id", "net"]


def test_a_name_with_a_zero_character_is_refused() -> None:
    for schema in ({"id": pl.Int64, "a\0b": pl.Int64}, pl.DataFrame({"id": [1], "a\0b": [1]})):
        with pytest.raises(InvalidInputError, match=r"column='a.x00b'"):
            Table.create("t", schema, key="id", opening=Opening(store=MemoryStore()))
    table = Table.create("t", {"id": pl.Int64}, key="id", opening=Opening(store=MemoryStore()))
    for rows in (pl.DataFrame({"id": [1], "a\0b": [1]}), pl.LazyFrame({"id": [1], "a\0b": [1]})):
        with pytest.raises(InvalidInputError, match=r"column='a.x00b'"):
            table.upsert(rows, schema_mode="merge")


@pytest.mark.parametrize("name", [" a", "a,b", 'a"b', "x AND y", "^net", "select"])
def test_a_name_with_signs_of_sql_and_lists_goes_through_each_door(name: str) -> None:
    rows = pl.DataFrame({"id": [1, 2], name: [10, 20]})
    table = Table.create(
        "t",
        rows,
        key="id",
        cluster_by=[name],
        rules=Rules(not_null=name),
        opening=Opening(store=MemoryStore()),
        buckets=1,
    )
    table.upsert(rows)
    said = '"' + name.replace('"', '""') + '"'
    assert table.update({name: f"{said} + 1"}, f"{said} = 20").rows == 1
    met = table.merge(pl.DataFrame({name: [21]}), on=f"target.{said} = source.{said} and target.{said}=source.{said}")
    assert met.when_matched_update({name: f"source.{said} + target.{said}"}).execute().updated == 1
    table.maintenance.compact()
    table.alter(rename={name: "n"}, comment={"n": "of now"})
    table.alter(rename={"n": name}, comment={"id": "a key"})
    assert table.inspect.comments() == {name: "of now", "id": "a key"}
    assert values(table.scan(columns=[name], filter=f"{said} > 9")) == [(10,), (42,)]

"""The schema grows without stopping anybody, and a write that is refused grows nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import CrdtMorError, InvalidInputError, Table
from crdt_mor.errors import SchemaMismatchError
from crdt_mor.merge.payload import Payload
from crdt_mor.payloads import Counter, LatestBy, PartialUpdate
from tests.inside import session_of
from tests.interop.hudi_archive import edit, make_hudis
from tests.table.helpers import SCHEMA, Make, Place, data_files, frame, rows

NEW = pa.array([7], pa.int64())
A, B = ("a", "eu", 1, 1.5), ("b", "us", 2, 2.5)


def wide(*row: object, **more: object) -> pa.Table:
    """One row with columns that the table lacks."""
    found = frame(row)
    for name, value in (more or {"new": 7}).items():
        found = found.append_column(name, pa.array([value]))
    return found


def at_once(table: Table, data: pa.Table, **options: Any) -> None:
    table.upsert(data, **options)


def in_an_append(table: Table, data: pa.Table, **options: Any) -> None:
    table.append(data, **options)


def in_a_transaction(table: Table, data: pa.Table, **options: Any) -> None:
    with table.transaction() as tx:
        tx.upsert(data, **options)


def by_many(table: Table, data: pa.Table, **options: Any) -> None:
    job = table.jobs.plan("upsert", data.schema, **options)
    table.jobs.complete(job, [job.stage(data, task=3)])


DOORS = [at_once, in_an_append, in_a_transaction, by_many]
TABLES: dict[str, dict[str, Any]] = {
    "latest": {},
    "partitioned": {"partition_by": "region"},
    "ordering": {"ordering": "n"},
    "payloads": {"merge": {"n": Counter()}},
}

# --- a column that came later is optional -----------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("settings", TABLES.values(), ids=TABLES)
def test_a_writer_that_leaves_out_a_column_that_came_later_writes_null(
    make: Make, place: Place, settings: dict[str, Any], door: Callable[..., None]
) -> None:
    older = make(**settings)
    place.open().upsert(wide(*A), schema_mode="merge")
    door(older, frame(A))
    door(older, frame(B), schema_mode="merge")
    expected = [("a", None), ("b", None)]
    assert rows(older, "id", "new") == expected
    older.delete(frame(A))
    assert rows(older, "id", "new") == expected[1:]
    older.maintenance.compact()
    assert rows(place.open(), "id", "new") == expected[1:]
    assert older.schema.names == [*SCHEMA.names, "new"]


@pytest.mark.parametrize("door", DOORS)
def test_under_partial_updates_it_stays_as_it_was(make: Make, place: Place, door: Callable[..., None]) -> None:
    older = make(merge=PartialUpdate())
    place.open().upsert(wide(*A), schema_mode="merge")
    door(older, frame(("a", "eu", 3, 3.5)))
    for _ in range(2):
        assert rows(older, "id", "n", "new") == [("a", 3, 7)]
        older.maintenance.compact()


def test_a_job_that_was_planned_before_a_column_came_is_completed(make: Make, place: Place) -> None:
    table = make()
    job = table.jobs.plan("upsert", SCHEMA)
    first = job.stage(frame(A), task=0)
    table.upsert(wide(*A, new=1), schema_mode="merge")
    table.jobs.complete(job, [first, job.stage(frame(A, B), task=1)])
    assert rows(table, "id", "new") == [("a", 1), ("b", None)], "the job was requested first, so its row a loses"


def test_the_columns_of_creation_stay_required_for_those_who_grow_as_well(make: Make) -> None:
    table = make()
    table.upsert(wide(*A), schema_mode="merge")
    for mode in ("strict", "merge"):
        with pytest.raises(SchemaMismatchError, match=r"give every column.*missing=\['price'\]"):
            table.upsert(wide(*A).drop_columns(["price"]), schema_mode=mode)
    assert table.schema.names == [*SCHEMA.names, "new"]


def test_columns_of_two_that_grow_at_once_are_optional_for_both(make: Make, place: Place) -> None:
    one, two = make(), place.open()
    with one.transaction() as first, two.transaction() as second:
        first.upsert(wide(*A, x=1), schema_mode="merge")
        first.upsert(frame(("c", "eu", 3)))
        second.upsert(wide(*B, y="why"), schema_mode="merge")
    one.upsert(wide("d", "eu", 4, None, x=4))
    two.upsert(wide("e", "eu", 5, None, y="yes"), schema_mode="merge")
    assert rows(one, "id", "x", "y") == [
        ("a", 1, None), ("b", None, "why"), ("c", None, None), ("d", 4, None), ("e", None, "yes")
    ]  # fmt: skip


@pytest.mark.parametrize("says", [True, False])
def test_in_a_table_that_hudi_made_the_columns_of_its_adoption_are_required(make: Make, path: str, says: bool) -> None:
    make().upsert(frame(A))
    make_hudis(Path(path), {} if says else {"hoodie.table.create.schema": ""})
    table, older = Table(path), Table(path)
    assert not session_of(table).config.ours
    assert (session_of(table).config.created_schema() is not None) == says
    with pytest.raises(SchemaMismatchError, match=r"missing=\['price'\]"):
        table.upsert(frame(B).drop_columns(["price"]))
    job = table.jobs.plan("upsert", wide(*B).schema, schema_mode="merge")
    table.jobs.complete(job, [job.stage(wide(*B), task=0)])
    older.upsert(frame(A))
    assert rows(Table(path), "id", "new") == [("a", None), ("b", 7)]
    with pytest.raises(SchemaMismatchError, match=r"missing=\['price'\]"):
        table.upsert(wide(*B).drop_columns(["price"]))


# --- a write that is refused grows nothing ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Picky(Payload):
    """Cannot take 666, nor merge 13."""

    name: ClassVar[str] = "acme.picky/1"

    def join(self, a: int, b: int) -> int:
        return max(a, b)

    def lift(self, written: pl.Expr, dot: object) -> pl.Expr:
        return written.map_batches(lambda s: refuse(s, 666), pl.Int64(), is_elementwise=True)

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.max().map_batches(lambda s: refuse(s, 13), pl.Int64(), is_elementwise=True)

    def examples(self) -> list[int]:
        return [1, 2, 3]


def refuse(values: pl.Series, number: int) -> pl.Series:
    if (values == number).any():
        raise RuntimeError(f"not {number}")
    return values


GOOD = frame(A, B).append_column("new", pa.array([1, 2]))


def but(name: str, values: list[object], kind: pa.DataType | None = None) -> pa.Table:
    return GOOD.set_column(GOOD.column_names.index(name), name, pa.array(values, kind))


def without(name: str) -> pa.Table:
    return GOOD.drop_columns([name])


def renamed(old: str, new: str) -> pa.Table:
    return GOOD.rename_columns([new if name == old else name for name in GOOD.column_names])


def plus(name: str, kind: pa.DataType) -> pa.Table:
    return GOOD.append_column(name, pa.nulls(2, kind))


PARTITIONED = {"partition_by": "region"}
ORDERED = {"ordering": "n"}
COUNTED = {"merge": {"n": Counter()}}
TOGETHER = {"merge": PartialUpdate(columns={("n", "price"): LatestBy("n")})}
PICKY = {"merge": {"n": Picky()}}
STRUCT = pa.struct([("a", pa.int8()), ("A", pa.int8())])

IN_COLUMNS: dict[str, tuple[dict[str, Any], pa.Table]] = {
    "no key column": ({}, without("id")),
    "a misspelt key column": ({}, renamed("id", "idd")),
    "a key column in other letters": ({}, renamed("id", "ID")),
    "a column in other letters": ({}, renamed("price", "Price")),
    "a new column that differs from one in case": ({}, plus("PRICE", pa.int8())),
    "two new columns that differ in case": ({}, plus("New", pa.int8())),
    "fields that differ in case": ({}, plus("s", STRUCT)),
    "fields that differ in case, deep inside": ({}, plus("s", pa.list_(pa.map_(pa.string(), STRUCT)))),
    "no column of creation": ({}, without("price")),
    "no partition column": (PARTITIONED, without("region")),
    "no partition column in a partial update": ({**PARTITIONED, "merge": PartialUpdate()}, without("region")),
    "no ordering column": (ORDERED, without("n")),
    "a type that cannot be stored": ({}, plus("d", pa.month_day_nano_interval())),
    "a field whose name nobody can see": ({}, plus("d", pa.struct([("\n", pa.int8())]))),
    "a name of Hudi's": ({}, plus("_Hoodie_x", pa.int8())),
    "a column twice": ({}, GOOD.append_column("n", pa.array([1, 2]))),
    "types that do not join": ({}, but("n", [1.5, 2.5])),
    "another type": ({}, but("n", ["x", "y"])),
    "an ordering column that would widen": ({"ordering": "n", "schema": SCHEMA.set(2, pa.field("n", pa.int32()))},
                                            but("n", [1, 2])),
    "a payload whose column would widen": ({"merge": {"n": Counter()}}, but("n", [1.5, 2.5])),
    "half of the columns that decide together": (TOGETHER, without("price")),
}  # fmt: skip
IN_ROWS: dict[str, tuple[dict[str, Any], pa.Table]] = {
    "a null key": ({}, but("id", ["a", None])),
    "an empty key": ({}, but("id", ["a", ""])),
    "a partition that is no folder": (PARTITIONED, but("region", ["eu", "u/s"])),
    "a null ordering value": (ORDERED, but("n", [1, None])),
    "a null where none may be": ({"schema": SCHEMA.set(3, pa.field("price", pa.float64(), nullable=False))},
                                 but("price", [1.5, None])),
    "nanoseconds in a new column": ({}, GOOD.append_column("t", pa.array([1, 2], pa.timestamp("ns")))),
    "a key without text in a composite key": ({"key": ["id", "region"]}, but("id", ["a", "__null__"])),
    "a value that a payload does not take": (PICKY, but("n", [1, 666])),
}  # fmt: skip
REPEATED = pa.concat_tables([GOOD, GOOD.slice(0, 1)])
UNMERGEABLE = pa.concat_tables([part.set_column(2, "n", pa.array([13, 12])) for part in (GOOD, GOOD)])


def in_the_middle(table: Table, data: pa.Table) -> None:
    """A good statement that grows the schema, then one that is refused."""
    with table.transaction() as tx:
        tx.upsert(GOOD.append_column("other", pa.array([1, 2])), schema_mode="merge")
        tx.upsert(data, schema_mode="merge")


def in_the_middle_and_caught(table: Table, data: pa.Table) -> None:
    """The transaction goes on after the refusal; what was refused is not part of it."""
    with table.transaction() as tx:
        try:
            tx.upsert(data, schema_mode="merge")
        except CrdtMorError as error:
            caught = error
        tx.upsert(frame())
    raise caught


def planned(table: Table, data: pa.Table) -> None:
    version = table.version
    try:
        table.jobs.plan("upsert", data.schema, schema_mode="merge")
    finally:
        assert table.version == version


REFUSED: dict[str, Callable[[Table, pa.Table], object]] = {
    "upsert": lambda table, data: table.upsert(data, schema_mode="merge"),
    "append": lambda table, data: table.append(data, schema_mode="merge"),
    "in the middle": in_the_middle,
    "in the middle, and caught": in_the_middle_and_caught,
}


@pytest.mark.costly
@pytest.mark.parametrize("case", [*IN_COLUMNS, *IN_ROWS])
def test_a_merge_that_is_refused_changes_nothing(make: Make, place: Place, case: str) -> None:
    settings, bad = (IN_COLUMNS | IN_ROWS)[case]
    table = make(**settings)
    narrow = pa.Table.from_pylist(frame(A).to_pylist(), table.schema)
    table.upsert(narrow)
    schema, before = table.schema, data_files(place)
    doors = REFUSED | ({"plan": planned} if case in IN_COLUMNS else {})
    for name, write in doors.items():
        with pytest.raises((InvalidInputError, SchemaMismatchError, CrdtMorError)):
            write(table, bad)
        assert table.schema == schema, name
        assert data_files(place) == before, name
        assert "ALTER_SCHEMA" not in table.inspect.timeline()["operation"].to_pylist(), name
    table.upsert(narrow)
    assert "pending" not in table.inspect.timeline()["state"].to_pylist()


def test_a_merge_that_is_refused_for_two_rows_of_one_key_changes_nothing(make: Make) -> None:
    table = make()
    for write in (REFUSED["append"], in_the_middle_of_an_append):
        with pytest.raises(InvalidInputError, match="occurs twice"):
            write(table, REPEATED)
        assert table.schema == SCHEMA


def in_the_middle_of_an_append(table: Table, data: pa.Table) -> None:
    with table.transaction() as tx:
        tx.append(GOOD, schema_mode="merge")
        tx.append(data, schema_mode="merge")


def test_rows_that_a_payload_cannot_merge_grow_nothing(make: Make) -> None:
    table = make(**PICKY)
    with pytest.raises(CrdtMorError, match="not 13"):
        table.upsert(UNMERGEABLE, schema_mode="merge")
    assert table.schema == SCHEMA


def test_a_delete_that_is_refused_takes_the_growth_of_its_transaction_along(make: Make) -> None:
    table = make()
    for bad in (frame(A).drop_columns(["id"]), pa.table({"id": [None]}, pa.schema([("id", pa.string())]))):
        with pytest.raises(InvalidInputError), table.transaction() as tx:  # noqa: PT012
            tx.upsert(GOOD, schema_mode="merge")
            tx.delete(bad)
        assert table.schema == SCHEMA


def test_what_others_add_first_refuses_the_commit_before_anything_is_staged(make: Make, place: Place) -> None:
    table, other = make(), place.open()
    for theirs, mine in (({"x": "text"}, {"x": 1}), ({"y": 1}, {"Y": 1})):
        with pytest.raises((InvalidInputError, SchemaMismatchError)), table.transaction() as tx:  # noqa: PT012
            tx.upsert(wide(*A, **mine), schema_mode="merge")
            other.upsert(wide(*B, **theirs), schema_mode="merge")
    assert rows(table, "id", "x", "y") == [("b", None, 1)]


def test_a_plan_into_a_table_that_cannot_be_written_grows_nothing(make: Make, path: str) -> None:
    """Keys may live outside of its bucket index."""
    table = make(buckets=1)
    table.upsert(frame(A))
    foreign = "1c2a7d4e-9f00-4c33-8a55-0123456789ab-0"
    (log,) = Path(path).glob(".0*.log.*")
    make_hudis(Path(path))
    name = f".{foreign}{log.name[log.name.index('_') :]}"
    log.rename(log.with_name(name))
    edit(Path(path), lambda commit: renamed_in(commit, foreign, name))
    table = Table(path)
    with pytest.raises(InvalidInputError, match="another engine wrote to file groups"):
        table.jobs.plan("upsert", GOOD.schema, schema_mode="merge")
    assert table.inspect.timeline().num_rows == 1
    assert table.schema == SCHEMA


def renamed_in(commit: Any, file_id: str, name: str) -> Any:
    stats = {p: tuple(replace(s, file_id=file_id, path=name, log_files=(name,)) for s in found)
             for p, found in commit.stats.items()}  # fmt: skip
    return replace(commit, stats=stats)


# --- names that differ only in case -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([("price", pa.int8()), ("Price", pa.int8())], r"column=Price other=price"),
        ([("s", STRUCT)], r"column=s\.A other=s\.a"),
        ([("l", pa.list_(STRUCT))], r"column=l\..*A other=l\..*a"),
        ([("_HOODIE_x", pa.int8())], "_HOODIE_x"),
    ],
)
def test_names_that_differ_only_in_case_are_refused_at_create(
    make: Make, path: str, columns: list[Any], says: str
) -> None:
    with pytest.raises(InvalidInputError, match=says):
        make(schema=pa.schema([("id", pa.string()), *columns]))
    assert not Path(path).exists()


def test_a_column_in_other_letters_is_named_beside_the_one_that_is_meant(make: Make) -> None:
    with pytest.raises(SchemaMismatchError, match=r"differ only in case.*{'Price': 'price'}"):
        make().upsert(frame(A).rename_columns(["id", "region", "n", "Price"]))


def test_a_table_that_has_such_names_from_before_is_written_on(make: Make, path: str) -> None:
    schema = pa.schema([("id", pa.string()), ("a", pa.int64()), ("b", pa.int64())])
    make(schema=schema)
    file = Path(path) / ".hoodie/hoodie.properties"
    file.write_text(file.read_text().replace('\\"b\\"', '\\"A\\"').replace('["b"', '["A"').replace('"b"', '"A"'))
    for version in (Path(path) / ".hoodie/.crdt_mor/timeline").iterdir():
        version.write_bytes(version.read_bytes().replace(b'\\"b\\"', b'\\"A\\"'))
    table = Table(path)
    assert table.schema.names == ["id", "a", "A"]
    table.upsert(pa.table({"id": ["k"], "a": [1], "A": [2], "new": [3]}), schema_mode="merge")
    assert rows(table) == [("k", 1, 2, 3)]


def test_a_frame_of_polars_adds_columns_in_ordinary_types(make: Make, place: Place) -> None:
    table = make()
    table.upsert(pl.DataFrame({"id": ["a"], "region": ["x"], "n": [1], "price": [1.0]}))
    wider = pl.DataFrame({
        "id": ["b"], "region": ["x"], "n": [2], "price": [1.0],
        "title": ["t"], "tags": [["x", None]], "inner": [{"note": "n", "raw": b"r"}], "raw": [b"r"],
        "kind": pl.Series(["k"], dtype=pl.Categorical),
    })  # fmt: skip
    table.upsert(wider, schema_mode="merge")
    assert place.open().schema.field("title").type == pa.string()
    assert table.schema.field("raw").type == pa.binary()
    assert "view" not in str(table.schema)
    assert table.scan(filter="id = 'b'").to_polars().select(wider.columns[:-1]).equals(wider[:, :-1])
    before = table.version
    table.upsert(wider, schema_mode="merge")
    assert table.schema == place.open().schema
    assert table.version == before + 1, "the second time nothing grows"


@pytest.mark.parametrize("name", ["void", "Größe"])
@pytest.mark.parametrize("mode", ["strict", "merge"])
def test_a_column_of_type_null_that_is_not_there_is_refused_for_what_it_is(
    make: Make, name: str, mode: Literal["strict", "merge"]
) -> None:
    table = make()
    void = frame(A).append_column(name, pa.nulls(1))
    for names in (SCHEMA.names, ["id", "Land", "n", "price"]):
        with pytest.raises(SchemaMismatchError, match=f"of type null .*: drop the .*, or give it a type.*{name}"):
            table.upsert(void.rename_columns([*names, name]), schema_mode=mode)
        if mode == "merge":
            with pytest.raises(SchemaMismatchError, match="of type null"):
                table.jobs.plan("upsert", void.rename_columns([*names, name]).schema, schema_mode="merge")
        assert name not in table.schema.names
        if names == SCHEMA.names:
            table.alter(rename={"region": "Land"})
    table.upsert(frame(A).set_column(1, "Land", pa.nulls(1)), schema_mode=mode)
    assert table.scan(columns=["Land"]).to_polars()["Land"].to_list() == [None]

"""Rules in the table: not_null, check and default; asked of every write, and proven of the rows that are there."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Literal

import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor import InvalidInputError, Opening, PartialUpdate, Rules, Table
from crdt_mor.errors import ConstraintViolationError
from crdt_mor.payloads import Counter, LatestBy, ORSet
from crdt_mor.testing import SimulatedEnvironment

SCHEMA = pl.Schema({"id": pl.Int64, "price": pl.Float64, "country": pl.String, "qty": pl.Int64})


def table_of(store: mor.store.MemoryStore, **options: Any) -> Table:
    return Table.create("t", SCHEMA, key="id", opening=Opening(store=store), **options)


def ruled(store: mor.store.MemoryStore, **options: Any) -> Table:
    return table_of(store, rules=Rules(not_null="price", check={"positive": "price > 0"}), **options)


def rows(*values: tuple[Any, ...]) -> pl.DataFrame:
    return pl.DataFrame(list(values), schema=SCHEMA, orient="row")


@pytest.fixture(name="store")
def fixture_store() -> mor.store.MemoryStore:
    return mor.store.MemoryStore()


GOOD = (1, 1.0, "DE", 1)
BAD = (2, -1.0, "DE", 1)
NULL = (3, None, "DE", 1)

# --- every door -------------------------------------------------------------------------------------------------------


def in_a_block(table: Table, frame: pl.DataFrame) -> None:
    with table.transaction() as tx:
        tx.upsert(frame)


def by_many(table: Table, frame: pl.DataFrame, operation: Literal["upsert", "overwrite"] = "upsert") -> None:
    job = table.jobs.plan(operation, SCHEMA)
    try:
        table.jobs.complete(job, [job.stage(frame, task=0)])
    except ConstraintViolationError:
        table.jobs.abandon(job)
        raise


def merged(table: Table, frame: pl.DataFrame) -> None:
    table.merge(frame).when_matched_update_all().when_not_matched_insert_all().execute()


def updated(table: Table, frame: pl.DataFrame) -> None:
    price = frame["price"][-1]
    table.update(set={"price": pl.lit(price, pl.Float64)})


def updated_in_parts(table: Table, frame: pl.DataFrame) -> None:
    price = pl.lit(frame["price"][-1], pl.Float64)
    table.update({"price": price}, execute_parts=lambda parts: [part.execute() for part in parts])


def merged_in_parts(table: Table, frame: pl.DataFrame) -> None:
    merge = table.merge(SCHEMA, parts=1, execute_parts=lambda parts, _: [part.execute(frame) for part in parts])
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


DOORS: dict[str, Callable[[Table, pl.DataFrame], object]] = {
    "upsert": Table.upsert,
    "append": Table.append,
    "overwrite": Table.overwrite,
    "transaction": in_a_block,
    "many processes": by_many,
    "overwrite of many processes": partial(by_many, operation="overwrite"),
    "merge": merged,
    "update": updated,
    "update in parts": updated_in_parts,
    "merge in parts": merged_in_parts,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("bad", "constraint"), [(BAD, "check positive"), (NULL, "not_null price")], ids=str)
def test_every_door_is_held_to_the_rules(store: mor.store.MemoryStore, door: str, bad: Any, constraint: str) -> None:
    table = ruled(store)
    table.upsert(rows(GOOD))
    before, version = table.scan().to_arrow(), table.version
    with pytest.raises(ConstraintViolationError, match="nothing was written") as raised:
        DOORS[door](table, rows((4, 4.0, "FR", 1), bad))
    assert raised.value.constraint == constraint
    assert raised.value.rows == 1
    assert raised.value.key == {"id": 1 if door.startswith("update") else bad[0]}
    assert table.scan().to_arrow() == before
    commits = table.history()
    assert commits.num_rows == 1, f"{version=}"


def test_a_load_is_held_to_the_rules(store: mor.store.MemoryStore) -> None:
    with pytest.raises(ConstraintViolationError, match="'id': 2"):
        Table.create_from(
            "t", rows(GOOD, BAD), key="id", opening=Opening(store=store), rules=Rules(check={"positive": "price > 0"})
        )
    table = Table.create_from(
        "t", rows(GOOD), key="id", opening=Opening(store=store), rules=Rules(check={"positive": "price > 0"})
    )
    assert dict(table.rules.check) == {"positive": "price > 0"}


def test_the_first_row_and_the_number_of_rows_are_named(store: mor.store.MemoryStore) -> None:
    table = ruled(store)
    with pytest.raises(ConstraintViolationError) as raised:
        table.upsert(rows(GOOD, (7, -7.0, "DE", 1), (5, -5.0, "DE", 1)))
    assert (raised.value.key, raised.value.rows) == ({"id": 7}, 2)
    assert "values={'price': -7.0}" in str(raised.value)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.constraint, again.key, again.rows) == (str(raised.value), "check positive", {"id": 7}, 2)


@pytest.mark.parametrize(
    ("value", "condition"),
    [
        (pa.scalar(1_000, pa.timestamp("ms")), "at > timestamp '2027-01-01'"),
        (pa.scalar(1_000, pa.timestamp("us", "Asia/Tokyo")), "at is null"),
        (pa.scalar(time(3), pa.time64("us")), "at is null"),
        (pa.scalar(timedelta(3), pa.duration("s")), "at is null"),
        (pa.scalar(3, pa.uint64()), "at > 5"),
    ],
    ids=lambda given: str(given.type) if isinstance(given, pa.Scalar) else "",
)
def test_a_row_breaks_a_check_the_error_shows_the_value_as_reads_do(value: pa.Scalar, condition: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", value.type)])
    opening = Opening(store=mor.store.MemoryStore())
    table = Table.create("t", schema, key="id", rules=Rules(check={"odd": condition}), opening=opening)
    with pytest.raises(ConstraintViolationError) as raised:
        table.append(pa.table({"id": [1], "at": pa.array([value.as_py()], value.type)}))
    assert f"values={ {'at': value.as_py()} }" in str(raised.value)


def test_null_passes_a_check(store: mor.store.MemoryStore) -> None:
    table = table_of(store, rules=Rules(check={"positive": "price > 0"}))
    table.upsert(rows(NULL))
    assert table.scan().to_polars().rows() == [NULL]


def test_a_process_that_knows_an_older_version_is_held_to_new_rules(store: mor.store.MemoryStore) -> None:
    table = table_of(store)
    table.upsert(rows(GOOD))
    stale = Table("t", opening=Opening(store=store))
    stale.scan().to_arrow()
    block = stale.transaction()
    with block as tx:  # it began before the rule, and is waited for
        Table("t", opening=Opening(store=store)).add_rules(Rules(check={"positive": "price > 0"}), validate=False)
        tx.upsert(rows((8, -8.0, "DE", 1)))
    assert table.scan(filter="price < 0").to_polars()["id"].to_list() == [8]
    for door in ("upsert", "transaction", "many processes", "update", "merge"):
        with pytest.raises(ConstraintViolationError):
            DOORS[door](Table("t", opening=Opening(store=store)), rows(BAD))
    with pytest.raises(ConstraintViolationError):
        stale.upsert(rows(BAD))


def test_a_job_that_was_planned_before_is_held_to_the_rules_when_it_begins_after(store: mor.store.MemoryStore) -> None:
    table = table_of(store)
    job = table.jobs.plan("upsert", SCHEMA)
    table.add_rules(Rules(check={"positive": "price > 0"}))
    with pytest.raises(ConstraintViolationError):
        job.stage(rows(BAD), task=0)
    table.jobs.abandon(job)


# --- defaults ---------------------------------------------------------------------------------------------------------


def test_a_column_that_is_not_given_has_its_default(store: mor.store.MemoryStore) -> None:
    table = table_of(store, rules=Rules(default={"country": "DE", "qty": 1}))
    table.upsert(rows(GOOD).select("id", "price"))
    table.upsert(rows((2, 2.0, None, None)))
    table.merge(rows((3, 3.0, "FR", 3)).select("id", "price")).when_not_matched_insert_all().execute()
    both = table.merge(pl.DataFrame({"id": [4, 5], "country": ["IT", "ES"]}))
    both = both.when_not_matched_insert({"id": "source.id", "country": "source.country"}, "source.id = 4")
    both.when_not_matched_insert({"id": "source.id", "price": "5.0"}).execute()
    assert table.scan().to_polars().sort("id").rows() == [
        (1, 1.0, "DE", 1), (2, 2.0, None, None), (3, 3.0, "DE", 1), (4, None, "IT", 1), (5, 5.0, "DE", 1),
    ]  # fmt: skip
    job = table.jobs.plan("upsert", {"id": pl.Int64, "price": pl.Float64})
    table.jobs.complete(job, [job.stage(rows((6, 6.0, "", 0)).select("id", "price"), task=0)])
    assert table.scan(filter="id = 6").to_polars().rows() == [(6, 6.0, "DE", 1)]
    with pytest.raises(mor.errors.SchemaMismatchError, match="price"):
        table.upsert(rows(GOOD).select("id"))


def test_in_partial_updates_rows_that_are_new_for_sure_have_defaults(store: mor.store.MemoryStore) -> None:
    table = table_of(store, merge=mor.PartialUpdate(), rules=Rules(default={"country": "DE"}))
    table.append(rows(GOOD).select("id"))
    table.upsert(pl.DataFrame({"id": [2, 3], "price": [1.0, 1.0]}))
    table.merge(pl.DataFrame({"id": [3, 4]})).when_matched_update_all().when_not_matched_insert_all().execute()
    found = table.scan(columns=["id", "country"]).to_polars().sort("id").rows()
    assert found == [(1, "DE"), (2, None), (3, None), (4, "DE")]


@pytest.mark.parametrize(
    ("kind", "given", "stored"),
    [
        (pa.int8(), 5, 5),
        (pa.int64(), "5", 5),
        (pa.float32(), 0.5, 0.5),
        (pa.bool_(), False, False),
        (pa.decimal128(9, 2), Decimal("1.50"), Decimal("1.50")),
        (pa.date32(), "2026-01-31", date(2026, 1, 31)),
        (pa.timestamp("s"), "2026-01-31 12:00:00", datetime.fromisoformat("2026-01-31T12:00:00")),
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 1, 31, tzinfo=UTC)),
        (pa.string(), 'a "quoted" Größe', 'a "quoted" Größe'),
        (pa.time64("us"), "04:05:06.5", time(4, 5, 6, 500_000)),
        (pa.time32("s"), time(4, 5, 6), time(4, 5, 6)),
    ],
    ids=str,
)
def test_a_default_is_of_its_columns_type(
    store: mor.store.MemoryStore, kind: pa.DataType, given: Any, stored: Any
) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", kind)])
    Table.create("t", schema, key="id", opening=Opening(store=store), rules=Rules(default={"v": given}))
    table = Table("t", opening=Opening(store=store))
    assert dict(table.rules.default) == {"v": stored}
    table.upsert(pa.table({"id": [1]}))
    assert table.scan().to_arrow()["v"].to_pylist() == [stored]


@pytest.mark.parametrize(
    ("schema", "default"),
    [
        ({"id": pl.Int64, "v": pl.Int8}, {"v": 300}),
        ({"id": pl.Int64, "v": pl.Int64}, {"v": "x"}),
        ({"id": pl.Int64, "v": pl.Int64}, {"v": None}),
        ({"id": pl.Int64, "v": pl.List(pl.Int64)}, {"v": [1]}),
        ({"id": pl.Int64, "v": pl.Int64}, {"id": 1}),
        ({"id": pa.int64(), "v": pa.time64("us")}, {"v": 5}),
        ({"id": pl.Int64, "v": pl.Int64}, {"w": 1}),
    ],
    ids=str,
)
def test_what_is_no_default_is_refused(store: mor.store.MemoryStore, schema: Any, default: Any) -> None:
    with pytest.raises(InvalidInputError):
        Table.create("t", schema, key="id", opening=Opening(store=store), rules=Rules(default=default))
    assert store.list(".hoodie") == []


# --- what can be a rule -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "match"),
    [
        ({"check": {"a": "sum(price) > 0"}}, "element-wise"),
        ({"check": {"a": "price"}}, "condition"),
        ({"check": {"a": "pricee > 0"}}, "pricee"),
        ({"check": {"a": "1 = 1"}}, "columns that users write"),
        ({"check": {"a": "_hoodie_commit_time > '2'"}}, "columns that users write"),
        ({"check": {"a": pl.col("price") > 0}}, "names with SQL conditions"),
        ({"check": "price > 0"}, "names with SQL conditions"),
        ({"not_null": ["pricee"]}, "pricee"),
    ],
)
def test_what_is_no_rule_is_refused(store: mor.store.MemoryStore, rules: Any, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        table_of(store, rules=Rules(**rules))
    table = table_of(store)
    with pytest.raises(InvalidInputError, match=match):
        table.add_rules(Rules(**rules))
    assert not table.rules


def test_a_check_of_a_counter_is_asked_of_what_is_written(store: mor.store.MemoryStore) -> None:
    table = table_of(store, merge={"qty": Counter()}, rules=Rules(check={"up": "qty >= 0"}))
    table.upsert(rows(GOOD))
    table.upsert(rows(GOOD))
    with pytest.raises(ConstraintViolationError, match="'qty': -1"):
        table.update(set={"qty": "1"})  # which writes the difference
    with pytest.raises(InvalidInputError, match="ignores nulls"):
        table.add_rules(Rules(not_null="qty"))
    assert table.scan().to_polars()["qty"].to_list() == [2]


def test_a_check_of_a_column_that_is_written_otherwise_is_refused(store: mor.store.MemoryStore) -> None:
    schema = {"id": pl.Int64, "tags": pl.List(pl.String)}
    with pytest.raises(InvalidInputError, match="written in other types"):
        Table.create(
            "t",
            schema,
            key="id",
            opening=Opening(store=store),
            merge={"tags": ORSet()},
            rules=Rules(check={"a": "tags IS NOT NULL"}),
        )


def test_columns_that_a_payload_decides_together_are_checked(store: mor.store.MemoryStore) -> None:
    table = table_of(store, merge={("price", "qty"): LatestBy("qty")}, rules=Rules(check={"p": "price > 0"}))
    table.upsert(rows(GOOD))
    table.update(set={"country": "'FR'"})
    with pytest.raises(ConstraintViolationError):
        table.upsert(rows(BAD))
    with pytest.raises(InvalidInputError, match="ignores nulls"):
        table.add_rules(Rules(not_null="price"))
    assert table.scan().to_polars().rows() == [(1, 1.0, "FR", 1)]


# --- partial updates --------------------------------------------------------------------------------------------------


def test_a_partial_update_is_asked_for_what_it_gives(store: mor.store.MemoryStore) -> None:
    table = table_of(
        store,
        merge=PartialUpdate(),
        rules=Rules(not_null="price", check={"worth": "price * qty < 100"}, default={"country": "DE"}),
    )
    table.append(rows(GOOD).select("id", "price", "qty"))
    assert table.scan().to_polars().rows() == [GOOD]
    table.upsert(pl.DataFrame({"id": [1], "country": ["FR"]}))
    table.upsert(rows((1, 2.0, "", 3)).select("id", "price", "qty"))
    assert table.scan().to_polars().rows() == [(1, 2.0, "FR", 3)]
    with pytest.raises(mor.errors.SchemaMismatchError, match="together"):
        table.upsert(rows(GOOD).select("id", "price"))
    with pytest.raises(ConstraintViolationError, match="not_null price"):
        table.append(pl.DataFrame({"id": [2], "country": ["FR"]}))
    with pytest.raises(ConstraintViolationError, match="not_null price"):
        table.overwrite(pl.DataFrame({"id": [2], "country": ["FR"]}))
    table.update(set={"price": "20"})  # and writes the quantity that it has read, as the check asks both together
    assert table.scan().to_polars().rows() == [(1, 20.0, "FR", 3)]
    with pytest.raises(ConstraintViolationError, match="worth"):
        table.update(set={"qty": "5"})


# --- adding and dropping ----------------------------------------------------------------------------------------------


def test_a_rule_is_added_only_if_it_holds(store: mor.store.MemoryStore) -> None:
    table = table_of(store)
    table.upsert(rows(GOOD, BAD, (5, -5.0, "DE", 1)))
    with pytest.raises(ConstraintViolationError, match="not added") as raised:
        table.add_rules(Rules(check={"positive": "price > 0"}, default={"country": "DE"}))
    assert (raised.value.key, raised.value.rows) == ({"id": 2}, 2)
    assert not table.rules
    table.add_rules(Rules(check={"positive": "price > 0"}), validate=False)
    assert [*table.rules.unproven] == ["check positive"]
    with pytest.raises(ConstraintViolationError):
        table.upsert(rows(BAD))
    with pytest.raises(ConstraintViolationError):
        table.add_rules(Rules(check={"positive": "price > 0"}))
    assert [*table.rules.unproven] == ["check positive"]
    table.delete(where="price < 0")
    table.add_rules(Rules(check={"positive": "price > 0"}))
    assert not table.rules.unproven
    version = table.version
    table.add_rules(Rules(check={"positive": "price > 0"}))
    assert table.version == version
    with pytest.raises(InvalidInputError, match="another rule with this name"):
        table.add_rules(Rules(check={"positive": "price > 1"}))
    table.drop_rules("check positive")
    table.upsert(rows(BAD))
    with pytest.raises(InvalidInputError, match="no such rules"):
        table.drop_rules("check positive")
    with pytest.raises(InvalidInputError, match="pass rules to add"):
        table.add_rules(Rules())
    with pytest.raises(InvalidInputError, match="pass rules to drop"):
        table.drop_rules([])
    with pytest.raises(InvalidInputError, match=r"pass crdt_mor.Rules"):
        table.add_rules({"not_null": "price"})  # type: ignore[arg-type]
    for wrong in (None, 5, Rules(), [["check positive"]]):
        with pytest.raises(InvalidInputError, match="rules must be a string or a list of strings"):
            table.drop_rules(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("empty", [False, 0, "", []])
def test_rules_are_refused_by_the_name_of_their_argument(store: mor.store.MemoryStore, empty: Any) -> None:
    for name in ("check", "default"):
        with pytest.raises(InvalidInputError, match=f"pass {name}s as .*{name}="):
            table_of(store, rules=Rules(**{name: empty}))
    for name in ("not_null", "unproven"):
        with pytest.raises(InvalidInputError, match=f"^{name} must be a string or a list of strings"):
            Rules(**{name: 5})  # type: ignore[arg-type]
    assert Rules(unproven="check positive").unproven == ("check positive",)


def test_a_column_named_twice_has_one_rule(store: mor.store.MemoryStore) -> None:
    table = table_of(store, rules=Rules(not_null=["price", "price"]))
    assert table.rules == Rules(not_null="price")
    with pytest.raises(InvalidInputError, match=r"unknown=\['pric'\]"):
        table.add_rules(Rules(not_null="pric", default={"pric": 1}))


def test_rules_of_a_table_are_added_to_another_and_pickled(store: mor.store.MemoryStore) -> None:
    asked = Rules(not_null="id", check={"positive": "price > 0"}, default={"country": "DE"})
    assert pickle.loads(pickle.dumps(asked)) == asked
    assert asked.not_null == ("id",)
    assert not Rules()
    table, other = table_of(store, rules=asked), table_of(mor.store.MemoryStore())
    other.add_rules(table.rules)
    assert other.rules == table.rules == asked
    other.drop_rules(["not_null id", "check positive", "default country"])
    assert not other.rules


def test_a_rule_waits_for_writes_that_began_before_it(store: mor.store.MemoryStore) -> None:
    table = table_of(store)
    with table.transaction() as tx:
        tx.upsert(rows(BAD))
        with pytest.raises(mor.errors.EarlierWritePendingError, match="Add the rule again"):
            Table("t", opening=Opening(store=store)).add_rules(
                Rules(check={"positive": "price > 0"}), wait=timedelta(0)
            )
        assert not Table("t", opening=Opening(store=store)).rules
    with pytest.raises(ConstraintViolationError, match="not added"):
        table.add_rules(Rules(check={"positive": "price > 0"}))


def test_what_ends_while_a_rule_is_added_is_looked_at(store: mor.store.MemoryStore) -> None:
    """The write that began before the rule breaks it, and ends while the rule waits for it."""
    table = table_of(store)
    other = Table("t", opening=Opening(store=store))
    block = other.transaction()
    tx = block.__enter__()
    tx.upsert(rows(BAD))
    ended: list[bool] = []

    class Waiting(SimulatedEnvironment):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if not ended:
                ended.append(True)
                block.__exit__(None, None, None)

    with pytest.raises(ConstraintViolationError, match="not added"):
        Table("t", opening=Opening(store=store, environment=Waiting())).add_rules(
            Rules(check={"positive": "price > 0"})
        )
    assert ended
    assert not table.rules


def test_a_restore_leaves_later_rules_unproven(store: mor.store.MemoryStore) -> None:
    table = table_of(store, rules=Rules(not_null="country"))
    commit = table.upsert(rows(BAD))
    table.delete(where="price < 0")
    table.add_rules(Rules(check={"positive": "price > 0"}))
    assert not table.rules.unproven
    table.maintenance.restore(commit)
    assert [*table.rules.unproven] == ["check positive"]
    with pytest.raises(ConstraintViolationError):
        table.upsert(rows(BAD))


def test_rules_move_with_a_table(store: mor.store.MemoryStore) -> None:
    table = ruled(store)
    table.upsert(rows(GOOD))
    other = mor.store.MemoryStore()
    table.maintenance.migrate("u", buckets=2, store=other)
    moved = Table("u", opening=Opening(store=other))
    assert moved.rules == table.rules
    with pytest.raises(ConstraintViolationError):
        moved.upsert(rows(BAD))


def test_growth_keeps_checks_that_can_be_asked(store: mor.store.MemoryStore) -> None:
    table = Table.create(
        "t",
        {"id": pl.Int64, "n": pl.Int32},
        key="id",
        opening=Opening(store=store),
        rules=Rules(check={"even": "n % 2 = 0"}),
    )
    table.upsert(pl.DataFrame({"id": [1], "n": [2], "new": [1]}), schema_mode="merge")
    assert table.schema.field("n").type == pa.int64()
    with pytest.raises(ConstraintViolationError):
        table.upsert(pl.DataFrame({"id": [1], "n": [3]}))


def test_a_table_that_is_there_has_the_rules_that_are_asked_for(store: mor.store.MemoryStore) -> None:
    ruled(store)
    assert ruled(store, exist_ok=True).rules.check == {"positive": "price > 0"}
    assert table_of(store, exist_ok=True).rules.not_null == ("price",)
    with pytest.raises(mor.errors.TableExistsError, match="change its rules"):
        table_of(store, exist_ok=True, rules=Rules(not_null="price"))


def test_a_check_is_the_same_whether_or_not_its_columns_stand_in_quotes(store: mor.store.MemoryStore) -> None:
    columns = {"id": pa.int64(), "cost": pa.float64()}

    def again(check: str) -> Table:
        return Table.create(
            "t", columns, key="id", rules=Rules(check={"known": check}), exist_ok=True, opening=Opening(store=store)
        )

    first = {"id": pa.int64(), "price": pa.float64()}
    Table.create(
        "t", first, key="id", rules=Rules(check={"known": "price > 0 OR id = 7"}), opening=Opening(store=store)
    ).alter(rename={"price": "cost"})
    for check in ("cost > 0 OR id = 7", '"cost">0 OR "id" = 7'):
        assert again(check).rules.check == {"known": '"cost" > 0 OR id = 7'}
    for other in ("cost > 1 OR id = 7", "id > 0 OR cost = 7", "cost > 0 OR id = 77"):
        with pytest.raises(mor.errors.TableExistsError, match="change its rules"):
            again(other)


def test_a_table_without_rules_says_nothing_of_them(store: mor.store.MemoryStore) -> None:
    table = table_of(store)
    table.upsert(rows(GOOD))
    newest = store.list(".hoodie/.crdt_mor/timeline")[-1].path
    data = store.read(newest)
    assert data is not None
    assert b"rules" not in data
    properties = store.read(".hoodie/hoodie.properties")
    assert properties is not None
    assert b"rules" not in properties

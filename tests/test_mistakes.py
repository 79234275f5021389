"""Mistakes of the first days, and what their users are told: in our words, with the thing's name and what to do."""

# Most of these mistakes are arguments of a wrong type: a type checker would have told of them.
# mypy: disable-error-code="arg-type"

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor import InvalidInputError, Opening, Table
from crdt_mor.cli.main import app
from crdt_mor.errors import (
    FutureSnapshotError,
    InvalidUseError,
    LawError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    TableReplacedError,
    TokenOrderError,
    UnknownPayloadError,
    UnsupportedFeatureError,
)
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.payloads import Counter, Last, LatestBy
from crdt_mor.readers.polars import scan_table
from crdt_mor.store import MemoryStore

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("price", pa.float64()), ("day", pa.string())])
ROWS = pa.table({"id": ["a", "b"], "n": [1, 2], "price": [1.5, 2.5], "day": ["mon", "tue"]}, SCHEMA)


@dataclass(frozen=True)
class World:
    """Tables that all mistakes share: none of them changes one."""

    folder: Path
    events: Table
    ordered: Table
    parted: Table
    foreign: str
    """A checkpoint of another table than `events`."""


def made(uri: str | Path = "new", **settings: Any) -> Table:
    return Table.create(uri, **({"schema": SCHEMA, "key": "id", "buckets": 1} | settings))


@pytest.fixture(scope="module")
def world(fast_module_path: Path) -> World:
    folder = fast_module_path
    (folder / "broken.parquet").write_bytes(b"PAR1 and no more")
    (folder / "rows.xlsx").write_bytes(b"PK")
    (folder / "rows.csv").write_text("id,n,price,day\na,1,1.5,mon\n")
    (folder / "types.json").write_text('{"id": "text", "n": "int64"}')
    for metadata in ("delta/_delta_log/00000000000000000000.json", "iceberg/metadata/v1.metadata.json"):
        (folder / metadata).parent.mkdir(parents=True)
        (folder / metadata).write_text("{}")
    events, ordered, parted = (
        made(folder / "events"),
        made(opening=Opening(store=MemoryStore()), ordering="n"),
        made(opening=Opening(store=MemoryStore()), partition_by="day"),
    )
    for table in (events, ordered, parted):
        table.upsert(ROWS, token=("load", 5))
    return World(folder, events, ordered, parted, parted.changes().checkpoint)


def create(**settings: Any) -> Callable[[World], object]:
    return lambda _: made(opening=Opening(store=MemoryStore()), **settings)


def replaced(name: str, values: list[object]) -> pa.Table:
    return ROWS.set_column(ROWS.column_names.index(name), name, pa.array(values))


def after_the_block(world: World) -> None:
    with world.parted.transaction() as tx:
        pass
    tx.upsert(ROWS)


def the_same_block_twice(world: World) -> None:
    with world.parted.transaction() as tx, tx:
        pass


# --- payloads of beginners --------------------------------------------------------------------------------------------


class Greatest(mor.Payload):
    def join(self, a: Any, b: Any) -> Any:
        return max(a, b)

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.max()

    def examples(self) -> list[Any]:
        return [1, 2, 3]


class BadName(Greatest):
    name = "greatest"


class BadKind(Greatest):
    name = "beginner.kind/1"
    kind = "monoid"  # type: ignore[assignment]


class NoExamples(Greatest):
    name = "beginner.no_examples/1"

    def examples(self) -> list[Any]:
        return []


class MixedExamples(Greatest):
    name = "beginner.mixed/1"

    def examples(self) -> list[Any]:
        return [1, "a"]


class Raising(Greatest):
    name = "beginner.raising/1"

    def join(self, a: Any, b: Any) -> Any:
        return a.total + b.total


class NoExpression(Greatest):
    name = "beginner.no_expression/1"

    def merge(self, states: pl.Expr) -> Any:
        return 7


class NoMerge(Greatest):
    name = "beginner.no_merge/1"

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states


class Mean(mor.Payload):
    name = "beginner.mean/1"

    def join(self, a: Any, b: Any) -> Any:
        return (a + b) / 2

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.mean()

    def examples(self) -> list[Any]:
        return [0.0, 1.0, 4.0]


# --- the table of mistakes --------------------------------------------------------------------------------------------

Mistake = tuple[Callable[[World], object], type[Exception], str]

CREATE: dict[str, Mistake] = {
    "a key that is misspelt": (create(key="ID"), InvalidInputError, r"column=ID columns=\['id'"),
    "no key": (create(key=[]), InvalidInputError, "record key: name at least one column"),
    "a key that is None": (create(key=None), InvalidInputError, "a string or a list.*got=None"),
    "a key by number": (create(key=0), InvalidInputError, "a string or a list.*got=0"),
    "a key column twice": (create(key=["id", "id"]), InvalidInputError, "name each column once"),
    "a key of floats": (create(key="price"), InvalidInputError, "cast it to string.*column=price"),
    "a partition that is misspelt": (create(partition_by="dya"), InvalidInputError, "partition.*column=dya"),
    "an ordering that is misspelt": (create(ordering="ts"), InvalidInputError, "ordering.*column=ts"),
    "an ordering and payloads": (create(ordering="n", merge={"n": Counter()}), InvalidInputError, "goes with merge="),
    "no buckets": (create(buckets=0), InvalidInputError, "1 to .*buckets=0"),
    "buckets as text": (create(buckets="4"), InvalidInputError, "buckets='4'"),
    "half a bucket": (create(buckets=2.5), InvalidInputError, r"buckets=2\.5"),
    "a payload that is misspelt": (create(merge={"n": "conter"}), UnknownPayloadError, "counter/1.*payload='conter'"),
    "a payload's class": (create(merge={"n": Counter}), InvalidInputError, r"object like .*Counter\(\).*got="),
    "a payload of no column": (create(merge={"views": Counter()}), InvalidInputError, "column='views'"),
    "a payload of the key": (create(merge={"id": "max"}), InvalidInputError, "never merged.*column='id'"),
    "a counter of texts": (create(merge={"day": Counter()}), InvalidInputError, r"int64\. type=string"),
    "a merge in a word": (create(merge="last_write_wins"), InvalidInputError, "merge; use.*merge='last_write_wins'"),
    "a merge as a list": (create(merge=[Counter()]), InvalidInputError, "by column"),
    "two payloads of a column": (create(merge={"n": Counter(), ("n", "price"): LatestBy("n")}), InvalidInputError,
                                 r"one payload.*repeated=\['n'\]"),
    "a payload to which null is a value, in partial updates": (
        create(merge=mor.PartialUpdate(columns={"n": Last()})), InvalidInputError, r"skips nulls.*columns=\['n'\]"),
    "a schema of names": (create(schema=["id", "n"]), InvalidInputError, "pass the columns as.*type=list"),
    "no schema": (create(schema=None), InvalidInputError, "pass the columns as.*type=NoneType"),
    "a schema without columns": (create(schema=pa.schema([])), InvalidInputError, "at least one column"),
    "a type that does not exist": (create(schema={"id": "text"}), InvalidInputError, "column='id' type='text'"),
    "a column twice": (create(schema=pa.schema([("id", pa.string()), ("id", pa.int8())])), InvalidInputError,
                       r"rename one.*repeated=\['id'\]"),
    "a type that no file holds": (create(schema=pa.schema([("id", pa.string()), ("t", pa.month_day_nano_interval())])),
                                  SchemaMismatchError, "month has no fixed length.*column=t"),
    "a column of Hudi's": (create(schema=pa.schema([("id", pa.string()), ("_hoodie_x", pa.string())])),
                           InvalidInputError, "rename or drop it.*column=_hoodie_x"),
    "an expiry in the past": (lambda w: Opening(writer_expiry=timedelta(-1)), InvalidInputError,
                              "of 0 or more.*writer_expiry="),
    "an expiry in seconds": (lambda w: Opening(writer_expiry=600), InvalidInputError, "timedelta.*writer_expiry=600"),
    "an unknown upkeep": (lambda w: Opening(maintain="on"), InvalidInputError, 'maintain must be "inline".*got=\'on\''),
    "a number for a clock": (lambda w: Opening(environment=5), InvalidInputError,
                             r"pass as environment an object.*leave it out.*type=int missing=\['now_ms'"),
    "a class for a clock": (lambda w: Opening(environment=SystemEnvironment), InvalidInputError,
                            r"pass as environment an object.*type=type missing=\[\]"),
    "a store for an opening": (lambda w: Table(w.events.uri, opening=MemoryStore()), InvalidInputError,
                               r"pass an Opening as opening: .*type=MemoryStore"),
    "a file system of Hadoop": (lambda w: made("hdfs://lake/events"), UnsupportedFeatureError, "s3://.*scheme=hdfs"),
    "no address": (lambda w: made(""), InvalidInputError, "pass as address a path"),
    "a number for an address": (lambda w: made(5), InvalidInputError, "pass as address a path.*type=int"),
    "a table that is there": (lambda w: made(w.events.uri), TableExistsError, "exist_ok=True.*path="),
    "another table is there": (lambda w: made(w.events.uri, key="day", exist_ok=True), TableExistsError,
                               "another key.*asked=.*found="),
    "a table of Delta Lake is there": (lambda w: made(w.folder / "delta"), TableExistsError, "Delta Lake.*path="),
    "a file where the folder should be": (lambda w: made(w.folder / "rows.csv"), InvalidInputError,
                                          "not a file.*uri="),
}  # fmt: skip

OPEN: dict[str, Mistake] = {
    "a table that is not there": (lambda w: Table(w.folder / "evnets"), TableNotFoundError, "create it.*path=.*evnets"),
    "a table of Delta Lake": (lambda w: Table(w.folder / "delta"), TableNotFoundError, "Delta Lake.*path="),
    "a table of Iceberg": (lambda w: Table(w.folder / "iceberg"), TableNotFoundError, "Iceberg.*path="),
    "a data file": (lambda w: Table(w.folder / "broken.parquet"), InvalidInputError, "not a file.*uri="),
    "a frame for an address": (lambda w: Table(ROWS), InvalidUseError, "address as text or a path.*type=Table"),
    "a module of payloads that is not there": (
        lambda w: Table(w.events.uri, payloads=["acme_none"]), UnknownPayloadError, "PYTHONPATH.*module=acme_none"),
    "an object for a module": (lambda w: mor.allow_payloads(5), InvalidInputError, "module:Class.*got=5"),
}  # fmt: skip

WRITE: dict[str, Mistake] = {
    "a column is missing": (lambda w: w.events.upsert(ROWS.drop_columns(["price"])), SchemaMismatchError,
                            r"PartialUpdate.*missing=\['price'\]"),
    "the key is missing": (lambda w: w.events.upsert(ROWS.drop_columns(["id"])), SchemaMismatchError,
                           r"missing=\['id'\]"),
    "the partition is missing": (lambda w: w.parted.upsert(ROWS.drop_columns(["day"])), SchemaMismatchError,
                                 r"missing=\['day'\]"),
    "a column too many": (lambda w: w.events.upsert(ROWS.append_column("x", pa.array([1, 2]))), SchemaMismatchError,
                          r'schema_mode="merge".*unknown=\[\'x\'\]'),
    "texts for numbers": (lambda w: w.events.upsert(replaced("n", ["1", "2"])), SchemaMismatchError,
                          "cast to the column's type.*column=n type=string"),
    "fractions for integers": (lambda w: w.events.upsert(replaced("n", [1.0, 2.5])), SchemaMismatchError,
                               r"round it.*column=n row=1 value=2\.5"),
    "types that do not join": (lambda w: w.events.upsert(replaced("n", ["x", "y"]), schema_mode="merge"),
                               SchemaMismatchError, "cast one side.*column=n"),
    "a null key": (lambda w: w.events.upsert(replaced("id", ["a", None])), InvalidInputError,
                   "cannot be null.*column=id row=1"),
    "a key twice in an append": (lambda w: w.events.append(replaced("id", ["a", "a"])), InvalidInputError,
                                 "use upsert.*key='a'"),
    "a null ordering value": (lambda w: w.ordered.upsert(replaced("n", [1, None])), InvalidInputError,
                              "must not be null.*column='n'"),
    "a condition as rows to delete": (lambda w: w.events.delete("id = 'a'"), InvalidInputError,
                                      "pass a condition as where=.*data="),
    "an int for rows": (lambda w: w.events.upsert(5), InvalidInputError, "not a table: pass.*type=int"),
    "a list of dicts": (lambda w: w.events.upsert(ROWS.to_pylist()), InvalidInputError, "from_pylist.*type=list"),
    "a dict of lists": (lambda w: w.events.upsert(ROWS.to_pydict()), InvalidInputError, "not a table.*type=dict"),
    "a path for rows": (lambda w: w.events.upsert("rows.csv"), InvalidInputError, "not a table.*type=str"),
    "no rows at all": (lambda w: w.events.upsert(None), InvalidInputError, "not a table.*type=NoneType"),
    "a column for rows": (lambda w: w.events.upsert(pl.Series("id", ["a"])), InvalidInputError,
                          r"to_frame\(\).*type=Series"),
    "a column of pandas for rows": (lambda w: w.events.upsert(pd.Series(["a"], name="id")), InvalidInputError,
                                    r"(to_frame\(\)|not a table).*type=Series"),  # before pandas 3 it is no stream
    "a column of mixed types": (lambda w: w.events.upsert(pd.DataFrame({"id": ["a", 1]})), InvalidInputError,
                                r"astype.*column=id"),
    "a name that stands twice in pandas": (
        lambda w: w.events.upsert(pd.DataFrame([["a", 1, 2]], columns=["id", "v", "v"])), InvalidInputError,
        r"rename one.*\['v'\]"),
    "an index of pandas that is named like a column": (
        lambda w: w.events.upsert(pd.DataFrame({"id": ["a"]}, index=pd.Index(["b"], name="id"))), InvalidInputError,
        r"rename one.*\['id'\]"),
    "complex numbers": (lambda w: w.events.upsert(pd.DataFrame({"id": ["a"], "c": [1j]})), InvalidInputError,
                        "complex numbers.*column=c"),
    "complex numbers of a new table": (lambda w: Table.create(w.folder / "c", pd.DataFrame({"c": [1j]}), key="c"),
                                       InvalidInputError, "complex numbers.*column=c"),
    "a frame without names of columns": (lambda w: w.events.upsert(pd.DataFrame([["a", 1]])), SchemaMismatchError,
                                         r"unknown=\['0', '1'\]"),
    "a frame without columns": (lambda w: w.events.upsert(pl.DataFrame()), SchemaMismatchError, r"missing=\['id', 'n'"),
    "rows with Hudi's columns": (lambda w: w.events.upsert(w.events.scan(meta=True)), SchemaMismatchError,
                                 "drop the table's own columns"),
    "a token in a word": (lambda w: w.events.upsert(ROWS, token="load-6"), InvalidInputError,
                          r"\(application, number\).*got='load-6'"),
    "a token the wrong way round": (lambda w: w.events.upsert(ROWS, token=(6, "load")), InvalidInputError,
                                    r"\(application, number\).*got=\(6, 'load'\)"),
    "a token below the last one": (lambda w: w.events.upsert(ROWS, token=("load", 4)), TokenOrderError,
                                   "application='load' number=4 last=5"),
    "a schema mode of another engine": (lambda w: w.events.upsert(ROWS, schema_mode="overwrite"), InvalidInputError,
                                        '"strict" or "merge".*got=\'overwrite\''),
    "what a commit says, as a text": (lambda w: w.events.upsert(ROWS, commit_info="by me"), InvalidInputError,
                                      "map strings to strings.*got=str"),
    "an operation of another engine": (lambda w: w.events.jobs.plan("insert", SCHEMA), InvalidInputError,
                                       "append, upsert, delete.*got='insert'"),
    "a job in a word": (lambda w: w.events.jobs.complete("job-1", []), InvalidInputError, "jobs.plan.*got=str"),
    "no receipts": (lambda w: w.events.jobs.complete(w.events.jobs.plan("upsert", SCHEMA), None), InvalidInputError,
                    "list of receipts.*got=NoneType"),
    "a transaction after its block": (after_the_block, InvalidInputError, r"inside its block: with table\.transaction"),
    "a transaction without its block": (lambda w: w.parted.transaction().upsert(ROWS), InvalidInputError,
                                        r"inside its block: with table\.transaction"),
    "a transaction within itself": (the_same_block_twice, InvalidInputError, r"make a new one, table\.transaction"),
}  # fmt: skip

DELETE: dict[str, Mistake] = {
    "a delete of nothing": (lambda w: w.events.delete(), InvalidInputError, r"exactly one of .*keys=\[\.\.\.\]"),
    "a delete in two ways": (lambda w: w.events.delete(ROWS, keys=["a"]), InvalidInputError, "exactly one of"),
    "keys for a frame": (lambda w: w.events.delete(["a"]), InvalidInputError, "not a table.*type=list"),
    "a frame for keys": (lambda w: w.events.delete(keys=ROWS.select(["id"])), InvalidInputError,
                         r"delete\(frame\).*keys=Table"),
    "keys of another type": (lambda w: w.events.delete(keys=[7]), InvalidInputError, r"convert.*column=id.*\[7\]"),
    "keys of two columns for one": (lambda w: w.events.delete(keys=[("a", "b")]), InvalidInputError,
                                    r"value for each of \['id'\].*got=\('a', 'b'\)"),
    "keys without their partition": (lambda w: w.parted.delete(keys=["a"]), InvalidInputError,
                                     r"by a frame.*partition_by=\['day'\]"),
    "a delete without its ordering": (lambda w: w.ordered.delete(keys=["a"]), InvalidInputError,
                                      r"plain=True.*missing=\['n'\]"),
    "a delete where no column is": (lambda w: w.events.delete(where="nope = 1"), InvalidInputError, "nope"),
}  # fmt: skip


def scan(**asked: Any) -> Callable[[World], object]:
    return lambda w: w.events.scan(**asked).to_arrow()


READ: dict[str, Mistake] = {
    "a column that is misspelt": (scan(columns=["idd"]), InvalidInputError, r"there are \['id'.*unknown=\['idd'\]"),
    "a column twice": (scan(columns=["id", "id"]), InvalidInputError, r"pass each column once.*repeated=\['id'\]"),
    "a column by number": (scan(columns=[0]), InvalidInputError, r"column names as text.*types=\['int'\]"),
    "a column as an expression": (scan(columns=[pl.col("id")]), InvalidInputError, r"names as text.*types=\['Expr'\]"),
    "half a condition": (scan(filter="n >"), InvalidInputError, "filter=.*n >"),
    "a limit of history": (lambda w: w.events.history(limit=-1), InvalidInputError, "limit=-1"),
    "a whole query": (scan(filter="select * from events"), InvalidInputError, "filter=.*select"),
    "no condition": (scan(filter=""), InvalidInputError, "filter="),
    "texts in double quotes": (scan(filter='id = "a"'), InvalidInputError, r"\['id', 'n'.*unknown=\['a'\]"),
    "a condition on no column": (scan(filter=pl.col("x") > 1), InvalidInputError, r"unknown=\['x'\]"),
    "a condition on all rows": (scan(filter="n > avg(n)"), InvalidInputError, "element-wise.*filter="),
    "an aggregate": (scan(filter=pl.col("n") == pl.col("n").max()), InvalidInputError, "element-wise.*filter="),
    "a sum for a condition": (scan(filter=pl.col("n") + 1), InvalidInputError, "true or false.*filter="),
    "a number compared with a text": (scan(filter="n > 'a'"), InvalidInputError, "filter="),
    "a mask": (scan(filter=True), InvalidInputError, "expression or SQL text"),
    "a function for a condition": (scan(filter=len), InvalidInputError, "expression or SQL text"),
    "conditions of pyarrow": (scan(filter=[("id", "=", "a")]), InvalidInputError, "expression or SQL text"),
    "fewer rows than none": (scan(limit=-1), InvalidInputError, "0 or more.*limit=-1"),
    "a limit in a text": (scan(limit="10"), InvalidInputError, "0 or more.*limit='10'"),
    "a consistency of another engine": (scan(consistency="strong"), InvalidInputError, "stable.*got='strong'"),
    "a table as a list": (lambda w: list(w.events), InvalidUseError, r"to_polars\(\).*type=Table"),
    "a table's length": (lambda w: len(w.events), InvalidUseError, r"count\(\).*type=Table"),
    "a table as a frame": (lambda w: w.events["id"], InvalidUseError, r"to_polars\(\)\[.*item='id'"),
    "a scan as a list": (lambda w: list(w.events.scan()), InvalidUseError, r"to_polars\(\).*type=Scan"),
    "a lazy frame of no table": (lambda w: scan_table(w.folder / "no"), TableNotFoundError, "create it.*path="),
    "a moment in a word": (
        scan(as_of="yesterday"), InvalidInputError, "no savepoint of this name.*a version.*a date.*'yesterday'"),
    "a version to come": (scan(as_of=10_000), FutureSnapshotError, r"as_of=10000 newest=\d+"),
    "a moment to come": (scan(as_of=datetime(2199, 1, 1, tzinfo=UTC)), FutureSnapshotError, "as_of=21990101000000000"),
    "half a version": (scan(as_of=1.5), InvalidInputError, r"as_of=1\.5"),
    "a version before the first": (scan(as_of=-1), InvalidInputError, "count from 0.*as_of=-1"),
    "a truth for a moment": (scan(as_of=True), InvalidInputError, "as_of=True"),
    "a moment of a stable scan": (scan(as_of=1, consistency="stable"), InvalidInputError, "as_of or consistency"),
    "a checkpoint of another table": (lambda w: w.events.changes(since=w.foreign), TableReplacedError,
                                      "recreated.*since=.*found="),
    "half a checkpoint": (lambda w: w.events.changes(since=w.foreign[:20]), InvalidInputError, "'"),
    "changes for a checkpoint": (lambda w: w.events.changes(since=w.events.changes()), InvalidInputError, "=Changes"),
    "a window that ends before it begins": (lambda w: w.events.changes(since=w.events.version, until=0),
                                            InvalidInputError, "exchange the two.*since=.*until="),
    "images of raw changes": (lambda w: w.events.changes(images=True, raw=True), InvalidInputError, "images and raw"),
    "no commits at all": (lambda w: w.events.changes().limited(commits=0), InvalidInputError, "above 0.*commits=0"),
}  # fmt: skip

UPKEEP: dict[str, Mistake] = {
    "a plan that is no plan": (lambda w: w.events.maintenance.plans.cancel("the last one"), InvalidInputError,
                               "17 digits.*got='the last one'"),
    "a plan for its barrier": (lambda w: w.events.maintenance.plans.cancel(7), InvalidInputError,
                               r"plan\.barrier.*got=int"),
    "a barrier for its plan": (lambda w: w.events.maintenance.compact("20260101000000000"), InvalidInputError,
                               r"plans\.open\(\).*got=str"),
    "no log files": (lambda w: w.events.maintenance.compact(log_files_min=0), InvalidInputError, "log_files_min=0"),
    "log files as text": (lambda w: w.events.maintenance.compact(log_files_min="2"), InvalidInputError,
                          "log_files_min='2'"),
}  # fmt: skip

PAYLOADS: dict[str, Mistake] = {
    "a payload without a name": (create(merge={"n": Greatest()}), InvalidInputError, "such as name.*payload=Greatest"),
    "a name without a version": (create(merge={"n": BadName()}), InvalidInputError, "greatest"),
    "a kind of another book": (create(merge={"n": BadKind()}), InvalidInputError, "monoid"),
    "no examples": (create(merge={"n": NoExamples()}), InvalidInputError, "examples.*no_examples"),
    "examples of two types": (create(merge={"n": MixedExamples()}), InvalidInputError, "one type.*mixed.*examples="),
    "a join that raises": (create(merge={"n": Raising()}), LawError, "total"),
    "a merge that is no expression": (create(merge={"n": NoExpression()}), LawError, "polars expression.*int"),
    "a merge that merges nothing": (create(merge={"n": NoMerge()}), LawError, "kernel-exact"),
    "a mean of means": (create(merge={"price": Mean()}), LawError, "associative"),
    "a class for a payload": (lambda w: mor.check_laws(Mean), InvalidInputError, "not a class.*got="),
    "a name for a payload": (lambda w: mor.check_laws("mean"), InvalidInputError, "not a class or a name.*got='mean'"),
}  # fmt: skip

IN_PYTHON = CREATE | OPEN | WRITE | DELETE | READ | UPKEEP | PAYLOADS

FOREIGN = re.compile(
    "Traceback|object is not|has no attribute|positional argument|object at 0x|ArrowInvalid|ComputeError|panicked|"
    "Resolved plan|This error occurred|Expected bytes|Could not convert|Cannot import schema|Conversion failed|"
    "not supported between"
)
"""What Python, polars and Arrow say of such mistakes."""


def check_words(message: str) -> None:
    """A message is ours: one line, no text of another library, and it names a value, a call or a rule to go by."""
    assert not FOREIGN.search(message), message
    assert "\n" not in message, message
    assert re.search(r"\w=\S|\w\(|: | - |;", message), message


@pytest.mark.costly
@pytest.mark.parametrize("case", IN_PYTHON)
def test_a_mistake_in_python_is_explained(world: World, case: str) -> None:
    mistake, error, words = IN_PYTHON[case]
    before = world.events.version
    with pytest.raises(error) as caught:
        mistake(world)
    assert isinstance(caught.value, mor.CrdtMorError)
    assert re.search(words, str(caught.value), re.DOTALL), str(caught.value)
    if error is not LawError:  # of which the lines are counterexamples, and what the payload itself raised
        check_words(str(caught.value))
    assert world.events.scan().count() == 2
    assert world.events.version - before <= 3, "a mistake may begin a write and roll it back"


COMMANDS: dict[str, tuple[list[str], int, str]] = {
    "a table that is not there": (["show", "@evnets"], 1, "create it.*path=.*evnets"),
    "a command that is misspelt": (["shwo", "@events"], 2, "Did you mean 'show'|No such command 'shwo'"),
    "an option that is missing": (["create", "@new", "--like", "@rows.csv"], 2, "--key"),
    "a table of Delta Lake": (["show", "@delta"], 1, "Delta Lake.*path="),
    "a delete of nothing": (["delete", "@events"], 2, "exactly one of"),
    "a broken file": (["upsert", "@events", "@broken.parquet"], 1, r"file=.*broken\.parquet"),
    "a file of a spreadsheet": (["upsert", "@events", "@rows.xlsx"], 1, r"\.parquet.*file=.*xlsx"),
    "half a condition": (["cat", "@events", "--where", "n >"], 1, "filter=.*n >"),
    "a condition on no column": (["cat", "@events", "--where", "nope > 1"], 1, "nope"),
    "a column that is misspelt": (["cat", "@events", "--columns", "id,nope"], 1, r"there are.*unknown=\['nope'\]"),
    "a moment in a word": (["cat", "@events", "--as-of", "yesterday"], 1, "no savepoint of this name.*'yesterday'"),
    "fewer rows than none": (
        ["cat", "@events", "--limit", "-1"], 2, "--limit.*(greater than or equal to 0|range x>=0)"),
    "a format of another tool": (["cat", "@events", "--format", "xml"], 2, "'jsonl'"),
    "a token in a word": (
        ["upsert", "@events", "@rows.csv", "--token", "x"], 2, "loader:17.*got='x'"),
    "a type that does not exist": (["create", "@new", "--schema", "@types.json", "--key", "id"], 1, "type='text'"),
    "a payload that is misspelt": (
        ["create", "@new", "--schema", "@rows.csv", "--key", "id", "--merge", "n=conter"], 1, "payload='conter'"),
    "a payload of no column": (
        ["create", "@new", "--schema", "@rows.csv", "--key", "id", "--merge", "n"], 2, "like views=counter.*got='n'"),
    "a key that is misspelt": (["create", "@new", "--schema", "@rows.csv", "--key", "ID"], 1, "column=ID"),
    "a payload without its module": (["laws", "Longest"], 2, "named like"),
    "a payload that is not there": (["laws", "crdt_mor.payloads:Longest"], 1, "payload=crdt_mor.payloads:Longest"),
    "a checkpoint in a word": (["changes", "@events", "--since", "nonsense"], 1, "no savepoint.*since='nonsense'"),
}  # fmt: skip


@pytest.mark.parametrize("case", COMMANDS)
def test_a_mistake_on_the_command_line_is_explained(world: World, case: str) -> None:
    words, code, said = COMMANDS[case]
    result = CliRunner().invoke(app, [word.replace("@", f"{world.folder}/") for word in words])
    assert (result.exit_code, result.stdout) == (code, "")
    text = " ".join(re.sub("[│╭╮╰╯─]", " ", result.stderr).split())
    assert re.search(said, text), text
    assert "Traceback" not in text
    assert not (world.folder / "new").exists()


def test_there_are_mistakes_enough() -> None:
    assert len(IN_PYTHON) + len(COMMANDS) >= 70
    assert len(IN_PYTHON) == sum(map(len, (CREATE, OPEN, WRITE, DELETE, READ, UPKEEP, PAYLOADS))) - 1

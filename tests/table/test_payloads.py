"""Tables with payloads: how they are made, what they store, what every kind of write and read makes of them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, PartialUpdate, Payload, Table, Transaction
from crdt_mor.errors import (
    LawError,
    PayloadError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
    UnknownPayloadError,
)
from crdt_mor.model.config_merge import MERGE_STRATEGY_ID
from crdt_mor.payloads import Counter, EventList, GrowOnlySet, Last, LatestBy, Max, MVRegister, ORSet
from crdt_mor.store import MemoryStore
from tests.inside import run_sweep, session_of
from tests.table.helpers import Make, Place, Places, data_files
from tests.tiers import slow

REPO = Path(__file__).parents[2]
HERE = "tests.table.test_payloads"
SET = pa.list_(pa.string())
OPS = pa.struct([("add", SET), ("remove", SET)])
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("tags", SET),
        ("price", pa.float64()),
        ("at", pa.int64()),
        ("v", pa.string()),
    ]
)
MERGE: dict[str | tuple[str, ...], Payload | str] = {
    "n": Counter(), "tags": ORSet(), ("price", "at"): LatestBy("at"),
}  # fmt: skip
Row = dict[str, Any]


# --- payloads that a user might write ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Longest(Payload):
    """The longest text; of equally long ones the greatest."""

    name: ClassVar[str] = "acme.longest/1"

    def join(self, a: str, b: str) -> str:
        return max(a, b, key=lambda text: (len(text), text))

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.sort_by(states.str.len_chars(), states).last()

    def examples(self) -> Sequence[str]:
        return ["", "a", "b", "aa", "ab"]


@dataclass(frozen=True)
class LongestByHand(Payload):
    """The same, in the words of `join` alone."""

    name: ClassVar[str] = "acme.longest_by_hand/1"

    def join(self, a: str, b: str) -> str:
        return Longest().join(a, b)

    def examples(self) -> Sequence[str]:
        return Longest().examples()


@dataclass(frozen=True)
class Brittle(Payload):
    """Cannot merge one value."""

    name: ClassVar[str] = "acme.brittle/1"

    def join(self, a: int, b: int) -> int:
        return max(a, b)

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.max().map_batches(_not_666, pl.Int64(), is_elementwise=True)

    def examples(self) -> Sequence[int]:
        return [1, 2, 3]


def _not_666(values: pl.Series) -> pl.Series:
    if (values == 666).any():
        raise RuntimeError("the number of the beast")
    return values


@dataclass(frozen=True)
class Mean(Payload):
    """Not associative."""

    name: ClassVar[str] = "acme.mean/1"

    def join(self, a: float, b: float) -> float:
        return (a + b) / 2

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.mean()

    def examples(self) -> Sequence[float]:
        return [0.0, 1.0, 4.0]


@dataclass(frozen=True)
class FromAScript(Longest):
    """As if it were defined in a script or a notebook."""


FromAScript.__module__ = "__main__"


# --- rows in, rows out ------------------------------------------------------------------------------------------------


@pytest.fixture
def make(place: Place) -> Make:
    """Create the table, in one file group unless told; keywords as in `Table.create`."""

    def create(merge: Any = MERGE, schema: pa.Schema = SCHEMA, **settings: Any) -> Table:
        return place.create(**{"schema": schema, "key": "id", "merge": merge, "buckets": 1} | settings)

    return create


def one(kind: pa.DataType) -> pa.Schema:
    """A schema with one column that matters."""
    return pa.schema([("id", pa.string()), ("c", kind)])


def batch(table: Table, *given: Row) -> pa.Table:
    """Rows in the table's types; sets as operations where a row says add and remove. Columns not given are null, or are
    left out in a table of partial updates."""
    fields = [f for f in table.schema if not session_of(table).config.merge.partial or f.name in given[0]]
    ops = {name for row in given for name, value in row.items() if isinstance(value, dict)}
    return pa.Table.from_pylist(list(given), pa.schema([f.with_type(OPS) if f.name in ops else f for f in fields]))


def put(table: Table, *given: Row) -> None:
    table.upsert(batch(table, *given))


def rows(table: Table, **scan: Any) -> list[Row]:
    found: list[Row] = table.scan(**scan).to_arrow().to_pylist()
    return sorted(found, key=lambda row: str(row.get("id")))


def everywhere(table: Table, **scan: Any) -> list[Row]:
    """The rows, which are the same before and after a compaction."""
    before = rows(table, **scan)
    assert table.maintenance.compact(), "there is something to compact"
    assert rows(table, **scan) == before
    return before


def begin(table: Table) -> Transaction:
    return table.transaction().__enter__()


def end(tx: Transaction) -> None:
    tx.__exit__(None, None, None)


def adds(*elements: str) -> Row:
    return {"add": list(elements), "remove": []}


def removes(*elements: str) -> Row:
    return {"add": [], "remove": list(elements)}


# --- by name ----------------------------------------------------------------------------------------------------------


def test_payloads_are_given_as_objects_or_by_name(make: Make, places: Places) -> None:
    table = make()
    for i, counter in enumerate(["counter", "counter/1", Counter()]):
        merge = {"n": counter, "tags": "or_set", ("price", "at"): "latest_by?by=at"}
        named = places(str(i)).create(schema=SCHEMA, key="id", buckets=1, merge=merge)
        assert named.config.merge == table.config.merge


def test_a_payload_of_ones_own_is_given_by_its_module_and_class(make: Make) -> None:
    table = make({"v": f"{HERE}:Longest"})
    put(table, {"id": "a", "v": "long"})
    put(table, {"id": "a", "v": "b"})
    assert [row["v"] for row in everywhere(table)] == ["long"]


def test_the_table_stores_names_parameters_and_fingerprints(make: Make, path: str) -> None:
    make({"n": "counter", ("price", "at"): "latest_by?by=at", "v": Longest()})
    lines = Path(path, ".hoodie/hoodie.properties").read_text().replace("\\:", ":").splitlines()
    assert "hoodie.record.merge.mode=CUSTOM" in lines
    assert f"hoodie.record.merge.strategy.id={MERGE_STRATEGY_ID}" in lines
    text = next(line for line in lines if line.startswith("crdt_mor.merge=")).partition("=")[2]
    kind, _, members = text.partition(" ")
    found = json.loads(members)
    assert kind == "latest"
    assert all(len(bytes.fromhex(member.pop("fingerprint"))) == 8 for member in found)
    assert found == [
        {"columns": ["n"], "payload": "counter/1"},
        {"columns": ["price", "at"], "payload": "latest_by/1", "parameters": {"by": "at"}},
        {"columns": ["v"], "payload": "acme.longest/1", "path": f"{HERE}:Longest"},
    ]
    assert not [line for line in lines if line.startswith("hoodie.table.ordering.fields")]


def test_a_table_prints_its_payloads(make: Make) -> None:
    assert "n: counter/1; (price, at): latest_by/1(by=at); tags: or_set/1" in repr(make())


def python(script: str, *arguments: str, folder: Path = REPO) -> list[str]:
    """What a fresh process prints; `folder` is where it finds modules.

    It keeps no compiled modules: those of a module that is written anew within a second, in as many bytes, would be
    taken for those of the new one.
    """
    command = [sys.executable, "-B", "-W", "error", "-c", script, *arguments]
    environment = os.environ | {"PYTHONPATH": f"{REPO}{os.pathsep}{folder}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


READ_AND_WRITE = """
import json, sys
from crdt_mor import Table
table = Table(sys.argv[1], payloads=sys.argv[2:])
print(json.dumps(table.scan().to_arrow().to_pylist()))
table.upsert(table.scan().to_arrow())
table.maintenance.compact()
print(json.dumps(table.scan().to_arrow().to_pylist()))
"""


@pytest.mark.slow
def test_another_process_needs_what_the_table_stores_and_leave_to_import_it(make: Make, path: str) -> None:
    table = make({"n": Counter(), "tags": ORSet(), ("price", "at"): LatestBy("at"), "v": Longest()})
    put(table, {"id": "a", "n": 1, "tags": adds("x"), "price": 1.5, "at": 7, "v": "abc"})
    put(table, {"id": "a", "n": 2, "tags": adds("y"), "price": 9.5, "at": 3, "v": "z"})
    before, after = map(json.loads, python(READ_AND_WRITE, path, HERE))
    assert before == [{"id": "a", "n": 3, "tags": ["x", "y"], "price": 1.5, "at": 7, "v": "abc"}]
    assert after == [before[0] | {"n": 6}] == rows(table)


ATTEMPTS = """
import sys
from crdt_mor import CrdtMorError, Table
import pyarrow as pa
import acme_payloads
table = Table(sys.argv[1])
for attempt in (
    lambda: table.upsert(pa.table({"id": ["a"], "c": ["x"]})),
    lambda: table.delete(keys=["a"]),
    lambda: table.scan().to_arrow(),
    lambda: table.scan().count(),
    lambda: table.maintenance.compact(),
):
    try:
        attempt()
    except CrdtMorError as error:
        print(type(error).__name__, str(error).replace(chr(10), " "))
    else:
        print("done")
print(*table.inspect.timeline()["state"].to_pylist())
"""

ACME = """
from crdt_mor import Payload
class Pick(Payload):
    name = "acme.pick/1"
    def join(self, a, b):
        return {join}
    def merge(self, states):
        return {merge}
    def examples(self):
        return ["a", "b", "cc"]
"""

CREATE = """
import sys
import pyarrow as pa
from crdt_mor import Table
schema = pa.schema([("id", pa.string()), ("c", pa.string())])
table = Table.create(sys.argv[1], schema, key="id", merge={"c": "acme_payloads:Pick"})
table.upsert(pa.table({"id": ["a"], "c": ["b"]}))
"""


@pytest.mark.slow
def test_a_payload_that_means_something_else_is_refused(path: str, tmp_path: Path) -> None:
    module = tmp_path / "acme_payloads.py"
    module.write_text(ACME.format(join="max(a, b)", merge="states.max()"))
    python(CREATE, path, folder=tmp_path)

    module.write_text(ACME.format(join="min(a, b)", merge="states.min()"))
    *changed, states = python(ATTEMPTS, path, folder=tmp_path)
    assert len(changed) == 5
    for line in changed:
        assert line.startswith("UnknownPayloadError this payload has changed its meaning since the table was made")
        assert "payload=acme.pick/1" in line
        assert "class=acme_payloads:Pick" in line
    assert states == "completed", "nothing was begun"

    module.write_text(ACME.format(join="max(a, b)", merge="states.max()").replace("pick/1", "pick/2"))
    *renamed, states = python(ATTEMPTS, path, folder=tmp_path)
    assert len(renamed) == 5
    for line in renamed:
        assert line.startswith("UnknownPayloadError the class at this name is another payload")
        assert "wanted=acme.pick/1 found=acme.pick/2" in line
    assert states == "completed", "nothing was begun"


@pytest.mark.parametrize(
    ("stored", "gone", "message"),
    [
        ("counter/1", "counter/7", "install its package.*payload=counter/7"),
        (HERE, "acme.gone", "not imported.*payload=acme.gone:Longest"),
        (":Longest", ":Gone", f"Install its package.*payload={HERE}:Gone"),
    ],
    ids=["entry point", "module", "class"],
)
def test_a_payload_that_is_not_here_is_refused_and_nothing_is_begun(
    make: Make, path: str, stored: str, gone: str, message: str
) -> None:
    put(make({"n": Counter(), "v": Longest()}), {"id": "a", "n": 1, "v": "x"})
    file = Path(path, ".hoodie/hoodie.properties")
    file.write_text(file.read_text().replace("\\:", ":").replace(stored, gone))
    table = Table(path)
    assert table.schema == SCHEMA
    attempts: list[Callable[[], object]] = [
        lambda: put(table, {"id": "a", "n": 1}),
        lambda: table.delete(keys=["a"]),
        lambda: begin(table),
        lambda: rows(table),
        lambda: table.scan(columns=["id"]).to_polars(),
        lambda: table.scan().count(),
        table.maintenance.compact,
        table.maintenance.plans.schedule,
    ]
    for attempt in attempts:
        with pytest.raises(UnknownPayloadError, match=message):
            attempt()
    assert table.inspect.timeline()["state"].to_pylist() == ["completed"]


def test_payloads_without_a_known_name_are_refused_at_creation(make: Make) -> None:
    for unknown in ("countr", "counter/9", "acme.longest/1", "no.such.module:Class", f"{HERE}:Nothing", f"{HERE}:REPO"):
        with pytest.raises(UnknownPayloadError, match=f"payload='?{unknown}"):
            make({"v": unknown})
    with pytest.raises(UnknownPayloadError, match="counter/1"):  # says what there is
        make({"v": "countr"})


def test_parameters_that_a_payload_does_not_take_are_refused(make: Make) -> None:
    for wrong in ("counter?by=1", "latest_by", "latest_by?of=at", f"{HERE}:Longest?x=1"):
        with pytest.raises(InvalidInputError, match="parameters"):
            make({"n": wrong})


def test_classes_that_no_other_process_could_import_are_refused(make: Make) -> None:
    class Local(Longest):
        pass

    for payload in (FromAScript(), Local()):
        with pytest.raises(InvalidInputError, match="other processes cannot find this payload"):
            make({"v": payload})


@pytest.mark.parametrize("given", [3, None, Counter, {"counter": 1}, ["counter"]])
def test_what_is_no_payload_is_refused(make: Make, given: object) -> None:
    with pytest.raises(InvalidInputError, match="got="):
        make({"n": given})


# --- what create refuses ----------------------------------------------------------------------------------------------


def test_an_unlawful_payload_is_refused_and_leaves_no_table(make: Make, path: str) -> None:
    with pytest.raises(LawError, match="associative") as error:
        make({"price": Mean()})
    assert "associative" in error.value.laws
    assert "acme.mean/1" in str(error.value)
    assert not Path(path, ".hoodie").exists()
    with pytest.raises(TableNotFoundError):
        Table(path)


def test_merge_and_ordering_together_are_refused(make: Make) -> None:
    with pytest.raises(InvalidInputError, match=r"goes with merge=PartialUpdate.*LatestBy"):
        make(ordering="at")


REFUSED: dict[str, tuple[Any, pa.DataType, str]] = {
    "a key column": ({"id": Max()}, pa.int64(), "never merged.*column='id'"),
    "a partition column": ({"part": Max()}, pa.int64(), "never merged.*column='part'"),
    "a key column in a group": ({("c", "id"): LatestBy("c")}, pa.int64(), "never merged.*column='id'"),
    "an unknown column": ({"nope": Max()}, pa.int64(), "does not exist.*'nope'"),
    "a counter of floats": ({"c": Counter()}, pa.float64(), "not associative.*double.*'c'"),
    "a counter of int32": ({"c": Counter()}, pa.int32(), "declare the column int64.*int32"),
    "a set of floats": ({"c": GrowOnlySet()}, pa.list_(pa.float64()), "floats.*'c'"),
    "a set that is no list": ({"c": ORSet()}, pa.string(), "lists.*'c'"),
    "the greatest list": ({"c": Max()}, SET, "no order.*'c'"),
    "a single value for several columns": ({("c", "part"): Max()}, pa.int64(), "merges a single column|never merged"),
    "an order by a column outside": ({"c": LatestBy("part")}, pa.int64(), "by='part'"),
    "nulls as values in partial updates": (PartialUpdate(columns={"c": Last()}), pa.int64(), "last/1 treats null.*'c'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_payloads_that_cannot_serve_their_columns_are_refused(make: Make, path: str, case: str) -> None:
    merge, kind, message = REFUSED[case]
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("c", kind)])
    with pytest.raises(InvalidInputError, match=message):
        make(merge, schema, partition_by="part")
    assert not Path(path, ".hoodie").exists()


def test_a_column_has_one_payload(make: Make) -> None:
    with pytest.raises(InvalidInputError, match=r"one payload.*'at'"):
        make({("price", "at"): LatestBy("at"), "at": Max()})
    with pytest.raises(InvalidInputError, match=r"one payload.*'at'"):
        make({("at", "at"): LatestBy("at")})


@pytest.mark.slow
def test_the_same_table_may_be_created_again_but_not_with_other_payloads(make: Make) -> None:
    put(make(), {"id": "a", "n": 1})
    assert rows(make(exist_ok=True), columns=["n"]) == [{"n": 1}]
    same = {"tags": "or_set", "n": "counter", ("price", "at"): LatestBy("at")}
    assert rows(make(same, exist_ok=True), columns=["n"]) == [{"n": 1}]
    for other in (None, {"n": Counter()}, MERGE | {"n": Max()}, PartialUpdate(columns=MERGE)):
        with pytest.raises(TableExistsError, match="another merge"):
            make(other, exist_ok=True)


# --- groups, and partial updates --------------------------------------------------------------------------------------


def test_columns_that_decide_together_come_together(make: Make) -> None:
    table = make()
    put(table, {"id": "a", "price": 1.0, "at": 5})
    put(table, {"id": "a", "price": 2.0, "at": 4})
    put(table, {"id": "a"})  # says nothing
    put(table, {"id": "b", "price": 1.0})
    put(table, {"id": "b", "price": None, "at": 1})
    assert everywhere(table, columns=["id", "price", "at"]) == [
        {"id": "a", "price": 1.0, "at": 5},
        {"id": "b", "price": None, "at": 1},
    ]


def test_a_group_given_in_part_is_refused(make: Make) -> None:
    table = make(PartialUpdate(columns=MERGE))
    with pytest.raises(SchemaMismatchError, match=r"all of them or none.*missing=\['at'\]"):
        put(table, {"id": "a", "price": 1.0})
    put(table, {"id": "a", "price": 1.0, "at": 1})
    put(table, {"id": "a", "n": 1})
    assert everywhere(table) == [{"id": "a", "n": 1, "tags": None, "price": 1.0, "at": 1, "v": None}]


def test_partial_updates_leave_columns_with_payloads_alone(make: Make) -> None:
    table = make(PartialUpdate(columns=MERGE))
    put(table, {"id": "a", "n": 1, "tags": adds("x"), "v": "first"})
    put(table, {"id": "a", "n": 2})
    put(table, {"id": "a", "tags": adds("y")})
    put(table, {"id": "a", "v": "second"})
    put(table, {"id": "a", "tags": removes("x"), "n": None})
    expected = {"id": "a", "n": 3, "tags": ["y"], "price": None, "at": None, "v": "second"}
    assert everywhere(table) == [expected]
    put(table, {"id": "a", "n": 4})
    put(table, {"id": "a", "v": None})
    assert everywhere(table) == [expected | {"n": 7, "v": None}]


def test_partial_updates_beside_a_pending_write_are_carried_by_the_columns_they_give(make: Make) -> None:
    table = make(PartialUpdate(columns=MERGE))
    put(table, {"id": "a", "n": 1, "v": "old"})
    straggler = begin(table)
    put(table, {"id": "a", "n": 2})
    put(table, {"id": "a", "tags": adds("x")})
    expected = {"id": "a", "n": 3, "tags": ["x"], "price": None, "at": None, "v": "old"}
    assert everywhere(table) == [expected]
    straggler.upsert(batch(table, {"id": "a", "v": "new", "n": 10}))
    end(straggler)
    assert everywhere(table) == [expected | {"n": 13, "v": "new"}]


def test_every_column_must_be_given_without_partial_updates(make: Make) -> None:
    table = make()
    with pytest.raises(SchemaMismatchError, match=r"PartialUpdate.*missing=\['tags', 'price', 'at', 'v'\]"):
        table.upsert(pa.table({"id": ["a"], "n": [1]}))


# --- deletes ----------------------------------------------------------------------------------------------------------


def test_after_a_delete_a_key_starts_afresh(make: Make) -> None:
    table = make()
    put(table, {"id": "a", "n": 5, "tags": adds("x"), "price": 1.0, "at": 9}, {"id": "b", "n": 1})
    table.delete(keys=["a"])
    assert everywhere(table, columns=["id"]) == [{"id": "b"}]
    put(table, {"id": "a", "n": 2, "tags": adds("y"), "price": 2.0, "at": 1})
    put(table, {"id": "a", "n": 3})
    fresh = {"id": "a", "n": 5, "tags": ["y"], "price": 2.0, "at": 1, "v": None}
    assert everywhere(table)[0] == fresh


def test_a_delete_and_an_upsert_in_one_transaction_set_a_value(make: Make) -> None:
    table = make()
    put(table, {"id": "a", "n": 5, "tags": adds("x")})
    with table.transaction() as tx:
        tx.upsert(batch(table, {"id": "a", "n": 100}))
        tx.delete(keys=["a"])
        tx.upsert(batch(table, {"id": "a", "n": 1, "tags": adds("y")}))
        tx.upsert(batch(table, {"id": "a", "n": 1}))
    put(table, {"id": "a", "n": 1})
    assert everywhere(table, columns=["n", "tags"]) == [{"n": 3, "tags": ["y"]}]


def test_a_delete_that_completes_late_takes_away_what_was_requested_before_it(make: Make) -> None:
    table = make()
    put(table, {"id": "a", "n": 1, "tags": adds("x")})
    early = begin(table)
    early.upsert(batch(table, {"id": "a", "n": 10, "tags": adds("early")}))
    late = begin(table)
    late.delete(keys=["a"])
    put(table, {"id": "a", "n": 100, "tags": adds("z")})
    assert everywhere(table, columns=["n", "tags"]) == [{"n": 101, "tags": ["x", "z"]}]
    end(late)
    assert everywhere(table, columns=["n", "tags"]) == [{"n": 100, "tags": ["z"]}]
    end(early)
    assert everywhere(table, columns=["n", "tags"]) == [{"n": 100, "tags": ["z"]}]


def test_rows_are_deleted_by_what_their_payloads_show(make: Make) -> None:
    table = make()
    put(table, {"id": "a", "n": 5}, {"id": "b", "n": 5})
    put(table, {"id": "a", "n": 5})
    table.delete(where="n = 10")
    assert everywhere(table, columns=["id"]) == [{"id": "b"}]


# --- several rows of a key in one commit ------------------------------------------------------------------------------


def test_rows_of_one_key_in_one_batch_are_merged_like_commits(make: Make) -> None:
    table = make()
    put(
        table,
        {"id": "a", "n": 1, "tags": adds("x", "y"), "price": 1.0, "at": 9, "v": "1"},
        {"id": "b", "n": 1},
        {"id": "a", "n": 2, "tags": removes("x"), "price": 2.0, "at": 8, "v": "2"},
        {"id": "a", "n": None, "tags": adds("z"), "v": None},
    )
    put(table, {"id": "a", "n": 4, "v": "3"})
    assert everywhere(table)[0] == {"id": "a", "n": 7, "tags": ["y", "z"], "price": 1.0, "at": 9, "v": "3"}


def test_statements_of_one_transaction_are_merged_like_commits(make: Make) -> None:
    table = make()
    put(table, {"id": "a", "n": 1, "tags": adds("old")})
    with table.transaction() as tx:
        tx.upsert(batch(table, {"id": "a", "n": 10, "tags": adds("x", "y")}, {"id": "b", "n": 1}))
        tx.upsert(batch(table, {"id": "a", "n": 20, "tags": removes("x", "old")}))
        tx.upsert(batch(table, {"id": "b", "n": 1, "tags": removes("x")}))
        tx.upsert(batch(table, {"id": "b", "tags": adds("x")}))
    assert everywhere(table, columns=["n", "tags"]) == [{"n": 31, "tags": ["y"]}, {"n": 2, "tags": ["x"]}]


def test_an_append_still_refuses_a_key_that_stands_twice(make: Make) -> None:
    table = make()
    with pytest.raises(InvalidInputError, match="twice"):
        table.append(batch(table, {"id": "a", "n": 1}, {"id": "a", "n": 1}))


def test_a_remove_does_not_take_away_what_it_has_not_seen(make: Make) -> None:
    table = make()
    put(table, {"id": "a", "tags": adds("x", "y")})
    remover, adder = begin(table), begin(table)
    remover.upsert(batch(table, {"id": "a", "tags": removes("x", "y")}))
    adder.upsert(batch(table, {"id": "a", "tags": adds("x")}))
    end(adder)
    end(remover)
    assert everywhere(table, columns=["tags"]) == [{"tags": ["x"]}]


def test_a_base_that_everybody_has_seen_keeps_no_states(make: Make, place: Place) -> None:
    table = make({"tags": ORSet()})

    def stateless() -> bool:
        bases = [row["path"] for row in table.inspect.files().to_pylist() if row["kind"] == "base"]
        files = [place.store.read(path) for path in bases]
        return not any("_crdt_tags" in pl.read_parquet_schema(io.BytesIO(data or b"")) for data in files)

    put(table, {"id": "a", "tags": adds("x", "y")}, {"id": "b", "tags": adds()}, {"id": "c", "tags": None})
    table.maintenance.compact()
    assert stateless()
    remover = begin(table)
    remover.upsert(batch(table, {"id": "a", "tags": removes("x", "y")}))
    put(table, {"id": "a", "tags": adds("x")}, {"id": "b", "tags": adds("z")})
    table.maintenance.compact()  # beside one who has not seen what was added last
    end(remover)
    assert everywhere(table, columns=["id", "tags"]) == [
        {"id": "a", "tags": ["x"]}, {"id": "b", "tags": ["z"]}, {"id": "c", "tags": None}
    ]  # fmt: skip
    put(table, {"id": "b", "tags": removes("z")}, {"id": "c", "tags": adds("w")})
    table.maintenance.compact()
    assert stateless()
    put(table, {"id": "a", "tags": removes("x")}, {"id": "b", "tags": adds("z")}, {"id": "c", "tags": removes("v")})
    assert everywhere(table, columns=["id", "tags"]) == [
        {"id": "a", "tags": []}, {"id": "b", "tags": ["z"]}, {"id": "c", "tags": ["w"]}
    ]  # fmt: skip


def test_a_register_shows_a_conflict_until_somebody_settles_it(make: Make) -> None:
    table = make({"tags": MVRegister()})
    one, two = begin(table), begin(table)
    one.upsert(batch(table, {"id": "a", "tags": ["red"]}))
    two.upsert(batch(table, {"id": "a", "tags": ["blue"]}))
    end(two)
    end(one)
    assert everywhere(table, columns=["tags"]) == [{"tags": ["blue", "red"]}]
    put(table, {"id": "a", "tags": ["green"]})
    assert everywhere(table, columns=["tags"]) == [{"tags": ["green"]}]


def test_a_token_counts_once(make: Make) -> None:
    table = make()
    for _ in range(3):
        table.upsert(batch(table, {"id": "a", "n": 5}), token=("job", 1))
    assert everywhere(table, columns=["n"]) == [{"n": 5}]


# --- the schema grows -------------------------------------------------------------------------------------------------


def extra(table: Table, name: str, row: Row) -> pa.Table:
    return batch(table, {k: v for k, v in row.items() if k != name}).append_column(name, pa.array([row[name]]))


def test_two_writers_at_once_add_columns_beside_payloads(make: Make) -> None:
    table = make()
    put(table, {"id": "a", "n": 1, "tags": adds("x")})
    one, two = begin(table), begin(table)
    one.upsert(extra(table, "left", {"id": "a", "n": 2, "tags": adds("y"), "left": 7}), schema_mode="merge")
    two.upsert(extra(table, "right", {"id": "a", "n": 4, "tags": removes("x"), "right": "r"}), schema_mode="merge")
    end(two)
    end(one)
    assert table.schema.names == [*SCHEMA.names, "right", "left"], "a column comes with the commit that brings it"
    wanted = ["n", "tags", "left", "right"]
    assert everywhere(table, columns=wanted) == [{"n": 7, "tags": ["y"], "left": None, "right": "r"}]
    table.upsert(batch(table, {"id": "a", "n": 1, "left": 8}))
    assert everywhere(table, columns=wanted) == [{"n": 8, "tags": ["y"], "left": 8, "right": None}]


def test_columns_added_in_partial_updates_stay_beside_payloads(make: Make) -> None:
    table = make(PartialUpdate(columns=MERGE))
    put(table, {"id": "a", "n": 1, "tags": adds("x")})
    one, two = begin(table), begin(table)
    one.upsert(extra(table, "left", {"id": "a", "n": 2, "left": 7}), schema_mode="merge")
    two.upsert(extra(table, "right", {"id": "a", "tags": removes("x"), "right": "r"}), schema_mode="merge")
    end(two)
    end(one)
    wanted = ["n", "tags", "left", "right"]
    assert everywhere(table, columns=wanted) == [{"n": 3, "tags": [], "left": 7, "right": "r"}]


def test_a_column_with_a_payload_is_widened_over_logs_and_base(make: Make) -> None:
    table = make({"c": Max()}, one(pa.int32()))
    put(table, {"id": "a", "c": 5}, {"id": "b", "c": 5})
    table.maintenance.compact()
    put(table, {"id": "a", "c": 7})
    table.upsert(pa.table({"id": ["b", "c"], "c": [2**40, -(2**40)]}), schema_mode="merge")
    assert table.schema.field("c").type == pa.int64()
    assert everywhere(table) == [{"id": "a", "c": 7}, {"id": "b", "c": 2**40}, {"id": "c", "c": -(2**40)}]
    put(table, {"id": "a", "c": 2**33})
    assert everywhere(table)[0] == {"id": "a", "c": 2**33}


def test_statements_before_the_widening_are_widened_with_it(make: Make) -> None:
    table = make({"c": Max()}, one(pa.int32()))
    with table.transaction() as tx:
        tx.upsert(batch(table, {"id": "a", "c": 5}))
        tx.upsert(pa.table({"id": ["a"], "c": [2**40]}), schema_mode="merge")
        tx.upsert(pa.table({"id": ["a"], "c": pa.array([6], pa.int32())}))
    assert everywhere(table) == [{"id": "a", "c": 2**40}]


def test_a_widening_that_the_payload_does_not_serve_is_refused_before_anything_is_written(make: Make) -> None:
    table = make({"c": Counter()}, one(pa.int64()))
    put(table, {"id": "a", "c": 1})
    with pytest.raises(SchemaMismatchError):
        table.upsert(pa.table({"id": ["a"], "c": [0.5]}), schema_mode="merge")
    assert table.schema == one(pa.int64())
    assert table.inspect.timeline()["state"].to_pylist()[0] == "completed"
    put(table, {"id": "a", "c": 1})
    assert everywhere(table) == [{"id": "a", "c": 2}]


def test_writing_a_set_as_operations_does_not_change_the_schema(make: Make) -> None:
    table = make()
    table.upsert(batch(table, {"id": "a", "tags": adds("x")}), schema_mode="merge")
    assert table.schema == SCHEMA
    assert everywhere(table, columns=["tags"]) == [{"tags": ["x"]}]


NAIVE = datetime.fromisoformat("9999-12-31T01:02:03")
ITEMS: dict[pa.DataType, object] = {
    pa.timestamp("us"): NAIVE, pa.timestamp("ns"): NAIVE.replace(year=2100), pa.timestamp("s"): NAIVE,
    pa.timestamp("ms", "Europe/Berlin"): NAIVE.replace(year=2100, tzinfo=UTC), pa.int8(): 1, pa.uint64(): 2**64 - 1,
    pa.large_string(): "a", pa.date64(): date(2020, 1, 1), pa.binary(4): b"abcd",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "payload", [ORSet(), *map(slow, [MVRegister(), GrowOnlySet(), EventList()])], ids=lambda p: p.name
)
def test_items_are_written_in_the_type_that_was_declared(payload: Payload) -> None:
    """Times without a zone were refused: the payloads see them with one, as they are stored."""
    for kind, item in ITEMS.items():
        column = pa.list_(kind)
        schema = pa.schema([("id", pa.int64()), ("x", column)])
        table = Table.create("t", schema, key="id", merge={"x": payload}, opening=Opening(store=MemoryStore()))
        forms: list[tuple[object, pa.DataType]] = [([item], column)]
        if isinstance(payload, ORSet):
            forms.append(({"add": [item], "remove": []}, pa.struct([("add", column), ("remove", column)])))
        if isinstance(payload, MVRegister):
            forms.append((item, kind))
        for number, (value, written) in enumerate(forms):
            table.upsert(pa.table({"id": [number], "x": pa.array([value], written)}))
        expected = pa.array([[item]] * len(forms), column)
        assert table.to_arrow().sort_by("id")["x"].combine_chunks().equals(expected), kind
        table.upsert(table.to_arrow())
        table.maintenance.compact()
        assert table.schema == schema


@pytest.mark.costly
@pytest.mark.parametrize("payload", [ORSet(), MVRegister()], ids=lambda p: p.name)
def test_items_that_the_declared_type_cannot_hold_are_refused(payload: Payload) -> None:
    """A number too large for its column was taken, and the table could not be read any more."""
    for kind, written, item in (
        (pa.int8(), pa.int64(), 300), (pa.timestamp("s"), pa.timestamp("us"), NAIVE.replace(microsecond=1)),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), NAIVE.replace(tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), NAIVE),
    ):  # fmt: skip
        schema = {"id": pa.int64(), "x": pa.list_(kind)}
        table = Table.create("t", schema, key="id", merge={"x": payload}, opening=Opening(store=MemoryStore()))
        with pytest.raises(SchemaMismatchError, match="column=x"):
            table.upsert(pa.table({"id": [1], "x": pa.array([[item]], pa.list_(written))}))
        assert table.count() == 0


def test_a_type_that_a_payload_does_not_accept_is_refused(make: Make) -> None:
    table = make()
    with pytest.raises(SchemaMismatchError, match="column=tags type=string accepted="):
        table.upsert(batch(table, {"id": "a"}).set_column(2, "tags", pa.array(["x"])))


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(make: Make) -> Table:
    """Some keys in a base file, some in logs, some in both."""
    table = make()
    put(table, *({"id": f"k{i}", "n": i, "tags": adds(f"t{i % 2}"), "price": 1.0, "at": i} for i in range(6)))
    table.maintenance.compact()
    put(table, *({"id": f"k{i}", "n": 10, "tags": adds("new"), "price": 2.0, "at": 3} for i in range(3, 9)))
    return table


FILTERS: dict[str, tuple[Any, list[str]]] = {
    "a counter": ("n > 10", ["k3", "k4", "k5"]),
    "a counter, as an expression": (pl.col("n") == 10, ["k6", "k7", "k8"]),
    "a set": (pl.col("tags").list.contains("t1"), ["k1", "k3", "k5"]),
    "a group": ("price = 2.0", ["k3", "k6", "k7", "k8"]),
    "a group and a counter": ("price = 1.0 and n < 2", ["k0", "k1"]),
    "what the base alone says of a touched key": ("n = 3", []),
    "no payload": ("id > 'k6'", ["k7", "k8"]),
}


@pytest.mark.costly
@pytest.mark.parametrize("case", FILTERS)
def test_a_filter_speaks_of_merged_values(filled: Table, case: str) -> None:
    condition, keys = FILTERS[case]
    choices: list[list[str] | None] = [["id"], ["id", "tags"], None]
    before = [rows(filled, columns=columns, filter=condition) for columns in choices]
    assert [[row["id"] for row in found] for found in before] == [keys] * len(choices)
    assert filled.scan(filter=condition).count() == len(keys)
    assert filled.maintenance.compact(), "there is something to compact"
    assert [rows(filled, columns=columns, filter=condition) for columns in choices] == before
    assert filled.scan(filter=condition).count() == len(keys)


@pytest.mark.costly
@pytest.mark.parametrize("columns", [["tags"], ["n"], ["at"], ["v"], ["price", "id"], ["tags", "at", "n"]], ids=str)
def test_some_columns_are_those_of_the_whole_rows(filled: Table, columns: list[str]) -> None:
    whole = filled.scan().to_arrow().select(columns).to_pylist()
    found = filled.scan(columns=columns).to_arrow()
    assert found.schema.names == columns
    assert sorted(found.to_pylist(), key=str) == sorted(whole, key=str)
    filled.maintenance.compact()
    assert sorted(filled.scan(columns=columns).to_arrow().to_pylist(), key=str) == sorted(whole, key=str)


def test_count_needs_no_values(filled: Table) -> None:
    assert filled.scan().count() == 9
    filled.delete(keys=["k0", "k8"])
    assert filled.scan().count() == 7
    filled.maintenance.compact()
    assert filled.scan().count() == 7


def test_as_of_answers_stay_the_same(make: Make) -> None:
    table = make()
    commits = [table.upsert(batch(table, {"id": "a", "n": 1, "tags": adds(str(i))})) for i in range(4)]
    before = [rows(table, as_of=commit, columns=["n", "tags"]) for commit in commits]
    assert [row["n"] for (row,) in before] == [1, 2, 3, 4]
    table.maintenance.compact()
    assert [rows(table, as_of=commit, columns=["n", "tags"]) for commit in commits] == before


def test_a_transaction_reads_the_snapshot_that_it_began_with(make: Make) -> None:
    table = make()
    put(table, {"id": "a", "n": 1})
    with table.transaction() as tx:
        put(table, {"id": "a", "n": 10})
        tx.upsert(batch(table, {"id": "a", "n": 100}))
        assert tx.scan(columns=["n"]).to_arrow().to_pylist() == [{"n": 1}]
    assert everywhere(table, columns=["n"]) == [{"n": 111}]


def test_a_set_that_was_read_can_be_written_again_as_a_list_of_adds(make: Make) -> None:
    table = make()
    put(table, {"id": "a", "tags": adds("x", "y")})
    seen = table.scan(columns=["tags"]).to_arrow()["tags"].to_pylist()[0]
    put(table, {"id": "a", "tags": [*seen, "z"]})
    assert everywhere(table, columns=["tags"]) == [{"tags": ["x", "y", "z"]}]
    put(table, {"id": "a", "tags": ["z"]})  # says nothing of x and y
    assert everywhere(table, columns=["tags"]) == [{"tags": ["x", "y", "z"]}]


def test_rows_that_say_nothing_show_null(make: Make) -> None:
    table = make()
    put(table, {"id": "a"}, {"id": "b", "tags": []})
    assert [row["tags"] for row in everywhere(table)] == [None, []]
    put(table, {"id": "a", "n": 1})
    assert [(row["n"], row["tags"]) for row in everywhere(table)] == [(1, None), (None, [])]


# --- state is nobody's business ---------------------------------------------------------------------------------------


def test_state_is_never_seen(filled: Table, place: Place) -> None:
    def seen() -> set[str]:
        scan = filled.scan(meta=True)
        found = {*filled.schema.names, *scan.schema.names, *scan.to_arrow().schema.names, *scan.to_polars().columns}
        return found | {*filled.inspect.files().column_names, *place.open().schema.names}

    assert not {name for name in seen() if name.startswith("_crdt_")}
    filled.maintenance.compact()
    assert not {name for name in seen() if name.startswith("_crdt_")}
    with pytest.raises(InvalidInputError, match="_crdt_tags"):
        filled.scan(columns=["_crdt_tags"])
    with pytest.raises(InvalidInputError, match="_crdt_tags"):
        filled.scan(filter=pl.col("_crdt_tags").is_null())


@pytest.mark.parametrize("mode", ["strict", "merge"])
def test_state_is_never_written_by_hand(make: Make, mode: Any) -> None:
    table = make()
    state = batch(table, {"id": "a"}).append_column("_crdt_tags", pa.array([["x"]]))
    with pytest.raises((SchemaMismatchError, InvalidInputError), match="_crdt_tags"):
        table.upsert(state, schema_mode=mode)


def test_no_column_may_be_called_like_a_state(make: Make) -> None:
    with pytest.raises(InvalidInputError, match="_crdt_c"):
        make({"c": ORSet()}, pa.schema([("id", pa.string()), ("c", SET), ("_crdt_c", pa.int64())]))


# --- payloads that fail -----------------------------------------------------------------------------------------------


def test_a_payload_that_fails_is_named_and_harms_nothing_else(make: Make) -> None:
    table = make({"c": Brittle()}, pa.schema([*one(pa.int64()), ("v", pa.string())]))
    put(table, {"id": "a", "c": 1, "v": "x"}, {"id": "b", "c": 1, "v": "y"})
    put(table, {"id": "a", "c": 666, "v": "z"})
    message = r"(?s)acme\.brittle/1 failed.*the number of the beast.*columns=\['c'\]"
    for scan in ({}, {"columns": ["c"]}, {"filter": "c > 0"}):
        with pytest.raises(PayloadError, match=message):
            rows(table, **scan)
    assert rows(table, columns=["id", "v"]) == [{"id": "a", "v": "z"}, {"id": "b", "v": "y"}]
    assert table.scan().count() == 2

    for _ in range(2):
        with pytest.raises(PayloadError, match=message + r" key='a'"):
            table.maintenance.compact()
        assert table.maintenance.plans.open() == []

    put(table, {"id": "c", "c": 3, "v": "new"})
    table.delete(keys=["a"])
    assert everywhere(table, columns=["id", "c"]) == [{"id": "b", "c": 1}, {"id": "c", "c": 3}]


def test_what_failed_is_compacted_when_its_payload_is_mended(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make({"c": Brittle()}, one(pa.int64()))
    for c in (1, 666, 5):
        put(table, {"id": "a", "c": c})
    plan = table.maintenance.plans.schedule()
    assert plan is not None
    with pytest.raises(PayloadError, match="the number of the beast"):
        table.maintenance.plans.execute(plan)
    assert [open_plan.barrier for open_plan in table.maintenance.plans.open()] == [plan.barrier], "compact cancels it"
    with pytest.raises(PayloadError, match="file group 00000000 cannot be compacted"):
        table.maintenance.compact()
    assert table.maintenance.plans.open() == []
    monkeypatch.setitem(sys.modules[Brittle.__module__].__dict__, "_not_666", lambda values: values)
    assert table.maintenance.compact()[0].file_groups == 1
    assert rows(table) == [{"id": "a", "c": 666}]


def test_a_plan_that_fails_in_its_file_groups_leaves_nothing(make: Make, place: Place) -> None:
    table = make({"c": Brittle()}, one(pa.int64()), buckets=1)
    put(table, *({"id": f"k{i}", "c": i} for i in range(8)))
    put(table, {"id": "k0", "c": 666})
    before = data_files(place)
    with pytest.raises(PayloadError):
        table.maintenance.compact()
    for _ in range(2):
        run_sweep(table)
    assert data_files(place) == before
    table.delete(keys=["k0"])
    assert [row["c"] for row in everywhere(table)] == list(range(1, 8))


def test_the_message_of_a_payload_that_fails_is_its_own_on_one_line(make: Make) -> None:
    table = make({"c": Brittle()}, one(pa.int64()))
    put(table, {"id": "a", "c": 1})
    put(table, {"id": "a", "c": 666})
    with pytest.raises(PayloadError) as error:
        rows(table)
    assert "\n" not in str(error.value)


def test_a_write_in_which_a_payload_fails_is_rolled_back(make: Make) -> None:
    table = make({"c": Brittle()}, one(pa.int64()))
    with pytest.raises(PayloadError, match=r"(?s)acme\.brittle/1.*\['c'\]"):
        put(table, {"id": "a", "c": 1}, {"id": "a", "c": 666})
    assert rows(table) == []
    assert "pending" not in table.inspect.timeline()["state"].to_pylist()
    put(table, {"id": "a", "c": 2})
    assert everywhere(table) == [{"id": "a", "c": 2}]


def test_a_counter_that_its_column_cannot_hold_is_an_error(make: Make) -> None:
    table = make({"c": Counter()}, one(pa.int64()))
    put(table, {"id": "a", "c": 2**63 - 1})
    put(table, {"id": "a", "c": 1})
    with pytest.raises(PayloadError, match=r"(?s)counter/1.*too large.*total=9223372036854775808.*\['c'\]"):
        rows(table)
    with pytest.raises(PayloadError, match="too large"):
        table.maintenance.compact()
    put(table, {"id": "a", "c": -1})
    assert everywhere(table) == [{"id": "a", "c": 2**63 - 1}]


def test_a_decimal_counter_that_its_column_cannot_hold_is_an_error(make: Make) -> None:
    table = make({"c": Counter()}, one(pa.decimal128(4, 2)))
    put(table, {"id": "a", "c": Decimal("99.99")})
    put(table, {"id": "a", "c": Decimal("0.01")})
    with pytest.raises(PayloadError, match=r"(?s)too large.*total=100\.00.*\['c'\]"):
        rows(table)
    put(table, {"id": "a", "c": Decimal("-0.02")})
    assert everywhere(table) == [{"id": "a", "c": Decimal("99.98")}]


@pytest.mark.parametrize("kind", [pa.uint32(), pa.uint64()], ids=str)
def test_a_counter_of_unsigned_numbers_is_refused(make: Make, kind: pa.DataType) -> None:
    """Files hold them in a wider type, so that a total could be one that no reader can show."""
    with pytest.raises(InvalidInputError, match="can exceed the column's range: declare the column"):
        make({"c": Counter()}, one(kind))


@pytest.mark.usefixtures("path")  # a process warns once, so that this runs over one store
def test_a_payload_that_says_join_alone_warns_and_gives_the_same_rows(make: Make, places: Places) -> None:
    fast = make({"v": Longest()})
    with pytest.warns(UserWarning, match=r"acme\.longest_by_hand/1 lacks merge"):
        slow = places("slow").create(schema=SCHEMA, key="id", buckets=1, merge={"v": LongestByHand()})
    for text in ("b", "aa", "", "bb", None, "a"):
        for table in (fast, slow):
            put(table, {"id": "a", "v": text}, {"id": "b", "v": text})
    assert everywhere(slow) == everywhere(fast)
    assert rows(slow, columns=["v"]) == [{"v": "bb"}] * 2


# --- keys and partitions ----------------------------------------------------------------------------------------------


def test_payloads_work_in_partitions_and_with_composite_keys(make: Make) -> None:
    counted = [SCHEMA.field("n"), SCHEMA.field("tags")]
    schema = pa.schema([("id", pa.string()), ("k", pa.int32()), ("part", pa.string()), *counted])
    merge = {"n": Counter(), "tags": EventList()}
    table = make(merge, schema, key=["id", "k"], partition_by="part", buckets=2)
    for part in ("x", "y"):
        for i in range(3):
            put(table, *({"id": "a", "k": k % 2, "part": part, "n": k, "tags": [f"{i}{k}"]} for k in range(4)))
    found = everywhere(table, filter="part = 'y'")
    assert [(row["k"], row["n"]) for row in sorted(found, key=lambda row: int(row["k"]))] == [(0, 6), (1, 12)]
    for row in found:
        assert row["tags"] == [f"{i}{k}" for i in range(3) for k in (row["k"], row["k"] + 2)]


def test_times_of_day_are_not_added_up() -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.time64("us"))])
    with pytest.raises(InvalidInputError, match=r"counter/1 adds values.*columns=\['at'\]"):
        Table.create("t", schema, key="id", merge={"at": Counter()}, opening=Opening(store=MemoryStore()))
    table = Table.create("t", schema, key="id", merge={"at": Max()}, opening=Opening(store=MemoryStore()))
    for hour in (3, 5, 4):
        table.upsert(pa.table({"id": [1], "at": pa.array([time(hour)], pa.time64("us"))}))
    assert table.to_arrow()["at"].to_pylist() == [time(5)]

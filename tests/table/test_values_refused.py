"""Values that are none of a payload's: nulls inside of them, which a write refuses where the payload says so."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Dot, InvalidInputError, Opening, Payload, RecordPayload, Table, check_laws
from crdt_mor.errors import LawError, PayloadError, SchemaMismatchError
from crdt_mor.store import MemoryStore
from tests.simulated import Simulated

VERSION = pa.struct([("at", pa.int64()), ("notes", pa.list_(pa.struct([("by", pa.string())])))])
FULL = {"at": 1, "notes": [{"by": "x"}]}


class Newest(Payload):
    """Of two versions the one with the greater time."""

    name: ClassVar[str] = "acme.newest/1"

    def join(self, a: Any, b: Any) -> Any:
        return max(a, b, key=lambda value: (value["at"], [note["by"] for note in value["notes"]]))

    def examples(self) -> Sequence[Any]:
        return [FULL, {"at": 2, "notes": []}]

    def column(self) -> pa.DataType:
        return VERSION


class Known(Newest):
    nulls_inside = "refuse"


class Both(RecordPayload):
    """Two columns that are written together; a pair of texts decides by its first one."""

    name: ClassVar[str] = "acme.both/1"
    nulls_inside = "refuse"

    def join(self, a: Any, b: Any) -> Any:
        return max(a, b, key=lambda pair: (pair["x"], pair["y"]))

    def examples(self) -> Sequence[Any]:
        return [{"x": "a", "y": "b"}, {"x": "b", "y": "a"}]

    def column(self) -> pa.DataType:
        return pa.struct([("x", pa.string()), ("y", pa.string())])


class Ranked(Payload):
    """Knows some texts. The others it refuses when they are written, or not at all."""

    name: ClassVar[str] = "acme.ranked/1"
    ranks: ClassVar[list[str]] = ["new", "paid"]

    def join(self, a: str, b: str) -> str:
        return max(a, b, key=self.ranks.index)

    def examples(self) -> Sequence[str]:
        return self.ranks


class Refusing(Ranked):
    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:
        return written.map_batches(_ranked, pl.String(), is_elementwise=True)


class Meant(Ranked):
    def join(self, a: str, b: str) -> str:
        if {a, b} - {*self.ranks}:
            raise PayloadError("no such rank: delete the key")
        return super().join(a, b)


def _ranked(values: pl.Series) -> pl.Series:
    if not values.drop_nulls().is_in(Ranked.ranks).all():
        raise ValueError(f"a rank is one of {Ranked.ranks}")
    return values


def table_of(simulated: Simulated, payload: Payload, kind: pa.DataType) -> Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return simulated.create(pa.schema([("id", pa.string()), ("v", kind)]), key="id", merge={"v": payload})


def put(table: Table, *given: Any) -> None:
    rows = [{"id": f"k{i}", "v": value} for i, value in enumerate(given)]
    table.upsert(pa.Table.from_pylist(rows, table.schema))


def test_a_payload_that_raises_on_a_null_inside_is_refused_with_the_way_out() -> None:
    with pytest.raises(LawError, match=r'join\(.*null.* raises .*set nulls_inside = "refuse"'):
        check_laws(Newest())
    assert check_laws(Known()) is None  # type: ignore[func-returns-value]


def test_a_table_that_exists_is_not_held_to_laws_of_a_later_release(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Create with exist_ok opens it, as Table does; a table that is really made is checked."""
    schema = pa.schema([("id", pa.string()), ("v", VERSION)])

    def create() -> Table:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return simulated.create(schema, key="id", merge={"v": Newest()}, exist_ok=True)

    with pytest.raises(LawError):
        create()
    with monkeypatch.context() as earlier:
        earlier.setattr("crdt_mor.laws.check.check_laws", lambda payload: None)
        put(create(), FULL)
    assert create().to_arrow()["v"].to_pylist() == [FULL]
    moved = MemoryStore(simulated.environment.now_ms)
    create().maintenance.migrate("elsewhere", buckets=2, store=moved)
    assert Table("elsewhere", opening=Opening(store=moved)).to_arrow()["v"].to_pylist() == [FULL]


@pytest.mark.parametrize(
    "value",
    [
        {"at": None, "notes": []}, {"at": 1, "notes": None}, {"at": 1, "notes": [None]},
        {"at": 1, "notes": [{"by": "x"}, {"by": None}]},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:acme.newest")
def test_a_write_refuses_a_null_inside_at_any_depth(simulated: Simulated, value: Any) -> None:
    table = table_of(simulated, Known(), VERSION)
    put(table, FULL, None, {"at": 3, "notes": []})
    with pytest.raises(InvalidInputError, match=r"acme\.newest/1 refuses nulls inside values.*columns=\['v'\] row=1"):
        put(table, FULL, value)
    with table.transaction() as tx:
        tx.upsert(pa.Table.from_pylist([{"id": "k1", "v": {"at": 2, "notes": []}}], table.schema))
    assert table.to_polars().sort("id")["v"].to_list() == [FULL, {"at": 2, "notes": []}, {"at": 3, "notes": []}]


@pytest.mark.filterwarnings("ignore:acme.both")
def test_columns_that_decide_together_are_given_together(simulated: Simulated) -> None:
    schema = pa.schema([("id", pa.string()), ("x", pa.string()), ("y", pa.string())])
    table = simulated.create(schema, key="id", merge={("x", "y"): Both()})
    table.upsert(pa.table({"id": ["a", "b"], "x": ["1", None], "y": ["2", None]}, schema))
    with pytest.raises(
        InvalidInputError, match=r"acme\.both/1 refuses nulls inside values.*columns=\['x', 'y'\] row=0"
    ):
        table.upsert(pa.table({"id": ["a"], "x": [None], "y": ["2"]}, schema))


@pytest.mark.filterwarnings("ignore:acme.ranked/1 lacks merge")
def test_a_payload_that_raises_on_an_empty_text_is_told_when_the_table_is_made(simulated: Simulated) -> None:
    columns = pa.schema([("id", pa.string()), ("v", pa.string())])
    with pytest.warns(UserWarning, match=r"acme\.ranked/1: join\(.*'' is not in list.*raise in lift"):
        simulated.create(columns, key="id", merge={"v": Ranked()})


@pytest.mark.parametrize("payload", [Refusing(), Meant()], ids=lambda payload: type(payload).__name__)
def test_one_that_refuses_the_write_or_says_what_to_do_is_not(payload: Payload) -> None:
    from crdt_mor.laws.check import raised_at_edges

    assert raised_at_edges(payload) == []
    assert raised_at_edges(Ranked()) != []


@pytest.mark.filterwarnings("ignore:acme.ranked")
class Odd(Newest):
    """As `Newest`, of values whose time has a name that files have not."""

    name: ClassVar[str] = "acme.odd/1"
    nulls_inside = "refuse"

    def join(self, a: Any, b: Any) -> Any:
        return max(a, b, key=lambda value: value["at time"])

    def examples(self) -> Sequence[Any]:
        return [{"at time": 1}, {"at time": 2}]

    def column(self) -> pa.DataType:
        return pa.struct([("at time", pa.int64())])


class OddState(Payload):
    """Keeps a state with a field of a name that files have not."""

    name: ClassVar[str] = "acme.odd_state/1"

    def join(self, a: Any, b: Any) -> Any:
        return max(a, b, key=lambda state: state["a b"])

    def examples(self) -> Sequence[Any]:
        return [1, 2]

    def state(self, column: pa.DataType) -> pa.DataType:
        return pa.struct([("a b", column)])

    def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:
        return pl.struct(written.alias("a b"))

    def value(self, state: pl.Expr) -> pl.Expr:
        return state.struct.field("a b")


@pytest.mark.filterwarnings("ignore:.*lacks merge")
@pytest.mark.parametrize("payload", [Odd(), OddState()], ids=lambda payload: payload.name)
def test_a_payload_that_names_fields_otherwise_than_files_do_is_refused(payload: Payload) -> None:
    check_laws(payload)
    schema = pa.schema([("id", pa.int64()), ("v", payload.column())])
    with pytest.raises(InvalidInputError, match=r"uses field names that files cannot store.*fields=\['a"):
        Table.create("t", schema, key="id", merge={"v": payload}, opening=Opening(store=MemoryStore()))


def test_what_lift_raises_refuses_the_write(simulated: Simulated) -> None:
    table = table_of(simulated, Refusing(), pa.string())
    with pytest.raises(PayloadError, match="a rank is one of"):
        put(table, "")
    put(table, "paid")
    assert table.to_polars()["v"].to_list() == ["paid"]


UUIDS = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))
SPANS = pa.array([1], pa.duration("us"))
MONTHS = pa.array([None], pa.month_day_nano_interval())
AT = pa.array([None], pa.time64("us"))


@pytest.mark.parametrize(
    ("column", "given", "said"),
    [
        ("at", pa.array([5]), "the unit of a number is unknown; from Spark, a bigint"),
        ("at", pa.array(["04:05:06"]), r"pa\.time64, datetime\.time or in SQL TIME '10:30:00'"),
        ("at", pa.array([86_400_000_000]).cast(pa.time64("us")), "a time of day must lie between 00:00 and 24:00"),
        ("n", AT, "cast to an integer, in the column's unit"),
        ("n", SPANS, "cast to an integer, in the column's unit"),
        ("note", UUIDS, r"cast to text, or to bytes, fixed_size_binary\[16\]"),
        ("bytes", UUIDS, r"cast to text, or to bytes, fixed_size_binary\[16\]"),
        ("new", UUIDS, r"Hudi tables cannot store this type: cast to text, or to bytes"),
        ("new", MONTHS, "a month has no fixed length: cast to pa.duration, or write"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalnum() else "",
)
def test_times_durations_and_uuids_are_refused_with_what_to_do(column: str, given: pa.Array, said: str) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("n", pa.int64()), ("note", pa.string()), ("bytes", pa.binary(16)), ("at", AT.type)]
    )
    table = Table.create("t", schema, key="id", opening=Opening(store=MemoryStore()))
    full = pa.Table.from_pylist([{"id": 1}], schema)
    given_in = full.drop_columns([column] if column in full.column_names else []).append_column(column, given)
    with pytest.raises((InvalidInputError, SchemaMismatchError), match=said):
        table.upsert(given_in, schema_mode="merge" if column == "new" else "strict")
    assert table.count() == 0

"""The shipped payloads: what each means, by example; that kernel and join agree; that any grouping gives one answer."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import datasketches
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from crdt_mor import Dot, InvalidInputError, Opening, Payload, RecordPayload, Table, payloads
from crdt_mor.errors import PayloadError, UnknownPayloadError
from crdt_mor.payloads import theta
from crdt_mor.store import MemoryStore
from tests.tiers import seeds

NAN = float("nan")
INF = float("inf")
START = 20260101000000000
TEXT = pa.string()
TEXTS = pa.list_(pa.string())
SIDES = pa.struct([("add", TEXTS), ("remove", TEXTS)])
PRICE = pa.struct([("price", pa.int64()), ("at", pa.float64())])
MAP = pa.map_(TEXT, pa.int64())

SHIPPED: list[Payload] = [
    payloads.Last(), payloads.Last(nulls="skip"), payloads.First(), payloads.LatestBy("at"), payloads.MVRegister(),
    payloads.Max(), payloads.Min(), payloads.Any(), payloads.All(), payloads.Counter(), payloads.GrowOnlySet(),
    payloads.ORSet(), payloads.MapLast(), payloads.EventList(), payloads.Distinct(), payloads.Distinct(lg_k=5),
    payloads.Quantiles(), payloads.Quantiles(accuracy=0.1, probabilities=(0.0, 1.0)),
]  # fmt: skip
ON_DISK = {
    "last/1": "ordered", "first/1": "ordered", "latest_by/1": "ordered", "mv_register/1": "semilattice",
    "max/1": "semilattice", "min/1": "semilattice", "any/1": "semilattice", "all/1": "semilattice",
    "counter/1": "delta", "grow_set/1": "semilattice", "or_set/1": "semilattice", "map_last/1": "ordered",
    "event_list/1": "ordered", "distinct/1": "semilattice", "quantiles/1": "delta",
}  # fmt: skip
shipped = pytest.mark.parametrize("payload", SHIPPED, ids=repr)


# --- what the engine does with a payload ------------------------------------------------------------------------------


def series(values: Sequence[Any] | pa.Array, kind: pa.DataType | None = None) -> pl.Series:
    """As the engine gets them: from Arrow."""
    array = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return pl.DataFrame(pl.from_arrow(pa.table({"written": array})))["written"]


def lifted(payload: Payload, written: pl.Series, pending: Sequence[str] | None = None) -> pl.Series:
    """The states of values that were written one after the other; where not said, each has seen all before it."""
    times = pl.int_range(START, START + len(written), eager=True)
    frame = pl.DataFrame({"written": written, "time": times, "place": pl.zeros(len(times), pl.Int32, eager=True)})
    return on(payload, frame.with_columns(pending=pl.Series(pending or [""] * len(times), dtype=pl.String)))


def on(payload: Payload, frame: pl.DataFrame) -> pl.Series:
    dot = Dot(time=pl.col("time"), place=pl.col("place"), pending=pl.col("pending"))
    return frame.select(payload.lift(pl.col("written"), dot))["written"]


def merged(payload: Payload, states: pl.Series, groups: Sequence[int]) -> pl.DataFrame:
    frame = pl.DataFrame({"code": groups, "state": states.rename("state")})
    return frame.group_by("code", maintain_order=True).agg(payload.merge(pl.col("state")))


def folded(payload: Payload, states: pl.Series, groups: Sequence[int]) -> pl.DataFrame:
    found: dict[int, Any] = {}
    for group, state in zip(groups, states.to_list(), strict=True):
        found[group] = payload.join(found[group], state) if group in found else state
    return pl.DataFrame(
        {"code": pl.Series(list(found), dtype=pl.Int64), "state": pl.Series(list(found.values()), dtype=states.dtype)}
    )


def one(payload: Payload, states: pl.Series) -> pl.Series:
    return merged(payload, states, [0] * len(states))["state"]


def seen(payload: Payload, states: pl.Series) -> list[Any]:
    return states.to_frame("state").select(payload.value(pl.col("state")))["state"].to_list()


def visible(payload: Payload, written: pl.Series) -> Any:
    return seen(payload, one(payload, lifted(payload, written)))[0]


def examples(payload: Payload, draw: random.Random, count: int) -> pl.Series:
    found = payload.examples()
    array = found if isinstance(found, pa.Array) else pa.array(found)
    return series(array.take(pa.array([draw.randrange(len(array)) for _ in range(count)])))


# --- meaning ----------------------------------------------------------------------------------------------------------

DAY = date(2024, 2, 29)
NOW = datetime(2024, 2, 29, 12, tzinfo=UTC)
MEANING: list[tuple[Payload, pa.DataType, list[Any], Any]] = [
    (payloads.Last(), pa.int64(), [1, 2, None], None),
    (payloads.Last(), TEXTS, [["a"], []], []),
    (payloads.Last(nulls="skip"), pa.int64(), [1, 2], 2),
    (payloads.First(), pa.int64(), [3, 1, 2], 3),
    (payloads.LatestBy("at"), PRICE, [{"price": 1, "at": 2.0}, {"price": 2, "at": 1.0}], {"price": 1, "at": 2.0}),
    (payloads.LatestBy("at"), PRICE, [{"price": 1, "at": 2.0}, {"price": 2, "at": 2.0}], {"price": 2, "at": 2.0}),
    (payloads.LatestBy("at"), PRICE, [{"price": 1, "at": 0.0}, {"price": 2, "at": -0.0}], {"price": 2, "at": -0.0}),
    (payloads.LatestBy("at"), PRICE, [{"price": 1, "at": -5.0}, {"price": 2, "at": None}], {"price": 1, "at": -5.0}),
    (payloads.LatestBy("at"), PRICE, [{"price": 1, "at": None}, {"price": 2, "at": None}], {"price": 2, "at": None}),
    (payloads.LatestBy("at"), PRICE, [{"price": None, "at": 2.0}, {"price": 2, "at": 1.0}], {"price": None, "at": 2.0}),
    (payloads.Max(), pa.int64(), [1, -3, 2], 2),
    (payloads.Max(), pa.float64(), [1.0, INF], INF),
    (payloads.Max(), TEXT, ["a", "", "ä", "z"], "ä"),
    (payloads.Max(), pa.binary(), [b"", b"\xff", b"a"], b"\xff"),
    (payloads.Max(), pa.bool_(), [False, True], True),
    (payloads.Max(), pa.date32(), [DAY, date(1969, 1, 1)], DAY),
    (payloads.Max(), pa.timestamp("us", "UTC"), [NOW, datetime(1969, 1, 1, tzinfo=UTC)], NOW),
    (payloads.Max(), pa.decimal128(38, 2), [Decimal("-9.99"), Decimal("1.50")], Decimal("1.50")),
    (payloads.Min(), pa.int64(), [1, -3, 2], -3),
    (payloads.Min(), pa.float64(), [NAN, 1.0], 1.0),
    (payloads.Min(), TEXT, ["a", "", "ä", "z"], ""),
    (payloads.Any(), pa.bool_(), [False, False], False),
    (payloads.Any(), pa.bool_(), [False, True, False], True),
    (payloads.All(), pa.bool_(), [True, True], True),
    (payloads.All(), pa.bool_(), [True, False, True], False),
    (payloads.Counter(), pa.int64(), [5, -7, 0], -2),
    (payloads.Counter(), pa.int64(), [2**63 - 1, -1, 1], 2**63 - 1),
    (payloads.Counter(), pa.int64(), [-(2**63), 0], -(2**63)),
    (payloads.Counter(), pa.decimal128(10, 2), [Decimal("0.10")] * 3, Decimal("0.30")),
    (payloads.Counter(), pa.decimal128(38, 0), [Decimal(10**38 - 2), Decimal(1)], Decimal(10**38 - 1)),
    (payloads.Counter(), pa.decimal128(38, 38), [Decimal("-1e-38"), Decimal("3e-38")], Decimal("2e-38")),
    (payloads.GrowOnlySet(), TEXTS, [["b", "a"], [], ["c", "a", None]], ["a", "b", "c"]),
    (payloads.GrowOnlySet(), TEXTS, [[], [None]], []),
    (payloads.GrowOnlySet(), pa.list_(pa.bool_()), [[True], [False, True]], [False, True]),
    (payloads.GrowOnlySet(), pa.list_(pa.decimal128(5, 1)), [[Decimal("1.5")], [Decimal("-1.0")]],
     [Decimal("-1.0"), Decimal("1.5")]),
    (payloads.GrowOnlySet(), pa.list_(pa.date32()), [[DAY], [DAY, date(1969, 1, 1)]], [date(1969, 1, 1), DAY]),
    (payloads.ORSet(), TEXTS, [["b", "b"], [], ["a", None]], ["a", "b"]),
    (payloads.ORSet(), SIDES, [{"add": ["a", "b"], "remove": []}, {"add": [], "remove": ["a", "x"]}], ["b"]),
    (payloads.ORSet(), SIDES, [{"add": None, "remove": ["a"]}, {"add": ["a"], "remove": None}], ["a"]),
    (payloads.ORSet(), SIDES, [{"add": ["a", "b"], "remove": ["a"]}, {"add": [], "remove": ["b", None]}], ["a"]),
    (payloads.MVRegister(), TEXT, ["b", "a"], ["a"]),
    (payloads.MVRegister(), TEXTS, [["b"], ["c", "a", "a"]], ["a", "c"]),
    (payloads.MVRegister(), TEXTS, [["b"], [], [None]], ["b"]),
    (payloads.MVRegister(), pa.float64(), [1.0, -0.0], [0.0]),
    (payloads.MapLast(), MAP, [[("b", 1), ("a", 1)], [("a", None)], []], {"a": None, "b": 1}),
    (payloads.MapLast(), MAP, [[("a", 1), ("a", 2)], []], {"a": 2}),
    (payloads.MapLast(), pa.map_(TEXT, TEXTS), [[("a", ["x"])], [("b", [])]], {"a": ["x"], "b": []}),
    (payloads.EventList(), TEXTS, [["b"], [], ["a", None, "b"]], ["b", "a", None, "b"]),
    (payloads.EventList(), pa.list_(PRICE), [[], [{"price": 1, "at": None}]], [{"price": 1, "at": None}]),
    (payloads.Distinct(), TEXT, ["a", "b", "a", ""], 3),
    (payloads.Distinct(), pa.int64(), [0, -1, 2**63 - 1, 0], 3),
    (payloads.Distinct(), pa.binary(), [b"", b"\xff", b"\xff\x00", b"\xff"], 3),
    (payloads.Distinct(), TEXTS, [["a", "b"], [], ["b", None, "c"]], 3),
    (payloads.Distinct(), pa.list_(pa.int64()), [[], []], 0),
    (payloads.Quantiles(), pa.float64(), [0.0, 0.0], [0.0, 0.0, 0.0]),
    (payloads.Quantiles(), pa.float64(), [NAN, NAN], []),
    (payloads.Quantiles(), pa.list_(pa.float64()), [[], [None]], []),
    (payloads.Quantiles(probabilities=(1, 0, 0.5)), pa.float64(), [INF, 0.0, -INF], [INF, -INF, 0.0]),
]  # fmt: skip


@pytest.mark.parametrize(("payload", "kind", "written", "expected"), MEANING)
def test_what_is_written_gives_what_is_seen(
    payload: Payload, kind: pa.DataType, written: list[Any], expected: object
) -> None:
    columns = [kind, TEXTS, pa.list_(kind), pa.int64(), FLOATS]
    column = next(column for column in columns if serves(payload, column, kind))
    assert kind in payload.accepts(column)
    states = lifted(payload, series(written, kind))
    assert states.dtype == series([], payload.state(column)).dtype
    assert seen(payload, one(payload, states)) == [expected]
    assert seen(payload, pl.Series([reduce(payload.join, states.to_list())], dtype=states.dtype)) == [expected]


def serves(payload: Payload, column: pa.DataType, written: pa.DataType) -> bool:
    try:
        payload.check(column)
    except InvalidInputError:
        return False
    return written in payload.accepts(column)


@pytest.mark.parametrize(("payload", "expected"), [(payloads.Max(), NAN), (payloads.Min(), -1.0)])
def test_nan_is_the_greatest_number(payload: Payload, expected: float) -> None:
    found = visible(payload, series([NAN, -1.0, INF]))
    assert str(found) == str(expected)


@pytest.mark.parametrize("payload", [payloads.Max(), payloads.Min(), payloads.MVRegister()], ids=repr)
def test_which_zero_was_written_does_not_show(payload: Payload) -> None:
    states = [one(payload, lifted(payload, series(zeros))) for zeros in ([0.0, -0.0], [-0.0, 0.0], [-0.0])]
    assert {str(seen(payload, state)) for state in states} <= {"[0.0]", "[[0.0]]"}


def test_latest_by_takes_nan_for_the_latest() -> None:
    rows = [{"price": 1, "at": NAN}, {"price": 2, "at": INF}, {"price": 3, "at": NAN}, {"price": 4, "at": None}]
    assert visible(payloads.LatestBy("at"), series(rows, PRICE))["price"] == 3


def test_an_or_set_can_be_written_as_a_list_and_as_a_struct_by_turns() -> None:
    payload = payloads.ORSet()
    dots = [Dot(time=pl.lit(START + n, pl.Int64), place=pl.lit(0, pl.Int32), pending=pl.lit("")) for n in range(3)]
    written = [series([["a", "b"]], TEXTS), series([{"add": [], "remove": ["a"]}], SIDES), series([["c"]], TEXTS)]
    states = [w.to_frame().select(payload.lift(pl.col("written"), dot)) for w, dot in zip(written, dots, strict=True)]
    assert seen(payload, one(payload, pl.concat(states)["written"])) == [["b", "c"]]


# --- laws -------------------------------------------------------------------------------------------------------------


@shipped
def test_the_kernel_is_the_fold_of_join(payload: Payload) -> None:
    draw = random.Random(1)
    states = lifted(payload, examples(payload, draw, 400))
    groups = [draw.randrange(90) for _ in range(400)]
    assert_frame_equal(merged(payload, states, groups), folded(payload, states, groups), check_exact=True)


@shipped
def test_neighbours_can_be_merged_first(payload: Payload) -> None:
    draw = random.Random(2)
    states = lifted(payload, examples(payload, draw, 300))
    groups = sorted(draw.randrange(40) for _ in range(300))
    runs = [(group, draw.randrange(3)) for group in groups]
    runs.sort()
    number = {run: place for place, run in enumerate(dict.fromkeys(runs))}
    first = merged(payload, states, [number[run] for run in runs])
    again = merged(payload, first["state"], [group for group, _ in number])
    assert_frame_equal(again, merged(payload, states, groups), check_exact=True)


@pytest.mark.parametrize("payload", [p for p in SHIPPED if p.kind != "ordered"], ids=repr)
def test_order_does_not_matter(payload: Payload) -> None:
    draw = random.Random(3)
    states = lifted(payload, examples(payload, draw, 30))
    whole = one(payload, states).to_frame("state")
    for _ in range(10):
        order = draw.sample(range(30), 30)
        assert_frame_equal(one(payload, states[order]).to_frame("state"), whole, check_exact=True)
        assert_frame_equal(folded(payload, states[order], [0] * 30).select("state"), whole, check_exact=True)


@pytest.mark.parametrize("payload", [p for p in SHIPPED if p.kind == "semilattice"], ids=repr)
def test_repetition_does_not_matter(payload: Payload) -> None:
    states = lifted(payload, examples(payload, random.Random(4), 20))
    whole = one(payload, states).to_frame()
    assert_frame_equal(one(payload, pl.concat([states, states[:7]])).to_frame(), whole, check_exact=True)
    assert_frame_equal(one(payload, pl.concat([*[whole["state"]] * 2])).to_frame(), whole, check_exact=True)


@shipped
def test_one_state_alone_is_merged_already(payload: Payload) -> None:
    states = lifted(payload, examples(payload, random.Random(5), 30))
    alone = merged(payload, states, range(30))["state"]
    assert_frame_equal(alone.to_frame(), states.rename("state").to_frame(), check_exact=True)


@shipped
def test_join_is_total_and_the_kernel_keeps_the_type(payload: Payload) -> None:
    found = payload.examples()
    array = found if isinstance(found, pa.Array) else pa.array(found)
    payload.check(payload.column())
    assert array.type in payload.accepts(payload.column())
    states = lifted(payload, series(array))
    assert states.dtype == series([], payload.state(payload.column())).dtype
    assert one(payload, states).dtype == states.dtype
    for a in states.to_list():
        for b in states.to_list():
            joined = pl.Series([payload.join(a, b)], dtype=states.dtype)
            assert joined.null_count() == 0
    assert states.to_frame("s").select(payload.value(pl.col("s")))["s"].dtype == series([], payload.column()).dtype


@shipped
def test_null_and_nothing_pass_through(payload: Payload) -> None:
    found = payload.examples()
    kind = found.type if isinstance(found, pa.Array) else pa.array(found).type
    nulls = lifted(payload, series([None, None], kind))
    assert nulls.null_count() == 2
    frame = nulls.to_frame("s").select(value=payload.value(pl.col("s")), settled=payload.settle(pl.col("s")))
    assert frame.null_count().row(0) == (2, 2)
    empty = lifted(payload, series([], kind))
    assert merged(payload, empty, []).schema["state"] == nulls.dtype


@shipped
def test_parameters_survive_json(payload: Payload) -> None:
    text = json.dumps(payload.parameters())
    again = type(payload)(**json.loads(text))
    assert again == payload
    assert again.parameters() == json.loads(text)
    assert hash(again) == hash(payload)


def test_names_on_disk_are_these() -> None:
    assert {payload.name: payload.kind for payload in SHIPPED} == ON_DISK
    assert {type(payload).__name__ for payload in SHIPPED} | {"PartialUpdate"} == set(payloads.__all__)
    assert all(payload.vectorised for payload in SHIPPED)
    assert [payload.name for payload in SHIPPED if isinstance(payload, RecordPayload)] == ["latest_by/1"]
    assert {payload.name for payload in SHIPPED if payload.stateful} == {
        "or_set/1", "mv_register/1", "distinct/1", "quantiles/1",
    }  # fmt: skip
    assert [payload.nulls for payload in SHIPPED].count("value") == 1


# --- refusals ---------------------------------------------------------------------------------------------------------

FLOATS = pa.list_(pa.float64())
REFUSED: list[tuple[Payload, pa.DataType, str]] = [
    (payloads.LatestBy("at"), pa.struct([("price", pa.int64())]), "by='at' columns=\\['price'\\]"),
    (payloads.LatestBy("at"), pa.struct([("at", TEXTS)]), "has no order"),
    (payloads.Max(), TEXTS, "Max serves floats, booleans, .* has no order"),
    (payloads.Min(), PRICE, "Min serves"),
    (payloads.Max(), MAP, "has no order"),
    (payloads.Any(), pa.int32(), "Any serves booleans"),
    (payloads.All(), TEXT, "All serves booleans"),
    (payloads.Counter(), pa.float64(), "sums are not associative: .* use decimal\\(38, s\\), or int64 of a small"),
    (payloads.Counter(), pa.int32(), "declare the column int64"),
    (payloads.Counter(), TEXT, "serves int64 and decimals"),
    (payloads.GrowOnlySet(), TEXT, "GrowOnlySet serves lists"),
    (payloads.GrowOnlySet(), FLOATS, "GrowOnlySet refuses floats: NaN is not equal to itself"),
    (payloads.GrowOnlySet(), pa.list_(TEXTS), "has no order"),
    (payloads.ORSet(), FLOATS, "ORSet refuses floats"),
    (payloads.ORSet(), pa.list_(PRICE), "ORSet serves lists of booleans"),
    (payloads.MVRegister(), TEXT, "MVRegister shows a list"),
    (payloads.MVRegister(), pa.list_(TEXTS), "has no order"),
    (payloads.MapLast(), TEXTS, "MapLast serves maps"),
    (payloads.EventList(), TEXT, "EventList serves lists"),
    (payloads.Distinct(), TEXT, "declare the column int64"),
    (payloads.Quantiles(), pa.float64(), "declare the column pa.list_\\(pa.float64\\(\\)\\)"),
]  # fmt: skip


@pytest.mark.parametrize(("payload", "column", "message"), REFUSED)
def test_columns_that_it_cannot_serve_are_refused(payload: Payload, column: pa.DataType, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        payload.check(column)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: payloads.Last(nulls="drop"), "nulls='drop'"),  # type: ignore[arg-type]
        (lambda: payloads.Distinct(lg_k=3), "lg_k=3"),
        (lambda: payloads.Quantiles(accuracy=0.0), "accuracy=0.0"),
        (lambda: payloads.Quantiles(probabilities=(0.5, 1.5)), "probabilities="),
        (lambda: payloads.Quantiles(probabilities=()), "at least one"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()


# --- counters that are full -------------------------------------------------------------------------------------------

BIG = Decimal(9 * 10**37)
FULL: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [2**63 - 1, 1]),
    (pa.int64(), [-(2**63), -1]),
    (pa.int64(), [2**63 - 1] * 3),
    (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1)]),
    (pa.decimal128(38, 0), [Decimal(1 - 10**38), Decimal(-1)]),
    (pa.decimal128(38, 0), [BIG] * 4),  # 128 bits wrap around, and the sum is negative
    (pa.decimal128(38, 0), [BIG] * 8),  # further, and it is small and positive
    (pa.decimal128(38, 10), [BIG.scaleb(-10)] * 15),
]


@pytest.mark.parametrize(("kind", "written"), FULL)
def test_a_full_counter_is_an_error_and_never_a_wrong_number(kind: pa.DataType, written: list[Any]) -> None:
    states = series(written, kind)
    with pytest.raises(PayloadError, match=r"too large for its column: widen the column"):
        one(payloads.Counter(), states)
    with pytest.raises(PayloadError, match="too large"):
        reduce(payloads.Counter().join, states.to_list())


def test_a_total_of_too_many_digits_is_an_error() -> None:
    with pytest.raises(PayloadError, match="too large"):
        one(payloads.Counter(), series([Decimal("0.99"), Decimal("0.01")], pa.decimal128(2, 2)))


def test_one_full_counter_among_others_is_found() -> None:
    with pytest.raises(PayloadError, match=f"total={2**63}"):
        merged(payloads.Counter(), series([1, 2**63 - 1, 1, 5]), [0, 1, 1, 2])


# --- sets and registers against real intervals ------------------------------------------------------------------------


class World:
    """Commits with a begin and an end, each with some rows of one key; `written` is a set of (element, added) a row."""

    def __init__(self, draw: random.Random, values: str) -> None:
        count = draw.randint(1, 9)
        moments = draw.sample(range(100), 2 * count)
        pairs = [sorted(moments[2 * i : 2 * i + 2]) for i in range(count)]
        if draw.random() < 0.5:  # short ones too, so that some commits see others
            pairs = [[begin, min(end, begin + draw.randint(0, 12)) + 0.5] for begin, end in pairs]  # type: ignore[list-item]
        self.commits = sorted((begin, end) for begin, end in pairs)
        self.rows: list[tuple[int, list[str], list[str]]] = []  # commit, add, remove
        for commit in range(count):
            for _ in range(draw.choice([1, 1, 1, 2, 3])):
                add, remove = (draw.choices(values, k=draw.randint(0, 2)) for _ in range(2))
                self.rows.append((commit, add, remove))

    def saw(self, later: int, earlier: int) -> bool:
        """Rows: the earlier one's commit had completed before the later one's began, or it stands above it."""
        i, j = self.rows[earlier][0], self.rows[later][0]
        return self.commits[i][1] < self.commits[j][0] if i != j else earlier < later

    def states(self, payload: Payload, written: pl.Series) -> pl.Series:
        begins = [self.commits[c][0] for c, _, _ in self.rows]
        pending = [self.pending(begin, c) for begin, (c, _, _) in zip(begins, self.rows, strict=True)]
        place = pl.int_range(len(begins), dtype=pl.Int32, eager=True)
        frame = {"written": written, "time": [START + begin for begin in begins], "place": place, "pending": pending}
        return on(payload, pl.DataFrame(frame))

    def pending(self, moment: int, but: int) -> str:
        begun = (b for i, (b, e) in enumerate(self.commits) if i != but and b < moment < e)
        return ",".join(str(START + begin) for begin in begun)

    def stable(self, moment: int) -> int:
        """How many rows are stable at a moment: requested before every commit that is under way."""
        fence = min([moment, *(begin for begin, end in self.commits if begin < moment < end)])
        return sum(self.commits[commit][0] < fence for commit, _, _ in self.rows)


def elements_of(world: World) -> list[str]:
    """An element is in the set if an add of it was seen by no operation on it."""
    operations = [(place, e, True) for place, (_, add, _) in enumerate(world.rows) for e in set(add)]
    operations += [(place, e, False) for place, (_, add, gone) in enumerate(world.rows) for e in set(gone) - set(add)]
    return sorted(
        {e for i, e, added in operations if added and not any(f == e and world.saw(j, i) for j, f, _ in operations)}
    )


def values_of(world: World) -> list[str]:
    """The values of assignments that no assignment has seen; an empty list assigns nothing."""
    assigned = [(place, value) for place, (_, values, _) in enumerate(world.rows) for value in set(values)]
    return sorted({value for i, value in assigned if not any(world.saw(j, i) for j, _ in assigned)})


def tree(payload: Payload, states: pl.Series, draw: random.Random) -> pl.Series:
    """Merged in any way that keeps the order, here by the kernel and there by join."""
    if len(states) == 1:
        return states
    cut = draw.randrange(1, len(states))
    left, right = tree(payload, states[:cut], draw), tree(payload, states[cut:], draw)
    if draw.random() < 0.5:
        return pl.Series([payload.join(left[0].to_list(), right[0].to_list())], dtype=states.dtype)
    return one(payload, pl.concat([left.alias("state"), right.alias("state")]))


def settle(payload: Payload, states: pl.Series) -> pl.Series:
    return states.to_frame("state").select(payload.settle(pl.col("state")))["state"]


def compacted(payload: Payload, world: World, states: pl.Series, draw: random.Random) -> tuple[pl.Series, int]:
    """The settled state of some stable rows, come to in several compactions, and their number."""
    base, done = states[:0].alias("state"), 0
    for moment in sorted(draw.sample(range(102), draw.randint(0, 4))):
        stable = world.stable(moment)
        if stable > done:
            whole = tree(payload, pl.concat([base, states[done:stable].alias("state")]), draw)
            base, done = settle(payload, whole).alias("state"), stable
            assert one(payload, base).to_list() == base.to_list(), "a settled state is a state"
            assert seen(payload, base) == seen(payload, whole)
    return base, done


@pytest.mark.costly
@pytest.mark.parametrize("seed", seeds(range(20), range(20, 60)))
def test_sets_and_registers_mean_what_intervals_say(seed: int) -> None:
    draw = random.Random(seed)
    world = World(draw, "abc"[: draw.randint(1, 3)])
    rows = [{"add": add, "remove": remove} for _, add, remove in world.rows]
    registers = [add for _, add, _ in world.rows]
    for payload, written, expected in (
        (payloads.ORSet(), series(rows, SIDES), elements_of(world)),
        (payloads.MVRegister(), series(registers, TEXTS), values_of(world)),
    ):
        states = world.states(payload, written)
        whole = one(payload, states)
        assert seen(payload, whole) == [expected]
        assert tree(payload, states, draw).to_list() == whole.to_list()
        assert one(payload, states.sample(fraction=1, shuffle=True, seed=seed)).to_list() == whole.to_list()
        base, done = compacted(payload, world, states, draw)
        final = tree(payload, pl.concat([base, states[done:].alias("state")]), draw)
        assert seen(payload, final) == [expected]
        assert settle(payload, final).to_list() == settle(payload, whole).to_list(), "any compactions, the same bytes"


def test_a_settled_set_remembers_no_removed_element_and_no_pending_commit() -> None:
    payload = payloads.ORSet()
    rows = [{"add": ["a", "b"], "remove": []}, {"add": [], "remove": ["a"]}]
    states = lifted(payload, series(rows, SIDES), [str(START - 1), str(START - 1)])
    assert settle(payload, one(payload, states)).to_list() == [
        [{"element": "b", "time": START, "place": 0, "pending": ""}]
    ]


def test_a_conflict_shows_until_somebody_who_saw_it_resolves_it() -> None:
    payload = payloads.MVRegister()
    states = lifted(payload, series(["a", "b", "c"]), ["", str(START), ""])
    assert [seen(payload, one(payload, states[:n])) for n in (1, 2, 3)] == [[["a"]], [["a", "b"]], [["c"]]]


# --- sketches ---------------------------------------------------------------------------------------------------------


def test_distinct_is_close_where_it_is_not_exact_and_bytes_do_not_depend_on_the_way() -> None:
    payload = payloads.Distinct(lg_k=8)
    lists = [list(range(start, start + 900)) for start in range(0, 9000, 300)]
    states = lifted(payload, series(lists))
    whole = one(payload, states)
    assert seen(payload, whole)[0] == pytest.approx(9600, rel=0.2)
    draw = random.Random(6)
    for _ in range(5):
        shuffled = states.sample(fraction=1, shuffle=True, seed=draw.randrange(99))
        cut = draw.randrange(1, 29)
        halves = merged(payload, shuffled, [0] * cut + [1] * (30 - cut))["state"]
        assert one(payload, halves).to_list() == whole.to_list()


def test_distinct_gives_the_bytes_of_the_library_whatever_the_size() -> None:
    payload = payloads.Distinct(lg_k=5)
    lists = [list(range(start, start + count)) for start in (0, 1, 20) for count in (0, 1, 2, 31, 32, 33, 60, 400)]
    states = lifted(payload, series(lists, pa.list_(pa.int64())))
    sizes = {len(state) % 8 for state in states.to_list()}
    assert sizes == {0}, "words of 64 bits"
    pairs = [(a, b) for a in range(len(states)) for b in range(len(states))]
    found = merged(payload, states[[i for pair in pairs for i in pair]], [i for i in range(len(pairs)) for _ in "ab"])
    assert found["state"].to_list() == [payload.join(states[a], states[b]) for a, b in pairs]
    assert states[0] == theta.EMPTY


def test_distinct_shows_what_the_library_estimates() -> None:
    payload = payloads.Distinct(lg_k=5)
    written = series([[], None, list(range(9)), list(range(500)), [7]], pa.list_(pa.int64()))
    states = lifted(payload, written)
    estimate = datasketches.compact_theta_sketch.deserialize(states[3]).get_estimate()
    assert seen(payload, states) == [0, None, 9, round(estimate), 1]
    assert seen(payload, states[2:]) == [9, round(estimate), 1]


def test_hyperloglog_would_break_the_laws() -> None:
    """The estimate of the library's union depends on the order: why `Distinct` is a theta sketch."""

    def sketch(start: int, count: int) -> Any:
        found = datasketches.hll_sketch(8)
        for value in range(start, start + count):
            found.update(value)
        return found

    def union(*sketches: Any) -> float:
        found = datasketches.hll_union(8)
        for part in sketches:
            found.update(part)
        return float(found.get_estimate())

    parts = [sketch(0, 5000), sketch(9000, 10), sketch(20_000, 10)]
    estimates = {union(*(parts[i] for i in order)) for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0))}
    assert len(estimates) > 1


def test_t_digest_would_break_the_laws() -> None:
    """Why `Quantiles` is a DDSketch: two orders of merging, two answers."""
    draw = random.Random(7)
    parts = [[draw.lognormvariate(0, 2) for _ in range(700)] for _ in range(3)]

    def merge(order: Sequence[int]) -> float:
        whole = datasketches.tdigest_double(20)
        for i in order:
            part = datasketches.tdigest_double(20)
            for value in parts[i]:
                part.update(value)
            whole.merge(part)
        return float(whole.get_quantile(0.9))

    assert merge([0, 1, 2]) != merge([2, 1, 0])


@pytest.mark.parametrize("accuracy", [0.2, 0.01, 1e-6])
def test_quantiles_are_as_accurate_as_they_say(accuracy: float) -> None:
    draw = random.Random(8)
    payload = payloads.Quantiles(accuracy, (0.0, 1.0, *(draw.random() for _ in range(20))))
    numbers = [draw.choice([-1, 1]) * draw.lognormvariate(0, 30) for _ in range(500)] + [0.0, 1.0, -1.0, 1e-300, -1e300]
    found = visible(payload, series(numbers))
    numbers.sort()
    for p, quantile in zip(payload.probabilities, found, strict=True):
        exact = numbers[int(p * (len(numbers) - 1))]
        assert quantile == pytest.approx(exact, rel=accuracy * (1 + 1e-6), abs=0)


def test_quantiles_of_integers_and_of_lists_are_those_of_the_numbers() -> None:
    payload = payloads.Quantiles(probabilities=(0.5, 1.0))
    numbers = [5, -3, 0, 9, 9, 2]
    expected = visible(payload, series([float(n) for n in numbers]))
    assert visible(payload, series(numbers)) == expected
    lists = series([[5.0, NAN, -3.0], [], [0.0, 9.0, None, 9.0, 2.0]], FLOATS)
    assert visible(payload, lists) == expected


def test_without_the_library_distinct_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(UnknownPayloadError, match=r'pip install "crdt-mor\[sketches\]"'):
        lifted(payloads.Distinct(), series(["a"]))
    columns, store = {"id": pa.int64(), "n": pa.int64()}, MemoryStore()
    with pytest.raises(UnknownPayloadError, match=r'pip install "crdt-mor\[sketches\]"'):
        Table.create("t", columns, key="id", merge={"n": payloads.Distinct()}, opening=Opening(store=store))
    assert not list(store.walk(""))

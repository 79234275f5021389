"""The law checker refuses what is unlawful, says why in words, and lets the lawful pass."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crdt_mor as mor
from crdt_mor import Dot, Payload, payloads
from crdt_mor.errors import LawError
from crdt_mor.laws.check import check_laws
from crdt_mor.laws.claims import LAWS, laws_of
from crdt_mor.laws.fingerprint import fingerprint
from crdt_mor.laws.histories import contexts
from crdt_mor.laws.values import values
from crdt_mor.merge.kernel import polars_type
from crdt_mor.testing import strategies
from tests.laws import unlawful
from tests.laws.unlawful import LAWFUL, UNLAWFUL
from tests.tiers import slow

SHIPPED = [name for name in payloads.__all__ if name != "PartialUpdate"]


def refusal(payload: Payload, **options: Any) -> LawError:
    with pytest.raises(LawError) as caught:
        check_laws(payload, **options)
    return caught.value


def shipped(name: str) -> Payload:
    cls = getattr(payloads, name)
    made = cls("at") if name == "LatestBy" else cls()
    assert isinstance(made, Payload)
    return made


# --- who passes -------------------------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("examples", [5, slow(100)])
@pytest.mark.parametrize("cls", LAWFUL, ids=lambda cls: cls.__name__)
def test_the_lawful_pass(cls: type[Payload], examples: int) -> None:
    assert check_laws(cls()) is None  # type: ignore[func-returns-value]
    assert check_laws(cls(), deep=True, examples=examples) is None  # type: ignore[func-returns-value]


@pytest.mark.costly
@pytest.mark.parametrize("examples", [6, slow(200)])
@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_ones_pass(name: str, examples: int) -> None:
    assert check_laws(shipped(name), deep=True, examples=examples) is None  # type: ignore[func-returns-value]


@pytest.mark.costly
@pytest.mark.parametrize("cls", UNLAWFUL, ids=lambda cls: cls.__name__)
def test_the_unlawful_are_refused_by_every_law_that_they_break(cls: type[Payload]) -> None:
    assert set(refusal(cls()).laws) == UNLAWFUL[cls]


def test_every_law_is_broken_by_some() -> None:
    assert set().union(*UNLAWFUL.values()) == set(LAWS)


def test_laws_are_those_of_the_kind_and_of_what_is_said() -> None:
    of_max = ("total", "value", "idempotent", "commutative", "associative", "unit", "round-trip")
    assert laws_of(unlawful.Max()) == of_max
    assert set(laws_of(unlawful.Sum())) == set(LAWS) - {"idempotent", "settled", "restored"}
    assert set(laws_of(unlawful.OrderedLast())) == set(LAWS) - {"idempotent", "commutative", "settled", "restored"}
    assert "settled" in laws_of(unlawful.Conflicts())


# --- what it says -----------------------------------------------------------------------------------------------------


def test_the_message_names_the_payload_its_claim_the_law_an_example_and_what_follows() -> None:
    assert str(refusal(unlawful.Mean())) == (
        "acme.mean/1 claims to be a semilattice, but\n"
        "  associative: join(join(0.0, 0.0), 1.0) is 0.5, join(0.0, join(0.0, 1.0)) is 0.25: "
        "the answer would depend on when a compaction ran"
    )


def test_it_names_each_law_in_a_line_and_the_kind_that_would_do() -> None:
    assert str(refusal(unlawful.Concatenation())) == (
        "acme.texts/1 claims to be a semilattice, but\n"
        "  idempotent: join('a', 'a') is 'aa': a value written twice would count twice\n"
        "  commutative: join('a', 'b') is 'ab', join('b', 'a') is 'ba': "
        "the answer would depend on which commit lands first\n"
        'It keeps the laws of kind "ordered": set kind = "ordered".'
    )
    assert str(refusal(unlawful.IdempotentSum())).endswith('set kind = "delta".')
    assert "set kind" not in str(refusal(unlawful.Mean()))


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (unlawful.WholeMean, "join(0, 0) is 0.0, not of type int64"),
        (unlawful.Picky, "join(1, 2) raises ValueError: one and two do not go together"),
        (unlawful.PythonSet, "join([], []) is set(), not of type list<"),
        (unlawful.Extending, "join changes its argument"),
        (unlawful.ForgetfulNull, "join(0, 1) is null, which this payload skips"),
        (unlawful.MaxBlindToNulls, "merge([0, null]) is 0, the fold of join is null"),
        (unlawful.LastFirst, "merge([0, 1]) is 0, the fold of join is 1"),
        (unlawful.UnaggregatedMax, "merge returns List(Int64) for a key, not one Int64"),
        (unlawful.CountingMax, "merge([0, merge([0, 1])]) is 1, merge([0, 0, 1]) is 0"),
        (unlawful.Narrow, "a state is duration[us], but files store int64: declare that type"),
        (unlawful.Unlifted, "lift(0) is of type Int64, not String"),
        (unlawful.Unvalued, "value(0) is of type String, not Int64"),
        (unlawful.ColumnMax, "depends on the rows beside it"),
    ],
    ids=lambda given: given.__name__ if isinstance(given, type) else None,
)
def test_a_counterexample_is_plain(cls: type[Payload], words: str) -> None:
    assert words in str(refusal(cls()))


@pytest.mark.slow
def test_dots_have_short_names_and_the_written_values_stand_by() -> None:
    assert str(refusal(unlawful.ForgetfulConflicts())).splitlines()[1] == (
        "  settled: value(join(settle([{time: t1, place: 0, pending: '', text: 'a'}]), "
        "[{time: t2, place: 0, pending: 't1', text: 'b'}])) is "
        "['b'], without settle it is ['a', 'b'] (written 'a' at t1; written 'b' at t2 beside t1): "
        "a compaction would drop data that later commits need"
    )
    assert "beside t1" in str(refusal(unlawful.HastyConflicts()))


@pytest.mark.parametrize("cls", [unlawful.FloatSum, unlawful.StructFloatSum])
def test_a_float_sum_is_refused_though_its_own_examples_add_up(cls: type[Payload]) -> None:
    error = refusal(cls())
    assert "associative" in error.laws
    assert "the checker's values, on which floats round" in str(error)


def test_a_join_that_changes_what_it_is_given_is_refused() -> None:
    assert "total" in refusal(unlawful.Extending()).laws


# --- beyond the examples ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_deep_finds_and_shrinks_what_the_examples_do_not_show() -> None:
    payload = unlawful.MaxOfSmall()
    assert "(the checker's values, not the examples)" in str(refusal(payload))
    error = refusal(payload, deep=True)
    assert error.laws == ("commutative", "associative")
    assert "join(0, 1000) is 1000, join(1000, 0) is 0" in str(error)


class Difference(Payload):
    """Unlawful; its one example shows nothing of it."""

    name: ClassVar[str] = "acme.difference/1"

    def join(self, a: Any, b: Any) -> Any:
        return a - b

    def examples(self) -> Any:
        return [0]


class DecimalDifference(Difference):
    def examples(self) -> Any:
        return pa.array([0], pa.decimal128(10, 2))


class FirstText(unlawful.Texts):
    """Of equal texts, which one is first does not show."""

    def join(self, a: Any, b: Any) -> Any:
        return a

    def examples(self) -> Any:
        return ["a"]


class FirstList(FirstText):
    def examples(self) -> Any:
        return [["a"]]


class FirstMap(FirstText):
    def examples(self) -> Any:
        return pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))


class Status(Payload):
    """Takes the words that it knows, and raises on others."""

    name: ClassVar[str] = "acme.status/1"
    ranks: ClassVar[list[str]] = ["new", "paid", "sent"]

    def join(self, a: Any, b: Any) -> Any:
        return max(a, b, key=self.ranks.index)

    def merge(self, states: pl.Expr) -> pl.Expr:
        order = states.replace_strict(self.ranks, range(len(self.ranks)), return_dtype=pl.Int8)
        return states.sort_by(order).last()

    def examples(self) -> Any:
        return self.ranks


class Positive(Payload):
    """Takes numbers that are not negative, and has a mistake among them."""

    name: ClassVar[str] = "acme.positive/1"

    def join(self, a: Any, b: Any) -> Any:
        if a < 0 or b < 0:
            raise ValueError("less than nothing")
        return max(a, b) if a < 2 else a

    def examples(self) -> Any:
        return [0, 1]


@pytest.mark.parametrize("cls", [Difference, DecimalDifference, FirstText, FirstList, FirstMap, Positive])
def test_poor_examples_do_not_hide_what_is_unlawful(cls: type[Payload]) -> None:
    error = refusal(cls())
    assert "commutative" in error.laws
    assert "(the checker's values, not the examples)" in str(error)
    assert "total" not in error.laws


def test_a_payload_need_not_take_every_value_of_its_type() -> None:
    assert check_laws(Status()) is None  # type: ignore[func-returns-value]


@pytest.mark.slow
def test_deep_finds_the_same_every_time() -> None:
    assert str(refusal(unlawful.MaxOfSmall(), deep=True)) == str(refusal(unlawful.MaxOfSmall(), deep=True))


def test_deep_names_what_the_examples_show_too() -> None:
    assert {"commutative", "idempotent"} <= set(refusal(unlawful.Concatenation(), deep=True, examples=20).laws)


@pytest.mark.parametrize(
    "kind",
    [
        pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32(),
        pa.timestamp("us", "UTC"), pa.decimal128(10, 2), pa.decimal128(38, 0), pa.list_(pa.list_(pa.string())),
        pa.struct({"a": pa.int64(), "b": pa.list_(pa.float64())}), pa.map_(pa.string(), pa.int64()),
    ],
    ids=str,
)  # fmt: skip
def test_strategies_give_values_of_their_type(kind: pa.DataType) -> None:
    @settings(max_examples=20, derandomize=True, database=None, deadline=None)
    @given(st.lists(strategies(kind), min_size=1))
    def check(values: list[Any]) -> None:
        assert pl.Series(values, dtype=polars_type(kind)).to_list() == values

    check()
    found = values(kind, 8)
    assert found == values(kind, 8), "the same every time"
    assert len(found) == (2 if kind == pa.bool_() else 8)
    assert pl.Series(found, dtype=polars_type(kind)).to_list() == found


def test_edges_are_among_the_values_where_the_examples_have_them() -> None:
    assert not {"nan", "inf", "-0.0"} & set(map(repr, values(pa.float64(), 30, [1.0])))
    assert {"nan", "inf", "-0.0"} <= set(map(repr, values(pa.float64(), 30, [float("nan"), float("inf"), -0.0])))
    assert not any(None in value for value in values(pa.list_(pa.int64()), 30, [[1]]))
    assert any(None in value for value in values(pa.list_(pa.int64()), 30, [[1, None]]))


@pytest.mark.slow
def test_the_edges_of_floats_are_drawn_where_the_examples_have_them() -> None:
    def some(seen: list[float]) -> list[float]:
        drawn: list[float] = []

        @settings(max_examples=300, derandomize=True, database=None, deadline=None)
        @given(strategies(pa.float64(), seen))
        def draw(value: float) -> None:
            drawn.append(value)

        draw()
        return drawn

    plain = some([1.0])
    assert all(abs(x) <= 2**30 and repr(x) != "-0.0" for x in plain)
    assert any(x != x for x in some([float("nan")]))
    assert any(abs(x) == float("inf") for x in some([float("inf")]))


def test_without_hypothesis_deep_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("search", "strategies"):
        monkeypatch.delitem(sys.modules, f"crdt_mor.laws.{name}", raising=False)
        monkeypatch.delattr(f"crdt_mor.laws.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    mor.check_laws(payloads.Counter())
    with pytest.raises(mor.InvalidInputError) as caught:
        mor.check_laws(payloads.Counter(), deep=True)
    assert str(caught.value) == 'the deep check needs hypothesis: run pip install "crdt-mor[testing]"'


@pytest.mark.slow
def test_without_hypothesis_and_pytest_all_else_of_testing_is_there() -> None:
    code = (
        "import sys; sys.modules['hypothesis'] = sys.modules['pytest'] = None\n"
        "from crdt_mor.testing import Contribution, FaultyStore, SimulatedEnvironment, StoreSuite, fold\n"
        "try: from crdt_mor.testing import strategies\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == 'crdt_mor.testing.strategies needs hypothesis: pip install "crdt-mor[testing]"'


# --- what is no payload to begin with ---------------------------------------------------------------------------------


class TooMany(unlawful.Max):
    def examples(self) -> range:
        return range(13)


class NoExamples(Payload):
    name: ClassVar[str] = "acme.none/1"

    def join(self, a: Any, b: Any) -> Any:
        return a


class EmptyExamples(NoExamples):
    def examples(self) -> pa.Array:
        return pa.array([], pa.int64())


class WrongKind(unlawful.Max):
    kind: ClassVar[Any] = "lattice"


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (TooMany, "return at most 12"),
        (NoExamples, r"write examples\(\)"),
        (EmptyExamples, "return a few written values"),
        (WrongKind, "kind is one of"),
    ],
)
def test_what_cannot_be_checked_says_why(cls: type[Payload], words: str) -> None:
    with pytest.raises(mor.InvalidInputError, match=words):
        check_laws(cls())


def test_a_payload_without_join_is_told_so() -> None:
    assert "lacks a join: write join(a, b)" in str(refusal(unlawful.Numbers()))


# --- histories --------------------------------------------------------------------------------------------------------


def test_three_commits_can_overlap_in_six_ways() -> None:
    seen = {tuple(write.pending for write in way) for way in contexts([1, 2, 3])}
    assert seen == {
        ((), (), ()), ((), (1,), ()), ((), (1,), (1,)), ((), (), (2,)), ((), (1,), (2,)), ((), (1,), (1, 2)),
    }  # fmt: skip


def test_what_a_commit_writes_twice_is_of_one_time_and_two_places() -> None:
    (way, *_) = contexts([1, 1, 2])
    assert [(write.commit, write.place) for write in way] == [(1, 0), (1, 1), (2, 0)]


# --- fingerprints -----------------------------------------------------------------------------------------------------


class OtherMax(unlawful.VectorisedMax):
    """The same meaning, otherwise written."""

    def join(self, a: Any, b: Any) -> Any:
        return sorted([a, b])[1]


def test_a_fingerprint_is_of_what_a_payload_does() -> None:
    assert fingerprint(OtherMax()) == fingerprint(unlawful.VectorisedMax()) == fingerprint(unlawful.Max())
    others = [unlawful.Max, unlawful.Sum, unlawful.OrderedLast, unlawful.Last, unlawful.LastOrNull, unlawful.Unvalued]
    assert len({fingerprint(cls()) for cls in others}) == len(others)


def test_a_fingerprint_is_of_what_tables_use() -> None:
    class Changed(unlawful.VectorisedMax):
        def merge(self, states: pl.Expr) -> pl.Expr:
            return states.min()

    assert fingerprint(Changed()) != fingerprint(unlawful.VectorisedMax())


def test_a_fingerprint_sees_what_concurrency_means() -> None:
    class Blind(unlawful.Conflicts):
        def lift(self, written: pl.Expr, dot: Dot) -> pl.Expr:
            return super().lift(written, Dot(dot.time, dot.place, pl.lit("")))

    assert fingerprint(Blind()) != fingerprint(unlawful.Conflicts())


@pytest.mark.slow
def test_fingerprints_are_the_same_in_every_process() -> None:
    code = (
        "from crdt_mor.laws.fingerprint import fingerprint\n"
        "from tests.laws.unlawful import LAWFUL\n"
        "print(*[fingerprint(cls()) for cls in LAWFUL])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [fingerprint(cls()) for cls in LAWFUL]
    assert all(len(text) == 16 and int(text, 16) >= 0 for text in done.stdout.split())

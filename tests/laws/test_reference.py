"""References of payloads: a table stores a class and parameters, and refuses a payload that these do not make again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, PartialUpdate, Payload, Table
from crdt_mor.laws.resolve import SHIPPED, payload_of, reference, resolve
from crdt_mor.payloads import Max
from crdt_mor.store import MemoryStore


class Cap(Payload):
    """The greatest number, at most `limit`; its parameter is an argument of `__init__` alone."""

    name: ClassVar[str] = "acme.cap/1"

    def __init__(self, limit: int = 1_000_000) -> None:
        self.limit = limit

    def lift(self, written: pl.Expr, dot: Any) -> pl.Expr:
        return written.clip(upper_bound=self.limit)

    def join(self, a: int, b: int) -> int:
        return max(a, b)

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.max()

    def examples(self) -> Sequence[int]:
        return [0, 1, 5]


class PrivateCap(Cap):
    def __init__(self, limit: int = 1_000_000) -> None:
        super().__init__()
        self._limit = limit


class NeededCap(Cap):
    def __init__(self, limit: int) -> None:
        super().__init__(limit)


class SlottedCap(Cap):
    __slots__ = ("most",)

    def __init__(self, most: int = 7) -> None:
        super().__init__()
        self.most = most


class WrongCap(Cap):
    """Says a parameter, and it is another one."""

    def parameters(self) -> Mapping[str, Any]:
        return {"limit": 1_000_000}


class ListedCap(Cap):
    """With a parameter that is no JSON, so that other processes get texts for its numbers."""

    def __init__(self, limits: Mapping[Any, int] | None = None) -> None:
        super().__init__()
        self.limits = limits

    def parameters(self) -> Mapping[str, Any]:
        return {"limits": self.limits}


@dataclass(frozen=True)
class InitCap(Cap):
    limit: InitVar[int] = 1_000_000

    def __post_init__(self, limit: int) -> None:
        object.__setattr__(self, "most", limit)


class GoodCap(Cap):
    """Returns all arguments of `__init__`."""

    def parameters(self) -> Mapping[str, Any]:
        return {"limit": self.limit}


@dataclass(frozen=True)
class DerivedCap(Cap):
    """A dataclass with a field that follows from another, a tuple, an array and a computed attribute."""

    limit: int = 9
    marks: tuple[int, ...] = (1, 2)
    double: int = field(init=False)
    table: Any = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "double", 2 * self.limit)
        object.__setattr__(self, "table", np.arange(self.limit))

    @cached_property
    def half(self) -> int:
        return self.limit // 2


def changed() -> Payload:
    cap = Cap()
    cap.limit = 5
    return cap


FORGOTTEN: dict[str, tuple[Callable[[], Payload], str]] = {
    "an argument of __init__": (lambda: Cap(2_000_000), "limit"),
    "kept under a private name": (lambda: PrivateCap(5), "limit"),
    "without a default": (lambda: NeededCap(5), "limit"),
    "in a slot": (lambda: SlottedCap(5), "most"),
    "that parameters() says otherwise": (lambda: WrongCap(5), "limit"),
    "that is no JSON": (lambda: ListedCap({1: 5}), "limits"),
    "an InitVar of a dataclass": (lambda: InitCap(5), "most"),
    "assigned later": (changed, "limit"),
    "in a text": (lambda: payload_of(f"{__name__}:Cap?limit=5"), "limit"),
}


@pytest.mark.parametrize("case", FORGOTTEN)
def test_reference_of_a_payload_whose_parameter_would_be_forgotten_names_it(case: str) -> None:
    make, name = FORGOTTEN[case]
    with pytest.raises(InvalidInputError, match=rf"(parameters=\['{name}'\]|argument: '{name}')") as error:
        reference(make())
    assert "frozen dataclass" in str(error.value)


def test_reference_of_a_payload_that_its_parameters_make_again_resolves_to_an_equal_one() -> None:
    derived = DerivedCap(4, (3,))
    assert derived.half == 2
    for payload in (Cap(), GoodCap(5), derived):
        made: Any = resolve(reference(payload))
        assert made.limit == payload.limit
    assert derived.parameters() == {"limit": 4, "marks": (3,)}


def test_create_with_a_payload_whose_parameter_would_be_forgotten_makes_no_table() -> None:
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    for merge in ({"v": Cap(2_000_000)}, PartialUpdate(columns={"v": Cap(2_000_000)})):
        store = MemoryStore()
        with pytest.raises(InvalidInputError, match=r"would lose parameters.*'limit'"):
            Table.create("t", schema, key="id", merge=merge, opening=Opening(store=store))
        assert not store.list("")


# --- names of others --------------------------------------------------------------------------------------------------


class OwnMax(Cap):
    name: ClassVar[str] = "max/1"


class InheritedName(Max):
    """Means something else than `Max`, and has its name."""

    def join(self, a: Any, b: Any) -> Any:
        return min(a, b)


def test_reference_of_an_own_payload_named_as_a_shipped_one_says_whose_the_name_is() -> None:
    assert OwnMax.name in SHIPPED
    for payload in (OwnMax(), InheritedName()):
        path = f"{__name__}:{type(payload).__name__}"
        expected = (
            f"already provides this payload name.*its own name.*payload={re.escape(path)} name=max/1 package=crdt_mor"
        )
        with pytest.raises(InvalidInputError, match=expected):
            reference(payload)

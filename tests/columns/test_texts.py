"""Texts as Arrow that are made of their bytes are those that pyarrow makes of values."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from crdt_mor.columns.texts import empty_texts, given, repeated, text_scalar, texts

SOME = ["", "a", "größer", "\U0001f600", "a\x00b", "x" * 1000]


@pytest.mark.parametrize("values", [[], [""], SOME, SOME[::-1]], ids=len)
def test_texts_are_those_of_arrow(values: list[str]) -> None:
    made = texts(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.string()))


@pytest.mark.parametrize("value", SOME)
def test_one_text_is_that_of_arrow(value: str) -> None:
    assert text_scalar(value).equals(pa.scalar(value, pa.string()))


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_as_many_texts_as_were_asked_for(count: int) -> None:
    empty, many = empty_texts(count), repeated("größer", count)
    empty.validate(full=True)
    many.validate(full=True)
    assert empty.equals(pa.array([""] * count, pa.string()))
    assert many.type == (pa.string() if count == 1 else pa.dictionary(pa.int32(), pa.string()))
    assert many.to_pylist() == ["größer"] * count


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, -3], pa.int32()), ([None] * 9, pa.int64()), ([], pa.int64()), (["a", None, "ü"], pa.string()),
        ([date(1960, 1, 1), None], pa.date32()), ([True, None], pa.bool_()),
    ],
    ids=str,
)  # fmt: skip
def test_given_values_are_those_of_arrow(values: list[object], kind: pa.DataType) -> None:
    found = given(values, kind)
    found.validate(full=True)
    assert found.equals(pa.array(values, kind))

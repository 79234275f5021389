"""Compute new values step by step and check each step, because polars continues silently after these losses:

    an integer   of 64 bits wraps around; each step is compared with integers of 128 bits
    a time       is such an integer to polars
    a float      represents every integer up to 2^53 only; no greater one may pass through a float to another column

A step counts only for rows that need it: an unused branch of CASE is no row's value. An explicit cast is intended, and
Python functions are not analysed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl
from polars.datatypes import DataTypeClass

from crdt_mor.errors import InvalidInputError
from crdt_mor.read.assignments import Assignments
from crdt_mor.read.expressions import columns_in
from crdt_mor.read.inputs import Inputs
from crdt_mor.read.operations import Operation, aliased, column, operation_of, tree_of

Kind = pl.DataType | DataTypeClass
KeyOf = Callable[[int], Mapping[str, object]]
"""Return a row's key by the row's number."""

_WHOLE: Final = 2**53
"""Greatest bound up to which a 64-bit float represents every integer."""

_GREATEST: Final = sys.float_info.max
"""Only infinities are beyond."""

_SUMS_AND_PRODUCTS: Final = frozenset({"Plus", "Add", "Minus", "Sub", "Multiply", "Mul"})
"""polars operations on 64-bit integers with results within 128 bits."""

_QUOTIENTS: Final = frozenset({"FloorDivide", "IntDiv", "Modulus", "Rem"})
"""The same for quotients; division by 0 gives null, for floats infinity."""

_STRUCT: Final = "AsStruct"
"""polars operation that makes a struct."""

_FALLBACKS: Final = frozenset({"Coalesce", "FillNull"})
"""polars operations that return their first input that is not null."""

_CHOICES: Final = _FALLBACKS | {"Alias", "Cast", "Ternary", "Replace", "ReplaceStrict", _STRUCT}
"""polars operations without arithmetic."""

_STEP: Final = "_crdt_step_"
"""Prefix of step columns; no table column begins with it."""

_TICKS: Final[Mapping[str, int]] = {"ms": 10**3, "us": 10**6, "ns": 10**9}
"""Ticks per second."""


def new_values(
    frame: pl.DataFrame, assigned: Assignments, kinds: Mapping[str, pl.DataType], key: KeyOf
) -> pl.DataFrame:
    """Return the new values for each row; raise `InvalidInputError` for inexact ones.

    kinds: the types of the set columns. A condition has none, and may compare floats with integers.
    """
    inputs = Inputs(frame)
    return pl.DataFrame([_computed(inputs, name, value, kinds.get(name), key) for name, value in assigned.items()])


def _computed(inputs: Inputs, name: str, expression: pl.Expr, kind: pl.DataType | None, key: KeyOf) -> pl.Series:
    if expression.meta.is_column():
        return inputs.frame[expression.meta.output_name()].alias(name)
    narrow, frame = inputs.narrowed(expression)
    tree = tree_of(narrow)
    wide = [values.cast(_with(values.dtype, pl.Int64())) for values in frame.get_columns()]
    steps = _Steps(pl.DataFrame(wide), name, expression, key)
    if tree is None:
        made = steps.whole(narrow)
    else:
        made = steps.value(operation_of(tree), None, are_exact=kind is not None and not _holds(kind, _is_float))
    return steps.fitting(made, kind).alias(name)


@dataclass
class _Steps:
    """The steps of an expression, each an added column of the frame.

    constants: steps without a column as input.
    """

    frame: pl.DataFrame
    name: str
    expression: pl.Expr
    key: KeyOf
    constants: set[str] = field(default_factory=set)
    made: int = 0

    def value(self, step: Operation, needed: pl.Series | None, *, are_exact: bool) -> str:
        """Return the column with a step's value.

        needed: the rows for which the step counts; None: all. are_exact: forbid an inexact float for an integer.
        """
        if step.column is not None:
            return step.column
        if not step.inputs:
            alone = step.expression()
            return self._made(alone, is_constant=not columns_in(alone))
        names, masks = list[str](), list[pl.Series | None]()
        for tree in step.inputs:
            masks.append(self._needed(step.word, names, needed))
            names.append(self.value(operation_of(tree), masks[-1], are_exact=are_exact and step.word != "Cast"))
        plain = zip(names, step.inputs, strict=True)
        inputs = [tree if name in self.constants else column(name) for name, tree in plain]
        if step.word == _STRUCT:
            shown = [operation_of(tree).expression().meta.output_name() for tree in step.inputs]
            inputs = [aliased(column(name), output) for name, output in zip(names, shown, strict=True)]
        made = self._made(step.of(inputs).expression(), is_constant=self.constants.issuperset(names))
        if not step.is_python:
            self._refuse_overflow(step.of([*map(column, names)]).expression(), step.word, names, made, needed)
            if are_exact and step.word != "Cast" and _holds(self.frame.schema[made], _is_float):
                self._refuse_rounded(names, masks)
        done = {name for name in names if name.startswith(_STEP)}  # no later step needs them
        self.frame = self.frame[[name for name in self.frame.columns if name not in done]]
        return made

    def whole(self, expression: pl.Expr) -> str:
        """Return the column of an expression that cannot be split into steps."""
        made = self._made(expression, is_constant=False)
        if ".python_udf(" not in str(expression):
            self._refuse_overflow(expression, "", columns_in(expression), made, None)
        return made

    def fitting(self, made: str, kind: pl.DataType | None) -> pl.Series:
        values = self.frame[made]
        if values.dtype == pl.Int128:
            to = pl.UInt64 if kind == pl.UInt64 else pl.Int64
            outside = self.frame.select(~pl.col(made).is_between(to.min(), to.max())).to_series()
            self._refuse(outside, None, _OVERFLOW)
            return values.cast(to)
        of_integers = kind is not None and _holds(kind, _is_integer) and not _holds(kind, _is_float)
        if of_integers and made not in self.constants and _holds(values.dtype, _is_float):
            beyond = _beyond(values, _is_float, _WHOLE)
            if beyond.any():
                self._refuse(_beyond(values, _is_float, _GREATEST), None, _INFINITE)
            self._refuse(beyond, None, _ROUNDED)
        return values

    def _made(self, expression: pl.Expr, *, is_constant: bool) -> str:
        name = f"{_STEP}{self.made}"
        self.made += 1
        if is_constant:  # a single value for all rows; a copy per row could fill the memory
            self.frame = self.frame.with_columns(expression.first().alias(name))
            self.constants.add(name)
        else:
            self.frame = self.frame.hstack([_of_rows(self.frame, expression).alias(name)])
        return name

    def _needed(self, word: str, before: Sequence[str], needed: pl.Series | None) -> pl.Series | None:
        if not before or word not in {"Ternary", *_FALLBACKS}:
            return needed
        if word in _FALLBACKS:
            chosen = self.frame.select(pl.all_horizontal(pl.col(before).is_null())).to_series()
        else:
            holds = self.frame[before[0]].cast(pl.Boolean).fill_null(False)
            chosen = holds if len(before) == 1 else ~holds
        return chosen if needed is None else chosen & needed

    def _refuse_overflow(
        self, step: pl.Expr, word: str, names: Sequence[str], made: str, needed: pl.Series | None
    ) -> None:
        """Raise if a step wrapped around. step: an expression over its inputs' columns."""
        if word in _CHOICES:
            return
        found = self.frame[made]
        if isinstance(found.dtype, pl.Datetime | pl.Duration) and word in _SUMS_AND_PRODUCTS:
            ticks = [_ticks(self.frame[name], found.dtype) for name in dict.fromkeys(names)]
            if not any(values is None for values in ticks):
                exact = pl.DataFrame([v for v in ticks if v is not None]).select(step).to_series()
                self._refuse(exact.ne_missing(found.to_physical().cast(pl.Int128)), needed, _OVERFLOW)
        are_integers = any(_holds(self.frame.schema[name], _is_integer) for name in names)
        if not are_integers or not _holds(found.dtype, _is_integer):
            return
        try:
            exact = self._of(pl.lit(0) - pl.col(names[0]) if word == "Negate" else step, names, pl.Int128())
        except pl.exceptions.PolarsError:
            every = pl.repeat(True, found.len(), dtype=pl.Boolean, eager=True)
            self._refuse(every, needed, _UNSEEN)
            return
        kind = _with(found.dtype, pl.Int128())
        if _holds(exact.dtype, lambda one: one == pl.Int128):
            self._refuse(exact.cast(kind).ne_missing(found.cast(kind)), needed, _OVERFLOW)
        if word not in _SUMS_AND_PRODUCTS | _QUOTIENTS:
            self._refuse_far_beyond(step, names, needed)

    def _refuse_far_beyond(self, step: pl.Expr, names: Sequence[str], needed: pl.Series | None) -> None:
        """Raise if even 128 bits overflow: the float result is then far above 64 bits."""
        try:
            rough = self._of(step, names, pl.Float64())
        except pl.exceptions.PolarsError:  # not computable with floats
            return
        self._refuse(_beyond(rough, _is_float, 2**100), needed, _OVERFLOW)

    def _refuse_rounded(self, names: Sequence[str], masks: Sequence[pl.Series | None]) -> None:
        """Raise if an integer input of a float result may be rounded."""
        for name, needed in zip(names, masks, strict=True):
            self._refuse(_beyond(self.frame[name], _is_integer, _WHOLE), needed, _ROUNDED)

    def _of(self, step: pl.Expr, names: Sequence[str], number: pl.DataType) -> pl.Series:
        casts = [pl.col(name).cast(_with(self.frame.schema[name], number)) for name in dict.fromkeys(names)]
        return _of_rows(self.frame.with_columns(casts), step)

    def _refuse(self, bad: pl.Series, needed: pl.Series | None, why: str) -> None:
        known = bad.fill_null(False) if bad.null_count() else bad
        wrong = known if needed is None else known & needed
        if wrong.any():
            key = self.key(int(wrong.arg_max() or 0))
            raise InvalidInputError(f"{why}. column={self.name} key={key} set={self.expression}")


def _of_rows(frame: pl.DataFrame, expression: pl.Expr) -> pl.Series:
    """Return a value per row; polars returns a single value for a literal."""
    values = frame.select(expression.alias("value")).to_series()
    return values if values.len() == frame.height else values.new_from_index(0, frame.height)


_OVERFLOW: Final = (
    "a new value or an intermediate result does not fit in an integer of 64 bits: exclude the row by `where`, or "
    "compute with decimals or floats, CAST(n AS DOUBLE)"
)
_ROUNDED: Final = (
    "an integer beyond 2^53 would be rounded on its way through a float: divide by //, or accept the rounding by an "
    "explicit CAST(… AS BIGINT)"
)
_INFINITE: Final = (
    "a division by 0 gives infinity, which is no integer: exclude the row by `where`, or divide by //, which gives null"
)
_UNSEEN: Final = (
    "polars cannot compute this in integers of 128 bits, so an overflow of 64 bits would go unnoticed: use "
    "+ - * // %, or cast the integers to floats or decimals"
)


# --- types ------------------------------------------------------------------------------------------------------------


def _is_integer(kind: Kind) -> bool:
    return kind.is_integer()


def _is_float(kind: Kind) -> bool:
    return kind.is_float()


def _holds(kind: Kind, of: Callable[[Kind], bool]) -> bool:
    match kind:
        case pl.Struct():
            return any(_holds(inner.dtype, of) for inner in kind.fields)
        case pl.List() | pl.Array():
            return _holds(kind.inner, of)
    return of(kind)


def _with(kind: Kind, number: pl.DataType) -> Kind:
    """Replace integer types, nested ones too, except unsigned 64-bit by signed 64-bit."""
    match kind:
        case pl.Struct():
            return pl.Struct({inner.name: _with(inner.dtype, number) for inner in kind.fields})
        case pl.List():
            return pl.List(_with(kind.inner, number))
        case pl.Array():
            return pl.Array(_with(kind.inner, number), kind.size)
    return number if kind.is_integer() and (kind != pl.UInt64 or number != pl.Int64) else kind


def _beyond(values: pl.Series, of: Callable[[Kind], bool], limit: float) -> pl.Series:
    """Return the rows in which a number, perhaps nested, exceeds a limit in either direction."""
    if not _holds(values.dtype, of):
        return pl.Series([False]).new_from_index(0, values.len())
    return values.to_frame("value").select(_is_beyond(pl.col("value"), values.dtype, of, limit)).to_series()


def _is_beyond(value: pl.Expr, kind: Kind, of: Callable[[Kind], bool], limit: float) -> pl.Expr:
    match kind:
        case pl.Struct():
            fields = [inner for inner in kind.fields if _holds(inner.dtype, of)]
            inside = [_is_beyond(value.struct.field(inner.name), inner.dtype, of, limit) for inner in fields]
            return pl.any_horizontal(inside)
        case pl.Array():
            return _is_beyond(value.arr.to_list(), pl.List(kind.inner), of, limit)
        case pl.List():
            return value.list.eval(_is_beyond(pl.element(), kind.inner, of, limit)).list.any()
    greater = (value > limit) & value.is_not_nan() if kind.is_float() else value > limit
    return greater | (value < -limit)


def _ticks(values: pl.Series, beside: pl.Datetime | pl.Duration) -> pl.Series | None:
    """Return times in another time's unit, and integers unchanged; None if the unit does not fit."""
    per_second = _TICKS[beside.time_unit]
    match values.dtype:
        case pl.Date():
            return _times(values, 86_400 * per_second)
        case pl.Datetime(time_unit=unit) | pl.Duration(time_unit=unit) if unit is not None:
            coarser, rest = divmod(per_second, _TICKS[unit])
            return None if rest else _times(values, coarser)
    return values.cast(pl.Int128) if values.dtype.is_integer() else None


def _times(values: pl.Series, factor: int) -> pl.Series:
    return pl.select(pl.lit(values.to_physical()).cast(pl.Int128) * factor).to_series().alias(values.name)

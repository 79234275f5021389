"""New values of rows, computed step by step, so that each step can be looked at: polars computes on with what is left.

    an integer   of 64 bits wraps around: what a step makes of integers of 128 bits must be the same
    a time       is such an integer to polars
    a float      has every integer up to 2^53 only: no greater one goes through a float to a column that is of none

A step counts for the rows that need it: what CASE has where it takes the other branch is no row's value. What a cast
does is what its author has asked for, and what a function in Python does is unknown.
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
from crdt_mor.read.operations import Operation, column, named, operation_of, tree_of

Kind = pl.DataType | DataTypeClass
KeyOf = Callable[[int], Mapping[str, object]]
"""The key of a row, by the row's number."""

_WHOLE: Final = 2**53
"""Up to here a float of 64 bits has every integer."""

_GREATEST: Final = sys.float_info.max
"""Beyond it are the two infinite floats alone."""

_SUMS_AND_PRODUCTS: Final = frozenset({"Plus", "Add", "Minus", "Sub", "Multiply", "Mul"})
"""polars' words for what fits in 128 bits where it is made of two integers of 64."""

_QUOTIENTS: Final = frozenset({"FloorDivide", "IntDiv", "Modulus", "Rem"})
"""polars' words for what fits as well; by 0 it is null, where floats have infinity."""

_STRUCT: Final = "AsStruct"
"""polars' word for what makes a struct, whose fields have the names of its inputs."""

_FALLBACKS: Final = frozenset({"Coalesce", "FillNull"})
"""polars' words for the first of its inputs that is not null."""

_CHOICES: Final = _FALLBACKS | {"Alias", "Cast", "Ternary", "Replace", "ReplaceStrict", _STRUCT}
"""polars' words for what computes nothing."""

_STEP: Final = "_crdt_step_"
"""How the columns of steps are called; no column of a table is called so."""

_TICKS: Final[Mapping[str, int]] = {"ms": 10**3, "us": 10**6, "ns": 10**9}
"""Of a second."""


def new_values(
    frame: pl.DataFrame, assigned: Assignments, kinds: Mapping[str, pl.DataType], key: KeyOf
) -> pl.DataFrame:
    """The new values of columns, for each row of a frame; raises `InvalidInputError` for those that are not exact.

    kinds: the types of the columns that are set. A condition is of none, and may compare floats with integers.
    """
    return frame.select(_computed(frame, name, value, kinds.get(name), key) for name, value in assigned.items())


def _computed(frame: pl.DataFrame, name: str, expression: pl.Expr, kind: pl.DataType | None, key: KeyOf) -> pl.Series:
    if expression.meta.is_column():
        return frame[expression.meta.output_name()].alias(name)
    roots = dict.fromkeys(columns_in(expression))
    wide = frame.with_columns(pl.col(root).cast(_with(frame.schema[root], pl.Int64())) for root in roots)
    steps = _Steps(wide, name, expression, key)
    tree = tree_of(expression)
    if tree is None:
        made = steps.whole(expression)
    else:
        made = steps.value(operation_of(tree), None, are_exact=kind is not None and not _holds(kind, _is_float))
    return steps.fitting(made, kind).alias(name)


@dataclass
class _Steps:
    """The values of the steps of one expression, each a column of the frame that is added.

    constants: those of steps that name no column. made: how many steps there were.
    """

    frame: pl.DataFrame
    name: str
    expression: pl.Expr
    key: KeyOf
    constants: set[str] = field(default_factory=set)
    made: int = 0

    def value(self, step: Operation, needed: pl.Series | None, *, are_exact: bool) -> str:
        """The column with the value of a step.

        needed: of each row, whether the step counts; None: of all. are_exact: whether no integer may become a float
        that is another number.
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
            inputs = [named(column(name), operation_of(tree)) for name, tree in zip(names, step.inputs, strict=True)]
        made = self._made(step.of(inputs).expression(), is_constant=self.constants.issuperset(names))
        if not step.is_python:
            self._refuse_overflow(step.of([*map(column, names)]).expression(), step.word, names, made, needed)
            if are_exact and step.word != "Cast" and _holds(self.frame.schema[made], _is_float):
                self._refuse_rounded(names, masks)
        self.frame = self.frame.drop([name for name in names if name.startswith(_STEP)])  # no other step needs it
        return made

    def whole(self, expression: pl.Expr) -> str:
        """The column with the value of an expression whose steps cannot be told."""
        made = self._made(expression, is_constant=False)
        if ".python_udf(" not in str(expression):
            self._refuse_overflow(expression, "", [*dict.fromkeys(columns_in(expression))], made, None)
        return made

    def fitting(self, made: str, kind: pl.DataType | None) -> pl.Series:
        """The values as a column of a type takes them."""
        values = self.frame[made]
        if values.dtype == pl.Int128:
            to = pl.UInt64 if kind == pl.UInt64 else pl.Int64
            outside = self.frame.select(~pl.col(made).is_between(to.min(), to.max())).to_series()
            self._refuse(outside, None, _OVERFLOW)
            return values.cast(to)
        of_integers = kind is not None and _holds(kind, _is_integer) and not _holds(kind, _is_float)
        if of_integers and made not in self.constants:
            beyond = _beyond(values, _is_float, _WHOLE)
            if beyond.any():
                self._refuse(_beyond(values, _is_float, _GREATEST), None, _INFINITE)
            self._refuse(beyond, None, _ROUNDED)
        return values

    def _made(self, expression: pl.Expr, *, is_constant: bool) -> str:
        """The name of a new column."""
        name = f"{_STEP}{self.made}"
        self.made += 1
        if is_constant:  # polars keeps one value for all rows: of a list of a thousand a million were too many
            self.frame = self.frame.with_columns(expression.first().alias(name))
            self.constants.add(name)
        else:
            self.frame = self.frame.with_columns(_of_rows(self.frame, expression).alias(name))
        return name

    def _needed(self, word: str, before: Sequence[str], needed: pl.Series | None) -> pl.Series | None:
        """For which rows the next input of a step counts. before: the columns of those before it."""
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
        """Raise where a step has wrapped around. step: of the columns of its inputs."""
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
        """Raise where 128 bits do not do, as for powers: floats are far from what is in 64 bits."""
        try:
            rough = self._of(step, names, pl.Float64())
        except pl.exceptions.PolarsError:  # of what is not computed with floats
            return
        self._refuse(_beyond(rough, _is_float, 2**100), needed, _OVERFLOW)

    def _refuse_rounded(self, names: Sequence[str], masks: Sequence[pl.Series | None]) -> None:
        """Raise where an integer is the input of a float, which may not have it."""
        for name, needed in zip(names, masks, strict=True):
            self._refuse(_beyond(self.frame[name], _is_integer, _WHOLE), needed, _ROUNDED)

    def _of(self, step: pl.Expr, names: Sequence[str], number: pl.DataType) -> pl.Series:
        """A step made of other integers. names: the columns of its inputs."""
        casts = [pl.col(name).cast(_with(self.frame.schema[name], number)) for name in dict.fromkeys(names)]
        return _of_rows(self.frame.with_columns(casts), step)

    def _refuse(self, bad: pl.Series, needed: pl.Series | None, why: str) -> None:
        """Raise for the first of the rows that are bad and needed, if there is one."""
        wrong = bad.fill_null(False) if needed is None else bad.fill_null(False) & needed
        if wrong.any():
            key = self.key(int(wrong.arg_max() or 0))
            raise InvalidInputError(f"{why}. column={self.name} key={key} set={self.expression}")


def _of_rows(frame: pl.DataFrame, expression: pl.Expr) -> pl.Series:
    """A value for each row. polars has one for all rows, of a literal, and of one beside a CASE that gives one."""
    values = frame.select(expression.alias("value")).to_series()
    return values if values.len() == frame.height else values.new_from_index(0, frame.height)


_OVERFLOW: Final = (
    "a new value, or one on the way to it, does not fit in an integer of 64 bits: rule the row out by `where`, or "
    "compute with decimals or floats, CAST(n AS DOUBLE)"
)
_ROUNDED: Final = (
    "an integer beyond 2^53 would be rounded on its way through a float: divide by //, or say that it may be, by an "
    "explicit CAST(… AS BIGINT)"
)
_INFINITE: Final = (
    "no integer is infinite, as what / makes of a division by 0 is: rule the row out by `where`, or divide by //, "
    "which makes null of it"
)
_UNSEEN: Final = (
    "polars does not compute this in integers of 128 bits, so that an overflow of 64 would not be seen: write it by "
    "+ - * // %, or cast the integers to floats or decimals"
)


# --- types ------------------------------------------------------------------------------------------------------------


def _is_integer(kind: Kind) -> bool:
    return kind.is_integer()


def _is_float(kind: Kind) -> bool:
    return kind.is_float()


def _holds(kind: Kind, of: Callable[[Kind], bool]) -> bool:
    """Whether values of a type are, or have in them, what is `of` a kind."""
    match kind:
        case pl.Struct():
            return any(_holds(inner.dtype, of) for inner in kind.fields)
        case pl.List() | pl.Array():
            return _holds(kind.inner, of)
    return of(kind)


def _with(kind: Kind, number: pl.DataType) -> Kind:
    """A type with other integers, also in its fields and elements. Unsigned ones of 64 bits fit in no signed ones."""
    match kind:
        case pl.Struct():
            return pl.Struct({inner.name: _with(inner.dtype, number) for inner in kind.fields})
        case pl.List():
            return pl.List(_with(kind.inner, number))
        case pl.Array():
            return pl.Array(_with(kind.inner, number), kind.size)
    return number if kind.is_integer() and (kind != pl.UInt64 or number != pl.Int64) else kind


def _beyond(values: pl.Series, of: Callable[[Kind], bool], limit: float) -> pl.Series:
    """Of each value, whether a number in it that is `of` a kind is greater than a limit, or less than minus that."""
    if not _holds(values.dtype, of):
        return pl.repeat(False, values.len(), dtype=pl.Boolean, eager=True)
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
    """Times as numbers of another time's unit, and integers as they are; None for what is no number of that unit."""
    per_second = _TICKS[beside.time_unit]
    match values.dtype:
        case pl.Date():
            return _times(values, 86_400 * per_second)
        case pl.Datetime(time_unit=unit) | pl.Duration(time_unit=unit) if unit is not None:
            coarser, rest = divmod(per_second, _TICKS[unit])
            return None if rest else _times(values, coarser)
    return values.cast(pl.Int128) if values.dtype.is_integer() else None


def _times(values: pl.Series, factor: int) -> pl.Series:
    """The integers by which times are held, multiplied."""
    return pl.select(pl.lit(values.to_physical()).cast(pl.Int128) * factor).to_series().alias(values.name)

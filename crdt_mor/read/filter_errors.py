"""What is said of a filter that cannot be: what is wrong with it, and what columns there are, in words of our own.

polars says much more, of plans and of expressions that nobody wrote. Its first line is taken where it names the cause.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import polars as pl

from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.errors import InvalidInputError
from crdt_mor.read.expressions import columns_in
from crdt_mor.read.sql_names import QUOTED, lacking_quotes
from crdt_mor.read.sql_parser import parsed
from crdt_mor.read.sql_tokens import tokens_of

_EXAMPLE: Final = "\"views > 10 AND city = 'Rome'\" as SQL, or (pl.col('views') > 10) & (pl.col('city') == 'Rome')"

_SHOWN: Final = 30
"""Columns of a wide table that are listed."""

_UNPARSED: Final = r"^unable to parse|unexpected token|^sql parser error"
_NO_EXPRESSION: Final = r"^expected an expression"

_CAUSES: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern, re.DOTALL), cause)
    for pattern, cause in (
        (r"^cannot compare string with numeric type", "a number is compared with text: take the same for both"),
        (
            r"^cannot compare 'date/datetime/time' to a string",
            "a date or a time is compared with text: write DATE '2026-01-31' or TIME '10:30:00', in Python "  # noqa: ISC004
            "datetime.date(2026, 1, 31)",
        ),
        (
            r"^could not evaluate .*Datetime\(.*UTC.*Datetime\(",
            "a moment with a time zone is compared with one without: say the zone, datetime(2026, 1, 31, tzinfo=UTC), "  # noqa: ISC004
            "in SQL TIMESTAMP '2026-01-31 00:00:00+00:00'",
        ),
        (r"^dot-notation", 'a word of SQL stands for a column: write the name in double quotes, "user".id'),
        (r"^could not evaluate|^cannot perform|^cannot compare", "values of different types are compared"),
        (r"^'is_in' cannot check for", "the values that a column is to be among are of another type than the column"),
        (r"subplan|(?i:subquery)", "there are no subqueries: run those first, and give their result as values"),
        (
            r"^casting from string to (date|datetime|time) ",
            "a text is made a date or a moment by TRY_CAST(… AS DATE) or TRY_CAST(… AS TIMESTAMP), in Python by "  # noqa: ISC004
            "str.to_date('%Y-%m-%d', strict=False)",
        ),
        (r"^value Placeholder", "there are no parameters: write the values, or use a polars expression"),
        (r"^expression Tuple\(", "rows of values are compared: compare their columns one by one, a = 1 AND b = 2"),
        (r"^expression SimilarTo ", "there is no SIMILAR TO: write a regular expression, city ~ '^R.*e$'"),
        (r"^value EscapedString", "there are no texts with escapes, E'…': write the text itself in single quotes"),
        (
            r"^expression \w+ ?[({]|^value \w+\(|Span\(",
            "it has a form of SQL that polars has not: write another, or an expression",
        ),
        (_UNPARSED, f"it is no SQL condition; one is like {_EXAMPLE}"),
        (_NO_EXPRESSION, f"a filter is the condition alone, what stands after WHERE: {_EXAMPLE}"),
        (r"^arithmetic on dtypes", "numbers and text are added or subtracted: cast one of them"),
        (r"^filter predicate must be of type|^& on|^\| on|in 'not' operation", "AND, OR and NOT take conditions"),
        (r"^regex error", "the pattern is no regular expression"),
    )
)


_NO_SQL: Final = re.compile(f"{_UNPARSED}|{_NO_EXPRESSION}")


def not_a_filter(given: object) -> InvalidInputError:
    """Of what is neither an expression nor a text."""
    return InvalidInputError(
        f"a filter is a polars expression or SQL text, {_EXAMPLE}. type={type(given).__name__} filter={given!r}"
    )


def unknown_columns(unknown: Sequence[str], schema: TableSchema, filter: pl.Expr | str) -> InvalidInputError:
    """Of a filter that names columns that the table has not; says which ones are meant, as far as one can tell."""
    quoted = [name for name in unknown if isinstance(filter, str) and f'"{name}"' in filter]
    hint = f"; text stands in single quotes, '{quoted[0]}'" if quoted else ""
    hint += schema.meant(unknown)
    return InvalidInputError(
        f"the filter names columns that the table has not; it has {schema.declared.names[:_SHOWN]}{hint}. "
        f"unknown={list(unknown)}"
    )


def inapplicable(error: pl.exceptions.PolarsError, schema: TableSchema, filter: pl.Expr | str) -> InvalidInputError:
    """Of a filter that polars refuses for the columns of a table."""
    names = lacking_quotes(filter, schema.declared.names) if isinstance(filter, str) and is_syntax_error(error) else ""
    said = f"; {QUOTED}: {names}" if names else ""
    return InvalidInputError(
        f"the filter cannot be applied to this table: {cause_of(error)}{said}. columns={_types(schema, filter)} "
        f"filter={filter}"
    )


def failed_on_rows(error: pl.exceptions.PolarsError, schema: TableSchema, filter: pl.Expr) -> InvalidInputError:
    """Of a filter that fits the columns and fails on a value; a text as a date fails on every one."""
    if str(error).startswith("casting from string to "):
        return inapplicable(error, schema, filter)
    return InvalidInputError(
        "the filter fails on a value of the table's: make it null there, as by cast(…, strict=False) or TRY_CAST in "
        f"SQL, or rule the value out. cause={cause_of(error)} columns={_types(schema, filter)} filter={filter}"
    )


def cause_of(error: Exception) -> str:
    """What an error of polars says of an expression, in words of our own where it is a known one."""
    text = str(error).strip()
    if isinstance(error, pl.exceptions.StructFieldNotFoundError):
        return f"a column has no such field, {text.splitlines()[0]!r}"
    for pattern, cause in _CAUSES:
        if pattern.search(text.partition("\n\nResolved plan")[0]):
            return cause
    return text.partition("\n")[0].partition(": Query {")[0].strip()


def is_syntax_error(error: Exception) -> bool:
    """Whether an SQL text is none, whatever is to be made of it."""
    return isinstance(error, pl.exceptions.SQLSyntaxError) or _NO_SQL.search(str(error)) is not None


def _types(schema: TableSchema, filter: pl.Expr | str) -> dict[str, str]:
    """The columns that a filter names, or all of a table's where it cannot tell, with their declared types."""
    declared = dict.fromkeys(META_COLUMNS, "string") | {field.name: str(field.type) for field in schema.declared}
    named = schema.declared.names[:_SHOWN]
    tokens = tokens_of(filter) if isinstance(filter, str) else None
    with suppress(InvalidInputError, pl.exceptions.PolarsError):
        if isinstance(filter, pl.Expr):
            named = columns_in(filter)
        elif tokens is not None:
            named = columns_in(parsed(filter, tokens))
    return {name: declared[name] for name in dict.fromkeys(named) if name in declared}

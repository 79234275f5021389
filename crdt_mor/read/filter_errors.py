"""Error messages for invalid filters: the cause and the table's columns.

Only the first line of polars' errors is used: the rest shows plans that the user never wrote.
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
_UNPARSED: Final = r"^unable to parse|unexpected token|^sql parser error"
_NO_EXPRESSION: Final = r"^expected an expression"

_CAUSES: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern, re.DOTALL), cause)
    for pattern, cause in (
        (r"^cannot compare string with numeric type", "a number is compared with text: use one type on both sides"),
        (
            r"^cannot compare 'date/datetime/time' to a string",
            "a date or a time is compared with text: write DATE '2026-01-31' or TIME '10:30:00', in Python "  # noqa: ISC004
            "datetime.date(2026, 1, 31)",
        ),
        (
            r"^could not evaluate .*Datetime\(.*UTC.*Datetime\(",
            "a moment with a time zone is compared with a moment without: add the zone, "  # noqa: ISC004
            "datetime(2026, 1, 31, tzinfo=UTC), in SQL TIMESTAMP '2026-01-31 00:00:00+00:00'",
        ),
        (r"^dot-notation", 'a column is named like an SQL keyword: put the name in double quotes, "user".id'),
        (r"^could not evaluate|^cannot perform|^cannot compare", "values of different types are compared"),
        (r"^'is_in' cannot check for", "the listed values have another type than the column"),
        (r"subplan|(?i:subquery)", "subqueries are not supported: run the subquery first and pass its values"),
        (
            r"^casting from string to (date|datetime|time) ",
            "convert text to a date or a moment with TRY_CAST(… AS DATE) or TRY_CAST(… AS TIMESTAMP), in Python with "  # noqa: ISC004
            "str.to_date('%Y-%m-%d', strict=False)",
        ),
        (r"^value Placeholder", "parameters are not supported: write the values, or use a polars expression"),
        (r"^expression Tuple\(", "tuples are not supported: compare their columns separately, a = 1 AND b = 2"),
        (r"^expression SimilarTo ", "SIMILAR TO is not supported: write a regular expression, city ~ '^R.*e$'"),
        (r"^value EscapedString", "E'…' escapes are not supported: write the text itself in single quotes"),
        (
            r"^expression \w+ ?[({]|^value \w+\(|Span\(",
            "polars does not support this SQL: rewrite the condition, or use a polars expression",
        ),
        (_UNPARSED, f"it is not an SQL condition; write for example {_EXAMPLE}"),
        (
            _NO_EXPRESSION,
            f"pass only the condition, without SELECT or WHERE; put a name like order in double quotes: {_EXAMPLE}",
        ),
        (r"^arithmetic on dtypes", "arithmetic mixes numbers and text: cast to one type"),
        (r"^filter predicate must be of type|^& on|^\| on|in 'not' operation", "AND, OR and NOT take conditions"),
        (r"^regex error", "the pattern is not a valid regular expression"),
    )
)


_NO_SQL: Final = re.compile(f"{_UNPARSED}|{_NO_EXPRESSION}")


def not_a_filter(given: object) -> InvalidInputError:
    return InvalidInputError(
        f"pass a condition as a polars expression or SQL text, {_EXAMPLE}. type={type(given).__name__} given={given!r}"
    )


def unknown_columns(unknown: Sequence[str], schema: TableSchema, filter: pl.Expr | str) -> InvalidInputError:
    sql = filter if isinstance(filter, str) else ""
    texts = [name for name in unknown if f'"{name}"' in sql or re.search(rf"=\s*{re.escape(name)}\b", sql)]
    hint = f"; put text in single quotes, '{texts[0]}'" if texts else ""
    hint += schema.meant(unknown)
    return InvalidInputError(
        f"the filter names unknown columns; the table has {schema.declared.names[:_SHOWN]}{hint}. "
        f"unknown={list(unknown)}"
    )


def inapplicable(error: pl.exceptions.PolarsError, schema: TableSchema, filter: pl.Expr | str) -> InvalidInputError:
    names = lacking_quotes(filter, schema.declared.names) if isinstance(filter, str) and is_syntax_error(error) else ""
    cause = cause_of(error)
    said = f"; {QUOTED}: {names}" if names else ""
    if cause.startswith("unsupported function"):
        said = "; put a column of this name in double quotes"
    return InvalidInputError(
        f"the filter cannot be applied to this table: {cause}{said}. columns={_types(schema, filter)} filter={filter}"
    )


def failed_on_rows(error: pl.exceptions.PolarsError, schema: TableSchema, filter: pl.Expr) -> InvalidInputError:
    if str(error).startswith("casting from string to "):
        return inapplicable(error, schema, filter)
    return InvalidInputError(
        "the filter fails on a value of the table: convert with cast(…, strict=False), in SQL with TRY_CAST, "
        f"or exclude the value. cause={cause_of(error)} columns={_types(schema, filter)} filter={filter}"
    )


def cause_of(error: Exception) -> str:
    text = str(error).strip()
    if isinstance(error, pl.exceptions.StructFieldNotFoundError):
        return f"no such field, {text.splitlines()[0]!r}"
    for pattern, cause in _CAUSES:
        if pattern.search(text.partition("\n\nResolved plan")[0]):
            return cause
    return text.partition("\n")[0].partition(": Query {")[0].strip()


def is_syntax_error(error: Exception) -> bool:
    return isinstance(error, pl.exceptions.SQLSyntaxError) or _NO_SQL.search(str(error)) is not None


def _types(schema: TableSchema, filter: pl.Expr | str) -> dict[str, str]:
    declared = dict.fromkeys(META_COLUMNS, "string") | {field.name: str(field.type) for field in schema.declared}
    named = schema.declared.names[:_SHOWN]
    tokens = tokens_of(filter) if isinstance(filter, str) else None
    with suppress(InvalidInputError, pl.exceptions.PolarsError):
        if isinstance(filter, pl.Expr):
            named = columns_in(filter)
        elif tokens is not None:
            named = columns_in(parsed(filter, tokens))
    return {name: declared[name] for name in dict.fromkeys(named) if name in declared}

"""Format values and errors for messages of the law check."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import polars as pl

AUTHOR_ERRORS: Final = (Exception, pl.exceptions.PanicException)
"""Errors of an author's code. A panic of polars is not an `Exception`."""

FIRST_TIME: Final = 20260101000000000
"""Commit n of a history is requested at this time plus n; messages call it tn."""

_TIME = re.compile(r"20260101000000(\d{3})")
_TEXT_MAX: Final = 120


def described(value: Any) -> str:
    """Return a value as a user would write it, with short names for times."""
    return abbreviated(_plain(value))


def _plain(value: Any) -> str:
    match value:
        case None:
            return "null"
        case date() | datetime():
            return value.isoformat()
        case Decimal():
            return str(value)
        case list():
            return f"[{', '.join(map(_plain, value))}]"
        case dict():
            return f"{{{', '.join(f'{key}: {_plain(inner)}' for key, inner in value.items())}}}"
    return repr(value)


def abbreviated(text: str) -> str:
    """Return the text with times as t1, t2, and without the middle of a long text."""
    text = _TIME.sub(lambda m: f"t{int(m[1])}", text)
    half = _TEXT_MAX // 2
    return text if len(text) <= _TEXT_MAX else f"{text[:half]} … {text[-half:]}"


def error_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {abbreviated(lines[0])}" if lines else type(error).__name__


def error_of(call: Callable[[], object]) -> str | None:
    try:
        call()
    except AUTHOR_ERRORS as error:
        return error_line(error)
    return None

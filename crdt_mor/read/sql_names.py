"""Column names in SQL text, and the double quotes they need."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import polars as pl

QUOTED: Final = "put SQL keywords and names with special characters in double quotes"

_WORD: Final = re.compile(r"[^\W\d]\w*")
_IN_QUOTES: Final = re.compile(r"""'[^']*'|"[^"]*\"""")


def in_sql(name: str) -> str:
    try:
        is_plain = _WORD.fullmatch(name) is not None and pl.sql_expr(name).meta.eq(pl.col(name))
    except pl.exceptions.PolarsError:
        is_plain = False
    return name if is_plain else quoted(name)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def name_of(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def lacking_quotes(text: str, names: Iterable[str]) -> str:
    bare = _IN_QUOTES.sub("''", text)
    found = [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", bare) and in_sql(name) != name]
    return ", ".join(map(in_sql, found))

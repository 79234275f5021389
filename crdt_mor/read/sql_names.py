"""Names of columns in SQL text: which of them stand in double quotes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import polars as pl

QUOTED: Final = "a name that is no plain word, or is a word of SQL, stands in double quotes"

_WORD: Final = re.compile(r"[^\W\d]\w*")
_IN_QUOTES: Final = re.compile(r"""'[^']*'|"[^"]*\"""")


def in_sql(name: str) -> str:
    """A name as SQL text has it: in double quotes where it is no plain word, or is a word of SQL."""
    try:
        is_plain = _WORD.fullmatch(name) is not None and pl.sql_expr(name).meta.eq(pl.col(name))
    except pl.exceptions.PolarsError:
        is_plain = False
    return name if is_plain else quoted(name)


def quoted(name: str) -> str:
    """A name in double quotes, of which those in it are doubled."""
    return '"' + name.replace('"', '""') + '"'


def name_of(text: str) -> str:
    """The name that SQL text has, in double quotes or without."""
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def lacking_quotes(text: str, names: Iterable[str]) -> str:
    """Which names stand in a text of SQL without the quotes that they need, in these; "" where none does."""
    bare = _IN_QUOTES.sub("''", text)
    found = [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", bare) and in_sql(name) != name]
    return ", ".join(map(in_sql, found))

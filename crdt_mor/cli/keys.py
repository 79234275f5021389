"""Keys on the command line, as text and as rows of the key's columns.

key_rows    `--keys`: comma-separated values, or a file with one key per line
key_of      one key: its value, or the comma-separated values of several columns
text_of     the text by which `key_of` finds a key without nulls
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import crdt_mor as mor
from crdt_mor.cli import render
from crdt_mor.cli.python_values import records
from crdt_mor.ground.late_imports import Late, pa

if TYPE_CHECKING:
    import pyarrow.csv as pc

    from crdt_mor.columns import types
else:
    pc = Late("pyarrow.csv")
    types = Late("crdt_mor.columns.types")

_NO_VALUE = re.compile(r"CSV conversion error to (?P<kind>\S+): invalid value (?P<value>'.*')")
"""Arrow's error for an invalid value."""

_MARK = "\ufeff"
"""The byte order mark that some programs write first (Unicode Standard, section 23.8)."""


def key_rows(texts: list[str], table: mor.Table) -> pa.Table:
    rows = [key for text in texts for key in _of_one_option(text, len(table.config.key))]
    if not rows:
        raise mor.InvalidInputError(f"the file of keys is empty. keys={texts}")
    return _typed(rows, table)


def key_of(text: str, table: mor.Table) -> object:
    single = len(table.config.key) == 1
    values = [text] if single else _values_in(text)
    row = tuple(records(_typed([values], table))[0].values())
    return row[0] if single else row


def text_of(values: Sequence[object]) -> str:
    """Format a key: a value, or a CSV line of several. A null and an empty string are the same."""
    texts = ["" if value is None else render.plain(value) for value in values]
    if len(texts) == 1:
        return texts[0]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(texts)
    return line.getvalue()


# --- inside -----------------------------------------------------------------------------------------------------------


def _typed(rows: list[list[str]], table: mor.Table) -> pa.Table:
    fields = table.config.key
    wrong = [row for row in rows if len(row) != len(fields)]
    if wrong:
        raise mor.InvalidInputError(
            f"a key is the comma-separated values of {list(fields)}; put a value with a comma in double quotes. "
            f'got="{",".join(wrong[0])}"'
        )
    kinds = types.without_dictionaries(pa.schema([table.schema.field(name) for name in fields]))
    lines = io.StringIO()
    csv.writer(lines).writerow(fields)  # a header to skip, since readers drop a byte order mark in the first line
    csv.writer(lines).writerows(rows)
    try:
        return pc.read_csv(
            pa.BufferReader(lines.getvalue().encode()),
            read_options=pc.ReadOptions(column_names=list(fields), skip_rows_after_names=1),
            parse_options=pc.ParseOptions(newlines_in_values=True),
            convert_options=pc.ConvertOptions(column_types=kinds),
        )
    except pa.ArrowException as error:
        said = " ".join(str(error).split())
        match = _NO_VALUE.search(said)
        wrong_value = said if match is None else f"{match['value']} is not a {match['kind']}"
        raise mor.InvalidInputError(
            f"a key must match its column's type: {wrong_value}. types={[str(kind) for kind in kinds.types]}"
        ) from error


def _values_in(text: str) -> list[str]:
    rows = _lines_of_csv([text])
    if len(rows) != 1:
        raise mor.InvalidInputError(f"a key is comma-separated values. got={text[:100]!r}")
    return rows[0]


def _of_one_option(text: str, columns: int) -> list[list[str]]:
    if text in ("-", "@-") or text.startswith("@"):
        lines = sys.stdin.read() if text in ("-", "@-") else Path(text[1:]).read_text("utf-8")
        return _lines_of_csv(io.StringIO(lines.removeprefix(_MARK)))
    values = _values_in(text)
    return [[value] for value in values] if columns == 1 else [values]


def _lines_of_csv(lines: Iterable[str]) -> list[list[str]]:
    try:
        return [row for row in csv.reader(lines, strict=True) if row]
    except csv.Error as error:
        raise mor.InvalidInputError(
            "a key is comma-separated values; put a value with a comma, a quote or a line break in double quotes: "
            f"{error}"
        ) from error

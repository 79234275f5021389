"""Keys on the command line: texts as rows of the key's columns, in their types, and back.

key_rows    `--keys`: values with commas between them, or a file with one key a line
key_of      one key: its value, or the values of several columns with commas between them
text_of     the text by which `key_of` finds a key, where it has no null
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
from crdt_mor.cli.plain_types import without_views
from crdt_mor.cli.python_values import records
from crdt_mor.ground.late_imports import Late

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.csv as pc
else:
    pa = Late("pyarrow")
    pc = Late("pyarrow.csv")

_NO_VALUE = re.compile(r"CSV conversion error to (?P<kind>\S+): invalid value (?P<value>'.*')")
"""What Arrow says of a text that is no value of a type."""

_MARK = "\ufeff"
"""What some programs put before the first line of a file of texts (Unicode Standard, section 23.8)."""


def key_rows(texts: list[str], table: mor.Table) -> pa.Table:
    """Keys of `--keys` as rows of the key's columns, in their types."""
    rows = [key for text in texts for key in _of_one_option(text, len(table.config.key.fields))]
    if not rows:
        raise mor.InvalidInputError(f"there are no keys: the file is empty. keys={texts}")
    return _typed(rows, table)


def key_of(text: str, table: mor.Table) -> object:
    """The key that a text names, in the types of the key's columns.

    Raises `InvalidInputError` for a text that is no such key.
    """
    single = len(table.config.key.fields) == 1
    values = [text] if single else _values_in(text)
    row = tuple(records(_typed([values], table))[0].values())
    return row[0] if single else row


def text_of(values: Sequence[object]) -> str:
    """A value as a text, and several as a line of CSV. A null has the text of an empty one."""
    texts = ["" if value is None else render.plain(value) for value in values]
    if len(texts) == 1:
        return texts[0]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(texts)
    return line.getvalue()


# --- inside -----------------------------------------------------------------------------------------------------------


def _typed(rows: list[list[str]], table: mor.Table) -> pa.Table:
    """The texts of keys as rows of the key's columns, in their types."""
    fields = table.config.key.fields
    wrong = [row for row in rows if len(row) != len(fields)]
    if wrong:
        raise mor.InvalidInputError(
            f"a key is a value of each of {list(fields)}, with commas between them; a value that has a comma stands in "
            f'double quotes. got="{",".join(wrong[0])}"'
        )
    kinds = without_views(pa.schema([table.schema.field(name) for name in fields]))
    lines = io.StringIO()
    csv.writer(lines).writerow(fields)  # which is passed over, as a reader of files drops a mark at their beginning
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
        wrong_value = said if match is None else f"{match['value']} is no {match['kind']}"
        raise mor.InvalidInputError(
            f"a key is of its column's type: {wrong_value}. types={[str(kind) for kind in kinds.types]}"
        ) from error


def _values_in(text: str) -> list[str]:
    """Values with commas between them, as a line of CSV has them."""
    rows = _lines_of_csv([text])
    if len(rows) != 1:
        raise mor.InvalidInputError(f"a key is values with commas between them. got={text[:100]!r}")
    return rows[0]


def _of_one_option(text: str, columns: int) -> list[list[str]]:
    """The keys of one `--keys`: all lines of a file or of stdin, or what stands there."""
    if text in ("-", "@-") or text.startswith("@"):
        lines = sys.stdin.read() if text in ("-", "@-") else Path(text[1:]).read_text("utf-8")
        return _lines_of_csv(io.StringIO(lines.removeprefix(_MARK)))
    values = _values_in(text)
    return [[value] for value in values] if columns == 1 else [values]


def _lines_of_csv(lines: Iterable[str]) -> list[list[str]]:
    """The values of each line that has some."""
    try:
        return [row for row in csv.reader(lines, strict=True) if row]
    except csv.Error as error:
        raise mor.InvalidInputError(
            "a key is values with commas between them; one that has a comma, a quote or a line break stands in double "
            f"quotes: {error}"
        ) from error

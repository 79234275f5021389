"""Rows of CSV text: a header, and a row a line.

    text  ->  Arrow's reader  ->  given types; texts of guessed numbers and of types unknown to the reader  ->  values

Errors name the line and the column. Lines are counted after an error only.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.types as pt

from crdt_mor.api.files_json import nested_from_texts
from crdt_mor.columns.text_types import ColumnTypes, InexactTextError, csv_type, guessed_from, in_type, numbers_of
from crdt_mor.errors import InvalidInputError

NOT_UTF8: Final = "invalid UTF8"
"""Arrow's message for text in another encoding."""

_COLUMN: Final = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?")
_ROW: Final = re.compile(r"Row #(\d+): ")
_UTF8: Final = "utf-8"
_BLOCK: Final = 1 << 20

Opened = tuple[pa.Schema, Iterator[pa.RecordBatch]]
"""A file's columns and its rows in batches."""

TextSource = Callable[[], pa.NativeFile]
"""Opens a text at its beginning, any number of times."""


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """The dialect of CSV. delimiter: between two fields. encoding: Python's name of the text's encoding."""

    delimiter: str = ","
    encoding: str = _UTF8

    @classmethod
    def of(cls, delimiter: object, encoding: object) -> CsvFormat:
        """Check a user's arguments; raise `InvalidInputError`."""
        if not (isinstance(delimiter, str) and re.fullmatch(r"[\t -~]", delimiter) and delimiter != '"'):
            raise InvalidInputError(f"pass an ASCII character as delimiter, as ';' or '\\t'. delimiter={delimiter!r}")
        try:
            name = codecs.lookup(encoding).name  # type: ignore[arg-type]
        except (LookupError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"unknown encoding: use Python's name, such as 'utf-8', 'latin-1' or 'cp1252'. encoding={encoding!r}"
            ) from error
        return cls(delimiter, name)


PLAIN: Final = CsvFormat()


def open_csv(source: TextSource, types: ColumnTypes, how: CsvFormat, stack: ExitStack, block: int = _BLOCK) -> Opened:
    """Open a text with these types; raise `pyarrow.ArrowInvalid` with the line.

    Unknown types are guessed from the first `block` bytes.
    """
    text = _Text(source, how, stack, block)
    found = text.found(types)
    if len(set(found.names)) < len(found.names):
        return found, iter(())  # the caller refuses it
    kinds = text.kinds(found, types)
    return pa.schema(list(kinds.items())), text.batches(kinds, types)


@dataclass(frozen=True, slots=True)
class _Text:
    source: TextSource
    how: CsvFormat
    stack: ExitStack
    block: int

    def found(self, types: ColumnTypes) -> pa.Schema:
        """Return the columns; Arrow guesses unknown types."""
        known = {name: csv_type(kind) for name, kind in types.all().items()}
        found = self._reader(known).schema
        _require_utf8(found, types)
        return found

    def kinds(self, found: pa.Schema, types: ColumnTypes) -> dict[str, pa.DataType]:
        known = types.all()
        kinds = {column.name: known.get(column.name, column.type) for column in found}
        numbers = [name for name, kind in kinds.items() if name not in known and _is_number(kind)]
        texts = next(iter(self._reader(dict.fromkeys(numbers, pa.string()))), None) if numbers else None
        if texts is not None:
            kinds |= {name: guessed_from(texts[name], kinds[name]) for name in numbers}
        return kinds

    def batches(self, kinds: dict[str, pa.DataType], types: ColumnTypes) -> Iterator[pa.RecordBatch]:
        guessed = {name for name, kind in kinds.items() if not types.is_given(name) and _is_number(kind)}
        asked = {name: pa.string() if name in guessed else csv_type(kind) for name, kind in kinds.items()}
        before = 0
        reader = iter(self._reader(asked))
        while (rows := self._next(reader)) is not None:
            columns = [
                self._column(pa.chunked_array([rows[name]]), pa.field(name, kind), before, guessed=name in guessed)
                for name, kind in kinds.items()
            ]
            before += rows.num_rows
            yield from pa.table(columns, schema=pa.schema(list(kinds.items()))).to_batches()

    def _column(self, data: pa.ChunkedArray, column: pa.Field, before: int, *, guessed: bool) -> pa.ChunkedArray:
        try:
            if guessed:
                return numbers_of(data, column.type, column.name)
            if pt.is_nested(column.type):
                return nested_from_texts(data, column.type)
            return in_type(data, column.type)
        except InexactTextError as error:
            raise pa.ArrowInvalid(f"line {self._line(before + error.row + 2)}: {error}") from error
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(f"column {column.name!r}: {error}") from error

    def _next(self, reader: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        try:
            return next(reader, None)
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(self._located(str(error))) from error

    def _reader(self, kinds: dict[str, pa.DataType]) -> pyarrow.csv.CSVStreamingReader:
        """Return Arrow's reader. Only an empty field is null, unless quoted: "NA" may be a name."""
        text = self.stack.enter_context(self.source())
        try:
            return self.stack.enter_context(pyarrow.csv.open_csv(
                text,
                pyarrow.csv.ReadOptions(use_threads=False, block_size=self.block, encoding=self.how.encoding),
                pyarrow.csv.ParseOptions(delimiter=self.how.delimiter, newlines_in_values=True),
                pyarrow.csv.ConvertOptions(
                    column_types=kinds, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
                ),
            ))  # fmt: skip
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(self._located(str(error))) from error

    def _located(self, said: str) -> str:
        """Return Arrow's message with the line of its row and the name of its column."""
        of_column = _COLUMN.search(said)
        row = of_column[2] if of_column else (found[1] if (found := _ROW.search(said)) else None)
        name = "" if of_column is None else f"column {self._names()[int(of_column[1])]!r}: "
        line = "" if row is None else f"line {self._line(int(row))}: "
        return f"{line}{name}{_ROW.sub('', _COLUMN.sub('', said))}"

    def _names(self) -> list[str]:
        return next((fields for _, fields in self._lines()), [])

    def _line(self, row: int) -> int:
        """Return the first line of a row. The header is row 1, and blank lines are no rows."""
        return next((line for number, (line, _) in enumerate(self._lines(), 1) if number == row), row)

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        with self.source() as text:
            lines: Any = io.TextIOWrapper(text, self.how.encoding, errors="replace", newline="")
            reader, before = csv.reader(lines, delimiter=self.how.delimiter), 0
            with suppress(csv.Error):  # of a field that is too long for Python's reader
                for fields in reader:
                    if fields:
                        yield before + 1, fields
                    before = reader.line_num


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_int64(kind) or pt.is_float64(kind))


def _require_utf8(schema: pa.Schema, types: ColumnTypes) -> None:
    for column in schema:
        if pt.is_binary(column.type) and column.name not in types.all():
            raise pa.ArrowInvalid(f"{NOT_UTF8} data in column {column.name!r}")

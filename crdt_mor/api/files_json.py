"""Read JSON text: one object per line, or one array of objects.

    bytes  ->  one object per line, for certain  ->  Arrow's reader

Arrow's reader crashes the process on a row `null` or deep nesting, and reads a later `null` as a row of nulls. It only
gets lines of one object each. Most texts have such lines, as their first and last characters and Arrow's count of rows
show. Python's reader splits other texts and reports errors.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.json
import pyarrow.types as pt

from crdt_mor.api.files_json_values import guessed_doubles, has_leaf, loaded, with_entries, written
from crdt_mor.columns.growth import with_fields_of
from crdt_mor.columns.text_types import LONG_NUMBER, ColumnTypes, in_type, inexact, is_exact, json_type
from crdt_mor.columns.texts import object_lines
from crdt_mor.columns.types import with_leaves

DEPTH_MAX: Final = 100
"""Maximum nesting of objects and lists, for recursive functions."""

_BLOCK: Final = 1 << 20
"""Bytes that Arrow parses at once; the longest line must fit."""

_BOM: Final = b"\xef\xbb\xbf"
_SPACES: Final = b" \t\r\n"
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NEXT: Final = re.compile(r",[ \t\r\n]*[^ \t\r\n\]]")
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKET: Final = re.compile(rb"[\[\]{}]")
_LONG: Final = re.compile(LONG_NUMBER.encode())


@dataclass(frozen=True, slots=True)
class _Lines:
    """Text with an object per line: number of lines, and bytes of the longest."""

    text: bytes
    rows: int
    longest: int


def read_json(content: bytes, types: ColumnTypes) -> pa.Table:
    """Parse JSON lines or an array, with the given types of columns; fields beyond the types stay.

    Dates and times are ISO text. Raises `pyarrow.ArrowInvalid` for other text or types.
    """
    content, known = content.removeprefix(_BOM), types.all()
    maps = {name: kind for name, kind in known.items() if has_leaf(kind, pt.is_map)}
    lines = None if maps or content.lstrip(_SPACES)[:1] == b"[" else _lines(content)
    found = None if lines is None else _parsed(lines, pa.schema([]))
    if lines is None or found is None or found.num_rows != lines.rows:
        lines = _with_entries(_taken_apart(content), maps)
        found = _parsed(lines, pa.schema([]))
    known = {name: with_fields_of(known[name], kind) for name, kind in _pairs(found.schema) if name in known}
    asked = {name: json_type(known.get(name, kind)) for name, kind in _pairs(found.schema)}
    rows = _parsed(lines, pa.schema(list(asked.items()))).select(list(asked))
    kinds = {
        name: known[name] if name in known else _with_times(rows[name], kind) for name, kind in _pairs(found.schema)
    }
    _require_exact(lines, kinds, types.given)
    columns = [_in_type(rows[name], pa.field(name, kind)) for name, kind in kinds.items()]
    return pa.table(columns, schema=pa.schema(list(kinds.items())))


def _pairs(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(column.name, column.type) for column in schema]


def nested_from_texts(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Parse the JSON texts of a CSV column in a nested type."""
    values = (None if text is None else _shallow(text) for text in texts.to_pylist())
    rows = [f'{{"v":{written(with_entries(value, kind))}}}'.encode() for value in values]
    if not rows:
        return pa.chunked_array([], kind)
    return in_type(_parsed(_of_rows(rows), pa.schema([("v", json_type(kind))]))["v"], kind)


def _shallow(text: str) -> object:
    """Load a JSON text; refuse one too deep for recursive functions."""
    _require_depth(text.encode())
    return loaded(text)


def _with_times(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.DataType:
    """Return the guessed type with exact times: Arrow drops the offsets of texts.

    If all texts have an offset, the times are moments in UTC. A column with both kinds stays text.
    """
    if not has_leaf(kind, pt.is_timestamp):
        return kind
    for zone in (None, "UTC"):
        zoned = with_leaves(kind, partial(_in_zone, zone))
        with suppress(pa.ArrowInvalid):
            in_type(texts, zoned)
            return zoned
    return json_type(kind)


def _in_zone(zone: str | None, kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("s", zone) if pt.is_timestamp(kind) else kind


def _in_type(data: pa.ChunkedArray, column: pa.Field) -> pa.ChunkedArray:
    try:
        return in_type(data, column.type)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"column {column.name!r}: {error}") from error


def _parsed(lines: _Lines, types: pa.Schema) -> pa.Table:
    return pyarrow.json.read_json(
        pa.BufferReader(lines.text),
        pyarrow.json.ReadOptions(block_size=max(_BLOCK, lines.longest + 1)),
        pyarrow.json.ParseOptions(explicit_schema=types),
    )


def _with_entries(lines: _Lines, maps: Mapping[str, pa.DataType]) -> _Lines:
    """Replace maps by lists of entries: Arrow reads no maps. maps: the columns with maps in them."""
    if not maps:
        return lines
    rows = [loaded(line.decode()) for line in io.BytesIO(lines.text)]
    whole = [row | {name: with_entries(row[name], kind) for name, kind in maps.items() if name in row} for row in rows]
    return _of_rows([written(row).encode() for row in whole])


def _require_exact(lines: _Lines, kinds: Mapping[str, pa.DataType], given: pa.Schema) -> None:
    """Raise for the first number that a guessed double changes."""
    known = {column.name: column.type for column in given}
    types = {name: known.get(name) for name in kinds}
    if not has_leaf(pa.struct(list(kinds.items())), pt.is_float64) or not _LONG.search(lines.text):
        return
    for number, line in enumerate(io.BytesIO(lines.text), 1):
        if not _LONG.search(line):
            continue
        row = loaded(line.decode())
        for name, kind in kinds.items():
            for text in guessed_doubles(row.get(name), kind, types[name]):
                if not is_exact(text):
                    raise pa.ArrowInvalid(f"row {number}: {inexact(text, name)}")


def _lines(content: bytes) -> _Lines | None:
    """Return the lines if each begins and ends like an object, or None.

    Their contents are still unknown. No line is nested deeper than its number of brackets, and if Arrow finds as many
    rows as lines, each is one object.
    """
    return _plain_lines(content) or _lines_one_by_one(content)


def _plain_lines(content: bytes) -> _Lines | None:
    """Return the lines of a text without spaces around objects, or None."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return None  # checking lines separately finds the wrong line
    found = object_lines(content, DEPTH_MAX)
    return None if found is None else _Lines(content, *found)


def _lines_one_by_one(content: bytes) -> _Lines | None:
    rows = longest = 0
    for number, line in enumerate(io.BytesIO(content), 1):
        _require_utf8(line, number)
        text = line.strip(_SPACES)
        if not text:
            continue
        if not (text.startswith(b"{") and text.endswith(b"}")) or text.count(b"{") + text.count(b"[") > DEPTH_MAX:
            return None
        rows, longest = rows + 1, max(longest, len(line))
    return _Lines(content, rows, longest)


def _require_utf8(line: bytes, number: int) -> None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(f"invalid UTF8 data in line {number}: {error}.") from error


def _taken_apart(content: bytes) -> _Lines:
    """Put each object of a text on its own line."""
    for number, line in enumerate(io.BytesIO(content), 1):
        _require_utf8(line, number)
    return _of_rows([row.encode() for row in _objects(content.decode())])


def _of_rows(rows: list[bytes]) -> _Lines:
    for row in rows:
        _require_depth(row)
    return _Lines(b"\n".join(rows), len(rows), max(map(len, rows), default=0))


def _objects(text: str) -> Iterator[str]:
    """Yield the objects of a sequence or an array as written, without line ends."""
    at = _skip(text, 0)
    array = text.startswith("[", at)
    at = _skip(text, at + array)
    while at < len(text) and not (array and text.startswith("]", at)):
        end = _end(text, at)
        yield text[at:end].replace("\r", " ").replace("\n", " ")
        at = _skip(text, end)
        if array and not text.startswith("]", at):
            at = _skip(text, _comma(text, at))
    if array:
        _require_end(text, at)


def _comma(text: str, at: int) -> int:
    """Return the position after the comma before a further object."""
    if not _NEXT.match(text, at):
        raise pa.ArrowInvalid(f"in line {_line(text, at)} a comma or the end of the array of rows is missing.")
    return at + 1


def _require_end(text: str, at: int) -> None:
    if at == len(text):
        raise pa.ArrowInvalid("the array of rows has no end.")
    after = _skip(text, at + 1)
    if after < len(text):
        raise pa.ArrowInvalid(f"text follows the end of the array of rows in line {_line(text, after)}.")


def _end(text: str, at: int) -> int:
    try:
        row, end = json.JSONDecoder().raw_decode(text, at)
    except RecursionError as error:
        raise _too_deep(text[at : at + 40]) from error
    except ValueError as error:
        raise pa.ArrowInvalid(f"{error}.") from error
    if not isinstance(row, dict):
        said = text[at:end][:40]
        raise pa.ArrowInvalid(f"each row must be an object, {{…}}, but in line {_line(text, at)} {said}.")
    return end


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _require_depth(row: bytes) -> None:
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", row)):
        depth += 1 if bracket in b"{[" else -1
        if depth > DEPTH_MAX:
            raise _too_deep(row[:40].decode(errors="ignore"))


def _too_deep(beginning: str) -> pa.ArrowInvalid:
    return pa.ArrowInvalid(f"a row is nested more than {DEPTH_MAX} levels deep; it begins {beginning}.")

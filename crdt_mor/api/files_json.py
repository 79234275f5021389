"""Rows of JSON text: one object a line, or one array of objects.

    bytes  ->  one object a line, for sure  ->  Arrow's reader

Arrow's reader dies, and the process with it, where a row is `null` or nested thousands of levels deep, and it takes a
later `null` for a row of nulls. So it is given nothing but lines of which each has one object. Most texts have such
lines, as their looks and Arrow's count of the rows tell; others are taken apart by Python's reader, which says what is
wrong.
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
"""How deep objects and lists may lie in each other. Types are walked by functions that call themselves."""

_BLOCK: Final = 1 << 20
"""The bytes that Arrow parses at once, in which the longest line has to have room."""

_BOM: Final = b"\xef\xbb\xbf"
_SPACES: Final = b" \t\r\n"
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NEXT: Final = re.compile(r",[ \t\r\n]*[^ \t\r\n\]]")
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKET: Final = re.compile(rb"[\[\]{}]")
_LONG: Final = re.compile(LONG_NUMBER.encode())


@dataclass(frozen=True, slots=True)
class _Lines:
    """Text that has an object in each line. rows: how many there are. longest: the bytes of the longest one."""

    text: bytes
    rows: int
    longest: int


def read_json(content: bytes, types: ColumnTypes) -> pa.Table:
    """The rows of JSON lines, or of an array: the columns that are there, in the types of `types` where it has them.

    Dates and times are ISO text, as JSON has none of its own. Fields that objects in a row have beside those of `types`
    stay.

    Raises `pyarrow.ArrowInvalid` for what is no such text, or not of these types.
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
    types = {name: given.field(name).type if name in given.names else None for name in kinds}
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
    """The lines as they are, where each begins and ends as an object does; None where one does not.

    What is between is unknown yet. But as no line goes on in the next one, none is deeper than it has brackets; and
    where Arrow finds as many rows as there are lines, each of them is one object.
    """
    return _plain_lines(content) or _lines_one_by_one(content)


def _plain_lines(content: bytes) -> _Lines | None:
    """The lines of a text as programs write it, without spaces around an object; None of any other."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return None  # one by one, the lines tell which of them is wrong
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
    """The objects of a text one by one, each in a line of its own and as it is written there."""
    for number, line in enumerate(io.BytesIO(content), 1):
        _require_utf8(line, number)
    return _of_rows([row.encode() for row in _objects(content.decode())])


def _of_rows(rows: list[bytes]) -> _Lines:
    for row in rows:
        _require_depth(row)
    return _Lines(b"\n".join(rows), len(rows), max(map(len, rows), default=0))


def _objects(text: str) -> Iterator[str]:
    """The objects that follow one another, or stand in an array, each as it is written, without line ends."""
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
    """The place behind the comma between two objects of an array, of which the second is there."""
    if not _NEXT.match(text, at):
        raise pa.ArrowInvalid(f"in line {_line(text, at)} the array of rows neither ends nor goes on.")
    return at + 1


def _require_end(text: str, at: int) -> None:
    """Raise where an array does not end, or something follows it."""
    if at == len(text):
        raise pa.ArrowInvalid("the array of rows has no end.")
    after = _skip(text, at + 1)
    if after < len(text):
        raise pa.ArrowInvalid(f"the array of rows has ended, and something follows it in line {_line(text, after)}.")


def _end(text: str, at: int) -> int:
    """Where the object ends that begins at a place."""
    try:
        row, end = json.JSONDecoder().raw_decode(text, at)
    except RecursionError as error:
        raise _too_deep(text[at : at + 40]) from error
    except ValueError as error:
        raise pa.ArrowInvalid(f"{error}.") from error
    if not isinstance(row, dict):
        said = text[at:end][:40]
        raise pa.ArrowInvalid(f"there is an object for each row, {{…}}, but in line {_line(text, at)} {said}.")
    return end


def _skip(text: str, at: int) -> int:
    """The place behind what is blank."""
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

"""`hoodie.properties`: Java's Properties text, with a checksum over the table's name.

    #comment
    key=value        `\\` escapes, `\\uXXXX` per UTF-16 unit, a line that ends in `\\` continues in the next

`.hoodie_partition_metadata` has this format too. `model.config` interprets the keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from crdt_mor.errors import FormatError
from crdt_mor.model.config_properties import CHECKSUM, DATABASE, NAME, checksum

_CONTROLS: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_ESCAPES: Final = {char: f"\\{char}" for char in "\\=:#!"} | _CONTROLS
_UNESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPACE: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|[^u])|\\u?", re.DOTALL)
_ESCAPED: Final = re.compile(r"[\\=:#!]|[^ -~]")
"""Characters that are always escaped."""
_PAIR: Final = re.compile(r"((?:[^\\=: \t\f]+|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def encode(properties: Mapping[str, str], comments: Sequence[str] = ()) -> bytes:
    """Encode `properties` after the comment lines. Equal input gives equal bytes."""
    lines = [f"#{line}" for comment in comments for line in _LINE_END.split(comment)]
    lines += [f"{_escape(key, key=True)}={_escape(value, key=False)}" for key, value in properties.items()]
    return ("\n".join(lines) + "\n").encode("latin-1", "replace")


def _escape(text: str, *, key: bool) -> str:
    escaped = _ESCAPED.sub(lambda match: _ESCAPES.get(match[0]) or _units(match[0]), text)
    # A value loses only a leading space; a key ends at any space.
    return escaped.replace(" ", "\\ ", -1 if key else int(escaped.startswith(" ")))


def _units(char: str) -> str:
    raw = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{raw[index]:02X}{raw[index + 1]:02X}" for index in range(0, len(raw), 2))


def decode(data: bytes, path: str) -> dict[str, str]:
    """Decode a Properties text; the last of equal keys counts. `FormatError` names the line."""
    return dict(_pair(line, number, path) for number, line in _logical_lines(data.decode("latin-1")))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines, continuations joined, with the number of their first line."""
    pending, first = "", 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_SPACE)
        if not first:
            if not line or line[0] in "#!":
                continue
            first = number
        pending += line
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        yield first, pending
        pending, first = "", 0
    if first:
        yield first, pending


def _pair(line: str, number: int, path: str) -> tuple[str, str]:
    match = _PAIR.match(line)
    assert match is not None, "each of its parts may be empty"
    return _unescape(match[1], number, path), _unescape(match[2], number, path)


def _unescape(text: str, number: int, path: str) -> str:
    if "\\" not in text:
        return text

    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped is None:
            if match[0] == "\\u":
                raise FormatError(f"\\u without four hex digits: restore the file. path={path} line={number}")
            return ""
        return chr(int(escaped[1:], 16)) if len(escaped) == 5 else _UNESCAPES.get(escaped, escaped)

    units = _ESCAPE.sub(plain, text)
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def encode_table(properties: Mapping[str, str], comments: Sequence[str] = ()) -> bytes:
    return encode({**properties, CHECKSUM: checksum(properties.get(DATABASE), properties[NAME])}, comments)


def decode_table(data: bytes, path: str) -> dict[str, str]:
    """Decode the properties of a table; raise `FormatError` for a wrong checksum."""
    properties = decode(data, path)
    written = properties.get(CHECKSUM)
    expected = checksum(properties.get(DATABASE), properties.get(NAME, ""))
    if written is not None and written != expected:
        raise FormatError(
            "the table's properties are damaged: restore the file from hoodie.properties.backup, if there is one. "
            f"path={path} checksum={written} expected={expected}"
        )
    return properties


def partition_metadata(commit_time: str, depth: int) -> bytes:
    """Encode a partition's metadata file, by which Hudi finds the partition. depth: number of its path levels."""
    return encode({"commitTime": commit_time, "partitionDepth": str(depth)}, ["partition metadata"])

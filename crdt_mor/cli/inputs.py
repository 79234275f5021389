"""The arguments of commands, from text to values: data files, schema files, points of a history, tokens, merges.

A CSV or JSON file has no types of its own, so it is read with those of the table that it goes to.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet
import typer

import crdt_mor as mor

_PARTIAL = re.compile(r"partial_update(/1)?(\?nulls=(?P<nulls>value|keep))?")
_SPELLINGS = re.compile(r"(?P<name>timestamp|decimal|decimal128|date|datetime)(?:[\[(](?P<inner>[^\])]*)[\])])?")


def names(text: str | None) -> list[str] | None:
    """`a,b` as a list."""
    return None if text is None else [name for part in text.split(",") if (name := part.strip())]


def point(text: str | None, name: str, *, checkpoint: bool = False) -> str | int | datetime | None:
    """A point of a table's history, as `crdt_mor.parse_point` reads it; what is none is a wrong use of the command.

    name: of the option or argument, for the error.
    """
    if text is None:
        return None
    try:
        return mor.parse_point(text, checkpoint=checkpoint, name=name)
    except mor.InvalidInputError as error:
        raise typer.BadParameter(str(error)) from error


def token(text: str | None) -> tuple[str, int] | None:
    """`--token app:1`."""
    if text is None:
        return None
    application, colon, number = text.rpartition(":")
    if not colon or not application or not number.isdigit():
        raise typer.BadParameter(f"a token is an application and a growing number, like loader:17. got={text!r}")
    return application, int(number)


def merge(texts: Sequence[str]) -> mor.PartialUpdate | dict[str | tuple[str, ...], mor.Payload | str] | None:
    """`--merge partial_update?nulls=keep --merge views=counter --merge price,at=latest_by?by=at`."""
    columns: dict[str | tuple[str, ...], mor.Payload | str] = {}
    partial: Literal["value", "keep"] | None = None
    for text in texts:
        named, equals, payload = text.partition("=") if "=" in text.partition("?")[0] else ("", "", text)
        if equals:
            if ":" in payload.partition("?")[0]:
                look_here()
            columns[tuple(names(named) or ())] = payload
            continue
        match = _PARTIAL.fullmatch(payload)
        if match is None:
            raise typer.BadParameter(f"a merge is like views=counter, or partial_update. got={text!r}")
        partial = "keep" if match["nulls"] == "keep" else "value"
    if partial is None:
        return columns or None
    return mor.PartialUpdate(partial, columns=columns)


# --- payloads ---------------------------------------------------------------------------------------------------------


def allow(payloads: Sequence[str]) -> None:
    """`--payloads acme.payloads`: what the table may use."""
    if payloads:
        look_here()
        mor.allow_payloads(*payloads)


def look_here() -> None:
    """Let modules that the user has named be imported from the current folder, too, after all other folders.

    Only then: what lies there may have come with a stranger's table, and Python imports by name whatever it finds.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


# --- data -------------------------------------------------------------------------------------------------------------


def read_data(path: Path, schema: pa.Schema) -> pa.Table:
    """The rows of a Parquet, Arrow, CSV or JSON lines file, the latter two in the types of `schema`."""
    return _reader(path)(path, schema)


def _reader(path: Path) -> Callable[[Path, pa.Schema], pa.Table]:
    readers = {
        ".parquet": _read_parquet,
        ".arrow": _read_ipc,
        ".feather": _read_ipc,
        ".ipc": _read_ipc,
        ".csv": _read_csv,
        ".json": _read_json,
        ".jsonl": _read_json,
        ".ndjson": _read_json,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise mor.InvalidInputError(f"a file's name says what it holds; known are {', '.join(readers)}. file={path}")
    return reader


def _read_parquet(path: Path, _: pa.Schema) -> pa.Table:
    return pyarrow.parquet.read_table(path, partitioning=None)


def _read_ipc(path: Path, _: pa.Schema) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        try:
            return pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source).read_all()


def _read_csv(path: Path, schema: pa.Schema) -> pa.Table:
    # An empty field is null and a quoted one is text: nothing else is, "NA" may well be a name.
    options = pyarrow.csv.ConvertOptions(
        column_types=schema, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return pyarrow.csv.read_csv(path, convert_options=options)


def _read_json(path: Path, schema: pa.Schema) -> pa.Table:
    columns = pyarrow.json.read_json(path).column_names
    # Only the columns that the file gives: a partial update of the others would set them to null.
    known = pa.schema([schema.field(name) for name in columns if name in schema.names])
    return pyarrow.json.read_json(path, parse_options=pyarrow.json.ParseOptions(explicit_schema=known)).select(columns)


# --- schemas ----------------------------------------------------------------------------------------------------------


def read_schema(path: Path) -> pa.Schema:
    """The schema of a data file, or the one that a JSON object `{"column": "type", ...}` spells out."""
    if path.suffix.lower() == ".json":
        try:
            document = json.loads(path.read_text())
        except ValueError:
            document = None  # then the file has JSON lines
        if isinstance(document, dict) and document and all(isinstance(kind, str) for kind in document.values()):
            spelled = {name: _type(kind) for name, kind in document.items()}
            if any(spelled.values()):
                return pa.schema(
                    [pa.field(name, kind or _unknown(name, document[name])) for name, kind in spelled.items()]
                )
    if path.suffix.lower() == ".parquet":
        return pyarrow.parquet.read_schema(path).remove_metadata()
    return read_data(path, pa.schema([])).schema.remove_metadata()


def _type(text: str) -> pa.DataType | None:
    """A type by Arrow's own spelling: `int64`, `date32`, `timestamp[us, UTC]`, `decimal(10, 2)`, `list<string>`."""
    text = text.strip()
    if text.startswith("list<") and text.endswith(">"):
        inner = _type(text[5:-1])
        return inner and pa.list_(inner)
    match = _SPELLINGS.fullmatch(text)
    inner = (match["inner"] or "") if match else ""
    if match and match["name"].startswith("decimal") and re.fullmatch(r"\d+\s*,\s*\d+", inner):
        return pa.decimal128(*(int(part) for part in inner.split(",")))
    if match and match["name"] in ("timestamp", "datetime"):
        unit, _, zone = (part.strip() for part in (inner or "us").partition(","))
        return pa.timestamp(unit, zone.removeprefix("tz=") or None) if unit in ("s", "ms", "us", "ns") else None
    try:
        return pa.date32() if text == "date" else pa.type_for_alias(text)
    except ValueError:
        return None


def _unknown(name: str, kind: str) -> pa.DataType:
    raise mor.InvalidInputError(
        "no such type; write it like int64, string, date, timestamp[us, UTC], decimal(10, 2) or list<string>, or give "
        f"a Parquet or Arrow file that has it. column={name!r} type={kind!r}"
    )

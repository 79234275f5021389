"""Read input files and schemas; `-` is stdin.

The file's name tells its format, or `--input-format`. Stdin and named pipes are read completely, because Parquet's
footer is at the end; their first bytes tell the format. CSV and JSON take the target table's types.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs
from crdt_mor.cli.options import Delimiter, Encoding, Rename
from crdt_mor.cli.type_names import type_of
from crdt_mor.ground.late_imports import Late, pa

if TYPE_CHECKING:
    from crdt_mor.api import files
    from crdt_mor.api import files_csv as csv_rows
    from crdt_mor.api import files_int96 as int96
    from crdt_mor.api import files_json as json_rows
    from crdt_mor.api.files_csv import CsvFormat
    from crdt_mor.columns import text_types
else:
    files = Late("crdt_mor.api.files")
    csv_rows = Late("crdt_mor.api.files_csv")
    int96 = Late("crdt_mor.api.files_int96")
    json_rows = Late("crdt_mor.api.files_json")
    text_types = Late("crdt_mor.columns.text_types")

STDIN: Final = Path("-")

_BLOCK_MAX: Final = 1 << 30
"""Most bytes of CSV for guessing types. Arrow counts them in 31 bits."""


class InputFormat(StrEnum):
    parquet = "parquet"
    arrow = "arrow"
    csv = "csv"
    jsonl = "jsonl"
    json = "json"


_SUFFIXES: Final = {
    ".parquet": InputFormat.parquet, ".arrow": InputFormat.arrow, ".feather": InputFormat.arrow,
    ".ipc": InputFormat.arrow, ".csv": InputFormat.csv, ".json": InputFormat.json, ".jsonl": InputFormat.jsonl,
    ".ndjson": InputFormat.jsonl,
}  # fmt: skip

Content: TypeAlias = "Callable[[], pa.NativeFile]"
"""Opens the input from its beginning, repeatedly."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Options for reading files.

    Attributes:
        input_format: The files' format; default: by their names, or by the first bytes of stdin.
    """

    input_format: InputFormat | None = None
    delimiter: Delimiter = ","
    encoding: Encoding = "utf-8"
    rename: Rename = None

    @property
    def csv(self) -> CsvFormat:
        try:
            return csv_rows.CsvFormat.of("\t" if self.delimiter == r"\t" else self.delimiter, self.encoding)
        except mor.InvalidInputError as error:
            raise typer.BadParameter(str(error)) from error


READING: Final = Reading()


def read_data(path: Path, schema: pa.Schema, how: Reading = READING) -> pa.Table:
    content = content_of(path)
    return _read(path, content, _form(path, content, how), schema, how)


def _read(path: Path, content: Content, form: InputFormat, schema: pa.Schema, how: Reading) -> pa.Table:
    if form is not InputFormat.csv and how.csv != csv_rows.PLAIN:
        raise typer.BadParameter(f"--delimiter and --encoding are only for CSV: omit them. file={path}")
    with _read_as(form, path):
        rows = _READERS[form](content, schema, how)
        files.require_differ(rows.schema, str(path))
        rows.validate(full=True)
    return rows


def _form(path: Path, content: Content, how: Reading) -> InputFormat:
    form = how.input_format or _named(path) or _sniffed(content)
    if form is None:
        raise mor.InvalidInputError(
            f"unknown file name ending: pass --input-format, or use {', '.join(_SUFFIXES)}, for text also with .gz. "
            f"file={path}"
        )
    return form


@contextmanager
def _read_as(form: InputFormat, path: Path) -> Iterator[None]:
    """Add file and format to errors of reading."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        said, advice = " ".join(str(error).split()), files.encoding_advice(error)
        raise mor.InvalidInputError(f"the file cannot be read as {form.value}{advice}: {said} file={path}") from error


def rows_of(file: str, schema: pa.Schema, how: Reading = READING) -> pa.Table:
    from crdt_mor.columns.renames import Renames

    renames = Renames.of(inputs.renames(how.rename))
    return renames.table(_own_rows(file, renames.back(schema), how))


def _own_rows(file: str, schema: pa.Schema, how: Reading) -> pa.Table:
    from crdt_mor.api.files_places import Places
    from crdt_mor.api.load_sources import open_source
    from crdt_mor.columns.renames import NONE

    if not files.is_address(file):
        return read_data(Path(file), schema, how)
    if how.input_format is not None:
        raise typer.BadParameter(f"the format at an address is known by its ending: omit --input-format. file={file}")
    places = Places(inputs.storage())
    if how.csv != csv_rows.PLAIN:
        return files.files_at(file, schema, places, NONE, how.csv).to_arrow()
    source = open_source(file, schema, "", places)
    batches = list(source.read())
    return pa.Table.from_batches(batches, batches[0].schema if batches else source.schema)


def check_files(named: list[str]) -> None:
    """Check the paths as `check_inputs` does. Addresses are checked when they are read."""
    check_inputs([Path(file) for file in named if not files.is_address(file)])


def check_inputs(files: list[Path]) -> None:
    for file in files:
        if file != STDIN and not file.exists():
            raise typer.BadParameter(f"the file does not exist. file={file}")
        if file.is_dir():
            raise typer.BadParameter(f"this is a folder: pass its files, {file}/*.parquet. file={file}")
    if files.count(STDIN) > 1:
        raise typer.BadParameter("stdin can be read only once: pass - once")
    if STDIN in files and _is_keyboard():
        raise typer.BadParameter("stdin is a terminal: use crdt-mor … - < file, or some-command | crdt-mor … -")


def _is_keyboard() -> bool:
    return sys.stdin.isatty()


def content_of(path: Path) -> Content:
    """Return a function that opens the file's content. A pipe is read into memory, since it can be read only once."""
    if path != STDIN and path.is_file():
        if path.suffix.lower() == ".gz" and not _has_own_types(_SUFFIXES.get(Path(path.stem).suffix.lower())):
            return _unpacked(path)
        return lambda: pa.OSFile(str(path))
    with nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb") as source:
        everything = _in_arrow(source)
    if not everything.size:
        raise mor.InvalidInputError(f"the input is empty. file={path}")
    return lambda: pa.BufferReader(everything)


def _unpacked(path: Path) -> Content:
    try:
        with pa.input_stream(str(path), compression="gzip") as packed:
            text = _in_arrow(packed)
    except OSError as error:
        raise mor.InvalidInputError(f"the file cannot be read as gzip: {error} file={path}") from error
    return lambda: pa.BufferReader(text)


def _in_arrow(source: Any) -> pa.Buffer:
    """Arrow's threads may free bytes after Python's end."""
    sink = pa.BufferOutputStream()
    shutil.copyfileobj(source, sink)
    return sink.getvalue()


def _named(path: Path) -> InputFormat | None:
    name = Path(path.stem if path.suffix.lower() == ".gz" else path)
    form = _SUFFIXES.get(name.suffix.lower())
    return None if path.suffix.lower() == ".gz" and _has_own_types(form) else form


def _has_own_types(form: InputFormat | None) -> bool:
    return form in (InputFormat.parquet, InputFormat.arrow)


def _sniffed(content: Content) -> InputFormat | None:
    """A regular file needs a signature, since any text looks like CSV."""
    source = content()
    start = source.read(64)
    if start.startswith(b"PAR1"):
        return InputFormat.parquet
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return InputFormat.arrow
    if isinstance(source, pa.OSFile):
        return None
    if start.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK")):
        raise mor.InvalidInputError("the input is compressed: unpack with gunzip -c file.gz | crdt-mor … -")
    return InputFormat.jsonl if start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[") else InputFormat.csv


def _read_parquet(content: Content, _: pa.Schema, __: Reading) -> pa.Table:
    with int96.ParquetFile(content()) as file:
        return pa.Table.from_batches(file.batches(), file.schema)


def _read_arrow(content: Content, _: pa.Schema, __: Reading) -> pa.Table:
    schema, batches = files.open_ipc(content())
    return pa.Table.from_batches(batches, schema)


def _read_csv(content: Content, schema: pa.Schema, how: Reading) -> pa.Table:
    with content() as text:
        size = text.size()
    types = text_types.ColumnTypes(schema)
    with ExitStack() as stack:
        found, batches = csv_rows.open_csv(content, types, how.csv, stack, block=min(size + 1, _BLOCK_MAX))
        return pa.Table.from_batches(batches, found)


def _read_json(content: Content, schema: pa.Schema, _: Reading) -> pa.Table:
    """Only the file's columns: a partial update would set others to null."""
    return json_rows.read_json(content().read(), text_types.ColumnTypes(schema))


_READERS: Final[dict[InputFormat, Callable[[Content, pa.Schema, Reading], pa.Table]]] = {
    InputFormat.parquet: _read_parquet,
    InputFormat.arrow: _read_arrow,
    InputFormat.csv: _read_csv,
    InputFormat.jsonl: _read_json,
    InputFormat.json: _read_json,
}


# --- schemas ----------------------------------------------------------------------------------------------------------


def read_schema(path: Path, how: Reading = READING, *, of_rows: bool = False) -> pa.Schema:
    """Return the schema of a data file, or of a JSON object as `crdt-mor schema` prints it.

    A JSON object of texts names types. With `of_rows`, it is a row unless all its texts are types.
    """
    content = content_of(path)
    form = _form(path, content, how)
    if form in (InputFormat.json, InputFormat.jsonl) and (spelled := _spelled(content, of_rows)) is not None:
        return spelled
    if form is InputFormat.parquet:
        with _read_as(form, path), int96.ParquetFile(content()) as file:
            files.require_differ(file.schema, str(path))
            return file.schema.remove_metadata()
    return _read(path, content, form, pa.schema([]), how).schema.remove_metadata()


def _spelled(content: Content, of_rows: bool) -> pa.Schema | None:
    try:
        document = json.loads(content().read())
    except (ValueError, RecursionError):
        return None
    if isinstance(document, dict) and isinstance(document.get("columns"), dict):
        document = document["columns"]
    if not (isinstance(document, dict) and all(isinstance(kind, str) for kind in document.values())):
        return None
    kinds = {name: type_of(kind) for name, kind in document.items()}
    if not kinds or (of_rows and not all(kinds.values())):
        return None
    return pa.schema([pa.field(name, kind or _unknown(name, document[name])) for name, kind in kinds.items()])


def _unknown(name: str, kind: str) -> pa.DataType:
    raise mor.InvalidInputError(
        "unknown type: use one like int64, string, date, timestamp[us, UTC], decimal(10, 2) or list<string>, or pass a "
        f"Parquet or Arrow file with the type. column={name!r} type={kind!r}"
    )

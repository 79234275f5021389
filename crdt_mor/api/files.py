"""Read Parquet, Arrow, CSV and JSON files of the user, to write their rows to a table.

    table.upsert(mor.read_files("incoming/*.parquet"))
    table.upsert(mor.read_files(["mon.csv", "tue.csv"]))

The table's own files belong to its store.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.ipc

from crdt_mor.api.data import SchemaLike, read_schema
from crdt_mor.api.files_csv import NOT_UTF8, PLAIN, CsvFormat, Opened, open_csv
from crdt_mor.api.files_int96 import ParquetFile
from crdt_mor.api.files_json import read_json
from crdt_mor.api.files_places import Places, require_known
from crdt_mor.api.rows import ArrowRows
from crdt_mor.columns.growth import with_fields_of
from crdt_mor.columns.renames import NONE, Renames
from crdt_mor.columns.tables import in_schema
from crdt_mor.columns.text_types import ColumnTypes
from crdt_mor.errors import InvalidInputError

_OF_TYPES: Final = ("conversion error", "changed from", "Failed to parse", "guessed")
"""Arrow's words for CSV or JSON values of another type than their column."""


def read_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    schema: SchemaLike | None = None,
    rename: Mapping[str, str] | None = None,
    delimiter: str = ",",
    encoding: str = "utf-8",
    storage_options: Mapping[str, Any] | None = None,
) -> FileRows:
    """Return the rows of files, one file after another, for writes, `Table.create` or inspection.

    Rows are read in batches, again on each use. All files need the first file's columns, in types that convert without
    loss; another file is refused when it is reached.

    Args:
        paths: a path or several, or patterns like `incoming/*.parquet`, sorted by name; also addresses of object
            stores, `s3://lake/incoming/*.parquet`. Endings: .parquet; .arrow, .feather, .ipc; .csv (with a header);
            .json, .jsonl, .ndjson (an object per line, or one array). CSV and JSON may also end in .gz.
        schema: column types for CSV and JSON. Other columns get the table's types in a write, and else types guessed
            from the first file: inexact values are refused, and CSV digits with a leading zero are text.
        rename: new column names by names in the files: `{"Total Sales": "sales"}`. `schema` uses the new names.
        delimiter, encoding: of CSV: such as ";" and "latin-1", Python's name.
        storage_options: access to an object store, as in `Table`.

    Raises:
        InvalidInputError: a file does not exist; later, if it cannot be read.

    Example:
        >>> pl.DataFrame({"id": ["c"], "Total Views": [3]}).write_csv("more.csv")
        >>> table.upsert(mor.read_files("more.csv", rename={"Total Views": "views"})).rows
        1
    """
    types = None if schema is None else read_schema(schema)
    how = CsvFormat.of(delimiter, encoding)
    return files_at(paths, types, Places(storage_options), Renames.of(rename), how)


def files_at(
    paths: object, types: pa.Schema | None, places: Places, renames: Renames, how: CsvFormat = PLAIN
) -> FileRows:
    """Return the rows of files; `types` of CSV and JSON columns use the new names."""
    found = _found(paths, places)
    other = next((path for path in found if _format(path) is not _csv), None)
    if how != PLAIN and other is not None:
        raise InvalidInputError(f"omit delimiter and encoding: these options are only for CSV. file={other}")
    return FileRows(found, types, places, renames, how)


class FileRows(ArrowRows):
    """Rows of files, read on demand. Made by `read_files`."""

    def __init__(
        self,
        paths: tuple[str, ...],
        types: pa.Schema | None,
        places: Places,
        renames: Renames = NONE,
        how: CsvFormat = PLAIN,
        table: pa.Schema | None = None,
    ) -> None:
        self.paths = paths
        self.places = places
        self._renames = renames
        self._given = types
        self._how = how
        self._table = table

    def _in_types(self, types: Callable[[], pa.Schema]) -> FileRows:
        """Return the rows with these types for CSV and JSON columns outside `schema=`."""
        return FileRows(self.paths, self._given, self.places, self._renames, self._how, types())

    @cached_property
    def schema(self) -> pa.Schema:
        """The first file's columns under their new names; all are nullable."""
        return self._renames.schema(self._own)

    @cached_property
    def _types(self) -> pa.Schema:
        given = self._renames.back(self._given) or pa.schema([])
        table = (self._renames.back(self._table) if _is_text(self.paths[0]) else None) or pa.schema([])
        known = {*given.names}
        return pa.schema([*given, *(column for column in table if column.name not in known)])

    @cached_property
    def _own(self) -> pa.Schema:
        with ExitStack() as stack:
            own, _ = _opened(self.places, self.paths[0], ColumnTypes(self._types), self._how, stack)
        known = {field.name: field.type for field in self._types}
        kinds = {field.name: with_fields_of(known.get(field.name, field.type), field.type) for field in own}
        return pa.schema([pa.field(name, kind) for name, kind in kinds.items()])

    @cached_property
    def _columns(self) -> ColumnTypes:
        """The column types of the first file, for all files. A text file's are guesses unless the user gives them."""
        own = self._own
        if not _is_text(self.paths[0]):
            return ColumnTypes(own)
        return ColumnTypes(self._types, own)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = self._own
        self._renames.schema(schema)  # refuses missing columns
        for path in self.paths:
            with ExitStack() as stack:
                own, batches = _opened(self.places, path, self._columns, self._how, stack)
                require_columns(own, schema, path, self.paths[0])
                for rows in reading(path, batches):
                    yield from map(self._renames.batch, fitted(rows, schema, path).to_batches())

    def __repr__(self) -> str:
        return f"FileRows({len(self.paths)} files, first={self.paths[0]!r})"


# --- which files ------------------------------------------------------------------------------------------------------


def _found(paths: object, places: Places) -> tuple[str, ...]:
    given: object = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not isinstance(given, Iterable):
        raise InvalidInputError(f"pass the paths of files. type={type(paths).__name__}")
    found = [file for path in given for file in _matching(path, places)]
    if not found:
        raise InvalidInputError("pass at least one path. paths=[]")
    for path in found:
        _format(path)
    return tuple(found)


def _matching(path: object, places: Places) -> list[str]:
    if not isinstance(path, str | os.PathLike):
        raise InvalidInputError(f"pass a file as a path. type={type(path).__name__} path={path!r}")
    name = os.path.expanduser(os.fsdecode(path))
    require_known(name)
    if os.path.exists(name) and not os.path.isdir(name):  # a pipe is as good as a file
        return [name]
    if places.is_file(name):
        return [name]
    if places.is_folder(name):
        raise InvalidInputError(f"this is a folder: pass its files, or a pattern, {name}/*.parquet. path={name}")
    files = places.matching(name)
    if not files:
        raise InvalidInputError(f"there is no such file. path={name}")
    return files


def is_address(text: str) -> bool:
    """Return True for an address with a scheme, `s3://bucket/path`."""
    scheme, found, _ = text.partition("://")
    return bool(found) and scheme.isalnum()


# --- content ----------------------------------------------------------------------------------------------------------


def _opened(places: Places, path: str, types: ColumnTypes, how: CsvFormat, stack: ExitStack) -> Opened:
    try:
        schema, batches = _format(path)(places, path, types, how, stack)
        require_differ(schema, path)
        require_sound(schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise unreadable(path, error) from error
    return schema, batches


def require_sound(schema: pa.Schema) -> None:
    """Raise `ValueError` for types in a file that Arrow accepts but cannot use.

    Such field names may be invalid text, and lists may have a negative size.
    """
    for field in schema:
        _read_names(field.type)
        with_fields_of(field.type, field.type)


def _read_names(kind: pa.DataType) -> None:
    for number in range(kind.num_fields):
        inner = kind.field(number)
        _ = inner.name
        _read_names(inner.type)


def reading(path: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Validate the batches: reading damaged values could crash the process."""
    while True:
        try:
            rows = next(batches)
            rows.validate(full=True)
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            raise unreadable(path, error) from error
        yield rows


def unreadable(path: str, error: Exception) -> InvalidInputError:
    cause = next(iter(str(error).splitlines()), type(error).__name__)
    advice = encoding_advice(error)
    if any(words in cause for words in _OF_TYPES):
        advice = advice or "; if values are not of their column's type, pass the type in schema="
    return InvalidInputError(f"the file cannot be read{advice}. file={path} cause={cause}")


def encoding_advice(error: Exception) -> str:
    """Return advice for text that is not UTF-8, or ""."""
    if isinstance(error, UnicodeDecodeError) or NOT_UTF8 in str(error):
        return "; the text is not UTF-8: convert the file, for instance with iconv -f latin1 -t utf-8"
    return ""


def require_differ(schema: pa.Schema, path: str) -> None:
    repeated = sorted(name for name, times in Counter(schema.names).items() if times > 1)
    if repeated:
        raise InvalidInputError(f"column names must differ: rename columns. file={path} repeated={repeated}")


def require_columns(own: pa.Schema, schema: pa.Schema, path: str, first: str) -> None:
    mine, theirs = dict.fromkeys(own.names), dict.fromkeys(schema.names)
    missing, more = [name for name in theirs if name not in mine], [name for name in mine if name not in theirs]
    if missing or more or len(own) != len(schema):
        raise InvalidInputError(
            "files read together must have the same columns: read this file separately. "
            f"file={path} first={first} missing={missing} more={more}"
        )
    for field in own:
        kind = schema.field(field.name).type
        if with_fields_of(kind, field.type) != kind:
            raise InvalidInputError(
                "a later file must not add fields to a column: read this file "
                f"separately, or first. file={path} first={first} column={field.name} type={field.type} "
                f"first_type={kind}"
            )


def fitted(rows: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.Table:
    try:
        return in_schema(pa.Table.from_batches([rows]).select(schema.names), schema)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidInputError(
            "a file's values do not convert to the types of the first file, or of schema=, without loss: cast them. "
            f"file={path} cause={next(iter(str(error).splitlines()), '')}"
        ) from error


def _parquet(places: Places, path: str, _: ColumnTypes, __: CsvFormat, stack: ExitStack) -> Opened:
    file = stack.enter_context(ParquetFile(places.source(path)))
    return file.schema, file.batches()


def _ipc(places: Places, path: str, _: ColumnTypes, __: CsvFormat, stack: ExitStack) -> Opened:
    source = places.source(path)
    file = pa.memory_map(source) if isinstance(source, str) else pa.PythonFile(source, mode="r")
    return open_ipc(stack.enter_context(file))


def open_ipc(source: pa.NativeFile) -> Opened:
    """Open Arrow's file format or stream format."""
    try:
        file = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        stream = pa.ipc.open_stream(source)
        return stream.schema, iter(stream)
    return file.schema, (file.get_batch(number) for number in range(file.num_record_batches))


def _csv(places: Places, path: str, types: ColumnTypes, how: CsvFormat, stack: ExitStack) -> Opened:
    return open_csv(lambda: places.stream(path), types, how, stack)


def _json(places: Places, path: str, types: ColumnTypes, _: CsvFormat, __: ExitStack) -> Opened:
    with places.stream(path) as source:
        rows = read_json(source.read(), types)
    return rows.schema, iter(rows.to_batches())


_Opens = Callable[[Places, str, ColumnTypes, CsvFormat, ExitStack], Opened]

_FORMATS: Final[dict[str, _Opens]] = {
    ".parquet": _parquet,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), _ipc),
    **dict.fromkeys((".csv", ".csv.gz"), _csv),
    **dict.fromkeys((".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz"), _json),
}


def _format(path: str) -> _Opens:
    known = next((read for ending, read in _FORMATS.items() if path.lower().endswith(ending)), None)
    if known is None:
        raise InvalidInputError(f"unknown file ending; known are {', '.join(_FORMATS)}. file={path}")
    return known


def _is_text(path: str) -> bool:
    return _format(path) in (_csv, _json)

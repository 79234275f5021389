"""Rows of files, to write them to a table: Parquet, Arrow, CSV and JSON, as many as there are.

    table.upsert(mor.read_files("incoming/*.parquet"))
    table.upsert(mor.read_files(["mon.csv", "tue.csv"]))

The files that make a table are its store's; the ones here are the user's own.
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
from crdt_mor.columns.text_types import ColumnTypes
from crdt_mor.errors import InvalidInputError

_OF_TYPES: Final = ("conversion error", "changed from", "Failed to parse", "guessed")
"""What Arrow says where texts of CSV, or values of JSON, are not of the type of their column."""


def read_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    schema: SchemaLike | None = None,
    rename: Mapping[str, str] | None = None,
    delimiter: str = ",",
    encoding: str = "utf-8",
    storage_options: Mapping[str, Any] | None = None,
) -> FileRows:
    """The rows of files, one file after the other: to be written, for `Table.create`, or to look at.

    paths: one path or several, each a file or a pattern like `incoming/*.parquet`, whose files are taken by name; they
        may be addresses of object stores, `s3://lake/incoming/*.parquet`. The
        ending says what a file holds: .parquet; .arrow, .feather, .ipc; .csv (with a header); .json, .jsonl, .ndjson,
        which have lines of one object each, or one array of objects. Compressed CSV and JSON end in .gz besides.
    schema: types for columns. CSV and JSON have none of their own. A write reads them in the types of its table, but
        for columns that `schema` names. Elsewhere types are guessed from the first file: a value that is not exact in
        the guessed type is refused, and digits with a leading zero in CSV are text.
    rename: new names of columns, by their names in the files: `{"Total Sales": "sales"}`. `schema` has the new ones.
    delimiter, encoding: of CSV: what separates its fields, such as ";", and how its text is encoded, by Python's name,
        such as "latin-1".
    storage_options: how an object store is reached, as in `Table.open`.

    Rows come a batch at a time, and each time anew that they are asked for. All files have the columns of the first
    one, in types that become its own without loss; another file is refused when it is reached.

    Raises `InvalidInputError` where there is no such file; later, where one cannot be read.
    """
    types = None if schema is None else read_schema(schema)
    how = CsvFormat.of(delimiter, encoding)
    return files_at(paths, types, Places(storage_options), Renames.of(rename), how)


def files_at(
    paths: object, types: pa.Schema | None, places: Places, renames: Renames, how: CsvFormat = PLAIN
) -> FileRows:
    """The rows of files at some places; types: those of CSV and JSON, by new names."""
    found = _found(paths, places)
    other = next((path for path in found if _format(path) is not _csv), None)
    if how != PLAIN and other is not None:
        raise InvalidInputError(f"delimiter and encoding are options of CSV: leave them out. file={other}")
    return FileRows(found, types, places, renames, how)


class FileRows(ArrowRows):
    """Rows of files, read when they are asked for. Made by `read_files`."""

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
        """The rows with these types for columns of CSV and JSON that have none of `schema=`."""
        return FileRows(self.paths, self._given, self.places, self._renames, self._how, types())

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the first file, under their new names; all of them may be null."""
        return self._renames.schema(self._own)

    @cached_property
    def _types(self) -> pa.Schema:
        """The types that are known, by the names of the first file."""
        given = self._renames.back(self._given) or pa.schema([])
        table = (self._renames.back(self._table) if _is_text(self.paths[0]) else None) or pa.schema([])
        return pa.schema([*given, *(column for column in table if column.name not in given.names)])

    @cached_property
    def _own(self) -> pa.Schema:
        """The columns of the first file under its own names."""
        with ExitStack() as stack:
            own, _ = _opened(self.places, self.paths[0], ColumnTypes(self._types), self._how, stack)
        known = {field.name: field.type for field in self._types}
        kinds = {field.name: with_fields_of(known.get(field.name, field.type), field.type) for field in own}
        return pa.schema([pa.field(name, kind) for name, kind in kinds.items()])

    @cached_property
    def _columns(self) -> ColumnTypes:
        """The types in which all files are read. Those that no file of text has said are no guess."""
        own = self._own
        if not _is_text(self.paths[0]):
            return ColumnTypes(own)
        return ColumnTypes(self._types, own)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = self._own
        self._renames.schema(schema)  # refuses what is not there
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
        raise InvalidInputError(f"files are given by their paths. type={type(paths).__name__}")
    found = [file for path in given for file in _matching(path, places)]
    if not found:
        raise InvalidInputError("no files are named: give one path at least. paths=[]")
    for path in found:
        _format(path)
    return tuple(found)


def _matching(path: object, places: Places) -> list[str]:
    if not isinstance(path, str | os.PathLike):
        raise InvalidInputError(f"a file is given by its path. type={type(path).__name__} path={path!r}")
    name = os.path.expanduser(os.fsdecode(path))
    require_known(name)
    if os.path.exists(name) and not os.path.isdir(name):  # a pipe is as good as a file
        return [name]
    if places.is_file(name):
        return [name]
    if places.is_folder(name):
        raise InvalidInputError(f"this is a folder: name its files, or give a pattern, {name}/*.parquet. path={name}")
    files = places.matching(name)
    if not files:
        raise InvalidInputError(f"there is no such file. path={name}")
    return files


def is_address(text: str) -> bool:
    """Whether a text names a place by a scheme, `s3://bucket/path`, and no file on a disk of this machine."""
    scheme, found, _ = text.partition("://")
    return bool(found) and scheme.isalnum()


# --- what they hold ---------------------------------------------------------------------------------------------------


def _opened(places: Places, path: str, types: ColumnTypes, how: CsvFormat, stack: ExitStack) -> Opened:
    """A file's columns and rows, those of a text in the types that are given; `stack` closes it."""
    try:
        schema, batches = _format(path)(places, path, types, how, stack)
        require_differ(schema, path)
        require_sound(schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise unreadable(path, error) from error
    return schema, batches


def require_sound(schema: pa.Schema) -> None:
    """Raise `ValueError` for types that Arrow takes from a file, and from nobody who asks it for them.

    Names are made texts when they are asked for, and may be none. A list may have a size below 0 there.
    """
    for field in schema:
        _read_names(field.type)
        with_fields_of(field.type, field.type)


def _read_names(kind: pa.DataType) -> None:
    """Read the names of fields at every depth."""
    for number in range(kind.num_fields):
        inner = kind.field(number)
        _ = inner.name
        _read_names(inner.type)


def reading(path: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, each looked through: what reads damaged values, not knowing it, takes the process down."""
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
        advice = advice or "; where a column has another type than its values, give theirs in schema="
    return InvalidInputError(f"the file cannot be read{advice}. file={path} cause={cause}")


def encoding_advice(error: Exception) -> str:
    """What to do about a text in another encoding than UTF-8, where that is the error; else nothing."""
    if isinstance(error, UnicodeDecodeError) or NOT_UTF8 in str(error):
        return "; its text is not UTF-8 but in some other encoding: convert it, for instance iconv -f latin1 -t utf-8"
    return ""


def require_differ(schema: pa.Schema, path: str) -> None:
    """Raise `InvalidInputError` where two columns of a file have the same name."""
    repeated = sorted(name for name, times in Counter(schema.names).items() if times > 1)
    if repeated:
        raise InvalidInputError(f"column names must differ: rename one. file={path} repeated={repeated}")


def require_columns(own: pa.Schema, schema: pa.Schema, path: str, first: str) -> None:
    missing, more = ([n for n in a.names if n not in b.names] for a, b in ((schema, own), (own, schema)))
    if missing or more or len(own.names) != len(schema.names):
        raise InvalidInputError(
            "files that are read together have the same columns, each once: read this one by itself. "
            f"file={path} first={first} missing={missing} more={more}"
        )
    for field in own:
        kind = schema.field(field.name).type
        if with_fields_of(kind, field.type) != kind:
            raise InvalidInputError(
                "files that are read together have no fields in their columns that the first one lacks: read this one "
                f"by itself, or first. file={path} first={first} column={field.name} type={field.type} "
                f"first_type={kind}"
            )


def fitted(rows: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.Table:
    try:
        return pa.Table.from_batches([rows]).select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidInputError(
            "a file's values do not become the types of the first file, or those of schema=, without loss: cast them. "
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
    """The columns and rows of Arrow's file format, or of its stream format."""
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
        raise InvalidInputError(f"a file's ending says what it holds; known are {', '.join(_FORMATS)}. file={path}")
    return known


def _is_text(path: str) -> bool:
    """Whether a file has no types of its own."""
    return _format(path) in (_csv, _json)

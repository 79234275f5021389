"""A lock-free, CRDT-based merge-on-read table engine on Apache Hudi tables.

import crdt_mor as mor
table = mor.Table.create("events", schema, key="event_id")
table.upsert(frame)                        # from any number of processes at once, without a lock
table.scan(filter="views > 10").to_polars()

Names outside daily work are in `crdt_mor.errors`, `results`, `observing`, `store` and `parts`. Each name is imported
on first use, so that reading a table does not wait for the import of its upkeep. A public name
is therefore listed three times: in the imports for type checkers, in `_NAMES` and in `__all__`.
"""

import typing as _typing
from importlib import import_module as _import_module
from os import path as _path

if _typing.TYPE_CHECKING:
    from crdt_mor import errors as errors
    from crdt_mor import observing as observing
    from crdt_mor import parts as parts
    from crdt_mor import results as results
    from crdt_mor import store as store
    from crdt_mor.api.changes import Changes
    from crdt_mor.api.check_store import check_store
    from crdt_mor.api.config import TableConfig
    from crdt_mor.api.create import Merge
    from crdt_mor.api.data import ArrowArray, ArrowDataset, ArrowSchema, ArrowStream, Data, SchemaLike
    from crdt_mor.api.doctor import doctor
    from crdt_mor.api.files import FileRows, read_files
    from crdt_mor.api.inspect import Inspect
    from crdt_mor.api.load_sources import LoadSource
    from crdt_mor.api.maintenance import Maintenance
    from crdt_mor.api.merge_into import Merged, MergeInto
    from crdt_mor.api.opening import Opening
    from crdt_mor.api.places import drop_table, list_tables
    from crdt_mor.api.reading import AsOf, Consistency
    from crdt_mor.api.rules import Rules
    from crdt_mor.api.scan import Scan
    from crdt_mor.api.table import Table
    from crdt_mor.api.transaction import Commit, Transaction
    from crdt_mor.errors import (
        CrdtMorError,
        InvalidInputError,
        SnapshotExpiredError,
        StorageUnavailableError,
        TokenOrderError,
    )
    from crdt_mor.ground.clock import Environment, Process
    from crdt_mor.ground.observing import observe
    from crdt_mor.laws.allowed import allow_payloads
    from crdt_mor.laws.check import check_laws
    from crdt_mor.merge.payload import Dot, Kind, Nulls, PartialUpdate, Payload, RecordPayload
    from crdt_mor.model.partition_functions import PartitionFunction, bucket, day, hour, month, truncate, year
    from crdt_mor.model.points import Point, parse_point
    from crdt_mor.read.assignments import NULL
    from crdt_mor.write.statements import SchemaMode

    __version__: str
    """The version of the installed package."""

_NAMES = {
    "api.changes": ("Changes",),
    "api.check_store": ("check_store",),
    "api.config": ("TableConfig",),
    "api.create": ("Merge",),
    "api.data": ("ArrowArray", "ArrowDataset", "ArrowSchema", "ArrowStream", "Data", "SchemaLike"),
    "api.doctor": ("doctor",),
    "api.files": ("FileRows", "read_files"),
    "api.inspect": ("Inspect",),
    "api.load_sources": ("LoadSource",),
    "api.maintenance": ("Maintenance",),
    "api.merge_into": ("MergeInto", "Merged"),
    "api.opening": ("Opening",),
    "api.places": ("drop_table", "list_tables"),
    "api.reading": ("AsOf", "Consistency"),
    "api.rules": ("Rules",),
    "api.scan": ("Scan",),
    "api.table": ("Table",),
    "api.transaction": ("Commit", "Transaction"),
    "errors": (
        "CrdtMorError",
        "InvalidInputError",
        "SnapshotExpiredError",
        "StorageUnavailableError",
        "TokenOrderError",
    ),
    "ground.clock": ("Environment", "Process"),
    "ground.observing": ("observe",),
    "laws.allowed": ("allow_payloads",),
    "laws.check": ("check_laws",),
    "merge.payload": ("Dot", "Kind", "Nulls", "PartialUpdate", "Payload", "RecordPayload"),
    "model.partition_functions": ("PartitionFunction", "bucket", "day", "hour", "month", "truncate", "year"),
    "model.points": ("Point", "parse_point"),
    "read.assignments": ("NULL",),
    "write.statements": ("SchemaMode",),
}
"""The public names of each module that the root exports."""

_PUBLIC_MODULES = ("errors", "observing", "parts", "results", "store")
"""The other homes of public names."""

_HERE = _path.dirname(__file__)
_CHECKOUT = _path.dirname(_HERE)
if not _path.isdir(_path.join(_HERE, "payloads")) and _path.isfile(_path.join(_CHECKOUT, "payloads", "__init__.py")):
    __path__.append(_CHECKOUT)  # without symbolic links, as on Windows or after some unzip programs

if not _typing.TYPE_CHECKING:  # otherwise a type checker would accept any name
    _HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}
    _ROOMS = {*_PUBLIC_MODULES, *(module.partition(".")[0] for module in _NAMES)}

    def __getattr__(name: str) -> object:
        """Import a public name or its module on first use."""
        if name in _HOMES:
            value = getattr(_import_module(_HOMES[name]), name)
        elif name in _ROOMS:
            return _import_module(f"{__name__}.{name}")
        elif name == "__version__":
            from importlib.metadata import version

            value = version("crdt-mor")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, "__version__"})


__all__ = [
    "NULL", "ArrowArray", "ArrowDataset", "ArrowSchema", "ArrowStream", "AsOf", "Changes", "Commit", "Consistency",
    "CrdtMorError", "Data", "Dot", "Environment", "FileRows", "Inspect", "InvalidInputError", "Kind", "LoadSource",
    "Maintenance", "Merge", "MergeInto", "Merged", "Nulls", "Opening", "PartialUpdate", "PartitionFunction", "Payload",
    "Point", "Process", "RecordPayload", "Rules", "Scan", "SchemaLike", "SchemaMode", "SnapshotExpiredError",
    "StorageUnavailableError", "Table", "TableConfig", "TokenOrderError", "Transaction", "allow_payloads", "bucket",
    "check_laws", "check_store", "day", "doctor", "drop_table", "hour", "list_tables", "month", "observe",
    "parse_point", "read_files", "truncate", "year",
]  # fmt: skip

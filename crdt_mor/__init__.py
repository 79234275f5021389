"""A lock-free, CRDT-based merge-on-read table engine on Apache Hudi tables.

import crdt_mor as mor
table = mor.Table.create("events", schema, key="event_id")
table.upsert(frame)                        # from any number of processes at once, without a lock
table.scan(filter="views > 10").to_polars()

Each name is imported on first use, so that reading a table does not wait for the import of its upkeep. A public name
is therefore listed three times: in the imports for type checkers, in `_NAMES` and in `__all__`.
"""

from importlib import import_module as _import_module
from os import path as _path
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from crdt_mor.api.changes import Changes
    from crdt_mor.api.check_store import check_store
    from crdt_mor.api.create import Merge
    from crdt_mor.api.data import ArrowArray, ArrowDataset, ArrowSchema, ArrowStream, Data, SchemaLike
    from crdt_mor.api.diff import Differences
    from crdt_mor.api.doctor import Checkup, doctor
    from crdt_mor.api.erasure import Erased
    from crdt_mor.api.files import FileRows, read_files
    from crdt_mor.api.inspect import Inspect
    from crdt_mor.api.job import WriteJob
    from crdt_mor.api.load import LoadProgress, OnProgress
    from crdt_mor.api.load_sources import LoadSource
    from crdt_mor.api.maintenance import Maintenance
    from crdt_mor.api.maintenance_results import Archived, Compacted
    from crdt_mor.api.merge_into import Merged, MergeInto
    from crdt_mor.api.merge_into_parts import MergePart, MergeSpread
    from crdt_mor.api.migration import Migrated
    from crdt_mor.api.migration_status import MigrationStatus
    from crdt_mor.api.reading import AsOf, Consistency
    from crdt_mor.api.rules import Rules
    from crdt_mor.api.scan import Scan
    from crdt_mor.api.table import Table
    from crdt_mor.api.transaction import Commit, Transaction
    from crdt_mor.api.update_parts import PartDone, UpdatePart
    from crdt_mor.columns.schema import TableSchema
    from crdt_mor.errors import (
        CheckpointExpiredError,
        ClockError,
        CommitUnknownError,
        ConstraintViolationError,
        CrdtMorError,
        EarlierWritePendingError,
        ErasureUnfinishedError,
        ForkedProcessError,
        FormatError,
        FutureSnapshotError,
        InvalidInputError,
        InvalidUseError,
        LawError,
        PartitionNotInKeyWarning,
        PayloadError,
        PayloadNotAllowedError,
        RestoreUnfinishedError,
        SchemaMismatchError,
        SnapshotExpiredError,
        StorageRefusedError,
        StorageUnavailableError,
        TableArrivingError,
        TableExistsError,
        TableMovedError,
        TableMovedWarning,
        TableNotFoundError,
        TableReplacedError,
        TokenOrderError,
        UnknownPayloadError,
        UnsupportedFeatureError,
        UnsupportedVersionError,
        UpkeepWarning,
        WriterExpiredError,
    )
    from crdt_mor.ground.clock import Environment, Process
    from crdt_mor.ground.observing import Observation, observe
    from crdt_mor.ground.observing_events import (
        AdoptionEvent,
        CommitEvent,
        Event,
        PartEvent,
        PlanEvent,
        RaceLostEvent,
        RollbackEvent,
        SweepEvent,
        UpkeepEvent,
        WaitEvent,
    )
    from crdt_mor.ground.parquet import ParquetSource, RangeReader
    from crdt_mor.laws.allowed import allow_payloads
    from crdt_mor.laws.check import check_laws
    from crdt_mor.merge.payload import Dot, Kind, Nulls, PartialUpdate, Payload, RecordPayload
    from crdt_mor.model.config import TableConfig, TableType
    from crdt_mor.model.keys import KeySpec
    from crdt_mor.model.merge_spec import ColumnMerge, MergeSpec, PayloadRef
    from crdt_mor.model.points import Point, parse_point
    from crdt_mor.model.timeline_parts import DataFile, FileGroup
    from crdt_mor.planners.compaction import CompactionPlan, GroupInput
    from crdt_mor.read.explain import Explanation, Files
    from crdt_mor.services.clean import Cleaned
    from crdt_mor.services.copy import Copied, CopyProgress
    from crdt_mor.services.maintain_report import Maintained, Upkeep
    from crdt_mor.services.migration import MigrationProgress
    from crdt_mor.services.repair import Repaired
    from crdt_mor.services.restore import Restored, Savepoint
    from crdt_mor.services.rollback import GivenUp
    from crdt_mor.services.verify_findings import Finding, Verification, VerifyProgress
    from crdt_mor.store.local import LocalStore
    from crdt_mor.store.memory import MemoryStore
    from crdt_mor.store.open import storage_options
    from crdt_mor.store.options import secret_options
    from crdt_mor.store.protocol import Chunks, Content, Durable, Stat, Store
    from crdt_mor.store.racing import StoreCheck
    from crdt_mor.write.job_values import Receipt
    from crdt_mor.write.statements import SchemaMode

    __version__: str
    """The version of the installed package."""

_NAMES = {
    "api.changes": ("Changes",),
    "api.check_store": ("check_store",),
    "api.doctor": ("Checkup", "doctor"),
    "ground.clock": ("Environment", "Process"),
    "api.create": ("Merge",),
    "api.data": ("ArrowArray", "ArrowDataset", "ArrowSchema", "ArrowStream", "Data", "SchemaLike"),
    "api.job": ("WriteJob",),
    "api.diff": ("Differences",),
    "api.erasure": ("Erased",),
    "errors": (
        "CheckpointExpiredError",
        "ClockError",
        "CommitUnknownError",
        "ConstraintViolationError",
        "CrdtMorError",
        "EarlierWritePendingError",
        "ErasureUnfinishedError",
        "ForkedProcessError",
        "FormatError",
        "FutureSnapshotError",
        "InvalidInputError",
        "InvalidUseError",
        "LawError",
        "PartitionNotInKeyWarning",
        "PayloadError",
        "PayloadNotAllowedError",
        "RestoreUnfinishedError",
        "SchemaMismatchError",
        "SnapshotExpiredError",
        "StorageRefusedError",
        "StorageUnavailableError",
        "TableArrivingError",
        "TableExistsError",
        "TableMovedError",
        "TableMovedWarning",
        "TableNotFoundError",
        "TableReplacedError",
        "TokenOrderError",
        "UnknownPayloadError",
        "UnsupportedFeatureError",
        "UnsupportedVersionError",
        "UpkeepWarning",
        "WriterExpiredError",
    ),
    "api.files": ("FileRows", "read_files"),
    "api.inspect": ("Inspect",),
    "laws.allowed": ("allow_payloads",),
    "laws.check": ("check_laws",),
    "api.load": ("LoadProgress", "OnProgress"),
    "api.maintenance": ("Maintenance",),
    "api.maintenance_results": ("Archived", "Compacted"),
    "merge.payload": ("Dot", "Kind", "Nulls", "PartialUpdate", "Payload", "RecordPayload"),
    "api.merge_into": ("MergeInto", "Merged"),
    "api.merge_into_parts": ("MergePart", "MergeSpread"),
    "api.migration": ("Migrated",),
    "api.migration_status": ("MigrationStatus",),
    "api.rules": ("Rules",),
    "model.config": ("TableConfig", "TableType"),
    "model.keys": ("KeySpec",),
    "model.merge_spec": ("ColumnMerge", "MergeSpec", "PayloadRef"),
    "planners.compaction": ("CompactionPlan", "GroupInput"),
    "model.points": ("Point", "parse_point"),
    "columns.schema": ("TableSchema",),
    "model.timeline_parts": ("DataFile", "FileGroup"),
    "ground.observing": ("Observation", "observe"),
    "ground.observing_events": (
        "AdoptionEvent",
        "CommitEvent",
        "Event",
        "PartEvent",
        "PlanEvent",
        "RaceLostEvent",
        "RollbackEvent",
        "SweepEvent",
        "UpkeepEvent",
        "WaitEvent",
    ),
    "ground.parquet": ("ParquetSource", "RangeReader"),
    "read.explain": ("Explanation", "Files"),
    "api.reading": ("AsOf", "Consistency"),
    "api.scan": ("Scan",),
    "services.clean": ("Cleaned",),
    "services.copy": ("Copied", "CopyProgress"),
    "services.migration": ("MigrationProgress",),
    "services.repair": ("Repaired",),
    "services.restore": ("Restored", "Savepoint"),
    "services.verify_findings": ("Finding", "Verification", "VerifyProgress"),
    "services.rollback": ("GivenUp",),
    "services.maintain_report": ("Maintained", "Upkeep"),
    "api.load_sources": ("LoadSource",),
    "store.protocol": ("Chunks", "Content", "Durable", "Stat", "Store"),
    "store.local": ("LocalStore",),
    "store.memory": ("MemoryStore",),
    "store.open": ("storage_options",),
    "store.options": ("secret_options",),
    "store.racing": ("StoreCheck",),
    "api.table": ("Table",),
    "api.transaction": ("Commit", "Transaction"),
    "api.update_parts": ("PartDone", "UpdatePart"),
    "write.job_values": ("Receipt",),
    "write.statements": ("SchemaMode",),
}
"""The public names of each module."""

_HERE = _path.dirname(__file__)
_CHECKOUT = _path.dirname(_HERE)
if not _path.isdir(_path.join(_HERE, "payloads")) and _path.isfile(_path.join(_CHECKOUT, "payloads", "__init__.py")):
    __path__.append(_CHECKOUT)  # without symbolic links, as on Windows or after some unzip programs

if not _TYPE_CHECKING:  # otherwise a type checker would accept any name
    _HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}
    _ROOMS = {module.partition(".")[0] for module in _NAMES}

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
    "AdoptionEvent",
    "Archived",
    "ArrowArray",
    "ArrowDataset",
    "ArrowSchema",
    "ArrowStream",
    "AsOf",
    "Changes",
    "CheckpointExpiredError",
    "Checkup",
    "Chunks",
    "Cleaned",
    "ClockError",
    "ColumnMerge",
    "Commit",
    "CommitEvent",
    "CommitUnknownError",
    "Compacted",
    "CompactionPlan",
    "Consistency",
    "ConstraintViolationError",
    "Content",
    "Copied",
    "CopyProgress",
    "CrdtMorError",
    "Data",
    "DataFile",
    "Differences",
    "Dot",
    "Durable",
    "EarlierWritePendingError",
    "Environment",
    "Erased",
    "ErasureUnfinishedError",
    "Event",
    "Explanation",
    "FileGroup",
    "FileRows",
    "Files",
    "Finding",
    "ForkedProcessError",
    "FormatError",
    "FutureSnapshotError",
    "GivenUp",
    "GroupInput",
    "Inspect",
    "InvalidInputError",
    "InvalidUseError",
    "KeySpec",
    "Kind",
    "LawError",
    "LoadProgress",
    "LoadSource",
    "LocalStore",
    "Maintained",
    "Maintenance",
    "MemoryStore",
    "Merge",
    "MergeInto",
    "MergePart",
    "MergeSpec",
    "MergeSpread",
    "Merged",
    "Migrated",
    "MigrationProgress",
    "MigrationStatus",
    "Nulls",
    "Observation",
    "OnProgress",
    "ParquetSource",
    "PartDone",
    "PartEvent",
    "PartialUpdate",
    "PartitionNotInKeyWarning",
    "Payload",
    "PayloadError",
    "PayloadNotAllowedError",
    "PayloadRef",
    "PlanEvent",
    "Point",
    "Process",
    "RaceLostEvent",
    "RangeReader",
    "Receipt",
    "RecordPayload",
    "Repaired",
    "RestoreUnfinishedError",
    "Restored",
    "RollbackEvent",
    "Rules",
    "Savepoint",
    "Scan",
    "SchemaLike",
    "SchemaMismatchError",
    "SchemaMode",
    "SnapshotExpiredError",
    "Stat",
    "StorageRefusedError",
    "StorageUnavailableError",
    "Store",
    "StoreCheck",
    "SweepEvent",
    "Table",
    "TableArrivingError",
    "TableConfig",
    "TableExistsError",
    "TableMovedError",
    "TableMovedWarning",
    "TableNotFoundError",
    "TableReplacedError",
    "TableSchema",
    "TableType",
    "TokenOrderError",
    "Transaction",
    "UnknownPayloadError",
    "UnsupportedFeatureError",
    "UnsupportedVersionError",
    "UpdatePart",
    "Upkeep",
    "UpkeepEvent",
    "UpkeepWarning",
    "Verification",
    "VerifyProgress",
    "WaitEvent",
    "WriteJob",
    "WriterExpiredError",
    "allow_payloads",
    "check_laws",
    "check_store",
    "doctor",
    "observe",
    "parse_point",
    "read_files",
    "secret_options",
    "storage_options",
]

"""A lock-free, CRDT-based merge-on-read table engine on Apache Hudi tables.

import crdt_mor as mor
table = mor.Table.create("events", schema, key="event_id")
table.upsert(frame)                        # from any number of processes at once, without a lock
table.scan(filter="views > 10").to_polars()
"""

from importlib.metadata import version as _version

from crdt_mor.changes import Changes
from crdt_mor.clock import Environment, Process
from crdt_mor.creation import Merge
from crdt_mor.data import ArrowArray, ArrowDataset, ArrowSchema, ArrowStream, Data, SchemaLike
from crdt_mor.distributed import Receipt, WriteJob
from crdt_mor.erasure import Erased
from crdt_mor.errors import (
    CheckpointExpiredError,
    ClockError,
    CommitUnknownError,
    CrdtMorError,
    ErasureUnfinishedError,
    ForkedProcessError,
    FormatError,
    FutureSnapshotError,
    InvalidInputError,
    InvalidUseError,
    LawError,
    PayloadError,
    PayloadNotAllowedError,
    SchemaMismatchError,
    SnapshotExpiredError,
    StorageRefusedError,
    StorageUnavailableError,
    TableArrivingError,
    TableExistsError,
    TableMovedError,
    TableNotFoundError,
    TableReplacedError,
    TokenOrderError,
    UnknownPayloadError,
    UnsupportedFeatureError,
    UnsupportedVersionError,
    WriterExpiredError,
)
from crdt_mor.files import FileRows, read_files
from crdt_mor.inspect import Inspect
from crdt_mor.laws import check_laws
from crdt_mor.laws.allowed import allow_payloads
from crdt_mor.loading import LoadProgress, OnProgress
from crdt_mor.maintenance import Archived, Compacted, Maintenance
from crdt_mor.merge.payload import Dot, Kind, Nulls, PartialUpdate, Payload, RecordPayload
from crdt_mor.migration import Migrated
from crdt_mor.model.config import TableConfig, TableType
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.merge_spec import ColumnMerge, MergeSpec, PayloadRef
from crdt_mor.model.plans import CompactionPlan, GroupInput
from crdt_mor.model.points import Point, parse_point
from crdt_mor.model.schema import TableSchema
from crdt_mor.model.timeline_parts import DataFile, FileGroup
from crdt_mor.observing import (
    AdoptionEvent,
    CommitEvent,
    Event,
    Observation,
    PartEvent,
    PlanEvent,
    RaceLostEvent,
    RollbackEvent,
    SweepEvent,
    UpkeepEvent,
    observe,
)
from crdt_mor.parquet import ParquetSource, RangeReader
from crdt_mor.read.explain import Explanation, Files
from crdt_mor.reading import AsOf, Consistency
from crdt_mor.scan import Scan
from crdt_mor.services.clean import Cleaned
from crdt_mor.services.migrate import MigrationProgress
from crdt_mor.services.restore import Restored, Savepoint
from crdt_mor.services.roll_back import GivenUp
from crdt_mor.services.upkeep import Maintained, Upkeep
from crdt_mor.sources import LoadSource
from crdt_mor.store.base import Chunks, Content, Stat, Store
from crdt_mor.store.local import LocalStore
from crdt_mor.store.memory import MemoryStore
from crdt_mor.store.open import storage_options
from crdt_mor.table import Table
from crdt_mor.transaction import Commit, Transaction
from crdt_mor.write.statements import SchemaMode

__version__ = _version("crdt-mor")
"""The version of the installed package, which pyproject.toml says."""

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
    "Content",
    "CrdtMorError",
    "Data",
    "DataFile",
    "Dot",
    "Environment",
    "Erased",
    "ErasureUnfinishedError",
    "Event",
    "Explanation",
    "FileGroup",
    "FileRows",
    "Files",
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
    "MergeSpec",
    "Migrated",
    "MigrationProgress",
    "Nulls",
    "Observation",
    "OnProgress",
    "ParquetSource",
    "PartEvent",
    "PartialUpdate",
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
    "Restored",
    "RollbackEvent",
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
    "SweepEvent",
    "Table",
    "TableArrivingError",
    "TableConfig",
    "TableExistsError",
    "TableMovedError",
    "TableNotFoundError",
    "TableReplacedError",
    "TableSchema",
    "TableType",
    "TokenOrderError",
    "Transaction",
    "UnknownPayloadError",
    "UnsupportedFeatureError",
    "UnsupportedVersionError",
    "Upkeep",
    "UpkeepEvent",
    "WriteJob",
    "WriterExpiredError",
    "allow_payloads",
    "check_laws",
    "observe",
    "parse_point",
    "read_files",
    "storage_options",
]

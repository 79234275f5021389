"""A lock-free, CRDT-based merge-on-read table engine on Apache Hudi tables.

    import crdt_mor as mor
    table = mor.Table.create("events", schema, key="event_id")
    table.upsert(frame)                        # from any number of processes at once, without a lock
    table.scan(filter="views > 10").to_polars()
"""

from crdt_mor.changes import Changes
from crdt_mor.distributed import Receipt, WriteJob
from crdt_mor.errors import (
    CheckpointExpiredError,
    ClockError,
    CommitUnknownError,
    CrdtMorError,
    FormatError,
    FutureSnapshotError,
    InvalidInputError,
    LawError,
    PayloadError,
    PayloadNotAllowedError,
    SchemaMismatchError,
    SnapshotExpiredError,
    StorageUnavailableError,
    TableExistsError,
    TableNotFoundError,
    TableReplacedError,
    TokenOrderError,
    UnknownPayloadError,
    UnsupportedFeatureError,
    UnsupportedVersionError,
    WriterExpiredError,
)
from crdt_mor.laws import check_laws
from crdt_mor.laws.allowed import allow_payloads
from crdt_mor.maintenance import Compacted
from crdt_mor.merge.payload import Dot, PartialUpdate, Payload, RecordPayload
from crdt_mor.model.plans import CompactionPlan
from crdt_mor.model.points import parse_point
from crdt_mor.read.explain import Explanation
from crdt_mor.scan import Scan
from crdt_mor.table import Table
from crdt_mor.transaction import Commit, Transaction

__all__ = [
    "Changes",
    "CheckpointExpiredError",
    "ClockError",
    "Commit",
    "CommitUnknownError",
    "Compacted",
    "CompactionPlan",
    "CrdtMorError",
    "Dot",
    "Explanation",
    "FormatError",
    "FutureSnapshotError",
    "InvalidInputError",
    "LawError",
    "PartialUpdate",
    "Payload",
    "PayloadError",
    "PayloadNotAllowedError",
    "Receipt",
    "RecordPayload",
    "Scan",
    "SchemaMismatchError",
    "SnapshotExpiredError",
    "StorageUnavailableError",
    "Table",
    "TableExistsError",
    "TableNotFoundError",
    "TableReplacedError",
    "TokenOrderError",
    "Transaction",
    "UnknownPayloadError",
    "UnsupportedFeatureError",
    "UnsupportedVersionError",
    "WriteJob",
    "WriterExpiredError",
    "allow_payloads",
    "check_laws",
    "parse_point",
]

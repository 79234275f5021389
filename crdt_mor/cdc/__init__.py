"""Apply change feeds of databases to tables: wal2json.

from crdt_mor.cdc import apply
apply(table, records)                       # events of a replication slot
"""

from crdt_mor.cdc.apply import Applied, apply
from crdt_mor.cdc.changes import Change
from crdt_mor.cdc.wal2json import decode_wal2json

__all__ = [
    "Applied",
    "Change",
    "apply",
    "decode_wal2json",
]

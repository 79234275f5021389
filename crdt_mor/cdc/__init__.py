"""Apply change feeds of databases to tables: Debezium, Maxwell, wal2json, AWS DMS.

from crdt_mor.cdc import apply
apply(table, records)                       # Kafka records, or events of a replication slot
"""

from crdt_mor.cdc.apply import Applied, apply
from crdt_mor.cdc.changes import Change
from crdt_mor.cdc.debezium import decode_debezium
from crdt_mor.cdc.dms import decode_dms
from crdt_mor.cdc.maxwell import decode_maxwell
from crdt_mor.cdc.wal2json import decode_wal2json

__all__ = [
    "Applied",
    "Change",
    "apply",
    "decode_debezium",
    "decode_dms",
    "decode_maxwell",
    "decode_wal2json",
]

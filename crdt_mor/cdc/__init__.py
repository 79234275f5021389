"""Apply change feeds of databases to tables: Debezium, Maxwell, wal2json, AWS DMS.

from crdt_mor.cdc import apply
apply(table, records)
"""

from crdt_mor.cdc.apply import Applied, apply
from crdt_mor.cdc.changes import Change

__all__ = ["Applied", "Change", "apply"]

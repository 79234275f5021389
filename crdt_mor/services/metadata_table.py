"""Hudi's metadata table, and how a table gets rid of it.

Hudi's readers see only the files that it lists, and nobody but Hudi's writers adds to it. So nothing is written to a
table that has one. Where the properties name none, Hudi's readers list the table's folders, and find what we wrote. The
properties are changed first (`hudi.handover`), so that no reader looks for a file that is gone.
"""

from __future__ import annotations

from crdt_mor.events.session import Session
from crdt_mor.hudi.handover import change_properties
from crdt_mor.log.paths import METADATA_TABLE
from crdt_mor.model.config_properties import METADATA_INFLIGHT, METADATA_PARTITIONS


def drop_metadata_table(session: Session) -> int:
    """Let the properties name no metadata table, and remove its files; how many there were."""
    session.run(change_properties({METADATA_PARTITIONS: None, METADATA_INFLIGHT: None}))
    files = session.store.walk(METADATA_TABLE)
    for file in files:
        session.store.delete(file.path)
    return len(files)

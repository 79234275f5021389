"""Remove Hudi's metadata table from a table.

Without it, Hudi's readers list the folders and find our files. The properties change first (`hudi.handover`), so no
reader looks for a missing metadata file.
"""

from __future__ import annotations

from crdt_mor.events.session import Session
from crdt_mor.hudi.handover import change_properties
from crdt_mor.log.paths import METADATA_TABLE
from crdt_mor.model.config_properties import METADATA_INFLIGHT, METADATA_PARTITIONS


def drop_metadata_table(session: Session) -> int:
    session.run(change_properties({METADATA_PARTITIONS: None, METADATA_INFLIGHT: None}))
    files = session.store.walk(METADATA_TABLE)
    for file in files:
        session.store.delete(file.path)
    return len(files)

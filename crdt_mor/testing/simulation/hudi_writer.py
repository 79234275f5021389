"""The files of Hudi's non-blocking writers with a bucket index.

    T.deltacommit.requested     an empty file of Hudi's timeline: the write is pending
    T.deltacommit.inflight      the same, once it writes
    .<group>_T.log.1_<token>    its rows, in a log file of each file group
    T_C.deltacommit             its log files: completed at C

The table's own timeline is told nothing. Our encoder, which is compared with Hudi's readers, writes the log files.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa

from crdt_mor import Table
from crdt_mor.format.commit import CommitMetadata, WriteStat, encode_commit
from crdt_mor.log.outcome import ValueOf
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import join_path
from crdt_mor.model.timeline_parts import DataFile, Pending
from crdt_mor.store.protocol import Chunks
from crdt_mor.testing.simulation.inside import hudi_folder_of, session_of
from crdt_mor.write.log_files import put_log
from crdt_mor.write.named import NamedStatements
from crdt_mor.write.open_write import OpenWrite
from crdt_mor.write.statements import RowsStatement

HUDIS_TOKEN: Final = "7-1-2"
"""The write token in names of Hudi's files."""

Stats = dict[str, list[WriteStat]]


def hudi_commits(
    table: Table, data: pa.Table, requested: InstantTime, completed: InstantTime, *, schema: str | None = None
) -> None:
    hudi_begins(table, requested)
    stats = hudi_stages(table, data, requested)
    hudi_completes(table, requested, completed, stats, schema=schema)


def hudi_begins(table: Table, requested: InstantTime) -> None:
    session = session_of(table)
    instant = f"{hudi_folder_of(table)}/{requested}.deltacommit"
    session.store.put(f"{instant}.requested", b"")
    session.store.put(f"{instant}.inflight", encode_commit(CommitMetadata({}, "UPSERT", {})))


def hudi_stages(table: Table, data: pa.Table, requested: InstantTime, *, deletes: pa.Table | None = None) -> Stats:
    session = session_of(table)
    write = OpenWrite(session, ValueOf(session.tail()), Pending(requested, "hudi", 0))
    statements = NamedStatements(write.statements)
    statements.add(RowsStatement("UPSERT", data))
    if deletes is not None:
        statements.add(RowsStatement("DELETE", deletes, plain=True))

    def put(file: DataFile, content: Chunks) -> DataFile:
        path = join_path(file.partition, str(replace(file.name, token=HUDIS_TOKEN)))
        return put_log(session.store, path, content, replace(file, path=path))

    stats: Stats = {}
    for file in write.stage(write.statements.collected, put):
        stat = WriteStat(
            file_id=file.name.file_id, path=file.path, num_writes=file.rows, file_size_in_bytes=file.size,
            partition_path=file.partition, base_file="", log_files=(str(file.name),), log_version=1, log_offset=0,
        )  # fmt: skip
        stats.setdefault(file.partition, []).append(stat)
    return stats


def hudi_completes(
    table: Table, requested: InstantTime, completed: InstantTime, stats: Stats, *, schema: str | None = None
) -> None:
    done = encode_commit(CommitMetadata(stats, "UPSERT", {} if schema is None else {"schema": schema}))
    session_of(table).store.put(f"{hudi_folder_of(table)}/{requested}_{completed}.deltacommit", done)

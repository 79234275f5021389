"""What Hudi's writers leave in a table of ours, forged from our own bytes, so that it needs no Java.

Hudi's simple bucket index goes by the digits in front of a file id, and takes the live file group that it finds; where
there is none it makes up an id. A statement that replaces rows names all live file groups of its partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa

from crdt_mor import Table
from crdt_mor.format.commit import CommitMetadata, WriteStat, encode_commit
from crdt_mor.hudi.projection import avro_schema
from crdt_mor.log.outcome import ValueOf
from crdt_mor.model.file_ids import FileIds
from crdt_mor.model.instant import InstantTime, from_ms, to_ms
from crdt_mor.model.names import DELTA_COMMIT, REPLACE_COMMIT, bucket_of_file_id, join_path
from crdt_mor.model.overwrite import DELETE_PARTITION, OPERATIONS, OVERWRITE, OVERWRITE_TABLE
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline_parts import DataFile, FileGroup, Pending
from crdt_mor.store.protocol import Chunks
from crdt_mor.write.log_files import in_memory, put_log
from crdt_mor.write.open_write import OpenWrite
from crdt_mor.write.statements import RowsStatement
from tests.format.replace_commit import encode_replace_commit
from tests.inside import look_for_hudi, session_of

HUDIS_TOKEN = "7-1-2"
Stats = dict[str, list[WriteStat]]


def _made_up() -> Iterator[str]:
    return (f"-7c1e-4bbb-8ccc-{number:012d}-0" for number in count())


class HudiTurns:
    """Hudi's writer. Each statement is requested and completed just after all that the table has decided.

    Partitions are named by their paths.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._tails = _made_up()
        self._begun = False

    def begin(self) -> None:
        """The next statement is requested and completed now, whenever its files come."""
        self._open()
        self._begun = True

    def insert(self, data: pa.Table) -> InstantTime:
        """SQL's INSERT, or an upsert."""
        self._open()
        return self._commit(self._staged(data, self._live()), "INSERT", {})

    def drop(self, *partitions: str) -> InstantTime:
        """DROP PARTITION."""
        self._open()
        return self._commit({}, DELETE_PARTITION, self._replaced(self._live(), partitions))

    def cluster(self, data: pa.Table, *partitions: str) -> InstantTime:
        """A clustering, which moves all rows of these partitions, `data`, to other file groups."""
        self._open()
        live = self._live()
        replaced = self._replaced(live, partitions)
        return self._commit(self._staged(data, []), "CLUSTER", replaced)

    def overwrite(self, data: pa.Table, *partitions: str) -> InstantTime:
        """INSERT OVERWRITE of these partitions; of the table, where none is named."""
        self._open()
        live = self._live()
        replaced = self._replaced(live, partitions)
        kept = [group for group in live if group[1] not in replaced.get(group[0], ())]
        stats = self._staged(data, kept)
        return self._commit(stats, OVERWRITE if partitions else OVERWRITE_TABLE, replaced)

    def has_groups(self, *partitions: str) -> bool:
        """Whether there is something to replace in some of these partitions."""
        self._open()
        return bool(self._replaced(self._live(), partitions))

    def _open(self) -> None:
        table = Table(self.root)
        look_for_hudi(table)
        self.session = session_of(table)
        if self._begun:
            self._begun = False
            return
        clock = to_ms(self.session.views.sealed(look=True).clock)
        self.requested, self.completed = from_ms(clock + 1), from_ms(clock + 3)  # ours are requested at even times

    def _live(self) -> list[FileGroup]:
        value = self.session.views.sealed(look=True)
        return [found.group for found in fold_slices(self.session.views.completions(value))]

    @staticmethod
    def _replaced(live: list[FileGroup], partitions: tuple[str, ...]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for partition, file_id in live:
            if partition in partitions or not partitions:
                found.setdefault(partition, []).append(file_id)
        return found

    def _staged(self, data: pa.Table, live: list[FileGroup]) -> Stats:
        """Put the log files of rows in the live file groups of their buckets, or in new ones with made-up ids."""
        by_bucket = {(p, bucket_of_file_id(file_id)): file_id for p, file_id in live}
        write = OpenWrite(self.session, ValueOf(self.session.views.sealed()), Pending(self.requested, "hudi", 0))
        write.statements.add(RowsStatement("UPSERT", data))
        made = write.stage(write.statements.collected, in_memory)
        places = [(file.partition, bucket_of_file_id(file.name.file_id)) for file, _ in made]
        ids = [(p, by_bucket.get((p, b)) or f"{b:08d}{next(self._tails)}") for p, b in places]
        write.file_ids = FileIds(tuple(ids))
        stats: Stats = {}

        def put(file: DataFile, content: Chunks) -> DataFile:
            path = join_path(file.partition, str(replace(file.name, token=HUDIS_TOKEN)))
            return put_log(self.session.store, path, content, replace(file, path=path))

        for file in write.stage(write.statements.collected, put):
            stat = WriteStat(
                file_id=file.name.file_id, path=file.path, prev_commit=self.requested, num_writes=file.rows,
                file_size_in_bytes=file.size, total_write_bytes=file.size, partition_path=file.partition, base_file="",
                log_files=(str(file.name),), log_version=1, log_offset=0,
            )  # fmt: skip
            stats.setdefault(file.partition, []).append(stat)
            write.note_placed(file)
        return stats

    def _commit(self, stats: Stats, operation: str, replaced: dict[str, list[str]]) -> InstantTime:
        folder, store = self.session.publisher.projector.folder, self.session.store
        avro = avro_schema(self.session.views.sealed().schema, self.session.config.name)
        metadata = CommitMetadata(stats, operation, {"schema": avro}, replaced=replaced)
        is_replacing = operation in {*OPERATIONS, "CLUSTER"}
        assert is_replacing == bool(replaced), "a statement that replaces names what is there"
        action = REPLACE_COMMIT if is_replacing else DELTA_COMMIT
        store.put(f"{folder}/{self.requested}.{action}.requested", b"")
        store.put(f"{folder}/{self.requested}.{action}.inflight", encode_commit(CommitMetadata({}, operation, {})))
        done = encode_replace_commit(metadata) if is_replacing else encode_commit(metadata)
        store.put(f"{folder}/{self.requested}_{self.completed}.{action}", done)
        return self.requested

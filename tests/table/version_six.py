"""A small writer of tables as Hudi wrote them before version 8: logs that commits share, and a timeline of layout 1.

Nothing in it is ours but the encoding of blocks. Times are numbers, of which `at` makes instants.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from crdt_mor import Opening, Table
from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.format.commit import CompactionOperation, CompactionPlanRecord, encode_compaction_plan
from crdt_mor.format.log import delete_block, parquet_block
from crdt_mor.format.properties import decode_table, encode_table
from crdt_mor.model.instant import InstantTime
from crdt_mor.store import MemoryStore
from crdt_mor.store.protocol import Store
from tests.format.helpers import raw_block

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
AVRO = TableSchema.of(SCHEMA).avro("six")
BLOCK_AVRO = TableSchema.of(SCHEMA).avro_with_meta("six")
PROPERTIES = {
    "hoodie.table.name": "six",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "6",
    "hoodie.timeline.layout.version": "1",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.table.keygenerator.type": "NON_PARTITION",
    "hoodie.compaction.payload.class": "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
    "hoodie.archivelog.folder": "archived",
    "hoodie.table.create.schema": AVRO,
}
Rows = Mapping[str, int]


def at(time: int) -> InstantTime:
    return InstantTime(f"20240101{time:09}")


def table_of(time: int, rows: Rows, file: str) -> pa.Table:
    """Rows with Hudi's columns."""
    count = len(rows)
    meta = [[at(time)] * count, [f"{at(time)}_{i}" for i in range(count)], [*rows], [""] * count, [file] * count]
    columns = [pa.array(column, pa.string()) for column in meta]
    return pa.table([*columns, pa.array([*rows], pa.string()), pa.array([*rows.values()], pa.int64())],
                    [*META_COLUMNS, *SCHEMA.names])  # fmt: skip


def parquet(data: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(data, sink, store_schema=False)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def row_block(time: int, rows: Rows) -> bytes:
    return b"".join(parquet_block(at(time), BLOCK_AVRO, parquet(table_of(time, rows, ""))))


def gone_block(time: int, keys: Sequence[str]) -> bytes:
    return b"".join(delete_block(at(time), BLOCK_AVRO, keys, "", None))


def rollback_block(time: int, undone: int) -> bytes:
    """The command of a rollback, which undoes what the write at `undone` has put before it."""
    return raw_block(0, {0: at(time), 1: at(undone), 3: "0"})


class VersionSix:
    """A table that Hudi makes, in a store."""

    def __init__(self, store: Store | None = None, **properties: str | None) -> None:
        self.store = MemoryStore() if store is None else store
        self.completed: dict[InstantTime, InstantTime] = {}
        found = PROPERTIES | {name.replace("__", "."): value for name, value in properties.items()}
        said = {name: value for name, value in found.items() if value is not None}
        self.store.put(".hoodie/hoodie.properties", encode_table(said))

    def open(self) -> Table:
        return Table("six", opening=Opening(store=self.store))

    def rows(self) -> dict[str, int]:
        """What we read, each key once."""
        found = self.open().scan().to_arrow().to_pylist()
        assert len({row["id"] for row in found}) == len(found), found
        return {row["id"]: row["v"] for row in found}

    def base(self, time: int, rows: Rows, group: str = "g") -> str:
        path = f"{group}_1-2-3_{at(time)}.parquet"
        assert self.store.put(path, parquet(table_of(time, rows, path)))
        return path

    def log(self, slice_: int, *blocks: bytes, number: int = 1, group: str = "g") -> str:
        """Blocks at the end of a log file, which they make where there is none."""
        path = f".{group}_{at(slice_)}.log.{number}_1-2-3"
        before = self.store.read(path) or b""
        self.store.delete(path)
        assert self.store.put(path, before + b"".join(blocks))
        return path

    def begin(self, time: int, action: str = "deltacommit") -> None:
        """A write that is not completed."""
        self._event(f"{at(time)}.{action}.requested")
        self._event(f"{at(time)}.inflight" if action == "commit" else f"{at(time)}.{action}.inflight")

    def plan(self, time: int, slice_: int, group: str = "g") -> None:
        """The plan of a compaction of what is in a slice now."""
        names = [stat.path for stat in self.store.walk("") if f"_{at(slice_)}." in stat.path]
        base = next((name for name in names if name.startswith(f"{group}_")), None)
        logs = [name for name in names if name.startswith(f".{group}_")]
        operation = CompactionOperation(str(at(slice_)), logs, base, group, "", metrics={})
        self._event(f"{at(time)}.compaction.requested", encode_compaction_plan(CompactionPlanRecord((operation,))))

    def commit(
        self,
        time: int,
        *paths: str,
        action: str = "deltacommit",
        replaced: Iterable[str] = (),
        schema: str = AVRO,
        completed: int | None = None,
    ) -> None:
        """A commit that names these files. completed: when it was completed, if not at once."""
        stats = [
            {"fileId": path.lstrip(".").partition("_")[0], "path": path, "fileSizeInBytes": 1, "numWrites": 1}
            for path in paths
        ]
        done = {"partitionToWriteStats": {"": stats} if stats else {}, "extraMetadata": {"schema": schema}}
        more = {"partitionToReplaceFileIds": {"": list(replaced)}} if action == "replacecommit" else {}
        self.begin(time, action)
        self._event(f"{at(time)}.{action}", json.dumps(done | more, indent=2).encode())
        self.completed[at(time)] = at(time + 1 if completed is None else completed)

    def forget(self, *times: int) -> None:
        """The files of instants leave the timeline: they were archived, or rolled back."""
        for stat in self.store.list(".hoodie"):
            if any(stat.path.startswith(f".hoodie/{at(time)}.") for time in times):
                self.store.delete(stat.path)

    def upgrade(self) -> None:
        """What an upgrade to version 9 does, after its compaction: the files of instants get their completion times."""
        for stat in self.store.list(".hoodie"):
            instant, _, rest = stat.path.removeprefix(".hoodie/").partition(".")
            content = self.store.read(stat.path)
            if instant.isdigit() and content is not None:
                if "." not in rest and rest != "inflight":
                    instant += f"_{self.completed[InstantTime(instant)]}"
                self.store.put(f".hoodie/timeline/{instant}.{rest}", content)
                self.store.delete(stat.path)
        said = decode_table(self.store.read(".hoodie/hoodie.properties") or b"", "")
        self.store.delete(".hoodie/hoodie.properties")
        changes = {
            "hoodie.table.version": "9", "hoodie.timeline.layout.version": "2", "hoodie.table.initial.version": "6"
        }  # fmt: skip
        self.store.put(".hoodie/hoodie.properties", encode_table(said | changes))

    def _event(self, name: str, content: bytes = b"") -> None:
        self.store.put(f".hoodie/{name}", content)

"""A table in which Hudi's writer and ours take turns, and what it has to show to each reader."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from crdt_mor import Table
from tests.inside import look_for_hudi
from tests.interop.readers import HudiSpark, Rows, hudi_rs, ours

SCHEMA = pa.schema([
    pa.field("id", pa.string(), False), ("n", pa.int64()), ("v", pa.string()), pa.field("p", pa.string(), False),
])  # fmt: skip
BUCKETS = 2
KEYS = 6

Place = tuple[str, str]
"""The partition and the id of a row."""

Said = dict[Place, tuple[int, str]]
"""Columns `n` and `v` of each row."""

SESSION = (
    "spark.sql.shuffle.partitions=1", "hoodie.metadata.enable=false", "hoodie.embed.timeline.server=false",
    "hoodie.write.markers.type=DIRECT",
    *(f"hoodie.{step}.shuffle.parallelism=1" for step in ("insert", "upsert", "delete", "bulkinsert")),
)  # fmt: skip
"""Settings of Hudi's writers. All but the metadata table's change nothing of what is written."""


@dataclass(frozen=True)
class Kind:
    """A table that takes part: who created it, and what is declared."""

    is_hudis: bool
    is_partitioned: bool
    ordering: str | None = None

    @property
    def orders_by_our_clock(self) -> bool:
        """Whether Hudi's `MERGE INTO` and data source refuse the table unless it is handed over."""
        return not self.is_hudis and self.ordering is None

    @property
    def partitions(self) -> tuple[str, ...]:
        return ("mon", "tue") if self.is_partitioned else ("-",)


KINDS = {
    "ours": Kind(False, False),
    "ours, partitions": Kind(False, True),
    "ours, ordering": Kind(False, True, "n"),
    "hudis": Kind(True, False),
    "hudis, partitions": Kind(True, True),
    "hudis, ordering": Kind(True, True, "n"),
}


class InTurn:
    """A table, what it has to show, and what was done to it."""

    def __init__(self, spark: HudiSpark, root: Path, seed: int, kind: str) -> None:
        self.spark, self.root, self.seed = spark, root, seed
        self.kind, self.kind_name = KINDS[kind], kind
        self.chance = random.Random(f"{seed} {kind}")
        self.rows: Said = {}
        self.moments: list[tuple[str, Said]] = []
        """Moments to restore to, and what the table showed then."""
        self.steps: list[str] = []
        self.done: Counter[str] = Counter()
        self.count = 0
        self.has_parts = False
        """Whether log files may hold parts of rows, which a `MERGE INTO` of Hudi's has updated."""
        self.name = root.name
        for setting in SESSION:
            spark.sql(f"set {setting}")
        (self._created_by_hudi if self.kind.is_hudis else self._created_by_us)()

    def _created_by_us(self) -> None:
        key, by = (["id", "p"], ["p"]) if self.kind.is_partitioned else (["id"], [])
        self.table = Table.create(
            self.root,
            SCHEMA,
            key=key,
            partition_by=by,
            name=self.name,
            buckets=BUCKETS,
            ordering=self.kind.ordering,
            hive_style=True,
        )
        self.spark.sql(f"create table {self.name} using hudi location '{self.root}'")

    def _created_by_hudi(self) -> None:
        """An ordinary bucket table: its file groups have ids that Hudi has made up."""
        by = "partitioned by (p)" if self.kind.is_partitioned else ""
        said = {
            "type": "mor", "primaryKey": "id", "hoodie.index.type": "BUCKET", "hoodie.metadata.enable": "false",
            "hoodie.bucket.index.num.buckets": str(BUCKETS), "hoodie.table.timeline.timezone": "UTC",
            **({"preCombineField": self.kind.ordering} if self.kind.ordering else {}),
        }  # fmt: skip
        properties = ", ".join(f"{name}='{value}'" for name, value in said.items())
        columns = "id string, n bigint, v string, p string"
        self.spark.sql(
            f"create table {self.name} ({columns}) using hudi {by} tblproperties ({properties}) location '{self.root}'"
        )
        self.rows = self._batch(6)
        self.spark.sql(f"insert into {self.name} {self._selected(self.rows)}")
        with (self.root / ".hoodie/hoodie.properties").open("a") as settings:
            settings.write(f"hoodie.bucket.index.num.buckets={BUCKETS}\n")  # which Hudi does not store
        (self.root / ".hoodie/.hoodie.properties.crc").unlink(missing_ok=True)  # Hadoop's, of the file before
        self.table = Table(self.root)

    def look(self) -> None:
        """All readers show the rows."""
        look_for_hudi(self.table)
        found = ours(self.table)
        assert self._said(found) == self.rows, f"ours\n{self._difference(found)}"
        opened = ours(Table(self.root))
        others = {"opened": opened, "Spark": self.spark.read(self.root), "hudi-rs": hudi_rs(self.root)}
        for reader, rows in others.items():
            assert self._said(rows) == self.rows, f"{reader}\n{self._difference(rows)}"
            assert rows == found, f"{reader}: rows have other times or keys\n{rows}\n{found}\n{self.story}"

    @staticmethod
    def _said(rows: Rows) -> Said:
        return {(str(row["p"]), str(row["id"])): (row["n"], row["v"]) for row in rows.values()}  # type: ignore[misc]

    def _difference(self, rows: Rows) -> str:
        said = self._said(rows)
        places = sorted({*said, *self.rows})
        lines = [f"  {p}: shown={said.get(p)} is={self.rows.get(p)}" for p in places if said.get(p) != self.rows.get(p)]
        return "\n".join([*lines, self.story])

    @property
    def story(self) -> str:
        return f"seed={self.seed} kind={self.kind_name!r} steps={', '.join(self.steps)}"

    # --- rows -----------------------------------------------------------------------------------------------------

    def _batch(self, most: int = 3, partition: str | None = None) -> Said:
        chance = self.chance
        places = [(p, f"k{number}") for p in self.kind.partitions for number in range(KEYS)]
        places = [place for place in places if partition in (None, place[0])]
        self.count += 1
        return dict.fromkeys(chance.sample(places, chance.randint(1, most)), (self.count, f"v{self.count}"))

    @staticmethod
    def _arrow(said: Said) -> pa.Table:
        columns = zip(*((key, n, v, p) for (p, key), (n, v) in said.items()), strict=True)
        return pa.table([pa.array(column) for column in columns], schema=SCHEMA)

    @staticmethod
    def _selected(said: Said, *, without_partition: bool = False) -> str:
        def line(place: Place, row: tuple[int, str]) -> str:
            tail = "" if without_partition else f", '{place[0]}' as p"
            return f"select '{place[1]}' as id, {row[0]}L as n, '{row[1]}' as v{tail}"

        return " union all ".join(line(*item) for item in said.items())

    def _partition(self) -> str:
        return self.chance.choice(self.kind.partitions)

    def _only(self, partition: str) -> Said:
        return {place: row for place, row in self.rows.items() if place[0] == partition}

    def _without(self, *partitions: str) -> Said:
        return {place: row for place, row in self.rows.items() if place[0] not in partitions}

"""Random histories in which Hudi's own Spark writer and ours take turns, with all that either of them can do.

    PYTHONPATH=. python -m tests.interop.turns --histories 40 --seed 1
    PYTHONPATH=. python -m tests.interop.turns --histories 40 --seed 1 --deaths

A history is drawn from its seed: the kind of the table, and a step at a time. After each step Hudi's Spark reader,
hudi-rs and we have to show what a dictionary shows to which the same was done. What is refused has to be refused by
name, in the words that the documentation has, and its way out has to work. A history takes a quarter of a minute.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from crdt_mor import CrdtMorError, InvalidInputError, SnapshotExpiredError, Table
from crdt_mor.errors import UnsupportedFeatureError
from tests.inside import look_for_hudi
from tests.interop.made_by_hudi import data_source, run_compaction
from tests.interop.readers import HudiSpark, Refused
from tests.interop.turn_tables import BUCKETS, KEYS, KINDS, InTurn, Said

OURS = {
    "upsert": 5, "delete": 3, "update": 2, "overwrite": 1, "overwrite partitions": 1, "delete partitions": 1,
    "compact": 3, "compact logs": 1, "clean": 1, "archive": 1, "restore": 2, "maintain": 1,
}  # fmt: skip
HUDIS = {
    "INSERT": 4, "UPDATE": 3, "DELETE": 3, "MERGE INTO": 3, "INSERT OVERWRITE": 2, "INSERT OVERWRITE TABLE": 1,
    "DROP PARTITION": 2, "data source": 2, "compaction": 2, "cleaning": 1, "archiving": 1, "metadata table": 1,
}  # fmt: skip
AFTER_A_HANDOVER = ("MERGE INTO", "data source")
UPDATE_ALL = "update set *"
UPDATE_SOME = "update set n = s.n, v = s.v"
NEEDS_PARTITIONS = ("overwrite partitions", "delete partitions", "INSERT OVERWRITE", "DROP PARTITION")


class Turns(InTurn):
    """The steps of a history."""

    # --- steps ----------------------------------------------------------------------------------------------------

    def run(self, turns: int) -> None:
        """So many turns: some steps of Hudi's, and some of ours."""
        self.step("upsert")
        for _ in range(turns):
            for _ in range(self.chance.randint(1, 2)):
                self.step(self._drawn(HUDIS))
            for _ in range(self.chance.randint(1, 2)):
                self.step(self._drawn(OURS))
        self.step("compact")
        self.step("clustering")

    def run_each(self) -> dict[str, str]:
        """Each statement of Hudi's once, and one of ours after each: what the page has to say of it."""
        self.step("upsert")
        names = self._possible(HUDIS)
        self.chance.shuffle(names)
        for name in names:
            self.step(name)
            self.step(self._drawn(OURS))
        return {name: "equal" if self._is_written_so(name) else "once handed over, equal" for name in names}

    def _is_written_so(self, name: str) -> bool:
        return not (name in AFTER_A_HANDOVER and self.kind.orders_by_our_clock)

    def _possible(self, weights: dict[str, int]) -> list[str]:
        return [name for name in weights if self.kind.is_partitioned or name not in NEEDS_PARTITIONS]

    def _drawn(self, weights: dict[str, int]) -> str:
        names = self._possible(weights)
        return self.chance.choices(names, [weights[name] for name in names])[0]

    def step(self, name: str) -> None:
        """One step, and what all readers show after it."""
        self.steps.append(name)
        if name in OURS:
            self._our_turn(name)
        elif self._is_written_so(name):
            self._hudis_turn(name)
        else:
            self._handed_over(name)
        self.look()
        self.done[name] += 1

    def _fold_parts(self) -> None:
        """Let Hudi compact the parts of rows that a `MERGE INTO` of its own has left in log files.

        Its readers fail on such a log file where a row is deleted and inserted again above it.
        """
        if self.has_parts:
            self._sql_compaction()
            self.has_parts = False

    def _our_turn(self, name: str) -> None:
        if self.chance.random() < 0.3:
            self.table = Table(self.root)
        self._fold_parts()
        look_for_hudi(self.table)
        getattr(self, "_" + name.replace(" ", "_"))()
        if name not in ("clean", "archive", "maintain"):
            self.moments.append((self.table.scan().as_of, dict(self.rows)))

    def _hudis_turn(self, name: str) -> None:
        self._fold_parts()
        getattr(self, "_sql_" + name.lower().replace(" ", "_"))(*([self._batch()] if name in WITH_ROWS else []))

    def _handed_over(self, name: str) -> None:
        """Hudi refuses the statement until the table was handed over, and writes it then."""
        before, timeline = dict(self.rows), self.root / ".hoodie" / "timeline"
        there = {*timeline.iterdir()}
        self._require("_hoodie_commit_time", self._refused(lambda: self._hudis_turn(name), Refused))
        self.rows = before
        for file in {*timeline.iterdir()} - there:  # of an instant that Hudi could not roll back after one of ours
            file.unlink()
        self.look()
        self.table.maintenance.handover()
        self.look()
        self._require("takeback", self._refused(self._upsert, InvalidInputError))
        self._hudis_turn(name)
        self.look()
        self._hudis_turn(self._drawn({more: weight for more, weight in HUDIS.items() if more != "metadata table"}))
        self.look()
        self.table.maintenance.takeback()

    def _refused(self, use: Callable[[], object], *kinds: type[Exception]) -> str:
        """What an error of one of these kinds says, or nothing."""
        try:
            use()
        except kinds as refused:
            return str(refused)
        return ""

    def _require(self, words: str, said: str) -> None:
        """A refusal has to say this."""
        assert re.search(words, said), f"{words!r} is not what it says: {said!r}\n{self.story}"
        self.steps.append(f"(refused: {said[:70]})")

    # --- ours -----------------------------------------------------------------------------------------------------

    def _upsert(self) -> None:
        batch = self._batch()
        self.table.upsert(self._arrow(batch))
        self.rows |= batch

    def _delete(self) -> None:
        batch = self._batch()
        self.table.delete(self._arrow(batch).select(["id", "p", *([self.kind.ordering] if self.kind.ordering else [])]))
        self.rows = {place: row for place, row in self.rows.items() if place not in batch}

    def _update(self) -> None:
        key = f"k{self.chance.randrange(KEYS)}"
        self.count += 1
        self.table.update({"n": pl.lit(self.count), "v": pl.lit(f"v{self.count}")}, pl.col("id") == key)
        self.rows |= {place: (self.count, f"v{self.count}") for place in self.rows if place[1] == key}

    def _overwrite(self) -> None:
        self.rows = self._batch()
        self.table.overwrite(self._arrow(self.rows))

    def _overwrite_partitions(self) -> None:
        batch = self._batch()
        self.table.overwrite(self._arrow(batch), partitions="dynamic")
        self.rows = self._without(*{place[0] for place in batch}) | batch

    def _delete_partitions(self) -> None:
        partition = self._partition()
        self.table.delete_partitions([partition])
        self.rows = self._without(partition)

    def _compact(self) -> None:
        self.table.maintenance.compact()

    def _compact_logs(self) -> None:
        self.table.maintenance.compact(logs_only=True)

    def _clean(self) -> None:
        self.table.maintenance.clean(commits=self.chance.randint(1, 3), readers=timedelta(0))

    def _archive(self) -> None:
        keep = self.chance.randint(1, 4)
        refused = self._refused(lambda: self.table.maintenance.archive(keep_commits=keep), UnsupportedFeatureError)
        if refused:
            self._require("Hudi's writers have archived instants", refused)

    def _maintain(self) -> None:
        done = self.table.maintenance.maintain(keep=timedelta(0), keep_commits=self.chance.randint(1, 3))
        assert done.ok, f"{done}\n{self.story}"

    def _restore(self) -> None:
        """To a moment after a step of ours; where it is refused, to later ones, which the error says."""
        for to, said in self.moments[-self.chance.randint(1, 4) :]:
            refused = self._refused(
                partial(self.table.maintenance.restore, to), SnapshotExpiredError, UnsupportedFeatureError
            )
            if not refused:
                self.rows = dict(said)
                self.moments = [(moment, rows) for moment, rows in self.moments if moment <= to]
                return
            self._require("a later (moment|one)|history was cut here", refused)
            self.look()

    # --- Hudi's ---------------------------------------------------------------------------------------------------

    def _sql_insert(self, batch: Said) -> None:
        self.spark.sql(f"insert into {self.name} {self._selected(batch)}")
        self.rows |= batch

    def _sql_update(self) -> None:
        key = f"k{self.chance.randrange(KEYS)}"
        self.count += 1
        self.spark.sql(f"update {self.name} set n = {self.count}L, v = 'v{self.count}' where id = '{key}'")
        self.rows |= {place: (self.count, f"v{self.count}") for place in self.rows if place[1] == key}

    def _sql_delete(self) -> None:
        keys = self.chance.sample(range(KEYS), 2)
        partition = self._partition()
        self.spark.sql(f"delete from {self.name} where p = '{partition}' and id in ('k{keys[0]}', 'k{keys[1]}')")
        gone = {(partition, f"k{key}") for key in keys}
        self.rows = {place: row for place, row in self.rows.items() if place not in gone}

    def _sql_merge_into(self, batch: Said) -> None:
        """Upserts, or what is done to rows that are there alone.

        With a bucket index Hudi does it to others, too, once their bucket has a file group: it writes the part of a row
        that was never there, and deletes what it should insert.
        """
        on = "t.id = s.id and t.p = s.p" if self.kind.is_partitioned else "t.id = s.id"
        there = {place: row for place, row in batch.items() if place in self.rows}
        alone = [UPDATE_SOME, "delete"] if there else []
        then = self.chance.choice([f"{UPDATE_ALL} when not matched then insert *", *alone])
        self.has_parts = then == UPDATE_SOME
        said = batch if UPDATE_ALL in then else there
        self.spark.sql(f"merge into {self.name} t using ({self._selected(said)}) s on {on} when matched then {then}")
        gone = there if then == "delete" else {}
        self.rows = {place: row for place, row in (self.rows | said).items() if place not in gone}

    def _sql_insert_overwrite(self) -> None:
        partition = self._partition()
        batch = self._batch(partition=partition)
        rows = self._selected(batch, without_partition=True)
        self.spark.sql(f"insert overwrite table {self.name} partition (p = '{partition}') {rows}")
        self.rows = self._without(partition) | batch

    def _sql_insert_overwrite_table(self, batch: Said) -> None:
        self.spark.sql(f"insert overwrite table {self.name} {self._selected(batch)}")
        self.rows = batch

    def _sql_drop_partition(self) -> None:
        partition = self._partition()
        if not self._only(partition):
            return  # Hudi refuses a partition that is not there
        self.spark.sql(f"alter table {self.name} drop partition (p = '{partition}')")
        self.rows = self._without(partition)

    def _sql_data_source(self, batch: Said) -> None:
        file = self.root.with_name(f"{self.name}.parquet")
        pq.write_table(self._arrow(batch), file)
        parted = {
            "hoodie.datasource.write.partitionpath.field": "p",
            "hoodie.datasource.write.hive_style_partitioning": "true",
        }
        key = "id,p" if self.kind.is_partitioned and not self.kind.is_hudis else "id"
        options = data_source(self.name, key, BUCKETS) | (parted if self.kind.is_partitioned else {})
        self.spark.ask(upsert=str(self.root), rows=str(file), options=options)
        self.rows |= batch

    def _sql_compaction(self) -> None:
        self.spark.sql(run_compaction(self.name))

    def _sql_cleaning(self) -> None:
        retained = self.chance.choice(["retain_commits => 1", "file_versions_retained => 1"])
        policy = "KEEP_LATEST_COMMITS" if "commits" in retained else "KEEP_LATEST_FILE_VERSIONS"
        self._call("run_clean", f"table => '{self.name}', clean_policy => '{policy}', {retained}")

    def _sql_archiving(self) -> None:
        """The table is compacted before, by Hudi where it is handed over.

        hudi-rs loses rows of archived commits whose file groups have logs alone. Where a restore stands in the
        timeline, Hudi cleans before as well: its Spark reader brings rows back otherwise, as in a table of its own.
        """
        if self.table.inspect.handed_over():
            self._sql_compaction()
        else:
            self.table.maintenance.compact()
        if any((self.root / ".hoodie/timeline").glob("*.restore")):
            cleaned = "clean_policy => 'KEEP_LATEST_FILE_VERSIONS', file_versions_retained => 1"
            self._call("run_clean", f"table => '{self.name}', {cleaned}")
        counts = "min_commits => 2, max_commits => 3, retain_commits => 1"
        self._call("archive_commits", f"table => '{self.name}', {counts}, enable_metadata => false")

    def _call(self, procedure: str, arguments: str) -> None:
        self.spark.sql(f"call {procedure}({arguments})")

    def _sql_metadata_table(self) -> None:
        """A statement of Hudi's makes a metadata table. Our writers are refused until it is dropped."""
        self.spark.sql("set hoodie.metadata.enable=true")
        self._sql_insert(self._batch())
        self.spark.sql("set hoodie.metadata.enable=false")
        look_for_hudi(self.table)
        self._require("drop_metadata_table", self._refused(self._upsert, InvalidInputError))
        self.table.maintenance.drop_metadata_table()

    def _sql_clustering(self) -> None:
        """Hudi's executor refuses the layout of a bucket index, and writing goes on."""
        arguments = f"table => '{self.name}', op => 'scheduleAndExecute'"
        said = self._refused(lambda: self._call("run_clustering", arguments), Refused)
        if self.rows or said:  # else there is nothing to cluster
            self._require("not compatible with table layout", said)
        self.look()
        self._upsert()


WITH_ROWS = ("INSERT", "MERGE INTO", "INSERT OVERWRITE TABLE", "data source")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Run histories, print what each was, and fail where one is not what it has to be."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.turns", description=str(__doc__).splitlines()[0])
    parser.add_argument("--histories", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1, help="of the first history")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--deaths", action="store_true", help="each turn begins with a death of ours, or an open plan")
    asked = parser.parse_args(arguments)
    from tests.interop.dying_turns import DyingTurns

    kind: type[Turns] = DyingTurns if asked.deaths else Turns
    failed = 0
    done: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        spark = HudiSpark(work)
        for seed in range(asked.seed, asked.seed + asked.histories):
            history = kind(spark, work / f"turns_{seed}", seed, [*KINDS][seed % len(KINDS)])
            start = time.monotonic()
            try:
                history.run(asked.turns)
            except (AssertionError, CrdtMorError, Refused) as wrong:  # the other histories are run all the same
                failed += 1
                frames = "".join(traceback.format_tb(wrong.__traceback__)[-3:])
                say(f"FAILED: {history.story}\n{type(wrong).__name__}: {str(wrong)[:2000]}\n{frames}")
                spark.close()
                spark = HudiSpark(work)  # a statement may have ended its Java
            else:
                say(f"equal: {history.story} seconds={time.monotonic() - start:.0f}")
            done += history.done
        spark.close()
    say(f"steps: {', '.join(f'{name} {count}' for name, count in sorted(done.items()))}")
    say(f"histories that failed: {failed} of {asked.histories}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

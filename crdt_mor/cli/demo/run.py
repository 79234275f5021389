"""A run of the demo: create, run four processes, compact the rest, check, draw, maintain.

Processes are spawned, because a fork shares threads and locks of libraries.
"""

from __future__ import annotations

import multiprocessing
import queue
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from multiprocessing.process import BaseProcess

import polars as pl

import crdt_mor as mor
from crdt_mor.cli.demo import journal, lanes, overlaps, picture, workers
from crdt_mor.cli.demo.check import Claim, check, check_after
from crdt_mor.cli.demo.overlaps import Compaction, Overlaps
from crdt_mor.cli.demo.place import Place
from crdt_mor.cli.demo.progress import Progress
from crdt_mor.cli.demo.story import KEY, PARTITION, Story, flights
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.model.policies import words_of_bytes

WRITERS = ("ingest", "encrypt", "backfill")
POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Tidied:
    done: tuple[str, ...]
    ok: bool
    live_bytes: int
    files_before: int
    bytes_before: int
    files_after: int
    bytes_after: int

    def claim(self, times_live: int) -> Claim:
        live, after = words_of_bytes(self.live_bytes), words_of_bytes(self.bytes_after)
        return Claim(
            f"what is left is at most {times_live} times the live rows",
            self.ok and self.bytes_after <= times_live * self.live_bytes,
            f"{live} live, {after} in {self.files_after:,} files; before maintain "
            f"{words_of_bytes(self.bytes_before)} in {self.files_before:,} files",
        )


@dataclass(frozen=True)
class Result:
    place: Place
    numbers: Overlaps
    aborts: int
    rows: int
    claims: tuple[Claim, ...]
    whole: lanes.Scene
    near: lanes.Scene
    tidied: Tidied

    @property
    def seconds(self) -> float:
        return self.whole.end

    @property
    def holds(self) -> bool:
        return self.aborts == 0 and all(claim.holds for claim in self.claims)

    def document(self) -> dict[str, object]:
        return {
            "holds": self.holds,
            "table": self.place.uri,
            "picture": str(self.place.picture),
            **asdict(self.numbers),
            "aborts": self.aborts,
            "rows": self.rows,
            "seconds": round(self.seconds, 1),
            "claims": [asdict(claim) for claim in self.claims],
            "maintained": asdict(self.tidied),
        }


class ProcessFailedError(mor.CrdtMorError):
    """A process of the demo failed."""


def run(place: Place, story: Story, progress: Progress, say: Callable[[str], None]) -> Result:
    raw = flights(story)
    place.journal.mkdir(parents=True)
    with warnings.catch_warnings():
        # the key contains the hour, and so the month
        warnings.simplefilter("ignore", mor.errors.PartitionNotInKeyWarning)
        table = mor.Table.create(
            place.uri, raw.to_arrow().schema, key=KEY, partition_by=PARTITION, merge="partial_update/1",
            storage_options=place.options,
        )  # fmt: skip
    table.set_properties({"crdt_mor.maintain": "off"})  # only the fourth process compacts
    secret = SystemEnvironment().nonce().encode()
    with progress:
        middle = _let_loose(place, story, secret, table, progress)
    say("all have committed; the last compaction, then the checks")
    _compact_all(table)
    entries = journal.read(place.journal)
    compactions, aborts = _services(table, len(entries))
    claims = check(table, story, raw, entries, secret, *middle)
    numbers = overlaps.count(entries, compactions)
    whole, near = lanes.scene(entries, compactions), lanes.closeup(entries, compactions)
    place.picture.write_text(_drawn(numbers, aborts, whole, near))
    if all(claim.holds for claim in claims):
        shutil.rmtree(place.journal)  # only kept for failures
    say("the table's history has been checked: maintain may free it")
    before = table.scan().to_polars()
    tidied = _tidy(table, place)
    claims = (*claims, check_after(table, before), tidied.claim(story.times_live))
    return Result(place, numbers, aborts, table.scan().count(), claims, whole, near, tidied)


def _let_loose(
    place: Place, story: Story, secret: bytes, table: mor.Table, progress: Progress
) -> tuple[pl.DataFrame, str]:
    context = multiprocessing.get_context("spawn")
    channel: multiprocessing.Queue[workers.Message] = context.Queue()
    stop = context.Event()
    processes = {
        name: context.Process(
            target=workers.work,
            args=(workers.Desk(name, place, story, secret if name == "encrypt" else b"", channel, stop),),
            name=name,
            daemon=True,
        )
        for name in (*WRITERS, "compact")
    }
    middle: tuple[pl.DataFrame, str] | None = None
    try:
        for process in processes.values():
            process.start()
        busy = set(processes)
        while busy:
            message = _next(channel, processes, busy)
            progress.show(message)
            if message.kind == "failed":
                raise ProcessFailedError(f"{message.process} failed: {message.text.strip()}")
            if message.kind == "done":
                busy.discard(message.process)
            if not busy & set(WRITERS):
                stop.set()
            if middle is None and progress.days_done >= story.days // 2:
                scan = table.scan()
                middle = scan.to_polars(), scan.as_of
        for process in processes.values():
            process.join()
    finally:
        for process in processes.values():
            if process.is_alive():
                process.terminate()
    assert middle is not None
    return middle


def _next(
    channel: multiprocessing.Queue[workers.Message], processes: Mapping[str, BaseProcess], busy: set[str]
) -> workers.Message:
    while True:
        try:
            return channel.get(timeout=POLL_SECONDS)
        except queue.Empty:
            for name in busy:
                if processes[name].exitcode not in (None, 0):
                    return workers.Message(name, "failed", f"exit code {processes[name].exitcode}")


def _compact_all(table: mor.Table) -> None:
    while set(table.inspect.files()["kind"].to_pylist()) != {"base"}:
        if not table.maintenance.compact():
            raise ProcessFailedError("some log files were not compacted; see `crdt-mor files`")


def _services(table: mor.Table, written: int) -> tuple[list[Compaction], int]:
    timeline = pl.DataFrame(table.inspect.timeline())
    done = timeline.filter(pl.col("state") == "completed")
    compactions = done.filter(pl.col("operation") == "COMPACT").select("requested_at", "completed_at").rows()
    commits = done.filter(pl.col("action") == "deltacommit").height
    assert commits == written, f"{commits} commits in the table, {written} in the journals"
    return [Compaction(*row) for row in compactions], timeline.height - done.height


def _drawn(numbers: Overlaps, aborts: int, whole: lanes.Scene, near: lanes.Scene) -> str:
    title = f"{numbers.commits} commits by three processes, {numbers.overlapping} overlapping: no lock, {aborts} aborts"
    subtitle = (
        f"Flights of 2013, {numbers.shared_rows:,} rows written by more than one process; {numbers.compactions} "
        f"compactions in between, and {numbers.across_compactions} transactions open across one"
    )
    return picture.svg(title, subtitle, whole, near)


def _tidy(table: mor.Table, place: Place) -> Tidied:
    """Maintain without retention: the history was already checked, and no reader is left."""
    files_before, bytes_before = _measured(place)
    table.set_properties({"crdt_mor.readers": "0s", "crdt_mor.archive.commits": "1"})
    done = table.maintenance.maintain(keep=timedelta(0))
    live = sum(table.inspect.files()["bytes"].to_pylist())
    return Tidied(tuple(map(str, done.actions)), done.ok, live, files_before, bytes_before, *_measured(place))


def _measured(place: Place) -> tuple[int, int]:
    sizes = [stat.size for stat in place.objects()]
    return len(sizes), sum(sizes)

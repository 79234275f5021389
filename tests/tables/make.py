"""Makes the tables of one release, and notes what that release read in them.

    PYTHONPATH=. python tests/tables/make.py release-6            writes release-6.tar.xz and .json beside this script
    PYTHONPATH=. python tests/tables/make.py release-6 FOLDER     writes them there

Run it once with the code of a release, never again for one that is kept: `test_old_tables.py` holds every later release
to the answers. To make the tables of an earlier release, put a checkout of it before everything else on PYTHONPATH.

Between them the tables hold everything that a writer of ours can leave on storage: see `docs/format.md`. They are
small, and their times are those of the clock below, whatever the machine's clock says.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa

import crdt_mor as mor
from crdt_mor.store.local import LocalStore

try:
    from crdt_mor.payloads import Counter, LatestBy, ORSet
except ImportError:  # the first release had them elsewhere
    from payloads import Counter, LatestBy, ORSet

HERE = Path(__file__).parent
START_MS = 1_767_225_600_000  # 2026-01-01
SEALED_AT = 4
"""Completions that a value carries before they are sealed into a segment: few, so that a small table has segments."""


class Clock:
    """A clock that moves on by a second whenever it is asked, and ids that are counted."""

    def __init__(self) -> None:
        self.ms = START_MS
        self.ids = 0

    def now_ms(self) -> int:
        self.ms += 1_000
        return self.ms

    def nonce(self) -> str:
        self.ids += 1
        return f"{self.ids:032x}"

    def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)

    @contextmanager
    def every(self, seconds: float, work: Callable[[], None], name: str) -> Iterator[None]:
        """Nothing is done in the background: what the clock says must depend on the writes alone."""
        yield

    def jitter(self) -> float:
        return 0.5

    def process(self) -> Any:
        """The same process on every machine. (Earlier releases had no class for it.)"""
        return SimpleNamespace(program="make.py", host="kept", pid=1)


def pages(uri: str, clock: Clock) -> Iterator[mor.Commit]:
    """Payloads with and without hidden states, in two partitions: all that can be pending, open, given up or sealed."""
    schema = pa.schema([
        ("page", pa.string()), ("day", pa.string()), ("title", pa.string()), ("views", pa.int64()),
        ("tags", pa.list_(pa.string())), ("price", pa.int32()), ("priced_at", pa.timestamp("ms", tz="UTC")),
    ])  # fmt: skip
    merge: dict[str | tuple[str, ...], mor.Payload | str] = {
        "views": Counter(), "tags": ORSet(), ("price", "priced_at"): LatestBy("priced_at"),
    }  # fmt: skip
    table = mor.Table.create(
        uri,
        schema,
        key="page",
        partition_by="day",
        buckets=1,
        merge=merge,
        name="pages",
        opening=mor.Opening(environment=clock, maintain="off"),
    )

    def rows(*given: tuple[str, str, str, int, list[str] | None, int | None]) -> pl.DataFrame:
        columns = [dict(zip(["page", "day", "title", "views", "tags", "price"], row, strict=True)) for row in given]
        frame = pl.DataFrame(columns, schema_overrides={"tags": pl.List(pl.String), "price": pl.Int32})
        at = pl.lit(clock.ms).cast(pl.Datetime("ms", "UTC"))
        return frame.with_columns(priced_at=pl.when(pl.col("price").is_not_null()).then(at))

    def in_german(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(lang=pl.lit("de"))

    def removal(page: str, day: str, *tags: str) -> pl.DataFrame:
        row = {"page": page, "day": day, "title": "removed", "views": 0, "tags": {"add": [], "remove": list(tags)}}
        row |= {"price": None, "priced_at": None}
        kinds: dict[str, Any] = {"price": pl.Int32, "priced_at": pl.Datetime("ms", "UTC")}
        lists = pl.Struct({"add": pl.List(pl.String), "remove": pl.List(pl.String)})
        return pl.DataFrame([row], schema_overrides={**kinds, "tags": lists})

    yield table.append(rows(("a", "mon", "A", 1, ["new"], 10), ("b", "mon", "B", 2, None, None)))
    yield table.upsert(rows(("a", "mon", "A2", 10, ["hot", "é"], 9), ("c", "tue", "C", 3, ["x"], 7)))
    note = said(message="two of three", ticket="é-17")
    yield table.upsert(rows(("c", "tue", "C2", 30, ["y"], None)), token=("nightly", 17), **note)
    late = begun(table)  # completes after two compactions
    yield table.upsert(rows(("a", "mon", "A3", 100, None, 8), ("d", "tue", "D", 4, ["z"], 1)))
    yield table.upsert(removal("a", "mon", "hot"))
    table.maintenance.compact()
    yield table.upsert(in_german(rows(("e", "mon", "E", 5, ["new"], 5))), schema_mode="merge")
    with table.transaction() as both:
        both.delete(pl.DataFrame({"page": ["b"], "day": ["mon"]}))
        both.upsert(in_german(rows(("f", "tue", "F", 6, [], 6))))
    assert both.commit is not None
    yield both.commit
    job = table.jobs.plan("upsert", table.schema, **said(application="backfill"))
    tasks = rows(("a", "mon", "A4", 1000, ["job"], 3)), rows(("a", "mon", "A5", 2000, ["job"], 4))
    receipts = [job.stage(in_german(part), task=number, environment=clock) for number, part in enumerate(tasks)]
    yield table.jobs.complete(job, receipts, **said(message="two tasks"))
    forgotten = table.jobs.plan("upsert", table.schema)
    forgotten.stage(in_german(rows(("x", "mon", "never", 1, None, None))), task=0, environment=clock)
    table.jobs.abandon(forgotten)
    clock.sleep(120)
    begun(table)  # never completes
    yield table.upsert(in_german(rows(("c", "tue", "C3", 300, ["w"], 2))))
    table.maintenance.compact()
    late.upsert(rows(("a", "mon", "late", 7, ["late"], 77), ("d", "tue", "late", 7, None, 77)))
    late.__exit__(None, None, None)
    assert late.commit is not None
    yield late.commit
    cancelled = table.maintenance.plans.schedule()
    assert cancelled is not None
    table.maintenance.plans.cancel(cancelled.barrier)
    yield table.upsert(in_german(rows(("g", "mon", "G", 8, ["g"], 8))))
    assert table.maintenance.plans.schedule() is not None  # stays open
    left = table.jobs.plan("upsert", table.schema)
    left.stage(in_german(rows(("y", "mon", "not yet", 1, None, None))), task=0, environment=clock)
    yield table.upsert(in_german(rows(("a", "mon", "A6", 5000, ["end"], 1))), token=("nightly", 18))


def latest(uri: str, clock: Clock) -> Iterator[mor.Commit]:
    """The default merge, an integer key: a compaction beside a pending write carries deletes."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string()), ("score", pa.float64())])
    table = mor.Table.create(
        uri, schema, key="id", buckets=2, name="latest", opening=mor.Opening(environment=clock, maintain="off")
    )

    def rows(*ids: int, text: str) -> pl.DataFrame:
        return pl.DataFrame({"id": ids, "text": [text] * len(ids), "score": [n / 2 for n in ids]})

    yield table.upsert(rows(1, 2, 3, 4, 5, text="first"))
    late = begun(table)
    yield table.upsert(rows(2, 6, text="second"))
    yield table.delete(keys=[1, 3])
    table.maintenance.compact()
    yield table.delete(keys=[5])
    late.upsert(rows(1, 2, 7, text="late"))
    late.__exit__(None, None, None)
    assert late.commit is not None
    yield late.commit
    begun(table)


def ordering(uri: str, clock: Clock) -> Iterator[mor.Commit]:
    """An ordering column: ordered tombstones, a plain delete, a carry."""
    schema = pa.schema([("sensor", pa.string()), ("at", pa.int64()), ("value", pa.decimal128(9, 2))])
    table = mor.Table.create(
        uri,
        schema,
        key="sensor",
        ordering="at",
        buckets=1,
        name="ordering",
        opening=mor.Opening(environment=clock, maintain="off"),
    )

    def rows(**times: int) -> pl.DataFrame:
        value = pl.Series([n / 4 for n in times.values()]).cast(pl.Decimal(9, 2))
        return pl.DataFrame({"sensor": list(times), "at": list(times.values()), "value": value})

    yield table.upsert(rows(p=5, q=5, r=5, s=5))
    late = begun(table)
    yield table.upsert(rows(p=9, q=3))
    yield table.delete(pl.DataFrame({"sensor": ["r", "s"], "at": [7, 4]}))
    yield table.delete(pl.DataFrame({"sensor": ["q"]}), plain=True)
    table.maintenance.compact()
    late.upsert(rows(p=8, q=1, r=6, s=6))
    late.__exit__(None, None, None)
    assert late.commit is not None
    yield late.commit
    begun(table)


def partial(uri: str, clock: Clock) -> Iterator[mor.Commit]:
    """Partial updates: log blocks of some columns, and a compaction that carries such."""
    schema = pa.schema([("k", pa.string()), ("x", pa.int32()), ("y", pa.date32())])
    merge = mor.PartialUpdate(nulls="keep")
    table = mor.Table.create(
        uri,
        schema,
        key="k",
        buckets=1,
        merge=merge,
        name="partial",
        opening=mor.Opening(environment=clock, maintain="off"),
    )
    day = pl.Series([20_000, 20_001], dtype=pl.Int32).cast(pl.Date)
    yield table.upsert(pl.DataFrame({"k": ["a", "b"], "x": pl.Series([1, 2], dtype=pl.Int32), "y": day}))
    begun(table)
    yield table.upsert(pl.DataFrame({"k": ["a"], "x": pl.Series([10], dtype=pl.Int32)}))
    if hasattr(table, "set_properties"):
        table.set_properties({"owner": "höfe", "retired": ""})
    yield table.upsert(pl.DataFrame({"k": ["b", "c"], "y": day}))
    table.maintenance.compact()


def upkeep(uri: str, clock: Clock) -> Iterator[mor.Commit]:
    """All that services leave: a rollback, cleans, logs compacted alone, an archive, dropped commits, an erasure."""
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    table = mor.Table.create(
        uri, schema, key="id", buckets=1, name="upkeep", opening=mor.Opening(environment=clock, maintain="off")
    )

    def rows(n: int) -> pl.DataFrame:
        return pl.DataFrame({"id": [1, 2, 10 + n % 3], "n": [n, -n, n]})

    def cleaned() -> None:
        table.maintenance.compact()
        clock.sleep(3600)
        table.maintenance.clean(timedelta(0), readers=timedelta(0))

    with _modules(KEPT_VERSIONS=4, EXPIRE_EVERY=2):
        begun(table)
        for n in range(12):
            table.upsert(rows(n), token=(f"writer{n % 2}", n))
        table.maintenance.roll_back(pending(table))
        clock.sleep(120)
        cleaned()
        table.maintenance.maintain(keep=timedelta(0))
        table.maintenance.archive(keep_commits=2)
        for n in range(12, 20):
            table.upsert(rows(n))
        cleaned()
        table.maintenance.archive(keep_commits=2)
        table.upsert(rows(20))
        cleaned()
    yield table.upsert(rows(21))
    yield table.upsert(rows(22))
    table.maintenance.compact(logs_only=True)
    late = begun(table)
    yield table.upsert(rows(23))
    with suppress(mor.errors.ErasureUnfinishedError):
        table.maintenance.erase(keys=[2])
    late.upsert(rows(24))
    late.__exit__(None, None, None)
    assert late.commit is not None
    yield late.commit


def rewritten(uri: str, clock: Clock) -> Iterator[mor.Commit]:
    """All that overwrites, savepoints and restores leave, and two writes that were pending when they came."""
    schema = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64())])
    table = mor.Table.create(
        uri,
        schema,
        key="id",
        partition_by="day",
        buckets=2,
        name="rewritten",
        opening=mor.Opening(environment=clock, maintain="off"),
    )

    def rows(n: int, *days: str) -> pl.DataFrame:
        return pl.DataFrame([{"id": key, "day": day, "n": n + key} for day in days for key in range(4)])

    yield table.upsert(rows(10, "mon", "tue", "wed"), token=("writer", 1))
    table.maintenance.compact()
    yield table.overwrite(rows(20, "mon", "tue"), token=("writer", 2))
    yield table.upsert(rows(30, "thu"))
    yield table.delete_partitions(["mon"])
    saving: Any = table if hasattr(table, "savepoint") else table.maintenance  # earlier releases have it on the table
    saving.savepoint("first", comment="before the others")
    table.upsert(rows(40, "mon").head(2), token=("writer", 3))
    saving.savepoint("second")
    saving.drop_savepoint("second")
    begun(table)
    table.upsert(rows(50, "mon", "thu"), token=("writer", 4))
    table.truncate()
    table.maintenance.restore("first")
    yield table.upsert(rows(60, "fri"), token=("writer", 3))
    begun(table)
    yield table.overwrite(rows(70, "fri").head(1), partitions="dynamic")
    yield table.upsert(rows(80, "fri").tail(1))


def grouped(uri: str, clock: Clock) -> Iterator[mor.Commit]:
    """Writes of several processes in one commit, with tokens and what they say; and a post that nobody has taken."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
    table = mor.Table.create(
        uri, schema, key="id", buckets=2, name="grouped", opening=mor.Opening(environment=clock, maintain="off")
    )

    def rows(*ids: int, text: str) -> pa.Table:
        return pa.table({"id": ids, "text": [text] * len(ids)}, schema)

    yield table.upsert(rows(1, 2, 3, text="first"))
    with _modules(FRESH_MS=1 << 62):  # files bear the time of the machine
        post(table, rows(2, 4, text="one"), token=("other", 1), info={"message": "one"})
        post(table, rows(3, text="").select(["id"]), "DELETE")
        for second, file in enumerate(sorted((Path(uri) / ".hoodie/.crdt_mor/posts").iterdir())):
            os.utime(file, (second, second))
        yield in_a_crowd(table).upsert(rows(2, text="three"), token=("nightly", 1), **said(message="three"))
        yield in_a_crowd(table).upsert(rows(5, text="alone"))
    post(table, rows(6, text="left"))


def widened(uri: str, clock: Clock) -> Iterator[mor.Commit]:
    """Many columns, whose schema is an object of its own; nested fields that grow, so that ids are in the schema."""
    place = pa.struct([("city", pa.string())])
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("place", place), *((f"c{n}", pa.int32()) for n in range(60))]
    )
    table = mor.Table.create(
        uri, schema, key="id", buckets=1, name="widened", opening=mor.Opening(environment=clock, maintain="off")
    )

    def rows(schema: pa.Schema, *ids: int) -> pa.Table:
        row = dict.fromkeys(schema.names, 1) | {"place": {"city": "here", "zip": "z"}, "tags": ["t"]}
        return pa.Table.from_pylist([row | {"id": id_} for id_ in ids], schema)

    yield table.upsert(rows(schema, 1, 2))
    table.maintenance.compact()
    grown = schema.set(1, pa.field("place", pa.struct([*place, ("zip", pa.string())])))
    yield table.upsert(rows(grown.append(pa.field("tags", pa.list_(pa.string()))), 2, 3), schema_mode="merge")
    table.alter(rename={"c0": "first"}, drop=["c1"])
    table.maintenance.compact()
    yield table.upsert(table.scan().to_arrow().slice(0, 1))


TABLES: tuple[Callable[[str, Clock], Iterator[mor.Commit]], ...] = (pages, latest, ordering, partial)
if hasattr(mor.errors, "ErasureUnfinishedError"):  # earlier releases have no upkeep but compaction
    TABLES = (*TABLES, upkeep)
if hasattr(mor.Table, "overwrite"):  # nor do they change their minds
    TABLES = (*TABLES, rewritten)
with suppress(ImportError):  # nor do they commit for one another
    from tests.posting import in_a_crowd, post

    TABLES = (*TABLES, grouped)
if find_spec("crdt_mor.model.field_ids"):  # nor do their fields have ids
    TABLES = (*TABLES, widened)


@contextmanager
def _modules(**constants: int) -> Iterator[None]:
    """Constants of the engine are others for a while, wherever they stand."""
    found = [
        (module, name, getattr(module, name), value)
        for key, module in list(sys.modules.items())
        for name, value in constants.items()
        if key.startswith("crdt_mor") and hasattr(module, name)
    ]
    for module, name, _, value in found:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, before, _ in found:
            setattr(module, name, before)


def pending(table: mor.Table) -> str:
    """The requested time of the only write that is pending."""
    (found,) = [e["requested_at"] for e in table.inspect.timeline().to_pylist() if e["state"] == "pending"]
    return str(found)


def said(**info: str) -> dict[str, Any]:
    """What a commit says of itself; earlier releases kept nothing of it."""
    return {"commit_info": info} if "commit_info" in inspect.signature(mor.Table.upsert).parameters else {}


def begun(table: mor.Table) -> mor.Transaction:
    """A write that is pending until its block is left, which may be never."""
    write = table.transaction(**said(message="not done"))
    write.__enter__()
    return write


def answers(uri: str, commits: list[mor.Commit], clock: Clock) -> dict[str, Any]:
    """What this release reads in a table: at every commit, and between any commit and the last."""
    table = mor.Table(uri, opening=mor.Opening(environment=clock, maintain="off"))
    end = table.scan().checkpoint
    moments = [commit.completed_at for commit in commits]
    return {
        "schema": str(table.schema),
        "version": table.version,
        "scan": plain(table.scan()),
        "stable": plain(table.scan(consistency="stable")),
        "read_optimized": plain(table.scan(consistency="read_optimized")),
        "as_of": {moment: plain(table.scan(as_of=moment)) for moment in moments},
        "end": end,
        "changes": {moment: plain(table.changes(since=moment, until=end)) for moment in moments[1::4]},
        "images": plain(table.changes(since=moments[0], until=end, images=True)),
        "pending": table.inspect.timeline().column("state").to_pylist().count("pending"),
        "open_plans": [plan.barrier for plan in table.maintenance.plans.open()],
    } | ({"history": history(table), "properties": dict(table.properties)} if hasattr(table, "history") else {})


def history(table: mor.Table) -> list[str]:
    """The commits in their order, each as the text of its values by their columns: later releases have more columns."""
    found = table.history().to_pylist(maps_as_pydicts="strict")
    return [json.dumps(row, default=str, ensure_ascii=False) for row in found]


def plain(rows: mor.Scan | mor.Changes) -> list[str]:
    """Each row as the text of its values, sorted: what is read comes in no order."""
    found = rows.to_arrow().to_pylist()
    return sorted(json.dumps(list(row.values()), default=str, ensure_ascii=False) for row in found)


def make(release: str, scratch: Path, target: Path) -> None:
    """One thread works at a time, as the order in which several ask for ids would be that of the machine."""
    for name, module in list(sys.modules.items()):
        if name.startswith("crdt_mor"):
            for constant, value in (("COMPLETIONS_MAX", SEALED_AT), ("THREADS", 1)):
                if hasattr(module, constant):
                    setattr(module, constant, value)
    found = {}
    for table in TABLES:
        clock = Clock()
        LocalStore.now_ms = lambda _, clock=clock: clock.now_ms()  # type: ignore[method-assign,misc]
        uri = str(scratch / table.__name__)
        found[table.__name__] = answers(uri, list(table(uri, clock)), clock)
    with tarfile.open(target / f"{release}.tar.xz", "w:xz", preset=9) as packed:
        for path in sorted(scratch.rglob("*"), key=lambda path: (path.suffix, path.name)):
            if path.is_file() and ".temp" not in path.parts:
                packed.add(path, path.relative_to(scratch), filter=_anonymous)
    (target / f"{release}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _anonymous(file: tarfile.TarInfo) -> tarfile.TarInfo:
    """Nothing of the machine goes into the archive."""
    file.mtime, file.uid, file.gid, file.uname, file.gname = START_MS // 1000, 0, 0, "", ""
    return file


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        make(sys.argv[1], Path(temporary), Path(sys.argv[2]) if len(sys.argv) > 2 else HERE)
        sys.stdout.write(f"{mor.__file__}\n")
        sys.stdout.flush()
        os._exit(0)  # writes that stay pending must stay so, and their heartbeats end with the process

"""Everything that a process does to a table, each as one call that may be made again; the world in which it is made."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from crdt_mor import Opening, Rules, Table
from crdt_mor.errors import TableNotFoundError
from crdt_mor.store import Store
from crdt_mor.testing.clock import SimulatedEnvironment
from tests.crash.media import Disk
from tests.inside import store_of, tail_of
from tests.interop.made_by_hudi import as_hudi_makes_them
from tests.interop.readers import hudi_rs, ours
from tests.posting import in_a_crowd

SCHEMA: Final = pa.schema([("id", pa.string()), ("p", pa.string()), ("n", pa.int64())])
EXPIRY: Final = timedelta(seconds=30)
PAST_EXPIRY_S: Final = 45.0
TOKEN: Final = ("verb", 1)
POLICIES: Final = {
    "crdt_mor.compaction.log_files": "2",
    "crdt_mor.retention": "1s",
    "crdt_mor.readers": "0s",
    "crdt_mor.archive.commits": "1",
}

UNTIL: Final = pa.field("until", pa.timestamp("us", "UTC"))
"""The expiry of rows. Rows without a value never expire."""
EXPIRED: Final = ("gone", "w", 0)
"""A row that expires between the savepoint and the end of a verb."""

Row = tuple[str, str, int]

MEANWHILE: Final[Row] = ("meanwhile", "y", 1)
"""What others write while a process stands still."""
NEXT: Final[Row] = ("next", "y", 9)
"""What the next writer writes."""


def frame(*rows: Row) -> pa.Table:
    return pa.table([*map(list, zip(*rows, strict=True))] if rows else [[], [], []], schema=SCHEMA)


@dataclass(frozen=True)
class State:
    """What a table is to those who look at it. moved: whether its new address takes writes."""

    columns: tuple[str, ...]
    rows: frozenset[tuple[object, ...]]
    savepoints: tuple[str, ...]
    is_handed_over: bool
    moved: bool

    def with_row(self, row: Row) -> State:
        kept = {other for other in self.rows if other[0] != row[0]}
        return State(self.columns, frozenset(kept | {row}), self.savepoints, self.is_handed_over, self.moved)


def shown(table: Table) -> State:
    """What one table shows."""
    data = table.scan().to_arrow()
    data = data.drop_columns([name for name in data.column_names if name == UNTIL.name])
    rows = frozenset(tuple(row.values()) for row in data.to_pylist())
    assert len(rows) == data.num_rows
    saved = tuple(one.name for one in table.maintenance.savepoints())
    if table.config.ttl and "s" in saved:
        past = table.scan(as_of="s", filter="p = 'w'").to_arrow().to_pylist()
        assert [tuple(row.values())[:3] for row in past] == [EXPIRED], f"as of the savepoint: {past}"
    return State(tuple(data.schema.names), rows, saved, table.inspect.handed_over() is not None, False)


@dataclass
class World:
    """A table on a disk, and a disk to which it may move."""

    clock: SimulatedEnvironment = field(default_factory=SimulatedEnvironment)
    disk: Disk = field(init=False)
    there: Disk = field(init=False)
    target: Store | None = None
    """The disk to which it may move, as a process sees it whose operations there fail."""

    def __post_init__(self) -> None:
        self.disk, self.there = Disk(self.clock.now_ms), Disk(self.clock.now_ms)

    def another(self) -> World:
        """A world in which the same has happened."""
        world = World(SimulatedEnvironment(self.clock.now_ms(), "later"))
        world.disk, world.there = self.disk.another(world.clock.now_ms), self.there.another(world.clock.now_ms)
        return world

    def open(self, store: Store | None = None) -> Table:
        """The table, as a process opens it."""
        return Table("t", opening=Opening(store=store or self.disk, environment=self.clock, writer_expiry=EXPIRY))

    def cut(self) -> None:
        """The power goes off."""
        self.disk.cut()
        self.there.cut()

    def moved(self) -> Table | None:
        """The table at its new address, if it takes writes there."""
        try:
            table = Table("there", opening=Opening(store=self.there, environment=self.clock, writer_expiry=EXPIRY))
        except TableNotFoundError:
            return None
        origin = tail_of(table).origin
        return table if origin is not None and origin.is_opened else None

    def newest(self) -> Table:
        """The table where it takes writes."""
        return self.moved() or self.open()

    def state(self) -> State:
        moved, old = self.moved(), self.open()
        saved = shown(old).savepoints
        return replace(shown(moved or old), savepoints=saved, moved=moved is not None)

    def sleep_past_expiry(self) -> None:
        """Time in which no heart beats."""
        tasks, self.clock._tasks = self.clock._tasks, []
        self.clock.sleep(PAST_EXPIRY_S)
        self.clock._tasks = tasks

    def upkeep(self, opened: Callable[[], Table], name: str) -> Table:
        """All upkeep that is due, once the dead have expired; the table after it."""
        self.sleep_past_expiry()
        for _ in range(2):
            table = opened()
            done = table.maintenance.maintain()
            assert done.ok, f"{name}: {done}"
            self.clock.sleep(PAST_EXPIRY_S)
        return table

    def require_sound(self, table: Table, name: str) -> None:
        """Nothing is wrong with a table, and hudi-rs reads what we read."""
        verified = table.verify()
        assert verified.is_sound, f"{name}: {verified.findings}"
        with tempfile.TemporaryDirectory(dir=_memory()) as folder:
            self.lay_out(table, Path(folder))
            theirs = hudi_rs(folder)
            if table.config.ttl:  # it shows expired rows until a compaction
                theirs = {key: row for key, row in theirs.items() if row["id"] != EXPIRED[0]}
            assert theirs == ours(table), f"{name}: hudi-rs reads other rows"

    def lay_out(self, table: Table, folder: Path) -> None:
        """Put the objects of a table into a folder, where Hudi's readers find them."""
        disk = self.disk if table.uri == "t" else self.there
        for path, content in disk.objects().items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@dataclass(frozen=True)
class Verb:
    """The work of a process. prepare: earlier work, after the work that all worlds share.

    is_write: a statement with a token. After an error that reports it, nothing is published.
    is_there: the operations on the disk of the moved table fail.
    is_alone: the verb refuses or drops the writes of others, until it is repeated.
    is_refused_again: a repeated call is refused, and acknowledges nothing.
    expires: a row of the table has expired.
    without: faults without an operation in this verb.
    """

    do: Callable[[World, Table], object]
    prepare: Callable[[Table], object] = lambda table: None
    is_write: bool = False
    is_alone: bool = False
    is_there: bool = False
    is_refused_again: bool = False
    expires: bool = False
    without: frozenset[str] = frozenset()


def _in_block(world: World, table: Table) -> None:
    with table.transaction(token=TOKEN) as block:
        block.upsert(frame(("a", "x", 5), ("d", "y", 5)))
        block.delete(frame(("c", "x", 0)).select(["id", "p"]))


def _by_many(world: World, table: Table) -> None:
    job = table.jobs.plan("upsert", SCHEMA, token=TOKEN)
    receipts = [job.stage(frame(("a", "x", task), (f"t{task}", "y", 1)), task=task, environment=world.clock)
                for task in range(2)]  # fmt: skip
    table.jobs.complete(job, receipts)


def _merge(world: World, table: Table) -> None:
    merge = table.merge(frame(("a", "x", 7), ("d", "y", 7)), token=TOKEN)
    merge.when_matched_update({"n": "target.n + source.n"}).when_not_matched_insert_all().execute()


def _migrate(world: World, table: Table) -> None:
    table.maintenance.migrate("there", buckets=3, store=world.target or world.there)


def _alter(world: World, table: Table) -> None:
    table.alter(rename={"n": "number"}, comment={"number": "how many"})


def _no_savepoint(table: Table) -> None:
    table.maintenance.drop_savepoint("s")


def _made_by_hudi(table: Table) -> None:
    """Hudi has made the table, and what is done to it next is the first that we do there."""
    disk = store_of(table)
    assert isinstance(disk, Disk)
    _no_savepoint(table)
    disk.become(as_hudi_makes_them(disk.objects()))


def created(world: World, store: Store | None = None, *, exist_ok: bool = False, expires: bool = False) -> Table:
    """The table of a world, made by a process."""
    expiry: dict[str, Any] = (
        {"ttl": UNTIL.name, "rules": Rules(default={UNTIL.name: "2100-01-01T00:00:00Z"})} if expires else {}
    )
    return Table.create(
        "t", SCHEMA.append(UNTIL) if expires else SCHEMA, key="id", partition_by="p", buckets=2, exist_ok=exist_ok,
        **expiry, opening=Opening(writer_expiry=EXPIRY, store=store or world.disk, environment=world.clock),
    )  # fmt: skip


NO_DELETES: Final = frozenset({"another user's files"})
"""The fault of deletes, for verbs of a single event: they delete nothing."""

VERBS: Final = {
    "append": Verb(lambda w, t: t.append(frame(("d", "y", 3)), token=TOKEN), is_write=True, without=NO_DELETES),
    "upsert": Verb(
        lambda w, t: t.upsert(frame(("a", "x", 3), ("b", "y", 3)), token=TOKEN), is_write=True, without=NO_DELETES
    ),
    "group post": Verb(
        lambda w, t: in_a_crowd(t).upsert(frame(("a", "x", 3), ("b", "y", 3)), token=TOKEN), is_write=True
    ),
    "delete": Verb(
        lambda w, t: t.delete(frame(("a", "x", 0)).select(["id", "p"]), token=TOKEN), is_write=True, without=NO_DELETES
    ),
    "update": Verb(lambda w, t: t.update({"n": "n + 10"}, "p = 'x'", token=TOKEN), is_write=True, without=NO_DELETES),
    "delete by filter": Verb(
        lambda w, t: t.delete(where="n = 2 AND p = 'x'", token=TOKEN), is_write=True, without=NO_DELETES
    ),
    "merge": Verb(_merge, is_write=True, without=NO_DELETES),
    "move": Verb(lambda w, t: t.move(["a"], partition={"p": "z"}, token=TOKEN), is_write=True, without=NO_DELETES),
    "overwrite": Verb(lambda w, t: t.overwrite(frame(("e", "x", 4)), partitions=["x"], token=TOKEN), is_write=True),
    "transaction": Verb(_in_block, is_write=True),
    "distributed write": Verb(_by_many, is_write=True),
    "compact": Verb(lambda w, t: t.maintenance.compact()),
    "log compaction": Verb(lambda w, t: t.maintenance.compact(log_files_min=2, logs_only=True)),
    "clean": Verb(lambda w, t: t.maintenance.clean(timedelta(0), readers=timedelta(0)), _no_savepoint),
    "archive": Verb(lambda w, t: t.maintenance.archive(keep_commits=1), _no_savepoint),
    "erase": Verb(lambda w, t: t.maintenance.erase(where="id = 'a'"), _no_savepoint),
    "restore": Verb(lambda w, t: t.maintenance.restore("s"), is_alone=True),
    "savepoint": Verb(lambda w, t: t.maintenance.savepoint("t"), is_refused_again=True, without=NO_DELETES),
    "mirror": Verb(lambda w, t: t.mirror("delta"), without=NO_DELETES),
    "migrate": Verb(_migrate, is_alone=True),
    "migrate, where it arrives": Verb(_migrate, is_alone=True, is_there=True),
    "alter": Verb(_alter, is_refused_again=True, without=NO_DELETES),
    "add rules": Verb(lambda w, t: t.add_rules(Rules(not_null="n"))),
    "handover": Verb(lambda w, t: t.maintenance.handover(), is_alone=True),
    "takeback": Verb(lambda w, t: t.maintenance.takeback(), lambda t: t.maintenance.handover(), is_alone=True),
    "maintain": Verb(lambda w, t: t.maintenance.maintain(), _no_savepoint),
    "compact rows that expire": Verb(lambda w, t: t.maintenance.compact(), expires=True),
    "maintain rows that expire": Verb(lambda w, t: t.maintenance.maintain(), expires=True),
    "upsert to a table of Hudi's": Verb(
        lambda w, t: t.upsert(frame(("a", "x", 3), ("b", "y", 3)), token=TOKEN), _made_by_hudi, is_write=True
    ),
    "update of a table of Hudi's": Verb(
        lambda w, t: t.update({"n": "n + 10"}, "p = 'x'", token=TOKEN), _made_by_hudi, is_write=True
    ),
    "compact a table of Hudi's": Verb(lambda w, t: t.maintenance.compact(), _made_by_hudi, without=NO_DELETES),
}
"""What is done to a table, by name."""


@cache
def begun(name: str | None) -> World:
    """The world in which a verb is done: base files, logs over them, history, a savepoint. None: that of all."""
    world, expires = World(), name is not None and VERBS[name].expires
    table = created(world, expires=expires)
    table.set_properties(POLICIES)
    table.upsert(frame(("a", "x", 1), ("b", "y", 1), ("c", "x", 1)))
    if expires:
        soon = datetime.fromtimestamp(world.clock.now_ms() / 1000 + 3, UTC)
        table.upsert(frame(EXPIRED).append_column(UNTIL, pa.array([soon], UNTIL.type)))
    table.maintenance.compact()
    table.upsert(frame(("c", "x", 2)))
    table.maintenance.savepoint("s")
    for number in (2, 3, 4):
        table.upsert(frame(("b", "y", number)))
    if name is not None:
        VERBS[name].prepare(table)
    world.clock.sleep(5)
    return world

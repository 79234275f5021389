"""Tables that are handed over to Hudi's writers: nothing of ours begins, and what Hudi wrote is there afterwards."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, PartialUpdate, Rules, Table
from crdt_mor.format import properties
from crdt_mor.hudi.handover import change_properties
from crdt_mor.log.paths import BACKUP, PROPERTIES
from crdt_mor.model.handover import own_properties
from crdt_mor.model.instant import EPOCH, begin_after, from_ms, tick_after, to_datetime, to_ms
from crdt_mor.model.names import TimelineFileName
from crdt_mor.store import MemoryStore
from crdt_mor.testing import SimulatedEnvironment
from crdt_mor.testing.faults import ProcessDied
from crdt_mor.testing.simulation.hudi_writer import hudi_commits
from tests.inside import session_of, tail_of
from tests.simulation.foreign_commits import SCHEMA, rows
from tests.stores import Dying, ScriptedStore

MODE, ORDERING = "hoodie.record.merge.mode", "hoodie.table.ordering.fields"
BACK = "table.maintenance.takeback(), or crdt-mor takeback"


@pytest.fixture
def clock() -> SimulatedEnvironment:
    return SimulatedEnvironment()


@pytest.fixture
def store(clock: SimulatedEnvironment) -> MemoryStore:
    return MemoryStore(clock.now_ms)


@pytest.fixture
def table(store: MemoryStore, clock: SimulatedEnvironment) -> Table:
    made = Table.create("t", SCHEMA, key="k", buckets=2, opening=Opening(store=store, environment=clock))
    made.upsert(rows("a", "b", "c"))
    made.delete(keys=["b"])
    return made


def said(store: MemoryStore) -> tuple[str | None, str | None]:
    """What Hudi's writers find: the mode and the ordering field."""
    data = store.read(PROPERTIES)
    assert data is not None
    found = properties.decode_table(data, PROPERTIES)
    return found.get(MODE), found.get(ORDERING)


OURS = ("EVENT_TIME_ORDERING", "_hoodie_commit_time")
PLAIN = ("COMMIT_TIME_ORDERING", None)


def refusal(write: Callable[[Table], object], table: Table) -> str:
    """What is said to a write; empty where it is not refused."""
    try:
        write(table)
    except InvalidInputError as error:
        return str(error)
    return ""


def keys(table: Table) -> list[str]:
    return sorted(table.scan().to_arrow()["k"].to_pylist())


def hudi(table: Table, clock: SimulatedEnvironment, *written: str) -> None:
    """A commit of Hudi's, later than all that the table has."""
    clock.sleep(1)
    requested = begin_after(tail_of(table).clock, clock.now_ms())
    hudi_commits(table, rows(*written), requested, tick_after(requested, clock.now_ms()))
    clock.sleep(1)


def test_there_and_back(table: Table, store: MemoryStore, clock: SimulatedEnvironment) -> None:
    before = store.read(PROPERTIES)
    assert said(store) == OURS
    table.maintenance.handover()
    assert said(store) == PLAIN
    assert store.read(BACKUP) == before
    assert set(table.inspect.files()["kind"].to_pylist()) == {"base"}
    table.maintenance.handover()
    hudi(table, clock, "a", "d")
    hudi(table, clock, "e")
    other = Table("t", opening=Opening(store=store, environment=clock))
    assert keys(other) == ["a", "c", "d", "e"], "reading goes on"
    assert other.maintenance.takeback() == 2
    assert said(store) == OURS
    assert before is not None
    assert properties.decode_table(store.read(PROPERTIES) or b"", "p") == properties.decode_table(before, "p")
    assert table.maintenance.takeback() == 0
    table.upsert(rows("f"))
    other.maintenance.compact()
    assert keys(table) == keys(other) == ["a", "c", "d", "e", "f"]


WRITES: dict[str, Callable[[Table], object]] = {
    "upsert": lambda t: t.upsert(rows("z")),
    "append": lambda t: t.append(rows("z")),
    "delete": lambda t: t.delete(keys=["a"]),
    "update": lambda t: t.update({"v": 1}, where="k = 'a'"),
    "overwrite": lambda t: t.overwrite(rows("z")),
    "truncate": lambda t: t.truncate(),
    "transaction": lambda t: t.transaction().__enter__(),
    "jobs.plan": lambda t: t.jobs.plan("upsert", SCHEMA),
    "set_properties": lambda t: t.set_properties({"owner": "ops"}),
    "rules": lambda t: t.add_rules(Rules(not_null=["v"])),
    "alter": lambda t: t.alter(rename={"v": "w"}),
    "savepoint": lambda t: t.maintenance.savepoint("release"),
    "compact": lambda t: t.maintenance.compact(),
    "clean": lambda t: t.maintenance.clean(commits=1),
    "archive": lambda t: t.maintenance.archive(keep_commits=1),
    "restore": lambda t: t.maintenance.restore("first"),
    "erase": lambda t: t.maintenance.erase(keys=["a"]),
    "migrate": lambda t: t.maintenance.migrate("elsewhere", store=MemoryStore()),
}


def test_nothing_begins_meanwhile_also_where_a_process_has_not_seen_it(
    table: Table, store: MemoryStore, clock: SimulatedEnvironment
) -> None:
    table.maintenance.savepoint("first")
    other = Table("t", opening=Opening(store=store, environment=clock))
    other.upsert(rows("c"))  # it has published, and would commit the next write in one event
    table.maintenance.handover()
    since = tail_of(table)
    for opened in (other, Table("t", opening=Opening(store=store, environment=clock)), table):
        for name, write in WRITES.items():
            assert BACK in refusal(write, opened), name
        assert [action.state for action in opened.maintenance.maintain().actions] == ["refused"]
    assert tail_of(table) == since
    assert store.list(".hoodie/.heartbeat") == []
    table.maintenance.takeback()
    other.upsert(rows("z"))
    assert keys(table) == ["a", "c", "z"]


def test_it_is_the_value_that_says_so_whatever_the_properties_say(table: Table, store: MemoryStore) -> None:
    """A process may die between the event and the properties, and its event is what no other can pass."""
    table.maintenance.savepoint("first")
    table.maintenance.handover()
    session = session_of(table)
    session.run(change_properties(own_properties(session.config.merge)))
    since = tail_of(table)
    for name, write in WRITES.items():
        if name != "savepoint":  # which harms nobody
            assert BACK in refusal(write, table), name
    assert tail_of(table) == since
    assert said(store) == OURS
    table.maintenance.handover()
    assert said(store) == PLAIN


def dying(store: MemoryStore, left: int, clock: SimulatedEnvironment) -> Table:
    """The table, as a process opens it that does so many changes and dies."""
    return Table("t", opening=Opening(store=ScriptedStore(store, Dying(at=left + 1)), environment=clock))


@pytest.mark.slow
@pytest.mark.parametrize("call", ["handover", "takeback"])
def test_a_process_that_dies_anywhere_leaves_a_table_that_the_next_one_goes_on_with(
    call: str, clock: SimulatedEnvironment
) -> None:
    died = set()
    for left in range(30):
        store = MemoryStore(clock.now_ms)
        table = Table.create("t", SCHEMA, key="k", buckets=1, opening=Opening(store=store, environment=clock))
        table.upsert(rows("a"))
        table.maintenance.compact()
        if call == "takeback":
            table.maintenance.handover()
            hudi(table, clock, "b")
        try:
            getattr(dying(store, left, clock).maintenance, call)()
        except ProcessDied:
            died.add(left)
        other = Table("t", opening=Opening(store=store, environment=clock))
        assert keys(other) == (["a"] if call == "handover" else ["a", "b"])
        has_event = (tail_of(other).handed_over == EPOCH) is (call == "takeback")
        assert store.read(PROPERTIES) is None or said(store) in (OURS, PLAIN)
        if call == "handover" and not has_event:
            assert said(store) == OURS, "the properties wait for the event"
        elif call == "takeback" and has_event:
            assert said(store) == OURS, "the event waits for the properties"
        else:
            assert BACK in refusal(WRITES["upsert"], other)
        getattr(other.maintenance, call)()
        assert said(store) == (PLAIN if call == "handover" else OURS)
        other.maintenance.takeback()
        other.upsert(rows("z"))
    assert died == set(range(len(died)))
    assert 4 < len(died) < 30


def test_a_handover_that_died_while_it_compacted_goes_on(clock: SimulatedEnvironment) -> None:
    """Its plan is open, or completed and Hudi was not told of it: neither was begun by anybody else."""
    for left in count():
        store = MemoryStore(clock.now_ms)
        table = Table.create("t", SCHEMA, key="k", buckets=1, opening=Opening(store=store, environment=clock))
        table.upsert(rows("a"))
        try:
            dying(store, left, clock).maintenance.handover()
        except ProcessDied:
            other = Table("t", opening=Opening(store=store, environment=clock))
            other.maintenance.handover()
            assert said(store) == PLAIN
            assert keys(other) == ["a"]
            assert set(other.inspect.files()["kind"].to_pylist()) == {"base"}
        else:
            break
    assert left > 8


def test_what_is_under_way_stays_ours(table: Table, clock: SimulatedEnvironment) -> None:
    with table.transaction() as tx:
        tx.upsert(rows("x"))
        with pytest.raises(InvalidInputError, match=r"roll_back, then hand the table over\. pending=\['\d{17}'\]"):
            table.maintenance.handover()
    table.maintenance.handover()
    assert keys(table) == ["a", "c", "x"]


def test_a_table_is_not_taken_back_while_hudi_writes(
    table: Table, store: MemoryStore, clock: SimulatedEnvironment
) -> None:
    table.maintenance.handover()
    instant = from_ms(to_ms(tail_of(table).clock) + 1000)
    folder = session_of(table).publisher.projector.folder
    for state in ("requested", "inflight"):
        store.put(f"{folder}/{TimelineFileName(instant, 'deltacommit', state)}", b"")
    with pytest.raises(InvalidInputError, match=f"unfinished instants.*{instant}"):
        table.maintenance.takeback()
    assert said(store) == PLAIN


def test_what_hudi_has_left_behind_goes_first(table: Table, store: MemoryStore) -> None:
    """A try that Hudi refuses may leave it; Hudi's writers would fail after the table was handed over."""
    instant = from_ms(to_ms(tail_of(table).clock) + 1000)
    left = f"{session_of(table).publisher.projector.folder}/{TimelineFileName(instant, 'deltacommit', 'requested')}"
    store.put(left, b"")
    with pytest.raises(InvalidInputError, match=rf"move the files.*instants=\['{instant}'\]"):
        table.maintenance.handover()
    assert said(store) == OURS
    store.delete(left)
    table.maintenance.handover()
    assert said(store) == PLAIN


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"ordering": "v"}, "no handover is needed"),
        ({"merge": "partial_update/1"}, "cannot run the merge"),
        ({"ordering": "v", "merge": PartialUpdate()}, "cannot run the merge"),
    ],
    ids=["ordering", "partial", "both"],
)
def test_only_a_table_of_the_default_merge_is_handed_over(settings: dict[str, Any], why: str) -> None:
    table = Table.create("t", SCHEMA, key="k", opening=Opening(store=MemoryStore()), **settings)
    for call in (table.maintenance.handover, table.maintenance.takeback):
        with pytest.raises(InvalidInputError, match=why):
            call()


def test_hadoops_checksum_of_the_properties_goes_with_them(fast_path: Path) -> None:
    table = Table.create(fast_path / "t", pa.schema([("k", pa.string())]), key="k")
    checksum = fast_path / "t" / ".hoodie" / ".hoodie.properties.crc"
    checksum.write_bytes(b"crc")
    table.maintenance.handover()
    assert not checksum.exists()
    assert table.maintenance.takeback() == 0


def test_what_sums_a_table_up_says_that_hudis_writers_have_it(
    table: Table, store: MemoryStore, clock: SimulatedEnvironment
) -> None:
    """Whatever is refused later says so; a person who looks first has to find it, too."""
    said = "takes no writes here until maintenance.takeback()"
    assert table.inspect.handed_over() is None
    assert "handed_over" not in repr(table)
    assert said not in table._repr_html_()
    other = Table("t", opening=Opening(store=store, environment=clock))
    table.maintenance.handover()
    since = to_datetime(tail_of(table).handed_over)
    for one in (table, other):
        assert one.inspect.handed_over() == since
        assert f"handed_over='{since:%Y-%m-%d %H:%M:%S} UTC'" in repr(one)
        assert said in one._repr_html_()
    other.maintenance.takeback()
    for one in (table, other):
        assert one.inspect.handed_over() is None
        assert "handed_over" not in repr(one)
        assert said not in one._repr_html_()

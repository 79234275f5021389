"""Erasure of columns: no byte of their values is left in any file, the rows stay, and all other columns with them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Opening, Rules, SnapshotExpiredError, Table
from crdt_mor.errors import ConstraintViolationError, EarlierWritePendingError, ErasureUnfinishedError
from crdt_mor.payloads import Counter, First, Last, LatestBy, Max, ORSet, PartialUpdate
from crdt_mor.testing.faults import InterruptedStore, ProcessDied
from tests.simulated import Simulated
from tests.stores import found_in
from tests.tiers import long, slow

pytestmark = pytest.mark.usefixtures("uncompressed")

ADA, OTHERS = "ada", [f"other-{n}" for n in range(6)]
SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), pa.field("at", pa.int64(), nullable=False), ("email", pa.string()),
     ("phones", pa.list_(pa.string())), ("seen", pa.int64()), ("note", pa.string())]
)  # fmt: skip
MERGES: dict[str, dict[str, Any]] = {
    "latest": {},
    "ordering": {"ordering": "at"},
    "payloads": {"merge": {"seen": Counter()}},
    "partial": {"merge": PartialUpdate()},
    "partial, nulls leave": {"merge": PartialUpdate(nulls="keep")},
    "payloads of theirs": {
        "merge": {"email": Max(), "phones": Last(), "seen": Counter(), ("at", "note"): LatestBy("at")}
    },
    "partial payloads of theirs": {"merge": PartialUpdate(columns={"email": First(), "seen": Counter()})},
}
PERSONAL = ["email", "phones"]
SECRET = "secret-"
each_merge = pytest.mark.parametrize("merge", [slow(name) if name.startswith("partial ") else name for name in MERGES])


class World:
    """A table in memory on a simulated clock, and secrets in the personal columns of one row."""

    def __init__(self, **settings: Any) -> None:
        self.place, self.numbers = Simulated(), count(1)
        self.table = self.place.create(SCHEMA, **{"key": "id", "buckets": 2} | settings)

    def rows(self, *keys: str, day: str = "mon") -> pa.Table:
        return pa.Table.from_pylist([self.row(key, day) for key in keys], SCHEMA)

    def row(self, key: str, day: str) -> dict[str, Any]:
        n = next(self.numbers)
        stem = SECRET if key == ADA else "public-"
        personal = {"email": f"{stem}{n}@mail", "phones": [f"{stem}{n}-phone"]}
        return {"id": key, "day": day, "at": n, **personal, "seen": 1, "note": f"note-{n}"}

    def history(self) -> World:
        """Commits and compactions, with secrets in bases and logs, live and overwritten."""
        for round_ in range(3):
            self.table.upsert(self.rows(ADA, *OTHERS))
            if round_ == 1:
                self.table.maintenance.compact()
                self.table.upsert(self.rows(ADA))
        return self

    def secrets(self) -> list[str]:
        return found_in(self.place.store, SECRET)

    def shown(self, **scan: Any) -> list[dict[str, Any]]:
        return sorted(self.table.scan(**scan).to_arrow().to_pylist(), key=lambda row: (row["id"], row["day"]))


def nulled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, those of the person without the personal columns."""
    return [{**row, **dict.fromkeys(PERSONAL)} if row["id"] == ADA else row for row in rows]


ASKED: dict[str, dict[str, Any]] = {
    "keys": {"keys": [ADA]},
    "frame": {"data": pl.DataFrame({"id": [ADA], "day": ["mon"]})},
    "filter": {"where": pl.col("email").str.starts_with(SECRET)},
}


@pytest.mark.costly
@pytest.mark.parametrize("how", ["keys", slow("frame"), slow("filter")])
@pytest.mark.parametrize("partitions", [{}, {"partition_by": "day"}], ids=["whole", "partitioned"])
@each_merge
def test_no_byte_of_the_values_is_left_and_all_others_stay(merge: str, partitions: dict[str, Any], how: str) -> None:
    world = World(**MERGES[merge], **partitions).history()
    assert len(world.secrets()) > 3
    expected = nulled(world.shown())
    erased = world.table.maintenance.erase(**ASKED[how], columns=PERSONAL)
    assert world.secrets() == []
    assert (erased.rows, len(erased.groups), erased.columns) == (1, 1, tuple(PERSONAL))
    assert "email, phones of 1 rows" in str(erased)
    assert world.shown() == expected
    assert world.table.maintenance.erase(keys=[ADA], columns=PERSONAL).groups == ()
    world.table.upsert(world.rows(*OTHERS))
    world.table.maintenance.compact()
    assert [row["email"] for row in world.shown(filter=pl.col("id") == ADA)] == [None]


@pytest.mark.costly
@pytest.mark.parametrize("merge", [name for name in MERGES if "theirs" not in name])
def test_values_that_only_history_has_go_from_it(merge: str) -> None:
    world = World(**MERGES[merge]).history()
    world.table.update(set={"email": "'gone'", "phones": None}, where=f"id = '{ADA}'")
    world.table.delete(world.rows(OTHERS[0]).select(["id", "day", "at"]))
    world.table.maintenance.compact()
    before = world.shown()
    assert world.secrets()
    assert world.table.maintenance.erase(keys=[ADA, OTHERS[0]], columns="phones").rows == 0
    assert world.shown() == before
    phones = [f"{SECRET}{n}-phone" for n in range(1, 40)]
    assert found_in(world.place.store, *phones) == []
    world.table.maintenance.erase(keys=[ADA], columns="email")
    assert world.secrets() == []


def test_other_file_groups_keep_their_history_and_this_one_refuses_it() -> None:
    world = World(buckets=8)
    first = world.table.upsert(world.rows(ADA, *OTHERS))
    other = next(key for key in OTHERS if not _same_group(world, key))
    before = world.shown(filter=pl.col("id") == other, as_of=first)
    world.table.upsert(world.rows(*OTHERS))
    world.table.maintenance.erase(keys=[ADA], columns=["email"])
    assert world.shown(filter=pl.col("id") == other, as_of=first) == before
    with pytest.raises(SnapshotExpiredError):
        world.shown(filter=pl.col("id") == ADA, as_of=first)


def _same_group(world: World, key: str) -> bool:
    files = world.table.scan(filter=pl.col("id").is_in([ADA, key]), meta=True).to_arrow()["_hoodie_file_name"]
    return len(set(files.to_pylist())) == 1


def test_a_row_of_that_key_in_another_partition_is_another_row() -> None:
    world = World(partition_by="day")
    world.table.upsert(pa.concat_tables([world.rows(ADA), world.rows(ADA, day="tue")]))
    world.table.maintenance.erase(pl.DataFrame({"id": [ADA], "day": ["mon"]}), columns=["email", "phones"])
    assert [row["email"] is None for row in world.shown()] == [True, False]
    world.table.maintenance.erase(keys=[ADA], columns=["email", "phones"])
    assert world.secrets() == []


def test_a_key_without_values_takes_no_history_along() -> None:
    """Another key of its file group has values in a log file, which were taken for its own."""
    world = World(buckets=1)
    first = world.table.upsert(world.rows(*OTHERS))
    world.table.upsert(world.rows(*OTHERS))
    erased = world.table.maintenance.erase(keys=[ADA], columns=PERSONAL)
    assert (erased.rows, erased.groups, erased.files) == (0, (), 0)
    assert len(world.shown(as_of=first)) == len(OTHERS)


def test_an_earlier_write_is_waited_for_where_no_file_holds_a_value_yet() -> None:
    world = World()
    world.table.upsert(world.rows(*OTHERS))
    with world.table.transaction() as tx:
        with pytest.raises(ErasureUnfinishedError, match="may still bring values"):
            world.table.maintenance.erase(keys=[ADA], columns=PERSONAL)
        tx.upsert(world.rows(ADA))
    assert world.secrets()
    assert world.table.maintenance.erase(keys=[ADA], columns=PERSONAL).rows == 1
    assert world.secrets() == []


@each_merge
def test_an_earlier_write_is_waited_for_and_what_it_brings_goes_and_its_other_columns_stay(merge: str) -> None:
    world = World(**MERGES[merge]).history()
    with world.table.transaction() as tx:
        straggler = world.rows(ADA)
        tx.upsert(straggler)
        with pytest.raises(ErasureUnfinishedError, match="may still bring values"):
            world.table.maintenance.erase(keys=[ADA], columns=PERSONAL, wait=timedelta(seconds=1))
        assert [row["email"] is None for row in world.shown(filter=f"id = '{ADA}'")] == [False]
    erased = world.table.maintenance.erase(keys=[ADA], columns=PERSONAL)
    assert erased.rows == 1
    assert world.secrets() == []
    (row,) = world.shown(filter=f"id = '{ADA}'")
    assert (row["note"], row["email"]) == (straggler["note"][0].as_py(), None)


def test_a_value_that_is_written_later_is_a_new_one() -> None:
    world = World().history()
    world.table.maintenance.erase(keys=[ADA], columns=PERSONAL)
    world.table.upsert(world.rows(ADA))
    assert [row["email"] is None for row in world.shown(filter=f"id = '{ADA}'")] == [False]
    world.table.maintenance.erase(keys=[ADA], columns=PERSONAL)
    assert world.secrets() == []


def test_history_says_that_it_was_an_erasure_and_not_of_what() -> None:
    world = World().history()
    world.table.maintenance.erase(keys=[ADA], columns=["email"])
    said = [row for row in world.table.history().to_pylist() if "erasure" in str(row)]
    assert len(said) == 1
    assert "email" not in str(said)
    assert ADA not in str(said)


@pytest.mark.parametrize(
    ("columns", "why", "settings"),
    [
        (["id"], "it identifies rows", {}),
        (["day"], "it identifies rows", {"partition_by": "day"}),
        (["at"], "the versions of a row", {"ordering": "at"}),
        (["at"], "declared without nulls", {}),
        (["note", "phones"], "its payload keeps a state of all writes", {"merge": {"phones": ORSet()}}),
        (["seen"], "another payload keeps a state", {"merge": {"phones": ORSet(), "seen": Counter()}}),
        (["mail"], r"no such columns; is 'email' meant by 'mail'\?\. unknown=\['mail'\]", {}),
        ([], "pass a list of columns", {}),
        ([1], "pass a list of columns", {}),
    ],
)
def test_columns_that_cannot_be_erased_alone_are_refused(columns: Any, why: str, settings: dict[str, Any]) -> None:
    world = World(**settings)
    world.table.upsert(world.rows(ADA))
    version = world.table.version
    with pytest.raises(InvalidInputError, match=why):
        world.table.maintenance.erase(keys=[ADA], columns=columns)
    assert world.table.version == version


def test_a_merged_column_is_empty_after_an_erasure_and_merges_what_comes_later() -> None:
    """What was written before it says nothing any more: a lower value and a later first one are shown."""
    world = World(merge={"email": Max(), "note": First(), "seen": Counter(), ("at", "day"): LatestBy("at")}).history()
    (before,) = world.shown(filter=f"id = '{ADA}'")
    world.table.maintenance.erase(keys=[ADA], columns=["email", "note", "day"])
    assert found_in(world.place.store, SECRET + "1@") == []
    assert world.shown(filter=f"id = '{ADA}'") == [{**before, "email": None, "note": None, "day": None}]
    low = {**world.row(ADA, "tue"), "email": "a@mail", "note": "later", "at": before["at"] - 1}
    world.table.upsert(pa.Table.from_pylist([low], SCHEMA))
    (row,) = world.shown(filter=f"id = '{ADA}'")
    assert (row["email"], row["note"], row["seen"]) == ("a@mail", "later", before["seen"] + 1)
    assert (row["at"], row["day"]) == (before["at"], None)


@pytest.mark.parametrize(
    ("rules", "way"),
    [
        (Rules(not_null=["email"]), r"drop_rules\('not_null email'\)"),
        (Rules(check={"has one": "phones IS NOT NULL"}), r"drop_rules\('check has one'\)"),
    ],
    ids=["not_null", "check"],
)
def test_a_rule_that_wants_a_value_refuses_the_erasure_and_nothing_is_left_of_it(rules: Rules, way: str) -> None:
    world = World(rules=rules).history()
    before = world.shown()
    with pytest.raises(ConstraintViolationError, match=rf"erase the whole rows, without columns=.* {way}") as raised:
        world.table.maintenance.erase(keys=[ADA], columns=PERSONAL)
    assert raised.value.key == {"id": ADA}
    assert world.shown() == before
    assert world.table.inspect.pending().num_rows == 0
    assert world.place.store.list(".hoodie/.crdt_mor/erasures") == []


def test_a_rule_that_refuses_an_erasure_is_said_in_the_names_that_people_see() -> None:
    rows = pa.table({"Nr.": ["a"], "E mail": ["x"]})
    table = Simulated().create(rows.schema, key="Nr.", buckets=1, rules=Rules(not_null=["E mail"]))
    table.upsert(rows)
    with pytest.raises(
        ConstraintViolationError, match=r"\('not_null E mail'\)\. constraint='not_null E mail'"
    ) as raised:
        table.maintenance.erase(keys=["a"], columns=["E mail"])
    assert raised.value.key == {"Nr.": "a"}


def test_of_a_dropped_column_it_is_said_that_the_row_takes_its_bytes_along() -> None:
    world = World().history()
    world.table.alter(drop="email")
    with pytest.raises(InvalidInputError, match="'email' was dropped; erase the rows, without columns=, to remove"):
        world.table.maintenance.erase(keys=[ADA], columns=["email"])


# --- whatever happens meanwhile ---------------------------------------------------------------------------------------


def small(merge: str) -> World:
    world = World(**MERGES[merge], buckets=1)
    world.table.upsert(world.rows(ADA, *OTHERS[:2]))
    world.table.maintenance.compact()
    world.table.upsert(world.rows(ADA, OTHERS[1]))
    return world


@pytest.mark.parametrize(
    ("merge", "after"),
    [
        slow("latest", False),
        slow("ordering", True),
        slow("payloads", False),
        slow("partial", True),
        slow("payloads of theirs", True),
        slow("partial payloads of theirs", False),
    ],
)
def test_an_erasure_that_died_at_any_moment_is_finished_by_the_next(merge: str, after: bool) -> None:
    for at in count(1):
        world = small(merge)
        expected = nulled(world.shown())
        store = InterruptedStore(world.place.store)
        table = Table("simulated", opening=Opening(store=store, environment=world.place.environment))
        store.arm(at, store.die, after=after)
        try:
            table.maintenance.erase(keys=[ADA], columns=PERSONAL)
        except ProcessDied:
            world.table.maintenance.erase(keys=[ADA], columns=PERSONAL, wait=timedelta(hours=1))
            assert world.secrets() == []
            assert world.shown() == expected
            assert world.place.store.list(".hoodie/.crdt_mor/erasures") == []
        else:
            assert at > 10
            return


MEANWHILE: dict[str, Callable[[World, Table], object]] = {
    "another process erases the same": lambda _, other: other.maintenance.erase(
        keys=[ADA], columns=PERSONAL, wait=timedelta(hours=1)
    ),
    "another process erases the row of another": lambda _, other: other.maintenance.erase(
        keys=[OTHERS[0]], wait=timedelta(hours=1)
    ),
    "a compaction": lambda _, other: other.maintenance.compact(),
    "a log compaction": lambda _, other: other.maintenance.compact(logs_only=True),
    "a plan": lambda _, other: other.maintenance.plans.schedule(),
    "a clean": lambda _, other: other.maintenance.clean(keep=timedelta(0)),
    "an update": lambda _, other: other.update(set={"note": "'new'"}, where=f"id = '{ADA}'", wait=timedelta(0)),
}


@pytest.mark.parametrize("meanwhile", [slow(name) for name in MEANWHILE])
@pytest.mark.parametrize("merge", ["latest", "partial", long("payloads of theirs")])
def test_whatever_others_do_at_any_moment_no_value_is_left(merge: str, meanwhile: str) -> None:
    for at in range(1, 400):
        world = small(merge)
        store = InterruptedStore(world.place.store)
        other = Table("simulated", opening=Opening(store=world.place.store, environment=world.place.environment))
        table = Table("simulated", opening=Opening(store=store, environment=world.place.environment))
        happened: list[bool] = []

        def act(
            store: InterruptedStore = store, world: World = world, other: Table = other, done: list[bool] = happened
        ) -> None:
            store.arm(0, None)
            done.append(False)
            with suppress(EarlierWritePendingError):
                MEANWHILE[meanwhile](world, other)
                done.append(True)

        store.arm(at, act)
        with suppress(ErasureUnfinishedError):
            table.maintenance.erase(keys=[ADA], columns=PERSONAL, wait=timedelta(hours=1))
        if not happened:
            assert at > 10
            return
        world.table.maintenance.erase(keys=[ADA], columns=PERSONAL, wait=timedelta(hours=1))
        assert world.secrets() == [], at
        (row,) = world.shown(filter=f"id = '{ADA}'")
        assert (row["email"], row["phones"]) == (None, None)
        assert row["note"] == ("new" if meanwhile == "an update" and happened[-1] else "note-4"), at

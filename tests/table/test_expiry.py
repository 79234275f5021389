"""Rows that expire: a snapshot at time s shows the merged rows that expire after s, whenever anybody compacts.

The judge is a plain fold: the versions of each key in the order of their requested times, then a filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor import InvalidInputError, Opening, PartialUpdate, Rules, StorageUnavailableError, Table, Transaction
from crdt_mor.errors import CheckpointExpiredError, SnapshotExpiredError, TableExistsError
from crdt_mor.merge import compaction, contributions, visible
from crdt_mor.merge.contributions import AT, Contributions
from crdt_mor.model.expiry import Expiry
from crdt_mor.model.instant import to_datetime
from crdt_mor.model.merge_spec import MergeSpec
from crdt_mor.model.slices import FileSlice
from crdt_mor.payloads import Counter
from crdt_mor.read import snapshot
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.read.window import Window
from crdt_mor.services import compaction as services
from crdt_mor.store import MemoryStore
from crdt_mor.testing import SimulatedEnvironment
from tests.interop.readers import hudi_rs
from tests.stores import ScriptedStore, refusing

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("expires_at", pa.timestamp("us", "UTC"))])
BEGIN = datetime.fromtimestamp(1_700_000_000, UTC)
RULES: dict[str, dict[str, Any]] = {"latest": {}, "ordering": {"ordering": "v"}}

TTL: dict[str, Any] = {"ttl": "expires_at"}

Row = tuple[str, int, datetime | None]


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


@dataclass
class World:
    """A table with a clock of its own, and the versions that were written to it."""

    rule: str = "latest"
    settings: dict[str, Any] = field(default_factory=lambda: {"ttl": "expires_at"})
    clock: SimulatedEnvironment = field(default_factory=SimulatedEnvironment)
    written: list[tuple[str, str, Row | tuple[str, int] | str]] = field(default_factory=list)
    """Requested and completed time, and a row, or the key of a delete, perhaps with its ordering value."""

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock.now_ms)
        self.opening = Opening(store=self.store, environment=self.clock)
        self.table = Table.create(
            "t", SCHEMA, key="id", buckets=1, opening=self.opening, **RULES[self.rule], **self.settings
        )

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)

    def upsert(self, *rows: Row) -> None:
        commit = self.table.upsert(frame(*rows))
        self.sleep(0.01)  # the table's clock runs a little ahead of a clock that stands still
        self.written += [(commit.requested_at, commit.completed_at, row) for row in rows]

    def delete(self, key: str) -> None:
        commit = self.table.delete(keys=[key], plain=True) if self.rule == "ordering" else self.table.delete(keys=[key])
        self.written.append((commit.requested_at, commit.completed_at, key))

    def bury(self, key: str, v: int) -> None:
        """Delete by ordering value."""
        commit = self.table.delete(pl.DataFrame({"id": [key], "v": [v]}))
        self.written.append((commit.requested_at, commit.completed_at, (key, v)))

    def expected(self, moment: datetime | None = None) -> list[Row]:
        """Fold the versions that a snapshot at this moment contains, and filter by the expiry."""
        seen = [(requested, change) for requested, completed, change in self.written if shows(completed, moment)]
        last: dict[str, Row | tuple[str, int]] = {}
        for _, change in sorted(seen, key=lambda one: one[0]):
            if isinstance(change, str):
                last.pop(change, None)
            elif self.rule == "latest" or change[0] not in last or change[1] >= last[change[0]][1]:
                last[change[0]] = change
        rows = [change for change in last.values() if len(change) == 3]
        return sorted(row for row in rows if row[2] is None or row[2] > (moment or self.now()))

    def rows(self, moment: datetime | None = None) -> list[Row]:
        return sorted(self.table.scan(as_of=moment).to_polars().rows())

    def stored(self) -> int:
        """The number of rows in the newest files."""
        return sum(self.table.inspect.files(as_of="now")["rows"].to_pylist())


def shows(completed: str, moment: datetime | None) -> bool:
    return moment is None or to_datetime(completed) <= moment  # type: ignore[arg-type]


def frame(*rows: Row) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=pl.DataFrame(SCHEMA.empty_table()).schema, orient="row")


@pytest.fixture(params=RULES)
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def test_rows_are_hidden_from_their_expiry_on_and_null_never_expires(world: World) -> None:
    world.upsert(("a", 1, at(10)), ("b", 1, at(20)), ("c", 1, None))
    assert [row[0] for row in world.rows()] == ["a", "b", "c"]
    world.sleep(10)  # at its expiry a row is gone
    assert [row[0] for row in world.rows()] == ["b", "c"]
    assert world.table.count() == 2
    assert world.table.scan(filter="id = 'a'").count() == 0
    assert world.table.scan(limit=5).to_arrow().num_rows == 2
    assert world.table.scan(columns=["id"]).to_polars().height == 2
    world.sleep(1000)
    assert [row[0] for row in world.rows()] == ["c"]


def test_a_scan_keeps_its_time_and_a_past_moment_keeps_its_rows(world: World) -> None:
    world.upsert(("a", 1, at(10)), ("b", 1, None))
    scan, moment = world.table.scan(), world.now()
    world.sleep(60)
    assert scan.count() == scan.to_polars().height == 2
    assert sum(part.to_polars().height for part in scan.parts(1)) == 2
    assert len(world.rows(moment)) == 2
    world.table.maintenance.compact()
    assert scan.to_polars().height == 2
    assert len(world.rows(moment)) == 2
    assert [row[0] for row in world.rows()] == ["b"]


def test_an_expired_version_hides_older_ones(world: World) -> None:
    """A filter of contributions, instead of the merged row, would bring version 1 back."""
    world.upsert(("a", 1, None))
    world.upsert(("a", 2, at(10)))
    world.sleep(11)
    assert world.rows() == []
    world.table.maintenance.compact()
    assert world.rows() == []


def test_a_later_write_revives_the_key(world: World) -> None:
    world.upsert(("a", 1, at(10)))
    world.sleep(11)
    world.table.maintenance.compact()
    world.upsert(("a", 1, at(100)))
    assert world.rows() == [("a", 1, at(100))]


def test_a_duration_after_a_column() -> None:
    world = World(settings={"ttl": ("expires_at", timedelta(hours=1))})
    assert world.table.config.ttl == ("expires_at", timedelta(hours=1))
    world.upsert(("a", 1, at(0)), ("b", 1, at(1800)), ("c", 1, None))
    world.sleep(3601)
    assert [row[0] for row in world.rows()] == ["b", "c"]
    world.table.maintenance.compact()
    assert [row[0] for row in world.rows()] == ["b", "c"]
    assert world.stored() == 2


# --- compaction -------------------------------------------------------------------------------------------------------


def test_a_compaction_removes_expired_rows_and_maintain_removes_whole_file_groups(world: World) -> None:
    world.upsert(("a", 1, at(10)), ("b", 1, at(20)))
    world.table.maintenance.compact()
    assert world.stored() == 2
    world.sleep(15)
    assert not [one for one in world.table.maintenance.maintain().actions if one.service == "compaction"]
    world.table.maintenance.compact()  # without a log: a row has expired
    assert world.stored() == 1
    assert world.table.maintenance.compact() == []
    world.sleep(15)
    done = [one.why for one in world.table.maintenance.maintain().actions if one.service == "compaction"]
    assert len(done) == 1
    assert "all rows of file group" in done[0]
    assert world.stored() == 0
    assert world.table.verify(deep=True).findings == ()


def test_a_straggler_does_not_win_over_a_row_that_was_removed(world: World) -> None:
    """Dropping a row that is not stable would show the straggler, which is older and lasts longer."""
    with world.table.transaction() as straggler:
        straggler.upsert(frame(("a", 1, None)))
        world.sleep(1)
        world.upsert(("a", 2, at(10)))
        world.sleep(30)
        world.table.maintenance.compact()
        assert world.rows() == []
    assert world.rows() == []
    world.table.maintenance.compact()
    assert world.rows() == []


def test_an_expired_row_still_wins_by_its_ordering_value() -> None:
    world = World("ordering")
    world.upsert(("a", 5, at(10)))
    world.sleep(30)
    world.table.maintenance.compact()
    assert world.stored() == 0
    world.upsert(("a", 3, None))
    assert world.rows() == world.expected() == []
    world.upsert(("a", 6, None))
    assert world.rows() == world.expected() == [("a", 6, None)]


Step = tuple[Any, ...]
ROWS = st.tuples(st.just("upsert"), st.sampled_from("ab"), st.integers(1, 3), st.sampled_from([None, 1, 4, 9]))
STEPS = st.one_of(
    ROWS,
    st.tuples(st.sampled_from(["late", "end", "compact", "compact", "fold", "delete", "bury", "sleep"])),
)


def play(rule: str, steps: list[Step]) -> None:
    """Play a history with a straggler, and compare every moment before and after each compaction."""
    world, moments = World(rule), list[datetime]()
    late: list[tuple[Transaction, Row]] = []
    for number, (kind, *rest) in enumerate(steps):
        match kind:
            case "upsert":
                key, v, after = rest
                world.upsert((key, v, None if after is None else world.now() + timedelta(seconds=after)))
            case "late" if not late:
                block, row = world.table.transaction(), ("a", 2, world.now() + timedelta(seconds=6))
                block.__enter__().upsert(frame(row))
                late.append((block, row))
            case "end" if late:
                end(world, *late.pop())
            case "delete":
                world.delete("a")
            case "bury" if rule == "ordering":
                world.bury("a", 2)
            case "compact":
                world.table.maintenance.compact()
            case "fold":
                world.table.maintenance.compact(logs_only=True)
            case "sleep":
                world.sleep(3)
        world.sleep(1)
        moments.append(world.now())
        assert world.rows() == world.expected(), number
        assert world.table.count() == len(world.expected())
    while late:
        end(world, *late.pop())
    assert world.rows() == world.expected()
    for moment in moments:
        assert world.rows(moment) == world.expected(moment)
    assert world.table.verify(deep=True).findings == ()
    hold_changes(world, moments)


def end(world: World, block: Transaction, row: Row) -> None:
    block.__exit__(None, None, None)
    assert block.commit is not None
    world.written.append((block.commit.requested_at, block.commit.completed_at, row))


def hold_changes(world: World, moments: list[datetime]) -> None:
    """Changes with expired=True, images and differences bring a copy from each moment to the next."""
    for first, last in pairwise(moments):
        before, after = ({row[0]: row for row in world.expected(moment)} for moment in (first, last))
        changed = dict(before)
        for *row, change in world.table.changes(first, until=last, expired=True).to_polars().rows():
            changed.pop(row[0], None)
            if change == "upsert":
                changed[row[0]] = tuple(row)
        assert changed == after
        images = world.table.changes(first, until=last, images=True, expired=True).to_polars()
        assert all(first < when <= last for when in images["_commit_timestamp"])
        assert applied(before, images.drop("_commit_version", "_commit_timestamp")) == after
        assert applied(before, world.table.diff(first, last).to_polars()) == after
        assert applied(after, world.table.diff(last, first).to_polars()) == before


def applied(rows: dict[str, Row], images: pl.DataFrame) -> dict[str, Row]:
    """Apply images, of which each must fit."""
    copy = dict(rows)
    for *row, change in images.rows():
        if change in ("delete", "update_preimage"):
            assert copy.pop(row[0]) == tuple(row)
        else:
            assert row[0] not in copy
            copy[row[0]] = tuple(row)
    return copy


SHORT: list[Step] = [
    ("upsert", "a", 2, 4), ("upsert", "a", 1, None), ("late",), ("end",), ("compact",), ("delete",), ("sleep",),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@given(steps=st.lists(STEPS, min_size=4, max_size=14))
@settings(max_examples=60, deadline=None)
def test_no_answer_depends_on_a_compaction(rule: str, steps: list[Step]) -> None:
    play(rule, steps)


@pytest.mark.long
@pytest.mark.parametrize("rule", RULES)
def test_every_short_history(rule: str) -> None:
    for steps in product(SHORT, repeat=3):
        play(rule, [("late",), SHORT[0], *steps])


# --- planted bugs -----------------------------------------------------------------------------------------------------


def unstable_rows_are_dropped(patch: pytest.MonkeyPatch) -> None:
    def compact(*asked: Any) -> compaction.CompactedSlice:
        *others, gone = asked
        done = compaction.compact_all(*others)
        return replace(done, parts=[partial(dropped, part, gone) for part in done.parts])

    def dropped(part: Callable[[], pl.DataFrame], gone: pl.Expr) -> pl.DataFrame:
        return part().filter(~gone)

    patch.setattr(services, "compact_all", compact)


def no_tombstone_remains(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compaction, "_with_buried", lambda deletes, *_: deletes)


def contributions_expire(patch: pytest.MonkeyPatch) -> None:
    """At the first second after the beginning of all histories, which is enough."""
    real = contributions.gather

    def gathered(*asked: Any, **options: Any) -> Contributions:
        found = real(*asked, **options)
        if "expires_at" not in found.rows.columns:
            return found
        gone = found.rows["expires_at"].is_between(at(0), at(3)).fill_null(value=False).arg_true()
        return replace(found, lines=found.lines.filter(~pl.col(AT).is_in(gone.implode())))

    patch.setattr(visible, "gather", gathered)


def the_past_is_filtered_by_now(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Snapshot, "expiry_time", property(lambda self: snapshot.moment_now(self.session, self.value)))


def counts_come_from_commits(patch: pytest.MonkeyPatch) -> None:
    def heights(self: Snapshot) -> Iterator[tuple[FileSlice, int | None]]:
        return ((slice_, snapshot._stored_rows(slice_)) for slice_ in self.slices)

    patch.setattr(Snapshot, "_heights", heights)


def changes_ignore_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Window, "_states", Window._stored)


LASTS, EXPIRES, SLEEP = ("upsert", "a", 1, None), ("upsert", "a", 2, 1), ("sleep",)
BUGS: list[tuple[Callable[[pytest.MonkeyPatch], None], str, list[Step]]] = [
    (unstable_rows_are_dropped, "latest", [("late",), EXPIRES, ("compact",), ("end",)]),
    (no_tombstone_remains, "ordering", [EXPIRES, SLEEP, ("compact",), LASTS]),
    (contributions_expire, "latest", [LASTS, EXPIRES, SLEEP]),
    (the_past_is_filtered_by_now, "latest", [("upsert", "a", 1, 4), SLEEP, SLEEP]),
    (counts_come_from_commits, "latest", [("upsert", "a", 1, 4), ("compact",), SLEEP]),
    (changes_ignore_the_end, "latest", [LASTS, EXPIRES, SLEEP]),
]


@pytest.mark.parametrize(("bug", "rule", "steps"), BUGS, ids=lambda value: getattr(value, "__name__", None))
def test_a_history_finds_the_bug(
    bug: Callable[[pytest.MonkeyPatch], None], rule: str, steps: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    play(rule, steps)
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        play(rule, steps)


# --- statements and services ------------------------------------------------------------------------------------------


def test_statements_do_not_see_expired_rows(world: World) -> None:
    world.upsert(("a", 1, at(10)), ("b", 1, None))
    world.sleep(11)
    assert world.table.update({"v": pl.col("v") + 1}, where="true").rows == 1
    source = frame(("a", 7, None))
    world.table.merge(source, on="id").when_matched_update({"v": 100}).when_not_matched_insert_all().execute()
    assert world.rows() == [("a", 7, None), ("b", 2, None)]
    with world.table.transaction(isolation="serializable") as block:
        assert block.scan().count() == 2


def test_a_block_reads_at_its_begin(world: World) -> None:
    world.upsert(("a", 1, at(10)))
    with world.table.transaction() as block:
        world.sleep(11)
        assert block.scan().count() == 1
    assert world.table.count() == 0


def test_changes_report_expiry_only_on_request(world: World) -> None:
    world.upsert(("a", 1, at(10)), ("b", 1, None))
    checkpoint = world.table.scan().checkpoint
    world.sleep(20)
    assert world.table.changes(checkpoint, expired=True).to_polars().is_empty(), (
        "the table's clock is before the expiry"
    )
    assert world.table.changes(checkpoint, until=world.now(), expired=True).to_polars().rows() == [
        ("a", None, None, "delete")
    ]
    assert world.table.changes(checkpoint).to_polars().is_empty()
    feed = world.table.changes(checkpoint, images=True, expired=True).to_polars()
    assert feed.rows() == [("a", 1, at(10), "delete", None, at(10))]
    parts = world.table.changes(checkpoint, expired=True).parts(1)
    assert pl.concat([part.to_polars() for part in parts]).height == 1
    with pytest.raises(InvalidInputError, match="omit raw"):
        world.table.changes(checkpoint, raw=True, expired=True)


def test_a_clean_ends_old_checkpoints_and_versions(world: World) -> None:
    """A later start would skip the deletes between, and a later moment would hide more rows."""
    world.upsert(("a", 1, at(10)))
    checkpoint, version = world.table.scan().checkpoint, world.table.version
    world.sleep(20)
    world.table.maintenance.compact()
    world.table.maintenance.clean(timedelta(0), readers=timedelta(0))
    with pytest.raises(CheckpointExpiredError):
        world.table.changes(checkpoint, expired=True)
    assert world.table.changes(checkpoint).to_polars().is_empty()
    with pytest.raises(SnapshotExpiredError):
        world.table.scan(as_of=version)


def test_a_stable_scan_hides_what_has_expired_by_now(world: World) -> None:
    world.upsert(("a", 1, at(10)), ("b", 1, None))
    with world.table.transaction():
        world.sleep(20)
        assert world.table.scan(consistency="stable").to_polars().rows() == [("b", 1, None)]
        assert world.table.scan(consistency="read_optimized").count() == 0


def test_rules_are_held_by_visible_rows(world: World) -> None:
    world.upsert(("a", 1, at(10)), ("b", 5, None))
    world.sleep(20)
    world.table.add_rules(Rules(check={"large": "v > 2"}))
    assert world.table.verify().findings == ()


@pytest.mark.parametrize("rule", RULES)
def test_other_engines_see_expired_rows_until_a_compaction(rule: str, tmp_path: Path) -> None:
    pytest.importorskip("hudi", reason="hudi-rs is not in this environment")
    delta = pytest.importorskip("deltalake", reason="deltalake is not in this environment")
    table = Table.create(tmp_path / "t", SCHEMA, key="id", buckets=1, **RULES[rule], **TTL)
    table.upsert(frame(("a", 1, datetime.now(UTC) - timedelta(days=1)), ("b", 1, None)))
    assert table.count() == 1
    for rows in (2, 1):
        table.mirror("delta", deletes="rewrite")
        assert delta.DeltaTable(str(tmp_path / "t")).to_pyarrow_table().num_rows == rows
        assert len(hudi_rs(tmp_path / "t")) == rows
        assert table.verify(deep=True).findings == ()
        table.maintenance.compact()


def test_a_compaction_beside_a_store_that_fails_raises_its_error(world: World) -> None:
    world.upsert(("a", 1, at(10)))
    world.sleep(20)
    store = ScriptedStore(world.store, refusing("put"))
    table = Table("t", opening=Opening(store=store, environment=world.clock))
    with pytest.raises(StorageUnavailableError, match="a simulated failure"):
        table.maintenance.compact()


def test_why_tells_that_the_row_has_expired(world: World) -> None:
    world.upsert(("a", 1, at(10)))
    moment = world.now()
    world.sleep(20)
    assert "the row expired at 2023-11-14 22:13:30" in world.table.why("a")["because"][-1].as_py()
    assert "expired" not in world.table.why("a", as_of=moment)["because"][-1].as_py()


def test_an_erasure_finds_expired_rows(world: World) -> None:
    world.upsert(("a", 1, at(10)), ("b", 1, None))
    world.sleep(20)
    world.table.maintenance.erase(where="id = 'a'")
    assert world.stored() == 1
    with pytest.raises(InvalidInputError, match="expires by it"):
        world.table.maintenance.erase(keys=["b"], columns=["expires_at"])


def test_two_tables_are_compared_at_one_moment(world: World) -> None:
    world.upsert(("a", 1, at(10)), ("b", 1, None))
    moment = world.now()
    other = Table.create(
        "other", SCHEMA, key="id", opening=Opening(environment=world.clock, store=MemoryStore()), **TTL
    )
    other.upsert(world.table.to_polars())
    world.sleep(20)
    now, then = world.table.diff(other), world.table.diff(world.table, moment)
    assert (now.here, now.there, now.changed) == (0, 0, 0)
    assert (then.here, then.there, then.changed) == (1, 0, 0)


def test_a_copy_and_a_migrated_table_expire_their_rows(world: World, tmp_path: Path) -> None:
    world.upsert(("a", 5, at(10)), ("b", 1, None))
    world.sleep(20)
    opening = Opening(environment=world.clock)
    world.table.copy(str(tmp_path / "copy"))
    copy = Table(str(tmp_path / "copy"), opening=opening)
    assert (copy.config.ttl, copy.to_polars().rows()) == ("expires_at", [("b", 1, None)])
    world.table.maintenance.migrate(str(tmp_path / "moved"), buckets=3)
    moved = Table(str(tmp_path / "moved"), opening=opening)
    assert (moved.config.ttl, moved.to_polars().rows()) == ("expires_at", [("b", 1, None)])
    moved.upsert(frame(("a", 3, None)))
    assert moved.count() == (2 if world.rule == "latest" else 1), "the greater ordering value moved along"


def test_the_column_may_be_renamed_but_not_dropped(world: World) -> None:
    world.upsert(("a", 1, at(10)), ("b", 1, None))
    world.table.alter(rename={"expires_at": "until"})
    assert world.table.config.ttl == "until"
    world.sleep(20)
    assert world.table.to_polars().rows() == [("b", 1, None)]
    with pytest.raises(InvalidInputError, match="the expiry of rows"):
        world.table.alter(drop=["until"])


def test_rows_of_a_column_with_an_odd_name_and_a_naive_type_expire() -> None:
    clock = SimulatedEnvironment()
    schema = pa.schema([("id", pa.string()), ("Läuft ab+?", pa.timestamp("ms"))])
    table = Table.create(
        "t", schema, key="id", ttl="Läuft ab+?", opening=Opening(store=MemoryStore(clock.now_ms), environment=clock)
    )
    table.upsert(pl.DataFrame({"id": ["a"], "Läuft ab+?": [at(10).replace(tzinfo=None)]}))
    assert table.count() == 1
    clock.sleep(11)
    assert (table.config.ttl, table.count()) == ("Läuft ab+?", 0)


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ttl": "v"}, "must be a timestamp"),
        ({"ttl": "absent"}, "does not exist"),
        ({"ttl": ("expires_at", 30)}, "ttl must be a timestamp column"),
        ({"ttl": ("expires_at", timedelta(0))}, "above 0"),
        ({"ttl": ("expires_at", timedelta(days=40_000))}, "36500 days"),
        ({"ttl": "expires_at", "merge": PartialUpdate()}, "start the row afresh"),
        ({"ttl": "expires_at", "merge": {"v": Counter()}}, "start the row afresh"),
        ({"merge": "latest?ttl=expires_at+0"}, "pass the expiry as ttl="),
    ],
)
def test_an_expiry_that_cannot_be_kept_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Table.create("t", SCHEMA, key="id", opening=Opening(store=MemoryStore()), **settings)


def test_a_table_with_another_expiry_is_another_table() -> None:
    opening = Opening(store=MemoryStore())
    Table.create("t", SCHEMA, key="id", opening=opening, **TTL)
    assert Table.create("t", SCHEMA, key="id", opening=opening, exist_ok=True, **TTL).config.ttl == "expires_at"
    with pytest.raises(TableExistsError, match="another ttl"):
        Table.create("t", SCHEMA, key="id", opening=opening, exist_ok=True)


def test_a_table_with_an_expiry_is_not_handed_over() -> None:
    with pytest.raises(InvalidInputError, match="expired rows"):
        World().table.maintenance.handover()


@pytest.mark.parametrize("text", ["latest?ttl=", "latest?ttl=a", "latest?ttl=a+x", "latest?ttl=a+-1", "ordering:v?x=1"])
def test_a_damaged_expiry_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        MergeSpec.parse(text)


@pytest.mark.parametrize("rule", [MergeSpec(), MergeSpec("ordering", "a b?ttl=c+1")])
@pytest.mark.parametrize("expiry", [None, Expiry("a+b c?=&"), Expiry("x", 5)])
def test_an_expiry_is_stored_with_the_merge(rule: MergeSpec, expiry: Expiry | None) -> None:
    """A release that does not know the expiry refuses the text, so it never shows expired rows."""
    spec = replace(rule, expiry=expiry)
    assert MergeSpec.parse(str(spec)) == spec

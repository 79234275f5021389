"""Tables of ours in which Hudi opens and replaces file groups: what we acknowledge is shown, by each reader.

What Hudi's writer leaves is forged from our own bytes; below, Hudi's own Spark does it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pytest

from crdt_mor import Table
from crdt_mor.errors import FormatError, InvalidInputError, UnsupportedFeatureError
from crdt_mor.events.views import Views
from crdt_mor.log import segments
from crdt_mor.read.snapshot import Snapshot
from tests.inside import look_for_hudi, session_of
from tests.interop.hudi_turns import HudiTurns
from tests.interop.readers import hudi_rs, ours
from tests.interop.shapes import Maker
from tests.tiers import slow

SCHEMA = pa.schema([pa.field("id", pa.string(), False), pa.field("p", pa.string(), False), ("n", pa.int64())])


def rows(*said: tuple[str, str, int]) -> pa.Table:
    return pa.table([pa.array(column) for column in zip(*said, strict=True)], schema=SCHEMA)


def found(table: Table) -> set[tuple[str, str, int]]:
    return {(row["id"], row["p"], row["n"]) for row in table.scan().to_arrow().to_pylist()}


def by_all(root: Path) -> set[tuple[str, str, int]]:
    """What a table shows that is opened, after hudi-rs was seen to show the same."""
    table = Table(root)
    assert ours(table) == hudi_rs(root)
    return found(table)


@pytest.fixture
def table(make: Maker) -> Table:
    table = make.create(SCHEMA, key=["id", "p"], partition_by="p", buckets=1)
    table.upsert(rows(("a", "mon", 1), ("b", "tue", 1)))
    return table


# --- every way of writing ---------------------------------------------------------------------------------------------

NEW: Final = ("a", "mon", 2)


def upsert(table: Table) -> None:
    table.upsert(rows(NEW))


def append_and_update(table: Table) -> None:
    table.append(rows(("a", "mon", 1)))
    table.update({"n": "n + 1"}, "p = 'mon' and id = 'a'")


def in_a_block(table: Table) -> None:
    with table.transaction() as tx:
        tx.upsert(rows(("a", "mon", 7), ("z", "mon", 7)))
        tx.delete(rows(("z", "mon", 7)).drop_columns(["n"]))
        tx.upsert(rows(NEW))


def merge(table: Table) -> None:
    table.merge(
        rows(NEW), "target.id = source.id and target.p = source.p"
    ).when_matched_update_all().when_not_matched_insert_all().execute()


def posted(table: Table) -> None:
    session_of(table).pace.crowd.is_crowded = True
    table.upsert(rows(NEW))


def job(table: Table) -> None:
    planned = table.jobs.plan("upsert", SCHEMA)
    table.jobs.complete(planned, [planned.stage(rows(NEW), task=0)])


def overwrite(table: Table) -> None:
    table.overwrite(rows(NEW), partitions="dynamic")


def overwriting_job(table: Table) -> None:
    planned = table.jobs.plan("overwrite", SCHEMA, partitions="dynamic")
    table.jobs.complete(planned, [planned.stage(rows(NEW), task=0), planned.stage(rows(("c", "mon", 9)), task=1)])
    table.delete(where="id = 'c'")


DOORS: Final = [upsert, append_and_update, in_a_block, merge, posted, job, overwrite, overwriting_job]

HUDI: Final[dict[str, Callable[[HudiTurns], Any]]] = {
    "drops": lambda hudi: hudi.drop("p=mon"),
    "opens": lambda hudi: hudi.insert(rows(("h", "wed", 5))),
    "overwrites": lambda hudi: hudi.overwrite(rows(("h", "mon", 5)), "p=mon"),
    "overwrites-all": lambda hudi: hudi.overwrite(rows(("h", "mon", 5))),
    "drops-twice": lambda hudi: (hudi.drop("p=mon"), hudi.insert(rows(("h", "mon", 5))), hudi.drop("p=mon")),
}
LEFT: Final = {
    "drops": {("b", "tue", 1)},
    "opens": {("b", "tue", 1), ("h", "wed", 5)},
    "overwrites": {("b", "tue", 1), ("h", "mon", 5)},
    "overwrites-all": {("h", "mon", 5)},
    "drops-twice": {("b", "tue", 1)},
}


CASES: Final = [
    (door, turn) if turn == "drops" or door is upsert else slow(door, turn) for door in DOORS for turn in HUDI
]


@pytest.mark.costly
@pytest.mark.parametrize(("door", "turn"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_what_is_written_after_a_turn_of_hudis_is_shown(
    table: Table, make: Maker, door: Callable[[Table], None], turn: str
) -> None:
    HUDI[turn](HudiTurns(make.root))
    look_for_hudi(table)
    assert found(table) == by_all(make.root) == LEFT[turn] | ({("a", "mon", 1)} if turn == "opens" else set())
    door(table)
    left = {row for row in LEFT[turn] if row[1] != "mon" or door not in (overwrite, overwriting_job)}
    assert found(table) == left | {NEW}
    assert by_all(make.root) == left | {NEW}
    table.maintenance.compact()
    table.upsert(rows(("a", "mon", 3)))
    assert by_all(make.root) == left | {("a", "mon", 3)}


@pytest.mark.parametrize("door", DOORS[:1] + DOORS[4:], ids=lambda door: door.__name__)
def test_an_open_table_on_a_disk_looks_before_it_writes(
    table: Table, make: Maker, door: Callable[[Table], None]
) -> None:
    """Nobody asked for a look: it takes little of the time that a commit takes."""
    table.upsert(rows(("b", "tue", 1)))
    HudiTurns(make.root).drop("p=mon")
    door(table)
    assert by_all(make.root) == {NEW, ("b", "tue", 1)}


# --- writes that are under way ----------------------------------------------------------------------------------------


def in_block(table: Table, make: Maker) -> Callable[[], None]:
    tx = make.begin(table)
    tx.upsert(rows(NEW, ("c", "wed", 2)))
    return lambda: make.end(tx)


def of_job(table: Table, make: Maker) -> Callable[[], None]:
    planned = table.jobs.plan("upsert", SCHEMA)
    receipts = [planned.stage(rows(NEW, ("c", "wed", 2)), task=0)]

    def end() -> None:
        table.jobs.complete(planned, receipts)

    return end


def of_two_tasks(table: Table, make: Maker) -> Callable[[], None]:
    """One task knows the file groups from before Hudi's turn, the other one those from after it."""
    planned = table.jobs.plan("upsert", SCHEMA)
    first = planned.stage(rows(NEW), task=0)

    def end() -> None:
        table.jobs.complete(planned, [first, planned.stage(rows(("c", "wed", 2)), task=1)])

    return end


UNDER_WAY: Final = [in_block, of_job, of_two_tasks]


@pytest.mark.parametrize("begin", UNDER_WAY, ids=lambda begin: begin.__name__)
def test_a_write_that_began_before_hudi_opened_its_bucket_is_staged_again(
    table: Table, make: Maker, begin: Callable[[Table, Maker], Callable[[], None]]
) -> None:
    end = begin(table, make)
    HudiTurns(make.root).insert(rows(("c", "wed", 1), ("h", "wed", 5)))
    other = Table(make.root)
    other.upsert(rows(("b", "tue", 3)))
    end()
    # Hudi's row of the key is requested later, and wins.
    assert by_all(make.root) == {NEW, ("b", "tue", 3), ("c", "wed", 1), ("h", "wed", 5)}
    other.maintenance.compact()
    assert by_all(make.root) == {NEW, ("b", "tue", 3), ("c", "wed", 1), ("h", "wed", 5)}


@pytest.mark.parametrize("begin", UNDER_WAY, ids=lambda begin: begin.__name__)
def test_a_write_that_began_before_hudi_dropped_its_partition_is_void_there(
    table: Table, make: Maker, begin: Callable[[Table, Maker], Callable[[], None]]
) -> None:
    end = begin(table, make)
    HudiTurns(make.root).drop("p=mon")
    Table(make.root).upsert(rows(("d", "mon", 4)))
    end()
    assert by_all(make.root) == {("b", "tue", 1), ("c", "wed", 2), ("d", "mon", 4)}


@pytest.mark.parametrize("begin", UNDER_WAY, ids=lambda begin: begin.__name__)
def test_a_write_that_began_after_hudi_dropped_its_partition_is_staged_again(
    table: Table, make: Maker, begin: Callable[[Table, Maker], Callable[[], None]]
) -> None:
    hudi = HudiTurns(make.root)
    hudi.begin()
    end = begin(table, make)
    hudi.drop("p=mon")
    Table(make.root).upsert(rows(("d", "mon", 4)))
    end()
    assert by_all(make.root) == {NEW, ("b", "tue", 1), ("c", "wed", 2), ("d", "mon", 4)}


def test_a_write_that_began_before_a_clustering_of_hudis_is_staged_again(table: Table, make: Maker) -> None:
    end = in_block(table, make)
    HudiTurns(make.root).cluster(rows(("a", "mon", 1), ("e", "mon", 1)), "p=mon")
    Table(make.root).upsert(rows(("d", "mon", 4)))
    end()
    after = {("b", "tue", 1), ("c", "wed", 2), ("d", "mon", 4), ("e", "mon", 1)}
    assert found(Table(make.root)) - after <= {NEW, ("a", "mon", 1)}
    by_all(make.root)


def test_an_overwrite_that_began_before_a_turn_of_hudis_is_staged_again(table: Table, make: Maker) -> None:
    planned = table.jobs.plan("overwrite", SCHEMA)
    receipts = [planned.stage(rows(NEW, ("c", "wed", 2)), task=0)]
    tx = make.begin(table)
    tx.overwrite(rows(("a", "mon", 3), ("c", "wed", 3)))
    hudi = HudiTurns(make.root)
    hudi.insert(rows(("h", "wed", 5)))
    hudi.overwrite(rows(("h", "mon", 5)), "p=mon")
    make.end(tx)
    assert by_all(make.root) == {("a", "mon", 3), ("c", "wed", 3)}
    table.jobs.complete(planned, receipts)
    assert by_all(make.root) == {NEW, ("c", "wed", 2)}


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_commit_that_hudi_has_hidden_is_named_and_shown_again_once_hudis_is_taken_back(
    table: Table, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our handle has not looked since Hudi's statement, so that it wrote to a file group that was replaced."""
    # as in a bucket, where it looks once a minute
    monkeypatch.setattr(Views, "_pause_ms", 1 << 62)
    hudi = HudiTurns(make.root)
    replacing = hudi.drop("p=mon")
    table.upsert(rows(NEW))
    for use in (Table, lambda root: look_for_hudi(table)):
        with pytest.raises(UnsupportedFeatureError, match=rf"a later commit of ours.*instant={replacing} "):
            use(make.root)
    for path in (make.root / ".hoodie/timeline").glob(f"{replacing}*"):
        path.unlink()
    assert by_all(make.root) == {NEW, ("b", "tue", 1)}


def test_two_file_groups_of_one_bucket_stop_writers(table: Table, make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hudi has opened one, while a write of ours opened it that had not looked."""
    monkeypatch.setattr(Views, "_pause_ms", 1 << 62)
    hudi = HudiTurns(make.root)
    hudi.insert(rows(("h", "wed", 5)))
    table.upsert(rows(("c", "wed", 2)))
    opened = Table(make.root)
    assert found(opened) == {("a", "mon", 1), ("b", "tue", 1), ("c", "wed", 2), ("h", "wed", 5)}
    with pytest.raises(InvalidInputError, match=r"a key could live twice.*file_id=00000000-7c1e"):
        opened.upsert(rows(NEW))


def compact(table: Table) -> None:
    table.maintenance.compact()


def migrate(table: Table) -> None:
    table.maintenance.migrate(f"{table.uri}-moved")


def truncate(table: Table) -> None:
    table.truncate()


def only_new_in_its_partition(rows: set[tuple[str, str, int]]) -> set[tuple[str, str, int]]:
    return {row for row in rows if row[1] != "mon"} | {NEW}


def adds_new(rows: set[tuple[str, str, int]]) -> set[tuple[str, str, int]]:
    return {row for row in rows if row[0] != "a"} | {NEW}


MADE: Final[dict[Any, Callable[[set[Any]], set[Any]]]] = {
    overwrite: only_new_in_its_partition,
    overwriting_job: only_new_in_its_partition,
    compact: lambda rows: rows,
    migrate: lambda rows: rows,
    truncate: lambda rows: set(),
}
"""What these doors make of the rows that Hudi has left; the others add `NEW`."""
WITHOUT_A_LOOK: Final = [upsert, append_and_update, in_a_block, posted]
"""Those of the doors that write to the file groups which they know, without a look at Hudi's timeline."""
QUICK: Final = [(upsert, "drops"), (posted, "drops"), (merge, "drops"), (overwrite, "drops"), (compact, "drops")]
UNSEEN: Final = [
    (door, turn) if (door, turn) in QUICK else slow(door, turn)
    for door in [*DOORS, compact, migrate, truncate]
    for turn in ("drops", "opens", "overwrites")
]


def written_and_opened(table: Table, door: Callable[[Table], None]) -> Table:
    door(table)
    return Table(table.uri)


@pytest.mark.parametrize(("door", "turn"), UNSEEN, ids=lambda value: getattr(value, "__name__", value))
def test_what_is_written_in_a_bucket_within_a_minute_of_hudis_turn_is_shown_or_refused_by_name(
    table: Table, make: Maker, door: Callable[[Table], None], turn: str
) -> None:
    """A process that writes to a bucket looks for Hudi's commits once a minute."""
    session_of(table).is_far = True
    hudi = HudiTurns(make.root)
    HUDI[turn](hudi)
    if door in WITHOUT_A_LOOK and turn != "opens":
        with pytest.raises(UnsupportedFeatureError, match=rf"a later commit of ours.*instant={hudi.requested} "):
            written_and_opened(table, door)
        for path in (make.root / ".hoodie/timeline").glob(f"{hudi.requested}*"):
            path.unlink()
        assert by_all(make.root) == {("a", "mon", 1) if door is append_and_update else NEW, ("b", "tue", 1)}
        return
    left = LEFT[turn] | ({("a", "mon", 1)} if turn == "opens" else set())
    meant = MADE.get(door, adds_new)(left)
    door(table)
    assert by_all(make.root) == meant
    if door is migrate:
        assert by_all(Path(f"{table.uri}-moved")) == meant


# --- many file groups of Hudi's ---------------------------------------------------------------------------------------


def newest_version(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(max((root / ".hoodie/.crdt_mor/timeline").iterdir()).read_bytes())
    return found


@pytest.mark.parametrize(
    "door", [upsert, slow(posted), job, slow(overwriting_job)], ids=["upsert", "posted", "job", "o"]
)
def test_file_ids_that_are_many_are_in_an_object_of_their_own(
    table: Table, make: Maker, door: Callable[[Table], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each version had all of them, forty bytes each, and each commit puts one version or two."""
    monkeypatch.setattr(segments, "FILE_IDS_MAX", 1)
    hudi = HudiTurns(make.root)
    hudi.insert(rows(("h", "wed", 5)))
    look_for_hudi(table)
    table.upsert(rows(("h", "wed", 6)))
    assert list(newest_version(make.root)["file_ids"]) == ["p=wed"], "few are in the version"
    hudi.drop("p=mon")
    hudi.insert(rows(("h", "fri", 7)))
    look_for_hudi(table)
    door(table)
    stored = newest_version(make.root)["file_ids"]
    object_ = make.root / ".hoodie/.crdt_mor/segments" / f"{stored}.json"
    held = json.loads(object_.read_bytes())
    assert list(held) == ["format", "file_ids"]
    assert [*held["file_ids"]] == ["p=fri", "p=mon", "p=wed"]
    opened = Table(make.root)
    opened.upsert(rows(("h", "fri", 8)))
    table.upsert(rows(("h", "wed", 9)))
    assert newest_version(make.root)["file_ids"] == stored, "what has not changed is not put anew"
    assert by_all(make.root) == {NEW, ("b", "tue", 1), ("h", "wed", 9), ("h", "fri", 8)}
    object_.unlink()
    with pytest.raises(FormatError, match=r"Restore the file from a backup. file=.*/segments/"):
        Table(make.root).upsert(rows(NEW))


def test_a_part_of_a_snapshot_takes_along_the_ids_of_its_own_file_groups(table: Table, make: Maker) -> None:
    """Each part had the ids of all, so that ten thousand parts of ten thousand file groups were gigabytes."""
    HudiTurns(make.root).insert(rows(("h", "wed", 5), ("h", "fri", 5)))
    look_for_hudi(table)
    table.upsert(rows(NEW))
    snapshot = Snapshot.seal(session_of(table), session_of(table).views.sealed())
    parts = {slice_.partition: snapshot.with_slices([slice_]) for slice_ in snapshot.slices}
    groups = {partition: [p for p, _ in part.value.file_ids.groups] for partition, part in parts.items()}
    assert groups == {"p=fri": ["p=fri"], "p=wed": ["p=wed"], "p=mon": [], "p=tue": []}
    assert all(part.value.file_ids.of(p, 0) == snapshot.value.file_ids.of(p, 0) for p, part in parts.items())


# --- history ----------------------------------------------------------------------------------------------------------


def test_history_goes_on_over_a_replaced_file_group_and_a_restore_goes_back_to_it(table: Table, make: Maker) -> None:
    before = table.scan().as_of
    HudiTurns(make.root).drop("p=mon")
    look_for_hudi(table)
    table.upsert(rows(NEW))
    table.upsert(rows(("a", "mon", 3)))
    assert found_as_of(table, before) == {("a", "mon", 1), ("b", "tue", 1)}
    images = table.changes(images=True).to_polars().filter(pl.col("id") == "a")
    said = images.select("n", "_change_type").rows()
    assert said == [(1, "insert"), (1, "delete"), (2, "insert"), (2, "update_preimage"), (3, "update_postimage")]
    table.maintenance.restore(before)
    assert by_all(make.root) == {("a", "mon", 1), ("b", "tue", 1)}
    assert not session_of(table).tail().file_ids.groups
    table.upsert(rows(NEW))
    assert by_all(make.root) == {NEW, ("b", "tue", 1)}


def found_as_of(table: Table, moment: str) -> set[tuple[str, str, int]]:
    return {(row["id"], row["p"], row["n"]) for row in table.scan(as_of=moment).to_arrow().to_pylist()}


def test_a_table_that_an_older_release_had_locked_is_written_again(table: Table, make: Maker) -> None:
    """That release took every file group with a made-up id for one that the bucket index did not make."""
    HudiTurns(make.root).insert(rows(("h", "wed", 5)))
    look_for_hudi(table)
    table.upsert(rows(NEW))
    folder = make.root / ".hoodie/.crdt_mor/timeline"
    newest = max(folder.iterdir())
    value = json.loads(newest.read_bytes())
    ((file_id,),) = value.pop("file_ids").values()
    newest.write_bytes(json.dumps({**value, "foreign_group": file_id}, separators=(",", ":")).encode())
    Table(make.root).upsert(rows(("h", "wed", 6)))
    assert by_all(make.root) == {NEW, ("b", "tue", 1), ("h", "wed", 6)}

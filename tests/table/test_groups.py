"""Group commits, as users of a table meet them: the writes of several processes that became one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from string import ascii_letters
from typing import Any, ClassVar
from unittest.mock import Mock

import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.events import group
from crdt_mor.hudi.records import claim_record
from crdt_mor.log.paths import POSTS, post_path
from crdt_mor.log.posts import FRESH_MS, Post
from crdt_mor.model.instant import claim_after
from crdt_mor.model.posts import WINDOW, PostName
from crdt_mor.payloads import Counter, MVRegister, ORSet, PartialUpdate
from crdt_mor.planners.way import POST_BYTES_MAX
from crdt_mor.write import one_event
from crdt_mor.write.posts import group_of
from tests.inside import completions_of, hudi_folder_of, run_sweep, session_of, store_of, tail_of
from tests.posting import in_a_crowd, made, meanwhile, post, posted, put
from tests.simulated import Simulated
from tests.stores import WatchedStore

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("text", pa.string())])


def rows(*ids: int, n: int = 1, text: str = "") -> pa.Table:
    return pa.table({"id": list(ids), "n": [n] * len(ids), "text": [text] * len(ids)}, SCHEMA)


@pytest.fixture
def world() -> Simulated:
    return Simulated()


@pytest.fixture
def table(world: Simulated) -> mor.Table:
    return made_with(world)


def made_with(world: Simulated, **settings: Any) -> mor.Table:
    """A table with one row, 0, whose first version is past."""
    table = world.create(SCHEMA, key="id", buckets=2, **settings)
    table.upsert(rows(0))
    return table


def opened(world: Simulated, store: mor.store.Store | None = None) -> mor.Table:
    """The table of a world once more, as another process has it."""
    return mor.Table("simulated", opening=mor.Opening(store=store or world.store, environment=world.environment))


def found(table: mor.Table, *columns: str) -> dict[int, Any]:
    """What a table shows, by its key: of one column, or of several as a tuple."""
    shown = table.scan().to_polars().sort("id")
    values = [shown[name].to_list() for name in columns or ("n",)]
    return dict(zip(shown["id"].to_list(), values[0] if len(values) == 1 else zip(*values, strict=True), strict=True))


def writers_of(table: mor.Table) -> int:
    """How many writers the newest commit has."""
    return max(1, len(completions_of(table)[-1].members))


# --- one commit -------------------------------------------------------------------------------------------------------


def test_the_rows_of_several_writers_become_one_commit(table: mor.Table) -> None:
    before = len(completions_of(table))
    post(table, rows(1, 2))
    post(table, rows(3), "INSERT")
    post(table, rows(0), "DELETE")
    commit = in_a_crowd(table).upsert(rows(4, 5, 6))
    assert set(found(table)) == {1, 2, 3, 4, 5, 6}
    assert (commit.rows, commit.deletes, commit.repeated) == (3, 0, False)
    assert len(completions_of(table)) == before + 1
    newest = completions_of(table)[-1]
    assert (newest.rows, newest.deletes, newest.operation, len(newest.members)) == (6, 1, "UPSERT", 4)
    assert (newest.version, newest.completed) == (commit.version, commit.completed_at)
    assert len(newest.files) == 2, "one log file a file group, however many writers there are"


def test_a_post_that_breaks_a_rule_is_left_to_its_owner(table: mor.Table) -> None:
    bad, good = made(table, rows(1, n=-1)), made(table, rows(2))  # of processes that do not know the rule
    table.add_rules(mor.Rules(check={"positive": "n > 0"}))
    put(table, bad)
    put(table, good)
    in_a_crowd(table).upsert(rows(5))
    assert set(found(table)) == {0, 2, 5}


def test_a_writer_whose_post_comes_to_break_a_rule_is_told(world: Simulated) -> None:
    """The rule is added between the post and the commit of it."""
    made_with(world)

    def add() -> None:
        opened(world).add_rules(mor.Rules(check={"positive": "n > 0"}))

    mine = in_a_crowd(opened(world, meanwhile(world.store, add)))
    with pytest.raises(mor.errors.ConstraintViolationError, match="positive"):
        mine.upsert(rows(7, n=-1))
    assert set(found(mine)) == {0}


def test_each_writer_is_told_of_its_own_rows(world: Simulated) -> None:
    """Another process commits the post of this one, which learns it from the value."""
    made_with(world)
    other = in_a_crowd(opened(world))
    told = list[mor.Commit]()

    def write() -> None:
        world.environment.sleep(0.001)
        told.append(other.upsert(rows(7, 8, 9)))

    store = meanwhile(world.store, write)
    mine = in_a_crowd(opened(world, store)).delete(keys=[0, 7])
    assert (told[0].rows, told[0].deletes) == (3, 0)
    assert (mine.rows, mine.deletes) == (0, 2)
    assert (mine.version, mine.requested_at, mine.completed_at) == (
        told[0].version, told[0].requested_at, told[0].completed_at,
    )  # fmt: skip
    assert posted(store) == 1
    assert set(found(other)) == {7, 8, 9}, "the delete was posted first"


def test_a_writer_that_is_alone_takes_along_what_it_finds_and_is_told_of_its_own_rows(table: mor.Table) -> None:
    for i in range(20):
        post(table, rows(100 + i, 200 + i))
        commit = table.upsert(rows(i))
        assert commit.rows == 1
    assert len(found(table)) == 60


def test_a_writer_that_finds_nobody_makes_its_statements_once(
    table: mor.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_again = Mock(wraps=group_of)
    monkeypatch.setattr(one_event, "group_of", made_again)
    for n in range(8):
        table.upsert(rows(1, n=n))
    assert made_again.call_count == 0
    post(table, rows(2))
    for n in range(4):
        table.upsert(rows(1, n=n))
    assert (made_again.call_count, set(found(table))) == (1, {0, 1, 2})


def test_an_append_that_is_committed_as_a_post_is_an_insert_for_hudi(table: mor.Table) -> None:
    in_a_crowd(table).append(rows(1))
    post(table, rows(2), "INSERT")
    in_a_crowd(table).append(rows(3))
    assert [c.operation for c in completions_of(table)[-2:]] == ["INSERT", "INSERT"]
    assert [len(c.members) for c in completions_of(table)[-2:]] == [1, 2]


def test_moments_increments_and_images_of_a_group_are_those_of_one_commit(table: mor.Table) -> None:
    start = table.changes(since=None).checkpoint
    version = table.version
    post(table, rows(0, n=2))
    post(table, rows(1, n=3))
    commit = in_a_crowd(table).upsert(rows(2, n=4))
    table.upsert(rows(1, n=9))
    assert table.scan(as_of=commit).to_polars().sort("id")["n"].to_list() == [2, 3, 4]
    assert table.scan(as_of=version).to_polars()["n"].to_list() == [1]
    window = table.changes(start, until=commit)
    assert window.to_polars().sort("id")["n"].to_list() == [2, 3, 4]
    images = table.changes(start, until=commit, images=True).to_polars().sort("id", "n")
    assert images.select("id", "n", "_change_type").rows() == [
        (0, 1, "update_preimage"), (0, 2, "update_postimage"), (1, 3, "insert"), (2, 4, "insert"),
    ]  # fmt: skip
    assert table.changes(window.checkpoint).to_polars()["n"].to_list() == [9]


def test_the_statements_on_one_key_count_in_the_order_in_which_they_were_posted(table: mor.Table) -> None:
    post(table, rows(1, n=1))
    post(table, rows(1, 2), "DELETE")
    post(table, rows(2, n=3))
    post(table, rows(3, n=4))
    post(table, rows(3), "DELETE")
    in_a_crowd(table).upsert(rows(2, n=5, text="last"))
    assert found(table, "n", "text") == {0: (1, ""), 2: (5, "last")}


def test_a_version_stays_small_however_much_the_writers_of_a_group_say(world: Simulated) -> None:
    """The owner of a post finds it in the segment to which the commit was moved at once."""
    made_with(world)
    other = in_a_crowd(opened(world))

    def write() -> None:
        for i in range(40):
            post(other, rows(100 + i), info={"message": f"{i:02}" * 1_000}, token=(f"app{i}", 1))
        other.upsert(rows(7))

    said = {"message": "x" * 3_000}
    mine = in_a_crowd(opened(world, meanwhile(world.store, write)))
    commit = mine.upsert(rows(1, 2), token=("mine", 1), commit_info=said)
    assert (commit.rows, commit.repeated) == (2, False)
    assert len(tail_of(other).encode()) < 1 << 14
    newest = other.history(1).to_pylist(maps_as_pydicts="strict")[0]
    assert [writer["commit_info"] for writer in newest["writers"] if writer["application"] == "mine"] == [said]
    assert (len(newest["writers"]), newest["rows"]) == (42, 43)
    assert (other.upsert(rows(9), token=("app7", 1)).rows, other.upsert(rows(9), token=("mine", 1)).rows) == (1, 2)


# --- merges -----------------------------------------------------------------------------------------------------------


def test_a_group_of_counters_counts_all_of_them(world: Simulated) -> None:
    table = made_with(world, merge={"n": Counter()})
    for n in (10, 100):
        post(table, rows(0, 1, n=n))
    in_a_crowd(table).upsert(rows(0, n=1_000))
    assert writers_of(table) == 3
    table.upsert(rows(1, n=5))
    assert found(table) == {0: 1_111, 1: 115}
    table.maintenance.compact()
    assert found(table) == {0: 1_111, 1: 115}


def test_partial_updates_of_a_group_give_each_column_its_last_value(world: Simulated) -> None:
    table = made_with(world, merge=PartialUpdate())
    post(table, pa.table({"id": [0], "n": [7]}))
    post(table, pa.table({"id": [0, 1], "text": ["a", "b"]}))
    in_a_crowd(table).upsert(pa.table({"id": [0, 1], "n": [None, 8]}, SCHEMA.remove(2)))
    assert writers_of(table) == 3
    assert found(table, "n", "text") == {0: (None, "a"), 1: (8, "b")}


def test_the_greater_ordering_value_wins_in_a_group(world: Simulated) -> None:
    table = made_with(world, ordering="n")
    post(table, rows(0, n=9, text="greatest"))
    post(table, rows(1, n=5, text="plainly deleted"))
    post(table, rows(1, n=0), "DELETE", plain=True)
    post(table, rows(2, n=5), "DELETE")
    in_a_crowd(table).upsert(rows(0, 2, n=4, text="too early"))
    assert writers_of(table) == 5
    assert found(table, "n", "text") == {0: (9, "greatest")}
    table.upsert(rows(2, n=6, text="later than the delete"))
    assert found(table, "n", "text") == {0: (9, "greatest"), 2: (6, "later than the delete")}


@pytest.mark.parametrize(
    ("column", "payload", "value"),
    [(pa.list_(pa.string()), ORSet(), ["a"]), (pa.list_(pa.string()), MVRegister(), "a")],
)
def test_a_payload_that_asks_what_a_commit_has_seen_is_never_posted(
    world: Simulated, column: pa.DataType, payload: mor.Payload, value: object
) -> None:
    schema = pa.schema([("id", pa.int64()), ("value", column)])
    data = pa.table({"id": [1], "value": [value]}, schema)
    store = WatchedStore(world.store)
    table = mor.Table.create(
        "simulated",
        schema,
        key="id",
        merge={"value": payload},
        opening=mor.Opening(store=store, environment=world.environment),
    )
    table.upsert(data)
    in_a_crowd(table).upsert(data)
    assert (posted(store), table.scan().count()) == (0, 1)


# --- what is no post --------------------------------------------------------------------------------------------------

WIDER = SCHEMA.append(pa.field("more", pa.string()))
LARGE = "".join(Random(1).choices(ascii_letters, k=POST_BYTES_MAX))


def several(table: mor.Table) -> None:
    with table.transaction() as tx:
        tx.upsert(rows(1))
        tx.upsert(rows(2))


NOT_POSTED: dict[str, Callable[[mor.Table], object]] = {
    "a delete by filter": lambda t: t.delete(where=pl.col("n") == 1),
    "columns that the table lacks": lambda t: t.upsert(
        rows(1).append_column("more", pa.array(["x"])), schema_mode="merge"
    ),
    "rows that are too large": lambda t: t.upsert(rows(1, text=LARGE)),
    "several statements": several,
    "an overwrite": lambda t: t.overwrite(rows(1)),
    "no rows": lambda t: t.upsert(rows()),
}


@pytest.mark.parametrize("write", NOT_POSTED.values(), ids=NOT_POSTED)
def test_what_cannot_be_posted_goes_the_long_way(world: Simulated, write: Callable[[mor.Table], object]) -> None:
    made_with(world)
    store = WatchedStore(world.store)
    table = in_a_crowd(opened(world, store))
    write(table)
    assert posted(store) == 0
    assert all(not completion.members for completion in completions_of(table))
    assert world.store.list(POSTS) == []


# --- posts that do not fit --------------------------------------------------------------------------------------------


def a_column_that_the_table_lacks(table: mor.Table) -> PostName:
    wider = Simulated().create(WIDER, key="id", buckets=2)
    return put(table, made(wider, rows(1).append_column("more", pa.array(["x"]))))


def a_column_of_another_type(table: mor.Table) -> PostName:
    other = Simulated().create(pa.schema([("id", pa.int64()), ("n", pa.string())]), key="id", buckets=2)
    return put(table, made(other, pa.table({"id": [1], "n": ["many"]})))


def a_token_that_was_used(table: mor.Table) -> PostName:
    table.upsert(rows(0), token=("loader", 7))
    return post(table, rows(1), token=("loader", 7))


def an_earlier_token(table: mor.Table) -> PostName:
    table.upsert(rows(0), token=("loader", 7))
    return post(table, rows(1), token=("loader", 6))


def damaged(table: mor.Table) -> PostName:
    name = post(table, rows(1))
    store, data = store_of(table), store_of(table).read(post_path(name))
    assert data is not None
    store.delete(post_path(name))
    store.put(post_path(name), data[:-9] + b"\0" * 9)
    return name


def raw(data: bytes) -> Callable[[mor.Table], PostName]:
    def put_raw(table: mor.Table) -> PostName:
        name = PostName(tail_of(table).version, "garbage")
        store_of(table).put(post_path(name), data)
        return name

    return put_raw


def altered(**changes: object) -> Callable[[mor.Table], PostName]:
    def put_altered(table: mor.Table) -> PostName:
        changed: Post = replace(made(table, rows(1)), **changes)  # type: ignore[arg-type]
        return put(table, changed)

    return put_altered


def of_another_table(table: mor.Table) -> PostName:
    return put(table, made(table, rows(1)), table_id="another")


def older_than_a_minute(table: mor.Table) -> PostName:
    name = post(table, rows(1))
    session_of(table).environment.sleep(FRESH_MS / 1000 + 1)
    return name


def whose_window_has_passed(table: mor.Table) -> PostName:
    version = tail_of(table).version
    for n in range(WINDOW):
        table.upsert(rows(0, n=n))
    return put(table, made(table, rows(1)), version=version)


def of_a_version_to_come(table: mor.Table) -> PostName:
    return put(table, made(table, rows(1)), version=tail_of(table).version + 1)


def voided(table: mor.Table) -> PostName:
    name, session = post(table, rows(1)), session_of(table)
    session.remember(session.run(group.void(session.publisher, session.tail(), [name])))
    return name


UNFIT: dict[str, Callable[[mor.Table], PostName]] = {
    "a column that the table lacks": a_column_that_the_table_lacks,
    "a column of another type": a_column_of_another_type,
    "a token that was used": a_token_that_was_used,
    "an earlier token": an_earlier_token,
    "damaged bytes": damaged,
    "no bytes": raw(b""),
    "garbage": raw(b"\xff\xfe\x00garbage"),
    "JSON of another kind": raw(b'{"format":7}\n'),
    "a list": raw(b"[7]\n"),
    "content that is no rows": altered(content=b"no stream of rows"),
    "no content": altered(content=b""),
    "a statement of a later release": altered(statement="MERGE"),
    "another table's id": of_another_table,
    "an old one": older_than_a_minute,
    "one whose window has passed": whose_window_has_passed,
    "one of a version to come": of_a_version_to_come,
    "one that was voided": voided,
}


@pytest.mark.parametrize("unfit", UNFIT.values(), ids=UNFIT)
def test_a_post_that_does_not_fit_is_left_out_and_harms_nobody(
    table: mor.Table, unfit: Callable[[mor.Table], PostName]
) -> None:
    unfit(table)
    post(table, rows(2))
    commit = in_a_crowd(table).upsert(rows(3))
    assert commit.rows == 1
    assert set(found(table)) == {0, 2, 3}
    assert writers_of(table) == 2


@dataclass(frozen=True)
class Picky(mor.Payload):
    """The greatest number; writes no 13, and merges no 66."""

    name: ClassVar[str] = "tests.picky/1"

    def join(self, a: int, b: int) -> int:
        return max(a, b)

    def lift(self, written: pl.Expr, dot: mor.Dot) -> pl.Expr:
        return written.map_batches(partial(_refusing, 13), pl.Int64(), is_elementwise=True)

    def merge(self, states: pl.Expr) -> pl.Expr:
        return states.max().map_batches(partial(_refusing, 66), pl.Int64(), is_elementwise=True)

    def examples(self) -> Sequence[int]:
        return [1, 2, 3]


def _refusing(refused: int, values: pl.Series) -> pl.Series:
    if (values == refused).any():
        raise RuntimeError("not this one")
    return values


@pytest.mark.parametrize("refused", [13, 66])
def test_rows_on_which_a_payload_fails_are_their_writers_affair(world: Simulated, refused: int) -> None:
    table = made_with(world, merge={"n": Picky()})
    wide = Simulated().create(SCHEMA, key="id", buckets=2)
    put(table, made(wide, rows(0, n=refused)))
    commit = in_a_crowd(table).upsert(rows(0, n=2))
    assert (commit.rows, found(table)) == (1, {0: 2})
    assert writers_of(table) == 1


def test_a_post_is_taken_once_however_late_a_second_copy_of_it_lands(table: mor.Table) -> None:
    store = store_of(table)
    name = post(table, rows(1, n=1))
    data = store.read(post_path(name))
    assert data is not None
    in_a_crowd(table).upsert(rows(2))
    table.delete(keys=[1])
    for n in range(2 * WINDOW):
        store.put(post_path(name), data)
        in_a_crowd(table).upsert(rows(3, n=n))
        assert 1 not in found(table)


def test_a_time_that_a_dead_process_has_claimed_stops_nobody(world: Simulated, table: mor.Table) -> None:
    claimed = claim_after(tail_of(table).clock, world.environment.now_ms())
    world.store.put(f"{hudi_folder_of(table)}/{claimed}.deltacommit.inflight", claim_record("dead"))
    commit = in_a_crowd(table).upsert(rows(1))
    assert commit.requested_at > claimed
    assert set(found(table)) == {0, 1}


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_of_two_posts_with_one_token_one_is_committed_and_the_other_owner_gets_it(world: Simulated) -> None:
    made_with(world, merge={"n": Counter()})
    token = ("sensor", 7)
    other, told = in_a_crowd(opened(world)), list[mor.Commit]()
    store = meanwhile(world.store, lambda: told.append(other.upsert(rows(0, 1, n=10), token=token)))
    mine = in_a_crowd(opened(world, store)).upsert(rows(0, n=10), token=token)
    assert sorted((mine.repeated, told[0].repeated)) == [False, True]
    assert (mine.version, mine.rows) == (told[0].version, told[0].rows)
    assert found(other)[0] == 11, "the increment counts once"


def test_a_token_in_a_group_names_its_members_own_rows_when_it_is_repeated(table: mor.Table) -> None:
    post(table, rows(1, 2), token=("a", 5))
    post(table, rows(3, 4, 5), "DELETE", token=("b", 1))
    ours = in_a_crowd(table).upsert(rows(6), token=("c", 2))
    for application, number, counts in (("a", 5, (2, 0)), ("b", 1, (0, 3)), ("c", 2, (1, 0))):
        again = table.upsert(rows(99), token=(application, number))
        assert (again.rows, again.deletes, again.repeated) == (*counts, True)
        assert (again.version, again.completed_at) == (ours.version, ours.completed_at)
    with pytest.raises(mor.TokenOrderError):
        table.upsert(rows(99), token=("a", 4))
    assert 99 not in found(table)


def test_two_numbers_of_one_application_are_two_commits(world: Simulated) -> None:
    table = made_with(world)
    post(table, rows(1), token=("a", 1))
    post(table, rows(2), token=("a", 2))
    in_a_crowd(table).upsert(rows(3))
    assert set(found(table)) == {0, 1, 3}
    in_a_crowd(table).upsert(rows(4))
    assert set(found(table)) == {0, 1, 2, 3, 4}


# --- owners -----------------------------------------------------------------------------------------------------------


def test_a_table_that_was_closed_while_a_post_was_there_refuses_its_owner_and_never_takes_it(world: Simulated) -> None:
    made_with(world)
    other, target = opened(world), Simulated()
    post(other, rows(1))
    store = meanwhile(world.store, lambda: other.maintenance.migrate("moved", buckets=4, store=target.store))
    with pytest.raises(mor.errors.TableMovedError):
        in_a_crowd(opened(world, store)).upsert(rows(2))
    assert posted(store) == 1
    moved = mor.Table("moved", opening=mor.Opening(store=target.store, environment=world.environment))
    in_a_crowd(moved).upsert(rows(3))
    assert (set(found(other)), set(found(moved))) == ({0}, {0, 3})


def test_a_write_is_committed_though_the_table_has_gained_a_column_since_it_was_posted(world: Simulated) -> None:
    made_with(world)
    other = opened(world)

    def grow() -> None:
        wider = rows(5).append_column("more", pa.array([1]))
        other.upsert(wider, schema_mode="merge")

    store = meanwhile(world.store, grow)
    commit = in_a_crowd(opened(world, store)).upsert(rows(1))
    assert (commit.rows, posted(store)) == (1, 1)
    assert found(other, "n", "more") == {0: (1, None), 1: (1, None), 5: (1, 1)}


# --- upkeep -----------------------------------------------------------------------------------------------------------


def test_posts_that_nobody_may_take_any_more_are_swept(table: mor.Table) -> None:
    old = post(table, rows(1))
    for n in range(WINDOW):
        with table.transaction() as tx:  # which takes no posts
            tx.upsert(rows(0, n=n))
    newest = post(table, rows(2))
    run_sweep(table)
    assert [stat.path for stat in store_of(table).list(POSTS)] == [post_path(newest)]
    assert old.version + WINDOW <= newest.version


def test_an_erasure_leaves_no_post_of_its_rows_nor_lets_one_be_taken(table: mor.Table) -> None:
    store = store_of(table)
    table.upsert(rows(1, text="ada@example.org"))
    name = post(table, rows(1, text="ada@example.org"))
    data = store.read(post_path(name))
    assert data is not None
    session_of(table).environment.sleep(0.1)
    table.maintenance.erase(keys=[1])
    assert store.list(POSTS) == []
    assert not [stat.path for stat in store.walk("") if b"ada@example.org" in (store.read(stat.path) or b"")]
    store.put(post_path(name), data)  # a second copy, which lands late
    in_a_crowd(table).upsert(rows(2))
    assert set(found(table)) == {0, 2}


def test_an_erasure_of_rows_that_no_file_holds_leaves_no_post_of_them(table: mor.Table) -> None:
    post(table, rows(1, text="ada@example.org"))
    session_of(table).environment.sleep(0.1)
    table.maintenance.erase(keys=[1])
    assert store_of(table).list(POSTS) == []
    in_a_crowd(table).upsert(rows(2))
    assert set(found(table)) == {0, 2}


def test_a_restore_to_before_a_group_gives_its_tokens_back(table: mor.Table) -> None:
    table.upsert(rows(1), token=("a", 1))
    before = table.version
    post(table, rows(2), token=("a", 2))
    post(table, rows(3), token=("b", 1))
    in_a_crowd(table).upsert(rows(4))
    assert table.maintenance.restore(to=before).commits == 1
    assert set(found(table)) == {0, 1}
    again = [table.upsert(rows(2), token=("a", 2)), table.upsert(rows(3), token=("b", 1))]
    assert [commit.repeated for commit in again] == [False, False]
    assert table.upsert(rows(1), token=("a", 1 + 1)).repeated


def test_a_restore_to_after_a_group_keeps_its_tokens(table: mor.Table) -> None:
    post(table, rows(2), token=("a", 2))
    commit = in_a_crowd(table).upsert(rows(4), token=("b", 1))
    table.upsert(rows(5), token=("a", 3))
    table.maintenance.restore(to=commit.version)
    assert [table.upsert(rows(9), token=token).repeated for token in (("a", 2), ("b", 1))] == [True, True]
    assert not table.upsert(rows(5), token=("a", 3)).repeated


def test_a_table_that_moves_takes_the_tokens_of_groups_along(world: Simulated, table: mor.Table) -> None:
    post(table, rows(2), token=("a", 2))
    in_a_crowd(table).upsert(rows(4), token=("b", 1))
    target = Simulated()
    table.maintenance.migrate("moved", buckets=4, store=target.store)
    moved = mor.Table("moved", opening=mor.Opening(store=target.store, environment=world.environment))
    assert [moved.upsert(rows(9), token=token).repeated for token in (("a", 2), ("b", 1))] == [True, True]
    assert set(found(moved)) == {0, 2, 4}


def test_a_compaction_that_was_planned_before_a_group_leaves_it_be(table: mor.Table) -> None:
    plan = table.maintenance.plans.schedule()
    post(table, rows(0, n=7))
    commit = in_a_crowd(table).upsert(rows(1, n=8))
    assert plan is not None
    table.maintenance.compact(plan)
    assert found(table) == {0: 7, 1: 8}
    assert table.scan(as_of=commit).count() == 2


def test_an_overwrite_replaces_the_rows_of_the_groups_before_it_and_none_after_it(table: mor.Table) -> None:
    post(table, rows(1))
    in_a_crowd(table).upsert(rows(2))
    post(table, rows(3))
    table.overwrite(rows(7))
    assert set(found(table)) == {7}
    in_a_crowd(table).upsert(rows(8))
    assert set(found(table)) == {3, 7, 8}, "the post was still open: it is requested after the overwrite"

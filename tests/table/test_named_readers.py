"""`changes(reader=...)`: the table keeps a reader's checkpoint, and clean keeps unread changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import crdt_mor as mor
from crdt_mor.errors import CheckpointExpiredError, InvalidInputError, TableReplacedError
from crdt_mor.model.checkpoints import Checkpoint
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import EPOCH, LAST, InstantTime, from_ms
from crdt_mor.planners.checkpoints import held_from
from crdt_mor.readers.follow import follow
from crdt_mor.services.checkpoints import TIDIED_MS, lags, recorded, superseded
from crdt_mor.store.protocol import Stat
from tests.counting import Bucket
from tests.inside import completions_of, session_of, store_of, tail_of
from tests.simulated import Simulated
from tests.stores import ScriptedStore

SCHEMA = {"id": pl.String, "views": pl.Int64}
NOW = timedelta(0)
DAY = 24 * 3600


@pytest.fixture
def table(simulated: Simulated) -> mor.Table:
    return simulated.create(SCHEMA, key="id", buckets=1)


@pytest.fixture
def write(table: mor.Table, simulated: Simulated) -> Callable[..., None]:
    """Upsert a row for each id, a commit and a second each."""

    def write(*ids: str) -> None:
        for one in ids:
            simulated.environment.sleep(1)
            table.upsert(pl.DataFrame({"id": [one], "views": [simulated.environment.now_ms()]}))

    return write


def read(table: mor.Table, since: Any = None, **options: Any) -> list[str]:
    return sorted(table.changes(since, reader="billing", **options).to_polars()["id"])


def clean(table: mor.Table) -> None:
    """Drop all history that nothing keeps."""
    table.maintenance.compact()
    table.maintenance.clean(NOW, readers=NOW)


def places(table: mor.Table) -> list[str]:
    return [stat.path.rpartition("/")[2] for stat in store_of(table).list(".hoodie/.crdt_mor/readers")]


# --- where a reader is ------------------------------------------------------------------------------------------------


def test_a_window_comes_again_until_it_is_done(table: mor.Table, write: Callable[..., None]) -> None:
    write("a", "b")
    assert read(table) == ["a", "b"]
    write("c")
    window = table.changes(reader="billing")
    assert sorted(window.to_polars()["id"]) == ["a", "b", "c"], "nothing was done"
    write("d")
    window.done()
    assert read(table) == ["d"]
    assert read(table) == ["d"]
    table.changes(reader="billing").done()
    assert read(table) == []


def test_since_says_that_all_before_it_is_done(table: mor.Table, write: Callable[..., None]) -> None:
    write("a")
    first = table.changes(reader="billing")
    write("b")
    assert read(table, first.checkpoint) == ["b"]
    assert read(table) == ["b"], "the place is the one given last"
    second = table.changes(first.checkpoint, reader="billing").limited(commits=1)
    write("c")
    second.done()
    assert read(table) == ["c"]


def test_a_reader_never_goes_backwards(table: mor.Table, write: Callable[..., None]) -> None:
    write("a")
    slow = table.changes(reader="billing")
    write("b", "c")
    table.changes(reader="billing").done()
    place = table.inspect.readers()["checkpoint"].to_pylist()
    slow.done()
    assert read(table, slow.checkpoint) == ["b", "c"], "earlier changes can be read again"
    assert table.inspect.readers()["checkpoint"].to_pylist() == place
    assert read(table) == []


def test_two_processes_of_one_name_share_a_place_and_two_names_do_not(
    table: mor.Table, write: Callable[..., None], simulated: Simulated
) -> None:
    other = mor.Table("simulated", opening=mor.Opening(store=simulated.store, environment=simulated.environment))
    write("a")
    table.changes(reader="billing").done()
    write("b")
    assert read(other) == ["b"]
    assert other.changes(reader="search").to_polars().height == 2
    other.changes(reader="billing").done()
    assert read(table) == []


def test_only_the_whole_of_the_changes_of_a_reader_can_be_done(table: mor.Table, write: Callable[..., None]) -> None:
    write("a", "b")
    for changes in (table.changes(), *table.changes(reader="billing").parts()):
        with pytest.raises(InvalidInputError, match="no reader, or are a part"):
            changes.done()


def test_a_limited_window_is_done_up_to_its_end(table: mor.Table, write: Callable[..., None]) -> None:
    write("a", "b")
    table.changes(reader="billing").limited(commits=1).done()
    assert read(table) == ["b"]


@pytest.mark.parametrize("name", ["", "a b", "a.b", "-a", "a/b", "x" * 101, 7, "é"])
def test_a_name_that_no_object_can_have_is_refused(table: mor.Table, name: Any) -> None:
    with pytest.raises(InvalidInputError, match="a reader's name has"):
        table.changes(reader=name)


def test_a_reader_keeps_its_consistency(table: mor.Table, write: Callable[..., None]) -> None:
    write("a")
    table.changes(reader="billing", consistency="stable").done()
    with pytest.raises(InvalidInputError, match="another `consistency`"):
        table.changes(reader="billing")
    with table.transaction() as pending:
        write("b")
        pending.upsert(pl.DataFrame({"id": ["z"], "views": [1]}))
        write("c")
        assert read(table, consistency="stable") == []
    assert read(table, consistency="stable") == ["b", "c", "z"]


def test_a_follower_has_finished_a_window_when_it_asks_for_the_next(
    table: mor.Table, write: Callable[..., None]
) -> None:
    write("a", "b")
    windows = follow(table, reader="billing")
    next(windows)
    assert read(table) == ["a", "b"]
    write("c")
    next(windows)
    assert read(table) == ["c"]
    assert [window.commits for window in islice(follow(table, reader="billing"), 1)] == [1]


def test_a_reader_of_an_earlier_table_at_the_address_says_so(fast_path: Path) -> None:
    for attempt in range(2):
        table = mor.Table.create(fast_path / "t", SCHEMA, key="id")
        table.upsert(pl.DataFrame({"id": ["a"], "views": [1]}))
        if not attempt:
            table.changes(reader="billing").done()
            left = store_of(table).list(".hoodie/.crdt_mor/readers")
            for path in (fast_path / "t").rglob("*"):
                if path.is_file() and "readers" not in path.parts:
                    path.unlink()
    assert left
    with pytest.raises(TableReplacedError, match="forget the reader"):
        table.changes(reader="billing")
    clean(table)
    table.maintenance.forget_reader("billing")
    assert read(table) == ["a"]


# --- what clean keeps -------------------------------------------------------------------------------------------------


def test_clean_keeps_what_a_reader_has_not_finished(table: mor.Table, write: Callable[..., None]) -> None:
    write("a")
    table.changes(reader="billing").done()
    kept = table.changes(reader="billing").checkpoint
    write("b", "a")
    clean(table)
    images = table.changes(reader="billing", images=True).to_polars()
    assert sorted(images["_change_type"]) == ["insert", "update_postimage", "update_preimage"]
    table.changes(reader="billing").done()
    write("c")
    clean(table)
    assert read(table) == ["c"]
    with pytest.raises(CheckpointExpiredError):
        table.changes(kept)
    with pytest.raises(CheckpointExpiredError):
        table.changes(kept, reader="billing")


def test_clean_keeps_the_end_of_a_first_window_that_is_not_finished(
    table: mor.Table, write: Callable[..., None]
) -> None:
    write("a")
    first = table.changes(reader="billing")
    write("b", "c")
    clean(table)
    first.done()
    assert read(table, images=True) == ["b", "c"]


def test_a_reader_that_died_in_its_first_window_begins_anew(table: mor.Table, write: Callable[..., None]) -> None:
    write("a")
    first = table.changes(reader="billing")
    write("b")
    assert read(table) == ["a", "b"]
    clean(table)
    first.done()  # it was not dead
    assert read(table, images=True) == ["b"]


def test_a_reader_that_has_read_all_keeps_nothing(
    table: mor.Table, write: Callable[..., None], simulated: Simulated
) -> None:
    write("a", "b")
    table.changes(reader="billing").done()
    simulated.environment.sleep(100 * DAY)
    clean(table)
    assert {file["kind"] for file in table.inspect.files().to_pylist()} == {"base"}
    write("c")
    clean(table)
    assert read(table, images=True) == ["c"]


@pytest.mark.parametrize("consistency", ["latest", "stable"])
def test_a_reader_that_is_too_far_behind_is_dropped_and_told(
    table: mor.Table, write: Callable[..., None], simulated: Simulated, consistency: Any
) -> None:
    table.set_properties({"crdt_mor.retention.readers": "3d"})
    write("a")
    table.changes(reader="billing", consistency=consistency).done()
    simulated.environment.sleep(30 * DAY)
    write("b", "c")  # how long nothing was written does not count
    simulated.environment.sleep(2.9 * DAY)
    clean(table)
    assert read(table, consistency=consistency) == ["b", "c"]
    assert table.inspect.readers()["lost"].to_pylist() == [False]
    simulated.environment.sleep(0.2 * DAY)
    clean(table)
    assert table.inspect.readers()["lost"].to_pylist() == [True]
    with pytest.raises(CheckpointExpiredError, match=r"reader 'billing' lost changes.*: scan the table and continue"):
        table.changes(reader="billing", consistency=consistency)
    scan = table.scan(consistency=consistency)
    write("d")
    assert read(table, scan.checkpoint, consistency=consistency) == ["d"]
    assert table.inspect.readers()["lost"].to_pylist() == [False]


def test_a_forgotten_reader_keeps_nothing_and_begins_anew(table: mor.Table, write: Callable[..., None]) -> None:
    write("a")
    table.changes(reader="billing").done()
    write("b")
    table.maintenance.forget_reader("billing")
    assert table.inspect.readers().num_rows == 0
    clean(table)
    assert tail_of(table).retention.since > EPOCH
    assert read(table) == ["a", "b"]
    with pytest.raises(InvalidInputError, match=r"no reader of this name.*readers=\['billing'\]"):
        table.maintenance.forget_reader("none")


def test_maintain_keeps_it_too_and_metrics_say_so(
    table: mor.Table, write: Callable[..., None], simulated: Simulated
) -> None:
    write("a")
    table.changes(reader="billing").done()
    write("b", "c")
    simulated.environment.sleep(8 * DAY)
    table.maintenance.maintain()
    assert not table.inspect.metrics().service_due["clean"]
    found = table.inspect.metrics()
    assert found.reader_lag_commits == {"billing": 2}
    assert found.reader_lag_seconds["billing"] == pytest.approx(8 * DAY + 1, abs=1)
    assert found.reader_lost == {"billing": False}
    table.changes(reader="billing").done()
    found = table.inspect.metrics()
    assert (found.reader_lag_commits, found.reader_lag_seconds) == ({"billing": 0}, {"billing": 0.0})
    assert found.service_due["clean"]


def test_a_reader_that_died_in_its_first_window_is_behind_by_all_commits(
    table: mor.Table, write: Callable[..., None], simulated: Simulated
) -> None:
    write("a", "b")
    simulated.environment.sleep(DAY)
    begun = table.changes(reader="billing")
    (row,) = table.inspect.readers().to_pylist()
    assert (row["checkpoint"], row["commits"], row["lost"]) == (None, begun.commits, False) == (None, 2, False)
    assert row["lag"] == pytest.approx(timedelta(seconds=DAY + 1), abs=timedelta(seconds=1))
    write("c")
    clean(table)
    found = table.inspect.metrics()
    assert (found.reader_lag_commits, found.reader_lost) == ({"billing": 3}, {"billing": False})
    assert found.reader_lag_seconds["billing"] >= DAY
    table.changes(reader="billing").done()
    assert table.inspect.metrics().reader_lag_commits == {"billing": 0}


def test_an_erasure_waits_for_no_reader(table: mor.Table, write: Callable[..., None]) -> None:
    write("a")
    table.changes(reader="billing").done()
    write("b")
    table.maintenance.erase(keys=["b"])
    assert not [path for path in map(str, places(table)) if path == "b"]
    assert table.to_polars()["id"].to_list() == ["a"]


def test_a_restore_tells_the_reader(table: mor.Table, write: Callable[..., None]) -> None:
    write("a")
    version = table.version
    write("b")
    table.changes(reader="billing").done()
    table.maintenance.restore(to=version)
    assert table.inspect.readers()["lost"].to_pylist() == [True]
    with pytest.raises(CheckpointExpiredError, match=r"'billing' lost changes.*restored to an earlier moment"):
        table.changes(reader="billing")
    scan = table.scan()
    write("c")
    assert read(table, scan.checkpoint) == ["c"]


def test_rows_that_expire_are_kept_for_their_reader(simulated: Simulated) -> None:
    schema = {"id": pl.String, "until": pl.Datetime("us", "UTC")}
    table = simulated.create(schema, key="id", ttl=("until", timedelta(seconds=1)), buckets=1)
    now = simulated.environment.now_ms()
    row = pl.DataFrame({"id": ["a"], "until": [now + 60_000]}).with_columns(
        pl.col("until").cast(pl.Datetime("ms", "UTC"))
    )
    table.upsert(row)
    table.changes(reader="billing", expired=True).done()
    simulated.environment.sleep(120)
    table.upsert(row.with_columns(id=pl.lit("b"), until=pl.col("until") + timedelta(hours=1)))
    clean(table)
    changes = table.changes(reader="billing", expired=True).to_polars()
    assert sorted(changes.select("id", "_change_type").rows()) == [("a", "delete"), ("b", "upsert")]


# --- the objects ------------------------------------------------------------------------------------------------------


def test_a_minute_later_one_checkpoint_stands_for_the_earlier_ones(
    table: mor.Table, write: Callable[..., None], simulated: Simulated
) -> None:
    for _ in range(20):
        write("a")
        table.changes(reader="billing").done()
    assert len(places(table)) == 21
    simulated.environment.sleep(61)
    for _ in range(3):
        write("a")
        table.changes(reader="billing").done()
        simulated.environment.sleep(61)
    assert len(places(table)) == 3


def test_a_checkpoint_goes_only_after_a_later_one_has_stood_for_a_minute() -> None:
    """So a listing that shows neither of two objects, of which one is put and one deleted, would take a minute."""

    def stat(second: int, modified_ms: int) -> Stat:
        checkpoint = Checkpoint("billing", Cut("completed", from_ms(1_700_000_000_000 + second)), None)
        return Stat(f".hoodie/.crdt_mor/readers/{checkpoint}", 0, modified_ms)

    one, two, three = stat(1, 0), stat(2, 1000), stat(3, 1000 + TIDIED_MS)
    assert superseded([one, two]) == []
    assert superseded([one, two, three]) == [one]
    assert superseded([stat(3, 0), stat(2, TIDIED_MS), one]) == [stat(2, TIDIED_MS), one], "the greatest stays"


def test_a_name_of_an_object_says_all_of_a_checkpoint() -> None:
    for cut in (Cut("completed", InstantTime("20260131120000000")), Cut("requested", EPOCH)):
        for table_id in (None, "0b3d1c6f2a4e4f0f9d8c7b6a59483726"):
            for is_begun in (True, False):
                checkpoint = Checkpoint("bill-ing_2", cut, table_id, is_begun)
                assert Checkpoint.parse(str(checkpoint)) == checkpoint
    assert Checkpoint.parse("billing.20260131120000000.completed.done") is None


def test_history_is_held_for_the_reader_that_is_furthest_behind(table: mor.Table, write: Callable[..., None]) -> None:
    write("a", "b", "c")
    completions = completions_of(table)
    times = [c.completed for c in completions if c.files]
    ends = [Checkpoint(name, Cut("completed", time), None) for name, time in zip("xyz", times, strict=True)]
    assert held_from(completions, ends, EPOCH, expires=False) == times[0]
    assert held_from(completions, ends, times[2], expires=False) == times[1], "x is too far behind"
    assert held_from(completions, ends[2:], EPOCH, expires=False) == LAST, "z has read all"
    assert held_from(completions, ends[2:], EPOCH, expires=True) == times[2]


def test_a_lost_reply_is_no_failure(simulated: Simulated) -> None:
    lost: list[str] = []

    def script(operation: str, path: str, call: Callable[[], Any]) -> Any:
        answer = call()
        if operation == "put" and "/readers/" in path and path not in lost:
            lost.append(path)
            raise mor.errors.CommitUnknownError("no reply")
        return answer

    store = ScriptedStore(simulated.store, script)
    opening = mor.Opening(store=store, environment=simulated.environment)
    table = mor.Table.create("simulated", SCHEMA, key="id", opening=opening)
    table.upsert(pl.DataFrame({"id": ["a"], "views": [1]}))
    table.changes(reader="billing").done()
    assert read(table) == []
    assert len(lost) == 2


def test_a_place_ahead_of_a_value_that_was_read_before_is_not_lost(
    table: mor.Table, write: Callable[..., None]
) -> None:
    write("a")
    value = tail_of(table)
    write("b")
    table.changes(reader="billing").done()
    (lag,) = lags(session_of(table), value, 0, recorded(store_of(table)))
    assert (lag.commits, lag.is_lost) == (0, False)


def test_what_a_reader_costs() -> None:
    bucket = Bucket()
    with bucket.counting():
        opening = mor.Opening(store=bucket.store())
        table = mor.Table.create("s3://counted/table", SCHEMA, key="id", opening=opening)
        row = pl.DataFrame({"id": ["a"], "views": [1]})
        table.upsert(row)
        table.changes(reader="billing").done()
        table.upsert(row)
        plain = bucket.count(table.changes)
        named = bucket.count(lambda: table.changes(reader="billing"))
        changes = table.changes(reader="billing")
        done = bucket.count(changes.done)
        told = bucket.count(lambda: table.changes(changes.checkpoint, reader="billing"))
    assert named.requests == plain.requests + 1
    assert done.requests == 2, done
    assert told.requests == plain.requests

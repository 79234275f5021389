"""What the page shows of a table, as values: health, conflicts, file groups, growth, lives."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.cli import render
from crdt_mor.cli.ui import conflicts, report
from crdt_mor.cli.ui.report import life_of_text, lives, report_of
from crdt_mor.log.paths import POSTS
from crdt_mor.model.instant import from_ms
from crdt_mor.testing.simulation.hudi_writer import hudi_commits
from tests.inside import store_of
from tests.posting import in_a_crowd, post
from tests.simulated import Simulated
from tests.ui.story import shop

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64())])


@pytest.fixture(scope="module")
def shown() -> mor.Table:
    """The shop, which no test writes to."""
    return shop()


@pytest.fixture(scope="module")
def told(shown: mor.Table) -> dict[str, Any]:
    """The report of the shop, as a browser gets it."""
    return dict(json.loads(render.as_json(report_of(shown, "s3://lake/shop"))))


@pytest.fixture
def world() -> Simulated:
    return Simulated()


def rows(*ids: int, day: str = "mon") -> pa.Table:
    return pa.table({"id": list(ids), "day": [day] * len(ids), "n": [1] * len(ids)}, schema=SCHEMA)


def signs(table: mor.Table) -> dict[str, tuple[str, str]]:
    return {sign["check"]: (sign["state"], sign["text"]) for sign in report_of(table, "t")["health"]}


# --- health -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_wants_an_act_comes_first_and_says_which_process_it_is(told: dict[str, Any]) -> None:
    states = [sign["state"] for sign in told["health"]]
    assert states == sorted(states, key=["wrong", "note", "fine"].index)
    first = told["health"][0]
    assert (first["check"], first["state"]) == ("stuck writer", "wrong")
    assert first["text"].startswith("report (1 on simulated), since 2023-11-14 23:43:20 UTC")
    assert "silent for 7 min 20 s: nightly report" in first["text"]
    (pending,) = [row for row in told["timeline"]["pending"] if row["stuck"]]
    assert f"crdt-mor rollback s3://lake/shop {pending['requested_at']}" in first["advice"]
    assert "compaction after 2023-11-14 23:53:20 UTC rolls it back" in first["advice"]
    assert told["stable_before"] == pending["requested_at"]
    assert {sign["check"] for sign in told["health"]} >= {"pending write", "upkeep", "other engines", "posts"}


def test_a_table_that_nothing_is_wrong_with_says_so(world: Simulated) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    table.upsert(rows(1))
    table.maintenance.maintain()
    assert {state for state, _ in signs(table).values()} == {"fine"}


def test_reads_are_slow_where_readers_merge_much(world: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    table.upsert(rows(*range(500)))
    monkeypatch.setattr("crdt_mor.cli.ui.health.SMALL_BYTES", 1)
    state, said = signs(table)["reads are slow"]
    assert (state, said.startswith("1 log file of ")) == ("wrong", True)
    table.maintenance.compact()
    assert "reads are slow" not in signs(table)


def test_many_log_files_and_small_ones_are_told(world: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    table = world.create(SCHEMA, key="id", buckets=2)
    for n in range(3):
        table.upsert(rows(*range(n, n + 20)))
    monkeypatch.setattr("crdt_mor.cli.ui.health.LOGS_MANY", 3)
    monkeypatch.setattr("crdt_mor.cli.ui.health.SMALL_MANY", 2)
    found = signs(table)
    state, said = found["many log files"]
    assert (state, said.startswith("6 log files of"), said.endswith("3 in one file group at most")) == (
        "note",
        True,
        True,
    )
    monkeypatch.setattr("crdt_mor.cli.ui.health.LOGS_SLOW", 3)
    assert signs(table)["reads are slow"][0] == "wrong"
    assert found["small files"] == ("note", "2 of 2 file groups are smaller than 4.0 MiB: a scan opens all of them")


def test_posts_that_wait_are_told_from_those_that_nobody_takes_any_more(world: Simulated) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    post(table, rows(1))
    (row,) = table.inspect.posts().to_pylist()
    assert (row["kind"], row["state"]) == ("write", "waiting")
    assert signs(table)["posts"] == ("note", "1 small write about to be committed in a group")
    world.environment.sleep(61)
    (row,) = table.inspect.posts().to_pylist()
    assert (row["state"], row["waits"].total_seconds() >= 61, row["bytes"] > 100) == ("old", True, True)
    assert signs(table)["posts"][1].startswith("1 small write has waited for over a minute")


def test_a_post_that_was_taken_has_ended(world: Simulated) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    table.upsert(rows(0))
    name = post(table, rows(1))
    (path,) = [stat.path for stat in store_of(table).list(POSTS)]
    data = store_of(table).read(path)
    assert data is not None
    in_a_crowd(table).upsert(rows(2))
    store_of(table).put(path, data)  # its owner is slow to remove it
    (row,) = table.inspect.posts().to_pylist()
    assert (row["name"], row["state"]) == (name.name, "ended")
    assert signs(table)["posts"] == ("fine", "no small write waits")


def test_commits_that_hudi_is_not_told_of_yet_are_counted(world: Simulated) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    commit = table.upsert(rows(1))
    assert table.inspect.unprojected().num_rows == 0
    (path,) = [stat.path for stat in store_of(table).list(".hoodie/timeline") if stat.path.endswith(".deltacommit")]
    store_of(table).delete(path)  # as if the publisher had died before it put the file
    (row,) = table.inspect.unprojected().to_pylist()
    assert (row["requested_at"], row["completed_at"]) == (commit.requested_at, commit.completed_at)
    assert signs(table)["Hudi's readers"] == ("note", "1 commit not yet in Hudi's timeline")
    table.upsert(rows(2))
    assert table.inspect.unprojected().num_rows == 0


def test_a_failed_compaction_is_wrong(world: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    table.upsert(rows(1))
    failed = mor.results.Maintained(
        (mor.results.Upkeep("compaction", "failed", "", error="a payload raised"),), dry_run=True
    )
    monkeypatch.setattr(type(table.maintenance), "maintain", lambda *_, **__: failed)
    assert signs(table)["compaction"] == ("wrong", "compaction failed: a payload raised")


def test_a_table_that_has_a_damaged_file_is_shown_with_what_is_wrong(world: Simulated) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    table.upsert(rows(1))
    table.upsert(rows(2))
    path = str(table.inspect.files()["path"][0])
    store_of(table).delete(path)
    store_of(table).put(path, b"no log at all")
    other = mor.Table("simulated", opening=mor.Opening(store=world.store, environment=world.environment))
    found = report_of(other, "t")
    first = found["health"][0]
    assert (first["check"], first["state"]) == ("the number of rows cannot be read", "wrong")
    assert path.rpartition("/")[2] in first["text"]
    assert found["overview"]["rows"] is None
    assert len(found["timeline"]["commits"]) == 2


def test_a_slow_table_says_whether_its_policies_ask_for_a_compaction(
    world: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crdt_mor.cli.ui.health.SMALL_BYTES", 1)
    table = world.create(SCHEMA, key="id", buckets=1)
    for _ in range(3):
        table.upsert(rows(1))
    (sign,) = [sign for sign in report_of(table, "here")["health"] if sign["check"] == "reads are slow"]
    asked = "crdt-mor compact here merges them now; the table's policies do not require this yet."
    assert sign["advice"] == asked
    for _ in range(9):
        table.upsert(rows(1))
    (sign,) = [sign for sign in report_of(table, "here")["health"] if sign["check"] == "reads are slow"]
    assert sign["advice"] == "crdt-mor compact here merges them now; this is due in crdt-mor maintain."


# --- conflicts --------------------------------------------------------------------------------------------------------


def overlapping(table: mor.Table, first: pa.Table, second: pa.Table) -> None:
    """Two commits in flight at once."""
    with table.transaction() as one:
        one.upsert(first)
        with table.transaction() as other:
            other.upsert(second)


def test_keys_that_overlapping_commits_wrote_are_conflicts_and_others_are_not(world: Simulated) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    table.upsert(rows(1, 2, 3, 4))
    overlapping(table, rows(1, 2), rows(2, 3))
    table.upsert(rows(2, 4))
    found = report_of(table, "t")["conflicts"]
    assert found["keys"] == [{"text": "2", "has_life": True, "partition": "", "commits": [2, 3]}]
    assert (found["count"], found["left_out"]) == (1, "")


def test_the_same_key_in_two_partitions_is_no_conflict(world: Simulated) -> None:
    with pytest.warns(mor.errors.PartitionNotInKeyWarning):
        table = world.create(SCHEMA, key="id", partition_by="day", buckets=1)
    overlapping(table, rows(1, 2, day="mon"), rows(1, day="tue"))
    assert report_of(table, "t")["conflicts"]["keys"] == []
    overlapping(table, rows(1, 2, day="mon"), rows(2, day="mon"))
    (key,) = report_of(table, "t")["conflicts"]["keys"]
    assert (key["text"], key["partition"]) == ("2", "day=mon")


def test_conflicts_are_found_in_any_history_as_by_hand(world: Simulated) -> None:
    """Each pair of commits that overlap is asked for the keys that both wrote."""
    table = world.create(SCHEMA, key="id", buckets=2)
    open_: list[mor.Transaction] = []
    wrote: dict[str, set[int]] = {}
    for step in range(24):
        if step % 3 < 2:
            open_.append(table.transaction().__enter__())
        else:
            transaction = open_.pop(step % len(open_))
            ids = {(step * 7 + i * 3) % 5 for i in range(3)}
            transaction.upsert(rows(*sorted(ids)))
            transaction.__exit__(None, None, None)
            assert transaction.commit is not None
            wrote[transaction.commit.completed_at] = ids
        world.environment.sleep(0.01)
    history = table.history().to_pylist()
    keys = {row["ordinal"]: wrote.get(row["completed_at"], set()) for row in history}
    expected: dict[str, set[int]] = {}
    for row in history:
        for other in row["overlaps"]:
            for key in keys[row["ordinal"]] & keys[other]:
                expected.setdefault(str(key), set()).update({row["ordinal"], other})
    found = {key["text"]: set(key["commits"]) for key in report_of(table, "t")["conflicts"]["keys"]}
    assert found == expected
    assert found


def test_history_that_was_given_up_is_left_out(world: Simulated) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    overlapping(table, rows(1), rows(1))
    table.maintenance.compact()
    world.environment.sleep(7200)
    table.upsert(rows(5))
    table.maintenance.clean(commits=1, readers=timedelta(0))
    overlapping(table, rows(2), rows(2))
    found = report_of(table, "t")["conflicts"]
    assert [key["text"] for key in found["keys"]] == ["2"]
    assert found["left_out"] == "the rows of older commits are no longer retained"
    assert report_of(table, "t")["growth"]


def test_commits_that_are_too_large_are_not_read(world: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    overlapping(table, rows(*range(50)), rows(1))
    monkeypatch.setattr(conflicts, "ROWS_MAX", 10)
    found = report_of(table, "t")["conflicts"]
    assert (found["count"], found["left_out"]) == (
        0,
        "of the commits on this page, only the newest with at most 10 rows and 2,000 files were read",
    )
    monkeypatch.setattr(conflicts, "ROWS_MAX", 100)
    assert report_of(table, "t")["conflicts"]["count"] == 1
    monkeypatch.setattr(conflicts, "FILES_MAX", 1)
    assert report_of(table, "t")["conflicts"]["count"] == 0


# --- file groups, growth, lives ---------------------------------------------------------------------------------------


def test_file_groups_have_the_sums_of_their_files(world: Simulated) -> None:
    table = world.create(SCHEMA, key="id", buckets=4)
    table.upsert(rows(*range(20)))
    table.maintenance.compact()
    for number in range(3):
        table.upsert(rows(*range(number, 20)))
    told = json.loads(render.as_json(report_of(table, "here")))
    groups = told["groups"]["shown"]
    files = pl.DataFrame(table.inspect.files())
    for name, is_base in (("base_bytes", True), ("log_bytes", False)):
        kinds = files.filter((pl.col("kind") == "base") == is_base)
        assert sum(group[name] for group in groups) == kinds["bytes"].sum() > 0
    assert [group["log_bytes"] for group in groups] == sorted((g["log_bytes"] for g in groups), reverse=True)
    assert told["groups"]["count"] == len(groups) == 4


@pytest.mark.slow
def test_growth_falls_where_a_compaction_was(told: dict[str, Any]) -> None:
    compactions = {row["version"] for row in told["timeline"]["commits"] if row["kind"] == "compaction"}
    logs = {point["version"]: point["logs"] for point in told["growth"]}
    assert 0 in [logs[version] for version in compactions & set(logs)] or min(logs.values()) < max(logs.values()) / 4
    assert told["growth"][-1]["logs"] == sum(group["logs"] for group in told["groups"]["shown"])
    assert len(told["growth"]) <= 41


@pytest.mark.slow
def test_lives_are_of_the_keys_asked_for_and_of_the_first_conflicts(told: dict[str, Any], shown: mor.Table) -> None:
    found = lives(shown, ["item-399", "no such"], told["conflicts"])
    assert [life["text"] for life in found[:2]] == ["item-399", "no such"]
    assert len(found) == 2 + report.LIVES_MAX
    assert found[1]["lines"] == []
    assert (
        found[0]["lines"][-1]["result"]["price"]
        == shown.scan(filter="id = 'item-399'").to_polars()["price"].cast(pl.String)[0]
    )


@pytest.mark.parametrize("key", ["1,mon", '2,"mon, tue"'])
def test_a_key_of_several_columns_is_found_by_the_text_that_the_page_gives_it(world: Simulated, key: str) -> None:
    table = world.create(SCHEMA, key=["id", "day"], buckets=1)
    both = pa.concat_tables([rows(1), rows(2, day="mon, tue")])
    overlapping(table, both, both)
    found = report_of(table, "t")["conflicts"]["keys"]
    assert key in {one["text"] for one in found}
    assert len(life_of_text(table, key)["lines"]) == 2


def test_integers_that_a_browser_would_round_are_texts(world: Simulated) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    table.upsert(pa.table({"id": [2**60 + 1], "day": ["mon"], "n": [-(2**62) - 1]}, schema=SCHEMA))
    (line,) = life_of_text(table, str(2**60 + 1))["lines"]
    assert line["result"] == {"id": str(2**60 + 1), "day": "mon", "n": str(-(2**62) - 1)}


def test_a_contribution_of_what_the_row_has_already_says_so(world: Simulated) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    table.upsert(rows(1))
    table.upsert(rows(1))
    assert [line["same"] for line in life_of_text(table, "1")["lines"]] == [False, True]


@pytest.mark.parametrize("text", ["x\ry", "\ufeff", "\ufeffx", "a\x07b", "a\nb", " x "])
def test_texts_of_keys_keep_all_of_their_characters(world: Simulated, text: str) -> None:
    table = world.create(pa.schema([("id", pa.string()), ("v", pa.string())]), key="id", buckets=1)
    others = sorted({text.replace(odd, "") for odd in ("\r", "\ufeff", "\x07", "\n", " ")} - {text, ""})
    table.upsert(pa.table({"id": others, "v": ["other"] * len(others)}))
    own = pa.table({"id": [text], "v": [text]})
    overlapping(table, own, own)
    (key,) = report_of(table, "t")["conflicts"]["keys"]
    assert key["text"] == text
    assert life_of_text(table, text)["lines"][-1]["result"] == {"id": text, "v": text}


def test_of_a_key_with_a_null_no_life_is_told_for_that_of_an_empty_text(world: Simulated) -> None:
    table = world.create(pa.schema([("a", pa.string()), ("b", pa.string())]), key=["a", "b"], buckets=1)
    odd = pa.table({"a": ["x"], "b": pa.array([None], pa.string())})
    overlapping(table, odd, odd)
    found = report_of(table, "t")["conflicts"]
    assert [(key["text"], key["has_life"]) for key in found["keys"]] == [("x,", False)]
    assert lives(table, [], found) == []


# --- tables that are hard to show -------------------------------------------------------------------------------------


def test_of_an_erased_key_the_page_knows_what_is_kept(world: Simulated) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    overlapping(table, rows(1, 2), rows(1, 2))
    table.maintenance.erase(keys=[1])
    found = report_of(table, "t")["conflicts"]
    assert (found["keys"], found["left_out"]) == ([], "the rows of older commits are no longer retained")
    overlapping(table, rows(2), rows(2))
    assert [key["text"] for key in report_of(table, "t")["conflicts"]["keys"]] == ["2"]


def test_commits_of_hudis_that_no_version_has_yet_are_no_fault(world: Simulated) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    table.upsert(rows(1))
    world.environment.sleep(1)
    now = world.environment.now_ms()
    hudi_commits(table, rows(2), from_ms(now - 10), from_ms(now - 5))
    world.environment.sleep(70)
    found = report_of(table, "t")
    assert [row["adopted"] for row in found["timeline"]["commits"]] == [True, False]
    assert [sign["check"] for sign in found["health"] if "cannot" in sign["check"]] == []
    assert len(found["growth"]) == 1


@pytest.mark.parametrize("settings", [{"key": "d"}, {"key": ["id", "d"], "partition_by": "d"}, {"key": "id"}])
def test_days_that_python_has_not_are_shown(settings: dict[str, Any]) -> None:
    """As a key, as a partition, and as a value of a life."""
    schema = pa.schema([("id", pa.int64()), ("d", pa.date32()), ("t", pa.timestamp("us"))])
    columns = [pa.array([1]), pa.array([2**22], pa.date32()), pa.array([2**61], pa.timestamp("us"))]
    far = pa.table(columns, schema=schema)
    table = Simulated().create(schema, buckets=1, **settings)
    overlapping(table, far, far)
    found = report_of(table, "t")["conflicts"]
    (life,) = lives(table, [], found)
    assert (found["count"], "13453-08-13" in str(life) or "error" in life) == (1, True)
    if settings["key"] == "id":
        assert life["lines"][-1]["result"] == {"id": "1", "d": "13453-08-13", "t": f"<value out of range: {2**61}>"}


@pytest.mark.parametrize("name", ["_ordinal", "completed", "0", "version", "__proto__"])
def test_a_key_column_may_have_any_name(world: Simulated, name: str) -> None:
    table = world.create(pa.schema([(name, pa.string())]), key=name, buckets=1)
    both = pa.table({name: ["a"]})
    overlapping(table, both, both)
    assert [key["text"] for key in report_of(table, "t")["conflicts"]["keys"]] == ["a"]


def test_a_key_whose_life_cannot_be_told_is_no_reason_for_no_page(world: Simulated) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    overlapping(table, rows(1), rows(1))
    found = report_of(table, "t")["conflicts"]
    for path in table.inspect.files()["path"].to_pylist():
        store_of(table).delete(path)
    other = mor.Table("simulated", opening=mor.Opening(store=world.store, environment=world.environment))
    (life,) = lives(other, [], found)
    assert (life["text"], "error" in life) == ("1", True)
    with pytest.raises(mor.InvalidInputError, match="match its column's type"):
        lives(other, ["no number"], found)


def test_a_table_that_has_moved_says_where(world: Simulated) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    table.upsert(rows(1))
    table.maintenance.migrate("elsewhere", buckets=2, store=Simulated().store)
    found = report_of(table, "t")
    (moved,) = [sign for sign in found["health"] if sign["check"] == "moved"]
    assert (moved["state"], "elsewhere" in moved["text"], found["upkeep"]) == ("note", True, None)
    assert "upkeep" not in {sign["check"] for sign in found["health"]}


def test_growth_looks_at_fewer_moments_of_a_table_with_many_files(
    world: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create(SCHEMA, key="id", buckets=1)
    for number in range(12):
        table.upsert(rows(number))
    assert len(report_of(table, "t")["growth"]) == 12
    monkeypatch.setattr("crdt_mor.cli.ui.report.FILES_MAX", 1)
    found = report_of(table, "t")["growth"]
    assert [point["logs"] for point in found] == [1, 4, 7, 10, 12]

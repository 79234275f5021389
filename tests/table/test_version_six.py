"""Tables of Hudi's from before version 8: their latest snapshot is read, and all else is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pyarrow as pa
import pytest

from crdt_mor import InvalidInputError, Table
from crdt_mor.errors import UnsupportedFeatureError
from tests.table.version_six import SCHEMA, VersionSix, gone_block, rollback_block, row_block
from tests.table.version_six_histories import History
from tests.tiers import seeds


@pytest.fixture
def table() -> VersionSix:
    """A base file, and a log on it to which two commits appended."""
    table = VersionSix(hoodie__table__timeline__timezone="UTC")
    table.commit(10, table.base(10, {"a": 1, "b": 1, "c": 1}))
    table.commit(20, table.log(10, row_block(20, {"a": 2, "d": 2})))
    table.commit(30, table.log(10, row_block(30, {"b": 3}), gone_block(30, ["c"])))
    return table


BEFORE = {"a": 2, "b": 3, "d": 2}


def test_several_commits_in_one_log(table: VersionSix) -> None:
    assert table.rows() == BEFORE
    assert table.open().scan().count() == 3


def test_a_write_that_has_not_completed_is_not_seen(table: VersionSix) -> None:
    table.begin(40)
    table.log(10, row_block(40, {"a": 4, "e": 4}))
    table.base(40, {"f": 4}, group="new")
    table.log(40, row_block(40, {"g": 4}), group="newer")
    assert table.rows() == BEFORE
    table.forget(40)
    assert table.rows() == BEFORE, "rolled back, and its files are still there"


def test_a_rollback_undoes_what_is_in_this_log_and_in_earlier_ones(table: VersionSix) -> None:
    table.log(10, row_block(40, {"a": 4, "e": 4}))
    table.log(10, gone_block(40, ["b"]), number=2)
    table.log(10, rollback_block(41, 40), number=3)
    table.commit(50, table.log(10, row_block(50, {"d": 5}), number=3))
    assert table.rows() == BEFORE | {"d": 5}
    table.forget(10, 20, 30)
    assert table.rows() == BEFORE | {"d": 5}, "archived: the rollback alone says that it was none of the commits"


def test_what_was_archived_is_found_by_a_list_of_the_files(table: VersionSix) -> None:
    table.commit(50, table.log(10, row_block(50, {"d": 5}), number=2))
    table.commit(51, table.base(51, {"z": 1}, group="other"))
    table.forget(10, 20, 30)
    assert table.rows() == BEFORE | {"d": 5, "z": 1}
    table.forget(50)
    found = table.open()
    assert table.rows() == BEFORE | {"d": 5, "z": 1}
    assert found.scan().count() == 4
    assert found.scan(filter="v = 5").count() == 1
    assert found.history()["operation"].to_pylist() == ["DELTACOMMIT", "ARCHIVED"]


def test_an_old_write_that_never_ended_stays_unseen_when_later_ones_are_archived(table: VersionSix) -> None:
    table.begin(40)
    table.log(10, row_block(40, {"a": 4}))
    table.base(40, {"f": 4}, group="new")
    table.commit(50, table.log(10, row_block(50, {"d": 5})))
    table.forget(10, 20, 30)
    assert table.rows() == BEFORE | {"d": 5}


def test_logs_behind_a_compaction_that_is_only_planned(table: VersionSix) -> None:
    table.plan(40, 10)
    table.commit(50, table.log(40, row_block(50, {"a": 5})))
    assert table.rows() == BEFORE | {"a": 5}
    table.base(40, BEFORE)
    assert table.rows() == BEFORE | {"a": 5}, "its base file is there, and it is not completed"
    table.commit(40, f"g_1-2-3_{'20240101000000040'}.parquet", action="commit")
    assert table.rows() == BEFORE | {"a": 5}


def test_a_superseded_slice_that_was_cleaned_is_not_missed(table: VersionSix) -> None:
    base = table.base(40, BEFORE)
    table.commit(40, base, action="commit")
    table.commit(50, table.log(40, row_block(50, {"a": 5})))
    for stat in table.store.walk(""):
        if "000000010" in stat.path:
            table.store.delete(stat.path)
    assert table.rows() == BEFORE | {"a": 5}
    table.store.delete(base)
    with pytest.raises(Exception, match=r"g_1-2-3_20240101000000040\.parquet"):
        table.rows()


def test_groups_without_a_base_file_and_one_that_a_failed_write_began(table: VersionSix) -> None:
    table.commit(40, table.log(40, row_block(40, {"x": 4}), group="logs"))
    table.commit(50, table.log(40, row_block(50, {"y": 5}), gone_block(50, ["x"]), group="logs"))
    table.log(41, row_block(41, {"gone": 1}), rollback_block(42, 41), group="failed")
    table.commit(60, table.log(60, row_block(60, {"w": 6}), group="failed"))
    assert table.rows() == BEFORE | {"y": 5, "w": 6}
    table.forget(10, 20, 30, 40, 50)
    assert table.rows() == BEFORE | {"y": 5, "w": 6}
    table.log(42, row_block(42, {"gone": 1}), rollback_block(43, 42), group="empty")
    assert table.rows() == BEFORE | {"y": 5, "w": 6}


def test_replaced_file_groups(table: VersionSix) -> None:
    table.begin(40, "replacecommit")
    table.base(40, {"n": 4}, group="new")
    assert table.rows() == BEFORE
    table.commit(40, "new_1-2-3_20240101000000040.parquet", action="replacecommit", replaced=["g"])
    assert table.rows() == {"n": 4}


def test_copy_on_write() -> None:
    table = VersionSix(hoodie__table__type="COPY_ON_WRITE")
    assert table.rows() == {}
    table.commit(10, table.base(10, {"a": 1, "b": 1}), action="commit")
    table.commit(20, table.base(20, {"a": 2, "b": 1}), action="commit")
    table.begin(30, "commit")
    table.base(30, {"a": 3})
    assert table.rows() == {"a": 2, "b": 1}
    table.forget(10)
    assert table.rows() == {"a": 2, "b": 1}


def test_a_base_file_of_an_attempt_that_the_commit_does_not_name(table: VersionSix) -> None:
    path = table.base(40, {"n": 4}, group="new")
    attempt = table.store.read(path)
    assert attempt is not None
    table.store.put(path.replace("1-2-3", "1-2-9"), attempt)
    table.commit(40, path)
    assert table.rows() == BEFORE | {"n": 4}


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda table: table.scan(as_of="20240101000000020"),
        lambda table: table.changes(since="20240101000000020").to_arrow(),
        lambda table: table.changes().to_arrow(),
        lambda table: table.inspect.files(as_of="20240101000000020"),
    ],
    ids=["scan", "changes since", "all changes", "files"],
)
def test_earlier_moments_and_changes_are_refused(table: VersionSix, ask: Callable[[Table], object]) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"before version 8.*version 9"):
        ask(table.open())


def test_the_latest_moment_is_read_by_any_of_its_names(table: VersionSix) -> None:
    found = table.open()
    for moment in ("now", "20240101000000030"):
        assert found.scan(as_of=moment).count() == 3


ROW = pa.table({"id": ["a"], "v": [1]}, SCHEMA)
WRITES: dict[str, Callable[[Table], object]] = {
    "upsert": lambda table: table.upsert(ROW),
    "append": lambda table: table.append(ROW),
    "delete": lambda table: table.delete(keys=ROW.select(["id"])),
    "delete by a filter": lambda table: table.delete(where="v = 2"),
    "update": lambda table: table.update({"v": "v + 1"}),
    "overwrite": lambda table: table.overwrite(ROW),
    "truncate": lambda table: table.truncate(),
    "compact": lambda table: table.maintenance.compact(),
    "clean": lambda table: table.maintenance.clean(),
    "archive": lambda table: table.maintenance.archive(),
    "plan": lambda table: table.maintenance.plans.schedule(),
    "erase": lambda table: table.maintenance.erase(where="v = 2"),
    "properties": lambda table: table.set_properties({"crdt_mor.cluster_by": "v"}),
    "restore": lambda table: table.maintenance.restore(0),
}


@pytest.mark.parametrize("name", WRITES)
def test_writing_is_refused_and_leaves_nothing(table: VersionSix, name: str) -> None:
    before = {stat.path for folder in ("", ".hoodie") for stat in table.store.walk(folder)}
    with pytest.raises(InvalidInputError, match="version 6 can be read, but not written: upgrade the table with Hudi"):
        WRITES[name](table.open())
    assert {stat.path for folder in ("", ".hoodie") for stat in table.store.walk(folder)} == before


def test_upkeep_that_is_due_leaves_nothing(table: VersionSix) -> None:
    before = {stat.path for folder in ("", ".hoodie") for stat in table.store.walk(folder)}
    table.open().maintenance.maintain()
    assert {stat.path for folder in ("", ".hoodie") for stat in table.store.walk(folder)} == before


def test_holes_that_an_archive_left_beyond_a_savepoint(table: VersionSix) -> None:
    """An instant between may have been archived, or have failed: only the archive would tell."""
    table.commit(40, table.log(10, row_block(40, {"d": 4})))
    table.store.put(".hoodie/20240101000000010.savepoint", b"")
    table.forget(20, 30)
    assert table.rows() == {"a": 1, "b": 1, "c": 1, "d": 4}, "nothing is archived: they have failed"
    table.store.put(".hoodie/archived/.commits_.archive.1_1-0-1", b"")
    with pytest.raises(
        UnsupportedFeatureError, match=r"archived instants after a savepoint.*instant=20240101000000020"
    ):
        table.rows()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda table: table.store.put(".hoodie/20240101000000.deltacommit", b"{}"), "time has only seconds"),
        (lambda table: table.log(10, b"#HUDI#garbage"), "damaged log file"),
    ],
    ids=["old times", "damage"],
)
def test_what_cannot_be_read_is_refused(table: VersionSix, change: Callable[[VersionSix], object], what: str) -> None:
    change(table)
    with pytest.raises(Exception, match=what):
        table.rows()


def test_a_table_whose_commits_say_no_columns() -> None:
    table = VersionSix(hoodie__table__create__schema=None)
    table.commit(10, table.base(10, {"a": 1}), schema="")
    with pytest.raises(UnsupportedFeatureError, match="contain its columns"):
        table.rows()


@pytest.mark.costly
@pytest.mark.parametrize("seed", seeds(range(6), range(6, 60)))
def test_random_histories(seed: int) -> None:
    history = History(Random(seed))
    for _ in range(20):
        history.step()
        assert history.table.rows() == history.expected


# --- upgraded to version 9 --------------------------------------------------------------------------------------------


def test_an_upgraded_table_shows_each_moment_before_it(table: VersionSix) -> None:
    """Hudi has compacted the logs away, and the files are still there."""
    table.log(10, row_block(40, {"a": 4, "e": 4}))
    table.log(10, rollback_block(41, 40), number=2)
    table.commit(50, table.log(10, row_block(50, {"d": 5})))
    table.commit(51, table.log(51, row_block(51, {"x": 1}), group="logs"))
    table.log(51, row_block(52, {"x": 2, "y": 2}), group="logs")
    table.log(51, rollback_block(53, 52), number=2, group="logs")
    last = BEFORE | {"d": 5, "x": 1}
    assert table.rows() == last
    table.commit(60, table.base(60, {"a": 2, "b": 3, "d": 5}), table.base(60, {"x": 1}, group="logs"), action="commit")
    table.upgrade()
    found = table.open()
    moments = {11: {"a": 1, "b": 1, "c": 1}, 21: {"a": 2, "b": 1, "c": 1, "d": 2}, 31: BEFORE}
    for moment, shown in (moments | {51: BEFORE | {"d": 5}, 52: last, 61: last}).items():
        assert shown_by(found, moment) == shown, moment
    assert found.inspect.files(as_of="20240101000000031").num_rows == 2
    assert by_change(found, 12, 31) == {
        ("a", 2): "upsert", ("b", 3): "upsert", ("c", None): "delete", ("d", 2): "upsert"
    }  # fmt: skip
    assert by_change(found, 21, 52, raw=True) == {
        ("b", 3): "upsert", ("c", None): "delete", ("d", 5): "upsert", ("x", 1): "upsert"
    }  # fmt: skip


def by_change(table: Table, since: int, until: int, *, raw: bool = False) -> dict[tuple[str, int | None], str]:
    """Each change once."""
    changes = table.changes(f"20240101{since:09}", until=f"20240101{until:09}", raw=raw).to_arrow().to_pylist()
    found = {(row["id"], row["v"]): row["_change_type"] for row in changes}
    assert len(found) == len(changes)
    return found


def shown_by(table: Table, moment: int) -> dict[str, int]:
    rows = table.scan(as_of=f"20240101{moment:09}").to_arrow().to_pylist()
    return {row["id"]: row["v"] for row in rows}


@pytest.mark.costly
@pytest.mark.parametrize("seed", seeds(range(3), range(3, 40)))
def test_random_histories_before_an_upgrade(seed: int) -> None:
    history = History(Random(seed), keeps_all=True)
    moments = {}
    for _ in range(15):
        history.step()
        if history.active:
            moments[history.time + 8] = history.expected
    history.time += 10
    history.write()
    history.time += 10
    for name, group in history.groups.items():
        if group.planned is None:
            history.table.plan(history.time, group.slice, name)
            history.plans[history.time], group.planned = name, dict(group.rows)
            history.time += 10
    history.compact()
    history.table.upgrade()
    table = history.table.open()
    for moment, expected in moments.items():
        assert shown_by(table, moment) == expected, moment
    for since, until in pairwise(moments):
        after = dict(moments[since])
        for (key, value), change in by_change(table, since, until).items():
            after.pop(key, None)
            after |= {key: value} if change == "upsert" and value is not None else {}
        assert after == moments[until], (since, until)
    assert history.table.rows() == history.expected

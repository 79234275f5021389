"""Why a row is as it is: lives told by hand, for each merge, payload and service, through each door."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor import payloads as p
from crdt_mor.cli.main import app
from tests.posting import in_a_crowd, post

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("s", pa.string())])


def rows(*given: dict[str, Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(list(given), schema)


def told(table: mor.Table, key: object = "a", **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.why(key, **options).to_pylist(maps_as_pydicts="strict")
    return found


def life(table: mor.Table, key: object = "a", **options: Any) -> list[tuple[str, Any, str, Any]]:
    """Of each contribution what it is, what it gives, its effect, and the row after it."""
    return [(line["change"], line["written"], line["effect"], line["result"]) for line in told(table, key, **options)]


def v(number: int | None, text: str | None = None) -> dict[str, Any]:
    return {"id": "a", "v": number, "s": text}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t"


# --- each merge -------------------------------------------------------------------------------------------------------


def test_the_commit_that_was_requested_last_gives_the_row(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id")
    with table.transaction() as straggler:
        straggler.upsert(rows(v(1)))
        table.upsert(rows(v(2), {"id": "b", "v": 9, "s": None}))
    table.upsert(rows(v(2)))
    table.delete(keys=["a"])
    assert life(table) == [
        ("upsert", v(1), "inserted", v(1)),
        ("upsert", v(2), "updated", v(2)),
        ("upsert", v(2), "none", v(2)),
        ("delete", None, "deleted", None),
    ]
    found = told(table)
    assert found[0]["completed_at"] > found[1]["completed_at"]
    assert [line["overtaken_by"] for line in found] == [[found[1]["requested_at"]], [], [], []]
    assert [line["changed"] for line in found] == [["id", "v"], ["v"], [], ["id", "v"]]
    assert found[1]["because"] == "the last requested commit sets the whole row"
    assert found[3]["because"] == "a delete removes all earlier contributions"


def test_the_greatest_ordering_value_wins(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id", ordering="v")
    table.upsert(rows(v(5, "five")))
    table.upsert(rows(v(3, "three")))
    table.delete(rows(v(4)))
    table.upsert(rows(v(5, "again")))
    table.delete(rows(v(7)))
    table.upsert(rows(v(6, "six")))
    table.delete(keys=["a"], plain=True)
    table.upsert(rows(v(1, "one")))
    assert life(table) == [
        ("upsert", v(5, "five"), "inserted", v(5, "five")),
        ("upsert", v(3, "three"), "none", v(5, "five")),
        ("delete", None, "none", v(5, "five")),
        ("upsert", v(5, "again"), "updated", v(5, "again")),
        ("delete", None, "deleted", None),
        ("upsert", v(6, "six"), "none", None),
        ("delete", None, "none", None),
        ("upsert", v(1, "one"), "inserted", v(1, "one")),
    ]
    assert [line["because"] for line in told(table)] == [
        "no row exists yet to compare v with",
        "v 3 is less than the row's 5",
        "v 4 is less than the row's 5",
        "v 5 is not less than the row's 5",
        "v 7 is not less than the row's 5",
        "v 6 is less than the value of a delete",
        "a delete removes all earlier contributions",
        "no row exists yet to compare v with",
    ]


@pytest.mark.parametrize("nulls", ["value", "keep"])
def test_partial_updates_set_the_columns_that_they_give(path: Path, nulls: Any) -> None:
    table = mor.Table.create(path, SCHEMA, key="id", merge=mor.PartialUpdate(nulls=nulls))
    table.upsert(pa.table({"id": ["a"], "v": [1]}))
    table.upsert(pa.table({"id": ["a"], "s": ["x"]}))
    table.upsert(pa.table({"id": ["a"], "v": pa.array([None], pa.int64())}))
    last = v(1, "x") if nulls == "keep" else v(None, "x")
    assert life(table) == [
        ("upsert", v(1), "inserted", v(1)),
        ("upsert", v(None, "x"), "updated", v(1, "x")),
        ("upsert", v(None), "none" if nulls == "keep" else "updated", last),
    ]
    assert [line["columns"] for line in told(table)] == [["id", "v"], ["id", "s"], ["id", "v"]]
    assert [line["written"] for line in told(table, column="s")] == [{"s": None}, {"s": "x"}], "the first makes the row"
    said = "id, s: the value of the last requested commit" + (", except nulls" if nulls == "keep" else "")
    assert told(table)[1]["because"] == said


TOLD: dict[str, tuple[Any, pa.DataType, list[Any], list[Any]]] = {
    "counter": (p.Counter(), pa.int64(), [3, -1, None, 4], [3, 2, 2, 6]),
    "max": (p.Max(), pa.int64(), [3, 5, 4], [3, 5, 5]),
    "min": (p.Min(), pa.int64(), [3, 5, 2], [3, 3, 2]),
    "first": (p.First(), pa.string(), ["x", "y"], ["x", "x"]),
    "last": (p.Last(), pa.string(), ["x", "y", None], ["x", "y", None]),
    "any": (p.Any(), pa.bool_(), [False, True, False], [False, True, True]),
    "all": (p.All(), pa.bool_(), [True, False, True], [True, False, False]),
    "grow-only set": (p.GrowOnlySet(), pa.list_(pa.string()), [["x"], ["z", "x"]], [["x"], ["x", "z"]]),
    "or-set": (
        p.ORSet(), pa.list_(pa.string()), [["x", "y"], {"add": ["z"], "remove": ["x"]}], [["x", "y"], ["y", "z"]],
    ),
    "multi-value register": (p.MVRegister(), pa.list_(pa.string()), [["x"], ["y"]], [["x"], ["y"]]),
    "map": (
        p.MapLast(), pa.map_(pa.string(), pa.int64()), [[("k", 1)], [("l", 3), ("k", 2)]], [{"k": 1}, {"k": 2, "l": 3}],
    ),
    "event list": (p.EventList(), pa.list_(pa.string()), [["x"], ["y", "x"]], [["x"], ["x", "y", "x"]]),
}  # fmt: skip
"""Of each payload what is written to its column, one commit after another, and what readers see after each."""


@pytest.mark.costly
@pytest.mark.parametrize("name", TOLD)
def test_a_payload_is_told_by_what_it_made_of_each_value(path: Path, name: str) -> None:
    payload, kind, written, seen = TOLD[name]
    table = mor.Table.create(path, pa.schema([("id", pa.string()), ("c", kind)]), key="id", merge={"c": payload})
    for value in written:
        given = pa.infer_type([value]) if isinstance(value, dict) else kind
        table.upsert(pa.table({"id": ["a"], "c": pa.array([value], given)}))
    found = told(table, column="c")
    assert [line["result"]["c"] for line in found] == seen
    assert all(line["because"] == f"c: merged by {payload.name}" for line in found)
    table.maintenance.compact()
    assert [line["result"]["c"] for line in told(table, column="c")] == seen
    assert all(line["folded_by"] for line in told(table))


@pytest.mark.parametrize("payload", [p.Distinct(), p.Quantiles(probabilities=(0.5,))], ids=["distinct", "quantiles"])
def test_a_sketch_is_told_with_its_state(path: Path, payload: Any) -> None:
    kind = pa.int64() if isinstance(payload, p.Distinct) else pa.list_(pa.float64())
    table = mor.Table.create(path, pa.schema([("id", pa.string()), ("c", kind)]), key="id", merge={"c": payload})
    values: list[Any] = [["x", "y"], ["y", "z"]] if isinstance(payload, p.Distinct) else [[1.0], [3.0, 5.0]]
    for value in values:
        table.upsert(pa.table({"id": ["a"], "c": pa.array([value])}))
    found = told(table)
    scanned = table.scan().to_arrow()["c"][0].as_py()
    assert found[-1]["result"]["c"] == scanned
    assert found[0]["states"]["c"] != found[1]["states"]["c"]


def test_payloads_of_several_columns_decide_together(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id", merge={("v", "s"): p.LatestBy("v")})
    table.upsert(rows(v(5, "five")))
    table.upsert(rows(v(3, "three")))
    table.upsert(rows(v(6, "six")))
    found = life(table)
    assert [effect for _, _, effect, _ in found] == ["inserted", "none", "updated"]
    assert found[-1][3] == v(6, "six")
    assert told(table)[1]["because"] == "id: the value of the last requested commit; v, s: merged by latest_by/1"


def test_states_are_told_of_payloads_that_keep_any(path: Path) -> None:
    table = mor.Table.create(
        path, pa.schema([("id", pa.string()), ("tags", pa.list_(pa.string()))]), key="id", merge={"tags": p.ORSet()}
    )
    table.upsert(pa.table({"id": ["a"], "tags": [["x"]]}))
    (line,) = told(table)
    assert [state["element"] for state in line["states"]["tags"]] == ["x"]
    plain = mor.Table.create(path.with_name("u"), SCHEMA, key="id")
    plain.upsert(rows(v(1)))
    assert "states" not in plain.why("a").schema.names


# --- services ---------------------------------------------------------------------------------------------------------


def test_compactions_are_told_that_fold_and_that_carry(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id", merge={"v": p.Counter()})
    table.upsert(rows(v(1)))
    with table.transaction() as straggler:
        straggler.upsert(rows(v(10)))
        table.upsert(rows(v(2)))
        (first,) = table.maintenance.compact()
    (second,) = table.maintenance.compact()
    found = told(table)
    assert [line["result"]["v"] for line in found] == [1, 11, 13]
    assert found[0]["folded_by"] == first.barrier
    assert found[1]["folded_by"] == found[2]["folded_by"] == second.barrier
    assert [line["carried_by"] for line in found] == [[], [], [first.barrier]]


def test_what_a_clean_gave_up_is_one_line(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id")
    for number in range(4):
        table.upsert(rows(v(number)))
        table.maintenance.compact()
    table.maintenance.clean(commits=1)
    assert life(table) == [("kept", v(2), "inserted", v(2)), ("upsert", v(3), "updated", v(3))]
    assert told(table)[0]["because"] == "a compaction folded older commits into this row"


def test_overwrites_begin_anew_and_what_they_cover_is_told(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id")
    table.upsert(rows(v(1)))
    table.overwrite(rows(v(8)))
    table.upsert(rows(v(9)))
    table.truncate()
    table.upsert(rows(v(10)))
    assert life(table) == [
        ("upsert", v(1), "inserted", v(1)),
        ("rewritten", v(8), "updated", v(8)),
        ("upsert", v(9), "updated", v(9)),
        ("removed", None, "deleted", None),
        ("upsert", v(10), "inserted", v(10)),
    ]


def test_a_key_lives_once_in_each_partition(path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
    with pytest.warns(mor.errors.PartitionNotInKeyWarning):
        table = mor.Table.create(path, schema, key="id", partition_by="day")
    table.upsert(pa.table({"id": ["a", "a"], "day": ["mon", "tue"], "v": [1, 2]}))
    table.upsert(pa.table({"id": ["a"], "day": ["mon"], "v": [3]}))
    found = told(table)
    assert [(line["partition"], line["result"]["v"]) for line in found] == [
        ("day=mon", 1),
        ("day=mon", 3),
        ("day=tue", 2),
    ]


def test_a_key_of_several_columns_is_a_tuple(path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string()), ("v", pa.int64())])
    table = mor.Table.create(path, schema, key=["id", "day"])
    table.upsert(pa.table({"id": [7, 7], "day": ["mon", "tue"], "v": [1, 2]}))
    assert [line["result"]["v"] for line in told(table, (7, "tue"))] == [2]
    with pytest.raises(mor.InvalidInputError, match="a key needs a value for each of"):
        table.why(7)
    with pytest.raises(mor.InvalidInputError, match="a key must fit its column's type"):
        table.why(("seven", "mon"))
    with pytest.raises(mor.InvalidInputError, match="a key must fit its column's type"):
        table.why((7, "\ud800"))


def test_it_is_asked_of_any_moment_that_is_kept(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id")
    first = table.upsert(rows(v(1)))
    table.upsert(rows(v(2)))
    assert [row for *_, row in life(table, as_of=first)] == [v(1)]
    with pytest.raises(mor.errors.FutureSnapshotError):
        table.why("a", as_of=99)


def test_columns_have_the_names_that_they_have_now(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id")
    table.upsert(rows(v(1, "x")))
    table.alter(rename={"v": "value", "id": "name"}, drop=["s"])
    (line,) = told(table)
    assert (line["columns"], line["result"]) == (["name", "value"], {"name": "a", "value": 1})
    assert [line["result"] for line in told(table, column="value")] == [{"value": 1}]
    with pytest.raises(mor.InvalidInputError, match="no such column"):
        table.why("a", column="s")


def test_what_writers_say_is_told(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id")
    table.upsert(rows(v(1)), commit_info={"message": "nightly", "ticket": "OPS-1"})
    (line,) = told(table)
    (commit,) = (row for row in table.history().to_pylist(maps_as_pydicts="strict") if row["kind"] == "write")
    for name in ("application", "host", "pid", "message", "commit_info", "version", "requested_at", "completed_at"):
        assert line[name] == commit[name]
    assert line["message"] == "nightly"


def test_a_key_that_was_never_written_has_no_life(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id")
    assert told(table) == []
    table.upsert(rows(v(1)))
    assert table.why("zz").num_rows == 0
    assert table.why("zz").schema == table.why("a").schema


def test_an_erased_row_is_not_told(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id")
    table.upsert(rows(v(1), {"id": "b", "v": 2, "s": None}))
    table.upsert(rows(v(3)))
    table.maintenance.erase(keys=["a"])
    assert not [line for line in told(table) if line["result"]]
    assert [line["result"]["v"] for line in told(table, "b")] == [2]


@pytest.mark.slow
def test_which_compaction_folded_a_delete_is_told_as_the_files_have_it(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id", buckets=1, merge={"v": p.Counter()})
    table.upsert(rows(v(1), {"id": "c", "v": 1, "s": None}))
    table.maintenance.compact()
    with table.transaction() as straggler:
        straggler.upsert(rows(v(10), {"id": "c", "v": 10, "s": None}))
        table.upsert(rows({"id": "c", "v": 5, "s": None}))
        table.delete(keys=["a"])
        table.delete(keys=["c"])
        (second,) = table.maintenance.compact()
    (third,) = table.maintenance.compact()
    for key in ("a", "c"):
        late = [line for line in told(table, key) if line["requested_at"] > told(table, key)[0]["requested_at"]]
        assert {line["folded_by"] for line in late} == {third.barrier}, late
        assert [line["carried_by"] for line in late if line["change"] == "delete"] == [[second.barrier]]


def test_rows_of_which_the_latest_wins_are_not_passed_on(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id", buckets=1)
    with table.transaction() as straggler:
        straggler.upsert(rows(v(10)))
        table.upsert(rows(v(1)))
        table.delete(keys=["a"])
        (first,) = table.maintenance.compact()
        assert [(line["change"], line["folded_by"], line["carried_by"]) for line in told(table)] == [
            ("upsert", first.barrier, []), ("delete", None, [first.barrier]),
        ]  # fmt: skip


# --- what it must not say ---------------------------------------------------------------------------------------------


def test_a_fold_in_a_carry_is_nobodys_contribution(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id", buckets=1, merge={"v": p.Counter()})
    with table.transaction() as straggler:
        straggler.upsert(rows({"id": "z", "v": 100, "s": None}))
        table.upsert(rows(v(1)), commit_info={"message": "one"})
        table.upsert(rows(v(2)), commit_info={"message": "two"})
        (first,) = table.maintenance.compact()
    before = told(table)
    assert [(line["message"], line["carried_by"], line["folded_by"]) for line in before] == [
        ("one", [first.barrier], None), ("two", [first.barrier], None),
    ]  # fmt: skip
    (second,) = table.maintenance.compact()
    assert {line["folded_by"] for line in told(table)} == {second.barrier}
    table.maintenance.clean(commits=1, readers=timedelta(0))
    (line,) = told(table)
    assert (line["change"], line["result"]["v"], line["message"], line["application"]) == ("kept", 3, None, None)


def test_a_delete_in_a_carry_is_nobodys_either(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id", buckets=1, merge={"v": p.Counter()})
    with table.transaction() as straggler:
        straggler.upsert(rows(v(100)))
        table.upsert(rows(v(1)), commit_info={"message": "one"})
        table.delete(keys=["a"], commit_info={"message": "cleaner"})
        table.upsert(rows(v(2)), commit_info={"message": "two"})
        table.upsert(rows(v(3)), commit_info={"message": "three"})
        table.maintenance.compact()
        table.upsert(rows({"id": "b", "v": 0, "s": None}))
        table.maintenance.compact()
    assert [line["message"] for line in told(table)] == [None, "one", "cleaner", "two", "three"]
    table.maintenance.clean(commits=1, readers=timedelta(0))
    assert {line["message"] for line in told(table)} == {None}
    assert told(table)[-1]["result"]["v"] == 5


@pytest.mark.parametrize(
    ("merge", "ordering", "result"),
    [(None, "v", v(5)), ({"v": p.Counter()}, None, v(5)), (mor.PartialUpdate(), None, v(5))],
)
def test_a_commit_that_deletes_first_says_so(path: Path, merge: Any, ordering: str | None, result: Any) -> None:
    table = mor.Table.create(path, SCHEMA, key="id", merge=merge, ordering=ordering)
    table.upsert(rows(v(9, "x")))
    with table.transaction() as tx:
        tx.delete(keys=["a"], plain=True)
        tx.upsert(rows(v(5)))
    assert life(table)[1:] == [("upsert", v(5), "updated", result)]
    assert told(table)[1]["because"].startswith("the commit deletes the row first; ")


def test_nan_of_an_earlier_release_is_the_greatest_ordering_value(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crdt_mor.write.statements.hold_ordering", lambda *_: None)
    schema = pa.schema([("id", pa.string()), ("o", pa.float64())])
    table = mor.Table.create(path, schema, key="id", ordering="o")
    for value in (float("nan"), float("nan"), 1.0):
        table.upsert(rows({"id": "a", "o": value}, schema=schema))
    assert [(line["effect"], line["because"]) for line in told(table)] == [
        ("inserted", "no row exists yet to compare o with"),
        ("none", "o nan is not less than the row's nan"),
        ("none", "o 1.0 is less than the row's nan"),
    ]


def test_of_a_straggler_behind_a_fold_it_is_said_which_commit_won(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id")
    with table.transaction() as straggler:
        straggler.upsert(rows(v(100)))
        table.upsert(rows(v(1)))
        last = table.upsert(rows(v(2)))
        table.maintenance.compact()
    table.maintenance.clean(commits=1, readers=timedelta(0))
    kept, late = told(table)
    assert (kept["change"], kept["requested_at"], kept["application"]) == ("kept", last.requested_at, None)
    assert (late["effect"], late["because"]) == (
        "none", f"the last requested commit sets the whole row: that of {last.requested_at}",
    )  # fmt: skip


def test_which_writer_of_a_group_gave_a_value_is_not_made_up(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id")
    table.upsert(rows(v(0)))
    post(table, rows(v(1)))
    in_a_crowd(table).upsert(rows({"id": "b", "v": 2, "s": None}), commit_info={"message": "of b"})
    assert [line["writers"] for line in told(table)] != [None, None]
    for line in told(table):
        if line["writers"]:
            assert (line["application"], line["message"]) == (None, None)
            assert len(line["writers"]) > 1


# --- the command ------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["why", *arguments])


def test_the_command_draws_a_life(path: Path) -> None:
    table = mor.Table.create(path, SCHEMA, key="id", merge={"v": p.Counter()})
    table.upsert(rows(v(1, "x")), commit_info={"message": "nightly"})
    table.upsert(rows(v(2, "y")))
    table.maintenance.compact()
    table.delete(keys=["a"])
    said = command(str(path), "a").stdout
    parts = (
        ": nightly\n", "gives    id = a, v = 2, s = y", "changes  v = 3, s = y", "folded   by the compaction 2",
        "because  id, s: the value of the last requested commit; v: merged by counter/1",
        "○ the row does not exist",
    )  # fmt: skip
    assert [part for part in parts if part not in said] == []
    assert said.count("● ") == 3
    one = command(str(path), "a", "--column", "v").stdout
    assert "gives    v = 2" in one
    assert "s =" not in one


def test_the_command_draws_a_life_for_each_partition(path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
    with pytest.warns(mor.errors.PartitionNotInKeyWarning):
        table = mor.Table.create(path, schema, key="id", partition_by="day")
    table.upsert(pa.table({"id": ["a"], "day": ["z"], "v": [1]}))
    table.move(["a"], partition={"day": "b"})
    drawn = [line for line in command(str(path), "a").stdout.splitlines() if line.startswith(("in ", "○"))]
    assert drawn == ["in partition day=b", "○ id = a, day = b, v = 1", "in partition day=z", "○ the row does not exist"]


def test_the_command_speaks_to_programs(path: Path) -> None:
    table = mor.Table.create(
        path, pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())]), key=["a", "b"]
    )
    table.upsert(pa.table({"a": [1], "b": ["x,y"], "v": [5]}))
    found = command(str(path), '1,"x,y"', "--output", "json")
    assert [json.loads(line)["result"] for line in found.stdout.splitlines()] == [{"a": 1, "b": "x,y", "v": 5}]
    nothing = command(str(path), "1,z")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    torn = command(str(path), "1,x\ny")
    assert torn.exit_code == 1
    assert "a key is comma-separated values" in torn.stderr
    wrong = command(str(path), "x,z")
    assert wrong.exit_code == 1
    assert "a key must match its column's type" in wrong.stderr

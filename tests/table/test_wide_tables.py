"""Tables of many columns: a verb's work grows with their number, not with its square. Calls are counted, not time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import crdt_mor as mor
from crdt_mor.columns.tables import with_columns
from crdt_mor.payloads import Max
from crdt_mor.read.inputs import Inputs
from crdt_mor.store import MemoryStore
from tests.tiers import only, slow

Verb = Callable[[mor.Table, pa.Table, list[str]], object]


def rows_of(count: int) -> pa.Table:
    return pa.table({"id": ["a", "b"]} | {f"c{number}": [float(number), None] for number in range(count)})


def filled(rows: pa.Table, merge: mor.Merge | None = None) -> mor.Table:
    opening = mor.Opening(store=MemoryStore())
    table = mor.Table.create("memory", rows.schema, key="id", merge=merge, opening=opening)
    table.upsert(rows)
    table.upsert(rows.slice(0, 1))
    return table


def calls(work: Callable[[], object]) -> int:
    """Count the calls of functions, which include each step of a generator."""
    count = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return count


def added(names: list[str]) -> dict[str, str]:
    return {name: f"source.{name} + target.{name}" for name in names}


VERBS: Mapping[str, Verb] = {
    "upsert": lambda table, rows, _: table.upsert(rows),
    "update": lambda table, _, names: table.update({name: f"{name} + 1" for name in names}),
    "update_where": lambda table, _, names: table.update({"c0": "1"}, where=" AND ".join(f"{n} > 1" for n in names)),
    "merge": lambda table, rows, names: table.merge(rows).when_matched_update(added(names)).execute(),
    "merge_all": lambda table, rows, _: table.merge(rows).when_matched_update_all().execute(),
    "overwrite": lambda table, rows, _: table.overwrite(rows),
    "compact": lambda table, _, __: table.maintenance.compact(),
    "images": lambda table, _, __: table.changes(since=1, images=True).to_arrow(),
    "diff": lambda table, _, __: table.diff(2, table.version).to_arrow(),
    "why": lambda table, _, __: table.why("a"),
    "verify": lambda table, _, __: table.verify(deep=True),
    "checks": lambda table, _, names: table.add_rules(
        mor.Rules(check={f"of {name}": f"{name} < 1e9" for name in names[:8]})
    ),
    "rename": lambda table, _, names: table.alter(rename={name: f"new {name}" for name in names}),
    "mirror": lambda table, _, __: table.mirror("delta"),
}


FAST = ("upsert", "merge", "rename", "why")


@pytest.mark.parametrize("merge", ["whole rows", slow("payloads")])
@pytest.mark.parametrize("verb", only(FAST, VERBS))
def test_four_times_as_many_columns_take_at_most_four_times_as_many_calls(verb: str, merge: str) -> None:
    def counted(count: int) -> int:
        rows = rows_of(count)
        names = [f"c{number}" for number in range(count)]
        payloads: Any = dict.fromkeys(names, Max()) if merge == "payloads" else None
        table = filled(rows, payloads)
        return calls(lambda: VERBS[verb](table, rows, names))

    counted(2)  # imports
    assert counted(32) < 4 * counted(8)


def test_each_expression_of_a_merge_gets_only_its_own_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []
    narrowed = Inputs.narrowed

    def noted(inputs: Inputs, expression: pl.Expr) -> tuple[pl.Expr, pl.DataFrame]:
        found = narrowed(inputs, expression)
        widths.append(found[1].width)
        return found

    monkeypatch.setattr(Inputs, "narrowed", noted)
    rows = rows_of(8)
    table = filled(rows)
    names = rows.column_names[1:]
    table.merge(rows).when_matched_update({name: f"source.{name} + target.{name}" for name in names}).execute()
    assert len(widths) >= len(names)
    assert max(widths) == 2
    assert table.scan(filter="id = 'a'").to_arrow().to_pylist() == [
        {"id": "a"} | {f"c{number}": 2.0 * number for number in range(8)}
    ]


def test_an_expression_of_a_whole_struct_and_of_no_column_gets_all_rows() -> None:
    frame = pl.DataFrame({"s": [{"a": 1, "b": 2}, None], "n": [3, 4]})
    inputs = Inputs(frame)
    for expression, columns in [
        (pl.col("s").is_null(), ["s"]),
        (pl.col("s").struct.field("a") + pl.col("n"), ["n", "_crdt_field_'s'.'a'"]),
        (pl.lit(1), ["s"]),
    ]:
        narrow, rows = inputs.narrowed(expression)
        assert rows.columns == columns
        assert rows.height == 2
        assert rows.select(narrow.alias("v")).equals(frame.select(expression.alias("v")))


@pytest.mark.parametrize("name", ["Multiply", "Coalesce", "Cast", "Alias", "Ternary", "FieldByName", "AsStruct"])
def test_fields_named_like_operations_of_polars_are_fields(name: str) -> None:
    rows = pa.table({"id": ["a", "b"], "n": [1, 2], "s": [{name: 3, "in": {name: 2**62}}, {name: None, "in": None}]})
    table = filled(rows)
    field, inner = pl.col("s").struct.field(name), pl.col("s").struct.field("in").struct.field(name)
    table.update({"n": field * 2 + pl.col("n")})
    assert table.to_arrow().sort_by("id")["n"].to_pylist() == [7, None]
    table.update({"n": inner - 1})
    assert table.to_arrow().sort_by("id")["n"].to_pylist() == [2**62 - 1, None]
    with pytest.raises(mor.InvalidInputError, match="does not fit in an integer of 64 bits"):
        table.update({"n": inner * 2})
    table.merge(rows).when_matched_update({"n": f'source.s."{name}" + target.s."{name}"'}).execute()
    assert table.to_arrow().sort_by("id")["n"].to_pylist() == [6, None]


def test_columns_are_set_in_their_places_and_new_ones_come_last() -> None:
    rows = pa.table(
        [[1], [2], [3]],
        schema=pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.int64()), ("c", pa.int64())], {"k": "v"}),
    )
    found = with_columns(rows, {"d": pa.array([4]), "a": pa.array(["x"])})
    assert found.to_pydict() == {"a": ["x"], "b": [2], "c": [3], "d": [4]}
    assert found.schema.field("a") == pa.field("a", pa.string())
    assert found.schema.metadata == {b"k": b"v"}
    assert with_columns(rows, {}) is rows

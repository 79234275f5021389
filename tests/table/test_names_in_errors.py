"""What an error says of columns, it says under the names that people see: no name of the files is in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import CrdtMorError, MemoryStore, Table
from crdt_mor.payloads import Counter, ORSet

KEY, LAND, AT, COUNT = "Nr.", "Land, wo", "Zeit @", "Menge €"
SCHEMA = pa.schema([(KEY, pa.string()), (LAND, pa.string()), (AT, pa.int64()), (COUNT, pa.int32())])
ROW = pa.table({KEY: ["a"], LAND: ["DE"], AT: [5], COUNT: [1]}, SCHEMA)
IN_FILES = ["in_files_key", "in_files_land", "in_files_at", "in_files_count"]
MADE = ["Nr_81a67df8", "Land_wo_cebf1ea5", "Zeit_f5a8b60d", "Menge_29e7d2de"]


def without(name: str) -> pa.Table:
    return ROW.drop_columns([name])


def with_lists(name: str) -> pa.Table:
    return ROW.set_column(SCHEMA.names.index(name), name, pa.array([[1]]))


SETTINGS: dict[str, Any] = {"buckets": 1, "ordering": AT, "partition_by": [LAND], "key": [KEY, LAND]}


def odd() -> Table:
    """A table with columns whose names are none that files have."""
    return Table.create("memory", SCHEMA, store=MemoryStore(), **SETTINGS)


def renamed() -> Table:
    """A table with columns that had other names."""
    key, land, at, _ = IN_FILES
    schema = pa.schema([field.with_name(name) for field, name in zip(SCHEMA, IN_FILES, strict=True)])
    settings: dict[str, Any] = {"key": [key, land], "ordering": at, "partition_by": [land]}
    table = Table.create("memory", schema, store=MemoryStore(), **{**SETTINGS, **settings})
    table.alter(rename=dict(zip(IN_FILES, SCHEMA.names, strict=True)))
    return table


def again(table: Table, column: str) -> None:
    table.add_rules(check={"a": f'"{AT}" > 0'})
    table.add_rules(check={"a": f'"{column}" > 1'})


def twice(table: Table, column: str) -> None:
    table.merge(pa.concat_tables([ROW, ROW])).when_matched_update({COUNT: "1"}).execute()


REFUSED: dict[str, Callable[[Table, str], object]] = {
    "upsert without": lambda t, name: t.upsert(without(name)),
    "upsert of another type": lambda t, name: t.upsert(with_lists(name)),
    "append without": lambda t, name: t.append(without(name)),
    "overwrite without": lambda t, name: t.overwrite(without(name)),
    "overwrite of another type": lambda t, name: t.overwrite(with_lists(name)),
    "plan_write": lambda t, name: t.plan_write("upsert", without(name).schema),
    "plan_write of another type": lambda t, name: t.plan_write("upsert", with_lists(name).schema),
    "delete without": lambda t, _: t.delete(without(KEY)),
    "delete of another type": lambda t, _: t.delete(with_lists(KEY)),
    "delete by keys": lambda t, _: t.delete(keys=[([1], "DE")]),
    "erase by keys": lambda t, _: t.maintenance.erase(keys=[([1], "DE")]),
    "erase a column": lambda t, name: t.maintenance.erase(keys=[("a", "DE")], columns=[KEY, name]),
    "update": lambda t, name: t.update({COUNT: 2**40}),
    "update of another type": lambda t, name: t.update({AT: "'x'", COUNT: f'"{name}" || 1'}),
    "merge": lambda t, name: t.merge(with_lists(name)).when_matched_update_all().execute(),
    "merge, several": twice,
    "partition of another type": lambda t, _: t.overwrite(ROW, partitions=[{LAND: [1]}]),
    "partition of others": lambda t, _: t.overwrite(ROW, partitions=[{AT: 1}]),
    "not_null": lambda t, name: t.add_rules(check={"a": f'"{AT}" > 5'}, not_null=[name]),
    "another rule": again,
    "default": lambda t, name: t.add_rules(default={name: [1]}),
    "drop": lambda t, name: t.alter(drop=[KEY, name]),
}


@pytest.mark.parametrize("make", [odd, renamed])
def test_no_refusal_has_a_name_of_files(make: Callable[[], Table]) -> None:
    table, said = make(), list[tuple[str, str]]()
    table.upsert(ROW)
    for case, refused in REFUSED.items():
        for column in (LAND, COUNT):
            try:
                refused(table, column)
            except CrdtMorError as error:
                said.append((case, str(error)))
    assert {case for case, _ in said} == {*REFUSED}
    assert not [text for text in said if any(name in text[1] for name in (*IN_FILES, *MADE))]


def test_no_refusal_of_a_new_table_has_a_name_of_files() -> None:
    nulls = pa.table([["a"], ["DE"], pa.nulls(1, pa.int64()), [1]], schema=SCHEMA)
    cases: list[tuple[pa.Table, dict[str, Any]]] = [
        (nulls, {"ordering": AT}),
        (ROW, {"check": {"a": f'"{AT}" > 5'}}),
        (nulls, {"not_null": [AT]}),
        (ROW, {"merge": {LAND: Counter()}}),
        (ROW, {"merge": {COUNT: ORSet()}}),
        (ROW, {"merge": {KEY: Counter()}}),
        (with_lists(AT), {"ordering": AT}),
        (with_lists(KEY), {}),
    ]
    for rows, settings in cases:
        makes: list[Callable[..., object]] = [lambda **given: Table.create_from("memory", rows, **given)]  # noqa: B023
        if rows is not nulls and "check" not in settings:
            makes.append(lambda **given: Table.create("memory", rows.schema, **given))  # noqa: B023
        for make in makes:
            with pytest.raises(CrdtMorError) as raised:
                make(key=[KEY], buckets=1, store=MemoryStore(), **settings)
            assert not [name for name in MADE if name in str(raised.value)], str(raised.value)

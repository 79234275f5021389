"""What an error says of columns, it says under the names that people see: no name of the files is in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import CrdtMorError, Opening, Rules, Table
from crdt_mor.errors import ConstraintViolationError, SchemaMismatchError
from crdt_mor.model.instant import EPOCH
from crdt_mor.payloads import Counter, ORSet
from crdt_mor.store import MemoryStore
from crdt_mor.write.named import NamedStatements
from crdt_mor.write.statements import Statements
from tests.inside import session_of

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
    return Table.create("memory", SCHEMA, opening=Opening(store=MemoryStore()), **SETTINGS)


def renamed() -> Table:
    """A table with columns that had other names."""
    key, land, at, _ = IN_FILES
    schema = pa.schema([field.with_name(name) for field, name in zip(SCHEMA, IN_FILES, strict=True)])
    settings: dict[str, Any] = {"key": [key, land], "ordering": at, "partition_by": [land]}
    table = Table.create("memory", schema, opening=Opening(store=MemoryStore()), **{**SETTINGS, **settings})
    table.alter(rename=dict(zip(IN_FILES, SCHEMA.names, strict=True)))
    return table


def again(table: Table, column: str) -> None:
    table.add_rules(Rules(check={"a": f'"{AT}" > 0'}))
    table.add_rules(Rules(check={"a": f'"{column}" > 1'}))


def twice(table: Table, column: str) -> None:
    table.merge(pa.concat_tables([ROW, ROW])).when_matched_update({COUNT: "1"}).execute()


REFUSED: dict[str, Callable[[Table, str], object]] = {
    "upsert without": lambda t, name: t.upsert(without(name)),
    "upsert of another type": lambda t, name: t.upsert(with_lists(name)),
    "append without": lambda t, name: t.append(without(name)),
    "overwrite without": lambda t, name: t.overwrite(without(name)),
    "overwrite of another type": lambda t, name: t.overwrite(with_lists(name)),
    "jobs.plan": lambda t, name: t.jobs.plan("upsert", without(name).schema),
    "jobs.plan of another type": lambda t, name: t.jobs.plan("upsert", with_lists(name).schema),
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
    "not_null": lambda t, name: t.add_rules(Rules(check={"a": f'"{AT}" > 5'}, not_null=[name])),
    "another rule": again,
    "default": lambda t, name: t.add_rules(Rules(default={name: [1]})),
    "drop": lambda t, name: t.alter(drop=[KEY, name]),
}


@pytest.mark.costly
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


NEW = "Neu, €"
MORE = ROW.append_column(NEW, pa.array([1]))
NULL_KEY = MORE.set_column(0, KEY, pa.array([None], pa.string()))
WRONG: dict[str, tuple[Callable[[Table], object], str]] = {
    "null key": (lambda t: t.upsert(NULL_KEY, schema_mode="merge"), rf"key cannot be null.*column={KEY}"),
    "rule": (
        lambda t: t.upsert(MORE.set_column(3, COUNT, pa.array([-1], pa.int32())), schema_mode="merge"),
        rf"'check plus: \"{COUNT}\" > 0'",
    ),
    "type": (lambda t: t.upsert(MORE.set_column(3, COUNT, pa.array(["x"])), schema_mode="merge"), f"column={COUNT}"),
    "missing": (lambda t: t.upsert(MORE.drop_columns([COUNT]), schema_mode="merge"), rf"missing=\['{COUNT}'\]"),
    "twice": (lambda t: t.append(pa.concat_tables([MORE, MORE]), schema_mode="merge"), "twice in an append"),
    "overwrite": (lambda t: t.overwrite(NULL_KEY, schema_mode="merge"), f"column={KEY}"),
    "block": (lambda t: t.transaction().__enter__().upsert(NULL_KEY, schema_mode="merge"), f"column={KEY}"),
    "job": (lambda t: t.jobs.plan("upsert", MORE.drop_columns([COUNT]).schema, schema_mode="merge"), "missing="),
}


def plain_for_one() -> Table:
    """A table with one name that files have not, in the check's text."""
    return Table.create(
        "memory",
        SCHEMA,
        key=KEY,
        buckets=1,
        opening=Opening(store=MemoryStore()),
        rules=Rules(check={"plus": f'"{COUNT}" > 0'}),
    )


@pytest.mark.parametrize("case", WRONG)
def test_a_new_column_of_any_name_hides_no_other_error(case: str) -> None:
    write, said = WRONG[case]
    table = plain_for_one()
    with pytest.raises(CrdtMorError, match=said) as raised:
        write(table)
    assert isinstance(raised.value, ConstraintViolationError) == (case == "rule")
    assert not [name for name in MADE if name in str(raised.value)]


def test_an_error_has_shown_names_in_its_values_and_within_quotes_in_its_sentence() -> None:
    session = session_of(odd())
    named = NamedStatements(Statements(session.config, session.known_tail(), EPOCH))
    wrong = SchemaMismatchError(f"{MADE[0]} of ['{MADE[0]}']. columns=['{MADE[0]}'] other={MADE[1]}x")
    with pytest.raises(SchemaMismatchError) as raised, named._errors_in_names():
        raise wrong
    assert str(raised.value) == f"{MADE[0]} of ['{KEY}']. columns=['{KEY}'] other={MADE[1]}x"


def test_an_error_of_a_column_that_took_the_name_of_another_has_each_name_once() -> None:
    table = Table.create("memory", pa.schema([("a", pa.string()), ("b", pa.int64()), ("c", pa.int64())]), key="a",
                         buckets=1,
                         rules=Rules(check={"plus": "b > c"}, not_null=["c"]),
                         opening=Opening(store=MemoryStore()))  # fmt: skip
    table.alter(rename={"b": "d", "c": "b"})
    with pytest.raises(ConstraintViolationError) as raised:
        table.upsert(pa.table({"a": ["x"], "d": [1], "b": [2]}))
    assert "constraint='check plus: \"d\" > \"b\"' key={'a': 'x'} values={'d': 1, 'b': 2}" in str(raised.value)
    with pytest.raises(CrdtMorError, match=r"column=b type=list"):
        table.upsert(pa.table({"a": ["x"], "d": [1], "b": [[2]]}))
    with pytest.raises(CrdtMorError, match=r"missing=\['d', 'b'\]"):
        table.upsert(pa.table({"a": ["x"]}))


def test_no_refusal_of_a_new_table_has_a_name_of_files() -> None:
    nulls = pa.table([["a"], ["DE"], pa.nulls(1, pa.int64()), [1]], schema=SCHEMA)
    cases: list[tuple[pa.Table, dict[str, Any]]] = [
        (nulls, {"ordering": AT}),
        (ROW, {"rules": Rules(check={"a": f'"{AT}" > 5'})}),
        (nulls, {"rules": Rules(not_null=[AT])}),
        (ROW, {"merge": {LAND: Counter()}}),
        (ROW, {"merge": {COUNT: ORSet()}}),
        (ROW, {"merge": {KEY: Counter()}}),
        (with_lists(AT), {"ordering": AT}),
        (with_lists(KEY), {}),
    ]
    for rows, settings in cases:
        makes: list[Callable[..., object]] = [lambda **given: Table.create_from("memory", rows, **given)]  # noqa: B023
        if rows is not nulls and "rules" not in settings:
            makes.append(lambda **given: Table.create("memory", rows.schema, **given))  # noqa: B023
        for make in makes:
            with pytest.raises(CrdtMorError) as raised:
                make(key=[KEY], buckets=1, opening=Opening(store=MemoryStore()), **settings)
            assert not [name for name in MADE if name in str(raised.value)], str(raised.value)

"""The names that people see and those on storage: a bijection, whatever is renamed, dropped and added again."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crdt_mor as mor
from crdt_mor.columns.fields import is_stored_name
from crdt_mor.columns.names import created, lowered, stored_name
from crdt_mor.columns.schema import CHANGE_COLUMNS, RESERVED_PREFIXES, TableSchema
from crdt_mor.model.alteration import Alteration, Alterations, names_at, names_of, with_added
from crdt_mor.model.instant import EPOCH, InstantTime, from_ms


def may_be_seen(name: str) -> bool:
    """Whether a text may be a name that people see, as docs/altering.md says; a pattern of polars may not."""
    return name.strip() != "" and name.isprintable() and name != "*" and (name[0], name[-1]) != ("^", "$")


NAMES = st.text(min_size=1, max_size=60).filter(may_be_seen)
ODD = ["Total Sales", "Größe", "@timestamp", "1Min", "a.b", "日本", "'; --", "-", "_", "crdt_mor", "@_hoodie_x"]


def schema(*names: str) -> TableSchema:
    return TableSchema(pa.schema([(name, pa.int64()) for name in names]))


@given(NAMES, st.sets(NAMES, max_size=3))
def test_a_stored_name_is_one_of_avros_and_no_other_columns(shown: str, taken: set[str]) -> None:
    stored = stored_name(shown, lowered(taken))
    assert is_stored_name(stored)
    assert stored.lower() not in {name.lower() for name in taken}
    assert stored == shown or not stored.lower().startswith(RESERVED_PREFIXES)
    assert stored == stored_name(shown, sorted(lowered(taken))), "two writers choose one name"


@pytest.mark.parametrize("name", ODD)
def test_an_odd_name_has_a_stored_one_that_tells_it(name: str) -> None:
    assert is_stored_name(stored_name(name, []))


def test_stored_names_are_as_the_page_of_the_format_says() -> None:
    assert stored_name("Total Sales", ["id"]) == "Total_Sales_193981af"
    assert stored_name("1Min", []).startswith("c_1Min_")
    assert stored_name("price", ["id"]) == "price"
    assert stored_name("price", lowered(["Price"])).startswith("price_")


@given(st.lists(NAMES, unique_by=str.lower, min_size=1, max_size=6))
def test_the_names_of_a_new_table_go_in_and_come_out(shown: list[str]) -> None:
    own = (*RESERVED_PREFIXES, *CHANGE_COLUMNS)
    shown = [name for name in shown if not name.lower().startswith(own)] or ["a"]
    stored, by_shown = created(pa.schema([(name, pa.int64()) for name in shown]))
    names = names_of((Alteration(EPOCH, added=tuple((own, name) for name, own in by_shown.items())),))
    table = TableSchema(stored)
    assert names.outward(table).declared.names == shown
    assert names.inward(pa.schema([(name, pa.int64()) for name in shown]), table) == stored.names
    assert {name for name in shown if is_stored_name(name)} <= set(stored.names)


class Table:
    """A table's names alone, beside a dictionary of what each shown name means."""

    def __init__(self) -> None:
        self.stored, self.shown = ["a", "b"], {"a": "a", "b": "b"}
        self.alterations: Alterations = ()
        self.moments: list[tuple[InstantTime, dict[str, str]]] = []

    def next_time(self) -> InstantTime:
        return from_ms(1_700_000_000_000 + 2 * len(self.moments))

    def note(self) -> None:
        self.moments.append((self.next_time(), dict(self.shown)))


@given(
    st.lists(st.tuples(st.sampled_from(["add", "rename", "drop"]), st.sampled_from("abcdé"), st.sampled_from("abcdé")))
)
def test_names_are_a_bijection_at_every_moment(steps: list[tuple[str, str, str]]) -> None:
    table = Table()
    table.note()
    for step, one, other in steps:
        at = table.next_time()
        if step == "add" and one not in table.shown:
            new = stored_name(one, lowered(table.stored))
            table.stored.append(new)
            table.alterations = with_added(table.alterations, at, [new], {new: one})
            table.shown[one] = new
        elif step == "rename" and one in table.shown and other not in table.shown:
            stored = table.shown.pop(one)
            table.shown[other] = stored
            table.alterations = (*table.alterations, Alteration(at, renamed=((stored, other),)))
        elif step == "drop" and one in table.shown and len(table.shown) > 1:
            table.alterations = (*table.alterations, Alteration(at, dropped=(table.shown.pop(one),)))
        table.note()
        assert names_of(table.alterations).by_shown(table.stored) == table.shown
    for at, shown in table.moments:
        then = names_at(table.alterations, at).by_shown(table.stored)
        # A column that came under its own stored name, before anything was altered, has no time; it is shown as null.
        assert shown.items() <= then.items()
        assert set(then) - set(shown) <= {name for name in table.stored if name in then and then[name] == name}


def test_an_unknown_name_is_told_what_has_become_of_it() -> None:
    names = names_of((Alteration(EPOCH, renamed=(("a", "b"),)), Alteration(from_ms(1), dropped=("c",))))
    known = schema("a", "c", "d")
    with pytest.raises(
        mor.errors.SchemaMismatchError, match=r"^'a' was renamed to 'b': write it as 'b'\. unknown=\['a'\]"
    ):
        names.inward(pa.schema([("a", pa.int64()), ("c", pa.int64())]), known)
    with pytest.raises(mor.errors.SchemaMismatchError, match=r"schema_mode.*'c' was dropped"):
        names.inward(pa.schema([("c", pa.int64())]), known)
    with pytest.raises(
        mor.errors.SchemaMismatchError, match=r"^'a' was renamed to 'b': write it as 'b'; to add another"
    ):
        names.inward(pa.schema([("a", pa.int64())]), known, grows=True)
    assert names.inward(pa.schema([("c", pa.int64())]), known, grows=True) == [stored_name("c", ["a", "c", "d"])]


def test_a_name_between_two_renames_is_a_former_one_as_well() -> None:
    back = Alteration(EPOCH, renamed=(("a", "b"),)), Alteration(EPOCH, renamed=(("a", "a"),))
    with pytest.raises(mor.errors.SchemaMismatchError, match="'b' was renamed to 'a': write it as 'a'"):
        names_of(back).inward(pa.schema([("b", pa.int64())]), schema("a", "d"), grows=True)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "_hoodie_x", "_CRDT_y", "x" * 256])
def test_names_that_no_column_may_have_are_refused(name: str) -> None:
    with pytest.raises(mor.InvalidInputError, match="column="):
        created(pa.schema([(name, pa.int64()), ("odd name", pa.int64())]))


def test_names_that_differ_in_case_alone_are_refused() -> None:
    with pytest.raises(mor.InvalidInputError, match="differ only in case"):
        created(pa.schema([("Größe", pa.int64()), ("größe", pa.int64())]))

"""The ids of columns and nested fields, as they follow from a table's alterations: `model.field_ids`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import FormatError
from crdt_mor.model.alteration import Alteration, names_of
from crdt_mor.model.field_ids import OWN_IDS, Path, field_ids, ids_in_file, numbered, with_field_ids
from crdt_mor.model.instant import from_ms

PLACE = pa.struct([("city", pa.string()), ("zip", pa.int64())])
NESTED = pa.schema(
    [("id", pa.string()), ("place", PLACE), ("tags", pa.list_(pa.string())), ("n", pa.map_(pa.string(), PLACE))]
)


def text_of(columns: pa.Schema) -> str:
    return TableSchema.of(columns).to_json()


def grown(text: str, batch: pa.Schema) -> str:
    """The schema after the event that grows a table for a batch."""
    return numbered(text, TableSchema.from_json(text).grow(batch).to_json())


def test_field_ids_text_without_ids_numbers_columns_before_nested_fields() -> None:
    assert field_ids(text_of(NESTED)) == {
        ("id",): 1, ("place",): 2, ("tags",): 3, ("n",): 4,
        ("place", "city"): 5, ("place", "zip"): 6, ("tags", "element"): 7,
        ("n", "key"): 8, ("n", "value"): 9, ("n", "value", "city"): 10, ("n", "value", "zip"): 11,
    }  # fmt: skip


def test_numbered_flat_table_grows_keeps_the_text_without_ids() -> None:
    text = grown(text_of(pa.schema([("id", pa.string())])), pa.schema([("id", pa.string()), ("n", pa.int32())]))
    assert text == '[["id","string"],["n","int32"]]'
    assert field_ids(text) == {("id",): 1, ("n",): 2}


def test_numbered_new_fields_get_the_next_ids_and_types_stay_readable() -> None:
    wider = pa.struct([*PLACE, ("land", pa.string())])
    text = grown(text_of(NESTED), pa.schema([("place", wider), ("more", pa.list_(pa.int64()))]))
    ids = field_ids(text)
    assert field_ids(text_of(NESTED)).items() <= ids.items()
    new = {path: id_ for path, id_ in ids.items() if id_ > 11}
    assert new == {("more",): 12, ("place", "land"): 13, ("more", "element"): 14}
    assert (
        TableSchema.from_json(text).declared
        == TableSchema.from_json(text_of(NESTED))
        .grow(pa.schema([("place", wider), ("more", pa.list_(pa.int64()))]))
        .declared
    )
    again = grown(text, pa.schema([("last", pa.int32())]))
    assert field_ids(again) == {**ids, ("last",): 15}


def test_numbered_not_null_column_stays_not_null() -> None:
    columns = pa.schema([pa.field("id", pa.string(), nullable=False), ("place", PLACE)])
    text = grown(text_of(columns), pa.schema([("n", pa.int64())]))
    assert [column.nullable for column in TableSchema.from_json(text).declared] == [False, True, True]
    assert json.loads(text)[0] == ["id", "string", 0, [1]]


@pytest.mark.parametrize(
    "entry",
    ['"string",1,[1,2]', '"string",1,[]', '"string",1,["1"]', '"string",1,[[1]]', '"string",1,[0]', '"string",1,1',
     '"string",1,[2],3', '"string"', '"string",1,[7]', f'"string",1,[{OWN_IDS}]'],
)  # fmt: skip
def test_field_ids_damaged_ids_raise_format_error(entry: str) -> None:
    with pytest.raises(FormatError, match="not a table schema"):
        field_ids(f'[["a",{entry}],["b","string",1,[7]]]')


# --- laws -------------------------------------------------------------------------------------------------------------

KINDS = st.recursive(
    st.sampled_from([pa.int32(), pa.string(), pa.float64()]),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.dictionaries(st.sampled_from(["a", "b", "ü"]), inner, min_size=1).map(
            lambda parts: pa.struct([*parts.items()])
        ),
    ),
    max_leaves=4,
)
NAMES = st.sampled_from(["a", "b", "c", "Größe"])


@dataclass
class Life:
    """A table's columns through alterations, and who has which id."""

    schema: str = '[["id","string"]]'
    alterations: tuple[Alteration, ...] = ()
    born: dict[tuple[int, Path], int] = field(default_factory=dict)
    """Ids by the number of the column, in order of birth, and the path inside it: a user sees these."""
    numbers: dict[str, int] = field(default_factory=lambda: {"id": 0})
    """The numbers of columns, by shown name now."""
    count: int = 1

    def add(self, name: str, kind: pa.DataType) -> None:
        known, names = TableSchema.from_json(self.schema), names_of(self.alterations)
        try:
            (stored,) = names.inward(pa.schema([(name, kind)]), known, grows=True)
            self.schema = grown(self.schema, pa.schema([(stored, kind)]))
        except ValueError:
            return  # refused: a former name, or a type that the column does not join
        if stored not in known.declared.names:
            self.numbers[name], self.count = self.count, self.count + 1
            if stored != name or self.alterations:
                self._alter(Alteration(from_ms(1), added=((stored, name),)))
        self.look()

    def rename(self, old: str, new: str) -> None:
        if old in self.numbers and new not in self.numbers:
            self._alter(Alteration(from_ms(1), renamed=((self._stored(old), new),)))
            self.numbers[new] = self.numbers.pop(old)
        self.look()

    def drop(self, name: str) -> None:
        if name in self.numbers:
            self._alter(Alteration(from_ms(1), dropped=(self._stored(name),)))
            del self.numbers[name]
        self.look()

    def _stored(self, shown: str) -> str:
        return names_of(self.alterations).one(shown, TableSchema.from_json(self.schema))

    def _alter(self, alteration: Alteration) -> None:
        self.alterations = (*self.alterations, alteration)

    def look(self) -> None:
        ids = field_ids(self.schema)
        for shown, number in self.numbers.items():
            stored = self._stored(shown)
            for path, id_ in ids.items():
                if path[0] == stored:
                    assert self.born.setdefault((number, path[1:]), id_) == id_
        assert len({*self.born.values()}) == len(self.born)
        assert len({*ids.values()}) == len(ids)


@settings(max_examples=25)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just(Life.add), NAMES, KINDS),
            st.tuples(st.just(Life.rename), NAMES, NAMES),
            st.tuples(st.just(Life.drop), NAMES),
        ),
        max_size=12,
    )
)
def test_numbered_any_alterations_one_id_a_field_and_one_field_an_id(events: list[tuple[object, ...]]) -> None:
    life = Life()
    for alter, *given_ in events:
        alter(life, *given_)  # type: ignore[operator]


@settings(max_examples=25)
@given(st.dictionaries(NAMES, KINDS), st.dictionaries(NAMES, KINDS))
def test_numbered_two_writers_add_fields_at_once_the_later_one_numbers_after_the_first(
    one: dict[str, pa.DataType], other: dict[str, pa.DataType]
) -> None:
    first, second = (
        pa.schema([(name, kind) for name, kind in part.items() if name.isascii()]) for part in (one, other)
    )
    begin = text_of(NESTED)
    try:
        between = grown(begin, first)
        alone = grown(begin, second)
        end = grown(between, second)
    except ValueError:
        return  # their types do not join
    assert field_ids(begin).items() <= field_ids(between).items() <= field_ids(end).items()
    assert {*field_ids(end)} == {*field_ids(between), *field_ids(alone)}
    assert len({*field_ids(end).values()}) == len(field_ids(end))
    assert grown(end, first) == end


# --- files ------------------------------------------------------------------------------------------------------------


def test_with_field_ids_every_column_and_field_has_its_id() -> None:
    ids = field_ids(text_of(NESTED))
    columns = pa.schema([("_hoodie_record_key", pa.string()), *NESTED, ("_crdt_n", pa.struct([("x", pa.int64())]))])
    found = ids_in_file(with_field_ids(columns, ids))
    own = {("_hoodie_record_key",): OWN_IDS, ("_crdt_n",): OWN_IDS + 1, ("_crdt_n", "x"): OWN_IDS + 2}
    assert found == {**ids, **own}
    assert with_field_ids(columns, ids).equals(columns)


@pytest.mark.parametrize(
    "new", [pa.field("new", pa.int64()), pa.field("place", pa.struct([*PLACE, ("land", pa.string())]))]
)
def test_with_field_ids_a_field_is_not_decided_yet_none_has_an_id(new: pa.Field) -> None:
    columns = pa.schema([("_hoodie_record_key", pa.string()), ("id", pa.string()), new])
    assert ids_in_file(with_field_ids(columns, field_ids(text_of(NESTED)))) == {}

"""Keys, partition paths and buckets, against Java's arithmetic written out and Hudi's own texts."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from crdt_mor.model import java_hash
from crdt_mor.model.keys import DEFAULT_PARTITION, KeySpec, buckets

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
PLAIN = st.text("abcé\U0001f600xyz0123-", max_size=8)


def java_string_hash(text: str) -> int:
    units = text.encode("utf-16-be")
    result = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        result = (31 * result + 256 * high + low) % 2**32
    return result


def java_list_hash(values: list[str | None]) -> int:
    result = 1
    for value in values:
        result = (31 * result + (0 if value is None else java_string_hash(value))) % 2**32
    return result


def java_bucket(values: list[str | None], count: int) -> int:
    return (java_list_hash(values) & 0x7FFFFFFF) % count


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", 2**31), ("\U0001f600", 1772899)],
)
def test_string_hash_is_javas(text: str, expected: int) -> None:
    assert java_string_hash(text) == java_hash.string_hash(text) == expected


@given(st.lists(TEXT, min_size=1, max_size=30), st.integers(1, 1000))
@example(["\U0001f600", "", "é", "abc"], 7)
@example([""], 3)
@example(["abc", "xyz"], 3)
def test_buckets_of_single_keys_are_javas(keys: list[str], count: int) -> None:
    spec = KeySpec(("no_such_text",))
    found = buckets(pa.array(keys, pa.string()), spec, count)
    assert found.dtype == np.int32
    assert found.tolist() == [java_bucket([key], count) for key in keys]


def test_buckets_of_slices_views_chunks_and_many_rows_are_javas() -> None:
    spec = KeySpec(("no_such_text",))
    keys = [f"k{i}é" if i % 9999 == 0 else "x" * (i % 13) + str(i) for i in range(70_000)]
    expected = [java_bucket([key], 64) for key in keys]
    array = pa.array(keys)
    assert buckets(array, spec, 64).tolist() == expected
    assert buckets(array[3:-5], spec, 64).tolist() == expected[3:-5]
    assert buckets(pa.chunked_array([array[:11], array[11:40]]), spec, 64).tolist() == expected[:40]
    assert buckets(array[:9].cast(pa.string_view()), spec, 64).tolist() == expected[:9]
    assert buckets(array[:0], spec, 64).tolist() == []
    fixed = [f"{i:08d}" for i in range(1000)]
    assert buckets(pa.array(fixed), spec, 64).tolist() == [java_bucket([key], 64) for key in fixed]


@pytest.mark.slow
@given(st.lists(st.tuples(st.none() | PLAIN, st.none() | PLAIN, st.integers(-5, 5)), min_size=1, max_size=20))
def test_buckets_of_composite_keys_hash_the_values_or_some_of_them_in_field_order(
    rows: list[tuple[str | None, str | None, int]],
) -> None:
    spec = KeySpec(("a", "bb", "c"))
    data = pa.table(
        {
            "a": pa.array([r[0] for r in rows], pa.string()),
            "bb": pa.array([r[1] for r in rows], pa.string()),
            "c": [r[2] for r in rows],
        }
    )
    keys = spec.record_keys(data)
    assert buckets(keys, spec, 97).tolist() == [java_bucket([a, b, str(c)], 97) for a, b, c in rows]
    of_a_part = KeySpec(spec.fields, hash_fields=("a", "c"))
    assert buckets(keys, of_a_part, 97).tolist() == [java_bucket([a, str(c)], 97) for a, _, c in rows]


def test_moments_and_bytes_have_the_texts_of_hudis_upserts() -> None:
    moment = dt.datetime(2026, 1, 1, 0, 0, 1, 123, tzinfo=dt.UTC)
    at = pa.array([moment], pa.timestamp("us", "UTC"))
    data = pa.table({"at": at, "code": [b"\x00k"], "d": pa.array([Decimal("1E-9")], pa.decimal128(12, 9))})
    spec = KeySpec(("at", "code", "d"), ("at",))
    assert spec.record_keys(data).to_pylist() == ["at:1767225601000123,code:006b,d:1E-9"]
    assert spec.partition_paths(data).to_pylist() == ["1767225601000123"]
    texts = KeySpec(("at",)).record_keys(data)
    assert KeySpec(("at",)).key_values(texts, data.schema)["at"].to_pylist() == [moment]
    with pytest.raises(UnsupportedFeatureError, match="column=x type=double"):
        KeySpec(("x",)).record_keys(pa.table({"x": [0.5]}))


@given(st.lists(st.text("ab:,é", max_size=14), min_size=1, max_size=20), st.booleans())
@example(["a:,é:"], True)
def test_odd_key_texts_hash_as_hudi_splits_them(texts: list[str], composite: bool) -> None:
    spec = KeySpec(("a", "b")) if composite else KeySpec(("a",))
    expected = [java_bucket(java_hash.hudi_values(text, spec.fields), 97) for text in texts]
    assert buckets(pa.array(texts), spec, 97).tolist() == expected


@pytest.mark.parametrize(
    ("key", "fields", "values"),
    [
        ("a:1,b:2", "ab", ["1", "2"]),
        ("a:__null__,b:__empty__", "ab", [None, ""]),
        ("a:2014-10-22 13:50:42,b:x,y", "ab", ["2014-10-22 13:50:42", "x,y"]),
        ("a:1,c:5,b:2", "ab", ["1", "2"]),
        ("id:5", ["id"], ["id:5"]),
        ("id:5,6", ["id"], ["5,6"]),
        ("x:1,y", ["id"], ["x:1,y"]),
        ("plain", "ab", ["plain"]),
        (",", "ab", [","]),
    ],
)
def test_hudi_finds_these_values_in_a_key(key: str, fields: str, values: list[str | None]) -> None:
    assert java_hash.hudi_values(key, tuple(fields)) == values


def test_keys_have_hudis_texts() -> None:
    data = pa.table(
        {"i": pa.array([-1, 7]), "d": pa.array([dt.date(2026, 1, 2), dt.date(1969, 12, 31)]), "s": ["x", "y"]}
    )
    assert KeySpec(("i",)).record_keys(data).to_pylist() == ["-1", "7"]
    assert KeySpec(("d",)).record_keys(data).to_pylist() == ["2026-01-02", "1969-12-31"]
    assert KeySpec(("i", "s")).record_keys(data).to_pylist() == ["i:-1,s:x", "i:7,s:y"]


def test_the_key_generator_follows_hudis_rule() -> None:
    cases = {
        (("a",), ()): ("NON_PARTITION", False),
        (("a", "b"), ()): ("NON_PARTITION", True),
        (("a",), ("p",)): ("SIMPLE", False),
        (("a", "b"), ("p",)): ("COMPLEX", True),
        (("a",), ("p", "q")): ("COMPLEX", True),
        (("a", "b"), ("p", "q")): ("COMPLEX", True),
    }
    for (fields, partition), (generator, composite) in cases.items():
        spec = KeySpec(fields, partition)
        assert (spec.keygen_type, spec.composite) == (generator, composite)


def test_one_key_with_several_partition_columns_carries_its_name_as_in_version_9() -> None:
    spec = KeySpec(("id",), ("p", "q"))
    data = pa.table({"id": ["5", "6,7"], "p": ["a", "b"], "q": ["c", "d"]})
    keys = spec.record_keys(data)
    assert keys.to_pylist() == ["id:5", "id:6,7"]
    # Hudi looks for values only in a text with a comma; the other is hashed whole.
    assert buckets(keys, spec, 97).tolist() == [java_bucket(["id:5"], 97), java_bucket(["6,7"], 97)]
    bare = KeySpec(("id",), ("p", "q"), value_only=True)
    assert not bare.composite
    assert bare.record_keys(data).to_pylist() == ["5", "6,7"]


@pytest.mark.parametrize(
    ("spec", "data", "message"),
    [
        (KeySpec(("a",)), {"a": ["x", None]}, "column=a row=1"),
        (KeySpec(("a",)), {"a": ["x", "y", ""]}, "column=a row=2"),
        (KeySpec(("a", "b")), {"a": ["x", None], "b": ["", ""]}, "column=a,b row=1"),
        (KeySpec(("a", "b")), {"a": ["__null__"], "b": ["x"]}, "column=a row=0"),
        (KeySpec(("a", "b")), {"a": ["x", "1,b:2"], "b": ["x", "3"]}, "column=a row=1"),
        (KeySpec(("a", "b")), {"a": ["x"], "b": ["2,b:3"]}, "column=b row=0"),
    ],
    ids=str,
)
def test_a_key_that_names_no_row_or_two_is_refused_by_column_and_row(
    spec: KeySpec, data: dict[str, list[str | None]], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        spec.record_keys(pa.table({name: pa.array(values, pa.string()) for name, values in data.items()}))


@given(
    st.lists(
        st.tuples(st.text("ab:,_é", max_size=9), st.text("ab:,_é", max_size=9)), min_size=2, max_size=2, unique=True
    )
)
def test_two_rows_never_share_a_composite_key(rows: list[tuple[str, str]]) -> None:
    spec = KeySpec(("a", "b"))
    data = pa.table({"a": [r[0] for r in rows], "b": [r[1] for r in rows]})
    try:
        keys = spec.record_keys(data)
    except InvalidInputError:
        return
    assert keys[0] != keys[1]


PARTITIONED = pa.table(
    {
        "r": pa.array(["eu", None, "", "eu"]),
        "n": pa.array([1, None, -3, 4]),
        "d": pa.array([dt.date(2026, 1, 2), None, None, None]),
        "b": pa.array([True, False, None, True]),
    }
)


def test_partition_paths_are_hudis() -> None:
    none = DEFAULT_PARTITION
    assert KeySpec(("r",)).partition_paths(PARTITIONED).to_pylist() == ["", "", "", ""]
    assert KeySpec(("n",), ("r",)).partition_paths(PARTITIONED).to_pylist() == ["eu", none, none, "eu"]
    assert KeySpec(("n",), ("b",)).partition_paths(PARTITIONED).to_pylist() == ["true", "false", none, "true"]
    hive = KeySpec(("r",), ("d", "n"), hive_style=True)
    assert hive.partition_paths(PARTITIONED).to_pylist() == [
        "d=2026-01-02/n=1", f"d={none}/n={none}", f"d={none}/n=-3", f"d={none}/n=4",
    ]  # fmt: skip
    assert KeySpec(("n",), ("r",)).partition_paths(PARTITIONED[:0]).to_pylist() == []
    chunked = pa.concat_tables([PARTITIONED[:1], PARTITIONED[1:]])
    assert KeySpec(("n",), ("r",)).partition_paths(chunked).to_pylist() == ["eu", none, none, "eu"]


@pytest.mark.parametrize("hive", [False, True])
def test_what_a_partition_path_says_is_what_the_rows_hold(hive: bool) -> None:
    spec = KeySpec(("r",), ("r", "n", "d", "b"), hive_style=hive)
    for row, path in zip(PARTITIONED.to_pylist(), spec.partition_paths(PARTITIONED).to_pylist(), strict=True):
        said = spec.partition_values(path, PARTITIONED.schema)
        assert said == {name: row[name] for name in said}
        assert set(said) == {"n", "d", "b"} | ({"r"} if row["r"] else set())


def test_a_path_that_says_nothing_for_certain_prunes_nothing() -> None:
    schema = pa.schema([("r", pa.string()), ("n", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
    assert KeySpec(("n",), ("r", "n")).partition_values("a/b/c", schema) == {}
    assert KeySpec(("n",), ("r",)).partition_values("a/b", schema) == {"r": "a/b"}
    assert KeySpec(("n",), ("n",)).partition_values("007", schema) == {}
    assert KeySpec(("n",), ("n",)).partition_values("x", schema) == {}
    assert KeySpec(("n",), ("t",)).partition_values("2026-01-01", schema) == {}
    assert KeySpec(("n",), ("r",), generator="TIMESTAMP").partition_values("2026", schema) == {}
    assert KeySpec(("n",), ("r",), url_encode=True).partition_values("a%2Fb", schema) == {"r": "a/b"}
    assert KeySpec(("n",)).partition_values("", schema) == {}


@pytest.mark.parametrize(
    "value", ["a/b", ".", "..", ".x", "_x", "a\nb", "a\0", DEFAULT_PARTITION, "x" * 256, "é" * 128]
)
def test_a_partition_value_that_is_no_directory_is_refused_by_row(value: str) -> None:
    with pytest.raises(InvalidInputError, match="column=p row=2"):
        KeySpec(("k",), ("p",)).partition_paths(pa.table({"p": ["a", "b", value]}))


def test_hive_style_allows_values_that_hide_a_directory() -> None:
    spec = KeySpec(("k",), ("p",), hive_style=True)
    assert spec.partition_paths(pa.table({"p": [".x", "_y", "a b", "é%"]})).to_pylist() == [
        "p=.x",
        "p=_y",
        "p=a b",
        "p=é%",
    ]
    with pytest.raises(InvalidInputError):
        spec.partition_paths(pa.table({"p": [DEFAULT_PARTITION]}))


def test_key_types_whose_text_differs_between_engines_are_refused() -> None:
    good = [
        pa.string(),
        pa.large_string(),
        pa.int8(),
        pa.int64(),
        pa.uint32(),
        pa.date32(),
        pa.dictionary(pa.int32(), pa.string()),
    ]
    for kind in good:
        KeySpec(("k",)).check_types(TableSchema.of(pa.schema([("k", kind)])))
    for kind in [
        pa.float64(),
        pa.bool_(),
        pa.uint64(),
        pa.timestamp("us"),
        pa.decimal128(5, 2),
        pa.binary(),
        pa.list_(pa.int8()),
    ]:
        with pytest.raises(InvalidInputError, match="cast it to string"):
            KeySpec(("k",)).check_types(pa.schema([("k", kind)]))
    KeySpec(("k",), ("b",)).check_types(pa.schema([("k", pa.string()), ("b", pa.bool_())]))
    with pytest.raises(InvalidInputError, match="column=gone"):
        KeySpec(("gone",)).check_types(pa.schema([("k", pa.string())]))


def test_a_key_spec_needs_distinct_columns() -> None:
    for fields, partition in (((), ()), (("a", "a"), ()), (("a",), ("p", "p"))):
        with pytest.raises(InvalidInputError):
            KeySpec(fields, partition)


def test_other_key_generators_are_only_read() -> None:
    data = pa.table({"k": ["1"], "p": ["a"]})
    for spec in (KeySpec(("k",), ("p",), generator="TIMESTAMP"), KeySpec(("k",), ("p",), url_encode=True)):
        with pytest.raises(UnsupportedFeatureError):
            spec.partition_paths(data)
        with pytest.raises(UnsupportedFeatureError):
            spec.record_keys(data)

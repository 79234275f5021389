"""Properties text: Java's grammar, Hudi's own files, damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.errors import FormatError
from crdt_mor.format import properties
from crdt_mor.model.config_properties import checksum
from tests.format.hudi_files import hudi_properties

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NASTY = st.text(" \t\f\r\n\\=:#!ué\U0001f600a", max_size=12)


@given(st.dictionaries(TEXT | NASTY, TEXT | NASTY, max_size=5), st.lists(TEXT, max_size=2))
def test_what_is_written_is_read(values: dict[str, str], comments: list[str]) -> None:
    data = properties.encode(values, comments)
    assert properties.decode(data, "p") == values
    assert data == properties.encode(values, comments)
    assert all(byte < 0x80 for byte in properties.encode(values, []))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a \t = \f b ", {"a": "b "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("a==b", {"a": "=b"}),
        ("a = : b", {"a": ": b"}),
        ("# c\n! d\n\n   \n  #e\na=b", {"a": "b"}),
        ("a=b\\\n   c\\\r\n\td", {"a": "bcd"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a\\ b\\=c\\:=d", {"a b=c:": "d"}),
        ("a=\\u00e9\\t\\q\\ud83d\\uDE00", {"a": "é\tq\U0001f600"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\rc=d\r\ne=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("\\#a=b", {"#a": "b"}),
    ],
    ids=repr,
)
def test_javas_grammar_is_read(text: str, values: dict[str, str]) -> None:
    assert properties.decode(text.encode("latin-1"), "p") == values


def test_hudis_own_files_are_written_byte_for_byte() -> None:
    for name, data in hudi_properties().items():
        comments = [line[1:] for line in data.decode().splitlines()[:2]]
        read = properties.decode_table(data, name)
        assert properties.encode(read, comments) == data
        assert properties.encode_table(read, comments) == data


def test_a_broken_escape_names_the_line() -> None:
    with pytest.raises(FormatError, match="path=here line=2"):
        properties.decode(b"a=b\nc=\\u12x4\n", "here")


def test_a_wrong_checksum_is_refused_and_none_is_fine() -> None:
    good = properties.encode_table({"hoodie.table.name": "t", "hoodie.database.name": "d"})
    assert properties.decode_table(good, "p")["hoodie.table.checksum"] == checksum("d", "t")
    with pytest.raises(FormatError, match="path=p checksum="):
        properties.decode_table(good.replace(b"=t\n", b"=other\n"), "p")
    assert properties.decode_table(b"hoodie.table.name=t\n", "p") == {"hoodie.table.name": "t"}


def test_partition_metadata_is_hudis() -> None:
    data = properties.partition_metadata("20260101000000000", 2)
    assert data == b"#partition metadata\ncommitTime=20260101000000000\npartitionDepth=2\n"

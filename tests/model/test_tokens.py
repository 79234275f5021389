"""The last token of each application, in a version and in the object beside it: `model.tokens`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from crdt_mor.errors import FormatError
from crdt_mor.model.instant import from_ms
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Token
from crdt_mor.model.tokens import Tokens, decode_tokens, encode_tokens, stored_tokens, tokens_in, tokens_json


def token(application: str, number: int, ms: int = 0) -> Token:
    return Token(application, number, from_ms(ms), from_ms(ms + 2), 1)


def commit(application: str, number: int) -> Completion:
    return Completion(from_ms(90), from_ms(92), 9, "n", "deltacommit", "UPSERT", (), token=(application, number))


OLDER = stored_tokens("object", [token("a", 1), token("b", 1)])
BOTH = Tokens((token("b", 2, 50), token("c", 1, 60)), OLDER)


def test_find_prefers_the_version_to_the_object() -> None:
    found = {name: BOTH.find(name) for name in "abcd"}
    assert {name: last and last.number for name, last in found.items()} == {"a": 1, "b": 2, "c": 1, "d": None}


def test_iteration_yields_each_application_once() -> None:
    assert [(t.application, t.number) for t in BOTH] == [("a", 1), ("b", 2), ("c", 1)]


def test_after_a_commit_of_an_application_in_the_object_the_version_has_its_token() -> None:
    after = BOTH.after(commit("a", 2))
    assert [(t.application, t.number) for t in after.recent] == [("b", 2), ("c", 1), ("a", 2)]
    assert after.stored is OLDER
    assert {t.application: t.number for t in after} == {"a": 2, "b": 2, "c": 1}


def test_after_a_commit_with_an_old_number_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="grow"):
        BOTH.after(commit("a", 1))


@pytest.mark.parametrize("most", range(4))
def test_parted_keeps_the_newest_in_the_version(most: int) -> None:
    older, recent = BOTH.parted(most)
    assert [*(t.application for t in older), *(t.application for t in recent)] == ["a", "b", "c"]
    assert len(recent) == most


def test_bytes_of_a_version_name_the_object_and_refuse_use_before_it_is_read() -> None:
    found = tokens_in(json.loads(json.dumps(tokens_json(BOTH))))
    assert found == BOTH
    assert found.is_unread
    assert found.recent == BOTH.recent
    with pytest.raises(AssertionError, match="with_objects"):
        found.find("a")
    read = decode_tokens("object", encode_tokens(OLDER), "path")
    assert list(replace(found, stored=read)) == list(BOTH)


def test_a_version_without_an_object_has_a_list_as_ever() -> None:
    assert tokens_json(Tokens(BOTH.recent)) == [
        ["b", 2, from_ms(50), from_ms(52), 1],
        ["c", 1, from_ms(60), from_ms(62), 1],
    ]


def test_a_release_that_knows_only_lists_refuses_an_object() -> None:
    entries = tokens_json(BOTH)
    assert isinstance(entries, dict)
    with pytest.raises(TypeError):
        [Token(*entry) for entry in entries]  # as these releases decode


@pytest.mark.parametrize(
    "damage",
    [
        b"", b"{}", b'{"tokens":[["a"]]}', b'{"tokens":[["a",true,"","",1]]}', b'{"tokens":[["a","1","","",1]]}',
        b'{"tokens":[["a",%d,"","",1]]}' % (1 << 70), b'{"tokens":{"a":1}}',
    ],
)  # fmt: skip
def test_a_damaged_object_is_an_error_with_its_path(damage: bytes) -> None:
    with pytest.raises(FormatError, match=r"restore them from a backup.*some/path"):
        decode_tokens("object", damage, "some/path")


@pytest.mark.parametrize("entry", ['{"recent":[]}', '{"recent":[],"object":1}', '{"recent":[[1]],"object":"x"}', "7"])
def test_a_version_with_other_tokens_is_damaged(entry: str) -> None:
    data = Timeline.genesis("[]").encode().replace(b'"tokens":[]', b'"tokens":' + entry.encode())
    with pytest.raises(FormatError, match="not a timeline value"):
        Timeline.decode(data, "x")

"""Properties of a table: set in events, seen by every process, the last one of each name counts."""

from __future__ import annotations

from typing import Any

import pytest

from crdt_mor import InvalidInputError
from crdt_mor.errors import FormatError
from crdt_mor.model.table_properties import BYTES_MAX, NAME_MAX
from crdt_mor.model.timeline import Timeline
from tests.table.helpers import Make, Place, files, frame


def test_properties_are_seen_by_every_process_and_stay(make: Make, place: Place) -> None:
    table = make()
    assert dict(table.properties) == {}
    table.set_properties({"owner": "ops", "note": "ä = 1\n", "empty": ""})
    other = place.open()
    assert dict(other.properties) == {"empty": "", "note": "ä = 1\n", "owner": "ops"}
    for i in range(20):
        other.upsert(frame((f"k{i}", "x", i)))
    table.maintenance.compact()
    other.set_properties({"note": None, "never there": None, "owner": "dev"})
    assert dict(place.open().properties) == dict(table.properties) == {"empty": "", "owner": "dev"}
    with pytest.raises(TypeError):
        table.properties["owner"] = "me"  # type: ignore[index]


def test_of_two_that_set_one_name_the_later_event_counts_and_other_names_stay(make: Make, place: Place) -> None:
    one, two = make(), place.open()
    one.set_properties({"a": "1", "b": "1"})
    two.set_properties({"b": "2", "c": "2"})  # what it remembers has none of them
    one.set_properties({"c": None})
    assert dict(two.properties) == {"a": "1", "b": "2"}


def test_what_is_so_already_is_no_event(make: Make) -> None:
    table = make()
    table.set_properties({"a": "1"})
    before = table.version
    table.set_properties({"a": "1", "b": None})
    table.set_properties({})
    assert table.version == before


def test_a_sealed_view_and_its_rows_have_nothing_to_do_with_them(make: Make) -> None:
    table = make()
    commit = table.upsert(frame(("a", "x", 1)))
    table.set_properties({"a": "1"})
    assert table.scan(as_of=commit).count() == table.scan().count() == 1
    assert table.changes(commit).commits == 0
    assert table.history().num_rows == 1


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"crdt_mor.retention": "7 days"}, "crdt_mor.retention must be a duration.*default 7d.*value='7 days'"),
        ({"crdt_mor.retentoin": "7d"}, "belong to the engine.*did you mean crdt_mor.retention.*known=crdt_mor.archive"),
        ({"crdt_mor.retentoin": None}, "belong to the engine"),
        ({"crdt_mor.maintain": "yes"}, "crdt_mor.maintain must be auto, inline or off"),
        ({"retention": "30d"}, "no such property.*did you mean crdt_mor.retention"),
        ({"Crdt-Mor.Retenton": "30d"}, "did you mean crdt_mor.retention"),
        ({"cluster-by": "day"}, "did you mean crdt_mor.cluster_by"),
        ({"compaction.log_file": "20"}, "did you mean crdt_mor.compaction.log_files"),
        ({"merge": "counter"}, "merge is no property but a fixed setting: .*Table.create .*maintenance.migrate"),
        ({"partition-by": "day"}, "partition_by is no property"),
        ({"key": "id"}, "the key of a table never changes: .*Table.create_from"),
        ({"hoodie.cleaner.policy": "x"}, "settings of Hudi, fixed"),
        ({"": "x"}, "1 to 256 characters"),
        ({"a" * (NAME_MAX + 1): "x"}, "1 to 256 characters"),
        ({" a": "x"}, "1 to 256 characters"),
        ({"a\n": "x"}, "1 to 256 characters"),
        ({"a=b": "x"}, "must not contain '='"),
        ({1: "x"}, "1 to 256 characters"),
        ({"a": 1}, "a property must be a string, or None"),
        ({"a": "\ud800"}, "a property must be a string, or None"),
        ({"a": "x" * BYTES_MAX}, f"the properties are too long.*most={BYTES_MAX}"),
        (["a=1"], "must be a dict"),
    ],
)
def test_what_is_no_property_is_refused_and_nothing_is_set(
    make: Make, place: Place, properties: Any, message: str
) -> None:
    table = make()
    table.set_properties({"owner": "ops"})
    before = files(place)
    with pytest.raises(InvalidInputError, match=message):
        table.set_properties({"good": "1", **properties} if isinstance(properties, dict) else properties)
    assert dict(table.properties) == {"owner": "ops"}
    assert files(place) == before


def test_what_only_begins_like_a_property_of_ours_is_the_users_own(make: Make) -> None:
    table = make()
    theirs = {"maintainer": "ada", "archive": "s3://old", "retired": "no", "merged": "yes", "compaction": "by night"}
    table.set_properties(theirs)
    assert dict(table.properties) == theirs
    table.set_properties({"retention": None})  # as an earlier release has taken it


def test_a_value_without_properties_is_the_same_bytes_as_before_there_were_any() -> None:
    value = Timeline.genesis("[]", "table")
    assert b"properties" not in value.encode()
    noted = value.set_properties("n", 0, (("a", "1"),))
    assert Timeline.decode(noted.encode(), "") == noted
    assert noted.set_properties("m", 0, ()).properties == ()


@pytest.mark.parametrize("wrong", ['["a"]', '{"a": 1}', "null", '"a"'])
def test_properties_of_another_shape_are_damage(wrong: str) -> None:
    noted = Timeline.genesis("[]", "table").set_properties("n", 0, (("a", "1"),)).encode().decode()
    with pytest.raises(FormatError, match="not a timeline value"):
        Timeline.decode(noted.replace('{"a":"1"}', wrong).encode(), "")

"""Which file group answers for a bucket, as it follows from commits: `model.file_ids`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crdt_mor.model.file_ids import FIXED, FileIds, LiveGroups, file_ids_of, live_groups
from crdt_mor.model.instant import from_ms
from crdt_mor.model.names import (
    DELTA_COMMIT,
    REPLACE_COMMIT,
    LogFileName,
    bucket_file_id,
    bucket_of_file_id,
    join_path,
    replacing_file_id,
)
from crdt_mor.model.timeline_parts import Completion, DataFile

OPENED = "00000001-7c1e-4bbb-8ccc-1234567890ab-0"
OTHER = "9f1c2d3e-aaaa-4bbb-8ccc-1234567890ab-0"


def write(ms: int, *groups: tuple[str, str]) -> Completion:
    files = [DataFile(join_path(p, str(LogFileName(file_id, from_ms(ms)))), 1, 1) for p, file_id in groups]
    return Completion(from_ms(ms), from_ms(ms + 1), 0, "", DELTA_COMMIT, "INSERT", tuple(files))


def replacing(ms: int, *groups: tuple[str, str]) -> Completion:
    return replace(write(ms), action=REPLACE_COMMIT, operation="DELETE_PARTITION", replaced=groups)


def live(*completions: Completion, buckets: int | None = 4) -> LiveGroups:
    return live_groups(completions, buckets)


def test_a_bucket_that_nobody_has_used_has_the_fixed_id() -> None:
    assert live() == live(write(1, ("mon", bucket_file_id(1)))) == LiveGroups(FIXED, None)
    assert FIXED.of("mon", 1) == bucket_file_id(1)


def test_the_file_group_that_hudi_has_opened_answers_for_its_bucket_in_its_partition_alone() -> None:
    ids = live(write(1, ("mon", OPENED))).file_ids
    assert (ids.of("mon", 1), ids.of("tue", 1), ids.of("mon", 2)) == (OPENED, bucket_file_id(1), bucket_file_id(2))
    assert ids.has(("mon", OPENED))
    assert not ids.has(("tue", OPENED))
    assert not ids.has(("mon", bucket_file_id(1)))


def test_a_replaced_id_is_never_used_again() -> None:
    fixed = ("mon", bucket_file_id(1))
    once = [write(1, fixed), replacing(3, fixed)]
    first = live(*once).file_ids.of("mon", 1)
    assert bucket_of_file_id(first) == 1
    twice = [*once, write(5, ("mon", first)), replacing(7, ("mon", first))]
    second = live(*twice).file_ids.of("mon", 1)
    again = [*twice, write(9, ("mon", OPENED)), replacing(11, ("mon", OPENED))]
    assert len({first, second, live(*again).file_ids.of("mon", 1), OPENED, bucket_file_id(1)}) == 5
    for commits in (once, twice, again):
        assert live(*commits) == live(*reversed(commits)), "the ids are a function of the set of commits"


def test_what_takes_the_place_of_a_replaced_file_group_answers_for_its_bucket() -> None:
    fixed = ("mon", bucket_file_id(1))
    overwriting = replace(replacing(3, fixed), files=write(3, ("mon", OPENED)).files)
    assert live(write(1, fixed), overwriting) == LiveGroups(FileIds((("mon", OPENED),)), None)


@pytest.mark.parametrize("commit", [write(3, ("", OTHER)), write(3, ("", OPENED)), write(3, ("", bucket_file_id(4)))])
def test_a_file_group_to_which_no_bucket_leads_is_foreign_until_it_is_replaced(commit: Completion) -> None:
    opened = write(1, ("", bucket_file_id(1)))
    (group,) = (file.group for file in commit.files)
    assert live(opened, commit).foreign == group[1]
    assert live(opened, commit, replacing(5, group)) == LiveGroups(FIXED, None)


def test_a_table_that_does_not_say_its_buckets_has_no_file_group_of_a_bucket() -> None:
    assert live(write(1, ("", OPENED)), buckets=None) == LiveGroups(FIXED, OPENED)


@pytest.mark.parametrize("entries", [{"mon": [OTHER]}, {"mon": [1]}, {"mon": OPENED}, {"mon": [None]}])
def test_what_are_no_file_ids_is_refused(entries: dict[str, list[str]]) -> None:
    with pytest.raises(TypeError):
        file_ids_of(entries)


def test_a_fresh_id_has_the_form_of_hudis() -> None:
    assert replacing_file_id(3, from_ms(1_700_000_000_123)) == "00000003-0000-0002-0231-114221320123-0"

"""Policies of upkeep: what their texts mean, what no text of them can say, and what is due by them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crdt_mor.errors import InvalidInputError
from crdt_mor.model.instant import barrier_after, from_ms
from crdt_mor.model.merge_spec import MergeSpec
from crdt_mor.model.names import WRITE_TOKEN, BaseFileName, LogFileName
from crdt_mor.model.policies import (
    DAY,
    HOUR,
    MINUTE,
    POLICIES,
    Policies,
    parsed,
    words_of_age,
    words_of_bytes,
    words_of_ms,
)
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile, Pending
from crdt_mor.planners.compaction_due import due_compactions, due_log_compactions

NOW = 1_700_000_000_000
GROUP = "00000000-0000-0000-0000-000000000000-0"
NOTHING = Policies(log_files=None, log_ratio=None, age_ms=None)
QUIET = Timeline.genesis("[]", "table")
BUSY = replace(QUIET, pending=(Pending(from_ms(NOW - HOUR), "n", 1),))


def log(minutes_ago: int, size: int = 1000, rows: int = 1) -> DataFile:
    return DataFile(f"mon/{LogFileName(GROUP, from_ms(NOW - minutes_ago * MINUTE))}", size, rows)


def of(base: int | None, *logs: DataFile, carry: DataFile | None = None) -> FileSlice:
    """A slice with a base file of so many bytes, three hours old, and these logs."""
    barrier = barrier_after(from_ms(NOW - 3 * HOUR))
    file = None if base is None else DataFile(f"mon/{BaseFileName(GROUP, WRITE_TOKEN, barrier)}", base, 1)
    carries = () if carry is None else (replace(carry, path=f"mon/{LogFileName(GROUP, barrier)}"),)
    return FileSlice("mon", GROUP, file, (*carries, *logs))


def due(slice_: FileSlice, policies: Policies, value: Timeline = QUIET, merge: str = "latest") -> list[str]:
    return [one.why for one in due_compactions(value, [slice_], MergeSpec.parse(merge), policies, NOW)]


def test_a_table_without_properties_has_the_policies_that_its_page_names() -> None:
    assert Policies.of(()) == Policies() == Policies.of([(p.name, p.default) for p in POLICIES])
    assert Policies.of([("owner", "ops"), ("crdt_mor.retention", "2w")]).keep_ms == 14 * DAY


@pytest.mark.parametrize(
    ("name", "text", "means"),
    [
        ("crdt_mor.retention", "90s", 90_000),
        ("crdt_mor.retention", "0d", 0),
        ("crdt_mor.retention", "forever", None),
        ("crdt_mor.readers", "30m", 30 * MINUTE),
        ("crdt_mor.compaction.age", "off", None),
        ("crdt_mor.compaction.log_ratio", "0.25", 0.25),
        ("crdt_mor.compaction.log_bytes", "2GiB", 2 << 30),
        ("crdt_mor.retention.commits", "12", 12),
        ("crdt_mor.maintain", "inline", "inline"),
        ("crdt_mor.maintain", "off", "off"),
    ],
)
def test_what_a_policy_says(name: str, text: str, means: object) -> None:
    assert parsed(name, text) == means


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("crdt_mor.retention", "7"),
        ("crdt_mor.retention", "off"),
        ("crdt_mor.retention", "-1d"),
        ("crdt_mor.retention", "200000w"),
        ("crdt_mor.retention", "٧d"),
        ("crdt_mor.readers", "forever"),
        ("crdt_mor.compaction.log_files", "0"),
        ("crdt_mor.compaction.log_files", "ten"),
        ("crdt_mor.compaction.log_ratio", "0"),
        ("crdt_mor.compaction.log_ratio", "nan"),
        ("crdt_mor.compaction.log_bytes", "1MB"),
        ("crdt_mor.maintain", "Inline"),
    ],
)
def test_what_a_policy_cannot_say_is_refused_with_what_it_can(name: str, text: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{name} must be .*default .*value={text!r}"):
        parsed(name, text)


def test_durations_are_told_as_they_are_set() -> None:
    assert [words_of_ms(ms) for ms in (0, 90_000, 30 * MINUTE, 36 * HOUR, 14 * DAY)] == [
        "0s", "90s", "30m", "36h", "14d"
    ]  # fmt: skip
    assert [words_of_age(ms) for ms in (0, 119_000, 3 * HOUR + 1, 3 * DAY)] == ["0s", "119s", "3h", "3d"]


def test_bytes_are_told_in_the_largest_unit_of_which_there_is_one() -> None:
    assert [words_of_bytes(count) for count in (0, 1023, 1024, 1536 << 10, 3 << 40)] == [
        "0 B", "1023 B", "1.0 KiB", "1.5 MiB", "3072.0 GiB"
    ]  # fmt: skip


def test_a_file_group_is_due_by_the_number_of_its_logs_and_says_so() -> None:
    policies = replace(NOTHING, log_files=2)
    assert due(of(1000, log(2)), policies) == []
    assert due(of(1000, log(2), log(1)), policies) == ["file group mon/00000000 has 2 logs; the policy is 2"]
    assert due(of(1000, log(2), log(1)), NOTHING) == []


def test_it_is_due_by_the_bytes_of_its_logs_unless_they_are_few() -> None:
    policies = replace(NOTHING, log_ratio=0.5, log_bytes=3000)
    assert due(of(4000, log(2, 2999)), policies) == [], "below the least bytes"
    assert due(of(7000, log(2, 3000)), policies) == [], "below the ratio"
    said = "file group mon/00000000 has 0.8 times the bytes of its base in logs; the policy is 0.5"
    assert due(of(4000, log(2, 3000)), policies) == [said]


def test_where_there_is_no_base_the_largest_log_stands_for_it() -> None:
    policies = replace(NOTHING, log_ratio=0.5, log_bytes=1)
    assert due(of(None, log(3, 10_000)), policies) == [], "a first load is not to be written twice"
    assert due(of(None, log(3, 10_000), log(2, 4_000)), policies) == []
    assert due(of(None, log(3, 10_000), log(2, 4_000), log(1, 1_000)), policies) != []


def test_it_is_due_by_the_age_of_its_oldest_log() -> None:
    policies = replace(NOTHING, age_ms=HOUR)
    assert due(of(1000, log(59)), policies) == []
    assert due(of(1000, log(60), log(1)), policies) == [
        "file group mon/00000000 has a log that is 60m old; the policy is 1h"
    ]


def test_what_is_carried_for_a_pending_write_is_no_reason_and_is_one_once_it_can_come_to_rest() -> None:
    carrying, policies = of(1000, carry=log(0, 9000)), Policies(log_files=None, log_bytes=1, age_ms=HOUR)
    assert due(carrying, policies, BUSY) == []
    assert due(carrying, policies) != []
    beside = of(1000, log(1, 100), carry=log(0, 9000))
    assert due(beside, policies, BUSY, merge="ordering:n") != [], "that write began after what is carried had ended"
    straggler = replace(QUIET, pending=(Pending(from_ms(NOW - 4 * HOUR), "n", 1),))
    assert due(beside, policies, straggler, merge="ordering:n") == [], "what is carried is settled till then"
    assert due(beside, policies, straggler) != [], "where the latest wins, rows are carried by a log compaction alone"
    tombstones = of(1000, carry=log(0, 9000, rows=0))
    assert due(tombstones, policies, merge="ordering:n") == [], "every compaction carries them on"


def test_groups_in_open_plans_are_left_out_and_the_worst_comes_first() -> None:
    other = "00000001-0000-0000-0000-000000000000-0"
    bad = FileSlice("", other, None, (DataFile(str(LogFileName(other, from_ms(NOW))), 10, 1),) * 3)
    found = due_compactions(QUIET, [of(9000, log(1)), bad], MergeSpec(), replace(NOTHING, log_files=1), NOW)
    assert [one.group[1] for one in found] == [other, GROUP]
    assert found[0].why.startswith("file group 00000001 has 3 logs")
    taken = due_compactions(QUIET, [bad], MergeSpec(), replace(NOTHING, log_files=1), NOW, {("", other)})
    assert taken == []


def test_logs_are_made_one_only_where_that_is_asked_for_and_there_is_a_base() -> None:
    asked = Policies(log_compaction=2)
    assert due_log_compactions([of(1000, log(2), log(1))], Policies()) == []
    assert [d.group for d in due_log_compactions([of(1000, log(2), log(1))], asked)] == [("mon", GROUP)]
    assert due_log_compactions([of(None, log(2), log(1))], asked) == []
    assert due_log_compactions([of(1000, log(2), log(1))], asked, {("mon", GROUP)}) == []


def test_what_is_due_is_found_without_comparing_logs_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked in every attempt to publish a plan: a service that took a second for it would lose to all writers."""
    slice_ = of(1000, *(log(i % 170, size=i) for i in range(500)), carry=log(0, 9000))
    compared: list[DataFile] = []

    def counted(one: DataFile, other: object) -> bool:
        compared.append(one)
        return one is other

    monkeypatch.setattr(DataFile, "__eq__", counted)
    assert due(slice_, Policies(log_files=3)) != []
    assert len(compared) <= len(slice_.logs)

"""What is due of a table's upkeep by its policies, with the reason in words.

What is due is a pure function of a value of the timeline, its file slices, the policies and the store's time, so that
any number of processes that ask at once come to the same answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from crdt_mor.model.instant import to_ms
from crdt_mor.model.merge_spec import MergeSpec
from crdt_mor.model.policies import Policies, plural, words_of_age, words_of_bytes, words_of_ms
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import DataFile, FileGroup
from crdt_mor.planners.compaction import can_absorb_carry, pending_in

_NAMES: Final = "crdt_mor.compaction"


@dataclass(frozen=True, slots=True)
class DueGroup:
    """A file group that is to be compacted. bytes: of the files that it reads, about."""

    group: FileGroup
    why: str
    bytes: int


def group_name(group: FileGroup) -> str:
    """A file group as people name it: its partition, and its file id up to where all of them are alike."""
    partition, file_id = group
    short = file_id.partition("-")[0]
    return f"{partition}/{short}" if partition else short


def due_compactions(
    value: Timeline,
    slices: Iterable[FileSlice],
    merge: MergeSpec,
    policies: Policies,
    now_ms: int,
    taken: Collection[FileGroup] = (),
) -> list[DueGroup]:
    """The file groups that are to be compacted by the policies, those first whose logs are most beside their base.

    slices: the latest ones of `value`. now_ms: the store's clock. taken: the groups in open plans, which are left out.
    """
    found: list[tuple[float, DueGroup]] = []
    for slice_ in slices:
        loose = _loose_logs(slice_, merge, value)
        why = _why_due(slice_, loose, policies, now_ms) if loose and slice_.group not in taken else None
        if why is not None:
            bytes_ = sum(file.size for file in slice_.files)
            said = f"file group {group_name(slice_.group)} {why}"
            found.append((-_ratio_of(slice_, loose), DueGroup(slice_.group, said, bytes_)))
    return [due for _, due in sorted(found, key=lambda item: (item[0], item[1].group))]


def due_log_compactions(
    slices: Iterable[FileSlice], policies: Policies, taken: Collection[FileGroup] = ()
) -> list[DueGroup]:
    """The file groups whose logs are to be made one. taken: those in open plans, or due for a compaction."""
    most = policies.log_compaction
    if most is None:
        return []
    return [
        DueGroup(
            slice_.group,
            f"file group {group_name(slice_.group)} has {plural(len(slice_.fresh_logs), 'log')}; the policy for a log "
            f"compaction is {most}",
            sum(log.size for log in slice_.logs),
        )
        for slice_ in slices
        if slice_.base is not None and len(slice_.fresh_logs) >= max(2, most) and slice_.group not in taken
    ]


def waits_of(
    value: Timeline, slices: Iterable[FileSlice], merge: MergeSpec, policies: Policies, now_ms: int
) -> list[str]:
    """What compactions wait for where none is due: each policy with the file group that is nearest to it.

    slices: the latest ones of `value`. now_ms: the store's clock.
    """
    found = [(slice_, loose) for slice_ in slices if (loose := _loose_logs(slice_, merge, value))]
    if not found:
        return ["compaction waits for log files: there are none"]
    said = []
    if policies.log_files is not None:
        most = max(len(loose) for _, loose in found)
        said.append(f"{plural(policies.log_files, 'log')} in one file group, the most are {most} ({_NAMES}.log_files)")
    if policies.log_ratio is not None:
        size = max(sum(log.size for log in loose) for _, loose in found)
        said.append(
            f"logs of {words_of_bytes(policies.log_bytes)} that are {policies.log_ratio:g} times their base file, "
            f"the largest are {words_of_bytes(size)} ({_NAMES}.log_bytes, {_NAMES}.log_ratio)"
        )
    if policies.age_ms is not None:
        age_ms = now_ms - min(to_ms(log.name.instant) for _, loose in found for log in loose)
        oldest = words_of_age(max(0, age_ms))
        said.append(f"a log that is {words_of_ms(policies.age_ms)} old, the oldest is {oldest} ({_NAMES}.age)")
    return [f"compaction waits for {one}" for one in said]


def _loose_logs(slice_: FileSlice, merge: MergeSpec, value: Timeline) -> tuple[DataFile, ...]:
    """The logs that a compaction would bring into the base file: those of commits, and a carry that can come to rest.

    What a carry holds for a write that was pending before its barrier, and still is, a compaction would only carry on:
    that is no reason for one. Where the latest commit wins, rows are carried by nothing but a log compaction, and come
    to rest with any compaction.
    """
    fresh = slice_.fresh_logs
    carries = [log for log in slice_.logs if slice_.is_carry(log)]
    if not carries:
        return fresh
    pending = pending_in(value, slice_.partition)
    at_rest = all(p > log.name.instant for p in pending for log in carries)
    folded = merge.kind == "latest" and any(log.rows for log in carries)
    if fresh:
        return slice_.logs if at_rest or folded else fresh
    return slice_.logs if not pending and can_absorb_carry(slice_, merge) else ()


def _why_due(slice_: FileSlice, loose: tuple[DataFile, ...], policies: Policies, now_ms: int) -> str | None:
    if policies.log_files is not None and len(loose) >= policies.log_files:
        return f"has {plural(len(loose), 'log')}; the policy is {policies.log_files}"
    ratio, size = _ratio_of(slice_, loose), sum(log.size for log in loose)
    if policies.log_ratio is not None and size >= policies.log_bytes and ratio >= policies.log_ratio:
        return f"has {ratio:.1f} times the bytes of its base in logs; the policy is {policies.log_ratio:g}"
    age_ms = now_ms - min(to_ms(log.name.instant) for log in loose)
    if policies.age_ms is not None and age_ms >= policies.age_ms:
        return f"has a log that is {words_of_age(age_ms)} old; the policy is {words_of_ms(policies.age_ms)}"
    return None


def _ratio_of(slice_: FileSlice, loose: tuple[DataFile, ...]) -> float:
    """The bytes of loose logs over the bytes of the rest; where there is no base, the largest log stands for it."""
    size = sum(log.size for log in loose)
    settled = sum(file.size for file in slice_.files) - size
    if slice_.base is None:
        largest = max(log.size for log in loose)
        size, settled = size - largest, settled + largest
    return size / max(1, settled)

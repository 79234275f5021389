"""Decide which compactions are due by a table's policies, with the reason in words.

Pure functions of timeline value, file slices, policies and the store's time, so all processes get the same answer.
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
    group: FileGroup
    why: str
    bytes: int


def group_name(group: FileGroup) -> str:
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
    """Return the due file groups, except `taken` ones, the highest ratio of logs to base first."""
    ranked: list[tuple[float, DueGroup]] = []
    for slice_ in slices:
        foldable = _foldable_logs(slice_, merge, value)
        why = _why_due(slice_, foldable, policies, now_ms) if foldable and slice_.group not in taken else None
        if why is not None:
            bytes_ = sum(file.size for file in slice_.files)
            reason = f"file group {group_name(slice_.group)} {why}"
            ranked.append((-_ratio_of(slice_, foldable), DueGroup(slice_.group, reason, bytes_)))
    return [due for _, due in sorted(ranked, key=lambda item: (item[0], item[1].group))]


def due_log_compactions(
    slices: Iterable[FileSlice], policies: Policies, taken: Collection[FileGroup] = ()
) -> list[DueGroup]:
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


def waiting_texts(
    value: Timeline, slices: Iterable[FileSlice], merge: MergeSpec, policies: Policies, now_ms: int
) -> list[str]:
    """Describe when a compaction becomes due: for each policy the threshold and the nearest file group."""
    found = [(slice_, foldable) for slice_ in slices if (foldable := _foldable_logs(slice_, merge, value))]
    if not found:
        return ["no compaction is due: there are no log files"]
    texts = []
    if policies.log_files is not None:
        most = max(len(foldable) for _, foldable in found)
        texts.append(f"a file group has {plural(policies.log_files, 'log')}, now at most {most} ({_NAMES}.log_files)")
    if policies.log_ratio is not None:
        size = max(sum(log.size for log in foldable) for _, foldable in found)
        texts.append(
            f"a file group's logs have {words_of_bytes(policies.log_bytes)} and {policies.log_ratio:g} times the bytes "
            f"of its base file, now at most {words_of_bytes(size)} ({_NAMES}.log_bytes, {_NAMES}.log_ratio)"
        )
    if policies.age_ms is not None:
        age_ms = now_ms - min(to_ms(log.name.instant) for _, foldable in found for log in foldable)
        oldest = words_of_age(max(0, age_ms))
        texts.append(f"a log is {words_of_ms(policies.age_ms)} old, the oldest is now {oldest} ({_NAMES}.age)")
    return [f"compaction is due when {one}" for one in texts]


def _foldable_logs(slice_: FileSlice, merge: MergeSpec, value: Timeline) -> tuple[DataFile, ...]:
    """Return the logs that a compaction would fold into the base: commit logs, and a carry that no pending write
    precedes.

    A carry behind a pending write would only be carried again. If the latest commit wins, only log compactions carry
    rows, and any compaction folds them.
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


def _why_due(slice_: FileSlice, foldable: tuple[DataFile, ...], policies: Policies, now_ms: int) -> str | None:
    if policies.log_files is not None and len(foldable) >= policies.log_files:
        return f"has {plural(len(foldable), 'log')}; the policy is {policies.log_files}"
    ratio, size = _ratio_of(slice_, foldable), sum(log.size for log in foldable)
    if policies.log_ratio is not None and size >= policies.log_bytes and ratio >= policies.log_ratio:
        return f"has {ratio:.1f} times the bytes of its base in logs; the policy is {policies.log_ratio:g}"
    age_ms = now_ms - min(to_ms(log.name.instant) for log in foldable)
    if policies.age_ms is not None and age_ms >= policies.age_ms:
        return f"has a log that is {words_of_age(age_ms)} old; the policy is {words_of_ms(policies.age_ms)}"
    return None


def _ratio_of(slice_: FileSlice, foldable: tuple[DataFile, ...]) -> float:
    """Return the foldable logs' bytes by the other bytes. Without a base file, the largest log is the base."""
    size = sum(log.size for log in foldable)
    settled = sum(file.size for file in slice_.files) - size
    if slice_.base is None:
        largest = max(log.size for log in foldable)
        size, settled = size - largest, settled + largest
    return size / max(1, settled)

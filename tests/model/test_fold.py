"""A kept fold gives the slices of any next set of commits, as a fold of these commits alone gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_mor.model import packed_files
from crdt_mor.model import slices as folding
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.packed_files import PackedFiles
from crdt_mor.model.slices import FileSlice, Fold, Slices
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup

GROUPS: tuple[FileGroup, ...] = tuple(
    (f"p={p}", f"{b:08d}-0000-0000-0000-000000000000-0") for p in "abc" for b in (0, 1)
)


def instant(number: int) -> InstantTime:
    return InstantTime(f"2026010100{number:07d}")


def base(group: FileGroup, at: int) -> DataFile:
    return DataFile(f"{group[0]}/{group[1]}_0-0-0_{instant(at)}.parquet", 10, 1)


def log(group: FileGroup, at: int) -> DataFile:
    return DataFile(f"{group[0]}/.{group[1]}_{instant(at)}.log.1_0-0-0", 10, 1)


@st.composite
def commits(draw: st.DrawFn, number: int) -> Completion:
    """A commit of logs, a compaction with an earlier barrier, or an overwrite that replaces groups."""
    some = st.lists(st.sampled_from(GROUPS), unique=True, max_size=3)
    kind, groups, lag = draw(st.sampled_from(["log", "log", "base", "replace"])), draw(some), draw(st.integers(0, 9))
    named = max(0, number - lag)
    files = tuple((log if kind == "log" else base)(group, named) for group in groups)
    replaced = tuple(draw(some)) if kind == "replace" else ()
    return Completion(instant(number), instant(number + 3), 1, "n", "deltacommit", "upsert", files, replaced)


def packed(completion: Completion) -> Completion:
    """The same commit as a segment would give it; equal to it."""
    files = PackedFiles.of([[file.path, file.size, file.rows] for file in completion.files])
    return completion if files is None else replace(completion, files=files)


@st.composite
def histories(draw: st.DrawFn) -> list[list[Completion]]:
    """Sets of commits of one timeline, in completion order."""
    known = [draw(commits(number)) for number in range(draw(st.integers(1, 8)))]
    read = st.sampled_from(known).flatmap(lambda c: st.sampled_from([c, packed(c)]))
    return draw(st.lists(st.lists(read, unique_by=lambda c: c.requested), min_size=1, max_size=6))


def by_definition(completions: Sequence[Completion]) -> list[FileSlice]:
    """The newest base file of each group that no commit replaced, with the logs that completed since its instant."""
    replaced = {group for c in completions for group in c.replaced}
    files = [(file, c.completed) for c in completions for file in c.files if file.group not in replaced]
    found = []
    for group in sorted({file.group for file, _ in files}):
        bases = [file for file, _ in files if file.group == group and file.is_base]
        newest = max(bases, key=lambda file: file.name.instant, default=None)
        since = "" if newest is None else newest.name.instant
        logs = [file for file, done in files if file.group == group and not file.is_base and done >= since]
        found.append(FileSlice(*group, newest, tuple(sorted(logs, key=folding.log_order))))
    return found


@pytest.mark.parametrize("bisected", [1, 1_000])
@given(sets=histories())
def test_a_kept_fold_gives_the_slices_of_each_set(bisected: int, sets: list[list[Completion]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(folding, "_BISECTED", bisected)
        fold = Fold()
        for completions in sets:
            found = fold.of(completions)
            assert list(found) == by_definition(completions)
            assert len(found) == len([*found])
            assert {*found.partitions} >= {slice_.partition for slice_ in found}
            for group in GROUPS:
                assert list(found.of_group(group)) == [slice_ for slice_ in found if slice_.group == group]
            for path in ("p=a", "p=b", "p=c", "p"):
                assert list(found.within([path])) == [slice_ for slice_ in found if slice_.partition == path]


def test_slices_of_partitions_and_groups_are_found() -> None:
    slices = Slices(FileSlice(*group, base(group, 0), ()) for group in GROUPS)
    assert slices.within(["p=c", "p=a", "p=none", ""]) == (*slices[:2], *slices[4:])
    assert [slices.of_group(group) for group in GROUPS] == [(slice_,) for slice_ in slices]
    assert slices.of_group(("p=b", "1")) == slices.of_group(("p=z", "")) == ()


def test_a_commit_to_known_groups_keeps_the_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "_BISECTED", 1)
    fold, first = Fold(), Completion(instant(0), instant(1), 1, "n", "commit", "", tuple(base(g, 0) for g in GROUPS))
    before = fold.of([first]).partitions
    later = Completion(instant(2), instant(3), 2, "n", "deltacommit", "", (log(GROUPS[1], 2),))
    assert fold.of([first, later]).partitions is before


@pytest.mark.parametrize("bisected", [1, 0], ids=["all are made", "paths are compared"])
def test_packed_files_of_partitions_are_found(monkeypatch: pytest.MonkeyPatch, bisected: int) -> None:
    monkeypatch.setattr(packed_files, "_BISECTED", 100 * bisected)
    every = [base((partition, GROUPS[0][1]), 0) for partition in ("a", "a/b", "ab", "b", "a")]
    files = PackedFiles.of([[file.path, file.size, file.rows] for file in every])
    assert files is not None
    assert files.within(["a"]) == [every[0], every[4]]
    assert sorted(files.within({"a/b", "b", "c"}), key=every.index) == [every[1], every[3]]

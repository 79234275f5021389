"""Overwrites as values: what their event makes of the timeline, what is void beside it, and what plans freeze then."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from crdt_mor.errors import FormatError
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.invariants import require_invariants
from crdt_mor.model.merge_spec import MergeSpec
from crdt_mor.model.names import WRITE_TOKEN, BaseFileName, LogFileName, bucket_file_id
from crdt_mor.model.overwrite import EVERYTHING, Overwrite, Scope
from crdt_mor.model.slices import FileSlice, fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, FileGroup, OpenPlan, Pending
from crdt_mor.planners.compaction import CompactionPlan, pending_in, plan_compaction
from crdt_mor.planners.overwrite import (
    StagedBase,
    StagedOverwrite,
    covered_by,
    is_end_of_write,
    overwritten,
    overwritten_at,
)

MS = 1_700_000_000_000
A, B = Scope(("a",)), Scope(("b",))


def log(partition: str, requested: InstantTime, bucket: int = 0) -> DataFile:
    return DataFile(f"{partition}/{LogFileName(bucket_file_id(bucket), requested)}", 10, 1)


class Line:
    """A timeline, each of whose versions may follow the one before it."""

    def __init__(self) -> None:
        self.value = Timeline.genesis('[["id","string",false]]', "t")
        self.count = 0

    def to(self, value: Timeline) -> Timeline:
        require_invariants(self.value, value)
        self.value = value
        assert Timeline.decode(value.encode(), "") == value
        return value

    def nonce(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def begin(self) -> Pending:
        return self.to(self.value.begin(self.nonce(), MS)).pending[-1]

    def complete(self, begun: Pending, *partitions: str) -> Completion:
        files = [log(partition, begun.requested) for partition in partitions]
        return self.to(self.value.complete(self.nonce(), MS, begun.requested, "UPSERT", files)).completions[-1]

    def commit(self, *partitions: str) -> Completion:
        return self.complete(self.begin(), *partitions)

    def overwrite(
        self,
        scope: Scope,
        *groups: FileGroup,
        begun: Pending | None = None,
        cancelled: tuple[OpenPlan, ...] = (),
        token: tuple[str, int] | None = None,
    ) -> Completion:
        begun = begun or self.begin()
        bases = tuple(StagedBase(f"staged{i}", group, 100, 5) for i, group in enumerate(groups))
        staged = StagedOverwrite("INSERT_OVERWRITE", scope, bases, ("empty", 50))
        slices = fold_slices(self.value.completions)
        value = overwritten(self.value, self.nonce(), MS, begun, staged, slices, cancelled, token)
        return self.to(value).completions[-1]

    @property
    def slices(self) -> dict[FileGroup, FileSlice]:
        return {s.group: s for s in fold_slices(self.value.completions)}


@pytest.fixture
def line() -> Line:
    return Line()


def group(partition: str, bucket: int = 0) -> FileGroup:
    return partition, bucket_file_id(bucket)


def test_one_event_ends_the_write_and_puts_a_base_in_front_of_each_file_group_of_its_scope(line: Line) -> None:
    line.commit("a", "b")
    begun = line.begin()
    done = line.overwrite(A, group("a", 1), begun=begun)
    ended = line.value.completions[-2]
    assert (ended.requested, ended.files, ended.action) == (begun.requested, (), "deltacommit")
    assert ended.requested < done.requested < ended.completed < done.completed == line.value.clock
    assert done.requested[-1] in "13579"
    assert (done.action, covered_by(done), is_end_of_write(ended), is_end_of_write(done)) == (
        "commit", ("a",), True, False,
    )  # fmt: skip
    assert [(f.group, f.rows, f.staged) for f in done.files] == [
        (group("a", 0), 0, "empty"), (group("a", 1), 5, "staged0"),
    ]  # fmt: skip
    names = [BaseFileName(bucket_file_id(i), WRITE_TOKEN, done.requested) for i in (0, 1)]
    assert [f.name for f in done.files] == names
    shown = line.slices
    assert shown[group("a", 0)].logs == ()
    assert shown[group("b")].base is None


def test_of_all_the_table_is_said_so(line: Line) -> None:
    assert covered_by(line.overwrite(EVERYTHING)) == ("*",)
    assert covered_by(line.commit("a")) is None


def test_a_file_group_that_holds_no_rows_stays_as_it_is(line: Line) -> None:
    line.commit("a")
    line.overwrite(EVERYTHING)
    assert line.overwrite(EVERYTHING).files == ()
    line.commit("a")
    assert len(line.overwrite(EVERYTHING).files) == 1


def test_what_was_pending_is_void_in_the_scope_until_the_last_such_write_has_ended(line: Line) -> None:
    first, second = line.begin(), line.begin()
    barrier = line.overwrite(A).requested
    third = line.begin()
    assert line.value.overwrites == (Overwrite(barrier, A),)
    for begun, void in ((first, ["a"]), (second, ["a"]), (third, [])):
        files = [log(partition, begun.requested) for partition in ("a", "b")]
        assert [f.partition for f in line.value.void_files(begun.requested, files)] == void
    line.complete(first, "b")
    assert line.value.overwrites
    line.to(line.value.roll_back(line.nonce(), MS, second.requested))
    value = line.value
    assert value.overwrites == ()
    line.complete(third, "a", "b")


def test_an_overwrite_takes_the_place_of_earlier_ones_that_it_includes(line: Line) -> None:
    line.begin()
    first = line.overwrite(A).requested
    line.overwrite(B)
    assert [o.scope for o in line.value.overwrites] == [A, B]
    last = line.overwrite(A).requested
    assert [o.scope for o in line.value.overwrites] == [B, A]
    assert first < overwritten_at(line.value, "b") < overwritten_at(line.value, "a") == last
    line.overwrite(EVERYTHING)
    assert [o.scope for o in line.value.overwrites] == [EVERYTHING]


def test_another_overwrite_that_was_pending_comes_after_and_is_not_void(line: Line) -> None:
    line.commit("a")
    late = line.begin()
    first = line.overwrite(A)
    second = line.overwrite(EVERYTHING, group("a", 1), begun=late)
    assert late.requested < first.requested < second.requested
    assert line.slices[group("a", 1)].base == second.files[-1]


def test_scopes_include_each_other_as_sets_do() -> None:
    scopes = [EVERYTHING, Scope(("a", "b")), A]
    assert all(wide.includes(narrow) for wide, narrow in pairwise(scopes))
    assert not any(narrow.includes(wide) for wide, narrow in pairwise(scopes))
    assert not A.includes(B)


def test_open_plans_of_the_scope_are_cancelled(line: Line) -> None:
    line.commit("a")
    line.to(line.value.schedule("plan", MS, "compaction", "path"))
    barrier = line.value.plans[0].barrier
    line.overwrite(A, cancelled=line.value.plans)
    assert line.value.plans == ()
    assert [(r.requested, r.is_plan) for r in line.value.rolled_back] == [(barrier, True)]


def test_the_token_names_the_overwrite(line: Line) -> None:
    done = line.overwrite(EVERYTHING, token=("app", 3))
    token = line.value.find_token("app")
    assert token is not None
    assert (token.number, token.requested, token.completed, token.version) == (
        3, done.requested, done.completed, done.version,
    )  # fmt: skip


def test_plans_count_only_writes_that_were_requested_after_the_overwrite_of_a_partition(line: Line) -> None:
    line.commit("a", "b")
    old = line.begin()
    barrier = line.overwrite(A, group("a")).requested
    new = line.begin()
    line.commit("a", "b")
    assert pending_in(line.value, "a") == (new.requested,)
    assert pending_in(line.value, "b") == (old.requested, new.requested)
    plan = plan_compaction(line.value, list(line.slices.values()), MergeSpec.parse("latest"))
    assert plan is not None
    of = {g.partition: g for g in plan.groups}
    assert (of["a"].overwritten, of["b"].overwritten) == (barrier, EPOCH)
    assert plan.pending == (old.requested, new.requested)
    assert plan.pending_of(of["a"]) == (new.requested,)
    assert plan.pending_of(of["b"]) == plan.pending
    assert CompactionPlan.decode(plan.encode(), "x") == plan
    assert plan.encode().startswith(b'{"format":3,')
    plain = replace(plan, groups=(of["b"],))
    assert plain.encode().startswith(b'{"format":1,')
    assert CompactionPlan.decode(plain.encode(), "x") == plain
    with pytest.raises(FormatError, match="not a compaction plan"):
        CompactionPlan.decode(plan.encode().replace(f'0,"{barrier}"'.encode(), b'0,"?"'), "x")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [(b'["a"]]]', b'"a"]]'), (b'["a"]]]', b"[1]]]"), (b'"overwriting":{"write"', b'"overwriting":{"wrote"')],
)
def test_what_is_no_overwrite_is_refused(line: Line, right: bytes, wrong: bytes) -> None:
    line.begin()
    line.overwrite(A)
    data = line.value.encode()
    assert right in data
    with pytest.raises(FormatError, match="file=x"):
        Timeline.decode(data.replace(right, wrong), "x")


def test_a_value_says_it_in_these_very_bytes(line: Line) -> None:
    """What is on disk stays byte for byte. Other bytes need the next `FORMAT`."""
    line.begin()
    done = line.overwrite(A, group("a"))
    data = line.value.encode()
    assert f'"overwrites":[["{done.requested}",["a"]]]}}'.encode() in data
    ended = line.value.completions[-2].requested
    assert f'null,{{"overwriting":{{"write":"{ended}","partitions":["a"]}}}}]'.encode() in data
    assert f'_0-0-0_{done.requested}.parquet",100,5,0,"staged0"]'.encode() in data

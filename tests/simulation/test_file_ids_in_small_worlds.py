"""Hudi opens and replaces file groups beside writes of ours that have begun, in every interleaving with their ends.

    early ──T1───────┬──────────────────▶ C1       T1 < H < T2, whenever each of them ends
    hudi     H ──────┼─▶ its files, one after the other
    late     ────T2──┴──────────────────▶ C2       looker: adopts what is there, at any moment

A writer stages by the file ids of the value that it began from, and stages again where these are others at its end, as
`write.open_write` does. The promises, on top of those of `small_world`:

    - what was acknowledged, and comes after a commit of Hudi's that replaces rows, is shown by our readers, and by
      Hudi's, who go by names; what comes before it is not; or the table is refused, by the name of that commit
    - nothing is shown twice
    - a bucket has one live file group, or the value says that writers are to be refused
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import UnsupportedFeatureError, WriterExpiredError
from crdt_mor.events import write as events
from crdt_mor.format.commit import CommitMetadata, WriteStat, encode_commit
from crdt_mor.hudi import adoption
from crdt_mor.log import publish
from crdt_mor.log.paths import version_path
from crdt_mor.log.steps import Put, delete_for_good
from crdt_mor.log.tail import find_tail
from crdt_mor.model import file_ids, timeline
from crdt_mor.model.file_ids import FileIds
from crdt_mor.model.instant import InstantTime, from_ms, to_ms
from crdt_mor.model.names import LogFileName, bucket_file_id, data_file_name
from crdt_mor.model.overwrite import DELETE_PARTITION, OVERWRITE
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, Pending
from tests.format.replace_commit import encode_replace_commit
from tests.simulation.actors import PUBLISHER, Run
from tests.simulation.landing import looked
from tests.simulation.small_store import (
    HUDI,
    LOG,
    PROJECTOR,
    Violation,
    begun_paths,
    completed_path,
    completions_of,
    decoded,
)
from tests.simulation.small_world import World
from tests.simulation.worlds import ROLES, Place, Plant, Role
from tests.tiers import slow

COLUMNS = TableSchema(pa.schema([("id", pa.string())])).to_json()
GENESIS = Timeline.genesis(COLUMNS, "the-table")
FIXED, OPENED = bucket_file_id(0), "00000000-7c1e-4bbb-8ccc-1234567890ab-0"
"""The file group that a writer of ours opens for the one bucket, and the one that Hudi opens."""


def log_of(file_id: str, requested: InstantTime) -> DataFile:
    return DataFile(str(LogFileName(file_id, requested)), 1, 1)


def writer(value: Timeline, begun: Pending) -> Run:
    """A write that has begun: it stages its one file, and completes."""
    requested, ids = begun.requested, value.file_ids
    while True:
        tail = yield from find_tail(value)
        if tail.find_pending(requested) is None:
            return ("expired", requested)
        file = log_of(ids.of("", 0), requested)
        yield Put(file.path, b"rows")
        try:
            yield from events.complete(PUBLISHER, value, begun, "UPSERT", [file], None)
        except events.GroupsMovedError as moved:
            yield from delete_for_good([file.path])
            ids, value = moved.value.file_ids, moved.value
            continue
        except WriterExpiredError:
            return ("expired", requested)
        return ("acknowledged", requested)


def looker(value: Timeline) -> Run:
    """Adopts what Hudi has written, as each writer does that begins."""
    try:
        yield from adoption.adopt(PUBLISHER, value)
    except UnsupportedFeatureError:
        return ("refused", None)
    return None


Statement = Callable[[InstantTime, InstantTime], tuple[list[tuple[str, bytes]], str]]
"""The files that a statement of Hudi's puts, in their order, and the path of the last one, which completes it."""


def _stats(requested: InstantTime) -> dict[str, list[WriteStat]]:
    log = log_of(OPENED, requested).path
    stat = WriteStat(
        file_id=OPENED, path=log, num_writes=1, file_size_in_bytes=4, partition_path="", base_file="",
        log_files=(log,), log_version=1, log_offset=0,
    )  # fmt: skip
    return {"": [stat]}


def opens(requested: InstantTime, completed: InstantTime) -> tuple[list[tuple[str, bytes]], str]:
    """INSERT, into a bucket of which it sees no file group."""
    last = f"{HUDI}/{requested}_{completed}.deltacommit"
    begun = [(f"{HUDI}/{requested}.deltacommit.{state}", b"") for state in ("requested", "inflight")]
    done = encode_commit(CommitMetadata(_stats(requested), "INSERT", {}))
    return [*begun, (log_of(OPENED, requested).path, b"rows"), (last, done)], last


def drops(requested: InstantTime, completed: InstantTime) -> tuple[list[tuple[str, bytes]], str]:
    """DROP PARTITION, of the file group that there is."""
    return _replacing(requested, completed, DELETE_PARTITION, [])


def overwrites(requested: InstantTime, completed: InstantTime) -> tuple[list[tuple[str, bytes]], str]:
    """INSERT OVERWRITE, of the file group that there is."""
    return _replacing(requested, completed, OVERWRITE, [(log_of(OPENED, requested).path, b"rows")])


def _replacing(
    requested: InstantTime, completed: InstantTime, operation: str, files: list[tuple[str, bytes]]
) -> tuple[list[tuple[str, bytes]], str]:
    last = f"{HUDI}/{requested}_{completed}.replacecommit"
    begun = [(f"{HUDI}/{requested}.replacecommit.{state}", b"") for state in ("requested", "inflight")]
    stats = _stats(requested) if files else {}
    done = encode_replace_commit(CommitMetadata(stats, operation, {}, replaced={"": [FIXED]}))
    return [*begun, *files, (last, done)], last


class SharedBucket(World):
    """A table of one bucket, in which a commit of ours has opened the file group; where Hudi opens one, there is none.

    Two writes have begun, the second one later than Hudi's statement. who: roles beside Hudi.
    """

    def __init__(self, statement: Statement, who: Sequence[str], **options: Any) -> None:
        value, objects = GENESIS, dict[str, bytes]()
        if statement is not opens:
            value, objects = self._committed(value, objects)
        value = value.begin("early", 0)
        self.requested = from_ms(to_ms(value.clock) + 1)
        value = value.begin("late", 0)
        objects |= {path: b"" for p in value.pending for path in begun_paths(p.requested)}
        files, self.last = statement(self.requested, from_ms(to_ms(self.requested) + 2))
        self.replaces = statement is not opens

        def hudi(value: Timeline) -> Run:
            for path, data in files:
                yield Put(path, data)

        objects[version_path(value.version)] = value.encode()
        place = Place(objects)
        roles: dict[str, Role] = {**ROLES, "hudi": hudi, "looker": looker}
        place.live(["hudi", *who], roles, writes={"early": writer, "late": writer}, begun=self._begun(value, who))
        super().__init__(place.objects, place.actors, deletions=False, **options)

    @staticmethod
    def _committed(value: Timeline, objects: dict[str, bytes]) -> tuple[Timeline, dict[str, bytes]]:
        value = value.begin("begun", 0)
        (begun,) = value.pending
        file = log_of(FIXED, begun.requested)
        value = value.complete("done", 0, begun.requested, "UPSERT", [file])
        objects |= dict.fromkeys(begun_paths(begun.requested), b"") | {file.path: b"rows"}
        return value, objects | {completed_path(value.completions[0]): PROJECTOR._completed(value.completions[0], "")}

    @staticmethod
    def _begun(value: Timeline, who: Sequence[str]) -> list[Pending]:
        by_name = {pending.nonce: pending for pending in value.pending}
        return [by_name[role] for role in who if role in by_name]

    def check(self, objects: dict[str, Any]) -> None:
        tail = decoded(objects[LOG][-1])
        own = completions_of(tail, objects)
        is_adopted = any(c.adopted for c in own)
        super().check({path: data for path, data in objects.items() if path != self.last or is_adopted})
        try:
            found = looked(adoption.foreign_completions(PROJECTOR, tail), objects)
        except UnsupportedFeatureError as refusal:
            if is_adopted or f"instant={self.requested} " not in str(refusal):
                raise Violation(
                    f"the table is refused, and not for what Hudi did at that moment: {refusal}"
                ) from refusal
            return
        everything = [*own, *found.completions]
        meant = {c.requested for c in everything if c.files and not self._is_replaced(c, objects)}
        check_shown("ours", [log.name.instant for s in fold_slices(everything) for log in s.logs], meant)
        told = {c.requested for c in everything if c.adopted or completed_path(c) in objects}
        check_shown("Hudi's", [t for t in self._shown_by_hudi(objects) if t in told], meant & told)
        live = {s.file_id for s in fold_slices(own)}
        if len(live) > 1 and tail.foreign_group is None and is_adopted:
            raise Violation(f"writers are not refused, and the bucket has two file groups: {sorted(live)}")

    def _is_replaced(self, completion: Completion, objects: dict[str, Any]) -> bool:
        return self.replaces and self.last in objects and completion.requested < self.requested

    def _shown_by_hudi(self, objects: dict[str, Any]) -> list[InstantTime]:
        """The instants of all log files whose names are not those of a file group that was replaced."""
        replaced = {FIXED} if self.replaces and self.last in objects else set[str]()
        names = [name for path in objects if not path.startswith((".hoodie", "!")) and (name := data_file_name(path))]
        return [name.instant for name in names if name.file_id not in replaced]


def check_shown(who: str, shown: Sequence[InstantTime], meant: set[InstantTime]) -> None:
    if sorted(shown) != sorted(meant):
        raise Violation(f"{who} readers show other rows than the commits mean: shown={sorted(shown)} {meant=}")


def named(value: Any) -> str:
    """A statement, a bug or the actors, in the id of a case."""
    return str(value.__name__) if callable(value) else "" if isinstance(value, str) else "-".join(value)


STATEMENTS = [opens, drops, overwrites]
WHO = [["early", "looker"], ["late", "looker"], ["early", "late"], ["early", "late", "looker"]]
FAST = [(drops, WHO[0]), (drops, WHO[1]), (opens, WHO[1])]
CASES = [case if case in FAST else slow(*case) for case in product(STATEMENTS, WHO)]


@pytest.mark.parametrize(("statement", "who"), CASES, ids=named)
def test_what_is_acknowledged_is_shown_or_refused_by_name(statement: Statement, who: Sequence[str]) -> None:
    assert SharedBucket(statement, who).search() > 20


# --- planted bugs -----------------------------------------------------------------------------------------------------


def file_ids_are_not_asked_again(patch: pytest.MonkeyPatch) -> None:
    """A write completes with files that it has staged by the ids of the value that it began from."""
    patch.setattr(FileIds, "misplaced", lambda self, files: [])


def a_replaced_id_is_used_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(file_ids, "replacing_file_id", lambda bucket, instant: bucket_file_id(bucket))


def what_hudi_has_replaced_voids_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(timeline, "with_replaced", lambda overwrites, adopted: tuple(overwrites))


def hidden_commits_are_taken_as_they_are(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(adoption, "_refuse_replaced", lambda completions, found: None)


def a_second_file_group_is_not_noted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(publish, "require_invariants", lambda previous, following: None)
    kept = file_ids.live_groups
    patch.setattr(adoption, "live_groups", lambda *args: file_ids.LiveGroups(kept(*args).file_ids, None))


@pytest.mark.parametrize(
    ("plant", "statement", "who", "found"),
    [
        (file_ids_are_not_asked_again, drops, ["late", "looker"], "show other rows"),
        slow(file_ids_are_not_asked_again, opens, ["late", "looker"], "two file groups"),
        (a_replaced_id_is_used_again, drops, ["late", "looker"], "show other rows"),
        slow(what_hudi_has_replaced_voids_nothing, drops, ["early", "looker"], "show other rows"),
        slow(hidden_commits_are_taken_as_they_are, drops, ["late", "looker"], "show other rows"),
        slow(a_second_file_group_is_not_noted, opens, ["late", "looker"], "two file groups"),
    ],
    ids=named,
)
def test_the_search_finds(
    plant: Plant, statement: Statement, who: Sequence[str], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation, match=found):
        SharedBucket(statement, who).search()

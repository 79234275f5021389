"""A process freezes just before a file that Hudi is told by, and puts it when its instant is archived and dropped.

Then it is killed, so that it does not look whether its file came too late. Hudi's readers would take all archived
instants that are newer than it for uncommitted, so the next sweep removes it, whatever its action and its state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from crdt_mor import Opening, StorageUnavailableError, Table
from crdt_mor.format.commit import CompactionPlanRecord, encode_compaction_plan
from crdt_mor.model.names import TimelineFileName
from crdt_mor.store.memory import MemoryStore
from crdt_mor.store.protocol import Store
from crdt_mor.testing.faults import ProcessDied
from tests.inside import run_sweep, tail_of
from tests.simulated import Simulated
from tests.stores import Dying, ScriptedStore
from tests.tiers import slow

HUDIS = ".hoodie/timeline"
NONE = timedelta(0)


@pytest.fixture(autouse=True)
def everything_is_soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version goes as soon as there is a newer one, and completions move to segments one by one."""
    monkeypatch.setattr("crdt_mor.log.tail.KEPT_VERSIONS", 1)
    monkeypatch.setattr("crdt_mor.log.publish.EXPIRE_EVERY", 1)
    monkeypatch.setattr("crdt_mor.log.segments.COMPLETIONS_MAX", 1)


def frozen(action: str, state: str, others: Callable[[], None]) -> Dying:
    """The script of a process that freezes before it puts a file of this action and state, and dies right after it."""

    def counts(operation: str, path: str) -> bool:
        name = TimelineFileName.parse(path.rpartition("/")[2]) if path.startswith(HUDIS) else None
        return operation == "put" and name is not None and (name.action, name.state) == (action, state)

    return Dying(counts, after=True, meanwhile=lambda path: others())


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": [f"k{n % 3}" for n in numbers], "n": [*numbers]})


class Scene:
    """A table with commits and a compaction, which others archive and clean until nothing older is known."""

    def __init__(self) -> None:
        self.place = Simulated()
        self.table = self.place.create(pa.schema([("id", pa.string()), ("n", pa.int64())]), key="id", buckets=1)
        for n in range(3):
            self.table.upsert(rows(n))

    def opened(self, store: Store | None = None) -> Table:
        return Table("simulated", opening=Opening(store=store or self.place.store, environment=self.place.environment))

    def others(self) -> None:
        """They write, compact, archive and clean, until the value knows nothing of what came before."""
        table = self.opened()
        for pending in table.inspect.pending()["requested_at"].to_pylist():
            table.maintenance.roll_back(pending)
        self.sweep()
        for n in range(4):
            table.upsert(rows(n, n + 1))
            table.maintenance.compact()
        assert table.maintenance.archive(keep_commits=1).instants
        table.maintenance.clean(commits=1, readers=NONE)
        assert tail_of(table).retention.dropped_count

    def sweep(self) -> None:
        for _ in range(2):
            run_sweep(self.opened())

    def archived(self) -> list[str]:
        """What stands in Hudi's active timeline of archived instants."""
        watermark = tail_of(self.opened()).archive.watermark
        names = (stat.path.rpartition("/")[2] for stat in self.place.store.list(HUDIS))
        return [name for name in names if name[:1].isdigit() and name[:17] <= watermark]


def in_block(table: Table) -> None:
    with table.transaction() as tx:
        tx.upsert(rows(5))


def gone_back(table: Table) -> None:
    table.maintenance.restore(table.version - 1)


def undone(table: Table) -> None:
    """A write is given up, and a sweep tells Hudi of it."""
    tx = table.transaction()
    tx.__enter__()
    table.maintenance.roll_back(table.inspect.pending()["requested_at"][0].as_py())
    run_sweep(table)


ACTIONS: dict[tuple[str, str], Callable[[Table], Any]] = {
    ("deltacommit", "inflight"): in_block,
    ("deltacommit", "requested"): in_block,
    ("deltacommit", "completed"): in_block,
    ("compaction", "requested"): lambda table: table.maintenance.compact(),
    ("compaction", "inflight"): lambda table: table.maintenance.compact(),
    ("commit", "completed"): lambda table: table.maintenance.compact(),
    ("clean", "requested"): lambda table: table.maintenance.clean(commits=1, readers=NONE),
    ("clean", "inflight"): lambda table: table.maintenance.clean(commits=1, readers=NONE),
    ("clean", "completed"): lambda table: table.maintenance.clean(commits=1, readers=NONE),
    ("restore", "requested"): gone_back,
    ("restore", "inflight"): gone_back,
    ("restore", "completed"): gone_back,
    ("rollback", "requested"): undone,
    ("rollback", "inflight"): undone,
    ("rollback", "completed"): undone,
}

OFTEN = [("commit", "completed"), ("compaction", "inflight"), ("clean", "completed"), ("deltacommit", "completed")]


@pytest.mark.parametrize(("action", "state"), [pair if pair in OFTEN else slow(*pair) for pair in ACTIONS])
def test_the_next_sweep_removes_what_was_put_too_late(action: str, state: str) -> None:
    scene = Scene()
    if action == "clean":
        scene.table.maintenance.compact()
        scene.table.upsert(rows(1))
        scene.table.maintenance.compact()
    dying = frozen(action, state, scene.others)
    with pytest.raises(ProcessDied):
        ACTIONS[action, state](scene.opened(ScriptedStore(scene.place.store, dying)))
    assert dying.died_at.rpartition("/")[2] in scene.archived()
    shown = scene.opened().scan().to_arrow()
    scene.sweep()
    assert scene.archived() == []
    assert scene.table.maintenance.archive().left == 0
    assert scene.opened().scan().to_arrow() == shown


def test_a_token_is_repeated_though_its_commit_is_dropped() -> None:
    """Whichever way the write goes: in one event, in a block, or as a job of many processes."""
    scene, token = Scene(), ("loader", 1)
    first = scene.table.upsert(rows(0), token=token)
    scene.others()
    table = scene.opened()
    shown = table.scan().to_arrow()
    job = table.jobs.plan("upsert", shown.schema, token=token)
    with table.transaction(token=token) as tx:
        tx.delete(keys=["k0"])
    for again in (table.upsert(rows(5), token=token), tx.commit, table.jobs.complete(job, [])):
        assert again == replace(first, rows=0, deletes=0, repeated=True)
    assert scene.opened().scan().to_arrow() == shown


def test_what_hudi_itself_has_put_stays() -> None:
    """Neither its plan of long ago, nor the empty file beside it, is ours to remove."""
    scene = Scene()
    scene.others()
    watermark = tail_of(scene.opened()).archive.watermark
    stem = f"{HUDIS}/{int(watermark) - 1}"
    for name, data in (("requested", encode_compaction_plan(CompactionPlanRecord(()))), ("inflight", b"")):
        assert scene.place.store.put(f"{stem}.compaction.{name}", data)
    scene.sweep()
    assert len(scene.archived()) == 2


def test_a_file_that_archiving_could_not_remove_goes_once_its_commit_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    delete = MemoryStore.delete

    def refuse(store: MemoryStore, path: str) -> None:
        if path.startswith(HUDIS) and path.endswith(".commit"):
            raise StorageUnavailableError(f"EIO {path}")
        delete(store, path)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "delete", refuse)
        scene.others()
        assert scene.table.maintenance.archive().left == len(scene.archived())
    assert [name for name in scene.archived() if name.endswith(".commit")]
    scene.sweep()
    assert scene.archived() == []
    assert scene.table.maintenance.archive().left == 0

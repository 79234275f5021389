"""`maintain`: everything that is due of a table's upkeep, one service after another.

    plans that are open ──► compaction ──► log compaction ──► cleaning ──► sweep ──► archiving

The order is one in which each service finds what the one before has made possible. An open plan holds its file groups
until somebody completes it, so these go first. A compaction makes files superfluous, which cleaning then deletes. The
sweep confirms that given-up writes have left nothing, without which archiving stops at them, and archiving comes last,
as it takes what all others have ended.

Nothing is decided here that another process could contradict: each service is safe beside any number of others, of its
own kind as well. So this may be run from cron on any number of machines, killed at any moment and run again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from crdt_mor.errors import (
    CrdtMorError,
    ForkedProcessError,
    InvalidInputError,
    TableNotFoundError,
    TableReplacedError,
    UnsupportedFeatureError,
)
from crdt_mor.model.due import DueGroup, due_compactions, plural
from crdt_mor.model.instant import EPOCH, InstantTime, to_ms
from crdt_mor.model.plans import CompactionPlan
from crdt_mor.model.policies import Policies, words_of_age, words_of_ms
from crdt_mor.model.retention import RetentionPolicy, is_commit
from crdt_mor.model.slices import FileSlice, fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import FileGroup
from crdt_mor.observing import UpkeepEvent
from crdt_mor.services import service
from crdt_mor.services.clean import clean, would_clean
from crdt_mor.services.compact import compaction
from crdt_mor.timeline import plans, sweep
from crdt_mor.timeline.actions import CLEAN, COMPACT
from crdt_mor.timeline.session import Session

PLAN_BYTES = 4 << 30
"""Bytes that one compaction reads, about: what is more is left to the next plan, whose result is seen by itself."""

PLAN_GROUPS = 1000
"""File groups of one compaction, at most."""

DETAILS_SHOWN = 3
"""Reasons that the text of an action names; the rest it counts."""

State = Literal["done", "due", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class Upkeep:
    """One thing that `maintain` has done, or would do, or could not do.

    service: `compaction`, `log_compaction`, `clean`, `sweep` or `archive`.
    state: `due` in a dry run; `refused` where the table or this release forbids it; `failed`: `error` says why.
    why: what made it due, in words; `details`: the same of each file group.
    file_groups, rows: what was compacted. files_written, bytes_written: new files. files_removed, bytes_removed: what
    was deleted.
    """

    service: str
    state: Literal["done", "due", "refused", "failed"]
    why: str
    details: tuple[str, ...] = ()
    file_groups: int = 0
    rows: int = 0
    files_written: int = 0
    bytes_written: int = 0
    files_removed: int = 0
    bytes_removed: int = 0
    error: str = ""

    def __str__(self) -> str:
        shown = self.details[:DETAILS_SHOWN]
        more = f", and {len(self.details) - len(shown):,} more" if len(self.details) > len(shown) else ""
        reasons = f" ({'; '.join(shown)}{more})" if shown else ""
        outcome = "; ".join(filter(None, (self._results(), self.error)))
        said = f"{self.service.replace('_', ' ')} {self.state}, since {self.why}{reasons}"
        return f"{said}: {outcome}" if outcome else said

    def _results(self) -> str:
        parts = []
        if self.file_groups:
            parts.append(plural(self.file_groups, "file group"))
        if self.files_written:
            parts.append(f"wrote {plural(self.files_written, 'file')}, {_size(self.bytes_written)}")
        if self.files_removed:
            parts.append(f"removed {plural(self.files_removed, 'file')}, {_size(self.bytes_removed)}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Maintained:
    """What a call of `maintain` has done, in the order in which it was done. dry_run: it has done nothing."""

    actions: tuple[Upkeep, ...]
    dry_run: bool = False

    @property
    def ok(self) -> bool:
        """Whether nothing failed; what a table forbids is no failure."""
        return all(action.state != "failed" for action in self.actions)

    @property
    def files_removed(self) -> int:
        return sum(action.files_removed for action in self.actions)

    @property
    def bytes_removed(self) -> int:
        return sum(action.bytes_removed for action in self.actions)

    @property
    def files_written(self) -> int:
        return sum(action.files_written for action in self.actions)

    @property
    def bytes_written(self) -> int:
        return sum(action.bytes_written for action in self.actions)

    def __str__(self) -> str:
        return "\n".join(map(str, self.actions)) or "nothing is due"


def maintain(session: Session, policies: Policies, dry_run: bool = False) -> Maintained:
    """Do whatever is due by the policies, or only say what is.

    A service that the table forbids, or that fails, is named in the result, and the others go on. What says that the
    table itself is not there, or not the one that was opened, is raised.
    """
    run = _Run(session, policies, dry_run)
    services: list[tuple[str, Callable[[_Run], Iterator[Upkeep]]]] = [
        ("compaction", _open_plans),
        ("compaction", _compactions),
        ("clean", _clean),
        ("sweep", _sweep),
    ]
    for name, work in services:
        run.guarded(name, work)
    return Maintained(tuple(run.actions), dry_run)


@dataclass
class _Run:
    """One call of `maintain`: what it goes by, and what it has done so far."""

    session: Session
    policies: Policies
    dry_run: bool
    actions: list[Upkeep] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now_ms = self.session.store.now_ms()
        self.before = self.session.tail()

    def guarded(self, name: str, work: Callable[[_Run], Iterator[Upkeep]]) -> None:
        """Do the work of one service, and note what came of it, also where it raises."""
        try:
            for action in work(self):
                self.note(action)
        except (TableNotFoundError, TableReplacedError, ForkedProcessError):
            raise
        except CrdtMorError as error:
            self.note(Upkeep(name, state_of(error), "it was looked at", error=str(error)))

    def note(self, action: Upkeep) -> None:
        self.actions.append(action)
        if action.state != "due":
            tell(self.session, action)


def tell(session: Session, action: Upkeep, *, inline: bool = False) -> None:
    """Tell whoever observes what was done."""
    assert action.state != "due", "nothing has happened yet"
    session.publisher.tell(
        UpkeepEvent(service=action.service, state=action.state, why=action.why, inline=inline, error=action.error)
    )


def state_of(error: CrdtMorError) -> Literal["refused", "failed"]:
    """What an error says of a service: that this table forbids it, or that it may work when it is tried again."""
    return "refused" if isinstance(error, UnsupportedFeatureError | InvalidInputError) else "failed"


# --- compaction -------------------------------------------------------------------------------------------------------


def _open_plans(run: _Run) -> Iterator[Upkeep]:
    """Finish the plans that somebody has scheduled and nobody has completed; one that fails stops no other."""
    if run.dry_run:
        for known in run.session.tail().plans:
            if known.action == COMPACT.name:
                yield Upkeep("compaction", "due", _open_since(run, known.barrier))
        return
    for plan in service.open_plans(run.session, COMPACT):
        why = _open_since(run, plan.barrier)
        try:
            yield from compacted(run.session, plan, Upkeep("compaction", "done", why))
        except (TableNotFoundError, TableReplacedError, ForkedProcessError):
            raise
        except CrdtMorError as error:
            yield Upkeep("compaction", state_of(error), why, error=str(error))


def _open_since(run: _Run, barrier: InstantTime) -> str:
    return f"plan {barrier} has been open for {words_of_age(max(0, run.now_ms - to_ms(barrier)))}"


def compacted(session: Session, plan: CompactionPlan, action: Upkeep) -> Iterator[Upkeep]:
    """Execute a plan and complete it; nothing where somebody has cancelled it meanwhile."""
    done = service.complete(session, plan, service.execute(session, compaction(), plan))
    if done is not None:
        bases = [file for file in done.files if file.is_base]
        yield replace(
            action, file_groups=len(bases), rows=sum(file.rows for file in bases), files_written=len(done.files),
            bytes_written=sum(file.size for file in done.files),
        )  # fmt: skip


def _compactions(run: _Run) -> Iterator[Upkeep]:
    """Compact the file groups that are due, in plans that are bounded; the worst of them come first."""
    session = run.session
    value = session.tail()
    due = {one.group: one for one in _due(run, value, latest_slices(session, value), groups_in_plans(session, value))}
    if due and must_wait(session, value):
        refusal = (
            "in this table of Hudi's, Hudi's readers would let a write win that ends after a compaction: it is made "
            f"once no write is pending. pending={[write.requested for write in value.pending]}"
        )
        yield replace(_compaction(list(due.values()), "refused"), error=refusal)
    elif due and run.dry_run:
        yield _compaction(list(due.values()), "due")
    while due and not run.dry_run:  # of what was due at first, so that this ends beside the fastest of writers
        plan, chosen = _schedule(run, due)
        if plan is None:
            break
        for group in plan.file_groups:
            due.pop(group, None)
        yield from compacted(session, plan, _compaction(chosen, "done"))


def _schedule(run: _Run, among: Collection[FileGroup]) -> tuple[CompactionPlan | None, list[DueGroup]]:
    """The next plan of what is due, and what it was made for; None where nothing is due any more."""
    chosen: list[DueGroup] = []

    def choose(value: Timeline, slices: Sequence[FileSlice], taken: Collection[FileGroup]) -> set[FileGroup]:
        chosen[:] = bounded(one for one in _due(run, value, slices, taken) if one.group in among)
        return {one.group for one in chosen}

    return service.schedule(run.session, compaction(choose=choose)), chosen


def must_wait(session: Session, value: Timeline) -> bool:
    """Whether the table is one of Hudi's that is compacted only while no write is pending."""
    return session.config.merge.hudi_commit_time and bool(value.pending)


def _compaction(due: Sequence[DueGroup], state: State) -> Upkeep:
    if len(due) == 1:
        return Upkeep("compaction", state, due[0].why)
    return Upkeep("compaction", state, f"{plural(len(due), 'file group')} are due", tuple(one.why for one in due))


def _due(run: _Run, value: Timeline, slices: Iterable[FileSlice], taken: Collection[FileGroup]) -> list[DueGroup]:
    return due_compactions(value, slices, run.session.config.merge, run.policies, run.now_ms, taken)


def bounded(due: Iterable[DueGroup]) -> list[DueGroup]:
    """The first of the groups that are due, as many as one plan takes: at least one."""
    chosen: list[DueGroup] = []
    size = 0
    for one in due:
        size += one.bytes
        if chosen and (size > PLAN_BYTES or len(chosen) == PLAN_GROUPS):
            break
        chosen.append(one)
    return chosen


def latest_slices(session: Session, value: Timeline) -> list[FileSlice]:
    """The file slices of the latest snapshot of a value."""
    return fold_slices(session.snapshot_completions(value, None))


def groups_in_plans(session: Session, value: Timeline) -> set[FileGroup]:
    """The file groups of the open plans of a value."""
    read = (session.run(plans.read_plan(value, plan)) for plan in value.plans)
    return {group for plan in read if plan is not None for group in plan.file_groups}


# --- cleaning ---------------------------------------------------------------------------------------------------------


def _clean(run: _Run) -> Iterator[Upkeep]:
    """Give up history that is older than what is kept, and remove the files that nothing needs any more.

    The mark moves only where a commit lies before it, or a file can go: else every look would publish an event.
    """
    session, policies = run.session, run.policies
    if policies.keep_ms is None and policies.keep_commits is None:
        return
    policy = RetentionPolicy(policies.keep_ms, policies.keep_commits, policies.readers_ms)
    value = session.tail()
    would = would_clean(session, policy)
    commits = (c for c in session.completions(value) if is_commit(c))
    passed = any(value.retention.since < commit.completed <= would.since for commit in commits)
    if not (would.files or passed or any(plan.action == CLEAN.name for plan in value.plans)):
        return
    why = f"history is kept for {_kept(policies)}, and some is older"
    if run.dry_run:
        yield Upkeep("clean", "due", why, files_removed=would.files, bytes_removed=would.bytes)
        return
    done = clean(session, policy)
    failed = f"{plural(done.failed, 'file')} could not be removed, which the next clean tries" if done.failed else ""
    yield Upkeep("clean", "done", why, files_removed=done.files, bytes_removed=done.bytes, error=failed)


def _kept(policies: Policies) -> str:
    kept = [] if policies.keep_ms is None else [words_of_ms(policies.keep_ms)]
    return " and ".join([*kept, *([] if policies.keep_commits is None else [plural(policies.keep_commits, "commit")])])


# --- the sweep --------------------------------------------------------------------------------------------------------


def _sweep(run: _Run) -> Iterator[Upkeep]:
    """Give up the writers that are silent, and remove what given-up writes have left, unless it was just done.

    Another service of this call may have swept already, as whoever schedules a plan does when it is time to.
    """
    session, before = run.session, run.before
    since_ms, given_up = abs(run.now_ms - to_ms(before.swept)), len(before.rolled_back)
    if since_ms <= sweep.SWEEP_EVERY_MS and not given_up:
        return
    last = "there was none yet" if before.swept == EPOCH else f"the last one was {words_of_age(since_ms)} ago"
    why = f"{plural(given_up, 'given-up write')} may have left files" if given_up else last
    if run.dry_run:
        yield Upkeep("sweep", "due", why)
        return
    session.start()
    tail = session.remember(session.run(sweep.upkeep(session.publisher, session.known(), session.expiry_ms)))
    if tail.rolled_back and tail.swept == before.swept:
        session.remember(session.run(sweep.sweep(session.publisher, tail)))
    yield Upkeep("sweep", "done", why)


def _size(count: float) -> str:
    """Bytes as people write them."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"

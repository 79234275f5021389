"""`maintain`: run all due upkeep of a table, service by service.

    told ─► open plans ─► compaction ─► log compaction ─► cleaning ─► erasures ─► sweep ─► archiving ─► tokens ─► hints
      ─► mirrors ─► catalogs

Open plans hold their file groups, so they come before compaction. The sweep confirms that rolled-back writes left no
files; otherwise archiving stops at them. Each service is safe beside any other and beside itself, and may be killed at
any time. All services decide from the initial look, or from the last event of this call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from crdt_mor.errors import (
    CrdtMorError,
    ErasureUnfinishedError,
    ForkedProcessError,
    InvalidInputError,
    TableMovedError,
    TableNotFoundError,
    TableReplacedError,
    UnsupportedFeatureError,
)
from crdt_mor.events import plan as plans
from crdt_mor.events import write as events
from crdt_mor.events.session import Session
from crdt_mor.ground.observing_events import UpkeepEvent
from crdt_mor.hudi import adoption
from crdt_mor.hudi.actions import COMPACT
from crdt_mor.model.checkpoints import Checkpoint
from crdt_mor.model.instant import InstantTime, from_ms, to_ms
from crdt_mor.model.migration import require_not_moved
from crdt_mor.model.policies import Policies, plural, words_of_age, words_of_ms
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import FileGroup
from crdt_mor.planners.archive import KEPT_COMMITS
from crdt_mor.planners.clean import RetentionPolicy
from crdt_mor.planners.compaction import CompactionPlan
from crdt_mor.planners.compaction_due import DueGroup, due_compactions, due_log_compactions, waiting_texts
from crdt_mor.services import erasure as erase
from crdt_mor.services import service
from crdt_mor.services.archive import archivable_now, archive
from crdt_mor.services.clean import Cleaner
from crdt_mor.services.compaction import compaction
from crdt_mor.services.compaction_failures import noted
from crdt_mor.services.compaction_finish import ExecuteParts, Finished, failure_texts, finish
from crdt_mor.services.expiry import Removes, due_expired, move_clock
from crdt_mor.services.maintain_hudi import sweep_dead, tell_hudi
from crdt_mor.services.maintain_report import DETAILS_SHOWN, Maintained, Upkeep, due_action
from crdt_mor.services.resolving import hints
from crdt_mor.store.protocol import Stat
from crdt_mor.write.refusals import require_written_format

PLAN_BYTES = 4 << 30
"""Approximate bytes read by a compaction. Readers profit early from each of several plans."""

PLAN_GROUPS = 1000
"""Most file groups of a compaction."""

LEFT_OUT = (
    "its payload or its files failed to compact earlier, and nothing was written to it since: "
    "run maintenance.compact() or crdt-mor compact to try again and see the reason"
)
"""The message for file groups with a failed earlier compaction."""


LIGHT_SERVICES = (
    "hudi", "compaction", "log_compaction", "clean", "erasure", "sweep", "archive", "tokens", "hints", "mirror",
)  # fmt: skip
"""Decided without reading data files and catalogs."""


def maintain(
    session: Session,
    policies: Policies,
    dry_run: bool = False,
    execute_parts: ExecuteParts | None = None,
    *,
    light: bool = False,
    readers: tuple[Checkpoint, ...] | None = None,
) -> Maintained:
    """Run all due upkeep, or report it. The caller has just read the newest value.

    A refused or failed service is named in the result, and the others continue. Raises if the table is missing, was
    replaced, or has moved.

    Args:
        light: a dry run of `LIGHT_SERVICES`, which misses file groups whose rows have all expired.
        readers: all checkpoints of named readers, for a dry run; None lists them.
    """
    assert dry_run or not light, "only a dry run is light"
    run = _Run(session, policies, dry_run, execute_parts=execute_parts, light=light, readers=readers)
    require_not_moved(run.before.moving)
    services: list[tuple[str, Callable[[_Run], Iterator[Upkeep]]]] = [
        ("compaction", _open_plans),
        ("compaction", lambda run: _in_plans(run, "compaction", partial(_due, run))),
        ("log_compaction", lambda run: _in_plans(run, "log_compaction", partial(_due_of_logs, run))),
        ("clean", _clean),
        ("erasure", _erasures),
        ("sweep", lambda run: sweep_dead(run.session, run.before, run.hudi, run.now_ms, dry_run=run.dry_run)),
        ("archive", _archive),
        ("tokens", _tokens),
        ("hints", lambda run: hints(run.session, run.now_ms, dry_run=run.dry_run)),
        *(("mirror", partial(_mirror, kind)) for kind in policies.mirrors),
        *(("catalog", partial(_entry, catalog, name, "iceberg")) for catalog, name in policies.catalogs),
        *(("catalog", partial(_entry, catalog, name, "hudi")) for catalog, name in policies.hudi_catalogs),
    ]
    run.guarded("hudi", _told)
    try:
        require_written_format(session.settings())
    except InvalidInputError as error:
        run.note(Upkeep("maintain", "refused", "", error=str(error)))
        services = []
    for name, work in services:
        if not light or name in LIGHT_SERVICES:
            run.guarded(name, work)
    return Maintained(tuple(run.actions), dry_run, () if run.actions else tuple(_waits(run)))


def tidy(session: Session, policies: Policies) -> None:
    """Clean and archive for a writer, if due."""
    run = _Run(session, policies, dry_run=False, inline=True)
    run.guarded("clean", _clean)
    run.guarded("archive", _archive)


def _waits(run: _Run) -> Iterator[str]:
    session, policies = run.session, run.policies
    value = session.known_tail()
    yield from waiting_texts(value, session.views.slices(value).with_logs(), session.config.merge, policies, run.now_ms)
    if not RetentionPolicy.of(policies).keeps_everything:
        yield f"clean is due when history is older than {_kept(policies)}"


@dataclass
class _Run:
    session: Session
    policies: Policies
    dry_run: bool
    actions: list[Upkeep] = field(default_factory=list)
    failed: set[FileGroup] = field(default_factory=set)
    execute_parts: ExecuteParts | None = None
    light: bool = False
    readers: tuple[Checkpoint, ...] | None = None
    hudi: Sequence[Stat] = ()
    inline: bool = False

    def __post_init__(self) -> None:
        self.now_ms = self.session.looked_ms() if self.dry_run else self.session.store.now_ms()
        self.before = self.session.known_tail()

    def guarded(self, name: str, work: Callable[[_Run], Iterator[Upkeep]]) -> None:
        try:
            for action in work(self):
                self.note(action)
        except (TableNotFoundError, TableReplacedError, TableMovedError, ForkedProcessError):
            raise
        except CrdtMorError as error:
            self.note(Upkeep(name, state_of(error), "", error=str(error)))

    def finished(self, plan: CompactionPlan, action: Upkeep) -> Iterator[Upkeep]:
        finished = finish(self.session, plan, self.execute_parts)
        self.failed |= finished.failed.keys()
        yield from compacted(finished, action)

    def note(self, action: Upkeep) -> None:
        self.actions.append(action)
        if action.state != "due":
            tell(self.session, action, inline=self.inline)


def tell(session: Session, action: Upkeep, *, inline: bool = False) -> None:
    assert action.state != "due", "no action was taken yet"
    session.publisher.tell(
        UpkeepEvent(service=action.service, state=action.state, why=action.why, inline=inline, error=action.error)
    )


def state_of(error: CrdtMorError) -> Literal["refused", "failed"]:
    return "refused" if isinstance(error, UnsupportedFeatureError | InvalidInputError) else "failed"


def _told(run: _Run) -> Iterator[Upkeep]:
    """Tell Hudi of the newest version. Skip version 0, because only Hudi has written then."""
    if run.before.version > 0:
        run.hudi = run.session.store.list(run.session.publisher.projector.folder)
        yield from tell_hudi(run.session, run.before, run.hudi, dry_run=run.dry_run)


# --- compaction -------------------------------------------------------------------------------------------------------


def _open_plans(run: _Run) -> Iterator[Upkeep]:
    open_now = [plan for plan in run.session.known_tail().plans if plan.action == COMPACT.name]
    if run.dry_run:
        for known in open_now:
            yield Upkeep("compaction", "due", open_since(known.barrier, run.now_ms))
        return
    if open_now:  # end the plans that Hudi executed
        run.session.remember(run.session.run(adoption.adopt(run.session.publisher, run.session.known_tail())))
    for plan in service.open_plans(run.session, COMPACT) if open_now else ():
        why = open_since(plan.barrier, run.now_ms)
        try:
            yield from run.finished(plan, Upkeep("compaction", "done", why))
        except (TableNotFoundError, TableReplacedError, TableMovedError, ForkedProcessError):
            raise
        except CrdtMorError as error:
            yield Upkeep("compaction", state_of(error), why, error=str(error))


def open_since(barrier: InstantTime, now_ms: int) -> str:
    return f"plan {barrier} has been open for {words_of_age(max(0, now_ms - to_ms(barrier)))}"


def compacted(finished: Finished, action: Upkeep) -> Iterator[Upkeep]:
    plan, done = finished.plan, finished.completion
    if done is not None:
        made = plan.made(done.files)
        yield replace(
            action, file_groups=len(plan.groups), rows=sum(file.rows for file in made), files_written=len(made),
            bytes_written=sum(file.size for file in made),
        )  # fmt: skip
    if finished.failed:
        count = plural(len(finished.failed), "file group")
        words = "; ".join(failure_texts(finished.failed)[:DETAILS_SHOWN])
        error = f"{count} could not be compacted: the next try is after a write there, or in a day. {words}"
        yield Upkeep(action.service, "failed", action.why, error=error)


Due = Callable[[Timeline, Sequence[FileSlice], Collection[FileGroup]], list[DueGroup]]
"""Return the due file groups of (value, latest slices, file groups to skip)."""


def _in_plans(run: _Run, name: str, due_in: Due) -> Iterator[Upkeep]:
    session = run.session
    value = session.known_tail()
    slices = session.views.slices(value).with_logs()
    found = due_in(value, slices, session.run(plans.groups_in_plans(value)))
    found = [one for one in found if one.group not in run.failed]
    waiting = noted(session, slices, logs_only=name == "log_compaction") if found else set()
    rest = {one.group: one for one in found if one.group not in waiting}
    if left_out := [one for one in found if one.group in waiting]:
        yield replace(due_action(name, left_out, "failed"), error=LEFT_OUT)
    found = list(rest.values())
    if rest and must_wait(session, value):
        refusal = (
            "a table of Hudi's is compacted only while no write is pending; otherwise a write that ends after the "
            f"compaction would win. pending={[write.requested for write in value.pending]}"
        )
        yield replace(due_action(name, found, "refused"), error=refusal)
    elif rest and run.dry_run:
        yield due_action(name, found, "due")

    def due_of_rest(value: Timeline, slices: Sequence[FileSlice], taken: Collection[FileGroup]) -> list[DueGroup]:
        return [one for one in due_in(value, slices, taken) if one.group in rest]

    if rest and not run.dry_run:
        move_clock(session)
    while rest and not run.dry_run:  # only file groups due at the start, so this ends beside fast writers
        plan, chosen = schedule_due(session, due_of_rest, logs_only=name == "log_compaction", removes="all")
        if plan is None:
            break
        for group in plan.file_groups:
            rest.pop(group, None)
        yield from run.finished(plan, due_action(name, chosen, "done"))


def schedule_due(
    session: Session, due_in: Due, *, logs_only: bool = False, removes: Removes | None = None
) -> tuple[CompactionPlan | None, list[DueGroup]]:
    chosen: list[DueGroup] = []

    def choose(value: Timeline, slices: Sequence[FileSlice], taken: Collection[FileGroup]) -> set[FileGroup]:
        chosen[:] = bounded(due_in(value, slices, taken))
        return {one.group for one in chosen}

    return service.schedule(session, compaction(choose=choose, logs_only=logs_only, removes=removes)), chosen


def must_wait(session: Session, value: Timeline) -> bool:
    """Return True if this table of Hudi's must wait with compaction, because a write is pending.

    docs/design/compaction.md gives the reason.
    """
    return session.config.merge.hudi_commit_time and bool(value.pending)


def _due(run: _Run, value: Timeline, slices: Sequence[FileSlice], taken: Collection[FileGroup]) -> list[DueGroup]:
    due = due_compactions(value, slices, run.session.config.merge, run.policies, run.now_ms, taken)
    return due if run.light else [*due, *due_expired(run.session, value, run.now_ms, taken)]


def _due_of_logs(
    run: _Run, value: Timeline, slices: Sequence[FileSlice], taken: Collection[FileGroup]
) -> list[DueGroup]:
    fully = {one.group for one in _due(run, value, slices, taken)}
    return due_log_compactions(slices, run.policies, {*taken, *fully})


def bounded(due: Iterable[DueGroup]) -> list[DueGroup]:
    chosen: list[DueGroup] = []
    size = 0
    for one in due:
        size += one.bytes
        if chosen and (size > PLAN_BYTES or len(chosen) == PLAN_GROUPS):
            break
        chosen.append(one)
    return chosen


# --- cleaning ---------------------------------------------------------------------------------------------------------


def _clean(run: _Run) -> Iterator[Upkeep]:
    session, policy = run.session, RetentionPolicy.of(run.policies)
    if policy.keeps_everything:
        return
    cleaner = Cleaner(session, policy, dry_run=run.dry_run, readers=run.readers)
    due = cleaner.due(walks=not run.light, listed=() if run.actions else run.hudi)
    if due is None:
        return
    why = f"history is kept for {_kept(run.policies)}, and some is older"
    if run.dry_run:
        size = sum(file.size for file in due.files)
        yield Upkeep("clean", "due", why, files_removed=len(due.files), bytes_removed=size)
        return
    done = cleaner.clean()
    failed = (
        f"{plural(done.failed, 'file')} could not be removed; a later clean or sweep tries again" if done.failed else ""
    )
    yield Upkeep("clean", "done", why, files_removed=done.files, bytes_removed=done.bytes, error=failed)


def _kept(policies: Policies) -> str:
    kept = [] if policies.keep_ms is None else [words_of_ms(policies.keep_ms)]
    return " and ".join([*kept, *([] if policies.keep_commits is None else [plural(policies.keep_commits, "commit")])])


# --- erasures ---------------------------------------------------------------------------------------------------------


def _erasures(run: _Run) -> Iterator[Upkeep]:
    for erasure in erase.open_erasures(run.session):
        age = words_of_age(max(0, run.now_ms - to_ms(erasure.requested)))
        due = Upkeep("erasure", "due", f"an erasure of {age} ago is not finished")
        if run.dry_run:
            yield due
            continue
        try:
            removed = erase.finish(run.session, [erasure], erase.Patience(run.session, 0))
        except ErasureUnfinishedError as waiting:
            yield replace(due, error=str(waiting))
            continue
        yield replace(
            due, state="done", file_groups=len(removed.groups), files_removed=removed.files, bytes_removed=removed.bytes
        )


# --- old instants and tokens ------------------------------------------------------------------------------------------


def _archive(run: _Run) -> Iterator[Upkeep]:
    session, least = run.session, run.policies.archive
    if least is None or session.known_tail().standing < least + KEPT_COMMITS:
        return
    ready = archivable_now(session, KEPT_COMMITS, least)
    if ready < least:
        return
    why = f"{plural(ready, 'completed instant')} can be archived; the policy is {least}"
    if run.dry_run:
        yield Upkeep("archive", "due", why)
    else:
        left = archive(session, KEPT_COMMITS).left
        failed = f"{plural(left, 'file')} could not be removed; the next sweep tries again" if left else ""
        yield Upkeep("archive", "done", why, error=failed)


def _tokens(run: _Run) -> Iterator[Upkeep]:
    session, age_ms = run.session, run.policies.tokens_ms
    value = session.known_tail()
    if age_ms is None or age_ms >= run.now_ms:
        return
    since = min(from_ms(run.now_ms - age_ms), value.clock)
    old = sum(token.completed < since for token in value.tokens)
    if not old:
        return
    why = f"{plural(old, 'application')} wrote nothing with a token for {words_of_ms(age_ms)}"
    if not run.dry_run:
        session.remember(session.run(events.forget_tokens(session.publisher, session.known_tail(), since)))
    yield Upkeep("tokens", "due" if run.dry_run else "done", why)


# --- mirrors and catalogs ---------------------------------------------------------------------------------------------


def _mirror(format: str, run: _Run) -> Iterator[Upkeep]:
    from crdt_mor.services.mirror import shows_newest

    if not run.dry_run:
        yield from refreshed(run.session, format)
    elif not shows_newest(run.session, format):
        yield Upkeep("mirror", "due", f"the {format} mirror shows an older version")


def refreshed(session: Session, format: str) -> Iterator[Upkeep]:
    """Refresh a mirror that shows an older version."""
    from crdt_mor.services.mirror import mirror

    done = mirror(session, format)
    if done.objects:
        replaced = "" if done.replaced is None else f"; replaced version {done.replaced} of another engine"
        yield Upkeep(
            "mirror", "done", f"the {format} mirror showed an older version{replaced}", files_written=done.objects,
            bytes_written=done.bytes,
        )  # fmt: skip


def _entry(catalog: str, name: str, format: str, run: _Run) -> Iterator[Upkeep]:
    from crdt_mor.services.catalog_calls import catalog_of
    from crdt_mor.services.catalogs import lags, register

    why = f"{name} of the catalog {catalog} showed an older version"
    loaded = catalog_of(catalog)
    if run.dry_run:
        if lags(run.session, loaded, name, format):
            yield Upkeep("catalog", "due", why)
    elif register(run.session, loaded, name, format).action != "unchanged":
        yield Upkeep("catalog", "done", why)

"""Upkeep by writers and planners: give up silent writers, and delete the garbage of dead ones.

Only the store's clock measures silence and the time since the last sweep: writers' wall clocks may be wrong. So may the
store's clock have been: a time in the future says nothing about silence, which then counts from now.

Garbage that this process may not delete stops nobody: it is invisible and waits for a sweep by its owner. Until then
the rolled-back instant is not forgotten, and stays pending in Hudi's timeline while a data file exists. Hudi's readers
show a log file older than all known instants.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.events.group import sweep_posts
from crdt_mor.events.leftovers import sweep_clocks, sweep_leftovers
from crdt_mor.events.rollback import give_up
from crdt_mor.events.ticket import last_begin_time, read_ticket
from crdt_mor.ground.observing_events import SweepEvent
from crdt_mor.hudi.actions import ACTIONS, bears_our_key, when_put
from crdt_mor.hudi.adoption import adopt
from crdt_mor.hudi.adoption_pending import begun_files, pending_of_hudi
from crdt_mor.hudi.archive import remove_in_order
from crdt_mor.hudi.partitions import sweep_partitions
from crdt_mor.hudi.projection import TablePublisher, ended_in, executed_twice, wide_completions
from crdt_mor.hudi.restore import HudiFiles, drop, dropped_by_restores, hudi_files_in
from crdt_mor.hudi.restore_records import own_savepoint_time
from crdt_mor.log.outcome import all_completions
from crdt_mor.log.paths import GIVEN_UP, HEARTBEATS, STAGED, TICKET, heartbeat_path, only_own
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import (
    Delete,
    GetStat,
    List,
    Nonce,
    Put,
    Read,
    Steps,
    StoreNow,
    Touch,
    Walk,
    delete_for_good,
    put_surely,
)
from crdt_mor.log.tail import find_tail
from crdt_mor.model.instant import EPOCH, InstantTime, to_ms
from crdt_mor.model.names import (
    COMMIT,
    SAVEPOINT,
    BaseFileName,
    LogFileName,
    TimelineFileName,
    data_file_name,
    driver_of_token,
    is_own_token,
)
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Pending
from crdt_mor.planners.sweep import Instants, garbage
from crdt_mor.store.protocol import Stat

SWEEP_EVERY_MS = 60_000
"""Time between two sweeps, by the store's clock."""


def upkeep(publisher: TablePublisher, known_tail: Timeline, expiry_ms: int) -> Steps[Timeline]:
    """Give up writers with expired heartbeats; once a minute, adopt Hudi's commits and sweep."""
    tail, _ = yield from timed_upkeep(publisher, known_tail, expiry_ms)
    return tail


def upkeep_and_adoption(publisher: TablePublisher, known_tail: Timeline, expiry_ms: int) -> Steps[Timeline]:
    tail = yield from upkeep(publisher, known_tail, expiry_ms)
    return (yield from adopt(publisher, tail, Shortcuts(looked=True)))


def timed_upkeep(
    publisher: TablePublisher, known_tail: Timeline, expiry_ms: int, *, looked: bool = False
) -> Steps[tuple[Timeline, int]]:
    """Do `upkeep`, and return the store's time. looked: as in `Shortcuts`."""
    tail: Timeline = known_tail if looked else (yield from find_tail(known_tail))
    now_ms: int = yield StoreNow()
    for pending in tail.pending:
        if (yield from is_expired(pending, now_ms, expiry_ms)):
            tail = yield from give_up(publisher, tail, pending.requested, None, others=True)
    if is_sweep_due(tail, now_ms):
        tail = yield from adopt(publisher, tail)
        tail = yield from sweep(publisher, tail)
    return tail, now_ms


def is_sweep_due(tail: Timeline, now_ms: int) -> bool:
    return abs(now_ms - to_ms(tail.swept)) > SWEEP_EVERY_MS


def is_expired(pending: Pending, now_ms: int, expiry_ms: int) -> Steps[bool]:
    """Return True if a writer was silent for longer than the expiry. The heartbeat of a recent write is not read.

    Without a heartbeat, silence counts from the begin. If the begin time is unknown or was wrong, touch the heartbeat
    for the writer.
    """
    begun_ms = pending.begun_ms
    if begun_ms is not None and abs(now_ms - begun_ms) <= expiry_ms:
        return False
    heard_ms = yield from last_heard(pending)
    if heard_ms is None or heard_ms - now_ms > expiry_ms:
        yield Touch(heartbeat_path(pending.requested))
        return False
    return now_ms - heard_ms > expiry_ms


def last_heard(pending: Pending) -> Steps[int | None]:
    """Return when the store last heard of a writer, in ms since 1970, or None."""
    beat: Stat | None = yield GetStat(heartbeat_path(pending.requested))
    return pending.begun_ms if beat is None else beat.modified_ms


def sweep(publisher: TablePublisher, known_tail: Timeline) -> Steps[Timeline]:
    """Delete files of given-up writes and stalled helpers, then forget instants without files.

    A listing must show no files of a forgotten instant. Files put later belong to an unknown instant and are deleted as
    such. If another user's folder cannot be listed, nothing is forgotten. The sweep counts all the same, so the next is
    due after `SWEEP_EVERY_MS`.
    """
    clean: set[InstantTime] = set()
    now_ms: int = yield StoreNow()
    with suppress(StorageUnavailableError):
        yield from sweep_posts(publisher, known_tail)
        yield from sweep_clocks(now_ms)
        clean = yield from _remove_garbage(publisher, known_tail)
    nonce = yield Nonce()
    ours = False

    def derive(tail: Timeline, wall_ms: int) -> Timeline | None:
        nonlocal ours
        ours = tail.swept == known_tail.swept
        return tail.sweep(nonce, wall_ms, now_ms, clean) if ours else None

    value = yield from publisher.publish(derive, known_tail)
    if ours:
        publisher.tell(SweepEvent(version=value.version, forgotten=len(clean)))
    return value


def _remove_garbage(publisher: TablePublisher, known_tail: Timeline) -> Steps[set[InstantTime]]:
    given_up = {r.requested for r in known_tail.rolled_back}
    yield from name_base_files(publisher, known_tail)
    garbage: set[InstantTime] = yield from _sweep_files(publisher, known_tail, given_up)
    yield from _sweep_staged(known_tail)
    yield from sweep_leftovers(known_tail)
    yield from _note_given_up(known_tail, given_up - garbage)
    yield from _sweep_heartbeats(publisher, known_tail)
    return given_up - garbage


def _sweep_heartbeats(publisher: TablePublisher, known_tail: Timeline) -> Steps[None]:
    """Delete the heartbeats of ended writes. Keep those of Hudi's pending writes, whose expiry Hudi checks."""
    beats: dict[InstantTime, str] = {}
    for beat in only_own((yield List(HEARTBEATS))):
        requested = InstantTime(beat.path.rpartition("/")[2])
        if known_tail.find_pending(requested) is None and requested < known_tail.clock:
            beats[requested] = beat.path
    if beats:
        begun = begun_files(known_tail, (yield List(publisher.projector.folder)))
        for pending in (yield from pending_of_hudi(begun)):
            beats.pop(pending.requested, None)
    for path in beats.values():
        yield Delete(path)


def name_base_files(publisher: TablePublisher, known_tail: Timeline) -> Steps[None]:
    """Give the base files of the newest overwrite their names. Until then they are staged files of an ended write."""
    fresh = (*known_tail.completions, *(yield from wide_completions(known_tail)))
    if any(c.overwriting is not None and c.version == known_tail.version for c in fresh):
        yield from publisher.help_project(known_tail)


def _sweep_files(
    publisher: TablePublisher, known_tail: Timeline, given_up: set[InstantTime]
) -> Steps[set[InstantTime]]:
    """Delete garbage data files, then the timeline files of their instants. Returns these instants."""
    files: list[Stat] = yield Walk()  # listed before Hudi's directory, which then names files written in between
    hudi_files = yield from hudi_files_in(publisher.projector.folder)
    yield from find_tail(known_tail)  # raises if another table was created here since
    completions = yield from all_completions(known_tail)
    live_instants = (
        {p.requested for p in known_tail.pending}
        | {p.barrier for p in known_tail.plans}
        | {c.requested for c in completions}
    )
    yield from _sweep_executed_twice(publisher, hudi_files, completions)
    yield from _sweep_overtaken(files, completions)
    yield from _sweep_savepoints(publisher, known_tail, hudi_files)
    yield from _sweep_dropped(publisher, known_tail, hudi_files, live_instants)
    if publisher.projector.config.ours:
        yield from sweep_partitions(files, known_tail.clock)
    # Hudi's savepoints may need files of dropped commits.
    kept_until = known_tail.retention.dropped if any(name.action == SAVEPOINT for name in _names(hudi_files)) else EPOCH
    yield from _sweep_archived(publisher, known_tail, hudi_files, completions)
    executed = given_up & ended_in(_names(hudi_files))  # by Hudi, and adopted
    given_up = given_up - executed
    began = {instant for instant in hudi_files.keys() - live_instants if instant < known_tail.clock}
    dead = (began & given_up) | (yield from _stale(publisher, hudi_files, began - given_up))
    instants = Instants(live_instants, given_up | dead, set(hudi_files), kept_until, known_tail.clock)
    garbage_paths = garbage([file.path for file in files], instants)
    swept = dead | garbage_paths.keys()
    undeleted = yield from _delete_files(garbage_paths)
    # A plan's outputs go first. Without the plan, Hudi's readers would leave out commits after its barrier.
    for instant in sorted(hudi_files.keys() & swept - undeleted):
        for name in sorted(hudi_files[instant], key=when_put, reverse=True):
            yield Delete(publisher.projector.path(name))
    return swept | executed


def _names(hudi_files: HudiFiles) -> list[TimelineFileName]:
    return [name for names in hudi_files.values() for name in names]


def _stale(
    publisher: TablePublisher, hudi_files: HudiFiles, unknown: Collection[InstantTime]
) -> Steps[set[InstantTime]]:
    """Return the unknown instants that we began."""
    stale: set[InstantTime] = set()
    for instant, names in hudi_files.items():
        if instant in unknown and (yield from _is_stale(publisher, names)):
            stale.add(instant)
    return stale


def _delete_files(garbage_paths: dict[InstantTime, list[str]]) -> Steps[set[InstantTime]]:
    """Delete data files. Returns the instants of which some are left."""
    undeleted: set[InstantTime] = set()
    for instant, paths in garbage_paths.items():
        if not (yield from delete_for_good(paths)):
            undeleted.add(instant)
    return undeleted


def _sweep_archived(
    publisher: TablePublisher,
    known_tail: Timeline,
    hudi_files: HudiFiles,
    completions: Sequence[Completion],
) -> Steps[None]:
    """Delete files of archived instants from Hudi's active timeline, left over or put by stalled helpers.

    Hudi's readers would take newer archived instants for uncommitted. A file that is not known as ours stays: adoption
    refuses such a commit of Hudi. The history is written first, from these files, as the archiving process may have
    died before.
    """
    if known_tail.archive.version == known_tail.version:
        yield from publisher.help_project(known_tail)
    committed = {c.requested for c in completions if c.requested <= known_tail.archive.watermark}
    stale = []
    for instant in (instant for instant in sorted(hudi_files) if instant <= known_tail.archive.watermark):
        if instant in committed:
            stale += hudi_files[instant]
            continue
        names = [name for name in hudi_files[instant] if name.action != SAVEPOINT]
        if (yield from _are_ours(publisher, names)):
            stale += names
    yield from remove_in_order(publisher.projector.folder, stale)


def _are_ours(publisher: TablePublisher, names: Sequence[TimelineFileName]) -> Steps[bool]:
    """Return True if we put the files of an unknown instant.

    Either a file bears our key, or the only file is an empty ending, put late by a stalled helper.
    """
    for name in names:
        path = publisher.projector.path(name)
        data = yield Read(path)
        if data and bears_our_key(name, data, path):
            return True
        action = ACTIONS.get(name.action)
        if data == b"" and len(names) == 1 and action is not None and name.state in action.end_states:
            return True
    return False


def _sweep_savepoints(publisher: TablePublisher, known_tail: Timeline, hudi_files: HudiFiles) -> Steps[None]:
    savepoint_paths = {path for s in known_tail.savepoints for path in publisher.projector.savepoint_paths(s)}
    for name in [name for name in _names(hudi_files) if name.action == SAVEPOINT]:
        path = publisher.projector.path(name)
        data = (yield Read(path)) if path not in savepoint_paths else None
        saved = own_savepoint_time(data, path) if data else None
        if saved is not None and saved < known_tail.clock:
            yield Delete(path)


def _sweep_dropped(
    publisher: TablePublisher, known_tail: Timeline, hudi_files: HudiFiles, live_instants: Collection[InstantTime]
) -> Steps[None]:
    dropped_instants = yield from dropped_by_restores(known_tail, hudi_files, live_instants)
    for dropped in sorted(dropped_instants.values(), key=lambda d: d.completed, reverse=True):
        if not (yield from drop(dropped, publisher.projector.folder, hudi_files[dropped.requested])):
            return
        del hudi_files[dropped.requested]


def _sweep_executed_twice(
    publisher: TablePublisher, hudi_files: HudiFiles, completions: Sequence[Completion]
) -> Steps[None]:
    """Delete Hudi's completed files of plans that we had completed, once Hudi's timeline contains ours."""
    names = _names(hudi_files)
    for own, hudis in executed_twice(completions, names):
        if own in names:
            yield Delete(publisher.projector.path(hudis))


def _sweep_overtaken(files: Sequence[Stat], completions: Sequence[Completion]) -> Steps[None]:
    """Delete files with a commit's instant that are not part of the commit, as Hudi's readers go by names."""
    named = ((file.path, data_file_name(file.path)) for file in files)
    plans = {c.requested: c for c in completions if c.action == COMMIT and c.nonce and c.overwriting is None}
    folders = {requested: {file.path.rpartition("/")[0] for file in plan.files} for requested, plan in plans.items()}

    def is_second(path: str, name: BaseFileName | LogFileName) -> bool:
        """Return True for a file of a second execution of a plan, not for a linked path of the plan's own file."""
        plan = plans.get(name.instant)
        is_of_both = plan is not None and (not plan.adopted or is_own_token(name.token))
        return is_of_both and path.rpartition("/")[0] in folders[name.instant]

    placed = [
        (path, name.instant) for path, name in named
        if name and (driver_of_token(name.token) is not None or is_second(path, name))
    ]  # fmt: skip
    shared = {instant for _, instant in placed}
    commits = {c.requested: {file.path for file in c.files} for c in completions if c.requested in shared}
    yield from delete_for_good([path for path, instant in placed if path not in commits.get(instant, {path})])


def _sweep_staged(known_tail: Timeline) -> Steps[None]:
    for stat in only_own((yield List(STAGED))):
        name = stat.path.rpartition("/")[2]
        if name.endswith(TICKET):
            ticket = yield from read_ticket(name.removesuffix(TICKET))
            requested = ticket[1].requested if ticket else EPOCH
        else:
            requested = InstantTime(name.partition("-")[0])
        if known_tail.find_pending(requested) is None and requested < known_tail.clock:
            yield Delete(stat.path)


def _note_given_up(known_tail: Timeline, forgotten: set[InstantTime]) -> Steps[None]:
    """Put notes for the jobs that the value will forget; delete notes on jobs too old to begin."""
    for rolled_back in known_tail.rolled_back:
        last = last_begin_time(rolled_back.nonce)
        if rolled_back.requested in forgotten and last is not None and known_tail.clock <= last:
            yield from put_surely(Put(f"{GIVEN_UP}/{rolled_back.nonce}", b""))
    for stat in only_own((yield List(GIVEN_UP))):
        last = last_begin_time(stat.path.rpartition("/")[2])
        if last is not None and known_tail.clock > last:
            yield Delete(stat.path)


def _is_stale(publisher: TablePublisher, names: Sequence[TimelineFileName]) -> Steps[bool]:
    """Return True if we projected this unknown pending instant.

    Each file that we put there bears our key. Hudi's files never do, so no pending write of Hudi is removed.
    """
    if any(name.state == "completed" for name in names):
        return False
    for name in names:
        path = publisher.projector.path(name)
        data = (yield Read(path)) if name.action in ACTIONS else None
        if data and bears_our_key(name, data, path):
            return True
    return False

"""The life of a write, as protocol steps: begin, complete, give up; and the sweeping of what the dead left behind.

A pending write is invisible, so nobody *needs* to roll it back. Whoever begins, or plans a compaction, gives up the
writes whose heartbeat has expired; the race with a writer that was merely slow is decided by one put (rule 1).
Files are deleted only once the rollback is known to be genuine (rule 3).

How long a writer has been silent, and when the last sweep was, is asked of the store's clock alone: of modification
times, and of times of the store that the value holds. The table's own clock moves with the wall clocks of writers, and
stays where a wrong one took it. Where the store's clock itself was wrong for a while (on a local disk it is the
machine's), a time that lies ahead says nothing about silence, which then counts from when somebody notices.

Rubbish that a process may not delete, because it is another user's, stops nobody. It stays invisible, and it stays for
a sweep by somebody who may delete it: the rolled-back instant is not forgotten before, and stands as pending in Hudi's
timeline as long as a data file of it is left. (Hudi's readers take a log file whose instant is older than all that they
know for one of an archived commit, and would show it.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from crdt_mor.errors import (
    CommitUnknownError,
    FormatError,
    StorageUnavailableError,
    TableNotFoundError,
    TableReplacedError,
    TokenOrderError,
    WriterExpiredError,
)
from crdt_mor.format.commit import decode_commit, decode_compaction_plan
from crdt_mor.model.instant import EPOCH, InstantTime, from_ms, to_ms
from crdt_mor.model.names import (
    OWN_KEY,
    TimelineFileName,
    bucket_of_file_id,
    data_file_name,
    driver_of_token,
    is_own_token,
)
from crdt_mor.model.schema import TableSchema
from crdt_mor.model.timeline import Completion, DataFile, Pending, Plan, RolledBack, Timeline, Token
from crdt_mor.store.base import Stat
from crdt_mor.timeline.adoption import below, foreign_completions
from crdt_mor.timeline.plans import read_plan
from crdt_mor.timeline.projection import PENDING_ACTIONS, when_put
from crdt_mor.timeline.publish import (
    OWN_FOLDER,
    Publisher,
    all_completions,
    find_completion,
    find_ending,
    find_tail,
    put_surely,
    take_back,
    version_path,
)
from crdt_mor.timeline.steps import Delete, GetStat, List, Nonce, Put, Read, Steps, StoreNow, Touch, Walk

HEARTBEATS = ".hoodie/.heartbeat"
STAGED = f"{OWN_FOLDER}/staged"
"""What the tasks of distributed writes stage, `<requested>-<nonce>`, and the tickets by which they join one."""

TICKET = ".ticket"

GIVEN_UP = f"{OWN_FOLDER}/given_up"
"""An empty object for each distributed write that was given up and that the value has forgotten, by its job's name."""

JOB_EXPIRY_MS = 7 * 24 * 3600 * 1000
"""How long after it was planned a job may begin its write, and so how long a note that it was given up is kept."""

SWEEP_EVERY_MS = 60_000


def heartbeat_path(requested: InstantTime) -> str:
    """A writer touches this while it runs."""
    return f"{HEARTBEATS}/{requested}"


def ticket_path(nonce: str) -> str:
    """The processes of a distributed write find here what they write to."""
    return f"{STAGED}/{nonce}{TICKET}"


def read_ticket(nonce: str) -> Steps[tuple[Timeline, Pending] | None]:
    """The write that has begun with `nonce` and the value that it began from, if its ticket is there."""
    path = ticket_path(nonce)
    data = yield Read(path)
    if not data:  # not there, or emptied by a power cut
        return None
    value = Timeline.decode(data, path)
    begun = value.find_begun(nonce)
    return (value, begun) if isinstance(begun, Pending) else None


def job_name(nonce: str, planned: InstantTime) -> str:
    """The name of a job, which is the nonce of its write's begin. It says when the job was planned."""
    return f"{nonce}-{planned}"


def begins_until(nonce: str) -> InstantTime | None:
    """Until when the write of a job may begin; None for the nonce of a begin that is no job's."""
    _, job, planned = nonce.rpartition("-")
    return from_ms(to_ms(InstantTime(planned)) + JOB_EXPIRY_MS) if job else None


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit that a write became, and the value that holds it.

    `repeated`: it was there already, by its token, or since another driver of its job has completed it.
    """

    completion: Completion | Token
    value: Timeline
    repeated: bool = False


def join(
    publisher: Publisher, known: Timeline, expiry_ms: int, job: str, planned: InstantTime
) -> Steps[tuple[Timeline, Pending] | Committed]:
    """Begin the write of a job, or join it: whoever comes first begins, and all hold the value that it began from.

    A job begins once. When its write has ended in a commit, that commit is the answer; when it was given up, an error.

    The ticket is the value that the write began from. One who dies before he has put it leaves the version that
    published the begin.

    job: its name. planned: the table's clock at that time.
    """
    ticket = yield from read_ticket(job)
    if ticket is None:
        tail = yield from _begin_once(publisher, known, expiry_ms, job, planned)
    else:
        tail = yield from find_tail(known)
    begun = tail.find_begun(job)
    if not isinstance(begun, Pending):
        done = yield from find_ending(job, planned, tail)
        if done is None:
            raise expired(begun.requested if begun else None)
        return Committed(done, tail, repeated=True)
    if ticket is not None:
        return ticket
    data = yield Read(version_path(begun.version))
    if data is not None:
        yield Put(ticket_path(job), data, durable=False)
    ticket = yield from read_ticket(job)
    if ticket is None:  # whoever began it is dead, and took with him what others need to join
        yield from give_up(publisher, tail, begun.requested, None)
        raise expired(begun.requested)
    return ticket


def _begin_once(
    publisher: Publisher, known: Timeline, expiry_ms: int, job: str, planned: InstantTime
) -> Steps[Timeline]:
    """A value in which the write of a job has begun, unless it had ended before.

    What ended is found in the value; or among the completions, which stay; or, where the value has forgotten a write
    that was given up, by the note that was put before. That note goes when no value lets the job begin any more.
    """
    tail, store_ms = yield from _tend(publisher, known, expiry_ms)

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        if tail.find_begun(job) is not None or (yield from find_ending(job, planned, tail)) is not None:
            return None
        last = begins_until(job)
        if last is None or tail.clock > last:
            raise WriterExpiredError(
                "this job was planned too long ago to begin, or to know whether it had begun before and was given up; "
                f"it was never committed. Plan the write again. job={job} planned_at={planned} clock={tail.clock}"
            )
        if (yield GetStat(f"{GIVEN_UP}/{job}")) is not None:
            return None
        return tail.begin(job, wall_ms, store_ms)

    return (yield from publisher.publish(derive, tail, store_ms))


def begin(publisher: Publisher, known: Timeline, expiry_ms: int) -> Steps[tuple[Timeline, Pending]]:
    """A new pending write, with its first heartbeat, and the value that it begins from. First, `tend`."""
    tail, store_ms = yield from _tend(publisher, known, expiry_ms)
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        return None if tail.find_begun(nonce) else tail.begin(nonce, wall_ms, store_ms)
        yield

    value = yield from publisher.publish(derive, tail, store_ms)
    begun = value.find_begun(nonce)
    if not isinstance(begun, Pending):
        raise expired(begun.requested if begun else None)
    yield Touch(heartbeat_path(begun.requested))
    return value, begun


def take_over(publisher: Publisher, known: Timeline, begun: Pending) -> Steps[Pending]:
    """The write as it stands when `begun.driver` alone may complete it, which no earlier driver can from then on."""
    nonce = yield Nonce()
    requested, driver = begun.requested, begun.driver

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        pending = tail.find_pending(requested)
        if pending is None or pending.driver == driver:
            return None
        return tail.hand_over(nonce, wall_ms, requested, driver)
        yield

    value = yield from publisher.publish(derive, known)
    taken = value.find_pending(requested)
    if taken is None:
        raise (yield from over(requested, value))
    return taken


def complete(
    publisher: Publisher,
    known: Timeline,
    begun: Pending,
    operation: str,
    files: Sequence[DataFile],
    token: tuple[str, int] | None,
) -> Steps[Committed]:
    """Make the write visible in one put; or find that its token was used, or that it was given up."""
    nonce = yield Nonce()
    requested = begun.requested

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        pending = tail.find_pending(requested)
        if pending is None or pending.driver != begun.driver or used_token(tail, token) is not None:
            return None
        return tail.complete(nonce, wall_ms, requested, operation, files, token)
        yield

    value = yield from publisher.publish(derive, known)
    done = yield from find_completion(requested, value)
    if done is not None:
        others = done.driver != begun.driver
        for file in files if others else ():
            yield Delete(file.path)
        yield Delete(heartbeat_path(requested))
        return Committed(done, value, repeated=others)
    pending = value.find_pending(requested)
    if pending is None:
        raise expired(requested)
    if pending.driver != begun.driver:
        raise taken_over(requested)
    yield from give_up(publisher, value, requested, [file.path for file in files], begun.driver)
    return Committed(check_token(value, token), value, repeated=True)


def used_token(value: Timeline, token: tuple[str, int] | None) -> Token | None:
    """The token that stands in the way of a write with `token`: of the same application, with a number not below."""
    last = value.find_token(token[0]) if token else None
    return last if last is not None and token is not None and token[1] <= last.number else None


def check_token(value: Timeline, token: tuple[str, int] | None) -> Token:
    """The earlier commit of this very token; raises `TokenOrderError` if the application is past it."""
    last = used_token(value, token)
    assert last is not None
    assert token is not None
    if token[1] < last.number:
        raise TokenOrderError(
            "this token's number is below the last one of its application, so it is either a repeat of an older write "
            "or out of order; number writes of one application in the order in which they are made. "
            f"application={last.application!r} number={token[1]} last={last.number}"
        )
    return last


def give_up(
    publisher: Publisher,
    known: Timeline,
    requested: InstantTime,
    staged: Sequence[str] | None,
    driver: str | None = None,
) -> Steps[Timeline]:
    """Roll a pending write back, then remove its files: `staged`, or, where unknown, all that bear its instant.

    driver: who gives up; a write that another driver has taken over goes on, and only `staged` is removed.
    """
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        pending = tail.find_pending(requested)
        if pending is None or (driver is not None and pending.driver not in ("", driver)):
            return None
        return tail.roll_back(nonce, wall_ms, requested)
        yield

    try:
        value = yield from publisher.publish(derive, known)
    except (TableReplacedError, TableNotFoundError):
        yield from take_back(known, staged or ())  # Hudi's readers would show it in the table that was made here since
        raise
    gone = value.find_rolled_back(requested)
    if gone is not None:
        with suppress(StorageUnavailableError):  # it is rolled back, and what is left of it will be swept
            yield from _remove_files(publisher, gone, None if driver else staged)  # other drivers' files as well
    elif staged:
        done = yield from find_completion(requested, value)
        for path in staged if done is None or done.driver != (driver or "") else ():
            yield Delete(path)
    return value


def _remove_files(publisher: Publisher, gone: RolledBack, staged: Iterable[str] | None) -> Steps[None]:
    """Remove the files of a rolled-back write: the data files first, and only once all of them are gone the others."""
    requested = gone.requested
    if staged is None:
        found = [(file.path, data_file_name(file.path)) for file in (yield Walk())]
        staged = [path for path, name in found if name is not None and name.instant == requested]
        yield from clear_staged(requested, gone.nonce)
    yield Delete(heartbeat_path(requested))
    left = False
    for path in staged:
        left |= not (yield Delete(path))
    if not left:
        for path in reversed(publisher.projector.pending_paths(requested, "deltacommit")):
            yield Delete(path)


def clear_staged(requested: InstantTime, nonce: str) -> Steps[None]:
    """Remove what the tasks of a distributed write staged and nobody needs any more, and its ticket."""
    yield Delete(ticket_path(nonce))
    for stat in (yield List(STAGED)):
        if stat.path.startswith(f"{STAGED}/{requested}-"):
            yield Delete(stat.path)


def clear_placed(requested: InstantTime, drivers: int) -> Steps[None]:
    """Remove what drivers before number `drivers` gave final names: none of them can complete the write any more."""
    for file in (yield Walk()):
        name = data_file_name(file.path)
        driver = driver_of_token(name.token) if name is not None and name.instant == requested else None
        if driver is not None and driver < drivers and not (yield Delete(file.path)):
            raise StorageUnavailableError(
                "a file that an earlier driver of this job placed cannot be removed, and Hudi's readers would show it; "
                f"nothing was published. Remove it, or plan the write again. file={file.path}"
            )


def grow(
    publisher: Publisher, known: Timeline, batch: pa.Schema, check: Callable[[TableSchema], None]
) -> Steps[Timeline]:
    """The table's schema grows to hold `batch`; raises `SchemaMismatchError` where their types do not join.

    check: raises for a schema that the table must not have; what others have added meanwhile is in the one it is given.
    """
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        before = TableSchema.from_json(tail.schema)
        joined = before.grow(batch)
        check(joined)
        return None if joined == before else tail.grow(nonce, wall_ms, joined.to_json())
        yield

    return (yield from publisher.publish(derive, known))


# --- upkeep that writers and planners do in passing -------------------------------------------------------------------


def tend(publisher: Publisher, known: Timeline, expiry_ms: int) -> Steps[Timeline]:
    """Give up the writers whose heartbeat has expired; once a minute, adopt and sweep."""
    tail, _ = yield from _tend(publisher, known, expiry_ms)
    return tail


def _tend(publisher: Publisher, known: Timeline, expiry_ms: int) -> Steps[tuple[Timeline, int]]:
    """The tail after upkeep, and the store's clock before it."""
    tail = yield from find_tail(known)
    now_ms: int = yield StoreNow()
    for pending in tail.pending:
        if (yield from _is_expired(pending, now_ms, expiry_ms)):
            tail = yield from give_up(publisher, tail, pending.requested, None)
    if abs(now_ms - to_ms(tail.swept)) > SWEEP_EVERY_MS:
        tail = yield from adopt(publisher, tail)
        tail = yield from sweep(publisher, tail)
    return tail, now_ms


def _is_expired(pending: Pending, now_ms: int, expiry_ms: int) -> Steps[bool]:
    """Whether a writer has been silent for longer than the expiry. Of a write that began lately nothing is asked.

    Without a heartbeat it is silent since its begin. Where nobody can say since when, or the store's clock was wrong
    then, its heartbeat is touched in its stead, so that the silence counts from now on.
    """
    begun_ms = pending.begun_ms
    if begun_ms is not None and abs(now_ms - begun_ms) <= expiry_ms:
        return False
    beat: Stat | None = yield GetStat(heartbeat_path(pending.requested))
    heard_ms = begun_ms if beat is None else beat.modified_ms
    if heard_ms is None or heard_ms - now_ms > expiry_ms:
        yield Touch(heartbeat_path(pending.requested))
        return False
    return now_ms - heard_ms > expiry_ms


def adopt(publisher: Publisher, known: Timeline) -> Steps[Timeline]:
    """Instants that Hudi itself wrote become part of the value; open plans that would bury one are cancelled."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        found = yield from foreign_completions(publisher.projector, tail)
        if not found.completions:
            return None
        cancelled = yield from _burying(tail, found.completions)
        return tail.adopt(nonce, wall_ms, found.completions, found.schema, cancelled)

    return (yield from publisher.publish(derive, known))


def _burying(tail: Timeline, found: Sequence[Completion]) -> Steps[list[Plan]]:
    """The open plans whose barrier is above a commit of Hudi's that they do not know, in a file group of it."""
    burying = []
    for plan in tail.plans:
        frozen = yield from read_plan(tail, plan)
        barriers = dict.fromkeys(frozen.file_groups if frozen is not None else (), plan.barrier)
        if any(below(completion, barriers) for completion in found):
            burying.append(plan)
    return burying


def sweep(publisher: Publisher, known: Timeline) -> Steps[Timeline]:
    """Delete what given-up writes left, also what a stalled helper put long after; forget those that are clean.

    A rolled-back instant is forgotten once a listing shows that its files are gone. A writer or helper that wakes up
    still later leaves files of an instant that nobody knows; those are recognised by that and deleted as well.

    Where a folder cannot be looked into, as it may be another user's, nothing is forgotten, and the next sweep is due
    when it would be anyway: nobody looks again at every commit.
    """
    clean: set[InstantTime] = set()
    now_ms: int = yield StoreNow()
    with suppress(StorageUnavailableError):
        clean = yield from _remove_garbage(publisher, known)
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        return tail.sweep(nonce, wall_ms, now_ms, clean) if tail.swept == known.swept else None
        yield

    return (yield from publisher.publish(derive, known))


def _remove_garbage(publisher: Publisher, known: Timeline) -> Steps[set[InstantTime]]:
    """Delete whatever is certainly garbage; the rolled-back instants of which there was none."""
    given_up = {r.requested for r in known.rolled_back}
    garbage: set[InstantTime] = yield from _sweep_files(publisher, known, given_up)
    yield from _sweep_staged(known)
    yield from _note_given_up(known, given_up - garbage)
    for beat in (yield List(HEARTBEATS)):
        requested = InstantTime(beat.path.rpartition("/")[2])
        if known.find_pending(requested) is None and requested < known.clock:
            yield Delete(beat.path)
    return given_up - garbage


def _sweep_files(publisher: Publisher, known: Timeline, given_up: set[InstantTime]) -> Steps[set[InstantTime]]:
    """Delete data files that are certainly garbage, and then the timeline files of their instants; which had any."""
    files: list[Stat] = yield Walk()  # before Hudi's directory: what is written between the two is named there
    named: dict[InstantTime, list[TimelineFileName]] = {}
    for stat in (yield List(publisher.projector.folder)):
        name = TimelineFileName.parse(stat.path.rpartition("/")[2])
        if name is not None:
            named.setdefault(name.requested, []).append(name)
    yield from find_tail(known)  # raises where the listings are of another table, which was made here since
    done = yield from all_completions(known)
    alive = {p.requested for p in known.pending} | {p.barrier for p in known.plans} | {c.requested for c in done}
    yield from _sweep_overtaken(files, done)
    garbage: set[InstantTime] = set()
    for instant, names in named.items():
        if (
            instant not in alive
            and instant < known.clock
            and (instant in given_up or (yield from _is_stale(publisher, names)))
        ):
            garbage.add(instant)
    left: set[InstantTime] = set()
    for file in files:
        found = data_file_name(file.path)
        if found is None or found.instant in alive or found.instant >= known.clock:
            continue
        orphan = (
            found.instant not in named
            and is_own_token(found.token)
            and bucket_of_file_id(found.file_id) is not None
        )
        if found.instant in given_up or found.instant in garbage or orphan:
            garbage.add(found.instant)
            if not (yield Delete(file.path)):
                left.add(found.instant)
    # A plan's outputs go before the plan: without it, Hudi's readers leave out what was committed after their barrier.
    for instant in sorted(named.keys() & garbage - left):
        for name in sorted(named[instant], key=when_put, reverse=True):
            yield Delete(publisher.projector.path(name))
    return garbage


def _sweep_overtaken(files: Sequence[Stat], done: Sequence[Completion]) -> Steps[None]:
    """Delete what a driver placed when another had completed its write: Hudi's readers would go by the name."""
    named = ((file.path, data_file_name(file.path)) for file in files)
    placed = [(path, name.instant) for path, name in named if name and driver_of_token(name.token) is not None]
    shared = {instant for _, instant in placed}
    commits = {c.requested: {file.path for file in c.files} for c in done if c.requested in shared}
    for path, instant in placed:
        if path not in commits.get(instant, {path}):
            yield Delete(path)


def _sweep_staged(known: Timeline) -> Steps[None]:
    """Delete what tasks staged, or put there long after, of writes that are over."""
    for stat in (yield List(STAGED)):
        name = stat.path.rpartition("/")[2]
        if name.endswith(TICKET):
            ticket = yield from read_ticket(name.removesuffix(TICKET))
            requested = ticket[1].requested if ticket else EPOCH
        else:
            requested = InstantTime(name.partition("-")[0])
        if known.find_pending(requested) is None and requested < known.clock:
            yield Delete(stat.path)


def _note_given_up(known: Timeline, forgotten: set[InstantTime]) -> Steps[None]:
    """Note the jobs whose writes the value is about to forget; drop the notes on jobs that are too old to begin."""
    for gone in known.rolled_back:
        last = begins_until(gone.nonce)
        if gone.requested in forgotten and last is not None and known.clock <= last:
            yield from put_surely(Put(f"{GIVEN_UP}/{gone.nonce}", b""))
    for stat in (yield List(GIVEN_UP)):
        last = begins_until(stat.path.rpartition("/")[2])
        if last is not None and known.clock > last:
            yield Delete(stat.path)


def _is_stale(publisher: Publisher, names: Sequence[TimelineFileName]) -> Steps[bool]:
    """Whether a pending instant in Hudi's directory that the value does not know was once projected by us.

    Each file that we put there says so. One of Hudi's own, or of another's, never does, so its writer is not hurt.
    """
    if any(name.state == "completed" for name in names):
        return False
    for name in names:
        path = publisher.projector.path(name)
        data = (yield Read(path)) if name.action in PENDING_ACTIONS else None
        if data and _bears_our_key(name, data, path):
            return True
    return False


def _bears_our_key(name: TimelineFileName, data: bytes, path: str) -> bool:
    try:
        if name.action == "compaction" and name.state == "requested":
            return OWN_KEY in (decode_compaction_plan(data, path).extra or {})
        return OWN_KEY in decode_commit(data, path).extra
    except FormatError:  # we put files whole, so a damaged one is not ours
        return False


def expired(requested: InstantTime | None) -> WriterExpiredError:
    """The error of a writer that was given up, as a value says that has it neither pending nor completed."""
    return WriterExpiredError(
        "this write was given up: it was silent for longer than the expiry and another job rolled it back, or one of "
        f"its own processes abandoned it. Nothing of it is visible. Write again. requested={requested}"
    )


def over(requested: InstantTime, tail: Timeline) -> Steps[WriterExpiredError]:
    """The error of a process whose write is not pending any more: it was given up, or another has completed it."""
    done = yield from find_completion(requested, tail)
    if done is None:
        return expired(requested)
    return WriterExpiredError(
        "another process of this job has completed the write meanwhile: it is visible, so do not write it again. "
        "Table.complete_write, called with this job, returns its commit. "
        f"requested={requested} completed={done.completed} version={done.version}"
    )


def taken_over(requested: InstantTime) -> CommitUnknownError:
    """The error of a driver that finds another one in its place."""
    return CommitUnknownError(
        "another driver of this job has taken the write over while this one was at it, and may have committed it: call "
        "complete_write again, which returns that commit, or else takes over in turn. "
        f"requested={requested}"
    )

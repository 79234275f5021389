"""The life of a write, as protocol steps: begin, complete, give up; and the sweeping of what the dead left behind.

A pending write is invisible, so nobody *needs* to roll it back. Whoever begins, or plans a compaction, gives up the
writes whose heartbeat has expired; the race with a writer that was merely slow is decided by one put (rule 1).
Files are deleted only once the rollback is known to be genuine (rule 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from crdt_mor.errors import TokenOrderError, WriterExpiredError
from crdt_mor.format.commit import decode_commit
from crdt_mor.model.instant import Instant, to_ms
from crdt_mor.model.names import BaseFileName, LogFileName, TimelineFileName
from crdt_mor.model.schema import TableSchema
from crdt_mor.model.timeline import Completion, DataFile, Pending, Timeline, Token
from crdt_mor.ops.adoption import foreign_completions, known_instants
from crdt_mor.ops.projection import OWN_KEY
from crdt_mor.ops.protocol import Derive, Publisher, find_completion, find_tail, version_path
from crdt_mor.ops.steps import Delete, Exists, List, Nonce, Read, Stat, Steps, StoreNow, Walk

HEARTBEATS = ".hoodie/.heartbeat"
SWEEP_EVERY_MS = 60_000


def heartbeat_path(requested: Instant) -> str:
    """A writer touches this while it runs."""
    return f"{HEARTBEATS}/{requested}"


def begin(publisher: Publisher, known: Timeline, expiry_ms: int) -> Steps[tuple[Timeline, Pending]]:
    """A new pending write and the value that it begins from. Gives up expired writers and sweeps first."""
    tail = yield from tend(publisher, known, expiry_ms)
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        return None if tail.find_begun(nonce) else tail.begin(nonce, wall_ms)
        yield

    value = yield from publisher.publish(derive, tail)
    begun = value.find_begun(nonce)
    if not isinstance(begun, Pending):
        raise _expired(begun.requested if begun else None)
    return value, begun


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit that a write became, and the value that holds it. `repeated`: it was there already, by its token."""

    completion: Completion | Token
    value: Timeline
    repeated: bool = False


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
        if tail.find_pending(requested) is None or used_token(tail, token) is not None:
            return None
        return tail.complete(nonce, wall_ms, requested, operation, files, token)
        yield

    value = yield from publisher.publish(derive, known)
    done = yield from find_completion(requested, value)
    if done is not None:
        yield Delete(heartbeat_path(requested))
        return Committed(done, value)
    if value.find_pending(requested) is not None:
        yield from give_up(publisher, value, requested, [file.path for file in files])
        return Committed(check_token(value, token), value, repeated=True)
    raise _expired(requested)


def used_token(value: Timeline, token: tuple[str, int] | None) -> Token | None:
    """The token that stands in the way of a write with `token`: of the same application, with a number not below."""
    last = value.find_token(token[0]) if token else None
    return last if last is not None and token is not None and token[1] <= last.number else None


def check_token(value: Timeline, token: tuple[str, int] | None) -> Token:
    """The earlier commit of this very token; raises `TokenOrderError` if the application is past it."""
    last = used_token(value, token)
    assert last is not None and token is not None
    if token[1] < last.number:
        raise TokenOrderError(
            "this token's number is below the last one of its application, so it is either a repeat of an older write "
            "or out of order; number writes of one application in the order in which they are made. "
            f"application={last.application!r} number={token[1]} last={last.number}"
        )
    return last


def give_up(publisher: Publisher, known: Timeline, requested: Instant, staged: Iterable[str] | None) -> Steps[Timeline]:
    """Roll a pending write back, then remove its files: `staged`, or, where unknown, all that bear its instant."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        return tail.roll_back(nonce, wall_ms, requested) if tail.find_pending(requested) else None
        yield

    value = yield from publisher.publish(derive, known)
    if value.find_rolled_back(requested) is not None:
        if staged is None:
            staged = [file.path for file in (yield Walk()) if instant_of(file.path) == requested]
        for path in staged:
            yield Delete(path)
        for state in ("requested", "inflight"):
            yield Delete(publisher.projector.path(TimelineFileName(requested, "deltacommit", state)))
        yield Delete(heartbeat_path(requested))
    return value


def grow(publisher: Publisher, known: Timeline, batch: pa.Schema) -> Steps[Timeline]:
    """The table's schema grows to hold `batch`; raises `SchemaMismatchError` where their types do not join."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        before = TableSchema.from_json(tail.schema)
        joined = before.grow(batch)
        return None if joined == before else tail.grow(nonce, wall_ms, joined.to_json())
        yield

    return (yield from publisher.publish(derive, known))


def instant_of(path: str) -> Instant | None:
    """The instant in the name of a data file."""
    name = path.rpartition("/")[2]
    parsed = LogFileName.parse(name) if name.startswith(".") else BaseFileName.parse(name)
    return parsed.instant if parsed else None


# --- upkeep that writers and planners do in passing -------------------------------------------------------------------


def tend(publisher: Publisher, known: Timeline, expiry_ms: int) -> Steps[Timeline]:
    """Give up the writers whose heartbeat has expired; once a minute, adopt and sweep."""
    tail = yield from find_tail(known)
    now_ms = yield StoreNow()
    for pending in tail.pending:
        if (yield from _is_expired(pending, now_ms, expiry_ms)):
            tail = yield from give_up(publisher, tail, pending.requested, None)
    if now_ms - to_ms(tail.swept) > SWEEP_EVERY_MS:
        tail = yield from adopt(publisher, tail)
        tail = yield from sweep(publisher, tail)
    return tail


def _is_expired(pending: Pending, now_ms: int, expiry_ms: int) -> Steps[bool]:
    if now_ms - to_ms(pending.requested) <= expiry_ms:
        return False
    beat: Stat | None = yield Exists(heartbeat_path(pending.requested))
    if beat is None:  # not there yet: as old as the version that published the begin
        beat = yield Exists(version_path(pending.version))
    return beat is None or now_ms - beat.modified_ms > expiry_ms


def adopt(publisher: Publisher, known: Timeline) -> Steps[Timeline]:
    """Instants that Hudi itself wrote become part of the value."""
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        found = yield from foreign_completions(publisher.projector, tail)
        return tail.adopt(nonce, wall_ms, found.completions, found.schema) if found.completions else None

    return (yield from publisher.publish(derive, known))


def sweep(publisher: Publisher, known: Timeline) -> Steps[Timeline]:
    """Delete what given-up writes left, also what a stalled helper put long after; forget those that are clean.

    A rolled-back instant is forgotten once a listing shows that its files are gone. A writer or helper that wakes up
    still later leaves files of an instant that nobody knows; those are recognised by that and deleted as well.
    """
    names: list[Stat] = yield List(publisher.projector.folder)
    files: list[Stat] = yield Walk()
    known_by_value = yield from known_instants(known)
    given_up = {r.requested for r in known.rolled_back}
    in_timeline: dict[Instant, list[tuple[str, TimelineFileName]]] = {}
    for stat in names:
        name = TimelineFileName.parse(stat.path.rpartition("/")[2])
        if name is not None:
            in_timeline.setdefault(name.requested, []).append((stat.path, name))
    garbage: set[Instant] = set()
    for instant in in_timeline.keys() | {i for f in files if (i := instant_of(f.path)) is not None}:
        if instant in known_by_value or instant >= known.clock:
            continue
        if instant in given_up or instant not in in_timeline or (yield from _is_ours(in_timeline[instant])):
            garbage.add(instant)
    for path in [f.path for f in files if instant_of(f.path) in garbage]:
        yield Delete(path)
    for instant in garbage:
        for path, _ in sorted(in_timeline.get(instant, []), reverse=True):
            yield Delete(path)
    for beat in (yield List(HEARTBEATS)):
        if known.find_pending(Instant(beat.path.rpartition("/")[2])) is None and beat.path < heartbeat_path(known.clock):
            yield Delete(beat.path)
    clean = given_up - garbage
    nonce = yield Nonce()

    def derive(tail: Timeline, wall_ms: int) -> Steps[Timeline | None]:
        if tail.swept > known.swept:
            return None
        return tail.sweep(nonce, wall_ms, clean)
        yield

    return (yield from publisher.publish(derive, known))


def _is_ours(found: Sequence[tuple[str, TimelineFileName]]) -> Steps[bool]:
    """Whether a pending instant in Hudi's directory that the value does not know was once projected by us."""
    for path, name in found:
        if name.state == "inflight":
            data = yield Read(path)
            return bool(data) and OWN_KEY in decode_commit(data, path).extra
    return False


def _expired(requested: Instant | None) -> WriterExpiredError:
    return WriterExpiredError(
        "this write was silent for longer than the expiry and was rolled back by another job; nothing of it is visible. "
        f"Write again. requested={requested}"
    )


__all__ = [
    "Committed", "Derive", "adopt", "begin", "check_token", "complete", "give_up", "grow", "heartbeat_path", "instant_of", "sweep", "tend",
    "used_token",
]  # fmt: skip

"""Commit a small write in one event: the same version begins and completes it. See docs/design/one-event.md.

    claim     put T.deltacommit.requested with the writer's nonce ─ check that the table is unchanged
    stage     put the log files of T and Hudi's metadata
    publish   put version n+1, which begins and completes T ─ check that n still stands (rule 3)
    project   put T_C.deltacommit

If another process publishes n+1 first, the writer removes its files, then its claim. It then posts the write
(`events.group`), or goes the long way: begin, stage, complete.

`Put.after` makes the claim durable before any file of T, log files before the version, and the version before Hudi's
file. If the reply to a put was lost, the claim stays for a sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from crdt_mor.errors import (
    CommitUnknownError,
    CrdtMorError,
    FormatError,
    StorageUnavailableError,
    TableNotFoundError,
    TableReplacedError,
)
from crdt_mor.ground.observing_events import RaceLostEvent
from crdt_mor.hudi.partitions import metadata_path, metadata_put
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.hudi.records import claim_record, pending_record
from crdt_mor.log.deciding import unknown_outcome
from crdt_mor.log.intents import Intent, PostedEvent, combine
from crdt_mor.log.outcome import find_completion, may_be_dropped
from crdt_mor.log.paths import version_path
from crdt_mor.log.publish import NO_SHORTCUTS, Shortcuts, confirmed, expire_in_turn, next_version, wall_clock
from crdt_mor.log.segments import SegmentGoneError
from crdt_mor.log.steps import (
    Delete,
    GetStat,
    MakeDurable,
    Nonce,
    Put,
    Read,
    Single,
    Steps,
    Together,
    put_all_beside,
    put_surely,
)
from crdt_mor.log.stopping import blocking_token, require_open
from crdt_mor.log.tail import delete_if_table_is_gone, still_stands
from crdt_mor.model.authors import Author
from crdt_mor.model.instant import InstantTime, to_ms
from crdt_mor.model.posts import Member
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import knows_claims
from crdt_mor.model.timeline_parts import Completion, DataFile
from crdt_mor.planners.way import Seen
from crdt_mor.store.paths import one_of_each_folder
from crdt_mor.store.protocol import Stat


@dataclass(frozen=True, slots=True)
class LoneWrite:
    """The objects of a write that is committed in one event.

    requested: the claimed time. partitions: of the logs. seen: partitions with metadata, which the commit only checks
    again. members: of a group commit. events, unposted: events that the version publishes as well.
    """

    requested: InstantTime
    operation: str
    logs: tuple[tuple[DataFile, bytes], ...]
    partitions: tuple[str, ...] = ()
    seen: frozenset[str] = frozenset()
    token: tuple[str, int] | None = None
    author: Author | None = None
    members: tuple[Member, ...] = ()
    events: tuple[PostedEvent, ...] = ()
    unposted: tuple[Intent, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimedWrite:
    """A write made after the claim, from objects read beside the claim.

    make: turns the replies into the write and the version to follow, or None.
    """

    requested: InstantTime
    reads: tuple[Single, ...]
    make: Callable[[Sequence[Any]], Steps[tuple[Timeline, LoneWrite] | None]]


@dataclass(frozen=True, slots=True)
class LoneCommit:
    completion: Completion
    value: Timeline


@dataclass(frozen=True, slots=True)
class ExpectedObject:
    """An object to check during the claim. If changed, the write goes the long way."""

    path: str
    stat: Stat | None


@dataclass(frozen=True, slots=True)
class FollowedVersion:
    """The version to follow in one event, and the time to claim. seen: the facts that choose the write's way."""

    value: Timeline
    requested: InstantTime
    expected: ExpectedObject
    seen: Seen


def may_be_alone(tail: Timeline, token: tuple[str, int] | None, author: Author) -> bool:
    """Return False for the first version, an older release's version, or if the long way would refuse the write."""
    try:
        require_open(tail, author)
    except CrdtMorError:
        return False
    later = tail.version > 0 and knows_claims(tail.format) and tail.foreign_group is None
    return later and blocking_token(tail, token) is None


def commit(
    publisher: TablePublisher,
    tail: Timeline,
    write: LoneWrite | ClaimedWrite,
    expected: ExpectedObject | None = None,
    shortcuts: Shortcuts = NO_SHORTCUTS,
) -> Steps[LoneCommit | Timeline | None]:
    """Commit a write in one event after `tail`.

    If another process was faster, the files are removed and the write never becomes visible. The result is then the
    newest version, projected, or None if unknown or if there is nothing to commit.
    """
    is_far, known_tail = shortcuts.is_far, tail
    if not is_far and not (yield from _is_newest(tail, expected)):
        return None
    if not is_far and tail.version != shortcuts.helped:
        yield from publisher.help_project(tail)
    wall_ms = yield from wall_clock(tail, to_ms(tail.swept))
    reads = write.reads if isinstance(write, ClaimedWrite) else ()
    claimed, replies = yield from _claim(publisher, write.requested, expected if is_far else None, reads)
    if claimed is None:
        return None
    if isinstance(write, ClaimedWrite):
        followed = yield from write.make(replies)
        if followed is None:
            yield Delete(claimed.path)
            return None
        tail, write = followed
    attempt = _Attempt(publisher, tail, write, claimed)
    answered, others = False, frozenset[str]()
    try:
        if not is_far and tail is not known_tail:
            yield from publisher.help_project(tail)
        is_untold = is_far and tail.version != shortcuts.helped
        told = (yield from publisher.projector.files(tail)) if is_untold else ()
        answered, others, is_told = yield from attempt.stage([file.path for file in told])
        if not is_told:
            yield from publisher.help_project(tail)
        made = None if others else (yield from attempt.derive(wall_ms))
        owned = None if made is None else (yield from attempt.publish(made.value, shortcuts))
    except (StorageUnavailableError, CommitUnknownError) as error:
        yield from attempt.withdraw(answered, (yield from attempt.find_others()))
        raise StorageUnavailableError(
            f"the store failed while the write was staged; nothing was published. Try again. cause={error}"
        ) from error
    if made is None:
        yield from attempt.withdraw(answered, others or (yield from attempt.find_others()))
        return None
    if owned is None:
        return (yield from attempt.find_out(made.value, answered))
    if not is_far:
        yield from expire_in_turn(owned)
    return replace(made, value=owned)


def _claim(
    publisher: TablePublisher, requested: InstantTime, expected: ExpectedObject | None, reads: tuple[Single, ...]
) -> Steps[tuple[_Claim | None, list[Any]]]:
    """Claim a time. The claim is None if another writer owns the time, or `expected` differs.

    Raises `StorageUnavailableError` if the claim was not answered and is not there: no other way would be better.
    """
    nonce = yield Nonce()
    path = publisher.projector.claim_path(requested)
    put = Put(path, claim_record(nonce), durable=False)  # durable before the log files are, see `stage`
    looks = (GetStat(expected.path),) if expected else ()
    created, *replies = yield Together((put, *looks, *reads))
    if not created:
        existing = yield Read(path)
        if created is None and existing is None:  # it may still land; a sweep removes it
            raise StorageUnavailableError(
                f"the store did not answer the put of a claim; nothing was published. Try again. claim={path}"
            )
        if existing != put.data:
            return None, []
    if expected is not None and replies[0] != expected.stat:
        yield Delete(path)
        return None, []
    return _Claim(path, nonce), replies[len(looks) :]


def _is_newest(tail: Timeline, expected: ExpectedObject | None) -> Steps[bool]:
    if expected is not None and (yield GetStat(expected.path)) != expected.stat:
        return False
    return (yield GetStat(version_path(tail.version + 1))) is None and (yield from still_stands(tail))


@dataclass(frozen=True, slots=True)
class _Attempt:
    publisher: TablePublisher
    tail: Timeline
    write: LoneWrite
    claim: _Claim

    def stage(self, told: Sequence[str]) -> Steps[tuple[bool, frozenset[str], bool]]:
        """Put the log files and metadata, and check meanwhile that the `told` files of the previous version exist.

        Returns whether every put was answered, so that none can land late; the paths with files of another writer, who
        ignores claims or uses a table created here since; and whether all `told` files exist.
        """
        logs = {file.path: data for file, data in self.write.logs}
        puts = [Put(path, data, durable="content", after=(self.claim.path,)) for path, data in logs.items()]
        inflight = Put(self.publisher.projector.inflight_path(self.write.requested), pending_record(), durable=False)
        new = [partition for partition in self.write.partitions if partition not in self.write.seen]
        puts += [inflight, *(metadata_put(partition, self.write.requested) for partition in new)]
        answered, existing, seen = yield from put_all_beside(puts, [GetStat(path) for path in told])
        others: set[str] = set()
        for put in existing:  # earlier releases claim a time by its inflight file
            if (put.path in logs or put is inflight) and (yield Read(put.path)) != put.data:
                others.add(put.path)
        return answered, frozenset(others), None not in seen

    def derive(self, wall_ms: int) -> Steps[LoneCommit | None]:
        """Return the commit in the next version, or None if a segment of `tail` is gone: it is then not the newest."""
        write, tail, nonce = self.write, self.tail, self.claim.nonce
        files = [file for file, _ in write.logs]
        event = tail.commit(
            nonce, wall_ms, write.requested, nonce, write.operation, files, write.token, write.author, write.members
        )
        completion = event.completions[-1]
        if write.events or write.unposted:
            event, _ = combine(tail, wall_ms, write.events, event, write.unposted)
        try:
            return LoneCommit(completion, (yield from next_version(tail, event, {}, [])))
        except SegmentGoneError:
            return None

    def publish(self, value: Timeline, shortcuts: Shortcuts) -> Steps[Timeline | None]:
        """Put the version, then missing partition metadata, then project.

        Returns None if the put was lost or uncertain, or the store failed after the put, and raises
        `StorageUnavailableError` if the store failed before.
        """
        partitions = self.write.partitions
        looks = tuple(GetStat(metadata_path(partition)) for partition in partitions)
        path = version_path(value.version)
        unnamed = (
            () if self.write.events or self.write.unposted else (path,)
        )  # the next put is Hudi's file of this commit
        put = Put(path, value.encode(), "content" if unnamed else True, self._log_of_each_folder(), decides=True)
        created = None if shortcuts.is_far else (yield put)
        try:
            if shortcuts.is_far:
                created, *stats = yield Together((put, *looks))
            else:
                stats = (yield Together(looks)) if looks else []
            owned = yield from confirmed(self.tail, value, created)
            for partition, stat in zip(partitions, stats, strict=True):
                if owned is not None and stat is None:
                    yield from put_surely(metadata_put(partition, self.write.requested))
            if owned is not None:
                yield from self.publisher.project(owned, own=True, after=unnamed, late=shortcuts.late)
        except (StorageUnavailableError, CommitUnknownError, FormatError):
            return None
        return owned

    def find_out(self, value: Timeline, answered: bool) -> Steps[LoneCommit | Timeline]:
        """Find the outcome of an uncertain put of `value`. If it was lost, remove all files and return the newest
        version.
        """
        try:
            now = yield from self._decided(value)
            completion = yield from find_completion(self.write.requested, now)
            for partition in self.write.partitions if completion is not None else ():
                yield from put_surely(metadata_put(partition, self.write.requested))
        except (TableReplacedError, TableNotFoundError):
            others = yield from self.find_others()
            paths = [file.path for file, _ in self.write.logs if file.path not in others]
            if not others:
                paths += [self.publisher.projector.inflight_path(self.write.requested), self.claim.path]
            yield from delete_if_table_is_gone(self.tail, paths)
            raise
        except (StorageUnavailableError, FormatError) as error:
            raise unknown_outcome(error) from error
        if completion is not None:
            return LoneCommit(completion, now)
        if may_be_dropped(self.write.requested, now):
            raise CommitUnknownError(
                "whether this write was committed is unknown: this process stopped for too long. Check whether "
                f"its rows are in the table before you write again. requested={self.write.requested}"
            )
        self.publisher.tell(RaceLostEvent(version=value.version, attempt=1))
        yield from self.withdraw(answered)
        return now

    def _decided(self, value: Timeline) -> Steps[Timeline]:
        """Return the newest version, projected. If no version follows `tail`, publish an event first: until then, the
        unanswered put may still succeed.
        """
        tail = self.tail
        now = yield from self.publisher.next_tail(tail, value)
        if now.version > tail.version:
            yield from self.publisher.help_project(now)
            return now
        nonce = yield Nonce()

        def derive(newest: Timeline, wall_ms: int) -> Timeline | None:  # noqa: ARG001
            return None if newest.version > tail.version else newest.decide(nonce, 0)

        return (yield from self.publisher.publish(derive, now))

    def find_others(self) -> Steps[frozenset[str]]:
        """Return the paths where a table that was created here since has put its own objects. If the store fails,
        return all.
        """
        own = {file.path: data for file, data in self.write.logs} | {self.claim.path: claim_record(self.claim.nonce)}
        try:
            found = yield Together(tuple(map(Read, own)))
        except StorageUnavailableError:
            return frozenset(own)
        return frozenset(
            p for (p, data), existing in zip(own.items(), found, strict=True) if existing not in (None, data)
        )

    def withdraw(self, answered: bool, others: Collection[str] = ()) -> Steps[None]:
        """Remove the files, then the claim, if none of their puts can still land. A sweep removes the rest.

        The claim stays if a power cut may restore the files: they would join the next commit at this time. others:
        paths of another writer's log files, which stay.
        """
        paths = [file.path for file, _ in self.write.logs if file.path not in others]
        if not others:
            paths.append(self.publisher.projector.inflight_path(self.write.requested))
        gone = yield Together(tuple(map(Delete, paths)))
        if answered and not others and all(gone):
            with suppress(StorageUnavailableError):
                for path in self._log_of_each_folder():
                    yield MakeDurable(path)
                yield Delete(self.claim.path)

    def _log_of_each_folder(self) -> tuple[str, ...]:
        return one_of_each_folder(file.path for file, _ in self.write.logs)


@dataclass(frozen=True, slots=True)
class _Claim:
    path: str
    nonce: str

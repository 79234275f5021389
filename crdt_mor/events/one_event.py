"""A commit that is alone: a small write begins and is committed in one event.

    claim     put T.deltacommit.requested with a nonce of one's own ─ and see that the table is still the same
    stage     put the log files under T, and what else Hudi is to find
    publish   put version n+1, which begins and completes T ─ look that n still stands (rule 3)
    project   put T_C.deltacommit

Each line is a round trip or two, as what is on one line is put side by side. Where another process has published n+1
before, the files are removed, then the claim, and the write is posted for itself or another process to commit
(`events.group`), or made again the long way: begin, stage, complete.

*Why a claim.* Nobody knows of T before its event, so two writers that hold version n might choose one T, and Hudi's
readers show every file of a completed instant, no matter which writer put it. So a writer stages only under a T whose
claim it has put, and a writer that finds T claimed keeps away. The name of the claim lasts before a file under T does.
What it holds need not: the nonce is for its writer alone. Likewise the names of the log files last before that of the
version, and that of the version before that of Hudi's file (`Put.after`). Claimed times are of a class of their own
(`model.instant`), so a write that begins in an event of its own never meets one.

*Why the claim goes last.* A writer that finds no claim may take T. So a claim is removed only once the files of its
owner are known to be gone, and none of them can land late: where the answer to a put was lost, the claim stays. A sweep
removes such a claim, and what a crash has left, once the table's clock has passed T and nobody can claim it any more.

*Nothing comes between.* The event follows the very version that the write has seen. So what payloads ask about earlier
commits is still true, and no barrier, overwrite or token in between has to be looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
from crdt_mor.hudi.projection import TablePublisher
from crdt_mor.hudi.records import claim_record, pending_record
from crdt_mor.log.deciding import deciding, unknown_outcome
from crdt_mor.log.intents import PostedEvent, combine
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
from crdt_mor.store.paths import one_of_each_folder
from crdt_mor.store.protocol import Stat


@dataclass(frozen=True, slots=True)
class LoneWrite:
    """A write that is to be one event, with all that it puts.

    requested: the time that it claims, later than the clock of the version that it follows.
    logs: the log files, and what each holds. partitions: the metadata by which Hudi finds the partitions of the files.
    seen: the paths of metadata that this process has found before, so that it is only looked at again.
    members: of a commit of several writers, the part of each; none: it is one writer's, with its token and author.
    events: what others have posted of their writes, and the same version publishes.
    """

    requested: InstantTime
    operation: str
    logs: tuple[tuple[DataFile, bytes], ...]
    partitions: tuple[Put, ...] = ()
    seen: frozenset[str] = frozenset()
    token: tuple[str, int] | None = None
    author: Author | None = None
    members: tuple[Member, ...] = ()
    events: tuple[PostedEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimedWrite:
    """A write that is made once its time is claimed, of what is read beside the claim.

    reads: what is read. make: of the replies the write, and the version that it follows: the one of which it was known
        when the time was claimed, or a later one whose clock has not passed that time. None: there is none after all.
    """

    requested: InstantTime
    reads: tuple[Single, ...]
    make: Callable[[Sequence[Any]], Steps[tuple[Timeline, LoneWrite] | None]]


@dataclass(frozen=True, slots=True)
class LoneCommit:
    """The commit that a write became, and the value that holds it."""

    completion: Completion
    value: Timeline


@dataclass(frozen=True, slots=True)
class Expected:
    """An object that is looked at when the time is claimed: the write goes the long way where it is another by now."""

    path: str
    stat: Stat | None


@dataclass(frozen=True, slots=True)
class Followed:
    """The version that a write is to follow in one event, and the time that it claims.

    is_crowded: others were in the way lately, so that the write is posted.
    """

    value: Timeline
    requested: InstantTime
    expected: Expected
    is_crowded: bool = False


def may_be_alone(tail: Timeline, token: tuple[str, int] | None, author: Author) -> bool:
    """Whether a write may follow this version in one event: not the first one, nor after an older release.

    Nor where it would be refused, or repeats another: the long way says so, of the version that is the newest by then.
    """
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
    expected: Expected | None = None,
    shortcuts: Shortcuts = NO_SHORTCUTS,
) -> Steps[LoneCommit | Timeline | None]:
    """Make a write visible in one event that follows `tail`, or what a `ClaimedWrite` says.

    Where somebody else was faster, nothing of the write is left, nor ever will be seen. Then the newest version, which
    is projected, is returned if it was found out; else None. So it is where there is no write after all.

    shortcuts: where it has a list for late looks, every round trip counts, and the claim is put beside the first look.
    """
    is_far, known = shortcuts.is_far, tail
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
        made = yield from write.make(replies)
        if made is None:
            yield Delete(claimed.path)
            return None
        tail, write = made
    attempt = _Attempt(publisher, tail, write, claimed)
    answered, others = False, frozenset[str]()
    try:
        if not is_far and tail is not known:
            yield from publisher.help_project(tail)
        is_untold = is_far and tail.version != shortcuts.helped
        told = (yield from publisher.projector.files(tail)) if is_untold else ()
        answered, others, is_told = yield from attempt.stage([file.path for file in told])
        if not is_told:
            yield from publisher.help_project(tail)
        value = None if others else (yield from attempt.derive(wall_ms))
        owned = None if value is None else (yield from attempt.publish(value, shortcuts))
    except (StorageUnavailableError, CommitUnknownError) as error:
        yield from attempt.withdraw(answered, (yield from attempt.find_others()))
        raise StorageUnavailableError(
            f"the store failed while the write was staged; nothing was published. Try again. cause={error}"
        ) from error
    if value is None:
        yield from attempt.withdraw(answered, others or (yield from attempt.find_others()))
        return None
    if owned is None:
        return (yield from attempt.find_out(value, answered))
    if not is_far:
        yield from expire_in_turn(owned)
    with deciding(is_made=True):
        completion = yield from find_completion(write.requested, owned)
    assert completion is not None, "the value holds its own event"
    return LoneCommit(completion, owned)


def _claim(
    publisher: TablePublisher, requested: InstantTime, expected: Expected | None, reads: tuple[Single, ...]
) -> Steps[tuple[_Claim | None, list[Any]]]:
    """The claim of a time, which is ours; None where it is another's, or what is `expected` is not so.

    reads: what is read beside it, whose replies are returned, too.
    """
    nonce = yield Nonce()
    path = publisher.projector.claim_path(requested)
    put = Put(path, claim_record(nonce), durable=False)  # its name lasts before that of a log file: `stage`
    looks = (GetStat(expected.path),) if expected else ()
    created, *replies = yield Together((put, *looks, *reads))
    if not created and (yield Read(path)) != put.data:
        return None, []  # where no answer came it may land yet, and then a sweep takes it
    if expected is not None and replies[0] != expected.stat:
        yield Delete(path)
        return None, []
    return _Claim(path, nonce), replies[len(looks) :]


def _is_newest(tail: Timeline, expected: Expected | None) -> Steps[bool]:
    """Whether nobody has followed a version yet, and the table is still the one that it is of."""
    if expected is not None and (yield GetStat(expected.path)) != expected.stat:
        return False
    return (yield GetStat(version_path(tail.version + 1))) is None and (yield from still_stands(tail))


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt at one event, of a write whose time is claimed."""

    publisher: TablePublisher
    tail: Timeline
    write: LoneWrite
    claim: _Claim

    def stage(self, told: Sequence[str]) -> Steps[tuple[bool, frozenset[str], bool]]:
        """Put the log files, and beside them what Hudi finds them by.

        told: files by which Hudi is told of the version that the write follows, which are looked for meanwhile.

        Returns whether none of these puts can land any more, and the paths of log files at which there was another's:
        that of a table which was made here since, or of a write that has not gone by the claim; and whether all that
        is `told` is there.
        """
        logs = {file.path: data for file, data in self.write.logs}
        puts = [Put(path, data, durable="content", after=(self.claim.path,)) for path, data in logs.items()]
        inflight = Put(self.publisher.projector.inflight_path(self.write.requested), pending_record(), durable=False)
        puts += [inflight, *(put for put in self.write.partitions if put.path not in self.write.seen)]
        answered, there, seen = yield from put_all_beside(puts, [GetStat(path) for path in told])
        others: set[str] = set()
        for put in there:  # another's inflight file is the claim of an earlier release
            if (put.path in logs or put is inflight) and (yield Read(put.path)) != put.data:
                others.add(put.path)
        return answered, frozenset(others), None not in seen

    def derive(self, wall_ms: int) -> Steps[Timeline | None]:
        """The next version; None where a segment of `tail` is gone, which is thus not the newest one any more."""
        write, tail, nonce = self.write, self.tail, self.claim.nonce
        files = [file for file, _ in write.logs]
        event = tail.commit(
            nonce, wall_ms, write.requested, nonce, write.operation, files, write.token, write.author, write.members
        )
        event, _ = combine(tail, wall_ms, write.events, event)
        try:
            return (yield from next_version(tail, event, {}, []))
        except SegmentGoneError:
            return None

    def publish(self, value: Timeline, shortcuts: Shortcuts) -> Steps[Timeline | None]:
        """Put the version, and see that the partitions have their metadata, now that their files are there; project it.

        None where the put was lost, or its outcome is not known, or the store failed in what comes after it. Raises
        `StorageUnavailableError` where the store failed before.
        """
        partitions = self.write.partitions
        looks = tuple(GetStat(put.path) for put in partitions)
        path = version_path(value.version)
        unnamed = () if self.write.events else (path,)  # Hudi's file of this commit is the next thing that is put
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
                    yield from put_surely(partition)
            if owned is not None:
                yield from self.publisher.project(owned, own=True, after=unnamed, late=shortcuts.late)
        except (StorageUnavailableError, CommitUnknownError, FormatError):
            return None
        return owned

    def find_out(self, value: Timeline, answered: bool) -> Steps[LoneCommit | Timeline]:
        """What has become of a put of `value` that was not seen to succeed.

        If it was lost, everything is removed, and the newest version, which is projected, returned.
        """
        try:
            now = yield from self._decided(value)
            completion = yield from find_completion(self.write.requested, now)
            for put in self.write.partitions if completion is not None else ():
                yield from put_surely(put)
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
                "whether this write was committed is not known any more, so long did this process stand still: look at "
                f"the table before writing again. requested={self.write.requested}"
            )
        self.publisher.tell(RaceLostEvent(version=value.version, attempt=1))
        yield from self.withdraw(answered)
        return now

    def _decided(self, value: Timeline) -> Steps[Timeline]:
        """The newest version, which is projected, once a version has followed the one that `value` was to follow.

        A put that was not answered may land as long as nobody has. So if nobody has, an event that moves nothing but
        the clock does.
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
        """The paths of log files and of the claim at which another's stands, of a table that was made here since.

        Where the store does not say, it may be any of them.
        """
        own = {file.path: data for file, data in self.write.logs} | {self.claim.path: claim_record(self.claim.nonce)}
        try:
            found = yield Together(tuple(map(Read, own)))
        except StorageUnavailableError:
            return frozenset(own)
        return frozenset(p for (p, data), there in zip(own.items(), found, strict=True) if there not in (None, data))

    def withdraw(self, answered: bool, others: Collection[str] = ()) -> Steps[None]:
        """Remove the files, and then the claim, if no put of them can land any more. The rest is a sweep's.

        The claim stays where files may be back after a power cut, and then of the commit of who takes the time.
        others: paths at which another's log file was found. It stays, and so does what tells Hudi of the time.
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
    """A claim that is ours."""

    path: str
    nonce: str

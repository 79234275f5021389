"""What a timeline value is made of: what is pending, planned, given up and completed, its segments and its tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from crdt_mor.errors import FormatError
from crdt_mor.model.authors import Author
from crdt_mor.model.committed import Committed
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.instant import EPOCH, InstantTime
from crdt_mor.model.names import COMMIT, COMPACTION, DELTA_COMMIT, BaseFileName, LogFileName, TimelineFileName
from crdt_mor.model.overwrite import Overwriting
from crdt_mor.model.posts import Member, PostName

FileGroup = tuple[str, str]
"""A file group: (partition path, file id)."""


@dataclass(frozen=True)
class DataFile:
    """A base or log file that a commit added. `path` is relative to the table; `deletes` counts delete records.

    `staged`: of a base file of an overwrite, the path under which it was staged. It is there until Hudi has been told.
    """

    path: str
    size: int
    rows: int
    deletes: int = 0
    staged: str = field(default="", compare=False)

    @cached_property
    def partition(self) -> str:
        return self.path.rpartition("/")[0]

    @cached_property
    def name(self) -> BaseFileName | LogFileName:
        text = self.path.rpartition("/")[2]
        parsed = LogFileName.parse(text) if text.startswith(".") else BaseFileName.parse(text)
        if parsed is None:
            raise FormatError(f"the timeline names a data file whose name is not one of Hudi's. file={self.path}")
        return parsed

    @property
    def is_base(self) -> bool:
        return isinstance(self.name, BaseFileName)

    @property
    def group(self) -> FileGroup:
        return self.partition, self.name.file_id


@dataclass(frozen=True, slots=True)
class Token:
    """The last write of an application that carried a token, and the commit it became."""

    application: str
    number: int
    requested: InstantTime
    completed: InstantTime
    version: int


@dataclass(frozen=True, slots=True)
class Pending:
    """A write that has begun. `version` is the one that published its begin.

    `begun_ms`: what the store's clock said just before its begin; None: it was begun by a release that did not note it.
    `driver`: of a distributed write the driver that alone may complete it, number `drivers` of those that took it over.
    `author`: of its begin, or the driver; None: it was begun by a release that did not note it.
    `declared`: all that the write may touch.
    """

    requested: InstantTime
    nonce: str
    version: int
    begun_ms: int | None = None
    driver: str = ""
    drivers: int = 0
    author: Author | None = None
    declared: Declared = ANYTHING


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """A plan of a service that is open. The frozen plan itself, its file groups with it, is the object at `path`.

    `action`: which service it is of, in the words of `hudi.actions`.
    """

    barrier: InstantTime
    nonce: str
    version: int
    path: str
    action: str = COMPACTION


@dataclass(frozen=True, slots=True)
class RolledBack:
    """An instant that was given up, and whose files may still lie about: a write, or the plan of another action."""

    requested: InstantTime
    nonce: str
    version: int
    action: str = DELTA_COMMIT

    @property
    def is_plan(self) -> bool:
        """Whether it is a plan that was cancelled, not a write that was rolled back."""
        return self.action != DELTA_COMMIT


@dataclass(frozen=True, slots=True)
class Completion:
    """A commit: requested at T, completed at C, published by `version`.

    `nonce` is that of the begin or plan that it ends, `driver` the driver that ended it, of a distributed write.
    `action` is Hudi's word in the completed file's name (`deltacommit`, `commit` for a compaction, `replacecommit`),
    `operation` Hudi's operation type. `adopted` marks instants that Hudi wrote itself. `author`: of the commit; None of
    those that Hudi or an older release made. `undone`: of a rollback, the write that it undid. `overwriting`: of an
    overwrite, what it covers. `token`: the one that the write carried, (application, number); None where it carried
    none, or FORMAT 4 noted none. `members`: of a commit of several writers, the part of each; none of every other.
    `committed`: of a table of Hudi's from before version 8, which is never written, the instants that are committed.
    """

    requested: InstantTime
    completed: InstantTime
    version: int
    nonce: str
    action: str
    operation: str
    files: tuple[DataFile, ...] = ()
    replaced: tuple[FileGroup, ...] = ()
    adopted: bool = False
    driver: str = ""
    author: Author | None = None
    undone: InstantTime | None = None
    overwriting: Overwriting | None = None
    token: tuple[str, int] | None = None
    members: tuple[Member, ...] = ()
    committed: Committed | None = None

    @property
    def tokens(self) -> tuple[tuple[str, int], ...]:
        """The tokens that the writes carried which became this commit."""
        found = (self.token, *(member.token for member in self.members))
        return tuple(token for token in found if token is not None)

    @property
    def writers(self) -> tuple[Member, ...]:
        """The part of each writer whose write became this commit; none where nobody is known."""
        if self.members or self.author is None:
            return self.members
        return (Member(self.author, self.rows, self.deletes, self.token),)

    def find_member(self, post: PostName) -> Member | None:
        """The write that was taken from a post."""
        return next((member for member in self.members if member.post == post), None)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def deletes(self) -> int:
        return sum(file.deletes for file in self.files)


def completed_name(completion: Completion) -> TimelineFileName:
    """The name of the completed file of a commit, in Hudi's active timeline."""
    return TimelineFileName(completion.requested, completion.action, "completed", completion.completed)


@dataclass(frozen=True, slots=True)
class Segment:
    """An immutable object with a run of older completions.

    No snapshot as of `superseded` or later needs any of them (None: some are still needed by the latest snapshot).
    """

    name: str
    level: int
    first: InstantTime
    last: InstantTime
    count: int
    superseded: InstantTime | None = None
    size: int = 0
    """Bytes of the object; 0 of one that an older release wrote."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Which history the table still answers for; every mark moves only forward.

    since: what is shown as of this completion time, or a later one, is exact for ever (EPOCH: whatever it is).
    stable_since: the same for views by requested time; not after `since`, nor after any write that was pending then.
    groups: single file groups whose history begins later, as an erasure asked for it.
    dropped: the value has dropped commits, the last of which completed at this time; no view at this time or later, by
        completion or by request, needs any of them. So a commit that is not found, and was requested before, may have
        been there.
    dropped_count: how many commits it has dropped.
    """

    since: InstantTime = EPOCH
    stable_since: InstantTime = EPOCH
    groups: tuple[tuple[FileGroup, InstantTime], ...] = ()
    dropped: InstantTime = EPOCH
    dropped_count: int = 0

    def since_of(self, group: FileGroup) -> InstantTime:
        """From which completion time on the history of a file group is kept."""
        return max(self.since, dict(self.groups).get(group, EPOCH))


EVERYTHING_KEPT = Retention()


@dataclass(frozen=True, slots=True)
class Archive:
    """What has left Hudi's active timeline for its history, which Hudi calls its archived timeline.

    watermark: each instant that was requested at or before it is in the history, and none of them can change any more;
    EPOCH: none is.
    since: the watermark before the event that moved it last.
    version: the version that moved it last. A helper of that version writes the history and removes the files.
    count: how many instants have been archived in all.
    manifest: the number of the history's newest manifest, which that version asked for; 0: there is none of ours.
    files: the data files that this manifest names, oldest first.
    """

    watermark: InstantTime = EPOCH
    since: InstantTime = EPOCH
    version: int = 0
    count: int = 0
    manifest: int = 0
    files: tuple[str, ...] = ()


NOTHING_ARCHIVED = Archive()


def bytes_of(completions: Iterable[Completion]) -> int:
    """About how many bytes the completions take in a value."""
    size = 0
    for c in completions:
        size += sum(len(file.path) + 20 for file in c.files)
        size += sum(len(partition) + len(file_id) + 8 for partition, file_id in c.replaced)
        size += _bytes_said(c.author) if c.author else 0
        size += sum(_MEMBER_BYTES + len(m.token[0] if m.token else "") for m in c.members)
        size += sum(len(author.application) + _bytes_said(author) for author in {m.author for m in c.members})
    return size


_MEMBER_BYTES = 70
"""About how many bytes one of several writers takes in a value, with its author's host."""


def _bytes_said(author: Author) -> int:
    """How many bytes that take which a user says of a commit."""
    return sum(len(key) + len(text) for key, text in author.info)


def superseded_at(completions: Sequence[Completion]) -> dict[InstantTime, InstantTime | None]:
    """For each requested time: the completion time from which on no snapshot needs the commit's files.

    A file is needed until a compaction of its group with a later barrier completes; None where `completions` hold no
    such compaction. A commit without files is needed by no snapshot at all; one that replaced file groups always is.
    """
    compactions: dict[FileGroup, list[tuple[InstantTime, InstantTime]]] = {}
    for c in completions:
        for file in c.files:
            if file.is_base:
                compactions.setdefault(file.group, []).append((file.name.instant, c.completed))
    result: dict[InstantTime, InstantTime | None] = {}
    for c in completions:
        until: InstantTime | None = None if c.replaced else EPOCH
        for file in () if c.replaced else c.files:
            since = file.name.instant if file.is_base or c.action == COMMIT else c.completed
            ends = [done for barrier, done in compactions.get(file.group, ()) if barrier > since]
            if not ends:
                until = None
                break
            until = max(until or EPOCH, min(ends))
        result[c.requested] = until
    return result

"""The parts of a timeline value."""

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
from crdt_mor.model.overwrite import EVERYTHING, OPERATIONS, OVERWRITE_TABLE, Overwrite, Overwriting, Scope
from crdt_mor.model.posts import Member, PostName

FileGroup = tuple[str, str]
"""(partition path, file id)"""


@dataclass(frozen=True)
class DataFile:
    """A base or log file of a commit.

    Attributes:
        path: relative to the table.
        size: in bytes.
        deletes: number of delete records.
        staged: the staging path of an overwrite's base file. The copy exists until Hudi's timeline has the commit.
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
            raise FormatError(f"a data file in the timeline does not have a Hudi file name. file={self.path}")
        return parsed

    @property
    def is_base(self) -> bool:
        return isinstance(self.name, BaseFileName)

    @property
    def group(self) -> FileGroup:
        return self.partition, self.name.file_id


@dataclass(frozen=True, slots=True)
class Token:
    """The last write of an application with a token, and its commit."""

    application: str
    number: int
    requested: InstantTime
    completed: InstantTime
    version: int


@dataclass(frozen=True, slots=True)
class Pending:
    """A pending write.

    version: of its begin. begun_ms: the store's clock just before the begin. driver: of a distributed write; only it
    may complete the write. drivers: how many have taken it over. An older release wrote no `begun_ms` and no author.
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
    """An open plan of a service. The object at `path` contains the frozen plan.

    action: the service, from `hudi.actions`.
    """

    barrier: InstantTime
    nonce: str
    version: int
    path: str
    action: str = COMPACTION


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A rolled-back write or cancelled plan. Its files may still exist."""

    requested: InstantTime
    nonce: str
    version: int
    action: str = DELTA_COMMIT

    @property
    def is_plan(self) -> bool:
        return self.action != DELTA_COMMIT


@dataclass(frozen=True, slots=True)
class Completion:
    """A commit.

    version: of its completion. nonce: of the begin or plan. driver: of a distributed write.
    action: in the completed file's name: `deltacommit`, `replacecommit`, or `commit` for a compaction. operation:
    Hudi's operation type. adopted: Hudi wrote this instant. undone: the write that a rollback undid.
    token: (application, number); None in FORMAT 4. members: of a commit of several writers.
    committed: of a read-only Hudi table before version 8.
    """

    requested: InstantTime
    completed: InstantTime
    version: int
    nonce: str
    action: str
    operation: str
    files: Sequence[DataFile] = ()
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
        found = (self.token, *(member.token for member in self.members))
        return tuple(token for token in found if token is not None)

    @property
    def writers(self) -> tuple[Member, ...]:
        """The part of each writer in this commit. Empty if the author is unknown."""
        if self.members or self.author is None:
            return self.members
        return (Member(self.author, self.rows, self.deletes, self.token),)

    def find_member(self, post: PostName) -> Member | None:
        return next((member for member in self.members if member.post == post), None)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def deletes(self) -> int:
        return sum(file.deletes for file in self.files)

    @property
    def is_replacing(self) -> bool:
        """True if a commit of Hudi removed rows with file groups. A clustering only moves them."""
        return bool(self.replaced) and self.operation in OPERATIONS


def completed_name(completion: Completion) -> TimelineFileName:
    return TimelineFileName(completion.requested, completion.action, "completed", completion.completed)


def replaced_by(adopted: Iterable[Completion]) -> tuple[Overwrite, ...]:
    """Return Hudi's replacing commits as overwrites."""
    found = (c for c in adopted if c.is_replacing)
    return tuple(Overwrite(c.requested, _scope_replaced(c)) for c in found)


def with_replaced(overwrites: Iterable[Overwrite], adopted: Iterable[Completion]) -> tuple[Overwrite, ...]:
    """Add Hudi's replacing commits, sorted by barrier."""
    return tuple(sorted((*overwrites, *replaced_by(adopted)), key=lambda o: o.barrier))


def _scope_replaced(completion: Completion) -> Scope:
    if completion.operation == OVERWRITE_TABLE:
        return EVERYTHING
    written = {file.partition for file in completion.files}
    return Scope(tuple(sorted({partition for partition, _ in completion.replaced} | written)))


@dataclass(frozen=True, slots=True)
class Segment:
    """An immutable object with consecutive older completions.

    No snapshot at `superseded` or later needs them. None: the latest snapshot needs some.
    """

    name: str
    level: int
    first: InstantTime
    last: InstantTime
    count: int
    superseded: InstantTime | None = None
    size: int = 0
    """In bytes. 0 if an older release wrote it."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The history that the table still answers for. Marks only move forward.

    since: views by completion time are exact from this time on. EPOCH: all are.
    stable_since: the same by requested time. Not after `since`, nor after the request of any then pending write.
    groups: file groups with a later start of history, because of an erasure.
    dropped: no view at this time or later needs the `dropped_count` dropped commits, which completed by then.
    """

    since: InstantTime = EPOCH
    stable_since: InstantTime = EPOCH
    groups: tuple[tuple[FileGroup, InstantTime], ...] = ()
    dropped: InstantTime = EPOCH
    dropped_count: int = 0

    def since_of(self, group: FileGroup) -> InstantTime:
        return max(self.since, dict(self.groups).get(group, EPOCH))


EVERYTHING_KEPT = Retention()


@dataclass(frozen=True, slots=True)
class Archive:
    """Hudi's history, its archived timeline.

    watermark: instants requested up to this time are in the history and never change. EPOCH: none.
    since: the previous watermark. version: the version that set the watermark. count: of archived instants.
    manifest: the number of the newest manifest that this version requires; 0 before the first.
    files: the data files in this manifest, oldest first.
    """

    watermark: InstantTime = EPOCH
    since: InstantTime = EPOCH
    version: int = 0
    count: int = 0
    manifest: int = 0
    files: tuple[str, ...] = ()


NOTHING_ARCHIVED = Archive()


def bytes_of(completions: Iterable[Completion]) -> int:
    """Return the approximate size of completions in a value, in bytes."""
    size = 0
    for c in completions:
        size += sum(len(file.path) + 20 for file in c.files)
        size += sum(len(partition) + len(file_id) + 8 for partition, file_id in c.replaced)
        size += _bytes_said(c.author) if c.author else 0
        size += sum(_MEMBER_BYTES + len(m.token[0] if m.token else "") for m in c.members)
        size += sum(len(author.application) + _bytes_said(author) for author in {m.author for m in c.members})
    return size


_MEMBER_BYTES = 70
"""Approximate bytes of a member, including its author's host."""


def _bytes_said(author: Author) -> int:
    return sum(len(key) + len(text) for key, text in author.info)


def superseded_at(completions: Sequence[Completion]) -> dict[InstantTime, InstantTime | None]:
    """Map each requested time to the completion time from which no snapshot needs the commit's files.

    A file is needed until a compaction of its group with a later barrier completes; None if `completions` lack such a
    compaction. No snapshot needs a commit without files, but all need a commit that replaced file groups.
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

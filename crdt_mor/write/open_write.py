"""A write from its begin to its commit.

    1. begin     the write is pending in the timeline; it keeps this timeline value to its end
    2. collect   check and key the statements (statements.py); nothing is stored yet
    3. stage     put one log file per touched file group, appearing whole (stage.py)
    4. complete  one put makes all of it visible

A failure before step 4 rolls the write back. A process that dies earlier leaves only invisible garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import CommitUnknownError, StorageUnavailableError
from crdt_mor.events import job as jobs
from crdt_mor.events import own_blocks, rollback
from crdt_mor.events import update as updates
from crdt_mor.events import write as events
from crdt_mor.events.heartbeat import beating
from crdt_mor.events.session import Session
from crdt_mor.events.update_beside_hudi import is_beside_hudi, wait_beside_hudi
from crdt_mor.ground.observing_events import StreamEvent
from crdt_mor.ground.threads import in_threads
from crdt_mor.log.outcome import ValueOf, find_completion, find_overwrite, may_be_dropped
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import Steps, delete_for_good
from crdt_mor.model.authors import Info, application_of
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.file_ids import FileIds
from crdt_mor.model.names import WRITE_TOKEN, driver_token
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile, Pending
from crdt_mor.planners.way import BLOCK, Way
from crdt_mor.read.reads import EVERYTHING, Reads
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.store.at_once import FILES_AT_ONCE
from crdt_mor.store.protocol import Chunks
from crdt_mor.write.beginning import begin_writable
from crdt_mor.write.log_files import ensure_partition, in_memory, put_chunks, staging
from crdt_mor.write.spilled import Held
from crdt_mor.write.stage import Placed, Staging
from crdt_mor.write.statements import Operation, Statement, Statements

LOOK_KEPT_MS = 500
"""Validity of a writer's last look at the timeline, in ms of its own clock."""

S = TypeVar("S")
"""The staged objects in the form that the ending event takes."""


@dataclass
class OpenWrite:
    """A write under way. Not thread-safe, but its session is.

    task: the part of a distributed write; None: the whole write.
    file_ids: the ids by which files are staged. way: why the write has begun.
    started_ms, begun_ms: this process's clock at the start, and once the write had begun.
    """

    session: Session
    value: ValueOf
    begun: Pending
    token: tuple[str, int] | None = None
    task: int | None = None
    write_token: str = WRITE_TOKEN
    started_ms: int = 0
    begun_ms: int | None = None
    way: Way = BLOCK
    statements: Statements = field(init=False)
    _staged: list[str] = field(default_factory=list)
    _ensured: set[str] = field(default_factory=set)
    _unchecked: list[str] = field(default_factory=list)
    _unnamed: dict[str, str] = field(default_factory=dict)
    _alive: ExitStack = field(default_factory=ExitStack)
    _shortcuts: Shortcuts = field(init=False)
    _pending_in: Timeline = field(init=False)
    _looked_ms: int | None = None
    file_ids: FileIds = field(init=False)
    _before: Snapshot | None = None
    _ahead: list[Pending] = field(default_factory=list)

    def __post_init__(self) -> None:
        begun = self.begun
        self.statements = Statements(self.session.config, self.value, begun.requested, self.task, begun.declared)
        self.file_ids = self.value.file_ids
        self._pending_in, self._shortcuts = self.value, self.session.pace.shortcuts(self.value.version)

    @classmethod
    def begin(
        cls, session: Session, token: tuple[str, int] | None, info: Info = (), declared: Declared = ANYTHING
    ) -> OpenWrite:
        """Begin; raise if keys may live outside the bucket index."""
        started_ms = session.environment.now_ms()
        value, begun = begin_writable(session, session.author(application_of(info, token), info), declared)
        write = cls(session, value, begun, token, started_ms=started_ms)
        write.begun_ms = write._looked_ms = session.environment.now_ms()
        write.keep_alive()
        return write

    def keep_alive(self) -> None:
        store, environment = self.session.store, self.session.environment
        self._alive.enter_context(beating(store, environment, self.begun.requested, self.session.expiry_ms))

    def settle(self, reads: Reads, wait_ms: int) -> Snapshot:
        """Wait for earlier writes and return the final view before this write: see `events.update`.

        wait_ms: the longest wait, from the begin on. If payloads ask which commits a write has seen, it waits for all
            earlier writes.
        """
        session, requested = self.session, self.begun.requested
        meets, waits = self._awaited(reads)
        own_blocks.require_not_own(session, self.value, waits if wait_ms else ())
        if self._before is not None and not waits:
            return self._before
        settled: Timeline = self.value
        if bool(waits) or session.run(is_beside_hudi(session.publisher, settled, requested, session.expiry_ms)):
            waiting = wait_beside_hudi(
                session.publisher, session.known_tail(), requested, session.expiry_ms, wait_ms, meets, self.begun_ms
            )
            settled = session.remember(session.run(waiting))
        self._ahead = updates.earlier(settled, requested)
        # A rule added meanwhile waits for this write and is proven with its rows.
        self.statements.learn(replace(settled, pending=tuple(self._ahead), rules=self.value.rules))
        self._before = Snapshot.before(session, self.value, settled, requested)
        return self._before

    def _awaited(self, reads: Reads) -> tuple[Callable[[Declared], bool], list[Pending]]:
        """Return the rule for earlier writes that a read waits for, and such writes."""
        reads = EVERYTHING if self.statements.merging.asks_what_was_seen else reads
        meets = partial(reads.may_meet, config=self.session.config, schema=self.statements.schema)
        ahead = self._ahead if self._before is not None else updates.earlier(self.value, self.begun.requested)
        return meets, [pending for pending in ahead if meets(pending.declared)]

    def early(self, reads: Reads) -> Snapshot | None:
        """Return the view at the begin, to read before the wait; None if that saves nothing.

        A read of a few keys is as fast again as their second read.
        """
        merging, config = self.statements.merging, self.session.config
        if self._before is not None or self.statements.collected or merging.asks_what_was_seen:
            return None
        if reads.keys(config, self.statements.schema) is not None or not self._awaited(reads)[1]:
            return None
        return Snapshot.before(self.session, self.value, self.value, self.begun.requested)

    def shown(self, view: Snapshot) -> Snapshot:
        statements = self.statements
        logs = self._staging(view.value.file_ids).stage(statements.collected, in_memory)
        growth = statements.growth
        own = view.with_own(logs, view.schema if growth is None else view.schema.grow(growth))
        return replace(own, called=own.names.with_added(statements.shown))

    def publish_growth(self) -> Timeline | None:
        """Publish the statements' new columns and types as an event of its own; None if there are none.

        Call it when the statements can no longer be refused, and before staging.
        """
        statements = self.statements
        if (growth := statements.growth) is None:
            return None
        statements.rehearse()
        publisher, author = self.session.publisher, self.begun.author
        grow = events.grow(publisher, self.value, growth, statements.check_growth, author, statements.new)
        value = self.session.remember(self.session.run(grow))
        # Rows of this write lack columns that others have added since its begin.
        statements.move_to(TableSchema.from_json(value.schema).select(statements.schema.declared.names))
        return value

    # --- files --------------------------------------------------------------------------------------------------

    def stage(self, statements: Sequence[Statement], put: Callable[[DataFile, Chunks], Placed]) -> list[Placed]:
        return self._staging(self.file_ids).stage(statements, put)

    def stage_all(self) -> list[DataFile]:
        """Stage all statements. A file group of several parts gets one file."""
        files, first, held = list[DataFile](), 0, Held(self.statements.spilled)
        for statements, is_split in self.statements.in_parts():
            staging = self._staging(self.file_ids, first)
            staged = staging.stage(statements, held.put if is_split else self.put)
            first += sum(file.rows for file in staged)
            files += () if is_split else staged
            self.tell_of_part(sum(file.rows for file in staged))
            del statements  # frees memory for the next part
        return [*files, *in_threads(lambda file: self.put(*file), held.files(), self._files_at_once)]

    @property
    def _files_at_once(self) -> int | None:
        return FILES_AT_ONCE if self.session.is_far else None

    def tell_of_part(self, rows: int) -> None:
        """Report a staged part of a write of many rows."""
        if (spilled := self.statements.spilled) is not None:
            self.session.publisher.tell(StreamEvent(state="staged", rows=rows, parts=len(spilled.parts)))

    def _staging(self, file_ids: FileIds, first: int = 0) -> Staging:
        session, merging, requested = self.session, self.statements.merging, self.begun.requested
        at_once, judged = self._files_at_once, session.judgements
        return Staging(
            session.config, merging, requested, self.write_token, judged, file_ids, self.task, at_once, first
        )

    def put(self, file: DataFile, data: Chunks) -> DataFile:
        self.expect_file(file)
        size, created = put_chunks(self.session.store, file.path, data, durable="content")
        self._unnamed[file.partition] = file.path
        self.note_placed(file, own=created)
        return replace(file, size=size)

    def expect_file(self, file: DataFile) -> None:
        """Note a file for a rollback, before it gets its final name."""
        self.require_pending()
        self._staged.append(file.path)

    def expect_staged(self, path: str) -> None:
        """Note a staged file for a rollback, before it is put."""
        self.require_pending()
        self._staged.append(path)

    def note_placed(self, file: DataFile, *, own: bool = True) -> None:
        """Make sure that Hudi finds the partition of a placed file.

        It runs once per partition, after its first file: from then on no sweep takes the partition for empty.

        own: this write placed the file. Otherwise a table that was made here since owns it, and a rollback keeps it.
        """
        if not own:
            self._staged.remove(file.path)
        if file.partition in self._ensured:
            return
        self._ensured.add(file.partition)
        if self.session.pace.seen([file.partition]) and self.session.is_far:
            self._unchecked.append(file.partition)
        else:
            self._ensure(file.partition)

    def _make_names_durable(self) -> None:
        """Make all file names durable, with an fsync per folder."""
        list(in_threads(self.session.store.make_durable, list(self._unnamed.values())))
        self._unnamed.clear()

    def _ensure(self, partition: str) -> None:
        ensure_partition(self.session.store, partition, self.begun.requested)

    # --- the end ------------------------------------------------------------------------------------------------

    def commit(
        self, stage: Callable[[], list[DataFile]] | None = None, operation: Operation | None = None
    ) -> events.WriteOutcome:
        """Stage the statements, or call `stage`, and publish the files; a failure leaves nothing."""

        def complete(files: list[DataFile]) -> Steps[events.WriteOutcome]:
            name = operation or self.statements.operation
            shortcuts = replace(self._shortcuts, looked=self._looked_lately())
            return events.complete(
                self.session.publisher, self._pending_in, self.begun, name, files, self.token, shortcuts
            )

        return self.end(stage or self.stage_all, complete)

    def end(self, stage: Callable[[], S], complete: Callable[[S], Steps[events.WriteOutcome]]) -> events.WriteOutcome:
        """Stage, and end the write with the event of `complete`; a failure leaves nothing."""
        self.session.require_own_process()
        try:
            with staging():
                self.publish_growth()
            committed = self._staged_and_completed(stage, complete)
        except CommitUnknownError as error:
            committed = self._roll_back_or_find(error)
        except BaseException:
            self.abandon()
            raise
        self._alive.close()
        self.session.pace.published(committed.value, self._shortcuts)
        self.session.pace.note_seen(self._ensured)
        if not committed.repeated and isinstance(committed.completion, Completion):
            self.session.tell_of(committed.completion, self.started_ms, self.way)
        return committed

    def _staged_and_completed(
        self, stage: Callable[[], S], complete: Callable[[S], Steps[events.WriteOutcome]]
    ) -> events.WriteOutcome:
        """Stage and complete; repeat if Hudi's commits have changed the file groups meanwhile."""
        while True:
            with staging():
                staged = stage()
                self._make_names_durable()
                self.session.views.look_before_end()
                self.session.views.adopt()
            steps = complete(staged)
            try:
                return self.session.run_beside(steps, [partial(self._ensure, path) for path in self._unchecked])
            except events.GroupsMovedError as moved:
                self._unstage(moved.value)

    def _unstage(self, value: Timeline) -> None:
        """Remove the staged files for good, before staging by newer file ids."""
        if not self.session.run(delete_for_good(self._staged)):
            raise StorageUnavailableError(
                "Hudi replaced file groups during this write, and some of its staged files cannot be removed: write "
                f"again. requested={self.begun.requested} files={self._staged}"
            )
        self._staged.clear()
        self.file_ids, self._pending_in, self._looked_ms = value.file_ids, value, None

    def roll_back(self) -> Timeline:
        self.session.require_own_process()
        self._alive.close()
        begun = self.begun
        return self.session.run(
            rollback.give_up(self.session.publisher, self.value, begun.requested, self._staged, begun.driver)
        )

    def abandon(self) -> None:
        """Roll back as far as the store allows; others clean up after the expiry.

        A forked child leaves the write to its parent.
        """
        if not self.session.is_own_process():
            return
        with suppress(Exception):  # stores raise any class
            self.roll_back()

    def _roll_back_or_find(self, unknown: CommitUnknownError) -> events.WriteOutcome:
        """Settle an unknown outcome: roll back, so that the commit never lands, or return the commit."""
        try:
            value = self.roll_back()
            completion = self.session.run(find_completion(self.begun.requested, value))
            overwrite = self.session.run(find_overwrite(self.begun.requested, value))
        except Exception:  # noqa: BLE001  a store may raise any class
            raise unknown from None
        if completion is None and value.find_pending(self.begun.requested) is not None:
            raise unknown  # another driver has taken the write over
        if completion is None and may_be_dropped(self.begun.requested, value):
            raise unknown  # it may have been committed and dropped since
        if completion is None:
            raise StorageUnavailableError(
                "the store failed in the middle of the commit, which was rolled back: nothing was published. Try "
                f"again. requested={self.begun.requested}"
            ) from unknown
        return events.WriteOutcome(overwrite or completion, value, repeated=completion.driver != self.begun.driver)

    def take_over(self) -> int:
        """Make this driver the only one that may complete a distributed write; return the number of drivers so far.

        Its file names are unique, so a commit's facts about a file are true of the bytes under that name.
        """
        self.begun = self.session.run(jobs.take_over(self.session.publisher, self.value, self.begun))
        self.write_token = driver_token(self.begun.drivers)
        return self.begun.drivers

    def _looked_lately(self) -> bool:
        """Return True if this write of a single process was seen pending a moment ago."""
        if self.task is not None or self.begun.driver:
            return False
        now_ms = self.session.environment.now_ms()
        return self._looked_ms is not None and abs(now_ms - self._looked_ms) <= LOOK_KEPT_MS

    def require_pending(self) -> Timeline:
        """Return the newest version; raise unless this write is pending there and ours.

        A write rolled back or taken over must not put files after its sweep. So it looks before each file.
        A recent look suffices, because only the completing put decides.
        """
        if self._looked_lately():
            return self._pending_in
        requested, driver = self.begun.requested, self.begun.driver
        tail = self.session.tail()
        pending = tail.find_pending(requested)
        if pending is None:
            raise self.session.run(events.ended_error(requested, tail))
        if driver and pending.driver != driver:
            raise events.taken_over_error(requested)
        self._pending_in, self._looked_ms = tail, self.session.environment.now_ms()
        return tail

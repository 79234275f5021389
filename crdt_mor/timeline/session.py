"""One process's view of one table: the store, the clock, and the newest value seen.

Protocols start from the remembered value, which is what makes a commit cost the same on the ten-thousandth version as
on the first. Thread-safe: the remembered value only ever moves forward, and forgetting it would only cost a listing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NoReturn, TypeVar

from crdt_mor.clock import Environment, SystemEnvironment
from crdt_mor.errors import (
    CommitUnknownError,
    CrdtMorError,
    FutureSnapshotError,
    SnapshotExpiredError,
    StorageUnavailableError,
    TableNotFoundError,
    TableReplacedError,
)
from crdt_mor.forks import is_own, new_session, require_own
from crdt_mor.format.base import Judgements
from crdt_mor.format.properties import decode_table
from crdt_mor.laws.allowed import Carried
from crdt_mor.laws.resolve import carried
from crdt_mor.model import layout
from crdt_mor.model.authors import Author, Info
from crdt_mor.model.config import TableConfig
from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import InstantTime, claim_after, from_ms
from crdt_mor.model.restores import restored_since
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Pending, Segment
from crdt_mor.observing import CommitEvent, Teller
from crdt_mor.store.base import Stat, Store, is_bucket
from crdt_mor.store.lakes import lake_in
from crdt_mor.store.open import open_store, portable
from crdt_mor.timeline import adoption, alone, events, giving_way, jobs, moments, opening
from crdt_mor.timeline.adoption import InstantCache, foreign_completions
from crdt_mor.timeline.alone import Expected, Followed, LoneCommit, LoneWrite, Turns
from crdt_mor.timeline.combining import Crowd, look_for_others
from crdt_mor.timeline.history import newer_value
from crdt_mor.timeline.loads import put_in_place
from crdt_mor.timeline.paths import PROPERTIES, VERSIONS, version_path
from crdt_mor.timeline.projection import Projector, TablePublisher
from crdt_mor.timeline.publish import NO_SHORTCUTS, Projected, Shortcuts
from crdt_mor.timeline.segments import SegmentGoneError, read_segment
from crdt_mor.timeline.steps import Delete, List, Nonce, Put, Read, Steps, run
from crdt_mor.timeline.sweep import is_sweep_due
from crdt_mor.timeline.tail import find_tail, table_replaced

T = TypeVar("T")

LOOK_EVERY_MS = 60_000
"""How often an open table looks for commits that Hudi itself wrote."""

_SEGMENTS_CACHED = 256
_PARTITIONS_NOTED = 4096


def read_config(store: Store, uri: str) -> TableConfig:
    """What the table says about itself; raises `TableNotFoundError`, which names a table of another format."""
    return _config_in(store, store.read(PROPERTIES), uri)


def _config_in(store: Store, data: bytes | None, uri: str) -> TableConfig:
    lake = lake_in(store) if data is None else None
    if lake is not None:
        raise TableNotFoundError(
            f"there is a table of {lake.name} here, and crdt_mor keeps tables of Apache Hudi: {lake.advice(uri)}. "
            f"path={uri}"
        )
    return _decoded(data, uri)


def _decoded(data: bytes | None, uri: str) -> TableConfig:
    if data is None:
        raise TableNotFoundError(f"there is no table here; create it with Table.create. path={uri}")
    return TableConfig.from_properties(decode_table(data, PROPERTIES), uri)


class Session:
    """Runs protocols for one table and remembers the newest value."""

    def __init__(
        self, store: Store, environment: Environment, config: TableConfig, expiry_ms: int, uri: str = ""
    ) -> None:
        self._forks = new_session(uri)
        self._store = store
        self.environment = environment
        self.config = config
        self.expiry_ms = expiry_ms
        self.uri = uri
        self.inline: bool | None = None  # whether writers do upkeep after their commits; None: as the table says
        self.publisher = TablePublisher(Projector(config), Teller(config.name, uri))
        self._lock = threading.Lock()
        self._known: Timeline | None = None
        self._first: opening.First | None = None
        self._projected = -1
        self._turns = Turns()
        self.crowd = Crowd() if is_bucket(store) else None
        self.judgements = Judgements()
        self._partitions: dict[str, None] = {}
        self._looked_at_ms = 0
        self._foreign = False
        self._hudi_instants: InstantCache = {}
        self._segments: OrderedDict[str, tuple[Completion, ...]] = OrderedDict()
        self._settings: tuple[Stat | None, TableConfig] = (None, config)

    @classmethod
    def open(cls, uri: str, environment: Environment, expiry_ms: int, store: Store | None = None) -> Session:
        """The session of a table that is there, in `store` or else at its address; raises `TableNotFoundError`."""
        store = open_store(uri, environment) if store is None else store
        if not is_bucket(store):
            return cls(store, environment, read_config(store, uri), expiry_ms, uri)
        first = opening.look(store)
        session = cls(store, environment, _config_in(store, first.properties, uri), expiry_ms, uri)
        session._first = first
        return session

    def __reduce__(self) -> tuple[object, ...]:
        """A session is pickled without what it remembers: another process reads a sealed view without the timeline.

        The classes of the table's payloads come along, as the other process may not have imported them.
        """
        return _elsewhere, (portable(self.store), self.config, self.expiry_ms, self.payloads(), self.uri)

    @property
    def store(self) -> Store:
        """Where the table's objects are; for the process alone that opened them."""
        self.require_own_process()
        return self._store

    def require_own_process(self) -> None:
        """Raise `ForkedProcessError` in a process that was forked after this session was opened."""
        require_own(self._forks, self.uri)

    def is_own_process(self) -> bool:
        """Whether this is the process that opened this session, not one that was forked from it."""
        return is_own(self._forks)

    def run(self, steps: Steps[T]) -> T:
        """Drive a protocol against this table's store."""
        return run(steps, self.store, self.environment)

    def run_beside(self, steps: Steps[T], checks: Sequence[Callable[[], None]]) -> T:
        """Drive a protocol, after checks of what it counts on; in a bucket beside them, as each is a round trip.

        There a check that the store does not answer is passed over: what it would have put, a sweep puts.
        """
        if not is_bucket(self.store):
            for check in checks:
                check()
            return self.run(steps)
        results: list[T] = []

        def drive() -> None:
            results.append(self.run(steps))

        def lenient(check: Callable[[], None]) -> None:
            with suppress(StorageUnavailableError, CommitUnknownError):
                check()

        calls: list[Callable[[], None]] = [drive, *(partial(lenient, check) for check in checks)]
        self.store.side_by_side(calls)
        return results[0]

    def settings(self) -> TableConfig:
        """The table's properties as they are now, which Hudi's writers change; read again only when the file is new.

        Raises `TableReplacedError` where they are those of another table, or no longer what this session goes by.
        """
        stat = self.store.stat(PROPERTIES)
        known_stat, config = self._settings
        if stat is not None and stat != known_stat and (data := self.store.read(PROPERTIES)) is not None:
            config = TableConfig.from_properties(decode_table(data, PROPERTIES), PROPERTIES)
            _require_same(self.config, config)
            self._settings = (stat, config)
        return config

    def payloads(self) -> Carried:
        """The classes of the table's payloads, for whatever is pickled of it."""
        return carried(column.payload for column in self.config.merge.columns)

    def remember(self, value: Timeline) -> Timeline:
        """Note a genuine value."""
        self._require_own(value)
        with self._lock:
            if self._known is None or value.version > self._known.version:
                self._known = value
        return value

    def require_table(self, table_id: str | None) -> None:
        """Raise `TableReplacedError` where this is not the table of that id; None: of one that had none yet."""
        if table_id is not None and (current_id := self.tail().table_id) != table_id:
            raise table_replaced(table_id, current_id)

    def _require_own(self, value: Timeline) -> None:
        """The first value that a session sees has to be of the same table as the properties."""
        if self._known is not None and self._known.table_id is not None:
            return  # from there on each value is compared with the one before
        if self.config.table_id is None:
            if value.table_id is not None:
                self.settings()  # a table that was made without an id keeps properties without one
        elif value.table_id != self.config.table_id:
            raise TableReplacedError(
                "the properties here are of one table and the timeline is of another. If the table is being made anew, "
                "open it again. If this stays so, something of an earlier table was left behind, or a process that had "
                f"it open wrote here: remove the folder and make the table again. file={PROPERTIES} "
                f"properties={self.config.table_id} timeline={value.table_id}"
            )

    def genesis(self) -> Timeline:
        """The value before the first event; adopting Hudi's commits brings their schema."""
        schema = self.config.created_schema()
        value = Timeline.genesis(schema.to_json() if schema else "[]", self.config.table_id)
        return replace(value, properties=layout.said(self.config.properties))

    def known(self) -> Timeline:
        """The newest value that this session has seen."""
        self.require_own_process()
        return self._known or self.tail()

    def tail(self) -> Timeline:
        """The newest value there is; the genesis of a table that only Hudi has written to so far."""
        if self._known is not None:
            return self.remember(self.run(find_tail(self._known)))
        if (found := self._found()) is not None:
            return found.tail
        if not self.store.list(VERSIONS) and not put_in_place(self.store, self.config.table_id):
            return self.genesis()
        return self.remember(self.run(first_tail(self.config)))

    def _found(self) -> opening.Found | None:
        """The newest value of a table in a bucket that is being opened, and what came with it; None: it is looked for.
        """
        first, self._first = self._first, None
        if first is None or self._known is not None or not is_bucket(self.store):
            return None
        found = opening.find(self.store, first, self.publisher.projector.folder)
        if found is not None:
            _require_same(self.config, _decoded(found.properties, PROPERTIES))
            self.remember(found.tail)
        return found

    def looked_ms(self) -> int:
        """What the store's clock says, for what only looks; where this process may not write there, its own clock."""
        try:
            return self.store.now_ms()
        except StorageUnavailableError:  # on a disk that clock is the time of a file that is touched
            return self.environment.now_ms()

    def durable_tail(self) -> Timeline:
        """The newest value, made durable and projected: what a caller learns from it stays true after a power cut."""
        tail = self.tail()
        self.run(self.publisher.help_project(tail))
        return tail

    def sealed(self, *, look: bool = False, decided: bool = False) -> Timeline:
        """The newest value, with what Hudi wrote beside it adopted in memory.

        Hudi's directory is looked at when the session begins, when asked to, and then once a minute.

        decided: look, and leave out what Hudi completed at times that have not come yet, see `is_decided`.
        """
        found = self._found()
        tail = self.tail() if found is None else found.tail
        now_ms = self.environment.now_ms()
        if not (look or decided or self._foreign or abs(now_ms - self._looked_at_ms) > LOOK_EVERY_MS):
            return tail
        listed = None if found is None else found.hudi
        foreign = self.run(foreign_completions(self.publisher.projector, tail, self._hudi_instants, listed))
        self._looked_at_ms, self._foreign = now_ms, bool(foreign.completions)
        completions = [c for c in foreign.completions if not decided or self.is_decided(c.completed)]
        if not completions:
            return tail
        # What is adopted in memory is part of no version yet, so that a version shows the same before and after.
        clock = max(tail.clock, *(c.completed for c in completions))
        return replace(tail.adopt(tail.nonce, 0, completions, foreign.schema), version=tail.version, clock=clock)

    def sealed_beside(self, call: Callable[[Timeline], None]) -> Timeline:
        """As `sealed`. In a bucket, where a look takes round trips, a call gets the value that is known meanwhile.

        call: asks for what is wanted of the value, as it is seldom another one; it raises nothing.
        """
        if self._known is None or not is_bucket(self.store):
            return self.sealed()
        calls: list[Callable[[], Timeline | None]] = [self.sealed, partial(call, self._known)]
        sealed, _ = self.store.side_by_side(calls)
        assert sealed is not None
        return sealed

    def set_properties(self, changes: Mapping[str, str | None]) -> None:
        """Set some of the table's properties, and take away those that are None, in one event."""
        self.adopt()
        self.remember(self.run(events.set_properties(self.publisher, self.known(), changes)))

    def decide(self, moment: InstantTime) -> None:
        """Have a moment decided that the table's clock has not reached, though it has passed: see `timeline.moments`.

        Raises `FutureSnapshotError` for a moment in the future of the store's clock, and where this process may not
        write, or the store fails.
        """
        if self.known().version == 0 and not self.config.ours:
            self._refuse_undecided(moment, "only Hudi has written to this table, and reading it writes nothing", None)
        cause: Exception | None = None
        try:
            self.start()
            self.remember(self.run(moments.decide(self.publisher, self.known(), moment)))
        except (StorageUnavailableError, CommitUnknownError) as error:
            cause = error
        if self.known().clock < moment:
            if cause is None:
                self._refuse_undecided(moment, "it lies in the future of the store's clock", None)
            self._refuse_undecided(
                moment,
                "it has passed, but no event of the table has a later time, and this process cannot publish one: let a "
                "process that may write here ask for the moment once",
                cause,
            )

    def _refuse_undecided(self, moment: InstantTime, why: str, cause: Exception | None) -> NoReturn:
        raise FutureSnapshotError(
            f"what this moment will show is not decided yet: {why}; or ask for one up to the newest moment that is "
            'decided, which as_of="now" names. '
            f"as_of={moment} newest_decided={self.sealed(decided=True).clock}" + (f" cause={cause}" if cause else "")
        ) from cause

    def is_decided(self, moment: InstantTime) -> bool:
        """Whether no later commit of ours can come before a moment: the table's clock or the wall clock has passed it.

        The clock of Hudi's writers may be ahead of ours, and the table's clock follows theirs only with our next event
        that has looked. Where nothing of ours was ever published, the first event looks.
        """
        known = self.known()
        return known.version == 0 or moment <= known.clock or moment < from_ms(self.environment.now_ms())

    def unseen(self, value: Timeline, cut: Cut) -> list[Completion]:
        """Commits that Hudi has made, that a cut shows, and that `value` does not have."""
        foreign = self.run(foreign_completions(self.publisher.projector, value, self._hudi_instants))
        missing = [completion for completion in foreign.completions if cut.shows(completion)]
        self._foreign |= bool(missing)
        return missing

    def start(self) -> None:
        """Make sure that there is a first version to follow; anyone may put it.

        A bucket in which Hudi has made the table is tried before, as it is by `Table.create` for tables of ours.
        """
        if self._known is None and not put_in_place(self.store, self.config.table_id):
            if not self.config.ours and is_bucket(self.store) and not self.store.list(VERSIONS):
                self.store.probe()
            self.run(put_first(self.publisher.projector.folder, self.config, self.genesis()))

    def completions(self, value: Timeline, needed: Callable[[Segment], bool] = lambda _: True) -> list[Completion]:
        """The completions of a value, those of the `needed` segments included, in completion order."""
        try:
            result = [c for segment in value.segments if needed(segment) for c in self._segment(segment)]
            result += value.completions
        except SegmentGoneError:
            result = self._completions_by_now(value, needed)
        return sorted(result, key=lambda c: c.completed)

    def _completions_by_now(self, value: Timeline, needed: Callable[[Segment], bool]) -> list[Completion]:
        """The completions of a value that is no longer kept, of which a segment was swept, from the newest value.

        They are those that the newest value has of versions up to that one, and those that it has dropped, which views
        before `retention.dropped` alone may need.
        """
        newest = self.remember(self.run(newer_value(value)))
        cut = restored_since(newest.restores, value.version)
        if cut is not None and cut.first <= value.clock:
            raise SnapshotExpiredError(
                "the table was restored to an earlier moment while this snapshot was held, so that some of what it "
                f"shows is gone: take a new one. version={value.version} clock={value.clock} restored_to={cut.to}"
            )
        if newest.retention.dropped > value.clock:
            raise SnapshotExpiredError(
                "the table has dropped the history that this snapshot is of, while it was held: take a new one. "
                f"version={value.version} clock={value.clock} oldest={newest.retention.since}"
            )

        def wanted(segment: Segment) -> bool:
            return needed(segment) or (segment.superseded is not None and segment.superseded > value.clock)

        own = {c.requested: c for c in value.completions}
        now = {c.requested: c for c in self.completions(newest, wanted) if c.version <= value.version}
        return list((now | own).values())

    def snapshot_completions(self, value: Timeline, cut: Cut | None = None) -> list[Completion]:
        """The completions that a snapshot needs: segments that compactions have superseded by then are skipped."""
        if cut is None:
            return self.completions(value, lambda segment: segment.superseded is None)
        return [c for c in self.completions(value, cut.needs) if cut.shows(c)]

    def _segment(self, segment: Segment) -> tuple[Completion, ...]:
        completions = self._segments.get(segment.name)
        if completions is None:
            completions = self._segments[segment.name] = self.run(read_segment(segment))
            if len(self._segments) > _SEGMENTS_CACHED:
                self._segments.popitem(last=False)
        return completions

    def author(self, application: str = "", info: Info = ()) -> Author:
        """This process, at work for an application, by default for its own program. `info`: what the user says."""
        process = self.environment.process()
        return Author(application or process.program, process.host, process.pid, info)

    def begin(self, author: Author) -> tuple[Timeline, Pending]:
        """A new pending write; first, what Hudi wrote becomes part of the value for good."""
        self.adopt()
        self.give_way()
        self._turns.upkeep(self.environment.now_ms())
        shortcuts = self.shortcuts(self._projected)
        value, begun = self.run(events.begin(self.publisher, self.known(), self.expiry_ms, author, shortcuts))
        return self.published(value, shortcuts), begun

    def give_way(self) -> None:
        """Before a write: wait while a service asks for a turn. In a bucket only where that was seen in passing."""
        if self.crowd is None or self.crowd.is_asked:
            with suppress(CrdtMorError):  # it is only a hint
                self.run(giving_way.give_way())
            if self.crowd is not None:
                self.crowd.is_asked = False

    def shortcuts(self, helped: int) -> Shortcuts:
        """How this process publishes: in a bucket it looks again in the background, and posts events in a crowd."""
        return Shortcuts(helped=helped, late=[] if is_bucket(self.store) else None, crowd=self.crowd)

    def published(self, value: Timeline, shortcuts: Shortcuts = NO_SHORTCUTS) -> Timeline:
        """Note a value that this process has published, or found published, and that is projected.

        What is still to be looked at, `shortcuts.late`, is so before the process ends, and nobody waits for it.
        """
        self.remember(value)
        with self._lock:
            self._projected = max(self._projected, value.version)
        if shortcuts.late and is_bucket(self.store):
            self.store.afterwards(partial(self._look_again, tuple(shortcuts.late)))
        return value

    def _look_again(self, late: Sequence[Projected]) -> None:
        with suppress(CrdtMorError):  # what is left is a sweep's
            self.run(self.publisher.look_again(late))

    def follow_alone(self, author: Author, token: tuple[str, int] | None) -> Followed | None:
        """The version that a small write may follow in one event, see `timeline.alone`; None: it goes the long way.

        So it does where the last ones have lost their races, where upkeep is due, and where nothing is known yet.
        """
        self.give_way()
        value = self.known()
        if not is_bucket(self.store):  # in a bucket a look is a round trip, and the put tells as well
            value = self.tail()
        now_ms = self.environment.now_ms()
        if self._foreign or (self.crowd is not None and self.crowd.is_crowded):
            return None
        if not self._turns.is_alone(now_ms, value, self.expiry_ms):
            return None
        if is_sweep_due(value, now_ms) or not alone.may_be_alone(value, token, author):
            return None
        return Followed(value, claim_after(value.clock, now_ms), Expected(PROPERTIES, self._settings[0]))

    def seen(self, partitions: Sequence[Put]) -> frozenset[str]:
        """Of the metadata of partitions, the paths of that which this session has seen after a data file was there."""
        return frozenset(put.path for put in partitions) & self._partitions.keys()

    def note_seen(self, partitions: Sequence[Put]) -> None:
        """Note that partitions have their metadata, and a data file."""
        with self._lock:
            self._partitions.update(dict.fromkeys(put.path for put in partitions))
            while len(self._partitions) > _PARTITIONS_NOTED:
                del self._partitions[next(iter(self._partitions))]

    def tell_of(self, completion: Completion, started_ms: int) -> None:
        """Tell of a commit that this session has made. started_ms: when it began with it, by its own clock."""
        self.publisher.tell(
            CommitEvent(
                requested=completion.requested, completed=completion.completed, version=completion.version,
                operation=completion.operation, rows=completion.rows, deletes=completion.deletes,
                files=len(completion.files), bytes=sum(file.size for file in completion.files),
                duration_ms=self.environment.now_ms() - started_ms,
            )
        )  # fmt: skip

    def commit_alone(self, followed: Followed, write: LoneWrite) -> LoneCommit | None:
        """Commit a write in one event; None where somebody else was faster, and the write is to go the long way."""
        value = followed.value
        shortcuts = self.shortcuts(self._projected)
        outcome = self.run(alone.commit(self.publisher, value, write, followed.expected, shortcuts))
        if isinstance(outcome, Timeline):
            self.published(outcome)
        committed = outcome if isinstance(outcome, LoneCommit) else None
        self._turns.note(committed=committed is not None)
        if committed is not None:
            self.published(committed.value, shortcuts)
            self.look_for_others()
        return committed

    def look_for_others(self) -> None:
        """Now and then, while nobody waits for it: whether others cannot publish for the commits of this process."""
        crowd = self.crowd
        if crowd is None or not is_bucket(self.store) or not self._turns.is_look_due:
            return

        def look() -> None:
            with suppress(CrdtMorError):
                if self.run(look_for_others(crowd)):
                    self._turns.note(committed=False)

        self.store.afterwards(look)

    def join(
        self, job: str, planned: InstantTime, author: Author
    ) -> tuple[Timeline, Pending] | events.WriteOutcome:
        """The pending write of a job, which begins if it has not before, or the commit that it has become."""
        self.adopt()
        joined = self.run(jobs.join(self.publisher, self.known(), self.expiry_ms, job, planned, author))
        self.remember(joined.value if isinstance(joined, events.WriteOutcome) else joined[0])
        return joined

    def adopt(self) -> None:
        """Make sure that there is a first version, and that what Hudi wrote is part of the value for good."""
        self.start()
        if self._foreign:
            self.remember(self.run(adoption.adopt(self.publisher, self.known())))
            self._foreign = False


def put_first(folder: str, config: TableConfig, genesis: Timeline) -> Steps[None]:
    """Put the first version, unless there is one.

    Its nonce is of this put alone, so that it differs from the first version that another process puts. If the table
    was made anew meanwhile, the version is deleted again: it would stand in the timeline of the new table.
    """
    if (yield List(VERSIONS)):
        return
    # Hudi's Spark reader lists its timeline's folder even where nothing was ever written.
    yield Put(f"{folder}/.crdt_mor", b"", durable=False)
    nonce = yield Nonce()
    first = replace(genesis, nonce=nonce)
    path = version_path(first.version)
    yield Put(path, first.encode())
    try:
        yield from _require_there(config)
    except (TableNotFoundError, TableReplacedError):
        data = yield Read(path)
        if data is not None and first.is_in(data):
            yield Delete(path)
        raise


def first_tail(config: TableConfig) -> Steps[Timeline]:
    """The newest value, for a process that has only read the properties so far.

    The properties are read once more. The table may have been made anew, and a process that has the earlier table open
    may have put a version into its place.
    """
    tail = yield from find_tail(None)
    yield from _require_there(config)
    return tail


def _require_there(config: TableConfig) -> Steps[None]:
    """Raise unless the properties are there, and still those of the table that `config` is of."""
    data = yield Read(PROPERTIES)
    _require_same(config, _decoded(data, PROPERTIES))


def _require_same(opened: TableConfig, current: TableConfig) -> None:
    """Raise where a session that was opened with one configuration must not write to the table with the other."""
    if current.table_id is not None and current.table_id != opened.table_id:
        raise table_replaced(opened.table_id, current.table_id)
    settings = {
        "key": (opened.key, current.key),
        "buckets": (opened.buckets, current.buckets),
        "merge": (opened.merge, current.merge),
    }
    for name, (before, now) in settings.items():
        if before != now:
            raise TableReplacedError(
                "the table has other settings than when it was opened: it was removed and made again, or its "
                "properties were edited. Nothing was written; open it anew. "
                f"setting={name} opened={before} found={now}"
            )


def _elsewhere(store: Store, config: TableConfig, expiry_ms: int, payloads: Carried, uri: str) -> Session:  # noqa: ARG001
    """A session of another process, as it arrives in this one; the payloads were allowed when they were unpickled."""
    return Session(store, SystemEnvironment(), config, expiry_ms, uri)

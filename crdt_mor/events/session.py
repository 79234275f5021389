"""One process's view of one table: the store, the clock, and the newest value seen.

Protocols start from the remembered value, which is what makes a commit cost the same on the ten-thousandth version as
on the first. Thread-safe: the remembered value only ever moves forward, and forgetting it would only cost a listing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from crdt_mor.errors import (
    CrdtMorError,
    StorageUnavailableError,
    TableNotFoundError,
    TableReplacedError,
)
from crdt_mor.events import job as jobs
from crdt_mor.events import write
from crdt_mor.events.load import put_in_place
from crdt_mor.events.pace import Pace
from crdt_mor.events.views import Views
from crdt_mor.format.base_file import Judgements
from crdt_mor.format.properties import decode_table
from crdt_mor.ground.clock import Environment, SystemEnvironment
from crdt_mor.ground.forks import is_own, new_session, require_own
from crdt_mor.ground.observing import Teller
from crdt_mor.ground.observing_events import CommitEvent
from crdt_mor.hudi.handover import read_properties
from crdt_mor.hudi.projection import Projector, TablePublisher
from crdt_mor.laws.allowed import Carried
from crdt_mor.laws.resolve import carried
from crdt_mor.log import opening, outcome
from crdt_mor.log.paths import PROPERTIES, version_path
from crdt_mor.log.steps import Delete, MakeDurable, Nonce, Put, Read, Steps, put_surely, run
from crdt_mor.log.tail import find_tail, listed_versions, table_replaced, versions_in
from crdt_mor.model import layout
from crdt_mor.model.alteration import created_with
from crdt_mor.model.authors import Author, Info
from crdt_mor.model.config import TableConfig
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.posts import Member
from crdt_mor.model.rules import rules_in
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, Pending
from crdt_mor.store.lakes import lake_in
from crdt_mor.store.open import open_store, portable
from crdt_mor.store.protocol import Stat, Store, is_bucket, side_by_side

T = TypeVar("T")


def read_config(store: Store, uri: str) -> TableConfig:
    """What the table says about itself; raises `TableNotFoundError`, which names a table of another format."""
    return _config_in(store, opening.properties_in(store), uri)


def _config_in(store: Store, data: bytes | None, uri: str) -> TableConfig:
    lake = lake_in(store) if data is None else None
    if lake is not None:
        raise TableNotFoundError(
            f"there is a table of {lake.name} here, and crdt_mor keeps tables of Apache Hudi: {lake.advice(uri)}. "
            f"path={uri}"
        )
    return _decoded(opening.properties_beside_timeline(store, data, uri), uri)


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
        self.keys_checked = -1  # the version up to which keys that Hudi wrote were looked at; -1: none was
        self.judgements = Judgements()
        self._settings: tuple[Stat | None, TableConfig] = (None, config)
        self.is_far = is_bucket(store)
        self.views = Views(self)
        self.pace = Pace(self)

    @classmethod
    def open(cls, uri: str, environment: Environment, expiry_ms: int, store: Store | None = None) -> Session:
        """The session of a table that is there, in `store` or else at its address; raises `TableNotFoundError`."""
        store = open_store(uri, environment) if store is None else store
        if not is_bucket(store):
            return cls(store, environment, read_config(store, uri), expiry_ms, uri)
        first = opening.look(store)
        session = cls(store, environment, _config_in(store, first.properties, uri), expiry_ms, uri)
        session._first = first
        session.pace.meet(first)
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
        if not self.is_far:
            for check in checks:
                check()
            return self.run(steps)
        results: list[T] = []

        def drive() -> None:
            results.append(self.run(steps))

        def lenient(check: Callable[[], None]) -> None:
            with suppress(CrdtMorError):
                check()

        calls: list[Callable[[], None]] = [drive, *(partial(lenient, check) for check in checks)]
        side_by_side(self.store, calls)
        return results[0]

    def settings(self, *, as_read: bool = False) -> TableConfig:
        """The table's properties as they are now, which Hudi's writers change; read again only when the file is new.

        as_read: as they were when they were last read, or when the table was opened, for a commit that sees beside its
        claim whether the file is still the same.
        Raises `TableReplacedError` where they are those of another table, or no longer what this session goes by.
        """
        if as_read and self.settings_stat is not None:
            return self._settings[1]
        stat = self.store.stat(PROPERTIES)
        known_stat, config = self._settings
        if stat is not None and stat != known_stat and (data := self.store.read(PROPERTIES)) is not None:
            config = TableConfig.from_properties(decode_table(data, PROPERTIES), PROPERTIES)
            _require_same(self.config, config)
            self._settings = (stat, config)
        return config

    @property
    def settings_stat(self) -> Stat | None:
        """Of the file of properties when it was last read; None: only its content was, as the table was opened."""
        return self._settings[0]

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
                "open it again. If this stays so, restore the properties of the timeline's table from a backup; where "
                f"none of its rows is wanted, remove the folder and make the table again. file={PROPERTIES} "
                f"properties={self.config.table_id} timeline={value.table_id}"
            )

    def genesis(self) -> Timeline:
        """The value before the first event; adopting Hudi's commits brings their schema."""
        schema = self.config.created_schema()
        value = Timeline.genesis(schema.to_json() if schema else "[]", self.config.table_id)
        settings = self.config.properties
        return replace(
            value, properties=layout.said(settings), rules=rules_in(settings), alterations=created_with(settings)
        )

    def known(self) -> Timeline:
        """The newest value that this session has seen."""
        self.require_own_process()
        return self._known or self.tail()

    @property
    def has_known(self) -> bool:
        """Whether this session has seen a value yet."""
        return self._known is not None

    def tail(self) -> Timeline:
        """The newest value there is; the genesis of a table that only Hudi has written to so far."""
        if self._known is not None:
            return self.remember(self.run(find_tail(self._known)))
        if (found := self.found()) is not None:
            return found.tail
        if not versions_in(self.store) and not put_in_place(self.store, self.config.table_id):
            return self.genesis()
        return self.remember(self.run(first_tail(self.config)))

    def found(self) -> opening.Found | None:
        """The newest value of a table that is being opened in a bucket, and what came with it; None: look for it."""
        first, self._first = self._first, None
        if first is None or self._known is not None or not is_bucket(self.store):
            return None
        found = opening.find(self.store, first, self.publisher.projector.folder)
        if found is not None:
            current = _decoded(found.properties, PROPERTIES)
            _require_same(self.config, current)
            self._settings = (found.settings, current)
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

    def set_properties(self, changes: Mapping[str, str | None]) -> None:
        """Set some of the table's properties, and take away those that are None, in one event."""
        self.adopt()
        self.remember(self.run(write.set_properties(self.publisher, self.known(), changes)))

    def start(self) -> None:
        """Make sure that there is a first version to follow; anyone may put it.

        A bucket in which Hudi has made the table is tried before, as it is by `Table.create` for tables of ours. Raises
        `InvalidInputError` where Hudi's writers have the times of their own zone, or its timeline is of layout 1.
        """
        if self.config.layout_one:
            self.config.require_written_version()
        if not self.config.ours:
            self.settings().require_utc(self.uri)
        if self._known is None and not put_in_place(self.store, self.config.table_id):
            if not self.config.ours and is_bucket(self.store) and not versions_in(self.store):
                self.store.probe()
            self.run(put_first(self.publisher.projector.folder, self.config, self.genesis()))

    def author(self, application: str = "", info: Info = ()) -> Author:
        """This process, at work for an application, by default for its own program. `info`: what the user says."""
        process = self.environment.process()
        return Author(application or process.program, process.host, process.pid, info)

    def begin(self, author: Author, declared: Declared = ANYTHING) -> tuple[outcome.ValueOf, Pending]:
        """A new pending write; first, what Hudi wrote becomes part of the value for good."""
        self.adopt()
        shortcuts = self.pace.before_long_way()
        value, begun = self.run(write.begin(self.publisher, self.known(), self.expiry_ms, author, shortcuts, declared))
        return self.pace.published(value, shortcuts), begun

    def tell_of(
        self, completion: Completion, started_ms: int, operation: str = "", member: Member | None = None,
        is_publisher: bool = True,
    ) -> None:  # fmt: skip
        """Tell of a write of this session that was committed. started_ms: when it began with it, by its own clock.

        operation, member: of a commit of several writers, what this one did, and its part. is_publisher: whether this
        session has published it.
        """
        part, files = member or completion, completion.files if is_publisher else ()
        self.publisher.tell(
            CommitEvent(
                requested=completion.requested, completed=completion.completed, version=completion.version,
                operation=operation or completion.operation, rows=part.rows, deletes=part.deletes,
                files=len(files), bytes=sum(file.size for file in files),
                duration_ms=self.environment.now_ms() - started_ms, writers=max(1, len(completion.members)),
            )
        )  # fmt: skip

    def join(
        self, job: str, planned: InstantTime, author: Author, declared: Declared = ANYTHING
    ) -> tuple[outcome.ValueOf, Pending] | write.WriteOutcome:
        """The pending write of a job, which begins if it has not before, or the commit that it has become."""
        self.adopt()
        joined = self.run(jobs.join(self.publisher, self.known(), self.expiry_ms, job, planned, author, declared))
        self.remember(joined.value if isinstance(joined, write.WriteOutcome) else joined[0])
        return joined

    def adopt(self) -> None:
        """Make sure that there is a first version, and that what Hudi wrote is part of the value for good."""
        self.start()
        self.views.look_before_write()
        self.views.adopt()


def put_first(folder: str, config: TableConfig, genesis: Timeline) -> Steps[None]:
    """Put the first version, unless there is one; that of another process will do.

    Its nonce is of this call alone, so that it differs from the first version that another process puts. If the table
    was made anew meanwhile, the version is deleted again: it would stand in the timeline of the new table.
    """
    if (yield from listed_versions()):
        return
    yield MakeDurable(PROPERTIES)  # who has put them may have died before, and a power cut would take all with them
    yield Put(f"{folder}/.crdt_mor", b"", durable=False)  # Hudi's Spark reader lists that folder in every table
    nonce = yield Nonce()
    first = replace(genesis, nonce=nonce)
    path = version_path(first.version)
    yield from put_surely(Put(path, first.encode()))
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
    data = yield from read_properties()
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

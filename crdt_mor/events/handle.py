"""A process's handle of one table: the store, the clock, the configuration and the newest value seen.

Protocols start from the remembered value. Thread-safe: the remembered value only moves forward.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Literal, TypeVar

from crdt_mor.errors import CrdtMorError, StorageUnavailableError, TableNotFoundError, TableReplacedError
from crdt_mor.events.load import put_in_place
from crdt_mor.format.base_file import Judgements
from crdt_mor.format.properties import decode_table
from crdt_mor.ground.clock import Environment, Process
from crdt_mor.ground.forks import is_own, new_session, require_own
from crdt_mor.ground.memory import memory_limit
from crdt_mor.ground.observing import TableReporter
from crdt_mor.hudi.handover import read_properties
from crdt_mor.hudi.projection import Projector, TablePublisher
from crdt_mor.laws.allowed import PickledPayloads
from crdt_mor.laws.resolve import pickled_payloads
from crdt_mor.log import opening
from crdt_mor.log.paths import PROPERTIES, version_path
from crdt_mor.log.steps import Delete, MakeDurable, Nonce, Put, Read, Steps, put_surely, run
from crdt_mor.log.tail import find_tail, listed_versions, table_replaced, versions_in
from crdt_mor.model import layout
from crdt_mor.model.alteration import created_with
from crdt_mor.model.authors import Author, Info
from crdt_mor.model.config import TableConfig
from crdt_mor.model.rules import rules_in
from crdt_mor.model.timeline import Timeline
from crdt_mor.store.lakes import lake_in
from crdt_mor.store.protocol import Stat, Store, is_bucket, side_by_side

T = TypeVar("T")


def read_config(store: Store, uri: str) -> TableConfig:
    """Read the table's configuration. Raises `TableNotFoundError`, which names a table of another format."""
    return config_in(store, opening.properties_in(store), uri)


def config_in(store: Store, data: bytes | None, uri: str) -> TableConfig:
    lake = lake_in(store) if data is None else None
    if lake is not None:
        raise TableNotFoundError(
            f"there is a table of {lake.name} here, and crdt_mor reads Apache Hudi tables: {lake.advice(uri)}. "
            f"path={uri}"
        )
    return _decoded(opening.properties_beside_timeline(store, data, uri), uri)


def _decoded(data: bytes | None, uri: str) -> TableConfig:
    if data is None:
        raise TableNotFoundError(
            f"there is no table here; create it with Table.create, or find tables with list_tables. path={uri}"
        )
    return TableConfig.from_properties(decode_table(data, PROPERTIES), uri)


class Handle:
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
        self.memory_limit = memory_limit()
        self.maintain: Literal["inline", "off"] | None = None  # upkeep after commits; None: the table's setting
        self.publisher = TablePublisher(Projector(config), TableReporter(config.name, uri))
        self._lock = threading.Lock()
        self._known_tail: Timeline | None = None
        self._first: opening.FirstLook | None = None
        self.keys_checked = -1  # the version with checked keys of Hudi; -1: none
        self.judgements = Judgements()
        self._settings: tuple[Stat | None, TableConfig] = (None, config)
        self.is_far = is_bucket(store)

    @property
    def store(self) -> Store:
        self.require_own_process()
        return self._store

    def require_own_process(self) -> None:
        """Raise `ForkedProcessError` in a process that was forked after this session was opened."""
        require_own(self._forks, self.uri)

    def is_own_process(self) -> bool:
        return is_own(self._forks)

    def run(self, steps: Steps[T]) -> T:
        return run(steps, self.store, self.environment)

    def run_beside(self, steps: Steps[T], checks: Sequence[Callable[[], None]]) -> T:
        """Run checks, then a protocol. In a bucket, run all in parallel and ignore failed checks: a sweep does their
        work later.
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
        """Return the current table properties. Hudi's writers may change the file; read it if changed.

        as_read: return the last read properties, for a commit that checks the file beside its claim.
        Raises `TableReplacedError` if they belong to another table or contradict this session's configuration.
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
        """The stat of the properties file at the last read, or None if unknown."""
        return self._settings[0]

    def payloads(self) -> PickledPayloads:
        return pickled_payloads(column.payload for column in self.config.merge.columns)

    def author(self, application: str = "", info: Info = ()) -> Author:
        process = self._process
        return Author(application or process.program, process.host, process.pid, info)

    @cached_property
    def _process(self) -> Process:
        return self.environment.process()

    def remember(self, value: Timeline) -> Timeline:
        known = self._known_tail
        if known is None or known.table_id is None:  # every later value is compared with its predecessor
            self._require_own(value)
        with self._lock:
            if self._known_tail is None or value.version > self._known_tail.version:
                self._known_tail = value
        return value

    def require_table(self, table_id: str | None) -> None:
        if table_id is not None and (current_id := self.tail().table_id) != table_id:
            raise table_replaced(table_id, current_id)

    def _require_own(self, value: Timeline) -> None:
        if self.config.table_id is None:
            if value.table_id is not None:
                self.settings()  # a table created without an id never gets an id
        elif value.table_id != self.config.table_id:
            raise TableReplacedError(
                "the properties and the timeline belong to different tables. If the table is being recreated, open "
                "it again. Otherwise restore its properties from a backup; if no rows are wanted, delete the folder "
                f"and create the table again. file={PROPERTIES} properties={self.config.table_id} "
                f"timeline={value.table_id}"
            )

    def genesis(self) -> Timeline:
        """Return the value before the first event, without Hudi's schema."""
        schema = self.config.created_schema()
        value = Timeline.genesis(schema.to_json() if schema else "[]", self.config.table_id)
        settings = self.config.properties
        return replace(
            value,
            properties=layout.layout_properties(settings),
            rules=rules_in(settings),
            alterations=created_with(settings),
        )

    def known_tail(self) -> Timeline:
        self.require_own_process()
        return self._known_tail or self.tail()

    @property
    def has_known_tail(self) -> bool:
        return self._known_tail is not None

    def tail(self) -> Timeline:
        """Return the newest value, or the genesis if only Hudi wrote to the table."""
        if self._known_tail is not None:
            return self.remember(self.run(find_tail(self._known_tail)))
        if (found := self.take_opened_tail()) is not None:
            return found.tail
        if not versions_in(self.store) and not put_in_place(self.store, self.config.table_id):
            return self.genesis()
        return self.remember(self.run(first_tail(self.config)))

    def take_opened_tail(self) -> opening.FoundTail | None:
        """Return the value and listings read while a table in a bucket was opened; None after the first call."""
        first, self._first = self._first, None
        if first is None or self._known_tail is not None or not is_bucket(self.store):
            return None
        found = opening.find_opened_tail(self.store, first, self.publisher.projector.folder)
        if found is not None:
            current = _decoded(found.properties, PROPERTIES)
            _require_same(self.config, current)
            self._settings = (found.settings, current)
            self.remember(found.tail)
        return found

    def looked_ms(self) -> int:
        """Return the store's clock, or this machine's if this process may not write to the store."""
        try:
            return self.store.now_ms()
        except StorageUnavailableError:  # on a disk, the clock touches a file
            return self.environment.now_ms()

    def durable_tail(self) -> Timeline:
        """Return the newest value after a power cut can no longer undo it."""
        tail = self.tail()
        self.run(self.publisher.help_project(tail))
        return tail

    def start(self) -> None:
        """Make sure that a first version exists.

        Raises `InvalidInputError` if Hudi's writers use local times, or for timeline layout 1.
        """
        if self.config.layout_one:
            self.config.require_written_version()
        if not self.config.ours:
            self.settings().require_utc(self.uri)
        if self._known_tail is None and not put_in_place(self.store, self.config.table_id):
            if not self.config.ours and is_bucket(self.store) and not versions_in(self.store):
                self.store.probe()
            self.run(put_first(self.publisher.projector.folder, self.config, self.genesis()))


def put_first(folder: str, config: TableConfig, genesis: Timeline) -> Steps[None]:
    """Put the first version unless one exists. If the table was recreated meanwhile, delete the version again."""
    if (yield from listed_versions()):
        return
    yield MakeDurable(PROPERTIES)  # their writer may have died, and a power cut would lose the table
    yield Put(f"{folder}/.crdt_mor", b"", durable=False)  # Hudi's Spark reader lists this folder
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
    """Return the newest value, for a process that has read only the table's properties.

    The properties are read again, as the table may be a new one.
    """
    tail = yield from find_tail(None)
    yield from _require_there(config)
    return tail


def _require_there(config: TableConfig) -> Steps[None]:
    """Raise unless the properties still belong to the table of `config`."""
    data = yield from read_properties()
    _require_same(config, _decoded(data, PROPERTIES))


def _require_same(opened: TableConfig, current: TableConfig) -> None:
    """Raise if a session opened with one configuration must not write with the other."""
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
                "the table's settings have changed since it was opened: the table was recreated, or its properties "
                f"were edited. Nothing was written; open it again. setting={name} opened={before} found={now}"
            )

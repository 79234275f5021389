"""An open table: the handle, with its readers' views and its writers' pace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeVar

from crdt_mor.events import job as jobs
from crdt_mor.events import write
from crdt_mor.events.carrying import carry
from crdt_mor.events.handle import Handle, config_in, read_config
from crdt_mor.events.pace import Pace
from crdt_mor.events.views import Views
from crdt_mor.ground.clock import Environment, SystemEnvironment
from crdt_mor.ground.observing_events import CommitEvent
from crdt_mor.ground.threads import beside
from crdt_mor.laws.allowed import PickledPayloads
from crdt_mor.log import opening, outcome
from crdt_mor.log.combining import Crowd
from crdt_mor.model.authors import Author
from crdt_mor.model.config import TableConfig
from crdt_mor.model.declared import ANYTHING, Declared
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.posts import Member
from crdt_mor.model.timeline_parts import Completion, Pending
from crdt_mor.planners.upkeep_budget import Budget
from crdt_mor.planners.way import Way
from crdt_mor.store.open import open_store, portable
from crdt_mor.store.protocol import Store, is_bucket

T = TypeVar("T")


class Session(Handle):
    """A handle that shows views and publishes writes."""

    def __init__(
        self, store: Store, environment: Environment, config: TableConfig, expiry_ms: int, uri: str = ""
    ) -> None:
        super().__init__(store, environment, config, expiry_ms, uri)
        crowd = Crowd()
        self.views = Views(self, crowd)
        self.pace = Pace(self, self.views, crowd)
        self.publisher = replace(self.publisher, carry=partial(carry, self, self.views))
        self.budget = Budget()

    @classmethod
    def open(cls, uri: str, environment: Environment, expiry_ms: int, store: Store | None = None) -> Session:
        """Open an existing table. Raises `TableNotFoundError`."""
        store = open_store(uri, environment) if store is None else store
        if not is_bucket(store):
            return cls(store, environment, read_config(store, uri), expiry_ms, uri)
        first = opening.first_look(store)
        session = cls(store, environment, config_in(store, first.properties, uri), expiry_ms, uri)
        session._first = first
        session.pace.meet(first)
        return session

    def open_another(self, uri: str, store: Store) -> Session:
        """Open a table with the clock, expiry and memory limit of this one."""
        other = Session.open(uri, self.environment, self.expiry_ms, store)
        other.memory_limit = self.memory_limit
        return other

    def beside(self, call: Callable[[], T]) -> AbstractContextManager[Callable[[], T]]:
        """Run a call during the block; on a disk, when its result is taken."""
        return beside(call) if self.is_far else nullcontext(call)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the remembered value, but with the payload classes: the other process may not have imported
        them.
        """
        return _elsewhere, (portable(self.store), self.config, self.expiry_ms, self.payloads(), self.uri)

    def set_properties(self, changes: Mapping[str, str | None]) -> None:
        """Set table properties in one event. None removes a property."""
        self.adopt()
        self.remember(self.run(write.set_properties(self.publisher, self.known_tail(), changes)))

    def begin(self, author: Author, declared: Declared = ANYTHING) -> tuple[outcome.ValueOf, Pending]:
        """Adopt Hudi's commits, then begin a pending write."""
        self.adopt()
        shortcuts = self.pace.before_long_way()
        value, begun = self.run(
            write.begin(self.publisher, self.known_tail(), self.expiry_ms, author, shortcuts, declared)
        )
        return self.pace.published(value, shortcuts), begun

    def tell_of(
        self, completion: Completion, started_ms: int, way: Way, operation: str = "", member: Member | None = None,
        is_publisher: bool = True,
    ) -> None:  # fmt: skip
        """Tell observers about a committed write. operation, member: this writer's part of a group commit."""
        part, files = member or completion, completion.files if is_publisher else ()
        duration_ms = self.environment.now_ms() - started_ms
        self.budget = self.budget.earned(duration_ms)
        self.publisher.tell(
            CommitEvent(
                requested=completion.requested, completed=completion.completed, version=completion.version,
                operation=operation or completion.operation, rows=part.rows, deletes=part.deletes,
                files=len(files), bytes=sum(file.size for file in files),
                duration_ms=duration_ms, writers=max(1, len(completion.members)),
                way=way.step, reason=way.reason,
            )
        )  # fmt: skip

    def join(
        self, job: str, planned: InstantTime, author: Author, declared: Declared = ANYTHING
    ) -> tuple[outcome.ValueOf, Pending] | write.WriteOutcome:
        """Begin or join the pending write of a job, or return its commit."""
        self.adopt()
        joined = self.run(jobs.join(self.publisher, self.known_tail(), self.expiry_ms, job, planned, author, declared))
        self.remember(joined.value if isinstance(joined, write.WriteOutcome) else joined[0])
        return joined

    def adopt(self) -> None:
        self.start()
        self.views.look_before_write()
        self.views.adopt()


def _elsewhere(store: Store, config: TableConfig, expiry_ms: int, payloads: PickledPayloads, uri: str) -> Session:  # noqa: ARG001
    """Unpickle a session in another process. The payloads were checked while they were unpickled."""
    return Session(store, SystemEnvironment(), config, expiry_ms, uri)

"""A simulated run: disk, processes, clock, and actions that may happen inside each other.

the queue      the actions of the plan. While an action pauses, other processes run the next ones
a process      a handle of the table over `Calls`, on a `Machine`; after its death another takes its place
the observer   reads the table over the bare disk without failures, and compares it with the ledger
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl
import pyarrow as pa

from crdt_mor import Opening, PartialUpdate, Payload, SnapshotExpiredError, StorageUnavailableError, Table, Transaction
from crdt_mor.errors import CheckpointExpiredError, CommitUnknownError, TableArrivingError, TableMovedError
from crdt_mor.log.paths import VERSIONS
from crdt_mor.payloads import Counter
from crdt_mor.testing.clock import SimulatedEnvironment
from crdt_mor.testing.faults import ProcessDied
from crdt_mor.testing.simulation.chance import Chance
from crdt_mor.testing.simulation.columns import Columns
from crdt_mor.testing.simulation.inside import look_for_hudi, tail_of
from crdt_mor.testing.simulation.invariants import BrokenPromiseError
from crdt_mor.testing.simulation.ledger import Ledger, Write
from crdt_mor.testing.simulation.machine import Calls, Disk, Machine, Trace, Trouble
from crdt_mor.testing.simulation.meaning import Meanings, columns_of, reading_of
from crdt_mor.testing.simulation.moves import Move, MovedTable
from crdt_mor.testing.simulation.plan import ACCOUNTS, BANKS, PROCESSES, Action, Plan, Settings

DEPTH_MAX: Final = 3
"""Nested actions at most, each in a pause of the previous one."""

AHEAD_MS: Final = (0, 20_000, -40_000, 500)
"""Clock errors of the processes."""

BESIDE_HUDI: Final = frozenset({"upsert", "transfer", "add one", "look", "hold", "read", "wait", "restart"})
"""Actions beside a write of Hudi's."""

URI: Final = "/simulated"
"""The first table's address; no folder of the real machine."""

_MADE: dict[str, Disk] = {}


@dataclass
class Actor:
    name: str
    machine: Machine
    calls: Calls
    table: Table
    is_busy: bool = False
    has_paused: bool = False
    tx: Transaction | None = None
    write: Write | None = None
    uri: str = URI


@dataclass
class World:
    plan: Plan
    acts: dict[str, Callable[[World, Actor, Action], str]]
    lines: list[str] = field(default_factory=list)
    trace: Trace = field(default_factory=Trace)
    troubles: int = 0
    """Number of failures: they explain errors that would otherwise be surprises."""
    has_waited: bool = False
    """True if time beyond a writer's expiry has passed at once."""

    def __post_init__(self) -> None:
        self.settings = self.plan.settings
        self.chance = Chance(self.plan.seed, "what is left to a run")
        self.environment = SimulatedEnvironment()
        self.columns = Columns(columns_of(self.settings))
        self.reading = reading_of(self.settings)
        self.ledger = Ledger(self.settings, self.shown_columns(), Meanings(self.settings))
        self.uri = URI
        self.disks = {URI: Disk(self.environment.now_ms)}
        self.move: Move | None = None
        self.moved_tables: list[MovedTable] = []
        self.disks[URI].load(_made(self.settings))
        self.observer = self.observed(URI)
        self.started = 0
        self.processes: dict[int, Actor] = {}
        """Processes by number, started on demand."""
        self.queue = deque(self.plan.actions)
        self.late_puts: list[tuple[int, Callable[[], object]]] = []
        self.depth = 0
        self._puts_seen = 0
        self._failed = False
        self.hudi_is_writing = False
        self.state: dict[str, Any] = {}
        """Memory of actions: readers, followers, plans, savepoints."""

    # --- processes ------------------------------------------------------------------------------------------------

    def start(self, place: int) -> Actor:
        self.started += 1
        name = f"p{place + 1}.{self.started}"
        calls = Calls(
            self.disks[self.uri], name, self.trace, lambda *what: self.meanwhile(made, *what), self.comes_late
        )
        machine = Machine(self.environment, name, AHEAD_MS[place], calls.asleep)
        table = Table(self.uri, opening=Opening(store=calls, environment=machine))
        made = Actor(f"process {place + 1}", machine, calls, table, uri=self.uri)
        return made

    def observed(self, uri: str) -> Table:
        machine = Machine(self.environment, "observer", 0, _nothing)
        return Table(uri, opening=Opening(store=self.disks[uri], environment=machine))

    def open_at(self, process: Actor, uri: str) -> None:
        process.table = Table(
            uri, opening=Opening(store=process.calls.at(self.disks[uri]), environment=process.machine)
        )
        process.uri = uri

    def open_now(self, process: Actor) -> Table:
        if process.uri != self.uri:
            self.open_at(process, self.uri)
        return process.table

    def ledger_of(self, table: Table) -> Ledger:
        return next((left.ledger for left in self.moved_tables if left.table.uri == table.uri), self.ledger)

    def has_moved_from(self, process: Actor) -> bool:
        self.look_at_history()
        return process.uri != self.uri

    def stop(self, process: Actor) -> None:
        process.calls.is_dead = process.machine.is_still = True
        self.processes = {place: other for place, other in self.processes.items() if other is not process}

    def free(self, who: int) -> Actor:
        order = [(who + i) % PROCESSES for i in range(PROCESSES)]
        place = next(p for p in order if p not in self.processes or not self.processes[p].is_busy)
        if place not in self.processes:
            self.processes[place] = self.start(place)
        return self.processes[place]

    @property
    def has_failed(self) -> bool:
        """Return True if a call failed, or if the process paused."""
        return self._failed or any(one.calls.happened or one.has_paused for one in self.processes.values())

    def _asked(self, action: Action) -> Actor:
        order = sorted(self.processes, key=lambda place: (place - action.who) % PROCESSES)
        open_ = [place for place in order if self.processes[place].tx and not self.processes[place].is_busy]
        return self.processes[open_[0]] if action.kind == "end" and open_ else self.free(action.who)

    # --- actions --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        while self.queue:
            self.next()
        for _, call in self.late_puts:
            call()
        self.late_puts.clear()

    def next(self) -> None:
        action = self.queue.popleft()
        self._let_late_puts_happen()
        self.look_at_history()  # a pausing process's put
        if self.hudi_is_writing and action.kind not in BESIDE_HUDI:
            self.lines.append(f"{'  ' * self.depth}({action.kind} gives way to Hudi's writer)")
            return
        process = self._asked(action)
        process.is_busy = True
        self.depth += 1
        place = len(self.lines)
        self.lines.append(f"{'  ' * (self.depth - 1)}{process.name} begins with: {action.kind}")
        process.calls.arm(action.trouble)
        try:
            outcome = self._done(process, action)
        finally:
            self.depth -= 1
            process.is_busy = process.has_paused = False
            if not process.calls.is_dead:
                process.calls.arm(None)
        self.lines[place] = f"{'  ' * self.depth}{process.name} {outcome}"
        self.look_at_history()

    def _done(self, process: Actor, action: Action) -> str:
        calls = process.calls
        try:
            outcome = self._acted(process, action)
        except ProcessDied:
            self.troubles += 1
            outcome = f"begins with: {action.kind}; {calls.happened}"
            self.stop(process)
        except (StorageUnavailableError, CommitUnknownError) as error:
            if not self.troubles and not calls.happened:
                raise BrokenPromiseError("no-surprise", f"{action.kind}: {type(error).__name__}: {error}") from error
            self.troubles += 1
            outcome = f"begins with: {action.kind}, which ends with {type(error).__name__}; {calls.happened}"
        except BrokenPromiseError:
            raise
        except Exception as error:
            raise BrokenPromiseError("no-surprise", f"{action.kind}: {type(error).__name__}: {error}") from error
        if calls.happened:
            self.troubles += 1
            self._failed = True
        return outcome

    def _acted(self, process: Actor, action: Action) -> str:
        """Carry out an action. After a `TableMovedError`, repeat it at the new address, where it may fail."""
        try:
            return self.acts[action.kind](self, process, action)
        except (TableMovedError, TableArrivingError) as error:
            if not self.has_moved:
                raise
            self.open_now(process)
            return f"begins with: {action.kind}, and is told that the table moves: {type(error).__name__}"

    def meanwhile(self, process: Actor, trouble: Trouble, words: str) -> None:
        self.troubles += 1
        process.has_paused = True
        if self.depth >= DEPTH_MAX:
            return
        process.machine.is_still = trouble.happening == "freezes"
        self.lines.append(f"{'  ' * self.depth}({words}, for {trouble.seconds:g} s, and meanwhile)")
        self.pass_time(trouble.seconds)
        for _ in range(trouble.steps):
            if self.queue:
                self.next()
        process.machine.is_still = False

    def comes_late(self, actions: int, call: Callable[[], object]) -> None:
        """Carry out a put after `actions` more actions."""
        self.late_puts.append((len(self.queue) - actions, call))

    def _let_late_puts_happen(self) -> None:
        left = len(self.queue)
        due = [call for at, call in self.late_puts if left <= at]
        self.late_puts = [(at, call) for at, call in self.late_puts if left > at]
        for call in due:
            self.lines.append(f"{'  ' * self.depth}(a put that was late is carried out)")
            call()

    def pass_time(self, seconds: float) -> None:
        self.has_waited |= seconds >= 60
        self.environment.sleep(seconds)

    # --- the table's rows ---------------------------------------------------------------------------------------------

    def look_at_history(self) -> None:
        puts = sum(disk.puts for disk in self.disks.values())
        if puts == self._puts_seen:
            return
        self._puts_seen = puts
        self._look()
        if self.move is not None and self._moves(self.move):
            self._look()

    def _moves(self, move: Move) -> bool:
        """Switch to the new table of a finished migration, and return True.

        Only an opened new table proves that the migration has finished: its process may die before it reports the end.
        """
        if not move.disk.list(VERSIONS):
            return False
        table = self.observed(move.uri)
        origin = tail_of(table).origin
        if origin is None or not (origin.is_opened or origin.given_up):
            return False
        if origin.given_up:
            if tail_of(self.observer).moving is None:
                self.move = None
            return False
        self.moved_tables.append(MovedTable(self.observer, self.ledger.as_left()))
        self.ledger.move(table.history().to_pylist(), origin.opened, move.rule)
        self.observer, self.uri, self.move = table, move.uri, None
        if move.rule is not None:
            self.settings = self.ledger.settings
        self.state["history is given up"] = True
        for name in ("plans", "savepoints", "followers"):
            self.state.pop(name, None)
        return True

    def _look(self) -> None:
        if self.ledger.foreign:
            look_for_hudi(self.observer)  # otherwise Hudi's commits are found once a minute
        rows = self.observer.history().to_pylist()
        self.ledger.sync(rows[::-1], self._deleted_in)
        self.columns.look(self.observer.schema.names)
        self.ledger.columns = self.shown_columns()

    def shown_columns(self) -> list[str]:
        names = [name for name in self.columns.names if name not in self.settings.value_columns]
        return names + (["value"] if self.settings.payload is not None else [])

    def _deleted_in(self, version: int) -> list[str] | None:
        try:
            rows = self.observer.changes(since=version - 1, until=version, raw=True).to_polars().to_dicts()
        except (CheckpointExpiredError, SnapshotExpiredError):
            return None
        return [self.key(self.columns.plain(row)) for row in rows if row["_change_type"] == "delete"]

    def key(self, row: dict[str, Any]) -> str:
        return f"{row['p']}/{row['k']}" if self.settings.partitioned else str(row["k"])

    def column(self, name: str) -> pl.Expr:
        return pl.col(self.columns.names[name])

    @property
    def has_moved(self) -> bool:
        return self.move is not None or len(self.disks) > 1

    def account(self, name: str) -> str:
        return f"{BANKS[ACCOUNTS.index(name) % 2]}/{name}" if self.settings.partitioned else name


def _nothing() -> None:
    return None


def _made(settings: Settings) -> Disk:
    """Return the disk of a new table. Raises `LawError` for an unlawful payload."""
    name = repr((settings, settings.payload))
    if name not in _MADE:
        clock = SimulatedEnvironment()
        disk = Disk(clock.now_ms)
        members: dict[Any, Payload | str] = {"amount": Counter()} if settings.adds else {}
        if settings.payload is not None and settings.adds:
            columns = settings.value_columns
            members[columns if len(columns) > 1 else columns[0]] = settings.payload
        partial = PartialUpdate(columns=members) if settings.is_partial else None
        Table.create(
            URI, pa.schema(list(columns_of(settings).items())),
            key=["p", "k"] if settings.partitioned else "k",
            ordering="v" if settings.rule == "ordering" else None,
            partition_by="p" if settings.partitioned else (), buckets=settings.buckets,
            merge=partial or members or None, ttl="until" if settings.expires else None,
            opening=Opening(store=disk, environment=Machine(clock, "maker", 0, _nothing)),
        )  # fmt: skip
        _MADE[name] = disk
    return _MADE[name]

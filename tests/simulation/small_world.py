"""Every interleaving of the real protocol code in a small world, by explicit-state search.

    state  =  (store, local state of each actor)
    step   =  one actor does its next operations up to and including one that changes the store
            | the oldest version, or a ghost, is deleted | a put whose reply was lost lands at last

The actors are the generators of `ops`, unchanged. They do no I/O, so the search answers their operations from a store
that is a plain value. An actor that crashes is one that is never scheduled again; as every state that can be reached
is checked, a crash at every operation of every actor is covered without a step of its own. Wall clock, nonces, pauses
and `MakeDurable` have one deterministic answer each and are no scheduling points. A put may, `faults` times in a run,
lose its reply: it landed all the same, or it lands at any later moment, or never; or it is repeated below us and so
answers False although it was ours.

**Reads wait.** A read commutes with whatever does not change its answer, so it may always be put off until just before
its actor's own next change of the store, or until just before somebody else's change of what it reads. Hence a step of
one actor also chooses, for each of the others, how many of its reads came before: none, or up to one whose answer this
very step changes. Every store, every answer and every result is still met (`reads_wait=False` schedules every operation
by itself, and a test compares), in a thirtieth of the states. A put or delete that changes nothing is a read.

**What an actor has seen.** Generators cannot be copied, so a local state keeps one representative history of replies
and is replayed from it, memoised: the search itself only compares numbers. Two histories are the same local state if
they lead to the same chain of suspended frames: code, instruction, locals and captured variables of the generator and
of each that it delegates to, plus the number of nonces drawn (`publish` draws one for each attempt; attempts at
different versions may share one without harm, so those are counted by the replies that were lost). That determines the
future: the protocols keep no state outside their frames, and the one thing in a frame that Python does not show, its
value stack, is a function of what it shows. An operand stack at a given instruction has a given shape, and all that
these generators leave on it across a `yield` are iterators of `for` loops. Those run over values without repetition
that are themselves locals or functions of locals, so the loop's variable, a local too, tells how far they are.
`freeze` refuses what it does not know.
"""

from __future__ import annotations

import itertools
import types
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass
from functools import cache, partial
from typing import Any, TypeVar

from crdt_mor.format.commit import CommitMetadata, decode_compaction_plan, encode_commit
from crdt_mor.model.config import TableConfig
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.names import OWN_KEY, BaseFileName, TimelineFileName, data_file_name
from crdt_mor.model.plans import CompactionPlan, FrozenPlan
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import decode_segment
from crdt_mor.model.timeline_parts import Completion, completed_name
from crdt_mor.store.base import Stat
from crdt_mor.timeline.actions import (
    ACTIONS,
    COMPACT,
    Action,
    MomentaryAction,
    PlannedAction,
    action_ending_as,
    planned_action,
)
from crdt_mor.timeline.combining import Crowd, Posting
from crdt_mor.timeline.paths import VERSIONS, segment_path, version_path
from crdt_mor.timeline.projection import Projector
from crdt_mor.timeline.publish import EventFile, Shortcuts
from crdt_mor.timeline.steps import (
    Copy,
    Delete,
    GetStat,
    List,
    MakeDurable,
    Nonce,
    Now,
    Pause,
    Put,
    Read,
    Step,
    Steps,
    StoreNow,
    Touch,
    Walk,
)  # fmt: skip
from tests.driving import one_by_one

T = TypeVar("T")

Objects = tuple[tuple[str, Hashable], ...]
"""A store as a value: (path, content), sorted. Paths that begin with `!` are the search's own notes."""

LOG, FAULTS, FLYING = "!log", "!faults", "!flying"
LATE = "!late"
"""Files of plans, in Hudi's timeline or their outputs, that were put after the plan had been cancelled."""


class Violation(AssertionError):  # noqa: N818
    """A promise that does not hold in a state that can be reached."""


@dataclass(frozen=True, slots=True)
class Pick:
    """-> (tail, instant): any write that is pending, or plan that is open, right now. Blocks while there is none."""

    plan: bool = False


@dataclass(frozen=True, slots=True)
class Remove:
    """-> None, after everything in the store is removed."""


@dataclass(frozen=True, slots=True)
class Saw:
    """A reader went from one value to another. Checked on the spot, no scheduling point."""

    before: Timeline | None
    after: Timeline
    shown: tuple[Completion, ...] | None = None
    """All completions that it read of `after`, those of segments included; None where it read no segment."""


_OWN = encode_commit(CommitMetadata(stats={}, extra={OWN_KEY: "1"}))


class FakeProjector(Projector):
    """The real one, but that completed files hold our key alone: their names are what matters here."""

    def __init__(self) -> None:
        super().__init__(TableConfig("t", KeySpec(("id",)), buckets=1))

    def _completed(self, completion: Completion, schema: str) -> bytes:
        return _OWN


PROJECTOR = FakeProjector()
HUDI = PROJECTOR.folder


def begun_paths(requested: InstantTime) -> tuple[str, str]:
    inflight, asked = PROJECTOR.pending_paths(requested, "deltacommit")
    return inflight, asked


def planned_actions() -> list[PlannedAction[Any]]:
    """The actions whose instants begin with a plan."""
    return [action for action in ACTIONS.values() if isinstance(action, PlannedAction)]


def completed_path(completion: Completion) -> str:
    return PROJECTOR.path(completed_name(completion))


def is_version(put: Put) -> bool:
    """For `faulty` of a world in which puts of versions alone may be hit by a fault."""
    return put.path.startswith(VERSIONS)


# --- local states -----------------------------------------------------------------------------------------------------


@cache
def decoded(data: bytes) -> Timeline:
    """Values are immutable, so equal bytes may share one."""
    return Timeline.decode(data, "")


_INTERNED: dict[Hashable, int] = {}
_BY_IDENTITY: dict[int, tuple[object, Hashable]] = {}


def freeze(value: object) -> Hashable:
    """A hashable stand-in that is equal for equal values."""
    if value is None or isinstance(value, (str, int, bytes, bool)):
        return value
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *(freeze(item) for item in value))
    if isinstance(value, (set, frozenset)):
        return frozenset(freeze(item) for item in value)
    if isinstance(value, (dict, types.MappingProxyType)):
        return ("dict", *(freeze(item) for item in value.items()))
    if isinstance(value, types.FunctionType):
        return (value.__code__, *(freeze(cell.cell_contents) for cell in value.__closure__ or ()))
    if isinstance(value, types.MethodType):
        return ("method", value.__name__, freeze(value.__self__))
    if isinstance(value, partial):
        return ("partial", freeze(value.func), freeze(value.args), freeze(value.keywords))
    if isinstance(value, EventFile):
        return ("file", value.path, value.data, value.durable)
    if isinstance(value, FakeProjector):
        return "projector"
    if isinstance(value, Action):
        return ("action", value.name)
    if isinstance(value, types.GeneratorType):
        return (value.__name__, value.gi_frame and frames(value))
    if isinstance(value, suppress):
        return "suppress"
    if isinstance(value, BaseException):
        return (type(value), str(value))
    if isinstance(value, Posting | Crowd | Shortcuts):  # what changes is not known by its identity
        return (type(value).__name__, _parts(value))
    if is_dataclass(value):
        known = _BY_IDENTITY.get(id(value))
        if known is None:  # the object is kept, so its identity stays its own
            known = _BY_IDENTITY[id(value)] = value, _INTERNED.setdefault((type(value), _parts(value)), len(_INTERNED))
        return ("#", known[1])
    raise TypeError(f"cannot freeze {value!r}")


def _parts(value: Any) -> Hashable:
    return tuple(freeze(getattr(value, name)) for name in value.__dataclass_fields__)


def frames(generator: Generator[Any, Any, Any]) -> Hashable:
    """What the future of a suspended generator depends on; see the top of this module for why that is all of it."""
    chain: list[Hashable] = []
    inner: Any = generator
    while inner is not None:
        frame = inner.gi_frame
        chain.append((frame.f_code, frame.f_lasti, tuple((k, freeze(v)) for k, v in sorted(frame.f_locals.items()))))
        inner = inner.gi_yieldfrom
    return tuple(chain)


def _asker(generator: Any) -> str:
    while generator.gi_yieldfrom is not None:
        generator = generator.gi_yieldfrom
    name: str = generator.gi_frame.f_code.co_name
    return name


@dataclass
class Actor:
    """Something that runs a protocol. `name` is the stem of the texts that nobody else has used.

    store_now: what the store's clock says whenever this actor asks; None: what it says to all.
    """

    name: str
    start: Callable[[], Generator[Any, Any, Any]]
    store_now: int | None = None
    local: list[Local] = field(default_factory=list)
    keys: dict[Hashable, int] = field(default_factory=dict)


@dataclass
class Local:
    """A local state: the operation that comes next (None at the end), and one history that leads here."""

    step: Any
    history: tuple[object, ...]
    result: object = None
    moves: dict[Hashable, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Block:
    """What an actor does next in a given store: reads, each with the local state after it, and then one change of the
    store (several `ends`: a put may be hit by a fault, a cleaner may choose)."""

    ends: tuple[tuple[int, int], ...]
    reads: tuple[tuple[Any, int], ...]


# --- the search -------------------------------------------------------------------------------------------------------


class World:
    """A store with some objects, some actors, and the search through everything that they can do."""

    def __init__(
        self,
        objects: dict[str, bytes],
        actors: Sequence[Actor],
        *,
        faults: int = 0,
        deletions: bool = True,
        faulty: Callable[[Put], bool] = lambda put: True,
        reads_wait: bool = True,
        check_leftovers: bool = False,
        store_now: int = 1,
    ) -> None:
        self.actors = actors
        self.deletions = deletions
        self.faulty = faulty
        self.reads_wait = reads_wait
        self.check_leftovers = check_leftovers
        self.store_now = store_now
        self._stores: list[Objects] = []
        self._store_ids: dict[Objects, int] = {}
        self.first = self._store({**stood(objects), FAULTS: faults})
        self._blocks: list[dict[int, Block]] = [{} for _ in actors]
        self._overtaken: list[dict[tuple[int, int, int], tuple[int, ...]]] = [{} for _ in actors]
        self._changes: dict[int, tuple[int, ...]] = {}
        self.parents: dict[int, int] = {}

    @property
    def stores(self) -> set[Objects]:
        """Every store that was met."""
        return set(self._stores)

    @property
    def logs(self) -> list[Sequence[bytes]]:
        """The genuine versions of the table in each of these stores, oldest first."""
        stores: list[dict[str, Any]] = [dict(store) for store in self.stores]
        return [store[LOG] for store in stores]

    def _store(self, objects: dict[str, Hashable]) -> int:
        key = tuple(sorted(objects.items(), key=lambda item: item[0]))
        found = self._store_ids.get(key)
        if found is None:
            found = self._store_ids[key] = len(self._stores)
            self._stores.append(key)
            self.check(objects)
        return found

    def check(self, objects: dict[str, Any]) -> None:
        """Raise `Violation` for a store that must never be."""
        check_store(objects)

    def check_result(self, result: object, objects: dict[str, Any]) -> None:
        """Raise `Violation` where an actor ended with a `result` that is not so, or is so no more."""
        check_result(result, objects)

    def check_end(self, objects: dict[str, Any]) -> None:
        """Raise `Violation` for what must not be there when all actors have come to their end."""
        check_end(objects)

    def land(self, objects: dict[str, Any], path: str, data: bytes) -> dict[str, Any] | None:
        """The store after a put; None if the path is taken."""
        return land(objects, path, data)

    def search(self, *, depth_first: bool = False) -> int:
        """Visit every state that can be reached; returns how many. Raises `Violation` with the steps that lead there:
        as few as possible, or sooner, if many are needed, where the search goes depth first.
        """
        code = _pack((self.first, *(self._enter(actor, ()) for actor in self.actors)))
        parents = self.parents = {code: -1}
        frontier = deque([code])
        while frontier:
            code = frontier.pop() if depth_first else frontier.popleft()
            try:
                for to in self._successors(code):
                    if to not in parents:
                        parents[to] = code
                        frontier.append(to)
            except Violation as violation:
                raise Violation(f"{violation}\n{self._trace(code)}") from violation
        return len(parents)

    def _successors(self, code: int) -> Iterator[int]:
        store = code & _MASK
        locals_ = _unpack(code, len(self.actors))
        over = True
        for i, local in enumerate(locals_):
            for to_store, to_local in self._block(i, store, local).ends:
                over = False
                yield from self._overtaking(store, locals_, to_store, i, to_local)
        for to_store in self._change(store):
            yield from self._overtaking(store, locals_, to_store, -1, 0)
        if over and self.check_leftovers:
            self.check_end(dict(self._stores[store]))

    def _overtaking(self, store: int, locals_: Sequence[int], to_store: int, mover: int, moved: int) -> Iterator[int]:
        """The states after a change of the store: each other actor has read what changes before it, or has not."""
        codes = [to_store]
        for i, local in enumerate(locals_):
            shift = _BITS * (i + 1)
            if i == mover:
                codes = [code | moved << shift for code in codes]
                continue
            overtaken = self._overtaken[i].get((store, to_store, local))
            if overtaken is None:
                overtaken = self._overtaken[i][store, to_store, local] = self._read_before(i, store, to_store, local)
            codes = [code | option << shift for code in codes for option in overtaken]
        yield from codes

    def _read_before(self, i: int, store: int, to_store: int, local: int) -> tuple[int, ...]:
        before, after = dict(self._stores[store]), dict(self._stores[to_store])
        reads = self._block(i, store, local).reads
        return tuple({local: 0} | {to_local: 0 for step, to_local in reads if _differs(step, before, after)})

    # --- one step ---------------------------------------------------------------------------------------------------

    def _block(self, i: int, store: int, local: int) -> Block:
        """What an actor does in this store up to its next change of it."""
        found = self._blocks[i].get(store << _BITS | local)
        if found is None:
            found = self._blocks[i][store << _BITS | local] = self._run(self.actors[i], store, local)
        return found

    def _run(self, actor: Actor, store: int, local: int) -> Block:
        objects: dict[str, Any] = dict(self._stores[store])
        reads: list[tuple[Step | Pick, int]] = []
        ends: list[tuple[int, int]] = []
        met = {local}
        waiting = [local]
        while waiting:
            local = waiting.pop()
            step = actor.local[local].step
            if step is None:
                self.check_result(actor.local[local].result, objects)
                continue
            if isinstance(step, Saw):
                check_saw(step, objects)
            for reply, after in self._perform(step, objects):
                to_local = self._reply(actor, local, reply)
                if after is not None or not self.reads_wait:
                    to_store = store if after is None else self._store(after)
                    if actor.local[to_local].step is None:
                        self.check_result(actor.local[to_local].result, after or objects)
                    ends.append((to_store, to_local))
                    continue
                reads.append((step, to_local))
                if to_local not in met:
                    met.add(to_local)
                    waiting.append(to_local)
        return Block(tuple(ends), tuple(reads))

    def _perform(
        self, step: Step | Pick | Remove, objects: dict[str, Any]
    ) -> list[tuple[object, dict[str, Hashable] | None]]:
        match step:
            case Read(path):
                return [(objects.get(path), None)]
            case GetStat(path):
                return [(_stat(path) if path in objects else None, None)]
            case List(folder):
                return [(_listed(objects, folder), None)]
            case Walk():
                return [(_walked(objects), None)]
            case Delete(path):
                return [(True, removed(objects, path) if path in objects else None)]
            case Saw():
                return [(None, None)]
            case Remove():
                notes = {path: note for path, note in objects.items() if path.startswith("!")}
                return [(None, {**notes, LOG: (), LATE: ()})]
            case Pick(plan):
                tail = decoded(objects[LOG][-1])
                instants = [p.barrier for p in tail.plans] if plan else [p.requested for p in tail.pending]
                return [((tail, instant), None) for instant in instants]
            case Copy(source, target):
                data = objects.get(source)
                landed = None if data is None else self.land(objects, target, data)
                return [(landed is not None, landed)]
            case Put(path, data, _):
                landed = self.land(objects, path, data)
                found: list[tuple[object, dict[str, Hashable] | None]] = [(landed is not None, landed)]
                if objects[FAULTS] and self.faulty(step):
                    fewer = {**objects, FAULTS: objects[FAULTS] - 1}
                    if landed is not None:
                        found.append((None, {**landed, FAULTS: fewer[FAULTS]}))
                        found.append((False, {**landed, FAULTS: fewer[FAULTS]}))
                    if objects[FLYING] is None:
                        found.append((None, {**fewer, FLYING: (path, data)}))
                return found
        raise TypeError(f"no such step: {step!r}")

    def _change(self, store: int) -> tuple[int, ...]:
        """What happens to the store without any actor."""
        if store in self._changes:
            return self._changes[store]
        objects: dict[str, Any] = dict(self._stores[store])
        found = []
        if objects[FLYING] is not None:
            path, data = objects[FLYING]
            found.append(self._store({**(self.land(objects, path, data) or objects), FLYING: None}))
        if self.deletions:
            genuine = [p for p in sorted(objects) if p.startswith(VERSIONS) and objects[p] in objects[LOG]]
            ghosts = [p for p in objects if p.startswith(VERSIONS) and objects[p] not in objects[LOG]]
            gone = [*ghosts, *(genuine[:1] if len(genuine) > 1 else [])]
            found += [self._store({p: data for p, data in objects.items() if p != path}) for path in gone]
        self._changes[store] = tuple(found)
        return self._changes[store]

    # --- replaying --------------------------------------------------------------------------------------------------

    def _enter(self, actor: Actor, history: tuple[object, ...]) -> int:
        protocol = actor.start()
        generator = one_by_one(protocol)
        nonces = lost = 0
        step: Any = None
        result: object = None
        waiting = list(reversed(history))
        reply: object = None
        try:
            while True:
                step = generator.send(reply)
                match step:
                    case Nonce() if _asker(protocol) == "_publish":
                        reply = f"{actor.name}{nonces}.{lost}"
                    case Nonce():
                        nonces += 1
                        reply = f"{actor.name}{nonces}"
                    case Now():
                        reply = 0
                    case StoreNow():  # after the last sweep, as in life, by which a sweep knows itself done
                        reply = self.store_now if actor.store_now is None else actor.store_now
                    case Pause() | MakeDurable() | Touch():
                        reply = None
                    case _ if waiting:
                        reply = waiting.pop()
                        lost += isinstance(step, Put) and reply is None
                    case _:
                        break
            key: Hashable = (nonces, lost, frames(generator))
        except StopIteration as end:
            step, result = None, end.value
            key = ("end", result)
        found = actor.keys.get(key)
        if found is None:
            found = actor.keys[key] = len(actor.local)
            actor.local.append(Local(step, history, result))
        generator.close()
        return found

    def _reply(self, actor: Actor, local: int, reply: object) -> int:
        state = actor.local[local]
        key = freeze(reply)
        found = state.moves.get(key)
        if found is None:
            found = state.moves[key] = self._enter(actor, (*state.history, reply))
        return found

    # --- telling ----------------------------------------------------------------------------------------------------

    def _trace(self, code: int) -> str:
        """The steps that led to a state, in words."""
        path = []
        while code != -1:
            path.append(code)
            code = self.parents[code]
        path.reverse()
        lines = []
        for before, after in itertools.pairwise(path):
            was, now = (dict(self._stores[c & _MASK]) for c in (before, after))
            for actor, a, b in zip(
                self.actors, _unpack(before, len(self.actors)), _unpack(after, len(self.actors)), strict=True
            ):
                if a != b:
                    lines += [f"  {actor.name}: {_words(step)}" for step in _between(actor, a, b)]
            lines += [f"      gone: {p}" for p in was.keys() - now.keys()] + [
                f"      new: {p}" for p in now.keys() - was.keys()
            ]
        return "\n".join(lines)


_BITS = 24
_MASK = (1 << _BITS) - 1


def _pack(parts: Sequence[int]) -> int:
    return sum(part << (_BITS * i) for i, part in enumerate(parts))


def _unpack(code: int, count: int) -> list[int]:
    return [code >> (_BITS * (i + 1)) & _MASK for i in range(count)]


@cache
def _stat(path: str) -> Stat:
    return Stat(path, 0, 0)


def _between(actor: Actor, a: int, b: int) -> list[object]:
    """The steps of an actor from one of its local states to another, as far as one history shows them."""
    came = {a: (None, -1)}
    waiting = deque([a])
    while waiting and b not in came:
        at = waiting.popleft()
        for to in actor.local[at].moves.values():
            if to not in came:
                came[to] = (actor.local[at].step, at)
                waiting.append(to)
    steps: list[object] = []
    while b in came and b != a:
        step, b = came[b]
        steps.append(step)
    return steps[::-1]


def _differs(step: Step | Pick | Saw, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether a step that changes nothing in `before` would not do the same in `after`."""
    match step:
        case List(folder):
            return _listed(before, folder) != _listed(after, folder)
        case Walk():
            return _walked(before) != _walked(after)
        case Pick():
            return bool(before[LOG] != after[LOG])
        case Copy(source, target):
            return bool(before.get(source) != after.get(source) or before.get(target) != after.get(target))
        case Read(path) | GetStat(path) | Put(path) | Delete(path):
            return bool(before.get(path) != after.get(path))
    return False


def _listed(objects: dict[str, Any], folder: str) -> list[Stat]:
    return [_stat(path) for path in sorted(objects) if path.rpartition("/")[0] == folder]


def _walked(objects: dict[str, Any]) -> list[Stat]:
    return [_stat(path) for path in sorted(objects) if not path.startswith((".hoodie", "!"))]


def _words(step: object) -> str:
    if isinstance(step, Put) and step.path.startswith(VERSIONS):
        value = decoded(step.data)
        return f"put {value.version} {value.nonce} pending={[p.requested[-3:] for p in value.pending]}"
    return str(step)[:150]


def land(objects: dict[str, Any], path: str, data: bytes) -> dict[str, Any] | None:
    """The store after a put; None if the path is taken. The version after the tail is genuine, any other a ghost."""
    if path in objects:
        return None
    after = {**objects, path: data}
    if path.startswith(VERSIONS) and path == version_path(decoded(objects[LOG][-1]).version + 1):
        after[LOG] = (*objects[LOG], data)
        check_event(decoded(objects[LOG][-1]), decoded(data), objects)
        check_open_plans(decoded(data), objects)
    barrier = barrier_of(path)
    if barrier is not None and barrier not in barriers_kept(decoded(objects[LOG][-1]), objects):
        after[LATE] = tuple(sorted({*objects[LATE], path}))
    return after


def removed(objects: dict[str, Any], path: str) -> dict[str, Any]:
    """The store after a deletion."""
    after = {p: data for p, data in objects.items() if p != path}
    return {**after, LATE: tuple(late for late in objects[LATE] if late != path)}


def completions_of(value: Timeline, objects: dict[str, Any]) -> list[Completion]:
    """All completions of a value, those of its segments included, in the order in which they were published."""
    found = list(value.completions)
    for segment in value.segments:
        data = objects.get(segment_path(segment.name))
        if data is None:
            raise Violation(f"version {value.version} names a segment that is not there: {segment.name}")
        sealed = sealed_in(data)
        if (segment.first, segment.last, segment.count) != (sealed[0].completed, sealed[-1].completed, len(sealed)):
            raise Violation(f"a version says of a segment what is not so: {segment}")
        found += sealed
    return sorted(found, key=lambda completion: completion.version)


@cache
def sealed_in(data: bytes) -> tuple[Completion, ...]:
    """The completions of a segment."""
    return decode_segment(data, "")


def barriers_kept(value: Timeline, objects: dict[str, Any]) -> set[InstantTime]:
    """The plans that are open or completed."""
    return {p.barrier for p in value.plans} | {c.requested for c in completions_of(value, objects)}


@cache
def barrier_of(path: str) -> InstantTime | None:
    """The barrier of the plan that a file is of, until it is completed: one in Hudi's timeline, or an output."""
    data = data_file_name(path)
    if data is not None:
        return data.instant if isinstance(data, BaseFileName) else None
    name = TimelineFileName.parse(path.rpartition("/")[2])
    if name is None or name.state == "completed":
        return None
    return name.requested if isinstance(ACTIONS.get(name.action), PlannedAction) else None


def looked(steps: Steps[T], objects: dict[str, Any]) -> T:
    """What a protocol that only looks ends in, where nobody else does anything meanwhile."""
    reply: object = None
    single = one_by_one(steps)
    try:
        while True:
            match single.send(reply):
                case Read(path):
                    reply = objects.get(path)
                case GetStat(path):
                    reply = _stat(path) if path in objects else None
                case List(folder):
                    reply = _listed(objects, folder)
                case step:
                    raise Violation(f"not a look: {step}")
    except StopIteration as end:
        found: T = end.value
        return found


def alone(steps: Steps[T], objects: dict[str, Any], who: str, store_now: int = 1) -> tuple[T, dict[str, Any]]:
    """What a protocol ends in, and the store after it, where nobody else does anything meanwhile.

    who: how its nonces start, which nobody else's do. store_now: what the store's clock says.
    """
    reply: object = None
    nonces = 0
    single = one_by_one(steps)
    try:
        while True:
            step = single.send(reply)
            reply = None
            match step:
                case Read(path):
                    reply = objects.get(path)
                case GetStat(path):
                    reply = _stat(path) if path in objects else None
                case List(folder):
                    reply = _listed(objects, folder)
                case Walk():
                    reply = _walked(objects)
                case Put(path, data):
                    landed = land(objects, path, data)
                    reply, objects = landed is not None, landed or objects
                case Copy(source, target):
                    landed = land(objects, target, objects[source]) if source in objects else None
                    reply, objects = landed is not None, landed or objects
                case Delete(path):
                    reply, objects = True, removed(objects, path)
                case Nonce():
                    nonces += 1
                    reply = f"{who}{nonces}"
                case Now():
                    reply = 0
                case StoreNow():
                    reply = store_now
                case MakeDurable() | Pause() | Touch():
                    pass
                case _:
                    raise TypeError(f"no such step: {step!r}")
    except StopIteration as end:
        found: T = end.value
        return found, objects


def stood(objects: dict[str, bytes]) -> dict[str, Any]:
    """Objects with the search's own notes: a store as a world begins with it."""
    versions = sorted(path for path in objects if path.startswith(VERSIONS))
    return {**objects, LOG: tuple(objects[path] for path in versions), FAULTS: 0, FLYING: None, LATE: ()}


def settled(objects: dict[str, Any]) -> dict[str, bytes]:
    """A store without the notes, in which all versions but the newest are gone."""
    versions = sorted(path for path in objects if path.startswith(VERSIONS))
    return {path: data for path, data in objects.items() if path[0] != "!" and path not in versions[:-1]}


# --- the promises -----------------------------------------------------------------------------------------------------


def check_event(before: Timeline, after: Timeline, objects: dict[str, Any]) -> None:
    """A genuine value keeps everything that was decided before it, and decides nothing twice.

    Its completions are those of the value before it, in the same order, and then its own, wherever they are kept.
    """
    old, new = completions_of(before, objects), completions_of(after, objects)
    if after.version != before.version + 1:
        raise Violation(f"version {after.version} after {before.version}")
    if new[: len(old)] != old:
        raise Violation("a commit was lost from the timeline")
    outcomes = [c.requested for c in new] + [r.requested for r in after.rolled_back]
    going_on = {p.requested for p in after.pending} | {p.barrier for p in after.plans}
    if len(outcomes) != len(set(outcomes)) or set(outcomes) & going_on:
        raise Violation(f"an instant with two outcomes: {outcomes}")
    for completion in new[len(old) :]:
        ended = action_ending_as(completion.action)
        planned = isinstance(ended, PlannedAction) and completion.overwriting is None
        if planned and before.find_plan(completion.requested) is None:
            raise Violation(f"a plan was completed that was not open: {completion.requested}")


def check_open_plans(value: Timeline, objects: dict[str, Any]) -> None:
    """A file group is in one open plan at most."""
    groups = [group for plan in value.plans for group in frozen(plan.action, objects[plan.path]).file_groups]
    if len(groups) != len(set(groups)):
        raise Violation(f"two open plans of one file group: {value.plans}")


@cache
def frozen(action: str, data: bytes) -> FrozenPlan:
    plan: FrozenPlan = planned_action(action).decode(data, "")
    return plan


def planned(data: bytes) -> CompactionPlan:
    plan = frozen(COMPACT.name, data)
    assert isinstance(plan, CompactionPlan)
    return plan


@cache
def recorded(data: bytes) -> list[tuple[str, str | None]]:
    """The file groups of a plan in Hudi's timeline."""
    return [(group.partition_path or "", group.file_id) for group in decode_compaction_plan(data, "").operations]


def check_store(objects: dict[str, Any]) -> None:
    """Files of commits are there; Hudi's directory is a prefix, and all of what stands below the newest version."""
    tail = decoded(objects[LOG][-1])
    if objects.get(version_path(tail.version)) != objects[LOG][-1]:
        raise Violation("the tail is gone")
    completions = completions_of(tail, objects)
    for completion in completions:
        for file in completion.files:
            staged = completion.version == tail.version and file.staged in objects
            if file.path not in objects and not staged:
                raise Violation(f"a file of a committed instant was removed: {file.path}")
        action = action_ending_as(completion.action)
        paths = PROJECTOR.pending_paths(completion.requested, action.name)
        at_once = completion.overwriting is not None or isinstance(action, MomentaryAction)
        told_late = at_once or (isinstance(action, PlannedAction) and not action.told_open)
        begun = paths[: 0 if told_late else len(action.begun)]
        for path in paths if completed_path(completion) in objects else begun:
            if path not in objects:
                raise Violation(f"Hudi never saw the instant begin, or forgot it: {path}")
        if completed_path(completion) not in objects and completion.version < tail.version:
            raise Violation(f"a hole in Hudi's directory: {completed_path(completion)}")
    mine = {completed_path(c) for c in completions}
    for path in objects:
        if path.startswith(HUDI) and "_" in path and path not in mine:
            raise Violation(f"Hudi was told of a commit that never was: {path}")
    # Of an overwrite that is the newest event Hudi may not know yet: nothing has completed behind it.
    newest = {c.requested for c in completions if c.overwriting is not None and c.version == tail.version}
    check_plans(objects, newest | {c.requested for c in completions if completed_path(c) in objects})


def check_plans(objects: dict[str, Any], completed: set[InstantTime]) -> None:
    """Hudi's readers can read the table, and miss nothing, whatever becomes of the plans.

    An output or a record that a stalled process put after the plan was cancelled is not held against it here: it
    removes that itself, or is dead, and then a sweep does.
    """
    pending: list[tuple[str, str | None]] = []
    for path, data in objects.items():
        barrier = barrier_of(path)
        if barrier is None or barrier in completed:
            continue
        paths = {action.name: PROJECTOR.pending_paths(barrier, action.name) for action in planned_actions()}
        records = {record: action for action, (record, *_) in paths.items()}
        later = {file for _, *files in paths.values() for file in files}
        if path in later and records.keys().isdisjoint(objects):
            raise Violation(f"Hudi's readers look for the record of a plan, and there is none: {path}")
        if path in objects[LATE]:
            continue
        if path in records:
            pending += recorded(data) if records[path] == COMPACT.name else []
        elif records.keys().isdisjoint(objects):
            raise Violation(f"beside an output without a plan Hudi's readers miss later commits: {path}")
    if len(pending) != len(set(pending)):
        raise Violation(f"two pending compactions of one file group in Hudi's timeline: {pending}")


def check_result(result: Any, objects: dict[str, Any]) -> None:
    """What a writer told its caller is so."""
    tail = decoded(objects[LOG][-1])
    completions = completions_of(tail, objects)
    match result:
        case ("acknowledged", requested):
            done = next((c for c in completions if c.requested == requested), None)
            if done is None:
                raise Violation(f"an acknowledged commit was lost: {requested}")
            if completed_path(done) not in objects:
                raise Violation(f"an acknowledged commit is not in Hudi's directory: {requested}")
        case ("compacted", barrier):
            done = next((c for c in completions if c.requested == barrier), None)
            if done is None or completed_path(done) not in objects:
                raise Violation(f"an acknowledged compaction was lost, or Hudi was not told of it: {barrier}")
        case ("cancelled", barrier):
            if any(c.requested == barrier for c in completions):
                raise Violation(f"a plan was said to be cancelled, but it was completed: {barrier}")
            if any(barrier_of(path) == barrier and path not in objects[LATE] for path in objects):
                raise Violation(f"a plan was said to be cancelled, and is not gone: {barrier}")
        case ("decided", moment, shown):
            if moment > tail.clock:
                raise Violation(f"a moment was said to be decided that the table's clock has not reached: {moment}")
            if sorted(c.requested for c in completions if c.completed <= moment) != list(shown):
                raise Violation(f"a commit came before a moment that was decided, or is gone: {moment} {shown}")
        case ("expired", requested):
            if any(c.requested == requested for c in completions):
                raise Violation(f"a writer was told that its commit was rolled back, but it was not: {requested}")


def check_saw(saw: Saw, objects: dict[str, Any]) -> None:
    """An incremental read, by version, misses no commit and sees none that is not."""
    truth = decoded(objects[LOG][-1])
    since = saw.before.version if saw.before else -1
    if saw.after.version < since:
        raise Violation("a reader went back in time")
    due = [c for c in completions_of(truth, objects) if since < c.version <= saw.after.version]
    shown = saw.after.completions if saw.shown is None else saw.shown
    got = [c for c in sorted(shown, key=lambda c: c.version) if c.version > since]
    if due != got:
        raise Violation(f"a reader missed a commit, or saw one that is not: {due} {got}")


def check_end(objects: dict[str, Any]) -> None:
    """Nobody has anything left to do, so nobody will remove what a given-up instant left in Hudi's directory."""
    tail = decoded(objects[LOG][-1])
    for path in objects:
        if (barrier := barrier_of(path)) is not None and barrier not in barriers_kept(tail, objects):
            raise Violation(f"a file of a cancelled plan stays: {path}")
    for given_up in tail.rolled_back:
        for path in begun_paths(given_up.requested):
            if path in objects:
                raise Violation(f"a file of a given-up instant stays in Hudi's directory: {path}")

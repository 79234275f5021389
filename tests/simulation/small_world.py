"""Every interleaving of the real protocol code in a small world, by explicit-state search.

    state  =  (store, local state of each actor)
    step   =  one actor does its next store operation and runs on to the one after it
            | the oldest version, or a ghost, is deleted | a put whose reply was lost lands at last

The actors are the generators of `ops`, unchanged. They do no I/O, so the search answers their operations from a store
that is a plain value. An actor that crashes is one that is never scheduled again; as every state that can be reached
is checked, a crash at every operation of every actor is covered without a step of its own. Wall clock, nonces, pauses
and `Settle` have one deterministic answer each and are no scheduling points. A put may, `faults` times in a run, lose
its reply: it landed all the same, or it lands at any later moment, or never; or it is repeated below us and so answers
False although it was ours.

**What an actor has seen.** Generators cannot be copied, so a local state keeps one representative history of replies
and is replayed from it, memoised: the search itself only compares numbers. Two histories are the same local state if
they lead to the same chain of suspended frames: code, instruction, locals and captured variables of the generator and
of each that it delegates to, plus the number of nonces drawn. That determines the future: the protocols keep no state
outside their frames, and the one thing in a frame that Python does not show, its value stack, is a function of what it
shows. An operand stack at a given instruction has a given shape, and all that these generators leave on it across a
`yield` are iterators of `for` loops. Those run over values without repetition that are themselves locals or functions
of locals, so the loop's variable, a local too, tells how far they are. `Frames` refuses locals that it cannot freeze,
and `tests/simulation/test_small_world.py` checks on whole runs that equal keys behave alike.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import lru_cache
from typing import Any

from crdt_mor.model.instant import Instant
from crdt_mor.model.names import TimelineFileName
from crdt_mor.model.timeline import Completion, Timeline
from crdt_mor.ops.protocol import VERSIONS, version_path
from crdt_mor.ops.steps import (
    Delete, Exists, List, Nonce, Now, Pause, Put, Read, Settle, Stat, Step, Steps, StoreNow, Walk,
)  # fmt: skip

HUDI = ".hoodie/timeline"
Objects = tuple[tuple[str, Hashable], ...]
"""A store as a value: (path, content), sorted. Paths that begin with `!` are the search's own notes."""

LOG, FAULTS, FLYING = "!log", "!faults", "!flying"


class Violation(AssertionError):
    """A promise that does not hold in a state that can be reached."""


@dataclass(frozen=True, slots=True)
class Pick:
    """-> (tail, instant): any instant that is pending right now. Blocks while there is none."""


@dataclass(frozen=True, slots=True)
class Saw:
    """A reader went from one value to another. Checked on the spot, no scheduling point."""

    before: Timeline | None
    after: Timeline


class FakeProjector:
    """Projects like `ops.projection.Projector`, without Avro: the names are what matters here."""

    folder = HUDI

    def path(self, name: TimelineFileName) -> str:
        return f"{HUDI}/{name}"

    def files(self, value: Timeline) -> Steps[list[tuple[str, bytes]]]:
        found: list[tuple[str, bytes]] = []
        for pending in value.pending:
            if pending.version == value.version:
                found += [(path, b"") for path in begun_paths(pending.requested)]
        for completion in value.completions:
            if completion.version == value.version and not completion.adopted:
                found.append((completed_path(completion), b""))
        return found
        yield


def begun_paths(requested: Instant) -> tuple[str, str]:
    return f"{HUDI}/{requested}.deltacommit.inflight", f"{HUDI}/{requested}.deltacommit.requested"


def completed_path(completion: Completion) -> str:
    return f"{HUDI}/{TimelineFileName(completion.requested, completion.action, 'completed', completion.completed)}"


# --- local states -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=None)
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
    if isinstance(value, types.FunctionType):
        return (value.__code__, *(freeze(cell.cell_contents) for cell in value.__closure__ or ()))
    if isinstance(value, FakeProjector):
        return "projector"
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


@dataclass
class Actor:
    """Something that runs a protocol. `nonce` is the stem of the texts that nobody else has used."""

    name: str
    start: Callable[[], Generator[Any, Any, Any]]
    local: list[Local] = field(default_factory=list)
    keys: dict[Hashable, int] = field(default_factory=dict)


@dataclass
class Local:
    """A local state: the operation that comes next (None at the end), and one history that leads here."""

    step: Any
    history: tuple[object, ...]
    result: object = None
    moves: dict[Hashable, int] = field(default_factory=dict)


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
        check_leftovers: bool = False,
    ) -> None:
        self.actors = actors
        self.deletions = deletions
        self.faulty = faulty
        self.check_leftovers = check_leftovers
        self._stores: list[Objects] = []
        self._store_ids: dict[Objects, int] = {}
        log = tuple(sorted(data for path, data in objects.items() if path.startswith(VERSIONS)))
        self.first = self._store({**objects, LOG: log, FAULTS: faults, FLYING: None})
        self._moves: list[dict[int, tuple[tuple[int, int], ...]]] = [{} for _ in actors]
        self._changes: dict[int, tuple[int, ...]] = {}
        self.states = 0

    def _store(self, objects: dict[str, Hashable]) -> int:
        key = tuple(sorted(objects.items(), key=lambda item: item[0]))
        found = self._store_ids.get(key)
        if found is None:
            found = self._store_ids[key] = len(self._stores)
            self._stores.append(key)
            check_store(objects)
        return found

    def search(self, limit: int | None = None, depth: int | None = None) -> int:
        """Visit every state that can be reached; returns how many there are. Raises `Violation` with the trace."""
        start = (self.first, *(self._enter(actor, ()) for actor in self.actors))
        parents: dict[int, int] = {}
        code = _pack(start)
        parents[code] = -1
        frontier = deque([code])
        ends: list[int] = []
        count = len(self.actors)
        moves, changes = self._moves, self._changes
        masks = [~(_MASK << (_BITS * (i + 1)) | _MASK) for i in range(count)]
        levels, left = 0, 1
        while frontier:
            code = frontier.popleft()
            store = code & _MASK
            rest = code >> _BITS
            moved = False
            try:
                for i in range(count):
                    local = rest & _MASK
                    rest >>= _BITS
                    key = store << _BITS | local
                    found = moves[i].get(key)
                    if found is None:
                        found = moves[i][key] = self._step(self.actors[i], store, local)
                    for to_store, to_local in found:
                        moved = True
                        to = code & masks[i] | to_local << (_BITS * (i + 1)) | to_store
                        if to not in parents:
                            parents[to] = code
                            frontier.append(to)
                found_stores = changes.get(store)
                if found_stores is None:
                    found_stores = changes[store] = self._change(store)
                for to_store in found_stores:
                    to = code & ~_MASK | to_store
                    if to not in parents:
                        parents[to] = code
                        frontier.append(to)
                if self.check_leftovers and not moved:
                    check_end(dict(self._stores[store]))
            except Violation as violation:
                raise Violation(f"{violation}\n" + self.trace(parents, code)) from violation
            left -= 1
            if left == 0:
                levels, left = levels + 1, len(frontier)
                if depth is not None and levels >= depth:
                    break
            if limit is not None and len(parents) > limit:
                break
        self.states = len(parents)
        self.parents = parents
        return self.states

    # --- one step ---------------------------------------------------------------------------------------------------

    def _step(self, actor: Actor, store: int, local: int) -> tuple[tuple[int, int], ...]:
        step = actor.local[local].step
        if step is None:
            return ()
        objects = dict(self._stores[store])
        found = []
        for reply, after in self._perform(step, objects):
            to_store = store if after is None else self._store(after)
            to_local = self._reply(actor, local, reply)
            ended = actor.local[to_local]
            if ended.step is None:
                check_result(ended.result, dict(self._stores[to_store]))
            while isinstance(actor.local[to_local].step, Saw):
                check_saw(actor.local[to_local].step, objects)
                to_local = self._reply(actor, to_local, None)
            found.append((to_store, to_local))
        return tuple(found)

    def _perform(self, step: Step | Pick, objects: dict[str, Any]) -> list[tuple[object, dict[str, Hashable] | None]]:
        match step:
            case Read(path):
                return [(objects.get(path), None)]
            case Exists(path):
                return [(_stat(path) if path in objects else None, None)]
            case List(folder):
                return [([_stat(p) for p in sorted(objects) if p.rpartition("/")[0] == folder], None)]
            case Walk():
                return [([_stat(p) for p in sorted(objects) if not p.startswith((".hoodie", "!"))], None)]
            case Delete(path):
                return [(None, {p: data for p, data in objects.items() if p != path})]
            case Pick():
                tail = decoded(objects[LOG][-1])
                return [((tail, p.requested), None) for p in tail.pending]
            case Put(path, data):
                landed = land(objects, path, data)
                found = [(landed is not None, landed)]
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
        objects: dict[str, Any] = dict(self._stores[store])
        found = []
        if objects[FLYING] is not None:
            path, data = objects[FLYING]
            found.append(self._store({**(land(objects, path, data) or objects), FLYING: None}))
        if self.deletions:
            tail = len(objects[LOG])
            genuine = [p for p in sorted(objects) if p.startswith(VERSIONS) and objects[p] in objects[LOG]]
            ghosts = [p for p in objects if p.startswith(VERSIONS) and objects[p] not in objects[LOG]]
            for path in [*ghosts, *(genuine[:1] if len(genuine) > 1 else [])]:
                found.append(self._store({p: data for p, data in objects.items() if p != path}))
            assert tail
        return tuple(found)

    # --- replaying --------------------------------------------------------------------------------------------------

    def _enter(self, actor: Actor, history: tuple[object, ...]) -> int:
        generator = actor.start()
        nonces = 0
        step: Any = None
        result: object = None
        waiting = list(reversed(history))
        reply: object = None
        try:
            while True:
                step = generator.send(reply)
                match step:
                    case Nonce():
                        nonces += 1
                        reply = f"{actor.name}{nonces}"
                    case Now() | StoreNow():
                        reply = 0
                    case Pause() | Settle():
                        reply = None
                    case _ if waiting:
                        reply = waiting.pop()
                    case _:
                        break
            key: Hashable = (nonces, frames(generator))
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

    def trace(self, parents: dict[int, int], code: int) -> str:
        """The steps that led to a state, in words."""
        path = []
        while code != -1:
            path.append(code)
            code = parents[code]
        path.reverse()
        lines = []
        for before, after in zip(path, path[1:], strict=False):
            a, b = _unpack(before, len(self.actors)), _unpack(after, len(self.actors))
            for i, actor in enumerate(self.actors, 1):
                if a[i] != b[i]:
                    lines.append(f"  {actor.name}: {_words(actor.local[a[i]].step)}")
                    break
            else:
                gone = set(dict(self._stores[a[0]])) - set(dict(self._stores[b[0]]))
                lines.append(f"  deleted: {gone}" if gone else "  a put landed late")
        last = _unpack(path[-1], len(self.actors))
        lines += [f"  then {actor.name}: {_words(actor.local[i].step)}" for actor, i in zip(self.actors, last[1:], strict=True)]
        return "\n".join(lines)


_BITS = 24
_MASK = (1 << _BITS) - 1


def _pack(parts: Sequence[int]) -> int:
    return sum(part << (_BITS * i) for i, part in enumerate(parts))


def _unpack(code: int, count: int) -> list[int]:
    return [code >> (_BITS * i) & _MASK for i in range(count + 1)]


@lru_cache(maxsize=None)
def _stat(path: str) -> Stat:
    return Stat(path, 0, 0)


def _words(step: object) -> str:
    if isinstance(step, Put) and step.path.startswith(VERSIONS):
        value = decoded(step.data)
        return f"put {value.version} {value.nonce} pending={[p.requested[-3:] for p in value.pending]}"
    return str(step)[:150]


def land(objects: dict[str, Any], path: str, data: bytes) -> dict[str, Any] | None:
    """The store after a put; None if the path is taken. A version right after the tail is genuine, any other a ghost."""
    if path in objects:
        return None
    after = {**objects, path: data}
    if path.startswith(VERSIONS) and path == version_path(decoded(objects[LOG][-1]).version + 1):
        after[LOG] = (*objects[LOG], data)
        check_event(decoded(objects[LOG][-1]), decoded(data))
    return after


# --- the promises -----------------------------------------------------------------------------------------------------


def check_event(before: Timeline, after: Timeline) -> None:
    """A genuine value keeps everything that was decided before it, and decides nothing twice."""
    if after.version != before.version + 1:
        raise Violation(f"version {after.version} after {before.version}")
    if after.completions[: len(before.completions)] != before.completions:
        raise Violation("a commit was lost from the timeline")
    outcomes = [c.requested for c in after.completions] + [r.requested for r in after.rolled_back]
    if len(outcomes) != len(set(outcomes)) or set(outcomes) & {p.requested for p in after.pending}:
        raise Violation(f"an instant with two outcomes: {outcomes}")


def check_store(objects: dict[str, Any]) -> None:
    """Files of commits are there; Hudi's directory is a prefix, and all of what stands below the newest version."""
    tail = decoded(objects[LOG][-1])
    if objects.get(version_path(tail.version)) != objects[LOG][-1]:
        raise Violation("the tail is gone")
    for completion in tail.completions:
        for file in completion.files:
            if file.path not in objects:
                raise Violation(f"a file of a committed instant was removed: {file.path}")
        for path in begun_paths(completion.requested):
            if path not in objects:
                raise Violation(f"Hudi never saw the instant begin, or forgot it: {path}")
        if completed_path(completion) not in objects and completion.version < tail.version:
            raise Violation(f"a hole in Hudi's directory: {completed_path(completion)}")
    mine = {completed_path(c) for c in tail.completions}
    for path in objects:
        if path.startswith(HUDI) and "_" in path and path not in mine:
            raise Violation(f"Hudi was told of a commit that never was: {path}")


def check_result(result: object, objects: dict[str, Any]) -> None:
    """What a writer told its caller is so."""
    tail = decoded(objects[LOG][-1])
    match result:
        case ("acknowledged", requested):
            done = next((c for c in tail.completions if c.requested == requested), None)
            if done is None:
                raise Violation(f"an acknowledged commit was lost: {requested}")
            if completed_path(done) not in objects:
                raise Violation(f"an acknowledged commit is not in Hudi's directory: {requested}")
        case ("expired", requested):
            if any(c.requested == requested for c in tail.completions):
                raise Violation(f"a writer was told that its commit was rolled back, but it was not: {requested}")


def check_saw(saw: Saw, objects: dict[str, Any]) -> None:
    """An incremental read, by version, misses no commit and sees none that is not."""
    truth = decoded(objects[LOG][-1])
    since = saw.before.version if saw.before else -1
    if saw.after.version < since:
        raise Violation("a reader went back in time")
    due = [c for c in truth.completions if since < c.version <= saw.after.version]
    got = [c for c in saw.after.completions if c.version > since]
    if due != got:
        raise Violation(f"a reader missed a commit, or saw one that is not: {due} {got}")


def check_end(objects: dict[str, Any]) -> None:
    """Nobody has anything left to do, so nobody will remove what a given-up instant left in Hudi's directory."""
    for given_up in decoded(objects[LOG][-1]).rolled_back:
        for path in begun_paths(given_up.requested):
            if path in objects:
                raise Violation(f"a file of a given-up instant stays in Hudi's directory: {path}")

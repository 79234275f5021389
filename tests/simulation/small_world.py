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

**What an actor has seen.** Generators cannot be copied, so a local state keeps one representative history of replies.
The generator that came by it goes on with the first reply to come; for each other reply a new one is replayed from the
history. Both are memoised: the search itself only compares numbers. Two histories are the same local state if
they lead to the same chain of suspended frames: code, instruction, locals and captured variables of the generator and
of each that it delegates to, plus the number of nonces drawn. (`next_version` and `_claim` draw one for each attempt,
and those at one version, or time, may share one without harm, as nothing of the others can be there or land any more:
they are counted by the replies that were lost.) That determines the future: the protocols keep no state outside their
frames, and the one thing in a frame that Python does not show, its value stack, is a function of what it shows. An
operand stack at a given instruction has a given shape, and all that these generators leave on it across a `yield` are
iterators of `for` loops. Those run over values without repetition that are themselves locals or functions of locals, so
the loop's variable, a local too, tells how far they are. `freeze` refuses what it does not know.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from crdt_mor.log.paths import VERSIONS
from crdt_mor.log.steps import (
    Copy,
    Delete,
    GetStat,
    List,
    Put,
    Read,
    Step,
    Walk,
)  # fmt: skip
from tests.simulation.landing import land
from tests.simulation.local_states import Actor, Block, Local, Running, freeze, steps_between
from tests.simulation.promises import check_end, check_result, check_saw, check_store
from tests.simulation.small_store import (
    FAULTS,
    FLYING,
    LATE,
    LOG,
    Objects,
    Pick,
    Remove,
    Saw,
    Violation,
    decoded,
    listed,
    removed,
    stat_of,
    stood,
    walked,
)


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
        versions: int | None = None,
    ) -> None:
        """versions: a state with more is not gone on from, where actors may undo for ever what each other does."""
        self.actors = actors
        self.deletions = deletions
        self.faulty = faulty
        self.reads_wait = reads_wait
        self.check_leftovers = check_leftovers
        self.store_now = store_now
        self.versions = versions
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
        return [self._log(self._store_ids[store]) for store in self.stores]

    def _log(self, store: int) -> Sequence[bytes]:
        objects: dict[str, Any] = dict(self._stores[store])
        log: Sequence[bytes] = objects[LOG]
        return log

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
        if self.versions is not None and len(self._log(store)) > self.versions:
            return
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
                return [(stat_of(path) if path in objects else None, None)]
            case List(folder):
                return [(listed(objects, folder), None)]
            case Walk():
                return [(walked(objects), None)]
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

    def _enter(self, actor: Actor, history: tuple[object, ...], running: Running | None = None) -> int:
        """The local state that a history leads to. running: the actor that came by all of it but the last reply."""
        replies = history[-1:]
        if running is None:
            running, replies = Running(actor, self.store_now), history
        result: object = None
        try:
            running.go_on(replies)
            key: Hashable = running.key
        except StopIteration as end:
            running.step, result = None, end.value
            key = ("end", result)
        found = actor.keys.get(key)
        if found is None:
            found = actor.keys[key] = len(actor.local)
            actor.local.append(Local(running.step, history, result, running))
        else:
            running.generator.close()
        return found

    def _reply(self, actor: Actor, local: int, reply: object) -> int:
        state = actor.local[local]
        key = freeze(reply)
        found = state.moves.get(key)
        if found is None:
            running, state.running = state.running, None
            found = state.moves[key] = self._enter(actor, (*state.history, reply), running)
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
                    lines += [f"  {actor.name}: {_words(step)}" for step in steps_between(actor, a, b)]
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


def _differs(step: Step | Pick | Saw, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether a step that changes nothing in `before` would not do the same in `after`."""
    match step:
        case List(folder):
            return listed(before, folder) != listed(after, folder)
        case Walk():
            return walked(before) != walked(after)
        case Pick():
            return bool(before[LOG] != after[LOG])
        case Copy(source, target):
            return bool(before.get(source) != after.get(source) or before.get(target) != after.get(target))
        case Read(path) | GetStat(path) | Put(path) | Delete(path):
            return bool(before.get(path) != after.get(path))
    return False


def _words(step: object) -> str:
    if isinstance(step, Put) and step.path.startswith(VERSIONS):
        value = decoded(step.data)
        return f"put {value.version} {value.nonce} pending={[p.requested[-3:] for p in value.pending]}"
    return str(step)[:150]

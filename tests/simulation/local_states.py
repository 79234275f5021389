"""Where an actor of a small world stands: two local states are one if their chains of suspended frames are equal.

`small_world` says why that determines the future.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from crdt_mor.events.group import _Posted
from crdt_mor.events.one_event import ClaimedWrite
from crdt_mor.hudi.actions import Action
from crdt_mor.log import posts
from crdt_mor.log.combining import Crowd, Posting
from crdt_mor.log.posts import Turn
from crdt_mor.log.projection import EventFile
from crdt_mor.log.publish import Shortcuts
from crdt_mor.log.steps import MakeDurable, Nonce, Now, Pause, Put, StoreNow, Touch, Wait
from crdt_mor.model.slices import Slices
from tests.driving import nonce_in_hex, one_by_one
from tests.simulation.small_store import FakeProjector

_INTERNED: dict[Hashable, int] = {}
_BY_IDENTITY: dict[int, tuple[object, Hashable]] = {}
_CHANGING = (ClaimedWrite, Crowd, Posting, Shortcuts, Turn, _Posted)
"""Classes whose objects change, or hold one that does."""


POSTS_MAX = 4
"""How many posts are in a small world, at most. So after some looks at one version it is the turn of each owner,
however often it looks from there on."""


def freeze(value: object) -> Hashable:
    """A hashable stand-in that is equal for equal values."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    frozen = _FROZEN.get(kind)
    if frozen is None:
        frozen = _FROZEN[kind] = _frozen_by(kind)
    return frozen(value)


def _frozen_by(kind: type) -> Callable[[Any], Hashable]:
    """What makes the stand-in for objects of a class."""
    for classes, frozen in _FROZEN_BY:
        if issubclass(kind, classes):
            return frozen
    if is_dataclass(kind):
        return _immutable if kind.__dataclass_params__.frozen else _changing  # type: ignore[attr-defined]
    raise TypeError(f"cannot freeze {kind!r}")


def _sequence(value: Sequence[object]) -> Hashable:
    return (type(value).__name__, *[freeze(item) for item in value])


def _function(value: types.FunctionType) -> Hashable:
    return (value.__code__, *[freeze(cell.cell_contents) for cell in value.__closure__ or ()])


def _turn(value: Turn) -> Hashable:
    return _changing(replace(value, looks=min(value.looks, max(posts.GATHERING_LOOKS, posts.LOOKS_A_RANK * POSTS_MAX))))


def _changing(value: object) -> Hashable:
    """What changes is not known by its identity."""
    return (type(value).__name__, _parts(value))


def _immutable(value: object) -> Hashable:
    known = _BY_IDENTITY.get(id(value))
    if known is None:  # the object is kept, so its identity stays its own
        known = _BY_IDENTITY[id(value)] = value, _INTERNED.setdefault((type(value), _parts(value)), len(_INTERNED))
    return ("#", known[1])


_PLAIN = frozenset({type(None), str, int, float, bytes, bool})
_FROZEN_BY: tuple[tuple[type | tuple[type, ...], Callable[[Any], Hashable]], ...] = (
    (tuple(_PLAIN), lambda value: value),
    ((list, tuple, Slices), _sequence),
    ((set, frozenset), lambda value: frozenset([freeze(item) for item in value])),
    ((dict, types.MappingProxyType), lambda value: ("dict", *[freeze(item) for item in value.items()])),
    (types.FunctionType, _function),
    (types.MethodType, lambda value: ("method", value.__name__, freeze(value.__self__))),
    (partial, lambda value: ("partial", freeze(value.func), freeze(value.args), freeze(value.keywords))),
    (EventFile, lambda value: ("file", value.path, value.make(), value.durable)),
    (FakeProjector, lambda _: "projector"),
    (Action, lambda value: ("action", value.name)),
    (types.GeneratorType, lambda value: (value.__name__, value.gi_frame and frames(value))),
    ((pa.Schema, pa.DataType), lambda value: ("schema", str(value))),
    (suppress, lambda _: "suppress"),
    # What an exception carries, such as the value that refused, stands beside its text.
    (BaseException, lambda value: (type(value), str(value), freeze(vars(value)))),
    (Turn, _turn),
    (_CHANGING, _changing),
)
_FROZEN: dict[type, Callable[[Any], Hashable]] = {}
"""By class what makes the stand-in for its objects, as far as it was asked for."""


def _parts(value: Any) -> Hashable:
    return tuple([freeze(getattr(value, name)) for name in value.__dataclass_fields__])


def frames(generator: Generator[Any, Any, Any]) -> Hashable:
    """What the future of a suspended generator depends on; see the top of this module for why that is all of it."""
    chain: list[Hashable] = []
    inner: Any = generator
    while inner is not None:
        frame = inner.gi_frame
        held = tuple([(name, freeze(value)) for name, value in sorted(frame.f_locals.items())])
        chain.append((frame.f_code, frame.f_lasti, held))
        inner = inner.gi_yieldfrom
    return tuple(chain)


def attempt_of(generator: Any) -> str | None:
    """What an attempt is at that a nonce is drawn for, each time anew: a version, or a time that is claimed."""
    while generator.gi_yieldfrom is not None:
        generator = generator.gi_yieldfrom
    frame = generator.gi_frame
    match frame.f_code.co_name:
        case "next_version":
            return str(frame.f_locals["tail"].version + 1)
        case "_claim":
            return str(frame.f_locals["requested"])
    return None


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


class Running:
    """An actor that runs: its generator, which waits for a reply, and how many nonces it drew and replies it lost."""

    def __init__(self, actor: Actor, store_now: int) -> None:
        self.name, self.store_now = actor.name, store_now if actor.store_now is None else actor.store_now
        self.protocol = actor.start()
        self.generator = one_by_one(self.protocol)
        self.nonces = self.lost = 0
        self.step: Any = None

    def go_on(self, replies: Sequence[object]) -> None:
        """Run with these replies of the store, up to the question that they leave open; `StopIteration` at the end."""
        waiting = list(reversed(replies))
        while True:
            reply: object = None
            match self.step:
                case Nonce() if (attempt := attempt_of(self.protocol)) is not None:
                    reply = nonce_in_hex(f"{self.name}{self.nonces}.{self.lost}.{attempt}")
                case Nonce():
                    self.nonces += 1
                    reply = nonce_in_hex(f"{self.name}{self.nonces}")
                case Now():
                    reply = 0
                case StoreNow():  # after the last sweep, as in life, by which a sweep knows itself done
                    reply = self.store_now
                case None | Pause() | Wait() | MakeDurable() | Touch():
                    reply = None
                case _ if waiting:
                    reply = waiting.pop()
                    self.lost += isinstance(self.step, Put) and reply is None
                case _:
                    return
            self.step = self.generator.send(reply)

    @property
    def key(self) -> Hashable:
        """What its future depends on."""
        return (self.nonces, self.lost, frames(self.generator))


@dataclass
class Local:
    """A local state: the operation that comes next (None at the end), and one history that leads here.

    running: the actor that came by this history, until it goes on.
    """

    step: Any
    history: tuple[object, ...]
    result: object = None
    running: Running | None = None
    moves: dict[Hashable, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Block:
    """What an actor does next in a given store: reads, each with the local state after it, and then one change of the
    store (several `ends`: a put may be hit by a fault, a cleaner may choose)."""

    ends: tuple[tuple[int, int], ...]
    reads: tuple[tuple[Any, int], ...]


def steps_between(actor: Actor, a: int, b: int) -> list[object]:
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

"""Where an actor of a small world stands: two local states are one if their chains of suspended frames are equal.

`small_world` says why that determines the future.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Generator, Hashable
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
    if value is None or isinstance(value, (str, int, float, bytes, bool)):
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
    if isinstance(value, pa.Schema):
        return ("schema", str(value))
    if isinstance(value, suppress):
        return "suppress"
    if isinstance(value, BaseException):
        return (type(value), str(value), freeze(vars(value)))  # what it carries, such as the value that refused
    if isinstance(value, Turn):
        value = replace(value, looks=min(value.looks, max(posts.GATHERING_LOOKS, posts.LOOKS_A_RANK * POSTS_MAX)))
    if isinstance(value, _CHANGING):  # what changes is not known by its identity
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

"""What a put does to the store of a small world, and protocols that run where nobody else does anything meanwhile."""

from __future__ import annotations

from typing import Any, TypeVar

from crdt_mor.log.paths import VERSIONS, version_path
from crdt_mor.log.steps import (
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
    Steps,
    StoreNow,
    Touch,
    Wait,
    Walk,
)  # fmt: skip
from tests.driving import nonce_in_hex, one_by_one
from tests.simulation.promises import check_event, check_open_plans
from tests.simulation.small_store import (
    LATE,
    LOG,
    Violation,
    barrier_of,
    barriers_kept,
    decoded,
    listed,
    removed,
    stat_of,
    walked,
)

T = TypeVar("T")


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


def looked(steps: Steps[T], objects: dict[str, Any]) -> T:
    """What a protocol that only looks ends in, where nobody else does anything meanwhile."""
    reply: object = None
    single = one_by_one(steps)
    try:
        while True:
            match single.send(reply):
                case Read() | GetStat() | List() as look:
                    reply = _seen(objects, look)
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
                case Read() | GetStat() | List():
                    reply = _seen(objects, step)
                case Walk():
                    reply = walked(objects)
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
                    reply = nonce_in_hex(f"{who}{nonces}")
                case Now():
                    reply = 0
                case StoreNow():
                    reply = store_now
                case MakeDurable() | Pause() | Wait() | Touch():
                    pass
                case _:
                    raise TypeError(f"no such step: {step!r}")
    except StopIteration as end:
        found: T = end.value
        return found, objects


def _seen(objects: dict[str, Any], look: Read | GetStat | List) -> object:
    match look:
        case Read(path):
            return objects.get(path)
        case GetStat(path):
            return stat_of(path) if path in objects else None
        case List(folder):
            return listed(objects, folder)

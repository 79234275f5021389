"""Who lives in the small world: writers, a cleaner and a reader, all made of the real protocols."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from crdt_mor.errors import WriterExpiredError
from crdt_mor.model.instant import Instant
from crdt_mor.model.names import LogFileName, bucket_file_id
from crdt_mor.model.timeline import DataFile, Pending, Timeline
from crdt_mor.ops import lifecycle
from crdt_mor.ops.protocol import Publisher, find_tail, version_path
from crdt_mor.ops.steps import Put
from tests.simulation.small_world import PROJECTOR, Pick, Saw, begun_paths

PUBLISHER = Publisher(PROJECTOR)
GENESIS = Timeline.genesis("", "the-table")

Run = Generator[Any, Any, Any]


def data_path(requested: Instant) -> str:
    return str(LogFileName(bucket_file_id(0), requested))


def writer() -> Run:
    """One commit of one file."""
    try:
        value, begun = yield from lifecycle.begin(PUBLISHER, GENESIS, 1 << 60)
    except WriterExpiredError:
        return ("expired", None)
    return (yield from finish(value, begun))


def finish(value: Timeline, begun: Pending) -> Run:
    """A write from its begin on: stage, after a look whether it is still pending, and complete."""
    requested = begun.requested
    tail = yield from find_tail(value)
    if tail.find_pending(requested) is None:
        return ("expired", requested)
    path = data_path(requested)
    if not (yield Put(path, b"rows")):
        yield from lifecycle.give_up(PUBLISHER, value, requested, [path])
        return ("expired", requested)
    return (yield from complete(value, begun))


def complete(value: Timeline, begun: Pending) -> Run:
    """A write that has staged its file."""
    file = DataFile(data_path(begun.requested), 1, 1)
    try:
        yield from lifecycle.complete(PUBLISHER, value, begun, "UPSERT", [file], None)
    except WriterExpiredError:
        return ("expired", begun.requested)
    return ("acknowledged", begun.requested)


def latecomer(value: Timeline, begun: Pending) -> Run:
    """A write that has derived its completion and stalls before the put, then dies after it."""
    file = DataFile(data_path(begun.requested), 1, 1)
    late = value.complete("late", 0, begun.requested, "UPSERT", [file])
    yield Put(version_path(late.version), late.encode())


def cleaner() -> Run:
    """Gives up whatever is pending, at any time, one after the other."""
    while True:
        yield from _clean_one()


def _clean_one() -> Run:
    tail, requested = yield Pick()
    yield from lifecycle.give_up(PUBLISHER, tail, requested, None)


def reader() -> Run:
    """Reads incrementally, for ever."""
    known = None
    while True:
        known = yield from _poll(known)


def _poll(known: Timeline | None) -> Run:
    tail = yield from find_tail(known)
    yield Saw(known, tail)
    return tail


def begun_world(count: int) -> tuple[dict[str, bytes], Timeline]:
    """Objects of a table in which `count` writes have begun, and all but the newest version are gone."""
    value = GENESIS
    for i in range(count):
        value = value.begin(f"begun{i}", 0)
    objects = {path: b"" for p in value.pending for path in begun_paths(p.requested)}
    return {**objects, version_path(value.version): value.encode()}, value

"""Histories of small worlds, an event a letter: commits, compactions, writes that end late or never, archiving."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from crdt_mor.model.names import TimelineFileName
from crdt_mor.model.timeline import Timeline
from crdt_mor.timeline import archive
from crdt_mor.timeline.steps import Steps
from tests.simulation.actors import PUBLISHER, Run, complete, data_path, writer
from tests.simulation.holding_bases import compactor
from tests.simulation.small_world import HUDI, LOG, alone, decoded, settled, stood

KEPT = 1
"""An archiver leaves so many of the newest commits."""


def archiver(value: Timeline) -> Run:
    """Archives what may go, in one event."""
    done = yield from archive.archive_once(PUBLISHER, value, KEPT)
    return ("archived", done.value.archive.watermark)


def happened(event: str, n: int, objects: dict[str, Any]) -> dict[str, Any]:
    """The store after an event of a history."""
    value = decoded(objects[LOG][-1])
    if event in "fg":
        path = data_path(value.pending[0].requested)
        objects = {**objects, path: b"rows"}
    if event == "a":
        objects = stood(settled(objects))
    steps: dict[str, Callable[[], Steps[Any]]] = {
        "c": writer,
        "k": partial(compactor, value),
        "b": lambda: PUBLISHER.publish(lambda tail, wall_ms: tail.begin(f"begun{n}", wall_ms)),
        "f": lambda: complete(value, value.pending[0]),
        "g": lambda: PUBLISHER.publish(
            lambda tail, wall_ms: tail.roll_back(f"given-up{n}", wall_ms, tail.pending[0].requested)
        ),
        "d": lambda: PUBLISHER.publish(lambda tail, _: tail.decide(f"decided{n}", 0)),
        "a": partial(archiver, value),
    }
    _, objects = alone(steps[event](), objects, f"h{n}.")
    return objects


def named_in(path: str) -> TimelineFileName | None:
    """The name of a file in Hudi's active timeline."""
    folder, _, name = path.rpartition("/")
    return TimelineFileName.parse(name) if folder == HUDI else None


def data_files_in(objects: Iterable[str]) -> set[str]:
    """The data files of a store."""
    return {path for path in objects if (path[0] == "." and "hoodie" not in path) or path.endswith(".parquet")}

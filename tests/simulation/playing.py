"""Histories of small worlds, an event a letter: commits, compactions, writes that end late or never, archiving.

And what such a history leads to: sweeps, the data files, what Hudi's readers see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from crdt_mor.events import archive
from crdt_mor.log.steps import Steps
from crdt_mor.model.instant import LAST
from crdt_mor.model.names import LogFileName, TimelineFileName, data_file_name
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import Completion, DataFile
from tests.simulation.actors import PUBLISHER, Run, complete, data_path, sweeper, writer
from tests.simulation.holding_bases import compactor, logs_shown
from tests.simulation.landing import alone
from tests.simulation.small_store import HUDI, LOG, decoded, settled, stood

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


def swept(objects: dict[str, Any]) -> dict[str, Any]:
    """The store after two sweeps: the first deletes, the second sees that nothing is left."""
    for n in range(2):
        who = f"again{len(objects[LOG])}.{n}."
        _, objects = alone(sweeper(decoded(objects[LOG][-1])), objects, who, store_now=20 + n)
    return objects


def logs_hudi_shows(objects: dict[str, Any]) -> list[str]:
    """The log files whose rows Hudi's readers see, by the rule that they have.

    An instant older than all names of the active timeline is committed, and was completed when it was requested.
    """
    names = [name for path in objects if (name := named_in(path)) is not None]
    completed = {name.requested: name.completed for name in names if name.state == "completed"}
    start = min((name.requested for name in names), default=LAST)
    seen = []
    for path in objects:
        file = data_file_name(path) if not path.startswith(".hoodie") else None
        if file is not None and (file.instant in completed or file.instant < start):
            ended = completed.get(file.instant) or file.instant
            action = "deltacommit" if isinstance(file, LogFileName) else "commit"
            seen.append(Completion(file.instant, ended, 0, "", action, "", (DataFile(path, 1, 1),)))
    return logs_shown(seen, objects)

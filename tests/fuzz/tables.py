"""Whole tables with one hostile object: what a user of the table does to it, as far as that gets."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import crdt_mor as mor
from crdt_mor.store.memory import MemoryStore
from crdt_mor.testing.clock import SimulatedEnvironment
from tests.fuzz import corpus

STEPS: Final[tuple[Callable[[mor.Table], object], ...]] = (
    lambda table: table.scan().to_arrow(),
    lambda table: table.scan(filter="n > 1 AND part = 'x'", columns=["id"]).to_arrow(),
    lambda table: table.changes().to_arrow(),
    lambda table: (
        table.inspect.timeline(),
        table.inspect.pending(),
        table.inspect.files(),
        table.history(),
        table.rules,
        table.maintenance.savepoints(),
    ),
    lambda table: table.verify(),
    lambda table: table.upsert(corpus.rows(7).rename_columns(["id", "part", "n", "cost", "day", "at", "tags"])),
    lambda table: table.maintenance.compact(log_files_min=1),
    lambda table: table.maintenance.clean(keep=timedelta(days=1)),
    lambda table: table.maintenance.archive(keep_commits=1),
)
"""What is done to a table, each step whether or not those before it were refused."""


@cache
def _objects() -> Mapping[str, bytes]:
    return corpus.objects_of(corpus.table().place.store)


def seeds() -> list[bytes]:
    """An object of the table each, and its path behind it."""
    return [data + b"\n" + path.encode() for path, data in _objects().items()]


def used(data: bytes) -> None:
    """Use the table in which an object has these bytes, up to the last line, which is its path."""
    content, _, name = data.rpartition(b"\n")
    path = name.decode("utf-8", "replace")
    objects = dict(_objects())
    objects.pop(path, None)
    store = _store(objects)
    with suppress(mor.CrdtMorError):
        store.put(path, content)
    try:
        table = mor.Table(
            "simulated",
            opening=mor.Opening(
                store=store, environment=SimulatedEnvironment(corpus.table().place.environment.now_ms())
            ),
        )
    except mor.CrdtMorError:
        return
    for step in STEPS:
        with suppress(mor.CrdtMorError):
            step(table)


def _store(objects: Mapping[str, bytes]) -> MemoryStore:
    store = MemoryStore(corpus.table().place.environment.now_ms)
    store._objects.update({path: (data, store._clock()) for path, data in objects.items()})
    return store


# --- paths ------------------------------------------------------------------------------------------------------------


@cache
def _folder() -> Path:
    """A folder for a store and for what must stay as it is beside it; in memory, where the machine has such a place."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="crdt-mor-fuzz-", dir=shared if shared.is_dir() else None))


def is_inside(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether what a store does to the disk stays in its folder."""
    root = str(_folder() / "table")
    paths = [str(argument) for argument in arguments if isinstance(argument, str | Path) and "/" in str(argument)]
    return bool(paths) and all(
        path == root or (path.startswith(root + "/") and ".." not in path.split("/")) for path in paths
    )


def put_and_removed(path: str) -> None:
    """Let a store on a disk put, copy, touch, list and delete an object at a path of a stranger's."""
    outside, root = _folder() / "home.txt", _folder() / "table"
    if not outside.exists():
        outside.write_bytes(b"mine")
    store = mor.store.LocalStore(root)
    calls: list[Callable[[], object]] = [
        lambda: store.put(path, b"x", durable="content"),
        lambda: store.copy(path, f"{path}.copy"),
        lambda: store.read(path),
        lambda: store.stat(path),
        lambda: store.list(path),
        lambda: store.walk(path),
        lambda: store.parquet(path),
        lambda: store.delete(f"{path}.copy"),
        lambda: store.delete(path),
    ]
    for call in calls:
        with suppress(mor.CrdtMorError):
            call()
    if sorted(_folder().iterdir()) not in ([outside], [outside, root]) or outside.read_bytes() != b"mine":
        raise AssertionError(f"something was done outside of the table's folder. {path=}")


def remove_folder() -> None:
    """Remove the folder of the stores on a disk, once they are done with."""
    if _folder.cache_info().currsize:
        shutil.rmtree(_folder(), ignore_errors=True)
        _folder.cache_clear()

"""The action of Hudi's writer, which commits only to Hudi's timeline.

It takes turns with our writers, as docs/interop.md requires, with a correct clock. Between its request and completion
our updates wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from crdt_mor.columns.schema import TableSchema
from crdt_mor.model.instant import InstantTime, from_ms, to_ms
from crdt_mor.testing.simulation.altering import with_more
from crdt_mor.testing.simulation.hudi_writer import hudi_begins, hudi_completes, hudi_stages
from crdt_mor.testing.simulation.inside import tail_of
from crdt_mor.testing.simulation.ledger import KeyWrite, Write
from crdt_mor.testing.simulation.plan import Action, Given
from crdt_mor.testing.simulation.rows import frame_of, key_writes_of, keys_of, told_of
from crdt_mor.testing.simulation.world import Actor, World

TURN_S: Final = 0.1
"""Seconds between our writes and Hudi's."""

APART_MS: Final = 37
"""Distance of Hudi's times, so that none of ours is equal."""

HEARTBEAT_MS: Final = 120_000
"""Hudi refuses the commit of a writer silent for so long."""


def hudi(world: World, process: Actor, action: Action) -> str:
    if world.settings.rule not in ("latest", "ordering") or world.settings.expires:
        return "is a Hudi writer, and cannot merge this table's rows"
    if world.depth > 1 or world.move is not None:
        return "is a Hudi writer, and waits for its turn"
    rows, keys = with_more(world, action, action.rows), action.keys if world.settings.rule == "latest" else ()
    said: list[KeyWrite] = [*((key, "delete", {}) for key in keys), *key_writes_of(world, rows)]
    write = world.ledger.begin(Write(action.number, said, reported="not written"))
    text = f"is a Hudi writer, upserts {told_of(rows)}{' and deletes ' if keys else ''}{', '.join(keys)}"
    with _turn(world):
        is_done = _written(world, process, write, rows, keys)
    return f"{text}: write {write.number}{'' if is_done else ', and gives up after a long silence'}"


@contextmanager
def _turn(world: World) -> Iterator[None]:
    world.pass_time(TURN_S)
    world.hudi_is_writing = True
    try:
        yield
    finally:
        world.hudi_is_writing = False
        world.pass_time(TURN_S)


def _written(world: World, process: Actor, write: Write, rows: tuple[Given, ...], keys: tuple[str, ...]) -> bool:
    table, began_ms, requested = world.open_now(process), world.environment.now_ms(), _time(world)
    frame, deletes = frame_of(world, rows), keys_of(world, keys) if keys else None
    world.ledger.foreign[requested] = write.number
    hudi_begins(table, requested)
    stats = hudi_stages(table, frame, requested, deletes=deletes)
    if world.environment.now_ms() - began_ms >= HEARTBEAT_MS:
        return False
    # It reads its clock and puts its last file at the same moment, so its time is never behind.
    completed = _time(world)
    schema = TableSchema.from_json(tail_of(world.observer).schema).avro("simulated")
    hudi_completes(world.observer, requested, completed, stats, schema=schema)
    world.trace.add("hudi", requested, completed)
    write.reported, write.times = "committed", (requested, completed)
    return True


def _time(world: World) -> InstantTime:
    newest = max(world.environment.now_ms(), to_ms(tail_of(world.observer).clock), world.state.get("Hudi's clock", 0))
    world.state["Hudi's clock"] = newest + APART_MS
    return from_ms(newest + APART_MS)


ACTS: dict[str, Callable[[World, Actor, Action], str]] = {"commit as Hudi": hudi}

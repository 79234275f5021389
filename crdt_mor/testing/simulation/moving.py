"""The migrating actions: other buckets or merges, by a process that may die."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from crdt_mor import InvalidInputError
from crdt_mor.results import MigrationProgress
from crdt_mor.testing.simulation.invariants import BrokenPromiseError
from crdt_mor.testing.simulation.machine import Disk
from crdt_mor.testing.simulation.moves import Move
from crdt_mor.testing.simulation.plan import Action, Rule
from crdt_mor.testing.simulation.world import URI, Actor, World
from crdt_mor.testing.simulation.writing import end

_EXPIRY_S: Final = 700.0
"""Seconds after which a silent writer has expired."""


def migrate(world: World, process: Actor, action: Action) -> str:
    table, going_on = world.open_now(process), world.move is not None
    move = world.move or _begun(world, action)
    waits = world.depth == 1 and action.how.endswith("wait")

    def told(progress: MigrationProgress) -> None:
        if waits and progress.phase == "settle" and not progress.parts:
            _end_pending(world)

    text = f"{'goes on to move' if going_on else 'moves'} the table to {move}"
    try:
        table.maintenance.migrate(
            move.uri, store=process.calls.at(move.disk), pending="wait" if waits else "roll_back", on_progress=told,
            **move.wanted,
        )  # fmt: skip
    except InvalidInputError as error:
        if not world.ledger.erasing:
            raise BrokenPromiseError("no-surprise", f"migrate: {error}") from error
        if not move.disk.walk(""):
            world.move = None
        return f"{text}, and is refused: {str(error).partition(':')[0]}"
    world.look_at_history()
    return text


def _begun(world: World, action: Action) -> Move:
    asked: Rule | None = next((rule for rule in ("latest", "partial") if action.how.startswith(rule)), None)
    is_kept = world.settings.adds or world.settings.expires or asked == world.settings.rule
    rule = None if is_kept else asked
    disk = Disk(world.environment.now_ms)
    world.move = Move(f"{URI}.{action.number}", disk, 1 + int(action.pick * 3), rule)
    world.disks[world.move.uri] = disk
    return world.move


def _end_pending(world: World) -> None:
    for other in list(world.processes.values()):
        if other.tx is not None:
            world.lines.append(f"{'  ' * world.depth}{other.name} {end(world, other, Action(-1, 'end', 0))}")
    world.pass_time(_EXPIRY_S)


def give_up(world: World, process: Actor, action: Action) -> str:
    del action
    move = world.move
    if move is None:
        return "finds no migration to give up"
    try:
        done = world.open_now(process).maintenance.cancel_migration(store=process.calls.at(move.disk))
    except InvalidInputError:
        world.look_at_history()
        if world.move is move and move.disk.walk(""):
            raise
        return "finds the migration over instead of giving up"
    world.look_at_history()
    return f"gives the move to {move.uri} up{'' if done else ', before its begin'}"


def finish_move(world: World) -> None:
    world.look_at_history()
    move = world.move
    if move is None:
        return
    world.lines.append("at the end the migration is finished,")
    try:
        world.observer.maintenance.migrate(move.uri, store=move.disk, pending="roll_back", **move.wanted)
    except InvalidInputError:
        if not world.ledger.erasing:
            raise
        world.move = None
    world.look_at_history()


ACTS: dict[str, Callable[[World, Actor, Action], str]] = {
    "migrate": migrate,
    "give the migration up": give_up,
}

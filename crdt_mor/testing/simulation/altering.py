"""Actions on the names of a run's columns."""

from __future__ import annotations

from collections.abc import Callable

from crdt_mor import InvalidInputError, StorageUnavailableError
from crdt_mor.errors import CommitUnknownError
from crdt_mor.testing.faults import ProcessDied
from crdt_mor.testing.simulation.columns import Alteration
from crdt_mor.testing.simulation.invariants import BrokenPromiseError
from crdt_mor.testing.simulation.plan import Action, Given
from crdt_mor.testing.simulation.world import Actor, World


def rename(world: World, process: Actor, action: Action) -> str:
    columns = world.columns
    column = columns.alterable[int(action.pick * len(columns.alterable))]
    asked = columns.requested(column, f"{column} nr {action.number}")
    return f"calls {asked.old!r} {asked.new!r}{_alter(world, process, asked)}"


def drop(world: World, process: Actor, action: Action) -> str:
    choice = world.columns.droppable
    if not choice:
        return "finds no column to drop"
    asked = world.columns.requested(choice[int(action.pick * len(choice))], None)
    return f"drops the column {asked.old!r}{_alter(world, process, asked)}"


def _alter(world: World, process: Actor, asked: Alteration) -> str:
    try:
        if asked.new is None:
            process.table.alter(drop=[asked.old])
        else:
            process.table.alter(rename={asked.old: asked.new})
    except (ProcessDied, CommitUnknownError, StorageUnavailableError):
        asked.reported = "unknown"
        raise
    except InvalidInputError as error:
        asked.reported = "not written"
        world.look_at_history()
        if world.move is None and world.columns.names.get(asked.column) == asked.old:
            raise BrokenPromiseError("no-surprise", f"{asked} is refused: {error}") from error
        return f", and is refused: {str(error).partition(':')[0]}"
    except Exception:
        asked.reported = "not written"
        raise
    asked.reported = "committed"
    return ""


def with_more(world: World, action: Action, rows: tuple[Given, ...]) -> tuple[Given, ...]:
    more = dict.fromkeys(world.columns.more, action.number)
    return tuple({**row, **more} for row in rows)


ACTS: dict[str, Callable[[World, Actor, Action], str]] = {"rename": rename, "drop a column": drop}

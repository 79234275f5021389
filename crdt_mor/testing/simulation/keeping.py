"""The actions of maintenance, time, power cuts and ends of processes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from crdt_mor import CrdtMorError, InvalidInputError, SnapshotExpiredError
from crdt_mor.errors import (
    ErasureUnfinishedError,
    FutureSnapshotError,
    RestoreUnfinishedError,
    SchemaMismatchError,
    TableArrivingError,
    TableMovedError,
    UnsupportedFeatureError,
)
from crdt_mor.testing.simulation.invariants import BrokenPromiseError
from crdt_mor.testing.simulation.ledger import Landed
from crdt_mor.testing.simulation.plan import Action
from crdt_mor.testing.simulation.rows import keys_of
from crdt_mor.testing.simulation.world import Actor, World

_KEPT: Final = (timedelta(0), timedelta(minutes=10), None)
_GRACE: Final = (timedelta(0), timedelta(minutes=5), None)


def plan(world: World, process: Actor, action: Action) -> str:
    made = process.table.maintenance.plans.schedule(logs_only=action.how == "logs only")
    if not world.has_moved_from(process) and made:
        world.state.setdefault("plans", []).append(made)
    return f"plans a compaction{'' if made else ', of which nothing is due'}"


def _picked(world: World, action: Action) -> Any:
    plans = world.state.setdefault("plans", [])
    return plans[int(action.pick * len(plans))] if plans else None


def execute(world: World, process: Actor, action: Action) -> str:
    found = _picked(world, action)
    if found is None:
        return "finds no plan to execute"
    world.open_now(process).maintenance.plans.execute(found)
    return f"executes the plan of {found.barrier} without completing it"


def finish(world: World, process: Actor, action: Action) -> str:
    found = _picked(world, action)
    if found is None:
        return "finds no plan to complete"
    done = world.open_now(process).maintenance.compact(found)
    return f"compacts by the plan of {found.barrier}{'' if done else ', which is cancelled'}"


def cancel(world: World, process: Actor, action: Action) -> str:
    found = _picked(world, action)
    if found is None:
        return "finds no plan to cancel"
    done = world.open_now(process).maintenance.plans.cancel(found.barrier)
    return f"cancels the plan of {found.barrier}{'' if done else ', which is over'}"


def compact(world: World, process: Actor, action: Action) -> str:
    del world
    done = process.table.maintenance.compact(logs_only=action.how == "logs only")
    return f"compacts {len(done)} times{', logs alone' if action.how else ''}"


def clean(world: World, process: Actor, action: Action) -> str:
    commits, keep = 1 + int(action.pick * 3), _KEPT[int(action.pick * 97) % 3]
    world.state["history is given up"] = True
    process.table.maintenance.clean(keep, commits=commits, readers=_GRACE[int(action.pick * 31) % 3])
    return f"cleans: {commits} commits and {keep or 'no more'} of history stay"


def archive(world: World, process: Actor, action: Action) -> str:
    del world
    process.table.maintenance.archive(keep_commits=1 + int(action.pick * 3))
    return "archives"


def maintain(world: World, process: Actor, action: Action) -> str:
    del action
    world.state["history is given up"] = True
    done = process.table.maintenance.maintain(keep=timedelta(hours=2))
    failed = [one for one in done.actions if one.state == "failed"]
    if failed and not (world.troubles or process.calls.happened or world.ledger.erasing):
        raise BrokenPromiseError("no-surprise", f"maintain failed: {failed}")
    return "maintains the table"


def erase(world: World, process: Actor, action: Action) -> str:
    world.ledger.erasing[process.machine.process().program] = action.keys
    world.state["history is given up"] = True
    alterations = world.columns.changed
    names = [key.rpartition("/")[2] for key in action.keys]
    text = f"erases {', '.join(names)}"
    try:
        if world.settings.partitioned:
            process.table.maintenance.erase(keys_of(world, action.keys))
        else:
            process.table.maintenance.erase(keys=names)
    except ErasureUnfinishedError:
        return f"{text}, and waits for pending writes"
    except (InvalidInputError, SchemaMismatchError) as error:
        # A dead process can leave a savepoint or a migration, and the key may be renamed.
        if not (world.observer.maintenance.savepoints() or world.has_moved or world.columns.changed != alterations):
            raise
        return f"{text}, and is refused: {_first_words(error)}"
    return text


def savepoint(world: World, process: Actor, action: Action) -> str:
    name = f"s{action.number}"
    saved = world.open_now(process).maintenance.savepoint(name)
    if not world.has_moved_from(process):
        world.state.setdefault("savepoints", {})[name] = saved.at
    return f"saves the table's moment as {name}"


def drop_savepoint(world: World, process: Actor, action: Action) -> str:
    saved = world.state.get("savepoints", {})
    names = sorted(saved)
    if not names:
        return "finds no savepoint to drop"
    name = names[int(action.pick * len(names))]
    world.state["history is given up"] = True
    del saved[name]
    world.open_now(process).maintenance.drop_savepoint(name)
    return f"drops the savepoint {name}"


def restore(world: World, process: Actor, action: Action) -> str:
    ledger, saved = world.ledger, world.state.get("savepoints", {})
    points = [*saved.items(), *((one.completed, one.completed) for one in ledger.landed[-4:-1])]
    if not points or ledger.restoring:
        return "finds nothing to restore to"
    to, moment = points[int(action.pick * len(points))]
    before = list(ledger.landed)
    ledger.restoring.append(moment)
    world.state["history is given up"] = True
    try:
        process.table.maintenance.restore(to)
    except (InvalidInputError, SnapshotExpiredError, UnsupportedFeatureError, FutureSnapshotError) as error:
        world.look_at_history()
        if ledger.restoring:
            ledger.restoring.clear()
            return f"is not let restore to {to}: {_first_words(error)}"
    except RestoreUnfinishedError:
        pass
    except (TableMovedError, TableArrivingError):
        ledger.restoring.clear()
        raise
    world.look_at_history()
    _forget_savepoints(world, before)
    ledger.restoring.clear()
    return f"restores the table to {to}"


def _forget_savepoints(world: World, before: list[Landed]) -> None:
    if len(before) != len(world.ledger.landed):
        kept = {name: at for name, at in world.state.get("savepoints", {}).items()
                if all(one.completed > at or one in world.ledger.landed for one in before)}  # fmt: skip
        world.state["savepoints"] = kept


def wait(world: World, process: Actor, action: Action) -> str:
    del process
    world.pass_time(action.seconds)
    return f"waits for {action.seconds:g} s"


def cut_power(world: World, process: Actor, action: Action) -> str:
    del process, action
    if world.depth > 1:
        return "is spared: power is cut only between the actions of others"
    lost = [path for disk in world.disks.values() for path in disk.lose_power(world.chance)]
    for other in list(world.processes.values()):
        world.stop(other)
    return f"and all others lose power; gone or empty: {len(lost)} objects"


def restart(world: World, process: Actor, action: Action) -> str:
    del action
    world.stop(process)
    return "is killed, and started anew"


def _first_words(error: CrdtMorError) -> str:
    return str(error).partition(":")[0].partition(".")[0]


ACTS: dict[str, Callable[[World, Actor, Action], str]] = {
    "plan": plan, "execute": execute, "finish": finish, "cancel": cancel, "compact": compact, "clean": clean,
    "archive": archive, "maintain": maintain, "erase": erase, "savepoint": savepoint,
    "drop the savepoint": drop_savepoint, "restore": restore, "wait": wait, "cut the power": cut_power,
    "restart": restart,
}  # fmt: skip

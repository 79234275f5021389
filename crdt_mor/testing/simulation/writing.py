"""The writing actions: their calls, and their entries in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, Literal

import pyarrow as pa

from crdt_mor import Commit, CrdtMorError, InvalidInputError, SnapshotExpiredError, StorageUnavailableError
from crdt_mor.errors import (
    CommitUnknownError,
    EarlierWritePendingError,
    SchemaMismatchError,
    TableArrivingError,
    TableMovedError,
    WriterExpiredError,
)
from crdt_mor.merge.oracle import Row
from crdt_mor.testing.faults import ProcessDied
from crdt_mor.testing.simulation.altering import with_more
from crdt_mor.testing.simulation.columns import MORE_MAX
from crdt_mor.testing.simulation.invariants import BrokenPromiseError
from crdt_mor.testing.simulation.ledger import KeyWrite, Write
from crdt_mor.testing.simulation.plan import ACCOUNTS, Action, Given
from crdt_mor.testing.simulation.rows import (
    added,
    frame_of,
    key_writes_of,
    keys_of,
    same_value,
    told_of,
    where,
    world_key,
)
from crdt_mor.testing.simulation.world import Actor, World

Token = tuple[str, int]
Info = dict[str, str]

SchemaMode = Literal["strict", "merge"]

_WAIT = timedelta(seconds=1)

_REFUSALS: Final = (
    StorageUnavailableError, WriterExpiredError, EarlierWritePendingError, SnapshotExpiredError, TableMovedError,
    TableArrivingError, InvalidInputError, SchemaMismatchError,
)  # fmt: skip
"""Errors after which nothing is written."""


def upsert(world: World, process: Actor, action: Action) -> str:
    rows = with_more(world, action, action.rows)
    return _upsert(world, process, action, rows, f"upserts {told_of(rows)}")


def add_column(world: World, process: Actor, action: Action) -> str:
    if len(world.columns.more) >= MORE_MAX:
        return "finds enough columns in the table"
    if world.columns.is_dropping:
        return "adds no column, because a drop is pending"
    column = f"more{action.number}"
    world.columns.asks_for(column)
    rows = tuple({**row, column: action.number} for row in with_more(world, action, action.rows))
    return _upsert(world, process, action, rows, f"adds the column {column}, and upserts {told_of(rows)}", column)


def _upsert(
    world: World,
    process: Actor,
    action: Action,
    rows: tuple[Given, ...],
    text: str,
    column: str | None = None,
) -> str:

    def upserted(by: Actor, token: Token, info: Info) -> Commit:
        mode: SchemaMode = "merge" if column else "strict"
        with _adding(world, column, rows):
            return by.table.upsert(frame_of(world, rows), schema_mode=mode, token=token, commit_info=info)

    return _write(world, process, action, lambda: key_writes_of(world, rows), text, upserted)


@contextmanager
def _adding(world: World, column: str | None, rows: tuple[Given, ...]) -> Iterator[None]:
    columns = world.columns
    before = columns.adding, columns.giving
    if column:
        columns.adding, columns.giving = before[0] | {column}, before[1].union(*rows)
    try:
        yield
    finally:
        columns.adding, columns.giving = before


def delete(world: World, process: Actor, action: Action) -> str:

    def deleted(by: Actor, token: Token, info: Info) -> Commit:
        frame, _, plain = _deletes(world, action)
        return by.table.delete(frame, plain=plain, token=token, commit_info=info)

    return _write(world, process, action, lambda: _deletes(world, action)[1], f"deletes {', '.join(action.keys)}",
                  deleted)  # fmt: skip


def open_accounts(world: World, process: Actor, action: Action) -> str:
    return _upsert(world, process, action, _accounts(world, dict.fromkeys(ACCOUNTS, 0)), "opens the accounts")


def transfer(world: World, process: Actor, action: Action) -> str:
    """Move an amount: two increments in a commit, or two updates in a serializable block."""
    (source, target), amount = action.keys, int(action.pick)
    text, changes = f"moves {amount} from {source} to {target}", {source: -amount, target: amount}
    if world.settings.adds:
        return _upsert(world, process, action, _accounts(world, changes), text)

    def block(by: Actor, token: Token, info: Info) -> Commit:
        tx = by.table.transaction(isolation="serializable", wait=_WAIT, token=token, commit_info=info)
        with tx:
            tx.update(added(world, -amount), where(world, world.account(source)))
            tx.update(added(world, amount), where(world, world.account(target)))
        assert tx.commit is not None
        return tx.commit

    rows = {world.account(name): change for name, change in changes.items()}
    return _write(world, process, action, None, text, block, computed=lambda before: _updated(world, before, rows))


def add_one(world: World, process: Actor, action: Action) -> str:
    (key,) = action.keys

    def updated(by: Actor, token: Token, info: Info) -> Commit:
        found = where(world, key)
        return by.table.update(added(world, 1), found, wait=_WAIT, token=token, commit_info=info)

    text = f"adds 1 to the amount of {key}, in place"
    return _write(
        world, process, action, None, text, updated, computed=lambda before: _updated(world, before, {key: 1})
    )


def begin(world: World, process: Actor, action: Action) -> str:
    if process.tx is not None:
        return "already holds an open transaction"
    rows = with_more(world, action, action.rows)
    write = world.ledger.begin(Write(action.number, key_writes_of(world, rows)))
    tx = world.open_now(process).transaction(commit_info=_info(action))

    def opened() -> None:
        frame = frame_of(world, rows)
        tx.__enter__()
        tx.upsert(frame)

    told = _carried_out(world, write, opened)
    if write.reported == "under way":
        process.tx, process.write = tx, write
    return f"begins a transaction and upserts {told_of(rows)}: write {write.number}{told}"


def end(world: World, process: Actor, action: Action) -> str:
    tx, write = process.tx, process.write
    if tx is None or write is None:
        return "finds no transaction to end"
    process.tx = process.write = None
    if action.how == "roll back":
        write.reported = "not written"
        tx.__exit__(KeyError, KeyError(), None)
        return f"rolls write {write.number} back"
    told = _carried_out(world, write, lambda: _committed(tx))
    return f"commits write {write.number}{told}"


def _committed(tx: Any) -> Commit:
    tx.__exit__(None, None, None)
    assert isinstance(tx.commit, Commit)
    return tx.commit


def overwrite(world: World, process: Actor, action: Action) -> str:
    rows, partitions = with_more(world, action, action.rows), "dynamic" if action.how == "dynamic" else None

    def replaced(by: Actor, token: Token, info: Info) -> Commit:
        if not rows:
            return by.table.truncate(token=token, commit_info=info)
        return by.table.overwrite(frame_of(world, rows), partitions=partitions, token=token, commit_info=info)

    what = f"replaces {'the partitions of these rows' if partitions else 'all rows'} by {told_of(rows) or 'nothing'}"
    return _write(world, process, action, lambda: key_writes_of(world, rows), what, replaced)


def job(world: World, process: Actor, action: Action) -> str:
    rows = tuple({row["name"]: row for row in with_more(world, action, action.rows)}.values())
    rows = tuple(same_value(world, row, rows[0]) for row in rows)

    def distributed(by: Actor, token: Token, info: Info) -> Commit:
        parts = [frame_of(world, (row,)) for row in rows]
        planned = by.table.jobs.plan("upsert", parts[0].schema, token=token, commit_info=info)
        receipts = [planned.stage(part, task=n, environment=by.machine) for n, part in enumerate(parts)]
        if action.how == "repeated":
            receipts[0] = planned.stage(parts[0], task=0, environment=by.machine)
        commit = by.table.jobs.complete(planned, receipts)
        again = by.table.jobs.complete(planned, receipts)
        if not again.repeated or again.requested_at != commit.requested_at:
            raise BrokenPromiseError("nothing-twice", f"a job was completed twice: {commit} and {again}")
        return commit

    text = f"writes {told_of(rows)} as a job, a task a row"
    return _write(world, process, action, lambda: key_writes_of(world, rows), text, distributed)


def repeat(world: World, process: Actor, action: Action) -> str:
    world.look_at_history()
    found = [(write, again) for write, again in world.state.get("writes", [])
             if not world.ledger.has_dropped(write.number) and write.reported != "under way"]  # fmt: skip
    if not found:
        return "finds nothing to repeat"
    write, again = found[int(action.pick * len(found))]
    return f"repeats write {write.number}{again(process, again=True)}"


# --- shared steps -----------------------------------------------------------------------------------------------------


def _write(
    world: World,
    process: Actor,
    action: Action,
    said: Callable[[], list[KeyWrite]] | None,
    text: str,
    call: Callable[[Actor, Token, Info], Commit],
    computed: Callable[[dict[str, Row]], list[KeyWrite]] | None = None,
) -> str:
    write = world.ledger.begin(Write(action.number, [], computed))
    token = (f"job{action.number}", 1)

    def carried_out(by: Actor, *, again: bool) -> str:
        if said is not None and not world.ledger.has_landed(write.number):
            write.key_writes = said()

        def written() -> Commit:
            return _moving_on(world, by, lambda: call(by, token, _info(action)))

        return _carried_out(world, write, written, again=again)

    world.state.setdefault("writes", []).append((write, carried_out))
    text = f"{text}: write {action.number}{carried_out(process, again=False)}"
    happened = process.calls.happened
    return f"{text} ({happened})" if happened else text


def _moving_on(world: World, by: Actor, call: Callable[[], Commit]) -> Commit:
    try:
        while True:
            try:
                return call()
            except TableMovedError as moved:
                world.open_at(by, moved.uri)
                world.look_at_history()
    except TableArrivingError:
        world.open_now(by)  # after a cancelled migration the old table takes writes
        raise


def _carried_out(world: World, write: Write, call: Callable[[], Commit | None], *, again: bool = False) -> str:
    """Write, note the outcome, and return it in words. again: it may have landed before."""
    before, write.reported = write.reported, "under way"
    had_landed = world.ledger.has(write.number)
    alterations = world.columns.changed
    try:
        commit = call()
    except ProcessDied:
        write.reported = "committed" if before == "committed" else "unknown"
        raise
    except CommitUnknownError:
        write.reported = "committed" if before == "committed" else "unknown"
        return ", and is told that the outcome is unknown"
    except _REFUSALS as error:
        _require_reason(world, write, error, alterations)
        write.reported = before if again else "not written"
        return f", and is told that nothing is written: {type(error).__name__}"
    if commit is None:
        return ""
    moved = next((one for one in world.ledger.moved if write.number in one.numbers), None)
    times = (moved.requested, moved.completed) if moved else (commit.requested_at, commit.completed_at)
    differs = not commit.repeated or (before == "committed" and write.times != times)
    if had_landed and world.ledger.has(write.number) and differs:
        raise BrokenPromiseError("nothing-twice", f"write {write.number} was committed, and its repeat is {commit}")
    write.reported = "committed"
    write.times = times
    return f", {'which was version' if commit.repeated else 'version'} {commit.version}"


def _require_reason(world: World, write: Write, error: CrdtMorError, alterations: int) -> None:
    given_up = (
        world.has_waited or world.has_failed or world.ledger.restored or world.ledger.restoring or world.has_moved
    )
    reasons = {
        WriterExpiredError: given_up, TableMovedError: world.has_moved, TableArrivingError: world.has_moved,
        InvalidInputError: world.columns.changed != alterations,
        SchemaMismatchError: world.columns.changed != alterations,
    }  # fmt: skip
    if not next((reason for kind, reason in reasons.items() if isinstance(error, kind)), True):
        text = f"write {write.number} is refused without a cause: {type(error).__name__}: {error}"
        raise BrokenPromiseError("no-surprise", text) from error


def _info(action: Action) -> dict[str, str]:
    return {"write": str(action.number)}


def _accounts(world: World, amounts: dict[str, int]) -> tuple[Given, ...]:
    settings = world.settings
    rows: list[Given] = [{"name": world.account(name), "amount": amount} for name, amount in amounts.items()]
    if settings.is_partial:
        return tuple(rows)
    nulls = [i for i, (_, value) in enumerate(settings.examples) if value is None]
    value = {} if settings.payload is None else {"value": nulls[0] if nulls else None}
    return tuple({**row, "v": 0, "note": "account", **value} for row in rows)


def _deletes(world: World, action: Action) -> tuple[pa.Table, list[KeyWrite], bool]:
    if world.settings.rule != "ordering" or action.how == "plain":
        said: list[KeyWrite] = [(key, "delete", {}) for key in action.keys]
        return keys_of(world, action.keys), said, world.settings.rule == "ordering"
    order = 2
    frame = keys_of(world, action.keys, v=order)
    return frame, [(key, "tombstone", {"v": order}) for key in action.keys], False


def _updated(world: World, rows: dict[str, Row], changes: dict[str, int]) -> list[KeyWrite]:
    said: list[KeyWrite] = []
    for key, change in changes.items():
        row = rows.get(key)
        if row is None:
            continue
        if world.settings.adds:
            given: dict[str, Any] = {"amount": change if row["amount"] is not None else None}
            if not world.settings.is_partial:
                quiet = {"value": None} if world.settings.payload is not None else {}
                given = row | given | quiet
        elif world.settings.is_partial:
            given = {"amount": None if row["amount"] is None else int(str(row["amount"])) + change}
        else:
            amount = None if row["amount"] is None else int(str(row["amount"])) + change
            given = row | {"amount": amount}
        said.append((key, "row", {**given, **world_key(world, key)}))
    return said


ACTS = {
    "upsert": upsert, "delete": delete, "open the accounts": open_accounts, "transfer": transfer, "add one": add_one,
    "begin": begin, "end": end, "overwrite": overwrite, "job": job,
    "repeat": repeat, "add a column": add_column,
}  # fmt: skip

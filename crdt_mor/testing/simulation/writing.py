"""The actions that write: what each calls, and what the ledger is told of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import polars as pl
import pyarrow as pa

from crdt_mor import (
    Commit,
    CommitUnknownError,
    EarlierWritePendingError,
    SnapshotExpiredError,
    StorageUnavailableError,
    WriterExpiredError,
)
from crdt_mor.testing.faults import ProcessDied
from crdt_mor.testing.oracle import Row
from crdt_mor.testing.simulation.invariants import BrokenPromiseError
from crdt_mor.testing.simulation.ledger import Said, Write
from crdt_mor.testing.simulation.plan import ACCOUNTS, Action, Given
from crdt_mor.testing.simulation.world import Busy, World

Token = tuple[str, int]
Info = dict[str, str]

_WAIT = timedelta(seconds=1)


def upsert(world: World, process: Busy, action: Action) -> str:
    """Rows, of which some keys may stand twice."""
    return _upsert(world, process, action, action.rows, f"upserts {_shown(action.rows)}")


def _upsert(world: World, process: Busy, action: Action, rows: tuple[Given, ...], text: str) -> str:
    frame = frame_of(world, rows)

    def upserted(by: Busy, token: Token, info: Info) -> Commit:
        return by.table.upsert(frame, token=token, commit_info=info)

    return _write(world, process, action, said_of(world, rows), text, upserted)


def delete(world: World, process: Busy, action: Action) -> str:
    """Keys; with an ordering column either plainly, or with an ordering value."""
    frame, said, plain = _deletes(world, action)

    def deleted(by: Busy, token: Token, info: Info) -> Commit:
        return by.table.delete(frame, plain=plain, token=token, commit_info=info)

    return _write(world, process, action, said, f"deletes {', '.join(action.keys)}", deleted)


def open_accounts(world: World, process: Busy, action: Action) -> str:
    """All accounts at once; where amounts are added up, nothing is added to them."""
    return _upsert(world, process, action, _accounts(world, dict.fromkeys(ACCOUNTS, 0)), "opens the accounts")


def transfer(world: World, process: Busy, action: Action) -> str:
    """From one account to another: two increments in one commit, or two updates in place in one serializable block."""
    (source, target), amount = action.keys, int(action.pick)
    text, changes = f"moves {amount} from {source} to {target}", {source: -amount, target: amount}
    if world.settings.adds:
        return _upsert(world, process, action, _accounts(world, changes), text)

    def block(by: Busy, token: Token, info: Info) -> Commit:
        tx = by.table.transaction(isolation="serializable", wait=_WAIT, token=token, commit_info=info)
        with tx:
            tx.update({"amount": f"amount - {amount}"}, _where(world, world.account(source)))
            tx.update({"amount": f"amount + {amount}"}, _where(world, world.account(target)))
        assert tx.commit is not None
        return tx.commit

    rows = {world.account(name): change for name, change in changes.items()}
    return _write(world, process, action, [], text, block, computed=lambda before: _updated(world, before, rows))


def add_one(world: World, process: Busy, action: Action) -> str:
    """One is added to a number, in place, or as an increment."""
    (key,) = action.keys

    def added(by: Busy, token: Token, info: Info) -> Commit:
        where = _where(world, key)
        return by.table.update({"amount": "amount + 1"}, where, wait=_WAIT, token=token, commit_info=info)

    text = f"adds 1 to the amount of {key}, in place"
    return _write(world, process, action, [], text, added, computed=lambda before: _updated(world, before, {key: 1}))


def begin(world: World, process: Busy, action: Action) -> str:
    """A transaction that stays open."""
    if process.tx is not None:
        return "has a transaction open already"
    write = world.ledger.begin(Write(action.number, said_of(world, action.rows)))
    tx = process.table.transaction(commit_info=_info(action))

    def opened() -> None:
        tx.__enter__()
        tx.upsert(frame_of(world, action.rows))

    told = _carried_out(world, write, opened)
    if write.told == "under way":
        process.tx, process.write = tx, write
    return f"begins a transaction and upserts {_shown(action.rows)}: write {write.number}{told}"


def end(world: World, process: Busy, action: Action) -> str:
    """The transaction that the process has open ends."""
    tx, write = process.tx, process.write
    if tx is None or write is None:
        return "has no transaction to end"
    process.tx = process.write = None
    if action.how == "roll back":
        write.told = "not written"
        tx.__exit__(KeyError, KeyError(), None)
        return f"rolls write {write.number} back"
    told = _carried_out(world, write, lambda: _committed(tx))
    return f"commits write {write.number}{told}"


def _committed(tx: Any) -> Commit:
    tx.__exit__(None, None, None)
    assert isinstance(tx.commit, Commit)
    return tx.commit


def overwrite(world: World, process: Busy, action: Action) -> str:
    """All rows are replaced, the accounts among them, or those of the partitions that rows are given of."""
    rows, partitions = action.rows, "dynamic" if action.how == "dynamic" else None
    frame = frame_of(world, rows)

    def replaced(by: Busy, token: Token, info: Info) -> Commit:
        if not rows:
            return by.table.truncate(token=token, commit_info=info)
        return by.table.overwrite(frame, partitions=partitions, token=token, commit_info=info)

    what = f"replaces {'the partitions of these rows' if partitions else 'all rows'} by {_shown(rows) or 'nothing'}"
    return _write(world, process, action, said_of(world, rows), what, replaced)


def job(world: World, process: Busy, action: Action) -> str:
    """A write of several tasks, some attempts of which are repeated; two drivers may complete it."""
    rows = tuple({row["name"]: row for row in action.rows}.values())
    rows = tuple(_same_value(world, row, rows[0]) for row in rows)

    def distributed(by: Busy, token: Token, info: Info) -> Commit:
        parts = [frame_of(world, (row,)) for row in rows]
        planned = by.table.plan_write("upsert", parts[0].schema, token=token, commit_info=info)
        receipts = [planned.stage(part, task=n, environment=by.machine) for n, part in enumerate(parts)]
        if action.how == "repeated":
            receipts[0] = planned.stage(parts[0], task=0, environment=by.machine)
        commit = by.table.complete_write(planned, receipts)
        again = by.table.complete_write(planned, receipts)
        if not again.repeated or again.requested_at != commit.requested_at:
            raise BrokenPromiseError("nothing-twice", f"a job was completed twice: {commit} and {again}")
        return commit

    return _write(world, process, action, said_of(world, rows), f"writes {_shown(rows)} as a job, a task a row",
                  distributed)  # fmt: skip


def repeat(world: World, process: Busy, action: Action) -> str:
    """A program runs an earlier write again with the same token, as it does not know, or not any more, what it did."""
    world.look_at_history()
    gone = {number for one in world.ledger.gone for number in one.numbers}
    found = [(write, again) for write, again in world.state.get("writes", [])
             if write.number not in gone and write.told != "under way"]  # fmt: skip
    if not found:
        return "finds nothing to repeat"
    write, again = found[int(action.pick * len(found))]
    return f"repeats write {write.number}{again(process, again=True)}"


# --- what they share --------------------------------------------------------------------------------------------------


def _write(
    world: World,
    process: Busy,
    action: Action,
    said: list[Said],
    text: str,
    call: Callable[[Busy, Token, Info], Commit],
    computed: Callable[[dict[str, Row]], list[Said]] | None = None,
) -> str:
    """Carry a write out, and once more with its token where its outcome is not known, as programs do."""
    write = world.ledger.begin(Write(action.number, said, computed))
    token = (f"job{action.number}", 1)

    def carried_out(by: Busy, *, again: bool) -> str:
        return _carried_out(world, write, lambda: call(by, token, _info(action)), again=again)

    world.state.setdefault("writes", []).append((write, carried_out))
    text = f"{text}: write {action.number}{carried_out(process, again=False)}"
    happened = process.calls.happened
    return f"{text} ({happened})" if happened else text


def _carried_out(world: World, write: Write, call: Callable[[], Commit | None], *, again: bool = False) -> str:
    """Do it, note what the writer is told, and return that in words. again: it may have landed before."""
    before, write.told = write.told, "under way"
    try:
        commit = call()
    except ProcessDied:
        write.told = "committed" if before == "committed" else "unknown"
        raise
    except CommitUnknownError:
        write.told = "committed" if before == "committed" else "unknown"
        return ", and is told that the outcome is unknown"
    except (StorageUnavailableError, WriterExpiredError, EarlierWritePendingError, SnapshotExpiredError) as error:
        has_reason = world.waited or world.has_failed or world.ledger.restored or world.ledger.restoring
        if isinstance(error, WriterExpiredError) and not has_reason:
            text = f"write {write.number} was given up, and its process was never silent: {error}"
            raise BrokenPromiseError("no-surprise", text) from error
        write.told = before if again else "not written"
        return f", and is told that nothing is written: {type(error).__name__}"
    if commit is None:
        return ""
    if before == "committed" and (not commit.repeated or write.times != (commit.requested_at, commit.completed_at)):
        raise BrokenPromiseError("nothing-twice", f"write {write.number} was committed, and its repeat is {commit}")
    write.told = "committed"
    write.times = (commit.requested_at, commit.completed_at)
    return f", {'which was version' if commit.repeated else 'version'} {commit.version}"


def _info(action: Action) -> dict[str, str]:
    return {"write": str(action.number)}


def _shown(rows: Sequence[Given]) -> str:
    return ", ".join(f"{row['name']}({', '.join(f'{k} {v!r}' for k, v in row.items() if k != 'name')})" for row in rows)


def _where(world: World, key: str) -> pl.Expr:
    part, _, name = key.rpartition("/")
    found = pl.col("k") == name
    return found & (pl.col("p") == part) if world.settings.partitioned else found


def _accounts(world: World, amounts: dict[str, int]) -> tuple[Given, ...]:
    """Rows of accounts; a payload to which null is a value is given it."""
    settings = world.settings
    rows: list[Given] = [{"name": world.account(name), "amount": amount} for name, amount in amounts.items()]
    if settings.is_partial:
        return tuple(rows)
    nulls = [i for i, (_, value) in enumerate(settings.examples) if value is None]
    value = {} if settings.payload is None else {"value": nulls[0] if nulls else None}
    return tuple({**row, "v": 0, "note": "account", **value} for row in rows)


def said_of(world: World, rows: Sequence[Given]) -> list[Said]:
    """What rows say, for the ledger."""
    rows = [_same_value(world, row, rows[0]) for row in rows]
    return [(row["name"], "row", {**world_key(world, row["name"]), **_columns(row)}) for row in rows]


def world_key(world: World, name: str) -> dict[str, str]:
    """The columns of the key of a row, and of its partition."""
    part, _, key = name.rpartition("/")
    return {"p": part, "k": key} if world.settings.partitioned else {"k": key}


def _columns(row: Given) -> Given:
    return {name: value for name, value in row.items() if name != "name"}


def _same_value(world: World, row: Given, first: Given) -> Given:
    """The row with a value of the type that the first one has: a column of a frame has one type."""
    if world.settings.payload is None or row.get("value") is None or first.get("value") is None:
        return row
    examples = world.settings.examples
    kind = examples[first["value"]][0]
    return row if examples[row["value"]][0] == kind else {**row, "value": first["value"]}


def frame_of(world: World, rows: Sequence[Given]) -> pa.Table:
    """Rows as they are handed to a table, which all give the same columns."""
    settings = world.settings
    rows = [_same_value(world, row, rows[0]) for row in rows]
    given = {name for row in rows for name in row} - {"name", "value"} if rows else {*world.columns}
    columns: dict[str, pa.Array] = {}
    keys = [world_key(world, row["name"]) for row in rows]
    for name, kind in world.columns.items():
        if name in ("p", "k"):
            columns[name] = pa.array([key[name] for key in keys], kind)
        elif name in given:
            columns[name] = pa.array([row.get(name) for row in rows], kind)
    if settings.payload is not None and any("value" in row for row in rows):
        indices = [row.get("value") for row in rows]
        index = next((i for i in indices if i is not None), None)
        kind = settings.payload.column() if index is None else settings.examples[index][0]
        values = pa.array([None if i is None else settings.examples[i][1] for i in indices], kind)
        names = settings.value_columns
        if len(names) > 1:
            columns |= {name: values.field(n) for n, name in enumerate(names)}
        else:
            columns[names[0]] = values
    return pa.table(columns)


def _deletes(world: World, action: Action) -> tuple[pa.Table, list[Said], bool]:
    names = [world_key(world, key) for key in action.keys]
    columns = {name: pa.array([key[name] for key in names]) for name in names[0]}
    if world.settings.rule != "ordering" or action.how == "plain":
        return pa.table(columns), [(key, "delete", {}) for key in action.keys], world.settings.rule == "ordering"
    order = 2
    frame = pa.table({**columns, "v": pa.array([order] * len(names), pa.int64())})
    return frame, [(key, "tombstone", {"v": order}) for key in action.keys], False


def _updated(world: World, rows: dict[str, Row], changes: dict[str, int]) -> list[Said]:
    """What an update in place says of the rows that are there."""
    said: list[Said] = []
    for key, change in changes.items():
        row = rows.get(key)
        if row is None:
            continue
        if world.settings.adds:
            given: dict[str, Any] = {"amount": change if row["amount"] is not None else None}
            if not world.settings.is_partial:
                quiet = {"value": None} if world.settings.payload is not None else {}
                given = {name: row[name] for name in ("v", "note")} | given | quiet
        elif world.settings.is_partial:
            given = {"amount": None if row["amount"] is None else int(str(row["amount"])) + change}
        else:
            amount = None if row["amount"] is None else int(str(row["amount"])) + change
            given = {name: row[name] for name in ("v", "note")} | {"amount": amount}
        said.append((key, "row", {**world_key(world, key), **given}))
    return said


ACTS = {
    "upsert": upsert, "delete": delete, "open the accounts": open_accounts, "transfer": transfer, "add one": add_one,
    "begin": begin, "end": end, "overwrite": overwrite, "job": job,
    "repeat": repeat,
}  # fmt: skip

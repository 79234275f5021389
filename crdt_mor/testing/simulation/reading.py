"""The reading actions, and the final comparison of every kind of view with the ledger.

The bank: amounts only move between accounts, and all accounts are opened and replaced together. Their sum is 0 in every
moment, but not in a view that mixes two moments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import polars as pl

from crdt_mor import Scan, SnapshotExpiredError, Table
from crdt_mor.errors import CheckpointExpiredError, FutureSnapshotError
from crdt_mor.merge.oracle import Row
from crdt_mor.testing.simulation.inside import expiry_time_of
from crdt_mor.testing.simulation.invariants import BrokenPromiseError
from crdt_mor.testing.simulation.ledger import Landed
from crdt_mor.testing.simulation.moving import finish_move
from crdt_mor.testing.simulation.plan import ACCOUNTS, BANKS, Action
from crdt_mor.testing.simulation.rows import where, world_key
from crdt_mor.testing.simulation.world import Actor, World

_UNTIL_ALL_CLOCKS_S: Final = 100.0
"""Seconds until every process's clock has passed every moment."""


@dataclass
class Follower:
    consistency: Literal["latest", "stable"]
    images: bool
    checkpoint: str | None = None
    copy: dict[str, Row] = field(default_factory=dict)


@dataclass(frozen=True)
class Held:
    """An open view and its expected rows."""

    scan: Scan
    expected: dict[str, Row]
    owner: Actor

    @property
    def is_readable(self) -> bool:
        return not (self.owner.is_busy or self.owner.calls.is_dead)


def look(world: World, process: Actor, action: Action) -> str:
    del action
    world.look_at_history()
    try:
        table = world.open_now(process)
        scan, at = _scanned(world, table)
        if at is None:
            return "reads the table at an undecided moment"
        rows = rows_of(world, scan)
    except SnapshotExpiredError:
        _require_given_up(world, "a snapshot")
        return "finds its snapshot gone before the read"
    _hold_to(world, "readers-agree", at, rows, _expected_now(world, table, at, scan), "a snapshot")
    return "reads the table"


def _scanned(world: World, table: Table) -> tuple[Scan, str | None]:
    """Return a view of now and its moment; None if Hudi's clock is ahead of it.

    A view that lacks a commit of Hudi's is made again.
    """
    for attempt in range(2):
        scan = table.scan()
        try:
            return scan, scan.as_of
        except SnapshotExpiredError:
            if attempt or not world.ledger.foreign:
                raise
        except FutureSnapshotError:
            _require_hudi(world)
            return scan, None
    raise AssertionError


def _expected_now(world: World, table: Table, at: str, scan: Scan) -> dict[str, Row]:
    """Return the rows of the commits by `at` that have not expired when the scan was made."""
    world.look_at_history()
    ledger = world.ledger_of(table)
    return ledger.expected(ledger.as_of(at), expiry_time_of(scan) or at)


def hold(world: World, process: Actor, action: Action) -> str:
    world.look_at_history()
    landed = world.ledger.landed
    past = landed[int(action.pick * len(landed))] if landed and action.pick < 0.5 else None
    table = world.open_now(process)
    try:
        scan, at = (table.scan(as_of=past.completed), past.completed) if past else _scanned(world, table)
    except SnapshotExpiredError:
        _require_given_up(world, "a view of the past")
        return "is refused a cleaned view of the past"
    except FutureSnapshotError:
        _require_hudi(world)
        return "is refused a moment in its clock's future"
    if at is None:
        return "opens a view of an undecided moment, and leaves it"
    ledger = world.ledger_of(table)
    expected = ledger.expected(ledger.as_of(at), at) if past else _expected_now(world, table, at, scan)
    world.state.setdefault("held", []).append(Held(scan, expected, process))
    return f"opens a view of {at}"


def read(world: World, process: Actor, action: Action) -> str:
    held = [one for one in world.state.get("held", []) if one.is_readable or one.owner is process]
    if not held:
        return "finds no open view"
    found = held[int(action.pick * len(held))]
    world.state["held"].remove(found)
    try:
        rows = rows_of(world, found.scan)
    except SnapshotExpiredError:
        _require_given_up(world, "an open view")
        return f"finds the view of {found.scan.as_of} cleaned"
    _hold_to(world, "one-moment", found.scan.as_of, rows, found.expected, "a view that was opened earlier")
    return f"reads its view of {found.scan.as_of}"


def follow(world: World, process: Actor, action: Action) -> str:
    followers = world.state.setdefault("followers", {})
    images = action.how.endswith("images")
    consistency: Literal["latest", "stable"] = "stable" if action.how.startswith("stable") else "latest"
    follower = followers.setdefault(action.how, Follower(consistency, images))
    go_on(world, world.open_now(process), follower)
    return f"follows the changes ({action.how}) up to {follower.checkpoint}"


def go_on(world: World, table: Table, follower: Follower) -> None:
    try:
        images, expired = follower.images, world.settings.expires
        changes = table.changes(follower.checkpoint, images=images, consistency=follower.consistency, expired=expired)
        rows = changes.to_polars().to_dicts()
        copy = applied(world, rows, follower)
        checkpoint = changes.checkpoint
    except (CheckpointExpiredError, SnapshotExpiredError):
        _require_given_up(world, "a follower's checkpoint")
        if world.settings.expires:  # a scan is later than its checkpoint
            follower.copy, follower.checkpoint = {}, None
            return
        scan = table.scan(consistency=follower.consistency)
        try:
            copy, checkpoint = rows_of(world, scan), scan.checkpoint
        except SnapshotExpiredError:
            return
        except FutureSnapshotError:
            _require_hudi(world)
            return
    follower.copy, follower.checkpoint = copy, checkpoint
    world.look_at_history()
    ledger = world.ledger_of(table)
    if any(_cuts(gone, checkpoint) for gone in ledger.dropped):
        return
    expected = ledger.expected(ledger.before(checkpoint), checkpoint.split(":")[1])
    _hold_to(world, "convergence", checkpoint, copy, expected, f"the copy of a follower ({follower.consistency})",
             balanced=follower.consistency == "latest")  # fmt: skip


def _cuts(gone: Landed, checkpoint: str) -> bool:
    by, time = checkpoint.split(":")[:2]
    return (gone.completed if by == "completed" else gone.requested) >= time


def applied(world: World, rows: Iterable[dict[str, Any]], follower: Follower) -> dict[str, Row]:
    """Return a follower's copy after changes; images must match the copy."""
    copy = dict(follower.copy)
    for row in rows:
        plain, kind = world.columns.plain(row), row["_change_type"]
        key, values = world.key(plain), shown(world, plain)
        if follower.images and kind in ("delete", "update_preimage"):
            if _differ(world, copy.pop(key, {}), values):
                raise BrokenPromiseError("convergence", f"an image before a change differs from the row: {row}")
        elif kind == "delete":
            copy.pop(key, None)
        else:
            copy[key] = values
    return copy


# --- checks -----------------------------------------------------------------------------------------------------------


def shown(world: World, row: dict[str, Any]) -> Row:
    return world.reading({name: value for name, value in row.items() if name in world.columns.types})


def _differ(world: World, row: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    """Return the columns in which two rows differ; unknown columns are null, NaN equals NaN."""
    return [name for name in world.ledger.columns if repr(row.get(name)) != repr(other.get(name))]


def rows_of(world: World, scan: Scan) -> dict[str, Row]:
    rows = [world.columns.plain(row) for row in scan.to_polars().to_dicts()]
    found = {world.key(row): shown(world, row) for row in rows}
    if len(found) < len(rows):
        raise BrokenPromiseError("nothing-twice", f"a key comes twice in one view: {rows}")
    return found


def _hold_to(
    world: World, invariant: str, moment: str, found: Mapping[str, Row], expected: Mapping[str, Row], what: str, *,
    balanced: bool = True,
) -> None:  # fmt: skip
    if balanced:
        require_total(found.values(), f"{what} of {moment}")
    for key in sorted({*found, *expected}):
        has, wanted = found.get(key), expected.get(key)
        plain = None if wanted is None else {name: wanted.get(name) for name in world.ledger.columns}
        plain = plain if plain is None else plain | world_key(world, key)
        if has is plain:  # None
            continue
        if has is not None and plain is not None:
            differ = _differ(world, has, plain)
            if not differ:
                continue
            invariant = {"amount": "increments-add-up", "value": "merged-as-joined"}.get(differ[0], invariant)
        elif plain is not None and invariant == "readers-agree":
            invariant = "nothing-lost"
        elif has is not None and any(key in keys for keys in world.ledger.erasing.values()):
            invariant = "erased-stays-erased"
        raise BrokenPromiseError(invariant, f"{what} of {moment} is wrong. key={key} shows={has} expected={plain}")


def require_total(rows: Iterable[Mapping[str, object]], what: str) -> None:
    amounts = {str(row["k"]): row["amount"] for row in rows if row["k"] in ACCOUNTS}
    if sum(int(str(amount)) for amount in amounts.values() if amount is not None):
        raise BrokenPromiseError("bank", f"the accounts do not add up to 0 in {what}: {amounts}")


def _require_given_up(world: World, what: str) -> None:
    if not world.state.get("history is given up"):
        raise BrokenPromiseError("one-moment", f"{what} is refused, and nothing was ever cleaned, erased or restored")


def _require_hudi(world: World) -> None:
    if not world.ledger.foreign:
        raise BrokenPromiseError("no-surprise", "a moment is in the future, but Hudi never wrote to the table")


def finish(world: World) -> None:
    world.pass_time(_UNTIL_ALL_CLOCKS_S)
    finish_move(world)
    for name, held in list(enumerate(world.state.get("held", []))):
        if held.is_readable:
            _read_at_last(world, held, f"view {name}")
    for follower in world.state.get("followers", {}).values():
        go_on(world, world.observer, follower)
    world.lines.append("at the end the table is read in every way,")
    _views(world)
    world.lines.append("it is compacted, and read again,")
    world.observer.maintenance.compact()
    look(world, world.free(world.plan.seed), Action(-1, "look", 0))
    world.lines.append("and views of the past are")
    _past(world)
    for left in world.moved_tables:
        scan = left.table.scan()
        found = rows_of(world, scan)
        expected = left.ledger.expected(left.ledger.landed, expiry_time_of(scan) or scan.as_of)
        _hold_to(world, "one-moment", left.table.uri, found, expected, "the moved table")


def _read_at_last(world: World, held: Held, what: str) -> None:
    try:
        rows = rows_of(world, held.scan)
    except SnapshotExpiredError:
        _require_given_up(world, what)
        return
    _hold_to(world, "one-moment", held.scan.as_of, rows, held.expected, "a view that was opened earlier")


def _views(world: World) -> None:
    table = world.observer
    scan = table.scan()
    expected = _expected_now(world, table, scan.as_of, scan)
    found = rows_of(world, scan)
    _hold_to(world, "readers-agree", scan.as_of, found, expected, "the snapshot")
    if table.count() != len(expected):
        raise BrokenPromiseError("readers-agree", f"count() says {table.count()}, and there are {len(expected)} rows")
    _narrow_views(world, scan.as_of, found)


def _narrow_views(world: World, at: str, whole: Mapping[str, Row]) -> None:
    kind = world.plan.seed % 3
    if kind == 0:
        require_total(_rows(world, world.column("k").is_in(ACCOUNTS), at), f"lookups by key as of {at}")
    elif kind == 1 and world.settings.partitioned:
        rows = [row for bank in BANKS for row in _rows(world, world.column("p") == bank, at)]
        require_total(rows, f"scans by partition as of {at}")
    else:
        for key in sorted(whole)[:1]:
            alone = [shown(world, row) for row in _rows(world, where(world, key), at)]
            if [repr(row) for row in alone] != [repr(whole[key])]:
                raise BrokenPromiseError("readers-agree", f"a lookup shows {alone}, the snapshot {whole[key]}")


def _rows(world: World, where: pl.Expr, at: str) -> list[dict[str, Any]]:
    rows = world.observer.scan(filter=where, as_of=at).to_polars().to_dicts()
    return [world.columns.plain(row) for row in rows]


def _past(world: World) -> None:
    """Require that views of commits and savepoints are unchanged, or refused without history."""
    for one in _moments(world.ledger.landed):
        _as_of(world, one.completed, one.completed, saved=False)
    for name, at in world.state.get("savepoints", {}).items():
        _as_of(world, name, at, saved=True)


def _moments(landed: Sequence[Landed]) -> list[Landed]:

    def overlaps(one: Landed) -> int:
        return sum(other.begun <= one.completed < other.completed for other in landed)

    return sorted(landed[:-1], key=lambda one: (-overlaps(one), one.completed))[:3]


def _as_of(world: World, point: str, at: str, *, saved: bool) -> None:
    try:
        rows = rows_of(world, world.observer.scan(as_of=point))
    except SnapshotExpiredError as error:
        if saved:
            raise BrokenPromiseError("saved-stays", f"the savepoint {point} is refused: {error}") from error
        _require_given_up(world, f"the view as of {at}")
        return
    invariant = "saved-stays" if saved else "one-moment"
    expected = world.ledger.expected(world.ledger.as_of(at), at)
    _hold_to(world, invariant, at, rows, expected, f"the view as of {point}")


ACTS: dict[str, Callable[[World, Actor, Action], str]] = {
    "look": look,
    "hold": hold,
    "read": read,
    "follow": follow,
}

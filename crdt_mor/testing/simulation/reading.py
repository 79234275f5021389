"""The actions that read, and what is held to the ledger at the end: every kind of view, and the bank in each.

The bank: amounts only go from one account to another, all accounts are opened and replaced together, so that the sum of
the accounts is 0 in whatever shows a moment of the table, and is not where a view mixes two moments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl

from crdt_mor import CheckpointExpiredError, Scan, SnapshotExpiredError, Table
from crdt_mor.testing.oracle import Row
from crdt_mor.testing.simulation.invariants import BrokenPromiseError
from crdt_mor.testing.simulation.ledger import Landed
from crdt_mor.testing.simulation.plan import ACCOUNTS, BANKS, Action
from crdt_mor.testing.simulation.world import Busy, World

_OF_CHANGES = ("_change_type", "_commit_version", "_commit_timestamp")


@dataclass
class Follower:
    """A reader of changes: where it stands, and its copy of the table."""

    consistency: Literal["latest", "stable"]
    images: bool
    checkpoint: str | None = None
    copy: dict[str, Row] = field(default_factory=dict)


@dataclass(frozen=True)
class Held:
    """A view that a reader has opened, and what it must show."""

    scan: Scan
    expected: dict[str, Row]
    owner: Busy

    @property
    def is_readable(self) -> bool:
        """Whether the process of the reader is alive, and not in the middle of something else."""
        return not (self.owner.is_busy or self.owner.calls.is_dead)


def look(world: World, process: Busy, action: Action) -> str:
    """The latest snapshot, in all the ways in which it can be read."""
    del action
    world.look_at_history()
    scan = process.table.scan()
    try:
        rows = rows_of(world, scan)
    except SnapshotExpiredError:
        _require_given_up(world, "a snapshot")
        return "finds that the snapshot is gone which it was about to read"
    _hold_to(world, "readers-agree", scan.as_of, rows, _expected_now(world, scan), "a snapshot")
    return "reads the table"


def _expected_now(world: World, scan: Scan) -> dict[str, Row]:
    """What a scan that was just made must show: others may have committed while it was, in a pause."""
    world.look_at_history()
    return world.ledger.expected(world.ledger.as_of(scan.as_of))


def hold(world: World, process: Busy, action: Action) -> str:
    """A reader opens a view, of now or of a commit, and reads it later."""
    world.look_at_history()
    landed = world.ledger.landed
    past = landed[int(action.pick * len(landed))] if landed and action.pick < 0.5 else None
    try:
        scan = process.table.scan(as_of=past.completed) if past else process.table.scan()
    except SnapshotExpiredError:
        _require_given_up(world, "a view of the past")
        return "is refused a view of the past, which is cleaned"
    world.state.setdefault("held", []).append(Held(scan, _expected_now(world, scan), process))
    return f"opens a view of {scan.as_of}"


def read(world: World, process: Busy, action: Action) -> str:
    """A reader reads the view that it has opened."""
    held = [one for one in world.state.get("held", []) if one.is_readable or one.owner is process]
    if not held:
        return "finds no open view"
    found = held[int(action.pick * len(held))]
    world.state["held"].remove(found)
    try:
        rows = rows_of(world, found.scan)
    except SnapshotExpiredError:
        _require_given_up(world, "an open view")
        return f"finds that the view of {found.scan.as_of} is cleaned"
    _hold_to(world, "one-moment", found.scan.as_of, rows, found.expected, "a view that was opened earlier")
    return f"reads its view of {found.scan.as_of}"


def follow(world: World, process: Busy, action: Action) -> str:
    """A follower takes the changes since its checkpoint, and applies them to its copy."""
    followers = world.state.setdefault("followers", {})
    images = action.how.endswith("images")
    consistency: Literal["latest", "stable"] = "stable" if action.how.startswith("stable") else "latest"
    follower = followers.setdefault(action.how, Follower(consistency, images))
    go_on(world, process.table, follower)
    return f"follows the changes ({action.how}) up to {follower.checkpoint}"


def go_on(world: World, table: Table, follower: Follower) -> None:
    """A follower goes on, or begins anew where its checkpoint is no longer answered."""
    try:
        changes = table.changes(follower.checkpoint, images=follower.images, consistency=follower.consistency)
        rows = changes.to_polars().to_dicts()
        copy = applied(world, rows, follower)
        checkpoint = changes.checkpoint
    except (CheckpointExpiredError, SnapshotExpiredError):
        _require_given_up(world, "a follower's checkpoint")
        scan = table.scan(consistency=follower.consistency)
        try:
            copy, checkpoint = rows_of(world, scan), scan.checkpoint
        except SnapshotExpiredError:
            return
    follower.copy, follower.checkpoint = copy, checkpoint
    world.look_at_history()
    if any(_cuts(gone, checkpoint) for gone in world.ledger.gone):
        return
    expected = world.ledger.expected(world.ledger.before(checkpoint))
    _hold_to(world, "convergence", checkpoint, copy, expected, f"the copy of a follower ({follower.consistency})",
             balanced=follower.consistency == "latest")  # fmt: skip


def _cuts(gone: Landed, checkpoint: str) -> bool:
    """Whether a checkpoint lies where a restore has cut: what it stands for is then no longer told apart."""
    by, time = checkpoint.split(":")[:2]
    return (gone.completed if by == "completed" else gone.requested) >= time


def applied(world: World, rows: Iterable[dict[str, Any]], follower: Follower) -> dict[str, Row]:
    """A follower's copy after changes; images must fit what is there."""
    copy = dict(follower.copy)
    for row in rows:
        key, kind = world.key(row), row["_change_type"]
        values = shown(world, row)
        if follower.images and kind in ("delete", "update_preimage"):
            if repr(copy.pop(key, None)) != repr(values):
                raise BrokenPromiseError("convergence", f"an image before a change is not what was there: {row}")
        elif kind == "delete":
            copy.pop(key, None)
        else:
            copy[key] = values
    return copy


# --- what must hold ---------------------------------------------------------------------------------------------------


def shown(world: World, row: dict[str, Any]) -> Row:
    """A row as it is compared."""
    return world.reading({name: value for name, value in row.items() if name in world.columns})


def rows_of(world: World, scan: Scan) -> dict[str, Row]:
    """The rows of a scan, by key; no key may come twice."""
    rows = scan.to_polars().to_dicts()
    found = {world.key(row): shown(world, row) for row in rows}
    if len(found) < len(rows):
        raise BrokenPromiseError("nothing-twice", f"a key comes twice in one view: {rows}")
    return found


def _hold_to(
    world: World, invariant: str, moment: str, found: Mapping[str, Row], expected: Mapping[str, Row], what: str, *,
    balanced: bool = True,
) -> None:  # fmt: skip
    """What a view shows is the fold of what was written, and the bank has its total in it."""
    if balanced:
        require_total(found.values(), f"{what} of {moment}")
    for key in sorted({*found, *expected}):
        has, wanted = found.get(key), expected.get(key)
        plain = None if wanted is None else {name: wanted.get(name) for name in world.ledger.columns}
        plain = plain if plain is None else plain | _key_columns(world, key)
        if repr(has) == repr(plain):  # so that NaN is NaN
            continue
        if has is not None and plain is not None:
            differ = [name for name in plain if repr(has[name]) != repr(plain[name])]
            invariant = {"amount": "increments-add-up", "value": "merged-as-joined"}.get(differ[0], invariant)
        elif plain is not None and invariant == "readers-agree":
            invariant = "nothing-lost"
        elif has is not None and any(key in keys for keys in world.ledger.erasing.values()):
            invariant = "erased-stays-erased"
        raise BrokenPromiseError(invariant, f"{what} of {moment} is wrong. key={key} shows={has} expected={plain}")


def _key_columns(world: World, key: str) -> Row:
    part, _, name = key.rpartition("/")
    return {"p": part, "k": name} if world.settings.partitioned else {"k": name}


def require_total(rows: Iterable[Mapping[str, object]], what: str) -> None:
    """The accounts of a view add up to 0."""
    amounts = {str(row["k"]): row["amount"] for row in rows if row["k"] in ACCOUNTS}
    if sum(int(str(amount)) for amount in amounts.values() if amount is not None):
        raise BrokenPromiseError("bank", f"the accounts do not add up to 0 in {what}: {amounts}")


def _require_given_up(world: World, what: str) -> None:
    if not world.state.get("history is given up"):
        raise BrokenPromiseError("one-moment", f"{what} is refused, and nothing was ever cleaned, erased or restored")


def finish(world: World) -> None:
    """Everything has happened: every view of the table is held to the ledger, before and after a last compaction."""
    world.look_at_history()
    for name, held in list(enumerate(world.state.get("held", []))):
        if held.is_readable:
            _read_at_last(world, held, f"view {name}")
    for follower in world.state.get("followers", {}).values():
        go_on(world, world.observer, follower)
    world.told.append("at the end the table is read in every way,")
    _views(world)
    world.told.append("it is compacted, and read again,")
    world.observer.maintenance.compact()
    look(world, world.free(world.plan.seed), Action(-1, "look", 0))
    world.told.append("and views of the past are")
    _past(world)


def _read_at_last(world: World, held: Held, what: str) -> None:
    try:
        rows = rows_of(world, held.scan)
    except SnapshotExpiredError:
        _require_given_up(world, what)
        return
    _hold_to(world, "one-moment", held.scan.as_of, rows, held.expected, "a view that was opened earlier")


def _views(world: World) -> None:
    """The latest snapshot by every door: whole, counted, by key, by partition, and as any process sees it."""
    table = world.observer
    scan = table.scan()
    expected = _expected_now(world, scan)
    found = rows_of(world, scan)
    _hold_to(world, "readers-agree", scan.as_of, found, expected, "the snapshot")
    if table.count() != len(expected):
        raise BrokenPromiseError("readers-agree", f"count() says {table.count()}, and there are {len(expected)} rows")
    _narrow_views(world, scan.as_of, found)


def _narrow_views(world: World, at: str, whole: Mapping[str, Row]) -> None:
    """The same moment in a view that reads less: by key, by partition, or one row alone. The seed says in which."""
    table, kind = world.observer, world.plan.seed % 3
    if kind == 0:
        require_total(_rows(table, pl.col("k").is_in(ACCOUNTS), at), f"lookups by key as of {at}")
    elif kind == 1 and world.settings.partitioned:
        rows = [row for bank in BANKS for row in _rows(table, pl.col("p") == bank, at)]
        require_total(rows, f"scans by partition as of {at}")
    else:
        for key in sorted(whole)[:1]:
            alone = [shown(world, row) for row in _rows(table, _is(world, key), at)]
            if [repr(row) for row in alone] != [repr(whole[key])]:
                raise BrokenPromiseError("readers-agree", f"a lookup shows {alone}, the snapshot {whole[key]}")


def _is(world: World, key: str) -> pl.Expr:
    part, _, name = key.rpartition("/")
    return (pl.col("k") == name) & (pl.col("p") == part if world.settings.partitioned else pl.lit(value=True))


def _rows(table: Table, where: pl.Expr, at: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.scan(filter=where, as_of=at).to_polars().to_dicts()
    return rows


def _past(world: World) -> None:
    """Views as of commits and savepoints show what they showed, or are refused where history was given up."""
    for one in _moments(world.ledger.landed):
        _as_of(world, one.completed, one.completed, saved=False)
    for name, at in world.state.get("savepoints", {}).items():
        _as_of(world, name, at, saved=True)


def _moments(landed: Sequence[Landed]) -> list[Landed]:
    """A few commits as of which the table is read: those first at which most others were under way."""

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
    _hold_to(world, invariant, at, rows, world.ledger.expected(world.ledger.as_of(at)), f"the view as of {point}")


ACTS: dict[str, Callable[[World, Busy, Action], str]] = {"look": look, "hold": hold, "read": read, "follow": follow}

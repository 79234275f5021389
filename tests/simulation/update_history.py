"""Updates in a random history: each is computed from what comes before it, whatever happens while it waits.

Updates are calls of their own, and statements of serializable blocks, which see what their block has written before.
In a table with partitions some writes declare theirs when they begin, and an update of the other one need not wait.

An update that finds earlier writes under way waits for them. In each of its pauses the history takes steps of its own:
the earlier writes commit or are rolled back, later ones begin and commit, tables are overwritten and compacted. The
oracle is told of an update as of a commit whose rows are those that the commits before it make, changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from crdt_mor import Commit, Opening, Table
from crdt_mor.merge.oracle import Row
from tests.simulation.payload_columns import names
from tests.simulation.random_history import (
    KEYS,
    PARTS,
    SET_NULL,
    Done,
    History,
    Open,
    Saying,
    SkewedEnvironment,
    Statement,
    contribution,
    show,
)

SHARE: Final = 0.2
"""How often an update happens, of the steps of a history."""

PAUSES_MAX: Final = 3
"""After so many pauses everything that an update waits for is ended."""

SETS: Final[Mapping[str, tuple[dict[str, object], Callable[[Row], dict[str, object]]]]] = {
    "add": ({"a": "a + 1"}, lambda row: {"a": _plus(row["a"], 1)}),
    "move": ({"b": "'v is ' || v", "a": 0.5}, lambda row: {"b": _text(row["v"]), "a": 0.5}),
    "raise": ({"v": "v + 1"}, lambda row: {"v": _plus(row["v"], 1)}),
}
"""What updates set, for the table and for the oracle."""

WHERE: Final[Mapping[str | None, Callable[[Row], bool]]] = {
    None: lambda row: True,
    "v > 1": lambda row: isinstance(row["v"], int) and row["v"] > 1,
    "k = 'a'": lambda row: row["k"] == "a",
    "b IS NOT NULL AND a < 5": lambda row: row["b"] is not None and isinstance(row["a"], float) and row["a"] < 5,
}
OF_KEYS: Final = ("k = 'a'",)
OF_PARTITIONS: Final[Mapping[str | None, Callable[[Row], bool]]] = {
    "p = 'x'": lambda row: row["p"] == "x",
    "p = 'y'": lambda row: row["p"] == "y",
}


def _plus(value: object, more: int) -> object:
    return value + more if isinstance(value, int | float) else None


def _text(value: object) -> object:
    return None if value is None else f"v is {value}"


class Pausing(SkewedEnvironment):
    """A machine that has a wall clock of its own, and on which something happens in each pause."""

    def __init__(self, ahead_ms: int, happens: Callable[[], None]) -> None:
        super().__init__(ahead_ms)
        self._happens = happens

    def sleep(self, seconds: float) -> None:
        self._happens()


@dataclass
class UpdateHistory(History):
    """A history with updates. waited: how many updates found something to wait for; pauses: of the one under way."""

    chance: Random = field(init=False)
    blocks: Random = field(init=False)
    keys: Random = field(init=False)
    updates: dict[Commit, tuple[str | None, list[Commit]]] = field(default_factory=dict)
    """Each update, its condition, and the commits that came before it when it was committed."""
    kept_to: dict[Commit, str] = field(default_factory=dict)
    """The partition or the key that a commit has declared, as a condition."""
    block: Open | None = None
    """The block under way."""
    waited: int = 0
    pauses: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.chance = Random(repr(self.random.getstate()) + " updates")
        self.blocks = Random(repr(self.random.getstate()) + " blocks")
        self.keys = Random(repr(self.random.getstate()) + " keys")

    def go_on(self) -> None:
        if self.chance.random() < SHARE:
            self.update()
        if self.blocks.random() < SHARE / 2:
            self.make_block()
        super().go_on()

    # --- declarations -------------------------------------------------------------------------------------------------

    def partition_declared(self) -> str | None:
        return self.blocks.choice(PARTS) if self.partitioned and self.blocks.random() < 0.6 else None

    def row(self, found: Saying, given: Sequence[str]) -> dict[str, object]:
        row = super().row(found, given)
        only, only_key = (found.only, found.only_key) if isinstance(found, Open) else (None, None)
        row |= {} if only is None else {"p": only}
        return row | ({} if only_key is None else {"k": only_key})

    def key_declared(self, only: str | None) -> str | None:
        return (
            self.keys.choice(KEYS) if only is None and self.key_columns == ["k"] and self.keys.random() < 0.4 else None
        )

    def delete_where(self, found: Open) -> None:
        if found.only is None and found.only_key is None:  # else its condition would be of other rows as well
            super().delete_where(found)

    def commit(self, found: Open) -> None:
        super().commit(found)
        if found.tx.commit is not None and (found.only or found.only_key) is not None:
            self.kept_to[found.tx.commit] = f"p = '{found.only}'" if found.only else f"k = '{found.only_key}'"

    # --- blocks -------------------------------------------------------------------------------------------------------

    def grow(self, found: Open) -> list[str]:
        return [] if found is self.block else super().grow(found)

    def make_block(self) -> None:
        """Statements that become one commit, each of which sees those before it; meanwhile others go on."""
        chance, self.pauses = self.blocks, 0
        table = Table(str(self.path), opening=Opening(environment=Pausing(chance.choice([0, 30_000]), self.meanwhile)))
        found = self.block = Open(table.transaction(isolation="serializable"), dict(self.columns), [])
        found.tx.__enter__()
        self.note("block", found)
        for _ in range(chance.randint(1, 4)):
            chance.choice([self.upsert, self.delete, self.delete_where_seen, self.update_seen])(found)
            if chance.random() < 0.4:
                self.step()
            if chance.random() < 0.5:
                show(found.tx.scan(meta=True), self.expected(self.seen(found)), self)
        show(found.tx.scan(meta=True), self.expected(self.seen(found)), self)
        begun = found.begun
        assert begun is not None
        before = [done.commit for done in self.done if done.commit.requested_at < begun]
        found.tx.__exit__(None, None, None)
        commit = found.tx.commit
        assert commit is not None
        self.waited += self.pauses > 0
        self.pauses = self.block = None
        self.note("block ends", found, commit)
        self.updates[commit] = None, before
        self.add(commit, commit.requested_at, found.said)
        self.check()

    def seen(self, found: Open) -> list[Done]:
        """What a block sees: what has ended of all that began before it, and what it has written."""
        begun = found.begun
        assert begun is not None
        commit = Commit(0, begun, begun, 0, 0)
        own = [contribution(f"{begun}.{i:03d}", statement, begun) for i, statement in enumerate(found.said)]
        return [*(done for done in self.done if done.commit.requested_at < begun), Done(commit, own)]

    def delete_where_seen(self, found: Open) -> None:
        found.tx.scan().count()  # after which all that comes before it has ended
        found.before = self.seen(found)
        self.delete_where(found)

    def update_seen(self, found: Open) -> None:
        """An update in the block."""
        given, change = SETS[self.blocks.choice([*SETS])]
        where = self.blocks.choice([*WHERE])
        found.tx.update(given, where)
        rows = self.expected(self.seen(found))
        met = {key: row for key, row in rows.items() if WHERE[where]({**EMPTY, **row})}
        found.said += [self.said(key, {**EMPTY, **row}, change) for key, row in met.items()]
        self.note("update in block", found, given, where, met)

    # --- updates ------------------------------------------------------------------------------------------------------

    def update(self) -> None:
        """Rows are updated, beside whatever is under way."""
        given, change = SETS[self.chance.choice([*SETS])]
        where = self.chance.choice([*WHERE])
        conditions: Mapping[str | None, Callable[[Row], bool]] = WHERE
        if self.partitioned and self.blocks.random() < 0.5:
            conditions = OF_PARTITIONS
            where = self.blocks.choice([*conditions])
        self.pauses = 0
        table = Table(
            str(self.path), opening=Opening(environment=Pausing(self.chance.choice([0, 30_000]), self.meanwhile))
        )
        commit = table.update(given, where)
        self.waited += self.pauses > 0
        self.pauses = None
        self.groups.note_carried(self)  # its event may have carried posts, which it has read
        before = self.before(commit)
        self.updates[commit] = where, [done.commit for done in before]
        found = {key: row for key, row in self.expected(before).items() if conditions[where]({**EMPTY, **row})}
        said = [self.said(key, {**EMPTY, **row}, change) for key, row in found.items()]
        self.note("update", given, where, commit, found)
        self.add(commit, commit.requested_at, said)
        written = len(self.done[-1].writes)  # without what an overwrite has replaced meanwhile
        assert commit.rows == written, f"{commit} of {found}\n{self.story()}"
        self.check()

    def may_meet(self, commit: Commit, where: str | None) -> bool:
        """Whether a commit may touch rows that meet a condition, after all that it has declared."""
        only = self.kept_to.get(commit)
        if only is None or where == only:
            return True
        return where not in (OF_PARTITIONS if only.startswith("p") else OF_KEYS)

    def before(self, commit: Commit) -> list[Done]:
        """What comes before a commit, as far as it has ended by now."""
        return [done for done in self.done if done.commit.requested_at < commit.requested_at]

    def finish(self) -> None:
        super().finish()
        for commit, (where, before) in self.updates.items():
            late = [done.commit for done in self.before(commit) if done.commit not in before]
            late = [other for other in late if self.may_meet(other, where)]
            assert not late, f"{late} come before {commit}, which was computed without them\n{self.story()}"

    def said(self, key: str, row: Row, change: Callable[[Row], dict[str, object]]) -> Statement:
        """What an update says of a row: all of it, or only what is set; nothing of columns with payloads."""
        changed: dict[str, Any] = {name: row.get(name) for name in self.columns} | change(row)
        if self.rule.startswith("partial"):
            ordering = ["v"] if self.is_ordered else []
            changed = {name: changed[name] for name in (*self.key_columns, *ordering, *change(row))}
        quiet = {name for trial in self.trials for name in names(trial)}
        said = {name: None if name in quiet else value for name, value in changed.items()}
        if self.rule == "partial, keep":
            said |= {name: SET_NULL for name, value in said.items() if value is None and name not in quiet}
        return key, "row", tuple(said.items())

    def meanwhile(self) -> None:
        """A pause of the update: others go on."""
        assert self.pauses is not None
        self.pauses += 1
        if self.pauses <= PAUSES_MAX:
            for _ in range(self.random.randint(1, 3)):
                self.step()
        else:
            while self.open:
                self.commit(self.open.pop())

    def check_stable(self) -> None:
        """Not while an update is under way, of which the history knows no time yet."""
        if self.pauses is None:
            super().check_stable()


EMPTY: Final[Row] = dict.fromkeys(("a", "b", "v"))

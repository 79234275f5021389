"""Updates in a random history: each is computed from what comes before it, whatever happens while it waits.

An update that finds earlier writes under way waits for them. In each of its pauses the history takes steps of its own:
the earlier writes commit or are rolled back, later ones begin and commit, tables are overwritten and compacted. The
oracle is told of an update as of a commit whose rows are those that the commits before it make, changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from crdt_mor import Commit, InvalidInputError, Table
from crdt_mor.testing.oracle import Row
from tests.simulation.payload_columns import names
from tests.simulation.random_history import Done, History, SkewedEnvironment, Statement

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
    updates: dict[Commit, list[Commit]] = field(default_factory=dict)
    """Each update, and the commits that came before it when it was committed."""
    waited: int = 0
    pauses: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.chance = Random(repr(self.random.getstate()) + " updates")

    def go_on(self) -> None:
        if self.chance.random() < SHARE:
            self.update()
        super().go_on()

    def update(self) -> None:
        """Rows are updated, beside whatever is under way."""
        given, change = SETS[self.chance.choice([*SETS])]
        where = self.chance.choice([*WHERE])
        self.pauses = 0
        table = Table.open(str(self.path), environment=Pausing(self.chance.choice([0, 30_000]), self.meanwhile))
        commit = None
        try:
            commit = table.update(given, where)
        except InvalidInputError as error:
            if self.rule != "partial, keep" or "a null says nothing" not in str(error):
                raise
        self.waited += self.pauses > 0
        self.pauses = None
        if commit is None:
            self.note("no update", given, where)
            return
        before = self.before(commit)
        self.updates[commit] = [done.commit for done in before]
        found = {key: row for key, row in self.expected(before).items() if WHERE[where]({**EMPTY, **row})}
        said = [self.said(key, {**EMPTY, **row}, change) for key, row in found.items()]
        self.note("update", given, where, commit, found)
        self.add(commit, commit.requested_at, said)
        written = len(self.done[-1].writes)  # without what an overwrite has replaced meanwhile
        assert commit.rows == written, f"{commit} of {found}\n{self.story()}"
        self.check()

    def before(self, commit: Commit) -> list[Done]:
        """What comes before a commit, as far as it has ended by now."""
        return [done for done in self.done if done.commit.requested_at < commit.requested_at]

    def finish(self) -> None:
        super().finish()
        for commit, before in self.updates.items():
            late = [done.commit for done in self.before(commit) if done.commit not in before]
            assert not late, f"{late} come before {commit}, which was computed without them\n{self.story()}"

    def said(self, key: str, row: Row, change: Callable[[Row], dict[str, object]]) -> Statement:
        """What an update says of a row: all of it, or only what is set; nothing of columns with payloads."""
        changed: dict[str, Any] = {name: row.get(name) for name in self.columns} | change(row)
        if self.rule.startswith("partial"):
            changed = {name: changed[name] for name in (*self.key_columns, *change(row))}
        quiet = {name for trial in self.trials for name in names(trial)}
        return key, "row", tuple((name, None if name in quiet else value) for name, value in changed.items())

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

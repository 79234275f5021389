"""Renames, drops and rules in a random history: columns are called anew beside everything else that can happen.

The oracle knows a column by the name that it was created with, and so does all else of a history. Its handles are
`Named` tables: what goes in gets the names that people see at that moment, and what comes out loses them again. So a
transaction goes by the names of its begin, and a scan by those of its making. A column that is dropped is not asked for
any more, and what is written to it by those that began before shows nowhere.

Rules are such as every row fulfils, so that they refuse nothing but the drop of their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Final, Self, cast

import polars as pl
import pyarrow as pa

from crdt_mor import InvalidInputError, Rules, Table
from crdt_mor.ground.clock import Environment
from crdt_mor.read.trees import with_columns_named
from crdt_mor.store import Store
from tests.simulation.random_history import History
from tests.simulation.restore_history import RestoringHistory
from tests.simulation.upkeep_history import UpkeepHistory

SHARE: Final = 0.3
"""How often columns are called anew, of the steps of a history."""

NEW: Final = ["Größe", "Total Sales", "@t", "1Min", "a.b", "N"]
DROPPED: Final = ("b",)
CHECKED: Final = "a"
"""A column that is never below 0, to which the rules are."""


@dataclass(frozen=True)
class Names:
    """What columns are called, by the names that they were created with; and those that are dropped."""

    shown: Mapping[str, str] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()

    def inward(self, rows: pa.Table) -> pa.Table:
        """Rows of the history as people write them."""
        rows = rows.select([name for name in rows.column_names if name not in self.dropped])
        return rows.rename_columns([self.shown.get(name, name) for name in rows.column_names])

    def outward(self, rows: pa.Table) -> pa.Table:
        """Rows that people see, under the names of the history."""
        back = {shown: name for name, shown in self.shown.items()}
        return rows.rename_columns([back.get(name, name) for name in rows.column_names])

    def asked(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options of a call, its columns and conditions under the names that people see."""
        nulls = [self.shown.get(name, name) for name in options.pop("nulls", ()) if name not in self.dropped]
        return ({"nulls": nulls} if nulls else {}) | {
            option: self.condition(value) if option in ("filter", "where") and value is not None else value
            for option, value in options.items()
        }

    def condition(self, condition: pl.Expr) -> pl.Expr:
        """A condition of the history as people write it."""
        named = {name: self.shown.get(name, name) for name in condition.meta.root_names()}
        return cast("pl.Expr", with_columns_named(condition, named))


class _Of:
    """Something of a table's, seen through some names; all that it does not say is as it is."""

    def __init__(self, inner: Any, names: Names) -> None:
        self._inner = inner
        self._called = names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __repr__(self) -> str:
        return f"{self._inner!r} of {dict(self._called.shown)}"


class Read(_Of):
    """A scan or changes."""

    def to_arrow(self) -> pa.Table:
        return self._called.outward(self._inner.to_arrow())


class Written(_Of):
    """A transaction."""

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)

    def upsert(self, rows: pa.Table, **options: Any) -> None:
        self._inner.upsert(self._called.inward(rows), **self._called.asked(options))

    def overwrite(self, rows: pa.Table, **options: Any) -> None:
        self._inner.overwrite(self._called.inward(rows), **options)

    def delete(self, rows: pa.Table | None = None, **options: Any) -> None:
        self._inner.delete(None if rows is None else self._called.inward(rows), **self._called.asked(options))

    def scan(self, **options: Any) -> Read:
        return Read(self._inner.scan(**self._called.asked(options)), self._called)


class Named(_Of):
    """A handle, by which columns are called what they are called when it is used."""

    def __init__(self, inner: Table, now: Callable[[], Names]) -> None:
        super().__init__(inner, Names())
        self._now = now

    def transaction(self, **options: Any) -> Written:
        return Written(self._inner.transaction(**options), self._now())

    def upsert(self, rows: pa.Table, **options: Any) -> Any:
        return self._inner.upsert(self._now().inward(rows), **self._now().asked(options))

    def delete(self, rows: pa.Table, **options: Any) -> Any:
        return self._inner.delete(self._now().inward(rows), **options)

    def scan(self, **options: Any) -> Read:
        return Read(self._inner.scan(**self._now().asked(options)), self._now())

    def changes(self, *since: Any, **options: Any) -> Read:
        return Read(self._inner.changes(*since, **options), self._now())

    def diff(self, *ends: Any) -> Read:
        return Read(self._inner.diff(*ends), self._now())

    def set_properties(self, changes: dict[str, str | None]) -> None:
        order, names = changes.get("crdt_mor.cluster_by"), self._now()
        if order is not None:
            columns = [names.shown.get(name, name) for name in order.split(",") if name not in names.dropped]
            changes = {**changes, "crdt_mor.cluster_by": ",".join(columns) or None}
        self._inner.set_properties(changes)


@dataclass
class RenamingHistory(History):
    """A history with renames, drops and rules. counts: how often each happened."""

    fixed: ClassVar[frozenset[str]] = frozenset()
    """Columns that keep their names, as something of the history has them in words of its own."""

    names: Names = field(default_factory=Names)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("rename", "drop", "rule"), 0))
    calls: Random = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.calls = Random(repr(self.random.getstate()) + " names")

    def handle(self, ahead_ms: int) -> Table:
        return cast("Table", Named(super().handle(ahead_ms), lambda: self.names))

    def opened_over(self, store: Store, environment: Environment) -> Table:
        return cast("Table", Named(super().opened_over(store, environment), lambda: self.names))

    def go_on(self) -> None:
        if self.calls.random() < SHARE:
            self.calls.choice([self.rename, self.rename, self.exchange, self.drop, self.add_rule, self.drop_rule])()
        super().go_on()

    def of(self, name: str) -> str:
        """What people call a column."""
        return self.names.shown.get(name, name)

    @property
    def free(self) -> list[str]:
        """Columns that may be called otherwise: those of creation, as names of others may be brought meanwhile."""
        return [name for name in self.columns if name in self.created - self.fixed]

    def rename(self) -> None:
        name = self.calls.choice(self.free)
        new = self.calls.choice([n for n in (*NEW, name) if n not in map(self.of, self.columns)] or [self.of(name)])
        self.call({name: new})

    def exchange(self) -> None:
        one, other = self.calls.sample(self.free, 2)
        self.call({one: self.of(other), other: self.of(one)})

    def call(self, new: dict[str, str]) -> None:
        self.table.alter(rename={self.of(name): shown for name, shown in new.items()})
        self.names = Names({**self.names.shown, **new}, self.names.dropped)
        self.counts["rename"] += 1
        self.note("rename", new)

    def drop(self) -> None:
        for name in DROPPED:
            if name not in self.columns:
                return
            try:
                self.table.alter(drop=[self.of(name)])
            except InvalidInputError:
                order = self.table.properties.get("crdt_mor.cluster_by", "")
                assert self.of(name) in order.split(","), self.story()
                return
            del self.columns[name]
            shown = {own: other for own, other in self.names.shown.items() if own != name}
            self.names = Names(shown, self.names.dropped | {name})
            self.counts["drop"] += 1
            self.note("drop", name)

    def add_rule(self) -> None:
        column = self.of(CHECKED)
        self.counts["rule"] += 1
        self.table.add_rules(Rules(check={f"r{self.counts['rule']}": f'"{column}" >= 0'}), validate=False)
        with_rule = self.table.rules.check
        assert {*with_rule.values()} <= {f'"{column}" >= 0', f"{column} >= 0"}, self.story()
        self.note("rule", with_rule)

    def drop_rule(self) -> None:
        for name in [*self.table.rules.check][:1]:
            self.table.drop_rules(f"check {name}")
            self.note("no rule", name)


@dataclass
class RenamingUpkeepHistory(RenamingHistory, UpkeepHistory):
    """The same, with services; an erasure has keys and conditions of its own."""

    fixed = frozenset({"k", "p", "v"})


@dataclass
class RenamingRestoringHistory(RenamingHistory, RestoringHistory):
    """The same, with savepoints and restores."""

    fixed = frozenset({"k", "p", "v"})

"""A seed's plan: a table's settings and a list of actions, as plain values, so that the list can be shortened.

An action contains all its random numbers. Choices that depend on the run use `pick`, between 0 and 1, so leaving an
action out changes the others little.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

from crdt_mor.laws.examples import examples_of
from crdt_mor.merge.payload import Payload, RecordPayload
from crdt_mor.testing.simulation.chance import Chance
from crdt_mor.testing.simulation.machine import Happening, Trouble

Rule = Literal["latest", "ordering", "partial", "payloads", "partial, payloads"]
Given = dict[str, Any]
"""A written row."""

KEYS: Final = ("a", "b", "é")
PARTS: Final = ("x", "y")
ACCOUNTS: Final = ("bank1", "bank2", "bank3")
BANKS: Final = ("east", "west")
PROCESSES: Final = 4
ACTIONS: Final = (6, 22)

WAITS: Final = (0.002, 1.0, 70.0, 700.0, 3 * 3600.0)
"""Seconds; the fourth exceeds a writer's expiry, the last the readers' grace."""

BEGIN: Final = datetime(2023, 11, 14, 22, 13, 20, tzinfo=ZoneInfo("UTC"))
"""The beginning of every run."""

EXPIRIES: Final = (None, None, 0.5, 30.0, 300.0, 2000.0, 4 * 3600.0)
"""Seconds from the beginning of a run to the expiry of a row."""

TROUBLES: Final = 0.4
"""Share of actions with a trouble."""

WEIGHTS: Final = (
    ("upsert", 16), ("delete", 5), ("transfer", 8), ("open the accounts", 2), ("add one", 5), ("begin", 9), ("end", 9),
    ("overwrite", 4), ("job", 4), ("plan", 5), ("execute", 4), ("finish", 5), ("compact", 6), ("cancel", 2),
    ("clean", 4), ("archive", 3), ("maintain", 3), ("erase", 3), ("savepoint", 2), ("drop the savepoint", 1),
    ("restore", 2), ("hold", 3), ("read", 4), ("follow", 6), ("look", 5), ("wait", 6), ("cut the power", 2),
    ("restart", 2), ("repeat", 5), ("commit as Hudi", 6), ("migrate", 3), ("give the migration up", 1), ("rename", 3),
    ("add a column", 2), ("drop a column", 1),
)  # fmt: skip


HAPPENINGS: Final[tuple[tuple[Happening, int], ...]] = (
    ("pauses", 8), ("freezes", 3), ("dies before", 4), ("dies after", 4), ("fails", 3), ("loses the reply", 3),
    ("comes late", 2), ("is cut off", 4),
)  # fmt: skip
"""Troubles with weights."""


@dataclass(frozen=True)
class Settings:
    """The table of a run. payload: of the column `value`; `examples`: its written values, with type.

    expires: rows expire by the column `until`.
    """

    rule: Rule
    partitioned: bool
    buckets: int
    payload: Payload | None = field(default=None, repr=False)
    examples: tuple[tuple[Any, Any], ...] = field(default=(), repr=False)
    expires: bool = False

    @property
    def adds(self) -> bool:
        """True if `amount` is a counter; else it is updated in place."""
        return "payloads" in self.rule

    @property
    def is_partial(self) -> bool:
        return self.rule.startswith("partial")

    @property
    def value_columns(self) -> tuple[str, ...]:
        if self.payload is None:
            return ()
        column = self.payload.column()
        is_record = isinstance(self.payload, RecordPayload)
        return tuple(field.name for field in column) if is_record else ("value",)


@dataclass(frozen=True)
class Action:
    number: int
    kind: str
    who: int
    rows: tuple[Given, ...] = ()
    keys: tuple[str, ...] = ()
    pick: float = 0.0
    how: str = ""
    seconds: float = 0.0
    trouble: Trouble | None = None


@dataclass(frozen=True)
class Plan:
    seed: int
    settings: Settings
    actions: tuple[Action, ...]


def plan_of(seed: int, payload: Payload | None, shipped: tuple[Payload, ...]) -> Plan:
    """payload: the user's; None: a shipped one, if the rule has any."""
    chance = Chance(seed)
    own: tuple[tuple[Rule, int], ...] = (("payloads", 2), ("partial, payloads", 1))
    all_rules: tuple[tuple[Rule, int], ...] = (("latest", 3), ("ordering", 2), ("partial", 2), *own)
    is_partial_refused = payload is not None and payload.nulls == "value"
    rule: Rule = chance.weighted(own[:1] if is_partial_refused else own if payload else all_rules)
    column = payload if payload or "payloads" not in rule else chance.choice(shipped)
    settings = Settings(
        rule, chance.happens(0.35), chance.choice((1, 1, 2)), column, tuple(examples_of(column)) if column else (),
        rule in ("latest", "ordering") and Chance(seed, "expiry of rows").happens(0.25),
    )  # fmt: skip
    drawn = _Drawn(chance, settings)
    first = Action(0, "open the accounts", 0)
    actions = [drawn.action(number) for number in range(1, chance.between(*ACTIONS))]
    return Plan(seed, settings, (first, *actions))


@dataclass
class _Drawn:
    chance: Chance
    settings: Settings

    def action(self, number: int) -> Action:
        chance, kind = self.chance, self.chance.weighted(WEIGHTS)
        action = Action(number, kind, chance.below(PROCESSES), pick=chance.number())
        match kind:
            case "upsert" | "begin" | "job" | "add a column":
                rows = self._rows(number, chance.between(1, 3))
                action = replace(action, rows=rows, how=chance.choice(("", "", "repeated")))
            case "commit as Hudi":
                gone = chance.some(self._keys(), chance.below(2))
                rows = tuple(row for row in self._rows(number, 2) if row["name"] not in gone)
                action = replace(action, rows=rows or self._rows(number, 1), keys=tuple(gone) if rows else ())
            case "migrate":
                how = chance.choice(("", "", "latest", "partial")) + chance.choice((", roll back", ", wait"))
                action = replace(action, how=how)
            case "overwrite":
                rows = tuple(self._row(number, i) for i in range(chance.between(0, 2)))
                how = chance.choice(("all", "dynamic")) if self.settings.partitioned and rows else "all"
                action = replace(action, rows=rows, how=how)
            case "delete" | "erase" | "add one":
                keys = chance.some(self._keys(), 1 if kind == "add one" else chance.between(1, 2))
                action = replace(action, keys=tuple(keys), how=chance.choice(("", "plain")))
            case "transfer":
                pair = tuple(chance.some(ACCOUNTS, 2))
                action = replace(action, keys=pair, pick=chance.between(1, 9))
            case "end":
                action = replace(action, how=chance.choice(("commit", "commit", "commit", "roll back")))
            case "plan" | "compact":
                action = replace(action, how=chance.choice(("", "", "logs only")))
            case "wait":
                action = replace(action, seconds=chance.choice(WAITS))
            case "follow":
                action = replace(action, how=chance.choice(("latest", "latest, images", "stable", "stable, images")))
        return replace(action, trouble=self._trouble(kind))

    def _keys(self) -> list[str]:
        return [f"{part}/{key}" for part in PARTS for key in KEYS] if self.settings.partitioned else list(KEYS)

    def _rows(self, number: int, count: int) -> tuple[Given, ...]:
        rows = [self._row(number, place) for place in range(count)]
        if self.settings.is_partial:
            given = {"name", *(name for name in rows[0] if self.chance.happens(0.6))}
            rows = [{name: value for name, value in row.items() if name in given} for row in rows]
        return tuple(rows)

    def _row(self, number: int, place: int) -> Given:
        chance, settings = self.chance, self.settings
        row: Given = {"name": chance.choice(self._keys()), "v": chance.between(-1, 3), "note": f"n{number}.{place}"}
        row["amount"] = chance.between(-3, 5)
        if settings.payload is not None:
            row["value"] = chance.below(len(settings.examples))
        if settings.expires:
            after = chance.choice(EXPIRIES)
            row["until"] = None if after is None else BEGIN + timedelta(seconds=after)
        return row

    def _trouble(self, kind: str) -> Trouble | None:
        chance = self.chance
        if kind in ("wait", "cut the power", "restart") or not chance.happens(TROUBLES):
            return None
        if kind in ("transfer", "add one") and chance.happens(0.3):
            return Trouble("pauses", "sleep", 1, chance.between(1, 3), 0.1)
        happening = chance.weighted(HAPPENINGS)
        at = chance.between(1, 8)
        if happening in ("pauses", "freezes"):
            is_change = chance.happens(0.7)
            seconds = chance.choice(WAITS[:4])
            return Trouble(happening, "change" if is_change else "call", at if is_change else 3 * at,
                           chance.between(1, 4), seconds)  # fmt: skip
        of_calls = happening == "fails" and chance.happens(0.4)
        return Trouble(happening, "call" if of_calls else "change", 3 * at if of_calls else at, chance.between(1, 3))

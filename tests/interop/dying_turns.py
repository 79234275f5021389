"""Turns in which a process of ours dies, or leaves a plan open, before Hudi's statement: see `tests.interop.turns`.

A step of ours dies at one of its puts and deletes, whichever it is. Readers show what it leaves as before the step, or
as after it. Then, by chance, the page's advice for a crash is followed, or Hudi has its turn at once: an UPDATE, a
compaction or a clean. A statement that Hudi refuses must have written nothing, and work once the advice was followed. A
compaction that left out a commit of ours must be refused by name, and be taken back as the error says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from crdt_mor import Opening, Table
from crdt_mor.errors import UnsupportedFeatureError
from crdt_mor.store.local import LocalStore
from crdt_mor.testing.faults import InterruptedStore, ProcessDied
from tests.interop.readers import Refused, hudi_rs, ours
from tests.interop.turn_tables import Said
from tests.interop.turns import Turns

MORTAL = {
    "upsert": 5, "delete": 2, "update": 2, "overwrite": 2, "compact": 4, "compact logs": 1, "clean": 3, "archive": 1,
    "maintain": 2, "plan": 3, "plan executed": 2,
}  # fmt: skip
"""Steps of ours that die; a plan is only left open."""

NEXT = {"UPDATE": 4, "compaction": 3, "cleaning": 2}
"""Hudi's statement after it."""

LAST = 11
"""A step dies at one of so many puts and deletes; one that has fewer may end."""

TWO_BASES = "already present in File Group"


class DyingTurns(Turns):
    """Histories in which each turn begins with a death."""

    def run(self, turns: int) -> None:
        """So many turns: a death of ours, Hudi's statement, and a step of ours."""
        self.step("upsert")
        for _ in range(turns):
            self._die()
            self.step(self._drawn({"upsert": 3, "delete": 1, "compact": 1, "clean": 1}))
            if self.chance.random() < 0.4:
                self.step(self._drawn(NEXT))
        self.step("compact")

    # --- one death ------------------------------------------------------------------------------------------------

    def _die(self) -> None:
        """A step that may die, Hudi's statement after it, and whatever the page says to do."""
        self._fold_parts()
        name, statement = self._drawn(MORTAL), self.chance.choices([*NEXT], [*NEXT.values()])[0]
        at, follows = self.chance.randint(1, LAST), self.chance.random() < 0.4
        before, after = self._dies(name, at)
        shown = self._said(ours(Table(self.root)))
        assert shown in (before, after), f"neither before nor after\n{self._difference(ours(Table(self.root)))}"
        self.rows = shown
        seen = self._said(self.spark.read(self.root))
        for reader, rows in (("Spark", seen), ("hudi-rs", self._said(hudi_rs(self.root)))):
            assert rows in (before, after), f"{reader} shows neither before nor after: {rows}\n{self.story}"
        self.done[f"death in {name}"] += 1
        if follows:
            self.steps.append("advice")
            self._follow_advice()
            seen = self.rows
        self.steps.append(statement)
        if not self._hudi(statement, seen):
            self._follow_advice()
            assert self._hudi(statement, self.rows), f"refused after the advice\n{self.story}"
            self.steps.append("(again)")
        self._require_looks()
        self._follow_advice()
        self.done[statement] += 1

    def _dies(self, name: str, at: int) -> tuple[Said, Said]:
        """Let a step die; the rows before it, and those after it where it is done."""
        do: Callable[[], None] = getattr(self, "_" + name.replace(" ", "_"))
        self.steps.append(f"{name} dies at {at}")
        before, state, count, table = dict(self.rows), self.chance.getstate(), self.count, self.table
        self.table = _Nothing()  # type: ignore[assignment]
        do()
        after, self.rows = self.rows, dict(before)
        self.chance.setstate(state)
        self.count = count
        dying = InterruptedStore(LocalStore(str(self.root)))
        self.table = Table(self.root, opening=Opening(store=dying))
        dying.arm(at, dying.die)
        with suppress(ProcessDied):
            do()
            self.steps.append("(ended)")
        self.rows, self.table = before, table
        return before, after

    def _plan(self) -> None:
        self.table.maintenance.plans.schedule()

    def _plan_executed(self) -> None:
        plan = self.table.maintenance.plans.schedule()
        if isinstance(plan, _Nothing):
            return
        if plan is not None:
            self.table.maintenance.plans.execute(plan)

    def _follow_advice(self) -> None:
        """What the page says to run before Hudi's turn after a crash."""
        table = Table(self.root)
        assert table.maintenance.maintain().ok, self.story
        for instant in table.inspect.pending()["requested_at"].to_pylist():
            table.maintenance.roll_back(instant)
        self.look()

    # --- Hudi's statement -----------------------------------------------------------------------------------------

    def _hudi(self, statement: str, seen: Said) -> bool:
        """Whether Hudi's statement was made, on the rows that Hudi sees. A refused one has written nothing."""
        own, self.rows = self.rows, dict(seen)
        why = self._refused(getattr(self, f"_sql_{statement.lower()}"), Refused)
        if why:
            self.rows = own
            left = self._said(self.spark.read(self.root))
            assert left == seen, f"it raised, and wrote {left}\n{why}\n{self.story}"
            self.steps.append(f"(Hudi refused: {re.findall(r'Caused by: .*', why)[-1:]})")
            self.done["refused by Hudi before it wrote"] += 1
            return False
        changed = {place: row for place, row in self.rows.items() if seen.get(place) != row}
        gone = [place for place in seen if place not in self.rows]
        self.rows = {place: row for place, row in {**own, **changed}.items() if place not in gone}
        return True

    def _require_looks(self) -> None:
        """Our readers show the rows, or name the compaction of Hudi's that left some out; then it is taken back.

        Hudi's readers lack what Hudi is not told of yet. hudi-rs may refuse a plan that both have executed.
        """
        said = self._refused(lambda: Table(self.root), UnsupportedFeatureError)
        if said:
            assert "misses an earlier commit" in said, f"{said}\n{self.story}"
            self._take_back(said)
            return
        found = ours(Table(self.root))
        assert self._said(found) == self.rows, f"ours\n{self._difference(found)}"
        refused = self._refused(lambda: hudi_rs(self.root), Refused)
        assert not refused or TWO_BASES in refused, f"{refused}\n{self.story}"

    def _take_back(self, said: str) -> None:
        """Take a compaction of Hudi's back, as the error says."""
        (instant,) = re.findall(r"compaction=(\d{17})", said)
        bases: list[str] = ast.literal_eval(re.findall(r"base_files=(\[.*?\])", said)[0])
        for path in (self.root / ".hoodie/timeline").glob(f"*{instant}*"):
            path.unlink()
        for base in bases:
            (self.root / base).unlink()
        self.steps.append("(taken back)")
        self.done["compaction taken back"] += 1


class _Nothing:
    """A table to which nothing happens: what a step makes of the rows is seen alone."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: object, **__: object) -> Any:
        return self

"""What was written in a run, what became of it, and which rows follow from that.

The history of the table says *which* writes landed, when, and in which order those of one group stand; what each of
them means is told here a second time, by the fold of `crdt_mor.testing.oracle` over what the plan has written. A write
is known in the history by its number, which it carries as `commit_info`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from crdt_mor.testing.oracle import Contribution, MergeRule, Row, fold
from crdt_mor.testing.simulation.invariants import BrokenPromiseError
from crdt_mor.testing.simulation.meaning import Meanings
from crdt_mor.testing.simulation.plan import Rule, Settings

Kind = Literal["delete", "tombstone", "row"]
Said = tuple[str, Kind, Mapping[str, Any]]
"""What a write says of a key: rows give columns, deletes none, and tombstones their ordering value."""

Told = Literal["under way", "committed", "not written", "unknown"]


@dataclass
class Write:
    """A write of the plan. computed: of an update in place, what it says after the rows that came before it."""

    number: int
    said: list[Said] = field(default_factory=list)
    computed: Callable[[dict[str, Row]], list[Said]] | None = None
    told: Told = "under way"
    times: tuple[str, str] = ("", "")
    """When its commit was requested and completed, as the writer was told."""


@dataclass(frozen=True)
class Landed:
    """A commit that the history has shown. begun: when its rows were requested; of an overwrite before `requested`."""

    version: int
    begun: str
    requested: str
    completed: str
    covered: tuple[str, ...] | None
    numbers: tuple[int, ...]
    writes: tuple[Contribution, ...]

    def voids(self, other: Landed, key: str) -> bool:
        """Whether this overwrite replaces what another commit wrote to a key, however late that one completes."""
        if self.covered is None or other.requested >= self.requested:
            return False
        return self.covered == ("*",) or any(path == key.rpartition("/")[0] for path in self.covered)


@dataclass
class Ledger:
    """The writes of a run, and the commits that they have become."""

    settings: Settings
    columns: list[str]
    meanings: Meanings
    writes: dict[int, Write] = field(default_factory=dict)
    landed: list[Landed] = field(default_factory=list)
    gone: list[Landed] = field(default_factory=list)
    """The commits that restores have dropped."""
    restoring: list[str] = field(default_factory=list)
    """The moments of restores that have begun and of which nobody knows yet whether they landed."""
    restored: int = 0
    erasing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The keys of the last erasure that each process has begun: its commit carries the name of the process alone."""
    foreign: dict[str, int] = field(default_factory=dict)
    """The writes of Hudi's, whose instants say nothing but their requested times."""
    moved: list[Landed] = field(default_factory=list)
    """The commits to tables that have moved."""
    _known: set[tuple[str, str]] = field(default_factory=set)

    @property
    def rule(self) -> MergeRule:
        """The merge rule, as the oracle has it."""
        kinds = {
            "latest": MergeRule(), "ordering": MergeRule("ordering", ordering="v"), "partial": MergeRule("columns"),
            "payloads": MergeRule("columns", whole=True), "partial, payloads": MergeRule("columns"),
        }  # fmt: skip
        return kinds[self.settings.rule]

    def begin(self, write: Write) -> Write:
        """Note a write before its first call."""
        self.writes[write.number] = write
        return write

    def has_landed(self, number: int) -> bool:
        """Whether the history has shown a write."""
        return self.has(number) or self.has_dropped(number)

    def has(self, number: int) -> bool:
        """Whether the table has a write: a restore may drop one, and who repeats it then commits it anew."""
        return any(number in one.numbers for one in (*self.moved, *self.landed))

    def has_dropped(self, number: int) -> bool:
        """Whether a restore has dropped a write, and nobody has committed it anew."""
        return not self.has(number) and any(number in one.numbers for one in self.gone)

    # --- what has landed ------------------------------------------------------------------------------------------

    def sync(self, history: Sequence[dict[str, Any]], deleted_in: Callable[[int], list[str] | None]) -> None:
        """Take in what the history shows and was not known.

        history: its rows, oldest first. deleted_in: the keys that the commit of a version deletes; None where that can
            no longer be read, as the erasure is finished: no older write was pending then, so that all of its keys do.
        """
        for row in history:
            mark = (row["requested_at"], row["completed_at"])
            if mark in self._known:
                continue
            self._known.add(mark)
            if row["kind"] == "restore":
                self._restored()
            elif row["kind"] == "write":
                self._land(row, deleted_in)
        self.require_told()

    def _land(self, row: dict[str, Any], deleted_in: Callable[[int], list[str] | None]) -> None:
        numbers = tuple(self._numbers(row))
        said: list[Said] = []
        if not numbers:
            keys = self.erasing.get(row["application"])
            if keys is None:
                raise BrokenPromiseError(
                    "nothing-twice", f"there is a commit that nobody has made. version={row['version']}"
                )
            found = deleted_in(row["version"])
            said = [(key, "delete", {}) for key in (keys if found is None else found)]
        begun = _begun(row)
        made = Landed(row["version"], begun, row["requested_at"], row["completed_at"],
                      None if row["covered"] is None else tuple(_partition(path) for path in row["covered"]),
                      numbers, ())  # fmt: skip
        twice = [n for n in numbers for other in (*self.moved, *self.landed) if n in other.numbers]
        if twice or len(set(numbers)) < len(numbers):
            raise BrokenPromiseError("nothing-twice", f"a write has landed twice. write={twice or numbers}")
        for number in numbers:
            write = self.writes[number]
            if write.computed is not None:
                before = [one for one in self.landed if one.requested < made.requested]
                write.said = write.computed(self.expected(before))
            said = [*said, *write.said]
        writes = tuple(
            Contribution(f"{begun}.{place:03d}", key, kind, tuple(given.items()), made.completed)
            for place, (key, kind, given) in enumerate(said)
        )
        self._require_exact(made, said)
        self.landed.append(replace(made, writes=writes))

    def _numbers(self, row: dict[str, Any]) -> list[int]:
        """The numbers of the writes that became a commit, in the order in which they stand in it."""
        if row["adopted"]:
            return [self.foreign[row["requested_at"]]] if row["requested_at"] in self.foreign else []
        return _numbers(row)

    def as_left(self) -> Ledger:
        """The ledger of a table that has moved: nothing that is noted later changes it."""
        return replace(self, moved=[*self.moved], gone=[*self.gone])

    def move(self, history: Sequence[dict[str, Any]], opened: str, rule: Rule | None) -> None:
        """The table has moved. In the new one all that had landed is one commit, by which it was opened.

        history: that of the new table. rule: of the new table, which begins with the rows that readers saw; None: it
            has the same one, and every state is as it was.
        """
        before = [row for row in history if row["completed_at"] <= opened]
        self._known |= {(row["requested_at"], row["completed_at"]) for row in before}
        requested = max((row["requested_at"] for row in before), default=opened)
        if rule is None:
            writes = tuple(self._not_replaced(self.landed))
        else:
            writes = tuple(
                Contribution(f"{requested}.000", key, "row", tuple((n, row[n]) for n in self.columns), opened)
                for key, row in self.expected(self.landed).items()
            )
            self.settings = replace(self.settings, rule=rule)
        version = max((row["version"] for row in before), default=0)
        self.moved += self.landed
        self.landed = [Landed(version, requested, requested, opened, None, (), writes)]

    def _require_exact(self, made: Landed, said: Sequence[Said]) -> None:
        """A write that takes its place before an update in place, and comes after it, was not computed with."""
        keys = {key for key, _, _ in said}
        for other in self.landed:
            if other.requested <= made.requested or other.covered is not None:
                continue
            updates = [self.writes[n] for n in other.numbers if self.writes[n].computed]
            late = [update.number for update in updates if keys & {key for key, _, _ in update.said}]
            if late:
                raise BrokenPromiseError(
                    "increments-add-up",
                    f"write {made.numbers} comes before update {late}, which was computed without it",
                )

    def _restored(self) -> None:
        if len(self.restoring) != 1:
            raise BrokenPromiseError(
                "nothing-twice", f"there is a restore that nobody has made. begun={self.restoring}"
            )
        (moment,) = self.restoring
        self.restoring.clear()
        self.restored += 1
        self.gone += [one for one in self.landed if one.completed > moment]
        self.landed = [one for one in self.landed if one.completed <= moment]

    def require_told(self) -> None:
        """What a writer was told of its write is so."""
        for write in self.writes.values():
            found = [one for one in (*self.moved, *self.landed, *self.gone) if write.number in one.numbers]
            if write.told == "committed" and not found:
                raise BrokenPromiseError("nothing-lost", f"write {write.number} was acknowledged, and no commit has it")
            if write.told == "committed" and write.times not in [(one.requested, one.completed) for one in found]:
                text = f"write {write.number} was told {write.times}, and the history has {found}"
                raise BrokenPromiseError("one-moment", text)
            # One that a restore has dropped before its writer was told is told as one that is not there, which is so.
            stays = [one for one in found if one not in self.gone]
            if write.told == "not written" and stays:
                text = f"write {write.number} was told that nothing is written, and version {stays[0].version} has it"
                raise BrokenPromiseError("given-up-stays-away", text)

    # --- what follows from it -------------------------------------------------------------------------------------

    def expected(self, commits: Iterable[Landed]) -> dict[str, Row]:
        """The rows that a table shows of which these commits are all, by key."""
        writes = self._not_replaced(list(commits))
        return fold(writes, self.rule, self.columns, self.meanings.of([*self.moved, *self.landed]))

    def _not_replaced(self, commits: Sequence[Landed]) -> list[Contribution]:
        """What commits say that no overwrite among them has replaced."""
        overwrites = [one for one in commits if one.covered is not None]
        return [w for one in commits for w in one.writes if not any(o.voids(one, w.key) for o in overwrites)]

    def as_of(self, completed: str) -> list[Landed]:
        """The commits that had completed by a moment."""
        return [one for one in self.landed if one.completed <= completed]

    def before(self, checkpoint: str) -> list[Landed]:
        """The commits before a checkpoint of changes."""
        by, time = checkpoint.split(":")[:2]
        return [one for one in self.landed if (one.completed <= time if by == "completed" else one.requested < time)]


def _numbers(row: dict[str, Any]) -> list[int]:
    """The numbers of the writes that became a commit, in the order in which they stand in it."""
    writers = row["writers"] or [row]
    infos = [dict(writer["commit_info"] or ()) for writer in writers]
    return [int(info["write"]) for info in infos if "write" in info]


def _partition(path: str) -> str:
    return path.rpartition("=")[2]


def _begun(row: dict[str, Any]) -> str:
    """When the rows of a commit were requested: those of an overwrite before the commit itself."""
    if row["covered"] is None:
        return str(row["requested_at"])
    completed = datetime.strptime(f"{row['completed_at']}000", "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
    duration: timedelta = row["duration"]
    return (completed - duration).strftime("%Y%m%d%H%M%S%f")[:17]

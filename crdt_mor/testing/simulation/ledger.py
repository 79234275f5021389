"""Record the writes of a run and their outcomes, and derive the expected rows.

The table's history tells *which* writes landed, when and in which order. Their meaning comes from the plan through
`crdt_mor.merge.oracle`. Each write carries its number as `commit_info`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from crdt_mor.merge.oracle import Contribution, MergeRule, Row, fold
from crdt_mor.model.instant import InstantTime, to_datetime
from crdt_mor.testing.simulation.invariants import BrokenPromiseError
from crdt_mor.testing.simulation.meaning import Meanings
from crdt_mor.testing.simulation.plan import Rule, Settings

Kind = Literal["delete", "tombstone", "row"]
KeyWrite = tuple[str, Kind, Mapping[str, Any]]
"""A write to a key: rows give columns, deletes none, tombstones their ordering value."""

Reported = Literal["under way", "committed", "not written", "unknown"]


@dataclass
class Write:
    """A write of the plan. computed: for an update in place, its rows given the earlier rows."""

    number: int
    key_writes: list[KeyWrite] = field(default_factory=list)
    computed: Callable[[dict[str, Row]], list[KeyWrite]] | None = None
    reported: Reported = "under way"
    times: tuple[str, str] = ("", "")
    """Requested and completion time that the writer received."""


@dataclass(frozen=True)
class Landed:
    version: int
    begun: str
    requested: str
    completed: str
    covered: tuple[str, ...] | None
    numbers: tuple[int, ...]
    writes: tuple[Contribution, ...]

    def voids(self, other: Landed, key: str) -> bool:
        """Return True if this overwrite replaces the other commit's write to a key, however late it completes."""
        if self.covered is None or other.requested >= self.requested:
            return False
        return self.covered == ("*",) or any(path == key.rpartition("/")[0] for path in self.covered)


@dataclass
class Ledger:
    settings: Settings
    columns: list[str]
    meanings: Meanings
    writes: dict[int, Write] = field(default_factory=dict)
    landed: list[Landed] = field(default_factory=list)
    dropped: list[Landed] = field(default_factory=list)
    """Commits dropped by restores."""
    restoring: list[str] = field(default_factory=list)
    """Moments of restores with unknown outcome."""
    restored: int = 0
    erasing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Keys of each process's last erasure: its commit names only the process."""
    foreign: dict[str, int] = field(default_factory=dict)
    """Hudi's writes, identified only by requested times."""
    moved: list[Landed] = field(default_factory=list)
    """Commits to moved tables."""
    _known: set[tuple[str, str]] = field(default_factory=set)

    @property
    def rule(self) -> MergeRule:
        kinds = {
            "latest": MergeRule(), "ordering": MergeRule("ordering", ordering="v"), "partial": MergeRule("columns"),
            "payloads": MergeRule("columns", whole=True), "partial, payloads": MergeRule("columns"),
        }  # fmt: skip
        return kinds[self.settings.rule]

    def begin(self, write: Write) -> Write:
        self.writes[write.number] = write
        return write

    def has_landed(self, number: int) -> bool:
        return self.has(number) or self.has_dropped(number)

    def has(self, number: int) -> bool:
        return any(number in one.numbers for one in (*self.moved, *self.landed))

    def has_dropped(self, number: int) -> bool:
        return not self.has(number) and any(number in one.numbers for one in self.dropped)

    # --- landed commits -----------------------------------------------------------------------------------------------

    def sync(self, history: Sequence[dict[str, Any]], deleted_in: Callable[[int], list[str] | None]) -> None:
        """Add new commits of the history.

        history: its rows, oldest first. deleted_in: returns the keys deleted by a version's commit; None for a
            finished erasure, which had no older pending writes, so all of its keys count.
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
        said: list[KeyWrite] = []
        if not numbers:
            keys = self.erasing.get(row["application"])
            if keys is None:
                raise BrokenPromiseError(
                    "nothing-twice", f"a commit appeared that nobody made. version={row['version']}"
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
                write.key_writes = write.computed(self.expected(before, made.requested))
            said = [*said, *write.key_writes]
        writes = tuple(
            Contribution(f"{begun}.{place:03d}", key, kind, tuple(given.items()), made.completed)
            for place, (key, kind, given) in enumerate(said)
        )
        self._require_exact(made, said)
        self.landed.append(replace(made, writes=writes))

    def _numbers(self, row: dict[str, Any]) -> list[int]:
        if row["adopted"]:
            return [self.foreign[row["requested_at"]]] if row["requested_at"] in self.foreign else []
        return _numbers(row)

    def as_left(self) -> Ledger:
        return replace(self, moved=[*self.moved], dropped=[*self.dropped])

    def move(self, history: Sequence[dict[str, Any]], opened: str, rule: Rule | None) -> None:
        """Move to the new table. Its opening commit contains all landed commits.

        history: the new table's. rule: the new table's rule, which starts with visible rows; None: the same rule and
        states.
        """
        before = [row for row in history if row["completed_at"] <= opened]
        self._known |= {(row["requested_at"], row["completed_at"]) for row in before}
        requested = max((row["requested_at"] for row in before), default=opened)
        if rule is None:
            writes = tuple(self._not_replaced(self.landed))
        else:
            writes = tuple(
                Contribution(f"{requested}.000", key, "row", tuple((n, row[n]) for n in self.columns), opened)
                for key, row in self.expected(self.landed, opened).items()
            )
            self.settings = replace(self.settings, rule=rule)
        version = max((row["version"] for row in before), default=0)
        self.moved += self.landed
        self.landed = [Landed(version, requested, requested, opened, None, (), writes)]

    def _require_exact(self, made: Landed, said: Sequence[KeyWrite]) -> None:
        keys = {key for key, _, _ in said}
        for other in self.landed:
            if other.requested <= made.requested or other.covered is not None:
                continue
            updates = [self.writes[n] for n in other.numbers if self.writes[n].computed]
            late = [update.number for update in updates if keys & {key for key, _, _ in update.key_writes}]
            if late:
                raise BrokenPromiseError(
                    "increments-add-up",
                    f"write {made.numbers} comes before update {late}, which was computed without it",
                )

    def _restored(self) -> None:
        if len(self.restoring) != 1:
            raise BrokenPromiseError("nothing-twice", f"a restore appeared that nobody made. begun={self.restoring}")
        (moment,) = self.restoring
        self.restoring.clear()
        self.restored += 1
        self.dropped += [one for one in self.landed if one.completed > moment]
        self.landed = [one for one in self.landed if one.completed <= moment]

    def require_told(self) -> None:
        for write in self.writes.values():
            found = [one for one in (*self.moved, *self.landed, *self.dropped) if write.number in one.numbers]
            if write.reported == "committed" and not found:
                raise BrokenPromiseError(
                    "nothing-lost", f"write {write.number} was acknowledged, but no commit contains the write"
                )
            if write.reported == "committed" and write.times not in [(one.requested, one.completed) for one in found]:
                text = f"write {write.number} was told {write.times}, but the history records {found}"
                raise BrokenPromiseError("one-moment", text)
            # If a restore dropped the write first, the writer is rightly told that it is missing.
            stays = [one for one in found if one not in self.dropped]
            if write.reported == "not written" and stays:
                text = f"write {write.number} was told that nothing is written, and version {stays[0].version} has it"
                raise BrokenPromiseError("given-up-stays-away", text)

    # --- expected rows ------------------------------------------------------------------------------------------------

    def expected(self, commits: Iterable[Landed], at: str) -> dict[str, Row]:
        """Return the rows of these commits that have not expired at a moment."""
        writes = self._not_replaced(list(commits))
        rows = fold(writes, self.rule, self.columns, self.meanings.of([*self.moved, *self.landed]))
        moment = to_datetime(InstantTime(at))
        return {key: row for key, row in rows.items() if not _has_expired(row.get("until"), moment)}

    def _not_replaced(self, commits: Sequence[Landed]) -> list[Contribution]:
        overwrites = [one for one in commits if one.covered is not None]
        return [w for one in commits for w in one.writes if not any(o.voids(one, w.key) for o in overwrites)]

    def as_of(self, completed: str) -> list[Landed]:
        return [one for one in self.landed if one.completed <= completed]

    def before(self, checkpoint: str) -> list[Landed]:
        by, time = checkpoint.split(":")[:2]
        return [one for one in self.landed if (one.completed <= time if by == "completed" else one.requested < time)]


def _has_expired(until: Any, moment: datetime) -> bool:
    return until is not None and until <= moment


def _numbers(row: dict[str, Any]) -> list[int]:
    writers = row["writers"] or [row]
    infos = [dict(writer["commit_info"] or ()) for writer in writers]
    return [int(info["write"]) for info in infos if "write" in info]


def _partition(path: str) -> str:
    return path.rpartition("=")[2]


def _begun(row: dict[str, Any]) -> str:
    """Return the requested time of a commit's rows; an overwrite's rows are requested earlier."""
    if row["covered"] is None:
        return str(row["requested_at"])
    completed = datetime.strptime(f"{row['completed_at']}000", "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
    duration: timedelta = row["duration"]
    return (completed - duration).strftime("%Y%m%d%H%M%S%f")[:17]

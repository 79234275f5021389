"""Results of `maintain`, with their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from crdt_mor.model.policies import plural, words_of_bytes
from crdt_mor.planners.compaction_due import DueGroup

DETAILS_SHOWN = 3
"""Reasons shown in an action's text."""

State = Literal["done", "due", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class Upkeep:
    """An action of `maintain`: done, due or failed.

    Attributes:
        service: `hudi`, `compaction`, `log_compaction`, `clean`, `erasure`, `sweep`, `archive`, `tokens`, `hints`,
            `mirror` or `catalog`; `maintain` if the table forbids all of them.
        state: `done`; `due` in a dry run, or for an erasure that waits for writers; `refused` if the table or this
            release forbids it; `failed` with the reason in `error`.
        why: Reason in words; "" if unknown.
        details: Reason for each file group.
        file_groups, rows: Compacted.
    """

    service: str
    state: Literal["done", "due", "refused", "failed"]
    why: str
    details: tuple[str, ...] = ()
    file_groups: int = 0
    rows: int = 0
    files_written: int = 0
    bytes_written: int = 0
    files_removed: int = 0
    bytes_removed: int = 0
    error: str = ""

    def __str__(self) -> str:
        shown = self.details[:DETAILS_SHOWN]
        more = f", and {len(self.details) - len(shown):,} more" if len(self.details) > len(shown) else ""
        reasons = f" ({'; '.join(shown)}{more})" if shown else ""
        outcome = "; ".join(filter(None, (self._results(), self.error)))
        said = f"{self.service.replace('_', ' ')} {self.state}" + (f", since {self.why}{reasons}" if self.why else "")
        return f"{said}: {outcome}" if outcome else said

    def _results(self) -> str:
        parts = []
        if self.file_groups:
            parts.append(plural(self.file_groups, "file group"))
        if self.files_written:
            parts.append(f"wrote {plural(self.files_written, 'file')}, {words_of_bytes(self.bytes_written)}")
        if self.files_removed:
            parts.append(f"removed {plural(self.files_removed, 'file')}, {words_of_bytes(self.bytes_removed)}")
        return ", ".join(parts)


def due_action(name: str, due: Sequence[DueGroup], state: State) -> Upkeep:
    if len(due) == 1:
        return Upkeep(name, state, due[0].why)
    return Upkeep(name, state, f"{plural(len(due), 'file group')} are due", tuple(one.why for one in due))


@dataclass(frozen=True, slots=True)
class Maintained:
    """The result of `maintain`.

    Attributes:
        actions: In the order of execution.
        waits: If nothing is due, each policy and how close the table is to its threshold.
    """

    actions: tuple[Upkeep, ...]
    dry_run: bool = False
    waits: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if no service failed. Services that the table forbids do not count."""
        return all(action.state != "failed" for action in self.actions)

    @property
    def files_removed(self) -> int:
        return sum(action.files_removed for action in self.actions)

    @property
    def bytes_removed(self) -> int:
        return sum(action.bytes_removed for action in self.actions)

    @property
    def files_written(self) -> int:
        return sum(action.files_written for action in self.actions)

    @property
    def bytes_written(self) -> int:
        return sum(action.bytes_written for action in self.actions)

    def __str__(self) -> str:
        if self.actions:
            return "\n".join(map(str, self.actions))
        return "; ".join(["nothing is due", *self.waits])

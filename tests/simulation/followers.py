"""Readers of increments, who live beside a random history and each keep a copy of its table.

A follower wakes now and then, takes the changes since its last checkpoint from any handle, and applies them to what it
has. Its copy must then be the plain fold of the commits up to that checkpoint: nothing skipped, nothing counted twice.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from crdt_mor import Changes, Table
from crdt_mor.merge.oracle import Row

if TYPE_CHECKING:
    from tests.simulation.random_history import Done, History

OF_CHANGES = ("_change_type", "_commit_version", "_commit_timestamp")


@dataclass
class Follower:
    """One reader: what it asks for, where it stands, and its copy."""

    consistency: Literal["latest", "stable"]
    images: bool
    checkpoint: str | None = None
    copy: dict[str, Row] = field(default_factory=dict)

    def go_on(self, history: History) -> None:
        table = history.table
        changes = table.changes(self.checkpoint, images=self.images, consistency=self.consistency)
        apply(changes, self.copy, history, images=self.images)
        self.count(changes, table, history)
        self.checkpoint = changes.checkpoint
        by, _, time = self.checkpoint.partition(":")
        seen = [d for d in history.done if shown(d, by, time)]
        same(self.copy, history.expected(seen), history, f"{self}")

    def count(self, changes: Changes, table: Table, history: History) -> None:
        """The same changes without a column of the table: as many rows of each kind, but updates of no column."""
        asked: dict[str, Any] = {"images": self.images, "consistency": self.consistency}
        counted = table.changes(self.checkpoint, columns=[], until=changes.checkpoint, **asked)
        wanted = kinds(changes)
        wanted -= {kind: wanted[kind] for kind in ("update_preimage", "update_postimage")}
        assert kinds(counted) == wanted, f"{self}\nfound {kinds(counted)}\nwanted {wanted}\n{history.story()}"


def kinds(changes: Changes) -> Counter[str]:
    """How many rows there are of each kind of change."""
    return Counter(row["_change_type"] for row in changes.to_arrow().to_pylist())


def shown(done: Done, by: str, time: str) -> bool:
    """Whether a commit is before a checkpoint, in plain words."""
    return done.commit.completed_at <= time if by == "completed" else done.commit.requested_at < time


def apply(changes: Changes, copy: dict[str, Row], history: History, *, images: bool) -> None:
    """Turn `copy` into what it is after `changes`; images must fit what is there."""
    for row in changes.to_arrow().to_pylist():
        key, kind = history.key(row), row["_change_type"]
        values = {name: row[name] for name in row if name not in OF_CHANGES}
        if not images:
            assert kind in ("upsert", "delete"), kind
            copy.pop(key, None)
        elif kind in ("delete", "update_preimage"):
            alike(copy.pop(key), values, history)
        else:
            assert kind in ("insert", "update_postimage"), kind
            assert key not in copy, f"{kind} of {key}, which is there\n{history.story()}"
        if kind not in ("delete", "update_preimage"):
            copy[key] = values


def same(copy: dict[str, Row], expected: dict[str, Row], history: History, who: str) -> None:
    assert set(copy) == set(expected), f"{who}\nhas {set(copy)}\nwanted {set(expected)}\n{history.story()}"
    for key, row in copy.items():
        alike(row, expected[key], history)


def alike(row: Row, wanted: Row, history: History) -> None:
    """Equal in all columns; one that either does not know yet is null."""
    for name in history.columns:
        assert row.get(name) == wanted.get(name), f"{name}\nhas {row}\nwanted {wanted}\n{history.story()}"

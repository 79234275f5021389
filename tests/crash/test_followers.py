"""Increments taken while processes write and compact: each copy is the table in the end, each commit counted once.

All processes are killed (kill -9) in the middle of their work: what they had acknowledged is there, nothing in part.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from crdt_mor import Changes, Table
from tests.crash.scene import Scene
from tests.tiers import slow

EXPIRY_MS = 3_000


class Copy:
    """A reader's copy of the table, from increments or from images."""

    def __init__(self, images: bool, consistency: Literal["latest", "stable"]) -> None:
        self.images, self.consistency = images, consistency
        self.since: str | None = None
        self.rows: dict[str, tuple[object, ...]] = {}
        self.commits = self.windows = 0

    def go_on(self, table: Table) -> None:
        changes = table.changes(self.since, images=self.images, consistency=self.consistency)
        self.apply(changes)
        self.since = changes.checkpoint
        self.commits += changes.commits
        self.windows += changes.commits > 0

    def apply(self, changes: Changes) -> None:
        for row in changes.to_arrow().to_pylist():
            key, values, kind = row["key"], (row["batch"], row["n"]), row["_change_type"]
            if kind in ("delete", "update_preimage"):
                gone = self.rows.pop(key)
                assert not self.images or gone == values
            else:
                assert kind in (("insert", "update_postimage") if self.images else ("upsert",))
                self.rows[key] = values


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path, EXPIRY_MS)
    yield scene
    scene.end()


def rows_of(scan: Any) -> dict[str, tuple[object, ...]]:
    return {row["key"]: (row["batch"], row["n"]) for row in scan.to_arrow().to_pylist()}


def has_news(table: Table, seen: int) -> bool:
    return table.version > seen


@pytest.mark.parametrize(("writers", "windows"), [slow(2, 2)])
def test_followers_keep_up_with_writers_and_a_compactor(scene: Scene, writers: int, windows: int) -> None:
    copies = [Copy(False, "latest"), Copy(True, "latest"), Copy(False, "stable"), Copy(True, "stable")]
    names = [f"w{i}" for i in range(writers)]
    for name in names:
        scene.start("write", name)
    scene.start("compact", "compactor")
    while any(copy.windows < windows for copy in copies):  # the writers go on until everybody has looked as often
        seen = scene.table.version
        for copy in copies:
            copy.go_on(scene.table)
        scene.wait_for("news", partial(has_news, scene.table, seen))
    scene.end()
    scene.give_up_the_dead()
    assert scene.check(names)
    commits = scene.table.history()["kind"].to_pylist().count("write")  # one may be that of several writers
    for copy in copies:
        copy.go_on(scene.table)
        assert copy.rows == rows_of(scene.table.scan())
        assert copy.commits == commits >= windows

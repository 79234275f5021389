"""A write that finds another's log file at the very path of its own, and comes to nothing, leaves that file alone.

So it is where a table was removed and made again, whose first commits may bear the same requested times.
"""

from __future__ import annotations

from typing import Any

import pytest

from crdt_mor import InvalidInputError
from crdt_mor.events import one_event, write
from crdt_mor.log.steps import Put, Steps
from crdt_mor.model.timeline_parts import DataFile
from crdt_mor.write.open_write import OpenWrite
from tests.table.compacting import open_write
from tests.table.helpers import Make, Place, frame, rows

ANOTHERS = b"of the table that is here now"


def test_a_commit_that_is_tried_alone(make: Make, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(buckets=2)
    table.upsert(frame(("a", "x", 0)))
    stage, found = one_event._Attempt.stage, list[str]()

    def late(self: Any, told: Any) -> Steps[Any]:
        if not found:
            found.append(self.write.logs[0][0].path)
            yield Put(found[0], ANOTHERS)
        return (yield from stage(self, told))

    monkeypatch.setattr(one_event._Attempt, "stage", late)
    table.upsert(frame(*((f"k{i}", "x", i) for i in range(9))))
    assert place.store.read(found[0]) == ANOTHERS
    assert len(rows(table, "id")) == 10, "the write went the long way, at another time"


@pytest.fixture
def found(place: Place, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The path of the first file of a write that begins, where another's file is put first."""
    expect, paths = OpenWrite.expect_file, list[str]()

    def expected(self: OpenWrite, file: DataFile) -> None:
        expect(self, file)
        if not paths:
            paths.append(file.path)
            place.store.put(file.path, ANOTHERS)

    monkeypatch.setattr(OpenWrite, "expect_file", expected)
    return paths


def test_a_write_that_has_begun(make: Make, place: Place, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any, **_settings: Any) -> Any:
        raise InvalidInputError("refused")

    tx = open_write(make(buckets=2), *((f"k{i}", "x", i) for i in range(9)))
    monkeypatch.setattr(write, "complete", refuse)
    with pytest.raises(InvalidInputError, match="refused"):
        tx.__exit__(None, None, None)
    (path,) = found
    assert place.store.read(path) == ANOTHERS
    assert [stat.path for stat in place.store.walk("") if stat.path != path and "log" in stat.path] == []

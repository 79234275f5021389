"""A protocol gets replies in advance and asks the rest, alone or together."""

from __future__ import annotations

import pytest

from crdt_mor.errors import StorageUnavailableError
from crdt_mor.log.foreseen import Replies, foreseen
from crdt_mor.log.steps import GetStat, List, Put, Read, Steps, Together

READ, STAT, LIST = Read("a"), GetStat("b"), List("c")


def asking(*steps: Read | GetStat | List | Put | Together) -> Steps[list[object]]:
    replies: list[object] = []
    for step in steps:
        reply = yield step
        replies.append(reply)
    return replies


def driven(steps: Steps[list[object]]) -> tuple[list[object], list[object]]:
    """The steps that come through, each answered by its own name, and the result."""
    asked: list[object] = []
    reply: object = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            return asked, end.value
        asked.append(step)
        reply = [str(part) for part in step.steps] if isinstance(step, Together) else str(step)


def test_a_listing_is_given_once_and_an_object_each_time() -> None:
    replies: Replies = {READ: b"data", LIST: []}
    asked, result = driven(foreseen(asking(READ, LIST, READ, LIST), replies))
    assert asked == [LIST]
    assert result == [b"data", [], b"data", str(LIST)]
    assert replies == {READ: b"data"}


def test_none_is_a_reply_as_well() -> None:
    assert driven(foreseen(asking(STAT), {STAT: None})) == ([], [None])


def test_of_steps_that_go_together_only_the_others_are_asked() -> None:
    put = Put("d", b"")
    asked, (result,) = driven(foreseen(asking(Together((READ, put, STAT))), {READ: b"data"}))
    assert asked == [Together((put, STAT))]
    assert result == [b"data", str(put), str(STAT)]
    assert driven(foreseen(asking(Together((READ, STAT))), {READ: b"data", STAT: None})) == ([], [[b"data", None]])


def test_a_failure_reaches_the_protocol() -> None:
    def lenient() -> Steps[list[object]]:
        try:
            yield STAT
        except StorageUnavailableError:
            return ["failed", (yield READ)]
        return []

    steps = foreseen(lenient(), {READ: b"data"})
    assert next(steps) == STAT
    with pytest.raises(StopIteration) as end:
        steps.throw(StorageUnavailableError("the store failed"))
    assert end.value.value == ["failed", b"data"]

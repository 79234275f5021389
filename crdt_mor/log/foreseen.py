"""Replies in advance, for a protocol that would ask one request after another.

A reply in advance is a reply to a process that was slow afterwards. A listing must follow the value from which the
protocol goes on. Only unchanging objects are read in advance, and no versions: their reads prove that they still stand.
"""

from __future__ import annotations

from typing import Any, TypeVar

from crdt_mor.log.steps import GetStat, List, Read, Single, Step, Steps, Together

T = TypeVar("T")

Replies = dict[Single, Any]


def foreseen(steps: Steps[T], replies: Replies) -> Steps[T]:
    """Run a protocol, and give it each listing and stat once, and each read as often as it asks."""
    reply: object = None
    failure: Exception | None = None
    try:
        while True:
            try:
                step = steps.send(reply) if failure is None else steps.throw(failure)
            except StopIteration as end:
                result: T = end.value
                return result
            reply, failure = None, None
            try:
                reply = yield from _answered(step, replies)
            except Exception as error:  # noqa: BLE001
                failure = error
    finally:
        steps.close()


def _answered(step: Step, replies: Replies) -> Steps[object]:
    if not isinstance(step, Together):
        return _taken(step, replies) if _is_known(step, replies) else (yield step)
    known = {part: _taken(part, replies) for part in step.steps if _is_known(part, replies)}
    rest = tuple(part for part in step.steps if not _is_known(part, known))
    asked = iter((yield Together(rest)) if rest else ())
    return [known[part] if _is_known(part, known) else next(asked) for part in step.steps]


def _taken(step: Single, replies: Replies) -> Any:
    return replies[step] if isinstance(step, Read) else replies.pop(step)


def _is_known(step: Single, replies: Replies) -> bool:
    return isinstance(step, Read | GetStat | List) and step in replies

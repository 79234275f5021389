"""Replies in advance, for a protocol that would ask one request after another.

A reply in advance is a reply to a process that was slow afterwards. A listing must follow the value from which the
protocol goes on. Reads of versions are never foreseen: they prove that a version still stands.
"""

from __future__ import annotations

from typing import Any, TypeVar

from crdt_mor.log.steps import GetStat, List, Read, Single, Step, Steps, Together

T = TypeVar("T")

Replies = dict[Single, Any]


def foreseen(steps: Steps[T], replies: Replies) -> Steps[T]:
    """Run a protocol, and give it each reply once instead of asking."""
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
        return replies.pop(step) if _is_known(step, replies) else (yield step)
    known = {part: replies.pop(part) for part in step.steps if _is_known(part, replies)}
    rest = tuple(part for part in step.steps if not _is_known(part, known))
    asked = iter((yield Together(rest)) if rest else ())
    return [known[part] if _is_known(part, known) else next(asked) for part in step.steps]


def _is_known(step: Single, replies: Replies) -> bool:
    return isinstance(step, Read | GetStat | List) and step in replies

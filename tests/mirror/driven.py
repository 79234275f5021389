"""A refresh of a mirror that runs step by step, and loses a reply where a test asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crdt_mor import Table
from crdt_mor.log.steps import Put, Single, Step, Steps, Together, perform
from crdt_mor.mirror.refresh import Refreshed


class Driven:
    """A refresh that runs step by step.

    Attributes:
        result: None until its end.
        has_lost: True once the reply of a put was lost.
    """

    def __init__(
        self,
        table: Table,
        steps: Steps[Refreshed],
        loses: Callable[[Put], bool] = lambda _: False,
        *,
        lands: bool = True,
    ) -> None:
        """loses: chooses the put with the lost reply, once. lands: whether that put is carried out."""
        self._store, self._environment = table._session.store, table._session.environment
        self._steps, self._loses, self._lands = steps, loses, lands
        self._next: Step | None = next(steps)
        self.has_lost = False
        self.result: Refreshed | None = None

    @property
    def path(self) -> str:
        """The path that the next step is about, or ""."""
        return str(getattr(self._next, "path", ""))

    def step(self) -> bool:
        """Perform the next step; return False at the end."""
        if self._next is None:
            return False
        is_many = isinstance(self._next, Together)
        parts = self._next.steps if isinstance(self._next, Together) else (self._next,)
        replies = [self._performed(one) for one in parts]
        try:
            self._next = self._steps.send(replies if is_many else replies[0])
        except StopIteration as end:
            self.result, self._next = end.value, None
        return self._next is not None

    def _performed(self, step: Single) -> Any:
        if isinstance(step, Put) and not self.has_lost and self._loses(step):
            self.has_lost = True
            if self._lands:
                perform(step, self._store, self._environment)
            return None
        return perform(step, self._store, self._environment)

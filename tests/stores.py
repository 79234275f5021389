"""The stores that tests run over, and one that notes what another is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from crdt_mor import StorageUnavailableError
from crdt_mor.store import LocalStore, MemoryStore, Store
from crdt_mor.testing.faults import CHANGES, DelegatingStore, ProcessDied
from tests.tiers import slow

T = TypeVar("T")

Script = Callable[[str, str, Callable[[], Any]], Any]
"""Gets an operation, its path and the call that does it, and returns the answer of the store, or raises an error."""

STORES: Final[dict[str, Callable[[Path], Store]]] = {
    "memory": lambda _: MemoryStore(),
    "local": LocalStore,
}
"""An empty store of each kind, given a folder that it may use. A store of another kind is one line here."""

SERVED: Final = ("s3", "azure")
"""Kinds of stores that `tests.servers` serves: `pytest tests/table --store s3` runs the tests of tables there."""

LOCAL_FIRST: Final = ["local", *(slow(kind) for kind in STORES if kind != "local")]
"""For tests that take seconds: over a local disk before every commit, over the others in the slow tier."""


def found_in(store: Store, *texts: str) -> list[str]:
    """The objects below a table, wherever they are, in which any of the texts stands."""
    paths = [stat.path for folder in ("", ".hoodie") for stat in store.walk(folder)]
    return [path for path in paths if any(text.encode() in (store.read(path) or b"") for text in texts)]


class WatchedStore(DelegatingStore):
    """Another store; `calls` notes each operation and its path."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.calls: list[tuple[str, str]] = []

    def around(self, operation: str, path: str, call: Callable[[], T]) -> T:
        self.calls.append((operation, path))
        return call()

    def paths(self, *operations: str) -> list[str]:
        """The paths that these operations were asked for, in order."""
        return [path for operation, path in self.calls if operation in operations]


class ScriptedStore(WatchedStore):
    """Another store. `script` decides the effect and the answer of each operation, and may act before or after."""

    def __init__(self, store: Store, script: Script) -> None:
        super().__init__(store)
        self.script = script

    def around(self, operation: str, path: str, call: Callable[[], T]) -> T:
        answer: T = super().around(operation, path, lambda: self.script(operation, path, call))
        return answer


def as_it_is(operation: str, path: str, call: Callable[[], Any]) -> Any:
    """A script that changes nothing."""
    return call()


def refusing(
    *operations: str,
    of: Callable[[str], bool] = lambda path: True,
    error: Callable[[str], Exception] = StorageUnavailableError,
) -> Script:
    """A script that refuses these operations of some paths."""

    def script(operation: str, path: str, call: Callable[[], Any]) -> Any:
        if operation in operations and of(path):
            raise error(f"a simulated failure. {operation}={path}")
        return call()

    return script


def answering(operation: str, answer: Callable[[Any], object]) -> Script:
    """A script that runs everything, and changes the answer of one operation."""
    return lambda asked, path, call: answer(call()) if asked == operation else call()


def first(
    operation: str, of: Callable[[str], bool], act: Callable[[], object], *, skipped: int = 0, after: bool = False
) -> Script:
    """A script that acts once, before or `after` the first such operation on such a path that is not `skipped`.

    The store raises the errors of `act`.
    """
    seen: list[str] = []

    def script(asked: str, path: str, call: Callable[[], Any]) -> Any:
        if asked != operation or len(seen) > skipped or not of(path):
            return call()
        seen.append(path)
        if len(seen) <= skipped:
            return call()
        if not after:
            act()
            return call()
        answer = call()
        act()
        return answer

    return script


class Dying:
    """A script of a process that dies at one of its operations, on whichever store, and then does nothing more.

    counts: whether an operation of a path is counted. at: the one at which it dies, from 1; before it, or `after` it.
    meanwhile: the work of others before that, while the process is frozen; gets the path.
    """

    def __init__(
        self,
        counts: Callable[[str, str], bool] = lambda operation, path: operation in CHANGES,
        at: int = 1,
        *,
        after: bool = False,
        meanwhile: Callable[[str], object] = lambda path: None,
    ) -> None:
        self._counts, self._left, self._after, self._meanwhile = counts, at, after, meanwhile
        self.died_at = ""

    def __call__(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        if self.died_at:
            raise ProcessDied
        if not self._counts(operation, path):
            return call()
        self._left -= 1
        if self._left:
            return call()
        self._meanwhile(path)
        if self._after:
            call()
        self.died_at = path
        raise ProcessDied

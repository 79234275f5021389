"""Where the secrets of object stores are: in this process's memory, and nowhere else.

A store that is pickled carries the name of its secrets here, not the secrets. The process that unpickles it finds them
under that name if it is the same process or was forked from it later. Any other process takes them from its own
environment: from the variables of the same names, or from whatever else its provider gives (a profile, an instance
role), where one of the provider's variables says so.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from typing import Final

from crdt_mor.clock import SystemEnvironment
from crdt_mor.errors import StorageRefusedError
from crdt_mor.store.addresses import Provider

_HIDDEN: Final = "***"
_HIDDEN_MIN: Final = 4

_OTHER_WAYS: Final[Mapping[Provider, tuple[str, ...]]] = {
    "s3": (
        "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_SKIP_SIGNATURE",
    ),
    "azure": (
        "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_CLIENT_SECRET",
        "AZURE_FEDERATED_TOKEN_FILE", "AZURE_MSI_ENDPOINT", "IDENTITY_ENDPOINT", "AZURE_USE_AZURE_CLI",
        "AZURE_SKIP_SIGNATURE",
    ),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SKIP_SIGNATURE"),
}  # fmt: skip
"""Variables by which a process says that it has credentials of its own, under other names."""


class Secrets(Mapping[str, str]):
    """Options of a store that show their names alone, and are pickled by the name under which they are kept."""

    def __init__(self, values: Mapping[str, str], name: str = "") -> None:
        self._values = dict(values)
        self.name = name

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Secrets({dict.fromkeys(self._values, _HIDDEN)})"

    def __reduce__(self) -> tuple[object, ...]:
        return _named, (self.name, tuple(self._values))

    def hide(self, text: str) -> str:
        """A text in which the values of these are not to be seen."""
        for value in sorted(self._values.values(), key=len, reverse=True):
            if len(value) >= _HIDDEN_MIN:
                text = text.replace(value, _HIDDEN)
        return text


class MissingSecrets(Secrets):
    """Secrets that another process has; `names` are those of the options."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__({})
        self.names = names

    def __reduce__(self) -> tuple[object, ...]:
        return MissingSecrets, (self.names,)

    def from_environment(self, provider: Provider, store: str) -> Secrets:
        """What this process has of its own; raises `StorageRefusedError`, which says what to set, if it has nothing."""
        found = {name: os.environ[name.upper()] for name in self.names if name.upper() in os.environ}
        if len(found) == len(self.names) or any(os.environ.get(name) for name in _OTHER_WAYS[provider]):
            return Secrets({})  # the client takes them from there itself
        wanted = ", ".join(name.upper() for name in self.names)
        raise StorageRefusedError(
            "this process has been given a table without the credentials of its store, which are never pickled: set "
            f"them where this process runs (on Spark on each worker). variables={wanted} store={store} "
            f"pid={os.getpid()}"
        )


_kept: dict[str, Secrets] = {}
_lock = threading.Lock()


def keep(values: Mapping[str, str]) -> Secrets:
    """The secrets, kept in this process under a name of their own; the same ones have the same name."""
    if not values:
        return Secrets({})
    with _lock:
        known = next((kept for kept in _kept.values() if dict(kept) == dict(values)), None)
        if known is None:
            known = Secrets(values, SystemEnvironment().nonce())
            _kept[known.name] = known
        return known


def _named(name: str, names: tuple[str, ...]) -> Secrets:
    if not names:
        return Secrets({}, name)
    return _kept.get(name) or MissingSecrets(names)

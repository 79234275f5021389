"""Keep secrets of object stores in this process's memory, and nowhere else.

A pickled store carries the name of its secrets, by which the same process or a later fork finds them. Any other process
uses its own environment. A credential provider travels by its importable name.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from crdt_mor.errors import StorageRefusedError
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.store.addresses import Provider

_HIDDEN: Final = "***"
_HIDDEN_MIN: Final = 4
_PROVIDER: Final = "credential_provider"

_PROFILE_GIVES: Final = (
    "aws_access_key_id", "sso_session", "sso_start_url", "role_arn", "credential_process", "login_session",
)  # fmt: skip
"""Settings of an AWS profile that give credentials."""

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
"""Variables of other names that give a process credentials."""


class Secrets(Mapping[str, str]):
    """Options of a store that show and pickle only their names.

    provider: a callable that returns credentials, or its importable name. Only the name is pickled, because the
    callable may hold keys.
    """

    missing = False

    def __init__(self, values: Mapping[str, str], name: str = "", provider: object = None) -> None:
        self._values = dict(values)
        self.name = name
        self.provider = provider
        self.provider_name = importable_name(provider)

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def names(self) -> tuple[str, ...]:
        unnamed = (_PROVIDER,) if self.provider is not None and not self.provider_name else ()
        return (*self._values, *unnamed)

    def __repr__(self) -> str:
        return f"Secrets({dict.fromkeys(self.names, _HIDDEN)})"

    def __reduce__(self) -> tuple[object, ...]:
        return _named, (self.name, self.names, self.provider_name)

    def hide(self, text: str) -> str:
        return hidden(text, self._values.values())


class MissingSecrets(Secrets):
    """Secrets of another process. A provider with an importable name is available here."""

    missing = True

    def __init__(self, names: tuple[str, ...], provider_name: str = "") -> None:
        super().__init__({}, provider=provider_name or None)
        self._names = names

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def __reduce__(self) -> tuple[object, ...]:
        return MissingSecrets, (self._names, self.provider_name)

    def from_environment(self, provider: Provider, store: str) -> Secrets:
        """Return this process's own secrets, or raise `StorageRefusedError` with the variables to set."""
        found = {name: os.environ[name.upper()] for name in self._names if os.environ.get(name.upper())}
        other_way = any(os.environ.get(name) for name in _OTHER_WAYS[provider])
        if len(found) == len(self._names) or other_way or (provider == "s3" and has_default_profile()):
            return Secrets({}, provider=self.provider)  # the client reads them itself
        if _PROVIDER in self._names:
            raise StorageRefusedError(
                "this process lacks the table's credential provider, because it has no importable name. Pass it as "
                "storage_options={'credential_provider': 'module:function'}, and install the module here, too "
                f"(on Spark on each worker). store={store} pid={os.getpid()}"
            )
        wanted = ", ".join(name.upper() for name in self._names)
        raise StorageRefusedError(
            "this process lacks the store's credentials, which are never pickled. Set the variables in its environment "
            f"(on Spark on each worker). variables={wanted} store={store} "
            f"pid={os.getpid()}"
        )


_secrets_by_name: dict[str, Secrets] = {}
_lock = threading.Lock()


def keep(values: Mapping[str, str], provider: object = None) -> Secrets:
    """Keep secrets in this process under a name; equal secrets share a name."""
    if not values and provider is None:
        return Secrets({})
    with _lock:
        same = (kept for kept in _secrets_by_name.values() if dict(kept) == dict(values) and kept.provider == provider)
        known = next(same, None)
        if known is None:
            known = Secrets(values, SystemEnvironment().nonce(), provider)
            _secrets_by_name[known.name] = known
        return known


def _named(name: str, names: tuple[str, ...], provider_name: str) -> Secrets:
    if known := _secrets_by_name.get(name):
        return known
    return MissingSecrets(names, provider_name) if names else Secrets({}, name, provider_name or None)


def hidden(text: str, values: Iterable[str]) -> str:
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= _HIDDEN_MIN:
            text = text.replace(value, _HIDDEN)
    return text


def importable_name(provider: object) -> str:
    """Return `module:name` of a callable; "" if no other process can import the callable."""
    if provider is None or isinstance(provider, str):
        return provider or ""
    module, name = getattr(provider, "__module__", None), getattr(provider, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return ""
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is provider else ""


def has_default_profile() -> bool:
    import configparser

    for variable, path in (("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), ("AWS_CONFIG_FILE", "~/.aws/config")):
        file = configparser.RawConfigParser(strict=False)
        with suppress(OSError, UnicodeDecodeError, configparser.Error):
            file.read(os.path.expanduser(os.environ.get(variable) or path))
        if file.has_section("default") and any(file.has_option("default", name) for name in _PROFILE_GIVES):
            return True
    return False

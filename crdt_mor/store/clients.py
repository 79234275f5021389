"""The clients of an object store: one for each length of time that a request may take.

They never try a request again themselves. A put that is repeated out of sight answers that there is an object already
where the first attempt had made it; so the caller decides what is repeated (`store.puts`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from obstore.store import AzureStore, GCSStore, S3Store

from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.clock import Environment
from crdt_mor.store.addresses import Place
from crdt_mor.store.credentials import PROFILE, options_beside, vending_of
from crdt_mor.store.options import (
    CLIENT_OPTIONS,
    CREDENTIAL_PROVIDER,
    RETRY_TIMEOUT,
    TIMEOUT,
    check_environment,
    client_environment,
    seconds,
)
from crdt_mor.store.secrets import Secrets

Client: TypeAlias = S3Store | AzureStore | GCSStore

TIMEOUT_S: Final = 30.0
"""How long a request may take by default, from its first byte to the last one of the answer; long bodies may more."""

_BYTES_PER_SECOND: Final = 1 << 20
"""A put of a large object has a second more for each of these."""

_READ_S: Final = 3600
"""A body may take this long to come, as long as some of it comes all the time."""


class Clients:
    """Connections to one bucket, made when they are first needed. secret: the options that nobody may see."""

    def __init__(self, place: Place, public: Mapping[str, str], secret: Secrets, environment: Environment) -> None:
        self.place = place
        self._public = {**client_environment(place.provider), **place.options, **public}
        self._secret = secret
        self._timeout_s = seconds(self._public, TIMEOUT, TIMEOUT_S)
        self._made: dict[tuple[int, bool], Client] = {}
        self._lock = threading.Lock()
        check_environment(place.provider)
        self.vending = vending_of(place.provider, self._public, secret, environment)
        if self.vending is not None:
            self._public = {**options_beside(self.vending, place.provider, self._public), **self._public}
        for name, value in place.options.items():
            if name == "azure_storage_account_name" and public.get(name, value) != value:
                raise InvalidInputError(f"the address and the options name different accounts. uri={place.uri}")

    def texts(self) -> dict[str, str]:
        """The options with the credentials of now, by the names that other libraries know."""
        given = {} if self.vending is None else self.vending.options()
        ours = (RETRY_TIMEOUT, CREDENTIAL_PROVIDER, PROFILE)
        return {name: value for name, value in {**self._public, **self._secret, **given}.items() if name not in ours}

    def brief(self) -> Client:
        """For requests without long bodies."""
        return self._client(self._timeout_s, reading=False)

    def reading(self) -> Client:
        """For answers with bodies of any length."""
        return self._client(self._timeout_s, reading=True)

    def putting(self, size: int) -> Client:
        """For a put of so many bytes."""
        timeout_s = self._timeout_s
        while timeout_s < self._timeout_s + size // _BYTES_PER_SECOND:
            timeout_s *= 2  # so that there are few clients, whatever the sizes
        return self._client(timeout_s, reading=False)

    def _client(self, timeout_s: float, *, reading: bool) -> Client:
        key = (round(timeout_s * 1000), reading)
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make(timeout_s, reading)
            return self._made[key]

    def _make(self, timeout_s: float, reading: bool) -> Client:
        options: dict[str, Any] = {n: v for n, v in self._public.items() if n in CLIENT_OPTIONS}
        if "proxy_url" in self._secret:
            options["proxy_url"] = self._secret["proxy_url"]
        options[TIMEOUT] = f"{_READ_S}s" if reading else f"{round(timeout_s * 1000)}ms"
        if reading:
            options["read_timeout"] = f"{round(timeout_s * 1000)}ms"
        config: Any = {n: v for n, v in (self._public | dict(self._secret)).items() if n not in options}
        for ours in (RETRY_TIMEOUT, TIMEOUT, PROFILE):
            config.pop(ours, None)
        more: dict[str, Any] = {"client_options": options, "retry_config": {"max_retries": 0}}
        if self.vending is not None:
            more["credential_provider"] = self.vending.__call__  # its attributes are read here, not by the library
        match self.place.provider:
            case "azure":
                return AzureStore(self.place.bucket, config=config, **more)
            case "gs":
                return GCSStore(self.place.bucket, config=config, **more)
        for name, value in (("aws_disable_bulk_delete", "true"), ("aws_copy_if_not_exists", "multipart")):
            if name not in config and name.upper() not in os.environ:
                config[name] = value
        return S3Store(self.place.bucket, config=config, **more)

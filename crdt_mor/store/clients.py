"""Make the clients of an object store, one for each request timeout.

Clients never retry: a hidden retry of a put would report its own first object as existing.
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
"""Default seconds for a whole request; long bodies get more."""

_BYTES_PER_SECOND: Final = 1 << 20
"""A put gets another second for each of these bytes."""

_READ_S: Final = 3600
"""Seconds for a body that keeps arriving."""


class Clients:
    """Connections to a bucket, made when first needed. secret: the hidden options."""

    def __init__(self, place: Place, public: Mapping[str, str], secret: Secrets, environment: Environment) -> None:
        self.place = place
        self._public = {**client_environment(place.provider), **place.options, **public}
        self._secret = secret
        self._timeout_s = seconds(self._public, TIMEOUT, TIMEOUT_S)
        self._clients: dict[tuple[int, bool], Client] = {}
        self._lock = threading.Lock()
        check_environment(place.provider)
        self.vending = vending_of(place.provider, self._public, secret, environment)
        if self.vending is not None:
            self._public = {**options_beside(self.vending, place.provider, self._public), **self._public}
        for name, value in place.options.items():
            if name == "azure_storage_account_name" and public.get(name, value) != value:
                raise InvalidInputError(
                    f"the address and azure_storage_account_name name different accounts; correct one. uri={place.uri}"
                )

    def texts(self) -> dict[str, str]:
        given = {} if self.vending is None else self.vending.options()
        ours = (RETRY_TIMEOUT, CREDENTIAL_PROVIDER, PROFILE)
        return {name: value for name, value in {**self._public, **self._secret, **given}.items() if name not in ours}

    def brief(self) -> Client:
        return self._client(self._timeout_s, reading=False)

    def reading(self) -> Client:
        return self._client(self._timeout_s, reading=True)

    def putting(self, size: int) -> Client:
        timeout_s = self._timeout_s
        while timeout_s < self._timeout_s + size // _BYTES_PER_SECOND:
            timeout_s *= 2  # few clients for all sizes
        return self._client(timeout_s, reading=False)

    def _client(self, timeout_s: float, *, reading: bool) -> Client:
        key = (round(timeout_s * 1000), reading)
        with self._lock:
            if key not in self._clients:
                self._clients[key] = self._make(timeout_s, reading)
            return self._clients[key]

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
            more["credential_provider"] = self.vending.__call__  # a method: the library reads no attributes of it
        match self.place.provider:
            case "azure":
                return AzureStore(self.place.bucket, config=config, **more)
            case "gs":
                return GCSStore(self.place.bucket, config=config, **more)
        for name, value in (("aws_disable_bulk_delete", "true"), ("aws_copy_if_not_exists", "multipart")):
            if name not in config and name.upper() not in os.environ:
                config[name] = value
        return S3Store(self.place.bucket, config=config, **more)

"""Read `storage_options`, the options of object stores.

Names are the client library's, in any case and with or without the provider's prefix: `AWS_REGION`, `aws_region`,
`region`. An empty text counts as absent. Two names are ours: `retry_timeout` and `credential_provider`. Secrets are
kept apart, so that they are never written, shown or pickled (`store.secrets`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from crdt_mor.errors import InvalidInputError, page
from crdt_mor.store.addresses import Provider
from crdt_mor.store.secrets import Secrets, keep

RETRY_TIMEOUT: Final = "retry_timeout"
TIMEOUT: Final = "timeout"
CREDENTIAL_PROVIDER: Final = "credential_provider"

CLIENT_OPTIONS: Final = (
    "allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only", "pool_idle_timeout",
    "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate", "proxy_excludes", "randomize_addresses",
    "root_certificate", TIMEOUT, "user_agent",
)  # fmt: skip
"""Options of the HTTP client, for every provider."""

_NAMES: Final[Mapping[Provider, Mapping[str, str]]] = {
    "s3": {
        "aws_access_key_id": "access_key_id",
        "aws_secret_access_key": "secret_access_key",
        "aws_session_token": "session_token token aws_token",
        "aws_profile": "profile",
        "aws_region": "region default_region aws_default_region",
        "aws_endpoint_url": "endpoint_url endpoint aws_endpoint aws_endpoint_url_s3",
        **{
            f"aws_{name}": name
            for name in (
                "virtual_hosted_style_request", "unsigned_payload", "imdsv1_fallback", "metadata_endpoint",
                "container_credentials_relative_uri", "container_credentials_full_uri",
                "container_authorization_token_file", "web_identity_token_file", "role_arn", "role_session_name",
                "endpoint_url_sts", "checksum_algorithm", "copy_if_not_exists", "disable_tagging", "s3_express",
                "request_payer", "skip_signature", "server_side_encryption", "sse_kms_key_id",
                "sse_bucket_key_enabled", "sse_customer_key_base64", "disable_bulk_delete",
            )
        },
    },
    "azure": {
        "azure_storage_account_name": "account_name",
        "azure_storage_account_key": "account_key access_key master_key azure_storage_access_key "
        "azure_storage_master_key",
        "azure_storage_sas_token": "sas_token sas_key azure_storage_sas_key",
        "azure_storage_token": "bearer_token token",
        "azure_storage_client_id": "client_id azure_client_id",
        "azure_storage_client_secret": "client_secret azure_client_secret",
        "azure_storage_tenant_id": "tenant_id authority_id azure_tenant_id azure_authority_id "
        "azure_storage_authority_id",
        "azure_storage_authority_host": "authority_host azure_authority_host",
        "azure_storage_endpoint": "endpoint azure_endpoint",
        "azure_storage_use_emulator": "use_emulator object_store_use_emulator",
        **{
            f"azure_{name}": name
            for name in (
                "use_fabric_endpoint", "msi_endpoint", "identity_endpoint", "object_id", "msi_resource_id",
                "federated_token_file", "use_azure_cli", "skip_signature", "disable_tagging",
                "fabric_token_service_url", "fabric_workload_host", "fabric_session_token",
                "fabric_cluster_identifier",
            )
        },
    },
    "gs": {
        "google_service_account": "service_account service_account_path google_service_account_path",
        "google_service_account_key": "service_account_key",
        "google_application_credentials": "application_credentials",
        "google_bearer_token": "bearer_token token",
        "google_base_url": "base_url",
        "google_skip_signature": "skip_signature",
    },
}  # fmt: skip

_NOT_NEEDED: Final = frozenset(
    {"aws_s3_allow_unsafe_rename", "aws_s3_locking_provider", "conditional_put", "aws_conditional_put"}
)
"""Options of deltalake without effect here: every commit is a conditional put, without a lock."""

_SECRET: Final = frozenset(
    {
        "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_sse_customer_key_base64",
        "azure_storage_account_key", "azure_storage_sas_token", "azure_storage_token", "azure_storage_client_secret",
        "azure_fabric_session_token", "google_service_account_key", "google_bearer_token", "proxy_url",
    }
)  # fmt: skip

_PREFIXES: Final[Mapping[Provider, tuple[str, ...]]] = {
    "s3": ("aws_",), "azure": ("azure_", "azure_storage_"), "gs": ("google_",),
}  # fmt: skip

_UNITS: Final = {"ms": 0.001, "s": 1.0, "sec": 1.0, "seconds": 1.0, "m": 60.0, "min": 60.0, "minutes": 60.0}


_ADDRESSES: Final = frozenset(
    {
        "aws_endpoint_url", "aws_endpoint_url_sts", "aws_metadata_endpoint", "azure_storage_endpoint",
        "azure_storage_authority_host", "azure_msi_endpoint", "azure_identity_endpoint", "google_base_url",
    }
)  # fmt: skip
"""Options with web addresses; a wrong one makes the client library panic."""

NEAR_MAX: Final = 3
"""Most suggestions for an unknown option."""


class Options(dict[str, str]):
    """The options of a store by their full names: a dictionary for polars and others.

    secret: the hidden options and the credential provider; `repr` and pickles omit their values.
    """

    def __init__(self, public: Mapping[str, str], secret: Secrets) -> None:
        super().__init__({**public, **secret})
        self.public = dict(public)
        self.secret = secret
        if secret.provider_name:
            self[CREDENTIAL_PROVIDER] = secret.provider_name

    def __repr__(self) -> str:
        return f"Options({self.public}, secret={self.secret.names})"

    def __reduce__(self) -> tuple[object, ...]:
        return Options, (self.public, self.secret)


def read_options(options: object, provider: Provider) -> Options:
    """Check a user's `storage_options`. Raises `InvalidInputError` for unknown names, without values."""
    source: object = None
    if isinstance(options, Options):
        if options.secret.missing:
            return options
        source = options.secret.provider
    names = known_names(provider)
    known: dict[str, str] = {}
    for name, value in _pairs(options):
        lower = name.lower()
        if lower == CREDENTIAL_PROVIDER:
            source = value
        if lower in _NOT_NEEDED or lower == CREDENTIAL_PROVIDER or value == "":
            continue
        if lower not in names:
            raise _unknown(name, names, provider)
        full = names[lower]
        if full in known and known[full] != value:
            raise InvalidInputError(f"storage_options contain two values for this option; remove one. option={full}")
        known[full] = value
    for name in (RETRY_TIMEOUT, TIMEOUT):
        if name in known:
            _seconds(name, known[name])
    for name in sorted(_ADDRESSES & known.keys()):
        check_address(name, known[name])
    return Options(
        {name: value for name, value in known.items() if name not in _SECRET},
        keep({name: value for name, value in known.items() if name in _SECRET}, source or None),
    )


def shared(options: object, provider: Provider, others: Iterable[Provider]) -> dict[str, Any] | None:
    foreign_names = {name for other in others if other != provider for name in known_names(other)}
    own_names = known_names(provider)
    return {n: v for n, v in _pairs(options) if n.lower() in own_names or n.lower() not in foreign_names} or None


def check_address(name: str, text: str) -> None:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and not re.search(r"\s", text)
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        raise InvalidInputError(
            f"write the endpoint as https://host, or as http://host:port with allow_http='true'. option={name}"
        )


def check_environment(provider: Provider) -> None:
    """Raise `InvalidInputError` if an endpoint in the environment is no web address."""
    for name, full in known_names(provider).items():
        if full in _ADDRESSES and name.startswith(_PREFIXES[provider]) and os.environ.get(name.upper()):
            check_address(name.upper(), os.environ[name.upper()])


def empty_variables(provider: Provider) -> list[str]:
    """Return variables for keys that are set to an empty text: the client library takes them for keys."""
    found = {name.upper() for name, full in known_names(provider).items() if full in _SECRET}
    return sorted(name for name in found if os.environ.get(name) == "")


def client_environment(provider: Provider) -> dict[str, str]:
    """Return the HTTP client's options in the environment. Given any option, the library ignores these."""
    found = {}
    for name in CLIENT_OPTIONS:
        for prefix in _PREFIXES[provider]:
            value = os.environ.get((prefix + name).upper())
            if value is not None and name not in _SECRET:
                found[name] = value
    return found


def secret_options(options: Iterable[str]) -> tuple[str, ...]:
    """Return the names that are secret in any store: never log or show their values."""
    secret = {name for provider in _NAMES for name, full in known_names(provider).items() if full in _SECRET}
    return tuple(name for name in options if name.lower() in secret)


def check_form(options: object) -> None:
    _pairs(options)


def _pairs(options: object) -> Iterable[tuple[str, Any]]:
    if options is None:
        return ()
    if not isinstance(options, Mapping):
        raise InvalidInputError(
            f"pass storage_options as texts by name: {{'aws_region': 'eu-west-1'}}. type={type(options).__name__}"
        )
    pairs = []
    for name, given in options.items():
        value = str(given).lower() if isinstance(given, bool) else given
        if isinstance(name, str) and name.lower() == CREDENTIAL_PROVIDER and (callable(value) or value is None):
            pairs.append((name, value))
            continue
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidInputError(f"pass storage_options as texts. option={name!r} type={type(value).__name__}")
        pairs.append((name, value))
    return pairs


def known_names(provider: Provider) -> dict[str, str]:
    names = {}
    for full, others in _NAMES[provider].items():
        names.update(dict.fromkeys([full, *others.split()], full))
    for name in CLIENT_OPTIONS:
        names.update(dict.fromkeys([name, *(prefix + name for prefix in _PREFIXES[provider])], name))
    return names | {name: name for name in (RETRY_TIMEOUT, CREDENTIAL_PROVIDER)}


def _unknown(name: str, names: Mapping[str, str], provider: Provider) -> InvalidInputError:
    from difflib import get_close_matches

    within = {full for other, full in names.items() if name.lower() in other} if len(name) > 2 else set()
    close = {names[n] for n in get_close_matches(name.lower(), names, n=NEAR_MAX)}
    near = sorted(within or close, key=lambda full: (full not in _SECRET, full))[:NEAR_MAX]
    hint = f"did you mean {' or '.join(near)}?" if near else f"{page('stores')} lists all."
    return InvalidInputError(f"this kind of store has no such option; {hint} option={name!r} store={provider}")


def seconds(options: Mapping[str, str], name: str, otherwise: float) -> float:
    return otherwise if name not in options else _seconds(name, options[name])


def _seconds(name: str, text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip())
    if match is None or match[2] not in _UNITS or not float(match[1]):
        raise InvalidInputError(f"set {name} to a time above 0, such as 30s, 500ms or 2m. {name}={text!r}")
    return float(match[1]) * _UNITS[match[2]]

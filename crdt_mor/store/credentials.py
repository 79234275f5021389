"""Ask for credentials: a user's callable, or the AWS configuration through boto3.

    {"access_key_id": …, "secret_access_key": …, "token": …, "expires_at": …}      as obstore's providers return them
    ({"aws_access_key_id": …, …}, 1790000000)                                      as polars' providers return them

The first available source is used: a provider in the options, keys in the options, the options' profile, keys in the
environment, the environment's profile, the profile `default`. Otherwise the client library looks for a role.

A provider is asked again shortly before expiry, and if the store refuses credentials that it had accepted. Credentials
are never written, shown or pickled.
"""

from __future__ import annotations

import importlib
import inspect
import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from crdt_mor.errors import InvalidInputError, StorageRefusedError
from crdt_mor.ground.clock import Environment
from crdt_mor.store.addresses import Provider
from crdt_mor.store.options import known_names
from crdt_mor.store.secrets import Secrets, has_default_profile, hidden

PROFILE: Final = "aws_profile"

_FIELDS: Final[Mapping[str, str]] = {
    "aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key", "aws_session_token": "token",
    "azure_storage_account_key": "access_key", "azure_storage_sas_token": "sas_token", "azure_storage_token": "token",
    "google_bearer_token": "token",
}  # fmt: skip
"""Credential options, with the client library's names."""

_REQUIRED_FIELDS: Final[Mapping[Provider, tuple[frozenset[str], ...]]] = {
    "s3": (frozenset({"aws_access_key_id", "aws_secret_access_key"}),),
    "azure": tuple(frozenset({name}) for name in _FIELDS if name.startswith("azure_")),
    "gs": (frozenset({"google_bearer_token"}),),
}
"""A provider must return at least one of these sets."""

_EXPIRY: Final = "expires_at"
_EARLY_MS: Final = 300_000
"""Renew credentials this long before expiry, at the latest at half their life."""

_KEYS: Final = frozenset({"aws_access_key_id", "aws_secret_access_key"})

_OF_OTHER_ROLES: Final = (
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)  # fmt: skip
"""Variables that give a pod a role, for the client library."""


class VendingError(Exception):
    """A credential provider failed.

    The client library passes on only the class name and the text, which `store.failures` parses.
    """


class VendingPausedError(VendingError):
    """A credential provider could not reach its source."""


class Vending:
    """A credential provider that the client library calls before each request. Thread-safe.

    source: the user's callable, class of callables, or importable name.
    """

    def __init__(self, source: object, provider: Provider, environment: Environment) -> None:
        self._source = _callable(source)
        self._provider = provider
        self._environment = environment
        self._lock = threading.Lock()
        self._credentials: dict[str, Any] | None = None
        self._until_ms: int | None = None
        self._accepted = False
        self._number = 1

    @property
    def config(self) -> Mapping[str, object]:
        found = getattr(self._source, "config", None)
        return found if isinstance(found, Mapping) else {}

    def __call__(self) -> dict[str, Any]:
        """Return the credentials, marked as expired so that the client library does not cache them."""
        credentials = {_FIELDS[name]: value for name, value in self._current().items()}
        return {**credentials, _EXPIRY: datetime.fromtimestamp(0, UTC)}

    def options(self) -> dict[str, str]:
        try:
            return {name: str(value) for name, value in self._current().items()}
        except VendingError as error:
            said = str(error)
        raise StorageRefusedError(
            f"the credential provider returned no credentials. Check its configuration. cause={said}"
        )

    def _current(self) -> dict[str, Any]:
        with self._lock:
            now_ms = self._environment.now_ms()
            if self._credentials is None or (self._until_ms is not None and now_ms >= self._until_ms):
                credentials, expires_ms = self._vended()
                if expires_ms is not None:
                    expires_ms -= min(_EARLY_MS, max(0, expires_ms - now_ms) // 2)
                self._number += self._credentials is not None
                self._credentials, self._until_ms, self._accepted = credentials, expires_ms, False
            return self._credentials

    @property
    def number(self) -> int:
        """The number of the current credentials; later ones have higher numbers."""
        return self._number

    def note_accepted(self, number: int) -> None:
        """Note that the store accepted these credentials or later ones."""
        with self._lock:
            self._accepted = self._accepted or number == self._number

    def renews(self, number: int) -> bool:
        """Return True if a refused request should be sent again with other credentials.

        Drops the current ones if none are newer than `number` and the store had accepted them.
        """
        with self._lock:
            if number == self._number:
                if not self._accepted:
                    return False
                self._credentials, self._accepted = None, False
                self._number += 1
            return True

    def hide(self, text: str) -> str:
        return hidden(text, [value for value in (self._credentials or {}).values() if isinstance(value, str)])

    def _vended(self) -> tuple[dict[str, Any], int | None]:
        try:
            answer = self._source()
        except OSError as error:
            raise VendingPausedError(_in_a_line(error)) from None
        except Exception as error:  # noqa: BLE001  any error of a user's function
            raise VendingError(_in_a_line(error)) from None
        if inspect.iscoroutine(answer):
            answer.close()
            raise VendingError("it is asynchronous: pass a function that returns its answer")
        return self._read(answer)

    def _read(self, answer: object) -> tuple[dict[str, Any], int | None]:
        expiry: object = None
        if isinstance(answer, tuple) and len(answer) == 2:
            answer, expiry = answer
        if not isinstance(answer, Mapping):
            raise VendingError(f"it must return a mapping of credentials by name, not {type(answer).__name__}")
        names = known_names(self._provider)
        given = {names.get(str(name).lower(), str(name)): value for name, value in answer.items() if value is not None}
        expiry = given.pop(_EXPIRY, expiry)
        required = _REQUIRED_FIELDS[self._provider]
        if not any(some <= given.keys() for some in required):
            needed = " or ".join(" and ".join(sorted(some)) for some in required)
            raise VendingError(f"it returned {sorted(given)} instead of {needed}")
        return {name: value for name, value in given.items() if name in _FIELDS}, _ms(expiry)


def _ms(expiry: object) -> int | None:
    """Return the expiry in milliseconds, from a datetime or seconds since 1970; None: never."""
    if expiry is None:
        return None
    if isinstance(expiry, datetime) and expiry.tzinfo is not None:
        return int(expiry.timestamp() * 1000)
    if isinstance(expiry, int | float) and not isinstance(expiry, bool):
        return int(expiry * 1000)
    raise VendingError(f"expires_at must be a datetime with a time zone, not {type(expiry).__name__}")


def _in_a_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _callable(source: object) -> Callable[[], object]:
    found = imported(source) if isinstance(source, str) else source
    made = found() if isinstance(found, type) else found
    if not callable(made):
        raise InvalidInputError(
            "pass a callable without arguments as credential_provider, or its importable name module:function. "
            f"type={type(made).__name__}"
        )
    ask: Callable[[], object] = made
    return ask


def imported(name: str) -> object:
    module, colon, path = name.partition(":")
    try:
        if not (module and colon and path):
            raise ImportError("the form is module:function")
        found: object = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            "the credential provider cannot be imported. Install its module in every process that opens the table "
            f"(on Spark on each worker). credential_provider={name!r} cause={error}"
        ) from error
    return found


# --- sources ----------------------------------------------------------------------------------------------------------


def vending_of(
    provider: Provider, public: Mapping[str, str], secret: Secrets, environment: Environment
) -> Vending | None:
    """Return the credential provider; None if the options contain keys, or the client library finds some."""
    if secret.provider is not None:
        return Vending(secret.provider, provider, environment)
    if provider != "s3" or _KEYS & secret.keys() or public.get("aws_skip_signature") == "true":
        return None
    profile = public.get(PROFILE)
    if profile is None and not os.environ.get("AWS_ACCESS_KEY_ID"):
        profile = os.environ.get("AWS_PROFILE") or _default_profile()
    return None if not profile else Vending(_of_profile(profile), provider, environment)


def _default_profile() -> str | None:
    if any(os.environ.get(name) for name in _OF_OTHER_ROLES) or os.environ.get("AWS_SKIP_SIGNATURE"):
        return None
    return "default" if has_default_profile() else None


def _of_profile(profile: str) -> Callable[[], object]:
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise StorageRefusedError(
            "AWS profiles need boto3: run pip install boto3, or set AWS_ACCESS_KEY_ID and "
            f"AWS_SECRET_ACCESS_KEY. profile={profile}"
        ) from error
    try:
        given: Callable[[], object] = Boto3CredentialProvider(boto3.Session(profile_name=profile))
    except Exception as error:  # noqa: BLE001  boto3's errors name the profile and no secret
        cause = f"{type(error).__name__}: {error}"
    else:
        return given
    raise StorageRefusedError(
        f"this AWS profile has no credentials: correct aws_profile. profile={profile} cause={cause}"
    )


def options_beside(vending: Vending, provider: Provider, public: Mapping[str, str]) -> dict[str, str]:
    names, found = known_names(provider), dict[str, str]()
    for name, value in vending.config.items():
        full = names.get(str(name).lower())
        if full is None or full in public or not isinstance(value, str):
            continue
        if not any(os.environ.get(other.upper()) for other, of in names.items() if of == full):
            found[full] = value
    return found

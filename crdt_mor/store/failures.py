"""Translate failures of an object store's client into actions.

    ABSENT       there is no such object
    TAKEN        a conditional put or copy found an object
    RANGE        the object is shorter than the requested bytes
    BUSY         the store or the network failed for now: retry until a deadline
    REFUSED      retries cannot help: bucket, access, credentials or region

The client's message may contain signed addresses, so it is read only here. Status, code and the store's message remain.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from obstore import exceptions

from crdt_mor.errors import StorageRefusedError, StorageUnavailableError, page
from crdt_mor.store.addresses import Place
from crdt_mor.store.options import empty_variables
from crdt_mor.store.secrets import Secrets


class Kind(Enum):
    ABSENT = auto()
    TAKEN = auto()
    RANGE = auto()
    BUSY = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed request.

    cause: the store's words, in a line. advice: the action after a refusal.
    unsent: the request cannot have reached the store, so nothing can have changed.
    bodiless: the answer had no body: a missing bucket then looks like a missing object.
    answered: the store itself answered. fleeting: a refusal can pass once the store had accepted the credentials.
    of_keys: other credentials can help.
    """

    kind: Kind
    cause: str
    advice: str = ""
    unsent: bool = False
    bodiless: bool = False
    answered: bool = True
    fleeting: bool = False
    of_keys: bool = False


_STATUS = re.compile(r"status code: (?P<status>\d{3}) [^:\n]*:? ?(?P<body>.*?)(?:\n\nDebug source:|\Z)", re.DOTALL)
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})")
_NETWORK = re.compile(r'(?:message|error): "([^"]{1,200})"')
_INNERMOST = re.compile(r"HTTP error: ([^\n]{1,200})")
_SIGNATURE = re.compile(r"(?i)((?:sig|signature|x-amz-[a-z-]+|token)=)[^&\s\"')]+")

_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound", "FilesystemNotFound", "ContainerBeingDeleted"})
_EXISTS: Final = frozenset({"BlobAlreadyExists"})
"""Conflicts with an existing object. Others, such as S3's `ConditionalRequestConflict`, pass."""

_EXPIRED: Final = frozenset({"ExpiredToken", "TokenRefreshRequired", "ExpiredTokenException"})
_BAD_KEYS: Final = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AuthenticationFailed", "InvalidAuthenticationInfo",
     "NoAuthenticationInformation"}
)  # fmt: skip
_REGION: Final = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
_CLOCK: Final = frozenset({"RequestTimeTooSkewed"})
_BAD_BODY: Final = frozenset({"RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch"})
"""The request arrived damaged; the next may succeed."""

_ARCHIVED: Final = frozenset({"InvalidObjectState", "BlobArchived", "BlobBeingRehydrated"})
"""The object is in an archive tier."""

_METADATA_SERVICE: Final = ("169.254.169.254", "169.254.170.2", "fd00:ec2::254", "metadata.google.internal")

_PROVIDER = re.compile(r"(?P<kind>VendingError|VendingPausedError): (?P<said>[^\n]{1,300})")
"""A credential provider's error, as the client library reports it."""

_GENERIC = re.compile(r"^Generic [^:\n]*: ")
_QUOTED = re.compile(r'"([^"\n]{1,100})"')

_OPTIONS: Final = "the store's options are wrong: correct storage_options or the environment variables"

NOT_THE_STORE: Final = (
    ": a login page or a proxy may answer instead of the store. Check the network's login, the endpoint and proxy_url"
)
"""Added to answers that are not a store's."""

_WRONG_ADDRESS: Final = "the store does not know this place: correct the address or the endpoint"

_KEYS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN for temporary keys), or AWS_PROFILE",
    "azure": "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or the variables of a managed identity",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT",
}  # fmt: skip


def failure_of(error: BaseException, place: Place, secrets: Secrets) -> Failure:
    """Translate an exception of the client library. Never show or chain the exception itself."""
    text = str(error)
    status_match = _STATUS.search(text)
    status = int(status_match["status"]) if status_match else None
    body = status_match["body"].strip() if status_match else ""
    code = found[1] if (found := _CODE.search(body)) else ""
    cause = without_signatures(_cause(text, status, code, body, type(error).__name__), secrets)
    if provided := _PROVIDER.search(text):
        return _of_provider(provided["kind"], without_signatures(provided["said"], secrets))
    if is_panic(error):
        return Failure(Kind.REFUSED, cause, _OPTIONS, answered=False)
    answered = status is not None and not _asks_machine(text)
    if advice := _refusal(error, text, status, code, place):
        of_keys = status in (400, 401, 403) and code not in _ARCHIVED and (bool(body) or status == 401)
        return Failure(
            Kind.REFUSED, cause, advice, bodiless=status is not None and not body, answered=answered,
            fleeting=_asks_machine(text), of_keys=of_keys,
        )  # fmt: skip
    if status == 409 and code not in _EXISTS:
        return Failure(Kind.BUSY, cause)  # the library takes every conflict for an existing object
    match error:
        case exceptions.AlreadyExistsError():
            return Failure(Kind.TAKEN, cause)
        case exceptions.PreconditionError():
            return Failure(Kind.ABSENT if status == 404 else Kind.TAKEN, cause)
        case FileNotFoundError():
            return Failure(Kind.ABSENT, cause, _WRONG_ADDRESS, bodiless=not body)
        case _ if status == 416:
            return Failure(Kind.RANGE, cause)
        case _ if "non-partial response" in text:
            return Failure(Kind.BUSY, f"{cause}{NOT_THE_STORE}", answered=False)
        case _:
            return Failure(Kind.BUSY, cause, unsent="kind: Connect,\n" in text, answered=answered)


def misuse_of(error: Exception, place: Place, options: Mapping[str, str], secrets: Secrets) -> Failure:
    failure = failure_of(error, place, secrets)
    quoted = _QUOTED.search(failure.cause)
    named = [name for name, value in options.items() if quoted and value == quoted[1]]
    if named:
        return replace(failure, advice=f"{_OPTIONS}; the wrong option is {' or '.join(named)}")
    if empty := empty_variables(place.provider):
        return replace(failure, advice=f"environment variables for keys are set to an empty text: unset {empty}")
    return replace(failure, advice=_OPTIONS)


def is_panic(error: BaseException) -> bool:
    return type(error).__name__ == "PanicException"


def _of_provider(kind: str, cause: str) -> Failure:
    if kind == "VendingPausedError":
        return Failure(Kind.BUSY, f"the credential provider: {cause}", unsent=True, answered=False)
    advice = "the credential provider returned no credentials. Check its configuration"
    return Failure(Kind.REFUSED, cause, advice, unsent=True, answered=False)


def without_signatures(text: str, secrets: Secrets) -> str:
    return secrets.hide(_SIGNATURE.sub(r"\1***", text))


def _cause(text: str, status: int | None, code: str, body: str, name: str) -> str:
    if status is not None:
        message = found[1] if (found := _MESSAGE.search(body)) else ""
        return " ".join(f"{status} {code} {message}".split())
    network = _NETWORK.findall(text.partition("Debug source:")[2])
    words = [found[1]] if (found := _INNERMOST.search(text)) else []
    own = _GENERIC.sub("", text.partition("\n")[0])[:300]
    return " ".join(": ".join([*words, *network[-1:]]).split()) or own or name


def _refusal(error: BaseException, text: str, status: int | None, code: str, place: Place) -> str:
    """Return the action for a permanent failure; "" if the failure may pass."""
    if status == 409 and code not in _NO_BUCKET | _ARCHIVED:
        return ""
    keys = _KEYS[place.provider]
    if code in _ARCHIVED:
        return (
            "an object of the table was moved to an archive, such as Glacier: restore it, and remove the lifecycle "
            "rule that moves objects of tables"
        )
    if status == 407 or "TunnelUnsuccessful" in text or "ProxyAuthRequired" in text:
        return "the proxy refuses the connection: set proxy_url with a user and a password, or use another proxy"
    if code in _NO_BUCKET:
        word = "container" if place.provider == "azure" else "bucket"
        return f"there is no such {word}: create it, or correct the address"
    if _asks_machine(text) or _has_no_credentials(text):
        return f"there are no credentials for this store, and this machine has no role with some: set {keys}"
    if code in _EXPIRED:
        return f"the credentials have expired: renew them, and set {keys}"
    if code in _BAD_KEYS:
        return f"the store does not know these credentials: correct {keys}"
    if code in _REGION or status == 301 or "redirect without LOCATION" in text:
        return "the bucket is in another region or behind another endpoint: set aws_region (AWS_REGION) to its region"
    if code in _CLOCK:
        return "this machine's clock is wrong, so the store refuses its signatures: set the clock"
    return _refusal_by_kind(error, text, status, code, keys)


def _refusal_by_kind(error: BaseException, text: str, status: int | None, code: str, keys: str) -> str:
    """Return the same action by status and kind of the error, if the store's code does not determine it."""
    if status == 403 or isinstance(error, exceptions.PermissionDeniedError):
        return (
            "access denied: give these credentials the rights to read, put, delete and list objects below the "
            "address (without the right to list, S3 also denies access to missing objects)"
        )
    if status == 401 or isinstance(error, exceptions.UnauthenticatedError):
        return f"the store asks for other credentials: set {keys}"
    if status == 507:
        return "the store has no space left: free some space, or raise the quota"
    if status == 501 or isinstance(error, exceptions.NotSupportedError):
        return f"this store lacks a feature that tables need: see {page('stores')}"
    if "BadScheme" in text:
        return "the endpoint is http:// without TLS: use https://, or set allow_http to 'true'"
    if isinstance(error, exceptions.UnknownConfigurationKeyError | exceptions.InvalidPathError) or _is_misuse(text):
        return _OPTIONS
    if status == 400 and code not in _BAD_BODY:
        return "the store does not accept the request: see the cause"
    return ""


def _asks_machine(text: str) -> bool:
    return any(service in text for service in _METADATA_SERVICE)


def _has_no_credentials(text: str) -> bool:
    return "InvalidCredentials" in text or "MissingCredentials" in text or "NoCredentialsError" in text


def _is_misuse(text: str) -> bool:
    misuses = ("InvalidAccessKey ", "MissingAccount", "MissingBucket", "InvalidEncryption", "UnknownUrlScheme",
               "InvalidEndpoint", "RelativeUrlWithoutBase", "Unable parse", "UnableToParse", "DecodeCredentials",
               "OpenCredentials", "NotTable", "invalid duration", "Generic Config error", "MissingAccessKeyId",
               "MissingSecretAccessKey", "Builder,")  # fmt: skip
    return any(word in text for word in misuses)


def refused(label: str, failure: Failure, *, changes: bool) -> StorageRefusedError:
    """Make the error. changes: True if the request was to change something."""
    nothing = " Nothing was published." if changes else ""
    return StorageRefusedError(f"{failure.advice}.{nothing} {label} cause={failure.cause}")


def unavailable(label: str, failure: Failure, tries: int, seconds: float, *, changes: bool) -> StorageUnavailableError:
    """Make the error. changes: see `refused`."""
    nothing = "; nothing was published" if changes else ""
    return StorageUnavailableError(
        f"the store did not answer correctly until the deadline{nothing}. Try again, or raise the storage "
        f"option retry_timeout. {label} tries={tries} waited_s={seconds:.1f} cause={failure.cause}"
    )

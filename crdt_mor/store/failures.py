"""What an object store's failure means: the words of the client library, as what to do about them.

    ABSENT       there is no such object
    TAKEN        a conditional put or copy found an object there
    RANGE        bytes were asked for that the object does not have
    BUSY         the store, or the way to it, failed for now: try again, until a deadline
    REFUSED      trying again will not help: no such bucket, no access, bad or expired credentials, another region

The client's own message is read once, here, and then forgotten: it may hold addresses with signatures in them. What is
kept of it is the status, the code and the message that the store itself gave, without secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from obstore import exceptions

from crdt_mor.errors import StorageRefusedError, StorageUnavailableError
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

    cause: what the store or the network said, in a line. advice: what to do about a refusal.
    unsent: whether the request cannot have reached the store, so that nothing can have come of it.
    bodiless: whether the store's answer had no words, as the answer to a HEAD: a missing bucket looks like an object
    that is not there. answered: whether it was the store that said so. fleeting: whether a refusal may pass, if the
    store has taken the same credentials before. of_keys: whether other credentials may help.
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
_SAID = re.compile(r"<Message>([^<]{1,300})")
_NETWORK = re.compile(r'(?:message|error): "([^"]{1,200})"')
_INNERMOST = re.compile(r"HTTP error: ([^\n]{1,200})")
_SIGNATURE = re.compile(r"(?i)((?:sig|signature|x-amz-[a-z-]+|token)=)[^&\s\"')]+")

_NO_BUCKET: Final = frozenset({"NoSuchBucket", "ContainerNotFound", "FilesystemNotFound", "ContainerBeingDeleted"})
_EXISTS: Final = frozenset({"BlobAlreadyExists"})
"""Conflicts that say that the object is there. Others, as `ConditionalRequestConflict` of S3, are of a moment."""

_EXPIRED: Final = frozenset({"ExpiredToken", "TokenRefreshRequired", "ExpiredTokenException"})
_BAD_KEYS: Final = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "AuthenticationFailed", "InvalidAuthenticationInfo",
     "NoAuthenticationInformation"}
)  # fmt: skip
_REGION: Final = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
_CLOCK: Final = frozenset({"RequestTimeTooSkewed"})
_BAD_BODY: Final = frozenset({"RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch"})
"""A request that came cut short or damaged, which says nothing of the next one."""

_ARCHIVED: Final = frozenset({"InvalidObjectState", "BlobArchived", "BlobBeingRehydrated"})
"""An object was moved to a kind of storage that cannot be read at once."""

_METADATA_SERVICE: Final = ("169.254.169.254", "169.254.170.2", "fd00:ec2::254", "metadata.google.internal")

_PROVIDER = re.compile(r"(?P<kind>VendingError|VendingPausedError): (?P<said>[^\n]{1,300})")
"""What a credential provider raised (`store.credentials`), in the words of the client library."""

_GENERIC = re.compile(r"^Generic [^:\n]*: ")
_QUOTED = re.compile(r'"([^"\n]{1,100})"')

_OPTIONS: Final = (
    "the options of the store cannot be right: correct storage_options, or the variables of the environment"
)

ELSEWHERE: Final = (
    ": a login page or a proxy may answer instead of the store. Check the network's login, the endpoint and proxy_url"
)
"""What to check where answers are none of a store's."""

_WHERE: Final = "the store knows no such place: correct the address, or the endpoint"

_KEYS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, where there is one), or AWS_PROFILE",
    "azure": "AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or what a managed identity needs",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT",
}  # fmt: skip


def failure_of(error: BaseException, place: Place, secrets: Secrets) -> Failure:
    """What an exception of the client library means. The exception itself is not to be shown or chained."""
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
        return Failure(Kind.BUSY, cause)  # the library takes every conflict for an object that is there
    match error:
        case exceptions.AlreadyExistsError():
            return Failure(Kind.TAKEN, cause)
        case exceptions.PreconditionError():
            return Failure(Kind.ABSENT if status == 404 else Kind.TAKEN, cause)
        case FileNotFoundError():
            return Failure(Kind.ABSENT, cause, _WHERE, bodiless=not body)
        case _ if status == 416:
            return Failure(Kind.RANGE, cause)
        case _ if "non-partial response" in text:
            return Failure(Kind.BUSY, f"{cause}{ELSEWHERE}", answered=False)
        case _:
            return Failure(Kind.BUSY, cause, unsent="kind: Connect,\n" in text, answered=answered)


def misuse_of(error: Exception, place: Place, options: Mapping[str, str], secrets: Secrets) -> Failure:
    """What it means that the client library makes no client of these options: one of them cannot be right."""
    failure = failure_of(error, place, secrets)
    said = _QUOTED.search(failure.cause)
    named = [name for name, value in options.items() if said and value == said[1]]
    if named:
        return replace(failure, advice=f"{_OPTIONS}; it is the option {' or '.join(named)}")
    if empty := empty_variables(place.provider):
        return replace(failure, advice=f"variables of the environment with keys are set, and empty: unset {empty}")
    return replace(failure, advice=_OPTIONS)


def is_panic(error: BaseException) -> bool:
    """Whether the client library has given up as it meets what its authors took to be impossible."""
    return type(error).__name__ == "PanicException"


def _of_provider(kind: str, said: str) -> Failure:
    if kind == "VendingPausedError":
        return Failure(Kind.BUSY, f"the credential provider: {said}", unsent=True, answered=False)
    advice = "the credential provider gives no credentials: mend it, or what it asks"
    return Failure(Kind.REFUSED, said, advice, unsent=True, answered=False)


def without_signatures(text: str, secrets: Secrets) -> str:
    """A text in which neither secrets nor the signatures of addresses are to be seen."""
    return secrets.hide(_SIGNATURE.sub(r"\1***", text))


def _cause(text: str, status: int | None, code: str, body: str, name: str) -> str:
    if status is not None:
        said = found[1] if (found := _SAID.search(body)) else ""
        return " ".join(f"{status} {code} {said}".split())
    network = _NETWORK.findall(text.partition("Debug source:")[2])
    words = [found[1]] if (found := _INNERMOST.search(text)) else []
    own = _GENERIC.sub("", text.partition("\n")[0])[:300]
    return " ".join(": ".join([*words, *network[-1:]]).split()) or own or name


def _refusal(error: BaseException, text: str, status: int | None, code: str, place: Place) -> str:
    """What to do about what will not get better by itself; "" if that is not known."""
    if status == 409 and code not in _NO_BUCKET | _ARCHIVED:
        return ""
    keys = _KEYS[place.provider]
    if code in _ARCHIVED:
        return (
            "an object of the table was moved to an archive, such as Glacier, from which it cannot be read: restore "
            "it, and end the rule of the bucket that moves objects of tables"
        )
    if status == 407 or "TunnelUnsuccessful" in text or "ProxyAuthRequired" in text:
        return "the proxy refuses the way to the store: give proxy_url with a user and a password, or another proxy"
    if code in _NO_BUCKET:
        word = "container" if place.provider == "azure" else "bucket"
        return f"there is no such {word}: make it, or correct the address"
    if _asks_machine(text) or _has_no_credentials(text):
        return f"there are no credentials for this store, nor does this machine have a role that gives some: set {keys}"
    if code in _EXPIRED:
        return f"the credentials have expired: renew them, and set {keys}"
    if code in _BAD_KEYS:
        return f"the store does not know these credentials: correct {keys}"
    if code in _REGION or status == 301 or "redirect without LOCATION" in text:
        return "the bucket is in another region, or behind another endpoint: set aws_region (AWS_REGION) to its own"
    if code in _CLOCK:
        return "this machine's clock is wrong, so that its signatures are not accepted: set the clock"
    return _refusal_by_kind(error, text, status, code, keys)


def _refusal_by_kind(error: BaseException, text: str, status: int | None, code: str, keys: str) -> str:
    """The same, where the store gave no code that says more than the status."""
    if status == 403 or isinstance(error, exceptions.PermissionDeniedError):
        return (
            "access denied: these credentials may not do this here. They need to read, put, delete and list objects "
            "below the address (without the right to list, S3 answers so for objects that do not exist, too)"
        )
    if status == 401 or isinstance(error, exceptions.UnauthenticatedError):
        return f"the store asks for credentials, or for other ones: set {keys}"
    if status == 507:
        return "the store has no space left, or a quota is used up: free some space, or raise the quota"
    if status == 501 or isinstance(error, exceptions.NotSupportedError):
        return "this store cannot do what a table needs: see docs/stores.md"
    if "BadScheme" in text:
        return "the endpoint has no TLS, http:// and not https://, which is only taken where allow_http says 'true'"
    if isinstance(error, exceptions.UnknownConfigurationKeyError | exceptions.InvalidPathError) or _is_misuse(text):
        return _OPTIONS
    if status == 400 and code not in _BAD_BODY:
        return "the store does not accept the request: see what it says"
    return ""


def _asks_machine(text: str) -> bool:
    """Whether the request was one for the credentials of the machine's role."""
    return any(service in text for service in _METADATA_SERVICE)


def _has_no_credentials(text: str) -> bool:
    return "InvalidCredentials" in text or "MissingCredentials" in text or "NoCredentialsError" in text


def _is_misuse(text: str) -> bool:
    misuses = ("InvalidAccessKey ", "MissingAccount", "MissingBucket", "InvalidEncryption", "UnknownUrlScheme",
               "InvalidEndpoint", "RelativeUrlWithoutBase", "Unable parse", "UnableToParse", "DecodeCredentials",
               "OpenCredentials", "NotTable", "invalid duration", "Generic Config error", "MissingAccessKeyId",
               "MissingSecretAccessKey", "Builder,")  # fmt: skip
    return any(word in text for word in misuses)


def refused(what: str, failure: Failure, *, changes: bool) -> StorageRefusedError:
    """The error for a failure that trying again will not mend. changes: whether the request was to change something."""
    nothing = " Nothing was published." if changes else ""
    return StorageRefusedError(f"{failure.advice}.{nothing} {what} cause={failure.cause}")


def unavailable(what: str, failure: Failure, tries: int, seconds: float, *, changes: bool) -> StorageUnavailableError:
    """The error for a store that did not answer until the deadline. changes: as of `refused`."""
    nothing = "; nothing was published" if changes else ""
    return StorageUnavailableError(
        f"the store did not answer as it should until the deadline{nothing}. Try again, or give it longer "
        f"with the storage option retry_timeout. {what} tries={tries} waited_s={seconds:.1f} cause={failure.cause}"
    )

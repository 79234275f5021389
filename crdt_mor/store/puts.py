r"""Conditional puts in a bucket. A nonce in the object's metadata identifies its put after a lost reply.

`put` is the provider's conditional put (`If-None-Match: *` or its equivalent) of the whole object:

    put ─ made ───────────────────────────────────> True
        ├ there is one, and nothing was unsure ───> False
        └ timeout, reset, 5xx, 409: unsure ─ read back ─ our nonce ────> True
              ^                                        ├ another's ────> False
              └──────────── nothing there, wait ───────┘
                            the deadline has passed ─────────────────> `CommitUnknownError`

A copy inside the bucket has no nonce: after a lost reply its maker stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import obstore

from crdt_mor.errors import CommitUnknownError, InvalidInputError, StorageUnavailableError
from crdt_mor.store.addresses import Place
from crdt_mor.store.asking import Requests, Tries
from crdt_mor.store.clients import Clients
from crdt_mor.store.failures import Failure, Kind, refused, unavailable

NONCE: Final = "crdtmornonce"
"""Metadata name of a put's nonce. Azure allows letters, digits and `_`; proxies of others drop names with `_`."""

PUT_MAX: Final[Mapping[str, int]] = {"s3": 5 << 30, "azure": 5000 << 20, "gs": 5 << 40}
"""Most bytes of a conditional put."""


class Puts:
    def __init__(
        self, place: Place, requests: Requests, key: Callable[[str], str], read: Callable[[str], bytes | None]
    ) -> None:
        self._place = place
        self._requests = requests
        self._key = key
        self._read = read

    @property
    def _clients(self) -> Clients:
        return self._requests.clients

    def put(self, path: str, content: bytes) -> bool:
        key = self._key(path)
        self._require_size(path, len(content))
        nonce, unsure = self._requests.environment.nonce(), False
        tries = self._requests.begin("put", path)
        while True:
            failure = self._requests.send_once(lambda: self.create(key, content, nonce))
            if not isinstance(failure, Failure):
                tries.note_answer()
                return True
            if failure.kind is Kind.TAKEN and not unsure:
                tries.note_answer()
                return False
            if failure.kind in (Kind.REFUSED, Kind.ABSENT) and not unsure:
                raise refused(tries.text, failure, changes=True)
            unsure = unsure or not failure.unsent
            if unsure and (outcome := self._read_back(path, content, nonce, tries)) is not None:
                tries.note_answer()
                return outcome
            if failure.kind is Kind.REFUSED or not tries.wait_to_retry(failure):
                raise _put_failed(failure, unsure, tries)

    def create(self, key: str, content: bytes, nonce: str) -> bool:
        """Send a request to create an object. Return True, or obstore's exception."""
        client = self._clients.putting(len(content))
        obstore.put(client, key, content, mode="create", attributes={NONCE: nonce}, use_multipart=False)
        return True

    def _read_back(self, path: str, content: bytes, nonce: str, tries: Tries) -> bool | None:
        """Return True if the existing object is this put's, False if another's, None if there is none."""
        key = self._key(path)
        found = self._requests.send_once(lambda: obstore.get(self._clients.brief(), key, options={"head": True}))
        if not isinstance(found, Failure) or found.kind is Kind.ABSENT:
            tries.note_stat()
        if isinstance(found, Failure):
            return None  # absent, or the store still fails: the next put finds out
        stored_nonce = found.attributes.get(NONCE)
        if stored_nonce is not None:
            return stored_nonce == nonce
        stored = self._read(path) if found.meta["size"] == len(content) else b""
        if stored is not None and stored != content:
            return False
        raise CommitUnknownError(
            "the store drops object metadata, so it is unknown which process wrote this object. Read the table to see "
            f"whether the commit is there before you repeat it. path={path} store={self._place.uri} "
            f"tries={tries.count}"
        )

    def _require_size(self, path: str, size: int) -> None:
        most = PUT_MAX[self._place.provider]
        if size > most:
            raise InvalidInputError(
                "this object is too large for a put; nothing was put. Use more buckets or partitions to get smaller "
                "files (migrate). "
                f"path={path} size={size} most={most}"
            )

    def copy(self, source: str, target: str) -> bool | None:
        """Copy an object inside the bucket; None if the store refuses to copy."""
        end = self._key(target)
        tries, unsure = self._requests.begin("copy", target), False
        while True:
            failure = self._requests.send_once(
                lambda: obstore.copy(self._clients.reading(), source, end, overwrite=False)
            )
            if not isinstance(failure, Failure):
                tries.note_answer()
                return True
            if failure.kind is Kind.TAKEN and not unsure:
                return False
            if failure.kind is Kind.ABSENT:
                raise StorageUnavailableError(f"there is nothing to copy. copy={source} to={target}")
            if failure.kind is Kind.REFUSED and not unsure:
                return None
            if failure.kind is Kind.TAKEN or not tries.wait_to_retry(failure):
                raise _put_failed(failure, unsure, tries)
            unsure = unsure or not failure.unsent


def _put_failed(failure: Failure, unsure: bool, tries: Tries) -> Exception:
    if not unsure:
        return unavailable(tries.text, failure, tries.count, tries.seconds, changes=True)
    return CommitUnknownError(
        "the store did not answer whether it made an object, which may exist or appear later. Look before you write "
        f"it again. {tries.text} tries={tries.count} waited_s={tries.seconds:.1f} cause={failure.cause}"
    )

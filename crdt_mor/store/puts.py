r"""Conditional puts in a bucket. A put knows its own object by a nonce, where a reply gets lost.

`put` is the provider's own conditional put (`If-None-Match: *`, or its like), of the whole object. A reply may get lost
after the object was made, so each put has a nonce of its own, in the object's metadata:

    put ─ made ───────────────────────────────────> True
        ├ there is one, and nothing was unsure ───> False
        └ timeout, reset, 5xx, 409: unsure ─ read back ─ our nonce ────> True
              ^                                        ├ another's ────> False
              └──────────── nothing there, wait ───────┘
                            the deadline has passed ─────────────────> `CommitUnknownError`

A copy inside the bucket has no nonce: where its reply gets lost, it stays unknown who made the object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import obstore

from crdt_mor.errors import CommitUnknownError, InvalidInputError, StorageUnavailableError
from crdt_mor.store.addresses import Place
from crdt_mor.store.asking import Asking, Tries
from crdt_mor.store.clients import Clients
from crdt_mor.store.failures import Failure, Kind, refused, unavailable

NONCE: Final = "crdtmornonce"
"""The name of the metadata that tells whose put made an object. Azure takes letters, digits and `_`, and proxies in
front of others drop headers with `_`."""

PUT_MAX: Final[Mapping[str, int]] = {"s3": 5 << 30, "azure": 5000 << 20, "gs": 5 << 40}
"""How many bytes one conditional put may have at each provider."""


class Puts:
    """Puts and copies in one bucket, which make an object if there is none.

    key: the name in the bucket of the object at a path. read: the whole object at a path.
    """

    def __init__(
        self, place: Place, asking: Asking, key: Callable[[str], str], read: Callable[[str], bytes | None]
    ) -> None:
        self._place = place
        self._asking = asking
        self._key = key
        self._read = read

    @property
    def _clients(self) -> Clients:
        return self._asking.clients

    def put(self, path: str, content: bytes) -> bool:
        """Create the object, whole, if there is none: True. False if there is one already."""
        key = self._key(path)
        self._require_size(path, len(content))
        nonce, unsure = self._asking.environment.nonce(), False
        tries = self._asking.tries("put", path)
        while True:
            failure = self._asking.once(lambda: self.create(key, content, nonce))
            if not isinstance(failure, Failure):
                tries.note_answer()
                return True
            if failure.kind is Kind.TAKEN and not unsure:
                tries.note_answer()
                return False
            if failure.kind in (Kind.REFUSED, Kind.ABSENT) and not unsure:
                raise refused(tries.where, failure, changes=True)
            unsure = unsure or not failure.unsent
            if unsure and (outcome := self._read_back(path, content, nonce, tries)) is not None:
                tries.note_answer()
                return outcome
            if failure.kind is Kind.REFUSED or not tries.again(failure):
                raise _put_failed(failure, unsure, tries)

    def create(self, key: str, content: bytes, nonce: str) -> bool:
        """One request to create an object: True, or what obstore raises."""
        client = self._clients.putting(len(content))
        obstore.put(client, key, content, mode="create", attributes={NONCE: nonce}, use_multipart=False)
        return True

    def _read_back(self, path: str, content: bytes, nonce: str, tries: Tries) -> bool | None:
        """Whether an object that is there is the one that a put made whose outcome is unknown; None: there is none."""
        key = self._key(path)
        found = self._asking.once(lambda: obstore.get(self._clients.brief(), key, options={"head": True}))
        if not isinstance(found, Failure) or found.kind is Kind.ABSENT:
            tries.note_look()
        if isinstance(found, Failure):
            return None  # absent, or the store still fails: then the next put finds out
        theirs = found.attributes.get(NONCE)
        if theirs is not None:
            return theirs == nonce
        there = self._read(path) if found.meta["size"] == len(content) else b""
        if there is not None and there != content:
            return False
        raise CommitUnknownError(
            "the store keeps no metadata, so that it cannot be told who made this object, whose content is the one "
            f"that was put: see whether what it is part of is there. path={path} store={self._place.uri} "
            f"tries={tries.count}"
        )

    def _require_size(self, path: str, size: int) -> None:
        most = PUT_MAX[self._place.provider]
        if size > most:
            raise InvalidInputError(
                "an object of a table is put whole, and this one is too large for that: nothing was put. A table with "
                "more buckets, or with partitions, has smaller files (migrate copies it beside its writers). "
                f"path={path} size={size} most={most}"
            )

    def copy(self, source: str, target: str) -> bool | None:
        """A copy of the object of that name in the bucket, without the bytes coming here; None where there is none."""
        end = self._key(target)
        tries, unsure = self._asking.tries("copy", target), False
        while True:
            failure = self._asking.once(lambda: obstore.copy(self._clients.reading(), source, end, overwrite=False))
            if not isinstance(failure, Failure):
                tries.note_answer()
                return True
            if failure.kind is Kind.TAKEN and not unsure:
                return False
            if failure.kind is Kind.ABSENT:
                raise StorageUnavailableError(f"there is nothing to copy. copy={source} to={target}")
            if failure.kind is Kind.REFUSED and not unsure:
                return None
            if failure.kind is Kind.TAKEN or not tries.again(failure):
                raise _put_failed(failure, unsure, tries)
            unsure = unsure or not failure.unsent


def _put_failed(failure: Failure, unsure: bool, tries: Tries) -> Exception:
    """The error of a put or a copy for which the store was asked in vain."""
    if not unsure:
        return unavailable(tries.where, failure, tries.count, tries.seconds, changes=True)
    return CommitUnknownError(
        "the store does not say whether it has made an object, which may be there or may appear later: look before "
        f"writing it again. {tries.where} tries={tries.count} waited_s={tries.seconds:.1f} cause={failure.cause}"
    )

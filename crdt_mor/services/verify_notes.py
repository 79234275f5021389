"""Notes of the findings of verifies: empty objects. The newest counts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from crdt_mor.errors import CommitUnknownError, StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.events.session import Session
from crdt_mor.log.paths import VERIFIED, only_own
from crdt_mor.store.protocol import Stat, Store


@dataclass(frozen=True, slots=True)
class VerifyNote:
    findings: int
    at_ms: int


def last_verify(store: Store) -> VerifyNote | None:
    newest = _newest(only_own(store.list(VERIFIED)))
    return None if newest is None else VerifyNote(_findings(newest), newest.modified_ms)


def note_verify(session: Session, findings: int) -> None:
    with suppress(CommitUnknownError, StorageUnavailableError, UnsupportedFeatureError):
        session.store.put(f"{VERIFIED}/{findings}-{session.environment.nonce()}", b"", durable=False)
        listed = only_own(session.store.list(VERIFIED))
        for stat in listed:
            if stat is not _newest(listed):
                session.store.delete(stat.path)


def _newest(listed: list[Stat]) -> Stat | None:
    return max(listed, key=lambda stat: (stat.modified_ms, _findings(stat)), default=None)


def _findings(stat: Stat) -> int:
    return int(stat.path.rpartition("/")[2].partition("-")[0])

"""Replace damaged and missing files of a table with the files of a copy.

    verify the table          -> damaged and missing files
    verify it as if the copy's files were in their places, until nothing new is found
    put the files that have no finding left, Hudi's timeline last
    verify the table          -> what is still wrong

Nothing is replaced before the copy's file has passed every check of `verify`. The next repair continues a killed one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from crdt_mor.errors import InvalidInputError, StorageUnavailableError
from crdt_mor.events.session import Session
from crdt_mor.model.names import data_file_name
from crdt_mor.model.policies import plural, words_of_bytes
from crdt_mor.services.verify import Tell, needed_files, verify
from crdt_mor.services.verify_findings import Verification
from crdt_mor.services.verify_notes import note_verify
from crdt_mor.store.across import put_across
from crdt_mor.store.overlay import OverlayStore
from crdt_mor.store.paths import TEMP_FOLDER, in_hoodie
from crdt_mor.store.protocol import Stat

OF_ONE_FILE: Final = frozenset(
    (
        "segment", "plan", "restore plan", "missing", "size", "read", "another file", "rows", "time", "key order",
        "key twice", "statistics", "Bloom filter", "footer", "state", "partition metadata", "Hudi's commit",
        "Hudi's timeline", "Hudi's history",
    )
)  # fmt: skip
"""Checks of `verify` that another copy of the file can fulfil."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of `table.maintenance.repair`.

    Attributes:
        files: paths of the files that were put, relative to the table.
        bytes: their size.
        verification: the table after the repair. `findings` is empty if it is whole now.
    """

    files: tuple[str, ...]
    bytes: int
    verification: Verification

    @property
    def is_sound(self) -> bool:
        """True if the table has no findings after the repair."""
        return self.verification.is_sound

    def __str__(self) -> str:
        left = plural(len(self.verification.findings), "finding")
        return f"put {plural(len(self.files), 'file')}, {words_of_bytes(self.bytes)}; {left} left"


def repair(session: Session, copy: Session, tell: Tell | None) -> Repaired:
    _require_copy(session, copy)
    first = verify(_anew(session), on_progress=tell)
    sound = _sound_in(session, copy, first, tell)
    sound.sort(key=lambda stat: (in_hoodie(stat.path), stat.path))  # Hudi's readers are told of data that is there
    put = [stat for stat in sound if _put(session, copy, stat)]
    _remove_needless(session, [stat.path for stat in put])
    last = verify(_anew(session), on_progress=tell) if put else first
    note_verify(session, len(last.findings))
    return Repaired(tuple(stat.path for stat in put), sum(stat.size for stat in put), last)


def _require_copy(session: Session, copy: Session) -> None:
    here, there = session.tail().table_id, copy.tail().table_id
    if _are_one_place(session, copy):
        raise InvalidInputError(f"the copy is the table itself: name a copy of the table. path={copy.uri}")
    if here is None or here != there:
        raise InvalidInputError(
            "the copy is another table: name a table that crdt-mor copy made of this one. "
            f"path={copy.uri} table_id={there} expected={here}"
        )


def _are_one_place(session: Session, copy: Session) -> bool:
    """Return True if an object that is put into the table shows in the copy.

    One table may have two addresses, such as a symbolic link. A repair from itself could delete its only file.
    """
    mark = f"{TEMP_FOLDER}/clock-{session.environment.nonce()}"  # a sweep removes it if this process dies
    session.store.touch(mark)
    try:
        return copy.store.stat(mark) is not None
    finally:
        session.store.delete(mark)


def _anew(session: Session, store: OverlayStore | None = None) -> Session:
    return session.open_another(session.uri, store or session.store)


def _sound_in(session: Session, copy: Session, found: Verification, tell: Tell | None) -> list[Stat]:
    """Return the copy's files at the damaged paths that pass `verify`.

    A replaced segment names unchecked files, so the search is repeated.
    """
    there: dict[str, Stat] = {}
    while more := _in_copy(copy, {f.path for f in found.findings if f.check in OF_ONE_FILE} - there.keys()):
        there |= more
        found = verify(_anew(session, OverlayStore(session.store, copy.store, there)), on_progress=tell)
    wrong = {finding.path for finding in found.findings}
    return [stat for path, stat in there.items() if path not in wrong]


def _in_copy(copy: Session, paths: Iterable[str]) -> dict[str, Stat]:
    return {path: stat for path in paths if (stat := copy.store.stat(path)) is not None}


def _put(session: Session, copy: Session, stat: Stat) -> bool:
    if session.store.stat(stat.path) is not None:
        session.store.delete(stat.path)  # damaged, and the copy's file has passed every check
    made = put_across(copy.store, session.store, stat, durable=True)
    if made is None:
        raise StorageUnavailableError(
            f"a file is gone from the copy since it was checked: repair again. path={stat.path} copy={copy.uri}"
        )
    return made


def _remove_needless(session: Session, paths: Iterable[str]) -> None:
    data = [path for path in paths if not in_hoodie(path) and data_file_name(path) is not None]
    needed = needed_files(_anew(session)) if data else set()
    for path in data:
        if path not in needed:
            session.store.delete(path)

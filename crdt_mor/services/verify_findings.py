"""What `Table.verify` says: findings, each with what it means for readers and what to do, and what was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from crdt_mor.errors import CrdtMorError, FormatError
from crdt_mor.model.timeline_parts import FileGroup

_NO_GROUP: Final[FileGroup] = ("", "")

_REPAIR = "put it back from a copy of the table: crdt-mor repair URI --from COPY"
_RESTORE = f"{_REPAIR}; without a copy, go back to a commit before it: crdt-mor restore"
_NOT_GIVEN = "see the cause, such as rights, a disk or a mount, mend it, and verify again"
_REWRITE = "let crdt-mor compact rewrite the file group, and crdt-mor verify look again"
_OTHER_READERS = "our own readers are not concerned; Hudi's readers see less, or other rows, than the table has"
_UNREADABLE = "reads of this file group fail with an error; other file groups are read"
_TWICE = "a write of the same row would not find it, so that it would live twice"
_COPY = "of a table of Hudi's, correct hoodie.properties where they are wrong; else copy the rows to a new table"
_REPORT = "this is a mistake in crdt-mor, or somebody edited the object: please report it, and keep a copy of .hoodie"

CHECKS: Final = MappingProxyType({
    "settings": (
        "the table cannot be opened any more",
        "restore .hoodie/hoodie.properties from a backup, or copy hoodie.properties.backup beside it, if there is one",
    ),
    "properties": (
        "our readers, or Hudi's, merge rows otherwise than the table's writers",
        "restore .hoodie/hoodie.properties from a backup before anything is compacted",
    ),
    "version": (
        "the newest version of the timeline cannot be read, so that neither readers nor writers can open the table",
        "restore the object from a backup, with all of .hoodie/.crdt_mor",
    ),
    "old version": (
        "readers and writers that look for the newest version may take another one for it, or fail",
        "restore the object from a backup, with all of .hoodie/.crdt_mor",
    ),
    "segment": (
        "reads fail with an error that names the object, as nothing else says which files the table has",
        _REPAIR,
    ),
    "invariant": ("readers may miss commits, or see some twice", _REPORT),
    "plan": (
        "the plan can be neither executed nor completed, and its file groups get no other one",
        "give it up: crdt-mor rollback URI INSTANT; the next crdt-mor maintain plans again",
    ),
    "restore plan": (
        "what a restore has dropped cannot be told from commits of Hudi's, so that reads may fail",
        _REPAIR,
    ),
    "missing": (_UNREADABLE, _RESTORE),
    "size": (_UNREADABLE, _RESTORE),
    "read": (_UNREADABLE, _RESTORE),
    "payload": (
        "reads of this file group fail with an error; its files are whole, and other file groups are read",
        "do what the finding says of the payload; no backup and no restore is needed",
    ),
    "not supported": (
        "reads of this file group fail with an error; the file is not damaged, and other file groups are read",
        "read it with a newer release of crdt-mor; or let Hudi rewrite it, by a compaction or clustering",
    ),
    "another file": ("readers show rows that belong to another file, and not those of this one", _RESTORE),
    "rows": ("readers count, or show, other rows than the commit has written", _RESTORE),
    "time": ("readers may take an older version of a row for the newest one", _RESTORE),
    "key order": ("readers that look for single keys may miss rows of this file", _REWRITE),
    "key twice": ("readers show one of the rows of the key, or each of them", _REWRITE),
    "statistics": ("a filter may skip rows that fulfil it: its readers see fewer rows than there are", _REWRITE),
    "Bloom filter": ("readers that look for a single key may miss its row", _REWRITE),
    "footer": ("readers may skip rows, or take an older version of a row for the newest one", _REWRITE),
    "state": ("readers see another value before a compaction than after it", _RESTORE),
    "rule": ("readers see rows that break a rule which all rows are said to fulfil", "update or delete these rows"),
    "record key": (_TWICE, _COPY),
    "partition path": (_TWICE, _COPY),
    "bucket": (_TWICE, _COPY),
    "partition metadata": (_OTHER_READERS, "crdt-mor maintain puts it where it is gone; remove a damaged one first"),
    "Hudi's timeline": (_OTHER_READERS, _REPAIR),
    "lost version": (
        "the newest versions of the timeline are gone, and what they committed is lost to our readers",
        "restore them from a backup before anything is written; copy again what was copied beside its writers",
    ),
    "unknown instant": (_OTHER_READERS, "remove the file, once crdt-mor timeline does not show its instant"),
    "Hudi's history": (_OTHER_READERS, _REPAIR),
    "shown rows": (
        "readers show other rows than the files have",
        "remove the hint that is named; and please report it, with a copy of it",
    ),
    "fold": ("readers see other rows than the commits say", _REPORT),
    "told": (
        "Hudi's readers do not show it yet; a compaction of Hudi's leaves such a commit out, and the table is refused",
        "crdt-mor maintain tells Hudi: run it before Hudi's turn. A writer that is at work does so in a moment",
    ),
    "hint": ("only speed: nothing that is read or written is wrong", "crdt-mor maintain removes it when it is old"),
})  # fmt: skip
"""For each check what a finding means for readers, and what to do."""

HINT: Final = "hint"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with an object of the table.

    check: what was asked, such as "missing", "Bloom filter" or "bucket"; the page on verifying has all of them.
    path: of the object, relative to the table; of rows that are wrong, that of the file group's base file or first log.
    partition, file_group: of a data file; empty of other objects. rows: how many rows are wrong; None: it cannot be
    told, or is not of rows. said: what is wrong with the first of them. means: what that is to readers. advice: what to
    do.
    """

    check: str
    path: str
    partition: str
    file_group: str
    rows: int | None
    said: str
    means: str
    advice: str


class NotGivenError(FormatError):
    """The store does not give an object, though it gives others. Its bytes may be whole."""


def found(
    check: str, path: str, said: str | CrdtMorError, group: FileGroup = _NO_GROUP, rows: int | None = None
) -> Finding:
    """A finding of one of the checks. said: in words, or the error that said it."""
    means, advice = CHECKS[check]
    if isinstance(said, NotGivenError):
        advice = f"{_NOT_GIVEN}; if it stays unreadable, {advice}"
    return Finding(check, path, *group, rows, str(said), means, advice)


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """How far `Table.verify` is: so many of the table's file groups are done, with so many bytes of their files."""

    file_groups: int
    of: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Verification:
    """What `Table.verify` has found.

    version: of the timeline that was read. rows: how many the newest snapshot shows, as far as it can be read.
    file_groups: of the newest snapshot. files, bytes: data files that were read, those of the history among them.
    objects: objects in `.hoodie` that were read.
    findings: what is wrong. hints: what is wrong and costs speed alone, and commits of which Hudi is not told yet.
    keys_in_several_partitions: how many keys have a row in more than one partition, which is no damage: readers show
    each of these rows. some_keys: the first of them.
    not_looked_at: what was not looked at, in words.
    """

    version: int
    rows: int
    file_groups: int
    files: int
    bytes: int
    objects: int
    findings: tuple[Finding, ...]
    hints: tuple[Finding, ...]
    keys_in_several_partitions: int
    some_keys: tuple[str, ...]
    not_looked_at: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found that is wrong, but for hints."""
        return not self.findings

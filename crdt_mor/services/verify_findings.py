"""Results of `Table.verify`: findings with their effect on readers and the repair."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from crdt_mor.errors import CrdtMorError, FormatError
from crdt_mor.model.timeline_parts import FileGroup

_NO_GROUP: Final[FileGroup] = ("", "")

_REPAIR = "replace the object from a copy of the table: crdt-mor repair URI --from COPY"
_RESTORE = f"{_REPAIR}; without a copy, restore an earlier commit: crdt-mor restore"
_NOT_GIVEN = "remove the cause, such as missing rights, a disk or a mount, and verify again"
_REWRITE = "run crdt-mor compact to rewrite the file group, then crdt-mor verify again"
_OTHER_READERS = "readers of crdt_mor are not affected; Hudi's readers miss rows or see wrong rows"
_UNREADABLE = "reads of this file group fail with an error; other file groups are read"
_WRONG_PAGE = "reads of this file group fail or show wrong values, and it is not compacted; other file groups are read"
_TWICE = "a write of the same row would not replace the row, so two rows would exist"
_COPY = "in a table of Hudi's, correct wrong values in hoodie.properties; else copy the rows to a new table"
_MIRRORS = "engines that read the mirror fail or see wrong rows; readers of crdt_mor are not affected"
_REPORT = "this is a bug in crdt-mor, or somebody edited the object: please report it, and keep a copy of .hoodie"

CHECKS: Final = MappingProxyType({
    "settings": (
        "the table cannot be opened",
        "restore .hoodie/hoodie.properties from a backup, or copy hoodie.properties.backup beside it",
    ),
    "properties": (
        "readers of crdt_mor, or of Hudi, merge rows differently from the table's writers",
        "restore .hoodie/hoodie.properties from a backup before anything is compacted",
    ),
    "version": (
        "the newest version of the timeline is unreadable, so no process can open the table",
        "restore the object from a backup, with all of .hoodie/.crdt_mor",
    ),
    "old version": (
        "readers and writers may choose a wrong version as the newest, or fail",
        "restore the object from a backup, with all of .hoodie/.crdt_mor",
    ),
    "segment": (
        "reads fail with an error that names the object; no other object lists these files",
        _REPAIR,
    ),
    "invariant": ("readers may miss commits, or see some twice", _REPORT),
    "plan": (
        "the plan cannot be executed or completed, and its file groups cannot be planned again",
        "cancel the plan: crdt-mor rollback URI INSTANT; the next crdt-mor maintain plans again",
    ),
    "restore plan": (
        "dropped commits look like commits of Hudi, so reads may fail",
        _REPAIR,
    ),
    "missing": (_UNREADABLE, _RESTORE),
    "size": (_UNREADABLE, _RESTORE),
    "read": (_WRONG_PAGE, _RESTORE),
    "payload": (
        "reads of this file group fail with an error; its files are whole, and other file groups are read",
        "follow the payload's message in the finding; no backup and no restore is needed",
    ),
    "not supported": (
        "reads of this file group fail with an error; the file is not damaged, and other file groups are read",
        "use a newer release of crdt-mor; or let Hudi rewrite the file by compaction or clustering",
    ),
    "another file": ("readers show rows of another file, and not the rows of this file", _RESTORE),
    "rows": ("readers count or show other rows than the commit wrote", _RESTORE),
    "time": ("readers may show an older version of a row", _RESTORE),
    "key order": ("readers that search for single keys may miss rows of this file", _REWRITE),
    "key twice": ("readers show an arbitrary row of the key, or several", _REWRITE),
    "statistics": ("a filter may skip matching rows, so readers see too few rows", _REWRITE),
    "Bloom filter": ("readers that search for a single key may miss its row", _REWRITE),
    "footer": ("readers may skip rows, or show an older version of a row", _REWRITE),
    "state": ("readers see another value before a compaction than after it", _RESTORE),
    "rule": ("readers see rows that break a proven rule", "update or delete these rows"),
    "record key": (_TWICE, _COPY),
    "partition path": (_TWICE, _COPY),
    "bucket": (_TWICE, _COPY),
    "partition metadata": (_OTHER_READERS, "delete a damaged file; then run crdt-mor maintain to put the file"),
    "Hudi's commit": (
        "all reads fail with an error that names the file",
        f"{_REPAIR}; without a copy, move the commit's timeline and data files away, then repeat Hudi's statement",
    ),
    "Hudi's timeline": (_OTHER_READERS, _REPAIR),
    "lost version": (
        "the newest versions of the timeline are lost, with their commits",
        "restore them from a backup before any write; repeat copies that were made beside writers",
    ),
    "unknown instant": (_OTHER_READERS, "remove the file if crdt-mor timeline does not show its instant"),
    "Hudi's history": (_OTHER_READERS, _REPAIR),
    "shown rows": (
        "the rows that readers see differ from the rows of the files",
        "remove the named hint; please report it with a copy of the hint",
    ),
    "fold": ("the rows that readers see differ from the rows of the commits", _REPORT),
    "mirror": (_MIRRORS, "remove the mirror's folder, _delta_log or metadata, then run crdt-mor mirror"),
    "mirror head": (_MIRRORS, "mirror the table again"),
    "unprojected": (
        "Hudi's readers miss the event for now; a compaction by Hudi would miss it too, and the table be refused",
        "run crdt-mor maintain to tell Hudi before its next turn. A live writer does so in a moment",
    ),
    "hint": ("only speed: no read or write is wrong", "run crdt-mor maintain to remove old hints"),
})  # fmt: skip
"""Effect on readers and repair for each check."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A damaged object of the table.

    Attributes:
        check: Name of the check, such as "missing" or "bucket"; the page on verifying lists all.
        path: Path of the object, relative to the table. For wrong rows: the file group's base file or first log.
        partition, file_group: Of a data file; empty for other objects.
        rows: Number of wrong rows; None if unknown or not about rows.
        description: Of the first case.
        means: Effect on readers.
        advice: The repair.
    """

    check: str
    path: str
    partition: str
    file_group: str
    rows: int | None
    description: str
    means: str
    advice: str


class UnreadableObjectError(FormatError):
    """The store cannot read an object, but can read others. The object's bytes may be whole."""


def finding(
    check: str, path: str, said: str | CrdtMorError, group: FileGroup = _NO_GROUP, rows: int | None = None
) -> Finding:
    means, advice = CHECKS[check]
    if isinstance(said, UnreadableObjectError):
        advice = f"{_NOT_GIVEN}; if it stays unreadable, {advice}"
    return Finding(check, path, *group, rows, str(said), means, advice)


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """Progress of `Table.verify`: finished and all file groups, and bytes read."""

    file_groups: int
    of: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of `Table.verify`.

    Attributes:
        rows: Rows in the readable part of the newest snapshot.
        file_groups: File groups of the newest snapshot.
        files, bytes: Data files read, including history.
        objects: Objects read in `.hoodie`.
        findings: Damage.
        hints: Defects that only cost speed, and commits not yet told to Hudi.
        keys_in_several_partitions: Number of keys with rows in several partitions. This is no damage: readers show all.
        some_keys: The first of these keys.
        not_looked_at: Descriptions of unchecked parts.
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
        """True if there are no findings; hints are allowed."""
        return not self.findings

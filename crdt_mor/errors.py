"""Errors, by the caller's next step.

    CrdtMorError
    ├── TableNotFoundError (FileNotFoundError)   ├── TableExistsError (FileExistsError)
    ├── TableReplacedError                       -> recreated, or other settings: open or scan again
    ├── TableMovedError                          -> write to the table at its new address, `error.uri`; reads go on
    ├── TableArrivingError                       -> a migration is filling this table: write again later
    ├── InvalidInputError (ValueError)           ├── SchemaMismatchError (ValueError)
    │   └── InvalidUseError (TypeError)          -> wrong kind of argument; names the right call
    ├── ConstraintViolationError (ValueError)    -> rows break a rule: fix or omit them
    ├── UnsupportedFeatureError                  -> this release lacks a feature
    ├── LawError (ValueError)                    -> a payload breaks a law; with an example
    ├── UnknownPayloadError                      -> install the payload's package, or the right version
    │   └── PayloadNotAllowedError               -> import or allow the payload, if you trust it
    ├── PayloadError                             -> a payload raised in a merge: fix it
    ├── SnapshotExpiredError                     -> the files of this view are gone: read the latest snapshot
    ├── CheckpointExpiredError                   -> history is gone: scan, and continue from there
    ├── FutureSnapshotError (ValueError)         -> `as_of` is not decided yet: ask again later
    ├── WriterExpiredError                       -> silent too long and rolled back: write again
    ├── EarlierWritePendingError                 -> an earlier write is still pending: update again
    ├── ErasureUnfinishedError                   -> earlier writes must end: erase again to continue
    ├── RestoreUnfinishedError                   -> restored, but dropped files are left
    ├── TokenOrderError (ValueError)             -> a token number below the last one: repeat or out of order?
    ├── ClockError                               -> this machine's clock is far ahead of the store's: set it
    ├── ForkedProcessError                       -> forked process: open the table here, or use spawn
    ├── StorageUnavailableError                  -> retry; nothing was published
    │   └── StorageRefusedError                  -> no such bucket, no access, expired credentials: names the setting
    ├── CommitUnknownError                       -> may have landed; carries the token or instant to look for
    └── FormatError                              -> bad bytes; names file, offset, block
        └── UnsupportedVersionError              -> made by a newer or older engine

There is no conflict error: two writers of a key both succeed, and the table's merge decides. An update waits for
earlier writes, and later ones never abort it. Messages contain the failure, the next step, and then values; only the
classes are API.
"""

from __future__ import annotations

from typing import Final

DOCS: Final = "https://crdt-mor.readthedocs.io/en/stable/docs"
"""The address of the documentation's pages, as in `pyproject.toml`."""


def page(name: str) -> str:
    """Return the address of a page of the documentation, such as `stores`, for a message."""
    return f"{DOCS}/{name}.html"


class PartitionNotInKeyWarning(UserWarning):
    """A new table's keys may exist in several partitions."""


class UpkeepWarning(UserWarning):
    """A commit is complete, but the table's upkeep or a mirror lags."""


class TableMovedWarning(UserWarning):
    """A read table has moved: newer rows are at the new address."""


class CrdtMorError(Exception):
    """Base of all errors of crdt_mor."""


class TableNotFoundError(CrdtMorError, FileNotFoundError):
    """The path contains no table."""


class TableExistsError(CrdtMorError, FileExistsError):
    """Another table exists already."""


class InvalidInputError(CrdtMorError, ValueError):
    """An argument, a batch or a value is invalid. Nothing was changed."""


class InvalidUseError(InvalidInputError, TypeError):
    """A table or scan was used as a sequence of rows, or an address is no text. The message names the right call."""


class SchemaMismatchError(CrdtMorError, ValueError):
    """Columns or types do not match the table's. Nothing was changed."""


class ConstraintViolationError(CrdtMorError, ValueError):
    """Rows break a rule of the table. Nothing was changed.

    Attributes:
        constraint: the rule, `not_null price` or `check positive`.
        key: of the first such row, by column.
        rows: number of such rows.
    """

    def __init__(self, message: str, constraint: str = "", key: dict[str, object] | None = None, rows: int = 0) -> None:
        super().__init__(message, constraint, key, rows)
        self.constraint = constraint
        self.key = key or {}
        self.rows = rows

    def __str__(self) -> str:
        return str(self.args[0])


class UnsupportedFeatureError(CrdtMorError):
    """This release lacks a feature that the table or address needs."""


class SnapshotExpiredError(CrdtMorError):
    """A file of this snapshot is gone. Read the latest snapshot instead."""

    @classmethod
    def of_file(cls, path: str) -> SnapshotExpiredError:
        """Return the error for a file missing in the store."""
        return cls(
            "a data file of this snapshot is gone: if a cleaner removed it, read the latest snapshot; if it was "
            f"deleted by hand, put it back with crdt-mor repair. file={path}"
        )


class CheckpointExpiredError(CrdtMorError):
    """The history after this checkpoint is gone. Scan the table and continue from the scan's checkpoint."""


class FutureSnapshotError(CrdtMorError, ValueError):
    """`as_of` lies after the table's clock and is not decided yet."""


class TableReplacedError(CrdtMorError):
    """The table was replaced since it was opened or the checkpoint was made, or its settings changed."""


class TableMovedError(CrdtMorError):
    """A migration moved the table to `uri`: it accepts no writes, but can be read."""

    def __init__(self, message: str, uri: str = "") -> None:
        super().__init__(message)
        self.uri = uri


class TableArrivingError(CrdtMorError):
    """A migration is still filling this table. Write again later."""


class WriterExpiredError(CrdtMorError):
    """This write was given up after too long a silence, or abandoned. Write again.

    A task's attempt that still runs when its job completes also raises this error.
    """


class EarlierWritePendingError(CrdtMorError):
    """An update waited for an earlier write that is still pending. Nothing was written."""


class ErasureUnfinishedError(CrdtMorError):
    """Rows are deleted, but files contain them until earlier writes end. Erase again to continue.

    `pending` contains the requested times of these writes, oldest first.
    """

    def __init__(self, message: str, pending: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.pending = pending


class RestoreUnfinishedError(CrdtMorError):
    """The table is restored, but Hudi's readers still see dropped commits with files that this process may not remove.

    Restore to the same point again, or write, with permission to delete. `instants` contains the commits' requested
    times, oldest first.
    """

    def __init__(self, message: str, instants: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.instants = instants


class TokenOrderError(CrdtMorError, ValueError):
    """A token number is below the application's last: a repeat, or a write out of order."""


class ClockError(CrdtMorError):
    """This machine's clock is far ahead of the store's; a write would spoil the table's clock."""


class ForkedProcessError(CrdtMorError):
    """A forked process used an object or a library of its parent."""


class StorageUnavailableError(CrdtMorError):
    """The store failed. Nothing was published; try again."""


class StorageRefusedError(StorageUnavailableError):
    """The store refuses permanently: a missing bucket, invalid credentials, no access, another region.

    The message says how to fix it. Nothing was published.
    """


class CommitUnknownError(CrdtMorError):
    """The store failed during a publication: the commit may exist now or later."""


class FormatError(CrdtMorError):
    """Bytes do not follow their format. Names file, offset and block."""


class UnsupportedVersionError(FormatError):
    """This release does not read this version of a format."""


class LawError(CrdtMorError, ValueError):
    """A payload breaks its `laws`; the message contains a smallest counterexample of each."""

    def __init__(self, message: str, laws: tuple[str, ...]) -> None:
        super().__init__(message)
        self.laws = laws


class UnknownPayloadError(CrdtMorError):
    """The table's payload is not installed, or in another version."""


class PayloadNotAllowedError(UnknownPayloadError):
    """The table's payload is in a module neither imported nor allowed. Nothing was imported."""


class PayloadError(CrdtMorError):
    """A payload raised, or returned an invalid state, during a merge."""


__all__ = [
    "CheckpointExpiredError", "ClockError", "CommitUnknownError", "ConstraintViolationError", "CrdtMorError",
    "EarlierWritePendingError", "ErasureUnfinishedError", "ForkedProcessError", "FormatError", "FutureSnapshotError",
    "InvalidInputError", "InvalidUseError", "LawError", "PartitionNotInKeyWarning", "PayloadError",
    "PayloadNotAllowedError", "RestoreUnfinishedError", "SchemaMismatchError", "SnapshotExpiredError",
    "StorageRefusedError", "StorageUnavailableError", "TableArrivingError", "TableExistsError", "TableMovedError",
    "TableMovedWarning", "TableNotFoundError", "TableReplacedError", "TokenOrderError", "UnknownPayloadError",
    "UnsupportedFeatureError", "UnsupportedVersionError", "UpkeepWarning", "WriterExpiredError",
]  # fmt: skip

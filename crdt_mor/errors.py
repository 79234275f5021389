"""What can go wrong, by what the caller would do about it.

    CrdtMorError
    ├── TableNotFoundError (FileNotFoundError)   ├── TableExistsError (FileExistsError)
    ├── TableReplacedError                       -> made anew, or given other settings: open it anew, or scan it anew
    ├── TableMovedError                          -> write to the table at its new address, `error.uri`; reads go on
    ├── TableArrivingError                       -> a migration is still filling this table: write again in a moment
    ├── InvalidInputError (ValueError)           ├── SchemaMismatchError (ValueError)
    │   └── InvalidUseError (TypeError)          -> what is no sequence was used as one; says which method to call
    ├── ConstraintViolationError (ValueError)    -> rows break a rule of the table: mend them, or leave them out
    ├── UnsupportedFeatureError                  -> the table or address needs something this release lacks
    ├── LawError (ValueError)                    -> a payload claims a law that it breaks; names it, with an example
    ├── UnknownPayloadError                      -> install the package of the table's payload, or its right version
    │   └── PayloadNotAllowedError               -> import or allow the table's payload, if you trust its module
    ├── PayloadError                             -> a payload raised while it merged: mend it; nothing was changed
    ├── SnapshotExpiredError                     -> the files of this view are gone: read the latest snapshot
    ├── CheckpointExpiredError                   -> commits after this checkpoint are gone: scan, and go on from there
    ├── FutureSnapshotError (ValueError)         -> `as_of` is not decided yet: ask again later
    ├── WriterExpiredError                       -> this write was silent too long and was rolled back: write again
    ├── EarlierWritePendingError                 -> an update has waited for an older write in vain: update again later
    ├── ErasureUnfinishedError                   -> others have to end first what they do: erase again, it goes on
    ├── RestoreUnfinishedError                   -> restored, but files are left that another user may remove
    ├── TokenOrderError (ValueError)             -> a token number below the last one: repeat or out of order?
    ├── ClockError                               -> this machine's clock is far ahead of the store's: set it
    ├── ForkedProcessError                       -> this process was forked: open the table here, or use spawn
    ├── StorageUnavailableError                  -> retry; nothing was published
    │   └── StorageRefusedError                  -> no such bucket, no access, expired credentials: says what to set
    ├── CommitUnknownError                       -> may have landed; carries the token or instant to look for
    └── FormatError                              -> bad bytes; names file, offset, block
        └── UnsupportedVersionError              -> made by a newer or older engine

There is no conflict error: two writers of one key both succeed, and the table's merge decides; an update waits for
what began before it, and nothing that comes later aborts it. Messages say what
happened, what to do next, and then the values that matter; they are not API, the classes are.
"""

from __future__ import annotations


class PartitionNotInKeyWarning(UserWarning):
    """A table is made in which a key may come to live in several partitions."""


class UpkeepWarning(UserWarning):
    """Nobody maintains a table that is written to: `maintain` was not run for thousands of commits."""


class TableMovedWarning(UserWarning):
    """A table that has moved is read: its newer rows are at the new address."""


class CrdtMorError(Exception):
    """Everything that crdt_mor raises on purpose."""


class TableNotFoundError(CrdtMorError, FileNotFoundError):
    """There is no table at this path."""


class TableExistsError(CrdtMorError, FileExistsError):
    """There is a table already, and it is not the one that was asked for."""


class InvalidInputError(CrdtMorError, ValueError):
    """An argument, a batch or a value that cannot be right. Nothing was changed."""


class InvalidUseError(InvalidInputError, TypeError):
    """A table or a scan was used as a sequence of rows, which it is not. The message names the method that is meant."""


class SchemaMismatchError(CrdtMorError, ValueError):
    """Columns or types that the table does not have and cannot join. Nothing was changed."""


class ConstraintViolationError(CrdtMorError, ValueError):
    """Rows break a rule of the table: a not_null or a check. Nothing was changed.

    constraint: the rule, `not_null price` or `check positive`. key: of the first row that breaks it, by column.
    rows: how many rows break it.
    """

    def __init__(self, message: str, constraint: str = "", key: dict[str, object] | None = None, rows: int = 0) -> None:
        super().__init__(message, constraint, key, rows)
        self.constraint = constraint
        self.key = key or {}
        self.rows = rows

    def __str__(self) -> str:
        return str(self.args[0])


class UnsupportedFeatureError(CrdtMorError):
    """The table or the address needs something that this release does not do."""


class SnapshotExpiredError(CrdtMorError):
    """A file of this view of the table is gone. Read the latest snapshot instead."""

    @classmethod
    def of_file(cls, path: str) -> SnapshotExpiredError:
        """A file that the timeline names is not in the store."""
        return cls(
            "a data file of this snapshot is gone: if a cleaner removed it, read the latest snapshot; if it was "
            f"deleted by hand, put it back with crdt-mor repair. file={path}"
        )


class CheckpointExpiredError(CrdtMorError):
    """What commits after this checkpoint wrote is gone. Scan the table, and go on from the scan's checkpoint."""


class FutureSnapshotError(CrdtMorError, ValueError):
    """`as_of` lies after the table's clock: what it will show is not decided yet."""


class TableReplacedError(CrdtMorError):
    """The table here is not the one that was opened or that a checkpoint is of, or its settings are others now."""


class TableMovedError(CrdtMorError):
    """The table takes no writes any more, as a migration has moved it. `uri`: its new address. It can still be read."""

    def __init__(self, message: str, uri: str = "") -> None:
        super().__init__(message)
        self.uri = uri


class TableArrivingError(CrdtMorError):
    """A migration is still filling this table with the rows of another one. Write again in a moment."""


class WriterExpiredError(CrdtMorError):
    """This write was given up: it was silent for longer than the expiry, or abandoned. Write again.

    An attempt at a task that is still at work when its job is completed ends with this as well; its message says so.
    """


class EarlierWritePendingError(CrdtMorError):
    """An update has waited for a write that began before it, and that is still under way. Nothing was written."""


class ErasureUnfinishedError(CrdtMorError):
    """Rows are deleted, and files still hold them until others have ended what they do. Erase again: it goes on.

    pending: the requested times of the writes that it waits for, oldest first.
    """

    def __init__(self, message: str, pending: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.pending = pending


class RestoreUnfinishedError(CrdtMorError):
    """The table is restored, but Hudi's readers still see commits that were dropped, whose files this process may not
    remove. Let a process that may restore to the same point again, or write.

    instants: the requested times of these commits, oldest first.
    """

    def __init__(self, message: str, instants: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.instants = instants


class TokenOrderError(CrdtMorError, ValueError):
    """A token number below the last one of its application: a repeat, or a write out of order."""


class ClockError(CrdtMorError):
    """This machine's clock is far ahead of the store's; writing would poison the table's clock."""


class ForkedProcessError(CrdtMorError):
    """What a parent process had opened, or could do before the fork, is used in a process that was forked from it."""


class StorageUnavailableError(CrdtMorError):
    """The store did not answer as it should. Nothing was published; try again."""


class StorageRefusedError(StorageUnavailableError):
    """The store will not do this, however often it is asked: a missing bucket, bad or expired credentials, no access,
    another region. The message says what to set. Nothing was published."""


class CommitUnknownError(CrdtMorError):
    """The store failed in the middle of a publication: the commit may have landed or may land later."""


class FormatError(CrdtMorError):
    """Bytes that are not what the format says. Names the file, the offset and the block."""


class UnsupportedVersionError(FormatError):
    """Bytes of a version of the format that this release does not read."""


class LawError(CrdtMorError, ValueError):
    """A payload breaks laws that it claims. `laws`: their names; the message has a smallest counterexample of each."""

    def __init__(self, message: str, laws: tuple[str, ...]) -> None:
        super().__init__(message)
        self.laws = laws


class UnknownPayloadError(CrdtMorError):
    """A payload that the table names cannot be found here, or what is found means something else."""


class PayloadNotAllowedError(UnknownPayloadError):
    """A table names a payload in a module that this process has neither imported nor allowed: nothing was imported."""


class PayloadError(CrdtMorError):
    """A payload raised, or gave something that is not its state, while it merged a column."""

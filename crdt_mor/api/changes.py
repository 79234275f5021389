"""The changes between two points of a table.

    merged   each changed key once, as it is at the end   _change_type: upsert, delete
    images   by commit, rows before and after             insert, update_preimage, update_postimage, delete
    raw      by commit, rows as written                   upsert, delete

Images and raw rows contain `_commit_version` and `_commit_timestamp`, as in Delta. Deleted rows of merged and raw
changes contain only key and partition columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from crdt_mor.api.rows import PART_SIZE, ArrowRows, part_size, selected_columns
from crdt_mor.columns.names import Names
from crdt_mor.columns.schema import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, TableSchema
from crdt_mor.columns.tables import in_schema, with_columns
from crdt_mor.errors import CheckpointExpiredError, InvalidInputError
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.merge.kernel import to_arrow
from crdt_mor.model.checkpoints import Checkpoint
from crdt_mor.model.cut import By, Cut
from crdt_mor.model.points import Point, is_checkpoint
from crdt_mor.model.timeline import Timeline
from crdt_mor.read.cut import sealed_at, window_end
from crdt_mor.read.window import Mode, Window
from crdt_mor.services.checkpoints import NamedReader, record

_CHANGE: Final = (pa.field(CHANGE_TYPE, pa.string()),)
_COMMIT: Final = (pa.field(COMMIT_VERSION, pa.int64()), pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", "UTC")))


@operations
class Changes(ArrowRows):
    """The changed rows in a window of history, from `Table.changes` or `Table.diff`."""

    def __init__(
        self,
        window: Window,
        columns: str | Sequence[str] | None,
        mode: Mode,
        names: Names,
        reader: str | None = None,
    ) -> None:
        self._window = window
        self._reader = reader
        self._mode = mode
        self._names = names
        self._schema = TableSchema.from_json(window.value.schema)
        self._by_shown = names.by_shown(self._schema.declared.names)
        self._columns = selected_columns(columns, [*self._by_shown], names.outward(self._schema))
        taken = [field.name for field in (*_CHANGE, *_COMMIT) if field.name in self._columns]
        if taken:
            raise InvalidInputError(
                f"changes add columns with these names: exclude the table's columns. columns={taken}"
            )

    @property
    def since(self) -> str:
        """The start of these changes, as a checkpoint."""
        return self._window.start.checkpoint(self._window.value.table_id)

    @property
    def checkpoint(self) -> str:
        """The start of the next changes: `table.changes(since=changes.checkpoint)`."""
        return self._window.end.checkpoint(self._window.value.table_id)

    def done(self) -> None:
        """Record that the reader has finished these changes. Its place never goes backwards.

        Raises:
            InvalidInputError: the changes have no reader, or are a part.

        Example:
            >>> first = table.changes(reader="billing")
            >>> first.commits, first.done(), table.changes(reader="billing").commits
            (1, None, 0)
        """
        if self._reader is None:
            raise InvalidInputError(
                "these changes have no reader, or are a part: pass a reader to `changes`, and call `done` on the "
                "result after all parts"
            )
        value = self._window.value
        record(self._window.session, Checkpoint(self._reader, self._window.end, value.table_id))

    @property
    def commits(self) -> int:
        """The number of commits in the window."""
        return len(self._window.commits)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema: the table's declared columns, then the columns of the change."""
        found = [(name, self._schema.declared.field(self._by_shown[name])) for name in self._columns]
        declared = [column.with_name(name).with_nullable(True) for name, column in found]
        return pa.schema([*declared, *_CHANGE, *(_COMMIT if self._mode in ("images", "raw") else ())])

    def limited(
        self,
        *,
        commits: int | None = None,
        files: int | None = None,
        rows: int | None = None,
        bytes: int | None = None,
    ) -> Changes:
        """Return the first commits of these changes within the limits, but at least one.

        The remaining changes follow the result's `checkpoint`.

        Args:
            commits: maximal number of commits.
            files: maximal number of files.
            rows: maximal number of written and deleted rows.
            bytes: maximal size of the files.

        Example:
            >>> first = table.changes().limited(commits=1)
            >>> first.commits, table.changes(since=first.checkpoint).commits
            (1, 0)
        """
        options = {"commits": commits, "files": files, "rows": rows, "bytes": bytes}
        limits = {name: _limit(name, limit) for name, limit in options.items() if limit is not None}
        end, spent = None, dict.fromkeys(options, 0)
        for commit in self._window.commits:
            spent["commits"] += 1
            spent["files"] += len(commit.files)
            spent["rows"] += commit.rows + commit.deletes
            spent["bytes"] += sum(file.size for file in commit.files)
            if end is not None and any(spent[name] > limit for name, limit in limits.items()):
                return self._of(self._window.until(Cut.after(end, self._window.end.by)), self._reader)
            end = commit
        return self

    def parts(self, size: int = PART_SIZE) -> list[Changes]:
        """Split the changes into parts for other processes, as `Scan.parts` does.

        Parts are whole file groups, small ones together up to `size` bytes. Images and raw rows are in commit order
        only within a part.
        """
        return [self._of(window, None) for window in self._window.parts(self._mode, part_size(size))]

    def _of(self, window: Window, reader: str | None) -> Changes:
        return Changes(window, self._columns, self._mode, self._names, reader)

    def __repr__(self) -> str:
        window = self._window
        return f"Changes({self._mode}, commits={self.commits}, since='{window.start}', checkpoint='{window.end}')"

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema, stored = self.schema, [self._by_shown[name] for name in self._columns]
        for frame in self._window.frames(self._mode, stored):
            if frame.height:
                table = to_arrow(frame)
                rows = self._schema.restore(table.select(stored))
                rows = rows.rename_columns(self._columns) if stored else rows
                rows = with_columns(rows, {name: table[name] for name in schema.names[len(self._columns) :]})
                yield from in_schema(rows, schema).to_batches()


def ends_of(
    session: Session, since: Point | None, until: Point | None, by: By, expired: bool, reader: str | None
) -> tuple[Timeline, Cut, Cut]:
    """Return the value that decides a window of changes, and the window's ends."""
    if reader is None:
        return _ends(session, since, until, by, expired)
    while True:
        named = NamedReader(session, reader, by, is_told=since is not None)
        try:
            return _ends_of_reader(session, named, since, until, by, expired)
        except CheckpointExpiredError as error:
            if since is not None or not named.has_moved():
                raise named.lost(error) from error


def _ends_of_reader(
    session: Session, named: NamedReader, since: Point | None, until: Point | None, by: By, expired: bool
) -> tuple[Timeline, Cut, Cut]:
    first = named.since if since is None else since
    value, start, end = _ends(session, first, until, by, expired)
    if named.begins(value, None if since is None else start, end):
        value, start, end = _ends(session, first, until, by, expired)
    return value, start, end


def _ends(
    session: Session, since: Point | None, until: Point | None, by: By, expired: bool
) -> tuple[Timeline, Cut, Cut]:
    ends = {"since": since, "until": until}
    points = {name: point for name, point in ends.items() if by == "completed" or is_checkpoint(point)}
    value = sealed_at(session, **points)  # Hudi's commits must be found before the checkpoint
    start = Cut.start(by) if since is None else window_end(session, value, since, by, "since", exact=expired)
    end = Cut.latest(value, by) if until is None else window_end(session, value, until, by, "until")
    if end.time < start.time:
        raise InvalidInputError(f"until lies before since: exchange the two. since={start} until={end}")
    return value, start, end


def _limit(name: str, limit: object) -> int:
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        return limit
    raise InvalidInputError(f"a limit must be a whole number above 0. {name}={limit!r}")

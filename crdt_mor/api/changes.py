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
from crdt_mor.columns.tables import with_columns
from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.deadlines import operations
from crdt_mor.merge.kernel import to_arrow
from crdt_mor.model.cut import Cut
from crdt_mor.read.window import Mode, Window

_CHANGE: Final = (pa.field(CHANGE_TYPE, pa.string()),)
_COMMIT: Final = (pa.field(COMMIT_VERSION, pa.int64()), pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", "UTC")))


@operations
class Changes(ArrowRows):
    """The changed rows in a window of history, from `Table.changes` or `Table.diff`."""

    def __init__(self, window: Window, columns: str | Sequence[str] | None, mode: Mode, names: Names) -> None:
        self._window = window
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
                return self._of(self._window.until(Cut.after(end, self._window.end.by)))
            end = commit
        return self

    def parts(self, size: int = PART_SIZE) -> list[Changes]:
        """Split the changes into parts for other processes, as `Scan.parts` does.

        Parts are whole file groups, small ones together up to `size` bytes. Images and raw rows are in commit order
        only within a part.
        """
        return [self._of(window) for window in self._window.parts(self._mode, part_size(size))]

    def _of(self, window: Window) -> Changes:
        return Changes(window, self._columns, self._mode, self._names)

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
                yield from rows.cast(schema).to_batches()


def _limit(name: str, limit: object) -> int:
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        return limit
    raise InvalidInputError(f"a limit must be a whole number above 0. {name}={limit!r}")

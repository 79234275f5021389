"""What changed between two points of a table: a frozen description; rows come when they are asked for.

    merged   each changed key once, as it is at the end   _change_type: upsert, delete
    images   commit by commit, rows before and after      insert, update_preimage, update_postimage, delete
    raw      commit by commit, rows as they were written  upsert, delete

Images and raw rows also say which commit it was: `_commit_version`, `_commit_timestamp`. The names are Delta's. A row
that is deleted from what is merged or raw has its key and partition columns alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from crdt_mor.api.rows import PART_SIZE, ArrowRows, chosen, part_size
from crdt_mor.columns.names import Names
from crdt_mor.columns.schema import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, TableSchema
from crdt_mor.errors import InvalidInputError
from crdt_mor.ground.deadlines import operations
from crdt_mor.merge.kernel import to_arrow
from crdt_mor.model.cut import Cut
from crdt_mor.read.window import Mode, Window

_CHANGE: Final = (pa.field(CHANGE_TYPE, pa.string()),)
_COMMIT: Final = (pa.field(COMMIT_VERSION, pa.int64()), pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", "UTC")))


@operations
class Changes(ArrowRows):
    """Rows of one window of a history, images and raw rows commit by commit. Made by `Table.changes`, `Table.diff`."""

    def __init__(self, window: Window, columns: str | Sequence[str] | None, mode: Mode, names: Names) -> None:
        """names: what the columns are called."""
        self._window = window
        self._mode = mode
        self._names = names
        self._schema = TableSchema.from_json(window.value.schema)
        self._by_shown = names.by_shown(self._schema.declared.names)
        self._columns = chosen(columns, [*self._by_shown], names.outward(self._schema))
        taken = [field.name for field in (*_CHANGE, *_COMMIT) if field.name in self._columns]
        if taken:
            raise InvalidInputError(f"changes have such columns of their own: leave the table's out. columns={taken}")

    @property
    def since(self) -> str:
        """Where these changes begin, as a checkpoint."""
        return self._window.start.checkpoint(self._window.value.table_id)

    @property
    def checkpoint(self) -> str:
        """Where the next changes of this very table go on: `table.changes(since=changes.checkpoint)`."""
        return self._window.end.checkpoint(self._window.value.table_id)

    @property
    def commits(self) -> int:
        """How many commits the window has; 0: there is nothing new."""
        return len(self._window.commits)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of what comes out: the columns as the table's user declared them, then what changed."""
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
        """These changes, ended after as many commits as stay within the limits, but one at least.

        files, bytes: of the files that the commits wrote. rows: that they wrote or deleted. The rest is what comes
        after the `checkpoint` of these.
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
        """These changes in parts that other processes can read: whole file groups, small ones together up to `size`.

        As `Scan.parts`. Images and raw rows are commit by commit within a part, not across parts.
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
                for name in schema.names[len(self._columns) :]:
                    rows = rows.append_column(name, table[name])
                yield from rows.cast(schema).to_batches()


def _limit(name: str, limit: object) -> int:
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        return limit
    raise InvalidInputError(f"a limit of changes is a number above 0. {name}={limit!r}")

"""What a table is made of, as Arrow tables: they print, filter and join like any other."""

from __future__ import annotations

import pyarrow as pa

from crdt_mor.model.cut import Cut
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.names import DELTA_COMMIT
from crdt_mor.model.slices import fold_slices
from crdt_mor.timeline.session import Session

_TIMELINE = pa.schema(
    [
        ("requested_at", pa.string()),
        ("completed_at", pa.string()),
        ("state", pa.string()),
        ("action", pa.string()),
        ("operation", pa.string()),
        ("rows", pa.int64()),
        ("deletes", pa.int64()),
        ("files", pa.int64()),
        ("bytes", pa.int64()),
        ("version", pa.int64()),
    ]
)
_FILES = pa.schema(
    [
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("kind", pa.string()),
        ("path", pa.string()),
        ("instant", pa.string()),
        ("bytes", pa.int64()),
        ("rows", pa.int64()),
        ("deletes", pa.int64()),
    ]
)


class Inspect:
    """Timeline and files; `table.inspect`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def timeline(self) -> pa.Table:
        """Every instant by requested time: committed, pending, planned, rolled back."""
        value = self._session.sealed()
        rows: list[dict[str, object]] = [
            {
                "requested_at": c.requested,
                "completed_at": c.completed,
                "state": "completed",
                "action": c.action,
                "operation": c.operation,
                "rows": c.rows,
                "deletes": c.deletes,
                "files": len(c.files),
                "bytes": sum(file.size for file in c.files),
                "version": c.version,
            }
            for c in self._session.completions(value)
        ]
        rows += [_open(p.requested, "pending", DELTA_COMMIT, p.version) for p in value.pending]
        rows += [_open(p.barrier, "planned", p.action, p.version) for p in value.plans]
        rows += [_open(r.requested, "rolled back", r.action, r.version) for r in value.rolled_back]
        return pa.Table.from_pylist(sorted(rows, key=lambda r: str(r["requested_at"])), _TIMELINE)

    def files(self, as_of: InstantTime | None = None) -> pa.Table:
        """The files of the latest snapshot, or of the one as of a completion time, by file group."""
        value = self._session.sealed(decided=as_of is not None)
        rows = []
        cut = None if as_of is None else Cut("completed", as_of)
        for slice_ in fold_slices(self._session.snapshot_completions(value, cut)):
            for file in slice_.files:
                kind = "base" if file.is_base else "log" if file in slice_.fresh_logs else "carry"
                rows.append(
                    {
                        "partition": slice_.partition,
                        "file_id": slice_.file_id,
                        "kind": kind,
                        "path": file.path,
                        "instant": file.name.instant,
                        "bytes": file.size,
                        "rows": file.rows,
                        "deletes": file.deletes,
                    }
                )
        return pa.Table.from_pylist(rows, _FILES)


def _open(requested: InstantTime, state: str, action: str, version: int) -> dict[str, object]:
    return {"requested_at": requested, "state": state, "action": action, "version": version}

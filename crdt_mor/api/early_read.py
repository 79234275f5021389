"""Read the rows of an update while it waits for earlier writes; afterwards read only the keys that they changed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from crdt_mor.api.scan import Scan
from crdt_mor.errors import CrdtMorError
from crdt_mor.merge.blocks import RECORD_KEY
from crdt_mor.read.ended import ended_keys
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.write.reading import Read, Wait


@dataclass(frozen=True, slots=True)
class EarlyRead:
    """Rows of the commits that had ended at the begin of an update, with their record keys."""

    view: Snapshot
    request: Wait | Read
    rows: pa.Table

    @classmethod
    def of(cls, view: Snapshot, request: Wait | Read) -> EarlyRead | None:
        """Return the read; None if it fails, because the final view may have rows and columns for which it does not."""
        with suppress(CrdtMorError):
            return cls(view, request, _with_keys(view, request).to_arrow())
        return None

    def final_rows(self, view: Snapshot, request: Read) -> pa.Table | None:
        """Return the matching rows of the final view; None if they must be read anew."""
        if self.request.columns != request.columns or self.request.filter is not request.filter:
            return None
        keys = ended_keys(self.view, view)
        if keys is None:
            return None
        rows = self.rows
        if keys:
            ended = pl.Series(keys, dtype=pl.String)
            is_kept = ~pl.Series(pl.from_arrow(rows[RECORD_KEY])).is_in(ended.implode())
            again = _with_keys(view, request).narrowed(filter=pl.col(RECORD_KEY).is_in(ended.implode()))
            rows = pa.concat_tables([rows.filter(is_kept.to_arrow()), again.to_arrow()])
        return rows.drop_columns([RECORD_KEY])


def _with_keys(view: Snapshot, request: Wait | Read) -> Scan:
    names = view.shown.declared.names if request.columns is None else request.columns
    return Scan(view, [RECORD_KEY, *names], request.filter, meta=True)

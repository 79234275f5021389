"""Compactions that remove expired rows.

File groups without logs are compacted by `compact` if any row has expired, by `maintain` if all have. Footers of base
files tell.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import pyarrow.parquet as pq

from crdt_mor.errors import FutureSnapshotError
from crdt_mor.events.session import Session
from crdt_mor.ground.threads import in_threads
from crdt_mor.model.expiry import Expiry
from crdt_mor.model.instant import InstantTime, from_ms, to_datetime
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_parts import FileGroup
from crdt_mor.planners.compaction import pending_in
from crdt_mor.planners.compaction_due import DueGroup, group_name
from crdt_mor.read.damage import naming_damage
from crdt_mor.read.open_slice import base_source
from crdt_mor.read.row_groups import statistics

Removes = Literal["any", "all"]


class _Span(NamedTuple):
    """The first and last value of the column. is_whole: no row is null."""

    first: datetime | None
    last: datetime | None
    is_whole: bool


class _Spans(dict[str, _Span]):
    """By path of the base file."""


def move_clock(session: Session) -> None:
    """Move the clock of a table with `ttl` to now, so that the next barrier follows all expiries."""
    if session.config.merge.expiry is None:
        return
    try:
        session.views.decide(from_ms(session.store.now_ms() - 2))  # the event's time is even
    except FutureSnapshotError as error:  # its message is about as_of, which nobody passed
        raise error.__cause__ or error from None


def slices_expired(session: Session, value: Timeline, at: InstantTime, removes: Removes) -> list[FileSlice]:
    """Return slices with expired rows, without logs to fold or pending writes."""
    expiry = session.config.merge.expiry
    if expiry is None:
        return []
    bound = to_datetime(at) - timedelta(milliseconds=expiry.after_ms)
    quiet = [s for s in session.views.slices(value) if s.base is not None and not _brings_rows(s)]
    waits = {partition for partition in {s.partition for s in quiet} if pending_in(value, partition)}
    quiet = [slice_ for slice_ in quiet if slice_.partition not in waits]
    found = zip(quiet, _spans(session, quiet, expiry), strict=True)
    if removes == "all":
        return [slice_ for slice_, span in found if span.is_whole and span.last is not None and span.last <= bound]
    return [slice_ for slice_, span in found if span.first is not None and span.first <= bound]


def _brings_rows(slice_: FileSlice) -> bool:
    return bool(slice_.fresh_logs) or any(log.rows for log in slice_.logs)


def due_expired(session: Session, value: Timeline, now_ms: int, taken: Collection[FileGroup]) -> list[DueGroup]:
    return [
        DueGroup(slice_.group, f"all rows of file group {group_name(slice_.group)} have expired", slice_.bytes)
        for slice_ in slices_expired(session, value, from_ms(now_ms), "all")
        if slice_.group not in taken
    ]


def _spans(session: Session, slices: Sequence[FileSlice], expiry: Expiry) -> list[_Span]:
    known = session.views.kept(_Spans)

    def span(slice_: FileSlice) -> _Span:
        assert slice_.base is not None
        with naming_damage(session.store, slice_), base_source(session.store, slice_.base).open() as file:
            return _span_of(file.metadata, expiry.column)

    unknown = [slice_ for slice_ in slices if slice_.base is not None and slice_.base.path not in known]
    for slice_, found in zip(unknown, in_threads(span, unknown), strict=True):
        assert slice_.base is not None
        known[slice_.base.path] = found
    return [known[slice_.base.path] for slice_ in slices if slice_.base is not None]


def _span_of(footer: pq.FileMetaData, column: str) -> _Span:
    found = [statistics(footer.row_group(group), column) for group in range(footer.num_row_groups)]
    firsts = [first for first, _, _ in found if isinstance(first, datetime)]
    lasts = [last for _, last, _ in found if isinstance(last, datetime)]
    is_whole = all(isinstance(last, datetime) and nulls == 0 for _, last, nulls in found)
    return _Span(min(firsts, default=None), max(lasts, default=None), is_whole)

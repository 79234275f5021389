"""Read the rows of a write into memory, or many rows into a temporary file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from typing import Final

import pyarrow as pa

from crdt_mor.api.data import Data, open_data
from crdt_mor.columns.arrow_input import bytes_of, in_tables
from crdt_mor.events.session import Session
from crdt_mor.ground.observing import Tell
from crdt_mor.ground.observing_events import StreamEvent
from crdt_mor.ground.spill import SpillFile
from crdt_mor.model.instant import EPOCH
from crdt_mor.write.named import text_types
from crdt_mor.write.spilling import Slots, SpilledStatement, part_bytes, spill
from crdt_mor.write.statements import RowsStatement, Statements

_TABLE_ROWS: Final = 262_144


@contextmanager
def reading_rows(
    session: Session, data: Data, statement: Callable[[pa.Table], RowsStatement], *, by_key: bool = True
) -> Iterator[Callable[[], RowsStatement | SpilledStatement]]:
    """Yield a function that reads a write's rows; a temporary file lives as long as the block.

    by_key: rows of a file group may be staged in parts.
    """
    with ExitStack() as files:

        def read() -> RowsStatement | SpilledStatement:
            most = part_bytes(session.memory_limit)
            rows = open_data(data, lambda: text_types(session.config, session.known_tail()))
            table, rest = _beginning(rows, most)
            if rest is None:
                return statement(table)
            slots = partial(Slots, files.enter_context(SpillFile()), most, by_key=by_key)
            tables = (some for some, _ in in_tables(rest, _TABLE_ROWS, max(1, most // 2)))
            return spill(_newest(session), _told(tables, session.publisher.tell), statement, slots)

        yield read


def _beginning(
    rows: pa.Table | pa.RecordBatchReader, most: int
) -> tuple[pa.Table, None] | tuple[None, Iterable[pa.RecordBatch]]:
    """Return all rows up to so many bytes, else batches."""
    if isinstance(rows, pa.Table):
        return (rows, None) if bytes_of(rows) <= most else (None, rows.to_batches())
    batches, size = list[pa.RecordBatch](), 0
    for batch in rows:
        batches.append(batch)
        size += bytes_of(batch)
        if size > most:
            return None, chain(_let_go(batches), rows)
    return pa.Table.from_batches(batches, rows.schema), None


def _let_go(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    batches.reverse()
    while batches:
        yield batches.pop()


def _told(tables: Iterator[pa.Table], tell: Tell) -> Iterator[pa.Table]:
    """Report the rows of each table once it is in the temporary file."""
    for table in tables:
        count = table.num_rows
        yield table
        del table  # free memory before the next rows are read
        tell(StreamEvent(state="read", rows=count))


def _newest(session: Session) -> Statements:
    if not session.config.ours or session.views.has_foreign:
        session.adopt()
    return Statements(session.config, session.tail(), EPOCH)
